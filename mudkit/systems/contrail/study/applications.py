"""Applications of Table 1 and of sections 5.1 and 5.2; they differ in filters and port parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import msgspec

from mudkit.checks import check_arguments
from mudkit.events import Operation
from mudkit.predicates import Predicate
from mudkit.systems.contrail.api import Module, Port
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.systems.contrail.items import Item
from mudkit.wire import Value

TABLE_1: Final[Mapping[str, Mapping[str, float]]] = {
    "chat": {"polling_interval_ms": 5_000, "idle_timeout_ms": 0},
    "photos": {"polling_interval_ms": 60_000, "idle_timeout_ms": 0},
    "location": {"polling_interval_ms": 600_000, "idle_timeout_ms": 0},
    "video": {"polling_interval_ms": 0, "idle_timeout_ms": 10_000},
}
"""Port parameters by application (Table 1)."""
_POSITION: Final = "mycurrentlocation"
_LIFETIME_S: Final = 3600.0
"""Default lifetime of a search for photos, and lifetime of a forwarded one."""


def _open_port(module: Module, name: str, kind: str) -> Port:
    """Open a port with the parameters that Table 1 has for this kind of application."""
    parameters = TABLE_1[kind]
    return module.open_port(
        name,
        polling_interval_ms=parameters["polling_interval_ms"],
        idle_timeout_ms=parameters["idle_timeout_ms"],
    )


def _filter_to_me(module: Module) -> Predicate:
    """Return a filter for the items whose destination is this device."""
    return Predicate.parse("destination = :me", {"me": module.device.name}, language=ITEM)


@check_arguments
class Chat:
    """Chat with friends; each has a filter on the others.

    Parameters
    ----------
    module : Module
    others : collection of str
        Devices of the friends.
    on_text : callable
        Called with sender and text.
    """

    def __init__(self, module: Module, others: Collection[str], on_text: Callable[[str, str], None]) -> None:
        self._port = _open_port(module, "chat", "chat")
        self._port.on_item(lambda item: on_text(item.source[0] if item.source else "", item.payload.decode()))
        for other in others:
            self._port.install_filter(_filter_to_me(module), to=(other, "chat"))

    def send(self, to: str, text: str) -> Operation:
        """Send a text to a friend."""
        return self._port.publish(Item({"destination": to}, text.encode()))


@check_arguments
class Video:
    """Video call: a newer frame makes older ones obsolete, and frames expire.

    Parameters
    ----------
    module : Module
    other : str
    on_frame : callable
        Called with each received frame.
    lifetime_s : float
        Lifetime of a frame, in seconds.
    """

    def __init__(
        self, module: Module, other: str, on_frame: Callable[[bytes], None], lifetime_s: float = 1.0
    ) -> None:
        self._other, self._lasts_s = other, lifetime_s
        self._port = _open_port(module, "video", "video")
        self._port.on_item(lambda item: on_frame(item.payload))
        self._port.install_filter(_filter_to_me(module), to=(other, "video"))

    def send(self, frame: bytes) -> Operation:
        """Send a frame."""
        return self._port.publish(Item({"destination": self._other}, frame), "frame", self._lasts_s)


@check_arguments
class SharedLocation:
    """Device that shares its location by filters (5.2: the child).

    Parameters
    ----------
    module : Module
    """

    def __init__(self, module: Module) -> None:
        self._port = _open_port(module, "location", "location")

    def update(self, lat: float, lon: float) -> Operation:
        """Publish the location ``lat, lon``, in degrees; it leaves the device only if a filter matches."""
        return self._port.publish(Item({"loc": (lat, lon)}), _POSITION)


@check_arguments
class Alarm:
    """Alarm when a friend leaves an area (5.2: Alice); the filter of Figure 5 is its negation.

    Parameters
    ----------
    module : Module
    device : str
        Device of the friend.
    area : (float, float, float, float)
        South, west, north, east, degrees.
    on_away : callable
        Called with the location.
    lifetime_s : float, optional
        Lifetime of a location, in seconds; None: unlimited.
    """

    def __init__(
        self,
        module: Module,
        device: str,
        area: tuple[float, float, float, float],
        on_away: Callable[[Value], None],
        lifetime_s: float | None = None,
    ) -> None:
        self._port = _open_port(module, f"alarm for {device}", "location")
        self._port.on_item(lambda item: on_away(item.metadata["loc"]))
        self._device, self._lasts_s = device, lifetime_s
        self._slot: int | None = None
        self.watch(area)

    def watch(self, area: tuple[float, float, float, float]) -> Operation:
        """Replace the area, for example by one around this device."""
        names = dict(zip(("south", "west", "north", "east"), area, strict=True))
        predicate = Predicate.parse("NOT within_box(loc, :south, :west, :north, :east)", names, language=ITEM)
        operation = self._port.install_filter(
            predicate, to=(self._device, "location"), item_expires_s=self._lasts_s, replaces=self._slot
        )
        operation.add_done_callback(self._record_installation)
        return operation

    def _record_installation(self, operation: Operation) -> None:
        """Note the number of the installed filter, which the next area replaces."""
        self._slot = operation.result()


@check_arguments
class Photos:
    """Photo sharing, with searches among friends and their friends (3.4, 5.1).

    A search is a filter with a short lifetime at the port of its number of remaining hops. A device that
    receives one publishes its library there and installs the filter on its own friends with one hop less.

    Parameters
    ----------
    module : Module
    friends : collection of str
        Devices of the friends.
    on_photo : callable
        Called with owner, name and content of each photo found, once.
    max_hops : int
        Maximum number of friends that forward a search.
    """

    def __init__(
        self,
        module: Module,
        friends: Collection[str],
        on_photo: Callable[[str, str, bytes], None],
        max_hops: int = 2,
    ) -> None:
        self._me, self._friends, self._on_photo = module.device.name, list(friends), on_photo
        self._received: dict[str, Item] = {}
        self._own: dict[str, Item] = {}
        self._ports = [_open_port(module, f"photos {hops}", "photos") for hops in range(max_hops + 1)]
        for hops, port in enumerate(self._ports):
            port.on_item(self._receive)
            port.on_accepted(partial(self._answer_search, hops))

    def share(self, name: str, photo: bytes, **tags: Value) -> None:
        """Add a photo with its ``tags`` to the library and publish it to friends whose search matches."""
        self._own[name] = Item({**tags, "owner": self._me, "name": name}, photo)
        self._publish(f"{self._me}/{name}", self._own[name])

    def search(self, predicate: str | Predicate, hops: int = 0, lifetime_s: float = _LIFETIME_S) -> None:
        """Search photos by a ``predicate`` for ``lifetime_s``, up to ``hops`` friends beyond friends."""
        self._search(predicate, hops, lifetime_s, self._friends)

    def _search(
        self, predicate: str | Predicate, hops: int, lifetime_s: float, friends: Collection[str]
    ) -> None:
        """Install a search at friends, on the port of its remaining hops."""
        for friend in friends:
            self._ports[hops].install_filter(
                predicate, to=(friend, f"photos {hops}"), lifetime_s=lifetime_s, item_expires_s=lifetime_s
            )

    def _answer_search(self, hops: int, predicate: Predicate, who: str) -> None:
        """Publish the library to a friend whose search was accepted; forward it if hops remain."""
        for name, item in [*self._own.items(), *self._received.items()]:
            key = name if item.source else f"{self._me}/{name}"
            self._ports[hops].publish(item, key, only=[who])
        if hops:
            others = [friend for friend in self._friends if friend != who]
            self._search(predicate, hops - 1, _LIFETIME_S, others)

    def _receive(self, item: Item) -> None:
        """Pass a found photo to the application, once, and to friends who have searched through here."""
        owner, name = str(item.metadata["owner"]), str(item.metadata["name"])
        key = f"{owner}/{name}"
        if key in self._received or owner == self._me:
            return
        self._received[key] = item
        self._on_photo(owner, name, item.payload)
        self._publish(key, item)  # to friends whose search this device forwarded

    def _publish(self, key: str, item: Item) -> None:
        """Publish a photo at the ports of all numbers of hops."""
        for port in self._ports:
            port.publish(item, key)


@check_arguments
class Sensor:
    """Sensor whose readings are sent to devices with a filter (5.1).

    Parameters
    ----------
    module : Module
    """

    def __init__(self, module: Module) -> None:
        self._port = _open_port(module, "readings", "location")

    def read(self, value: float) -> Operation:
        """Publish a reading: its ``value``."""
        return self._port.publish(Item({"value": value}), "reading")


@check_arguments
class Aggregator:
    """Node of an aggregation tree: publishes only the mean and number of the readings below (5.1).

    Parameters
    ----------
    module : Module
    children : collection of str
        Devices with a :class:`Sensor` or an :class:`Aggregator`.
    predicate : str
        Predicate of the readings to include.
    """

    def __init__(
        self, module: Module, children: Collection[str], predicate: str = "value IS NOT NULL"
    ) -> None:
        self._in = _open_port(module, "what is below", "chat")
        self._out = _open_port(module, "readings", "chat")
        self._latest: dict[str, tuple[float, int]] = {}
        self._in.on_item(self._receive)
        for device in children:
            self._in.install_filter(predicate, to=(device, "readings"))

    @property
    def mean(self) -> tuple[float, int]:
        """Mean of the readings below, and their number."""
        count = sum(weight for _, weight in self._latest.values())
        total = sum(value * weight for value, weight in self._latest.values())
        return (total / count if count else 0.0), count

    def _receive(self, item: Item) -> None:
        """Record a reading from below, and publish the new mean."""
        count = msgspec.convert(item.metadata.get("count", 1), int)
        self._latest[item.source[0] if item.source else ""] = (
            msgspec.convert(item.metadata["value"], float),
            count,
        )
        mean, total = self.mean
        self._out.publish(Item({"value": mean, "count": total}), "reading")
