"""The fault campaign: random fleets, work and faults, judged by what systems promise."""
