"""Joins: functions that merge pending messages into one aggregate (Radiator 2.2, 3.1; Table 2 is lost).

A join maps the contexts of a batch, oldest first, to one context; a user's own join has the same form. Set
the other parameters of these joins with :func:`functools.partial`. ``loc`` is the attribute with the place,
``km`` the side of grid cells in km, and a join raises ContextProblem where a context lacks an attribute that
it needs.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from mudkit.errors import ParameterError
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.places import Cell, box, cell
from mudkit.wire import Fields, Value

Join: TypeAlias = Callable[[Sequence[Context]], Context]


def concatenation(contexts: Sequence[Context]) -> Context:
    """Join people into one set, times into one span, and each attribute into a list of its values.

    The default (Radiator 3.1). A single message becomes lists, too, so that receivers always find lists.
    """
    return _build_aggregate(contexts, _list_attributes(contexts))


def bounding_box(contexts: Sequence[Context], *, loc: str = "loc") -> Context:
    """Join places into their smallest bounding box, and other attributes into lists.

    ``box`` (south, west, north, east, degrees; west is greater than east across the date line) and
    ``messages``, their number, replace the attribute ``loc``.
    """
    bounds = box([context[loc] for context in contexts])
    others = {name: values for name, values in _list_attributes(contexts).items() if name != loc}
    return _build_aggregate(contexts, {**others, "box": bounds, "messages": len(contexts)})


def mean(contexts: Sequence[Context], *, of: Sequence[str] = ("speed_kmh",), loc: str = "loc") -> Context:
    """Join numbers into their means and places into their box: the speed of traffic (Radiator 2.2).

    The aggregate has the mean of each attribute in ``of``, ``messages``, and the ``box`` of the contexts that
    have a place, as in :func:`bounding_box`.
    """
    means = {name: statistics.fmean([context[name] for context in contexts]) for name in of}
    attributes: dict[str, Value] = {**means, "messages": len(contexts)}
    places = [context[loc] for context in contexts if loc in context.attributes]
    if places:
        attributes["box"] = box(places)
    return _build_aggregate(contexts, attributes)


def count_per_cell(
    contexts: Sequence[Context], *, km: float = 1.0, loc: str = "loc", least: int = 1
) -> Context:
    """Count the different people in each cell: popular spots (Radiator 2.1); people stay anonymous.

    ``cells`` lists the cells of at least ``least`` people, the fullest first: ``[latitude, longitude, people,
    messages, reported_s]`` (degrees of the centre; mean time of the contexts). ``elsewhere`` is the number of
    people in the other cells.
    """
    by_cell = _group_by_cell(contexts, km, loc)
    people = {
        place: frozenset().union(*(context.people for context in here)) for place, here in by_cell.items()
    }
    fullest = sorted(people, key=lambda place: (-len(people[place]), place))
    cells = [
        [*place.centre, len(people[place]), len(by_cell[place]), _mean_time_s(by_cell[place])]
        for place in fullest
        if len(people[place]) >= least
    ]
    elsewhere = {name for names in people.values() if len(names) < least for name in names}
    return _build_aggregate(contexts, {"cells": cells, "elsewhere": len(elsewhere), "km": km}, people=())


def mean_per_cell(
    contexts: Sequence[Context], *, of: str = "speed_kmh", km: float = 1.0, loc: str = "loc", digits: int = 1
) -> Context:
    """Join the numbers ``of`` into their means in each cell: speed or noise on a map (Radiator 2.2).

    ``cells`` lists ``[latitude, longitude, mean, messages, reported_s]`` as in :func:`count_per_cell`, means
    with ``digits`` decimal places. The size grows with the number of cells, not of messages. People stay
    anonymous.
    """
    cells = [
        [
            *place.centre,
            round(statistics.fmean([context[of] for context in here]), digits),
            len(here),
            _mean_time_s(here),
        ]
        for place, here in sorted(_group_by_cell(contexts, km, loc).items())
    ]
    return _build_aggregate(contexts, {"cells": cells, "of": of, "km": km}, people=())


def top_k(contexts: Sequence[Context], *, by: str, k: int = 10) -> Context:
    """Keep the ``k`` messages with the highest values of the attribute ``by``; of equal ones the older.

    The aggregate has the people of the kept messages, and their attributes as lists.
    """
    kept = sorted(contexts, key=lambda context: context[by], reverse=True)[:k]
    return _build_aggregate(
        contexts, _list_attributes(kept), people=[name for context in kept for name in context.people]
    )


def people_count(contexts: Sequence[Context], *, k: int, loc: str | None = None) -> Context:
    """Count the different people; they stay anonymous (Radiator 2.1, note b).

    The aggregate has ``count`` and, unless ``loc`` is None, ``box``. With fewer than ``k`` people, the join
    raises ParameterError and the messages keep waiting.
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
    return _build_aggregate(contexts, attributes, people=())


def _group_by_cell(contexts: Sequence[Context], km: float, loc: str) -> dict[Cell, list[Context]]:
    """Return the contexts by the grid cell of their place."""
    by_cell: dict[Cell, list[Context]] = defaultdict(list)
    for context in contexts:
        by_cell[cell(context[loc], km=km)].append(context)
    return by_cell


def _mean_time_s(contexts: Sequence[Context]) -> float:
    """Return the mean of the middles of the contexts' spans."""
    return round(statistics.fmean([sum(context.span_us or (0, 0)) / 2e6 for context in contexts]), 1)


def _build_aggregate(
    contexts: Sequence[Context], attributes: Fields, people: Iterable[str] | None = None
) -> Context:
    """Return a context with these attributes, all people of the contexts (or ``people``) and their span."""
    if people is None:
        people = frozenset().union(*[context.people for context in contexts])
    spans = [context.span_us for context in contexts if context.span_us is not None]
    begins_us, ends_us = zip(*spans, strict=True) if spans else ((0,), (0,))
    return Context(frozenset(people), attributes, (min(begins_us), max(ends_us)))


def _list_attributes(contexts: Iterable[Context]) -> dict[str, list[Value]]:
    """Return each attribute as the list of its values, oldest first."""
    lists: dict[str, list[Value]] = {}
    for context in contexts:
        for name, value in context.attributes.items():
            lists.setdefault(name, []).append(value)
    return lists
