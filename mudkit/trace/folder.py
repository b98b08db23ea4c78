"""Trace folder: Parquet files partitioned by date, and ``trace.json``, which marks it as complete.

Layout::

    <trace>/trace.json
    <trace>/positions/date=2008-05-18/part-00000.parquet     sorted by (ts, device)
    <trace>/reads/date=2008-05-18/part-00000.parquet
    <trace>/rejected/part-00000.parquet
    <trace>/links/…, messages/…, bill/…                      additional tables of a lab
"""

from __future__ import annotations

import datetime as dt
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.errors import TraceFormatError
from mudkit.files import existing, staged_folder
from mudkit.predicates import Language, Predicate
from mudkit.trace.schema import SCHEMAS, TIMES, epoch_us

FORMAT_VERSION = 1
OUTPUT_NAMES = r"trace\.json|" + "|".join(SCHEMAS)
"""Names in a trace folder; a folder with other files is never replaced."""

_MANIFEST = "trace.json"
_WHO = {"messages": "source", "operations": "client", "deliveries": "receiver"}
_US_PER_DAY = 86_400_000_000


@check_arguments(types=False)
class TraceWriter:
    """Writer of a trace, piece by piece in bounded memory; see :meth:`open`.

    Parameters
    ----------
    folder : Path
        Folder of the tables.
    part : str
        Prefix of this writer's files, for several writers of one trace.

    Attributes
    ----------
    counts : Counter
        Number of rows written, by table.
    """

    def __init__(self, folder: Path, part: str = "") -> None:
        self._folder = folder
        self._part = part
        self._parts: Counter[Path] = Counter()
        self.counts: Counter[str] = Counter()

    @classmethod
    @contextmanager
    def open(
        cls, path: str | os.PathLike[str], description: dict[str, Any], *, overwrite: bool = False
    ) -> Iterator[TraceWriter]:
        """Open a trace for writing; it appears at ``path`` if the body succeeds, or not at all.

        Parameters
        ----------
        path : path-like
            Folder of the trace, which is created.
        description : dict
            Contents of ``trace.json``: provenance, options, rules, counts. The body may add to it.
        overwrite : bool
            Whether to replace an existing trace.

        Raises
        ------
        OutputExists, OutputProblem
            As :func:`mudkit.files.staged_folder`.
        """
        with staged_folder(path, overwrite=OUTPUT_NAMES if overwrite else None) as folder:
            writer = cls(folder)
            yield writer
            write_manifest(folder, {**description, "rows": dict(sorted(writer.counts.items()))})

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
        if not len(table):
            return
        if name not in TIMES:
            self._write_part(self._folder / name, table)
            return
        table = table.sort_by([(TIMES[name], "ascending"), (_WHO.get(name, "device"), "ascending")])
        days = epoch_us(table[TIMES[name]]) // _US_PER_DAY
        edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(table)]
        for first, last in pairwise(edges):
            date = dt.date(1970, 1, 1) + dt.timedelta(days=int(days[first]))
            self._write_part(self._folder / name / f"date={date}", table.slice(first, last - first))

    def _write_part(self, folder: Path, table: pa.Table) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"part-{self._part}{self._parts[folder]:05d}.parquet"
        # A task that Spark tries twice writes the same file twice; either is whole, and they are the same.
        staging = folder / f".{name}.{uuid.uuid4().hex[:8]}"
        pq.write_table(table, staging, compression="zstd")
        staging.replace(folder / name)
        self._parts[folder] += 1


def write_manifest(folder: Path, description: dict[str, Any]) -> None:
    """Write ``trace.json`` last of all: a folder without it is not a trace."""
    text = json.dumps({"format_version": FORMAT_VERSION, **description}, indent=2, ensure_ascii=False)
    (folder / _MANIFEST).write_text(text + "\n", encoding="utf-8")


@check_arguments(types=False)
def is_trace(path: Path) -> bool:
    """Return whether a folder is a complete trace.

    Parameters
    ----------
    path : Path
        Folder to test.
    """
    return (path / _MANIFEST).is_file()


