"""Counts of positions and reads by cell, a tile of Web Mercator, and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.checks import check_arguments, unusable
from mudkit.errors import ParameterError
from mudkit.trace.loaded import Loaded, places_of, table_of
from mudkit.trace.schema import CELLS
from mudkit.units import US_PER_S, from_mercator, to_mercator

MAX_ZOOM: Final = 22

_POSITION: Final = ("device", "ts", "lat", "lon", "speed_mps")
_READ: Final = ("device", "ts", "lat", "lon")
_KEYS: Final = ["zoom", "x", "y", "bucket_us"]
_SUMS: Final = ("positions_sum", "devices", "speed_mps_sum", "speed_mps_count", "reads_sum")


def check_cells(zooms: Any, bucket_s: Any) -> None:
    """Raise ParameterError if levels or the length of a bucket are not usable."""
    levels: list[Any] = list(zooms) if isinstance(zooms, list | tuple | range | np.ndarray) else []
    if not levels or not all(_is_whole(zoom) and 0 <= zoom <= MAX_ZOOM for zoom in levels):
        raise ParameterError(
            "The zoom levels are not usable.",
            where="zooms",
            found=repr(zooms),
            expected=f"whole numbers from 0 to {MAX_ZOOM}",
        )
    if not _is_whole(bucket_s) or not 1 <= bucket_s <= 1 << 31:
        raise unusable("bucket_s", bucket_s, "a whole number of seconds over 0")


def _is_whole(value: Any) -> bool:
    """Return whether a value is a whole number; booleans are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@check_arguments(types=False)
def cells(
    positions: Loaded | pa.Table,
    reads: pa.Table | None = None,
    *,
    zooms: Sequence[int] = (12, 14, 16),
    bucket_s: int = 3600,
) -> pa.Table:
    """Count positions and reads by cell and time.

    Cells are the tiles of Web Mercator: 2^z by 2^z cells at zoom z, of which each has four children at the
    next level. At 37° north a cell is 7.8 km wide at zoom 12, 2.0 km at 14 and 490 m at 16.

    Parameters
    ----------
    positions : Loaded or pyarrow.Table
        A trace, whose reads are counted, too, or a table ``device, ts, lat, lon, speed_mps`` in any order.
    reads : pyarrow.Table, optional
        Reads besides a table of positions: ``device, ts, lat, lon``.
    zooms : sequence of int
        Levels to count at, each from 0 to 22.
    bucket_s : int
        Length of a time bucket in seconds; buckets start at multiples of it since 1970 UTC.

    Returns
    -------
    pyarrow.Table
        ``zoom, x, y, bucket_ts, lat, lon`` (the cell's centre), ``positions, devices`` (distinct, with a
        position), ``mean_speed_mps`` (null: no position has a speed), ``reads``; ordered by the first four.
        Cells without rows are absent. Rows without a possible place have one cell of their own, whose ``x``,
        ``y``, ``lat`` and ``lon`` are null; those without a time a bucket that is null.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is not usable; a column is missing, or the times have no zone.

    Notes
    -----
    :func:`mudkit.pipeline.cells` counts the same by Spark.
    """
    check_cells(zooms, bucket_s)
    if isinstance(positions, Loaded) and reads is None:
        reads = positions.reads
    rows = [_rows(table_of(positions, _POSITION), bucket_s, is_position=True)]
    if reads is not None:
        rows.append(_rows(table_of(reads, _READ), bucket_s, is_position=False))
    table = pa.concat_tables(rows)
    return pa.concat_tables([_counted(table, zoom) for zoom in sorted(set(zooms))])


def _rows(table: pa.Table, bucket_s: int, *, is_position: bool) -> pa.Table:
    """Return places in Web Mercator, buckets, devices and speeds of rows."""
    lat, lon, is_place = places_of(table)
    x, y = to_mercator(lat, lon)
    bucket_us = bucket_s * US_PER_S
    t_us = table["ts"].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    start_us = pc.multiply(pa.chunked_array([_floor(t_us, bucket_us)]), bucket_us)
    speed = table["speed_mps"].cast(pa.float64()) if is_position else pa.nulls(len(table), pa.float64())
    return pa.table(
        {
            "device": table["device"].cast(pa.string()),
            "mercator_x": pa.array(x, mask=~is_place),
            "mercator_y": pa.array(y, mask=~is_place),
            "bucket_us": start_us,
            "speed_mps": speed,
            "is_position": np.full(len(table), is_position),
        }
    )


def _floor(values: pa.ChunkedArray, divisor: int) -> pa.Array:
    """Return values divided by a number and rounded down; null stays null."""
    is_given = np.asarray(values.is_valid().to_numpy(), dtype=np.bool_)
    whole = np.asarray(pc.fill_null(values, 0).to_numpy(), dtype=np.int64)
    return pa.array(whole // divisor, mask=~is_given)


def _counted(rows: pa.Table, zoom: int) -> pa.Table:
    """Count rows by tile and bucket: first by device, as distinct devices are counted."""
    side = 2**zoom
    is_place = np.asarray(rows["mercator_x"].is_valid().to_numpy(), dtype=np.bool_)
    tiles = {name: pa.array(_tile(rows[f"mercator_{name}"], side), mask=~is_place) for name in ("x", "y")}
    counts = {
        "positions": pc.cast(rows["is_position"], pa.int64()),
        "reads": pc.cast(pc.invert(rows["is_position"]), pa.int64()),
    }
    levels = pa.array(np.full(len(rows), zoom, dtype=np.int32))
    by_row = pa.table(
        {
            "zoom": levels,
            **tiles,
            **{name: rows[name] for name in ("bucket_us", "device", "speed_mps")},
            **counts,
        }
    )
    by_device = by_row.group_by([*_KEYS, "device"], use_threads=False).aggregate(
        [("positions", "sum"), ("reads", "sum"), ("speed_mps", "sum"), ("speed_mps", "count")]
    )
    has_position = pc.cast(pc.greater(by_device["positions_sum"], 0), pa.int64())
    cells_ = (
        by_device.append_column("devices", has_position)
        .group_by(_KEYS, use_threads=False)
        .aggregate(
            [
                (name, "sum")
                for name in ("positions_sum", "devices", "speed_mps_sum", "speed_mps_count", "reads_sum")
            ]
        )
        .sort_by([(name, "ascending") for name in _KEYS])
    )
    x, y = (cells_[name].cast(pa.float64()) for name in ("x", "y"))
    is_cell = np.asarray(x.is_valid().to_numpy(), dtype=np.bool_)
    lat, lon = from_mercator(*((pc.fill_null(part, 0.0).to_numpy() + 0.5) / side for part in (x, y)))
    speeds = cells_["speed_mps_count_sum"]
    columns = [
        cells_["zoom"],
        cells_["x"],
        cells_["y"],
        cells_["bucket_us"].cast(pa.timestamp("us", "UTC")),
        pa.array(lat, mask=~is_cell),
        pa.array(lon, mask=~is_cell),
        cells_["positions_sum_sum"],
        cells_["devices_sum"],
        pc.divide(cells_["speed_mps_sum_sum"], pc.if_else(pc.equal(speeds, 0), None, speeds)),
        cells_["reads_sum_sum"],
    ]
    return pa.table(columns, schema=CELLS)


def _tile(mercator: pa.ChunkedArray, side: int) -> NDArray[np.int32]:
    """Return tile numbers: the poles lie in the last rows, and 180 degrees east in the last column."""
    numbers = np.floor(np.asarray(pc.fill_null(mercator, 0.0).to_numpy()) * float(side))
    return np.clip(numbers, 0, side - 1).astype(np.int32)
