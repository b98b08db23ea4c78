"""Spooling server: keeps messages of topics, with a spool for each device and topic (Last hop 3, 4.5).

Transition rules:

===========  =======================================================================================
publish      store the message for each subscriber, and add it to its spool; also for matching
             queries; a query that fails matches nothing, and is an incident
rerank       change the rank of a message
Submission   the same for a publisher on a device, once and in order; acknowledge, or refuse what is not
             valid, has expired, or has the name of another message
DeviceFacts  handle each fact once, in order: subscriptions, reads, messages shown and dropped
Hello        the same; begin a stream, and requeue messages that were lost in flight. A device that loses its
             address by it is disconnected, and asked once whether it is there
ReadRequest  send messages better than those on the device, then ReadComplete
Ack          remove items from the stream; retransmit missing ones at once
send failed  the device is disconnected until its next hello; requeue the message
timer        expirations and delays; quiet hours, fixed times, a new day; retransmission
===========  =======================================================================================

Subscriptions and waiting messages are durable. After a restart the server sends Identify, and devices report
the messages that they hold and the facts that it has lost; until then it accepts nothing of them, because its
store may be an old backup. A device that returns with an empty store is another device of the same name: the
old subscriptions end, and late messages of the old device are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import UNSET

from mudkit.checks import is_storable, number
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Incarnation, rollback_incident
from mudkit.delivery.stream import Outgoing, StreamItem
from mudkit.delivery.submission import Refusal, Submission, Submissions, SubmitHello
from mudkit.display import View, first_rows
from mudkit.errors import MessageExpired, MudkitError, ParameterError, PredicateError, brief
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    Effect,
    Event,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    TimerFired,
    size_bytes,
)
from mudkit.systems.lasthop.messages import (
    Ack,
    Body,
    DeviceFacts,
    Fact,
    FactsAck,
    Forwarded,
    FromDevice,
    FromPublisher,
    HasRead,
    Hello,
    Identify,
    Publication,
    Publish,
    PublishedMessage,
    Queues,
    RankUpdate,
    ReadRequest,
    Rerank,
    Session,
    StreamMessage,
    Subscribed,
    SubscriptionFields,
    Subscriptions,
    Unsubscribed,
    Welcome,
)
from mudkit.systems.lasthop.servers.indexer import Indexer, describe_failure, is_query
from mudkit.systems.lasthop.servers.server_subscription import (
    ServerSubscription,
    StoredSubscription,
    UnacknowledgedItems,
)
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.subscription import MAX_RANK, Subscription, check_topic
from mudkit.systems.receiving import record_dropped

_MAX_MISSED: Final = 1000
"""Pending items for a device that is away; beyond this it has to report everything that it holds."""
_MAX_READ_NUMBERS: Final = 64
"""Recent read numbers of a device that are deduplicated."""
_MAX_FORMER: Final = 64
"""Former incarnations of a device whose messages are recognised as late copies."""
_RETRANSMIT: Final = "again "
"""Prefix of the retransmission timer of a device."""
_DUE: Final = "due "
"""Prefix of the timer of a subscription."""
_IDENTIFY: Final = 0
"""Key of Identify in the retransmission timer of a device; items of its stream have numbers from 1 on."""
_NONCE_BYTES: Final = 4
_ACCEPTED: Final = FromDevice()


@dataclass
class DeviceState:
    """State of the device of a name at the server, and the incarnation that has the name now."""

    name: str
    session: Session = ("", 0, 0)
    former: list[tuple[str, int]] = field(default_factory=list)
    """Former incarnations: store id and incarnation of their sessions."""
    address: str | None = None
    stream: Outgoing[Body] | None = None
    """None: the messages on the device are unknown."""
    in_flight: RetransmitTimer[int] = field(init=False)
    """Items of the stream that are not acknowledged, by number; key 0 is Identify."""
    is_connected: bool = False
    nonce: str | None = None
    """Nonce of the open question: a hello of another incarnation has to carry it, a late copy cannot."""
    is_identified: bool = True
    """False after a restart of the server, until the device has answered."""
    facts_seq: int = 0
    """Number of the last fact received."""
    read_numbers: set[int] = field(default_factory=set)
    """Recent numbers of reads in this session that were requested or are complete."""
    room: float = math.inf
    topics: dict[str, ServerSubscription] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.in_flight = RetransmitTimer(f"{_RETRANSMIT}{self.name}")

    def is_outdated(self, session: Session) -> bool:
        """Return whether a later session has replaced this one: its messages are late copies."""
        return session[:2] in self.former or (session[:2] == self.session[:2] and session < self.session)

    def restart(self) -> None:
        """Begin with another incarnation of the device; messages of the last one are late copies."""
        if self.session[0]:
            self.former = [*self.former, self.session[:2]][-_MAX_FORMER:]
        self.session, self.stream = ("", 0, 0), None

    def has_answered(self, hello: Hello) -> bool:
        """Return whether a hello answers the open question."""
        return self.nonce is not None and hello.wants is not UNSET and hello.wants.nonce == self.nonce

    def record_read(self, number: int) -> bool:
        """Record the number of a read, and return whether it is new."""
        if number in self.read_numbers or number <= max(self.read_numbers, default=0) - _MAX_READ_NUMBERS:
            return False
        self.read_numbers.add(number)
        if len(self.read_numbers) > _MAX_READ_NUMBERS:
            self.read_numbers.discard(min(self.read_numbers))
        return True


class _StoredDeviceState(msgspec.Struct, frozen=True):
    """State of a device in the store."""

    session: Session
    former: list[list[str | int]]
    address: str | None
    facts_seq: int = msgspec.field(name="told")


class SpoolServer:
    """Machine of the spooling server; ``time_of_day_us`` is the local time at the start of the lab.

    At most ``capacity`` messages of a topic wait for a device.
    """

    def __init__(self, ports: Ports, time_of_day_us: int, capacity: int) -> None:
        self._store, self._entropy, self._address = ports.store, ports.entropy, ports.address
        self._incarnation = Incarnation(ports)
        self._start_of_day_us, self._capacity = time_of_day_us, capacity
        self._peers: dict[str, DeviceState] = {}
        self._at: dict[str, DeviceState] = {}
        """Devices by their addresses."""
        self._subscribers: dict[str, dict[str, ServerSubscription]] = {}
        """Subscriptions by topic and device."""
        self._submissions = Submissions(ports)
        self._indexer = Indexer()
        self._touched: dict[tuple[str, str], ServerSubscription] = {}
        """Subscriptions that may have something to show at the end of the event."""
        self._is_awake = False
        self._is_restarted = bool(ports.store.keys())
        self._now_us = 0

    def overview(self) -> View:
        """Return a display of subscriptions and waiting messages."""
        topics = self._subscribers
        size = sum(map(len, topics.values()))
        rows = (
            (
                subscription.device,
                topic,
                subscription.spool.waiting,
                subscription.spool.device.size,
                subscription.spool.is_up,
            )
            for topic, subscriptions in topics.items()
            for subscription in subscriptions.values()
        )
        columns = ("device", "topic", "waiting", "on the device", "reached")
        facts = {"topics": len(topics), "subscriptions": size}
        return View("", facts, [first_rows(columns, rows, size)])

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle an event, see :class:`mudkit.events.Machine`."""
        self._now_us = now_us
        message = _ACCEPTED.decode(event.message) if type(event) is Received else None
        if type(event) is Received and (message is None or message.device != event.sender):
            return record_dropped(event)
        effects = [] if self._is_awake else self._restore()
        if type(event) is Received and message is not None:
            effects += self._receive(event.source, message)
        else:
            effects += self._handle_event(event)
        touched, self._touched = list(self._touched.values()), {}
        effects += [effect for subscription in touched for effect in self._send_pending(subscription)]
        for subscription in touched:
            due = subscription.show_due(now_us)
            effects += [*self._send_pending(subscription), *due]
        return effects

    def _receive(
        self, source: str, message: Hello | DeviceFacts | ReadRequest | Ack | FromPublisher
    ) -> Sequence[Effect]:
        """Handle a message of a device by its kind."""
        match message:
            case Hello():
                return self._receive_hello(source, message)
            case DeviceFacts():
                return self._receive_facts(source, message)
            case ReadRequest():
                return self._receive_read_request(source, message)
            case Ack():
                return self._receive_ack(message)
            case SubmitHello() | Submission():
                return self._receive_submission(source, message)

    def _handle_event(self, event: Event) -> Sequence[Effect]:
        """Handle an event that is no message: a call, a failed sending or a timer."""
        match event:
            case Call(op_id=op_id):
                return self._call(op_id, event)
            case SendFailed(to=to, message=Welcome() | FactsAck() | Identify() | StreamMessage() as message):
                return self._handle_send_failed(to, message)
            case TimerFired(name=name) if name.startswith(_RETRANSMIT):
                peer = self._peers.get(name.removeprefix(_RETRANSMIT))
                return () if peer is None else self._retransmit(peer)
            case TimerFired(name=name):
                return self._handle_due_timer(name)
        return ()

    def _restore(self) -> list[Effect]:
        """Restore devices and subscriptions after a restart, and ask the devices to identify."""
        self._restore_peers()
        effects: list[Effect] = []
        for key, stored in self._store.items("sub ", StoredSubscription):
            device = key.removeprefix("sub ").split("\n")[0]
            effects += self._begin_subscription(
                self._peer(device), stored.subscribed_seq, stored.fields.subscription()
            )
        self._is_awake = True  # only now: an earlier hello would see half of the subscriptions
        for _, peer in sorted(self._peers.items()):
            effects += self._send_identify(peer)
        return effects

    # -- publishers

    def _receive_submission(self, source: str, message: FromPublisher) -> Sequence[Effect]:
        """Carry out what a publisher on a device submits, once; acknowledge or refuse it."""
        answer, is_new = self._submissions.receive(source, message)
        if not is_new or not isinstance(message, Submission):
            return answer
        problems: Sequence[str] = ()
        refusal: Refusal | None = None
        try:
            problems = self._carry_out(message)
        except MudkitError as error:
            refusal = Refusal.of(error)
        settled = self._submissions.settle(source, message, refusal)
        return [*answer, *map(_query_incident, problems), *settled]

    def _carry_out(self, message: Submission[Publication]) -> Sequence[str]:
        """Publish a message or change a rank for a publisher; return the failures of queries.

        Raises ParameterError if it is not valid, and MessageExpired if it has expired on its way.
        """
        publication = message.body
        check_topic(publication.topic)
        number("rank", publication.rank, -MAX_RANK, MAX_RANK)
        if isinstance(publication, RankUpdate):
            self._rerank(Rerank(publication.topic, publication.id, publication.rank))
            return ()
        if not is_storable(publication.content):
            raise ParameterError(
                "A message cannot be stored.",
                where="content",
                found=brief(publication.content),
                expected="whole characters, and whole numbers of at most 64 bit",
            )
        if publication.expires_us is not None and publication.expires_us <= self._now_us:
            raise MessageExpired(
                "The message had expired when it arrived at the server.",
                where=message.device,
                remedy="publish it with a longer lifetime, or without one",
            )
        created_us = min(publication.created_us, self._now_us)
        name = f"{publication.topic} {self._submissions.submission_name(message)}"
        return self._distribute(msgspec.structs.replace(publication, created_us=created_us), name)[1]

    def _call(self, op_id: int, call: Call) -> Sequence[Effect]:
        """Carry out an operation of a publisher or of an observer; complete it at once."""
        try:
            match call.operation:
                case Publish() as publish:
                    identity, problems = self._publish(publish)
                    return [*map(_query_incident, problems), Complete(op_id, identity)]
                case Rerank() as rerank:
                    self._rerank(rerank)
                    return (Complete(op_id),)
                case Queues() as queues:
                    return (Complete(op_id, self._queue_sizes(queues)),)
            raise ParameterError(
                "There is no such operation.", found=brief(call.name), expected="publish, rerank, queues"
            )
        except MudkitError as error:
            return (Complete(op_id, error=error),)

    def _publish(self, publish: Publish) -> tuple[str, Sequence[str]]:
        """Publish a message at the server; return its identity, and the failures of queries."""
        topic, item = publish.topic, publish.item
        count = (self._store.get(f"count {topic}", int) or 0) + 1
        self._store.put(f"count {topic}", count)
        counted = f"{self._incarnation.id} {count}" if self._is_restarted else f"{count}"
        until_us = None if publish.expires_us is None else self._now_us + publish.expires_us
        message = PublishedMessage(topic, publish.rank, publish.content, self._now_us, until_us, item)
        return self._distribute(message, f"{topic} {counted}")

    def _distribute(self, published: PublishedMessage, default_name: str) -> tuple[str, Sequence[str]]:
        """Add a message to all subscriptions that it is for; return its identity, and failures of queries.

        ``default_name`` is its identity if it has no name of its own.
        """
        topic, item = published.topic, published.item
        identity = default_name if item is None else item
        message = {**published.content, "topic": topic, "rank": published.rank}
        queries, problems = self._indexer.matching_queries(message)
        subscriptions = [
            subscription
            for name in (topic, *queries)
            for subscription in self._subscribers.get(name, {}).values()
        ]
        if item is not None and any(subscription.has_seen(item) for subscription in subscriptions):
            raise ParameterError(
                "There is a message of this name.",
                where="item",
                found=brief(item),
                expected="a name of its own for each message",
            )
        until_us = FOREVER_US if published.expires_us is None else published.expires_us
        for subscription in subscriptions:
            self._mark_changed(subscription)
            subscription.publish(
                self._now_us, identity, published.rank, until_us, message, published.created_us
            )
        return identity, problems

    def _rerank(self, rerank: Rerank) -> None:
        """Change the rank of a message in all subscriptions that may have it."""
        for topic, subscribers in list(self._subscribers.items()):
            if topic == rerank.topic or is_query(topic):
                for subscription in list(subscribers.values()):
                    self._mark_changed(subscription)
                    subscription.rerank(self._now_us, rerank.topic, rerank.identity, rerank.rank)

    def _queue_sizes(self, queues: Queues) -> dict[str, int]:
        """Return the numbers of messages that wait for a device, and that are on it as far as known."""
        subscription = self._subscribers.get(queues.topic, {}).get(queues.device)
        if subscription is None:
            raise ParameterError(
                "There is no such subscription.",
                where="device, topic",
                found=f"{queues.device!r}, {queues.topic!r}",
                expected="a topic that the device is subscribed to",
            )
        self._mark_changed(subscription)
        subscription.spool.timeout(self._now_us)
        return {"waiting": subscription.spool.waiting, "on_device": subscription.spool.device.size}

    # -- devices

    def _receive_hello(self, source: str, message: Hello) -> Sequence[Effect]:
        """Begin the session of a device, or ask it to identify if the hello may be a late copy."""
        device, session, after = message.device, message.session, message.after
        peer = self._peer(device)
        if peer.is_outdated(session):
            return ()
        welcome = Send(source, Welcome(device, session, peer.facts_seq))
        if session == peer.session and peer.is_connected:
            return (welcome,)
        is_other, is_answer = session[:2] != peer.session[:2], peer.has_answered(message)
        must_answer = is_other and (bool(peer.session[0]) or self._is_restarted)
        if not is_answer and (must_answer or not peer.is_identified):
            return (self._build_question(source, peer, session),)
        before, wants = peer.stream, message.wants
        effects: list[Effect] = []
        if is_other:
            if session[0] != peer.session[0]:
                effects += self._forget_device(peer)
            peer.restart()
            before = None
        if session == peer.session or (after is not None and (before is None or before.name != after[0])):
            # A late copy, or a device that must send everything.
            return [*effects, self._build_question(source, peer, session)]
        effects += self._disconnect(peer)
        peer.session, peer.nonce, peer.is_identified = session, None, True
        peer.room = math.inf if message.room is None else message.room
        if wants is not UNSET:
            if is_answer and wants.base is not None:
                effects += self._roll_back(peer, wants.base)
            effects += self._skip_facts_lost_here(peer, wants)
        _, taken = self._handle_facts(peer, message.facts)
        effects += taken
        if wants is not UNSET:
            effects += self._replace_subscriptions(peer, wants)
            effects += self._keep_lost_messages(peer, wants, message.holds)
        peer.read_numbers = set()  # read numbers belong to a session
        peer.stream = Outgoing("{} {}.{}".format(*session))
        effects += self._assign_address(peer, source)
        self._store_peer(peer)
        effects.append(Send(source, Welcome(device, session, peer.facts_seq)))
        for topic, subscription in peer.topics.items():
            self._mark_changed(subscription)
            if before is None or after is None:
                subscription.reconcile(self._now_us, message.holds.get(topic, {}))
            else:
                subscription.resume(
                    self._now_us, UnacknowledgedItems.of(before, after[1], topic, subscription.subscribed_seq)
                )
        return effects

    def _assign_address(self, peer: DeviceState, address: str) -> Sequence[Effect]:
        """Assign an address to a device; its previous owner loses it.

        The hello may have been sent before the previous owner's, so that one is asked whether it is there.
        """
        if peer.address is not None and self._at.get(peer.address) is peer:
            del self._at[peer.address]
        before = self._at.get(address)
        self._at[address] = peer
        peer.address, peer.is_connected = address, True
        if before is None:
            return ()
        before.address, before.stream = None, None  # its next hello says what it holds
        self._store_peer(before)
        return [*self._disconnect(before), self._build_question(address, before, before.session)]

    def _receive_facts(self, source: str, message: DeviceFacts) -> Sequence[Effect]:
        """Handle the new facts of a device, and acknowledge them."""
        session, peer = message.session, self._peer(message.device)
        effects: list[Effect] = []
        if session[:2] == peer.session[:2] and peer.is_identified:  # else earlier facts may be unknown
            is_new, taken = self._handle_facts(peer, message.facts)
            effects += taken
            if is_new:
                self._store_peer(peer)
            effects.append(Send(source, FactsAck(peer.name, session, peer.facts_seq)))
        _, identify = self._check_session(source, peer, session)
        return [*effects, *identify]

    def _receive_read_request(self, source: str, message: ReadRequest) -> Sequence[Effect]:
        """Send messages better than those on the device, for a read in the current session."""
        peer = self._peer(message.device)
        is_current, identify = self._check_session(source, peer, message.session)
        subscription = peer.topics.get(message.topic)
        if is_current and peer.record_read(message.number) and subscription is not None:
            self._mark_changed(subscription)
            max_messages = math.inf if message.most is None else message.most
            subscription.answer_read(self._now_us, max_messages, message.number)
        return identify

    def _handle_facts(
        self, peer: DeviceState, facts: Sequence[tuple[int, Fact]]
    ) -> tuple[bool, Sequence[Effect]]:
        """Handle the new facts of a device, and return whether there were any."""
        new = [(seq, fact) for seq, fact in facts if seq > peer.facts_seq]
        effects: list[Effect] = []
        for seq, fact in new:
            peer.facts_seq = seq
            known = peer.topics.get(fact.topic)
            match fact:
                case Subscribed(subscription=fields) if known is not None:
                    self._mark_changed(known)
                    known.subscribe(self._now_us, fields.subscription())
                case Subscribed(subscription=fields):
                    effects += self._begin_subscription(peer, seq, fields.subscription())
                case Unsubscribed() if known is not None:
                    effects += self._end_subscription(peer, fact.topic)
                case Unsubscribed():
                    pass
                case _ if known is not None:
                    was_requested = isinstance(fact, HasRead) and not peer.record_read(fact.number)
                    self._mark_changed(known)
                    known.handle_fact(self._now_us, fact, was_requested=was_requested)
        return bool(new), effects

    def _send_pending(self, subscription: ServerSubscription) -> Sequence[Effect]:
        """Add the pending items of a subscription to the stream of its device, and send them."""
        peer = self._peers[subscription.device]
        effects: list[Effect] = []
        for body in subscription.take_pending():
            if peer.stream is None or peer.address is None:
                continue  # the next hello says what the device holds
            item = peer.stream.add(self._now_us, body)
            effects += self._send_items(peer, (item,))
            if not peer.is_connected and len(peer.stream) > _MAX_MISSED:
                peer.stream = None
        return effects

    def _begin_subscription(
        self, peer: DeviceState, subscribed_seq: int, limits: Subscription
    ) -> Sequence[Effect]:
        """Begin a subscription; return an incident if it is a query that cannot be evaluated."""
        subscription = ServerSubscription(
            self._store,
            self._now_us,
            peer.name,
            subscribed_seq,
            limits,
            self._capacity,
            self._start_of_day_us,
        )
        topic = subscription.topic
        peer.topics[topic] = subscription
        self._subscribers.setdefault(topic, {})[peer.name] = subscription
        failed: Sequence[Effect] = ()
        if is_query(topic):
            try:
                self._indexer.add(topic)
            except PredicateError as error:  # matches nothing until the next start; the others work
                failed = (_query_incident(describe_failure(topic, error)),)
        self._mark_changed(subscription)
        subscription.spool.network(self._now_us, is_up=peer.is_connected)
        return failed

    def _end_subscription(self, peer: DeviceState, topic: str) -> Sequence[Effect]:
        """End a subscription, and delete its messages."""
        subscription = peer.topics.pop(topic)
        subscription.end()
        self._touched.pop((peer.name, topic), None)
        del self._subscribers[topic][peer.name]
        if not self._subscribers[topic]:
            del self._subscribers[topic]
            self._indexer.remove(topic)
        return (CancelTimer(f"{_DUE}{peer.name}\n{topic}"),)

    def _handle_send_failed(
        self, to: str, message: Welcome | FactsAck | Identify | StreamMessage
    ) -> Sequence[Effect]:
        """Disconnect a device that was not reached, and requeue the message for it."""
        peer = self._peers.get(message.device)
        if peer is None or peer.address != to:
            return ()
        effects = self._disconnect(peer)
        stream = peer.stream
        if isinstance(message, StreamMessage) and stream is not None and message.stream == stream.name:
            body, subscription = message.body, peer.topics.get(message.body.topic)
            if (
                isinstance(body, Forwarded)
                and subscription is not None
                and subscription.subscribed_seq == body.subscribed_seq
            ):
                subscription.spool.requeue(body.id)
        return effects

    def _forget_device(self, peer: DeviceState) -> Sequence[Effect]:
        """End the subscriptions of the device that had the name before: its store is another one."""
        peer.facts_seq = 0
        return [effect for topic in list(peer.topics) for effect in self._end_subscription(peer, topic)]

    def _roll_back(self, peer: DeviceState, base: int) -> Sequence[Effect]:
        """Accept facts after a number again: the device's store is an old backup."""
        if peer.facts_seq <= base:
            return ()
        lost = f"facts {base + 1} to {peer.facts_seq} are gone"
        peer.facts_seq = base
        return (rollback_incident(peer.name, lost),)

    def _skip_facts_lost_here(self, peer: DeviceState, wants: Subscriptions) -> Sequence[Effect]:
        """Skip the facts that this server, an old backup, has lost, and report those it had acknowledged.

        ``facts_seq`` moves to the one before the first that the device can still send.
        """
        known_seq, acked_seq = peer.facts_seq, wants.acked
        peer.facts_seq = max(known_seq, wants.first - 1)
        if acked_seq <= known_seq:
            return ()
        lost = f"facts {known_seq + 1} to {acked_seq} of {peer.name} were gone; it has sent them again"
        if wants.first > known_seq + 1:
            lost += f" from {wants.first} on"
        return (rollback_incident(self._address, lost),)

    def _keep_lost_messages(
        self, peer: DeviceState, wants: Subscriptions, holds: dict[str, dict[str, float]]
    ) -> Sequence[Effect]:
        """Leave a device the messages that only it has: this server's store is an old backup."""
        return [
            rollback_incident(self._address, f"messages of {topic!r} up to number {last_order} are gone")
            for topic, (_, _, last_order) in wants.topics.items()
            if peer.topics[topic].detect_rollback(last_order, holds.get(topic, {}))
        ]

    def _replace_subscriptions(self, peer: DeviceState, subscriptions: Subscriptions) -> Sequence[Effect]:
        """Begin, change and end subscriptions to match those of the device."""
        effects: list[Effect] = []
        for topic, known in list(peer.topics.items()):
            if topic not in subscriptions.topics or subscriptions.topics[topic][0] != known.subscribed_seq:
                effects += self._end_subscription(peer, topic)
        for topic, (subscribed_seq, fields, _) in subscriptions.topics.items():
            if topic not in peer.topics:
                effects += self._begin_subscription(peer, subscribed_seq, fields.subscription())
            elif SubscriptionFields.of(peer.topics[topic].subscription) != fields:
                self._mark_changed(peer.topics[topic])
                peer.topics[topic].subscribe(self._now_us, fields.subscription())
        return effects

    def _disconnect(self, peer: DeviceState) -> Sequence[Effect]:
        """Stop forwarding to a device until its next hello."""
        peer.is_connected = False
        for subscription in peer.topics.values():
            subscription.spool.is_up = False
        return peer.in_flight.clear()

    def _mark_changed(self, subscription: ServerSubscription) -> None:
        """Mark a subscription that changes in this event, and update the room that others leave it."""
        self._touched[subscription.device, subscription.topic] = subscription
        peer = self._peers[subscription.device]
        if peer.room < math.inf:
            others = [other for other in peer.topics.values() if other is not subscription]
            subscription.spool.room = peer.room - sum(other.spool.device.size for other in others)

    # -- sending and retransmission

    def _receive_ack(self, message: Ack) -> Sequence[Effect]:
        """Remove acknowledged items from the stream, and retransmit missing ones."""
        peer = self._peers.get(message.device)
        if peer is None or peer.stream is None or peer.stream.name != message.stream:
            return ()
        acked, now_us = peer.stream.ack_up_to(message.seq), self._now_us
        stop = [effect for seq in acked for effect in peer.in_flight.settle(now_us, seq)]
        missing = () if message.missing is UNSET else frozenset(message.missing)
        return [*stop, *self._send_items(peer, peer.stream.items_of(missing))]

    def _check_session(
        self, source: str, peer: DeviceState, session: Session
    ) -> tuple[bool, Sequence[Effect]]:
        """Return whether a session is the current one; if it is unknown, ask the device to identify."""
        is_current = session == peer.session and peer.is_connected
        if is_current or peer.is_outdated(session):
            return is_current, ()
        return is_current, (self._build_question(source, peer, session),)

    def _build_question(
        self, to: str, peer: DeviceState, session: Session, *, restarted: bool = False
    ) -> Send:
        """Return the question to a device to identify; the nonce is drawn once for each."""
        if peer.nonce is None:
            peer.nonce = self._entropy(_NONCE_BYTES).hex()
        known = (*peer.session[:2], peer.facts_seq)
        return Send(to, Identify(peer.name, session, peer.nonce, known, True if restarted else UNSET))

    def _peer(self, device: str) -> DeviceState:
        """Return the state of the device of a name; create it at the first call."""
        if device not in self._peers:
            self._peers[device] = DeviceState(device)
        return self._peers[device]

    def _restore_peers(self) -> None:
        """Restore the state of the devices from the store; they have to identify."""
        for key, stored in self._store.items("phone ", _StoredDeviceState):
            peer = self._peer(key.removeprefix("phone "))
            peer.session = stored.session
            peer.former = [(str(store_id), int(incarnation)) for store_id, incarnation in stored.former]
            peer.address, peer.facts_seq = stored.address, stored.facts_seq
            peer.is_identified = False
            if peer.address is not None:
                self._at[peer.address] = peer

    def _store_peer(self, peer: DeviceState) -> None:
        """Store session, address and last fact of a device."""
        former: list[list[str | int]] = [[store_id, incarnation] for store_id, incarnation in peer.former]
        stored = _StoredDeviceState(peer.session, former, peer.address, peer.facts_seq)
        self._store.put(f"phone {peer.name}", stored)

    def _send_identify(self, peer: DeviceState) -> Sequence[Effect]:
        """Send Identify to a device known before the restart, until it answers."""
        if peer.address is None:
            return ()
        question = self._build_question(peer.address, peer, peer.session, restarted=True)
        return question, *peer.in_flight.start(self._now_us, _IDENTIFY)

    def _send_items(self, peer: DeviceState, items: Iterable[StreamItem[Body]]) -> Sequence[Effect]:
        """Send items of a stream if the device is connected, and retransmit until acknowledged."""
        effects: list[Effect] = []
        if peer.is_connected and peer.address is not None:
            for item in items:
                message = StreamMessage(item.stream, item.seq, item.first, item.body, peer.name)
                due = peer.in_flight.start(self._now_us, item.seq, size_bytes(message))
                effects += (Send(peer.address, message), *due)
        return effects

    def _retransmit(self, peer: DeviceState) -> Sequence[Effect]:
        """Retransmit the question and the items that a device has not answered in time."""
        late = peer.in_flight.overdue(self._now_us)
        identify = self._send_identify(peer) if _IDENTIFY in late else ()
        items = () if peer.stream is None else peer.stream.items_of(frozenset(late))
        return [*identify, *self._send_items(peer, items), *peer.in_flight.restart(self._now_us)]

    # -- time

    def _handle_due_timer(self, timer: str) -> Sequence[Effect]:
        """Show what is due in a subscription, when its timer fires."""
        device, topic = timer.removeprefix(_DUE).split("\n")
        subscription = self._subscribers.get(topic, {}).get(device)
        if subscription is None:
            return ()
        self._mark_changed(subscription)
        due = subscription.show_due(self._now_us, is_due=True)
        return [*self._send_pending(subscription), *due]


def _query_incident(detail: str) -> Effect:
    """Return the incident of a query that failed."""
    return Record("incidents", {"incident": "failed", "detail": detail})
