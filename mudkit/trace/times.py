"""Conversion of a file's column of times, numbers or texts, to microseconds since 1970."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.trace.values import NUMBER

TIME_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
"""Units of numeric times, and how many microseconds one is (nanoseconds are divided instead)."""

AUTO: Final = "auto"
"""The unit in which a number is a time between 1980 and 2100: no number is one in two units."""

NO_TIME: Final = int(np.iinfo(np.int64).min)
"""Stands where a time cannot be read."""

_MIN_SIZE: Final = {"s": 0.0, "ms": 1e11, "us": 1e14, "ns": 1e17}
"""Smallest size of a number of each unit; below, it is of the unit before."""

_PLAIN: Final = r"^(1[7-9]|2[01])\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
_ZONE: Final = r"[T ]\d\d(?::?\d\d){0,2}(?:\.\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)\s*$"
_NEVER_LOCAL: Final = r"^(\d{0,13}|\d{15,19})(\.\d*)?$|Z$|:\d\d(\.\d+)?[+-]\d\d:?\d\d$"
"""Most texts that are no local times: numbers, and those that end with their zone."""

_ZONE_LIKE: Final = r"(?i)(z|utc|gmt|[+-]\d\d(:?\d\d)?)\s*$"
_DATE: Final = r"^\d{4}(-\d\d-\d\d($|[T ])|\d{4}[T ])"
_UNIFORM: Final = (
    (r"^((?:19|20)\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)$", r"\1-\2-\3T\4:\5:\6"),
    (r"(?i)\s*(utc|gmt|z)$", "Z"),
    (r"^(\d{4}-?\d\d-?\d\d)t", r"\1T"),
    (r"(\d\d:?\d\d:?\d\d),(\d+)", r"\1.\2"),
)
"""Spellings that ISO 8601 or RFC 3339 allow, or that databases use, and the one that is parsed."""

_DAY_1970, _DAY_1980, _DAY_2100 = 25_569, 29_221, 73_051
"""Days since 1899-12-30, by which workbooks count."""

_DIGITS_BEGIN, _DIGITS_END = 1.9e13, 2.1e13
"""Numbers that are the digits of a moment, as 20081023025304."""

_DAY: Final = r"^(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)(?:[T ]00:00(?::00(?:\.0*)?)?)?$"
_TIME_OF_DAY: Final = r"^\d{1,2}:\d\d"
_COMPACT_CLOCK: Final = r"^\d{1,6}([.,]\d+)?$"

_CLOCK: Final = (
    r"(?P<h>\d{1,2}):(?P<m>\d\d)(?::(?P<s>\d\d(?:\.\d+)?))?"
    r"\s*(?P<half>(?i:[ap]\.?m\.?)?)\s*(?P<z>Z|[+-]\d\d:?\d\d|)"
)
_NAME: Final = r"^(?:[A-Za-z]{3,9},?\s+)?"
_MONTH: Final = r"(?P<month>[A-Za-z]{3})[a-z]*\.?"
_NAMED: Final = (
    _NAME + r"(?P<d>\d{1,2})(?:st|nd|rd|th)?[ -]" + _MONTH + r"[ ,-]+(?P<y>\d{4})[ ,T]+" + _CLOCK + "$",
    _NAME + _MONTH + r" +(?P<d>\d{1,2})(?:st|nd|rd|th)?,? +(?P<y>\d{4})[ ,T]+" + _CLOCK + "$",
    _NAME + _MONTH + r" +(?P<d>\d{1,2}) +" + _CLOCK + r" +(?P<y>\d{4})$",
    r"^(?P<y>\d{4})[/.](?P<month>\d{1,2})[/.](?P<d>\d{1,2})[ T]+" + _CLOCK + "$",
)
"""Dates that name the month, and those that begin with the year; 03/04/2023 may be two days, and is none."""

_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


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
    is_clock = pc.match_substring_regex(clock, _TIME_OF_DAY)
    return pc.if_else(is_clock, pc.binary_join_element_wise(day, clock, " "), time)


def times_us(column: pa.Array, tz: str, time_unit: str = AUTO) -> NDArray[np.int64]:
    """Parse times as microseconds since 1970 UTC; :data:`NO_TIME` where there is no time.

    A column has numbers, texts (numbers, ISO 8601, or dates that name the month, row by row) or timestamps.
    """
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_string(column.type):
        if _are_counts(column):
            return times_us(column.cast(pa.int64()), tz, time_unit)
        plain_us = _plain_us(column, tz)
        if plain_us is not None:
            return plain_us
        # Row by row, numbers or texts: a file may change from one to the other.
        is_number = pc.fill_null(pc.match_substring_regex(column, NUMBER), False)
        numeric = np.asarray(is_number.to_numpy(zero_copy_only=False))
        t_us = np.full(len(column), NO_TIME)
        if numeric.any():
            number = pc.utf8_ltrim(pc.utf8_trim_whitespace(column.filter(is_number)), characters="+")
            whole = pc.all(pc.match_substring_regex(number, r"^-?\d{1,18}$")).as_py()
            t_us[numeric] = times_us(number.cast(pa.int64() if whole else pa.float64()), tz, time_unit)
        if not numeric.all():
            t_us[~numeric] = _texts_us(_uniform(column.filter(pc.invert(is_number))), tz)
        return t_us
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            return times_us(column.cast(pa.string()), tz)
        return _filled(column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()))
    t_us = _numbers_us(column, time_unit)
    if time_unit == AUTO and _may_be_moments(column):
        number = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        for is_text, texts in ((_are_digits(number), _of_digits), (_are_days(number), _of_days)):
            if is_text.any():
                t_us[is_text] = _texts_us(texts(number[is_text]), tz)
    return t_us


def _are_counts(column: pa.Array) -> bool:
    """Return whether all texts are whole numbers that are no digits of a moment: most files have no others.

    Without the patterns of other texts they are read in a fraction of the time.
    """
    if not pc.all(pc.ascii_is_decimal(column), skip_nulls=False).as_py():
        return False
    length = pc.min_max(pc.binary_length(column)).as_py()
    return length["max"] is not None and (length["max"] <= 13 or 15 <= length["min"] <= length["max"] <= 18)


def _may_be_moments(column: pa.Array) -> bool:
    """Return whether some numbers may be the digits of a moment, or days, by the least and the most."""
    least, most = pc.min_max(column.cast(pa.float64(), safe=False)).as_py().values()
    if least is None or most < _DAY_1980 or least >= _DIGITS_END:
        return False
    return bool(least < _DAY_2100 or most >= _DIGITS_BEGIN)


def _are_digits(number: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which numbers have the digits of a moment, as 20081023025304; none is a time in any unit."""
    with np.errstate(invalid="ignore"):
        return np.asarray((number >= _DIGITS_BEGIN) & (number < _DIGITS_END) & (number == np.rint(number)))


