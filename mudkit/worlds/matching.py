"""Matching records with subscriptions: a random load, and the time per record as the load grows."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import OneOf, Range, check_arguments, whole_number
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.units import KM_PER_DEGREE
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "agreement": Label("same readers found", "% of records", 100.0),
        "scanned": Label("looked at"),
        "us_per_record": Label("time for each record", "µs"),
    }
)

MATCHING_METHODS: Final = ("one by one", "index, a record at a time", "index, all records at once")
"""Methods that :func:`matching_times` compares."""
PAPER_CURVE: Final = "the paper, one by one"
"""The method in the rows of :func:`matching_times` that the paper states."""


Subscription: TypeAlias = tuple[str, Predicate, dict[str, Any], dict[str, Any]]
"""Name, read predicate, and the reader's attributes (``receiver``) and verified claims (``auth``)."""

_BOX: Final = "lat BETWEEN :south AND :north AND lon BETWEEN :west AND :east AND price <= :most"

READ_PREDICATES: Final[dict[str, str]] = {
    "box": f"topic = :topic AND {_BOX}",
    "ranges": _BOX,
    "wide": f"topic = :topic AND {_BOX}",
    "skewed": f"topic = :topic AND {_BOX}",
    "near": "topic = :topic AND within_km(loc, receiver.loc, :km)",
}
"""The read predicate of each shape.

``box``: topics and places spread evenly. ``ranges``: no topic, so nothing to look up by equality. ``wide``:
boxes over most of the area, so that thousands match. ``skewed``: topics by Zipf's law, places in 20 clusters.
``near``: a circle around the reader, which moves with it.
"""

WRITER_PREDICATE: Final = "receiver.age >= :age AND within_km(receiver.loc, sender.loc, :km)"
"""The writer predicate, bound for each record to the place of its writer."""

_CHUNK: Final = 10_000
_MATCHES: Final = 5.0
_CLUSTERS: Final = 20
_CLUSTER_DEGREES: Final = 0.03
_WIDE: Final = 0.45
_WRITER_KM: Final = 100.0
_MIN_AGE: Final = 21
_MESSAGE_S, _EVALUATION_S = 1 / 5000, 1 / 70_000
_RUNS: Final = 3
_EVALUATIONS: Final = 100_000
_EXPLAINED: Final = 100

Shape: TypeAlias = Literal["box", "ranges", "wide", "skewed", "near"]
"""Form of the subscriptions: a key of :data:`READ_PREDICATES`."""


@check_arguments(types=False)
@dataclass(frozen=True)
class MatchingLoad:
    """Random subscriptions in a square of one degree at the equator, and records that each match about five.

    Parameters
    ----------
    subscriptions, topics, seed : int
        Number of subscriptions, at least 1, and of the topics over which they are spread.
    shape : {"box", "ranges", "wide", "skewed", "near"}
        Form of the subscriptions, see :data:`READ_PREDICATES`.
    """

    subscriptions: Annotated[int, Range(1, 1 << 31)]
    topics: Annotated[int, Range(1, 1 << 31)] = 1000
    seed: Annotated[int, Range(0, 1 << 31)] = 1
    shape: Annotated[Shape, OneOf(summary="The shape of the subscriptions is unknown.")] = "box"

    @property
    def half_degrees(self) -> float:
        """Half a box's side, such that a record reaches about five; half of all prices match."""
        if self.shape == "wide":
            return _WIDE
        rivals = self.subscriptions / (1 if self.shape == "ranges" else self.topics)
        # A centre and a place, both uniform, are less than h apart with probability 2h - h².
        return 1 - math.sqrt(1 - min(math.sqrt(2 * _MATCHES / rivals), 1.0))

    @property
    def km(self) -> float:
        """The radius of ``near``, such that a record reaches about five."""
        rivals = self.subscriptions / self.topics
        return math.sqrt(_MATCHES / rivals / math.pi) * KM_PER_DEGREE

    def draw(self) -> Iterator[Subscription]:
        """Draw the subscriptions one by one."""
        rng = np.random.default_rng([self.seed, 1])
        text, half, km = READ_PREDICATES[self.shape], self.half_degrees, self.km
        for start in range(0, self.subscriptions, _CHUNK):
            many = min(_CHUNK, self.subscriptions - start)
            topics, places = self._topics(rng, many).tolist(), self._places(rng, many).tolist()
            most, ages = rng.random(many).tolist(), rng.integers(18, 78, many).tolist()
            for i in range(many):
                lat, lon = places[i]
                if self.shape == "near":
                    predicate = Predicate(text, topic=f"topic-{topics[i]}", km=km)
                else:
                    topic = {} if self.shape == "ranges" else {"topic": f"topic-{topics[i]}"}
                    predicate = Predicate(
                        text,
                        south=lat - half,
                        north=lat + half,
                        west=lon - half,
                        east=lon + half,
                        most=most[i],
                        **topic,
                    )
                reader = {"age": ages[i], "loc": (lat, lon)}
                yield f"sub-{start + i}", predicate, reader, {"user": f"user-{start + i}"}

    def index(self) -> SubscriptionIndex:
        """Return an index of all subscriptions."""
        return _index_of(self.draw())

    def records(self, count: Annotated[int, Range(0, 1 << 31)], seed: int = 1) -> list[dict[str, Any]]:
        """Draw ``count`` records with a topic, a place and a price."""
        rng = np.random.default_rng([self.seed, 2, seed])
        topics, places = self._topics(rng, count).tolist(), self._places(rng, count).tolist()
        prices = rng.random(count).tolist()
        return [
            {"topic": f"topic-{topic}", "lat": lat, "lon": lon, "loc": (lat, lon), "price": price}
            for topic, (lat, lon), price in zip(topics, places, prices, strict=True)
        ]

    def writers(self, records: list[dict[str, Any]]) -> list[Predicate]:
        """Return a writer predicate for each record: readers aged 21 or more within 100 km of its place."""
        writer = Predicate(WRITER_PREDICATE, age=_MIN_AGE, km=_WRITER_KM)
        return [writer.bind(sender={"loc": record["loc"]}) for record in records]

    def _topics(self, rng: np.random.Generator, many: int) -> NDArray[np.int64]:
        """Draw topics: uniformly, or in the shape ``skewed`` the n-th in proportion to 1/n."""
        if self.shape != "skewed":
            return rng.integers(0, self.topics, many)
        share = 1 / np.arange(1, self.topics + 1)
        return np.asarray(rng.choice(self.topics, many, p=share / share.sum()), dtype=np.int64)

    def _places(self, rng: np.random.Generator, many: int) -> NDArray[np.float64]:
        """Draw places in the unit square: uniformly, or in the shape ``skewed`` around a few centres."""
        if self.shape != "skewed":
            return rng.random((many, 2))
        centres = np.random.default_rng([self.seed, 3]).random((_CLUSTERS, 2))
        around = centres[rng.integers(0, _CLUSTERS, many)]
        return np.clip(around + rng.normal(0, _CLUSTER_DEGREES, (many, 2)), 0.0, 1.0)


