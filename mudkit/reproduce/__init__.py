"""The papers' numbers beside ours: each is a row with a measurement and a verdict computed from it."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.reproduce.outcome import Result, results
    from mudkit.reproduce.row import Measured, Quantity, Required, Row
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Measured",
    "Quantity",
    "Required",
    "Result",
    "Row",
    "results",
]
