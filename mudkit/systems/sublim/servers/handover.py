"""Handover of a subscriber between access points: exactly one of them has its state, despite crashes.

Each attachment of a subscriber has a number, the epoch, which its client increments when it changes its
access point. Messages, and what an access point does with them:

=============  =======================================================================================
Attach         of another store than the last, or after a start: Identify, unless it answers one. Not
               newer than the last one: Behind. The agent is here, and not newer: serve. Its state is known
               to have moved: ask that access point. Else ask the one that, according to the client, has
               served it. Of an epoch that another store had reached: Behind. From the address of
               another subscriber: send nothing more to that one there, and ask it whether it is there. The
               publish server has the same done at another access point
Identify       (client) attach with this nonce; a late copy cannot
Behind         (client) continue at the epoch after this one
Left           the agent is here, of another store, or older than the one that serves now: delete, if
               it answers Identify
StateRequest   the agent is here, and older than the request: send its state; record that it has moved.
               Moved: Moved, unless it is in transfer to there. Unknown, and never served: send an initial
               state. Unknown, but served before: its state is lost; Missing. Newer than the request: Stale
StateTransfer  newer than anything known about this subscriber: install. In any case acknowledge
Moved          ask the access point that it names; if that is this one and the state is gone, start with an
               initial state
Missing        start with an initial state, and the messages published since the other one's start
Stale          the client has moved on: stop asking
=============  =======================================================================================

The epochs of a wiped device start at 1 again. After Behind it continues at the last epoch, and the access
point that has the state serves it; if none has, it starts anew. State of the former store that remains
elsewhere is deleted when the two meet.

A copy of a message may arrive hours later. Attachments are numbered by their reports, and the messages of a
client that had to identify itself name the session, which is the nonce.

A store may have been restored from a backup. After a start, an agent serves only once its client has attached
again with a nonce of this start, and said which deliveries it has
(:meth:`~mudkit.systems.sublim.servers.agent.Agent.confirm`); if the client has been served elsewhere since
the backup, that access point is asked.

Everything is stored before a message is sent, so a handover resumes after a crash. State at an access point
that is down stays there until it restarts; its subscribers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Peer, rollback_incident
from mudkit.events import Effect, Ports, Send, size_bytes
from mudkit.systems.sublim.messages import (
    Attach,
    Attached,
    Automatic,
    Behind,
    Identify,
    Left,
    Missing,
    Moved,
    Report,
    SetPolicy,
    Stale,
    StateRequest,
    StateTransfer,
    StateTransferAck,
    Whereabouts,
)
from mudkit.systems.sublim.servers.agent import Agent, build_initial_state

HANDOVER: Final = "hand over"
"""Timer of requests and state transfers."""
WANT: Final = "want "
STARTED: Final = "started"
"""Key of the mark of a store that had a start before."""
LEAVE: Final = "leave "
_MOVED: Final = "gone "
_TIMEOUT_US: Final = 3_000_000
_MAX_UNHEARD: Final = 50
"""Messages that may be published between a start and the first message of the publish server."""

HandoverMessage: TypeAlias = (
    Attach | Left | StateRequest | StateTransfer | StateTransferAck | Moved | Stale | Missing
)


class _WantedState(Struct, frozen=True):
    """Request to the access point ``origin`` for the state of a subscriber; stored until answered.

    ``redirected_by`` is the access point that was asked before and named ``origin``; None: the client did.
    """

    epoch: int
    origin: str
    address: str
    fresh: bool
    report: int
    automatic: Automatic
    store_id: str
    redirected_by: str | None = field(name="before", default=None)
    seen: int | UnsetType = UNSET
    policy: int | UnsetType = UNSET


class _LeavingState(Struct, frozen=True):
    """State of a subscriber in transfer to another access point; stored until acknowledged."""

    to: str
    epoch: int
    state: StateTransfer


class _MovedTo(Struct, frozen=True):
    """Access point to which the state of a subscriber was sent: later requests are redirected there."""

    to: str
    epoch: int
    store_id: str


class Handover:
    """Handover at one access point, which adds agents to ``agents`` by ``load_agent`` and removes them.

    ``log`` is the position in the publish server's log, where unknown subscribers start; ``start_us`` is the
    time of this start, ``start_lsn`` the last message published before.
    """

    def __init__(
        self, ports: Ports, agents: dict[str, Agent], load_agent: Callable[[str], Agent], log: Follower
    ) -> None:
        self._log = log
        self._store = ports.store
        self._me = ports.address
        self._agents = agents
        self._load_agent = load_agent
        self.start_us = self.start_lsn = 0
        self._entropy = ports.entropy
        self._is_restarted = ports.store.get(STARTED, bool) or False
        self._peers: dict[str, Peer] = {}
        """Incarnation and report of the last attachment of each client since the start."""
        self._sessions: dict[str, str] = {}
        """Nonces with which clients have identified themselves."""
        self._in_flight: RetransmitTimer[str] = RetransmitTimer(HANDOVER, _TIMEOUT_US)
        """Requests and transfers by their store keys."""

    def handle(self, now_us: int, source: str, message: HandoverMessage) -> Sequence[Effect]:
        """Handle a message of a client or another access point: the table above has the rules."""
        name = message.subscriber
        match message:
            case Attach():
                return self._receive_attach(now_us, source, message)
            case Left(store_id=store_id, epoch=epoch):
                agent = self._agents.get(name)
                if agent is None or (agent.record.store_id == store_id and agent.record.epoch >= epoch):
                    return ()
                if not self.is_answer_of_client(message):
                    return self.send_identify(source, message)
                self._remove_agent(agent)
                return ()
            case StateRequest():
                return self._receive_state_request(now_us, source, message)
            case StateTransfer():
                return self._receive_state(now_us, source, message)
            case StateTransferAck(epoch=epoch):
                leaving = self._store.get(LEAVE + name, _LeavingState)
                if leaving is None or leaving.epoch != epoch:
                    return ()
                self._store.delete(LEAVE + name)
                return self._in_flight.settle(now_us, LEAVE + name)
            case Moved(epoch=epoch, to=to):
                want = self._find_wanted(name)
                if want is None or want.epoch != epoch:
                    return ()
                if to == self._me:
                    return self._serve_moved_here(now_us, source, name, want)
                self._store.put(WANT + name, replace(want, origin=to, redirected_by=want.origin, fresh=False))
                # If two access points name each other, the state is in transfer between them.
                return self._send_stored(now_us, WANT + name) if to != want.redirected_by else ()
            case Stale(epoch=epoch):
                want = self._find_wanted(name)
                if want is None or want.epoch != epoch:
                    return ()
                self._store.delete(WANT + name)
                stop = self._in_flight.settle(now_us, WANT + name)
                # A client that is still here has started anew, and must continue at a later epoch.
                return [*stop, Send(want.address, Behind(want.store_id, epoch))]
            case Missing(epoch=epoch, start_us=start_us, start_lsn=start_lsn):
                want, agent = self._find_wanted(name), self._agents.get(name)
                if want is None or (want.epoch, want.origin) != (epoch, source):
                    return ()
                if not self.has_attached(name, want.store_id):
                    return ()  # the client has to attach again
                if agent is not None:
                    return self._serve_wanted(now_us, agent, want)
                self._store.delete(WANT + name)
                stop = self._in_flight.settle(now_us, WANT + name)
                served = self._serve_anew(now_us, name, want.address, epoch, want, start_us, start_lsn)
                return [*stop, *served]

    def _serve_moved_here(self, now_us: int, source: str, name: str, want: _WantedState) -> Sequence[Effect]:
        """Serve a subscriber that has moved here, anew if its state was lost with an older store."""
        agent, moved = self._agents.get(name), self._find_moved(name)
        if not self.has_attached(name, want.store_id):
            return ()  # the client has to attach again
        if agent is not None:
            return self._serve_wanted(now_us, agent, want)
        if self._store.get(LEAVE + name, _LeavingState) is not None or (
            moved is not None and moved.to != source
        ):
            return ()  # in transfer
        self._store.delete(WANT + name)
        self._store.delete(_MOVED + name)
        stop = self._in_flight.settle(now_us, WANT + name)
        start = self.start_us, self.start_lsn
        return [*stop, *self._serve_anew(now_us, name, want.address, want.epoch, want, *start)]

    def list_attaching(self) -> Sequence[tuple[str, Whereabouts]]:
        """Return the subscribers that were attaching before the start, and where they were."""
        wants = self._store.items(WANT, _WantedState)
        return [(key.removeprefix(WANT), Whereabouts(want.address, want.store_id)) for key, want in wants]

    def send_identify(self, source: str, message: Attach | Left | Report | SetPolicy) -> Sequence[Effect]:
        """Send the client an Identify: it is to attach again with the nonce of the open question."""
        return (Send(source, Identify(message.store_id, self.open_question(message.subscriber))),)

    def open_question(self, name: str) -> str:
        """Return the nonce of the open question to a client; open one if there is none."""
        return self._peer_of(name).open_question(self._entropy)

    def _peer_of(self, name: str) -> Peer:
        """Return what is known of a client's attachments since the start; create it at the first call.

        After a restart it begins with an open question.
        """
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = Peer()
            if self._is_restarted:
                peer.open_question(self._entropy)
        return peer

    def is_answer_of_client(self, message: Attach | Left) -> bool:
        """Return whether a message has the nonce of the open question to its client."""
        return message.nonce is not UNSET and message.nonce == self._peer_of(message.subscriber).nonce

    def has_attached(self, name: str, store_id: str) -> bool:
        """Return whether this store of a client has attached here since the start."""
        return self._peer_of(name).incarnation == store_id

    def is_unknown(self, name: str) -> bool:
        """Return whether a subscriber has no state here, none that is awaited and none that has moved."""
        return name not in self._agents and self._find_moved(name) is None and self._find_wanted(name) is None

    def retransmit_overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit overdue requests and transfers."""
        late = self._in_flight.overdue(now_us)
        effects = [effect for key in late for effect in self._send_stored(now_us, key)]
        return [*effects, *self._in_flight.restart(now_us)]

    def retransmit_all(self, now_us: int) -> Sequence[Effect]:
        """Retransmit all requests and transfers."""
        requested = [
            key for key in self._store.keys(WANT) if self._peer_of(key.removeprefix(WANT)).incarnation
        ]
        keys = [*requested, *self._store.keys(LEAVE)]
        return [effect for key in keys for effect in self._send_stored(now_us, key)]

    def _send_stored(self, now_us: int, key: str) -> Sequence[Effect]:
        """Send the request or transfer of a store key, until answered."""
        want = self._store.get(key, _WantedState) if key.startswith(WANT) else None
        leave = self._store.get(key, _LeavingState) if key.startswith(LEAVE) else None
        if want is not None:
            name = key.removeprefix(WANT)
            sent = Send(want.origin, StateRequest(name, want.epoch, want.fresh, want.store_id))
        elif leave is not None:
            sent = Send(leave.to, leave.state)
        else:
            return self._in_flight.settle(now_us, key)
        return sent, *self._in_flight.start(now_us, key, size_bytes(sent.message))

    def _find_wanted(self, name: str) -> _WantedState | None:
        """Return the unanswered request for the state of a subscriber; None if there is none."""
        return self._store.get(WANT + name, _WantedState)

    def _find_moved(self, name: str) -> _MovedTo | None:
        """Return where the state of a subscriber was sent from here; None if it was not."""
        return self._store.get(_MOVED + name, _MovedTo)

    def _receive_attach(self, now_us: int, source: str, message: Attach) -> Sequence[Effect]:
        """Serve the client if its state is here; else request the state, or have the client try again."""
        name, epoch, store_id = message.subscriber, message.epoch, message.store_id
        agent, moved, before = self._agents.get(name), self._find_moved(name), self._find_wanted(name)
        others = [
            known.epoch
            for known in (agent.record if agent is not None else None, moved, before)
            if known is not None and known.store_id not in ("", store_id)
        ]
        peer = self._peer_of(name)
        if not self.is_answer_of_client(message):
            if store_id == peer.incarnation and message.report <= peer.seq:  # a late copy, or restored
                epoch = max(epoch, 0 if agent is None else agent.record.epoch)
                return (Send(source, Behind(store_id, epoch, peer.seq)),)
            is_first = not peer.incarnation and peer.nonce is None and not others
            if store_id != peer.incarnation and not is_first:
                return self.send_identify(source, message)
        elif message.nonce is not UNSET:
            self._sessions[name] = message.nonce
        peer.accept_hello(store_id, message.report)
        if others and epoch <= max(others):
            return (Send(source, Behind(store_id, max(others))),)
        begins = message.fresh
        if agent is not None:
            if epoch < agent.record.epoch:  # a late copy, or the client was restored
                return (Send(source, Behind(store_id, agent.record.epoch)),)
            is_its_own = agent.record.store_id in ("", store_id)
            is_mine = begins or message.origin == self._me
            # It may have been served elsewhere since the backup.
            is_old = not agent.is_confirmed and epoch > agent.record.epoch and not is_mine
            if (is_its_own or is_mine) and not is_old:
                return self._serve(now_us, agent, source, epoch, message)
            if not is_old:
                self._remove_agent(agent)  # a former store's
        if moved is not None and epoch <= moved.epoch:
            return (Send(source, Behind(store_id, moved.epoch)),)
        if moved is not None and begins and moved.store_id != store_id:
            self._store.delete(_MOVED + name)
            moved = None
        if before is not None and begins and before.store_id != store_id:
            self._store.delete(WANT + name)
            before = None
        is_known = moved is not None and moved.store_id == store_id
        origin = moved.to if moved is not None and is_known else message.origin
        if origin == self._me:  # no access point has served it, or this one has no record of it
            if not begins:
                if moved is not None or before is not None:
                    return ()
                start = self.start_us, self.start_lsn
                return self._serve_anew(now_us, name, source, epoch, message, *start)
            Agent.store_state(self._store, name, build_initial_state(name, epoch, self._log))
            return self._serve(now_us, self._load_agent(name), source, epoch, message)
        want = _WantedState(
            epoch, origin, source, begins and not is_known, message.report, message.automatic, store_id,
            seen=message.seen, policy=message.policy,
        )  # fmt: skip
        if before is not None and (before.epoch, before.store_id) == (epoch, store_id):
            want = replace(want, origin=before.origin, fresh=before.fresh, redirected_by=before.redirected_by)
        self._store.put(WANT + name, want)
        is_requested = before is not None and before.epoch == epoch and WANT + name in self._in_flight
        return () if is_requested else self._send_stored(now_us, WANT + name)

    def _serve_anew(
        self,
        now_us: int,
        name: str,
        source: str,
        epoch: int,
        request: Attach | _WantedState,
        start_us: int,
        start_lsn: int,
    ) -> Sequence[Effect]:
        """Serve a subscriber whose state is lost, with the messages published since a start."""
        state = build_initial_state(name, epoch, self._log)
        first_lsn = min(max(start_lsn - _MAX_UNHEARD, 0) + 1, state.record.next_lsn)
        seen = 0 if request.seen is UNSET else request.seen
        Agent.store_state(
            self._store, name, replace(state, record=replace(state.record, next_lsn=first_lsn, last_seq=seen))
        )
        agent = self._load_agent(name)
        served = self._serve(now_us, agent, source, epoch, request)
        is_redirected = isinstance(request, _WantedState) and request.redirected_by is not None
        agent.update_record(replace(agent.record, since_us=now_us if is_redirected else start_us))
        return [rollback_incident(name, "no access point knows what it has kept for it"), *served]

    def _serve_wanted(self, now_us: int, agent: Agent, want: _WantedState) -> Sequence[Effect]:
        """Serve a subscriber whose state is here after all, and stop requesting it."""
        self._store.delete(WANT + agent.name)
        stop = self._in_flight.settle(now_us, WANT + agent.name)
        return [*stop, *self._serve(now_us, agent, want.address, want.epoch, want)]

    def _remove_agent(self, agent: Agent) -> None:
        """Stop serving a subscriber, and delete its state here."""
        agent.delete_state()
        del self._agents[agent.name]

    def _serve(
        self, now_us: int, agent: Agent, source: str, epoch: int, request: Attach | _WantedState
    ) -> Sequence[Effect]:
        """Serve a subscriber at this address and epoch: confirm it to the client, and send the queue."""
        agent.set_store_id(request.store_id)
        agent.session = self._sessions.get(agent.name, UNSET)
        displaced: Sequence[Effect] = ()
        has_moved = (agent.record.epoch, agent.record.address) != (epoch, source)
        if has_moved:
            agent.update_record(replace(agent.record, epoch=epoch, address=source))
        if has_moved or agent.is_away:  # another one may have displaced it
            displaced = self.displace_at(now_us, source, agent)
        agent.record_report(request.report, request.automatic)
        agent.is_away = False
        # Another access point may have served it since its state is this.
        if isinstance(request, _WantedState):
            agent.suspend(now_us)
        lost = agent.confirm(now_us, 0 if request.seen is UNSET else request.seen)
        is_behind = request.policy is not UNSET and agent.record.policy < request.policy
        policy = agent.record.policy if is_behind else UNSET
        attached = Attached(request.store_id, epoch, agent.record.report, policy, agent.session)
        return [*lost, *displaced, Send(source, attached), *agent.restart_deliveries(now_us)]

    def displace_at(self, now_us: int, address: str, owner: Agent | None = None) -> Sequence[Effect]:
        """Stop sending to all others at an address; ``owner`` has it now (None: a plain subscriber).

        Its message may have been sent before theirs, so they are asked whether they are there.
        """
        effects: list[Effect] = []
        for other in self._agents.values():
            if other is not owner and not other.is_away and other.record.address == address:
                effects += self.displace(now_us, other)
        return effects

    def displace(self, now_us: int, agent: Agent) -> Sequence[Effect]:
        """Stop sending to a subscriber whose address is another one's, and ask whether it is there."""
        agent.is_away = True
        question = Identify(agent.record.store_id, self.open_question(agent.name))
        return [*agent.restart_deliveries(now_us), Send(agent.record.address, question)]

    def _receive_state_request(self, now_us: int, source: str, message: StateRequest) -> Sequence[Effect]:
        """Transfer the state of a subscriber to another access point and stop serving it, or say why not.

        While the state is in transfer to here there is no answer: the other one repeats its request.
        """
        name, epoch = message.subscriber, message.epoch
        agent, moved = self._agents.get(name), self._find_moved(name)
        if moved is not None and message.fresh and moved.store_id != message.store_id:
            moved = None  # a former store's
        if agent is None and moved is None:
            want = self._find_wanted(name)
            is_waited_for = want is not None and want.store_id == message.store_id
            is_mutual = want is not None and want.origin == source and want.epoch < epoch
            if is_mutual and is_waited_for and message.fresh:
                self._store.delete(WANT + name)  # each requests it from the other: no state exists
                is_waited_for = False
            if is_waited_for or (want is not None and not message.fresh):
                return ()  # in transfer to here; the requester repeats its request
            if not message.fresh:
                return (Send(source, Missing(name, epoch, self.start_us, self.start_lsn)),)
            Agent.store_state(self._store, name, build_initial_state(name, epoch, self._log))
            agent = self._load_agent(name)
        if agent is None:
            assert moved is not None
            if epoch >= moved.epoch and moved.to == source:  # without a transfer, the other one has lost it
                is_in_transfer = self._store.get(LEAVE + name, _LeavingState) is not None
                return (
                    self._send_stored(now_us, LEAVE + name)
                    if is_in_transfer
                    else (Send(source, Moved(name, epoch, source)),)
                )
            if epoch <= moved.epoch:
                return (Send(source, Stale(name, epoch)),)
            return (Send(source, Moved(name, epoch, moved.to)),)
        is_another = agent.record.store_id not in ("", message.store_id)
        if epoch <= agent.record.epoch or (is_another and not message.fresh):
            return (Send(source, Stale(name, epoch)),)
        self._store.put(LEAVE + name, _LeavingState(source, epoch, agent.export_state(epoch)))
        self._store.crash_point("packed, not gone")
        self._store.put(_MOVED + name, _MovedTo(source, epoch, message.store_id))
        self._remove_agent(agent)
        return self._send_stored(now_us, LEAVE + name)

    def _receive_state(self, now_us: int, source: str, message: StateTransfer) -> Sequence[Effect]:
        """Store a transferred state if it is newer than what is known; acknowledge it in any case."""
        name, epoch = message.subscriber, message.epoch
        agent, moved = self._agents.get(name), self._find_moved(name)
        answer = Send(source, StateTransferAck(name, epoch))
        known_epoch = max(
            agent.record.epoch if agent is not None else 0, moved.epoch if moved is not None else 0
        )
        if epoch <= known_epoch:
            return (answer,)
        want = self._find_wanted(name)
        if agent is not None:
            self._remove_agent(agent)
        Agent.store_state(self._store, name, message)
        self._store.crash_point("unpacked, still wanted")
        stop: list[Effect] = []
        for key in (WANT + name, LEAVE + name):  # if it came back, the transfer has arrived
            self._store.delete(key)
            stop += self._in_flight.settle(now_us, key)
        self._store.delete(_MOVED + name)
        agent = self._load_agent(name)
        agent.update_record(replace(agent.record, epoch=epoch))
        if want is None or want.epoch < epoch or not self.has_attached(name, want.store_id):
            agent.suspend(now_us)
            return [answer, *stop]  # the client will attach
        return [answer, *stop, *self._serve(now_us, agent, want.address, want.epoch, want)]
