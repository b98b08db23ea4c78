"""Results of reads that the device completes, of tables in the cloud and of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from mudkit.events import Complete, Effect, Record
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.replica import columns_of, copy_record
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table, Version
from mudkit.wire import Fields

_AnyVersion = TypeVar("_AnyVersion", bound=Version)


class Origin(NamedTuple):
    """Global version of a record in a result (None: pending), where it came from, and its age.

    ``is_recorded`` False: the history has no read of it, since pending changes may give another record.
    """

    version: int | None
    source: Literal["local", "remote"]
    age_s: float
    is_recorded: bool = True


def complete_read(
    op_id: int,
    table: Table | None,
    versions: Mapping[str, _AnyVersion],
    selection: Selection | None,
    origin_of: Callable[[_AnyVersion], Origin],
    hash_of: Callable[[_AnyVersion], str | None],
    *,
    is_complete: bool,
) -> Sequence[Effect]:
    """Return the effects that complete a read and record its versions, unless it has only some columns.

    ``versions`` are by key, those of deleted records among them; ``table`` None: the device does not know it.
    """
    effects: list[Effect] = []
    result = ReadResult(is_complete=is_complete)
    if selection is not None:
        deleted = {key: version for key, version in versions.items() if version.data is None}
        present = {
            key: (columns_of(version, table), version)
            for key, version in versions.items()
            if version.data is not None
        }
        versions = deleted | selection.cut(present)
    for key in sorted(versions) if selection is None else versions:
        version = versions[key]
        data, origin = version.data, origin_of(version)
        if origin.is_recorded and (selection is None or selection.columns is None):
            row = {"op_id": op_id, "key": key, "version": origin.version, "value_hash": hash_of(version)}
            effects.append(Record("operations", row))
        if data is None:
            continue
        is_whole = table is None or not table.removed
        record: Fields = data if is_whole else columns_of(version, table)
        result.records[key] = copy_record(record if selection is None else selection.columns_of(record))
        result.versions[key], result.source[key], result.age_s[key] = origin[:3]
    return [*effects, Complete(op_id, result)]
