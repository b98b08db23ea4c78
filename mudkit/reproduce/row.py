"""A row of the table: the paper's statement, its measurement here, the requirements, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from mudkit import words

Say: TypeAlias = Callable[[str], None]
"""Callback that reports the current step of a measurement."""


def say_nothing(text: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Quantity:
    """One measured number and its spread.

    Parameters
    ----------
    median, low, high : float
        The middle, the lowest and the highest value of several runs or seeds.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantity:
        """Summarise the values of several runs."""
        all_values = list(values)
        return cls(statistics.median(all_values), min(all_values), max(all_values))

    def __str__(self) -> str:
        places = words.decimals([self.median, self.low, self.high])
        text = words.number(self.median, places)
        return text if self.low == self.high else f"{text} ({words.interval(self.low, self.high, places)})"


@dataclass(frozen=True)
class Measured:
    """Result of one measurement of a row.

    Parameters
    ----------
    quantities : mapping of str to Quantity
        The quantities by name; the name has the unit.
    parameters : mapping
        Seeds, sizes, and everything else that the quantities depend on.
    cells : mapping of str to mapping
        Measures of each cell of a map by name, one number each; most rows have no map.
    """

    quantities: Mapping[str, Quantity]
    parameters: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Required:
    """Requirement on a quantity's median.

    Parameters
    ----------
    quantity : str
        The name of the quantity.
    sense : {'at least', 'at most', 'below', 'within'}
        One-sided where the paper itself is, as in "at least"; else ``within`` a tolerance of its figure.
    bound : float
        Bound of the median; with ``within`` the paper's figure.
    tolerance : float
        How far the median may be from the paper's figure, on either side.
    is_shape : bool
        Whether the form of the paper's figure requires it, an order or a slope: when these hold and another
        requirement does not, the verdict is ``shape``.
    """

    quantity: str
    sense: Literal["at least", "at most", "below", "within"]
    bound: float
    tolerance: float = 0.0
    is_shape: bool = False

    def holds(self, value: float) -> bool:
        """Return whether a value meets the requirement; NaN never does."""
        if self.sense == "at least":
            return value >= self.bound
        if self.sense == "within":
            return abs(value - self.bound) <= self.tolerance
        return value < self.bound if self.sense == "below" else value <= self.bound

    def __str__(self) -> str:
        if self.sense == "within":
            return f"{words.number(self.bound)} ± {words.number(self.tolerance)}"
        return f"{self.sense} {words.number(self.bound)}"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Parameters
    ----------
    name : str
        The name of the row, for instance ``M1``; of a part of a row, ``M3-remote``.
    source : str
        The paper, and its section or figure.
    paper : str
        The paper's statement.
    required : tuple of Required
        At least one requirement.
    measure : callable
        Measures the row, and calls its argument with each step.
    minutes : float
        Expected duration of the measurement on two idle cores.
    is_speed : bool
        Whether the result depends on the speed of the machine; such a row is measured only when named.
    known : str
        Known reason for a deviation from the paper's figures; part of every verdict but ``reproduced``.
    """

    name: str
    source: str
    paper: str
    required: tuple[Required, ...]
    measure: Callable[[Say], Measured]
    minutes: float
    is_speed: bool = False
    known: str = ""


REPRODUCED = "reproduced"
SHAPE = "shape"
NOT_REPRODUCIBLE = "not reproducible"
NOT_MEASURED = "not measured"


def judge(row: Row, measured: Measured | None) -> tuple[str, str]:
    """Compute a row's verdict and the reason for it."""
    if measured is None:
        return NOT_MEASURED, f"mudkit reproduce {row.name} measures it"
    lacking = [required.quantity for required in row.required if required.quantity not in measured.quantities]
    if lacking:
        return NOT_MEASURED, f"the last result is an older one, without {lacking[0]}; measure it again"
    kept = [required for required in row.required if _holds(required, measured)]
    missed = [required for required in row.required if required not in kept]
    reasons = []
    if missed:
        requirements = "; ".join(_in_words(required, measured) for required in missed)
        reasons.append(f"{len(missed)} of {len(row.required)} do not hold here: {requirements}")
    if kept:
        requirements = "; ".join(_in_words(required, measured) for required in kept)
        reasons.append(f"{len(kept)} of {len(row.required)} hold: {requirements}")
    shape = [required for required in row.required if required.is_shape]
    if not missed:
        verdict = REPRODUCED
    elif shape and all(required in kept for required in shape):
        verdict = SHAPE
    else:
        verdict = NOT_REPRODUCIBLE
    if row.known and verdict != REPRODUCED:
        reasons.append(f"Why: {row.known}")
    return verdict, ". ".join(reasons)


def _holds(required: Required, measured: Measured) -> bool:
    """Return whether the median of the required quantity is within the requirement."""
    return required.holds(measured.quantities[required.quantity].median)


def _in_words(required: Required, measured: Measured) -> str:
    """Describe a required quantity, its median and the requirement."""
    return f"{required.quantity} {words.number(measured.quantities[required.quantity].median)} ({required})"
