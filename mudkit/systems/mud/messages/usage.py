"""Usage: what devices report of apps that consent to it, and processors of changed answers (Mobius 6)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from mudkit.systems.mud.messages.parts import check_consistent
from mudkit.systems.receiving import Accepts, Count, Name

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


class WatchedQuery(Struct, frozen=True, array_like=True):
    """Query of a table, by its text, whose changes are counted; a part of a message."""

    table: Name
    text: str


class WatchedQueries(Struct, frozen=True, tag_field="kind", tag="watch"):
    """Generator to processor: the queries to watch, in place of the former ones."""

    queries: list[WatchedQuery]


class WatchedQueriesRequest(Struct, frozen=True, tag_field="kind", tag="watch?"):
    """Processor to generator: request for the queries to watch, at a start or in another generation."""


class ChangeItem(Struct, frozen=True, array_like=True):
    """Changes of records of a query within a minute, the last one at ``t_ms``; 0: its watch begins.

    ``number`` counts the items of the processor's generation, with those that were dropped. ``query`` is the
    place of its :class:`WatchedQuery` in the report.
    """

    number: Count
    query: Count
    t_ms: Count
    changes: Count


class ChangeReport(Struct, frozen=True, tag_field="kind", tag="changes"):
    """Processor to generator: changes of the answers to all queries that it watches."""

    generation: Count
    queries: list[WatchedQuery]
    items: list[ChangeItem]

    def __post_init__(self) -> None:
        check_consistent(all(item.query < len(self.queries) for item in self.items))


GENERATOR_FROM_PROCESSOR: Final = Accepts[ChangeReport | WatchedQueriesRequest](
    ChangeReport, WatchedQueriesRequest
)
PROCESSOR_FROM_GENERATOR: Final = Accepts[WatchedQueries](WatchedQueries)
