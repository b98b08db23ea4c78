"""Go through a trace that does not fit in memory: cleaned pieces of whole devices."""

from __future__ import annotations

import os
import shutil
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from mudkit.display import Displayed, View
from mudkit.errors import MudkitError, ParameterError, TraceContentError
from mudkit.files import existing, output_problem, work_folder
from mudkit.progress import bar
from mudkit.trace.clean import CleanTables, check_moves, check_plausible, clean
from mudkit.trace.folder import is_trace, read_manifest, table_folder
from mudkit.trace.formats import GZIP_FACTOR, recognise
from mudkit.trace.loaded import Loaded
from mudkit.trace.options import FileTable, Options, TimeUnit, refuse_for_folder
from mudkit.trace.parse import check_parsed, parsed_batches
from mudkit.trace.plan import LoadPlan
from mudkit.trace.schema import POSITIONS, READS, REJECTED, SCHEMAS
from mudkit.trace.spill import Spill

__all__ = ["Scan", "scan"]

_ROW_BYTES = 45  # what a row of such text is long; only the bar is told so
_BAD = "bad.arrow"


def scan(
    path: str | os.PathLike[str],
    format: str = "auto",  # noqa: A002
    *,
    table: FileTable = "positions",
    columns: dict[str, str] | None = None,
    tz: str = "UTC",
    time_unit: TimeUnit = "s",
    rule: str | None = None,
    box_km: float | None = None,
    window_s: float | None = None,
    batch_rows: int = 1_000_000,
) -> Scan:
    """Load a trace piece by piece in bounded memory.

    The rows of all pieces together are those of :func:`mudkit.trace.load`: positions, reads, and rejected
    rows with the same reasons. A device is whole in one piece, and pieces come in the order of the devices'
    names, so the concatenated positions of the pieces are exactly ``load``'s. Cleaning needs all rows of a
    device, so the file is first read to its end and partitioned on disk by device; each piece is then read
    back and cleaned on demand.

    Parameters
    ----------
    path, format, table, columns, tz, time_unit, rule, box_km, window_s
        As for :func:`mudkit.trace.load`.
    batch_rows : int
        Maximum rows of a piece, which holds whole devices; a device with more rows is one piece. In memory is
        about three times that many rows; on disk, in a folder in ``TMPDIR`` that goes with the scan, the
        whole trace with some 60 bytes a row.

    Returns
    -------
    Scan
        Iterable of pieces, repeatable; use it within ``with``. Rows that could not be read belong to no
        device: up to ``batch_rows`` of them come with each piece from the first on.

    Raises
    ------
    InputMissing, TraceFormatError, TraceContentError, ParameterError
        As ``load``, immediately. Two errors are known only after the last piece and raised there: most
        positions contradict each other, or no device has more than one.
    OutputProblem
        The work folder cannot be written (a full disk).

    Examples
    --------
    >>> with scan("geolife/Data", batch_rows=2_000_000) as pieces:  # doctest: +SKIP
    ...     for piece in pieces:
    ...         print(len(piece.positions), piece.rejected_by_reason())
    """
    given: Any = batch_rows
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ParameterError(
            "The parameter batch_rows is not usable.",
            where="batch_rows",
            found=repr(batch_rows),
            expected="a whole number of rows, at least 1",
        )
    options = Options.of(table, tz, time_unit, box_km, window_s)
    path = existing(path, "trace")
    if path.is_dir() and is_trace(path):
        sizes = {"box_km": box_km, "window_s": window_s}
        texts = {"format": format, "table": table, "tz": tz, "time_unit": time_unit}
        refuse_for_folder(path, **texts, columns=columns, rule=rule, **sizes)
        return Scan(_Clean(path), batch_rows)
    return Scan(_Raw(LoadPlan.of(recognise(path, format, columns), options, rule)), batch_rows)


class Scan(Displayed):
    """Iterator over the pieces of a trace; result of :func:`scan`.

    Parameters
    ----------
    origin : object
        Source of the rows: a file of a public format, or a trace folder.
    batch_rows : int
        Maximum number of rows of a piece, unless one device has more.

    Attributes
    ----------
    source : dict
        Provenance, as in :class:`mudkit.trace.loaded.Loaded`.
    devices : int
        Number of devices among the rows that could be read.
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
        """Remove the work folder and end the scan. Closing again does nothing."""
        self._close()

    def __iter__(self) -> Iterator[Loaded]:
        """Go through all pieces, from the first.

        Raises
        ------
        TraceContentError
            The scan has been closed.
        TraceFormatError, TraceContentError
            After the last piece: the positions contradict each other, or no device moves.
        """
        totals = _Totals()
        unread = self._kept.unread()
        for first, last in _groups(self._kept.devices, self._batch_rows):
            self._refuse_closed()
            positions, reads, rejected = self._origin.tables(self._kept, first, last)
            totals.add(positions, rejected)
            aside = [*_up_to(unread, self._batch_rows), rejected]
            yield Loaded(positions, reads, pa.concat_tables(aside), self.source)
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
    """What is on disk."""

    folder: Path
    devices: dict[str, int]
    positions: Spill
    reads: Spill | None

    def unread(self) -> Iterator[pa.Table]:
        """Go through the rows that could not be read."""
        file = self.folder / _BAD
        if file.is_file():
            with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])


class _Totals:
    """What the pieces held so far."""

    def __init__(self) -> None:
        self.positions = 0
        self.devices = 0
        self.rejected: Counter[str] = Counter()

    def add(self, positions: pa.Table, rejected: pa.Table) -> None:
        self.positions += len(positions)
        self.devices += pc.count_distinct(positions["device"]).as_py()
        self.rejected.update(rejected["reason"].to_pylist())


class _Raw:
    """A file or folder of a public format."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self.description = plan.description()

    def spill(self, folder: Path, batch_rows: int) -> _Spilled:
        """Read all rows and set them down by device; refuse what :func:`mudkit.trace.load` refuses."""
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
        """Refuse what only all pieces together show."""
        if self._plan.options.table == "positions":
            check_plausible(self._plan.source, rows, dict(totals.rejected))
            check_moves(self._plan.source, totals.positions, totals.devices, totals.rejected)


class _Clean:
    """A trace folder: nothing is to be cleaned, but devices are spread over its dates."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.description = read_manifest(path)

    def spill(self, folder: Path, batch_rows: int) -> _Spilled:
        """Set all rows down by device."""
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
        """Take back the rows of some devices."""
        assert kept.reads is not None
        positions = kept.positions.rows(first, last).sort_by([("device", "ascending"), ("ts", "ascending")])
        return CleanTables(positions, kept.reads.rows(first, last), REJECTED.empty_table())

    def check(self, totals: _Totals, rows: int) -> None:
        """Refuse nothing: the trace was checked when it was made."""


def _groups(devices: dict[str, int], batch_rows: int) -> Iterator[tuple[str, str]]:
    """Group devices, in order of their names, so that a group has at most so many rows, or is one device."""
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
    """Take tables until there are so many rows."""
    taken: list[pa.Table] = []
    with suppress(StopIteration):
        while sum(map(len, taken)) < rows:
            taken.append(next(tables_))
    return taken
