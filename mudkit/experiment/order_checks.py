"""Order checks: which orders of two systems keep the systems' promises, on small random stories."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mudkit.errors import ParameterError
from mudkit.experiment.adapters.contrail import Contrail
from mudkit.experiment.adapters.lasthop import LastHop
from mudkit.experiment.adapters.mud import Mud
from mudkit.experiment.adapters.radiator import Radiator
from mudkit.experiment.adapters.sublim import Sublim
from mudkit.experiment.adapters.system import RULES, MakePart
from mudkit.experiment.chains import AtTheEnds, Chain, Handed, Logged
from mudkit.experiment.runs import Run, run
from mudkit.experiment.tasks import Scenario, Task
from mudkit.experiment.testbed import APP, Adapter, Testbed
from mudkit.sources.parameters import whole_number
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Moments
from mudkit.systems.radiator import People, Time
from mudkit.systems.sublim import Rule
from mudkit.systems.sublim._policy.actions import Every
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ALL",
    "ALONE",
    "HIDDEN",
    "MIDNIGHT_MIN",
    "PAIRS",
    "PEOPLE",
    "PER_DAY",
    "PROMISES",
    "RADIO",
    "READ",
    "RELAY",
    "SAME",
    "SEEN_PER_DAY",
    "SEEN_SPACED",
    "SEEN_SPACED_PER_DAY",
    "SPACING_S",
    "TOO_MANY",
    "TOO_SOON",
    "UNSEEN",
    "Order",
    "Played",
    "Said",
    "Trace",
    "clock",
    "commuting",
    "orders",
    "smaller",
    "tell",
    "traces",
]

MIDNIGHT_MIN: Final = 90
"""Minutes from the start of a trace to midnight."""
_MAX_MINUTES: Final = 180
_AFTER_H: Final = 2.0
_MAX_ITEMS: Final = 12
_AGES: Final = (10, 20, 40)
_FROM: Final = (0, 18, 30)
_START: Final = "2010-03-01T22:30"


class Said(NamedTuple):
    """An item of a story.

    Parameters
    ----------
    at_s : int
        When it is published.
    sender : int
        The number of the feed that says it.
    least : int
        Its writer hides it from who is younger.
    """

    at_s: int
    sender: int
    least: int


@dataclass(frozen=True)
class Trace:
    """Random scenario of an order check: readers, and items.

    Parameters
    ----------
    ages : tuple of int
        The ages of the readers, one phone each.
    said : tuple of Said
        What is said, in the order of time.
    """

    ages: tuple[int, ...]
    said: tuple[Said, ...]

    @property
    def size(self) -> tuple[int, int]:
        """Items and readers: of two stories, the smaller one has fewer."""
        return len(self.said), len(self.ages)

    def task(self) -> Task:
        """Return it as a task: over links without outages, and with time for all that waits to arrive."""
        feeds = max(each.sender for each in self.said) + 1
        scenario = Scenario(
            devices=len(self.ages),
            hours=_MAX_MINUTES / 60 + _AFTER_H,
            items=_Moments(self.said),
            size_bytes=60,
            start=_START,
        )
        return Task(
            "a story",
            "Who is old enough?",
            "me.age >= item.least",
            scenario,
            self._about,
            self._readers,
            feeds,
        )

    def plays(self, make: Callable[[Testbed], Adapter]) -> Run:
        """Run an adapter on it."""
        return run(self.task(), make, 0, name="a composition", messages=False)

    def _about(self, seed: int, sender: str, number: int, loc: Any) -> Mapping[str, Any]:
        feed = int(sender.rsplit("-", 1)[1])
        return {"least": [each.least for each in self.said if each.sender == feed][number - 1]}

    def _readers(self, seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
        return [{"age": age} for age in self.ages]


@dataclass(frozen=True)
class _Moments:
    """The moments of a story, as a workload."""

    said: tuple[Said, ...]

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`mudkit.sources.workloads.Workload.moments`."""
        return Moments(
            np.array([each.sender for each in self.said], dtype=np.int64),
            np.array([each.at_s * US_PER_S for each in self.said], dtype=np.int64),
        )


