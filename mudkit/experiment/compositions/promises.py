"""What systems promise, checked on what came of a story: a check says in words what broke it, if anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mudkit.experiment.compositions._traces import MIDNIGHT_MIN, Trace
from mudkit.experiment.compositions.chain import Handed, Logged
from mudkit.experiment.scoreboard import Entry
from mudkit.experiment.tasks import APP
from mudkit.units import US_PER_S

__all__ = [
    "ALL", "HIDDEN", "PEOPLE", "PER_DAY", "PROMISES", "RADIO", "READ", "RELAY", "SEEN_PER_DAY",
    "SEEN_SPACED", "SEEN_SPACED_PER_DAY", "SPACING_S", "TOO_MANY", "TOO_SOON", "UNSEEN", "Played", "clock",
    "tell",
]  # fmt: skip

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
    """What came of a story.

    Parameters
    ----------
    story : Story
    entry : Entry
    adapter : Logged
    """

    story: Trace
    entry: Entry
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
    """Tell a story in words."""
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


def _too_soon(played: Played) -> str | None:
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
    assert lab.trace.held is not None  # play keeps it
    readers: set[str] = set()
    for item in played.adapter.published:
        readers.update(party for party, _, _ in lab.trace.held.find(item.content))
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
    HIDDEN: _hidden, ALL: _all, TOO_MANY: _too_many, TOO_SOON: _too_soon, UNSEEN: _unseen, RELAY: _relay,
    READ: _read, RADIO: _radio, **{each: _spent(each) for each in _SPENT},
}  # fmt: skip
"""By what they say."""

_DAYS: Final = ("before", "after")


def _day(at_s: float) -> int:
    return int(at_s >= MIDNIGHT_MIN * 60)


def _at(handed: Handed) -> str:
    return clock(handed.t_us / US_PER_S)


def clock(at_s: float) -> str:
    """Give a moment of a story as the time of the day."""
    minutes = (int(at_s) // 60 - MIDNIGHT_MIN) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
