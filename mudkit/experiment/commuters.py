"""Cars that report where they are, and drivers who ask what is around: Mobius 7.3 in a lab."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mudkit.lab import Lab
from mudkit.sources.parameters import number, whole_number
from mudkit.sources.workloads import Poisson
from mudkit.systems.mud import Artefact, Client, Cloud
from mudkit.systems.mud.policies import ReadPolicy
from mudkit.systems.mud.shipped import Shipped
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S, box_bounds, in_box

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.events import Operation

__all__ = ["Commuters", "Driven"]

_APP: Final = "traffic"
_ABOUT: Final = "lat BETWEEN {south} AND {north} AND lon BETWEEN {west} AND {east} AND at_s > {since}"


class Driven(NamedTuple):
    """What came of some days.

    Parameters
    ----------
    lab : Lab
        At their end, with its trace and its bill.
    reads : pandas.DataFrame
        A row for each read that was answered: ``device, at_s, is_sent, points`` (that its answer should
        hold), ``missing`` of them, and ``completeness``.
    versions : list of int
        Of the shipped policy that each client uses in the end; 0: none.
    """

    lab: Lab
    reads: pd.DataFrame
    versions: list[int]


@dataclass(frozen=True)
class Commuters:
    """Who drives and who asks.

    Parameters
    ----------
    cars : int
        Commuters of one town.
    days : int
    every_s : float
        Between two reports of a car, parked or not.
    reads_per_day : float
        Of each driver, a Poisson process.
    box_km, window_s : float
        What a read asks for.
    link : str
        One with a latency.
    """

    cars: int = 12
    days: int = 2
    every_s: float = 300.0
    reads_per_day: float = 48.0
    box_km: float = 20.0
    window_s: float = 7200.0
    link: str = "lte"

    def __post_init__(self) -> None:
        whole_number("cars", self.cars, 1, 10_000)
        whole_number("days", self.days, 1, 366)
        for name, low in (("every_s", 1.0), ("reads_per_day", 1e-3), ("box_km", 1e-3), ("window_s", 1.0)):
            number(name, getattr(self, name), low, 1e6)

    def drive(
        self, seed: int, start: str, read_policy: ReadPolicy | Shipped | None, ship: Artefact | None = None
    ) -> Driven:
        """Let some days happen.

        Parameters
        ----------
        seed : int
            Same seed, same people; other days are other drives.
        start : str
            The first day.
        read_policy : ReadPolicy, Shipped or None
            Of every client.
        ship : Artefact, optional
            What the cloud ships as the days begin.
        """
        run = _Run(self, seed, start, read_policy)
        if ship is not None:
            run.cloud.ship(ship, app=_APP).result()
        run.lab.run(hours=24.0 * self.days)
        return Driven(run.lab, run.answers(), run.versions())


class _Run:
    def __init__(self, plan: Commuters, seed: int, start: str, policy: ReadPolicy | Shipped | None) -> None:
        self.plan = plan
        self.lab = lab = Lab(seed, start=start, messages=False, held=False)
        self.cloud = Cloud(lab)
        self.devices = lab.fleet(
            plan.cars, mobility="commute", link=plan.link, every_s=plan.every_s, prefix="car",
            clock_us=lab.start_us,
        )  # fmt: skip
        self.clients = [
            Client(device, self.cloud, app=_APP, token=lab.token(device.name, _APP), read_policy=policy)
            for device in self.devices
        ]
        self.clients[0].create(_APP, acl="app").result()
        self.asked: list[tuple[int, int, Operation]] = []
        self.answered_us: dict[int, int] = {}
        length_us = plan.days * 86_400 * US_PER_S
        names = [device.name for device in self.devices]
        name = f"reads from {dt.date.fromisoformat(start[:10])}"
        moments = Poisson(per_day=plan.reads_per_day).moments(seed, name, names, lab.start_us, length_us)
        begun_us = lab.world.now_us
        for row, t_us in zip(moments.device.tolist(), moments.t_us.tolist(), strict=True):
            if t_us > begun_us:
                lab.world.ask_at(t_us, self.ask, row)
        self.every_us = round(plan.every_s * US_PER_S)
        lab.world.ask_at((begun_us // self.every_us + 1) * self.every_us, self.report)

    def report(self, _: Any) -> None:
        """Let every car write where it is."""
        now_us = self.lab.world.now_us
        for device, client in zip(self.devices, self.clients, strict=True):
            if device.loc is not None:
                lat, lon = device.loc
                record = {"lat": lat, "lon": lon, "at_s": now_us / 1e6}
                client.write(_APP, f"{device.name} {now_us // US_PER_S}", record)
        self.lab.world.ask_at(now_us + self.every_us, self.report)

    def ask(self, row: int) -> None:
        """Let a driver ask what is around."""
        device, now_us = self.devices[row], self.lab.world.now_us
        if device.loc is None:
            return
        box = box_bounds(*device.loc, self.plan.box_km)
        edges = {name: float(value) for name, value in box._asdict().items()}
        predicate = _ABOUT.format(**edges, since=now_us / 1e6 - self.plan.window_s)
        self.lab.trace.read(device, self.plan.box_km, self.plan.window_s)
        come = partial(self.come, len(self.asked))
        operation = self.clients[row].read(_APP, predicate, data={"loc": device.loc}, callback=come)
        self.asked.append((row, now_us, operation))

    def come(self, number_: int, _: Any) -> None:
        """Take note of when an answer has come."""
        self.answered_us[number_] = self.lab.world.now_us

    def versions(self) -> list[int]:
        """Give the version that each client uses."""
        self.lab.run(seconds=1)
        said = [client.policies().result() for client in self.clients]
        return [each.get("read", {}).get("version", 0) for each in said]

    def answers(self) -> pd.DataFrame:
        """Compare answers with what they should hold: all that had been written by then."""
        import pandas as pd

        positions = self.lab.trace.table("positions")
        t_us = epoch_us(positions["ts"]) - self.lab.start_us
        written = t_us % self.every_us == 0
        written &= t_us > 0
        lat, lon = positions["lat"].to_numpy(), positions["lon"].to_numpy()
        owner = np.asarray(positions["device"].to_pylist())
        window_us = round(self.plan.window_s * US_PER_S)
        reads = self.lab.trace.table("reads")  # with where each device was, as the labels have it
        places = {
            (each["device"], t): (each["lat"], each["lon"])
            for each, t in zip(
                reads.select(["device", "lat", "lon"]).to_pylist(),
                (epoch_us(reads["ts"]) - self.lab.start_us).tolist(),
                strict=True,
            )
        }
        rows = []
        for number_, (row, at_us, operation) in enumerate(self.asked):
            if number_ not in self.answered_us:
                continue
            name, result = self.devices[row].name, operation.result()
            box = box_bounds(*places[name, at_us], self.plan.box_km)
            due = written & (t_us > at_us - window_us) & (t_us <= at_us) & in_box(lat, lon, box)
            keys = {f"{who} {t // US_PER_S}" for who, t in zip(owner[due], t_us[due].tolist(), strict=True)}
            missing = len(keys - result.records.keys())
            share = 1.0 - missing / len(keys) if keys else 1.0
            is_sent = self.answered_us[number_] > at_us  # a device answers in no time, the cloud does not
            rows.append((name, at_us / 1e6, is_sent, len(keys), missing, share))
        columns = ["device", "at_s", "is_sent", "points", "missing", "completeness"]
        return pd.DataFrame(rows, columns=columns)
