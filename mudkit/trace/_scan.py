"""Scan of a trace that does not fit in memory: cleaned pieces of whole devices.

Rows are sorted by device on disk first, because cleaning a row needs the other rows of its device.
"""

from __future__ import annotations

import os
import shutil
import weakref
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from mudkit.arguments import check_options
from mudkit.display import Displayed, View
from mudkit.errors import MudkitError, TraceContentError
from mudkit.files import existing, output_problem, work_folder
from mudkit.progress import bar
from mudkit.sources.parameters import whole_number
from mudkit.trace.clean import CleanTables, check_moves, check_plausible, clean
from mudkit.trace.folder import is_trace, read_manifest, table_folder
from mudkit.trace.formats import GZIP_FACTOR
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import LoadPlan, Options, refuse_for_folder
from mudkit.trace.parse import check_parsed, parsed_batches
from mudkit.trace.schema import POSITIONS, READS, REJECTED, SCHEMAS

__all__ = ["Scan", "scan"]

_ROW_BYTES = 45  # average length of a row of text, for the progress bar
_BAD = "bad.arrow"


@check_options
def scan(path: str | os.PathLike[str], *, batch_rows: int = 1_000_000, **options: Any) -> Scan:
    """Load a trace piece by piece in bounded memory.

    The rows of all pieces together are those of :func:`mudkit.trace.load`: positions, reads, and rejected
    rows with the same reasons. A device is whole in one piece, and pieces are ordered by device name, so the
    concatenated positions equal those of ``load``. Cleaning a row needs the other rows of its device, so the
    file is first read completely and stored on disk by device; each piece is then read back and cleaned on
    demand.

    Parameters
    ----------
    path : path-like
        As for :func:`mudkit.trace.load`.
    batch_rows : int
        Maximum number of rows of a piece, which holds whole devices; a device with more rows is one piece.
        Memory holds about three times this number of rows; a folder in ``TMPDIR``, removed with the scan,
        holds the whole trace at about 60 bytes a row.
    **options
        Those of :class:`mudkit.trace.Options`.

    Returns
    -------
    Scan
        The pieces, which can be iterated over repeatedly; use it in a ``with`` statement. Unreadable rows
        belong to no device: each piece carries up to ``batch_rows`` of them, beginning with the first.

    Raises
    ------
    InputMissing, TraceFormatError, TraceContentError, ParameterError
        As ``load``, at once. Only after the last piece it is known, and raised, that most positions
        contradict each other or that no device has more than one.
    OutputProblem
        The work folder cannot be written (a full disk).

    Examples
    --------
    >>> with scan("geolife/Data", batch_rows=2_000_000) as pieces:  # doctest: +SKIP
    ...     for piece in pieces:
    ...         print(len(piece.positions), piece.rejected_by_reason())
    """
    batch_rows = whole_number("batch_rows", batch_rows, 1, 1 << 62)
    given = Options(**options)
    path = existing(path, "trace")
    if path.is_dir() and is_trace(path):
        refuse_for_folder(path, **vars(given))
        return Scan(_Clean(path), batch_rows)
    return Scan(_Raw(given.plan(path)), batch_rows)


