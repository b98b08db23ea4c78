"""Tables as HTML without JavaScript: what devices hold, and what each party sees of an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from mudkit.experiment._party_views import RECEIVER, SENDER, PartyView, Seen
from mudkit.figures.style import BLUE, ORANGE

__all__ = ["HtmlTable", "holdings", "party_views"]

MAX_RECORDS: Final = 100
"""Maximum number of records that are shown, the first ones by key."""

_MAX_RECORD_TEXT: Final = 90
_MAX_PARTY_TEXT: Final = 300
_CELL: Final = (
    "text-align:left;vertical-align:top;padding:2px 10px 2px 4px;max-width:22em;overflow-wrap:anywhere"
)
_PENDING: Final = f"border-left:3px dashed {ORANGE};padding-left:4px"
_PARTY_CELL: Final = (
    "text-align:left;vertical-align:top;padding:3px 12px 3px 6px;width:30%;overflow-wrap:anywhere;"
    "white-space:pre-wrap"
)
_ROW_HEAD: Final = "text-align:left;vertical-align:top;white-space:nowrap;padding:3px 12px 3px 0"
_PARTIES: Final = (f"{SENDER}, the sender", "the relay", f"{RECEIVER}, the receiver")
_READABLE, _SEALED = f"border-left:4px solid {ORANGE}", f"border-left:4px solid {BLUE}"
_LEGEND: Final = (
    f"The relay can read what is <span style='{_READABLE};padding-left:4px'>orange</span>; "
    f"<span style='{_SEALED};padding-left:4px'>blue</span> is a ciphertext."
)


@dataclass(frozen=True)
class HtmlTable:
    """Table that a notebook displays.

    Parameters
    ----------
    html : str
        The table as HTML.
    """

    html: str

    def _repr_html_(self) -> str:
        return self.html


def holdings(
    versions: Mapping[str, Sequence[Mapping[str, Any]]],
    readers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    title: str = "",
) -> HtmlTable:
    """Return a table of the records that each device holds, with what its reader may see.

    A version is ``v3``, or *pending* until the cloud has answered. Of a record that its writer hides from the
    reader, the table shows only the predicate that hides it.

    Parameters
    ----------
    versions : mapping of str to sequence of mapping
        Stored versions by the heading of their column, as ``Client.held`` returns them: ``key, version,
        record, predicate, visible``.
    readers : mapping of str to mapping, optional
        Attributes of the reader of each column.
    title : str
        Caption of the table.

    Returns
    -------
    HtmlTable
        At most 100 records, the first ones by key.
    """
    keys = sorted({row["key"] for rows in versions.values() for row in rows})
    head = "".join(
        f"<th scope='col' style='{_CELL}'>{escape(name)}{_reader((readers or {}).get(name))}</th>"
        for name in versions
    )
    body = "".join(
        f"<tr><th scope='row' style='{_CELL}'>{escape(key)}</th>"
        + "".join(
            f"<td style='{_CELL}'>{_versions([row for row in rows if row['key'] == key])}</td>"
            for rows in versions.values()
        )
        + "</tr>"
        for key in keys[:MAX_RECORDS]
    )
    lines = [title] if title else []
    if not keys:
        lines.append("No device holds a record.")
    if len(keys) > MAX_RECORDS:
        lines.append(f"The first {MAX_RECORDS} of {len(keys):,} records.")
    caption = f"<caption style='text-align:left'>{escape(' '.join(lines))}</caption>" if lines else ""
    head = f"<thead><tr><th scope='col' style='{_CELL}'>key</th>{head}</tr></thead>"
    return HtmlTable(f"<table>{caption}{head}<tbody>{body}</tbody></table>")


def _reader(data: Mapping[str, Any] | None) -> str:
    return f"<br><span style='font-weight:normal'>{escape(_record(data))}</span>" if data else ""


def _versions(versions: Sequence[Mapping[str, Any]]) -> str:
    return "".join(map(_version, versions)) or "<span title='not held'>–</span>"


def _version(row: Mapping[str, Any]) -> str:
    is_pending = row["version"] is None
    number = "<b>pending</b>" if is_pending else f"<b>v{row['version']}</b>"
    if row["visible"]:
        style, text = "", escape("deleted" if row["record"] is None else _record(row["record"]))
    else:
        style, text = "opacity:0.6", f"hidden: <code>{escape(row['predicate'] or '')}</code>"
    style = ";".join(part for part in (style, _PENDING if is_pending else "") if part)
    return f"<div style='{style}'>{number} {text}</div>"


def _record(record: Mapping[str, Any]) -> str:
    return _shortened(", ".join(f"{name}: {value}" for name, value in record.items()), _MAX_RECORD_TEXT)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def party_views(rows: Sequence[PartyView], *, title: str = "") -> HtmlTable:
    """Return a table of what the sender, the relay and the receiver see of an item.

    Parameters
    ----------
    rows : sequence of mudkit.experiment._party_views.PartyView
        As :func:`mudkit.experiment._party_views.party_views` returns them.
    title : str
        Caption of the table.

    Returns
    -------
    HtmlTable
    """
    head = "".join(f"<th scope='col' style='{_PARTY_CELL}'>{escape(party)}</th>" for party in _PARTIES)
    body = "".join(
        f"<tr><th scope='row' style='{_ROW_HEAD}'>{escape(row.what)}</th>"
        f"{_party_cell(row.sender)}{_party_cell(row.relay, is_relay=True)}{_party_cell(row.receiver)}</tr>"
        for row in rows
    )
    caption = f"<caption style='text-align:left'>{escape(title)} {_LEGEND}</caption>"
    return HtmlTable(
        f"<table style='width:100%;table-layout:auto;line-height:1.35'>{caption}"
        f"<thead><tr><th scope='col'></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _party_cell(seen: Seen, *, is_relay: bool = False) -> str:
    text = escape(_shortened(seen.text, _MAX_PARTY_TEXT))
    if seen.form == "nothing":
        return f"<td style='{_PARTY_CELL};opacity:0.6'>{text or '–'}</td>"
    style = _PARTY_CELL
    if is_relay:
        style += f";{_READABLE if seen.form == 'clear' else f'{_SEALED};opacity:0.75'}"
    shown = f"<code>{text}</code>" if seen.form == "ciphertext" else text
    return f"<td style='{style}'>{shown}</td>"
