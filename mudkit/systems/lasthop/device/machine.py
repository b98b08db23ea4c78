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
from dataclasses import dataclass
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
    size_bytes,
)
from mudkit.systems.incarnation import incarnation
from mudkit.systems.lasthop.device.context_handler import Following
from mudkit.systems.lasthop.device.event_log import EventLog
from mudkit.systems.lasthop.device.queue import DeviceQueue
from mudkit.systems.lasthop.messages import FromServer
from mudkit.systems.lasthop.servers.phone import AGAIN_US, AGAIN_US_PER_BYTE
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.receiving import dropped
from mudkit.systems.stream import Incoming

__all__ = ["APP", "ARRIVALS", "DeviceMachine"]

APP: Final = "notifications"
"""The application that is told of what is shown."""
ARRIVALS: Final = "arrivals"
"""Who is told of what has come to the device, shown or not."""
_AGAIN: Final = "again"
_MISSING: Final = "missing"
_PATIENCE_US: Final = 15_000_000
"""So long a reader waits for better messages."""
_TAKEN: Final = FromServer()


@dataclass
class _Ask:
    """A read that waits for the server."""

    topic: str
    op_id: int
    since_us: int


class DeviceMachine:
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
        self._ports, self._store = ports, ports.store
        self._me, self._server = me, server
        self._capacity = capacity
        self._queue = DeviceQueue(ports.store, math.inf if capacity is None else capacity)
        self._facts = EventLog(ports.store)
        self._topics: dict[str, tuple[int, Subscription]] = {
            key.removeprefix("topic "): (run, Subscription.read(described))
            for key, (run, described) in ports.store.items("topic ")
        }
        self._following: dict[str, tuple[Following, str | None]] = {
            key.removeprefix("follow "): (Following.read(described), topic)
            for key, (described, topic) in ports.store.items("follow ")
        }
        self._loc: tuple[float, float] | None = None
        self._incarnation = ""
        self._life = self._count = self._reads = 0
        self._stream = Incoming({"first": 1})
        self._overtaken: Sequence[int] = ()
        """Numbers of what is missing if it has not come when the timer fires."""
        self._after: list[Any] | None = None
        """The last session in which the server has spoken, and up to where it has come."""
        self._has_link = self._is_welcome = self._is_again_set = False
        self._telling = 0
        """The last fact of those that were told and may be on their way; 0: none are."""
        self._hello_us = self._told_us = 0
        """When to say it again."""
        self._calls: dict[int, int] = {}  # op_id by number of the fact
        self._asks: dict[int, _Ask] = {}
        self._now_us = 0
        self._effects: list[Effect] = []

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
                self._effects += [CancelTimer(_AGAIN), CancelTimer(_MISSING)]
                self._read_what_is_there(self._asks)
            case TimerFired(name=name):
                self._again() if name == _AGAIN else self._miss()
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
        self._asks[self._reads] = _Ask(topic, op_id, self._now_us)
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
        confirmed = self._stream.confirm(self._server, self._name).message
        self._effects.append(Send(self._server, {**confirmed, **more, "device": self._me}))

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

    @property
    def _session(self) -> list[str | int]:
        return [self._incarnation, self._life, self._count]

    @property
    def _name(self) -> str:
        return f"{self._incarnation} {self._life}.{self._count}"

    def _hello(self) -> None:
        """Begin a session."""
        self._lose_session()
        self._count += 1
        self._stream, self._overtaken = Incoming({"first": 1}), ()
        self._telling = 0
        self._say_hello()

    def _welcome(self) -> None:
        """Go on, now that the server knows of this session."""
        if not self._is_welcome:
            self._is_welcome = True
            for number in self._asks:
                self._ask(number)

    def _lose_session(self) -> None:
        """Remember up to where it has come."""
        if self._is_welcome:
            self._after = [self._name, self._stream.last]
            self._is_welcome = False

    def _say_hello(self) -> None:
        """Say up to where the last session has come, or everything that is there."""
        holds = {} if self._after is not None else {each: self._queue.held(each) for each in self._topics}
        self._hello_us = self._send(
            "hello", room=self._capacity, after=self._after, holds=holds, facts=self._facts.as_sent()
        )
        self._set_again()

    def _tell(self) -> None:
        if self._is_welcome:
            self._telling = max(self._facts.pending)
            self._told_us = self._send("told", facts=self._facts.as_sent())
            self._set_again()

    def _heard(self, number: int) -> None:
        if number >= self._telling:
            self._telling = 0
        for each in self._facts.heard(number):
            if each in self._calls:
                self._effects.append(Complete(self._calls.pop(each)))

    def _again(self) -> None:
        """Say again what nobody has answered."""
        self._is_again_set = False
        if not self._is_welcome:
            if self._now_us >= self._hello_us:
                self._say_hello()
        elif self._telling and self._now_us >= self._told_us:
            self._tell()
        for number, ask in list(self._asks.items()):
            if self._now_us - ask.since_us >= _PATIENCE_US:
                self._read_what_is_there([number])
            else:
                self._ask(number)
        if not self._is_welcome or self._telling or self._asks:
            self._set_again()

    def _set_again(self) -> None:
        if not self._is_again_set:
            self._is_again_set = True
            self._effects.append(SetTimer(_AGAIN, AGAIN_US))

    def _send(self, kind: str, **more: Any) -> int:
        """Send the server something, and say when it is late if nobody has answered."""
        message = {"kind": kind, "device": self._me, "session": self._session, **more}
        self._effects.append(Send(self._server, message))
        return self._now_us + AGAIN_US + AGAIN_US_PER_BYTE * size_bytes(message)
