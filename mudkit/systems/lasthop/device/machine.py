"""The device of last hop: what lies there, what is read there, and what it has to tell the server.

Its rules:

===============  ===================================================================================
subscribe (call) a fact for the server, as unsubscribe; the call is answered when the server has heard
read (call)      with a link, the server is asked for better messages than there are; when it has brought
                 them, or there is no link, or it takes too long: the best that are there
message          into the queue, or shown at once; what has no room then, the lowest rank first, is let go
rank, retract    of a message that is there
show             what is there is shown now
link up          say hello: what is there, and the facts that the server has not heard
who              the same: another life of the server asks
timer            the same again, as long as there is a link and nobody has answered; and what is
                 missing that was overtaken long ago: it is not on its way any more
context changed  another place is another subscription
===============  ===================================================================================

What is shown counts as read. What has expired is let go when somebody looks. Queue and facts outlive the
machine. A device with an empty store is a new one, and has an incarnation of its own in its sessions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import ParameterError
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
    Record,
    Send,
    SetTimer,
    TimerFired,
)
from mudkit.systems.incarnation import incarnation
from mudkit.systems.lasthop.device.context_handler import Following
from mudkit.systems.lasthop.device.queue import DeviceQueue
from mudkit.systems.lasthop.device.session import AGAIN, Ask, Session
from mudkit.systems.lasthop.messages import FromServer
from mudkit.systems.lasthop.servers.phone import AGAIN_US
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.receiving import dropped

__all__ = ["APP", "ARRIVALS", "DeviceMachine"]

APP: Final = "notifications"
"""The application that is told of what is shown."""
ARRIVALS: Final = "arrivals"
"""Who is told of what has come to the device, shown or not."""
_MISSING: Final = "missing"
_TAKEN: Final = FromServer()


class DeviceMachine(Session):
    """One device's machine.

    Parameters
    ----------
    ports : Ports
    me : str
        Its name, which stays when its address changes.
    server : str
        The server's address.
    capacity : int or None
        The number of messages that have room; None: any number has.
    """

    def __init__(self, ports: Ports, me: str, server: str, capacity: int | None) -> None:
        super().__init__(ports, me, server, capacity)
        self._ports, self._store = ports, ports.store
        self._queue = DeviceQueue(ports.store, math.inf if capacity is None else capacity)
        self._topics: dict[str, tuple[int, Subscription]] = {
            key.removeprefix("topic "): (run, Subscription.read(described))
            for key, (run, described) in ports.store.items("topic ")
        }
        self._following: dict[str, tuple[Following, str | None]] = {
            key.removeprefix("follow "): (Following.read(described), topic)
            for key, (described, topic) in ports.store.items("follow ")
        }
        self._loc: tuple[float, float] | None = None
        self._reads = 0
        self._has_link = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if type(event) is Received and not (event.source == self._server and _TAKEN(event.message)):
            return dropped(event)
        self._now_us, self._effects = now_us, []
        if not self._life:
            self._incarnation = incarnation(self._ports)
            self._life = (self._store.get("life") or 0) + 1
            self._store.put("life", self._life)
        self._queue.expire(now_us)
        match event:
            case Call(op_id=op_id, operation=operation, arguments=arguments):
                self._call(op_id, operation, arguments)
            case Received(message={"kind": "stream"} as message) if message["stream"] == self._name:
                self._welcome()
                for body in self._stream.take(message):
                    self._take(body)
                self._confirm()
                self._await_overtaken()
            case Received(message={"kind": "heard", "session": session, "number": number}):
                if list(session) == self._session:
                    self._heard(number)
            case Received(message={"kind": "welcome", "session": session, "number": number}):
                if list(session) == self._session:
                    self._heard(number)
                    self._welcome()
            case Received(message={"kind": "who", "session": session}) if list(session) == self._session:
                self._is_welcome, self._after = False, None
                self._hello()
            case LinkUp():
                self._has_link = True
                self._hello()
            case LinkDown():
                self._lose_session()
                self._has_link = self._is_again_set = False
                self._effects += [CancelTimer(AGAIN), CancelTimer(_MISSING)]
                self._read_what_is_there(self._asks)
            case TimerFired(name=name):
                self._again() if name == AGAIN else self._miss()
            case ContextChanged(context=context):
                loc = context.get("loc")
                self._loc = None if loc is None else (loc[0], loc[1])
                self._moved()
        if self._facts.pending and not self._telling:
            self._tell()
        return self._effects

    # -- the application

    def _call(self, op_id: int, operation: str, arguments: Mapping[str, Any]) -> None:
        match operation:
            case "subscribe":
                self._calls[self._subscribe(Subscription.read(arguments["subscription"]))] = op_id
                return
            case "unsubscribe" if arguments["topic"] in self._topics:
                self._calls[self._unsubscribe(arguments["topic"])] = op_id
                return
            case "read" if arguments["topic"] in self._topics:
                self._read(op_id, arguments["topic"])
                return
            case "follow":
                following = Following.read(arguments["following"])
                before = self._following.get(following.subscription.topic, (None, None))[1]
                self._follow(following, before)
                self._moved()
            case "unfollow" if arguments["topic"] in self._following:
                _, before = self._following.pop(arguments["topic"])
                self._store.delete(f"follow {arguments['topic']}")
                if before is not None:
                    self._unsubscribe(before)
            case "held":
                held = {topic: len(self._queue.held(topic)) for topic in self._topics}
                self._effects.append(Complete(op_id, held))
                return
            case "unsubscribe" | "read" | "unfollow":
                known = self._following if operation == "unfollow" else self._topics
                error: Exception = ParameterError(
                    f"{self._me} is not subscribed to this topic.",
                    where="topic",
                    found=repr(arguments["topic"]),
                    expected=", ".join(known) or "none yet",
                )
                self._effects.append(Complete(op_id, error=error))
                return
            case _:
                error = ParameterError(
                    "There is no such operation.",
                    found=repr(operation),
                    expected="subscribe, unsubscribe, read, follow, unfollow, held",
                )
                self._effects.append(Complete(op_id, error=error))
                return
        self._effects.append(Complete(op_id))

    def _subscribe(self, wanted: Subscription) -> int:
        described = wanted.describe()
        number = self._facts.add({"what": "subscribe", "topic": wanted.topic, "subscription": described})
        run = self._topics[wanted.topic][0] if wanted.topic in self._topics else number
        self._topics[wanted.topic] = run, wanted
        self._store.put(f"topic {wanted.topic}", [run, described])
        return number

    def _unsubscribe(self, topic: str) -> int:
        self._read_what_is_there([number for number, ask in self._asks.items() if ask.topic == topic])
        del self._topics[topic]
        self._store.delete(f"topic {topic}")
        self._queue.end(topic)
        return self._facts.add({"what": "unsubscribe", "topic": topic})

    def _follow(self, following: Following, topic: str | None) -> None:
        self._following[following.subscription.topic] = following, topic
        self._store.put(f"follow {following.subscription.topic}", [following.describe(), topic])

    def _moved(self) -> None:
        """Subscribe to what is wanted here, and no more to what was wanted there."""
        for following, before in list(self._following.values()):
            ends, begins = following.changes(before, self._loc)
            if ends is not None:
                self._unsubscribe(ends)
            if begins is not None:
                self._subscribe(begins)
            if ends is not None or begins is not None:
                self._follow(following, None if begins is None else begins.topic)

    # -- reading

    def _read(self, op_id: int, topic: str) -> None:
        self._reads += 1
        self._asks[self._reads] = Ask(topic, op_id, self._now_us)
        if self._has_link:
            self._ask(self._reads)
            self._set_again()
        else:
            self._read_what_is_there([self._reads])

    def _ask(self, number: int) -> None:
        """Ask the server for better messages than there are, when it knows that the device is there."""
        if self._is_welcome:
            ask = self._asks[number]
            most = min(
                self._topics[ask.topic][1].most, math.inf if self._capacity is None else self._capacity
            )
            self._send("read", topic=ask.topic, number=number, most=None if most == math.inf else most)

    def _read_what_is_there(self, numbers: Any) -> None:
        for number in list(numbers):
            ask = self._asks.pop(number)
            taken = self._queue.take(ask.topic, self._topics[ask.topic][1].most)
            ids = [identity for identity, _ in taken]
            self._facts.add(
                {"what": "read", "topic": ask.topic, "at_us": self._now_us, "ids": ids, "number": number}
            )
            for identity in ids:
                self._happened(identity, "read_us")
            self._effects.append(Complete(ask.op_id, [content for _, content in taken]))

    # -- what the server brings

    def _confirm(self, **more: Any) -> None:
        """Say up to where everything has come."""
        acked = self._stream.confirm(self._server, self._name).message
        self._effects.append(Send(self._server, {**acked, **more, "device": self._me}))

    def _await_overtaken(self) -> None:
        """See in a while whether what was overtaken by now has come."""
        if self._stream.ahead and not self._overtaken:
            self._overtaken = self._stream.missing
            self._effects.append(SetTimer(_MISSING, AGAIN_US))

    def _miss(self) -> None:
        """Say what has not: a link keeps the order, and what a network delays has come by then."""
        if missing := [each for each in self._stream.missing if each in self._overtaken]:
            self._confirm(missing=missing)
        self._overtaken = ()
        self._await_overtaken()

    def _take(self, body: Mapping[str, Any]) -> None:
        topic = body["topic"]
        if topic not in self._topics or self._topics[topic][0] != body["run"]:
            return  # of a subscription that has ended
        match body["what"]:
            case "message":
                self._message(topic, body)
            case "rank":
                self._queue.rank(topic, body["id"], body["rank"])
            case "retract":
                if self._queue.drop(topic, body["id"]) is not None:
                    self._happened(body["id"], "refused_us")
            case "show":
                shown = [(each, self._queue.drop(topic, each)) for each in body["ids"]]
                self._show(topic, [(each, content) for each, content in shown if content is not None])
                self._let_go(topic, [each for each, content in shown if content is None])
            case "offered" if body["number"] in self._asks:
                self._read_what_is_there([body["number"]])

    def _message(self, topic: str, body: Mapping[str, Any]) -> None:
        identity, expires_us = body["id"], body["expires_us"]
        if (topic, identity) in self._queue:
            return
        if expires_us is not None and expires_us <= self._now_us:
            if body["shown"]:
                self._let_go(topic, [identity])
            return
        self._happened(identity, "delivered_us")
        content = {**body["content"], "rank": body["rank"]}
        self._effects.append(Notify(ARRIVALS, content))
        if body["shown"]:
            self._show(topic, [(identity, content)])
            return
        self._queue.put(topic, identity, body["rank"], body["order"], expires_us, body["content"])
        for each, gone in self._queue.make_room():
            self._let_go(each, [gone])

    def _held(self) -> dict[str, Any]:
        return {each: self._queue.held(each) for each in self._topics}

    def _let_go(self, topic: str, identities: list[str]) -> None:
        """Say that they are not here, and will not be shown."""
        if identities:
            self._facts.add({"what": "gone", "topic": topic, "ids": identities})

    def _show(self, topic: str, shown: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        if not shown:
            return
        self._facts.add({"what": "shown", "topic": topic, "ids": [identity for identity, _ in shown]})
        for identity, content in shown:
            self._happened(identity, "read_us")
            self._effects.append(Notify(APP, content))

    def _happened(self, identity: str, what: str) -> None:
        self._effects.append(
            Record("deliveries", {"item": identity, "receiver": self._me, what: self._now_us})
        )

    # -- what the server hears
