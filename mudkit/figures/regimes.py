"""Map of regimes: who has the savings of a paper, by how often people look and by how is written."""

from __future__ import annotations

from typing import Final

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.errors import ParameterError
from mudkit.figures.alternative import described
from mudkit.figures.style import NO_VALUE, TEXT_PX, heading, ink_on, ramp, styled
from mudkit.figures.tables import require_columns

_COLUMNS: Final = ("when", "every_min", "writing", "who", "bound", "tree")
_ROW_PX, _MARGINS_PX = 38, 200
_LARGEST: Final = 1000.0
"""Factor from which a cell says only that it is more."""
_TENTHS_BELOW: Final = 10.0
_NOT_JUDGED: Final = "#e9ebed"
_MARK_PX: Final = 13


@described
def regime_map(table: pd.DataFrame, *, title: str) -> go.Figure:
    """Draw a map of regimes: a panel for each way to look, a row for each way to write.

    A cell has two numbers: how many times fewer messages the bound sends, which knows the future, and below
    it a learnt tree. Its colour says who has the savings.

    Parameters
    ----------
    table : pandas.DataFrame
        A row for each cell: ``when`` people look, ``every_min`` minutes, ``writing`` in words, ``who``
        (categories in order: not judged, nobody, and then who has the savings, the strongest claim last),
        ``bound`` and ``tree`` (times fewer). All in the order of the figure.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table lacks a column, or ``who`` has no categories.
    """
    require_columns(table, "table", _COLUMNS)
    if not isinstance(table["who"].dtype, pd.CategoricalDtype):
        raise ParameterError(
            "The colours of a map of regimes have an order.",
            where="table, column who",
            found=str(table["who"].dtype),
            expected="categories, the strongest claim last",
            remedy='table["who"].astype(pd.CategoricalDtype([…], ordered=True))',
        )
    names = list(table["who"].cat.categories)
    colours = [_NOT_JUDGED, NO_VALUE, *ramp(max(len(names) - 2, 2))][: len(names)]
    panels = list(dict.fromkeys(table["when"]))
    rows = list(dict.fromkeys(table["writing"]))
    figure = make_subplots(1, len(panels), shared_yaxes=True, subplot_titles=panels, horizontal_spacing=0.02)
    for column, when in enumerate(panels, start=1):
        own = table[table["when"] == when]
        every = list(dict.fromkeys(own["every_min"]))
        cells = {(cell.writing, cell.every_min): cell for cell in own.itertuples()}
        grid = [[cells[row, minutes] for minutes in every] for row in rows]
        figure.add_trace(
            go.Heatmap(
                x=list(range(len(every))), y=rows,
                z=[[names.index(cell.who) for cell in row] for row in grid],
                hovertext=[
                    [f"{_factor(cell.bound)} and {_factor(cell.tree)}" for cell in row] for row in grid
                ],
                customdata=[[f"every {cell.every_min:g} min<br>{cell.who}" for cell in row] for row in grid],
                hovertemplate="%{y}, %{customdata}<br>%{hovertext}<extra></extra>",
                zmin=-0.5, zmax=len(names) - 0.5, colorscale=_steps(colours), showscale=False, xgap=2, ygap=2,
            ), 1, column,
        )  # fmt: skip
        for cell in own.itertuples():
            ink = ink_on(colours[names.index(cell.who)])
            figure.add_annotation(
                x=every.index(cell.every_min), y=cell.writing, font={"size": TEXT_PX, "color": ink},
                text=f"{_factor(cell.bound)}<br>{_factor(cell.tree)}", showarrow=False, row=1, col=column,
            )  # fmt: skip
        ticks = {"tickvals": list(range(len(every))), "ticktext": [f"{minutes:g}" for minutes in every]}
        figure.update_xaxes(**ticks, range=[-0.5, len(every) - 0.5], row=1, col=column)
    counts = table["who"].value_counts()
    for name, colour in zip(names, colours, strict=True):
        figure.add_trace(
            go.Scatter(
                x=[None], y=[None], mode="markers", name=f"{name}: {words.count(int(counts[name]), 'cell')}",
                marker={"symbol": "square", "size": _MARK_PX, "color": colour},
            )
        )  # fmt: skip
    across = {"ticks": "", "showgrid": False, "tickangle": 0, "title_text": "minutes between two looks"}
    figure.update_xaxes(**across)
    for note in figure.layout.annotations[: len(panels)]:
        note.font.size = TEXT_PX
    figure.update_yaxes(type="category", ticks="", showgrid=False, autorange="reversed", automargin=True)
    subtitle = "above: times fewer by the bound, which knows the future; below: by a learnt tree"
    legend = {"orientation": "v", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0}
    height_px = _MARGINS_PX + _ROW_PX * len(rows) + 20 * len(names)
    bottom_px = 70 + 20 * len(names)
    return styled(figure, height_px, (70, 20, 110, bottom_px), heading(title, subtitle), legend=legend)


def _factor(value: float) -> str:
    """Return how many times fewer, in as few digits as a cell has room for."""
    if value >= _LARGEST:
        return f"&gt;{words.number(_LARGEST, 0)}"
    return words.number(value, 1 if value < _TENTHS_BELOW else 0)


def _steps(colours: list[str]) -> list[tuple[float, str]]:
    """Return a colour scale that has each colour for an equal part."""
    edges = [place / len(colours) for place in range(len(colours) + 1)]
    return [(edges[place + end], colour) for place, colour in enumerate(colours) for end in (0, 1)]
