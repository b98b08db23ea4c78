"""Requests of a client to its gateways, retransmitted until they are answered.

Each request has a deadline of its own (:mod:`mudkit.delivery.retransmit`). Writes are sent within a window of
bytes in flight: after an outage a long queue neither fills the link, nor postpones retransmissions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import UNSET, Struct, field

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, Send, size_bytes
from mudkit.predicates import Aggregates
from mudkit.systems.mud.messages import (
    Administered,
    AdministrationRequest,
    AlterRequest,
    Ask,
    AskBatch,
    Complete,
    CreateRequest,
    DropRequest,
    Error,
    IdentifiedRequest,
    Outcome,
    PlacedPart,
    PlacedRegistered,
    ReadRequest,
    Refused,
    RegisterRequest,
    Request,
    UnregisterRequest,
    UpdateDataRequest,
    WriteRequest,
    netid_of,
)
from mudkit.systems.mud.policies.policies import Asked
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims, claimed
from mudkit.wire import Fields

__all__ = [
    "RETRY",
    "Administering",
    "Answer",
    "Connection",
    "PendingAsk",
    "Query",
    "Reading",
    "Registering",
    "Telling",
    "Watch",
    "Work",
    "Writing",
    "error_in",
]

RETRY: Final = "retry"
_TIMEOUT_US: Final = 10_000_000
"""Retransmission timeout; it does not grow: lost registrations of continuous reads must not take minutes."""
_LOST_US: Final = 1_000_000
"""Delay before the next gateway is tried when one cannot be reached."""
MAX_IN_FLIGHT_BYTES: Final = 128 * 1024
"""Window of writes: more than the fastest link holds in a round trip."""

_ON_TABLES: Final = (CreateRequest, AlterRequest, DropRequest)
_ON_CONTINUOUS_READS: Final = (RegisterRequest, UpdateDataRequest, UnregisterRequest)
_IN_PARTS: Final = (ReadRequest, *_ON_CONTINUOUS_READS)

Answer: TypeAlias = PlacedPart | PlacedRegistered | Refused | Complete | Outcome | Administered


# -- what waits for an answer


class Query(Struct, frozen=True):
    """A read.

    Parameters
    ----------
    op_id : int or None
        None: a prefetch, which no caller waits for.
    asked : Asked
    keys : list of str or None
        The only keys that can match.
    latest : bool
    aggregates : Aggregates or None
    """

    op_id: int | None
    asked: Asked
    keys: list[str] | None
    latest: bool
    aggregates: Aggregates | None


class Writing(Struct, frozen=True):
    """A pending write, by its number."""

    number: int


class Administering(Struct, frozen=True):
    """Creation, change or deletion of a table."""

    op_id: int
    request: AdministrationRequest


class Reading(Struct):
    """Durable state of a continuous read.

    Parameters
    ----------
    handle, data_seq : int
        ``data_seq`` numbers the reader's data.
    name : str
    predicate : SentPredicate
    reader : mapping
    sync_us : int or None
        Commit time from which existing records are delivered; None: none of them.
    listener : str
    since : dict of str to int
        Log position that was received from each processor.
    held : dict of str to int
        Version delivered last of each record that belongs to the read, by key.
    table : int or None
        Number of the table; None before the first answer.
    starts : dict of str to str
        Start of the back end in which each position of ``since`` counts; none: the first one.
    """

    handle: int
    data_seq: int
    name: str
    predicate: SentPredicate
    reader: Fields
    sync_us: int | None
    listener: str
    since: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    table: int | None = None
    starts: dict[str, str] = field(default_factory=dict)


class Watch(Struct):
    """State of a continuous read in this life of the machine.

    Parameters
    ----------
    reading : Reading
    op_id : int or None
        The call that began it, until it is answered.
    request : int
        Number of the last registration.
    lives : dict of str to int
        Life in which each processor has it.
    since_asked : tuple of dict or None
        ``reading.since`` and ``reading.starts`` when the registration that is not answered was first sent;
        None: it is answered.
    told_in : dict of str to int
        Oldest life of each processor that has sent a change since then.
    """

    reading: Reading
    op_id: int | None = None
    request: int = 0
    lives: dict[str, int] = field(default_factory=dict)
    since_asked: tuple[dict[str, int], dict[str, str]] | None = None
    told_in: dict[str, int] = field(default_factory=dict)


class Registering(Struct, frozen=True):
    """Registration of a continuous read in a session with the notification server."""

    watch: Watch
    request: int
    session: str


class Telling(Struct, frozen=True):
    """Other reader data of a continuous read, or its end; ``op_id`` None: no caller waits for it."""

    op_id: int | None
    reading: Reading
    is_over: bool


Work: TypeAlias = Query | Writing | Administering | Registering | Telling


class PendingAsk(Struct):
    """A request that is not answered.

    Parameters
    ----------
    identity : str
    work : Work
        What it is for.
    request : Request or None
        The request as it was last sent; None: never.
    parts, registered : dict
        Parts of the answer since then, by partition, and by processor.
    """

    identity: str
    work: Work
    request: Request | None = None
    parts: dict[int, PlacedPart] = field(default_factory=dict)
    registered: dict[str, PlacedRegistered] = field(default_factory=dict)


def error_in(answer: Answer) -> Error | None:
    """Return the error in an answer."""
    if isinstance(answer, Complete) or answer.error is UNSET:
        return None
    return answer.error


class Connection:
    """Requests under way between a client and its gateways.

    Parameters
    ----------
    endpoint : str
        ``netid/appid``.
    token : str or None
    gateways : sequence of str
        Addresses.
    first : int
        Index of the gateway that is used while it can be reached.

    Attributes
    ----------
    incarnation : str
        Incarnation of this start, which names requests, hellos and continuous reads.
    start : str
        Last start of the back end that this client knows; empty: the first one.
    timer : RetransmitTimer
        Shared with what else of the machine waits for an answer.
    """

    def __init__(self, endpoint: str, token: str | None, gateways: Sequence[str], first: int) -> None:
        self.endpoint = endpoint
        self.netid = netid_of(endpoint)
        self.token: str | None
        self.claimed: Claims | None
        self.use(token)
        self.is_up = False
        self.incarnation = ""
        self.start = ""
        self.timer: RetransmitTimer[str] = RetransmitTimer(RETRY, _TIMEOUT_US, _TIMEOUT_US)
        self._gateways = gateways
        self._turn = first
        self._asks: dict[str, PendingAsk] = {}
        self._queue: deque[str] = deque()
        """Writes that wait for room in the window."""
        self._count = 0

    def use(self, token: str | None) -> None:
        """Use another token from now on."""
        self.token, self.claimed = token, claimed(token)

    def has_expired(self, now_us: int) -> bool:
        """Return whether the token is known to have expired."""
        return self.claimed is not None and self.claimed.expires_s <= now_us / 1e6

    def ask(self, now_us: int, work: Work, request: Request) -> Sequence[Effect]:
        """Send a request now, if there is a link, and again until it is answered."""
        ask = self.add(work, request)
        return self.send(now_us, ask) if self.may_send(ask) else ()

    def add(self, work: Work, request: Request | None = None) -> PendingAsk:
        """Add a request that is not sent yet; None: it is built when it may be sent."""
        ask = PendingAsk(self._identity(), work, request)
        self._asks[ask.identity] = ask
        return ask

    def may_send(self, ask: PendingAsk) -> bool:
        """Return whether a request may be sent now; a write for which the window has no room is queued."""
        if not self.is_up:
            return False
        is_write = isinstance(ask.work, Writing) and ask.identity not in self.timer
        if is_write and self.timer.size_bytes >= MAX_IN_FLIGHT_BYTES:
            self._queue.append(ask.identity)
            return False
        return True

    def ask_together(self, now_us: int, asked: Sequence[tuple[Writing, WriteRequest]]) -> Sequence[Effect]:
        """Send several writes in one message, as far as there is room for them."""
        asks: list[PendingAsk] = []
        timers: list[Effect] = []
        for work, request in asked:
            ask = self.add(work, request)
            if self.may_send(ask):
                asks.append(ask)
                timers += self._sent(now_us, ask)
        if not asks:
            return ()
        if len(asks) == 1:
            return [Send(self._gateway(), self._message(asks[0])), *timers]
        requests = [IdentifiedRequest(ask.identity, ask.request) for ask in asks if ask.request is not None]
        return [
            Send(self._gateway(), AskBatch(self.endpoint, self.token, requests, self.start or UNSET)),
            *timers,
        ]

    def send(self, now_us: int, ask: PendingAsk) -> Sequence[Effect]:
        """Send a request that may be sent, perhaps again."""
        ask.parts.clear()
        ask.registered.clear()
        return Send(self._gateway(), self._message(ask)), *self._sent(now_us, ask)

    def up(self) -> tuple[Sequence[Effect], Sequence[PendingAsk]]:
        """Begin to use a link, and return the requests that have to be sent over it."""
        self.is_up = True
        self._queue.clear()
        return self.timer.clear(), list(self._asks.values())

    def down(self) -> Sequence[Effect]:
        """Wait for a link."""
        self.is_up = False
        return self.timer.clear()

    def queued(self) -> PendingAsk | None:
        """Return the next write that waits for room, if there is room by now."""
        while self._queue and self.timer.size_bytes < MAX_IN_FLIGHT_BYTES:
            ask = self._asks.get(self._queue.popleft())
            if ask is not None:
                return ask
        return None

    def overdue(self, now_us: int) -> list[PendingAsk]:
        """Return the requests whose deadlines are over."""
        return [self._asks[each] for each in self.timer.overdue(now_us) if each in self._asks]

    def failed(self, now_us: int, to: str) -> Sequence[Effect]:
        """Try another gateway soon, if the current one could not be reached."""
        sent = [each for each in self.timer if each in self._asks]
        if not sent or to != self._gateway():
            return ()
        self._turn += 1
        return [effect for each in sent for effect in self.timer.expedite(now_us, each, _LOST_US)]

    def knows(self, identity: str) -> bool:
        """Return whether a request of this identity is not answered."""
        return identity in self._asks

    def again(self, now_us: int) -> tuple[Sequence[Effect], Sequence[PendingAsk]]:
        """Return the requests under way, under new identities: late answers to them do not count.

        The back end knows requests about tables by their identities, which stay.
        """
        effects: list[Effect] = []
        asks = [self._asks[identity] for identity in self.timer if identity in self._asks]
        for ask in asks:
            effects += self.timer.answered(now_us, ask.identity)
            if not isinstance(ask.work, Administering):
                del self._asks[ask.identity]
                ask.identity = self._identity()
                self._asks[ask.identity] = ask
        return effects, asks

    def fits(self, answer: Answer) -> bool:
        """Return whether a message can be part of the answer to its request; late ones always can."""
        ask = self._asks.get(answer.id)
        if ask is None:
            return True
        request = ask.request
        if request is None:
            return False
        match answer:
            case Refused():
                return True
            case PlacedPart():
                is_of_aggregates = answer.state is not UNSET
                return isinstance(request, ReadRequest) and (
                    answer.error is not UNSET or is_of_aggregates == (request.aggregate is not None)
                )
            case PlacedRegistered():
                return isinstance(request, _ON_CONTINUOUS_READS)
            case Complete():
                return isinstance(request, _IN_PARTS) and answer.table.name == request.name
            case Administered():
                is_own = not isinstance(answer.table, Table) or answer.table.name == request.name
                return isinstance(request, _ON_TABLES) and is_own
            case Outcome():
                return isinstance(request, WriteRequest) and answer.key == request.key

    def take(self, answer: Answer) -> PendingAsk | None:
        """Return the request that a message completes the answer to; keep a part of an answer."""
        ask = self._asks.get(answer.id)
        if ask is None:
            return None
        if isinstance(answer, PlacedPart) and answer.error is UNSET:
            ask.parts[answer.place] = answer
            return None
        if isinstance(answer, PlacedRegistered) and answer.error is UNSET:
            ask.registered[answer.place] = answer
            return None
        return ask

    def answered(self, now_us: int, ask: PendingAsk) -> Sequence[Effect]:
        """Remove a request that was answered."""
        del self._asks[ask.identity]
        return self.timer.answered(now_us, ask.identity)

    def _identity(self) -> str:
        self._count += 1
        return f"{self.endpoint} {self.incarnation}.{self._count}"

    def _message(self, ask: PendingAsk) -> Ask:
        assert ask.request is not None
        return Ask(ask.identity, self.endpoint, self.token, ask.request, self.start or UNSET)

    def _sent(self, now_us: int, ask: PendingAsk) -> Sequence[Effect]:
        return self.timer.sent(now_us, ask.identity, size_bytes(self._message(ask)))

    def _gateway(self) -> str:
        return self._gateways[self._turn % len(self._gateways)]
