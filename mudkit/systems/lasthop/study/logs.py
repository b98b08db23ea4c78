"""A user's own arrivals, reads and outages from CSV files, as the events of a run.

=========  ====================================================================================
arrivals   ``time``; optional ``rank`` (a number; by default all are equal) and ``expires``
           (a time; empty: never)
reads      ``time``
outages    ``begin, end`` of each stretch without a link; between them there is one
=========  ====================================================================================

Times are seconds since 1970 in UTC or ISO 8601; other columns are ignored. Rows out of order, as AWARE and
other loggers that buffer write them, are sorted and counted.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from mudkit.arguments import check_arguments
from mudkit.errors import InputMissing, ParameterError, TraceContentError, TraceFormatError
from mudkit.files import existing
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.trace.formats import dialect_of, unreadable
from mudkit.trace.parse import EARLIEST_US, LATEST_US
from mudkit.trace.values import NO_TIME, numbers, times_us

__all__ = ["COLUMNS", "drawn_from", "read_logs"]

COLUMNS: Final = {"arrivals": ("time", "rank", "expires"), "reads": ("time",), "outages": ("begin", "end")}
"""Columns of each log; ``rank`` and ``expires`` are optional."""

_OPTIONAL: Final = ("rank", "expires")
_MAX_GAP_US: Final = 86_400 * 1_000_000
"""Maximum gap between the last arrival and the first read, and between outages and the other logs."""


class _Rows(NamedTuple):
    """Positions of the rows of a log, for error messages."""

    log: str
    lines: Sequence[int] | None

    def at(self, row: int) -> str:
        return f"{self.log}, row {row}" if self.lines is None else f"{self.log}, line {self.lines[row]}"


class _Table(NamedTuple):
    columns: dict[str, list[str]]
    rows: _Rows

    def times(self, name: str, tz: str, *, may_be_empty: bool = False) -> NDArray[np.int64]:
        """Read a column of times; FOREVER_US where an optional time is empty."""
        texts = self.columns[name]
        times = times_us(pa.array(texts, pa.string()), tz) if texts else np.empty(0, dtype=np.int64)
        empty = np.array([not text.strip() for text in texts], dtype=np.bool_)
        bad = (times == NO_TIME) | (times < EARLIEST_US) | (times > LATEST_US)
        if may_be_empty:
            times, bad = np.where(empty, FOREVER_US, times), bad & ~empty
        problems = [f"{texts[i]!r} as {name}" for i in np.flatnonzero(bad)]
        _check_rows(bad, self.rows, "A time cannot be read.", problems, _TIME)
        return np.asarray(times, dtype=np.int64)


_TIME: Final = "seconds since 1970, as 1700000000, or ISO 8601, as 2023-11-14T22:13:20Z"


@check_arguments
def read_logs(
    arrivals: str | os.PathLike[str],
    reads: str | os.PathLike[str],
    outages: str | os.PathLike[str] | None = None,
    *,
    tz: str = "UTC",
) -> Drawn:
    """Read logs from CSV files (also as ``.gz``) with a header.

    Parameters
    ----------
    arrivals, reads : path-like
        Files with the columns above.
    outages : path-like, optional
        None: there is always a link.
    tz : str
        Time zone of times without one.

    Returns
    -------
    Drawn
        Events, which :func:`~mudkit.systems.lasthop.play` runs.

    Raises
    ------
    InputMissing
        A file does not exist.
    TraceFormatError
        A file is empty, is not text, or lacks a column.
    TraceContentError
        A time, rank or expiration is invalid, or outages overlap; the message names the line. Or the time
        ranges do not overlap: the first arrival is after the last read, or more than a day lies between
        the last arrival and the first read, or between these two logs and all outages.
    """
    arrival_table, read_table = _table(arrivals, "arrivals"), _table(reads, "reads")
    ranks = None
    if "rank" in arrival_table.columns:
        texts = arrival_table.columns["rank"]
        ranks = numbers(pa.array(texts, pa.string()))
        problems = [repr(texts[i]) for i in np.flatnonzero(np.isnan(ranks))]
        _check_rows(
            np.isnan(ranks), arrival_table.rows, "A rank is not a finite number.", problems, "a number"
        )
    expires_us = (
        arrival_table.times("expires", tz, may_be_empty=True) if "expires" in arrival_table.columns else None
    )
    down, rows = None, [arrival_table.rows, read_table.rows, _Rows("outages", None)]
    if outages is not None:
        outage_table = _table(outages, "outages")
        down, rows[2] = (
            np.stack([outage_table.times("begin", tz), outage_table.times("end", tz)], axis=1),
            outage_table.rows,
        )
    arrivals_us, reads_us = arrival_table.times("time", tz), read_table.times("time", tz)
    drawn = _drawn(arrivals_us, reads_us, ranks, expires_us, down, rows)
    _check_overlap(np.sort(arrivals_us), np.sort(reads_us), None if down is None else _in_order(down)[0])
    return drawn


def _check_overlap(
    arrivals_us: NDArray[np.int64], reads_us: NDArray[np.int64], down_us: NDArray[np.int64] | None
) -> None:
    """Refuse logs whose time ranges do not overlap."""
    if reads_us[-1] < arrivals_us[0] or reads_us[0] - arrivals_us[-1] > _MAX_GAP_US:
        raise _no_overlap("arrivals and reads", arrivals_us, reads_us)
    if down_us is not None and len(down_us):
        both = np.array([min(arrivals_us[0], reads_us[0]), max(arrivals_us[-1], reads_us[-1])])
        if both[0] - down_us[-1, 1] > _MAX_GAP_US or down_us[0, 0] - both[1] > _MAX_GAP_US:
            raise _no_overlap("outages and the other two", down_us.ravel(), both)


def _no_overlap(which: str, one_us: NDArray[np.int64], other_us: NDArray[np.int64]) -> TraceContentError:
    spans = (f"{_time(int(times_us[0]))} to {_time(int(times_us[-1]))}" for times_us in (one_us, other_us))
    return TraceContentError(
        f"The time ranges of {which} do not overlap.",
        where=which,
        found=" and ".join(spans),
        expected="logs of the same days",
        remedy="name files of the same period; check tz",
    )


def drawn_from(
    arrivals_us: ArrayLike,
    reads_us: ArrayLike,
    *,
    ranks: ArrayLike | None = None,
    expires_us: ArrayLike | None = None,
    outages_us: ArrayLike | None = None,
) -> Drawn:
    """Build the events of a run from recorded ones; it begins at the first arrival or read.

    Times are µs from any one moment; ``outages_us`` has begin and end of disjoint outages. What is not in
    order is sorted. Raises TraceContentError about the first invalid row, and ParameterError if arrays differ
    in length.
    """
    rows = [_Rows(log, None) for log in COLUMNS]
    return _drawn(arrivals_us, reads_us, ranks, expires_us, outages_us, rows)


def _drawn(
    arrivals_us: ArrayLike,
    reads_us: ArrayLike,
    ranks: ArrayLike | None,
    expires_us: ArrayLike | None,
    outages_us: ArrayLike | None,
    rows: Sequence[_Rows],
) -> Drawn:
    arrived = _whole("arrivals_us", arrivals_us, (-1,))
    read = _whole("reads_us", reads_us, (-1,))
    down = _whole("outages_us", [] if outages_us is None else outages_us, (-1, 2))
    rank = np.zeros(len(arrived)) if ranks is None else np.asarray(ranks, dtype=np.float64)
    until = (
        np.full(len(arrived), FOREVER_US) if expires_us is None else _whole("expires_us", expires_us, (-1,))
    )
    for name, values in (("ranks", rank), ("expires_us", until)):
        if values.shape != arrived.shape:
            raise ParameterError(
                "Arrays do not fit each other.",
                where=name,
                found=f"shape {values.shape}",
                expected=f"one for each of {len(arrived):,} arrivals",
            )
    if not len(arrived) or not len(read):
        empty = "arrivals" if not len(arrived) else "reads"
        raise TraceContentError(
            f"The log of {empty} is empty.", where=empty, found="no row", expected="at least one"
        )
    endless = ~np.isfinite(rank)
    _check_rows(
        endless,
        rows[0],
        "A rank is not a finite number.",
        [str(value) for value in rank[endless]],
        "a finite number",
    )
    late = until <= arrived
    problems = [f"expires at {_time(at)}" for at in until[late]]
    _check_rows(
        late, rows[0], "A message expires at its arrival or before.", problems, "an expiration after its time"
    )
    moved = sum(map(_out_of_order, (arrived, read, down[:, 0])))
    by_arrival = np.argsort(arrived, kind="stable")
    arrived, until, rank, read = arrived[by_arrival], until[by_arrival], rank[by_arrival], np.sort(read)
    down = _disjoint(down, rows[2])
    begin_us = min(int(arrived[0]), int(read[0]))
    switches_us = down.ravel() - begin_us
    ended = int(np.searchsorted(switches_us, 0, side="right"))
    return Drawn(
        arrived - begin_us,
        np.where(until >= FOREVER_US, FOREVER_US, until - begin_us),
        rank,
        read - begin_us,
        switches_us[ended:],
        starts_up=ended % 2 == 0,
        sorted_rows=moved,
    )


def _out_of_order(times_us: NDArray[np.int64]) -> int:
    """Return how many times are before an earlier row's."""
    return int((times_us < np.maximum.accumulate(times_us)).sum()) if len(times_us) else 0


