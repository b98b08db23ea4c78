"""Virtual time: entries are removed in order, and events that never advance it are stopped."""

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
from mudkit.fleet import World
from mudkit.fleet.clock import EventQueue

DELAYS_US = st.one_of(
    st.integers(0, 10),
    st.integers(0, 1 << 23),
    st.integers(0, 1 << 40),
    st.sampled_from([(1 << 22) - 1, 1 << 22]),
)


STEPS = st.lists(st.one_of(st.tuples(DELAYS_US, st.integers(0, 3)), st.none()), max_size=200)


def nothing(argument: object) -> None:
    """Stand for what is done."""


@given(STEPS)
def test_it_gives_what_a_sorted_list_gives(steps: list[tuple[int, int] | None]) -> None:
    """Adding after taking, near and far, at the edges of buckets: each time the least entry is next."""
    event_queue, peer, now_us = EventQueue(), [], 0
    for number, step in enumerate(steps):
        if step is None:
            assert event_queue.refill() == bool(peer)
            if peer:
                now_us, _, _, _, argument = heappop(event_queue.near)
                peer.sort()
                assert (now_us, argument) == peer.pop(0)[::2]
        else:
            delay_us, priority = step
            event_queue.add(now_us + delay_us, priority, nothing, number)
            peer.append((now_us + delay_us, priority, number))
        assert len(event_queue) == len(peer) == len(list(event_queue))
    rest = []
    while event_queue.refill():
        rest.append(heappop(event_queue.near)[4])
    assert rest == [number for *_, number in sorted(peer)]


def test_what_is_looked_at_from_afar_does_not_hide_what_comes_before() -> None:
    """A refill that goes on to a far bucket keeps nearer entries, added later, in front."""
    event_queue = EventQueue()
    event_queue.add(1 << 40, 0, nothing, "far")
    assert event_queue.refill()
    event_queue.add(5, 0, nothing, "near")
    assert [heappop(event_queue.near)[4] for _ in range(2)] == ["near", "far"]


S = 1_000_000


class Restless:
    def __init__(self, ports: Any) -> None:
        pass

    def handle(self, now_us: int, event: Any) -> Any:
        return (SetTimer("again", 0),)


async def wait(process: Any) -> None:
    await process.call("never answered")


@pytest.mark.parametrize(
    "go_on", [lambda process: process.host.world.run(S), lambda process: asyncio.run(wait(process))]
)
def test_a_machine_that_never_lets_time_go_on_is_stopped(go_on):
    process = World().add_server("server").install("restless", Restless)
    with pytest.raises(SimulationProblem, match="a timer needs a delay"):
        go_on(process)


@pytest.mark.soak
def test_a_crowd_is_no_storm():
    stage = Stage()
    stage.do("server", *(SetTimer(str(n), S) for n in range(1_100_000)))
    stage.world.run(2 * S)
    assert len(stage.puppets["server"].of(TimerFired)) == 1_100_000
