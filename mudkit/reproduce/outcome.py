"""Measure the rows that are asked for, or take their last result, and give each its verdict."""

from __future__ import annotations

import datetime as dt
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mudkit import __version__, words
from mudkit.errors import ParameterError, did_you_mean
from mudkit.reproduce import contrail, lab, lasthop, mobius, radiator, store, sublim
from mudkit.reproduce.busy import BusyCores
from mudkit.reproduce.row import Measured, Row, Say, say_nothing
from mudkit.reproduce.verdict import NOT_MEASURED, judge

__all__ = ["QUICK_MINUTES", "ROWS", "Result", "machine", "results", "select"]

ROWS: tuple[Row, ...] = (*mobius.ROWS, *lasthop.ROWS, *contrail.ROWS, *radiator.ROWS, *sublim.ROWS, *lab.ROWS)
"""All rows, in the order of the table."""


QUICK_MINUTES: Final = 3.0
"""The time within which a quick run starts rows."""
_QUICK_PLAN: Final = 2.0
"""What a quick run plans: slower machines than the two cores of ``Row.minutes`` have time left."""


@dataclass(frozen=True)
class Result:
    """A row and its last measurement.

    Parameters
    ----------
    row : Row
    kept : Kept or None
        None: nothing has been measured yet.
    """

    row: Row
    kept: store.Kept | None

    @property
    def measured(self) -> Measured | None:
        """What was measured, if anything."""
        return self.kept.measured if self.kept else None

    @property
    def date(self) -> str | None:
        """When it was measured, in ISO 8601."""
        return self.kept.date if self.kept else None

    @property
    def verdict(self) -> str:
        """Computed from the figures, whenever it is asked for."""
        return judge(self.row, self.measured)[0]

    @property
    def reason(self) -> str:
        """Which requirements hold and which do not."""
        return judge(self.row, self.measured)[1]

    def as_json(self) -> dict[str, Any]:
        """Give it as plain data.

        Returns
        -------
        dict
            ``row, source, paper, measured, spread, verdict, reason, parameters, date, minutes, busy_cores``.
        """
        verdict, reason = judge(self.row, self.measured)
        figures = self.measured.figures if self.measured else {}
        return {
            "row": self.row.name,
            "source": self.row.source,
            "paper": self.row.paper,
            "measured": {name: figure.median for name, figure in figures.items()},
            "spread": {name: [figure.low, figure.high] for name, figure in figures.items()},
            "verdict": verdict,
            "reason": reason,
            "parameters": dict(self.measured.parameters) if self.measured else {},
            "date": self.date,
            "minutes": self.kept.minutes if self.kept else None,
            "busy_cores": self.kept.busy_cores if self.kept else None,
        }


def machine() -> dict[str, Any]:
    """Say what a figure was measured on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "mudkit": __version__,
    }


def select(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    missing: bool = False,
    rows: Sequence[Row] | None = None,
    place: Path | None = None,
) -> list[Row]:
    """Return the rows to measure.

    Parameters
    ----------
    names : sequence of str
        Rows, upper or lower case; ``M3`` names all its parts, ``M3-remote`` one. Without names: all rows but
        those of speed.
    quick : bool
        Only the shortest rows, as many as fit into three minutes.
    missing : bool
        Without names, the rows that have no result that can be judged, rows of speed among them.
    rows : sequence of Row, optional
        The rows to choose from; by default all.
    place : Path, optional
        The folder of the last results; by default one in the user's cache.

    Raises
    ------
    ParameterError
        There is no such row, or ``quick`` and names exclude each other.
    """
    rows = ROWS if rows is None else rows
    if names:
        if quick:
            raise ParameterError(
                "A quick run chooses its rows itself.",
                where="--quick",
                found=f"--quick {' '.join(names)}",
                expected="--quick, or names of rows",
                remedy="leave one of them out",
            )
        return _named(names, rows)
    if missing:
        return [row for row in rows if _last(row, place).verdict == NOT_MEASURED]
    plain = [row for row in rows if not row.is_speed]
    if not quick:
        return plain
    chosen, minutes = set(), 0.0
    for row in sorted(plain, key=lambda row: row.minutes):
        minutes += row.minutes
        if minutes <= _QUICK_PLAN:
            chosen.add(row.name)
    return [row for row in plain if row.name in chosen]


def results(
    selected: Sequence[Row],
    *,
    rows: Sequence[Row] | None = None,
    within_minutes: float = math.inf,
    say: Say = say_nothing,
    place: Path | None = None,
) -> list[Result]:
    """Measure the selected rows, and return the results of others as they were last time.

    Each result is kept as soon as it is measured.

    Parameters
    ----------
    selected : sequence of Row
        The rows to measure.
    rows : sequence of Row, optional
        The rows to return; by default those that were measured.
    within_minutes : float
        A row that would end later, by the time that it takes on two cores, is not started.
    say : callable
        Called with a sentence about what is measured next.
    place : Path, optional
        The folder of the last results; by default one in the user's cache.

    Returns
    -------
    list of Result
        In the order of ``rows``.

    Raises
    ------
    OutputProblem
        A result cannot be kept.
    """
    measured = {}
    began_s = time.monotonic()
    for row in selected:
        if (time.monotonic() - began_s) / 60 + row.minutes <= within_minutes:
            measured[row.name] = _measured(row, say, place)
    if rows is None:
        return list(measured.values())
    return [measured.get(row.name) or _last(row, place) for row in rows]


def _named(names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    known: dict[str, list[Row]] = {}
    for row in rows:
        for name in dict.fromkeys((row.name.split("-")[0], row.name)):
            known.setdefault(name.upper(), []).append(row)
    all_ = [row.name for row in rows]
    for name in names:
        if name.upper() not in known:
            raise ParameterError(
                "There is no such row.",
                where="ROW",
                found=repr(name),
                expected=", ".join(all_),
                remedy=did_you_mean(name, all_, "mudkit reproduce shows them all"),
            )
    return list({row.name: row for name in names for row in known[name.upper()]}.values())


def _last(row: Row, place: Path | None) -> Result:
    return Result(row, store.load(row.name, place or store.folder()))


def _measured(row: Row, say: Say, place: Path | None) -> Result:
    say(f"{row.name}: {words.duration(row.minutes * 60)} expected")
    with BusyCores() as busy:
        began_s = time.monotonic()
        measured = row.measure(lambda text: say(f"{row.name}: {text}"))
        minutes = (time.monotonic() - began_s) / 60
    measured = Measured(measured.figures, {**measured.parameters, "machine": machine()})
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    kept = store.Kept(measured, date, round(minutes, 3), round(busy.others, 2))
    store.save(row.name, kept, place or store.folder())
    return Result(row, kept)
