"""Service of a device: the one connection of its apps to the cloud (Mobius 2, 5 and 7.1).

Rules:

============  ======================================================================================
any message   dropped unless its sender may send it; of an app only in its own name
Attach        keep the app's token and policies; say hello if it is to be notified
Ask           to the gateway in use
answer        to the app whose request it answers
SendFailed    to a gateway: use the next one, and report this to the apps
notification  see :mod:`~mudkit.systems.mud.device.greeting`
============  ======================================================================================

It has no durable state: its session ends with the start of the device, and each app attaches again then.
What an app has stored decides what it requests again. So no store of one can be older than that of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from mudkit.events import Effect, Event, LinkDown, LinkUp, Received, Send, SendFailed, TimerFired
from mudkit.systems.mud.device.attachment import (
    SERVICE_FROM_APP,
    Attach,
    GatewayLost,
    address_of,
    app_at,
)
from mudkit.systems.mud.device.greeting import Greeting
from mudkit.systems.mud.messages import CLIENT_FROM_GATEWAY, app_of, netid_of
from mudkit.systems.receiving import record_dropped
from mudkit.tokens import claimed


class DeviceService:
    """Machine of a device's service.

    The device's notification server is one of ``servers``, of which the first knows which one is responsible.
    """

    def __init__(self, netid: str, gateways: Sequence[str], servers: Sequence[str]) -> None:
        self._netid = netid
        self._gateways, self._servers = gateways, servers
        self._turn = crc32(netid.encode()) % len(gateways)
        """Number of the gateway in use, which counts on when one is not reached."""
        self._is_up = False
        self._apps: dict[str, Attach] = {}
        """Attached apps, in the order of their attachment."""
        self._greeting = Greeting(netid, servers, self._apps)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                app = app_at(source)
                if app is not None:
                    return self._receive_from_app(now_us, app, event)
                if source in self._gateways:
                    return self._receive_answer(event)
                if source in self._servers:
                    effects = self._greeting.receive(now_us, event)
                    return record_dropped(event) if effects is None else effects
                return record_dropped(event)
            case LinkUp():
                self._is_up = True
                return self._greeting.link_up()
            case LinkDown():
                self._is_up = False
                return self._greeting.link_down()
            case SendFailed(to=to) if to == self._current_gateway() and self._is_up:
                self._turn += 1
                return [Send(address_of(app), GatewayLost()) for app in self._apps]
            case TimerFired(name=name):
                return self._greeting.handle_timer(now_us, name)
        return ()

    def _receive_from_app(self, now_us: int, app: str, event: Received) -> Sequence[Effect]:
        """Handle a message of an app's machine, whose address the device vouches for."""
        message = SERVICE_FROM_APP.decode(event.message)
        if message is None:
            return record_dropped(event)
        if isinstance(message, Attach):
            claims = claimed(message.token)
            if claims is not None and claims.app != app:
                return record_dropped(event)
            return self._greeting.attach(now_us, app, message)
        if app not in self._apps or message.client != f"{self._netid}/{app}":
            return record_dropped(event)
        return (Send(self._current_gateway(), message),)

    def _receive_answer(self, event: Received) -> Sequence[Effect]:
        """Forward a message of a gateway to the app whose request it answers."""
        answer = CLIENT_FROM_GATEWAY.decode(event.message)
        if answer is None:
            return record_dropped(event)
        endpoint = answer.id.rpartition(" ")[0]
        app = app_of(endpoint)
        if netid_of(endpoint) != self._netid or app not in self._apps:
            return ()  # of a former owner of this address
        return (Send(address_of(app), answer),)

    def _current_gateway(self) -> str:
        """Return the address of the gateway in use."""
        return self._gateways[self._turn % len(self._gateways)]
