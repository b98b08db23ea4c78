"""Coverage: access points that phones use while they are in range, in place of their cellular networks.

A device that roams uses the nearest access point in range. It leaves one at the end of its range, and joins
one a little before it, so that it does not switch to and fro at the edge. Joining and leaving are changes of
network: transfers are cut, and the address is another. The rate falls with the distance, and all who are
attached share it in equal parts; a transfer has the rate of its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit.display import Displayed, View
from mudkit.fleet.link import LinkProfile
from mudkit.places import Place, choose_in_range
from mudkit.sources.courses import Places
from mudkit.units import KM_PER_DEGREE, apart_km

if TYPE_CHECKING:
    from mudkit.fleet.device import Device

_M_PER_DEGREE: Final = 1000.0 * KM_PER_DEGREE
_MORE: Final = 1.0 + 1e-6
_LESS: Final = 1.0 - 1e-6
"""Factors by which distances differ at most, and more, by rounding."""
RATE_STEPS: Final = (
    (27 / 91, 54 / 54),
    (29 / 91, 48 / 54),
    (30 / 91, 36 / 54),
    (42 / 91, 24 / 54),
    (54 / 91, 18 / 54),
    (64 / 91, 12 / 54),
    (76 / 91, 9 / 54),
    (91 / 91, 6 / 54),
)
"""Share of the range up to which a link has a share of its rate: the steps of IEEE 802.11g, at the distances
(27 to 91 m) of the data sheet of Cisco's Aironet 1200 indoors."""


def rate_share(distance_m: float, range_m: float) -> float:
    """Return the share of its rate that a link has at a distance from its access point."""
    return next((share for reach, share in RATE_STEPS if distance_m <= reach * range_m), RATE_STEPS[-1][1])


class AccessPoint(Displayed):
    """An access point of a lab, see :meth:`mudkit.lab.Lab.access_point`.

    Parameters
    ----------
    name : str
    at : (float, float)
        Latitude and longitude, degrees.
    range_m : float
    profile : LinkProfile
        Its network next to it, with nobody else attached.
    """

    def __init__(self, name: str, at: Place, range_m: float, profile: LinkProfile) -> None:
        self.name, self.at, self.range_m, self.profile = name, at, range_m, profile
        self.attached: dict[Device, None] = {}
        """The devices that use it, in the order in which they have joined it."""
        self.range_deg = range_m / _M_PER_DEGREE * _MORE
        """Degrees of a great circle beyond which a place is out of range."""

    def _view(self) -> View:
        """Return place, range and devices for a display."""
        facts: dict[str, Any] = {
            "place": f"{self.at[0]:.5f}, {self.at[1]:.5f}",
            "range": f"{self.range_m:,.0f} m",
            "network": self.profile.name,
            "devices": len(self.attached),
        }
        return View(f"Access point {self.name}", facts)

    def distance_m(self, loc: Place) -> float:
        """Return its distance from a place, in metres."""
        return 1000.0 * apart_km(self.at, loc)

    def set_rate(self, device: Device) -> None:
        """Set the rate of a link to it: by its distance, in an equal part of the time."""
        loc = device.loc
        assert loc is not None
        share = rate_share(self.distance_m(loc), self.range_m) / len(self.attached)
        down_kbps, up_kbps = self.profile.down_kbps * share, self.profile.up_kbps * share
        if (device.link.down_kbps, device.link.up_kbps) != (down_kbps, up_kbps):
            device.link.limit(down_kbps, up_kbps)
            device.world.on_link(device)
            device.notify_bandwidth()

    def share_rate(self) -> None:
        """Set the rates of all links to it."""
        for device in self.attached:
            self.set_rate(device)


class Coverage:
    """The access points of a world, and the devices that roam."""

    def __init__(self) -> None:
        self.points: dict[str, AccessPoint] = {}
        self._cellular: dict[Device, str] = {}
        """The kind of link that a device has where there is no access point."""
        self._used: dict[Device, AccessPoint] = {}
        """The access point that a device uses."""
        self._rows: dict[Device, int] = {}
        """The number of each device that roams; those of a group follow each other."""
        self._clear = np.zeros((3, 0))
        """By device: a place, and a distance from there, degrees, in which there is no range."""

    def __iter__(self) -> Iterator[AccessPoint]:
        return iter(self.points.values())

    def add_point(self, point: AccessPoint) -> None:
        """Add an access point; devices in its range join it."""
        self.points[point.name] = point
        for device in self._cellular:
            self.follow(device)

    def add_devices(self, devices: Sequence[Device]) -> None:
        """Add the devices of a group, which roam from now on."""
        self._clear = np.hstack([self._clear, np.zeros((3, len(devices)))])
        for device in devices:
            self._rows[device] = len(self._rows)
            self._cellular[device] = device.network
            device.on_place = self.follow
        for device in devices:
            self.follow(device)

    def may_change(self, devices: Sequence[Device], places: Places) -> list[int]:
        """Return the rows of a group that must be followed to their places: not those clear of all ranges."""
        first = self._rows[devices[0]]
        lat, lon, clear_deg = self._clear[:, first : first + len(devices)]
        # On a sphere, degrees of longitude are at most as long as those of latitude.
        is_clear = np.hypot(places.lat - lat, places.lon - lon) < clear_deg
        rows: list[int] = np.flatnonzero(~is_clear).tolist()
        return rows

    def follow(self, device: Device) -> None:
        """Join or leave an access point at the place where a device is now, and set the rates."""
        loc = device.context.get("loc")
        before = self._used.get(device)
        after, clear_deg = (None, 0.0) if loc is None else self._choose(loc, before)
        clear, row = self._clear, self._rows[device]
        if loc is not None and after is None and clear_deg > 0:
            clear[0, row], clear[1, row] = loc
            clear[2, row] = clear_deg
        else:
            clear[2, row] = 0.0
        if after is before:
            if after is not None:
                after.set_rate(device)
            return
        if before is not None:
            del before.attached[device], self._used[device]
        device.change_network(self._cellular[device] if after is None else after.profile.name)
        if after is not None:
            after.attached[device] = None
            self._used[device] = after
        for point in (before, after):
            if point is not None:
                point.share_rate()

    def _choose(self, loc: Place, present: AccessPoint | None) -> tuple[AccessPoint | None, float]:
        """Return the access point to use, and a lower bound of the distance to any range, in degrees."""
        clear_deg, lat = math.inf, loc[0]
        near: list[tuple[AccessPoint, float, float]] = []
        for point in self.points.values():
            apart_deg = abs(lat - point.at[0]) - point.range_deg
            if apart_deg <= 0:  # the latitude is quicker to tell than the distance
                distance_m = point.distance_m(loc)
                near.append((point, distance_m, point.range_m))
                apart_deg = distance_m / _M_PER_DEGREE * _LESS - point.range_deg
            if apart_deg < clear_deg:
                clear_deg = apart_deg
        return choose_in_range(near, present), clear_deg
