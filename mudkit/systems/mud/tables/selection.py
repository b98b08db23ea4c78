"""Selection of what a read returns of the records that match: columns, order, and number (Mobius 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from mudkit.checks import unusable
from mudkit.errors import ParameterError, did_you_mean
from mudkit.systems.mud.tables.records import is_line
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields, Value

_Version = TypeVar("_Version")


class Selection(Struct, frozen=True, omit_defaults=True):
    """Columns, order and number of the records that a read returns; also a part of messages.

    ``columns`` None: all; ``order`` None: by key; ``limit`` None: all records.
    """

    columns: list[str] | None = None
    order: str | None = None
    is_descending: bool = False
    limit: int | None = None

    @classmethod
    def parse(cls, columns: Sequence[str] | None, order: str | None, limit: int | None) -> Selection | None:
        """Return the selection of a read's arguments; None: everything, by key.

        Raises
        ------
        ParameterError
            ``columns`` is no sequence of names, or ``order`` not one with ``ASC`` or ``DESC``.
        """
        if columns is not None and (
            isinstance(columns, str) or not columns or not all(map(is_line, columns))
        ):
            raise unusable("columns", columns, "a list of columns, such as ['topic', 'ts']")
        name, is_descending = order, False
        if order is not None:
            name, _, direction = order.strip().partition(" ")
            if not name or direction.strip().upper() not in ("", "ASC", "DESC"):
                raise unusable("order", order, "a column, such as 'ts' or 'ts DESC'")
            is_descending = direction.strip().upper() == "DESC"
        if columns is None and order is None and limit is None:
            return None
        return cls(None if columns is None else list(dict.fromkeys(columns)), name, is_descending, limit)

    def check_columns(self, table: Table) -> None:
        """Raise ParameterError for a column that the schema of a table does not have."""
        if table.schema is None:
            return
        known = {"key", *table.schema, *table.removed}
        for name in (*(self.columns or ()), *([] if self.order is None else [self.order])):
            if name not in known:
                raise ParameterError(
                    "The table has no such column.",
                    where=f"table {table.name!r}",
                    found=repr(name),
                    expected=", ".join(table.schema),
                    remedy=did_you_mean(name, known),
                )

    def cut(self, records: Mapping[str, tuple[Fields, _Version]]) -> dict[str, _Version]:
        """Return the versions of the records that a read returns, by key, in its order.

        Records are by key, each with its columns. Values of one kind are ordered, numbers before texts before
        booleans; records without the column come last, in either direction, and equals by key.
        """
        keys = sorted(records)
        if self.order is not None:
            places = {key: _place_of(self._value_of(key, records[key][0])) for key in keys}
            present = [key for key in keys if places[key] is not None]
            present.sort(key=lambda key: places[key] or (), reverse=self.is_descending)
            keys = present + [key for key in keys if places[key] is None]
        return {key: records[key][1] for key in keys[: self.limit]}

    def columns_of(self, record: Fields) -> Fields:
        """Return the columns of a record that a read returns."""
        if self.columns is None:
            return record
        return {name: record[name] for name in self.columns if name in record}

    def _value_of(self, key: str, record: Fields) -> Value:
        """Return the value by which a record is ordered."""
        return key if self.order == "key" else record.get(self.order or "")


def _place_of(value: Value) -> tuple[int, float | str | bool] | None:
    """Return the place of a value in the order; None: after all others."""
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, float | int):
        return 0, value
    return (1, value) if isinstance(value, str) else None
