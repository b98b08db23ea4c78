"""Usage as a learner takes it: what is counted of an app's table, and the rows that it learns from.

A learner asks a :class:`Usage` for counts first, and then for what it needs. :class:`ReportedUsage` has the
rows of a policy generator in this process; :func:`mudkit.pipeline.mine` has those of a trace on Spark, and
answers the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.display import shows_fields
from mudkit.errors import TraceContentError
from mudkit.trace.recordings import device_codes
from mudkit.trace.schema import POSITIONS, READS, USAGE, device_order, epoch_us, with_read_ids
from mudkit.units import US_PER_S

ALL_KM: Final = 50_000.0
"""Side of a square that has all places."""
MAX_QUERIES: Final = 64
"""Queries of a policy, at most: those that most devices read."""
LEARNT_US: Final = 366 * 86_400 * US_PER_S
"""Time before a device's last report whose reads are learnt from: its clock may not have been set before."""
_MIN_DEVICES: Final = 20
"""Devices of a sample, at least, if there are as many."""
READ_FIELDS: Final = pa.schema([field for field in READS if field.name != "read_id"])
REPEATED_READS: Final = pa.schema([("device", pa.string()), ("query", pa.int64()), ("t_us", pa.int64())])
KNOWN_DEVICES: Final = pa.schema(
    [("device", pa.string()), ("t_us", pa.int64()), ("lat", pa.float64()), ("lon", pa.float64())]
)


class Survey(NamedTuple):
    """Counts of the usage of an app's table.

    Attributes
    ----------
    app, table : str
    areas : Counted
        Reads of areas.
    most_read : str or None
        The query that is read most; of several, the first by its text. None: no query is repeated.
    of_most_read : Counted
        Reads of this query.
    queries : tuple of str
        The queries that enough devices have read repeatedly, in order: of more than :data:`MAX_QUERIES` those
        that most devices read.
    span_us : int
        Time from the first to the last read of a query.
    written : Counted
        Writes of the app to the table.
    placed_writes : int
        Those of them that have a place.
    table_reads : Counted
        Reads of the table, by any app.
    is_read_continuously : bool
        Whether any app has begun a continuous read of the table.
    watched_us : int or None
        Time from which on all processors that have reported changes of ``most_read`` watch it; None: none.
    of_watched : Counted
        Reads of it since then.
    """

    app: str
    table: str
    areas: Counted
    most_read: str | None
    of_most_read: Counted
    queries: tuple[str, ...]
    span_us: int
    written: Counted
    placed_writes: int
    table_reads: Counted
    is_read_continuously: bool
    watched_us: int | None
    of_watched: Counted


class Counted(NamedTuple):
    """Number of reads or writes, and of the devices that have made them."""

    rows: int
    devices: int


@shows_fields
@dataclass(frozen=True)
class Repeated:
    """Repeated reads of some devices.

    Attributes
    ----------
    reads : pyarrow.Table
        ``device, query, t_us``: of the reads of a query in an interval the last one; ``query`` is its number.
        None is a year older than the device's last report.
    devices : pyarrow.Table
        ``device, t_us, lat, lon``: when each device has reported last, and where it was; null: unknown.
    """

    reads: pa.Table
    devices: pa.Table


