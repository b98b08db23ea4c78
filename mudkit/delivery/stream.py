"""A stream of messages from one machine to another: each once, in order, whatever is lost, late or repeated.

The sender numbers them and sends them again until the receiver has said that it has them. The receiver keeps
what has overtaken something, and says up to where it has everything: what is late need not be sent again, nor
what has overtaken it. It may say what it misses: then only that is sent again. A stream belongs to one
incarnation of its sender: another incarnation begins another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

import msgspec

__all__ = ["MOST_AHEAD", "Incoming", "Outgoing", "StreamAck", "StreamItem"]

MOST_AHEAD: Final = 256
"""A receiver keeps what is so far ahead of the last that it gave; what is further ahead has to come again."""

_T = TypeVar("_T")
_Seq = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class StreamItem(msgspec.Struct, Generic[_T], frozen=True, tag_field="kind", tag="stream"):
    """Sender to receiver: an item of a stream.

    ``first`` is the sequence number of the oldest item that the sender still keeps: what was before it, this
    receiver, or a former life of it, has acknowledged.
    """

    stream: _Name
    seq: _Seq = msgspec.field(name="number")
    first: _Seq
    body: _T


class StreamAck(msgspec.Struct, frozen=True, tag_field="kind", tag="confirmed"):
    """Receiver to sender: it has everything up to this sequence number."""

    stream: _Name
    seq: _Seq = msgspec.field(name="number")


class _Waiting(NamedTuple, Generic[_T]):
    seq: int
    sent_us: int
    body: _T


class Outgoing(Generic[_T]):
    """The sender's end.

    Parameters
    ----------
    name : str
        Which no other stream has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._last = 0
        self._waiting: deque[_Waiting[_T]] = deque()
        """What nobody has acknowledged, the oldest first."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> Sequence[_Waiting[_T]]:
        """What nobody has acknowledged, the oldest first: sequence number, when it was added, and body."""
        return self._waiting

    def add(self, now_us: int, body: _T) -> StreamItem[_T]:
        """Take the next one, and give the message to be sent."""
        self._last += 1
        self._waiting.append(_Waiting(self._last, now_us, body))
        return self._item(self._last, body)

    def acked(self, seq: int) -> None:
        """Forget what has come."""
        while self._waiting and self._waiting[0].seq <= seq:
            self._waiting.popleft()

    def again(self) -> list[StreamItem[_T]]:
        """Give all messages that nobody has acknowledged."""
        return [self._item(seq, body) for seq, _, body in self._waiting]

    def missing(self, seqs: Collection[int]) -> list[StreamItem[_T]]:
        """Give those that the receiver misses, as far as it has not said since that it has them."""
        return [self._item(seq, body) for seq, _, body in self._waiting if seq in seqs]

    def _item(self, seq: int, body: _T) -> StreamItem[_T]:
        return StreamItem(self.name, seq, self._waiting[0].seq, body)


class Incoming(Generic[_T]):
    """The receiver's end of one stream.

    Parameters
    ----------
    first_seq : int
        That of the first item that the sender still keeps (:attr:`StreamItem.first`): what it had to say
        before, another life of this receiver has acknowledged.
    """

    def __init__(self, first_seq: int = 1) -> None:
        self.last_seq = first_seq - 1
        self._ahead: dict[int, _T] = {}
        """Bodies, by sequence number, of what has overtaken something: not acknowledged; may be forgotten."""

    def take(self, item: StreamItem[_T]) -> Sequence[_T]:
        """Give what the message brings, and what has waited for it.

        Nothing when it came before, or when one before it is missing: then it waits.
        """
        self.last_seq = max(self.last_seq, item.first - 1)  # another life of this receiver has had that
        self._ahead[item.seq] = item.body
        given = []
        while self.last_seq + 1 in self._ahead:
            self.last_seq += 1
            given.append(self._ahead.pop(self.last_seq))
        if self._ahead:
            most = self.last_seq + MOST_AHEAD
            self._ahead = {seq: body for seq, body in self._ahead.items() if self.last_seq < seq <= most}
        return tuple(given)

    def forget(self) -> None:
        """Forget what has overtaken something: the sender sends it again, unless its life is over."""
        self._ahead.clear()

    def ack(self, stream: str) -> StreamAck:
        """Give the message that tells the sender what has come."""
        return StreamAck(stream, self.last_seq)

    @property
    def missing(self) -> Sequence[int]:
        """Sequence numbers of what was overtaken and has not come, the first first."""
        newest = max(self._ahead, default=0)
        return [each for each in range(self.last_seq + 1, newest) if each not in self._ahead]
