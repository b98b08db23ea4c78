"""Fault campaign for MUD tables: random fleets, work and faults, judged by the system's guarantees."""
