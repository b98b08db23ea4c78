"""Where the devices of a fleet are at one moment, over the streets that the trace itself draws."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import folium
import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.clock import as_us
from mudkit.figures.base.page import add_call
from mudkit.figures.base.places import places
from mudkit.figures.base.template import template
from mudkit.figures.maps.ground import map_with_ground
from mudkit.sources.parameters import time_zone
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

__all__ = ["Fleet", "fleet_map", "moment", "move"]

_STREETS = 4000  # points of the base: enough to see streets, few enough to draw at once
_GONE_S = 600.0  # a device that has been silent for longer is not drawn
_SYMBOLS = ("circle", "x")  # with a link, without one
_COLOURS = (BLUE, ORANGE)
_SIZES_PX = (9, 11)


@dataclass(frozen=True)
class Fleet:
    """Positions of a fleet, ready to be asked where everyone is.

    Attributes
    ----------
    t_us : ndarray of int64, shape (positions,)
        Times, ascending within each device.
    lat, lon : ndarray of float64
        Degrees.
    device : ndarray of int64, shape (devices + 1,)
        The positions of device ``i`` are ``device[i]:device[i + 1]``.
    names : list of str
    links : dict of str to (ndarray of int64, ndarray of bool), optional
        The links by device: the times of a link's states, ascending, and whether it is up from there on.
        None: links are not known.
    tz : str
        The time zone in which times are told.
    """

    t_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    device: NDArray[np.int64]
    names: list[str]
    links: dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]] | None = None
    tz: str = "UTC"

    @classmethod
    def of(cls, positions: pa.Table, links: pa.Table | None = None, tz: str = "UTC") -> Fleet:
        """Prepare a table of positions.

        Parameters
        ----------
        positions : pyarrow.Table
        links : pyarrow.Table, optional
            Columns of :data:`mudkit.trace.schema.LINKS`. A state holds until the device's next row; before
            its first row, and without any, a device has a link.
        tz : str
            The time zone in which times are told.

        Raises
        ------
        TraceContentError
            There are no positions.
        ParameterError
            The table of links lacks a column, or there is no such time zone.
        """
        time_zone("tz", tz)
        if not len(positions):
            raise TraceContentError("There are no positions to draw.", expected="at least one")
        positions = positions.sort_by([("device", "ascending"), ("ts", "ascending")])
        names = positions["device"].combine_chunks().dictionary_encode()
        codes = names.indices.to_numpy(zero_copy_only=False)
        edges = np.searchsorted(codes, np.arange(len(names.dictionary) + 1))
        lat, lon = (np.asarray(positions[name].to_numpy(), dtype=np.float64) for name in ("lat", "lon"))
        t_us, devices = epoch_us(positions["ts"]), names.dictionary.to_pylist()
        return cls(t_us, lat, lon, edges, devices, _states(links), tz)

    def at(self, t_us: int) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
        """Latitudes, longitudes and names of the devices heard of within the last ten minutes."""
        rows, names = [], []
        for name, a, b in zip(self.names, self.device[:-1], self.device[1:], strict=True):
            row = int(np.searchsorted(self.t_us[a:b], t_us, side="right")) + int(a) - 1
            if row >= a and t_us - self.t_us[row] <= _GONE_S * US_PER_S:
                rows.append(row)
                names.append(name)
        return self.lat[rows], self.lon[rows], names

    def down(self, t_us: int, names: list[str]) -> NDArray[np.bool_]:
        """Tell which of some devices have no link."""
        down = np.zeros(len(names), dtype=np.bool_)
        for number, name in enumerate(names):
            times, up = (self.links or {}).get(name, ((), ()))
            row = int(np.searchsorted(times, t_us, side="right")) - 1
            down[number] = row >= 0 and not up[row]
        return down

    def headline(self, t_us: int) -> str:
        """Say how many devices there are at one moment and, if links are known, how many have none."""
        names = self.at(t_us)[2]
        down = f"{int(self.down(t_us, names).sum()):,} without a link, " if self.links is not None else ""
        return f"{len(names):,} devices, {down}{moment(t_us, self.tz)}"

    def figure(self, t_us: int, *, title: str = "", height_px: int = 480) -> go.Figure:
        """Draw the fleet at one moment; the second trace holds the devices.

        A device without a link is an orange cross, the others are blue circles. Without a title the figure
        says how many there are.
        """
        step = max(1, len(self.lat) // _STREETS)
        devices = self._devices(t_us)
        figure = go.Figure(
            [
                go.Scatter(
                    x=self.lon[::step], y=self.lat[::step], mode="markers", hoverinfo="skip",
                    name="everywhere", showlegend=False,
                    marker={"size": 2, "color": GREY, "opacity": 0.5},
                ),
                go.Scatter(
                    **devices, mode="markers", name="devices", hoverinfo="text", showlegend=False,
                ),
            ]
        )  # fmt: skip
        for number, name in enumerate(("with a link", "without a link") if self.links is not None else ()):
            mark = {"symbol": _SYMBOLS[number], "color": _COLOURS[number], "size": _SIZES_PX[number]}
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=mark))
        stretch = 1 / np.cos(np.radians(np.median(self.lat)))
        low, high = (np.quantile(self.lon, q) for q in (0.002, 0.998))
        figure.update_layout(
            template=template(),
            height=height_px,
            showlegend=self.links is not None,
            legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"},
            title={"text": title or self.headline(t_us), "font": {"size": 16}},
            margin={"l": 60, "r": 20, "t": 60, "b": 50},
        )
        figure.update_xaxes(title_text="longitude, °", range=[low, high])
        figure.update_yaxes(
            title_text="latitude, °",
            range=[np.quantile(self.lat, q) for q in (0.002, 0.998)],
            scaleanchor="x",
            scaleratio=stretch,
        )
        return figure

    def _devices(self, t_us: int) -> dict[str, Any]:
        """Make what the trace of the devices holds."""
        lat, lon, names = self.at(t_us)
        down = self.down(t_us, names)
        marker = {
            part: np.where(down, off, on).tolist()
            for part, (on, off) in (("symbol", _SYMBOLS), ("color", _COLOURS), ("size", _SIZES_PX))
        }
        labels = [f"{name}, no link" if off else name for name, off in zip(names, down, strict=True)]
        return {"x": lon, "y": lat, "text": labels, "marker": marker | {"opacity": 1}}

    def busiest_us(self) -> int:
        """Middle of the ten minutes with the most positions."""
        bins = (self.t_us - self.t_us.min()) // round(_GONE_S * US_PER_S)
        return int(self.t_us.min()) + round((int(np.argmax(np.bincount(bins))) + 0.5) * _GONE_S * US_PER_S)

    def span_us(self) -> tuple[int, int]:
        """First and last time."""
        return int(self.t_us.min()), int(self.t_us.max())


def moment(t_us: int, tz: str = "UTC") -> str:
    """Write a time as text, as a time zone has it."""
    local = dt.datetime.fromtimestamp(t_us // US_PER_S, ZoneInfo(tz))
    return f"{local:%Y-%m-%d %H:%M} {tz}"


def move(figure: Any, fleet: Fleet, t_us: int) -> None:
    """Move the devices of a figure made by :meth:`Fleet.figure` to another moment."""
    with figure.batch_update():
        figure.data[1].update(**fleet._devices(t_us))
        figure.layout.title.text = fleet.headline(t_us)


def fleet_map(
    positions: pa.Table, links: pa.Table | None = None, at: Any = None, *, height_px: int = 480
) -> folium.Map:
    """Draw the fleet at one moment on a map whose ground the positions draw.

    A device without a link is orange and larger, and says so under the pointer.

    Parameters
    ----------
    positions, links : pyarrow.Table
        As :meth:`Fleet.of` takes them.
    at : datetime-like, optional
        The moment, UTC if it has no zone; without it a busy one.
    height_px : int
        Height in a notebook.

    Returns
    -------
    folium.Map

    Raises
    ------
    ParameterError
        ``at`` is no time, or a table lacks a column.
    TraceContentError
        No device was heard of in the ten minutes before.
    """
    fleet = Fleet.of(positions, links)
    t_us = fleet.busiest_us() if at is None else as_us(at, "at")
    lat, lon, names = fleet.at(t_us)
    if not names:
        first, last = (moment(end_us) for end_us in fleet.span_us())
        raise TraceContentError(
            "There is no device on the map at this moment.",
            where=f"at {moment(t_us)}",
            found=f"positions from {first} to {last}",
            expected="a device heard of in the ten minutes before",
            remedy="choose another moment; without at= it is a busy one",
        )
    title = fleet.headline(t_us)
    leaflet_map, frame = map_with_ground(
        f"Map of {title}", [(lat, lon)], places(positions, "positions"), height_px, None
    )
    down = fleet.down(t_us, names)
    state = [", no link" if off else ", link up" for off in down] if links is not None else [""] * len(names)
    rows = zip(lat, frame.unwrap(lon), down, names, state, strict=True)
    points = [
        [round(float(y), 6), round(float(x), 6), 7 if off else 5, int(off), name + label]
        for y, x, off, name, label in rows
    ]
    add_call(leaflet_map, "points", {"points": points, "colours": list(_COLOURS)})
    ticks = [(0.0, "with a link"), (1.0, "without a link")]
    colours = list(_COLOURS)
    if links is None:
        ticks, colours = [(0.5, "devices")], colours[:1]
    add_call(leaflet_map, "legend", {"title": title, "colours": colours, "ticks": ticks, "keys": []})
    return leaflet_map


def _states(links: pa.Table | None) -> dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]] | None:
    """Take the states of each device out of a table of links."""
    if links is None:
        return None
    wanted = ("device", "ts", "up")
    if not isinstance(links, pa.Table) or not {*wanted} <= {*links.column_names}:
        raise ParameterError(
            "These are not the links of a fleet.",
            where="links",
            found=", ".join(links.column_names) if isinstance(links, pa.Table) else type(links).__name__,
            expected=f"a pyarrow.Table with the columns {', '.join(wanted)}",
            remedy="pa.Table.from_pandas(frame) makes one of a pandas DataFrame",
        )
    links = links.select(wanted).sort_by([("device", "ascending"), ("ts", "ascending")])
    times, up = epoch_us(links["ts"]), np.asarray(links["up"].to_numpy(), dtype=np.bool_)
    names = np.asarray(links["device"].to_pylist(), dtype=object)
    begins = np.flatnonzero(np.concatenate([names[:1] == names[:1], names[1:] != names[:-1]]))
    edges = [*begins.tolist(), len(names)]
    return {str(names[a]): (times[a:b], up[a:b]) for a, b in pairwise(edges)}
