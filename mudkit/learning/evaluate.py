"""Compare policies for reads: queries sent, stale answers, their costs, and the radio's energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning.bound import device_sends, divide_budget, schedule, within_budget
from mudkit.learning.costs import Costs, read_costs
from mudkit.learning.devices import MAX_LEARNT_PAIRS, Devices, Fleet, count_pairs, no_reads, open_devices
from mudkit.learning.measures import Measures, changes, closed, shares, sums_by
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
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0,
) -> pd.DataFrame:
    """Replay policies over a labelled trace.

    DataFrames are replayed in Spark's tasks, some devices at a time; this process holds a few numbers of each
    device, and the sample that trees are learnt from. The result is the same as that of Arrow tables.

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
    seed : int
        Which devices trees are learnt from: as many as have
        :data:`~mudkit.learning.devices.MAX_LEARNT_PAIRS` pairs, all of them if there are fewer pairs.

    Returns
    -------
    pandas.DataFrame
        A row for each policy: ``policy, reads``; the measures ``sent_share, stale_share, completeness``, and
        for a read on average ``cost, messages`` (up and down), ``bytes, radio_mj``; for each measure
        ``…_low`` and ``…_high``, the 95 % interval over groups of devices (bootstrapped; the range with fewer
        than five, NaN with fewer than two), and ``…_change, …_change_low, …_change_high``, its difference
        from the first :class:`FixedRule` (NaN without one); and ``gap_closed`` with ``…_low`` and ``…_high``,
        the share of the gap in queries sent between that rule and the first :class:`Bound`; and
        ``learnt_devices``, from which it was learnt (0: nothing is learnt), those of its fold among them. The
        bound has the fewest queries, but not the fewest bytes or the least energy. ``attrs['sample']`` has
        the seed, and how many devices were drawn of how many.

    Raises
    ------
    ParameterError, TraceContentError
    """
    matrix = read_costs(cost)
    check_staleness(stale, completeness)
    check_folds(folds)
    with open_devices(labels, reads, positions) as devices:
        fleet = Fleet.of(devices.map(count_pairs))
        if not len(fleet.ids):
            raise no_reads()
        begins_us = None if folds == "device" else _begin_test(fleet.days)
        study = _Study(devices, fleet, Tested(completeness, begins_us), seed)
        learnt, learnt_devices = study.learn(policies)
        reference = next((p for p in policies if isinstance(p, FixedRule)), None)
        replayed = study.with_bounds(learnt, reference)
        measured, counts = study.measure(replayed, matrix, RadioModel() if radio is None else radio)
    baseline = next((measured[i] for i, policy in enumerate(policies) if isinstance(policy, FixedRule)), None)
    bound = next((measured[i] for i, policy in enumerate(policies) if isinstance(policy, Bound)), None)
    rows = [
        {"policy": str(policy), "reads": counts}
        | shares(measures, READ_MEASURES)
        | changes(measures, baseline, READ_MEASURES)
        | closed(measures, baseline, bound, 0)
        | {"learnt_devices": learnt_devices if isinstance(policy, Learner) else 0}
        for policy, measures in zip(policies, measured, strict=True)
    ]
    import pandas as pd  # loading it takes longer than loading all of mudkit

    table = pd.DataFrame(rows)
    table.attrs["sample"] = {"seed": seed, "devices": learnt_devices, "of": len(fleet.names)}
    return table


def _begin_test(days: NDArray[np.int64]) -> int:
    """Return the midnight between reads to learn from and later ones, in µs since 1970 (UTC).

    ``days`` are the days with reads since 1970, in order.
    """
    if len(days) < 2:
        raise TraceContentError(
            "There is no later day to test on.",
            where="folds",
            found="reads on one day",
            expected="reads on two days at least",
            remedy="take a longer trace, or folds='device'",
        )
    cut = max(1, min(round(_TRAINING_SHARE_OF_DAYS * len(days)), len(days) - 1))
    return int(days[cut]) * _US_PER_DAY


@dataclass(frozen=True)
class Tested:
    """Reads that are tested, and what stale means; before ``begins_us`` nothing is cached."""

    completeness: float | None
    begins_us: int | None

    def of(self, pairs: Pairs) -> tuple[Pairs, NDArray[np.bool_]]:
        """Return the tested reads with their pairs, and which pairs are stale."""
        tested = pairs if self.begins_us is None else pairs.since(self.begins_us)
        return tested, tested.are_stale(self.completeness)


@dataclass(frozen=True)
class _OutOfFold:
    """Policies of folds of devices: each decides for the devices of its fold, which it has not seen.

    Fold ``i`` of ``n`` has every nth device of a fleet, from the ith on.
    """

    fleet_ids: NDArray[np.int64]
    policies: tuple[Policy, ...]

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Decide for each pair whether it is served."""
        local = np.zeros(len(pairs.read), dtype=np.bool_)
        groups = pairs_of_folds(pairs, self.fleet_ids, len(self.policies))
        for policy, (is_own, own) in zip(self.policies, groups, strict=True):
            local[is_own] = policy.local(own)
        return local


