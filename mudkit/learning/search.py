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
of day from hours down to 5 minutes, where that counts. Trees are grown from a sample of the devices.

Policies are replayed where the devices are, in this process or in Spark's tasks. What comes back are sums
over reads, whose size does not depend on their number, and at the end the answers of the best policies by
device and day.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals, words
from mudkit.checks import Range, check_arguments
from mudkit.display import Displayed, Table, View
from mudkit.errors import TraceContentError
from mudkit.intervals import Interval
from mudkit.learning.candidates import (
    Candidates,
    Forest,
    Limits,
    Replayer,
    Rules,
    SlotSums,
    Split,
    Sums,
    TreePrices,
    cells_of_reads,
)
from mudkit.learning.costs import CostMatrix
from mudkit.learning.devices import (
    MAX_LEARNT_PAIRS,
    DeviceCounts,
    Devices,
    Fleet,
    count_pairs,
    no_reads,
    open_devices,
)
from mudkit.learning.features import Features
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import (
    Always,
    FixedRule,
    LearntReads,
    Policy,
    ReadTrees,
    day_runs,
    describe_policy,
)
from mudkit.learning.replay import SENT, replay, stale_reads
from mudkit.learning.trees import CostTree, Folds, Groups, check_folds
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
MAX_RISK: Final = 0.1
"""Probability with which a policy that is recommended may miss the limit of stale answers on folds that it
was not chosen on."""
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
_LOCAL: Final = 0
Rule: TypeAlias = tuple[float, float]
"""Distance in km and age in minutes."""


@dataclass(frozen=True)
class Answers:
    """Reads by device and day, and how many of them each policy answers fresh, or stale.

    Arrays have a row for each device, by its id, and day of solar time, in order; ``fresh`` and ``stale`` are
    of shape (policies, rows).
    """

    device: NDArray[np.int64]
    day: NDArray[np.int64]
    reads: NDArray[np.int64]
    fresh: NDArray[np.int64]
    stale: NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """Best policy of a family: the one chosen on all reads, and answers of those chosen on other folds.

    ``decisions`` are the policies of the folds as one, which decides for each read by the one that was chosen
    without it. ``reads`` are counted by device and day; ``fresh`` and ``stale`` are those that ``decisions``
    answers from the cache.
    """

    family: Family
    policy: Always | FixedRule | LearntReads
    decisions: Policy
    reads: NDArray[np.int64]
    fresh: NDArray[np.int64]
    stale: NDArray[np.int64]

    @property
    def fresh_share(self) -> float:
        """Share of the reads that are answered fresh; 0 without reads."""
        return int(self.fresh.sum()) / max(int(self.reads.sum()), 1)

    @property
    def stale_share(self) -> float:
        """Share of the reads that are answered stale; 0 without reads."""
        return int(self.stale.sum()) / max(int(self.reads.sum()), 1)


