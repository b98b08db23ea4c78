"""Service of a device: the one connection of its apps to the cloud (Mobius 2, 5 and 7.1).

Rules:

============  ======================================================================================
any message   dropped unless its sender may send it; of an app only in its own name
Attach        keep the app's token and policies; say hello if it is to be notified
Ask           to the gateway in use; with several apps, as far as the app's share of the link admits, unless
              it follows an equal read of another app. Writes of several apps in one moment, as after an
              outage, go in as few messages as fit
DelayOver     to the other apps, whose delayed writes go in the same message
StoreUse      see :mod:`~mudkit.systems.mud.device.store_budget`
answer        to the app whose request it answers, and to those that follow it
SendFailed    to a gateway: use the next one, and report this to the apps. So is one that answers nothing
              while a request is sent to it three times
notification  see :mod:`~mudkit.systems.mud.device.greeting`
============  ======================================================================================

It has no durable state: its session ends with the start of the device, and each app attaches again then.
What an app has stored decides what it requests again. So no store of one can be older than that of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final
from zlib import crc32

from msgspec import UNSET, UnsetType

from mudkit.events import (
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Received,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.systems.mud.device.attachment import (
    SERVICE_FROM_APP,
    Attach,
    DelayOver,
    DeviceShared,
    GatewayLost,
    StoreUse,
    address_of,
    app_at,
)
from mudkit.systems.mud.device.connection import MAX_BATCH_BYTES
from mudkit.systems.mud.device.fair_shares import FairShares
from mudkit.systems.mud.device.greeting import Greeting
from mudkit.systems.mud.device.shared_reads import SharedReads
from mudkit.systems.mud.device.store_budget import StoreBudget
from mudkit.systems.mud.messages.parts import app_of, netid_of
from mudkit.systems.mud.messages.requests import (
    SERVICE_FROM_GATEWAY,
    Administered,
    AppsBatch,
    Ask,
    AskBatch,
    ContinuousReadAck,
    Part,
    PartsComplete,
    WriteOutcome,
    WriteRequest,
)
from mudkit.systems.receiving import record_dropped
from mudkit.tokens import Claims, claimed

SEND: Final = "send"
"""Timer of the writes that apps have sent in this moment."""
_SILENT_TIMES: Final = 3
"""Times that a request is sent to a gateway which answers nothing, before it goes to the next one."""


class DeviceService:
    """Machine of a device's service.

    The device's notification server is one of ``servers``, of which the first knows which one is responsible.
    ``installed`` are the apps of the device at its start: while some of them are not attached yet, the writes
    of the first ones wait for theirs, until the end of the moment.
    """

    def __init__(
        self, netid: str, gateways: Sequence[str], servers: Sequence[str], installed: Collection[str]
    ) -> None:
        self._netid = netid
        self._installed = frozenset(installed)
        self._gateways, self._servers = gateways, servers
        self._turn = crc32(netid.encode()) % len(gateways)
        """Number of the gateway in use, which counts on when one is not reached."""
        self._unanswered: Counter[str] = Counter()
        """Times that each request was sent to the gateway in use since its last message."""
        self._is_up = False
        self._apps: dict[str, Attach] = {}
        """Attached apps, in the order of their attachment."""
        self._greeting = Greeting(netid, servers, self._apps)
        self._verified: dict[str, Claims | None] = {}
        """Claims of each app that the cloud has verified; None: it has no token."""
        self._shares, self._reads = FairShares(), SharedReads(self._verified)
        self._budget = StoreBudget()
        self._writes: list[Ask | AskBatch] = []
        """Messages with writes of this moment, in order."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                app = app_at(source)
                if app is not None:
                    return self._receive_from_app(now_us, app, event)
                if source in self._gateways:
                    return self._receive_answer(now_us, event)
                if source in self._servers:
                    effects = self._greeting.receive(now_us, event)
                    return record_dropped(event) if effects is None else effects
                return record_dropped(event)
            case LinkUp():
                self._is_up = True
                return self._greeting.link_up()
            case LinkDown():
                self._is_up = False
                self._shares.clear()
                self._reads.clear()
                self._writes.clear()
                self._unanswered.clear()
                return self._greeting.link_down()
            case SendFailed(to=to) if to == self._current_gateway() and self._is_up:
                self._use_next_gateway()
                return [Send(address_of(app), GatewayLost()) for app in self._apps]
            case TimerFired(name=name) if name == SEND:
                return self._send_writes()
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
            if message.token is None:
                self._verified[app] = None
            elif self._verified.get(app) != claims:
                self._verified.pop(app, None)
            return self._attach(now_us, app, message)
        if app not in self._apps:
            return record_dropped(event)
        if isinstance(message, StoreUse):
            eviction = self._budget.record_use(app, message)
            return () if eviction is None else (Send(address_of(eviction[0]), eviction[1]),)
        if isinstance(message, DelayOver):
            return [Send(address_of(other), message) for other in self._apps if other != app]
        if message.client != f"{self._netid}/{app}":
            return record_dropped(event)
        if not self._is_shared():
            return (self._build_send(message),)
        return self._send_in_turn(now_us, app, message)

    def _attach(self, now_us: int, app: str, attachment: Attach) -> Sequence[Effect]:
        """Store an app's attachment; report to each app once that it shares the device."""
        is_new = app not in self._apps
        effects = self._greeting.attach(now_us, app, attachment)
        if len(self._apps) == 1 or not is_new:
            return effects
        sharing = list(self._apps) if len(self._apps) == 2 else [app]
        return [*effects, *(Send(address_of(other), DeviceShared()) for other in sharing)]

    def _send_in_turn(self, now_us: int, app: str, message: Ask | AskBatch) -> Sequence[Effect]:
        """Send a message, or queue it until the app's share of the link admits it.

        A read that follows an equal one of another app is not sent at all.
        """
        if isinstance(message, Ask) and self._reads.follow(app, message):
            return ()
        return self._send_all(app, self._shares.offer(now_us, app, message))

    def _send_all(self, app: str, messages: Sequence[Ask | AskBatch]) -> Sequence[Effect]:
        """Send messages of an app to the gateway in use; those with writes at the end of this moment."""
        effects: list[Effect] = []
        for message in messages:
            if isinstance(message, AskBatch) or isinstance(message.what, WriteRequest):
                self._writes.append(message)
                effects.append(SetTimer(SEND, 0))
                continue
            self._reads.lead(app, message)
            effects.append(self._build_send(message))
        return effects

    def _send_writes(self) -> Sequence[Effect]:
        """Send the writes of this moment in as few messages as fit."""
        groups: list[list[Ask | AskBatch]] = []
        together_bytes = 0
        for message in self._writes:
            size = size_bytes(message)
            if not groups or together_bytes + size > MAX_BATCH_BYTES:
                groups.append([])
                together_bytes = 0
            groups[-1].append(message)
            together_bytes += size
        self._writes.clear()
        return [self._build_send(*group) for group in groups]

    def _receive_answer(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Forward a message of a gateway to the app whose request it answers.

        The end of an answer goes to the apps that follow the read, too, and makes room for messages that
        wait. No effect for a former owner of this address.
        """
        answer = SERVICE_FROM_GATEWAY.decode(event.message)
        if answer is None:
            return record_dropped(event)
        if event.source == self._current_gateway():
            self._unanswered.clear()
        endpoint = answer.id.rpartition(" ")[0]
        app = app_of(endpoint)
        if netid_of(endpoint) != self._netid or app not in self._apps:
            return ()  # of a former owner of this address
        passed = Send(address_of(app), answer)
        if isinstance(answer, Part | ContinuousReadAck) and answer.error is UNSET:
            if isinstance(answer, Part):
                self._reads.receive_part(answer)
            return (passed,)
        if isinstance(answer, PartsComplete | WriteOutcome | Administered):
            self._record_verified(app, answer.claims)
        if not self._is_shared():
            return (passed,)
        complete = answer if isinstance(answer, PartsComplete) else None
        answers, asks = self._reads.receive_end(now_us, answer.id, complete)
        effects: list[Effect] = [passed, *(Send(address_of(other), one) for other, one in answers)]
        effects += self._send_all(app, self._shares.settle(now_us, app, answer.id))
        for other, ask in asks:
            effects += self._send_in_turn(now_us, other, ask)
        return effects

    def _record_verified(self, app: str, claims: Claims | UnsetType | None) -> None:
        """Remember what the cloud has verified of an app, if its present token claims the same."""
        known = self._verified.get(app)
        if isinstance(claims, Claims) and known != claims and claims == claimed(self._apps[app].token):
            self._verified[app] = claims

    def _is_shared(self) -> bool:
        """Return whether the device has several apps."""
        return len(self._installed.union(self._apps)) > 1

    def _build_send(self, first: Ask | AskBatch, *others: Ask | AskBatch) -> Send:
        """Build the message of apps to the gateway in use; if that is silent, later the next one."""
        messages = first, *others
        parts = [message.asks if isinstance(message, AskBatch) else [message] for message in messages]
        identities = [part.id for of_message in parts for part in of_message]
        if any(self._unanswered[identity] >= _SILENT_TIMES for identity in identities):
            self._use_next_gateway()
        self._unanswered.update(identities)
        return Send(self._current_gateway(), AppsBatch(list(messages)) if others else first)

    def _use_next_gateway(self) -> None:
        """Use the next gateway from now on."""
        self._turn += 1
        self._unanswered.clear()

    def _current_gateway(self) -> str:
        """Return the address of the gateway in use."""
        return self._gateways[self._turn % len(self._gateways)]
