"""Comparisons of policies and systems by two measures, or by latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.display import INK
from mudkit.errors import ParameterError
from mudkit.figures.alternative import described, redescribed
from mudkit.figures.labels import point_labels
from mudkit.figures.style import (
    BLUE,
    GREEN,
    GREY,
    LEGEND_ABOVE,
    LEGEND_BELOW,
    ORANGE,
    PINK,
    SKY,
    TEXT_PX,
    YELLOW,
    escaped,
    heading,
    ink_on,
    lanes,
    styled,
    text_colour,
)
from mudkit.figures.tables import require_columns

_CONDITION_MARKS: Final = (
    (GREY, "circle-open"),
    (BLUE, "circle"),
    (ORANGE, "square"),
    (GREEN, "diamond"),
    (PINK, "x"),
)
MAX_CONDITIONS: Final = len(_CONDITION_MARKS)
"""Maximum number of conditions that :func:`waste_and_loss` draws."""
_CONDITION_AXES: Final = {"waste": "wasted, % of what was forwarded", "loss": "lost, % of the best service"}
_TRADEOFF_MEASURES: Final = (
    ("waste", "waste", ORANGE, "circle", "solid", "rgba(213, 94, 0, 0.15)"),
    ("loss", "loss", BLUE, "square", "dash", "rgba(0, 114, 178, 0.15)"),
    ("empty_read_share", "reads in vain", GREEN, "diamond", "dot", "rgba(0, 158, 115, 0.15)"),
    ("cost_per_day", "cost a day", PINK, "triangle-up", "solid", "rgba(204, 121, 167, 0.15)"),
)
_INTERVALS: Final = tuple(f"{measure}{end}" for measure in _CONDITION_AXES for end in ("", "_low", "_high"))
_LEFT_LEGEND: Final = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"}
_SHARES: Final = ("sent_share", "stale_share")
_SHARES_HOVER: Final = "%{x:.1f} % sent, %{y:.1f} % stale"
_POINT_SYMBOLS: Final = ("square", "triangle-up", "diamond", "x", "star", "cross")
_POINT_COLOURS: Final = (ORANGE, GREEN, PINK, YELLOW, SKY, INK)
_SYSTEM_COLOURS: Final = (GREY, BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, INK)
_SYSTEM_DASHES: Final = ("dot", "solid", "dash", "longdash", "dashdot", "longdashdot")
_MAX_STEPS: Final = 200
_MIN_LATENCY_S: Final = 1e-3
_LATENCY_TICKS_S: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 259_200.0, 2_592_000.0)
_FATES: Final = (
    (BLUE, ""),
    (YELLOW, "/"),
    (ORANGE, "x"),
    (SKY, ""),
    ("#bbbbbb", ""),
)
_FATE_GAP_PX: Final = 44
_ALL_LARGE: Final = 60.0
_MIN_LABELLED: Final = 4.0
"""Parts of fewer percent have no number."""
_PAIR: Final = ((BLUE, "circle"), (ORANGE, "square"))
_PAIR_ROW_PX, _PAIR_MARGINS_PX, _PAIR_TITLE_PX = 92, 96, 34
_FRONT, _BEST, _OTHERS = range(3)  # traces of pareto


@described
def waste_and_loss(table: pd.DataFrame, *, title: str) -> go.Figure:
    """Draw waste and loss of policies side by side, a row per policy and a mark per condition.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`mudkit.systems.lasthop.compare_policies` returns it: ``condition, policy``, and
        shares from 0 to 1 with the ends of their confidence intervals, ``waste, waste_low, waste_high, loss,
        loss_low, loss_high``. NaN ends: no whisker.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table lacks a column, or has more than five conditions.
    """
    require_columns(table, "table", ("condition", "policy", *_INTERVALS))
    policies, conditions = list(dict.fromkeys(table["policy"])), list(dict.fromkeys(table["condition"]))
    if len(conditions) > MAX_CONDITIONS:
        raise ParameterError(
            "There are too many conditions for one figure.",
            where="table",
            found=f"{len(conditions)}",
            expected=f"{MAX_CONDITIONS} at most",
        )
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.05)
    for number, condition in enumerate(conditions):
        rows = table[table["condition"] == condition]
        # Marks of a policy lie side by side, so that their whiskers do not overlap.
        shift = 0.6 * ((number + 0.5) / len(conditions) - 0.5)
        places = [policies.index(name) + shift for name in rows["policy"]]
        colour, symbol = _CONDITION_MARKS[number]
        hover = f"%{{customdata}}: %{{x:.2f}} %<extra>{condition}</extra>"
        for place, measure in enumerate(_CONDITION_AXES, start=1):
            percent, low, high = (100 * rows[f"{measure}{end}"] for end in ("", "_low", "_high"))
            figure.add_trace(
                go.Scatter(
                    x=percent, y=places, mode="markers", name=str(condition), meta=f"{measure}, %",
                    legendgroup=str(condition), showlegend=place == 1,
                    marker={"color": colour, "symbol": symbol, "size": 9}, cliponaxis=False,
                    error_x={
                        "array": high - percent, "arrayminus": percent - low, "thickness": 1, "width": 3,
                    },
                    customdata=rows["policy"], hovertemplate=hover,
                ), 1, place,
            )  # fmt: skip
    for place, (measure, label) in enumerate(_CONDITION_AXES.items(), start=1):
        most = 100 * float(table[f"{measure}_high"].fillna(table[measure]).max()) or 1
        figure.update_xaxes(title_text=label, range=[0, min(1.08 * most, 100.0)], row=1, col=place)
    rows = lanes(list(map(str, policies)), -0.5, 0.5)
    figure.update_yaxes(**rows, automargin=True, showgrid=False, zeroline=False, ticklabelstandoff=8)
    top = heading(title, y=0.97, yanchor="top")
    return styled(figure, 150 + 58 * max(len(policies), 2), (70, 20, 90, 60), top, legend=_LEFT_LEGEND)


@described
def frontier(
    trees: pd.DataFrame,
    bound: pd.DataFrame,
    policies: pd.DataFrame,
    *,
    title: str,
    max_stale_share: float | None = None,
) -> go.Figure:
    """Draw stale answers over queries sent: trees and the bound as lines, policies as points.

    The lower left is best, and no policy can be left of the bound.

    Parameters
    ----------
    trees : pandas.DataFrame
        As :func:`mudkit.learning.frontier.read_frontier` returns it: ``sent_share, stale_share``, from 0 to
        1, a row per price of a stale answer.
    bound : pandas.DataFrame
        The fewest queries that any policy can send: the same columns.
    policies : pandas.DataFrame
        ``policy`` and the same columns.
    title : str
        Title of the figure.
    max_stale_share : float, optional
        Largest share of stale answers that is shown; by default all are.
    """
    for name, table, columns in (
        ("trees", trees, _SHARES),
        ("bound", bound, _SHARES),
        ("policies", policies, ("policy", *_SHARES)),
    ):
        require_columns(table, name, columns)
    figure = go.Figure()
    for name, table, line, symbol in (
        ("bound: nobody sends less", bound, {"color": GREY, "dash": "dash"}, "circle-open"),
        ("learnt policies", trees, {"color": BLUE}, "circle"),
    ):
        rows = table.sort_values([*_SHARES[::-1]], ascending=[True, False])
        figure.add_trace(
            go.Scatter(
                x=100 * rows["sent_share"],
                y=100 * rows["stale_share"],
                name=name,
                mode="lines+markers",
                line=line,
                marker={"size": 6, "symbol": symbol},
                cliponaxis=False,
                hovertemplate=f"{_SHARES_HOVER}<extra>{name}</extra>",
            )
        )
    shares = [(100 * row["sent_share"], 100 * row["stale_share"]) for row in policies.to_dict("records")]
    for place, (name, (sent, stale)) in enumerate(zip(map(str, policies["policy"]), shares, strict=True)):
        figure.add_trace(
            go.Scatter(
                x=[sent],
                y=[stale],
                name=name,
                mode="markers",
                showlegend=False,
                cliponaxis=False,
                hovertemplate=f"{_SHARES_HOVER}<extra>{name}</extra>",
                marker={
                    "size": 13,
                    "symbol": _POINT_SYMBOLS[place % len(_POINT_SYMBOLS)],
                    "color": _POINT_COLOURS[place % len(_POINT_COLOURS)],
                },
            )
        )
    drawn = pd.concat([trees, bound, policies])
    spans = [_axis_range((100 * drawn[name]).tolist()) for name in _SHARES]
    spans = [[0.0, min(high, 100.0)] for _, high in spans]
    if max_stale_share is not None:
        spans[1] = [0.0, min(100 * max_stale_share, 100.0) or 1.0]
    least = float((100 * drawn.loc[100 * drawn["stale_share"] <= spans[1][1], "sent_share"]).min())
    if least > _ALL_LARGE:  # else lines and points crowd at the right edge
        spans[0][0] = min(max(10.0 * np.floor((least - 0.3 * (100 - least)) / 10), 0.0), 90.0)
    figure.update_xaxes(title_text="queries sent, % of reads", range=spans[0])
    figure.update_yaxes(title_text="stale answers, % of reads", range=spans[1])
    shown = [number for number, (_, stale) in enumerate(shares) if stale <= spans[1][1]]
    labels = point_labels(
        [shares[number] for number in shown],
        [_place_shares(shares[number], spans) for number in shown],
        [str(policies["policy"].iloc[number]) for number in shown],
        [text_colour(_POINT_COLOURS[number % len(_POINT_COLOURS)]) for number in shown],
        sides_px=90,
        height_px=300,
        lines=[
            [_place_shares(point, spans) for point in zip(line.x, line.y, strict=True)]
            for line in figure.data[:2]
        ],
    )
    figure.update_layout(annotations=labels)
    top = heading(title, y=0.97, yanchor="top")
    return styled(figure, 440, (70, 20, 80, 60), top, legend=_LEFT_LEGEND)


@described
def latencies(table: pd.DataFrame, wanted_count: Mapping[str, int], *, title: str) -> go.Figure:
    """Draw the share of wanted items that each system delivered within a latency.

    A line ends at the share that was useful: the rest was lost, or late. A system without any useful delivery
    has a line at 0.

    Parameters
    ----------
    table : pandas.DataFrame
        ``system, latency_s``: a row per useful delivery, seconds; 0 is drawn as a millisecond.
    wanted_count : mapping of str to int
        Number of pairs of an item and a phone that wanted it, by system, in the order of the legend.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table lacks a column, or ``wanted_count`` lacks a system of the table.
    """
    require_columns(table, "table", ("system", "latency_s"))
    if unknown := sorted(set(table["system"]) - set(wanted_count)):
        raise ParameterError(
            "The number of wanted items is missing for a system of the table.",
            where="wanted_count",
            found=", ".join(wanted_count),
            expected=", ".join(unknown),
        )
    longest_s = max([10.0, *table["latency_s"]])
    figure = go.Figure()
    for number, (system, count) in enumerate(wanted_count.items()):
        seconds = np.sort(table.loc[table["system"] == system, "latency_s"].to_numpy(float))
        seconds = np.maximum(seconds, _MIN_LATENCY_S)
        places = np.unique(np.linspace(0, max(len(seconds) - 1, 0), _MAX_STEPS).round().astype(int))
        places = places[: len(seconds)]
        share = [0.0, *((places + 1) / max(count, 1) * 100)]
        figure.add_trace(
            go.Scatter(
                x=[_MIN_LATENCY_S, *seconds[places], longest_s],
                y=[*share, share[-1]],
                name=system,
                mode="lines",
                line={
                    "shape": "hv",
                    "color": _SYSTEM_COLOURS[number % len(_SYSTEM_COLOURS)],
                    "dash": _SYSTEM_DASHES[number % len(_SYSTEM_DASHES)],
                    "width": 2.5,
                },
                customdata=[words.duration(s) for s in [_MIN_LATENCY_S, *seconds[places], longest_s]],
                hovertemplate="%{y:.0f} % within %{customdata}",
            )
        )
    figure.update_xaxes(
        title_text="from publication to delivery",
        type="log",
        tickvals=[seconds for seconds in _LATENCY_TICKS_S if seconds <= 1.1 * longest_s],
        ticktext=[words.duration(seconds) for seconds in _LATENCY_TICKS_S],
        minor={"ticks": ""},
    )
    figure.update_yaxes(title_text="useful, % of what was wanted", range=[0, 100])
    return styled(figure, 420, (70, 20, 60, 60), title, hovermode="closest")


@described
def fates(table: pd.DataFrame, shares: Mapping[str, str], *, title: str) -> go.Figure:
    """Draw what became of wanted items as stacked bars that add up to 100 %, a panel per task.

    Parameters
    ----------
    table : pandas.DataFrame
        ``task, system`` and columns of shares from 0 to 1 whose sum is 1; a row of NaN has no bar.
    shares : mapping of str to str
        Up to five columns of shares, and the names of the parts, from left to right.
    title : str
        Title of the figure.
    """
    require_columns(table, "table", ("task", "system", *shares))
    tasks = list(dict.fromkeys(table["task"]))
    bars_px = 26 * len(table) + _FATE_GAP_PX * (len(tasks) - 1)
    figure = make_subplots(
        rows=max(len(tasks), 1),
        cols=1,
        shared_xaxes=True,
        subplot_titles=[escaped(str(task)) for task in tasks],
        vertical_spacing=_FATE_GAP_PX / max(bars_px, 1),
    )
    figure.update_annotations(x=0.0, xanchor="left", font={"size": 14})
    for row, task in enumerate(tasks, start=1):
        of_task = table[table["task"] == task]
        for (name, label), (colour, shape) in zip(shares.items(), _FATES, strict=False):
            percent = 100 * of_task[name]
            is_named = row == 1 and bool((table[name] > 0).any())
            figure.add_trace(
                go.Bar(
                    x=percent, y=of_task["system"], orientation="h", name=label, meta=str(task),
                    legendgroup=name, showlegend=is_named, textfont={"color": ink_on(colour)},
                    marker={"color": colour, "pattern": {"shape": shape, "fgcolor": "rgba(0,0,0,0.35)"}},
                    text=[f"{value:.0f}" if value >= _MIN_LABELLED else "" for value in percent],
                    textposition="inside", insidetextanchor="middle", textangle=0,
                    hovertemplate="%{y}: %{x:.1f} % " + label + "<extra></extra>",
                ), row, 1,
            )  # fmt: skip
    figure.update_xaxes(range=[0, 100])
    figure.update_xaxes(title_text="% of what was wanted", showticklabels=True, row=max(len(tasks), 1), col=1)
    figure.update_yaxes(autorange="reversed", ticks="")
    height = 170 + max(bars_px, 26)
    legend = {
        "orientation": "h", "yref": "container", "y": 1 - 48 / height, "yanchor": "top", "x": 0.0,
        "xanchor": "left", "traceorder": "normal",
    }  # fmt: skip
    top = heading(title, y=1 - 12 / height, yanchor="top")
    return styled(figure, height, (70, 20, 110, 60), top, barmode="stack", bargap=0.25, legend=legend)


@described
def pareto(table: pd.DataFrame, *, x: str, y: str, labels: tuple[str, str], title: str) -> go.Figure:
    """Draw systems by two measures, with a line along those that no other system beats in both.

    Parameters
    ----------
    table : pandas.DataFrame
        ``system``, two columns of numbers, and ``is_best``, as
        :func:`mudkit.experiment.pareto_front` returns it. A system without a value is left out, and
        named below the title. Ends of intervals (``<column>_low, <column>_high``) are drawn where given.
    x, y : str
        Columns of the two measures; both axes start at 0.
    labels : (str, str)
        Titles of the two axes, units included.
    title : str
        Title of the figure.
    """
    figure = go.Figure(
        [
            go.Scatter(name="front", mode="lines", line={"color": BLUE, "dash": "dot"}, hoverinfo="skip"),
            go.Scatter(
                name="not beaten", mode="markers", marker={"color": BLUE, "size": 13}, cliponaxis=False
            ),
            go.Scatter(
                name="beaten",
                mode="markers",
                cliponaxis=False,
                marker={"color": GREY, "size": 12, "symbol": "x-thin", "line": {"width": 3, "color": GREY}},
            ),
        ]
    )
    styled(figure, 420, (80, 30, 90, 60), legend=LEGEND_ABOVE)
    update_pareto(figure, table, x=x, y=y, labels=labels, title=title)
    return figure


@redescribed
def update_pareto(
    figure: go.Figure, table: pd.DataFrame, *, x: str, y: str, labels: tuple[str, str], title: str
) -> None:
    """Replace the table of a figure that :func:`pareto` returned.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Figure to change.
    table, x, y, labels, title
        As in :func:`pareto`.
    """
    require_columns(table, "table", ("system", x, y, "is_best"))
    known = table[table[[x, y]].notna().all(axis=1)]
    left_out = [str(name) for name in table["system"] if name not in set(known["system"])]
    points: dict[tuple[float, float], dict[str, Any]] = {}
    for row in known.to_dict("records"):
        point = points.setdefault((row[x], row[y]), {"names": [], "is_best": bool(row["is_best"])})
        point["names"].append(str(row["system"]))
    best = sorted(place for place, point in points.items() if point["is_best"])
    figure.data[_FRONT].update(
        x=[place[0] for place in best], y=[place[1] for place in best], showlegend=len(best) > 1
    )
    ends = {name: (f"{name}_low", f"{name}_high") for name in (x, y)}
    wholes = {name: 100.0 if name.endswith("_percent") else 1.0 for name in (x, y)}
    spans = [
        _axis_range(
            known[[end for end in (name, *ends[name]) if end in known]].to_numpy().ravel().tolist(),
            whole,
            from_zero=True,
        )
        for name, whole in wholes.items()
    ]
    names = {place: ", ".join(point["names"]) for place, point in points.items()}
    for number, is_best in ((_BEST, True), (_OTHERS, False)):
        chosen = [place for place, point in points.items() if point["is_best"] == is_best]
        figure.data[number].update(
            x=[place[0] for place in chosen],
            y=[place[1] for place in chosen],
            text=[names[place] for place in chosen],
            customdata=[f"{names[place]}<br>{', '.join(map(words.number, place))}" for place in chosen],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=bool(chosen),
        )
        for axis, name in (("x", x), ("y", y)):
            low, high = ends[name]
            if not {low, high} <= set(known):
                continue
            rows = known.set_index([x, y])
            rows = rows[~rows.index.duplicated()].loc[chosen].reset_index()
            figure.data[number][f"error_{axis}"].update(
                symmetric=False, array=rows[high] - rows[name], arrayminus=rows[name] - rows[low],
                thickness=1, width=9,  # seen beside the marker if the whisker is short
            )  # fmt: skip
    figure.layout.annotations = point_labels(
        list(names),
        [_place_shares(place, spans) for place in names],
        list(names.values()),
        [INK] * len(names),
        sides_px=100,
        height_px=420 - 150,
        lines=[[_place_shares(place, spans) for place in line] for line in [best, *_whiskers(known, x, y)]],
    )
    for axis, span, label in zip((figure.layout.xaxis, figure.layout.yaxis), spans, labels, strict=True):
        axis.update(title={"text": label}, range=span)
    note = f"without a value: {', '.join(left_out)}" if left_out else ""
    figure.update_layout(title=heading(title, note))


def _whiskers(table: pd.DataFrame, x: str, y: str) -> list[list[tuple[float, float]]]:
    """Return the ends of the intervals of points."""
    rows = table.to_dict("records")
    lines = []
    if f"{x}_low" in table:
        lines += [[(row[f"{x}_low"], row[y]), (row[f"{x}_high"], row[y])] for row in rows]
    if f"{y}_low" in table:
        lines += [[(row[x], row[f"{y}_low"]), (row[x], row[f"{y}_high"])] for row in rows]
    return lines


def _place_shares(place: Sequence[float], spans: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return a place on the axes as shares of their lengths."""
    x, y = ((value - low) / (high - low) for value, (low, high) in zip(place, spans, strict=True))
    return x, y


