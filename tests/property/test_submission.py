"""Guarantees of `mudkit.delivery.submission` between publishers on devices and a server under faults."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_world import TIMES_US, FaultyWorld, S, faults, late_messages, restores, wipes
from hypothesis import example, given, settings
from hypothesis import strategies as st
from submitting import Put, TextPublisher, TextServer

from mudkit.delivery.retransmit import DEFAULT_MAX_TIMEOUT_US
from mudkit.errors import MessageExpired, OperationLost, ParameterError

DEVICES = ("ann", "eve")
SERVER = "bob"
POINTS = ("before commit", "after commit", "submission taken, not carried out")
T_US = 3 * DEFAULT_MAX_TIMEOUT_US
"""Time after the last fault within which all that was accepted is settled, under any other traffic."""
LATE_US = 3 * 3600 * S
"""Time after which the last late copy has arrived."""
KINDS = st.sampled_from(["good", "good", "good", "bad", "brief"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), TIMES_US, st.sampled_from(DEVICES), KINDS),
        *faults(DEVICES, (SERVER,), POINTS),
        *late_messages(DEVICES),
    ),
    max_size=25,
)


class Newsroom(FaultyWorld):
    """Two publishers on devices, and a server."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: dict[str, list[str]] = {name: [] for name in DEVICES}
        self.operations: dict[str, tuple[int, int, Any]] = {}
        """Per text: number of lives of its publisher and time at the call, and the operation."""
        self.accepted: set[str] = set()
        """Texts that their publishers have stored: a kill in the instant of the call may forestall that."""
        server = self.world.add_server(SERVER)
        self.install(server, TextServer)
        for name, link in zip(DEVICES, ("umts_3g", "lte"), strict=True):
            self.install(
                self.world.add_device(name, link),
                lambda ports, name=name: TextPublisher(ports, name, SERVER),
            )

    def own(self, step: Any) -> None:
        self.world.schedule_action(step[1], lambda _: self.submit(step[2], step[3]))

    def submit(self, name: str, kind: str) -> None:
        process = self.machines[name]
        if process.machine is None:
            return
        text = f"{kind} of {name} {len(self.submitted[name])}"
        self.submitted[name].append(text)
        operation = process.call(Put(text, 30 * S if kind == "brief" else None))
        self.operations[text] = len(self.lives[name]), self.world.now_us, operation

        def note_accepted(_: None) -> None:
            stored = [str(value) for _, value in self.lives[name][-1].items("out ")]
            if operation.status == "ok" or any(text in value for value in stored):
                self.accepted.add(text)

        self.world.schedule_action(self.world.now_us + 1, note_accepted)

    def taken(self, life: int = -1) -> list[tuple[str, str, str]]:
        """Return device, name and text of what a store of the server has taken, in order."""
        return [tuple(entry) for _, entry in self.lives[SERVER][life].items("in ")]

    def end(self, every_s: float | None = None) -> None:
        """End the faults, and check that all that waits is settled in time, and that late copies do nothing."""
        self.end_faults()
        end_us = self.world.now_us + T_US
        while every_s is not None and self.world.now_us < end_us:
            for name in DEVICES:
                self.submit(name, "good")
            self.world.run(self.world.now_us + round(every_s * S))
        self.world.run(end_us + T_US)
        for name in DEVICES:
            assert not self.lives[name][-1].items("out "), "something waits for ever"
        taken = self.taken()
        self.world.run(end_us + LATE_US)
        assert self.taken() == taken, "a late copy counted"
        self.check()

    def check(self) -> None:
        """Check that each text is taken once, in order, as its publisher was told."""
        for life in range(len(self.lives[SERVER])):
            texts = [text for *_, text in self.taken(life)]
            names = [name for _, name, _ in self.taken(life)]
            assert len(texts) == len(set(texts)), "taken twice"
            assert len(names) == len(set(names)), "of the same name"
            assert not any(text.startswith("bad") for text in texts)
            for device in DEVICES:
                own = [text for text in texts if f"of {device} " in text]
                lives = {self.operations[text][0] for text in own}
                assert {name for name, _, text in self.taken(life) if text in own} <= {device}
                for number in lives:  # a restored or wiped publisher may send earlier texts later
                    of_life = [text for text in own if self.operations[text][0] == number]
                    if len(self.lives[device]) == 1:
                        assert of_life == [text for text in self.submitted[device] if text in set(of_life)]
        ever = {entry[1:] for life in range(len(self.lives[SERVER])) for entry in self.taken(life)}
        for text, (_, _, operation) in self.operations.items():
            if operation.status == "ok":
                assert (operation.result(), text) in ever
            elif operation.status == "failed":
                with pytest.raises((MessageExpired, OperationLost, ParameterError)) as caught:
                    operation.result()
                if isinstance(caught.value, ParameterError):
                    assert text.startswith(("bad", "brief"))
                if isinstance(caught.value, MessageExpired):
                    assert text.startswith("brief")


@settings(max_examples=60)
@given(steps=steps)
def test_submissions_are_taken_once_and_in_order(steps: Any) -> None:
    room = Newsroom()
    for step in steps:
        room.do(step)
    room.end()
    texts = {text for *_, text in room.taken()}
    assert {text for text in room.accepted if text.startswith("good")} <= texts


@settings(max_examples=60)
@given(steps=steps, every_s=st.sampled_from([0.5, 2, 5, 9, 30]))
def test_other_traffic_does_not_delay_submissions(steps: Any, every_s: float) -> None:
    room = Newsroom()
    for step in steps:
        room.do(step)
    room.end(every_s)
    texts = {text for *_, text in room.taken()}
    assert {text for text in room.accepted if text.startswith("good")} <= texts


@settings(max_examples=60)
@given(steps=steps, wipes=wipes((*DEVICES, SERVER)), restores=restores((*DEVICES, SERVER)))
@example(  # the copy arrives at a server that was wiped
    steps=[("submit", 0, "ann", "good"), ("late copies", 0, "ann", 7200.0)],
    wipes=[("wipe", 2_173_640, "bob", S)],
    restores=[],
)
@example(  # the message arrives for the first time after its publisher was wiped
    steps=[("submit", 0, "ann", "good"), ("hold", 0, "ann", 7200.0)],
    wipes=[("wipe", 1, "ann", 1)],
    restores=[],
)
def test_nothing_is_taken_twice_after_wipes_and_restores(steps: Any, wipes: Any, restores: Any) -> None:
    """Texts accepted after the last wipe or restore of either side are taken by the present server."""
    room = Newsroom()
    for step in (*steps, *wipes, *restores):
        room.do(step)
    room.end()
    texts = {text for *_, text in room.taken()}
    server_us = room.began_us.get(SERVER, -1)
    for text, (life, at_us, _) in room.operations.items():
        device = text.split()[2]
        is_kept = text in room.accepted and life == len(room.lives[device]) and at_us > server_us
        if text.startswith("good") and is_kept:
            assert text in texts


@pytest.mark.parametrize("count", [1, 20])
def test_nothing_is_sent_twice_without_faults(count: int) -> None:
    room = Newsroom()
    for number in range(count):
        room.do(("submit", (10 + 2 * number) * S, "ann", "good"))
    room.end()
    bill = {row.direction: row.messages for row in room.world.bill() if row.device == "ann"}
    assert bill == {"up": 1 + count, "down": 1 + count}  # a hello and a welcome, and one of each per text
