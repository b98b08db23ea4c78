"""Events of one device and one topic in virtual days: arrivals, reads, outages (Last hop 4).

All events are drawn at once, from named streams of one seed: two policies on one seed see the same events.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments, number
from mudkit.sources.outages import PERIODS, Outages
from mudkit.sources.streams import Stream
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.units import US_PER_S
from mudkit.wire import Value

if TYPE_CHECKING:
    from mudkit.systems.lasthop.study.readers import Reader

DAY_US: Final = 86_400 * US_PER_S
_HOUR_US: Final = 3600 * US_PER_S
_DEVICE: Final = "device"
CHANGE, SWITCH, READ = -3, -2, -1
"""Kinds of events in a timeline that are not arrivals; from CHANGE on down, each is a change of a rank."""
_NO_TIMES: Final = np.empty(0, dtype=np.int64)
_RETRACTED: Final = -1e9
"""Rank of a message that was retracted."""
_MAX_CHANGE_US: Final = 7 * DAY_US
"""Age up to which ranks of messages change: for that time a spool knows which messages have ended."""


@check_arguments
@dataclass(frozen=True)
class Expiration:
    """Distribution of the time from arrival to expiration.

    Parameters
    ----------
    mean_s : float
        Mean in seconds.
    law : {'exponential', 'uniform', 'normal'}
        Uniform: from 0 to twice the mean. Normal: standard deviation of a quarter of the mean, cut off at
        four standard deviations.

    Raises
    ------
    ParameterError
        The mean is out of range, or the law is unknown.
    """

    mean_s: float
    law: Literal["exponential", "uniform", "normal"] = "exponential"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_s", number("expiration", self.mean_s, 1e-3, 1e10))

    @classmethod
    def of(cls, given: Expiration | float) -> Expiration:
        """Return ``given`` if it is an expiration, else the exponential one with this mean in seconds."""
        return given if isinstance(given, Expiration) else cls(given)

    def draw_us(self, seed: int, count: int, name: str = "lasthop expiration") -> NDArray[np.int64]:
        """Draw ``count`` times by a seed and the name of a stream, in µs, at least 1."""
        stream, step = Stream(seed, name), np.arange(count)
        match self.law:
            case "exponential":
                drawn = stream.exponential(0, step, self.mean_s)
            case "uniform":
                drawn = stream.uniform(0, step, 0.0, 2 * self.mean_s)
            case _:
                drawn = stream.normal(0, step, self.mean_s, self.mean_s / 4, within=4.0)
        return np.maximum(np.rint(drawn * US_PER_S), 1).astype(np.int64)


@check_arguments
@dataclass(frozen=True)
class RankChanges:
    """Changes of ranks after messages came: votes of other users, and retractions (Last hop 4.4).

    Parameters
    ----------
    retracted_share : float
        Share of the messages that their publishers retract: the rank falls below any threshold.
    votes : float
        Votes on a message on average; their number is Poisson.
    vote : float
        Standard deviation of what a vote adds to the rank, which stays from 0 to 1; its mean is 0.
    after : Expiration or float
        Time from the arrival to each vote, and to the retraction, or the mean of an exponential one in
        seconds. What would come later than a week after the arrival does not come.

    Raises
    ------
    ParameterError
        A value is of the wrong kind or out of range.
    """

    retracted_share: Annotated[float, Range(0.0, 1.0)] = 0.0
    votes: Annotated[float, Range(0.0, 1000.0)] = 0.0
    vote: Annotated[float, Range(0.0, 1.0)] = 0.1
    after: Expiration | float = 3600.0

    def __post_init__(self) -> None:
        if not isinstance(self.after, Expiration):
            object.__setattr__(self, "after", Expiration(number("after", self.after, 1e-3, 1e10)))

    def draw(
        self, seed: int, arrivals_us: NDArray[np.int64], ranks: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Draw the changes of messages by a seed: times in order, numbers of messages, and new ranks."""
        after, numbers = Expiration.of(self.after), np.arange(len(arrivals_us))
        is_retracted = Stream(seed, "lasthop retracted").chance(0, numbers, self.retracted_share)
        until_us = np.full(len(numbers), FOREVER_US)
        retraction_us = arrivals_us + after.draw_us(seed, len(numbers), "lasthop retraction")
        until_us[is_retracted] = retraction_us[is_retracted]
        voted = np.repeat(numbers, _poisson(Stream(seed, "lasthop votes"), len(numbers), self.votes))
        votes_us = arrivals_us[voted] + after.draw_us(seed, len(voted), "lasthop vote")
        added = Stream(seed, "lasthop opinion").normal(0, np.arange(len(voted)), 0.0, self.vote)
        order = np.lexsort((votes_us, voted))
        voted, votes_us, added = voted[order], votes_us[order], added[order]
        total = np.concatenate([[0.0], np.cumsum(added)])
        first = np.searchsorted(voted, voted)
        new_ranks = np.clip(ranks[voted] + total[1:] - total[first], 0.0, 1.0)
        counts = votes_us < until_us[voted]
        changed = np.concatenate([voted[counts], numbers[is_retracted]])
        times_us = np.concatenate([votes_us[counts], until_us[is_retracted]])
        all_ranks = np.concatenate([new_ranks[counts], np.full(int(is_retracted.sum()), _RETRACTED)])
        keeps = times_us <= arrivals_us[changed] + _MAX_CHANGE_US
        order = np.flatnonzero(keeps)[np.argsort(times_us[keeps], kind="stable")]
        return times_us[order], changed[order], all_ranks[order]

    def describe(self) -> dict[str, Value]:
        """Return the parameters that a result must state."""
        after = Expiration.of(self.after)
        return {
            "retracted_share": self.retracted_share,
            "votes": self.votes,
            "vote": self.vote,
            "after": {"mean_s": after.mean_s, "law": after.law},
        }


