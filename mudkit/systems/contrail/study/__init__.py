"""Applications of the paper, built on items and filters (Contrail 3.5, 5)."""
