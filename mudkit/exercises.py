"""Judges."""

__all__: list[str] = []
