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
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from mudkit.delivery.records import delivery
from mudkit.delivery.session import incarnation
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
)
from mudkit.systems.lasthop import operations
from mudkit.systems.lasthop.device.context_handler import Following
from mudkit.systems.lasthop.device.queue import DeviceQueue
from mudkit.systems.lasthop.device.session import AGAIN, Ask, Session
from mudkit.systems.lasthop.messages import (
    Ack,
    Body,
    Content,
    FactsAck,
    Forwarded,
    FromServer,
    HasRead,
    Identify,
    LetGo,
    Offered,
    Ranks,
    Read,
    Retracts,
    Shown,
    Shows,
    Stream,
    Subscribes,
    Unsubscribes,
    Wanted,
    Wants,
    Welcome,
)
from mudkit.systems.lasthop.servers.phone import AGAIN_US
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.receiving import dropped

__all__ = ["APP", "ARRIVALS", "DeviceMachine"]

APP: Final = "notifications"
"""The application that is told of what is shown."""
ARRIVALS: Final = "arrivals"
"""Who is told of what has come to the device, shown or not."""
_MISSING: Final = "missing"
_LIVES: Final = 2
"""The first start of a store is 1, the others are drawn from here on."""
_TAKEN: Final = FromServer()


class _Topic(msgspec.Struct, frozen=True):
    """A subscription, and the number of the fact by which it began."""

    run: int
    wanted: Wanted


