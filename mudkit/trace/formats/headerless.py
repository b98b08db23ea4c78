"""Readers of public data sets: Cabspotting, GeoLife, Gowalla, Brightkite, Foursquare, T-Drive, Porto."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.errors import TraceFormatError
from mudkit.files import Place
from mudkit.trace.formats.batch import (
    INCOMPLETE,
    NO_PLACE,
    UNPARSABLE,
    Batch,
    Row,
    batches_of,
    other_format,
)
from mudkit.trace.formats.columns import has_places
from mudkit.trace.formats.delimited import dialect_of, read_delimited, read_lines
from mudkit.trace.formats.documents import refuse_document
from mudkit.trace.formats.packed import peek

_PLT_HEADER_LINES = 6
_PLT_ROW = re.compile(rb"-?[\d.]+,-?[\d.]+,\d,[^,]*,[\d.]+,\d{4}-\d\d-\d\d,\d\d:\d\d:\d\d\s*")
_PLT_START = re.compile(rb"-?[\d.]+,-?[\d.]+,\d,|-?\d+\.\d+,")
_CHECK_IN = re.compile(
    rb"\d+\t\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\t-?[\d.eE+-]+\t-?[\d.eE+-]+\t([0-9a-f]{32}|\d+)"
)
_T_DRIVE_ROW = re.compile(rb"\d+,\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,(9\d|1\d\d)\.\d+,-?\d+\.\d+")  # no latitude
_VISIT = re.compile(
    rb"\d+\t[0-9a-f]{24}\t[0-9a-f]{24}\t[^\t]*\t-?[\d.]+\t-?[\d.]+\t-?\d+\t"
    rb"\w{3} \w{3} \d\d [\d:]{8} \+0000 \d{4}"
)
_VISIT_TIME = "%a %b %d %H:%M:%S +0000 %Y"
_GLOBAL_VISIT = re.compile(rb"\d+\t[0-9a-f]{24}\t\w{3} \w{3} \d\d [\d:]{8} \+0000 \d{4}\t-?\d+")
_PORTO_COLUMNS = ("TAXI_ID", "TIMESTAMP", "MISSING_DATA", "POLYLINE")
_PORTO_STEP_S = 15
_LINES_LOOKED_AT = 20


def read_cabspotting_txt(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one cab of the original archive: ``latitude longitude occupied unix_seconds``, no header."""
    cab = file.name.removeprefix("new_").split(".")[0]
    for batch in read_lines(file, ["lat", "lon", "occupied", "ts"], " "):
        yield _of_device(batch, batch.columns, cab)


def is_plt(head: bytes) -> bool:
    """Return whether a file begins like one of GeoLife's: by its first line, or by its first rows."""
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    return _is_titled(lines) or _is_mostly(b"\n".join(lines[_lines_above(lines) :]), _PLT_ROW)


def _is_titled(lines: list[bytes]) -> bool:
    """Return whether the first line is that of GeoLife's header."""
    return bool(lines) and lines[0].lower().startswith(b"geolife")


def _lines_above(lines: list[bytes]) -> int:
    """Return the number of lines above the first row of GeoLife, which a file without its header lacks."""
    above = next((i for i, line in enumerate(lines[:_PLT_HEADER_LINES]) if _PLT_START.match(line)), None)
    if above is None:
        return _PLT_HEADER_LINES
    return above if _is_titled(lines) else 0


