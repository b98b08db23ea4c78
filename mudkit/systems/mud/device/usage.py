"""Usage of an app, as its device collects and reports it for the policy generator (Mobius 6).

Rules:

===============  =====================================================================================
consent          an app that has not consented, or whose cloud does not learn, has no part of this kind
read, write      kept with what answered it, until reported; places are those of cells. Of a continuous
                 read its registration is reported, not what it delivers
report           goes with a message that leaves anyway, once enough items wait, or the first has waited
                 for six hours: it opens no radio. After a day it leaves alone: a device that answers all
                 by itself would otherwise never be heard of
no message       the first items are dropped beyond ``_MAX_WAITING``; numbers show how many
restart          what was not reported is lost: it is no one's data, but a sample
===============  =====================================================================================
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from mudkit.events import Complete, Effect, Send, SetTimer
from mudkit.predicates.areas import Area, area_of
from mudkit.predicates.values import point
from mudkit.systems.mud.device.attachment import SERVICE
from mudkit.systems.mud.device.connection import Connection, Reporting
from mudkit.systems.mud.messages.requests import Ask, AskBatch
from mudkit.systems.mud.messages.usage import Op, Source, UsageItem, UsageReport, UsedQuery
from mudkit.systems.mud.operations import CommitBatch, Read, Register, Write
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.result import ReadResult
from mudkit.units import KM_PER_DEGREE, US_PER_S
from mudkit.wire import Fields

REPORT_ITEMS: Final = 20
"""Items that wait before they are reported: the message costs less than a fifth of their bytes."""
REPORT_US: Final = 6 * 3_600 * US_PER_S
"""Time after which fewer are reported, too."""
LATEST_US: Final = 4 * REPORT_US
"""Time after which they are reported even if no other message leaves."""
USAGE: Final = "usage"
"""Name of the timer of the latest report."""
_MAX_WAITING: Final = 500
_MAX_TEXTS: Final = 64
"""Maximum number of different queries whose repetition is noticed."""

_Place: TypeAlias = tuple[float | None, float | None]
"""Middle of a cell; Nones: unknown."""


class _OpenRead(NamedTuple):
    """A read that is not answered."""

    asked_us: int
    query: UsedQuery
    at: _Place


class Usage:
    """Usage of one app; places are rounded to the middles of cells of ``cell_km``."""

    def __init__(self, connection: Connection, cell_km: float) -> None:
        self._connection = connection
        self._cell_deg = cell_km / float(KM_PER_DEGREE)
        self._open: dict[int, _OpenRead] = {}
        """Reads that are not answered, by call."""
        self._waiting: deque[tuple[UsedQuery, UsageItem]] = deque(maxlen=_MAX_WAITING)
        self._count = 0
        self._is_reporting = self._has_timer = False
        self._texts: dict[tuple[str, str], int] = {}
        """Number of times that the app has read each of its last queries, by table and text."""

    def record_read(self, now_us: int, op_id: int, read: Read, context: Fields) -> None:
        """Note that the app has called a read."""
        area, text = area_of(read.predicate), None
        if area is None and read.predicate is not None:
            key = read.table, read.predicate.text
            times = self._texts.pop(key, 0) + 1
            self._texts[key] = times
            if len(self._texts) > _MAX_TEXTS:
                del self._texts[next(iter(self._texts))]
            text = read.predicate.text if times > 1 else None
        window_s = None if area is None else area.window_s(now_us / US_PER_S)
        used, at = self._build_query("read", read.table, area, text, window_s, context)
        self._open[op_id] = _OpenRead(now_us, used, at)

    def record_write(self, now_us: int, write: Write, context: Fields) -> None:
        """Note that the app has called a write."""
        place = place_of_record(write.record) or point(context.get("loc"))
        self._add(UsedQuery(write.table, "write", None, None, None), now_us, self._cell(place), None)

    def record_batch(self, now_us: int, batch: CommitBatch, context: Fields) -> None:
        """Note that the app has called a batch of writes."""
        for write in batch.parts:
            self.record_write(now_us, write, context)

    def record_registration(self, now_us: int, read: Register, context: Fields) -> None:
        """Note that the app has begun a continuous read."""
        used, at = self._build_query("register", read.table, area_of(read.predicate), None, None, context)
        self._add(used, now_us, at, None)

    def record_fetch(self, now_us: int, query: Query, context: Fields) -> None:
        """Note that an answer is fetched in advance."""
        area, text = area_of(query.predicate), None
        if area is None and query.predicate is not None:
            text = query.predicate.text
        used, at = self._build_query("prefetch", query.table, area, text, None, context)
        self._add(used, now_us, at, None)

    def _build_query(
        self, op: Op, table: str, area: Area | None, text: str | None, window_s: float | None, context: Fields
    ) -> tuple[UsedQuery, _Place]:
        """Return a query as it is reported, and the cell of its area, or of the device if it has none."""
        box_km = None if area is None else round(area.box_km, 3)
        used = UsedQuery(table, op, text, box_km, None if window_s is None else round(window_s, 1))
        return used, self._cell(point(context.get("loc")) if area is None else (area.lat, area.lon))

    def observe(self, now_us: int, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Note the reads that effects complete; return these, and a report if one is due and may leave."""
        for effect in effects:
            if isinstance(effect, Complete) and effect.op_id in self._open:
                result = effect.result if isinstance(effect.result, ReadResult) else None
                opened = self._open.pop(effect.op_id)
                if effect.error is None:
                    self._add(opened.query, opened.asked_us, opened.at, self._answer(now_us, opened, result))
        if self._is_due(now_us) and _leaves(effects):
            return [*effects, *self._report(now_us)]
        if self._waiting and not self._has_timer:
            self._has_timer = True
            return [*effects, SetTimer(USAGE, LATEST_US)]
        return effects

    def report_latest(self, now_us: int) -> Sequence[Effect]:
        """Report what waits for a day, after the timer has fired, and set it for what does not yet."""
        self._has_timer = False
        if not self._waiting:
            return ()
        left_us = self._waiting[0][1].t_ms * 1000 + LATEST_US - now_us
        if left_us <= 0:
            return self._report(now_us)
        self._has_timer = True
        return (SetTimer(USAGE, left_us),)

    def _report(self, now_us: int) -> Sequence[Effect]:
        """Send a report, unless the one before is not answered."""
        if self._is_reporting:
            return ()
        self._is_reporting = True
        return self._connection.send_request(now_us, Reporting(), self._build_report())

    def finish_report(self) -> None:
        """Note that the cloud has a report, or has refused it."""
        self._is_reporting = False

    def _add(
        self,
        query: UsedQuery,
        t_us: int,
        at: _Place,
        answer: tuple[Source, float, int, float] | None,
    ) -> None:
        """Add an item; without room the first one is dropped."""
        self._waiting.append((query, UsageItem(self._count, t_us // 1000, 0, *at, *(answer or ()))))
        self._count += 1

    def _answer(
        self, now_us: int, opened: _OpenRead, result: ReadResult | None
    ) -> tuple[Source, float, int, float]:
        """Return where an answer came from, its age, its number of records, and how long the app waited."""
        waited_us = now_us - opened.asked_us
        sources = set() if result is None else set(result.source.values())
        is_remote = "remote" in sources or (waited_us > 0 and not sources)
        source: Source = "remote" if is_remote else "local" if self._connection.is_up else "offline"
        ages = () if result is None else result.age_s.values()
        age_s = round(max(ages, default=0.0), 1)
        return source, age_s, 0 if result is None else len(result), round(waited_us / US_PER_S, 3)

    def _is_due(self, now_us: int) -> bool:
        """Return whether enough items wait, or the first one for long enough."""
        waiting = self._waiting
        if not waiting:
            return False
        return len(waiting) >= REPORT_ITEMS or now_us - waiting[0][1].t_ms * 1000 >= REPORT_US

    def _build_report(self) -> UsageReport:
        """Build a report of all items that wait, and forget these: they are sent until they are answered."""
        queries: dict[UsedQuery, int] = {}
        items: list[UsageItem] = []
        for query, item in self._waiting:
            number = queries.setdefault(query, len(queries))
            items.append(replace(item, query=number))
        self._waiting.clear()
        return UsageReport(self._connection.incarnation, list(queries), items)

    def _cell(self, place: tuple[float, float] | None) -> _Place:
        """Return the middle of the cell of a place; Nones: the place is unknown."""
        if place is None:
            return None, None
        lat = self._middle(place[0], self._cell_deg)
        lon_deg = self._cell_deg / max(math.cos(math.radians(lat)), 0.01)
        return min(max(lat, -90.0), 90.0), min(max(self._middle(place[1], lon_deg), -180.0), 180.0)

    @staticmethod
    def _middle(degrees: float, size_deg: float) -> float:
        """Return the middle of the cell of some degrees."""
        return round((math.floor(degrees / size_deg) + 0.5) * size_deg, 5)


def place_of_record(record: Fields | None) -> tuple[float, float] | None:
    """Return the place in a record: its columns ``loc``, or ``lat`` and ``lon``; None: it has none."""
    if record is None:
        return None
    return point(record.get("loc")) or point(record)


def _leaves(effects: Iterable[Effect]) -> bool:
    """Return whether a request leaves the device."""
    return any(
        isinstance(effect, Send) and effect.to == SERVICE and isinstance(effect.message, Ask | AskBatch)
        for effect in effects
    )
