"""Intervals of means, shares, ratios and differences that never leave what is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["MIN_REPETITIONS", "Interval", "difference", "mean", "ratio", "share"]

MIN_REPETITIONS: Final = 5
"""With fewer repetitions the range of the values is given instead of an interval."""

_DRAWS: Final = 2000


@dataclass(frozen=True)
class Interval:
    """A value with a confidence interval, the range of fewer than five repetitions, or neither (NaN ends)."""

    value: float
    low: float
    high: float
    kind: Literal["interval", "range", "value"]


def mean(values: ArrayLike, confidence: float = 0.95, *, weights: ArrayLike | None = None) -> Interval:
    """Return the mean of repetitions with a bootstrap interval (percentiles of resampled means).

    It never leaves what is possible; NaN means not measured, and repetitions may have weights.
    """
    _check(confidence)
    given = np.asarray(values, dtype=np.float64)
    kept = np.isfinite(given)
    weight = np.ones(len(given)) if weights is None else np.asarray(weights, dtype=np.float64)
    given, weight = given[kept], weight[kept]
    if not len(given) or not weight.sum() > 0:
        return Interval(np.nan, np.nan, np.nan, "value")
    low, high = float(given.min()), float(given.max())
    value = min(max(float(np.average(given, weights=weight)), low), high)  # but for rounding it is
    if len(given) == 1:
        return Interval(value, np.nan, np.nan, "value")
    if len(given) < MIN_REPETITIONS:
        return Interval(value, low, high, "range")
    drawn = _drawn(len(given))
    sums = weight[drawn].sum(axis=1)
    means = (given[drawn] * weight[drawn]).sum(axis=1)[sums > 0] / sums[sums > 0]
    tail = 50 * (1 - confidence)
    low, high = (float(end) for end in np.percentile(means, [tail, 100 - tail]))
    return Interval(value, min(low, value), max(high, value), "interval")


def ratio(parts: ArrayLike, wholes: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the ratio of two sums over repetitions with a bootstrap interval; NaN if the wholes sum to 0."""
    _check(confidence)
    part, whole = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    if not whole.sum() > 0:
        return Interval(np.nan, np.nan, np.nan, "value")
    value = float(part.sum() / whole.sum())
    if len(part) == 1:
        return Interval(value, np.nan, np.nan, "value")
    is_range = len(part) < MIN_REPETITIONS
    drawn = np.arange(len(part))[:, None] if is_range else _drawn(len(part))
    sums = whole[drawn].sum(axis=1)
    ratios = part[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    tail = 0.0 if is_range else 50 * (1 - confidence)
    low, high = (float(end) for end in np.percentile(ratios, [tail, 100 - tail]))
    return Interval(value, min(low, value), max(high, value), "range" if is_range else "interval")


def share(part: float, whole: float, confidence: float = 0.95) -> Interval:
    """Return a share of independent cases with its Wilson interval, which lies between 0 and 1."""
    _check(confidence)
    if not 0 <= part <= whole:
        raise ParameterError(
            "A part is not within its whole.", where="part", found=f"{part} of {whole}", expected="0 to whole"
        )
    if whole == 0:
        return Interval(np.nan, np.nan, np.nan, "value")
    from scipy import stats

    z = float(stats.norm.ppf(0.5 + confidence / 2))
    value = part / whole
    middle = (value + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * np.sqrt(value * (1 - value) / whole + z * z / (4 * whole * whole)) / (1 + z * z / whole)
    low, high = max(float(middle - half), 0.0), min(float(middle + half), 1.0)
    return Interval(value, min(low, value), max(high, value), "interval")


def difference(one: Interval, other: Interval) -> Interval:
    """Return the difference of two independent estimates, ``one - other``, by the method MOVER.

    It recovers the variances from the ends of both intervals (G. Y. Zou and A. Donner, Statistics in Medicine
    27, 2008), and its ends lie within those of the difference of the intervals. For estimates that vary
    together, such as two on the same devices, the interval is too wide. It has NaN ends if either has.
    """
    value = one.value - other.value
    low = value - float(np.hypot(one.value - one.low, other.high - other.value))
    high = value + float(np.hypot(one.high - one.value, other.value - other.low))
    if not np.isfinite([low, high]).all():
        return Interval(value, np.nan, np.nan, "value")
    return Interval(value, low, high, "range" if "range" in (one.kind, other.kind) else "interval")


def _drawn(number: int) -> NDArray[np.int64]:
    """Return the resampled positions; the same ones for the same number, so that results repeat."""
    generator = np.random.Generator(np.random.PCG64(number))
    drawn: NDArray[np.int64] = generator.integers(0, number, size=(_DRAWS, number))
    return drawn


def _check(confidence: Any) -> None:
    if not (isinstance(confidence, int | float) and 0 < confidence < 1):
        raise ParameterError(
            "A confidence is a share.", where="confidence", found=repr(confidence), expected="between 0 and 1"
        )
