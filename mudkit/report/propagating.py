"""What the report propagation shows of the pipeline's job of that name: sums, cells over time, sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mudkit.figures.frame import from_mercator

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_PICTURES", "busiest", "pictures", "saving", "totals", "working_cells"]

MAX_PICTURES: Final = 48
"""A map has so many pictures; of a longer trace neighbouring intervals are joined."""
_SUMS: Final = ("messages_in", "aggregates_out", "bytes_in", "bytes_out")


def totals(counted: Any) -> pd.DataFrame:
    """Add up all cells and intervals, for each threshold.

    Parameters
    ----------
    counted : pyspark.sql.DataFrame
        As :func:`mudkit.pipeline.propagation` gives it.

    Returns
    -------
    pandas.DataFrame
        ``threshold, cells, messages_in, aggregates_out, bytes_in, bytes_out, bytes_left_share``, where
        *cells* counts cells with messages, in each interval anew.
    """
    import pandas as pd

    table = counted.groupBy("threshold").agg({"*": "count"} | dict.fromkeys(_SUMS, "sum")).toPandas()
    table = table.rename(columns={"count(1)": "cells"} | {f"sum({name})": name for name in _SUMS})
    table = pd.DataFrame(table[["threshold", "cells", *_SUMS]]).sort_values("threshold", ignore_index=True)
    table["bytes_left_share"] = table["bytes_out"] / table["bytes_in"]
    return table


def pictures(counted: Any, interval_s: int, tz: str) -> pa.Table:
    """Add up each cell over as many intervals as make at most ``MAX_PICTURES`` pictures.

    Parameters
    ----------
    counted : pyspark.sql.DataFrame
        As :func:`mudkit.pipeline.propagation` gives it, of one zoom.
    interval_s : int
        Length of its intervals.
    tz : str
        Time zone of the labels.

    Returns
    -------
    pyarrow.Table
        ``at`` (when the picture begins), ``threshold, south, west, north, east``, the sums, ``bytes_left``
        in percent, and ``told``, the messages in words; in order of time.
    """
    import pandas as pd

    since = counted.selectExpr("*", "cast(interval_ts as bigint) as since_s")
    first, last = since.selectExpr("min(since_s)", "max(since_s)").first()
    step_s = interval_s * -(-((last - first) // interval_s + 1) // MAX_PICTURES)
    placed = since.selectExpr("*", f"floor((since_s - {first}) / {step_s}) as picture")
    table = placed.groupBy("zoom", "x", "y", "picture", "threshold").sum(*_SUMS).toPandas()
    table = table.rename(columns={f"sum({name})": name for name in _SUMS})
    table = table.sort_values(["picture", "threshold", "x", "y"], ignore_index=True)
    at = pd.to_datetime(first + table["picture"] * step_s, unit="s", utc=True).dt.tz_convert(tz)
    side = 2.0 ** -table["zoom"].to_numpy(dtype=np.float64)
    x, y = (table[name].to_numpy(dtype=np.float64) for name in ("x", "y"))
    north, west = from_mercator(x * side, y * side)
    south, east = from_mercator((x + 1) * side, (y + 1) * side)
    told = [
        f"{came:,} messages as {went:,}"
        for came, went in zip(table["messages_in"], table["aggregates_out"], strict=True)
    ]
    return pa.table(
        {
            "at": at.dt.strftime("%Y-%m-%d %H:%M"), "threshold": table["threshold"], "south": south,
            "west": west, "north": north, "east": east, **{name: table[name] for name in _SUMS},
            "told": told,
            "bytes_left": 100 * table["bytes_out"] / table["bytes_in"],
        }
    )  # fmt: skip


def busiest(shown: pa.Table) -> int:
    """Give the number of the picture with the most messages.

    Parameters
    ----------
    shown : pyarrow.Table
        As :func:`pictures` gives it.
    """
    return int(shown.to_pandas().groupby("at", sort=False)["messages_in"].sum().to_numpy().argmax())


def saving(table: pd.DataFrame, devices: int, interval_s: int) -> str:
    """Say what each threshold leaves of the bytes.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`totals` gives it.
    devices : int
        Those that sent something.
    interval_s : int
    """
    plain = table.iloc[0]
    best = table.loc[table["bytes_left_share"].idxmin()]
    fill = plain["messages_in"] / plain["cells"]
    text = (
        f"**{int(plain['messages_in']):,} messages** of {devices:,} devices, "
        f"{plain['bytes_in'] / 1e6:,.3g} MB to each receiver; in a cell and interval where there are any "
        f"there are {fill:.3g} on average. "
    )
    if best["threshold"] == 1 or best["bytes_left_share"] >= 1:
        return text + "**No threshold leaves less than all of it**: take larger cells or longer intervals."
    text += (
        f"Joined until {int(best['threshold']):,} wait, **{best['bytes_left_share']:.1%} of the bytes are "
        f"left**, and no message waits for longer than {interval_s:,} s. "
    )
    if fill < best["threshold"]:
        text += "Most aggregates end with their interval, before they are full. "
    return text.strip()


def working_cells(shown: pa.Table, threshold: int) -> str:
    """Say how unevenly the saving is spread: which share of the cells makes most of it.

    Parameters
    ----------
    shown : pyarrow.Table
        As :func:`pictures` gives it.
    threshold : int
    """
    table = shown.to_pandas()
    table = table[table["threshold"] == threshold]
    saved = (table["bytes_in"] - table["bytes_out"]).groupby([table["south"], table["west"]]).sum()
    saved = saved.sort_values(ascending=False)
    if not len(saved) or saved.sum() <= 0:
        return "No cell saves anything."
    enough = int(np.searchsorted(saved.cumsum().to_numpy(), 0.8 * saved.sum())) + 1
    return (
        f"With {threshold:,} messages in an aggregate, {enough:,} of {len(saved):,} cells make four fifths "
        f"of the saving; {int((saved <= 0).sum()):,} save nothing."
    )
