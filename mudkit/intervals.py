"""Intervals of means, shares, ratios and differences that never leave what is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from mudkit.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

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
    _require_share(confidence)
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
    _require_share(confidence)
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


def by_day(
    parts: ArrayLike,
    wholes: ArrayLike,
    kind: Literal["share", "positive", "any"] = "share",
    confidence: float = 0.95,
) -> Interval:
    """Return the ratio of two sums over days and draws, with an interval that covers both.

    Rows are days, columns are draws of what is not known of them. The variance is that of days, of which
    neighbours may be alike, and of draws, less what both count (Cameron, Gelbach and Miller, Robust inference
    with multiway clustering, 2011). A share has Wilson's interval for as many independent cases as have this
    variance, and for as many as a draw has, at most, where fewer than five are parts, or all but so few; what
    is positive has one on a logarithmic scale.

    Parameters
    ----------
    parts, wholes : array of shape (days, draws)
    kind : {'share', 'positive', 'any'}
        What the ratio can be: from 0 to 1, from 0 on, or any number.
    confidence : float

    Returns
    -------
    Interval
        Without ends below five days, or where a positive ratio is 0.
    """
    _require_share(confidence)
    part, whole = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    days, draws = part.shape
    total = whole.sum()
    if not total > 0:
        return Interval(np.nan, np.nan, np.nan, "value")
    value = float(part.sum() / total)
    if days < MIN_REPETITIONS or (kind == "positive" and value == 0):
        return Interval(value, np.nan, np.nan, "value")
    off = (part - value * whole) / total
    variance = of_days = _variance_of_days(off.sum(axis=1))
    if draws > 1:
        of_draws = draws / (draws - 1) * float((off.sum(axis=0) ** 2).sum())
        variance = max(of_days, of_days + of_draws - float((off**2).sum()))
    z = t_quantile(0.5 + confidence / 2, days - 1)
    if kind == "share":
        cases = value * (1 - value) / variance if variance > 0 else total / draws
        if min(part.sum(), total - part.sum()) < MIN_REPETITIONS:
            cases = min(cases, total / draws)  # a few cases say too little about their variance
        return _wilson(value, cases, z)
    half = z * np.sqrt(variance)
    if kind == "positive":
        factor = float(np.exp(half / value))
        return Interval(value, value / factor, value * factor, "interval")
    return Interval(value, value - half, value + half, "interval")


def _variance_of_days(off: NDArray[np.float64]) -> float:
    """Return the variance of a sum over days of which neighbours may be alike (Newey and West, 1987)."""
    days, lags = len(off), int(np.cbrt(len(off)))
    alike = [float((off[lag:] * off[:-lag]).sum()) * (1 - lag / (lags + 1)) for lag in range(1, lags + 1)]
    alone = float((off**2).sum())
    return days / (days - 1) * max(alone + 2 * sum(alike), alone)


def share(part: float, whole: float, confidence: float = 0.95) -> Interval:
    """Return a share of independent cases with its Wilson interval, which lies between 0 and 1."""
    _require_share(confidence)
    if not 0 <= part <= whole:
        raise ParameterError(
            "A part is not within its whole.", where="part", found=f"{part} of {whole}", expected="0 to whole"
        )
    if whole == 0:
        return Interval(np.nan, np.nan, np.nan, "value")
    z = float(ndtri(0.5 + confidence / 2))
    return _wilson(part / whole, whole, z)


def _wilson(value: float, cases: float, z: float) -> Interval:
    """Return Wilson's interval of a share of a number of cases."""
    middle = (value + z * z / (2 * cases)) / (1 + z * z / cases)
    half = z * np.sqrt(value * (1 - value) / cases + z * z / (4 * cases * cases)) / (1 + z * z / cases)
    low, high = max(float(middle - half), 0.0), min(float(middle + half), 1.0)
    return Interval(value, min(low, value), max(high, value), "interval")


