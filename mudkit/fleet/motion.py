"""Devices that move: where a group of them is, each time its interval is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mudkit.fleet.device import Device
from mudkit.sources.courses import Course, Places

if TYPE_CHECKING:
    from mudkit.fleet.kernel import World

__all__ = ["Motion"]


class Motion:
    """A group of devices on their course.

    Parameters
    ----------
    world : World
    devices : sequence of Device
    course : Course
        The course of these devices; its time begins now.
    every_us : int
        Time between two positions.
    on_places : callable
        Told the names of the devices (an Arrow array) and where they are, each time.
    """

    def __init__(
        self,
        world: World,
        devices: Sequence[Device],
        course: Course,
        every_us: int,
        on_places: Callable[[pa.Array, Places], None],
    ) -> None:
        self._world = world
        self._devices = devices
        self._names = pa.array([device.name for device in devices])
        self._course = course
        self._every_us = every_us
        self._began_us = world.now_us
        self._on_places = on_places
        if course.until_us is not None:
            more = f" and {len(devices) - 1} others" if len(devices) > 1 else ""
            self.what, self.where = "mobility trace", f"mobility of {devices[0].name}{more}"
            self.until_us = self._began_us + course.until_us
            world.cover(self)
        self._step(None)

    def _step(self, _: None) -> None:
        world = self._world
        places = self._course.at(world.now_us - self._began_us)
        locs = zip(places.lat.tolist(), places.lon.tolist(), strict=True)
        for device, loc in zip(self._devices, locs, strict=True):
            if "loc" in device.watched:
                device.measured("loc", loc)
            else:  # a call less for each device each time
                device.context["loc"] = loc
        self._on_places(self._names, places)
        until_us = self._course.until_us
        later_us = world.now_us + self._every_us
        if until_us is None or later_us <= self._began_us + until_us:
            world.at(later_us, self._step)
