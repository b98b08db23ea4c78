"""Recognition of files and folders by content, and by name only where content is not sufficient."""

from __future__ import annotations

import fnmatch
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mudkit.errors import ParameterError, TraceFormatError, did_you_mean
from mudkit.files import existing
from mudkit.trace.folder import is_trace
from mudkit.trace.formats.batch import (
    Batch,
    empty,
    fixed_columns,
    other_format,
    peek,
    refuse_web_page,
    unreadable,
)
from mudkit.trace.formats.columns import CABSPOTTING, COLUMNS, REQUIRED, SPELLINGS, gtfs_rt, resolve
from mudkit.trace.formats.delimited import dialect_of, read_delimited, read_parquet
from mudkit.trace.formats.gpx import is_xml, read_gpx
from mudkit.trace.formats.headerless import is_gowalla, is_plt, read_cabspotting_txt, read_gowalla, read_plt

__all__ = ["FIXED", "FORMATS", "GZIP_FACTOR", "READS_ONLY", "Reader", "Source", "recognise"]

Reader: TypeAlias = Callable[[Path, dict[str, str]], Iterator[Batch]]

FORMATS: dict[str, Reader] = {
    "cabspotting": read_delimited,
    "cabspotting-txt": read_cabspotting_txt,
    "geolife": read_plt,
    "gtfs-rt": read_delimited,
    "gowalla": read_gowalla,
    "gpx": read_gpx,
    "csv": read_delimited,
    "parquet": read_parquet,
}
"""Formats by name, each with the function that reads one file of it."""

FIXED = frozenset(("cabspotting-txt", "geolife", "gowalla", "gpx"))
"""Formats with fixed columns, without names in the file."""

NAMED_BY_FILE = frozenset(("gpx",))
"""Formats whose devices are named by their files."""

GZIP_FACTOR = 5
"""Approximate compression ratio of such text."""

READS_ONLY = frozenset(("gowalla",))
"""Formats whose rows are reads, never positions."""


@dataclass(frozen=True)
class Source:
    """A file or folder of a known format.

    Attributes
    ----------
    path : Path
        The file, or the folder of files.
    format : str
        A key of :data:`FORMATS`.
    columns : dict
        mudkit's column names to the file's; empty where the format fixes them.
    members : tuple of str
        The paths of a folder's files in it, in order; empty for a file.
    """

    path: Path
    format: str
    columns: dict[str, str]
    members: tuple[str, ...] = ()

    @property
    def has_occupancy(self) -> bool:
        """True if rows record when a taxi has a fare."""
        return self.format == "cabspotting-txt" or "occupied" in self.columns

    @property
    def holds_reads(self) -> bool:
        """True if rows can only be reads."""
        return self.format in READS_ONLY

    def files(self) -> list[Path]:
        """Return the files that hold the rows, in a fixed order."""
        return [self.path / name for name in self.members] or [self.path]

    def batches(self, files: list[Path] | None = None) -> Iterator[Batch]:
        """Read all files, or some of them, in batches.

        Where devices are named by files, and files of one name are in different folders, devices are named
        by their paths.

        Raises
        ------
        TraceFormatError
            A file is truncated, or its content does not match its header.
        """
        by_path = self.format in NAMED_BY_FILE and _share_names(self.members)
        for file in files or self.files():
            name = file.relative_to(self.path).as_posix() if self.members else file.name
            folder = PurePosixPath(name).parent
            try:
                for batch in FORMATS[self.format](file, self.columns):
                    yield replace(_prefixed(batch, folder) if by_path else batch, source=name)
            except (pa.ArrowException, UnicodeDecodeError, EOFError, OSError, KeyError, zlib.error) as error:
                raise unreadable(file, error) from error


def _share_names(members: tuple[str, ...]) -> bool:
    """Return whether files of one name, whatever their packing, are in different folders."""
    paths = {PurePosixPath(re.sub(r"(\.\w+)?(\.gz)?$", "", name)) for name in members}
    return len({path.name for path in paths}) < len(paths)


