"""Groups of devices that are alike: their parameters, and how they move and lose their network.

All parameters are checked before the first device is added.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from mudkit.checks import number
from mudkit.errors import ParameterError, brief
from mudkit.fleet.device import Battery, Device, Stationary, check_battery
from mudkit.fleet.kernel import World
from mudkit.fleet.link import Curve, profile_of
from mudkit.fleet.nearby import short_range_of
from mudkit.fleet.recorder import Recorder
from mudkit.places import Place, parse_place
from mudkit.sources.courses import Course, Mobility, Places
from mudkit.sources.link_replay import Capacity, LinkReplay
from mudkit.sources.mobility import mobility_of
from mudkit.sources.outages import (
    FOREVER_US,
    PERIODS,
    OutageLog,
    Outages,
    RecordedSwitching,
    Switching,
    outages_of,
)
from mudkit.units import US_PER_S

_PARAMETERS = ("at", "base_mw", "battery_j", "every_s", "link", "mobility", "name", "outage", "prefix")


class Group:
    """Devices that are alike; the parameters are those of :meth:`mudkit.lab.Lab.device`, checked here."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        link: str | LinkReplay,
        at: str | Place | None,
        mobility: str | Mobility | None,
        outage: float | Outages | OutageLog,
        every_s: float,
        battery_j: float | None,
        base_mw: float,
        inbound: bool | None,
        roam: bool,
        short_range: str | None,
        context: Mapping[str, Any],
    ) -> None:
        self._names = [check_host_name(name) for name in names]
        self._link = link
        self._kind = "lte" if isinstance(link, LinkReplay) else profile_of(link).name
        self._at = None if at is None else parse_place("at", at)
        self._mobility = None if mobility is None else mobility_of(mobility)
        self._outages = outage if isinstance(outage, OutageLog) else outages_of(outage)
        self._every_us = round(number("every_s", every_s, 0.001, 86_400.0) * US_PER_S)
        check_battery(1.0 if battery_j is None else battery_j, base_mw)
        self._battery_j = battery_j
        self._base_mw = base_mw
        self._inbound, self._roam = inbound, roam
        self._short_range = None if short_range is None else short_range_of(short_range)
        if roam and isinstance(link, LinkReplay):
            raise ParameterError(
                "A link that was measured belongs to one network.",
                where="roam",
                found="roam=True with a LinkReplay",
                expected="a kind of link, such as lte",
            )
        _check_no_misspelling(context)
        for field, what, is_set in (
            ("loc", "at= or mobility=", at is not None or mobility is not None),
            ("battery_share", "battery_j=", battery_j is not None),
        ):
            if is_set and field in context:
                raise ParameterError(
                    "The lab sets this field itself.",
                    where=field,
                    found=f"{field}= and {what}",
                    expected="one of them",
                    remedy=f"leave {field}= out",
                )
        self._context = dict(context)

    def add_to(self, world: World, recorder: Recorder) -> list[Device]:
        """Add the devices now, or none: ParameterError if a name is taken or a trace is too short."""
        for name in self._names:
            world.check_name_free(name)
        names, link = self._names, self._link
        capacities = [link.capacity(row) for row in range(len(names))] if isinstance(link, LinkReplay) else []
        course = self._build_course(world.seed, recorder.start_us + world.now_us)
        devices = [world.add_device(name, self._kind) for name in names]

        def begin_motion(device: Device) -> None:
            """Record the places of a device that is moved by hand, from its first move on."""
            assert device.course is not None
            _Motion(world, [device], device.course, self._every_us, recorder.record_positions)

        for device in devices:
            device.course = course
            device.on_first_move = begin_motion
            device.context.update(self._context)
            device.lets_in = world.connections is None if self._inbound is None else self._inbound
            if self._battery_j is not None:
                device.battery = Battery(
                    world, device, partial(world.radio_mj, device), self._battery_j, self._base_mw
                )
            if self._short_range is not None:
                world.add_nearby_link(device, self._short_range)
            if not capacities:
                world.on_link(device)
        if course is not None:
            _Motion(world, devices, course, self._every_us, recorder.record_positions)
        for device, capacity in zip(devices, capacities, strict=bool(capacities)):
            _MeasuredLink(world, device, capacity)
        if self._outages.share > 0:
            _follow_outages(world, devices, self._outages.switching(world.seed, names))
        if self._roam:
            world.coverage.add_devices(devices)
        return devices

    def describe(self) -> dict[str, Any]:
        """Return the parameters as JSON data, some only if they are set; a context as text."""
        names, link, model = self._names, self._link, self._mobility
        return {
            "names": names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}",
            "link": link.describe() if isinstance(link, LinkReplay) else link,
            "at": None if self._at is None else list(self._at),
            "mobility": None if model is None else _describe_mobility(model),
            "every_s": self._every_us / US_PER_S,
            "outage": self._outages.describe(),
            "battery_j": None if self._battery_j is None else float(self._battery_j),
            "base_mw": float(self._base_mw),
            "context": {name: brief(value, 1000) for name, value in sorted(self._context.items())},
            **({} if self._inbound is None else {"inbound": self._inbound}),
            **({"roam": True} if self._roam else {}),
            **({} if self._short_range is None else {"short_range": self._short_range.name}),
        }

    def _build_course(self, seed: int, start_us: int) -> Course | None:
        """Return the course of the devices: a place, or that of their mobility; None: unknown."""
        if self._at is not None:
            return Stationary(*self._at)
        return None if self._mobility is None else self._mobility.course(seed, self._names, start_us)


