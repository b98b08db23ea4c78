"""Spool: decides which messages of a topic go to a device, and when (Last hop 4)."""
