"""Summaries of the rows of a trace for reports: by device, time, step and place.

They run in tasks of Spark, too, where the libraries of figures and reports are not installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.trace.derive import STILL_KM
from mudkit.trace.movement import (
    MIN_STOP_S,
    MIN_TRIP_KM,
    SILENCE_S,
    MovementStream,
)
from mudkit.trace.summaries import Groups, Lines, Piece, Summary, Values
from mudkit.trace.times import NO_TIME
from mudkit.units import US_PER_S, distance_km, to_mercator, unwrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUARTER_S: Final = 900
"""Length of the intervals that rows are counted by; the offsets of all zones are multiples of it."""
MOMENT_S: Final = 180
"""Length of the intervals between whose ends times without a row are found."""

_DEGREE: Final = 1e7
"""Sums of degrees are of whole numbers of a ten-millionth, a centimetre, so that any order gives the same."""
_PLACE_BITS: Final = 32
_STEP_BITS: Final = 40
PARTS: Final = float(1 << 30)
"""Parts of the side of a finest cell, a ten-millionth of a metre, that places within it are counted in."""
FINEST: Final = 18
"""Level of the finest cells of a map of positions."""


def devices() -> Summary:
    """Count rows by device, with time and place of the first and the last one."""
    values = {"rows": "sum", "first_us": "min", "last_us": "max"}
    places = {f"{end}_{name}": end for end in ("first", "last") for name in ("lat", "lon")}
    return Groups(_list_devices, ("device",), values | places)


def _list_devices(piece: Piece) -> pa.Table:
    """Return rows, first and last time and place of each device in a piece."""
    code = piece.code[piece.begin :]
    first = np.flatnonzero(np.diff(code, prepend=-1)) + piece.begin
    last = np.append(first[1:], len(piece.code))[: len(first)] - 1
    columns = {
        "device": piece.device(first),
        "rows": last - first + 1,
        "first_us": piece.t_us[first],
        "last_us": piece.t_us[last],
    }
    for end, at in (("first", first), ("last", last)):
        columns |= {f"{end}_lat": piece.lat[at], f"{end}_lon": piece.lon[at]}
    return pa.table(columns)


def quarters() -> Summary:
    """Count rows by device and quarter of an hour since 1970."""
    return Groups(_list_quarters, ("device", "quarter"), {"rows": "sum"})


def _list_quarters(piece: Piece) -> pa.Table:
    """Return the rows of each device and quarter of an hour in a piece."""
    code, quarter = piece.code[piece.begin :], piece.t_us[piece.begin :] // (QUARTER_S * US_PER_S)
    first = np.flatnonzero((np.diff(code, prepend=-1) != 0) | (np.diff(quarter, prepend=-1) != 0))
    rows = np.diff(first, append=len(code))
    return pa.table({"device": piece.device(first + piece.begin), "quarter": quarter[first], "rows": rows})


def moments() -> Summary:
    """Find the first and the last row of any device in each three minutes since 1970 that have one.

    Of two rows that no other lies between, and that are as far apart or farther, one is the last of its three
    minutes, and the other the first of its own.
    """
    return Groups(_list_moments, ("moment",), {"first_us": "min", "last_us": "max"})


def _list_moments(piece: Piece) -> pa.Table:
    """Return the three minutes and the time of each row."""
    t_us = piece.t_us[piece.begin :]
    return pa.table({"moment": t_us // (MOMENT_S * US_PER_S), "first_us": t_us, "last_us": t_us})


def long_steps(least_us: int) -> Summary:
    """List the steps of a device that take a time or longer, with ``number``, that of its row before."""
    return Lines(partial(_list_long_steps, least_us), ("device", "start_us"))


def _list_long_steps(least_us: int, piece: Piece) -> pa.Table:
    """Return the steps in a piece that take ``least_us`` or longer."""
    at = piece.steps
    at = at[piece.t_us[at + 1] - piece.t_us[at] >= least_us]
    return pa.table(
        {
            "device": piece.device(at),
            "number": piece.number[at],
            "start_us": piece.t_us[at],
            "end_us": piece.t_us[at + 1],
            "lat": piece.lat[at],
            "lon": piece.lon[at],
            "next_lat": piece.lat[at + 1],
            "next_lon": piece.lon[at + 1],
        }
    )


def short_steps(most_us: int) -> Summary:
    """Count the steps of a device that take a time or less."""
    return Groups(partial(_list_short_steps, most_us), ("all",), {"rows": "sum"})


def _list_short_steps(most_us: int, piece: Piece) -> pa.Table:
    """Return the number of steps in a piece that take ``most_us`` or less."""
    at = piece.steps
    return pa.table({"all": [0], "rows": [int((piece.t_us[at + 1] - piece.t_us[at] <= most_us).sum())]})


def origins() -> Summary:
    """Count reads by origin, with the times of the first and the last one."""
    return Groups(_list_origins, ("origin",), {"rows": "sum", "first_us": "min", "last_us": "max"})


def _list_origins(piece: Piece) -> pa.Table:
    """Return origin and time of each read."""
    t_us = piece.t_us[piece.begin :]
    ones = np.ones(len(t_us), dtype=np.int64)
    columns = {"origin": piece.table["origin"].slice(piece.begin), "rows": ones}
    return pa.table(columns | {"first_us": t_us, "last_us": t_us})


def requests() -> Summary:
    """Find the smallest and largest boxes (km) and windows (s) of reads: ``least_…``, ``most_…``."""
    joined = {f"{end}_{name}": how for name in _REQUEST for end, how in (("least", "min"), ("most", "max"))}
    return Groups(_list_requests, ("all",), joined)


def _list_requests(piece: Piece) -> pa.Table:
    """Return box and window of each read, each as the least and as the largest."""
    columns = {name: piece.table[name].slice(piece.begin) for name in _REQUEST}
    ends = {f"{end}_{name}": column for name, column in columns.items() for end in ("least", "most")}
    return pa.table({"all": np.zeros(len(piece.t_us) - piece.begin, dtype=np.int64)} | ends)


_REQUEST: Final = ("box_km", "window_s")


def stretches(lengths_us: tuple[int, ...]) -> Summary:
    """Count rows by stretches of time of some lengths, from 1970 on."""
    return Groups(partial(_list_stretches, lengths_us), ("length_us", "number"), {"rows": "sum"})


def _list_stretches(lengths_us: tuple[int, ...], piece: Piece) -> pa.Table:
    """Return the rows of each stretch of time, for each length."""
    t_us = piece.t_us[piece.begin :]
    counted = [np.unique(t_us // length_us, return_counts=True) for length_us in lengths_us]
    numbers, rows = (np.concatenate(columns) for columns in zip(*counted, strict=True))
    lengths = np.repeat(lengths_us, [len(of) for of, _ in counted])
    return pa.table({"length_us": lengths, "number": numbers, "rows": rows})


def speeds() -> Summary:
    """Count the rows with a speed."""
    return Groups(_list_speeds, ("all",), {"rows": "sum"})


def _list_speeds(piece: Piece) -> pa.Table:
    """Return the number of rows with a finite speed."""
    if "speed_mps" not in piece.table.column_names:
        return pa.table({"all": [0], "rows": [0]})
    known = pc.is_finite(piece.table["speed_mps"].slice(piece.begin))
    return pa.table({"all": [0], "rows": [int(pc.sum(known).as_py() or 0)]})


def match(sought: tuple[tuple[str, int], ...]) -> Summary:
    """Find which of some devices and times, by their ``place`` in the list, are those of a row."""
    return Groups(partial(_list_found, sought), ("place",), {"rows": "sum"})


def _list_found(sought: tuple[tuple[str, int], ...], piece: Piece) -> pa.Table:
    """Return the ``place`` of each sought device and time that a row has."""
    places = {pair: place for place, pair in enumerate(sought)}
    at = np.flatnonzero(np.isin(piece.t_us, np.array([t_us for _, t_us in sought], dtype=np.int64)))
    at = at[at >= piece.begin]
    pairs = zip(piece.device(at).to_pylist(), piece.t_us[at].tolist(), strict=True)
    known = [places[pair] for pair in pairs if pair in places]
    return pa.table({"place": pa.array(known, pa.int64()), "rows": pa.array([1] * len(known), pa.int64())})


def aside() -> Summary:
    """Count rows that were set aside by reason and device, with the first and the last known time."""
    values = {"rows": "sum", "first_us": "min", "last_us": "max"}
    return Groups(_list_aside, ("reason", "device"), values)


def _list_aside(piece: Piece) -> pa.Table:
    """Return reason, device and time of each row; an unknown time is null."""
    at = np.arange(piece.begin, len(piece.code))
    t_us = pa.array(piece.t_us[at], mask=piece.t_us[at] == NO_TIME)
    ones = np.ones(len(at), dtype=np.int64)
    columns = {"reason": piece.table["reason"].slice(piece.begin), "device": piece.device(at)}
    return pa.table(columns | {"rows": ones, "first_us": t_us, "last_us": t_us})


def exchanged_aside(
    middle: tuple[float, float], far_km: float, near_km: float, reasons: tuple[str, ...]
) -> Summary:
    """Count such rows of some reasons as :func:`exchanged` does; known times are those from and to."""
    values = {"rows": "sum", "first_us": "min", "last_us": "max"}
    return Groups(partial(_list_exchanged_aside, middle, far_km, near_km, reasons), ("device",), values)


def _list_exchanged_aside(
    middle: tuple[float, float], far_km: float, near_km: float, reasons: tuple[str, ...], piece: Piece
) -> pa.Table:
    """Return device and time of the rows whose exchanged place is near the middle."""
    lat, lon = piece.lat, piece.lon
    is_exchanged = (np.abs(lon) <= 90) & pc.is_in(piece.table["reason"], pa.array(reasons)).to_numpy()
    is_exchanged &= distance_km(np.clip(lat, -90, 90), lon, *middle) > far_km
    is_exchanged &= distance_km(lon, np.clip(lat, -180, 180), *middle) <= near_km
    at = np.flatnonzero(is_exchanged)
    rows = _dated(piece, at[at >= piece.begin])
    known = pa.array(rows["first_us"].to_numpy() == NO_TIME)
    times = {name: pc.if_else(known, None, rows[name]) for name in ("first_us", "last_us")}
    return pa.table({"device": rows["device"], "rows": rows["rows"]} | times)


def local_days(quarter: NDArray[np.int64], tz: str) -> NDArray[np.int64]:
    """Return the local days, since 1970, in which quarters of an hour begin."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    starts, index = np.unique(quarter, return_inverse=True)
    local = pd.to_datetime(starts * QUARTER_S, unit="s", utc=True).tz_convert(tz).tz_localize(None)
    return np.asarray(local.to_numpy().astype("datetime64[D]").astype(np.int64)[index])


