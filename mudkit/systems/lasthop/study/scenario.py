"""Events of one device and one topic in virtual days: arrivals, reads, outages (Last hop 4).

All events are drawn at once, from named streams of one seed: two policies on one seed see the same events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
SWITCH, READ = -2, -1
"""Kinds of events in a timeline that are not arrivals."""


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

    def draw_us(self, seed: int, count: int) -> NDArray[np.int64]:
        """Draw ``count`` times from arrival to expiration by ``seed``, in µs, at least 1."""
        stream, step = Stream(seed, "lasthop expiration"), np.arange(count)
        match self.law:
            case "exponential":
                drawn = stream.exponential(0, step, self.mean_s)
            case "uniform":
                drawn = stream.uniform(0, step, 0.0, 2 * self.mean_s)
            case _:
                drawn = stream.normal(0, step, self.mean_s, self.mean_s / 4, within=4.0)
        return np.maximum(np.rint(drawn * US_PER_S), 1).astype(np.int64)


@dataclass(frozen=True)
class Drawn:
    """Events of a run; times in µs from the start, in order.

    ``arrivals_us``, ``expires_us`` and ``ranks`` have an item per message; the link changes at
    ``switches_us``.
    """

    arrivals_us: NDArray[np.int64]
    expires_us: NDArray[np.int64]
    ranks: NDArray[np.float64]
    reads_us: NDArray[np.int64]
    switches_us: NDArray[np.int64]
    starts_up: bool
    sorted_rows: int = 0
    """Rows of logs that came after a later one, and were sorted."""

    @cached_property
    def readers(self) -> dict[tuple[float, float], Reader]:
        """Readers of these events by threshold and messages a read (`Reader.of`)."""
        return {}

    @cached_property
    def timeline(self) -> tuple[list[int], list[int]]:
        """Times of all events, and their kinds: the number of an arrival, or SWITCH or READ.

        At equal times the link changes first, and reads come last.
        """
        parts = (self.switches_us, self.arrivals_us, self.reads_us)
        times_us = np.concatenate(parts)
        order = np.argsort(times_us, kind="stable")
        arrivals = np.arange(len(self.arrivals_us))
        what = np.concatenate([np.full(len(parts[0]), SWITCH), arrivals, np.full(len(parts[2]), READ)])
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
        return Drawn(
            arrivals_us, expires_us, ranks, self._draw_reads_us(seed, end_us), switches_us, starts_up
        )

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
