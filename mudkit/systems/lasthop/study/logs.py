"""What has happened, as the events of a run: a user's own arrivals, reads and outages, from CSV files.

=========  ====================================================================================
arrivals   ``time``; where they are known ``rank`` (a number, else all are alike) and ``expires``
           (a time; where it is empty, never)
reads      ``time``
outages    ``begin, end`` of each stretch without a link; between them there is one
=========  ====================================================================================

Times are seconds since 1970 in UTC or ISO 8601, in order; further columns are not looked at.
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

from mudkit.errors import InputMissing, ParameterError, TraceContentError, TraceFormatError
from mudkit.files import existing
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.trace.formats import header, unreadable
from mudkit.trace.parse import EARLIEST_US, LATEST_US
from mudkit.trace.values import NO_TIME, numbers, times_us

__all__ = ["COLUMNS", "drawn_from", "read_logs"]

COLUMNS: Final = {"arrivals": ("time", "rank", "expires"), "reads": ("time",), "outages": ("begin", "end")}
"""Columns of each log; ``rank`` and ``expires`` may be missing."""

_OPTIONAL: Final = ("rank", "expires")
_APART_US: Final = 86_400 * 1_000_000
"""What comes may wait so long for the first read, and the link may be away so long before or after."""


class _Rows(NamedTuple):
    """Where the rows of a log stand, for messages."""

    log: str
    lines: Sequence[int] | None

    def at(self, row: int) -> str:
        return f"{self.log}, row {row}" if self.lines is None else f"{self.log}, line {self.lines[row]}"


class _Table(NamedTuple):
    columns: dict[str, list[str]]
    rows: _Rows

    def times(self, name: str, tz: str, *, may_be_empty: bool = False) -> NDArray[np.int64]:
        """Read a column of times; FOREVER_US where it may be empty and is."""
        texts = self.columns[name]
        times = times_us(pa.array(texts, pa.string()), tz) if texts else np.empty(0, dtype=np.int64)
        empty = np.array([not text.strip() for text in texts], dtype=np.bool_)
        bad = (times == NO_TIME) | (times < EARLIEST_US) | (times > LATEST_US)
        if may_be_empty:
            times, bad = np.where(empty, FOREVER_US, times), bad & ~empty
        problems = [f"{texts[i]!r} as {name}" for i in np.flatnonzero(bad)]
        _refuse(bad, self.rows, "This is no time.", problems, _TIME)
        return np.asarray(times, dtype=np.int64)


_TIME: Final = "seconds since 1970, as 1700000000, or ISO 8601, as 2023-11-14T22:13:20Z"


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
    outages : path-like, optional
        None: there is always a link.
    tz : str
        Time zone of times that name none.

    Raises
    ------
    InputMissing
        There is no such file.
    TraceFormatError
        A file is empty, no text, or lacks a column.
    TraceContentError
        A row has no time, times are not in order, or a value cannot be; the message says in which line. Or
        the logs are of different times: nothing comes before the last read, or a day and more lies between
        the last arrival and the first read, or between these two logs and all outages.
    """
    came, read = _table(arrivals, "arrivals"), _table(reads, "reads")
    ranks = None
    if "rank" in came.columns:
        texts = came.columns["rank"]
        ranks = numbers(pa.array(texts, pa.string()))
        problems = [repr(texts[i]) for i in np.flatnonzero(np.isnan(ranks))]
        _refuse(np.isnan(ranks), came.rows, "This is no rank.", problems, "a number")
    expires_us = came.times("expires", tz, may_be_empty=True) if "expires" in came.columns else None
    down, rows = None, [came.rows, read.rows, _Rows("outages", None)]
    if outages is not None:
        away = _table(outages, "outages")
        down, rows[2] = np.stack([away.times("begin", tz), away.times("end", tz)], axis=1), away.rows
    came_us, read_us = came.times("time", tz), read.times("time", tz)
    drawn = _drawn(came_us, read_us, ranks, expires_us, down, rows)
    _check_they_meet(came_us, read_us, down)
    return drawn


def _check_they_meet(
    came_us: NDArray[np.int64], read_us: NDArray[np.int64], down_us: NDArray[np.int64] | None
) -> None:
    """Refuse logs of different times, of which each for itself is fine."""
    if read_us[-1] < came_us[0] or read_us[0] - came_us[-1] > _APART_US:
        raise _never_meet("arrivals and reads", came_us, read_us)
    if down_us is not None and len(down_us):
        both = np.array([min(came_us[0], read_us[0]), max(came_us[-1], read_us[-1])])
        if both[0] - down_us[-1, 1] > _APART_US or down_us[0, 0] - both[1] > _APART_US:
            raise _never_meet("outages and the other two", down_us.ravel(), both)


