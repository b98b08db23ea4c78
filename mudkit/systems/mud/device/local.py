"""Local store of a client: committed records, pending writes, and the log positions seen.

All of it is durable; memory has a copy for reading.

The paper stores the last version seen of every record, also of evicted ones. Here one log position per
partition replaces these: every answer must be at least that new. It also covers records that were deleted,
are hidden, or no longer match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from mudkit.delivery.inbox import MAX_INCARNATIONS
from mudkit.delivery.outbox import Outbox
from mudkit.errors import MudkitError
from mudkit.events import Ports, Store
from mudkit.systems.mud.device.lost_versions import LostVersion, LostVersions
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.tables.changes import Changes, change_record
from mudkit.systems.mud.tables.queries import tables_of_sent
from mudkit.systems.mud.tables.records import SentPredicate, value_hash
from mudkit.systems.mud.tables.replica import columns_of, is_visible
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields, Value

_WRITES: Final = "write"
"""Name of the outbox of pending writes."""


class HeldRow(Struct, frozen=True):
    """Committed version of a record on the device; ``held_us`` is when the cloud last sent it.

    ``log_incarnation`` is that of the log in which ``lsn`` counts, if the device was told of the version
    before it heard of this incarnation; absent: the one that it knows.
    """

    key: str
    ver: int
    data: Fields | None
    predicate: SentPredicate | None
    lsn: int
    table: int
    held_us: int
    log_incarnation: str | UnsetType = UNSET

    @classmethod
    def of(cls, row: Row, table: int, now_us: int) -> HeldRow:
        """Build the version to hold from a row of the cloud's answer, received now."""
        return cls(row.key, row.ver, row.data, row.predicate, row.lsn, table, now_us)


