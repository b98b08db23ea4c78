"""The other run of a comparison: its parameters or folder, whether it may be compared, and the run itself."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit import files, units, words
from mudkit.errors import ParameterError, TraceContentError
from mudkit.files import existing
from mudkit.report.parameters import check, check_inputs, file_options, inputs, parse_assignments
from mudkit.report.run import finished_run, run_report
from mudkit.report.schemas import TEMPLATES
from mudkit.report.summary import FILE_NAME, Summary, read_summary
from mudkit.trace.folder import dataset, is_trace, table_files
from mudkit.trace.formats import Segment
from mudkit.trace.parse import parsed_batches
from mudkit.trace.schema import POSITIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_APART_KM: Final = 50.0
"""Distance of two traces' boxes above which they are of different areas."""

_EDGES: Final = (1.0, 99.0)
"""Percentiles of the coordinates between which a trace lies: a few wrong places do not count."""
_SAMPLED_FILES: Final = 8
_BATCH_PLACES: Final = 10_000


def parse_against(template: str, given: Mapping[str, Any], against: Sequence[str]) -> Path | dict[str, Any]:
    """Parse ``--against``: the folder of a finished run, or the parameters of the other run.

    Parameters
    ----------
    template : str
        Name of the report.
    given : mapping
        Parameters of this run; the other has them, too, but for those in ``against``.
    against : sequence of str
        A folder with ``summary.json``; or another trace, and any number of ``KEY=VALUE``.

    Raises
    ------
    ParameterError, InputMissing
        A text is none of these, or they contradict each other.
    """
    fields = TEMPLATES[template].model_fields
    assigned: list[str] = []
    places: list[files.Place] = []
    for text in against:
        key, is_assignment, _ = text.partition("=")
        is_place = files.is_address(text) or Path(text).expanduser().exists()
        if is_assignment and (key.partition(".")[0] in fields or not is_place):
            assigned.append(text)
        else:
            places.append(existing(text, "trace or finished run"))
    runs = [place for place in places if isinstance(place, Path) and (place / "manifest.json").is_file()]
    if len(places) > 1 or (runs and assigned):
        raise ParameterError(
            "A run is compared with one other.",
            where="--against",
            found=", ".join(against),
            expected="the folder of a finished run; or a trace and KEY=VALUE of one other run",
            remedy="leave one out, or compare with one after the other",
        )
    if runs:
        return runs[0]
    other = parse_assignments(template, assigned)
    if places:
        if "trace" not in fields:
            raise ParameterError(
                f"The report {template} reads no trace.",
                where="--against",
                found=str(places[0]),
                expected=f"KEY=VALUE, or the folder of a finished run of {template}",
                remedy=f"mudkit report {template} --list shows the keys",
            )
        if given.get("reads") and "reads" not in other:
            raise ParameterError(
                "The reads of one trace do not belong to another.",
                where="--against",
                found=f"{places[0]} with reads={given['reads']}",
                expected="the reads of that trace",
                remedy="add --against reads=FILE, or --against reads= to derive them by a rule",
            )
        other = {"trace": str(places[0])} | other
    merged = dict(given)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merged[name] | value if both else value
    return merged


def parse_limits(texts: Sequence[str]) -> dict[str, float]:
    """Parse ``--fail-above NAME=VALUE``: the largest differences of measures that pass."""
    limits: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if not name or not limit >= 0 or name in limits:
            raise ParameterError(
                f"The measure {name} has two limits." if name in limits else "This is not a limit.",
                where="--fail-above",
                found=text,
                expected="NAME=VALUE, once a measure: from 0 on, in its unit (shares: 0 to 1)",
                remedy=f"{FILE_NAME} beside a page has the names and units",
            )
        limits[name] = limit
    return limits


