"""Counts over a trace: by cell and time, by day and hour, by interval, and with Radiator's aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.checks import check_arguments, time_zone, unusable
from mudkit.errors import ParameterError
from mudkit.pipeline.tables import require_columns
from mudkit.trace.tiles import check_cells
from mudkit.units import MERCATOR_END


@check_arguments(types=False)
def cells(
    positions: DataFrame,
    reads: DataFrame | None = None,
    *,
    zooms: Sequence[int] = (12, 14, 16),
    bucket_s: int = 3600,
) -> DataFrame:
    """Count positions and reads by cell and time; :func:`mudkit.trace.cells` counts them without Spark.

    Cells are the tiles of Web Mercator: 2^z by 2^z cells at zoom z. At 37° north a cell is 7.8 km wide at
    zoom 12, 2.0 km at 14 and 490 m at 16.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon, speed_mps``.
    reads : DataFrame, optional
        The reads: ``device, ts, lat, lon``.
    zooms : sequence of int
        Levels to count at, each from 0 to 22.
    bucket_s : int
        Length of a time bucket in seconds; buckets start at multiples of it since 1970 UTC.

    Returns
    -------
    DataFrame
        ``zoom, x, y, bucket_ts, lat, lon`` (the cell's centre), ``positions, devices`` (distinct, with a
        position), ``mean_speed_mps`` (null: no position has a speed), ``reads``. Cells without rows are
        absent. Rows without a possible place have one cell of their own, whose ``x``, ``y``, ``lat`` and
        ``lon`` are null; those without a time a bucket that is null.

    Raises
    ------
    ParameterError, TraceContentError
    """
    check_cells(zooms, bucket_s)
    require_columns(positions, "positions", ("device", "ts", "lat", "lon", "speed_mps"))
    rows = positions.select("device", "ts", "lat", "lon", "speed_mps", F.lit(True).alias("is_position"))
    if reads is not None:
        require_columns(reads, "reads", ("device", "ts", "lat", "lon"))
        no_speed = F.lit(None).cast("double").alias("speed_mps")
        rows = rows.unionByName(
            reads.select("device", "ts", "lat", "lon", no_speed, F.lit(False).alias("is_position"))
        )
    levels = F.explode(F.array([F.lit(zoom) for zoom in sorted({*map(int, zooms)})]))
    bucket = F.timestamp_seconds(F.floor(F.unix_micros("ts") / (bucket_s * 1_000_000)) * bucket_s)
    is_place = F.col("lat").between(-90.0, 90.0) & F.col("lon").between(-180.0, 180.0)
    located = rows.withColumn("zoom", levels).select(
        "*",
        F.when(is_place, _x(F.col("lon"), F.col("zoom"))).alias("x"),
        F.when(is_place, _y(F.col("lat"), F.col("zoom"))).alias("y"),
        bucket.alias("bucket_ts"),
    )
    # By device first, because counting distinct devices at once would process every row twice.
    by_device = located.groupBy("zoom", "x", "y", "bucket_ts", "device").agg(
        F.count_if("is_position").alias("positions"),
        F.count_if(~F.col("is_position")).alias("reads"),
        F.sum("speed_mps").alias("speed_sum"),
        F.count("speed_mps").alias("speed_count"),
    )
    counted = by_device.groupBy("zoom", "x", "y", "bucket_ts").agg(
        F.sum("positions").alias("positions"),
        F.count_if(F.col("positions") > 0).alias("devices"),
        F.try_divide(F.sum("speed_sum"), F.sum("speed_count")).alias("mean_speed_mps"),
        F.sum("reads").alias("reads"),
    )
    side = F.pow(F.lit(2.0), F.col("zoom"))
    lat = F.degrees(F.atan(F.sinh(F.lit(3.141592653589793) * (1 - 2 * (F.col("y") + 0.5) / side))))
    lon = (F.col("x") + 0.5) / side * 360 - 180
    return counted.select(
        "zoom", "x", "y", "bucket_ts", lat.alias("lat"), lon.alias("lon"),
        "positions", "devices", "mean_speed_mps", "reads",
    )  # fmt: skip


def _x(lon: Column, zoom: Column) -> Column:
    """Return the column of a tile from a longitude in degrees."""
    side = F.pow(F.lit(2.0), zoom)
    return F.least(F.floor((lon + 180) / 360 * side), side - 1).cast("int")


def _y(lat: Column, zoom: Column) -> Column:
    """Return the row of a tile, from the north, from a latitude in degrees."""
    side = F.pow(F.lit(2.0), zoom)
    phi = F.radians(F.greatest(F.least(lat, F.lit(MERCATOR_END)), F.lit(-MERCATOR_END)))
    fraction = (1 - F.asinh(F.tan(phi)) / 3.141592653589793) / 2
    return F.greatest(F.least(F.floor(fraction * side), side - 1), F.lit(0)).cast("int")


@check_arguments(types=False)
def propagation(
    positions: DataFrame,
    *,
    zooms: Sequence[int] = (14,),
    interval_s: int = 300,
    thresholds: Sequence[int] = (1, 20, 50),
    message_bytes: int = 400,
    aggregate_bytes: int = 400,
) -> DataFrame:
    """Count the messages before and after Radiator's aggregation, for several thresholds at once.

    In the model each position is one context message, and the messages of one cell and interval share one
    queue with the threshold ``Volume(threshold)``: a full queue is released as one aggregate (Radiator 3.1),
    the rest at the end of the interval as another, so n messages become ``ceil(n / threshold)`` aggregates.
    An aggregate of several messages has a fixed size, as with joins into a bounding box, a mean or a count
    (Radiator 3.1); a single message keeps its size.

    Not modelled are recipients (the server sends each aggregate to each, or fewer by chains), their contexts
    (Radiator applies G for each recipient and message), thresholds of people and time, compression, and joins
    whose size grows, such as the default concatenation. For these run ``mudkit.systems.radiator``.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``.
    zooms : sequence of int
        Sizes of the cells, levels from 0 to 22 as for :func:`mudkit.pipeline.cells`.
    interval_s : int
        Length of an interval in seconds; intervals start at multiples of it since 1970 UTC. The default is
        the paper's for traffic (Radiator 2.1).
    thresholds : sequence of int
        Volumes, each at least 1; 1 is no aggregation. The defaults are those of Radiator 5.
    message_bytes, aggregate_bytes : int
        Size of a message (Radiator 5: 300 to 500 bytes) and of a joined aggregate.

    Returns
    -------
    DataFrame
        ``zoom, x, y, interval_ts, lat, lon`` (the cell's centre), ``threshold, messages_in, aggregates_out,
        bytes_in, bytes_out, devices`` (distinct senders). Cells without messages are absent. Messages without
        a possible place or a time, whose ``x`` or ``interval_ts`` is null, are not aggregated.

    Raises
    ------
    ParameterError, TraceContentError
    """
    numbers: dict[str, Any] = {
        "interval_s": interval_s,
        "message_bytes": message_bytes,
        "aggregate_bytes": aggregate_bytes,
    }
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 31:
            raise unusable(name, value, "a whole number over 0")
    volumes: list[Any] = sorted(set(thresholds))
    if not volumes or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in volumes):
        raise ParameterError(
            "The thresholds are not usable.",
            where="thresholds",
            found=repr(list(thresholds)),
            expected="whole numbers of messages, each at least 1",
        )
    require_columns(positions, "positions", ("device", "ts", "lat", "lon"))
    no_speed = F.lit(None).cast("double").alias("speed_mps")
    counted = cells(
        positions.select("device", "ts", "lat", "lon", no_speed), zooms=zooms, bucket_s=interval_s
    )
    volume_column = F.explode(F.array([F.lit(volume).cast("bigint") for volume in volumes]))
    queues = counted.select("*", volume_column.alias("threshold"))
    messages, given = F.col("positions"), F.col("threshold")
    has_queue = F.col("x").isNotNull() & F.col("bucket_ts").isNotNull()
    threshold = F.when(has_queue, given).otherwise(1)
    rest = messages % threshold
    alone = F.when(threshold == 1, messages).when(rest == 1, 1).otherwise(0)
    aggregates = F.floor((messages - rest) / threshold) + F.when(rest > 0, 1).otherwise(0)
    return queues.select(
        "zoom",
        "x",
        "y",
        F.col("bucket_ts").alias("interval_ts"),
        "lat",
        "lon",
        "threshold",
        messages.alias("messages_in"),
        aggregates.alias("aggregates_out"),
        (messages * message_bytes).alias("bytes_in"),
        (alone * message_bytes + (aggregates - alone) * aggregate_bytes).alias("bytes_out"),
        "devices",
    )


@check_arguments(types=False)
def rows_by_time(
    positions: DataFrame, reads: DataFrame, *, unit: Literal["day", "hour"], tz: str = "UTC"
) -> DataFrame:
    """Count positions, reads and devices by day or by hour of local time.

    Parameters
    ----------
    positions, reads : DataFrame
        The tables: ``device, ts``.
    unit : {'day', 'hour'}
    tz : str
        Time zone of the days and hours.

    Returns
    -------
    DataFrame
        ``start`` (local time, without a zone; null for rows without a time), ``positions, reads, devices``
        (with a position), ordered by ``start``. Units without any row are absent.

    Raises
    ------
    ParameterError
        A column is missing, or there is no such unit or time zone.
    """
    require_columns(positions, "positions", ("device", "ts"))
    require_columns(reads, "reads", ("device", "ts"))
    time_zone("tz", tz)
    if unit not in ("day", "hour"):
        raise ParameterError("There is no such unit.", where="unit", found=repr(unit), expected="day, hour")
    rows = positions.select("device", "ts", F.lit(True).alias("is_position")).unionAll(
        reads.select("device", "ts", F.lit(False).alias("is_position"))
    )
    # A cast to a time without a zone would depend on the zone of the session.
    utc = F.expr("TIMESTAMP_NTZ '1970-01-01' + make_dt_interval(0, 0, 0, unix_micros(ts) / 1000000BD)")
    local = F.convert_timezone(F.lit("UTC"), F.lit(tz), utc)
    start = F.date_trunc(unit, local).cast("timestamp_ntz").alias("start")
    # By device first, because counting distinct devices at once would process every row twice.
    by_device = rows.groupBy(start, "device").agg(
        F.count_if("is_position").alias("positions"), F.count_if(~F.col("is_position")).alias("reads")
    )
    return (
        by_device.groupBy("start")
        .agg(
            F.sum("positions").alias("positions"),
            F.sum("reads").alias("reads"),
            F.count_if(F.col("positions") > 0).alias("devices"),
        )
        .orderBy("start")
    )


@check_arguments(types=False)
def intervals(positions: DataFrame) -> DataFrame:
    """Count the times between consecutive positions of a device, in bins that double.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts``.

    Returns
    -------
    DataFrame
        ``from_s, to_s`` (a half-open bin: ``[1, 2), [2, 4), …`` seconds; ``from_s`` is 0 below one second),
        ``intervals``, ordered.
    """
    require_columns(positions, "positions", ("device", "ts"))
    before = F.lag("ts").over(Window.partitionBy("device").orderBy("ts"))
    gap_s = (F.unix_micros("ts") - F.unix_micros(before)) / 1e6
    power = F.when(F.col("gap_s") < 1, -1).otherwise(F.floor(F.log2("gap_s"))).cast("int")
    low = F.when(F.col("power") < 0, 0.0).otherwise(F.pow(F.lit(2.0), F.col("power")))
    counted = (
        positions.select(gap_s.alias("gap_s"))
        .where("gap_s IS NOT NULL")
        .groupBy(power.alias("power"))
        .count()
    )
    return counted.select(
        low.alias("from_s"),
        F.pow(F.lit(2.0), F.col("power") + 1).alias("to_s"),
        F.col("count").alias("intervals"),
    ).orderBy("from_s")
