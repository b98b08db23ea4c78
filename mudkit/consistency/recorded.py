"""Operations out of a trace's table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mudkit.consistency.operation import Content, Kind, Operation, Outcome
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.schema import OPERATIONS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["recorded"]

_KINDS: Final = {"read": Kind.READ, "write": Kind.WRITE, "delete": Kind.WRITE}
_OUTCOMES: Final = {"ok": Outcome.OK, "open": Outcome.PENDING, "failed": Outcome.FAILED}


def recorded(table: pa.Table | pd.DataFrame) -> Iterator[Operation]:
    """Give the reads and writes of records in a table of operations.

    Rows of other operations and rows without a key concern no record and are left out. Where several tables
    occur, a record is called ``table/key``. A value is known by its ``value_hash``; a read without one and
    without a version found no record. A failed conditional write that has a version is a conflict, and has
    found that version. A read of several records is an operation of each.

    Raises
    ------
    TraceFormatError
        A column is missing.
    TraceContentError
        A status is unknown.
    """
    rows = list(_rows(table))
    several = len({row["table"] for row in rows}) > 1
    for row in rows:
        kind, status, version, value = _KINDS[row["op"]], row["status"], row["version"], row["value_hash"]
        if status not in _OUTCOMES:
            raise TraceContentError(
                "An operation has a status that is unknown.",
                where=f"{row['client']}, op_id {row['op_id']}",
                found=repr(status),
                expected=", ".join(_OUTCOMES),
            )
        outcome, content = _OUTCOMES[status], None
        if outcome is Outcome.PENDING:
            version = None  # nobody was told; it may be that of a conflict
        if outcome is Outcome.FAILED and row["type"] == "conditional" and version is not None:
            outcome, content, version = Outcome.CONFLICT, Content(None, version), None
        if row["op"] == "write" and value is None:
            value = f"{row['client']}#{row['op_id']}"  # not written down, and nobody else's
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
            found=content,
        )


def _rows(table: pa.Table | pd.DataFrame) -> Iterator[dict[str, Any]]:
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table, preserve_index=False)
    if not isinstance(table, pa.Table):
        raise TraceFormatError(
            "This is no table of operations.",
            found=type(table).__name__,
            expected="an Arrow table or a DataFrame",
            remedy="lab.history(), or History.parse(text)",
        )
    missing = [name for name in OPERATIONS.names if name not in table.column_names]
    if missing:
        raise TraceFormatError(
            "This is no table of operations.",
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
