"""Streams over an unreliable network: delivery in order, once to each incarnation of the receiver."""

from __future__ import annotations

from collections import deque
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.delivery import stream
from mudkit.delivery.stream import MAX_EARLY_ITEMS, Incoming, Outgoing, StreamAck, StreamItem
from mudkit.wire import wire_fields


class Network:
    """Sender, receiver, and the messages in flight."""

    def __init__(self) -> None:
        self.out = Outgoing("s 1")
        self.messages: list[StreamItem[int]] = []
        self.acks: list[int] = []
        self.delivered: list[list[Any]] = [[]]
        self.incoming: Incoming | None = None
        self.arrived: set[int] = set()
        """Numbers that have arrived at this incarnation of the receiver."""
        self.sent = 0

    def arrive(self, message: StreamItem[int]) -> int:
        if self.incoming is None:
            self.incoming = Incoming(message.first)
        self.arrived.add(message.seq)
        self.delivered[-1] += self.incoming.take(message)
        return self.incoming.build_ack(message.stream).seq

    def step(self, action: str, index: int) -> None:
        if action == "send":
            self.sent += 1
            self.messages.append(self.out.add(self.sent, self.sent))
        elif action == "again":
            self.messages += self.out.pending_items()
        elif action == "restart":
            self.incoming = None
            self.arrived.clear()
            self.delivered.append([])
        elif action in ("arrives", "is repeated") and self.messages:
            message = self.messages[index % len(self.messages)]
            self.acks.append(self.arrive(message))
            if action == "arrives":
                self.messages.remove(message)
        elif action == "is lost" and self.messages:
            del self.messages[index % len(self.messages)]
        elif action in ("is confirmed", "is confirmed again") and self.acks:
            self.out.ack_up_to(self.acks[index % len(self.acks)])
            if action == "is confirmed":
                del self.acks[index % len(self.acks)]
        elif action == "confirmation is lost" and self.acks:
            del self.acks[index % len(self.acks)]

    @property
    def delivered_bodies(self) -> set[int]:
        return {body for bodies in self.delivered for body in bodies}

    def assert_complete(self) -> None:
        """Check that every body is acknowledged and delivered, in order and once to each incarnation."""
        assert not self.out.pending
        assert self.delivered_bodies == set(range(1, self.sent + 1))
        for bodies in self.delivered:
            assert bodies == sorted(set(bodies))

    def retransmit_all(self) -> None:
        """Send unacknowledged items again, twice, without loss."""
        for _ in range(2):
            for message in self.out.pending_items():
                self.out.ack_up_to(self.arrive(message))


_ACTIONS = [
    "send", "send", "again", "arrives", "arrives", "arrives", "is repeated", "is lost", "is confirmed",
    "is confirmed again", "confirmation is lost",
]  # fmt: skip
# Without a minimum size, most lists have five steps, which is too few.
steps_without_restart = st.lists(
    st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 20)), min_size=30, max_size=60
)
steps_with_restart = st.lists(
    st.tuples(st.sampled_from([*_ACTIONS, "restart"]), st.integers(0, 20)), min_size=30, max_size=60
)


@given(steps_without_restart)
def test_bodies_are_delivered_in_order_once_and_without_delay(steps):
    network = Network()
    for step in steps:
        network.step(*step)
        missing = next(number for number in range(1, network.sent + 2) if number not in network.arrived)
        assert network.delivered == [list(range(1, missing))]
        if network.incoming is not None:
            assert set(network.incoming._ahead) == {number for number in network.arrived if number > missing}
    network.retransmit_all()
    assert network.delivered == [list(range(1, network.sent + 1))]
    assert not network.out.pending


@given(st.permutations(range(1, 31)), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30))))
def test_reordered_and_duplicate_items_are_delivered_without_resending(order, repeated):
    out, delivered = Outgoing("s 1"), []
    messages = [out.add(0, body) for body in range(1, 31)]
    for index, number in repeated:
        order.insert(index, number)
    incoming = Incoming(messages[order[0] - 1].first)
    for number in order:
        delivered += incoming.take(messages[number - 1])
        out.ack_up_to(incoming.build_ack("s 1").seq)
    assert delivered == list(range(1, 31))
    assert not out.pending
    assert incoming._ahead == {}


@given(steps_with_restart, st.integers(1, 4))
def test_bounded_buffer_of_early_items_still_delivers_all(steps, max_items):
    network = Network()
    with mock.patch.object(stream, "MAX_EARLY_ITEMS", max_items):
        for step in steps:
            network.step(*step)
            if network.incoming is not None:
                last = network.incoming.last_seq
                assert all(last + 1 < number <= last + max_items for number in network.incoming._ahead)
        for _ in range(2 + network.sent):
            network.retransmit_all()
    network.assert_complete()


@given(steps_with_restart)
def test_acknowledged_items_were_delivered_despite_receiver_restarts(steps):
    network = Network()
    for step in steps:
        network.step(*step)
        assert network.delivered_bodies >= set(range(1, network.sent + 1)) - {
            number for number, _, _ in network.out.pending
        }
    network.retransmit_all()
    network.assert_complete()


def create_stream(bodies):
    """Return a stream with some bodies, and their messages."""
    out = Outgoing("s 1")
    return out, [out.add(0, body) for body in bodies]


