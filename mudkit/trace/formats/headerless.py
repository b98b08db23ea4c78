"""Readers of public data sets without a header: Cabspotting, GeoLife, Gowalla."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mudkit.trace.formats.batch import Batch, other_format
from mudkit.trace.formats.delimited import read_lines
from mudkit.trace.formats.documents import refuse_document
from mudkit.trace.formats.packed import peek

__all__ = ["is_gowalla", "is_plt", "read_cabspotting_txt", "read_gowalla", "read_plt"]

_PLT_HEADER_LINES = 6
_PLT_ROW = re.compile(rb"-?[\d.]+,-?[\d.]+,\d,[^,]*,[\d.]+,\d{4}-\d\d-\d\d,\d\d:\d\d:\d\d\s*")
_CHECK_IN = re.compile(rb"[^\t]+\t\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\t-?[\d.eE+-]+\t-?[\d.eE+-]+\t[^\t]*")
_LINES_LOOKED_AT = 20


def read_cabspotting_txt(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one cab of the original archive: ``latitude longitude occupied unix_seconds``, no header."""
    if not file.stat().st_size:
        return
    cab = file.name.removeprefix("new_").split(".")[0]
    for batch in read_lines(file, ["lat", "lon", "occupied", "ts"], " "):
        yield _of_device(batch, batch.columns, cab)


def is_plt(head: bytes) -> bool:
    """Return whether a file begins like one of GeoLife's: by its first line, or by its first row."""
    lines = head.splitlines()
    row = lines[_PLT_HEADER_LINES] if len(lines) > _PLT_HEADER_LINES else b""
    return head.lower().startswith((b"geolife", b"\xef\xbb\xbfgeolife")) or bool(_PLT_ROW.fullmatch(row))


def read_plt(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one trajectory of GeoLife (Zheng, Xie and Ma, IEEE Data Eng. Bull. 33(2), 2010).

    Below six lines of header a row is ``latitude, longitude, 0, altitude in feet (-777: unknown), days since
    1899-12-30, date, time``, the last two in GMT. Date and time are taken, not the days, whose ten digits are
    good to some milliseconds only; the altitude is not kept, a trace has none.

    The device is the user: the folder that holds ``Trajectory``, or the file's own where there is none.
    """
    head = peek(file)
    if not is_plt(head):
        refuse_document(file, head)
        raise other_format(file, "GeoLife's six lines of header, the first 'Geolife trajectory'", head=head)
    if not b"".join(head.splitlines()[_PLT_HEADER_LINES:]).strip():
        return
    place = file.absolute().parent
    user = place.parent.name if place.name.lower() == "trajectory" else place.name
    names = ["lat", "lon", "flag", "altitude_ft", "days", "date", "time"]
    for batch in read_lines(file, names, ",", above=_PLT_HEADER_LINES):
        table = batch.columns
        time = pc.utf8_trim_whitespace(table["time"])
        gmt = pc.binary_join_element_wise(table["date"], " ", time, "Z", "")  # whatever tz the caller says
        shown = table.drop_columns(["date", "time"]).append_column("ts", gmt)
        yield _of_device(batch, shown, user)


def is_gowalla(head: bytes) -> bool:
    """Return whether at least half of the first lines are check-ins."""
    lines = [
        line for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:_LINES_LOOKED_AT] if line.strip()
    ]
    return 2 * sum(bool(_CHECK_IN.fullmatch(line)) for line in lines) >= max(1, len(lines))


def read_gowalla(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read check-ins of Gowalla or Brightkite (Cho, Myers and Leskovec, KDD 2011; snap.stanford.edu).

    Fields are apart by tabs, without a header: user, time as ``2010-10-19T23:55:27Z``, latitude, longitude,
    location. The location stands in rejected rows only.
    """
    head = peek(file)
    if not is_gowalla(head):
        refuse_document(file, head)
        raise other_format(
            file, "user, time (2010-10-19T23:55:27Z), latitude, longitude, location", head=head
        )
    yield from read_lines(file, ["device", "ts", "lat", "lon", "location"], "\t")


def _of_device(batch: Batch, columns: pa.Table, device: str) -> Batch:
    names = pa.repeat(pa.scalar(device, pa.string()), len(columns))
    return replace(batch, columns=columns.append_column("device", names))
