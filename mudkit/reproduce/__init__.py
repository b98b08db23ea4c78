"""What must come out: the papers' numbers beside ours, measured, with verdicts that are computed."""

from mudkit.reproduce.outcome import Result, results
from mudkit.reproduce.row import Figure, Measured, Required, Row

__all__ = ["Figure", "Measured", "Required", "Result", "Row", "results"]
