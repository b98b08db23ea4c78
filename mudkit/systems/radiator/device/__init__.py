"""The machine of a device: the local middleware (Radiator 4.1)."""
