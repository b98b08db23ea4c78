"""From columns as they came to numbers, times and texts; what cannot be read is set aside with a reason."""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.trace.plausible import MAX_SPEED_MPS
from mudkit.trace.schema import REJECTED

__all__ = [
    "EARLIEST_US",
    "EXCHANGED",
    "LATE",
    "LATEST_US",
    "MAX_BOX_KM",
    "MAX_WINDOW_S",
    "OUTSIDE",
    "TIME_UNITS",
    "UNPARSABLE",
    "Options",
    "Parsed",
    "parse",
]

UNPARSABLE = "unparsable"
LATE = "time before 1980 or after 2100"
OUTSIDE = "coordinates out of range"
EXCHANGED = "coordinates out of range, in range if exchanged"

TIME_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
"""Units of numeric times, and how many microseconds one is (nanoseconds are divided instead)."""

EARLIEST_US = 315_964_800_000_000
"""1980-01-06, when GPS time starts: no fix is older."""

LATEST_US = 4_102_444_800_000_000
"""2100-01-01."""

MAX_BOX_KM = 20_000.0
MAX_WINDOW_S = 3.2e9
"""A hundred years: a longer window is a mistake."""

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_YES, _NO = ["1", "1.0", "true", "t", "yes"], ["0", "0.0", "false", "f", "no"]


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
        allowed: list[tuple[str, Any, bool, str]] = [
            ("table", self.table, self.table in ("positions", "reads"), "positions or reads"),
            ("time_unit", self.time_unit, self.time_unit in TIME_UNITS, "one of " + ", ".join(TIME_UNITS)),
            ("box_km", self.box_km, 0 < self.box_km <= MAX_BOX_KM, "a side over 0 and up to 20,000 km"),
            ("window_s", self.window_s, 0 < self.window_s <= MAX_WINDOW_S, "seconds over 0 and up to 3.2e9"),
            ("tz", self.tz, _is_zone(self.tz), "a time zone, for instance America/Los_Angeles"),
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
        With the schema of ``rejected``; reasons are this module's, and "speed over 70 m/s" where the row
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
    t_us = _times_us(columns["ts"].combine_chunks(), options)
    numbers = {
        name: _numbers(columns[name].combine_chunks())
        for name in ("lat", "lon", "speed_mps", "box_km", "window_s")
        if name in columns.column_names
    }
    lat, lon = numbers["lat"], numbers["lon"]
    with np.errstate(invalid="ignore"):
        late = (t_us < EARLIEST_US) | (t_us > LATEST_US)
        outside = (np.abs(lat) > 90) | (np.abs(lon) > 180)
        swapped = outside & (np.abs(lon) <= 90) & (np.abs(lat) <= 180)
    unparsable = np.isnan(lat) | np.isnan(lon) | (t_us == _NO_TIME)
    unparsable |= np.asarray(pc.fill_null(pc.equal(device, ""), True).to_numpy(zero_copy_only=False))
    for name, most in (("box_km", MAX_BOX_KM), ("window_s", MAX_WINDOW_S)):
        if name in numbers:  # where a row says nothing, the default holds
            unparsable |= ~((numbers[name] > 0) & (numbers[name] <= most)) & _says(columns[name])
    reason = np.select(
        [unparsable, late, swapped, outside], [UNPARSABLE, LATE, EXCHANGED, OUTSIDE], default=""
    )
    if "speed_mps" in numbers:
        speed = numbers["speed_mps"]
        reason = np.where((reason == "") & (speed > MAX_SPEED_MPS), "speed over 70 m/s", reason)
        numbers["speed_mps"] = np.where(speed >= 0, speed, np.nan)  # negative means unknown in phones' logs
    numbers["lon"] = np.where(lon == 180.0, -180.0, lon)
    good = {"row": pa.array(rows), "device": device, "t_us": pa.array(t_us)}
    good |= {name: pa.array(values, from_pandas=True) for name, values in numbers.items()}
    if "occupied" in columns.column_names:
        good["occupied"] = _truths(columns["occupied"].combine_chunks())
    keep = reason == ""
    table = pa.table(good).filter(pa.array(keep))
    name_of_all = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), pa.array([source]))
    bad = pa.table(
        {
            "source": pa.array([source] * int((~keep).sum()), pa.string()),
            "row": pa.array(rows[~keep]),
            "reason": pa.array(reason[~keep], pa.string()),
            "raw": _raw(columns.filter(pa.array(~keep))),
        },
        schema=REJECTED,
    )
    return Parsed(table.add_column(0, "source", name_of_all), bad)


