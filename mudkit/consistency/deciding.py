"""Decision for one record: the cheapest sure method, and a minimal contradiction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mudkit.consistency.models import MODELS, Edge, Form, Model, implied_models
from mudkit.consistency.operation import Operation
from mudkit.consistency.record import INITIAL, Anomaly, Reading, Record, Refused
from mudkit.consistency.search import Budget, OverBudgetError, Views, search
from mudkit.consistency.session import write_cycle
from mudkit.consistency.verdict import Status
from mudkit.consistency.versions import has_known_order, one_view

MAX_READINGS: Final = 4096
_ONE_VIEW_TIME_SHARE: Final = 0.25
_ONE_VIEW: Final = {False: MODELS["sequential"], True: MODELS["linearizable"]}


@dataclass(frozen=True)
class Contradiction:
    """Violation of a model by a reading.

    Attributes
    ----------
    kind : str
        ``cycle`` over operations, ``writes`` (a cycle over writes, of a session guarantee), ``search`` (no
        views exist), or the kind of an anomaly.
    edges : sequence of Edge
        Edges of a cycle.
    guarantee : str or None
        Session guarantee that is violated.
    """

    kind: str
    reading: Reading | None = None
    edges: Sequence[Edge] = ()
    guarantee: str | None = None
    anomaly: Anomaly | None = None


@dataclass(frozen=True)
class Decision:
    """Result for a record's history.

    Attributes
    ----------
    views : dict of str to tuple of Operation
        Views, if the history is OK and the model has views.
    contradiction : Contradiction or None
        Contradiction of the first reading, if the history is illegal.
    readings : int
        Number of readings tried.
    """

    status: Status
    views: dict[str, tuple[Operation, ...]] = field(default_factory=dict)
    contradiction: Contradiction | None = None
    readings: int = 1


def record_of(operations: Sequence[Operation], reads: frozenset[str | None], model: Model) -> Record:
    """Prepare a record's history for a model."""
    refused = Refused.SET_ASIDE if model.retracts else Refused.HAS_NO_EFFECT
    return Record(operations, reads, Refused.IS_A_WRITE if model.form is Form.WRITE_ORDER else refused)


def judge(
    operations: Sequence[Operation], reads: frozenset[str | None], model: Model, budget: Budget
) -> Decision:
    """Decide whether a record's operations, in the order of invocation, satisfy a model.

    Writes count, and the reads of the types ``reads``. UNKNOWN: a limit of the budget was reached.
    """
    record = record_of(operations, reads, model)
    if record.anomaly is not None:
        return Decision(Status.ILLEGAL, contradiction=_of_anomaly(record.anomaly))
    first: Contradiction | None = None
    count = 0
    is_complete = True
    for reading in record.readings():
        if count >= MAX_READINGS or ((count or reading is None) and budget.is_over()):
            is_complete = False
            break
        if reading is None:
            continue
        count += 1
        decision = _of_anomaly(reading) if isinstance(reading, Anomaly) else decide(reading, model, budget)
        if decision is None:
            is_complete = False
        elif isinstance(decision, Contradiction):
            first = first or decision
        else:
            assert isinstance(reading, Reading)
            views = {
                client: tuple(reading.operations[place] for place in view)
                for client, view in decision.items()
            }
            return Decision(Status.OK, views)
    if not is_complete:
        return Decision(Status.UNKNOWN, readings=count)
    return Decision(Status.ILLEGAL, contradiction=first or Contradiction("search"), readings=count)


def _of_anomaly(anomaly: Anomaly) -> Contradiction:
    """Return an anomaly as a contradiction."""
    return Contradiction(anomaly.kind, anomaly=anomaly)


def decide(reading: Reading, model: Model, budget: Budget) -> Views | Contradiction | None:
    """Return views (empty for session guarantees), a contradiction, or None if undecided, for a reading."""
    if model.form is Form.WRITE_ORDER:
        return _violation(reading, model.name) or {}
    if has_known_order(reading):
        is_one = model.form is Form.ONE_VIEW
        view, edges = one_view(reading, model if is_one else _ONE_VIEW[model.real_time])
        if view is not None:
            return _same_view(reading, view)
        if is_one:
            return Contradiction("cycle", reading, edges)
    for name in _GUARANTEES:
        contradiction = _violation(reading, name)
        if contradiction is not None:
            return contradiction
    return _search(reading, model, budget)


