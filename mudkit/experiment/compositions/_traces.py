"""Small random scenarios on which promises are checked, and how one is made smaller that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from mudkit.experiment.scenario import Scenario
from mudkit.experiment.scoreboard import Entry, play
from mudkit.experiment.tasks import Adapter, Task, Testbed
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Moments
from mudkit.units import US_PER_S

__all__ = ["MIDNIGHT_MIN", "Said", "Trace", "smaller", "traces"]

MIDNIGHT_MIN: Final = 90
"""A story begins so many minutes before it."""
_LONGEST_MIN: Final = 180
_AFTER_H: Final = 2.0
_MOST_SAID: Final = 12
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
    """Who reads, and what is said.

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
        """Give it as a task: over links without outages, and with time for all that waits to come."""
        feeds = max(each.sender for each in self.said) + 1
        scenario = Scenario(
            devices=len(self.ages),
            hours=_LONGEST_MIN / 60 + _AFTER_H,
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

    def plays(self, make: Callable[[Testbed], Adapter]) -> Entry:
        """Let an adapter do it."""
        return play(self.task(), make, 0, name="a composition", messages=False)

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
        """As :meth:`mudkit.sources.workloads.Workload.moments`."""
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
        fewest, most = (2, 4) if number % 2 == 0 else (6, _MOST_SAID)
        items = int(stream.integers(0, 0, fewest, most + 1))
        readers = int(stream.integers(0, 1, 1, min(3, items) + 1))
        feeds = int(stream.integers(0, 2, 1, 5)) if number % 2 == 0 else 4
        steps = np.arange(items)
        # Some limits are for crowds only, and some waits for what is far apart.
        kind, begin = int(stream.integers(0, 3, 0, 3)), int(stream.integers(0, 4, 5, _LONGEST_MIN // 2))
        if kind == 0:
            minutes = stream.integers(1, steps, 5, _LONGEST_MIN)
        elif kind == 1:
            minutes = begin + stream.integers(1, steps, 0, _LONGEST_MIN // 4)
        else:
            minutes = begin + np.cumsum(stream.integers(1, steps, _LONGEST_MIN // 6, _LONGEST_MIN // 4))
        minutes = np.unique(minutes[minutes < _LONGEST_MIN])
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