def run_both(
    template: str,
    given: Mapping[str, Any],
    against: Path | Mapping[str, Any],
    *,
    limits: Iterable[str] = (),
    build: str | os.PathLike[str] = "reports/build",
    force: bool = False,
    progress: bool = True,
) -> tuple[Path, Path]:
    """Run a report with two sets of parameters, or with one if the other run is finished.

    Nothing runs if one of them is refused, if the traces are of different areas, or if a finished run that
    is compared shows that one of the names in ``limits`` is none of a measure.

    Returns
    -------
    (Path, Path)
        Folders of this run and of the other; finished runs are reused as by :func:`run_report`.

    Raises
    ------
    ParameterError, PredicateError, InputMissing, TraceFormatError, TraceContentError, SummaryError
        Before anything runs.
    ReportFailed
        As :func:`run_report`.
    """
    options: dict[str, Any] = {"build": build, "force": force, "progress": progress}
    sides = [given] if isinstance(against, Path) else [given, against]
    for values in sides:
        checked = check(template, dict(values))
        inputs(template, checked)
        check_inputs(template, checked)
    if isinstance(against, Path):
        finished = read_summary(against)
        if finished.report != template:
            raise other_report(finished, template)
        _check_names(limits, finished)
        _check_areas(template, given, finished)
    else:
        _check_areas(template, given, against)
    if not force:
        for values in sides:
            if done := finished_run(template, dict(values), build):
                _check_names(limits, read_summary(done))
    folder = run_report(template, dict(given), **options)
    _check_names(limits, read_summary(folder))
    other_folder = against if isinstance(against, Path) else run_report(template, dict(against), **options)
    return folder, other_folder


def _check_names(limits: Iterable[str], summary: Summary) -> None:
    """Raise SummaryError if a limit is of no measure, and ParameterError if of one that is a text."""
    for name in limits:
        summary[name]  # raises, with the names that there are
        if isinstance(summary[name].value, str):
            raise ParameterError(
                f"The measure {name} is a text.",
                where="--fail-above",
                found=str(summary[name].value),
                expected="a measure that is a number",
                remedy="same_recommendation in the comparison's summary says whether both recommend the same",
            )


def other_report(other: Summary, template: str) -> ParameterError:
    """Return the error for a run of another report."""
    return ParameterError(
        "Runs of different reports cannot be compared.",
        where="--against",
        found=f"a run of {other.report}: {other.folder}",
        expected=f"a run of {template}",
        remedy=f"name another folder, or run mudkit report {other.report}"
        if other.report in TEMPLATES
        else "name the folder of one of the runs that it compares, if it is a comparison",
    )


# -- where the traces lie


