"""Knowledge of receivers over time: cells coloured by the last value that reached each receiver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import folium
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import NDArray
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import INK
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.alternative import described, plain
from mudkit.figures.maps import cell_slides
from mudkit.figures.style import (
    ORANGE,
    SEQUENCE,
    TEXT_PX,
    colour_steps,
    dots,
    heading,
    ink_on,
    ramp,
    span_of,
    styled,
)
from mudkit.figures.tables import require_columns
from mudkit.units import KM_PER_DEGREE, box_bounds

Panel = tuple[str, float]
"""A receiver, and a moment in seconds."""

_RECEIVED_COLUMNS: Final = ("t_s", "receiver", "lat", "lon", "messages", "reported_s")
_GRID_COLUMNS: Final = (
    "cells_zoom", "cell_km", "interval_s", "bytes_left_share", "position_error_m", "keeps_limits",
)  # fmt: skip
_GRID_ROW_PX, _GRID_MARGINS_PX = 48, 190
_GRID_FRAME: Final = "below: distance of 95 % of the positions; in brackets: breaks a limit; framed: the best"
_MAX_STREET_POINTS: Final = 3000
_FADED_S: Final = 600.0  # older cells have the least opacity
_MIN_OPACITY: Final = 0.25
_PANEL_PX: Final = 300
_TOUCH_PX: Final = 24
_SCALE_SHARE: Final = 0.09  # of the height, below the cells
_DEFAULT_KM: Final = 1.0  # side of cells that do not state theirs
_SCALES_KM: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@check_arguments(types=False)
class ReceivedCells:
    """Received cells, indexed so that a slider finds quickly what a receiver knows at a moment.

    Parameters
    ----------
    table : pandas.DataFrame
        A row per received cell: ``t_s`` (time of arrival, seconds), ``receiver``, ``lat, lon`` (the cell's
        middle, degrees), perhaps ``km`` (its side), ``messages``, ``reported_s`` (mean time at which
        these were sent, seconds) and columns of values, as ``cells`` of
        :class:`mudkit.systems.radiator.Played`.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        require_columns(table, "cells", _RECEIVED_COLUMNS, remedy="Traffic(…).run(…).cells is such a table")
        self.table = table.sort_values("reported_s", kind="stable", ignore_index=True)
        cells = self.table.groupby(["lat", "lon"]).ngroup().to_numpy()
        self._by_receiver = {
            str(receiver): (np.asarray(rows), self.table["t_s"].to_numpy()[rows], cells[rows])
            for receiver, rows in self.table.groupby("receiver").indices.items()
        }

    def rows(self, receiver: str, t_s: float) -> NDArray[np.int64]:
        """Return the rows that a receiver knows, by time of sending: the last-sent row of each cell."""
        if receiver not in self._by_receiver:
            return np.array([], np.int64)
        rows, arrived_s, cells = self._by_receiver[receiver]
        arrived = np.flatnonzero(arrived_s <= t_s)[::-1]
        _, last = np.unique(cells[arrived], return_index=True)
        return np.sort(rows[arrived[last]]).astype(np.int64)

    def known(self, receiver: str, t_s: float) -> pd.DataFrame:
        """Return what a receiver knows at a moment, with ``age_s``, the age of each row in seconds."""
        last = self.table.iloc[self.rows(receiver, t_s)]
        return last.assign(age_s=t_s - last["reported_s"])