@check_options
class Scan(Displayed):
    """Trace that is read piece by piece; built by :func:`scan`.

    Parameters
    ----------
    origin : object
        A file of a public format, or a trace folder.
    batch_rows : int
        Maximum number of rows of a piece, unless one device has more.

    Attributes
    ----------
    source : dict
        Origin of the trace, as in :class:`mudkit.trace.loaded.Loaded`.
    devices : int
        Number of devices among the readable rows.
    """

    def __init__(self, origin: _Raw | _Clean, batch_rows: int) -> None:
        folder = work_folder()
        self._close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._origin = origin
        self._batch_rows = batch_rows
        try:
            self._kept = origin.spill(folder, batch_rows)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, MudkitError):
                raise output_problem(folder, error) from error
            raise
        self.source: dict[str, Any] = origin.description
        self.devices = len(self._kept.devices)

    def _view(self) -> View:
        facts = {
            "source": self.source.get("name"),
            "state": "open" if self._close.alive else "closed",
            "devices": self.devices,
            "rows of a piece": self._batch_rows,
        }
        return View("Scan", facts, notes=["Iterating yields its pieces; each holds all rows of its devices."])

    def __enter__(self) -> Scan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the work folder and end the scan. Closing again has no effect."""
        self._close()

    def __iter__(self) -> Iterator[Loaded]:
        """Iterate over all pieces, from the first.

        Raises
        ------
        TraceContentError
            The scan is closed.
        TraceFormatError, TraceContentError
            After the last piece: the positions contradict each other, or no device moves.
        """
        totals = _Totals()
        unread = self._kept.unread()
        for first, last in _groups(self._kept.devices, self._batch_rows):
            self._refuse_closed()
            positions, reads, rejected, fares = self._origin.tables(self._kept, first, last)
            totals.add(positions, rejected)
            aside = [*_up_to(unread, self._batch_rows), rejected]
            yield Loaded(positions, reads, pa.concat_tables(aside), self.source, fares)
        while more := _up_to(unread, self._batch_rows):
            self._refuse_closed()
            empty = POSITIONS.empty_table(), READS.empty_table()
            yield Loaded(*empty, pa.concat_tables(more), self.source)
        self._origin.check(totals, sum(self._kept.devices.values()))

    def _refuse_closed(self) -> None:
        if not self._close.alive:
            raise TraceContentError(
                "This scan has been closed.",
                found="no work folder any more",
                expected="a scan within its with block",
                remedy="scan again",
            )


class _Spilled(NamedTuple):
    """Rows on disk."""

    folder: Path
    devices: dict[str, int]
    positions: Spill
    reads: Spill | None

    def unread(self) -> Iterator[pa.Table]:
        """Yield the rows that could not be read."""
        file = self.folder / _BAD
        if file.is_file():
            with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])


class _Totals:
    """Counts over the pieces so far."""

    def __init__(self) -> None:
        self.positions = 0
        self.devices = 0
        self.rejected: Counter[str] = Counter()

    def add(self, positions: pa.Table, rejected: pa.Table) -> None:
        self.positions += len(positions)
        self.devices += pc.count_distinct(positions["device"]).as_py()
        self.rejected.update(rejected["reason"].to_pylist())


class _Raw:
    """File or folder of a public format."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self.description = plan.description()

    def spill(self, folder: Path, batch_rows: int) -> _Spilled:
        """Read all rows and store them by device; raise the errors of :func:`mudkit.trace.load`."""
        spill = Spill(folder, "rows", batch_rows)
        bad: Counter[str] = Counter()
        sample = ""
        files = self._plan.source.files()
        sizes = [file.stat().st_size for file in files]
        with (
            bar(sum(sizes) / 1e6, f"reading {self._plan.source.path.name}", "MB") as show,
            pa.OSFile(str(folder / _BAD), "wb") as sink,
            pa.ipc.new_stream(sink, REJECTED) as aside,
        ):
            done = 0
            for file, size in zip(files, sizes, strict=True):
                rows = 0
                for parsed in parsed_batches(self._plan, [file]):
                    spill.add(parsed.good)
                    if len(parsed.bad):
                        sample = sample or str(parsed.bad["raw"][0])
                        bad.update(parsed.bad["reason"].to_pylist())
                        aside.write_table(parsed.bad, max_chunksize=batch_rows)
                    rows += len(parsed.good) + len(parsed.bad)
                    packed = GZIP_FACTOR if file.suffix == ".gz" else 1
                    show((done + min(size, rows * _ROW_BYTES / packed)) / 1e6)
                done += size
                show(done / 1e6)
        spill.finish()
        total = sum(bad.values()) + sum(spill.counts.values())
        check_parsed(self._plan, total, dict(bad), sample)
        return _Spilled(folder, dict(sorted(spill.counts.items())), spill, None)

    def tables(self, kept: _Spilled, first: str, last: str) -> CleanTables:
        """Clean the rows of some devices."""
        return clean(kept.positions.rows(first, last), self._plan)

    def check(self, totals: _Totals, rows: int) -> None:
        """Raise errors that only all pieces together show."""
        if self._plan.options.table == "positions":
            check_plausible(self._plan.source, rows, dict(totals.rejected))
            check_moves(self._plan.source, totals.positions, totals.devices, totals.rejected)


