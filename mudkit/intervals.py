"""Intervals of means, shares and ratios that never leave what is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["MIN_REPETITIONS", "Interval", "clustered", "clustered_se", "mean", "ratio", "share", "t_quantile"]

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


def clustered(
    values: ArrayLike,
    *clusters: ArrayLike,
    confidence: float = 0.95,
    ahead: bool = False,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """Return the mean of cases that are alike within clusters, for instance within devices and within days.

    The variance adds those of the clusterings and subtracts that of their intersection (Cameron, Gelbach and
    Miller 2011, two-way clustering); the quantile is Student's, for as many clusters as would weigh alike.
    A clustering with fewer than five clusters is left out where the other one has more, as a few say nothing
    about others; without any clusters, cases are independent.

    Parameters
    ----------
    values : array_like, shape (cases,)
    *clusters : array_like, shape (cases,)
        One or two clusterings, as whole numbers.
    confidence : float
    ahead : bool
        Return where the mean of as many new clusters and cases will lie, instead of the expectation.
    limits : (float, float)
        Range of possible means. Shares get a logit interval.
    """
    _check(confidence)
    given = np.asarray(values, dtype=np.float64)
    if not len(given):
        return Interval(np.nan, np.nan, np.nan, "value")
    value = float(given.mean())
    if len(given) == 1:
        return Interval(value, np.nan, np.nan, "value")
    numbers = [np.asarray(cluster) for cluster in clusters]
    se, freedom = clustered_se(given[:, None], np.ones(len(given)), *numbers)
    reach = t_quantile(0.5 + confidence / 2, freedom) * float(se[0]) * (np.sqrt(2.0) if ahead else 1.0)
    low, high = limits
    if limits == (0.0, 1.0):
        # Of no or all cases the logit is not finite: half a case more and less.
        middle = (value * len(given) + 0.5) / (len(given) + 1)
        least = np.sqrt(middle * (1 - middle) / len(given)) * (np.sqrt(2.0) if ahead else 1.0)
        reach = max(reach, float(least) * t_quantile(0.5 + confidence / 2, freedom)) / (middle * (1 - middle))
        ends = 1 / (1 + np.exp(-(np.log(middle / (1 - middle)) + np.array([-reach, reach]))))
        return Interval(value, min(float(ends[0]), value), max(float(ends[1]), value), "interval")
    return Interval(value, max(value - reach, low), min(value + reach, high), "interval")


def clustered_se(
    sums: NDArray[np.float64], weights: NDArray[np.float64], *clusters: NDArray[Any]
) -> tuple[NDArray[np.float64], float]:
    """Return the standard errors of ratios of sums, and degrees of freedom: see :func:`clustered`.

    Parameters
    ----------
    sums : ndarray, shape (rows, ratios)
        Numerators by row. Rows are cases, or sums over cases that no clustering separates.
    weights : ndarray, shape (rows,)
        Denominators by row.
    *clusters : ndarray, shape (rows,)
    """
    total = float(weights.sum())
    residuals = sums - weights[:, None] * (sums.sum(axis=0) / total)
    numbered = [np.unique(cluster, return_inverse=True)[1] for cluster in clusters]
    used = [numbers for numbers in numbered if numbers.max(initial=0) >= MIN_REPETITIONS - 1]
    if not used:
        most = max(numbered, key=lambda numbers: int(numbers.max(initial=0)), default=np.zeros(0, np.int64))
        used = [most if most.max(initial=0) > 0 else np.arange(len(weights))]
    variances, freedoms = [], []
    for numbers in used:
        variances.append(_cluster_variance(residuals, numbers) / total**2)
        size = np.bincount(numbers, weights)
        freedoms.append(max(float(size.sum() ** 2 / (size**2).sum()) - 1.0, 1.0))
    if len(used) == 2:
        first, second = used
        both = np.unique(first * (second.max() + 1) + second, return_inverse=True)[1]
        joined = sum(variances) - _cluster_variance(residuals, both) / total**2
        variances.append(joined)
    return np.sqrt(np.max(variances, axis=0)), min(freedoms)


def t_quantile(level: float, freedom: float) -> float:
    """Return a quantile of Student's distribution."""
    from scipy import stats

    return float(stats.t.ppf(level, freedom))


def _cluster_variance(residuals: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the variance of the sum of residuals, of which those of one cluster go together."""
    count = int(numbers.max()) + 1
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(count))
    summed = np.add.reduceat(residuals[order], starts, axis=0)
    variance: NDArray[np.float64] = (summed**2).sum(axis=0) * (count / max(count - 1, 1))
    return variance


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
