"""Where the devices of a fleet are at one moment, over the streets that the trace itself draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.figures.charts import BLUE, GREY
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

__all__ = ["Fleet", "moment", "move"]

_STREETS = 4000  # points of the base: enough to see streets, few enough to draw at once
_GONE_S = 600.0  # a device that has been silent for longer is not drawn


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
    """

    t_us: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    device: NDArray[np.int64]
    names: list[str]

    @classmethod
    def of(cls, positions: pa.Table) -> Fleet:
        """Prepare a table of positions.

        Raises
        ------
        TraceContentError
            There are no positions.
        """
        if not len(positions):
            raise TraceContentError("There are no positions to draw.", expected="at least one")
        positions = positions.sort_by([("device", "ascending"), ("ts", "ascending")])
        names = positions["device"].combine_chunks().dictionary_encode()
        codes = names.indices.to_numpy(zero_copy_only=False)
        edges = np.searchsorted(codes, np.arange(len(names.dictionary) + 1))
        lat, lon = (np.asarray(positions[name].to_numpy(), dtype=np.float64) for name in ("lat", "lon"))
        return cls(epoch_us(positions["ts"]), lat, lon, edges, names.dictionary.to_pylist())

    def at(self, t_us: int) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
        """Latitudes, longitudes and names of the devices heard of within the last ten minutes."""
        rows, names = [], []
        for name, a, b in zip(self.names, self.device[:-1], self.device[1:], strict=True):
            row = int(np.searchsorted(self.t_us[a:b], t_us, side="right")) + int(a) - 1
            if row >= a and t_us - self.t_us[row] <= _GONE_S * US_PER_S:
                rows.append(row)
                names.append(name)
        return self.lat[rows], self.lon[rows], names

    def figure(self, t_us: int, *, title: str = "", height_px: int = 480) -> go.Figure:
        """Draw the fleet at one moment; the second trace holds the devices."""
        step = max(1, len(self.lat) // _STREETS)
        lat, lon, names = self.at(t_us)
        figure = go.Figure(
            [
                go.Scatter(
                    x=self.lon[::step], y=self.lat[::step], mode="markers", hoverinfo="skip",
                    name="everywhere",
                    marker={"size": 2, "color": GREY, "opacity": 0.5},
                ),
                go.Scatter(
                    x=lon, y=lat, text=names, mode="markers", name="devices", hoverinfo="text",
                    marker={"size": 9, "color": BLUE},
                ),
            ]
        )  # fmt: skip
        stretch = 1 / np.cos(np.radians(np.median(self.lat)))
        low, high = (np.quantile(self.lon, q) for q in (0.002, 0.998))
        figure.update_layout(
            template="simple_white",
            height=height_px,
            showlegend=False,
            title={"text": title, "font": {"size": 16}},
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

    def busiest_us(self) -> int:
        """Middle of the ten minutes with the most positions."""
        bins = (self.t_us - self.t_us.min()) // round(_GONE_S * US_PER_S)
        return int(self.t_us.min()) + round((int(np.argmax(np.bincount(bins))) + 0.5) * _GONE_S * US_PER_S)

    def span_us(self) -> tuple[int, int]:
        """First and last time."""
        return int(self.t_us.min()), int(self.t_us.max())


def moment(t_us: int) -> str:
    """Write a time as text, UTC."""
    return str(np.datetime64(t_us, "us").astype("datetime64[m]")).replace("T", " ") + " UTC"


def move(figure: Any, fleet: Fleet, t_us: int) -> None:
    """Move the devices of a figure made by :meth:`Fleet.figure` to another moment."""
    lat, lon, names = fleet.at(t_us)
    with figure.batch_update():
        figure.data[1].update(x=lon, y=lat, text=names)
        figure.layout.title.text = f"{len(names)} devices, {moment(t_us)}"
