"""Handing a subscriber over: its state and policy are at one access point, whoever dies in between.

Each attachment of a subscriber has a number, the epoch, which its client counts up when it goes to another
access point. What the access points say to each other, and what they do:

==========  ==========================================================================================
attach      mine, and not older: it is here. Known to have gone to another one: ask that one. Else ask
            the one that the client says has served it. Of another incarnation of the client than was
            served, and not newer: it is behind
behind      (the client) go on from this epoch
left        mine, of another incarnation than the client that says so, or older than the one that is
            served elsewhere: it is no more
ask         mine, and newer: it becomes a parcel, and goes; from now on it is gone to the other, with
            this epoch. Gone: tell where to. Never heard of, and the client has never been confirmed:
            an empty parcel; if it has been, its state is lost: missing. Older: tell so
parcel      newer than all that is known of this subscriber here: it is mine. In any case say that it
            has come
moved       ask the one that was told
missing     begin anew, with what was published since the other one has started again
stale       the client has gone on: want it no more
==========  ==========================================================================================

A device that was wiped counts its epochs from 1 again. Told that it is behind it goes on from the last epoch,
and who has the state goes on for it; where nobody knows it, it begins anew, and what is kept elsewhere of the
one that it was is over when the two meet.

A store may have been restored from a backup. Nobody is served after a start before its client has attached
again, and said which deliveries it has (:meth:`~mudkit.systems.sublim.servers.agent.Agent.confirm`); if the
client has been served elsewhere since the backup, that one is asked.

Everything but the messages is stored before they leave: whoever dies goes on where it was when it is there
again. An access point that is away keeps its subscribers' state until it is back; they wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, rolled_back
from mudkit.events import Effect, Ports, Send, size_bytes
from mudkit.systems.sublim.messages import (
    Ask,
    Attach,
    Attached,
    Automatic,
    Behind,
    Left,
    Missing,
    Moved,
    Stale,
    StateTransfer,
    StateTransferAck,
)
from mudkit.systems.sublim.servers.agent import Agent, fresh

__all__ = ["HANDOVER", "LEAVE", "WANT", "Handover", "Heard"]

HANDOVER: Final = "hand over"
"""The timer by which it is asked again, and state is sent again."""
WANT: Final = "want "
LEAVE: Final = "leave "
_GONE: Final = "gone "
_AGAIN_US: Final = 3_000_000
_MAX_UNHEARD: Final = 50
"""Messages that may have been published between a start and the first word of the publish server."""

Heard: TypeAlias = Attach | Left | Ask | StateTransfer | StateTransferAck | Moved | Stale | Missing


class _Want(Struct, frozen=True):
    """A subscriber that is to be served here, and is asked for.

    Parameters
    ----------
    epoch : int
        The number of its attachment.
    origin : str
        The access point that is asked.
    address : str
        Where the subscriber is.
    fresh : bool
        Whether nobody has served it, as far as it knows.
    report : int
    automatic : Automatic
    incarnation : str
    before : str or None
        The access point that was asked before.
    seen, policy : int or UNSET
        See :class:`Attach`.
    """

    epoch: int
    origin: str
    address: str
    fresh: bool
    report: int
    automatic: Automatic
    incarnation: str
    before: str | None = None
    seen: int | UnsetType = UNSET
    policy: int | UnsetType = UNSET


class _Leave(Struct, frozen=True):
    """State that is on its way to another access point."""

    to: str
    epoch: int
    state: StateTransfer


class _Gone(Struct, frozen=True):
    """Where a subscriber has gone."""

    to: str
    epoch: int
    incarnation: str


class Handover:
    """What an access point does about subscribers that come and go.

    Parameters
    ----------
    ports : Ports
    agents : dict of str to Agent
        Those of this access point; they are taken out of it.
    begin : callable
        Makes an agent of what is stored.
    log : Follower
        Position in the publish server's log: where somebody begins of whom nobody has heard.

    Attributes
    ----------
    start_us : int
        Time of this start.
    start_seq : int
        Last message that was published before, as the publish server has told first.
    """

    def __init__(
        self, ports: Ports, agents: dict[str, Agent], begin: Callable[[str], Agent], log: Follower
    ) -> None:
        self._log = log
        self._store = ports.store
        self._me = ports.address
        self._agents = agents
        self._begin = begin
        self.start_us = self.start_seq = 0
        self._told_behind: dict[str, tuple[str, int]] = {}
        self._unanswered: RetransmitTimer[str] = RetransmitTimer(HANDOVER, _AGAIN_US)
        """What was asked for and what was sent, by its key in the store."""

    def heard(self, now_us: int, source: str, message: Heard) -> Sequence[Effect]:
        """Take what a client or another access point says.

        Parameters
        ----------
        now_us : int
        source : str
            The address of who says it.
        message : struct
            What is said.
        """
        name = message.subscriber
        match message:
            case Attach():
                return self._attach(now_us, source, message)
            case Left(incarnation=incarnation, epoch=epoch):
                agent = self._agents.get(name)
                is_other = agent is not None and agent.record.incarnation != incarnation
                if agent is not None and (is_other or agent.record.epoch < epoch):
                    self._forget(agent)
                return ()
            case Ask():
                return self._ask(now_us, source, message)
            case StateTransfer():
                return self._take_state(now_us, source, message)
            case StateTransferAck(epoch=epoch):
                leaving = self._store.get(LEAVE + name, _Leave)
                if leaving is None or leaving.epoch != epoch:
                    return ()
                self._store.delete(LEAVE + name)
                return self._unanswered.answered(now_us, LEAVE + name)
            case Moved(epoch=epoch, to=to):
                want = self._want(name)
                if want is None or want.epoch != epoch:
                    return ()
                if to == self._me:
                    agent = self._agents.get(name)
                    return () if agent is None else self._found(now_us, agent, want)
                self._store.put(WANT + name, replace(want, origin=to, before=want.origin, fresh=False))
                # Between two that each say the other has it its state is under way: wait for it.
                return self._say(now_us, WANT + name) if to != want.before else ()
            case Stale(epoch=epoch):
                want = self._want(name)
                if want is None or want.epoch != epoch:
                    return ()
                self._store.delete(WANT + name)
                stop = self._unanswered.answered(now_us, WANT + name)
                # Whoever still is here has begun anew, and is to go on from a later epoch.
                return [*stop, Send(want.address, Behind(want.incarnation, epoch))]
            case Missing(epoch=epoch, start_us=start_us, start_seq=start_seq):
                want, agent = self._want(name), self._agents.get(name)
                if want is None or (want.epoch, want.origin) != (epoch, source):
                    return ()
                if agent is not None:
                    return self._found(now_us, agent, want)
                self._store.delete(WANT + name)
                stop = self._unanswered.answered(now_us, WANT + name)
                served = self._begin_anew(now_us, name, want.address, epoch, want, start_us, start_seq)
                return [*stop, *served]

    def has_lost(self, name: str) -> bool:
        """Return whether nothing is known of a subscriber."""
        return name not in self._agents and self._gone(name) is None and self._want(name) is None

    def again(self, now_us: int) -> Sequence[Effect]:
        """Ask, or send state, again: what should have been answered by now."""
        late = self._unanswered.overdue(now_us)
        effects = [effect for key in late for effect in self._say(now_us, key)]
        return [*effects, *self._unanswered.fired(now_us)]

    def again_all(self, now_us: int) -> Sequence[Effect]:
        """Do so for all that waits."""
        keys = [key for prefix in (WANT, LEAVE) for key in self._store.keys(prefix)]
        return [effect for key in keys for effect in self._say(now_us, key)]

    def _say(self, now_us: int, key: str) -> Sequence[Effect]:
        """Ask for a subscriber, or send its state, until that is answered."""
        want = self._store.get(key, _Want) if key.startswith(WANT) else None
        leave = self._store.get(key, _Leave) if key.startswith(LEAVE) else None
        if want is not None:
            name = key.removeprefix(WANT)
            sent = Send(want.origin, Ask(name, want.epoch, want.fresh, want.incarnation))
        elif leave is not None:
            sent = Send(leave.to, leave.state)
        else:
            return self._unanswered.answered(now_us, key)
        return sent, *self._unanswered.sent(now_us, key, size_bytes(sent.message))

    def _want(self, name: str) -> _Want | None:
        return self._store.get(WANT + name, _Want)

    def _gone(self, name: str) -> _Gone | None:
        return self._store.get(_GONE + name, _Gone)

    def _attach(self, now_us: int, source: str, message: Attach) -> Sequence[Effect]:
        name, epoch, incarnation = message.subscriber, message.epoch, message.incarnation
        agent, gone, before = self._agents.get(name), self._gone(name), self._want(name)
        others = [
            each.epoch
            for each in (agent.record if agent is not None else None, gone, before)
            if each is not None and each.incarnation not in ("", incarnation)
        ]
        if others and not self._lives(name, incarnation, epoch, max(others)):
            self._told_behind[name] = incarnation, max(*others, epoch)
            return (Send(source, Behind(incarnation, max(*others, epoch))),)
        begins = message.fresh
        if agent is not None:
            if epoch < agent.record.epoch:  # a late copy, or the client was restored
                return (Send(source, Behind(incarnation, agent.record.epoch)),)
            is_its_own = agent.record.incarnation in ("", incarnation)
            is_mine = begins or message.origin == self._me
            # It may have been served elsewhere since a backup.
            is_old = not agent.is_confirmed and epoch > agent.record.epoch and not is_mine
            if (is_its_own or is_mine) and not is_old:
                return self._here(now_us, agent, source, epoch, message)
            if not is_old:
                self._forget(agent)  # the one that it was has stayed here
        if gone is not None and epoch <= gone.epoch:
            return (Send(source, Behind(incarnation, gone.epoch)),)
        if gone is not None and begins and gone.incarnation != incarnation:
            self._store.delete(_GONE + name)
            gone = None
        if before is not None and begins and before.incarnation != incarnation:
            self._store.delete(WANT + name)
            before = None
        is_known = gone is not None and gone.incarnation == incarnation
        origin = gone.to if gone is not None and is_known else message.origin
        if origin == self._me:  # nobody has served it yet, or this one has lost nothing: it never did
            if not begins:
                if gone is not None or before is not None:
                    return ()
                start = self.start_us, self.start_seq
                return self._begin_anew(now_us, name, source, epoch, message, *start)
            Agent.install(self._store, name, fresh(name, epoch, self._log))
            return self._here(now_us, self._begin(name), source, epoch, message)
        if before is not None and (before.epoch, before.incarnation) == (epoch, incarnation):
            self._store.put(WANT + name, replace(before, address=source))
            return ()  # it is being asked for
        want = _Want(
            epoch, origin, source, begins and not is_known, message.report, message.automatic, incarnation,
            seen=message.seen, policy=message.policy,
        )  # fmt: skip
        self._store.put(WANT + name, want)
        return self._say(now_us, WANT + name)

    def _lives(self, name: str, incarnation: str, epoch: int, known: int) -> bool:
        """Say whether a client has answered that it was behind: a late copy does not."""
        asked, at_least = self._told_behind.get(name, ("", 0))
        return asked == incarnation and epoch > max(at_least, known)

    def _begin_anew(
        self,
        now_us: int,
        name: str,
        source: str,
        epoch: int,
        told: Attach | _Want,
        start_us: int,
        start_seq: int,
    ) -> Sequence[Effect]:
        """Serve a subscriber whose state is lost, with what was published since a start."""
        state = fresh(name, epoch, self._log)
        first_seq = min(max(start_seq - _MAX_UNHEARD, 0) + 1, state.record.next_seq)
        seen = 0 if told.seen is UNSET else told.seen
        Agent.install(
            self._store, name, replace(state, record=replace(state.record, next_seq=first_seq, last_seq=seen))
        )
        agent = self._begin(name)
        served = self._here(now_us, agent, source, epoch, told)
        agent.change(replace(agent.record, since_us=start_us))
        return [rolled_back(name, "no access point knows what it has kept for it"), *served]

    def _found(self, now_us: int, agent: Agent, want: _Want) -> Sequence[Effect]:
        """Serve a subscriber whose state is here after all."""
        self._store.delete(WANT + agent.name)
        stop = self._unanswered.answered(now_us, WANT + agent.name)
        return [*stop, *self._here(now_us, agent, want.address, want.epoch, want)]

    def _forget(self, agent: Agent) -> None:
        agent.remove()
        del self._agents[agent.name]

    def _here(
        self, now_us: int, agent: Agent, source: str, epoch: int, told: Attach | _Want
    ) -> Sequence[Effect]:
        agent.belongs_to(told.incarnation)
        if (agent.record.epoch, agent.record.address) != (epoch, source):
            agent.change(replace(agent.record, epoch=epoch, address=source))
        agent.reported(told.report, told.automatic)
        agent.is_away = False
        lost = agent.confirm(now_us, 0 if told.seen is UNSET else told.seen)
        is_behind = told.policy is not UNSET and agent.record.policy < told.policy
        policy = agent.record.policy if is_behind else UNSET
        attached = Attached(told.incarnation, epoch, agent.record.report, policy)
        return [*lost, Send(source, attached), *agent.again(now_us)]

    def _ask(self, now_us: int, source: str, message: Ask) -> Sequence[Effect]:
        name, epoch = message.subscriber, message.epoch
        agent, gone = self._agents.get(name), self._gone(name)
        if gone is not None and message.fresh and gone.incarnation != message.incarnation:
            gone = None  # of the one that it was
        if agent is None and gone is None:
            want = self._want(name)
            is_waited_for = want is not None and want.incarnation == message.incarnation
            is_mutual = want is not None and want.origin == source and want.epoch < epoch
            if is_mutual and is_waited_for and message.fresh:
                self._store.delete(WANT + name)  # each wants it of the other: nobody has it
                is_waited_for = False
            if is_waited_for or (want is not None and not message.fresh):
                return ()  # it is on its way here: whoever asks will ask again
            if not message.fresh:
                return (Send(source, Missing(name, epoch, self.start_us, self.start_seq)),)
            Agent.install(self._store, name, fresh(name, epoch, self._log))
            agent = self._begin(name)
        if agent is None:
            assert gone is not None
            if epoch == gone.epoch and gone.to == source:
                return self._say(now_us, LEAVE + name)
            if epoch <= gone.epoch:
                return (Send(source, Stale(name, epoch)),)
            return (Send(source, Moved(name, epoch, gone.to)),)
        is_another = agent.record.incarnation not in ("", message.incarnation)
        if epoch <= agent.record.epoch or (is_another and not message.fresh):
            return (Send(source, Stale(name, epoch)),)
        self._store.put(LEAVE + name, _Leave(source, epoch, agent.pack(epoch)))
        self._store.crash_point("packed, not gone")
        self._store.put(_GONE + name, _Gone(source, epoch, message.incarnation))
        self._forget(agent)
        return self._say(now_us, LEAVE + name)

    def _take_state(self, now_us: int, source: str, message: StateTransfer) -> Sequence[Effect]:
        name, epoch = message.subscriber, message.epoch
        agent, gone = self._agents.get(name), self._gone(name)
        answer = Send(source, StateTransferAck(name, epoch))
        known = max(agent.record.epoch if agent is not None else 0, gone.epoch if gone is not None else 0)
        if epoch <= known:
            return (answer,)
        want = self._want(name)
        if agent is not None:
            self._forget(agent)
        Agent.install(self._store, name, message)
        self._store.crash_point("unpacked, still wanted")
        stop: list[Effect] = []
        for key in (WANT + name, LEAVE + name):  # if it has come back, what was sent has arrived
            self._store.delete(key)
            stop += self._unanswered.answered(now_us, key)
        self._store.delete(_GONE + name)
        agent = self._begin(name)
        agent.change(replace(agent.record, epoch=epoch))
        if want is None or want.epoch < epoch:
            return [answer, *stop]  # the client will say where it is
        return [answer, *stop, *self._here(now_us, agent, want.address, want.epoch, want)]
