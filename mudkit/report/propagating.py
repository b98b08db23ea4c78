"""What the report propagation shows: sums of the pipeline's job, cells over time, an application played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mudkit import figures, words
from mudkit.errors import TraceContentError
from mudkit.systems.radiator import APPLICATIONS, Played, play
from mudkit.units import KM_PER_DEGREE, distance_km, middle

if TYPE_CHECKING:
    import folium
    import pandas as pd

__all__ = [
    "FAR",
    "MAX_PICTURES",
    "NEAR",
    "busiest",
    "busiest_positions",
    "known_map",
    "pictures",
    "played",
    "saving",
    "totals",
    "what_is_known",
    "working_cells",
]

MAX_PICTURES: Final = 48
"""A map has so many pictures; of a longer trace neighbouring intervals are joined."""
NEAR: Final = "in the middle"
FAR: Final = "far away"
"""Who stands and listens."""
_MOMENTS: Final = 40
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
        The length of an interval of ``counted``, in seconds.
    tz : str
        The time zone of the labels.

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
    bounds = figures.tile_bounds(*(table[name].to_numpy() for name in ("zoom", "x", "y")))
    captions = [
        f"{came:,} messages as {went:,}"
        for came, went in zip(table["messages_in"], table["aggregates_out"], strict=True)
    ]
    return pa.table(
        {
            "at": at.dt.strftime("%Y-%m-%d %H:%M"),
            "threshold": table["threshold"],
            **bounds,
            **{name: table[name] for name in _SUMS},
            "told": captions,
            "bytes_left": 100 * table["bytes_out"] / table["bytes_in"],
        }
    )


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
        The number of devices that sent something.
    interval_s : int
        The length of an interval, in seconds.
    """
    plain = table.iloc[0]
    best = table.loc[table["bytes_left_share"].idxmin()]
    fill = plain["messages_in"] / plain["cells"]
    text = (
        f"**{int(plain['messages_in']):,} messages** of {devices:,} devices, "
        f"{words.size(plain['bytes_in'])} to each receiver; in a cell and interval where there are any "
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
        The number of messages that wait before they are joined.
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


def busiest_positions(positions: Any, minutes: float) -> pa.Table:
    """Give the positions of the stretch of time in which most are.

    Parameters
    ----------
    positions : pyspark.sql.DataFrame
        Positions with ``device, ts, lat, lon`` and perhaps ``speed_mps``.
    minutes : float
        Length of the stretch; it begins at a multiple of it since 1970 UTC.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    TraceContentError
        There is none.
    """
    stretch = f"floor(unix_micros(ts) / {round(minutes * 60e6)})"
    placed = positions.selectExpr("*", f"{stretch} as stretch")
    most = placed.groupBy("stretch").count().orderBy("count", "stretch", ascending=[False, True]).first()
    if most is None:
        raise TraceContentError("There are no positions.", expected="at least one")
    return placed.where(f"stretch = {most[0]}").drop("stretch").toArrow()


def played(positions: pa.Table, application: str, far_km: float) -> Played:
    """Let an application run on positions, and two listen: in the middle of them, and a way north of it.

    Parameters
    ----------
    positions : pyarrow.Table
        As :func:`busiest_positions` gives them.
    application : str
        The application, a key of :data:`mudkit.systems.radiator.APPLICATIONS`.
    far_km : float
        The distance between the two receivers, in km.
    """
    lat, lon = middle(positions["lat"].to_numpy(), positions["lon"].to_numpy())
    north = min(lat + far_km / float(KM_PER_DEGREE), 89.0)
    return play(APPLICATIONS[application], positions, stand={NEAR: (lat, lon), FAR: (north, lon)})


def known_map(run: Played, positions: pa.Table, application: str) -> folium.Map | None:
    """Draw what both know over time, in as many pictures as a map may hold; None: no cell was told of.

    Parameters
    ----------
    run : Played
        As :func:`played` gives it.
    positions : pyarrow.Table
        The positions that are drawn as the ground.
    application : str
    """
    if not len(run.heard):
        return None
    cells = len(run.heard.groupby(["lat", "lon"]))
    last_s = float(run.heard["t_s"].max())
    pictures_ = max(min(_MOMENTS, figures.MAX_SLIDE_CELLS // (2 * cells)), 1)
    return figures.knowledge_map(
        run.heard,
        positions.select(["lat", "lon"]).to_pandas(),
        (NEAR, FAR),
        value="value",
        label=APPLICATIONS[application].tells,
        every_s=last_s / pictures_,
        until_s=last_s,
        first_s=last_s / 2,
    )


def what_is_known(run: Played, application: str, near_km: float = 5.0) -> str:
    """Say how old it is what each hears of the middle, and what it takes.

    Parameters
    ----------
    run : Played
    application : str
    near_km : float
        The distance from the middle up to which a message counts as one of the middle, in km.
    """
    received = run.received
    lat, lon = middle(received["lat"], received["lon"])
    of_middle = received[distance_km(received["lat"], received["lon"], lat, lon) <= near_km]
    age_s = of_middle.groupby("receiver")["age_s"].mean()
    parts = [
        f"who is **{each['receiver']}** gets {each['messages']:,} messages in {each['aggregates']:,} "
        f"aggregates, {words.size(each['bytes'])}, those of the middle "
        f"{age_s.get(each['receiver'], np.nan):.0f} s old"
        for each in run.sent.sort_values("receiver", ascending=False).to_dict("records")
    ]
    note = "" if len(run.heard) else " None of them has told of a cell: in all of them are too few people."
    return f"The {application}, of {received['sender'].nunique():,} devices: {'; '.join(parts)}.{note}"