def traces(count: int, seed: int = 0, *, hides: bool = True) -> Iterator[Trace]:
    """Draw stories: few items and many, anywhere, in crowds and far apart.

    Items are published in different minutes, in the first seconds of each: so what takes a few seconds on its
    way does not change which of two limits it keeps.

    Parameters
    ----------
    count, seed : int
    hides : bool
        Whether writers hide anything; else everybody may see all.
    """
    for number in range(count):
        stream = Stream(seed, f"story {number}")
        # Every other one is large: it takes many items to break some promises, and few in the right places.
        fewest, most = (2, 4) if number % 2 == 0 else (6, _MAX_ITEMS)
        items = int(stream.integers(0, 0, fewest, most + 1))
        readers = int(stream.integers(0, 1, 1, min(3, items) + 1))
        feeds = int(stream.integers(0, 2, 1, 5)) if number % 2 == 0 else 4
        steps = np.arange(items)
        # Some limits are for crowds only, and some waits for what is far apart.
        kind, begin = int(stream.integers(0, 3, 0, 3)), int(stream.integers(0, 4, 5, _MAX_MINUTES // 2))
        if kind == 0:
            minutes = stream.integers(1, steps, 5, _MAX_MINUTES)
        elif kind == 1:
            minutes = begin + stream.integers(1, steps, 0, _MAX_MINUTES // 4)
        else:
            minutes = begin + np.cumsum(stream.integers(1, steps, _MAX_MINUTES // 6, _MAX_MINUTES // 4))
        minutes = np.unique(minutes[minutes < _MAX_MINUTES])
        minutes = minutes[minutes != MIDNIGHT_MIN]
        steps = np.arange(len(minutes))
        senders = stream.integers(2, steps, 0, feeds).tolist()
        froms = np.array(_FROM if hides else (0,))
        least = froms[stream.integers(3, steps, 0, len(froms))]
        seconds = stream.integers(4, steps, 1, 10)
        ages = np.array(_AGES)[stream.integers(5, np.arange(readers), 0, len(_AGES))]
        said = zip((minutes * 60 + seconds).tolist(), senders, least.tolist(), strict=True)
        if len(minutes):
            yield Trace(tuple(ages.tolist()), tuple(Said(*each) for each in said))


def smaller(story: Trace, breaks: Callable[[Trace], bool]) -> Trace:
    """Leave out of a story what it does not need to break a promise, one item or reader at a time.

    Parameters
    ----------
    story : Story
        A story that breaks it.
    breaks : callable
        Says of another one whether it does.
    """
    for part in ("said", "ages"):
        kept = getattr(story, part)
        for each in range(len(kept) - 1, -1, -1):
            now = getattr(story, part)
            fewer = replace(story, **{part: now[:each] + now[each + 1 :]})
            if getattr(fewer, part) and breaks(fewer):
                story = fewer
    return story


PER_DAY: Final = 2
SPACING_S: Final = 570
PEOPLE: Final = 3
"""The limits that are checked: messages a day, seconds between two, people in an aggregate."""
_TOLERANCE_S: Final = 5.0
"""A message may take longer than the one before it."""

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


class Played(NamedTuple):
    """Result of a trace.

    Parameters
    ----------
    story : Story
    entry : Run
    adapter : Logged
    """

    story: Trace
    entry: Run
    adapter: Logged

    @property
    def handed(self) -> Sequence[Handed]:
        """All that applications were handed, in the order of time."""
        return self.adapter.handed

    @property
    def shown(self) -> frozenset[tuple[str, str]]:
        """Phones, and names of the items that they were handed."""
        return frozenset((each.phone, item.name) for each in self.handed for item in each.batch)

    @property
    def readers(self) -> dict[str, int]:
        """Phones, and how old their readers are."""
        return dict(zip(self.entry.testbed.phones, self.story.ages, strict=True))

    @property
    def names(self) -> dict[str, int]:
        """Items by name, and which of the story each is."""
        numbers: Counter[int] = Counter()
        names = {}
        for place, each in enumerate(self.story.said):
            numbers[each.sender] += 1
            names[f"{self.entry.testbed.senders[each.sender]} {numbers[each.sender]}"] = place
        return names


def tell(story: Trace) -> str:
    """Return a trace in words."""
    said = ", ".join(
        f"{clock(each.at_s)} by sender {each.sender + 1}"
        + (f" from {each.least} years on" if each.least else "")
        for each in story.said
    )
    return f"items at {said}; readers of {' and '.join(map(str, story.ages))} years"


def _hidden(played: Played) -> str | None:
    readers = played.readers
    for each in played.handed:
        for item in each.batch:
            if readers[each.phone] < item.about["least"]:
                age, least = readers[each.phone], item.about["least"]
                return f"at {_at(each)} a reader of {age} is shown what is hidden from those under {least}"
    return None


def _all(played: Played) -> str | None:
    count = Counter((each.phone, item.name) for each in played.handed for item in each.batch)
    for phone, age in played.readers.items():
        for name, place in played.names.items():
            said = played.story.said[place]
            if age >= said.least and count[phone, name] != 1:
                often = f"{count[phone, name]} times" if count[phone, name] else "never"
                return f"a reader of {age} gets the item of {clock(said.at_s)} {often}"
    return None


def _too_many(played: Played) -> str | None:
    count = Counter((each.phone, _day(each.t_us / US_PER_S)) for each in played.handed)
    for (_, day), messages in count.items():
        if messages > PER_DAY:
            return f"{messages} messages come {_DAYS[day]} midnight"
    return None


def _too_close(played: Played) -> str | None:
    last: dict[str, Handed] = {}
    for each in played.handed:
        before = last.get(each.phone)
        if before is not None and each.t_us - before.t_us < (SPACING_S - _TOLERANCE_S) * US_PER_S:
            return f"messages come at {_at(before)} and {_at(each)}"
        last[each.phone] = each
    return None


def _unseen(played: Played) -> str | None:
    for each in played.handed:
        people = {item.sender for item in each.batch}
        if len(people) < PEOPLE:
            return f"what comes at {_at(each)} is about {len(people)}"
    return None


def _readers_of(played: Played) -> set[str]:
    lab = played.entry.lab
    assert lab.trace.exposure is not None  # play keeps it
    readers: set[str] = set()
    for item in played.adapter.published:
        readers.update(party for party, _, _ in lab.trace.exposure.find(item.content))
    return readers - set(lab.devices)


def _relay(played: Played) -> str | None:
    readers = sorted(each for each in _readers_of(played) if each.startswith("contrail-"))
    return f"{', '.join(readers)} held the text of an item" if readers else None


def _read(played: Played) -> str | None:
    readers = sorted(_readers_of(played))
    return f"{', '.join(readers)} held the text of an item" if readers else None


def _radio(played: Played) -> str | None:
    rows = played.entry.lab.deliveries()
    rows = rows[rows["delivered"].notna() & (rows["system"] != APP)]
    for phone in played.readers:
        came, shown = (
            int((rows["receiver"] == phone).sum()),
            sum(each.phone == phone for each in played.handed),
        )
        if came > shown:
            return f"{came} messages come to a phone that shows {shown}"
    return None


def _spent(which: str) -> Callable[[Played], str | None]:
    is_daily, is_spaced = _SPENT[which]

    def check(played: Played) -> str | None:
        seen: dict[tuple[str, int], set[str]] = defaultdict(set)
        for each in played.handed:
            seen[each.phone, _day(each.t_us / US_PER_S)] |= {item.name for item in each.batch}
        for phone, age in played.readers.items():
            may = {name for name, place in played.names.items() if age >= played.story.said[place].least}
            last_s = float("-inf")
            allowed: Counter[int] = Counter()
            for said in played.story.said:
                if age >= said.least and (not is_spaced or said.at_s - last_s >= SPACING_S):
                    last_s = said.at_s
                    allowed[_day(said.at_s)] += 1
            for day, count in allowed.items():
                least = min(count, PER_DAY) if is_daily else count
                if (got := len(seen[phone, day] & may)) < least:
                    return f"a reader of {age} gets {got} of the {least} {_DAYS[day]} midnight that she could"
        return None

    return check


PROMISES: Final[dict[str, Callable[[Played], str | None]]] = {
    HIDDEN: _hidden, ALL: _all, TOO_MANY: _too_many, TOO_SOON: _too_close, UNSEEN: _unseen, RELAY: _relay,
    READ: _read, RADIO: _radio, **{each: _spent(each) for each in _SPENT},
}  # fmt: skip
"""By what they say."""

_DAYS: Final = ("before", "after")


def _day(at_s: float) -> int:
    return int(at_s >= MIDNIGHT_MIN * 60)


def _at(handed: Handed) -> str:
    return clock(handed.t_us / US_PER_S)


def clock(at_s: float) -> str:
    """Return a moment of a trace as the time of the day."""
    minutes = (int(at_s) // 60 - MIDNIGHT_MIN) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


ALONE: Final = "one system alone"
SAME: Final = "the same is shown as in the first order"
_WAIT_S: Final = 1800.0
_LIMITED: Final = (Rule(None, Every(float(SPACING_S)), "limited"),)
_COLUMNS: Final = (
    "composition",
    "order",
    "promise",
    "held",
    "scenarios",
    "messages",
    "broken",
    "counterexample",
)


class _System(NamedTuple):
    """A system as it stands in a pair, and what it promises whatever stands beside it."""

    does: str
    make: MakePart
    promises: tuple[str, ...]


class Order(NamedTuple):
    """One order of a pair.

    Parameters
    ----------
    make : callable
        Makes the adapter from its testbed.
    promises : tuple of str
        What it is to keep, of :data:`~mudkit.experiment.PROMISES`.
    hides : bool
        Whether writers hide anything in its stories: where no system has writer predicates, they do not.
    """

    make: Callable[[Testbed], Logged]
    promises: tuple[str, ...]
    hides: bool


_SYSTEMS: Final[dict[str, _System]] = {
    "MUD": _System("writer predicates", Mud, (HIDDEN,)),
    "Last hop": _System("a daily limit", partial(LastHop, per_day=PER_DAY), (TOO_MANY,)),
    "SUBLIM": _System("a rate limit", partial(Sublim, rules=_LIMITED), (TOO_SOON,)),
    "Contrail": _System("sealing", Contrail, (RELAY, READ)),
    "Radiator": _System("aggregation by time", partial(Radiator, until=Time(_WAIT_S)), (ALL,)),
    "Radiator of k": _System("aggregation by people", partial(Radiator, until=People(PEOPLE)), (UNSEEN,)),
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
    """Return what systems promise together.

    Limits are for leaving something out, and waiting for people does; so to leave nothing out is promised
    where none of these is, and by Radiator, whose paper says it of itself.
    """
    promises = [promise for name in names for promise in _SYSTEMS[name].promises]
    limits = tuple(sorted(name for name in names if name in ("Last hop", "SUBLIM")))
    if limits and not any(name.startswith("Radiator") for name in names):
        promises.append(_SPENT_ON[limits])
    if not limits and "Radiator of k" not in names:
        promises.append(ALL)
    return tuple(dict.fromkeys(promises))


def _chained(names: Sequence[str], **last: Any) -> Order:
    hops = [_SYSTEMS[name].make for name in names]
    if last:
        hops[-1] = partial(hops[-1], **last)
    return Order(partial(Chain, hops=hops), _promises(names), "MUD" in names)


def _pairs() -> dict[str, dict[str, Order]]:
    pairs = {ALONE: {name: _chained([name]) for name in _SYSTEMS}}
    for one, other in combinations(_SYSTEMS, 2):
        if one.split()[0] == other.split()[0]:
            continue
        made = {f"{one}, then {other}": _chained([one, other])}
        if one == "MUD" and other.startswith("Radiator"):
            for rule, label in _RULES_TOLD.items():
                made[f"{other}, then MUD: {label}"] = _chained([other, one], of_several=rule)
        else:
            made[f"{other}, then {one}"] = _chained([other, one])
        if (one, other) == ("SUBLIM", "Contrail"):
            made = {f"{name}, at an access point": each for name, each in made.items()}
            for place, label in (("sender", "SUBLIM at each sender"), ("receiver", "SUBLIM on the phone")):
                ends = partial(AtTheEnds, place=place, rules=_LIMITED)
                made[f"Contrail, {label}"] = Order(ends, _promises([one, other]), hides=False)
            made = {name: each._replace(promises=(*each.promises, RADIO)) for name, each in made.items()}
        pairs[f"{_SYSTEMS[one].does} and {_SYSTEMS[other].does}"] = made
    return pairs


PAIRS: Final[dict[str, dict[str, Order]]] = _pairs()
"""By name; the first are the systems alone, each of which is to keep its own promises."""


def orders(
    compositions: Iterable[str] | None = None,
    scenarios: int = 20,
    seed: int = 0,
    *,
    map: Callable[..., Iterable[Any]] = map,  # noqa: A002 - the name of what it stands for
) -> pd.DataFrame:
    """Check which orders of two systems keep their promises.

    Parameters
    ----------
    compositions : iterable of str, optional
        The names of compositions, of :data:`PAIRS`; by default all.
    scenarios : int
        Random stories on which each is checked, the same for all orders of a composition.
    seed : int
    map : callable
        As in :func:`mudkit.experiment.scoreboard`.

    Returns
    -------
    pandas.DataFrame
        One row per (composition, order, promise): ``held``, ``scenarios``, ``messages`` (that came in all of
        them: where none comes, most promises are kept), ``broken`` (number of scenarios) and
        ``counterexample``, the smallest that was found, in words. A row of :data:`SAME` says whether what it
        shows is what the first order of the composition shows.

    Raises
    ------
    ParameterError
        There is no such composition.
    """
    import pandas as pd

    asked = list(PAIRS) if compositions is None else list(compositions)
    whole_number("scenarios", scenarios, 1, 10_000)
    if unknown := [each for each in asked if each not in PAIRS]:
        raise ParameterError(
            "There is no such composition.",
            where="compositions",
            found=repr(unknown[0]),
            expected=", ".join(PAIRS),
        )
    rows = [row for each in map(_checked, [(name, scenarios, seed) for name in asked]) for row in each]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def commuting(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each composition whether its orders commute.

    Parameters
    ----------
    table : pandas.DataFrame
        The table that :func:`orders` gives.

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
        kept = part[part["promise"] != SAME].pivot(index="promise", columns="order", values="held")
        counts = kept.sum()
        best = [str(each) for each in part["order"].unique() if counts[each] == counts.max()]
        rows.append(
            (
                name,
                bool(part.loc[part["promise"] == SAME, "held"].all()),
                bool(kept.nunique(axis=1).eq(1).all()),
                f"{'; '.join(best)} ({counts.max()} of {len(kept)})",
                "; ".join(str(each) for each in kept.index[~kept.any(axis=1)]),
            )
        )
    return pd.DataFrame(rows, columns=["composition", "same_shown", "same_kept", "best", "never"])


def played(story: Trace, make: Callable[[Testbed], Logged]) -> Played:
    """Run an adapter on a trace."""
    kept: list[Logged] = []

    def made(testbed: Testbed) -> Any:
        kept.append(make(testbed))
        return kept[0]

    entry = story.plays(made)
    return Played(story, entry, kept[0])


def _checked(what: tuple[str, int, int]) -> list[tuple[Any, ...]]:
    name, scenarios, seed = what
    first = next(iter(PAIRS[name].values()))
    shown: list[frozenset[tuple[str, str]]] = []
    rows = []
    for called, order in PAIRS[name].items():
        drawn = list(traces(scenarios, seed, hides=order.hides))
        checks: dict[str, Callable[[Played], str | None]] = {each: PROMISES[each] for each in order.promises}
        if name != ALONE and order is not first:
            checks[SAME] = partial(_differs, first)
        broken: dict[str, list[Trace]] = {each: [] for each in checks}
        messages = 0
        for number, story in enumerate(drawn):
            came = played(story, order.make)
            messages += len(came.handed)
            if order is first:
                shown.append(came.shown)
            for promise, check in checks.items():
                is_broken = came.shown != shown[number] if promise == SAME else check(came) is not None
                if is_broken:
                    broken[promise].append(story)
        for promise, by in broken.items():
            example = _smallest(by, order, checks[promise]) if by else ""
            rows.append((name, called, promise, not by, len(drawn), messages, len(by), example))
    return rows


def _smallest(by: Sequence[Trace], order: Order, check: Callable[[Played], str | None]) -> str:
    story = smaller(
        min(by, key=lambda each: each.size), lambda each: check(played(each, order.make)) is not None
    )
    return f"{check(played(story, order.make))}; {tell(story)}"


def _differs(first: Order, came: Played) -> str | None:
    before = played(came.story, first.make).shown
    names, readers = came.names, came.readers
    for way, count in (("as well", came.shown - before), ("no more", before - came.shown)):
        for phone, name in sorted(count):
            at = clock(came.story.said[names[name]].at_s)
            return f"a reader of {readers[phone]} is shown the item of {at} {way}"
    return None
