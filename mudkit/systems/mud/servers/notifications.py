"""Notification server: knows the addresses of the devices in its range, and sends them changes.

Its rules (Mobius 5):

============  ========================================================================================
any message   dropped unless its sender may send it; a device's service only about its own endpoints
Hello         redirect, if another server is responsible, and report that one if it has not answered the
              device; without a token of the app, while a session was
              begun with one, also in an earlier generation of the server: dropped; of another start of the
              device, or from the address of another device: request one with a nonce; a late copy:
              ignored; a known session continues at the address of the hello, and waiting items are sent
              there; a new address is sent to the processors with its reads (DeviceMoved), until acknowledged;
              else a new session begins. Another device had this address: nothing more is sent to it
              there, and it is asked whether it is there
heartbeat     sign of life at the known address, without a token; of another session or address: request a
              hello
StreamItem    of a processor: into the queue of the device's session; of a device of another server, or of a
              processor that was replaced: not acknowledged, and answered with the assignments; a policy
              of the generator: kept in memory, and to every device whose app follows such policies, or
              to those that it is for; one for all devices replaces all earlier ones
StreamAck     remove from the queue
SendFailed    the device is not reached until its next hello
TimerFired    retransmit overdue items; give up devices without heartbeats; after a start, ask the
              generator for the policies until it answers
start         ask the devices that had a session for a hello, until they answer
Whereabouts   of a processor: ask a device that is missing in an old store, or not at this address
Occupied      of another server: a device there has this address, as above (see
              :mod:`~mudkit.systems.mud.servers.addresses`)
Assignments   of ranges to servers (see :mod:`~mudkit.systems.mud.servers.ranges`): forget the devices of
              ranges that this one has no more, and redirect those with a session. Of which a processor has no
              range any more: report the end of its generation to all devices
Probe         of the naming machine: answered
============  ========================================================================================

A device is given up, too, when an item has waited for too long, or too many wait while it is not reached. It
gets a new session at its next hello, and registers its continuous reads again. The same happens after a
restart of the server, whose state is soft. A device that is reached has the time of two heartbeats to
acknowledge: over a slow link its registrations are in front, and a new session would send them all again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from msgspec import UNSET, Struct

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import HelloVerdict, Peer
from mudkit.delivery.stream import Incoming, StreamAck, StreamItem
from mudkit.errors import AccessDenied
from mudkit.events import (
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.systems.mud.messages.naming import (
    NOTIFICATION_SERVER_FROM_NAMING,
    Assignments,
    AssignmentsRequest,
    Probe,
)
from mudkit.systems.mud.messages.notifications import (
    NOTIFICATION_SERVER_FROM_ANOTHER,
    NOTIFICATION_SERVER_FROM_CLOUD,
    NOTIFICATION_SERVER_FROM_SERVICE,
    DeviceMoved,
    Hello,
    Identify,
    NewGeneration,
    Notification,
    Occupied,
    PoliciesFollow,
    PoliciesRequest,
    Policy,
    PolicyUpdate,
    Redirect,
    ServerNotification,
    SessionGone,
    Tell,
    Vacated,
    Welcome,
    Whereabouts,
)
from mudkit.systems.mud.messages.parts import app_of, is_of_service, netid_of
from mudkit.systems.mud.servers.addresses import OCCUPIED, Addresses
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.stream_sender import AGAIN, StreamSender
from mudkit.systems.receiving import record_dropped
from mudkit.tokens import Authority

HEARTBEAT_US: Final = 20 * 60 * 1_000_000
"""Mobius 5: "e.g., once every 20 minutes"."""
_DEAD_US: Final = 2 * HEARTBEAT_US + 60_000_000
"""Two heartbeats are missing."""
_SWEEP: Final = "sweep"
_FOLLOW: Final = "follow"
_IDENTIFY: Final = "identify"
_MOVED: Final = "moved"
_FOLLOW_US: Final = 10_000_000
_STREAM: Final = re.compile(r" [0-9]{1,18}")
"""End of the name of a stream, after the address of its sender: a number that grows with each start."""
_MAX_STRANGERS: Final = 1024
"""Devices without a session whose questions are remembered."""


@dataclass
class _Session:
    """Session of a device.

    ``number`` orders sessions by their beginning; ``endpoint`` is that of the first hello. ``apps`` has, by
    app, the version that it has, or is being sent, of each kind of policy that it follows. ``proven`` are the
    apps of which a token was shown. ``processors`` are those with continuous reads of it.
    """

    number: int
    endpoint: str
    heard_us: int
    sender: StreamSender[Notification]
    peer: Peer
    apps: dict[str, dict[str, int]] = field(default_factory=dict)
    proven: set[str] = field(default_factory=set)
    processors: set[str] = field(default_factory=set)

    @property
    def netid(self) -> str:
        """Device of the session."""
        return netid_of(self.endpoint)


class _KnownApp(Struct, frozen=True, array_like=True):
    """Stored state of an app of a device with a session: its address, and whether it has shown a token."""

    address: str
    is_proven: bool


@dataclass
class _UnheardDevice:
    """Device that had a session before the start: its possible addresses, and the request for a hello.

    ``endpoint`` is that of one of its apps. ``proven`` are the apps of which a token was shown.
    """

    endpoint: str
    addresses: dict[str, None] = field(default_factory=dict)
    proven: set[str] = field(default_factory=set)
    peer: Peer = field(default_factory=Peer)

    def add(self, endpoint: str, address: str, *, is_proven: bool) -> None:
        """Add an app of the device, and an address at which it may be."""
        self.addresses[address] = None
        if is_proven:
            self.proven.add(app_of(endpoint))


class NotificationServer:
    """Machine of a notification server.

    ``authority`` issued the tokens. ``number`` is its index in ``servers``; ``naming`` is the naming machine.
    At most ``max_waiting`` notifications wait for a device that is not reached, each for at most
    ``max_wait_s``.
    """

    def __init__(
        self,
        ports: Ports,
        authority: Authority,
        number: int,
        servers: Sequence[str],
        processors: Sequence[str],
        generator: str,
        naming: str,
        max_waiting: int,
        max_wait_s: float,
    ) -> None:
        self._store, self._entropy = ports.store, ports.entropy
        self._authority = authority
        self._me, self._naming = servers[number], naming
        self._ranges = Ranges(ports, naming, servers, processors)
        self._generator, self._cloud = generator, {generator, *processors}
        self._max_waiting, self._max_wait_us = max_waiting, round(max_wait_s * 1e6)
        self._generation = 0
        self._is_started = False
        self._begun_us = 0
        """Time at which devices were added last to those that are asked for a hello."""
        self._sessions: dict[str, _Session] = {}
        """Sessions by name."""
        self._session_of: dict[str, str] = {}
        """Name of the session of a device."""
        self._others = [server for server in servers if server != self._me]
        self._addresses = Addresses(self._serving_others())
        self._heard: dict[str, None] = {}
        """Names of sessions in the order of their last hello."""
        self._incoming: dict[str, tuple[int, Incoming[ServerNotification]]] = {}
        """Number and state of the last stream, by the address of its sender."""
        self._processors: set[str] = set()
        """Addresses of the processors that have sent something."""
        self._policies: dict[tuple[str, str], dict[int, PolicyUpdate]] = {}
        """By app and kind, then by version."""
        self._known = {
            key.removeprefix("address "): known for key, known in self._store.items("address ", _KnownApp)
        }
        """Apps with a session, by endpoint, as stored."""
        self._unheard: dict[str, _UnheardDevice] = {}
        """Devices that have not said hello since the start, by name."""
        for endpoint, known in self._known.items():
            unheard = self._unheard.setdefault(netid_of(endpoint), _UnheardDevice(endpoint))
            unheard.add(endpoint, known.address, is_proven=known.is_proven)
        self._strangers: dict[str, Peer] = {}
        """Devices without a session that are asked for a hello, the newest last."""
        self._policy_request: RetransmitTimer[str] = RetransmitTimer(_FOLLOW, _FOLLOW_US, _FOLLOW_US, 0)
        self._hello_requests: RetransmitTimer[str] = RetransmitTimer(_IDENTIFY, _FOLLOW_US, HEARTBEAT_US, 0)
        self._moved: RetransmitTimer[tuple[str, str]] = RetransmitTimer(_MOVED, _FOLLOW_US, HEARTBEAT_US, 0)
        """Unacknowledged new addresses, by processor and name of the session."""
        self._count = 0
        self._is_sweeping = False
        """True while the timer for missing heartbeats is set."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not self._generation:  # at a message before the start, too; a restored store has an old one
            self._generation = max((self._store.get("life", int) or 0) + 1, now_us)
            self._store.put("life", self._generation)
            self._begun_us = now_us
        match event:
            case Received(source=source):
                receive = self._receive_from_service
                if source in self._cloud:
                    receive = self._receive_from_cloud
                elif source in self._others:
                    receive = self._receive_from_another
                elif source == self._naming:
                    receive = self._receive_from_naming
                effects = receive(now_us, event)
                return record_dropped(event) if effects is None else effects
            case LinkUp() if not self._is_started:
                self._is_started = True
                return [*self._request_policies(now_us), *self._identify(now_us, list(self._unheard))]
            case SendFailed(to=to, message=Identify(endpoint=endpoint)):
                netid = netid_of(endpoint)
                unheard = self._unheard.get(netid)
                if unheard is not None:
                    unheard.addresses.pop(to, None)
                    if not unheard.addresses:
                        del self._unheard[netid]
                        return self._hello_requests.settle(now_us, netid)  # it says hello when it has a link
            case SendFailed(to=to, message=StreamItem(stream=name)):
                session = self._sessions.get(name)
                if session is not None and session.sender.receiver_address == to:
                    session.sender.is_reached = False
            case TimerFired(name=name):
                if name == _FOLLOW:
                    return [*self._request_policies(now_us), *self._policy_request.restart(now_us)]
                if name == _IDENTIFY:
                    return self._identify_again(now_us)
                if name == _MOVED:
                    return self._resend_moves(now_us)
                if name == OCCUPIED:
                    silent = self._addresses.silent_servers(now_us)
                    suspected = [
                        effect for server in silent for effect in self._ranges.suspect(now_us, server)
                    ]
                    return [*self._addresses.announce_overdue(now_us), *suspected]
                return self._give_up_silent(now_us) if name == _SWEEP else self._retransmit(now_us, name)
        return ()

    def _receive_from_cloud(self, now_us: int, event: Received) -> Sequence[Effect] | None:
        """Handle a message of the generator or a processor; None: it is to be dropped."""
        source, is_generator = event.source, event.source == self._generator
        match NOTIFICATION_SERVER_FROM_CLOUD.decode(event.message):
            case StreamItem(stream=name, body=body) as item if _STREAM.fullmatch(name.removeprefix(source)):
                if isinstance(body, PolicyUpdate) is is_generator:
                    return self._receive_item(now_us, source, item)
            case Assignments() as assignments if self._ranges.fits(assignments):
                return self._receive_assignments(now_us, source, assignments)
            case PoliciesFollow() if is_generator:
                return self._policy_request.settle(now_us, _FOLLOW)
            case DeviceMoved(session=name, address=address) if not is_generator:
                session = self._sessions.get(name)
                if session is None or session.sender.receiver_address == address:
                    return self._moved.settle(now_us, (source, name))
                return (self._build_moved(session, source),)  # it acknowledges a late copy
        return None

    def _receive_from_naming(self, now_us: int, event: Received) -> Sequence[Effect] | None:
        """Handle a message of the naming machine; None: it is to be dropped."""
        match NOTIFICATION_SERVER_FROM_NAMING.decode(event.message):
            case Assignments() as assignments if self._ranges.fits(assignments):
                return self._receive_assignments(now_us, event.source, assignments)
            case (Probe() | AssignmentsRequest()) as question:
                return self._ranges.answer(event.source, question)
        return None

    def _receive_assignments(self, now_us: int, source: str, assignments: Assignments) -> Sequence[Effect]:
        """Follow assignments of a higher epoch; answer others."""
        former = self._ranges.serving_processors
        effects = self._follow_assignments(now_us, former) if self._ranges.take(assignments) else ()
        return [*effects, *self._ranges.answer(source, assignments)]

    def _receive_from_another(self, now_us: int, event: Received) -> Sequence[Effect] | None:
        """Handle a message of another notification server; None: it is to be dropped."""
        match NOTIFICATION_SERVER_FROM_ANOTHER.decode(event.message):
            case Occupied(address=address):
                former, effects = self._addresses.withdraw(now_us, event.source, address)
                return [*self._displace(former), *effects]
            case Vacated(address=address):
                return self._addresses.record_vacated(now_us, event.source, address)
        return None

    def _receive_from_service(self, now_us: int, event: Received) -> Sequence[Effect] | None:
        """Handle a message of a device's service; None: it is to be dropped."""
        if not is_of_service(event.source):
            return None
        message = NOTIFICATION_SERVER_FROM_SERVICE.decode(event.message)
        match message:
            case Hello(endpoint=endpoint) if netid_of(endpoint) == event.sender:
                effects = self._receive_hello(now_us, event.source, message)
                requested = () if message.epoch is UNSET else self._ranges.hear(message.epoch)
                return None if effects is None else [*effects, *requested]
            case StreamAck(stream=name, seq=seq):
                session = self._sessions.get(name)
                if session is None:
                    return ()  # it was given up
                if session.netid == event.sender:
                    is_at_address = session.sender.receiver_address == event.source
                    return session.sender.ack_up_to(now_us, seq) if is_at_address else ()
        return None

    def _request_policies(self, now_us: int) -> Sequence[Effect]:
        """Request all shipped policies from the generator, until it answers."""
        return Send(self._generator, PoliciesRequest()), *self._policy_request.start(now_us, _FOLLOW)

    def _identify(self, now_us: int, netids: Sequence[str]) -> Sequence[Effect]:
        """Ask devices for a hello, at each address where they may be, until they answer.

        No effect for those that have said hello since the start.
        """
        effects: list[Effect] = []
        for netid in netids:
            if netid in self._unheard:
                unheard = self._unheard[netid]
                question = self._build_question(unheard.endpoint, unheard.peer)
                effects += [Send(address, question) for address in unheard.addresses]
                effects += self._hello_requests.start(now_us, netid)
        return effects

    def _identify_again(self, now_us: int) -> Sequence[Effect]:
        """Ask again the devices that have not answered; two heartbeats after the last, forget all."""
        late = self._hello_requests.overdue(now_us)
        if now_us - self._begun_us < _DEAD_US:
            return [*self._identify(now_us, late), *self._hello_requests.restart(now_us)]
        for netid in self._unheard:
            self._forget_apps(netid)
        self._unheard.clear()
        return self._hello_requests.clear()

    def _build_moved(self, session: _Session, processor: str) -> Send:
        """Build the message by which a processor learns the address of a session's device."""
        sender = session.sender
        return Send(processor, DeviceMoved(sender.name, session.endpoint, sender.receiver_address))

    def _resend_moves(self, now_us: int) -> Sequence[Effect]:
        """Send new addresses again to processors that have not acknowledged them, and report these."""
        effects: list[Effect] = []
        for key in self._moved.overdue(now_us):
            processor, name = key
            if name in self._sessions:
                effects.append(self._build_moved(self._sessions[name], processor))
                effects += self._ranges.suspect(now_us, processor)
            else:
                effects += self._moved.settle(now_us, key)
        return [*effects, *self._moved.restart(now_us)]

    def _store_apps(self, session: _Session) -> None:
        """Store the session's address for each of its apps, and whether it has shown a token."""
        for app in sorted({*session.apps, *session.proven}):
            endpoint = f"{session.netid}/{app}"
            known = _KnownApp(session.sender.receiver_address, app in session.proven)
            if self._known.get(endpoint) != known:
                self._known[endpoint] = known
                self._store.put(f"address {endpoint}", known)

    def _forget_apps(self, netid: str) -> None:
        """Delete the addresses of the apps of a device that has no session."""
        for endpoint in [endpoint for endpoint in self._known if netid_of(endpoint) == netid]:
            del self._known[endpoint]
            self._store.delete(f"address {endpoint}")

    def _receive_hello(self, now_us: int, source: str, hello: Hello) -> Sequence[Effect] | None:
        """Handle the hello of a device by the rules of the module; None: it is to be dropped."""
        netid = netid_of(hello.endpoint)
        server = self._ranges.server_of(netid)
        if server != self._me:
            is_silent = hello.unanswered is not UNSET and server in hello.unanswered
            suspected = self._ranges.suspect(now_us, server) if is_silent else ()
            return [Send(source, self._build_redirect(server)), *suspected]
        peer = self._peer_of(netid)
        owner = self._sessions.get(self._session_of.get(netid, ""))
        nonce = None if hello.nonce is UNSET else hello.nonce
        heard = peer.judge_hello(
            hello.incarnation, hello.seq, nonce, is_elsewhere=self._is_address_of_another(source, owner)
        )
        if heard is HelloVerdict.STALE:
            return ()
        proven = self._proven_apps(hello)
        former = self._unheard.get(netid)
        if hello.tokens is UNSET:  # a heartbeat, which only repeats what the server knows
            if hello.is_new or hello.nonce is not UNSET:
                return None
            if owner is None or (owner.sender.name, owner.sender.receiver_address) != (hello.session, source):
                heard = HelloVerdict.STRANGER
        elif not _is_allowed(hello, proven, owner, former):
            return None
        if heard is HelloVerdict.STRANGER:
            if owner is None and former is None:
                self._remember_stranger(netid, peer)
            return (Send(source, self._build_question(hello.endpoint, peer)),)
        name = hello.session
        if name is None and peer.incarnation == hello.incarnation:  # its welcome is on its way
            name = self._session_of.get(netid)
        peer.accept_hello(hello.incarnation, hello.seq)
        self._unheard.pop(netid, None)
        self._strangers.pop(netid, None)
        effects = [*self._hello_requests.settle(now_us, netid)]
        session = None if name is None else self._sessions.get(name)
        is_known = session is not None and session.netid == netid
        if session is None or not is_known:
            effects += self._give_up_session(self._session_of.get(netid))
            session = self._begin_session(now_us, source, hello, peer)
        sender, name = session.sender, session.sender.name
        session.heard_us = now_us
        self._heard.pop(name, None)
        self._heard[name] = None
        effects.append(Send(source, Welcome(name, hello.incarnation, hello.seq)))
        has_moved = is_known and sender.receiver_address != source
        if not is_known or has_moved or not sender.is_reached:
            self._addresses.release(sender.receiver_address, name)
            former_name, announced = self._addresses.assign(now_us, source, name)
            effects += [*self._displace(former_name), *announced]
        self._add_apps(now_us, session, hello, proven)
        if not is_known or has_moved or hello.is_new or not sender.is_reached:
            effects += sender.resume(now_us, source)
        self._store_apps(session)
        for processor in sorted(session.processors) if has_moved else ():
            effects.append(self._build_moved(session, processor))
            effects += self._moved.start(now_us, (processor, name))
        if not self._is_sweeping:
            self._is_sweeping = True
            effects.append(SetTimer(_SWEEP, _DEAD_US))
        return effects

    def _is_address_of_another(self, address: str, owner: _Session | None) -> bool:
        """Return whether an address is another device's than that of a session (None: it has none)."""
        name = "" if owner is None else owner.sender.name
        if owner is not None and owner.sender.receiver_address == address:
            return not self._addresses.has_address(name, address)
        return not self._addresses.is_free(address, name)

    def _displace(self, name: str | None) -> Sequence[Effect]:
        """Stop sending to a session's device at an address that another one has; ask whether it is there.

        The other one's hello may have been sent before this one's.
        """
        session = None if name is None else self._sessions.get(name)
        if session is None:
            return ()
        session.sender.is_reached = False
        question = self._build_question(session.endpoint, session.peer)
        return (Send(session.sender.receiver_address, question),)

    def _build_question(self, endpoint: str, peer: Peer) -> Identify:
        """Build the request for a hello with a nonce."""
        return Identify(endpoint, peer.open_question(self._entropy), self._ranges.epoch or UNSET)

    def _build_redirect(self, server: str) -> Redirect:
        """Build the message that names the responsible server to a device."""
        return Redirect(server, self._ranges.epoch or UNSET)

    def _peer_of(self, netid: str) -> Peer:
        """Return what is known of a device's hellos."""
        if netid in self._unheard:
            return self._unheard[netid].peer
        name = self._session_of.get(netid)
        if name is not None:
            return self._sessions[name].peer
        return self._strangers.get(netid) or Peer()

    def _remember_stranger(self, netid: str, peer: Peer) -> None:
        """Keep the question to a device without a session; of too many the oldest is forgotten."""
        self._strangers[netid] = peer
        if len(self._strangers) > _MAX_STRANGERS:
            del self._strangers[next(iter(self._strangers))]

    def _proven_apps(self, hello: Hello) -> set[str]:
        """Return the apps of which a hello has a token for its device.

        An expired one proves the app, too: its reads are ended in this session.
        """
        tokens = {} if hello.tokens is UNSET else hello.tokens
        devices = None, netid_of(hello.endpoint)
        proven: set[str] = set()
        for app, token in tokens.items():
            try:
                claims = self._authority.decode(token)
            except AccessDenied:
                continue
            if claims.app == app and claims.device in devices:
                proven.add(app)
        return proven

    def _begin_session(self, now_us: int, source: str, hello: Hello, peer: Peer) -> _Session:
        """Begin a session of a device, without apps, and return it."""
        self._count += 1
        name = f"{self._me} {self._generation}.{self._count}"
        sender = StreamSender[Notification](name, name, source)
        session = _Session(self._count, hello.endpoint, now_us, sender, peer)
        self._sessions[name] = session
        self._session_of[session.netid] = name
        return session

    def _add_apps(self, now_us: int, session: _Session, hello: Hello, proven: set[str]) -> None:
        """Add the apps of a hello to its session; queue the policies that new ones lack."""
        session.proven |= proven
        if hello.tokens is UNSET:
            return
        for app, policies in hello.apps.items():
            if app in session.apps:
                continue
            session.apps[app] = dict(policies)
            for (policy_app, _), by_version in self._policies.items():
                for _, policy in sorted(by_version.items()) if policy_app == app else ():
                    if _lacks_policy(session, policy):
                        session.sender.add(now_us, _build_policy(session, policy))

    def _receive_item(
        self, now_us: int, source: str, item: StreamItem[ServerNotification]
    ) -> Sequence[Effect]:
        """Process an item of a processor's or the generator's stream, in order and once; acknowledge it."""
        body = item.body
        known: Sequence[Effect] = ()
        if source != self._generator and not self._ranges.is_serving(source):
            known = (Send(source, self._ranges.present),)  # it was replaced
            if not isinstance(body, NewGeneration):
                return known
        if isinstance(body, (Tell, Whereabouts)) and not self._is_responsible(netid_of(body.endpoint)):
            return (Send(source, self._ranges.present),)  # it is sent again, to the responsible server
        number = int(item.stream.rpartition(" ")[2])
        last_number, incoming = self._incoming.get(source, (0, None))
        if incoming is None or number > last_number:
            incoming = Incoming(item.first)
            self._incoming[source] = number, incoming
        elif number < last_number:
            return ()  # a late copy: that start of the sender has ended
        effects: list[Effect] = []
        for taken in incoming.take(item):
            effects += self._receive_body(now_us, source, taken)
        return [*effects, *known, Send(source, incoming.build_ack(item.stream))]

    def _receive_body(self, now_us: int, source: str, body: ServerNotification) -> Sequence[Effect]:
        """Handle a notification of a processor, or a policy: pass it on to the devices that it is for."""
        match body:
            case Tell():
                self._processors.add(source)
                session = self._sessions.get(body.session)
                is_own = session is not None and session.netid == netid_of(body.endpoint)
                if session is None or not is_own or app_of(body.endpoint) not in session.apps:
                    return (Send(source, SessionGone(body.session, body.endpoint)),)
                session.processors.add(source)
                return self._send_or_give_up(now_us, session, body)
            case PolicyUpdate():
                return self._ship_policy(now_us, body)
            case Whereabouts():
                self._processors.add(source)
                netid = netid_of(body.endpoint)
                if netid in self._session_of:
                    return ()
                self._begun_us = now_us
                unheard = self._unheard.setdefault(netid, _UnheardDevice(body.endpoint))
                unheard.add(body.endpoint, body.address, is_proven=body.is_proven)
                return self._identify(now_us, [netid])
            case NewGeneration():
                self._processors.add(source)
                effects: list[Effect] = []
                for session in list(self._sessions.values()):  # one may be given up
                    effects += self._send_or_give_up(now_us, session, body)
                return effects

    def _ship_policy(self, now_us: int, policy: PolicyUpdate) -> Sequence[Effect]:
        """Keep a policy, and send it to the devices that follow such policies and lack it.

        One for all devices replaces the older ones. No effect if it is known.
        """
        known = self._policies.setdefault((policy.app, policy.policy), {})
        version = policy.version
        if known.get(version) == policy:
            return ()
        if policy.to is None:
            for older in [other for other in known if other < version]:
                del known[older]
        known[version] = policy
        effects: list[Effect] = []
        for session in list(self._sessions.values()):
            if _lacks_policy(session, policy):
                effects += self._send_or_give_up(now_us, session, _build_policy(session, policy))
        return effects

    def _send_or_give_up(self, now_us: int, session: _Session, body: Notification) -> Sequence[Effect]:
        """Send an item to a device; end its session if too many items wait, or one for too long."""
        sender = session.sender
        effects = sender.send(now_us, body)
        is_full = len(sender) > self._max_waiting and not sender.is_reached
        return self._give_up_session(sender.name) if is_full or self._is_late(now_us, sender) else effects

    def _is_late(self, now_us: int, sender: StreamSender[Notification]) -> bool:
        """Return whether the oldest item of a session has waited for too long."""
        max_us = max(self._max_wait_us, _DEAD_US) if sender.is_reached else self._max_wait_us
        return sender.age_us(now_us) > max_us

    def _retransmit(self, now_us: int, name: str) -> Sequence[Effect]:
        """Retransmit a session's overdue items, or end it if one has waited for too long."""
        session = self._sessions.get(name.removeprefix(AGAIN))
        if session is None:
            return ()
        sender = session.sender
        return (
            self._give_up_session(sender.name)
            if self._is_late(now_us, sender)
            else sender.retransmit_overdue(now_us)
        )

    def _give_up_silent(self, now_us: int) -> Sequence[Effect]:
        """End the sessions of devices whose heartbeats are missing, and set the timer again."""
        by_silence = (self._sessions[name] for name in self._heard)
        dead = list(takewhile(lambda session: now_us - session.heard_us >= _DEAD_US, by_silence))
        effects: list[Effect] = []
        for session in sorted(dead, key=_number):
            effects += self._give_up_session(session.sender.name)
        self._is_sweeping = bool(self._sessions)
        if self._sessions:
            soonest = self._sessions[next(iter(self._heard))].heard_us + _DEAD_US - now_us
            effects.append(SetTimer(_SWEEP, max(soonest, 1)))
        return effects

    def _is_responsible(self, netid: str) -> bool:
        """Return whether a device is in a range of this server."""
        return self._ranges.server_of(netid) == self._me

    def _serving_others(self) -> list[str]:
        """Return the other servers that have ranges."""
        return [server for server in self._ranges.serving if server != self._me]

    def _follow_assignments(self, now_us: int, former: Collection[str]) -> Sequence[Effect]:
        """Forget the devices of ranges that this server has no more; redirect those with a session.

        Processors hear of it from the naming machine. They report the devices to the responsible servers.
        The other devices get the end of the generations of ``former`` processors that have no range any more.
        """
        effects = [*self._addresses.replace_others(now_us, self._serving_others())]
        for session in list(self._sessions.values()):
            if not self._is_responsible(session.netid):
                redirect = self._build_redirect(self._ranges.server_of(session.netid))
                effects.append(Send(session.sender.receiver_address, redirect))
                effects += self._end_session(session)
        for netid in [netid for netid in self._unheard if not self._is_responsible(netid)]:
            del self._unheard[netid]
            effects += self._hello_requests.settle(now_us, netid)
            self._forget_apps(netid)
        for processor in [one for one in former if not self._ranges.is_serving(one)]:
            effects += self._end_generation(now_us, processor)
        if not self._ranges.is_serving(self._me):  # what is early may be of devices that it has no more
            self._incoming = {
                source: stream for source, stream in self._incoming.items() if source == self._generator
            }
        return effects

    def _end_generation(self, now_us: int, processor: str) -> Sequence[Effect]:
        """Report to all devices that a processor was replaced: they register anew what it has served."""
        effects: list[Effect] = []
        for session in list(self._sessions.values()):  # one may be given up
            session.processors.discard(processor)
            effects += self._moved.settle(now_us, (processor, session.sender.name))
            ended = NewGeneration(processor, self._ranges.epoch)
            effects += self._send_or_give_up(now_us, session, ended)
        return effects

    def _give_up_session(self, name: str | None) -> Sequence[Effect]:
        """End a session by its name, and report this to the processors; no effect on one that has ended.

        Its items are lost. If the device has no later session, the addresses of its apps are deleted.
        ``name`` None: there is none.
        """
        session = None if name is None else self._sessions.get(name)
        if session is None:
            return ()
        notices = [
            Send(processor, SessionGone(session.sender.name)) for processor in sorted(self._processors)
        ]
        return [*self._end_session(session), *notices]

    def _end_session(self, session: _Session) -> Sequence[Effect]:
        """Forget a session."""
        name = session.sender.name
        del self._sessions[name]
        self._heard.pop(name)
        self._addresses.release(session.sender.receiver_address, name)
        if self._session_of.get(session.netid) == name:
            del self._session_of[session.netid]
            self._forget_apps(session.netid)
        return session.sender.close()


def _number(session: _Session) -> int:
    """Return the number of a session, by which sessions are ordered."""
    return session.number


def _is_allowed(
    hello: Hello, proven: set[str], owner: _Session | None, former: _UnheardDevice | None
) -> bool:
    """Return whether a hello may be that of the device that had a session.

    It must show a token of each app that it names and that has shown one before, and of one of these at
    least: no program without a token takes the session over.
    """
    before = {app for one in (owner, former) if one is not None for app in one.proven}
    return not before or (before & hello.apps.keys() <= proven and bool(before & proven))


def _lacks_policy(session: _Session, policy: PolicyUpdate) -> bool:
    """Return whether an app of a device follows such policies, and has only older ones of the slot."""
    version, policies = policy.version, session.apps.get(policy.app, {})
    is_for = policy.to is None or session.netid in policy.to
    return is_for and policy.kind in policies and policies.get(policy.policy, 0) < version


def _build_policy(session: _Session, policy: PolicyUpdate) -> Policy:
    """Build the message of a policy for an app, and record that the session has this version."""
    session.apps[policy.app][policy.policy] = policy.version
    return Policy(app=policy.app, policy=policy.policy, document=policy.document)
