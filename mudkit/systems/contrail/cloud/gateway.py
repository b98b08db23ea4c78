"""The gateway of a data centre: it accepts what devices send, and holds their connections (Contrail 4.2.2).

========  ==========================================================================================
a device  whatever it asks goes to a compute instance, by turns; one that is not there is passed over
tell      to the device that asked
hold      a device that waits for more keeps its connection: when its queue is filled, it is told so
bye       the connection is over
========  ==========================================================================================

It keeps nothing that matters: a connection that is lost with it is opened again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mudkit.events import Effect, Event, Ports, Received, Send, SendFailed

__all__ = ["Gateway"]


class Gateway:
    """One gateway.

    Parameters
    ----------
    ports : Ports
    instances : sequence of str
        Addresses of the compute instances.
    """

    def __init__(self, ports: Ports, instances: Sequence[str]) -> None:
        self._me = ports.address
        self._instances = instances
        self._turn = 0
        self._held: dict[str, str] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(message={"kind": "tell", "to": to, "message": message}):
                return (Send(to, message),)
            case Received(message={"kind": "filled", "device": device}):
                held = self._held.get(device)
                return () if held is None else (Send(held, {"kind": "filled"}),)
            case Received(message={"kind": "bye", "device": device}):
                self._held.pop(device, None)
            case Received(source=source, message={"kind": _, "device": device} as what):
                if what["kind"] == "send" and what["message"]["from"] != device:
                    return ()  # nobody sends in another's name
                if what["kind"] == "pull":
                    self._hold(device, source, hold=what["hold"])
                return (self._ask({"kind": "ask", "gateway": self._me, "client": source, "what": what}),)
            case SendFailed(to=to, message={"kind": "ask", "tries": tries} as ask) if to in self._instances:
                return (self._ask(ask),) if tries < len(self._instances) else ()
            case SendFailed(to=to):
                for device in [each for each, address in self._held.items() if address == to]:
                    del self._held[device]
        return ()

    def _hold(self, device: str, address: str, *, hold: bool) -> None:
        if hold:
            self._held[device] = address
        else:
            self._held.pop(device, None)

    def _ask(self, ask: Mapping[str, Any]) -> Send:
        self._turn += 1
        to = self._instances[self._turn % len(self._instances)]
        return Send(to, {**ask, "tries": ask.get("tries", 0) + 1})