@dataclass(frozen=True, repr=False)
class Recommendation(Displayed):
    """The simplest policy that is as good as any, and what it was compared with.

    Attributes
    ----------
    completeness, max_stale : float
        Completeness below which an answer is stale, and the largest share of the reads that may be.
    split : Split
        Folds, for which policies are chosen on the other ones.
    device, day, reads : ndarray of int64, shape (rows,)
        Reads of each device, by its id, and day of solar time.
    choices : tuple of Choice
        Best policy of each family, from simple to complicated.
    chosen : Choice
        What is recommended.
    rules : tuple
        All rules of distance (km) and age (minutes) that were replayed.
    longest_s : float
        Age of the oldest answer that could serve a read.
    learnt_devices : int
        Devices from which trees were grown.
    problem : str
        Reason for which there is no tree; empty: there is one.
    """

    completeness: float
    max_stale: float
    split: Split
    device: NDArray[np.int64]
    day: NDArray[np.int64]
    reads: NDArray[np.int64]
    choices: tuple[Choice, ...]
    chosen: Choice
    rules: tuple[Rule, ...]
    longest_s: float
    learnt_devices: int
    problem: str

    @property
    def count(self) -> int:
        """Number of reads."""
        return int(self.reads.sum())

    @property
    def has_enough_reads(self) -> bool:
        """True if there are enough reads for a recommendation."""
        return self.count >= MIN_READS

    def choice(self, family: Family) -> Choice | None:
        """Return the best policy of a family, if it has any."""
        return next((choice for choice in self.choices if choice.family == family), None)

    @cached_property
    def best_rule(self) -> Choice:
        """The rule, of any family but trees, with the most fresh answers out of fold within the limit."""
        rules = [choice for choice in self.choices if choice.family != "tree" and self.is_allowed(choice)]
        return max(rules, key=lambda choice: int(choice.fresh.sum()))

    def share(self, counts: NDArray[np.int64]) -> Interval:
        """Return a share of the reads, and where it lies for as many other devices and days (95 %).

        ``counts`` are by device and day, as ``reads``.
        """
        return intervals.clustered(
            counts, self.device, self.day, weights=self.reads, ahead=True, limits=(0.0, 1.0)
        )

    def gain(self, choice: Choice, than: Choice) -> Interval:
        """Return by how much the share of fresh answers is larger, with its 95 % interval."""
        return self._share_of(choice.fresh - than.fresh)

    def risk(self, choice: Choice) -> float:
        """Return the probability that as many other devices and days have more stale answers than allowed."""
        return intervals.risk_ahead(choice.stale, self.reads, self.device, self.day, limit=self.max_stale)

    def is_allowed(self, choice: Choice) -> bool:
        """Return whether a choice keeps the limit of stale answers, and surely has more fresh ones."""
        if choice.family == "always ask":
            return True
        return self.risk(choice) <= MAX_RISK and self._share_of(choice.fresh - choice.stale).low > 0.0

    def _share_of(self, difference: NDArray[np.int64]) -> Interval:
        """Return a difference by device and day as a share of the reads, with its 95 % interval."""
        return intervals.clustered(difference, self.device, self.day, weights=self.reads, limits=(-1.0, 1.0))

    def _view(self) -> View:
        rows = [
            (one.family, describe_policy(one.policy), one.fresh_share, one.stale_share, self.risk(one))
            for one in self.choices
        ]
        facts = {
            "recommended": describe_policy(self.chosen.policy),
            "reads": f"{self.count:,}",
            "devices": f"{len(self.split.ids):,}",
        }
        return View(
            "Recommendation", facts, [_table_of_choices(rows)], [self.problem] if self.problem else []
        )


@check_arguments(types=False)
def recommend(
    labels: Any,
    reads: Any,
    *,
    max_stale: Annotated[float, Range(0.0, 1.0)],
    completeness: Annotated[float, Range(1e-9, 1.0)] = 1.0,
    folds: Folds = "device",
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0,
) -> Recommendation:
    """Search all families of policies for reads, and recommend the simplest one that is as good as any.

    A family with more numbers is recommended when the 95 % interval of its advantage lies above nothing, and
    the advantage is a point or more; a tree when the interval lies above two points, over the best rule. Any
    policy has to answer more than that fresh, surely more fresh than stale, and to keep the limit on folds
    that it was not chosen on, but for a probability of 10 %.

    DataFrames are replayed in Spark's tasks, some devices at a time. This process holds the sample that trees
    are grown from, and for each device and day the answers of the best policies. The result is the same as
    that of Arrow tables.

    Parameters
    ----------
    labels, reads : pyarrow.Table or Spark DataFrame
        The result of ``pipeline.label_reads``, and the reads that were labelled.
    max_stale : float
        Largest share of the reads that may be answered stale.
    completeness : float
        An answer is stale when its completeness is below; 1: when it lacks a point that others wrote.
    folds : {'device', 'time'}
        What policies are scored on: other devices, or other days, than those they are chosen on.
    seed : int
        Which devices trees are grown from: as many as have
        :data:`~mudkit.learning.devices.MAX_LEARNT_PAIRS` pairs, all of them if there are fewer pairs.

    Returns
    -------
    Recommendation

    Raises
    ------
    ParameterError, TraceContentError
    """
    check_folds(folds)
    with open_devices(labels, reads) as devices:
        return search_policies(
            devices, completeness=completeness, max_stale=max_stale, folds=folds, seed=seed
        )


