"""How a read of one partition is answered from a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mudkit.errors import MudkitError
from mudkit.events import Effect, Send
from mudkit.predicates.exchange import from_json
from mudkit.systems.mud.problems import to_json
from mudkit.systems.mud.tables.replica import TableReplica, claims_of
from mudkit.systems.mud.tables.table import no_such_table

__all__ = ["answered"]


def answered(copy: TableReplica, message: Mapping[str, Any], master: str | None = None) -> Sequence[Effect]:
    """Answer a read of a partition, or pass it on to the master.

    Parameters
    ----------
    copy : TableReplica
    message : mapping
        ``least`` is the entry of the log that the answer must not be older than: the reader has seen it.
    master : str, optional
        The master of a copy that may lag behind; None: this is the master.
    """
    table = copy.tables.get(message["name"])
    if master is not None and (copy.lsn < message["least"] or table is None):
        return (Send(master, message),)
    part = {"kind": "part", "id": message["id"], "partition": message["partition"], "lsn": copy.lsn}
    if table is None or not table.has(message["table"], [message["partition"]]):
        error = to_json(no_such_table(message["name"], copy.tables))
        return (Send(message["reply"], {**part, "error": error}),)
    try:
        table.check_access(claims_of(message["auth"]))  # it may have been closed on the way from the gateway
        predicate = from_json(message["predicate"])
        rows = copy.select(
            table, message["partition"], predicate, message["keys"], message["reader"], message["auth"]
        )
        if message["aggregate"] is not None:
            return (Send(message["reply"], {**part, "state": copy.aggregate(rows, message["aggregate"])}),)
    except MudkitError as error:
        return (Send(message["reply"], {**part, "error": to_json(error)}),)
    return (Send(message["reply"], {**part, "rows": rows}),)