@dataclass(frozen=True)
class Drawn:
    """Events of a run; times in µs from the start, in order.

    ``arrivals_us``, ``expires_us`` and ``ranks`` have an item per message; the link changes at
    ``switches_us``. At ``changes_us`` the messages ``changed`` get ``changed_ranks``.
    """

    arrivals_us: NDArray[np.int64]
    expires_us: NDArray[np.int64]
    ranks: NDArray[np.float64]
    reads_us: NDArray[np.int64]
    switches_us: NDArray[np.int64]
    starts_up: bool
    changes_us: NDArray[np.int64] = field(default_factory=_NO_TIMES.copy)
    changed: NDArray[np.int64] = field(default_factory=_NO_TIMES.copy)
    changed_ranks: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    sorted_rows: int = 0
    """Rows of logs that came after a later one, and were sorted."""

    @cached_property
    def readers(self) -> dict[tuple[float, float], Reader]:
        """Readers of these events by threshold and messages a read (`Reader.of`)."""
        return {}

    @cached_property
    def timeline(self) -> tuple[list[int], list[int]]:
        """Times of all events, and their kinds: the number of an arrival, or SWITCH or READ.

        At equal times the link changes first, then come arrivals and changes of ranks, and reads come last.
        """
        parts = (self.switches_us, self.arrivals_us, self.changes_us, self.reads_us)
        times_us = np.concatenate(parts)
        order = np.argsort(times_us, kind="stable")
        arrivals = np.arange(len(self.arrivals_us))
        changes = CHANGE - np.arange(len(self.changes_us))
        ends = np.full(len(self.switches_us), SWITCH), np.full(len(self.reads_us), READ)
        what = np.concatenate([ends[0], arrivals, changes, ends[1]])
        return times_us[order].tolist(), what[order].tolist()


