"""An access point with SUBLIM: it decides for the subscribers that are attached to it (section 3).

Its rules:

================  ====================================================================================
messages          each in its order, for each subscriber of whom it is the next; what is missing is
                  asked for
start             of a store with subscribers: ask them to attach, and serve them from then on
attach            mine: it is there, at this address; else ask whoever serves it to hand it over
left              of another incarnation of the subscriber than is served here, or it is served elsewhere
                  since: forget it
unknown           a subscriber whose state is lost: ask it to attach
report            the automatic variables; the newest count
policy            check it, and decide by it from the next message on
got               out of the queue, and the next one
ask, parcel, …    see :mod:`~mudkit.systems.sublim.servers.handover`
timer, link up    the same again of what was not answered
================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Lineage, last_start
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
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim._policy.function import FunctionPolicy, error_text
from mudkit.systems.sublim._policy.policy import Policy
from mudkit.systems.sublim._policy.text import MAX_TEXT, PolicyError
from mudkit.systems.sublim.check.checker import checked
from mudkit.systems.sublim.messages import (
    FROM_CLIENT,
    FROM_POINT,
    FROM_PUBLISHER,
    Attach,
    Bye,
    Deliver,
    DeliveryAck,
    Have,
    Hello,
    Identify,
    Join,
    Left,
    Messages,
    Plain,
    PolicySet,
    PolicyText,
    Problem,
    ReadState,
    Replay,
    Report,
    Reported,
    Served,
    SetPolicy,
    StateTransfer,
)
from mudkit.systems.sublim.servers.agent import AGAIN, Agent, AnyPolicy
from mudkit.systems.sublim.servers.handover import HANDOVER, Handover, Heard
from mudkit.systems.sublim.servers.plain_access_point import PlainService
from mudkit.systems.sublim.sites import Site
from mudkit.wire import as_wire

__all__ = ["AccessPointMachine"]

_SERVER: Final = "server"
"""The timer by which the publish server is asked again."""
_JOIN: Final = "join"
_REPLAY: Final = "replay"
_IDENTIFY: Final = "identify"


class AccessPointMachine:
    """An access point's machine.

    Parameters
    ----------
    ports : Ports
    server : str
        Address of the publish server.
    functions : mapping of str to FunctionPolicy
        Those that trusted notebooks have set, by name: a function is not sent.
    sites : sequence of Site
        The access points, as they are put up.
    """

    def __init__(
        self, ports: Ports, server: str, functions: Mapping[str, FunctionPolicy], sites: Sequence[Site]
    ) -> None:
        self._store = ports.store
        self._server = server
        self._functions = functions
        self._sites = sites
        kept = ports.store.get("log", Follower) or Follower()
        self._log = Follower(kept.lineage, kept.former)
        self._asked: int | None = None
        """From which number on messages were asked for and have not come."""
        self._unanswered: RetransmitTimer[str] = RetransmitTimer(_SERVER)
        self._plain = PlainService()
        self._agents: dict[str, Agent] = {}
        self._behind: set[str] = set()
        """Names of subscribers of whom it is not known that they have all messages."""
        for key in self._store.keys("agent "):
            self._begin(key.removeprefix("agent "))
        self._over = Handover(ports, self._agents, self._begin, self._log)
        self._unconfirmed: RetransmitTimer[str] = RetransmitTimer(_IDENTIFY)
        """Subscribers that are asked to attach."""
        self._is_awake = False

    def overview(self) -> View:
        """Return its subscribers and what waits for them, as a display shows it."""
        rows = (
            (
                agent.name,
                None if agent.policy is None else agent.policy.name,
                agent.waiting,
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
            self._is_awake, self._over.start_us = True, now_us
            for restored in self._agents.values():
                restored.suspend(now_us)
        match event:
            case Received():
                return self._received(now_us, event)
            case SendFailed(message=Identify()):
                return self._not_there(now_us, event.to)
            case SendFailed(message=Plain()):
                self._plain.is_away(event.to)
            case TimerFired(name=name) if name.startswith(AGAIN):
                agent = self._agents.get(name.removeprefix(AGAIN))
                return agent.overdue(now_us) if agent is not None else ()
            case TimerFired(name=name) if name == HANDOVER:
                return self._over.again(now_us)
            case TimerFired(name=name) if name == _IDENTIFY:
                late = self._unconfirmed.overdue(now_us)
                return [*self._identify(now_us, late), *self._unconfirmed.fired(now_us)]
            case TimerFired():
                return self._again(now_us)
            case LinkUp():
                flushed = [each for agent in self._agents.values() for each in agent.again(now_us)]
                asked = self._identify(now_us, list(self._agents))
                return [*self._join(now_us), *flushed, *asked, *self._over.again_all(now_us)]
            case SendFailed(to=to, message=Deliver(subscriber=name)):
                agent = self._agents.get(name)
                if agent is not None and agent.record.address == to:
                    agent.is_away = True
            case Call(op_id=op_id, operation=ReadState(subscriber=name)):
                return (Complete(op_id, self._state(name, now_us)),)
        return ()

    def _identify(self, now_us: int, names: Sequence[str]) -> Sequence[Effect]:
        """Ask subscribers to attach that have not since the start."""
        effects: list[Effect] = []
        for name in names:
            agent = self._agents.get(name)
            if agent is None or agent.is_confirmed:
                effects += self._unconfirmed.answered(now_us, name)
            else:
                effects.append(Send(agent.record.address, Identify(agent.record.incarnation)))
                effects += self._unconfirmed.sent(now_us, name)
        return effects

    def _not_there(self, now_us: int, address: str) -> Sequence[Effect]:
        """Ask subscribers no more that are not at an address: they attach when they have a link."""
        names = [name for name in self._unconfirmed if self._address(name) in ("", address)]
        return [effect for name in names for effect in self._unconfirmed.answered(now_us, name)]

    def _address(self, name: str) -> str:
        agent = self._agents.get(name)
        return "" if agent is None else agent.record.address

    def _again(self, now_us: int) -> Sequence[Effect]:
        """Ask the publish server again for what it should have answered by now."""
        late = self._unanswered.overdue(now_us)
        effects: list[Effect] = []
        if _JOIN in late:
            effects += self._join(now_us)
        if _REPLAY in late:
            self._asked = None
            effects += [*self._unanswered.answered(now_us, _REPLAY), *self._catch_up(now_us)]
        return [*effects, *self._unanswered.fired(now_us)]

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what may come from who has sent it: the server, another access point, or a subscriber."""
        source = event.source
        if source == self._server:
            messages = FROM_PUBLISHER.decode(event.message)
            return dropped(event) if messages is None else self._messages(now_us, messages)
        if any(site.address == source and site.is_stateful for site in self._sites):
            told = FROM_POINT.decode(event.message)
            if told is None or (isinstance(told, StateTransfer) and not self._is_readable(told)):
                return dropped(event)
            return self._handed_over(now_us, source, told)
        message = FROM_CLIENT.decode(event.message)
        if message is None or message.subscriber != event.sender:
            return dropped(event)
        agent = self._agents.get(message.subscriber)
        match message:
            case Attach() | Left():
                return self._handed_over(now_us, source, message)
            case Hello() | Bye():
                self._plain.heard(source, message)
            case DeliveryAck(seq=seq) if agent is not None:
                return agent.acked(now_us, seq)
            case Report() if agent is not None:
                return self._report(source, agent, message)
            case SetPolicy() if agent is not None:
                return self._set_policy(source, agent, message)
            case Report() | SetPolicy() if self._over.has_lost(message.subscriber):
                return (Send(source, Identify(message.incarnation)),)
        return ()

    def _handed_over(self, now_us: int, source: str, message: Heard) -> Sequence[Effect]:
        # Until it knows which message is the next, it cannot begin with anybody.
        if self._log.last_seq is None:
            return []
        moved = self._over.heard(now_us, source, message)
        self._behind.add(message.subscriber)
        return [*moved, *self._identify(now_us, list(self._unconfirmed)), *self._catch_up(now_us)]

    def _is_readable(self, state: StateTransfer) -> bool:
        """Say whether the policy of a subscriber that is handed over can be read."""
        try:
            return state.policy is None or self._read(state.policy) is not None
        except MudkitError:
            return False

    def _join(self, now_us: int) -> Sequence[Effect]:
        return Send(self._server, Join()), *self._unanswered.sent(now_us, _JOIN)

    def _messages(self, now_us: int, message: Messages) -> Sequence[Effect]:
        effects: list[Effect] = []
        is_first, before = self._log.last_seq is None, self._log.lineage
        lineage: Lineage = {} if message.lineage is UNSET else message.lineage
        if not self._log.hear(lineage, message.last):
            return ()
        if is_first:
            self._over.start_seq = message.messages[0].seq - 1 if message.messages else message.last
            effects += self._unanswered.answered(now_us, _JOIN)
        if lineage != before:
            self._store.put("log", self._log)
            self._asked = None
            effects += self._unanswered.answered(now_us, _REPLAY)
        for agent in self._agents.values():
            effects += agent.follow(lineage, message.last)
            agent.skip(message.first)
            for each in message.messages:
                if agent.is_confirmed and each.seq == agent.record.next_seq:
                    effects += agent.decide(now_us, each)
        self._behind = set(self._agents)
        if self._asked is not None and any(each.seq <= self._asked for each in message.messages):
            self._asked = None
            effects += self._unanswered.answered(now_us, _REPLAY)
        have = Have(self._log.last_seq or 0, last_start(lineage) or UNSET)
        flooded = self._plain.flood(message)
        return [*effects, *flooded, *self._catch_up(now_us), Send(self._server, have)]

    def _catch_up(self, now_us: int) -> Sequence[Effect]:
        """Ask for what some subscriber has missed, unless that is on its way."""
        last_seq = self._log.last_seq
        if self._asked is not None or last_seq is None:
            return ()
        behind = [self._agents[name] for name in self._behind & self._agents.keys()]
        next_of = {agent.name: agent.record.next_seq for agent in behind if agent.is_confirmed}
        self._behind = {name for name, seq in next_of.items() if seq <= last_seq}
        if not self._behind:
            return ()
        self._asked = min(next_of.values())
        return Send(self._server, Replay(self._asked)), *self._unanswered.sent(now_us, _REPLAY)

    def _report(self, source: str, agent: Agent, message: Report) -> Sequence[Effect]:
        if message.incarnation != agent.record.incarnation:
            return ()  # a late copy, or it will attach first
        agent.reported(message.seq, message.automatic)
        return (Send(source, Reported(message.incarnation, message.seq)),)

    def _set_policy(self, source: str, agent: Agent, message: SetPolicy) -> Sequence[Effect]:
        if message.incarnation != agent.record.incarnation:
            return ()
        if agent.has_used(message.seq, message.policy):
            return (Send(source, PolicySet(message.incarnation, agent.record.policy, taken=True)),)
        answer = PolicySet(message.incarnation, message.seq)
        if message.seq > agent.record.policy:
            try:
                agent.use(message.seq, message.policy, self._checked(message.policy))
            except MudkitError as error:
                agent.change(replace(agent.record, policy=message.seq))  # what was set before goes on
                answer = replace(answer, problem=Problem(error.summary, error.where, error.found))
        return (Send(source, answer),)

    def _checked(self, sent: PolicyText) -> AnyPolicy:
        """Make a policy of what was sent: checked here too, since anybody may send."""
        if "function" not in sent and size_bytes(sent) > MAX_TEXT:
            raise PolicyError("The policy is too long.", expected=f"at most {MAX_TEXT} bytes")
        made = self._read(sent)
        return checked(made) if isinstance(made, Policy) else made

    def _read(self, sent: PolicyText) -> AnyPolicy:
        """Make a policy of what was sent or stored."""
        if "function" in sent:
            name = sent["function"]
            policy = self._functions.get(name) if isinstance(name, str) else None
            if policy is None:
                raise PolicyError(
                    "This function is not known here.",
                    found=brief(name),
                    remedy="set it with set_policy, in the notebook of the access point",
                )
            return policy
        try:
            return Policy.read(sent)
        except MudkitError:
            raise
        except Exception as error:  # whatever was sent in the place of names and values
            raise PolicyError("The policy cannot be read.", found=error_text(error)) from error

    def _begin(self, name: str) -> Agent:
        sent = self._store.get(f"policy {name}", dict)
        self._agents[name] = Agent(self._store, name, None if sent is None else self._read(sent))
        self._behind.add(name)
        return self._agents[name]

    def _state(self, name: str, now_us: int) -> Served | None:
        agent = self._agents.get(name)
        if agent is None:
            return None
        served: Served = as_wire(agent.record)
        served["now_us"] = now_us
        return served
