"""Logs beside a trace: reading, and checks that they belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import InputMissing, TraceContentError, TraceFormatError
from mudkit.files import Place, PlaceLike, existing, is_folder
from mudkit.trace.formats import Dialect, Source, dialect_of, lines_of
from mudkit.trace.parse import EARLIEST_US, LATEST_US
from mudkit.trace.times import NO_TIME, has_clock_change, times_us
from mudkit.trace.values import is_given, numbers

_TIME: Final = "seconds since 1970, as 1700000000, or ISO 8601, as 2023-11-14T22:13:20Z"


@dataclass(frozen=True)
class Log:
    """Columns of a text table each row of which must be right; built by :meth:`read`.

    Attributes
    ----------
    file : Path or UPath
        The table.
    dialect : Dialect
        Its form.
    columns : dict
        Columns as texts; an optional one may be missing.
    rows : ndarray of int64
        Number of each row in the file, from 1.
    """

    file: Place
    dialect: Dialect
    columns: dict[str, pa.Array]
    rows: NDArray[np.int64]

    @classmethod
    def read(
        cls,
        path: PlaceLike,
        what: str,
        required: Mapping[str, tuple[str, ...]],
        optional: Iterable[str] = (),
    ) -> Log:
        """Read a file, also compressed; ``required`` are columns with the names that each may have.

        Raises
        ------
        InputMissing
            There is no file.
        TraceFormatError
            The file is empty, is not text, or lacks a column.
        TraceContentError
            A row has another number of fields than the header.
        """
        file = existing(path, f"log of {what}")
        if is_folder(file):
            raise InputMissing(
                f"{file} is a folder.",
                where=str(file),
                found="a folder",
                expected="a CSV file",
                remedy="name the file itself",
            )
        dialect = dialect_of(file, [names[0] for names in required.values() if len(names) == 1])
        spellings = {**required, **{name: (name,) for name in optional}}
        given = {
            name: next((n for n in names if n in dialect.names), "") for name, names in spellings.items()
        }
        if missing := [name for name in required if not given[name]]:
            raise TraceFormatError(
                f"{file.name} lacks columns of a log of {what}.",
                where=str(file),
                found=", ".join(name[:40] for name in dialect.names[:20]),
                expected=", ".join(missing),
                remedy=f"rename the columns; a log of {what} has " + ", ".join(spellings),
            )
        columns = {name: column for name, column in given.items() if column}
        batches = list(Source(file, "csv", columns).batches())
        empty = pa.table({name: pa.array([], pa.string()) for name in columns})
        table = pa.concat_tables([empty, *(batch.columns.select(list(columns)) for batch in batches)])
        log = cls(
            file,
            dialect,
            {name: table[name].combine_chunks() for name in columns},
            np.concatenate([np.zeros(0, dtype=np.int64), *(batch.rows for batch in batches)]),
        )
        malformed = [line for batch in batches for line in batch.malformed]
        if malformed:
            raise TraceContentError(
                "A row has the wrong number of fields.",
                where=log._line_of(malformed[0].row),
                found=repr(malformed[0].raw[:100]) + _more(len(malformed)),
                expected=f"{len(dialect.names)} fields separated by {dialect.delimiter!r}: "
                + ", ".join(dialect.names[:20]),
                remedy="correct the row or remove it; a field with the separator in it needs quotation marks",
            )
        return log

    def at(self, row: int) -> str:
        """Return the file and the line of a row, by its index."""
        return self._line_of(int(self.rows[row]))

    def _line_of(self, number: int) -> str:
        """Return the file and the line of a row, by its number in the file."""
        ((_, line, _),) = lines_of(self.file, self.dialect, [number])
        return f"{self.file.name}, line {line}"

    def times(self, name: str, tz: str, *, may_be_empty: bool = False) -> NDArray[np.int64]:
        """Return a column of times, µs since 1970; NO_TIME where an optional one is empty.

        Raises TraceContentError for the first that cannot be read.
        """
        column = self.columns[name]
        t_us = times_us(column, tz)
        is_needed = is_given(column) | (not may_be_empty)
        is_unread = is_needed & (t_us == NO_TIME)
        self._check(
            is_unread & has_clock_change(column, t_us, tz),
            "A clock change repeats or skips a local time.",
            name,
            "times that the zone has once, or with their offset, as 2023-10-29T02:30:00+02:00",
        )
        self._check(is_unread, "A time cannot be read.", name, _TIME)
        is_wrong = is_needed & ((t_us < EARLIEST_US) | (t_us > LATEST_US))
        self._check(is_wrong, "A time is before 1980 or after 2100.", name, _TIME)
        return t_us

    def numbers(self, name: str, *, may_be_empty: bool = False) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where an optional one is empty.

        Raises TraceContentError for the first that is not a finite number.
        """
        values = numbers(self.columns[name], decimal_comma=True)
        is_needed = is_given(self.columns[name]) | (not may_be_empty)
        expected = "a number" + (", or nothing" if may_be_empty else "")
        self._check(np.isnan(values) & is_needed, f"A {name} is not a finite number.", name, expected)
        return values

    def _check(
        self, bad: NDArray[np.bool_], summary: str, name: str, expected: str, remedy: str | None = None
    ) -> None:
        """Raise TraceContentError about the first bad value of a column, if there is one."""
        check_rows(
            bad,
            self.at,
            summary,
            lambda row: f"{self.columns[name][row].as_py()!r} as {name}",
            expected,
            remedy,
        )


def check_rows(
    bad: NDArray[np.bool_],
    at: Callable[[int], str],
    summary: str,
    problem: Callable[[int], str],
    expected: str,
    remedy: str | None = None,
) -> None:
    """Raise TraceContentError about the first bad row, if there is one.

    ``at`` and ``problem`` return the place of a row and what is wrong with it.
    """
    if not bad.any():
        return
    row = int(np.argmax(bad))
    raise TraceContentError(
        summary,
        where=at(row),
        found=problem(row) + _more(int(bad.sum())),
        expected=expected,
        remedy=remedy or "correct the row or remove it",
    )


def _more(count: int) -> str:
    """Return in words how many more bad rows there are; empty without any."""
    return f"; {count - 1:,} more like it" if count > 1 else ""


def no_reads(where: str, found: str) -> TraceContentError:
    """Return the error for a trace without a read."""
    return TraceContentError(
        "There is not one read in this trace.",
        where=where,
        found=found,
        expected="reads: recorded ones, or at least one that the rule derives",
        remedy="give an access log (reads=…), another rule (rule=trip_start(still_s=300)), or more days",
    )


def check_overlap(
    positions: tuple[int, int] | None, log: tuple[int, int] | None, where: str, what: str = "reads"
) -> None:
    """Raise TraceContentError if the times of a log and of the positions do not overlap.

    Both are the first and the last time, in microseconds since 1970 (None: no row); of reads the first is the
    earliest time that one asks for.
    """
    if positions is None or log is None or (log[0] <= positions[1] and positions[0] <= log[1]):
        return
    spans = (
        f"{name} of {_minute(first_us)} to {_minute(last_us)} UTC"
        for name, (first_us, last_us) in (("positions", positions), (what, log))
    )
    raise TraceContentError(
        f"The time ranges of the positions and the {what} do not overlap.",
        where=where,
        found=" and ".join(spans),
        expected=f"{what} of the positions' time",
        remedy="name files of the same period; check tz",
    )


def _minute(t_us: int) -> str:
    """Return a time as text, to the minute, in UTC."""
    return str(np.datetime64(t_us, "us").astype("datetime64[m]")).replace("T", " ")
