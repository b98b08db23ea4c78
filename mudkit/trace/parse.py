"""Parsing of a source's columns into devices, times and places; unreadable rows are set aside.

If most rows are unreadable in the same way, the file was read with wrong options (another time unit,
exchanged coordinates), which is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats import FIELDS, NESTED, NOT_POSITIONS, UNCLOSED, Batch, Dialect, Segment, lines_of
from mudkit.trace.formats.columns import REPROJECT
from mudkit.trace.options import MAX_BOX_KM, MAX_WINDOW_S, LoadPlan, Options
from mudkit.trace.plausible import MAX_FLIGHT_MPS
from mudkit.trace.schema import REJECTED, rejected_by_reason, rejected_rows
from mudkit.trace.times import (
    AUTO,
    NO_TIME,
    TIME_UNITS,
    has_clock_change,
    lacks_zone,
    names_zone,
    times_us,
)
from mudkit.trace.values import booleans, hemispheres, is_given, numbers, raw_text

UNNAMED = "no device"
UNTIMED = "no time"
UNZONED = "local time among times with a zone"
UNREADABLE = "time that cannot be read"
UNPLACED = "latitude or longitude that is no number"
CONTRARY = "hemisphere that is no N, S, E or W, or contradicts a sign"
UNBOUNDED = "box or window out of range"
TWICE_OR_NEVER = "local time that a clock change repeats or skips"
LATE = "time before 1980 or after 2100"
OUTSIDE = "coordinates out of range"
EXCHANGED = "coordinates out of range, in range if exchanged"
MILLIONTHS = "coordinates in millionths of a degree"
MINUTES = "coordinates in degrees and minutes, as 4722.50"
METRES = "coordinates in metres of a projection"
TO_360 = "longitude over 180, as counted from 0 to 360"
TOO_FAST = f"speed over {MAX_FLIGHT_MPS:.0f} m/s"

_REMEDIES = {
    FIELDS: "check the separators and the quotation marks",
    UNCLOSED: "remove the quotation marks that do not come in pairs",
    NESTED: "write the points alone, line by line, as with jq -c '{device} + .points[]' for a list points,"
    " or with jq -c '{device} + (.points[] | {ts: .[0], lat: .[1], lon: .[2]})' for one of lists",
    UNNAMED: "check which column is the device; if all rows are of one, name it: device='ann'",
    UNZONED: "name the zone of the local times, as tz='Europe/Zurich'",
    UNREADABLE: "write times as 2023-11-14T22:13:20Z or as seconds since 1970, and a date beside a time of "
    "day as 2023-11-14",
    UNPLACED: "write latitude and longitude in degrees, as 47.37",
    CONTRARY: "write N or S beside latitudes and E or W beside longitudes, or signed degrees without letters",
    TWICE_OR_NEVER: "write times with their offset, as 2023-10-29T02:30:00+02:00",
    MILLIONTHS: "divide latitude and longitude by 1,000,000, or by 10,000,000 if they have nine digits; if "
    f"they are whole metres of a projection, {REPROJECT}",
    MINUTES: "convert them to degrees: the hundreds are degrees, the rest divided by 60 is added "
    "(4722.50 is 47.375)",
    METRES: REPROJECT,
    TO_360: "subtract 360 from longitudes over 180",
    TOO_FAST: "give speeds in metres per second",
}
"""Remedies by the reason that most rows share."""

_NOTHING = pa.array(["", "NULL", "null", "\\N", "NaN", "nan", "None", "N/A", None])
"""Device that is none: empty, or what databases and data frames write for a missing value."""

_MAX_SHOWN = 100
_MAX_REASONS = 3

EARLIEST_US = 315_964_800_000_000
"""1980-01-06, when GPS time starts: no fix is older."""

_YEAR_1_US, _YEAR_10_000_US = -62_135_596_800_000_000, 253_402_300_800_000_000

LATEST_US = 4_102_444_800_000_000
"""2100-01-01."""


@dataclass(frozen=True)
class Parsed:
    """Rows that could be read, and those that could not.

    Attributes
    ----------
    good : pyarrow.Table
        ``source, row, device, t_us, lat, lon`` and, where the file has them, ``speed_mps, occupied, box_km,
        window_s``; ``source`` and ``device`` are dictionaries.
    bad : pyarrow.Table
        Rows with the schema of ``rejected``; the reasons are this module's.
    """

    good: pa.Table
    bad: pa.Table


def parsed_batches(plan: LoadPlan, parts: Sequence[Segment] | None = None) -> Iterator[Parsed]:
    """Parse a source, or some of its files, batch by batch; lines without columns are among the bad rows."""
    return (parse_batch(plan, batch) for batch in plan.source.batches(parts))


def parse_batch(plan: LoadPlan, batch: Batch) -> Parsed:
    """Parse a batch; lines without columns are among the bad rows.

    Local times can be used only if no time of the source names a zone. Of a source that begins with local
    times, times are therefore read twice.
    """
    is_open = plan.options.tz == "UTC"  # whoever says a zone says what local times are
    try:
        ts = batch.times
        has_zones = is_open and bool(lacks_zone(ts).any()) and (names_zone(ts) or plan.names_zones)
        parsed = _parse(batch, ts, plan.options, has_zones=has_zones)
    except (pa.ArrowException, KeyError) as error:
        kinds = ", ".join(f"{field.name}: {field.type}" for field in batch.columns.schema)
        raise TraceFormatError(
            f"The columns of {batch.source} are not what they should be.",
            where=batch.source,
            found=kinds,
            expected="a device as text or number, a time, and latitude and longitude as numbers",
            remedy="check the column mapping",
        ) from error
    return Parsed(parsed.good, pa.concat_tables([parsed.bad, malformed_rows(batch)]))


def _parse(batch: Batch, ts: pa.Array, options: Options, *, has_zones: bool) -> Parsed:
    """Parse the columns of one batch: text, or already typed (Parquet)."""
    columns, source, rows = batch.columns, batch.source, batch.rows
    if options.device is None:
        device = _names(columns["device"].combine_chunks())
    else:
        device = pa.repeat(pa.scalar(options.device.strip(), pa.string()), len(columns)).dictionary_encode()
    t_us = times_us(ts, options.tz, options.time_unit)
    is_unread = t_us == NO_TIME
    values = {
        name: numbers(columns[name].combine_chunks(), decimal_comma=name in ("lat", "lon", "speed_mps"))
        for name in ("lat", "lon", "speed_mps", "box_km", "window_s")
        if name in columns.column_names
    }
    is_contrary = np.zeros(len(columns), dtype=np.bool_)
    for name, letters in (("lat", "NS"), ("lon", "EW")):
        if f"{name}_hemisphere" in columns.column_names:
            sign = hemispheres(columns[f"{name}_hemisphere"].combine_chunks(), letters)
            is_contrary |= np.isnan(sign) | ((sign > 0) & (values[name] < 0))
            values[name] = np.copysign(values[name], sign)
    lat, lon = values["lat"], values["lon"]
    late = (t_us < EARLIEST_US) | (t_us > LATEST_US)
    outside = (np.abs(lat) > 90) | (np.abs(lon) > 180)
    unbounded = np.zeros(len(columns), dtype=np.bool_)
    for name, most in (("box_km", MAX_BOX_KM), ("window_s", MAX_WINDOW_S)):
        if name in values:  # where a row says nothing, the default holds
            is_wrong = ~((values[name] > 0) & (values[name] <= most))
            unbounded |= is_wrong & is_given(columns[name].combine_chunks())
    untimed = is_unread.copy()
    untimed[is_unread] = ~is_given(ts.filter(pa.array(is_unread)))
    is_nothing = pc.is_in(device.dictionary, value_set=_NOTHING).take(device.indices)
    unnamed = np.asarray(pc.fill_null(is_nothing, True).to_numpy(zero_copy_only=False))
    problems = {
        UNTIMED: untimed,
        UNNAMED: unnamed,
        UNZONED: lacks_zone(ts) if has_zones else np.zeros(len(ts), dtype=np.bool_),
        TWICE_OR_NEVER: has_clock_change(ts, t_us, options.tz, options.time_unit),
        UNREADABLE: is_unread,
        UNPLACED: np.isnan(lat) | np.isnan(lon),
        CONTRARY: is_contrary,
        UNBOUNDED: unbounded,
        LATE: late,
        OUTSIDE: outside,
    }
    if "speed_mps" in values:
        speed = values["speed_mps"]
        problems[TOO_FAST] = speed > MAX_FLIGHT_MPS
        values["speed_mps"] = np.where(speed >= 0, speed, np.nan)  # negative means unknown in phones' logs
    values["lon"] = np.where(lon == 180.0, -180.0, lon)
    good = {"row": pa.array(rows), "device": device, "t_us": pa.array(t_us)}
    good |= {name: pa.array(column, from_pandas=True) for name, column in values.items()}
    if "occupied" in columns.column_names:
        good["occupied"] = booleans(columns["occupied"].combine_chunks())
    is_bad = np.logical_or.reduce(list(problems.values()))
    table = pa.table(good)
    bad = REJECTED.empty_table()
    if is_bad.any():
        aside, table = table.filter(pa.array(is_bad)), table.filter(pa.array(~is_bad))
        raw = raw_text(columns.filter(pa.array(is_bad)), batch.delimiter)
        fields = {"device": aside["device"].cast(pa.string()), "lat": aside["lat"], "lon": aside["lon"]}
        fields["ts"] = _known(t_us[is_bad])
        of_bad = {name: problem[is_bad] for name, problem in problems.items()}
        reason = _first_reason(of_bad, lat[is_bad], lon[is_bad])
        bad = rejected_rows(source, rows[is_bad], reason, raw, fields)
    name_of_all = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), pa.array([source]))
    return Parsed(table.add_column(0, "source", name_of_all), bad)


def _names(column: pa.Array) -> pa.DictionaryArray:
    """Return the names of devices without blanks around them, each once in a dictionary."""
    given = column.dictionary_encode()
    names = pc.utf8_trim_whitespace(given.dictionary.cast(pa.string())).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(given.indices), names.dictionary)


def _first_reason(
    problems: Mapping[str, NDArray[np.bool_]], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.str_]:
    """Return the first problem of each row; coordinates out of range are named by what they may be."""
    outside = problems[OUTSIDE]
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(lat), np.abs(lon))
        is_whole = (lat == np.rint(lat)) & (lon == np.rint(lon))
        of_outside = {
            MILLIONTHS: (size > 1e4) & (size <= 180e7) & is_whole,
            EXCHANGED: outside & (np.abs(lon) <= 90) & (np.abs(lat) <= 180),
            TO_360: (np.abs(lat) <= 90) & (lon > 180) & (lon <= 360),
            MINUTES: outside & _has_minutes(lat, 90) & _has_minutes(lon, 180) & ~is_whole,
            # of the web's Mercator, too
            METRES: (np.minimum(np.abs(lat), np.abs(lon)) > 180) & (size < 2.1e7),
        }
    ordered: dict[str, NDArray[np.bool_]] = {}
    for name, problem in problems.items():
        if name == OUTSIDE:
            ordered |= of_outside
        ordered[name] = problem
    return np.select(list(ordered.values()), list(ordered), default="")


def _has_minutes(value: NDArray[np.float64], most: int) -> NDArray[np.bool_]:
    """Return which numbers are hundreds of degrees, plus minutes with decimals, as NMEA writes them."""
    size = np.abs(value)
    return np.asarray((size <= 100 * most) & (size % 100 < 60))


def _known(t_us: NDArray[np.int64]) -> pa.Array:
    """Return times as timestamps; null where there is none that a calendar has."""
    is_unknown = (t_us < _YEAR_1_US) | (t_us >= _YEAR_10_000_US)
    return pa.array(t_us, mask=is_unknown).cast(pa.timestamp("us", tz="UTC"))


def malformed_rows(batch: Batch) -> pa.Table:
    """Return the rows that the reader of a batch set aside as rejected rows."""
    lines = batch.malformed
    reasons = [line.reason for line in lines]
    return rejected_rows(batch.source, [line.row for line in lines], reasons, [line.raw for line in lines])


def no_rows(file: Place, marked: Mapping[str, int] | None = None, format: str = "csv") -> TraceContentError:  # noqa: A002
    """Return the error for a file without rows; ``marked`` counts those that are no positions, by reason."""
    if marked:
        return TraceContentError(
            f"{file.name} holds no positions.",
            where=str(file),
            found=", ".join(f"{count:,} rows set aside: {reason}" for reason, count in marked.items()),
            expected="positions of a device on its way, with their times",
            remedy="export what was recorded: a track, not places of interest",
        )
    return TraceContentError(
        f"{file.name} holds no rows.",
        where=str(file),
        found="a header and nothing below it" if format == "csv" else f"{format.upper()} without rows",
        expected="at least one row",
        remedy="get the file again",
    )


def refuse_mostly_bad(
    file: Place,
    rows: int,
    bad: pa.Table,
    expected: str,
    *,
    problem: str = "cannot be used",
    remedy: str = "check the columns, the time zone and the order of the rows",
) -> None:
    """Raise an error if more than half of the rows of a file were rejected."""
    if 2 * len(bad) <= rows:
        return
    raise TraceFormatError(
        f"Most rows of {file.name} {problem}.",
        where=str(file),
        found=f"{len(bad):,} of {rows:,} rows: {_leading(rejected_by_reason(bad))}; "
        f"the first: {str(bad['raw'][0])[:_MAX_SHOWN]!r}",
        expected=expected,
        remedy=remedy,
    )


def _leading(reasons: Mapping[str, int]) -> str:
    """Return the most frequent reasons with their counts."""
    leading = Counter(reasons).most_common(_MAX_REASONS)
    return ", ".join(f"{count:,} {reason}" for reason, count in leading)


def check_parsed(plan: LoadPlan, rows: int, bad: Mapping[str, int], kind: str = "rows") -> None:
    """Raise an error if most of the rows of a source cannot be read.

    ``bad`` counts bad rows by reason, ``kind`` says what was counted.

    Raises
    ------
    TraceContentError
        The file holds no rows.
    TraceFormatError
        Another time unit, exchanged coordinates, or another cause that most rows share.
    """
    source, where, names = plan.source, str(plan.source.path), plan.source.columns
    marked = {reason: count for reason, count in bad.items() if reason in NOT_POSITIONS}
    bad = {reason: count for reason, count in bad.items() if reason not in NOT_POSITIONS}
    rows -= sum(marked.values())
    if not rows:
        raise no_rows(source.path, marked, source.format)
    if 2 * bad.get(UNTIMED, 0) > rows:
        raise TraceFormatError(
            f"Most rows of {source.path.name} have no time.",
            where=where,
            found=f"{bad[UNTIMED]:,} of {rows:,} {kind}"
            + (f" have nothing in {names['ts']!r}" if "ts" in names else ""),
            expected="a time for each position",
            remedy="export what was recorded: planned routes and places of interest have no times",
        )
    if 2 * bad.get(LATE, 0) > rows:
        raise _wrong_unit(plan)
    if 2 * bad.get(EXCHANGED, 0) > rows:
        raise TraceFormatError(
            f"Latitude and longitude look exchanged in {source.path.name}.",
            where=where,
            found=f"{bad[EXCHANGED]:,} of {rows:,} {kind} are in range only the other way round; "
            f"lat is read from {names.get('lat', 'the first column')!r}",
            expected="latitudes within ±90, longitudes within ±180",
            remedy=f"exchange the two in the column mapping: lat={names['lon']}, lon={names['lat']}"
            if names
            else "exchange the two in the file",
        )
    if 2 * sum(bad.values()) > rows:
        reason = max(bad, key=lambda reason: bad[reason])
        dialect, row = _first_rejected(plan, reason)
        fields = f"{len(dialect.names)} fields separated by {dialect.delimiter!r}, " if dialect else ""
        taken = ", ".join(f"{name}={given}" for name, given in names.items())
        raise TraceFormatError(
            f"Most rows of {source.path.name} cannot be read.",
            where=where,
            found=f"{sum(bad.values()):,} of {rows:,} {kind}: {_leading(bad)}; {row}",
            expected=f"in each row {fields}a device, a time (UNIX or ISO 8601) and a place in degrees "
            "(like 37.77)" + (f", from the columns {taken}" if taken else ""),
            remedy=_REMEDIES.get(reason, "check the column mapping and the format"),
        )


def _first_rejected(plan: LoadPlan, reason: str) -> tuple[Dialect | None, str]:
    """Return the form of the first file with such a row, None if unknown, and this row as it stands there."""
    first = next(_rejected_batches(plan, reason), None)
    if first is None:  # of a table that is read elsewhere, only the first rows are known here
        return None, "none of them among the first rows"
    file, batch, rejected = first
    row, raw = (rejected.sort_by("row")[name][0].as_py() for name in ("row", "raw"))
    if batch.dialect is None:
        return None, f"{batch.source}, row {row}: {raw[:_MAX_SHOWN]!r}"
    ((_, line, text),) = lines_of(file, batch.dialect, [row])
    return batch.dialect, f"{batch.source}, line {line}: {text[:_MAX_SHOWN]!r}"


def _rejected_batches(plan: LoadPlan, reason: str) -> Iterator[tuple[Place, Batch, pa.Table]]:
    """Iterate over the batches with rows that cannot be read for this reason: file, batch and these rows."""
    for file in plan.source.files():
        for batch in plan.source.batches([Segment(file)]):
            parsed = parse_batch(plan, batch)
            rejected = parsed.bad.filter(pc.equal(parsed.bad["reason"], reason))
            if len(rejected):
                yield file, batch, rejected


def _wrong_unit(plan: LoadPlan) -> TraceFormatError:
    """Return the error for times before 1980 or after 2100, with the unit in which they are plausible."""
    source, options = plan.source, plan.options
    batch = next(b for b in source.batches() if len(b.columns))
    fitting = _parse(batch, batch.times, replace(options, time_unit=AUTO), has_zones=False)
    fits = options.time_unit != AUTO and bool(len(fitting.good))
    return TraceFormatError(
        f"The times in {source.path.name} are not in the unit {options.time_unit!r}."
        if fits
        else f"The times in {source.path.name} are before 1980 or after 2100.",
        where=str(source.path),
        found=f"{batch.columns['ts'][0].as_py()!r} in {source.columns.get('ts', 'the last column')!r}",
        expected="times since 1970 in " + ", ".join(TIME_UNITS) + ", or texts",
        remedy="say time_unit='auto', which recognises the unit"
        if fits
        else "check which column is the time",
    )
