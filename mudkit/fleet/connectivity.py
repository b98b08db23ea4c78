"""Networks that come and go: by an outage process, or as they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudkit.fleet.capacity import Curve
from mudkit.fleet.device import Device
from mudkit.sources.link_replay import Capacity
from mudkit.sources.outages import FOREVER_US, PERIODS, Switching

if TYPE_CHECKING:
    from mudkit.fleet.kernel import World

__all__ = ["Measured", "follow_outages"]


def follow_outages(world: World, devices: Sequence[Device], switching: Switching) -> None:
    """Let devices lose their network and find it again as a process says, from now on."""
    process = _Process(world, switching)
    for row, device in enumerate(devices):
        is_up = bool(switching.starts_up[row])
        if not is_up:
            device.link_down("outage")
        process.begin((device, row, 0, is_up))


class _Process:
    """The switching of a group, period by period."""

    def __init__(self, world: World, switching: Switching) -> None:
        self._world = world
        self._switching = switching
        self._drawn: dict[int, list[list[int]]] = {}

    def begin(self, what: tuple[Device, int, int, bool]) -> None:
        """Begin a period of a device: the next begins when it is over."""
        device, row, number, is_up = what
        length_us = self._length_us(row, number)
        if length_us < FOREVER_US:
            self._world.at(self._world.now_us + length_us, self._switch, (device, row, number + 1, not is_up))

    def _switch(self, what: tuple[Device, int, int, bool]) -> None:
        device, _, _, is_up = what
        if is_up:
            device.link_up("outage")
        else:
            device.link_down("outage")
        self.begin(what)

    def _length_us(self, row: int, number: int) -> int:
        block, place = divmod(number, PERIODS)
        if block not in self._drawn:
            self._drawn[block] = self._switching.periods_us(block).tolist()
            self._drawn.pop(block - 8, None)  # who is so far behind draws it again: it is the same
        return self._drawn[block][row][place]


class Measured:
    """A device whose link carries what was measured.

    Parameters
    ----------
    world : World
    device : Device
    capacity : Capacity
        Its time begins now.
    """

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
        world.cover(self)
        self._piece(0)

    @property
    def until_us(self) -> int:
        """End of what was measured; of another network that the device has gone over to, nothing was."""
        return FOREVER_US if self._is_over() else self._until_us

    def _is_over(self) -> bool:
        """Say whether the device has gone over to another network, of which nothing was measured."""
        return len(self._device.link.profiles) > self._networks

    def _piece(self, number: int) -> None:
        if self._is_over():
            return
        _, is_up, down_kbps, up_kbps, latency_ms = self._pieces[number]
        self._device.link.set_measured(down_kbps, up_kbps, latency_ms)
        self._device.tell_bandwidth()
        if is_up:
            self._device.link_up("measured")
        else:
            self._device.link_down("measured")
        self._world.on_link(self._device)
        if number + 1 < len(self._pieces):
            self._world.at(self._pieces[number + 1][0], self._piece, number + 1)