class _Clean:
    """Trace folder: its rows are clean, but devices are spread over dates."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.description = read_manifest(path)

    def spill(self, folder: Path, batch_rows: int) -> _Spilled:
        """Store all rows by device."""
        spills = {name: Spill(folder, name, batch_rows) for name in ("positions", "reads")}
        rows = self.description["rows"]
        total = sum(rows.get(name, 0) for name in spills)
        with bar(total / 1e6, f"reading {self._path.name}", "M rows") as show:
            done = 0
            for name, spill in spills.items():
                spill.add(SCHEMAS[name].empty_table())
                for batch in self._batches(name, batch_rows):
                    spill.add(batch)
                    done += len(batch)
                    show(done / 1e6)
                spill.finish()
        with pa.OSFile(str(folder / _BAD), "wb") as sink, pa.ipc.new_stream(sink, REJECTED) as aside:
            for batch in self._batches("rejected", batch_rows):
                aside.write_table(batch)
        devices = spills["positions"].counts + spills["reads"].counts
        return _Spilled(folder, dict(sorted(devices.items())), spills["positions"], spills["reads"])

    def _batches(self, name: str, batch_rows: int) -> Iterator[pa.Table]:
        folder = table_folder(self._path, name)
        if folder is not None:
            dataset = ds.dataset(folder, schema=SCHEMAS[name], format="parquet")
            for batch in dataset.to_batches(batch_size=batch_rows, batch_readahead=2, fragment_readahead=1):
                yield pa.Table.from_batches([batch])

    def tables(self, kept: _Spilled, first: str, last: str) -> CleanTables:
        """Read the rows of some devices back."""
        assert kept.reads is not None
        positions = kept.positions.rows(first, last).sort_by([("device", "ascending"), ("ts", "ascending")])
        return CleanTables(positions, kept.reads.rows(first, last), REJECTED.empty_table())

    def check(self, totals: _Totals, rows: int) -> None:
        """Check nothing: the trace was checked when it was written."""


def _groups(devices: dict[str, int], batch_rows: int) -> Iterator[tuple[str, str]]:
    """Group devices by name so that a group has at most this number of rows, or is one device."""
    first, last, rows = "", "", 0
    for device, count in devices.items():
        if rows and rows + count > batch_rows:
            yield first, last
            rows = 0
        if not rows:
            first = device
        last = device
        rows += count
    if rows:
        yield first, last


def _up_to(tables_: Iterator[pa.Table], rows: int) -> list[pa.Table]:
    """Return tables from an iterator until a number of rows is reached."""
    taken: list[pa.Table] = []
    with suppress(StopIteration):
        while sum(map(len, taken)) < rows:
            taken.append(next(tables_))
    return taken


@dataclass(frozen=True)
class _Run:
    """Memory-mapped file of rows sorted by device, and the first row of each device."""

    table: pa.Table
    devices: list[str]
    offsets: NDArray[np.int64]

    def rows(self, first: str, last: str) -> pa.Table:
        begin = int(self.offsets[bisect_left(self.devices, first)])
        return self.table.slice(begin, int(self.offsets[bisect_right(self.devices, last)]) - begin)


class Spill:
    """Sorted runs on disk: rows are added in any order and read back by device, in the order of arrival.

    Memory holds at most one run, while it is sorted, and the device names of each run.

    Attributes
    ----------
    counts : Counter
        Number of rows of each device on disk.
    """

    def __init__(self, folder: Path, name: str, run_rows: int) -> None:
        self._folder = folder
        self._name = name
        self._run_rows = run_rows
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._schema = pa.schema([])
        self.counts: Counter[str] = Counter()

    def add(self, table: pa.Table) -> None:
        """Store rows with a column ``device``; columns of other tables may be missing."""
        for first in range(0, len(table), self._run_rows):
            piece = table.slice(first, self._run_rows)
            self._pending.append(piece)
            self._pending_rows += len(piece)
            if self._pending_rows >= self._run_rows:
                self.finish()
        if not len(table):
            self._schema = table.schema

    def finish(self) -> None:
        """Write the rows that are not yet on disk."""
        if not self._pending:
            return
        table = pa.concat_tables(self._pending, promote_options="default").unify_dictionaries()
        self._pending, self._pending_rows = [], 0
        names = table["device"].combine_chunks().dictionary_encode()
        order = pc.sort_indices(names.dictionary).to_numpy()
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        codes = rank[names.indices.to_numpy(zero_copy_only=False)]
        rows_of = np.bincount(codes, minlength=len(order))
        devices = names.dictionary.take(pa.array(order)).to_pylist()
        self.counts.update(dict(zip(devices, rows_of.tolist(), strict=True)))
        file = self._folder / f"{self._name}-{len(self._runs):05d}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.take(pa.array(np.argsort(codes, kind="stable"))).combine_chunks())
        mapped = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        self._schema = mapped.schema
        self._runs.append(_Run(mapped, devices, np.append(0, np.cumsum(rows_of))))

    def rows(self, first: str, last: str) -> pa.Table:
        """Yield the rows of all devices between two names, inclusive, run by run."""
        pieces = [piece for run in self._runs if len(piece := run.rows(first, last))]
        if not pieces:
            return self._schema.empty_table()
        return pa.concat_tables(pieces, promote_options="default").unify_dictionaries()
