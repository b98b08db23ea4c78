"""The spooling server: it keeps messages of topics, and a spool for each device and topic (Last hop 3, 4.5).

Its rules:

===========  =======================================================================================
publish      kept durably for each subscriber, and into its spool; for queries of the indexer, too:
             one that fails gets nothing, and is an incident
rerank       a message has another rank from now on
told         what the device has to say, in order and once: it subscribes and unsubscribes, and says
             what was read, shown and let go there
hello        the same; the device says what it holds, a new stream begins, and what was lost on its
             way waits again
read         what is better than what the device has goes to it, and then the word that this is all
confirmed    the device has it; what it misses is sent again at once
failed       the device is away until it says hello, and what failed waits again
timer        what expires and what is delayed; quiet hours, fixed times, a new day; sending again
===========  =======================================================================================

Subscriptions and what waits outlive the machine; what devices hold they say again, when a server that begins
asks who is there. A device that comes back with an empty store is another one under the same name: what the
old one was subscribed to ends, and what is still on its way from it is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from mudkit.delivery.session import rolled_back
from mudkit.delivery.stream import Outgoing
from mudkit.display import View, first_rows
from mudkit.errors import MudkitError, ParameterError, PredicateError, brief
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
)
from mudkit.systems.lasthop import operations
from mudkit.systems.lasthop.messages import (
    Ack,
    DeviceFacts,
    Fact,
    FactsAck,
    Forwarded,
    FromDevice,
    HasRead,
    Hello,
    Identify,
    Read,
    Stream,
    Subscribes,
    Unsubscribes,
    Wanted,
    Wants,
    Welcome,
)
from mudkit.systems.lasthop.servers.indexer import Indexer, is_query, problem
from mudkit.systems.lasthop.servers.kept import Kept, Missed
from mudkit.systems.lasthop.servers.phone import AGAIN, Phone
from mudkit.systems.lasthop.servers.server_subscription import ServerSubscription
from mudkit.systems.lasthop.servers.sessions import Sessions
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.receiving import dropped

__all__ = ["SpoolServer"]

_MAX_MISSED: Final = 1000
"""Of what is kept for a device that is away; with more it has to say what it has."""
_TAKEN: Final = FromDevice()
_DUE: Final = "due "


class SpoolServer(Sessions):
    """The machine of the spooling server.

    Parameters
    ----------
    ports : Ports
    time_of_day_us : int
        What time of the day it is when time begins.
    capacity : int
        The largest number of messages of a topic that wait for a device; beyond, the lowest rank goes.
    """

    def __init__(self, ports: Ports, time_of_day_us: int, capacity: int) -> None:
        super().__init__(ports)
        self._begins_us, self._capacity = time_of_day_us, capacity
        self._subscribers: dict[str, dict[str, ServerSubscription]] = {}
        self._indexer = Indexer()
        self._touched: dict[tuple[str, str], ServerSubscription] = {}
        self._is_awake = False
        self._is_restarted = bool(ports.store.keys())

    def overview(self) -> View:
        """Return the subscriptions and what waits for them, as a display shows it."""
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
        """See :class:`mudkit.events.Machine`."""
        self._now_us = now_us
        message = _TAKEN.decode(event.message) if type(event) is Received else None
        if type(event) is Received and (message is None or message.device != event.sender):
            return dropped(event)
        effects = [] if self._is_awake else self._wake()
        if type(event) is Received and message is not None:
            effects += self._received(event.source, message)
        else:
            effects += self._decide(event)
        touched, self._touched = list(self._touched.values()), {}
        effects += [effect for each in touched for effect in self._said(each)]
        for subscription in touched:
            settled = subscription.settle(now_us)
            effects += [*self._said(subscription), *settled]
        return effects

    def _received(self, source: str, message: Hello | DeviceFacts | Read | Ack) -> Sequence[Effect]:
        match message:
            case Hello():
                return self._hello(source, message)
            case DeviceFacts():
                return self._hear(source, message)
            case Read():
                return self._read(source, message)
            case Ack():
                return self._acked(message)

    def _decide(self, event: Event) -> Sequence[Effect]:
        match event:
            case Call(op_id=op_id):
                return self._call(op_id, event)
            case SendFailed(to=to, message=Welcome() | FactsAck() | Identify() | Stream() as message):
                return self._failed(to, message)
            case TimerFired(name=name) if name.startswith(AGAIN):
                phone = self._phones.get(name.removeprefix(AGAIN))
                return () if phone is None else self._again(phone)
            case TimerFired(name=name):
                return self._due(name)
        return ()

    def _wake(self) -> list[Effect]:
        """Take up what another life has left."""
        self._take_up()
        effects: list[Effect] = []
        for key, kept in self._store.items("sub ", Kept):
            device = key.removeprefix("sub ").split("\n")[0]
            effects += self._begin(self._phone(device), kept.run, kept.wanted.subscription())
        self._is_awake = True  # not before: half of it would look like all there is
        for _, phone in sorted(self._phones.items()):
            effects += self._ask_who(phone)
        return effects

    # -- publishers

    def _call(self, op_id: int, call: Call) -> Sequence[Effect]:
        try:
            match call.operation:
                case operations.Publish() as asked:
                    identity, problems = self._publish(asked)
                    return [*map(_failure, problems), Complete(op_id, identity)]
                case operations.Rerank() as asked:
                    self._rerank(asked)
                    return (Complete(op_id),)
                case operations.Queues() as asked:
                    return (Complete(op_id, self._queues(asked)),)
            raise ParameterError(
                "There is no such operation.", found=brief(call.name), expected="publish, rerank, queues"
            )
        except MudkitError as error:
            return (Complete(op_id, error=error),)

    def _publish(self, asked: operations.Publish) -> tuple[str, Sequence[str]]:
        """Take a message for all who want it; give its identity, and what went wrong with queries."""
        topic, rank, item = asked.topic, asked.rank, asked.item
        count = (self._store.get(f"count {topic}", int) or 0) + 1
        self._store.put(f"count {topic}", count)
        number = f"{self._start.id} {count}" if self._is_restarted else f"{count}"
        identity = f"{topic} {number}" if item is None else item
        until_us = FOREVER_US if asked.expires_us is None else self._now_us + asked.expires_us
        message = {**asked.content, "topic": topic, "rank": rank}
        queries, problems = self._indexer.topics(message)
        spools = [each for name in (topic, *queries) for each in self._subscribers.get(name, {}).values()]
        if item is not None and any(each.has_seen(item) for each in spools):
            raise ParameterError(
                "There is a message of this name.",
                where="item",
                found=brief(item),
                expected="a name of its own for each message",
            )
        for subscription in spools:
            self._touch(subscription)
            subscription.publish(self._now_us, identity, rank, until_us, message)
        return identity, problems

    def _rerank(self, asked: operations.Rerank) -> None:
        for each, subscribers in list(self._subscribers.items()):
            if each == asked.topic or is_query(each):
                for subscription in list(subscribers.values()):
                    self._touch(subscription)
                    subscription.rerank(self._now_us, asked.topic, asked.identity, asked.rank)

    def _queues(self, asked: operations.Queues) -> dict[str, int]:
        subscription = self._subscribers.get(asked.topic, {}).get(asked.device)
        if subscription is None:
            raise ParameterError(
                "There is no such subscription.",
                where="device, topic",
                found=f"{asked.device!r}, {asked.topic!r}",
                expected="a topic that the device is subscribed to",
            )
        self._touch(subscription)
        subscription.spool.timeout(self._now_us)
        return {"waiting": subscription.spool.waiting, "on_device": subscription.spool.device.size}

    # -- devices

    def _hello(self, source: str, message: Hello) -> Sequence[Effect]:
        device, session, after = message.device, message.session, message.after
        phone = self._phone(device)
        if phone.is_over(session):
            return ()
        welcome = Send(source, Welcome(device, session, phone.facts_heard))
        if session == phone.session and phone.is_there:
            return (welcome,)
        before = phone.stream
        effects: list[Effect] = []
        if session[:2] != phone.session[:2]:
            if phone.session[0] and not phone.is_alive(session):
                phone.claimed = session
                return (Send(source, Identify(device, session)),)
            if session[0] != phone.session[0]:
                effects += self._begins_anew(phone)
            elif message.wants is not UNSET:
                effects += self._goes_back(phone, message.wants.base)
            phone.has_started()
            before = None
        if session == phone.session or (after is not None and (before is None or before.name != after[0])):
            # It may be a late copy, or must say it all.
            return [*effects, Send(source, Identify(device, session))]
        effects += self._away(phone)
        phone.session = session
        phone.room = math.inf if message.room is None else message.room
        if message.wants is not UNSET and message.wants.first - 1 > phone.facts_heard:
            detail = f"facts of {device} up to number {message.wants.first - 1} are not known here"
            effects.append(Record("incidents", {"incident": "began anew", "detail": detail}))
            phone.facts_heard = message.wants.first - 1
        _, taken = self._take_facts(phone, message.facts)
        effects += taken
        if message.wants is not UNSET:
            effects += self._take_wants(phone, message.wants)
        phone.asked = set()  # another life counts anew, and what another session asked is not heard
        phone.stream = Outgoing("{} {}.{}".format(*session))
        phone.address, phone.is_there = source, True
        self._keep(phone)
        effects.append(Send(source, Welcome(device, session, phone.facts_heard)))
        for topic, subscription in phone.topics.items():
            self._touch(subscription)
            if before is None or after is None:
                subscription.hello(self._now_us, message.holds.get(topic, {}))
            else:
                subscription.goes_on(self._now_us, Missed.of(before, after[1], topic, subscription.run))
        return effects

    def _hear(self, source: str, message: DeviceFacts) -> Sequence[Effect]:
        session, phone = message.session, self._phone(message.device)
        effects: list[Effect] = []
        if session[:2] == phone.session[:2]:
            is_new, taken = self._take_facts(phone, message.facts)
            effects += taken
            if is_new:
                self._keep(phone)
            effects.append(Send(source, FactsAck(phone.name, session, phone.facts_heard)))
        _, asked = self._check(source, phone, session)
        return [*effects, *asked]

    def _read(self, source: str, message: Read) -> Sequence[Effect]:
        phone = self._phone(message.device)
        goes_on, asked = self._check(source, phone, message.session)
        subscription = phone.topics.get(message.topic)
        if goes_on and phone.asks(message.number) and subscription is not None:
            self._touch(subscription)
            most = math.inf if message.most is None else message.most
            subscription.offer(self._now_us, most, message.number)
        return asked

    def _take_facts(self, phone: Phone, facts: Sequence[tuple[int, Fact]]) -> tuple[bool, Sequence[Effect]]:
        """Take what is new of what a device tells, and say whether anything is."""
        new = [(seq, fact) for seq, fact in facts if seq > phone.facts_heard]
        effects: list[Effect] = []
        for seq, fact in new:
            phone.facts_heard = seq
            known = phone.topics.get(fact.topic)
            match fact:
                case Subscribes(subscription=wanted) if known is not None:
                    self._touch(known)
                    known.subscribe(self._now_us, wanted.subscription())
                case Subscribes(subscription=wanted):
                    effects += self._begin(phone, seq, wanted.subscription())
                case Unsubscribes() if known is not None:
                    effects += self._end(phone, fact.topic)
                case Unsubscribes():
                    pass
                case _ if known is not None:
                    if isinstance(fact, HasRead):
                        phone.asks(fact.number)
                    self._touch(known)
                    known.take_fact(self._now_us, fact)
        return bool(new), effects

    def _said(self, subscription: ServerSubscription) -> Sequence[Effect]:
        """Send a device what its subscription has to say, after all that was sent before."""
        phone = self._phones[subscription.device]
        effects: list[Effect] = []
        for body in subscription.said():
            if phone.stream is None or phone.address is None:
                continue  # it will say what it has
            item = phone.stream.add(self._now_us, body)
            effects += self._stream(phone, (item,))
            if not phone.is_there and len(phone.stream) > _MAX_MISSED:
                phone.stream = None
        return effects

    def _begin(self, phone: Phone, run: int, wanted: Subscription) -> Sequence[Effect]:
        subscription = ServerSubscription(
            self._store, self._now_us, phone.name, run, wanted, self._capacity, self._begins_us
        )
        phone.topics[wanted.topic] = subscription
        self._subscribers.setdefault(wanted.topic, {})[phone.name] = subscription
        failed: Sequence[Effect] = ()
        if is_query(wanted.topic):
            try:
                self._indexer.add(wanted.topic)
            except PredicateError as error:  # it gets nothing in this life; the others do
                failed = (_failure(problem(wanted.topic, error)),)
        self._touch(subscription)
        subscription.spool.network(self._now_us, is_up=phone.is_there)
        return failed

    def _end(self, phone: Phone, topic: str) -> Sequence[Effect]:
        subscription = phone.topics.pop(topic)
        subscription.end()
        self._touched.pop((phone.name, topic), None)
        del self._subscribers[topic][phone.name]
        if not self._subscribers[topic]:
            del self._subscribers[topic]
            self._indexer.remove(topic)
        return (CancelTimer(f"{_DUE}{phone.name}\n{topic}"),)

    def _failed(self, to: str, message: Welcome | FactsAck | Identify | Stream) -> Sequence[Effect]:
        phone = self._phones.get(message.device)
        if phone is None or phone.address != to:
            return ()
        effects = self._away(phone)
        stream = phone.stream
        if isinstance(message, Stream) and stream is not None and message.stream == stream.name:
            body, subscription = message.body, phone.topics.get(message.body.topic)
            if isinstance(body, Forwarded) and subscription is not None and subscription.run == body.run:
                subscription.spool.lost(body.id)
        return effects

    def _begins_anew(self, phone: Phone) -> Sequence[Effect]:
        """Forget what was the device's that had this name: it is another one, and knows nothing of that."""
        phone.facts_heard = 0
        return [effect for topic in list(phone.topics) for effect in self._end(phone, topic)]

    def _goes_back(self, phone: Phone, base: int) -> Sequence[Effect]:
        """Hear facts again from a number on that the device has told: its store is an old backup."""
        if phone.facts_heard <= base:
            return ()
        lost = f"facts {base + 1} to {phone.facts_heard} are gone"
        phone.facts_heard = base
        return (rolled_back(phone.name, lost),)

    def _take_wants(self, phone: Phone, wants: Wants) -> Sequence[Effect]:
        """Begin, change and end subscriptions, so that they are what the device has."""
        effects: list[Effect] = []
        for topic, known in list(phone.topics.items()):
            if topic not in wants.topics or wants.topics[topic][0] != known.run:
                effects += self._end(phone, topic)
        for topic, (run, wanted) in wants.topics.items():
            if topic not in phone.topics:
                effects += self._begin(phone, run, wanted.subscription())
            elif Wanted.of(phone.topics[topic].subscription) != wanted:
                self._touch(phone.topics[topic])
                phone.topics[topic].subscribe(self._now_us, wanted.subscription())
        return effects

    def _away(self, phone: Phone) -> Sequence[Effect]:
        """Forward nothing any more, until the device says hello and what it holds."""
        phone.is_there = False
        for subscription in phone.topics.values():
            subscription.spool.is_up = False
        return phone.unanswered.clear()

    def _touch(self, subscription: ServerSubscription) -> None:
        """Settle it when the event is done; and what the device's other topics hold takes its room."""
        self._touched[subscription.device, subscription.topic] = subscription
        phone = self._phones[subscription.device]
        if phone.room < math.inf:
            held = sum(each.spool.device.size for each in phone.topics.values())
            subscription.spool.room = phone.room - held + subscription.spool.device.size

    # -- time

    def _due(self, name: str) -> Sequence[Effect]:
        device, topic = name.removeprefix(_DUE).split("\n")
        subscription = self._subscribers.get(topic, {}).get(device)
        if subscription is None:
            return ()
        self._touch(subscription)
        due = subscription.settle(self._now_us, is_due=True)
        return [*self._said(subscription), *due]


def _failure(detail: str) -> Effect:
    """Write down that a function of a user has failed; the call goes on without it."""
    return Record("incidents", {"incident": "failed", "detail": detail})
