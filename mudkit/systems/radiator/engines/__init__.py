"""Engines of Algorithm 3 (Radiator 3.1): a literal one, and three for many receivers that agree with it."""
