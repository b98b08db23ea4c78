"""Measures of policies over folds: means, how far they differ from a baseline, and 95 % intervals.

Intervals are bootstrapped over folds: the range with fewer than five, NaN with fewer than two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals


@dataclass(frozen=True)
class Measures:
    """Measures of a policy over all that was replayed, and over each fold (rows)."""

    total: NDArray[np.float64]
    folds: NDArray[np.float64]


def sums_by(number: NDArray[np.int64], rows: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Add rows by number, one after the other, so that the sums depend on the order of the rows alone."""
    return np.column_stack([np.bincount(number, column, minlength=count) for column in rows.T])


def shares(measures: Measures, names: Sequence[str]) -> dict[str, float]:
    """Name the measures, each with ``…_low`` and ``…_high``."""
    row: dict[str, float] = {}
    for i, name in enumerate(names):
        low, high = _bounds(float(measures.total[i]), measures.folds[:, i])
        row |= {name: float(measures.total[i]), f"{name}_low": low, f"{name}_high": high}
    return row


def changes(measures: Measures, baseline: Measures | None, names: Sequence[str]) -> dict[str, float]:
    """Return each measure's difference from the baseline's, fold by fold: ``…_change``, low and high."""
    row: dict[str, float] = {}
    for i, name in enumerate(names):
        total, low, high = np.nan, np.nan, np.nan
        if baseline is not None:
            total = float(measures.total[i] - baseline.total[i])
            low, high = _bounds(total, measures.folds[:, i] - baseline.folds[:, i])
        row |= {f"{name}_change": total, f"{name}_change_low": low, f"{name}_change_high": high}
    return row


def _bounds(total: float, folds: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of an interval over folds; the value over all rows is always in it."""
    result = intervals.mean(folds)
    if not result.low <= result.high:
        return np.nan, np.nan
    return min(result.low, total), max(result.high, total)


def closed(
    measures: Measures, baseline: Measures | None, bound: Measures | None, of: int
) -> dict[str, float]:
    """Return the share of the gap between baseline and bound that is closed in measure ``of``."""
    names = ("gap_closed", "gap_closed_low", "gap_closed_high")
    if baseline is None or bound is None:
        return dict.fromkeys(names, np.nan)
    gap = float(baseline.total[of] - bound.total[of])
    if gap <= 0.0:
        return dict.fromkeys(names, np.nan)
    share = float(baseline.total[of] - measures.total[of]) / gap
    gaps, saved = (baseline.folds[:, of] - other.folds[:, of] for other in (bound, measures))
    result = intervals.ratio(saved, gaps)
    if not result.low <= result.high:
        return dict(zip(names, (share, np.nan, np.nan), strict=True))
    return dict(zip(names, (share, min(result.low, share), max(result.high, share)), strict=True))
