"""Agent of a subscriber at an access point: state, policy, and queue of deliveries (SUBLIM, section 4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import (
    Follower,
    Lineage,
    resume_lsn,
    rollback_incident,
    shared_lsn,
    taken_by_incarnation,
)
from mudkit.events import Effect, Record, Send, Store, size_bytes
from mudkit.systems.sublim._policy.function import FunctionPolicy
from mudkit.systems.sublim._policy.policy import Policy
from mudkit.systems.sublim._policy.verdict import SENT, STOPPED, Verdict
from mudkit.systems.sublim.messages import (
    Automatic,
    Body,
    Deliver,
    PolicyText,
    PublishedMessage,
    QueueEntry,
    StateTransfer,
    SubscriberRecord,
)

WINDOW: Final = 8
"""Maximum number of deliveries in flight to a device; the others are queued, and move with the state."""
MAX_QUEUED: Final = 5_000
"""Capacity of the queue of a device that is away; beyond, the oldest delivery is dropped."""
AGAIN: Final = "again "
_SHOWN: Final = 200

AnyPolicy = Policy | FunctionPolicy


def build_initial_state(subscriber: str, epoch: int, log: Follower) -> StateTransfer:
    """Return the state of a subscriber that no access point knows: it starts at the next message."""
    kept = SubscriberRecord(
        epoch=0, address="", report=0, automatic=Automatic(), variables={}, next_lsn=(log.last_lsn or 0) + 1,
        last_seq=0, policy=0, stopped=0, skipped=0, store_id="", lineage=log.lineage or UNSET,
    )  # fmt: skip
    return StateTransfer(subscriber, epoch, kept, None, [])


class Agent:
    """Agent of one subscriber. Without a policy, it sends every message unchanged."""

    def __init__(self, store: Store, name: str, policy: AnyPolicy | None) -> None:
        self._store = store
        self.name = name
        self.policy = policy
        record = store.get(f"agent {name}", SubscriberRecord)
        assert record is not None, "installed before"
        self.record: SubscriberRecord = record
        self._queue = deque(entry for _, entry in store.items(f"out {name}\n", QueueEntry))
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(AGAIN + name)
        """Deliveries in flight: the first ones of the queue."""
        self.is_away = False
        self.session: str | UnsetType = UNSET
        """Session of the client, see :class:`~mudkit.systems.sublim.messages.Attached`."""
        self.is_confirmed = True
        """False until the client attaches after a start, because the store may be outdated."""
        self._suspended_us = 0

    @property
    def queue_length(self) -> int:
        """Length of the queue."""
        return len(self._queue)

    @staticmethod
    def store_state(store: Store, name: str, state: StateTransfer) -> None:
        """Store a state, as a transfer has it, before the agent of this subscriber is created."""
        store.put(f"agent {name}", state.record)
        if state.policy is None:
            store.delete(f"policy {name}")
        else:
            store.put(f"policy {name}", state.policy)
        for entry in state.out:
            store.put(_queue_key(name, entry.seq), entry)

    def export_state(self, epoch: int) -> StateTransfer:
        """Return the state, the policy and the queue for a transfer to another access point."""
        policy = self._store.get(f"policy {self.name}", dict)
        return StateTransfer(self.name, epoch, self.record, policy, list(self._queue))

    def delete_state(self) -> None:
        """Delete the stored state, policy and queue: this access point stops serving the subscriber."""
        self._store.delete(f"agent {self.name}")
        self._store.delete(f"policy {self.name}")
        for entry in self._queue:
            self._store.delete(_queue_key(self.name, entry.seq))

    def update_record(self, record: SubscriberRecord) -> None:
        """Replace the record, in memory and in the store."""
        self.record = record
        self._store.put(f"agent {self.name}", record)

    def record_report(self, seq: int, automatic: Automatic) -> None:
        """Store automatic variables unless newer ones are known; a restored client may reuse a number."""
        if seq > self.record.report or (seq == self.record.report and automatic != self.record.automatic):
            self.update_record(replace(self.record, report=seq, automatic=automatic))

    def set_store_id(self, store_id: str) -> None:
        """Serve another store of the client, which numbers its reports and policies from 1."""
        if store_id != self.record.store_id:
            self.update_record(replace(self.record, store_id=store_id, report=0, policy=0))

    def is_number_used(self, seq: int, sent: PolicyText) -> bool:
        """Return whether another policy has this number: the client was restored, or it is a late copy."""
        is_last = seq == self.record.policy and sent == self._store.get(f"policy {self.name}", dict)
        return 0 < seq <= self.record.policy and not is_last

    def set_policy(self, seq: int, sent: PolicyText, policy: AnyPolicy) -> None:
        """Set the policy, starting at the next message, with its initial variables."""
        self.policy = policy
        self._store.put(f"policy {self.name}", sent)
        self.update_record(replace(self.record, policy=seq, variables=dict(policy.variables), stopped=0))

    def suspend(self, now_us: int) -> None:
        """Stop deciding and delivering until the client attaches: the store may be outdated."""
        self.is_confirmed, self._suspended_us = False, now_us

    def confirm(self, now_us: int, seen: int) -> Sequence[Effect]:
        """Resume for a client that has the deliveries up to ``seen``.

        If this state has made fewer, it is an old one: only messages published after :meth:`suspend` are
        decided.
        """
        record, self.is_confirmed = self.record, True
        if seen <= record.last_seq:
            return ()
        effects: list[Effect] = []
        while self._queue:
            effects += self._drop_first(now_us)
        self.update_record(replace(record, last_seq=seen, since_us=self._suspended_us))
        lost = rollback_incident(
            self.name, f"its access point does not know deliveries {record.last_seq + 1} to {seen}"
        )
        return [lost, *effects]

    def follow_log(self, lineage: Lineage, last_lsn: int) -> tuple[int, int]:
        """Resume in the publish server's log, which may have been restored from a backup.

        Return the last position that both logs share, and the last one known.
        """
        record, known_lsn = self.record, self.record.next_lsn - 1
        before: Lineage = {} if record.lineage is UNSET else record.lineage
        if before == lineage:
            return known_lsn, known_lsn
        shared = shared_lsn(before, known_lsn, lineage, last_lsn)
        taken = taken_by_incarnation(before, known_lsn, {} if record.taken is UNSET else record.taken)
        next_lsn = resume_lsn(shared, taken, lineage, last_lsn) + 1
        self.update_record(replace(record, next_lsn=next_lsn, lineage=lineage or UNSET, taken=taken or UNSET))
        return shared, known_lsn

    def skip_to(self, first_lsn: int) -> None:
        """Skip and count the messages before ``first_lsn``: deleted ones, and those before ``since_us``."""
        missed = first_lsn - self.record.next_lsn
        if missed > 0:
            self.update_record(replace(self.record, next_lsn=first_lsn, skipped=self.record.skipped + missed))

    def decide(self, now_us: int, message: PublishedMessage) -> Sequence[Effect]:
        """Apply the policy to the next message; queue what it sends."""
        record = self.record
        if record.since_us is not UNSET:
            if message.created_us < record.since_us:
                self.skip_to(message.lsn + 1)
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
            entry = QueueEntry(record.last_seq + 1, message.item, dict(verdict.out))
            effects.append(delivery(message.item, self.name, created_us=message.created_us))
        elif (
            verdict.outcome == STOPPED and stopped == 1
        ):  # reported once: a policy may fail for every message
            entry = QueueEntry(record.last_seq + 1, message.item, problem=str(verdict.problem))
        self.update_record(
            replace(
                record,
                next_lsn=message.lsn + 1,
                variables=dict(verdict.variables),
                stopped=stopped,
                last_seq=record.last_seq + (entry is not None),
            )
        )
        self._store.crash_point("decided, not in the queue")
        if entry is None:
            return effects
        return [*effects, *self._add_to_queue(now_us, entry), *self.deliver(now_us)]

    def verdict(self, body: Body, at_s: float) -> Verdict:
        """Return the decision of the policy on a message in the present state, which is not changed."""
        if self.policy is None:
            return Verdict(SENT, dict(body), None, self.record.variables)
        return self.policy.decide(body, self.record.variables, self.record.automatic.known(), at_s)

    def deliver(self, now_us: int) -> Sequence[Effect]:
        """Send queued deliveries while the window has room.

        None are sent until the client has attached, or while it is away.
        """
        effects: list[Effect] = []
        while self.is_confirmed and not self.is_away and len(self._in_flight) < min(WINDOW, len(self._queue)):
            effects += self._send(now_us, self._queue[len(self._in_flight)])
        return effects

    def restart_deliveries(self, now_us: int) -> Sequence[Effect]:
        """Send the first deliveries of the queue again, or none if the device is away."""
        return self._in_flight.clear() if self.is_away else [*self._in_flight.clear(), *self.deliver(now_us)]

    def retransmit_overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit overdue deliveries and all later ones, which the device cannot have taken."""
        if self.is_away:
            return self._in_flight.clear()
        late = self._in_flight.overdue(now_us)
        effects: list[Effect] = []
        for entry in list(self._queue)[: len(self._in_flight)] if late else ():
            if entry.seq >= min(late):
                effects += self._send(now_us, entry)
        return [*effects, *self._in_flight.restart(now_us)]

    def acknowledge(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Remove the deliveries up to ``seq`` from the queue, and send the next ones."""
        effects: list[Effect] = []
        while self._queue and self._queue[0].seq <= seq:
            effects += self._drop_first(now_us)
        return [*effects, *self.deliver(now_us)]

    def _send(self, now_us: int, entry: QueueEntry) -> Sequence[Effect]:
        """Send one delivery of the queue, and start its deadline."""
        first = self._queue[0].seq
        message = Deliver(self.name, first, entry.seq, entry.item, entry.body, entry.problem, self.session)
        due = self._in_flight.start(now_us, entry.seq, size_bytes(message))
        return Send(self.record.address, message), *due

    def _add_to_queue(self, now_us: int, entry: QueueEntry) -> Sequence[Effect]:
        """Append and store a delivery; drop the oldest one if the queue is full."""
        effects: Sequence[Effect] = ()
        if len(self._queue) >= MAX_QUEUED:
            effects = self._drop_first(now_us)
            self.update_record(replace(self.record, skipped=self.record.skipped + 1))
        self._queue.append(entry)
        self._store.put(_queue_key(self.name, entry.seq), entry)
        return effects

    def _drop_first(self, now_us: int) -> Sequence[Effect]:
        """Remove the oldest delivery from the queue, the store and those in flight."""
        dropped = self._queue.popleft()
        self._store.delete(_queue_key(self.name, dropped.seq))
        return self._in_flight.settle(now_us, dropped.seq)


def _queue_key(name: str, seq: int) -> str:
    """Return the store key of a delivery."""
    return f"out {name}\n{seq:012d}"
