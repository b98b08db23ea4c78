"""What is to come is taken in the order of time, priority and number, however it was added."""

from __future__ import annotations

from heapq import heappop

from hypothesis import given
from hypothesis import strategies as st

from mudkit.fleet.agenda import Agenda

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
    agenda, peer, now_us = Agenda(), [], 0
    for number, step in enumerate(steps):
        if step is None:
            assert agenda.refill() == bool(peer)
            if peer:
                now_us, _, _, _, argument = heappop(agenda.near)
                peer.sort()
                assert (now_us, argument) == peer.pop(0)[::2]
        else:
            delay_us, priority = step
            agenda.add(now_us + delay_us, priority, nothing, number)
            peer.append((now_us + delay_us, priority, number))
        assert len(agenda) == len(peer) == len(list(agenda))
    rest = []
    while agenda.refill():
        rest.append(heappop(agenda.near)[4])
    assert rest == [number for *_, number in sorted(peer)]


def test_what_is_looked_at_from_afar_does_not_hide_what_comes_before() -> None:
    """A refill that goes on to a far bucket keeps nearer entries, added later, in front."""
    agenda = Agenda()
    agenda.add(1 << 40, 0, nothing, "far")
    assert agenda.refill()
    agenda.add(5, 0, nothing, "near")
    assert [heappop(agenda.near)[4] for _ in range(2)] == ["near", "far"]
