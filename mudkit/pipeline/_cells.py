"""Where and when: positions and reads counted by grid cell and time bucket."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.errors import ParameterError
from mudkit.pipeline.tables import require_columns

__all__ = ["MAX_ZOOM", "cells"]

MAX_ZOOM = 22
_MERCATOR_LAT = 85.0511287798066
"""Where the square Web Mercator map ends; cells further to the poles are those of its edge."""


def cells(
    positions: DataFrame,
    reads: DataFrame | None = None,
    *,
    zooms: Sequence[int] = (12, 14, 16),
    bucket_s: int = 3600,
) -> DataFrame:
    """Count positions and reads by cell and time.

    Cells are the tiles of Web Mercator: at zoom z the map is 2^z by 2^z cells; at 37° north a cell is 7.8 km
    wide at zoom 12, 2.0 km at 14 and 490 m at 16.

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
        ``zoom, x, y, bucket_ts, lat, lon`` (the cell's centre), ``positions, devices`` (different ones
        with a position), ``mean_speed_mps`` (null: none says its speed), ``reads``. Cells without rows
        are absent.

    Raises
    ------
    ParameterError, TraceContentError
    """
    if not zooms or any(not 0 <= zoom <= MAX_ZOOM for zoom in zooms):
        raise ParameterError(
            "The zoom levels are not usable.",
            where="zooms",
            found=repr(list(zooms)),
            expected="levels from 0 to 22",
        )
    if bucket_s <= 0:
        raise ParameterError(
            "A time bucket needs a length.", where="bucket_s", found=str(bucket_s), expected="over 0 s"
        )
    require_columns(positions, "positions", ("device", "ts", "lat", "lon", "speed_mps"))
    rows = positions.select("device", "ts", "lat", "lon", "speed_mps", F.lit(True).alias("is_position"))
    if reads is not None:
        require_columns(reads, "reads", ("device", "ts", "lat", "lon"))
        no_speed = F.lit(None).cast("double").alias("speed_mps")
        rows = rows.unionByName(
            reads.select("device", "ts", "lat", "lon", no_speed, F.lit(False).alias("is_position"))
        )
    levels = F.explode(F.array([F.lit(int(zoom)) for zoom in zooms]))
    bucket = F.timestamp_seconds(F.floor(F.unix_micros("ts") / (bucket_s * 1_000_000)) * bucket_s)
    located = rows.withColumn("zoom", levels).select(
        "*",
        _x(F.col("lon"), F.col("zoom")).alias("x"),
        _y(F.col("lat"), F.col("zoom")).alias("y"),
        bucket.alias("bucket_ts"),
    )
    # By device first: counting distinct devices at once would send every row through twice.
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
    side = F.pow(F.lit(2.0), zoom)
    return F.least(F.floor((lon + 180) / 360 * side), side - 1).cast("int")


def _y(lat: Column, zoom: Column) -> Column:
    side = F.pow(F.lit(2.0), zoom)
    phi = F.radians(F.greatest(F.least(lat, F.lit(_MERCATOR_LAT)), F.lit(-_MERCATOR_LAT)))
    fraction = (1 - F.asinh(F.tan(phi)) / 3.141592653589793) / 2
    return F.greatest(F.least(F.floor(fraction * side), side - 1), F.lit(0)).cast("int")