def search_policies(
    devices: Devices,
    *,
    completeness: float,
    max_stale: float,
    folds: Folds = "device",
    seed: int = 0,
    weekdays_from: int = 0,
) -> Recommendation:
    """Recommend a policy for the reads of devices that are open: see :func:`recommend`.

    Trees ask for weekdays if there are reads on as many days as ``weekdays_from``.
    """
    surveyed = devices.map(_survey)
    fleet = Fleet.of([counts for counts, _, _ in surveyed])
    if not len(fleet.ids):
        raise no_reads()
    days = np.unique(np.concatenate([days for _, days, _ in surveyed]))
    longest_s = max(longest_s for _, _, longest_s in surveyed)
    split = Split(folds, np.sort(fleet.ids), days)
    search = _Search(devices, completeness, split, longest_s, max_stale)
    rules, sums = search.grid()
    selected = [*search.plain(rules, sums)]
    timed = search.by_time_of_day(rules)
    drawn = fleet.sample_pairs(seed, MAX_LEARNT_PAIRS)
    trees, problem = _grow_trees(
        devices.gather(fleet, drawn), completeness, folds, has_weekdays=len(days) >= weekdays_from
    )
    priced: list[_Priced] = [*timed, *trees]
    of_priced = search.price(priced)
    selected += [choice for choice in of_priced if choice is not None]
    if trees and of_priced[-1] is None:
        problem = "No tree keeps the limit of stale answers with a margin."
    answers = answer(devices, completeness, [decisions for _, _, decisions in selected])
    nothing = np.zeros(len(answers.reads), dtype=np.int64)
    choices = [Choice("always ask", Always(), Always(), answers.reads, nothing, nothing)]
    choices += [
        Choice(family, policy, decisions, answers.reads, fresh, stale)
        for (family, policy, decisions), fresh, stale in zip(
            selected, answers.fresh, answers.stale, strict=True
        )
    ]
    result = Recommendation(
        completeness, max_stale, split, answers.device, answers.day, answers.reads, tuple(choices),
        choices[0], rules, longest_s, int(drawn.chosen.sum()), problem,
    )  # fmt: skip
    result = replace(result, choices=_as_coarse_as_good(result))
    return replace(result, chosen=_simplest(result))


def _survey(pairs: Pairs) -> tuple[DeviceCounts, NDArray[np.int64], float]:
    """Return counts of some devices, their days in solar time, and the age of the oldest answer."""
    days = np.unique(solar_day(pairs.t_us, pairs.lon))
    return count_pairs(pairs), days, float(pairs.age_s.max(initial=0.0))


def replay_rules(devices: Devices, completeness: float, split: Split, rules: Sequence[FixedRule]) -> Sums:
    """Replay rules over the reads of any devices, all at once."""
    replayed: Sums = devices.total(
        _Replay(completeness, split, (Rules.of([(rule.km, rule.ages) for rule in rules]),))
    )[0]
    return replayed


def answer(devices: Devices, completeness: float, policies: Sequence[Policy]) -> Answers:
    """Replay policies one after the other, and count their answers by device and day."""
    parts = devices.map(_Answer(completeness, tuple(policies)))
    device, day, reads = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("device", "day", "reads")
    )
    order = np.lexsort((day, device))
    fresh, stale = (
        np.concatenate([getattr(part, name) for part in parts], axis=1)[:, order]
        for name in ("fresh", "stale")
    )
    return Answers(device[order], day[order], reads[order], fresh, stale)


def replayed(
    devices: Devices, completeness: float, policies: Sequence[tuple[Family, Always | FixedRule | LearntReads]]
) -> list[Choice]:
    """Replay policies that are the same for all folds; return them as choices with their answers."""
    answers = answer(devices, completeness, [policy for _, policy in policies])
    return [
        Choice(family, policy, policy, answers.reads, fresh, stale)
        for (family, policy), fresh, stale in zip(policies, answers.fresh, answers.stale, strict=True)
    ]


@dataclass(frozen=True)
class _Replay:
    """Sums of candidates over the reads of some devices."""

    completeness: float
    split: Split
    candidates: tuple[Candidates, ...]

    def __call__(self, pairs: Pairs) -> list[Sums]:
        replayer = Replayer(pairs, pairs.are_stale(self.completeness), self.split)
        return [replayer.sums(of) for of in self.candidates]


