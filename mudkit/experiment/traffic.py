"""Traffic: cars that say again and again where they are and how fast, and two listeners, near and far.

The application of Radiator 5.1. What is said is a function of the seed alone, so that ways to propagate it
can be compared on the same contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit.errors import PropagationProblem
from mudkit.experiment.released import released
from mudkit.lab import Lab
from mudkit.sources.courses import Mobility
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.radiator import Aggregability, Client, Context, Server, cell
from mudkit.systems.radiator.packing import pack
from mudkit.units import KM_PER_DEGREE, distance_km

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FAR", "NEAR", "Drive", "Traffic", "speed_per_cell"]

NEAR: Final = "downtown"
FAR: Final = "out of town"
"""Who stands still and listens: in the middle of what is said, and a way north of it."""

_COLUMNS: Final = ["t_s", "receiver", "aggregate", "lat", "lon", "km", "messages", "speed_kmh", "said_s"]


@dataclass(frozen=True)
class Drive:
    """What came of one way to propagate.

    Parameters
    ----------
    heard : pandas.DataFrame
        A row for each cell of each aggregate and receiver: ``t_s`` (when it came), ``receiver, aggregate,
        lat, lon`` (the cell's centre), ``km`` (its side), ``messages, speed_kmh`` (their mean), ``said_s``
        (when they were said, on average), ``distance_km`` (from the receiver to the cell, then).
    counts : dict of str to int
        As :meth:`~mudkit.systems.radiator.Server.counts` gives them.
    lab : Lab
    """

    heard: pd.DataFrame
    counts: dict[str, int]
    lab: Lab

    def delays(self, near_km: float) -> tuple[float, float]:
        """Give the mean delay of messages about cells within a distance of the receiver, and beyond it; s."""
        is_near = self.heard["distance_km"] <= near_km
        near_s, far_s = (_mean_delay_s(self.heard[each]) for each in (is_near, ~is_near))
        return near_s, far_s


@dataclass(frozen=True)
class Traffic:
    """What is said, whatever becomes of it.

    In the middle third of the time cars within ``jam_km`` of the middle say a quarter of their speed.

    Parameters
    ----------
    cars : int
    minutes : float
        Virtual time.
    every_s : float
        Between two contexts of a car.
    mobility : str or Mobility
        As in :meth:`mudkit.lab.Lab.fleet`.
    far_km : float
        From the listener downtown to the one out of town.
    jam_km : float

    Examples
    --------
    >>> from mudkit.systems.radiator import Volume
    >>> traffic = Traffic(cars=3, minutes=2)
    >>> drive = traffic.run(1, lambda sender, receiver: Volume(1))
    >>> len(traffic.said(1)), drive.counts["contexts"]
    (6, 6)
    """

    cars: int = 20
    minutes: float = 15.0
    every_s: float = 60.0
    mobility: str | Mobility = "manhattan"
    far_km: float = 20.0
    jam_km: float = 1.0

    def __post_init__(self) -> None:
        whole_number("cars", self.cars, 1, 100_000)
        number("minutes", self.minutes, 0.1, 1e5)
        number("every_s", self.every_s, 0.1, 1e6)
        number("far_km", self.far_km, 0.0, 5000.0)
        number("jam_km", self.jam_km, 0.0, 1000.0)

    def said(self, seed: int) -> pd.DataFrame:
        """Give what is said, in order: ``t_s, car, lat, lon, speed_kmh``."""
        lab = Lab(seed)
        self._fleet(lab)
        lab.run(minutes=self.minutes)
        table = lab.frame("positions").sort_values(["ts", "device"], ignore_index=True)
        since_us = table["ts"].astype("int64") - lab.start_us
        table["at_s"] = since_us / 1e6
        # Cars do not speak in chorus: each has a moment of its own within the interval.
        order = {name: place for place, name in enumerate(lab.devices)}
        table["t_s"] = table["at_s"] + self.every_s * table["device"].map(order) / max(self.cars, 1)
        table = table[table["t_s"] < 60 * self.minutes].sort_values("t_s", ignore_index=True)
        away = distance_km(table["lat"], table["lon"], *self.middle(table))
        third = table["t_s"] // (20 * self.minutes)
        slow = np.where((away <= self.jam_km) & (third == 1), 0.25, 1.0)
        table["speed_kmh"] = (3.6 * table["speed_mps"].fillna(0.0) * slow).round(1)
        table = table.rename(columns={"device": "car"})
        return table[["t_s", "car", "lat", "lon", "speed_kmh"]].round({"lat": 5, "lon": 5})

    @staticmethod
    def middle(said: pd.DataFrame) -> tuple[float, float]:
        """Give the middle of what is said, degrees."""
        return round(float(said["lat"].median()), 5), round(float(said["lon"].median()), 5)

    def listeners(self, said: pd.DataFrame) -> dict[str, tuple[float, float]]:
        """Give the places of those who stand still and listen."""
        lat, lon = self.middle(said)
        return {NEAR: (lat, lon), FAR: (round(lat + self.far_km / KM_PER_DEGREE, 5), lon)}

    def run(
        self,
        seed: int,
        aggregability: Callable[..., Any] | Aggregability,
        *,
        cell_km: float = 1.0,
        longest_s: float = 300.0,
        **settings: Any,
    ) -> Drive:
        """Let it be said on a fleet, and let everything arrive.

        Parameters
        ----------
        seed : int
        aggregability : callable
        cell_km : float
            Side of the cells of :func:`speed_per_cell`, the join.
        longest_s : float
            No message waits for longer.
        **settings
            Of :class:`~mudkit.systems.radiator.Server`, for instance ``chain``.
        """
        said = self.said(seed)
        lab = Lab(seed, messages=False)
        self._fleet(lab)
        stand = self.listeners(said)
        for name, at in stand.items():
            lab.device(name, at=at)
        join = partial(speed_per_cell, km=cell_km)
        server = Server(lab, aggregability, join, max_retention_s=longest_s, **settings)
        heard: list[list[Any]] = []
        places = self._places(said) | stand
        clients = {}
        for name, device in lab.devices.items():
            loc = places.get(name, stand[NEAR])  # one that never says anything is as good as downtown
            clients[name] = Client(
                device, server, receive=partial(self._hear, heard, lab, name),
                attributes={"loc": loc, "p2p_enabled": True},
            )  # fmt: skip
        lab.run(seconds=5)
        began_us = lab.world.now_us
        for context, t_us in _contexts(said):
            lab.world.run(began_us + t_us)
            clients[min(context.people)].propagate_context(context)
        lab.run(seconds=longest_s + 30)
        for row in heard:
            row[0] -= began_us / 1e6
        return Drive(self._table(heard, said, stand), server.counts().result(), lab)

    def play(
        self,
        said: pd.DataFrame,
        aggregability: Callable[..., Any] | Aggregability,
        receivers: Sequence[str] = (NEAR, FAR),
        *,
        cell_km: float = 1.0,
        longest_s: float = 300.0,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Apply the server's rules alone, without a network, for some of the receivers: it is quick.

        Returns
        -------
        heard, sent : pandas.DataFrame
            As in :class:`Drive`; and ``receiver, aggregates, messages, bytes`` (gzip, without addresses).

        Raises
        ------
        PropagationProblem
            The function has failed.
        """
        import pandas as pd

        stand = self.listeners(said)
        places = self._places(said) | stand
        attributes = {name: {"loc": list(place)} for name, place in places.items()}
        messages = [(t_us, min(context.people), context) for context, t_us in _contexts(said)]
        heard: list[list[Any]] = []
        sums = {name: [0, 0, 0] for name in receivers}
        joined: dict[tuple[int, ...], tuple[Context, int]] = {}
        problems: list[PropagationProblem] = []
        for t_us, entry in released(messages, attributes, receivers, aggregability, longest_s, problems):
            key = tuple(message.number for message in entry.batch)
            if key not in joined:
                context = speed_per_cell([message.context for message in entry.batch], km=cell_km)
                joined[key] = context, len(pack(context.describe(), compress=True))
            context, size = joined[key]
            for name in entry.recipients:
                sums[name] = [now + more for now, more in zip(sums[name], (1, len(key), size), strict=True)]
                heard += _rows(t_us / 1e6, name, sums[name][0], context)
        if problems:
            raise problems[0]
        sent = pd.DataFrame(
            [[name, *row] for name, row in sums.items()],
            columns=["receiver", "aggregates", "messages", "bytes"],
        )
        return self._table(heard, said, stand), sent

    @staticmethod
    def _places(said: pd.DataFrame) -> dict[str, tuple[float, float]]:
        """Give where each car is at first."""
        first = said.drop_duplicates("car")
        return {
            car: (lat, lon) for car, lat, lon in zip(first["car"], first["lat"], first["lon"], strict=True)
        }

    def _fleet(self, lab: Lab) -> None:
        lab.fleet(self.cars, mobility=self.mobility, every_s=self.every_s, prefix="car")

    @staticmethod
    def _hear(heard: list[list[Any]], lab: Lab, name: str, context: Context) -> None:
        number_ = heard[-1][2] + 1 if heard else 1
        heard += _rows(lab.world.now_us / 1e6, name, number_, context)

    def _table(
        self, heard: list[list[Any]], said: pd.DataFrame, stand: dict[str, tuple[float, float]]
    ) -> pd.DataFrame:
        """Make the table, with the distance from where each receiver was when it heard."""
        import pandas as pd

        table = pd.DataFrame(heard, columns=_COLUMNS).sort_values(["t_s", "aggregate"], ignore_index=True)
        table["distance_km"] = np.nan
        for name, rows in table.groupby("receiver"):
            lat: Any
            lon: Any
            if name in stand:
                lat, lon = stand[str(name)]
            else:
                own = said[said["car"] == name]
                at = np.maximum(np.searchsorted(own["t_s"], rows["t_s"], side="right") - 1, 0)
                lat, lon = own["lat"].to_numpy()[at], own["lon"].to_numpy()[at]
            table.loc[rows.index, "distance_km"] = distance_km(rows["lat"], rows["lon"], lat, lon)
        return table


def speed_per_cell(contexts: Sequence[Context], *, km: float) -> Context:
    """Join contexts into the mean speed in each cell, how many they are and when they were said on average.

    A join (Radiator 3.1) whose size grows with the cells, not with the messages; nobody is named.

    Parameters
    ----------
    contexts : sequence of Context
        With ``loc, speed_kmh, said_s``.
    km : float
        Side of the cells.
    """
    held: dict[Any, list[Context]] = {}
    for context in contexts:
        held.setdefault(cell(context["loc"], km=km), []).append(context)
    cells = [
        [
            *place.centre, len(those), round(sum(each["speed_kmh"] for each in those) / len(those), 1),
            round(sum(each["said_s"] for each in those) / len(those), 1),
        ]
        for place, those in sorted(held.items())
    ]  # fmt: skip
    spans = [each.span_us or (0, 0) for each in contexts]
    span_us = min(begin for begin, _ in spans), max(end for _, end in spans)
    return Context(frozenset(), {"cells": cells, "km": km}, span_us)


def _rows(t_s: float, receiver: str, aggregate: int, context: Context) -> list[list[Any]]:
    return [
        [t_s, receiver, aggregate, lat, lon, context["km"], count, speed_kmh, said_s]
        for lat, lon, count, speed_kmh, said_s in context["cells"]
    ]


def _contexts(said: pd.DataFrame) -> list[tuple[Context, int]]:
    return [
        (
            Context(frozenset((car,)), {"loc": [lat, lon], "speed_kmh": speed_kmh, "said_s": round(t_s, 1)}),
            round(t_s * 1e6),
        )
        for t_s, car, lat, lon, speed_kmh in said.itertuples(index=False)
    ]


def _mean_delay_s(heard: pd.DataFrame) -> float:
    if not len(heard):
        return float("nan")
    return float(np.average(heard["t_s"] - heard["said_s"], weights=heard["messages"]))
