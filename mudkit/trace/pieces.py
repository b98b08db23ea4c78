"""A trace in pieces of whole devices: how every source becomes clean tables.

Rows are parsed in the order of the files and sorted by device (:mod:`mudkit.trace.runs`). A piece is the rows
of some devices, cleaned. :func:`mudkit.trace.load` joins the pieces, :func:`mudkit.trace.scan` yields them,
and :func:`mudkit.pipeline.ingest` does the same in tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from mudkit.files import Place
from mudkit.progress import bar
from mudkit.trace.clean import clean
from mudkit.trace.folder import dataset, read_description, table_files
from mudkit.trace.formats import Segment
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import LoadPlan
from mudkit.trace.parse import parsed_batches
from mudkit.trace.runs import Runs
from mudkit.trace.schema import POSITIONS, READS, REJECTED, SCHEMAS
from mudkit.trace.tally import Tally

_ROW_BYTES = 45  # average length of a row of text, for the progress bar


class Pieces(Protocol):
    """Rows of a source by device.

    Attributes
    ----------
    description : dict
        Origin of the trace, as in :class:`mudkit.trace.loaded.Loaded`.
    devices : dict
        Number of rows of each device, in the order of names.
    """

    description: dict[str, Any]
    devices: dict[str, int]

    def __iter__(self) -> Iterator[Loaded]:
        """Yield the cleaned rows of some devices, in the order of their names; raise errors of the whole."""


class FilePieces:
    """Pieces of a file or folder of a public format, which is read completely at once.

    Parameters
    ----------
    plan : LoadPlan
    max_rows : int
        Maximum number of rows of a piece, unless one device has more.
    folder : Path or None
        Folder for the rows; None: they stay in memory.

    Raises
    ------
    TraceFormatError, TraceContentError
        As :func:`mudkit.trace.load`; that positions contradict each other, or that no device moves, is known
        and raised after the last piece.
    """

    def __init__(self, plan: LoadPlan, max_rows: int, folder: Path | None = None) -> None:
        self._plan, self._max_rows = plan, max_rows
        self.description = {**plan.description(), "sha256": plan.source.checksum}
        self._rows = Runs(folder, "rows", max_rows)
        self._unread = _Unread(folder, max_rows)
        self._parsed = Tally()
        self._parse()
        self.devices = dict(sorted(self._rows.counts.items()))

    def __iter__(self) -> Iterator[Loaded]:
        """See :class:`Pieces`; a piece carries up to ``max_rows`` of the rows that could not be read."""
        tally = Tally()
        tally.add(self._parsed)
        unread = iter(self._unread)
        for first, last in _groups(self.devices, self._max_rows):
            tables = clean(self._rows.rows(first, last), self._plan)
            tally.add_cleaned(tables)
            rejected = pa.concat_tables([*_up_to(unread, self._max_rows), tables.rejected])
            positions = tables.positions.cast(POSITIONS)
            yield Loaded(positions, tables.reads, rejected, self.description, tables.fares)
        yield from _only_rejected(unread, self._max_rows, self.description)
        tally.check_cleaned(self._plan)

    def _parse(self) -> None:
        """Sort all rows of the source by device; raise an error of mudkit if most cannot be read."""
        source = self._plan.source
        files = source.files()
        sizes = source.sizes()
        with bar(sum(sizes) / 1e6, f"reading {source.path.name}", "MB") as show, self._unread:
            done = 0
            for file, size in zip(files, sizes, strict=True):
                rows = 0
                for parsed in parsed_batches(self._plan, [Segment(file)]):
                    self._rows.add(parsed.good)
                    self._unread.add(parsed.bad)
                    self._parsed.add_parsed(parsed)
                    rows += len(parsed.good) + len(parsed.bad)
                    show((done + min(size, rows * _ROW_BYTES)) / 1e6)
                done += size
                show(done / 1e6)
        self._rows.finish()
        self._parsed.check_parsed(self._plan)


class FolderPieces:
    """Pieces of a trace folder: its rows are clean, but devices are spread over dates.

    Parameters
    ----------
    path : Path or UPath
    max_rows : int
        Maximum number of rows of a piece, unless one device has more.
    folder : Path
        Folder for the rows.
    """

    def __init__(self, path: Place, max_rows: int, folder: Path) -> None:
        self._path, self._max_rows = path, max_rows
        self.description = read_description(path)
        self._runs = {name: Runs(folder, name, max_rows) for name in ("positions", "reads")}
        self._sort()
        devices = self._runs["positions"].counts + self._runs["reads"].counts
        self.devices = dict(sorted(devices.items()))

    def __iter__(self) -> Iterator[Loaded]:
        """See :class:`Pieces`."""
        unread = self._batches("rejected")
        for first, last in _groups(self.devices, self._max_rows):
            tables = (runs.rows(first, last).cast(SCHEMAS[name]) for name, runs in self._runs.items())
            positions, reads = tables
            positions = positions.sort_by([("device", "ascending"), ("ts", "ascending")])
            rejected = pa.concat_tables([REJECTED.empty_table(), *_up_to(unread, self._max_rows)])
            yield Loaded(positions, reads, rejected, self.description)
        yield from _only_rejected(unread, self._max_rows, self.description)

    def _sort(self) -> None:
        """Sort the rows of all tables into runs by device."""
        rows: Mapping[str, int] = self.description["rows"]
        total = sum(rows.get(name, 0) for name in self._runs)
        with bar(total / 1e6, f"reading {self._path.name}", "M rows") as show:
            done = 0
            for name, runs in self._runs.items():
                runs.add(SCHEMAS[name].empty_table())
                for batch in self._batches(name):
                    runs.add(batch)
                    done += len(batch)
                    show(done / 1e6)
                runs.finish()

    def _batches(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table of the folder in batches; none if it has no file."""
        if files := table_files(self._path, name):
            kept = {"batch_size": self._max_rows, "batch_readahead": 2, "fragment_readahead": 1}
            for batch in dataset(files, SCHEMAS[name]).to_batches(**kept):
                yield pa.Table.from_batches([batch])


