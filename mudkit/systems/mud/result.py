"""Results of operations: what a read returns, changes of a continuous read, and conflicts of writes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from mudkit import words
from mudkit.display import MAX_COLUMNS, MAX_ROWS, Displayed, View, first_rows
from mudkit.errors import MudkitError
from mudkit.wire import Fields

if TYPE_CHECKING:
    import pandas as pd

_MAX_FACTS: Final = 5
"""Aggregates that stand in one line; of more, their number does, above the table."""
_ERROR_FIELDS: Final = ("found", "expected", "remedy", "where")


@dataclass(frozen=True)
class Change:
    """Change of a continuous read.

    Parameters
    ----------
    kind : str
        ``upsert``: a new version of the record. ``remove``: the record no longer belongs to the read, for
        whatever reason.
    key : str
    record : mapping or None
    version : int or None
        The version of the record, as the store has numbered it, and 0 of one that it never had; None: it is
        pending.
    is_new : bool
        Whether the read did not have the record before.
    is_pending : bool
        Whether this is what an own write makes of the record, which the store has not decided. Another
        change of the record follows that is not pending: the committed version, or what was there before.
    id : str
        Name of this notification. A device that was killed between storing a change and the callback repeats
        it with the same id. It is not compared.
    """

    kind: str
    key: str
    record: Fields | None
    version: int | None
    is_new: bool = False
    is_pending: bool = False
    id: str = field(default="", compare=False, repr=False)


class ReadResult(Displayed, msgspec.Struct, frozen=True):
    """Records that a read returned.

    Parameters
    ----------
    records : dict of str to dict
        The records by primary key.
    source : dict of str to str
        ``local`` or ``remote``, by key.
    age_s : dict of str to float
        Seconds since the cloud last confirmed the record to this device; 0 for pending writes.
    versions : dict of str to int or None
        Global versions; None: pending.
    aggregates : dict or None
        Returned instead of records if the read requested them.
    is_complete : bool
        False: records that match may be missing, because the device answered without the cloud and does not
        hold all of them.
    """

    records: dict[str, Fields] = msgspec.field(default_factory=dict)
    source: dict[str, str] = msgspec.field(default_factory=dict)
    age_s: dict[str, float] = msgspec.field(default_factory=dict)
    versions: dict[str, int | None] = msgspec.field(default_factory=dict)
    aggregates: Fields | None = None
    is_complete: bool = True

    def __len__(self) -> int:
        return len(self.records)

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with one row per record, indexed by key."""
        import pandas as pd

        if self.aggregates is not None:
            return pd.DataFrame([self.aggregates])
        keys = pd.Index(list(self.records), dtype="object", name="key")
        table = pd.DataFrame(list(self.records.values()), index=keys)
        for name in table.select_dtypes("float"):
            values = [record.get(str(name)) for record in self.records.values()]
            if {type(value) for value in values} == {int, type(None)}:  # pandas converts these to floats
                whole = [value if isinstance(value, int) else None for value in values]
                table[name] = pd.array(whole, dtype="Int64")
        return table

    def _view(self) -> View:
        """Return the view of a display: the first records, or the aggregates."""
        if self.aggregates is not None:
            count = len(self.aggregates)
            rows = first_rows(("aggregate", "value"), self.aggregates.items(), count)
            return View(
                "ReadResult", self.aggregates if count <= _MAX_FACTS else {"aggregates": count}, [rows]
            )
        shown = list(islice(self.records, MAX_ROWS))
        columns = list(dict.fromkeys(name for key in shown for name in self.records[key]))
        left_out = columns[MAX_COLUMNS - 4 :]
        columns = columns[: MAX_COLUMNS - 4]
        rows = first_rows(
            ("key", *columns, "version", "source", ("age", "s")),
            (
                (
                    key,
                    *(self.records[key].get(name) for name in columns),
                    "pending" if self.versions.get(key) is None else str(self.versions[key]),
                    self.source.get(key),
                    self.age_s.get(key),
                )
                for key in shown
            ),
            len(self.records),
        )
        notes = [f"Not shown: {words.listing(left_out)}."] if left_out else []
        if not self.is_complete:
            notes.append("Records may be missing: the device has answered with what it holds.")
        return View("ReadResult", {"records": len(self.records), "keys": shown}, [rows], notes)


class Conflict(Displayed, MudkitError, RuntimeError):
    """A conditional write found another version than the one it was based on (Mobius 4.2).

    Parameters
    ----------
    summary : str
    store : mapping or None
        The record at the back end; None if it is not visible to this writer.
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
        # Copies: the application may change them when it merges the records.
        self.store, self.local, self.base = deepcopy(store), deepcopy(local), deepcopy(base)

    def _view(self) -> View:
        """Return the view of a display: the three records side by side."""
        records = [_columns(record) for record in (self.base, self.local, self.store)]
        names = list(dict.fromkeys(name for record in records for name in record or {}))
        rows = ((name, *((record or {}).get(name) for record in records)) for name in names)
        columns = ("column", "base: read before", "local: written here, undone", "store: in the cloud")
        facts = {"": self.summary, "store": "not shown by its writer" if self.store is None else None}
        return View("mud.Conflict", facts, [first_rows(columns, rows, len(names))])

    def __reduce__(self) -> tuple[partial[Conflict], tuple[str]]:
        texts = {name: getattr(self, name) for name in _ERROR_FIELDS}
        return partial(Conflict, store=self.store, local=self.local, base=self.base, **texts), (self.summary,)


def _columns(record: Fields | None) -> Fields:
    """Return what an application knows of a record: its version, and the columns that it wrote."""
    data = (record or {}).get("data")
    if record is None or not isinstance(data, Mapping):
        return record or {}
    return {"version": "pending" if record.get("ver") is None else str(record["ver"]), **data}
