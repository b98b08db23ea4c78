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

_MIN_CHECK_US: Final = 1_000_000
_MAX_REPORT_US: Final = 60_000_000
_MAX_CHECK_US: Final = 600_000_000
"""A machine that is installed later, and watches it, has not long to wait."""


def check_battery(capacity_j: Any, base_mw: Any) -> None:
    """Raise ParameterError unless the capacity is positive and the power not negative."""
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
        """Fields of the context that a machine watches."""
        ...

    def measured(self, field: str, value: Any) -> None:
        """Set a measured field of the context."""
        ...

    def switch_off(self, why: str) -> None:
        """Switch the device off."""
        ...


class Battery:
    """A battery that runs out: the device is then switched off.

    The time at which it is empty is found to a second. A device that is off consumes nothing.

    Parameters
    ----------
    clock : Clock
    device : Powered
        The only device that draws on it.
    radio_mj : callable
        Returns the energy that the device's radio has used so far, in mJ.
    capacity_j : float
        The energy of a full battery, in joules; it starts full.
    base_mw : float
        The power of the device without its radio while it is on, in mW.

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
        self._checks = 0
        self._switch_times_us: list[int] = []
        """Times at which the device was switched since the last charge: on, off, on, …"""
        self.charge()

    def left_j(self) -> float:
        """Return the remaining energy in joules."""
        base_mj = self._on_us(self._clock.now_us) * self.base_mw * 1e-6
        used_mj = base_mj + self._radio_taken_mj() - self._radio_before_mj
        return max(self.capacity_j - used_mj / 1000.0, 0.0)

    def left_share(self) -> float:
        """Return the remaining share, rounded to a hundredth of the capacity."""
        return round(self.left_j() / self.capacity_j, 2)

    def charge(self) -> None:
        """Charge it fully."""
        now_us = self._clock.now_us
        self._charged_us = now_us
        self._radio_before_mj = self._radio_taken_mj()
        self._switch_times_us = [now_us] if self._device.is_on else [now_us, now_us]
        self.check()

    def record_switch(self) -> None:
        """Record that the device was switched on or off; charge an empty battery before it is on."""
        if not self._device.is_on:
            self._switch_times_us.append(self._clock.now_us)
        elif self.left_j() <= 0.0:
            self.charge()
        else:
            self._switch_times_us.append(self._clock.now_us)
            self.check()

    def check(self) -> None:
        """Check whether it is empty, and schedule the next check for the earliest time at which it can be."""
        self._checks += 1
        self._check(self._checks)

    def levels(self, radio: Sequence[Stretch]) -> tuple[list[int], list[float]]:
        """Return times in µs and the remaining joules since the last charge, given the radio's power."""
        times_us, left_mj = [self._charged_us], [self.capacity_j * 1000.0]
        for stretch in radio:
            from_us = max(stretch.from_us, self._charged_us)
            switched = self._switch_times_us[bisect_right(self._switch_times_us, from_us) :]
            for to_us in [*(at for at in switched if at < stretch.to_us), stretch.to_us]:
                if to_us > from_us:
                    base_mj = (self._on_us(to_us) - self._on_us(from_us)) * self.base_mw * 1e-6
                    used_mj = base_mj + (to_us - from_us) * stretch.power_mw * 1e-6
                    times_us.append(to_us)
                    left_mj.append(max(left_mj[-1] - used_mj, 0.0))
                    from_us = to_us
        return times_us, [energy_mj / 1000.0 for energy_mj in left_mj]

    def _on_us(self, until_us: int) -> int:
        """Return for how long the device was on, from the charge to a time."""
        times = self._switch_times_us[: bisect_right(self._switch_times_us, until_us)]
        if len(times) % 2:
            times = [*times, until_us]
        return sum(times[1::2]) - sum(times[::2])

    def _check(self, number: int) -> None:
        """Check again at the earliest time at which it can be empty.

        A machine that watches ``battery_share`` is notified within a minute of each hundredth.
        """
        device = self._device
        if number != self._checks or not device.is_on:
            return
        left_j = self.left_j()
        if "battery_share" in device.watched and self.left_share() != self._reported_share:
            self._reported_share = self.left_share()
            device.measured("battery_share", self._reported_share)
        if left_j <= 0.0:
            device.switch_off("battery empty")
            return
        max_mw = self.base_mw + _max_radio_mw(device.link)
        wait_us = int(left_j / max_mw * 1e9) if max_mw else _MAX_CHECK_US
        if "battery_share" in device.watched:
            wait_us = min(wait_us, _MAX_REPORT_US)
        self._clock.at(
            self._clock.now_us + min(max(wait_us, _MIN_CHECK_US), _MAX_CHECK_US), self._check, number
        )


def _max_radio_mw(link: Link) -> float:
    """Return an upper bound of a radio's power: both directions at their highest throughput."""
    radio = link.radio.profile
    up_kb_s, down_kb_s = (
        1000.0 / way.us_per_byte if way.curve is None else way.curve.max_kbps / 8.0
        for way in (link.up, link.down)
    )
    carrying_mw = radio.active_mw + radio.up_mj_per_kb * up_kb_s + radio.down_mj_per_kb * down_kb_s
    return max(carrying_mw, radio.promotion_mw, radio.tail_mw)
