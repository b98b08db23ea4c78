"""Traffic: cars that report their places and speeds, and two listeners, near and far (Radiator 5.1).

The reports are a function of the seed alone, so that ways to propagate are compared on the same contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from mudkit.checks import Range, check_arguments
from mudkit.display import shows_fields
from mudkit.errors import ParameterError, PropagationProblem
from mudkit.lab import Lab
from mudkit.sources.courses import Mobility
from mudkit.systems.radiator import (
    APPLICATIONS,
    Aggregability,
    Application,
    Client,
    Context,
    Server,
    joins,
    play,
)
from mudkit.systems.radiator.study.played import ReceivedCell, cells_of_aggregate, received_cells
from mudkit.systems.radiator.thresholds import Function
from mudkit.units import KM_PER_DEGREE, distance_km, middle
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "phones_kb": Label("sent by phones", "kB"),
        "near_delay_s": Label("delay near by", "s"),
        "far_delay_s": Label("delay far away", "s"),
        "times_fewer": Label("times fewer from the server"),
    }
)


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class TrafficRun:
    """Result of one way to propagate.

    Parameters
    ----------
    cells : pandas.DataFrame
        As of :class:`mudkit.systems.radiator.Played`, with ``speed_kmh`` for ``value``; of each receiver.
    counts : dict of str to int
        Result of :meth:`~mudkit.systems.radiator.Server.counts`.
    lab : Lab
    """

    cells: pd.DataFrame
    counts: dict[str, int]
    lab: Lab

    def delays(self, near_km: Annotated[float, Range(0.0, 1e5)]) -> tuple[float, float]:
        """Return the mean delays, in s, of messages about cells within ``near_km`` and beyond."""
        is_near = self.cells["distance_km"] <= near_km
        return _mean_delay_s(self.cells[is_near]), _mean_delay_s(self.cells[~is_near])

    def measures(self, near_km: float = 1.0) -> dict[str, float]:
        """Return what the run cost and how late messages were, by measure.

        ``server_kb`` and ``phones_kb`` are sent by the server and by all phones. ``mean_delay_s`` is the mean
        over all messages and receivers; ``near_delay_s, far_delay_s`` are those of :meth:`delays`;
        ``aggregates`` is the number of aggregates that the server sent.
        """
        bill = self.lab.bill()
        near_s, far_s = self.delays(near_km)
        return {
            "server_kb": self.counts["bytes_sent"] / 1000,
            "phones_kb": float(bill.loc[bill["direction"] == "up", "bytes"].sum()) / 1000,
            "aggregates": self.counts["aggregates"],
            "mean_delay_s": _mean_delay_s(self.cells),
            "near_delay_s": near_s,
            "far_delay_s": far_s,
        }


@check_arguments(types=False)
@dataclass(frozen=True)
class Traffic:
    """Plan of cars that report their speeds.

    In the middle third of the time, cars within ``jam_km`` of the middle report a quarter of their speed.

    Parameters
    ----------
    cars, minutes, every_s
        Number of cars, virtual time, and time between two contexts of a car.
    mobility : str or Mobility
        As in :meth:`mudkit.lab.Lab.fleet`; with :class:`mudkit.sources.Replay`, cars report the
        speeds of a recorded trace where it has them.
    far_km, jam_km : float
        Distance between the listeners downtown and out of town, and radius of the added jam; 0: none.

    Examples
    --------
    >>> from mudkit.systems.radiator import Volume
    >>> traffic = Traffic(cars=3, minutes=2)
    >>> drive = traffic.run(1, lambda sender, receiver: Volume(1))
    >>> len(traffic.reports(1)), drive.counts["contexts"]
    (6, 6)
    """

    NEAR: ClassVar = "downtown"
    """Name of the stationary listener in the middle of the reports."""
    FAR: ClassVar = "out of town"
    """Name of the stationary listener ``far_km`` north of the middle."""

    cars: Annotated[int, Range(1, 100_000)] = 20
    minutes: Annotated[float, Range(0.1, 1e5)] = 15.0
    every_s: Annotated[float, Range(0.1, 1e6)] = 60.0
    mobility: str | Mobility = "manhattan"
    far_km: Annotated[float, Range(0.0, 5000.0)] = 20.0
    jam_km: Annotated[float, Range(0.0, 1000.0)] = 1.0

    def reports(self, seed: int) -> pd.DataFrame:
        """Return the reports of a ``seed`` in order: ``t_s, car, lat, lon, speed_kmh``.

        Without a report that has a speed, it raises a ParameterError.
        """
        lab = Lab(seed)
        self._add_cars(lab)
        lab.run(minutes=self.minutes)
        table = lab.frame("positions").sort_values(["ts", "device"], ignore_index=True)
        since_us = table["ts"].astype("int64") - lab.start_us
        table["at_s"] = since_us / 1e6
        # Each car reports at its own moment within the interval.
        order = {name: place for place, name in enumerate(lab.devices)}
        table["t_s"] = table["at_s"] + self.every_s * table["device"].map(order) / max(self.cars, 1)
        table = table[table["t_s"] < 60 * self.minutes].sort_values("t_s", ignore_index=True)
        if not table["speed_mps"].notna().any():
            raise ParameterError(
                "No car reports a speed.",
                where="mobility",
                found="no speed that is known",
                expected="moves within the time",
                remedy="another start, more cars or minutes",
            )
        away = distance_km(table["lat"], table["lon"], *self.middle(table))
        third = table["t_s"] // (20 * self.minutes)
        slow = np.where((away <= self.jam_km) & (third == 1), 0.25, 1.0)
        table["speed_kmh"] = (3.6 * table["speed_mps"] * slow).round(1)
        table = table[table["speed_kmh"].notna()].rename(columns={"device": "car"}).reset_index(drop=True)
        return table[["t_s", "car", "lat", "lon", "speed_kmh"]].round({"lat": 5, "lon": 5})

    @staticmethod
    def middle(reports: pd.DataFrame) -> tuple[float, float]:
        """Return the middle of the reports, in degrees."""
        lat, lon = middle(reports["lat"], reports["lon"])
        return round(lat, 5), round(lon, 5)

    def listeners(self, reports: pd.DataFrame) -> dict[str, tuple[float, float]]:
        """Return the places of the stationary listeners."""
        lat, lon = self.middle(reports)
        return {self.NEAR: (lat, lon), self.FAR: (round(lat + self.far_km / KM_PER_DEGREE, 5), lon)}

    @staticmethod
    def application(aggregability: Function | Aggregability, cell_km: float = 1.0) -> Application:
        """Return the application ``traffic`` with this ``aggregability`` and cells of ``cell_km``."""
        function = aggregability if isinstance(aggregability, Aggregability) else Aggregability(aggregability)
        join = partial(joins.mean_per_cell, km=cell_km)
        return replace(APPLICATIONS["traffic"], aggregability=function, join=join)

    def run(
        self,
        seed: int,
        aggregability: Function | Aggregability,
        *,
        cell_km: float = 1.0,
        max_retention_s: float = 300.0,
        **settings: Any,
    ) -> TrafficRun:
        """Run the reports on a fleet until everything has arrived.

        Parameters
        ----------
        seed, aggregability
            Aggregability function of the server.
        cell_km, max_retention_s : float
            Side of the cells whose mean speeds are propagated, and longest time that a message waits.
        **settings
            Settings of :class:`~mudkit.systems.radiator.Server`, for instance ``chain``.

        Raises
        ------
        PropagationProblem
            The function has failed.
        """
        reports = self.reports(seed)
        lab = Lab(seed, record_messages=False)
        self._add_cars(lab)
        stationary = self.listeners(reports)
        for name, at in stationary.items():
            lab.device(name, at=at)
        application = self.application(aggregability, cell_km)
        server = Server(
            lab, application.aggregability, application.join, max_retention_s=max_retention_s, **settings
        )
        received: list[ReceivedCell] = []
        places = self._places(reports) | stationary
        # A car without reports stands downtown.
        places = {name: places.get(name, stationary[self.NEAR]) for name in lab.devices}
        clients = {
            name: Client(
                device,
                server,
                receive=partial(self._append_cells, received, lab, name),
                attributes={"loc": places[name], "p2p_enabled": True},
            )
            for name, device in lab.devices.items()
        }
        lab.run(seconds=5)
        began_us = lab.world.now_us
        for t_s, car, lat, lon, speed_kmh in reports.itertuples(index=False):
            lab.world.run(began_us + round(t_s * 1e6))
            context = Context(frozenset((car,)), {"loc": [lat, lon], "speed_kmh": speed_kmh})
            clients[car].propagate_context(context)
        lab.run(seconds=max_retention_s + 30)
        if len(server.problems):
            raise PropagationProblem(
                "The aggregability function has failed.",
                where="aggregability",
                found=server.problems["detail"].iloc[0],
                expected="a threshold for each sender and receiver",
            )
        began_s = began_us / 1e6
        received = [
            row._replace(t_s=row.t_s - began_s, reported_s=round(row.reported_s - began_s, 1))
            for row in received
        ]
        tracks = {
            name: (np.zeros(1), np.array([lat]), np.array([lon])) for name, (lat, lon) in places.items()
        }
        for car, rows_of in reports.groupby("car"):
            tracks[str(car)] = rows_of["t_s"].to_numpy(), rows_of["lat"].to_numpy(), rows_of["lon"].to_numpy()
        table = received_cells(received, tracks).rename(columns={"value": "speed_kmh"})
        return TrafficRun(table, server.counts().result(), lab)

    def play(
        self,
        reports: pd.DataFrame,
        aggregability: Function | Aggregability,
        *,
        cell_km: float = 1.0,
        max_retention_s: float = 300.0,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Apply the server's rules without a network, for the listeners only, which is quick.

        Parameters
        ----------
        reports, aggregability, cell_km, max_retention_s
            Result of :meth:`reports`, and settings as for :meth:`run`.

        Returns
        -------
        cells, sent : pandas.DataFrame
            As in :class:`TrafficRun` and :class:`mudkit.systems.radiator.Played`.

        Raises
        ------
        PropagationProblem
            The function has failed.
        """
        import pandas as pd

        positions = reports.rename(columns={"car": "device"}).assign(
            ts=pd.to_datetime((reports["t_s"] * 1e6).round(), unit="us", utc=True),
            speed_mps=reports["speed_kmh"] / 3.6,
        )
        played = play(
            self.application(aggregability, cell_km),
            positions,
            stationary=self.listeners(reports),
            every_s=0.0,
            max_retention_s=max_retention_s,
        )
        if played.problems:
            raise played.problems[0]
        table = played.cells.rename(columns={"value": "speed_kmh"})
        table[["t_s", "reported_s"]] += reports["t_s"].iloc[0]
        return table, played.sent

    @staticmethod
    def _places(reports: pd.DataFrame) -> dict[str, tuple[float, float]]:
        """Return the first place of each car."""
        first = reports.drop_duplicates("car")
        return dict(zip(first["car"], zip(first["lat"], first["lon"], strict=True), strict=True))

    def _add_cars(self, lab: Lab) -> None:
        """Add the cars to the laboratory."""
        lab.fleet(self.cars, mobility=self.mobility, every_s=self.every_s, prefix="car")

    @staticmethod
    def _append_cells(cells: list[ReceivedCell], lab: Lab, name: str, context: Context) -> None:
        """Append the cells of an aggregate that a car has just received, and number the aggregate."""
        cells += cells_of_aggregate(
            lab.world.now_us / 1e6, name, cells[-1].aggregate + 1 if cells else 1, context
        )


def _mean_delay_s(cells: pd.DataFrame) -> float:
    """Return the mean delay between report and receipt, weighted by messages; NaN without cells."""
    if not len(cells):
        return float("nan")
    return float(np.average(cells["t_s"] - cells["reported_s"], weights=cells["messages"]))
