"""Tables of what devices hold, and of what each party sees of an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.checks import check_arguments
from mudkit.display import Cell, Shown, Table, one_line, show
from mudkit.experiment import PartyView, Visibility
from mudkit.experiment.contrail_scenarios import RECEIVER, SENDER
from mudkit.figures.style import BLUE, ORANGE

MAX_RECORDS: Final = 100
"""Maximum number of records that are shown, the first ones by key."""

_MAX_RECORD_TEXT: Final = 90
_MAX_PARTY_TEXT: Final = 300
_PARTIES: Final = (f"{SENDER}, the sender", "the relay", f"{RECEIVER}, the receiver")
_LEGEND: Final = "The relay can read what has an orange bar; what has a blue bar is a ciphertext."


@check_arguments(types=False)
def holdings(
    versions: Mapping[str, Sequence[Mapping[str, Any]]],
    readers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    title: str = "",
) -> Shown:
    """Return a table of the records that each device holds, with what its reader may see.

    A version is ``v3``, or *pending* until the cloud has answered. Of a record that its writer hides from the
    reader, the table shows only the predicate that hides it.

    Parameters
    ----------
    versions : mapping of str to sequence of mapping
        Stored versions by the heading of their column, as ``Client.holdings`` returns them: ``key, version,
        record, predicate, visible``.
    readers : mapping of str to mapping, optional
        Attributes of the reader of each column.
    title : str
        Caption of the table.

    Returns
    -------
    Shown
        At most 100 records, the first ones by key.
    """
    keys = sorted({row["key"] for rows in versions.values() for row in rows})
    readers = readers or {}
    columns = [(name, _record(readers[name]) if readers.get(name) else "") for name in versions]
    rows = [
        [
            key,
            *([_version(row) for row in rows if row["key"] == key] or "–" for rows in versions.values()),
        ]
        for key in keys[:MAX_RECORDS]
    ]
    notes = []
    if not keys:
        notes.append("No device holds a record.")
    if len(keys) > MAX_RECORDS:
        notes.append(f"The first {MAX_RECORDS} of {len(keys):,} records.")
    return show(Table(["key", *columns], rows, title, notes=notes))


def _version(row: Mapping[str, Any]) -> Cell:
    """Return the cell of a record's version; of a hidden one only the predicate."""
    is_pending = row["version"] is None
    number = "pending" if is_pending else f"v{row['version']}"
    if row["visible"]:
        text = "deleted" if row["record"] is None else _record(row["record"])
    else:
        text = f"hidden: {row['predicate'] or ''}"
    return Cell(text, strong=number, is_faint=not row["visible"], is_marked=is_pending)


def _record(record: Mapping[str, Any]) -> str:
    """Return a record in one line."""
    return one_line(", ".join(f"{name}: {value}" for name, value in record.items()), _MAX_RECORD_TEXT)


@check_arguments(types=False)
def party_views(rows: Sequence[PartyView], *, title: str = "") -> Shown:
    """Return a table of what the sender, the relay and the receiver see of an item.

    Parameters
    ----------
    rows : sequence of mudkit.experiment.PartyView
        As :func:`mudkit.experiment.party_views` returns them.
    title : str
        Caption of the table.
    """
    body = [
        [row.field, _seen(row.sender), _seen(row.relay, is_relay=True), _seen(row.receiver)] for row in rows
    ]
    return show(Table(["", *_PARTIES], body, title, notes=[_LEGEND]))


def _seen(seen: Visibility, *, is_relay: bool = False) -> Cell:
    """Return the cell of what a party sees."""
    if seen.form == "nothing":
        return Cell(seen.text or "–", is_faint=True)
    edge = "" if not is_relay else ORANGE if seen.form == "clear" else BLUE
    text = seen.text if len(seen.text) <= _MAX_PARTY_TEXT else f"{seen.text[: _MAX_PARTY_TEXT - 1]}…"
    return Cell(text, edge=edge, is_code=seen.form == "ciphertext")
