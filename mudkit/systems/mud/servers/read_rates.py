"""Rates of the reads of a processor's partitions, by which devices weigh a delay of a write (Mobius 6).

Predicates of reads are not kept: a rate by record would show writers what others read.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final, TypeAlias

from msgspec import Struct

MAX_PARTITIONS: Final = 10_000
"""Partitions whose reads are counted; beyond them, that is forgotten which was not read for longest."""
_MEMORY_S: Final = 3600.0
"""Time after which a read counts 1/e."""
_PRIOR_S: Final = 600.0
"""Interval between reads before anything is known of a partition."""

PartitionKey: TypeAlias = tuple[int, int]
"""Number of the table, and of the partition in it."""


class _Reads(Struct):
    """Reads of a partition: their number, in which older ones count less, as of a time."""

    weight: float
    at_us: int


class ReadRates:
    """Rates of reads by partition, as soft state: a processor counts anew from its start at ``since_us``."""

    def __init__(self, since_us: int) -> None:
        self._since_us = since_us
        self._reads: OrderedDict[PartitionKey, _Reads] = OrderedDict()

    def record_read(self, now_us: int, partition: PartitionKey, share: float) -> None:
        """Count a read that concerns a share of a partition's records; it may forget another partition."""
        weight = self._weight(now_us, partition) + share
        self._reads[partition] = _Reads(weight, now_us)
        self._reads.move_to_end(partition)
        if len(self._reads) > MAX_PARTITIONS:
            self._reads.popitem(last=False)

    def interval_ms(self, now_us: int, partition: PartitionKey) -> int:
        """Return the mean interval between reads of a record of a partition, in ms, at least 1."""
        counted_s = _MEMORY_S * -math.expm1((self._since_us - now_us) / (_MEMORY_S * 1e6))
        interval_s = (counted_s + _PRIOR_S) / (self._weight(now_us, partition) + 1.0)
        return max(1, round(interval_s * 1000))

    def _weight(self, now_us: int, partition: PartitionKey) -> float:
        """Return the number of reads of a partition, in which older ones count less."""
        reads = self._reads.get(partition)
        return 0.0 if reads is None else reads.weight * math.exp((reads.at_us - now_us) / (_MEMORY_S * 1e6))
