"""Verification of the systems' guarantees."""
