"""Policies side by side: queries sent, stale answers, completeness and cost, with intervals over devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.learning.costs import CostMatrix, cost_matrix
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import Bound, FixedRule, Policy
from mudkit.learning.replay import SENT, fewest_sends, replay

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["evaluate_reads"]

_FOLDS = 10
_MEASURES = ("sent_share", "stale_share", "completeness", "cost")


def evaluate_reads(
    labels: Any,
    reads: Any,
    policies: Sequence[Policy | Bound],
    *,
    stale: str = "missing",
    completeness: float | None = None,
    folds: str = "device",
    cost: str | CostMatrix = "latency",
) -> pd.DataFrame:
    """Replay policies over a labelled trace.

    Parameters
    ----------
    labels, reads : pyarrow.Table or Spark DataFrame
        As ``pipeline.label_reads`` gives them, and the reads that were labelled.
    policies : sequence
        :class:`~mudkit.learning.FixedRule`, :class:`~mudkit.learning.Always`,
        :class:`~mudkit.learning.Bound`.
    stale : {'missing', 'completeness'}
        An answer is stale when at least one point is missing (Mobius 7.3), or when its completeness is
        below a threshold.
    completeness : float, optional
        That threshold, over 0 and at most 1.
    folds : {'device'}
        Intervals are over ten groups of devices.
    cost : str or CostMatrix
        A preset of :data:`~mudkit.learning.COSTS`, or costs of one's own.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: ``policy, reads, sent_share, stale_share, completeness, cost`` (mean cost of a
        read), and for each measure ``…_low`` and ``…_high``, the 95 % confidence interval (Student's t over
        folds; NaN with fewer than two).

    Raises
    ------
    ParameterError, TraceContentError
    """
    matrix = cost_matrix(cost)
    _check(stale, completeness, folds)
    pairs = Pairs.of(labels, reads)
    is_stale = pairs.missing >= 1 if completeness is None else pairs.completeness < completeness
    groups = _groups(pairs)
    reference = next((p for p in policies if isinstance(p, FixedRule)), None)
    budget_of = None if reference is None else replay(pairs, reference.local(pairs))
    rows = []
    for policy in policies:
        if isinstance(policy, Bound):
            served = _bound(pairs, is_stale, policy, budget_of)
        else:
            served = replay(pairs, policy.local(pairs))
        rows.append(
            {"policy": str(policy), "reads": len(served)} | _measure(pairs, is_stale, served, groups, matrix)
        )
    import pandas as pd  # loading it takes longer than loading all of mudkit

    return pd.DataFrame(rows)


def _check(stale: str, completeness: float | None, folds: str) -> None:
    if stale not in ("missing", "completeness"):
        raise ParameterError(
            "There is no such definition of stale.",
            where="stale",
            found=repr(stale),
            expected="missing or completeness",
        )
    if (stale == "completeness") != (completeness is not None):
        raise ParameterError(
            "stale='completeness' and a threshold go together.",
            where="completeness",
            found=f"stale={stale!r}, completeness={completeness}",
            expected="stale='completeness' with a threshold, or stale='missing' without",
        )
    if completeness is not None and not 0 < completeness <= 1:
        raise ParameterError(
            "The threshold is not usable.",
            where="completeness",
            found=str(completeness),
            expected="over 0, at most 1",
        )
    if folds != "device":
        raise ParameterError("There are no such folds.", where="folds", found=repr(folds), expected="device")


def _groups(pairs: Pairs) -> list[list[slice]]:
    devices = pairs.devices()
    return [group for group in (devices[i::_FOLDS] for i in range(_FOLDS)) if group]


def _bound(
    pairs: Pairs, is_stale: NDArray[np.bool_], policy: Bound, reference: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    if policy.stale_share is not None:
        budget = int(policy.stale_share * len(pairs.device))
    else:
        budget = 0 if reference is None else _stale(is_stale, reference)
    return fewest_sends(pairs, is_stale, pairs.devices(), budget)


def _stale(is_stale: NDArray[np.bool_], served: NDArray[np.int64]) -> int:
    return int(np.count_nonzero(is_stale[served[served != SENT]]))


def _measure(
    pairs: Pairs,
    is_stale: NDArray[np.bool_],
    served: NDArray[np.int64],
    groups: list[list[slice]],
    matrix: CostMatrix,
) -> dict[str, float]:
    """Shares over all reads, and their intervals over the groups."""
    at = np.where(served == SENT, 0, served)
    local = served != SENT
    stale_now = local & is_stale[at] if len(is_stale) else local
    whole = np.where(local, pairs.completeness[at], 1.0) if len(is_stale) else np.ones(len(served))
    needless = ~local & _cache_was_fresh(pairs, is_stale, served)
    per_read = np.column_stack(
        [~local, stale_now, whole, stale_now * matrix.stale + needless * matrix.unnecessary]
    )
    means = np.array([per_read[np.r_[tuple(group)]].mean(axis=0) for group in groups])
    total = per_read.mean(axis=0)
    half = np.full(len(total), np.nan)
    if len(means) > 1:
        from scipy import stats  # loading it takes longer than loading all of mudkit

        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        half = stats.t.ppf(0.975, len(means) - 1) * error
    measured: dict[str, float] = {}
    for i, name in enumerate(_MEASURES):
        most = np.inf if name == "cost" else 1.0
        low, high = np.clip([total[i] - half[i], total[i] + half[i]], 0.0, most)
        measured |= {name: total[i], f"{name}_low": low, f"{name}_high": high}
    return measured


def _cache_was_fresh(
    pairs: Pairs, is_stale: NDArray[np.bool_], served: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell for each read whether the last answer fetched before it was still good enough."""
    numbers = np.arange(len(served))
    sent = np.where(served == SENT, numbers, -1)
    last = np.concatenate([[-1], np.maximum.accumulate(sent)[:-1]])
    a, b = pairs.first[:-1], pairs.first[1:]
    if not len(pairs.cached):
        return np.zeros(len(served), dtype=np.bool_)
    pair = a + last - pairs.cached[np.minimum(a, len(pairs.cached) - 1)]
    known = (a < b) & (pair >= a) & (pair < b)
    return np.asarray(known & ~is_stale[np.where(known, pair, 0)], dtype=np.bool_)
