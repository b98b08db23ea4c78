"""Usage that the policy generator keeps: a bounded, durable sample of what is reported (Mobius 6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict

from mudkit.events import Record, Store
from mudkit.systems.mud.messages.parts import app_of, netid_of
from mudkit.systems.mud.messages.servers import Verified
from mudkit.systems.mud.messages.usage import ChangeReport, Op, Source, UsageReport, WatchedQuery
from mudkit.wire import Fields

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS: Final = 200_000
"""Rows of the sample; beyond it the oldest ones are removed."""
_MAX_STARTS: Final = 4
"""Starts of an app that are distinguished; a report of an earlier one comes late by a fault only."""
_ROW: Final = "usage row "
_SENDER: Final = "usage of "


class UsageRow(Struct, frozen=True, array_like=True):
    """Row of the sample as stored; :data:`mudkit.trace.schema.USAGE` has its columns.

    That of a ``change`` has a processor in place of a device, no app, and the number of changes as records.
    """

    device: str
    app: str
    t_us: int
    table: str
    op: Op | Literal["change"]
    query: str | None
    box_km: float | None
    window_s: float | None
    lat: float | None
    lon: float | None
    source: Source | None
    age_s: float | None
    records: int | None
    waited_s: float | None
    user: str | None


class _Reported(Struct):
    """Progress of an app's reports: by start, the number of the next item; and how many items were lost."""

    following: dict[str, int]
    lost: int


class UsageSample:
    """Sample of usage in the store of the generator."""

    def __init__(self, store: Store, keep_us: int) -> None:
        self._store = store
        self._keep_us = keep_us
        numbers = [int(key.removeprefix(_ROW)) for key in store.keys(_ROW)]
        self._first = numbers[0] if numbers else 0
        self._following = numbers[-1] + 1 if numbers else 0

    def __len__(self) -> int:
        return self._following - self._first

    def take(self, now_us: int, verified: Verified, report: UsageReport) -> Iterator[Record]:
        """Store the items of a report that are new, and yield them as rows of the trace."""
        endpoint, start = verified.endpoint, report.incarnation
        reported = self._store.get(_SENDER + endpoint, _Reported) or _Reported({}, 0)
        following = reported.following.pop(start, 0)
        user = None if verified.claims is None else verified.claims.user
        for item in report.items:
            if item.number < following:
                continue
            reported.lost += item.number - following
            following = item.number + 1
            query = report.queries[item.query]
            row = UsageRow(
                netid_of(endpoint), app_of(endpoint), item.t_ms * 1000, query.table, query.op, query.text,
                query.box_km, query.window_s, item.lat, item.lon, item.source, item.age_s, item.records,
                item.waited_s, user,
            )  # fmt: skip
            yield self._add(row)
        self._keep_progress(_SENDER + endpoint, reported, start, following)
        self._collect(now_us)

    def take_changes(self, now_us: int, source: str, report: ChangeReport) -> Iterator[Record]:
        """Store the items of a processor's report that are new, and yield them as rows of the trace.

        After items that were lost, all its queries are watched anew.
        """
        start = str(report.generation)
        reported = self._store.get(_SENDER + source, _Reported) or _Reported({}, 0)
        following = reported.following.pop(start, 0)
        for item in report.items:
            if item.number < following:
                continue
            if item.number > following:
                reported.lost += item.number - following
                for query in report.queries:
                    yield self._add_change(source, query, item.t_ms, 0)
            following = item.number + 1
            yield self._add_change(source, report.queries[item.query], item.t_ms, item.changes)
        self._keep_progress(_SENDER + source, reported, start, following)
        self._collect(now_us)

    def _add_change(self, source: str, query: WatchedQuery, t_ms: int, changes: int) -> Record:
        """Store changes of a query; return them as a row of the trace."""
        row = UsageRow(
            netid_of(source), "", t_ms * 1000, query.table, "change", query.text,
            None, None, None, None, None, None, changes, None, None,
        )  # fmt: skip
        return self._add(row)

    def _add(self, row: UsageRow) -> Record:
        """Store a row; return it as one of the trace."""
        self._store.put(_key_of(self._following), row)
        self._following += 1
        return Record("usage", as_columns(row))

    def _keep_progress(self, key: str, reported: _Reported, start: str, following: int) -> None:
        """Store the progress of a sender's reports."""
        reported.following[start] = following
        for former in list(reported.following)[:-_MAX_STARTS]:
            del reported.following[former]
        self._store.put(key, reported)

    def most_read(self, most: int) -> list[WatchedQuery]:
        """Return the query of each app and table that is read most, of more than ``most`` those read most."""
        counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for _, row in self._store.items(_ROW, UsageRow):
            if row.op == "read" and row.query is not None:
                counts[row.app, row.table][row.query] += 1
        ranked = sorted(
            min((-times, WatchedQuery(table, text)) for text, times in of.items())
            for (_, table), of in counts.items()
        )
        return list(dict.fromkeys(query for _, query in ranked))[:most]

    def forget(self, user: str) -> int:
        """Remove all rows of a user; return how many there were."""
        keys = [key for key, row in self._store.items(_ROW, UsageRow) if row.user == user]
        for key in keys:
            self._store.delete(key)
        return len(keys)

    def lost(self) -> dict[str, int]:
        """Return, by endpoint, how many items never came."""
        senders = self._store.items(_SENDER, _Reported)
        return {key.removeprefix(_SENDER): reported.lost for key, reported in senders}

    def table(self, start_us: int) -> pa.Table:
        """Return the sample as a table of the trace; ``start_us`` is when virtual time began."""
        import pyarrow as pa  # loading it takes longer than the rest of the generator

        from mudkit.trace.schema import USAGE

        rows = [row for _, row in self._store.items(_ROW, UsageRow)]
        columns = [{**as_columns(row), "ts": row.t_us + start_us} for row in rows]
        return pa.Table.from_pylist(columns, USAGE)

    def _collect(self, now_us: int) -> None:
        """Remove the first rows that are too old, or beyond ``MAX_ROWS``."""
        while self._first < self._following:
            key = _key_of(self._first)
            row = self._store.get(key, UsageRow)
            is_old = row is not None and row.t_us < now_us - self._keep_us
            if row is not None and not is_old and len(self) <= MAX_ROWS:
                return
            self._store.delete(key)
            self._first += 1


def as_columns(row: UsageRow) -> Fields:
    """Return a row by column, without its user."""
    columns = asdict(row)
    del columns["user"]
    return columns


def _key_of(number: int) -> str:
    """Return the key of a row in the store."""
    return f"{_ROW}{number:015d}"
