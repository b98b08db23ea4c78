"""The machine of the server: it keeps the spools of all devices (Last hop 3)."""
