"""Propagation to many clients without a fleet; :class:`~mudkit.systems.radiator.Tally` makes tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mudkit.checks import check_arguments
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.joining import Engine, check_join, join_entry
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Batch, Message
from mudkit.systems.radiator.joins import Join, concatenation
from mudkit.systems.radiator.messages import pack


class Aggregate(NamedTuple):
    """Aggregate sent at one moment to its recipients.

    Parameters
    ----------
    sent_us : int
        Time at which it leaves the server, µs.
    batch : tuple of Message
        Its messages, oldest first.
    context : Context
    size_bytes : int
        Size of the JSON sent to one recipient, compressed or not.
    recipients : list of str
        Client ids.
    """

    sent_us: int
    batch: Batch
    context: Context
    size_bytes: int
    recipients: list[str]


@check_arguments
def broadcast(
    engine: Engine,
    messages: Iterable[Message],
    join: Join = concatenation,
    *,
    compress: bool = True,
    until_us: int | None = None,
) -> Iterator[Aggregate]:
    """Run messages through an engine and yield the aggregates; only pending messages are kept.

    Parameters
    ----------
    engine : ClientLists, ClientArrays or Groups
        The engine, with its clients registered.
    messages : iterable of Message
        Messages in order of arrival; arrival times must not decrease.
    join : callable
        Batches that it cannot join return to the engine, which records the problem.
    compress : bool
        Whether sizes are of gzip-compressed JSON.
    until_us : int, optional
        Time until which the run continues after the last message, µs; None: it ends there.

    Raises
    ------
    ParameterError
        The join lacks a setting.
    """
    check_join(join)

    def measure(context: Context) -> tuple[Context, int]:
        """Return a context and its size when encoded."""
        return context, len(pack(context.to_dict(), compress))

    def join_entries(now_us: int, entries: list[Entry]) -> Iterator[Aggregate]:
        """Yield the aggregates of released entries."""
        for entry in entries:
            for part, (context, size_bytes) in join_entry(engine, entry, now_us, join, measure):
                yield Aggregate(now_us, part.batch, context, size_bytes, part.recipients)

    for message in messages:
        now_us = message.arrived_us
        while engine.due_us < now_us:
            due_us = int(engine.due_us)
            yield from join_entries(due_us, engine.fire(due_us))
        if entries := engine.take(now_us, message):
            yield from join_entries(now_us, entries)
    while until_us is not None and engine.due_us <= until_us:
        due_us = int(engine.due_us)
        yield from join_entries(due_us, engine.fire(due_us))
