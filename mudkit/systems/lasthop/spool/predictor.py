"""Prediction of a user's reads, with and without a link (Last hop 4.3, note 2).

The paper takes two means of past reads, and leaves a statistical prediction open. Here reads are counted by
the hour of the day, those without a link, too, and by the outages in which they fall.

A message is prefetched if it will probably be read before it expires. At a share ``d`` of the reads without a
link, and a probability ``p`` of a read before it expires, prefetching avoids ``p * d`` lost messages and
costs ``1 - p`` wasted ones. The device holds what the reads of an outage take, and one read after it.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, pstdev
from typing import Final

import msgspec

_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = _DAY_US // 24
_HALF_LIFE_US: Final = 14 * _DAY_US
"""Time after which a read counts half: habits change."""
_MAX_OUTAGES: Final = 128
"""Outages whose reads are remembered."""
_DEVIATIONS: Final = 2.0
"""Standard deviations beyond the mean of the reads in an outage, for which messages are on the device."""
_WEIGHT_OF_WASTE: Final = 0.8
"""Weight of a wasted message beside a lost one: waste is a share of what is forwarded, and it is in that."""


class Observed(msgspec.Struct, frozen=True):
    """Observed reads, as they are stored.

    ``reads`` counts reads by hour of the day, ``unlinked_reads`` those without a link, in ``observed_us``
    until ``last_us``; all three have less weight the longer ago they were. ``reads_of_outages`` has the last
    outages that had any.
    """

    reads: list[float] = []
    unlinked_reads: float = 0.0
    observed_us: float = 0.0
    last_us: int | None = None
    reads_of_outages: list[int] = []


class Predictor:
    """Expectations of reads by those of a user so far.

    Parameters
    ----------
    observed : Observed, optional
        What was observed before.
    """

    def __init__(self, observed: Observed | None = None) -> None:
        observed = observed or Observed()
        self._reads = list(observed.reads) or [0.0] * 24
        self._unlinked_reads = observed.unlinked_reads
        self._observed_us, self._last_us = observed.observed_us, observed.last_us
        self._reads_of_outages = deque(observed.reads_of_outages, _MAX_OUTAGES)
        self._reads_of_outage = 0
        """Reads of the present outage."""

    @property
    def observed(self) -> Observed:
        """Reads observed so far, to be stored."""
        return Observed(
            list(self._reads),
            self._unlinked_reads,
            self._observed_us,
            self._last_us,
            list(self._reads_of_outages),
        )

    def begin(self, now_us: int) -> None:
        """Begin to observe, unless it has begun."""
        if self._last_us is None:
            self._last_us = now_us

    def record_read(self, at_us: int, *, has_link: bool) -> None:
        """Record a read."""
        self.begin(at_us)
        assert self._last_us is not None
        if at_us > self._last_us:
            weight = 0.5 ** ((at_us - self._last_us) / _HALF_LIFE_US)
            self._reads = [count * weight for count in self._reads]
            self._unlinked_reads *= weight
            self._observed_us = self._observed_us * weight + (at_us - self._last_us)
            self._last_us = at_us
        self._reads[at_us % _DAY_US // _HOUR_US] += 1.0
        if not has_link:
            self._unlinked_reads += 1.0
            self._reads_of_outage += 1

    def end_outage(self) -> None:
        """Record that the link is back, if there was a read without it."""
        if self._reads_of_outage:
            self._reads_of_outages.append(self._reads_of_outage)
        self._reads_of_outage = 0

    def is_worth_prefetching(self, now_us: int, expires_us: int) -> bool:
        """Return whether a message that expires costs less if it is prefetched; True if no read is known."""
        reads = sum(self._reads)
        if not self._observed_us or not reads:
            return True
        chance = 1.0 - math.exp(-self._expected_reads(now_us, expires_us))
        return chance * self._unlinked_reads / reads >= _WEIGHT_OF_WASTE * (1.0 - chance)

    def count_reads_to_outlast(self) -> float:
        """Return for how many reads the device has to hold messages: those of an outage, and one after it."""
        reads = self._reads_of_outages
        return 1.0 + (fmean(reads) + _DEVIATIONS * pstdev(reads) if reads else 0.0)

    def _expected_reads(self, now_us: int, until_us: int) -> float:
        """Return how many reads are expected until a time, by the hours that it contains."""
        days, rest_us = divmod(until_us - now_us, _DAY_US)
        counted = days * sum(self._reads)
        while rest_us > 0:
            hour, since_us = divmod(now_us % _DAY_US, _HOUR_US)
            part_us = min(_HOUR_US - since_us, rest_us)
            counted += self._reads[hour] * part_us / _HOUR_US
            now_us, rest_us = now_us + part_us, rest_us - part_us
        return counted * _DAY_US / self._observed_us