def _of_digits(number: NDArray[np.float64]) -> pa.Array:
    """Return moments written as digits, 20081023025304, as texts that are parsed."""
    return _uniform(pa.array(number.astype(np.int64)).cast(pa.string()))


def _are_days(number: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which numbers are days of a workbook: all from 1980 to 2100, if most have over three decimals.

    Seconds since midnight or a start, which may be as large, have milliseconds at most.
    """
    with np.errstate(invalid="ignore"):
        is_day = np.asarray((number >= _DAY_1980) & (number < _DAY_2100))
    thousandths = number[is_day] * 1e3
    is_fine = np.abs(thousandths - np.rint(thousandths)) > 1e-4
    return is_day & (2 * np.count_nonzero(is_fine) > len(is_fine))


def _of_days(number: NDArray[np.float64]) -> pa.Array:
    """Return local times of days since 1899-12-30 as ISO 8601."""
    t_ms = np.rint((number - _DAY_1970) * 86_400_000).astype(np.int64)
    return pa.array(t_ms.astype("datetime64[ms]").astype(str))


def has_clock_change(
    column: pa.Array, t_us: NDArray[np.int64], tz: str, time_unit: str = AUTO
) -> NDArray[np.bool_]:
    """Return which times, read as ``t_us``, are readable but ambiguous or missing in the zone."""
    is_unread = np.asarray(t_us == NO_TIME, dtype=np.bool_)
    if tz != "UTC" and is_unread.any():
        is_unread[is_unread] = times_us(column.filter(pa.array(is_unread)), "UTC", time_unit) != NO_TIME
        return is_unread
    return np.zeros(len(t_us), dtype=np.bool_)


def names_zone(column: pa.Array) -> bool:
    """Return whether some of the times name their zone."""
    if pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    if (
        not pa.types.is_string(column.type)
        or not pc.any(pc.match_substring_regex(column, _ZONE_LIKE)).as_py()
    ):
        return False
    return bool(pc.any(pc.match_substring_regex(_uniform(column), _ZONE)).as_py())


def lacks_zone(column: pa.Array) -> NDArray[np.bool_]:
    """Return which texts or timestamps are local times."""
    if pa.types.is_timestamp(column.type):
        return np.full(len(column), column.type.tz is None)
    local = np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_string(column.type) and not _are_counts(column):
        is_other = pc.invert(pc.fill_null(pc.match_substring_regex(column, _NEVER_LOCAL), True))
        if pc.any(is_other).as_py():
            local[np.asarray(is_other)] = _lacks_zone(column.filter(is_other))
    return local


def _lacks_zone(column: pa.Array) -> NDArray[np.bool_]:
    """Return which texts are local times: a date without a zone."""
    if pc.all(pc.match_substring_regex(column, _PLAIN + "$")).as_py():
        return np.ones(len(column), dtype=np.bool_)
    text = _uniform(column)
    local = pc.and_not(pc.match_substring_regex(text, _DATE), pc.match_substring_regex(text, _ZONE))
    return np.asarray(local.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _numbers_us(column: pa.Array, time_unit: str) -> NDArray[np.int64]:
    """Convert numbers; what overflows is clipped, so that a wrong unit is out of range."""
    kind = pa.int64() if pa.types.is_integer(column.type) else pa.float64()
    values = np.asarray(pc.fill_null(column.cast(kind), 0).to_numpy(zero_copy_only=False))
    known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False)) & np.isfinite(values)
    size = np.abs(np.where(known, values, 0))
    t_us = np.full(len(values), NO_TIME)
    smallest, largest = (size.min(), size.max()) if len(size) else (0, 0)
    least = {time_unit: 0.0} if time_unit in TIME_UNITS else _MIN_SIZE
    for (unit, low), high in zip(least.items(), [*list(least.values())[1:], np.inf], strict=True):
        if largest < low or smallest >= high:
            continue
        of = known & (size >= low) & (size < high)
        number, factor = values[of], TIME_UNITS[unit]
        if kind == pa.int64():
            limit = np.iinfo(np.int64).max // max(factor, 1)
            t_us[of] = np.clip(number, -limit, limit) * factor if factor else number // 1000
        else:
            t_us[of] = np.rint(np.clip(number * (factor or 1e-3), -9e18, 9e18)).astype(np.int64)
    return t_us


def _uniform(column: pa.Array) -> pa.Array:
    """Return texts of times in the one spelling that is parsed."""
    text = pc.utf8_trim_whitespace(column)
    for pattern, spelling in _UNIFORM:
        text = pc.replace_substring_regex(text, pattern, spelling)
    for pattern in _NAMED:
        parts = pc.extract_regex(text, pattern)
        if pc.any(parts.is_valid()).as_py():
            text = pc.coalesce(_iso(parts), text)
    return text


def _iso(parts: pa.Array) -> pa.Array:
    """Return the texts of dates as ISO 8601; null where there is none."""
    field = {name: parts.field(name) for name in ("y", "d", "h", "m", "s", "half", "z")}
    month = pc.utf8_lower(parts.field("month"))
    number = pc.index_in(month, value_set=pa.array(_MONTHS))
    month = pc.coalesce(pc.add(number, 1).cast(pa.string()), month)
    hour = pc.utf8_ltrim(field["h"], characters="0")
    hour = pc.if_else(pc.equal(hour, ""), "0", hour).cast(pa.int64())
    half = pc.utf8_lower(pc.utf8_slice_codeunits(field["half"], 0, 1))
    of_half = pc.add(pc.if_else(pc.equal(hour, 12), 0, hour), pc.if_else(pc.equal(half, "p"), 12, 0))
    hour = pc.if_else(pc.equal(half, ""), hour, of_half).cast(pa.string())
    second = pc.if_else(pc.equal(field["s"], ""), "00", field["s"])
    two = (pc.utf8_lpad(text, 2, "0") for text in (month, field["d"], hour))
    month, day, hour = two
    date = pc.binary_join_element_wise(field["y"], month, day, "-")
    clock = pc.binary_join_element_wise(hour, field["m"], second, ":")
    iso = pc.binary_join_element_wise(date, clock, "T")
    return pc.if_else(parts.is_valid(), pc.binary_join_element_wise(iso, field["z"], ""), None)


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
    """Return times in microseconds as an array, ``NO_TIME`` where they are null."""
    return np.asarray(pc.fill_null(column, NO_TIME).to_numpy(zero_copy_only=False), dtype=np.int64)
