"""How soon what was wanted comes: latencies as shares of all that was wanted, a line a system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["latencies"]

_COLOURS: Final = (GREY, BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES: Final = ("dot", "solid", "dash", "longdash", "dashdot", "longdashdot")
_STEPS: Final = 200
_LEAST_S: Final = 1e-3


def latencies(table: pd.DataFrame, wanted: Mapping[str, int], *, title: str) -> go.Figure:
    """Draw for each system how much of what was wanted was there within so many seconds.

    A line ends at the share that was useful: what is missing above it was lost, or came too late. A system
    that has delivered nothing has a line at 0.

    Parameters
    ----------
    table : pandas.DataFrame
        ``system, latency_s``: a row for each useful delivery; 0 is drawn as a millisecond.
    wanted : mapping of str to int
        The number of pairs of an item and a phone that wanted it, by system; the order is that of the legend.
    title : str

    Raises
    ------
    ParameterError
        The table lacks a column, or has a system of which it is not known how much was wanted.
    """
    if missing := [name for name in ("system", "latency_s") if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    if unknown := sorted(set(table["system"]) - set(wanted)):
        raise ParameterError(
            "Nobody says how much was wanted.",
            where="wanted",
            found=", ".join(wanted),
            expected=", ".join(unknown),
        )
    longest_s = max([10.0, *table["latency_s"]])
    figure = go.Figure()
    for number, (system, count) in enumerate(wanted.items()):
        seconds = np.sort(table.loc[table["system"] == system, "latency_s"].to_numpy(float))
        seconds = np.maximum(seconds, _LEAST_S)
        places = np.unique(np.linspace(0, max(len(seconds) - 1, 0), _STEPS).round().astype(int))
        places = places[: len(seconds)]
        share = [0.0, *((places + 1) / max(count, 1) * 100)]
        figure.add_trace(
            go.Scatter(
                x=[_LEAST_S, *seconds[places], longest_s],
                y=[*share, share[-1]],
                name=system,
                mode="lines",
                line={
                    "shape": "hv",
                    "color": _COLOURS[number % len(_COLOURS)],
                    "dash": _DASHES[number % len(_DASHES)],
                    "width": 2.5,
                },
                hovertemplate="%{y:.0f} % within %{x:.3g} s",
            )
        )
    figure.update_xaxes(
        title_text="from publication to delivery, s",
        type="log",
        tickformat=",.3~r",
        minor={"ticks": ""},
        dtick=1,
    )
    figure.update_yaxes(title_text="useful, % of what was wanted", range=[0, 103])
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=420,
        margin={"l": 70, "r": 20, "t": 60, "b": 60},
        hovermode="closest",
    )
    return figure
