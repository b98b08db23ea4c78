"""Scorecard in Markdown: every row with the paper's figures, ours, the verdict and the parameters."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from mudkit import words
from mudkit.files import staged_file
from mudkit.reproduce.mobius_map import MAPS, map_table
from mudkit.reproduce.outcome import Result
from mudkit.reproduce.row import NOT_MEASURED, NOT_REPRODUCIBLE, REPRODUCED, SHAPE, Quantity
from mudkit.reproduce.table import parameter_text

if TYPE_CHECKING:
    import nbformat
    import plotly.graph_objects as go

BUSY_CORES: Final = 0.2
"""Cores used by other programs above which a row counts as measured under load."""

_MEANS: Final = {
    REPRODUCED: "every requirement holds: within a tolerance of the paper's figure, or on the side that the "
    "paper names",
    SHAPE: "each requirement marked as shape (an order, a slope) holds, another one does not",
    NOT_REPRODUCIBLE: "a requirement marked as shape does not hold, or one of a row without these",
    NOT_MEASURED: "no result is kept that can be judged",
}
_MARKS: Final = {REPRODUCED: "✓", SHAPE: "≈", NOT_REPRODUCIBLE: "✗", NOT_MEASURED: "–"}
_PLOTLY: Final = "application/vnd.plotly.v1+json"
_LOADED: Final = "; under load: other programs kept"
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|~$#])")


def text(results: Sequence[Result], before: str = "") -> str:
    """Return the scorecard as Markdown: an overview, then a section for each row.

    A row without a result keeps what ``before``, an earlier scorecard, says of it: results stay on the
    machine that measured them.
    """
    earlier = _read(before)
    entries = [
        earlier.get(result.row.name, _entry(result)) if result.kept is None else _entry(result)
        for result in results
    ]
    loaded = [
        entry.name
        for result, entry in zip(results, entries, strict=True)
        if result.row.is_speed and _LOADED in entry.section
    ]
    return "\n".join([*_overview(entries, loaded), *(entry.section for entry in entries)])


def write(results: Sequence[Result], path: Path) -> None:
    """Write the scorecard to a file; a row without a result keeps what the file says of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    with staged_file(path) as file:
        file.write_text(text(results, before), encoding="utf-8")


def notebook(results: Sequence[Result]) -> nbformat.NotebookNode:
    """Return the scorecard, and the maps of its rows, for :func:`mudkit.report.html.export_html`."""
    from nbformat import v4  # loading this takes longer than loading all of mudkit

    figures = [figure for result in results for figure in _maps(result)]
    outputs = [
        v4.new_output("display_data", data={_PLOTLY: json.loads(figure.to_json())}) for figure in figures
    ]
    maps = [v4.new_code_cell("", outputs=[output]) for output in outputs]
    page: nbformat.NotebookNode = v4.new_notebook(cells=[v4.new_markdown_cell(text(results)), *maps])
    return page


def _maps(result: Result) -> Iterator[go.Figure]:
    """Draw the maps of a row that has cells."""
    from mudkit.figures import regime_map  # loads plotly

    if result.measured is not None and result.measured.cells:
        for title, level, value in MAPS[result.row.name]:
            table = map_table(result.measured.cells, level, value)
            yield regime_map(table, title=f"{result.row.name}. {title}")


def quantities(results: Sequence[Result]) -> pd.DataFrame:
    """Return the measured quantities as a table."""
    lines = []
    for result in results:
        measured = result.measured.quantities if result.measured else {}
        for name, quantity in measured.items():
            bounds = [required for required in result.row.required if required.quantity == name]
            lines.append(
                {
                    "row": result.row.name,
                    "source": result.row.source,
                    "verdict": result.verdict,
                    "date": result.date,
                    "figure": name,
                    "median": float(quantity.median),
                    "low": float(quantity.low),
                    "high": float(quantity.high),
                    "required": ", ".join(map(str, bounds)),
                    "holds": all(bound.holds(quantity.median) for bound in bounds) if bounds else None,
                }
            )
    columns = ["row", "source", "verdict", "date", "figure", "median", "low", "high", "required", "holds"]
    return pd.DataFrame(lines, columns=columns).astype({"holds": "boolean"})


class _Entry(NamedTuple):
    """Entry of a row in the scorecard: its line in the overview, and its section."""

    name: str
    verdict: str
    line: str
    section: str


def _entry(result: Result) -> _Entry:
    """Return the parts of the scorecard that are about one row."""
    return _Entry(result.row.name, result.verdict, _line(result), "\n".join(_section(result)))


def _read(page: str) -> dict[str, _Entry]:
    """Return the entries of a scorecard by row."""
    overview, *sections = page.split("\n## ")
    by_name = {section.partition("\n")[0]: f"## {section.rstrip()}\n" for section in sections}
    lines = {line[3:].partition("]")[0]: line for line in overview.splitlines() if line.startswith("| [")}
    return {
        name: _Entry(name, lines[name].split(" | ")[2].partition(" ")[2], lines[name], section)
        for name, section in by_name.items()
        if name in lines
    }


