"""The spool: decides which messages of a topic go to a device, and when (Last hop 4.5, Figure 7).

The server in a lab and the simulator run this algorithm. The routines are those of the figure; the time is an
argument, and forwarded messages go to a callback.

==============  ======================================================================================
notification    a message comes, or its rank changes; into ``outgoing`` (forward as soon as possible),
                ``prefetch`` (forward when the policy allows), ``holding`` (expires too soon) or
                ``delayed``
read            a device requests better messages than it has; from all queues
read_offline    a device reports an earlier read
network         the link changes; when it comes up, reads and evictions are reported first, and what reads
                requested is forwarded if the policy remembers reads
timeout         a message expires, or its delay is over
==============  ======================================================================================

Defects of the printed pseudo-code, and their fixes:

* Forwarded messages stay in ``outgoing`` and ``prefetch``, and are forwarded again for ever: remove them.
* ``READ`` leaves the messages that it sends in ``prefetch`` and ``holding``: remove them.
* ``expires = 0`` (never) is below any threshold: such messages never go to holding.
* A rise of the rank forwards a message again: a message on the device only gets its new rank, and a finished
  one stays finished.
* ``delay_timeout`` restores messages that expired or were retracted: it moves only messages still delayed.
* The notice of a rank drop is put into a queue of messages, where it counts as one: retract the message,
  which frees its room.
* On-line topics ignore the expiration: it holds for all.
* Only ``READ`` updates the length of the device's queue, without the messages read, so the server believes
  the device full after each read and throughout an outage: subtract reads and expirations; a device that
  reconnects reports its reads.
* ``old_reads`` and ``exp_times`` are sets, which lose duplicates: use windows.
* Histories grow without bound: names of finished messages are kept for ``remember_s``, and ``capacity``
  bounds the queues.

A deviation: ``READ`` in an outage leaves in ``outgoing`` what it could not send, for when the network is
back. Figure 2 cannot have had this, so it is done only where the policy ``remembers_reads``. A server that is
killed between a hello and its answers forgets the reads that the hello reported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Annotated, Final

from mudkit.checks import Range, check_arguments
from mudkit.systems.lasthop.spool.policies import LEARNT, Forwarding, Habits, Situation, apply_rule
from mudkit.systems.lasthop.spool.predictor import Predictor
from mudkit.systems.lasthop.spool.ranked import FOREVER_US, NOWHERE, Entry, Message, Ranked, Take

_OUTGOING, _PREFETCH, _HOLDING, _DELAYED, DEVICE = range(5)
DEFAULT_CAPACITY: Final = 100_000
_DEFAULT_REMEMBER_S: Final = 7 * 86_400.0
MAX_CREDIT: Final = 64.0
"""Maximum number of forwards that the rate policy accumulates during an outage."""


class Spool:
    """Queues of one topic for one device.

    Parameters
    ----------
    threshold : float
        Lowest acceptable rank.
    policy : Forwarding
    forward : callable
        Takes each message that is forwarded.
    retract : callable
        Takes each message on the device whose rank dropped below the threshold.
    capacity : int
        Maximum number of waiting messages; beyond it, the lowest rank is dropped.
    remember_s : float
        Time in seconds for which the name of a finished message is kept: at least this long, at most twice.

    Attributes
    ----------
    device : Ranked
        Messages on the device, as far as the spool knows.
    habits : Habits
        Moving averages of reads, arrivals and rank drops.
    predictor : Predictor or None
        What is expected of reads and outages, under the policy ``predict``.
    is_up : bool
    is_limited : bool
        Whether a message has ever waited because the device had as many as the prefetch limit allows.
    due_us : int
        Time at which :meth:`timeout` is due.
    interrupt : float
        Messages of at least this rank are forwarded as soon as possible, also on an on-demand topic.
    """

    @check_arguments
    def __init__(
        self,
        threshold: float,
        policy: Forwarding,
        forward: Take,
        retract: Take,
        *,
        capacity: Annotated[int, Range(1, 1 << 62)] = DEFAULT_CAPACITY,
        remember_s: Annotated[float, Range(0.0, 1e12)] = _DEFAULT_REMEMBER_S,
    ) -> None:
        self._threshold = threshold
        self._policy = policy
        self._forward, self._retract = forward, retract
        self._capacity = capacity
        self._remember_us = round(remember_s * 1e6)
        self._is_online = policy.kind == "on-line"
        self._is_by_rate = policy.kind == "rate"
        self.predictor = Predictor() if policy.kind == "predict" else None
        """Predictor of the policy ``predict``; None under others."""
        has_checks = policy.expiration_threshold_s is not None or policy.delay_s is not None
        self._is_checked = has_checks or self.predictor is not None
        self._queues = tuple(Ranked(place) for place in range(5))
        self._outgoing, self._prefetch = self._queues[_OUTGOING], self._queues[_PREFETCH]
        self.device = self._queues[DEVICE]
        self._readable = [queue for queue in self._queues if queue is not self._queues[_DELAYED]]
        self._known: dict[Hashable, Message] = {}
        """Messages in any queue, by name."""
        self._finished: set[Hashable] = set()
        self._finished_before: set[Hashable] = set()
        self._forget_us = self._remember_us
        self._expiries: list[tuple[int, int, Message]] = []
        self._delays: list[tuple[int, int, Message]] = []
        self._lowest: list[Entry] | None = None
        """Waiting messages, the lowest first; None before the first eviction."""
        self._order = 0
        self._credit = 0.0
        self._requested = 0.0
        """Messages that reads requested since the link went down, if the policy remembers these."""
        self._for_reads: set[Hashable] = set()
        """Names of messages that were forwarded for reads, if the policy remembers these."""
        self.interrupt = math.inf
        self.habits = Habits()
        self._limit = 0.0
        self._update_limit()
        self.is_up = False
        self.is_limited = False
        self.due_us = FOREVER_US

    @property
    def waiting(self) -> int:
        """Number of messages waiting at the spool."""
        return len(self._known) - self.device.size

    @property
    def prefetch_limit(self) -> float:
        """Number of messages on the device up to which a buffer is filled; 0 for other policies."""
        return self._limit

    def is_on_device(self, identity: Hashable) -> bool:
        """Return whether a message is on the device, or in flight to it."""
        message = self._known.get(identity)
        return message is not None and message.place == DEVICE

    # -- the routines of the figure

    def notification(
        self, now_us: int, identity: Hashable, rank: float, expires_us: int = FOREVER_US
    ) -> None:
        """Add the message ``identity`` until ``expires_us``, or change the rank of a known one."""
        if self.due_us <= now_us:
            self.timeout(now_us)
        if identity in self._known:
            self._change_rank(now_us, self._known[identity], rank)
            return
        if not rank >= self._threshold or expires_us <= now_us:  # also refuses NaN
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
            self.habits.record_arrival(now_us)
            self._credit = min(self._credit + self.habits.share_read, MAX_CREDIT)
        if self._is_online or rank >= self.interrupt:
            if self.is_up and not self._outgoing.size:  # the fast path
                self.device.add(message)
                self._forward(message)
                return
            self._outgoing.add(message)
        elif self._is_checked:
            self._enqueue(now_us, message)
        else:
            self._prefetch.add(message)
        if self._lowest is not None:
            heappush(self._lowest, (rank, -self._order, message))
        if len(self._known) > self._capacity and self.waiting > self._capacity:
            self._evict(now_us)
        if self.is_up:
            self._try_forwarding(now_us)

    def read(self, now_us: int, max_messages: float) -> list[Message]:
        """Read up to ``max_messages`` of all queues, the best ones, and forward what is not on the device.

        Return them, the best first; they are no longer on the device.
        """
        if self.due_us <= now_us:
            self.timeout(now_us)
        device = self.device
        heads = [(queue.first(), queue) for queue in self._readable if queue.size]
        heapify(heads)  # entries differ: queues are never compared
        taken: list[Message] = []
        while len(heads) > 1 and len(taken) < max_messages:
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
            rest = source.take(max_messages - len(taken))
            if source is not device:
                for message in rest:
                    self._forward(message)
            taken += rest
        self._finish(now_us, taken)
        if self.predictor is not None:
            self.predictor.record_read(now_us, has_link=True)
        self.habits.record_read(now_us, len(taken))
        self._update_limit()
        if self.is_up:
            self._try_forwarding(now_us)
        return taken

    def read_offline(self, at_us: int, identities: Iterable[Hashable], requested: float = 0) -> None:
        """Record an earlier read on the device.

        That is its time ``at_us``, the ``identities`` of its messages, and how many it ``requested``, or 0 if
        the server has answered it.
        """
        read_there = list(identities)
        self._remove_from_device(at_us, read_there)
        if self.predictor is not None:
            self.predictor.record_read(at_us, has_link=requested <= len(read_there))
        self.habits.record_read(at_us, len(read_there), min(requested, len(read_there) + self.waiting))
        self._update_limit()
        if self._policy.remembers_reads:
            self._requested = max(self._requested, requested)

    def offer(self, now_us: int, max_messages: float, without: Collection[Hashable] = ()) -> list[Message]:
        """Forward the best messages that are not on the device, and return the best of all queues.

        This is ``READ`` of the figure without the read, and without those in ``without``.
        """
        if self.due_us <= now_us:
            self.timeout(now_us)
        chosen: list[Message] = []
        others: list[Message] = []
        while len(chosen) < max_messages:
            heads = [(first, queue) for queue in self._readable if (first := queue.first()) is not None]
            if not heads:
                break
            source = min(heads, key=lambda head: head[0])[1]
            message = source.pop()
            if message.identity in without:
                others.append(message)
                continue
            chosen.append(message)
            if source is not self.device:
                self._forward(message)
        for message in (*others, *chosen):
            self.device.add(message)
        if self._policy.remembers_reads:
            self._for_reads.update(message.identity for message in chosen)
        return chosen

    def drop(self, now_us: int, identities: Iterable[Hashable]) -> None:
        """Record that messages are no longer on the device, by ``identities``: it evicted or showed them."""
        self._remove_from_device(now_us, identities)

    def network(self, now_us: int, *, is_up: bool) -> None:
        """Record a change of the link.

        Call :meth:`read_offline` and :meth:`drop` before it comes up. Timeouts due at the moment at which it
        goes down no longer use it.
        """
        if self.due_us <= now_us:
            self.timeout(now_us if is_up else now_us - 1)
        was_up, self.is_up = self.is_up, is_up
        if self.predictor is not None:
            self.predictor.begin(now_us)
        if is_up and not was_up:
            self._end_outage()
        if is_up:
            if self._requested:
                self.offer(now_us, self._requested)
                self._requested = 0.0
            self._try_forwarding(now_us)

    def timeout(self, now_us: int) -> None:
        """Remove expired messages, and end delays that are over."""
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

    def _end_outage(self) -> None:
        """End an outage for the policy ``predict``."""
        if self.predictor is not None:
            self.predictor.end_outage()
            self._update_limit()

    def _enqueue(self, now_us: int, message: Message) -> None:
        """Put a message into the queue that its expiration and the delay select."""
        threshold, delay = self._policy.expiration_threshold_s, self._policy.delay_s
        if self.predictor is not None and message.expires_us < FOREVER_US:
            if not self.predictor.is_worth_prefetching(now_us, message.expires_us):
                self._queues[_HOLDING].add(message)
                return
        elif threshold is not None and message.expires_us < FOREVER_US:
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

    def _change_rank(self, now_us: int, message: Message, rank: float) -> None:
        """Change the rank of a known message; below the threshold, finish it and retract it."""
        if message.place == NOWHERE:  # read from the shared queue, and not reported yet
            return
        queue = self._queues[message.place]
        if rank >= self._threshold:
            queue.rerank(message, rank)
            if self._lowest is not None:
                heappush(self._lowest, (rank, -message.order, message))
            return
        self.habits.record_fall(now_us - message.arrived_us)
        message.rank = rank
        queue.remove(message)
        self._finish(now_us, (message,))
        if queue is self.device:
            self._retract(message)
            if self.is_up:
                self._try_forwarding(now_us)

    def _try_forwarding(self, now_us: int) -> None:
        """Forward what the policy allows now; called after each change while the link is up."""
        device, outgoing, prefetch = self.device, self._outgoing, self._prefetch
        while outgoing.size:
            self._forward(outgoing.move_first(device))
        while device.size < self._limit and prefetch.size:
            self._forward(prefetch.move_first(device))
        if prefetch.size:
            self.is_limited = True
        while self._credit >= 1.0 and prefetch.size:
            self._credit -= 1.0
            self._forward(prefetch.move_first(device))
        if self._policy.rule is not None:
            situation = Situation(now_us, self._threshold, prefetch, device, self.habits)
            for message in apply_rule(self._policy.rule, situation, prefetch):
                prefetch.remove(message)
                device.add(message)
                self._forward(message)

    def _update_limit(self) -> None:
        """Set the prefetch limit of a policy that has one: its own, or what is learnt or predicted."""
        if self.predictor is not None:
            self._limit = self.habits.read_at_a_time * self.predictor.count_reads_to_outlast()
        elif self._policy.kind in ("buffer", "unified"):
            limit = self._policy.prefetch_limit
            self._limit = 2 * self.habits.read_at_a_time if limit == LEARNT else float(limit)

    def _remove_from_device(self, at_us: int, identities: Iterable[Hashable]) -> None:
        """Finish messages that are no longer on the device."""
        removed, known = [], self._known
        for identity in identities:
            message = known.get(identity)
            if message is not None and message.place in (DEVICE, NOWHERE):
                if message.place == DEVICE:  # else the simulator has removed it from the shared queue
                    self.device.remove(message)
                removed.append(message)
        self._finish(at_us, removed)

    def _evict(self, now_us: int) -> None:
        """Drop the waiting message with the lowest rank."""
        if self._lowest is None or len(self._lowest) > 2 * len(self._known):
            waiting = [message for message in self._known.values() if message.place != DEVICE]
            self._lowest = [(message.rank, -message.order, message) for message in waiting]
            heapify(self._lowest)
        while True:
            rank, _, message = heappop(self._lowest)
            if message.place not in (DEVICE, NOWHERE) and message.rank == rank:
                break
        self._queues[message.place].remove(message)
        self._finish(now_us, (message,))

    def _finish(self, now_us: int, messages: Iterable[Message]) -> None:
        """Forget messages that were read, expired, retracted or dropped, except for their names."""
        if now_us >= self._forget_us:
            self._finished_before, self._finished = self._finished, set()
            self._forget_us = now_us + self._remember_us
        known, finished = self._known, self._finished
        for message in messages:
            del known[message.identity]
            finished.add(message.identity)
            self._for_reads.discard(message.identity)


class PaperSpool(Spool):
    """A spool that estimates the length of the device's queue as the printed code does (Last hop 4.5).

    The code sets ``topic.queue_size`` in ``READ``, to the length before the read, and adds one for each
    forwarded message. It never subtracts the messages read, and learns nothing of reads without a network.
    All other defects are fixed as in :class:`Spool`.

    Parameters
    ----------
    threshold, forward, retract
        As for :class:`Spool`.
    prefetch_limit : int
        Maximum of the estimate.

    Attributes
    ----------
    queue_size : int
    """

    @check_arguments
    def __init__(self, threshold: float, prefetch_limit: int, forward: Take, retract: Take) -> None:
        self.queue_size = 0
        self._printed_limit = prefetch_limit

        def count_forwarded(message: Message) -> None:
            """Add one to the estimate for each forwarded message."""
            self.queue_size += 1
            forward(message)

        super().__init__(threshold, Forwarding("buffer", prefetch_limit), count_forwarded, retract)

    def read(self, now_us: int, max_messages: float) -> list[Message]:
        """Read as :meth:`Spool.read`."""
        self.queue_size = self.device.size
        return super().read(now_us, max_messages)

    def _try_forwarding(self, now_us: int) -> None:
        """Forward as :meth:`Spool._try_forwarding`, by the estimate of the queue's length."""
        # Spool compares the limit with the true queue length: shift it by the error of the estimate.
        self._limit = self.device.size + self._printed_limit - self.queue_size
        super()._try_forwarding(now_us)
