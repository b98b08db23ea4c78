"""Tables that are derived from positions: the functions of :mod:`mudkit.trace`, on Spark.

Positions are joined with areas wherever they are. For stops, trips and speeds they are sorted by device and
time, so that a task has all rows of its devices, and go through the streams of :mod:`mudkit.trace.movement`
piece by piece. A task's memory does not grow with the rows of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows

from mudkit.checks import OneOf, Range, check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.files import PlaceLike
from mudkit.pipeline.executors import merged_batches, provide
from mudkit.pipeline.tables import ddl, require_columns
from mudkit.trace.areas import check_columns, check_places, read_areas
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

_MAX_CORNERS: Final = 4_000_000
"""Corners of areas that are sent with a job: 64 MB, half of what Spark Connect takes."""

_AREA_FIELDS: Final = (T.StructField("area_number", T.LongType()), T.StructField("area", T.StringType()))
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


@check_arguments(types=False)
def join(
    positions: DataFrame,
    areas: PlaceLike | Mapping[str, Any],
    *,
    name: str | None = None,
    places: tuple[str, str] = ("lat", "lon"),
) -> DataFrame:
    """Join positions with the areas that they lie in: districts, zones, campuses.

    The rows are those of :func:`mudkit.trace.join`, which defines areas and their edges. Tasks search the
    areas of their positions; the areas, which this machine reads, are sent with the job.

    Parameters
    ----------
    positions : DataFrame
        Positions, or a table with any columns, of which two are a place in degrees: stops, reads or trips.
    areas : path-like or mapping
        GeoJSON file, also at an address, or what it holds: a FeatureCollection, a Feature, a Polygon or a
        MultiPolygon; up to 4 million corners.
    name : str, optional
        Property of the features that names them; by default their ``id``, or their number.
    places : tuple of str
        Columns of latitude and longitude, such as ``("start_lat", "start_lon")`` for trips.

    Returns
    -------
    DataFrame
        The columns of the table, ``area_number`` (number of the feature in the file, from 1), ``area`` (its
        name). A position in several areas has a row for each; one in no area, or without a possible place,
        has one row with null in both columns.

    Raises
    ------
    InputMissing, TraceFormatError
        The file does not exist or is not GeoJSON, or a feature is not usable: the error says which and why.
    ParameterError, TraceContentError
        No feature has the property ``name``, or there are too many corners; the table lacks a column, or has
        ``area`` already.
    """
    check_places(places)
    require_columns(positions, "positions", tuple(places))
    _refuse_other_types(positions, dict.fromkeys(places, "double"))
    check_columns(positions.columns)
    prepared = read_areas(areas, name)
    if len(prepared.coordinates) > _MAX_CORNERS:
        raise ParameterError(
            "The areas have too many corners to be sent with a job.",
            where="areas",
            found=f"{len(prepared.coordinates):,} corners",
            expected=f"up to {_MAX_CORNERS:,}",
            remedy="simplify them, for instance by shapely.coverage_simplify, or join them in parts",
        )
    provide(positions.sparkSession)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in merged_batches(batches, _PIECE_ROWS):
            for table in prepared.joined(piece, places):
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    schema = T.StructType([*positions.schema.fields, *_AREA_FIELDS])
    return positions.mapInArrow(run, schema)


def _by_device(
    positions: DataFrame, start: Callable[[], Stream], names: tuple[str, ...], schema: pa.Schema
) -> DataFrame:
    """Send the rows of each device, in order of time, through a stream.

    ``start`` makes the stream of a task, which gets all devices of the task one after the other.
    """
    require_columns(positions, "positions", names)
    _refuse_other_types(positions, {name: _CASTS[name] for name in names})
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


def _refuse_other_types(positions: DataFrame, casts: Mapping[str, str]) -> None:
    """Raise TraceContentError if columns are no numbers, or no truth values, as the types say."""
    kinds = {"double": T.NumericType, "boolean": T.BooleanType}
    for name, wanted_type in casts.items():
        kind = positions.schema[name].dataType
        if wanted_type in kinds and not isinstance(kind, kinds[wanted_type]):
            raise TraceContentError(
                f"The column {name} is of another type.",
                where=name,
                found=kind.simpleString(),
                expected="truth values" if wanted_type == "boolean" else "degrees as numbers",
                remedy=f"cast it: positions.withColumn('{name}', F.col('{name}').cast('{wanted_type}'))",
            )
