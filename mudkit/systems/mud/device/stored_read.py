"""Durable state of a continuous read on its device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, UnsetType, field

from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Fields

OWN_PLACE: Final = "device"
"""In place of a processor, for tables on the device."""
OWN_PARTITION: Final = 0
"""The only partition of a table on the device."""


class StoredRead(Struct):
    """Durable state of a continuous read.

    ``data_seq`` numbers the reader's data. ``sync_us`` is the commit time from which existing records are
    delivered, None: none of them. ``since_lsns`` has the last log position received of each partition, and
    ``log_incarnations`` the incarnation of the log in which it counts, absent: the first one. ``table`` is
    the number of the table, and ``partitions`` how many it has; None before the first answer.
    ``begun_lsns`` has the position of each partition from which a read without existing records began.

    ``aggregate`` are the aggregates of which the application is notified instead of records, and
    ``told_aggregates`` their values of which it was to be notified last, ``heard_aggregates`` those of which
    its callback was.

    ``selection`` has the columns that are delivered; with a limit, the read is a window; None: all columns of
    all records. ``synced_us`` is the last time at which all that it is to deliver was delivered, None: not
    yet.
    ``has_listener``: the application wants to be notified. ``is_paused``: too many changes wait for its
    callback, so that the read is not registered. ``ended`` is the reason for which the read has ended, None:
    it has not.
    """

    handle: int
    data_seq: int
    name: str
    predicate: SentPredicate
    reader: Fields
    sync_us: int | None
    has_listener: bool = True
    since_lsns: dict[int, int] = field(default_factory=dict)
    table: int | None = None
    log_incarnations: dict[int, str] = field(default_factory=dict)
    partitions: int | None = None
    begun_lsns: dict[int, int] = field(default_factory=dict)
    aggregate: str | None = None
    told_aggregates: Fields | None = None
    heard_aggregates: Fields | None = None
    is_paused: bool = False
    ended: str | None = None
    synced_us: int | None = None
    selection: Selection | None = None

    @property
    def is_window(self) -> bool:
        """True if the read has a limit."""
        return self.selection is not None and self.selection.limit is not None

    @property
    def has_begun(self) -> bool:
        """True if the read is of later changes, too: of all records, or registered once."""
        return self.sync_us is not None or self.partitions is not None

    def columns_of(self, data: Fields) -> Fields:
        """Return the columns of a record that are delivered."""
        return data if self.selection is None else self.selection.columns_of(data)

    def advance(self, partitions: Iterable[int], lsn: int, log_incarnation: str | UnsetType) -> None:
        """Store the position up to which all of some partitions was received; one never decreases.

        In another incarnation of the log than before, it counts anew.
        """
        for partition in partitions:
            is_same_log = self.log_incarnations.get(partition, "") == (log_incarnation or "")
            since_lsn = self.since_lsns.get(partition, 0) if is_same_log else 0
            self.set_position(partition, max(lsn, since_lsn), log_incarnation or "")

    def set_position(self, partition: int, lsn: int | None, log_incarnation: str) -> None:
        """Replace the position of a partition; ``lsn`` None: it has none."""
        self.since_lsns.pop(partition, None)
        self.log_incarnations.pop(partition, None)
        if lsn is not None:
            self.since_lsns[partition] = lsn
            if log_incarnation:
                self.log_incarnations[partition] = log_incarnation

    def passed_lsn(self, partition: int, log_incarnation: str) -> int | None:
        """Return the log position up to which everything of a partition was received.

        0 before the first registration; None: it was last heard of in another incarnation of the log.
        """
        if self.partitions is None:
            return 0
        is_of_log = self.log_incarnations.get(partition, "") == log_incarnation
        return self.since_lsns.get(partition, 0) if is_of_log else None


class FormerPositions(Struct):
    """Positions of a stored read by the address of the processor, as earlier versions stored them.

    ``processors`` are those that had the read at the last answer, in the order of the partitions, which they
    took in turns. All are empty in what this version has stored.
    """

    since_lsns: dict[str, int] = field(name="since", default_factory=dict)
    log_incarnations: dict[str, str] = field(name="starts", default_factory=dict)
    begun_lsns: dict[str, int] = field(name="begun", default_factory=dict)
    processors: list[str] = field(default_factory=list)

    def convert(self, stored: StoredRead, partitions: int | None) -> None:
        """Store the positions of a read by partition; ``partitions`` None: their number is not known.

        Then, and before the first answer, only those of a table on the device are known. The read is
        registered as one without a position, whose delivered records are known by their keys.
        """
        if OWN_PLACE in (*self.processors, *self.since_lsns):
            partitions, processors = 1, [OWN_PLACE]
        else:
            processors = self.processors
        if partitions is None or not processors:
            return
        stored.partitions = partitions
        for partition in range(partitions):
            processor = processors[partition % len(processors)]
            since_lsn, begun_lsn = self.since_lsns.get(processor), self.begun_lsns.get(processor)
            stored.set_position(partition, since_lsn, self.log_incarnations.get(processor, ""))
            if begun_lsn is not None:
                stored.begun_lsns[partition] = begun_lsn
