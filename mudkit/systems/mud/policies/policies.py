"""Cache policies: which reads a client answers by itself, and when it sends writes (Mobius 6).

A policy decides about age and completeness, never about consistency: pending writes, the order of versions
and visibility are not affected. What is learnt on the server is shipped as one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol

from mudkit.checks import Range, check_arguments, number
from mudkit.errors import ParameterError
from mudkit.predicates.values import point
from mudkit.systems.mud.policies.utility import Query
from mudkit.units import distance_km
from mudkit.wire import Fields

NEVER: Final = "never"
"""Delay of a write that stays on the device until a read needs it."""
MAX_DELAY_S: Final = 1e9
"""Longest delay of a write in seconds: more than 30 years."""


@dataclass(frozen=True)
class Cached:
    """Query that the cloud has answered, as a policy sees it; its records may have been evicted since."""

    query: Query
    age_s: float
    context: Fields
    records: int | None = None
    """Number of records in the answer; None: unknown."""


@dataclass(frozen=True)
class Expected:
    """A repeated read as a prefetch policy sees it.

    ``times`` counts its occurrences. ``due_s`` is the time until the next one, by their mean interval; 0:
    overdue. ``gain_s`` is the utility of fetching the answer now, in seconds of waiting. ``since_s`` is the
    time since the last one.
    """

    query: Query
    times: int
    due_s: float
    gain_s: float
    since_s: float = 0.0


class ReadPolicy(Protocol):
    """Decides where a read is answered.

    The context is the device's, with the time of its clock as ``now_us``. If the device knows the calendar,
    ``clock_us`` is the time in microseconds since 1970 (UTC) at which that clock was 0.
    """

    def decide(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """Return where to answer; None: the read's utility decides.

        Parameters
        ----------
        query : Query
            The read.
        context : mapping
            State of the device, such as ``battery`` and ``speed_mps``.
        cache : sequence of Cached
            All earlier answers on the device, of any table.
        """
        ...


class WritePolicy(Protocol):
    """Decides when a write is sent; the context is as for a :class:`ReadPolicy`."""

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """Return the seconds by which a write is delayed, :data:`NEVER`, or None: it is sent now."""
        ...


class PrefetchPolicy(Protocol):
    """Decides which answers are fetched in advance."""

    @property
    def every_s(self) -> float:
        """Interval between two decisions."""
        ...

    def select(self, expected: Sequence[Expected], context: Fields) -> Sequence[Query]:
        """Return the queries to fetch now.

        Parameters
        ----------
        expected : sequence of Expected
            Reads that the device expects.
        context : mapping
            As for a :class:`ReadPolicy`.
        """
        ...


def check_decision(policy: ReadPolicy, decided: object) -> str | None:
    """Return the decision of a read policy (None: the utility decides); else raise ParameterError."""
    if decided is None or (isinstance(decided, str) and decided in ("local", "remote")):
        return decided
    raise ParameterError(
        "The decision of the read policy is not usable.",
        where=f"{type(policy).__name__}.decide",
        found=repr(decided),
        expected="'local', 'remote', or None: the read's utility decides",
    )


def check_delay(policy: WritePolicy, delay: object) -> float | Literal["never"] | None:
    """Return the delay of a write policy, in seconds, or ``never``; else raise ParameterError.

    None: the write is sent now.
    """
    if delay is None or delay == NEVER:
        return NEVER if delay else None
    return number(f"{type(policy).__name__}.delay", delay, 0.0, MAX_DELAY_S)


class AlwaysRemote:
    """Read policy: every read goes to the cloud."""

    def decide(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        return "remote"


class Freshness:
    """Read policy: recent answers are reused, all other reads go to the cloud.

    Parameters
    ----------
    max_age_s : float
        Maximum age of an answer about the same table.
    """

    @check_arguments
    def __init__(self, max_age_s: Annotated[float, Range(0.0, 1e9)]) -> None:
        self._max_age_s = max_age_s

    def decide(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        same = [cached for cached in cache if cached.query.table == query.table]
        return "local" if any(cached.age_s < self._max_age_s for cached in same) else "remote"


@check_arguments
@dataclass(frozen=True)
class NearAndRecent:
    """Read policy of the CarTel application (Mobius 7.3): local near a recent query.

    Parameters
    ----------
    within_km, within_s : float
        Maximum distance from the place of an answered query, and its maximum age.
    """

    within_km: float = 1.0
    within_s: float = 600.0

    @check_arguments(types=False)
    def decide(
        self, query: Query, context: Fields, cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        here = point(query.reader.get("loc")) or point(context.get("loc"))
        for cached in cache:
            cached_at = point(cached.query.reader.get("loc")) or point(cached.context.get("loc"))
            if (
                cached.query.table != query.table
                or cached.age_s >= self.within_s
                or here is None
                or cached_at is None
            ):
                continue
            if distance_km(*here, *cached_at) <= self.within_km:
                return "local"
        return "remote"


class Now:
    """Write policy: every write is sent at once."""

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`WritePolicy`."""
        return None


class Later:
    """Write policy: every write is delayed (the baselines of Mobius 7.3: 10 and 30 minutes).

    Parameters
    ----------
    delay_s : float
        Delay, during which writes are collected for one message.
    """

    @check_arguments
    def __init__(self, delay_s: Annotated[float, Range(0.0, MAX_DELAY_S)]) -> None:
        self._delay_s = delay_s

    def delay(self, write: Fields, context: Fields) -> float | Literal["never"] | None:
        """See :class:`WritePolicy`."""
        return self._delay_s


class Habits:
    """Prefetch policy: repeated reads are fetched shortly before they are expected, if their utility gains.

    Parameters
    ----------
    min_reads : int
        Minimum number of occurrences of a read.
    every_s : float
        Interval between two decisions; what is expected before the next one is fetched.
    """

    @check_arguments
    def __init__(
        self,
        min_reads: Annotated[int, Range(2, 1 << 31)] = 3,
        every_s: Annotated[float, Range(1e-3, 1e9)] = 60.0,
    ) -> None:
        self._min_reads = min_reads
        self.every_s = every_s

    def select(self, expected: Sequence[Expected], context: Fields) -> Sequence[Query]:
        """See :class:`PrefetchPolicy`."""
        return [
            read.query
            for read in expected
            if read.times >= self._min_reads and read.due_s < self.every_s and read.gain_s > 0.0
        ]
