"""Contrail as an experiment runs it: friends who ask each other for what is for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.events import Network, Operation
from mudkit.predicates import Predicate
from mudkit.systems.contrail.api import Module
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.systems.contrail.items import Item
from mudkit.systems.contrail.relay import NAME, Relay

__all__ = ["Contrail"]

_PORT: Final = "items"


class Contrail:
    """The system as :func:`mudkit.experiment.run` runs it: a relay, and a module on each device.

    A device has a filter on each other one that it expects something of. Who sends to whom is not known
    beforehand, unless ``friends`` says so: else two devices become friends when one has the first item for
    the other, which waits until the other's filter has come.

    Parameters
    ----------
    lab : Network
    friends : mapping of str to collection of str, optional
        By device, from whom it expects something from the beginning.
    **parameters
        Of each port (:class:`~mudkit.systems.contrail.Port`), such as ``polling_interval_ms``.
    """

    name: Final = NAME

    def __init__(
        self, lab: Network, friends: Mapping[str, Collection[str]] | None = None, **parameters: Any
    ) -> None:
        relay = Relay(lab)
        self._modules = {name: Module(device, relay) for name, device in lab.devices.items()}
        self._ports = {name: module.open_port(_PORT, **parameters) for name, module in self._modules.items()}
        self._asking: set[tuple[str, str]] = set()
        """Senders and who has asked them, or is about to."""
        self._waiting: dict[tuple[str, str], list[tuple[str, Item]]] = {}
        """What waits for a filter to come."""
        self._has_come: set[tuple[str, str]] = set()
        for name, port in self._ports.items():
            port.on_accepted(partial(self._accepted, name))
        for name, others in (friends or {}).items():
            for other in others:
                self._ask(other, name)

    def publish(self, item: str, sender: str, receivers: Sequence[str], size_bytes: int) -> None:
        """Let a device send an item of a size to others."""
        addressed = Item({"destination": "".join(f"|{each}|" for each in receivers)}, b"x" * size_bytes)
        ready = [each for each in receivers if (sender, each) in self._has_come]
        if ready:
            self._ports[sender].publish(addressed, item, called=item, only=ready)
        for receiver in receivers:
            if receiver not in ready:
                self._waiting.setdefault((sender, receiver), []).append((item, addressed))
                self._ask(sender, receiver)

    def read(self, device: str) -> None:
        """Let the user of a device read what has come."""
        self._ports[device].receive_all()

    def _ask(self, sender: str, receiver: str) -> None:
        """Let a device become another one's friend, and ask it for what is for it."""
        if (sender, receiver) in self._asking:
            return
        self._asking.add((sender, receiver))
        self._modules[sender].befriend(receiver)
        self._modules[receiver].befriend(sender)
        wanted = Predicate.parse("destination LIKE :me", {"me": f"%|{receiver}|%"}, language=ITEM)
        asked = self._ports[receiver].install_filter(wanted, to=(sender, _PORT))
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
