"""An access point with SUBLIM: it decides for the subscribers that are attached to it (section 3).

Its rules:

================  ====================================================================================
messages          each in its order, for each subscriber of whom it is the next; what is missing is
                  asked for
attach            mine: it is there, at this address; else ask whoever serves it to hand it over
left              of another incarnation of the subscriber than is served here: forget that one
report            the automatic variables; the newest count
policy            check it, and decide by it from the next message on
got               out of the queue, and the next one
ask, parcel, …    see :mod:`~mudkit.systems.sublim.servers.handover`
timer, link up    the same again of what was not answered
================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import MudkitError
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
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim.check.checker import checked
from mudkit.systems.sublim.messages import FROM_CLIENT, FROM_POINT, FROM_PUBLISHER
from mudkit.systems.sublim.policy.function import FunctionPolicy
from mudkit.systems.sublim.policy.limits import MAX_TEXT
from mudkit.systems.sublim.policy.policy import Policy
from mudkit.systems.sublim.policy.problems import PolicyError
from mudkit.systems.sublim.policy.watching import error_text
from mudkit.systems.sublim.servers.agent import AGAIN, Agent, AnyPolicy
from mudkit.systems.sublim.servers.handover import LEAVE, WANT, Handover
from mudkit.systems.sublim.servers.plain_access_point import PlainService
from mudkit.systems.sublim.sites import Site

__all__ = ["AccessPointMachine"]

_AGAIN_US: Final = 5_000_000
_JOIN: Final = "join"
_REPLAY: Final = "replay"


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
        self._last: int | None = None
        """The last message of which it has heard since it was made."""
        self._asked: int | None = None
        """From which number on messages were asked for and have not come."""
        self._plain = PlainService()
        self._agents: dict[str, Agent] = {}
        self._behind: set[str] = set()
        """Names of subscribers of whom it is not known that they have all messages."""
        for key, _ in self._store.items("agent "):
            self._begin(key.removeprefix("agent "))
        self._over = Handover(ports, self._agents, self._begin)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received():
                return self._received(now_us, event)
            case SendFailed(message={"kind": "plain"}):
                self._plain.is_away(event.to)
            case TimerFired(name=name) if name.startswith(AGAIN):
                agent = self._agents.get(name.removeprefix(AGAIN))
                return agent.again(now_us) if agent is not None else ()
            case TimerFired(name=name) if name.startswith((WANT, LEAVE)):
                return self._over.again(name)
            case TimerFired(name="join") if self._last is None:
                return self._join()
            case TimerFired(name="replay"):
                self._asked = None
                return self._catch_up()
            case LinkUp():
                flushed = [each for agent in self._agents.values() for each in agent.again(now_us)]
                return [*self._join(), *flushed, *self._over.again_all()]
            case SendFailed(to=to, message={"kind": "deliver", "subscriber": name}):
                agent = self._agents.get(name)
                if agent is not None and agent.record["address"] == to:
                    agent.is_away = True
            case Call(op_id=op_id, operation="state", arguments={"subscriber": name}):
                return (Complete(op_id, self._state(name, now_us)),)
        return ()

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what may come from who has sent it: the server, another access point, or a subscriber."""
        source, message = event.source, event.message
        if source == self._server:
            return self._messages(now_us, message) if FROM_PUBLISHER(message) else dropped(event)
        if any(site.address == source and site.is_stateful for site in self._sites):
            if not FROM_POINT(message) or not self._is_readable(message):
                return dropped(event)
            return self._handed_over(now_us, source, message)
        if not FROM_CLIENT(message) or message["subscriber"] != event.sender:
            return dropped(event)
        name = message["subscriber"]
        agent = self._agents.get(name)
        match message["kind"]:
            case "attach" | "left":
                return self._handed_over(now_us, source, message)
            case "hello" | "bye":
                self._plain.heard(source, message)
            case "got" if agent is not None:
                return agent.acked(now_us, message["number"])
            case "report" if agent is not None:
                return self._report(source, agent, message)
            case "policy" if agent is not None:
                return self._set_policy(source, agent, message)
        return ()

    def _handed_over(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        # Until it knows which message is the next, it cannot begin with anybody.
        moved = () if self._last is None else self._over.heard(now_us, source, message, self._last + 1)
        return [*moved, *self._catch_up()]

    def _is_readable(self, message: Mapping[str, Any]) -> bool:
        """Say whether the policy of a parcel can be read, if it is one."""
        try:
            sent = message["policy"] if message["kind"] == "parcel" else None
            return sent is None or self._read(sent) is not None
        except MudkitError:
            return False

    def _join(self) -> Sequence[Effect]:
        return Send(self._server, {"kind": _JOIN}), SetTimer(_JOIN, _AGAIN_US)

    def _messages(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        self._last = max(self._last or 0, message["last"])
        effects: list[Effect] = []
        for agent in self._agents.values():
            agent.skip(message["first"])
            for each in message["messages"]:
                if each["number"] == agent.record["next"]:
                    effects += agent.decide(now_us, each)
        self._behind = set(self._agents)
        if self._asked is not None and any(each["number"] <= self._asked for each in message["messages"]):
            self._asked = None
        have = Send(self._server, {"kind": "have", "last": self._last})
        return [*effects, *self._plain.flood(message["messages"]), *self._catch_up(), have]

    def _catch_up(self) -> Sequence[Effect]:
        """Ask for what some subscriber has missed, unless that is on its way."""
        if self._asked is not None or self._last is None:
            return ()
        next_of = {name: self._agents[name].record["next"] for name in self._behind & self._agents.keys()}
        self._behind = {name for name, number in next_of.items() if number <= self._last}
        if not self._behind:
            return ()
        first = min(next_of.values())
        self._asked = first
        return Send(self._server, {"kind": _REPLAY, "from": first}), SetTimer(_REPLAY, _AGAIN_US)

    def _report(self, source: str, agent: Agent, message: Mapping[str, Any]) -> Sequence[Effect]:
        incarnation, number = message["incarnation"], message["number"]
        if incarnation != agent.record["incarnation"]:
            return ()  # a late copy, or it will attach first
        agent.reported(number, message["automatic"])
        return (Send(source, {"kind": "reported", "incarnation": incarnation, "number": number}),)

    def _set_policy(self, source: str, agent: Agent, message: Mapping[str, Any]) -> Sequence[Effect]:
        incarnation, number = message["incarnation"], message["number"]
        if incarnation != agent.record["incarnation"]:
            return ()
        answer: dict[str, Any] = {"kind": "policy set", "incarnation": incarnation, "number": number}
        if number > agent.record["policy"]:
            try:
                agent.use(number, message["policy"], self._checked(message["policy"]))
            except MudkitError as error:
                agent.change(policy=number)  # what was set before goes on
                answer["problem"] = {"summary": error.summary, "where": error.where, "found": error.found}
        return (Send(source, answer),)

    def _checked(self, sent: Mapping[str, Any]) -> AnyPolicy:
        """Make a policy of what was sent: checked here too, since anybody may send."""
        if "function" not in sent and size_bytes(sent) > MAX_TEXT:
            raise PolicyError("The policy is too long.", expected=f"at most {MAX_TEXT} bytes")
        made = self._read(sent)
        return checked(made) if isinstance(made, Policy) else made

    def _read(self, sent: Mapping[str, Any]) -> AnyPolicy:
        """Make a policy of what was sent or stored."""
        if "function" in sent:
            name = sent["function"]
            policy = self._functions.get(name) if isinstance(name, str) else None
            if policy is None:
                raise PolicyError(
                    "This function is not known here.",
                    found=repr(name),
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
        sent = self._store.get(f"policy {name}")
        self._agents[name] = Agent(self._store, name, None if sent is None else self._read(sent))
        self._behind.add(name)
        return self._agents[name]

    def _state(self, name: str, now_us: int) -> dict[str, Any] | None:
        agent = self._agents.get(name)
        return None if agent is None else {**agent.record, "now_us": now_us}
