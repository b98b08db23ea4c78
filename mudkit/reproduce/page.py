"""The table of rows as a page: a notebook with the table in it, and the figures as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pandas as pd

from mudkit.display import Cell, Table
from mudkit.reproduce.outcome import Result
from mudkit.reproduce.table import parameter_text
from mudkit.reproduce.verdict import NOT_MEASURED, NOT_REPRODUCIBLE, REPRODUCED, SHAPE

if TYPE_CHECKING:
    import nbformat

__all__ = ["figures", "notebook"]

_MEANS: Final = {
    REPRODUCED: "all that is required holds",
    SHAPE: "order and slope agree, a level does not",
    NOT_REPRODUCIBLE: "neither; the row says why",
    NOT_MEASURED: "no result is kept; name the row to measure it",
}
_COLOURS: Final = {
    REPRODUCED: "#1a7f37",
    SHAPE: "#9a6700",
    NOT_REPRODUCIBLE: "#cf222e",
    NOT_MEASURED: "#57606a",
}
_HEAD: Final = ("row", "the paper says", "measured: median (lowest to highest)", "verdict")
_MARKS: Final = {REPRODUCED: "✓", SHAPE: "≈", NOT_REPRODUCIBLE: "✗", NOT_MEASURED: "–"}


def notebook(results: Sequence[Result]) -> nbformat.NotebookNode:
    """Write the rows as a notebook: counts of verdicts, the table, what the figures depend on.

    Parameters
    ----------
    results : sequence of Result

    Returns
    -------
    nbformat.NotebookNode
        A notebook for :func:`mudkit.report.html.export_html`.
    """
    from nbformat import v4  # loading this takes longer than loading all of mudkit

    counts = Counter(result.verdict for result in results)
    verdicts = [f"- {counts[each]} **{each}**: {means}" for each, means in _MEANS.items() if counts[each]]
    depends = [
        [result.row.name, Cell(parameter_text(result.measured.parameters))]
        for result in results
        if result.measured
    ]
    title = ["# The papers' numbers, and ours", "", f"{len(results)} rows:", "", *verdicts]
    page: nbformat.NotebookNode = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("\n".join(title)),
            _shown(Table(_HEAD, list(map(_row, results))).html()),
            v4.new_markdown_cell("## What the figures depend on"),
            _shown(Table(("row", "parameters"), depends).html()),
        ]
    )
    return page


def _shown(text: str) -> nbformat.NotebookNode:
    from nbformat import v4

    output = v4.new_output("display_data", data={"text/html": text})
    cell: nbformat.NotebookNode = v4.new_code_cell("", outputs=[output])
    return cell


def figures(results: Sequence[Result]) -> pd.DataFrame:
    """Give the measured figures as a table.

    Parameters
    ----------
    results : sequence of Result

    Returns
    -------
    DataFrame
        One line a figure: row, source, verdict, date (ISO 8601), figure, median, low, high, required (in
        words, empty where nothing is) and holds (null there).
    """
    lines = []
    for result in results:
        measured = result.measured.figures if result.measured else {}
        for name, figure in measured.items():
            required = [each for each in result.row.required if each.figure == name]
            lines.append(
                {
                    "row": result.row.name,
                    "source": result.row.source,
                    "verdict": result.verdict,
                    "date": result.date,
                    "figure": name,
                    "median": float(figure.median),
                    "low": float(figure.low),
                    "high": float(figure.high),
                    "required": ", ".join(map(str, required)),
                    "holds": all(each.holds(figure.median) for each in required) if required else None,
                }
            )
    columns = ["row", "source", "verdict", "date", "figure", "median", "low", "high", "required", "holds"]
    return pd.DataFrame(lines, columns=columns).astype({"holds": "boolean"})


def _row(result: Result) -> list[Cell]:
    row, verdict = result.row, result.verdict
    date = result.date[:10] if result.date else ""
    return [
        Cell("", row.source, strong=row.name),
        Cell(row.paper),
        Cell(_measured(result)),
        Cell("", date, strong=f"{_MARKS[verdict]} {verdict}", edge=_COLOURS[verdict]),
    ]


def _measured(result: Result) -> str:
    """List the figures: first those of which something is required, marked by whether it holds."""
    if result.measured is None:
        return result.reason
    figures, lines, listed = result.measured.figures, [], set()
    for required in result.row.required:
        if (figure := figures.get(required.figure)) is not None:
            listed.add(required.figure)
            mark = "✓" if required.holds(figure.median) else "✗"
            lines.append(f"{mark} {required.figure}: {figure}, {required}")
    lines += [f"{name}: {figure}" for name, figure in figures.items() if name not in listed]
    return "\n".join(lines)
