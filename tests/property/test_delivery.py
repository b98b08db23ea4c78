"""Guarantees of `mudkit.delivery` between two machines under faults."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_world import TIMES_US, FaultyWorld, S, faults, late_messages, restores, wipes
from hypothesis import example, given, settings
from hypothesis import strategies as st
from post import Post, Put

from mudkit.delivery.retransmit import DEFAULT_MAX_TIMEOUT_US

NAMES = ("ann", "bob")
POINTS = ("before commit", "after commit", "seen, not in the inbox")
T_US = 3 * DEFAULT_MAX_TIMEOUT_US
"""Time after the last fault within which accepted messages arrive, under any other traffic."""
LATE_US = 3 * 3600 * S
"""Time after which the last late copy has arrived."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), TIMES_US, st.sampled_from(NAMES), st.none()),
        *faults(("ann",), ("bob",), POINTS),
        *late_messages(("ann",)),
    ),
    max_size=25,
)


class Pair(FaultyWorld):
    """A device and a server that send each other texts."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, list[str]] = {name: [] for name in NAMES}
        self.accepted: dict[str, list[tuple[int, int, str]]] = {name: [] for name in NAMES}
        """Per sender: number of its incarnations so far, time of acceptance, and text."""
        self.shown: dict[str, list[tuple[int, str, str]]] = {name: [] for name in NAMES}
        """Per receiver: life of its machine, and id and text of each notification of its application."""
        device, server = self.world.add_device("ann", "umts_3g"), self.world.add_server("bob")
        self.install(device, lambda ports: Post(ports, "ann", "bob", "bob"))
        self.install(server, lambda ports: Post(ports, "bob", "ann", device.address))
        for name in NAMES:
            self.machines[name].listen("post", lambda text, name=name: self.show(name, text))

    def show(self, name: str, text: Any) -> None:
        self.shown[name].append((self.machines[name].start_number, text.id, text["text"]))

    def own(self, step: Any) -> None:
        self.world.schedule_action(step[1], self.send, step[2])

    def send(self, name: str) -> None:
        process = self.machines[name]
        if process.machine is None:
            return
        text = f"{name} {len(self.sent[name])}"
        self.sent[name].append(text)
        life = len(self.lives[name])
        operation = process.call(Put(text))

        def record_accepted(operation: Any) -> None:
            if operation.status == "ok":
                self.accepted[name].append((life, self.world.now_us, text))

        operation.add_done_callback(record_accepted)

    def inbox(self, name: str, life: int = -1) -> list[list[str]]:
        return [entry for _, entry in self.lives[name][life].items("in ")]

    def end(self, every_s: float | None) -> None:
        """End the faults and check that accepted messages arrive in time, with traffic at an interval or none."""
        self.end_faults()
        end_us = self.world.now_us + T_US
        while every_s is not None and self.world.now_us < end_us:
            for name in NAMES:
                self.send(name)
            self.world.run(self.world.now_us + round(every_s * S))
        self.world.run(end_us)
        for name, other in (("ann", "bob"), ("bob", "ann")):
            # Messages of a wiped sender, and those that a restored one accepted since its backup, are lost.
            accepted = [entry for entry in self.accepted[name] if entry[0] == len(self.lives[name])]
            accepted = [entry for entry in accepted if entry[1] < end_us - T_US]
            received = {text for life in range(len(self.lives[other])) for _, text in self.inbox(other, life)}
            assert {text for *_, text in accepted} <= received
            since = {text for _, at_us, text in accepted if at_us > self.began_us.get(other, -1)}
            assert since <= {text for _, text in self.inbox(other)}
        self.world.run(end_us + T_US)
        for name in NAMES:
            assert not self.lives[name][-1].items("out "), "somebody waits for ever"
        inboxes, shown = [self.inbox(name) for name in NAMES], {name: [*self.shown[name]] for name in NAMES}
        self.world.run(end_us + LATE_US)
        assert ([self.inbox(name) for name in NAMES], self.shown) == (inboxes, shown), "a late copy counted"


def check(pair: Pair) -> None:
    """Check exactly-once, in-order delivery for each pair of sender and receiver incarnations."""
    for name, other in (("ann", "bob"), ("bob", "ann")):
        for life in range(len(pair.lives[other])):
            received = pair.inbox(other, life)
            for sender in {incarnation for incarnation, _ in received}:
                texts = [text for incarnation, text in received if incarnation == sender]
                assert texts == [text for text in pair.sent[name] if text in set(texts)]
            texts = [text for _, text in received]
            assert len(texts) == len(set(texts))
            # Also over restarts; a restored receiver may not know the order of the sender's incarnations.
            if len(pair.lives[name]) == len(pair.lives[other]) == 1:
                assert texts == [text for text in pair.sent[name] if text in set(texts)]
        check_shown(pair, other)


def check_shown(pair: Pair, name: str) -> None:
    """Check that the application was notified of the inbox, and again only across a kill, with the same id."""
    shown = pair.shown[name]
    assert {text for _, text in pair.inbox(name)} <= {text for *_, text in shown}
    assert len(set(shown)) == len(shown), "repeated in one life"
    assert len({identifier for _, identifier, _ in shown}) == len({text for *_, text in shown})


@settings(max_examples=150)
@given(steps=steps)
def test_messages_are_delivered_once_and_in_order(steps: Any) -> None:
    pair = Pair()
    for step in steps:
        pair.do(step)
    pair.end(None)
    check(pair)
    for name, other in (("ann", "bob"), ("bob", "ann")):
        received = [text for _, text in pair.inbox(other)]
        assert set(received) >= {text for *_, text in pair.accepted[name]}
        assert len(received) == (pair.lives[name][0].get("last of out", int) or 0)  # all are received


@settings(max_examples=60)
@given(steps=steps, every_s=st.sampled_from([0.5, 1, 2, 3, 4, 5, 6, 9, 15, 30]))
def test_other_traffic_does_not_delay_accepted_messages(steps: Any, every_s: float) -> None:
    pair = Pair()
    for step in steps:
        pair.do(step)
    pair.end(every_s)
    check(pair)


@settings(max_examples=100)
@given(steps=steps, wipes=wipes(NAMES))
@example(  # the copy arrives at a receiver that was wiped
    steps=[("send", 0, "ann", None), ("late copies", 0, "ann", 7200.0)],
    wipes=[("wipe", 2_173_640, "bob", S)],
)
@example(  # the message arrives for the first time after its sender was wiped
    steps=[("send", 0, "ann", None), ("hold", 0, "ann", 7200.0)], wipes=[("wipe", 1, "ann", 1)]
)
def test_no_message_stays_pending_after_wipes(steps: Any, wipes: Any) -> None:
    pair = Pair()
    for step in (*steps, *wipes):
        pair.do(step)
    pair.end(None)
    check(pair)


@settings(max_examples=150)
@example(  # the backup is older than the only hello, which came from another address
    steps=[("kill", 0, "ann", 1), ("move", 0, "ann", None)],
    restores=[("restore", 2_173_640, "bob", 786_668)],
    every_s=2,
)
@given(steps=steps, restores=restores(NAMES), every_s=st.sampled_from([None, 2, 9]))
def test_messages_accepted_after_a_restore_are_delivered(
    steps: Any, restores: Any, every_s: float | None
) -> None:
    """Restore both sides, also a backup of a backup, with messages of former incarnations in flight."""
    pair = Pair()
    for step in (*steps, *restores):
        pair.do(step)
    pair.end(every_s)
    check(pair)


@pytest.mark.parametrize("count", [1, 20])
def test_no_message_is_retransmitted_without_faults(count: int) -> None:
    pair = Pair()
    for number in range(count):
        pair.do(("send", (10 + 2 * number) * S, "ann", None))
    pair.end(None)
    bill = {(row.device, row.direction): row.messages for row in pair.world.bill() if row.device == "ann"}
    # One hello and one welcome in each direction; one acknowledgement per text.
    assert bill[("ann", "up")] == 2 + count
    assert bill[("ann", "down")] == 2 + count
