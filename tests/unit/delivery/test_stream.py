"""Streams: whatever the network does, every body comes, in order, and once to each life of the receiver."""

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
    """A sender, a receiver, and what is on its way between them."""

    def __init__(self) -> None:
        self.out = Outgoing("s 1")
        self.messages: list[StreamItem[int]] = []
        self.confirmations: list[int] = []
        self.lives: list[list[Any]] = [[]]
        self.incoming: Incoming | None = None
        self.came: set[int] = set()
        """Numbers of what has come to this life of the receiver."""
        self.sent = 0

    def arrive(self, message: StreamItem[int]) -> int:
        if self.incoming is None:
            self.incoming = Incoming(message.first)
        self.came.add(message.seq)
        self.lives[-1] += self.incoming.take(message)
        return self.incoming.ack(message.stream).seq

    def step(self, what: str, which: int) -> None:
        if what == "send":
            self.sent += 1
            self.messages.append(self.out.add(self.sent, self.sent))
        elif what == "again":
            self.messages += self.out.again()
        elif what == "restart":
            self.incoming = None
            self.came.clear()
            self.lives.append([])
        elif what in ("arrives", "is repeated") and self.messages:
            message = self.messages[which % len(self.messages)]
            self.confirmations.append(self.arrive(message))
            if what == "arrives":
                self.messages.remove(message)
        elif what == "is lost" and self.messages:
            del self.messages[which % len(self.messages)]
        elif what in ("is confirmed", "is confirmed again") and self.confirmations:
            self.out.acked(self.confirmations[which % len(self.confirmations)])
            if what == "is confirmed":
                del self.confirmations[which % len(self.confirmations)]
        elif what == "confirmation is lost" and self.confirmations:
            del self.confirmations[which % len(self.confirmations)]

    @property
    def given(self) -> set[int]:
        return {body for life in self.lives for body in life}

    def all_came(self) -> None:
        """Nothing waits, and every body has come, in order and once to each life."""
        assert not self.out.waiting
        assert self.given == set(range(1, self.sent + 1))
        for life in self.lives:
            assert life == sorted(set(life))

    def calm_down(self) -> None:
        """Send what waits again, twice, over a network that loses nothing."""
        for _ in range(2):
            for message in self.out.again():
                self.out.acked(self.arrive(message))


_KINDS = [
    "send", "send", "again", "arrives", "arrives", "arrives", "is repeated", "is lost", "is confirmed",
    "is confirmed again", "confirmation is lost",
]  # fmt: skip
# Of lists that may be short, most have five steps: too few for much to happen.
quiet = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, 20)), min_size=30, max_size=60)
restless = st.lists(
    st.tuples(st.sampled_from([*_KINDS, "restart"]), st.integers(0, 20)), min_size=30, max_size=60
)


@given(quiet)
def test_each_body_comes_once_in_order_and_as_soon_as_nothing_before_it_is_missing(steps):
    network = Network()
    for step in steps:
        network.step(*step)
        missing = next(number for number in range(1, network.sent + 2) if number not in network.came)
        assert network.lives == [list(range(1, missing))]
        if network.incoming is not None:
            assert set(network.incoming._ahead) == {each for each in network.came if each > missing}
    network.calm_down()
    assert network.lives == [list(range(1, network.sent + 1))]
    assert not network.out.waiting


@given(st.permutations(range(1, 31)), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30))))
def test_what_comes_in_any_order_and_repeated_is_all_given_and_nothing_is_sent_again(order, repeated):
    out, given_ = Outgoing("s 1"), []
    messages = [out.add(0, body) for body in range(1, 31)]
    for place, number in repeated:
        order.insert(place, number)
    incoming = Incoming(messages[order[0] - 1].first)
    for number in order:
        given_ += incoming.take(messages[number - 1])
        out.acked(incoming.ack("s 1").seq)
    assert given_ == list(range(1, 31))
    assert not out.waiting
    assert incoming._ahead == {}


@given(restless, st.integers(1, 4))
def test_what_is_kept_is_bounded_and_of_use_whatever_happens(steps, most):
    network = Network()
    with mock.patch.object(stream, "MAX_EARLY_ITEMS", most):
        for step in steps:
            network.step(*step)
            if network.incoming is not None:
                last = network.incoming.last_seq
                assert all(last + 1 < number <= last + most for number in network.incoming._ahead)
        for _ in range(2 + network.sent):
            network.calm_down()
    network.all_came()


@given(restless)
def test_what_is_confirmed_had_come_and_nothing_is_missed_when_the_receiver_begins_other_lives(steps):
    network = Network()
    for step in steps:
        network.step(*step)
        assert network.given >= set(range(1, network.sent + 1)) - {
            number for number, _, _ in network.out.waiting
        }
    network.calm_down()
    network.all_came()


def sending(bodies):
    """A stream with some bodies, and their messages."""
    out = Outgoing("s 1")
    return out, [out.add(0, body) for body in bodies]


def test_a_late_copy_from_before_a_restart_does_not_stop_the_stream():
    out = Outgoing("s 1")
    late, _ = out.add(0, "one"), out.add(0, "two")
    out.acked(2)
    restarted = Incoming(late.first)
    restarted.take(late)
    assert restarted.take(out.add(1, "three")) == ("three",)