def check_host_name(given: Any) -> str:
    """Return the name of a device or server, or raise ParameterError if it is no printable text."""
    if not isinstance(given, str) or not given or not given.isprintable():
        raise ParameterError(
            "This name is not usable.",
            where="name",
            found=brief(given),
            expected="text of characters that can be printed",
        )
    return given


def _check_no_misspelling(context: Mapping[str, Any]) -> None:
    """Refuse a misspelled parameter, which would otherwise become context unnoticed."""
    for name in context:
        near = difflib.get_close_matches(name, _PARAMETERS, n=1, cutoff=0.85)
        if near:
            raise ParameterError(
                f"There is no parameter {name!r} here.",
                where=name,
                found=brief(context[name]),
                expected="a parameter, or a name of the context that is not like one",
                remedy="add each with lab.device(…, at=…)" if name == "at" else f"did you mean {near[0]!r}?",
            )


def _describe_mobility(model: Mobility) -> str:
    """Return a mobility as text, without memory addresses, so that it is the same in each run."""
    return type(model).__name__ if type(model).__repr__ is object.__repr__ else repr(model)


class _Motion:
    """A group of devices that follow a course, which begins now.

    ``on_places`` is called at each interval with the names of the devices (an Arrow array) and their places.
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
        self._contexts = [device.context for device in devices]
        self._watched = [device.watched for device in devices]
        self._is_watched = True
        """True if a machine of the group watches its place."""
        self._course = course
        self._every_us = every_us
        self._began_us = world.now_us
        self._on_places = on_places
        if course.until_us is not None:
            more = f" and {len(devices) - 1} others" if len(devices) > 1 else ""
            self.what, self.where = "mobility trace", f"mobility of {devices[0].name}{more}"
            self.until_us = self._began_us + course.until_us
            world.end_runs_with(self)
        self._step(None)

    def _step(self, _: None) -> None:
        """Move the devices to their places of now, report these, and schedule the next step."""
        world = self._world
        places = self._course.at(world.now_us - self._began_us)
        locs = list(zip(places.lat.tolist(), places.lon.tolist(), strict=True))
        self._is_watched = "loc" in set().union(*self._watched)
        first = 0
        if self._devices[0].on_place is not None:  # all of a group roam, or none
            for row in world.coverage.may_change(self._devices, places):
                self._set_places(locs, first, row + 1)
                world.coverage.follow(self._devices[row])
                first = row + 1
        self._set_places(locs, first, len(locs))
        self._on_places(self._names, places)
        until_us = self._course.until_us
        later_us = world.now_us + self._every_us
        if until_us is None or later_us <= self._began_us + until_us:
            world.schedule_action(later_us, self._step)

    def _set_places(self, locs: list[Place], first: int, end: int) -> None:
        """Set the places of some devices of the group, in their order."""
        if self._is_watched:
            for device, loc in zip(self._devices[first:end], locs[first:end], strict=True):
                device.set_measured("loc", loc)
        else:  # saves a call for each device and interval
            for context, loc in zip(self._contexts[first:end], locs[first:end], strict=True):
                context["loc"] = loc


def _follow_outages(
    world: World, devices: Sequence[Device], switching: Switching | RecordedSwitching
) -> None:
    """Disconnect and reconnect devices from now on, as drawn."""
    process = _OutageProcess(world, switching)
    for row, device in enumerate(devices):
        is_up = bool(switching.starts_up[row])
        if not is_up:
            device.link_down("outage")
        process.begin_period((device, row, 0, is_up))


class _OutageProcess:
    """Schedule of the outages of a group: each device is switched at the end of each drawn period."""

    def __init__(self, world: World, switching: Switching | RecordedSwitching) -> None:
        self._world = world
        self._switching = switching
        self._drawn: dict[int, list[list[int]]] = {}

    def begin_period(self, what: tuple[Device, int, int, bool]) -> None:
        """Begin a period of a device, and schedule the switch at its end."""
        device, row, number, is_up = what
        length_us = self._draw_length_us(row, number)
        if length_us < FOREVER_US:
            self._world.schedule_action(
                self._world.now_us + length_us, self._switch, (device, row, number + 1, not is_up)
            )

    def _switch(self, what: tuple[Device, int, int, bool]) -> None:
        """Connect or disconnect a device at the end of a period, and begin the next period."""
        device, _, _, is_up = what
        if is_up:
            device.link_up("outage")
        else:
            device.link_down("outage")
        self.begin_period(what)

    def _draw_length_us(self, row: int, number: int) -> int:
        """Return the length of a period of a device; it is drawn for all devices in blocks of periods."""
        block, place = divmod(number, PERIODS)
        if block not in self._drawn:
            self._drawn[block] = self._switching.periods_us(block).tolist()
            self._drawn.pop(block - 8, None)  # drawn again, with the same result, if a device lags behind
        return self._drawn[block][row][place]


class _MeasuredLink:
    """A device whose link replays measured capacity; its time begins now."""

    def __init__(self, world: World, device: Device, capacity: Capacity) -> None:
        self._world = world
        self._device = device
        self._until_us = world.now_us + capacity.until_us
        profile = device.link.profile
        from_us = capacity.from_us + world.now_us
        link = device.link
        self._networks = len(link.profiles)
        for direction, kbps, otherwise in (
            (link.up, capacity.up_kbps, profile.up_kbps),
            (link.down, capacity.down_kbps, profile.down_kbps),
        ):
            if not np.isnan(kbps).all():
                direction.curve = Curve(from_us, self._until_us, kbps, otherwise)
        self._pieces = list(
            zip(
                from_us.tolist(),
                capacity.up.tolist(),
                capacity.down_kbps.tolist(),
                capacity.up_kbps.tolist(),
                capacity.latency_ms.tolist(),
                strict=True,
            )
        )
        self.what, self.where = "link trace", f"link of {device.name}"
        world.end_runs_with(self)
        self._apply_piece(0)

    @property
    def until_us(self) -> int:
        """End of the measurements; none apply after a change of network."""
        return FOREVER_US if self._is_over() else self._until_us

    def _is_over(self) -> bool:
        """Return whether the device has changed to another network, which was not measured."""
        return len(self._device.link.profiles) > self._networks

    def _apply_piece(self, number: int) -> None:
        """Set the link to what was measured from now on, and schedule the next piece."""
        if self._is_over():
            return
        _, is_up, down_kbps, up_kbps, latency_ms = self._pieces[number]
        self._device.link.set_measured(down_kbps, up_kbps, latency_ms)
        self._device.notify_bandwidth()
        if is_up:
            self._device.link_up("measured")
        else:
            self._device.link_down("measured")
        self._world.on_link(self._device)
        if number + 1 < len(self._pieces):
            self._world.schedule_action(self._pieces[number + 1][0], self._apply_piece, number + 1)