def step_values(tz: str) -> Values:
    """Return the times between two positions of a device, seconds, by local day of the later one."""
    return Values(partial(_list_steps, tz), _STEP_BITS)


def _list_steps(tz: str, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return local day and seconds of each step."""
    at = piece.steps
    days = local_days(piece.t_us[at + 1] // (QUARTER_S * US_PER_S), tz)
    return days, (piece.t_us[at + 1] - piece.t_us[at]) / US_PER_S


def steps_by_day(median_s: float) -> Summary:
    """Count steps, those ``below`` a median, and those that are ``equal``, by device and day of UTC."""
    values = {"rows": "sum", "below": "sum", "equal": "sum"}
    return Groups(partial(_list_steps_by_day, median_s), ("device", "day"), values)


def _list_steps_by_day(median_s: float, piece: Piece) -> pa.Table:
    """Return device and UTC day of each step, and whether it is below or equal to a median."""
    at = piece.steps
    step_s = (piece.t_us[at + 1] - piece.t_us[at]) / US_PER_S
    return pa.table(
        {
            "device": piece.device(at),
            "day": piece.t_us[at + 1] // (86_400 * US_PER_S),
            "rows": np.ones(len(at), dtype=np.int64),
            "below": (step_s < median_s).astype(np.int64),
            "equal": (step_s == median_s).astype(np.int64),
        }
    )


def step_bins(edges_s: tuple[float, ...]) -> Summary:
    """Return the summary that counts steps by their seconds, in bins with these edges."""
    return Groups(partial(_list_step_bins, edges_s), ("bin",), {"rows": "sum"})


def _list_step_bins(edges_s: tuple[float, ...], piece: Piece) -> pa.Table:
    """Return the number of steps in each bin of seconds."""
    at = piece.steps
    step_s = (piece.t_us[at + 1] - piece.t_us[at]) / US_PER_S
    rows, _ = np.histogram(step_s, edges_s)
    return pa.table({"bin": np.arange(len(rows)), "rows": rows.astype(np.int64)})


def place_values(what: str) -> Values:
    """Return latitudes (``lat``), longitudes (``lon``), or longitudes from 0 to 360 degrees (``turned``)."""
    return Values(partial(_list_places, what), _PLACE_BITS)


def _list_places(what: str, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the latitude, longitude or turned longitude of each row, all in the group 0."""
    value = (piece.lat if what == "lat" else piece.lon)[piece.begin :]
    if what == "turned":
        value = np.where(value < 0, value + 360.0, value)
    return np.zeros(len(value), dtype=np.int64), value


def time_values() -> Values:
    """Return times, microseconds since 1970."""
    return Values(_list_times, _PLACE_BITS)


def _list_times(piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the time of each row, all in the group 0."""
    t_us = piece.t_us[piece.begin :]
    return np.zeros(len(t_us), dtype=np.int64), t_us.astype(np.float64)


def distance_values(lat: float, lon: float) -> Values:
    """Return distances from a place, km."""
    return Values(partial(_list_distances, lat, lon), _PLACE_BITS)


def _list_distances(lat: float, lon: float, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the distance of each row from a place in km, all in the group 0."""
    rows = slice(piece.begin, None)
    apart_km = distance_km(piece.lat[rows], piece.lon[rows], lat, lon)
    return np.zeros(len(apart_km), dtype=np.int64), np.asarray(apart_km)


def beyond(degrees: float) -> Summary:
    """Count positions beyond a latitude."""
    return Groups(partial(_list_beyond, degrees), ("all",), {"rows": "sum"})


def _list_beyond(degrees: float, piece: Piece) -> pa.Table:
    """Return a table of one row: in ``rows`` how many lie beyond a latitude, north or south."""
    rows = int((np.abs(piece.lat[piece.begin :]) > degrees).sum())
    return pa.table({"all": [0], "rows": [rows]})


def rows_outside(low_us: float, high_us: float) -> Summary:
    """Count rows before a time or after another by device, with the first and the last of these times."""
    values = {"rows": "sum", "first_us": "min", "last_us": "max"}
    return Groups(partial(_list_outside, low_us, high_us), ("device",), values)


def _list_outside(low_us: float, high_us: float, piece: Piece) -> pa.Table:
    """Return device and time of the rows before one time or after another."""
    at = np.flatnonzero((piece.t_us < low_us) | (piece.t_us > high_us))
    return _dated(piece, at[at >= piece.begin])


def _dated(piece: Piece, at: NDArray[np.int64]) -> pa.Table:
    """Return device and time of some rows, to be counted by device."""
    t_us = piece.t_us[at]
    ones = np.ones(len(at), dtype=np.int64)
    return pa.table({"device": piece.device(at), "rows": ones, "first_us": t_us, "last_us": t_us})


@dataclass(frozen=True)
class Edges:
    """Rows at the begin and at the end of some devices.

    ``before_us`` and ``after_us`` are by device: rows up to the one time, and from the other on.
    """

    before_us: dict[str, int]
    after_us: dict[str, int]

    def holds(self, piece: Piece) -> NDArray[np.bool_]:
        """Return which rows of a piece are such."""
        names = piece.names.to_pylist()
        low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        before = np.array([self.before_us.get(name, low) for name in names], dtype=np.int64)
        after = np.array([self.after_us.get(name, high) for name in names], dtype=np.int64)
        if not len(names):
            return np.zeros(0, dtype=np.bool_)
        return np.asarray((piece.t_us <= before[piece.code]) | (piece.t_us >= after[piece.code]))


def rows_at(edges: Edges, low_us: float, high_us: float) -> Summary:
    """Count the rows at edges that lie between two times, as :func:`rows_outside` does."""
    values = {"rows": "sum", "first_us": "min", "last_us": "max"}
    return Groups(partial(_list_edges, edges, low_us, high_us), ("device",), values)


def _list_edges(edges: Edges, low_us: float, high_us: float, piece: Piece) -> pa.Table:
    """Return device and time of the rows at edges and between two times."""
    is_counted = edges.holds(piece) & (piece.t_us >= low_us) & (piece.t_us <= high_us)
    at = np.flatnonzero(is_counted)
    return _dated(piece, at[at >= piece.begin])


@dataclass(frozen=True)
class Stretch:
    """Rows of a device that may have a wrong day: from its first row on, or to its last one.

    Parameters
    ----------
    device : str
    is_first : bool
        The rows from the first one on, up to ``cut_us``; else those from ``cut_us`` on.
    cut_us : int
        The last time of these rows, or the first.
    lasts_us : int
    ends : tuple of float
        Latitude and longitude of the first of these rows, and of the last.
    """

    device: str
    is_first: bool
    cut_us: int
    lasts_us: int
    ends: tuple[float, float, float, float]


def gaps_for(stretches: tuple[Stretch, ...], slack_us: int, most_mps: float) -> Summary:
    """Find the stretches that fit into a gap between the other rows of their device, in time and place.

    A gap is at most twice as long as the stretch and ``slack_us``; the ways to it and from it take at most a
    speed.
    """
    return Groups(partial(_list_gaps_for, stretches, slack_us, most_mps), ("stretch",), {"gaps": "sum"})


def _list_gaps_for(stretches: tuple[Stretch, ...], slack_us: int, most_mps: float, piece: Piece) -> pa.Table:
    """Return the number of gaps in a piece into which each stretch fits."""
    names = piece.names.to_pylist()
    steps, counts = piece.steps, []
    for stretch in stretches:
        fits = 0
        if stretch.device in names:
            at = steps[piece.code[steps] == names.index(stretch.device)]
            start_us, end_us = piece.t_us[at], piece.t_us[at + 1]
            length_us = end_us - start_us
            is_other = start_us > stretch.cut_us if stretch.is_first else end_us < stretch.cut_us
            most_us = 2 * stretch.lasts_us + slack_us
            is_fitting = is_other & (length_us > stretch.lasts_us) & (length_us <= most_us)
            at, slack_s = at[is_fitting], (length_us[is_fitting] - stretch.lasts_us) / US_PER_S
            lat, lon, last_lat, last_lon = stretch.ends
            moved_km = distance_km(piece.lat[at], piece.lon[at], lat, lon)
            moved_km += distance_km(last_lat, last_lon, piece.lat[at + 1], piece.lon[at + 1])
            fits = int((1000 * moved_km <= most_mps * slack_s).sum())
        counts.append(fits)
    return pa.table({"stretch": np.arange(len(counts)), "gaps": pa.array(counts, pa.int64())})


def exchanged(middle: tuple[float, float], far_km: float, near_km: float) -> Summary:
    """Count rows far from the middle that are near it with latitude and longitude exchanged, by device."""
    values = {"rows": "sum", "first_us": "min", "last_us": "max"}
    return Groups(partial(_list_exchanged, middle, far_km, near_km), ("device",), values)


def _list_exchanged(middle: tuple[float, float], far_km: float, near_km: float, piece: Piece) -> pa.Table:
    """Return device and time of the rows far from the middle whose exchanged place is near it."""
    apart_km = distance_km(piece.lat, piece.lon, *middle)
    far = np.flatnonzero((apart_km > far_km) & (np.abs(piece.lon) <= 90))
    far = far[(far >= piece.begin) & (distance_km(piece.lon[far], piece.lat[far], *middle) <= near_km)]
    return _dated(piece, far)


@dataclass
class CellCounts:
    """Rows and devices by cell of a level, with sums of latitudes and longitudes in ten-millionths.

    Cells are the tiles of :func:`mudkit.units.to_mercator`: column from the west and row from the north.
    """

    zoom: int
    _groups: Groups = field(init=False)
    _seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        sums = dict.fromkeys(("rows", "devices", "lat", "lon"), "sum")
        self._groups = Groups(self._list, ("column", "row"), sums)

    def add(self, piece: Piece) -> None:
        """Add the next rows."""
        self._groups.add(piece)

    def finish(self) -> pa.Table:
        """Return the cells of all rows so far."""
        return self._groups.finish()

    def joined(self, parts: pa.Table) -> pa.Table:
        """Return the cells of several tasks."""
        return self._groups.joined(parts)

    def _list(self, piece: Piece) -> pa.Table:
        """Return the cells of a piece; a device that continues from the piece before is not counted again."""
        rows = slice(piece.begin, None)
        lat, lon, code = piece.lat[rows], piece.lon[rows], piece.code[rows]
        side = 2.0**self.zoom
        column, row = (
            np.clip(np.floor(part * side), 0, side - 1).astype(np.int64) for part in to_mercator(lat, lon)
        )
        key, index = np.unique(column * (1 << self.zoom) + row, return_inverse=True)
        sums = [_whole_sums(index, part * _DEGREE, len(key)) for part in (lat, lon)]
        pairs = np.unique(code * len(key) + index) if len(key) else np.zeros(0, dtype=np.int64)
        of, at = np.divmod(pairs, max(len(key), 1))
        is_going_on = of == piece.code[0] if piece.begin else np.zeros(len(of), dtype=np.bool_)
        is_counted = ~(is_going_on & np.isin(key[at], self._seen))
        if len(code):
            last = key[at[of == code[-1]]]
            self._seen = np.union1d(self._seen, last) if piece.begin and code[-1] == piece.code[0] else last
        columns = {"column": key >> self.zoom, "row": key & ((1 << self.zoom) - 1)}
        counts = {"rows": np.bincount(index, minlength=len(key))}
        counts |= {"devices": np.bincount(at[is_counted], minlength=len(key))}
        return pa.table(columns | counts | dict(zip(("lat", "lon"), sums, strict=True)))


def _whole_sums(index: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return sums of values, each rounded to a whole number, by index."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, index, np.rint(values).astype(np.int64))
    return sums


def mean_degrees(sums: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return means of degrees from sums of :class:`CellCounts`."""
    return np.asarray(sums / rows / _DEGREE)


def degrees_of_longitude() -> Summary:
    """Count places by whole degree of longitude, from 0 to 359."""
    return Groups(_list_degrees, ("degree",), {"rows": "sum"})


def _list_degrees(piece: Piece) -> pa.Table:
    """Return the number of rows by degree of longitude, without zeros."""
    degree = np.floor(piece.lon[piece.begin :] % 360.0).astype(np.int64) % 360
    rows = np.bincount(degree, minlength=360)
    return pa.table({"degree": np.flatnonzero(rows), "rows": rows[rows > 0]})


def unwrapped_values(cut: float) -> Values:
    """Return longitudes in the turn that starts at ``cut``."""
    return Values(partial(_list_unwrapped, cut), _PLACE_BITS)


def _list_unwrapped(cut: float, piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the unwrapped longitude of each row, all in the group 0."""
    lon = unwrap(piece.lon[piece.begin :], cut)
    return np.zeros(len(lon), dtype=np.int64), lon


def finest_cells(cut: float) -> Summary:
    """Count places by cell of the level :data:`FINEST`, with sums of where they lie within it.

    ``column, row``; ``across`` and ``down`` from the corner in the north-west, in parts of the side of a cell
    of which there are :data:`PARTS`. Columns are those of :func:`mudkit.units.unwrap`.
    """
    sums = dict.fromkeys(("rows", "across", "down"), "sum")
    return Groups(partial(_list_finest, cut), ("row", "column"), sums)


def _list_finest(cut: float, piece: Piece) -> pa.Table:
    """Return the finest cells of a piece, with rows and sums of the places within them."""
    x, y = _mercator(cut, piece)
    side = 2.0**FINEST
    column, row = (np.floor(part * side).astype(np.int64) for part in (x, y))
    row = np.clip(row, 0, (1 << FINEST) - 1)  # the poles lie in the first and the last row
    key, index = np.unique((row << 32) + (column + (1 << 31)), return_inverse=True)
    sums = [_whole_sums(index, part * PARTS, len(key)) for part in (x * side - column, y * side - row)]
    columns = {"row": key >> 32, "column": (key & 0xFFFFFFFF) - (1 << 31)}
    rows = np.bincount(index, minlength=len(key))
    return pa.table(columns | {"rows": rows, "across": sums[0], "down": sums[1]})


def _mercator(cut: float, piece: Piece) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows' places in Web Mercator, with longitudes in the turn that starts at ``cut``."""
    rows = slice(piece.begin, None)
    return to_mercator(piece.lat[rows], unwrap(piece.lon[rows], cut))


def squares(cut: float, side: float) -> Summary:
    """Count places by square of Web Mercator with a side in widths of the world."""
    return Groups(partial(_list_squares, cut, side), ("row", "column"), {"rows": "sum"})


def _list_squares(cut: float, side: float, piece: Piece) -> pa.Table:
    """Return row and column of each row's square of this side in Web Mercator, with a count of 1."""
    column, row = (np.floor(part / side).astype(np.int64) for part in _mercator(cut, piece))
    return pa.table({"row": row, "column": column, "rows": np.ones(len(row), dtype=np.int64)})


@dataclass(frozen=True)
class PixelGrid:
    """Square pixels in Web Mercator: upper left corner and side in widths of the world."""

    x: float
    y: float
    side: float
    columns: int
    rows: int

    def pixel(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of the pixel of places, row by row from the north; those outside are moved in."""
        column = np.clip(((x - self.x) / self.side).astype(np.int64), 0, self.columns - 1)
        row = np.clip(((y - self.y) / self.side).astype(np.int64), 0, self.rows - 1)
        return np.asarray(row * self.columns + column)

    def picture(self, table: pa.Table) -> NDArray[np.int64]:
        """Return counts by row and column from a summary of pixels."""
        flat = np.zeros(self.rows * self.columns, dtype=np.int64)
        flat[table["pixel"].to_numpy()] = table["rows"].to_numpy()
        return flat.reshape(self.rows, self.columns)


def pixels(cut: float, grid: PixelGrid, edges: tuple[float, float, float, float]) -> Summary:
    """Count the places within some edges, ``south, west, north, east``, by pixel."""
    return Groups(partial(_list_pixels, cut, grid, edges), ("pixel",), {"rows": "sum"})


def _list_pixels(
    cut: float, grid: PixelGrid, edges: tuple[float, float, float, float], piece: Piece
) -> pa.Table:
    """Return the number of rows within some edges by pixel."""
    rows = slice(piece.begin, None)
    lat, lon = piece.lat[rows], unwrap(piece.lon[rows], cut)
    south, west, north, east = edges
    inside = (lat >= south) & (lat <= north) & (lon >= west) & (lon <= east)
    return _pixels_of(grid, *to_mercator(lat[inside], lon[inside]))


def square_pixels(cut: float, square: tuple[int, int], side: float, grid: PixelGrid) -> Summary:
    """Count the places within one of :func:`squares`, given by column and row, by pixel."""
    return Groups(partial(_list_square_pixels, cut, square, side, grid), ("pixel",), {"rows": "sum"})


def _list_square_pixels(
    cut: float, square: tuple[int, int], side: float, grid: PixelGrid, piece: Piece
) -> pa.Table:
    """Return the number of rows within a square by pixel."""
    x, y = _mercator(cut, piece)
    inside = (np.floor(x / side) == square[0]) & (np.floor(y / side) == square[1])
    return _pixels_of(grid, x[inside], y[inside])


def _pixels_of(grid: PixelGrid, x: NDArray[np.float64], y: NDArray[np.float64]) -> pa.Table:
    """Return the number of places by pixel, without zeros."""
    pixel, rows = np.unique(grid.pixel(x, y), return_counts=True)
    return pa.table({"pixel": pixel, "rows": rows.astype(np.int64)})


class Stays:
    """Stops and trips by the defaults, in one pass: those of :func:`mudkit.trace.stops` and ``trips``.

    The result is a table of both, which :meth:`divided` divides.
    """

    def __init__(self) -> None:
        self._stream = MovementStream(STILL_KM, MIN_STOP_S, SILENCE_S, MIN_TRIP_KM)
        self._parts: list[pa.Table] = []

    def add(self, piece: Piece) -> None:
        """Add the next rows."""
        rows = slice(piece.begin, None)
        at = np.arange(piece.begin, len(piece.code))
        columns = {"device": piece.device(at), "t_us": piece.t_us[rows]}
        self._list(*self._stream.add(pa.table(columns | {"lat": piece.lat[rows], "lon": piece.lon[rows]})))

    def finish(self) -> pa.Table:
        """Return the stops and trips of all rows so far."""
        self._list(*self._stream.finish())
        return pa.concat_tables(self._parts)

    def joined(self, parts: pa.Table) -> pa.Table:
        """Return the stops and trips of several tasks, by device and time."""
        return parts.sort_by([(name, "ascending") for name in ("is_stop", "device", "start_ts")])

    def _list(self, stops: pa.Table, trips: pa.Table) -> None:
        """Append stops and trips to the results, in one table."""
        tables = [
            table.append_column("is_stop", pa.array([is_stop] * len(table), pa.bool_()))
            for table, is_stop in ((stops, True), (trips, False))
        ]
        self._parts.append(pa.concat_tables(tables, promote_options="default"))

    @staticmethod
    def divided(both: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the stops, and the trips."""
        return both.filter(both["is_stop"]), both.filter(pc.invert(both["is_stop"]))