class _Unread:
    """Rows that could not be read, in memory or in a file; a context while rows are added."""

    def __init__(self, folder: Path | None, max_rows: int) -> None:
        self._tables: list[pa.Table] = []
        self._file = None if folder is None else folder / "bad.arrow"
        self._max_rows = max_rows

    def __enter__(self) -> None:
        if self._file is not None:
            self._sink = pa.OSFile(str(self._file), "wb")
            self._writer = pa.ipc.new_stream(self._sink, REJECTED)

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._writer.close()
            self._sink.close()

    def add(self, rows: pa.Table) -> None:
        """Append rows, in memory or to the file."""
        if self._file is None:
            self._tables.append(rows)
        else:
            self._writer.write_table(rows, max_chunksize=self._max_rows)

    def __iter__(self) -> Iterator[pa.Table]:
        if self._file is None:
            yield from (table for table in self._tables if len(table))
        else:
            with pa.memory_map(str(self._file)) as mapped, pa.ipc.open_stream(mapped) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])


def _groups(devices: Mapping[str, int], max_rows: int) -> Iterator[tuple[str, str]]:
    """Group devices by name so that a group has at most this number of rows, or is one device."""
    first, last, rows = "", "", 0
    for device, count in devices.items():
        if rows and rows + count > max_rows:
            yield first, last
            rows = 0
        if not rows:
            first = device
        last = device
        rows += count
    if rows:
        yield first, last


def _only_rejected(
    unread: Iterator[pa.Table], max_rows: int, description: dict[str, Any]
) -> Iterator[Loaded]:
    """Yield the remaining rows that could not be read, in pieces without devices."""
    while more := _up_to(unread, max_rows):
        yield Loaded(POSITIONS.empty_table(), READS.empty_table(), pa.concat_tables(more), description)


def _up_to(tables: Iterator[pa.Table], rows: int) -> list[pa.Table]:
    """Return tables from an iterator until a number of rows is reached."""
    taken: list[pa.Table] = []
    with suppress(StopIteration):
        while sum(map(len, taken)) < rows:
            taken.append(next(tables))
    return taken
