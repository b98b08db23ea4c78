"""Answers to reads of one partition from a copy."""

from __future__ import annotations

from collections.abc import Sequence

from mudkit.errors import MudkitError, TableProblem
from mudkit.events import Effect, Send
from mudkit.systems.mud.messages import Part, PartitionRead
from mudkit.systems.mud.problems import encode_error
from mudkit.systems.mud.tables.replica import TableReplica, aggregate, claims_of
from mudkit.systems.mud.tables.table import no_such_table

__all__ = ["answered"]


def answered(
    copy: TableReplica, read: PartitionRead, master: str | None = None, *, is_other_start: bool = False
) -> Sequence[Effect]:
    """Answer a read from a copy; pass it on to the master if the copy is older than the reader has seen.

    ``master`` None: this is the master, which is older only if its store was wiped. ``is_other_start``: the
    copy is of another start of the master than the reader knows.
    """
    table = copy.tables.get(read.name)
    is_behind = copy.lsn < read.least
    if master is not None and (is_behind or is_other_start or table is None):
        return (Send(master, read),)
    try:
        if is_behind:
            raise TableProblem(
                "The store is older than what this client has read.",
                where=f"table {read.name!r}",
                found=f"entry {copy.lsn} of the log",
                expected=f"entry {read.least} or a later one",
                remedy="it was wiped: begin with an empty storage of the device",
            )
        if table is None or not table.has(read.table, [read.partition]):
            raise no_such_table(read.name, copy.tables)
        table.check_access(claims_of(read.auth))  # it may have changed since the gateway checked it
        predicate = None if read.predicate is None else read.predicate.predicate()
        rows = copy.select(table, read.partition, predicate, read.keys, read.reader, read.auth)
        if read.aggregate is None:
            part = Part(id=read.id, partition=read.partition, lsn=copy.lsn, rows=rows)
        else:
            state = aggregate(rows, read.aggregate)
            part = Part(id=read.id, partition=read.partition, lsn=copy.lsn, state=state)
    except MudkitError as error:
        part = Part(id=read.id, partition=read.partition, lsn=copy.lsn, error=encode_error(error))
    return (Send(read.reply, part),)
