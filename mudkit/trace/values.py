"""Conversion of a file's columns, texts or typed values, to numbers, times and booleans."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "NO_TIME",
    "TIME_UNITS",
    "booleans",
    "has_clock_change",
    "is_given",
    "moments",
    "numbers",
    "raw_text",
    "times_us",
]

TIME_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
"""Units of numeric times, and how many microseconds one is (nanoseconds are divided instead)."""

NO_TIME = int(np.iinfo(np.int64).min)
"""Stands where a time cannot be read."""

_DAY = r"^(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)(?:[T ]00:00(?::00(?:\.0*)?)?)?$"
_CLOCK = r"^\d{1,2}:\d\d"
_COMPACT_CLOCK = r"^\d{1,6}([.,]\d+)?$"
_DECIMAL_COMMA = r"^\s*[+-]?\d+,\d+\s*$"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_PLAIN = r"^(1[7-9]|2[01])\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
_ZONE = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)?\s*(?:[zZ]|[+-]\d\d(?::?\d\d)?)\s*$"
_YES, _NO = ["1", "1.0", "true", "t", "yes"], ["0", "0.0", "false", "f", "no"]


def numbers(column: pa.Array, *, decimal_comma: bool = False) -> NDArray[np.float64]:
    """Parse numbers; NaN for missing and infinite ones.

    ``decimal_comma`` also allows ``47,002``, where it cannot be meant as 47002.
    """
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _plain_numbers(column, decimal_comma=decimal_comma)
    values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def _plain_numbers(column: pa.Array, *, decimal_comma: bool) -> pa.Array:
    """Parse texts of numbers; null where a text is none."""
    try:
        return column.cast(pa.float64())  # "nan" and "inf" are not finite, so that nobody takes them
    except pa.ArrowInvalid:  # a blank, a plus sign or another text: row by row
        if decimal_comma:
            has_comma = pc.match_substring_regex(column, _DECIMAL_COMMA)
            column = pc.if_else(has_comma, pc.replace_substring(column, ",", "."), column)
        is_number = pc.match_substring_regex(column, _NUMBER)
        return pc.utf8_trim_whitespace(pc.if_else(is_number, column, None)).cast(pa.float64(), safe=False)


def moments(day: pa.Array, time: pa.Array) -> pa.Array:
    """Join days to the times of day beside them, as ``12:30:59`` or ``123059``; whole moments stay.

    A day of six digits does not show which of them are the year: its moment is no readable time. Without a
    day the moment is null.
    """
    day, time = (pc.utf8_trim_whitespace(column.cast(pa.string())) for column in (day, time))
    is_compact = pc.match_substring_regex(time, _COMPACT_CLOCK)
    padded = pc.binary_join_element_wise("000000", time, "")
    compact = pc.replace_substring_regex(padded, r"^\d*(\d\d)(\d\d)(\d\d)([.,]\d+)?$", r"\1:\2:\3\4")
    clock = pc.if_else(is_compact, compact, pc.replace_substring_regex(time, r"^(\d:)", r"0\1"))
    day = pc.replace_substring_regex(day, _DAY, r"\1-\2-\3")
    day = pc.replace_substring_regex(pc.if_else(pc.equal(day, ""), None, day), r"^(\d+)$", r"?\1")
    is_clock = pc.match_substring_regex(clock, _CLOCK)
    return pc.if_else(is_clock, pc.binary_join_element_wise(day, clock, " "), time)


def times_us(column: pa.Array, tz: str, time_unit: str = "s") -> NDArray[np.int64]:
    """Parse times as microseconds since 1970 UTC; :data:`NO_TIME` where there is no time.

    A column has numbers, texts (numbers or ISO 8601, row by row) or timestamps.
    """
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        plain_us = _plain_us(column, tz)
        if plain_us is not None:
            return plain_us
        # Row by row, numbers or texts: a file may change from one to the other.
        is_number = pc.fill_null(pc.match_substring_regex(column, _NUMBER), False)
        numeric = np.asarray(is_number.to_numpy(zero_copy_only=False))
        t_us = np.full(len(column), NO_TIME)
        if numeric.any():
            number = pc.utf8_ltrim(pc.utf8_trim_whitespace(column.filter(is_number)), characters="+")
            whole = pc.all(pc.match_substring_regex(number, r"^-?\d{1,18}$")).as_py()
            t_us[numeric] = times_us(number.cast(pa.int64() if whole else pa.float64()), tz, time_unit)
        if not numeric.all():
            t_us[~numeric] = _texts_us(column.filter(pc.invert(is_number)), tz)
        return t_us
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            return times_us(column.cast(pa.string()), tz)
        return _filled(column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()))
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
        if time_unit == "ns":
            return _filled(pc.divide(column, 1000))
        factor = TIME_UNITS[time_unit]
        limit = np.iinfo(np.int64).max // factor  # so that a wrong unit is out of range, not an overflow
        low_enough = pc.min_element_wise(column, limit, skip_nulls=False)
        return _filled(pc.multiply(pc.max_element_wise(low_enough, -limit, skip_nulls=False), factor))
    factor_us = TIME_UNITS[time_unit] or 1e-3
    seconds = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    known = np.isfinite(seconds)
    clipped = np.clip(np.where(known, seconds, 0.0) * factor_us, -9e18, 9e18)
    return np.where(known, np.rint(clipped).astype(np.int64), NO_TIME)


def has_clock_change(
    column: pa.Array, t_us: NDArray[np.int64], tz: str, time_unit: str = "s"
) -> NDArray[np.bool_]:
    """Return which times, read as ``t_us``, are readable but ambiguous or missing in the zone."""
    is_unread = np.asarray(t_us == NO_TIME, dtype=np.bool_)
    if tz != "UTC" and is_unread.any():
        is_unread[is_unread] = times_us(column.filter(pa.array(is_unread)), "UTC", time_unit) != NO_TIME
        return is_unread
    return np.zeros(len(t_us), dtype=np.bool_)


def is_given(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values are not empty."""
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return np.asarray(
        pc.fill_null(pc.not_equal(text, ""), False).to_numpy(zero_copy_only=False), dtype=np.bool_
    )


