"""What the transitions of a client are called, by what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Received,
    Send,
    SendFailed,
    TimerFired,
)
from mudkit.systems.mud import Conflict

__all__ = ["ClientSeen", "StreamSeen"]


class StreamSeen:
    """The receiver's ends of streams, as far as their confirmations show them."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def take(self, message: Mapping[str, Any], effects: Sequence[Effect]) -> str:
        """Say whether a message was the next, seen before, behind a gap, or of a stream that is left."""
        name, number = message["stream"], message["number"]
        said = [
            each.message for each in effects if type(each) is Send and each.message["kind"] == "confirmed"
        ]
        if not said:
            return "of another session"
        last = max(self._last.get(name, 0), message["first"] - 1)
        self._last[name] = said[-1]["number"]
        if number == last + 1:
            return "next"
        return "seen before" if number <= last else "gap"


class ClientSeen:
    """One life of a client, seen from outside."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        self._parts: dict[str, set[Any]] = {}
        self._stream = StreamSeen()
        self._session: str | None = None

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Name what has happened; ``is_kept`` says whether something was written to the store."""
        sent = [each.message for each in effects if type(each) is Send]
        asked = [each for each in sent if each["kind"] == "ask"]
        asked += [ask for each in sent if each["kind"] == "asks" for ask in each["asks"]]
        if type(event) is Call:
            yield from self._called(event, effects, asked)
        elif type(event) is Received:
            yield from self._received(event.message, effects, asked)
        elif type(event) is LinkUp:
            yield "connection: link up, asks sent" if asked else "connection: link up"
        elif type(event) is LinkDown:
            yield "connection: link down"
        elif type(event) is SendFailed:
            yield "connection: next gateway" if effects else "connection: failure of no matter"
        elif type(event) is TimerFired:
            if event.name == "retry":
                if asked:
                    yield "connection: asked again"
                if any(message["kind"] == "hello" for message in sent):
                    yield "watching: hello timer"
            elif event.name == "due":
                yield "writing: due"
            else:
                yield f"watching: {event.name} timer"
        for message in asked:
            self._asked[message["id"]] = message["what"]["op"]
            self._parts[message["id"]] = set()

    def _called(
        self, event: Call, effects: Sequence[Effect], asked: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        name, op_id, given = event.name, event.op_id, event.named_arguments
        ops = {message["what"]["op"] for message in asked}
        answers = [each for each in effects if type(each) is Complete and each.op_id == op_id]
        if name == "read":
            kind = "aggregate" if given["aggregate"] is not None else given["type"]
            if answers:
                yield "asking: refused here" if answers[0].error is not None else f"asking: {kind}, here"
            elif "read" in ops:
                yield f"asking: {kind}, asked"
                if given["latest"]:
                    yield "asking: latest, asked"
            else:
                yield "asking: committed_wio, must wait" if kind == "committed_wio" else "asking: no link"
        elif name in ("write", "delete"):
            if answers:
                yield "writing: refused here"
            else:
                yield f"writing: {given['type']} {name}, {'sent' if 'write' in ops else 'waits'}"
        elif name == "register":
            if answers:
                yield "watching: refused here"
            else:
                yield "watching: register, asked" if "register" in ops else "watching: register, no session"
        elif name in ("update_data", "unregister"):
            yield f"watching: {name}"

    def _received(
        self, message: Mapping[str, Any], effects: Sequence[Effect], asked: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        kind = message["kind"]
        if kind == "stream":
            yield from self._streamed(message, effects, asked)
        elif kind == "welcome":
            if not effects:
                yield "watching: welcome, late"
                return
            is_same = message["session"] == self._session
            yield f"watching: welcome, {'same' if is_same else 'other'} session"
            self._session = message["session"]
        elif kind == "redirect":
            yield "watching: redirected"
        elif kind == "identify":
            yield "watching: asked for a hello"
        elif message["id"] not in self._asked:
            yield "connection: late answer"
        elif kind == "restarted":  # all is asked again
            self._asked.clear()
            self._parts.clear()
            yield "connection: back end restarted"
        elif kind in ("part", "registered") and "error" not in message:
            self._parts[message["id"]].add(message["place"])
            yield "connection: part"
        else:
            yield from self._answered(message, effects, asked)

    def _answered(
        self, message: Mapping[str, Any], effects: Sequence[Effect], asked: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        op, parts = self._asked.pop(message["id"]), self._parts.pop(message["id"])
        done = [each for each in effects if type(each) is Complete]
        again = any(each["what"]["op"] == op for each in asked)
        if op == "write":
            chained = sum(
                isinstance(each.error, Conflict) and "based on" in each.error.summary for each in done
            )
            yield from ["writing: chained on one that failed"] * chained
            outcome = "committed" if "ver" in message else "conflict" if "conflict" in message else "refused"
            yield f"writing: {outcome}"
        elif op == "read":
            if "error" in message:
                yield "asking: refused"
            elif any(each.result is not None for each in done):
                yield "asking: answered"
            else:
                lost = any(place not in parts for place in message["places"])
                yield "asking: asked again, a part was lost" if lost else "asking: asked again, too old"
        elif op == "register":
            if "error" in message:
                yield "watching: refused"
            elif again:
                yield "watching: registered in part or in an older life"
            else:
                yield "watching: registered"
        elif op in ("update_data", "unregister"):
            yield "watching: refused" if "error" in message else f"watching: {op} done"
        else:
            yield "client: table refused" if "error" in message else f"client: {op} done"

    def _streamed(
        self, message: Mapping[str, Any], effects: Sequence[Effect], asked: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        row, body = self._stream.take(message, effects), message["body"]
        yield f"watching: stream, {row}"
        if row != "next":
            return
        is_notified = any(type(each) is Notify for each in effects)
        if body["what"] == "life":
            yield "watching: life, registered again" if asked else "watching: life"
        elif body["what"] == "policy":
            yield "watching: policy"
        elif "change" in body:
            yield (
                f"watching: {body['change']['op']} passed on"
                if is_notified
                else "watching: known or unregistered"
            )
        elif "synced" in body:
            yield "watching: synced"
        else:
            yield "watching: ended" if is_notified else "watching: known or unregistered"