@dataclass(frozen=True)
class Hindsight:
    """Stale answers of each device of a fleet, for the fewest sends of all."""

    fleet: Fleet
    spent: NDArray[np.int64]

    @classmethod
    def of(cls, fleet: Fleet, tables: Sequence[NDArray[np.int32]], budget: int) -> Hindsight:
        """Divide stale answers among the devices of a fleet, by :func:`sends_by_stale` of them or more."""
        spent = divide_budget([within_budget(table, budget) for table in tables], budget)
        return cls(fleet, np.array(spent, dtype=np.int64))

    def replay(self, pairs: Pairs, is_stale: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the schedule of some devices: see :func:`~mudkit.learning.bound.schedule`."""
        devices = pairs.devices()
        number = self.fleet.numbers(pairs.ids[pairs.device[[of.start for of in devices]]])
        return schedule(pairs, is_stale, devices, self.spent[number].tolist())


@dataclass(frozen=True)
class _StaleAnswers:
    """Number of stale answers of a rule."""

    tested: Tested
    rule: FixedRule

    def __call__(self, pairs: Pairs) -> int:
        tested, is_stale = self.tested.of(pairs)
        return stale_answers(is_stale, replay(tested, self.rule.local(tested)))


@dataclass(frozen=True)
class _SendsByStale:
    """Fewest sends of each device by stale answers: see :func:`~mudkit.learning.bound.device_sends`."""

    tested: Tested
    budget: int

    def __call__(self, pairs: Pairs) -> tuple[NDArray[np.int64], list[NDArray[np.int32]]]:
        tested, is_stale = self.tested.of(pairs)
        devices = tested.devices()
        ids = tested.ids[tested.device[[of.start for of in devices]]]
        return ids, [device_sends(tested, is_stale, rows, self.budget) for rows in devices]


def sends_by_stale(devices: Devices, fleet: Fleet, tested: Tested, budget: int) -> list[NDArray[np.int32]]:
    """Return the fewest sends of each device of a fleet by stale answers, up to a budget."""
    tables = [np.zeros(1, dtype=np.int32)] * len(fleet.names)
    for ids, of_devices in devices.map(_SendsByStale(tested, budget)):
        for number, table in zip(fleet.numbers(ids).tolist(), of_devices, strict=True):
            tables[number] = table
    return tables


@dataclass(frozen=True)
class _Measure:
    """Sums of the measures of each policy by device, over its reads in the order of their times."""

    tested: Tested
    policies: tuple[Policy | Hindsight, ...]
    matrix: NDArray[np.float64]
    radio: RadioModel

    def __call__(self, pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        tested, is_stale = self.tested.of(pairs)
        present, device = np.unique(tested.device, return_inverse=True)
        sums = np.zeros((len(self.policies), len(present), len(READ_MEASURES)))
        for policy, of_policy in zip(self.policies, sums, strict=True):
            if isinstance(policy, Hindsight):
                served = policy.replay(tested, is_stale)
            else:
                served = replay(tested, policy.local(tested))
            per_read = measures_by_read(tested, is_stale, served, self.matrix, self.radio)
            of_policy[:] = sums_by(device, per_read, len(present))
        return tested.ids[present], np.bincount(device, minlength=len(present)), sums


@dataclass(frozen=True)
class _Study:
    """Policies over the reads of a fleet."""

    devices: Devices
    fleet: Fleet
    tested: Tested
    seed: int

    def learn(self, policies: Sequence[Policy | Learner | Bound]) -> tuple[list[Policy | Bound], int]:
        """Train what has to be learnt on a sample; return all policies, and the devices of the sample."""
        learners = [policy for policy in policies if isinstance(policy, Learner)]
        if not learners:
            return [policy for policy in policies if not isinstance(policy, Learner)], 0
        drawn = self.fleet.sample_pairs(self.seed, MAX_LEARNT_PAIRS)
        sample = self.devices.gather(self.fleet, drawn)
        if self.tested.begins_us is not None:
            sample = sample.before_day(self.tested.begins_us)
        stale = sample.are_stale(self.tested.completeness)
        learnt: list[Policy | Bound] = []
        for policy in policies:
            if not isinstance(policy, Learner):
                learnt.append(policy)
            elif self.tested.begins_us is not None:
                learnt.append(policy.learn(sample, stale, "day"))
            else:
                learnt.append(_learn_out_of_fold(policy, sample, stale, self.fleet.ids))
        return learnt, int(drawn.chosen.sum())

    def with_bounds(
        self, policies: Sequence[Policy | Bound], reference: FixedRule | None
    ) -> tuple[Policy | Hindsight, ...]:
        """Put the schedule with the fewest sends in place of each bound."""
        bounds = [policy for policy in policies if isinstance(policy, Bound)]
        if not bounds:
            return tuple(policy for policy in policies if not isinstance(policy, Bound))
        as_rule = 0
        if reference is not None and any(bound.stale_share is None for bound in bounds):
            as_rule = sum(self.devices.map(_StaleAnswers(self.tested, reference)))
        reads = self.tested_reads()
        budgets = [as_rule if of.stale_share is None else int(of.stale_share * reads) for of in bounds]
        tables = sends_by_stale(self.devices, self.fleet, self.tested, max(budgets))
        schedules = iter(Hindsight.of(self.fleet, tables, budget) for budget in budgets)
        return tuple(next(schedules) if isinstance(policy, Bound) else policy for policy in policies)

    def tested_reads(self) -> int:
        """Return the number of reads that are tested: all, or those after the beginning of the test."""
        if self.tested.begins_us is None:
            return int(self.fleet.rows.sum())
        return sum(self.devices.map(_CountTested(self.tested)))

    def measure(
        self, policies: tuple[Policy | Hindsight, ...], matrix: NDArray[np.float64], radio: RadioModel
    ) -> tuple[list[Measures], int]:
        """Measure policies over all reads, and over each of ten groups of devices; and count the reads.

        Sums are added by device in the order of their names.
        """
        parts = self.devices.map(_Measure(self.tested, policies, matrix, radio))
        number = self.fleet.numbers(np.concatenate([ids for ids, _, _ in parts]))
        order = np.argsort(number)
        reads = np.concatenate([counts for _, counts, _ in parts])[order]
        sums = np.concatenate([of for _, _, of in parts], axis=1)[:, order]
        groups = min(_FOLDS, len(reads))
        group = np.arange(len(reads)) % groups
        of_group = np.bincount(group, reads)[:, None]
        total = int(reads.sum())
        nothing = np.zeros(len(reads), dtype=np.int64)
        measured = [
            Measures(sums_by(nothing, of, 1)[0] / total, sums_by(group, of, groups) / of_group) for of in sums
        ]
        return measured, total


@dataclass(frozen=True)
class _CountTested:
    """Number of reads that are tested."""

    tested: Tested

    def __call__(self, pairs: Pairs) -> int:
        return len(self.tested.of(pairs)[0].device)


def _fold_of(pairs: Pairs, fleet_ids: NDArray[np.int64], folds: int) -> NDArray[np.int64]:
    """Deal the devices of a fleet out to folds; return that of each device of the pairs, -1 of another."""
    order = np.argsort(fleet_ids)
    at = np.minimum(np.searchsorted(fleet_ids, pairs.ids, sorter=order), len(order) - 1)
    return np.where(fleet_ids[order[at]] == pairs.ids, order[at] % folds, -1)


@dataclass(frozen=True)
class Alike:
    """Decision of a fold whose examples have the same outcome, all fresh or all stale: a tree of one leaf."""

    is_local: bool
    leaves = 1
    density = None

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Decide the same for each pair."""
        return np.full(len(pairs.read), self.is_local)


def decide_alike(stale: NDArray[np.bool_]) -> Alike | None:
    """Return the decision that follows from examples with the same outcome; None: they differ."""
    return Alike(not stale.any()) if len(stale) and (stale == stale[0]).all() else None


def _learn_out_of_fold(
    policy: Learner, pairs: Pairs, stale: NDArray[np.bool_], fleet_ids: NDArray[np.int64]
) -> _OutOfFold:
    """Train a policy for each of ten groups of a fleet on the others, whose pairs may be a sample."""
    are_alike = decide_alike(stale) is not None
    policies: list[Policy] = []
    for of_others, of_pairs in examples_of_folds(pairs, stale, fleet_ids):
        alike = None if are_alike else decide_alike(of_pairs)  # what differs is with the devices of the fold
        policies.append(policy.learn(of_others, of_pairs) if alike is None else alike)
    return _OutOfFold(fleet_ids, tuple(policies))


def examples_of_folds(
    pairs: Pairs, stale: NDArray[np.bool_], fleet_ids: NDArray[np.int64]
) -> Iterator[tuple[Pairs, NDArray[np.bool_]]]:
    """Yield for each of ten groups of a fleet the pairs of all others, and which of them are stale.

    There are as many groups as devices if these are fewer.
    """
    folds = min(_FOLDS, len(fleet_ids))
    fold = _fold_of(pairs, fleet_ids, folds)
    for number in range(folds):
        others = np.flatnonzero((fold >= 0) & (fold != number))
        yield pairs.of_devices(others), stale[np.isin(pairs.device[pairs.read], others)]


def pairs_of_folds(
    pairs: Pairs, fleet_ids: NDArray[np.int64], folds: int
) -> Iterator[tuple[NDArray[np.bool_], Pairs]]:
    """Yield for each group of a fleet which pairs are those of its devices, and these devices' pairs."""
    fold = _fold_of(pairs, fleet_ids, folds)
    for number in range(folds):
        own = np.flatnonzero(fold == number)
        yield np.isin(pairs.device[pairs.read], own), pairs.of_devices(own)


def decide_out_of_fold(policy: Learner, pairs: Pairs, stale: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Decide for each pair whether it is served, by what was learnt from other devices, in ten folds."""
    present = pairs.ids[np.unique(pairs.device)]
    return _learn_out_of_fold(policy, pairs, stale, present).local(pairs)


def check_staleness(stale: Staleness, completeness: float | None) -> None:
    """Raise ParameterError if a definition of stale, and its threshold, do not go together."""
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
