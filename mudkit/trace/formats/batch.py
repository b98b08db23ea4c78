"""Common parts of the readers: batches, the beginning of a file, and errors of unreadable files."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import ModuleType
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import EnvironmentProblem, MudkitError, ParameterError, TraceFormatError
from mudkit.files import Place, store_problem
from mudkit.trace.times import moments

UNPARSABLE = "unparsable"
FIELDS = "wrong number of fields"
UNCLOSED = "quotation mark that is not closed"
WAYPOINT = "waypoint"
NO_PLACE = "no place"
NO_FIX = "no fix"
NO_ROWS = "file without rows"
NESTED = "point in a list inside another row"
INCOMPLETE = "places missing in the trip"
VISIT = "visit"
ACTIVITY = "activity"
UNTIMED_LINE = "line without the times of its points"
NOT_POSITIONS = frozenset((WAYPOINT, NO_PLACE, NO_FIX, NO_ROWS, INCOMPLETE, VISIT, ACTIVITY, UNTIMED_LINE))
"""Reasons of rows that a format itself marks as no positions: the file is not at fault for them. A file of a
folder that has no rows counts as one."""


@dataclass(frozen=True)
class Malformed:
    """Row that its reader sets aside: a line with another number of fields than the header, for instance."""

    row: int
    raw: str
    reason: str = FIELDS


@dataclass(frozen=True)
class Dialect:
    """Form of a text table.

    Attributes
    ----------
    names : list of str
        Unique names of all columns; ``column 1``, ``column 2``, … without a header.
    delimiter : str
        Separator of the fields, one character.
    above : int
        Number of lines above the first row.
    encoding : str
        Encoding of the text.
    quoted : bool
        Whether quotation marks enclose fields.
    padded : bool
        Whether blanks precede quotation marks.
    """

    names: list[str]
    delimiter: str
    above: int = 0
    encoding: str = "utf-8-sig"
    quoted: bool = True
    padded: bool = False


@dataclass(frozen=True)
class Batch:
    """Columns as read, under mudkit's names, with the number of each row in its file.

    Attributes
    ----------
    columns : pyarrow.Table
        ``device, ts, lat, lon``, other columns under mudkit's names, and columns that rejected rows show, in
        the order of the file.
    rows : ndarray of int64, shape (rows,)
        Number of each row in its file, from 1.
    source : str
        Name of the file; in a folder, its path there.
    malformed : list of Malformed
        Rows that the reader set aside.
    dialect : Dialect, optional
        Form of the table; None if a row is not a line of the file.
    """

    columns: pa.Table
    rows: NDArray[np.int64]
    source: str
    malformed: list[Malformed] = field(default_factory=list)
    dialect: Dialect | None = None

    @property
    def times(self) -> pa.Array:
        """Column of times, joined with that of dates if there is one."""
        ts = self.columns["ts"].combine_chunks()
        if "date" in self.columns.column_names:
            return moments(self.columns["date"].combine_chunks(), ts)
        return ts

    @property
    def delimiter(self) -> str:
        """Separator of the fields in the texts of rejected rows."""
        return self.dialect.delimiter if self.dialect else ","


Row: TypeAlias = tuple[Mapping[str, str | None], str]
"""A row's values as texts by column, and why it is set aside: nothing if it is to be parsed."""

HEAD_BYTES = 1 << 16
_BATCH_ROWS = 1 << 16


def batches_of(file: Place, rows: Iterable[Row], names: Iterable[str]) -> Iterator[Batch]:
    """Collect rows into batches with these columns; they are numbered from 1 in their order."""
    names, rows, start = list(names), iter(rows), 1
    while chunk := list(islice(rows, _BATCH_ROWS)):
        numbers = np.arange(start, start + len(chunk), dtype=np.int64)
        start += len(chunk)
        is_row = np.array([not reason for _, reason in chunk])
        kept = [row for row, reason in chunk if not reason]
        columns = [pa.array([row.get(name) for row in kept], pa.string()) for name in names]
        aside = [
            Malformed(number, ",".join(row.get(name) or "" for name in names).rstrip(","), reason)
            for number, (row, reason) in zip(numbers.tolist(), chunk, strict=True)
            if reason
        ]
        yield Batch(pa.table(columns, names=names), numbers[is_row], file.name, aside)


class FileEmpty(TraceFormatError):
    """A file has no content, or no rows below its header; in a folder it is passed over, and counted."""


def empty(file: Place) -> FileEmpty:
    """Return the error for an empty file."""
    return FileEmpty(
        f"{file.name} is empty.",
        where=str(file),
        found="no data",
        expected="a header and rows",
        remedy="get the file again; a download may have failed",
    )


def other_format(file: Place, expected: str, *, head: bytes | None = None) -> TraceFormatError:
    """Return the error for a file of another format; ``expected`` describes the format."""
    if head is None:
        with file.open("rb") as handle:
            head = handle.read(8)
    return TraceFormatError(
        f"{file.name} is not a file of a known format.",
        where=str(file),
        found=f"it starts with the bytes {head[:40]!r}",
        expected=expected,
        remedy="name the right file or format, or convert it to CSV or Parquet with the columns "
        "device, ts, lat, lon",
    )


def fixed_columns(format: str, columns: dict[str, str]) -> ParameterError:  # noqa: A002
    """Return the error for a mapping of columns that the format fixes."""
    return ParameterError(
        f"The format {format} has columns of its own.",
        where="columns",
        found=", ".join(f"{name}={given}" for name, given in columns.items()),
        expected="no column mapping",
        remedy="leave it out; for a table with a header say format='csv'",
    )


def library(module: str, file: Place) -> ModuleType:
    """Import a library of the extra ``geo``, which reads a format."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EnvironmentProblem(
            f"A library that reads {file.name} is not installed.",
            where=str(file),
            found=f"no module {module}",
            expected="the libraries of the extra geo",
            remedy="install them: pip install 'mudkit[geo]'",
        ) from error


def unreadable(file: Place, error: BaseException) -> MudkitError:
    """Return the error for an exception while reading a file, in its content or of its store."""
    problem = store_problem(file, error, "file")
    if problem is not None:
        return problem
    text = str(error).split("\n")[0] or type(error).__name__
    if "Empty CSV file" in text or "Could not skip initial" in text:
        return FileEmpty(
            f"{file.name} holds no rows.",
            where=str(file),
            found="a header and nothing below it",
            expected="at least one row",
            remedy="get the file again",
        )
    if "UTF8" in text or isinstance(error, UnicodeDecodeError):
        return TraceFormatError(
            f"{file.name} is not UTF-8 text.",
            where=str(file),
            found=text,
            expected="text in UTF-8",
            remedy="convert it, for instance: iconv -f LATIN1 -t UTF-8",
        )
    cut = any(word in text.lower() for word in ("truncated", "end of stream", "end-of-stream", "eof"))
    return TraceFormatError(
        f"{file.name} is cut short." if cut else f"{file.name} cannot be read.",
        where=str(file),
        found=text,
        expected="a whole file",
        remedy="get the file again; a download or copy may have been stopped" if cut else "check the file",
    )
