"""Continuous reads that a processor serves: what each is sent of the changes of the log.

A ``LeftRead`` is sent only to readers that were sent the record before: "when the old version matched" would
name keys that a reader has never seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from mudkit.errors import MudkitError
from mudkit.events import Effect, size_bytes
from mudkit.predicates import Aggregates
from mudkit.systems.mud.messages.notifications import LeftRead, Tell, Upsert
from mudkit.systems.mud.messages.partitions import write_partitions
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.requests import RegisterRequest, Request, UpdateDataRequest
from mudkit.systems.mud.messages.servers import DropEntry, Routed, RowEntry, TableEntry
from mudkit.systems.mud.servers.device_streams import DeviceStreams
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.servers.matching import Matching, ReadKey
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.registered_reads import (
    EVERYTHING,
    ReadPositions,
    RegisteredRead,
    SessionReads,
    recall_delivered,
    select_from,
    share_app,
    window_of,
)
from mudkit.systems.mud.servers.unsynced_reads import UnsyncedReads
from mudkit.systems.mud.tables.replica import JoinedTables, is_visible, record_of
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.mud.tables.window import Window
from mudkit.wire import Fields, Value

_MAX_TOGETHER_BYTES: Final = 32 * 1024
"""Bytes of changes that a reader missed in one message: a link that is up for some seconds passes it."""


class ServedReads:
    """Continuous reads that the processor ``me`` serves of its partitions in ``ranges``.

    They follow ``log``, and are sent what they select in ``streams``. Those that end are no longer
    ``unsynced``.
    """

    def __init__(
        self, me: str, ranges: Ranges, log: LogFollower, streams: DeviceStreams, unsynced: UnsyncedReads
    ) -> None:
        self._me, self._ranges, self._log, self._streams = me, ranges, log, streams
        self._unsynced = unsynced
        self._generation = 0
        self.reads: dict[ReadKey, RegisteredRead] = {}
        self.of_sessions = SessionReads()
        self._early_data: dict[ReadKey, tuple[int, Fields]] = {}
        """Number and data of readers that have overtaken a registration."""
        self._partitions: dict[frozenset[int], frozenset[int]] = {}
        """Sets of partitions of which there are reads: those of the same partitions share one."""
        self.matching: dict[int, Matching] = {}
        """By the number of the table."""
        self._shown_to: dict[tuple[int, str], set[ReadKey]] = {}
        """Readers that were sent a record, by the number of the table and the key."""

    def begin_generation(self, generation: int) -> None:
        """Begin another generation of the processor, without reads."""
        self._generation = generation
        self.reads, self.of_sessions, self._early_data = {}, SessionReads(), {}
        self.matching, self._shown_to = {}, {}

    def register(
        self,
        now_us: int,
        table: Table,
        routed: Routed[Request],
        registration: RegisterRequest,
        positions: ReadPositions,
    ) -> tuple[Sequence[Effect], list[int]]:
        """Begin a read, unless this registration or a later one of it is known.

        Not, if digests of delivered records are not known: return their buckets, too. Raise MudkitError if
        the predicate fails; then nothing is stored.
        """
        read_key: ReadKey = routed.verified.endpoint, registration.handle
        known = self.reads.get(read_key)
        if known is not None and (
            known.request > registration.request
            or (known.request == registration.request and known.partitions >= {*routed.route.partitions})
        ):
            return (), []
        # Of a known read, this is a registration of more partitions, which this processor serves since.
        sent: set[str] = set() if known is None else known.sent_keys()
        recalled, unknown = recall_delivered(self._log.copy, positions, table, routed, registration, sent)
        if unknown:
            return (), unknown
        data = {} if known is None else self.matching[known.table.number].data_of(read_key)
        self.end(read_key)
        if known is not None:
            self._early_data[read_key] = known.data_seq, data  # an update may have overtaken it
        begun = self._begin(now_us, table, routed, registration, positions, recalled, sent)
        return [*begun, *self._unsynced.add(now_us, read_key, self._log)], []

    def _begin(
        self,
        now_us: int,
        table: Table,
        routed: Routed[Request],
        registration: RegisterRequest,
        positions: ReadPositions,
        recalled: set[str],
        sent: set[str],
    ) -> Sequence[Effect]:
        """Store a continuous read, and send the existing records that it requests.

        ``recalled`` are the keys of the records that its device has, and ``sent`` those of the records that
        this generation has sent it, which may arrive only after this registration, or never. Raise
        MudkitError if the predicate fails; then nothing is stored.
        """
        delivered, verified, partitions = recalled | sent, routed.verified, routed.route.partitions
        read_key: ReadKey = verified.endpoint, registration.handle
        predicate, copy = registration.predicate.predicate(), self._log.copy
        claims = share_app(verified.claims)
        auth = {} if claims is None else claims.auth
        named = registration.data_seq, registration.reader
        data_seq, data = max(named, self._early_data.pop(read_key, named), key=itemgetter(0))
        existing = select_from(copy, table, partitions, predicate, data, auth)
        aggregates, state = None, None
        if registration.aggregate is not UNSET:
            aggregates = Aggregates(registration.aggregate)
            state = list(aggregates.of([record_of(row) for row in existing]))
        self.matching.setdefault(table.number, Matching(copy)).add(read_key, predicate, data, auth)
        read = RegisteredRead(
            registration.request, registration.session, verified.address, table, claims,
            self._log.lsn, data_seq, self._share_partitions(partitions), aggregates=aggregates, state=state,
            selection=EVERYTHING if registration.selection is UNSET else registration.selection,
        )  # fmt: skip
        self.reads[read_key] = read
        self.of_sessions.add(read.session, read_key)
        if state is not None:
            for row in existing:
                self._record_shown(read_key, read, row.key)
            return self.tell(now_us, read_key, state=state)
        sync_us = registration.sync_us
        since_lsns: dict[int, int] = {}
        stale: set[str] = set()
        """Records delivered in versions that the log may have lost."""
        for partition in partitions:
            if partition in positions.since_lsns:
                shared_lsn = self._log.shared_lsn(positions.log_incarnations.get(partition, ""))
                since_lsns[partition] = min(positions.since_lsns[partition], shared_lsn)
                if positions.since_lsns[partition] > shared_lsn:
                    stale |= {key for key in delivered if table.partition_of(key) == partition}
        if read.selection.limit is not None:
            by_key = {row.key: row for row in existing}
            window, read.predicate = window_of(read.selection, by_key, table), predicate
            present = recalled & by_key.keys()
            known_keys = {
                key: key in present and by_key[key].lsn <= since_lsns.get(partition, -1)
                for key in delivered
                if (partition := table.partition_of(key)) in partitions
            }
            known_keys |= dict.fromkeys(stale & known_keys.keys(), False)
            return self._fill_window(now_us, read_key, read, window, by_key, known_keys)
        changes: list[Upsert | LeftRead] = []
        for row in existing:
            since_lsn = since_lsns.get(table.partition_of(row.key))
            if row.key in stale or (
                row.lsn > since_lsn if since_lsn is not None else sync_us is not None and row.ts_us >= sync_us
            ):
                changes.append(read.build_upsert(row))
                self._record_shown(read_key, read, row.key)
            elif row.key in delivered:
                self._record_shown(read_key, read, row.key)
        for key in sorted(delivered - read.keys):
            partition = table.partition_of(key)
            if partition not in partitions:
                continue
            known, since_lsn = copy.row_of(table, key), since_lsns.get(partition)
            if known is None or not is_visible(known, data, auth, table, JoinedTables(copy, data, auth)):
                # This reveals that the record is not visible, not whether it exists.
                changes.append(LeftRead(key, None))
            elif since_lsn is None or known.lsn > since_lsn or key in stale:
                changes.append(LeftRead(key, known.ver))
            else:
                self._record_shown(read_key, read, key)
        return self._send_existing(now_us, read_key, changes, is_first=not since_lsns)

    def _share_partitions(self, partitions: Iterable[int]) -> frozenset[int]:
        """Return a set of partitions, the same one for all reads that have them."""
        given = frozenset(partitions)
        return self._partitions.setdefault(given, given)

    def replace_reader_data(
        self, now_us: int, read_key: ReadKey, update: UpdateDataRequest
    ) -> tuple[Sequence[Effect], int]:
        """Use newer data of a reader for later writes; return the number of the data in use, too."""
        read = self.reads.get(read_key)
        if read is None:  # a registration with older data may still be in flight
            if update.data_seq > self._early_data.get(read_key, (0, {}))[0]:
                self._early_data[read_key] = update.data_seq, update.reader
            return (), update.data_seq
        effects: Sequence[Effect] = ()
        if update.data_seq > read.data_seq:
            read.data_seq = update.data_seq
            self.matching[read.table.number].replace_reader_data(read_key, update.reader)
            if read.window is not None:
                effects = self._refill_window(now_us, read_key, read, read.table)
        return effects, read.data_seq

    def end_excluded(
        self, now_us: int, before: Table | None, entry: TableEntry | DropEntry
    ) -> Sequence[Effect]:
        """End the continuous reads that an altered or dropped table no longer admits.

        The others read the altered table from now on; their windows are filled again if columns were removed
        or added.
        """
        if before is None:
            return ()
        effects: list[Effect] = []
        reads = {
            read_key: read for read_key, read in self.reads.items() if read.table.number == before.number
        }
        for read_key, read in reads.items():
            if isinstance(entry, DropEntry):
                effects += self._refuse(now_us, read_key, "the table was dropped")
                continue
            read.table = entry.table
            try:
                entry.table.check_access(read.claims)
            except MudkitError as error:
                effects += self._refuse(now_us, read_key, error.summary)
                continue
            if read.window is not None and entry.table.removed != before.removed:
                effects += self._refill_window(now_us, read_key, read, before)
        return effects

    def _refuse(
        self, now_us: int, read_key: ReadKey, why: str, *, is_alone: bool = False
    ) -> Sequence[Effect]:
        """End a continuous read and notify its client; ``is_alone``: other processors have no reason to."""
        effects = self.tell(now_us, read_key, ended=why, is_alone=True if is_alone else UNSET)
        self.end(read_key)
        return effects

    def match(self, now_us: int, entries: Sequence[RowEntry]) -> Sequence[Effect]:
        """Send new versions to the continuous reads that they reach or no longer reach.

        The entries are those of a batch, or a single one, and all are applied: a read is sent their changes
        in one message.
        """
        table, lsn = self._log.copy.tables[entries[0].name], entries[-1].lsn
        partition = table.partition_of(entries[0].row.key)
        if self._ranges.processor_of(table.number, partition) != self._me:
            return ()
        matching = self.matching.get(table.number)
        changes: dict[ReadKey, list[Row | LeftRead]] = {}
        effects: list[Effect] = []
        for entry in entries:
            row = entry.row
            readers = self._shown_to.get((table.number, row.key), set())
            reached: list[ReadKey] = []
            if matching is not None and row.data is not None:
                reached, failed = matching.match(row, table)
                for read_key, error in failed.items():
                    if partition in self.reads[read_key].partitions:
                        effects += self._refuse(now_us, read_key, error.summary, is_alone=True)
            for read_key in reached:
                if partition in self.reads[read_key].partitions:
                    changes.setdefault(read_key, []).append(row)
            for read_key in sorted(readers - set(reached)):
                changes.setdefault(read_key, []).append(LeftRead(row.key, row.ver))
        for read_key, of_read in changes.items():
            if read_key in self.reads:
                effects += self._send_changes(now_us, read_key, of_read, lsn)
        return effects

    def _send_changes(
        self, now_us: int, read_key: ReadKey, changes: Sequence[Row | LeftRead], lsn: int
    ) -> Sequence[Effect]:
        """Send the changes of a write, or of a batch, to a reader."""
        read = self.reads[read_key]
        if read.claims is not None and read.claims.expires_s <= now_us / 1e6:
            return self._refuse(now_us, read_key, "its token has expired")
        for change in changes:
            if isinstance(change, Row):
                self._record_shown(read_key, read, change.key)
            else:
                self._record_left(read_key, read, change.key)
        if read.aggregates is not None:
            return self._send_aggregates(now_us, read_key, read, read.aggregates)
        if read.window is not None:
            return self._move_window(now_us, read_key, read, read.window, changes, lsn)
        sent = [read.build_upsert(change) if isinstance(change, Row) else change for change in changes]
        return self.tell(now_us, read_key, change=sent[0], lsn=lsn, also=sent[1:] or UNSET)

    def _move_window(
        self,
        now_us: int,
        read_key: ReadKey,
        read: RegisteredRead,
        window: Window,
        changes: Sequence[Row | LeftRead],
        lsn: int,
    ) -> Sequence[Effect]:
        """Send what changes of records make of a window, in one message: it is whole at any time."""
        before = set(window.first_keys()) if len(changes) > 1 else set[str]()
        moved: dict[str, bool] = {}
        for change in changes:
            if isinstance(change, Row):
                moved |= window.put(change.key, record_of(change, read.table))
            else:
                moved |= window.remove(change.key)
        if len(changes) > 1:  # what has come and left again, or left and come back, as it is now
            moved = {key: key in window for key in moved if key in window or key in before}
        sent = [self._build_moved(read, key, is_in=is_in) for key, is_in in moved.items()]
        if not sent:
            return ()
        return self.tell(now_us, read_key, change=sent[0], lsn=lsn, also=sent[1:] or UNSET)

    def _build_moved(self, read: RegisteredRead, key: str, *, is_in: bool) -> Upsert | LeftRead:
        """Build the change that tells a reader of a record that has come into a window or left it."""
        row = self._log.copy.row_of(read.table, key)
        assert row is not None
        return read.build_upsert(row) if is_in else LeftRead(key, row.ver)

    def _fill_window(
        self,
        now_us: int,
        read_key: ReadKey,
        read: RegisteredRead,
        window: Window,
        existing: Mapping[str, Row],
        delivered: Mapping[str, bool],
    ) -> Sequence[Effect]:
        """Begin a window of existing records anew, and send how it differs from what was delivered.

        ``delivered`` has the keys of these, and whether the versions are the present ones.
        """
        copy, auth = self._log.copy, read.auth
        data = self.matching[read.table.number].data_of(read_key)
        for key in read.keys - existing.keys():
            self._record_left(read_key, read, key)
        for key in existing:
            self._record_shown(read_key, read, key)
        read.window = window
        keys = window.first_keys()
        changes: list[Upsert | LeftRead] = [
            read.build_upsert(existing[key]) for key in keys if not delivered.get(key, False)
        ]
        for key in sorted(delivered.keys() - set(keys)):
            row = copy.row_of(read.table, key)
            tables = JoinedTables(copy, data, auth)
            is_shown = row is not None and is_visible(row, data, auth, read.table, tables)
            # A hidden version reveals that the record is not visible, not whether it exists.
            changes.append(LeftRead(key, row.ver if row is not None and is_shown else None))
        return self._send_existing(now_us, read_key, changes, is_first=not delivered)

    def _send_existing(
        self, now_us: int, read_key: ReadKey, changes: Sequence[Upsert | LeftRead], *, is_first: bool
    ) -> Sequence[Effect]:
        """Send what a read lacks of existing records: of a first state one by one, else together.

        What a reader missed goes in one message, as far as it fits: it has seen none of a batch, or all.
        """
        effects: list[Effect] = []
        groups: list[list[Upsert | LeftRead]] = []
        together_bytes = 0
        for change in changes:
            size = size_bytes(change)
            if is_first or not groups or together_bytes + size > _MAX_TOGETHER_BYTES:
                groups.append([])
                together_bytes = 0
            groups[-1].append(change)
            together_bytes += size
        for first, *others in groups:
            effects += self.tell(now_us, read_key, change=first, lsn=None, also=others or UNSET)
        return effects

    def _refill_window(
        self, now_us: int, read_key: ReadKey, read: RegisteredRead, before: Table
    ) -> Sequence[Effect]:
        """Send what a window gains and loses by other reader data, or by other columns than ``before``."""
        if read.claims is not None and read.claims.expires_s <= now_us / 1e6:
            return self._refuse(now_us, read_key, "its token has expired")
        table, predicate = read.table, read.predicate
        assert predicate is not None
        data = self.matching[table.number].data_of(read_key)
        try:
            rows = select_from(self._log.copy, table, sorted(read.partitions), predicate, data, read.auth)
        except MudkitError as error:
            return self._refuse(now_us, read_key, error.summary, is_alone=True)
        existing = {row.key: row for row in rows}
        delivered = {
            key: key in existing and before.visible_columns(row) == table.visible_columns(row)
            for key in read.sent_keys()
            if (row := self._log.copy.row_of(table, key)) is not None
        }
        window = window_of(read.selection, existing, table)
        return self._fill_window(now_us, read_key, read, window, existing, delivered)

    def _send_aggregates(
        self, now_us: int, read_key: ReadKey, read: RegisteredRead, aggregates: Aggregates
    ) -> Sequence[Effect]:
        """Send the state of a read's aggregates if it has changed; end the read if they fail on a record."""
        rows = [self._log.copy.row_of(read.table, key) for key in sorted(read.keys)]
        try:
            state = list(aggregates.of([record_of(row, read.table) for row in rows if row is not None]))
        except MudkitError as error:
            return self._refuse(now_us, read_key, error.summary, is_alone=True)
        if state == read.state:
            return ()
        read.state = state
        return self.tell(now_us, read_key, state=state)

    def _record_shown(self, read_key: ReadKey, read: RegisteredRead, key: str) -> None:
        """Note that a reader was sent a record, so that it is notified when the record leaves the read."""
        read.add_key(key)
        self._shown_to.setdefault((read.table.number, key), set()).add(read_key)

    def _record_left(self, read_key: ReadKey, read: RegisteredRead, key: str) -> None:
        """Note that a record has left a read."""
        read.discard_key(key)
        self._forget_shown(read_key, read, key)

    def _forget_shown(self, read_key: ReadKey, read: RegisteredRead, key: str) -> None:
        """Remove a reader from those that were sent a record, and the record with the last of them."""
        readers = self._shown_to.get((read.table.number, key))
        if readers is not None:
            readers.discard(read_key)
            if not readers:
                del self._shown_to[read.table.number, key]

    def tell(
        self,
        now_us: int,
        read_key: ReadKey,
        *,
        change: Upsert | LeftRead | UnsetType = UNSET,
        lsn: int | UnsetType | None = UNSET,
        synced_lsn: int | UnsetType = UNSET,
        ended: str | UnsetType = UNSET,
        is_alone: bool | UnsetType = UNSET,
        has_moved: Literal[True] | UnsetType = UNSET,
        state: list[Value] | UnsetType = UNSET,
        also: Sequence[Upsert | LeftRead] | UnsetType = UNSET,
    ) -> Sequence[Effect]:
        """Send a Tell about a read, in the stream to the notification server of its device."""
        endpoint, number = read_key
        read = self.reads[read_key]
        tell = Tell(
            endpoint=endpoint,
            session=read.session,
            handle=number,
            processor=self._me,
            generation=self._generation,
            table=read.table.number,
            change=change,
            lsn=lsn,
            synced_lsn=synced_lsn,
            ended=ended,
            is_alone=is_alone,
            has_moved=has_moved,
            state=state,
            log_incarnation=self._log.log_incarnation or UNSET,
            also=also if also is UNSET else list(also),
            partitions=UNSET if read.has_begun else write_partitions(read.partitions),
        )
        read.has_begun = True
        return self._streams.send(now_us, tell)

    def end(self, read_key: ReadKey) -> None:
        """Forget a continuous read, if there is one of this handle."""
        read = self.reads.pop(read_key, None)
        if read is None:
            return
        self._unsynced.discard(read_key)
        self.of_sessions.remove(read.session, read_key)
        self.matching[read.table.number].remove(read_key)
        for key in read.keys:
            self._forget_shown(read_key, read, key)