def read_plt(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one trajectory of GeoLife (Zheng, Xie and Ma, IEEE Data Eng. Bull. 33(2), 2010).

    Below six lines of header, which may be lacking, a row is ``latitude, longitude, 0, altitude in feet
    (-777: unknown), days since 1899-12-30, date, time``, the last two in GMT. Date and time are taken, not
    the days, whose ten digits are good to some milliseconds only; the altitude is not kept, a trace has none.

    The device is the user: the folder that holds ``Trajectory``, or the file's own where there is none.
    """
    head = peek(file)
    if not is_plt(head):
        refuse_document(file, head)
        raise other_format(file, "GeoLife's six lines of header, the first 'Geolife trajectory'", head=head)
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    above = _lines_above(lines)
    if not b"".join(lines[above:]).strip():
        return
    place = file.absolute().parent
    user = place.parent.name if place.name.lower() == "trajectory" else place.name
    names = ["lat", "lon", "flag", "altitude_ft", "days", "date", "time"]
    for batch in read_lines(file, names, ",", above=above):
        table = batch.columns
        time = pc.utf8_trim_whitespace(table["time"])
        gmt = pc.binary_join_element_wise(table["date"], " ", time, "Z", "")  # whatever tz the caller says
        shown = table.drop_columns(["date", "time"]).append_column("ts", gmt)
        yield _of_device(batch, shown, user)


def _is_mostly(head: bytes, row: re.Pattern[bytes]) -> bool:
    """Return whether at least half of the first lines are such rows, and none is a header."""
    lines = [
        line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:_LINES_LOOKED_AT] if line.strip()
    ]
    if lines and has_places(re.split(r"[,;\t]", lines[0].decode(errors="replace"))):
        return False
    return 2 * sum(bool(row.fullmatch(line)) for line in lines) >= max(1, len(lines))


def is_gowalla(head: bytes) -> bool:
    """Return whether at least half of the first lines are check-ins of Gowalla, and none is a header."""
    return _is_mostly(head, _CHECK_IN)


def is_foursquare(head: bytes) -> bool:
    """Return whether at least half of the first lines are check-ins of Foursquare, with or without places."""
    return _is_mostly(head, _VISIT) or _is_mostly(head, _GLOBAL_VISIT)


def is_t_drive(head: bytes) -> bool:
    """Return whether at least half of the first lines are rows of T-Drive, and none is a header."""
    return _is_mostly(head, _T_DRIVE_ROW)


def is_porto(head: bytes) -> bool:
    """Return whether the first line names the columns of Porto's trips."""
    first = head.split(b"\n", 1)[0]
    return all(name.encode() in first for name in _PORTO_COLUMNS)


def read_gowalla(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read check-ins of Gowalla or Brightkite (Cho, Myers and Leskovec, KDD 2011; snap.stanford.edu).

    Fields are apart by tabs, without a header: user, time as ``2010-10-19T23:55:27Z``, latitude, longitude,
    location. The location stands in rejected rows only. Brightkite's check-ins without a place are at (0, 0).
    """
    head = peek(file)
    if not is_gowalla(head):
        refuse_document(file, head)
        raise other_format(
            file, "user, time (2010-10-19T23:55:27Z), latitude, longitude, location", head=head
        )
    yield from read_lines(file, ["device", "ts", "lat", "lon", "location"], "\t")


def read_foursquare(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read check-ins of Foursquare (Yang et al., IEEE Trans. SMC: Systems 45(1), 2015: TSMC2014).

    Fields are apart by tabs, without a header, in Latin-1: user, venue, the category's id and name, latitude,
    longitude, offset from UTC in minutes, UTC time as ``Tue Apr 03 18:00:09 +0000 2012``.

    Raises
    ------
    TraceFormatError
        The file is of the global data set (TIST2015), whose check-ins name a venue without its place.
    """
    head = peek(file)
    if not is_foursquare(head):
        refuse_document(file, head)
        raise other_format(
            file, "Foursquare's eight fields, the last 'Tue Apr 03 18:00:09 +0000 2012'", head=head
        )
    if _is_mostly(head, _GLOBAL_VISIT):
        raise TraceFormatError(
            f"{file.name} holds check-ins without places.",
            where=str(file),
            found=f"user, venue, time and offset: {head.splitlines()[0][:80]!r}",
            expected="a latitude and a longitude in each row",
            remedy="join it with dataset_TIST2015_POIs.txt by the venue, and write the rows as CSV with the "
            "columns device, ts, lat, lon",
        )
    names = ["device", "venue", "category_id", "category", "lat", "lon", "offset_min", "time"]
    for batch in read_lines(file, names, "\t", encoding="latin-1"):
        time = batch.columns["time"]
        iso = pc.strftime(
            pc.strptime(time, format=_VISIT_TIME, unit="s", error_is_null=True), "%Y-%m-%dT%H:%M:%SZ"
        )
        ts = pc.coalesce(iso, time)
        yield replace(batch, columns=batch.columns.drop_columns(["time"]).append_column("ts", ts))


def read_t_drive(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one taxi of T-Drive (Yuan et al., GIS 2010): ``id,2008-02-02 15:36:08,longitude,latitude``.

    The guide of the data set names no time zone; times are read in the caller's ``tz`` (``Asia/Shanghai``).
    """
    yield from read_lines(file, ["device", "ts", "lon", "lat"], ",")


def read_porto(file: Place, columns: dict[str, str]) -> Iterator[Batch]:
    """Read the trips of Porto's taxis (Moreira-Matias et al., ECML PKDD 2015 challenge), point by point.

    A trip starts at ``TIMESTAMP``; its points, ``[longitude, latitude]`` in ``POLYLINE``, are 15 seconds
    apart. Points are numbered through the file. Where ``MISSING_DATA`` is true some points are lacking, so
    the times of the others are unknown: they are set aside.
    """
    names = dialect_of(file, _PORTO_COLUMNS).names
    if missing := [name for name in _PORTO_COLUMNS if name not in names]:
        raise other_format(file, f"a table of trips with the columns {', '.join(missing)}", head=peek(file))
    trips = read_delimited(file, {name: name for name in _PORTO_COLUMNS})
    rows = (row for batch in trips for row in _trip_points(batch))
    yield from batches_of(file, rows, ("device", "ts", "lat", "lon"))


def _trip_points(batch: Batch) -> Iterator[Row]:
    """Yield the points of some trips; what cannot be used has a reason to be set aside."""
    for trip in batch.columns.to_pylist():
        taxi, start, points = trip["TAXI_ID"], trip["TIMESTAMP"], _polyline(trip["POLYLINE"])
        reason = INCOMPLETE if trip["MISSING_DATA"].strip().lower() == "true" else ""
        if not points:
            yield (
                {"device": taxi, "ts": start, "lat": trip["POLYLINE"]},
                UNPARSABLE if points is None else NO_PLACE,
            )
        for number, point in enumerate(points or ()):
            lon, lat = map(repr, point) if len(point) == 2 else (None, None)
            time = str(int(start) + _PORTO_STEP_S * number) if start.isdecimal() else start
            yield {"device": taxi, "ts": time, "lat": lat, "lon": lon}, reason
    for line in batch.malformed:
        yield {"device": line.raw}, line.reason


def _polyline(text: str) -> list[list[float]] | None:
    """Parse the points of a trip; None if they cannot be read."""
    try:
        return msgspec.json.decode(text, type=list[list[float]])
    except msgspec.DecodeError:
        return None


def _of_device(batch: Batch, columns: pa.Table, device: str) -> Batch:
    """Return a batch with other columns, all rows of one device."""
    names = pa.repeat(pa.scalar(device, pa.string()), len(columns))
    return replace(batch, columns=columns.append_column("device", names))