@dataclass(frozen=True)
class _BySlot:
    """Sums of rules by part of the day, over the reads of some devices."""

    completeness: float
    split: Split
    rules: Rules
    slots: int

    def __call__(self, pairs: Pairs) -> list[SlotSums]:
        replayer = Replayer(pairs, pairs.are_stale(self.completeness), self.split)
        return [replayer.slot_sums(self.rules, self.slots)]


@dataclass(frozen=True)
class _Answer:
    """Answers of policies to the reads of some devices."""

    completeness: float
    policies: tuple[Policy, ...]

    def __call__(self, pairs: Pairs) -> Answers:
        is_stale = pairs.are_stale(self.completeness)
        cell, device, day, reads = cells_of_reads(pairs)
        fresh, stale = np.zeros((2, len(self.policies), len(reads)), dtype=np.int64)
        for number, policy in enumerate(self.policies):
            served = replay(pairs, policy.local(pairs))
            bad = stale_reads(is_stale, served)
            stale[number] = np.bincount(cell[bad], minlength=len(reads))
            fresh[number] = np.bincount(cell[(served != SENT) & ~bad], minlength=len(reads))
        return Answers(device, day, reads, fresh, stale)


@dataclass(frozen=True)
class _OutOfFold:
    """Rules of folds: each decides for the reads of its fold."""

    split: Split
    policies: tuple[Always | FixedRule, ...]

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Decide for each pair whether it is served."""
        fold_of_pair = self.split.fold_of_reads(pairs)[pairs.read]
        decided = np.zeros(len(pairs.read), dtype=np.bool_)
        for policy in dict.fromkeys(self.policies):
            mine = np.isin(fold_of_pair, [i for i, other in enumerate(self.policies) if other == policy])
            decided[mine] = policy.local(pairs)[mine]
        return decided


@dataclass(frozen=True)
class _TreesOutOfFold:
    """Trees that are cut for each fold without its reads; ``is_local``, of shape (folds, nodes), decides."""

    split: Split
    forest: Forest
    is_local: NDArray[np.bool_]

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Decide for each pair whether it is served."""
        fold_of_pair = self.split.fold_of_reads(pairs)[pairs.read]
        decided: NDArray[np.bool_] = self.is_local[fold_of_pair, self.forest.nodes(pairs)]
        return decided


def _as_coarse_as_good(result: Recommendation) -> tuple[Choice, ...]:
    """Return a choice of each family: a finer one in place of a coarser if it surely answers more fresh."""
    kept: dict[Family, Choice] = {}
    for choice in result.choices:
        coarser = kept.get(choice.family)
        if coarser is not None and result.is_allowed(coarser):
            gain = result.gain(choice, coarser)
            is_better = gain.low > 0.0 and gain.value > _MIN_SLOT_GAIN
            if not is_better or not result.is_allowed(choice):
                continue
        kept[choice.family] = choice
    return tuple(kept.values())


def _simplest(result: Recommendation) -> Choice:
    """Return the first choice, in the order of families, that no later one surely beats by enough."""
    chosen = result.choices[0]
    if not result.has_enough_reads:
        return chosen
    for choice in result.choices[1:]:
        if not result.is_allowed(choice):
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


_Selected: TypeAlias = tuple[Family, FixedRule | LearntReads, Policy]
"""Family, the policy chosen on all folds, and those chosen without one."""


class _Priced(Protocol):
    """Protocol of policies that are built for a price of a stale answer, for each fold without its reads."""

    @property
    def prices(self) -> tuple[float, ...]:
        """Prices to begin with, in order."""
        ...

    def candidates(self, prices: tuple[float, ...]) -> Candidates:
        """Build the policies for some prices of a stale answer, one for each."""
        ...

    def choose(self, split: Split, prices: Sequence[float | None]) -> _Selected | None:
        """Return what was built for the prices of the folds and, last, for that of all; None: nothing."""
        ...


