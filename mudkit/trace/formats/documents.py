"""Files of other kinds that people take for traces, each named with what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mudkit.errors import TraceFormatError
from mudkit.files import Place


@dataclass(frozen=True)
class _Kind:
    """Kind of file, by a pattern of its first bytes."""

    pattern: bytes
    name: str
    remedy: str


_AGAIN = "get the file again: the server gave a page instead, perhaps to log in or to accept terms"
_UNPACK = "unpack it into a folder, and load the folder or the file in it"
_PARQUET = "write it as Parquet with the columns device, ts, lat, lon"
_TABLE = "get the table itself, as CSV or Parquet"
_KEY = rb"(?:\\.|[^\s,=\\#])+"
_VALUE = rb'(?:"[^"\n]*"|[^\s,="]+)'
_INFLUX = _KEY + rb"(?:,%b=(?:\\.|[^\s,=\\])+)* %b=%b(?:,%b=%b)* \d{10,19}\s" % (
    _KEY,
    _KEY,
    _VALUE,
    _KEY,
    _VALUE,
)
"""Line of InfluxDB: measurement, tags, fields and time."""

_KINDS = (
    _Kind(rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype html|html|head|body)\b", "a web page", _AGAIN),
    _Kind(
        rb"version https://git-lfs\.github\.com/spec",
        "a pointer of Git LFS, which stands for the file",
        "fetch the file itself: git lfs pull",
    ),
    _Kind(rb"%PDF-", "a PDF document", _TABLE),
    _Kind(rb"%!PS", "a PostScript document", _TABLE),
    _Kind(rb"\{\\rtf", "a rich text document", "save it as plain text"),
    _Kind(rb"\xd0\xcf\x11\xe0", "an old Excel workbook (xls)", "save the sheet as CSV, and load that"),
    _Kind(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    _Kind(rb"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    _Kind(rb"(?s).{257}ustar", "a tar archive", _UNPACK),
    _Kind(rb"\x1f\x9d|\x04\x22\x4d\x18", "a file packed with compress or lz4", _UNPACK),
    _Kind(
        rb"\x00\x00\x27\x0a\x00",
        "a shapefile, which has dates without a time of day",
        "export the layer as GeoPackage or CSV with its times",
    ),
    _Kind(rb"(?s).{8}\.FIT", "a FIT file", "convert it to GPX or TCX, for instance with gpsbabel"),
    _Kind(
        rb"A[A-Z0-9]{3}[^\r\n]*\r?\nHF", "an IGC flight log", "convert it to GPX, for instance with gpsbabel"
    ),
    _Kind(rb"[!\\][A-Z]{2}VD[MO],", "a log of AIS messages", "decode it to CSV, for instance with pyais"),
    _Kind(
        rb"(?s)SQLite format 3\0.{52}(?!GPKG|GP1)",
        "an SQLite database, but no GeoPackage",
        "export the table as CSV",
    ),
    _Kind(
        rb'\s*\{\s*"timelineObjects"',
        "a month of Google's Semantic Location History, which has visits in place of positions",
        "load Records.json of the same export",
    ),
    _Kind(
        rb"#[ \t]*\r?\n# Header Description:",
        "a log of GnssLogger, which has lines of several kinds",
        "write its fixes as a table: grep -E '^(# )?Fix,' FILE | sed 's/^# //' > fixes.csv, and load that "
        "with --device phone --column ts=UnixTimeMillis --column lat=LatitudeDegrees --column "
        "lon=LongitudeDegrees",
    ),
    _Kind(
        rb"\d{4}-\d\d-\d\dT[\d:]{8}Z[ \t]+\S+[ \t]+\{",
        "a store of OwnTracks' recorder, which has a time and a kind before the JSON of each line",
        "take the JSON of the places: grep _type.:.location FILE | cut -f3 > rows.jsonl, and load that with "
        "--device phone",
    ),
    _Kind(
        rb"[^\s{]+/\S* \{",
        "a record of MQTT messages, which has a topic before the JSON of each line",
        "take the JSON, one topic after the other: sed -n 's|^TOPIC ||p' FILE > rows.jsonl, and load that "
        "with --device phone",
    ),
    _Kind(
        rb"\d{10}: (mosquitto version|New (connection|client)|Client |Config loaded|Opening )",
        "a log of the broker mosquitto, which has no messages",
        "record the messages themselves: mosquitto_sub -v -t 'owntracks/#' > messages.txt",
    ),
    _Kind(
        rb"(?:#[^\n]*\n|CREATE DATABASE[^\n]*\n|\s)*+" + _INFLUX,
        "InfluxDB's line protocol",
        "export the measurement as CSV: influx -format csv -execute 'SELECT * FROM NAME' > rows.csv",
    ),
    _Kind(
        rb"(?is)(?>--[^\n]*\n|/\*(?>.*?\*/);?|SET [^;\n]*;|\s)*+"
        rb"(?:CREATE (?:TABLE|DATABASE|SCHEMA)\b|DROP TABLE\b|INSERT INTO\b|BEGIN TRANSACTION"
        rb"|PRAGMA foreign_keys|COPY \S+ [^\n]*FROM stdin|LOCK TABLES\b)"
        rb"|-- (?:MySQL|MariaDB|PostgreSQL|phpMyAdmin)|PGDMP",
        "a dump of an SQL database",
        "restore it into a database, and export the table as CSV: in psql \\copy NAME to 'rows.csv' csv "
        "header, in sqlite3 .headers on, .mode csv and SELECT",
    ),
    _Kind(rb"ARROW1|FEA1", "an Arrow file", _PARQUET),
    _Kind(rb"\x89HDF|CDF[\x01\x02]", "an HDF5 or NetCDF file", _PARQUET),
    _Kind(rb"\x80[\x02-\x05][\x8a\x95c}\]]|\x93NUMPY", "a file of Python objects", _PARQUET),
)


def refuse_document(file: Place, head: bytes) -> None:
    """Raise an error for a kind of file that is not read, by its first bytes."""
    for kind in _KINDS:
        if re.match(kind.pattern, head):
            raise TraceFormatError(
                f"{file.name} is {kind.name}.",
                where=str(file),
                found=f"it starts with {head.strip()[:60]!r}",
                expected="the data itself",
                remedy=kind.remedy,
            )
