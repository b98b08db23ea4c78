"""Histories: the operations of a run, from a lab's table, from JSON, or drawn by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mudkit.consistency.notation import operations_of
from mudkit.consistency.operation import Operation
from mudkit.consistency.recorded import recorded
from mudkit.consistency.written import numbered, text_of
from mudkit.display import Displayed, View
from mudkit.errors import TraceContentError, TraceFormatError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["History"]


_MAX_SHOWN: Final = 24
_MAX_COUNTED: Final = 10_000
"""Operations up to which a display counts clients and records."""


class History(Displayed):
    """Operations of a run, in the order of their invocations.

    Operations with equal times keep the given order.

    Parameters
    ----------
    operations : iterable of Operation

    Attributes
    ----------
    operations : tuple of Operation

    Raises
    ------
    TraceContentError
        Two operations of a client on a record have the same id, an answer precedes its invocation, or a
        version is invalid.

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
        self.operations = tuple(sorted(operations, key=lambda each: each.invoked_us))
        seen: set[tuple[str, int, str]] = set()
        for each in self.operations:
            if each.id in seen:
                raise TraceContentError(
                    "Two operations have one id.",
                    where=each.client,
                    found=f"op_id {each.op_id} again: {each.what}, invoked at {each.invoked_us:,} µs",
                    expected="an op_id of its own for each operation of a client on a record",
                    remedy="number each client's operations; a message that was repeated is one operation",
                )
            seen.add(each.id)
            version = each.content.version
            if version is not None and version < each.is_write:
                raise TraceContentError(
                    "This is no version.",
                    where=f"{each}, op_id {each.op_id}",
                    found=str(version),
                    expected="1 or more of a write, 0 or more of a read",
                )
            if each.answered_us is not None and each.answered_us < each.invoked_us:
                raise TraceContentError(
                    "An operation is answered before it is invoked.",
                    where=f"{each}, op_id {each.op_id}",
                    found=f"answered at {each.answered_us:,} µs, invoked at {each.invoked_us:,} µs",
                    expected="an answer at the time of the invocation or later",
                    remedy="are both times of one clock, and in one time zone?",
                )

    @classmethod
    def parse(cls, text: str) -> History:
        """Parse a history in the notation of :mod:`mudkit.consistency.notation`.

        Parameters
        ----------
        text : str
            One line per client, such as ``ann: w1  r2``; operations further right are invoked later.

        Raises
        ------
        TraceFormatError
            A part cannot be parsed; the error shows where.
        """
        return cls(operations_of(text))

    @classmethod
    def from_table(cls, table: pa.Table | pd.DataFrame) -> History:
        """Build a history from the ``operations`` table of a trace (:data:`mudkit.trace.schema.OPERATIONS`).

        Raises
        ------
        TraceFormatError
            The table lacks a column.
        TraceContentError
            As of the class.
        """
        return cls(recorded(table))

    @classmethod
    def from_json(cls, text: str | bytes) -> History:
        """Parse the result of :meth:`to_json`.

        Raises
        ------
        TraceFormatError
            The text is not such a result.
        TraceContentError
            As of the class.
        """
        try:
            return cls(msgspec.json.decode(text, type=list[Operation]))
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                "This is no history in JSON.",
                found=str(error),
                expected="a list of operations",
                remedy="History.to_json() shows the form",
            ) from error

    def to_json(self) -> str:
        """Return JSON: a list of operations, each an object with the fields of :class:`Operation`."""
        return msgspec.json.encode(self.operations).decode()

    def numbered(self) -> History:
        """Return the history with values 1, 2, … in the order of their writes; labs record hashes only."""
        return History(numbered(self.operations))

    def to_text(self) -> str:
        """Return the text that :meth:`parse` reads; values are numbered, and columns keep order, not times.

        Reads without an answer are omitted: no model depends on them.
        """
        return text_of(self.operations)

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """Clients, in the order of their first operations."""
        return tuple(dict.fromkeys(each.client for each in self.operations))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the records, in the order of their first operations."""
        return tuple(dict.fromkeys(each.key for each in self.operations))

    @cached_property
    def records(self) -> dict[str, History]:
        """History of each record, by key."""
        parts: dict[str, list[Operation]] = {key: [] for key in self.keys}
        for each in self.operations:
            parts[each.key].append(each)
        return {key: History(part) for key, part in parts.items()}

    def without(self, operations: Iterable[Operation]) -> History:
        """Return the history without some operations."""
        gone = {each.id for each in operations}
        return History(each for each in self.operations if each.id not in gone)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table: ``client, what, type, invoked_us, answered_us, outcome``."""
        import pandas as pd

        rows: list[dict[str, Any]] = [
            {
                "client": each.client,
                "what": each.what,
                "type": each.type,
                "invoked_us": each.invoked_us,
                "answered_us": each.answered_us,
                "outcome": each.outcome.value,
            }
            for each in self.operations
        ]
        columns = ["client", "what", "type", "invoked_us", "answered_us", "outcome"]
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
