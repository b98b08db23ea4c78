"""Gateway of a data centre: terminates the connections of devices (Contrail 4.2.2).

========  ==========================================================================================
request   forwarded to the compute instances in turn, skipping unreachable ones; a device may send in
          its own name only: the network identifies the sender
tell      forwarded to the device
filled    forwarded to the device if it has an open connection; otherwise ``gone`` to the storage
probe     answered at once: behind the page that the device waits for, if that was sent
bye       the connection is closed
late      a pull or bye of an earlier visit of the device is ignored
restart   of this gateway or of a storage: one of them may not know the open connections, so all
          connected devices are notified to pull
========  ==========================================================================================

The only durable state is the address of each device with an open connection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from mudkit.events import Effect, Event, Ports, Received, Send, SendFailed
from mudkit.systems.contrail.messages import (
    GATEWAY_FROM_COMPUTE,
    GATEWAY_FROM_DEVICE,
    GATEWAY_FROM_STORAGE,
    Bye,
    Data,
    Filled,
    NotConnected,
    Probe,
    Pull,
    Push,
    QueueFilled,
    Request,
    RoutedRequest,
    ServerRestarted,
)
from mudkit.systems.receiving import record_dropped

_MAX_BODY_BYTES = 1_200_000
"""Item of 1 MiB with its delivery name and the overhead of encryption."""


class Gateway:
    """Machine of a gateway, with the addresses of its compute instances and of all storages (``units``)."""

    def __init__(self, ports: Ports, instances: Sequence[str], units: Collection[str]) -> None:
        self._me, self._store = ports.address, ports.store
        self._instances, self._units = instances, units
        self._turn = 0
        self._connections: dict[str, str] = {
            key.removeprefix("held "): address for key, address in ports.store.items("held ", str)
        }
        self._visits: dict[str, int] = {}
        """Earliest visit of each device that is not over."""
        self._is_awake = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        woken: Sequence[Effect] = ()
        if not self._is_awake:
            self._is_awake = True
            woken = self._announce_restart()
        return (*woken, *self._handle_event(event))

    def _announce_restart(self) -> Sequence[Effect]:
        """Notify connected devices and all storages, unless this is the first start."""
        if self._store.get("started", bool):
            return (*self._notify_connected(), *(Send(unit, ServerRestarted()) for unit in self._units))
        self._store.put("started", True)
        return ()

    def _notify_connected(self) -> Sequence[Effect]:
        """Ask all devices with an open connection to pull, because this gateway or a storage restarted."""
        return [Send(address, Filled()) for address in self._connections.values()]

    def _handle_event(self, event: Event) -> Sequence[Effect]:
        """Forward requests and answers; update the open connections; drop what its sender may not send."""
        match event:
            case Received(source=source) if source in self._instances:
                tell = GATEWAY_FROM_COMPUTE.decode(event.message)
                return record_dropped(event) if tell is None else (Send(tell.to, tell.message),)
            case Received(source=source) if source in self._units:
                match GATEWAY_FROM_STORAGE.decode(event.message):
                    case QueueFilled(device=device, client=str() as client):
                        return (Send(self._connections.get(device, client), Filled()),)
                    case QueueFilled(device=device):
                        address = self._connections.get(device)
                        if address is None:
                            return (Send(source, NotConnected(device)),)
                        return (Send(address, Filled()),)
                    case ServerRestarted():
                        return self._notify_connected()
                return record_dropped(event)
            case Received(source=source):
                message = GATEWAY_FROM_DEVICE.decode(event.message)
                if message is None or not _is_own(message, event.sender):
                    return record_dropped(event)
                return self._receive_request(source, message)
            case SendFailed(to=to, message=RoutedRequest() as ask) if to in self._instances:
                return (self._forward(ask),) if ask.tries < len(self._instances) else ()
            case SendFailed(to=to):
                for device in [name for name, address in self._connections.items() if address == to]:
                    self._set_connection(device, None)
        return ()

    def _receive_request(self, source: str, message: Request | Probe | Bye) -> Sequence[Effect]:
        """Answer a probe, record the connection that a pull opens or a bye closes, forward the rest."""
        match message:
            case Probe():
                return (Send(source, Filled()),)
            case Bye(device=device, visit=visit):
                if visit >= self._visits.get(device, 0):
                    self._visits[device] = visit + 1
                    self._set_connection(device, None)
                return ()
            case Pull(device=device, visit=visit, hold=hold):
                if visit < self._visits.get(device, 0):
                    return ()
                self._visits[device] = visit
                self._set_connection(device, source if hold else None)
        return (self._forward(RoutedRequest(self._me, source, message, tries=0)),)

    def _set_connection(self, device: str, address: str | None) -> None:
        """Store the address of a device's open connection, durably; None: the connection is closed."""
        if self._connections.get(device) == address:
            return
        if address is None:
            del self._connections[device]
            self._store.delete(f"held {device}")
        else:
            self._connections[device] = address
            self._store.put(f"held {device}", address)

    def _forward(self, ask: RoutedRequest) -> Send:
        """Send a request to the next compute instance in turn, with one more try."""
        self._turn += 1
        to = self._instances[self._turn % len(self._instances)]
        return Send(to, msgspec.structs.replace(ask, tries=ask.tries + 1))


def _is_own(message: Request | Probe | Bye, sender: str) -> bool:
    """Return whether a device sends in its own name and within the size limit."""
    if message.device != sender:
        return False
    match message:
        case Push(message=Data(source=source, body=body)):
            return source == sender and (body is None or len(body) <= _MAX_BODY_BYTES)
        case Push(message=sealed):
            return sealed.source == sender
    return True
