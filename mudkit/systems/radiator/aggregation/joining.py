"""Applying a join to what goes, and saying for whom it failed."""

from __future__ import annotations

from typing import Any

from mudkit.errors import ParameterError, PropagationProblem
from mudkit.systems.radiator.aggregation.joins import Join
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.messages import ContextFields
from mudkit.systems.radiator.packing import check_size, pack
from mudkit.systems.radiator.problems import Problems, failure

__all__ = ["aggregate_of", "join_problem", "joined"]


def joined(join: Join, entry: Entry) -> Context:
    """Join the messages of an entry.

    Raises
    ------
    ParameterError
        The join gave something else than a context.
    Exception
        What it raises.
    """
    given: Any = join([message.context for message in entry.batch])
    if type(given) is not Context:
        raise ParameterError("It gave no context.", found=repr(given)[:200], expected="a Context")
    return given


def join_problem(error: Exception, join: Join, entry: Entry) -> PropagationProblem:
    """Say that a join failed, of whose messages and for whom."""
    function: Any = getattr(join, "func", join)
    name = getattr(function, "__qualname__", type(function).__name__)
    senders = ", ".join(dict.fromkeys(repr(message.sender) for message in entry.batch))
    receivers = ", ".join(map(repr, entry.recipients[:5])) + (", …" if len(entry.recipients) > 5 else "")
    return failure(
        f"The join {name}",
        error,
        where=f"{name}, sender {senders}, receiver {receivers}",
        expected="a Context",
        remedy="its messages wait, and are joined again with whatever comes next",
    )


def aggregate_of(join: Join, entry: Entry, problems: Problems) -> ContextFields | None:
    """Give the aggregate of an entry as it is sent, None where that fails.

    Parameters
    ----------
    join : callable
        The join function.
    entry : Entry
        What is joined.
    problems : Problems
        Where a failure is noted.
    """
    try:
        fields = ContextFields.of(joined(join, entry))
        check_size("context", pack(fields, compress=False))
    except Exception as error:
        problems.add(join_problem(error, join, entry))
        return None
    return fields
