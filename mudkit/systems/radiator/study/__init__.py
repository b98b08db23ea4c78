"""Applications of the paper's evaluation, and broadcasts and traces run without a fleet."""
