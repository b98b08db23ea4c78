"""Subscriptions of a user: topics, limits, times, and places (Last hop 3.2, 3.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, TypedDict

from mudkit.checks import check_arguments, number, of_kind, whole_number
from mudkit.errors import ParameterError, brief
from mudkit.systems.lasthop.servers.indexer import check_query
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.units import distance_km
from mudkit.wire import Fields, Value

Mode: TypeAlias = Literal["on-line", "on-demand"]
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_MAX_TOPIC_LENGTH: Final = 1 << 16
_MAX_SHOWN: Final = 200
MAX_RANK: Final = 1e9
"""Highest rank of a message; the lowest one is its negative."""
PLACE: Final = "{place}"
"""Placeholder for the name of the place in a topic."""


def check_topic(topic: Value, what: str = "topic") -> str:
    """Return the name of a topic, or of something else; raise ParameterError if it is not valid."""
    if not isinstance(topic, str) or not 0 < len(topic) <= _MAX_TOPIC_LENGTH or not topic.isprintable():
        raise ParameterError(
            f"This is not a valid name of a {what}.",
            where=what,
            found=repr(topic)[:_MAX_SHOWN],
            expected=f"a text on one line, of at most {_MAX_TOPIC_LENGTH:,} letters",
        )
    return topic


class Limits(TypedDict, total=False):
    """Fields of a :class:`Subscription` other than the topic, as keyword arguments."""

    max: int | None
    threshold: float
    mode: Mode
    policy: str | Forwarding
    quiet_h: tuple[float, float] | None
    interrupt: float | None
    at_h: tuple[float, ...]
    per_day: int | None


@check_arguments
@dataclass(frozen=True)
class Subscription:
    """A subscription to a topic. Hours are local; a setting of the other mode has no effect.

    Parameters
    ----------
    topic : str
        Name of a topic, or what :func:`~mudkit.systems.lasthop.query` returns.
    max : int or None
        Messages per read, the highest-ranked; None: all.
    threshold : float
        Lowest acceptable rank.
    mode : {'on-demand', 'on-line'}
        Whether messages wait for a read, or are shown when they come.
    policy : str or Forwarding
        Prefetching of on-demand messages; for an on-line topic, during quiet hours.
    quiet_h : (float, float), optional
        First and last hour of the day of the quiet time of an on-line topic; may include midnight.
    interrupt : float, optional
        Messages of at least this rank on an on-demand topic are shown when they come.
    at_h : tuple of float
        Hours of the day at which an on-line topic is delivered, and at no others.
    per_day : int, optional
        Maximum number of messages shown a day.

    Raises
    ------
    ParameterError
        A value is of the wrong kind or out of range.
    PredicateError
        The topic is an invalid query.
    """

    topic: str
    max: int | None = 8
    threshold: float = 0.0
    mode: Mode = "on-demand"
    policy: str | Forwarding = "unified"
    quiet_h: tuple[float, float] | None = None
    interrupt: float | None = None
    at_h: tuple[float, ...] = ()
    per_day: int | None = None
    forwarding: Forwarding = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_topic(self.topic)
        check_query(self.topic)
        if self.max is not None:
            whole_number("max", self.max, 0, 1 << 31)
        number("threshold", self.threshold, -1e9, 1e9)
        if self.interrupt is not None:
            number("interrupt", self.interrupt, -1e9, 1e9)
        if self.per_day is not None:
            whole_number("per_day", self.per_day, 0, 1 << 31)
        for name, hours in (("quiet_h", () if self.quiet_h is None else self.quiet_h), ("at_h", self.at_h)):
            of_kind(name, hours, tuple, list, expected="hours of the day, such as (22, 7)")
            for hour in hours:
                number(name, hour, 0.0, 24.0)
        quiet: Sequence[float] | None = self.quiet_h  # not checked yet
        if quiet is not None and (len(quiet) != 2 or quiet[0] == quiet[1]):
            raise ParameterError(
                "Quiet hours have a beginning and an end.",
                where="quiet_h",
                found=brief(self.quiet_h),
                expected="two different hours, as (22, 7)",
            )
        object.__setattr__(self, "forwarding", Forwarding.of(self.policy))
        if self.forwarding.rule is not None:
            raise ParameterError(
                "A server cannot store a rule: it is a function.",
                where="policy",
                found="the kind 'rule'",
                expected="another kind; simulate takes rules",
            )

    @property
    def max_messages(self) -> float:
        """Messages per read."""
        return math.inf if self.max is None else float(self.max)

    @check_arguments(types=False)
    def with_topic(self, topic: str) -> Subscription:
        """Return the same subscription to another topic."""
        same = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        return Subscription(**same | {"topic": topic})

    @check_arguments(types=False)
    def is_quiet(self, time_of_day_us: int) -> bool:
        """Return whether an on-line topic shows nothing at ``time_of_day_us``, because of its quiet hours."""
        if self.quiet_h is None:
            return False
        begin_us, end_us = (round(hour * _HOUR_US) % _DAY_US for hour in self.quiet_h)
        if begin_us < end_us:
            return begin_us <= time_of_day_us < end_us
        return time_of_day_us >= begin_us or time_of_day_us < end_us

    @check_arguments(types=False)
    def next_change_us(self, time_of_day_us: int) -> int | None:
        """Return the time from ``time_of_day_us`` to the next hour that changes deliveries; None: never."""
        hours = (*(self.quiet_h or ()), *self.at_h)
        if self.per_day is not None:
            hours = (*hours, 0.0)  # a new day
        times_us = [round(hour * _HOUR_US) % _DAY_US for hour in hours]
        return min(((time_us - time_of_day_us - 1) % _DAY_US + 1 for time_us in times_us), default=None)

    @check_arguments(types=False)
    def is_fixed_hour(self, time_of_day_us: int) -> bool:
        """Return whether a time of day is exactly one of ``at_h``, as it is when their timer fires."""
        return any(round(hour * _HOUR_US) % _DAY_US == time_of_day_us for hour in self.at_h)


@dataclass(frozen=True)
class PlaceSubscription:
    """A subscription that depends on the place of the device: its topic may contain ``{place}``.

    Places are circles by name: latitude and longitude in degrees, and a radius in km; the first match counts.
    It runs on the device, so no other party learns the place.

    Examples
    --------
    >>> places = {"Tromsø": (69.65, 18.96, 20.0)}
    >>> following = PlaceSubscription(Subscription("traffic {place}"), places)
    >>> following.topic((69.66, 18.9))
    'traffic Tromsø'
    >>> following.topic((60.39, 5.32)) is None
    True
    """

    subscription: Subscription
    places: Mapping[str, tuple[float, float, float]]

    def __post_init__(self) -> None:
        places: Fields | Value = self.places  # not checked yet
        if not isinstance(places, Mapping) or not places:
            raise ParameterError(
                "There are no places to follow.",
                where="places",
                found=brief(self.places),
                expected="places by name, as {'Tromsø': (69.65, 18.96, 20.0)}",
            )
        items: Iterable[tuple[Value, Value]] = places.items()
        for name, place in items:
            if (
                not isinstance(name, str)
                or not name
                or not isinstance(place, list | tuple)
                or len(place) != 3
            ):
                raise ParameterError(
                    "A place is not valid.",
                    where=f"places[{name!r}]",
                    found=brief(place),
                    expected="a name; latitude, longitude and a radius in km",
                )
            for value, low, high in zip(place, (-90.0, -180.0, 0.0), (90.0, 360.0, 21_000.0), strict=True):
                number(f"places[{name!r}]", value, low, high)
            self.subscription.with_topic(
                self.subscription.topic.replace(PLACE, name)
            )  # raises for an invalid topic

    def topic(self, loc: tuple[float, float] | None) -> str | None:
        """Return the topic at a place; None if it is in none of the circles."""
        if loc is None:
            return None
        for name, (lat, lon, radius_km) in self.places.items():
            if float(distance_km(loc[0], loc[1], lat, lon)) <= radius_km:
                return self.subscription.topic.replace(PLACE, name)
        return None

    def changes(
        self, before: str | None, loc: tuple[float, float] | None
    ) -> tuple[str | None, Subscription | None]:
        """Return the topic to end and the subscription to begin; ``loc`` None, unknown, changes nothing."""
        after = before if loc is None else self.topic(loc)
        if after == before:
            return None, None
        return before, None if after is None else self.subscription.with_topic(after)
