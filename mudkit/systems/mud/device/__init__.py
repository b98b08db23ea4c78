"""The machines of a device: what an application asks for, from the local store or the cloud (Mobius 4, 5)."""
