"""The spool of a device that reads by itself, over a network that loses what is on its way.

Nothing of the algorithm is here: only what the simulator, where the spool and the device share a queue, needs
not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from heapq import heappush

from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Message, Take
from mudkit.systems.lasthop.spool.spool import CAPACITY, CREDIT, DEVICE, Spool

__all__ = ["ServedSpool"]


class ServedSpool(Spool):
    """A spool whose device says what it holds and what was read.

    Parameters
    ----------
    threshold : float
    policy : Forwarding
    forward, retract : callable
    ended : callable
        Takes each message that is finished: read, expired, retracted or let go.
    capacity : int
        As for :class:`Spool`.
    """

    def __init__(
        self,
        threshold: float,
        policy: Forwarding,
        forward: Take,
        retract: Take,
        ended: Take,
        *,
        capacity: int = CAPACITY,
    ) -> None:
        self._ended = ended
        self._room = math.inf
        super().__init__(threshold, policy, forward, retract, capacity=capacity)

    @property
    def room(self) -> float:
        """So many can lie on the device: a full one would let go what comes."""
        return self._room

    @room.setter
    def room(self, room: float) -> None:
        if room != self._room:
            self._room = room
            self._learn()

    def find(self, identity: Hashable) -> Message | None:
        """Give a message that waits here or is on the device."""
        return self._known.get(identity)

    def has_seen(self, identity: Hashable) -> bool:
        """Say whether there is a message of this name, or was one of late."""
        return identity in self._known or identity in self._finished or identity in self._finished_before

    def is_on_device(self, identity: Hashable) -> bool:
        """Say whether a message is on the device, or on its way."""
        message = self._known.get(identity)
        return message is not None and message.place == DEVICE

    @property
    def last(self) -> int:
        """The number of the last message that came."""
        return self._order

    def all(self) -> list[Message]:
        """Give all that wait here or are on the device."""
        return list(self._known.values())

    def offer(self, now_us: int, most: float, without: Collection[Hashable] = ()) -> list[Message]:
        """Forward what is better than the best on the device, which then says itself what was read.

        It is ``READ`` of the figure in two steps; the other is :meth:`read_offline`.

        Parameters
        ----------
        now_us : int
        most : float
            The number that are wanted.
        without : collection
            Some on the device that do not count.

        Returns
        -------
        list of Message
            The best, which are on the device now.
        """
        if self.due_us <= now_us:
            self.timeout(now_us)
        chosen: list[Message] = []
        others: list[Message] = []
        while len(chosen) < most:
            first_reads = [(first, queue) for queue in self._readable if (first := queue.first()) is not None]
            if not first_reads:
                break
            source = min(first_reads, key=lambda each: each[0])[1]
            message = source.pop()
            if message.identity in without:
                others.append(message)
                continue
            chosen.append(message)
            if source is not self.device:
                self._forward(message)
        for message in (*others, *chosen):
            self.device.add(message)
        return chosen

    def holds(self, now_us: int, identities: Collection[Hashable]) -> list[Hashable]:
        """Learn what a device that comes back holds: what was lost on its way waits again.

        Returns
        -------
        list
            What it holds and should not: it has expired, was retracted, or is not known.
        """
        if self.due_us <= now_us:
            self.timeout(now_us)
        held = set(identities)
        for lost in [each.identity for each in self.device if each.identity not in held]:
            self.lost(lost)
        self._has_come(identities)
        return [identity for identity in identities if identity not in self._known]

    def came(self, now_us: int, came: Iterable[Hashable], lost: Iterable[Hashable]) -> None:
        """Learn what has come and what was lost of what was on its way."""
        if self.due_us <= now_us:
            self.timeout(now_us)
        self._has_come(came)
        for identity in lost:
            self.lost(identity)

    def lost(self, identity: Hashable) -> None:
        """Take back what was forwarded and has not come."""
        message = self._known.get(identity)
        if message is None or message.place != DEVICE:
            return
        self.device.remove(message)
        if self._is_by_rate:
            self._credit = min(self._credit + 1.0, CREDIT)
        (self._outgoing if self._is_urgent(message) else self._prefetch).add(message)
        if self._lowest is not None:
            heappush(self._lowest, (message.rank, -message.order, message))

    def read_offline(self, at_us: int, identities: Iterable[Hashable]) -> None:
        """Take note of what was read on the device, also of what was believed lost."""
        unique = list(dict.fromkeys(identities))
        self._has_come(unique)
        super().read_offline(at_us, unique)

    def let_go(self, now_us: int, identities: Iterable[Hashable]) -> None:
        """Take note of what a device has let go, also of what was believed lost."""
        unique = list(dict.fromkeys(identities))
        self._has_come(unique)
        super().let_go(now_us, unique)

    def restore(
        self, now_us: int, messages: Iterable[Message], reads: Iterable[tuple[int, int]], last: int
    ) -> None:
        """Go on from another life: all of its messages wait.

        Parameters
        ----------
        now_us : int
        messages : iterable of Message
            Messages that are in no queue.
        reads : iterable of (int, int)
            When it was read of late, and how many.
        last : int
            Number of the last message that came: none is used again.
        """
        self._order = max(self._order, last)
        for at_us, count in reads:
            self.habits.read(at_us, count)
        self._learn()
        for message in messages:
            self._order = max(self._order, message.order)
            self._known[message.identity] = message
            if message.expires_us < FOREVER_US:
                heappush(self._expiries, (message.expires_us, message.order, message))
                self.due_us = min(self.due_us, message.expires_us)
            if self._is_urgent(message):
                self._outgoing.add(message)
            else:
                self._queue(now_us, message)

    # -- inside

    def _has_come(self, identities: Iterable[Hashable]) -> None:
        """Have on the device what waits here as if it had been lost."""
        for identity in identities:
            message = self._known.get(identity)
            if message is not None and message.place not in (DEVICE, NOWHERE):
                self._queues[message.place].remove(message)
                self.device.add(message)

    def _is_urgent(self, message: Message) -> bool:
        return self._is_online or message.rank >= self.interrupt

    def _learn(self) -> None:
        super()._learn()
        self._limit = min(self._limit, self._room)

    def _rank_changed(self, now_us: int, message: Message, rank: float) -> None:
        super()._rank_changed(now_us, message, rank)
        if message.place not in (DEVICE, NOWHERE) and rank >= self.interrupt:
            self._queues[message.place].remove(message)
            self._outgoing.add(message)
            if self.is_up:
                self._try_forwarding(now_us)

    def _finish(self, now_us: int, messages: Iterable[Message]) -> None:
        finished = list(messages)
        super()._finish(now_us, finished)
        for message in finished:
            self._ended(message)
