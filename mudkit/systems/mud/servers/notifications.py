"""The notification server: it knows where the devices of its range are, and brings them what changed.

Its rules (Mobius 5):

===========  =======================================================================================
anything     dropped, unless it comes from who sends such messages, and of a client of itself
hello        redirected, if another server is responsible; a known session goes on at the address
             that the hello came from, and what waits is sent there; else a new one begins
heartbeat    the same, and nothing is sent again
stream       what a processor tells an endpoint: into its queue, and on its way; what the policy
             generator ships: kept, and to every client of that app which follows its policies, or to
             those that it is for; what is for all stands instead of what was shipped before
confirmed    out of the queue
timer        what nobody confirmed is sent again; who was not heard of for too long is given up; a
             server that begins asks the generator for what was shipped until it has heard of it
full         who cannot be reached and has too much waiting, or anything for too long, is given up
===========  =======================================================================================

Who is given up is a stranger when he comes back, gets a new session, and registers his continuous reads
again. The same after a restart of the server: all it knows is soft state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from mudkit.events import (
    CancelTimer,
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.systems.mud.messages import (
    NOTIFICATION_SERVER_FROM_CLIENT,
    NOTIFICATION_SERVER_FROM_GENERATOR,
    NOTIFICATION_SERVER_FROM_PROCESSOR,
)
from mudkit.systems.mud.tables.partitioning import app_of, netid_of, server_of
from mudkit.systems.receiving import Accepts, dropped
from mudkit.systems.stream import Incoming, Outgoing, RetransmitTimer

__all__ = ["HEARTBEAT_US", "NotificationServer"]

HEARTBEAT_US: Final = 20 * 60 * 1_000_000
"""Mobius 5: "e.g., once every 20 minutes"."""
_DEAD_US: Final = 2 * HEARTBEAT_US + 60_000_000
"""Two heartbeats that did not come."""
_AGAIN_US: Final = 5_000_000
_SWEEP: Final = "sweep"
_FOLLOW: Final = "follow"
_FOLLOW_US: Final = 10_000_000


@dataclass
class _Session:
    number: int
    """In the order of their beginnings."""
    endpoint: str
    address: str
    heard_us: int
    stream: Outgoing
    policies: dict[str, int]
    """The versions that the client has, or is being told, of the kinds of policy that it follows."""
    is_reached: bool = True


class NotificationServer:
    """One notification server.

    Parameters
    ----------
    ports : Ports
    number : int
        Which of them it is.
    servers, processors : sequence of str
        Addresses of all of them, and of those that tell them what changed.
    generator : str
        Address of the policy generator.
    most_waiting : int
        The number of notifications that wait for one client.
    longest_s : float
        The longest time for which one waits, in seconds.
    """

    def __init__(
        self,
        ports: Ports,
        number: int,
        servers: Sequence[str],
        processors: Sequence[str],
        generator: str,
        most_waiting: int,
        longest_s: float,
    ) -> None:
        self._store = ports.store
        self._accepts: dict[str, Accepts[Any]] = {
            generator: NOTIFICATION_SERVER_FROM_GENERATOR,
            **dict.fromkeys(processors, NOTIFICATION_SERVER_FROM_PROCESSOR),
        }
        self._number, self._servers, self._generator = number, servers, generator
        self._most_waiting, self._longest_us = most_waiting, round(longest_s * 1e6)
        self._life = 0
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[str, str] = {}
        self._heard: dict[str, None] = {}
        """Names of sessions, who was heard of last at the end."""
        self._owed: set[str] = set()
        """Names of sessions for which something has waited since all was looked through."""
        self._streams: dict[str, Incoming] = {}
        self._latest: dict[str, Incoming] = {}
        """Of those, by the address of who sends."""
        self._processors: set[str] = set()
        self._timer = RetransmitTimer(_AGAIN_US)
        self._policies: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
        """By app and kind: by version."""
        self._count = 0
        self._is_sweeping = False
        """Whether the timer is set by which the dead are found: a hello must not put it off for others."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received() if not self._is_taken(event):
                return dropped(event)
            case LinkUp():
                if not self._life:
                    self._life = (self._store.get("life") or 0) + 1
                    self._store.put("life", self._life)
                    return self._follow()
            case Received(source=source, message={"kind": "hello"} as message):
                return self._hello(now_us, source, message)
            case Received(message={"kind": "followed"}):
                return (CancelTimer(_FOLLOW),)
            case Received(source=source, message={"kind": "stream"} as message):
                return self._stream(now_us, source, message)
            case Received(message={"kind": "confirmed", "stream": name, "number": number}):
                if name in self._sessions:
                    self._sessions[name].stream.acked(number)
            case SendFailed(to=to, message=message):
                if (session := self._sessions.get(message.get("stream"))) and session.address == to:
                    session.is_reached = False
            case TimerFired(name=name):
                if name == _FOLLOW:
                    return self._follow()
                return self._again(now_us) if name == RetransmitTimer.NAME else self._sweep(now_us)
        return ()

    def _is_taken(self, event: Received) -> bool:
        """Say whether a message is one that its sender sends: of a client, of its own endpoint."""
        message, accepts = event.message, self._accepts.get(event.source)
        if accepts is not None:
            return accepts(message) and (
                message["kind"] != "stream" or message["stream"].rpartition(" ")[0] == event.source
            )
        if not NOTIFICATION_SERVER_FROM_CLIENT(message):
            return False
        if message["kind"] == "hello":
            endpoint = message["endpoint"]
        else:
            session = self._sessions.get(message["stream"])
            if session is None:
                return True  # one that was given up
            endpoint = session.endpoint
        return netid_of(endpoint) == event.sender

    def _follow(self) -> Sequence[Effect]:
        return Send(self._generator, {"kind": "follow"}), SetTimer(_FOLLOW, _FOLLOW_US)

    def _hello(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        endpoint = message["endpoint"]
        responsible = server_of(netid_of(endpoint), len(self._servers))
        if responsible != self._number:
            return (Send(source, {"kind": "redirect", "to": self._servers[responsible]}),)
        name = message["session"]
        session = self._sessions.get(name)
        effects: list[Effect] = []
        if session is None or session.endpoint != endpoint:
            self._count += 1
            name = f"{self._servers[self._number]} {self._life}.{self._count}"
            effects += self._give_up(self._session_of.get(endpoint))
            session = _Session(
                self._count, endpoint, source, now_us, Outgoing(name), dict(message["policies"])
            )
            self._sessions[name] = session
            self._session_of[endpoint] = name
            for body in [body for of in self._policies.values() for _, body in sorted(of.items())]:
                if _is_wanted(session, body):
                    session.stream.add(now_us, _without_others(session, body))
                    self._owed.add(name)
        goes_on = session.address != source or message["is_new"] or not session.is_reached
        session.address, session.heard_us, session.is_reached = source, now_us, True
        self._heard.pop(name, None)
        self._heard[name] = None
        effects.append(Send(source, {"kind": "welcome", "session": name}))
        if goes_on:
            effects += [Send(source, each) for each in session.stream.again()]
        if not self._is_sweeping:
            self._is_sweeping = True
            effects.append(SetTimer(_SWEEP, _DEAD_US))
        return [*effects, *(self._timer.soon() if session.stream.waiting else ())]

    def _stream(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        name = message["stream"]
        incoming = self._streams.get(name)
        if incoming is None:
            incoming = self._streams[name] = Incoming(message)
            self._latest.get(source, incoming).forget()  # what a life before has not sent, nobody sends
            self._latest[source] = incoming
        effects: list[Effect] = []
        for body in incoming.take(message):
            if body["what"] == "policy":
                known = self._policies.setdefault((body["app"], body["policy"]), {})
                version = body["document"]["version"]
                if known.get(version) == body:
                    continue
                if body["to"] is None:
                    for older in [each for each in known if each < version]:
                        del known[older]
                known[version] = body
                for session in list(self._sessions.values()):
                    if _is_wanted(session, body):
                        effects += self._queue(now_us, session, _without_others(session, body))
                continue
            self._processors.add(source)
            if body["what"] == "life":
                for session in list(self._sessions.values()):  # one may be given up
                    effects += self._queue(now_us, session, body)
                continue
            kept = self._sessions.get(body["session"])
            if kept is None or kept.endpoint != body["endpoint"]:
                gone = {"kind": "gone", "session": body["session"], "endpoint": body["endpoint"]}
                effects.append(Send(source, gone))
            else:
                effects += self._queue(now_us, kept, body)
        return [*effects, incoming.confirm(source, name)]

    def _queue(self, now_us: int, session: _Session, body: Mapping[str, Any]) -> Sequence[Effect]:
        stream = session.stream
        message = stream.add(now_us, body)
        self._owed.add(stream.name)
        is_full = len(stream.waiting) > self._most_waiting and not session.is_reached
        if is_full or now_us - stream.waiting[0][1] > self._longest_us:
            return self._give_up(stream.name)
        sent = (Send(session.address, message),) if session.is_reached else ()
        return *sent, *self._timer.soon()

    def _again(self, now_us: int) -> Sequence[Effect]:
        self._timer.fired()
        effects: list[Effect] = []
        owed = [self._sessions[name] for name in self._owed]
        self._owed.clear()
        for session in sorted(owed, key=_number):
            if not session.stream.waiting:
                continue
            if now_us - session.stream.waiting[0][1] > self._longest_us:
                effects += self._give_up(session.stream.name)
                continue
            self._owed.add(session.stream.name)
            if session.is_reached:
                late = session.stream.overdue(now_us, _AGAIN_US)
                effects += [Send(session.address, each) for each in late]
        return [*effects, *self._timer.soon()] if self._owed else effects

    def _sweep(self, now_us: int) -> Sequence[Effect]:
        """Give those up whose heartbeats have not come."""
        by_silence = (self._sessions[name] for name in self._heard)
        dead = list(takewhile(lambda session: now_us - session.heard_us >= _DEAD_US, by_silence))
        effects: list[Effect] = []
        for session in sorted(dead, key=_number):
            effects += self._give_up(session.stream.name)
        self._is_sweeping = bool(self._sessions)
        if self._sessions:
            soonest = self._sessions[next(iter(self._heard))].heard_us + _DEAD_US - now_us
            effects.append(SetTimer(_SWEEP, max(soonest, 1)))
        return effects

    def _give_up(self, name: str | None) -> Sequence[Effect]:
        session = self._sessions.pop(name, None) if name is not None else None
        if session is None:
            return ()
        self._heard.pop(session.stream.name)
        self._owed.discard(session.stream.name)
        if self._session_of.get(session.endpoint) == name:
            del self._session_of[session.endpoint]
        return [Send(each, {"kind": "gone", "session": name}) for each in sorted(self._processors)]


def _number(session: _Session) -> int:
    return session.number


def _is_wanted(session: _Session, body: Mapping[str, Any]) -> bool:
    """Say whether a client follows policies of this app and kind, and has not this one or a newer one."""
    endpoint, version = session.endpoint, int(body["document"]["version"])
    is_meant = body["app"] == app_of(endpoint) and (body["to"] is None or netid_of(endpoint) in body["to"])
    return is_meant and session.policies.get(body["policy"], version) < version


def _without_others(session: _Session, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give what a client is told of a policy: not who else is near."""
    session.policies[body["policy"]] = body["document"]["version"]
    return {name: value for name, value in body.items() if name != "to"}
