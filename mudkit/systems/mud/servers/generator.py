"""Policy generator: learns policies from what clients report, and ships them to an app's clients (Mobius 6).

A learner decides what is learnt; without one it ships what it is given. Its rules:

===============  ======================================================================================
Call             check the policy, store it, and send it to every notification server, with the devices
                 that it is for, if any are named (Mobius 6: those near a place whose write rate changes);
                 the same policy may be shipped again to more devices; one for all devices replaces all
                 earlier ones. Of what was learnt elsewhere ship what differs from the policies in use
UsageReport      keep what is new of it, bounded in number and age; learn after ``relearn_h``
ChangeReport     keep what processors have counted, as usage; of what is lost, that the count begins again
processor start  it requests the watched queries (``WatchedQueriesRequest``): send it those, to count changes
LinkUp           send every stored policy to every server that has a range
PoliciesRequest  a server has started without policies: send it every stored one, once it has a range; and the
                 assignments, if they are not as installed
StreamAck        remove acknowledged items
TimerFired       retransmit overdue items; report a server that has not acknowledged one for too long.
                 Learn, and ship what differs from the policies in use; a learner that fails is an incident.
                 Send the queries that are read most to the processors
Assignments      send nothing more to a server without a range, and every stored policy to one that has its
                 first one
===============  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from mudkit.delivery.stream import StreamAck
from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Record,
    Send,
    SetTimer,
    TimerFired,
)
from mudkit.systems.mud.messages.naming import SERVER_FROM_NAMING, Assignments, AssignmentsRequest
from mudkit.systems.mud.messages.notifications import (
    GENERATOR_FROM_NOTIFICATION_SERVER,
    PoliciesFollow,
    PoliciesRequest,
    PolicyUpdate,
)
from mudkit.systems.mud.messages.servers import GENERATOR_FROM_GATEWAY, Routed
from mudkit.systems.mud.messages.usage import (
    GENERATOR_FROM_PROCESSOR,
    ChangeReport,
    UsageReport,
    WatchedQueries,
    WatchedQueriesRequest,
    WatchedQuery,
)
from mudkit.systems.mud.operations import ForgetUser, Ship, ShipLearnt
from mudkit.systems.mud.policies.artefact import OWN, Artefact
from mudkit.systems.mud.policies.learner import Learner
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.stream_sender import AGAIN, StreamSender
from mudkit.systems.mud.servers.usage_sample import UsageSample
from mudkit.systems.receiving import Accepts, record_dropped

_AGAIN_US: Final = 5_000_000
_LEARN: Final = "learn"
_MAX_WATCHED: Final = 64
"""Queries whose changes processors count, at most."""


class Learning(NamedTuple):
    """Learner, the time between two learnings and that for which usage is kept; start of virtual time, µs."""

    learner: Learner
    relearn_h: float
    usage_days: float
    start_us: int


class Generator:
    """Machine that learns and ships policies.

    ``servers`` are the notification servers, ``naming`` is the naming machine, whose assignments also have
    the ``processors``; ``learning`` None: it does not learn, and takes no reports.
    """

    def __init__(
        self,
        ports: Ports,
        servers: Sequence[str],
        processors: Sequence[str],
        naming: str,
        gateways: Sequence[str],
        learning: Learning | None,
    ) -> None:
        self._store = ports.store
        self._me = ports.address
        self._accepts: dict[
            str,
            Accepts[PoliciesRequest | StreamAck | Assignments]
            | Accepts[Assignments | AssignmentsRequest]
            | Accepts[Routed[UsageReport]]
            | Accepts[ChangeReport | WatchedQueriesRequest],
        ] = {
            naming: SERVER_FROM_NAMING,
            **dict.fromkeys(servers, GENERATOR_FROM_NOTIFICATION_SERVER),
            **dict.fromkeys(() if learning is None else gateways, GENERATOR_FROM_GATEWAY),
            **dict.fromkeys(() if learning is None else processors, GENERATOR_FROM_PROCESSOR),
        }
        self._processors = processors
        self._watched: list[WatchedQuery] = []
        """Queries whose changes the processors count."""
        self._learning = learning
        keep_us = 0 if learning is None else round(86_400e6 * learning.usage_days)
        self._sample = UsageSample(self._store, keep_us)
        self._is_timer_set = False
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
                again = self._set_timer() if len(self._sample) else ()
                new = [server for server in self._ranges.serving if server not in self._senders]
                return [*again, *(effect for server in new for effect in self._begin_stream(now_us, server))]
            case Call(op_id=op_id, operation=Ship() as operation):
                try:
                    sent = self._ship(now_us, operation)
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
                return [Complete(op_id), *sent]
            case Call(op_id=op_id, operation=ShipLearnt(policies=policies)):
                try:  # all are checked before one is shipped
                    learnt = [(app, Artefact.from_document(document)) for app, document in policies]
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
                sent = []
                shipped = self._ship_changes(now_us, learnt, sent)
                return [Complete(op_id, shipped), *sent]
            case Call(op_id=op_id, operation=ForgetUser(user=user)):
                return (Complete(op_id, self._sample.forget(user)),)
            case TimerFired(name=name) if name == _LEARN:
                self._is_timer_set = False
                return self._learn(now_us)
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
        message: PoliciesRequest
        | StreamAck
        | Assignments
        | AssignmentsRequest
        | Routed[UsageReport]
        | ChangeReport
        | WatchedQueriesRequest,
    ) -> Sequence[Effect] | None:
        """Handle a message of a server; None: it is to be dropped."""
        match message:
            case Routed(what=report, verified=verified):
                return [*self._sample.take(now_us, verified, report), *self._set_timer()]
            case ChangeReport():
                return [*self._sample.take_changes(now_us, source, message)]
            case WatchedQueriesRequest():
                return (Send(source, WatchedQueries(self._watched)),) if self._watched else ()
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

    def _set_timer(self) -> Sequence[Effect]:
        """Set the timer of the next learning, unless it is set."""
        if self._is_timer_set or self._learning is None:
            return ()
        self._is_timer_set = True
        return (SetTimer(_LEARN, round(3_600e6 * self._learning.relearn_h)),)

    def _learn(self, now_us: int) -> Sequence[Effect]:
        """Call the learner with the sample, and ship the policies that differ from what is in use."""
        learning = self._learning
        assert learning is not None
        effects: list[Effect] = [*self._watch_most_read()]
        try:
            # The seed is that of this generator and time, so that the same run learns the same.
            seed = crc32(f"{self._me} {now_us}".encode())
            learnt = learning.learner.learn(self._sample.table(learning.start_us), seed)
            self._ship_changes(now_us, learnt, effects)
        except Exception as error:  # whatever it raises: the cloud goes on with the policies that it has
            what = f"{type(error).__name__}: {error}"
            effects.append(Record("incidents", {"incident": "learner failed", "detail": brief(what, 1000)}))
        return effects

    def _watch_most_read(self) -> Sequence[Effect]:
        """Send the queries that are read most to the processors, so that they count their changes."""
        watched = self._sample.most_read(_MAX_WATCHED)
        if not watched and not self._watched:
            return ()
        self._watched = watched
        return [Send(processor, WatchedQueries(watched)) for processor in self._processors]

    def _ship_changes(
        self, now_us: int, learnt: Iterable[tuple[str, Artefact]], effects: list[Effect]
    ) -> int:
        """Ship the policies that differ from those in use; append the effects, and return how many."""
        shipped = 0
        for app, artefact in learnt:
            version = self._newest_version(app, artefact)
            if version:
                effects += self._ship(now_us, Ship(app, artefact.renewed(version).document, None))
                shipped += 1
        return shipped

    def _newest_version(self, app: str, artefact: Artefact) -> int:
        """Return the version that a learnt policy gets; 0: it decides as what is in use."""
        known = self._store.items(f"policy {app}\n{artefact.slot}\n", PolicyUpdate)
        newest = max((Artefact.from_document(policy.document) for _, policy in known), default=None,
                     key=lambda shipped: shipped.version)  # fmt: skip
        if newest is None:
            return 0 if artefact.root == OWN else 1
        return 0 if newest.decides_as(artefact) else newest.version + 1

    def _ship(self, now_us: int, operation: Ship) -> Sequence[Effect]:
        """Store a policy, and send it to all notification servers; raise ParameterError for an old one."""
        app, document, to = operation.app, operation.document, operation.to
        artefact = Artefact.from_document(document)
        prefix = f"policy {app}\n{artefact.slot}\n"
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
            policy=artefact.slot,
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
        count = self._store.get("count of streams", int) or 0
        if not self._senders:  # a restored store has an old count
            count = max(count, now_us)
        count += 1
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
