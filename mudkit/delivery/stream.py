"""Both ends of an ordered stream with selective repeat.

The sender numbers its messages and sends them again until they are acknowledged. The receiver buffers early
messages, acknowledges cumulatively, and may report the missing ones, which alone are then sent again. A
stream belongs to one incarnation of its sender, which its name contains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

import msgspec

MAX_EARLY_ITEMS: Final = 256
"""Capacity of the receiver's buffer of early messages, as a distance in sequence numbers."""

_T = TypeVar("_T")
_Seq = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class StreamItem(msgspec.Struct, Generic[_T], frozen=True, tag_field="kind", tag="stream"):
    """Sender to receiver: an item of a stream; ``first`` is the number of the oldest unacknowledged one."""

    stream: _Name
    seq: _Seq = msgspec.field(name="number")
    first: _Seq
    body: _T


class StreamAck(msgspec.Struct, frozen=True, tag_field="kind", tag="confirmed"):
    """Receiver to sender: cumulative acknowledgement up to this sequence number."""

    stream: _Name
    seq: _Seq = msgspec.field(name="number")


class _Pending(NamedTuple, Generic[_T]):
    """Unacknowledged body, with its sequence number and the time at which it was added."""

    seq: int
    added_us: int
    body: _T


class Outgoing(Generic[_T]):
    """The sender's end of the stream ``name``, which is unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._last = 0
        self._pending: deque[_Pending[_T]] = deque()
        """Pending items, the oldest first."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def pending(self) -> Sequence[_Pending[_T]]:
        """Pending items, the oldest first: sequence number, time of addition, and body."""
        return self._pending

    def add(self, now_us: int, body: _T) -> StreamItem[_T]:
        """Append a body with the next number, and return the message to send."""
        self._last += 1
        self._pending.append(_Pending(self._last, now_us, body))
        return self._build_item(self._last, body)

    def ack_up_to(self, seq: int) -> Sequence[int]:
        """Remove all acknowledged items up to a sequence number, and return their numbers."""
        removed = []
        while self._pending and self._pending[0].seq <= seq:
            removed.append(self._pending.popleft().seq)
        return removed

    def pending_items(self) -> list[StreamItem[_T]]:
        """Return the messages of all pending items, to send them again."""
        return [self._build_item(seq, body) for seq, _, body in self._pending]

    def items_of(self, seqs: Collection[int]) -> list[StreamItem[_T]]:
        """Return the messages of those of some sequence numbers that are pending."""
        first_seq = self._last - len(self._pending) + 1
        indexes = (seq - first_seq for seq in sorted(seqs) if first_seq <= seq <= self._last)
        return [self._build_item(self._pending[index].seq, self._pending[index].body) for index in indexes]

    def _build_item(self, seq: int, body: _T) -> StreamItem[_T]:
        """Build the message of a pending item."""
        return StreamItem(self.name, seq, self._pending[0].seq, body)


class Incoming(Generic[_T]):
    """The receiver's end of one stream, from the oldest unacknowledged item on (:attr:`StreamItem.first`)."""

    def __init__(self, first_seq: int = 1) -> None:
        self.last_seq = first_seq - 1
        self._ahead: dict[int, _T] = {}
        """Early bodies by sequence number: not acknowledged, so they may be dropped."""

    def take(self, item: StreamItem[_T]) -> Sequence[_T]:
        """Accept a message, and return the bodies that are next in order: its own and buffered ones after it.

        An early one is buffered, and a duplicate ignored: then nothing is returned.
        """
        self.last_seq = max(self.last_seq, item.first - 1)  # acknowledged by an earlier start
        if item.seq == self.last_seq + 1 and not self._ahead:  # in order, as nearly all are
            self.last_seq += 1
            return (item.body,)
        self._ahead[item.seq] = item.body
        given = []
        while self.last_seq + 1 in self._ahead:
            self.last_seq += 1
            given.append(self._ahead.pop(self.last_seq))
        if self._ahead:
            last = self.last_seq + MAX_EARLY_ITEMS
            self._ahead = {seq: body for seq, body in self._ahead.items() if self.last_seq < seq <= last}
        return tuple(given)

    def build_ack(self, stream: str) -> StreamAck:
        """Build the cumulative acknowledgement, up to the last item that was taken."""
        return StreamAck(stream, self.last_seq)

    @property
    def missing(self) -> Sequence[int]:
        """Missing sequence numbers before the last buffered message, in order."""
        newest = max(self._ahead, default=self.last_seq)
        return [seq for seq in range(self.last_seq + 1, newest) if seq not in self._ahead]
