"""What the sender, the relay and the receiver each see of one item, as HTML that needs no JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from mudkit.experiment.party_views import RECEIVER, SENDER, PartyView, Seen
from mudkit.figures.structure.holdings import Holdings

__all__ = ["party_views"]

_CELL: Final = (
    "text-align:left;vertical-align:top;padding:3px 12px 3px 6px;width:30%;overflow-wrap:anywhere;"
    "white-space:pre-wrap"
)
_HEAD: Final = "text-align:left;vertical-align:top;white-space:nowrap;padding:3px 12px 3px 0"
_HEADS: Final = (f"{SENDER}, the sender", "the relay", f"{RECEIVER}, the receiver")
_READABLE: Final = "border-left:4px solid #D55E00"
_SEALED: Final = "border-left:4px solid #0072B2;opacity:0.75"
_LEGEND: Final = (
    "The relay can read what is <span style='border-left:4px solid #D55E00;padding-left:4px'>orange</span>; "
    "<span style='border-left:4px solid #0072B2;padding-left:4px'>blue</span> is a ciphertext."
)
_MAX_TEXT: Final = 300


def party_views(rows: Sequence[PartyView], *, title: str = "") -> Holdings:
    """Show what each party sees, with a row a thing.

    Parameters
    ----------
    rows : sequence of Sight
        As :func:`mudkit.experiment.party_views.party_views` gives them.
    title : str
    """
    head = "".join(f"<th scope='col' style='{_CELL}'>{escape(each)}</th>" for each in _HEADS)
    body = "".join(
        f"<tr><th scope='row' style='{_HEAD}'>"
        f"{escape(row.what)}</th>{_cell(row.sender)}{_cell(row.relay, is_relay=True)}{_cell(row.receiver)}"
        "</tr>"
        for row in rows
    )
    caption = f"<caption style='text-align:left'>{escape(title)} {_LEGEND}</caption>"
    return Holdings(
        f"<table style='width:100%;table-layout:auto;line-height:1.35'>{caption}"
        f"<thead><tr><th scope='col'></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(seen: Seen, *, is_relay: bool = False) -> str:
    text = seen.text if len(seen.text) <= _MAX_TEXT else f"{seen.text[: _MAX_TEXT - 1]}…"
    if seen.form == "nothing":
        return f"<td style='{_CELL};opacity:0.6'>{escape(text) or '–'}</td>"
    style = _CELL
    if is_relay:
        style += ";" + (_READABLE if seen.form == "clear" else _SEALED)
    shown = f"<code>{escape(text)}</code>" if seen.form == "ciphertext" else escape(text)
    return f"<td style='{style}'>{shown}</td>"