class Usage(Protocol):
    """Usage of apps and tables. Tables are of Arrow, or DataFrames of Spark."""

    def surveys(self, min_devices: int) -> Sequence[Survey]:
        """Count the usage of each app and table, in order."""
        ...

    def reads(
        self,
        of: Survey,
        query: str | None,
        window_s: float,
        sample: int,
        seed: int,
        since_us: int | None = None,
    ) -> Any:
        """Return reads of areas, or of a query, as those of a trace; of equal ones, one.

        Parameters
        ----------
        of : Survey
        query : str or None
            Query, whose reads are of all places; None: reads of areas.
        window_s : float
            Window of reads that do not say it.
        sample : int
            Number of devices that are drawn, if there are more.
        seed : int
        since_us : int, optional
            Time from which on.
        """
        ...

    def positions(self, of: Survey, *, everywhere: bool) -> Any:
        """Return what any app has written to the table as positions of a trace.

        ``everywhere``: also what was written without a place.
        """
        ...

    def changes(self, of: Survey) -> Any:
        """Return when records of the survey's most read query have changed, as positions of all places.

        There is one, too, when a processor has begun to watch it: what changed before is unknown.
        """
        ...

    def requests(self, of: Survey, window_s: float, most: int, seed: int) -> Any:
        """Return reads of the table by any app, as those of a trace; of equal ones, one.

        Parameters
        ----------
        of : Survey
        window_s : float
            Window of reads that do not say it. A read without an area is of all places.
        most : int
            Number of reads, at most, about: if there are more, devices are drawn.
        seed : int
        """
        ...

    def writes(self, of: Survey) -> Any:
        """Return what the app has written to the table as positions of a trace, one a device and moment.

        One without a place is where no place is known: at 0° north, 0° east.
        """
        ...

    def repeated(self, of: Survey, every_us: int, most: int, seed: int) -> Repeated:
        """Return the last reads of the survey's queries in each interval, in this process.

        Parameters
        ----------
        of : Survey
        every_us : int
            Length of an interval.
        most : int
            Intervals from a device's first read of each query to its last report, at most, about: if there
            are more, devices are drawn.
        seed : int
        """
        ...


