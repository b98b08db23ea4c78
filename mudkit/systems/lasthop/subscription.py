"""What a user wants of a topic: how much, how good, and when (Last hop 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, TypedDict, get_args

from mudkit.arguments import check_init
from mudkit.errors import ParameterError, brief
from mudkit.sources.parameters import number, of_kind, whole_number
from mudkit.systems.lasthop.servers.indexer import check_query
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.wire import Value

__all__ = ["MODES", "Limits", "Subscription", "check_topic"]

Mode: TypeAlias = Literal["on-line", "on-demand"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000
_LONGEST: Final = 1 << 16
_SHOWN: Final = 200


def check_topic(topic: Value, what: str = "topic") -> str:
    """Check the name of a topic, or of something else.

    Raises
    ------
    ParameterError
    """
    if not isinstance(topic, str) or not 0 < len(topic) <= _LONGEST or not topic.isprintable():
        raise ParameterError(
            f"This is no name of a {what}.",
            where=what,
            found=repr(topic)[:_SHOWN],
            expected=f"a text on one line, of at most {_LONGEST:,} letters",
        )
    return topic


class Limits(TypedDict, total=False):
    """Fields of a :class:`Subscription` other than the topic."""

    max: int | None
    threshold: float
    mode: Mode
    policy: str | Forwarding
    quiet_h: tuple[float, float] | None
    interrupt: float | None
    at_h: tuple[float, ...]
    per_day: int | None


@check_init
@dataclass(frozen=True)
class Subscription:
    """A subscription to a topic.

    Parameters
    ----------
    topic : str
    max : int or None
        Messages at a time, the highest-ranked; None: all.
    threshold : float
        The lowest rank that is acceptable.
    mode : {'on-demand', 'on-line'}
        Whether messages wait until they are asked for, or are shown as they come.
    policy : str or Forwarding
        How on-demand messages are prefetched; of an on-line topic, how while it is quiet.
    quiet_h : (float, float), optional
        Hours of the day from and to which an on-line topic is quiet; may go over midnight.
    interrupt : float, optional
        A message of at least this rank on an on-demand topic is shown as it comes.
    at_h : tuple of float
        Hours of the day at which an on-line topic delivers, and at no others.
    per_day : int, optional
        Messages a day that are shown as they come, or at these hours.
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
        if self.mode not in MODES:
            raise ParameterError(
                "There is no such mode.", where="mode", found=brief(self.mode), expected=", ".join(MODES)
            )
        if self.max is not None:
            whole_number("max", self.max, 0, 1 << 31)
        number("threshold", self.threshold, -1e9, 1e9)
        if self.interrupt is not None:
            number("interrupt", self.interrupt, -1e9, 1e9)
        if self.per_day is not None:
            whole_number("per_day", self.per_day, 0, 1 << 31)
        for name, hours in (("quiet_h", () if self.quiet_h is None else self.quiet_h), ("at_h", self.at_h)):
            of_kind(name, hours, tuple, list, expected="hours of the day, such as (22, 7)")
            for each in hours:
                number(name, each, 0.0, 24.0)
        quiet: Sequence[float] | None = self.quiet_h  # as it came
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
                "A server cannot keep a rule: it is a function.",
                where="policy",
                found="the kind 'rule'",
                expected="another kind; simulate takes rules",
            )

    @property
    def most(self) -> float:
        """Messages at a time."""
        return math.inf if self.max is None else float(self.max)

    def to(self, topic: str) -> Subscription:
        """Give the same for another topic."""
        same = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return Subscription(**same | {"topic": topic})

    def is_quiet(self, time_of_day_us: int) -> bool:
        """Say whether it is quiet at a time of the day."""
        if self.quiet_h is None:
            return False
        begin_us, end_us = (round(hour * _HOUR_US) % _DAY_US for hour in self.quiet_h)
        if begin_us < end_us:
            return begin_us <= time_of_day_us < end_us
        return time_of_day_us >= begin_us or time_of_day_us < end_us

    def next_change_us(self, time_of_day_us: int) -> int | None:
        """Say after how long it begins or ends to be quiet, or delivers; None: never."""
        hours = (*(self.quiet_h or ()), *self.at_h)
        if self.per_day is not None:
            hours = (*hours, 0.0)  # a new day
        times_us = [round(hour * _HOUR_US) % _DAY_US for hour in hours]
        return min(((each - time_of_day_us - 1) % _DAY_US + 1 for each in times_us), default=None)

    def delivers_at(self, time_of_day_us: int) -> bool:
        """Say whether this is one of the hours at which it delivers."""
        return any(round(hour * _HOUR_US) % _DAY_US == time_of_day_us for hour in self.at_h)
