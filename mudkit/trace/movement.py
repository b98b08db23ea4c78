"""Stops, trips and speeds of devices, in one pass over positions ordered by device and time.

A device stands while it stays nearer than a radius to where it last moved to. **A stop** is such a stay that
its positions show for a minimum duration (the stay point of Li et al., Mining user similarity based on
location history, GIS 2008, section 4.1; here a step as long as the radius ends it, too). **A trip** lies
between two stops. Of a silence, a longer time without a position, nothing is known, so it ends both. Another
rule for trips are the fares of a taxi. **A speed** is that of two consecutive positions.

Streams take rows piece by piece and keep a few rows of the device that is not over, however long it is: a
task of Spark needs no more memory for a device with half of all rows. Ways are sums of whole nanometres, so
they do not depend on how rows are divided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.checks import OneOf, Range, check_arguments
from mudkit.trace.derive import KNOWN_S, MAX_FARE_STEP_S, STILL_KM, moved_from
from mudkit.trace.loaded import Loaded, places_of, table_of
from mudkit.trace.schema import FARES, SPEEDS, STOPS, TRIPS, timestamps
from mudkit.units import US_PER_S, distance_km
from mudkit.words import Label, add_labels

MIN_STOP_S: Final = 300.0
"""Default of the time that a device must stay to stop."""

SILENCE_S: Final = 1800.0
"""Default of the time without a row that ends a stop and a trip: nothing is known of it."""

MIN_TRIP_KM: Final = 0.5
"""Default of the length below which a movement between two stops is no trip."""

NM_PER_KM: Final = 1e12

POINT: Final = ("device", "ts", "lat", "lon")
"""Columns that all of these tables need."""

TripRule: TypeAlias = Literal["stops", "occupancy"]

add_labels(
    {
        "start_ts": Label("begin"),
        "end_ts": Label("end"),
        "start_lat": Label("latitude at the begin", "°"),
        "start_lon": Label("longitude at the begin", "°"),
        "end_lat": Label("latitude at the end", "°"),
        "end_lon": Label("longitude at the end", "°"),
        "from_stop": Label("begins at a stop"),
        "to_stop": Label("ends at a stop"),
        "speed_mps": Label("speed", "m/s"),
    }
)


class Stream(Protocol):
    """Computation over rows ``device, t_us, lat, lon`` that come in order, piece by piece."""

    def add(self, rows: pa.Table) -> pa.Table:
        """Add the next rows; return the results that are complete with them."""

    def finish(self) -> pa.Table:
        """Return the results that the end of all rows completes."""


def rows_of(positions: pa.Table, names: tuple[str, ...] = ()) -> pa.Table:
    """Return ``device, t_us, lat, lon`` of the positions that have a device, a time and a possible place.

    ``names`` are further columns to keep.
    """
    lat, lon, is_place = places_of(positions)
    is_known = is_place & _is_given(positions["device"]) & _is_given(positions["ts"])
    columns = {
        "device": positions["device"].cast(pa.string()),
        "t_us": pc.fill_null(positions["ts"].cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64()), 0),
        "lat": pa.array(lat),
        "lon": pa.array(lon),
    }
    rows = pa.table(columns | {name: positions[name] for name in names})
    return rows if is_known.all() else rows.filter(pa.array(is_known))


def _is_given(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return a mask, True where a value is not null."""
    return np.asarray(column.is_valid().to_numpy(), dtype=np.bool_)


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows ordered by device and time, of equal ones by place."""
    if not len(rows):
        return rows
    same = np.diff(_codes(rows["device"])) == 0
    step_us = np.diff(rows["t_us"].to_numpy())
    later = pc.greater(rows["device"][1:], rows["device"][:-1]).to_numpy()
    if (later | (same & (step_us > 0))).all():
        return rows
    keys = [name for name in ("device", "t_us", "lat", "lon", "occupied") if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in keys])


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a number for each value of a column."""
    indices = column.combine_chunks().dictionary_encode().indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _appended(last: pa.Table | None, piece: pa.Table, max_gap_s: float) -> pa.Table:
    """Return rows behind the last one before: with ``number``, ``way_nm`` since the first, and ``is_new``.

    A row is new if it is the first of a device, or the first after a silence.
    """
    columns = piece.column_names
    rows = piece if last is None else pa.concat_tables([last.select(columns), piece])
    lat, lon = rows["lat"].to_numpy(), rows["lon"].to_numpy()
    is_new = np.ones(len(rows), dtype=np.bool_)
    step_us = np.diff(rows["t_us"].to_numpy())
    is_new[1:] = (np.diff(_codes(rows["device"])) != 0) | (step_us > round(max_gap_s * US_PER_S))
    step_nm = np.zeros(len(rows), dtype=np.int64)
    step_nm[1:] = np.rint(distance_km(lat[:-1], lon[:-1], lat[1:], lon[1:]) * NM_PER_KM)
    number, way_nm = 0, 0
    if last is not None:
        number, way_nm = (last[name][0].as_py() for name in ("number", "way_nm"))
    rows = rows.append_column("number", pa.array(np.arange(number, number + len(rows))))
    rows = rows.append_column("way_nm", pa.array(np.cumsum(step_nm) + way_nm))
    return rows.append_column("is_new", pa.array(is_new))