def _prefixed(batch: Batch, folder: PurePosixPath) -> Batch:
    """Return a batch whose devices are named by their path."""
    place, names = batch.columns.column_names.index("device"), batch.columns["device"]
    paths = names if folder == PurePosixPath() else pc.binary_join_element_wise(str(folder), names, "/")
    return replace(batch, columns=batch.columns.set_column(place, "device", paths))


_KINDS = {
    "cabspotting-txt": "new_*.txt",
    "geolife": "*.plt",
    "gpx": "*.gpx",
    "csv": "*.csv",
    "parquet": "*.parquet",
}
"""Names of the files in a folder that are read, also compressed (``.gz``); others are ignored."""

_DEEP = frozenset(("geolife", "gpx"))
"""Formats whose files may be in nested folders."""

_DOCUMENTS = (b"%PDF-", b"%!PS", b"{\\rtf")
"""Beginnings of documents whose first line is text and could be mistaken for a header."""

_TABLES = frozenset(("cabspotting", "gtfs-rt", "csv"))


def recognise(
    path: Path,
    format: str = "auto",  # noqa: A002
    columns: Mapping[str, str] | None = None,
    required: Collection[str] = REQUIRED,
) -> Source:
    """Return the format of a file or folder, and its columns.

    ``columns`` maps mudkit's column names to the file's, for ``csv``, ``gtfs-rt`` and ``parquet``; other
    names are searched by their usual spellings. A table must have the ``required`` ones.

    Raises
    ------
    ParameterError
        There is no such format, no such column in mudkit, or the format's columns cannot be mapped.
    TraceFormatError
        The file has none of these formats, or lacks columns; the folder holds no or several kinds of files.
    """
    columns = dict(columns or {})
    if format != "auto" and format not in FORMATS:
        raise ParameterError(
            "There is no such format.",
            where="format",
            found=repr(format),
            expected="auto, " + ", ".join(FORMATS),
            remedy=did_you_mean(format, FORMATS),
        )
    if unknown := sorted(set(columns) - set(COLUMNS)):
        raise ParameterError(
            "The column mapping names columns that a trace does not have.",
            where="columns",
            found=", ".join(unknown),
            expected="some of " + ", ".join(COLUMNS),
            remedy=did_you_mean(unknown[0], COLUMNS, synonyms=SPELLINGS),
        )
    source = (_folder if path.is_dir() else _file)(path, format, columns, required)
    if columns and source.format in FIXED:
        raise fixed_columns(source.format, columns)
    return source


def _file(path: Path, format: str, columns: dict[str, str], required: Collection[str]) -> Source:  # noqa: A002
    if not path.stat().st_size:
        raise empty(path)
    name = path.name.removesuffix(".gz").lower()
    if format in FIXED:
        return Source(path, format, {})
    if format == "auto" and name.startswith("new_") and name.endswith(".txt"):
        return Source(path, "cabspotting-txt", {})
    head = peek(path)
    refuse_web_page(path, head)
    if head.startswith(_DOCUMENTS):
        raise other_format(path, f"a table or track: {', '.join(FORMATS)}", head=head.splitlines()[0])
    is_parquet = head.startswith(b"PAR1")
    if format == "parquet" or (format == "auto" and is_parquet):
        if not is_parquet:
            raise other_format(path, "Parquet, which starts with PAR1", head=head)
        return Source(path, "parquet", resolve(path, _parquet_names(path), columns, required=required))
    if format == "auto":
        for kind, suffix, fits in (("gpx", ".gpx", is_xml), ("geolife", ".plt", is_plt)):
            if fits(head) or name.endswith(suffix):
                return Source(path, kind, {})
        if is_gowalla(head):
            return Source(path, "gowalla", {})
    names = dialect_of(path, columns.values(), head=head).names
    return Source(path, *_table(path, names, format, columns, required))


