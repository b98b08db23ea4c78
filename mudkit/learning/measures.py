"""Measures of policies over folds: means, how far they differ from a baseline, and 95 % intervals.

Intervals are Student's t over folds; NaN with fewer than two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Measures", "changes", "closed", "half_width", "shares"]


@dataclass(frozen=True)
class Measures:
    """What a policy came to.

    Parameters
    ----------
    total : ndarray of float64, shape (measures,)
        Each measure over all reads or writes that were replayed.
    folds : ndarray of float64, shape (folds, measures)
        Each measure over the reads or writes of each fold.
    """

    total: NDArray[np.float64]
    folds: NDArray[np.float64]


def half_width(folds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give half of the 95 % confidence interval of the mean over folds.

    Parameters
    ----------
    folds : ndarray of float64, shape (folds, measures)
        Each measure of each fold.
    """
    if len(folds) < 2:
        return np.full(folds.shape[1], np.nan)
    from scipy import stats  # loading it takes longer than loading all of mudkit

    error = folds.std(axis=0, ddof=1) / np.sqrt(len(folds))
    return np.asarray(stats.t.ppf(0.975, len(folds) - 1) * error, dtype=np.float64)


def shares(measures: Measures, most: Mapping[str, float]) -> dict[str, float]:
    """Name the measures, each with ``…_low`` and ``…_high``.

    Parameters
    ----------
    measures : Measures
    most : mapping of str to float
        The largest value that each measure can have, by its name and in the order of the measures; the least
        is 0.
    """
    row: dict[str, float] = {}
    half = half_width(measures.folds)
    for i, (name, limit) in enumerate(most.items()):
        low, high = np.clip([measures.total[i] - half[i], measures.total[i] + half[i]], 0.0, limit)
        row |= {name: float(measures.total[i]), f"{name}_low": float(low), f"{name}_high": float(high)}
    return row


def changes(measures: Measures, baseline: Measures | None, names: Mapping[str, float]) -> dict[str, float]:
    """Say how far each measure is from the baseline's, fold by fold: ``…_change``, with low and high.

    Without a baseline all are NaN.
    """
    row: dict[str, float] = {}
    nothing = np.full(len(names), np.nan)
    total = nothing if baseline is None else measures.total - baseline.total
    half = nothing if baseline is None else half_width(measures.folds - baseline.folds)
    for i, name in enumerate(names):
        row |= {
            f"{name}_change": float(total[i]),
            f"{name}_change_low": float(total[i] - half[i]),
            f"{name}_change_high": float(total[i] + half[i]),
        }
    return row


def closed(
    measures: Measures, baseline: Measures | None, bound: Measures | None, of: int
) -> dict[str, float]:
    """Say which share of the gap between baseline and bound is closed in one measure.

    Returns
    -------
    dict
        ``gap_closed`` with low and high: of a ratio of means over folds (Cochran, Sampling techniques, 6.3).
        NaN without baseline, bound or gap.
    """
    names = ("gap_closed", "gap_closed_low", "gap_closed_high")
    if baseline is None or bound is None:
        return dict.fromkeys(names, np.nan)
    gap = float(baseline.total[of] - bound.total[of])
    if gap <= 0.0:
        return dict.fromkeys(names, np.nan)
    share = float(baseline.total[of] - measures.total[of]) / gap
    gaps, saved = (baseline.folds[:, of] - each.folds[:, of] for each in (bound, measures))
    half = float(half_width((saved - share * gaps)[:, None])[0]) / gap
    return dict(zip(names, (share, share - half, share + half), strict=True))
