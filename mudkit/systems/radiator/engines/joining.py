"""Joins applied to batches: checks of the join, and recovery from contexts that it cannot take.

A batch that cannot be joined returns to its queue and is joined again with later messages. Once its oldest
message has waited for the maximum retention, each context that the join takes neither alone nor with others
is dropped, and the largest part that can be joined, from the oldest message on, is sent; the rest waits for
the next attempt. A receiver with a threshold of people gets no part of fewer people. If nothing can be
joined, the whole batch keeps waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

from mudkit.checks import number, whole_number
from mudkit.errors import ParameterError, PropagationProblem, brief
from mudkit.systems.radiator import joins
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.client_arrays import ClientArrays
from mudkit.systems.radiator.engines.groups import Groups
from mudkit.systems.radiator.engines.literal import ClientLists, Entry
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.functions import build_problem, check_function, function_name
from mudkit.wire import Value

RETRY_US: Final = 60_000_000
"""Delay before a failed join is tried again if no message arrives earlier."""
_REMEDY_WAIT: Final = "its messages wait, and are joined again with whatever comes next"
_REMEDY_DROP: Final = "the context has waited for max_retention_s and is dropped; what waited with it goes on"
_MAX_COUNT: Final = 1 << 60
_NEEDS: Final = ((joins.people_count, "k=5"), (joins.top_k, 'by="speed_kmh"'))
"""Joins with a required setting, and an example of it."""

Engine: TypeAlias = ClientLists | ClientArrays | Groups
T = TypeVar("T")


def check_join(join: joins.Join) -> None:
    """Raise a ParameterError if a join lacks a setting, or if one of mudkit has a wrong one."""
    settings = getattr(join, "keywords", {})
    function = getattr(join, "func", join)
    needs = next((example for needing, example in _NEEDS if needing is function), "")
    name = needs.split("=")[0]
    if needs and name not in settings:
        call = f"partial(joins.{function_name(function)}, {needs})"
        raise ParameterError(
            f"The join {function_name(function)} needs {name}.",
            where="join",
            found=f"no {name}",
            expected=call,
            remedy=f"write from functools import partial, and join={call}",
        )
    check_function("join", join, ["contexts"])
    if getattr(function, "__module__", None) == joins.__name__:
        for setting, value in settings.items():
            if setting in _SETTINGS:
                _SETTINGS[setting](f"join, {setting}", value, function)


def _check_names(where: str, given: Value, function: object) -> None:
    """Raise a ParameterError if a setting names no attribute; ``of`` of :func:`joins.mean` names several."""
    is_several = function is joins.mean and where.endswith(" of")
    names = given if is_several and isinstance(given, list | tuple | set | frozenset) else [given]
    is_none = given is None and function is joins.people_count
    if not is_none and (
        (is_several and isinstance(given, str)) or not all(isinstance(name, str) for name in names)
    ):
        raise ParameterError(
            "This names no attribute.",
            where=where,
            found=brief(given, 120),
            expected='names such as ("speed_kmh",)' if is_several else "a name such as 'loc'",
        )


_SETTINGS: Final[dict[str, Callable[[str, Value, object], float | None]]] = {
    "k": lambda where, given, _: whole_number(where, given, 1, _MAX_COUNT),
    "least": lambda where, given, _: whole_number(where, given, 1, _MAX_COUNT),
    "digits": lambda where, given, _: whole_number(where, given, 0, 15),
    "km": lambda where, given, _: number(where, given, 1e-6, 20_000.0),
    "loc": _check_names,
    "of": _check_names,
    "by": _check_names,
}


def join_entry(
    engine: Engine, entry: Entry, now_us: int, join: joins.Join, form: Callable[[Context], T]
) -> list[tuple[Entry, T]]:
    """Join an entry and return what can be sent of it, with what ``form`` makes of the aggregate.

    Whatever is not sent returns to the engine, which also records the problems.
    """

    def build(batch: Sequence[Message]) -> T:
        """Join a batch, and return the aggregate in the requested form; raise what the join raises."""
        aggregate = join([message.context for message in batch])
        if type(aggregate) is not Context:
            raise ParameterError("It gave no context.", found=brief(aggregate, 200), expected="a Context")
        return form(aggregate)

    try:
        return [(entry, build(entry.batch))]
    except Exception as error:
        engine.problems.add(_build_join_problem(error, join, entry, _REMEDY_WAIT))
    overdue_us = entry.batch[0].arrived_us + engine.retention_us
    if now_us < overdue_us:
        engine.put_back(entry, min(now_us + RETRY_US, overdue_us))
        return []
    part, rest, refused = _split_batch(entry.batch, build)
    if not part:  # the join fails whatever the contexts
        engine.put_back(entry, now_us + RETRY_US)
        return []
    for message, problem in refused:
        engine.problems.add(
            _build_join_problem(problem, join, Entry((message,), entry.recipients), _REMEDY_DROP)
        )
    engine.drop(len(refused) * len(entry.recipients))
    people = {name for message in part for name in message.context.people}
    ready = [client for client in entry.recipients if len(people) >= _people_threshold(engine, client, part)]
    waiting = [client for client in entry.recipients if client not in set(ready)]
    for messages, recipients in ((rest, entry.recipients), (part, waiting)):
        if messages and recipients:
            engine.put_back(Entry(tuple(messages), recipients), now_us + RETRY_US)
    return [(Entry(tuple(part), ready), build(part))] if ready else []


def _split_batch(
    batch: Sequence[Message], build: Callable[[Sequence[Message]], T]
) -> tuple[list[Message], list[Message], list[tuple[Message, Exception]]]:
    """Split a batch into the part to send, the rest that can be joined later, and the refused messages."""

    def is_joinable(messages: Sequence[Message]) -> bool:
        """Return whether the join takes these messages together."""
        try:
            build(messages)
        except Exception:
            return False
        return True

    def joinable(kept: list[Message], messages: Sequence[Message]) -> list[Message]:
        """Return the messages, oldest first, that can be joined with the kept ones (by bisection)."""
        if is_joinable([*kept, *messages]):
            return list(messages)
        if len(messages) == 1:
            return []
        half = len(messages) // 2
        first = joinable(kept, messages[:half])
        return [*first, *joinable([*kept, *first], messages[half:])]

    errors: dict[int, Exception] = {}
    for message in batch:
        try:
            build([message])
        except Exception as error:
            errors[message.number] = error
    alone = [message for message in batch if message.number not in errors]
    part = joinable([], alone or batch)  # a join may need several contexts
    for message in batch:
        if message.number in errors and message not in part and part and is_joinable([*part, message]):
            part.append(message)
    taken = {message.number for message in part}
    rest = [message for message in alone if message.number not in taken]
    refused = [
        (message, errors[message.number])
        for message in batch
        if message.number in errors and message.number not in taken
    ]
    return sorted(part, key=lambda message: message.number), rest, refused


def _people_threshold(engine: Engine, client: str, batch: Sequence[Message]) -> int:
    """Return the highest threshold of people that a receiver has for the senders of a batch.

    It is 0 if there is none; a function that fails ends the search.
    """
    highest = 0
    function, contexts = engine.function, engine.contexts
    senders = {message.sender: message for message in batch}
    with suppress(Exception):  # a failing function is recorded as a problem elsewhere
        view = function.view(contexts[client])
        for message in senders.values():
            kind, value = function.decide(contexts.of_sender(message), view)
            highest = max(highest, value if kind == "people" else 0)
    return highest


def _build_join_problem(error: Exception, join: joins.Join, entry: Entry, remedy: str) -> PropagationProblem:
    """Return the problem that a join has failed, with the senders and receivers."""
    function = getattr(join, "func", join)
    name = getattr(function, "__qualname__", type(function).__name__)
    senders = ", ".join(dict.fromkeys(repr(message.sender) for message in entry.batch))
    receivers = ", ".join(map(repr, entry.recipients[:5])) + (", …" if len(entry.recipients) > 5 else "")
    return build_problem(
        f"The join {name}",
        error,
        where=f"{name}, sender {senders}, receiver {receivers}",
        expected="a Context",
        remedy=remedy,
    )
