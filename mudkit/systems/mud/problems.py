"""Errors that cross the network, and the conflict of a conditional write."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Final

from msgspec import UNSET

from mudkit.display import Displayed, View, first_rows
from mudkit.errors import (
    AccessDenied,
    MudkitError,
    ParameterError,
    PredicateError,
    TableProblem,
    TokenExpired,
)
from mudkit.systems.mud.messages import Error
from mudkit.wire import Fields

__all__ = ["Conflict", "decode_error", "encode_error"]

_KINDS: Final[dict[str, type[MudkitError]]] = {
    each.__name__: each for each in (AccessDenied, ParameterError, PredicateError, TableProblem, TokenExpired)
}
_FIELDS: Final = ("found", "expected", "remedy", "where")


class Conflict(Displayed, MudkitError, RuntimeError):
    """A conditional write has found another version than the one it was to replace (Mobius 4.2).

    Parameters
    ----------
    summary : str
    store : mapping or None
        The record at the back end; None when its writer does not show it to this one.
    local : mapping or None
        The last update of the local store, which is now undone.
    base : mapping or None
        The committed record that it was based on.
    """

    def __init__(
        self,
        summary: str,
        *,
        store: Fields | None = None,
        local: Fields | None = None,
        base: Fields | None = None,
        **fields: str | None,
    ) -> None:
        super().__init__(summary, **fields)
        # Copies: whoever merges them may change them.
        self.store, self.local, self.base = deepcopy(store), deepcopy(local), deepcopy(base)

    def _view(self) -> View:
        records = [_columns(record) for record in (self.base, self.local, self.store)]
        names = list(dict.fromkeys(name for record in records for name in record or {}))
        rows = ((name, *((record or {}).get(name) for record in records)) for name in names)
        columns = ("column", "base: read before", "local: written here, undone", "store: in the cloud")
        facts = {"": self.summary, "store": "not shown by its writer" if self.store is None else None}
        return View("mud.Conflict", facts, [first_rows(columns, rows, len(names))])

    def __reduce__(self) -> tuple[partial[Conflict], tuple[str]]:
        texts = {name: getattr(self, name) for name in _FIELDS}
        return partial(Conflict, store=self.store, local=self.local, base=self.base, **texts), (self.summary,)


def _columns(record: Fields | None) -> Fields:
    """Return what an application knows of a record: its version, and the columns that it wrote."""
    data = (record or {}).get("data")
    if record is None or not isinstance(data, Mapping):
        return record or {}
    return {"version": "pending" if record.get("ver") is None else str(record["ver"]), **data}


def encode_error(error: MudkitError) -> Error:
    """Encode an error for a message."""
    return Error(
        type(error).__name__,
        error.summary,
        **{name: value for name in _FIELDS if (value := getattr(error, name)) is not None},
    )


def decode_error(error: Error) -> MudkitError:
    """Decode an error of a message."""
    fields = {name: value for name in _FIELDS if (value := getattr(error, name)) is not UNSET}
    return _KINDS.get(error.kind, MudkitError)(error.summary, **fields)
