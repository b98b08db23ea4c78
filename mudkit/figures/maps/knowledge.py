"""What receivers know of a map at a moment: cells coloured by the last value that reached each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.charts import GREY
from mudkit.figures.base.colours import STOPS
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Heard", "Panel", "clock", "knowledge", "known", "move"]

Panel = tuple[str, float]
"""A receiver, and a moment in seconds."""

_NEEDED: Final = ("t_s", "receiver", "lat", "lon", "messages", "said_s")
_STREETS: Final = 3000
_FADED_S: Final = 600.0
_LEAST: Final = 0.25
"""What is so old has so little opacity."""
_PANEL_PX: Final = 300
_PLOT_PX: Final = 620


class Heard:
    """What came, arranged so that what a receiver knows at a moment is soon found: a slider asks for many.

    Parameters
    ----------
    table : pandas.DataFrame
        A row for each cell of what came: ``t_s`` (when), ``receiver, lat, lon`` (the cell's centre),
        ``messages, said_s`` (when it was said, on average) and values, as of
        :class:`mudkit.systems.radiator.Played`.

    Raises
    ------
    ParameterError
        A column is missing.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        if missing := [name for name in _NEEDED if name not in table.columns]:
            raise ParameterError(
                "This is no table of what came.",
                where="heard",
                found=", ".join(map(str, table.columns)),
                expected=", ".join(missing),
                remedy="Traffic(…).run(…).heard is one",
            )
        self.table = table.sort_values("said_s", kind="stable", ignore_index=True)
        self._columns = {str(name): self.table[name].to_numpy() for name in self.table.columns}
        cells = self.table.groupby(["lat", "lon"]).ngroup().to_numpy()
        self._of = {
            str(receiver): (np.asarray(rows), self._columns["t_s"][rows], cells[rows])
            for receiver, rows in self.table.groupby("receiver").indices.items()
        }

    def rows(self, receiver: str, t_s: float) -> NDArray[np.int64]:
        """Give what a receiver knows: of each cell, of the rows that came, the one that was said last.

        Returns
        -------
        ndarray of int64, shape (cells,)
            Numbers of rows, in the order in which they were said.
        """
        if receiver not in self._of:
            return np.array([], np.int64)
        rows, came_s, cells = self._of[receiver]
        has_come = np.flatnonzero(came_s <= t_s)[::-1]
        _, last = np.unique(cells[has_come], return_index=True)
        return np.sort(rows[has_come[last]]).astype(np.int64)

    def columns(self, rows: NDArray[np.int64], *names: str) -> list[NDArray[Any]]:
        """Give columns of some rows."""
        return [self._columns[name][rows] for name in names]


def known(heard: pd.DataFrame | Heard, receiver: str, t_s: float) -> pd.DataFrame:
    """Give what a receiver knows at a moment: of each cell the row that was said last of those that came.

    Parameters
    ----------
    heard : pandas.DataFrame or Heard
        As of :class:`Heard`.
    receiver : str
    t_s : float

    Returns
    -------
    pandas.DataFrame
        Its rows, with ``age_s``.

    Raises
    ------
    ParameterError
        A column is missing.
    """
    arranged = heard if isinstance(heard, Heard) else Heard(heard)
    last = arranged.table.iloc[arranged.rows(receiver, t_s)]
    return last.assign(age_s=t_s - last["said_s"])


def knowledge(
    heard: pd.DataFrame,
    ground: pd.DataFrame,
    shown: Sequence[Panel],
    *,
    value: str,
    label: str,
    columns: int = 2,
    title: str = "",
    limits: tuple[float, float] | None = None,
) -> go.Figure:
    """Draw what receivers know at moments, a panel each; the older, the paler.

    Parameters
    ----------
    heard : pandas.DataFrame
        As in :func:`known`.
    ground : pandas.DataFrame
        ``lat, lon`` of all positions: they draw the streets.
    shown : sequence of (str, float)
        Receivers and moments, row by row.
    value : str
        The column that gives the colour; low ones are dark.
    label : str
        What stands at the colours, with the unit.
    columns : int
    title : str
    limits : (float, float), optional
        Ends of the colours; those of all that came without it.

    Raises
    ------
    ParameterError
        A column is missing, or nothing is to be shown.
    TraceContentError
        There is no ground.
    """
    if not shown or value not in heard.columns:
        raise ParameterError(
            "This cannot be shown.",
            where="shown, value",
            found=f"{len(shown)} panels, {value!r}",
            expected=f"panels, and one of {', '.join(map(str, heard.columns))}",
        )
    if not len(ground):
        raise TraceContentError("There is no ground to draw.", expected="at least one position")
    rows = -(-len(shown) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[" "] * len(shown),
        shared_xaxes="all",
        shared_yaxes="all",
        horizontal_spacing=0.03,
        vertical_spacing=0.16 if rows > 1 else 0.0,
    )
    streets = ground.iloc[:: max(1, len(ground) // _STREETS)]
    dots = {"size": 2, "color": GREY, "opacity": 0.4}
    for place in range(len(shown)):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        figure.add_scatter(
            x=streets["lon"],
            y=streets["lat"],
            mode="markers",
            marker=dots,
            hoverinfo="skip",
            showlegend=False,
            **at,
        )
        squares = {"symbol": "square", "coloraxis": "coloraxis", "line": {"width": 0}}
        figure.add_scatter(
            x=[], y=[], mode="markers", marker=squares, hoverinfo="text", showlegend=False, **at
        )
    low, high = limits or (float(heard[value].min()), float(heard[value].max()))
    colours = STOPS[::-1]
    figure.update_layout(
        template=template(),
        height=110 + (_PANEL_PX + 50) * rows,
        title={"text": title, "font": {"size": 16}},
        margin={"l": 60, "r": 20, "t": 100 if title else 60, "b": 50},
        coloraxis={
            "cmin": low,
            "cmax": high,
            "colorbar": {"title": {"text": label, "side": "right"}, "thickness": 12},
            "colorscale": [[at / (len(colours) - 1), colour] for at, colour in enumerate(colours)],
        },
    )
    x, y = (_limits(ground[name], heard[name]) for name in ("lon", "lat"))
    stretch = 1 / float(np.cos(np.radians(ground["lat"].median())))
    figure.update_xaxes(range=x, nticks=4)
    figure.update_yaxes(range=y, nticks=5)
    for place in range(len(shown)):
        axis = "" if place == 0 else str(place + 1)
        figure.layout[f"yaxis{axis}"].update(scaleanchor=f"x{axis}", scaleratio=stretch)
    figure.update_xaxes(title_text="longitude, °", row=rows)
    figure.update_yaxes(title_text="latitude, °", col=1)
    figure.update_annotations(font_size=13)
    figure.layout.meta = {"value": value, "label": label}
    side_px = _side_px(heard, x, y, stretch, columns)
    for cells in figure.data[1::2]:
        cells.marker.size = side_px
    move(figure, heard, shown)
    return figure


def move(figure: Any, heard: pd.DataFrame | Heard, shown: Sequence[Panel]) -> None:
    """Show other receivers, moments or values in a figure made by :func:`knowledge`, as many as before."""
    meta = figure.layout.meta
    arranged = heard if isinstance(heard, Heard) else Heard(heard)
    panels = [_cells(arranged, receiver, t_s, meta["value"], meta["label"]) for receiver, t_s in shown]
    headlines = {f"annotations[{place}].text": headline for place, (headline, _) in enumerate(panels)}
    changed = {name: [cells[name] for _, cells in panels] for name in panels[0][1]}
    # One message for all, and nothing in it that stays as it is.
    figure.plotly_update(changed, headlines, trace_indexes=[2 * place + 1 for place in range(len(shown))])


def clock(t_s: float) -> str:
    """Write a moment as minutes and seconds."""
    minutes, seconds = divmod(round(t_s), 60)
    return f"{minutes}:{seconds:02d}"


def _cells(heard: Heard, receiver: str, t_s: float, value: str, label: str) -> tuple[str, dict[str, Any]]:
    """Say how much a receiver knows and how old it is; give its cells as plotly has them."""
    rows = heard.rows(receiver, t_s)
    lat, lon, messages, said_s, values = heard.columns(rows, "lat", "lon", "messages", "said_s", value)
    age_s = t_s - said_s
    opacity = np.clip(1 - (1 - _LEAST) * age_s / _FADED_S, _LEAST, 1.0)
    headline = f"{len(rows)} cells, median age {np.median(age_s):.0f} s" if len(rows) else "nothing yet"
    each = zip(values.tolist(), messages.tolist(), age_s.tolist(), strict=True)
    return f"<b>{receiver}</b>, {clock(t_s)} min<br>{headline}", {
        "x": lon.tolist(),
        "y": lat.tolist(),
        "text": [f"{number:.4g} {label}<br>{count} messages, {age:.0f} s old" for number, count, age in each],
        "marker.color": values.tolist(),
        "marker.opacity": opacity.round(2).tolist(),
    }


def _side_px(heard: pd.DataFrame, x: list[float], y: list[float], stretch: float, columns: int) -> float:
    """Give how large a cell is on the screen, about: markers do not grow with the axes."""
    heights = np.diff(np.unique(heard["lat"])) if len(heard) else np.array([])
    if not len(heights):
        return 12.0
    panel_px = min(_PANEL_PX / (y[1] - y[0]), _PLOT_PX / columns / ((x[1] - x[0]) / stretch))
    return float(np.clip(0.92 * heights.min() * panel_px, 4.0, 60.0))


def _limits(*values: pd.Series) -> list[float]:
    low, high = (float(np.quantile(list(chain(*values)), share)) for share in (0.002, 0.998))
    margin = max(high - low, 0.01) * 0.05
    return [low - margin, high + margin]
