"""Tables that are derived from positions device by device: the functions of :mod:`mudkit.trace`, on Spark.

Rows are sorted by device and time, so that a task has all rows of its devices, and go through the streams of
:mod:`mudkit.trace.movement` piece by piece. A task's memory does not grow with the rows of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows

from mudkit.checks import OneOf, Range, check_arguments
from mudkit.errors import TraceContentError
from mudkit.pipeline.executors import merged_batches, provide
from mudkit.pipeline.tables import ddl, require_columns
from mudkit.trace.derive import KNOWN_S, STILL_KM
from mudkit.trace.movement import (
    MIN_STOP_S,
    MIN_TRIP_KM,
    POINT,
    SILENCE_S,
    SpeedStream,
    StopStream,
    Stream,
    TripRule,
    columns_of_trips,
    rows_of,
    stream_of_trips,
)
from mudkit.trace.schema import SPEEDS, STOPS, TRIPS

_PIECE_ROWS: Final = 1 << 17
_BATCH_ROWS: Final = 1 << 16


@check_arguments(types=False)
def stops(
    positions: DataFrame,
    *,
    radius_km: Annotated[float, Range(0.001, 1000.0)] = STILL_KM,
    min_stop_s: Annotated[float, Range(0.001, 3.2e9)] = MIN_STOP_S,
    max_gap_s: Annotated[float, Range(0.001, 3.2e9)] = SILENCE_S,
) -> DataFrame:
    """List the stops of devices.

    The rows are those of :func:`mudkit.trace.stops`, which defines a stop.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``, in any order. Rows without a device, a time or a possible
        place are passed over; :func:`mudkit.pipeline.cells` counts them.
    radius_km : float
        Distance within which a device stands, from 0.001 to 1,000 km.
    min_stop_s : float
        Minimum duration of a stop in seconds.
    max_gap_s : float
        Longest time between two positions of a stop in seconds; a longer one is a silence.

    Returns
    -------
    DataFrame
        ``device, start_ts, end_ts, lat, lon, positions, duration_s``. Those of a device are together and in
        order of time; devices are in no order.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is out of range; a column is missing, or the times have no zone.
    """
    return _by_device(positions, partial(StopStream, radius_km, min_stop_s, max_gap_s), POINT, STOPS)


@check_arguments(types=False)
def trips(
    positions: DataFrame,
    *,
    rule: Annotated[TripRule, OneOf()] = "stops",
    radius_km: Annotated[float, Range(0.001, 1000.0)] = STILL_KM,
    min_stop_s: Annotated[float, Range(0.001, 3.2e9)] = MIN_STOP_S,
    max_gap_s: Annotated[float, Range(0.001, 3.2e9)] = SILENCE_S,
    min_km: Annotated[float, Range(0.0, 100_000.0)] = MIN_TRIP_KM,
) -> DataFrame:
    """List the trips of devices: what lies between two stops or silences, or the fares of taxis.

    The rows are those of :func:`mudkit.trace.trips`, which defines a trip.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``, in any order, and for the rule ``occupancy`` a boolean column
        ``occupied`` (null: unknown). Rows without a device, a time or a possible place are passed over;
        :func:`mudkit.pipeline.cells` counts them.
    rule : {'stops', 'occupancy'}
        What ends a trip.
    radius_km, min_stop_s : float
        Those of :func:`stops`, for the rule ``stops``.
    max_gap_s : float
        Longest time between two positions of a trip in seconds; a longer one is a silence.
    min_km : float
        Length below which a movement between two stops is no trip; fares may be shorter.

    Returns
    -------
    DataFrame
        ``device, start_ts, start_lat, start_lon, end_ts, end_lat, end_lon, positions, duration_s,
        distance_km, from_stop, to_stop``. Those of a device are together and in order of time; devices are in
        no order.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is out of range; a column is missing, or the times have no zone.
    """
    limits = {"radius_km": radius_km, "min_stop_s": min_stop_s, "max_gap_s": max_gap_s, "min_km": min_km}
    return _by_device(positions, partial(stream_of_trips, rule, **limits), columns_of_trips(rule), TRIPS)


@check_arguments(types=False)
def speeds(positions: DataFrame, *, max_gap_s: Annotated[float, Range(0.001, 3.2e9)] = KNOWN_S) -> DataFrame:
    """List the speeds of devices between consecutive positions.

    The rows are those of :func:`mudkit.trace.speeds`, which defines a speed.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``, in any order. Rows without a device, a time or a possible
        place are passed over; :func:`mudkit.pipeline.cells` counts them.
    max_gap_s : float
        Longest time between the two positions in seconds.

    Returns
    -------
    DataFrame
        ``device, start_ts, start_lat, start_lon, end_ts, end_lat, end_lon, duration_s, distance_km,
        speed_mps``. Those of a device are together and in order of time; devices are in no order.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is out of range; a column is missing, or the times have no zone.
    """
    return _by_device(positions, partial(SpeedStream, max_gap_s), POINT, SPEEDS)


def _by_device(
    positions: DataFrame, start: Callable[[], Stream], names: tuple[str, ...], schema: pa.Schema
) -> DataFrame:
    """Send the rows of each device, in order of time, through a stream of its task."""
    require_columns(positions, "positions", names)
    _refuse_other_types(positions, names)
    provide(positions.sparkSession)
    columns = [F.col(name).cast(_CASTS[name]).alias(name) for name in names]
    # Rows at the same time are ordered by all columns, as the local functions do.
    others = (F.asc_nulls_last(name) for name in names if name not in ("device", "ts"))
    ordered = positions.select(*columns).repartition("device").sortWithinPartitions("device", "ts", *others)
    further = tuple(name for name in names if name not in POINT)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stream = start()
        for piece in merged_batches(batches, _PIECE_ROWS):
            yield from stream.add(rows_of(piece, further)).to_batches(max_chunksize=_BATCH_ROWS)
        yield from stream.finish().to_batches()

    return ordered.mapInArrow(run, ddl(schema))


_CASTS: Final = {
    "device": "string",
    "ts": "timestamp",
    "lat": "double",
    "lon": "double",
    "occupied": "boolean",
}


def _refuse_other_types(positions: DataFrame, names: tuple[str, ...]) -> None:
    """Raise TraceContentError if places are no numbers, or occupancy is no truth value."""
    for name in names:
        kind = positions.schema[name].dataType
        expected = {"lat": T.NumericType, "lon": T.NumericType, "occupied": T.BooleanType}.get(name)
        if expected is not None and not isinstance(kind, expected):
            raise TraceContentError(
                f"The column {name} is of another type.",
                where=name,
                found=kind.simpleString(),
                expected="truth values" if name == "occupied" else "degrees as numbers",
                remedy=f"cast it: positions.withColumn('{name}', F.col('{name}').cast('{_CASTS[name]}'))",
            )
