"""The file formats that can be loaded, how each is recognised, and its columns batch by batch."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceFormatError
from mudkit.trace.folder import is_trace

__all__ = ["FORMATS", "Batch", "Malformed", "Source", "header", "recognise", "unreadable"]

_BLOCK_BYTES = 16 << 20
_COLUMNS = ("device", "ts", "lat", "lon", "speed_mps", "occupied", "box_km", "window_s")
_REQUIRED = ("device", "ts", "lat", "lon")
_KNOWN_AS = {
    "device": (
        "device",
        "device_id",
        "vehicle_id",
        "vehicle",
        "cab",
        "taxi_id",
        "car",
        "user",
        "user_id",
        "id",
    ),
    "ts": ("ts", "t", "time", "timestamp", "datetime", "date_time", "utc"),
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "speed_mps": ("speed_mps",),
    "occupied": ("occupied",),
    "box_km": ("box_km",),
    "window_s": ("window_s",),
}
_CABSPOTTING = {"device": "cab", "ts": "t", "lat": "lat", "lon": "lon", "occupied": "occ"}


@dataclass(frozen=True)
class Malformed:
    """A line that has not as many fields as the header."""

    row: int
    raw: str


@dataclass(frozen=True)
class Batch:
    """Columns as they came, under mudkit's names, with the number of each row in its file."""

    columns: pa.Table
    rows: NDArray[np.int64]
    source: str
    malformed: list[Malformed] = field(default_factory=list)


@dataclass(frozen=True)
class Source:
    """A file or folder of a known format.

    Attributes
    ----------
    path : Path
    format : str
        A key of :data:`FORMATS`.
    columns : dict
        mudkit's column names to the file's; empty where the format fixes them.
    """

    path: Path
    format: str
    columns: dict[str, str]

    @property
    def has_occupancy(self) -> bool:
        """Whether rows say when a taxi has a fare."""
        return self.format == "cabspotting-txt" or "occupied" in self.columns

    def files(self) -> list[Path]:
        """List the files that hold the rows, in a fixed order."""
        if self.path.is_file():
            return [self.path]
        return sorted(self.path.glob("new_*.txt"))

    def batches(self, files: list[Path] | None = None) -> Iterator[Batch]:
        """Read all files, or some of them, in pieces.

        Raises
        ------
        TraceFormatError
            A file is cut short, or its content is not what its header says.
        """
        for file in files or self.files():
            try:
                yield from FORMATS[self.format](file, self.columns)
            except (pa.ArrowException, UnicodeDecodeError, EOFError, OSError, KeyError) as error:
                raise unreadable(file, error) from error


def recognise(path: Path, format: str = "auto", columns: dict[str, str] | None = None) -> Source:  # noqa: A002
    """Find out what a file is.

    Parameters
    ----------
    path : Path
        An existing file or folder.
    format : str
        A key of :data:`FORMATS`, or ``auto``.
    columns : dict, optional
        mudkit's column names to the file's, for ``csv`` and ``parquet``; names that are not given are
        looked for under their usual spellings.

    Raises
    ------
    ParameterError
        There is no such format, or no such column in mudkit.
    TraceFormatError
        The file is none of these formats, or lacks columns.
    """
    columns = dict(columns or {})
    if format != "auto" and format not in FORMATS:
        raise ParameterError(
            "There is no such format.",
            where="format",
            found=repr(format),
            expected="auto, " + ", ".join(FORMATS),
        )
    if unknown := sorted(set(columns) - set(_COLUMNS)):
        raise ParameterError(
            "The column mapping names columns that a trace does not have.",
            where="columns",
            found=", ".join(unknown),
            expected="some of " + ", ".join(_COLUMNS),
        )
    if path.is_dir():
        if format in ("auto", "cabspotting-txt") and any(path.glob("new_*.txt")):
            return Source(path, "cabspotting-txt", {})
        if is_trace(path):
            raise ParameterError(
                f"{path} is a trace folder already.", where=str(path),
                expected="a file, to make a trace folder of",
                remedy="use it as it is: pipeline.read(spark, path, 'positions')",
            )  # fmt: skip
        raise TraceFormatError(
            f"{path} is a folder of no known format.",
            where=str(path),
            found=", ".join(sorted(p.name for p in path.iterdir())[:5]) or "nothing in it",
            expected="Cabspotting's files new_*.txt, or a folder that `mudkit trace load` made",
            remedy="name the file itself",
        )
    if not path.stat().st_size:
        raise _empty(path)
    if format == "cabspotting-txt" or (
        format == "auto" and path.name.startswith("new_") and path.suffix == ".txt"
    ):
        return Source(path, "cabspotting-txt", {})
    try:
        with path.open("rb") as handle:
            is_parquet = handle.read(4) == b"PAR1"
    except OSError as error:
        raise unreadable(path, error) from error
    if format == "parquet" or (format == "auto" and is_parquet):
        if not is_parquet:
            raise _other_format(path, "parquet")
        try:
            names = pq.read_schema(path).names
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error) from error
        return Source(path, "parquet", _resolve(path, names, columns))
    names = header(path)[0]
    if format == "cabspotting" or (
        format == "auto" and not columns and set(_CABSPOTTING.values()) <= set(names)
    ):
        return Source(path, "cabspotting", _resolve(path, names, _CABSPOTTING, guess=False))
    return Source(path, "csv", _resolve(path, names, columns))


