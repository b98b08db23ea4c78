"""Contrail in experiments: the reader's filter runs on the sender's device (3.1, 3.2).

Alone, a reader installs a filter on each sender of whom she may want something, her friends if the want names
them, and replaces it when she has moved. A sender that gets the filter of a reader for the first time
publishes for her what has not expired yet. The relay sees ciphertext.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.events import Host, Operation
from mudkit.experiment.adapters.system import PORT, Batch, Part, System, Way, text_of
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Testbed
from mudkit.lab import Lab
from mudkit.predicates import Predicate
from mudkit.systems.contrail import Item as Sealed
from mudkit.systems.contrail import Module, Port, Relay
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.units import US_PER_S

POLLING_MS: Final = 300_000.0
"""Longest time between two connections of a module."""
_MIN_POLLING_MS: Final = 60_000.0
_OPEN_MS: Final = 3_600_000.0
"""Time for which a connection stays open, so that items arrive at once, as in the other systems."""


@check_arguments(types=False)
class Contrail(System):
    """A relay, and a module on each device.

    Parameters
    ----------
    testbed : Testbed
    **settings
        Settings of each port (:class:`~mudkit.systems.contrail.Port`). ``polling_interval_ms`` is half of
        the time for which an item is of use, from a minute (Table 1 has that for photographs) to
        :data:`POLLING_MS`: the paper leaves it to the application. 0 means a connection that stays open.
    """

    label: ClassVar = "Contrail"
    unsupported: ClassVar = {
        "traffic alerts": "Each driver has a filter on every other one: nobody knows who will be near.",
        "news with ranks": "An item has no rank: everything wanted comes, read or not.",
        "ward telemetry": "An alarm waits at the relay until the module looks, a minute at most.",
    }

    def __init__(self, testbed: Testbed, **settings: Any) -> None:
        super().__init__(testbed)
        self._slots: dict[tuple[str, str], int] = {}
        self._published: dict[str, list[tuple[int, Item]]] = {name: [] for name in testbed.senders}
        self._readers: dict[str, set[str]] = {name: set() for name in testbed.senders}
        self._senders = {phone: list(_senders_for(testbed, phone)) for phone in testbed.phones}
        expires_s = self._task.scenario.expires_s
        usual_ms = POLLING_MS if expires_s is None else min(max(expires_s * 500, _MIN_POLLING_MS), POLLING_MS)
        polling_ms = settings.get("polling_interval_ms", usual_ms)
        idle_ms = 0 if polling_ms else _OPEN_MS
        settings = {"idle_timeout_ms": idle_ms, **settings, "polling_interval_ms": polling_ms}
        pairs = [(phone, sender) for phone, senders in self._senders.items() for sender in senders]
        self._ports = _open_ports(self._lab, self._lab.devices, pairs, settings)
        for phone in testbed.phones:
            self._ports[phone].on_item(partial(self._unseal, phone))
        for name in testbed.senders:
            self._ports[name].on_accepted(partial(self._accept, name))
        for phone in testbed.phones:
            self._install(phone)

    def publish(self, item: Item) -> None:
        """Publish an item for all whose filters have come."""
        self._published[item.sender].append((self._lab.world.now_us, item))
        self._send_wanted(item, item.expires_s, None)

    def on_move(self, phone: str) -> None:
        """Replace the filters of a phone by those for its current place."""
        self._install(phone)

    def _install(self, phone: str) -> None:
        """Install a phone's filter for its current profile at each sender, in place of the one before."""
        predicate = self._task.interest.over_items(self._testbed.profile(phone), ITEM)
        for sender in self._senders[phone]:
            replaces = self._slots.get((phone, sender))
            installing = self._ports[phone].install_filter(predicate, to=(sender, PORT), replaces=replaces)
            installing.add_done_callback(partial(self._store_slot, phone, sender))

    def _store_slot(self, phone: str, sender: str, operation: Operation) -> None:
        """Store the slot of an installed filter, by which the next one replaces it."""
        self._slots[phone, sender] = operation.result()

    def _accept(self, sender: str, predicate: Predicate, reader: str) -> None:
        """Send a reader whose first filter has come what has not expired yet."""
        if reader in self._readers[sender]:
            return
        self._readers[sender].add(reader)
        now_us = self._lab.world.now_us
        for at_us, item in self._published[sender]:
            left_s = None if item.expires_s is None else item.expires_s - (now_us - at_us) / US_PER_S
            if left_s is None or left_s > 0:
                self._send_wanted(item, left_s, [reader])

    def _send_wanted(self, item: Item, expires_s: float | None, only: list[str] | None) -> None:
        """Publish an item, for all whose filters it matches, or of these for ``only``."""
        sealed = Sealed({**item.metadata, "called": item.name}, item.content.encode())
        self._ports[item.sender].publish(sealed, item.name, expires_s, only=only, delivery_name=item.name)

    def _unseal(self, phone: str, item: Sealed) -> None:
        """Record the arrival of the item in an opened message."""
        self._receive(phone, item.metadata)


class ContrailPart(Part):
    """A relay, modules on the hosts of a route, and filters that let all through.

    Parameters
    ----------
    way : Way
    """

    def __init__(self, way: Way) -> None:
        super().__init__(way)
        hosts = {host.name: host for host in (*way.sources.values(), *way.ends.values())}
        pairs = [
            (end.name, source.name)
            for name, source in way.sources.items()
            for phone in self._to(name)
            if (end := way.ends[phone]).name != source.name
        ]
        settings = {"polling_interval_ms": 0, "idle_timeout_ms": _OPEN_MS}
        self._ports = _open_ports(self._lab, hosts, pairs, settings)
        for phone, host in way.ends.items():
            self._ports[host.name].on_item(partial(self._unseal, phone))
        for receiver, sender in pairs:
            self._ports[receiver].install_filter("TRUE", to=(sender, PORT))

    def send(self, source: str, batch: Batch, only: Sequence[str] | None = None) -> None:
        """Publish a batch, for some devices only if they are named."""
        name = self._store_batch(batch)
        port = self._ports[self._way.sources[source].name]
        sealed = Sealed({"called": name}, text_of(batch).encode())
        port.publish(sealed, only=only, delivery_name=f"{source}: {name}")

    def _unseal(self, phone: str, item: Sealed) -> None:
        """Pass on the batch in an opened message."""
        self._receive(phone, item.metadata)


def _open_ports(
    lab: Lab, hosts: Mapping[str, Host], pairs: Iterable[tuple[str, str]], settings: Mapping[str, Any]
) -> dict[str, Port]:
    """Open a port on each host; the hosts of a pair are friends."""
    friends: dict[str, set[str]] = {name: set() for name in hosts}
    for one, other in pairs:
        friends[one].add(other)
        friends[other].add(one)
    relay = Relay(lab)
    return {
        name: Module(host, relay, friends=sorted(friends[name])).open_port(PORT, **settings)
        for name, host in hosts.items()
    }


def _senders_for(testbed: Testbed, phone: str) -> Iterable[str]:
    """Return the senders of whom a phone's user may want something."""
    friends = testbed.profile(phone).get("friends")
    names = testbed.senders if friends is None else friends.split("|")
    return (sender for sender in testbed.senders if sender != phone and sender in names)
