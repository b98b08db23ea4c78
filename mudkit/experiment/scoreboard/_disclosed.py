"""What readers give away of themselves: where they are and what they want, found in what parties held.

Somebody must know them to choose for them. Who it is, is where the systems differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import ParameterError
from mudkit.experiment.privacy import SERVERS
from mudkit.experiment.scoreboard._knowledge import seen
from mudkit.experiment.scoreboard.entry import Entry

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OTHERS", "disclosed"]

OTHERS: Final = "another device"
"""Any other phone or feed."""
_NUMBER: Final = re.compile(rb"-?\d+\.\d+")


def disclosed(entry: Entry) -> pd.DataFrame:
    """Give of how many phones parties know where they were, and what their users want.

    Parameters
    ----------
    entry : Entry
        Played with ``held=True``.

    Returns
    -------
    pandas.DataFrame
        Two rows, ``party`` ``servers`` (all of them together) and ``another device`` (at least one): shares
        from 0 to 1 of the phones, ``places`` (at least one place where the phone was, that no item is about)
        and ``wants`` (the longest text in which its user says what she wants; not counted is who wants the
        same). NaN where the task has no places, or no such texts.

    Raises
    ------
    ParameterError
        The lab does not keep what parties held.
    """
    import pandas as pd

    if entry.lab.trace.held is None:
        raise ParameterError(
            "This entry does not keep what parties held.", where="entry", remedy="play(…, held=True)"
        )
    testbed, devices = entry.testbed, list(entry.lab.devices)
    blobs = seen(entry)
    routes = _routes(entry)
    looked = blobs if routes else {}  # numbers are many, and nobody asks for them
    numbers = {party: frozenset(_NUMBER.findall(blob)) for party, blob in looked.items()}
    said = {phone: _wants(testbed.about(phone)) for phone in testbed.phones}

    def knows_place(party: str, phone: str) -> bool:
        return any(place <= numbers.get(party, frozenset()) for place in routes[phone])

    def knows_want(party: str, phone: str) -> bool:
        return said[phone] not in said.get(party, b"") and said[phone] in blobs.get(party, b"")

    rows = []
    for kind in (SERVERS, OTHERS):
        who = [SERVERS] if kind == SERVERS else devices
        rows.append(
            (
                kind,
                _share([phone for phone in testbed.phones if phone in routes], who, knows_place),
                _share([phone for phone in testbed.phones if said[phone]], who, knows_want),
            )
        )
    return pd.DataFrame(rows, columns=["party", "places", "wants"])


def _share(phones: list[str], parties: list[str], knows: Callable[[str, str], bool]) -> float:
    known = [any(knows(party, phone) for party in parties if party != phone) for phone in phones]
    return sum(known) / len(known) if known else float("nan")


def _written(loc: tuple[float, float]) -> frozenset[bytes]:
    return frozenset(repr(float(part)).encode() for part in loc)


def _routes(entry: Entry) -> dict[str, list[frozenset[bytes]]]:
    """Give for each phone the places where it was, but those that items are about."""
    if not entry.task.want.moves:
        return {}
    items = entry.testbed.items.values()
    places = {_written(loc) for item in items if (loc := item.about.get("loc")) is not None}
    phones: dict[str, list[frozenset[bytes]]] = {}
    positions = entry.lab.frame("positions")
    for device, lat, lon in zip(positions["device"], positions["lat"], positions["lon"], strict=True):
        place = _written((lat, lon))
        if place not in places:
            phones.setdefault(str(device), []).append(place)
    return phones


def _wants(about: Mapping[str, Any]) -> bytes:
    return max((each for each in about.values() if isinstance(each, str)), key=len, default="").encode()