def _read_delimited(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    names, delimiter, above = header(file)
    malformed: list[Malformed] = []

    def set_aside(row: pa_csv.InvalidRow) -> str:
        malformed.append(Malformed(int(row.number) - above, row.text))
        return "skip"

    with pa.input_stream(str(file), compression=_compression(file)) as stream:
        reader = pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES, use_threads=False, column_names=names, skip_rows=above
            ),
            parse_options=pa_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=set_aside),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(columns.values())),
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )
        yield from _numbered(reader, file, columns, malformed)


def _numbered(
    reader: Iterator[pa.RecordBatch], file: Path, columns: dict[str, str], malformed: list[Malformed]
) -> Iterator[Batch]:
    """Give each row its number in the file; the reader may be ahead with those that it has set aside."""
    start, told = 1, 0
    for batch in reader:
        _refuse_open_quote(file, malformed[told:])
        numbers = np.arange(start, start + len(batch) + len(malformed), dtype=np.int64)
        rows = numbers[~np.isin(numbers, [line.row for line in malformed])][: len(batch)]
        start = int(rows[-1]) + 1 if len(rows) else start
        table = pa.table({name: batch.column(given) for name, given in columns.items()})
        told, aside = len(malformed), malformed[told:]
        yield Batch(table, rows, file.name, aside)
    if malformed[told:]:
        _refuse_open_quote(file, malformed[told:])
        nothing = pa.table({name: pa.array([], pa.string()) for name in columns})
        yield Batch(nothing, np.zeros(0, dtype=np.int64), file.name, malformed[told:])


def _refuse_open_quote(file: Path, malformed: list[Malformed]) -> None:
    """Refuse a file in which a quotation mark swallows the lines after it."""
    for line in malformed:
        if "\n" in line.raw:
            raise TraceFormatError(
                f"A quotation mark in {file.name} opens a text that does not end in its row.",
                where=f"{file}, row {line.row}",
                found=repr(line.raw[:80]),
                expected="quotation marks in pairs",
                remedy="remove the quotation mark, or double it",
            )


def _read_parquet(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    done = 0
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(batch_size=1 << 18, columns=list(dict.fromkeys(columns.values()))):
            table = pa.table({name: batch.column(given) for name, given in columns.items()})
            yield Batch(table, np.arange(done + 1, done + len(batch) + 1, dtype=np.int64), file.name)
            done += len(batch)


def _read_cabspotting_txt(file: Path, columns: dict[str, str]) -> Iterator[Batch]:
    """Read one cab of the original archive: ``latitude longitude occupied unix_seconds``, no header."""
    malformed: list[Malformed] = []

    def set_aside(row: pa_csv.InvalidRow) -> str:
        malformed.append(Malformed(int(row.number), row.text))
        return "skip"

    names = ["lat", "lon", "occupied", "ts"]
    if not file.stat().st_size:
        return
    with pa.input_stream(str(file), compression=_compression(file)) as stream:
        reader = pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False, column_names=names),
            parse_options=pa_csv.ParseOptions(delimiter=" ", invalid_row_handler=set_aside),
            convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        cab = file.name.removeprefix("new_").split(".")[0]
        for batch in _numbered(reader, file, {name: name for name in names}, malformed):
            device = pa.array([cab] * len(batch.columns), pa.string())
            yield Batch(
                batch.columns.append_column("device", device), batch.rows, batch.source, batch.malformed
            )


