"""Subscription of a device at the server: its spool, durable state, quiet hours and deliveries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from mudkit.delivery.records import delivery
from mudkit.delivery.stream import Outgoing
from mudkit.events import Effect, SetTimer, Store
from mudkit.systems.lasthop.messages import (
    Body,
    Content,
    Dropped,
    Forwarded,
    HasRead,
    RankChange,
    ReadComplete,
    Retraction,
    Shown,
    ShowRequest,
    SubscriptionFields,
)
from mudkit.systems.lasthop.spool.predictor import Observed, Predictor
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, Message
from mudkit.systems.lasthop.spool.served import ServedSpool
from mudkit.systems.lasthop.subscription import Subscription

_DAY_US: Final = 86_400_000_000
_MAX_LOW: Final = 1000
"""Maximum number of stored messages below the threshold, whose rank may rise."""


class StoredSubscription(msgspec.Struct, frozen=True):
    """A subscription in the store; ``subscribed_seq`` is the number of the fact by which it began."""

    subscribed_seq: int = msgspec.field(name="run")
    fields: SubscriptionFields = msgspec.field(name="wanted")


class _StoredMessage(msgspec.Struct, frozen=True):
    """A message at or above the threshold, as stored; the spool knows whether it waits or was forwarded."""

    rank: float
    order: int
    arrived_us: int
    expires_us: int
    content: Content


class _LowMessage(msgspec.Struct, frozen=True):
    """A message below the threshold, whose rank may rise."""

    rank: float
    expires_us: int
    content: Content


class _StoredState(msgspec.Struct, frozen=True):
    """Durable state of a subscription besides its messages.

    ``reads`` has time and size of recent reads, ``demands`` how many messages they could use; ``shown``
    is the number of messages shown on a ``day``, ``due`` the number that may be shown since the last delivery
    (None: unlimited). ``lost`` names messages on the device that a rolled back spool does not have;
    ``observed`` is what the policy ``predict`` is based on.
    """

    reads: list[tuple[int, int]] = []
    demands: list[int] = []
    day: int = 0
    shown: int = 0
    due: float | None = 0
    last_order: int = msgspec.field(name="last", default=0)
    lost: list[str] = []
    observed: Observed | None = None


class UnacknowledgedItems(NamedTuple):
    """Unacknowledged items of one subscription by what became of them, when its device resumes the stream."""

    arrived: list[str]
    lost: list[str]
    updates: list[RankChange | Retraction]

    @classmethod
    def of(
        cls, stream: Outgoing[Body], last_seq: int, topic: str, subscribed_seq: int
    ) -> UnacknowledgedItems:
        """Return what became of them in a stream of which the device has received all up to ``last_seq``.

        Messages up to it have arrived, later ones are lost, and later changes of ranks and retractions are to
        be sent again.
        """
        items = cls([], [], [])
        for seq, _, body in stream.pending:
            if body.topic != topic or body.subscribed_seq != subscribed_seq:
                continue
            if isinstance(body, Forwarded):
                (items.arrived if seq <= last_seq else items.lost).append(body.id)
            elif seq > last_seq and isinstance(body, RankChange | Retraction):
                items.updates.append(body)
        return items


class ServerSubscription:
    """Subscription of one device to one topic; ``subscribed_seq`` is the number of the fact that began it."""

    def __init__(
        self, store: Store, now_us: int, device: str, subscribed_seq: int, subscription: Subscription,
        capacity: int, start_of_day_us: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._capacity, self._start_of_day_us = capacity, start_of_day_us
        self.device, self.topic, self.subscribed_seq = device, subscription.topic, subscribed_seq
        self._key = f"{device}\n{self.topic}"
        self._pending: list[Body] = []
        """Items to send to the device, in order."""
        self._contents: dict[str, Content] = {}
        low = store.items(f"low {self._key}\n", _LowMessage)
        self._low = {key.rsplit("\n", 1)[1]: message for key, message in low}
        state = store.get(f"state {self._key}", _StoredState) or _StoredState()
        self._day, self._shown = state.day, state.shown
        self._due = math.inf if state.due is None else state.due
        self._lost = set(state.lost)
        self._showing: set[str] = set()
        """Messages that the device was asked to show, until it reports them."""
        self._is_showing = False
        self._records: list[Effect] = []
        self._timer_us: int | None = None
        self._now_us = now_us
        self._start_spool(subscription)
        stored = store.items(f"message {self._key}\n", _StoredMessage)
        messages = [self._restore_message(key.rsplit("\n", 1)[1], message) for key, message in stored]
        demands = state.demands or [0] * len(state.reads)  # none were stored before version 0.3
        reads = [(*read, demand) for read, demand in zip(state.reads, demands, strict=True)]
        self._restore_observed(state.observed)
        self.spool.restore(now_us, sorted(messages, key=_arrival_order), reads, state.last_order)

    def take_pending(self) -> list[Body]:
        """Return the items to send to the device, once; lost ones are resent after its next hello."""
        pending, self._pending = self._pending, []
        return pending

    # -- from publishers and the device

    def subscribe(self, now_us: int, subscription: Subscription) -> None:
        """Change the limits: retract messages that they exclude, add those whose rank suffices now."""
        self._now_us = now_us
        before, messages = self.spool, self.spool.all()
        self._start_spool(subscription)
        self.spool.room = before.room
        on_device = [message.identity for message in messages if before.is_on_device(message.identity)]
        acceptable = [message for message in messages if message.rank >= subscription.threshold]
        self._restore_observed(None if before.predictor is None else before.predictor.observed)
        arrived = sorted(acceptable, key=_arrival_order)
        self.spool.restore(now_us, arrived, before.habits.reads, before.last_order)
        self.spool.remember_finished(before)
        for message in messages:
            if message.rank < subscription.threshold:
                self._finish(message)
        for unknown in self.spool.reconcile(now_us, on_device):
            self._pending.append(Retraction(self.topic, self.subscribed_seq, str(unknown)))
        self.spool.network(now_us, is_up=before.is_up)
        self._add_risen()

    def _start_spool(self, subscription: Subscription) -> None:
        """Store the subscription, and begin with an empty spool of its limits."""
        self.subscription = subscription
        self._store.put(
            f"sub {self._key}", StoredSubscription(self.subscribed_seq, SubscriptionFields.of(subscription))
        )
        self.spool = ServedSpool(
            subscription.threshold,
            subscription.forwarding,
            self._forward,
            self._retract,
            self._finish,
            capacity=self._capacity,
        )
        self._set_interrupt()

    def _restore_observed(self, observed: Observed | None) -> None:
        """Restore what was observed of reads and outages, if the policy predicts them."""
        if self.spool.predictor is not None:
            self.spool.predictor = Predictor(observed)

    def has_seen(self, identity: str) -> bool:
        """Return whether a message of this name is known, or finished recently."""
        return identity in self._low or self.spool.has_seen(identity)

    def publish(
        self, now_us: int, identity: str, rank: float, expires_us: int, content: Content, created_us: int
    ) -> None:
        """Add a message; one below the threshold is stored only, and has no delivery record."""
        self._now_us = now_us
        if rank < self.subscription.threshold:
            self._store_low(identity, rank, expires_us, content)
        else:
            self._add_to_spool(identity, rank, expires_us, content, created_us)

    def rerank(self, now_us: int, topic: str, identity: str, rank: float) -> None:
        """Change the rank of a message of a topic; finished messages stay finished."""
        self._now_us = now_us
        if identity in self._low:
            low = self._low[identity]
            if low.content["topic"] == topic:
                self._store_low(identity, rank, low.expires_us, low.content)
                self._add_risen()
            return
        if identity not in self._contents or self._contents[identity]["topic"] != topic:
            return
        was_on_device = self.spool.is_on_device(identity)
        self.spool.notification(now_us, identity, rank)
        message = self.spool.find(identity)
        if message is None:
            return
        self._store_message(message)
        if was_on_device:
            self._pending.append(RankChange(self.topic, self.subscribed_seq, identity, rank))
            if rank >= self.spool.interrupt and identity not in self._showing:
                self._request_show([identity])

    def handle_fact(
        self, now_us: int, fact: HasRead | Dropped | Shown, *, was_requested: bool = False
    ) -> None:
        """Record messages that were read, shown or dropped on the device.

        ``was_requested`` says of a read that the device has requested better messages before.
        """
        self._now_us = now_us
        ids = fact.ids
        if isinstance(fact, HasRead):
            requested = 0 if was_requested else min(self.subscription.max_messages, self.spool.room)
            self.spool.read_offline(fact.at_us, ids, requested)
        else:
            self.spool.drop(now_us, ids)
        if isinstance(fact, Shown):
            self._update_day()
            self._shown += len(ids)
            self._set_interrupt()
        self._showing.difference_update(ids)
        self._lost.difference_update(ids)
        self._store_state()
        if self.spool.is_up:
            self.spool.network(now_us, is_up=True)  # the device has room

    def reconcile(self, now_us: int, ranks: Mapping[str, float]) -> None:
        """Connect a device that reports all messages that it holds, with their ranks.

        Queue for it the retraction of those that it should not hold, and the ranks that have changed.
        """
        self._now_us = now_us
        for unknown in self.spool.reconcile(now_us, ranks):
            if unknown not in self._lost:
                self._pending.append(Retraction(self.topic, self.subscribed_seq, str(unknown)))
        for message in self.spool.device:
            if ranks[str(message.identity)] != message.rank:
                self._pending.append(
                    RankChange(self.topic, self.subscribed_seq, str(message.identity), message.rank)
                )
        self._connect()

    def detect_rollback(self, last_order: int, identities: Iterable[str]) -> bool:
        """Return whether the device holds messages that arrived after all that this spool knows of.

        If so, leave the device the messages that are unknown here: they cannot be sent again.
        """
        if last_order <= self.spool.last_order:
            return False
        self.spool.skip_orders(last_order)
        self._lost.update(identity for identity in identities if self.spool.find(identity) is None)
        self._store_state()
        return True

    def resume(self, now_us: int, items: UnacknowledgedItems) -> None:
        """Connect a device that resumes a stream, after the loss of some items."""
        self._now_us = now_us
        self.spool.resume(now_us, items.arrived, items.lost)
        self._pending += items.updates
        self._connect()

    def _connect(self) -> None:
        """Forward what may be forwarded, after a hello, and request urgent messages to be shown."""
        if self.subscription.at_h:
            self._due += len(self._showing)
        self._showing.clear()
        self._set_interrupt()
        self.spool.network(self._now_us, is_up=True)
        if self.spool.interrupt < math.inf:
            urgent = [
                str(message.identity) for message in self.spool.device if self._is_interrupting(message)
            ]
            self._request_show(urgent)

    def answer_read(self, now_us: int, max_messages: float, number: int) -> None:
        """Queue for the device the messages better than its own, for a read, and then that all were sent."""
        self._now_us = now_us
        self.spool.offer(now_us, max_messages)
        self._pending.append(ReadComplete(self.topic, self.subscribed_seq, number))

    def end(self) -> None:
        """Delete all that is stored of the subscription, because it has ended."""
        for kind in ("message", "low"):
            for key, _ in self._store.items(f"{kind} {self._key}\n"):
                self._store.delete(key)
        self._store.delete(f"sub {self._key}")
        self._store.delete(f"state {self._key}")

    # -- time

    def show_due(self, now_us: int, *, is_due: bool = False) -> list[Effect]:
        """Show messages that are due, and set the timer; ``is_due`` is True if it has fired."""
        self._now_us = now_us
        time_of_day_us = self._time_of_day_us()
        if is_due:
            self._timer_us = None
            self.spool.timeout(now_us)
            if self.subscription.is_fixed_hour(time_of_day_us):
                self._due = self.subscription.max_messages
                self._store_state()
            self._set_interrupt()
        self._show_now()
        effects, self._records = self._records, []
        change_us = self.subscription.next_change_us(time_of_day_us)
        due_us = self.spool.due_us
        if change_us is not None:
            due_us = min(due_us, now_us + change_us)
        if due_us >= FOREVER_US or (self._timer_us is not None and self._timer_us <= due_us):
            return effects
        self._timer_us = due_us
        return [*effects, SetTimer(f"due {self._key}", max(due_us - now_us, 0))]

    def _show_now(self) -> None:
        """Show the messages that may be shown now, the best first."""
        max_messages = self._max_shown() if self.spool.is_up else 0
        if max_messages <= 0:
            return
        self._is_showing = True
        before = set(self._showing)
        chosen = self.spool.offer(self._now_us, max_messages, before)
        self._is_showing = False
        self._request_show([str(message.identity) for message in chosen])
        self._due = 0

    def _max_shown(self) -> float:
        """Return how many more messages may be shown now."""
        limits = self.subscription
        if limits.mode != "on-line" or limits.is_quiet(self._time_of_day_us()):
            return 0
        left = self._left_today()
        return min(self._due, left) if limits.at_h else left

    def _left_today(self) -> float:
        """Return how many more messages may be shown today."""
        if self.subscription.per_day is None:
            return math.inf
        self._update_day()
        return float(max(self.subscription.per_day - self._shown - len(self._showing), 0))

    def _update_day(self) -> None:
        """Begin to count shown messages anew if the day has changed."""
        day = (self._start_of_day_us + self._now_us) // _DAY_US
        if day != self._day:
            self._day, self._shown = day, 0

    def _set_interrupt(self) -> None:
        """Update the rank from which messages interrupt: infinite, when no more may be shown today."""
        interrupt = self.subscription.interrupt
        self.spool.interrupt = interrupt if interrupt is not None and self._left_today() > 0 else math.inf

    def _time_of_day_us(self) -> int:
        """Return the local time of day of the event."""
        return (self._start_of_day_us + self._now_us) % _DAY_US

    # -- messages

    def _add_to_spool(
        self, identity: str, rank: float, expires_us: int, content: Content, created_us: int
    ) -> None:
        """Add an acceptable message to the spool, with its content and a delivery record."""
        over_us = expires_us if expires_us < FOREVER_US else None
        self._records.append(delivery(identity, self.device, created_us=created_us, expired_us=over_us))
        self._contents[identity] = content
        self.spool.notification(self._now_us, identity, rank, expires_us)
        message = self.spool.find(identity)
        if message is None:
            self._contents.pop(identity, None)
            return
        self._store_message(message)

    def _store_message(self, message: Message) -> None:
        """Store a message that waits or is on the device, with its current rank."""
        identity = str(message.identity)
        content = self._contents[identity]
        stored = _StoredMessage(message.rank, message.order, message.arrived_us, message.expires_us, content)
        self._store.put(f"message {self._key}\n{identity}", stored)

    def _restore_message(self, identity: str, stored: _StoredMessage) -> Message:
        """Return a stored message for the spool, and keep its content."""
        self._contents[identity] = stored.content
        return Message(identity, stored.rank, stored.order, stored.arrived_us, stored.expires_us)

    def _store_low(self, identity: str, rank: float, expires_us: int, content: Content) -> None:
        """Store a message below the threshold; evict the oldest above the limit."""
        self._low[identity] = _LowMessage(rank, expires_us, content)
        self._store.put(f"low {self._key}\n{identity}", self._low[identity])
        while len(self._low) > _MAX_LOW:
            self._forget_low(next(iter(self._low)))

    def _add_risen(self) -> None:
        """Add the messages whose rank has risen to the threshold, or which a lower one admits."""
        for identity, low in list(self._low.items()):
            if low.rank >= self.subscription.threshold:
                self._forget_low(identity)
                self._add_to_spool(identity, low.rank, low.expires_us, low.content, self._now_us)

    def _forget_low(self, identity: str) -> None:
        """Delete a message below the threshold."""
        del self._low[identity]
        self._store.delete(f"low {self._key}\n{identity}")

    def _store_state(self) -> None:
        """Store reads, shown messages and counters."""
        due = None if self._due == math.inf else self._due
        last_order, lost, reads = self.spool.last_order, sorted(self._lost), self.spool.habits.reads
        state = _StoredState(
            [(at_us, messages) for at_us, messages, _ in reads],
            [demand for *_, demand in reads],
            self._day,
            self._shown,
            due,
            last_order,
            lost,
            None if self.spool.predictor is None else self.spool.predictor.observed,
        )
        self._store.put(f"state {self._key}", state)

    def _forward(self, message: Message) -> None:
        """Queue a message for the device: the spool calls this when it forwards one."""
        identity = str(message.identity)
        shown = self._is_showing or self._is_interrupting(message)
        if shown:
            self._showing.add(identity)
            self._set_interrupt()
        expires_us = None if message.expires_us == FOREVER_US else message.expires_us
        content = self._contents[identity]
        self._pending.append(
            Forwarded(
                self.topic,
                self.subscribed_seq,
                identity,
                message.rank,
                message.order,
                shown,
                expires_us,
                content,
            )
        )

    def _is_interrupting(self, message: Message) -> bool:
        """Return whether a message has the rank to be shown at once, also on an on-demand topic."""
        return message.rank >= self.spool.interrupt

    def _retract(self, message: Message) -> None:
        """Queue a retraction for the device: the spool calls this when a rank drops below the threshold."""
        self._pending.append(Retraction(self.topic, self.subscribed_seq, str(message.identity)))

    def _finish(self, message: Message) -> None:
        """Delete a message: the spool calls this when it was read, expired, retracted or dropped."""
        identity = str(message.identity)
        self._contents.pop(identity, None)
        self._store.delete(f"message {self._key}\n{identity}")
        if message.order == self.spool.last_order:
            self._store_state()  # no stored message has the number, which the device may know

    def _request_show(self, identities: list[str]) -> None:
        """Queue a request to show messages on the device, as many as the day still allows."""
        new = [identity for identity in identities if identity not in self._showing]
        new = new[: int(min(self._left_today(), len(new)))]
        if new:
            self._showing.update(new)
            self._set_interrupt()
            self._pending.append(ShowRequest(self.topic, self.subscribed_seq, new))


def _arrival_order(message: Message) -> int:
    """Return the number of arrival of a message, as a key for sorting."""
    return message.order
