"""Inbox: next, duplicate and early items per sender and incarnation."""

from __future__ import annotations

import pytest

from mudkit.delivery.inbox import MAX_INCARNATIONS, Inbox, ItemOrder
from mudkit.fleet.store import MemoryStore


@pytest.mark.parametrize(
    ("seq", "after", "place"),
    [
        (4, None, ItemOrder.NEXT), (5, None, ItemOrder.EARLY), (3, None, ItemOrder.DUPLICATE), (1, None, ItemOrder.DUPLICATE),
        (9, 3, ItemOrder.NEXT),  # 4 to 8 were sent to others
        (9, 2, ItemOrder.NEXT), (9, 4, ItemOrder.EARLY), (3, 0, ItemOrder.DUPLICATE),
    ],
)  # fmt: skip
def test_item_is_next_duplicate_or_early(seq: int, after: int | None, place: ItemOrder) -> None:
    inbox = Inbox(MemoryStore())
    inbox.mark_taken("ann", "0a", 3)
    assert inbox.classify("ann", "0a", seq, after) is place


def test_numbers_are_durable_and_scoped_to_sender_and_incarnation() -> None:
    store = MemoryStore()
    inbox = Inbox(store)
    inbox.mark_taken("ann", "0a", 3)
    inbox.mark_taken("ann", "0b", 1)
    inbox.mark_taken("ann", "0a", 2)  # a lower number changes nothing
    restarted = Inbox(store)
    seqs = {
        (name, incarnation): restarted.last_number(name, incarnation)
        for name in ("ann", "an")
        for incarnation in ("0a", "0b")
    }
    assert seqs == {("ann", "0a"): 3, ("ann", "0b"): 1, ("an", "0a"): 0, ("an", "0b"): 0}
    assert Inbox(store, "other").last_number("ann", "0a") == 0


def test_duplicate_item_is_not_stored_again() -> None:
    store = MemoryStore()
    inbox = Inbox(store)
    inbox.mark_taken("ann", "0a", 3)
    store.commit()
    inbox.mark_taken("ann", "0a", 3)
    assert not store.is_dirty


def test_rewind_makes_lost_items_next_again() -> None:
    inbox = Inbox(MemoryStore())
    for name in ("ann", "bob"):
        inbox.mark_taken(name, "0a", 3)
    inbox.rewind("ann", "0a", 1)
    assert inbox.classify("ann", "0a", 2) is ItemOrder.NEXT
    assert inbox.classify("bob", "0a", 3) is ItemOrder.DUPLICATE


def test_number_of_incarnations_per_sender_is_bounded() -> None:
    store = MemoryStore()
    inbox = Inbox(store)
    inbox.mark_taken("bob", "0", 1)
    for number in range(MAX_INCARNATIONS + 2):
        inbox.mark_taken("ann", f"{number}", 1)
        inbox.mark_taken("ann", f"{number}", 2)
    places = [inbox.classify("ann", f"{number}", 2) for number in range(MAX_INCARNATIONS + 2)]
    assert places == [ItemOrder.EARLY] * 2 + [ItemOrder.DUPLICATE] * MAX_INCARNATIONS
    assert inbox.classify("bob", "0", 1) is ItemOrder.DUPLICATE
    assert len(store.keys("seen ann")) == MAX_INCARNATIONS + 1
