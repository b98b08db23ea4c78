"""A subscriber's agent on an access point: state, policy, and what waits to be delivered (section 4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Follower, Lineage, rolled_back, shared_seq
from mudkit.events import Effect, Record, Send, Store, size_bytes
from mudkit.systems.sublim._policy.function import FunctionPolicy
from mudkit.systems.sublim._policy.policy import Policy
from mudkit.systems.sublim._policy.verdict import SENT, STOPPED, Verdict
from mudkit.systems.sublim.messages import (
    Automatic,
    Body,
    Deliver,
    Entry,
    Kept,
    PolicyText,
    Published,
    StateTransfer,
)

__all__ = ["AGAIN", "WAITING", "WINDOW", "Agent", "AnyPolicy", "fresh"]

WINDOW: Final = 8
"""So many messages are on their way to a device at a time; the others wait, and move with the state."""
WAITING: Final = 5_000
"""So many messages wait for a device that is away; beyond, the oldest goes."""
AGAIN: Final = "again "
_SHOWN: Final = 200

AnyPolicy = Policy | FunctionPolicy


def fresh(subscriber: str, epoch: int, log: Follower) -> StateTransfer:
    """Return the state of a subscriber of whom nobody has heard: the next message is the first."""
    kept = Kept(
        epoch=0, address="", report=0, automatic=Automatic(), variables={}, next_seq=(log.last_seq or 0) + 1,
        last_seq=0, policy=0, stopped=0, skipped=0, incarnation="", lineage=log.lineage or UNSET,
    )  # fmt: skip
    return StateTransfer(subscriber, epoch, kept, None, [])


class Agent:
    """One subscriber's, as long as this access point serves it.

    Parameters
    ----------
    store : Store
    name : str
        The name of the subscriber.
    policy : Policy or FunctionPolicy or None
        None: everything is sent as it is.
    """

    def __init__(self, store: Store, name: str, policy: AnyPolicy | None) -> None:
        self._store = store
        self.name = name
        self.policy = policy
        record = store.get(f"agent {name}", Kept)
        assert record is not None, "whoever makes an agent has installed it"
        self.record: Kept = record
        self._waiting = deque(entry for _, entry in store.items(f"out {name}\n", Entry))
        self._on_way: RetransmitTimer[int] = RetransmitTimer(AGAIN + name)
        """The first of those that wait: they were sent, and nobody has confirmed them."""
        self.is_away = False
        self.is_confirmed = True
        """False: its client has not attached since a start of this access point, whose store may be old."""

    @property
    def waiting(self) -> int:
        """Number of messages that wait for its subscriber."""
        return len(self._waiting)

    @staticmethod
    def install(store: Store, name: str, state: StateTransfer) -> None:
        """Store what a state transfer brings."""
        store.put(f"agent {name}", state.record)
        if state.policy is None:
            store.delete(f"policy {name}")
        else:
            store.put(f"policy {name}", state.policy)
        for entry in state.out:
            store.put(_key(name, entry.seq), entry)

    def pack(self, epoch: int) -> StateTransfer:
        """Give all that moves with the subscriber."""
        policy = self._store.get(f"policy {self.name}", dict)
        return StateTransfer(self.name, epoch, self.record, policy, list(self._waiting))

    def remove(self) -> None:
        """Forget it: it is a state transfer now."""
        self._store.delete(f"agent {self.name}")
        self._store.delete(f"policy {self.name}")
        for entry in self._waiting:
            self._store.delete(_key(self.name, entry.seq))

    def change(self, record: Kept) -> None:
        """Keep another record."""
        self.record = record
        self._store.put(f"agent {self.name}", record)

    def reported(self, seq: int, automatic: Automatic) -> None:
        """Store automatic variables, unless newer ones are known; a restored client may repeat a number."""
        if seq > self.record.report or (seq == self.record.report and automatic != self.record.automatic):
            self.change(replace(self.record, report=seq, automatic=automatic))

    def belongs_to(self, incarnation: str) -> None:
        """Go on for another incarnation of the client, which counts its reports and policies from 1."""
        if incarnation != self.record.incarnation:
            self.change(replace(self.record, incarnation=incarnation, report=0, policy=0))

    def has_used(self, seq: int, sent: PolicyText) -> bool:
        """Return whether a number is of another policy: the client was restored, or it is a late copy."""
        is_last = seq == self.record.policy and sent == self._store.get(f"policy {self.name}", dict)
        return 0 < seq <= self.record.policy and not is_last

    def use(self, seq: int, sent: PolicyText, policy: AnyPolicy) -> None:
        """Decide by another policy from the next message on; it begins with its own first variables."""
        self.policy = policy
        self._store.put(f"policy {self.name}", sent)
        self.change(replace(self.record, policy=seq, variables=dict(policy.variables), stopped=0))

    def suspend(self, now_us: int) -> None:
        """Decide and deliver nothing until the client has attached: the store may be an old one."""
        self.is_confirmed = False
        if self.record.since_us is UNSET:
            self.change(replace(self.record, since_us=now_us))

    def confirm(self, now_us: int, seen: int) -> Sequence[Effect]:
        """Continue for a client that has deliveries up to a number.

        If these are more than were made here, the store is an old one: only messages that were published
        after the start are decided about.
        """
        record, self.is_confirmed = self.record, True
        if seen <= record.last_seq:
            if record.since_us is not UNSET:
                self.change(replace(record, since_us=UNSET))
            return ()
        effects: list[Effect] = []
        while self._waiting:
            effects += self._drop_first(now_us)
        self.change(replace(record, last_seq=seen))
        lost = rolled_back(
            self.name, f"its access point does not know deliveries {record.last_seq + 1} to {seen}"
        )
        return [lost, *effects]

    def follow(self, lineage: Lineage, last_seq: int) -> Sequence[Effect]:
        """Resume in the publish server's log, which may have been restored from a backup."""
        before: Lineage = {} if self.record.lineage is UNSET else self.record.lineage
        if before == lineage:
            return ()
        known_seq = self.record.next_seq - 1
        shared = shared_seq(before, known_seq, lineage, last_seq)
        self.change(replace(self.record, next_seq=shared + 1, lineage=lineage or UNSET))
        if shared == known_seq:
            return ()
        return (rolled_back("publish server", f"messages {shared + 1} to {known_seq} are gone"),)

    def skip(self, first_seq: int) -> None:
        """Take note that messages before a number are no longer to be had."""
        missed = first_seq - self.record.next_seq
        if missed > 0:
            self.change(replace(self.record, next_seq=first_seq, skipped=self.record.skipped + missed))

    def decide(self, now_us: int, message: Published) -> Sequence[Effect]:
        """Decide about the next message; what is to be sent waits behind what was decided before."""
        record = self.record
        if record.since_us is not UNSET:
            if message.created_us < record.since_us:
                self.skip(message.seq + 1)
                return ()
            record = replace(record, since_us=UNSET)
        verdict = self.verdict(message.body, message.at_s)
        stopped = record.stopped + (verdict.outcome == STOPPED)
        entry = None
        effects: list[Effect] = []
        if verdict.outcome == STOPPED:
            detail = f"policy of {self.name}: {verdict.problem}"[:_SHOWN]
            effects.append(Record("incidents", {"incident": "failed", "detail": detail}))
        if verdict.outcome == SENT and verdict.out is not None:
            entry = Entry(record.last_seq + 1, message.item, dict(verdict.out))
            effects.append(delivery(message.item, self.name, created_us=message.created_us))
        elif verdict.outcome == STOPPED and stopped == 1:  # told once: a policy may fail for every message
            entry = Entry(record.last_seq + 1, message.item, problem=str(verdict.problem))
        self.change(
            replace(
                record,
                next_seq=message.seq + 1,
                variables=dict(verdict.variables),
                stopped=stopped,
                last_seq=record.last_seq + (entry is not None),
            )
        )
        self._store.crash_point("decided, not in the queue")
        if entry is None:
            return effects
        return [*effects, *self._put(now_us, entry), *self.deliver(now_us)]

    def verdict(self, body: Body, at_s: float) -> Verdict:
        """Say what would be decided about a message now."""
        if self.policy is None:
            return Verdict(SENT, dict(body), None, self.record.variables)
        return self.policy.decide(body, self.record.variables, self.record.automatic.known(), at_s)

    def deliver(self, now_us: int) -> Sequence[Effect]:
        """Send what the window has room for."""
        effects: list[Effect] = []
        while self.is_confirmed and not self.is_away and len(self._on_way) < min(WINDOW, len(self._waiting)):
            effects += self._send(now_us, self._waiting[len(self._on_way)])
        return effects

    def again(self, now_us: int) -> Sequence[Effect]:
        """Send what waits again, from the first on: the device is there."""
        return self._on_way.clear() if self.is_away else [*self._on_way.clear(), *self.deliver(now_us)]

    def overdue(self, now_us: int) -> Sequence[Effect]:
        """Send again what should have been confirmed, and what follows it: the device took none of it."""
        if self.is_away:
            return self._on_way.clear()
        late = self._on_way.overdue(now_us)
        effects: list[Effect] = []
        for entry in list(self._waiting)[: len(self._on_way)] if late else ():
            if entry.seq >= min(late):
                effects += self._send(now_us, entry)
        return [*effects, *self._on_way.fired(now_us)]

    def acked(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Forget what the device has, and go on."""
        effects: list[Effect] = []
        while self._waiting and self._waiting[0].seq <= seq:
            effects += self._drop_first(now_us)
        return [*effects, *self.deliver(now_us)]

    def _send(self, now_us: int, entry: Entry) -> Sequence[Effect]:
        first = self._waiting[0].seq
        message = Deliver(self.name, first, entry.seq, entry.item, entry.body, entry.problem)
        due = self._on_way.sent(now_us, entry.seq, size_bytes(message))
        return Send(self.record.address, message), *due

    def _put(self, now_us: int, entry: Entry) -> Sequence[Effect]:
        effects: Sequence[Effect] = ()
        if len(self._waiting) >= WAITING:
            effects = self._drop_first(now_us)
            self.change(replace(self.record, skipped=self.record.skipped + 1))
        self._waiting.append(entry)
        self._store.put(_key(self.name, entry.seq), entry)
        return effects

    def _drop_first(self, now_us: int) -> Sequence[Effect]:
        gone = self._waiting.popleft()
        self._store.delete(_key(self.name, gone.seq))
        return self._on_way.answered(now_us, gone.seq)


def _key(name: str, seq: int) -> str:
    return f"out {name}\n{seq:012d}"
