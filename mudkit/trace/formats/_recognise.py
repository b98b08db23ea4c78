"""Recognition of files and folders by content, and by name only where content is not sufficient."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.errors import InputMissing, MudkitError, ParameterError, TraceFormatError, did_you_mean
from mudkit.files import (
    Place,
    existing,
    input_problem,
    is_folder,
    open_source,
    sha256,
    size_bytes,
    sizes_below,
    walk,
)
from mudkit.trace.folder import JOB_FOLDER, MANIFEST, is_trace
from mudkit.trace.formats.batch import (
    NO_ROWS,
    Batch,
    FileEmpty,
    Malformed,
    empty,
    fixed_columns,
    other_format,
    unreadable,
)
from mudkit.trace.formats.columns import (
    CABSPOTTING,
    COLUMNS,
    REQUIRED,
    SPELLINGS,
    ColumnsMissing,
    gtfs_rt,
    is_longitude_first,
    resolve,
)
from mudkit.trace.formats.delimited import count_delimited, dialect_of, read_delimited, split_delimited
from mudkit.trace.formats.documents import refuse_document
from mudkit.trace.formats.feed import is_feed, read_feed
from mudkit.trace.formats.given import Files
from mudkit.trace.formats.headerless import (
    is_foursquare,
    is_gowalla,
    is_plt,
    is_porto,
    is_t_drive,
    read_cabspotting_txt,
    read_foursquare,
    read_gowalla,
    read_plt,
    read_porto,
    read_t_drive,
)
from mudkit.trace.formats.json_rows import (
    is_geojson,
    is_json,
    is_takeout,
    json_names,
    read_geojson,
    read_json,
    read_takeout,
    wrapped,
)
from mudkit.trace.formats.layers import (
    is_geopackage,
    is_parquet,
    layer_names,
    parquet_names,
    read_layer,
    read_parquet,
)
from mudkit.trace.formats.nmea import is_nmea, read_nmea
from mudkit.trace.formats.packed import READ_ERRORS, bare_name, peek, stem, text_bytes
from mudkit.trace.formats.segments import Segment, first_lines, split_groups
from mudkit.trace.formats.tables import batches_of_table, checksum, flattened
from mudkit.trace.formats.tracks import is_gpx, is_kml, is_tcx, read_gpx, read_kml, read_tcx
from mudkit.trace.times import names_zone
from mudkit.trace.values import coordinates

Reader: TypeAlias = Callable[..., Iterator[Batch]]


@dataclass(frozen=True)
class Format:
    """Format of files.

    Attributes
    ----------
    read : callable
        Reads one file in batches, with a mapping of columns unless the format fixes them; one that splits
        files takes a segment as well.
    patterns : tuple of str
        Names of its files in a folder, without the suffixes of packing; others are ignored.
    fits : callable
        Tells by the first bytes of a file whether it has this format.
    split, count : callable, optional
        Split a large file into segments, and count the rows of one; without them tasks read whole files.
    names : callable, optional
        Returns the names of a file's columns; None if the format fixes them, or for text with a header.
    is_fixed, is_named, is_device, holds_reads : bool
        Columns are fixed; a file named like ``patterns`` has this format unless its content has another;
        a file names its devices; rows are reads, never positions.
    """

    read: Reader
    patterns: tuple[str, ...] = ()
    fits: Callable[[bytes], bool] = lambda head: False
    names: Callable[[Place], list[str]] | None = None
    split: Callable[[Place, dict[str, str], int], list[Segment]] | None = None
    count: Callable[[Segment, dict[str, str]], int | None] | None = None
    is_fixed: bool = False
    is_named: bool = False
    is_device: bool = False
    holds_reads: bool = False


_CSV = ("*.csv", "*.tsv", "*.tab")
_JSON = ("*.json", "*.jsonl", "*.ndjson", "*.geojson", "*.geojsonl")

_table_of = partial(Format, read_delimited, split=split_delimited, count=count_delimited)
_track = partial(Format, is_fixed=True, is_named=True, is_device=True)

FORMATS: dict[str, Format] = {
    "cabspotting": _table_of(_CSV),
    "cabspotting-txt": Format(read_cabspotting_txt, ("new_*.txt",), is_fixed=True, is_named=True),
    "geolife": Format(read_plt, ("*.plt",), is_plt, is_fixed=True, is_named=True),
    "t-drive": Format(read_t_drive, ("[0-9]*.txt",), is_t_drive, is_fixed=True),
    "porto": Format(read_porto, _CSV, is_porto, is_fixed=True),
    "gtfs-rt": _table_of(_CSV),
    "gtfs-rt-pb": Format(read_feed, ("*.pb",), is_feed, is_fixed=True, is_named=True),
    "gowalla": Format(read_gowalla, (), is_gowalla, is_fixed=True, holds_reads=True),
    "foursquare": Format(read_foursquare, (), is_foursquare, is_fixed=True, holds_reads=True),
    "gpx": _track(read_gpx, ("*.gpx",), is_gpx),
    "kml": _track(read_kml, ("*.kml", "*.kmz"), is_kml),
    "tcx": _track(read_tcx, ("*.tcx",), is_tcx),
    "nmea": _track(read_nmea, ("*.nmea",), is_nmea),
    "takeout": Format(read_takeout, _JSON, is_takeout, is_fixed=True, is_device=True),
    "geojson": Format(read_geojson, _JSON, is_geojson, json_names),
    "json": Format(read_json, _JSON, is_json, json_names),
    "geopackage": Format(read_layer, ("*.gpkg",), is_geopackage, layer_names),
    "csv": _table_of(_CSV),
    "parquet": Format(
        read_parquet, ("*.parquet", "*.geoparquet"), is_parquet, parquet_names, split=split_groups
    ),
}
"""Formats by name, in the order in which a file is compared with them; of those that share the names of
files, the last takes any."""

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_PATTERNS = {entry.patterns: kind for kind, entry in FORMATS.items() if entry.patterns}


@dataclass(frozen=True)
class Source:
    """Files of a known format.

    Attributes
    ----------
    path : Path or UPath
        The file, or the folder of files.
    format : str
        A key of :data:`FORMATS`.
    columns : dict
        mudkit's column names to the file's; empty where the format fixes them.
    members : tuple of str
        The paths of a folder's files in it, in order; empty for a file.
    in_paths : frozenset of str
        The columns, by mudkit's names, whose values stand in the members' paths (``device=a/rides.csv``).
    passed_over : dict
        Number of a folder's other files by the suffix of their names.
    """

    path: Place
    format: str
    columns: dict[str, str]
    members: tuple[str, ...] = ()
    in_paths: frozenset[str] = frozenset()
    passed_over: dict[str, int] = field(default_factory=dict)

    @property
    def checksum(self) -> str:
        """Checksum of the content, as hexadecimal text: of a file, or of all files with their names."""
        if not self.members:
            return sha256(self.path)
        digest = hashlib.sha256()
        for name, file in zip(self.members, self.files(), strict=True):
            digest.update(f"{name}\0".encode())
            with open_source(file) as content:
                hashlib.file_digest(content, lambda: digest)  # type: ignore[arg-type]
        return digest.hexdigest()

    @property
    def has_occupancy(self) -> bool:
        """True if rows record when a taxi has a fare."""
        return self.format == "cabspotting-txt" or "occupied" in self.columns

    @property
    def holds_reads(self) -> bool:
        """True if rows can only be reads."""
        return FORMATS[self.format].holds_reads

    def files(self) -> list[Place]:
        """Return the files that hold the rows, in a fixed order."""
        return [self.path / name for name in self.members] or [self.path]

    def sizes(self) -> list[int]:
        """Return the sizes of the files, estimated as text."""
        return [text_bytes(file.name, size_bytes(file) or 0) for file in self.files()]

    def names_zones(self) -> bool:
        """Return whether some times name their zone; reads the times of all files until one does."""
        return any(names_zone(batch.times) for batch in self.batches())

    def segments(self, max_bytes: int) -> list[Segment]:
        """Return the files in order, large ones as segments of about this size.

        The rows before segments of a text are not known: :meth:`count_rows` of all of them tells
        (:func:`mudkit.trace.formats.segments.number_rows`).
        """
        split = FORMATS[self.format].split
        if split is None:
            return [Segment(file) for file in self.files()]
        return [part for file in self.files() for part in split(file, self._given, max_bytes)]

    def beginning(self, part: Segment) -> Segment:
        """Return the first lines of a segment of a text; of another file all of the segment."""
        return part if FORMATS[self.format].count is None else first_lines(part)

    def count_rows(self, part: Segment) -> int | None:
        """Return the number of rows of a segment; None if its file cannot be split."""
        count = FORMATS[self.format].count
        assert count is not None
        return count(part, self._given)

    def batches(self, parts: Sequence[Segment] | None = None) -> Iterator[Batch]:
        """Read all files, or some of them or of their segments, in batches.

        Where devices are named by files, and files of one name are in different folders, devices are named
        by their paths. A file of a folder without rows gives a batch without rows, with one that is set
        aside; a single file without any is refused.

        Raises
        ------
        TraceFormatError
            A file is truncated, or its content does not match its header.
        """
        by_path = FORMATS[self.format].is_device and _share_names(self.members)
        for part in map(Segment, self.files()) if parts is None else parts:
            name = self._name_of(part.file)
            folder, has_rows = PurePosixPath(name).parent, part.begin is not None
            try:
                for batch in self._batches(part):
                    has_rows |= bool(len(batch.rows) or batch.malformed)
                    batch = self.with_places(batch)
                    named = _prefixed(batch, folder) if by_path else self._with_paths(batch, name)
                    yield replace(named, source=name)
            except (*READ_ERRORS, KeyError) as error:
                raise unreadable(part.file, error) from error
            if self.members and not has_rows:
                nothing = pa.table({column: pa.array([], pa.string()) for column in REQUIRED})
                yield Batch(nothing, np.zeros(0, dtype=np.int64), name, [Malformed(1, "", NO_ROWS)])

    def _name_of(self, file: Place) -> str:
        """Return the name of a file; in a folder its path there."""
        if not self.members:
            return file.name
        return PurePosixPath(file.as_posix()).relative_to(self.path.as_posix()).as_posix()

    @property
    def _given(self) -> dict[str, str]:
        """Columns of the files themselves."""
        return {column: name for column, name in self.columns.items() if column not in self.in_paths}

    def _batches(self, part: Segment) -> Iterator[Batch]:
        """Read a file or a segment in batches; an empty file of a folder has none."""
        read = FORMATS[self.format].read
        try:
            yield from (
                read(part.file, self._given) if part.begin is None else read(part.file, self._given, part)
            )
        except FileEmpty:
            if not self.members:
                raise

    def with_places(self, batch: Batch) -> Batch:
        """Return a batch with latitudes and longitudes, which one column of the file may hold."""
        pair = self.columns.get("lat")
        if pair is None or pair != self.columns.get("lon"):
            return batch
        texts = batch.columns["lat"].combine_chunks()
        places = coordinates(texts, longitude_first=is_longitude_first(pair))
        columns = batch.columns
        for name, values in zip(("lat", "lon"), places, strict=True):
            columns = columns.set_column(columns.column_names.index(name), name, values)
        return replace(batch, columns=columns)

    def _with_paths(self, batch: Batch, name: str) -> Batch:
        """Return a batch with the columns whose values stand in its path."""
        columns, values = batch.columns, _partition(name) if self.in_paths else {}
        for column in sorted(self.in_paths):
            value = pa.scalar(values[self.columns[column]], pa.string())
            columns = columns.append_column(column, pa.repeat(value, len(batch.rows)))
        return replace(batch, columns=columns)


@dataclass(frozen=True)
class TableSource(Source):
    """A table in memory, named by ``path``.

    Attributes
    ----------
    table : pyarrow.Table
        Its rows, without structs; of a table that is read elsewhere, the first ones, for errors.
    zoned : bool, optional
        Whether some times name their zone; None: the rows tell.
    """

    table: pa.Table = field(default_factory=lambda: pa.table({}), repr=False, compare=False)
    zoned: bool | None = None

    @property
    def checksum(self) -> str:
        """Checksum of the table's content; see :attr:`Source.checksum`."""
        return checksum(self.table)

    @property
    def holds_reads(self) -> bool:
        """See :attr:`Source.holds_reads`."""
        return False

    def sizes(self) -> list[int]:
        """See :meth:`Source.sizes`."""
        return [self.table.nbytes]

    def names_zones(self) -> bool:
        """Return whether some times in the table name their zone; see :meth:`Source.names_zones`."""
        return super().names_zones() if self.zoned is None else self.zoned

    def batches(self, parts: Sequence[Segment] | None = None) -> Iterator[Batch]:
        """Read the table in batches; it has no parts. See :meth:`Source.batches`."""
        for batch in batches_of_table(self.table, self.columns, self.path.name):
            yield self.with_places(batch)


