"""Selection of what a read returns of the records that match: columns, order, and number (Mobius 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import total_ordering
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from mudkit.checks import unusable
from mudkit.errors import ParameterError, did_you_mean
from mudkit.systems.mud.tables.records import is_line
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields

_Version = TypeVar("_Version")
Place: TypeAlias = tuple[bool, int, "float | str | _Descending", str]
"""Place of a record in an order, for comparison; the last item is its key."""


class Selection(Struct, frozen=True, omit_defaults=True):
    """Columns, order and number of the records that a read returns; also a part of messages.

    ``columns`` None: all; ``order`` None: by key; ``limit`` None: all records.
    """

    columns: list[str] | None = None
    order: str | None = None
    is_descending: bool = False
    limit: Annotated[int, Meta(ge=1)] | None = None

    @classmethod
    def parse(cls, columns: Sequence[str] | None, order: str | None, limit: int | None) -> Selection | None:
        """Return the selection of a read's arguments; None: everything, by key.

        Raises
        ------
        ParameterError
            ``columns`` is no sequence of names, or ``order`` not one with ``ASC`` or ``DESC``.
        """
        if columns is None and order is None and limit is None:
            return None
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

        Records are by key, each with its columns; the order is that of :meth:`place_of`.
        """
        keys = sorted(records, key=lambda key: self.place_of(key, records[key][0]))
        return {key: records[key][1] for key in keys[: self.limit]}

    def place_of(self, key: str, record: Fields) -> Place:
        """Return the place of a record in the order.

        Values of one kind are ordered, numbers before texts before booleans; records without the column come
        last, in either direction, and equals by key.
        """
        value = key if self.order in (None, "key") else record.get(self.order or "")
        if isinstance(value, bool):
            kind = 2
        elif isinstance(value, float | int):
            kind = 0
        elif isinstance(value, str):
            kind = 1
        else:
            return True, 0, 0, key
        if not self.is_descending:
            return False, kind, value, key
        return False, -kind, _Descending(value) if isinstance(value, str) else -value, key

    def columns_of(self, record: Fields) -> Fields:
        """Return the columns of a record that a read returns."""
        if self.columns is None:
            return record
        return {name: record[name] for name in self.columns if name in record}

    def with_order_column(self) -> Selection:
        """Return the selection with the column of its order, by which a device joins parts of an answer."""
        if self.columns is None or self.order in (None, "key", *self.columns):
            return self
        return replace(self, columns=[*self.columns, self.order])


@total_ordering
class _Descending:
    """Text that comes before those that are less."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self._text == other._text

    def __lt__(self, other: _Descending) -> bool:
        return other._text < self._text

    def __hash__(self) -> int:
        return hash(self._text)
