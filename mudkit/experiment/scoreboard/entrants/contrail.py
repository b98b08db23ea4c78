"""A task as Contrail does it: the reader's filter runs on the sender's device (3.1, 3.2).

A reader installs a filter on each sender of whom she may want something, her friends if the want names them,
and puts another in its place when she has moved. A sender to whom a filter comes for the first time publishes
for its reader what is not over yet. The relay sees ciphertext.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from mudkit.events import Operation
from mudkit.experiment.scoreboard.task import Item
from mudkit.experiment.scoreboard.testbed import Testbed
from mudkit.predicates import Predicate
from mudkit.systems.contrail import Item as Sealed
from mudkit.systems.contrail import Module, Relay
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.units import US_PER_S

__all__ = ["POLLING_MS", "Contrail"]

POLLING_MS: Final = 300_000.0
"""Between two connections of a module, at most: what comes is up to so old."""
_LEAST_MS: Final = 60_000.0
_OPEN_MS: Final = 3_600_000.0
_PORT: Final = "board"


class Contrail:
    """Client modules and a relay.

    Parameters
    ----------
    stage : Testbed
    polling_interval_ms : float, optional
        0: a connection that stays open. By default half of the time for which an item is of use, from a
        minute (Table 1 has that for photographs) to :data:`POLLING_MS`: the paper leaves it to the
        application.
    """

    name: Final = "Contrail"
    cannot: Final[Mapping[str, str]] = {
        "traffic alerts": "Each driver has a filter on every other one: nobody knows who will be near.",
        "news with ranks": "An item has no rank: everything wanted comes, read or not.",
        "ward telemetry": "An alarm waits at the relay until the module looks, a minute at most.",
    }
    """What its paper cannot say, by the name of the task."""

    def __init__(self, stage: Testbed, polling_interval_ms: float | None = None) -> None:
        self._stage = stage
        expires_s = stage.task.scenario.expires_s
        if polling_interval_ms is None:
            polling_interval_ms = POLLING_MS if expires_s is None else _polling_ms(expires_s)
        self._asks = {phone: list(_asked(stage, phone)) for phone in stage.phones}
        friends: dict[str, set[str]] = {name: set() for name in stage.lab.devices}
        for phone, senders in self._asks.items():
            for sender in senders:
                friends[phone].add(sender)
                friends[sender].add(phone)
        relay = Relay(stage.lab)
        self._ports = {
            name: Module(device, relay, friends=sorted(friends[name])).open_port(
                _PORT,
                polling_interval_ms=polling_interval_ms,
                idle_timeout_ms=0 if polling_interval_ms else _OPEN_MS,
            )
            for name, device in stage.lab.devices.items()
        }
        self._slots: dict[tuple[str, str], int] = {}
        self._published: dict[str, list[tuple[int, Item]]] = {name: [] for name in stage.senders}
        self._readers: dict[str, set[str]] = {name: set() for name in stage.senders}
        for name in stage.senders:
            self._ports[name].on_accepted(partial(self._accepted, name))
        for phone in stage.phones:
            self._ports[phone].on_item(partial(self._come, phone))
            self._ask(phone)

    def publish(self, item: Item) -> None:
        """Hand it to the module: it leaves the device if somebody has asked for it."""
        self._published[item.sender].append((self._stage.lab.world.now_us, item))
        self._send(item, item.expires_s, None)

    def moved(self, phone: str) -> None:
        """Put filters for where it is now in the place of the others."""
        self._ask(phone)

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._stage.show(phone)

    def _ask(self, phone: str) -> None:
        wanted = self._stage.task.want.over_items(self._stage.about(phone), ITEM)
        for sender in self._asks[phone]:
            replaces = self._slots.get((phone, sender))
            asked = self._ports[phone].install_filter(wanted, to=(sender, _PORT), replaces=replaces)
            asked.add_done_callback(partial(self._installed, phone, sender))

    def _installed(self, phone: str, sender: str, operation: Operation) -> None:
        self._slots[phone, sender] = operation.result()

    def _accepted(self, sender: str, predicate: Predicate, reader: str) -> None:
        if reader in self._readers[sender]:
            return
        self._readers[sender].add(reader)
        now_us = self._stage.lab.world.now_us
        for at_us, item in self._published[sender]:
            left_s = None if item.expires_s is None else item.expires_s - (now_us - at_us) / US_PER_S
            if left_s is None or left_s > 0:
                self._send(item, left_s, [reader])

    def _send(self, item: Item, expires_s: float | None, only: list[str] | None) -> None:
        about = {**item.about, "called": item.name}
        sealed = Sealed(about, item.content.encode())
        self._ports[item.sender].publish(sealed, item.name, expires_s, only=only, called=item.name)

    def _come(self, phone: str, item: Sealed) -> None:
        self._stage.arrived(phone, item.metadata["called"])


def _polling_ms(expires_s: float) -> float:
    return min(max(expires_s * 500, _LEAST_MS), POLLING_MS)


def _asked(stage: Testbed, phone: str) -> Iterable[str]:
    """Give the senders of whom a phone's user may want something."""
    friends = stage.about(phone).get("friends")
    return (
        each for each in stage.senders if each != phone and (friends is None or each in friends.split("|"))
    )
