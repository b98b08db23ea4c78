"""Cache policies: what a client answers by itself, and what it writes later (Mobius 6).

A policy decides about age and completeness, never about consistency: pending writes, the order of versions
and what a reader may see are not its business. What is learnt on the server comes as one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec

from mudkit.arguments import check_init
from mudkit.predicates import Predicate
from mudkit.predicates.values import point
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.mud.policies.utility import Utility, freshness
from mudkit.units import distance_km
from mudkit.wire import Fields

__all__ = [
    "NEVER",
    "AlwaysRemote",
    "Asked",
    "Cached",
    "Expected",
    "Freshness",
    "Habits",
    "Later",
    "NearAndRecent",
    "Now",
    "PrefetchPolicy",
    "ReadPolicy",
    "WritePolicy",
]

NEVER: Final = "never"
"""The delay of a write that stays on the device until something needs it."""


class Asked(msgspec.Struct, frozen=True):
    """A read, as a policy sees it."""

    table: str
    predicate: Predicate | None
    type: str
    reader: Fields
    utility: Utility | None


@dataclass(frozen=True)
class Cached:
    """A read that was answered by the cloud before, as a policy sees it: what is in the cache."""

    asked: Asked
    age_s: float
    context: Fields
    records: int | None = None
    """In the answer; None: not known."""


@dataclass(frozen=True)
class Expected:
    """A read that has come more than once, as a prefetch policy sees it.

    Parameters
    ----------
    asked : Asked
    times : int
        How often it has come.
    due_s : float
        The time until it is expected again, in seconds: as far apart as they were on average; 0 when it is
        overdue.
    gain_s : float
        What the read's utility gains by fetching the answer now, in seconds of waiting.
    """

    asked: Asked
    times: int
    due_s: float
    gain_s: float


class ReadPolicy(Protocol):
    """Says where a read is answered.

    The context is the device's, and ``now_us``, the time of its clock. A device that knows the calendar says
    in ``clock_us`` what time it was, in microseconds since 1970 (UTC), when that clock was 0.
    """

    def decide(
        self, query: Asked, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """Say where; None: as the read's utility has it."""
        ...


class WritePolicy(Protocol):
    """Says when a write is sent; the context is as for a :class:`ReadPolicy`."""

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """Give seconds, :data:`NEVER`, or None for now."""
        ...


class PrefetchPolicy(Protocol):
    """Says what is fetched before it is asked for."""

    @property
    def every_s(self) -> float:
        """Say how often to look."""
        ...

    def wanted(self, expected: Sequence[Expected], context: Fields) -> Sequence[Asked]:
        """Give what is to be fetched now."""
        ...


class AlwaysRemote:
    """Everything is asked for anew."""

    def decide(
        self, query: Asked, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        return "remote"


@check_init
class Freshness:
    """Read policy: recent answers are reused, all other reads go to the cloud.

    Parameters
    ----------
    max_age_s : float
    """

    def __init__(self, max_age_s: float) -> None:
        self._utility = freshness(max_age_s)
        self._max_age_s = max_age_s

    def decide(
        self, query: Asked, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        same = [each for each in cache if each.asked.table == query.table]
        return "local" if any(each.age_s < self._max_age_s for each in same) else "remote"


@check_init
@dataclass(frozen=True)
class NearAndRecent:
    """The policy of the CarTel application (Mobius 7.3): local within 1 km of a query not older than 10 min.

    Parameters
    ----------
    within_km, within_s : float
    """

    within_km: float = 1.0
    within_s: float = 600.0

    def decide(
        self, query: Asked, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        here = point(query.reader.get("loc")) or point(context.get("loc"))
        for each in cache:
            there = point(each.asked.reader.get("loc")) or point(each.context.get("loc"))
            if (
                each.asked.table != query.table
                or each.age_s >= self.within_s
                or here is None
                or there is None
            ):
                continue
            if distance_km(*here, *there) <= self.within_km:
                return "local"
        return "remote"


class Now:
    """Every write is sent at once."""

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`WritePolicy`."""
        return None


class Later:
    """Every write waits so long for others (the baselines of Mobius 7.3: 10 and 30 minutes).

    Parameters
    ----------
    delay_s : float
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = number("delay_s", delay_s, 0.0, 1e9)

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`WritePolicy`."""
        return self._delay_s


@check_init
class Habits:
    """Prefetch policy: reads that recur are fetched shortly before they are expected, if their utility gains.

    Parameters
    ----------
    min_reads : int
        So often a read must have come.
    every_s : float
        How often to look; what is expected before the next look is fetched.
    """

    def __init__(self, min_reads: int = 3, every_s: float = 60.0) -> None:
        self._least_times = whole_number("min_reads", min_reads, 2, 1 << 31)
        self.every_s = number("every_s", every_s, 1e-3, 1e9)

    def wanted(self, expected: Sequence[Expected], context: Fields) -> Sequence[Asked]:
        """See :class:`PrefetchPolicy`."""
        return [
            each.asked
            for each in expected
            if each.times >= self._least_times and each.due_s < self.every_s and each.gain_s > 0.0
        ]
