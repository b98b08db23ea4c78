"""Graphs of what comes before what: a cycle is a contradiction."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mudkit.consistency.order import Edge

__all__ = ["shortest_cycle", "tangles"]

_STARTS: Final = 200
"""A shortest cycle is looked for from so many nodes."""


def tangles(edges: Sequence[Edge], nodes: int) -> list[int]:
    """Find the strongly connected parts: two nodes of one part lie on a cycle (Tarjan 1972).

    Returns
    -------
    list of int
        The part of each node.
    """
    after: list[list[int]] = [[] for _ in range(nodes)]
    for first, then, *_ in edges:
        after[first].append(then)
    part = [-1] * nodes
    number_of, low = [-1] * nodes, [0] * nodes
    count = parts = 0
    stack: list[int] = []
    for start in range(nodes):
        if number_of[start] >= 0:
            continue
        trail = [(start, iter(after[start]))]
        number_of[start] = low[start] = count
        count += 1
        stack.append(start)
        while trail:
            node, following = trail[-1]
            for then in following:
                if number_of[then] < 0:
                    number_of[then] = low[then] = count
                    count += 1
                    stack.append(then)
                    trail.append((then, iter(after[then])))
                    break
                if part[then] < 0 and number_of[then] < low[node]:
                    low[node] = number_of[then]
            else:
                trail.pop()
                if trail and low[node] < low[trail[-1][0]]:
                    low[trail[-1][0]] = low[node]
                if low[node] == number_of[node]:
                    while part[node] < 0:
                        part[stack.pop()] = parts
                    parts += 1
    return part


def shortest_cycle(
    edges: Sequence[Edge],
    parts: Sequence[int],
    is_start: Callable[[int], bool],
    is_end: Callable[[int, int], bool],
) -> list[Edge]:
    """Find a short cycle; the shortest, unless there are very many nodes to begin at.

    Parameters
    ----------
    edges : sequence of Edge
    parts : sequence of int
        As :func:`tangles` gives them.
    is_start : callable
        Whether a cycle may begin at a node.
    is_end : callable
        Whether a cycle that begins at the first node must pass the second one, or any such.

    Returns
    -------
    list of Edge
        One after the other; empty: there is none.
    """
    inside: dict[int, list[Edge]] = {}
    for edge in edges:
        if parts[edge.first] == parts[edge.then]:
            inside.setdefault(edge.first, []).append(edge)
    starts = [node for node in inside if is_start(node)]
    starts = starts[:: max(1, len(starts) // _STARTS)]
    best: list[Edge] = []
    most = 4
    while starts and not best:  # short ways first: a long one in a large part takes its time
        for start in starts:
            limit = len(best) - 1 if best else most
            out = _path(inside, start, partial(is_end, start), limit)
            if not out:
                continue
            back = _path(inside, out[-1].then, partial(operator.eq, start), limit - len(out))
            if back:
                best = out + back
        most *= 4
        if most > 4 * len(parts):
            break
    return best


def _path(inside: dict[int, list[Edge]], start: int, is_end: Callable[[int], bool], most: int) -> list[Edge]:
    """Find a shortest way along edges, of one edge at least and ``most`` at most."""
    came: dict[int, Edge] = {}
    ring = [start]
    length = 0
    while ring and length < most:
        length += 1
        following = []
        for node in ring:
            for edge in inside.get(node, ()):
                if edge.then in came:
                    continue
                came[edge.then] = edge
                if is_end(edge.then):
                    way = [edge]
                    while way[-1].first != start:
                        way.append(came[way[-1].first])
                    return way[::-1]
                following.append(edge.then)
        ring = following
    return []