@check_arguments
@dataclass(frozen=True)
class Scenario:
    """Parameters of one device and one topic.

    Parameters
    ----------
    event_frequency : float
        Arrivals a day, Poisson.
    user_frequency : float
        Reads a day: their number is normal around it, and they come at random during 16 to 17 waking hours
        from about seven.
    outages : Outages
        Outages, or their share of time. With 1 the link never comes up.
    expiration : Expiration or None
        Expiration, or the mean of an exponential one in seconds. None: nothing expires.
    expiring_share : float
        Share of the messages that expire, from 0 to 1.
    days : int
    reads_cv : float
        Standard deviation of the number of reads a day, over its mean; the paper does not state it. It
        matters where a user can just read all arrivals, as with ``Max`` 32 once a day of 32 (the rest at the
        end of a year is then a random walk), and under long outages if the prefetch limit is learnt.
    rank_changes : RankChanges or None
        Votes and retractions. None: ranks do not change.

    Raises
    ------
    ParameterError
        A value is of the wrong kind or out of range.
    """

    event_frequency: Annotated[float, Range(0.0, 1e6)] = 32.0
    user_frequency: Annotated[float, Range(0.0, 1e4)] = 2.0
    outages: Outages = field(default_factory=lambda: Outages(0.0))
    expiration: Expiration | None = None
    expiring_share: Annotated[float, Range(0.0, 1.0)] = 1.0
    days: Annotated[int, Range(1, 36_500)] = 365
    reads_cv: Annotated[float, Range(0.0, 1.0)] = 0.1
    rank_changes: RankChanges | None = None

    def draw(self, seed: int) -> Drawn:
        """Draw all events of a run by a seed."""
        end_us = self.days * DAY_US
        arrivals_us = self._draw_arrivals_us(seed, end_us)
        count = len(arrivals_us)
        expires_us = np.full(count, FOREVER_US, dtype=np.int64)
        if self.expiration is not None:
            is_expiring = Stream(seed, "lasthop expires").chance(0, np.arange(count), self.expiring_share)
            expires_us[is_expiring] = (arrivals_us + self.expiration.draw_us(seed, count))[is_expiring]
        ranks = Stream(seed, "lasthop rank").uniform(0, np.arange(count))
        switches_us, starts_up = _draw_switches_us(self.outages, seed, end_us)
        reads_us = self._draw_reads_us(seed, end_us)
        drawn = Drawn(arrivals_us, expires_us, ranks, reads_us, switches_us, starts_up)
        if self.rank_changes is None:
            return drawn
        changes_us, changed, new_ranks = self.rank_changes.draw(seed, arrivals_us, ranks)
        return replace(drawn, changes_us=changes_us, changed=changed, changed_ranks=new_ranks)

    def describe(self) -> dict[str, Value]:
        """Return the parameters that a result must state."""
        expiration = None
        if self.expiration is not None:
            expiration = {
                "mean_s": self.expiration.mean_s,
                "law": self.expiration.law,
                "share": self.expiring_share,
            }
        return {
            "event_frequency": self.event_frequency,
            "user_frequency": self.user_frequency,
            "reads_cv": self.reads_cv,
            "outages": self.outages.describe(),
            "expiration": expiration,
            "days": self.days,
            **({} if self.rank_changes is None else {"rank_changes": self.rank_changes.describe()}),
        }

    def _draw_arrivals_us(self, seed: int, end_us: int) -> NDArray[np.int64]:
        """Draw the times at which messages arrive: a Poisson process."""
        if not self.event_frequency:
            return np.empty(0, dtype=np.int64)
        stream, gap_us = Stream(seed, "lasthop arrival"), DAY_US / self.event_frequency
        mean = end_us / gap_us
        count = int(mean + 6 * mean**0.5 + 16)  # too few for one seed in a billion
        times_us = np.cumsum(stream.exponential(0, np.arange(count), gap_us))
        while times_us[-1] < end_us:
            more = stream.exponential(0, np.arange(len(times_us), len(times_us) + count), gap_us)
            times_us = np.concatenate([times_us, times_us[-1] + np.cumsum(more)])
        return np.rint(times_us[times_us < end_us - 1]).astype(np.int64)

    def _draw_reads_us(self, seed: int, end_us: int) -> NDArray[np.int64]:
        """Draw the times of reads, which are spread over the waking hours of each day."""
        day = np.arange(self.days)
        daily = Stream(seed, "lasthop reads")
        spread = self.user_frequency * self.reads_cv
        expected = np.maximum(daily.normal(0, day, self.user_frequency, spread), 0.0)
        # Rounding carries over to the next day: half a read a day is one every other day.
        begun = Stream(seed, "lasthop rounding").uniform(0, 0)
        counts = np.diff(np.floor(np.cumsum(expected) + begun), prepend=0.0).astype(np.int64)
        begin_us = Stream(seed, "lasthop waking").uniform(0, day, 6.5 * _HOUR_US, 7.5 * _HOUR_US)
        awake_us = Stream(seed, "lasthop awake").uniform(0, day, 16.0 * _HOUR_US, 17.0 * _HOUR_US)
        of_day = np.repeat(day, counts)
        share = Stream(seed, "lasthop moment").uniform(0, np.arange(len(of_day)))
        drawn_us = of_day * DAY_US + begin_us[of_day] + share * awake_us[of_day]
        times_us = np.sort(np.rint(drawn_us).astype(np.int64))
        return times_us[times_us < end_us]


def _poisson(stream: Stream, count: int, mean: float) -> NDArray[np.int64]:
    """Draw Poisson numbers, by where uniform ones lie among the sums of their probabilities."""
    most = int(mean + 10 * mean**0.5 + 20)
    steps = np.log(np.maximum(mean, 1e-300)) - np.log(np.arange(1, most + 1))
    below = np.exp(np.concatenate([[0.0], np.cumsum(steps)]) - mean).cumsum()
    return np.searchsorted(below, stream.uniform(0, np.arange(count)), side="right")


def _draw_switches_us(outages: Outages, seed: int, end_us: int) -> tuple[NDArray[np.int64], bool]:
    """Return the times at which the link changes, and whether it is up at the start."""
    switching = outages.switching(seed, [_DEVICE])
    switches: list[NDArray[np.int64]] = []
    at_us, block = 0, 0
    # Two periods per cycle, and some more: nearly always enough in one step.
    blocks = 1 + int(2.2 * outages.per_day * end_us / DAY_US / PERIODS)
    while at_us < end_us:
        times_us = at_us + np.cumsum(np.minimum(switching.periods_us(block, blocks)[0], 2 * end_us))
        switches.append(times_us)
        at_us, block = int(times_us[-1]), block + blocks
    all_us = np.concatenate(switches)
    return all_us[all_us < end_us], bool(switching.starts_up[0])
