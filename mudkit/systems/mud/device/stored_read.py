"""Durable state of a continuous read on its device."""

from __future__ import annotations

from msgspec import Struct, UnsetType, field

from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Fields


class StoredRead(Struct):
    """Durable state of a continuous read.

    ``data_seq`` numbers the reader's data. ``sync_us`` is the commit time from which existing records are
    delivered, None: none of them. ``since_lsns`` has the last log position received from each processor, and
    ``log_incarnations`` the incarnation of the log in which it counts, absent: the first one. ``table`` is
    the number of the table, None before the first answer; ``processors`` are those that had the read then, in
    the order of the partitions, which they take in turns.
    ``begun_lsns`` has the position of each processor from which a read without existing records began.

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
    since_lsns: dict[str, int] = field(name="since", default_factory=dict)
    table: int | None = None
    log_incarnations: dict[str, str] = field(name="starts", default_factory=dict)
    processors: list[str] = field(default_factory=list)
    begun_lsns: dict[str, int] = field(name="begun", default_factory=dict)
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
        return self.sync_us is not None or bool(self.processors)

    def columns_of(self, data: Fields) -> Fields:
        """Return the columns of a record that are delivered."""
        return data if self.selection is None else self.selection.columns_of(data)

    def advance(self, processor: str, lsn: int, log_incarnation: str | UnsetType | None) -> None:
        """Store the position received from a processor, and the incarnation of the log in which it counts."""
        self.since_lsns[processor] = lsn
        if log_incarnation:
            self.log_incarnations[processor] = log_incarnation
        else:
            self.log_incarnations.pop(processor, None)

    def passed_lsn(self, partition: int, log_incarnation: str) -> int | None:
        """Return the log position up to which the processor of a partition has sent everything.

        0 before the first registration; None: it was last heard of in another incarnation of the log.
        """
        if not self.processors:
            return 0
        processor = self.processors[partition % len(self.processors)]
        is_of_log = self.log_incarnations.get(processor, "") == log_incarnation
        return self.since_lsns.get(processor, 0) if is_of_log else None