class _PricedRules:
    """Rules by the time of day; ``build`` returns those without a fold for some prices."""

    prices = _PRICES

    def __init__(
        self, family: Family, folds: int, build: Callable[[int, tuple[float, ...]], list[Limits]]
    ) -> None:
        self._family, self._folds, self._build = family, folds, build
        self._rules: dict[float, tuple[Limits, ...]] = {}
        """Rules without each fold and, last, of all, by price."""

    def candidates(self, prices: tuple[float, ...]) -> Rules:
        """Build the rules of each fold for some prices of a stale answer; remember them for the choice."""
        built = [self._build(part, prices) for part in range(self._folds + 1)]
        self._rules.update(zip(prices, zip(*built, strict=True), strict=True))
        return Rules.of_folds(built[:-1])

    def choose(self, split: Split, prices: Sequence[float | None]) -> _Selected | None:
        """Return the rules for the prices of the folds and, last, for that of all; None: nothing."""
        policies = [
            Always() if price is None else FixedRule(*self._rules[price][part])
            for part, price in enumerate(prices)
        ]
        return _selected_rules(split, self._family, policies)


class _PricedTrees:
    """Trees that are grown once, and cut for each price."""

    prices = _TREE_PRICES

    def __init__(self, grown: ReadTrees, forest: Forest) -> None:
        self._trees, self._features, self._forest = grown.trees, grown.features, forest
        self._cut: dict[float, tuple[CostTree, NDArray[np.bool_]]] = {}

    def _cut_for(self, price: float) -> tuple[CostTree, NDArray[np.bool_]]:
        """Return the tree of all rows for a price, and whether each node of the forest answers locally."""
        if price not in self._cut:
            tree, actions = self._trees.cut(CostMatrix(price, 1.0).table())
            self._cut[price] = tree, np.concatenate(actions) == _LOCAL
        return self._cut[price]

    def candidates(self, prices: tuple[float, ...]) -> TreePrices:
        """Cut the trees for some prices of a stale answer; return which nodes answer locally."""
        is_local = np.stack([self._cut_for(price)[1] for price in prices], axis=1)
        return TreePrices(self._forest, is_local)

    def choose(self, split: Split, prices: Sequence[float | None]) -> _Selected | None:
        """Return the trees for the prices of the folds and, last, for that of all; None: nothing."""
        best = prices[-1]
        if best is None:
            return None
        tree, of_nodes = self._cut_for(best)
        nothing = np.zeros_like(of_nodes)
        is_local = np.stack([nothing if price is None else self._cut_for(price)[1] for price in prices[:-1]])
        learnt = LearntReads(tree, self._features, CostMatrix(best, 1.0).table())
        return "tree", learnt, _TreesOutOfFold(split, self._forest, is_local)


def _grow_trees(
    sample: Pairs, completeness: float, folds: Folds, *, has_weekdays: bool
) -> tuple[list[_PricedTrees], str]:
    """Grow trees from a sample; without any, return why.

    They see the size of what is asked if queries differ in it.
    """
    by: Groups = "device" if folds == "device" else "day"
    differs = any(len(np.unique(sizes)) > 1 for sizes in (sample.box_km, sample.window_s))
    features: Features = "asked" if differs else "extended"
    try:
        is_stale = sample.are_stale(completeness)
        grown = ReadTrees.grow(sample, is_stale, features, by, _TREE_FOLDS, has_weekdays=has_weekdays)
    except TraceContentError as error:
        return [], error.summary
    return [_PricedTrees(grown, Forest.of(grown, sample, by))], ""


def _selected_rules(split: Split, family: Family, policies: Sequence[Always | FixedRule]) -> _Selected | None:
    """Return the rules chosen without each fold and, last, from all; None if the last is to ask always."""
    if isinstance(policies[-1], Always):
        return None
    return family, policies[-1], _OutOfFold(split, tuple(policies[:-1]))


