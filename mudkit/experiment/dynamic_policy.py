"""A dynamic policy: where the write rate of a region changes, devices near there get another one (Mobius 6).

The cloud sees where clients write, and knows how densely each cell is written to at each hour. Where that is
exceeded by far, something has happened: what was learnt of that place does not hold. Devices near it are told
to ask the cloud there, or to write at once; all others keep the policy they have. When it is over, those who
were told get the old policy back, as a newer version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from mudkit.experiment.commuters import APP, Drive
from mudkit.sources.parameters import number
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.policies.artefact import Action
from mudkit.systems.mud.policies.density import Density
from mudkit.units import KM_PER_DEGREE, US_PER_S, distance_km, solar_time

__all__ = ["Dispatcher", "Pushed", "Surge", "surges"]

_UNLIKELY: Final = 1e-6
"""A count that comes by chance less often is none of chance."""


class Surge(NamedTuple):
    """A cell that is written to much more than it should be.

    Parameters
    ----------
    row, column : int
        The place of the cell, as :class:`~mudkit.systems.mud.policies.density.Density` has it.
    lat, lon : float
        Its centre, degrees.
    writes : int
        The number of writes that came.
    expected : float
    """

    row: int
    column: int
    lat: float
    lon: float
    writes: int
    expected: float


class Pushed(NamedTuple):
    """What was shipped to some devices.

    Parameters
    ----------
    at_s : float
        The time since the lab began, in seconds.
    version : int
    to : tuple of str
    surges : tuple of Surge
        The reason; none: it is over.
    """

    at_s: float
    version: int
    to: tuple[str, ...]
    surges: tuple[Surge, ...]


def surges(
    usual: Density,
    places: Sequence[tuple[float, float]],
    t_us: int,
    minutes: float,
    *,
    factor: float = 4.0,
    least: float = 10.0,
) -> list[Surge]:
    """Find cells that are written to much more than usual.

    Parameters
    ----------
    usual : Density
        Points an hour, by cell and hour.
    places : sequence of (float, float)
        Latitude and longitude of each write of the last minutes.
    t_us : int
        Now, in microseconds since 1970 (UTC).
    minutes : float
    factor : float
        How many times the usual number is a surge, at least 1: people are not the same each day.
    least : float
        Writes that are usual anywhere: of cells that were never written to one cannot say more.
    """
    from scipy import stats  # loading it takes longer than loading all of mudkit

    size = usual.cell_deg
    counted = Counter((int(np.floor(lat / size)), int(np.floor(lon / size))) for lat, lon in places)
    surging = []
    for (row, column), writes in sorted(counted.items()):
        lat, lon = (row + 0.5) * size, (column + 0.5) * size
        middle_us = t_us - round(30.0 * minutes * US_PER_S)
        expected = max(usual.at(lat, lon, float(solar_time(middle_us, lon)[0])) * minutes / 60.0, least)
        if writes > factor * expected and stats.poisson.sf(writes - 1, expected) < _UNLIKELY:
            surging.append(Surge(row, column, lat, lon, writes, expected))
    return surging


@dataclass
class Dispatcher:
    """Watches the writes of a drive, and ships to who is near what has happened.

    Parameters
    ----------
    drive : Drive
    policy : Artefact
        What all devices have.
    usual : Density
        How densely cells are written to, from the days that were learnt from.
    action : str or float
        What is decided where something has happened: ``remote`` for reads, 0 for writes.
    near_km : float
        The distance from the centre of a cell within which devices get the update, in km. Reads, or writes,
        are decided by it in the box of that many kilometres to each side.
    every_min : float
        How often it looks, and at how long a time.
    factor, least : float
        See :func:`surges`.

    Attributes
    ----------
    pushed : list of Pushed
    """

    drive: Drive
    policy: Artefact
    usual: Density
    action: Action = "remote"
    near_km: float = 3.0
    every_min: float = 15.0
    factor: float = 4.0
    least: float = 10.0
    pushed: list[Pushed] = field(default_factory=list, init=False)
    _have_update: set[str] = field(default_factory=set, init=False)
    _places: tuple[Surge, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        number("near_km", self.near_km, 1e-3, 20_000.0)
        number("every_min", self.every_min, 0.1, 1440.0)
        number("factor", self.factor, 1.0, 1e6)
        number("least", self.least, 0.0, 1e9)
        self._again(False)

    def look(self) -> list[Surge]:
        """Look at the writes of the last minutes, and ship what follows from them."""
        lab = self.drive.lab
        now_us = lab.world.now_us
        since_us = now_us - round(60.0 * self.every_min * US_PER_S)
        places = [(lat, lon) for _, t_us, lat, lon in self.drive.written if since_us < t_us <= now_us]
        surging = surges(
            self.usual, places, lab.start_us + now_us, self.every_min, factor=self.factor, least=self.least
        )
        cells = {(each.row, each.column) for each in surging}
        if cells == {(each.row, each.column) for each in self._places}:
            self._tell_who_has_come(surging)
        elif surging:
            self._ship(self._near(surging), tuple(surging))
        else:
            self._ship(set(self._have_update), ())
            self._have_update.clear()
        self._places = tuple(surging)
        return surging

    def _near(self, surging: Sequence[Surge]) -> set[str]:
        """Say who is near: by the last place that each device has written from."""
        last = {row: (lat, lon) for row, _, lat, lon in self.drive.written}
        return {
            self.drive.devices[row].name
            for row, place in last.items()
            if any(distance_km(*place, each.lat, each.lon) <= self.near_km for each in surging)
        }

    def _tell_who_has_come(self, surging: Sequence[Surge]) -> None:
        come = self._near(surging) - self._have_update if surging else set()
        if come:
            self._send(self._updated(surging, self.pushed[-1].version), come, tuple(surging))

    def _ship(self, near: set[str], surging: tuple[Surge, ...]) -> None:
        """Ship a newer version to who is near, and to those who have an older one that is over."""
        version = (self.pushed[-1].version if self.pushed else self.policy.version) + 1
        self._send(self._updated(surging, version), near | self._have_update, surging)

    def _send(self, policy: Artefact, to: set[str], surging: tuple[Surge, ...]) -> None:
        if not to:
            return
        lab = self.drive.lab
        self.drive.cloud.ship(policy, app=APP, to=sorted(to))
        self.pushed.append(Pushed(lab.world.now_us / 1e6, policy.version, tuple(sorted(to)), surging))
        self._have_update |= to

    def _updated(self, surging: Sequence[Surge], version: int) -> Artefact:
        """Make the policy that asks near each surge; without any the old one, as a newer version."""
        updated = self.policy
        for each in surging:
            north = self.near_km / KM_PER_DEGREE
            east = north / max(float(np.cos(np.radians(each.lat))), 0.01)
            updated = updated.with_override(
                self.action,
                south=each.lat - north,
                north=each.lat + north,
                west=each.lon - east,
                east=each.lon + east,
                version=version,
            )
        return updated if surging else self.policy.renewed(version)

    def _again(self, is_begun: Any) -> None:
        if is_begun:
            self.look()
        world = self.drive.lab.world
        world.ask_at(world.now_us + round(60.0 * self.every_min * US_PER_S), self._again, True)