@dataclass(frozen=True)
class Place:
    """Box of nearly all places of a trace, degrees; ``east`` may exceed 180."""

    name: str
    south: float
    north: float
    west: float
    east: float

    @classmethod
    def of(cls, name: str, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> Place | None:
        """Return the box of places but NaN; None without one."""
        is_place = np.isfinite(lat) & np.isfinite(lon)
        lat, lon = lat[is_place], lon[is_place]
        if not len(lat):
            return None
        _, middle = units.middle(lat, lon)
        lon = middle + (lon - middle + 180.0) % 360.0 - 180.0
        south, north = np.percentile(lat, _EDGES)
        west, east = np.percentile(lon, _EDGES)
        return cls(name, float(south), float(north), float(west), float(east))

    def __str__(self) -> str:
        lat, lon = (self.south + self.north) / 2, ((self.west + self.east) / 2 + 180.0) % 360.0 - 180.0
        return f"{self.name} around latitude {lat:.2f}, longitude {lon:.2f}"


def _gap_km(one: Place, other: Place) -> float:
    """Return the distance between the nearest sides of two boxes; 0 if they overlap."""
    turn = 360.0 * round(((one.west + one.east) - (other.west + other.east)) / 720.0)
    lon_gap = max(other.west + turn - one.east, one.west - other.east - turn, 0.0)
    south, north = (
        max(one.south, other.south),
        min(one.north, other.north),
    )  # exchanged if they do not overlap
    return float(units.distance_km(south, 0.0, min(south, north), lon_gap))


def _check_areas(template: str, given: Mapping[str, Any], other: Summary | Mapping[str, Any]) -> None:
    """Raise TraceContentError if two traces are of different areas; nothing for one file, or without a trace.

    A sample of the rows decides, unless its boxes lie apart.
    """
    theirs = other.manifest.get("parameters", {}) if isinstance(other, Summary) else other
    traces = [str(values.get("trace") or "") for values in (given, theirs)]
    if not all(traces) or len({Path(trace).expanduser().resolve() for trace in traces}) == 1:
        return
    near = far = None
    for is_whole in (False, True):
        near = _place_of(template, given, is_whole)
        far = place_of_run(other) if isinstance(other, Summary) else _place_of(template, other, is_whole)
        if near is None or far is None or _gap_km(near, far) <= MAX_APART_KM:
            return
    if near is not None and far is not None:
        refuse_far(near, far)


def refuse_far(one: Place, other: Place) -> None:
    """Raise TraceContentError if two traces are of different areas."""
    gap_km = _gap_km(one, other)
    if gap_km > MAX_APART_KM:
        raise TraceContentError(
            "The two traces are of different areas.",
            where="--against",
            found=f"{one}; {other}; {words.distance(round(gap_km))} between them",
            expected=f"traces that overlap, or lie at most {words.distance(MAX_APART_KM)} apart",
            remedy="run a report on each; or compare each with itself, over time: --against period=BEGIN/END",
        )


def _place_of(template: str, given: Mapping[str, Any], is_whole: bool) -> Place | None:
    """Return where a trace lies, by a sample of its rows or by all; None without a row."""
    values = check(template, dict(given))
    path = existing(values["trace"], "trace")
    drawn = list(_folder_places(path) if is_trace(path) else _file_places(values, is_whole))
    lat, lon = (
        (np.concatenate([np.zeros(0), *part]) for part in zip(*drawn, strict=True)) if drawn else ((), ())
    )
    return Place.of(path.name, np.asarray(lat), np.asarray(lon))


def _folder_places(path: files.Place) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield latitudes and longitudes of the positions of a trace folder, thinned."""
    parts = table_files(path, "positions")
    for batch in dataset(parts, POSITIONS).to_batches(columns=["lat", "lon"]) if parts else ():
        yield _thinned(batch)


def _file_places(
    values: Mapping[str, Any], is_whole: bool
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield latitudes and longitudes of a source, thinned; not whole: of the first rows of some files."""
    plan = file_options("trace", values).plan(existing(values["trace"], "trace"))
    parts = plan.source.files()
    for file in parts if is_whole else parts[:: -(-len(parts) // _SAMPLED_FILES)]:
        batches = parsed_batches(plan, [Segment(file)])
        for batch in batches if is_whole else islice(batches, 1):
            yield _thinned(batch.good)


def _thinned(table: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return latitudes and longitudes of evenly spaced rows, at most ``_BATCH_PLACES``."""
    every = -(-len(table) // _BATCH_PLACES) or 1
    lat, lon = (np.asarray(table[name].to_numpy(zero_copy_only=False))[::every] for name in ("lat", "lon"))
    return lat, lon


def place_of_run(run: Summary) -> Place | None:
    """Return where the cells of a run's map lie; None without a map."""
    import pyarrow.parquet as pq

    try:
        cells = pq.read_table(run.folder / "data" / "cells.parquet")
    except (OSError, ValueError):
        return None
    ends = {"lat": ("south", "north"), "lon": ("west", "east")}
    drawn = []
    for name, sides in ends.items():
        present = [
            side for side in ((name,) if name in cells.column_names else sides) if side in cells.column_names
        ]
        if not present:
            return None
        drawn.append(np.mean([cells[side].to_numpy() for side in present], axis=0))
    names = [str(entry["name"]) for entry in run.manifest.get("inputs", {}).values()]
    return Place.of(names[0] if names else run.folder.name, drawn[0], drawn[1])
