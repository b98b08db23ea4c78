"""A server's link of finite capacity: how long what is sent through it takes.

The link is first in, first out, and each aggregate takes it for as long as all its pushes last; how large
they are is measured on the aggregates themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mudkit.systems.radiator import Aggregate

__all__ = ["OVERLOAD", "PER_S", "SentAggregates"]

PER_S: Final = 30.0
"""Messages a second."""
OVERLOAD: Final = 1.084
"""Bytes a second that volume 1 offers a saturated link, of what it carries: over 1,000 s, a lag of 42 s."""


@dataclass(frozen=True)
class SentAggregates:
    """Aggregates on their way out: when each goes, its bytes in all, and when its messages came.

    Parameters
    ----------
    gone_s : array of float, (aggregates,)
        When each aggregate goes, in seconds.
    size_bytes : array of float, (aggregates,)
        The bytes of each aggregate, over all that it is sent to.
    came_s : list of array of float
        When the messages of each aggregate came, in seconds.
    """

    gone_s: NDArray[np.float64]
    size_bytes: NDArray[np.float64]
    came_s: list[NDArray[np.float64]]

    @classmethod
    def of(cls, gone: Sequence[Aggregate], sizes: Sequence[int]) -> SentAggregates:
        """Take aggregates, each with its bytes in all."""
        came_s = [np.array([message.arrived_us for message in each.batch]) / 1e6 for each in gone]
        return cls(np.array([each.sent_us for each in gone]) / 1e6, np.array(sizes, np.float64), came_s)

    @property
    def total_bytes(self) -> float:
        """All that goes."""
        return float(self.size_bytes.sum())

    @property
    def messages(self) -> int:
        """How many messages the aggregates are of."""
        return sum(map(len, self.came_s))

    def lags_s(self, bytes_per_s: float) -> NDArray[np.float64]:
        """Give the lag of each message when half of the pushes of its aggregate have left."""
        left_s = self._begins_s(bytes_per_s) + self.size_bytes / bytes_per_s / 2
        return np.concatenate([left - came for left, came in zip(left_s, self.came_s, strict=True)])

    def left_bytes(self, bytes_per_s: float, until_s: float) -> float:
        """Give the bytes that have left by some time."""
        begun_bytes = (until_s - self._begins_s(bytes_per_s)) * bytes_per_s
        return float(np.clip(begun_bytes, 0.0, self.size_bytes).sum())

    def _begins_s(self, bytes_per_s: float) -> NDArray[np.float64]:
        """Say when the link turns to each: after all before it, or when it comes to an idle link."""
        before_s = np.concatenate([[0.0], np.cumsum(self.size_bytes / bytes_per_s)[:-1]])
        begins_s: NDArray[np.float64] = before_s + np.maximum.accumulate(self.gone_s - before_s)
        return begins_s
