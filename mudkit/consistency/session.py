"""The session guarantees: an order of the writes that what a client does cannot contradict.

Each guarantee says of some pairs of writes which one is not newer (Terry et al., PDIS 1994, with the one
order of writes that their servers agree on): an order exists when no two writes are each not newer than the
other, that is, when no strongly connected part of the graph of all pairs has two of them. Versions, where
they are known, are such pairs as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from mudkit.consistency.graph import shortest_cycle, tangles
from mudkit.consistency.operation import Outcome, precedes
from mudkit.consistency.order import VERSION, Edge
from mudkit.consistency.reading import INITIAL, Reading

__all__ = ["FIRST", "ORDERED", "write_cycle"]

FIRST: Final = "comes after nothing but"
ORDERED: Final = "must not be newer than"

_PAIRS: Final = {
    "monotonic-reads": ("read", "read"),
    "read-your-writes": ("write", "read"),
    "monotonic-writes": ("write", "write"),
    "writes-follow-reads": ("read", "write"),
}
"""Of which two operations of a client, the first over before the second, the writes are in order."""


def write_cycle(reading: Reading, guarantee: str) -> list[Edge] | None:
    """Find writes each of which must not be newer than the next.

    Returns
    -------
    list of Edge or None
        A cycle over writes. An edge by a session goes from a write to one that must not be older, and its
        ``by`` are the two operations of one client because of which. A single edge from a read to a write:
        the read returned what its client had not invoked yet. None: there is none.
    """
    first, then = _PAIRS[guarantee]
    if guarantee == "writes-follow-reads":
        for place, write in enumerate(reading.saw):
            read = reading.operations[place]
            if write is None or write < 0 or read.is_write or _written(reading, write, "write") is None:
                continue
            if reading.operations[write].client == read.client and precedes(
                read, reading.operations[write], place < write
            ):
                return [Edge(place, write, ORDERED, (place, write))]
    if all(reading.versions[write] is not None for write in reading.writes):
        return _by_version(reading, guarantee)
    initial = len(reading.operations)
    edges: list[Edge] = []
    order = [w for w in reading.writes if reading.versions[w] is not None]
    order.sort(key=lambda write: reading.versions[write] or 0)
    edges += [Edge(a, b, VERSION) for a, b in pairwise(order)]
    edges += [Edge(initial, write, FIRST) for write in reading.writes]
    nodes = initial + 1
    about: dict[tuple[int, int], int] = {}
    """Which operation an edge to or from a moment is about."""
    for places in _sessions(reading, guarantee).values():
        nodes = _moments(reading, places, (first, then), nodes, edges, about)
    parts = tangles(edges, nodes)
    cycle = shortest_cycle(
        edges, parts, lambda node: node <= initial, lambda start, node: node <= initial and node != start
    )
    return _without_moments(cycle, initial, about) if cycle else None


def _by_version(reading: Reading, guarantee: str) -> list[Edge] | None:
    """Find a pair of operations whose versions go back, where the versions of all writes are known."""
    initial = len(reading.operations)
    versions = [*reading.versions, 0]
    for places in _sessions(reading, guarantee).values():
        newest: tuple[int, int, int] | None = None
        for place, is_answer in _events(reading, places):
            write = _written(reading, place, _PAIRS[guarantee][not is_answer])
            if write is None:
                continue
            version = versions[write] or 0
            if is_answer:
                newest = max(newest or (version, write, place), (version, write, place))
            elif newest is not None and version < newest[0]:
                why = FIRST if write == initial else VERSION
                return [Edge(write, newest[1], why), Edge(newest[1], write, ORDERED, (newest[2], place))]
    return None


def _without_moments(cycle: list[Edge], initial: int, about: dict[tuple[int, int], int]) -> list[Edge]:
    """Join the edges between two writes that go over moments; the cycle begins at a write."""
    edges: list[Edge] = []
    way: list[Edge] = []
    for edge in cycle:
        way.append(edge)
        if edge.then <= initial:
            if len(way) == 1:
                edges.append(edge)
            else:
                by = about[way[0].first, way[0].then], about[edge.first, edge.then]
                edges.append(Edge(way[0].first, edge.then, ORDERED, by))
            way = []
    return edges


def _sessions(reading: Reading, guarantee: str) -> dict[tuple[str, str | None], list[int]]:
    """Part the operations by client; for reads that must not go back, by their type as well."""
    sessions: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for place, each in enumerate(reading.operations):
        sessions[each.client, each.type if guarantee == "monotonic-reads" else None].append(place)
    return sessions


def _written(reading: Reading, place: int, role: str) -> int | None:
    """Give the write that an operation is about in a role, if it has the role; ``INITIAL`` as a node."""
    each = reading.operations[place]
    if role == "write":
        has_effect = reading.effective[place] and each.outcome in (Outcome.OK, Outcome.PENDING)
        return place if has_effect else None
    if each.is_write:
        return None
    seen = reading.saw[place]
    return len(reading.operations) if seen == INITIAL else seen


def _moments(
    reading: Reading,
    places: list[int],
    roles: tuple[str, str],
    nodes: int,
    edges: list[Edge],
    about: dict[tuple[int, int], int],
) -> int:
    """Add a chain of moments: from what was over until then to what is invoked from then on."""
    last = -1
    for place, is_answer in _events(reading, places):
        write = _written(reading, place, roles[not is_answer])
        if write is None:
            continue
        if is_answer:
            if last >= 0:
                edges.append(Edge(last, nodes, ORDERED))
            edges.append(Edge(write, nodes, ORDERED))
            about[write, nodes] = place
            last, nodes = nodes, nodes + 1
        elif last >= 0:
            edges.append(Edge(last, write, ORDERED))
            about.setdefault((last, write), place)
    return nodes


def _events(reading: Reading, places: list[int]) -> Iterator[tuple[int, bool]]:
    events = []
    for place in places:
        each = reading.operations[place]
        events.append((each.invoked_us, place, False))
        if each.answered_us is not None:
            events.append((each.answered_us, place, True))
    for _, place, is_answer in sorted(events):
        yield place, is_answer
