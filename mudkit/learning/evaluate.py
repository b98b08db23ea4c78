"""Compare policies for reads: queries sent, stale answers, their costs, and the radio's energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning.bound import fewest_sends
from mudkit.learning.costs import Costs, read_costs
from mudkit.learning.measures import Measures, changes, closed, shares
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import Bound, FixedRule, Learner, Policy
from mudkit.learning.radio import RadioModel
from mudkit.learning.replay import SENT, replay, stale_answers, stale_reads
from mudkit.learning.trees import Folds, check_folds
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 10
_US_PER_DAY = 86_400 * US_PER_S
_TRAINING_SHARE_OF_DAYS = 0.7
READ_MEASURES = ("sent_share", "stale_share", "completeness", "cost", "messages", "bytes", "radio_mj")
"""Measures of a policy, as :func:`measures_by_read` orders them."""

Staleness: TypeAlias = Literal["missing", "completeness"]


@check_arguments(types=False)
def evaluate_reads(
    labels: Any,
    reads: Any,
    policies: Sequence[Policy | Learner | Bound],
    *,
    stale: Staleness = "missing",
    completeness: float | None = None,
    folds: Folds = "device",
    cost: Costs = "latency",
    radio: RadioModel | None = None,
    positions: Any = None,
) -> pd.DataFrame:
    """Replay policies over a labelled trace.

    Parameters
    ----------
    labels, reads : pyarrow.Table or Spark DataFrame
        The result of ``pipeline.label_reads``, and the reads that were labelled.
    policies : sequence
        :class:`~mudkit.learning.FixedRule`, :class:`~mudkit.learning.Always`,
        :class:`~mudkit.learning.Tree`, :class:`~mudkit.learning.Bound`.
    stale : {'missing', 'completeness'}
        An answer is stale when at least one point is missing (Mobius 7.3), or when its completeness is
        below a threshold.
    completeness : float, optional
        The threshold for ``stale='completeness'``, above 0 and at most 1.
    folds : {'device', 'time'}
        ``device``: ten groups of devices in turn, each by what was learnt from the others. ``time``: the
        reads of the last 30 % of the days, by what was learnt from the days before, with empty caches.
    cost : str, CostMatrix or array_like
        A preset of :data:`~mudkit.learning.COSTS`, or a matrix: rows good, stale; columns local, remote.
    radio : RadioModel, optional
        Radio that carries the queries and nothing else; by default LTE.
    positions : pyarrow.Table or Spark DataFrame, optional
        What was written: for trees with ``dense`` features.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: ``policy, reads``; the measures ``sent_share, stale_share, completeness``, and
        for a read on average ``cost, messages`` (up and down), ``bytes, radio_mj``; for each measure
        ``…_low`` and ``…_high``, the 95 % interval over groups of devices (bootstrapped; the range with fewer
        than five, NaN with fewer than two), and ``…_change, …_change_low, …_change_high``, its difference
        from the first :class:`FixedRule` (NaN without one); and ``gap_closed`` with ``…_low`` and ``…_high``,
        the share of the gap in queries sent between that rule and the first :class:`Bound`. The bound has the
        fewest queries, but not the fewest bytes or the least energy.

    Raises
    ------
    ParameterError, TraceContentError
    """
    matrix = read_costs(cost)
    _check(stale, completeness, folds)
    pairs = Pairs.of(labels, reads, positions)
    if not len(pairs.device):
        raise TraceContentError(
            "There are no reads to replay.",
            found="a trace without reads",
            expected="at least one read",
            remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
        )
    learnt_from, tested = (pairs, pairs) if folds == "device" else _by_time(pairs)
    is_stale = tested.are_stale(completeness)
    groups = _groups(tested)
    reference = next((p for p in policies if isinstance(p, FixedRule)), None)
    budget_of = None if reference is None else replay(tested, reference.local(tested))
    carried = RadioModel() if radio is None else radio
    measured = []
    for policy in policies:
        if isinstance(policy, Bound):
            served = _bound(tested, is_stale, policy, budget_of)
        else:
            served = replay(tested, _decide(policy, learnt_from, tested, completeness, folds))
        measured.append(_measure(tested, is_stale, served, groups, matrix, carried))
    baseline = next((measured[i] for i, policy in enumerate(policies) if isinstance(policy, FixedRule)), None)
    bound = next((measured[i] for i, policy in enumerate(policies) if isinstance(policy, Bound)), None)
    rows = [
        {"policy": str(policy), "reads": len(tested.device)}
        | shares(measures, READ_MEASURES)
        | changes(measures, baseline, READ_MEASURES)
        | closed(measures, baseline, bound, 0)
        for policy, measures in zip(policies, measured, strict=True)
    ]
    import pandas as pd  # loading it takes longer than loading all of mudkit

    return pd.DataFrame(rows)


def _by_time(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Cut a trace at a midnight (UTC): reads to learn from, and later ones."""
    days = np.unique(pairs.t_us // _US_PER_DAY)
    if len(days) < 2:
        raise TraceContentError(
            "There is no later day to test on.",
            where="folds",
            found="reads on one day",
            expected="reads on two days at least",
            remedy="take a longer trace, or folds='device'",
        )
    cut = max(1, min(round(_TRAINING_SHARE_OF_DAYS * len(days)), len(days) - 1))
    begins_us = int(days[cut]) * _US_PER_DAY
    return pairs.before(begins_us), pairs.since(begins_us)


def _decide(
    policy: Policy | Learner, learnt_from: Pairs, tested: Pairs, completeness: float | None, folds: Folds
) -> NDArray[np.bool_]:
    """Return a policy's decisions; a trained policy decides for devices, or days, that it has not seen."""
    if not isinstance(policy, Learner):
        return policy.local(tested)
    if folds == "time":
        return policy.learn(learnt_from, learnt_from.are_stale(completeness), "day").local(tested)
    return decide_out_of_fold(policy, tested, tested.are_stale(completeness))


def decide_out_of_fold(policy: Learner, pairs: Pairs, stale: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Decide for each pair whether it is served, by what was learnt from other devices, in ten folds."""
    local = np.zeros(len(pairs.read), dtype=np.bool_)
    for mine, others, own in pairs.folds(_FOLDS):
        local[mine] = policy.learn(others, stale[~mine]).local(own)
    return local


def _check(stale: Staleness, completeness: float | None, folds: Folds) -> None:
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
    check_folds(folds)


def _groups(pairs: Pairs) -> list[list[slice]]:
    devices = pairs.devices()
    return [group for group in (devices[i::_FOLDS] for i in range(_FOLDS)) if group]


def _bound(
    pairs: Pairs, is_stale: NDArray[np.bool_], policy: Bound, reference: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    if policy.stale_share is not None:
        budget = int(policy.stale_share * len(pairs.device))
    else:
        budget = 0 if reference is None else stale_answers(is_stale, reference)
    return fewest_sends(pairs, is_stale, pairs.devices(), budget)


def _measure(
    pairs: Pairs,
    is_stale: NDArray[np.bool_],
    served: NDArray[np.int64],
    groups: list[list[slice]],
    matrix: NDArray[np.float64],
    radio: RadioModel,
) -> Measures:
    """Measure over all reads, and over each group."""
    per_read = measures_by_read(pairs, is_stale, served, matrix, radio)
    means = np.array([per_read[np.r_[tuple(group)]].mean(axis=0) for group in groups])
    return Measures(per_read.mean(axis=0), means)


def measures_by_read(
    pairs: Pairs,
    is_stale: NDArray[np.bool_],
    served: NDArray[np.int64],
    matrix: NDArray[np.float64],
    radio: RadioModel,
) -> NDArray[np.float64]:
    """Return the :data:`READ_MEASURES` of each read, of shape (reads, 7); their means are a policy's.

    ``served`` is a result of :func:`~mudkit.learning.replay.replay`.
    """
    at = np.where(served == SENT, 0, served)
    local = served != SENT
    stale_now = stale_reads(is_stale, served)
    whole = np.where(local, pairs.completeness[at], 1.0) if len(is_stale) else np.ones(len(served))
    cost = mistake_costs(pairs, is_stale, served, matrix)
    taken = np.zeros((len(served), 3))
    sent = radio.queries(pairs.device[~local], pairs.t_us[~local], pairs.points[~local])
    taken[~local] = np.column_stack([np.full(len(sent.bytes), radio.query_messages), *sent])
    return np.column_stack([~local, stale_now, whole, cost, taken])


def mistake_costs(
    pairs: Pairs, is_stale: NDArray[np.bool_], served: NDArray[np.int64], matrix: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what each decision costs: the matrix has rows good and stale, and columns local and remote.

    ``served`` is a result of :func:`~mudkit.learning.replay.replay`.
    """
    local = served != SENT
    stale_now = stale_reads(is_stale, served)
    was_good = np.where(local, ~stale_now, _cache_was_fresh(pairs, is_stale, served))
    return np.asarray(matrix[(~was_good).astype(np.int64), (~local).astype(np.int64)], dtype=np.float64)


def _cache_was_fresh(
    pairs: Pairs, is_stale: NDArray[np.bool_], served: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return for each read whether the last answer fetched before it was still good."""
    numbers = np.arange(len(served))
    sent = np.where(served == SENT, numbers, -1)
    last = np.concatenate([[-1], np.maximum.accumulate(sent)[:-1]])
    a, b = pairs.first[:-1], pairs.first[1:]
    if not len(pairs.cached):
        return np.zeros(len(served), dtype=np.bool_)
    pair = a + last - pairs.cached[np.minimum(a, len(pairs.cached) - 1)]
    known = (a < b) & (pair >= a) & (pair < b)
    return np.asarray(known & ~is_stale[np.where(known, pair, 0)], dtype=np.bool_)
