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

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import MudkitError, ParameterError, PredicateError
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
from mudkit.systems.lasthop.messages import FromDevice
from mudkit.systems.lasthop.servers.indexer import Indexer, is_query, problem
from mudkit.systems.lasthop.servers.phone import Phone
from mudkit.systems.lasthop.servers.server_subscription import Missed, ServerSubscription
from mudkit.systems.lasthop.servers.sessions import AGAIN, Sessions
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.receiving import dropped
from mudkit.systems.stream import Outgoing

__all__ = ["SpoolServer"]

_MOST_MISSED: Final = 1000
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
        super().__init__(ports.store)
        self._begins_us, self._capacity = time_of_day_us, capacity
        self._subscribers: dict[str, dict[str, ServerSubscription]] = {}
        self._indexer = Indexer()
        self._touched: dict[tuple[str, str], ServerSubscription] = {}
        self._is_awake = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._now_us, self._effects = now_us, []
        if type(event) is Received and not self._takes(event):
            return dropped(event)
        if not self._is_awake:
            self._wake()
        match event:
            case Call(op_id=op_id, operation=operation, arguments=arguments):
                try:
                    self._effects.append(Complete(op_id, self._call(operation, arguments)))
                except MudkitError as error:
                    self._effects.append(Complete(op_id, error=error))
            case Received(source=source, message={"kind": "hello"} as message):
                self._hello(source, message)
            case Received(source=source, message={"kind": "told"} as message):
                self._hear(source, message)
            case Received(source=source, message={"kind": "read"} as message):
                self._read(source, message)
            case Received(message={"kind": "confirmed", "device": device} as message):
                self._acked(device, message)
            case SendFailed(to=to, message={"device": device} as message):
                self._failed(to, device, message)
            case TimerFired(name=name) if name == AGAIN:
                self._again()
            case TimerFired(name=name):
                self._due(name)
        for subscription in self._touched.values():
            self._effects += subscription.settle(now_us)
        self._touched.clear()
        return self._effects

    @staticmethod
    def _takes(event: Received) -> bool:
        """Say whether a message is one that a device sends in its own name."""
        return _TAKEN(event.message) and bool(event.message["device"] == event.sender)

    def _wake(self) -> None:
        """Take up what another life has left."""
        for key, kept in self._store.items("phone "):
            device = key.removeprefix("phone ")
            phone = self._phone(device)
            phone.session, phone.former = tuple(kept["session"]), kept["former"]
            phone.address, phone.facts_heard = kept["address"], kept["told"]
            if kept["address"] is not None:
                self._unknown.add(device)
        for key, (number, described) in self._store.items("sub "):
            device = key.removeprefix("sub ").split("\n")[0]
            self._begin(device, number, Subscription.read(described))
        self._is_awake = True  # not before: half of it would look like all there is
        self._ask_who()

    # -- publishers

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        match operation:
            case "publish":
                return self._publish(**arguments)
            case "rerank":
                return self._rerank(**arguments)
            case "queues":
                return self._queues(**arguments)
        raise ParameterError(
            "There is no such operation.", found=repr(operation), expected="publish, rerank, queues"
        )

    def _publish(
        self, topic: str, rank: float, expires_us: int | None, content: Mapping[str, Any], item: str | None
    ) -> str:
        count = (self._store.get(f"count {topic}") or 0) + 1
        self._store.put(f"count {topic}", count)
        identity = f"{topic} {count}" if item is None else item
        until_us = FOREVER_US if expires_us is None else self._now_us + expires_us
        message = {**content, "topic": topic, "rank": rank}
        queries, problems = self._indexer.topics(message)
        spools = [each for name in (topic, *queries) for each in self._subscribers.get(name, {}).values()]
        if item is not None and any(each.has_seen(item) for each in spools):
            raise ParameterError(
                "There is a message of this name.",
                where="item",
                found=repr(item),
                expected="a name of its own for each message",
            )
        for subscription in spools:
            self._touch(subscription)
            subscription.publish(self._now_us, identity, rank, until_us, message)
        for each in problems:
            self._fail(each)
        return identity

    def _fail(self, detail: str) -> None:
        """Write down that a function of a user has failed; the call goes on without it."""
        self._effects.append(Record("incidents", {"incident": "failed", "detail": detail}))

    def _rerank(self, topic: str, identity: str, rank: float) -> None:
        for each, subscribers in list(self._subscribers.items()):
            if each == topic or is_query(each):
                for subscription in list(subscribers.values()):
                    self._touch(subscription)
                    subscription.rerank(self._now_us, topic, identity, rank)

    def _queues(self, device: str, topic: str) -> dict[str, Any]:
        subscription = self._subscribers.get(topic, {}).get(device)
        if subscription is None:
            raise ParameterError(
                "There is no such subscription.",
                where="device, topic",
                found=f"{device!r}, {topic!r}",
                expected="a topic that the device is subscribed to",
            )
        self._touch(subscription)
        subscription.spool.timeout(self._now_us)
        return {"waiting": subscription.spool.waiting, "on_device": subscription.spool.device.size}

    # -- devices

    def _hello(self, source: str, message: Mapping[str, Any]) -> None:
        device, session = message["device"], tuple(message["session"])
        phone = self._phone(device)
        if phone.is_over(session):
            return
        if session == phone.session and phone.is_there:
            self._send(source, "welcome", device, session=session, number=phone.facts_heard)
            return
        before, after = phone.stream, message["after"]
        if session[0] != phone.session[0]:
            if phone.session[0] and not phone.is_alive(session):
                phone.claimed = session
                self._send(source, "who", device, session=session)
                return
            self._begins_anew(device, phone)
            before = None
        if session == phone.session or (after is not None and (before is None or before.name != after[0])):
            self._send(source, "who", device, session=session)  # it may be a late copy, or must say it all
            return
        self._away(phone)
        phone.session = session
        phone.room = float("inf") if message["room"] is None else message["room"]
        self._take_facts(device, phone, message["facts"])
        phone.asked = set()  # another life counts anew, and what another session asked is not heard
        phone.stream = Outgoing("{} {}.{}".format(*session))
        phone.due_us.clear()
        phone.address, phone.is_there = source, True
        self._unknown.discard(device)
        self._keep(device, phone)
        self._send(source, "welcome", device, session=session, number=phone.facts_heard)
        for topic, subscription in phone.topics.items():
            self._touch(subscription)
            if before is None or after is None:
                subscription.hello(self._now_us, message["holds"].get(topic, {}))
            else:
                subscription.goes_on(self._now_us, Missed.of(before, after[1], topic, subscription.number))

    def _hear(self, source: str, message: Mapping[str, Any]) -> None:
        device, session = message["device"], tuple(message["session"])
        phone = self._phone(device)
        if session[0] == phone.session[0]:
            if self._take_facts(device, phone, message["facts"]):
                self._keep(device, phone)
            self._send(source, "heard", device, session=session, number=phone.facts_heard)
        self._check(source, device, phone, session)

    def _read(self, source: str, message: Mapping[str, Any]) -> None:
        device, session = message["device"], tuple(message["session"])
        phone = self._phone(device)
        if not self._check(source, device, phone, session) or not phone.asks(message["number"]):
            return
        subscription = phone.topics.get(message["topic"])
        if subscription is not None:
            self._touch(subscription)
            subscription.offer(
                self._now_us, float("inf") if message["most"] is None else message["most"], message["number"]
            )

    def _take_facts(self, device: str, phone: Phone, facts: Sequence[Any]) -> bool:
        """Take what is new of what a device tells, and say whether anything is."""
        new = [(number, fact) for number, fact in facts if number > phone.facts_heard]
        for number, fact in new:
            phone.facts_heard = number
            topic = fact["topic"]
            if fact["what"] == "subscribe":
                wanted = Subscription.read(fact["subscription"])
                if topic in phone.topics:
                    self._touch(phone.topics[topic])
                    phone.topics[topic].subscribe(self._now_us, wanted)
                else:
                    self._begin(device, number, wanted)
            elif topic in phone.topics and fact["what"] == "unsubscribe":
                self._end(device, topic)
            elif topic in phone.topics:
                if fact["what"] == "read":
                    phone.asks(fact["number"])
                self._touch(phone.topics[topic])
                phone.topics[topic].take_fact(self._now_us, fact)
        return bool(new)

    def _begin(self, device: str, number: int, wanted: Subscription) -> None:
        def tell(body: dict[str, Any]) -> None:
            if phone.stream is None or phone.address is None:
                return  # it will say what it has
            message = phone.stream.add(self._now_us, body)
            if phone.is_there:
                self._effects.append(Send(phone.address, {**message, "device": device}))
                self._owed.add(device)
                self._set_again()
            elif len(phone.stream.waiting) > _MOST_MISSED:
                phone.stream = None

        phone = self._phones[device]
        subscription = ServerSubscription(
            self._store, self._now_us, device, number, wanted, self._capacity, self._begins_us, tell
        )
        phone.topics[wanted.topic] = subscription
        self._subscribers.setdefault(wanted.topic, {})[device] = subscription
        if is_query(wanted.topic):
            try:
                self._indexer.add(wanted.topic)
            except PredicateError as error:  # it gets nothing in this life; the others do
                self._fail(problem(wanted.topic, error))
        self._touch(subscription)
        subscription.spool.network(self._now_us, is_up=phone.is_there)

    def _end(self, device: str, topic: str) -> None:
        subscription = self._phones[device].topics.pop(topic)
        subscription.end()
        self._touched.pop((device, topic), None)
        self._effects.append(CancelTimer(f"{_DUE}{device}\n{topic}"))
        del self._subscribers[topic][device]
        if not self._subscribers[topic]:
            del self._subscribers[topic]
            self._indexer.remove(topic)

    def _failed(self, to: str, device: str, message: Mapping[str, Any]) -> None:
        phone = self._phones.get(device)
        if phone is None or phone.address != to:
            return
        self._unknown.discard(device)
        self._away(phone)
        body = message.get("body")
        stream = phone.stream
        if (
            body is not None
            and stream is not None
            and message["stream"] == stream.name
            and body["what"] == "message"
        ):
            subscription = phone.topics.get(body["topic"])
            if subscription is not None and subscription.number == body["run"]:
                subscription.spool.lost(body["id"])

    def _begins_anew(self, device: str, phone: Phone) -> None:
        """Forget what was the device's that had this name: it is another one, and knows nothing of that."""
        for topic in list(phone.topics):
            self._end(device, topic)
        phone.was_wiped()

    def _away(self, phone: Phone) -> None:
        """Forward nothing any more, until the device says hello and what it holds."""
        phone.is_there = False
        for subscription in phone.topics.values():
            subscription.spool.is_up = False

    def _touch(self, subscription: ServerSubscription) -> None:
        """Settle it when the event is done; and what the device's other topics hold takes its room."""
        self._touched[subscription.device, subscription.topic] = subscription
        phone = self._phones[subscription.device]
        if phone.room < float("inf"):
            held = sum(each.spool.device.size for each in phone.topics.values())
            subscription.spool.room = phone.room - held + subscription.spool.device.size

    # -- time

    def _due(self, name: str) -> None:
        device, topic = name.removeprefix(_DUE).split("\n")
        subscription = self._subscribers.get(topic, {}).get(device)
        if subscription is not None:
            self._touch(subscription)
            self._effects += subscription.settle(self._now_us, is_due=True)
