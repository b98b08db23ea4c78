"""Contrail as experiments run it: the reader's filter runs on the sender's device (3.1, 3.2).

On a task, a reader installs a filter on each sender of whom she may want something, her friends if the want
names them, and puts another in its place when she has moved. A sender to whom a filter comes for the first
time publishes for its reader what is not over yet. The relay sees ciphertext.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.events import Operation
from mudkit.experiment.adapters.hop import PORT, BaseHop, Batch, OnBatch, Way, text_of
from mudkit.experiment.tasks import Item
from mudkit.experiment.testbed import Testbed
from mudkit.predicates import Predicate
from mudkit.systems.contrail import Item as Sealed
from mudkit.systems.contrail import Module, Relay
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.systems.contrail.relay import NAME
from mudkit.units import US_PER_S

__all__ = ["POLLING_MS", "Contrail", "ContrailAdapter", "ContrailHop"]

POLLING_MS: Final = 300_000.0
"""Between two connections of a module, at most: what comes is up to so old."""
_LEAST_MS: Final = 60_000.0
_OPEN_MS: Final = 3_600_000.0
"""For so long a connection stays open, so that what comes, comes at once, as in the other systems."""
_ITEMS: Final = "items"
"""The port of a run."""


class Contrail:
    """The system as :func:`mudkit.experiment.run` runs it: a relay, and a module on each device.

    A device has a filter on each other one that it expects something of. Who sends to whom is not known
    beforehand, unless ``friends`` says so: else two devices become friends when one has the first item for
    the other, which waits until the other's filter has come.

    Parameters
    ----------
    testbed : Testbed
    friends : mapping of str to collection of str, optional
        The devices from which each device expects something from the beginning, by its name.
    **parameters
        The settings of each port (:class:`~mudkit.systems.contrail.Port`), such as ``polling_interval_ms``.
    """

    name: Final = NAME

    def __init__(
        self, testbed: Testbed, friends: Mapping[str, Collection[str]] | None = None, **parameters: Any
    ) -> None:
        lab = testbed.lab
        relay = Relay(lab)
        self._modules = {name: Module(device, relay) for name, device in lab.devices.items()}
        self._ports = {name: module.open_port(_ITEMS, **parameters) for name, module in self._modules.items()}
        self._asking: set[tuple[str, str]] = set()
        """Senders and who has asked them, or is about to."""
        self._waiting: dict[tuple[str, str], list[tuple[str, Sealed]]] = {}
        """What waits for a filter to come."""
        self._has_come: set[tuple[str, str]] = set()
        for name, port in self._ports.items():
            port.on_accepted(partial(self._accepted, name))
        for name, others in (friends or {}).items():
            for other in others:
                self._ask(other, name)

    def publish(self, item: Item) -> None:
        """Send an item to its receivers."""
        name, sender, receivers = item.name, item.sender, item.about["to"]
        addressed = Sealed({"destination": "".join(f"|{each}|" for each in receivers)}, item.filler.encode())
        ready = [each for each in receivers if (sender, each) in self._has_come]
        if ready:
            self._ports[sender].publish(addressed, name, called=name, only=ready)
        for receiver in receivers:
            if receiver not in ready:
                self._waiting.setdefault((sender, receiver), []).append((name, addressed))
                self._ask(sender, receiver)

    def moved(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def look(self, phone: str) -> None:
        """Read what has arrived."""
        self._ports[phone].receive_all()

    def _ask(self, sender: str, receiver: str) -> None:
        """Let a device become another one's friend, and ask it for what is for it."""
        if (sender, receiver) in self._asking:
            return
        self._asking.add((sender, receiver))
        self._modules[sender].befriend(receiver)
        self._modules[receiver].befriend(sender)
        wanted = Predicate.parse("destination LIKE :me", {"me": f"%|{receiver}|%"}, language=ITEM)
        asked = self._ports[receiver].install_filter(wanted, to=(sender, _ITEMS))
        asked.add_done_callback(partial(self._asked, sender, receiver))

    def _asked(self, sender: str, receiver: str, operation: Operation) -> None:
        try:
            operation.result()
        except Exception:  # one of the devices was off; with the next item it asks again
            self._asking.discard((sender, receiver))

    def _accepted(self, sender: str, predicate: Predicate, receiver: str) -> None:
        self._has_come.add((sender, receiver))
        for item, addressed in self._waiting.pop((sender, receiver), ()):
            self._ports[sender].publish(addressed, item, called=item, only=[receiver])


