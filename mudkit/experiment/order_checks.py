"""Order checks: which orders of two systems keep the systems' promises, on small random traces."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, combinations
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np

from mudkit.checks import Range, check_arguments, one_of
from mudkit.experiment.adapters.contrail import ContrailPart
from mudkit.experiment.adapters.lasthop import LastHopPart
from mudkit.experiment.adapters.mud import MudPart
from mudkit.experiment.adapters.radiator import RadiatorPart
from mudkit.experiment.adapters.sublim import SublimPart
from mudkit.experiment.adapters.system import RULES, MakePart
from mudkit.experiment.chains import AtTheEnds, Chain, Handed, Logged
from mudkit.experiment.runs import Run, run
from mudkit.experiment.tasks import Item, Task
from mudkit.experiment.testbed import APP, Testbed
from mudkit.scenario import Scenario
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Moments
from mudkit.systems.radiator import People, Time
from mudkit.systems.sublim import Rule
from mudkit.systems.sublim._policy.actions import Every
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

MIDNIGHT_MIN: Final = 90
"""Minutes from the start of a trace to midnight."""
_MAX_MINUTES: Final = 180
_AFTER_H: Final = 2.0
_MAX_ITEMS: Final = 12
_AGES: Final = (10, 20, 40)
_FROM: Final = (0, 18, 30)
_START: Final = "2010-03-01T22:30"


class TraceItem(NamedTuple):
    """An item of a trace: its time, the number of its feed, and the age from which readers may see it."""

    at_s: int
    sender: int
    min_age: int


@dataclass(frozen=True)
class Trace:
    """Random scenario of an order check: the ages of readers, and items in the order of time."""

    ages: tuple[int, ...]
    items: tuple[TraceItem, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Items and readers, by which traces are compared."""
        return len(self.items), len(self.ages)

    def task(self) -> Task:
        """Return it as a task over links without outages, with time for all waiting items to arrive."""
        feeds = max(item.sender for item in self.items) + 1
        scenario = Scenario(
            devices=len(self.ages),
            hours=_MAX_MINUTES / 60 + _AFTER_H,
            items=_Moments(self.items),
            size_bytes=60,
            start=_START,
        )
        predicate = "me.age >= item.least"
        return Task("a story", "Who is old enough?", predicate, scenario, self._about, self._readers, feeds)

    def _about(self, seed: int, sender: str, number: int, loc: Any) -> Mapping[str, Any]:
        """Return the metadata of a feed's item."""
        feed = int(sender.rsplit("-", 1)[1])
        return {"least": [item.min_age for item in self.items if item.sender == feed][number - 1]}

    def _readers(self, seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
        """Return the profiles of the readers."""
        return [{"age": age} for age in self.ages]


@dataclass(frozen=True)
class _Moments:
    """Workload of the moments of a trace."""

    items: tuple[TraceItem, ...]

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`mudkit.sources.workloads.Workload.moments`."""
        return Moments(
            np.array([item.sender for item in self.items], dtype=np.int64),
            np.array([item.at_s * US_PER_S for item in self.items], dtype=np.int64),
        )


def traces(count: int, seed: int = 0, *, hides: bool = True) -> Iterator[Trace]:
    """Draw traces: few items and many, anywhere, in crowds and far apart; writers may hide items."""
    for number in range(count):
        stream = Stream(seed, f"story {number}")
        # Every other trace is large: many items break some promises, few in the right places others.
        fewest, most = (2, 4) if number % 2 == 0 else (6, _MAX_ITEMS)
        items = int(stream.integers(0, 0, fewest, most + 1))
        readers = int(stream.integers(0, 1, 1, min(3, items) + 1))
        feeds = int(stream.integers(0, 2, 1, 5)) if number % 2 == 0 else 4
        steps = np.arange(items)
        # Crowds reach some limits only, and items that are far apart some waits.
        kind, begin = int(stream.integers(0, 3, 0, 3)), int(stream.integers(0, 4, 5, _MAX_MINUTES // 2))
        if kind == 0:
            minutes = stream.integers(1, steps, 5, _MAX_MINUTES)
        elif kind == 1:
            minutes = begin + stream.integers(1, steps, 0, _MAX_MINUTES // 4)
        else:
            minutes = begin + np.cumsum(stream.integers(1, steps, _MAX_MINUTES // 6, _MAX_MINUTES // 4))
        # Different minutes, first seconds: a few seconds on the way do not change which limits an item keeps.
        minutes = np.unique(minutes[minutes < _MAX_MINUTES])
        minutes = minutes[minutes != MIDNIGHT_MIN]
        steps = np.arange(len(minutes))
        senders = stream.integers(2, steps, 0, feeds).tolist()
        froms = np.array(_FROM if hides else (0,))
        least = froms[stream.integers(3, steps, 0, len(froms))]
        seconds = stream.integers(4, steps, 1, 10)
        ages = np.array(_AGES)[stream.integers(5, np.arange(readers), 0, len(_AGES))]
        drawn = map(TraceItem, (minutes * 60 + seconds).tolist(), senders, least.tolist())
        if len(minutes):
            yield Trace(tuple(ages.tolist()), tuple(drawn))


def smaller(trace: Trace, breaks: Callable[[Trace], bool]) -> Trace:
    """Remove the items and readers that a trace does not need to break a promise, one at a time."""
    for part in ("items", "ages"):
        for place in range(len(getattr(trace, part)) - 1, -1, -1):
            kept = getattr(trace, part)
            fewer = replace(trace, **{part: kept[:place] + kept[place + 1 :]})
            if getattr(fewer, part) and breaks(fewer):
                trace = fewer
    return trace


PER_DAY: Final = 2
SPACING_S: Final = 570
PEOPLE: Final = 3
"""The limits that are checked: messages a day, seconds between two, people in an aggregate."""
_MAX_PLAYED: Final = 64
"""Results that a check keeps, in case that a trace comes again."""
_TOLERANCE_S: Final = 5.0
"""Tolerance of the spacing, since a message may take longer than the one before it."""

HIDDEN: Final = "no one is shown what its writer hides from her"
ALL: Final = "everyone who is meant gets it, once"
TOO_MANY: Final = f"at most {PER_DAY} messages a day come"
TOO_SOON: Final = f"no two messages come within {SPACING_S} s"
UNSEEN: Final = f"nothing comes that is about fewer than {PEOPLE} people"
RELAY: Final = "the relay reads nothing"
READ: Final = "no server reads anything"
RADIO: Final = "only what is shown takes her radio"
SEEN_PER_DAY: Final = "the daily limit is spent on what she may see"
SEEN_SPACED: Final = "the rate limit is spent on what she may see"
SEEN_SPACED_PER_DAY: Final = "both limits are spent on what she may see"
_SPENT: Final = {SEEN_PER_DAY: (True, False), SEEN_SPACED: (False, True), SEEN_SPACED_PER_DAY: (True, True)}


class OrderRun(NamedTuple):
    """Result of a trace."""

    trace: Trace
    entry: Run
    adapter: Logged

    @property
    def handed(self) -> Sequence[Handed]:
        """Batches that applications received, in the order of time."""
        return self.adapter.handed

    @property
    def delivered(self) -> list[tuple[str, Item]]:
        """Phones, and items that they received, in the order of time."""
        return [(batch.phone, item) for batch in self.handed for item in batch.batch]

    @property
    def shown(self) -> frozenset[tuple[str, str]]:
        """Phones, and names of the items that they received."""
        return frozenset((phone, item.name) for phone, item in self.delivered)

    @property
    def readers(self) -> dict[str, int]:
        """Ages of the readers, by phone."""
        return dict(zip(self.entry.testbed.phones, self.trace.ages, strict=True))

    @property
    def items(self) -> dict[str, TraceItem]:
        """Items of the trace, by name."""
        numbers: Counter[int] = Counter()
        items = {}
        for item in self.trace.items:
            numbers[item.sender] += 1
            items[f"{self.entry.testbed.senders[item.sender]} {numbers[item.sender]}"] = item
        return items


def _described(trace: Trace) -> str:
    """Return a trace in words."""
    items = ", ".join(
        f"{_clock(item.at_s)} by sender {item.sender + 1}"
        + (f" from {item.min_age} years on" if item.min_age else "")
        for item in trace.items
    )
    return f"items at {items}; readers of {' and '.join(map(str, trace.ages))} years"


def _hidden(played: OrderRun) -> str | None:
    """Return how a reader was shown what is hidden from her age, or None."""
    readers = played.readers
    for handed in played.handed:
        for item in handed.batch:
            age, least = readers[handed.phone], item.metadata["least"]
            if age < least:
                return f"at {_at(handed)} a reader of {age} is shown what is hidden from those under {least}"
    return None


def _all(played: OrderRun) -> str | None:
    """Return how a reader did not get an item that she may see exactly once, or None."""
    count = Counter((phone, item.name) for phone, item in played.delivered)
    for phone, age in played.readers.items():
        for name, item in played.items.items():
            if age >= item.min_age and count[phone, name] != 1:
                often = f"{count[phone, name]} times" if count[phone, name] else "never"
                return f"a reader of {age} gets the item of {_clock(item.at_s)} {often}"
    return None


def _too_many(played: OrderRun) -> str | None:
    """Return how a phone got more messages on a day than allowed, or None."""
    count = Counter((handed.phone, _day(handed.t_us / US_PER_S)) for handed in played.handed)
    for (_, day), messages in count.items():
        if messages > PER_DAY:
            return f"{messages} messages come {_DAYS[day]} midnight"
    return None


def _too_close(played: OrderRun) -> str | None:
    """Return how a phone got two messages closer than allowed, or None."""
    last: dict[str, Handed] = {}
    for handed in played.handed:
        before = last.get(handed.phone)
        if before is not None and handed.t_us - before.t_us < (SPACING_S - _TOLERANCE_S) * US_PER_S:
            return f"messages come at {_at(before)} and {_at(handed)}"
        last[handed.phone] = handed
    return None


def _unseen(played: OrderRun) -> str | None:
    """Return how a message was about too few people, or None."""
    for handed in played.handed:
        people = {item.sender for item in handed.batch}
        if len(people) < PEOPLE:
            return f"what comes at {_at(handed)} is about {len(people)}"
    return None


def _read(played: OrderRun, prefix: str = "") -> str | None:
    """Return which servers, of those whose names begin with `prefix`, held the text of an item.

    None without any.
    """
    lab = played.entry.lab
    assert lab.trace.exposure is not None  # the run keeps it
    places_of = (lab.trace.exposure.find(item.content) for item in played.adapter.published)
    readers = {party for places in places_of for party, _, _ in places if party.startswith(prefix)}
    names = ", ".join(sorted(readers - set(lab.devices)))
    return f"{names} held the text of an item" if names else None


def _radio(played: OrderRun) -> str | None:
    """Return how a phone received messages that it did not show, or None."""
    rows = played.entry.lab.deliveries()
    rows = rows[rows["delivered"].notna() & (rows["system"] != APP)]
    for phone in played.readers:
        received = int((rows["receiver"] == phone).sum())
        shown = sum(handed.phone == phone for handed in played.handed)
        if received > shown:
            return f"{received} messages come to a phone that shows {shown}"
    return None


def _spent(which: str) -> Callable[[OrderRun], str | None]:
    """Return the check that readers get as many items a day as their limits allow."""
    is_daily, is_spaced = _SPENT[which]

    def check(played: OrderRun) -> str | None:
        seen: dict[tuple[str, int], set[str]] = defaultdict(set)
        for handed in played.handed:
            seen[handed.phone, _day(handed.t_us / US_PER_S)] |= {item.name for item in handed.batch}
        for phone, age in played.readers.items():
            may = {name for name, item in played.items.items() if age >= item.min_age}
            last_s = float("-inf")
            allowed: Counter[int] = Counter()
            for item in played.trace.items:
                if age >= item.min_age and (not is_spaced or item.at_s - last_s >= SPACING_S):
                    last_s = item.at_s
                    allowed[_day(item.at_s)] += 1
            for day, count in allowed.items():
                least = min(count, PER_DAY) if is_daily else count
                if (got := len(seen[phone, day] & may)) < least:
                    return f"a reader of {age} gets {got} of the {least} {_DAYS[day]} midnight that she could"
        return None

    return check


PROMISES: Final[dict[str, Callable[[OrderRun], str | None]]] = {
    HIDDEN: _hidden, ALL: _all, TOO_MANY: _too_many, TOO_SOON: _too_close, UNSEEN: _unseen,
    RELAY: partial(_read, prefix="contrail-"), READ: _read, RADIO: _radio,
    **{promise: _spent(promise) for promise in _SPENT},
}  # fmt: skip
"""Checks of the promises, by their text; each returns how a trace breaks it, or None."""

_DAYS: Final = ("before", "after")


def _day(at_s: float) -> int:
    """Return the number of the day, 0 before midnight and 1 after it."""
    return int(at_s >= MIDNIGHT_MIN * 60)


def _at(handed: Handed) -> str:
    """Return the time of the day of a delivery."""
    return _clock(handed.t_us / US_PER_S)


def _clock(at_s: float) -> str:
    """Return a moment of a trace as the time of the day."""
    minutes = (int(at_s) // 60 - MIDNIGHT_MIN) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


ALONE: Final = "one system alone"
SAME_AS_FIRST: Final = "the same is shown as in the first order"
_WAIT_S: Final = 1800.0
_LIMITED: Final = (Rule(None, Every(float(SPACING_S)), "limited"),)


class _System(NamedTuple):
    """A system as a part of a pair, and its promises in any pair."""

    does: str
    make: MakePart
    promises: tuple[str, ...]


class Order(NamedTuple):
    """One order of a pair: its adapter, and the promises that it should keep."""

    make: Callable[[Testbed], Logged]
    promises: tuple[str, ...]
    hides: bool
    """True if writers hide items in its traces, for which it needs a system with writer predicates."""


_SYSTEMS: Final[dict[str, _System]] = {
    "MUD": _System("writer predicates", MudPart, (HIDDEN,)),
    "Last hop": _System("a daily limit", partial(LastHopPart, per_day=PER_DAY), (TOO_MANY,)),
    "SUBLIM": _System("a rate limit", partial(SublimPart, rules=_LIMITED), (TOO_SOON,)),
    "Contrail": _System("sealing", ContrailPart, (RELAY, READ)),
    "Radiator": _System("aggregation by time", partial(RadiatorPart, threshold=Time(_WAIT_S)), (ALL,)),
    "Radiator of k": _System(
        "aggregation by people", partial(RadiatorPart, threshold=People(PEOPLE)), (UNSEEN,)
    ),
}
_SPENT_ON: Final = {
    ("Last hop",): SEEN_PER_DAY,
    ("SUBLIM",): SEEN_SPACED,
    ("Last hop", "SUBLIM"): SEEN_SPACED_PER_DAY,
}
_RULES_TOLD: Final = dict(
    zip(RULES, ("all writers mean her", "a writer means her", "item by item"), strict=True)
)


def _promises(names: Sequence[str]) -> tuple[str, ...]:
    """Return what systems promise together: only pairs without limits and waiting leave nothing out."""
    promises = [promise for name in names for promise in _SYSTEMS[name].promises]
    limits = tuple(sorted(name for name in names if name in ("Last hop", "SUBLIM")))
    if limits and not any(name.startswith("Radiator") for name in names):
        promises.append(_SPENT_ON[limits])
    if not limits and "Radiator of k" not in names:
        promises.append(ALL)
    return tuple(dict.fromkeys(promises))


def _chained(names: Sequence[str], **last: Any) -> Order:
    """Return an order of systems in a chain, the last with further options."""
    hops = [_SYSTEMS[name].make for name in names]
    if last:
        hops[-1] = partial(hops[-1], **last)
    return Order(partial(Chain, hops=hops), _promises(names), "MUD" in names)


def _pairs() -> dict[str, dict[str, Order]]:
    """Return the orders of each pair of systems, and of each system alone."""
    pairs = {ALONE: {name: _chained([name]) for name in _SYSTEMS}}
    for one, other in combinations(_SYSTEMS, 2):
        if one.split()[0] == other.split()[0]:
            continue
        named = {f"{one}, then {other}": _chained([one, other])}
        if one == "MUD" and other.startswith("Radiator"):
            for rule, label in _RULES_TOLD.items():
                named[f"{other}, then MUD: {label}"] = _chained([other, one], aggregate_rule=rule)
        else:
            named[f"{other}, then {one}"] = _chained([other, one])
        if (one, other) == ("SUBLIM", "Contrail"):
            named = {f"{name}, at an access point": order for name, order in named.items()}
            for at_sender, label in ((True, "SUBLIM at each sender"), (False, "SUBLIM on the phone")):
                ends = partial(AtTheEnds, at_sender=at_sender, rules=_LIMITED)
                named[f"Contrail, {label}"] = Order(ends, _promises([one, other]), hides=False)
            named = {name: order._replace(promises=(*order.promises, RADIO)) for name, order in named.items()}
        pairs[f"{_SYSTEMS[one].does} and {_SYSTEMS[other].does}"] = named
    return pairs


PAIRS: Final[dict[str, dict[str, Order]]] = _pairs()
"""Orders by composition and name; the first composition is each system alone."""


@check_arguments(types=False)
def check_orders(
    compositions: Iterable[str] | None = None,
    scenarios: Annotated[int, Range(1, 10_000)] = 20,
    seed: int = 0,
    *,
    map: Callable[..., Iterable[Any]] = map,  # noqa: A002 - the name of what it stands for
) -> pd.DataFrame:
    """Check which orders of two systems keep their promises.

    Parameters
    ----------
    compositions : iterable of str, optional
        Names of compositions, of :data:`PAIRS`; by default all.
    scenarios, seed : int
        Number of random traces on which each is checked, the same for all orders of a composition.
    map : callable
        As for :func:`mudkit.experiment.compare`.

    Returns
    -------
    pandas.DataFrame
        One row per (composition, order, promise): ``is_kept``, ``scenarios``, ``messages`` (in all
        scenarios; without any, most promises are kept), ``broken`` (number of scenarios) and
        ``counterexample`` (the smallest found, in words). Rows of :data:`SAME_AS_FIRST` compare with the
        first order of the composition.

    Raises
    ------
    ParameterError
        There is no such composition.
    """
    import pandas as pd

    names = list(PAIRS) if compositions is None else list(compositions)
    for name in names:
        one_of("compositions", name, PAIRS, "There is no such composition.")
    rows = chain.from_iterable(map(_check_pair, [(name, scenarios, seed) for name in names]))
    columns = [
        "composition",
        "order",
        "promise",
        "is_kept",
        "scenarios",
        "messages",
        "broken",
        "counterexample",
    ]
    return pd.DataFrame(rows, columns=columns)


@check_arguments(types=False)
def commutativity(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each composition whether its orders commute.

    Parameters
    ----------
    table : pandas.DataFrame
        Result of :func:`check_orders`.

    Returns
    -------
    pandas.DataFrame
        One row per composition of more than one order: ``same_shown`` (all orders show the same),
        ``same_kept`` (they keep the same promises), ``best`` (the orders that keep most, and how many of how
        many promises), ``never`` (promises that no order keeps).
    """
    import pandas as pd

    rows = []
    for name, part in table[table["composition"] != ALONE].groupby("composition", sort=False):
        promises = part[part["promise"] != SAME_AS_FIRST]
        kept = promises.pivot(index="promise", columns="order", values="is_kept")
        counts = kept.sum()
        best = [str(order) for order in part["order"].unique() if counts[order] == counts.max()]
        rows.append(
            (
                name,
                bool(part.loc[part["promise"] == SAME_AS_FIRST, "is_kept"].all()),
                bool(kept.nunique(axis=1).eq(1).all()),
                f"{'; '.join(best)} ({counts.max()} of {len(kept)})",
                "; ".join(map(str, kept.index[~kept.any(axis=1)])),
            )
        )
    return pd.DataFrame(rows, columns=["composition", "same_shown", "same_kept", "best", "never"])


def play_trace(make: Callable[[Testbed], Logged], trace: Trace) -> OrderRun:
    """Run an adapter on a trace."""
    adapters: list[Logged] = []

    def make_and_keep(testbed: Testbed) -> Any:
        adapters.append(make(testbed))
        return adapters[0]

    entry = run(trace.task(), make_and_keep, 0, name="a composition", record_messages=False)
    return OrderRun(trace, entry, adapters[0])


def _check_pair(what: tuple[str, int, int]) -> list[tuple[Any, ...]]:
    """Check the orders of a composition on its traces; return the rows of the result."""
    name, scenarios, seed = what
    play = lru_cache(_MAX_PLAYED)(play_trace)  # the search for a small counterexample tries traces again
    first = next(iter(PAIRS[name].values()))
    shown: list[frozenset[tuple[str, str]]] = []
    rows = []
    for label, order in PAIRS[name].items():
        drawn = list(traces(scenarios, seed, hides=order.hides))
        checks = {promise: PROMISES[promise] for promise in order.promises}
        if name != ALONE and order is not first:
            checks[SAME_AS_FIRST] = partial(_differs, first, play)
        broken: dict[str, list[Trace]] = {promise: [] for promise in checks}
        messages = 0
        for number, trace in enumerate(drawn):
            result = play(order.make, trace)
            messages += len(result.handed)
            if order is first:
                shown.append(result.shown)
            for promise, check in checks.items():
                is_broken = (
                    result.shown != shown[number] if promise == SAME_AS_FIRST else check(result) is not None
                )
                if is_broken:
                    broken[promise].append(trace)
        for promise, by in broken.items():
            example = _smallest(by, partial(play, order.make), checks[promise]) if by else ""
            rows.append((name, label, promise, not by, len(drawn), messages, len(by), example))
    return rows


def _smallest(
    by: Sequence[Trace], play: Callable[[Trace], OrderRun], check: Callable[[OrderRun], str | None]
) -> str:
    """Return in words how the smallest trace breaks a promise, and this trace."""
    trace = smaller(min(by, key=lambda trace: trace.size), lambda trace: check(play(trace)) is not None)
    return f"{check(play(trace))}; {_described(trace)}"


def _differs(first: Order, play: Callable[..., OrderRun], result: OrderRun) -> str | None:
    """Return how another order than the first shows a reader other items, or None."""
    before = play(first.make, result.trace).shown
    for way, count in (("as well", result.shown - before), ("no more", before - result.shown)):
        for phone, name in sorted(count):
            at = _clock(result.items[name].at_s)
            return f"a reader of {result.readers[phone]} is shown the item of {at} {way}"
    return None
