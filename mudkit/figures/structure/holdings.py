"""Who holds what: a table with a row a record and a column a device, as HTML that needs no JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

__all__ = ["MAX_RECORDS", "Holdings", "holdings"]

MAX_RECORDS: Final = 100
"""So many records are shown, the first ones by key."""

_MAX_TEXT: Final = 90
_CELL: Final = (
    "text-align:left;vertical-align:top;padding:2px 10px 2px 4px;max-width:22em;overflow-wrap:anywhere"
)
_PENDING: Final = "border-left:3px dashed #D55E00;padding-left:4px"


@dataclass(frozen=True)
class Holdings:
    """A table as HTML, which a notebook shows.

    Parameters
    ----------
    html : str
    """

    html: str

    def _repr_html_(self) -> str:
        return self.html


def holdings(
    held: Mapping[str, Sequence[Mapping[str, Any]]],
    readers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    title: str = "",
) -> Holdings:
    """Show what each device holds of a table, and what of it its reader would be shown.

    A version is ``v3``, or *pending* while the cloud has not answered. Of what a writer hides from the
    reader only that stands there by which it is hidden.

    Parameters
    ----------
    held : mapping of str to sequence of mapping
        The versions that are held, by name of the column, as ``Client.held`` lists them: ``key, version,
        record, predicate, visible``.
    readers : mapping of str to mapping, optional
        What the reader of each column says of itself.
    title : str
    """
    keys = sorted({each["key"] for versions in held.values() for each in versions})
    head = "".join(
        f"<th scope='col' style='{_CELL}'>{escape(name)}{_reader((readers or {}).get(name))}</th>"
        for name in held
    )
    rows = "".join(
        f"<tr><th scope='row' style='{_CELL}'>{escape(key)}</th>"
        + "".join(
            f"<td style='{_CELL}'>{_versions([each for each in versions if each['key'] == key])}</td>"
            for versions in held.values()
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
    return Holdings(f"<table>{caption}{head}<tbody>{rows}</tbody></table>")


def _reader(data: Mapping[str, Any] | None) -> str:
    return f"<br><span style='font-weight:normal'>{escape(_record(data))}</span>" if data else ""


def _versions(versions: Sequence[Mapping[str, Any]]) -> str:
    if not versions:
        return "<span title='not held'>–</span>"
    return "".join(map(_version, versions))


def _version(each: Mapping[str, Any]) -> str:
    is_pending = each["version"] is None
    number = "<b>pending</b>" if is_pending else f"<b>v{each['version']}</b>"
    if each["visible"]:
        style, what = "", escape("deleted" if each["record"] is None else _record(each["record"]))
    else:
        style, what = "opacity:0.6", f"hidden: <code>{escape(each['predicate'] or '')}</code>"
    style = ";".join(part for part in (style, _PENDING if is_pending else "") if part)
    return f"<div style='{style}'>{number} {what}</div>"


def _record(record: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}: {value}" for name, value in record.items())
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
