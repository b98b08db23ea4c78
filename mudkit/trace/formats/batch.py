"""Common parts of the readers: batches, the beginning of a file, and errors of unreadable files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceFormatError

__all__ = [
    "HEAD_BYTES",
    "Batch",
    "Dialect",
    "Malformed",
    "compression",
    "empty",
    "fixed_columns",
    "other_format",
    "peek",
    "refuse_web_page",
    "unreadable",
]


@dataclass(frozen=True)
class Malformed:
    """Line whose number of fields differs from the header's."""

    row: int
    raw: str


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
        Lines whose number of fields differs from the header's.
    dialect : Dialect, optional
        Form of the table; None if a row is not a line of the file.
    """

    columns: pa.Table
    rows: NDArray[np.int64]
    source: str
    malformed: list[Malformed] = field(default_factory=list)
    dialect: Dialect | None = None

    @property
    def delimiter(self) -> str:
        """Separator of the fields in the texts of rejected rows."""
        return self.dialect.delimiter if self.dialect else ","


HEAD_BYTES = 1 << 16
_WEB_PAGE = (b"<!doctype html", b"<html", b"<head", b"<body")


def compression(file: Path) -> str | None:
    """Return the compression of a file, by its content: ``gzip`` or None."""
    with file.open("rb") as handle:
        return "gzip" if handle.read(2) == b"\x1f\x8b" else None


def peek(file: Path) -> bytes:
    """Return the first 64 KiB of a file's content, decompressed; it must not be empty."""
    try:
        with pa.input_stream(str(file), compression=compression(file)) as stream:
            head: bytes = stream.read(HEAD_BYTES)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise unreadable(file, error) from error
    if not head.strip():
        raise empty(file)
    return head


def refuse_web_page(file: Path, head: bytes) -> None:
    """Raise an error for HTML in place of data."""
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_WEB_PAGE):
        raise TraceFormatError(
            f"{file.name} is a web page.",
            where=str(file),
            found=f"HTML: {head.strip()[:60]!r}",
            expected="the data itself",
            remedy="get the file again: the server gave a page instead, perhaps to log in or to accept terms",
        )


def empty(file: Path) -> TraceFormatError:
    """Return the error for an empty file."""
    return TraceFormatError(
        f"{file.name} is empty.",
        where=str(file),
        found="no data",
        expected="a header and rows",
        remedy="get the file again; a download may have failed",
    )


def other_format(file: Path, expected: str, *, head: bytes | None = None) -> TraceFormatError:
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


def unreadable(file: Path, error: BaseException) -> TraceFormatError:
    """Return the error for an exception while reading a file."""
    text = str(error).split("\n")[0]
    if "Empty CSV file" in text or "Could not skip initial" in text:
        return TraceFormatError(
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