def _never_meet(which: str, one_us: NDArray[np.int64], other_us: NDArray[np.int64]) -> TraceContentError:
    spans = (f"{_time(int(each[0]))} to {_time(int(each[-1]))}" for each in (one_us, other_us))
    return TraceContentError(
        f"The logs of {which} never meet.",
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
    """Make what a run plays from what was recorded; it begins at the first arrival or read.

    Parameters
    ----------
    arrivals_us, reads_us : array_like of int
        Microseconds from any one moment, in order.
    ranks : array_like of float, optional
        The ranks of the arrivals; None: all are alike.
    expires_us : array_like of int, optional
        The time after each arrival at which it expires;
        :data:`~mudkit.systems.lasthop.spool.ranked.FOREVER_US`: never.
    outages_us : array_like of int, shape (outages, 2), optional
        When each begins and ends, in order and apart from each other.

    Raises
    ------
    TraceContentError
        Times are not in order, a value cannot be, or nothing has happened; the message says in which row,
        from 0.
    ParameterError
        Arrays do not fit each other.
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
    came = _whole("arrivals_us", arrivals_us, (-1,))
    read = _whole("reads_us", reads_us, (-1,))
    down = _whole("outages_us", [] if outages_us is None else outages_us, (-1, 2))
    rank = np.zeros(len(came)) if ranks is None else np.asarray(ranks, dtype=np.float64)
    until = np.full(len(came), FOREVER_US) if expires_us is None else _whole("expires_us", expires_us, (-1,))
    for name, values in (("ranks", rank), ("expires_us", until)):
        if values.shape != came.shape:
            raise ParameterError(
                "Arrays do not fit each other.",
                where=name,
                found=f"shape {values.shape}",
                expected=f"one for each of {len(came):,} arrivals",
            )
    if not len(came) or not len(read):
        empty = "arrivals" if not len(came) else "reads"
        raise TraceContentError(
            f"The log of {empty} holds nothing.", where=empty, found="no row", expected="at least one"
        )
    for times, at, in_row in ((came, rows[0], 1), (read, rows[1], 1), (down.ravel(), rows[2], 2)):
        back = np.append(False, np.diff(times) < 0)
        problems = [f"{_time(times[i])} after {_time(times[i - 1])}" for i in np.flatnonzero(back)]
        _refuse(back, at, "Times are not in order.", problems, "each time at or after the one before", in_row)
    endless = ~np.isfinite(rank)
    _refuse(endless, rows[0], "This is no rank.", [str(each) for each in rank[endless]], "a finite number")
    late = until <= came
    problems = [f"expires at {_time(at)}" for at in until[late]]
    _refuse(late, rows[0], "A message has expired when it comes.", problems, "an expiration after its time")
    begin_us = min(int(came[0]), int(read[0]))
    switches_us = down.ravel() - begin_us
    ended = int(np.searchsorted(switches_us, 0, side="right"))
    return Drawn(
        came - begin_us,
        np.where(until >= FOREVER_US, FOREVER_US, until - begin_us),
        rank,
        read - begin_us,
        switches_us[ended:],
        starts_up=ended % 2 == 0,
    )


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
    names, delimiter, above = header(file)
    wanted = COLUMNS[log]
    if missing := [name for name in wanted if name not in names and name not in _OPTIONAL]:
        raise TraceFormatError(
            f"{file.name} lacks columns of a log of {log}.",
            where=str(file),
            found=", ".join(name[:40] for name in names[:20]),
            expected=", ".join(missing),
            remedy="rename the columns; a log of " + log + " has " + ", ".join(wanted),
        )
    columns: dict[str, list[str]] = {name: [] for name in wanted if name in names}
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


def _refuse(
    bad: NDArray[np.bool_], rows: _Rows, summary: str, problems: Sequence[str], expected: str, in_row: int = 1
) -> None:
    """Refuse a log if values are bad; the first one is told."""
    if not problems:
        return
    more = f"; {len(problems) - 1:,} more like it" if len(problems) > 1 else ""
    raise TraceContentError(
        summary,
        where=rows.at(int(np.argmax(bad)) // in_row),
        found=problems[0] + more,
        expected=expected,
        remedy="mend the row or leave it out, and have the rows in the order of their times",
    )


def _whole(name: str, given: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    values = np.asarray(given)
    if not values.size:
        return np.empty((0, *shape[1:]), dtype=np.int64)
    if values.dtype.kind not in "iu" or values.ndim != len(shape) or values.shape[1:] != shape[1:]:
        raise ParameterError(
            "These are no times.",
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
