"""Measure the rows that are asked for, or take their last result, and give each its verdict."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudkit import __version__
from mudkit.errors import ParameterError, did_you_mean
from mudkit.reproduce import contrail, lab, lasthop, mobius, radiator, store, sublim
from mudkit.reproduce.row import Measured, Row, Say, say_nothing
from mudkit.reproduce.verdict import judge

__all__ = ["ROWS", "Result", "machine", "results"]

ROWS: tuple[Row, ...] = (*mobius.ROWS, *lasthop.ROWS, *contrail.ROWS, *radiator.ROWS, *sublim.ROWS, *lab.ROWS)
"""All rows, in the order of the table."""


@dataclass(frozen=True)
class Result:
    """A row and what came out.

    Parameters
    ----------
    row : Row
    measured : Measured or None
        What was measured. None: nothing has been yet.
    date : str or None
        When it was measured, in ISO 8601. None: never.
    """

    row: Row
    measured: Measured | None
    date: str | None

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
            ``row, source, paper, measured, spread, verdict, reason, parameters, date``.
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
        }


def machine() -> dict[str, Any]:
    """Say what a figure was measured on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "mudkit": __version__,
    }


def results(
    names: Sequence[str] = (),
    *,
    rows: Sequence[Row] = ROWS,
    say: Say = say_nothing,
    place: Path | None = None,
) -> list[Result]:
    """Measure the rows that are named; without names give all, those of speed as they were last time.

    Parameters
    ----------
    names : sequence of str
        Rows, upper or lower case; ``M3`` names all its parts, ``M3-remote`` one.
    rows : sequence of Row
        The rows from which the names choose.
    say : callable
        Called with a sentence about what is measured next.
    place : Path, optional
        The folder of the last results; by default one in the user's cache.

    Returns
    -------
    list of Result
        The results in the order of the names, or else of the table.

    Raises
    ------
    ParameterError
        There is no such row.
    OutputProblem
        A result cannot be kept.
    """
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
    wanted = {row.name: row for name in names for row in known[name.upper()]}
    collected = []
    for row in wanted.values() if names else rows:
        if names or not row.is_speed:
            collected.append(_measured(row, say, place))
            continue
        last = store.load(row.name, place or store.folder())
        collected.append(Result(row, *last) if last else Result(row, None, None))
    return collected


def _measured(row: Row, say: Say, place: Path | None) -> Result:
    say(f"{row.name}: measuring")
    measured = row.measure(lambda text: say(f"{row.name}: {text}"))
    measured = Measured(measured.figures, {**measured.parameters, "machine": machine()})
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    store.save(row.name, measured, date, place or store.folder())
    return Result(row, measured, date)
