"""Evaluation of the paper: a simulator of one device and one topic, sweeps, and sizing (Last hop 4)."""
