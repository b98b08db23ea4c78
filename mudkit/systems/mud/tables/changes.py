"""Changes of columns: writes that say what becomes of a record instead of what the record is.

The store applies them to the record that it has, so that two clients who change one record at the same time
do not overwrite each other. NULL, and a column that a record does not have, count as 0 and as an empty list.

Two changes commute, and give the same record in either order, if they concern different columns, or are of
one kind on a column: increments (exactly so for whole numbers), unions, or removals (as sets: a list keeps
the order in which its items came). ``merge`` replaces values: of one column the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final, TypeGuard

import msgspec
from msgspec import Struct, field

from mudkit.checks import unusable
from mudkit.errors import MudkitError, ParameterError, TableProblem
from mudkit.systems.mud.tables.records import check_record, is_line, plain
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields, Value

_LIMIT: Final = 1 << 63
"""Whole numbers are smaller than this."""
_identity = msgspec.json.Encoder(order="sorted").encode
"""Identity of an item of a list: its JSON."""


class Changes(Struct, frozen=True, omit_defaults=True):
    """Changes of columns of one record; also a part of messages and stores.

    ``merge`` has new values, ``add`` what is added to numbers, ``remove`` and ``union`` the items that are
    removed from lists and then added to them. No column is in two of them but ``remove`` and ``union``.
    ``create``: a record that does not exist is created from them.
    """

    merge: Fields = field(default_factory=dict)
    add: dict[str, int | float] = field(default_factory=dict)
    remove: dict[str, list[Value]] = field(default_factory=dict)
    union: dict[str, list[Value]] = field(default_factory=dict)
    create: bool = False


def merge_of(columns: Value, *, create: bool) -> Changes:
    """Return the changes that merge columns into a record; raise ParameterError if they are not usable."""
    merge = check_record(columns)
    if not merge:
        raise unusable("columns", columns, "at least one column")
    return Changes(merge=merge, create=create)


def add_of(column: Value, by: Value, *, create: bool) -> Changes:
    """Return the changes that add to a number; raise ParameterError if an argument is not usable."""
    column = _check_column(column)
    try:
        number = plain(by)
    except ValueError:
        number = None
    if not _is_number(number):
        raise unusable("by", by, "a number of at most 63 bits")
    return Changes(add={column: number}, create=create)


def union_of(column: Value, items: Value, *, create: bool) -> Changes:
    """Return the changes that add items to a list; raise ParameterError if they are not usable."""
    return Changes(union={_check_column(column): _check_items(items)}, create=create)


def remove_of(column: Value, items: Value, *, create: bool) -> Changes:
    """Return the changes that remove items from a list; raise ParameterError if they are not usable."""
    return Changes(remove={_check_column(column): _check_items(items)}, create=create)


def check_kinds(changes: Changes, table: Table) -> None:
    """Raise ParameterError for changes that the schema of a table does not allow."""
    if table.schema is None:
        return
    table.check_columns(changes.merge)
    for columns, kind, what in (
        (changes.add, "number", "Only a number can be incremented."),
        ({**changes.union, **changes.remove}, "any", "Only a list has items that can be added or removed."),
    ):
        table.check_columns(dict.fromkeys(columns))
        for column in columns:
            if table.schema[column] not in (kind, "any"):
                raise ParameterError(
                    what,
                    where=f"table {table.name!r}, column {column!r}",
                    found=f"a column of the type {table.schema[column]}",
                    expected=f"one of the type {kind}" + ("" if kind == "any" else " or any"),
                    remedy="use update(), which replaces the value",
                )


def change_record(data: Fields | None, changes: Changes, where: str) -> dict[str, Value]:
    """Return the columns of a record after changes; ``data`` None: there is none.

    Raises
    ------
    TableProblem
        There is no record, and the changes do not create one.
    ParameterError
        A value is not of the kind that a change needs, or the record is too large afterwards.
    """
    if data is None and not changes.create:
        raise TableProblem(
            "There is no record of this key that you can see, so there is nothing to change.",
            where=where,
            found="no record",
            expected="a record",
            remedy="write it as a whole, or create it by these changes: create=True",
        )
    return check_record(apply_changes(data or {}, changes, where))


def apply_changes(data: Fields, changes: Changes, where: str = "the record") -> dict[str, Value]:
    """Return columns after changes; raise ParameterError for a value that is not of the kind they need."""
    changed = {**data, **changes.merge}
    for column, by in changes.add.items():
        before = changed.get(column)
        if before is not None and not _is_number(before):
            raise _kind_error("Only a number can be incremented.", where, column, before, "a number, or NULL")
        total = by if before is None else before + by
        if not _is_number(total):
            raise _kind_error("The number would be too large.", where, column, before, "at most 63 bits")
        changed[column] = total
    for column in changes.remove.keys() | changes.union.keys():
        before = changed.get(column)
        if before is not None and not isinstance(before, list | tuple):
            what = "Only a list has items that can be added or removed."
            raise _kind_error(what, where, column, before, "a list, or NULL")
        kept = _without(before or (), changes.remove.get(column, ()))
        changed[column] = kept + _without(changes.union.get(column, ()), kept)
    return changed


def compose(first: Changes, then: Changes) -> Changes | None:
    """Return the changes that are equal to two in a row; None: no single ones are.

    A value does not take the place of an increment or of items, which the store may refuse.
    """
    if then.create and not first.create:
        return None
    merge, add, remove, union = dict(first.merge), dict(first.add), dict(first.remove), dict(first.union)
    for column, value in then.merge.items():
        if column in add or column in remove or column in union:
            return None
        merge[column] = value
    on_values = Changes(
        add={column: by for column, by in then.add.items() if column in merge},
        remove={column: items for column, items in then.remove.items() if column in merge},
        union={column: items for column, items in then.union.items() if column in merge},
    )
    try:
        merge = apply_changes(merge, on_values)
    except MudkitError:
        return None
    for column, by in then.add.items():
        if column in merge:
            continue
        total = add.get(column, 0) + by
        if column in remove or column in union or not _is_number(total):
            return None
        add[column] = total
    for column in then.remove.keys() | then.union.keys():
        if column in merge:
            continue
        if column in add:
            return None
        removals, more = then.remove.get(column, []), then.union.get(column, [])
        if removals:
            removed = remove.get(column, [])
            remove[column] = removed + _without(removals, removed)
        kept = _without(union.get(column, []), removals)
        union[column] = kept + _without(more, kept)
    return Changes(merge=merge, add=add, remove=remove, union=union, create=first.create)


def _is_number(value: Value) -> TypeGuard[int | float]:
    """Return whether a value is a number of JSON in the range of a store."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and -_LIMIT <= value < _LIMIT


def _without(items: Iterable[Value], others: Iterable[Value]) -> list[Value]:
    """Return items without those that others have, each once."""
    seen = {_identity(item) for item in others}
    kept: list[Value] = []
    for item in items:
        identity = _identity(item)
        if identity not in seen:
            kept.append(item)
            seen.add(identity)
    return kept


def _check_column(column: Value) -> str:
    """Return the name of a column; raise ParameterError if it is not usable."""
    if not is_line(column) or column == "key":
        raise unusable("column", column, "the name of a column, a text other than 'key'")
    return str.__str__(column)


def _check_items(items: Value) -> list[Value]:
    """Return items as JSON has them, each once; raise ParameterError if they are not usable."""
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise unusable("items", items, "a list of values, such as ['a']")
    data = check_record({"items": list(items)})["items"]
    assert isinstance(data, list)
    return _without(data, ())


def _kind_error(summary: str, where: str, column: str, value: Value, expected: str) -> ParameterError:
    """Build the error for a value that cannot be changed so."""
    return ParameterError(
        summary,
        where=f"{where}, column {column!r}",
        found=f"{type(value).__name__}: {value!r}"[:120],
        expected=expected,
        remedy="use update(), which replaces the value",
    )
