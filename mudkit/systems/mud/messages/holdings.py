"""Holding of a processor: the rows that it has, and whose entries of the log it is sent."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Annotated
from zlib import crc32

from msgspec import Meta, Struct, json
from msgspec.structs import replace

from mudkit.systems.mud.messages.partitions import Partitions, read_partitions
from mudkit.systems.mud.messages.parts import partition_range_index
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.receiving import Count, Name


class Holding(Struct, frozen=True):
    """Partitions of a processor, and the tables of which it has all rows.

    It has the partitions of the ranges of the indices ``taken``, of ``ranges`` in all, but those that were
    moved away (``lost``), and those that were moved to it (``gained``): numbers of tables, and their
    partitions. ``tables`` are those in which predicates look up records.
    """

    ranges: Annotated[int, Meta(ge=1)]
    taken: Partitions
    gained: list[tuple[Count, Partitions]] = []
    lost: list[tuple[Count, Partitions]] = []
    tables: list[Name] = []

    def __post_init__(self) -> None:
        for partitions in [self.taken, *(of for _, of in [*self.gained, *self.lost])]:
            _numbers_of(partitions)

    def has(self, table: Table, partition: int) -> bool:
        """Return whether it contains the rows of a partition of a table."""
        return table.name in self.tables or self.serves(table.number, partition)

    def serves(self, number: int, partition: int) -> bool:
        """Return whether a partition of the table of a number is the processor's."""
        if any(table == number and partition in _numbers_of(of) for table, of in self.gained):
            return True
        if partition_range_index(number, partition, self.ranges) not in _numbers_of(self.taken):
            return False
        return not any(table == number and partition in _numbers_of(of) for table, of in self.lost)

    def with_tables(self, tables: Iterable[str]) -> Holding:
        """Return a holding of the same partitions, with some more tables whole."""
        return replace(self, tables=sorted({*self.tables, *tables}))

    def has_partitions_of(self, other: Holding) -> bool:
        """Return whether both have the same partitions."""
        return self == replace(other, tables=self.tables)

    def serves_any(self, table: Table) -> bool:
        """Return whether a partition of a table is the processor's."""
        return any(self.serves(table.number, partition) for partition in range(table.partitions))


@functools.lru_cache(maxsize=1024)
def _numbers_of(partitions: str) -> frozenset[int]:
    """Return the partitions of a text."""
    return frozenset(read_partitions(partitions))


def digest_of(holding: Holding, *formers: Holding) -> int:
    """Return a number that stands for a holding, and for those from which its processor still has rows.

    Equal contents have the same number, so that a message that was made for another holding is recognised.
    """
    return crc32(json.encode([holding, *formers]))


def is_in_all(holdings: Sequence[Holding], table: Table, partition: int) -> bool:
    """Return whether each of some holdings contains the rows of a partition of a table."""
    return all(holding.has(table, partition) for holding in holdings)
