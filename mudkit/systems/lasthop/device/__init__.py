"""The machine of a device: what lies there, what is read, and what the server is told (Last hop 3)."""
