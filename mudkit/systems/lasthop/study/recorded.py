"""The policies under recorded conditions: links as they were measured, reads as a phone was unlocked.

The paper draws outages and reads from distributions. Here either may be a recording, each time beside a
generated one that is alike in its rates, so that what differs is how the events lie in time.

Links are those of a driving car that was measured for hours, not days: they are joined end to end and
repeated, as if the user drove on and on, each seed from a moment of its own. An unlock is a read with a
probability that can be calibrated on how old notifications in the drawers of phones are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.errors import ParameterError, TraceFormatError
from mudkit.files import existing
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.outages import Outages
from mudkit.sources.parameters import number
from mudkit.sources.streams import Stream
from mudkit.sources.workloads import Recorded
from mudkit.systems.lasthop.study.scenario import Drawn, Scenario
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

    from mudkit.trace import LoadedLinks

__all__ = ["Condition", "Link", "Unlocks", "conditions", "drawer_ages_s", "read_share"]

_DAY_US: Final = 86_400 * US_PER_S
_AGES: Final = re.compile(r"^(\d+)%.*?([0-9.]+(?:e[+-]\d+)?)$")


@dataclass(frozen=True, eq=False)
class Link:
    """A link as it was recorded, again and again.

    Parameters
    ----------
    links : LoadedLinks or pyarrow.Table
        As :func:`mudkit.trace.load_links` gives them.
    device : str
        Which of them.
    gap_s : float
        See :class:`~mudkit.sources.link_replay.LinkReplay`.
    """

    links: LoadedLinks | pa.Table
    device: str
    gap_s: float = 10.0
    length_us: int = field(init=False)
    """Of one round."""
    _from_us: NDArray[np.int64] = field(init=False, repr=False)
    """When it changes in a round."""
    _starts_up: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        capacity = LinkReplay(self.links, device=self.device, gap_s=self.gap_s).capacity(0)
        changes = np.flatnonzero(np.diff(capacity.up)) + 1
        object.__setattr__(self, "length_us", int(capacity.until_us))
        object.__setattr__(self, "_from_us", capacity.from_us[changes])
        object.__setattr__(self, "_starts_up", bool(capacity.up[0]))

    def alike(self) -> Outages:
        """Give generated outages of the same share and number a day."""
        ends_us = np.concatenate([[0], self._from_us, [self.length_us]])
        lasts_us = np.diff(ends_us)[1 if self._starts_up else 0 :: 2]
        share = float(lasts_us.sum()) / self.length_us
        return Outages(share, per_day=max(len(lasts_us) * _DAY_US / self.length_us, 0.001))

    def switches_us(self, seed: int, length_us: int) -> tuple[NDArray[np.int64], bool]:
        """Say when the link changes, and whether it is up at the start."""
        offset_us = int(Stream(seed, "lasthop recorded link").uniform(0, 0, 0.0, self.length_us))
        # Where a round ends as it began there is no change; else the beginning of a round is one.
        again = [0] if len(self._from_us) % 2 else []
        of_round = np.concatenate([again, self._from_us]).astype(np.int64)
        rounds = np.arange(1 + (offset_us + length_us) // self.length_us) * self.length_us
        all_us = (rounds[:, None] + of_round).ravel() - offset_us
        if again:
            all_us = all_us[1:]
        before = int(np.searchsorted(all_us, 0, side="right"))
        return all_us[before : np.searchsorted(all_us, length_us)], self._starts_up == (before % 2 == 0)


@dataclass(frozen=True, eq=False)
class Unlocks:
    """Reads at moments of a log, such as the unlocks of a phone's screen; its days come in turn.

    Parameters
    ----------
    times_us : array_like of int
        Microseconds since 1970 in UTC.
    share : float
        An unlock is a read with this probability: see :func:`read_share`.
    utc_offset_h : float
        Local time minus UTC.
    """

    times_us: ArrayLike
    share: float = 1.0
    utc_offset_h: float = 0.0
    _log: Recorded = field(init=False, repr=False)

    def __post_init__(self) -> None:
        number("share", self.share, 0.0, 1.0)
        object.__setattr__(self, "_log", Recorded(self.times_us, utc_offset_h=self.utc_offset_h))

    @property
    def per_day(self) -> float:
        """Mean number of reads on a day of the log."""
        days = self._log.days
        unlocks = self._log.moments(0, "lasthop recorded read", ["device"], 0, days * _DAY_US)
        return self.share * len(unlocks.t_us) / days

    def reads_us(self, seed: int, length_us: int) -> NDArray[np.int64]:
        """Draw the reads of a run."""
        times_us = self._log.moments(seed, "lasthop recorded read", ["device"], 0, length_us).t_us
        chosen = Stream(seed, "lasthop read of unlock").chance(0, np.arange(len(times_us)), self.share)
        return np.asarray(times_us[chosen])


@dataclass(frozen=True)
class Condition:
    """A scenario of which the link, the reads, or both are recorded.

    Parameters
    ----------
    scenario : Scenario
        All that is not recorded.
    link : Link, optional
    reads : Unlocks, optional
    """

    scenario: Scenario
    link: Link | None = None
    reads: Unlocks | None = None

    def draw(self, seed: int) -> Drawn:
        """Draw everything, as :meth:`Scenario.draw`."""
        drawn, length_us = self.scenario.draw(seed), self.scenario.days * _DAY_US
        if self.link is not None:
            switches_us, starts_up = self.link.switches_us(seed, length_us)
            drawn = replace(drawn, switches_us=switches_us, starts_up=starts_up)
        if self.reads is not None:
            drawn = replace(drawn, reads_us=self.reads.reads_us(seed, length_us))
        return drawn


def conditions(link: Link, reads: Unlocks, scenario: Scenario) -> dict[str, Condition]:
    """Combine generated and recorded links and reads in all four ways, at the same rates.

    Parameters
    ----------
    link : Link
    reads : Unlocks
    scenario : Scenario
        Its outages and its frequency of reads are replaced by those of the recordings.
    """
    alike = replace(scenario, outages=link.alike(), user_frequency=reads.per_day)
    return {
        "generated": Condition(alike),
        "recorded link": Condition(alike, link=link),
        "recorded reads": Condition(alike, reads=reads),
        "both recorded": Condition(alike, link, reads),
    }


def drawer_ages_s(path: str | os.PathLike[str]) -> dict[float, float]:
    """Read how old notifications in the drawers of phones are: quantiles, seconds.

    Parameters
    ----------
    path : path-like
        The printed outputs of "Clear All" (Weber et al., MuC 2019), of its notebook on ages.

    Returns
    -------
    dict of float to float
        The age at which a snapshot showed a notification, in seconds, by quantile (0.25, 0.5, 0.75).

    Raises
    ------
    InputMissing, TraceFormatError
    """
    file = existing(path, "aggregates of drawers")
    text = file.read_text(encoding="utf-8", errors="replace")
    block = text.partition("## 11_notification_age cell 10\n")[2].partition("\n## ")[0]
    ages = [match.groups() for line in block.splitlines() if (match := _AGES.match(line.strip()))]
    if len(ages) != 3:
        raise TraceFormatError(
            f"{file.name} does not tell the ages of notifications.",
            where=str(file),
            found=f"{len(ages)} quantiles",
            expected="25 %, 50 % and 75 % under 11_notification_age cell 10",
        )
    return {int(percent) / 100: float(age_s) for percent, age_s in ages}


def read_share(times_us: ArrayLike, age_s: float, quantile: float = 0.5) -> tuple[float, float]:
    """Find which share of unlocks are reads, by how old what waits to be read is.

    Snapshots of a drawer see a notification again and again until it is gone. Where messages come evenly and
    a read takes them all, one that waits for w seconds adds to every age up to w: of gaps g between reads the
    share of ages above a is ``sum(max(g - a, 0)²) / sum(g²)``. The fewer unlocks are reads, the older it all
    is.

    Parameters
    ----------
    times_us : array_like of int
        The unlocks.
    age_s : float
        What the quantile is to be.
    quantile : float

    Returns
    -------
    share, age_s : float
        1, and the age that it gives, where even all unlocks leave things older than that.

    Raises
    ------
    ParameterError
        There are too few unlocks, or a number is out of range.
    """
    at_us = np.unique(np.asarray(times_us, dtype=np.int64))
    if len(at_us) < 3:
        raise ParameterError(
            "These are too few unlocks.",
            where="times_us",
            found=f"{len(at_us)} moments",
            expected="3 or more",
        )
    number("age_s", age_s, 0.0, 1e9)
    number("quantile", quantile, 0.001, 0.999)
    chosen = Stream(0, "lasthop read of unlock").uniform(0, np.arange(len(at_us)))

    def age(share: float) -> float:
        gaps_s = np.diff(at_us[chosen < share]) / US_PER_S
        return _bisected(lambda a: _younger(gaps_s, a) < quantile, 0.0, float(gaps_s.max(initial=0.0)))

    least = float(np.sort(chosen)[2])
    share = _bisected(lambda share: age(share) > age_s, least, 1.0)
    return share, age(share)


def _younger(gaps_s: NDArray[np.float64], age_s: float) -> float:
    older = np.maximum(gaps_s - age_s, 0.0)
    return 1.0 - float(older @ older) / float(gaps_s @ gaps_s)


def _bisected(is_below: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high