def _axis_range(values: Sequence[float], whole: float = 1.0, *, from_zero: bool = False) -> list[float]:
    """Return a range that fits the values, from 0 unless all may be large; shares end at the whole."""
    low, high = min([0.0, *values]), max([0.0, *values])
    if low == high:
        return [low, low + whole]
    least = min(values)
    if least > 0.6 * high and not from_zero:
        low = least - 0.35 * (high - least) if least < high else 0.8 * high
    return [1.05 * low if low < 0 else low, whole if 0.9 * whole < high <= whole else 1.05 * high]


@described
def tradeoff(table: pd.DataFrame, *, x: str, best: object, title: str, unit: str) -> go.Figure:
    """Draw waste, loss and reads in vain over the values of a setting, and mark the recommended value.

    Where the table has costs, they are drawn below: they decide what is recommended.

    Parameters
    ----------
    table : pandas.DataFrame
        A row per value, in order, drawn at even distances: the column ``x``, and shares from 0 to 1 with the
        ends of their confidence intervals, ``waste, waste_low, waste_high, loss, loss_low, loss_high``, and
        ``empty_read_share, …`` and ``cost_per_day, …`` where they are known. NaN ends: no band.
    x : str
        Column of the values, as the axis shows them.
    best : object
        One of the values.
    title : str
        Title of the figure.
    unit : str
        Title of the axis of values, with the unit.

    Raises
    ------
    ParameterError
        The table lacks a column or the best value.
    """
    require_columns(table, "table", (x, *_INTERVALS))
    values = table[x].tolist()
    if best not in values:
        raise ParameterError(
            "The best value is not in the table.",
            where="best",
            found=repr(best),
            expected=", ".join(map(str, values)),
        )
    places, has_cost = list(range(len(values))), "cost_per_day" in table
    figure = make_subplots(
        rows=1 + has_cost, cols=1, shared_xaxes=True, vertical_spacing=0.08,
        row_heights=[0.64, 0.36] if has_cost else None,
    )  # fmt: skip
    drawn = [line for line in _TRADEOFF_MEASURES if line[0] in table]
    for measure, named, colour, symbol, dash, band in drawn:
        row, scale = (2, 1) if measure == "cost_per_day" else (1, 100)
        low, high = (scale * table[f"{measure}{end}"] for end in ("_low", "_high"))
        if low.notna().any():
            low, high = (end.fillna(scale * table[measure]) for end in (low, high))
            figure.add_trace(
                go.Scatter(
                    x=[*places, *places[::-1]],
                    y=[*high, *low[::-1]],
                    mode="lines",
                    fill="toself",
                    fillcolor=band,
                    line={"width": 0},
                    hoverinfo="skip",
                    showlegend=False,
                    name=f"{named}, 95 % interval",
                ),
                row,
                1,
            )
        figure.add_trace(
            go.Scatter(
                x=places,
                y=scale * table[measure],
                name=named,
                mode="lines+markers",
                line={"color": colour, "dash": dash},
                marker={"symbol": symbol, "size": 8},
                customdata=[str(value) for value in values],
                hovertemplate="%{customdata}: %{y:.2f}" + (" %" if row == 1 else ""),
            ),
            row,
            1,
        )
    mark = {"x": values.index(best), "line": {"color": INK, "width": 1, "dash": "dot"}}
    if has_cost:
        figure.add_vline(**mark, row=2, col=1)
        figure.update_yaxes(title_text="cost a day", rangemode="tozero", row=2, col=1)
    figure.add_vline(
        **mark,
        row=1,
        col=1,
        annotation={"text": f"recommended: {best}", "font": {"size": TEXT_PX}, "yanchor": "bottom", "y": 1.0},
        annotation_position="top",
        annotation_xanchor="right" if values.index(best) > 0.8 * len(values) else "center",
    )
    figure.update_xaxes(
        tickvals=places,
        ticktext=[str(value) for value in values],
        range=[-0.4, len(values) - 0.6],
    )
    figure.update_xaxes(title_text=unit, row=1 + has_cost, col=1)
    shares = [measure for measure, *_ in drawn if measure != "cost_per_day"]
    names = [f"{measure}{end}" for measure in shares for end in ("", "_low", "_high")]
    most = 100 * float(np.nanmax([0.0, *(value for name in names for value in table[name])]))
    figure.update_yaxes(title_text="%", range=[0, min(1.05 * most, 100.0) or 1.0], row=1, col=1)
    top = heading(title, y=0.97, yanchor="top")
    is_left = values.index(best) < len(values) / 2  # the legend keeps off the name of the best value
    legend = _LEFT_LEGEND | ({"x": 1, "xanchor": "right"} if is_left else {})
    height = 580 if has_cost else 400
    return styled(figure, height, (70, 20, 90, 60), top, hovermode="x unified", legend=legend)


