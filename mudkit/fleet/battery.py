"""A device's battery: what it was charged with, less its base power over time and its radio."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

import numpy as np

from mudkit.errors import ParameterError, brief
from mudkit.fleet.clock import Clock
from mudkit.fleet.energy import Stretch
from mudkit.fleet.link import Link

__all__ = ["BASE_MW", "Battery", "Powered", "check_battery"]

BASE_MW: Final = 68.6
"""A phone that is suspended (Carroll and Heiser, "An analysis of power consumption in a smartphone", USENIX
ATC 2010); idle with its display off it took 268.8 mW."""

_LEAST_US: Final = 1_000_000
_REPORT_US: Final = 60_000_000
_LONGEST_US: Final = 600_000_000
"""A machine that is installed later, and watches it, has not long to wait."""


def check_battery(capacity_j: Any, base_mw: Any) -> None:
    """Check what a battery is made from.

    Raises
    ------
    ParameterError
        The capacity is not over 0, or the power is negative.
    """
    for name, value, least in (("battery_j", capacity_j, 1e-3), ("base_mw", base_mw, 0.0)):
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if not is_number or not least <= value < 1e12:
            raise ParameterError(
                "The battery is not usable.",
                where=name,
                found=brief(value),
                expected=f"a number from {least:g} on",
            )


class Powered(Protocol):
    """A device, as its battery sees it."""

    link: Link
    is_on: bool

    @property
    def watched(self) -> Collection[str]:
        """The fields of the context that a machine watches."""
        ...

    def measured(self, field: str, value: Any) -> None:
        """Take note of what was measured."""
        ...

    def switch_off(self, why: str) -> None:
        """Switch it off."""
        ...


class Battery:
    """A battery that runs out: the device is then switched off.

    When it is empty is found to a second. A device that is off takes nothing.

    Parameters
    ----------
    clock : Clock
        The time in which it runs down.
    device : Powered
        The device that draws on it, alone.
    radio_mj : callable
        Gives the energy that the device's radio has taken so far, in mJ.
    capacity_j : float
        The energy that it holds when it is full, as it is at the start, in joules; above 0.
    base_mw : float
        The power of the device without its radio while it is on, in mW; 0 or more.

    Raises
    ------
    ParameterError
        The capacity is not over 0, or the power is negative.
    """

    def __init__(
        self,
        clock: Clock,
        device: Powered,
        radio_mj: Callable[[], float],
        capacity_j: float,
        base_mw: float = BASE_MW,
    ) -> None:
        check_battery(capacity_j, base_mw)
        self.capacity_j = float(capacity_j)
        self.base_mw = float(base_mw)
        self._clock = clock
        self._device = device
        self._radio_taken_mj = radio_mj
        self._reported_share = 1.0
        self._looks = 0
        self._switched: list[int] = []
        """When the device was switched, since the battery was charged: on first, then off, on, …"""
        self.charge()

    def left_j(self) -> float:
        """Say what is left, in joules."""
        base_mj = self._on_us(self._clock.now_us) * self.base_mw * 1e-6
        used_mj = base_mj + self._radio_taken_mj() - self._radio_before_mj
        return max(self.capacity_j - used_mj / 1000.0, 0.0)

    def left_share(self) -> float:
        """Say what is left, to a hundredth of the capacity."""
        return round(self.left_j() / self.capacity_j, 2)

    def charge(self) -> None:
        """Fill it."""
        now_us = self._clock.now_us
        self._charged_us = now_us
        self._radio_before_mj = self._radio_taken_mj()
        self._switched = [now_us] if self._device.is_on else [now_us, now_us]
        self.look()

    def switched(self) -> None:
        """Note that the device was switched on or off; an empty battery is charged before it is on."""
        if not self._device.is_on:
            self._switched.append(self._clock.now_us)
        elif self.left_j() <= 0.0:
            self.charge()
        else:
            self._switched.append(self._clock.now_us)
            self.look()

    def look(self) -> None:
        """Look whether it is empty, now, and from now on when it could be at the earliest."""
        self._looks += 1
        self._look(self._looks)

    def levels(self, radio: Sequence[Stretch]) -> tuple[list[int], list[float]]:
        """Say what was left since it was charged last: times in µs, and joules.

        Parameters
        ----------
        radio : sequence of Stretch
            The power of the radio over time.
        """
        times_us, left_mj = [self._charged_us], [self.capacity_j * 1000.0]
        for each in radio:
            from_us = max(each.from_us, self._charged_us)
            switched = self._switched[bisect_right(self._switched, from_us) :]
            for to_us in [*(at for at in switched if at < each.to_us), each.to_us]:
                if to_us > from_us:
                    base_mj = (self._on_us(to_us) - self._on_us(from_us)) * self.base_mw * 1e-6
                    used_mj = base_mj + (to_us - from_us) * each.power_mw * 1e-6
                    times_us.append(to_us)
                    left_mj.append(max(left_mj[-1] - used_mj, 0.0))
                    from_us = to_us
        return times_us, [each / 1000.0 for each in left_mj]

    def _on_us(self, until_us: int) -> int:
        """For how long the device was on, from the charge to a time."""
        times = self._switched[: bisect_right(self._switched, until_us)]
        if len(times) % 2:
            times = [*times, until_us]
        return sum(times[1::2]) - sum(times[::2])

    def _look(self, number: int) -> None:
        """Look again when it could be empty at the earliest, so seldom while it is full.

        A machine that watches it is told within a minute of each hundredth.
        """
        device = self._device
        if number != self._looks or not device.is_on:
            return
        left_j = self.left_j()
        if "battery_share" in device.watched and self.left_share() != self._reported_share:
            self._reported_share = self.left_share()
            device.measured("battery_share", self._reported_share)
        if left_j <= 0.0:
            device.switch_off("battery empty")
            return
        most_mw = self.base_mw + _most_mw(device.link)
        wait_us = int(left_j / most_mw * 1e9) if most_mw else _LONGEST_US
        if "battery_share" in device.watched:
            wait_us = min(wait_us, _REPORT_US)
        self._clock.at(self._clock.now_us + min(max(wait_us, _LEAST_US), _LONGEST_US), self._look, number)


def _most_mw(link: Link) -> float:
    """Bound the power of a link's radio: both directions at the most that they carry."""
    radio = link.radio.profile
    up_kb_s, down_kb_s = (
        1000.0 / each.us_per_byte if each.curve is None else each.curve.most_kbps / 8.0
        for each in (link.up, link.down)
    )
    carrying_mw = radio.active_mw + radio.up_mj_per_kb * up_kb_s + radio.down_mj_per_kb * down_kb_s
    return max(carrying_mw, radio.promotion_mw, radio.tail_mw)
