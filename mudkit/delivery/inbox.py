"""Received numbers of each sender: the next one, duplicates and early items.

Numbers are scoped to (sender, incarnation): a restarted, restored or wiped sender counts anew, and a
late copy of what it sent before is a duplicate.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mudkit.events import Store

MAX_INCARNATIONS: Final = 64
"""Incarnations of a sender that are remembered; the one that began first is evicted."""


class ItemOrder(Enum):
    """Order of an item among those of its sender's incarnation: the next one, a duplicate, or early."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    EARLY = "early"


class Inbox:
    """The last number that was taken of each incarnation of each sender, stored under ``name``."""

    def __init__(self, store: Store, name: str = "seen") -> None:
        self._store = store
        self._name = name

    def last_number(self, sender: str, incarnation: str) -> int:
        """Return the number of the last item that was taken of an incarnation; 0 before the first."""
        return self._store.get(self._number_key(sender, incarnation), int) or 0

    def classify(
        self, sender: str, incarnation: str, number: int, after_number: int | None = None
    ) -> ItemOrder:
        """Return whether an item is the next one of its sender's incarnation, a duplicate, or early.

        ``after_number`` precedes it here, for a sender that numbers the items of several receivers together;
        None: ``number - 1``.
        """
        last = self.last_number(sender, incarnation)
        if number <= last:
            return ItemOrder.DUPLICATE
        return (
            ItemOrder.NEXT
            if (number - 1 if after_number is None else after_number) <= last
            else ItemOrder.EARLY
        )

    def mark_taken(self, sender: str, incarnation: str, number: int) -> None:
        """Store that all items up to a number are taken; a lower number changes nothing.

        At the first item of an incarnation, the oldest one above the limit is forgotten.
        """
        last = self.last_number(sender, incarnation)
        if number <= last:
            return
        known: list[str] = [] if last else self._store.get(self._incarnations_key(sender), list[str]) or []
        if not last and incarnation not in known:
            known.append(incarnation)
            for former in known[:-MAX_INCARNATIONS]:
                self._store.delete(self._number_key(sender, former))
            self._store.put(self._incarnations_key(sender), known[-MAX_INCARNATIONS:])
        self._store.put(self._number_key(sender, incarnation), number)

    def rewind(self, sender: str, incarnation: str, number: int) -> None:
        """Store that only the items up to a number are taken: the receiver has lost the later ones."""
        self._store.put(self._number_key(sender, incarnation), number)

    def _incarnations_key(self, sender: str) -> str:
        """Return the store key of the list of a sender's incarnations."""
        return f"{self._name} {sender}"

    def _number_key(self, sender: str, incarnation: str) -> str:
        """Return the store key of the last number of an incarnation."""
        return f"{self._name} {sender}\n{incarnation}"
