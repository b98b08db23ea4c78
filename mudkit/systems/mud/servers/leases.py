"""Leases of a master from its standbys, and what it may not send before all of them have its store.

Nothing is periodic. A standby that acknowledges a message of the master promises not to act as the master
itself for :data:`LEASE_US` and the greatest difference of their clocks, from its answer; for the master the
lease counts from when it sent the message. The master asks for another one when it has something to send,
and the last one has ended or is half over. Without standbys it needs none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.events import Effect, Send
from mudkit.systems.mud.messages.standbys import CopyAck, StoreChange, StoreChanges, StoreCopy
from mudkit.wire import Value

LEASE_US: Final = 5_000_000
"""Time of a lease, from the question."""
CLOCK_ERROR_US: Final = 500_000
"""Greatest difference of the clocks of two stores in that time."""
PROMISE_US: Final = LEASE_US + CLOCK_ERROR_US
"""Time for which a standby does not act as the master after its answer."""
SILENT_US: Final = 2_000_000
"""A standby that has not acknowledged a message for this time is reported."""
COPIES: Final = "copies"
"""Name of the timer of unacknowledged messages to standbys."""
_AGAIN_US: Final = 200_000
_MAX_AGAIN_US: Final = 2_000_000
Values: TypeAlias = Callable[[], list[tuple[str, Value]]]
"""Returns the whole store."""


_NOTHING: Final = -1


@dataclass
class _Standby:
    """State of a standby, as the master knows it.

    ``acked_seq`` -1: it needs the whole store, and will have it up to ``copied_seq``.
    """

    copied_seq: int
    acked_seq: int = _NOTHING
    lease_until_us: int = 0
    since_us: int | None = None
    """Time of the first message since the last acknowledgement; None: there is no unacknowledged one."""


class Leases:
    """Standbys of a master in its ``term``, which has made ``seq`` changes; ``values`` returns its store.

    The ``required`` ones have to acknowledge each change; others get the whole store first. Nothing is sent
    but to standbys before ``from_us``.
    """

    def __init__(self, term: int, seq: int, required: Iterable[str], values: Values, from_us: int) -> None:
        self.term, self.seq, self.from_us = term, seq, from_us
        self._values = values
        self._standbys = {address: _Standby(seq) for address in required}
        self._required = set(self._standbys)
        self.admitting: set[str] = set()
        """Required standbys that the naming machine does not know yet as members."""
        self.offered: set[str] = set()
        """Those of them of which it was told, so that it may have admitted them."""
        self._changes: deque[StoreChange] = deque()
        """Last changes, up to number ``seq``, that some standby has not acknowledged."""
        self._waiting: deque[tuple[int, list[Send]]] = deque()
        """Messages that may be sent when all required standbys have the changes up to a number, in order."""
        self._released_seq = 0
        """Greatest of these numbers of what was sent."""
        self._in_flight: RetransmitTimer[str] = RetransmitTimer(COPIES, _AGAIN_US, _MAX_AGAIN_US, 0)

    def replace_members(self, now_us: int, members: Iterable[str]) -> Sequence[Effect]:
        """Require the acknowledgements of the members, and of those that are not admitted yet."""
        members = set(members)
        self.admitting -= members
        self.offered -= members
        removed = self._required - members - self.admitting
        self._required = members | self.admitting
        for address in members:
            self._standbys.setdefault(address, _Standby(self.seq))
        return [effect for address in removed for effect in self._forget(now_us, address)]

    def add_change(self, change: StoreChange) -> None:
        """Add the changes of one event to those that the standbys need."""
        self.seq += 1
        if self._standbys:
            self._changes.append(change)

    def keep(self, sends: list[Send]) -> None:
        """Keep messages until all required standbys have all changes up to now, and the leases are valid."""
        if sends:
            self._waiting.append((self.seq, sends))

    def release(self, now_us: int) -> Sequence[Effect]:
        """Send what may be sent, and to each standby what it lacks; ask for leases if they are needed."""
        required = [self._standbys[address] for address in self._required]
        released: list[Effect] = []
        was_waiting = bool(self._waiting)
        if now_us >= self.from_us and all(standby.lease_until_us > now_us for standby in required):
            everywhere_seq = min((standby.acked_seq for standby in required), default=self.seq)
            while self._waiting and self._waiting[0][0] <= everywhere_seq:
                self._released_seq, sends = self._waiting.popleft()
                released += sends
        for address, standby in self._standbys.items():
            is_ending = standby.lease_until_us - now_us < LEASE_US // 2
            is_lease_needed = was_waiting and address in self._required and is_ending
            if standby.since_us is None and (standby.acked_seq < self.seq or is_lease_needed):
                released += self._send(now_us, address, standby)
        return released

    def receive_ack(self, now_us: int, address: str, ack: CopyAck) -> Sequence[Effect]:
        """Record what a standby has, and the lease that it gives; it may be one that asks for the store.

        One that has all that was sent to others is to be admitted.
        """
        is_of_term = ack.term == self.term and ack.seq != _NOTHING
        is_possible = ack.sent_us <= now_us and (ack.seq <= self.seq if is_of_term else ack.seq == _NOTHING)
        if not is_possible or ack.term > self.term:
            return ()  # an acknowledgement of a former term, or this master was replaced
        if address not in self._standbys and 0 < ack.sent_us <= now_us - LEASE_US:
            return ()  # a late copy: the standby was forgotten, and will ask for the store
        standby = self._standbys.setdefault(address, _Standby(self.seq))
        if not is_of_term:
            if standby.acked_seq != _NOTHING or standby.since_us is None:  # else the store is on its way
                standby.acked_seq, standby.since_us = _NOTHING, None
            return self.release(now_us)
        standby.acked_seq = max(standby.acked_seq, ack.seq)
        standby.lease_until_us = max(standby.lease_until_us, ack.sent_us + LEASE_US)
        settled: Sequence[Effect] = ()
        if standby.since_us is not None and ack.sent_us >= standby.since_us:
            standby.since_us, standby.acked_seq = None, ack.seq
            settled = self._in_flight.settle(now_us, address)
        if address not in self._required:
            self._required.add(address)
            self.admitting.add(address)
        self._forget_changes()
        return *settled, *self.release(now_us)

    def is_ready(self, address: str) -> bool:
        """Return whether a standby has all that any client or server was told of; it was so when offered."""
        return address in self.offered or self._standbys[address].acked_seq >= self._released_seq

    def retransmit(self, now_us: int) -> tuple[Sequence[str], Sequence[Effect]]:
        """Send overdue messages again; return also the members that are silent, or may be members.

        Others that are silent are forgotten: they will ask for the store.
        """
        effects: list[Effect] = []
        silent: list[str] = []
        for address in self._in_flight.overdue(now_us):
            standby = self._standbys[address]
            is_silent = standby.since_us is not None and now_us - standby.since_us >= SILENT_US
            is_member = address in self._required - self.admitting or address in self.offered
            if is_silent and not is_member:
                effects += self._forget(now_us, address)
                continue
            silent += [address] if is_silent else []
            effects += self._send(now_us, address, standby)
        return silent, [*effects, *self._in_flight.restart(now_us)]

    def close(self) -> Sequence[Effect]:
        """Drop the messages that wait, and the deadlines: the master was replaced."""
        return self._in_flight.clear()

    def _send(self, now_us: int, address: str, standby: _Standby) -> Sequence[Effect]:
        """Send a standby what it lacks, or a question if it lacks nothing."""
        standby.since_us = now_us if standby.since_us is None else standby.since_us
        message: StoreChanges | StoreCopy
        lacking = self.seq - standby.acked_seq
        if standby.acked_seq == _NOTHING or lacking > len(self._changes):
            standby.acked_seq, standby.copied_seq = _NOTHING, self.seq
            message = StoreCopy(self.term, self.seq, self._values(), now_us)
        else:
            changes = list(self._changes)[len(self._changes) - lacking :]
            message = StoreChanges(self.term, standby.acked_seq, changes, now_us)
        return Send(address, message), *self._in_flight.start(now_us, address)

    def _forget(self, now_us: int, address: str) -> Sequence[Effect]:
        """Forget a standby, and wait for it no more."""
        del self._standbys[address]
        self._required.discard(address)
        self.admitting.discard(address)
        self._forget_changes()
        return self._in_flight.settle(now_us, address)

    def _forget_changes(self) -> None:
        """Forget the changes that all standbys have, or will get with the whole store."""
        seqs = [
            standby.copied_seq if standby.acked_seq == _NOTHING else standby.acked_seq
            for standby in self._standbys.values()
        ]
        lacking = self.seq - min(seqs, default=self.seq)
        while len(self._changes) > lacking:
            self._changes.popleft()
