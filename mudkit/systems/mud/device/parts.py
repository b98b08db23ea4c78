"""Parts of a batch of writes, as errors and the history name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mudkit.errors import MudkitError
from mudkit.events import Record
from mudkit.systems.mud.result import Conflict
from mudkit.systems.mud.tables.changes import Changes
from mudkit.wire import Fields


@contextmanager
def name_part(place: int, parts: int, key: str | None) -> Iterator[None]:
    """Raise the MudkitErrors of a block with the place of a part in its batch, counted from 1."""
    try:
        yield
    except MudkitError as error:
        raise error_of_part(error, place, parts, key) from error


def error_of_part(error: MudkitError, place: int, parts: int, key: str | None) -> MudkitError:
    """Return an error of a part with the part's place in its batch, counted from 1, and its key."""
    named = f"part {place} of {parts}"
    if key is not None and repr(key) not in (error.where or ""):
        named += f", key {key!r}"
    fields = {
        "found": error.found,
        "expected": error.expected,
        "remedy": error.remedy,
        "where": f"{named}, {error.where}" if error.where else named,
    }
    if isinstance(error, Conflict):
        return Conflict(error.summary, store=error.store, local=error.local, base=error.base, **fields)
    return type(error)(error.summary, **fields)


def record_part(
    op_id: int,
    key: str,
    kind: str,
    data: Fields | None,
    changes: Changes | None,
    version: int | None,
    value_hash: str | Callable[[], str | None] | None,
) -> Record:
    """Build the effect that records a part of a batch as an operation of its own on its record."""
    op = "update" if changes is not None else "delete" if data is None else "write"
    row = {"op_id": op_id, "key": key, "op": op, "type": kind, "version": version}
    return Record("operations", row if value_hash is None else {**row, "value_hash": value_hash})
