"""What receivers know of a map at a moment: cells coloured by the last value that reached each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.charts import GREY
from mudkit.figures.colours import STOPS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Panel", "clock", "knowledge", "known", "move"]

Panel = tuple[str, float]
"""A receiver, and a moment in seconds."""

_NEEDED: Final = ("t_s", "receiver", "lat", "lon", "messages", "said_s")
_STREETS: Final = 3000
_FADED_S: Final = 600.0
_LEAST: Final = 0.25
"""What is so old has so little opacity."""
_PANEL_PX: Final = 300
_PLOT_PX: Final = 620


def known(heard: pd.DataFrame, receiver: str, t_s: float) -> pd.DataFrame:
    """Give what a receiver knows at a moment: of each cell the row that was said last of those that came.

    Parameters
    ----------
    heard : pandas.DataFrame
        A row for each cell of what came: ``t_s`` (when), ``receiver, lat, lon`` (the cell's centre),
        ``messages, said_s`` (when it was said, on average) and values, as of
        :class:`mudkit.experiment.traffic.Drive`.
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
    if missing := [name for name in _NEEDED if name not in heard.columns]:
        raise ParameterError(
            "This is no table of what came.", where="heard", found=", ".join(map(str, heard.columns)),
            expected=", ".join(missing), remedy="Traffic(…).run(…).heard is one",
        )  # fmt: skip
    rows = heard[(heard["receiver"] == receiver) & (heard["t_s"] <= t_s)]
    last = rows.sort_values("said_s", kind="stable").drop_duplicates(["lat", "lon"], keep="last")
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
            "This cannot be shown.", where="shown, value", found=f"{len(shown)} panels, {value!r}",
            expected=f"panels, and one of {', '.join(map(str, heard.columns))}",
        )  # fmt: skip
    if not len(ground):
        raise TraceContentError("There is no ground to draw.", expected="at least one position")
    rows = -(-len(shown) // columns)
    figure = make_subplots(
        rows=rows, cols=columns, subplot_titles=[" "] * len(shown), shared_xaxes="all", shared_yaxes="all",
        horizontal_spacing=0.03, vertical_spacing=0.16 if rows > 1 else 0.0,
    )  # fmt: skip
    streets = ground.iloc[:: max(1, len(ground) // _STREETS)]
    dots = {"size": 2, "color": GREY, "opacity": 0.4}
    for place in range(len(shown)):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        figure.add_scatter(
            x=streets["lon"], y=streets["lat"], mode="markers", marker=dots, hoverinfo="skip",
            showlegend=False, **at,
        )  # fmt: skip
        figure.add_scatter(x=[], y=[], mode="markers", hoverinfo="text", showlegend=False, **at)
    low, high = limits or (float(heard[value].min()), float(heard[value].max()))
    colours = STOPS[::-1]
    figure.update_layout(
        template="simple_white",
        height=110 + (_PANEL_PX + 50) * rows,
        title={"text": title, "font": {"size": 16}},
        margin={"l": 60, "r": 20, "t": 100 if title else 60, "b": 50},
        coloraxis={
            "cmin": low, "cmax": high,
            "colorbar": {"title": {"text": label, "side": "right"}, "thickness": 12},
            "colorscale": [[at / (len(colours) - 1), colour] for at, colour in enumerate(colours)],
        },
    )  # fmt: skip
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
    figure.layout.meta = {"value": value, "label": label, "side_px": _side_px(heard, x, y, stretch, columns)}
    move(figure, heard, shown)
    return figure


def move(figure: Any, heard: pd.DataFrame, shown: Sequence[Panel]) -> None:
    """Show other receivers, moments or values in a figure made by :func:`knowledge`, as many as before."""
    meta = figure.layout.meta
    with figure.batch_update():
        for place, (receiver, t_s) in enumerate(shown):
            rows = known(heard, receiver, t_s)
            figure.data[2 * place + 1].update(**_cells(rows, meta["value"], meta["label"], meta["side_px"]))
            figure.layout.annotations[place].text = _headline(receiver, t_s, rows)


def clock(t_s: float) -> str:
    """Write a moment as minutes and seconds."""
    minutes, seconds = divmod(round(t_s), 60)
    return f"{minutes}:{seconds:02d}"


def _headline(receiver: str, t_s: float, rows: pd.DataFrame) -> str:
    """Say how much a receiver knows, and how old it is."""
    told = "nothing yet"
    if len(rows):
        told = f"{len(rows)} cells, median age {rows['age_s'].median():.0f} s"
    return f"<b>{receiver}</b>, {clock(t_s)} min<br>{told}"


def _cells(rows: pd.DataFrame, value: str, label: str, side_px: float) -> dict[str, Any]:
    opacity = np.clip(1 - (1 - _LEAST) * rows["age_s"] / _FADED_S, _LEAST, 1.0)
    told = [
        f"{each[value]:.4g} {label}<br>{each['messages']} messages, {each['age_s']:.0f} s old"
        for each in rows.to_dict("records")
    ]
    return {
        "x": rows["lon"].tolist(),
        "y": rows["lat"].tolist(),
        "text": told,
        "marker": {
            "symbol": "square", "size": side_px, "color": rows[value].tolist(), "coloraxis": "coloraxis",
            "opacity": opacity.round(2).tolist(), "line": {"width": 0},
        },
    }  # fmt: skip


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
