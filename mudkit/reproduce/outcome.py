"""Measurement of selected rows, and the last result of each row, kept in the user's cache."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from mudkit import __version__, words
from mudkit.errors import ParameterError, did_you_mean
from mudkit.files import cache_folder, staged_file
from mudkit.reproduce import (
    contrail,
    lab,
    lab_spark,
    lasthop,
    lasthop_learning,
    lasthop_ranks,
    lasthop_speed,
    mobius,
    mobius_map,
    mobius_overhead,
    mobius_reads,
    mobius_scaling,
    mobius_writes,
    radiator,
    radiator_scale,
    sublim,
)
from mudkit.reproduce.harness import BusyCores
from mudkit.reproduce.row import NOT_MEASURED, Measured, Quantity, Row, Say, judge, say_nothing

_PAPERS: Final = (
    (mobius, mobius_scaling, mobius_overhead, mobius_reads, mobius_writes, mobius_map),
    (lasthop, lasthop_speed, lasthop_learning, lasthop_ranks),
    (contrail,),
    (radiator, radiator_scale),
    (sublim,),
    (lab, lab_spark),
)
ROWS: tuple[Row, ...] = tuple(
    row
    for modules in _PAPERS
    for row in sorted((row for module in modules for row in module.ROWS), key=lambda row: row.name)
)
"""All rows, in the order of the table: by paper, then by name."""
QUICK_MINUTES: Final = 3.0
"""Time limit of a quick run."""
_QUICK_PLAN_MINUTES: Final = 2.0
"""Expected duration of the rows of a quick run, with a reserve for machines slower than two idle cores."""


@dataclass(frozen=True)
class Kept:
    """The last result of a row: measurement, date (ISO 8601), duration, and cores used by other programs."""

    measured: Measured
    date: str
    minutes: float
    busy_cores: float


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
    kept: Kept | None

    @property
    def measured(self) -> Measured | None:
        """The measurement; None if the row has not been measured."""
        return self.kept.measured if self.kept else None

    @property
    def date(self) -> str | None:
        """Date of the measurement, in ISO 8601; None if the row has not been measured."""
        return self.kept.date if self.kept else None

    @property
    def verdict(self) -> str:
        """Verdict, computed from the quantities."""
        return judge(self.row, self.measured)[0]

    @property
    def reason(self) -> str:
        """Requirements that hold and that do not."""
        return judge(self.row, self.measured)[1]

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain data.

        Returns
        -------
        dict
            ``row, source, paper, measured, spread, verdict, reason, parameters, cells, date, minutes,
            busy_cores``.
        """
        verdict, reason = judge(self.row, self.measured)
        quantities = self.measured.quantities if self.measured else {}
        return {
            "row": self.row.name,
            "source": self.row.source,
            "paper": self.row.paper,
            "measured": {name: quantity.median for name, quantity in quantities.items()},
            "spread": {name: [quantity.low, quantity.high] for name, quantity in quantities.items()},
            "verdict": verdict,
            "reason": reason,
            "parameters": dict(self.measured.parameters) if self.measured else {},
            "cells": dict(self.measured.cells) if self.measured else {},
            "date": self.date,
            "minutes": self.kept.minutes if self.kept else None,
            "busy_cores": self.kept.busy_cores if self.kept else None,
        }


def _machine() -> dict[str, Any]:
    """Describe the machine and the versions, for the parameters of a result."""
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
        if minutes <= _QUICK_PLAN_MINUTES:
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
    """Measure the selected rows, keep each result, and return them with the last results of other rows.

    Parameters
    ----------
    selected : sequence of Row
        Rows to measure.
    rows : sequence of Row, optional
        The rows to return; by default those that were measured.
    within_minutes : float
        A row whose expected end is later is not started.
    say : callable
        Called with each step.
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
            measured[row.name] = _measure(row, say, place)
    if rows is None:
        return list(measured.values())
    return [measured.get(row.name) or _last(row, place) for row in rows]


def _named(names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return the rows of these names, in their order and each once; a name such as ``M`` is all of its rows.

    Raises ParameterError for a name of no row.
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
    return list({row.name: row for name in names for row in known[name.upper()]}.values())


def _last(row: Row, place: Path | None) -> Result:
    """Return a row with its result of the last measurement, which is None when it has not been measured."""
    return Result(row, load_result(row.name, place or results_folder()))


def _measure(row: Row, say: Say, place: Path | None) -> Result:
    """Measure a row, save the result as the last one in the folder, and return it."""
    say(f"{row.name}: {words.duration(row.minutes * 60)} expected")
    with BusyCores() as busy:
        began_s = time.monotonic()
        measured = row.measure(lambda text: say(f"{row.name}: {text}"))
        minutes = (time.monotonic() - began_s) / 60
    measured = replace(measured, parameters={**measured.parameters, "machine": _machine()})
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    kept = Kept(measured, date, round(minutes, 3), round(busy.others, 2))
    save_result(row.name, kept, place or results_folder())
    return Result(row, kept)


def results_folder() -> Path:
    """Return the folder of the last results, and create it if needed."""
    return cache_folder("results")


def save_result(name: str, kept: Kept, place: Path) -> None:
    """Save a row's result atomically."""
    with staged_file(place / f"{name}.json") as file:
        whole: dict[str, Any] = {
            "figures": {name: asdict(quantity) for name, quantity in kept.measured.quantities.items()},
            "parameters": kept.measured.parameters,
            "cells": kept.measured.cells,
            "date": kept.date,
            "minutes": kept.minutes,
            "busy_cores": kept.busy_cores,
        }
        file.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_result(name: str, place: Path) -> Kept | None:
    """Load a row's last result; None if there is no readable one."""
    try:
        whole = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
        quantities = {
            key: Quantity(float(quantity["median"]), float(quantity["low"]), float(quantity["high"]))
            for key, quantity in whole["figures"].items()
        }
        measured = Measured(quantities, dict(whole["parameters"]), dict(whole.get("cells", {})))
        return Kept(measured, str(whole["date"]), float(whole["minutes"]), float(whole["busy_cores"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it is only a cache
