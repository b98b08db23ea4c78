"""The six figures of Last hop: waste and loss, from tables that ``systems.lasthop.sweep`` gives.

Lines are medians over seeds, and thin bars reach from the lowest to the highest seed. What the runs were with
stands below each figure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import GREY
from mudkit.figures.base.colours import ramp
from mudkit.figures.base.template import template
from mudkit.sources.parameters import of_kind

__all__ = [
    "LEAST",
    "by_limit",
    "by_threshold",
    "caption",
    "loss_by_downtime",
    "loss_by_expiration",
    "waste_by_expiration",
    "waste_by_max",
]

LEAST: Final = 0.1
"""Percent; on a logarithmic axis what is less is drawn here."""
_FEW: Final = 30
"""Where fewer messages were read over all seeds, no loss is drawn."""
_SYMBOLS: Final = ("circle", "square", "triangle-up", "diamond", "x", "star", "cross", "pentagon")
_WIDTH: Final = 125
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def waste_by_max(table: pd.DataFrame, *, title: str = "Waste of on-line forwarding: overflow") -> go.Figure:
    """Draw Figure 1: the waste over ``max``, a line for each ``user_frequency``; grey: the formula.

    Parameters
    ----------
    table : pandas.DataFrame
        What ``sweep`` gives for these two.
    title : str
    """
    _need(table, "max", "user_frequency", "waste")
    figure = go.Figure()
    frequency = table.attrs.get("parameters", {}).get("event_frequency", 32.0)
    most = sorted(table["max"].unique())
    for often in sorted(table["user_frequency"].unique()):
        figure.add_trace(
            go.Scatter(
                x=most,
                y=[100 * max(0.0, 1 - often * each / frequency) for each in most],
                mode="lines",
                line={"color": GREY, "width": 1, "dash": "dot"},
                showlegend=False,
                hoverinfo="skip",
            )
        )
    _lines(figure, table, "max", "user_frequency", "waste", _reads)
    figure.update_xaxes(title_text="Max, messages at a time", type="log", **_ticks(table["max"], _count))
    figure.update_yaxes(title_text="waste, % of what is forwarded", range=[-3, 103])
    return _styled(figure, table, title, "reads a day")


def loss_by_downtime(
    table: pd.DataFrame, *, title: str = "Loss of on-demand forwarding: time without a network"
) -> go.Figure:
    """Draw Figure 2: the loss over ``outage``, a line for each ``user_frequency``.

    Parameters
    ----------
    table : pandas.DataFrame
        What ``sweep`` gives for these two.
    title : str
    """
    _need(table, "outage", "user_frequency", "loss")
    shares = table.assign(outage=100 * table["outage"])
    figure = _lines(go.Figure(), shares, "outage", "user_frequency", "loss", _reads)
    figure.update_xaxes(title_text="time without a network, %", range=[-2, 102])
    figure.update_yaxes(title_text="loss, % of what on-line forwarding has read", range=[-3, 103])
    return _styled(figure, table, title, "reads a day")


def by_limit(table: pd.DataFrame, *, title: str = "Waste and loss by the prefetch limit") -> go.Figure:
    """Draw Figure 3: waste (solid) and loss (dashed) over ``prefetch_limit``, a pair for each ``outage``.

    Parameters
    ----------
    table : pandas.DataFrame
        What ``sweep`` gives for these two.
    title : str
    """
    _need(table, "prefetch_limit", "outage", "waste", "loss")
    figure = _pairs(table, "prefetch_limit", "outage", lambda share: f"{share:.0%}")
    figure.add_hline(1.0, line={"dash": "dot", "width": 1, "color": GREY})
    figure.add_vrect(16, 64, fillcolor=GREY, opacity=0.12, line_width=0)
    figure.update_xaxes(
        title_text="prefetch limit, messages on the device; grey: the paper's band from 16 to 64",
        type="log",
        **_ticks(table["prefetch_limit"], _count),
    )
    return _styled(figure, table, title, "time without a network")


def waste_by_expiration(
    table: pd.DataFrame, *, title: str = "Waste of on-line forwarding: expiration time"
) -> go.Figure:
    """Draw Figure 4: the waste over ``expiration``, a line for each ``user_frequency``.

    Parameters
    ----------
    table : pandas.DataFrame
        What ``sweep`` gives for these two; expirations in seconds.
    title : str
    """
    _need(table, "expiration", "user_frequency", "waste")
    figure = _lines(go.Figure(), table, "expiration", "user_frequency", "waste", _reads)
    figure.update_yaxes(title_text="waste, % of what is forwarded", range=[-3, 103])
    return _styled(_times(figure, table), table, title, "reads a day")


def loss_by_expiration(
    table: pd.DataFrame, *, title: str = "Loss of on-demand forwarding: expiration time"
) -> go.Figure:
    """Draw Figure 5: the loss over ``expiration``, a line for each ``user_frequency``.

    Parameters
    ----------
    table : pandas.DataFrame
        What ``sweep`` gives for these two; expirations in seconds. Of points at which on-line forwarding has
        fewer than 30 messages read over all seeds nothing is drawn.
    title : str
    """
    _need(table, "expiration", "user_frequency", "loss", "best")
    read = table.groupby(["expiration", "user_frequency"])["best"].transform("sum")
    enough = table[read >= _FEW]
    figure = _lines(go.Figure(), enough, "expiration", "user_frequency", "loss", _reads)
    figure.update_yaxes(title_text="loss, % of what on-line forwarding has read", range=[-3, 103])
    more = f"no points where on-line forwarding has fewer than {_FEW} read"
    return _styled(_times(figure, table), table, title, "reads a day", more)


def by_threshold(
    table: pd.DataFrame, *, title: str = "Waste and loss by the expiration threshold"
) -> go.Figure:
    """Draw Figure 6: waste (solid) and loss (dashed) over the threshold, a pair for each ``expiration``.

    Parameters
    ----------
    table : pandas.DataFrame
        What ``sweep`` gives for ``expiration_threshold_s`` and ``expiration``, both in seconds.
    title : str
    """
    _need(table, "expiration_threshold_s", "expiration", "waste", "loss")
    figure = _pairs(table, "expiration_threshold_s", "expiration", _time)
    figure.update_xaxes(
        title_text="expiration threshold: what expires sooner is not prefetched",
        type="log",
        **_ticks(table["expiration_threshold_s"], _time),
    )
    return _styled(figure, table, title, "mean expiration time")


def caption(parameters: Mapping[str, Any]) -> str:
    """Tell what the runs of a sweep were with; what was swept over stands at the axes.

    Parameters
    ----------
    parameters : mapping
        What stands in ``attrs["parameters"]`` of the table that ``sweep`` gives.
    """
    each = {name: value for name, value in parameters.items() if not isinstance(value, list)}
    parts = []
    if "event_frequency" in each:
        parts.append(f"{each['event_frequency']:g} messages a day")
    if "user_frequency" in each:
        parts.append(f"{each['user_frequency']:g} reads a day")
    if "max" in each:
        parts.append("reads of all there is" if each["max"] is None else f"reads of at most {each['max']}")
    if "outage" in parameters:
        parts.append(_outages(parameters))
    if each.get("expiration", 0) is None:
        parts.append("nothing expires")
    elif "expiration" in parameters:
        parts.append(_expirations(parameters))
    if each.get("threshold"):
        parts.append(f"ranks of {each['threshold']:g} and more")
    if "policy" in each:
        parts.append(f"policy {_policy(each)}")
    if "reads_cv" in each:
        parts.append(f"spread of the reads a day {each['reads_cv']:g}")
    if "days" in each:
        parts.append(f"{each['days']:,} days")
    seeds = parameters.get("seeds", [])
    return "; ".join([*parts, _of(len(seeds))] if seeds else parts)


def _of(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"medians of {seeds} seeds, bars from lowest to highest"


def _outages(parameters: Mapping[str, Any]) -> str:
    share, often, law = parameters["outage"], parameters.get("outages_per_day"), "exponential"
    if isinstance(share, Mapping):
        share, often, law = share["share"], share["per_day"], share["distribution"]
    if share == 0.0:
        return "no outages"
    of_time = "" if isinstance(share, list) else f" {share:.0%} of the time"
    return f"outages{of_time}, {law}" + (f", {often:g} a day" if isinstance(often, int | float) else "")


def _expirations(parameters: Mapping[str, Any]) -> str:
    time, share = parameters["expiration"], parameters.get("expiring_share", 1.0)
    law = "exponential"
    if isinstance(time, Mapping):
        time, law = time["mean_s"], time["law"]
    mean = f", mean {_time(time)}" if isinstance(time, int | float) else ""
    return f"expiration times {law}{mean}" + ("" if share == 1.0 else f", for {share:.0%} of the messages")


def _policy(each: Mapping[str, Any]) -> str:
    policy = each["policy"]
    settings = policy if isinstance(policy, Mapping) else each
    parts = [str(settings["kind"] if isinstance(policy, Mapping) else policy)]
    limit, threshold_s = settings.get("prefetch_limit"), settings.get("expiration_threshold_s")
    if limit is not None:
        parts.append(f"prefetch limit {limit if isinstance(limit, str) else _count(limit)}")
    if threshold_s is not None:
        time = threshold_s if isinstance(threshold_s, str) else _time(threshold_s)
        parts.append(f"expiration threshold {time}")
    return ", ".join(parts)


def _need(table: pd.DataFrame, *names: str) -> None:
    of_kind("table", table, pd.DataFrame, expected=f"a DataFrame that sweep gives, with {', '.join(names)}")
    missing = [name for name in names if name not in table.columns]
    if missing or table.empty:
        raise ParameterError(
            "The table cannot be drawn.",
            where="table",
            found=f"{len(table)} rows with {', '.join(map(str, table.columns))}",
            expected=f"rows of sweep with {', '.join(names)}",
        )


def _lines(
    figure: go.Figure, table: pd.DataFrame, x: str, by: str, value: str, say: Callable[[float], str],
    *, dash: str = "solid", least: float | None = None, legend: bool = True,
) -> go.Figure:  # fmt: skip
    """Draw a line for each value of one column: the darker, the larger."""
    names = sorted(table[by].unique())
    colours = ramp(len(names) + 2)[2:]  # the lightest are hard to see
    filled = "" if dash == "solid" else "-open"
    for number, (name, colour) in enumerate(zip(names, colours, strict=True)):
        spread = 100 * table[table[by] == name].groupby(x)[value].agg(["median", "min", "max"])
        middle = spread["median"].clip(lower=least)
        figure.add_trace(
            go.Scatter(
                x=spread.index, y=middle, name=say(name), legendgroup=say(name), showlegend=legend,
                mode="lines+markers", line={"color": colour, "dash": dash},
                marker={"symbol": _SYMBOLS[number % len(_SYMBOLS)] + filled, "size": 7},
                error_y={
                    "type": "data", "symmetric": False, "array": spread["max"].clip(lower=least) - middle,
                    "arrayminus": middle - spread["min"].clip(lower=least), "thickness": 1, "width": 0,
                },
                customdata=spread.to_numpy(),
                hovertemplate=f"{value} %{{customdata[0]:.2f}} % "
                f"(%{{customdata[1]:.2f}}–%{{customdata[2]:.2f}})<extra>{say(name)}</extra>",
            )
        )  # fmt: skip
    return figure


def _pairs(table: pd.DataFrame, x: str, by: str, say: Callable[[float], str]) -> go.Figure:
    """Draw waste and loss over one column, in percent on a logarithmic axis."""
    figure = go.Figure()
    _lines(figure, table, x, by, "waste", say, least=LEAST)
    _lines(figure, table, x, by, "loss", say, dash="dash", least=LEAST, legend=False)
    for name, dash, symbol in (("waste", "solid", "circle"), ("loss", "dash", "circle-open")):
        figure.add_trace(
            go.Scatter(
                x=[None],
                y=[None],
                name=name,
                mode="lines+markers",
                line={"color": "black", "dash": dash},
                marker={"symbol": symbol},
            )
        )
    figure.update_yaxes(
        title_text="% of messages",
        type="log",
        range=[-1.08, 2.08],
        tickvals=[LEAST, 1, 10, 100],
        ticktext=[f"≤ {LEAST:g}", "1", "10", "100"],
        minor={"ticks": ""},
    )
    return figure


def _times(figure: go.Figure, table: pd.DataFrame) -> go.Figure:
    return figure.update_xaxes(
        title_text="mean expiration time", type="log", **_ticks(table["expiration"], _time)
    )


def _ticks(values: pd.Series[float], say: Callable[[float], str]) -> dict[str, Any]:
    """Name at most ten of the values at a logarithmic axis."""
    whole = sorted(values.unique())
    some = whole[:: -(-len(whole) // 10)]
    return {"tickvals": some, "ticktext": [say(each) for each in some], "minor": {"ticks": ""}}


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _reads(often: float) -> str:
    return f"{often:g}"


def _time(seconds: float) -> str:
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{seconds / size:.2g} {unit}"


def _styled(figure: go.Figure, table: pd.DataFrame, title: str, legend: str, *more: str) -> go.Figure:
    text = "; ".join([*filter(None, [caption(table.attrs.get("parameters", {}))]), *more])
    lines: Sequence[str] = textwrap.wrap(text, _WIDTH)
    figure.add_annotation(
        text="<br>".join(lines), xref="paper", yref="paper", x=0, y=0, yshift=-58, yanchor="top",
        xanchor="left", align="left", showarrow=False, font={"size": 11, "color": "#555555"},
    )  # fmt: skip
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=440 + 15 * len(lines),
        margin={"l": 70, "r": 20, "t": 60, "b": 68 + 15 * len(lines)},
        legend={"title": {"text": legend}},
    )
    return figure
