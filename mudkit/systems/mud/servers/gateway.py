"""Gateway: verifies requests, routes them to the partitions concerned, and returns the answers.

Its rules (Mobius 4.2). It has no durable state: a client without an answer repeats its request.

====================  ==============================================================================
any message           dropped unless its sender may send it; an app only over its device's service
AppsBatch             each part as if it had come alone, with the token of its own app
Ask, AskBatch         verify the token; ask the back end for the table, and for those that a read
                      looks up records in, to which the client must have access, too; then
ReadRequest           to the processor of each partition
WriteRequest          to the processor of its partition
create, alter, drop   to the back end
continuous reads      to each processor of the table's partitions
LogRestarted          to the client, which is to repeat its request
answers               to the client; :class:`PartsComplete` after the last part of a read
====================  ==============================================================================

A request is passed on as its client has sent it, with its route and its verified sender (:class:`Routed`); an
answer goes back as it has come. The table is requested from the back end each time, half a millisecond away:
an altered ACL is in effect as soon as the alteration is answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from msgspec import UNSET

from mudkit.errors import AccessDenied, MudkitError, TokenExpired
from mudkit.events import Effect, Event, Ports, Received, Send
from mudkit.predicates import Aggregates
from mudkit.systems.mud.messages.parts import (
    app_of,
    encode_error,
    is_of_service,
    netid_of,
    processor_index,
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
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.mud.messages.servers import (
    GATEWAY_FROM_BACK_END,
    GATEWAY_FROM_PROCESSOR,
    GATEWAY_FROM_REPLICA,
    Describe,
    Described,
    Route,
    Routed,
    Verified,
)
from mudkit.systems.mud.tables.queries import check_names, tables_of_sent
from mudkit.systems.mud.tables.records import check_record
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.receiving import Accepts, record_dropped
from mudkit.tokens import Authority, Claims

_MAX_OPEN: Final = 10_000
_Answer: TypeAlias = Described | Administered | WriteOutcome | Part | ContinuousReadAck | LogRestarted


@dataclass
class _OpenRequest:
    """An unanswered request.

    ``joined`` names the tables that a read looks up records in; ``places`` are those that answer a part, the
    partitions of a read or the processors of a continuous read, and ``missing`` those that have not answered.
    """

    ask: Ask
    verified: Verified
    joined: Sequence[str]
    table: Table | None = None
    places: list[int | str] = field(default_factory=list)
    missing: set[int | str] = field(default_factory=set)

    def can_answer(self, source: str, message: _Answer) -> bool:
        """Return whether a message of a server can be part of the answer."""
        what = self.ask.what
        match message:
            case LogRestarted():
                return True
            case Part():
                return isinstance(what, ReadRequest)
            case WriteOutcome():
                return isinstance(what, WriteRequest)
            case Administered():
                return isinstance(what, AdministrationRequest)
            case ContinuousReadAck(place=place):
                return isinstance(what, ContinuousReadRequest) and place == source
            case Described(table=table, joined=joined):
                if isinstance(what, AdministrationRequest):
                    return False
                names = [] if table is None else [table.name, *(other.name for other in joined or ())]
                return names in ([], [what.name, *self.joined])


class Gateway:
    """Machine of a gateway; ``authority`` issued the tokens."""

    def __init__(
        self,
        ports: Ports,
        authority: Authority,
        back_end: str,
        processors: Sequence[str],
        replicas: Sequence[str],
    ) -> None:
        self._me = ports.address
        self._authority = authority
        self._back_end = back_end
        self._processors = processors
        self._accepts: dict[
            str,
            Accepts[Described | Administered | WriteOutcome | Part | LogRestarted]
            | Accepts[ContinuousReadAck]
            | Accepts[Part],
        ] = {
            back_end: GATEWAY_FROM_BACK_END,
            **dict.fromkeys(processors, GATEWAY_FROM_PROCESSOR),
            **dict.fromkeys(replicas, GATEWAY_FROM_REPLICA),
        }
        self._open: OrderedDict[str, _OpenRequest] = OrderedDict()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not isinstance(event, Received):
            return ()
        accepts = self._accepts.get(event.source)
        if accepts is None:
            asks = self._decode_requests(event)
            if asks is None:
                return record_dropped(event)
            return [effect for ask in asks for effect in self._open_request(now_us, event.source, ask)]
        message = accepts.decode(event.message)
        request = None if message is None else self._open.get(message.id)
        if message is None or (request is not None and not request.can_answer(event.source, message)):
            return record_dropped(event)
        return () if request is None else self._receive_answer(request, message)

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
        """Check the token of a request, keep it open, and ask the back end for its tables.

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
            if isinstance(what, ReadRequest | RegisterRequest):
                joined = tables_of_sent(what.predicate)
            if not isinstance(what, AdministrationRequest):
                check_record(what.reader, ())
        except MudkitError as error:
            return (_build_refused(source, ask, error),)
        verified = Verified(endpoint=ask.client, address=source, claims=claims, token_error=token_error)
        request = self._open[ask.id] = _OpenRequest(ask, verified, joined)
        self._open.move_to_end(ask.id)
        if len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)
        if isinstance(what, AdministrationRequest):
            return (Send(self._back_end, self._route(request)),)
        describe = Describe(
            id=ask.id,
            name=what.name,
            claims=claims,
            joined=list(joined) or UNSET,
            log_incarnation=ask.log_incarnation,
        )
        return (Send(self._back_end, describe),)

    # -- answers

    def _receive_answer(self, request: _OpenRequest, message: _Answer) -> Sequence[Effect]:
        """Handle a message that belongs to an open request: pass it on, or take the next step."""
        match message:
            case Described():
                return self._receive_description(request, message) if request.table is None else ()
            case Part() | ContinuousReadAck():
                return self._pass_part_on(request, message)
            case Administered() | WriteOutcome() | LogRestarted():
                del self._open[message.id]
                return (Send(request.verified.address, message),)

    def _receive_description(self, request: _OpenRequest, described: Described) -> Sequence[Effect]:
        """Check access to the tables, and pass the request on, or its error back to the client.

        A write is passed on even so: its result may be known.
        """
        what, joined = request.ask.what, described.joined or []
        error = described.error
        if described.table is not None:
            try:
                self._check_tables(request, described.table, joined)
            except MudkitError as problem:
                error = encode_error(problem)
            request.table = described.table
        if isinstance(what, WriteRequest):  # the back end refuses it, unless it was applied before
            partition = 0 if request.table is None else request.table.partition_of(what.key)
            return (Send(self._processor_of(request.table, partition), self._route(request)),)
        if error is not None:
            del self._open[request.ask.id]
            return (Send(request.verified.address, RequestRefused(request.ask.id, error)),)
        if isinstance(what, ReadRequest):
            return self._route_read(request, what, has_joined=bool(joined))
        return self._route_continuous(request, joined)

    def _check_tables(self, request: _OpenRequest, table: Table, joined: Sequence[Table]) -> None:
        """Raise MudkitError unless the client may access the tables, and they have the read's columns."""
        what, tables = request.ask.what, (table, *joined)
        for checked in tables:
            checked.check_access(request.verified.claims)
        if isinstance(what, ReadRequest | RegisterRequest) and any(
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
        table: int = 0,
        partitions: Sequence[int] = (),
        min_lsn: int = 0,
        is_latest: bool = False,
    ) -> Routed[Request]:
        """Build the message that carries a request to a server, for some partitions of a table or none."""
        ask = request.ask
        route = Route(
            reply=self._me,
            table=table,
            partitions=list(partitions),
            min_lsn=min_lsn,
            is_latest=is_latest,
            log_incarnation=ask.log_incarnation,
        )
        return Routed(ask.id, ask.what, route, request.verified)

    def _route_read(self, request: _OpenRequest, read: ReadRequest, *, has_joined: bool) -> Sequence[Effect]:
        """Send each partition that may have records of a read its part, by its processor."""
        table = request.table
        assert table is not None
        partitions: Iterable[int] = range(table.partitions)
        if read.keys is not None:
            partitions = sorted({table.partition_of(key) for key in read.keys})
        request.places, request.missing = list(partitions), set(partitions)
        if not request.missing:
            return self._complete_answer(request)
        seen_lsns = read.seen_lsns if read.table == table.number else {}
        return [
            Send(
                self._processor_of(table, partition),
                self._route(
                    request,
                    table=table.number,
                    partitions=[partition],
                    min_lsn=max(table.lsn, seen_lsns.get(str(partition), 0)),
                    # Joined records must not be older than this reader has seen: the back end has them.
                    is_latest=read.latest or has_joined,
                ),
            )
            for partition in partitions
        ]

    def _route_continuous(self, request: _OpenRequest, joined: Sequence[Table]) -> Sequence[Effect]:
        """Send a request about a continuous read to all processors of the table's partitions."""
        table, what = request.table, request.ask.what
        assert table is not None
        partitions_of: dict[str, list[int]] = {}
        for partition in range(table.partitions):
            partitions_of.setdefault(self._processor_of(table, partition), []).append(partition)
        request.places, request.missing = list(partitions_of), set(partitions_of)
        # Not a later table of the same name.
        number = what.table if isinstance(what, RegisterRequest) and what.table else table.number
        min_lsn = max(one.lsn for one in (table, *joined))
        return [
            Send(processor, self._route(request, table=number, partitions=partitions, min_lsn=min_lsn))
            for processor, partitions in partitions_of.items()
        ]

    def _pass_part_on(self, request: _OpenRequest, message: Part | ContinuousReadAck) -> Sequence[Effect]:
        """Pass a part of an answer on, and complete the answer after the last one."""
        if message.place not in request.missing:
            return ()
        request.missing.discard(message.place)
        passed = Send(request.verified.address, message)
        return (passed,) if request.missing else (passed, *self._complete_answer(request))

    def _complete_answer(self, request: _OpenRequest) -> Sequence[Effect]:
        """Close a request all of whose parts were sent, and report this to the client."""
        assert request.table is not None
        del self._open[request.ask.id]
        verified = request.verified
        complete = PartsComplete(
            id=request.ask.id, table=request.table, claims=verified.claims, places=request.places
        )
        return (Send(verified.address, complete),)

    def _processor_of(self, table: Table | None, partition: int) -> str:
        """Return the address of the processor of a partition; of an unknown table, the first one."""
        count = len(self._processors)
        return self._processors[0 if table is None else processor_index(table.number, partition, count)]


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
