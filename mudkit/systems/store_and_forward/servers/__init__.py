"""The machine of the server: the relay."""
