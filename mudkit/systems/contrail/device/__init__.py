"""The client module of a device and its parts (Contrail 4.1)."""
