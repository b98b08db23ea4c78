"""Tables in a report: kept as files beside it, and one that can be filtered."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import shapely

from mudkit import words
from mudkit.display import frame_table

if TYPE_CHECKING:
    import pandas as pd

Table = TypeVar("Table", "pd.DataFrame", pa.Table)


def merge_equal(table: pd.DataFrame) -> tuple[pd.DataFrame, list[list[str]]]:
    """Return a table in which neighbouring rows that differ in their name only are one, and their names.

    The first column holds the names: ``"15 min to 1 h"`` names rows from 15 min to 1 h.
    """
    import numpy as np

    numbers = table.iloc[:, 1:].to_numpy(dtype=np.float64)
    is_new = np.ones(len(table), dtype=bool)
    is_new[1:] = ~np.isclose(numbers[1:], numbers[:-1], rtol=1e-9, atol=1e-12, equal_nan=True).all(axis=1)
    groups: list[list[str]] = []
    for name, begins in zip(table.iloc[:, 0].astype(str), is_new, strict=True):
        if begins:
            groups.append([])
        groups[-1].append(name)
    names = [group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups]
    return table[is_new].assign(**{str(table.columns[0]): names}).reset_index(drop=True), groups


def save_table(table: Table, name: str, folder: Path | None) -> Table:
    """Write a figure's or table's data as ``<name>.parquet`` and ``<name>.csv``, and return it.

    Parameters
    ----------
    table : pandas.DataFrame or pyarrow.Table
    name : str
        The name of the files, without suffix.
    folder : Path or None
        The folder in which it is written. None: the notebook is open in JupyterLab, and nothing is written.
    """
    if folder is not None:
        arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        pq.write_table(arrow, folder / f"{name}.parquet")
        pa_csv.write_csv(arrow, folder / f"{name}.csv")
    return table


def save_cells(table: pa.Table, name: str, folder: Path | None) -> pa.Table:
    """Write cells as ``<name>.csv``, GeoParquet (``<name>.parquet``) and ``<name>.geojson``, and return them.

    Parameters
    ----------
    table : pyarrow.Table
        Edges ``south, west, north, east`` in degrees, which become rectangles, and other columns.
    name : str
        The name of the files, without suffix.
    folder : Path or None
        As for :func:`save_table`.
    """
    save_table(table, name, folder)
    if folder is None:
        return table
    edges = [table[side].to_numpy() for side in ("west", "south", "east", "north")]
    boxes = shapely.box(*edges)
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["Polygon"]}
    if len(table):
        column["bbox"] = shapely.total_bounds(boxes).tolist()
    document = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    geometry = pa.array(shapely.to_wkb(boxes).tolist(), pa.binary())
    whole = table.append_column("geometry", geometry)
    whole = whole.replace_schema_metadata({"geo": json.dumps(document)})
    pq.write_table(whole, folder / f"{name}.parquet")
    others = [column for column in table.column_names if column not in ("south", "west", "north", "east")]
    with (folder / f"{name}.geojson").open("w", encoding="utf-8") as file:
        file.write('{"type":"FeatureCollection","features":[')
        rows = table.select(others).to_pylist()
        for at, (shape, row) in enumerate(zip(shapely.to_geojson(boxes), rows, strict=True)):
            row = {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            properties = json.dumps(row, separators=(",", ":"), default=str)
            feature = f'{{"type":"Feature","geometry":{shape},"properties":{properties}}}'
            file.write((",\n" if at else "\n") + feature)
        file.write("\n]}\n")
    return table


class FilteredTable:
    """Table with all of its rows, in a box that scrolls, and a field that keeps the rows with a text.

    Without JavaScript it is the table alone.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows beyond :data:`MAX_FILTERED` are not shown.
    caption : str
        What the table shows.
    columns : sequence of str
        Columns on screen.
    label : str
        What the field is for, for instance "Filter devices".
    labels : mapping of str to str, optional
        Headings by column, in place of those that follow from the names.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        caption: str,
        *,
        columns: Sequence[str],
        label: str,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._table = frame_table(table, caption, rows=MAX_FILTERED, columns=columns, labels=labels)
        self._label = label
        self._rows = min(len(table), MAX_FILTERED)

    def _repr_html_(self) -> str:
        if self._rows < _MIN_FILTERED:
            return self._table.html()
        counted = escape(f"{words.count(self._rows, 'row')}; scroll to see them all")
        return (
            f"<div class='filtered'><p class='filter' hidden><label>{escape(self._label)} "
            f"<input type='search'></label> <output>{counted}</output></p>"
            f"<div style='{_BOX}' tabindex='0' role='region' "
            f"aria-label='{escape(self._label, quote=True)}'>{_plain(self._table.html())}</div>"
            f"<script>{_FILTER}</script></div>"
        )

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _plain(html: str) -> str:
    """Return a table whose cells have no style but their side, as that of each would be most of a page.

    The page pads heads and cells alike, and aligns cells to the right.
    """
    head, body, tail = re.split("(?=</?tbody>)", html)
    cells = re.sub(
        r"(<t[dh])((?: scope='row')?) style='[^']*text-align:(left|right)[^']*'",
        lambda cell: f"{cell[1]}{cell[2]}" + (" style='text-align:left'" if cell[3] == "left" else ""),
        body,
    )
    return head.replace("style='padding:3px 8px;", "style='") + cells + tail


MAX_FILTERED: Final = 1_000
"""Rows of a :class:`FilteredTable`: some 300 kB of a page."""

_MIN_FILTERED: Final = 12
_BOX: Final = (
    "max-height:24em;overflow:auto;white-space:nowrap;border:1px solid #8886;margin-bottom:1em;"
    "box-shadow:inset 0 -12px 8px -8px #888a"
)
"""A frame, and a shadow above the lower edge: rows follow."""
_FILTER: Final = """
(function (box) {
  var field = box.querySelector("input"), told = box.querySelector("output");
  var rows = Array.from(box.querySelectorAll("tbody tr"));
  box.querySelector(".filter").hidden = false;
  field.addEventListener("input", function () {
    var text = field.value.trim().toLowerCase(), shown = 0;
    rows.forEach(function (row) {
      var fits = row.textContent.toLowerCase().indexOf(text) >= 0;
      row.style.display = fits ? "" : "none";
      shown += fits;
    });
    told.textContent = shown.toLocaleString("en") + (shown === 1 ? " row" : " rows");
  });
})(document.currentScript.parentNode);
"""