def recognise_table(
    table: pa.Table,
    columns: Mapping[str, str] | None = None,
    required: Collection[str] = REQUIRED,
    *,
    name: str = "table",
) -> TableSource:
    """Return the source of a table in memory; columns are found as those of a file.

    Raises
    ------
    ParameterError, TraceFormatError
        As :func:`recognise`.
    """
    columns = _checked(columns)
    flat = flattened(table)
    _, mapping = _table(Path(name), flat.column_names, "auto", columns, required)
    return TableSource(Path(name), "table", mapping, table=flat)


def _share_names(members: tuple[str, ...]) -> bool:
    """Return whether files of one name, whatever their packing, are in different folders."""
    paths = {PurePosixPath(name).with_name(stem(PurePosixPath(name))) for name in members}
    return len({path.name for path in paths}) < len(paths)


def _partition(name: str) -> dict[str, str | None]:
    """Return the values that the path of a file names, as Hive and Spark write them.

    Their mark for null is None.
    """
    parts = (part.split("=", 1) for part in PurePosixPath(name).parent.parts if "=" in part)
    return {key: None if value == _HIVE_NULL else unquote(value) for key, value in parts}


def _prefixed(batch: Batch, folder: PurePosixPath) -> Batch:
    """Return a batch whose devices are named by their path."""
    place, names = batch.columns.column_names.index("device"), batch.columns["device"]
    paths = names if folder == PurePosixPath() else pc.binary_join_element_wise(str(folder), names, "/")
    return replace(batch, columns=batch.columns.set_column(place, "device", paths))


