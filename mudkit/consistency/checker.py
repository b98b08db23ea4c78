"""Check of a history against a model, record by record, and the explanation in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mudkit.checks import check_arguments
from mudkit.consistency.deciding import Contradiction, Decision, judge, minimize
from mudkit.consistency.history import History
from mudkit.consistency.models import PROMISES, Edge, Form, Model, model_of, promising
from mudkit.consistency.operation import Operation, Outcome
from mudkit.consistency.record import Reading
from mudkit.consistency.search import Budget
from mudkit.consistency.verdict import Explanation, Status, Step, Verdict
from mudkit.consistency.versions import one_view
from mudkit.errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

MAX_OPERATIONS: Final = 3_000
"""Maximum number of operations of a record for the general search; beyond, the result is UNKNOWN."""


@check_arguments(types=False)
def check(
    history: History | pa.Table | pd.DataFrame,
    model: str,
    *,
    key: str | None = None,
    reads: Iterable[str] | None = None,
    within_s: float = 10.0,
) -> Verdict:
    """Check whether a history satisfies a model.

    All writes count, and the reads whose type promises the model (Table 3 of Mobius), each type separately: a
    history that mixes read types promises less than each of them. Reads without a type count for every model.
    Each record is a consistency domain of its own, as in appendix A.

    A write that was never answered took effect if some operation saw it, and a rejected write has no effect.
    If the versions of all writes are known, they are the order of the writes, in views as well, and models
    with one view are decided in nearly linear time. Otherwise, and for forking views, a search decides.
    Beyond its limits the result is UNKNOWN, never OK.

    Parameters
    ----------
    history : History, pyarrow.Table or pandas.DataFrame
        A history, or the table of operations of a trace, such as ``lab.history()``.
    model : str
        One of :data:`mudkit.consistency.MODELS`.
    key : str, optional
        Key of the record to check; by default all records.
    reads : iterable of str, optional
        Types of the reads that count, all of them together, whatever they promise.
    within_s : float
        Seconds of real time for the verdict of a record, and again for minimising a contradiction.

    Returns
    -------
    Verdict
        ILLEGAL if any record is ILLEGAL, else UNKNOWN if any is UNKNOWN, else OK.

    Raises
    ------
    ParameterError
        There is no such model, or the time is not positive.
    TraceFormatError, TraceContentError
        The table is not a table of operations, or its content is invalid.

    Examples
    --------
    >>> from mudkit.consistency import History
    >>> history = History.parse('''
    ...     ann:  w1        r2
    ...     bob:       w2        r1
    ... ''')
    >>> check(history, "linearizable")
    <Verdict: ILLEGAL, model linearizable, record x, why no order>
    """
    definition = model_of(model)
    if not within_s > 0:
        raise ParameterError(
            "A check needs time.", where="within_s", found=repr(within_s), expected="seconds over 0"
        )
    history = history if isinstance(history, History) else History.from_table(history)
    if isinstance(reads, str):
        reads = (reads,)
    types = None if reads is None else frozenset({*reads, None})
    records = history.records
    keys = list(records) if key is None else [key]
    results: dict[str, _Result] = {}
    for name in keys:
        results[name] = _check_record(records.get(name, History()), definition, types, within_s)
        if results[name].status is Status.ILLEGAL:
            break
    return _verdict(history, definition, key, results)


@check_arguments(types=False)
def views(
    history: History | pa.Table | pd.DataFrame, key: str, model: str = "fork-sequential"
) -> Mapping[str, tuple[Operation, ...]]:
    """Return the view of each client on a record.

    Parameters
    ----------
    history : History, pyarrow.Table or pandas.DataFrame
        A history, or the table of operations of a trace.
    key : str
        Key of the record.
    model : str
        Name of the model that the views satisfy.

    Returns
    -------
    mapping of str to tuple of Operation
        Empty if no views were found: :func:`check` explains why.

    Raises
    ------
    ParameterError, TraceFormatError, TraceContentError
        As :func:`check`.
    """
    return check(history, model, key=key).views.get(key, {})


class _Result:
    """Result for a record."""

    def __init__(
        self, status: Status, explanation: Explanation, seen: dict[str, tuple[Operation, ...]] | None = None
    ) -> None:
        self.status = status
        self.explanation = explanation
        self.views = seen or {}


def _verdict(history: History, model: Model, key: str | None, results: dict[str, _Result]) -> Verdict:
    """Return the verdict on all records: the first illegal one, else the first unknown one, else OK."""
    status = Status.OK if results else Status.UNKNOWN
    explanation = _summary(model, len(history), len(history.clients)) if results else _nothing(None)
    for kind in (Status.UNKNOWN, Status.ILLEGAL):
        for name, result in results.items():
            if result.status is kind:
                status, explanation, key = kind, result.explanation, name
                break
    views_of = {name: result.views for name, result in results.items() if result.views}
    if status is Status.OK and len(results) == 1:
        (key,) = results
        explanation = results[key].explanation
    return Verdict(status, model.name, key, explanation, history, views_of)


def _nothing(what: str | None) -> Explanation:
    """Return the explanation of a check without operations; ``what`` None: of an empty history."""
    return Explanation("nothing", what or "There is no operation to check: an empty history proves nothing.")


def _check_record(
    history: History, model: Model, selected: frozenset[str | None] | None, within_s: float
) -> _Result:
    """Check a record, each type of read separately; ``selected`` None: those that promise the model."""
    answered = [
        operation for operation in history if not operation.is_write and operation.outcome is Outcome.OK
    ]
    types = {operation.type for operation in answered}
    if selected is None:
        groups = [frozenset({type_}) for type_ in _sorted(types & promising(model.name), model)]
    else:
        groups = [selected & types] if selected & types else []
    if types and not groups:
        which = "of the types asked for" if selected is not None else "whose type promises the model"
        known = ", ".join(sorted(str(type_) for type_ in types))
        return _Result(
            Status.UNKNOWN,
            Explanation(
                "no read promises it",
                f"There is no read {which}, so nothing was checked; there are: {known}.",
            ),
        )
    best: _Result | None = None
    for group in groups or [frozenset()]:
        result = _check_reads(history, model, group, within_s)
        if result.status is Status.ILLEGAL:
            return result
        if best is None or (result.status is Status.UNKNOWN and best.status is Status.OK):
            best = result
    assert best is not None
    return best


def _sorted(types: Iterable[str | None], model: Model) -> list[str | None]:
    """Return the types, first the one that promises exactly this model: its views are shown."""
    return sorted(types, key=lambda type_: (PROMISES.get(type_ or "") != model.name, type_ or ""))


def _check_reads(history: History, model: Model, reads: frozenset[str | None], within_s: float) -> _Result:
    """Check the writes and the answered reads of some types; minimise an illegal history."""
    counted = [
        operation
        for operation in history
        if operation.is_write or (operation.outcome is Outcome.OK and operation.type in reads)
    ]
    if all(operation.outcome is Outcome.PENDING for operation in counted):
        return _Result(
            Status.UNKNOWN,
            _nothing("No operation was answered: there is nothing to check." if len(history) else None),
        )
    decision = judge(counted, reads, model, Budget(within_s, MAX_OPERATIONS))
    if decision.status is Status.OK:
        clients = len({operation.client for operation in counted})
        return _Result(Status.OK, _summary(model, len(counted), clients), decision.views)
    if decision.status is Status.UNKNOWN:
        return _Result(Status.UNKNOWN, _too_large(counted, decision, within_s))
    budget = Budget(within_s, MAX_OPERATIONS)
    operations, decision, is_smallest = minimize(counted, reads, model, decision, budget)
    assert decision.contradiction is not None
    return _Result(
        Status.ILLEGAL,
        _explain(decision.contradiction, operations, model, is_smallest, decision.readings),
    )


def _too_large(operations: list[Operation], decision: Decision, within_s: float) -> Explanation:
    """Return the explanation of a search that did not end."""
    if len(operations) > MAX_OPERATIONS:
        why = f"the search takes at most {MAX_OPERATIONS:,}"
    else:
        why = f"the search did not end within {within_s:g} s"
    return Explanation(
        "too large",
        f"It is not known: {len(operations):,} operations of one record, and {why}. "
        "Versions of all writes, fewer operations or more time help.",
    )


MAX_ORDERS_SHOWN: Final = 6
MAX_OPERATIONS_NAMED: Final = 8


def _explain(
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
    return _explain_search(contradiction, operations, model, is_smallest, readings)


def _steps(reading: Reading, edges: Sequence[Edge]) -> tuple[Step, ...]:
    """Convert edges to steps, joining those over moments."""
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
    """Return in words why steps contradict each other."""
    alone = [step for step in steps if step.first == step.then]
    if alone:
        return f"{alone[0].first} {alone[0].why}, and was refused."
    if contradiction.guarantee is None:
        sentence = "; ".join(map(str, steps))
        return f"Each of these comes before the next, and the last before the first: {sentence}."
    sentence = " and ".join(map(str, steps))
    return f"No order of the writes gives {contradiction.guarantee}: {sentence}."


def _explain_search(
    contradiction: Contradiction,
    operations: Sequence[Operation],
    model: Model,
    is_smallest: bool,
    readings: int,
) -> Explanation:
    """Explain that no views exist."""
    names = _names(operations)
    if readings > 1:
        words = f"Whichever writes were seen, of {readings} ways to read it, no views fit: {names}."
        return Explanation("no reading", words, tuple(operations), (), is_smallest)
    if model.form is Form.ONE_VIEW:
        words = f"No order of these operations is a view of all clients: {names}."
        tried = _contradicted_orders(contradiction.reading, model)
        if tried:
            words += " " + " ".join(tried)
        return Explanation("no order", words, tuple(operations), (), is_smallest)
    words = (
        "There are no views that hold what each client did and saw, and agree up to what they share: "
        f"{names}."
    )
    return Explanation("no views", words, tuple(operations), (), is_smallest)


def _names(operations: Sequence[Operation]) -> str:
    """Return operations in words, of many only the first."""
    names = [str(operation) for operation in operations]
    if len(names) > MAX_OPERATIONS_NAMED:
        names = [*names[:MAX_OPERATIONS_NAMED], f"and {len(names) - MAX_OPERATIONS_NAMED} more"]
    return ", ".join(names)


def _contradicted_orders(reading: Reading | None, model: Model) -> list[str]:
    """Return for each order of few writes the operations that contradict it."""
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
        names = " before ".join(reading.operations[place].label for place in order)
        lines.append(f"With {names}: {'; '.join(steps)}.")
    return lines if len(lines) <= MAX_ORDERS_SHOWN else []


def _summary(model: Model, operations: int, clients: int) -> Explanation:
    """Describe what was found for a legal history."""
    if model.form is Form.WRITE_ORDER:
        return Explanation(
            "write order", f"There is such an order of the writes of {operations:,} operations."
        )
    share = "one that is a view of all" if model.form is Form.ONE_VIEW else "one for each client"
    return Explanation("views", f"Views were found, {share}: {operations:,} operations, {clients:,} clients.")
