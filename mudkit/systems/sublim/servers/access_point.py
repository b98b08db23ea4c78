"""Access point with SUBLIM: applies the policies of the subscribers attached to it (section 3).

Rules:

================  ====================================================================================
Messages          decide each in order, for each subscriber whose next message it is; request missing ones.
                  Send nothing more to a subscriber whose address is taken, and ask whether it is there
start             with stored subscribers, or those that the publish server names: ask them to attach, and
                  serve them once they have
Attach, Left      see :mod:`~mudkit.systems.sublim.servers.handover`; so are messages of access points
Report            store the automatic variables; the newest count
SetPolicy         check it, and apply it starting at the next message
DeliveryAck       remove from the queue, and send the next one
timer, link up    retransmit what is unanswered
================  ====================================================================================

It asks a client to attach (Identify) whose state is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Lineage, last_incarnation, rollback_incident, shared_lsn
from mudkit.display import View, first_rows
from mudkit.errors import MudkitError, brief
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Send,
    SendFailed,
    TimerFired,
    size_bytes,
)
from mudkit.systems.receiving import record_dropped
from mudkit.systems.sublim._policy.function import FunctionPolicy, error_text
from mudkit.systems.sublim._policy.policy import Policy
from mudkit.systems.sublim._policy.text import MAX_TEXT, PolicyError
from mudkit.systems.sublim.check.checker import validate
from mudkit.systems.sublim.messages import (
    FROM_CLIENT,
    FROM_POINT,
    FROM_PUBLISHER,
    AddressesNoted,
    Attach,
    Bye,
    Deliver,
    DeliveryAck,
    Hello,
    Identify,
    Join,
    Left,
    Messages,
    MessagesAck,
    PlainMessage,
    PolicyAck,
    PolicyText,
    Problem,
    ReadState,
    ReplayRequest,
    Report,
    ReportAck,
    SetPolicy,
    StateTransfer,
    SubscriberState,
    Whereabouts,
)
from mudkit.systems.sublim.servers.agent import AGAIN, Agent, AnyPolicy
from mudkit.systems.sublim.servers.handover import HANDOVER, STARTED, Handover, HandoverMessage
from mudkit.systems.sublim.servers.plain_access_point import PlainService
from mudkit.systems.sublim.sites import Site
from mudkit.wire import as_wire

_SERVER: Final = "server"
"""Timer of requests to the publish server."""
_JOIN: Final = "join"
_REPLAY: Final = "replay"
_IDENTIFY: Final = "identify"
_MOVED: Final = "moved "


class AccessPointMachine:
    """Machine of an access point of the publish server at ``server``.

    ``functions`` are the policies that trusted notebooks have set, by name: a function is not sent.
    """

    def __init__(
        self, ports: Ports, server: str, functions: Mapping[str, FunctionPolicy], sites: Sequence[Site]
    ) -> None:
        self._store = ports.store
        self._entropy = ports.entropy
        self._server = server
        self._functions = functions
        self._sites = sites
        kept = ports.store.get("log", Follower) or Follower()
        self._log = Follower(kept.lineage)
        self._known_lsn = kept.last_lsn or 0
        """Last number of the log as last heard."""
        self._requested_lsn: int | None = None
        """First number of the messages requested and not received."""
        self._in_flight: RetransmitTimer[str] = RetransmitTimer(_SERVER)
        self._plain = PlainService()
        self._agents: dict[str, Agent] = {}
        self._behind: set[str] = set()
        """Subscribers that may lack messages."""
        for key in self._store.keys("agent "):
            self._load_agent(key.removeprefix("agent "))
        self._handover = Handover(ports, self._agents, self._load_agent, self._log)
        self._unconfirmed: RetransmitTimer[str] = RetransmitTimer(_IDENTIFY)
        """Subscribers that are asked to attach."""
        self._sought: dict[str, Whereabouts] = {}
        """Subscribers that the publish server knows at another address than the store."""
        self._noted: dict[str, Whereabouts] = {}
        """Addresses that the publish server has noted since the start."""
        self._moved: dict[str, Whereabouts] = {}
        """Subscribers whose address it has not noted, and the address last told."""
        self._is_awake = False
        for name, where in self._handover.list_attaching():
            self._sought[name] = where

    def overview(self) -> View:
        """Return the subscribers and their queues for the display."""
        rows = (
            (
                agent.name,
                None if agent.policy is None else agent.policy.name,
                agent.queue_length,
                not agent.is_away,
            )
            for agent in self._agents.values()
        )
        columns = ("subscriber", "policy", "waiting", "reached")
        return View(
            "",
            {"server": self._server, "subscribers": len(self._agents)},
            [first_rows(columns, rows, len(self._agents))],
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if not self._is_awake:
            self._is_awake, self._handover.start_us = True, now_us
            self._store.put(STARTED, True)
            for restored in self._agents.values():
                restored.suspend(now_us)
        match event:
            case Received():
                return self._receive_message(now_us, event)
            case SendFailed(message=Identify()):
                return self._stop_asking_at(now_us, event.to)
            case SendFailed(message=PlainMessage()):
                self._plain.remove_address(event.to)
            case TimerFired(name=name) if name.startswith(AGAIN):
                agent = self._agents.get(name.removeprefix(AGAIN))
                return agent.retransmit_overdue(now_us) if agent is not None else ()
            case TimerFired(name=name) if name == HANDOVER:
                return self._handover.retransmit_overdue(now_us)
            case TimerFired(name=name) if name == _IDENTIFY:
                late = self._unconfirmed.overdue(now_us)
                return [*self._ask_to_attach(now_us, late), *self._unconfirmed.restart(now_us)]
            case TimerFired():
                return self._retransmit(now_us)
            case LinkUp():
                flushed = [
                    effect for agent in self._agents.values() for effect in agent.restart_deliveries(now_us)
                ]
                identify = self._ask_to_attach(now_us, list(dict.fromkeys([*self._agents, *self._sought])))
                return [*self._send_join(now_us), *flushed, *identify, *self._handover.retransmit_all(now_us)]
            case SendFailed(to=to, message=Deliver(subscriber=name)):
                agent = self._agents.get(name)
                if agent is not None and agent.record.address == to:
                    agent.is_away = True
            case Call(op_id=op_id, operation=ReadState(subscriber=name)):
                return (Complete(op_id, self._state(name, now_us)),)
        return ()

    def _ask_to_attach(self, now_us: int, names: Sequence[str]) -> Sequence[Effect]:
        """Ask subscribers (Identify) that have not attached since the start, until they attach."""
        effects: list[Effect] = []
        for name in names:
            places = self._addresses_to_ask(name)
            nonce = self._handover.open_question(name) if places else ""
            effects += [Send(address, Identify(store_id, nonce)) for address, store_id in places.items()]
            effects += (self._unconfirmed.start if places else self._stop_asking_if_found)(now_us, name)
        return effects

    def _addresses_to_ask(self, name: str) -> dict[str, str]:
        """Return the addresses at which a subscriber may be that has not attached, with its store ids."""
        agent = self._agents.get(name)
        known = [] if agent is None else [self._whereabouts(agent)]
        sought = [self._sought[name]] if name in self._sought else []
        is_found = agent is not None and agent.is_confirmed
        return {} if is_found else {where.address: where.store_id for where in [*known, *sought]}

    def _stop_asking_if_found(self, now_us: int, name: str) -> Sequence[Effect]:
        """Stop asking a subscriber that has attached, here or elsewhere."""
        if self._addresses_to_ask(name):
            return ()
        self._sought.pop(name, None)
        return self._unconfirmed.settle(now_us, name)

    def _ask_named_to_attach(self, now_us: int, served: Mapping[str, Whereabouts]) -> Sequence[Effect]:
        """Ask subscribers that the publish server names to attach, unless the store has the same address."""
        for name, where in served.items():
            agent = self._agents.get(name)
            if agent is None or (not agent.is_confirmed and self._whereabouts(agent) != where):
                self._sought[name] = where
        return self._ask_to_attach(now_us, list(self._sought))

    def _whereabouts(self, agent: Agent) -> Whereabouts:
        """Return the address and the store id of a subscriber that is served here."""
        return Whereabouts(agent.record.address, agent.record.store_id)

    def _stop_asking_at(self, now_us: int, address: str) -> Sequence[Effect]:
        """Stop asking the subscribers at an address that is not reached: they attach once connected."""
        for name in [name for name, where in self._sought.items() if where.address == address]:
            del self._sought[name]
        names = [
            name
            for name in self._unconfirmed
            if name not in self._sought and self._address_of(name) in ("", address)
        ]
        return [effect for name in names for effect in self._unconfirmed.settle(now_us, name)]

    def _address_of(self, name: str) -> str:
        """Return the address of a subscriber that is served here, else an empty text."""
        agent = self._agents.get(name)
        return "" if agent is None else agent.record.address

    def _retransmit(self, now_us: int) -> Sequence[Effect]:
        """Retransmit overdue requests to the publish server."""
        late = self._in_flight.overdue(now_us)
        effects: list[Effect] = []
        if _JOIN in late:
            effects += self._send_join(now_us)
        if _REPLAY in late:
            self._requested_lsn = None
            effects += [*self._in_flight.settle(now_us, _REPLAY), *self._request_missing(now_us)]
        names = [key.removeprefix(_MOVED) for key in late if key.startswith(_MOVED)]
        for name in [name for name in names if name not in self._moved]:
            effects += self._in_flight.settle(now_us, _MOVED + name)
        moved = [name for name in names if name in self._moved]
        effects += self._send_addresses(now_us, moved) if moved else ()
        return [*effects, *self._in_flight.restart(now_us)]

    def _receive_message(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message that its sender may send: publish server, access point or subscriber."""
        source = event.source
        if source == self._server:
            match FROM_PUBLISHER.decode(event.message):
                case None:
                    return record_dropped(event)
                case AddressesNoted(subscribers=noted):
                    return self._record_noted(now_us, noted)
                case Messages() as messages:
                    return self._receive_messages(now_us, messages)
        if any(site.address == source and site.is_stateful for site in self._sites):
            transfer = FROM_POINT.decode(event.message)
            if transfer is None or (isinstance(transfer, StateTransfer) and not self._is_readable(transfer)):
                return record_dropped(event)
            return self._receive_for_handover(now_us, source, transfer)
        message = FROM_CLIENT.decode(event.message)
        if message is None or message.subscriber != event.sender:
            return record_dropped(event)
        agent = self._agents.get(message.subscriber)
        match message:
            case Attach() | Left():
                return self._receive_for_handover(now_us, source, message)
            case Hello() | Bye():
                return self._receive_from_plain(now_us, source, message)
            case DeliveryAck(seq=seq, session=session) if agent is not None:
                is_present = agent.is_confirmed and session == agent.session
                return agent.acknowledge(now_us, seq) if is_present else ()
            case Report() | SetPolicy() if agent is not None and (agent.is_away or not agent.is_confirmed):
                return self._handover.send_identify(source, message)
            case Report() | SetPolicy() if agent is not None and message.session != agent.session:
                return ()  # a late copy
            case Report() if agent is not None:
                return self._receive_report(source, agent, message)
            case SetPolicy() if agent is not None:
                return self._receive_policy(source, agent, message)
            case Report() | SetPolicy() if self._handover.is_unknown(message.subscriber):
                return self._handover.send_identify(source, message)
        return ()

    def _receive_for_handover(self, now_us: int, source: str, message: HandoverMessage) -> Sequence[Effect]:
        """Pass a message to the handover; then note a new address and request missing messages."""
        # The next message is unknown: no subscriber can start.
        if self._log.last_lsn is None:
            return []
        name = message.subscriber
        has_left = isinstance(message, Left) and self._handover.is_answer_of_client(message)
        moved = self._handover.handle(now_us, source, message)
        if has_left or (isinstance(message, Attach) and self._handover.has_attached(name, message.store_id)):
            self._sought.pop(name, None)
        self._behind.add(name)
        agent = self._agents.get(name)
        if agent is None:  # the publish server has to note its address again when it comes back
            self._noted.pop(name, None)
            self._moved.pop(name, None)
        elif agent.is_confirmed:
            where = self._whereabouts(agent)
            if where not in (self._noted.get(name), self._moved.get(name)):
                self._moved[name] = where
                moved = [*moved, *self._send_addresses(now_us, [name])]
        if agent is not None and agent.is_confirmed and not agent.is_away:
            self._plain.remove_address(agent.record.address)
        return [*moved, *self._stop_asking_if_found(now_us, name), *self._request_missing(now_us)]

    def _receive_from_plain(self, now_us: int, source: str, message: Hello | Bye) -> Sequence[Effect]:
        """Serve a plain subscriber, or stop; send nothing more to another one at its address."""
        if not self._plain.update_subscription(source, message):
            return ()
        is_joined = self._log.last_lsn is not None
        have = [Send(self._server, self._build_ack(()))] if is_joined else []
        return [*have, *self._handover.displace_at(now_us, source)]

    def _is_readable(self, state: StateTransfer) -> bool:
        """Return whether a subscriber can be served from a transferred state: policy, order of the queue."""
        seqs = [entry.seq for entry in state.out]
        if seqs and seqs != list(range(seqs[0], state.record.last_seq + 1)):
            return False
        try:
            return state.policy is None or self._read_policy(state.policy) is not None
        except MudkitError:
            return False

    def _send_join(self, now_us: int) -> Sequence[Effect]:
        """Ask the publish server for its log, until it has answered."""
        return Send(self._server, Join()), *self._in_flight.start(now_us, _JOIN)

    def _receive_messages(self, now_us: int, message: Messages) -> Sequence[Effect]:
        """Follow the log of the publish server: decide its messages, request missing ones, acknowledge."""
        effects: list[Effect] = []
        is_first, before = self._log.last_lsn is None, self._log.lineage
        lineage: Lineage = {} if message.lineage is UNSET else message.lineage
        if not self._log.accept_lineage(lineage, message.last_lsn, message.nonce or None):
            nonce = self._log.open_question(self._entropy)
            known = Join() if is_first else self._build_ack(list(self._moved))
            return (Send(self._server, replace(known, nonce=nonce)),)
        if is_first:
            self._handover.start_lsn = message.messages[0].lsn - 1 if message.messages else message.last_lsn
            effects += self._in_flight.settle(now_us, _JOIN)
        lost_ranges = {(shared_lsn(before, self._known_lsn, lineage, message.last_lsn), self._known_lsn)}
        if lineage != before:
            self._requested_lsn = None
            effects += self._in_flight.settle(now_us, _REPLAY)
        if (lineage, self._log.last_lsn) != (before, self._known_lsn):
            self._known_lsn = self._log.last_lsn or 0
            self._store.put("log", self._log)
        taken = {} if message.taken is UNSET else message.taken
        for name, address in taken.items():
            self._plain.remove_address(address, name)
            effects += self._displace_at_address(now_us, name, address)
        for agent in self._agents.values():
            lost_ranges.add(agent.follow_log(lineage, message.last_lsn))
            agent.skip_to(message.first_lsn)
            for published in message.messages:
                if agent.is_confirmed and published.lsn == agent.record.next_lsn:
                    effects += agent.decide(now_us, published)
        for shared, known_lsn in sorted(lost_ranges):
            if shared < known_lsn:
                lost = f"messages {shared + 1} to {known_lsn} are gone"
                effects.append(rollback_incident("publish server", lost))
        self._behind = set(self._agents)
        if self._requested_lsn is not None and any(
            published.lsn <= self._requested_lsn for published in message.messages
        ):
            self._requested_lsn = None
            effects += self._in_flight.settle(now_us, _REPLAY)
        if message.served is not UNSET:
            effects += self._ask_named_to_attach(now_us, message.served)
        flooded = self._plain.send_messages(message, lineage)
        have = replace(self._build_ack(list(self._moved)), lost=list(taken) or UNSET)
        return [*effects, *flooded, *self._request_missing(now_us), Send(self._server, have)]

    def _displace_at_address(self, now_us: int, name: str, address: str) -> Sequence[Effect]:
        """Stop sending to a subscriber at an address that another one has at another access point."""
        agent = self._agents.get(name)
        if agent is None or agent.record.address != address:
            return ()
        self._noted.pop(name, None)
        self._moved.pop(name, None)
        return self._handover.displace(now_us, agent)

    def _send_addresses(self, now_us: int, names: Sequence[str]) -> Sequence[Effect]:
        """Send the publish server the addresses of subscribers until it has noted them."""
        timers = [effect for name in names for effect in self._in_flight.start(now_us, _MOVED + name)]
        return [Send(self._server, self._build_ack(names)), *timers]

    def _record_noted(self, now_us: int, noted: Mapping[str, Whereabouts]) -> Sequence[Effect]:
        """Record which addresses the publish server has stored; they are not sent again."""
        self._plain.record_noted(noted)
        effects: list[Effect] = []
        for name, where in noted.items():
            if self._moved.get(name) == where:
                self._noted[name] = self._moved.pop(name)
                effects += self._in_flight.settle(now_us, _MOVED + name)
        return effects

    def _build_ack(self, names: Iterable[str]) -> MessagesAck:
        """Return the acknowledgement of messages; name those subscribers whose address must be noted.

        They are recorded as to be noted; those of ``names`` that are noted already, or gone, are no longer.
        """
        moved = dict(self._plain.moved)
        for name in names:
            agent = self._agents.get(name)
            where = None if agent is None else self._whereabouts(agent)
            if where is None or self._noted.get(name) == where:
                del self._moved[name]
            else:
                moved[name] = self._moved[name] = where
        incarnation = last_incarnation(self._log.lineage) or UNSET
        return MessagesAck(self._log.last_lsn or 0, incarnation, moved or UNSET)

    def _request_missing(self, now_us: int) -> Sequence[Effect]:
        """Request the messages that a subscriber lacks, unless already requested."""
        last_lsn = self._log.last_lsn
        if self._requested_lsn is not None or last_lsn is None:
            return ()
        behind = [self._agents[name] for name in self._behind & self._agents.keys()]
        next_of = {agent.name: agent.record.next_lsn for agent in behind if agent.is_confirmed}
        self._behind = {name for name, lsn in next_of.items() if lsn <= last_lsn}
        if not self._behind:
            return ()
        self._requested_lsn = min(next_of.values())
        return Send(self._server, ReplayRequest(self._requested_lsn)), *self._in_flight.start(now_us, _REPLAY)

    def _receive_report(self, source: str, agent: Agent, message: Report) -> Sequence[Effect]:
        """Store the automatic variables of a report, and acknowledge it."""
        if message.store_id != agent.record.store_id:
            return ()  # a late copy, or a client that has to attach first
        agent.record_report(message.seq, message.automatic)
        return (Send(source, ReportAck(message.store_id, message.seq)),)

    def _receive_policy(self, source: str, agent: Agent, message: SetPolicy) -> Sequence[Effect]:
        """Use the policy from the next message on if it is newer and passes the check; acknowledge it."""
        if message.store_id != agent.record.store_id:
            return ()
        if agent.is_number_used(message.seq, message.policy):
            return (Send(source, PolicyAck(message.store_id, agent.record.policy, taken=True)),)
        answer = PolicyAck(message.store_id, message.seq)
        if message.seq > agent.record.policy:
            try:
                agent.set_policy(message.seq, message.policy, self._read_checked_policy(message.policy))
            except MudkitError as error:
                agent.update_record(replace(agent.record, policy=message.seq))  # the previous policy stays
                answer = replace(answer, problem=Problem(error.summary, error.where, error.found))
        return (Send(source, answer),)

    def _read_checked_policy(self, sent: PolicyText) -> AnyPolicy:
        """Return the policy in a message, checked here: the check of the client is not trusted."""
        if "function" not in sent and size_bytes(sent) > MAX_TEXT:
            raise PolicyError("The policy is too long.", expected=f"at most {MAX_TEXT} bytes")
        policy = self._read_policy(sent)
        return validate(policy) if isinstance(policy, Policy) else policy

    def _read_policy(self, sent: PolicyText) -> AnyPolicy:
        """Return the policy in a message or in the store, not checked; raise PolicyError if it has none."""
        if "function" in sent:
            name = sent["function"]
            policy = self._functions.get(name) if isinstance(name, str) else None
            if policy is None:
                raise PolicyError(
                    "Unknown function.",
                    found=brief(name),
                    remedy="set it with set_policy, in the notebook of the access point",
                )
            return policy
        try:
            return Policy.from_dict(sent)
        except MudkitError:
            raise
        except Exception as error:  # names and values of any type
            raise PolicyError("The policy cannot be read.", found=error_text(error)) from error

    def _load_agent(self, name: str) -> Agent:
        """Create the agent of a subscriber from its stored state, and return it."""
        sent = self._store.get(f"policy {name}", dict)
        self._agents[name] = Agent(self._store, name, None if sent is None else self._read_policy(sent))
        self._behind.add(name)
        return self._agents[name]

    def _state(self, name: str, now_us: int) -> SubscriberState | None:
        """Return the state of a subscriber and the time; None if it is not served here."""
        agent = self._agents.get(name)
        if agent is None:
            return None
        served: SubscriberState = as_wire(agent.record)
        served["now_us"] = now_us
        return served
