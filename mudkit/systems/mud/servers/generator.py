"""Policy generator: ships policies to an app's clients (Mobius 6).

Learning takes place elsewhere. Its rules:

===============  ======================================================================================
Call             check the policy, store it, and send it to every notification server, with the devices
                 that it is for, if any are named (Mobius 6: those near a place whose write rate changes);
                 the same policy may be shipped again to more devices; one for all devices replaces all
                 earlier ones
LinkUp           send every stored policy to every server that has a range
PoliciesRequest  a server has started without policies: send it every stored one, once it has a range; and the
                 assignments, if they are not as installed
StreamAck        remove acknowledged items
TimerFired       retransmit overdue items; report a server that has not acknowledged one for too long
Assignments      send nothing more to a server without a range, and every stored policy to one that has its
                 first one
===============  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.stream import StreamAck
from mudkit.errors import MudkitError, ParameterError
from mudkit.events import Call, Complete, Effect, Event, LinkUp, Ports, Received, Send, TimerFired
from mudkit.systems.mud.messages.naming import SERVER_FROM_NAMING, Assignments, AssignmentsRequest
from mudkit.systems.mud.messages.notifications import (
    GENERATOR_FROM_NOTIFICATION_SERVER,
    PoliciesFollow,
    PoliciesRequest,
    PolicyUpdate,
)
from mudkit.systems.mud.operations import Ship
from mudkit.systems.mud.policies.artefact import Artefact
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.stream_sender import AGAIN, StreamSender
from mudkit.systems.receiving import Accepts, record_dropped

_AGAIN_US: Final = 5_000_000


class Generator:
    """Machine that ships policies.

    ``servers`` are the notification servers, ``naming`` is the naming machine, whose assignments also have
    the ``processors``.
    """

    def __init__(self, ports: Ports, servers: Sequence[str], processors: Sequence[str], naming: str) -> None:
        self._store = ports.store
        self._me = ports.address
        self._accepts: dict[
            str,
            Accepts[PoliciesRequest | StreamAck | Assignments] | Accepts[Assignments | AssignmentsRequest],
        ] = {naming: SERVER_FROM_NAMING, **dict.fromkeys(servers, GENERATOR_FROM_NOTIFICATION_SERVER)}
        self._ranges = Ranges(ports, naming, servers, processors)
        self._senders: dict[str, StreamSender[PolicyUpdate]] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                accepts = self._accepts.get(source)
                message = None if accepts is None else accepts.decode(event.message)
                effects = None if message is None else self._receive(now_us, source, message)
                return record_dropped(event) if effects is None else effects
            case LinkUp():
                if not self._senders:  # a restored store has an old count
                    count = self._store.get("count of streams", int) or 0
                    self._store.put("count of streams", max(count, now_us))
                new = [server for server in self._ranges.serving if server not in self._senders]
                return [effect for server in new for effect in self._begin_stream(now_us, server)]
            case Call(op_id=op_id, operation=Ship() as operation):
                try:
                    sent = self._ship(now_us, operation)
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
                return [Complete(op_id), *sent]
            case TimerFired(name=name):
                server = name.removeprefix(AGAIN)
                sender = self._senders[server]
                suspected = self._ranges.suspect_if_silent(now_us, server, sender.age_us(now_us))
                return [*sender.retransmit_overdue(now_us), *suspected]
        return ()

    def _receive(
        self,
        now_us: int,
        source: str,
        message: PoliciesRequest | StreamAck | Assignments | AssignmentsRequest,
    ) -> Sequence[Effect] | None:
        """Handle a message of a notification server or the naming machine; None: it is to be dropped."""
        match message:
            case PoliciesRequest():
                known = (Send(source, self._ranges.present),) if self._ranges.epoch else ()
                return [*self._begin_stream(now_us, source), *known]
            case StreamAck(stream=stream, seq=seq):
                sender = self._senders.get(source)
                is_current = sender is not None and sender.name == stream
                return sender.ack_up_to(now_us, seq) if sender is not None and is_current else ()
            case Assignments() if not self._ranges.fits(message):
                return None
            case Assignments() if self._ranges.take(message):
                return [*self._follow_assignments(now_us), *self._ranges.answer(source, message)]
        return self._ranges.answer(source, message)

    def _follow_assignments(self, now_us: int) -> Sequence[Effect]:
        """Send the policies to the servers that have ranges now, and to no others."""
        effects: list[Effect] = []
        for server in [server for server in self._senders if not self._ranges.is_serving(server)]:
            effects += self._senders.pop(server).close()
        for server in self._ranges.serving:
            if server not in self._senders:
                effects += self._begin_stream(now_us, server)
        return effects

    def _ship(self, now_us: int, operation: Ship) -> Sequence[Effect]:
        """Store a policy, and send it to all notification servers; raise ParameterError for an old one."""
        app, document, to = operation.app, operation.document, operation.to
        artefact = Artefact.from_document(document)
        prefix = f"policy {app}\n{artefact.kind}\n"
        known = dict(self._store.items(prefix, PolicyUpdate))
        newest = max(known.values(), key=lambda policy: policy.version, default=None)
        if newest is not None and artefact.version <= newest.version:
            if to is None or newest.to is None or newest.document != dict(document):
                raise ParameterError(
                    "A policy of this version was shipped already.",
                    where="version",
                    found=str(artefact.version),
                    expected=f"more than {newest.version}",
                    remedy="give it a higher version with Artefact.from_document(document).renewed(version)",
                )
            to = [*to, *newest.to]
        policy = PolicyUpdate(
            app=app,
            policy=artefact.kind,
            document=dict(document),
            to=None if to is None else sorted(set(to)),
        )
        if to is None:
            for key in known:
                self._store.delete(key)
        self._store.put(f"{prefix}{artefact.version:012d}", policy)
        return [effect for sender in self._senders.values() for effect in sender.send(now_us, policy)]

    def _begin_stream(self, now_us: int, server: str) -> Sequence[Effect]:
        """Begin a new stream to a notification server, with all stored policies; not without a range."""
        if not self._ranges.is_serving(server):
            return (Send(server, PoliciesFollow()),)
        count = (self._store.get("count of streams", int) or 0) + 1
        self._store.put("count of streams", count)
        former = self._senders.get(server)
        sender = StreamSender[PolicyUpdate](f"{self._me} {count}", server, server, _AGAIN_US)
        self._senders[server] = sender
        effects: list[Effect] = [
            *(former.close() if former is not None else ()),
            Send(server, PoliciesFollow()),
        ]
        for _, policy in self._store.items("policy ", PolicyUpdate):
            effects += sender.send(now_us, policy)
        return effects
