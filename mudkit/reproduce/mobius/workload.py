"""Subscriptions and records that are drawn: the load on a server that matches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.units import KM_PER_DEGREE

__all__ = ["TEXTS", "WRITER", "Subscription", "Workload"]

Subscription: TypeAlias = tuple[str, Predicate, dict[str, Any], dict[str, Any]]
"""Its name, its read predicate, and what its reader says (``receiver``) and proves (``auth``)."""

_BOX: Final = "lat BETWEEN :south AND :north AND lon BETWEEN :west AND :east AND price <= :most"

TEXTS: Final = {
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

WRITER: Final = "receiver.age >= :age AND within_km(receiver.loc, sender.loc, :km)"
"""The writer predicate, bound for each record to the place of its writer."""

_CHUNK: Final = 10_000
_MATCHES: Final = 5.0
_CLUSTERS: Final = 20
_CLUSTER_DEGREES: Final = 0.03
_WIDE: Final = 0.45
_WRITER_KM: Final = 100.0
_OLD_ENOUGH: Final = 21


@dataclass(frozen=True)
class Workload:
    """Subscriptions in a square of one degree at the equator, and records that each reach about five.

    Parameters
    ----------
    subscriptions : int
        The number of subscriptions.
    topics : int
        The number of topics over which they are spread.
    seed : int
        Same seed, same subscriptions.
    shape : str
        The form of the subscriptions, a key of :data:`TEXTS`.

    Raises
    ------
    ParameterError
        There is no such shape.
    """

    subscriptions: int
    topics: int = 1000
    seed: int = 1
    shape: str = "box"

    def __post_init__(self) -> None:
        if self.shape not in TEXTS:
            raise ParameterError(
                "There is no such shape.", where="shape", found=repr(self.shape), expected=", ".join(TEXTS)
            )

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
        """Draw the subscriptions, one after the other."""
        rng = np.random.default_rng([self.seed, 1])
        text, half, km = TEXTS[self.shape], self.half_degrees, self.km
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
        """Put all subscriptions into an index."""
        index = SubscriptionIndex()
        for name, predicate, receiver, auth in self.draw():
            index.add(name, predicate, receiver=receiver, auth=auth)
        return index

    def records(self, many: int, seed: int = 1) -> list[dict[str, Any]]:
        """Draw records: topic, place and price."""
        rng = np.random.default_rng([self.seed, 2, seed])
        topics, places = self._topics(rng, many).tolist(), self._places(rng, many).tolist()
        prices = rng.random(many).tolist()
        return [
            {"topic": f"topic-{topic}", "lat": lat, "lon": lon, "loc": (lat, lon), "price": price}
            for topic, (lat, lon), price in zip(topics, places, prices, strict=True)
        ]

    def writers(self, records: list[dict[str, Any]]) -> list[Predicate]:
        """Bind the writer predicate for each record: to readers of 21 and more, 100 km around its place."""
        writer = Predicate(WRITER, age=_OLD_ENOUGH, km=_WRITER_KM)
        return [writer.bind(sender={"loc": record["loc"]}) for record in records]

    def _topics(self, rng: np.random.Generator, many: int) -> NDArray[np.int64]:
        if self.shape != "skewed":
            return rng.integers(0, self.topics, many)
        share = 1 / np.arange(1, self.topics + 1)
        return np.asarray(rng.choice(self.topics, many, p=share / share.sum()), dtype=np.int64)

    def _places(self, rng: np.random.Generator, many: int) -> NDArray[np.float64]:
        if self.shape != "skewed":
            return rng.random((many, 2))
        centres = np.random.default_rng([self.seed, 3]).random((_CLUSTERS, 2))
        around = centres[rng.integers(0, _CLUSTERS, many)]
        return np.clip(around + rng.normal(0, _CLUSTER_DEGREES, (many, 2)), 0.0, 1.0)
