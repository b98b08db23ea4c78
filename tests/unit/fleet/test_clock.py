"""Virtual time: order of the event queue, and detection of stalls."""

from __future__ import annotations

import asyncio
from heapq import heappop
from typing import Any

import pytest
from fleet_machines import Stage
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import SimulationProblem
from mudkit.events import SetTimer, TimerFired
from mudkit.fleet import World, clock
from mudkit.fleet.clock import EventQueue

DELAYS_US = st.one_of(
    st.integers(0, 10),
    st.integers(0, 1 << 23),
    st.integers(0, 1 << 40),
    st.sampled_from([(1 << 22) - 1, 1 << 22]),
)


STEPS = st.lists(st.one_of(st.tuples(DELAYS_US, st.integers(0, 3)), st.none()), max_size=200)


def do_nothing(argument: object) -> None:
    """Stand in for an action."""


@given(STEPS)
def test_event_queue_is_ordered_like_a_sorted_list(steps: list[tuple[int, int] | None]) -> None:
    """Add and remove entries near and far, and at the edges of buckets."""
    event_queue, model, now_us = EventQueue(), [], 0
    for number, step in enumerate(steps):
        if step is None:
            assert event_queue.refill() == bool(model)
            if model:
                now_us, _, _, _, argument = heappop(event_queue.near)
                model.sort()
                assert (now_us, argument) == model.pop(0)[::2]
        else:
            delay_us, priority = step
            event_queue.add(now_us + delay_us, priority, do_nothing, number)
            model.append((now_us + delay_us, priority, number))
        assert len(event_queue) == len(model) == len(list(event_queue))
    rest = []
    while event_queue.refill():
        rest.append(heappop(event_queue.near)[4])
    assert rest == [number for *_, number in sorted(model)]


def test_refill_of_a_far_bucket_keeps_later_near_entries_first() -> None:
    event_queue = EventQueue()
    event_queue.add(1 << 40, 0, do_nothing, "far")
    assert event_queue.refill()
    event_queue.add(5, 0, do_nothing, "near")
    assert [heappop(event_queue.near)[4] for _ in range(2)] == ["near", "far"]


S = 1_000_000


class StallingMachine:
    def __init__(self, ports: Any) -> None:
        pass

    def handle(self, now_us: int, event: Any) -> Any:
        return (SetTimer("again", 0),)


async def wait(process: Any) -> None:
    await process.call("never answered")


@pytest.mark.parametrize(
    "run", [lambda process: process.host.world.run(S), lambda process: asyncio.run(wait(process))]
)
def test_machine_that_stalls_time_is_stopped(run, monkeypatch, scaled):
    monkeypatch.setattr(clock, "_MAX_STALLED_EVENTS", scaled(1_000_000, 10_000))
    process = World().add_server("server").install("restless", StallingMachine)
    with pytest.raises(SimulationProblem, match="a timer needs a delay"):
        run(process)


@pytest.mark.soak
def test_many_simultaneous_events_are_no_stall():
    stage = Stage()
    stage.do("server", *(SetTimer(str(n), S) for n in range(1_100_000)))
    stage.world.run(2 * S)
    assert len(stage.puppets["server"].of(TimerFired)) == 1_100_000
