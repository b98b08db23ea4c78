"""Requests of a client to the gateways, retransmitted until they are answered.

Each request has its own deadline (:mod:`mudkit.delivery.retransmit`). Writes are sent within a window of
bytes in flight: after an outage a long queue neither fills the link nor postpones retransmissions. Writes
that may be sent at the same time go together, and have one deadline.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, Send, size_bytes
from mudkit.predicates import Aggregates
from mudkit.systems.mud.device.attachment import SERVICE
from mudkit.systems.mud.device.local import Version
from mudkit.systems.mud.device.read_states import StartedRead
from mudkit.systems.mud.device.stored_read import StoredRead
from mudkit.systems.mud.messages.parts import EncodedError, netid_of
from mudkit.systems.mud.messages.requests import (
    Administered,
    AdministrationRequest,
    Ask,
    AskBatch,
    ContinuousReadAck,
    ContinuousReadRequest,
    IdentifiedRequest,
    Part,
    PartsComplete,
    ReadRequest,
    Request,
    RequestRefused,
    UsageTaken,
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.mud.messages.usage import UsageReport
from mudkit.systems.mud.operations import Offline
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims, claimed

RETRY: Final = "retry"
_TIMEOUT_US: Final = 10_000_000
"""Retransmission timeout; it does not grow: lost registrations of continuous reads must not take minutes."""
_LOST_US: Final = 1_000_000
"""Delay before the next gateway is tried when one cannot be reached."""
MAX_IN_FLIGHT_BYTES: Final = 128 * 1024
"""Window of writes: more than the fastest link holds in a round trip."""
MAX_BATCH_BYTES: Final = 32 * 1024
"""Bytes of the writes in one message: a link that is up for some seconds passes it even at 10 kB/s."""


Answer: TypeAlias = (
    Part | ContinuousReadAck | RequestRefused | PartsComplete | WriteOutcome | Administered | UsageTaken
)


# -- requests in flight, by purpose


class CoveredQuery(Struct, frozen=True):
    """Query of which the answer to another one, ``by`` of ``at_us``, covers a part; ``rest`` is what remains.

    ``losses`` counts the records of the table that had been evicted when this was found.
    """

    by: Query
    at_us: int
    rest: Query
    losses: Counter[int]


class ReadAnswer(Struct, frozen=True):
    """Versions of the records that match a read, by key; ``remote`` has the keys of those from the cloud."""

    versions: Mapping[str, Version]
    remote: Collection[str]
    is_complete: bool


class PendingRead(Struct, frozen=True):
    """A read that is not answered, with the only keys that can match.

    Its answer completes the call ``op_id``. None: it goes to ``then``, or is a prefetch.

    ``offline`` says what to do without a network. Of a ``covered`` query the rest is requested. ``selection``
    None: all columns of all records.
    """

    op_id: int | None
    query: Query
    keys: list[str] | None
    latest: bool
    aggregates: Aggregates | None
    offline: Offline = "wait"
    covered: CoveredQuery | None = None
    selection: Selection | None = None
    then: Callable[[int, ReadAnswer | Exception], Sequence[Effect]] | None = None


class Writing(Struct, frozen=True):
    """Purpose of a request: to send the pending write of this sequence number."""

    seq: int


class Administering(Struct, frozen=True):
    """Purpose of a request: to create, alter or drop a table."""

    op_id: int
    request: AdministrationRequest


class Registering(Struct, frozen=True):
    """Purpose of a request: to register a continuous read in a session with the notification server."""

    read: StartedRead
    request: int
    session: str


class Updating(Struct, frozen=True):
    """Purpose of a request: new reader data of a continuous read, or its end; ``op_id`` None: no caller.

    ``handle`` is the one by which processors know the read.
    """

    op_id: int | None
    stored: StoredRead
    is_over: bool
    handle: str


class Reporting(Struct, frozen=True):
    """Purpose of a request: to report the app's usage."""


Work: TypeAlias = PendingRead | Writing | Administering | Registering | Updating | Reporting


class PendingAsk(Struct):
    """An unanswered request, its purpose, and the parts of the answer since its last transmission.

    ``request`` is None before the first transmission; ``parts`` are by partition, ``registered`` by
    processor.
    """

    identity: str
    work: Work
    request: Request | None = None
    parts: dict[int, Part] = field(default_factory=dict)
    registered: dict[str, ContinuousReadAck] = field(default_factory=dict)


def error_in(answer: Answer) -> EncodedError | None:
    """Return the error that an answer holds; None: it holds none."""
    if isinstance(answer, PartsComplete | UsageTaken) or answer.error is UNSET:
        return None
    return answer.error


def _is_outcome_of(answer: WriteOutcome, request: WriteRequest) -> bool:
    """Return whether an outcome is one of the record of a write, and of as many parts as its batch has."""
    others = len(request.others or ())
    is_whole = answer.ver is UNSET or len(answer.others or ()) == others
    return answer.key == request.key and is_whole and (answer.place or 0) <= others