_GUARANTEES: Final = tuple(
    name
    for name, model in MODELS.items()
    if model.form is Form.WRITE_ORDER and name in implied_models("fork-sequential")
)
"""Guarantees that every model with views implies for writes with an effect; they are cheap to decide."""


def _violation(reading: Reading, guarantee: str) -> Contradiction | None:
    """Return the contradiction to a session guarantee; None if the reading satisfies it."""
    edges = write_cycle(reading, guarantee)
    return None if edges is None else Contradiction("writes", reading, edges, guarantee)


def _search(reading: Reading, model: Model, budget: Budget) -> Views | Contradiction | None:
    """Search for views; return a contradiction if none exist, None if a limit was reached."""
    if model.form is Form.FORKING_VIEWS:  # if one view fits all clients, it is the simpler explanation
        try:
            views = search(reading, _ONE_VIEW[model.real_time], budget.share(_ONE_VIEW_TIME_SHARE))
        except OverBudgetError:
            views = None
        if views is not None:
            return views
    try:
        views = search(reading, model, budget)
    except OverBudgetError:
        return None
    return Contradiction("search", reading) if views is None else views


def _same_view(reading: Reading, view: list[int]) -> Views:
    """Return the views of all clients, each of which sees the same operations in the same order."""
    return {
        client: tuple(view) for client in dict.fromkeys(operation.client for operation in reading.operations)
    }


def without(
    operations: Sequence[Operation], removed: Sequence[Operation], reads: frozenset[str | None], model: Model
) -> list[Operation]:
    """Remove operations, and the operations that saw only their writes.

    A read without its write is an anomaly of its own, and must not result from removing the write.
    """
    before = record_of(operations, reads, model)
    known = {before.operations[place].id for place in before.orphans()}
    out = {operation.id for operation in removed}
    while True:
        left = [operation for operation in before.operations if operation.id not in out]
        record = record_of(left, reads, model)
        new = {record.operations[place].id for place in record.orphans()} - known
        if not new:
            return left
        out |= new


def minimize(
    operations: Sequence[Operation],
    reads: frozenset[str | None],
    model: Model,
    decision: Decision,
    budget: Budget,
) -> tuple[list[Operation], Decision, bool]:
    """Remove operations from an illegal history while it stays illegal.

    Returns
    -------
    list of Operation
        Illegal operations; without any one of them (:func:`without`), the rest is not known to be illegal.
    Decision
        Decision on these operations.
    bool
        False if time ran out before they were minimal.
    """
    left = record_of(operations, reads, model).operations
    core = _core(decision.contradiction)
    if core:
        ids = {operation.id for operation in core}
        few = without(left, [operation for operation in left if operation.id not in ids], reads, model)
        judged = judge(few, reads, model, budget)
        if judged.status is Status.ILLEGAL:
            left, decision = few, judged
    size = max(1, len(left) // 2)
    while True:
        start, shrunk = 0, False
        while start < len(left):
            if budget.is_over():
                return left, decision, False
            fewer = without(left, left[start : start + size], reads, model)
            judged = judge(fewer, reads, model, budget)
            if judged.status is Status.ILLEGAL:
                left, decision, shrunk = fewer, judged, True
            else:
                start += size
        if size == 1 and not shrunk:
            return left, decision, True
        size = max(1, size // 2)


def _core(contradiction: Contradiction | None) -> list[Operation]:
    """Return the operations of a cycle and all that they saw, which is nearly minimal; none for None."""
    if contradiction is None:
        return []
    if contradiction.anomaly is not None:
        return list(contradiction.anomaly.operations)
    reading = contradiction.reading
    if reading is None or not contradiction.edges:
        return []
    look = [node for edge in contradiction.edges for node in (edge.first, edge.then, *(edge.by or ()))]
    members: set[int] = set()
    while look:
        place = look.pop()
        if 0 <= place < len(reading.operations) and place not in members:
            members.add(place)
            seen = reading.saw[place]
            look.append(INITIAL if seen is None else seen)
            look.extend(avoided for conflict, avoided in reading.avoids if conflict == place)
    return [reading.operations[place] for place in sorted(members)]
