"""A device's battery: what it was charged with, less its base power over time and its radio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mudkit.errors import ParameterError
from mudkit.fleet.energy import RadioProfile
from mudkit.fleet.timeline import Stretch

if TYPE_CHECKING:
    from mudkit.fleet.host import Device
    from mudkit.fleet.kernel import World

__all__ = ["BASE_MW", "Battery"]

BASE_MW: Final = 68.6
"""A phone that is suspended (Carroll and Heiser, "An analysis of power consumption in a smartphone", USENIX
ATC 2010); idle with its display off it took 268.8 mW."""

_LEAST_US: Final = 1_000_000
_REPORT_US: Final = 60_000_000
_LONGEST_US: Final = 600_000_000
"""A machine that is installed later, and watches it, has not long to wait."""


class Battery:
    """A battery that runs out: the device is then switched off.

    When it is empty is found to a second.

    Parameters
    ----------
    world : World
    device : Device
        At a device's battery nothing else draws.
    capacity_j : float
        Full, as it is at the start.
    base_mw : float
        What the device takes without its radio, while it is on.

    Raises
    ------
    ParameterError
        The capacity is not over 0, or the power is negative.
    """

    def __init__(self, world: World, device: Device, capacity_j: float, base_mw: float = BASE_MW) -> None:
        for name, value, least in (("battery_j", capacity_j, 1e-3), ("base_mw", base_mw, 0.0)):
            if not least <= value < 1e12:
                raise ParameterError(
                    "The battery is not usable.", where=name, found=repr(value), expected=f"{least:g} or more"
                )
        self.capacity_j = capacity_j
        self.base_mw = base_mw
        self._world = world
        self._device = device
        self._charged_us = world.now_us
        self._radio_mj = world.radio_mj(device)
        self._told = 1.0
        self._watch(None)

    def left_j(self) -> float:
        """Say what is left, in joules."""
        base_mj = (self._world.now_us - self._charged_us) * self.base_mw * 1e-6
        used_mj = base_mj + self._world.radio_mj(self._device) - self._radio_mj
        return max(self.capacity_j - used_mj / 1000.0, 0.0)

    def left_share(self) -> float:
        """Say what is left, to a hundredth of the capacity."""
        return round(self.left_j() / self.capacity_j, 2)

    def charge(self) -> None:
        """Fill it."""
        self._charged_us = self._world.now_us
        self._radio_mj = self._world.radio_mj(self._device)

    def levels(self, radio: Sequence[Stretch]) -> tuple[list[int], list[float]]:
        """Say what was left since it was charged last: times in µs, and joules.

        Parameters
        ----------
        radio : sequence of Stretch
            What the radio did.
        """
        times_us, left_mj = [self._charged_us], [self.capacity_j * 1000.0]
        for each in radio:
            from_us = max(each.from_us, self._charged_us)
            if each.to_us > from_us:
                used_mj = (each.to_us - from_us) * (each.power_mw + self.base_mw) * 1e-6
                times_us.append(each.to_us)
                left_mj.append(max(left_mj[-1] - used_mj, 0.0))
        return times_us, [each / 1000.0 for each in left_mj]

    def _watch(self, _: None) -> None:
        """Look again when it could be empty at the earliest, so seldom while it is full.

        A machine that watches it is told within a minute of each hundredth.
        """
        left_j, device = self.left_j(), self._device
        if left_j <= 0.0:
            device.switch_off("battery empty")
            return
        most_mw = self.base_mw + _most_mw(device.link.radio.profile)
        wait_us = int(left_j / most_mw * 1e9)
        if "battery_share" in device.watched:
            wait_us = min(wait_us, _REPORT_US)
            if self.left_share() != self._told:
                self._told = self.left_share()
                device.measured("battery_share", self._told)
        self._world.at(self._world.now_us + min(max(wait_us, _LEAST_US), _LONGEST_US), self._watch)


def _most_mw(radio: RadioProfile) -> float:
    """Bound the power of a radio: both directions at 50 Mbit/s, more than any profile has."""
    carrying_mw = radio.active_mw + (radio.up_mj_per_kb + radio.down_mj_per_kb) * 6250.0
    return max(carrying_mw, radio.promotion_mw, radio.tail_mw)
