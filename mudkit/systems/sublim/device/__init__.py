"""The machine of a device: it attaches to an access point, says how it is, and takes messages (SUBLIM 3)."""
