"""Access points and subscribers without state: publish-subscribe as the paper found it (sections 1 and 2).

A server keeps the address of a subscriber and a predicate over the message, and nothing else: what cannot be
delivered now is lost. They work beside SUBLIM (section 2, incremental deployment): access points with
SUBLIM serve subscribers of this kind too, and those who have a state are served from afar, over the wired
network, where only access points without SUBLIM are near.

==========  ==========================================================================================
hello       a subscriber is at this address, and wants messages for which its predicate is TRUE
bye         it does not want them from here any more
messages    each new one at once to those who want it
timer       of the client: say hello again; an access point that was away knows nobody
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import PredicateError
from mudkit.events import (
    Call,
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
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.predicates import Language, Predicate
from mudkit.systems.sublim.sites import Site, best

__all__ = ["APP", "LANGUAGE", "PlainAccessPointMachine", "PlainClientMachine", "PlainService"]

APP: Final = "messages"
LANGUAGE: Final = Language(("message",), bound=())
"""Of their predicates: the message, and no state."""
_AGAIN_US: Final = 60_000_000
_JOIN_US: Final = 5_000_000
_HELLO: Final = "hello"
_JOIN: Final = "join"


class PlainService:
    """What an access point does for subscribers without state."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[str, Predicate]] = {}
        """By subscriber: its address, and its predicate."""
        self._last = 0

    def heard(self, event: Event) -> None:
        """Take what a subscriber says, and that one is away."""
        match event:
            case Received(source=source, message={"kind": "hello", "subscriber": name, "filter": text}):
                try:
                    self._wanted[name] = source, Predicate.parse(text, language=LANGUAGE)
                except PredicateError:  # the client has checked it: whoever sent this is none
                    self._wanted.pop(name, None)
            case Received(message={"kind": "bye", "subscriber": name}):
                self._wanted.pop(name, None)
            case SendFailed(to=to, message={"kind": "plain"}):
                self._wanted = {name: each for name, each in self._wanted.items() if each[0] != to}

    def flood(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Effect]:
        """Send what is new to those who want it."""
        effects: list[Effect] = []
        for message in messages:
            if message["number"] <= self._last:
                continue
            self._last = message["number"]
            sent = {
                "kind": "plain",
                "number": message["number"],
                "item": message["item"],
                "body": message["body"],
            }
            for name, (address, predicate) in self._wanted.items():
                if predicate(message["body"]) is True:
                    row = {"item": message["item"], "receiver": name, "created_us": message["created_us"]}
                    effects += [Record("deliveries", row), Send(address, sent)]
        return effects


class PlainAccessPointMachine:
    """The machine of an access point without SUBLIM.

    Parameters
    ----------
    ports : Ports
    server : str
        Address of the publish server.
    """

    def __init__(self, ports: Ports, server: str) -> None:
        self._server = server
        self._service = PlainService()
        self._has_joined = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(message={"kind": "messages", "messages": messages, "last": last}):
                self._has_joined = True
                return [*self._service.flood(messages), Send(self._server, {"kind": "have", "last": last})]
            case LinkUp() | TimerFired() if not self._has_joined:
                return Send(self._server, {"kind": _JOIN}), SetTimer(_JOIN, _JOIN_US)
            case Call(op_id=op_id):
                return (Complete(op_id),)  # it keeps no state of anybody
        self._service.heard(event)
        return ()


class PlainClientMachine:
    """The machine of a subscriber without state.

    Parameters
    ----------
    ports : Ports
    me : str
    sites : sequence of Site
        All access points: any will do.
    wanted : str
        A predicate over the message.
    """

    def __init__(self, ports: Ports, me: str, sites: Sequence[Site], wanted: str) -> None:
        self._me = me
        self._sites = sites
        self._wanted = wanted
        self._at: str | None = None
        self._loc: tuple[float, float] | None = None
        self._has_link = False
        self._last = 0
        self._unread: list[Mapping[str, Any]] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(message={"kind": "plain", "number": number} as message) if number > self._last:
                self._last = number
                self._unread.append(message)
                row = {"item": message["item"], "receiver": self._me, "delivered_us": now_us}
                return Record("deliveries", row), Notify(APP, message["body"])
            case ContextChanged(context=context):
                self._loc = context.get("loc")
                if self._has_link and best(self._sites, self._loc, self._at) != self._at:
                    return self._hello()
            case LinkUp():
                self._has_link = True
                return self._hello()
            case LinkDown():
                self._has_link = False
            case TimerFired() if self._has_link:
                return self._hello()
            case Call(op_id=op_id, operation="read"):
                unread, self._unread = self._unread, []
                rows = [{"item": each["item"], "receiver": self._me, "read_us": now_us} for each in unread]
                read = [Record("deliveries", row) for row in rows]
                return [*read, Complete(op_id, [each["body"] for each in unread])]
        return ()

    def _hello(self) -> Sequence[Effect]:
        before, self._at = self._at, best(self._sites, self._loc, self._at)
        timer = SetTimer(_HELLO, _AGAIN_US)
        if self._at is None:
            return (timer,)
        hello = Send(self._at, {"kind": "hello", "subscriber": self._me, "filter": self._wanted})
        if before is None or before == self._at:
            return hello, timer
        return Send(before, {"kind": "bye", "subscriber": self._me}), hello, timer
