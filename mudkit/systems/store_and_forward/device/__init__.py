"""The machines of a device: the client, and the baseline that sends directly."""
