"""The policy generator's end of the notification channel: it ships policies to an app's clients (Mobius 6).

It learns nothing itself: what it ships was handed to it. Its rules:

=========  ===========================================================================================
ship       checked, kept durably, and told to every notification server
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
from mudkit.systems.mud.artefact import Artefact
from mudkit.systems.stream import Again, Outgoing

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
        self._timer = Again(_AGAIN_US)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case LinkUp():
                began = [server for server in self._servers if server not in self._streams]
                return [effect for server in began for effect in self._follow(now_us, server)]
            case Call(op_id=op_id, arguments=arguments):
                try:
                    sent = self._ship(now_us, arguments["app"], arguments["document"])
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
                return [Complete(op_id), *sent]
            case Received(source=source, message={"kind": "follow"}):
                return self._follow(now_us, source)
            case Received(source=source, message={"kind": "confirmed", "stream": name, "number": number}):
                if source in self._streams and self._streams[source].name == name:
                    self._streams[source].confirmed(number)
            case TimerFired():
                return self._timer.again(now_us, self._streams)
        return ()

    def _ship(self, now_us: int, app: str, document: Mapping[str, Any]) -> Sequence[Effect]:
        artefact = Artefact.read(document)
        place = f"policy {app}\n{artefact.kind}"
        known = self._store.get(place)
        if known is not None and artefact.version <= known["document"]["version"]:
            raise ParameterError(
                "A policy of this version was shipped already.", where="version",
                found=str(artefact.version), expected=f"more than {known['document']['version']}",
            )  # fmt: skip
        body = {"what": "policy", "app": app, "policy": artefact.kind, "document": dict(document)}
        self._store.put(place, body)
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
