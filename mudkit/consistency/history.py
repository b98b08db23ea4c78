"""Histories: the operations of a run, from a lab's table, from JSON, or in text notation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mudkit.checks import check_arguments
from mudkit.consistency.notation import number_values, operations_of, text_of
from mudkit.consistency.operation import Content, Kind, Operation, Outcome
from mudkit.display import Displayed, View
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.schema import OPERATIONS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MAX_SHOWN: Final = 24
_MAX_COUNTED: Final = 10_000
"""Number of operations up to which a display counts clients and records."""


@check_arguments(types=False)
class History(Displayed):
    """Operations of a run, in the order in which they were invoked.

    Operations invoked at the same time keep the given order.

    Parameters
    ----------
    operations : iterable of Operation
        The operations, in any order.

    Attributes
    ----------
    operations : tuple of Operation
        The operations, ordered.

    Raises
    ------
    TraceContentError
        Two operations of a client on a record have the same id, an operation was answered before it was
        invoked, or a version is invalid.

    Examples
    --------
    >>> history = History.parse('''
    ...     ann:  w1        r2
    ...     bob:       w2        r1
    ... ''')
    >>> [str(operation) for operation in history]
    ['ann w(x)1', 'bob w(x)2', 'ann r(x)2', 'bob r(x)1']
    """

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self.operations = tuple(sorted(operations, key=lambda operation: operation.invoked_us))
        seen: set[tuple[str, int, str]] = set()
        for operation in self.operations:
            if operation.id in seen:
                raise TraceContentError(
                    "Two operations have the same id.",
                    where=operation.client,
                    found=f"op_id {operation.op_id} again: {operation.label} at {operation.invoked_us:,} µs",
                    expected="a unique op_id for each operation of a client on a record",
                    remedy="number the operations of each client; a duplicated message is one operation",
                )
            seen.add(operation.id)
            version = operation.content.version
            if version is not None and version < operation.is_write:
                raise TraceContentError(
                    "This is not a version.",
                    where=f"{operation}, op_id {operation.op_id}",
                    found=str(version),
                    expected="1 or more of a write, 0 or more of a read",
                )
            if operation.answered_us is not None and operation.answered_us < operation.invoked_us:
                raise TraceContentError(
                    "An operation is answered before it is invoked.",
                    where=f"{operation}, op_id {operation.op_id}",
                    found=f"answered at {operation.answered_us:,} µs, invoked at {operation.invoked_us:,} µs",
                    expected="an answer at the time of the invocation or later",
                    remedy="are both times of one clock, and in one time zone?",
                )

    @classmethod
    def parse(cls, text: str) -> History:
        """Parse a history in the notation that :mod:`mudkit.consistency.notation` describes.

        Parameters
        ----------
        text : str
            A line for each client, ``ann: w1  r2``; operations further right were invoked later.

        Raises
        ------
        TraceFormatError
            The text is not in the notation; the error shows the place.
        """
        return cls(operations_of(text))

    @classmethod
    def from_table(cls, table: pa.Table | pd.DataFrame) -> History:
        """Build a history from the ``operations`` table of a trace (:data:`mudkit.trace.schema.OPERATIONS`).

        Parameters
        ----------
        table : pyarrow.Table or pandas.DataFrame
            Table of operations.

        Raises
        ------
        TraceFormatError
            A column is missing.
        TraceContentError
            As for the class; also an unknown status.
        """
        return cls(_operations_of_table(table))

    @classmethod
    def from_json(cls, text: str | bytes) -> History:
        """Decode what :meth:`to_json` returned.

        Parameters
        ----------
        text : str or bytes
            JSON text.

        Raises
        ------
        TraceFormatError
            The text is not a history in JSON.
        TraceContentError
            As for the class.
        """
        try:
            return cls(msgspec.json.decode(text, type=list[Operation]))
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                "This is not a history in JSON.",
                found=str(error),
                expected="a list of operations",
                remedy="History.to_json() shows the form",
            ) from error

    def to_json(self) -> str:
        """Return the history as JSON: a list of objects with the fields of :class:`Operation`."""
        return msgspec.json.encode(self.operations).decode()

    def numbered(self) -> History:
        """Return the history with values 1, 2, … in the order of their writes; a lab records only hashes."""
        return History(number_values(self.operations))

    def to_text(self) -> str:
        """Return the history in the notation of :meth:`parse`; columns show the order of events.

        Values are numbered. Reads without an answer are left out; they affect no model.
        """
        return text_of(self.operations)

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """Clients, in the order of their first operations."""
        return tuple(dict.fromkeys(operation.client for operation in self.operations))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the records, in the order of their first operations."""
        return tuple(dict.fromkeys(operation.key for operation in self.operations))

    @cached_property
    def records(self) -> dict[str, History]:
        """History of each record."""
        parts: dict[str, list[Operation]] = {key: [] for key in self.keys}
        for operation in self.operations:
            parts[operation.key].append(operation)
        return {key: History(part) for key, part in parts.items()}

    def without(self, operations: Iterable[Operation]) -> History:
        """Return the history without some operations.

        Parameters
        ----------
        operations : iterable of Operation
            Operations to remove.
        """
        removed = {operation.id for operation in operations}
        return History(operation for operation in self.operations if operation.id not in removed)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with the columns ``client, label, type, invoked_us, answered_us, outcome``."""
        import pandas as pd

        rows: list[dict[str, Any]] = [
            {
                "client": operation.client,
                "label": operation.label,
                "type": operation.type,
                "invoked_us": operation.invoked_us,
                "answered_us": operation.answered_us,
                "outcome": operation.outcome.value,
            }
            for operation in self.operations
        ]
        columns = ["client", "label", "type", "invoked_us", "answered_us", "outcome"]
        return pd.DataFrame(rows, columns=columns).astype({"answered_us": "Int64"})

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.operations == other.operations

    def __hash__(self) -> int:
        return hash(self.operations)

    def _view(self) -> View:
        shown = self.operations[:_MAX_SHOWN]
        notes = []
        if len(self) > len(shown):
            notes.append(f"The first {len(shown)} of {len(self):,} operations. figures.history() draws them.")
        facts: dict[str, Any] = {"operations": len(self)}
        if len(self) <= _MAX_COUNTED:
            facts |= {"clients": len(self.clients), "records": len(self.keys)}
        return View("History", facts, (), notes, text_of(shown) if shown else "")


_KINDS: Final = {"read": Kind.READ, "write": Kind.WRITE, "delete": Kind.WRITE, "update": Kind.WRITE}
_OUTCOMES: Final = {"ok": Outcome.OK, "open": Outcome.PENDING, "failed": Outcome.FAILED}


def _operations_of_table(table: pa.Table | pd.DataFrame) -> Iterator[Operation]:
    """Yield the reads and writes of records in a table of operations.

    Rows of other operations and rows without a key are left out. If there are several tables, the key of a
    record is ``table/key``. A value is known by its ``value_hash``; a read with neither hash nor version
    found no record. A failed conditional write that has a version is a conflict, and found that version. A
    read of several records is one operation for each. An update is a write of the record that came of it.
    """
    rows = _without_unknown(list(_rows(table)))
    several = len({row["table"] for row in rows}) > 1
    for row in rows:
        kind, status, version, value = _KINDS[row["op"]], row["status"], row["version"], row["value_hash"]
        if status not in _OUTCOMES:
            raise TraceContentError(
                "An operation has an unknown status.",
                where=f"{row['client']}, op_id {row['op_id']}",
                found=repr(status),
                expected=", ".join(_OUTCOMES),
            )
        outcome, content = _OUTCOMES[status], None
        if outcome is Outcome.PENDING:
            version = None  # never reported; it may be that of a conflict
        if outcome is Outcome.FAILED and row["type"] == "conditional" and version is not None:
            outcome, content, version = Outcome.CONFLICT, Content(None, version), None
        if row["op"] in ("write", "update") and value is None:
            value = f"{row['client']}#{row['op_id']}"  # unknown, but different from all others
        yield Operation(
            client=row["client"],
            op_id=row["op_id"],
            kind=kind,
            key=f"{row['table']}/{row['key']}" if several else row["key"],
            invoked_us=row["invoked"],
            answered_us=row["responded"],
            content=Content(value, version),
            type=row["type"],
            outcome=outcome,
            actual=content,
        )


def _without_unknown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the reads that may be of an update without an answer, whose value is unknown.

    Such a read has a version that no answered write of the record has, and no value of an open one.
    """
    open_updates = {
        (row["table"], row["key"]) for row in rows if row["op"] == "update" and row["status"] == "open"
    }
    if not open_updates:
        return rows
    known: set[tuple[Any, ...]] = set()
    for row in rows:
        if row["op"] != "read":
            seen = row["version"] if row["status"] == "ok" else row["value_hash"]
            known.add((row["table"], row["key"], seen))
    return [
        row
        for row in rows
        if row["op"] != "read"
        or row["version"] is None
        or (row["table"], row["key"]) not in open_updates
        or not known.isdisjoint((row["table"], row["key"], row[name]) for name in ("version", "value_hash"))
    ]


def _rows(table: pa.Table | pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of reads and writes with a key as dicts, times in microseconds.

    Raises TraceFormatError for anything but a table of operations.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table, preserve_index=False)
    if not isinstance(table, pa.Table):
        raise TraceFormatError(
            "This is not a table of operations.",
            found=type(table).__name__,
            expected="an Arrow table or a DataFrame",
            remedy="lab.history(), or History.parse(text)",
        )
    missing = [name for name in OPERATIONS.names if name not in table.column_names]
    if missing:
        raise TraceFormatError(
            "This is not a table of operations.",
            found=f"no column {', '.join(missing)}",
            expected=", ".join(OPERATIONS.names),
            remedy="lab.history(), or the operations of a trace folder",
        )
    columns = []
    for name in OPERATIONS.names:
        kind = OPERATIONS.field(name).type
        column = table[name].cast(kind)
        columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column).to_pylist())
    for values in zip(*columns, strict=True):
        row = dict(zip(OPERATIONS.names, values, strict=True))
        if row["op"] in _KINDS and row["key"] is not None:
            yield row
