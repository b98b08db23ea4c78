"""Compaction of a trace: the rows of many files become as few files as its dates need, in order of time.

A table of a bucket is first written as files whose row groups end at midnight, sorted by time and device
(:func:`write_by_date`). The driver plans from their statistics which task writes which times
(:func:`plan_merges`), so that files and row groups have a sensible size. The tasks merge the files
(:func:`merge`), of each of which they hold one row group.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mudkit.files import Place, arrow_place
from mudkit.pipeline.commits import File, Job
from mudkit.pipeline.tasks import FILE_BYTES, GROUP_ROWS, PartWriter
from mudkit.trace.recordings import device_codes, stable_order
from mudkit.trace.schema import SCHEMAS, epoch_us

_US_PER_DAY = 86_400_000_000
_EPOCH = dt.date(1970, 1, 1)
_SCRATCH_GROWTH = 0.9
"""Size of rows in an intermediate file, in other encodings, beside that in the trace, about."""
_MERGED_BYTES = 32 << 20  # of one task, unless a file has more
_HELD_ROWS = 4 * GROUP_ROWS
_ORDER = {"positions": ("ts", "device"), "reads": ("ts", "device", "read_id")}


class Span(NamedTuple):
    """A row group of an intermediate file: the times of its rows, both included, and its size in a trace."""

    file: str
    low_us: int
    high_us: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Merge:
    """A file of the trace to be: its table, its date (None: not divided), its place among the date's files.

    ``edges_us`` are times between which about a row group lies; rows without a date are taken in the order of
    the files.
    """

    table: str
    date: str | None
    number: int
    edges_us: tuple[int, ...]
    files: tuple[str, ...]


def group_rows(buckets: int) -> int:
    """Return the rows of an intermediate row group, so that one of each bucket fits a task's memory."""
    return max(_HELD_ROWS // max(buckets, 4), 4096)


def write_by_date(job: Job, name: str, rows: pa.Table, label: str, max_rows: int) -> list[File]:
    """Write the rows of a table, sorted by time, with row groups that end at midnight."""
    t_us = epoch_us(rows["ts"])
    order = stable_order(t_us)
    rows = rows.take(pa.array(order))
    days = t_us[order] // _US_PER_DAY
    edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(rows)]
    with PartWriter(job, f"{job.work}/{name}", label, is_scratch=True) as writer:
        for first, last in pairwise(edges):
            for begin in range(first, last, max_rows):
                writer.write(rows.slice(begin, min(max_rows, last - begin)))
                writer.end_group()
    return writer.files


def spans(job: Job, file: File) -> list[Span]:
    """Return the row groups of a file that :func:`write_by_date` wrote."""
    metadata = _metadata(job.path / file.name)
    column = metadata.schema.names.index("ts")
    row_groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        of_ts = group.column(column).statistics
        size = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
        size = round(size / _SCRATCH_GROWTH)
        row_groups.append(Span(file.name, of_ts.min_raw, of_ts.max_raw, group.num_rows, size))
    return row_groups


