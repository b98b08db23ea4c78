"""What came of each sender: what is next, what came before, and what has overtaken something.

Sequence numbers hold in one incarnation of a sender: a wiped device begins anew, and late copies of what it
has sent before are known.
"""

from __future__ import annotations

from enum import Enum

from mudkit.events import Store

__all__ = ["Inbox", "Place"]


class Place(Enum):
    """Where an item stands among those of its sender's incarnation."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    EARLY = "early"


class Inbox:
    """The last sequence number that was taken of each incarnation of each sender, durably.

    Parameters
    ----------
    store : Store
    name : str
        With which its keys in the store begin.
    """

    def __init__(self, store: Store, name: str = "seen") -> None:
        self._store = store
        self._name = name

    def last_seq(self, sender: str, incarnation: str) -> int:
        """Give the sequence number of the last item that was taken; 0 before the first."""
        return self._store.get(self._key(sender, incarnation), int) or 0

    def place(self, sender: str, incarnation: str, seq: int, after_seq: int | None = None) -> Place:
        """Say where an item stands.

        Parameters
        ----------
        sender, incarnation : str
        seq : int
            The sequence number of the item.
        after_seq : int, optional
            The number of the item before it that this receiver gets, where a sender numbers what it sends to
            several; by default the number before it.
        """
        last = self.last_seq(sender, incarnation)
        if seq <= last:
            return Place.DUPLICATE
        return Place.NEXT if (seq - 1 if after_seq is None else after_seq) <= last else Place.EARLY

    def take(self, sender: str, incarnation: str, seq: int) -> None:
        """Note that all up to an item were taken; a lower number than before changes nothing."""
        if seq > self.last_seq(sender, incarnation):
            self._store.put(self._key(sender, incarnation), seq)

    def forget(self, sender: str) -> None:
        """Forget all incarnations of a sender."""
        for key in self._store.keys(f"{self._name} {sender}\n"):
            self._store.delete(key)

    def _key(self, sender: str, incarnation: str) -> str:
        return f"{self._name} {sender}\n{incarnation}"
