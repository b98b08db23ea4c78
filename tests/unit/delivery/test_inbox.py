"""Inbox: next, duplicate and early items per sender and incarnation."""

from __future__ import annotations

import pytest

from mudkit.delivery.inbox import MAX_INCARNATIONS, Inbox, Place
from mudkit.fleet.store import MemoryStore


@pytest.mark.parametrize(
    ("seq", "after", "place"),
    [
        (4, None, Place.NEXT), (5, None, Place.EARLY), (3, None, Place.DUPLICATE), (1, None, Place.DUPLICATE),
        (9, 3, Place.NEXT),  # 4 to 8 were sent to others
        (9, 2, Place.NEXT), (9, 4, Place.EARLY), (3, 0, Place.DUPLICATE),
    ],
)  # fmt: skip
def test_item_is_next_duplicate_or_early(seq: int, after: int | None, place: Place) -> None:
    inbox = Inbox(MemoryStore())
    inbox.take("ann", "0a", 3)
    assert inbox.place("ann", "0a", seq, after) is place


def test_numbers_are_durable_and_scoped_to_sender_and_incarnation() -> None:
    store = MemoryStore()
    inbox = Inbox(store)
    inbox.take("ann", "0a", 3)
    inbox.take("ann", "0b", 1)
    inbox.take("ann", "0a", 2)  # a lower number changes nothing
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
    inbox.take("ann", "0a", 3)
    store.commit()
    inbox.take("ann", "0a", 3)
    assert not store.is_dirty


def test_rewind_makes_lost_items_next_again() -> None:
    inbox = Inbox(MemoryStore())
    for name in ("ann", "bob"):
        inbox.take(name, "0a", 3)
    inbox.rewind("ann", "0a", 1)
    assert inbox.place("ann", "0a", 2) is Place.NEXT
    assert inbox.place("bob", "0a", 3) is Place.DUPLICATE


def test_number_of_incarnations_per_sender_is_bounded() -> None:
    store = MemoryStore()
    inbox = Inbox(store)
    inbox.take("bob", "0", 1)
    for number in range(MAX_INCARNATIONS + 2):
        inbox.take("ann", f"{number}", 1)
        inbox.take("ann", f"{number}", 2)
    places = [inbox.place("ann", f"{number}", 2) for number in range(MAX_INCARNATIONS + 2)]
    assert places == [Place.EARLY] * 2 + [Place.DUPLICATE] * MAX_INCARNATIONS
    assert inbox.place("bob", "0", 1) is Place.DUPLICATE
    assert len(store.keys("seen ann")) == MAX_INCARNATIONS + 1
