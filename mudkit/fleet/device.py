"""A device: a host with a link, which may be down, and perhaps a battery and a course."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudkit import words
from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief
from mudkit.events import ContextChanged, LinkDown
from mudkit.fleet.battery import Battery
from mudkit.fleet.host import Host, Process, Runtime
from mudkit.fleet.link import Link, profile_of
from mudkit.sources.courses import Course, Places

__all__ = ["Device", "Stationary", "place"]


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
        """Move it to another place."""
        self._lat, self._lon = np.array([lat]), np.array([lon])


def place(where: str, given: Any) -> tuple[float, float]:
    """Parse latitude and longitude in degrees, or raise ParameterError for ``where``."""
    try:
        lat, lon = (float(degrees) for degrees in given)
        is_place = -90 <= lat <= 90 and -180 <= lon <= 180
    except (TypeError, ValueError, OverflowError):
        is_place = False
    if not is_place:
        raise ParameterError(
            "This is no place.", where=where, found=brief(given), expected="(lat, lon) in degrees"
        )
    return lat, lon


@check_calls
class Device(Host):
    """A device; its link is up unless something holds it down.

    Parameters
    ----------
    world : Runtime
        The world that runs its machines.
    name : str
        Its name in the lab, and its first address.
    link : Link
        Its connection to the network.
    """

    __slots__ = ("_addresses", "_down_reasons", "battery", "course", "on_first_move")

    link: Link

    def __init__(self, world: Runtime, name: str, link: Link) -> None:
        super().__init__(world, name, link)
        self.battery: Battery | None = None
        """None: it is on a charger."""
        self._down_reasons: set[str] = set()
        self._addresses = 1
        self.course: Course | None = None
        """Its position over time; None: unknown."""
        self.on_first_move: Callable[[Device], None] | None = None
        """Called at the first move of a device without a course, to start recording its positions."""

    def _facts(self) -> dict[str, Any]:
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
        """Kind of its network."""
        return self.link.profile.name

    def snapshot(self) -> dict[str, Any]:
        """Return its current context, including the battery's share."""
        share = {} if self.battery is None else {"battery_share": self.battery.left_share()}
        if "bandwidth_kbps" in self.watched and isfinite(self.link.down_kbps):
            share["bandwidth_kbps"] = self.link.down_kbps
        return self.context | share

    @property
    def loc(self) -> tuple[float, float] | None:
        """Latitude and longitude, degrees, as last measured; None: unknown."""
        return self.context.get("loc")

    def link_down(self, why: str = "cut") -> None:
        """Disconnect it: transfers under way are cut, and their senders get SendFailed.

        Parameters
        ----------
        why : str
            The reason; the network is back when no reason is left.
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
        """Remove a reason for which it is disconnected."""
        self._down_reasons.discard(why)
        if self.is_online or self._down_reasons:
            return
        self.is_online = True
        self.world.on_link(self)
        self.broadcast(Process.greeting)

    def notify_bandwidth(self) -> None:
        """Notify the machines that watch ``bandwidth_kbps``."""
        if "bandwidth_kbps" in self.watched:
            for process in self.processes:
                if "bandwidth_kbps" in process.watch:
                    self.world.schedule(process, ContextChanged(self.snapshot()))

    def down_reasons(self) -> list[str]:
        """Return the reasons for which its link is down, sorted."""
        return sorted(self._down_reasons)

    def move(self, lat: float, lon: float) -> None:
        """Move it to another place, where it stays.

        Its machines are notified now; its trace has the place from the next interval on.

        Parameters
        ----------
        lat, lon : float
            Degrees.

        Raises
        ------
        ParameterError
            It has a mobility, or the coordinates are out of range.
        """
        loc = place("lat, lon", (lat, lon))
        if self.course is None:
            self.course = Stationary(*loc)
            if self.on_first_move is not None:
                self.on_first_move(self)
        elif isinstance(self.course, Stationary):
            self.course.move(*loc)
        else:
            raise ParameterError(
                "A device that moves by itself is not moved by hand.",
                where=self.name,
                found="mobility=",
                expected="a device without mobility",
                remedy="add it with at=…, or with a mobility of your own: Replay(trace)",
            )
        super().change_context(loc=loc)

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
        if self.course is not None:
            by_hand = isinstance(self.course, Stationary)
            remedy = "device.move(lat, lon)" if by_hand else "its mobility says where it is"
            _refuse("loc", context, "the place of a device is", remedy)
        if self.battery is not None:
            _refuse("battery_share", context, "what is left in a battery is", "a device without battery_j=")
        if isfinite(self.link.down_kbps):
            _refuse(
                "bandwidth_kbps", context, "what a link carries is", "a LinkReplay of what it is to carry"
            )

    def readdress(self, address: str) -> None:
        """Change its address: messages to the old one fail from now on.

        Raises
        ------
        ParameterError
            The address is in use, or not printable.
        """
        _check_address(address)
        self.world.readdress(self, address)
        self.world.on_incident(self, "moved", address)
        if self.is_online:
            self.broadcast(Process.greeting)

    def change_network(self, link: str, address: str | None = None) -> None:
        """Switch to another kind of network, where it has another address.

        Parameters
        ----------
        link : str
            A profile of :data:`mudkit.fleet.link.LINKS`.
        address : str, optional
            The new address; by default the next of its own.
        """
        profile = profile_of(link)
        if address is not None:
            _check_address(address)
        self.world.readdress(self, address or self.next_address())  # refuses before anything is changed
        self.link_down("change of network")
        self.link.use(profile, self.world.now_us)
        self.world.on_incident(self, "moved", f"{self.address}, {link}")
        self._down_reasons.discard("measured")  # that was the other network
        self.link_up("change of network")
        self.notify_bandwidth()
        if self.battery is not None:
            self.battery.check()

    def next_address(self) -> str:
        """Return a new address: the name and a number."""
        self._addresses += 1
        return f"{self.name}@{self._addresses}"

    def switch_off(self, why: str = "off") -> None:
        """Switch it off: no link, no machine; its storage stays. It may be off already."""
        if not self.is_on:
            return
        self.link_down("off")
        self.kill()
        self._switch(False, why)

    def switch_on(self) -> None:
        """Switch it on again; an empty battery is charged first. It may be on already."""
        if not self.is_on:
            self._switch(True, None)
        self.restart()
        self.link_up("off")  # after its machines are there: they hear of it once

    def _switch(self, is_on: bool, why: str | None) -> None:
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
                remedy="switch it on: its machines are then there again",
            )
        super().restart()


def _refuse(field: str, context: Mapping[str, Any], what: str, remedy: str) -> None:
    if field in context:
        raise ParameterError(
            f"The lab sets this field itself: {what} measured.",
            where=field,
            found=brief(context[field]),
            expected="other fields of the context",
            remedy=remedy,
        )


def _check_address(given: str) -> None:
    if not given or not given.isprintable():
        raise ParameterError(
            "This address is not usable.",
            where="address",
            found=brief(given),
            expected="text of characters that can be printed",
        )
