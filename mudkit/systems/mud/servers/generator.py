"""The policy generator's end of the notification channel: it ships policies to an app's clients (Mobius 6).

It learns nothing itself: what it ships was handed to it. Its rules:

=========  ===========================================================================================
ship       checked, kept durably, and told to every notification server, with the devices that it is
           for, if it is for some only (Mobius 6: those near a place whose write rate changes); the same
           policy may be shipped again for more devices. One for all stands instead of all before it
begin      all that was shipped is told to every server
follow     a server begins, and knows nothing: all that was shipped is told to it
confirmed  the server has it
timer      what nobody confirmed is told again
=========  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import MudkitError, ParameterError
from mudkit.events import Call, Complete, Effect, Event, LinkUp, Ports, Received, Send, TimerFired
from mudkit.systems.mud.messages import GENERATOR_FROM_NOTIFICATION_SERVER
from mudkit.systems.mud.policies.artefact import Artefact
from mudkit.systems.receiving import dropped
from mudkit.systems.stream import Outgoing, RetransmitTimer

__all__ = ["Generator"]

_AGAIN_US: Final = 5_000_000


class Generator:
    """The machine that ships policies.

    Parameters
    ----------
    ports : Ports
    servers : sequence of str
        Addresses of the notification servers.
    """

    def __init__(self, ports: Ports, servers: Sequence[str]) -> None:
        self._store = ports.store
        self._me = ports.address
        self._servers = servers
        self._streams: dict[str, Outgoing] = {}
        self._timer = RetransmitTimer(_AGAIN_US)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received() if event.source not in self._servers or not GENERATOR_FROM_NOTIFICATION_SERVER(
                event.message
            ):
                return dropped(event)
            case LinkUp():
                began = [server for server in self._servers if server not in self._streams]
                return [effect for server in began for effect in self._follow(now_us, server)]
            case Call(op_id=op_id, arguments=arguments):
                try:
                    sent = self._ship(now_us, arguments["app"], arguments["document"], arguments["to"])
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
                return [Complete(op_id), *sent]
            case Received(source=source, message={"kind": "follow"}):
                return self._follow(now_us, source)
            case Received(source=source, message={"kind": "confirmed", "stream": name, "number": number}):
                if source in self._streams and self._streams[source].name == name:
                    self._streams[source].acked(number)
            case TimerFired():
                return self._timer.again(now_us, self._streams)
        return ()

    def _ship(
        self, now_us: int, app: str, document: Mapping[str, Any], to: Sequence[str] | None
    ) -> Sequence[Effect]:
        artefact = Artefact.read(document)
        places = f"policy {app}\n{artefact.kind}\n"
        known = dict(self._store.items(places))
        newest = max(known.values(), key=lambda body: int(body["document"]["version"]), default=None)
        if newest is not None and artefact.version <= newest["document"]["version"]:
            is_for_more = None not in (to, newest["to"]) and newest["document"] == dict(document)
            if not is_for_more:
                raise ParameterError(
                    "A policy of this version was shipped already.",
                    where="version",
                    found=str(artefact.version),
                    expected=f"more than {newest['document']['version']}",
                )
            to = [*(to or ()), *newest["to"]]
        wanted = None if to is None else sorted(set(to))
        body = {
            "what": "policy",
            "app": app,
            "policy": artefact.kind,
            "to": wanted,
            "document": dict(document),
        }
        if to is None:
            for place in known:
                self._store.delete(place)
        self._store.put(f"{places}{artefact.version:012d}", body)
        return self._tell(now_us, body, self._servers)

    def _follow(self, now_us: int, server: str) -> Sequence[Effect]:
        count = (self._store.get("count of streams") or 0) + 1
        self._store.put("count of streams", count)
        self._streams[server] = Outgoing(f"{self._me} {count}")
        shipped = [body for _, body in self._store.items("policy ")]
        effects: list[Effect] = [Send(server, {"kind": "followed"})]
        for body in shipped:
            effects += self._tell(now_us, body, [server])
        return effects

    def _tell(self, now_us: int, body: Mapping[str, Any], servers: Sequence[str]) -> Sequence[Effect]:
        sent = [Send(server, self._streams[server].add(now_us, body)) for server in servers]
        return [*sent, *self._timer.soon()]