def clustered(
    values: ArrayLike,
    *clusters: ArrayLike,
    weights: ArrayLike | None = None,
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
        The cases, or with ``weights`` sums over cases.
    *clusters : array_like, shape (cases,)
        One or two clusterings, as whole numbers.
    weights : array_like, shape (cases,), optional
        Number of cases whose sum each value is; none: 1 each. No clustering separates them.
    confidence : float
    ahead : bool
        Return where the mean of as many new clusters and cases will lie, instead of the expectation.
    limits : (float, float)
        Range of possible means. Shares get a logit interval.
    """
    _require_share(confidence)
    given = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(given)) if weights is None else np.asarray(weights, dtype=np.float64)
    cases = float(weight.sum())
    if not cases:
        return Interval(np.nan, np.nan, np.nan, "value")
    value = float(given.sum() / cases)
    if len(given) == 1:
        return Interval(value, np.nan, np.nan, "value")
    numbers = [np.asarray(cluster) for cluster in clusters]
    se, freedom = clustered_se(given[:, None], weight, *numbers)
    reach = t_quantile(0.5 + confidence / 2, freedom) * float(se[0]) * (np.sqrt(2.0) if ahead else 1.0)
    low, high = limits
    if limits == (0.0, 1.0):
        # Of no or all cases the logit is not finite: half a case more and less.
        middle = (value * cases + 0.5) / (cases + 1)
        least = np.sqrt(middle * (1 - middle) / cases) * (np.sqrt(2.0) if ahead else 1.0)
        reach = max(reach, float(least) * t_quantile(0.5 + confidence / 2, freedom)) / (middle * (1 - middle))
        ends = 1 / (1 + np.exp(-(np.log(middle / (1 - middle)) + np.array([-reach, reach]))))
        return Interval(value, min(float(ends[0]), value), max(float(ends[1]), value), "interval")
    return Interval(value, max(value - reach, low), min(value + reach, high), "interval")


def median(values: ArrayLike, *clusters: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the median of cases that are alike within clusters (Woodruff, JASA 47, 1952).

    The share of cases below the median has the interval of :func:`clustered`; the quantiles at its ends are
    those of the median. Clusters are numbered densely; without any, cases are independent.
    """
    _require_share(confidence)
    given = np.asarray(values, dtype=np.float64)
    if not len(given):
        return Interval(np.nan, np.nan, np.nan, "value")
    value = float(np.median(given))
    if len(given) == 1:
        return Interval(value, np.nan, np.nan, "value")
    below = (given < value) + 0.5 * (given == value)
    # Sums by the cells of the clusterings tell the same, and are few.
    numbers = [np.asarray(cluster, dtype=np.int64) for cluster in clusters] or [np.arange(len(given))]
    shape = tuple(int(np.ptp(number)) + 1 for number in numbers)
    cell = np.ravel_multi_index(tuple(number - number.min() for number in numbers), shape)
    counts = np.bincount(cell).astype(np.float64)
    parts = np.bincount(cell, below).astype(np.float64)
    used = np.flatnonzero(counts)
    of_used = np.unravel_index(used, shape)
    levels = median_levels(parts[used], counts[used], *of_used, confidence=confidence)
    low, high = np.quantile(given, levels)
    return Interval(value, float(low), float(high), "interval")


def median_levels(
    below: NDArray[np.float64],
    counts: NDArray[np.float64],
    *clusters: NDArray[Any],
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Return the levels of the quantiles that are the ends of the interval of a median: see :func:`median`.

    Parameters
    ----------
    below : ndarray, shape (rows,)
        Cases below the median, and half of those that equal it, by row: sums over cases that no clustering
        separates.
    counts : ndarray, shape (rows,)
        Cases by row.
    *clusters : ndarray, shape (rows,)
    """
    se, freedom = clustered_se(below[:, None], counts, *clusters)
    least = 0.5 / np.sqrt(counts.sum())  # of as many independent cases
    reach = min(t_quantile(0.5 + confidence / 2, freedom) * max(float(se[0]), float(least)), 0.5)
    return 0.5 - reach, 0.5 + reach


def total(counts: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the sum of a table of counts whose rows are alike, and whose columns are: devices and days."""
    given = np.asarray(counts, dtype=np.float64)
    row, column = np.indices(given.shape)
    one = clustered(given.ravel(), row.ravel(), column.ravel(), confidence=confidence, limits=(0.0, np.inf))
    size = given.size
    return Interval(size * one.value, size * one.low, size * one.high, one.kind)


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


class Clustering(NamedTuple):
    """Number of clusters of cases, of which some are parts of several shares, and sums over the clusters.

    ``squared_cases`` are the squared numbers of cases; ``products``, of shape (shares,), those of cases times
    parts, and ``squares`` the squared numbers of parts. Those of other clusters are added.
    """

    clusters: int
    squared_cases: int
    products: NDArray[np.int64]
    squares: NDArray[np.int64]

    @classmethod
    def of(cls, parts: NDArray[np.int64], cases: NDArray[np.int64], cluster: NDArray[np.int64]) -> Clustering:
        """Add rows by cluster: parts of shape (rows, shares), cases and clusters of shape (rows,)."""
        order = np.argsort(cluster, kind="stable")
        starts = np.flatnonzero(np.diff(cluster[order], prepend=cluster[order][:1] - 1))
        if not len(starts):
            nothing = np.zeros(parts.shape[1], dtype=np.int64)
            return cls(0, 0, nothing, nothing)
        of_parts = np.add.reduceat(parts[order], starts, axis=0)
        of_cases = np.add.reduceat(cases[order], starts)
        squared = int((of_cases**2).sum())
        return cls(len(starts), squared, of_cases @ of_parts, (of_parts**2).sum(axis=0))

    def variance(self, parts: NDArray[np.int64], cases: int) -> NDArray[np.float64]:
        """Return the variance of each share: squared residuals of the clusters, without rounding before."""
        of_parts, products, squares = (of.astype(object) for of in (parts, self.products, self.squares))
        residuals = cases**2 * squares - 2 * cases * of_parts * products + of_parts**2 * self.squared_cases
        variance: NDArray[np.float64] = residuals.astype(np.float64) / float(cases) ** 4
        return variance * (self.clusters / max(self.clusters - 1, 1))


def clusterings(
    parts: NDArray[np.int64], cases: NDArray[np.int64], *clusters: NDArray[np.int64]
) -> list[Clustering]:
    """Add rows by one clustering; or by two, and by both: see :meth:`Clustering.of`."""
    numbered = [np.unique(cluster, return_inverse=True)[1].astype(np.int64) for cluster in clusters]
    if len(numbered) == 2:
        numbered.append(numbered[0] * (int(numbered[1].max(initial=0)) + 1) + numbered[1])
    return [Clustering.of(parts, cases, numbers) for numbers in numbered]


def shares_ahead(
    parts: NDArray[np.int64],
    cases: int,
    clustered_by: Sequence[Clustering],
    *,
    new_cases: float,
    risk: float,
) -> NDArray[np.float64]:
    """Return the shares that as many new clusters, with `new_cases` cases, exceed with a probability `risk`.

    Parameters
    ----------
    parts : ndarray of int64, shape (shares,)
        Cases that are part of each share.
    cases : int
        Number of cases.
    clustered_by : sequence of Clustering
        One clustering; or two, and that by both.
    new_cases : float
    risk : float
    """
    smooth, se, freedom = _smooth_shares(parts, cases, clustered_by)
    most: NDArray[np.float64] = (
        smooth + t_quantile(1.0 - risk, freedom) * np.sqrt(1.0 + cases / new_cases) * se
    )
    return most


def risk_ahead(
    parts: NDArray[np.int64], cases: NDArray[np.int64], *clusters: NDArray[np.int64], limit: float
) -> float:
    """Return the probability that the share of as many new clusters and cases exceeds a limit.

    Parts and cases are sums by row that no clustering separates; clusters are of shape (rows,).
    """
    of_parts = parts[:, None].astype(np.int64)
    (smooth,), (se,), freedom = _smooth_shares(
        of_parts.sum(axis=0), int(cases.sum()), clusterings(of_parts, cases, *clusters)
    )
    return float(stdtr(freedom, (smooth - limit) / (np.sqrt(2.0) * se)))


def _smooth_shares(
    parts: NDArray[np.int64], cases: int, clustered_by: Sequence[Clustering]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return shares with half a case more of each kind, their standard errors, and degrees of freedom.

    No standard error is less than that of as many independent cases. Clusterings are used as in
    :func:`clustered_se`.
    """
    given = clustered_by[:2]
    used = [one for one in given if one.clusters >= MIN_REPETITIONS] or [
        max(given, key=lambda one: one.clusters)
    ]
    variances = [one.variance(parts, cases) for one in used]
    if len(used) == 2:
        variances.append(sum(variances) - clustered_by[2].variance(parts, cases))
    freedom = min(max(cases**2 / one.squared_cases - 1.0, 1.0) for one in used)
    smooth = np.asarray((parts + 0.5) / (cases + 1.0), dtype=np.float64)
    least = np.sqrt(smooth * (1.0 - smooth) / cases)
    se = np.asarray(np.maximum(np.sqrt(np.max(variances, axis=0)), least), dtype=np.float64)
    return smooth, se, freedom


def t_quantile(level: float, freedom: float) -> float:
    """Return a quantile of Student's distribution."""
    return float(stdtrit(freedom, level))


def _cluster_variance(residuals: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the variance of the sum of residuals, of which those of one cluster go together."""
    count = int(numbers.max()) + 1
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(count))
    summed = np.add.reduceat(residuals[order], starts, axis=0)
    variance: NDArray[np.float64] = (summed**2).sum(axis=0) * (count / max(count - 1, 1))
    return variance


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


def _require_share(confidence: Any) -> None:
    """Raise ParameterError unless a confidence is between 0 and 1, ends excluded."""
    if not (isinstance(confidence, int | float) and 0 < confidence < 1):
        raise ParameterError(
            "A confidence is a share.", where="confidence", found=repr(confidence), expected="between 0 and 1"
        )