def _index_of(subscriptions: Iterable[Subscription]) -> SubscriptionIndex:
    """Return an index that contains these subscriptions."""
    index = SubscriptionIndex()
    for name, predicate, receiver, auth in subscriptions:
        index.add(name, predicate, receiver=receiver, auth=auth)
    return index


def paper_messages_per_s(subscriptions: int) -> float:
    """Return the paper's curve, fitted to the text of section 7.4 of Mobius (MobiSys 2012)."""
    return 1 / (_MESSAGE_S + (subscriptions - 1) * _EVALUATION_S)


def match_each(
    subscriptions: Sequence[Subscription], record: dict[str, Any], writer: Predicate | None = None
) -> list[str]:
    """Return the names of the subscriptions that a record matches, by evaluating every predicate."""
    return [
        name
        for name, predicate, receiver, auth in subscriptions
        if predicate(record, receiver=receiver, auth=auth) is True
        and (writer is None or writer({}, receiver=receiver, auth=auth) is True)
    ]


@check_arguments(types=False)
def matching_times(
    sizes: Sequence[int], *, topics: int = 1000, records: int = 500, seed: int = 1, shape: Shape = "box"
) -> pd.DataFrame:
    """Measure the time to match a record with more and more subscriptions, by each method.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of subscriptions.
    topics, seed, shape
        As for :class:`MatchingLoad`.
    records : int
        Number of records to match. One by one, only as many records are matched as take 100,000 evaluations,
        at least one.

    Returns
    -------
    DataFrame
        ``subscriptions``; ``method``, of :data:`MATCHING_METHODS`; ``us_per_record``, median of three runs;
        ``scanned``, subscriptions evaluated per record, mean over some records; ``matched``, subscriptions
        matched per record, mean; ``records``; ``agreement``, share of the records evaluated one by one for
        which this method finds the same. Also :data:`PAPER_CURVE`, with the first three columns only.
    """
    import pandas as pd

    for name, value in (*(("sizes", size) for size in sizes), ("topics", topics), ("records", records)):
        whole_number(name, value, 1, 1 << 31)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        load = MatchingLoad(size, topics, seed, shape)
        rows += _methods(load, records)
        rows.append(
            {"subscriptions": size, "method": PAPER_CURVE, "us_per_record": 1e6 / paper_messages_per_s(size)}
        )
    return pd.DataFrame(rows)


def _methods(load: MatchingLoad, records: int) -> list[dict[str, Any]]:
    """Time each method on the same load; return a row each, with the share of records it matches alike."""
    whole, batch = list(load.draw()), load.records(records)
    index = _index_of(whole)
    writers = load.writers(batch)
    pairs = list(zip(batch, writers, strict=True))
    few = pairs[: max(1, _EVALUATIONS // len(whole))]
    scanned = statistics.fmean(index.explain(record)["scanned"].sum() for record in batch[:_EXPLAINED])
    calls = (
        (len(whole), len(few), lambda: [match_each(whole, *pair) for pair in few]),
        (scanned, records, lambda: [index.match(*pair) for pair in pairs]),
        (scanned, records, lambda: index.match_many(batch, writers)),
    )
    rows: list[dict[str, Any]] = []
    expected: list[list[Any]] = []
    for method, (evaluated, done, call) in zip(MATCHING_METHODS, calls, strict=True):
        us, matches = _time(call, done)
        expected = expected or matches
        rows.append(
            {
                "subscriptions": len(whole),
                "method": method,
                "us_per_record": us,
                "scanned": evaluated,
                "matched": statistics.fmean(map(len, matches)),
                "records": done,
                "agreement": statistics.fmean(a == b for a, b in zip(expected, matches, strict=False)),
            }
        )
    return rows


def _time(call: Callable[[], list[list[Any]]], records: int) -> tuple[float, list[list[Any]]]:
    """Return the median time of a call in µs a record, and what the call returns."""
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        matches = call()
        times.append((time.perf_counter() - started) / records * 1e6)
    return statistics.median(times), matches
