"""Submissions: what publishers on devices submit to a server, each carried out once, in order, and answered.

Messages::

    publisher                 server
      | -- SubmitHello ------> |     before the first submission of a start
      | <----- SubmitWelcome - |     the name of the session
      | -- Submission -------> |     up to WINDOW_ITEMS of them are not settled
      | <--------- SubmitAck - |     carried out, or refused with a reason
      | <----- SubmitUnknown - |     the server has restarted, or the publisher has: say hello

A publisher stores its submissions in an outbox and retransmits them until they are settled. One that expires
there is withdrawn, counted, and not sent again. The numbers then have gaps, so a submission names its pending
predecessor.

The server draws the name of a session for each start of a publisher, and forgets it at its own next start. A
submission counts only in the session that it names, and an acknowledgement only in the present one. So a late
copy has no effect, whichever side was restarted, wiped or restored meanwhile.

The server stores the last number that it has taken of each incarnation of a publisher, and the last refusals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from mudkit.delivery.inbox import Inbox, ItemOrder
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import rollback_incident
from mudkit.errors import MessageExpired, MudkitError, OutboxFull, ParameterError
from mudkit.events import (
    Complete,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Ports,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)

WINDOW_ITEMS: Final = 64
"""Submissions of a publisher that may be in flight, and refusals of it that the server stores."""
_HELLO: Final = 0
"""Key of the hello among the items in flight; submissions have keys from 1 on."""
_RETRY: Final = "submit again"
_EXPIRY: Final = "submission expires"
_BYTES: Final = 4

_T = TypeVar("_T")
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1 << 16)]
_Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
_Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]
_After = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


# -- messages


class SubmitHello(msgspec.Struct, frozen=True, tag_field="kind", tag="submit hello"):
    """Publisher to server: begin a session of this start.

    ``acked`` is the last submission of which the server has acknowledged this and all earlier ones:
    incarnation and number; null: none.
    """

    device: _Name
    incarnation: _Id
    acked: tuple[_Id, _Number] | None


class Submission(msgspec.Struct, Generic[_T], frozen=True, kw_only=True, tag_field="kind", tag="submit"):
    """Publisher to server: carry this out.

    ``after`` is the number of the pending submission before it; 0: all before it are settled.
    ``incarnation`` is that of the start that has accepted it; absent: that of the session.
    """

    device: _Name
    session: _Id
    number: _Number
    after: _After
    incarnation: _Id | UnsetType = UNSET
    body: _T


class Refusal(msgspec.Struct, frozen=True):
    """Reason why a server has refused a submission, as an error has it. Part of messages."""

    summary: str
    where: str | None = None
    actual: str | None = msgspec.field(name="found", default=None)
    expected: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: MudkitError) -> Refusal:
        """Convert an error, to be sent or stored."""
        return cls(error.summary, error.where, error.found, error.expected, error.remedy)

    def error(self) -> ParameterError:
        """Return the error of the refused operation."""
        return ParameterError(
            self.summary,
            where=self.where,
            found=self.actual,
            expected=self.expected,
            remedy=self.remedy,
        )


class SubmitWelcome(msgspec.Struct, frozen=True, tag_field="kind", tag="submit welcome"):
    """Server to publisher: the session of this start has this name."""

    incarnation: _Id
    session: _Id


class SubmitAck(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="submit ack"):
    """Server to publisher: a submission is settled.

    ``incarnation`` as in the submission. ``refusal``: it was refused; absent: it was carried out.
    """

    session: _Id
    number: _Number
    incarnation: _Id | UnsetType = UNSET
    refusal: Refusal | UnsetType = UNSET


class SubmitUnknown(msgspec.Struct, frozen=True, tag_field="kind", tag="submit unknown"):
    """Server to publisher: this session does not exist; say hello."""

    session: _Id


# -- the publisher's side


class PendingSubmission(msgspec.Struct, Generic[_T], frozen=True):
    """Submission in the outbox of a publisher; ``expires_us`` is None if it never expires."""

    body: _T
    expires_us: int | None


class _Acked(msgspec.Struct, frozen=True):
    """Name of the last acknowledged submission."""

    incarnation: str
    number: int


class _Counts(msgspec.Struct, frozen=True):
    """Submissions that did not succeed, since the store was created."""

    refused: int = 0
    expired: int = 0


class _Sendable(NamedTuple, Generic[_T]):
    """Submission that may be in flight, and the number of its pending predecessor (0: none)."""

    seq: int
    number: int
    after: int
    item: PendingSubmission[_T]


class Submitter(Generic[_T]):
    """The publisher's side: submissions with bodies of one type, for the server at an address.

    A machine passes it its events (:meth:`handle`), the decoded messages of the server (:meth:`receive`), and
    what its application submits (:meth:`submit`).

    Parameters
    ----------
    ports : Ports
    device : str
        Name of the host.
    server : str
        Address of the server.
    kind : type
        Subclass of ``PendingSubmission`` with the type of the bodies, which the store decodes.
    """

    def __init__(self, ports: Ports, device: str, server: str, kind: type[PendingSubmission[_T]]) -> None:
        self._store = ports.store
        self._device, self._server = device, server
        self._kind = kind
        self._outbox = Outbox(ports, kind)
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(_RETRY)
        self._session: str | None = None
        """Session of this start; None: the server has not welcomed it, or does not know it any more."""
        self._has_link = False
        self._calls: dict[int, tuple[int, str | None]] = {}
        """Operation and its result by sequence number; callers do not outlive the machine."""
        self._expiries: list[tuple[int, int]] = []
        """Heap of the times at which pending submissions expire, with their sequence numbers."""
        for seq, item in self._outbox.items():
            if item.expires_us is not None:
                heappush(self._expiries, (item.expires_us, seq))

    def __len__(self) -> int:
        return len(self._outbox)

    @property
    def next_name(self) -> str:
        """Name of the next submission: device, incarnation and number."""
        incarnation, number = self._outbox.item_id(self._outbox.last_seq + 1)
        return submission_name(self._device, incarnation, number)

    def counts(self) -> dict[str, int]:
        """Return the numbers of pending, refused and expired submissions."""
        counts = self._counts()
        return {"pending": len(self._outbox), "refused": counts.refused, "expired": counts.expired}

    def submit(
        self, now_us: int, op_id: int, body: _T, result: str | None = None, expires_us: int | None = None
    ) -> Sequence[Effect]:
        """Store a submission, and send it if possible; complete the operation when it is settled.

        ``result`` is the operation's when the server has carried it out. The operation fails at once if the
        outbox is full.
        """
        try:
            seq = self._outbox.add(self._kind(body, expires_us))
        except OutboxFull as error:
            return (Complete(op_id, error=error),)
        self._calls[seq] = op_id, result
        if expires_us is not None:
            heappush(self._expiries, (expires_us, seq))
        return [*self._send_new(now_us), *self._set_expiry_timer(now_us)]

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle a change of the link, a timer or a failed sending; ignore other events."""
        match event:
            case LinkUp():
                self._has_link = True
                self._in_flight.clear()
                return [*self._withdraw_expired(now_us), *self._send_new(now_us)]
            case LinkDown():
                self._has_link = False
                return self._in_flight.clear()
            case TimerFired(name=name) if name == _EXPIRY:
                return [*self._withdraw_expired(now_us), *self._send_new(now_us)]
            case TimerFired(name=name) if name == _RETRY:
                return [*self._withdraw_expired(now_us), *self._retransmit(now_us)]
            case SendFailed(message=SubmitHello()) if _HELLO in self._in_flight:
                return self._in_flight.start(now_us, _HELLO)
            case SendFailed(message=Submission(number=number, incarnation=incarnation)):
                seq = self._seq_of(number, incarnation)
                return self._in_flight.start(now_us, seq) if seq in self._in_flight else ()
        return ()

    def receive(self, now_us: int, message: SubmitWelcome | SubmitAck | SubmitUnknown) -> Sequence[Effect]:
        """Handle a message of the server; one for another start or session is a late copy."""
        match message:
            case SubmitWelcome(incarnation=incarnation, session=session):
                if incarnation == self._outbox.incarnation and _HELLO in self._in_flight:
                    self._session = session
                    return [*self._in_flight.settle(now_us, _HELLO), *self._send_new(now_us)]
            case SubmitUnknown(session=session) if session == self._session:
                self._session = None
                return [*self._in_flight.clear(), *self._send_new(now_us)]
            case SubmitAck(session=session) if session == self._session:
                return self._receive_ack(now_us, message)
        return ()

    def _receive_ack(self, now_us: int, message: SubmitAck) -> Sequence[Effect]:
        """Settle a submission, complete its operation, and send what the window admits now.

        A refusal completes the operation with its error, and is counted. No effect for one that is not
        pending.
        """
        seq = self._seq_of(message.number, message.incarnation)
        item = self._outbox.ack(seq)
        if item is None:
            return ()
        self._record_acked(message)
        effects = [*self._in_flight.settle(now_us, seq), *self._send_new(now_us)]
        counts, error = self._counts(), None
        if message.refusal is not UNSET:
            error = message.refusal.error()
            self._put_counts(_Counts(counts.refused + 1, counts.expired))
        op_id, result = self._calls.pop(seq, (None, None))
        if op_id is not None:
            effects.insert(0, Complete(op_id, None if error else result, error))
        return effects

    def _record_acked(self, message: SubmitAck) -> None:
        """Store the name of an acknowledged submission, unless a later one of its incarnation is stored."""
        incarnation = self._outbox.incarnation if message.incarnation is UNSET else message.incarnation
        before = self._store.get("acked", _Acked)
        if before is None or before.incarnation != incarnation or before.number < message.number:
            self._store.put("acked", _Acked(incarnation, message.number))

    def _seq_of(self, number: int, incarnation: str | UnsetType) -> int:
        """Return the sequence number of a pending submission; 0 if it is not pending."""
        named = self._outbox.incarnation if incarnation is UNSET else incarnation
        seq = self._outbox.seq_of(named, number)
        return seq if seq in self._outbox and self._outbox.item_id(seq) == (named, number) else 0

    # -- expiry

    def _withdraw_expired(self, now_us: int) -> Sequence[Effect]:
        """Withdraw the submissions that have expired, and fail their operations."""
        effects: list[Effect] = []
        while self._expiries and self._expiries[0][0] <= now_us:
            _, seq = heappop(self._expiries)
            if self._outbox.ack(seq) is None:
                continue
            effects += self._in_flight.settle(now_us, seq)
            counts = self._counts()
            self._put_counts(_Counts(counts.refused, counts.expired + 1))
            if seq in self._calls:
                error = MessageExpired(
                    "The message expired before the server had acknowledged it.",
                    where=self._device,
                    expected="a link while the message is valid",
                    remedy="publish it with a longer lifetime, or without one",
                )
                effects.append(Complete(self._calls.pop(seq)[0], error=error))
        return [*effects, *self._set_expiry_timer(now_us)]

    def _set_expiry_timer(self, now_us: int) -> Sequence[Effect]:
        """Set the timer for the pending submission that expires first."""
        while self._expiries and self._expiries[0][1] not in self._outbox:
            heappop(self._expiries)
        return (SetTimer(_EXPIRY, self._expiries[0][0] - now_us),) if self._expiries else ()

    # -- sending

    def _sendable(self) -> Iterator[_Sendable[_T]]:
        """Iterate over the submissions that may be in flight, the oldest first."""
        last_seq, after = self._outbox.first_seq + WINDOW_ITEMS - 1, 0
        for seq, item in self._outbox.sendable_items():
            if seq > last_seq:
                return
            number = self._outbox.item_id(seq).number
            yield _Sendable(seq, number, after, item)
            after = number

    def _send_new(self, now_us: int) -> Sequence[Effect]:
        """Send what may be in flight and is not; only a hello, if there is no session.

        Empty without a link, without such submissions, or while a hello is unanswered.
        """
        return self._send(now_us, [item for item in self._sendable() if item.seq not in self._in_flight])

    def _send(self, now_us: int, items: Sequence[_Sendable[_T]]) -> Sequence[Effect]:
        """Send submissions, or the hello that they need, and start the deadlines."""
        if not self._has_link or not items:
            return ()
        if self._session is None:
            return self._send_hello(now_us) if _HELLO not in self._in_flight else ()
        effects: list[Effect] = []
        for seq, number, after, item in items:
            incarnation = self._outbox.item_id(seq).incarnation
            message = Submission(
                device=self._device,
                session=self._session,
                number=number,
                after=after,
                incarnation=UNSET if incarnation == self._outbox.incarnation else incarnation,
                body=item.body,
            )
            effects.append(Send(self._server, message))
            effects += self._in_flight.start(now_us, seq, size_bytes(message))
        return effects

    def _send_hello(self, now_us: int) -> Sequence[Effect]:
        """Send a hello, and start its deadline."""
        acked = self._store.get("acked", _Acked)
        if acked is not None:
            first = self._outbox.item_id(self._outbox.first_seq)
            last = min(acked.number, first.number - 1) if first[0] == acked.incarnation else acked.number
            acked = _Acked(acked.incarnation, last) if last else None
        hello = SubmitHello(
            self._device,
            self._outbox.incarnation,
            None if acked is None else (acked.incarnation, acked.number),
        )
        return Send(self._server, hello), *self._in_flight.start(now_us, _HELLO, size_bytes(hello))

    def _retransmit(self, now_us: int) -> Sequence[Effect]:
        """Retransmit an overdue hello, or the first overdue submission and all later ones.

        The server does not keep a submission that comes before its predecessor.
        """
        late = self._in_flight.overdue(now_us)
        effects: list[Effect] = []
        if _HELLO in late:
            effects += self._send_hello(now_us)
        elif late:
            effects += self._send(now_us, [item for item in self._sendable() if item.seq >= min(late)])
        return [*effects, *self._in_flight.restart(now_us)]

    def _counts(self) -> _Counts:
        """Return the stored counts."""
        return self._store.get("counts", _Counts) or _Counts()

    def _put_counts(self, counts: _Counts) -> None:
        """Store the counts."""
        self._store.put("counts", counts)


