"""What a machine has to send: durable items with sequence numbers, kept until they were acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from mudkit.errors import OutboxFull
from mudkit.events import Store

__all__ = ["MOST_WAITING", "Outbox"]

MOST_WAITING: Final = 65_536
"""Items that may wait; more are refused until some were acknowledged."""

_T = TypeVar("_T")


class Outbox(Generic[_T]):
    """Items in the order of their sequence numbers, which begin with 1 in each incarnation of the store.

    Parameters
    ----------
    store : Store
    kind : type
        What an item is, as the store gives it back: a struct.
    name : str
        With which its keys in the store begin.
    most : int
        How many items may wait.

    Attributes
    ----------
    last_seq : int
        The sequence number of the last item; 0 before the first.
    """

    def __init__(self, store: Store, kind: type[_T], name: str = "out", most: int = MOST_WAITING) -> None:
        self._store = store
        self._name = name
        self._most = most
        self.last_seq: int = store.get(f"last of {name}", int) or 0
        self._waiting: dict[int, _T] = {
            int(key.rpartition(" ")[2]): item for key, item in store.items(f"{name} ", kind)
        }

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, seq: int) -> bool:
        return seq in self._waiting

    def __getitem__(self, seq: int) -> _T:
        return self._waiting[seq]

    @property
    def first_seq(self) -> int:
        """Sequence number of the first item that waits; without any, that of the next to come."""
        return next(iter(self._waiting), self.last_seq + 1)

    def items(self, first_seq: int = 0) -> Iterator[tuple[int, _T]]:
        """Give what waits, from a sequence number on, in order."""
        return ((seq, item) for seq, item in self._waiting.items() if seq >= first_seq)

    def add(self, item: _T, seq: int | None = None) -> int:
        """Store an item under a sequence number, and return that.

        Parameters
        ----------
        item
        seq : int, optional
            Above all before, for a machine with one numbering for several outboxes; by default the next one.

        Raises
        ------
        OutboxFull
            ``most`` items wait.
        """
        if len(self._waiting) >= self._most:
            raise OutboxFull(
                "Nothing more can wait to be sent.",
                where="the outbox",
                found=f"{len(self._waiting):,} items that nobody has acknowledged",
                expected=f"at most {self._most:,}",
                remedy="wait until the network is back and they have gone",
            )
        seq = self.last_seq + 1 if seq is None else seq
        self._store.put(f"last of {self._name}", seq)
        self._store.crash_point("numbered, not in the outbox")
        self._store.put(self._key(seq), item)
        self.last_seq = seq
        self._waiting[seq] = item
        return seq

    def replace(self, seq: int, item: _T) -> None:
        """Store another item in place of one that waits."""
        self._store.put(self._key(seq), item)
        self._waiting[seq] = item

    def ack(self, seq: int) -> _T | None:
        """Forget one item that has arrived; None: it does not wait."""
        item = self._waiting.pop(seq, None)
        if item is not None:
            self._store.delete(self._key(seq))
        return item

    def acked(self, up_to_seq: int) -> list[tuple[int, _T]]:
        """Forget all items up to a sequence number, and give them."""
        gone = [(seq, item) for seq, item in self._waiting.items() if seq <= up_to_seq]
        for seq, _ in gone:
            self.ack(seq)
        return gone

    def _key(self, seq: int) -> str:
        return f"{self._name} {seq:019d}"
