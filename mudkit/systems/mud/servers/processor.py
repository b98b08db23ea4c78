"""Processor: routes reads and writes of its partitions, and matches changes with their continuous reads.

Its rules (Mobius 4.2, 5). Continuous reads are soft state, lost in a restart:

================  ====================================================================================
any message       dropped unless its sender may send it
PartitionRead     to the master if the latest version is requested, else to a replica
RoutedWrite       to the master
Log               match each changed row with the continuous reads; send a change to those that it
                  reaches, and to those that it no longer reaches, over the notification server; end a
                  read whose predicate fails on it, with the reason
Registration      at one position of the log: existing records, as far as requested, then all changes; not
                  registered, if digests of delivered records are not known. A read of aggregates is sent
                  their state, now and whenever a change of its records changes it
ReaderDataUpdate  in effect for later writes, unless newer data of this reader arrived before
Unregistration    end the read; a late duplicate of its registration does not begin it again
Gone              end the reads of a session that the notification server has given up; if it does not
                  know the client any more, send it the address
Moved             store the address of a session's client, which a restored notification server may lack
================  ====================================================================================

A ``LeftRead`` is sent only to readers that were sent the record before: "when the old version matched" would
name keys that a reader has never seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, TypeAlias

from msgspec import UNSET, UnsetType

from mudkit.delivery.stream import StreamAck
from mudkit.errors import MudkitError, PredicateError, TokenExpired
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, TimerFired
from mudkit.predicates import Aggregates, Predicate, SubscriptionIndex
from mudkit.systems.mud.messages import (
    FOLLOWER_FROM_BACK_END,
    PROCESSOR_FROM_GATEWAY,
    PROCESSOR_FROM_NOTIFICATION_SERVER,
    ClientMoved,
    CollectEntry,
    ContinuousReadAck,
    DropEntry,
    EncodedError,
    LeftRead,
    Log,
    NewGeneration,
    PartitionRead,
    ReaderDataUpdate,
    Registration,
    RoutedWrite,
    Row,
    RowEntry,
    SessionGone,
    TableEntry,
    TablesState,
    Tell,
    Unregistration,
    Upsert,
    Whereabouts,
    encode_error,
    netid_of,
    processor_index,
    server_index,
)
from mudkit.systems.mud.servers.log_follower import BEGIN, LogFollower
from mudkit.systems.mud.servers.stream_sender import AGAIN, StreamSender
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.records import keys_digest
from mudkit.systems.mud.tables.replica import JoinedTables, TableReplica, is_visible, record_of, visible_row
from mudkit.systems.mud.tables.table import Table, no_such_table_error
from mudkit.systems.receiving import Accepts, record_dropped
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value

ReadKey: TypeAlias = tuple[str, str]
"""Endpoint ``netid/appid``, and incarnation and number of the continuous read there."""


@dataclass(slots=True)
class _Reader:
    """Predicate, data and verified identity of the reader of a continuous read."""

    predicate: Predicate
    data: Fields
    auth: Mapping[str, str]


class Matching:
    """Matching of new versions with the continuous reads of one table.

    The index finds all matches at once. If a predicate fails in it, each read is evaluated alone, so that
    only reads whose predicates fail are affected. Reads that look up records in other tables are always
    evaluated alone: each reader sees other records there. Changes of those tables affect later writes only.
    """

    def __init__(self, copy: TableReplica) -> None:
        self._copy = copy
        self._index = SubscriptionIndex()
        self._joining: dict[ReadKey, _Reader] = {}
        self._indexed: dict[ReadKey, _Reader] = {}
        """Reads in the index."""

    def add(self, read_key: ReadKey, predicate: Predicate, data: Fields, auth: Mapping[str, str]) -> None:
        """Add a continuous read with the data and the verified identity of its reader."""
        reader = _Reader(predicate, data, auth)
        if tables_of(predicate):
            self._joining[read_key] = reader
            return
        self._index.add(read_key, predicate, receiver=data, auth=auth)
        self._indexed[read_key] = reader

    def replace_reader_data(self, read_key: ReadKey, data: Fields) -> None:
        """Replace the data of the reader of a continuous read, for later matches."""
        if read_key in self._joining:
            self._joining[read_key].data = data
            return
        self._index.update(read_key, receiver=data)
        self._indexed[read_key].data = data

    def remove(self, read_key: ReadKey) -> None:
        """Remove a continuous read, which must have been added."""
        if self._joining.pop(read_key, None) is None:
            del self._indexed[read_key]
            self._index.remove(read_key)

    def match(self, row: Row, table: Table) -> tuple[list[ReadKey], dict[ReadKey, MudkitError]]:
        """Return the continuous reads that a new version reaches, and those whose predicates fail on it.

        The version has data. The first are those whose predicate is TRUE and to whose reader the writer shows
        the record, in order of adding; reads that join come last. A writer predicate that fails hides the
        record. Predicates are not evaluated on hidden records: a failure would reveal them.
        """
        record = record_of(row, table)
        failed: dict[ReadKey, MudkitError] = {}
        try:
            reached = self._index.match(record, None if row.predicate is None else row.predicate.predicate())
        except PredicateError:  # also if a writer predicate has a lookup, which the index does not support
            reached = self._match_one_by_one(row, table, record, failed)
        for read_key, reader in self._joining.items():
            if self._is_shown(row, table, reader) and self._matches_read(read_key, reader, record, failed):
                reached.append(read_key)
        return reached, failed

    def _match_one_by_one(
        self,
        row: Row,
        table: Table,
        record: Fields,
        failed: dict[ReadKey, MudkitError],
    ) -> list[ReadKey]:
        """Return the indexed reads that a version reaches, one by one, as the index fails on it."""
        indexed = self._indexed
        try:
            matching = self._index.match(record)
        except PredicateError:
            return [
                read_key
                for read_key, reader in indexed.items()
                if self._is_shown(row, table, reader) and self._matches_read(read_key, reader, record, failed)
            ]
        return [read_key for read_key in matching if self._is_shown(row, table, indexed[read_key])]

    def _matches_read(
        self, read_key: ReadKey, reader: _Reader, record: Fields, failed: dict[ReadKey, MudkitError]
    ) -> bool:
        """Return whether the predicate of one read is TRUE of a record; store the error if it fails."""
        tables = JoinedTables(self._copy, reader.data, reader.auth)
        try:
            return reader.predicate(record, tables=tables, receiver=reader.data, auth=reader.auth) is True
        except MudkitError as error:
            failed[read_key] = error
            return False

    def _is_shown(self, row: Row, table: Table, reader: _Reader) -> bool:
        """Return whether the writer of a version shows it to a reader."""
        tables = JoinedTables(self._copy, reader.data, reader.auth)
        return is_visible(row, reader.data, reader.auth, table, tables)


_TIMEOUT_US: Final = 1_000_000
_MAX_TIMEOUT_US: Final = 10_000_000
_OfContinuousRead: TypeAlias = Registration | ReaderDataUpdate | Unregistration


@dataclass
class _ContinuousRead:
    """A continuous read, as far as it concerns this processor.

    ``lsn`` is the position of the log at its registration: later changes are sent. ``data_seq`` numbers the
    reader's ``data``. ``keys`` are those of the records that the reader was sent. A reader of ``aggregates``
    was sent their last ``state`` instead, of these records.
    """

    request: int
    session: str
    address: str
    table: Table
    claims: Claims | None
    lsn: int
    data_seq: int
    data: Fields
    keys: set[str] = field(default_factory=set)
    aggregates: Aggregates | None = None
    state: list[Value] = field(default_factory=list)


class Processor:
    """Machine of a processor; ``number`` is its index, ``servers`` are the notification servers."""

    def __init__(
        self,
        ports: Ports,
        number: int,
        processors: int,
        back_end: str,
        replicas: Sequence[str],
        gateways: Sequence[str],
        servers: Sequence[str],
    ) -> None:
        self._accepts: dict[
            str, Accepts[Log | TablesState] | Accepts[PartitionRead | RoutedWrite | _OfContinuousRead]
            | Accepts[SessionGone | ClientMoved | StreamAck],
        ] = {
            back_end: FOLLOWER_FROM_BACK_END,
            **dict.fromkeys(gateways, PROCESSOR_FROM_GATEWAY),
            **dict.fromkeys(servers, PROCESSOR_FROM_NOTIFICATION_SERVER),
        }  # fmt: skip
        self._store = ports.store
        self._me = ports.address
        self._number, self._processors = number, processors
        self._back_end, self._replicas, self._servers = back_end, replicas, servers
        self._log = LogFollower(back_end, ports.entropy)
        self._generation = 0
        self._turn = 0
        self._reads: dict[ReadKey, _ContinuousRead] = {}
        self._reads_of_session: dict[str, dict[ReadKey, None]] = {}
        """Keys of the continuous reads, by session, in the order of registration."""
        self._ended: set[ReadKey] = set()
        """Handles that their clients have unregistered."""
        self._early_data: dict[ReadKey, tuple[int, Fields]] = {}
        """Number and data of readers that have overtaken a registration."""
        self._matching: dict[int, Matching] = {}
        """By the number of the table."""
        self._shown_to: dict[tuple[int, str], set[ReadKey]] = {}
        """Readers that were sent a record, by the number of the table and the key."""
        self._senders: dict[str, StreamSender[Tell | NewGeneration | Whereabouts]] = {}
        """By the address of the notification server."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                accepts = self._accepts.get(source)
                message = None if accepts is None else accepts.decode(event.message)
                return record_dropped(event) if message is None else self._receive(now_us, event, message)
            case LinkUp():
                return self._begin_start(now_us)
            case TimerFired(name=name):
                if name == BEGIN:
                    return self._log.retransmit_request(now_us)
                return self._senders[name.removeprefix(AGAIN)].retransmit_overdue(now_us)
        return ()

    def _receive(
        self,
        now_us: int,
        event: Received,
        message: Log
        | TablesState
        | PartitionRead
        | RoutedWrite
        | _OfContinuousRead
        | SessionGone
        | ClientMoved
        | StreamAck,
    ) -> Sequence[Effect]:
        """Handle a message that its sender may send, by its kind."""
        match message:
            case Log() | TablesState():
                return self._receive_log(now_us, event, message)
            case PartitionRead():
                return (Send(self._choose_address(message), message),)
            case RoutedWrite():
                return (Send(self._back_end, message),)
            case Registration():
                return self._register_read(now_us, message)
            case ReaderDataUpdate():
                return self._replace_reader_data(message)
            case Unregistration(endpoint=endpoint, handle=number):
                self._end_read((endpoint, number))
                self._ended.add((endpoint, number))
                return (self._build_ack(message, message.data_seq),)
            case StreamAck(stream=stream, seq=seq):
                sender = self._senders.get(event.source)
                is_current = sender is not None and sender.name == stream
                return sender.ack_up_to(now_us, seq) if sender is not None and is_current else ()
            case SessionGone(session=session):
                ended = [
                    read_key
                    for read_key in self._reads_of_session.get(session, ())
                    if message.endpoint in (UNSET, read_key[0])  # a client cannot end another's reads
                ]
                addresses = {self._reads[read_key].address: None for read_key in ended}
                is_proven = any(self._reads[read_key].claims is not None for read_key in ended)
                for read_key in ended:
                    self._end_read(read_key)
                if isinstance(message.endpoint, str):
                    sender = self._senders[event.source]
                    for address in list(addresses)[-1:]:
                        return sender.send(now_us, Whereabouts(message.endpoint, address, is_proven))
            case ClientMoved(session=session, endpoint=endpoint, address=address):
                for read_key in self._reads_of_session.get(session, ()):
                    if read_key[0] == endpoint:  # a client cannot move another's reads
                        self._reads[read_key].address = address
                return (Send(event.source, message),)
        return ()

    def _receive_log(self, now_us: int, event: Received, message: Log | TablesState) -> Sequence[Effect]:
        """Follow the log by new entries or its whole state; one of another log begins a new generation."""
        copy = self._log.copy
        if not self._log.accept_log(message):
            return (
                self._log.acknowledge(),
            )  # of another incarnation: a later or a former one, or the store was wiped
        # Readers were sent what a back end that was restored from a backup does not have.
        effects = () if self._log.copy is copy else self._begin_generation(now_us)
        if not self._log.is_consistent(message):
            return *effects, *record_dropped(event)
        if isinstance(message, TablesState):
            return *effects, *self._log.load_state(now_us, message)
        return *effects, *self._apply_log(now_us, message)

    def _begin_start(self, now_us: int) -> Sequence[Effect]:
        """Report to the notification servers that the continuous reads of the former generation are lost."""
        return () if self._generation else [*self._begin_generation(now_us), *self._log.request_state(now_us)]

    def _begin_generation(self, now_us: int) -> Sequence[Effect]:
        """Begin another generation, without continuous reads: after a start, or when the log was restored."""
        self._reads, self._reads_of_session, self._ended, self._early_data = {}, {}, set(), {}
        self._matching, self._shown_to = {}, {}
        # A restored store has an old generation.
        self._generation = max((self._store.get("life", int) or 0) + 1, now_us)
        self._store.put("life", self._generation)
        effects = [effect for sender in self._senders.values() for effect in sender.close()]
        for server in self._servers:
            sender = StreamSender[Tell | NewGeneration | Whereabouts](
                f"{self._me} {self._generation}", server, server, _TIMEOUT_US, _MAX_TIMEOUT_US, us_per_byte=0
            )
            self._senders[server] = sender
            effects += sender.send(now_us, NewGeneration(self._me, self._generation))
        return effects

    def _choose_address(self, read: PartitionRead) -> str:
        """Choose the machine that answers a read, the replicas in turn; return its address."""
        if read.latest or not self._replicas:
            return self._back_end
        self._turn += 1
        return self._replicas[self._turn % len(self._replicas)]

    # -- changes

    def _apply_log(self, now_us: int, log: Log) -> Sequence[Effect]:
        """Apply the new entries of the log, and send their changes to the reads that they concern."""
        if self._log.lsn < 0:
            return self._log.request_state(now_us)
        effects: list[Effect] = []
        for entry in self._log.take_entries(log):
            if isinstance(entry, RowEntry | CollectEntry):
                self._log.copy.apply(entry)
                effects += self._match(now_us, entry) if isinstance(entry, RowEntry) else ()
                continue
            before = self._log.copy.tables.get(
                entry.name if isinstance(entry, DropEntry) else entry.table.name
            )
            self._log.copy.apply(entry)
            effects += self._end_excluded_reads(now_us, before, entry)
        return [*effects, self._log.acknowledge()]

    def _match(self, now_us: int, entry: RowEntry) -> Sequence[Effect]:
        """Send a new version to the continuous reads that it reaches or no longer reaches."""
        row = entry.row
        table = self._log.copy.tables[entry.name]
        if processor_index(table.number, table.partition_of(row.key), self._processors) != self._number:
            return ()
        readers = self._shown_to.get((table.number, row.key), set())
        matching = self._matching.get(table.number)
        reached: list[ReadKey] = []
        effects: list[Effect] = []
        if matching is not None and row.data is not None:
            reached, failed = matching.match(row, table)
            for read_key, error in failed.items():
                effects += self._refuse_read(now_us, read_key, error.summary, is_alone=True)
        for read_key in reached:
            effects += self._tell(now_us, read_key, row, entry.lsn)
        for read_key in sorted(readers - set(reached)):
            effects += self._tell(now_us, read_key, LeftRead(row.key, row.ver), entry.lsn)
        return effects

    def _tell(
        self, now_us: int, read_key: ReadKey, change: Row | LeftRead, lsn: int | None
    ) -> Sequence[Effect]:
        """Send a change to a reader; ``lsn`` None: the record existed before the registration."""
        read = self._reads[read_key]
        if read.claims is not None and read.claims.expires_s <= now_us / 1e6:
            return self._refuse_read(now_us, read_key, "its token has expired")
        if isinstance(change, Row):
            self._record_shown(read_key, read, change.key)
            if read.aggregates is not None:
                return self._send_aggregates(now_us, read_key, read, read.aggregates)
            shown = visible_row(change, read.table)
            assert shown.data is not None
            upsert = Upsert(shown.key, shown.ver, shown.data, shown.predicate, shown.ts_us, shown.lsn)
            return self._send_tell(now_us, read_key, change=upsert, lsn=lsn)
        read.keys.discard(change.key)
        self._shown_to.get((read.table.number, change.key), set()).discard(read_key)
        if read.aggregates is not None:
            return self._send_aggregates(now_us, read_key, read, read.aggregates)
        return self._send_tell(now_us, read_key, change=change, lsn=lsn)

    def _send_aggregates(
        self, now_us: int, read_key: ReadKey, read: _ContinuousRead, aggregates: Aggregates
    ) -> Sequence[Effect]:
        """Send the state of a read's aggregates if it has changed; end the read if they fail on a record."""
        rows = [self._log.copy.row_of(read.table, key) for key in sorted(read.keys)]
        try:
            state = list(aggregates.of([record_of(row, read.table) for row in rows if row is not None]))
        except MudkitError as error:
            return self._refuse_read(now_us, read_key, error.summary, is_alone=True)
        if state == read.state:
            return ()
        read.state = state
        return self._send_tell(now_us, read_key, state=state)

    def _record_shown(self, read_key: ReadKey, read: _ContinuousRead, key: str) -> None:
        """Note that a reader was sent a record, so that it is notified when the record leaves the read."""
        read.keys.add(key)
        self._shown_to.setdefault((read.table.number, key), set()).add(read_key)

    def _send_tell(
        self,
        now_us: int,
        read_key: ReadKey,
        *,
        change: Upsert | LeftRead | UnsetType = UNSET,
        lsn: int | UnsetType | None = UNSET,
        synced_lsn: int | UnsetType = UNSET,
        ended: str | UnsetType = UNSET,
        is_alone: bool | UnsetType = UNSET,
        state: list[Value] | UnsetType = UNSET,
    ) -> Sequence[Effect]:
        """Send a Tell about a read, in the stream to the notification server of its device."""
        endpoint, number = read_key
        read = self._reads[read_key]
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
            state=state,
            log_incarnation=self._log.log_incarnation or UNSET,
        )
        server = self._servers[server_index(netid_of(endpoint), len(self._servers))]
        return self._senders[server].send(now_us, tell)

    def _end_excluded_reads(
        self, now_us: int, before: Table | None, entry: TableEntry | DropEntry
    ) -> Sequence[Effect]:
        """End the continuous reads that an altered or dropped table no longer admits."""
        if before is None:
            return ()
        effects: list[Effect] = []
        reads = {
            read_key: read for read_key, read in self._reads.items() if read.table.number == before.number
        }
        for read_key, read in reads.items():
            if isinstance(entry, DropEntry):
                effects += self._refuse_read(now_us, read_key, "the table was dropped")
                continue
            read.table = entry.table
            try:
                entry.table.check_access(read.claims)
            except MudkitError as error:
                effects += self._refuse_read(now_us, read_key, error.summary)
        return effects

    def _refuse_read(
        self, now_us: int, read_key: ReadKey, why: str, *, is_alone: bool = False
    ) -> Sequence[Effect]:
        """End a continuous read and notify its client; ``is_alone``: other processors have no reason to."""
        effects = self._send_tell(now_us, read_key, ended=why, is_alone=True if is_alone else UNSET)
        self._end_read(read_key)
        return effects

    # -- continuous reads

    def _register_read(self, now_us: int, message: Registration) -> Sequence[Effect]:
        """Begin a continuous read, or acknowledge it again; ignore it until the log is at ``min_lsn``."""
        read_key: ReadKey = message.endpoint, message.handle
        if self._log.lsn < message.min_lsn or read_key in self._ended:
            return ()  # not yet, or no longer: a client without an answer repeats it
        try:
            table = self._check_table(now_us, message)
            known = self._reads.get(read_key)
            effects: list[Effect] = []
            if known is None or known.request < message.request:
                sent: set[str] = set() if known is None else known.keys
                delivered, unknown = self._recall_delivered(table, message, sent)
                if unknown:
                    return (self._build_ack(message, message.data_seq, unknown=unknown),)
                self._end_read(read_key)
                delivered |= sent  # some of these may arrive only after this registration
                if known is not None:
                    self._early_data[read_key] = known.data_seq, known.data  # an update may have overtaken it
                effects += self._begin_read(now_us, read_key, table, message, delivered)
                effects += self._send_tell(now_us, read_key, synced_lsn=self._log.lsn)
        except MudkitError as error:
            return (self._build_ack(message, message.data_seq, error=encode_error(error)),)
        # A late duplicate, too, gets the position of the registration: later changes may be lost.
        read = self._reads[read_key]
        return [*effects, self._build_ack(message, read.data_seq, lsn=read.lsn)]

    def _check_table(self, now_us: int, message: Registration) -> Table:
        """Return the table of a registration; raise MudkitError if it or the token is not valid any more."""
        tables, claims = self._log.copy.tables, message.claims
        table = tables.get(message.name)
        if table is None or not table.has_partitions(message.table, message.partitions):
            raise no_such_table_error(message.name, tables, claims)
        if claims is not None and claims.expires_s <= now_us / 1e6:
            raise TokenExpired("This token has expired.", where="token", remedy="take a new one")
        table.check_access(claims)
        return table

    def _recall_delivered(
        self, table: Table, message: Registration, sent: set[str]
    ) -> tuple[set[str], list[int]]:
        """Return the keys of a registration's delivered records, and the buckets whose keys it has to name.

        A digest is compared with that of the records which the read has at its position if none of them has
        changed since, and with that of ``sent``, the keys of what this generation has sent it.
        """
        delivered, unknown = set(message.delivered), list[int]()
        if message.digests is UNSET:
            return delivered, unknown
        guesses = [table.buckets_of(self._matching_keys(table, message)), table.buckets_of(sent)]
        for bucket, digest in message.digests:
            if table.partition_of_bucket(bucket) in message.partitions:
                known = [guess[bucket] for guess in guesses if bucket in guess]
                keys = next((keys for keys in known if keys_digest(keys) == digest), None)
                if keys is None:
                    unknown.append(bucket)
                else:
                    delivered.update(keys)
        return delivered, unknown

    def _matching_keys(self, table: Table, message: Registration) -> list[str]:
        """Return the keys of the matching records that are not newer than a registration's position."""
        since_lsn = message.since_lsns.get(self._me, -1)
        begun_lsn = (message.begun_lsns or {}).get(self._me, since_lsn)
        sync_us = message.sync_us
        predicate, auth = message.predicate.predicate(), {} if message.claims is None else message.claims.auth
        return [
            row.key
            for partition in message.partitions
            for row in self._log.copy.select(table, partition, predicate, None, message.reader, auth)
            if row.lsn <= since_lsn and (row.lsn > begun_lsn if sync_us is None else row.ts_us >= sync_us)
        ]

    def _begin_read(
        self, now_us: int, read_key: ReadKey, table: Table, message: Registration, delivered: set[str]
    ) -> Sequence[Effect]:
        """Store a continuous read, and send the existing records that it requests.

        ``delivered`` are the keys of the records that it was sent. Raise MudkitError if the predicate fails;
        then nothing is stored.
        """
        predicate, copy = message.predicate.predicate(), self._log.copy
        auth = {} if message.claims is None else message.claims.auth
        sent = message.data_seq, message.reader
        data_seq, data = max(sent, self._early_data.pop(read_key, sent), key=itemgetter(0))
        existing = [
            row
            for partition in message.partitions
            for row in copy.select(table, partition, predicate, None, data, auth)
        ]
        aggregates, state = None, []
        if message.aggregate is not UNSET:
            aggregates = Aggregates(message.aggregate)
            state = list(aggregates.of([record_of(row) for row in existing]))
        self._matching.setdefault(table.number, Matching(copy)).add(read_key, predicate, data, auth)
        read = _ContinuousRead(
            message.request, message.session, message.address, table, message.claims, self._log.lsn,
            data_seq, data, aggregates=aggregates, state=state,
        )  # fmt: skip
        self._reads[read_key] = read
        self._reads_of_session.setdefault(read.session, {})[read_key] = None
        if aggregates is not None:
            for row in existing:
                self._record_shown(read_key, read, row.key)
            return self._send_tell(now_us, read_key, state=state)
        since_lsn, sync_us = message.since_lsns.get(self._me), message.sync_us
        stale: set[str] = set()
        """Records delivered in versions that the log may have lost."""
        if since_lsn is not None:
            shared_lsn = self._log.shared_lsn((message.log_incarnations or {}).get(self._me, ""))
            if since_lsn > shared_lsn:
                since_lsn, stale = shared_lsn, delivered
        effects: list[Effect] = []
        for row in existing:
            if row.key in stale or (
                row.lsn > since_lsn if since_lsn is not None else sync_us is not None and row.ts_us >= sync_us
            ):
                effects += self._tell(now_us, read_key, row, None)
            elif row.key in delivered:
                self._record_shown(read_key, read, row.key)
        for key in sorted(delivered - read.keys):
            if table.partition_of(key) not in message.partitions:
                continue
            known = copy.row_of(table, key)
            if known is None or not is_visible(known, data, auth, table, JoinedTables(copy, data, auth)):
                # This reveals that the record is not visible, not whether it exists.
                effects += self._tell(now_us, read_key, LeftRead(key, None), None)
                continue
            self._record_shown(read_key, read, key)
            if since_lsn is None or known.lsn > since_lsn or key in stale:
                effects += self._tell(now_us, read_key, LeftRead(key, known.ver), None)
        return effects

    def _replace_reader_data(self, message: ReaderDataUpdate) -> Sequence[Effect]:
        """Use newer data of a reader for later writes, and answer with the number of the data in use."""
        read_key: ReadKey = message.endpoint, message.handle
        read = self._reads.get(read_key)
        if read is None:  # a registration with older data may still be in flight
            if message.data_seq > self._early_data.get(read_key, (0, {}))[0]:
                self._early_data[read_key] = message.data_seq, message.reader
            return (self._build_ack(message, message.data_seq),)
        if message.data_seq > read.data_seq:
            read.data_seq, read.data = message.data_seq, message.reader
            self._matching[read.table.number].replace_reader_data(read_key, message.reader)
        return (self._build_ack(message, read.data_seq),)

    def _build_ack(
        self,
        message: _OfContinuousRead,
        data_seq: int,
        *,
        lsn: int | None = None,
        error: EncodedError | UnsetType = UNSET,
        unknown: list[int] | UnsetType = UNSET,
    ) -> Send:
        """Build the acknowledgement of a request about a continuous read, for its gateway."""
        registered = ContinuousReadAck(
            id=message.id,
            generation=self._generation,
            lsn=self._log.lsn if lsn is None else lsn,
            data_seq=data_seq,
            error=error,
            log_incarnation=self._log.log_incarnation or UNSET,
            unknown=unknown,
        )
        return Send(message.reply, registered)

    def _end_read(self, read_key: ReadKey) -> None:
        """Forget a continuous read, if there is one of this handle."""
        read = self._reads.pop(read_key, None)
        if read is None:
            return
        del self._reads_of_session[read.session][read_key]
        if not self._reads_of_session[read.session]:
            del self._reads_of_session[read.session]
        self._matching[read.table.number].remove(read_key)
        for key in read.keys:
            self._shown_to[read.table.number, key].discard(read_key)
