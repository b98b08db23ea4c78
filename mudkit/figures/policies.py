"""Policies: which rule fires, decision trees, decisions over time, and searches for a better rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import INK
from mudkit.errors import ParameterError
from mudkit.figures.alternative import described, redescribed
from mudkit.figures.style import (
    BLUE,
    GREEN,
    GREY,
    LEGEND_ABOVE,
    ORANGE,
    TEXT_PX,
    colour_steps,
    escaped,
    heading,
    ink_on,
    lanes,
    natural_key,
    ramp,
    styled,
    template,
)
from mudkit.figures.tables import require_columns
from mudkit.figures.times import time_unit
from mudkit.systems.mud.policies.artefact import question_text

if TYPE_CHECKING:
    from mudkit.learning import FixedRule
    from mudkit.learning.batching import LearntWrites
    from mudkit.learning.policies import LearntReads

_FIRING_COLUMNS: Final = ("message", "state", "rule", "outcome", "fields", "bytes")
_OUTCOME_MARKS: Final = {"sent": "", "dropped": "✗", "held back": "…", "stopped": "!"}
_RULE_COLOURS: Final = (
    "#f0f0f0", "#e27c5a", "#5a9ee2", "#e2c05a", "#a8f0a8", "#dbc2f4", "#b68686", "#5ae2c0", "#869eb6",
)  # fmt: skip
"""Colours with legible numbers on them: the first means no rule, the others repeat."""
_FRAMES: Final = "in brackets: too many stale answers; frames: the best rule, dotted: the fixed one"
_RULE_ROW_PX, _FIRING_MARGINS_PX, _MAX_NAME = 30, 140, 30
_MAX_NAMED_STATES: Final = 15  # of more states the first and every second one is named
_TREE_COLUMNS: Final = ("node", "parent", "is_right", "feature", "threshold", "action", "examples", "leaves")
_ACTION_MARKS: Final = {"local": (BLUE, "circle"), "remote": (ORANGE, "square"), "never": (GREY, "x")}
_DELAY_MARK: Final = (BLUE, "triangle-up")
_TREE_LINE_PX, _TREE_MARGINS_PX, _MIN_LEVELS = 24, 90, 5
_DECISION_COLUMNS: Final = ("t_s", "lane", "decision", "text", "is_alarm")
_DECISION_MARKS: Final = {
    "sent whole": ("circle", BLUE, 11),
    "sent in part": ("diamond", GREEN, 10),
    "held back": ("circle-open", GREY, 7),
    "dropped": ("x-thin-open", GREY, 6),
    "stopped": ("x", INK, 9),
}
_LANE_PX, _PANEL_PX, _DECISION_MARGINS_PX = 26, 40, 130
_SEARCH_COLUMNS: Final = ("km", "minutes", "fresh_share", "stale_share", "is_allowed")
_SEARCH_ROW_PX, _SEARCH_MARGINS_PX = 38, 130
_TENTHS_BELOW: Final = 10.0
_FRESH: Final = ("fresh_share", "fresh_share_low", "fresh_share_high")
_SENSITIVITY_ROW_PX, _SENSITIVITY_MARGINS_PX = 28, 130


@described
def rule_firing(table: pd.DataFrame, names: Sequence[str], *, title: str, x: str) -> go.Figure:
    """Draw which rule fires for each message in each state, as a grid with the number of the rule.

    A mark behind the number says what the rule did with the message: ✗ dropped, … held back, ! stopped.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`mudkit.systems.sublim.decision_table` returns it, a row per message and state:
        ``message, state, rule`` (0: none), ``outcome, fields, bytes``.
    names : sequence of str
        Names of the rules; the first is rule 1.
    title : str
        Title of the figure.
    x : str
        Title of the axis of states.
    """
    figure = go.Figure(
        go.Heatmap(xgap=2, ygap=2, texttemplate="%{text}", textfont={"size": TEXT_PX, "color": "black"})
    )
    figure.update_xaxes(title_text=x, type="category", side="bottom", ticks="", showgrid=False, tickangle=0)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="", type="category", showgrid=False)
    figure.update_layout(template=template(), margin={"l": 70, "r": 20, "t": 50, "b": 60})
    update_rule_firing(figure, table, names, title=title)
    return figure


def _shown_texts(texts: list[str]) -> list[str]:
    """Return the texts of a row of cells; of many, one in the middle of equal neighbours."""
    if len(texts) <= _MAX_NAMED_STATES:
        return texts
    shown = [""] * len(texts)
    start = 0
    for text, equal in groupby(texts):
        size = len(list(equal))
        shown[start + (size - 1) // 2] = text
        start += size
    return shown


@redescribed
def update_rule_firing(
    figure: go.Figure,
    table: pd.DataFrame,
    names: Sequence[str],
    *,
    title: str,
    now: tuple[str, str] | None = None,
) -> None:
    """Replace the table of a figure that :func:`rule_firing` returned.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Figure to change.
    table, names, title
        As in :func:`rule_firing`.
    now : (str, str), optional
        Message and state of the cell that gets a frame; by default none.
    """
    require_columns(table, "table", _FIRING_COLUMNS)
    messages, states = list(dict.fromkeys(table["message"])), list(dict.fromkeys(table["state"]))
    cells: dict[tuple[Any, Any], Any] = {(row.message, row.state): row for row in table.itertuples()}
    grid = [[cells[message, state] for state in states] for message in messages]
    texts = [[f"{cell.rule or '–'}{_OUTCOME_MARKS.get(cell.outcome, '')}" for cell in row] for row in grid]
    named = ["no rule", *names]
    repeated = [_RULE_COLOURS[1 + place % (len(_RULE_COLOURS) - 1)] for place in range(len(names))]
    colours = [_RULE_COLOURS[0], *repeated]
    edges = [place / len(colours) for place in range(len(colours) + 1)]
    scale = [(edges[place + end], colour) for place, colour in enumerate(colours) for end in (0, 1)]
    figure.data[0].update(
        x=states, y=messages, z=[[cell.rule for cell in row] for row in grid],
        text=list(map(_shown_texts, texts)), hovertext=texts,
        customdata=[[_firing_label(cell, named) for cell in row] for row in grid],
        hovertemplate="%{y}, %{x}<br>%{customdata}<extra></extra>",
        zmin=-0.5, zmax=len(names) + 0.5, colorscale=scale,
        colorbar={
            "tickvals": list(range(len(named))), "ticks": "", "thickness": 14, "len": 1.0, "outlinewidth": 0,
            "ticktext": [_shortened(f"{place or '–'} {name}") for place, name in enumerate(named)],
        },
    )  # fmt: skip
    shown = [*states[:1], *states[5::4]] if len(states) > _MAX_NAMED_STATES else states
    figure.update_xaxes(tickvals=shown, ticktext=shown)
    frame = []
    if now is not None and now[0] in messages and now[1] in states:
        x, y = states.index(now[1]), messages.index(now[0])
        frame = [
            {
                "type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "opacity": 1,
                "line": {"color": INK, "width": 3}, "fillcolor": "rgba(0,0,0,0)",
            }
        ]  # fmt: skip
    # Not by update_layout: an empty list would leave the old frame.
    figure.layout.shapes = frame
    height_px = _FIRING_MARGINS_PX + _RULE_ROW_PX * max(len(messages), len(named) // 2 + 1)
    figure.update_layout(title=heading(title), height=height_px)


def _firing_label(cell: Any, names: Sequence[str]) -> str:
    """Return the text of a cell for the pointer."""
    sent = f": {cell.fields}; {cell.bytes:,} bytes" if cell.bytes else ""
    return f"{names[cell.rule]}<br>{cell.outcome}{sent}"


def _shortened(text: str) -> str:
    """Return a name, cut if it is long."""
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"


@described
def tree(policy: LearntReads | LearntWrites | pd.DataFrame, *, title: str, max_depth: int = 4) -> go.Figure:
    """Draw a decision tree: a line per question or leaf, answers on the edges, and shares in the leaves.

    Parameters
    ----------
    policy : LearntReads or LearntWrites or pandas.DataFrame
        Learnt policy, or the nodes of its tree as :func:`mudkit.learning.tree_nodes` returns them.
    title : str
        Title of the figure.
    max_depth : int
        Deepest level that is drawn; what lies below a node there is one mark with its number of leaves and
        the action that it would have as a leaf.
    """
    rows, depth = _nodes(policy)
    shown = [row for row in rows if depth[row["node"]] <= max_depth]
    parents = {row["parent"] for row in shown}
    place: dict[int, tuple[int, int]] = {}  # of each node: level and line
    waiting = [shown[0]["node"]]
    while waiting:
        node = waiting.pop()
        place[node] = depth[node], len(place)
        children = [row for row in shown if row["parent"] == node]
        waiting += [row["node"] for row in sorted(children, key=lambda row: -row["is_right"])]
    total = max(rows[0]["examples"], 1)
    by_line = sorted(shown, key=lambda row: place[row["node"]][1])
    edges = [row for row in by_line if row["parent"] >= 0]
    figure = go.Figure()
    # From below a question down and to the right: "yes" or "no" stands on the level part.
    corners = [(place[row["parent"]], place[row["node"]]) for row in edges]
    figure.add_scatter(
        x=[x for (level, _), _ in corners for x in (level + 0.1, level + 0.1, level + 0.45, None)],
        y=[y for (_, above), (_, line) in corners for y in (above + 0.4, line, line, None)],
        mode="lines",
        line={"color": INK, "width": 1},
        hoverinfo="skip",
    )
    for name, is_end in (("leaves", True), ("questions", False)):
        nodes = [row for row in by_line if (row["node"] not in parents) == is_end]
        labels = [_node_label(row, is_end, total) for row in nodes]
        levels, lines = zip(*(place[row["node"]] for row in nodes), strict=True) if nodes else ((), ())
        if is_end:
            figure.add_scatter(
                x=[level + 0.12 for level in levels],
                y=lines,
                mode="markers",
                hoverinfo="skip",
                marker={
                    "color": [_mark(row)[0] for row in nodes],
                    "symbol": [_mark(row)[1] for row in nodes],
                    "size": [7 + 13 * (row["examples"] / total) ** 0.5 for row in nodes],
                    "opacity": 1,
                },
                name="marks",
            )
        figure.add_scatter(
            x=[level + (0.26 if is_end else 0.02) for level in levels],
            y=lines,
            mode="text",
            text=[label for label, _ in labels],
            textposition="middle right",
            hoverinfo="text",
            hovertext=[text for _, text in labels],
            name=name,
        )
    figure.add_scatter(
        x=[level + 0.5 for (level, _), _ in corners],
        y=[line for _, (_, line) in corners],
        mode="text",
        text=["no" if row["is_right"] else "yes" for row in edges],
        textposition="middle right",
        hoverinfo="skip",
        name="answers",
    )
    deepest = max(depth[row["node"]] for row in shown)
    figure.update_xaxes(visible=False, range=[-0.05, max(_MIN_LEVELS, deepest + 2.5)])
    figure.update_yaxes(visible=False, range=[len(shown) - 0.3, -0.7])
    height_px = _TREE_MARGINS_PX + _TREE_LINE_PX * len(shown)
    return styled(figure, height_px, (10, 10, 60, 20), title, showlegend=False)


def _mark(row: Mapping[Any, Any]) -> tuple[str, str]:
    """Return the colour and the symbol of a leaf."""
    return _ACTION_MARKS.get(row["action"], _DELAY_MARK)


@check_arguments(types=False)
def tree_outline(policy: LearntReads | LearntWrites | pd.DataFrame, max_depth: int = 4) -> str:
    """Return a decision tree as indented lines, for instance for a screen reader.

    Parameters
    ----------
    policy : LearntReads or LearntWrites or pandas.DataFrame
        As in :func:`tree`.
    max_depth : int
        Deepest level; what lies below a node there is one line.

    Returns
    -------
    str
        A line per node; ``yes`` leads to values up to the threshold of its parent.
    """
    rows, depth = _nodes(policy)
    lines = []
    for row in rows:
        level = depth[row["node"]]
        if level > max_depth:
            continue
        answer = "" if row["parent"] < 0 else "no: " if row["is_right"] else "yes: "
        if not row["feature"]:
            line = f"{row['action']} ({row['examples']:,} examples)"
        elif level == max_depth:
            line = f"… {row['leaves']} leaves ({row['examples']:,} examples)"
        else:
            line = f"{_test(row)}?"
        lines.append("    " * level + answer + line)
    return "\n".join(lines)


def _nodes(policy: Any) -> tuple[list[dict[Any, Any]], list[int]]:
    """Return the nodes of a tree, parents before their children, and the depth of each."""
    table = policy
    if not isinstance(policy, pd.DataFrame) and hasattr(policy, "tree"):
        from mudkit.learning import tree_nodes

        table = tree_nodes(policy)
    remedy = "pass the learnt policy of CacheBench.run, or its nodes"
    rows = require_columns(table, "policy", _TREE_COLUMNS, remedy=remedy).to_dict("records")
    depth = [0] * len(rows)
    for row in rows[1:]:
        depth[row["node"]] = depth[row["parent"]] + 1
    return rows, depth


def _test(row: Mapping[Any, Any]) -> str:
    """Return the question of a node as text."""
    return question_text(row["feature"], float(row["threshold"]))


def _node_label(row: Mapping[Any, Any], is_end: bool, total: int) -> tuple[str, str]:
    """Return the text at a node, and that of the pointer."""
    count = f"{words.percent(row['examples'] / total)} of {total:,} examples"
    if not is_end:
        return (
            f"{_test(row)}?",
            f"{_test(row)}?<br>{count}, {row['leaves']} leaves",
        )
    share = f"{words.percent(row['examples'] / total)} ({row['examples']:,})"
    if row["leaves"] > 1:
        return f"… {row['leaves']} leaves, {share}", f"{_test(row)}?<br>{row['leaves']} leaves, {count}"
    return f"<b>{row['action']}</b> {share}", f"{row['action']}<br>{count}"


@described
def decisions(
    tables: Mapping[str, pd.DataFrame], *, title: str, marked: Mapping[str, int] | None = None
) -> go.Figure:
    """Draw what policies did with messages over time, a panel per policy and a mark per message.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        Decisions by the name of the policy: ``t_s`` (seconds), ``lane`` (for instance the patient),
        ``decision`` (``sent whole``, ``sent in part``, ``held back``, ``dropped`` or ``stopped``), ``text``
        (shown at the pointer) and ``is_alarm``, which draws a ring around the mark.
    title : str
        Title of the figure.
    marked : mapping of str to int, optional
        Row of a policy's table to which a large mark points, by the policy's name.

    Raises
    ------
    ParameterError
        A table lacks a column, or has another decision.
    """
    for table in tables.values():
        require_columns(table, "table", _DECISION_COLUMNS)
        if unknown := sorted(set(table["decision"]) - set(_DECISION_MARKS)):
            raise ParameterError(
                "The table has unknown decisions.",
                where="decision",
                found=", ".join(map(str, unknown)),
                expected=", ".join(_DECISION_MARKS),
            )
    names = sorted({str(lane) for table in tables.values() for lane in table["lane"]}, key=natural_key)
    figure = make_subplots(
        rows=len(tables),
        cols=1,
        shared_xaxes=True,
        subplot_titles=list(tables),
        vertical_spacing=min(0.12, 0.5 / max(len(tables), 1)),
    )
    last_s = max((float(table["t_s"].max()) for table in tables.values() if len(table)), default=1.0)
    unit, scale = time_unit(max(last_s, 3.0))
    named: set[str] = set()
    for row, (name, table) in enumerate(tables.items(), start=1):
        alarms = table[table["is_alarm"]]
        traces = [
            ("an alarm", alarms, {"symbol": "circle-open", "color": ORANGE, "size": 17, "line": {"width": 2}})
        ]
        for what, (symbol, colour, size) in reversed(_DECISION_MARKS.items()):  # sent messages lie on top
            line = {"width": 1.5, "color": colour}
            marker = {"symbol": symbol, "color": colour, "size": size, "line": line}
            traces.append((what, table[table["decision"] == what], marker))
        if marked is not None and name in marked:
            pointer = {"symbol": "triangle-down", "color": INK, "size": 13}
            traces.append(("here", table.iloc[[marked[name]]], pointer))
        for what, part, marker in traces:
            if not len(part):
                continue
            shift = 0.42 if what == "here" else 0.0  # above the mark that it points to
            figure.add_trace(
                go.Scatter(
                    x=part["t_s"] / scale, y=[names.index(str(lane)) - shift for lane in part["lane"]],
                    mode="markers", name=what, meta=name, legendgroup=what, showlegend=what not in named,
                    marker=marker, customdata=part["text"], hovertemplate="%{customdata}<extra></extra>",
                ), row, 1,
            )  # fmt: skip
            named.add(what)
    figure.update_yaxes(**lanes(names, -0.6, 0.4), showgrid=True, zeroline=False, automargin=True)
    figure.update_xaxes(range=[0, 1.02 * last_s / scale or 1.0])
    figure.update_xaxes(title_text=f"time, {unit}", row=len(tables), col=1)
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font={"size": TEXT_PX})
    fewest = 5 if len(tables) == 1 else 2  # lanes: the legend is beside them
    height_px = _DECISION_MARGINS_PX + (_PANEL_PX + _LANE_PX * max(len(names), fewest)) * len(tables)
    top = heading(title, y=0.98, yanchor="top")
    return styled(figure, height_px, (70, 20, 70, 60), top, legend={"itemsizing": "trace"})


@described
def rule_search(table: pd.DataFrame, *, rule: FixedRule, best: FixedRule, title: str) -> go.Figure:
    """Draw the share of reads that rules of many distances and ages answer fresh, as a grid.

    Parameters
    ----------
    table : pandas.DataFrame
        ``km`` (infinite: any distance), ``minutes, fresh_share, stale_share, is_allowed``. Rules that are not
        allowed are left empty; their share of stale answers is in brackets.
    rule, best : FixedRule
        The fixed rule and the best one, which are framed where the table has them.
    title : str
        Title of the figure.
    """
    require_columns(table, "table", _SEARCH_COLUMNS)
    km, minutes = sorted(set(table["km"])), sorted(set(table["minutes"]))
    fresh, stale, allowed = (
        table.pivot(index="km", columns="minutes", values=name).loc[km, minutes].to_numpy(dtype=np.float64)
        for name in ("fresh_share", "stale_share", "is_allowed")
    )
    percent, stale = np.where(allowed == 1, 100 * fresh, np.nan), 100 * stale
    ages = [words.duration(60 * age) for age in minutes]
    distances = ["any" if math.isinf(d) else f"{words.number(d)} km" for d in km]
    figure = go.Figure(
        go.Heatmap(
            z=percent,
            x=ages,
            y=distances,
            xgap=2,
            ygap=2,
            colorscale=colour_steps(),
            colorbar={"title": {"text": "fresh, %"}, "thickness": 12},
            customdata=stale,
            hovertemplate="%{y}, %{x}: %{z:.1f} % fresh, %{customdata:.1f} % stale<extra></extra>",
        )
    )
    low, high = np.nanmin(percent, initial=100), np.nanmax(percent, initial=0)
    if not low < high:  # plotly would show shares above 100 %
        figure.data[0].update(zmin=max(high - 1, 0), zmax=max(high, 1))
    shades = ramp(64)
    last = len(shades) - 1
    for row in range(len(km)):
        for column in range(len(minutes)):
            value = percent[row, column]
            is_shown = np.isfinite(value)
            over = words.number(stale[row, column], 1 if stale[row, column] < _TENTHS_BELOW else 0)
            part = (value - low) / (high - low) if is_shown and low < high else 1.0
            figure.add_annotation(
                x=ages[column],
                y=distances[row],
                text=words.number(value, 1) if is_shown else f"({over} stale)",
                showarrow=False,
                font={"size": TEXT_PX, "color": ink_on(shades[round(part * last)]) if is_shown else INK},
            )
    for framed, dash in ((rule, "dot"), (best, "solid")):
        if framed.km in km and framed.minutes in minutes:
            x, y = minutes.index(framed.minutes), km.index(framed.km)  # an age by the hour is in no table
            if dash == "solid" and not allowed[y, x]:
                continue  # no rule is allowed
            figure.add_shape(
                type="rect",
                x0=x - 0.5,
                x1=x + 0.5,
                y0=y - 0.5,
                y1=y + 0.5,
                opacity=1,
                fillcolor="rgba(0,0,0,0)",
                line={"color": ORANGE, "width": 4, "dash": dash},
            )
    # Said, not found in the cells: plotly finds no categories where all cells are empty.
    for axis, names, of in (
        (figure.layout.xaxis, ages, "age of the cached answer"),
        (figure.layout.yaxis, distances, "distance"),
    ):
        axis.update(title={"text": f"largest {of}"}, type="category", showgrid=False)
        axis.update(categoryarray=names, range=[-0.5, len(names) - 0.5])
    return styled(
        figure, _SEARCH_MARGINS_PX + _SEARCH_ROW_PX * len(km), (80, 20, 70, 60), heading(title, _FRAMES)
    )


@described
def sensitivity(table: pd.DataFrame, *, recommended: str, title: str) -> go.Figure:
    """Draw what is recommended, and what it saves, when an assumption is another.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows from top to bottom, the first one as assumed: ``assumed`` (what is assumed, in words), ``family``
        (what is recommended), ``fresh_share`` with ``…_low`` and ``…_high`` (of the reads).
    recommended : str
        What the page recommends; other rows have another mark.
    title : str
        Title of the figure.
    """
    require_columns(table, "table", ("assumed", "family", *_FRESH))
    fresh, low, high = (100 * table[name].to_numpy(dtype=np.float64) for name in _FRESH)
    is_same = (table["family"] == recommended).to_numpy()
    figure = go.Figure()
    for rows, name, colour, symbol in (
        (is_same, "same kind", BLUE, "circle"),
        (~is_same, "another kind", ORANGE, "diamond"),
    ):
        figure.add_scatter(
            x=fresh[rows],
            y=table["assumed"][rows],
            mode="markers",
            name=name,
            showlegend=bool(rows.any()),
            marker={"color": colour, "symbol": symbol, "size": 10},
            error_x={
                "array": (high - fresh)[rows], "arrayminus": (fresh - low)[rows], "thickness": 1, "width": 3,
            },
            customdata=table["family"][rows],
            hovertemplate="%{y}: %{customdata}, %{x:.1f} % fresh<extra></extra>",
            cliponaxis=False,
        )  # fmt: skip
    least, most = float(np.nanmin(low, initial=100.0)), float(np.nanmax(high, initial=0.0))
    begin = 0.0 if least < most / 2 else least - (most - least) / 4
    end = min(max(most + (most - begin) / 10, 1.0), 100.0)
    for row, (assumed, family) in enumerate(zip(table["assumed"], table["family"], strict=True)):
        text = f"{family}, {words.percent(fresh[row] / 100, 1)}" if fresh[row] > 0 else str(family)
        figure.add_annotation(
            x=1.01, xref="paper", xanchor="left", y=assumed, text=escaped(text), showarrow=False,
            font={"size": TEXT_PX},
        )  # fmt: skip
    figure.update_xaxes(title_text="answered fresh from the cache, % of reads", range=[begin, end])
    names = list(table["assumed"])
    figure.update_yaxes(
        type="category", categoryarray=names, range=[len(names) - 0.5, -0.5], automargin=True, ticks=""
    )
    height_px = _SENSITIVITY_MARGINS_PX + _SENSITIVITY_ROW_PX * len(table)
    return styled(figure, height_px, (70, 190, 60, 60), title, legend=LEGEND_ABOVE)
