"""Deliveries are put together from notes, in whatever order these come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import SimulationProblem
from mudkit.fleet.recorder import Deliveries
from mudkit.trace.schema import STATUSES

NAMED = {"item": "i", "receiver": "r"}


def row_of(now_us: int, **times: int | None) -> tuple[Any, ...]:
    deliveries = Deliveries()
    deliveries.record("s", {**NAMED, "created_us": 100, **times})
    [row] = deliveries.rows(now_us)
    return row


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ({}, "lost"),
        ({"delivered_us": 200}, "unread"),
        ({"delivered_us": 200, "read_us": 300}, "read"),
        ({"delivered_us": 200, "read_us": 300, "expired_us": 300}, "read"),
        ({"delivered_us": 200, "read_us": 301, "expired_us": 300}, "expired"),
        ({"delivered_us": 200, "expired_us": 1000}, "expired"),
        ({"delivered_us": 200, "expired_us": 1001}, "unread"),
        ({"expired_us": 300}, "expired"),
        ({"expired_us": 1001}, "lost"),
        ({"refused_us": 150}, "refused"),
        ({"refused_us": 150, "delivered_us": 200, "expired_us": 300}, "refused"),
        ({"delivered_us": None, "read_us": None}, "lost"),
    ],
)
def test_statuses(times, status):
    row = row_of(1000, **times)
    assert status in STATUSES
    assert row[-1] == status
    assert row[:4] == ("s", "i", "r", 100)
    assert row[4:7] == tuple(times.get(name) for name in ("delivered_us", "read_us", "expired_us"))


def test_times_since_its_creation():
    assert row_of(1000, delivered_us=250_100, read_us=1_000_100)[7:9] == (0.25, 1.0)
    assert row_of(1000)[7:9] == (None, None)


notes = st.lists(
    st.tuples(
        st.sampled_from(["created_us", "delivered_us", "read_us", "refused_us"]),
        st.integers(0, 500),
        st.sampled_from("ab"),
    ),
    max_size=12,
)


@given(notes, st.integers(0, 500), st.randoms(use_true_random=False))
def test_the_order_of_notes_does_not_matter(notes: Any, expired_us: int, random: Any) -> None:
    rows = [{"item": item, "receiver": "r", name: at} for name, at, item in notes]
    rows += [{"item": item, "receiver": "r", "created_us": 500} for item in "ab"]
    rows.append({"item": "a", "receiver": "r", "expired_us": expired_us})
    result = []
    for _ in range(3):
        deliveries = Deliveries()
        for row in rows:
            deliveries.record("s", row)
        result.append(list(deliveries.rows(400)))
        random.shuffle(rows)
    assert result[0] == result[1] == result[2]
    earliest = {
        (name, item): min(
            at for field, at, of in [*notes, ("created_us", 500, item)] if (field, of) == (name, item)
        )
        for name, _, item in notes
    }
    for _, item, _, created, delivered, read, *_ in result[0]:
        assert created == earliest.get(("created_us", item), 500)
        assert delivered == earliest.get(("delivered_us", item))
        assert read == earliest.get(("read_us", item))


def test_the_last_word_on_its_end_counts():
    deliveries = Deliveries()
    for more in ({"created_us": 1}, {"expired_us": 50}, {"expired_us": 40}):
        deliveries.record("s", {**NAMED, **more})
    assert next(deliveries.rows(45))[-1] == "expired"


def test_rows_are_sorted_and_apart():
    deliveries = Deliveries()
    for system, item, receiver, at in (
        ("t", "i", "r", 5),
        ("s", "i", "r", 5),
        ("s", "h", "r", 9),
        ("s", "i", "q", 5),
    ):
        deliveries.record(system, {"item": item, "receiver": receiver, "created_us": at})
    assert [row[:4] for row in deliveries.rows(10)] == [
        ("s", "i", "q", 5),
        ("s", "i", "r", 5),
        ("t", "i", "r", 5),
        ("s", "h", "r", 9),
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"item": "i"},
        {"receiver": "r"},
        {},
        {**NAMED, "seen_us": 5},
        {**NAMED, "read_us": "now"},
        {**NAMED, "read_us": 1.5},
        {**NAMED, "read_us": True},
    ],
)
def test_notes_that_cannot_be_read(row):
    deliveries = Deliveries()
    with pytest.raises(SimulationProblem, match="cannot be read") as error:
        deliveries.record("mail", row)
    assert error.value.where == "mail"
    assert "created_us" in error.value.expected
    assert list(deliveries.rows(0)) == []


def test_an_item_that_nobody_has_created_has_no_row_and_hides_no_other():
    deliveries = Deliveries()
    assert not deliveries.record("mail", {**NAMED, "read_us": 5})
    assert deliveries.record("mail", {**NAMED, "receiver": "other", "created_us": 4})
    assert [row[:3] for row in deliveries.rows(9)] == [("mail", NAMED["item"], "other")]
    assert deliveries.record("mail", {**NAMED, "created_us": 4})
    assert len(list(deliveries.rows(9))) == 2
