"""Handing a subscriber over: its state and policy are at one access point, whoever dies in between.

Each attachment of a subscriber has a number, the epoch, which its client counts up when it goes to another
access point. What the access points say to each other, and what they do:

==========  ==========================================================================================
attach      mine, and not older: it is here. Known to have gone to another one: ask that one. Else ask
            the one that the client says has served it. Of another incarnation of the client than was
            served, and not newer: it is behind
behind      (the client) go on from this epoch
left        mine, of another incarnation than the client that says so: it is no more
ask         mine, and newer: it becomes a parcel, and goes; from now on it is gone to the other, with
            this epoch. Gone: tell where to. Never heard of, and the client has never been confirmed:
            an empty parcel. Older: tell so
parcel      newer than all that is known of this subscriber here: it is mine. In any case say that it
            has come
moved       ask the one that was told
stale       the client has gone on: want it no more
==========  ==========================================================================================

A device that was wiped counts its epochs from 1 again. Told that it is behind it goes on from the last epoch,
and who has the state goes on for it; where nobody knows it, it begins anew, and what is kept elsewhere of the
one that it was is over when the two meet.

Everything but the messages is stored before they leave: whoever dies goes on where it was when it is there
again. An access point that is away keeps its subscribers' state until it is back; they wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mudkit.events import CancelTimer, Effect, Ports, Send, SetTimer
from mudkit.systems.sublim.servers.agent import Agent, fresh

__all__ = ["LEAVE", "WANT", "Handover"]

WANT: Final = "want "
LEAVE: Final = "leave "
_GONE: Final = "gone "
_AGAIN_US: Final = 3_000_000


class Handover:
    """What an access point does about subscribers that come and go.

    Parameters
    ----------
    ports : Ports
    agents : dict of str to Agent
        Those of this access point; they are taken out of it.
    begin : callable
        Makes an agent of what is stored.
    """

    def __init__(self, ports: Ports, agents: dict[str, Agent], begin: Callable[[str], Agent]) -> None:
        self._store = ports.store
        self._me = ports.address
        self._agents = agents
        self._begin = begin
        self._told_behind: dict[str, tuple[str, int]] = {}

    def heard(
        self, now_us: int, source: str, message: Mapping[str, Any], next_number: int
    ) -> Sequence[Effect]:
        """Take what a client or another access point says.

        Parameters
        ----------
        now_us : int
        source : str
        message : mapping
        next_number : int
            The number of the first message for somebody of whom nobody has heard.
        """
        match message:
            case {"kind": "attach", "subscriber": name}:
                return self._attach(now_us, source, name, message, next_number)
            case {"kind": "left", "subscriber": name, "incarnation": incarnation}:
                agent = self._agents.get(name)
                if agent is not None and agent.record["incarnation"] != incarnation:
                    self._forget(agent)
                return ()
            case {"kind": "ask", "subscriber": name}:
                return self._ask(source, name, message, next_number)
            case {"kind": "parcel", "subscriber": name}:
                return self._take_state(now_us, source, name, message)
            case {"kind": "parcel has come", "subscriber": name, "epoch": epoch}:
                leaving = self._store.get(LEAVE + name)
                if leaving is not None and leaving["epoch"] == epoch:
                    self._store.delete(LEAVE + name)
                return ()
            case {"kind": "moved", "subscriber": name, "epoch": epoch, "to": to}:
                want = self._store.get(WANT + name)
                if want is None or want["epoch"] != epoch or to == self._me:
                    return ()
                asked = {**want, "from": to, "before": want["from"], "fresh": False}
                self._store.put(WANT + name, asked)
                # Between two that each say the other has it a parcel is under way: wait for it.
                return self.again(WANT + name) if to != want.get("before") else ()
            case {"kind": "stale", "subscriber": name, "epoch": epoch}:
                want = self._store.get(WANT + name)
                if want is not None and want["epoch"] == epoch:
                    self._store.delete(WANT + name)
                    behind = {"kind": "behind", "incarnation": want["incarnation"], "epoch": epoch}
                    # Whoever still is here has begun anew, and is to go on from a later epoch.
                    return CancelTimer(WANT + name), Send(want["address"], behind)
        return ()

    def again(self, timer: str) -> Sequence[Effect]:
        """Ask, or send a parcel, again."""
        waits = self._store.get(timer)
        if waits is None:
            return ()
        if timer.startswith(WANT):
            asked = {
                "kind": "ask",
                "subscriber": timer.removeprefix(WANT),
                "epoch": waits["epoch"],
                "fresh": waits["fresh"],
                "incarnation": waits["incarnation"],
            }
            return Send(waits["from"], asked), SetTimer(timer, _AGAIN_US)
        return Send(waits["to"], waits["parcel"]), SetTimer(timer, _AGAIN_US)

    def again_all(self) -> Sequence[Effect]:
        """Do so for all that waits."""
        keys = [key for prefix in (WANT, LEAVE) for key, _ in self._store.items(prefix)]
        return [effect for key in keys for effect in self.again(key)]

    def _attach(
        self, now_us: int, source: str, name: str, message: Mapping[str, Any], next_number: int
    ) -> Sequence[Effect]:
        epoch, incarnation = message["epoch"], message["incarnation"]
        agent, gone, before = self._agents.get(name), self._gone(name), self._store.get(WANT + name)
        others = [
            each["epoch"]
            for each in (agent.record if agent is not None else None, gone, before)
            if each is not None and each["incarnation"] not in ("", incarnation)
        ]
        if others and not self._lives(name, incarnation, epoch, max(others)):
            answer = {"kind": "behind", "incarnation": incarnation, "epoch": max(*others, epoch)}
            self._told_behind[name] = incarnation, max(*others, epoch)
            return (Send(source, answer),)
        begins = message["fresh"]
        if agent is not None:
            if epoch < agent.record["epoch"]:
                return ()
            is_its_own = agent.record["incarnation"] in ("", incarnation)
            if is_its_own or begins or message["from"] == self._me:
                return self._here(now_us, agent, source, epoch, message)
            self._forget(agent)  # the one that it was has stayed here
        if gone is not None and epoch <= gone["epoch"]:
            return ()
        if gone is not None and begins and gone["incarnation"] != incarnation:
            self._store.delete(_GONE + name)
            gone = None
        if before is not None and begins and before["incarnation"] != incarnation:
            self._store.delete(WANT + name)
            before = None
        is_known = gone is not None and gone["incarnation"] == incarnation
        origin = gone["to"] if gone is not None and is_known else message["from"]
        if origin == self._me:  # nobody has served it yet, or this one has lost nothing: it never did
            if not begins:
                return ()
            Agent.install(self._store, name, fresh(next_number))
            return self._here(now_us, self._begin(name), source, epoch, message)
        want = {
            "epoch": epoch,
            "from": origin,
            "address": source,
            "fresh": begins and not is_known,
            "report": message["report"],
            "automatic": message["automatic"],
            "incarnation": incarnation,
        }
        if before is not None and (before["epoch"], before["incarnation"]) == (epoch, incarnation):
            self._store.put(WANT + name, {**before, "address": source})
            return ()  # it is being asked for
        self._store.put(WANT + name, want)
        return self.again(WANT + name)

    def _lives(self, name: str, incarnation: str, epoch: int, known: int) -> bool:
        """Say whether a client has answered that it was behind: a late copy does not."""
        asked, at_least = self._told_behind.get(name, ("", 0))
        return asked == incarnation and epoch > max(at_least, known)

    def _forget(self, agent: Agent) -> None:
        agent.remove()
        del self._agents[agent.name]

    def _here(
        self, now_us: int, agent: Agent, source: str, epoch: int, message: Mapping[str, Any]
    ) -> Sequence[Effect]:
        incarnation = message["incarnation"]
        agent.belongs_to(incarnation)
        if (agent.record["epoch"], agent.record["address"]) != (epoch, source):
            agent.change(epoch=epoch, address=source)
        agent.reported(message["report"], message["automatic"])
        agent.is_away = False
        answer = {
            "kind": "attached",
            "incarnation": incarnation,
            "epoch": epoch,
            "report": agent.record["report"],
        }
        return [Send(source, answer), *agent.again(now_us)]

    def _ask(self, source: str, name: str, message: Mapping[str, Any], next_number: int) -> Sequence[Effect]:
        epoch, agent, gone = message["epoch"], self._agents.get(name), self._gone(name)
        if gone is not None and message["fresh"] and gone["incarnation"] != message["incarnation"]:
            gone = None  # of the one that it was
        if agent is None and gone is None:
            want = self._store.get(WANT + name)
            is_waited_for = want is not None and want["incarnation"] == message["incarnation"]
            if is_waited_for and want["from"] == source and want["epoch"] < epoch:
                self._store.delete(WANT + name)  # each wants it of the other: nobody has it
                is_waited_for = False
            if not message["fresh"] or is_waited_for:
                return ()  # it is on its way here: whoever asks will ask again
            Agent.install(self._store, name, fresh(next_number))
            agent = self._begin(name)
        question = {"subscriber": name, "epoch": epoch}
        if agent is None:
            assert gone is not None
            if epoch == gone["epoch"] and gone["to"] == source:
                return self.again(LEAVE + name)
            if epoch <= gone["epoch"]:
                return (Send(source, {"kind": "stale", **question}),)
            return (Send(source, {"kind": "moved", **question, "to": gone["to"]}),)
        is_another = agent.record["incarnation"] not in ("", message["incarnation"])
        if epoch <= agent.record["epoch"] or (is_another and not message["fresh"]):
            return (Send(source, {"kind": "stale", **question}),)
        state = {"kind": "parcel", **question, **agent.pack()}
        self._store.put(LEAVE + name, {"to": source, "epoch": epoch, "parcel": state})
        self._store.crash_point("packed, not gone")
        self._store.put(_GONE + name, {"to": source, "epoch": epoch, "incarnation": message["incarnation"]})
        self._forget(agent)
        return self.again(LEAVE + name)

    def _take_state(
        self, now_us: int, source: str, name: str, message: Mapping[str, Any]
    ) -> Sequence[Effect]:
        epoch, agent, gone = message["epoch"], self._agents.get(name), self._gone(name)
        answer = Send(source, {"kind": "parcel has come", "subscriber": name, "epoch": epoch})
        known = max(
            agent.record["epoch"] if agent is not None else 0, gone["epoch"] if gone is not None else 0
        )
        if epoch <= known:
            return (answer,)
        want = self._store.get(WANT + name)
        Agent.install(self._store, name, message)
        self._store.crash_point("unpacked, still wanted")
        self._store.delete(WANT + name)
        self._store.delete(_GONE + name)
        self._store.delete(LEAVE + name)  # it has come back: what was sent has arrived
        agent = self._begin(name)
        agent.change(epoch=epoch)
        if want is None or want["epoch"] < epoch:
            return (answer,)  # the client will say where it is
        return [
            answer,
            CancelTimer(WANT + name),
            *self._here(now_us, agent, want["address"], want["epoch"], want),
        ]

    def _gone(self, name: str) -> Any:
        return self._store.get(_GONE + name)
