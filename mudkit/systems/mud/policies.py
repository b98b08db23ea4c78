"""Cache policies: what a client answers by itself, and what it writes later (Mobius 6).

A policy decides about age and completeness, never about consistency: pending writes, the order of versions
and what a reader may see are not its business. What is learnt on the server comes as one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from mudkit.predicates import Predicate
from mudkit.predicates.values import point
from mudkit.systems.mud.utility import Utility, freshness
from mudkit.units import distance_km

__all__ = [
    "NEVER",
    "AlwaysRemote",
    "Asked",
    "Cached",
    "Freshness",
    "NearAndRecent",
    "Now",
    "ReadPolicy",
    "WritePolicy",
]

NEVER: Final = "never"
"""The delay of a write that stays on the device until something needs it."""


@dataclass(frozen=True)
class Asked:
    """A read, as a policy sees it."""

    table: str
    predicate: Predicate | None
    type: str
    reader: Mapping[str, Any]
    utility: Utility | None


@dataclass(frozen=True)
class Cached:
    """A read that was answered by the cloud before, as a policy sees it: what is in the cache."""

    asked: Asked
    age_s: float
    context: Mapping[str, Any]


class ReadPolicy(Protocol):
    """Says where a read is answered."""

    def decide(
        self, query: Asked, context: Mapping[str, Any], cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """Say where; None: as the read's utility has it."""
        ...


class WritePolicy(Protocol):
    """Says when a write is sent."""

    def delay(self, write: Mapping[str, Any], context: Mapping[str, Any]) -> float | Literal["never"] | None:
        """Give seconds, :data:`NEVER`, or None for now."""
        ...


class AlwaysRemote:
    """Everything is asked for anew."""

    def decide(
        self, query: Asked, context: Mapping[str, Any], cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        return "remote"


class Freshness:
    """What was asked for shortly before is answered by the device.

    Parameters
    ----------
    max_age_s : float
    """

    def __init__(self, max_age_s: float) -> None:
        self._utility = freshness(max_age_s)
        self._max_age_s = max_age_s

    def decide(
        self, query: Asked, context: Mapping[str, Any], cache: Sequence[Cached]
    ) -> Literal["local", "remote"] | None:
        """See :class:`ReadPolicy`."""
        same = [each for each in cache if each.asked.table == query.table]
        return "local" if any(each.age_s < self._max_age_s for each in same) else "remote"


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
        self, query: Asked, context: Mapping[str, Any], cache: Sequence[Cached]
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

    def delay(self, write: Mapping[str, Any], context: Mapping[str, Any]) -> float | Literal["never"] | None:
        """See :class:`WritePolicy`."""
        return None