def recognise(
    path: Place | Files,
    format: str = "auto",  # noqa: A002
    columns: Mapping[str, str] | None = None,
    required: Collection[str] = REQUIRED,
) -> Source:
    """Return the format of a file or folder, or of several, and its columns.

    ``columns`` maps mudkit's column names to the file's, where the format does not fix them; other names
    are searched by their usual spellings. A table must have the ``required`` ones.

    Raises
    ------
    ParameterError
        There is no such format, no such column in mudkit, or the format's columns cannot be mapped.
    TraceFormatError
        The file has none of these formats, or lacks columns; the folder holds no or several kinds of files.
    """
    columns = _checked(columns)
    if format != "auto" and format not in FORMATS:
        raise ParameterError(
            "There is no such format.",
            where="format",
            found=repr(format),
            expected="auto, " + ", ".join(FORMATS),
            remedy=did_you_mean(format, FORMATS),
        )
    if isinstance(path, Files):
        names = {name for given in path.names for name in _names(path.path, given)}
        source = _folder(path.path, names, format, columns, required)
    elif is_folder(path):
        source = _folder(path, _names(path), format, columns, required)
    else:
        source = _file(path, format, columns, required)
    if columns and FORMATS[source.format].is_fixed:
        raise fixed_columns(source.format, columns)
    return source


