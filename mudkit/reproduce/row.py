"""A row of the table: what a paper says, how it is measured here, and what must hold."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mudkit import words

__all__ = ["Figure", "Measured", "Required", "Row", "Say", "say_nothing"]

Say: TypeAlias = Callable[[str], None]
"""Told what is being measured, for whoever watches."""


def say_nothing(text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Figure:
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
    def of(cls, values: Iterable[float]) -> Figure:
        """Sum up what several runs gave."""
        whole = list(values)
        return cls(statistics.median(whole), min(whole), max(whole))

    def __str__(self) -> str:
        places = words.decimals([self.median, self.low, self.high])
        text = words.number(self.median, places)
        return text if self.low == self.high else f"{text} ({words.interval(self.low, self.high, places)})"


@dataclass(frozen=True)
class Measured:
    """What one measurement of a row gave.

    Parameters
    ----------
    figures : mapping of str to Figure
        The figures by name; the name has the unit.
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
        The name of the figure.
    sense : {'at least', 'at most', 'below'}
    bound : float
        The value that the figure's median is compared with.
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
        What the paper says.
    required : tuple of Required
        What must hold of the figures; at least one requirement.
    measure : callable
        Measures the row; it is given a function to call with what it is measuring.
    minutes : float
        Expected duration of the measurement on two idle cores.
    is_speed : bool
        Whether the row is of speed, which depends on the machine: it is measured only when it is named.
    """

    name: str
    source: str
    paper: str
    required: tuple[Required, ...]
    measure: Callable[[Say], Measured]
    minutes: float
    is_speed: bool = False