def test_late_copy_after_a_restart_does_not_stop_the_stream():
    out = Outgoing("s 1")
    late, _ = out.add(0, "one"), out.add(0, "two")
    out.ack_up_to(2)
    restarted = Incoming(late.first)
    restarted.take(late)
    assert restarted.take(out.add(1, "three")) == ("three",)


def test_restarted_receiver_continues_at_the_first_unacknowledged():
    out, _ = create_stream("abcd")
    out.ack_up_to(2)
    first, second = out.pending_items()
    incoming = Incoming(second.first)
    assert incoming.take(second) == ()
    assert incoming.build_ack("s 1") == StreamAck("s 1", 2)
    assert incoming.take(first) == ("c", "d")
    assert incoming.take(second) == ()
    assert incoming.build_ack("s 1").seq == 4


def test_early_items_are_delivered_after_the_missing_one():
    _, (a, b, c, d, e) = create_stream("abcde")
    incoming = Incoming(a.first)
    assert [incoming.take(item) for item in (c, b, e, c)] == [(), (), (), ()]
    assert incoming.build_ack("s 1").seq == 0
    assert incoming.take(a) == ("a", "b", "c")
    assert incoming.build_ack("s 1").seq == 3
    assert incoming.take(d) == ("d", "e")
    assert [incoming.take(item) for item in (a, e)] == [(), ()]
    assert incoming._ahead == {}


def test_missing_lists_gaps_until_they_are_filled():
    _, (a, b, c, d, e, f) = create_stream("abcdef")
    incoming = Incoming(a.first)
    missing_lists = []
    for item in (a, c, d, f, c, b, b, e):
        incoming.take(item)
        missing_lists.append(list(incoming.missing))
    assert missing_lists == [[], [2], [2], [2, 5], [2, 5], [5], [5], []]


def test_only_missing_items_are_sent_again():
    out, _ = create_stream("abcde")
    out.ack_up_to(2)
    assert [message.body for message in out.items_of([2, 4, 9])] == ["d"]
    assert out.items_of(()) == []


def test_early_items_beyond_the_capacity_are_dropped():
    out, (first, *later) = create_stream(range(1, MAX_EARLY_ITEMS + 4))
    incoming = Incoming(first.first)
    for message in reversed(later):
        assert incoming.take(message) == ()
    assert len(incoming._ahead) == MAX_EARLY_ITEMS - 1
    assert list(incoming.take(first)) == list(range(1, MAX_EARLY_ITEMS + 1))
    assert incoming._ahead == {}
    out.ack_up_to(incoming.last_seq)
    delivered = [body for message in out.pending_items() for body in incoming.take(message)]
    assert delivered == [MAX_EARLY_ITEMS + offset for offset in (1, 2, 3)]


def create_item(number: int, first: int) -> StreamItem[int]:
    return StreamItem("s 1", number, first, number)


@pytest.mark.parametrize(
    ("number", "first", "bodies", "last", "ahead"),
    [
        (9, 1, (), 0, {3, 5, 9}), (9, 2, (), 1, {3, 5, 9}), (9, 3, (3,), 3, {5, 9}), (9, 4, (), 3, {5, 9}),
        (9, 5, (5,), 5, {9}), (9, 6, (), 5, {9}), (4, 4, (4, 5), 5, set()), (9, 9, (9,), 9, set()), (5, 7, (), 6, set()),
    ],
)  # fmt: skip
def test_items_acknowledged_by_an_earlier_start_are_skipped(number, first, bodies, last, ahead):
    incoming = Incoming(1)
    for early in (3, 5):
        assert incoming.take(create_item(early, 1)) == ()
    assert incoming.take(create_item(number, first)) == bodies
    assert incoming.last_seq == last
    assert set(incoming._ahead) == ahead


def test_items_contain_their_number_and_the_first_unacknowledged():
    out = Outgoing("s 1")
    assert wire_fields(out.add(5, "a")) == {
        "kind": "stream", "stream": "s 1", "number": 1, "first": 1, "body": "a",
    }  # fmt: skip
    out.add(6, "b")
    out.ack_up_to(1)
    assert out.pending_items() == [StreamItem("s 1", 2, 2, "b")]
    assert list(out.pending) == [(2, 6, "b")]


def test_old_acknowledgement_changes_nothing():
    out, _ = create_stream("abc")
    out.ack_up_to(2)
    out.ack_up_to(1)
    assert [body for _, _, body in out.pending] == ["c"]
    out.ack_up_to(3)
    assert out.pending_items() == []
    assert out.add(1, "d").seq == 4


class UniterableDeque(deque):
    """Queue that refuses iteration."""

    def __iter__(self):
        raise AssertionError("the whole queue is read")


def test_acknowledgement_does_not_iterate_over_the_queue():
    out, _ = create_stream(range(1, 1001))
    out._pending = UniterableDeque(out._pending)
    assert out.items_of(()) == []
    assert [item.seq for item in out.items_of({900, 0, 1001, 3})] == [3, 900]
    assert out.ack_up_to(2) == [1, 2]
    assert [item.seq for item in out.items_of({2, 3, 900})] == [3, 900]


def test_initial_acknowledgement_precedes_the_first_item():
    assert Incoming(5).build_ack("s").seq == 4
    assert Incoming().build_ack("s").seq == 0
