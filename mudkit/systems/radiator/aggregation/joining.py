"""Applying a join to what goes, and freeing what was batched with a context that the join cannot take.

A batch that cannot be joined goes back to where it waited, and is joined again with what comes next. Once its
oldest message has waited for the retention, a context that the join takes neither alone nor with others is
dropped, and the largest part from the oldest message on that can be joined is let go; what is left waits for
the next attempt. A receiver whose threshold is of people gets no part with fewer people. Where nothing can be
joined, all of it keeps waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from mudkit.errors import ParameterError, PropagationProblem, brief
from mudkit.systems.radiator.aggregation.joins import Join
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.client_arrays import ClientArrays
from mudkit.systems.radiator.engines.groups import Groups
from mudkit.systems.radiator.engines.literal import ClientLists, Entry
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.problems import failure

__all__ = ["RETRY_US", "Engine", "aggregates", "joined"]

RETRY_US: Final = 60_000_000
"""Delay after which a join that failed is tried again, if nothing comes before."""
_WAIT: Final = "its messages wait, and are joined again with whatever comes next"
_DROP: Final = "the context has waited for max_retention_s and is dropped; what waited with it goes on"

Engine = ClientLists | ClientArrays | Groups
T = TypeVar("T")


def joined(join: Join, entry: Entry) -> Context:
    """Join the messages of an entry.

    Raises
    ------
    ParameterError
        The join gave something else than a context.
    Exception
        What it raises.
    """
    given = join([message.context for message in entry.batch])
    if type(given) is not Context:
        raise ParameterError("It gave no context.", found=brief(given, 200), expected="a Context")
    return given


def aggregates(
    engine: Engine, entry: Entry, now_us: int, join: Join, form: Callable[[Context], T]
) -> list[tuple[Entry, T]]:
    """Join an entry, and return what goes: the entry, a part of it, or nothing.

    Parameters
    ----------
    engine : ClientLists, ClientArrays or Groups
        It takes back what does not go, and keeps the problems.
    entry : Entry
    now_us : int
    join : callable
    form : callable
        What is made of the aggregate; what it cannot take cannot go.
    """

    def formed(batch: Sequence[Message]) -> T:
        return form(joined(join, Entry(tuple(batch), entry.recipients)))

    try:
        return [(entry, formed(entry.batch))]
    except Exception as error:
        engine.problems.add(_problem(error, join, entry, _WAIT))
    overdue_us = entry.batch[0].arrived_us + engine.retention_us
    if now_us < overdue_us:
        engine.put_back(entry, min(now_us + RETRY_US, overdue_us))
        return []
    part, rest, refused = _split(entry.batch, formed)
    if not part:  # nothing can be joined: it is the join that fails, whatever the contexts
        engine.put_back(entry, now_us + RETRY_US)
        return []
    for message, problem in refused:
        engine.problems.add(_problem(problem, join, Entry((message,), entry.recipients), _DROP))
    engine.drop(len(refused) * len(entry.recipients))
    people = {name for message in part for name in message.context.people}
    free = [each for each in entry.recipients if len(people) >= _people_wanted(engine, each, part)]
    held = [each for each in entry.recipients if each not in set(free)]
    for messages, recipients in ((rest, entry.recipients), (part, held)):
        if messages and recipients:
            engine.put_back(Entry(tuple(messages), recipients), now_us + RETRY_US)
    return [(Entry(tuple(part), free), formed(part))] if free else []


def _split(
    batch: Sequence[Message], formed: Callable[[Sequence[Message]], T]
) -> tuple[list[Message], list[Message], list[tuple[Message, Exception]]]:
    """Split a batch into the part that goes, the rest that can be joined, and what cannot be joined."""

    def takes(messages: Sequence[Message]) -> bool:
        try:
            formed(messages)
        except Exception:
            return False
        return True

    def with_those(kept: list[Message], messages: Sequence[Message]) -> list[Message]:
        """Return the messages, from the first on, that can be joined with those that are kept."""
        if takes([*kept, *messages]):
            return list(messages)
        if len(messages) == 1:
            return []
        half = len(messages) // 2
        first = with_those(kept, messages[:half])
        return [*first, *with_those([*kept, *first], messages[half:])]

    errors: dict[int, Exception] = {}
    for message in batch:
        try:
            formed([message])
        except Exception as error:
            errors[message.number] = error
    alone = [message for message in batch if message.number not in errors]
    part = with_those([], alone or batch)  # a join may need several contexts
    for message in batch:
        if message.number in errors and message not in part and part and takes([*part, message]):
            part.append(message)
    taken = {message.number for message in part}
    rest = [message for message in alone if message.number not in taken]
    refused = [
        (message, errors[message.number])
        for message in batch
        if message.number in errors and message.number not in taken
    ]
    return sorted(part, key=lambda message: message.number), rest, refused


def _people_wanted(engine: Engine, client: str, batch: Sequence[Message]) -> int:
    """Return the most people that a receiver's thresholds want in a batch."""
    wanted = 0
    function, contexts = engine.function, engine.contexts
    senders = {message.sender: message for message in batch}
    with suppress(Exception):  # a threshold that is not known is a problem of its own
        view = function.view(contexts[client])
        for message in senders.values():
            kind, value = function.decide(contexts.of_sender(message), view)
            wanted = max(wanted, value if kind == "people" else 0)
    return wanted


def _problem(error: Exception, join: Join, entry: Entry, remedy: str) -> PropagationProblem:
    """Return the problem that a join failed, with the senders and receivers."""
    function = getattr(join, "func", join)
    name = getattr(function, "__qualname__", type(function).__name__)
    senders = ", ".join(dict.fromkeys(repr(message.sender) for message in entry.batch))
    receivers = ", ".join(map(repr, entry.recipients[:5])) + (", …" if len(entry.recipients) > 5 else "")
    return failure(
        f"The join {name}",
        error,
        where=f"{name}, sender {senders}, receiver {receivers}",
        expected="a Context",
        remedy=remedy,
    )
