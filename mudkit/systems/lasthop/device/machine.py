"""Device of last hop: stores messages, answers reads, and reports what happened to the server (Last hop 3).

Transition rules:

===============  ===================================================================================
subscribe (call) add a fact for the server, as for unsubscribe; complete when it is acknowledged
read (call)      with a link, request better messages from the server; when they have arrived, or
                 without a link, or after a timeout: return the best messages on the device
Forwarded        queue the message, or show it at once; over capacity, drop the lowest ranks
RankChange       change the rank of a queued message; Retraction removes it
ShowRequest      show queued messages
link up          send Hello: the messages on the device, and the facts that are not acknowledged
Identify         send Hello, with all subscriptions
timer            retransmit while there is a link; report missing items that are no longer in flight
context changed  another place: end one subscription, and begin another
===============  ===================================================================================

Messages shown count as read. Expired messages are removed at the next event. Queue and facts are durable. So
are messages shown and read, until the application has them: if a kill prevents it, they are shown again after
the restart, or are part of the next read, with the same id. A device with an empty store is another device:
its sessions have another store id.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Lineage, continue_lineage, last_lsn_of, store_id
from mudkit.delivery.stream import Incoming
from mudkit.display import View, first_rows
from mudkit.errors import OutboxFull, ParameterError, brief
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Send,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.systems.lasthop.device.queue import DeviceQueue
from mudkit.systems.lasthop.messages import (
    Ack,
    Body,
    Content,
    DeviceFacts,
    Dropped,
    Fact,
    FactsAck,
    Follow,
    Forwarded,
    FromServer,
    HasRead,
    Hello,
    Identify,
    QueueSizes,
    RankChange,
    Read,
    ReadComplete,
    ReadRequest,
    Retraction,
    Session,
    Shown,
    ShowRequest,
    StreamMessage,
    Subscribe,
    Subscribed,
    SubscriptionFields,
    Subscriptions,
    Unfollow,
    Unsubscribe,
    Unsubscribed,
    Welcome,
)
from mudkit.systems.lasthop.subscription import PlaceSubscription, Subscription
from mudkit.systems.receiving import record_dropped

APP: Final = "notifications"
"""Application that is notified of messages shown."""
ARRIVALS: Final = "arrivals"
"""Application that is notified of all messages that arrive at the device."""
READ_TIMEOUT_US: Final = 15_000_000
"""Maximum time that a read waits for better messages."""
MISSING_TIMEOUT_US: Final = 5_000_000
"""Time after which an item that was overtaken is no longer in flight."""
_RETRANSMIT: Final = "again"
_RETURNED: Final = "returned "
_MISSING: Final = "missing"
_HELLO: Final = 0
"""Key of the hello in the retransmission timer; reads have their numbers, from 1 on."""
_FACTS: Final = -1
"""Key of the facts in the retransmission timer."""
INITIAL_INCARNATION: Final = 1
"""Incarnation of the first start of a store; later ones draw theirs from the next number on."""
_MAX_EMPTY_READS: Final = 16
"""Pending empty reads of a topic; older ones affect no moving average."""
MAX_ACKED_FACTS: Final = 256
"""Acknowledged facts that are kept, for a server that comes back from a backup."""
_ACCEPTED: Final = FromServer()


class _StoredFact(msgspec.Struct, frozen=True):
    """A fact in the log of the store."""

    fact: Fact


class FactLog:
    """Durable log of numbered facts for the server.

    The last ``MAX_ACKED_FACTS`` acknowledged facts stay, for a server that comes back from a backup. Numbers
    continue after a restart, and a restored store assigns them again: the lineage says from which number on
    each incarnation has assigned them.
    """

    def __init__(self, ports: Ports) -> None:
        self._store = ports.store
        self._outbox = Outbox(ports, _StoredFact, "fact")
        acked = self._store.items("acked ", _StoredFact)
        self._acked = {int(key.rpartition(" ")[2]): stored for key, stored in acked}
        self._lineage: Lineage = self._store.get("lineage", Lineage) or {}

    @property
    def is_empty(self) -> bool:
        """True if all facts are acknowledged."""
        return not len(self._outbox)

    @property
    def first_seq(self) -> int:
        """Number of the first fact of the log."""
        return next(iter(self._acked), self._outbox.first_seq)

    @property
    def acked_seq(self) -> int:
        """Number of the last acknowledged fact."""
        return self._outbox.first_seq - 1

    def restart(self, incarnation: int) -> None:
        """Continue the log in the incarnation of this start, and store the lineage."""
        self._lineage = continue_lineage(self._lineage, self._outbox.last_seq, str(incarnation))
        self._store.put("lineage", self._lineage)

    def shared_seq(self, incarnation: int) -> int:
        """Return the last number whose fact is that of an incarnation of the machine; 0: it is unknown."""
        log_incarnation = "" if incarnation == INITIAL_INCARNATION else str(incarnation)
        return last_lsn_of(self._lineage, log_incarnation, self._outbox.last_seq)

    def add(self, fact: Fact) -> int:
        """Store a fact, and return its number; raise OutboxFull if too many are pending.

        Of pending reads that took nothing only the last ones of a topic are kept.
        """
        seq = self._outbox.add(_StoredFact(fact))
        if _is_empty_read(fact):
            pending = [
                number
                for number, stored in self._outbox.items()
                if _is_empty_read(stored.fact) and stored.fact.topic == fact.topic
            ]
            for number in pending[:-_MAX_EMPTY_READS]:
                self._outbox.ack(number)
        return seq

    def ack_up_to(self, seq: int) -> list[int]:
        """Mark the facts up to a number as acknowledged; return the numbers that were pending.

        The last acknowledged facts stay stored, for a server that has lost them.
        """
        acked = self._outbox.ack_up_to(seq)
        for number, stored in acked:
            self._acked[number] = stored
            self._store.put(_acked_fact_key(number), stored)
        for number in list(self._acked)[:-MAX_ACKED_FACTS]:
            del self._acked[number]
            self._store.delete(_acked_fact_key(number))
        return [number for number, _ in acked]

    def pending(self, after_seq: int | None = None) -> list[tuple[int, Fact]]:
        """Return number and content of all facts after a number; None: of those not acknowledged."""
        acked = {} if after_seq is None else self._acked
        facts = [*acked.items(), *self._outbox.items()]
        return [(seq, stored.fact) for seq, stored in facts if after_seq is None or seq > after_seq]


def _acked_fact_key(seq: int) -> str:
    """Return the store key of an acknowledged fact."""
    return f"acked {seq:019d}"


def _is_empty_read(fact: Fact) -> bool:
    """Return whether a fact is a read without messages, which only affects moving averages."""
    return isinstance(fact, HasRead) and not fact.ids


class _Notice(msgspec.Struct, frozen=True):
    """A message to be passed to the callbacks of :data:`APP` or :data:`ARRIVALS`."""

    listener: str = msgspec.field(name="app")
    id: str
    content: Content


class _ReturnedMessage(msgspec.Struct, frozen=True):
    """A message that a read has returned, stored until the application certainly has it."""

    content: Content
    expires_us: int


def _build_notification(notice: _Notice) -> Notify:
    """Return the notification that passes a message to a callback of the application."""
    return Notify(notice.listener, FieldsWithId(notice.content, notice.id))


def _returned_key(topic: str, identity: str) -> str:
    """Return the store key of a message that a read has returned."""
    return f"{_RETURNED}{topic}\n{identity}"


class _PendingRead(msgspec.Struct):
    """A read that waits for better messages from the server."""

    topic: str
    op_id: int
    since_us: int


class _StoredTopic(msgspec.Struct, frozen=True):
    """A subscription in the store, and the number of the fact by which it began."""

    subscribed_seq: int = msgspec.field(name="run")
    fields: SubscriptionFields = msgspec.field(name="wanted")


class _StoredFollowing(msgspec.Struct, frozen=True):
    """A subscription that depends on the place, in the store, and its current topic."""

    fields: SubscriptionFields = msgspec.field(name="wanted")
    places: dict[str, tuple[float, float, float]]
    topic: str | None


class DeviceMachine:
    """Machine of the device ``me``, which holds at most ``capacity`` messages (None: unlimited)."""

    def __init__(self, ports: Ports, me: str, server: str, capacity: int | None) -> None:
        self._ports, self._store = ports, ports.store
        self._me, self._server = me, server
        self._capacity = capacity
        self._queue = DeviceQueue(ports.store, math.inf if capacity is None else capacity)
        self._topics = {
            key.removeprefix("topic "): (stored.subscribed_seq, stored.fields.subscription())
            for key, stored in ports.store.items("topic ", _StoredTopic)
        }
        self._following: dict[str, tuple[PlaceSubscription, str | None]] = {
            key.removeprefix("follow "): (
                PlaceSubscription(stored.fields.subscription(), stored.places),
                stored.topic,
            )
            for key, stored in ports.store.items("follow ", _StoredFollowing)
        }
        self._notices = Notices(ports.store, _Notice)
        self._unseen: dict[tuple[str, str], _ReturnedMessage] = {}
        """Messages of reads that a kill ended, by topic and identity: the next read returns them again."""
        for key, returned in ports.store.items(_RETURNED, _ReturnedMessage):
            topic, identity = key.removeprefix(_RETURNED).split("\n", 1)
            self._unseen[topic, identity] = returned
        self._returned: list[str] = []
        """Keys of messages that reads of this start have returned."""
        self._loc: tuple[float, float] | None = None
        self._now_us = 0
        # The session with the server
        self._has_link = False
        self._store_id = ""
        self._incarnation = self._session_count = 0
        self._stream: Incoming[Body] = Incoming()
        self._missing_at_timer: Sequence[int] = ()
        """Items that are lost if they have not arrived when the timer fires."""
        self._after: tuple[str, int] | None = None
        """Last session in which the server answered, and its last item."""
        self._is_welcome = False
        self._sends_subscriptions = False
        """True if the next hello carries all subscriptions."""
        self._question: Identify | None = None
        """Question that the hello answers."""
        self._answered = ""
        """Nonce of the last Identify of a restarted server that was answered."""
        # Retransmission
        self._facts = FactLog(ports)
        self._sent_fact = 0
        """Last fact in flight; 0: none is."""
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(_RETRANSMIT)
        self._calls: dict[int, int] = {}
        """Operations by the number of the fact that completes them when it is acknowledged."""
        self._reads = 0
        self._pending_reads: dict[int, _PendingRead] = {}

    def overview(self) -> View:
        """Return a display of topics and queued messages."""
        rows = (
            (topic, self._queue.size(topic), subscription.mode, subscription.threshold)
            for topic, (_, subscription) in self._topics.items()
        )
        return View(
            "",
            {
                "server": self._server,
                "topics": len(self._topics),
                "messages held": len(self._queue),
                "room for": self._capacity,
                "reads": self._reads,
            },
            [first_rows(("topic", "messages held", "mode", "least rank"), rows, len(self._topics))],
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle an event, see :class:`mudkit.events.Machine`."""
        message = _ACCEPTED.decode(event.message) if type(event) is Received else None
        if type(event) is Received and (message is None or event.source != self._server):
            return record_dropped(event)
        self._now_us = now_us
        if not self._incarnation:
            self._store_id = store_id(self._ports)
            if self._store.get("life", int) is None:
                self._incarnation = INITIAL_INCARNATION
            else:  # the store may be an old backup, so the number is drawn: no other start has it
                self._incarnation = INITIAL_INCARNATION + 1 + int.from_bytes(self._ports.entropy(4), "big")
                self._facts.restart(self._incarnation)
                self._sends_subscriptions = True
            self._store.put("life", self._incarnation)
        self._queue.expire(now_us)
        effects = [*self._notices.repeat(_build_notification)]
        effects += self._handle_event(event) if message is None else self._receive(message)
        if not self._facts.is_empty and not self._sent_fact:
            effects += self._send_facts()
        return effects

    def _receive(self, message: Welcome | FactsAck | Identify | StreamMessage) -> Sequence[Effect]:
        """Handle a message of the server, unless it is of an earlier session."""
        match message:
            case StreamMessage(stream=name) if name == self._stream_name:
                effects = [*self._mark_welcome()]
                for body in self._stream.take(message):
                    effects += self._apply_item(body)
                return [*effects, self._build_ack(), *self._set_missing_timer()]
            case StreamMessage():
                return ()
            case Identify(restarted=True, nonce=nonce) if nonce != self._answered:
                self._answered = nonce
                return self._restart_session(message)
            case _ if message.session != self._session:
                return ()
            case FactsAck(seq=seq):
                return self._receive_facts_ack(seq)
            case Welcome(seq=seq):
                return [*self._receive_facts_ack(seq), *self._mark_welcome()]
            case Identify(restarted=restarted):
                return self._restart_session(message) if restarted is UNSET else ()

    def _restart_session(self, question: Identify) -> Sequence[Effect]:
        """Begin a session in which the server gets the whole state, as it has asked."""
        if not self._has_link:
            return ()
        self._is_welcome, self._sends_subscriptions, self._after = False, True, None
        self._question = question
        return self._start_session()

    def _handle_event(self, event: Event) -> Sequence[Effect]:
        """Handle an event that is no message: a call, the link, a timer or another place."""
        match event:
            case Call(op_id=op_id):
                try:
                    return self._call(op_id, event)
                except OutboxFull as error:
                    return (Complete(op_id, error=error),)
            case LinkUp():
                self._has_link = True
                return self._start_session()
            case LinkDown():
                self._end_session()
                self._has_link = False
                self._sent_fact = 0
                self._in_flight.clear()
                stop = CancelTimer(_RETRANSMIT), CancelTimer(_MISSING)
                return [*stop, *self._read_from_queue(self._pending_reads)]
            case TimerFired(name=Notices.TIMER):
                self._notices.clear()
                self._forget_returned()
            case TimerFired(name=name):
                return self._retransmit() if name == _RETRANSMIT else self._report_missing()
            case ContextChanged(context=context):
                loc = context.get("loc")
                self._loc = None if loc is None else (loc[0], loc[1])
                return self._update_followed()
        return ()

    # -- the session with the server

    @property
    def _session(self) -> Session:
        """Name of the current session, as messages carry it."""
        return self._store_id, self._incarnation, self._session_count

    @property
    def _stream_name(self) -> str:
        """Name of the stream of the current session."""
        return f"{self._store_id} {self._incarnation}.{self._session_count}"

    def _start_session(self) -> Sequence[Effect]:
        """End the last session and send the hello of a new one: at link up, or when the server asks."""
        self._end_session()
        self._session_count += 1
        self._stream, self._missing_at_timer = Incoming(), ()
        self._sent_fact = 0
        stop = self._in_flight.settle(self._now_us, _FACTS)
        return [*stop, *self._send_hello()]

    def _mark_welcome(self) -> Sequence[Effect]:
        """Record that the server has accepted the session, and send the pending reads.

        No effect if this is known.
        """
        if self._is_welcome:
            return ()
        self._is_welcome, self._sends_subscriptions, self._question = True, False, None
        stop = self._in_flight.settle(self._now_us, _HELLO)
        return [
            *stop,
            *(effect for number in self._pending_reads for effect in self._request_messages(number)),
        ]

    def _end_session(self) -> None:
        """Record how far the stream of an accepted session got, for the next hello."""
        if self._is_welcome:
            self._after = self._stream_name, self._stream.last_seq
            self._is_welcome = False

    def _send_hello(self) -> Sequence[Effect]:
        """Send the position in the last session, or else all messages on the device."""
        hello = Hello(self._me, self._session, self._capacity, self._after, {}, self._facts.pending())
        if self._after is None:
            hello = msgspec.structs.replace(hello, holds=self._held_ranks())
            if self._sends_subscriptions:
                facts, wants = self._whole_state()
                hello = msgspec.structs.replace(hello, facts=facts, wants=wants)
        return self._send(_HELLO, hello)

    def _whole_state(self) -> tuple[list[tuple[int, Fact]], Subscriptions]:
        """Return the facts that the server lacks, and all subscriptions, for a hello."""
        facts, question = self._facts, self._question
        topics = {
            topic: (subscribed_seq, SubscriptionFields.of(subscription), self._queue.last_order(topic))
            for topic, (subscribed_seq, subscription) in self._topics.items()
        }
        if question is None or question.known[0] != self._store_id:  # nothing of this store is known there
            nonce = UNSET if question is None else question.nonce
            wants = Subscriptions(topics, facts.acked_seq + 1, facts.acked_seq, None, nonce)
            return facts.pending(), wants
        _, incarnation, known_seq = question.known
        shared_seq = facts.shared_seq(incarnation)
        base = None if known_seq <= shared_seq else shared_seq
        wants = Subscriptions(topics, facts.first_seq, facts.acked_seq, base, question.nonce)
        return facts.pending(min(known_seq, shared_seq)), wants

    def _send_facts(self) -> Sequence[Effect]:
        """Send the facts that are not acknowledged; nothing before the session is accepted.

        The caller has seen that there is one.
        """
        if not self._is_welcome:
            return ()
        facts = self._facts.pending()
        self._sent_fact = facts[-1][0]
        return self._send(_FACTS, DeviceFacts(self._me, self._session, facts))

    def _receive_facts_ack(self, seq: int) -> list[Effect]:
        """Record acknowledged facts, and complete the operations that waited for them."""
        effects: list[Effect] = []
        if seq >= self._sent_fact:
            self._sent_fact = 0
            effects += self._in_flight.settle(self._now_us, _FACTS)
        acked = self._facts.ack_up_to(seq)
        return [*effects, *(Complete(self._calls.pop(number)) for number in acked if number in self._calls)]

    def _retransmit(self) -> Sequence[Effect]:
        """Retransmit overdue messages; reads that waited too long take the queue as it is."""
        effects: list[Effect] = []
        for key in self._in_flight.overdue(self._now_us):
            if key not in self._in_flight:  # ended by an earlier key
                continue
            if key == _HELLO:
                effects += self._send_hello()
            elif key == _FACTS:
                effects += self._send_facts()
            elif self._now_us - self._pending_reads[key].since_us >= READ_TIMEOUT_US:
                effects += self._read_from_queue([key])
            else:
                effects += self._request_messages(key)
        return [*effects, *self._in_flight.restart(self._now_us)]

    def _send(self, key: int, message: msgspec.Struct) -> Sequence[Effect]:
        """Send a message, and arm the retransmission timer."""
        due = self._in_flight.start(self._now_us, key, size_bytes(message))
        return Send(self._server, message), *due

    # -- operations

    def _call(self, op_id: int, call: Call) -> Sequence[Effect]:
        """Carry out an operation of the application; return its effects."""
        match call.operation:
            case Subscribe(subscription=subscription):
                self._calls[self._subscribe(subscription)] = op_id
                return ()
            case Unsubscribe(topic=topic) if topic in self._topics:
                seq, effects = self._unsubscribe(topic)
                self._calls[seq] = op_id
                return effects
            case Read(topic=topic) if topic in self._topics:
                return self._begin_read(op_id, topic)
            case Follow(following=following):
                return [*self._follow(following), Complete(op_id)]
            case Unfollow(topic=topic) if topic in self._following:
                _, before = self._following.pop(topic)
                self._store.delete(f"follow {topic}")
                return [*self._end_followed(before), Complete(op_id)]
            case QueueSizes():
                return (Complete(op_id, {topic: len(self._queue.ranks(topic)) for topic in self._topics}),)
            case Unsubscribe(topic=topic) | Read(topic=topic):
                return (Complete(op_id, error=self._not_subscribed_error(topic, self._topics)),)
            case Unfollow(topic=topic):
                return (Complete(op_id, error=self._not_subscribed_error(topic, self._following)),)
        error = ParameterError(
            "There is no such operation.",
            found=brief(call.name),
            expected="subscribe, unsubscribe, read, follow, unfollow, queue_sizes",
        )
        return (Complete(op_id, error=error),)

    def _not_subscribed_error(self, topic: str, known: Iterable[str]) -> ParameterError:
        """Return the error of an operation on a topic without a subscription."""
        return ParameterError(
            f"{self._me} is not subscribed to this topic.",
            where="topic",
            found=brief(topic),
            expected=", ".join(known) or "none yet",
        )

    def _subscribe(self, subscription: Subscription) -> int:
        """Begin a subscription or change its limits; return the number of the fact for the server."""
        seq = self._facts.add(Subscribed(subscription.topic, SubscriptionFields.of(subscription)))
        subscribed_seq = self._topics[subscription.topic][0] if subscription.topic in self._topics else seq
        self._topics[subscription.topic] = subscribed_seq, subscription
        self._store.put(
            f"topic {subscription.topic}", _StoredTopic(subscribed_seq, SubscriptionFields.of(subscription))
        )
        return seq

    def _unsubscribe(self, topic: str) -> tuple[int, Sequence[Effect]]:
        """End a subscription; return the number of the fact, and the results of pending reads."""
        effects = self._read_from_queue(
            [number for number, pending in self._pending_reads.items() if pending.topic == topic]
        )
        self._return_unseen(topic, math.inf)
        self._forget_returned()
        del self._topics[topic]
        self._store.delete(f"topic {topic}")
        self._queue.end(topic)
        return self._facts.add(Unsubscribed(topic)), effects

    def _follow(self, following: PlaceSubscription) -> list[Effect]:
        """Follow a topic, or change the limits and places of one that is followed already."""
        name = following.subscription.topic
        _, before = self._following.get(name, (None, None))
        self._store_following(following, before)
        effects = self._update_followed()
        _, topic = self._following[name]
        if topic is not None:
            subscription = following.subscription.with_topic(topic)
            if topic not in self._topics or self._topics[topic][1] != subscription:
                self._subscribe(subscription)
        return effects

    def _store_following(self, following: PlaceSubscription, topic: str | None) -> None:
        """Store a subscription that depends on the place, with its current topic (None: none)."""
        subscription = following.subscription
        self._following[subscription.topic] = following, topic
        stored = _StoredFollowing(SubscriptionFields.of(subscription), dict(following.places), topic)
        self._store.put(f"follow {subscription.topic}", stored)

    def _update_followed(self) -> list[Effect]:
        """Subscribe to the topics of the current place, and end those of the last one."""
        effects: list[Effect] = []
        for following, before in list(self._following.values()):
            ends, begins = following.changes(before, self._loc)
            if ends is not None or begins is not None:
                self._store_following(following, None if begins is None else begins.topic)
            effects += self._end_followed(ends)
            if begins is not None:
                self._subscribe(begins)
        return effects

    def _end_followed(self, topic: str | None) -> Sequence[Effect]:
        """End the subscription to a topic, unless it has ended already or is followed in another way."""
        is_followed = any(topic == current for _, current in self._following.values())
        if topic is None or is_followed or topic not in self._topics:
            return ()
        return self._unsubscribe(topic)[1]

    # -- reading

    def _begin_read(self, op_id: int, topic: str) -> Sequence[Effect]:
        """Request better messages for a read; without a link, complete it with those on the device."""
        self._reads += 1
        self._pending_reads[self._reads] = _PendingRead(topic, op_id, self._now_us)
        return self._request_messages(self._reads) if self._has_link else self._read_from_queue([self._reads])

    def _request_messages(self, number: int) -> Sequence[Effect]:
        """Request better messages for a pending read, once the server has accepted the session."""
        if not self._is_welcome:
            return self._in_flight.start(self._now_us, number)
        topic = self._pending_reads[number].topic
        max_messages = min(
            self._topics[topic][1].max_messages, math.inf if self._capacity is None else self._capacity
        )
        return self._send(
            number,
            ReadRequest(
                self._me, self._session, topic, number, None if max_messages == math.inf else max_messages
            ),
        )

    def _read_from_queue(self, numbers: Iterable[int]) -> list[Effect]:
        """Complete reads with the best messages on the device, and report these as read."""
        effects: list[Effect] = []
        for number in list(numbers):
            pending = self._pending_reads.pop(number)
            effects += self._in_flight.settle(self._now_us, number)
            topic, max_messages = pending.topic, self._topics[pending.topic][1].max_messages
            again = self._return_unseen(topic, max_messages)
            taken = self._queue.take(topic, max_messages - len(again))
            ids = [identity for identity, *_ in taken]
            self._facts.add(HasRead(topic, self._now_us, ids, number))
            effects += [delivery(identity, self._me, read_us=self._now_us) for identity in ids]
            for identity, content, expires_us in taken:
                key = _returned_key(topic, identity)
                self._store.put(key, _ReturnedMessage(content, expires_us))
                self._returned.append(key)
            returned = [*again, *(FieldsWithId(content, identity) for identity, content, _ in taken)]
            effects.append(Complete(pending.op_id, returned))
            if returned:
                effects.append(SetTimer(Notices.TIMER, 0))
        return effects

    def _return_unseen(self, topic: str, max_messages: float) -> list[FieldsWithId]:
        """Remove messages of a topic that reads of a killed start had taken; return those not expired.

        They were reported as read, and are stored until the application certainly has them.
        """
        again: list[FieldsWithId] = []
        for (of_topic, identity), returned in list(self._unseen.items()):
            if of_topic != topic or (returned.expires_us > self._now_us and len(again) >= max_messages):
                continue
            del self._unseen[topic, identity]
            self._returned.append(_returned_key(topic, identity))
            if returned.expires_us > self._now_us:
                again.append(FieldsWithId(returned.content, identity))
        return again

    def _forget_returned(self) -> None:
        """Delete the stored copies of messages that reads have returned: the application has them."""
        for key in self._returned:
            self._store.delete(key)
        self._returned = []

    def _notify(self, listener: str, identity: str, content: Content) -> Sequence[Effect]:
        """Pass a message to a callback of the application, after a restart if a kill prevents it now."""
        notice = _Notice(listener, identity, content)
        return self._notices.add(notice), _build_notification(notice)

    # -- items of the stream

    def _build_ack(self, missing: list[int] | UnsetType = UNSET) -> Send:
        """Return the acknowledgement of the stream, with the items that are missing."""
        return Send(
            self._server,
            Ack(stream=self._stream_name, seq=self._stream.last_seq, missing=missing, device=self._me),
        )

    def _set_missing_timer(self) -> Sequence[Effect]:
        """Set a timer for items that later ones have overtaken, unless it is set."""
        missing = () if self._missing_at_timer else self._stream.missing
        if not missing:
            return ()
        self._missing_at_timer = missing
        return (SetTimer(_MISSING, MISSING_TIMEOUT_US),)

    def _report_missing(self) -> Sequence[Effect]:
        """Report items that were overtaken and are still missing: links keep the order."""
        missing = [seq for seq in self._stream.missing if seq in self._missing_at_timer]
        acks = [self._build_ack(missing)] if missing else []
        self._missing_at_timer = ()
        return [*acks, *self._set_missing_timer()]

    def _apply_item(self, body: Body) -> Sequence[Effect]:
        """Carry out an item of the stream, unless its subscription has ended."""
        topic = body.topic
        if topic not in self._topics or self._topics[topic][0] != body.subscribed_seq:
            return ()  # the subscription has ended
        match body:
            case Forwarded():
                return self._receive_forwarded(body)
            case RankChange(id=identity, rank=rank):
                self._queue.rerank(topic, identity, rank)
            case Retraction(id=identity):
                if self._queue.remove(topic, identity) is not None:
                    return (delivery(identity, self._me, refused_us=self._now_us),)
            case ShowRequest(ids=ids):
                removed = [(identity, self._queue.remove(topic, identity)) for identity in ids]
                queued = [(identity, content) for identity, content in removed if content is not None]
                effects = self._show_messages(topic, queued)
                self._report_dropped(topic, [identity for identity, content in removed if content is None])
                return effects
            case ReadComplete(number=number) if number in self._pending_reads:
                return self._read_from_queue([number])
        return ()

    def _receive_forwarded(self, body: Forwarded) -> Sequence[Effect]:
        """Queue a new message or show it; drop the lowest ranks beyond the capacity."""
        topic, identity, expires_us = body.topic, body.id, body.expires_us
        if (topic, identity) in self._queue:
            return ()
        if expires_us is not None and expires_us <= self._now_us:
            if body.shown:
                self._report_dropped(topic, [identity])
            return ()
        content = {**body.content, "rank": body.rank}
        effects: list[Effect] = [
            delivery(identity, self._me, delivered_us=self._now_us),
            *self._notify(ARRIVALS, identity, content),
        ]
        if body.shown:
            return [*effects, *self._show_messages(topic, [(identity, content)])]
        self._queue.put(topic, identity, body.rank, body.order, expires_us, body.content)
        for dropped_topic, dropped_identity in self._queue.make_room():
            self._report_dropped(dropped_topic, [dropped_identity])
        return effects

    def _held_ranks(self) -> dict[str, dict[str, float]]:
        """Return the ranks of all queued messages by topic and identity."""
        return {topic: self._queue.ranks(topic) for topic in self._topics}

    def _report_dropped(self, topic: str, identities: list[str]) -> None:
        """Add a fact for the server: messages are not on the device, and will not be shown."""
        if identities:
            self._facts.add(Dropped(topic, identities))

    def _show_messages(self, topic: str, shown: Sequence[tuple[str, Content]]) -> Sequence[Effect]:
        """Pass messages to the application and report them to the server as shown."""
        if not shown:
            return ()
        self._facts.add(Shown(topic, [identity for identity, _ in shown]))
        return [
            effect
            for identity, content in shown
            for effect in (
                delivery(identity, self._me, read_us=self._now_us),
                *self._notify(APP, identity, content),
            )
        ]