@described
def knowledge(
    cells: pd.DataFrame,
    positions: pd.DataFrame,
    shown: Sequence[Panel],
    *,
    value: str,
    label: str,
    columns: int = 2,
    title: str = "",
    limits: tuple[float, float] | None = None,
) -> go.Figure:
    """Draw a map of what receivers know at moments, a panel per receiver and moment; older cells are paler.

    Parameters
    ----------
    cells : pandas.DataFrame
        As in :class:`ReceivedCells`.
    positions : pandas.DataFrame
        ``lat, lon`` of all positions, degrees, which draw the streets.
    shown : sequence of (str, float)
        Receivers and moments (seconds), row by row.
    value : str
        Column that gives the colour; high values are dark.
    label : str
        Title of the colour scale, with the unit.
    columns : int
        Number of panels side by side.
    title : str
        Title of the figure.
    limits : (float, float), optional
        Ends of the colour scale; by default those of all received values.

    Raises
    ------
    ParameterError
        A column is missing, or there is no panel.
    TraceContentError
        ``positions`` is empty.
    """
    if not shown or value not in cells.columns:
        raise ParameterError(
            "There is no panel to draw, or no such column.",
            where="shown, value",
            found=f"{len(shown)} panels, {value!r}",
            expected=f"panels, and one of {', '.join(map(str, cells.columns))}",
        )
    if not len(positions):
        raise TraceContentError("There is no ground to draw.", expected="at least one position")
    rows = -(-len(shown) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[" "] * len(shown),
        shared_xaxes="all",
        shared_yaxes="all",
        horizontal_spacing=0.03,
        vertical_spacing=0.12 if rows > 1 else 0.0,
    )
    streets = positions.iloc[:: max(1, len(positions) // _MAX_STREET_POINTS)]
    areas = _areas(cells)
    x = span_of([*positions["lon"], *areas["west"], *areas["east"]], 0.03)
    y = span_of([*positions["lat"], *areas["south"], *areas["north"]], 0.03)
    stretch = 1 / float(np.cos(np.radians(positions["lat"].median())))
    # Shapes draw the cells in their true size; the markers give the colour scale and the hover text.
    middles = {"symbol": "square", "coloraxis": "coloraxis", "size": _TOUCH_PX, "line": {"width": 0}}
    for place in range(len(shown)):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        figure.add_trace(dots(streets["lon"], streets["lat"]), **at)
        figure.add_scatter(
            x=[], y=[], mode="markers", marker=middles, opacity=0, hoverinfo="text", showlegend=False, **at
        )
    y[0] -= _SCALE_SHARE * (y[1] - y[0])
    _add_scale(figure, x, y, stretch)
    low, high = limits or (float(cells[value].min()), float(cells[value].max()))
    colours = {
        "cmin": low,
        "cmax": high,
        "colorbar": {"title": {"text": label, "side": "right"}, "thickness": 12},
        "colorscale": colour_steps(),
    }
    margin = (60, 20, 100 if title else 60, 50)
    styled(figure, 110 + (_PANEL_PX + 50) * rows, margin, title, coloraxis=colours)
    figure.update_xaxes(range=x, visible=False)
    figure.update_yaxes(range=y, visible=False)
    for place in range(len(shown)):
        axis = "" if place == 0 else str(place + 1)
        figure.layout[f"yaxis{axis}"].update(scaleanchor=f"x{axis}", scaleratio=stretch)
    figure.update_annotations(font_size=TEXT_PX)
    figure.layout.meta = {"value": value, "label": label}
    update_knowledge(figure, ReceivedCells(cells), shown)
    return figure


@check_arguments(types=False)
def update_knowledge(figure: Any, cells: ReceivedCells, shown: Sequence[Panel]) -> None:
    """Show other receivers or moments in a figure that :func:`knowledge` returned.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Figure to change.
    cells : ReceivedCells
        Received cells.
    shown : sequence of (str, float)
        Receivers and moments (seconds), as many as before.
    """
    meta = figure.layout.meta
    known = [cells.known(receiver, t_s) for receiver, t_s in shown]
    panels = [_panel(rows, *panel, meta) for rows, panel in zip(known, shown, strict=True)]
    headlines: dict[str, Any] = {
        f"annotations[{place}].text": headline for place, (headline, _) in enumerate(panels)
    }
    text = ". ".join(map(plain, [figure.layout.title.text, *(headline for headline, _ in panels)]))
    headlines["meta"] = {**meta, "alt": text}
    headlines["shapes"] = [
        shape for place, rows in enumerate(known) for shape in _shapes(rows, figure.layout, place)
    ]
    changed = {name: [cells[name] for _, cells in panels] for name in panels[0][1]}
    # A single message to the browser with the changes alone.
    figure.plotly_update(changed, headlines, trace_indexes=[2 * place + 1 for place in range(len(shown))])


def _panel(known: pd.DataFrame, receiver: str, t_s: float, meta: Any) -> tuple[str, dict[str, Any]]:
    """Return the headline of a panel and the changes to the trace of its cells."""
    age_s, values, label = known["age_s"], known[meta["value"]], meta["label"]
    headline = f"{len(known)} cells, age {age_s.median():.0f} s" if len(known) else "nothing yet"
    points = zip(values, known["messages"], age_s, strict=True)
    return f"<b>{receiver}</b>, {words.duration(t_s)}<br>{headline}", {
        "x": known["lon"].tolist(),
        "y": known["lat"].tolist(),
        "text": [
            f"{number:.4g} {label}<br>{count} messages, {age:.0f} s old" for number, count, age in points
        ],
        "marker.color": values.tolist(),
        "marker.opacity": _opacity(age_s.to_numpy()).tolist(),
    }


def _opacity(age_s: NDArray[Any]) -> NDArray[Any]:
    """Return the opacity of cells by their age."""
    return np.clip(1 - (1 - _MIN_OPACITY) * age_s / _FADED_S, _MIN_OPACITY, 1.0).round(2)


def _shapes(known: pd.DataFrame, layout: Any, place: int) -> list[dict[str, Any]]:
    """Return the cells of a panel as rectangles."""
    colours = layout.coloraxis
    span = (colours.cmax - colours.cmin) or 1.0
    shares = ((known[layout.meta["value"]].astype(float) - colours.cmin) / span).clip(0.0, 1.0)
    fills = sample_colorscale(list(SEQUENCE), shares.tolist()) if len(known) else []
    axis = "" if place == 0 else str(place + 1)
    areas = zip(*_areas(known).values(), fills, _opacity(known["age_s"].to_numpy()).tolist(), strict=True)
    return [
        {
            "type": "rect", "layer": "below", "xref": f"x{axis}", "yref": f"y{axis}", "line": {"width": 0},
            "x0": west, "x1": east, "y0": south, "y1": north, "fillcolor": fill, "opacity": opacity,
        }
        for south, west, north, east, fill, opacity in areas
    ]  # fmt: skip


def _areas(cells: pd.DataFrame) -> dict[str, list[float]]:
    """Return the edges of cells, in degrees."""
    km: Any = cells.get("km", _DEFAULT_KM)
    return {
        name: np.asarray(edge).tolist()
        for name, edge in box_bounds(cells["lat"], cells["lon"], km)._asdict().items()
    }


def _add_scale(figure: go.Figure, x: list[float], y: list[float], stretch: float) -> None:
    """Add a bar of a round number of kilometres to the first panel."""
    across_km = (x[1] - x[0]) / stretch * KM_PER_DEGREE
    km = max((length for length in _SCALES_KM if length <= across_km / 4), default=_SCALES_KM[0])
    left, bottom = x[0] + 0.03 * (x[1] - x[0]), y[0] + 0.02 * (y[1] - y[0])
    right = left + km * stretch / KM_PER_DEGREE
    figure.add_scatter(
        x=[left, right], y=[bottom, bottom], mode="lines+text", text=["", f"{km:g} km"],
        textposition="middle right", line={"color": INK, "width": 3},
        hoverinfo="skip", showlegend=False, row=1, col=1,
    )  # fmt: skip


@check_arguments(types=False)
def knowledge_map(
    cells: pd.DataFrame,
    positions: pd.DataFrame,
    receivers: Sequence[str],
    *,
    value: str,
    label: str,
    every_s: float,
    until_s: float,
    first_s: float = 0.0,
) -> folium.Map:
    """Draw what each receiver knows over time on an offline map with a slider; high values are dark.

    Parameters
    ----------
    cells : pandas.DataFrame
        As in :class:`ReceivedCells`, and ``km``, the side of the cells.
    positions : pandas.DataFrame
        ``lat, lon`` of all positions, degrees, which draw the positions.
    receivers : sequence of str
        Receivers to choose from.
    value : str
        Column that gives the colour.
    label : str
        Title of the legend, with the unit.
    every_s, until_s : float
        Interval between the pictures, and time of the last one, seconds.
    first_s : float
        Time of the picture that is shown first, seconds; the last picture up to it is chosen.

    Raises
    ------
    ParameterError
        A table lacks a column, or there are more cells than a map holds.
    TraceContentError
        Nothing arrives until then.
    """
    received = ReceivedCells(cells)
    moments = np.arange(every_s, until_s + every_s / 2, every_s).tolist()
    parts = [
        received.known(receiver, t_s).assign(of=receiver, at=f"at {words.duration(t_s)}")
        for t_s in moments
        for receiver in receivers
    ]
    rows = pd.concat(parts, ignore_index=True)
    edges = box_bounds(rows["lat"], rows["lon"], rows["km"])._asdict()
    columns = {"known to": rows["of"], "at": rows["at"], value: rows[value].astype(float)}
    columns["text"] = rows["age_s"].map("{:.0f} s old".format)
    labels = list(dict.fromkeys(rows["at"]))
    near = [number for number, t_s in enumerate(moments[-len(labels) :]) if t_s <= first_s] or [0]
    return cell_slides(
        pa.table({**edges, **columns}), value, time="at", by="known to", text="text", label=label,
        positions=pa.table({name: positions[name].to_numpy() for name in ("lat", "lon")}),
        first=near[-1],
    )  # fmt: skip


@described
def joining_grid(table: pd.DataFrame, *, best: tuple[int, int], title: str) -> go.Figure:
    """Draw the share of bytes that combinations of interval and cell leave, as a grid.

    Parameters
    ----------
    table : pandas.DataFrame
        A row per combination: ``cells_zoom, cell_km, interval_s, bytes_left_share, position_error_m,
        keeps_limits``. Combinations that break a limit are in brackets. Intervals that were tried with some
        levels only are left out, but for that of the best.
    best : (int, int)
        Zoom level and interval, seconds, of the combination that is framed.
    title : str
        Title of the figure.
    """
    require_columns(table, "table", _GRID_COLUMNS)
    tried = table.groupby("interval_s")["cells_zoom"].nunique()
    lengths_s = sorted({*tried.index[tried == tried.max()], best[1]})
    zooms = sorted(set(table["cells_zoom"]), reverse=True)
    left, error_m, kept = (
        table.pivot(index="cells_zoom", columns="interval_s", values=name)
        .reindex(index=zooms, columns=lengths_s)
        .to_numpy(dtype=np.float64)
        for name in ("bytes_left_share", "position_error_m", "keeps_limits")
    )
    sides = table.drop_duplicates("cells_zoom").set_index("cells_zoom")["cell_km"]
    rows = [words.distance(float(sides[zoom])) for zoom in zooms]
    columns = [words.duration(length_s) for length_s in lengths_s]
    texts = [
        [
            f"{words.percent(share)} left, 95 % within {_metres(metres)}" if share == share else ""
            for share, metres in zip(*both, strict=True)
        ]
        for both in zip(left, error_m, strict=True)
    ]
    figure = go.Figure(
        go.Heatmap(
            z=100 * left, x=columns, y=rows, xgap=2, ygap=2, zmin=0, zmax=100, colorscale=colour_steps(),
            colorbar={"title": {"text": "bytes left, %"}, "thickness": 12}, hovertext=texts,
            hovertemplate="cells %{y} wide, every %{x}: %{hovertext}<extra></extra>",
        )
    )  # fmt: skip
    shades = ramp(101)
    for row, column in np.argwhere(np.isfinite(left)).tolist():
        share, text = left[row, column], words.percent(left[row, column]).removesuffix(" %")
        text = text if kept[row, column] == 1 else f"({text})"
        figure.add_annotation(
            x=columns[column], y=rows[row], showarrow=False,
            text=f"<b>{text}</b><br>{_metres(error_m[row, column])}",
            font={"size": TEXT_PX, "color": ink_on(shades[round(100 * min(share, 1.0))])},
        )  # fmt: skip
    if best[0] in zooms:
        x, y = lengths_s.index(best[1]), zooms.index(best[0])
        figure.add_shape(
            type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5, opacity=1,
            fillcolor="rgba(0,0,0,0)", line={"color": ORANGE, "width": 4},
        )  # fmt: skip
    for axis, names, text in (
        (figure.layout.xaxis, columns, "interval"), (figure.layout.yaxis, rows, "side of a cell")
    ):  # fmt: skip
        axis.update(title={"text": text}, type="category", showgrid=False)
        axis.update(categoryarray=names, range=[-0.5, len(names) - 0.5])
    height_px = _GRID_MARGINS_PX + _GRID_ROW_PX * len(zooms)
    return styled(figure, height_px, (80, 20, 80, 60), heading(title, _GRID_FRAME))


def _metres(distance_m: float) -> str:
    """Return a distance in metres in words."""
    return words.distance(distance_m / 1000) if distance_m else "0 m"
