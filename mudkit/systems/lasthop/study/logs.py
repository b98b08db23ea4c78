"""A user's own arrivals, reads and outages from CSV files, as the events of a run.

=========  ====================================================================================
arrivals   ``time``; optional ``rank`` (a number; by default all are equal) and ``expires``
           (a time; empty: never)
reads      ``time``
outages    ``begin, end`` of each stretch without a link; between them there is one
=========  ====================================================================================

Times are numbers since 1970 in UTC or ISO 8601; other columns are ignored. Rows out of order, as AWARE and
other loggers that buffer write them, are sorted and counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.trace.logs import Log, check_rows
from mudkit.trace.parse import EARLIEST_US
from mudkit.trace.times import NO_TIME

COLUMNS: Final = {"arrivals": ("time", "rank", "expires"), "reads": ("time",), "outages": ("begin", "end")}
"""Columns of each log; ``rank`` and ``expires`` are optional."""

_OPTIONAL: Final = ("rank", "expires")
_MAX_GAP_US: Final = 86_400 * 1_000_000
"""Maximum gap between the last arrival and the first read, and between outages and the other logs."""


_At: TypeAlias = Callable[[int], str]
"""Function that returns the place of a row, for error messages."""


@check_arguments
def read_logs(
    arrivals: str | os.PathLike[str],
    reads: str | os.PathLike[str],
    outages: str | os.PathLike[str] | None = None,
    *,
    tz: str = "UTC",
) -> Drawn:
    """Read logs from CSV files with a header, also compressed; their form is found as that of traces.

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
        A row has another number of fields than the header, a time, rank or expiration is invalid, or outages
        overlap; the message names the line, and a clock change that is the cause. Or the time
        ranges do not overlap: the first arrival is after the last read, or more than a day lies between
        the last arrival and the first read, or between these two logs and all outages.
    """
    arrival_log, read_log = _read_log(arrivals, "arrivals"), _read_log(reads, "reads")
    ranks = arrival_log.numbers("rank") if "rank" in arrival_log.columns else None
    expires_us = None
    if "expires" in arrival_log.columns:
        expires_us = arrival_log.times("expires", tz, may_be_empty=True)
        expires_us = np.where(expires_us == NO_TIME, FOREVER_US, expires_us)
    down, rows = None, [arrival_log.at, read_log.at, _row_namer("outages")]
    if outages is not None:
        outage_log = _read_log(outages, "outages")
        down = np.stack([outage_log.times(name, tz) for name in ("begin", "end")], axis=1)
        rows[2] = outage_log.at
    arrivals_us, reads_us = (log.times("time", tz) for log in (arrival_log, read_log))
    drawn = _build_drawn(arrivals_us, reads_us, ranks, expires_us, down, rows)
    _check_overlap(np.sort(arrivals_us), np.sort(reads_us), None if down is None else _in_order(down)[0])
    return drawn


def _check_overlap(
    arrivals_us: NDArray[np.int64], reads_us: NDArray[np.int64], down_us: NDArray[np.int64] | None
) -> None:
    """Refuse logs whose time ranges do not overlap."""
    if reads_us[-1] < arrivals_us[0] or reads_us[0] - arrivals_us[-1] > _MAX_GAP_US:
        raise _overlap_error("arrivals and reads", arrivals_us, reads_us)
    if down_us is not None and len(down_us):
        both = np.array([min(arrivals_us[0], reads_us[0]), max(arrivals_us[-1], reads_us[-1])])
        if both[0] - down_us[-1, 1] > _MAX_GAP_US or down_us[0, 0] - both[1] > _MAX_GAP_US:
            raise _overlap_error("outages and the other two", down_us.ravel(), both)


def _overlap_error(which: str, one_us: NDArray[np.int64], other_us: NDArray[np.int64]) -> TraceContentError:
    """Return the error of logs whose time ranges do not overlap."""
    spans = (
        f"{_time_text(int(times_us[0]))} to {_time_text(int(times_us[-1]))}"
        for times_us in (one_us, other_us)
    )
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
    rows = [_row_namer(log) for log in COLUMNS]
    return _build_drawn(arrivals_us, reads_us, ranks, expires_us, outages_us, rows)


def _build_drawn(
    arrivals_us: ArrayLike,
    reads_us: ArrayLike,
    ranks: ArrayLike | None,
    expires_us: ArrayLike | None,
    outages_us: ArrayLike | None,
    rows: Sequence[_At],
) -> Drawn:
    """Return the events of a run, sorted and from 0 on; ``rows`` name the rows of each log in errors."""
    arrived = _checked_times("arrivals_us", arrivals_us, (-1,))
    read = _checked_times("reads_us", reads_us, (-1,))
    down = _checked_times("outages_us", [] if outages_us is None else outages_us, (-1, 2))
    rank = np.zeros(len(arrived)) if ranks is None else np.asarray(ranks, dtype=np.float64)
    until = (
        np.full(len(arrived), FOREVER_US)
        if expires_us is None
        else _checked_times("expires_us", expires_us, (-1,))
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
    check_rows(
        ~np.isfinite(rank),
        rows[0],
        "A rank is not a finite number.",
        lambda row: str(rank[row]),
        "a finite number",
    )
    check_rows(
        until <= arrived,
        rows[0],
        "A message expires at its arrival or before.",
        lambda row: f"expires at {_time_text(until[row])}",
        "an expiration after its time",
    )
    moved = sum(map(_out_of_order, (arrived, read, down[:, 0])))
    by_arrival = np.argsort(arrived, kind="stable")
    arrived, until, rank, read = arrived[by_arrival], until[by_arrival], rank[by_arrival], np.sort(read)
    down = _disjoint_outages(down, rows[2])
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


def _disjoint_outages(down_us: NDArray[np.int64], at: _At) -> NDArray[np.int64]:
    """Return outages in order; refuse those that end before they begin, or overlap."""
    check_rows(
        down_us[:, 1] < down_us[:, 0],
        at,
        "An outage ends before it begins.",
        lambda row: " to ".join(map(_time_text, down_us[row])),
        "an end at or after the beginning",
    )
    in_order, order = _in_order(down_us)
    overlaps = np.zeros(len(order), dtype=np.bool_)
    overlaps[order[1:]] = in_order[1:, 0] < in_order[:-1, 1]

    def describe_overlap(row: int) -> str:
        """Return the times of an outage and of the one that it overlaps, for an error."""
        place = int(np.flatnonzero(order == row)[0])
        return f"{_time_text(in_order[place, 0])}, when that until {_time_text(in_order[place - 1, 1])} lasts"

    check_rows(overlaps, at, "Outages overlap.", describe_overlap, "outages that end before the next begins")
    return in_order


def _read_log(path: str | os.PathLike[str], log: str) -> Log:
    """Read one of the logs with the columns that it must and may have."""
    required = {name: (name,) for name in COLUMNS[log] if name not in _OPTIONAL}
    return Log.read(path, log, required, [name for name in COLUMNS[log] if name in _OPTIONAL])


def _row_namer(log: str) -> _At:
    """Return a function that names a row of a log in errors."""
    return lambda row: f"{log}, row {row}"


def _checked_times(name: str, given: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return times as an array; raise ParameterError unless they are whole microseconds of this shape."""
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


def _time_text(t_us: int) -> str:
    """Return a time for an error: date and time, or seconds if it is not since 1970."""
    if t_us <= EARLIEST_US:  # not since 1970, but since some other moment
        return f"{t_us / 1e6:g} s"
    unit: Literal["us", "s"] = "us" if t_us % 1_000_000 else "s"
    return np.datetime_as_string(np.datetime64(int(t_us), "us"), unit=unit).replace("T", " ") + " UTC"
