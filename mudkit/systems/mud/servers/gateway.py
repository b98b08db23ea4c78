"""Gateway: verifies requests, routes them to the partitions concerned, and returns the answers.

Its rules (Mobius 4.2). It has no durable state but the assignments: a client without an answer repeats its
request.

====================  ==============================================================================
any message           dropped unless its sender may send it; an app only over its device's service
AppsBatch             each part as if it had come alone, with the token of its own app
Ask, AskBatch         verify the token; wait until the tables are confirmed, or the back end has not
                      answered for a second; check access to the table, and to those that a read
                      looks up records in; report the processors that have not answered the same
                      request for a while; then
ReadRequest           to the processor of each partition
WriteRequest          to the processor of its partition
create, alter, drop   to the back end
continuous reads      to each processor of the table's partitions
UsageReport           to the policy generator, and acknowledged at once: it is a sample, which may lack some
Assignments           (:mod:`~mudkit.systems.mud.servers.ranges`) of later requests, and of the parts of open
                      ones that have not been answered, to the processors that serve them now
SendFailed            report the processor
TableQuestion         answered when the tables are confirmed
Mastership            the requests without an answer go to another master of the back end
answers               to the client; :class:`PartsComplete` after the last part of a read
Log, TablesState      the entries of tables, which the gateway follows, or all tables
====================  ==============================================================================

A request is passed on as its client has sent it, with its route and its verified sender (:class:`Routed`); an
answer goes back as it has come.

An altered ACL is in effect as soon as the alteration is answered
(:mod:`~mudkit.systems.mud.servers.confirmed_tables` has the times). A gateway passes a request on by tables
that lack an entry only if they were confirmed before the entry and at most ``CONFIRMED_US`` ago, or if it has
asked the back end in vain for ``UNANSWERED_US`` since the request came. The back end answers an alteration
when the gateway has acknowledged it, or has not for ``ALONE_US``, while it was sent it every 200 ms: this is
longer than both together, so that no confirmation from before is left. What remains is a gateway that runs
but has no messages from the back end in all that time, and none again later, when it asks: servers of a lab
reach each other, or are down.

While the back end is down, only requests that are admitted are passed on: a refusal may be outdated, and
waits. A client that knows another incarnation of the log than the gateway is asked to repeat its request, by
the lineage in an answer for which the gateway has asked since. If the back end does not answer, one that
knows a former incarnation in the gateway's own lineage is asked all the same: the log has gone on since. Any
other may know a later log than the gateway, and waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.session import last_lsn_of
from mudkit.errors import AccessDenied, MudkitError, TokenExpired
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SendFailed, SetTimer, TimerFired
from mudkit.predicates import Aggregates
from mudkit.systems.mud.messages.naming import (
    GATEWAY_FROM_NAMING,
    Assignments,
    AssignmentsRequest,
    TableAnswer,
    TableQuestion,
)
from mudkit.systems.mud.messages.partitions import read_partitions
from mudkit.systems.mud.messages.parts import (
    app_of,
    encode_error,
    is_of_service,
    netid_of,
)
from mudkit.systems.mud.messages.requests import (
    GATEWAY_FROM_SERVICE,
    Administered,
    AdministrationRequest,
    AppsBatch,
    Ask,
    AskBatch,
    ContinuousReadAck,
    ContinuousReadRequest,
    LogRestarted,
    Part,
    PartsComplete,
    ReadRequest,
    RegisterRequest,
    Request,
    RequestRefused,
    UnregisterRequest,
    UpdateDataRequest,
    UsageTaken,
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.mud.messages.servers import (
    GATEWAY_FROM_BACK_END,
    GATEWAY_FROM_PROCESSOR,
    GATEWAY_FROM_REPLICA,
    Log,
    Route,
    Routed,
    TablesState,
    Verified,
)
from mudkit.systems.mud.messages.standbys import Mastership
from mudkit.systems.mud.messages.usage import UsageReport
from mudkit.systems.mud.servers.confirmed_tables import UNANSWERED_US, ConfirmedTables
from mudkit.systems.mud.servers.known_master import KnownMaster
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.tables.queries import check_names, tables_of_sent
from mudkit.systems.mud.tables.records import check_record
from mudkit.systems.mud.tables.table import Table, no_such_table_error
from mudkit.systems.receiving import Accepts, record_dropped
from mudkit.tokens import Authority, Claims

_MAX_OPEN: Final = 10_000
_ASK: Final = "tables"
"""Name of the timer while requests wait for the tables."""
_ASK_US: Final = 200_000
_UNANSWERED: Final = "unanswered"
SUSPECT_MASTER_US: Final = 2_000_000
"""Time after which a request without an answer is a reason to suspect the master."""
_MAX_WAIT_US: Final = 10_000_000
"""Time for which a request waits for the tables: then its client sends it again."""
_Answer: TypeAlias = Administered | WriteOutcome | Part | ContinuousReadAck | LogRestarted


@dataclass
class _OpenRequest:
    """An unanswered request, which came at a time, and ``first_us`` for the first time.

    ``joined`` names the tables that a read looks up records in; ``number`` is that of the table for the
    processors, and ``least_lsn`` the position in the log that they need. ``places`` are the partitions that
    answer; those that have not are ``unanswered``, each with its processor.
    """

    ask: Ask
    verified: Verified
    joined: Sequence[str]
    came_us: int
    first_us: int
    table: Table | None = None
    number: int = 0
    least_lsn: int = 0
    places: list[int] = field(default_factory=list)
    unanswered: dict[int, str] = field(default_factory=dict)

    def can_answer(self, source: str, message: _Answer) -> bool:
        """Return whether a message of a server can be part of the answer."""
        what = self.ask.what
        match message:
            case WriteOutcome():
                return isinstance(what, WriteRequest)
            case Part():
                return isinstance(what, ReadRequest)
            case LogRestarted():
                return True
            case Administered():
                return isinstance(what, AdministrationRequest)
            case ContinuousReadAck(processor=processor):
                return isinstance(what, ContinuousReadRequest) and processor == source


class Gateway:
    """Machine of a gateway; ``authority`` issued the tokens.

    ``naming`` is the naming machine, whose assignments also have the notification ``servers``.
    """

    def __init__(
        self,
        ports: Ports,
        authority: Authority,
        stores: Sequence[str],
        processors: Sequence[str],
        replicas: Sequence[str],
        servers: Sequence[str],
        naming: str,
        generator: str,
    ) -> None:
        self._me = ports.address
        self._generator = generator
        self._authority = authority
        self._master = KnownMaster(ports, naming, stores)
        self._ranges = Ranges(ports, naming, servers, processors)
        self._accepts: dict[
            str,
            Accepts[Administered | WriteOutcome | Part | LogRestarted | Log | TablesState | Mastership]
            | Accepts[ContinuousReadAck | Assignments]
            | Accepts[Part]
            | Accepts[Assignments | AssignmentsRequest | TableQuestion | Mastership],
        ] = {
            **dict.fromkeys(stores, GATEWAY_FROM_BACK_END),
            **dict.fromkeys(processors, GATEWAY_FROM_PROCESSOR),
            **dict.fromkeys(replicas, GATEWAY_FROM_REPLICA),
            naming: GATEWAY_FROM_NAMING,
        }
        self._tables = ConfirmedTables(self._master.address, ports.entropy)
        self._open: OrderedDict[str, _OpenRequest] = OrderedDict()
        self._waiting: dict[str, None] = {}
        """Identifiers of the requests that wait for the tables, in order."""
        self._is_timer_set = False
        self._is_watching = False
        """True while the timer is set after which unanswered requests show that the master is down."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                accepts = self._accepts.get(source)
                if accepts is not None:
                    return self._receive(now_us, event, accepts.decode(event.message))
                asks = self._decode_requests(event)
                if asks is None:
                    return record_dropped(event)
                return [effect for ask in asks for effect in self._open_request(now_us, source, ask)]
            case LinkUp():
                return self._tables.ask(now_us)
            case TimerFired(name=name):
                if name == _UNANSWERED:
                    return self._suspect_master(now_us)
                self._is_timer_set = False
                return *self._pass_waiting(now_us), *self._ask(now_us, is_again=True)
            case SendFailed(to=to):
                return self._ranges.suspect(now_us, to)
        return ()

    def _receive(
        self,
        now_us: int,
        event: Received,
        message: _Answer
        | Log
        | TablesState
        | Mastership
        | Assignments
        | AssignmentsRequest
        | TableQuestion
        | None,
    ) -> Sequence[Effect]:
        """Handle a message of another server, by its kind; None: its sender may not send it."""
        match message:
            case WriteOutcome() | Part() | ContinuousReadAck() | Administered() | LogRestarted():
                request = self._open.get(message.id)
                if request is None:
                    return ()
                if not request.can_answer(event.source, message):
                    return record_dropped(event)
                return self._receive_answer(request, message)
            case Log() | TablesState():
                if event.source != self._master.address:
                    return self._master.ask(event.source)
                taken = self._tables.receive(now_us, message)
                return *taken, *self._pass_waiting(now_us), *self._ask(now_us)
            case AssignmentsRequest():
                return self._ranges.answer(event.source, message)
            case TableQuestion():
                return self._answer_question(now_us, event.source, message)
            case Assignments() if self._ranges.fits(message):
                return self._receive_assignments(event.source, message)
            case Mastership():
                return self._follow_master(now_us, event, message)
        return record_dropped(event)

    def _decode_requests(self, event: Received) -> list[Ask] | None:
        """Return the requests of a device's apps; None: malformed, or not of the device's service."""
        message = GATEWAY_FROM_SERVICE.decode(event.message)
        if message is None or not is_of_service(event.source):
            return None
        asks: list[Ask] = []
        for part in message.parts if isinstance(message, AppsBatch) else [message]:
            if netid_of(part.client) != event.sender:
                return None
            if isinstance(part, AskBatch):
                asks += [
                    Ask(ask.id, part.client, part.token, ask.what, part.log_incarnation) for ask in part.asks
                ]
            else:
                asks.append(part)
        is_own = all(ask.id.rpartition(" ")[0] == ask.client for ask in asks)
        return asks if is_own else None

    def _open_request(self, now_us: int, source: str, ask: Ask) -> Sequence[Effect]:
        """Check the token of a request, keep it open, and pass it on when the tables are confirmed.

        A token that is refused is answered at once; that of a write may have expired: the back end decides.
        """
        what = ask.what
        claims, token_error = None, None
        if ask.token is not None:
            try:
                claims = self._authority.decode(ask.token)
                _check_app(claims, app_of(ask.client))
                claims.check(now_us / 1e6, netid_of(ask.client))
            except MudkitError as error:
                if not isinstance(what, WriteRequest) or not isinstance(error, TokenExpired):
                    return (_build_refused(source, ask, error),)
                token_error = encode_error(error)  # the back end knows whether it was applied before
        joined: Sequence[str] = ()
        try:
            match what:
                case WriteRequest() | UpdateDataRequest() | UnregisterRequest():
                    check_record(what.reader, ())
                case ReadRequest() | RegisterRequest():
                    joined = tables_of_sent(what.predicate)
                    check_record(what.reader, ())
        except MudkitError as error:
            return (_build_refused(source, ask, error),)
        verified = Verified(endpoint=ask.client, address=source, claims=claims, token_error=token_error)
        if isinstance(what, UsageReport):
            routed = Routed(ask.id, what, Route(reply=self._me), verified)
            return Send(self._generator, routed), Send(source, UsageTaken(ask.id))
        former = self._open.get(ask.id)
        first_us = now_us if former is None else former.first_us
        request = self._open[ask.id] = _OpenRequest(ask, verified, joined, now_us, first_us)
        self._open.move_to_end(ask.id)
        self._waiting.pop(ask.id, None)
        if len(self._open) > _MAX_OPEN:
            self._waiting.pop(self._open.popitem(last=False)[0], None)
        watched = self._watch_answers(now_us)
        if isinstance(what, AdministrationRequest):
            return Send(self._master.address, self._route(request)), *watched
        suspected: list[Effect] = []
        for processor in () if former is None else dict.fromkeys(former.unanswered.values()):
            suspected += self._ranges.suspect_if_silent(now_us, processor, now_us - first_us)
        passed = self._pass_on(now_us, request)
        if passed is not None:
            return [*suspected, *passed, *watched]
        self._waiting[ask.id] = None
        return [*suspected, *self._ask(now_us), *watched]

    # -- the master of the back end

    def _watch_answers(self, now_us: int) -> Sequence[Effect]:
        """Look after a while whether the requests were answered, if another store can become the master."""
        if not self._master.has_standbys or self._is_watching:
            return ()
        self._is_watching = True
        return (SetTimer(_UNANSWERED, SUSPECT_MASTER_US),)

    def _suspect_master(self, now_us: int) -> Sequence[Effect]:
        """Report the master if a request has waited for its answer; look again while there are late ones.

        A request that a client has given up is open for ever: it counts for a while only.
        """
        self._is_watching = False
        came_us = [
            request.came_us for request in self._open.values() if now_us - request.came_us < _MAX_WAIT_US
        ]
        is_late = any(now_us - since_us >= SUSPECT_MASTER_US for since_us in came_us)
        watched = self._watch_answers(now_us) if came_us else ()
        return *(self._master.suspect() if is_late else ()), *watched

    def _follow_master(self, now_us: int, event: Received, mastership: Mastership) -> Sequence[Effect]:
        """Follow a mastership of a higher epoch; another master gets the requests that are not answered."""
        before = self._master.present
        taken = self._master.take(event.source, mastership)
        if taken is None:
            return record_dropped(event)
        if self._master.present.term == before.term:
            return taken
        self._tables.back_end = self._master.address
        late = [request for request in self._open.values() if now_us - request.came_us < _MAX_WAIT_US]
        again = [
            effect
            for request in late
            for effect in self._open_request(now_us, request.verified.address, request.ask)
        ]
        return *taken, *again, *self._ask(now_us, is_again=True)

    # -- waiting for the tables

    def _ask(self, now_us: int, *, is_again: bool = False) -> Sequence[Effect]:
        """Ask for the tables if requests wait for them, and again until none does."""
        if not self._waiting:
            return ()
        effects: list[Effect] = []
        if is_again or not self._tables.is_asking:
            asks = [self._open[identity].ask for identity in self._waiting]
            known = next((ask.log_incarnation for ask in asks if ask.log_incarnation), "")
            effects += self._tables.ask(now_us, known)
        if not self._is_timer_set:
            self._is_timer_set = True
            effects.append(SetTimer(_ASK, _ASK_US))
        return effects

    def _pass_waiting(self, now_us: int) -> Sequence[Effect]:
        """Pass on the requests that need not wait any more; forget those that have waited for too long."""
        effects: list[Effect] = []
        for identity in list(self._waiting):
            request = self._open[identity]
            passed = self._pass_on(now_us, request)
            if passed is None and now_us < request.came_us + _MAX_WAIT_US:
                continue
            del self._waiting[identity]
            if passed is None:
                del self._open[identity]
            else:
                effects += passed
        return effects

    def _pass_on(self, now_us: int, request: _OpenRequest) -> Sequence[Effect] | None:
        """Check access to the tables of a request, and pass it on, or its error back to the client.

        None: it waits for the tables, or for the lineage of the log.
        """
        ask, what, tables = request.ask, request.ask.what, self._tables
        assert not isinstance(what, UsageReport)  # which is about no table
        is_confirmed = tables.is_confirmed(now_us)
        is_unanswered = now_us >= request.came_us + UNANSWERED_US
        if tables.lsn < 0 or not (is_confirmed or is_unanswered):
            return None
        if (ask.log_incarnation or "") != tables.log_incarnation:
            is_asked_since = tables.confirmed_us is not None and tables.confirmed_us >= request.came_us
            is_former = not ask.log_incarnation or ask.log_incarnation in tables.lineage
            is_told = is_asked_since or (is_unanswered and is_former)
            return self._restart_client(request) if is_told else None
        try:
            table, *joined = (self._find_table(name, request) for name in (what.name, *request.joined))
            self._check_tables(request, table, joined)
        except MudkitError as problem:
            if isinstance(what, WriteRequest):  # the back end refuses it, unless it was applied before
                return self._pass_write_on(request, what)
            if not is_confirmed:
                return None
            del self._open[ask.id]
            return (Send(request.verified.address, RequestRefused(ask.id, encode_error(problem))),)
        request.table = table
        match what:
            case WriteRequest():
                return self._pass_write_on(request, what)
            case ReadRequest():
                return self._route_read(request, what)
        return self._route_continuous(request, joined)

    def _find_table(self, name: str, request: _OpenRequest) -> Table:
        """Return a table; raise TableProblem if there is none of this name."""
        tables = self._tables.tables
        if name not in tables:
            raise no_such_table_error(name, tables, request.verified.claims)
        return tables[name]

    def _pass_write_on(self, request: _OpenRequest, write: WriteRequest) -> Sequence[Effect]:
        """Send a write to the processor of its partition, whether or not it will be applied."""
        request.table = self._tables.tables.get(write.name)
        table = request.table
        request.number = 0 if table is None else table.number
        return self._send_parts(request, [0 if table is None else table.partition_of(write.key)])

    def _restart_client(self, request: _OpenRequest) -> Sequence[Effect]:
        """Notify a client that it knows another incarnation of the log than the present one."""
        former, lineage = request.ask.log_incarnation or "", self._tables.lineage
        del self._open[request.ask.id]
        restarted = LogRestarted(
            id=request.ask.id,
            log_incarnation=self._tables.log_incarnation,
            former_log_incarnation=former,
            shared_lsn=max(0, last_lsn_of(lineage, former, self._tables.lsn)),
        )
        return (Send(request.verified.address, restarted),)

    # -- answers

    def _receive_answer(self, request: _OpenRequest, message: _Answer) -> Sequence[Effect]:
        """Pass a message on that belongs to an open request."""
        match message:
            case WriteOutcome() | Administered() | LogRestarted():
                del self._open[message.id]
                self._waiting.pop(message.id, None)
                return (Send(request.verified.address, message),)
            case Part() | ContinuousReadAck():
                return self._pass_part_on(request, message)

    def _check_tables(self, request: _OpenRequest, table: Table, joined: Sequence[Table]) -> None:
        """Raise MudkitError unless the client may access the tables, and they have the read's columns."""
        what, tables = request.ask.what, (table, *joined)
        for checked in tables:
            checked.check_access(request.verified.claims)
        if isinstance(what, (ReadRequest, RegisterRequest)) and any(
            checked.schema is not None for checked in tables
        ):
            predicate = None if what.predicate is None else what.predicate.predicate()
            text = what.aggregate or None
            check_names(table, predicate, None if text is None else Aggregates(text), joined)
            if what.selection is not UNSET:
                what.selection.check_columns(table)

    def _route(
        self,
        request: _OpenRequest,
        *,
        partitions: Sequence[int] = (),
        min_lsn: int = 0,
        is_latest: bool = False,
    ) -> Routed[Request]:
        """Build the message that carries a request to a server, for some partitions of its table or none."""
        ask = request.ask
        route = Route(
            reply=self._me,
            table=request.number if partitions else 0,
            partitions=list(partitions),
            min_lsn=min_lsn,
            is_latest=is_latest,
            log_incarnation=ask.log_incarnation,
        )
        return Routed(ask.id, ask.what, route, request.verified)

    def _route_read(self, request: _OpenRequest, read: ReadRequest) -> Sequence[Effect]:
        """Send each partition that may have records of a read its part, by its processor."""
        table = request.table
        assert table is not None
        partitions: Iterable[int] = range(table.partitions)
        if read.keys is not None:
            partitions = sorted({table.partition_of(key) for key in read.keys})
        request.places, request.number, request.least_lsn = list(partitions), table.number, table.lsn
        if not request.places:
            return self._complete_answer(request)
        return self._send_parts(request, request.places)

    def _route_continuous(self, request: _OpenRequest, joined: Sequence[Table]) -> Sequence[Effect]:
        """Send a request about a continuous read to all processors of the table's partitions."""
        table, what = request.table, request.ask.what
        assert table is not None
        request.places = list(range(table.partitions))
        # Not a later table of the same name: the processors of the number say that there is no such table.
        request.number = what.table if isinstance(what, RegisterRequest) and what.table else table.number
        request.least_lsn = max(one.lsn for one in (table, *joined))
        return self._send_parts(request, request.places)

    def _send_parts(self, request: _OpenRequest, partitions: Iterable[int]) -> Sequence[Effect]:
        """Send a request to the processors of some partitions: a read by partition, others by processor."""
        what, number, partitions_of = request.ask.what, request.number, dict[str, list[int]]()
        for partition in partitions:
            processor = request.unanswered[partition] = self._ranges.processor_of(number, partition)
            partitions_of.setdefault(processor, []).append(partition)
        match what:
            case WriteRequest():
                return [Send(processor, self._route(request)) for processor in partitions_of]
            case ReadRequest():
                seen_lsns = what.seen_lsns if what.table == number else {}
                return [
                    Send(
                        request.unanswered[partition],
                        self._route(
                            request,
                            partitions=[partition],
                            min_lsn=max(request.least_lsn, seen_lsns.get(str(partition), 0)),
                            # Joined records must not be older than this reader has seen.
                            is_latest=what.latest or bool(request.joined),
                        ),
                    )
                    for partition in partitions
                ]
        return [
            Send(processor, self._route(request, partitions=of_processor, min_lsn=request.least_lsn))
            for processor, of_processor in partitions_of.items()
        ]

    # -- assignments

    def _answer_question(self, now_us: int, source: str, question: TableQuestion) -> Sequence[Effect]:
        """Answer what is known of a table; if the tables are not confirmed, only ask for them."""
        if not self._tables.is_confirmed(now_us):
            return self._tables.ask(now_us)
        name, tables = question.name, self._tables.tables
        answer = TableAnswer(name, question.sent_us)
        if name not in tables:
            error = encode_error(no_such_table_error(name, tables))
            return (Send(source, replace(answer, error=error)),)
        table = tables[name]
        return (Send(source, replace(answer, number=table.number, partitions=table.partitions)),)

    def _receive_assignments(self, source: str, assignments: Assignments) -> Sequence[Effect]:
        """Follow assignments of a higher epoch, answer others; send again what another processor serves now.

        A processor that knew less gets the continuous requests again that it has not taken.
        """
        is_behind = assignments.epoch < self._ranges.epoch
        self._ranges.take(assignments)
        effects = [*self._ranges.answer(source, assignments)]
        for request in self._open.values():
            owners = {
                partition: self._ranges.processor_of(request.number, partition)
                for partition in (*request.places, *request.unanswered)
            }
            is_continuous = isinstance(request.ask.what, ContinuousReadRequest)
            again = {
                partition
                for partition, processor in request.unanswered.items()
                if processor != owners[partition] or (is_behind and is_continuous and processor == source)
            }
            if is_continuous:  # a processor registers all that it has of a read together
                changed = {owners[partition] for partition in again}
                again = {partition for partition, owner in owners.items() if owner in changed}
            effects += self._send_parts(request, sorted(again))
        return effects

    def _pass_part_on(self, request: _OpenRequest, message: Part | ContinuousReadAck) -> Sequence[Effect]:
        """Pass a part of an answer on, and complete the answer after the last one."""
        answered = {message.place} if isinstance(message, Part) else {*read_partitions(message.partitions)}
        if request.unanswered.keys().isdisjoint(answered):
            return ()
        for partition in answered:
            request.unanswered.pop(partition, None)
        passed = Send(request.verified.address, message)
        return (passed,) if request.unanswered else (passed, *self._complete_answer(request))

    def _complete_answer(self, request: _OpenRequest) -> Sequence[Effect]:
        """Close a request all of whose parts were sent, and report this to the client."""
        assert request.table is not None
        del self._open[request.ask.id]
        verified = request.verified
        complete = PartsComplete(
            id=request.ask.id, table=request.table, claims=verified.claims, places=request.places
        )
        return (Send(verified.address, complete),)


def _build_refused(to: str, ask: Ask, error: MudkitError) -> Send:
    """Build the message by which a client gets the error of a request."""
    return Send(to, RequestRefused(ask.id, encode_error(error)))


def _check_app(claims: Claims, app: str) -> None:
    """Raise AccessDenied unless a token is of the app that shows it."""
    if claims.app != app:
        raise AccessDenied(
            "The token is of another app.",
            where="token",
            found=f"app {claims.app!r}",
            expected=f"app {app!r}",
            remedy=f"use one for this app: lab.token(user=…, app={app!r})",
        )
