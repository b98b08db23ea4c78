"""Cars that report their places, and drivers who query the traffic around them: Mobius 7.3 in a lab."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from mudkit.display import shows_fields
from mudkit.lab import Lab
from mudkit.sources.parameters import check_ranges, one_of, rate
from mudkit.sources.workloads import Poisson
from mudkit.systems.mud import Artefact, Client, Cloud, ReadPolicy, ShippedPolicy, WritePolicy
from mudkit.units import US_PER_S, box_bounds, distance_km, in_box

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.events import Operation

__all__ = ["APP", "Commuters", "CommutersRun", "Drive"]

APP: Final = "traffic"
"""The application, and its table."""
_ABOUT: Final = "lat BETWEEN {south} AND {north} AND lon BETWEEN {west} AND {east} AND at_s > {since}"
_MOVED_KM: Final = 0.1

DriveTime = Literal["any time", "driving"]


@shows_fields
class CommutersRun(NamedTuple):
    """Result of some days.

    Parameters
    ----------
    lab : Lab
        The lab at the end of the days, with its trace and its bill.
    reads : pandas.DataFrame
        A row for each read that was answered: ``device, at_s, lat, lon, is_sent, points`` (that its answer
        should hold), ``missing`` of them, ``completeness``, and ``cache_completeness``: that of a cache of
        the device's own writes and of the answers to all its earlier reads. No cache holds more: below 1, no
        policy can answer completely from the device.
    versions, write_versions : list of int
        Versions of the shipped read and write policies that the clients use in the end; 0: none.
    point_share : float
        Share of the writes that came to the cloud until the days ended.
    written : pandas.DataFrame or None
        ``device, t_us`` of the positions that were written, if parked cars do not report; None: all were.
    """

    lab: Lab
    reads: pd.DataFrame
    versions: list[int]
    write_versions: list[int]
    point_share: float
    written: pd.DataFrame | None = None


@dataclass(frozen=True)
class Commuters:
    """Plan of cars that report, and of drivers that query.

    Parameters
    ----------
    cars : int
        Commuters of one town.
    days : int
    every_s : float
        Time between two reports of a car.
    reads_per_day : float
        Mean number of queries of a driver: a Poisson process.
    box_km, window_s : float
        Box and time of a query.
    link : str
        Link profile with a latency.
    query_when : {'any time', 'driving'}
        With ``driving``, only the queries count before which the car has moved since its last report.
    report_when : {'any time', 'driving'}
        With ``driving``, a car that has not moved since its last report does not report.
    """

    cars: int = rate(12, 1, 10_000)
    days: int = rate(2, 1, 366)
    every_s: float = rate(300.0, 1.0, 1e6)
    reads_per_day: float = rate(48.0, 1e-3, 1e6)
    box_km: float = rate(20.0, 1e-3, 1e6)
    window_s: float = rate(7200.0, 1.0, 1e6)
    link: str = "lte"
    query_when: DriveTime = "any time"
    report_when: DriveTime = "any time"

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("query_when", "report_when"):
            one_of(name, getattr(self, name), get_args(DriveTime))

    def run(
        self,
        seed: int,
        start: str,
        read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None,
        ship: Artefact | Sequence[Artefact] | None = None,
        *,
        write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None = None,
    ) -> CommutersRun:
        """Run some days.

        Parameters
        ----------
        seed : int
            Same seed, same people; other days are other drives.
        start : str
            The first day.
        read_policy : ReadPolicy, ShippedPolicy or None
            Read policy of every client.
        ship : Artefact or sequence of Artefact, optional
            Policies that the cloud ships as the days begin.
        write_policy : WritePolicy, ShippedPolicy or None
            Write policy of every client; None: writes go at once.
        """
        run = Drive(self, seed, start, read_policy, write_policy)
        for artefact in [ship] if isinstance(ship, Artefact) else ship or ():
            run.cloud.ship(artefact, app=APP).result()
        run.lab.run(hours=24.0 * self.days)
        return run.end()


class Drive:
    """Days of a plan that advance while the lab runs; see :meth:`Commuters.run`."""

    def __init__(
        self,
        plan: Commuters,
        seed: int,
        start: str,
        read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None,
        write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None = None,
    ) -> None:
        self._plan = plan
        self.lab = lab = Lab(seed, start=start, record_messages=False, record_held=False)
        self.cloud = Cloud(lab)
        self.devices = lab.fleet(
            plan.cars,
            mobility="commute",
            link=plan.link,
            every_s=plan.every_s,
            prefix="car",
            clock_us=lab.start_us,
        )
        hours = 24.0 * (plan.days + 1)
        self.clients = [
            Client(
                device,
                self.cloud,
                app=APP,
                token=lab.token(device.name, APP, hours=hours),
                read_policy=read_policy,
                write_policy=write_policy,
            )
            for device in self.devices
        ]
        self.clients[0].create(APP, acl="app").result()
        self._queries: list[tuple[int, int, tuple[float, float], Operation]] = []
        self._answered_us: dict[int, int] = {}
        self._written: list[tuple[int, int, float, float]] = []
        self._last: dict[int, tuple[float, float]] = {}
        self._moves: set[int] = set()
        length_us = plan.days * 86_400 * US_PER_S
        names = [device.name for device in self.devices]
        name = f"reads from {dt.date.fromisoformat(start[:10])}"
        moments = Poisson(per_day=plan.reads_per_day).moments(seed, name, names, lab.start_us, length_us)
        begun_us = lab.world.now_us
        for row, t_us in zip(moments.device.tolist(), moments.t_us.tolist(), strict=True):
            if t_us > begun_us:
                lab.world.ask_at(t_us, self._ask, row)
        self._every_us = round(plan.every_s * US_PER_S)
        lab.world.ask_at((begun_us // self._every_us + 1) * self._every_us, self._report)

    def _report(self, _: Any) -> None:
        """Write the place of every car that reports."""
        now_us = self.lab.world.now_us
        for row, device in enumerate(self.devices):
            if device.loc is not None:
                last = self._last.get(row, device.loc)
                if distance_km(*device.loc, *last) > _MOVED_KM:
                    self._moves.add(row)
                else:
                    self._moves.discard(row)
                is_first = row not in self._last
                self._last[row] = device.loc
                if is_first or row in self._moves or self._plan.report_when == "any time":
                    self._write(row, *device.loc)
        self.lab.world.ask_at(now_us + self._every_us, self._report)

    def _write(self, row: int, lat: float, lon: float) -> None:
        now_us = self.lab.world.now_us
        record = {"lat": lat, "lon": lon, "at_s": now_us / 1e6}
        self._written.append((row, now_us, lat, lon))
        self.clients[row].write(APP, self._key(row, now_us), record)

    def _key(self, row: int, t_us: int) -> str:
        return f"{self.devices[row].name} {t_us // US_PER_S}"

    def _ask(self, row: int) -> None:
        """Send a driver's query for the traffic around her."""
        device, now_us = self.devices[row], self.lab.world.now_us
        if device.loc is None or (self._plan.query_when == "driving" and row not in self._moves):
            return
        box = box_bounds(*device.loc, self._plan.box_km)
        edges = {name: float(value) for name, value in box._asdict().items()}
        predicate = _ABOUT.format(**edges, since=now_us / 1e6 - self._plan.window_s)
        self.lab.trace.read(device, self._plan.box_km, self._plan.window_s)
        answered = partial(self._record_answer, len(self._queries))
        operation = self.clients[row].read(APP, predicate, data={"loc": device.loc}, callback=answered)
        self._queries.append((row, now_us, device.loc, operation))

    def _record_answer(self, query: int, _: Any) -> None:
        self._answered_us[query] = self.lab.world.now_us

    def end(self) -> CommutersRun:
        """Return the result so far."""
        reads = self.answers()
        self.lab.run(seconds=1)
        policies = [client.policies().result() for client in self.clients]
        versions, write_versions = (
            [used.get(kind, {}).get("version", 0) for used in policies] for kind in ("read", "write")
        )
        pending = sum(len(client.pending().result()) for client in self.clients)
        share = 1.0 - pending / max(len(self._written), 1)
        return CommutersRun(self.lab, reads, versions, write_versions, share, self._written_positions())

    def _written_positions(self) -> pd.DataFrame | None:
        import pandas as pd

        if self._plan.report_when == "any time":
            return None
        rows = [(self.devices[row].name, self.lab.start_us + t_us) for row, t_us, _, _ in self._written]
        return pd.DataFrame(rows, columns=["device", "t_us"])

    def answers(self) -> pd.DataFrame:
        """Compare the answers so far with all writes before each query."""
        import pandas as pd

        owner, t_us, lat, lon = map(np.array, zip(*self._written, strict=True))
        window_us = round(self._plan.window_s * US_PER_S)
        covered: dict[int, NDArray[np.bool_]] = {row: owner == row for row in range(len(self.devices))}
        rows = []
        for query, (row, at_us, place, operation) in enumerate(self._queries):
            box = box_bounds(*place, self._plan.box_km)
            due = (t_us > at_us - window_us) & (t_us <= at_us) & in_box(lat, lon, box)
            covered_share = 1.0 if not due.any() else float(covered[row][due].mean())
            covered[row] = covered[row] | due
            if query not in self._answered_us:
                continue
            records: Mapping[str, Any] = operation.result().records
            keys = list(map(self._key, owner[due].tolist(), t_us[due].tolist()))
            missing = sum(key not in records for key in keys)
            share = 1.0 - missing / len(keys) if keys else 1.0
            is_sent = self._answered_us[query] > at_us  # a device answers in no time, the cloud does not
            name = self.devices[row].name
            rows.append((name, at_us / 1e6, *place, is_sent, len(keys), missing, share, covered_share))
        columns = [
            "device",
            "at_s",
            "lat",
            "lon",
            "is_sent",
            "points",
            "missing",
            "completeness",
            "cache_completeness",
        ]
        return pd.DataFrame(rows, columns=columns)
