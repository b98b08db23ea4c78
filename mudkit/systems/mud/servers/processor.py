"""Processor: routes reads and writes of its partitions, and matches changes with their continuous reads.

Its rules (Mobius 4.2, 5). Continuous reads are soft state, lost in a restart:

=================  ===================================================================================
any message        dropped unless its sender may send it
ReadRequest        to the back end if its route requires the latest version, else to a replica, and to the
                   next one if that is not reached, or when the client repeats it: it may be behind
WriteRequest       to the back end, with the interval between reads of its partition if the client asks
Log                follow it, as far as it concerns the rows of its holding
                   (:mod:`~mudkit.systems.mud.servers.needed_rows`). Match each changed row with the
                   continuous reads; send a change to those that it reaches, and to those that it no longer
                   reaches, over the notification server; end a read whose predicate fails on it, with the
                   reason. The rows of a batch are matched when all are applied, and a read is sent their
                   changes in one message
continuous reads   of a partition that it does not serve: answered to the gateway with the assignments
RegisterRequest    at one position of the log: existing records, as far as requested, then all changes; not
                   registered, if digests of delivered records are not known. A read of aggregates is sent
                   their state, now and whenever a change of its records changes it. Told that its first
                   state is complete once the back end has confirmed the position
                   (:mod:`~mudkit.systems.mud.servers.unsynced_reads`). One that is ahead of the log, or whose
                   rows are requested, is kept until they are there
UpdateDataRequest  in effect for later writes, unless newer data of this reader arrived before
UnregisterRequest  end the read; a late duplicate of its registration does not begin it again
Mastership         another store of the back end is the master: requests and acknowledgements go to it
SessionGone        end the reads of a session that the notification server has given up; if it does not
                   know the client any more, send it the address
DeviceMoved        store the address of a session's device, which a restored notification server may lack
Assignments        (:mod:`~mudkit.systems.mud.servers.ranges`) of which the notification server of a read is
                   another one now: end the read, and send that one the address of the device, which
                   registers it again from its position. Report a server that acknowledges nothing.
                   Of which a partition of a read is another processor's now: end its part of the read,
                   and tell the client. Discard the rows of partitions that have moved away, and
                   request those of partitions that have moved here. Of which it has no range at all, so that
                   it was taken for dead, or has one again: begin another generation, without reads
WatchedQueries     of the policy generator: count the changes of their answers, and report them
                   (:mod:`~mudkit.systems.mud.servers.change_counts`)
Probe              of the naming machine: answered
=================  ===================================================================================

What continuous reads are sent is in :mod:`~mudkit.systems.mud.servers.served_reads`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.stream import StreamAck
from mudkit.errors import MudkitError, TokenExpired
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SendFailed, TimerFired
from mudkit.systems.mud.messages.naming import PROCESSOR_FROM_NAMING, Assignments, AssignmentsRequest, Probe
from mudkit.systems.mud.messages.notifications import (
    PROCESSOR_FROM_NOTIFICATION_SERVER,
    DeviceMoved,
    SessionGone,
    Whereabouts,
)
from mudkit.systems.mud.messages.partitions import write_partitions
from mudkit.systems.mud.messages.parts import EncodedError, encode_error, netid_of, server_of_session
from mudkit.systems.mud.messages.requests import (
    ContinuousReadAck,
    ContinuousReadRequest,
    ReadRequest,
    RegisterRequest,
    Request,
    UnregisterRequest,
    UpdateDataRequest,
    WriteRequest,
)
from mudkit.systems.mud.messages.servers import (
    PROCESSOR_FROM_BACK_END,
    PROCESSOR_FROM_GATEWAY,
    CollectEntry,
    DropEntry,
    Log,
    LookupEntry,
    ReadOrWrite,
    Route,
    Routed,
    RowEntry,
    TablesState,
)
from mudkit.systems.mud.messages.standbys import Mastership
from mudkit.systems.mud.messages.usage import PROCESSOR_FROM_GENERATOR, WatchedQueries
from mudkit.systems.mud.servers.change_counts import CHANGES, ChangeCounts
from mudkit.systems.mud.servers.device_streams import DeviceStreams
from mudkit.systems.mud.servers.known_master import KnownMaster
from mudkit.systems.mud.servers.log_follower import BEGIN, LogFollower
from mudkit.systems.mud.servers.matching import ReadKey
from mudkit.systems.mud.servers.needed_rows import choose_holding, has_needed_rows
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.read_rates import ReadRates
from mudkit.systems.mud.servers.registered_reads import ReadPositions
from mudkit.systems.mud.servers.served_reads import ServedReads
from mudkit.systems.mud.servers.unsynced_reads import POSITION, UnsyncedReads
from mudkit.systems.mud.tables.table import Table, no_such_table_error
from mudkit.systems.receiving import Accepts, record_dropped

_MAX_ASKED: Final = 10_000
"""Reads of which a processor knows the replica that was asked."""
_MAX_EARLY: Final = 10_000
"""Registrations that are kept until the log is where they have to be."""


class Processor:
    """Machine of a processor, one of ``processors``.

    ``stores`` are those of the back end, ``servers`` the notification servers, and ``naming`` is the naming
    machine. ``generator`` is the policy generator of a cloud that learns.
    """

    def __init__(
        self,
        ports: Ports,
        processors: Sequence[str],
        stores: Sequence[str],
        replicas: Sequence[str],
        gateways: Sequence[str],
        servers: Sequence[str],
        naming: str,
        generator: str | None = None,
    ) -> None:
        self._accepts: dict[
            str, Accepts[Log | TablesState | Mastership | Assignments]
            | Accepts[Routed[ReadOrWrite | ContinuousReadRequest] | Assignments]
            | Accepts[SessionGone | DeviceMoved | StreamAck | Assignments]
            | Accepts[Assignments | AssignmentsRequest | Probe | Mastership]
            | Accepts[WatchedQueries],
        ] = {
            **dict.fromkeys(stores, PROCESSOR_FROM_BACK_END),
            **dict.fromkeys(gateways, PROCESSOR_FROM_GATEWAY),
            **dict.fromkeys(servers, PROCESSOR_FROM_NOTIFICATION_SERVER),
            naming: PROCESSOR_FROM_NAMING,
            **({} if generator is None else {generator: PROCESSOR_FROM_GENERATOR}),
        }  # fmt: skip
        self._store = ports.store
        self._me = ports.address
        self._ranges = Ranges(ports, naming, servers, processors)
        self._master, self._replicas = KnownMaster(ports, naming, stores), replicas
        self._streams = DeviceStreams(ports, self._ranges, servers)
        holding = self._ranges.build_holding(self._me) if len(processors) > 1 else None
        self._log = LogFollower(self._master.address, ports.entropy, holding)
        self._generation = 0
        self._turn = 0
        self._last_places: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        """Place of the replica that was asked last, and how many in turn were not reached, by read."""
        self._read_rates = ReadRates(0)
        self._changes = ChangeCounts(generator)
        self._ended: set[ReadKey] = set()
        """Handles that their clients have unregistered."""
        self._early: dict[ReadKey, tuple[Routed[Request], RegisterRequest]] = {}
        """Last registration of each read that is ahead of the log."""
        self._unsynced = UnsyncedReads()
        self._served = ServedReads(self._me, self._ranges, self._log, self._streams, self._unsynced)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                accepts = self._accepts.get(source)
                message = None if accepts is None else accepts.decode(event.message)
                effects = None if message is None else self._receive(now_us, event, message)
                return record_dropped(event) if effects is None else effects
            case LinkUp():
                return self._begin_start(now_us)
            case TimerFired(name=name):
                if name == BEGIN:
                    return self._log.retransmit_request(now_us)
                if name == CHANGES:
                    return self._changes.report()
                if name == POSITION:
                    return self._unsynced.ask_again(now_us, self._log)
                return self._streams.retransmit(now_us, name)
            case SendFailed(to=to, message=Routed() as routed) if to in self._replicas:
                return self._pass_to_next(routed)
        return ()

    def count_rows(self) -> int:
        """Return how many rows it holds, those of deleted records included, for a display."""
        return self._log.copy.count_rows()

    def _receive(
        self,
        now_us: int,
        event: Received,
        message: Log
        | TablesState
        | Routed[ReadOrWrite | ContinuousReadRequest]
        | SessionGone
        | DeviceMoved
        | StreamAck
        | Assignments
        | AssignmentsRequest
        | Probe
        | Mastership
        | WatchedQueries,
    ) -> Sequence[Effect] | None:
        """Handle a message that its sender may send, by its kind; None: it is to be dropped."""
        match message:
            case Routed():
                return self._receive_request(now_us, message, message.what)
            case StreamAck():
                return self._streams.ack(now_us, event.source, message)
            case Log() | TablesState():
                if event.source != self._master.address:
                    return self._master.ask(event.source)
                return self._receive_log(now_us, event, message)
            case Assignments() if not self._ranges.fits(message):
                return None
            case Assignments() | AssignmentsRequest() | Probe():
                was_serving, followed = self._ranges.is_serving(self._me), list[Effect]()
                if isinstance(message, Assignments) and self._ranges.take(message):
                    followed = [*self._follow_assignments(now_us, was_serving=was_serving)]
                    followed += self._change_holding(now_us)
                return [*followed, *self._ranges.answer(event.source, message)]
            case WatchedQueries():
                return self._changes.watch(now_us, message)
            case Mastership():
                taken = self._master.take(event.source, message)
                self._log.back_end = self._master.address
                return taken
            case SessionGone(session=session):
                ended = [
                    read_key
                    for read_key in self._served.of_sessions.of(session)
                    if message.endpoint in (UNSET, read_key[0])  # a client cannot end another's reads
                ]
                addresses = {self._served.reads[read_key].address: None for read_key in ended}
                is_proven = any(self._served.reads[read_key].claims is not None for read_key in ended)
                for read_key in ended:
                    self._served.end(read_key)
                released = self._release_tables(now_us)
                if isinstance(message.endpoint, str):
                    for address in list(addresses)[-1:]:
                        report = Whereabouts(message.endpoint, address, is_proven)
                        return *released, *self._streams.send(now_us, report)
                return released
            case DeviceMoved(session=session, endpoint=endpoint, address=address):
                for read_key in self._served.of_sessions.of(session):
                    if netid_of(read_key[0]) == netid_of(endpoint):  # a device cannot move another's reads
                        self._served.reads[read_key].address = address
                return (Send(event.source, message),)

    def _receive_request(
        self,
        now_us: int,
        routed: Routed[Request],
        what: ReadOrWrite | ContinuousReadRequest,
    ) -> Sequence[Effect]:
        """Pass a read or write on; handle a request about a continuous read of partitions that it serves.

        Reads and writes that another one should have got are passed on all the same.
        """
        route = routed.route
        is_misrouted = not self._ranges.serves(self._me, route.table, route.partitions)
        if is_misrouted and isinstance(what, ContinuousReadRequest):
            return (Send(route.reply, self._ranges.present),)
        match what:
            case WriteRequest():
                return (Send(self._master.address, self._add_read_interval(now_us, routed, what)),)
            case ReadRequest():
                self._record_read(now_us, routed.route, what)
                return (Send(self._choose_address(routed.id, routed.route), routed),)
            case RegisterRequest():
                return self._register_read(now_us, routed, what)
            case UpdateDataRequest():
                return self._replace_reader_data(now_us, routed, what)
            case UnregisterRequest():
                read_key: ReadKey = routed.verified.endpoint, what.handle
                self._served.end(read_key)
                self._ended.add(read_key)
                self._early.pop(read_key, None)
                return *self._release_tables(now_us), self._build_ack(routed, what.data_seq)

    def _receive_log(self, now_us: int, event: Received, message: Log | TablesState) -> Sequence[Effect]:
        """Follow the log by new entries or its whole state; one of another log begins a new generation."""
        copy, lineage = self._log.copy, self._log.lineage
        if not self._log.accept_log(message):
            return (
                self._log.acknowledge(now_us),
            )  # of another incarnation: a later or a former one, or the store was wiped
        # Readers were sent what a back end that was restored from a backup does not have.
        effects = [] if self._log.copy is copy else [*self._begin_generation(now_us)]
        if not self._log.is_consistent(message):
            return *effects, *record_dropped(event)
        if isinstance(message, TablesState):
            effects += [*self._log.load_state(now_us, message), *self._change_holding(now_us)]
            is_answered = False
        else:
            effects += self._apply_log(now_us, message)
            is_answered = self._log.confirm(message)
        effects += self._register_early(now_us)
        if is_answered:
            for read_key in self._unsynced.take_synced(self._log):
                effects += self._served.tell(now_us, read_key, synced_lsn=self._log.lsn)
        if is_answered or self._log.lineage != lineage:
            effects += self._unsynced.ask_next(now_us, self._log)
        return [*effects, *self._release_tables(now_us)]

    def _begin_start(self, now_us: int) -> Sequence[Effect]:
        """Report to the notification servers that the continuous reads of the former generation are lost."""
        return () if self._generation else [*self._begin_generation(now_us), *self._log.request_state(now_us)]

    def _begin_generation(self, now_us: int) -> Sequence[Effect]:
        """Begin another generation, without continuous reads: after a start, or when the log was restored."""
        self._ended, self._early = set(), {}
        self._read_rates = ReadRates(now_us)
        # A restored store has an old generation. Devices may know that the ones up to the epoch have ended.
        self._generation = max((self._store.get("life", int) or 0) + 1, now_us, self._ranges.epoch + 1)
        self._store.put("life", self._generation)
        self._served.begin_generation(self._generation)
        ended = *self._unsynced.clear(), *self._change_holding(now_us)
        begun = self._changes.begin(self._generation)
        return *ended, *self._streams.begin(now_us, self._generation), *begun

    def _change_holding(self, now_us: int) -> Sequence[Effect]:
        """Follow the entries of the rows that are needed now, and of no others."""
        if self._log.holding is None:
            return ()
        own = self._ranges.build_holding(self._me)
        waiting = (registration for _, registration in self._early.values())
        needed = choose_holding(own, self._log, self._served.matching.values(), waiting)
        return self._log.change_holding(now_us, needed)

    def _release_tables(self, now_us: int) -> Sequence[Effect]:
        """Follow no table whole any more that only reads have looked up that have ended."""
        holding = self._log.holding
        return () if holding is None or not holding.tables else self._change_holding(now_us)

    def _follow_assignments(self, now_us: int, *, was_serving: bool) -> Sequence[Effect]:
        """End the reads that are not to be served here any more.

        The devices of sessions with replaced servers are reported to the new ones. The clients of reads of
        partitions that another processor serves now register them anew; that one has none of them before.
        If this processor was replaced, the notification servers report it to all devices. No effect for one
        that has not begun: a message may come before its start.
        """
        if not self._generation:
            return ()
        is_replaced_or_back = self._ranges.is_serving(self._me) is not was_serving
        if is_replaced_or_back and self._generation <= self._ranges.epoch:
            return self._begin_generation(now_us)
        unacknowledged, effects = self._streams.follow_assignments(now_us)
        reports = {report.endpoint: report for report in unacknowledged}
        for read_key, read in list(self._served.reads.items()):
            endpoint = read_key[0]
            if self._streams.is_of_another_server(endpoint, read.session):
                is_proven = read.claims is not None or (endpoint in reports and reports[endpoint].is_proven)
                reports[endpoint] = Whereabouts(endpoint, read.address, is_proven)
                self._served.end(read_key)
            elif not self._ranges.serves(self._me, read.table.number, read.partitions):
                effects = [*effects, *self._served.tell(now_us, read_key, has_moved=True)]
                self._served.end(read_key)
        reported = [effect for report in reports.values() for effect in self._streams.send(now_us, report)]
        return [*effects, *reported]

    def _choose_address(self, identity: str, route: Route) -> str:
        """Choose the machine that answers a read, the replicas in turn; return its address.

        A read that comes again goes to the next replica: the one before may be behind, or lose messages.
        """
        if route.is_latest or not self._replicas:
            return self._master.address
        key = identity, min(route.partitions, default=0)
        former = self._last_places.pop(key, None)
        if former is None:
            self._turn += 1
        place = (self._turn if former is None else former[0] + 1) % len(self._replicas)
        self._last_places[key] = place, 0
        if len(self._last_places) > _MAX_ASKED:
            self._last_places.popitem(last=False)
        return self._replicas[place]

    def _pass_to_next(self, routed: Routed[Request]) -> Sequence[Effect]:
        """Pass a read whose replica is not reached to the next one; not if none of them is reached."""
        key = routed.id, min(routed.route.partitions, default=0)
        place, unreached = self._last_places.get(key, (0, len(self._replicas)))
        if unreached + 1 >= len(self._replicas):
            return ()  # its client repeats it
        place = (place + 1) % len(self._replicas)
        self._last_places[key] = place, unreached + 1
        return (Send(self._replicas[place], routed),)

    def _record_read(self, now_us: int, route: Route, read: ReadRequest) -> None:
        """Count a read of partitions; one by keys counts for their share of a partition's records."""
        table = self._log.copy.tables.get(read.name)
        for partition in route.partitions:
            share = 1.0
            if table is not None and read.keys is not None:
                of_partition = sum(table.partition_of(key) == partition for key in read.keys)
                partitions = max(1, self._log.count_partitions(table))
                per_partition = self._log.copy.key_count(table) / partitions
                share = min(1.0, of_partition / max(1.0, per_partition))
            self._read_rates.record_read(now_us, (route.table, partition), share)

    def _add_read_interval(
        self, now_us: int, routed: Routed[Request], write: WriteRequest
    ) -> Routed[Request]:
        """Return a write with the interval between reads of its partition, if its client asks for it.

        0: another client has a continuous read of the table. Otherwise the write is returned as it is.
        """
        table = self._log.copy.tables.get(write.name)
        if write.asks_read_interval is UNSET or table is None:
            return routed
        partition = table.number, table.partition_of(write.key)
        interval_ms = self._read_rates.interval_ms(now_us, partition)
        matching = self._served.matching.get(table.number)
        if matching is not None and matching.has_reader_besides(routed.verified.endpoint):
            interval_ms = 0
        return replace(routed, route=replace(routed.route, read_interval_ms=interval_ms))

    # -- changes

    def _apply_log(self, now_us: int, log: Log) -> Sequence[Effect]:
        """Apply the new entries of the log, and send their changes to the reads that they concern."""
        if self._log.lsn < 0:
            return self._log.request_state(now_us)
        effects: list[Effect] = []
        together: list[RowEntry] = []
        for entry in self._log.take_entries(log):
            if isinstance(entry, (RowEntry, CollectEntry)):
                if isinstance(entry, RowEntry):
                    effects += self._count_change(now_us, entry)
                self._log.apply(entry)
                together += [entry] if isinstance(entry, RowEntry) else ()
                if together and not together[-1].following:
                    effects += self._served.match(now_us, together)
                    together = []
                continue
            if isinstance(entry, LookupEntry):
                self._log.apply(entry)
                self._log.keep_looked_up(entry)
                continue
            before = self._log.copy.tables.get(
                entry.name if isinstance(entry, DropEntry) else entry.table.name
            )
            self._log.apply(entry)
            effects += self._served.end_excluded(now_us, before, entry)
        return [*effects, self._log.acknowledge(now_us)]

    def _count_change(self, now_us: int, entry: RowEntry) -> Sequence[Effect]:
        """Count an entry for the policy generator before it is applied, if its partition is served here."""
        if not self._changes.is_watching(entry.name):
            return ()
        table, key = self._log.copy.tables[entry.name], entry.row.key
        if self._ranges.processor_of(table.number, table.partition_of(key)) != self._me:
            return ()
        return self._changes.record(now_us, table, self._log.copy.row_of(table, key), entry.row)

    # -- continuous reads

    def _register_read(
        self, now_us: int, routed: Routed[Request], registration: RegisterRequest
    ) -> Sequence[Effect]:
        """Begin a continuous read, or acknowledge it again; keep it until the log is where it has to be."""
        read_key: ReadKey = routed.verified.endpoint, registration.handle
        positions = ReadPositions.of(registration)
        if read_key in self._ended:
            return ()  # it is over: a client without an answer repeats it
        if self._log.lsn < routed.route.min_lsn or self._is_behind(routed.route, positions):
            return self._keep_early(read_key, routed, registration)
        if not has_needed_rows(self._log, routed.route, registration):
            kept = self._keep_early(read_key, routed, registration)
            return *kept, *self._change_holding(now_us)
        if self._streams.is_of_another_server(read_key[0], registration.session):
            return self._report_session(now_us, routed, registration.session)
        try:
            table = self._check_table(now_us, routed, registration)
            effects, unknown = self._served.register(now_us, table, routed, registration, positions)
        except MudkitError as error:
            return (self._build_ack(routed, registration.data_seq, error=encode_error(error)),)
        if unknown:
            return (self._build_ack(routed, registration.data_seq, unknown=unknown),)
        # A late duplicate, too, gets the position of the registration: later changes may be lost.
        read = self._served.reads[read_key]
        return [*effects, self._build_ack(routed, read.data_seq, lsn=read.lsn, partitions=read.partitions)]

    def _keep_early(
        self, read_key: ReadKey, routed: Routed[Request], registration: RegisterRequest
    ) -> Sequence[Effect]:
        """Keep the newest registration of a read until the log is where it has to be."""
        kept = self._early.get(read_key)
        if kept is None or kept[1].request <= registration.request:
            self._early[read_key] = routed, registration
        if len(self._early) > _MAX_EARLY:
            del self._early[next(iter(self._early))]
        return ()

    def _register_early(self, now_us: int) -> Sequence[Effect]:
        """Begin the reads whose registrations were ahead of the log, as far as they are not any more."""
        effects: list[Effect] = []
        for read_key, (routed, registration) in list(self._early.items()):
            del self._early[read_key]
            if self._ranges.serves(self._me, routed.route.table, routed.route.partitions):
                effects += self._register_read(now_us, routed, registration)
        return effects

    def _is_behind(self, route: Route, positions: ReadPositions) -> bool:
        """Return whether a reader has received something that is not in the log here yet.

        Another processor has sent it, which served the partition before.
        """
        for partition in route.partitions:
            log_incarnation = positions.log_incarnations.get(partition, "")
            if log_incarnation == self._log.log_incarnation:
                if positions.since_lsns.get(partition, 0) > self._log.lsn:
                    return True
            elif log_incarnation == route.log_incarnation and log_incarnation not in self._log.lineage:
                return True  # one that its client knows as the present one
        return False

    def _report_session(self, now_us: int, routed: Routed[Request], session: str) -> Sequence[Effect]:
        """Register nothing in a session with a notification server that is not the device's.

        That server may not know the assignments, or this processor: the later ones are sent to the other.
        The device's own server gets its address. The client repeats the registration.
        """
        verified = routed.verified
        report = Whereabouts(verified.endpoint, verified.address, verified.claims is not None)
        return [
            Send(server_of_session(session), self._ranges.present),
            *self._streams.send(now_us, report),
        ]

    def _check_table(self, now_us: int, routed: Routed[Request], registration: RegisterRequest) -> Table:
        """Return the table of a registration; raise MudkitError if it or the token is not valid any more."""
        tables, claims, route = self._log.copy.tables, routed.verified.claims, routed.route
        table = tables.get(registration.name)
        if table is None or not table.has_partitions(route.table, route.partitions):
            raise no_such_table_error(registration.name, tables, claims)
        if claims is not None and claims.expires_s <= now_us / 1e6:
            raise TokenExpired("This token has expired.", where="token", remedy="take a new one")
        table.check_access(claims)
        return table

    def _replace_reader_data(
        self, now_us: int, routed: Routed[Request], update: UpdateDataRequest
    ) -> Sequence[Effect]:
        """Use newer data of a reader for later writes, and answer with the number of the data in use."""
        read_key: ReadKey = routed.verified.endpoint, update.handle
        effects, data_seq = self._served.replace_reader_data(now_us, read_key, update)
        return *effects, self._build_ack(routed, data_seq)

    def _build_ack(
        self,
        routed: Routed[Request],
        data_seq: int,
        *,
        lsn: int | None = None,
        error: EncodedError | UnsetType = UNSET,
        unknown: list[int] | UnsetType = UNSET,
        partitions: Iterable[int] | None = None,
    ) -> Send:
        """Build the acknowledgement of a request about a continuous read, for its gateway."""
        registered = ContinuousReadAck(
            id=routed.id,
            generation=self._generation,
            lsn=self._log.lsn if lsn is None else lsn,
            data_seq=data_seq,
            error=error,
            log_incarnation=self._log.log_incarnation or UNSET,
            unknown=unknown,
            processor=self._me,
            partitions=write_partitions(routed.route.partitions if partitions is None else partitions),
        )
        return Send(routed.route.reply, registered)
