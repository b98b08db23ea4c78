"""Usage: what a device reports of the reads and writes of an app that consents to it (Mobius 6)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mudkit.systems.mud.messages.parts import check_consistent
from mudkit.systems.receiving import Count, Name

_Degrees = Annotated[float, Meta(ge=-180.0, le=180.0)]
_Amount = Annotated[float, Meta(ge=0.0, le=1e12)]
Op = Literal["read", "write", "prefetch", "register"]
Source = Literal["local", "remote", "offline"]


class UsedQuery(Struct, frozen=True, array_like=True):
    """Table, area and text of reads or writes that are alike; a part of a report.

    ``register`` is the beginning of a continuous read. ``text`` is the predicate of a read that the app has
    repeated, unless it has an area; None: it is not reported. ``box_km`` is the size of its area, and
    ``window_s`` how far back it asks; None: it has none.
    """

    table: Name
    op: Op
    text: str | None
    box_km: _Amount | None
    window_s: _Amount | None


class UsageItem(Struct, frozen=True, array_like=True):
    """A read, a write, a prefetch or a registration of a continuous read of the app.

    ``number`` counts the items of the app's start, with those that were dropped. ``t_ms`` is the device's
    time of the call. ``query`` is the place of its :class:`UsedQuery` in the report. ``lat`` and ``lon`` are
    the middle of a cell in which the area of the read, or what was written, is; of a read without an area,
    and of a record without a place, that of the device; None: unknown.

    Of a read: where the answer came from, the age of its oldest record from the device, how many records it
    had, and the time that the app waited. None: it is no read, or a continuous one.
    """

    number: Count
    t_ms: Count
    query: Count
    lat: _Degrees | None
    lon: _Degrees | None
    source: Source | None = None
    age_s: _Amount | None = None
    records: Count | None = None
    waited_s: _Amount | None = None


class UsageReport(Struct, frozen=True, tag_field="op", tag="usage"):
    """Request to take a report of an app's usage; ``incarnation`` is that of its start."""

    incarnation: Name
    queries: list[UsedQuery]
    items: list[UsageItem]

    def __post_init__(self) -> None:
        check_consistent(all(item.query < len(self.queries) for item in self.items))