_NO_TIME = np.iinfo(np.int64).min


def _is_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return True


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """Read numbers; NaN where there is none (infinity is none)."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        is_number = pc.match_substring_regex(column, _NUMBER)
        column = pc.utf8_trim_whitespace(pc.if_else(is_number, column, None))
    values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def _times_us(column: pa.Array, options: Options) -> NDArray[np.int64]:
    """Read times as microseconds since 1970 UTC; the smallest int64 where there is none."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # Row by row, numbers or texts: a file may change from one to the other.
        is_number = pc.fill_null(pc.match_substring_regex(column, _NUMBER), False)
        numeric = np.asarray(is_number.to_numpy(zero_copy_only=False))
        t_us = np.full(len(column), _NO_TIME)
        if numeric.any():
            number = pc.utf8_ltrim(pc.utf8_trim_whitespace(column.filter(is_number)), characters="+")
            whole = pc.all(pc.match_substring_regex(number, r"^-?\d{1,18}$")).as_py()
            t_us[numeric] = _times_us(number.cast(pa.int64() if whole else pa.float64()), options)
        if not numeric.all():
            t_us[~numeric] = _texts_us(column.filter(pc.invert(is_number)), options.tz)
        return t_us
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            return _texts_us(column.cast(pa.string()), options.tz)
        return _filled(column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()))
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
        if options.time_unit == "ns":
            return _filled(pc.divide(column, 1000))
        factor = TIME_UNITS[options.time_unit]
        limit = np.iinfo(np.int64).max // factor  # so that a wrong unit is out of range, not an overflow
        low_enough = pc.min_element_wise(column, limit, skip_nulls=False)
        return _filled(pc.multiply(pc.max_element_wise(low_enough, -limit, skip_nulls=False), factor))
    factor_us = TIME_UNITS[options.time_unit] or 1e-3
    seconds = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    known = np.isfinite(seconds)
    clipped = np.clip(np.where(known, seconds, 0.0) * factor_us, -9e18, 9e18)
    return np.where(known, np.rint(clipped).astype(np.int64), _NO_TIME)


def _texts_us(column: pa.Array, tz: str) -> NDArray[np.int64]:
    """Read ISO 8601 texts; a local time that a clock change makes ambiguous or impossible is none."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    texts = column.to_pandas()
    has_zone = texts.str.contains(
        r":\d\d(?:[.,]\d+)?\s*(?:[zZ]|[+-]\d\d(?::?\d\d)?)\s*$", regex=True, na=False
    )
    times = pd.Series(pd.NaT, index=texts.index, dtype="datetime64[ns, UTC]")
    if has_zone.any():
        times[has_zone] = pd.to_datetime(texts[has_zone], format="ISO8601", errors="coerce", utc=True)
    if not has_zone.all():
        naive = pd.to_datetime(texts[~has_zone], format="ISO8601", errors="coerce")
        local = naive.dt.tz_localize(tz, ambiguous="NaT", nonexistent="NaT")
        times[~has_zone] = local.dt.tz_convert("UTC")
    values = times.to_numpy(dtype="datetime64[us]").view(np.int64)
    return np.where(times.isna(), _NO_TIME, values)


def _says(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Tell which rows say something at all."""
    text = pc.utf8_trim_whitespace(column.combine_chunks().cast(pa.string()))
    return np.asarray(
        pc.fill_null(pc.not_equal(text, ""), False).to_numpy(zero_copy_only=False), dtype=np.bool_
    )


def _filled(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, _NO_TIME).to_numpy(zero_copy_only=False), dtype=np.int64)


def _truths(column: pa.Array) -> pa.Array:
    """Read truth values; null where there is none."""
    if pa.types.is_boolean(column.type):
        return column
    text = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
    yes, no = (pc.is_in(text, value_set=pa.array(values)) for values in (_YES, _NO))
    return pc.if_else(yes, True, pc.if_else(no, False, None))


def _raw(columns: pa.Table) -> pa.Array:
    texts = [pc.fill_null(column.combine_chunks().cast(pa.string()), "") for column in columns.columns]
    return pc.binary_join_element_wise(*texts, ",") if len(columns) else pa.array([], pa.string())