FORMATS: dict[str, Callable[[Path, dict[str, str]], Iterator[Batch]]] = {
    "cabspotting": _read_delimited,
    "cabspotting-txt": _read_cabspotting_txt,
    "csv": _read_delimited,
    "parquet": _read_parquet,
}
"""Formats by name, each with the function that reads one file of it."""


def _compression(file: Path) -> str | None:
    with file.open("rb") as handle:
        return "gzip" if handle.read(2) == b"\x1f\x8b" else None


def header(file: Path) -> tuple[list[str], str, int]:
    """Read the names of the columns, the character between them, and how many lines are above the rows.

    A name that comes again gets its number behind it.
    """
    try:
        with pa.input_stream(str(file), compression=_compression(file)) as stream:
            head = stream.read(1 << 16)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise unreadable(file, error) from error
    if not head.strip():
        raise _empty(file)
    lines = head.splitlines()
    above = next(number for number, line in enumerate(lines, start=1) if line.strip())
    try:
        text = lines[above - 1].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _other_format(file, "text") from error
    if "\0" in text or (not text.isprintable() and "\t" not in text):
        raise _other_format(file, "text")
    delimiter = max(",;\t|", key=text.count)
    names = [name.strip() for name in next(csv.reader(io.StringIO(text), delimiter=delimiter))]
    return [f"{name} ({i})" if name in names[:i] else name for i, name in enumerate(names)], delimiter, above


def _resolve(file: Path, names: list[str], columns: dict[str, str], *, guess: bool = True) -> dict[str, str]:
    """Map mudkit's names to the file's; what is given holds, the rest is looked for by usual spellings."""
    lower = {name.lower(): name for name in reversed(names)}
    mapping = dict(columns)
    if guess:
        for column, spellings in _KNOWN_AS.items():
            found = next((lower[s] for s in spellings if s in lower), None)
            if column not in mapping and found is not None:
                mapping[column] = found
    missing = [mapping.get(c, c) for c in _REQUIRED if mapping.get(c) not in names]
    missing += [given for c, given in columns.items() if c not in _REQUIRED and given not in names]
    if missing:
        raise TraceFormatError(
            f"{file.name} lacks columns.",
            where=str(file),
            found=", ".join(name[:40] for name in names[:20]),
            expected="a column for each of " + ", ".join(dict.fromkeys(missing)),
            remedy="map the file's names: columns={'device': …, 'ts': …, 'lat': …, 'lon': …} "
            "(on the command line --column device=…)",
        )
    return {column: mapping[column] for column in _COLUMNS if column in mapping}


def _empty(file: Path) -> TraceFormatError:
    return TraceFormatError(
        f"{file.name} is empty.",
        where=str(file),
        found="no data",
        expected="a header and rows",
        remedy="get the file again; a download may have failed",
    )


def _other_format(file: Path, expected: str) -> TraceFormatError:
    with file.open("rb") as handle:
        head = handle.read(8)
    return TraceFormatError(
        f"{file.name} is not a file of a known format.",
        where=str(file),
        found=f"it starts with the bytes {head!r}",
        expected=f"{expected}: " + ", ".join(FORMATS),
        remedy="convert it to CSV or Parquet with the columns device, ts, lat, lon",
    )


def unreadable(file: Path, error: BaseException) -> TraceFormatError:
    """Say why a file could not be read, whoever noticed."""
    text = str(error).split("\n")[0]
    if "Empty CSV file" in text or "Could not skip initial" in text:
        return TraceFormatError(
            f"{file.name} holds no rows.", where=str(file), found="a header and nothing below it",
            expected="at least one row", remedy="get the file again",
        )  # fmt: skip
    if "UTF8" in text or isinstance(error, UnicodeDecodeError):
        return TraceFormatError(
            f"{file.name} is not UTF-8 text.", where=str(file), found=text, expected="text in UTF-8",
            remedy="convert it, for instance: iconv -f LATIN1 -t UTF-8",
        )  # fmt: skip
    cut = any(word in text.lower() for word in ("truncated", "end of stream", "end-of-stream", "eof"))
    return TraceFormatError(
        f"{file.name} is cut short." if cut else f"{file.name} cannot be read.",
        where=str(file),
        found=text,
        expected="a whole file",
        remedy="get the file again; a download or copy may have been stopped" if cut else "check the file",
    )
