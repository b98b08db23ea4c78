"""Names of the transitions of MUD's machines, observed from their events and effects.

An observer is wrapped around each machine of a run. It knows nothing of the machine's state: it names a
transition by what the machine receives and what it answers. :mod:`~mudkit.verify.campaign.cells` lists all
names.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from mudkit.delivery.outbox import ItemId
from mudkit.errors import TokenExpired
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    Host,
    LinkDown,
    LinkUp,
    Machine,
    Make,
    Network,
    Notify,
    Ports,
    Received,
    Send,
    SendFailed,
    TimerFired,
    size_bytes,
)
from mudkit.systems.mud import Conflict
from mudkit.systems.mud.device.connection import MAX_BATCH_BYTES
from mudkit.systems.mud.device.service import SEND
from mudkit.systems.mud.servers import elections
from mudkit.systems.mud.servers.partition_moves import MOVE
from mudkit.systems.mud.servers.stream_sender import AGAIN
from mudkit.systems.mud.servers.table_followers import TABLES
from mudkit.verify.campaign.drafts import DRAFTS
from mudkit.verify.campaign.faults import ROGUE
from mudkit.verify.campaign.link_shares import LinkShares
from mudkit.wire import as_wire

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.places import Place


class _StreamObserver:
    """Receiving ends of streams, as far as their confirmations show them."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def receive(self, message: Mapping[str, Any], sent: Sequence[Any]) -> str:
        """Return whether a message was the next, a duplicate, behind a gap, or of another session."""
        name, number = message["stream"], message["number"]
        confirmations = [message for message in sent if message["kind"] == "confirmed"]
        if not confirmations:
            return "of another session"
        last = max(self._last.get(name, 0), message["first"] - 1)
        self._last[name] = confirmations[-1]["number"]
        if number == last + 1:
            return "next"
        return "seen before" if number <= last else "gap"


