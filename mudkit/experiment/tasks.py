"""Tasks: which items are useful to whom."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np

from mudkit.checks import check_arguments, number, split_rates, whole_number
from mudkit.errors import ParameterError
from mudkit.predicates import Language, Predicate
from mudkit.scenario import Scenario, require_mobility
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Poisson, WakingReads

_ANY: Final = Language()
_BOTH: Final = Language(("item", "me"))
_NAME: Final = re.compile(r"\b(item|me)\.([a-z_][a-z0-9_]*)")


class Interest:
    """Predicate of the readers to whom an item is useful.

    Parameters
    ----------
    text : str
        A predicate over ``item.…`` and ``me.…``.

    Raises
    ------
    PredicateError
        The text is not a predicate.
    ParameterError
        The predicate names nothing of the item.

    Examples
    --------
    >>> near = Interest("within_km(item.loc, me.loc, 3)")
    >>> near.over_items({"loc": (30.0, -97.0)})({"loc": (30.01, -97.0)})
    True
    >>> near.by_writer({"loc": (30.0, -97.0)})({}, receiver={"loc": (31.0, -97.0)})
    False
    """

    @check_arguments(types=False)
    def __init__(self, text: str) -> None:
        self.text = text
        self.of_item = frozenset(name for scope, name in _NAME.findall(text) if scope == "item")
        self.of_me = frozenset(name for scope, name in _NAME.findall(text) if scope == "me")
        if not self.of_item:
            raise ParameterError(
                "An interest names no attribute of items.",
                where="predicate",
                found=repr(text),
                expected="a predicate such as item.topic = 'arts'",
            )
        self._whole = Predicate.parse(text, language=_BOTH)
        self._by_writer = Predicate(self._written("sender.", "receiver."))

    @property
    def uses_place(self) -> bool:
        """True if it depends on the place of its reader."""
        return "loc" in self.of_me

    @check_arguments(types=False)
    def over_items(self, me: Mapping[str, Any], language: Language = _ANY) -> Predicate:
        """Return a reader's predicate over items, in a ``language``, with the profile ``me`` as constants."""
        given = {name: me.get(name) for name in self.of_me}
        return Predicate.parse(self._written("", ":"), given, language=language)

    @check_arguments(types=False)
    def by_writer(self, item: Mapping[str, Any]) -> Predicate:
        """Return the writer's predicate over readers, with the item's metadata as constants."""
        return self._by_writer.bind(sender={name: item.get(name) for name in self.of_item})

    @check_arguments(types=False)
    def as_text(self, me: Mapping[str, Any]) -> str:
        """Return the text of the reader's predicate over items, with her profile (``me``) as literals."""

        def written(match: re.Match[str]) -> str:
            return match[2] if match[1] == "item" else _literal(me.get(match[2]))

        return _NAME.sub(written, self.text)

    def over_state(self) -> str:
        """Return the text of a SUBLIM rule over the ``message`` and the ``state`` of its subscriber."""
        return self._written("message.", "state.")

    def holds(self, item: Mapping[str, Any], me: Mapping[str, Any]) -> bool:
        """Return whether an item and a reader satisfy it."""
        return self._whole(item, me=me) is True

    def _written(self, item: str, me: str) -> str:
        """Return the text with prefixes for the names of items and of readers."""
        return _replaced(self.text, item, me)


@lru_cache(maxsize=1024)
def _replaced(text: str, item: str, me: str) -> str:
    """Return a text with prefixes for the names of items and of readers."""
    return _NAME.sub(lambda match: (item if match[1] == "item" else me) + match[2], text)


def _literal(value: Any) -> str:
    """Return a value as a literal of the language of predicates."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, tuple | list):
        lat, lon = value
        return f"point({lat!r}, {lon!r})"
    return repr(value)


SETTLE_S: Final = 600.0
"""Settling time after the scenario's hours, in which nothing is published and waiting items are sent."""
_RECORDED: Final = frozenset({"devices", "items", "reads", "mobility", "size_bytes", "expires_s"})
"""Parameters of a scenario that a recording fixes."""


