"""A subscriber without state: publish-subscribe as the paper found it (SUBLIM, sections 1 and 2).

It says hello to the best access point and takes messages. It says hello again by a timer, as an access point
that was away knows nobody. See :mod:`mudkit.systems.sublim.servers.plain_access_point`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.records import delivery
from mudkit.display import View
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
    Send,
    SetTimer,
    TimerFired,
)
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim.messages import TO_PLAIN_CLIENT, Bye, Hello, Plain
from mudkit.systems.sublim.operations import Read
from mudkit.systems.sublim.sites import Site, best

__all__ = ["APP", "PlainClientMachine"]

APP: Final = "messages"
_AGAIN_US: Final = 60_000_000
_HELLO: Final = "hello"


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
        self._unread: list[Plain] = []

    def overview(self) -> View:
        """Return its access point and condition, as a display shows it."""
        return View(
            "",
            {"access point": self._at or "none", "condition": self._wanted, "not read": len(self._unread)},
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                message = TO_PLAIN_CLIENT.decode(event.message)
                if message is None or all(site.address != source for site in self._sites):
                    return dropped(event)
                if message.seq <= self._last:
                    return ()
                self._last = message.seq
                self._unread.append(message)
                return delivery(message.item, self._me, delivered_us=now_us), Notify(APP, message.body)
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
            case Call(op_id=op_id, operation=Read()):
                unread, self._unread = self._unread, []
                read = [delivery(each.item, self._me, read_us=now_us) for each in unread]
                return [*read, Complete(op_id, [each.body for each in unread])]
        return ()

    def _hello(self) -> Sequence[Effect]:
        before, self._at = self._at, best(self._sites, self._loc, self._at)
        timer = SetTimer(_HELLO, _AGAIN_US)
        if self._at is None:
            return (timer,)
        hello = Send(self._at, Hello(self._me, self._wanted))
        if before is None or before == self._at:
            return hello, timer
        return Send(before, Bye(self._me)), hello, timer
