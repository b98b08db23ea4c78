"""Search for the simplest read policy with the most fresh answers, within a limit of stale ones.

Stale answers do not count as saved: a policy that answered at random would use up the limit. Families of
policies, from simple to complicated, are searched for the policy with the most fresh answers:

====================  =======================================================================
``always ask``        no answer from the cache
``age``               answers up to an age
``distance and age``  answers up to an age, to queries up to a distance
``time of day``       one such rule between two times of day, and another one at other times
``age by hour``       answers up to an age for each hour of the day, or for shorter parts of it
``tree``              a decision tree
====================  =======================================================================

Each is chosen on some devices (or days) and scored on the others, in ten folds. A choice keeps the limit with
a margin, for as many other devices and days. Distances and ages are refined around the best ones, and times
of day from hours down to 5 minutes, where that counts. Candidates are replayed one device after the other.
All that is chosen follows from sums over reads by device and day, or by time of day: :class:`Sums` of other
devices add up, wherever they were computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.errors import TraceContentError
from mudkit.intervals import Interval
from mudkit.learning.costs import CostMatrix
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import Always, FixedRule, LearntReads, ReadTrees, day_runs, slots_of_day
from mudkit.learning.replay import SENT, replay, replay_steps, stale_reads
from mudkit.learning.trees import CostTree, CrossValidatedTrees, Folds, Groups
from mudkit.units import solar_day

Family: TypeAlias = Literal["always ask", "age", "distance and age", "time of day", "age by hour", "tree"]
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
"""From simple to complicated."""

MIN_GAIN: Final = 0.02
"""Share of the reads that a policy has to answer fresh, and a tree besides what rules do."""
_MIN_RULE_GAIN: Final = 0.01
"""The same for a rule with more numbers over one with fewer."""
MIN_READS: Final = 100
"""With fewer reads nothing is recommended."""
RISK: Final = 0.05
"""Probability with which a choice may miss the limit of stale answers on as many other devices and days."""
MAX_RISK: Final = 0.1
"""The same on folds that it was not chosen on; a policy of more is not recommended."""
_FOLDS: Final = 10
_MINUTES: Final = (
    0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 60.0, 85.0, 120.0, 170.0, 240.0, 480.0, 960.0,
)  # fmt: skip
_KM: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_ROUNDS: Final = 8
_FINE: Final = 1.02
"""Distances and ages that differ by a smaller factor are not tried between."""
_SLOTS: Final = (24, 48, 96, 288)
"""Equal parts of a day for rules by the time of day, from coarse to fine: hours to 5 minutes."""
_MIN_SLOT_GAIN: Final = 0.0025
"""Share of the reads that finer parts of the day have to answer more: little beside what a tree has to."""
_PRICES: Final = tuple(np.geomspace(0.25, 256.0, 16).tolist())
"""Prices of a stale answer in fresh ones, for rules by the time of day."""
_TREE_PRICES: Final = tuple(np.geomspace(0.1, 400.0, 13).tolist())
"""Prices of a stale answer in unnecessary queries, for trees."""
_TREE_FOLDS: Final = 6
_PRICE_STEPS: Final = 3
"""Prices that are tried below the best one."""
_POOLED_READS: Final = 20.0
"""Reads of a longer part of the day that those of a shorter one are joined with."""
_BLOCK: Final = 256
"""Policies that are replayed together, at most."""
_MAX_CELLS: Final = 1 << 24
"""Counts of answers, and decisions of one step, that are in memory at once."""
_LOCAL: Final = 0
Rule: TypeAlias = tuple[float, float]
"""Distance in km and age in minutes."""
_Limits: TypeAlias = tuple[float, tuple[float, ...]]
"""Distance in km, and ages in minutes for equal parts of the day."""
_Decide: TypeAlias = Callable[[slice, NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]
"""Decides for some policies whether they serve reads from pairs: see :func:`replay_steps`."""


@dataclass(frozen=True)
class Sums:
    """Reads by device and day, and how many of them each policy answers fresh, or stale.

    Arrays have a row for each device, by its id, and day; ``fresh`` and ``stale`` a column for each policy.
    """

    device: NDArray[np.int64]
    day: NDArray[np.int64]
    reads: NDArray[np.float64]
    fresh: NDArray[np.float32]
    stale: NDArray[np.float32]

    def __or__(self, other: Sums) -> Sums:
        """Join the sums of other policies over the same reads."""
        return replace(
            self,
            fresh=np.hstack([self.fresh, other.fresh]),
            stale=np.hstack([self.stale, other.stale]),
        )

    def __add__(self, other: Sums) -> Sums:
        """Join the sums over the reads of other devices, which may have been computed apart."""
        names = ("device", "day", "reads", "fresh", "stale")
        return Sums(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))

    def of(self, policies: Sequence[int] | NDArray[np.int64]) -> Sums:
        """Return some policies."""
        return replace(self, fresh=self.fresh[:, policies], stale=self.stale[:, policies])

    def best(self, rows: NDArray[np.bool_], all_reads: float, max_stale: float) -> int | None:
        """Return the policy with the most fresh answers within the limit, with a margin; None without one.

        It is chosen on some rows, for as many reads as there are in all. Of equal ones the first is chosen.
        """
        reads = self.reads[rows]
        total = float(reads.sum())
        if not total or not self.fresh.shape[1]:
            return None
        stale = self.stale[rows].astype(np.float64)
        most = intervals.shares_ahead(
            stale, reads, self.device[rows], self.day[rows], cases=all_reads, risk=RISK
        )
        fresh = np.where(most <= max_stale, self.fresh[rows].sum(axis=0, dtype=np.float64), -1.0)
        number = int(np.argmax(fresh))
        return number if fresh[number] > 0 else None


@dataclass(frozen=True)
class _Replayer:
    """Reads with their labels, prepared for the replay of many policies."""

    pairs: Pairs
    is_stale: NDArray[np.bool_]

    @cached_property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Cell of each read; id of the device, day and reads of each cell of a device and day."""
        day = solar_day(self.pairs.t_us, self.pairs.lon)
        key = self.pairs.device * (int(day.max(initial=0)) + 1) + day
        _, first, cell, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        return cell, self.pairs.ids[self.pairs.device[first]], day[first], count.astype(np.float64)

    def count(
        self, policies: int, decide: _Decide, by: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Replay policies; count fresh and stale answers by a number of each read, of one device."""
        rows = int(by.max(initial=-1)) + 1
        fresh, stale = (np.zeros((rows, policies), dtype=np.float32) for _ in range(2))
        # A step decides on the pairs of one read of each device.
        pairs = len(self.pairs.read) * len(self.pairs.ids) // max(len(self.pairs.device), 1)
        size = min(_BLOCK, max(_MAX_CELLS // max(pairs, 1), 1))
        for first in range(0, policies, size):
            block = slice(first, min(first + size, policies))
            for reads, served in replay_steps(self.pairs, block.stop - first, partial(decide, block)):
                local = served != SENT
                bad = local & self.is_stale[np.where(local, served, 0)] if len(self.is_stale) else local
                fresh[by[reads], block] += local & ~bad
                stale[by[reads], block] += bad
        return fresh, stale

    def sums(self, policies: int, decide: _Decide) -> Sums:
        """Replay policies, and count by device and day."""
        cell, device, day, reads = self.cells
        return Sums(device, day, reads, *self.count(policies, decide, cell))

    def slot(self, slots: int) -> NDArray[np.int64]:
        """Return the part of the day of each read, of equal ones."""
        return slots_of_day(self.pairs.t_us, self.pairs.lon, slots)

    def deciding(
        self, km: NDArray[np.float64], minutes: NDArray[np.float64], row: NDArray[np.int64]
    ) -> _Decide:
        """Return the function that decides by limits, of shape (rows, policies), in the row of each read."""
        limit_s = 60.0 * minutes

        def decide(block: slice, reads: NDArray[np.int64], pair: NDArray[np.int64]) -> NDArray[np.bool_]:
            is_near: NDArray[np.bool_] = self.pairs.distance_km[pair] <= km[row[reads], block]
            return is_near & (self.pairs.age_s[pair] <= limit_s[row[reads], block])

        return decide

    def deciding_alike(self, rules: Sequence[_Limits]) -> _Decide:
        """Return the function that decides by rules."""
        slots = math.lcm(*(len(ages) for _, ages in rules))
        minutes = np.array([np.repeat(ages, slots // len(ages)) for _, ages in rules]).reshape(-1, slots).T
        km = np.tile(np.array([of for of, _ in rules]), (slots, 1))
        return self.deciding(km, minutes, self.slot(slots))

    def rules(self, rules: Sequence[_Limits]) -> Sums:
        """Replay rules, and count by device and day."""
        return self.sums(len(rules), self.deciding_alike(rules))


def replay_rules(pairs: Pairs, is_stale: NDArray[np.bool_], rules: Sequence[FixedRule]) -> Sums:
    """Replay many rules at once, over the reads of any devices.

    Parameters
    ----------
    pairs : Pairs
    is_stale : ndarray of bool, shape (pairs,)
        Whether serving each pair is stale.
    rules : sequence of FixedRule
    """
    return _Replayer(pairs, is_stale).rules([(rule.km, rule.ages) for rule in rules])


@dataclass(frozen=True)
class Choice:
    """Best policy of a family: the one chosen on all reads, and decisions of those chosen on other folds.

    ``is_fresh`` and ``is_stale`` are the answers from the cache by read, out of fold.
    """

    family: Family
    policy: Always | FixedRule | LearntReads
    decisions: NDArray[np.bool_]
    is_fresh: NDArray[np.bool_]
    is_stale: NDArray[np.bool_]


@dataclass(frozen=True)
class Recommendation:
    """The simplest policy that is as good as any, and what it was compared with.

    ``choices`` are the best of each family, from simple to complicated; ``rules`` and ``sums`` all rules of
    distance and age that were replayed. ``problem`` is the reason for which there is no tree.
    """

    pairs: Pairs
    is_stale: NDArray[np.bool_]
    max_stale: float
    device: NDArray[np.int64]
    day: NDArray[np.int64]
    choices: tuple[Choice, ...]
    chosen: Choice
    rules: tuple[Rule, ...]
    sums: Sums
    problem: str

    @property
    def has_enough_reads(self) -> bool:
        """True if there are enough reads for a recommendation."""
        return len(self.pairs.device) >= MIN_READS

    def choice(self, family: Family) -> Choice | None:
        """Return the best policy of a family, if it has any."""
        return next((choice for choice in self.choices if choice.family == family), None)

    @cached_property
    def best_rule(self) -> Choice:
        """The rule, of any family but trees, with the most fresh answers out of fold within the limit."""
        rules = [
            choice for choice in self.choices if choice.family != "tree" and self.risk(choice) <= MAX_RISK
        ]
        return max(rules, key=lambda choice: int(choice.is_fresh.sum()))

    def share(self, values: NDArray[np.bool_]) -> Interval:
        """Return a share of the reads, and where it lies for as many other devices and days (95 %)."""
        return intervals.clustered(values, self.device, self.day, ahead=True, limits=(0.0, 1.0))

    def gain(self, choice: Choice, than: Choice) -> Interval:
        """Return by how much the share of fresh answers is larger, with its 95 % interval."""
        difference = choice.is_fresh.astype(np.float64) - than.is_fresh
        return intervals.clustered(difference, self.device, self.day, limits=(-1.0, 1.0))

    def risk(self, choice: Choice) -> float:
        """Return the probability that as many other devices and days have more stale answers than allowed."""
        return intervals.risk_ahead(choice.is_stale, self.device, self.day, limit=self.max_stale)


def recommend(
    pairs: Pairs, is_stale: NDArray[np.bool_], max_stale: float, *, folds: Folds = "device"
) -> Recommendation:
    """Search all families, and recommend the simplest policy that is as good as any.

    A family with more numbers is recommended when the 95 % interval of its advantage lies above nothing, and
    the advantage is a point or more; a tree when the interval lies above :data:`MIN_GAIN`, over the best
    rule. Any policy has to answer more than that fresh, and to keep the limit on folds that it was not chosen
    on, but for a probability of :data:`MAX_RISK`.

    Parameters
    ----------
    pairs : Pairs
    is_stale : ndarray of bool, shape (pairs,)
        Whether serving each pair is stale.
    max_stale : float
        Largest share of the reads that may be answered stale.
    folds : {'device', 'time'}
        What policies are scored on: other devices, or other days, than those they are chosen on.
    """
    replayer = _Replayer(pairs, is_stale)
    cell, device, day, _ = replayer.cells
    fold_of = _fold_of_cells(device, day, folds)
    search = _Search(replayer, fold_of, max_stale)
    rules, sums = search.grid()
    nothing = np.zeros(len(pairs.read), dtype=np.bool_)
    unanswered = np.zeros(len(pairs.device), dtype=np.bool_)
    choices = [Choice("always ask", Always(), nothing, unanswered, unanswered)]
    choices += search.plain(rules, sums)
    choices += search.by_time_of_day(rules)
    learnt, problem = search.tree(folds)
    choices += learnt
    result = Recommendation(
        pairs, is_stale, max_stale, device[cell], day[cell], tuple(choices), choices[0], rules, sums, problem
    )
    result = replace(result, choices=_as_coarse_as_good(result))
    return replace(result, chosen=_simplest(result))


def _as_coarse_as_good(result: Recommendation) -> tuple[Choice, ...]:
    """Return a choice of each family: a finer one in place of a coarser if it surely answers more fresh."""
    kept: dict[Family, Choice] = {}
    for choice in result.choices:
        coarser = kept.get(choice.family)
        if coarser is not None and result.risk(coarser) <= MAX_RISK:
            gain = result.gain(choice, coarser)
            is_better = gain.low > 0.0 and gain.value > _MIN_SLOT_GAIN
            if not is_better or result.risk(choice) > MAX_RISK:
                continue
        kept[choice.family] = choice
    return tuple(kept.values())


def _simplest(result: Recommendation) -> Choice:
    chosen = result.choices[0]
    if not result.has_enough_reads:
        return chosen
    for choice in result.choices[1:]:
        if result.risk(choice) > MAX_RISK:
            continue
        if choice.family == "tree":
            is_better = result.gain(choice, result.best_rule).low > MIN_GAIN
        elif chosen.family == "always ask":
            is_better = result.gain(choice, chosen).low > MIN_GAIN
        else:
            gain = result.gain(choice, chosen)
            is_better = gain.low > 0.0 and gain.value > _MIN_RULE_GAIN
        if is_better:
            chosen = choice
    return chosen


@dataclass(frozen=True)
class _Search:
    """Choices on all folds but one, for each fold, and on all."""

    replayer: _Replayer
    fold_of: NDArray[np.int64]
    max_stale: float

    @property
    def parts(self) -> list[int | None]:
        """Folds that are left out, and None: nothing is."""
        return [*range(int(self.fold_of.max(initial=0)) + 1), None]

    def best(self, sums: Sums, left_out: int | None) -> int | None:
        """Choose among policies without a fold."""
        rows = np.ones(len(self.fold_of), np.bool_) if left_out is None else self.fold_of != left_out
        return sums.best(rows, float(self.replayer.cells[3].sum()), self.max_stale)

    def grid(self) -> tuple[tuple[Rule, ...], Sums]:
        """Replay rules of distance and age on a grid that is refined around the best ones."""
        pairs = self.replayer.pairs
        longest = float(pairs.age_s.max(initial=60.0)) / 60.0
        minutes = [*(age for age in _MINUTES if age < longest), longest]
        rules = [(km, age) for km in (*_KM, math.inf) for age in minutes]
        sums = self.replayer.rules(_all_day(rules))
        for _ in range(_ROUNDS):
            added: set[Rule] = set()
            for is_alone in (True, False):
                some = [i for i, (km, _) in enumerate(rules) if not is_alone or math.isinf(km)]
                number = self.best(sums.of(some), None)
                if number is not None:
                    added |= _between(rules, rules[some[number]])
            new = sorted(added - set(rules))
            if not new:
                break
            sums = sums | self.replayer.rules(_all_day(new))
            rules += new
        order = sorted(range(len(rules)), key=lambda i: rules[i])
        return tuple(rules[i] for i in order), sums.of(order)

    def plain(self, rules: Sequence[Rule], sums: Sums) -> list[Choice]:
        """Choose an age alone, and a distance with an age."""
        alone = [i for i, (km, _) in enumerate(rules) if math.isinf(km)]
        every = list(range(len(rules)))
        choices = []
        families: list[tuple[Family, list[int]]] = [("age", alone), ("distance and age", every)]
        for family, some in families:
            of_family = sums.of(some)
            numbers = [self.best(of_family, part) for part in self.parts]
            policies = [Always() if number is None else FixedRule(*rules[some[number]]) for number in numbers]
            choices += self._choice(family, policies)
        return choices

    def by_time_of_day(self, rules: Sequence[Rule]) -> list[Choice]:
        """Choose rules that depend on the time of day: two of distance and age, or an age for each part.

        Their parts are chosen by the answers of each rule by time of day; what is built of them is replayed.
        Times between hours are tried around the best hours only, and at the distances of these.
        """
        by_hour = self._by_slot(rules, _SLOTS[0]).without(None)
        distances = {math.inf, *(km for km, _ in _two_periods(rules, by_hour, _PRICES))}
        promising = [rule for rule in rules if rule[0] in distances]
        finest = self._by_slot(promising, _SLOTS[-1])
        sums = {slots: [finest.joined(slots).without(part) for part in self.parts] for slots in _SLOTS}

        @cache
        def periods(slots: int, part: int, prices: tuple[float, ...]) -> list[_Limits]:
            if slots == _SLOTS[0]:
                return _two_periods(promising, sums[slots][part], prices)
            coarser = periods(_SLOTS[_SLOTS.index(slots) - 1], part, prices)
            return [
                _move(rule, price, promising, sums[slots][part])
                for rule, price in zip(coarser, prices, strict=True)
            ]

        def ages(slots: int, part: int, prices: tuple[float, ...]) -> list[_Limits]:
            return _each_slot(promising, sums[slots][part], prices)

        return [
            *chain(*(self._built("time of day", slots, partial(periods, slots)) for slots in _SLOTS)),
            *chain(*(self._built("age by hour", slots, partial(ages, slots)) for slots in _SLOTS)),
        ]

    def _by_slot(self, rules: Sequence[Rule], slots: int) -> _SlotSums:
        """Replay rules, and count by fold and part of the day."""
        fold_of_read = self.fold_of[self.replayer.cells[0]]
        folds = int(self.fold_of.max(initial=0)) + 1
        at = fold_of_read * slots + self.replayer.slot(slots)
        keys, by = np.unique(self.replayer.pairs.device * folds * slots + at, return_inverse=True)
        counts = np.zeros((2, folds * slots, len(rules)))
        size = max(_MAX_CELLS // max(len(keys), 1), 1)
        for first in range(0, len(rules), size):
            block = slice(first, first + size)
            decide = self.replayer.deciding_alike(_all_day(rules[block]))
            for whole, of_device in zip(
                counts, self.replayer.count(len(rules[block]), decide, by), strict=True
            ):
                np.add.at(whole[:, block], keys % (folds * slots), of_device)
        reads = np.bincount(at, minlength=folds * slots).reshape(folds, slots)
        return _SlotSums(reads, *counts.reshape(2, folds, slots, len(rules)))

    def _built(
        self, family: Family, slots: int, build: Callable[[int, tuple[float, ...]], list[_Limits]]
    ) -> list[Choice]:
        """Choose a price of stale answers for rules, which ``build`` returns for a part and some prices.

        The reads of each fold are answered by the rules that were built without it.
        """
        folds = len(self.parts) - 1
        row = self.fold_of[self.replayer.cells[0]] * slots + self.replayer.slot(slots)
        rules: dict[float, list[_Limits]] = {}

        def sums_of(prices: tuple[float, ...]) -> Sums:
            built = [build(part, prices) for part in range(folds + 1)]
            rules.update(zip(prices, map(list, zip(*built, strict=True)), strict=True))
            km = np.array([[of for of, _ in of_fold] for of_fold in built[:-1]]).repeat(slots, axis=0)
            minutes = np.array([[ages for _, ages in of_fold] for of_fold in built[:-1]])
            minutes = minutes.transpose(0, 2, 1).reshape(folds * slots, len(prices))
            return self.replayer.sums(len(prices), self.replayer.deciding(km, minutes, row))

        numbers, prices = self._priced(_PRICES, sums_of)
        policies = [
            Always() if number is None else FixedRule(*rules[prices[number]][part])
            for part, number in enumerate(numbers)
        ]
        return self._choice(family, policies)

    def _priced(
        self, prices: tuple[float, ...], sums_of: Callable[[tuple[float, ...]], Sums]
    ) -> tuple[list[int | None], tuple[float, ...]]:
        """Choose a price of stale answers for each part; some below the best one are tried, too."""
        sums = sums_of(prices)
        number = self.best(sums, None)
        if number:
            low, high = prices[number - 1 : number + 1]
            between = tuple(np.geomspace(low, high, _PRICE_STEPS + 2)[1:-1].tolist())
            sums, prices = sums | sums_of(between), prices + between
        return [self.best(sums, part) for part in self.parts], prices

    def tree(self, folds: Folds) -> tuple[list[Choice], str]:
        """Choose the price of a stale answer with the best tree; without one, return why."""
        pairs, is_stale = self.replayer.pairs, self.replayer.is_stale
        try:
            by: Groups = "device" if folds == "device" else "day"
            trees = ReadTrees.grow(pairs, is_stale, by=by, folds=_TREE_FOLDS).trees
        except TraceContentError as error:
            return [], error.summary
        actions = _Actions(trees)
        numbers, prices = self._priced(
            _TREE_PRICES, lambda some: self.replayer.sums(len(some), actions.deciding(some))
        )
        if numbers[-1] is None:
            return [], "No tree keeps the limit of stale answers with a margin."
        decided = np.zeros(len(pairs.read), dtype=np.bool_)
        fold_of_pair = self.fold_of[self.replayer.cells[0]][pairs.read]
        for part, number in zip(self.parts[:-1], numbers[:-1], strict=True):
            if number is not None:
                mine = fold_of_pair == part
                decided[mine] = actions.is_local(prices[number])[actions.node[mine]]
        best = prices[numbers[-1]]
        learnt = LearntReads(actions.trees_of[best], "extended", CostMatrix(best, 1.0).table())
        return [self._replayed("tree", learnt, decided)], ""

    def _choice(self, family: Family, policies: Sequence[Always | FixedRule]) -> list[Choice]:
        """Decide each fold's pairs by the policy chosen without it; the last policy is that of all."""
        if isinstance(policies[-1], Always):
            return []
        pairs = self.replayer.pairs
        fold_of_pair = self.fold_of[self.replayer.cells[0]][pairs.read]
        decided = np.zeros(len(pairs.read), dtype=np.bool_)
        for policy in dict.fromkeys(policies[:-1]):
            mine = np.isin(fold_of_pair, [i for i, other in enumerate(policies[:-1]) if other == policy])
            decided[mine] = policy.local(pairs)[mine]
        return [self._replayed(family, policies[-1], decided)]

    def _replayed(
        self, family: Family, policy: FixedRule | LearntReads, decided: NDArray[np.bool_]
    ) -> Choice:
        return replayed(self.replayer.pairs, self.replayer.is_stale, family, policy, decided)


def replayed(
    pairs: Pairs,
    is_stale: NDArray[np.bool_],
    family: Family,
    policy: Always | FixedRule | LearntReads,
    decisions: NDArray[np.bool_],
) -> Choice:
    """Replay decisions by pair."""
    served = replay(pairs, decisions)
    bad = stale_reads(is_stale, served)
    return Choice(family, policy, decisions, (served != SENT) & ~bad, bad)


class _Actions:
    """Decisions of the trees of the folds, by the node that each pair falls into in the tree of its fold."""

    def __init__(self, trees: CrossValidatedTrees) -> None:
        sizes = [len(grown.left) for grown in trees.folds]
        begins = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        self.node = trees.leaf + begins[trees.fold_of]
        self.trees_of: dict[float, CostTree] = {}
        """Tree of all rows by price of a stale answer."""
        self._trees = trees
        self._is_local: dict[float, NDArray[np.bool_]] = {}

    def is_local(self, price: float) -> NDArray[np.bool_]:
        """Return whether each node answers locally, with a price of a stale answer."""
        if price not in self._is_local:
            self.trees_of[price], actions = self._trees.cut(CostMatrix(price, 1.0).table())
            self._is_local[price] = np.concatenate(actions) == _LOCAL
        return self._is_local[price]

    def deciding(self, prices: Sequence[float]) -> _Decide:
        """Return the function that decides as trees with these prices do."""
        is_local = np.stack([self.is_local(price) for price in prices], axis=1)

        def decide(block: slice, reads: NDArray[np.int64], pair: NDArray[np.int64]) -> NDArray[np.bool_]:
            decided: NDArray[np.bool_] = is_local[self.node[pair], np.arange(block.start, block.stop)]
            return decided

        return decide


def _fold_of_cells(device: NDArray[np.int64], day: NDArray[np.int64], folds: Folds) -> NDArray[np.int64]:
    """Deal devices, or days, out to ten folds."""
    number = np.unique(device if folds == "device" else day, return_inverse=True)[1]
    return np.asarray(number, dtype=np.int64) % _FOLDS


def _between(rules: Sequence[Rule], best: Rule) -> set[Rule]:
    """Return rules halfway between the best one and its neighbours in distance and in age."""

    def around(values: list[float], value: float) -> list[float]:
        at = values.index(value)
        low = values[at - 1] if at else value / 2
        high = values[at + 1] if at + 1 < len(values) else value
        near = [value]
        if value > _FINE * low:
            near.append(math.sqrt(low * value))
        if high > _FINE * value:
            near.append(math.sqrt(value * high) if math.isfinite(high) else 2 * value)
        return [float(f"{end:.3g}") for end in near]

    ages = sorted({age for km, age in rules if km == best[0]})
    distances = sorted({km for km, age in rules if age == best[1]})
    near_ages = around(ages, best[1])
    near_km = [math.inf] if math.isinf(best[0]) else around(distances, best[0])
    return {(km, age) for km in near_km for age in near_ages}


def _all_day(rules: Sequence[Rule]) -> list[_Limits]:
    return [(km, (age,)) for km, age in rules]


@dataclass(frozen=True)
class _SlotSums:
    """Reads, and fresh and stale answers of rules, by fold and part of the day.

    Of shape (folds, slots), and (folds, slots, rules); without folds, if they are summed.
    """

    reads: NDArray[np.int64]
    fresh: NDArray[np.float64]
    stale: NDArray[np.float64]

    def joined(self, slots: int) -> _SlotSums:
        """Return the sums of fewer parts of the day."""
        folds, finer = self.reads.shape
        shape = folds, slots, finer // slots
        return _SlotSums(
            self.reads.reshape(shape).sum(axis=2),
            *(of.reshape(*shape, of.shape[2]).sum(axis=2) for of in (self.fresh, self.stale)),
        )

    def without(self, left_out: int | None) -> _SlotSums:
        """Return the sums of all folds but one."""
        kept = [fold for fold in range(len(self.reads)) if fold != left_out]
        return _SlotSums(*(of[kept].sum(axis=0) for of in (self.reads, self.fresh, self.stale)))

    def value(self, rules: Sequence[Rule], km: float, prices: Sequence[float]) -> NDArray[np.float64]:
        """Return fresh answers less the price of stale ones, by price, age (see :func:`_ages`) and slot."""
        columns = [i for i, (of, _) in enumerate(rules) if of == km]
        fresh, stale = (of[:, columns].T for of in (self.fresh, self.stale))
        value = fresh - np.reshape(prices, (-1, 1, 1)) * stale
        return np.concatenate([np.zeros_like(value[:, :1]), value], axis=1)


def _ages(rules: Sequence[Rule], km: float) -> NDArray[np.float64]:
    """Return the ages that rules have at a distance, after 0: no answer is used."""
    return np.array([0.0, *(age for of, age in rules if of == km)])


def _two_periods(rules: Sequence[Rule], sums: _SlotSums, prices: Sequence[float]) -> list[_Limits]:
    """Build, for each price, an age between two hours and another one at other times, at one distance."""
    slots = len(sums.reads)
    first, length = np.divmod(np.arange(slots * slots // 2), slots // 2)  # longer ones are the rest of a day
    best = np.zeros(len(prices))
    built: list[_Limits] = [(math.inf, (0.0,) * slots)] * len(prices)
    for km in sorted({km for km, _ in rules}):
        total, number = _best_periods(sums.value(rules, km, prices), first, length + 1)
        ages = _ages(rules, km)[number].tolist()
        for i in np.flatnonzero(total > best).tolist():
            built[i] = km, tuple(ages[i])
        best = np.maximum(best, total)
    return built


def _move(rule: _Limits, price: float, rules: Sequence[Rule], sums: _SlotSums) -> _Limits:
    """Move both times of a rule by less than one part of its day, where parts are shorter."""
    km, coarser = rule
    slots, runs = len(sums.reads), day_runs(coarser)
    if len(runs) != 2:
        return km, tuple(np.repeat(coarser, slots // len(coarser)).tolist())
    moved = np.arange(1, 2 * slots // len(coarser)) - slots // len(coarser)
    begins, ends = (begin * slots // (24 * 60) + moved for begin, _, _ in runs)
    first, past = (of.ravel() for of in np.meshgrid(begins, ends))
    _, number = _best_periods(sums.value(rules, km, [price]), first % slots, (past - first) % slots)
    return km, tuple(_ages(rules, km)[number[0]].tolist())


def _best_periods(
    value: NDArray[np.float64], first: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Choose a period and the ages within and without it, by price; return the value, and the age by slot.

    ``value`` is of shape (prices, ages, slots); a period is some slots long, from its first one on.
    """
    slots = value.shape[2]
    twice = np.cumsum(np.concatenate([np.zeros_like(value[:, :, :1]), value, value], axis=2), axis=2)
    inside = twice[:, :, first + length] - twice[:, :, first]
    outside = twice[:, :, [slots]] - inside
    total = inside.max(axis=1) + outside.max(axis=1)
    best = total.argmax(axis=1)[:, None]
    is_in = (np.arange(slots) - first[best]) % slots < length[best]
    within, without = (
        np.take_along_axis(of, best[:, None], axis=2).argmax(axis=1) for of in (inside, outside)
    )
    return total.max(axis=1), np.where(is_in, within, without)


def _each_slot(rules: Sequence[Rule], sums: _SlotSums, prices: Sequence[float]) -> list[_Limits]:
    """Build, for each price, an age for each part of the day; parts with few reads lean on longer ones."""
    value = sums.value(rules, math.inf, prices)
    mean = value.sum(axis=2, keepdims=True) / max(float(sums.reads.sum()), 1.0)
    for slots in _SLOTS[: _SLOTS.index(len(sums.reads)) + 1]:
        reads = sums.reads.reshape(slots, -1).sum(axis=1)
        of_slot = value.reshape(*value.shape[:2], slots, -1).sum(axis=3)
        longer = np.repeat(mean, slots // mean.shape[2], axis=2)
        mean = (of_slot + _POOLED_READS * longer) / (reads + _POOLED_READS)
    chosen = _ages(rules, math.inf)[mean.argmax(axis=1)]
    return [(math.inf, tuple(ages)) for ages in chosen.tolist()]
