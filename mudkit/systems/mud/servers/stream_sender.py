"""Sender of a numbered stream to one receiver, used by processors, notification servers and the generator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from mudkit.delivery.retransmit import (
    DEFAULT_MAX_TIMEOUT_US,
    DEFAULT_TIMEOUT_US,
    DEFAULT_US_PER_BYTE,
    RetransmitTimer,
)
from mudkit.delivery.stream import Outgoing, StreamItem
from mudkit.events import Effect, Send, size_bytes

AGAIN: Final = "again "
"""Prefix of the names of retransmission timers; the receiver's name follows."""

_T = TypeVar("_T")


class StreamSender(Generic[_T]):
    """Stream to a receiver; every unacknowledged item has its own deadline.

    ``stream`` is the name of the stream, ``receiver`` that of the receiver, for the timer, and ``address``
    its address, which :meth:`resume` replaces; for the rest see
    :class:`mudkit.delivery.retransmit.RetransmitTimer`. While ``is_reached`` is False, items wait.
    """

    def __init__(
        self,
        stream: str,
        receiver: str,
        address: str,
        timeout_us: int = DEFAULT_TIMEOUT_US,
        max_timeout_us: int = DEFAULT_MAX_TIMEOUT_US,
        us_per_byte: int = DEFAULT_US_PER_BYTE,
    ) -> None:
        self.receiver_address = address
        self.is_reached = True
        self._counts_bytes = us_per_byte > 0
        self._stream: Outgoing[_T] = Outgoing(stream)
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(
            AGAIN + receiver, timeout_us, max_timeout_us, us_per_byte
        )

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self._stream.name

    def __len__(self) -> int:
        return len(self._stream)

    def age_us(self, now_us: int) -> int:
        """Return the time since the oldest unacknowledged item was added; 0: there is none."""
        return now_us - self._stream.pending[0].added_us if self._stream else 0

    def send(self, now_us: int, body: _T) -> Sequence[Effect]:
        """Add an item to the stream, and send it if the receiver is reached."""
        return self._transmit(now_us, [self._stream.add(now_us, body)])

    def add(self, now_us: int, body: _T) -> None:
        """Add an item that waits until :meth:`resume` sends it."""
        self._stream.add(now_us, body)

    def ack_up_to(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Remove the acknowledged items up to a sequence number, with their deadlines."""
        seqs = self._stream.ack_up_to(seq)
        return [effect for acked in seqs for effect in self._in_flight.settle(now_us, acked)]

    def retransmit_overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit overdue items after the timer fired."""
        late = frozenset(self._in_flight.overdue(now_us))
        return [*self._transmit(now_us, self._stream.items_of(late)), *self._in_flight.restart(now_us)]

    def resume(self, now_us: int, address: str) -> Sequence[Effect]:
        """Send every item again, to an address at which the receiver is reached."""
        self.receiver_address, self.is_reached = address, True
        return [*self._in_flight.clear(), *self._transmit(now_us, self._stream.pending_items())]

    def withdraw(self, now_us: int) -> tuple[list[_T], Sequence[Effect]]:
        """Remove all items, whose receiver was replaced; return their bodies. Later ones count on."""
        pending = self._stream.pending
        bodies = [item.body for item in pending]
        return bodies, self.ack_up_to(now_us, pending[-1].seq) if pending else ()

    def close(self) -> Sequence[Effect]:
        """Cancel the deadlines of all items: the stream has ended."""
        return self._in_flight.clear()

    def _transmit(self, now_us: int, items: Iterable[StreamItem[_T]]) -> list[Effect]:
        """Send items, unless the receiver is not reached, and start their deadlines."""
        effects: list[Effect] = []
        for item in items:
            size = 0
            if self.is_reached:
                size = size_bytes(item) if self._counts_bytes else 0
                effects.append(Send(self.receiver_address, item))
            effects += self._in_flight.start(now_us, item.seq, size)
        return effects