class PendingWrite(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Write that the cloud has not answered.

    ``seq`` is its sequence number in the outbox. It replaces the global version ``replaces``, or that of
    the pending write ``after``; a conditional one fails if the store has another. ``base`` is the
    committed version it is based on. ``due_us`` is when the write policy has it sent; None: at once.
    ``lacks_token``: its token has expired, and it waits for another. ``name`` and ``table`` are the name
    and the number of the table, None: the device knew no number. ``absorbed`` counts the earlier blind
    writes of the record in it. ``may_write`` is the rule of who may write the record afterwards; None: as
    before. ``changes`` of columns take the place of ``data``; :meth:`Local.latest_version` applies them.
    ``batch`` has the first and the last sequence number of the parts of its batch; None: it is a single
    write.

    Records and readers have passed :func:`~mudkit.systems.mud.tables.records.check_record`, so that a store
    need not decode what it has encoded.
    """

    is_plain: ClassVar[bool] = True

    seq: int = field(name="number")
    name: str
    key: str
    type: Literal["blind", "conditional"]
    data: Fields | None
    predicate: SentPredicate | None = None
    reader: Fields = field(default_factory=dict)
    replaces: int | None = 0
    after: int | None = None
    base: HeldRow | None = None
    invoked_us: int = 0
    table: int | None = None
    due_us: int | Literal["never"] | None = None
    lacks_token: bool = field(name="is_refused", default=False)
    absorbed: int = 0
    may_write: SentPredicate | None = None
    changes: Changes | None = None
    batch: tuple[int, int] | None = None

    @property
    def request_seq(self) -> int:
        """Sequence number under which it is requested: that of the first part of its batch, or its own."""
        return self.seq if self.batch is None else self.batch[0]

    @property
    def lsn(self) -> float:
        """Position in the log: after every entry."""
        return inf


Version: TypeAlias = HeldRow | PendingWrite


class _Seen(Struct, frozen=True, omit_defaults=True):
    """Log position seen of each partition of the table with this number.

    ``later`` has those seen in incarnations of the log that the device has not heard of, by incarnation: at
    most ``MAX_INCARNATIONS``, those in which something was seen last.
    """

    table: int
    partitions: dict[str, int]
    later: dict[str, dict[str, int]] = field(default_factory=dict)


_NOTHING_SEEN: Final = _Seen(0, {})


class Local:
    """Local store of one client.

    At most ``max_rows`` committed records are stored; the ones not received for longest are evicted first.
    ``log_incarnation`` is the last known one of the back end's log, empty: the first. ``losses`` counts, by
    table and partition, records that were evicted, or of which the device was told without holding them:
    complete answers may be incomplete since. ``lost`` has their versions.
    """

    def __init__(self, ports: Ports, max_rows: int) -> None:
        self._store = store = ports.store
        self.max_rows = max_rows
        _rename_older_keys(store)
        self.tables = {key.removeprefix("table "): table for key, table in store.items("table ", Table)}
        self._rows: dict[tuple[str, str], HeldRow] = {}
        for key, row in sorted(store.items("row\n", HeldRow), key=lambda item: item[1].held_us):
            _, name, record = key.split("\n")
            self._rows[name, record] = row
        self.log_incarnation: str = store.get("start of back end", str) or ""
        self.former_log_incarnations: dict[str, None] = {}
        """The last ones that this start knew before; entries of the log in them may be lost."""
        self._seen = {key.removeprefix("seen "): seen for key, seen in store.items("seen ", _Seen)}
        self.lost = LostVersions()
        for name, seen in self._seen.items():  # an earlier start may have evicted records
            for partition, lsn in seen.partitions.items():
                self.lost.forget(name, int(partition), lsn)
        self.writes = Outbox(ports, PendingWrite, _WRITES)
        self._hashes: dict[tuple[str, str], tuple[Fields | None, str | None]] = {}
        """Cached hashes of committed records."""
        self.losses: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._pending: dict[tuple[str, str], list[int]] = {}
        for write in self.writes:
            self._pending.setdefault((write.name, write.key), []).append(write.seq)

    # -- committed records

    def held_row(self, name: str, key: str) -> HeldRow | None:
        """Return the committed version of a record on the device; None: it holds none."""
        return self._rows.get((name, key))

    def rows(self, name: str) -> Iterator[HeldRow]:
        """Iterate over the committed versions of a table that the device holds."""
        return (row for (table, _), row in self._rows.items() if table == name)

    @property
    def row_count(self) -> int:
        """Number of committed records."""
        return len(self._rows)

    def hold_row(self, name: str, row: HeldRow) -> None:
        """Store a committed version unless a newer one, or another table of this name, is known.

        Versions of a later incarnation of the log than the known one are newer than those of this one. Beyond
        ``max_rows``, the records not received for longest are evicted.
        """
        known, record_id = self.tables.get(name), (name, row.key)
        current = self._rows.get(record_id)
        if known is not None and known.number != row.table:
            return
        is_later = row.log_incarnation is not UNSET and (
            current is None or current.log_incarnation != row.log_incarnation
        )
        if current is not None and not is_later and (current.table, current.ver) > (row.table, row.ver):
            return
        self._store.put(f"row\n{name}\n{row.key}", row)
        self._rows.pop(record_id, None)  # to the end: received last
        self._rows[record_id] = row
        self.lost.remove(name, row.key)
        self.evict_oldest(self.max_rows, None)

    def hold_told(self, name: str, row: HeldRow) -> None:
        """Store a version of which an outcome or a change has told; without effect for a lost one.

        It is lost if none is held, and a newer one was: it was evicted, or may have been in an earlier start.
        Nor is it held if the cloud has answered a query since, and had no such record.
        """
        is_newest = (
            (name, row.key) in self._rows
            or row.log_incarnation is not UNSET
            or row.lsn >= self.lost.newest_lsn(name, row.key, self.partition_of(name, row.key))
        )
        if is_newest:
            self.hold_row(name, row)
        else:
            self.record_loss(name, row.key, row.lsn, row)

    def evict(self, name: str, key: str, told_lsn: int = 0) -> None:
        """Remove a committed record from the device, and record the loss.

        ``told_lsn`` is the position of a newer version of which the device was told, 0: it knows of none.
        """
        self._hashes.pop((name, key), None)
        row = self._rows.pop((name, key), None)
        if row is not None:
            self.record_loss(name, key, max(row.lsn, told_lsn), row if told_lsn <= row.lsn else None)
            self._store.delete(f"row\n{name}\n{key}")

    def record_loss(self, name: str, key: str, lsn: int, row: HeldRow | None = None) -> None:
        """Record a version of which the device was told, at a position, and that it does not hold.

        ``row`` None: not all of its columns are known.
        """
        partition = self.partition_of(name, key)
        self.losses[name][partition] += 1
        self.lost.add(name, key, LostVersion(partition, lsn, row))

    @property
    def oldest_us(self) -> int:
        """Time at which the record was received that was not received for longest; 0: there is none."""
        return next((row.held_us for row in self._rows.values()), 0)

    def evict_oldest(self, keep_rows: int, until_us: int | None) -> None:
        """Evict records beyond ``keep_rows``, at least one, that were received by a time; None: all of them.

        Those go first that were not received for longest.
        """
        while len(self._rows) > keep_rows:
            self.evict(*next(iter(self._rows)))
            if until_us is not None and self.oldest_us > until_us:
                return

    def collect_tombstones(self, before_us: int) -> None:
        """Remove the tombstones that were received before a time, and that no pending write replaces.

        No older version of their records is on its way any more. An answer from which one is missing is still
        complete: it has no record less.
        """
        old = [
            record_id
            for record_id, row in self._rows.items()
            if row.data is None and row.held_us < before_us and record_id not in self._pending
        ]
        for name, key in old:
            self._hashes.pop((name, key), None)
            del self._rows[name, key]
            self._store.delete(f"row\n{name}\n{key}")

    def hash_of(self, name: str, key: str, data: Fields | None) -> str | None:
        """Return the hash of a version's columns, cached for a stored version."""
        record_id = name, key
        hashed, result = self._hashes.get(record_id, (None, None))
        if hashed is not data:
            result = value_hash(data)
            if record_id in self._rows:
                self._hashes[record_id] = data, result
        return result

    def partition_of(self, name: str, key: str) -> int:
        """Return the partition of a record; 0 while the table is unknown."""
        table = self.tables.get(name)
        return 0 if table is None else table.partition_of(key)

    # -- pending writes

    def pending_writes(self, name: str, key: str) -> list[PendingWrite]:
        """Return the pending writes of a record, oldest first."""
        return [self.writes[seq] for seq in self._pending.get((name, key), ())]

    def parts_of(self, write: PendingWrite) -> list[PendingWrite]:
        """Return the parts of the batch of a pending write, in order; the write alone if it has none."""
        if write.batch is None:
            return [self.writes[write.seq]]
        first, last = write.batch
        return [self.writes[seq] for seq in range(first, last + 1)]

    def writes_after(self, write: PendingWrite) -> Iterable[PendingWrite]:
        """Iterate over the pending writes of a record that were made after one of them, oldest first."""
        seqs = self._pending[write.name, write.key]
        if seqs[-1] == write.seq:
            return ()
        return (self.writes[seq] for seq in seqs[bisect_right(seqs, write.seq) :])

    def oldest_write(self, name: str, key: str) -> PendingWrite | None:
        """Return the oldest pending write of a record, which is decided first; None: it has none."""
        seqs = self._pending.get((name, key))
        return self.writes[seqs[0]] if seqs else None

    def latest_version(self, name: str, key: str, cloud: HeldRow | None = None) -> Version | None:
        """Return the latest version of a record; None: it has none that the device knows.

        Pending changes are applied to the version before them; ``cloud`` is the committed one that a reader
        was sent, None: the one that is held. Versions do not say which changes they contain: an increment
        counts twice from a version with it until its outcome.
        """
        versions = self._versions(name, key, self.held_row(name, key) if cloud is None else cloud)
        return versions[-1] if versions else None

    def _versions(self, name: str, key: str, committed: HeldRow | None) -> list[Version]:
        """Return the versions of a record: the committed one, and those after each pending write.

        Changes that do not fit the record before them, and will be refused, leave it as it is. ``base`` of a
        changed version is the committed one below it; None: there is none, or a pending write replaces it.
        """
        versions: list[Version] = [] if committed is None else [committed]
        table, base = self.tables.get(name), committed
        for write in self.pending_writes(name, key):
            if write.changes is None:
                versions.append(write)
                base = None
                continue
            before = versions[-1] if versions else None
            is_here = before is not None and before.data is not None
            try:
                columns = columns_of(before, table) if before is not None and is_here else None
                data = change_record(columns, write.changes, "")
            except MudkitError:
                continue
            predicate = before.predicate if before is not None and is_here else None
            versions.append(replace(write, data=data, predicate=predicate, base=base))
        return versions

    def is_replaced(self, name: str, key: str) -> bool:
        """Return whether a pending write replaces a record as a whole: no committed version counts."""
        return any(write.changes is None for write in self.pending_writes(name, key))

    def has_pending_rule(self, name: str, key: str) -> bool:
        """Return whether a pending write of a record says who may write it afterwards."""
        seqs = self._pending.get((name, key), ())
        return any(self.writes[seq].may_write is not None for seq in seqs)

    def latest_predicate(self, name: str, key: str) -> SentPredicate | None:
        """Return the predicate of the latest version of a record that the device knows; None: it has none."""
        for seq in reversed(self._pending.get((name, key), [])):
            if self.writes[seq].changes is None:
                return self.writes[seq].predicate
        row = self.held_row(name, key)
        return None if row is None else row.predicate

    def newest_write(self, name: str, key: str) -> PendingWrite | None:
        """Return the newest pending write of a record; None: it has none."""
        seqs = self._pending.get((name, key))
        return self.writes[seqs[-1]] if seqs else None

    def pending_keys(self, name: str) -> list[str]:
        """Return the keys of a table's records that have pending writes."""
        return [key for table, key in self._pending if table == name]

    def oldest_seqs(self) -> list[int]:
        """Return the sequence numbers of the oldest pending write of each record, in order."""
        return sorted(seqs[0] for seqs in self._pending.values())

    def increment(self, counter: str) -> int:
        """Increment a durable counter, by its store key, and return it."""
        number = self.counted(counter) + 1
        self._store.put(counter, number)
        return number

    def counted(self, counter: str) -> int:
        """Return a durable counter, by its store key: 0 before the first increment."""
        return self._store.get(counter, int) or 0

    def add_write(self, write: PendingWrite) -> bool:
        """Add a pending write, whose sequence number is the next one; return whether its record has no other.

        Raises
        ------
        OutboxFull
        """
        self.writes.add(write)
        seqs = self._pending.setdefault((write.name, write.key), [])
        seqs.append(write.seq)
        return len(seqs) == 1

    def change_write(self, write: PendingWrite, **changes: int | HeldRow | None) -> PendingWrite:
        """Change fields of a pending write, durably, and return it."""
        changed = replace(write, **changes)
        self.writes.replace(write.seq, changed)
        return changed

    def remove_write(self, write: PendingWrite) -> None:
        """Remove a completed or failed write; its sequence number is not used again."""
        self.writes.ack(write.seq)
        seqs = self._pending[write.name, write.key]
        seqs.remove(write.seq)
        if not seqs:
            del self._pending[write.name, write.key]

    # -- tables

    def store_table(self, new: Table) -> Table:
        """Store a table's properties, and return the newest that are known.

        A new table of a known name evicts all records of the former one.
        """
        known = self.tables.get(new.name)
        if known is not None and known.number > new.number:
            return known  # late answer about a dropped table
        if known is None or known.number != new.number:
            self.forget_tables(new.name, new.number)
        if known is None or known.lsn < new.lsn or known.number != new.number:
            self.tables[new.name] = new
            self._store.put(f"table {new.name}", new)
        return self.tables[new.name]

    def forget_tables(self, name: str, since: int) -> None:
        """Remove the tables of a name with numbers below ``since``; their pending writes will be refused."""
        known = self.tables.get(name)
        if known is not None and known.number >= since:
            return
        rows = self._rows.items()
        for key in [key for (table, key), row in rows if table == name and row.table < since]:
            self.evict(name, key)
        self.lost.leave_table(name)
        if self._seen_of(name).table < since and self._seen.pop(name, None) is not None:
            self._store.delete(f"seen {name}")
        self._store.delete(f"table {name}")
        self.tables.pop(name, None)

    def go_back(self, log_incarnation: str, shared_lsn: int) -> str:
        """Remove everything after a log position that another incarnation of the log does not have.

        Writes based on such a version will conflict. Return in words how many entries of the log are gone
        that were seen here; empty: none.
        """
        self.former_log_incarnations[self.log_incarnation] = None
        for oldest in list(self.former_log_incarnations)[:-MAX_INCARNATIONS]:
            del self.former_log_incarnations[oldest]
        self.log_incarnation = log_incarnation
        self._store.put("start of back end", log_incarnation)
        pushed = {
            record_id: replace(row, log_incarnation=UNSET)
            for record_id, row in self._rows.items()
            if row.log_incarnation == log_incarnation
        }
        lost = [
            record_id
            for record_id, row in self._rows.items()
            if row.lsn > shared_lsn or row.table > shared_lsn or row.log_incarnation is not UNSET
        ]
        for write in list(self.writes):
            record_id = write.name, write.key
            base = self._rows.get(record_id) if record_id in lost else write.base
            if base is not None and base.lsn > shared_lsn and write.replaces == base.ver:
                write = self.change_write(write, replaces=None, base=None)
            if write.table is not None and write.table > shared_lsn:
                self.change_write(write, table=None)
        for record_id in lost:
            self.evict(*record_id)
        self.lost.go_back(shared_lsn)
        seen_to = [max((seen.table, *seen.partitions.values())) for seen in self._seen.values()]
        last = max((*seen_to, *(table.lsn for table in self.tables.values())), default=0)
        for name, seen in list(self._seen.items()):
            later = seen.later.get(log_incarnation, {})
            if seen.table > shared_lsn and not later:
                del self._seen[name]
                self._store.delete(f"seen {name}")
            else:
                shared = seen.partitions if seen.table <= shared_lsn else {}
                partitions = {number: min(lsn, shared_lsn) for number, lsn in shared.items()}
                for number, lsn in later.items():
                    partitions[number] = max(lsn, partitions.get(number, 0))
                    self.lost.forget(name, int(number), lsn)  # what was evicted is known in the former log
                self._seen[name] = kept = _Seen(seen.table, partitions)
                self._store.put(f"seen {name}", kept)
        for name in [name for name, table in self.tables.items() if table.lsn > shared_lsn]:
            del self.tables[name]
            self._store.delete(f"table {name}")
        for (name, _), row in pushed.items():
            self.hold_row(name, row)
        if last <= shared_lsn:
            return ""
        return f"{last - shared_lsn:,}" if shared_lsn else "all"

    def table_number_of(self, name: str) -> int | None:
        """Return the number of the last known table of a name; None: none is known."""
        known = self.tables.get(name)
        return (self._seen_of(name).table or None) if known is None else known.number

    def seen_lsns(self, name: str) -> dict[str, int]:
        """Return the log position seen of each partition of a table."""
        return self._seen_of(name).partitions

    def record_seen(
        self, name: str, table: int, partition: int, lsn: int, log_incarnation: str | None = None
    ) -> None:
        """Store up to which log position a partition of the table with this number has been seen.

        No effect for an earlier position, or a former table of the name, or incarnation of the log. One of an
        incarnation that the device has not heard of counts once it has; None: that which it knows.
        """
        if log_incarnation in self.former_log_incarnations:
            return
        number, known = self.table_number_of(name) or table, self._seen_of(name)
        if known.table != table:
            known = _Seen(table, {})
        is_later = log_incarnation is not None and log_incarnation != self.log_incarnation
        seen = known.later.get(log_incarnation or "", {}) if is_later else known.partitions
        if number <= table and seen.get(str(partition), 0) < lsn:
            seen = {**seen, str(partition): lsn}
            if is_later:
                others = [one for one in known.later.items() if one[0] != log_incarnation]
                later = [*others[1 - MAX_INCARNATIONS :], (log_incarnation or "", seen)]
                known = replace(known, later=dict(later))
            else:
                known = replace(known, partitions=seen)
            self._seen[name] = known
            self._store.put(f"seen {name}", known)

    def holdings(
        self, name: str, reader: Fields, auth: Mapping[str, str], now_us: int
    ) -> Iterator[dict[str, Value]]:
        """Yield the versions held of a table's records, by key; pending ones after the committed one.

        ``auth`` is the verified identity of the reader. ``version`` is None while it is pending, ``record``
        after a delete, ``type`` unless it is a pending write, and ``visible`` where only the cloud can
        evaluate the writer predicate.
        """
        table = self.tables.get(name)
        rows = {row.key: row for row in self.rows(name)}
        for key in sorted({*rows, *self.pending_keys(name)}):
            for version in self._versions(name, key, rows.get(key)):
                predicate = version.predicate
                needs_cloud = predicate is not None and bool(tables_of_sent(predicate))
                yield {
                    "key": key,
                    "version": version.ver if isinstance(version, HeldRow) else None,
                    "record": None if version.data is None else columns_of(version, table),
                    "predicate": None if predicate is None else predicate.text,
                    "type": version.type if isinstance(version, PendingWrite) else None,
                    "visible": None if needs_cloud else is_visible(version, reader, auth, table),
                    "age_s": (now_us - version.held_us) / 1e6 if isinstance(version, HeldRow) else 0.0,
                }

    def _seen_of(self, name: str) -> _Seen:
        """Return the log positions seen of a name's table; nothing seen: no partitions, of table 0."""
        return self._seen.get(name, _NOTHING_SEEN)


def _rename_older_keys(store: Store) -> None:
    """Migrate a store from before pending writes were an outbox."""
    counted = store.get("count of writes", int)
    older = [key for key in store.keys(f"{_WRITES} ") if len(key) < len(_WRITES) + 20]
    for key in older:
        write = store.get(key, PendingWrite)
        store.delete(key)
        store.put(f"{_WRITES} {int(key.rpartition(' ')[2]):019d}", write)
    if counted is not None or older:
        numbers = (int(key.rpartition(" ")[2]) for key in older)
        store.put(f"last of {_WRITES}", max(counted or 0, *numbers, 0))
        store.put(f"starts of {_WRITES}", {store.get("incarnation", str) or "": 0})
        store.delete("count of writes")
