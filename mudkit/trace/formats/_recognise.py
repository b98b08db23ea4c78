"""Find out what a file or folder is: by what is in it, and by names only where content cannot tell."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mudkit.errors import ParameterError, TraceFormatError, did_you_mean
from mudkit.files import existing
from mudkit.trace.folder import is_trace
from mudkit.trace.formats.columns import CABSPOTTING, COLUMNS, SPELLINGS, gtfs_rt, resolve
from mudkit.trace.formats.delimited import header_of
from mudkit.trace.formats.gpx import is_xml
from mudkit.trace.formats.headerless import is_gowalla, is_plt
from mudkit.trace.formats.problems import (
    empty,
    fixed_columns,
    other_format,
    peek,
    refuse_web_page,
    unreadable,
)
from mudkit.trace.formats.source import FIXED, FORMATS, Source

__all__ = ["recognise"]

_KINDS = {
    "cabspotting-txt": "new_*.txt",
    "geolife": "*.plt",
    "gpx": "*.gpx",
    "csv": "*.csv",
    "parquet": "*.parquet",
}
"""What of a folder is read: files of these names, also packed (``.gz``); others are left alone."""

_DEEP = frozenset(("geolife", "gpx"))
"""Kinds whose files lie in folders of folders."""

_DOCUMENTS = (b"%PDF-", b"%!PS", b"{\\rtf")
"""How documents begin whose first line is text and might be taken for a header."""

_TABLES = frozenset(("cabspotting", "gtfs-rt", "csv"))


def recognise(path: Path, format: str = "auto", columns: dict[str, str] | None = None) -> Source:  # noqa: A002
    """Find out what a file or folder is.

    Parameters
    ----------
    path : Path
        An existing file or folder.
    format : str
        A key of :data:`FORMATS`, or ``auto``.
    columns : dict, optional
        mudkit's column names to the file's, for ``csv``, ``gtfs-rt`` and ``parquet``; names that are not
        given are looked for under their usual spellings.

    Raises
    ------
    ParameterError
        There is no such format, no such column in mudkit, or the format's columns cannot be mapped.
    TraceFormatError
        The file is none of these formats, or lacks columns; the folder holds none or several kinds of files.
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
    source = _folder(path, format, columns) if path.is_dir() else _file(path, format, columns)
    if columns and source.format in FIXED:
        raise fixed_columns(source.format, columns)
    return source


def _file(path: Path, format: str, columns: dict[str, str]) -> Source:  # noqa: A002
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
        return Source(path, "parquet", resolve(path, _parquet_names(path), columns))
    if format == "auto":
        for kind, suffix, fits in (("gpx", ".gpx", is_xml), ("geolife", ".plt", is_plt)):
            if fits(head) or name.endswith(suffix):
                return Source(path, kind, {})
        if is_gowalla(head):
            return Source(path, "gowalla", {})
    names = header_of(path, head)[0]
    return Source(path, *_table(path, names, format, columns))


def _table(
    path: Path,
    names: list[str],
    format: str,  # noqa: A002
    columns: dict[str, str],
) -> tuple[str, dict[str, str]]:
    """Tell which table with a header it is, and which column is which."""
    if format == "cabspotting" and columns:
        raise fixed_columns(format, columns)
    if format == "cabspotting" or (
        format == "auto" and not columns and set(CABSPOTTING.values()) <= set(names)
    ):
        return "cabspotting", resolve(path, names, CABSPOTTING, guess=False)
    feed = gtfs_rt(names)
    if format == "gtfs-rt" or (format == "auto" and not columns and feed is not None):
        return "gtfs-rt", resolve(path, names, {**(feed or {}), **columns}, guess=feed is None)
    return "csv", resolve(path, names, columns)


def _parquet_names(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def _folder(path: Path, format: str, columns: dict[str, str]) -> Source:  # noqa: A002
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
    first = _file(path / members[0], format, columns)
    for name in members[1:]:
        other = _file(path / name, first.format, columns)
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
    """List a folder's files by kind; hidden ones (``._a.gpx`` and the like) are no data."""
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
