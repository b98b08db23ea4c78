"""Policies that decide between device and cloud, utilities, and shipped artefacts (Mobius 6)."""
