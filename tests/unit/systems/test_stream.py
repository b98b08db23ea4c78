"""Streams: whatever the network does, every body comes, in order, and once to each life of the receiver."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mudkit.events import Send
from mudkit.systems.stream import Incoming, Outgoing


class Network:
    """A sender, a receiver, and what is on its way between them."""

    def __init__(self) -> None:
        self.out = Outgoing("s 1")
        self.messages: list[dict[str, Any]] = []
        self.confirmations: list[int] = []
        self.lives: list[list[Any]] = [[]]
        self.incoming: Incoming | None = None
        self.sent = 0

    def arrive(self, message: dict[str, Any]) -> int:
        if self.incoming is None:
            self.incoming = Incoming(message)
        self.lives[-1] += self.incoming.take(message)
        return self.incoming.confirm("s", message["stream"]).message["number"]

    def step(self, what: str, which: int) -> None:
        if what == "send":
            self.sent += 1
            self.messages.append(self.out.add(self.sent, self.sent))
        elif what == "again":
            self.messages += self.out.again()
        elif what == "restart":
            self.incoming = None
            self.lives.append([])
        elif what in ("arrives", "is repeated") and self.messages:
            message = self.messages[which % len(self.messages)]
            self.confirmations.append(self.arrive(message))
            if what == "arrives":
                self.messages.remove(message)
        elif what == "is lost" and self.messages:
            del self.messages[which % len(self.messages)]
        elif what in ("is confirmed", "is confirmed again") and self.confirmations:
            self.out.confirmed(self.confirmations[which % len(self.confirmations)])
            if what == "is confirmed":
                del self.confirmations[which % len(self.confirmations)]
        elif what == "confirmation is lost" and self.confirmations:
            del self.confirmations[which % len(self.confirmations)]

    def calm_down(self) -> None:
        """Send what waits again, twice, over a network that loses nothing."""
        for _ in range(2):
            for message in self.out.again():
                self.out.confirmed(self.arrive(message))


_KINDS = [
    "send", "send", "again", "arrives", "arrives", "arrives", "is repeated", "is lost", "is confirmed",
    "is confirmed again", "confirmation is lost",
]  # fmt: skip
quiet = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(0, 20)), max_size=60)
restless = st.lists(st.tuples(st.sampled_from([*_KINDS, "restart"]), st.integers(0, 20)), max_size=60)


@given(quiet)
def test_each_body_comes_once_and_in_order(steps):
    network = Network()
    for step in steps:
        network.step(*step)
        assert network.lives == [list(range(1, len(network.lives[0]) + 1))]
    network.calm_down()
    assert network.lives == [list(range(1, network.sent + 1))]
    assert not network.out.waiting


@given(restless)
def test_nothing_is_missed_when_the_receiver_begins_other_lives(steps):
    network = Network()
    for step in steps:
        network.step(*step)
    network.calm_down()
    assert not network.out.waiting
    assert {body for life in network.lives for body in life} == set(range(1, network.sent + 1))
    for life in network.lives:
        assert life == sorted(set(life))


@given(restless)
def test_what_is_confirmed_had_come(steps):
    network = Network()
    for step in steps:
        network.step(*step)
        came = {body for life in network.lives for body in life}
        assert came >= set(range(1, network.sent + 1)) - {number for number, _, _ in network.out.waiting}


def test_a_late_copy_from_before_a_restart_does_not_stop_the_stream():
    out = Outgoing("s 1")
    late, _ = out.add(0, "one"), out.add(0, "two")
    out.confirmed(2)
    restarted = Incoming(late)
    restarted.take(late)
    assert restarted.take(out.add(1, "three")) == ("three",)


def test_after_a_restart_it_begins_with_what_nobody_confirmed():
    out = Outgoing("s 1")
    for body in "abcd":
        out.add(0, body)
    out.confirmed(2)
    first, second = out.again()
    incoming = Incoming(second)
    assert incoming.take(second) == ()
    assert incoming.confirm("s", "s 1") == Send("s", {"kind": "confirmed", "stream": "s 1", "number": 2})
    assert [*incoming.take(first), *incoming.take(second)] == ["c", "d"]
    assert incoming.confirm("s", "s 1").message["number"] == 4


def test_a_message_says_what_it_is():
    out = Outgoing("s 1")
    assert out.add(5, "a") == {"kind": "stream", "stream": "s 1", "number": 1, "first": 1, "body": "a"}
    out.add(6, "b")
    out.confirmed(1)
    assert out.again() == [{"kind": "stream", "stream": "s 1", "number": 2, "first": 2, "body": "b"}]
    assert list(out.waiting) == [(2, 6, "b")]


def test_an_old_confirmation_changes_nothing():
    out = Outgoing("s 1")
    for body in "abc":
        out.add(0, body)
    out.confirmed(2)
    out.confirmed(1)
    assert [body for _, _, body in out.waiting] == ["c"]
    out.confirmed(3)
    assert out.again() == []
    assert out.add(1, "d")["number"] == 4
