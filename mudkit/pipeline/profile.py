"""What a trace is like: rows a day, rows an hour, and the intervals between a device's positions."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.errors import ParameterError
from mudkit.pipeline.tables import require_columns
from mudkit.sources.parameters import time_zone

__all__ = ["intervals", "rows_by_time"]


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
        ``start`` (local time, without a zone), ``positions, reads, devices`` (with a position), ordered by
        ``start``. Units without any row are absent.

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
    local = F.convert_timezone(F.lit("UTC"), F.lit(tz), F.col("ts").cast("timestamp_ntz"))
    start = F.date_trunc(unit, local).cast("timestamp_ntz").alias("start")
    # By device first: counting distinct devices at once would send every row through twice.
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
