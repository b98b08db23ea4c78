"""What the transitions of the cloud's machines are called, by what they take and what they answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mudkit.events import Call, Complete, Effect, Event, LinkUp, Received, Send, SendFailed, TimerFired
from mudkit.systems.mud.servers.stream_sender import AGAIN
from mudkit.verify.campaign.client import StreamSeen

__all__ = [
    "BackEndSeen",
    "GatewaySeen",
    "GeneratorSeen",
    "NotificationServerSeen",
    "ProcessorSeen",
    "ReplicaSeen",
]


def _sent(effects: Sequence[Effect]) -> list[Any]:
    return [each.message for each in effects if type(each) is Send]


class GatewaySeen:
    """A gateway, seen from outside."""

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """See :meth:`ClientSeen.names`."""
        if type(event) is not Received:
            return
        kind, sent = event.message["kind"], _sent(effects)
        first = sent[0]["kind"] if sent else None
        if kind in ("ask", "asks"):
            yield "gateway: token refused" if first == "refused" else f"gateway: ask, {first}"
        elif kind == "described":
            if first is None:
                yield "gateway: described, nobody asks"
            elif first == "write" and sent[0]["refused"] is not None:
                yield "gateway: write with a refused token"
            else:
                yield "gateway: table refused" if first == "refused" else f"gateway: {first} passed on"
        elif kind in ("part", "registered"):
            if first is None:
                yield f"gateway: {kind}, nobody asks"
            else:
                yield f"gateway: {kind}, the last" if sent[-1]["kind"] == "complete" else f"gateway: {kind}"
        elif kind in ("outcome", "administered", "restarted"):
            yield f"gateway: {kind}" if sent else "gateway: outcome, nobody asks"


class FollowerSeen:
    """A follower of the log, seen from outside."""

    def __init__(self) -> None:
        self._lsn = -1

    def names(self, event: Event, effects: Sequence[Effect]) -> Iterator[str]:
        """Name what has happened to it."""
        if type(event) is TimerFired and event.name == "begin":
            yield "follower: asks again for the state"
        elif type(event) is Received and event.message["kind"] in ("state", "log"):
            said = [each["lsn"] for each in _sent(effects) if each["kind"] == "has"]
            if not said:
                yield "follower: log before the state"
                return
            before, self._lsn = self._lsn, said[-1]
            if event.message["kind"] == "state":
                yield "follower: state" if before < 0 else "follower: state, late"
            elif self._lsn > before:
                yield "follower: log, next"
            else:
                yield "follower: log, seen before"


class ReplicaSeen:
    """A replica, seen from outside."""

    def __init__(self) -> None:
        self._follower = FollowerSeen()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """See :meth:`ClientSeen.names`."""
        yield from self._follower.names(event, effects)
        if type(event) is TimerFired and event.name == "apply":
            yield "replica: applied late"
        elif type(event) is Received and event.message["kind"] == "read":
            kind = _sent(effects)[0]["kind"]
            yield "replica: read, answered" if kind == "part" else "replica: read, passed on to the master"


class ProcessorSeen:
    """A processor, seen from outside."""

    def __init__(self) -> None:
        self._follower = FollowerSeen()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """See :meth:`ClientSeen.names`."""
        yield from self._follower.names(event, effects)
        sent = _sent(effects)
        if type(event) is LinkUp:
            yield "processor: begins a life"
        elif type(event) is TimerFired and event.name.startswith(AGAIN):
            yield "processor: tells again" if sent else "processor: nothing to tell again"
        elif type(event) is Received:
            yield from self._received(event, sent)
        bodies = [each["body"] for each in sent if each["kind"] == "stream"]
        if type(event) is Received:
            for body in bodies:
                if "change" in body:
                    when = "synced" if event.message["kind"] == "register" else "told"
                    yield f"processor: {body['change']['op']} {when}"
                elif "ended" in body:
                    why = "token" if "its token" in body["ended"] else "table"
                    yield f"processor: ended, {why}"

    def _received(self, event: Received, sent: Sequence[Any]) -> Iterator[str]:
        message = event.message
        kind, first = message["kind"], sent[0]["kind"] if sent else None
        if kind == "read":
            yield "processor: latest read" if message["latest"] else "processor: read"
        elif kind == "register":
            if first is None:
                yield "processor: register, not yet or not any more"
            else:
                yield "processor: register" if len(sent) > 1 else "processor: register, known"
        elif kind in ("write", "update_data", "unregister", "confirmed", "gone", "moved"):
            yield f"processor: {kind}"


class BackEndSeen:
    """The back end, seen from outside."""

    def __init__(self) -> None:
        self._begun: set[str] = set()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """See :meth:`ClientSeen.names`."""
        sent = _sent(effects)
        if type(event) is TimerFired:
            yield "back end: log sent again" if sent else "back end: nothing to send again"
        elif type(event) is LinkUp:
            yield "back end: begins"
        elif type(event) is Received:
            message = event.message
            kind = message["kind"]
            if kind == "write":
                yield f"back end: {_outcome(message, sent, is_kept)}"
            elif kind in ("describe", "admin") and sent[0]["kind"] == "restarted":
                yield "back end: restarted"
            elif kind == "describe":
                known = sent[0]["table"] is not None
                yield "back end: describe" if known else "back end: describe, no such table"
            elif kind == "read":
                yield "back end: read"
            elif kind == "admin":
                if not is_kept:
                    yield "back end: admin, known already"
                else:
                    yield "back end: admin, refused" if "error" in sent[0] else f"back end: {message['op']}"
            elif kind == "follow":
                yield "back end: follow"
            elif kind == "has":
                is_known = event.source in self._begun
                yield "back end: has" if is_known else "back end: has, the first of a life"
            if kind in ("follow", "has"):
                self._begun.add(event.source)


def _outcome(message: Any, sent: Sequence[Any], is_kept: bool) -> str:
    if not sent or (not is_kept and sent[0].get("error", {}).get("kind") == "MudkitError"):
        return "write, late copy"
    outcome = sent[0]
    if "error" in outcome and outcome["error"] == message["refused"]:
        return "write, token refused"
    if not is_kept:
        return "write, known already"
    if "ver" in outcome:
        return f"{message['type']} {'delete' if message['data'] is None else 'write'} committed"
    if "conflict" in outcome:
        return "conflict, hidden or none" if outcome["conflict"] is None else "conflict"
    return "write, refused"


class NotificationServerSeen:
    """A notification server, seen from outside."""

    def __init__(self) -> None:
        self._stream = StreamSeen()
        self._sessions: set[str] = set()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """See :meth:`ClientSeen.names`."""
        sent = _sent(effects)
        kinds = [each["kind"] for each in sent]
        if type(event) is TimerFired:
            if event.name.startswith(AGAIN):
                if "gone" in kinds:
                    yield "notifications: given up, waited too long"
                yield "notifications: sent again" if "stream" in kinds else "notifications: nobody to send to"
            elif event.name == "identify":
                yield "notifications: asked for a hello again"
            elif event.name == "sweep":
                yield "notifications: given up, not heard of" if sent else "notifications: all were heard of"
        elif type(event) is SendFailed:
            yield "notifications: not delivered"
        elif type(event) is LinkUp:
            yield "notifications: begins a life"
        elif type(event) is Received:
            yield from self._received(event.message, sent, kinds)
        self._sessions -= {each["session"] for each in sent if each["kind"] == "gone"}
        self._sessions |= {each["session"] for each in sent if each["kind"] == "welcome"}

    def _received(self, message: Any, sent: Sequence[Any], kinds: Sequence[str]) -> Iterator[str]:
        if message["kind"] == "hello":
            what = "hello" if message["is_new"] else "heartbeat"
            if "redirect" in kinds:  # whichever of the two it was
                yield "notifications: hello redirected"
                return
            if "welcome" not in kinds:
                yield f"notifications: hello, {'of another start' if 'identify' in kinds else 'late'}"
                return
            welcome = next(each for each in sent if each["kind"] == "welcome")
            is_known = welcome["session"] == message["session"]
            yield f"notifications: {what}, known" if is_known else "notifications: new session"
            if "stream" in kinds:
                yield "notifications: hello, what waited is sent"
        elif message["kind"] == "confirmed":
            yield "notifications: confirmed"
        elif message["kind"] == "stream":
            row, body = self._stream.take(message, [Send("", each) for each in sent]), message["body"]
            yield f"notifications: stream, {row}"
            if row != "next":
                return
            if body["what"] == "life":
                yield "notifications: life"
            elif body["what"] == "policy":
                yield "notifications: policy, sent" if "stream" in kinds else "notifications: policy, kept"
            elif body["what"] == "whereabouts":
                pass  # only of a server that was restored
            elif "gone" in kinds:
                is_known = body["session"] in self._sessions
                yield "notifications: tell, given up" if is_known else "notifications: tell, stranger"
            else:
                yield "notifications: tell, sent" if "stream" in kinds else "notifications: tell, kept"


class GeneratorSeen:
    """The policy generator, seen from outside."""

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """See :meth:`ClientSeen.names`."""
        if type(event) is LinkUp:
            yield "generator: begins a life"
        elif type(event) is Call:
            is_refused = any(type(each) is Complete and each.error is not None for each in effects)
            yield "generator: ship, refused" if is_refused else "generator: ship"
        elif type(event) is TimerFired and event.name.startswith(AGAIN):
            yield "generator: tells again" if _sent(effects) else "generator: nothing to tell again"
        elif type(event) is Received:
            yield f"generator: {event.message['kind']}"
