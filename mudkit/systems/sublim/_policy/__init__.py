"""Policies: rules over a message, the state of a subscriber and time, and what runs them (SUBLIM 3)."""
