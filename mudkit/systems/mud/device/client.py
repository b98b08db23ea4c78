"""Machine of a client (Mobius 2, 4, 5): calls of an application, and messages of the cloud.

It consists of parts, each with its rules in its docstring: the local store, writes, reads, continuous reads,
and the requests to the gateways. Its messages go over the service of the device, which it attaches to at each
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.notices import Notices
from mudkit.delivery.session import rollback_incident
from mudkit.display import View, first_rows
from mudkit.errors import MudkitError, ParameterError, TokenExpired
from mudkit.events import (
    Call,
    Cancel,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Ports,
    Received,
    Send,
    TimerFired,
)
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.attachment import (
    CLIENT_FROM_SERVICE,
    SERVICE,
    DelayOver,
    DeviceShared,
    EvictRows,
    GatewayLost,
    PassedOn,
    SessionState,
    StoreUse,
)
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.connection import (
    RETRY,
    Administering,
    Answer,
    Connection,
    PendingAsk,
    PendingRead,
    Registering,
    Reporting,
    Updating,
    Writing,
    error_in,
)
from mudkit.systems.mud.device.continuous_reads import ContinuousReads
from mudkit.systems.mud.device.followed import FollowedQueries
from mudkit.systems.mud.device.joined_reads import JoinedReads
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.device.new_writes import NewWrites
from mudkit.systems.mud.device.own_reads import OWN
from mudkit.systems.mud.device.own_tables import OwnTables, table_exists_error
from mudkit.systems.mud.device.planning import Planner, UtilityWrites
from mudkit.systems.mud.device.policy_slot import (
    PolicySlots,
    ShippedPolicy,
    ShippedPrefetches,
    ShippedReads,
    ShippedWrites,
)
from mudkit.systems.mud.device.read_order import ReadOrder
from mudkit.systems.mud.device.read_path import LOOK, OFFLINE, Prefetching, ReadPath
from mudkit.systems.mud.device.usage import USAGE, Usage
from mudkit.systems.mud.device.write_outcomes import WriteOutcomes
from mudkit.systems.mud.device.write_path import WritePath
from mudkit.systems.mud.device.write_requests import DUE, WriteRequests
from mudkit.systems.mud.messages.parts import app_of, decode_error
from mudkit.systems.mud.messages.requests import (
    Administered,
    AdministrationRequest,
    AlterRequest,
    CreateRequest,
    DropRequest,
    LogRestarted,
    PartsComplete,
    RequestRefused,
    WriteOutcome,
)
from mudkit.systems.mud.operations import (
    Alter,
    AwaitSynced,
    ClientOperation,
    CommitBatch,
    Create,
    Drop,
    Listen,
    ListHeld,
    ListPending,
    ListPolicies,
    ListReads,
    Read,
    Register,
    Renew,
    Unregister,
    UpdateData,
    Write,
)
from mudkit.systems.mud.policies.policies import PrefetchPolicy, ReadPolicy, WritePolicy
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.tables.records import plain
from mudkit.systems.mud.tables.table import Table, check_name, claims_text
from mudkit.systems.receiving import record_dropped
from mudkit.tokens import Claims, claimed
from mudkit.wire import Fields, as_wire

_OnTable = TypeVar("_OnTable", Write, CommitBatch, Read, Register)


@dataclass(frozen=True)
class Settings:
    """Identity of a client, limits, and policies.

    ``read_policy`` None: the utility of each read decides; ``write_policy`` None: that of each write;
    ``prefetch_policy`` None: no prefetching; ``usage_cell_km`` None: usage is not reported.
    """

    netid: str
    app: str
    token: str | None
    max_rows: int
    read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None
    write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None
    prefetch_policy: PrefetchPolicy | ShippedPolicy[PrefetchPolicy] | None
    max_waiting: int
    keep_deleted_us: int
    usage_cell_km: float | None = None


class ClientMachine:
    """Machine of one app on a device: passes each event to the part of the client that it concerns."""

    def __init__(self, ports: Ports, settings: Settings) -> None:
        endpoint = f"{settings.netid}/{settings.app}"
        self._ports, self._store = ports, ports.store
        self._policy_slots = PolicySlots(ports.store)
        self.local = Local(ports, settings.max_rows)
        self._keep_deleted_us, self._collects_us = settings.keep_deleted_us, 0
        self._reported: StoreUse | None = None
        """Use of the store that the service of a shared device knows; None: the device is not shared."""
        self._connection = Connection(
            endpoint,
            _latest_token(ports.store.get("token", str), settings.token),
        )
        self._connection.log_incarnation = self.local.log_incarnation
        order, self._planner = ReadOrder(self.local), Planner()
        self._access = Access(ports.store, self.local, self._connection)
        new_writes = NewWrites(self.local, endpoint, self._build_write_policy(settings.write_policy))
        self._requests = WriteRequests(self.local, self._connection, self._planner, order)
        self._outcomes = WriteOutcomes(ports.store, self.local, self._requests, self._planner)
        self._writes = WritePath(self.local, new_writes, self._requests, self._outcomes, order, self._access)
        followed = FollowedQueries(self.local)
        self._cache = Cache(self.local, self._access, followed)
        self._reads = ReadPath(
            self.local,
            self._cache,
            self._planner,
            self._connection,
            self._access,
            self._build_read_policy(settings.read_policy),
            self._requests,
            order,
        )
        self._own = OwnTables(ports, endpoint)
        self._joins = JoinedReads(self._own, self.local, self._access, self._reads)
        self._prefetching = None
        prefetch_policy = self._build_prefetch_policy(settings.prefetch_policy)
        if prefetch_policy is not None:
            self._prefetching = Prefetching(
                self._cache, self._planner, prefetch_policy, self._reads, self._record_fetch
            )
        self.continuous_reads = ContinuousReads(
            ports,
            self.local,
            self._own,
            self._access,
            followed,
            self._cache,
            self._connection,
            self._policy_slots,
            settings.max_waiting,
        )
        cell_km = settings.usage_cell_km
        self._usage = None if cell_km is None else Usage(self._connection, cell_km)

    def _build_read_policy(self, policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None) -> ReadPolicy | None:
        """Return the read policy; one that follows shipped policies gets a slot for them."""
        if not isinstance(policy, ShippedPolicy):
            return policy
        self._policy_slots.follow("read")
        return ShippedReads(self._policy_slots, policy.fallback)

    def _build_write_policy(self, policy: WritePolicy | ShippedPolicy[WritePolicy] | None) -> WritePolicy:
        """Return the write policy; one that follows shipped policies gets a slot for them."""
        if not isinstance(policy, ShippedPolicy):
            return UtilityWrites(self._planner) if policy is None else policy
        self._policy_slots.follow("write")
        fallback = UtilityWrites(self._planner) if policy.fallback is None else policy.fallback
        return ShippedWrites(self._policy_slots, fallback)

    def _build_prefetch_policy(
        self, policy: PrefetchPolicy | ShippedPolicy[PrefetchPolicy] | None
    ) -> PrefetchPolicy | None:
        """Return the prefetch policy; one that follows shipped policies gets a slot for them."""
        if not isinstance(policy, ShippedPolicy):
            return policy
        self._policy_slots.follow("prefetch")
        return ShippedPrefetches(self._policy_slots, policy.fallback)

    def _record_fetch(self, now_us: int, query: Query) -> None:
        """Note a prefetch in the usage of the app, if that is reported."""
        if self._usage is not None:
            self._usage.record_fetch(now_us, query, self._reads.context)

    def overview(self) -> View:
        """Return the view of its state: user, counts, pending writes and continuous reads."""
        local, reads = self.local, self.continuous_reads.reads()
        claims = self._connection.claimed
        return View(
            "",
            {
                "user": None if claims is None else claims.user,
                "records held": local.row_count,
                "pending writes": len(local.writes),
                "cached answers": self._cache.size,
                "continuous reads": len(reads),
            },
            [
                first_rows(
                    ("table", "key", "write", "record"),
                    ((item.name, item.key, item.type, _written_text(item)) for item in local.writes),
                    len(local.writes),
                    "Pending writes",
                ),
                first_rows(
                    ("handle", "table", "predicate", "records"),
                    (
                        (item.handle, item.name, item.predicate.text, len(read.delivered))
                        for read in reads
                        for item in [read.stored]
                    ),
                    len(reads),
                    "Continuous reads",
                ),
            ],
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        effects = self._handle(now_us, event)
        if self._usage is not None:
            effects = self._usage.observe(now_us, effects)
        if self._reported is None or (use := self._store_use()) == self._reported:
            return effects
        self._reported = use
        return [*effects, Send(SERVICE, use)]

    def _handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Pass an event to the part of the client that it concerns; begin this start with the first one."""
        if not self._connection.incarnation:
            return [*self._begin_start(now_us), *self._handle(now_us, event)]
        if now_us >= self._collects_us:
            self._collects_us = now_us + self._keep_deleted_us // 7
            self.local.collect_tombstones(now_us - self._keep_deleted_us)
        match event:
            case Call():
                try:
                    return self._handle_call(now_us, event.op_id, event.operation)
                except MudkitError as error:
                    return (Complete(event.op_id, error=error),)
            case Received(source=source):
                return self._receive(now_us, event) if source == SERVICE else record_dropped(event)
            case LinkUp(network=network):
                self._planner.record_link_up(network)
                self._requests.add_following(now_us)
                cleared, asks = self._connection.link_up()
                self.continuous_reads.end_greeting(now_us)
                return [*cleared, *self._resend(now_us, asks), *self._prefetch(now_us)]
            case LinkDown():
                self._planner.record_link_down(now_us)
                self.continuous_reads.end_greeting(now_us)
                return [*self._connection.link_down(), *self._reads.await_network()]
            case Cancel(op_id=op_id):
                cancelled = [*self._writes.cancel(now_us, op_id), *self._reads.cancel(now_us, op_id)]
                if not cancelled:
                    return ()
                shown = self.continuous_reads.show_all_writes()
                return [*cancelled, *shown, *self._reads.answer_unblocked(now_us)]
            case TimerFired(name=name):
                return self._handle_timer(now_us, name)
            case ContextChanged(context=context):
                self._reads.context = context
        return ()

    def what_blocks(self, now_us: int, op_id: int) -> tuple[str, str] | None:
        """Return what blocks a call, other than the network, and what to do about it; None: nothing.

        The error of a call that is not answered in time says so (:class:`~mudkit.errors.OperationTimeout`).
        """
        if not self._writes.lacks_token(now_us, op_id):
            return None
        return "the token of its app has expired, and the write waits for a valid one", "renew(token)"

    def _store_use(self) -> StoreUse:
        """Return how many committed records are held, and since when."""
        return StoreUse(self.local.max_rows, self.local.row_count, self.local.oldest_us)

    def _begin_start(self, now_us: int) -> Sequence[Effect]:
        """Begin this start: attach to the service, repeat notices, and send the pending writes."""
        self._connection.incarnation = self.local.writes.incarnation
        reads = self.continuous_reads
        return [*reads.attach(), *reads.repeat_notices(now_us), *self._requests.advance(now_us)]

    def _handle_timer(self, now_us: int, name: str) -> Sequence[Effect]:
        """Do what a timer of this name was set for; no effect for any other name."""
        match name:
            case t if t == RETRY:
                return self._retransmit_overdue(now_us)
            case t if t == DUE:
                return self._requests.advance(now_us)
            case t if t == LOOK:
                return self._prefetch(now_us)
            case t if t == OFFLINE:
                return self._reads.end_offline(now_us)
            case t if t == USAGE and self._usage is not None:
                return self._usage.report_latest(now_us)
            case t if t == OWN:
                return self.continuous_reads.begin_own(now_us)
            case Notices.TIMER:
                self.continuous_reads.clear_notices()
        return ()

    # -- calls

    def _handle_call(self, now_us: int, op_id: int, operation: ClientOperation) -> Sequence[Effect]:
        """Carry out an operation of the application; a MudkitError that it raises completes the call."""
        match operation:
            case Read():
                if self._own.tables and self._joins.concerns(operation):
                    return self._joins.read(now_us, op_id, operation)
                operation = self._check_table(operation)
                self._planner.record_read(now_us, operation.table)
                if self._usage is not None:
                    self._usage.record_read(now_us, op_id, operation, self._reads.context)
                effects = self._reads.read(now_us, op_id, operation)
                if self._prefetching is not None:
                    self._prefetching.record_read(now_us, operation)
                return effects
            case Write():
                if self._own.tables and operation.table in self._own:
                    return self._write_own(now_us, op_id, operation)
                operation = self._check_table(operation)
                self._access.check_table_access(now_us, operation.table)
                written = self._writes.write(now_us, op_id, operation, self._reads.context)
                if self._usage is not None:
                    self._usage.record_write(now_us, operation, self._reads.context)
                return [*written, *self.continuous_reads.show_write(operation)]
            case CommitBatch():
                if operation.table in self._own:
                    return self._write_own(now_us, op_id, operation)
                operation = self._check_table(operation)
                self._access.check_table_access(now_us, operation.table)
                written = self._writes.write_batch(now_us, op_id, operation, self._reads.context)
                if self._usage is not None:
                    self._usage.record_batch(now_us, operation, self._reads.context)
                return [*written, *self.continuous_reads.show_write(operation)]
            case Register():
                operation = self._check_table(operation)
                self._joins.check_continuous(operation)
                self._access.check_table_access(now_us, operation.table)
                begun = self.continuous_reads.register(now_us, op_id, operation)
                if self._usage is not None and operation.table not in self._own:
                    self._usage.record_registration(now_us, operation, self._reads.context)
                return begun
            case Listen():
                return self.continuous_reads.listen(now_us, op_id, operation)
            case AwaitSynced():
                return self.continuous_reads.await_synced(op_id, operation)
            case ListReads():
                return (Complete(op_id, self.continuous_reads.describe()),)
            case UpdateData():
                return self.continuous_reads.update_data(now_us, op_id, operation)
            case Unregister():
                return self.continuous_reads.unregister(now_us, op_id, operation)
            case ListPolicies():
                return (Complete(op_id, self._policy_slots.describe()),)
            case ListPending():
                return (Complete(op_id, self._writes.pending()),)
            case Renew():
                return self._renew(now_us, op_id, operation.token)
            case ListHeld(table=name) if name in self._own:
                return (Complete(op_id, self._own.holdings(name)),)
            case ListHeld():
                name = check_name(operation.table)
                return (
                    Complete(
                        op_id, list(self.local.holdings(name, operation.reader, self._access.auth, now_us))
                    ),
                )
            case Create(where="device"):
                return self._own.create(
                    op_id, operation, app_of(self._connection.endpoint), self.local.tables
                )
            case Create(table=name) if name in self._own:
                raise table_exists_error(name, "on this device", "use another name")
            case Alter(table=name) if name in self._own:
                altered = self._own.alter(op_id, operation)
                return [*self.continuous_reads.deliver_own(now_us, name), *altered]
            case Drop(table=name) if name in self._own:
                dropped = self._own.drop(op_id, name)
                return [*self.continuous_reads.deliver_own(now_us, name), *dropped]
            case Create() | Alter() | Drop():
                return self._connection.send_request(now_us, *_build_administration(op_id, operation))
        raise TypeError(f"{type(operation).__name__} is no operation of a client of MUD tables")

    def _write_own(self, now_us: int, op_id: int, operation: Write | CommitBatch) -> Sequence[Effect]:
        """Commit a write or a batch to a table on the device, and deliver it to the reads of the table."""
        keys, written = self._own.write(now_us, op_id, operation, self._reads.context)
        return [*self.continuous_reads.deliver_own_writes(now_us, operation.table, keys), *written]

    def _check_table(self, operation: _OnTable) -> _OnTable:
        """Return an operation whose table has a checked name; raise ParameterError for an unusable one."""
        if type(operation.table) is str and operation.table in self.local.tables:
            return operation
        return replace(operation, table=check_name(operation.table))

    def _renew(self, now_us: int, op_id: int, token: str) -> Sequence[Effect]:
        """Use another token of the same app and user, durably; attach with it, and send what waited for it.

        Raise MudkitError, without effect, if it is of another app, user or device, or has expired.
        """
        new, old = claimed(token), self._connection.claimed
        if new is None or old is None or (new.app, new.user) != (old.app, old.user):
            raise ParameterError(
                "The token is of another app or user.",
                where="token",
                found=claims_text(new),
                expected=claims_text(old),
                remedy="make another client for another user, or if this one has no token",
            )
        new.check(now_us / 1e6, self._connection.netid)
        self._store.put("token", token)
        self._connection.use_token(token)
        return [*self.continuous_reads.attach(), *self._requests.send_with_new_token(now_us), Complete(op_id)]

    def _prefetch(self, now_us: int) -> Sequence[Effect]:
        """Fetch the answers that the prefetch policy selects, if there is one."""
        return () if self._prefetching is None else self._prefetching.prefetch(now_us, self._reads.context)

    # -- messages

    def _receive(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message of the device's service."""
        message = CLIENT_FROM_SERVICE.decode(event.message)
        match message:
            case None:
                return record_dropped(event)
            case SessionState():
                return self.continuous_reads.receive_session(now_us, message)
            case PassedOn(body=body):
                return self.continuous_reads.receive_notification(now_us, body)
            case GatewayLost():
                return self._connection.expedite(now_us)
            case DeviceShared():
                self._requests.shares_device, self._reported = True, self._store_use()
                return (Send(SERVICE, self._reported),)
            case EvictRows(keep_rows=keep_rows, until_us=until_us):
                self.local.evict_oldest(keep_rows, until_us)
                return ()
            case DelayOver():
                return self._requests.send_delayed(now_us)
            case LogRestarted():
                return self._follow_restart(now_us, message)
        return self._receive_answer(now_us, event, message)

    def _receive_answer(self, now_us: int, event: Received, answer: Answer) -> Sequence[Effect]:
        """Store a part of an answer, or settle the request that it completes and pass the answer on.

        Then queued writes are sent for which the window has room. Late answers have no other effect.
        """
        if not self._connection.can_answer(answer):
            return record_dropped(event)
        self._planner.record_use(now_us)
        if isinstance(answer, PartsComplete | WriteOutcome | Administered) and isinstance(
            answer.claims, Claims
        ):
            self._access.record_verified(answer.claims)
        ask = self._connection.receive_answer(answer)
        if ask is None:
            return ()
        effects = [*self._connection.settle_request(now_us, ask), *self._process_answer(now_us, ask, answer)]
        return [*effects, *self._requests.send(now_us, self._connection.take_queued())]

    def _follow_restart(self, now_us: int, answer: LogRestarted) -> Sequence[Effect]:
        """Remove what the back end's log no longer has, and send the requests in flight again.

        What was lost is recorded as an incident. No effect for a late answer.
        """
        connection = self._connection
        if (
            not connection.is_unanswered(answer.id)
            or answer.former_log_incarnation != connection.log_incarnation
        ):
            return ()
        self._outcomes.forget_early_answers()
        lost = self.local.go_back(answer.log_incarnation, answer.shared_lsn)
        connection.log_incarnation = answer.log_incarnation
        effects, asks = connection.rename_in_flight(now_us)
        what = f"entries of the log that this client has seen are gone: {lost}"
        incident = [rollback_incident("back end of MUD tables", what)] if lost else ()
        return [*incident, *effects, *self._resend(now_us, asks)]

    def _process_answer(self, now_us: int, ask: PendingAsk, answer: Answer) -> Sequence[Effect]:
        """Pass the complete answer to a settled request to the part of the client that has sent it."""
        match ask.work:
            case PendingRead() as query:
                return self._reads.receive_answer(now_us, query, ask, answer)
            case Writing(seq=seq):
                return self._finish_write(now_us, seq, answer)
            case Registering() as work:
                return self.continuous_reads.finish_registration(now_us, work, ask, answer)
            case Updating() as work:
                return self.continuous_reads.finish_update(now_us, work, answer)
            case Administering() as work:
                return self._finish_administration(work, answer)
            case Reporting():
                assert self._usage is not None
                self._usage.finish_report()
                return ()

    def _finish_write(self, now_us: int, seq: int, answer: Answer) -> Sequence[Effect]:
        """Process the outcome of a write, show it in continuous reads, and continue what waited for it.

        Reads that wait for earlier writes fail if the token has expired.
        """
        assert isinstance(answer, WriteOutcome | RequestRefused)
        parts = self.local.parts_of(self.local.writes[seq])
        effects = [*self._outcomes.receive(now_us, seq, answer)]
        results = (answer, *(answer.others or ())) if isinstance(answer, WriteOutcome) else ()
        versions = [result.ver for result in results if result.ver is not UNSET]
        effects += self.continuous_reads.show_outcomes(parts, versions or None)
        error = error_in(answer)
        if error is not None and error.kind == TokenExpired.__name__:
            others = self._reads.refuse_waiting(now_us, decode_error(error))
        else:
            others = self._reads.answer_unblocked(now_us)
        return [*effects, *others, *self._requests.advance(now_us)]

    def _finish_administration(self, work: Administering, answer: Answer) -> Sequence[Effect]:
        """Complete the call of an administration; store the table first, or forget the one dropped."""
        error = error_in(answer)
        if error is not None:
            return (Complete(work.op_id, error=decode_error(error)),)
        assert isinstance(answer, Administered)
        if isinstance(answer.table, Table):
            self.local.store_table(answer.table)
        elif answer.dropped is not UNSET:
            self.local.forget_tables(work.request.name, answer.dropped + 1)
        return (Complete(work.op_id),)

    def _retransmit_overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit overdue requests after their common timer has fired."""
        effects = self._resend(now_us, self._connection.overdue_asks(now_us))
        return [*effects, *self._connection.timer.restart(now_us)]

    def _resend(self, now_us: int, asks: Sequence[PendingAsk]) -> Sequence[Effect]:
        """Send requests, built as of now, for the first time or again, as far as they may be sent.

        Writes go together, in the order in which they were made.
        """
        effects: list[Effect] = []
        writes: dict[int, PendingAsk] = {}
        for ask in asks:
            if isinstance(ask.work, Writing):
                writes[ask.work.seq] = ask
                continue
            if not self._connection.admit_or_queue(ask):
                continue
            match ask.work:
                case PendingRead() as query:
                    ask.request = self._reads.build_request(query)
                case Registering() | Updating() as work:
                    ask.request = self.continuous_reads.build_request(work)
            effects += self._connection.send(now_us, ask)
        return [*effects, *self._requests.send(now_us, [writes[seq] for seq in sorted(writes)])]


def _written_text(write: PendingWrite) -> object:
    """Return what a pending write writes, for a display."""
    return as_wire(write.changes) if write.changes is not None else write.data or "delete"


def _build_administration(
    op_id: int, operation: Create | Alter | Drop
) -> tuple[Administering, AdministrationRequest]:
    """Build the request to create, alter or drop a table; raise ParameterError for unusable properties."""
    request: AdministrationRequest
    match operation:
        case Create():
            name = Table.create(operation.table, "", operation.properties, 0).name
            request = CreateRequest(name, _plain_properties(operation.properties))
        case Alter():
            name = check_name(operation.table)
            Table(name, "").alter(operation.properties, 0)
            request = AlterRequest(name, _plain_properties(operation.properties))
        case Drop():
            request = DropRequest(check_name(operation.table), {})
    return Administering(op_id, request), request


def _plain_properties(properties: Fields) -> Fields:
    """Return the properties of a table as JSON holds them."""
    return {name: value and plain(value) for name, value in properties.items()}


def _latest_token(stored: str | None, given: str | None) -> str | None:
    """Return the token that is valid for longer: the renewed one, unless a newer one was given since."""
    renewed, new = claimed(stored), claimed(given)
    if renewed is None or new is None or (renewed.app, renewed.user) != (new.app, new.user):
        return given
    return stored if renewed.expires_s > new.expires_s else given
