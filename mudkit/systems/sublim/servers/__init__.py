"""Servers of SUBLIM: the publish server, and access points with and without state."""
