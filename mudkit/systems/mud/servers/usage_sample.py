"""Usage that the policy generator keeps: a bounded, durable sample of what devices report (Mobius 6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from mudkit.events import Record, Store
from mudkit.systems.mud.messages.parts import app_of, netid_of
from mudkit.systems.mud.messages.servers import Verified
from mudkit.systems.mud.messages.usage import Op, Source, UsageReport
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
    """A read or write that was reported, as stored; :data:`mudkit.trace.schema.USAGE` has its columns."""

    device: str
    app: str
    t_us: int
    table: str
    op: Op
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
            self._store.put(_key_of(self._following), row)
            self._following += 1
            yield Record("usage", as_columns(row))
        reported.following[start] = following
        for former in list(reported.following)[:-_MAX_STARTS]:
            del reported.following[former]
        self._store.put(_SENDER + endpoint, reported)
        self._collect(now_us)

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
