"""Figures on the sphere: maps without a network, fleets, cells, places."""