def _checked(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return a mapping of columns; ParameterError if it names columns that a trace does not have."""
    columns = dict(columns or {})
    if unknown := sorted(set(columns) - set(COLUMNS)):
        raise ParameterError(
            "The column mapping names columns that a trace does not have.",
            where="columns",
            found=", ".join(unknown),
            expected="some of " + ", ".join(COLUMNS),
            remedy=did_you_mean(unknown[0], COLUMNS, synonyms=SPELLINGS),
        )
    return columns


def _file(
    path: Place,
    format: str,  # noqa: A002
    columns: dict[str, str],
    required: Collection[str],
    in_path: tuple[str, ...] = (),
) -> Source:
    """Return the format of a file, and its columns; ``in_path`` are the names of those in its path."""
    if size_bytes(path) == 0:
        raise empty(path)
    if format != "auto" and FORMATS[format].is_fixed:
        return Source(path, format, {})
    head = peek(path)
    refuse_document(path, head)
    kind = _kind(path, head) if format == "auto" else format
    if FORMATS[kind].is_fixed:
        return Source(path, kind, {})
    if (names := FORMATS[kind].names) is not None:
        if not FORMATS[kind].fits(head):
            raise other_format(path, f"the format {kind}", head=head)
        given = names(path)
        feed = gtfs_rt(given) if kind == "json" and not columns else None
        try:
            names_of_all = _joined(given, in_path)
            return _mapped(path, kind, resolve(path, names_of_all, feed or columns, required=required), given)
        except ColumnsMissing as error:
            raise (wrapped(path) if kind in ("json", "geojson") else None) or error from error
    table = dialect_of(path, {*columns.values()} - {*in_path}, head=head)
    kind, columns = _table(path, _joined(table.names, in_path), format, columns, required)
    return _mapped(path, kind, columns, table.names)


def _joined(names: list[str], in_path: tuple[str, ...]) -> list[str]:
    """Return the names of a file's columns, and those in its path that it lacks."""
    return [*names, *(name for name in in_path if name not in names)]


def _mapped(path: Place, kind: str, columns: dict[str, str], names: list[str]) -> Source:
    """Return the source of a file with a mapping of columns, some of which its path names."""
    return Source(path, kind, columns, in_paths=frozenset(c for c in columns if columns[c] not in names))


def _kind(path: Place, head: bytes) -> str:
    """Return the format of a file by its first bytes, or by its name; ``csv`` for any other text."""
    name = bare_name(path).lower()
    fitting = [kind for kind, entry in FORMATS.items() if entry.fits(head)]
    named = [kind for kind, entry in FORMATS.items() if entry.is_named and _matches(name, entry.patterns)]
    return next(iter(fitting + named), "csv")


def _table(
    path: Place,
    names: list[str],
    format: str,  # noqa: A002
    columns: dict[str, str],
    required: Collection[str],
) -> tuple[str, dict[str, str]]:
    """Return the kind of a table by the names in its header, and the columns of a trace that it has."""
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


def _folder(
    path: Place,
    names: set[str],
    format: str,  # noqa: A002
    columns: dict[str, str],
    required: Collection[str],
) -> Source:
    """Return the source of files in a folder, by their paths in it."""
    by_kind = _members(names)
    if format == "auto":
        by_kind = _without_others(path, by_kind)
    kind = "auto" if format == "auto" else _PATTERNS.get(FORMATS[format].patterns, format)
    if format == "auto" and len(by_kind) > 1:
        raise TraceFormatError(
            f"{path} holds several kinds of files.",
            where=str(path),
            found=", ".join(
                f"{len(members):,} {' or '.join(FORMATS[kind].patterns)} (for instance {members[0]})"
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
        others = sorted(names)
        patterns = _PATTERNS if format == "auto" else [FORMATS[kind].patterns]
        known = [pattern for alike in patterns for pattern in alike]
        raise TraceFormatError(
            f"{path} is a folder of no known format."
            if format == "auto"
            else f"{path} holds no files of the format {format}.",
            where=str(path),
            found=", ".join(others[:5]) or "nothing in it",
            expected=(f"files named {', '.join(known)}" if known else "a file")
            + ", or a folder that `mudkit trace load` made",
            remedy="name the file itself; a folder of text tables is read if they are named *.csv",
        )
    members = by_kind[kind]
    for name in members:
        if isinstance(path, Path):
            existing(path / name, "file")  # a link may lead nowhere
    if format == "auto" and FORMATS[kind].is_fixed and not FORMATS[kind].is_named:
        _check_first(path, kind, members)
    passed_over = Counter(PurePosixPath(name).suffix.lower() for name in names - {*members})
    if FORMATS[kind if format == "auto" else format].is_fixed:
        source = Source(path, kind if format == "auto" else format, {}, members)
    else:
        source = _tables(path, members, format, columns, required)
    return replace(source, passed_over=dict(sorted(passed_over.items())))


def _without_others(path: Place, by_kind: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return a folder's files by kind, without those beside the traces.

    These are tables in folders, descriptions in JSON, lists in text, and what Google exports beside a
    location history.
    """
    inner = {
        kind
        for kind, members in by_kind.items()
        if not FORMATS[kind].is_fixed and all("/" in name for name in members)
    }
    if by_kind.keys() <= inner | {"json"}:
        histories = tuple(name for name in by_kind.get("json", ()) if is_takeout(_head(path / name)))
        if histories:
            return {"takeout": histories}
    besides = {
        kind
        for kind in ("json", "t-drive")
        if all(name.endswith((".json", ".txt")) for name in by_kind.get(kind, ()))
    }
    for others in (inner, besides):
        by_kind = {kind: members for kind, members in by_kind.items() if kind not in others} or by_kind
    return by_kind


def _head(file: Place) -> bytes:
    """Return the beginning of a file; nothing if it is empty."""
    try:
        return peek(file)
    except FileEmpty:
        return b""


def _tables(
    path: Place,
    members: tuple[str, ...],
    format: str,  # noqa: A002
    columns: dict[str, str],
    required: Collection[str],
) -> Source:
    """Return the source of a folder's tables, which have the same columns."""
    first, first_name = None, ""
    for name in members:
        try:
            given = format if first is None else first.format
            other = _file(path / name, given, columns, required, tuple(_partition(name)))
        except FileEmpty:
            continue
        if first is None:
            first, first_name = other, name
        if (other.columns, other.in_paths) != (first.columns, first.in_paths):
            raise TraceFormatError(
                f"The files of {path.name} have different columns.",
                where=str(path / name),
                found=_mapping_text(other.columns),
                expected=f"{_mapping_text(first.columns)}, as in {first_name}",
                remedy="rename the columns, or load each kind of file by itself",
            )
    if first is None:
        raise empty(path)
    return replace(first, path=path, members=members)


def _check_first(path: Place, kind: str, members: tuple[str, ...]) -> None:
    """Raise an error if a folder's first file with content has the name of a format, but no rows of it."""
    name, head = next(((name, head) for name in members if (head := _head(path / name))), ("", b""))
    if not name or FORMATS[kind].fits(head):
        return
    refuse_document(path / name, head)
    raise TraceFormatError(
        f"The files of {path.name} are named like those of {kind}, and may be others.",
        where=str(path / name),
        found=f"{head.decode(errors='replace').strip().splitlines()[0][:80]!r} as the first line",
        expected=f"rows that only {kind} has",
        remedy=f"if they are of this format, say format={kind!r} (on the command line --format {kind}); else "
        "name the files *.csv, with a header or with header=False",
    )


_LOGS = {
    "_delta_log": ("a table of Delta", "spark.read.format('delta').load(path)"),
    "_spark_metadata": ("the output of a stream of Spark", "spark.read.parquet(path)"),
    ".hoodie": ("a table of Hudi", "spark.read.format('hudi').load(path)"),
    "metadata": ("a table of Iceberg", "spark.read.format('iceberg').load(path)"),
}
"""Folders of logs that say which of the files beside them count, and how Spark reads them."""

_STAGING = ("_temporary", ".spark-staging", ".hive-staging")
"""Beginnings of the names of folders in which Spark and Hive write what is not complete."""

_BESIDES = ("_SUCCESS", "_manifest.json", "_metadata", "_common_metadata")
"""Files that programs put beside the files of a folder."""


def _names(path: Place, within: str = "") -> set[str]:
    """Return the paths in a folder of its files, or of those at a path in it: a file, or all of a folder.

    Hidden ones (``._a.gpx``) and those of trace folders, which are outputs, are left out.

    Raises
    ------
    ParameterError
        It is a trace folder.
    TraceFormatError
        Not all files in it count: it is being written, or a log says which do.
    """
    place = path / within if within else path
    if is_trace(place):
        raise ParameterError(
            f"{place} is a trace folder already.",
            where=str(place),
            expected="a file, to make a trace folder of",
            remedy="use it as it is: pipeline.read(spark, path, 'positions')",
        )
    if not is_folder(place):
        return {within}
    if not isinstance(place, Path):
        return {f"{within}/{name}".lstrip("/") for name in _names_in_store(place)}
    try:
        return _names_in_folder(place, within)
    except OSError as error:
        if isinstance(error, MudkitError):
            raise
        raise InputMissing(
            f"A folder of {place} cannot be listed.",
            where=str(error.filename),
            found=os.strerror(error.errno) if error.errno else str(error),
            expected="a folder all of which may be read",
            remedy="change its permissions, or name the files that count",
        ) from error


def _names_in_folder(place: Path, within: str) -> set[str]:
    """Return the same of a folder of this machine."""
    names: set[str] = set()
    for at, folders, files in walk(place):
        for name in folders:
            if name != "metadata":
                _refuse_partial(Path(at), name)
        folders[:] = [
            name for name in folders if not name.startswith((".", "_")) and not is_trace(Path(at, name))
        ]
        folder = PurePosixPath(within, Path(at).relative_to(place).as_posix())
        if any(name.endswith(".metadata.json") for name in files):
            _refuse_partial(Path(at).parent, Path(at).name)
        names |= {(folder / name).as_posix() for name in files if _counts(name)}
    return names


def _names_in_store(path: Place) -> set[str]:
    """Return the same of a folder of a store, by one listing."""
    try:
        names = [PurePosixPath(name) for name in sizes_below(path)]
    except Exception as error:
        raise input_problem(path, error, "folder") from error
    traces = {name.parent for name in names if name.name == MANIFEST}
    of_tables = {name.parent for name in names if name.name.endswith(".metadata.json")}
    for above in {above for name in names for above in name.parents[:-1]}:
        if traces.isdisjoint(above.parents) and (above.name != "metadata" or above in of_tables):
            _refuse_partial(path / above.parent.as_posix(), above.name)
    return {
        name.as_posix()
        for name in names
        if traces.isdisjoint(name.parents)
        and _counts(name.name)
        and not any(part.startswith((".", "_")) for part in name.parent.parts)
    }


def _counts(name: str) -> bool:
    """Return whether a file counts as one of the source, by its name; hidden ones do not."""
    return not name.startswith(".") and name not in _BESIDES


def _refuse_partial(folder: Place, name: str) -> None:
    """Raise TraceFormatError if the name of a folder in it tells that not all files beside it count."""
    if name.startswith(_STAGING) or JOB_FOLDER.fullmatch(name):
        raise TraceFormatError(
            f"{folder} is not complete: a job writes it, or was stopped.",
            where=str(folder),
            found=f"the folder {name}, in which {'Spark' if name.startswith(_STAGING) else 'mudkit'} works",
            expected="a folder that is complete",
            remedy="wait for the job, or run it again; if all files are there, remove that folder",
        )
    if name in _LOGS:
        what, read = _LOGS[name]
        raise TraceFormatError(
            f"{folder} is {what}, in which not every file counts.",
            where=str(folder),
            found=f"the log {name}",
            expected="files all of which count, or a DataFrame",
            remedy=f"let Spark read it: pipeline.ingest(spark, {read}, out)",
        )


def _members(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return files by kind, by their names."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in _PATTERNS.values()}
    for name in sorted(names):
        plain = bare_name(PurePosixPath(name)).lower()
        for patterns, kind in _PATTERNS.items():
            if _matches(plain, patterns):
                by_kind[kind].append(name)
    return {kind: tuple(members) for kind, members in by_kind.items() if members}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name fits one of some patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _mapping_text(columns: dict[str, str]) -> str:
    """Return a mapping of columns as the command line takes it."""
    return ", ".join(f"{name}={given}" for name, given in columns.items())