@dataclass(frozen=True)
class _Search:
    """Choices on all folds but one, for each fold, and on all."""

    devices: Devices
    completeness: float
    split: Split
    longest_s: float
    max_stale: float

    @property
    def parts(self) -> range:
        """Folds that are left out; last, none is."""
        return range(self.split.folds + 1)

    def replay(self, candidates: Sequence[Candidates]) -> list[Sums]:
        """Replay several candidates in one pass over the reads."""
        sums: list[Sums] = self.devices.total(_Replay(self.completeness, self.split, tuple(candidates)))
        return sums

    def best(self, sums: Sums, part: int) -> int | None:
        """Choose among policies without a fold."""
        return sums.best(part, self.max_stale)

    def grid(self) -> tuple[tuple[Rule, ...], Sums]:
        """Replay rules of distance and age on a grid that is refined around the best ones."""
        longest = self.longest_s / 60.0 or 1.0
        minutes = [*(age for age in _MINUTES if age < longest), longest]
        rules = [(km, age) for km in (*_KM, math.inf) for age in minutes]
        (sums,) = self.replay([Rules.of(_all_day(rules))])
        for _ in range(_ROUNDS):
            added: set[Rule] = set()
            for is_alone in (True, False):
                some = [i for i, (km, _) in enumerate(rules) if not is_alone or math.isinf(km)]
                number = self.best(sums.of(some), self.parts[-1])
                if number is not None:
                    added |= _between(rules, rules[some[number]])
            new = sorted(added - set(rules))
            if not new:
                break
            sums = sums | self.replay([Rules.of(_all_day(new))])[0]
            rules += new
        order = sorted(range(len(rules)), key=lambda i: rules[i])
        return tuple(rules[i] for i in order), sums.of(order)

    def plain(self, rules: Sequence[Rule], sums: Sums) -> list[_Selected]:
        """Choose an age alone, and a distance with an age."""
        alone = [i for i, (km, _) in enumerate(rules) if math.isinf(km)]
        every = list(range(len(rules)))
        selected = []
        families: list[tuple[Family, list[int]]] = [("age", alone), ("distance and age", every)]
        for family, some in families:
            of_family = sums.of(some)
            numbers = [self.best(of_family, part) for part in self.parts]
            policies = [Always() if number is None else FixedRule(*rules[some[number]]) for number in numbers]
            selected.append(_selected_rules(self.split, family, policies))
        return [one for one in selected if one is not None]

    def by_time_of_day(self, rules: Sequence[Rule]) -> list[_PricedRules]:
        """Build rules that depend on the time of day: two of distance and age, or an age for each part.

        Their parts are chosen by the answers of each rule by time of day; what is built of them is replayed.
        Times between hours are tried around the best hours only, and at the distances of these.
        """
        by_hour = self._by_slot(rules, _SLOTS[0]).without(self.parts[-1])
        distances = {math.inf, *(km for km, _ in _two_periods(rules, by_hour, _PRICES))}
        promising = [rule for rule in rules if rule[0] in distances]
        finest = self._by_slot(promising, _SLOTS[-1])
        sums = {slots: [finest.joined(slots).without(part) for part in self.parts] for slots in _SLOTS}

        @cache
        def periods(slots: int, part: int, prices: tuple[float, ...]) -> list[Limits]:
            if slots == _SLOTS[0]:
                return _two_periods(promising, sums[slots][part], prices)
            coarser = periods(_SLOTS[_SLOTS.index(slots) - 1], part, prices)
            return [
                _move(rule, price, promising, sums[slots][part])
                for rule, price in zip(coarser, prices, strict=True)
            ]

        def ages(slots: int, part: int, prices: tuple[float, ...]) -> list[Limits]:
            return _each_slot(promising, sums[slots][part], prices)

        families: list[tuple[Family, Callable[[int, int, tuple[float, ...]], list[Limits]]]] = [
            ("time of day", periods),
            ("age by hour", ages),
        ]
        return [
            _PricedRules(family, self.split.folds, partial(build, slots))
            for family, build in families
            for slots in _SLOTS
        ]

    def _by_slot(self, rules: Sequence[Rule], slots: int) -> SlotSums:
        """Replay rules, and count by fold and part of the day."""
        sums: SlotSums = self.devices.total(
            _BySlot(self.completeness, self.split, Rules.of(_all_day(rules)), slots)
        )[0]
        return sums

    def price(self, priced: Sequence[_Priced]) -> list[_Selected | None]:
        """Choose a price of stale answers for each fold; some below the best one are tried, too."""
        prices = [one.prices for one in priced]
        sums = self.replay([one.candidates(one.prices) for one in priced])
        finer = {}
        for number, of in enumerate(sums):
            best = self.best(of, self.parts[-1])
            if best:
                low, high = prices[number][best - 1 : best + 1]
                finer[number] = tuple(np.geomspace(low, high, _PRICE_STEPS + 2)[1:-1].tolist())
        if finer:
            added = self.replay([priced[number].candidates(between) for number, between in finer.items()])
            for (number, between), of in zip(finer.items(), added, strict=True):
                prices[number], sums[number] = prices[number] + between, sums[number] | of
        results = []
        for one, of_prices, of in zip(priced, prices, sums, strict=True):
            numbers = [self.best(of, part) for part in self.parts]
            results.append(
                one.choose(self.split, [None if number is None else of_prices[number] for number in numbers])
            )
        return results


