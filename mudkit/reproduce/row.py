"""A row of the table: what a paper says, how it is measured here, and what must hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Figure", "Measured", "Required", "Row", "Say", "number", "say_nothing"]

Say: TypeAlias = Callable[[str], None]
"""Told what is being measured, for whoever watches."""


def say_nothing(text: str) -> None:
    """Tell nobody."""


def number(value: float) -> str:
    """Write a number so that it can be read: three digits, or whole with separators."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


@dataclass(frozen=True)
class Figure:
    """One measured number and its spread.

    Parameters
    ----------
    median, low, high : float
        Of several runs or seeds: the middle one, the lowest and the highest.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """Sum up what several runs gave."""
        whole = list(values)
        return cls(statistics.median(whole), min(whole), max(whole))

    def __str__(self) -> str:
        text = number(self.median)
        return text if self.low == self.high else f"{text} ({number(self.low)}–{number(self.high)})"


@dataclass(frozen=True)
class Measured:
    """What one measurement of a row gave.

    Parameters
    ----------
    figures : mapping of str to Figure
        By name, unit included.
    parameters : mapping
        Seeds, sizes, and whatever else the figures depend on.
    """

    figures: Mapping[str, Figure]
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Required:
    """Something that must hold of a figure's median.

    Parameters
    ----------
    figure : str
        Its name among the row's figures.
    sense : {'at least', 'at most', 'below'}
    bound : float
    is_shape : bool
        Whether it is about order and slope, not about the level: when these hold and a level does not, the
        verdict is ``shape``.
    """

    figure: str
    sense: Literal["at least", "at most", "below"]
    bound: float
    is_shape: bool = False

    def holds(self, value: float) -> bool:
        """Say whether a value meets it; what is no number never does."""
        if self.sense == "at least":
            return value >= self.bound
        return value < self.bound if self.sense == "below" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.sense} {number(self.bound)}"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Parameters
    ----------
    name : str
        For instance ``M1``; of a part of a row ``M3-remote``.
    source : str
        Paper, section, figure.
    paper : str
        What the paper says.
    required : tuple of Required
        What must hold; one at least.
    measure : callable
        Measures it, and tells what it is at.
    is_speed : bool
        Whether it is of speed, so that it depends on the machine: measured only when it is named.
    """

    name: str
    source: str
    paper: str
    required: tuple[Required, ...]
    measure: Callable[[Say], Measured]
    is_speed: bool = False
