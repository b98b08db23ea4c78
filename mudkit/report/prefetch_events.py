"""Arrivals, reads and links on which the report prefetch_sizing plays settings of a server."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit import words
from mudkit.report.choosing import MIN_SPLIT_DAYS, count_days, count_scored_days, find_end_us, has_enough
from mudkit.report.source import dominant
from mudkit.sources import Outages
from mudkit.systems.lasthop import Expiration, Scenario, add_outages, read_logs
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from mudkit.systems.lasthop.study.scenario import Drawn

_DAY_US: Final = 86_400_000_000
_SHORT_DAYS: Final = 7
_CRITICAL: Final = 0.15
"""Difference of what can be read and what arrives, as a share, below which queues wander."""


@dataclass(frozen=True)
class PlayedEvents:
    """Events on which settings are scored.

    ``runs`` are several where outages were drawn from the process ``assumed``, instead of read from a log.
    """

    name: str
    is_example: bool
    runs: Sequence[Drawn]
    assumed: Outages | None
    max_at_a_time: int

    @property
    def first(self) -> Drawn:
        """Arrivals and reads, which all runs share."""
        return self.runs[0]

    @property
    def days(self) -> float:
        """Length of the events in days."""
        return max(find_end_us(self.first) / _DAY_US, 1e-9)

    @property
    def is_split(self) -> bool:
        """True if settings are chosen on some days and scored on the others."""
        return count_days(self.first) >= MIN_SPLIT_DAYS

    @property
    def scored_days(self) -> str:
        """The days on which settings are scored, in words."""
        days = words.count(count_scored_days(self.first), "day")
        return f"the {days} for scoring" if self.is_split else "all days"

    @property
    def has_enough(self) -> bool:
        """True if there are enough reads and days to recommend something."""
        return has_enough(self.first)

    @property
    def down_share(self) -> float:
        """Share of time without a link, over all runs."""
        shares = []
        for run in self.runs:
            end_us = find_end_us(run)
            ends_us = [0, *run.switches_us[run.switches_us < end_us].tolist(), end_us]
            lasts_us = [end - begin for begin, end in itertools.pairwise(ends_us)]
            shares.append(sum(lasts_us[1 if run.starts_up else 0 :: 2]) / end_us)
        return float(np.mean(shares))

    @property
    def lifetime_s(self) -> float:
        """Mean time from arrival to expiration, of the messages that expire; 0 if none does."""
        expires = self.first.expires_us < FOREVER_US
        lasts_us = self.first.expires_us[expires] - self.first.arrivals_us[expires]
        return float(lasts_us.mean()) / 1e6 if len(lasts_us) else 0.0

    @property
    def scored_reads(self) -> int:
        """Number of reads that are scored, of one run."""
        reads_us = self.first.reads_us
        return int((reads_us // _DAY_US % 2 == 1).sum()) if self.is_split else len(reads_us)

    def describe(self) -> str:
        """Return what was read, in a line."""
        arrivals, reads = len(self.first.arrivals_us), len(self.first.reads_us)
        return " · ".join(
            [
                self.name,
                words.count(self.days, "day"),
                words.count(arrivals, "message") + self._expiring(),
                words.count(reads, "read"),
                f"no link for {words.percent(self.down_share)} of the time",
            ]
        )

    def _expiring(self) -> str:
        """Return in brackets how long messages last, or nothing if none expires."""
        if not self.lifetime_s:
            return ""
        share = float((self.first.expires_us < FOREVER_US).mean())
        which = "" if share == 1 else f"{words.percent(share)} "
        return f" ({which}expire after {about(self.lifetime_s)} on average)"

    def reads_in_words(self) -> str:
        """Return the reads that are scored, over all draws, in words."""
        reads = words.count(self.scored_reads, "read")
        return reads if len(self.runs) == 1 else f"{reads} × {len(self.runs)} draws of outages"

    def expiring_share(self, within_s: float) -> float:
        """Share of the messages that expire in less than a time after they arrive."""
        lasts_us = self.first.expires_us - self.first.arrivals_us
        return float((lasts_us < within_s * US_PER_S).mean())

    @property
    def readable_share(self) -> float:
        """Messages that the reads of the whole log can show, as a share of those that arrived."""
        return len(self.first.reads_us) * self.max_at_a_time / len(self.first.arrivals_us)

    def assumption(self) -> str:
        """Return what is assumed of the events, in sentences."""
        text = ""
        if self.is_example:
            lasts = (
                f", and messages that expire after {about(self.lifetime_s)} on average"
                if self.lifetime_s
                else ""
            )
            text = (
                f"As it was drawn, the example has "
                f"{words.count(len(self.first.arrivals_us) / self.days, 'message')} and "
                f"{words.count(len(self.first.reads_us) / self.days, 'read')} a day{lasts}; the parameters "
                "`arrivals_per_day`, `reads_per_day` and `expiration_h` are means that a draw comes near. "
            )
        if self.assumed is None:
            return f"{text}Links are those of the log of outages."
        if not self.assumed.share:
            return f"{text}It is assumed that there is always a link (`outage`)."
        return (
            f"{text}Outages are assumed, too: no link for {words.percent(self.assumed.share)} of the time"
            + (
                " (`outage`)."
                if self.assumed.share == 1
                else f", in {words.number(self.assumed.per_day)} periods a day (`outage`, `outages_per_day`)."
            )
        )

    def warnings(self) -> list[str]:
        """Return a sentence for each property of the events that distorts the scores."""
        notes = []
        if self.is_example:
            notes.append(
                "Messages and reads are generated: give your own logs (`arrivals`, `reads`) for an answer "
                "about your users."
            )
        if self.first.sorted_rows:
            moved = self.first.sorted_rows
            notes.append(
                f"{words.count(moved, 'row')} of the logs {'was' if moved == 1 else 'were'} out of order; "
                "the logs were sorted by time."
            )
        if not self.is_split:
            notes.append(
                f"The events last {words.count(self.days, 'day')}, too few to choose on some and score on "
                "others: both are done on all of them, which flatters the choice."
            )
        if self.days < _SHORT_DAYS:
            notes.append("What is on the device at the end counts as wasted, which is much of a short log.")
        share = self.readable_share
        if share < 1:
            notes.append(
                f"With {words.count(self.max_at_a_time, 'message')} per read (`max_at_a_time`), the "
                f"{words.count(len(self.first.reads_us), 'read')} of the whole log can show at most "
                f"{words.percent(share)} of its messages{self._other_days()}."
            )
        if abs(share - 1) < _CRITICAL and (self.first.expires_us >= FOREVER_US).mean() > 0.5:
            notes.append(
                "About as many messages arrive as can be read, and most never expire: what waits then grows "
                "and shrinks over weeks, and delays and costs are less certain than their intervals say."
            )
        return notes + self._dominance()

    def _other_days(self) -> str:
        """Return why shares of the days for scoring differ from one of the whole log."""
        if not self.is_split:
            return ""
        return (
            "; what is read or wasted is counted for messages of the days for scoring alone, which may be "
            "a little more or less"
        )

    def _dominance(self) -> list[str]:
        """Return a sentence if few days hold most messages; else nothing."""
        days, counts = np.unique(self.first.arrivals_us // _DAY_US, return_counts=True)
        few, share = dominant(counts)
        if few:
            return [
                f"{words.count(few, 'day')} of {len(days)} {'holds' if few == 1 else 'hold'} "
                f"{words.percent(share)} of the messages."
            ]
        return []


def read_events(
    arrivals: str,
    reads: str,
    outages: str,
    *,
    tz: str,
    example: dict[str, Any],
    assumed: Outages,
    draws: int,
) -> tuple[str, list[Drawn], list[Drawn]]:
    """Return a name, the events to choose a setting on, and those to score it on.

    They have the same arrivals and reads: those of the logs, or an example where there is none. Where there
    is no log of outages, they have different ones.
    """
    seed = example["seed"]
    if arrivals:
        events = read_logs(arrivals, reads, outages or None, tz=tz)
        name = ", ".join(Path(entry).name for entry in (arrivals, reads, outages) if entry)
        if outages:
            return name, [events], [events]
    else:
        scenario = Scenario(
            example["arrivals_per_day"],
            example["reads_per_day"],
            expiration=Expiration(3600 * example["expiration_h"]),
            days=example["days"],
        )
        name, events = "a generated example", scenario.draw(seed)
    runs = add_outages(events, assumed, range(seed, seed + 2 * draws))
    return name, runs[:draws], runs[draws:]


def about(seconds: float) -> str:
    """Return a duration to the minute from ten minutes on."""
    return words.duration(60 * round(seconds / 60) if seconds >= 600 else seconds)
