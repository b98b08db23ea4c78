"""Check a history against a model, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from mudkit.consistency.deciding import Decision, judge
from mudkit.consistency.history import History
from mudkit.consistency.minimise import smallest
from mudkit.consistency.models import PROMISES, Model, model_of, promising
from mudkit.consistency.operation import Operation, Outcome
from mudkit.consistency.search import Budget
from mudkit.consistency.verdict import Explanation, Status, Verdict
from mudkit.consistency.words import explained, summed_up
from mudkit.errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["MOST_OPERATIONS", "check", "views"]

MOST_OPERATIONS: Final = 3_000
"""Of one record, for the general search: with more, its answer is UNKNOWN at once."""


def check(
    history: History | pa.Table | pd.DataFrame,
    model: str,
    *,
    key: str | None = None,
    reads: Iterable[str] | None = None,
    within_s: float = 10.0,
) -> Verdict:
    """Check whether a history satisfies a consistency model.

    All writes count. Reads count if their type promises the model (Mobius, Table 3), each type separately: a
    history that mixes read types promises less than each of them. Reads without a type count for every
    model. Each record is a consistency domain of its own (appendix A).

    A write without an answer took effect if an operation observed it; a refused write had no effect. If the
    versions of all writes are known, they are the order of the writes, also in views, and models with one
    view are decided in nearly linear time. Otherwise, and for views that fork, a bounded search decides;
    beyond its bounds the result is UNKNOWN, never OK.

    Parameters
    ----------
    history : History, pyarrow.Table or pandas.DataFrame
        History, or a table of operations such as the result of ``lab.history()``.
    model : str
        One of :data:`mudkit.consistency.MODELS`.
    key : str, optional
        Key of the record to check; None: all records.
    reads : iterable of str, optional
        Types of the reads that count, together, whatever they promise; None: by the model, as above.
    within_s : float
        Limit of real time for a record's verdict, and again for reducing a contradiction, in seconds.

    Returns
    -------
    Verdict
        ILLEGAL if any record is ILLEGAL, else UNKNOWN if any is UNKNOWN, else OK.

    Raises
    ------
    ParameterError
        The model is unknown, or the time limit is not above 0.
    TraceFormatError, TraceContentError
        The table is not one of operations, or contains impossible ones.
    """
    asked = model_of(model)
    if not within_s > 0:
        raise ParameterError(
            "A check needs time.", where="within_s", found=repr(within_s), expected="seconds over 0"
        )
    history = history if isinstance(history, History) else History.from_table(history)
    if isinstance(reads, str):
        reads = (reads,)
    wanted = None if reads is None else frozenset({*reads, None})
    records = history.records
    keys = list(records) if key is None else [key]
    groups: dict[str, _Checked] = {}
    for each in keys:
        part = records.get(each, History())
        groups[each] = _checked(part, asked, wanted, within_s)
        if groups[each].status is Status.ILLEGAL:
            break
    return _verdict(history, asked, key, groups)


def views(
    history: History | pa.Table | pd.DataFrame, key: str, model: str = "fork-sequential"
) -> Mapping[str, tuple[Operation, ...]]:
    """Return each client's view of a record: an order of operations that satisfies a model.

    Parameters
    ----------
    history : History, pyarrow.Table or pandas.DataFrame
    key : str
    model : str
        Name of the model that the views satisfy.

    Returns
    -------
    mapping of str to tuple of Operation
        Views by client; empty if none were found (:func:`check` explains why).

    Raises
    ------
    ParameterError, TraceFormatError, TraceContentError
        As :func:`check`.
    """
    return check(history, model, key=key).views.get(key, {})


class _Checked:
    """What came out for a record."""

    def __init__(
        self, status: Status, explanation: Explanation, seen: dict[str, tuple[Operation, ...]] | None = None
    ) -> None:
        self.status = status
        self.explanation = explanation
        self.views = seen or {}


def _verdict(history: History, model: Model, key: str | None, groups: dict[str, _Checked]) -> Verdict:
    status = Status.OK if groups else Status.UNKNOWN
    explanation = summed_up(model, len(history), len(history.clients)) if groups else _nothing(None)
    for kind in (Status.UNKNOWN, Status.ILLEGAL):
        for each, one in groups.items():
            if one.status is kind:
                status, explanation, key = kind, one.explanation, each
                break
    seen = {each: one.views for each, one in groups.items() if one.status is Status.OK and one.views}
    if status is Status.OK and len(groups) == 1:
        (key,) = groups
        explanation = groups[key].explanation
    return Verdict(status, model.name, key, explanation, history, seen)


def _nothing(what: str | None) -> Explanation:
    return Explanation("nothing", what or "There is no operation to check: an empty history proves nothing.")


def _checked(
    history: History, model: Model, wanted: frozenset[str | None] | None, within_s: float
) -> _Checked:
    """Check a record."""
    answered = [each for each in history if not each.is_write and each.outcome is Outcome.OK]
    types = {each.type for each in answered}
    if wanted is None:
        groups = [frozenset({each}) for each in _sorted(types & promising(model.name), model)]
    else:
        groups = [wanted & types] if wanted & types else []
    if types and not groups:
        asked = "of the types asked for" if wanted is not None else "whose type promises the model"
        there = ", ".join(sorted(str(each) for each in types))
        return _Checked(
            Status.UNKNOWN,
            Explanation(
                "no read promises it",
                f"There is no read {asked}, so nothing was checked; there are: {there}.",
            ),
        )
    best: _Checked | None = None
    for group in groups or [frozenset()]:
        grouped = _group(history, model, group, within_s)
        if grouped.status is Status.ILLEGAL:
            return grouped
        if best is None or (grouped.status is Status.UNKNOWN and best.status is Status.OK):
            best = grouped
    assert best is not None
    return best


def _sorted(types: Iterable[str | None], model: Model) -> list[str | None]:
    """Put first the type of reads that promises just this model: its views are those that are shown."""
    return sorted(types, key=lambda each: (PROMISES.get(each or "") != model.name, each or ""))


def _group(history: History, model: Model, reads: frozenset[str | None], within_s: float) -> _Checked:
    counted = [
        each for each in history if each.is_write or (each.outcome is Outcome.OK and each.type in reads)
    ]
    if all(each.outcome is Outcome.PENDING for each in counted):
        return _Checked(
            Status.UNKNOWN,
            _nothing("No operation was answered: there is nothing to check." if len(history) else None),
        )
    decision = judge(counted, reads, model, Budget(within_s, MOST_OPERATIONS))
    if decision.status is Status.OK:
        clients = len({each.client for each in counted})
        return _Checked(Status.OK, summed_up(model, len(counted), clients), decision.views)
    if decision.status is Status.UNKNOWN:
        return _Checked(Status.UNKNOWN, _too_large(counted, decision, within_s))
    budget = Budget(within_s, MOST_OPERATIONS)
    operations, decision, is_smallest = smallest(counted, reads, model, decision, budget)
    assert decision.contradiction is not None
    return _Checked(
        Status.ILLEGAL,
        explained(decision.contradiction, operations, model, is_smallest, decision.readings),
    )


def _too_large(operations: list[Operation], decision: Decision, within_s: float) -> Explanation:
    if len(operations) > MOST_OPERATIONS:
        why = f"the search takes at most {MOST_OPERATIONS:,}"
    else:
        why = f"the search did not end within {within_s:g} s"
    return Explanation(
        "too large",
        f"It is not known: {len(operations):,} operations of one record, and {why}. "
        "Versions of all writes, fewer operations or more time help.",
    )
