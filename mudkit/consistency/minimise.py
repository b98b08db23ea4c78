"""Counterexamples made small: what is left after everything that is not needed has been taken out."""

from __future__ import annotations

from collections.abc import Sequence

from mudkit.consistency.deciding import Contradiction, Decision, judge, record_of
from mudkit.consistency.models import Model
from mudkit.consistency.operation import Operation
from mudkit.consistency.reading import INITIAL
from mudkit.consistency.search import Budget
from mudkit.consistency.verdict import Status

__all__ = ["smallest", "without"]


def without(
    operations: Sequence[Operation], gone: Sequence[Operation], reads: frozenset[str | None], model: Model
) -> list[Operation]:
    """Take operations out, and with them those that saw what only they wrote.

    A read without its write is an anomaly of its own; it must not arise from taking the write out.
    """
    before = record_of(operations, reads, model)
    known = {before.operations[place].id for place in before.orphans()}
    out = {each.id for each in gone}
    while True:
        left = [each for each in before.operations if each.id not in out]
        record = record_of(left, reads, model)
        new = {record.operations[place].id for place in record.orphans()} - known
        if not new:
            return left
        out |= new


def smallest(
    operations: Sequence[Operation],
    reads: frozenset[str | None],
    model: Model,
    decision: Decision,
    budget: Budget,
) -> tuple[list[Operation], Decision, bool]:
    """Make an illegal history of a record small.

    Parameters
    ----------
    operations : sequence of Operation
    reads, model
        As it was decided.
    decision : Decision
        The decision on them: that they are illegal.
    budget : Budget

    Returns
    -------
    list of Operation
        Illegal as well; whichever is taken out (:func:`without`), the rest is not known to be illegal.
    Decision
        The decision on these operations.
    bool
        False: the time was over before that.
    """
    left = record_of(operations, reads, model).operations
    core = _core(decision.contradiction)
    if core:
        ids = {each.id for each in core}
        few = without(left, [each for each in left if each.id not in ids], reads, model)
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
    """Give the operations of a cycle and all that they saw: a first guess, near the end already."""
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
            look.extend(avoided for each, avoided in reading.avoids if each == place)
    return [reading.operations[place] for place in sorted(members)]
