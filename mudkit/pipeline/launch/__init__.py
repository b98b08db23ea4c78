"""What it takes to start Spark: a Java, its archive of classes, settings, and a JVM that ends with us."""
