"""Cache policies for reads: whether to answer from the last answer that the device fetched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mudkit import words
from mudkit.checks import check_arguments, number
from mudkit.display import Displayed, View
from mudkit.errors import ParameterError
from mudkit.learning.costs import CostMatrix, Costs, read_costs
from mudkit.learning.features import FEATURE_SETS, Features, read_features
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import replay, stale_answers
from mudkit.learning.trees import (
    FOLDS,
    CostTree,
    CrossValidatedTrees,
    Groups,
    groups_by,
    grow,
    learnt_view,
)
from mudkit.systems.mud.policies.artefact import HOURS, Density
from mudkit.units import solar_time

words.add_labels(
    {
        "fresh_share": words.Label("fresh", "% of reads", 100.0),
        "stale_cost": words.Label("cost of a stale answer", "queries"),
    }
)

_STALE, _LOCAL = 1, 0
MINUTES_A_DAY: Final = 24 * 60
_PRICES: Final = np.geomspace(0.0005, 200.0, 25)


class Policy(Protocol):
    """Protocol of a read policy in replay."""

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Decide for each pair whether to serve the read from that answer, should it be in the cache."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A policy that has to be learnt."""

    def learn(self, pairs: Pairs, stale: NDArray[np.bool_], by: Groups = "device") -> Policy:
        """Train on labelled pairs, for other devices or for other days."""
        ...


