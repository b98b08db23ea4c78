"""How to cut a full leaf of corners in two, so that most queries visit one half only."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cut", "Side", "best_cut", "ranges"]

_USEFUL: Final = 0.97
"""A cut that spares less than this share of the visits is not made."""
_INF: Final = math.inf


class Side(NamedTuple):
    """What a coordinate is.

    Attributes
    ----------
    expression : int
        Number of the record's expression that is bounded.
    upper : bool
        Whether it bounds from above; such coordinates are negated.
    """

    expression: int
    upper: bool


class Cut(NamedTuple):
    """A way to tell corners apart: a coordinate, or the middle or the width of a range."""

    kind: str
    first: int
    second: int
    at: float

    def value(self, corner: tuple[float, ...]) -> float:
        """Give what is compared with ``at``."""
        if self.kind == "bound":
            return corner[self.first]
        low, high = corner[self.first], -corner[self.second]
        if low == -_INF or high == _INF:
            return -_INF if self.kind == "middle" else _INF
        return (low + high) * 0.5 if self.kind == "middle" else high - low


def ranges(sides: tuple[Side, ...]) -> list[tuple[int, int]]:
    """Pair the lower and the upper side of an expression; one without its other is a pair with itself."""
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for first, side in enumerate(sides):
        if first in taken:
            continue
        for second, other in enumerate(sides):
            if second not in taken and other.expression == side.expression and other.upper != side.upper:
                pairs.append((second, first) if side.upper else (first, second))
                taken |= {first, second}
                break
        else:
            pairs.append((first, first))
            taken.add(first)
    return pairs


def best_cut(corners: NDArray[np.float64], pairs: list[tuple[int, int]]) -> tuple[Cut, Any] | None:
    """Find the cut in halves that spares the most visits.

    The share of queries that must visit a half is estimated as the product, over the record's expressions, of
    the length of the half's range over that of the whole.
    """
    best: tuple[float, Cut, Any] | None = None
    whole = _extents(corners, pairs)
    for cut, values in _candidates(corners, pairs):
        middle = float(np.partition(values, len(values) // 2)[len(values) // 2])
        left = values < middle
        share = float(left.mean())
        if share < 0.05:
            # Many equal values: cut right above them instead.
            above = values[values > middle]
            if not len(above):
                continue
            middle = float(above.min())
            left = values < middle
            share = float(left.mean())
            if not 0.0 < share < 1.0:
                continue
        visits = share * _ratio(_extents(corners[:, left], pairs), whole, pairs)
        visits += (1 - share) * _ratio(_extents(corners[:, ~left], pairs), whole, pairs)
        if visits < _USEFUL and (best is None or visits < best[0]):
            best = visits, cut._replace(at=middle), left
    return None if best is None else best[1:]


def _candidates(
    corners: NDArray[np.float64], pairs: list[tuple[int, int]]
) -> list[tuple[Cut, NDArray[np.float64]]]:
    cuts = []
    for first, second in pairs:
        if first == second:
            cuts.append((Cut("bound", first, first, 0.0), corners[first]))
            continue
        low, high = corners[first], -corners[second]
        endless = (low == -_INF) | (high == _INF)
        with np.errstate(invalid="ignore"):
            cuts.append((Cut("middle", first, second, 0.0), np.where(endless, -_INF, (low + high) * 0.5)))
            cuts.append((Cut("width", first, second, 0.0), np.where(endless, _INF, high - low)))
    return cuts


def _extents(corners: NDArray[np.float64], pairs: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Give by expression from where to where a record can meet one of these corners."""
    extents = []
    for first, second in pairs:
        low = float(corners[first].min())
        high = float(corners[first].max()) if first == second else float((-corners[second]).max())
        extents.append((low, high))
    return extents


def _ratio(
    part: list[tuple[float, float]], whole: list[tuple[float, float]], pairs: list[tuple[int, int]]
) -> float:
    """Estimate the share of the queries that visit the whole which also visit a part of it."""
    product = 1.0
    for (low, high), (lowest, highest), (first, second) in zip(part, whole, pairs, strict=True):
        length = highest - lowest
        # A bound on one side is met by everything beyond it, also beyond the last corner.
        end = highest if first == second else high
        if length == _INF:
            product *= 0.5 if end - low < _INF else 1.0
        elif length > 0:
            product *= min(1.0, max(end - low, 0.0) / length)
    return product
