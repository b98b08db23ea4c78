"""Anomalies: what no history of a record can contain, whatever the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mudkit.consistency.operation import Operation

__all__ = ["REFUSED", "Anomaly"]

REFUSED: Final = "saw a refused write"
"""The kind of an anomaly: a write that was refused has no effect, and was seen."""


@dataclass(frozen=True)
class Anomaly:
    """Something that no view can contain.

    Parameters
    ----------
    kind : str
    operations : tuple of Operation
    words : str
    """

    kind: str
    operations: tuple[Operation, ...]
    words: str
