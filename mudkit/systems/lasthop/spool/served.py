"""Spool for a device that reads on its own, over a network that loses messages.

It adds to :class:`Spool` what the simulator, where spool and device share a queue, does not need.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from heapq import heappush

from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Message, Take
from mudkit.systems.lasthop.spool.spool import DEFAULT_CAPACITY, DEVICE, MAX_CREDIT, Spool


class ServedSpool(Spool):
    """A spool whose device reports what it holds and what was read.

    ``finished`` takes each message that is read, expired, retracted or dropped; the rest is as of
    :class:`Spool`.
    """

    def __init__(
        self,
        threshold: float,
        policy: Forwarding,
        forward: Take,
        retract: Take,
        finished: Take,
        *,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self._finished_callback = finished
        self._room = math.inf
        super().__init__(threshold, policy, forward, retract, capacity=capacity)

    @property
    def room(self) -> float:
        """Maximum number of messages on the device; beyond it, the device evicts."""
        return self._room

    @room.setter
    def room(self, room: float) -> None:
        if room != self._room:
            self._room = room
            self._update_limit()

    def find(self, identity: Hashable) -> Message | None:
        """Return a message that waits or is on the device; None: unknown or finished (:meth:`has_seen`)."""
        return self._known.get(identity)

    def has_seen(self, identity: Hashable) -> bool:
        """Return whether a message of this name is known, or finished recently."""
        return identity in self._known or identity in self._finished or identity in self._finished_before

    @property
    def last_order(self) -> int:
        """Number of the last message that arrived."""
        return self._order

    def skip_orders(self, last_order: int) -> None:
        """Assign no number up to ``last_order`` to an arrival."""
        self._order = max(self._order, last_order)

    def all(self) -> list[Message]:
        """Return all messages that are waiting or on the device."""
        return list(self._known.values())

    def reconcile(self, now_us: int, identities: Collection[Hashable]) -> list[Hashable]:
        """Requeue lost messages, given what a reconnecting device holds; return what it should not hold."""
        if self.due_us <= now_us:
            self.timeout(now_us)
        present = set(identities)
        for lost in [message.identity for message in self.device if message.identity not in present]:
            self.requeue(lost)
        self._mark_on_device(identities)
        return [identity for identity in identities if identity not in self._known]

    def resume(self, now_us: int, arrived: Iterable[Hashable], lost: Iterable[Hashable]) -> None:
        """Record which messages in flight arrived, and requeue those that were lost."""
        if self.due_us <= now_us:
            self.timeout(now_us)
        self._mark_on_device(arrived)
        for identity in lost:
            self.requeue(identity)

    def requeue(self, identity: Hashable) -> None:
        """Move a forwarded message that did not arrive back to its queue."""
        message = self._known.get(identity)
        if message is None or message.place != DEVICE:
            return
        self.device.remove(message)
        if self._is_by_rate:
            self._credit = min(self._credit + 1.0, MAX_CREDIT)
        is_awaited = self._is_urgent(message) or identity in self._for_reads
        (self._outgoing if is_awaited else self._prefetch).add(message)
        if self._lowest is not None:
            heappush(self._lowest, (message.rank, -message.order, message))

    def read_offline(self, at_us: int, identities: Iterable[Hashable], requested: float = 0) -> None:
        """Record an earlier read on the device, also of messages believed lost."""
        unique = list(dict.fromkeys(identities))
        self._mark_on_device(unique)
        super().read_offline(at_us, unique, requested)

    def drop(self, now_us: int, identities: Iterable[Hashable]) -> None:
        """Record messages that the device dropped, also those believed lost."""
        unique = list(dict.fromkeys(identities))
        self._mark_on_device(unique)
        super().drop(now_us, unique)

    def restore(
        self,
        now_us: int,
        messages: Iterable[Message],
        reads: Iterable[tuple[int, int, int]],
        last_order: int,
    ) -> None:
        """Restore messages, and ``reads`` of ``Habits``; orders up to ``last_order`` are not used again."""
        self.skip_orders(last_order)
        for read in reads:
            self.habits.record_read(*read)
        self._update_limit()
        for message in messages:
            self._order = max(self._order, message.order)
            self._known[message.identity] = message
            if message.expires_us < FOREVER_US:
                heappush(self._expiries, (message.expires_us, message.order, message))
                self.due_us = min(self.due_us, message.expires_us)
            if self._is_urgent(message):
                self._outgoing.add(message)
            else:
                self._enqueue(now_us, message)

    def remember_finished(self, before: ServedSpool) -> None:
        """Keep the names that had finished in the spool ``before``, and those it had and this has not."""
        self._finished = before._finished | (before._known.keys() - self._known.keys())
        self._finished_before, self._forget_us = before._finished_before, before._forget_us

    # -- internal

    def _mark_on_device(self, identities: Iterable[Hashable]) -> None:
        """Move messages to the device that waited because they were believed lost."""
        for identity in identities:
            message = self._known.get(identity)
            if message is not None and message.place not in (DEVICE, NOWHERE):
                self._queues[message.place].remove(message)
                self.device.add(message)

    def _is_urgent(self, message: Message) -> bool:
        """Return whether a message is forwarded at once: an on-line topic, or an interrupting rank."""
        return self._is_online or message.rank >= self.interrupt

    def _update_limit(self) -> None:
        """Set the prefetch limit, which the room on the device bounds."""
        super()._update_limit()
        self._limit = min(self._limit, self._room)

    def _change_rank(self, now_us: int, message: Message, rank: float) -> None:
        """Change a rank as :meth:`Spool._change_rank`; a message that becomes urgent is forwarded."""
        super()._change_rank(now_us, message, rank)
        if message.place not in (DEVICE, NOWHERE) and rank >= self.interrupt:
            self._queues[message.place].remove(message)
            self._outgoing.add(message)
            if self.is_up:
                self._try_forwarding(now_us)

    def _finish(self, now_us: int, messages: Iterable[Message]) -> None:
        """Forget messages as :meth:`Spool._finish`, and pass each to the callback."""
        finished = list(messages)
        super()._finish(now_us, finished)
        for message in finished:
            self._finished_callback(message)