def _in_order(down_us: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return outages by their beginning, and the row of each."""
    order = np.lexsort((down_us[:, 1], down_us[:, 0]))
    return down_us[order], order


def _disjoint(down_us: NDArray[np.int64], rows: _Rows) -> NDArray[np.int64]:
    """Return outages in order; refuse those that end before they begin, or overlap."""
    back = down_us[:, 1] < down_us[:, 0]
    problems = [f"{_time(begin)} to {_time(end)}" for begin, end in down_us[back]]
    _check_rows(back, rows, "An outage ends before it begins.", problems, "an end at or after the beginning")
    down_us, order = _in_order(down_us)
    early = (
        np.append(False, down_us[1:, 0] < down_us[:-1, 1]) if len(down_us) else np.empty(0, dtype=np.bool_)
    )
    problems = [
        f"{_time(down_us[i, 0])}, when that until {_time(down_us[i - 1, 1])} lasts"
        for i in np.flatnonzero(early)
    ]
    overlaps = np.zeros(len(down_us), dtype=np.bool_)
    overlaps[order] = early
    if problems:  # the first line, and what is wrong with it
        problems = [problems[int(np.argmin(order[early]))], *problems[1:]]
    _check_rows(overlaps, rows, "Outages overlap.", problems, "outages that end before the next begins")
    return down_us


def _table(path: str | os.PathLike[str], log: str) -> _Table:
    """Read the columns of a CSV file as texts."""
    file = existing(path, f"log of {log}")
    if file.is_dir():
        raise InputMissing(
            f"{file} is a folder.",
            where=str(file),
            found="a folder",
            expected="a CSV file",
            remedy="name the file itself",
        )
    dialect = dialect_of(file)
    names, delimiter, above = dialect.names, dialect.delimiter, dialect.above
    known = COLUMNS[log]
    if missing := [name for name in known if name not in names and name not in _OPTIONAL]:
        raise TraceFormatError(
            f"{file.name} lacks columns of a log of {log}.",
            where=str(file),
            found=", ".join(name[:40] for name in names[:20]),
            expected=", ".join(missing),
            remedy="rename the columns; a log of " + log + " has " + ", ".join(known),
        )
    columns: dict[str, list[str]] = {name: [] for name in known if name in names}
    places = [(columns[name], names.index(name)) for name in columns]
    lines: list[int] = []
    try:
        with _opened(file) as handle:
            rows = csv.reader(handle, delimiter=delimiter)
            for row in rows:
                if rows.line_num <= above or not row:
                    continue
                lines.append(rows.line_num)
                for column, place in places:
                    column.append(row[place] if place < len(row) else "")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(file, error) from error
    return _Table(columns, _Rows(file.name, lines))


def _opened(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return file.open(encoding="utf-8-sig", newline="")


def _check_rows(
    bad: NDArray[np.bool_], rows: _Rows, summary: str, problems: Sequence[str], expected: str
) -> None:
    """Raise an error about the first bad value; return if there is none."""
    if not problems:
        return
    more = f"; {len(problems) - 1:,} more like it" if len(problems) > 1 else ""
    raise TraceContentError(
        summary,
        where=rows.at(int(np.argmax(bad))),
        found=problems[0] + more,
        expected=expected,
        remedy="correct the row or remove it",
    )


def _whole(name: str, given: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    values = np.asarray(given)
    if not values.size:
        return np.empty((0, *shape[1:]), dtype=np.int64)
    if values.dtype.kind not in "iu" or values.ndim != len(shape) or values.shape[1:] != shape[1:]:
        raise ParameterError(
            "Times are not whole microseconds.",
            where=name,
            found=f"{values.dtype} of shape {values.shape}",
            expected="whole microseconds" + (", begin and end in a row" if len(shape) == 2 else ""),
        )
    return values.astype(np.int64)


def _time(t_us: int) -> str:
    if t_us <= EARLIEST_US:  # not since 1970, but since some other moment
        return f"{t_us / 1e6:g} s"
    unit: Literal["us", "s"] = "us" if t_us % 1_000_000 else "s"
    return np.datetime_as_string(np.datetime64(int(t_us), "us"), unit=unit).replace("T", " ") + " UTC"
