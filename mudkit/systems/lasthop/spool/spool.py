"""The spool: which messages of a topic go to a device, and when (Last hop 4.5, Figure 7).

It is the one algorithm of both drivers, the machine on a server of the fleet and the simulator: its routines
are those of the figure, time comes in as an argument, and what is forwarded goes out through a function.

==============  ======================================================================================
notification    a message comes, or its rank changes; into ``outgoing`` (to be forwarded as soon as
                possible), ``prefetch`` (may be forwarded when the policy says so), ``holding`` (expires
                too soon) or ``delayed``
read            a device asks for better messages than it has; from all queues
read_offline    a device tells what was read there meanwhile
network         the link has come up or gone down; coming up, the device says what it holds
timeout         something expires, or its delay is over
==============  ======================================================================================

What the printed code leaves open or has wrong, and what is done here:

* what is forwarded is never taken out of ``outgoing`` and ``prefetch``, and would go again for ever;
  here it is;
* ``READ`` leaves what it sends in ``prefetch`` and ``holding``; here it is taken out;
* ``expires = 0`` (never) is below any threshold and would be held back; here it is never held back;
* a rank that rises above the threshold, or changes above it, would forward a message again; here a message
  that is on the device stays there with its new rank, and one that is finished stays finished;
* ``delay_timeout`` would bring back what has expired or was retracted meanwhile; here it cannot;
* the notice of a fall goes into a queue of messages, where it would count as one; here it is a retraction
  of its own, and frees its room;
* on-line topics forget the expiration; here it holds for all;
* the length of the device's queue is told by ``READ`` only, which then subtracts nothing for the messages
  that are read, so that after each read, and for as long as the device is away, the server believes it full;
  here what is read goes off, what expires on the device goes off, and a device that comes back says what was
  read there;
* ``old_reads`` and ``exp_times`` are sets, which lose repeats; here they are windows;
* histories grow without bounds; here ids of finished messages are remembered for ``remember_s``, and queues
  are bounded by ``capacity``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from mudkit.systems.lasthop.spool.policies import LEARNT, Forwarding
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Entry, Message, Ranked, Take
from mudkit.systems.lasthop.spool.rules import Situation, chosen
from mudkit.systems.lasthop.spool.statistics import Habits

__all__ = ["CREDIT", "DEVICE", "Spool"]

_OUTGOING, _PREFETCH, _HOLDING, _DELAYED, DEVICE = range(5)
CAPACITY: Final = 100_000
_REMEMBER_S: Final = 7 * 86_400.0
CREDIT: Final = 64.0
"""So many forwards the rate policy may have in hand when a link comes back."""


class Spool:
    """Queues of one topic for one device.

    Parameters
    ----------
    threshold : float
        Messages of a lower rank are not acceptable.
    policy : Forwarding
    forward : callable
        Takes each message that is forwarded.
    retract : callable
        Takes what is on the device and not acceptable any more.
    capacity : int
        The largest number of messages that wait; beyond, the lowest rank goes.
    remember_s : float
        The time for which a message that is finished is known as such, in seconds: at least this long, and at
        most twice as long.

    Attributes
    ----------
    device : Ranked
        What is on the device, as far as the spool knows.
    habits : Habits
    is_up : bool
    due_us : int
        When :meth:`timeout` is to be called next.
    interrupt : float
        Messages of at least this rank are forwarded as soon as possible, also on an on-demand topic.
    """

    def __init__(
        self,
        threshold: float,
        policy: Forwarding,
        forward: Take,
        retract: Take,
        *,
        capacity: int = CAPACITY,
        remember_s: float = _REMEMBER_S,
    ) -> None:
        self._threshold = threshold
        self._policy = policy
        self._forward, self._retract = forward, retract
        self._capacity = capacity
        self._remember_us = round(remember_s * 1e6)
        self._is_online = policy.kind == "on-line"
        self._is_by_rate = policy.kind == "rate"
        self._is_checked = policy.expiration_threshold_s is not None or policy.delay_s is not None
        self._queues = tuple(Ranked(place) for place in range(5))
        self._outgoing, self._prefetch = self._queues[_OUTGOING], self._queues[_PREFETCH]
        self.device = self._queues[DEVICE]
        self._readable = [queue for queue in self._queues if queue is not self._queues[_DELAYED]]
        self._known: dict[Hashable, Message] = {}
        """What is in any queue."""
        self._finished: set[Hashable] = set()
        self._finished_before: set[Hashable] = set()
        self._forget_us = self._remember_us
        self._expiries: list[tuple[int, int, Message]] = []
        self._delays: list[tuple[int, int, Message]] = []
        self._lowest: list[Entry] | None = None
        """What waits, the lowest first; None before there was too much of it."""
        self._order = 0
        self._credit = 0.0
        self.interrupt = math.inf
        self.habits = Habits()
        self._limit = 0.0
        self._learn()
        self.is_up = False
        self.due_us = FOREVER_US

    @property
    def waiting(self) -> int:
        """Messages that are in any queue here."""
        return len(self._known) - self.device.size

    @property
    def prefetch_limit(self) -> float:
        """So many messages may lie on the device before any is asked for."""
        return self._limit

    # -- the routines of the figure

    def notification(
        self, now_us: int, identity: Hashable, rank: float, expires_us: int = FOREVER_US
    ) -> None:
        """Take a message, or the new rank of one."""
        if self.due_us <= now_us:
            self.timeout(now_us)
        if identity in self._known:
            self._rank_changed(now_us, self._known[identity], rank)
            return
        if not rank >= self._threshold or expires_us <= now_us:  # what is no number is no rank
            return
        if identity in self._finished or identity in self._finished_before:
            return
        self._order += 1
        message = Message(identity, rank, self._order, now_us, expires_us)
        self._known[identity] = message
        if expires_us < FOREVER_US:
            heappush(self._expiries, (expires_us, self._order, message))
            if expires_us < self.due_us:
                self.due_us = expires_us
        if self._is_by_rate:
            self.habits.arrived(now_us)
            self._credit = min(self._credit + self.habits.share_read, CREDIT)
        if self._is_online or rank >= self.interrupt:
            if self.is_up and not self._outgoing.size:  # at once
                self.device.add(message)
                self._forward(message)
                return
            self._outgoing.add(message)
        elif self._is_checked:
            self._queue(now_us, message)
        else:
            self._prefetch.add(message)
        if self._lowest is not None:
            heappush(self._lowest, (rank, -self._order, message))
        if len(self._known) > self._capacity and self.waiting > self._capacity:
            self._evict(now_us)
        if self.is_up:
            self._try_forwarding(now_us)

    def read(self, now_us: int, most: float) -> list[Message]:
        """Forward what is better than the best on the device, which is read now.

        Parameters
        ----------
        now_us : int
        most : float
            The number that are read.

        Returns
        -------
        list of Message
            What is read, the best first: it is on the device no longer.
        """
        if self.due_us <= now_us:
            self.timeout(now_us)
        device = self.device
        heads = [(queue.first(), queue) for queue in self._readable if queue.size]
        heapify(heads)  # entries differ, so that queues are never compared
        taken: list[Message] = []
        while len(heads) > 1 and len(taken) < most:
            source = heads[0][1]
            message = source.pop()
            if source is not device:
                self._forward(message)
            taken.append(message)
            if source.size:
                heapreplace(heads, (source.first(), source))
            else:
                heappop(heads)
        for _, source in heads:
            rest = source.take(most - len(taken))
            if source is not device:
                for message in rest:
                    self._forward(message)
            taken += rest
        self._finish(now_us, taken)
        self.habits.read(now_us, len(taken))
        self._learn()
        if self.is_up:
            self._try_forwarding(now_us)
        return taken

    def read_offline(self, at_us: int, identities: Iterable[Hashable]) -> None:
        """Take note of what was read at some time while the device was away."""
        read_there = list(identities)
        self._off_device(at_us, read_there)
        self.habits.read(at_us, len(read_there))
        self._learn()

    def let_go(self, now_us: int, identities: Iterable[Hashable]) -> None:
        """Take note of what a device has let go to make room."""
        self._off_device(now_us, identities)

    def read_elsewhere(self, now_us: int, identities: Iterable[Hashable]) -> None:
        """Take note of what was read on another device of the user: it goes from all queues."""
        self.timeout(now_us)
        for identity in identities:
            message = self._known.get(identity)
            if message is None:
                continue
            place = message.place
            if place != NOWHERE:
                self._queues[place].remove(message)
            self._finish(now_us, (message,))
            if place == DEVICE:
                self._retract(message)
        if self.is_up:
            self._try_forwarding(now_us)

    def network(self, now_us: int, *, is_up: bool) -> None:
        """Take note that the link has come up or gone down.

        What was read and let go meanwhile is told before: see :meth:`read_offline` and :meth:`let_go`. What
        is due at the moment at which it goes down comes too late for it.
        """
        if self.due_us <= now_us:
            self.timeout(now_us if is_up else now_us - 1)
        self.is_up = is_up
        if is_up:
            self._try_forwarding(now_us)

    def timeout(self, now_us: int) -> None:
        """Let expire what expires, and end delays that are over."""
        expiries, delays = self._expiries, self._delays
        while self.due_us <= now_us:
            at_us = self.due_us
            while expiries and expiries[0][0] <= at_us:
                message = heappop(expiries)[2]
                if message.place != NOWHERE:
                    self._queues[message.place].remove(message)
                    self._finish(at_us, (message,))
            while delays and delays[0][0] <= at_us:
                message = heappop(delays)[2]
                if message.place == _DELAYED:
                    self._queues[_DELAYED].remove(message)
                    self._prefetch.add(message)
            self.due_us = min(
                expiries[0][0] if expiries else FOREVER_US, delays[0][0] if delays else FOREVER_US
            )
            if self.is_up:
                self._try_forwarding(at_us)

    # -- inside

    def _queue(self, now_us: int, message: Message) -> None:
        """Put a message where the checks of its expiration and of delays say."""
        threshold, delay = self._policy.expiration_threshold_s, self._policy.delay_s
        if threshold is not None and message.expires_us < FOREVER_US:
            least_us = self.habits.between_reads_us if threshold == LEARNT else float(threshold) * 1e6
            if message.expires_us - now_us < least_us:
                self._queues[_HOLDING].add(message)
                return
        if delay is not None:
            delay_us = self.habits.delay_us if delay == LEARNT else round(float(delay) * 1e6)
            if delay_us > 0:
                self._queues[_DELAYED].add(message)
                heappush(self._delays, (now_us + delay_us, message.order, message))
                self.due_us = min(self.due_us, now_us + delay_us)
                return
        self._prefetch.add(message)

    def _rank_changed(self, now_us: int, message: Message, rank: float) -> None:
        if message.place == NOWHERE:  # read where the queue is shared, and not told yet
            return
        queue = self._queues[message.place]
        if rank >= self._threshold:
            queue.rerank(message, rank)
            if self._lowest is not None and queue is not self.device:
                heappush(self._lowest, (rank, -message.order, message))
            return
        self.habits.fell(now_us - message.arrived_us)
        message.rank = rank
        queue.remove(message)
        self._finish(now_us, (message,))
        if queue is self.device:
            self._retract(message)
            if self.is_up:
                self._try_forwarding(now_us)

    def _try_forwarding(self, now_us: int) -> None:
        device, outgoing, prefetch = self.device, self._outgoing, self._prefetch
        while outgoing.size:
            self._forward(outgoing.pass_first(device))
        while device.size < self._limit and prefetch.size:
            self._forward(prefetch.pass_first(device))
        while self._credit >= 1.0 and prefetch.size:
            self._credit -= 1.0
            self._forward(prefetch.pass_first(device))
        if self._policy.rule is not None:
            situation = Situation(now_us, self._threshold, prefetch, device, self.habits)
            for message in chosen(self._policy.rule, situation, prefetch):
                prefetch.remove(message)
                device.add(message)
                self._forward(message)

    def _learn(self) -> None:
        """Set how many messages may lie on the device."""
        if self._policy.kind in ("buffer", "unified"):
            limit = self._policy.prefetch_limit
            self._limit = 2 * self.habits.read_at_a_time if limit == LEARNT else float(limit)

    def _off_device(self, at_us: int, identities: Iterable[Hashable]) -> None:
        gone, known = [], self._known
        for identity in identities:
            message = known.get(identity)
            if message is not None and message.place in (DEVICE, NOWHERE):
                if message.place == DEVICE:  # else whoever shares the queue has taken it out
                    self.device.remove(message)
                gone.append(message)
        self._finish(at_us, gone)

    def _evict(self, now_us: int) -> None:
        """Let go what has the lowest rank of all that waits."""
        if self._lowest is None or len(self._lowest) > 2 * len(self._known):
            waiting = [each for each in self._known.values() if each.place != DEVICE]
            self._lowest = [(each.rank, -each.order, each) for each in waiting]
            heapify(self._lowest)
        while True:
            rank, _, message = heappop(self._lowest)
            if message.place not in (DEVICE, NOWHERE) and message.rank == rank:
                break
        self._queues[message.place].remove(message)
        self._finish(now_us, (message,))

    def _finish(self, now_us: int, messages: Iterable[Message]) -> None:
        """Forget all of messages but that they were."""
        if now_us >= self._forget_us:
            self._finished_before, self._finished = self._finished, set()
            self._forget_us = now_us + self._remember_us
        known, finished = self._known, self._finished
        for message in messages:
            del known[message.identity]
            finished.add(message.identity)
