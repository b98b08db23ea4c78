"""Cycles among writes that a session orders."""

from __future__ import annotations

from mudkit.consistency.models import Edge
from mudkit.consistency.session import _shortest_cycle


def test_shorter_cycle_is_found_after_a_longer_one():
    cycles = [[0, 1, 2, 3], [4, 5, 6]]
    edges = [
        Edge(first, then, "before")
        for cycle in cycles
        for first, then in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    ]
    in_turns = [edge for number in range(4) for edge in (edges[number], *edges[4:][number : number + 1])]
    for some in (edges, edges[::-1], in_turns):
        cycle = _shortest_cycle(
            some, [0, 0, 0, 0, 1, 1, 1], lambda node: True, lambda start, node: node != start
        )
        assert {edge.first for edge in cycle} == {4, 5, 6}
        assert len(cycle) == 3
