"""A device: a host with a link, which may be down, and perhaps a battery and a course."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, brief
from mudkit.events import ContextChanged, LinkDown
from mudkit.fleet.clock import Clock
from mudkit.fleet.energy import Stretch
from mudkit.fleet.host import Host, Process
from mudkit.fleet.link import Link, profile_of
from mudkit.places import Place, parse_place
from mudkit.sources.courses import Course, Places

if TYPE_CHECKING:
    from mudkit.fleet.kernel import World

BASE_MW: Final = 68.6
"""A phone that is suspended (Carroll and Heiser, "An analysis of power consumption in a smartphone", USENIX
ATC 2010); idle with its display off it took 268.8 mW."""

_MIN_CHECK_US: Final = 1_000_000
_MAX_REPORT_US: Final = 60_000_000
_MAX_CHECK_US: Final = 600_000_000
"""A machine that is installed later, and watches it, has not long to wait."""


class Stationary:
    """The course of a device that does not move; it reports its place like one that does."""

    until_us: int | None = None

    def __init__(self, lat: float, lon: float) -> None:
        self._speed_mps: NDArray[np.float64] = np.zeros(1)
        self.move(lat, lon)

    def at(self, t_us: int) -> Places:
        """See :class:`mudkit.sources.courses.Course`."""
        return Places(self._lat, self._lon, self._speed_mps)

    def move(self, lat: float, lon: float) -> None:
        """Set another place, which holds from now on."""
        self._lat, self._lon = np.array([lat]), np.array([lon])


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


class Battery:
    """A battery that runs out: the device is then switched off, and consumes nothing.

    The time at which it is empty is found to a second. ``radio_mj`` returns the energy that the radio has
    used so far, in mJ; ``capacity_j`` is that of a full battery, which it is at first; ``base_mw`` the power
    of the device without its radio while it is on. Raises ParameterError if one of the two is out of range.
    """

    def __init__(
        self,
        clock: Clock,
        device: Device,
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
        base_mj = self._on_time_us(self._clock.now_us) * self.base_mw * 1e-6
        used_mj = base_mj + self._radio_taken_mj() - self._radio_before_mj
        return max(self.capacity_j - used_mj / 1000.0, 0.0)

    def left_share(self) -> float:
        """Return the remaining share, rounded to a hundredth of the capacity."""
        return round(self.left_j() / self.capacity_j, 2)

    def charge(self) -> None:
        """Charge it fully now: levels are counted from here."""
        now_us = self._clock.now_us
        self._charged_us = now_us
        self._radio_before_mj = self._radio_taken_mj()
        self._switch_times_us = [now_us] if self._device.is_on else [now_us, now_us]
        self.check()

    def record_switch(self) -> None:
        """Note that the device was switched on or off now; an empty battery is charged before it is on."""
        if not self._device.is_on:
            self._switch_times_us.append(self._clock.now_us)
        elif self.left_j() <= 0.0:
            self.charge()
        else:
            self._switch_times_us.append(self._clock.now_us)
            self.check()

    def check(self) -> None:
        """Switch the device off if the battery is empty; plan the next check in place of the pending one."""
        self._checks += 1
        self._check_charge(self._checks)

    def levels(self, radio: Sequence[Stretch]) -> tuple[list[int], list[float]]:
        """Return times in µs, and the joules left at each since the last charge, given the radio's power."""
        times_us, left_mj = [self._charged_us], [self.capacity_j * 1000.0]
        for stretch in radio:
            from_us = max(stretch.from_us, self._charged_us)
            switched = self._switch_times_us[bisect_right(self._switch_times_us, from_us) :]
            for to_us in [*(at for at in switched if at < stretch.to_us), stretch.to_us]:
                if to_us > from_us:
                    base_mj = (self._on_time_us(to_us) - self._on_time_us(from_us)) * self.base_mw * 1e-6
                    used_mj = base_mj + (to_us - from_us) * stretch.power_mw * 1e-6
                    times_us.append(to_us)
                    left_mj.append(max(left_mj[-1] - used_mj, 0.0))
                    from_us = to_us
        return times_us, [energy_mj / 1000.0 for energy_mj in left_mj]

    def _on_time_us(self, until_us: int) -> int:
        """Return for how long the device was on, from the charge to a time."""
        times = self._switch_times_us[: bisect_right(self._switch_times_us, until_us)]
        if len(times) % 2:
            times = [*times, until_us]
        return sum(times[1::2]) - sum(times[::2])

    def _check_charge(self, number: int) -> None:
        """Switch the device off if it is empty, else check again at the earliest time at which it can be.

        ``number`` is that of the check: if a newer one was scheduled, it does nothing. A machine that watches
        ``battery_share`` is notified within a minute of each hundredth.
        """
        device = self._device
        if number != self._checks or not device.is_on:
            return
        left_j = self.left_j()
        if "battery_share" in device.watched and self.left_share() != self._reported_share:
            self._reported_share = self.left_share()
            device.set_measured("battery_share", self._reported_share)
        if left_j <= 0.0:
            device.switch_off("battery empty")
            return
        max_mw = self.base_mw + _max_radio_mw(device.link)
        if device.nearby is not None:
            max_mw += _max_nearby_mw(device.nearby)
        wait_us = int(left_j / max_mw * 1e9) if max_mw else _MAX_CHECK_US
        if "battery_share" in device.watched:
            wait_us = min(wait_us, _MAX_REPORT_US)
        self._clock.schedule_action(
            self._clock.now_us + min(max(wait_us, _MIN_CHECK_US), _MAX_CHECK_US), self._check_charge, number
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


def _max_nearby_mw(link: Link) -> float:
    """Return an upper bound of a short-range radio's power: it sends and receives at the rate of senders."""
    radio = link.radio.profile
    return (radio.up_mj_per_kb + radio.down_mj_per_kb) * link.profile.up_kbps / 8.0


@check_arguments
class Device(Host):
    """A device; its link is up unless something holds it down.

    Parameters
    ----------
    world : World
    name : str
        Its name in the lab, and its first address.
    link : Link
    """

    __slots__ = ("_addresses", "_down_reasons", "battery", "course", "on_first_move", "on_place")

    link: Link

    def __init__(self, world: World, name: str, link: Link) -> None:
        super().__init__(world, name, link)
        self.battery: Battery | None = None
        """None: it is on a charger."""
        self._down_reasons: set[str] = set()
        self._addresses = 1
        self.course: Course | None = None
        """Its position over time; None: unknown."""
        self.on_place: Callable[[Device], None] | None = None
        """Called at each place; None: nobody follows it."""
        self.on_first_move: Callable[[Device], None] | None = None
        """Called at the first move of a device without a course, to start recording its positions."""

    def _facts(self) -> dict[str, Any]:
        """Return the facts that a display shows: link, state, battery and place, and those of a host."""
        battery = None
        if self.battery is not None:
            battery = (
                f"{words.percent(self.battery.left_share())} of {words.number(self.battery.capacity_j)} J"
            )
        loc = self.loc
        return {
            "link": self.network,
            "state": self.state,
            "battery": battery,
            "place": None if loc is None else f"{loc[0]:.5f}, {loc[1]:.5f}",
            **super()._facts(),
        }

    @property
    def state(self) -> str:
        """``online``, ``off``, or ``offline`` with the reasons."""
        if not self.is_on:
            return "off"
        return "online" if self.is_online else f"offline ({', '.join(self.down_reasons())})"

    @property
    def network(self) -> str:
        """Name of its present link's profile, for example ``lte``."""
        return self.link.profile.name

    def snapshot(self) -> dict[str, Any]:
        """Return its current context, including the battery's share."""
        share = {} if self.battery is None else {"battery_share": self.battery.left_share()}
        if "bandwidth_kbps" in self.watched and isfinite(self.link.down_kbps):
            share["bandwidth_kbps"] = self.link.down_kbps
        return self.context | share

    @property
    def loc(self) -> Place | None:
        """Latitude and longitude, degrees, as last measured; None: unknown."""
        return self.context.get("loc")

    def link_down(self, why: str = "cut") -> None:
        """Disconnect it until no reason (``why``) is left.

        Transfers are cut, and their senders get SendFailed; its machines get LinkDown. No effect but the
        reason on a device that is not connected.
        """
        self._down_reasons.add(why)
        if not self.is_online:
            return
        self.is_online = False
        world, link = self.world, self.link
        for direction in (link.up, link.down):
            for leg, sent_bytes in direction.cut(world.now_us):
                world.record_cut(leg, sent_bytes)
        link.radio.cut(world.now_us)
        world.on_link(self)
        self.broadcast(lambda process: LinkDown())

    def link_up(self, why: str = "cut") -> None:
        """Remove a reason for which it is disconnected; connect it when no reason is left.

        Its machines then get LinkUp. No effect on a device that is connected.
        """
        self._down_reasons.discard(why)
        if self.is_online or self._down_reasons:
            return
        self.is_online = True
        self.world.on_link(self)
        self._announce_link()

    def _announce_link(self) -> None:
        """Open the connections that it keeps again, and send its machines LinkUp."""
        if self.world.connections is not None:
            self.world.connections.reopen(self)
        self.broadcast(Process.build_link_up)

    def notify_bandwidth(self) -> None:
        """Notify the machines that watch ``bandwidth_kbps``."""
        if "bandwidth_kbps" in self.watched:
            for process in self.processes:
                if "bandwidth_kbps" in process.watch:
                    self.world.schedule_event(process, ContextChanged(self.snapshot()))

    def down_reasons(self) -> list[str]:
        """Return the reasons for which its link is down, sorted."""
        return sorted(self._down_reasons)

    def move(self, lat: float, lon: float) -> None:
        """Move it to another place (degrees), where it stays; its machines are notified now.

        Raises
        ------
        ParameterError
            It has a mobility, or the coordinates are out of range.
        """
        loc = parse_place("lat, lon", (lat, lon))
        if self.course is None:
            self.course = Stationary(*loc)
            if self.on_first_move is not None:
                self.on_first_move(self)
        elif isinstance(self.course, Stationary):
            self.course.move(*loc)
        else:
            raise ParameterError(
                "A device with a mobility cannot be moved by hand.",
                where=self.name,
                found="mobility=",
                expected="a device without mobility",
                remedy="add it with at=…, or with a mobility of your own: Replay(trace)",
            )
        super().change_context(loc=loc)
        if self.on_place is not None:
            self.on_place(self)

    def change_context(self, **context: Any) -> None:
        """Change its context and notify its machines.

        Raises
        ------
        ParameterError
            The lab sets one of these fields itself: the change would be overwritten.
        """
        self._check_context(context)
        super().change_context(**context)

    def _check_context(self, context: Mapping[str, Any]) -> None:
        """Raise ParameterError for a field that is measured here: the change would be overwritten."""
        if self.course is not None:
            by_hand = isinstance(self.course, Stationary)
            remedy = "device.move(lat, lon)" if by_hand else "its mobility says where it is"
            _refuse_measured_field("loc", context, "the place of a device is", remedy)
        if self.battery is not None:
            _refuse_measured_field(
                "battery_share", context, "what is left in a battery is", "a device without battery_j="
            )
        if isfinite(self.link.down_kbps):
            _refuse_measured_field(
                "bandwidth_kbps", context, "what a link carries is", "a LinkReplay of what it is to carry"
            )

    def readdress(self, address: str) -> None:
        """Change its ``address``: messages to the old one fail from now on.

        Raises
        ------
        ParameterError
            The address is in use, or not printable.
        """
        _check_address(address)
        self.world.readdress(self, address)
        self.world.on_incident(self, "moved", address)
        if self.is_online:
            self._announce_link()

    def change_network(self, link: str, address: str | None = None) -> None:
        """Switch to another kind of network, a ``link`` of :data:`~mudkit.fleet.link.LINKS`.

        The device has another ``address`` there; None: the next of its own.
        """
        profile = profile_of(link)
        if address is not None:
            _check_address(address)
        self.world.readdress(self, address or self.next_address())  # refuses before anything is changed
        self.link_down("change of network")
        self.link.switch_network(profile, self.world.now_us)
        self.world.on_incident(self, "moved", f"{self.address}, {link}")
        self._down_reasons.discard("measured")  # that was the other network
        self.link_up("change of network")
        self.notify_bandwidth()
        if self.battery is not None:
            self.battery.check()

    def next_address(self) -> str:
        """Return an address that it has not had: its name and the next number."""
        self._addresses += 1
        return f"{self.name}@{self._addresses}"

    def switch_off(self, why: str = "off") -> None:
        """Switch it off: no link, no machine; its storage stays. It may be off already."""
        if not self.is_on:
            return
        self.link_down("off")
        if self.nearby is not None:
            for direction in (self.nearby.up, self.nearby.down):
                for leg, sent_bytes in direction.cut(self.world.now_us):
                    self.world.record_cut(leg, sent_bytes)
        self.kill()
        self._set_on(False, why)

    def switch_on(self) -> None:
        """Switch it on again; an empty battery is charged first.

        If it is on already, its killed machines restart all the same.
        """
        if not self.is_on:
            self._set_on(True, None)
        self.restart()
        self.link_up("off")  # after the restart, so that its machines get one LinkUp

    def _set_on(self, is_on: bool, why: str | None) -> None:
        """Set whether it is on, and record this in the incidents and by its battery."""
        self.is_on = is_on
        self.world.on_incident(self, "on" if is_on else "off", why)
        if self.battery is not None:
            self.battery.record_switch()

    def restart(self) -> None:
        """Restart its killed machines, with their stores as committed.

        Raises
        ------
        ParameterError
            The device is off.
        """
        if not self.is_on:
            raise ParameterError(
                "Nothing runs on a device that is off.",
                where="device",
                found=f"{self.name} is off",
                expected="one that is on",
                remedy="switch it on, which restarts its machines",
            )
        super().restart()


def _refuse_measured_field(field: str, context: Mapping[str, Any], what: str, remedy: str) -> None:
    """Raise ParameterError if a change of the context names a field that the lab sets."""
    if field in context:
        raise ParameterError(
            f"The lab sets this field itself: {what} measured.",
            where=field,
            found=brief(context[field]),
            expected="other fields of the context",
            remedy=remedy,
        )


def _check_address(given: str) -> None:
    """Raise ParameterError for an address that is empty or not printable."""
    if not given or not given.isprintable():
        raise ParameterError(
            "This address is not usable.",
            where="address",
            found=brief(given),
            expected="text of characters that can be printed",
        )
