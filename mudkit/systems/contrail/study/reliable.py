"""Reliability between two applications, out of items and filters only (Contrail 3.5).

The sender has a filter on the receiver that catches acknowledgements; the receiver publishes them under one
name, so that a new one makes those before obsolete and stands for all of them. Nobody can tell an item that
is lost from one that waits for a device that is away: when to send again is for the application to say. It
costs little, as the cloud has the item in its cache and drops all copies but one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from mudkit.errors import ParameterError, listed
from mudkit.events import Operation
from mudkit.predicates import Predicate
from mudkit.systems.contrail.api import Module, Port
from mudkit.systems.contrail.crypto import digest
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.systems.contrail.items import Backlogged, Endpoint, Item, pack

__all__ = ["Inbound", "Outbound"]

_MOST: Final = 1000
"""Items that an acknowledgement speaks of: the last ones."""


class Outbound:
    """The sender's end: what it publishes is remembered until all have acknowledged it.

    Parameters
    ----------
    module : Module
    port : Port
        The port at which it publishes.
    to : collection of (str, str)
        Devices and ports of the receivers' ends.
    """

    def __init__(self, module: Module, port: Port, to: Collection[Endpoint]) -> None:
        self._port = port
        self._open: dict[str, tuple[Item, float | None, str, set[str]]] = {}
        back = module.open_port(_acknowledgements(port.name))
        back.on_item(self._acknowledged)
        wanted = Predicate.parse("source = :me", {"me": _name(port)}, language=ITEM)
        self.installed = [
            back.install_filter(wanted, to=(device, _acknowledgements(theirs))) for device, theirs in to
        ]
        """Operations, done when relays have the filters for acknowledgements."""

    @property
    def unacknowledged(self) -> dict[str, list[str]]:
        """Who has not acknowledged what: devices by name of the item."""
        return {name: sorted(missing) for name, (_, _, _, missing) in self._open.items()}

    def publish(self, item: Item, item_id: str, expires_s: float | None = None) -> Operation:
        """Publish an item, and remember it until those who have asked for it acknowledge it.

        A newer item of a name stands in place of the one before.
        """
        made = self._port.publish(item, item_id, expires_s)
        self._open[item_id] = item, expires_s, _mark(item), set()
        made.add_done_callback(lambda operation: self._published(item_id, _mark(item), operation))
        return made

    def retransmit(self, item_id: str | None = None) -> list[Operation]:
        """Send again what is not acknowledged, to those who have not; all of it, or one item."""
        chosen = [item_id] if item_id is not None else list(self._open)
        if item_id is not None and item_id not in self._open:
            raise ParameterError(
                "Nothing of this name is to be acknowledged.",
                where="item_id",
                found=repr(item_id),
                expected=listed(sorted(self._open), "nothing: all is acknowledged"),
            )
        made = []
        for name in chosen:
            item, expires_s, _, missing = self._open[name]
            made.append(self._port.publish(item, name, expires_s, only=missing))
        return made

    def _published(self, item_id: str, mark: str, operation: Operation) -> None:
        try:
            result = operation.result()
        except Exception:  # whoever waits for the operation gets it
            return
        known = self._open.get(item_id)
        if known is None or known[2] != mark:
            return  # a newer one has taken its place
        destinations = result.destinations + (result.taken if isinstance(result, Backlogged) else ())
        known[3].update(device for device, _ in destinations)
        if not destinations:
            del self._open[item_id]

    def _acknowledged(self, acknowledgement: Item) -> None:
        assert acknowledgement.source is not None
        marks: Mapping[str, str] = msgspec.json.decode(acknowledgement.payload, type=dict[str, str])
        for name, (_, _, mark, missing) in list(self._open.items()):
            if marks.get(name) == mark:
                missing.discard(acknowledgement.source[0])
                if not missing:
                    del self._open[name]


class Inbound:
    """The receiver's end: what it gets is acknowledged.

    Parameters
    ----------
    module : Module
    port : Port
        The port at which the items come.
    predicate : str or Predicate
        The predicate of the items that are wanted.
    source : (str, str)
        Device and port of the sender's end.
    on_item : callable, optional
        Called with each item.
    """

    def __init__(
        self,
        module: Module,
        port: Port,
        predicate: str | Predicate,
        source: Endpoint,
        on_item: Callable[[Item], None] | None = None,
    ) -> None:
        self._source = source
        self._on_item = on_item
        self._marks: dict[str, str] = {}
        self._back = module.open_port(_acknowledgements(port.name))
        port.on_item(self._came)
        self.installed = port.install_filter(predicate, to=source)
        """An operation, done when a relay has the filter for items."""

    def acknowledge(self) -> Operation:
        """Say what has come, also again: an acknowledgement may be lost, too."""
        name = "/".join(self._source)
        marks = Item({"source": name}, msgspec.json.encode(self._marks))
        return self._back.publish(marks, f"acknowledged to {name}")

    def _came(self, item: Item) -> None:
        if item.source == self._source and item.item_id is not None:
            self._marks.pop(item.item_id, None)
            self._marks[item.item_id] = _mark(item)
            for oldest in list(self._marks)[: max(len(self._marks) - _MOST, 0)]:
                del self._marks[oldest]
            self.acknowledge()
        if self._on_item is not None:
            self._on_item(item)


def _acknowledgements(port: str) -> str:
    return f"{port}: acknowledgements"


def _name(port: Port) -> str:
    return f"{port.device}/{port.name}"


def _mark(item: Item) -> str:
    """Tell the contents of an item apart from those of another one of its name."""
    return digest(pack(Item(item.metadata, item.payload))).hex()[:16]
