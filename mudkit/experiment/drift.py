"""The drift alarm: what devices see is held against what a policy's replay has promised."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mudkit.sources.parameters import number, whole_number

__all__ = ["DriftAlarm", "wilson"]


def wilson(reads: int, stale: int) -> tuple[float, float]:
    """Say where the true share lies, by 95 % (Wilson's score interval, JASA 22, 1927)."""
    z, n = 1.959964, max(reads, 1)
    share = stale / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max(middle - half, 0.0), min(middle + half, 1.0)


@dataclass(frozen=True)
class DriftAlarm:
    """Watches whether stale answers stay within what was promised.

    Parameters
    ----------
    low, high : float
        The promised interval of their share.
    reads, stale : int
        What was seen so far.
    least_reads : int
        No alarm before so many.
    """

    low: float
    high: float
    reads: int = 0
    stale: int = 0
    least_reads: int = 50

    def __post_init__(self) -> None:
        number("low", self.low, 0.0, 1.0)
        number("high", self.high, self.low, 1.0)
        whole_number("least_reads", self.least_reads, 1, 1 << 31)

    def seen(self, reads: int, stale: int) -> DriftAlarm:
        """Take note of more reads, and how many of them were stale."""
        whole_number("stale", stale, 0, whole_number("reads", reads, 0, 1 << 31))
        return replace(self, reads=self.reads + reads, stale=self.stale + stale)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies, by 95 %: :func:`wilson`."""
        return wilson(self.reads, self.stale)

    @property
    def rings(self) -> bool:
        """Whether what was seen can hardly come from what was promised."""
        low, high = self.interval
        return self.reads >= self.least_reads and (low > self.high or high < self.low)
