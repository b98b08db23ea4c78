"""A decision tree from the root down: what is asked, what its leaves decide, of how many examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["outline", "tree", "words"]

_NEEDED: Final = ("node", "parent", "is_right", "feature", "threshold", "action", "examples", "leaves")
_WORDS: Final = {
    "lat": ("latitude", 1.0, "°"),
    "lon": ("longitude", 1.0, "°"),
    "hour": ("hour", 1.0, " h"),
    "weekday": ("weekday", 1.0, ""),
    "cached_lat": ("its latitude", 1.0, "°"),
    "cached_lon": ("its longitude", 1.0, "°"),
    "cached_hour": ("its hour", 1.0, " h"),
    "distance": ("distance", 1.0, " km"),
    "age": ("age", 1 / 60, " min"),
    "held": ("it holds", 1.0, " points"),
    "density": ("density", 1.0, " points/h"),
}
"""Of a feature: what it is called here, and how it is told; *its* is of the cached answer."""
_MARKS: Final = {"local": (BLUE, "circle"), "remote": (ORANGE, "square"), "never": (GREY, "x")}
_DELAY: Final = (BLUE, "triangle-up")
_LEVEL_PX, _MARGINS_PX = 78, 110


def tree(table: pd.DataFrame, *, title: str, most_depth: int = 4) -> go.Figure:
    """Draw a tree; a value that is at most the threshold goes left, a larger one right.

    Parameters
    ----------
    table : pandas.DataFrame
        ``node, parent, is_right, feature, threshold, action, examples, leaves``, as
        :func:`mudkit.experiment.cache_bench.nodes` gives it.
    title : str
    most_depth : int
        What lies deeper is drawn as one mark, which says how many leaves it has and what most examples
        would be told if it were one.

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    rows, depth = _rows(table)
    figure = go.Figure()
    figure.add_trace(go.Scatter(x=[], y=[], mode="lines", line={"color": GREY, "width": 1}, hoverinfo="skip"))
    figure.add_trace(
        go.Scatter(
            x=[],
            y=[],
            mode="markers+text",
            textposition="bottom center",
            hoverinfo="text",
            textfont={"size": 11},
        )
    )
    figure.update_xaxes(visible=False, range=[-0.06, 1.06])
    figure.update_yaxes(visible=False, range=[-most_depth - 0.75, 0.35])
    figure.update_layout(
        template=template(),
        showlegend=False,
        height=_MARGINS_PX + _LEVEL_PX * (most_depth + 1),
        margin={"l": 10, "r": 10, "t": 60, "b": 20},
        title={"text": title, "font": {"size": 16}},
    )
    shown = [row for row in rows if depth[row["node"]] <= most_depth]
    parents = {row["parent"] for row in shown}
    ends = [row["node"] for row in shown if row["node"] not in parents]
    x = dict(zip(ends, np.linspace(0.0, 1.0, len(ends)) if len(ends) > 1 else [0.5], strict=True))
    for row in shown[::-1]:  # children come after their parents
        if row["node"] in parents:
            x[row["node"]] = float(
                np.mean([x[each["node"]] for each in shown if each["parent"] == row["node"]])
            )
    xs: list[float | None] = []
    ys: list[float | None] = []
    for row in shown[1:]:
        xs += [x[row["parent"]], x[row["node"]], None]
        ys += [-depth[row["parent"]], -depth[row["node"]], None]
    marks = [_MARKS.get(row["action"], _DELAY) if row["node"] in ends else (GREY, "diamond") for row in shown]
    total = max(rows[0]["examples"], 1)
    sizes = [8 + 26 * (row["examples"] / total) ** 0.5 if row["node"] in ends else 7.0 for row in shown]
    labels = [_label(row, row["node"] in ends) for row in shown]
    figure.data[0].update(x=xs, y=ys)
    figure.data[1].update(
        x=[x[row["node"]] for row in shown],
        y=[-depth[row["node"]] for row in shown],
        text=[short for short, _ in labels],
        hovertext=[whole for _, whole in labels],
        marker={"color": [each[0] for each in marks], "symbol": [each[1] for each in marks], "size": sizes},
    )
    return figure


def outline(table: pd.DataFrame, most_depth: int = 4) -> str:
    """Write a tree as indented lines, for who reads or hears it.

    Parameters
    ----------
    table : pandas.DataFrame
        As in :func:`tree`.
    most_depth : int
        What lies deeper is one line.

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    rows, depth = _rows(table)
    lines = []
    for row in rows:
        level = depth[row["node"]]
        if level > most_depth:
            continue
        said = "" if row["parent"] < 0 else "no: " if row["is_right"] else "yes: "
        if not row["feature"]:
            line = f"{row['action']} ({row['examples']:,} examples)"
        elif level == most_depth:
            line = f"… {row['leaves']} leaves ({row['examples']:,} examples)"
        else:
            line = f"{words(row['feature'], row['threshold'])}?"
        lines.append("    " * level + said + line)
    return "\n".join(lines)


def words(feature: str, threshold: float) -> str:
    """Write a test of a node: what goes left.

    Parameters
    ----------
    feature : str
        One of :data:`mudkit.systems.mud.policies.artefact.FEATURES`.
    threshold : float
        The threshold, in the unit of the feature.
    """
    name, scale, unit = _WORDS[feature]
    return f"{name} ≤ {scale * threshold:.4g}{unit}"


def _rows(table: pd.DataFrame) -> tuple[list[dict[Any, Any]], list[int]]:
    """Give the nodes, and how deep each lies."""
    if missing := [name for name in _NEEDED if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    rows = table.to_dict("records")
    depth = [0] * len(rows)
    for row in rows[1:]:
        depth[row["node"]] = depth[row["parent"]] + 1
    return rows, depth


def _label(row: dict[Any, Any], is_end: bool) -> tuple[str, str]:
    """Write what stands below a node, and under the pointer."""
    count = f"{row['examples']:,} examples"
    if not is_end:
        test = words(row["feature"], row["threshold"])
        return test, f"{test}: left, else right<br>{count}, {row['leaves']} leaves"
    if row["leaves"] > 1:
        test = words(row["feature"], row["threshold"])
        return f"… {row['leaves']} leaves", f"{test}, and on: {row['leaves']} leaves<br>{count}"
    return row["action"], f"{row['action']}<br>{count}"
