"""Trace folder: Parquet files partitioned by date, and ``trace.json``, which makes them a trace.

It is written last, and names the files of each table with their rows and bytes. Other files in the folder are
of a trace that is being written, or was, and are not read. (mudkit 0.2 wrote no names: of such a trace all
files in the folder of a table are read.)

Layout::

    <trace>/trace.json
    <trace>/positions/date=2008-05-18/part-00000.parquet     sorted by (ts, device)
    <trace>/reads/date=2008-05-18/part-00000.parquet
    <trace>/rejected/part-00000.parquet
    <trace>/links/…, messages/…, bill/…                      additional tables of a lab

A trace is in a folder of this machine or at the address of a store (:func:`mudkit.files.place`).
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.errors import OutputProblem, TraceFormatError
from mudkit.files import (
    Place,
    PlaceLike,
    arrow_place,
    existing,
    input_problem,
    is_file,
    is_folder,
    place,
    refuse_existing,
    sizes_below,
    staged_file,
    staged_folder,
)
from mudkit.trace.schema import SCHEMAS, TIMES, epoch_us

if TYPE_CHECKING:
    from mudkit.predicates import Language, Predicate

FORMAT_VERSION = 1
JOB_FOLDER = re.compile("_job-[0-9a-f]{16}")
"""Name of the folder that a job of the pipeline has in its output until it is complete."""
OUTPUT_NAMES = rf"trace\.json|{JOB_FOLDER.pattern}|" + "|".join(SCHEMAS)
"""Names in a trace folder, of jobs that fill it, too; a folder with other files is never replaced."""

MANIFEST = "trace.json"
_WHO = {"messages": "source", "operations": "client", "deliveries": "receiver"}
_US_PER_DAY = 86_400_000_000


class TableFile(TypedDict):
    """Entry of a file in ``trace.json``: its path in the trace folder, its rows, and its size."""

    name: str
    rows: int
    bytes: int


@check_arguments(types=False)
class TraceWriter:
    """Writer of a trace, piece by piece in bounded memory; see :meth:`open`.

    Parameters
    ----------
    folder : Path or UPath
        Folder of the tables.
    part : str
        Prefix of this writer's files, for several writers of one trace. One that no other writer has makes
        the names unique in a folder that holds other files.

    Attributes
    ----------
    counts : Counter
        Number of rows written, by table.
    files : dict
        Files written, by table: for each ``name`` (its path in the folder), ``rows`` and ``bytes``.
    """

    def __init__(self, folder: Place, part: str = "") -> None:
        self._folder = folder
        self._part = part
        self._parts: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.files: dict[str, list[TableFile]] = {}

    @classmethod
    @contextmanager
    def open(
        cls, path: PlaceLike, description: dict[str, Any], *, overwrite: bool = False
    ) -> Iterator[TraceWriter]:
        """Open a trace for writing; it appears at ``path`` if the body succeeds, or not at all.

        In a folder of this machine all files appear at once. At an address the files are written under names
        of their own, and are a trace from the moment that the manifest is; files of a trace that it replaces
        are removed then. A process that is killed before may leave files, which nothing reads.

        Parameters
        ----------
        path : path-like or UPath
            Folder of the trace, which is created, or an address.
        description : dict
            Contents of ``trace.json``: provenance, options, rules, counts. The body may add to it.
        overwrite : bool
            Whether to replace an existing trace.

        Raises
        ------
        OutputExists, OutputProblem
            As :func:`mudkit.files.staged_folder`.
        """
        at = place(path, "trace")
        pattern = OUTPUT_NAMES if overwrite else None
        if isinstance(at, Path):
            with staged_folder(at, overwrite=pattern) as folder:
                writer = cls(folder)
                yield writer
                write_manifest(folder, description, writer.files)
            return
        refuse_existing(at, pattern)
        writer = cls(at, f"{uuid.uuid4().hex[:12]}-")
        try:
            yield writer
            _check_stored(at, writer.files)
            write_manifest(at, description, writer.files)
        except BaseException:
            _remove(at, {file["name"] for files in writer.files.values() for file in files})
            raise
        remove_unnamed(at)

    def write(self, name: str, table: pa.Table) -> None:
        """Append rows; each call writes one file per date, sorted by time and device.

        Parameters
        ----------
        name : str
            Name of a table in :data:`mudkit.trace.schema.SCHEMAS`.
        table : pyarrow.Table
            Rows with that table's schema, in any order.
        """
        table = table.cast(SCHEMAS[name])
        self.counts[name] += len(table)
        self.files.setdefault(name, [])
        if not len(table):
            return
        if name not in TIMES:
            self._write_part(name, name, table)
            return
        table = table.sort_by([(TIMES[name], "ascending"), (_WHO.get(name, "device"), "ascending")])
        days = epoch_us(table[TIMES[name]]) // _US_PER_DAY
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(table)]
        for first, last in pairwise(edges):
            date = dt.date(1970, 1, 1) + dt.timedelta(days=int(days[first]))
            self._write_part(name, f"{name}/date={date}", table.slice(first, last - first))

    def _write_part(self, name: str, folder: str, table: pa.Table) -> None:
        """Write rows as the next file of a folder, and add it to the files."""
        file = f"{folder}/part-{self._part}{self._parts[folder]:05d}.parquet"
        with staged_file(self._folder / file) as staging:
            pq.write_table(table, staging, **compact_form(table.schema))
            size_bytes = staging.stat().st_size
        self.files[name].append({"name": file, "rows": len(table), "bytes": size_bytes})
        self._parts[folder] += 1


def compact_form(schema: pa.Schema) -> dict[str, Any]:
    """Return how Parquet files are written: without dictionaries of times and places, which seldom repeat."""
    kinds = (pa.types.is_floating, pa.types.is_timestamp)
    repeated = [field.name for field in schema if not any(fits(field.type) for fits in kinds)]
    has_nested = any(pa.types.is_nested(field.type) for field in schema)  # its values have other names
    return {"compression": "zstd", "use_dictionary": has_nested or repeated}


def _check_stored(folder: Place, files: Mapping[str, Iterable[TableFile]]) -> None:
    """Raise OutputProblem unless the files that were put at an address are still there, as they were."""
    sizes = sizes_below(folder)
    entries = [file for of_table in files.values() for file in of_table]
    missing = [file["name"] for file in entries if sizes.get(file["name"]) != file["bytes"]]
    if missing:
        raise OutputProblem(
            f"{len(missing):,} of {len(entries):,} files that were written are not at {folder}.",
            where=str(folder),
            found=f"no {missing[0]}, or with another size",
            expected="all files: another writer at this place may have removed them",
            remedy="write to a place of its own, one writer at a time",
        )


def write_manifest(
    folder: Place, description: Mapping[str, Any], files: Mapping[str, Iterable[TableFile]]
) -> None:
    """Write ``trace.json`` in one write, last of all: a folder without it is not a trace.

    Parameters
    ----------
    folder : Path or UPath
        Folder that holds the files.
    description : mapping
        Provenance, options, rules, counts.
    files : mapping
        All files of each table. The rows of the tables are counted by them.
    """
    in_order = {name: sorted(files[name], key=lambda file: file["name"].split("/")) for name in sorted(files)}
    rows = {name: sum(file["rows"] for file in entries) for name, entries in in_order.items()}
    manifest = {"format_version": FORMAT_VERSION, **description, "rows": rows, "files": in_order}
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    with staged_file(folder / MANIFEST) as staging:
        staging.write_text(text + "\n", encoding="utf-8")


def remove_unnamed(path: PlaceLike) -> None:
    """Remove the files in the tables' folders of a trace that its manifest does not name."""
    at = place(path, "trace")
    named = {file["name"] for files in read_manifest(at)["files"].values() for file in files}
    _remove(at, {name for name in sizes_below(at) if name.split("/")[0] in SCHEMAS and name not in named})