class ReportedUsage:
    """Usage in a table of this process.

    Raises
    ------
    TraceContentError
        The table does not have the columns of a trace's ``usage``.
    """

    def __init__(self, rows: pa.Table) -> None:
        if not set(USAGE.names) <= set(rows.column_names):
            raise TraceContentError(
                "This is no table of usage.",
                found=", ".join(rows.column_names),
                expected=", ".join(USAGE.names),
            )
        self._rows = rows

    def surveys(self, min_devices: int) -> Sequence[Survey]:
        """See :class:`Usage`."""
        reported = self._rows.filter(pc.not_equal(self._rows["op"], "change"))
        keys = (reported[name].to_pylist() for name in ("app", "table"))
        return [self._survey(app, table, min_devices) for app, table in sorted(set(zip(*keys, strict=True)))]

    def reads(
        self,
        of: Survey,
        query: str | None,
        window_s: float,
        sample: int,
        seed: int,
        since_us: int | None = None,
    ) -> pa.Table:
        """See :class:`Usage`."""
        rows = self._of_app(of.app, of.table)
        if since_us is not None:
            rows = _since(rows, since_us)
        rows = _reads_of_areas(rows) if query is None else _reads_of_query(rows, query)
        return _as_reads(_some_devices(rows, sample, seed), window_s)

    def changes(self, of: Survey) -> pa.Table:
        """See :class:`Usage`."""
        return _as_positions(self._changes_of(of.table, of.most_read))

    def _changes_of(self, table: str, query: str | None) -> pa.Table:
        """Return what processors have reported of a query."""
        changed = _of_op(self._of_table(table), "change")
        return changed.filter(pc.equal(changed["query"], query)) if query is not None else changed.slice(0, 0)

    def requests(self, of: Survey, window_s: float, most: int, seed: int) -> pa.Table:
        """See :class:`Usage`."""
        rows = _of_op(self._of_table(of.table), "read")
        sample = devices_for(of.table_reads.rows, of.table_reads.devices, most)
        return _as_reads(_some_devices(rows, sample, seed), window_s)

    def writes(self, of: Survey) -> pa.Table:
        """See :class:`Usage`."""
        written = _as_positions(_of_op(self._of_app(of.app, of.table), "write"))
        written = written.sort_by([(name, "ascending") for name in ("device", "ts", "lat", "lon")])
        if len(written):
            device, t_us = device_codes(written["device"]), epoch_us(written["ts"])
            is_first = (np.diff(device, prepend=-1) != 0) | (np.diff(t_us, prepend=t_us[0] - 1) != 0)
            written = written.filter(pa.array(is_first))
        return written

    def positions(self, of: Survey, *, everywhere: bool) -> pa.Table:
        """See :class:`Usage`."""
        written = _of_op(self._of_table(of.table), "write")
        return _as_positions(written if everywhere else written.filter(_has_place(written)))

    def repeated(self, of: Survey, every_us: int, most: int, seed: int) -> Repeated:
        """See :class:`Usage`."""
        rows = self._of_app(of.app, of.table)
        numbers = pc.index_in(rows["query"], value_set=pa.array(of.queries, pa.string()))
        is_repeated = pc.and_(pc.equal(rows["op"], "read"), pc.is_valid(numbers))
        some = rows.filter(is_repeated)
        t_us = epoch_us(some["ts"])
        reads = pa.table(
            {
                "device": some["device"],
                "query": numbers.filter(is_repeated).cast(pa.int64()),
                "t_us": t_us,
                "interval": t_us // every_us,
            }
        )
        reads = reads.group_by(["device", "query", "interval"]).aggregate([("t_us", "max")])
        reads = pa.table([reads["device"], reads["query"], reads["t_us_max"]], schema=REPEATED_READS)
        devices = _last_reports(rows)
        last = devices["t_us"].take(
            pc.index_in(reads["device"], value_set=devices["device"].combine_chunks())
        )
        reads = reads.filter(pc.greater(reads["t_us"], pc.subtract(last, LEARNT_US)))
        count = count_intervals(reads, devices, every_us)
        names = reads["device"].unique().to_pylist()
        kept = pa.array(sample_devices(names, devices_for(count, len(names), most), seed), pa.string())
        return Repeated(
            *(table.filter(pc.is_in(table["device"], value_set=kept)) for table in (reads, devices))
        )

    def _of_app(self, app: str, table: str) -> pa.Table:
        """Return the rows of an app's table."""
        rows = self._of_table(table)
        return rows.filter(pc.equal(rows["app"], app))

    def _of_table(self, table: str) -> pa.Table:
        """Return the rows of a table, of any app."""
        return self._rows.filter(pc.equal(self._rows["table"], table))

    def _survey(self, app: str, table: str, min_devices: int) -> Survey:
        """Count the usage of an app's table."""
        nothing = Counted(0, 0)
        rows = self._of_app(app, table)
        areas = _reads_of_areas(rows)
        written, of_table = _of_op(rows, "write"), self._of_table(table)
        repeated = rows.filter(pc.and_(pc.equal(rows["op"], "read"), pc.is_valid(rows["query"])))
        reads = Counter(repeated["query"].to_pylist())
        pairs = set(zip(repeated["query"].to_pylist(), repeated["device"].to_pylist(), strict=True))
        devices = Counter(query for query, _ in pairs)
        most_read = min(reads, key=lambda query: (-reads[query], query), default=None)
        common = [query for query, count in devices.items() if count >= min_devices]
        common = sorted(common, key=lambda query: (-devices[query], query))[:MAX_QUERIES]
        t_us = epoch_us(repeated["ts"])
        changed, watched_us, of_watched = self._changes_of(table, most_read), None, nothing
        if most_read is not None and len(changed):
            begun = changed.group_by("device").aggregate([("ts", "min")])
            watched_us = int(epoch_us(begun["ts_min"]).max())
            of_watched = _count(_since(_reads_of_query(rows, most_read), watched_us))
        return Survey(
            app,
            table,
            _count(areas),
            most_read,
            nothing if most_read is None else Counted(reads[most_read], devices[most_read]),
            tuple(sorted(common)),
            int(t_us.max() - t_us.min()) if len(t_us) else 0,
            _count(written),
            int(pc.sum(_has_place(written)).as_py() or 0),
            _count(_of_op(of_table, "read")),
            len(_of_op(of_table, "register")) > 0,
            watched_us,
            of_watched,
        )


def sample_devices(names: Sequence[str], count: int, seed: int) -> Sequence[str]:
    """Return some devices, drawn by their names and a seed; all of them if there are no more."""
    if len(names) <= count:
        return names
    order = device_order(names, seed).tolist()
    return [name for _, name in sorted(zip(order, names, strict=True))[:count]]


