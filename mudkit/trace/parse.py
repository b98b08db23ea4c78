"""From columns as they came to numbers, times and texts; what cannot be read is set aside with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.sources.parameters import time_zone
from mudkit.trace.plausible import MAX_FLIGHT_MPS
from mudkit.trace.schema import REJECTED
from mudkit.trace.values import NO_TIME, TIME_UNITS, numbers, raw_text, times_us, truths

__all__ = [
    "EARLIEST_US",
    "EXCHANGED",
    "LATE",
    "LATEST_US",
    "MAX_BOX_KM",
    "MAX_WINDOW_S",
    "OUTSIDE",
    "TWICE_OR_NEVER",
    "UNPARSABLE",
    "UNTIMED",
    "Options",
    "Parsed",
    "parse",
]

UNPARSABLE = "unparsable"
UNTIMED = "no time"
TWICE_OR_NEVER = "local time that a clock change repeats or skips"
LATE = "time before 1980 or after 2100"
OUTSIDE = "coordinates out of range"
EXCHANGED = "coordinates out of range, in range if exchanged"

EARLIEST_US = 315_964_800_000_000
"""1980-01-06, when GPS time starts: no fix is older."""

LATEST_US = 4_102_444_800_000_000
"""2100-01-01."""

MAX_BOX_KM = 20_000.0
MAX_WINDOW_S = 3.2e9
"""A hundred years: a longer window is a mistake."""


@dataclass(frozen=True)
class Options:
    """How to read columns.

    Parameters
    ----------
    table : {'positions', 'reads'}
    tz : str
        Time zone (IANA name) of times that do not say theirs.
    time_unit : {'s', 'ms', 'us', 'ns'}
        Unit of numeric times, counted from 1970-01-01 UTC.
    box_km, window_s : float
        What a read asks for, where its row does not say.
    """

    table: str = "positions"
    tz: str = "UTC"
    time_unit: str = "s"
    box_km: float = 20.0
    window_s: float = 7200.0

    def __post_init__(self) -> None:
        time_zone("tz", self.tz)
        allowed: list[tuple[str, Any, bool, str]] = [
            ("table", self.table, self.table in ("positions", "reads"), "positions or reads"),
            ("time_unit", self.time_unit, self.time_unit in TIME_UNITS, "one of " + ", ".join(TIME_UNITS)),
            ("box_km", self.box_km, 0 < self.box_km <= MAX_BOX_KM, "a side over 0 and up to 20,000 km"),
            ("window_s", self.window_s, 0 < self.window_s <= MAX_WINDOW_S, "seconds over 0 and up to 3.2e9"),
        ]
        for name, value, fine, expected in allowed:
            if not fine:
                raise ParameterError(
                    f"The parameter {name} is not usable.", where=name, found=repr(value), expected=expected
                )


@dataclass(frozen=True)
class Parsed:
    """Rows that could be read, and those that could not.

    Attributes
    ----------
    good : pyarrow.Table
        ``source, row, device, t_us, lat, lon`` and, where the file has them, ``speed_mps, occupied, box_km,
        window_s``.
    bad : pyarrow.Table
        With the schema of ``rejected``; reasons are this module's, and "speed over 340 m/s" where the row
        itself says so.
    """

    good: pa.Table
    bad: pa.Table


def parse(columns: pa.Table, source: str, rows: NDArray[np.int64], options: Options) -> Parsed:
    """Read the columns of one batch.

    Parameters
    ----------
    columns : pyarrow.Table
        ``device, ts, lat, lon`` and optionally ``speed_mps, occupied, box_km, window_s``: text, or already
        typed (Parquet).
    source : str
        Name of the file.
    rows : ndarray of int64
        Number of each row in the file, from 1.
    options : Options
    """
    device = pc.utf8_trim_whitespace(columns["device"].combine_chunks().cast(pa.string()))
    t_us = times_us(columns["ts"].combine_chunks(), options.tz, options.time_unit)
    values = {
        name: numbers(columns[name].combine_chunks())
        for name in ("lat", "lon", "speed_mps", "box_km", "window_s")
        if name in columns.column_names
    }
    lat, lon = values["lat"], values["lon"]
    with np.errstate(invalid="ignore"):
        late = (t_us < EARLIEST_US) | (t_us > LATEST_US)
        outside = (np.abs(lat) > 90) | (np.abs(lon) > 180)
        swapped = outside & (np.abs(lon) <= 90) & (np.abs(lat) <= 180)
    untimed = np.asarray(pc.is_null(columns["ts"].combine_chunks()).to_numpy(zero_copy_only=False))
    unparsable = np.isnan(lat) | np.isnan(lon) | (t_us == NO_TIME)
    unparsable |= np.asarray(pc.fill_null(pc.equal(device, ""), True).to_numpy(zero_copy_only=False))
    unplaced = _is_twice_or_never(columns["ts"].combine_chunks(), t_us, options)
    for name, most in (("box_km", MAX_BOX_KM), ("window_s", MAX_WINDOW_S)):
        if name in values:  # where a row says nothing, the default holds
            unparsable |= ~((values[name] > 0) & (values[name] <= most)) & _says(columns[name])
    reason = np.select(
        [untimed, unplaced, unparsable, late, swapped, outside],
        [UNTIMED, TWICE_OR_NEVER, UNPARSABLE, LATE, EXCHANGED, OUTSIDE],
        default="",
    )
    if "speed_mps" in values:
        speed = values["speed_mps"]
        reason = np.where((reason == "") & (speed > MAX_FLIGHT_MPS), "speed over 340 m/s", reason)
        values["speed_mps"] = np.where(speed >= 0, speed, np.nan)  # negative means unknown in phones' logs
    values["lon"] = np.where(lon == 180.0, -180.0, lon)
    good = {"row": pa.array(rows), "device": device, "t_us": pa.array(t_us)}
    good |= {name: pa.array(column, from_pandas=True) for name, column in values.items()}
    if "occupied" in columns.column_names:
        good["occupied"] = truths(columns["occupied"].combine_chunks())
    keep = reason == ""
    table = pa.table(good)
    bad = REJECTED.empty_table()
    if not keep.all():
        table = table.filter(pa.array(keep))
        aside = [rows[~keep], reason[~keep], raw_text(columns.filter(pa.array(~keep)))]
        bad = pa.table([pa.array([source] * len(aside[0]), pa.string()), *aside], schema=REJECTED)
    name_of_all = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), pa.array([source]))
    return Parsed(table.add_column(0, "source", name_of_all), bad)


def _is_twice_or_never(ts: pa.Array, t_us: NDArray[np.int64], options: Options) -> NDArray[np.bool_]:
    """Tell which times can be read, but the zone has them twice or never: in UTC each is one."""
    found = np.asarray(t_us == NO_TIME, dtype=np.bool_)
    if options.tz != "UTC" and found.any():
        found[found] = times_us(ts.filter(pa.array(found)), "UTC", options.time_unit) != NO_TIME
        return found
    return np.zeros(len(t_us), dtype=np.bool_)


def _says(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Tell which rows say something at all."""
    text = pc.utf8_trim_whitespace(column.combine_chunks().cast(pa.string()))
    return np.asarray(
        pc.fill_null(pc.not_equal(text, ""), False).to_numpy(zero_copy_only=False), dtype=np.bool_
    )