class Item(NamedTuple):
    """Published item.

    Parameters
    ----------
    name, sender : str
        The name is unique in the run; the sender is a phone, or a feed.
    metadata : mapping of str to object
        Metadata, which wants are about; always with ``who`` (the sender) and ``rank``.
    size_bytes : int
        Size of its content.
    expires_s : float or None
        Time for which it is of use; None: for ever.
    """

    name: str
    sender: str
    metadata: Mapping[str, Any]
    size_bytes: int
    expires_s: float | None

    @property
    def content(self) -> str:
        """Content: letters of six random bits each, which no compression makes smaller."""
        drawn = hashlib.shake_256(self.name.encode()).digest(-(-self.size_bytes * 3 // 4))
        return base64.b64encode(drawn).decode()[: self.size_bytes]

    @property
    def text(self) -> str:
        """Name, metadata and content as JSON, for systems that send texts; see :func:`called`."""
        return msgspec.json.encode({"called": self.name, **self.metadata, "text": self.content}).decode()


def called(text: str) -> str:
    """Return the name of the item that :attr:`Item.text` is of."""
    return str(msgspec.json.decode(text)["called"])


class Recording(Protocol):
    """Recorded items and reads of a task; senders and phones by their place in the fleet."""

    def limits(self, sender: int, number: int) -> tuple[int, float | None]:
        """Return the size in bytes of a sender's item, and the time for which it is of use."""

    def wanted_by(self, sender: int, number: int) -> Collection[int]:
        """Return the phones of which a read asks for a sender's item."""

    def requested(self, phone: int, now_us: int) -> Collection[tuple[int, int]]:
        """Return sender and number of the items for which the last read of a phone until now asks."""


MetadataOf: TypeAlias = Callable[[int, str, int, "tuple[float, float] | None"], Mapping[str, Any]]
"""Function of the seed, sender, number and sender's place; returns the metadata of an item."""
ProfilesOf: TypeAlias = Callable[[int, Sequence[str], Sequence[str]], Sequence[Mapping[str, Any]]]
"""Function of the seed, phones and senders; returns the profile of each phone's user."""


@check_arguments(types=False)
@dataclass(frozen=True)
class Task:
    """Items that are useful to the users of a fleet, and when the users look.

    Parameters
    ----------
    name, question, predicate : str
        Predicate of the users to whom an item is useful (:class:`Interest`), evaluated at publication.
    scenario : Scenario
        The phones, and when items are published.
    metadata, profiles : callable
        Functions that return the metadata of an item (:data:`MetadataOf`), and the profiles of all users
        (:data:`ProfilesOf`).
    feeds : int
        Senders that are no phones: always connected, without a battery. 0: the phones send.
    is_shown : bool
        Whether an item is seen on arrival; else when the user looks (``scenario.reads``).
    max_shown : int or None
        Items that a user sees at one look, highest ranks first; None: all.
    renew_s, renew_km : float
        Shortest time and distance between two reports of a phone whose want depends on its place.
    recording : Recording, optional
        Recorded items and reads, see :func:`recorded_task`. An item is then wanted by the phones whose reads
        ask for it; ``predicate`` is what the systems know of that when it is published.
    """

    name: str
    question: str
    predicate: str
    scenario: Scenario
    metadata: MetadataOf
    profiles: ProfilesOf
    feeds: int = 0
    is_shown: bool = True
    max_shown: int | None = None
    renew_s: float = 300.0
    renew_km: float = 0.3
    recording: Recording | None = None
    interest: Interest = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "interest", Interest(self.predicate))
        whole_number("feeds", self.feeds, 0, 10_000)
        number("renew_s", self.renew_s, 1.0, 1e6)
        number("renew_km", self.renew_km, 0.0, 1e4)
        if self.max_shown is not None:
            whole_number("max_shown", self.max_shown, 1, 1 << 31)
        if self.interest.uses_place:
            require_mobility(self.scenario, "scenario", "A want names a place, and these phones have none.")

    def over(self, **changes: Any) -> Task:
        """Return the task with ``changes`` of its scenario, for instance ``devices=200, hours=24``.

        Raises
        ------
        ParameterError
            A scenario has no such parameter, or cannot have this value.
        """
        split_rates(changes, Scenario)
        if self.recording is not None and set(changes) & _RECORDED:
            raise ParameterError(
                "The items, moves and reads of a recorded task stand in its logs.",
                where=", ".join(sorted(set(changes) & _RECORDED)),
                found=", ".join(f"{name}={changes[name]!r}" for name in sorted(set(changes) & _RECORDED)),
                expected="other parameters, such as hours, link or outage",
                remedy="choose other devices when the task is made: recorded_task(…, devices=…)",
            )
        return replace(self, scenario=replace(self.scenario, **changes))

    def describe(self) -> dict[str, str]:
        """Return all parameters of a run, in words."""
        seen = "as it comes" if self.is_shown else f"when the user looks, {self.max_shown or 'all'} in one go"
        return {
            "task": self.name,
            "predicate": self.predicate,
            "feeds": str(self.feeds),
            "seen": seen,
            "settles": f"{SETTLE_S / 60:g} minutes after its hours",
            **self.scenario.describe(),
        }


_TOPICS: Final = ("arts", "city", "science", "sports", "weather", "world")
_ALARM_BPM: Final = 50
_CITY: Final = ManhattanGrid(edge_km=10.0, block_m=200.0)


def listed(names: Sequence[str]) -> str:
    """Return a text in which ``contains(…, name)`` finds each of some names."""
    return "|".join(names)


def _no_tastes(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Return empty profiles."""
    return [{} for _ in phones]


def _friends(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Draw about six friends each: those beside one in a ring, and one from anywhere, as in small worlds."""
    count = len(phones)
    drawn = Stream(seed, "friends").integers(np.arange(count), 0, 0, max(count, 1)).tolist()
    circles: list[set[int]] = [
        {(row + step) % count for step in (1, -1, 2, -2)} | {far} for row, far in enumerate(drawn)
    ]
    for row, friends in enumerate(circles):
        friends.discard(row)
    mutual: list[set[int]] = [set(friends) for friends in circles]
    for row, friends in enumerate(circles):
        for other in friends:
            mutual[other].add(row)
    return [{"friends": listed([phones[other] for other in sorted(friends)])} for friends in mutual]


def _place(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    """Return the sender's place as metadata."""
    return {"loc": loc}


def _tags(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Draw two kinds of photographs of her friends for each user."""
    first = Stream(seed, "tags").integers(np.arange(len(phones)), 0, 0, len(_TOPICS)).tolist()
    kinds = [listed([_TOPICS[topic], _TOPICS[(topic + 1) % len(_TOPICS)]]) for topic in first]
    return [{**mine, "tags": kind} for mine, kind in zip(_friends(seed, phones, senders), kinds, strict=True)]


def _photo(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    """Draw the topic of a photo."""
    drawn = int(Stream(seed, f"photos of {sender}").integers(0, number, 0, len(_TOPICS)))
    return {"tag": _TOPICS[drawn]}


def _readers(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Draw two subjects, and a lowest rank, for each user."""
    rows = np.arange(len(phones))
    first = Stream(seed, "topics").integers(rows, 0, 0, len(_TOPICS)).tolist()
    least = Stream(seed, "thresholds").uniform(rows, 0, 0.0, 3.0).round(1).tolist()
    return [
        {"subjects": listed([_TOPICS[topic], _TOPICS[(topic + 2) % len(_TOPICS)]]), "least": rank}
        for topic, rank in zip(first, least, strict=True)
    ]


def _article(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    """Draw the subject and the rank of an article."""
    topic = int(Stream(seed, f"articles of {sender}").integers(0, number, 0, len(_TOPICS)))
    rank = float(Stream(seed, f"ranks of {sender}").uniform(0, number, 0.0, 5.0))
    return {"subject": _TOPICS[topic], "rank": round(rank, 2)}


def _doctors(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Assign the patients to the doctors."""
    return [{"patients": listed(senders[row :: len(phones)])} for row in range(len(phones))]


def _pulse(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    """Draw a pulse: of a hundred messages one is an alarm."""
    is_low = bool(Stream(seed, f"alarms of {sender}").chance(0, number, 0.01))
    low, high = (35, _ALARM_BPM) if is_low else (55, 100)
    pulse = int(Stream(seed, f"pulse of {sender}").integers(0, number, low, high))
    return {"pulse": pulse, "rank": float(100 - pulse)}


TRAFFIC: Final = Task(
    "traffic alerts",
    "Who drives within three kilometres of a jam is to be told of it at once.",
    "within_km(item.loc, me.loc, 3)",
    Scenario(
        devices=40, hours=2.0, link="umts_3g", outage=0.1, mobility=_CITY, items=Poisson(per_day=24),
        size_bytes=300, expires_s=1800.0,
    ),
    _place, _no_tastes,
)  # fmt: skip
"""Traffic alerts: 40 phones in a city for two hours, told of jams within 3 km as they come."""
FRIENDS_NEARBY: Final = Task(
    "friends nearby",
    "Friends who come within two kilometres of each other learn of it.",
    "contains(me.friends, item.who) AND within_km(item.loc, me.loc, 2)",
    Scenario(
        devices=40, hours=2.0, link="umts_3g", outage=0.1, mobility=_CITY, items=Poisson(per_day=96),
        size_bytes=100, expires_s=600.0,
    ),
    _place, _friends,
)  # fmt: skip
"""Friends nearby: 40 phones in a city for two hours, told of friends within 2 km as they come."""
WARD: Final = Task(
    "ward telemetry",
    "Doctors see the telemetry of their own patients, and every alarm.",
    f"contains(me.patients, item.who) OR item.pulse < {_ALARM_BPM}",
    Scenario(
        devices=6, hours=2.0, link="wifi", outage=0.1, items=Poisson(per_day=1440), size_bytes=2_000,
        expires_s=120.0,
    ),
    _pulse, _doctors, feeds=24,
)  # fmt: skip
"""Ward telemetry: six doctors for two hours, 24 patients' monitors, a reading a minute of each."""
NEWS: Final = Task(
    "news with ranks",
    "Readers look in a few times a day, and read the best eight articles on their subjects.",
    "contains(me.subjects, item.subject) AND item.rank >= me.least",
    Scenario(
        devices=40, hours=24.0, link="umts_3g", outage=0.2, items=Poisson(per_day=200), size_bytes=4_000,
        expires_s=43_200.0, reads=WakingReads(per_day=4),
    ),
    _article, _readers, feeds=1, is_shown=False, max_shown=8,
)  # fmt: skip
"""News with ranks: 40 readers for a day, 200 articles from one feed, the best eight at each of some looks."""
PHOTOS: Final = Task(
    "photo sharing",
    "Friends get the photographs of the kinds that they like.",
    "contains(me.friends, item.who) AND contains(me.tags, item.tag)",
    Scenario(
        devices=40, hours=12.0, link="lte", outage=0.1, items=Poisson(per_day=4), size_bytes=50_000,
        reads=WakingReads(per_day=8),
    ),
    _photo, _tags, is_shown=False,
)  # fmt: skip
"""Photo sharing: 40 friends for half a day, photographs of the kinds that each likes."""

TASKS: Final[dict[str, Task]] = {task.name: task for task in (TRAFFIC, FRIENDS_NEARBY, WARD, NEWS, PHOTOS)}
"""All five, by name."""