def _table_of_choices(rows: Sequence[tuple[str, str, float, float, float]]) -> Table:
    """Return choices as a table, with shares in percent."""
    shown = [(*row[:2], *(words.percent(share, 1) for share in row[2:])) for row in rows]
    return Table(("family", "answers from the cache that are used", "fresh", "stale", "risk"), shown)


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


def _all_day(rules: Sequence[Rule]) -> list[Limits]:
    """Return rules with one age for the whole day."""
    return [(km, (age,)) for km, age in rules]


def _value(rules: Sequence[Rule], sums: SlotSums, km: float, prices: Sequence[float]) -> NDArray[np.float64]:
    """Return fresh answers less the price of stale ones, by price, age (see :func:`_ages`) and slot."""
    columns = [i for i, (of, _) in enumerate(rules) if of == km]
    fresh, stale = (of[:, columns].T for of in (sums.fresh, sums.stale))
    value = fresh - np.reshape(prices, (-1, 1, 1)) * stale
    return np.concatenate([np.zeros_like(value[:, :1]), value], axis=1)


def _ages(rules: Sequence[Rule], km: float) -> NDArray[np.float64]:
    """Return the ages that rules have at a distance, after 0: no answer is used."""
    return np.array([0.0, *(age for of, age in rules if of == km)])


def _two_periods(rules: Sequence[Rule], sums: SlotSums, prices: Sequence[float]) -> list[Limits]:
    """Build, for each price, an age between two hours and another one at other times, at one distance."""
    slots = len(sums.reads)
    first, length = np.divmod(np.arange(slots * slots // 2), slots // 2)  # longer ones are the rest of a day
    best = np.zeros(len(prices))
    built: list[Limits] = [(math.inf, (0.0,) * slots)] * len(prices)
    for km in sorted({km for km, _ in rules}):
        total, number = _best_periods(_value(rules, sums, km, prices), first, length + 1)
        ages = _ages(rules, km)[number].tolist()
        for i in np.flatnonzero(total > best).tolist():
            built[i] = km, tuple(ages[i])
        best = np.maximum(best, total)
    return built


def _move(rule: Limits, price: float, rules: Sequence[Rule], sums: SlotSums) -> Limits:
    """Move both times of a rule by less than one part of its day, where parts are shorter."""
    km, coarser = rule
    slots, runs = len(sums.reads), day_runs(coarser)
    if len(runs) != 2:
        return km, tuple(np.repeat(coarser, slots // len(coarser)).tolist())
    moved = np.arange(1, 2 * slots // len(coarser)) - slots // len(coarser)
    begins, ends = (begin * slots // (24 * 60) + moved for begin, _, _ in runs)
    first, past = (of.ravel() for of in np.meshgrid(begins, ends))
    _, number = _best_periods(_value(rules, sums, km, [price]), first % slots, (past - first) % slots)
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


def _each_slot(rules: Sequence[Rule], sums: SlotSums, prices: Sequence[float]) -> list[Limits]:
    """Build, for each price, an age for each part of the day; parts with few reads lean on longer ones."""
    value = _value(rules, sums, math.inf, prices)
    mean = value.sum(axis=2, keepdims=True) / max(float(sums.reads.sum()), 1.0)
    for slots in _SLOTS[: _SLOTS.index(len(sums.reads)) + 1]:
        reads = sums.reads.reshape(slots, -1).sum(axis=1)
        of_slot = value.reshape(*value.shape[:2], slots, -1).sum(axis=3)
        longer = np.repeat(mean, slots // mean.shape[2], axis=2)
        mean = (of_slot + _POOLED_READS * longer) / (reads + _POOLED_READS)
    chosen = _ages(rules, math.inf)[mean.argmax(axis=1)]
    return [(math.inf, tuple(ages)) for ages in chosen.tolist()]
