"""What a spool learns from reads, arrivals and falls of rank: windows, so that memory is bounded."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Habits"]

_READS: Final = 8
"""Moving averages are over so many reads: the paper says "several past user reads" (4.2)."""
_ARRIVALS: Final = 64
_FALLS: Final = 64
_WAKING_SHARE: Final = 16.5 / 24
"""Of a day, in which reads come: two a day are 8 hours apart, as the paper counts (4.3)."""
_FEW: Final = 4
"""Before so many falls of rank were seen, nothing is delayed for them."""


class Habits:
    """Moving averages of one subscription."""

    def __init__(self) -> None:
        self._reads: deque[int] = deque(maxlen=_READS)
        self._read_times_us: deque[int] = deque(maxlen=_READS)
        self._arrivals_us: deque[int] = deque(maxlen=_ARRIVALS)
        self._falls_us: deque[int] = deque(maxlen=_FALLS)

    def read(self, now_us: int, messages: int) -> None:
        """Take note that so many messages were read."""
        self._reads.append(messages)
        self._read_times_us.append(now_us)

    def arrived(self, now_us: int) -> None:
        """Take note of an acceptable message."""
        self._arrivals_us.append(now_us)

    def fell(self, after_us: int) -> None:
        """Take note that a rank has fallen below the threshold so long after the message came."""
        self._falls_us.append(after_us)

    @property
    def read_at_a_time(self) -> float:
        """Mean number of messages that were read at a time; 0 before the first read."""
        return sum(self._reads) / len(self._reads) if self._reads else 0.0

    @property
    def between_reads_us(self) -> int:
        """Mean waking time between reads; 0 before the second."""
        times = self._read_times_us
        if len(times) < 2:
            return 0
        return round((times[-1] - times[0]) / (len(times) - 1) * _WAKING_SHARE)

    @property
    def share_read(self) -> float:
        """Messages read for each that arrives, at most 1; 1 before both rates are known."""
        reads, arrivals = self._read_times_us, self._arrivals_us
        if len(reads) < 2 or len(arrivals) < 2 or reads[-1] == reads[0] or arrivals[-1] == arrivals[0]:
            return 1.0
        read = sum(list(self._reads)[1:]) / (reads[-1] - reads[0])
        arriving = (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])
        return min(read / arriving, 1.0)

    @property
    def delay_us(self) -> int:
        """How long nine of ten falls took; 0 while few were seen."""
        if len(self._falls_us) < _FEW:
            return 0
        return sorted(self._falls_us)[len(self._falls_us) * 9 // 10]
