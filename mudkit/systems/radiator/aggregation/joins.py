"""Joins: how messages become one aggregate (Radiator 2.2, 3.1; Table 2 is lost).

A join is a function of the contexts that have waited together, the oldest first; the programmer's own is one
like these. What these take besides is set with :func:`functools.partial`.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from mudkit.errors import ParameterError
from mudkit.systems.radiator.aggregation.places import Cell, box, cell
from mudkit.systems.radiator.context import Context
from mudkit.wire import Fields, Value

__all__ = [
    "Join",
    "bounding_box",
    "concatenation",
    "count_per_cell",
    "mean",
    "mean_per_cell",
    "people_count",
    "top_k",
]

Join: TypeAlias = Callable[[Sequence[Context]], Context]


def concatenation(contexts: Sequence[Context]) -> Context:
    """Join all people into one set, all times into one span, and each attribute into a list of its values.

    The default (Radiator 3.1). Also of one message: who receives always finds lists.
    """
    return _joined(contexts, _lists(contexts))


def bounding_box(contexts: Sequence[Context], *, loc: str = "loc") -> Context:
    """Join places into the box that holds them all, and other attributes into lists.

    It is the smallest one; where it is over the date line, its west is greater than its east.

    Returns
    -------
    Context
        The context with ``box`` (south, west, north, east, degrees) and ``messages`` in place of the
        attribute ``loc``.

    Raises
    ------
    ContextProblem
        One has no place.
    """
    held = box([context[loc] for context in contexts])
    others = {name: values for name, values in _lists(contexts).items() if name != loc}
    return _joined(contexts, {**others, "box": held, "messages": len(contexts)})


def mean(contexts: Sequence[Context], *, of: Sequence[str] = ("speed_kmh",), loc: str = "loc") -> Context:
    """Join numbers into their means and places into their box: the speed of traffic (Radiator 2.2).

    Returns
    -------
    Context
        The context with the mean of each attribute named in ``of``, ``messages``, and ``box`` where there are
        places, as :func:`bounding_box` gives it.

    Raises
    ------
    ContextProblem
        One lacks such an attribute.
    """
    means = {name: statistics.fmean([context[name] for context in contexts]) for name in of}
    attributes: dict[str, Value] = {**means, "messages": len(contexts)}
    places = [context[loc] for context in contexts if loc in context.attributes]
    if places:
        attributes["box"] = box(places)
    return _joined(contexts, attributes)


def count_per_cell(
    contexts: Sequence[Context], *, km: float = 1.0, loc: str = "loc", least: int = 1
) -> Context:
    """Join places into how many different people are in each cell: popular spots (Radiator 2.1).

    Nobody is named.

    Parameters
    ----------
    contexts : sequence of Context
    km : float
        Side of the cells.
    loc : str
    least : int
        Cells with fewer people are not told; how many people are in such cells is.

    Returns
    -------
    Context
        The context with ``cells``, the fullest first: ``[latitude, longitude, people, messages, said_s]``:
        degrees of their centres, and when it was said on average; ``elsewhere``: people in others.

    Raises
    ------
    ContextProblem
        One has no place.
    """
    held = _by_cell(contexts, km, loc)
    people = {place: frozenset().union(*(each.people for each in those)) for place, those in held.items()}
    fullest = sorted(people, key=lambda place: (-len(people[place]), place))
    cells = [
        [*place.centre, len(people[place]), len(held[place]), _said_s(held[place])]
        for place in fullest
        if len(people[place]) >= least
    ]
    elsewhere = {name for names in people.values() if len(names) < least for name in names}
    return _joined(contexts, {"cells": cells, "elsewhere": len(elsewhere), "km": km}, people=())


def mean_per_cell(
    contexts: Sequence[Context], *, of: str = "speed_kmh", km: float = 1.0, loc: str = "loc", digits: int = 1
) -> Context:
    """Join numbers into their means in each cell: the speed of traffic, or noise, on a map (Radiator 2.2).

    Its size grows with the cells, not with the messages.

    Parameters
    ----------
    contexts : sequence of Context
    of : str
        The attribute with the number.
    km : float
        Side of the cells.
    loc : str
    digits : int
        The digits of the means behind the point.

    Returns
    -------
    Context
        The context with ``cells``: ``[latitude, longitude, mean, messages, said_s]``, as of
        :func:`count_per_cell`. Nobody is named.

    Raises
    ------
    ContextProblem
        One lacks the number or the place.
    """
    cells = [
        [
            *place.centre,
            round(statistics.fmean([each[of] for each in those]), digits),
            len(those),
            _said_s(those),
        ]
        for place, those in sorted(_by_cell(contexts, km, loc).items())
    ]
    return _joined(contexts, {"cells": cells, "of": of, "km": km}, people=())


def top_k(contexts: Sequence[Context], *, by: str, k: int = 10) -> Context:
    """Join messages into those with the highest values of an attribute; of equal ones the older.

    Returns
    -------
    Context
        The context of the people of those that are kept, with attributes as lists.
    """
    kept = sorted(contexts, key=lambda context: context[by], reverse=True)[:k]
    return _joined(contexts, _lists(kept), people=[name for each in kept for name in each.people])


def people_count(contexts: Sequence[Context], *, k: int, loc: str | None = None) -> Context:
    """Join messages into how many different people they are of; nobody is named (Radiator 2.1, note b).

    Parameters
    ----------
    contexts : sequence of Context
    k : int
        Fewer people are an error, whatever let them go: the messages wait on.
    loc : str, optional
        An attribute with places: the box of all of them goes along.

    Raises
    ------
    ParameterError
        They are of fewer than k people.
    """
    people = {name for context in contexts for name in context.people}
    if len(people) < k:
        raise ParameterError(
            "These are too few people to be told of.",
            where="people",
            found=str(len(people)),
            expected=f"{k} at least",
            remedy=f"let the aggregability function give People({k})",
        )
    attributes: dict[str, Value] = {"count": len(people)}
    if loc is not None:
        attributes["box"] = bounding_box(contexts, loc=loc)["box"]
    return _joined(contexts, attributes, people=())


def _by_cell(contexts: Sequence[Context], km: float, loc: str) -> dict[Cell, list[Context]]:
    held: dict[Cell, list[Context]] = defaultdict(list)
    for context in contexts:
        held[cell(context[loc], km=km)].append(context)
    return held


def _said_s(contexts: Sequence[Context]) -> float:
    """Give when it was said, on average: the middle of each span."""
    return round(statistics.fmean([sum(each.span_us or (0, 0)) / 2e6 for each in contexts]), 1)


def _joined(contexts: Sequence[Context], attributes: Fields, people: Iterable[str] | None = None) -> Context:
    if people is None:
        people = frozenset().union(*[context.people for context in contexts])
    spans = [context.span_us for context in contexts if context.span_us is not None]
    begins_us, ends_us = zip(*spans, strict=True) if spans else ((0,), (0,))
    return Context(frozenset(people), attributes, (min(begins_us), max(ends_us)))


def _lists(contexts: Iterable[Context]) -> dict[str, list[Value]]:
    lists: dict[str, list[Value]] = {}
    for context in contexts:
        for name, value in context.attributes.items():
            lists.setdefault(name, []).append(value)
    return lists
