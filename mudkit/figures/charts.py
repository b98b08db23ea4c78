"""Charts of tables: bars, lines and points with units at their axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.display import INK
from mudkit.errors import ParameterError
from mudkit.figures.alternative import described
from mudkit.figures.labels import point_labels
from mudkit.figures.style import (
    BLUE,
    GREEN,
    GREY,
    LEGEND_BELOW,
    ORANGE,
    PINK,
    TEXT_PX,
    heading,
    ink_on,
    styled,
    text_colour,
)
from mudkit.figures.tables import require_columns
from mudkit.figures.times import HOUR_US, TimeAxis, times_us
from mudkit.fleet.load import LOAD_COLUMNS

_SYMBOLS: Final = ("circle", "square", "triangle-up", "diamond", "x")
_COLOURS: Final = (BLUE, ORANGE, GREEN, PINK)
_LEGEND: Final = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"}
_MARGIN: Final = (70, 20, 60, 60)
_LABEL_SHARE: Final = 0.14
"""Height of the label of a crossing over it, as a share of the axis."""
_PANEL_ROW_PX, _PANEL_MARGINS_PX = 32, 150
_AXIS_LETTERS: Final = 36
"""Letters of an axis title across a figure of 590 px: JupyterLab at 1024 px with an open file browser."""
_SHORT_BAR: Final = 1.35
_NARROW: Final = 4
"""Panels beside each other in which there is room for few numbers."""
_TOWERING: Final = 20
"""Times the next bar from which a bar is left out, so that the others can be seen."""
_SIGNAL_ROW_PX, _SIGNAL_MARGINS_PX = 90, 120


@described
def rows_over_time(
    table: pd.DataFrame, *, title: str, tz: str, unit: Literal["hour", "day", "week"] = "hour"
) -> go.Figure:
    """Draw positions and reads over time, one above the other; sparse days of hours stand side by side.

    Parameters
    ----------
    table : pandas.DataFrame
        ``start, positions, reads``: the beginning of each hour, day or week, and counts.
    title : str
        Title of the figure.
    tz : str
        Time zone of ``start``, for the axis.
    unit : {'hour', 'day', 'week'}
        What a row of the table is.
    """
    require_columns(table, "table", ("start", "positions", "reads"))
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    x, across = table["start"], {"title_text": f"{unit}, {tz}"}
    if unit == "hour" and len(table):
        start_us = times_us(table, "start", "table")
        if (axis := TimeAxis.of(start_us, zone=tz)).days:
            x, across = axis.values(start_us + HOUR_US // 2), axis.layout()
    every = f"{'an' if unit == 'hour' else 'a'} {unit}"
    for row, (name, colour) in enumerate((("positions", BLUE), ("reads", ORANGE)), start=1):
        figure.add_trace(go.Bar(x=x, y=table[name], name=name, marker_color=colour, showlegend=False), row, 1)
        figure.update_yaxes(title_text=f"{name} {every}", rangemode="tozero", tickformat=",", row=row, col=1)
    figure.update_xaxes(row=2, col=1, **across)
    return styled(figure, 440, _MARGIN, title, legend=_LEGEND, bargap=0)


@described
def server_load(table: pd.DataFrame, *, title: str = "Load of the servers") -> go.Figure:
    """Draw how busy servers are over time, how many messages wait and are lost, and for how long they wait.

    Parameters
    ----------
    table : pandas.DataFrame
        As :meth:`mudkit.lab.Lab.server_load` returns it: a row for each server and minute in which something
        happened. Of more than four servers, the four that are busiest are drawn.
    title : str
        Title of the figure.
    """
    require_columns(table, "table", LOAD_COLUMNS)
    busiest = table.groupby("server", sort=False)["busy_share"].sum().sort_values(ascending=False)
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    rows = (
        ("busy_share", "busy", ".0%"),
        ("max_waiting", "in the queue", ","),
        ("max_wait_s", "longest wait, s", None),
    )
    for server, colour in zip(busiest.index[: len(_COLOURS)], _COLOURS, strict=False):
        minutes = table[table["server"] == server].set_index("start")
        minutes = minutes.reindex(pd.date_range(table["start"].min(), table["start"].max(), freq="min"))
        for row, (column, _, _) in enumerate(rows, start=1):
            line = go.Scatter(
                x=minutes.index,
                y=minutes[column].fillna(0),
                name=str(server),
                legendgroup=str(server),
                showlegend=row == 1,
                line={"color": colour, "shape": "hv"},
            )
            figure.add_trace(line, row, 1)
    for row, (_, name, form) in enumerate(rows, start=1):
        figure.update_yaxes(title_text=name, rangemode="tozero", tickformat=form, row=row, col=1)
    figure.update_xaxes(title_text="hour, UTC", row=3, col=1)
    lost = int(table["lost"].sum())
    ending = f" {lost:,} messages did not fit into a queue." if lost else ""
    if len(busiest) > len(_COLOURS):
        ending += f" The {len(_COLOURS)} busiest of {len(busiest)} servers."
    return styled(figure, 520, _MARGIN, f"{title}.{ending}" if ending else title, legend=_LEGEND)


@described
def histogram(table: pd.DataFrame, *, title: str, unit: str) -> go.Figure:
    """Draw counts of durations or numbers in bins, each named by its lower edge.

    A bar 20 times as high as the next one, or higher, is not drawn: its number stands at its place.

    Parameters
    ----------
    table : pandas.DataFrame
        Edges of the bins, ``from_s, to_s`` (seconds) or ``from_…, to_…`` (numbers in any other unit), of
        which the last one may be infinite, and, as the last column, the counts.
    title : str
        Title of the figure.
    unit : str
        Title of the axis of bins, with the unit.
    """
    low = next((name for name in map(str, table.columns) if name.startswith("from_")), "from_s")
    require_columns(table, "table", (low, low.replace("from_", "to_")))
    counts = table.columns[-1]
    edges = list(zip(table[low], table[low.replace("from_", "to_")], strict=True))
    as_text = words.duration if low == "from_s" else words.number
    names = [as_text(low) for low, _ in edges]
    drawn = table[counts].astype(float)
    others = drawn.nlargest(2).iloc[1:]
    is_towering = (drawn >= _TOWERING * others.max()) & (others.max() > 0)
    figure = go.Figure(
        go.Bar(
            x=names,
            y=drawn.mask(is_towering),
            marker_color=BLUE,
            texttemplate="%{y:,}",  # also tells bars that are too low to be seen
            textposition="outside",
            cliponaxis=False,
            customdata=[
                f"{as_text(low)} to {as_text(high)}" if np.isfinite(high) else f"{as_text(low)} or more"
                for low, high in edges
            ],
            hovertemplate="%{customdata}: %{y:,}<extra></extra>",
        )
    )
    for place in np.flatnonzero(is_towering):
        count = f"{int(table[counts].iloc[place]):,}"
        figure.add_annotation(
            x=names[place], y=0, text=f"{count}:<br>not drawn", yanchor="bottom", showarrow=False,
            font={"size": TEXT_PX},
        )  # fmt: skip
    figure.update_xaxes(
        title_text=unit,
        type="category",
        categoryorder="array",
        categoryarray=names,
        tickangle=-45 if len(edges) > 12 else 0,
    )
    figure.update_yaxes(title_text=counts, rangemode="tozero", tickformat=",")
    return styled(figure, 380, _MARGIN, title, legend=_LEGEND)


@described
def policy_scatter(table: pd.DataFrame, *, title: str) -> go.Figure:
    """Draw policies by the share of queries sent and of stale answers; the lower left is best.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`mudkit.learning.evaluate_reads` returns it: ``policy, sent_share, stale_share`` and the
        upper ends of the confidence intervals, ``sent_share_high, stale_share_high``. Names of policies that
        begin with ``bound`` are grey.
    title : str
        Title of the figure.
    """
    measures = ("sent_share", "stale_share")
    require_columns(
        table, "table", ("policy", *(f"{name}{end}" for name in measures for end in ("", "_high")))
    )
    figure, rows = go.Figure(), table.to_dict("records")
    for number, row in enumerate(rows):
        figure.add_trace(
            go.Scatter(
                x=[100 * row["sent_share"]],
                y=[100 * row["stale_share"]],
                error_x=_error(row, "sent_share"),
                error_y=_error(row, "stale_share"),
                name=str(row["policy"]),
                mode="markers",
                cliponaxis=False,
                marker=_marker(number, 13, is_grey=str(row["policy"]).startswith("bound")),
            )
        )
    # Room for a policy at the edge, but no share above 100 %.
    ends = [100 * float(np.nanmax([0.0, *table[name], *table[f"{name}_high"]])) for name in measures]
    spans = [min(1.08 * end, 100.0) if end > 0 else 1.0 for end in ends]
    figure.update_xaxes(title_text="queries sent, % of reads", range=[0, spans[0]])
    figure.update_yaxes(title_text="stale answers, % of reads", range=[0, spans[1]])
    places = [(100 * row["sent_share"], 100 * row["stale_share"]) for row in rows]
    labels = point_labels(
        places,
        [(x / spans[0], y / spans[1]) for x, y in places],
        [str(row["policy"]) for row in rows],
        [text_colour(str(trace.marker.color)) for trace in figure.data],
        sides_px=90,
        height_px=300,
        lines=[
            [(x / spans[0], y / spans[1]) for x, y in whisker]
            for trace in figure.data
            for whisker in _whiskers(trace)
        ],
    )
    return styled(figure, 420, _MARGIN, title, showlegend=False, annotations=labels)


@described
def growth(table: pd.DataFrame, *, title: str, x: str, y: str, by: str) -> go.Figure:
    """Draw lines on two logarithmic axes, where proportional growth has a slope of one.

    Parameters
    ----------
    table : pandas.DataFrame
        A row per point.
    title : str
        Title of the figure.
    x, y : str
        Columns of positive numbers; their labels become the titles of the axes.
    by : str
        Column of the names of the lines; lines whose name begins with ``the paper`` are grey and dashed.
    """
    require_columns(table, "table", (x, y, by))
    across, up = words.label(x), words.label(y)
    figure = go.Figure()
    for number, (name, line) in enumerate(table.groupby(by, sort=False)):
        is_paper = str(name).startswith("the paper")
        figure.add_trace(
            go.Scatter(
                x=line[x] * across.scale,
                y=line[y] * up.scale,
                name=str(name),
                mode="lines+markers",
                line={"dash": "dash" if is_paper else "solid"},
                marker=_marker(number, 9, is_grey=is_paper),
            )
        )
    decades = {"type": "log", "dtick": 1, "tickformat": ",~r"}
    figure.update_xaxes(title_text=across.title, **decades)
    figure.update_yaxes(title_text=up.title, **decades)
    return styled(figure, 460, (70, 20, 50, 110), title, legend=LEGEND_BELOW)


@described
def crossover(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str = "system",
    title: str,
    x_title: str = "",
    y_title: str = "",
    is_log: bool = False,
) -> go.Figure:
    """Draw a measure of several systems over a parameter, and where the first two are equal.

    Lines are means over the seeds; bands reach from the lowest to the highest seed.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`mudkit.experiment.sweep` returns it: a row per (value, system, seed).
    x, y : str
        Columns of the parameter and of the measure. A share is drawn in percent.
    by : str
        Column of the names of the lines.
    title : str
        Title of the figure.
    x_title, y_title : str
        Titles of the axes; by default the labels of the columns with their units.
    is_log : bool
        Whether the parameter is on a logarithmic axis; its values are above 0.

    Raises
    ------
    ParameterError
        A column is missing, or the measure is negative or infinite somewhere.
    """
    require_columns(table, "table", (x, y, by))
    low, high = table[y].min(), table[y].max()
    if low < 0 or high == math.inf:  # the axis begins at 0
        raise ParameterError(
            "The measure cannot be drawn.",
            where=f"column {y!r}",
            found=f"{low} to {high}",
            expected="finite numbers, 0 or more",
            remedy="look at the parameters that it is computed from",
        )
    across, up = words.label(x), words.label(y)
    figure = go.Figure()
    lines: dict[str, pd.Series[float]] = {}
    ends = []
    for number, (name, rows) in enumerate(table.dropna(subset=[y]).groupby(by, sort=False)):
        spread = (rows.groupby(x)[y].agg(["mean", "min", "max"]) * up.scale).sort_index()
        at = spread.index.to_numpy(dtype=float) * across.scale
        lines[str(name)] = pd.Series(spread["mean"].to_numpy(), index=at)
        colour = _COLOURS[number % len(_COLOURS)]
        edge = np.concatenate([at, at[::-1]])
        figure.add_trace(
            go.Scatter(
                x=edge, y=np.concatenate([spread["max"], spread["min"][::-1]]), fill="toself",
                fillcolor=colour, opacity=0.18, line={"width": 0}, mode="lines", hoverinfo="skip",
                showlegend=False,
            )
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=at, y=spread["mean"], name=str(name), mode="lines+markers",
                line={"color": colour, "width": 2.5}, marker=_marker(number, 9, is_grey=False),
            )
        )  # fmt: skip
        ends.append((float(spread["max"].max()), float(spread["min"].min())))
    top = max((high for high, _ in ends), default=1.0) or 1.0
    crossings = _crossings(*list(lines.values())[:2], is_log=is_log) if len(lines) > 1 else []
    for begin, end, value in crossings:
        is_left = next(iter(lines.values())).index.searchsorted(begin) <= len(table[x].unique()) / 2
        equal = _place(begin, across) if begin == end else f"{_number(begin)} to {_place(end, across)}"
        figure.add_vline(begin, line={"dash": "dot", "width": 1.5, "color": GREY})
        is_clear_above = _is_clear_above(lines, begin, value, top)
        figure.add_annotation(
            x=math.log10(begin) if is_log else begin, y=value, text=f"equal at {equal}", showarrow=True,
            arrowcolor=INK, ax=45 if is_left else -60, ay=-38 if is_clear_above else 38,
        )  # fmt: skip
    figure.update_xaxes(title_text=x_title or across.title)
    if is_log:
        values = sorted({float(value) * across.scale for value in table[x]})
        figure.update_xaxes(type="log", tickvals=values, ticktext=[words.number(value) for value in values])
        figure.update_xaxes(minor={"ticks": ""})
    elif lines:
        places = np.concatenate([line.index for line in lines.values()])
        figure.update_xaxes(range=_with_room(places.min(), places.max(), across))
    low = min((low for _, low in ends), default=0.0)
    bottom = low if low > top / 2 or low < 0 else 0.0
    figure.update_yaxes(title_text=y_title or up.title, range=_with_room(bottom, top, up))
    below = heading(title, _which_is_lower(lines, crossings, across))
    return styled(figure, 440, (70, 20, 120, 60), below, legend=_LEGEND)


def _is_clear_above(lines: Mapping[str, pd.Series[float]], place: float, value: float, top: float) -> bool:
    """Return whether a label above a crossing is off the lines, or there is no room for it below."""
    up = _LABEL_SHARE * top
    heights = [float(np.interp(place, line.index, line)) for line in lines.values()]
    return value < 1.5 * up or all(abs(height - value - up) > up / 2 for height in heights)


def _number(place: float) -> str:
    """Return a place on the axis of a crossover with two significant digits."""
    return words.number(place, words.decimals([place], 2))


def _place(place: float, label: words.Label) -> str:
    """Return a place on the axis of a crossover with its unit."""
    return f"{_number(place)}\u202f{'%' if label.unit.startswith('%') else label.unit}".rstrip()


def _which_is_lower(
    lines: Mapping[str, pd.Series[float]],
    crossings: Sequence[tuple[float, float, float]],
    label: words.Label,
) -> str | None:
    """Return a sentence on where the first of two lines is below the second; None if they do not differ."""
    if len(lines) < 2:
        return None
    (one, first), (other, second) = list(lines.items())[:2]
    ahead = _differences(first, second)
    differ = np.flatnonzero(ahead)
    if not differ.size:
        return None
    start, stop = differ[0], differ[-1] + 1
    lower, higher = (one, other) if ahead.iloc[start] < 0 else (other, one)
    equal = [_place(begin, label) for begin, _, _ in crossings]
    if len(equal) > 1:
        text = f"{lower} is lower at first; {one} and {other} are equal at "
        text += f"{', '.join(equal[:-1])} and {equal[-1]}"
    elif equal:
        begin, end, _ = crossings[0]
        above = "it" if begin == end else _place(end, label)
        text = f"{lower} is lower below {equal[0]}, {higher} above {above}"
    elif start:
        text = f"{lower} is lower above it"
    elif stop < len(ahead):
        text = f"{lower} is lower than {higher}"
    elif len(differ) < len(ahead):
        text = f"{lower} is nowhere higher than {higher}"
    else:
        text = f"{lower} is lower than {higher} throughout"
    if start:
        until = f"{'up to' if start > 1 else 'at'} {_place(ahead.index[start - 1], label)}"
        text = f"Equal {until}, then {text}" if equal else f"{one} and {other} are equal {until}, {text}"
    if stop < len(ahead):
        since = "from" if len(ahead) - stop > 1 else "at"
        text += f"; both are equal {since} {_place(ahead.index[stop], label)}"
    return text + "."


def _with_room(low: float, high: float, label: words.Label) -> list[float]:
    """Return the range of an axis with some room at the ends, and without values that cannot be."""
    room = 0.08 * (high - low)
    most = 100.0 if label.unit.startswith("%") and high <= 100 else math.inf
    return [low - room if low < 0 else max(low - room, 0.0), min(high + room, most)]


def _differences(one: pd.Series[float], other: pd.Series[float]) -> pd.Series[float]:
    """Return how far a line is above another at each place of both; 0 where they differ by rounding only."""
    both = pd.DataFrame({"one": one, "other": other}).dropna()
    return (both["one"] - both["other"]).mask(np.isclose(both["one"], both["other"], rtol=1e-9, atol=0), 0.0)


def _crossings(
    one: pd.Series[float], other: pd.Series[float], *, is_log: bool = False
) -> list[tuple[float, float, float]]:
    """Return where two lines change their order, as drawn on a (logarithmic) axis.

    Each crossing is the first and the last place at which the lines are equal, and their value at the first.
    """
    differences = _differences(one, other)
    ahead, first = differences.to_numpy(), one[differences.index].to_numpy()
    at = differences.index.to_numpy(dtype=float)
    crossings: list[tuple[float, float, float]] = []
    for before, after in pairwise(np.flatnonzero(ahead)):
        if ahead[before] * ahead[after] > 0:
            continue
        if after > before + 1:
            crossings.append((float(at[before + 1]), float(at[after - 1]), float(first[before + 1])))
            continue
        share = ahead[before] / (ahead[before] - ahead[after])
        ends = np.log(at[[before, after]]) if is_log else at[[before, after]]
        x, y = (begin + share * (end - begin) for begin, end in (ends, first[[before, after]]))
        place = float(np.exp(x) if is_log else x)
        crossings.append((place, place, float(y)))
    return crossings


@described
def bar_panels(table: pd.DataFrame, measures: Mapping[str, str], *, title: str, y: str) -> go.Figure:
    """Draw horizontal bars with their numbers, a panel per measure, the same rows in each.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows from top to bottom.
    measures : mapping of str to str
        Columns of numbers, 0 or more, and the titles of their axes, units included.
    title : str
        Title of the figure.
    y : str
        Column of the names of the rows.
    """
    require_columns(table, "table", [y, *measures])
    figure = make_subplots(rows=1, cols=len(measures), shared_yaxes=True, horizontal_spacing=0.06)
    for place, (measure, axis_title) in enumerate(measures.items(), start=1):
        values = table[measure]
        places = words.decimals(values)
        texts = [words.number(value, places if value else 0) for value in values]
        most = max(float(values.max()), 0.0) if len(values) else 0.0
        # Shares end at 100 %, with the numbers of long bars inside, unless all bars are short.
        is_share = "%" in axis_title and 100.0 / _SHORT_BAR < most <= 100.0
        figure.add_trace(
            go.Bar(
                x=values, y=table[y].map(str), orientation="h", marker_color=BLUE, showlegend=False,
                name=axis_title, text=texts, cliponaxis=False,
                textposition="auto" if is_share else "outside",
                insidetextfont={"color": ink_on(BLUE)},
            ), 1, place,
        )  # fmt: skip
        end = 100.0 if is_share else _SHORT_BAR * most or 1.0
        lines = textwrap.wrap(axis_title, _AXIS_LETTERS // len(measures))
        figure.update_xaxes(title_text="<br>".join(lines), range=[0, end], row=1, col=place)
    figure.update_xaxes(nticks=4 if len(measures) < _NARROW else 3, tickformat=",", tickangle=0)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="")
    return styled(figure, _PANEL_MARGINS_PX + _PANEL_ROW_PX * max(len(table), 2), (70, 30, 60, 60), title)


@described
def signals(
    samples: Mapping[str, Sequence[float]], *, hz: float, title: str, y: str, seconds: float | None = None
) -> go.Figure:
    """Draw signals that cover the same time, one below the other on one scale.

    Parameters
    ----------
    samples : mapping of str to sequence of float
        Samples of each signal by its heading. The first signal has ``hz`` samples per second; the others are
        spread evenly over the same time.
    hz : float
        Sampling rate of the first signal, above 0.
    title : str
        Title of the figure.
    y : str
        Title of the axis of values, with the unit.
    seconds : float, optional
        Length of the beginning that is shown; by default all of it.

    Raises
    ------
    ParameterError
        There is no signal, a signal has no sample, or ``hz`` is not above 0.
    """
    if not samples or any(len(values) == 0 for values in samples.values()) or not hz > 0:
        raise ParameterError(
            "There is nothing to draw.",
            where="samples, hz",
            found=f"{len(samples)} signals at {hz:g} Hz",
            expected="signals with samples, at more than 0 Hz",
        )
    length_s = len(next(iter(samples.values()))) / hz
    figure = make_subplots(
        rows=len(samples),
        cols=1,
        shared_xaxes=True,
        shared_yaxes="all",
        subplot_titles=list(samples),
        vertical_spacing=0.25 / len(samples),
    )
    for row, (name, values) in enumerate(samples.items(), start=1):
        step_s = length_s / len(values)
        times_s = [(place + 0.5) * step_s for place in range(len(values))]
        # Sparse samples have markers, since the line between them is not measured.
        mode = "lines" if len(values) > 60 * length_s else "lines+markers"
        figure.add_trace(
            go.Scatter(
                x=times_s, y=list(values), mode=mode, name=name, showlegend=False,
                line={"color": BLUE, "width": 1.5}, marker={"size": 4},
            ), row, 1,
        )  # fmt: skip
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font={"size": TEXT_PX})
    figure.update_xaxes(range=[0, length_s if seconds is None else min(seconds, length_s)])
    figure.update_xaxes(title_text="seconds", row=len(samples), col=1)
    low = min(min(values) for values in samples.values())
    high = max(max(values) for values in samples.values())
    margin = 0.05 * (high - low) or 1.0
    figure.update_yaxes(range=[low - margin, high + margin])
    figure.update_yaxes(nticks=4)
    figure.update_yaxes(title_text=y, row=(len(samples) + 1) // 2, col=1)
    height_px = _SIGNAL_MARGINS_PX + _SIGNAL_ROW_PX * len(samples)
    return styled(figure, height_px, (70, 20, 70, 50), heading(title, y=0.98, yanchor="top"))


def _marker(number: int, size: int, *, is_grey: bool) -> dict[str, Any]:
    """Return the marker of a point by its number, grey or coloured."""
    colour = GREY if is_grey else _COLOURS[number % len(_COLOURS)]
    return {"size": size, "symbol": _SYMBOLS[number % len(_SYMBOLS)], "color": colour}


def _error(row: Mapping[Any, Any], name: str) -> dict[str, object]:
    """Return the whiskers of a share, which stay between 0 and 100 %."""
    value, high = row[name], row[f"{name}_high"]
    low = row.get(f"{name}_low", 2 * value - high)
    above, below = 100 * (min(high, 1.0) - value), 100 * (value - max(low, 0.0))
    is_known = above == above and below == below and above + below > 0
    whiskers = {"array": [above], "arrayminus": [below]} if is_known else {}
    return {"type": "data", "symmetric": False, "visible": is_known, "thickness": 1, **whiskers}


def _whiskers(trace: Any) -> list[list[tuple[float, float]]]:
    """Return the ends of the whiskers of a single point."""
    x, y = trace.x[0], trace.y[0]
    lines = []
    if trace.error_x.visible:
        lines.append([(x - trace.error_x.arrayminus[0], y), (x + trace.error_x.array[0], y)])
    if trace.error_y.visible:
        lines.append([(x, y - trace.error_y.arrayminus[0]), (x, y + trace.error_y.array[0])])
    return lines
