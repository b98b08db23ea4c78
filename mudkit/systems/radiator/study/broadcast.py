"""Propagation to very many clients without a fleet: what goes, when, to how many, and how large it is.

Its tables are made by :class:`~mudkit.systems.radiator.study.tally.Tally`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mudkit.systems.radiator.aggregation.functions import check_join
from mudkit.systems.radiator.aggregation.joining import aggregates
from mudkit.systems.radiator.aggregation.joins import Join, concatenation
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.client_arrays import ClientArrays
from mudkit.systems.radiator.engines.groups import Groups
from mudkit.systems.radiator.engines.literal import ClientLists, Entry
from mudkit.systems.radiator.engines.pending import Batch, Message
from mudkit.systems.radiator.packing import pack

__all__ = ["Aggregate", "broadcast"]


class Aggregate(NamedTuple):
    """Aggregate sent at one moment to its recipients.

    Parameters
    ----------
    gone_us : int
        When it leaves the server.
    batch : tuple of Message
        What it is of.
    context : Context
        What it is.
    size_bytes : int
        As it is sent to one of them: its JSON, compressed or not.
    recipients : list of str
    """

    gone_us: int
    batch: Batch
    context: Context
    size_bytes: int
    recipients: list[str]


def broadcast(
    engine: ClientLists | ClientArrays | Groups,
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
        The messages in the order of their arrival; the moments of arrival never fall.
    join : callable
        What fails to join waits in the engine, and is a problem of the engine's.
    compress : bool
    until_us : int, optional
        Virtual time continues until then after the last message.

    Raises
    ------
    ParameterError
        The join lacks a setting.
    """
    check_join(join)

    def sized(context: Context) -> tuple[Context, int]:
        return context, len(pack(context.describe(), compress))

    def gone(now_us: int, entries: list[Entry]) -> Iterator[Aggregate]:
        for entry in entries:
            for part, (context, size_bytes) in aggregates(engine, entry, now_us, join, sized):
                yield Aggregate(now_us, part.batch, context, size_bytes, part.recipients)

    for message in messages:
        now_us = message.arrived_us
        while engine.due_us < now_us:
            due_us = int(engine.due_us)
            yield from gone(due_us, engine.fire(due_us))
        if entries := engine.take(now_us, message):
            yield from gone(now_us, entries)
    while until_us is not None and engine.due_us <= until_us:
        due_us = int(engine.due_us)
        yield from gone(due_us, engine.fire(due_us))