@described
def side_by_side(table: pd.DataFrame, names: tuple[str, str], *, title: str) -> go.Figure:
    """Draw measures of two runs with their intervals, an axis for each measure.

    Parameters
    ----------
    table : pandas.DataFrame
        ``measure`` (its words and unit), and ``this, this_low, this_high, other, other_low, other_high`` in
        that unit. Percentages stay within 0 and 100.
    names : (str, str)
        Names of this run and of the other.
    title : str
        Title of the figure.
    """
    numbers = [f"{side}{end}" for side in ("this", "other") for end in ("", "_low", "_high")]
    require_columns(table, "table", ("measure", *numbers))
    rows = max(len(table), 1)
    height_px = _PAIR_MARGINS_PX + _PAIR_ROW_PX * rows
    figure = make_subplots(
        rows=rows,
        cols=1,
        subplot_titles=[escaped(str(measure)) for measure in table["measure"]],
        vertical_spacing=0.55 / rows if rows > 1 else 0.0,
    )
    figure.update_annotations(x=0, xanchor="left", font={"size": TEXT_PX})
    for place, (_, row) in enumerate(table.iterrows(), start=1):
        for number, (side, name) in enumerate(zip(("this", "other"), names, strict=True)):
            value, low, high = (float(row[f"{side}{end}"]) for end in ("", "_low", "_high"))
            colour, symbol = _PAIR[number]
            figure.add_trace(
                go.Scatter(
                    x=[value], y=[1 - number], name=escaped(name), legendgroup=side, showlegend=place == 1,
                    mode="markers", cliponaxis=False, marker={"color": colour, "symbol": symbol, "size": 11},
                    error_x={"array": [high - value], "arrayminus": [value - low], "symmetric": False},
                    hovertemplate=f"{words.number(value)} ({words.interval(low, high)})",
                ), place, 1,
            )  # fmt: skip
        ends = row[numbers].to_numpy(dtype=float)
        low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
        room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        least = 0.0 if low >= 0 else low - room
        most = 100.0 if str(row["measure"]).endswith("%") and high <= 100 else high + room
        figure.update_xaxes(
            range=[max(low - room, least), min(high + room, most)], nticks=6, tickformat=",", row=place, col=1
        )
    figure.update_yaxes(visible=False, range=[-0.8, 1.8])
    return styled(figure, height_px, (30, 30, 90, 50), title, legend=LEGEND_BELOW)
