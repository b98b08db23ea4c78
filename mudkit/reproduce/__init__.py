"""The papers' numbers beside ours: each is a row with a measurement and a verdict computed from it."""

from mudkit.reproduce.outcome import Result, results
from mudkit.reproduce.row import Figure, Measured, Required, Row

__all__ = ["Figure", "Measured", "Required", "Result", "Row", "results"]