class _ClientObserver:
    """Observer of one life of a client."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        """Operation of each pending request."""
        self._parts: dict[str, set[Any]] = {}

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of the transitions that an event and its effects are.

        Messages are mappings; ``is_kept``: the store was written.
        """
        sent = _sent(effects)
        requests = _requests(sent)
        if type(event) is Call:
            yield from self._observe_call(event, effects, requests)
        elif type(event) is Received:
            yield from self._observe_message(event.message, effects, requests)
        elif type(event) is LinkUp:
            yield "connection: link up, asks sent" if requests else "connection: link up"
        elif type(event) is LinkDown:
            yield "connection: link down"
        elif type(event) is TimerFired:
            if event.name == "retry":
                if requests:
                    yield "connection: asked again"
            elif event.name == "due":
                yield "writing: due"
            elif event.name == "offline":
                yield "asking: network lost"
            else:
                yield f"watching: {event.name} timer"
        for message in requests:
            self._requests[message["id"]] = message["what"]["op"]
            self._parts[message["id"]] = set()

    def _observe_call(
        self, event: Call, effects: Sequence[Effect], requests: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Yield the names for a call of the application."""
        name, op_id, arguments = event.name, event.op_id, event.named_arguments
        if arguments.get("table") == DRAFTS:  # no other machine has a part in it
            return
        ops = {request["what"]["op"] for request in requests}
        answers = [effect for effect in effects if type(effect) is Complete and effect.op_id == op_id]
        if name == "read":
            kind = "aggregate" if arguments["aggregate"] is not None else arguments["type"]
            if answers:
                yield "asking: refused here" if answers[0].error is not None else f"asking: {kind}, here"
            elif "read" in ops:
                yield f"asking: {kind}, asked"
                if arguments["latest"]:
                    yield "asking: latest, asked"
            else:
                yield "asking: committed_wio, must wait" if kind == "committed_wio" else "asking: no link"
        elif name in ("write", "delete"):
            if answers:
                yield "writing: refused here"
            else:
                yield f"writing: {arguments['type']} {name}, {'sent' if 'write' in ops else 'waits'}"
        elif name == "register":
            if answers:
                yield "watching: refused here"
            else:
                yield "watching: register, asked" if "register" in ops else "watching: register, no session"
        elif name in ("update_data", "unregister", "listen"):
            yield f"watching: {name}"

    def _observe_message(
        self, message: Mapping[str, Any], effects: Sequence[Effect], requests: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Yield the names for a message from the service of the device."""
        kind = message["kind"]
        if kind == "forwarded":
            yield from self._observe_notification(message["body"], effects, requests)
        elif kind in ("session", "gateway lost", "shared", "evict", "delay over"):
            return  # the service has told it
        elif message["id"] not in self._requests:
            yield "connection: late answer"
        elif kind == "restarted":  # all requests are sent again
            self._requests.clear()
            self._parts.clear()
            yield "connection: back end restarted"
        elif kind in ("part", "registered") and "error" not in message:
            self._parts[message["id"]].add(message["place"])
            yield "connection: part"
        else:
            yield from self._observe_answer(message, effects, requests)

    def _observe_answer(
        self, message: Mapping[str, Any], effects: Sequence[Effect], requests: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Yield the names for the last answer to a request, which is then no longer pending."""
        op, parts = self._requests.pop(message["id"]), self._parts.pop(message["id"])
        done = [effect for effect in effects if type(effect) is Complete]
        is_repeated = any(request["what"]["op"] == op for request in requests)
        if op == "write":
            chained = sum(
                isinstance(answer.error, Conflict) and "based on" in answer.error.summary for answer in done
            )
            yield from ["writing: chained on one that failed"] * chained
            outcome = "committed" if "ver" in message else "conflict" if "conflict" in message else "refused"
            yield f"writing: {outcome}"
        elif op == "read":
            if "error" in message:
                yield "asking: refused"
            elif any(answer.result is not None for answer in done):
                yield "asking: answered"
            else:
                lost = any(place not in parts for place in message["places"])
                yield "asking: asked again, a part was lost" if lost else "asking: asked again, too old"
        elif op == "register":
            if "error" in message:
                yield "watching: refused"
            elif is_repeated:
                yield "watching: registered in part or in an older life"
            else:
                yield "watching: registered"
        elif op in ("update_data", "unregister"):
            yield "watching: refused" if "error" in message else f"watching: {op} done"
        else:
            yield "client: table refused" if "error" in message else f"client: {op} done"

    def _observe_notification(
        self, body: Mapping[str, Any], effects: Sequence[Effect], requests: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Yield the names for a notification from the cloud."""
        is_notified = any(type(effect) is Notify for effect in effects)
        if body["what"] == "life":
            yield "watching: life, registered again" if requests else "watching: life"
        elif body["what"] == "policy":
            yield "watching: policy"
        elif "change" in body:
            yield (
                f"watching: {body['change']['op']} passed on"
                if is_notified
                else "watching: known, unregistered or waiting"
            )
        elif "state" in body:
            yield f"watching: aggregates {'passed on' if is_notified else 'known or waiting'}"
        elif "synced" in body:
            yield "watching: synced"
        else:
            yield "watching: ended" if is_notified else "watching: known, unregistered or waiting"


class _ServiceObserver:
    """Observer of one start of a device's service."""

    def __init__(self) -> None:
        self._stream = _StreamObserver()
        self._session: str | None = None

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a device service's transitions; see :meth:`_ClientObserver.names`."""
        if type(event) is SendFailed:
            yield "connection: next gateway" if effects else "connection: failure of no matter"
        elif type(event) is TimerFired:
            if event.name != SEND:  # the writes of apps
                yield f"watching: {event.name} timer"
        elif type(event) is Received:
            kind = event.message["kind"]
            if kind == "stream":
                yield f"watching: stream, {self._stream.receive(event.message, _sent(effects))}"
            elif kind == "welcome" and not effects:
                yield "watching: welcome, late"
            elif kind == "welcome":
                session = event.message["session"]
                yield f"watching: welcome, {'same' if session == self._session else 'other'} session"
                self._session = session
            elif kind == "redirect":
                yield "watching: redirected"
            elif kind == "identify":
                yield "watching: asked for a hello"


def _sent(effects: Sequence[Effect]) -> list[Any]:
    """Return the messages among effects."""
    return [effect.message for effect in effects if type(effect) is Send]


def _requests(sent: Sequence[Any]) -> list[Any]:
    """Return the requests of a client among messages."""
    requests = [message for message in sent if message["kind"] == "ask"]
    return requests + [ask for message in sent if message["kind"] == "asks" for ask in message["asks"]]


def _parts(message: Any) -> list[Any]:
    """Return the parts of a message of a service: what each app has sent."""
    return list(message["parts"]) if message["kind"] == "asks of apps" else [message]


def _is_write(ask: Mapping[str, Any]) -> bool:
    """Return whether a request of a client is a write."""
    return bool(ask["what"]["op"] == "write")


def _kind_of(message: Mapping[str, Any]) -> str:
    """Return the kind of a message; of a request that a server passes on, its operation."""
    if message["kind"] != "routed":
        return str(message["kind"])
    op = str(message["what"]["op"])
    return "admin" if op in ("create", "alter", "drop") else op


class _GatewayObserver:
    """Observer of a gateway."""

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a gateway's transitions; see :meth:`_ClientObserver.names`."""
        sent = _sent(effects)
        if type(event) is TimerFired:
            yield from self._observe_passed(sent)
            if any(message["kind"] in ("has", "follow") for message in sent):
                yield "gateway: asks again for the tables"
        if type(event) is not Received:
            return
        kind = event.message["kind"]
        first = _kind_of(sent[0]) if sent else None
        if kind in ("ask", "asks", "asks of apps"):
            passed = list(self._observe_passed(sent))
            yield from passed or ["gateway: waits for the tables"]
        elif kind in ("log", "state"):
            yield "gateway: tables" if kind == "state" or event.message["entries"] else "gateway: confirmed"
            yield from self._observe_passed(sent)
        elif kind in ("part", "registered"):
            if first is None:
                yield f"gateway: {kind}, nobody asks"
            else:
                yield f"gateway: {kind}, the last" if sent[-1]["kind"] == "complete" else f"gateway: {kind}"
        elif kind == "assignments":
            yield "gateway: assignments"
        elif kind in ("outcome", "administered", "restarted"):
            yield f"gateway: {kind}" if sent else "gateway: outcome, nobody asks"

    def _observe_passed(self, sent: Sequence[Any]) -> Iterator[str]:
        """Yield the names for requests that are passed on, or answered at once."""
        for message in sent:
            kind = _kind_of(message)
            if kind == "refused":
                is_of_token = message["error"]["kind"] in ("TokenExpired", "AccessDenied")
                yield "gateway: token or access refused" if is_of_token else "gateway: table refused"
            elif kind == "write" and message["verified"]["refused"] is not None:
                yield "gateway: write with a refused token"
            elif kind == "admin":
                yield "gateway: ask, admin"
            elif kind in ("read", "write", "register", "update_data", "unregister"):
                yield f"gateway: {kind} passed on"
            elif kind == "restarted":
                yield "gateway: restarted"


class _FollowerObserver:
    """Observer of a follower of the log."""

    def __init__(self) -> None:
        self._lsn = -1

    def names(self, event: Event, effects: Sequence[Effect]) -> Iterator[str]:
        """Yield the names of the transitions that all followers of the log have in common."""
        if type(event) is TimerFired and event.name == "begin":
            yield "follower: asks again for the state"
        elif type(event) is Received and event.message["kind"] in ("state", "log"):
            positions = [message["lsn"] for message in _sent(effects) if message["kind"] == "has"]
            if not positions:
                yield "follower: log before the state"
                return
            before, self._lsn = self._lsn, positions[-1]
            if event.message["kind"] == "state":
                yield "follower: state" if before < 0 else "follower: state, late"
            elif self._lsn > before:
                yield "follower: log, next"
            else:
                yield "follower: log, seen before"


class _ReplicaObserver:
    """Observer of a replica."""

    def __init__(self) -> None:
        self._follower = _FollowerObserver()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a replica's transitions; see :meth:`_ClientObserver.names`."""
        yield from self._follower.names(event, effects)
        if type(event) is TimerFired and event.name == "apply":
            yield "replica: applied late"
        elif type(event) is Received and _kind_of(event.message) == "read":
            kind = _kind_of(_sent(effects)[0])
            yield "replica: read, answered" if kind == "part" else "replica: read, passed on to the back end"


class _ProcessorObserver:
    """Observer of a processor."""

    def __init__(self) -> None:
        self._follower = _FollowerObserver()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a processor's transitions; see :meth:`_ClientObserver.names`."""
        yield from self._follower.names(event, effects)
        sent = _sent(effects)
        if type(event) is LinkUp:
            yield "processor: begins a life"
        elif type(event) is TimerFired and event.name.startswith(AGAIN):
            yield "processor: tells again" if sent else "processor: nothing to tell again"
            if any(message["kind"] == "suspect" for message in sent):
                yield "processor: suspects a server"
        elif type(event) is Received:
            yield from self._observe_message(event, sent)
        bodies = [message["body"] for message in sent if message["kind"] == "stream"]
        if type(event) is Received:
            for body in bodies:
                if "change" in body:
                    when = "synced" if _kind_of(event.message) == "register" else "told"
                    yield f"processor: {body['change']['op']} {when}"
                elif "ended" in body:
                    why = "token" if "its token" in body["ended"] else "table"
                    yield f"processor: ended, {why}"

    def _observe_message(self, event: Received, sent: Sequence[Any]) -> Iterator[str]:
        """Yield the names for a message to a processor."""
        message = event.message
        kind, first = _kind_of(message), _kind_of(sent[0]) if sent else None
        if kind == "read":
            yield "processor: latest read" if message["route"]["latest"] else "processor: read"
        elif kind == "register":
            if first is None:
                yield "processor: register, not yet or not any more"
            elif first == "assignments":
                yield "processor: register, in the session of another server"
            else:
                yield "processor: register" if len(sent) > 1 else "processor: register, known"
        elif kind in ("write", "update_data", "unregister", "confirmed", "gone", "moved", "assignments"):
            yield f"processor: {kind}"


class _BackEndObserver:
    """Observer of the back end."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        """Followers that this life has heard of."""

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of the back end's transitions; see :meth:`_ClientObserver.names`."""
        sent = _sent(effects)
        if type(event) is TimerFired:
            if event.name == TABLES:
                yield "back end: waits for a gateway"
            else:
                yield "back end: log sent again" if sent else "back end: nothing to send again"
        elif type(event) is LinkUp:
            yield "back end: begins"
        elif type(event) is Received:
            message = event.message
            kind = _kind_of(message)
            if kind == "write":
                yield f"back end: {_outcome(message, sent, is_kept)}"
            elif kind == "admin" and not sent:
                yield "back end: admin, late copy"
            elif kind == "admin" and sent[0]["kind"] == "restarted":
                yield "back end: restarted"
            elif kind == "read":
                yield "back end: read"
            elif kind == "admin":
                if not is_kept:
                    yield "back end: admin, known already"
                else:
                    yield (
                        "back end: admin, refused"
                        if "error" in sent[0]
                        else f"back end: {message['what']['op']}"
                    )
            elif kind == "follow":
                yield "back end: follow"
            elif kind == "has":
                is_known = event.source in self._known
                yield "back end: has" if is_known else "back end: has, the first of a life"
            if kind in ("follow", "has"):
                self._known.add(event.source)


def _outcome(message: Any, sent: Sequence[Any], is_kept: bool) -> str:
    """Return the name of what a write came to at the back end; ``is_kept``: its store was written."""
    if not sent or (not is_kept and sent[0].get("error", {}).get("kind") == "MudkitError"):
        return "write, late copy"
    outcome = sent[0]
    if "error" in outcome and outcome["error"] == message["verified"]["refused"]:
        return "write, token refused"
    if not is_kept:
        return "write, known already"
    if "ver" in outcome:
        write = message["what"]
        return f"{write['type']} {'delete' if write['data'] is None else 'write'} committed"
    if "conflict" in outcome:
        return "conflict, hidden or none" if outcome["conflict"] is None else "conflict"
    return "write, refused"


class _NotificationServerObserver:
    """Observer of a notification server."""

    def __init__(self) -> None:
        self._stream = _StreamObserver()
        self._sessions: set[str] = set()

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a notification server's transitions; see :meth:`_ClientObserver.names`."""
        sent = _sent(effects)
        kinds = [message["kind"] for message in sent]
        if type(event) is TimerFired:
            if event.name.startswith(AGAIN):
                if "gone" in kinds:
                    yield "notifications: given up, waited too long"
                yield "notifications: sent again" if "stream" in kinds else "notifications: nobody to send to"
            elif event.name == "identify":
                yield "notifications: asked for a hello again"
            elif event.name == "sweep":
                yield "notifications: given up, not heard of" if sent else "notifications: all were heard of"
        elif type(event) is SendFailed:
            yield "notifications: not delivered"
        elif type(event) is LinkUp:
            yield "notifications: begins a life"
        elif type(event) is Received:
            yield from self._observe_message(event.message, sent, kinds)
        self._sessions -= {message["session"] for message in sent if message["kind"] == "gone"}
        self._sessions |= {message["session"] for message in sent if message["kind"] == "welcome"}

    def _observe_message(self, message: Any, sent: Sequence[Any], kinds: Sequence[str]) -> Iterator[str]:
        """Yield the names for a message to a notification server."""
        if message["kind"] == "hello":
            name = "hello" if message["is_new"] else "heartbeat"
            if "redirect" in kinds:  # a hello or a heartbeat
                yield "notifications: hello redirected"
                if "suspect" in kinds:
                    yield "notifications: suspects a server"
                return
            if "welcome" not in kinds:
                yield f"notifications: hello, {'of another start' if 'identify' in kinds else 'late'}"
                return
            welcome = next(reply for reply in sent if reply["kind"] == "welcome")
            is_known = welcome["session"] == message["session"]
            yield f"notifications: {name}, known" if is_known else "notifications: new session"
            if "stream" in kinds:
                yield "notifications: hello, what waited is sent"
            if "identify" in kinds:
                yield "notifications: another device loses the address"
        elif message["kind"] == "occupied":
            is_lost = "identify" in kinds
            yield f"notifications: {'another device loses the' if is_lost else 'announced'} address"
        elif message["kind"] in ("confirmed", "vacated", "assignments", "probe"):
            yield f"notifications: {message['kind']}"
        elif message["kind"] == "stream" and "assignments" in kinds:
            yield "notifications: stream, of a device of another server"
        elif message["kind"] == "stream":
            row, body = self._stream.receive(message, sent), message["body"]
            yield f"notifications: stream, {row}"
            if row != "next":
                return
            if body["what"] == "life":
                yield "notifications: life"
            elif body["what"] == "policy":
                yield "notifications: policy, sent" if "stream" in kinds else "notifications: policy, kept"
            elif body["what"] == "whereabouts":
                pass  # sent only to a server that was restored
            elif "gone" in kinds:
                is_known = body["session"] in self._sessions
                yield "notifications: tell, given up" if is_known else "notifications: tell, stranger"
            else:
                yield "notifications: tell, sent" if "stream" in kinds else "notifications: tell, kept"


class _GeneratorObserver:
    """Observer of the policy generator."""

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a policy generator's transitions; see :meth:`_ClientObserver.names`."""
        if type(event) is LinkUp:
            yield "generator: begins a life"
        elif type(event) is Call:
            is_refused = any(type(effect) is Complete and effect.error is not None for effect in effects)
            yield "generator: ship, refused" if is_refused else "generator: ship"
        elif type(event) is TimerFired and event.name.startswith(AGAIN):
            yield "generator: tells again" if _sent(effects) else "generator: nothing to tell again"
        elif type(event) is Received and event.message["kind"] != "assignments?":
            yield f"generator: {event.message['kind']}"


_OF_ELECTIONS: Final = frozenset(
    {"admit", "mastership", "mastership taken", "mastership?", "store alive", "suspect store"}
)
"""Kinds of messages to the naming machine that are about stores."""


class _NamingObserver:
    """Observer of the naming machine, but for its elections; see :mod:`~mudkit.verify.campaign.stores`."""

    def names(self, event: Event, effects: Sequence[Effect], is_kept: bool) -> Iterator[str]:
        """Yield the names of a naming machine's transitions; see :meth:`_ClientObserver.names`."""
        kinds = [message["kind"] for message in _sent(effects)]
        if type(event) is LinkUp:
            is_told = "assignments" in kinds
            yield "naming: begins, and tells its assignments" if is_told else "naming: begins"
        elif type(event) is Call:
            yield "naming: move"
        elif type(event) is TimerFired and event.name in (elections.PROBE, elections.TELL):
            return
        elif type(event) is TimerFired and is_kept:
            yield "naming: replaces a server"
        elif type(event) is TimerFired and event.name == MOVE:
            yield "naming: asks again for a move"
        elif type(event) is TimerFired:
            yield "naming: probes again" if "probe" in kinds else "naming: tells again"
        elif type(event) is Received:
            kind = event.message["kind"]
            if kind in _OF_ELECTIONS:
                return
            if kind == "assignments":
                yield "naming: learns later assignments" if is_kept else "naming: assignments, known"
            elif kind != "assignments?":
                yield f"naming: {kind}"
                if is_kept:
                    yield "naming: moves a partition"
            if "assignments?" in kinds:
                yield "naming: hears of later assignments"


_Item = TypeVar("_Item")

Cells = Counter[tuple[str, tuple[str, ...]]]
"""Number of occurrences of each transition, by the faults in effect."""
Requests = Counter[tuple[str, str]]
"""Number of transmissions of each request of a client, by its operation and its identity."""
Registrations = Counter[tuple[str, str]]
"""Number of registrations that a client has sent of each continuous read, by its session and its handle."""


class WriteAnswer(NamedTuple):
    """Answer to a write that a device has handled: its time, and whether the write was refused."""

    at_us: int
    is_refusal: bool


_OBSERVERS: Final[Mapping[str, Callable[[], Any]]] = {
    "ClientMachine": _ClientObserver,
    "DeviceService": _ServiceObserver,
    "Gateway": _GatewayObserver,
    "Processor": _ProcessorObserver,
    "BackEnd": _BackEndObserver,
    "Replica": _ReplicaObserver,
    "NotificationServer": _NotificationServerObserver,
    "Generator": _GeneratorObserver,
    "Naming": _NamingObserver,
}


class _ObservedMachine:
    """Machine with an observer."""

    def __init__(self, machine: Machine, store: Any, observer: Any, host: ObservedHost) -> None:
        self._machine = machine
        self._store = store
        self._observer = observer
        self._host = host
        self._writes: dict[str, ItemId] = {}
        """Write of each request of this life that has no answer."""
        self._link_up_us = -1
        self._over_link: list[Any] = []
        """Messages with writes that a service has sent since then, in the same moment."""
        self._shares = LinkShares(host.name, host.share_problems, host.share_counts)

    @property
    def observed(self) -> Any:
        """The machine itself."""
        return self._machine

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Return the machine's effects, and record their transitions, and writes sent and answered."""
        effects = self._machine.handle(now_us, event)
        is_kept = self._store.is_dirty
        if isinstance(event, Received) and event.source.endswith(f"/{ROGUE}"):
            return effects
        observed = list(map(_as_wire, effects))
        observed_event = _as_wire(event)
        for name in self._observer.names(observed_event, observed, is_kept):
            self._host.record(name)
        if isinstance(self._observer, _ServiceObserver):  # what it forwards was recorded at the app
            self._record_apps_apart(now_us, event, _sent(observed))
            self._record_writes_sent(_sent(observed))
            self._shares.observe(now_us, observed_event, _sent(observed))
            return effects
        if self._writes and isinstance(observed_event, Received):
            self._record_answer(now_us, observed_event.message)
        sent = _sent(observed)
        if isinstance(event, LinkUp | TimerFired):  # writes have waited for it together
            self._record_sent_apart(sent)
        for ask in _requests(sent):
            what = ask["what"]
            self._host.requests[what["op"], ask["id"]] += 1
            if what["op"] == "write":
                self._writes[ask["id"]] = ItemId(what["incarnation"], what["number"])
            if what["op"] == "register":
                self._host.registrations[what["session"], what["handle"]] += 1
        return effects

    def _record_sent_apart(self, sent: Sequence[Any]) -> None:
        """Record writes that were sent in two messages, and would fit into one."""
        with_writes = [message for message in sent if any(map(_is_write, _requests([message])))]
        for first, then in itertools.pairwise(with_writes):
            if size_bytes(first) + size_bytes(then) <= MAX_BATCH_BYTES:
                self._host.sent_apart.append(f"{self._host.name} has sent {first} and then {then}")

    def _record_apps_apart(self, now_us: int, event: Event, sent: Sequence[Any]) -> None:
        """Record writes of apps that were sent in two messages over a new link, and would fit into one."""
        if isinstance(event, LinkUp):
            self._link_up_us, self._over_link = now_us, []
        if now_us != self._link_up_us:
            return
        before = len(self._over_link)
        self._over_link += [message for message in sent if any(map(_is_write, _requests(_parts(message))))]
        for first, then in itertools.pairwise(self._over_link[max(0, before - 1) :]):
            apps = {part["client"] for message in (first, then) for part in _parts(message)}
            if len(apps) > 1 and size_bytes(first) + size_bytes(then) <= MAX_BATCH_BYTES:
                words = f"the service of {self._host.name} has sent {first} and then {then}"
                self._host.sent_apart.append(words)
        if event == TimerFired(SEND):  # later calls of the moment have not waited
            self._link_up_us = -1

    def _record_writes_sent(self, sent: Sequence[Any]) -> None:
        """Record which writes a service has sent together, by the number of the message."""
        for message in sent:
            parts = [part for part in _parts(message) if any(map(_is_write, _requests([part])))]
            self._host.messages_with_writes += bool(parts)
            for part in parts:
                for ask in filter(_is_write, _requests([part])):
                    write = part["client"], ask["what"]["name"], ask["what"]["key"]
                    self._host.writes_sent.setdefault(write, self._host.messages_with_writes)

    def _record_answer(self, now_us: int, message: Mapping[str, Any]) -> None:
        """Record the answer to a write; after an expired token the write still waits."""
        error = message.get("error") or {}
        if message["kind"] not in ("outcome", "refused") or error.get("kind") == TokenExpired.__name__:
            return
        write = self._writes.pop(message["id"], None)
        if write is not None:
            answer = WriteAnswer(now_us, "ver" not in message)
            self._host.write_answers.setdefault(write, []).append(answer)


def _as_wire(item: _Item) -> _Item:
    """Return an event or effect with its message as a mapping."""
    if isinstance(item, Received | Send | SendFailed):
        return replace(item, message=as_wire(item.message))
    return item


class ObservedHost:
    """Host whose machines are observed; ``record`` is called with the name of each transition."""

    def __init__(self, host: Host, record: Callable[[str], None]) -> None:
        self._host = host
        self.record = record
        self.requests: Requests = Counter()
        """Requests of its clients."""
        self.registrations: Registrations = Counter()
        """Registrations of its clients."""
        self.write_answers: dict[ItemId, list[WriteAnswer]] = {}
        """Answers to the writes of its clients, in order; a restored device gets another one."""
        self.sent_apart: list[str] = []
        """Writes that its clients have sent in more messages than they need after a wait, in words."""
        self.share_problems: list[str] = []
        """Messages that waited longer or left sooner than the shares of the link admit, in words."""
        self.share_counts: Counter[str] = Counter()
        """Number of messages whose place on the link was judged."""
        self.messages_with_writes = 0
        """Number of messages with writes that its service has sent."""
        self.writes_sent: dict[tuple[str, str, str], int] = {}
        """Number of the first message of its service with each write, by client, table and key."""
        self.name = host.name

    def install(self, system: str, make: Make, **named: Any) -> Any:
        """Install a machine, observed if there is an observer for its class.

        See :class:`mudkit.events.Host`.
        """

        def make_observed(ports: Ports) -> Machine:
            machine = make(ports)
            observer = _OBSERVERS.get(type(machine).__name__)
            if observer is None:
                return machine
            return _ObservedMachine(machine, ports.store, observer(), self)

        return self._host.install(system, make_observed, **named)


class ObservedNetwork:
    """Network whose servers are :class:`ObservedHost`."""

    def __init__(self, network: Network, record: Callable[[str], None]) -> None:
        self._network = network
        self._record = record
        self.authority = network.authority

    @property
    def devices(self) -> Mapping[str, Host]:
        """Devices by name."""
        return self._network.devices

    @property
    def start_us(self) -> int:
        """Start of virtual time, in µs since 1970."""
        return self._network.start_us

    @property
    def problems(self) -> pd.DataFrame:
        """Failures so far: ``device, ts, detail, system``."""
        return self._network.problems

    def server(self, name: str, *, at: Place | None = None) -> ObservedHost:
        """Add a server whose machines are observed; see :class:`mudkit.events.Network`."""
        return ObservedHost(self._network.server(name, at=at), self._record)

    def access_point(self, name: str, at: Place, range_m: float) -> object:
        """Add an access point, unobserved; see :class:`mudkit.events.Network`."""
        return self._network.access_point(name, at, range_m)