def _remove(folder: Place, names: Iterable[str]) -> None:
    """Remove files; what cannot be removed stays, and is read by nobody."""
    for name in names:
        with suppress(Exception):
            (folder / name).unlink(missing_ok=True)


@check_arguments(types=False)
def is_trace(path: Place) -> bool:
    """Return whether a folder is a complete trace.

    Parameters
    ----------
    path : Path or UPath
        Folder to test.
    """
    return is_folder(path) and is_file(path / MANIFEST)


@check_arguments(types=False)
def read_manifest(path: PlaceLike) -> dict[str, Any]:
    """Read ``trace.json``.

    Parameters
    ----------
    path : path-like or UPath
        Trace folder.

    Raises
    ------
    InputMissing
        The folder does not exist, or may not be read.
    TraceFormatError
        The folder is not a complete trace, or of a later format.
    """
    at = existing(path, "trace")
    if not is_folder(at):
        raise TraceFormatError(
            f"{at} is a file, not a trace folder.",
            where=str(at),
            found="a file",
            expected="a folder that `mudkit trace load` or `mudkit trace generate` made",
            remedy=f"mudkit trace load {at} --out FOLDER first",
        )
    try:
        text = (at / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TraceFormatError(
            f"{at} is not a trace of mudkit.",
            where=str(at),
            found=f"no {MANIFEST}: another folder, or one whose writing was stopped",
            expected="a folder that `mudkit trace load` or `mudkit trace generate` made",
            remedy="make it again from its source",
        ) from error
    except Exception as error:
        if not isinstance(at, Path):
            raise input_problem(at / MANIFEST, error, "manifest") from error
        raise _damaged(at, f"{MANIFEST} cannot be read: {error}") from error
    try:
        manifest: dict[str, Any] = json.loads(text)
        manifest["rows"].items()
        if "files" in manifest:
            _check_files(manifest)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(at, f"{MANIFEST} cannot be read: {error}") from error
    if manifest.get("format_version") != FORMAT_VERSION:
        raise TraceFormatError(
            f"{at} has another format version.",
            where=str(at),
            found=str(manifest.get("format_version")),
            expected=str(FORMAT_VERSION),
            remedy="make it again from its source with this version of mudkit",
        )
    return manifest


def read_description(path: PlaceLike) -> dict[str, Any]:
    """Return the manifest of a trace without its files: what describes the trace wherever it is."""
    return {name: value for name, value in read_manifest(path).items() if name != "files"}


def _check_files(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError unless the files of a manifest are in the folders of its tables, with all rows."""
    for name, files in manifest["files"].items():
        for file in files:
            parts = str(file["name"]).split("/")
            if parts[0] != name or not {"", ".", ".."}.isdisjoint(parts):
                raise ValueError(f"the file {file['name']!r} is in no folder of {name}")
            if not (isinstance(file["rows"], int) and isinstance(file["bytes"], int)):
                raise TypeError(f"rows and bytes of {file['name']} are no numbers")
    for name, expected in manifest["rows"].items():
        rows = sum(file["rows"] for file in manifest["files"].get(name, ()))
        if rows != expected:
            raise ValueError(f"its files hold {rows:,} {name}, where it says {expected:,}")


def table_files(path: PlaceLike, name: str) -> list[Place]:
    """Return the files of one table of a complete trace, by date; none if the trace has no row of it.

    Raises
    ------
    InputMissing, TraceFormatError
        There is no trace, or a file of it is missing or has another size.
    """
    if name not in SCHEMAS:
        raise TraceFormatError(
            "A trace has no such table.", found=name, expected=", ".join(SCHEMAS), where=str(path)
        )
    manifest = read_manifest(path)
    at = place(path, "trace")
    if "files" not in manifest:
        return _files_of_folder(at, name, manifest["rows"].get(name, 0))
    named: dict[str, int] = {file["name"]: file["bytes"] for file in manifest["files"].get(name, ())}
    try:
        sizes = sizes_below(at / name) if named else {}
    except Exception as error:
        raise input_problem(at / name, error, "table") if not isinstance(at, Path) else error from error
    stored = {f"{name}/{file}": size_bytes for file, size_bytes in sizes.items()}
    if missing := [file for file in named if file not in stored]:
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise _damaged(at, f"{missing[0]} is missing{more}")
    for file, size_bytes in named.items():
        if stored[file] != size_bytes:
            raise _damaged(at, f"{file} has {stored[file]:,} bytes, where {MANIFEST} says {size_bytes:,}")
    return [at / file for file in named]


def files_by_date(path: PlaceLike, name: str) -> dict[dt.date, list[Place]]:
    """Return the files of a table that is partitioned by date, as :func:`table_files`, in order."""
    by_date: dict[dt.date, list[Place]] = {}
    for file in table_files(path, name):
        date = dt.date.fromisoformat(file.parent.name.removeprefix("date="))
        by_date.setdefault(date, []).append(file)
    return dict(sorted(by_date.items()))


def _files_of_folder(path: Place, name: str, expected: int) -> list[Place]:
    """Return the files of a table that mudkit 0.2 wrote: all in its folder, which hold the expected rows."""
    folder = path / name
    try:
        files = [
            folder / file
            for file in (sizes_below(folder) if is_folder(folder) else ())
            if not any(part.startswith((".", "_")) for part in file.split("/"))
        ]
        rows = dataset(files, SCHEMAS[name]).count_rows() if files else 0
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, str(error)) from error
    if rows != expected:
        raise _damaged(path, f"{rows:,} {name}, where {MANIFEST} says {expected:,}")
    return files if rows else []


def dataset(files: Iterable[Place], schema: pa.Schema) -> ds.Dataset:
    """Return Parquet files of one place as a dataset of Arrow."""
    places = [arrow_place(file) for file in files]
    filesystem = places[0][0] if places else None
    return ds.dataset([text for _, text in places], schema=schema, format="parquet", filesystem=filesystem)


@check_arguments(types=False)
def read_table(path: PlaceLike, name: str, *, where: str | Predicate | None = None) -> pa.Table:
    """Read one table of a trace, sorted by date and, within it, as written.

    Parameters
    ----------
    path : path-like or UPath
        Trace folder.
    name : str
        Name of a table in :data:`mudkit.trace.schema.SCHEMAS`.
    where : str or Predicate, optional
        Which rows (:func:`mudkit.trace.folder.select`); by default all.

    Raises
    ------
    InputMissing, TraceFormatError
        As :func:`read_manifest`; or a file is damaged.
    PredicateError
        ``where`` is invalid for the table's columns.
    """
    files = table_files(path, name)
    try:
        table = dataset(files, SCHEMAS[name]).to_table() if files else SCHEMAS[name].empty_table()
    except (pa.ArrowException, OSError) as error:
        raise _damaged(place(path), str(error)) from error
    return table if where is None else select(table, where)


def _damaged(path: Place, problem: str) -> TraceFormatError:
    """Return the error for a trace that cannot be read, or does not have what its manifest says."""
    return TraceFormatError(
        f"The trace {path} is damaged.",
        where=str(path),
        found=problem,
        expected="all that was written",
        remedy="make it again from its source",
    )


def columns_language(schema: pa.Schema) -> Language:
    """Return the language for predicates over the columns of a table; times are seconds since 1970."""
    from mudkit.predicates import Language  # it loads sqlglot

    return Language(("record",), schema={"record": {field.name: _kind(field.type) for field in schema}})


def _kind(type_: pa.DataType) -> str:
    """Return the kind that the language of predicates has for a type of Arrow."""
    if pa.types.is_boolean(type_):
        return "boolean"
    return "string" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else "number"


def select(table: pa.Table, where: str | Predicate) -> pa.Table:
    """Return the rows for which a predicate is TRUE.

    Raises
    ------
    PredicateError
        ``where`` is not a predicate, or names an unknown column.
    """
    from mudkit.predicates import Predicate  # it loads sqlglot

    language = columns_language(table.schema)
    predicate = Predicate.parse(where, language=language) if isinstance(where, str) else where
    columns = {name: _numpy(table[name]) for name in predicate.names()["record"] & set(table.column_names)}
    mask = predicate.numpy(columns) if columns else None
    if mask is None:  # it reads no column, so all rows agree
        return table if predicate({}) else table.slice(0, 0)
    return table.filter(pa.array(np.ma.filled(mask, False)))


def _numpy(column: pa.ChunkedArray) -> NDArray[np.generic]:
    """Return a column as an array of NumPy."""
    return np.asarray(column.to_numpy())
