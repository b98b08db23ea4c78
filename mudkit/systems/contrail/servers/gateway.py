"""The gateway of a data centre: it accepts what devices send, and holds their connections (Contrail 4.2.2).

========  ==========================================================================================
a device  whatever it asks goes to a compute instance, by turns; one that is not there is passed over;
          it asks for itself, and sends in its own name: who it is says the network
tell      to the device that asked
hold      a device that waits for more keeps its connection: when its queue is filled, it is told so
bye       the connection is over
========  ==========================================================================================

It keeps who holds a connection, also when it is made again, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from mudkit.events import Effect, Event, Ports, Received, Send, SendFailed
from mudkit.systems.contrail.messages import cloud, devices
from mudkit.systems.receiving import Accepts, dropped

__all__ = ["Gateway"]

_OF_DEVICES: Final = Accepts(
    devices.Join, devices.Send, devices.Membership, devices.Withdraw, devices.Pull, devices.Bye
)
_OF_COMPUTE: Final = Accepts(cloud.Tell)
_OF_STORAGE: Final = Accepts(cloud.QueueFilled)


class Gateway:
    """One gateway.

    Parameters
    ----------
    ports : Ports
    instances : sequence of str
        Addresses of the compute instances.
    units : collection of str
        Addresses of the storage of all data centres.
    """

    def __init__(self, ports: Ports, instances: Sequence[str], units: Collection[str]) -> None:
        self._me, self._store = ports.address, ports.store
        self._instances, self._units = instances, units
        self._turn = 0
        self._held: dict[str, str] = {
            key.removeprefix("held "): address for key, address in ports.store.items("held ")
        }

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received() if not self._takes(event):
                return dropped(event)
            case Received(message={"kind": "tell", "to": to, "message": message}):
                return (Send(to, message),)
            case Received(source=source, message={"kind": "filled", "device": device}):
                held = self._held.get(device)
                gone = Send(source, {"kind": "gone", "device": device})
                return (gone,) if held is None else (Send(held, {"kind": "filled"}),)
            case Received(message={"kind": "bye", "device": device}):
                self._hold(device, None)
            case Received(source=source, message={"kind": _, "device": device} as what):
                if what["kind"] == "pull":
                    self._hold(device, source if what["hold"] else None)
                return (self._ask({"kind": "ask", "gateway": self._me, "client": source, "what": what}),)
            case SendFailed(to=to, message={"kind": "ask", "tries": tries} as ask) if to in self._instances:
                return (self._ask(ask),) if tries < len(self._instances) else ()
            case SendFailed(to=to):
                for device in [each for each, address in self._held.items() if address == to]:
                    self._hold(device, None)
        return ()

    def _takes(self, event: Received) -> bool:
        """Say whether a message is of its own cloud, or of a device that speaks for itself."""
        source, message = event.source, event.message
        if source in self._instances:
            return _OF_COMPUTE(message)
        if source in self._units:
            return _OF_STORAGE(message)
        if not _OF_DEVICES(message) or message["device"] != event.sender:
            return False
        return message["kind"] != "send" or bool(message["message"]["from"] == event.sender)

    def _hold(self, device: str, address: str | None) -> None:
        if self._held.get(device) == address:
            return
        if address is None:
            del self._held[device]
            self._store.delete(f"held {device}")
        else:
            self._held[device] = address
            self._store.put(f"held {device}", address)

    def _ask(self, ask: Mapping[str, Any]) -> Send:
        self._turn += 1
        to = self._instances[self._turn % len(self._instances)]
        return Send(to, {**ask, "tries": ask.get("tries", 0) + 1})