def _overview(entries: Sequence[_Entry], loaded: Sequence[str]) -> Iterator[str]:
    """Yield the lines above the sections: counts of verdicts, rows measured under load, and the table."""
    counts = Counter(entry.verdict for entry in entries)
    yield "# Scorecard: the papers' numbers and ours\n"
    yield "Written by `mudkit reproduce --scorecard`. Verdicts are computed from the requirements below.\n"
    yield from (
        f"- {_MARKS[verdict]} **{verdict}**: {words.count(counts[verdict], 'row')}; {means}."
        for verdict, means in _MEANS.items()
        if counts[verdict]
    )
    yield ""
    if loaded:
        yield (
            f"Rows of speed that were measured under load: {', '.join(loaded)}. Other programs kept more "
            f"than {BUSY_CORES:g} cores busy meanwhile, so times are longer and rates are lower than on an "
            f"idle machine. `mudkit reproduce {loaded[0]} --scorecard` measures one again.\n"
        )
    yield "| row | source | verdict | first requirement: ours | minutes | measured |"
    yield "|---|---|---|---|--:|---|"
    yield from (entry.line for entry in entries)
    yield ""


def _line(result: Result) -> str:
    """Return a row's line in the table of the overview, with dashes where it has not been measured."""
    row, verdict, kept = result.row, result.verdict, result.kept
    cells = [f"[{row.name}](#{row.name.lower()})", _plain(row.source), f"{_MARKS[verdict]} {verdict}"]
    first = row.required[0].quantity
    if kept is None:
        cells += ["–", "–", "–"]
    else:
        quantity = kept.measured.quantities.get(first)
        cells += [f"{_plain(first)}: {quantity or words.NO_VALUE}", _minutes(kept.minutes), kept.date[:10]]
    return f"| {' | '.join(cells)} |"


def _section(result: Result) -> Iterator[str]:
    """Yield the lines of a row's section; without a measurement it has requirements and no numbers."""
    row, kept = result.row, result.kept
    measured = kept.measured.quantities if kept else {}
    yield f"## {row.name}\n"
    yield f"**Source**: {_plain(row.source)}\n"
    yield f"**Paper**: {_plain(row.paper)}\n"
    yield f"**Verdict**: {_MARKS[result.verdict]} {result.verdict}. {_plain(_reason(result))}\n"
    yield "| required figure | ours: median (lowest to highest) | required | holds |"
    yield "|---|--:|--:|---|"
    for required in row.required:
        quantity = measured.get(required.quantity)
        holds = "–" if quantity is None else "yes" if required.holds(quantity.median) else "**no**"
        bound = f"{required}, shape" if required.is_shape else str(required)
        yield f"| {_plain(required.quantity)} | {quantity or words.NO_VALUE} | {_plain(bound)} | {holds} |"
    yield ""
    others = {name: quantity for name, quantity in measured.items() if name not in _required(result)}
    if others:
        yield from _others(others)
    if kept and kept.measured.cells:
        yield from _cells(kept.measured.cells)
    if kept:
        parameters = dict(kept.measured.parameters)
        machine = parameters.pop("machine", {})
        yield f"**Parameters**: {_plain(parameter_text(parameters))}\n"
        load = f"{_LOADED} {words.number(kept.busy_cores)} cores busy" if kept.busy_cores > BUSY_CORES else ""
        yield (
            f"**Measured**: {kept.date[:10]}, in {_minutes(kept.minutes)} minutes, on "
            f"{machine.get('cores', '?')} cores, {machine.get('platform', '?')}, "
            f"Python {machine.get('python', '?')}, mudkit {machine.get('mudkit', '?')}{load}\n"
        )
    yield f"**Repeat**: `mudkit reproduce {row.name}`\n"


def _others(quantities: dict[str, Quantity]) -> Iterator[str]:
    """Yield the lines of a folded table of the quantities that nothing is required of."""
    yield f"<details>\n<summary>{words.count(len(quantities), 'other figure')}</summary>\n"
    yield "| figure | ours: median (lowest to highest) |"
    yield "|---|--:|"
    yield from (f"| {_plain(name)} | {quantity} |" for name, quantity in quantities.items())
    yield "\n</details>\n"


def _cells(cells: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield the lines of a folded table of the cells of a map, a row each."""
    names = list(next(iter(cells.values())))
    yield f"<details>\n<summary>All {words.count(len(cells), 'cell')}</summary>\n"
    yield f"| cell | {' | '.join(map(_plain, names))} |"
    yield f"|---|{'--:|' * len(names)}"
    for cell, measures in cells.items():
        yield f"| {_plain(cell)} | {' | '.join(words.number(measures[name]) for name in names)} |"
    yield "\n</details>\n"


def _reason(result: Result) -> str:
    """Explain a verdict: which requirements do not hold and why, or that all hold."""
    if result.verdict == NOT_MEASURED or result.measured is None:
        return f"{result.reason}."
    quantities = result.measured.quantities
    missed = [
        f"{required.quantity} is {words.number(quantities[required.quantity].median)}, required is {required}"
        for required in result.row.required
        if not required.holds(quantities[required.quantity].median)
    ]
    many = words.count(len(result.row.required), "requirement")
    if not missed:
        return f"{'The requirement holds' if len(result.row.required) == 1 else f'All {many} hold'}."
    sentence = (
        f"{len(missed)} of {many} {'does' if len(missed) == 1 else 'do'} not hold: {'; '.join(missed)}."
    )
    return f"{sentence} Why: {result.row.known}." if result.row.known else sentence


def _required(result: Result) -> set[str]:
    """Return the names of the quantities that a row requires something of."""
    return {required.quantity for required in result.row.required}


def _minutes(minutes: float) -> str:
    """Return minutes with one decimal, or ``<0.1``."""
    return "<0.1" if minutes < 0.05 else f"{minutes:.1f}"


def _plain(line: str) -> str:
    """Escape the markup characters of Markdown."""
    return _SPECIAL.sub(r"\\\1", line)
