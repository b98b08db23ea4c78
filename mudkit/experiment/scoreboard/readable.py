"""What servers and other devices could read, looked up in every byte that they held.

Whether a system promises that they cannot does not count. What is only packed (gzip, zlib) counts as read,
what is encrypted as not read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import ParameterError
from mudkit.experiment.privacy import SERVERS
from mudkit.experiment.scoreboard.entry import Entry

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OTHERS", "readable"]

OTHERS: Final = "other devices"
"""Devices that have neither published an item nor wanted it; of what phones say of themselves, all others."""
_NUMBER: Final = re.compile(rb"-?\d+\.\d+")
_PACKED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_PIECE: Final = 64
"""Of a content so many letters are looked for; they are drawn, so that no two contents share them."""


def readable(entry: Entry) -> pd.DataFrame:
    """Look up what parties could read.

    Parameters
    ----------
    entry : Entry
        That keeps what parties held.

    Returns
    -------
    pandas.DataFrame
        One row each for ``servers`` (all of them together) and ``other devices`` (each by itself):
        ``party``, and shares from 0 to 1: ``contents`` (of the items' contents), ``item_places`` (of the
        places that items are about), ``phone_places`` (of the phones: at least one place where it was, that
        no item is about), ``wants`` (of the phones: what its user says that she wants). NaN where the task
        has nothing of the kind.

    Raises
    ------
    ParameterError
        The entry was played without keeping what parties held.
    """
    import pandas as pd

    if entry.lab.trace.held is None:
        raise ParameterError(
            "This entry does not keep what parties held.", where="entry", remedy="play(…, held=True)"
        )
    stage, devices = entry.stage, list(entry.lab.devices)
    fields: dict[str, list[bytes]] = {name: [] for name in (SERVERS, *devices)}
    for row in entry.lab.trace.held.rows():
        if row.form == "clear" and row.how in ("received", "stored"):
            party = row.party if row.party in fields else SERVERS
            fields[party] += entry.lab.trace.held.values(row.party, row.field)
    held = {party: _Held(values) for party, values in fields.items()}
    routes = _routes(entry)
    said = {phone: _wants(stage.about(phone)) for phone in stage.phones}
    rows = []
    for party in (SERVERS, OTHERS):
        contents, places = [], []
        for item in stage.items:
            who = [SERVERS] if party == SERVERS else [
                name for name in devices if name != item.sender and not stage.is_wanted(name, item.name)
            ]  # fmt: skip
            piece = item.content[:_PIECE].encode()
            contents.append(any(held[name].has(piece) for name in who))
            if (loc := item.about.get("loc")) is not None:
                places.append(any(held[name].has_place(loc) for name in who))
        moved, wants = [], []
        for phone in stage.phones:
            who = [SERVERS] if party == SERVERS else [name for name in devices if name != phone]
            if phone in routes:
                moved.append(any(held[name].has_any(routes[phone]) for name in who))
            if said[phone]:
                # What two want alike, either of them knows of herself.
                who = [name for name in who if said[phone] not in said.get(name, b"")]
                wants.append(any(held[name].has(said[phone]) for name in who))
        shares = map(_share, (contents, places, moved, wants))
        rows.append((party, *shares))
    return pd.DataFrame(rows, columns=["party", "contents", "item_places", "phone_places", "wants"])


class _Held:
    """All that a party held in clear, unpacked."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._text = b"\n".join(_unpacked(each) for each in dict.fromkeys(values))
        self._numbers = frozenset(_NUMBER.findall(self._text))

    def has(self, piece: bytes) -> bool:
        return piece in self._text

    def has_place(self, loc: tuple[float, float]) -> bool:
        return _written(loc) <= self._numbers

    def has_any(self, route: Iterable[frozenset[bytes]]) -> bool:
        return any(place <= self._numbers for place in route)


def _unpacked(value: bytes) -> bytes:
    if not value.startswith(_PACKED):
        return value
    try:
        return zlib.decompress(value, wbits=47)  # either of the two
    except zlib.error:
        return value


def _written(loc: tuple[float, float]) -> frozenset[bytes]:
    return frozenset(repr(float(part)).encode() for part in loc)


def _routes(entry: Entry) -> dict[str, list[frozenset[bytes]]]:
    """Give for each phone the places where it was, but those that items are about."""
    if not entry.task.want.moves:
        return {}
    told = {_written(loc) for item in entry.stage.items if (loc := item.about.get("loc")) is not None}
    phones: dict[str, list[frozenset[bytes]]] = {}
    positions = entry.lab.frame("positions")
    for device, lat, lon in zip(positions["device"], positions["lat"], positions["lon"], strict=True):
        place = _written((lat, lon))
        if place not in told:
            phones.setdefault(str(device), []).append(place)
    return phones


def _wants(about: Mapping[str, Any]) -> bytes:
    """Give the longest text that a phone's user says of herself; nothing if there is none."""
    return max((each for each in about.values() if isinstance(each, str)), key=len, default="").encode()


def _share(found: list[bool]) -> float:
    return sum(found) / len(found) if found else float("nan")
