"""Decide whether a record's history meets a model, by the cheapest way that is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mudkit.consistency.anomaly import Anomaly
from mudkit.consistency.models import MODELS, Form, Model, implied_models
from mudkit.consistency.operation import Operation
from mudkit.consistency.order import Edge
from mudkit.consistency.reading import Reading, Refused
from mudkit.consistency.record import Record
from mudkit.consistency.search import Budget, OverBudgetError, Views, search
from mudkit.consistency.session import write_cycle
from mudkit.consistency.verdict import Status
from mudkit.consistency.versions import has_known_order, one_view

__all__ = ["Contradiction", "Decision", "decide", "judge", "record_of"]

_MOST_READINGS: Final = 4096
_PART_FOR_ONE_VIEW: Final = 0.25
_ONE_VIEW: Final = {False: MODELS["sequential"], True: MODELS["linearizable"]}


@dataclass(frozen=True)
class Contradiction:
    """What speaks against a reading of a history.

    Parameters
    ----------
    kind : str
        ``cycle`` over operations, ``writes`` (a cycle over writes, of a session guarantee), ``search``
        (nothing was found), or an anomaly's.
    reading : Reading or None
    edges : sequence of Edge
        The edges of a cycle.
    guarantee : str or None
        The session guarantee that does not hold.
    anomaly : Anomaly or None
    """

    kind: str
    reading: Reading | None = None
    edges: Sequence[Edge] = ()
    guarantee: str | None = None
    anomaly: Anomaly | None = None


@dataclass(frozen=True)
class Decision:
    """What came out for a record's history.

    Parameters
    ----------
    status : Status
    views : dict of str to tuple of Operation
        If it is OK and the model has views.
    contradiction : Contradiction or None
        If it is illegal: of its first reading.
    readings : int
        How many readings it has, as far as they were tried.
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
    """Decide for a record's history.

    Parameters
    ----------
    operations : sequence of Operation
        The operations of a record, in the order in which they were invoked.
    reads : set of str or None
        Types of the reads that count.
    model : Model
    budget : Budget
    """
    record = record_of(operations, reads, model)
    if record.anomaly is not None:
        return Decision(Status.ILLEGAL, contradiction=_of(record.anomaly))
    first: Contradiction | None = None
    count = 0
    is_sure = True
    for reading in record.readings():
        if count >= _MOST_READINGS or ((count or reading is None) and budget.is_over()):
            is_sure = False
            break
        if reading is None:
            continue
        count += 1
        decision = _of(reading) if isinstance(reading, Anomaly) else decide(reading, model, budget)
        if decision is None:
            is_sure = False
        elif isinstance(decision, Contradiction):
            first = first or decision
        else:
            assert isinstance(reading, Reading)
            views = {
                client: tuple(reading.operations[place] for place in view)
                for client, view in decision.items()
            }
            return Decision(Status.OK, views)
    if not is_sure:
        return Decision(Status.UNKNOWN, readings=count)
    return Decision(Status.ILLEGAL, contradiction=first or Contradiction("search"), readings=count)


def _of(anomaly: Anomaly) -> Contradiction:
    return Contradiction(anomaly.kind, anomaly=anomaly)


def decide(reading: Reading, model: Model, budget: Budget) -> Views | Contradiction | None:
    """Decide for a reading: views (none for session guarantees), a contradiction, or None: not known."""
    if model.form is Form.WRITE_ORDER:
        return _against(reading, model.name) or {}
    if has_known_order(reading):
        is_one = model.form is Form.ONE_VIEW
        view, edges = one_view(reading, model if is_one else _ONE_VIEW[model.real_time])
        if view is not None:
            return _for_all(reading, view)
        if is_one:
            return Contradiction("cycle", reading, edges)
    for name in _GUARANTEES:
        contradiction = _against(reading, name)
        if contradiction is not None:
            return contradiction
    return _searched(reading, model, budget)


_GUARANTEES: Final = tuple(
    name
    for name, model in MODELS.items()
    if model.form is Form.WRITE_ORDER and name in implied_models("fork-sequential")
)
"""What every model with views implies of what has an effect in a view, and what is cheap to decide."""


def _against(reading: Reading, guarantee: str) -> Contradiction | None:
    edges = write_cycle(reading, guarantee)
    return None if edges is None else Contradiction("writes", reading, edges, guarantee)


def _searched(reading: Reading, model: Model, budget: Budget) -> Views | Contradiction | None:
    if model.form is Form.FORKING_VIEWS:  # one view for all is the better picture, where there is one
        try:
            views = search(reading, _ONE_VIEW[model.real_time], budget.share(_PART_FOR_ONE_VIEW))
        except OverBudgetError:
            views = None
        if views is not None:
            return views
    try:
        views = search(reading, model, budget)
    except OverBudgetError:
        return None
    return Contradiction("search", reading) if views is None else views


def _for_all(reading: Reading, view: list[int]) -> Views:
    return {client: tuple(view) for client in dict.fromkeys(each.client for each in reading.operations)}