def plan_merges(by_table: dict[str, list[Span]], undated: dict[str, list[File]]) -> dict[str, list[Merge]]:
    """Divide the trace into files of about equal size; return the merges of each part of a job by its name.

    Parameters
    ----------
    by_table : dict
        The row groups of each table that is divided by dates.
    undated : dict
        The files of each other table, in order.
    """
    merges: list[tuple[int, Merge]] = []
    for table, row_groups in by_table.items():
        by_date: dict[int, list[Span]] = {}
        for span in row_groups:
            by_date.setdefault(span.low_us // _US_PER_DAY, []).append(span)
        for day in sorted(by_date):
            merges += _plan_date(table, day, by_date[day])
    for table, files in undated.items():
        merges += _plan_undated(table, files)
    parts: dict[str, list[Merge]] = {}
    room = 0
    for size, merge_of in merges:
        if not parts or size > room:
            parts[f"merge-{len(parts):05d}"] = []
            room = _MERGED_BYTES
        parts[f"merge-{len(parts) - 1:05d}"].append(merge_of)
        room -= size
    return parts


def _plan_date(table: str, day: int, row_groups: Sequence[Span]) -> Iterator[tuple[int, Merge]]:
    """Yield the files of a date, each with its estimated bytes."""
    size = sum(span.bytes for span in row_groups)
    files = -(-size // FILE_BYTES)
    groups = max(1, round(sum(span.rows for span in row_groups) / (files * GROUP_ROWS)))
    edges = _edges(day, row_groups, files * groups)
    date = str(_EPOCH + dt.timedelta(days=day))
    names = tuple(sorted({span.file for span in row_groups}))
    for number, first in enumerate(range(0, len(edges) - 1, groups)):
        yield size // files, Merge(table, date, number, tuple(edges[first : first + groups + 1]), names)


def _edges(day: int, row_groups: Sequence[Span], count: int) -> list[int]:
    """Return the times that divide a date into a number of intervals with about the same number of rows.

    Within a row group rows are taken to be spread evenly.
    """
    start, end = day * _US_PER_DAY, (day + 1) * _US_PER_DAY
    low, past, rows = np.array([(s.low_us, s.high_us + 1, s.rows) for s in row_groups], dtype=np.int64).T
    times = np.unique(np.concatenate([low, past]))
    density = np.zeros(len(times))
    np.add.at(density, np.searchsorted(times, low), rows / (past - low))
    np.add.at(density, np.searchsorted(times, past), -rows / (past - low))
    before = np.append(0.0, np.cumsum(np.cumsum(density)[:-1] * np.diff(times)))
    inner = np.interp(np.arange(1, count) / count * before[-1], before, times - start)
    return [start, *sorted({start + math.ceil(us) for us in inner.tolist()} - {start, end}), end]


def _plan_undated(table: str, files: Sequence[File]) -> Iterator[tuple[int, Merge]]:
    """Yield the files of a table without dates, each with its bytes: whole files are joined, never cut."""
    number = size = 0
    names: list[str] = []
    for file in files:
        if names and size + file.bytes > FILE_BYTES:
            yield size, Merge(table, None, number, (), tuple(names))
            number, size, names = number + 1, 0, []
        names.append(file.name)
        size += file.bytes
    if names:
        yield size, Merge(table, None, number, (), tuple(names))


def merge(job: Job, merges: Iterable[Merge], format: str = "parquet") -> list[File]:  # noqa: A002
    """Write the files that merges describe, of each table in order of time, in a format; return them."""
    files: list[File] = []
    cursors: dict[str, _Cursor] = {}
    for of in merges:
        folder = of.table if of.date is None else f"{of.table}/date={of.date}"
        places = [job.path / name for name in of.files]
        # The size was estimated, and a little more than a file's is no reason for a second one.
        with PartWriter(job, folder, f"{of.number:05d}", 2 * FILE_BYTES, format) as writer:
            if of.date is None:
                for place in places:
                    for number in range(_metadata(place).num_row_groups):
                        writer.write(read_groups(place, [number]))
            else:
                for file, place in zip(of.files, places, strict=True):
                    if file not in cursors:
                        cursors[file] = _Cursor(place, of.edges_us[0])
                for edge_us in of.edges_us[1:]:
                    rows = [table for file in of.files for table in cursors[file].until(edge_us)]
                    if rows:
                        writer.write(_sorted(of.table, pa.concat_tables(rows)).cast(SCHEMAS[of.table]))
        files += writer.files
    return files


class _Cursor:
    """Rows of a file that is sorted by time, from a time on."""

    def __init__(self, place: Place, low_us: int) -> None:
        self._place, self._low_us = place, low_us
        self._metadata = _metadata(place)
        column = self._metadata.schema.names.index("ts")
        of_ts = [
            self._metadata.row_group(number).column(column).statistics
            for number in range(self._metadata.num_row_groups)
        ]
        self._groups = [
            (number, stats.min_raw) for number, stats in enumerate(of_ts) if stats.max_raw >= low_us
        ][::-1]
        self._rest: pa.Table | None = None

    def until(self, edge_us: int) -> Iterator[pa.Table]:
        """Yield the further rows before a time."""
        while self._rest is not None or (self._groups and self._groups[-1][1] < edge_us):
            if self._rest is None:
                rows = read_groups(self._place, [self._groups.pop()[0]], self._metadata, ["device"])
                self._rest = rows.slice(_place_of(rows, self._low_us))
            count = _place_of(self._rest, edge_us)
            yield self._rest.slice(0, count)
            if count < len(self._rest):
                self._rest = self._rest.slice(count)
                return
            self._rest = None


def read_groups(
    place: Place,
    groups: Sequence[int],
    metadata: pq.FileMetaData | None = None,
    repeated: Sequence[str] = (),
) -> pa.Table:
    """Read row groups of a file, which is open only meanwhile: a task reads more files than may be open.

    ``repeated`` are columns of texts that are read as dictionaries.
    """
    filesystem, name = arrow_place(place)
    form = {"metadata": metadata, "read_dictionary": list(repeated)}
    with filesystem.open_input_file(name) as source, pq.ParquetFile(source, **form) as file:
        return file.read_row_groups(list(groups))


def read_where(place: Place, column: str, value: int) -> pa.Table | None:
    """Read the row groups all of whose rows have a value, texts as dictionaries; None without any."""
    metadata = _metadata(place)
    number_of = metadata.schema.names.index(column)
    groups = [
        number
        for number in range(metadata.num_row_groups)
        if metadata.row_group(number).column(number_of).statistics.min == value
    ]
    texts = [field.name for field in metadata.schema.to_arrow_schema() if pa.types.is_string(field.type)]
    return read_groups(place, groups, metadata, texts).drop_columns([column]) if groups else None


def _metadata(place: Place) -> pq.FileMetaData:
    """Return the metadata of a Parquet file, which is then closed."""
    filesystem, name = arrow_place(place)
    with filesystem.open_input_file(name) as source:
        return pq.read_metadata(source)


def _sorted(name: str, rows: pa.Table) -> pa.Table:
    """Return the rows of a table in the trace's order: by the last of its columns first, each time stably."""
    if not len(rows):
        return rows
    keys: list[NDArray[np.int64]] = []
    for column in _ORDER[name]:
        values = rows[column]
        numbers = device_codes(values) if column == "device" else values.cast(pa.int64()).to_numpy()
        least, most = int(numbers.min()), int(numbers.max())
        width = most - least + 1
        # The rows of each file are in order: by one key NumPy merges them, which is faster than sorting.
        if keys and (int(keys[-1].max()) + 1) * width <= np.iinfo(np.int64).max:
            keys[-1] = keys[-1] * width + (numbers - least)
        else:
            keys.append(numbers - least if width <= np.iinfo(np.int64).max else numbers)
    order = stable_order(keys[-1])
    for key in reversed(keys[:-1]):
        order = order[stable_order(key[order])]
    return rows.take(pa.array(order))


def _place_of(rows: pa.Table, t_us: int) -> int:
    """Return the index of the first row whose time is not before ``t_us``; the rows are sorted by time."""
    times: NDArray[np.int64] = epoch_us(rows["ts"])
    return int(np.searchsorted(times, t_us))
