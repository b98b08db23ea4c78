"""Verdicts: the result of a check, with an explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mudkit.checks import check_arguments
from mudkit.consistency.history import History
from mudkit.consistency.operation import Operation
from mudkit.display import Displayed, Event, View, first_rows, lanes

_MAX_DRAWN: Final = 12
"""Maximum number of operations of a contradiction that a display draws."""


class Status(StrEnum):
    """Result of checking a history against a model."""

    OK = "OK"
    """The history satisfies the model; for models with views, they were found."""
    ILLEGAL = "ILLEGAL"
    """The history violates the model; the explanation says why."""
    UNKNOWN = "UNKNOWN"
    """Not decided; the explanation says why."""


@check_arguments(types=False)
@dataclass(frozen=True)
class Step:
    """Order of two operations that every view must keep.

    Parameters
    ----------
    first, then : Operation
        The operations, in this order.
    why : str
        Reason in words, to be read between the two: ``was seen by``.
    """

    first: Operation
    then: Operation
    why: str

    def __str__(self) -> str:
        return f"{self.first} {self.why} {self.then}"


@check_arguments(types=False)
@dataclass(frozen=True)
class Explanation:
    """Reason of a verdict.

    Parameters
    ----------
    kind : str
        ``cycle``, ``no order``, ``no views``, ``read without its write`` and other anomalies; ``nothing``,
        ``too large``, ``no read promises it``; ``views`` or ``write order`` for a legal history.
    text : str
        One or two sentences.
    operations : tuple of Operation
        Smallest contradiction that was found: a history of only these operations is illegal.
    steps : tuple of Step
        Steps of a cycle; the last leads back to the first.
    is_smallest : bool
        Whether removing any of ``operations``, with the operations that saw it, makes the history legal.
        False: time ran out before this was known.
    """

    kind: str
    text: str
    operations: tuple[Operation, ...] = ()
    steps: tuple[Step, ...] = ()
    is_smallest: bool = True

    def __str__(self) -> str:
        return self.text


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """Result of a check, with the explanation.

    Parameters
    ----------
    status : Status
        Result.
    model : str
        Name of the model.
    key : str or None
        Key of the record that the explanation is about; ``None``: it is about all records, or about none.
    explanation : Explanation
        Reason of the result.
    history : History
        History that was checked.
    views : mapping of str to mapping of str to tuple of Operation
        For each record that is OK, the view of each client; empty for session guarantees.
    """

    status: Status
    model: str
    key: str | None
    explanation: Explanation
    history: History
    views: Mapping[str, Mapping[str, tuple[Operation, ...]]] = field(default_factory=dict)

    def __str__(self) -> str:
        record = "" if self.key is None else f", record {self.key}"
        return f"{self.status} ({self.model}{record}): {self.explanation}"

    def _view(self) -> View:
        explanation = self.explanation
        facts = {"": str(self.status), "model": self.model, "record": self.key, "why": explanation.kind}
        steps = ((str(step.first), step.why, str(step.then)) for step in explanation.steps)
        return View(
            "Verdict",
            facts,
            [first_rows(("first", "why", "then"), steps, len(explanation.steps))],
            [explanation.text],
            picture=_drawn(explanation),
        )


def _drawn(explanation: Explanation) -> str:
    """Return a picture of a small contradiction: its operations on lanes, its steps as arrows."""
    operations = explanation.operations[:_MAX_DRAWN]
    ends = [
        at
        for operation in operations
        for at in (operation.invoked_us, operation.answered_us)
        if at is not None
    ]
    times = sorted(set(ends))
    column = {at: place for place, at in enumerate(times)}
    if not operations or len(explanation.operations) > _MAX_DRAWN:
        return ""
    events = [
        Event(
            operation.client,
            operation.label,
            column[operation.invoked_us],
            len(times) - 1 if operation.answered_us is None else column[operation.answered_us],
            is_open=operation.answered_us is None,
        )
        for operation in operations
    ]
    place = {operation.id: number for number, operation in enumerate(operations)}
    arrows = [
        (place[step.first.id], place[step.then.id])
        for step in explanation.steps
        if step.first.id in place and step.then.id in place and step.first.id != step.then.id
    ]
    return lanes(events, arrows, f"The smallest contradiction: {', '.join(map(str, operations))}")
