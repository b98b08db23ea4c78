"""Five tasks that every system can be given (one for each kind of use that the papers have).

What phones say of themselves, and what items are about, is drawn from the run's seed. Lists are texts with
bars, ``arts|sports``, for the one predicate language has no lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from mudkit.experiment.scenario import Scenario
from mudkit.experiment.tasks.task import Task
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Poisson, WakingReads

__all__ = ["FRIENDS_NEARBY", "NEWS", "PHOTOS", "TASKS", "TRAFFIC", "WARD", "listed"]

_TOPICS: Final = ("arts", "city", "science", "sports", "weather", "world")
_ALARM_BPM: Final = 50
_CITY: Final = ManhattanGrid(edge_km=10.0, block_m=200.0)


def listed(names: Sequence[str]) -> str:
    """Write names as a text that ``contains(…, name)`` finds them in: none is a part of another one."""
    return "|".join(names)


def _no_tastes(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
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
    return {"loc": loc}


def _tags(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Let each want two kinds of photographs of her friends."""
    first = Stream(seed, "tags").integers(np.arange(len(phones)), 0, 0, len(_TOPICS)).tolist()
    kinds = [listed([_TOPICS[each], _TOPICS[(each + 1) % len(_TOPICS)]]) for each in first]
    return [{**mine, "tags": kind} for mine, kind in zip(_friends(seed, phones, senders), kinds, strict=True)]


def _photo(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    drawn = int(Stream(seed, f"photos of {sender}").integers(0, number, 0, len(_TOPICS)))
    return {"tag": _TOPICS[drawn]}


def _readers(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Let each be interested in two subjects, from a rank on."""
    rows = np.arange(len(phones))
    first = Stream(seed, "topics").integers(rows, 0, 0, len(_TOPICS)).tolist()
    least = Stream(seed, "thresholds").uniform(rows, 0, 0.0, 3.0).round(1).tolist()
    return [
        {"subjects": listed([_TOPICS[topic], _TOPICS[(topic + 2) % len(_TOPICS)]]), "least": rank}
        for topic, rank in zip(first, least, strict=True)
    ]


def _article(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    topic = int(Stream(seed, f"articles of {sender}").integers(0, number, 0, len(_TOPICS)))
    rank = float(Stream(seed, f"ranks of {sender}").uniform(0, number, 0.0, 5.0))
    return {"subject": _TOPICS[topic], "rank": round(rank, 2)}


def _doctors(seed: int, phones: Sequence[str], senders: Sequence[str]) -> list[dict[str, Any]]:
    """Share the patients out."""
    return [{"patients": listed(senders[row :: len(phones)])} for row in range(len(phones))]


def _pulse(seed: int, sender: str, number: int, loc: tuple[float, float] | None) -> Mapping[str, Any]:
    """Draw a pulse: of a hundred messages one is an alarm."""
    is_low = bool(Stream(seed, f"alarms of {sender}").chance(0, number, 0.01))
    low, high = (35, _ALARM_BPM) if is_low else (55, 100)
    pulse = int(Stream(seed, f"pulse of {sender}").integers(0, number, low, high))
    return {"pulse": pulse, "rank": float(100 - pulse)}


TRAFFIC: Final = Task(
    "traffic alerts",
    "Who drives within three kilometres of a jam is told of it at once.",
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
    _article, _readers, feeds=1, is_shown=False, most=8,
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
