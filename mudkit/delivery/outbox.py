"""Durable items with sequence numbers, kept until they are acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final, Generic, NamedTuple, TypeVar

from mudkit.delivery.session import Incarnation
from mudkit.errors import OutboxFull
from mudkit.events import Ports

DEFAULT_MAX_ITEMS: Final = 65_536
"""Default capacity of an outbox, in items."""

_T = TypeVar("_T")


class ItemId(NamedTuple):
    """Permanent name of an item on the network: the incarnation that accepted it, and its number there."""

    incarnation: str
    number: int


class Outbox(Generic[_T]):
    """Pending items of the struct ``kind`` in the order of their sequence numbers, at most ``max_items``.

    A sequence number is local: it counts on over restarts, and a restored store gives it to another item.
    Peers know an item by its name. ``last_seq`` is that of the last item; 0 before the first.
    """

    def __init__(
        self, ports: Ports, kind: type[_T], name: str = "out", max_items: int = DEFAULT_MAX_ITEMS
    ) -> None:
        self._store = ports.store
        self._name = name
        self._max_items = max_items
        self._incarnation = Incarnation(ports)
        self._pending: dict[int, _T] = {
            int(key.rpartition(" ")[2]): item for key, item in ports.store.items(f"{name} ", kind)
        }
        self.last_seq: int = max((ports.store.get(f"last of {name}", int) or 0, *self._pending))
        self._starts: dict[str, int] = ports.store.get(f"starts of {name}", dict[str, int]) or {}
        """The sequence number before the first item of each incarnation with pending items, oldest first."""
        self._base_seq = self.last_seq

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[_T]:
        return iter(list(self._pending.values()))

    def __contains__(self, seq: int) -> bool:
        return seq in self._pending

    def __getitem__(self, seq: int) -> _T:
        return self._pending[seq]

    def get(self, seq: int) -> _T | None:
        """Return the pending item of a sequence number; None if it is not pending."""
        return self._pending.get(seq)

    @property
    def incarnation(self) -> str:
        """Incarnation of this start, which names the items that are added from now on."""
        return self._incarnation.id

    @property
    def first_seq(self) -> int:
        """Sequence number of the first pending item; of the next item if none is pending."""
        return next(iter(self._pending), self.last_seq + 1)

    def items(self, first_seq: int = 0) -> Iterator[tuple[int, _T]]:
        """Iterate over pending items starting at a sequence number."""
        return ((seq, item) for seq, item in self._pending.items() if seq >= first_seq)

    def sendable_items(self, first_seq: int = 0) -> Iterator[tuple[int, _T]]:
        """Iterate over the pending items that may be sent: those of the oldest incarnation.

        Items of the next incarnation follow when these were acknowledged: this keeps the order.
        """
        first = self.first_seq
        ends = [base_seq for base_seq in (*self._starts.values(), self._base_seq) if base_seq >= first]
        last = min(ends, default=self.last_seq)
        return takewhile(lambda pair: pair[0] <= last, self.items(first_seq))

    def item_id(self, seq: int) -> ItemId:
        """Return the permanent name of a pending item, or of the next one."""
        if seq > self._base_seq:
            return ItemId(self._incarnation.id, seq - self._base_seq)
        before = [(base_seq, start) for start, base_seq in self._starts.items() if base_seq < seq]
        base_seq, incarnation = max(before)  # a store on disk may not keep the order of a mapping
        return ItemId(incarnation, seq - base_seq)

    def seq_of(self, incarnation: str, number: int) -> int:
        """Return the sequence number of a named item; 0 if no item of its incarnation can be pending.

        A number beyond the incarnation's last stands for the last, or for a later one that is not pending
        either.
        """
        bases = {**self._starts, self._incarnation.id: self._base_seq}
        if incarnation not in bases or number < 1:
            return 0
        later = [base for base in bases.values() if base > bases[incarnation]]
        return min(bases[incarnation] + number, self.last_seq, *later)

    def add(self, item: _T, seq: int | None = None) -> int:
        """Store an item durably, and return its sequence number; raise OutboxFull at the capacity.

        ``seq`` is given by a machine that numbers several outboxes together, and is higher than all before.
        """
        self.check_room(1)
        seq = self.last_seq + 1 if seq is None else seq
        if self.last_seq == self._base_seq:  # the first one since the start
            pending = {self.item_id(seq).incarnation for seq in self._pending}
            self._starts = {
                incarnation: base_seq
                for incarnation, base_seq in self._starts.items()
                if incarnation in pending
            }
            self._starts[self._incarnation.id] = self._base_seq
            self._store.put(f"starts of {self._name}", self._starts)
        self._store.put(self._key(seq), item)
        self.last_seq = seq
        self._pending[seq] = item
        return seq

    def check_room(self, items: int) -> None:
        """Raise OutboxFull unless as many items can be added."""
        if len(self._pending) + items > self._max_items:
            raise OutboxFull(
                "Nothing more can wait to be sent.",
                where="the outbox",
                found=f"{len(self._pending):,} items that nobody has acknowledged",
                expected=f"at most {self._max_items:,}",
                remedy="wait until the network is back and they have gone",
            )

    def replace(self, seq: int, item: _T) -> None:
        """Replace a pending item, durably; it keeps its sequence number and name."""
        self._store.put(self._key(seq), item)
        self._pending[seq] = item

    def ack(self, seq: int) -> _T | None:
        """Delete one acknowledged item, and return it; None if it is not pending."""
        item = self._pending.pop(seq, None)
        if item is not None:
            self._store.delete(self._key(seq))
            if seq == self.last_seq:  # no pending item has the number any more
                self._store.put(f"last of {self._name}", seq)
        return item

    def ack_up_to(self, up_to_seq: int) -> list[tuple[int, _T]]:
        """Delete all items up to a sequence number, and return them with their numbers."""
        acknowledged = list(takewhile(lambda pending: pending[0] <= up_to_seq, self._pending.items()))
        for seq, _ in acknowledged:
            self.ack(seq)
        return acknowledged

    def _key(self, seq: int) -> str:
        """Return the store key of an item."""
        return f"{self._name} {str(seq).zfill(19)}"
