"""Session guarantees: a contradiction is a cycle among writes that must be ordered.

Each guarantee states for some pairs of writes which one must not be newer (Terry et al., PDIS 1994, with the
single order of writes that their servers agree on). An order exists if no strongly connected component of the
graph of all pairs contains two writes. Known versions are such pairs as well.
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from mudkit.consistency.models import VERSION, Edge
from mudkit.consistency.operation import Outcome, precedes
from mudkit.consistency.record import INITIAL, Reading

AFTER_INITIAL: Final = "comes after nothing but"
ORDERED: Final = "must not be newer than"

_PAIRS: Final = {
    "monotonic-reads": ("read", "read"),
    "read-your-writes": ("write", "read"),
    "monotonic-writes": ("write", "write"),
    "writes-follow-reads": ("read", "write"),
}
"""For each guarantee, the roles of an earlier and a later operation of a client that order writes."""

MAX_STARTS: Final = 200
"""Maximum number of nodes from which a shortest cycle is searched."""


def write_cycle(reading: Reading, guarantee: str) -> list[Edge] | None:
    """Find a cycle of writes each of which must not be newer than the next; None if there is none.

    An edge of a session goes from a write to one that must not be older; its ``by`` are the two operations of
    one client that cause it. A single edge from a read to a write means that the read returned a write that
    its client had not yet invoked.
    """
    first, then = _PAIRS[guarantee]
    if guarantee == "writes-follow-reads":
        for place, write in enumerate(reading.saw):
            read = reading.operations[place]
            if write is None or write < 0 or read.is_write or _write_in_role(reading, write, "write") is None:
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
    edges += [Edge(a, b, VERSION) for a, b in itertools.pairwise(order)]
    edges += [Edge(initial, write, AFTER_INITIAL) for write in reading.writes]
    nodes = initial + 1
    about: dict[tuple[int, int], int] = {}  # operation of each edge to or from a moment
    for places in _sessions(reading, guarantee).values():
        nodes = _add_moments(reading, places, (first, then), nodes, edges, about)
    components = _strong_components(edges, nodes)
    cycle = _shortest_cycle(
        edges, components, lambda node: node <= initial, lambda start, node: node <= initial and node != start
    )
    return _join_moments(cycle, initial, about) if cycle else None


def _by_version(reading: Reading, guarantee: str) -> list[Edge] | None:
    """Return the cycle of two operations whose versions decrease; None if there are no such two.

    The versions of all writes must be known.
    """
    initial = len(reading.operations)
    versions = [*reading.versions, 0]
    for places in _sessions(reading, guarantee).values():
        newest: tuple[int, int, int] | None = None
        for place, is_answer in _events(reading, places):
            write = _write_in_role(reading, place, _PAIRS[guarantee][not is_answer])
            if write is None:
                continue
            version = versions[write] or 0
            if is_answer:
                newest = max(newest or (version, write, place), (version, write, place))
            elif newest is not None and version < newest[0]:
                why = AFTER_INITIAL if write == initial else VERSION
                return [Edge(write, newest[1], why), Edge(newest[1], write, ORDERED, (newest[2], place))]
    return None


def _join_moments(cycle: list[Edge], initial: int, about: dict[tuple[int, int], int]) -> list[Edge]:
    """Join the edges that lead from write to write over moments; the cycle begins at a write."""
    edges: list[Edge] = []
    path: list[Edge] = []
    for edge in cycle:
        path.append(edge)
        if edge.then <= initial:
            if len(path) == 1:
                edges.append(edge)
            else:
                by = about[path[0].first, path[0].then], about[edge.first, edge.then]
                edges.append(Edge(path[0].first, edge.then, ORDERED, by))
            path = []
    return edges


def _sessions(reading: Reading, guarantee: str) -> dict[tuple[str, str | None], list[int]]:
    """Group the operations by client, for monotonic reads also by type."""
    sessions: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for place, operation in enumerate(reading.operations):
        sessions[operation.client, operation.type if guarantee == "monotonic-reads" else None].append(place)
    return sessions


def _write_in_role(reading: Reading, place: int, role: str) -> int | None:
    """Return the write that an operation concerns in a role, or the node of ``INITIAL``.

    None if it has no such role.
    """
    operation = reading.operations[place]
    if role == "write":
        has_effect = reading.effective[place] and operation.outcome in (Outcome.OK, Outcome.PENDING)
        return place if has_effect else None
    if operation.is_write:
        return None
    seen = reading.saw[place]
    return len(reading.operations) if seen == INITIAL else seen


def _add_moments(
    reading: Reading,
    places: list[int],
    roles: tuple[str, str],
    nodes: int,
    edges: list[Edge],
    about: dict[tuple[int, int], int],
) -> int:
    """Add a chain of moments: edges from the writes answered by then to the writes invoked later."""
    last = -1
    for place, is_answer in _events(reading, places):
        write = _write_in_role(reading, place, roles[not is_answer])
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
    """Yield each operation twice, at its invocation (False) and at its answer (True), in order of time."""
    events = []
    for place in places:
        operation = reading.operations[place]
        events.append((operation.invoked_us, place, False))
        if operation.answered_us is not None:
            events.append((operation.answered_us, place, True))
    for _, place, is_answer in sorted(events):
        yield place, is_answer


def _strong_components(edges: Sequence[Edge], nodes: int) -> list[int]:
    """Return the strongly connected component of each node."""
    following: list[set[int]] = [set() for _ in range(nodes)]  # scipy never returns if an edge occurs twice
    for edge in edges:
        following[edge.first].add(edge.then)
    ends = np.array([0, *itertools.accumulate(map(len, following))], dtype=np.int32)
    targets = np.array(list(itertools.chain.from_iterable(following)), dtype=np.int32)
    # csr_matrix from its own arrays takes a tenth of the time of csr_array, and most graphs are small.
    graph = csr_matrix((np.ones(len(targets)), targets, ends), shape=(nodes, nodes))
    components: list[int] = connected_components(graph, connection="strong")[1].tolist()
    return components


def _shortest_cycle(
    edges: Sequence[Edge],
    components: Sequence[int],
    is_start: Callable[[int], bool],
    is_end: Callable[[int, int], bool],
) -> list[Edge]:
    """Return a shortest cycle, or a short one if there are very many nodes to begin at; else nothing.

    ``is_start`` tells whether a cycle may begin at a node, ``is_end`` whether a cycle from the first node may
    turn back at the second.
    """
    inside: dict[int, list[Edge]] = {}
    for edge in edges:
        if components[edge.first] == components[edge.then]:
            inside.setdefault(edge.first, []).append(edge)
    starts = [node for node in inside if is_start(node)]
    starts = starts[:: max(1, len(starts) // MAX_STARTS)]
    best: list[Edge] = []
    limit = 4
    while starts and not best:  # short cycles first: long paths in a large component take long
        for start in starts:
            allowed = len(best) - 1 if best else limit
            out = _path(inside, start, partial(is_end, start), allowed)
            if not out:
                continue
            back = _path(inside, out[-1].then, partial(operator.eq, start), allowed - len(out))
            if back:
                best = out + back
        limit *= 4
        if limit > 4 * len(components):
            break
    return best


def _path(
    inside: dict[int, list[Edge]], start: int, is_end: Callable[[int], bool], max_edges: int
) -> list[Edge]:
    """Return a shortest path of 1 to ``max_edges`` edges, or nothing."""
    reached_by: dict[int, Edge] = {}
    frontier = [start]
    length = 0
    while frontier and length < max_edges:
        length += 1
        following = []
        for node in frontier:
            for edge in inside.get(node, ()):
                if edge.then in reached_by:
                    continue
                reached_by[edge.then] = edge
                if is_end(edge.then):
                    path = [edge]
                    while path[-1].first != start:
                        path.append(reached_by[path[-1].first])
                    return path[::-1]
                following.append(edge.then)
        frontier = following
    return []