def devices_for(count: int, devices: int, most: int) -> int:
    """Return how many of some devices have ``most`` of ``count`` things, about; a few at least."""
    return devices if count <= most else max(devices * most // count, _MIN_DEVICES)


def count_intervals(reads: pa.Table, devices: pa.Table, every_us: int) -> int:
    """Count the intervals from each device's first read of a query to its last report."""
    firsts = reads.group_by(["device", "query"]).aggregate([("t_us", "min")])
    last = devices["t_us"].take(pc.index_in(firsts["device"], value_set=devices["device"].combine_chunks()))
    return int((last.to_numpy() // every_us - firsts["t_us_min"].to_numpy() // every_us + 1).sum())


def _count(rows: pa.Table) -> Counted:
    """Count rows and their devices."""
    return Counted(len(rows), int(pc.count_distinct(rows["device"]).as_py()))


def _since(rows: pa.Table, since_us: int) -> pa.Table:
    """Return the rows from a time on."""
    return rows.filter(pa.array(epoch_us(rows["ts"]) >= since_us))


def _of_op(rows: pa.Table, op: str) -> pa.Table:
    """Return the rows of one kind."""
    return rows.filter(pc.equal(rows["op"], op))


def _as_positions(written: pa.Table) -> pa.Table:
    """Return writes as positions of a trace."""
    columns = {name: written[name] for name in ("device", "ts")}
    columns |= {name: pc.fill_null(written[name], 0.0) for name in ("lat", "lon")}
    return pa.table(columns | {"speed_mps": pa.nulls(len(written), pa.float64())}).cast(POSITIONS)


def _as_reads(rows: pa.Table, window_s: float) -> pa.Table:
    """Return reads as those of a trace, one of equal ones; one without an area is of all places."""
    columns = {name: rows[name] for name in ("device", "ts")}
    columns |= {name: pc.fill_null(rows[name], 0.0) for name in ("lat", "lon")}
    columns["box_km"] = pc.if_else(_is_area(rows), rows["box_km"], ALL_KM)
    columns["window_s"] = pc.fill_null(rows["window_s"], window_s)
    columns["origin"] = pa.array(["recorded"] * len(rows), pa.string())
    reads = with_read_ids(pa.table(columns).select(READ_FIELDS.names).cast(READ_FIELDS))
    _, first = np.unique(reads["read_id"].to_numpy(), return_index=True)
    return reads.take(pa.array(np.sort(first)))


def _reads_of_areas(rows: pa.Table) -> pa.Table:
    """Return the reads of areas among some rows."""
    return rows.filter(pc.and_(pc.equal(rows["op"], "read"), _is_area(rows)))


def _is_area(rows: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether it has an area."""
    return pc.and_(pc.is_valid(rows["box_km"]), _has_place(rows))


def _reads_of_query(rows: pa.Table, query: str) -> pa.Table:
    """Return the reads of a query among some rows."""
    return rows.filter(pc.and_(pc.equal(rows["op"], "read"), pc.equal(rows["query"], query)))


def _has_place(rows: pa.Table) -> pa.ChunkedArray:
    """Return for each row whether it has a place."""
    return pc.and_(pc.is_valid(rows["lat"]), pc.is_valid(rows["lon"]))


def _some_devices(rows: pa.Table, count: int, seed: int) -> pa.Table:
    """Return the rows of some devices; all if there are no more."""
    kept = sample_devices(rows["device"].unique().to_pylist(), count, seed)
    return rows.filter(pc.is_in(rows["device"], value_set=pa.array(kept, pa.string())))


def _last_reports(rows: pa.Table) -> pa.Table:
    """Return when each device has reported last, and where it was last."""
    last = pa.table({"device": rows["device"], "t_us": epoch_us(rows["ts"])})
    last = last.group_by("device").aggregate([("t_us", "max")])
    placed = rows.filter(_has_place(rows))
    columns = (placed[name].to_pylist() for name in ("device", "lat", "lon"))
    places: dict[str, tuple[int, float, float]] = {}
    for device, t_us, lat, lon in zip(next(columns), epoch_us(placed["ts"]).tolist(), *columns, strict=True):
        places[device] = max(places.get(device, (t_us, lat, lon)), (t_us, lat, lon))
    where = [places.get(device, (0, None, None)) for device in last["device"].to_pylist()]
    lats, lons = ([place[number] for place in where] for number in (1, 2))
    return pa.table([last["device"], last["t_us_max"], lats, lons], schema=KNOWN_DEVICES)
