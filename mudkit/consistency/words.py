"""Explanations in words, with the steps of a contradiction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mudkit.consistency.deciding import Contradiction
from mudkit.consistency.models import Form, Model
from mudkit.consistency.operation import Operation
from mudkit.consistency.order import Edge
from mudkit.consistency.reading import Reading
from mudkit.consistency.verdict import Explanation, Step
from mudkit.consistency.versions import one_view

__all__ = ["explained", "summed_up"]

_MOST_ORDERS: Final = 6
_MOST_NAMED: Final = 8


def explained(
    contradiction: Contradiction,
    operations: Sequence[Operation],
    model: Model,
    is_smallest: bool,
    readings: int,
) -> Explanation:
    """Explain a contradiction among some operations."""
    if contradiction.anomaly is not None and readings == 1:
        anomaly = contradiction.anomaly
        return Explanation(anomaly.kind, anomaly.words, tuple(operations), (), is_smallest)
    if contradiction.edges and contradiction.reading is not None and readings == 1:
        steps = _steps(contradiction.reading, contradiction.edges)
        return Explanation("cycle", _sentence(steps, contradiction), tuple(operations), steps, is_smallest)
    return _nothing_found(contradiction, operations, model, is_smallest, readings)


def _steps(reading: Reading, edges: Sequence[Edge]) -> tuple[Step, ...]:
    """Turn edges into steps; those over moments are joined into one."""
    count = len(reading.operations)
    steps: list[Step] = []
    begin: int | None = None
    for edge in edges:
        if edge.by is not None:
            first, then = (reading.operations[place] for place in edge.by)
            steps.append(Step(first, then, "was over before its client invoked" if first != then else "saw"))
        elif edge.first < count and edge.then < count:
            steps.append(Step(reading.operations[edge.first], reading.operations[edge.then], edge.why))
        elif edge.first < count:
            begin = edge.first
        elif edge.then < count and begin is not None:
            steps.append(Step(reading.operations[begin], reading.operations[edge.then], edge.why))
            begin = None
    return tuple(steps)


def _sentence(steps: Sequence[Step], contradiction: Contradiction) -> str:
    alone = [step for step in steps if step.first == step.then]
    if alone:
        return f"{alone[0].first} {alone[0].why}, and was refused."
    if contradiction.guarantee is None:
        sentence = "; ".join(map(str, steps))
        return f"Each of these comes before the next, and the last before the first: {sentence}."
    sentence = " and ".join(map(str, steps))
    return f"No order of the writes gives {contradiction.guarantee}: {sentence}."


def _nothing_found(
    contradiction: Contradiction,
    operations: Sequence[Operation],
    model: Model,
    is_smallest: bool,
    readings: int,
) -> Explanation:
    """Explain that no views were found although all were tried."""
    names = _named(operations)
    if readings > 1:
        words = f"Whichever writes were seen, of {readings} ways to read it, no views fit: {names}."
        return Explanation("no reading", words, tuple(operations), (), is_smallest)
    if model.form is Form.ONE_VIEW:
        words = f"No order of these operations is a view of all clients: {names}."
        tried = _orders(contradiction.reading, model)
        if tried:
            words += " " + " ".join(tried)
        return Explanation("no order", words, tuple(operations), (), is_smallest)
    words = (
        "There are no views that hold what each client did and saw, and agree up to what they share: "
        f"{names}."
    )
    return Explanation("no views", words, tuple(operations), (), is_smallest)


def _named(operations: Sequence[Operation]) -> str:
    names = [str(each) for each in operations]
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], f"and {len(names) - _MOST_NAMED} more"]
    return ", ".join(names)


def _orders(reading: Reading | None, model: Model) -> list[str]:
    """Say for each order of the writes, where there are few, which operations speak against it."""
    if reading is None or len(reading.writes) > 3:
        return []
    lines = []
    for order in itertools.permutations(reading.writes):
        versions: list[int | None] = [None] * len(reading.operations)
        for number, place in enumerate(order, start=1):
            versions[place] = number
        _, edges = one_view(replace(reading, versions=versions), model)
        if not edges:
            return []
        steps = [
            str(step).replace("has an older version than", "would come before")
            for step in _steps(reading, edges)
        ]
        names = " before ".join(reading.operations[place].what for place in order)
        lines.append(f"With {names}: {'; '.join(steps)}.")
    return lines if len(lines) <= _MOST_ORDERS else []


def summed_up(model: Model, operations: int, clients: int) -> Explanation:
    """Say what was found for a history that meets a model."""
    if model.form is Form.WRITE_ORDER:
        return Explanation(
            "write order", f"There is such an order of the writes of {operations:,} operations."
        )
    share = "one that is a view of all" if model.form is Form.ONE_VIEW else "one for each client"
    return Explanation("views", f"Views were found, {share}: {operations:,} operations, {clients:,} clients.")