def test_after_a_restart_it_begins_with_what_nobody_confirmed():
    out, _ = sending("abcd")
    out.acked(2)
    first, second = out.again()
    incoming = Incoming(second.first)
    assert incoming.take(second) == ()
    assert incoming.ack("s 1") == StreamAck("s 1", 2)
    assert incoming.take(first) == ("c", "d")
    assert incoming.take(second) == ()
    assert incoming.ack("s 1").seq == 4


def test_what_has_overtaken_something_is_given_after_it():
    _, (a, b, c, d, e) = sending("abcde")
    incoming = Incoming(a.first)
    assert [incoming.take(each) for each in (c, b, e, c)] == [(), (), (), ()]
    assert incoming.ack("s 1").seq == 0
    assert incoming.take(a) == ("a", "b", "c")
    assert incoming.ack("s 1").seq == 3
    assert incoming.take(d) == ("d", "e")
    assert [incoming.take(each) for each in (a, e)] == [(), ()]
    assert incoming._ahead == {}


def test_what_was_overtaken_is_missing_until_it_comes():
    _, (a, b, c, d, e, f) = sending("abcdef")
    incoming = Incoming(a.first)
    answer = []
    for each in (a, c, d, f, c, b, b, e):
        incoming.take(each)
        answer.append(list(incoming.missing))
    assert answer == [[], [2], [2], [2, 5], [2, 5], [5], [5], []]


def test_what_the_receiver_misses_comes_again_and_nothing_else():
    out, _ = sending("abcde")
    out.acked(2)
    assert [message.body for message in out.missing([2, 4, 9])] == ["d"]
    assert out.missing(()) == []


def test_so_much_is_kept_and_no_more():
    out, (first, *later) = sending(range(1, MAX_EARLY_ITEMS + 4))
    incoming = Incoming(first.first)
    for message in reversed(later):
        assert incoming.take(message) == ()
    assert len(incoming._ahead) == MAX_EARLY_ITEMS - 1
    assert list(incoming.take(first)) == list(range(1, MAX_EARLY_ITEMS + 1))
    assert incoming._ahead == {}
    out.acked(incoming.last_seq)
    left = [body for message in out.again() for body in incoming.take(message)]
    assert left == [MAX_EARLY_ITEMS + each for each in (1, 2, 3)]


def numbered(number: int, first: int) -> StreamItem[int]:
    return StreamItem("s 1", number, first, number)


@pytest.mark.parametrize(
    ("number", "first", "brings", "last", "left"),
    [
        (9, 1, (), 0, {3, 5, 9}), (9, 2, (), 1, {3, 5, 9}), (9, 3, (3,), 3, {5, 9}), (9, 4, (), 3, {5, 9}),
        (9, 5, (5,), 5, {9}), (9, 6, (), 5, {9}), (4, 4, (4, 5), 5, set()), (9, 9, (9,), 9, set()), (5, 7, (), 6, set()),
    ],
)  # fmt: skip
def test_what_another_life_has_confirmed_is_not_given_and_what_follows_it_is(
    number, first, brings, last, left
):
    incoming = Incoming(1)
    for each in (3, 5):
        assert incoming.take(numbered(each, 1)) == ()
    assert incoming.take(numbered(number, first)) == brings
    assert incoming.last_seq == last
    assert set(incoming._ahead) == left


def test_what_has_overtaken_something_can_be_forgotten_and_comes_when_it_is_sent_again():
    _, (a, b, c) = sending("abc")
    incoming = Incoming(a.first)
    assert [incoming.take(each) for each in (a, c)] == [("a",), ()]
    incoming.forget()
    assert incoming._ahead == {}
    assert incoming.take(b) == ("b",)
    assert incoming.take(a) == ()
    assert incoming.take(c) == ("c",)


def test_a_message_says_what_it_is():
    out = Outgoing("s 1")
    assert wire_fields(out.add(5, "a")) == {
        "kind": "stream", "stream": "s 1", "number": 1, "first": 1, "body": "a",
    }  # fmt: skip
    out.add(6, "b")
    out.acked(1)
    assert out.again() == [StreamItem("s 1", 2, 2, "b")]
    assert list(out.waiting) == [(2, 6, "b")]


def test_an_old_confirmation_changes_nothing():
    out, _ = sending("abc")
    out.acked(2)
    out.acked(1)
    assert [body for _, _, body in out.waiting] == ["c"]
    out.acked(3)
    assert out.again() == []
    assert out.add(1, "d").seq == 4


class Unread(deque):
    """Items that are not iterated over."""

    def __iter__(self):
        raise AssertionError("the whole queue is read")


def test_an_answer_does_not_read_the_whole_queue():
    out, _ = sending(range(1, 1001))
    out._waiting = Unread(out._waiting)
    assert out.missing(()) == []
    assert [item.seq for item in out.missing({900, 0, 1001, 3})] == [3, 900]
    assert out.acked(2) == [1, 2]
    assert [item.seq for item in out.missing({2, 3, 900})] == [3, 900]


def test_a_receiver_has_all_items_before_the_first_unacknowledged_one():
    assert Incoming(5).ack("s").seq == 4
    assert Incoming().ack("s").seq == 0