# -- the server's side


class _Session(msgspec.Struct, frozen=True):
    """Session of one start of a publisher."""

    incarnation: str
    id: str
    acked: tuple[str, int] | None


class _Refused(msgspec.Struct, frozen=True):
    """Refusal in the store, with the name of its submission."""

    incarnation: str
    number: int
    refusal: Refusal


class _Refusals(msgspec.Struct, frozen=True):
    """The last refusals of a publisher, in the store."""

    last: list[_Refused] = []


class Submissions:
    """The server's side: sessions of publishers, and what was taken of each.

    A server passes it each message of a publisher (:meth:`receive`). If that is a submission to be carried
    out, the server does so, and settles it (:meth:`settle`) in the same event.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports, self._store = ports, ports.store
        self._taken = Inbox(ports.store, "submitted")
        self._sessions: dict[str, _Session] = {}
        """Present session by device."""
        self._offered: dict[str, _Session] = {}
        """Session by device that begins with its first submission: its hello may have been a late copy."""

    def receive(self, source: str, message: SubmitHello | Submission[_T]) -> tuple[Sequence[Effect], bool]:
        """Return the answer to a message, and whether it is a submission that has to be carried out now.

        Such a one counts as taken: the caller carries it out in this event, and calls :meth:`settle`.
        """
        if isinstance(message, SubmitHello):
            return (self._build_welcome(source, message),), False
        begun = self._begin_session(message)
        if begun is None:
            return (Send(source, SubmitUnknown(message.session)),), False
        incarnation = self._incarnation_of(message)
        order = self._taken.classify(message.device, incarnation, message.number, message.after)
        if order is ItemOrder.EARLY:
            return begun, False
        if order is ItemOrder.DUPLICATE:
            refusals = self._refusals(message.device)
            name = incarnation, message.number
            refusal = next(
                (refused.refusal for refused in refusals if (refused.incarnation, refused.number) == name),
                None,
            )
            return [*begun, self._build_ack(source, message, refusal)], False
        self._taken.mark_taken(message.device, incarnation, message.number)
        self._store.crash_point("submission taken, not carried out")
        return begun, True

    def settle(
        self, source: str, message: Submission[_T], refusal: Refusal | None = None
    ) -> Sequence[Effect]:
        """Return the acknowledgement of a submission that was carried out; store a refusal, to repeat it."""
        if refusal is not None:
            refused = _Refused(self._incarnation_of(message), message.number, refusal)
            refusals = [*self._refusals(message.device), refused][-WINDOW_ITEMS:]
            self._store.put(f"refused {message.device}", _Refusals(refusals))
        return (self._build_ack(source, message, refusal),)

    def submission_name(self, message: Submission[_T]) -> str:
        """Return the name of a submission of a present session, as its publisher knows it."""
        return submission_name(message.device, self._incarnation_of(message), message.number)

    def _build_welcome(self, source: str, hello: SubmitHello) -> Send:
        """Return the answer to a hello: the session of its start, which is drawn once."""
        session = self._sessions.get(hello.device)
        if session is None or session.incarnation != hello.incarnation:
            session = self._offered.get(hello.device)
        if session is None or session.incarnation != hello.incarnation:
            identifier = self._ports.entropy(_BYTES).hex()
            session = self._offered[hello.device] = _Session(hello.incarnation, identifier, hello.acked)
        return Send(source, SubmitWelcome(session.incarnation, session.id))

    def _begin_session(self, message: Submission[_T]) -> Sequence[Effect] | None:
        """Begin the session of a submission unless it is the present one; None: it does not exist.

        An incident is returned if this server has lost submissions that it had acknowledged.
        """
        device = message.device
        present, offered = self._sessions.get(device), self._offered.get(device)
        if present is not None and present.id == message.session:
            return ()
        if offered is None or offered.id != message.session:
            return None
        self._sessions[device] = self._offered.pop(device)
        if offered.acked is None:
            return ()
        incarnation, number = offered.acked
        last = self._taken.last_number(device, incarnation)
        if number <= last:
            return ()
        self._taken.mark_taken(device, incarnation, number)
        lost = f"submissions of {device} from number {last + 1} to {number} are gone"
        return (rollback_incident(self._ports.address, lost),)

    def _incarnation_of(self, message: Submission[_T]) -> str:
        """Return the incarnation of the start that has accepted a submission."""
        if message.incarnation is not UNSET:
            return message.incarnation
        return self._sessions[message.device].incarnation

    def _refusals(self, device: str) -> list[_Refused]:
        """Return the last refusals of a publisher."""
        stored = self._store.get(f"refused {device}", _Refusals)
        return [] if stored is None else stored.last

    def _build_ack(self, source: str, message: Submission[_T], refusal: Refusal | None) -> Send:
        """Return the acknowledgement of a submission."""
        ack = SubmitAck(
            session=message.session,
            number=message.number,
            incarnation=message.incarnation,
            refusal=UNSET if refusal is None else refusal,
        )
        return Send(source, ack)


def submission_name(device: str, incarnation: str, number: int) -> str:
    """Return the name of a submission: no other one has it."""
    return f"{device} {incarnation} {number}"