def _texts_us(column: pa.Array, tz: str) -> NDArray[np.int64]:
    """Parse ISO 8601 texts; a local time that a clock change makes ambiguous or impossible is no time."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    texts = column.to_pandas()
    has_zone = texts.str.contains(_ZONE, regex=True, na=False)
    times = pd.Series(pd.NaT, index=texts.index, dtype="datetime64[ns, UTC]")
    # Not all at once: pandas reads a text without a zone in that of the text before it.
    for chosen in (has_zone, ~has_zone):
        if chosen.any():
            times[chosen] = pd.to_datetime(texts[chosen], format="ISO8601", errors="coerce", utc=True)
    if not has_zone.all():
        local = times[~has_zone].dt.tz_localize(None)
        local = local.dt.tz_localize(tz, ambiguous="NaT", nonexistent="NaT")
        times[~has_zone] = local.dt.tz_convert("UTC")
    values = times.to_numpy(dtype="datetime64[us]").view(np.int64)
    return np.where(times.isna(), NO_TIME, values)


def _plain_us(column: pa.Array, tz: str) -> NDArray[np.int64] | None:
    """Parse texts in UTC in the format that Arrow parses itself; None for other formats."""
    shape = _PLAIN + (r"Z?$" if tz == "UTC" else r"Z$")
    if not pc.all(pc.match_substring_regex(column, shape), skip_nulls=False).as_py():
        return None
    try:
        times = pc.utf8_rtrim(column, characters="Z").cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # a 13th month, for instance: the careful way finds the row
        return None
    return np.asarray(times.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def _filled(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, NO_TIME).to_numpy(zero_copy_only=False), dtype=np.int64)


def booleans(column: pa.Array) -> pa.Array:
    """Parse booleans; null where there is none."""
    if pa.types.is_boolean(column.type):
        return column
    text = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
    yes, no = (pc.is_in(text, value_set=pa.array(values)) for values in (_YES, _NO))
    return pc.if_else(yes, True, pc.if_else(no, False, None))


def raw_text(columns: pa.Table, delimiter: str = ",") -> pa.Array:
    """Return the original rows, fields separated by the delimiter."""
    texts = [pc.fill_null(column.combine_chunks().cast(pa.string()), "") for column in columns.columns]
    return pc.binary_join_element_wise(*texts, delimiter) if len(columns) else pa.array([], pa.string())
