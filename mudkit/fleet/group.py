"""Devices that are to be added to a lab: everything is checked before anything is added."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mudkit.errors import ParameterError, brief
from mudkit.fleet.battery import Battery, check_battery
from mudkit.fleet.connectivity import Measured, follow_outages
from mudkit.fleet.device import Device
from mudkit.fleet.kernel import World
from mudkit.fleet.link import profile_of
from mudkit.fleet.motion import Motion
from mudkit.fleet.recorder import Recorder
from mudkit.fleet.stationary import Stationary, place
from mudkit.sources.courses import Course
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.mobility import Mobility, mobility_of
from mudkit.sources.outages import Outages, outages_of
from mudkit.sources.parameters import number
from mudkit.units import US_PER_S

__all__ = ["Group", "usable_name"]

_NO_CONTEXT = ("at", "base_mw", "battery_j", "every_s", "link", "mobility", "name", "outage", "prefix")


class Group:
    """Devices that are alike.

    Parameters
    ----------
    names : sequence of str
    link, at, mobility, outage, every_s, battery_j, base_mw, context
        As in :meth:`mudkit.lab.Lab.device`.

    Raises
    ------
    ParameterError
        Something is unknown or out of range.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        link: str | LinkReplay,
        at: tuple[float, float] | None,
        mobility: str | Mobility | None,
        outage: float | Outages,
        every_s: float,
        battery_j: float | None,
        base_mw: float,
        context: Mapping[str, Any],
    ) -> None:
        self._names = [usable_name(name) for name in names]
        self._link = link
        self._kind = "lte" if isinstance(link, LinkReplay) else profile_of(link).name
        self._at = None if at is None else place("at", at)
        self._mobility = None if mobility is None else mobility_of(mobility)
        self._outages = outages_of(outage)
        self._every_us = round(number("every_s", every_s, 0.001, 86_400.0) * US_PER_S)
        check_battery(1.0 if battery_j is None else battery_j, base_mw)
        self._battery_j = battery_j
        self._base_mw = base_mw
        _check_context(context)
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
        """Add the devices, now.

        Raises
        ------
        ParameterError
            A name is taken, or a trace of moves or links has fewer devices; nothing has been added then.
        """
        for name in self._names:
            world.check_free(name)
        names, link = self._names, self._link
        capacities = [link.capacity(row) for row in range(len(names))] if isinstance(link, LinkReplay) else []
        course = self._course(world.seed, recorder.start_us + world.now_us)
        devices = [world.add_device(name, self._kind) for name in names]

        def begin(device: Device) -> None:
            assert device.course is not None
            Motion(world, [device], device.course, self._every_us, recorder.positions)

        for device in devices:
            device.course = course
            device.on_first_move = begin
            device.context.update(self._context)
            if self._battery_j is not None:
                device.battery = Battery(
                    world, device, partial(world.radio_mj, device), self._battery_j, self._base_mw
                )
            if not capacities:
                world.on_link(device)
        if course is not None:
            Motion(world, devices, course, self._every_us, recorder.positions)
        for device, capacity in zip(devices, capacities, strict=bool(capacities)):
            Measured(world, device, capacity)
        if self._outages.share > 0:
            follow_outages(world, devices, self._outages.switching(world.seed, names))
        return devices

    def describe(self) -> dict[str, Any]:
        """Say everything that shapes the devices, as JSON holds it."""
        names, link, model = self._names, self._link, self._mobility
        return {
            "names": names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}",
            "link": link.describe() if isinstance(link, LinkReplay) else link,
            "at": None if self._at is None else list(self._at),
            "mobility": None if model is None else _described(model),
            "every_s": self._every_us / US_PER_S,
            "outage": self._outages.describe(),
            "battery_j": None if self._battery_j is None else float(self._battery_j),
            "base_mw": float(self._base_mw),
            "context": {name: brief(value, 1000) for name, value in sorted(self._context.items())},
        }

    def _course(self, seed: int, start_us: int) -> Course | None:
        if self._at is not None:
            return Stationary(*self._at)
        return None if self._mobility is None else self._mobility.course(seed, self._names, start_us)


def usable_name(given: Any) -> str:
    """Refuse a name that is no text, or cannot be shown.

    Raises
    ------
    ParameterError
    """
    if not isinstance(given, str) or not given or not given.isprintable():
        raise ParameterError(
            "This name is not usable.",
            where="name",
            found=brief(given),
            expected="text of characters that can be printed",
        )
    return given


def _check_context(context: Mapping[str, Any]) -> None:
    """Refuse what is meant to be a parameter: it would be taken for context without a word."""
    for name in context:
        near = difflib.get_close_matches(name, _NO_CONTEXT, n=1, cutoff=0.85)
        if near:
            raise ParameterError(
                f"There is no parameter {name!r} here.",
                where=name,
                found=brief(context[name]),
                expected="a parameter, or a name of the context that is not like one",
                remedy="add each with lab.device(…, at=…)" if name == "at" else f"did you mean {near[0]!r}?",
            )


def _described(model: Mobility) -> str:
    """Say what a model is, and not where it lies in memory: the same run is described by the same words."""
    return type(model).__name__ if type(model).__repr__ is object.__repr__ else repr(model)
