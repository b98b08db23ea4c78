"""Machines of MUD's cloud, and the cloud of a lab."""