class _Followed(msgspec.Struct, frozen=True):
    """A subscription that depends on the place, and the topic that it is subscribed to for it."""

    wanted: Wanted
    places: dict[str, tuple[float, float, float]]
    topic: str | None


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
        self._topics = {
            key.removeprefix("topic "): (kept.run, kept.wanted.subscription())
            for key, kept in ports.store.items("topic ", _Topic)
        }
        self._following: dict[str, tuple[Following, str | None]] = {
            key.removeprefix("follow "): (Following(kept.wanted.subscription(), kept.places), kept.topic)
            for key, kept in ports.store.items("follow ", _Followed)
        }
        self._loc: tuple[float, float] | None = None
        self._reads = 0
        self._has_link = False

    def overview(self) -> View:
        """Return its topics and what it holds of them, as a display shows it."""
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
        """See :class:`mudkit.events.Machine`."""
        message = _TAKEN.decode(event.message) if type(event) is Received else None
        if type(event) is Received and (message is None or event.source != self._server):
            return dropped(event)
        self._now_us = now_us
        if not self._life:
            self._incarnation = incarnation(self._ports)
            if self._store.get("life", int) is None:
                self._life = 1
            else:  # the store may be an old backup: no other start has had this number
                self._life, self._is_asked = _LIVES + int.from_bytes(self._ports.entropy(4), "big"), True
            self._store.put("life", self._life)
        self._queue.expire(now_us)
        effects = [*(self._decide(event) if message is None else self._received(message))]
        if not self._facts.is_empty and not self._telling:
            effects += self._tell()
        return effects

    def _received(self, message: Welcome | FactsAck | Identify | Stream) -> Sequence[Effect]:
        match message:
            case Stream(stream=name) if name == self._name:
                effects = [*self._welcome()]
                for body in self._stream.take(message):
                    effects += self._take(body)
                return [*effects, self._ack(), *self._await_overtaken()]
            case Stream():
                return ()
            case Identify(start=str(start)) if start != self._answered:
                self._answered = start
                return self._begin_anew()
            case _ if message.session != self._session:
                return ()
            case FactsAck(seq=seq):
                return self._acked(seq)
            case Welcome(seq=seq):
                return [*self._acked(seq), *self._welcome()]
            case Identify(start=start):
                return self._begin_anew() if start is UNSET else ()

    def _begin_anew(self) -> Sequence[Effect]:
        """Begin a session in which the server learns all again."""
        if not self._has_link:
            return ()
        self._is_welcome, self._is_asked, self._after = False, True, None
        return self._hello()

    def _decide(self, event: Event) -> Sequence[Effect]:
        match event:
            case Call(op_id=op_id):
                try:
                    return self._call(op_id, event)
                except OutboxFull as error:
                    return (Complete(op_id, error=error),)
            case LinkUp():
                self._has_link = True
                return self._hello()
            case LinkDown():
                self._lose_session()
                self._has_link = False
                self._telling = 0
                self._unanswered.clear()
                stop = CancelTimer(AGAIN), CancelTimer(_MISSING)
                return [*stop, *self._read_what_is_there(self._asks)]
            case TimerFired(name=name):
                return self._again() if name == AGAIN else self._miss()
            case ContextChanged(context=context):
                loc = context.get("loc")
                self._loc = None if loc is None else (loc[0], loc[1])
                return self._moved()
        return ()

    # -- the application

    def _call(self, op_id: int, call: Call) -> Sequence[Effect]:
        match call.operation:
            case operations.Subscribe(subscription=subscription):
                self._calls[self._subscribe(subscription)] = op_id
                return ()
            case operations.Unsubscribe(topic=topic) if topic in self._topics:
                seq, effects = self._unsubscribe(topic)
                self._calls[seq] = op_id
                return effects
            case operations.Read(topic=topic) if topic in self._topics:
                return self._read(op_id, topic)
            case operations.Follow(following=following):
                before = self._following.get(following.subscription.topic, (None, None))[1]
                self._follow(following, before)
                return [*self._moved(), Complete(op_id)]
            case operations.Unfollow(topic=topic) if topic in self._following:
                _, before = self._following.pop(topic)
                self._store.delete(f"follow {topic}")
                ended = () if before is None else self._unsubscribe(before)[1]
                return [*ended, Complete(op_id)]
            case operations.Held():
                return (Complete(op_id, {topic: len(self._queue.held(topic)) for topic in self._topics}),)
            case operations.Unsubscribe(topic=topic) | operations.Read(topic=topic):
                return (Complete(op_id, error=self._not_subscribed(topic, self._topics)),)
            case operations.Unfollow(topic=topic):
                return (Complete(op_id, error=self._not_subscribed(topic, self._following)),)
        error = ParameterError(
            "There is no such operation.",
            found=brief(call.name),
            expected="subscribe, unsubscribe, read, follow, unfollow, held",
        )
        return (Complete(op_id, error=error),)

    def _not_subscribed(self, topic: str, known: Iterable[str]) -> ParameterError:
        return ParameterError(
            f"{self._me} is not subscribed to this topic.",
            where="topic",
            found=brief(topic),
            expected=", ".join(known) or "none yet",
        )

    def _subscribe(self, wanted: Subscription) -> int:
        """Note the subscription, and give the number of the fact."""
        seq = self._facts.add(Subscribes(wanted.topic, Wanted.of(wanted)))
        run = self._topics[wanted.topic][0] if wanted.topic in self._topics else seq
        self._topics[wanted.topic] = run, wanted
        self._store.put(f"topic {wanted.topic}", _Topic(run, Wanted.of(wanted)))
        return seq

    def _unsubscribe(self, topic: str) -> tuple[int, Sequence[Effect]]:
        """End a subscription; give the number of the fact, and what becomes of reads that wait."""
        effects = self._read_what_is_there(
            [number for number, ask in self._asks.items() if ask.topic == topic]
        )
        del self._topics[topic]
        self._store.delete(f"topic {topic}")
        self._queue.end(topic)
        return self._facts.add(Unsubscribes(topic)), effects

    def _follow(self, following: Following, topic: str | None) -> None:
        wanted = following.subscription
        self._following[wanted.topic] = following, topic
        kept = _Followed(Wanted.of(wanted), dict(following.places), topic)
        self._store.put(f"follow {wanted.topic}", kept)

    def _moved(self) -> list[Effect]:
        """Subscribe to what is wanted here, and no more to what was wanted there."""
        effects: list[Effect] = []
        for following, before in list(self._following.values()):
            ends, begins = following.changes(before, self._loc)
            if ends is not None:
                effects += self._unsubscribe(ends)[1]
            if begins is not None:
                self._subscribe(begins)
            if ends is not None or begins is not None:
                self._follow(following, None if begins is None else begins.topic)
        return effects

    # -- reading

    def _read(self, op_id: int, topic: str) -> Sequence[Effect]:
        self._reads += 1
        self._asks[self._reads] = Ask(topic, op_id, self._now_us)
        return self._ask(self._reads) if self._has_link else self._read_what_is_there([self._reads])

    def _ask(self, number: int) -> Sequence[Effect]:
        """Ask the server for better messages than there are, when it knows that the device is there."""
        if not self._is_welcome:
            return self._unanswered.sent(self._now_us, number)
        ask = self._asks[number]
        most = min(self._topics[ask.topic][1].most, math.inf if self._capacity is None else self._capacity)
        return self._send(
            number, Read(self._me, self._session, ask.topic, number, None if most == math.inf else most)
        )

    def _read_what_is_there(self, numbers: Iterable[int]) -> list[Effect]:
        effects: list[Effect] = []
        for number in list(numbers):
            ask = self._asks.pop(number)
            effects += self._unanswered.answered(self._now_us, number)
            taken = self._queue.take(ask.topic, self._topics[ask.topic][1].most)
            ids = [identity for identity, _ in taken]
            self._facts.add(HasRead(ask.topic, self._now_us, ids, number))
            effects += [delivery(identity, self._me, read_us=self._now_us) for identity in ids]
            effects.append(Complete(ask.op_id, [content for _, content in taken]))
        return effects

    # -- what the server brings

    def _ack(self, missing: list[int] | msgspec.UnsetType = msgspec.UNSET) -> Send:
        """Say up to where everything has come."""
        return Send(
            self._server, Ack(stream=self._name, seq=self._stream.last_seq, missing=missing, device=self._me)
        )

    def _await_overtaken(self) -> Sequence[Effect]:
        """See in a while whether what was overtaken by now has come."""
        missing = () if self._overtaken else self._stream.missing
        if not missing:
            return ()
        self._overtaken = missing
        return (SetTimer(_MISSING, AGAIN_US),)

    def _miss(self) -> Sequence[Effect]:
        """Say what has not: a link keeps the order, and what a network delays has come by then."""
        missing = [each for each in self._stream.missing if each in self._overtaken]
        said = [self._ack(missing)] if missing else []
        self._overtaken = ()
        return [*said, *self._await_overtaken()]

    def _take(self, body: Body) -> Sequence[Effect]:
        topic = body.topic
        if topic not in self._topics or self._topics[topic][0] != body.run:
            return ()  # of a subscription that has ended
        match body:
            case Forwarded():
                return self._message(body)
            case Ranks(id=identity, rank=rank):
                self._queue.rank(topic, identity, rank)
            case Retracts(id=identity):
                if self._queue.drop(topic, identity) is not None:
                    return (delivery(identity, self._me, refused_us=self._now_us),)
            case Shows(ids=ids):
                shown = [(each, self._queue.drop(topic, each)) for each in ids]
                there = self._show(topic, [(each, content) for each, content in shown if content is not None])
                self._let_go(topic, [each for each, content in shown if content is None])
                return there
            case Offered(number=number) if number in self._asks:
                return self._read_what_is_there([number])
        return ()

    def _message(self, body: Forwarded) -> Sequence[Effect]:
        topic, identity, expires_us = body.topic, body.id, body.expires_us
        if (topic, identity) in self._queue:
            return ()
        if expires_us is not None and expires_us <= self._now_us:
            if body.shown:
                self._let_go(topic, [identity])
            return ()
        content = {**body.content, "rank": body.rank}
        effects: list[Effect] = [
            delivery(identity, self._me, delivered_us=self._now_us),
            Notify(ARRIVALS, content),
        ]
        if body.shown:
            return [*effects, *self._show(topic, [(identity, content)])]
        self._queue.put(topic, identity, body.rank, body.order, expires_us, body.content)
        for each, gone in self._queue.make_room():
            self._let_go(each, [gone])
        return effects

    def _held(self) -> dict[str, dict[str, float]]:
        return {each: self._queue.held(each) for each in self._topics}

    def _wants(self) -> Wants:
        topics = {topic: (run, Wanted.of(wanted)) for topic, (run, wanted) in self._topics.items()}
        return Wants(topics, self._facts.first_seq, self._facts.base_seq)

    def _let_go(self, topic: str, identities: list[str]) -> None:
        """Say that they are not here, and will not be shown."""
        if identities:
            self._facts.add(LetGo(topic, identities))

    def _show(self, topic: str, shown: Sequence[tuple[str, Content]]) -> Sequence[Effect]:
        if not shown:
            return ()
        self._facts.add(Shown(topic, [identity for identity, _ in shown]))
        return [
            effect
            for identity, content in shown
            for effect in (delivery(identity, self._me, read_us=self._now_us), Notify(APP, content))
        ]