@check_arguments(types=False)
@dataclass(frozen=True)
class Always:
    """Always ask the server."""

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Return False for all ``pairs``: never answer locally."""
        return np.zeros(len(pairs.read), dtype=np.bool_)

    def __str__(self) -> str:
        return "always ask"


@check_arguments(types=False)
@dataclass(frozen=True)
class FixedRule:
    """Answer locally when near a recent query (the CarTel application's rule, Mobius 7.3).

    Parameters
    ----------
    km : float
        Largest distance from the cached query at which its answer is used; ``math.inf``: at any distance.
    minutes : float or tuple of floats
        Largest age of the cached answer at which it is used; several ages: one for each of as many equal
        parts of the day, in mean solar time, from midnight on.

    Raises
    ------
    ParameterError
        A limit is no number, or negative; the parts of the day are not whole minutes.
    """

    km: float = 1.0
    minutes: float | tuple[float, ...] = 10.0

    def __post_init__(self) -> None:
        number("km", self.km, 0.0, math.inf)
        if isinstance(self.minutes, tuple):
            if not self.minutes or MINUTES_A_DAY % len(self.minutes):
                raise ParameterError(
                    "A rule by the time of day has an age for each of equal parts of the day.",
                    where="minutes",
                    found=words.count(len(self.minutes), "age"),
                    expected="one for each part of some whole minutes: 24 for hours, 48 for half hours",
                )
            for slot, minutes in enumerate(self.minutes):
                number(f"minutes[{slot}]", minutes, 0.0, 1e9)
        else:
            number("minutes", self.minutes, 0.0, 1e9)

    @property
    def ages(self) -> tuple[float, ...]:
        """Largest age by part of the day, in minutes; a single one if it is the same all day."""
        return self.minutes if isinstance(self.minutes, tuple) else (self.minutes,)

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Return the ``pairs`` within both limits, which are answered locally."""
        limit_s: Any = 60.0 * np.array(self.ages)
        if len(limit_s) > 1:
            limit_s = limit_s[slots_of_day(pairs.t_us, pairs.lon, len(limit_s))[pairs.read]]
        is_young: NDArray[np.bool_] = pairs.age_s <= limit_s
        return is_young & (pairs.distance_km <= self.km)

    def __str__(self) -> str:
        ages = self.ages
        age = f"{ages[0]:g} min" if len(set(ages)) == 1 else f"{min(ages):g} to {max(ages):g} min by the time"
        return age if math.isinf(self.km) else f"{self.km:g} km / {age}"


def slots_of_day(t_us: NDArray[np.int64], lon: NDArray[np.float64], slots: int) -> NDArray[np.int64]:
    """Return in which of equal parts of the day reads lie, from 0, by mean solar time in float32."""
    hour = solar_time(t_us, lon)[0].astype(np.float32)  # as devices round it
    return np.searchsorted(slot_starts(slots), hour, side="right") - 1


def slot_starts(slots: int) -> NDArray[np.float32]:
    """Return the hours at which equal parts of the day begin, as devices compare them."""
    return (np.arange(slots) * HOURS / slots).astype(np.float32)


@check_arguments(types=False)
@dataclass(frozen=True)
class Bound:
    """The fewest queries that any policy could send, found afterwards from the whole trace.

    Parameters
    ----------
    stale_share : float, optional
        Share of stale answers that it may give. By default as many as the first :class:`FixedRule` in the
        same evaluation gives; none when there is no such rule.
    """

    stale_share: float | None = None

    def __str__(self) -> str:
        return (
            "bound, as stale as the rule"
            if self.stale_share is None
            else f"bound, at most {words.percent(self.stale_share)} stale"
        )


@check_arguments(types=False)
@dataclass(frozen=True)
class Tree:
    """A decision tree that is learnt from labels, by what mistakes cost (Mobius 6 and 7.3).

    Parameters
    ----------
    cost : str, CostMatrix or array_like
        A preset of :data:`~mudkit.learning.COSTS`, or a matrix: rows good, stale; columns local, remote.
    features : {'paper', 'extended', 'dense'}
        What it may know: see :mod:`mudkit.learning.features`; ``dense`` wants positions.
    match : FixedRule, optional
        In place of a cost: the lowest price of a stale answer with which the tree answers no more of them
        than this rule, both replayed on what it learns from (each device by a tree that has not seen it).
    """

    cost: Costs = "latency"
    features: Features = "extended"
    match: FixedRule | None = None

    def learn(self, pairs: Pairs, stale: NDArray[np.bool_], by: Groups = "device") -> LearntReads:
        """Train on labelled pairs.

        Parameters
        ----------
        pairs : Pairs
        stale : ndarray of bool, shape (pairs,)
            Whether serving that pair is stale.
        by : {'device', 'day'}
            What the tree is to hold for: other devices, or other days.

        Raises
        ------
        ParameterError
            The costs or the features are not usable.
        TraceContentError
            There is nothing to learn from: no earlier answers, all or none stale, one device only.
        """
        costs = read_costs(self.cost)
        trees = ReadTrees.grow(pairs, stale, self.features, by)
        if self.match is None:
            return trees.choose(costs)[0]
        most = stale_answers(stale, replay(pairs, self.match.local(pairs)))
        for price in _PRICES.tolist():
            learnt, decisions = trees.choose(CostMatrix(price, 1.0).table())
            if stale_answers(stale, replay(pairs, decisions)) <= most:
                break
        return learnt

    def __str__(self) -> str:
        if self.match is not None:
            how = "as stale as the rule"
        else:
            how = self.cost if isinstance(self.cost, str) else "own costs"
        return f"tree, {how}" + ("" if self.features == "extended" else f", {self.features} features")


@dataclass(frozen=True, repr=False)
class LearntReads(Displayed):
    """A learnt tree for reads, with its cost matrix (rows good, stale; columns local, remote).

    It has a density only if that is one of its features.
    """

    tree: CostTree
    features: Features
    costs: NDArray[np.float64]
    density: Density | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its features, in order."""
        return FEATURE_SETS[self.features]

    @property
    def leaves(self) -> int:
        """Number of leaves of the tree."""
        return int(np.count_nonzero(self.tree.is_leaf))

    def _view(self) -> View:
        return learnt_view("LearntReads", self.tree, self.names, ("local", "remote"))

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Return the ``pairs`` that are answered locally, by the tree's decisions."""
        return np.equal(self.tree.decide(read_features(pairs, self.features, self.density)), _LOCAL)


@dataclass(frozen=True)
class ReadTrees:
    """Trees for reads, grown once from labelled pairs, and cut for any price of a mistake.

    All that learns trees for reads does so here: label reads (:meth:`Pairs.of`, :meth:`Pairs.are_stale`),
    grow trees, choose those of a price out of fold, and replay what they decide.
    """

    features: Features
    trees: CrossValidatedTrees
    density: Density | None = None

    @classmethod
    def grow(
        cls,
        pairs: Pairs,
        stale: NDArray[np.bool_],
        features: Features = "extended",
        by: Groups = "device",
        folds: int = FOLDS,
        *,
        has_weekdays: bool = True,
    ) -> ReadTrees:
        """Grow trees from pairs and whether each is stale, for other devices or for other days.

        Without ``has_weekdays`` they do not ask for weekdays.
        """
        known = read_features(pairs, features)
        if not has_weekdays and "weekday" in FEATURE_SETS[features]:
            known[:, FEATURE_SETS[features].index("weekday")] = 0.0
        groups = groups_by(by, pairs.device, pairs.t_us)[pairs.read]
        trees = grow(known, stale.astype(np.int64), groups, 2, folds=folds)
        written = pairs.written if features == "dense" else None
        return cls(features, trees, None if written is None else written.table())

    def choose(self, costs: NDArray[np.float64]) -> tuple[LearntReads, NDArray[np.bool_]]:
        """Choose the tree for a cost matrix, and which pairs are served, by trees without their fold."""
        tree, decided = self.trees.tree(costs)
        return LearntReads(tree, self.features, costs, self.density), decided == _LOCAL


def describe_policy(policy: Always | FixedRule | LearntReads) -> str:
    """Return a policy in words."""
    if isinstance(policy, Always):
        return "always ask"
    if isinstance(policy, LearntReads):
        return f"tree of {words.count(policy.leaves, 'leaf', 'leaves')}"
    near = "" if math.isinf(policy.km) else f"from within {words.distance(policy.km)} and "
    ages = policy.ages
    if len(set(ages)) == 1:
        return f"{near}at most {format_age(ages[0])} old"
    runs = day_runs(ages)
    if len(runs) == 2:
        (first, past, inside), (_, _, outside) = runs if runs[0][2] else runs[::-1]
        within = f"from {format_time(first)} to {format_time(past)}"
        return f"{near}{_up_to(inside)} {within}, else {_up_to(outside)}"
    return f"{near}at most {format_age(min(ages))} to {format_age(max(ages))} old, by the time of day"


def _up_to(minutes: float) -> str:
    """Return in words that answers may be this old."""
    return f"at most {format_age(minutes)} old" if minutes else "never used"


def format_age(minutes: float) -> str:
    """Return an age in words."""
    return words.duration(60 * minutes)


def format_time(minutes: int) -> str:
    """Return a time of day, in minutes from midnight on, as ``HH:MM``."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def day_runs(ages: tuple[float, ...]) -> list[tuple[int, int, float]]:
    """Return the times of day with one age: from, to (both in minutes), age; the last may pass midnight.

    ``ages`` are those of equal parts of the day.
    """
    length = MINUTES_A_DAY // len(ages)
    starts = [length * slot for slot, age in enumerate(ages) if age != ages[slot - 1]] or [0]
    ends = [*starts[1:], starts[0] or MINUTES_A_DAY]
    return [(first, past, ages[first // length]) for first, past in zip(starts, ends, strict=True)]
