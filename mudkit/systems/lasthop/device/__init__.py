"""Device: its queue, its reads, and its session with the server (Last hop 3)."""