@dataclass
class _Runs:
    """Runs of consecutive rows, each up to where the next one begins.

    A run begins at a row that is new or that moved; with ``radius_km`` None, at one whose ``occupied``
    differs from that before. A finished run is a row with the columns of its first row and, with the prefix
    ``last_``, of its last one; ``is_over``: it is the last before a silence or of its device.
    """

    max_gap_s: float
    radius_km: float | None
    _first: pa.Table | None = None
    _last: pa.Table | None = None

    def add(self, piece: pa.Table) -> pa.Table | None:
        """Add the next rows.

        Return the runs that end before the last of them, None while there are no rows.
        """
        if not len(piece):
            return None
        rows = _appended(self._last, piece, self.max_gap_s)
        is_new = rows["is_new"].to_numpy()
        begins = self._begins(rows, is_new)
        if self._first is None:
            firsts, ends = rows.take(begins), begins[1:]
        else:
            begins = begins[begins > 0]
            firsts, ends = pa.concat_tables([self._first, rows.take(begins)]), begins
        runs = _joined(firsts[:-1], rows.take(ends - 1), is_new[ends])
        # Copies, because a slice would keep all rows in memory.
        self._first, self._last = firsts.take([len(firsts) - 1]), rows.take([len(rows) - 1])
        return runs

    def finish(self) -> pa.Table | None:
        """Return the last run; None without rows."""
        if self._first is None:
            return None
        return _joined(self._first, self._last, np.ones(1, dtype=np.bool_))

    def _begins(self, rows: pa.Table, is_new: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the numbers of the rows at which a run begins: by place, or by the occupancy of a cab."""
        if self.radius_km is None:
            state = np.asarray(pc.fill_null(rows["occupied"].cast(pa.int8()), -1).to_numpy())
            return np.flatnonzero(is_new | np.append(True, np.diff(state) != 0))
        stood_at = None
        if self._first is not None:
            stood_at = (self._first["lat"][0].as_py(), self._first["lon"][0].as_py())
        lat, lon = rows["lat"].to_numpy(), rows["lon"].to_numpy()
        return np.flatnonzero(moved_from(lat, lon, is_new, radius_km=self.radius_km, stood_at=stood_at))


def _joined(first: pa.Table, last: pa.Table | None, is_over: NDArray[np.bool_]) -> pa.Table:
    """Return the first rows of runs with their last ones behind.

    ``is_over``: no row of the run can follow.
    """
    assert last is not None
    names = ("t_us", "lat", "lon", "number", "way_nm")
    columns = {f"last_{name}": last[name] for name in names} | {"is_over": pa.array(is_over)}
    return pa.table(dict(zip(first.column_names, first.columns, strict=True)) | columns)


@dataclass
class StopStream:
    """Stops, ordered as the rows are; see :func:`stops`."""

    radius_km: float
    min_stop_s: float
    max_gap_s: float
    _runs: _Runs = field(init=False)

    def __post_init__(self) -> None:
        self._runs = _Runs(self.max_gap_s, self.radius_km)

    def add(self, rows: pa.Table) -> pa.Table:
        """Add the next rows; return the stops that end before the last of them."""
        return self.of_runs(self._runs.add(rows))

    def finish(self) -> pa.Table:
        """Return the stop that lasts until the end of all rows, if there is one."""
        return self.of_runs(self._runs.finish())

    def of_runs(self, runs: pa.Table | None) -> pa.Table:
        """Return the stops among the next runs."""
        if runs is None:
            return STOPS.empty_table()
        at = runs.filter(pa.array(_is_stop(runs, self.min_stop_s)))
        begin_us, end_us = at["t_us"].to_numpy(), at["last_t_us"].to_numpy()
        columns = [
            at["device"], timestamps(begin_us), timestamps(end_us), at["lat"], at["lon"],
            pc.add(pc.subtract(at["last_number"], at["number"]), 1), (end_us - begin_us) / US_PER_S,
        ]  # fmt: skip
        return pa.table(columns, schema=STOPS)


def _is_stop(runs: pa.Table, min_stop_s: float) -> NDArray[np.bool_]:
    """Return which runs last long enough to be a stop."""
    stay_us = runs["last_t_us"].to_numpy() - runs["t_us"].to_numpy()
    return np.asarray(stay_us >= round(min_stop_s * US_PER_S))


_END = ("device", "t_us", "lat", "lon", "number", "way_nm")
"""Columns of an end of a trip."""


@dataclass
class TripStream:
    """Trips between stops and silences, ordered as the rows are; see :func:`trips`."""

    radius_km: float
    min_stop_s: float
    max_gap_s: float
    min_km: float
    _runs: _Runs = field(init=False)
    _begin: pa.Table | None = None

    def __post_init__(self) -> None:
        self._runs = _Runs(self.max_gap_s, self.radius_km)

    def add(self, rows: pa.Table) -> pa.Table:
        """Add the next rows; return the trips that end before the last of them."""
        return self.of_runs(self._runs.add(rows))

    def finish(self) -> pa.Table:
        """Return the trip that lasts until the end of all rows, if there is one."""
        return self.of_runs(self._runs.finish())

    def of_runs(self, runs: pa.Table | None) -> pa.Table:
        """Return the trips that end in the next runs: pairs of begins and ends, which alternate.

        A trip begins where a stretch does, and at the last row of a stop; it ends at the first row of a stop,
        and where a stretch does.
        """
        if runs is None:
            return TRIPS.empty_table()
        is_stop = _is_stop(runs, self.min_stop_s)
        is_new, is_over = runs["is_new"].to_numpy(), runs["is_over"].to_numpy()
        begins = _merged(_firsts(runs, is_new, False), _lasts(runs, is_stop, True))
        ends = _merged(_firsts(runs, is_stop, True), _lasts(runs, is_over, False))
        if self._begin is not None:
            begins = pa.concat_tables([self._begin, begins])
        # A copy, because a slice would keep all rows in memory.
        self._begin = begins.take(np.arange(len(ends), len(begins)))
        return _built(begins[: len(ends)], ends, round(self.min_km * NM_PER_KM))


def _firsts(runs: pa.Table, chosen: NDArray[np.bool_], is_stop: bool | None) -> pa.Table:
    """Return the first rows of some runs as ends of trips.

    ``place`` orders them, ``is_stop`` None: unknown.
    """
    return _as_ends(runs, 2 * np.flatnonzero(chosen), [(name, name) for name in _END], is_stop)


def _lasts(runs: pa.Table, chosen: NDArray[np.bool_], is_stop: bool | None) -> pa.Table:
    """Return the last rows of some runs as ends of trips.

    ``place`` orders them, ``is_stop`` None: unknown.
    """
    names = [(name, name if name == "device" else f"last_{name}") for name in _END]
    return _as_ends(runs, 2 * np.flatnonzero(chosen) + 1, names, is_stop)


def _as_ends(
    runs: pa.Table, place: NDArray[np.int64], names: list[tuple[str, str]], is_stop: bool | None
) -> pa.Table:
    """Return some rows of runs as ends of trips, with whether they are at a stop; None: unknown."""
    rows = runs.take(place // 2)
    columns = {name: rows[of] for name, of in names}
    stops = pa.array([is_stop] * len(place), pa.bool_())
    return pa.table(columns | {"is_stop": stops, "place": pa.array(place)})


def _merged(some: pa.Table, others: pa.Table) -> pa.Table:
    """Return two tables of ends of trips in one, in the order of ``place``."""
    both = pa.concat_tables([some, others])
    return both.take(np.argsort(both["place"].to_numpy(), kind="stable"))


def _built(begins: pa.Table, ends: pa.Table, min_nm: int = 0) -> pa.Table:
    """Build trips from their ends; those without a step, and shorter ones, are left out."""
    way_nm = ends["way_nm"].to_numpy() - begins["way_nm"].to_numpy()
    steps = ends["number"].to_numpy() - begins["number"].to_numpy()
    kept = np.flatnonzero((steps > 0) & (way_nm >= min_nm))
    begins, ends, way_nm = begins.take(kept), ends.take(kept), way_nm[kept]
    begin_us, end_us = begins["t_us"].to_numpy(), ends["t_us"].to_numpy()
    columns = [
        begins["device"],
        timestamps(begin_us), begins["lat"], begins["lon"],
        timestamps(end_us), ends["lat"], ends["lon"],
        pa.array(steps[kept] + 1), (end_us - begin_us) / US_PER_S, way_nm / NM_PER_KM,
        begins["is_stop"], ends["is_stop"],
    ]  # fmt: skip
    return pa.table(columns, schema=TRIPS)


@dataclass
class MovementStream:
    """Stops and trips at once: those of :class:`StopStream` and :class:`TripStream` with these limits."""

    radius_km: float
    min_stop_s: float
    max_gap_s: float
    min_km: float
    _runs: _Runs = field(init=False)
    _streams: tuple[StopStream, TripStream] = field(init=False)

    def __post_init__(self) -> None:
        limits = self.radius_km, self.min_stop_s, self.max_gap_s
        self._runs = _Runs(self.max_gap_s, self.radius_km)
        self._streams = StopStream(*limits), TripStream(*limits, self.min_km)

    def add(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Add the next rows; return the stops and the trips that end before the last of them."""
        return self._of_runs(self._runs.add(rows))

    def finish(self) -> tuple[pa.Table, pa.Table]:
        """Return what lasts until the end of all rows."""
        return self._of_runs(self._runs.finish())

    def _of_runs(self, runs: pa.Table | None) -> tuple[pa.Table, pa.Table]:
        """Return the stops and the trips among the next runs."""
        stops_, trips_ = (stream.of_runs(runs) for stream in self._streams)
        return stops_, trips_


@dataclass
class FareStream:
    """Trips of taxis with a fare, ordered as the rows are; see :func:`trips`.

    Rows have a column ``occupied`` besides.
    """

    max_gap_s: float
    _runs: _Runs = field(init=False)
    _before: pa.Table | None = None

    def __post_init__(self) -> None:
        self._runs = _Runs(self.max_gap_s, None)

    def add(self, rows: pa.Table) -> pa.Table:
        """Add the next rows; return the fares that end before the last of them."""
        return self._fares(self._runs.add(rows))

    def finish(self) -> pa.Table:
        """Return the fare that the last run of rows ends, if there is one."""
        return self._fares(self._runs.finish())

    def _fares(self, runs: pa.Table | None) -> pa.Table:
        """Return the fares among the next runs, each of which needs the run before and the one after."""
        if runs is None:
            return TRIPS.empty_table()
        if self._before is not None:
            runs = pa.concat_tables([self._before, runs])
        self._before = runs.take(np.arange(max(len(runs) - 2, 0), len(runs)))
        occupied, is_new = runs["occupied"], runs["is_new"].to_numpy()
        full, empty = (_is_true(column) for column in (occupied, pc.invert(occupied)))
        is_fare = full[1:-1] & empty[:-2] & empty[2:] & ~is_new[1:-1] & ~is_new[2:]
        place = np.flatnonzero(is_fare)
        return _built(*(_firsts(runs, _chosen(len(runs), place + later), None) for later in (1, 2)))


def _is_true(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return a mask, True where a value is true; null is not."""
    return np.asarray(pc.fill_null(column, False).to_numpy(), dtype=np.bool_)


def _chosen(rows: int, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of this many rows, True at some places."""
    chosen = np.zeros(rows, dtype=np.bool_)
    chosen[places] = True
    return chosen


@dataclass
class SpeedStream:
    """Speeds of consecutive positions, ordered as the rows are; see :func:`speeds`."""

    max_gap_s: float
    _last: pa.Table | None = None

    def add(self, rows: pa.Table) -> pa.Table:
        """Add the next rows; return the speeds up to the last of them."""
        if not len(rows):
            return SPEEDS.empty_table()
        rows = _appended(self._last, rows, self.max_gap_s)
        t_us = rows["t_us"].to_numpy()
        at = np.flatnonzero(~rows["is_new"].to_numpy()[1:] & (np.diff(t_us) > 0))
        begins, ends = rows.take(at), rows.take(at + 1)
        self._last = rows.take([len(rows) - 1])
        step_s = (t_us[at + 1] - t_us[at]) / US_PER_S
        places = [table[name].to_numpy() for table in (begins, ends) for name in ("lat", "lon")]
        way_km = distance_km(*places)
        columns = [
            begins["device"],
            timestamps(t_us[at]), begins["lat"], begins["lon"],
            timestamps(t_us[at + 1]), ends["lat"], ends["lon"],
            step_s, way_km, 1000 * way_km / step_s,
        ]  # fmt: skip
        return pa.table(columns, schema=SPEEDS)

    def finish(self) -> pa.Table:
        """Return no rows: a speed is complete with its second position."""
        return SPEEDS.empty_table()


def stream_of_trips(
    rule: TripRule, *, radius_km: float, min_stop_s: float, max_gap_s: float, min_km: float
) -> Stream:
    """Return the stream of the trips of a rule."""
    if rule == "occupancy":
        return FareStream(max_gap_s)
    return TripStream(radius_km, min_stop_s, max_gap_s, min_km)


def columns_of_trips(rule: TripRule) -> tuple[str, ...]:
    """Return the columns that trips by a rule need."""
    return (*POINT, "occupied") if rule == "occupancy" else POINT


@check_arguments(types=False)
def stops(
    positions: Loaded | pa.Table,
    *,
    radius_km: Annotated[float, Range(0.001, 1000.0)] = STILL_KM,
    min_stop_s: Annotated[float, Range(0.001, 3.2e9)] = MIN_STOP_S,
    max_gap_s: Annotated[float, Range(0.001, 3.2e9)] = SILENCE_S,
) -> pa.Table:
    """List the stops of devices.

    A device stands from a position that it moved to until the last one before it moves again: to a position
    ``radius_km`` or more from the one before it, or from where it stands. It stops if these positions span
    ``min_stop_s`` or more. A silence ends a stop: nothing is known of it. This is the stay point of Li et al.
    (Mining user similarity based on location history, GIS 2008, section 4.1), but that a single step as long
    as the radius ends it, and that its place is that of its first position.

    Parameters
    ----------
    positions : Loaded or pyarrow.Table
        A trace, or a table ``device, ts, lat, lon`` in any order, whose ``ts`` has a time zone. Rows without
        a device, a time or a possible place are passed over.
    radius_km : float
        Distance within which a device stands, from 0.001 to 1,000 km. The default is well over the noise of
        a GPS fix.
    min_stop_s : float
        Minimum duration of a stop in seconds.
    max_gap_s : float
        Longest time between two positions of a stop in seconds; a longer one is a silence.

    Returns
    -------
    pyarrow.Table
        ``device, start_ts, end_ts`` (of the first and the last position), ``lat, lon`` (of the first
        position), ``positions, duration_s``; ordered by device and time. No two stops overlap.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is out of range; a column is missing, or the times have no zone.

    Notes
    -----
    :func:`mudkit.pipeline.stops` computes the same rows by Spark.
    """
    return _computed(positions, StopStream(radius_km, min_stop_s, max_gap_s), POINT)


@check_arguments(types=False)
def trips(
    positions: Loaded | pa.Table,
    *,
    rule: Annotated[TripRule, OneOf()] = "stops",
    radius_km: Annotated[float, Range(0.001, 1000.0)] = STILL_KM,
    min_stop_s: Annotated[float, Range(0.001, 3.2e9)] = MIN_STOP_S,
    max_gap_s: Annotated[float, Range(0.001, 3.2e9)] = SILENCE_S,
    min_km: Annotated[float, Range(0.0, 100_000.0)] = MIN_TRIP_KM,
) -> pa.Table:
    """List the trips of devices.

    By the rule ``stops`` a trip leads from the last position of a stop (:func:`stops`), or from the first one
    after a silence, to the first position of the next stop, or to the last one before a silence. By the rule
    ``occupancy`` it is a whole fare of a taxi, from the first position with a fare after one without to the
    next position without one: a fare with a silence, or with a position that does not say whether there is
    one, is not whole (Piorkowski et al., CRAWDAD epfl/mobility 2009, describe the flag).

    Parameters
    ----------
    positions : Loaded or pyarrow.Table
        A trace, or a table ``device, ts, lat, lon`` in any order, whose ``ts`` has a time zone; for the rule
        ``occupancy`` a table with a boolean column ``occupied``, too (null: unknown). Rows without a device,
        a time or a possible place are passed over.
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
    pyarrow.Table
        ``device, start_ts, start_lat, start_lon, end_ts, end_lat, end_lon, positions`` (both ends included),
        ``duration_s, distance_km`` (sum of the great-circle distances between its positions, each rounded to
        a nanometre), ``from_stop, to_stop`` (whether a stop is at that end, not a silence; null for fares);
        ordered by device and time.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is out of range; a column is missing, or the times have no zone.

    Notes
    -----
    Reads that are derived by ``trip_start`` follow a rule of their own, by which a silence is a stay
    (:class:`mudkit.trace.derive.Rule`). :func:`mudkit.pipeline.trips` computes the same rows by Spark.
    """
    stream = stream_of_trips(
        rule, radius_km=radius_km, min_stop_s=min_stop_s, max_gap_s=max_gap_s, min_km=min_km
    )
    return _computed(positions, stream, columns_of_trips(rule))


@check_arguments(types=False)
def speeds(
    positions: Loaded | pa.Table, *, max_gap_s: Annotated[float, Range(0.001, 3.2e9)] = KNOWN_S
) -> pa.Table:
    """List the speeds of devices between consecutive positions.

    A speed is the great-circle distance of two consecutive positions of a device over the time between them.
    Pairs with a longer time than ``max_gap_s`` between them, and those without any, are left out.

    Parameters
    ----------
    positions : Loaded or pyarrow.Table
        A trace, or a table ``device, ts, lat, lon`` in any order, whose ``ts`` has a time zone. Rows without
        a device, a time or a possible place are passed over.
    max_gap_s : float
        Longest time between the two positions in seconds.

    Returns
    -------
    pyarrow.Table
        ``device, start_ts, start_lat, start_lon, end_ts, end_lat, end_lon, duration_s, distance_km,
        speed_mps``, ordered by device and time.

    Raises
    ------
    ParameterError, TraceContentError
        A parameter is out of range; a column is missing, or the times have no zone.

    Notes
    -----
    :func:`mudkit.pipeline.speeds` computes the same rows by Spark.
    """
    return _computed(positions, SpeedStream(max_gap_s), POINT)


def list_fares(positions: pa.Table, occupied: pa.Array | None) -> pa.Table:
    """List whole fares, ``device, ts`` (where it was taken up), ``fare_s, fare_km``.

    They are the trips by the rule ``occupancy`` of positions that are ordered by device and time; a time
    without a row over :data:`mudkit.trace.derive.MAX_FARE_STEP_S` cuts a fare.
    """
    if occupied is None or not len(positions):
        return FARES.empty_table()
    rows = rows_of(positions.append_column("occupied", occupied), ("occupied",))
    fares = _run(FareStream(MAX_FARE_STEP_S), rows)
    return fares.select(["device", "start_ts", "duration_s", "distance_km"]).rename_columns(FARES.names)


def _computed(positions: Loaded | pa.Table, stream: Stream, names: tuple[str, ...]) -> pa.Table:
    """Return what a stream computes of positions, once these are in order."""
    table = table_of(positions, names)
    return _run(stream, in_order(rows_of(table, tuple(set(names) - set(POINT)))))


def _run(stream: Stream, rows: pa.Table) -> pa.Table:
    """Return all that a stream computes of rows that are in order."""
    return pa.concat_tables([stream.add(rows), stream.finish()])