@check_arguments(types=False)
def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read ``trace.json``.

    Parameters
    ----------
    path : path-like
        Trace folder.

    Raises
    ------
    InputMissing
        The folder does not exist.
    TraceFormatError
        The folder is not a complete trace, or of a later format.
    """
    path = existing(path, "trace")
    if path.is_file():
        raise TraceFormatError(
            f"{path} is a file, not a trace folder.",
            where=str(path),
            found="a file",
            expected="a folder that `mudkit trace load` or `mudkit trace generate` made",
            remedy=f"mudkit trace load {path} --out FOLDER first",
        )
    if not is_trace(path):
        raise TraceFormatError(
            f"{path} is not a trace of mudkit.",
            where=str(path),
            found=f"no {_MANIFEST}: another folder, or one whose writing was stopped",
            expected="a folder that `mudkit trace load` or `mudkit trace generate` made",
            remedy="make it again from its source",
        )
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        manifest["rows"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, f"{_MANIFEST} cannot be read: {error}") from error
    if manifest.get("format_version") != FORMAT_VERSION:
        raise TraceFormatError(
            f"{path} has another format version.",
            where=str(path),
            found=str(manifest.get("format_version")),
            expected=str(FORMAT_VERSION),
            remedy="make it again from its source with this version of mudkit",
        )
    return manifest


def table_folder(path: str | os.PathLike[str], name: str) -> Path | None:
    """Return the folder of one table of a complete trace; None if the trace has no row of it.

    Raises
    ------
    InputMissing, TraceFormatError
        There is no trace, or rows of it are missing.
    """
    if name not in SCHEMAS:
        raise TraceFormatError(
            "A trace has no such table.", found=name, expected=", ".join(SCHEMAS), where=str(path)
        )
    expected = read_manifest(path)["rows"].get(name, 0)
    folder = Path(path).expanduser() / name
    try:
        rows = ds.dataset(folder, format="parquet").count_rows() if folder.is_dir() else 0
    except (pa.ArrowException, OSError) as error:
        raise _damaged(Path(path), str(error)) from error
    if rows != expected:
        raise _damaged(Path(path), f"{rows:,} {name}, where {_MANIFEST} says {expected:,}")
    return folder if rows else None


@check_arguments(types=False)
def read_table(path: str | os.PathLike[str], name: str, *, where: str | Predicate | None = None) -> pa.Table:
    """Read one table of a trace, sorted by date and, within it, as written.

    Parameters
    ----------
    path : path-like
        Trace folder.
    name : str
        Name of a table in :data:`mudkit.trace.schema.SCHEMAS`.
    where : str or Predicate, optional
        Which rows (:func:`mudkit.trace.folder.select`); by default all.

    Raises
    ------
    InputMissing, TraceFormatError
        As :func:`read_manifest`.
    PredicateError
        ``where`` is invalid for the table's columns.
    """
    folder = table_folder(path, name)
    if folder is None:
        table = SCHEMAS[name].empty_table()
    else:
        table = ds.dataset(folder, schema=SCHEMAS[name], format="parquet").to_table()
    return table if where is None else select(table, where)


def _damaged(path: Path, problem: str) -> TraceFormatError:
    return TraceFormatError(
        f"The trace {path} is damaged.",
        where=str(path),
        found=problem,
        expected="all that was written",
        remedy="make it again from its source",
    )


def columns_language(schema: pa.Schema) -> Language:
    """Return the language for predicates over the columns of a table; times are seconds since 1970."""
    return Language(("record",), schema={"record": {field.name: _kind(field.type) for field in schema}})


def _kind(type_: pa.DataType) -> str:
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
    language = columns_language(table.schema)
    predicate = Predicate.parse(where, language=language) if isinstance(where, str) else where
    columns = {name: _numpy(table[name]) for name in predicate.names()["record"] & set(table.column_names)}
    mask = predicate.numpy(columns) if columns else None
    if mask is None:  # it reads no column, so all rows agree
        return table if predicate({}) else table.slice(0, 0)
    return table.filter(pa.array(np.ma.filled(mask, False)))


def _numpy(column: pa.ChunkedArray) -> NDArray[np.generic]:
    return np.asarray(column.to_numpy())