class ContrailAdapter:
    """Client modules and a relay.

    Parameters
    ----------
    testbed : Testbed
        The phones, and who wants what.
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

    def __init__(self, testbed: Testbed, polling_interval_ms: float | None = None) -> None:
        self._testbed = testbed
        expires_s = testbed.task.scenario.expires_s
        if polling_interval_ms is None:
            polling_interval_ms = POLLING_MS if expires_s is None else _polling_ms(expires_s)
        self._asks = {phone: list(_asked(testbed, phone)) for phone in testbed.phones}
        friends: dict[str, set[str]] = {name: set() for name in testbed.lab.devices}
        for phone, senders in self._asks.items():
            for sender in senders:
                friends[phone].add(sender)
                friends[sender].add(phone)
        relay = Relay(testbed.lab)
        self._ports = {
            name: Module(device, relay, friends=sorted(friends[name])).open_port(
                PORT,
                polling_interval_ms=polling_interval_ms,
                idle_timeout_ms=0 if polling_interval_ms else _OPEN_MS,
            )
            for name, device in testbed.lab.devices.items()
        }
        self._slots: dict[tuple[str, str], int] = {}
        self._published: dict[str, list[tuple[int, Item]]] = {name: [] for name in testbed.senders}
        self._readers: dict[str, set[str]] = {name: set() for name in testbed.senders}
        for name in testbed.senders:
            self._ports[name].on_accepted(partial(self._accepted, name))
        for phone in testbed.phones:
            self._ports[phone].on_item(partial(self._come, phone))
            self._ask(phone)

    def publish(self, item: Item) -> None:
        """Hand it to the module: it leaves the device if somebody has asked for it."""
        self._published[item.sender].append((self._testbed.lab.world.now_us, item))
        self._send(item, item.expires_s, None)

    def moved(self, phone: str) -> None:
        """Put filters for where it is now in the place of the others."""
        self._ask(phone)

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._testbed.show(phone)

    def _ask(self, phone: str) -> None:
        wanted = self._testbed.task.want.over_items(self._testbed.about(phone), ITEM)
        for sender in self._asks[phone]:
            replaces = self._slots.get((phone, sender))
            asked = self._ports[phone].install_filter(wanted, to=(sender, PORT), replaces=replaces)
            asked.add_done_callback(partial(self._installed, phone, sender))

    def _installed(self, phone: str, sender: str, operation: Operation) -> None:
        self._slots[phone, sender] = operation.result()

    def _accepted(self, sender: str, predicate: Predicate, reader: str) -> None:
        if reader in self._readers[sender]:
            return
        self._readers[sender].add(reader)
        now_us = self._testbed.lab.world.now_us
        for at_us, item in self._published[sender]:
            left_s = None if item.expires_s is None else item.expires_s - (now_us - at_us) / US_PER_S
            if left_s is None or left_s > 0:
                self._send(item, left_s, [reader])

    def _send(self, item: Item, expires_s: float | None, only: list[str] | None) -> None:
        about = {**item.about, "called": item.name}
        sealed = Sealed(about, item.content.encode())
        self._ports[item.sender].publish(sealed, item.name, expires_s, only=only, called=item.name)

    def _come(self, phone: str, item: Sealed) -> None:
        self._testbed.arrived(phone, item.metadata["called"])


def _asked(testbed: Testbed, phone: str) -> Iterable[str]:
    """Give the senders of whom a phone's user may want something."""
    friends = testbed.about(phone).get("friends")
    return (
        each for each in testbed.senders if each != phone and (friends is None or each in friends.split("|"))
    )


def _polling_ms(expires_s: float) -> float:
    return min(max(expires_s * 500, _LEAST_MS), POLLING_MS)


class ContrailHop(BaseHop):
    """Contrail: sealed from where it enters to where it comes out; the relay passes ciphertext on.

    Parameters
    ----------
    way : Way
    on_batch : callable
    """

    def __init__(self, way: Way, on_batch: OnBatch) -> None:
        super().__init__(way, on_batch)
        relay = Relay(way.testbed.lab)
        hosts = {host.name: host for host in (*way.sources.values(), *way.ends.values())}
        friends: dict[str, set[str]] = {name: set() for name in hosts}
        asks = []
        for name, source in way.sources.items():
            for phone in self._to(name):
                end = way.ends[phone]
                if end.name != source.name:
                    friends[end.name].add(source.name)
                    friends[source.name].add(end.name)
                    asks.append((end.name, source.name))
        self._ports = {
            name: Module(host, relay, friends=sorted(friends[name])).open_port(
                PORT, polling_interval_ms=0, idle_timeout_ms=_OPEN_MS
            )
            for name, host in hosts.items()
        }
        for phone, host in way.ends.items():
            self._ports[host.name].on_item(partial(self._item, phone))
        for end_name, source_name in asks:
            self._ports[end_name].install_filter("TRUE", to=(source_name, PORT))

    def send(self, source: str, batch: Batch, only: Sequence[str] | None = None) -> None:
        """Hand it to the module; it may be for some devices only."""
        name = self._note(batch)
        port = self._ports[self._way.sources[source].name]
        sealed = Sealed({"called": name}, text_of(batch).encode())
        port.publish(sealed, only=only, called=f"{source}: {name}")

    def _item(self, phone: str, item: Sealed) -> None:
        self._out(phone, item.metadata["called"])
