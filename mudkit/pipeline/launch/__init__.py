"""Start of Spark: settings, a Java with its archive of classes, a JVM that ends with Python, and Connect."""