class Connection:
    """Unanswered requests of a client.

    They go over the service of the device, which alone is connected to the cloud. ``incarnation`` is that of
    this start, which requests and continuous reads are named after; ``log_incarnation`` is the last one of
    the back end's log that this client knows, empty: the first.
    """

    def __init__(self, endpoint: str, token: str | None) -> None:
        self.endpoint = endpoint
        self.netid = netid_of(endpoint)
        self.token: str | None
        self.claimed: Claims | None
        self.use_token(token)
        self.is_up = False
        self.incarnation = ""
        self.log_incarnation = ""
        self.timer: RetransmitTimer[str] = RetransmitTimer(RETRY, _TIMEOUT_US, _TIMEOUT_US)
        self._asks: dict[str, PendingAsk] = {}
        self._queue: deque[str] = deque()
        """Writes for which the window has no room."""
        self._count = 0
        self._has_results = False
        """True if an administration of this start was answered."""

    def use_token(self, token: str | None) -> None:
        """Use a token for all later messages; None: no token."""
        self.token, self.claimed = token, claimed(token)

    def has_expired(self, now_us: int) -> bool:
        """Return whether the token is known to have expired."""
        return self.claimed is not None and self.claimed.expires_s <= now_us / 1e6

    def send_request(self, now_us: int, work: Work, request: Request) -> Sequence[Effect]:
        """Add a request, and send it if there is a link; else it waits for :meth:`link_up`."""
        ask = self.add_request(work, request)
        return self.send(now_us, ask) if self.admit_or_queue(ask) else ()

    def add_request(self, work: Work, request: Request | None = None) -> PendingAsk:
        """Add a request without sending it; ``request`` None: set it once :meth:`admit_or_queue` allows."""
        ask = PendingAsk(self._take_identity(), work, request)
        self._asks[ask.identity] = ask
        return ask

    def admit_or_queue(self, ask: PendingAsk, other_bytes: int = 0) -> bool:
        """Return whether a request is to be sent now; queue a write for which the window has no room.

        ``other_bytes`` are those of the writes in the same message. A request that waits for a link is not
        queued: :meth:`link_up` returns it.
        """
        if not self.is_up:
            return False
        is_write = isinstance(ask.work, Writing) and ask.identity not in self.timer
        if is_write and self.timer.size_bytes + other_bytes >= MAX_IN_FLIGHT_BYTES:
            self._queue.append(ask.identity)
            return False
        return True

    def send_writes(
        self, now_us: int, asks: Iterable[PendingAsk], build: Callable[[PendingAsk], WriteRequest]
    ) -> Sequence[Effect]:
        """Send writes in as few messages as their size allows, as far as they may be sent now.

        ``build`` returns the request of a write, as of now. The writes for which the window has no room are
        queued.
        """
        effects: list[Effect] = []
        batch: list[IdentifiedRequest] = []
        sizes: dict[str, int] = {}
        empty_bytes = size_bytes(AskBatch(self.endpoint, self.token, [], self.log_incarnation or UNSET))
        together_bytes = empty_bytes
        for ask in asks:
            if not self.admit_or_queue(ask, together_bytes):
                continue
            ask.request = build(ask)
            identified = IdentifiedRequest(ask.identity, ask.request)
            size = size_bytes(identified) + 1  # a comma
            if batch and together_bytes + size > MAX_BATCH_BYTES:
                effects += self._send_batch(now_us, batch, sizes)
                batch, sizes, together_bytes = [], {}, empty_bytes
            batch.append(identified)
            sizes[ask.identity] = size
            together_bytes += size
        return [*effects, *self._send_batch(now_us, batch, sizes)] if batch else effects

    def _send_batch(
        self, now_us: int, batch: list[IdentifiedRequest], sizes_bytes: Mapping[str, int]
    ) -> Sequence[Effect]:
        """Send writes in one message, a single one as an :class:`Ask`, and start their deadlines."""
        start = self.log_incarnation or UNSET
        message: Ask | AskBatch = AskBatch(self.endpoint, self.token, batch, start)
        if len(batch) == 1:
            message = Ask(batch[0].id, self.endpoint, self.token, batch[0].what, start)
            sizes_bytes = {batch[0].id: size_bytes(message)}
        return Send(SERVICE, message), *self.timer.start_together(now_us, sizes_bytes)

    def send(self, now_us: int, ask: PendingAsk) -> Sequence[Effect]:
        """Send a request, first or again, and start its deadline; forget earlier parts of its answer."""
        ask.parts.clear()
        ask.registered.clear()
        message = self._build_ask(ask)
        timer = self.timer.start(now_us, ask.identity, size_bytes(message))
        return Send(SERVICE, message), *timer

    def link_up(self) -> tuple[Sequence[Effect], Sequence[PendingAsk]]:
        """Start using a link, and forget all deadlines and queued writes; return all unanswered requests.

        The caller sends them over the link.
        """
        self.is_up = True
        self._queue.clear()
        return self.timer.clear(), list(self._asks.values())

    def link_down(self) -> Sequence[Effect]:
        """Stop sending and forget all deadlines, until there is a link."""
        self.is_up = False
        return self.timer.clear()

    def take_queued(self) -> Sequence[PendingAsk]:
        """Remove the queued writes from the queue, and return those unanswered, once half the window is free.

        Empty before, so that many go together.
        """
        if not self._queue or self.timer.size_bytes > MAX_IN_FLIGHT_BYTES // 2:
            return ()
        asks = [self._asks[identity] for identity in self._queue if identity in self._asks]
        self._queue.clear()
        return asks

    def overdue_asks(self, now_us: int) -> list[PendingAsk]:
        """Return the requests in flight whose deadlines have passed."""
        return [self._asks[identity] for identity in self.timer.overdue(now_us) if identity in self._asks]

    def expedite(self, now_us: int) -> Sequence[Effect]:
        """Bring the deadlines of all requests in flight forward to a second: their gateway is not reached."""
        sent = [identity for identity in self.timer if identity in self._asks]
        return [effect for identity in sent for effect in self.timer.expedite(now_us, identity, _LOST_US)]

    def pending_reads(self) -> list[tuple[PendingAsk, PendingRead]]:
        """Return the unanswered requests of reads, in order."""
        return [(ask, ask.work) for ask in self._asks.values() if isinstance(ask.work, PendingRead)]

    def is_unanswered(self, identity: str) -> bool:
        """Return whether a request of this identity has no answer yet."""
        return identity in self._asks

    def rename_in_flight(self, now_us: int) -> tuple[Sequence[Effect], Sequence[PendingAsk]]:
        """Rename the requests in flight, end their deadlines, and return them: the caller sends them again.

        Late answers under the former ones do not count. Requests about tables keep theirs, by which the back
        end recognises duplicates.
        """
        effects: list[Effect] = []
        asks = [self._asks[identity] for identity in self.timer if identity in self._asks]
        for ask in asks:
            effects += self.timer.settle(now_us, ask.identity)
            if not isinstance(ask.work, Administering):
                del self._asks[ask.identity]
                ask.identity = self._take_identity()
                self._asks[ask.identity] = ask
        return effects, asks

    def can_answer(self, answer: Answer) -> bool:
        """Return whether a message can be part of the answer to its request; late ones always can."""
        ask = self._asks.get(answer.id)
        if ask is None:
            return True
        request = ask.request
        if request is None:
            return False
        match answer:
            case RequestRefused():
                return True
            case Part():
                is_of_aggregates = answer.state is not UNSET
                return isinstance(request, ReadRequest) and (
                    answer.error is not UNSET or is_of_aggregates == (request.aggregate is not None)
                )
            case ContinuousReadAck():
                return isinstance(request, ContinuousReadRequest)
            case PartsComplete():
                if not isinstance(request, ReadRequest | ContinuousReadRequest):
                    return False
                return answer.table.name == request.name
            case Administered():
                if not isinstance(request, AdministrationRequest):
                    return False
                return not isinstance(answer.table, Table) or answer.table.name == request.name
            case WriteOutcome():
                return isinstance(request, WriteRequest) and _is_outcome_of(answer, request)
            case UsageTaken():
                return isinstance(request, UsageReport)

    def receive_answer(self, answer: Answer) -> PendingAsk | None:
        """Return the request that a message completes, which stays until :meth:`settle_request`; else None.

        A part of an answer without an error completes none: it is stored in its request. A late answer has
        no effect.
        """
        ask = self._asks.get(answer.id)
        if ask is None:
            return None
        if isinstance(answer, Part) and answer.error is UNSET:
            ask.parts[answer.place] = answer
            return None
        if isinstance(answer, ContinuousReadAck) and answer.error is UNSET:
            ask.registered[answer.processor] = answer
            return None
        return ask

    def withdraw(self, now_us: int, ask: PendingAsk) -> Sequence[Effect]:
        """Remove a request that needs no answer any more, and its deadline; no effect if it was answered."""
        return self.settle_request(now_us, ask) if self.is_unanswered(ask.identity) else ()

    def settle_request(self, now_us: int, ask: PendingAsk) -> Sequence[Effect]:
        """Remove a request, answered or not, and its deadline: later answers to it are ignored."""
        self._has_results |= isinstance(ask.work, Administering)
        del self._asks[ask.identity]
        return self.timer.settle(now_us, ask.identity)

    def _take_identity(self) -> str:
        """Reserve the next identifier of a request: no other request has it."""
        self._count += 1
        return f"{self.endpoint} {self.incarnation}.{self._count}"

    def _build_ask(self, ask: PendingAsk) -> Ask:
        """Build the message of a request, with the token of now."""
        request = ask.request
        assert request is not None
        if isinstance(request, AdministrationRequest) and self._has_results:
            pending = (
                other.identity for other in self._asks.values() if isinstance(other.work, Administering)
            )
            request = replace(request, first=min(int(one.rpartition(".")[2]) for one in pending))
        return Ask(ask.identity, self.endpoint, self.token, request, self.log_incarnation or UNSET)
