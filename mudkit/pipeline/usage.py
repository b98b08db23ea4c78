"""Usage of a trace on Spark, as a learner takes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.pipeline.executors import provide
from mudkit.pipeline.tables import ddl
from mudkit.trace.schema import USAGE, device_order
from mudkit.trace.usage import (
    ALL_KM,
    KNOWN_DEVICES,
    LEARNT_US,
    MAX_QUERIES,
    REPEATED_READS,
    Counted,
    Repeated,
    ReportedUsage,
    Survey,
    devices_for,
)

GATHERED_ROWS: Final = 200_000
"""Rows of a table that are learnt from in this process, at most, as many as a policy generator keeps."""
_NUMBERED: Final = pa.schema([("device", pa.string()), ("number", pa.int64())])
_T_US: Final = "unix_micros(ts)"
_Key = tuple[str, str]


class SparkUsage:
    """Usage in a DataFrame with the columns of a trace's ``usage``: see :class:`mudkit.trace.usage.Usage`.

    A table with few rows is learnt from in this process. Of larger ones this process gets counts, and what
    :meth:`repeated` returns.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        self._table_rows: dict[str, int] = defaultdict(int)
        self._gathered: tuple[str, ReportedUsage] | None = None
        self._surveyed: dict[int, Sequence[Survey]] = {}

    def surveys(self, min_devices: int) -> Sequence[Survey]:
        """See :class:`mudkit.trace.usage.Usage`."""
        if min_devices not in self._surveyed:
            self._surveyed[min_devices] = self._survey(min_devices)
        return self._surveyed[min_devices]

    def _survey(self, min_devices: int) -> Sequence[Survey]:
        """Count the usage of each app and table, in order."""
        of_device = (
            self._rows.where("op <> 'change'")
            .groupBy("app", "table", "device")
            .agg(
                F.count("*").alias("rows"),
                F.count_if(_is_area()).alias("areas"),
                F.count_if(F.col("op") == "read").alias("reads"),
                F.count_if(F.col("op") == "write").alias("writes"),
                F.count_if((F.col("op") == "write") & _has_place()).alias("placed"),
                F.count_if(F.col("op") == "register").alias("registered"),
            )
        )
        of_table = of_device.groupBy("app", "table").agg(
            F.sum("rows").alias("rows"),
            F.sum("areas").alias("areas"),
            F.count_if(F.col("areas") > 0).alias("devices"),
            F.sum("writes").alias("writes"),
            F.count_if(F.col("writes") > 0).alias("writers"),
            F.sum("placed").alias("placed"),
        )
        by_table = of_device.groupBy("table").agg(
            F.sum("reads").alias("reads"),
            F.count_distinct(F.when(F.col("reads") > 0, F.col("device"))).alias("readers"),
            F.sum("registered").alias("registered"),
        )
        table_reads = {
            row.table: (Counted(row.reads, row.readers), row.registered > 0) for row in by_table.collect()
        }
        areas: dict[_Key, Counted] = {}
        written: dict[_Key, tuple[Counted, int]] = {}
        self._table_rows.clear()
        for row in of_table.collect():
            areas[row.app, row.table] = Counted(row.areas, row.devices)
            written[row.app, row.table] = Counted(row.writes, row.writers), row.placed
            self._table_rows[row.table] += row.rows
        for row in self._rows.where("op = 'change'").groupBy("table").count().collect():
            self._table_rows[row.table] += row["count"]
        most_read, common, spans = self._queries(min_devices)
        surveys = []
        for app, table in sorted(areas):
            key = app, table
            query, of_query = most_read.get(key, (None, Counted(0, 0)))
            of_reads = areas[key], query, of_query, common[key], spans.get(key, 0)
            watched = self._watched(app, table, query)
            surveys.append(Survey(app, table, *of_reads, *written[key], *table_reads[table], *watched))
        return surveys

    def reads(
        self,
        of: Survey,
        query: str | None,
        window_s: float,
        sample: int,
        seed: int,
        since_us: int | None = None,
    ) -> Any:
        """See :class:`mudkit.trace.usage.Usage`."""
        if (gathered := self._gather(of.table)) is not None:
            return gathered.reads(of, query, window_s, sample, seed, since_us)
        is_chosen = _is_area() if query is None else (F.col("op") == "read") & (F.col("query") == query)
        rows = self._of_app(of).where(is_chosen)
        known = of.areas if query is None else of.of_most_read
        if since_us is not None:
            rows, known = rows.where(F.expr(_T_US) >= since_us), of.of_watched
        return _as_reads(_some_devices(rows, known.devices, sample, seed), window_s)

    def changes(self, of: Survey) -> Any:
        """See :class:`mudkit.trace.usage.Usage`."""
        if (gathered := self._gather(of.table)) is not None:
            return gathered.changes(of)
        of_query = (F.col("table") == of.table) & (F.col("query") == of.most_read)
        return self._rows.where(of_query & (F.col("op") == "change")).select("device", "ts", *_places())

    def requests(self, of: Survey, window_s: float, most: int, seed: int) -> Any:
        """See :class:`mudkit.trace.usage.Usage`."""
        if (gathered := self._gather(of.table)) is not None:
            return gathered.requests(of, window_s, most, seed)
        rows = self._rows.where((F.col("table") == of.table) & (F.col("op") == "read"))
        sample = devices_for(of.table_reads.rows, of.table_reads.devices, most)
        return _as_reads(_some_devices(rows, of.table_reads.devices, sample, seed), window_s)

    def writes(self, of: Survey) -> Any:
        """See :class:`mudkit.trace.usage.Usage`."""
        if (gathered := self._gather(of.table)) is not None:
            return gathered.writes(of)
        rows = self._of_app(of).where(F.col("op") == "write").select("device", "ts", *_places())
        first = rows.groupBy("device", "ts").agg(F.min(F.struct("lat", "lon")).alias("place"))
        return first.select("device", "ts", "place.lat", "place.lon")

    def positions(self, of: Survey, *, everywhere: bool) -> Any:
        """See :class:`mudkit.trace.usage.Usage`."""
        if (gathered := self._gather(of.table)) is not None:
            return gathered.positions(of, everywhere=everywhere)
        rows = self._rows.where((F.col("table") == of.table) & (F.col("op") == "write"))
        return (rows if everywhere else rows.where(_has_place())).select("device", "ts", *_places())

    def repeated(self, of: Survey, every_us: int, most: int, seed: int) -> Repeated:
        """See :class:`mudkit.trace.usage.Usage`."""
        if (gathered := self._gather(of.table)) is not None:
            return gathered.repeated(of, every_us, most, seed)
        rows = self._of_app(of).withColumn("t_us", F.expr(_T_US))
        number = F.array_position(F.array(*map(F.lit, of.queries)), F.col("query")) - 1
        reads = rows.where("op = 'read'").withColumn("query", number).where("query >= 0")
        interval = F.expr(f"(t_us - pmod(t_us, {every_us})) div {every_us}")
        reads = reads.groupBy("device", "query", interval.alias("interval")).agg(F.max("t_us").alias("t_us"))
        place = F.max(F.when(_has_place(), F.struct("t_us", "lat", "lon"))).alias("place")
        devices = rows.groupBy("device").agg(F.max("t_us").alias("t_us"), place)
        last = devices.select("device", F.col("t_us").alias("last"))
        reads = reads.join(last, "device").where(F.col("t_us") > F.col("last") - LEARNT_US)
        firsts = reads.groupBy("device", "query").agg(F.min("interval").alias("first"))
        counted = firsts.join(devices, "device").select(
            "device", (interval - F.col("first") + 1).alias("some")
        )
        (total,) = counted.agg(F.sum("some").alias("count"), F.countDistinct("device").alias("of")).collect()
        kept = devices_for(total["count"], total["of"], most)
        if kept < total["of"]:
            drawn = _drawn(reads.select("device").distinct(), kept, seed)
            reads, devices = (frame.join(drawn, "device", "left_semi") for frame in (reads, devices))
        places = devices.select("device", "t_us", "place.lat", "place.lon")
        return Repeated(
            reads.select(*REPEATED_READS.names).toArrow().cast(REPEATED_READS),
            places.toArrow().cast(KNOWN_DEVICES),
        )

    def _queries(
        self, min_devices: int
    ) -> tuple[dict[_Key, tuple[str, Counted]], dict[_Key, tuple[str, ...]], dict[_Key, int]]:
        """Return by app and table the query that is read most, those of enough devices, and their span."""
        t_us = F.expr(_T_US)
        repeated = self._rows.where("op = 'read' AND query IS NOT NULL")
        of_device = repeated.groupBy("app", "table", "query", "device").agg(
            F.count("*").alias("reads"), F.min(t_us).alias("first"), F.max(t_us).alias("last")
        )
        of_query = of_device.groupBy("app", "table", "query").agg(
            F.sum("reads").alias("reads"),
            F.count("*").alias("devices"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
        of_table = Window.partitionBy("app", "table")
        ranked = of_query.withColumns(
            {
                "by_reads": F.row_number().over(of_table.orderBy(F.desc("reads"), "query")),
                "by_devices": F.row_number().over(of_table.orderBy(F.desc("devices"), "query")),
                "span": F.max("last").over(of_table) - F.min("first").over(of_table),
            }
        )
        is_common = (F.col("by_devices") <= MAX_QUERIES) & (F.col("devices") >= min_devices)
        most_read: dict[_Key, tuple[str, Counted]] = {}
        common: dict[_Key, tuple[str, ...]] = defaultdict(tuple)
        spans: dict[_Key, int] = {}
        for row in ranked.where(is_common | (F.col("by_reads") == 1)).collect():
            key = row.app, row.table
            spans[key] = row.span
            if row.by_reads == 1:
                most_read[key] = row.query, Counted(row.reads, row.devices)
            if row.by_devices <= MAX_QUERIES and row.devices >= min_devices:
                common[key] = tuple(sorted([*common[key], row.query]))
        return most_read, common, spans

    def _watched(self, app: str, table: str, query: str | None) -> tuple[int | None, Counted]:
        """Return from when on processors watch a query, None: they do not; and its reads since then."""
        nothing = Counted(0, 0)
        if query is None:
            return None, nothing
        of_query = self._rows.where((F.col("table") == table) & (F.col("query") == query))
        begun = of_query.where("op = 'change'").groupBy("device").agg(F.min(F.expr(_T_US)).alias("first"))
        (last,) = begun.agg(F.max("first").alias("first")).collect()
        if last["first"] is None:
            return None, nothing
        is_since = (F.col("app") == app) & (F.col("op") == "read") & (F.expr(_T_US) >= last["first"])
        reads = of_query.where(is_since)
        (of,) = reads.agg(F.count("*").alias("rows"), F.count_distinct("device").alias("of")).collect()
        return last["first"], Counted(of["rows"], of["of"])

    def _of_app(self, of: Survey) -> DataFrame:
        """Return the rows of an app's table."""
        return self._rows.where((F.col("app") == of.app) & (F.col("table") == of.table))

    def _gather(self, table: str) -> ReportedUsage | None:
        """Return the rows of a table in this process; None: they are too many."""
        if self._table_rows[table] > GATHERED_ROWS:
            return None
        if self._gathered is None or self._gathered[0] != table:
            rows = self._rows.where(F.col("table") == table).select(*USAGE.names).toArrow()
            self._gathered = table, ReportedUsage(rows.cast(USAGE))
        return self._gathered[1]


def _is_area() -> Column:
    """Return whether a row is a read of an area."""
    return (F.col("op") == "read") & F.col("box_km").isNotNull() & _has_place()


def _places() -> list[Column]:
    """Return the columns of the places of rows; 0 where they are unknown."""
    return [F.coalesce(name, F.lit(0.0)).alias(name) for name in ("lat", "lon")]


def _as_reads(rows: DataFrame, window_s: float) -> DataFrame:
    """Return reads as those of a trace, one of equal ones; one without an area is of all places."""
    box = F.when(_is_area(), F.col("box_km")).otherwise(F.lit(ALL_KM)).alias("box_km")
    window = F.coalesce("window_s", F.lit(window_s)).alias("window_s")
    return rows.select("device", "ts", *_places(), box, window).distinct()


def _has_place() -> Column:
    """Return whether a row has a place."""
    return F.col("lat").isNotNull() & F.col("lon").isNotNull()


def _some_devices(rows: DataFrame, devices: int, count: int, seed: int) -> DataFrame:
    """Return the rows of some of the devices; all if there are no more."""
    if devices <= count:
        return rows
    return rows.join(_drawn(rows.select("device").distinct(), count, seed), "device", "left_semi")


def _drawn(devices: DataFrame, count: int, seed: int) -> DataFrame:
    """Draw devices as :func:`mudkit.trace.usage.sample_devices` does."""
    provide(devices.sparkSession)
    numbered = devices.mapInArrow(partial(_numbered, seed=seed), ddl(_NUMBERED))
    return numbered.orderBy("number", "device").limit(count).select("device")


def _numbered(batches: Iterator[pa.RecordBatch], seed: int) -> Iterator[pa.RecordBatch]:
    """Add to each device its random number."""
    for batch in batches:
        if len(batch):
            numbers = pa.array(device_order(batch.column(0).to_pylist(), seed))
            yield pa.record_batch([batch.column(0), numbers], schema=_NUMBERED)