def _table(
    path: Path,
    names: list[str],
    format: str,  # noqa: A002
    columns: dict[str, str],
    required: Collection[str],
) -> tuple[str, dict[str, str]]:
    """Return which table with a header it is, and its columns."""
    if format == "cabspotting" and columns:
        raise fixed_columns(format, columns)
    if format == "cabspotting" or (
        format == "auto" and not columns and set(CABSPOTTING.values()) <= set(names)
    ):
        return "cabspotting", resolve(path, names, CABSPOTTING, guess=False, required=required)
    feed = gtfs_rt(names)
    if format == "gtfs-rt" or (format == "auto" and not columns and feed is not None):
        feed_columns = {**(feed or {}), **columns}
        return "gtfs-rt", resolve(path, names, feed_columns, guess=feed is None, required=required)
    return "csv", resolve(path, names, columns, required=required)


def _parquet_names(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def _folder(path: Path, format: str, columns: dict[str, str], required: Collection[str]) -> Source:  # noqa: A002
    if is_trace(path):
        raise ParameterError(
            f"{path} is a trace folder already.",
            where=str(path),
            expected="a file, to make a trace folder of",
            remedy="use it as it is: pipeline.read(spark, path, 'positions')",
        )
    by_kind = _members(path)
    kind = "csv" if format in _TABLES else format
    if format == "auto" and len(by_kind) > 1:
        raise TraceFormatError(
            f"{path} holds several kinds of files.",
            where=str(path),
            found=", ".join(
                f"{len(members):,} {_KINDS[kind]} (for instance {members[0]})"
                for kind, members in by_kind.items()
            ),
            expected="files of one format",
            remedy="say which with format="
            + " or ".join(repr(kind) for kind in by_kind)
            + ", or put them into folders of their own",
        )
    if format == "auto" and by_kind:
        (kind,) = by_kind
    if kind not in by_kind:
        others = sorted(p.name for p in path.iterdir())
        names = _KINDS.values() if format == "auto" else [_KINDS[kind]] if kind in _KINDS else []
        raise TraceFormatError(
            f"{path} is a folder of no known format."
            if format == "auto"
            else f"{path} holds no files of the format {format}.",
            where=str(path),
            found=", ".join(others[:5]) or "nothing in it",
            expected=(f"files named {', '.join(names)}" if names else "a file")
            + ", or a folder that `mudkit trace load` made",
            remedy="name the file itself",
        )
    members = by_kind[kind]
    for name in members:
        existing(path / name, "file")  # a link may lead nowhere
    if kind in FIXED:
        return Source(path, kind, {}, members)
    first = _file(path / members[0], format, columns, required)
    for name in members[1:]:
        other = _file(path / name, first.format, columns, required)
        if other.columns != first.columns:
            raise TraceFormatError(
                f"The files of {path.name} have different columns.",
                where=str(path / name),
                found=_mapping_text(other.columns),
                expected=f"{_mapping_text(first.columns)}, as in {members[0]}",
                remedy="rename the columns, or load each kind of file by itself",
            )
    return Source(path, first.format, first.columns, members)


def _members(path: Path) -> dict[str, tuple[str, ...]]:
    """Return a folder's files by kind, without hidden ones (``._a.gpx`` and the like)."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        folder = Path(place).relative_to(path)
        for name in names:
            plain = name.lower().removesuffix(".gz")
            for kind, pattern in _KINDS.items():
                fits = fnmatch.fnmatchcase(plain, pattern) and not name.startswith(".")
                if fits and (folder == Path() or kind in _DEEP):
                    by_kind[kind].append((folder / name).as_posix())
    return {kind: tuple(sorted(names)) for kind, names in by_kind.items() if names}


def _mapping_text(columns: dict[str, str]) -> str:
    return ", ".join(f"{name}={given}" for name, given in columns.items())
