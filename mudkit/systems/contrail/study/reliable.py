"""Reliable delivery between two applications, from items and filters only (Contrail 3.5).

The sender has a filter on the receiver for acknowledgements. The receiver publishes them under one name, so
that a new one, which is cumulative, makes earlier ones obsolete. A lost item cannot be distinguished from one
that waits for an offline device, so the application decides when to retransmit. A retransmission is cheap:
the cloud has the item in its cache and drops all copies but one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, listed
from mudkit.events import Operation
from mudkit.predicates import Predicate
from mudkit.systems.contrail.api import Module, Port
from mudkit.systems.contrail.crypto import digest
from mudkit.systems.contrail.device.filters import ITEM
from mudkit.systems.contrail.items import Backlogged, Endpoint, Item, pack

_MAX_ACKNOWLEDGED: Final = 1000
"""Number of recent items in an acknowledgement."""


@check_arguments
class Outbound:
    """Sender that stores published items until all receivers have acknowledged them.

    Parameters
    ----------
    module : Module
    port : Port
        Port at which items are published.
    to : collection of (str, str)
        Devices and ports of the receivers.
    """

    def __init__(self, module: Module, port: Port, to: Collection[Endpoint]) -> None:
        self._port = port
        self._open: dict[str, tuple[Item, float | None, str, set[str]]] = {}
        back = module.open_port(_acks_port(port.name))
        back.on_item(self._record_ack)
        predicate = Predicate.parse("source = :me", {"me": _port_name(port)}, language=ITEM)
        self.installed = [
            back.install_filter(predicate, to=(device, _acks_port(theirs))) for device, theirs in to
        ]
        """Operations that complete when a relay has the filters for acknowledgements."""

    @property
    def unacknowledged(self) -> dict[str, list[str]]:
        """Devices that have not acknowledged, by item name."""
        return {name: sorted(missing) for name, (_, _, _, missing) in self._open.items()}

    def publish(self, item: Item, item_id: str, expires_s: float | None = None) -> Operation:
        """Publish an item and store it until all receivers acknowledge it; as :meth:`Port.publish`.

        A newer item replaces the stored one of the same ``item_id``. It expires after ``expires_s`` seconds;
        None: never.
        """
        operation = self._port.publish(item, item_id, expires_s)
        self._open[item_id] = item, expires_s, _content_mark(item), set()
        operation.add_done_callback(lambda done: self._record_publication(item_id, _content_mark(item), done))
        return operation

    def retransmit(self, item_id: str | None = None) -> list[Operation]:
        """Publish unacknowledged items again for the devices that lack them; ``item_id`` None: all.

        Raises
        ------
        ParameterError
            There is no unacknowledged item of this name.
        """
        chosen = [item_id] if item_id is not None else list(self._open)
        if item_id is not None and item_id not in self._open:
            raise ParameterError(
                "There is no unacknowledged item of this name.",
                where="item_id",
                found=repr(item_id),
                expected=listed(sorted(self._open), "none: all are acknowledged"),
            )
        operations = []
        for name in chosen:
            item, expires_s, _, missing = self._open[name]
            operations.append(self._port.publish(item, name, expires_s, only=missing))
        return operations

    def _record_publication(self, item_id: str, mark: str, operation: Operation) -> None:
        """Note which devices must acknowledge an item, when the result of its publication is known."""
        try:
            result = operation.result()
        except Exception:  # reported to the caller of the operation
            return
        known = self._open.get(item_id)
        if known is None or known[2] != mark:
            return  # replaced by a newer item
        destinations = result.destinations + (result.accepted if isinstance(result, Backlogged) else ())
        known[3].update(device for device, _ in destinations)
        if not destinations:
            del self._open[item_id]

    def _record_ack(self, acknowledgement: Item) -> None:
        """Forget the items that a receiver has acknowledged, if all receivers have."""
        assert acknowledgement.source is not None
        marks: Mapping[str, str] = msgspec.json.decode(acknowledgement.payload, type=dict[str, str])
        for name, (_, _, mark, missing) in list(self._open.items()):
            if marks.get(name) == mark:
                missing.discard(acknowledgement.source[0])
                if not missing:
                    del self._open[name]


@check_arguments
class Inbound:
    """Receiver that acknowledges items.

    Parameters
    ----------
    module : Module
    port : Port
        Port at which items are received.
    predicate : str or Predicate
        Filter for the items.
    source : (str, str)
        Device and port of the sender.
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
        self._back = module.open_port(_acks_port(port.name))
        port.on_item(self._receive)
        self.installed = port.install_filter(predicate, to=source)
        """Operation that completes when a relay has the filter for items."""

    def acknowledge(self) -> Operation:
        """Publish one item that acknowledges all recent ones; call it again if that may be lost."""
        name = "/".join(self._source)
        marks = Item({"source": name}, msgspec.json.encode(self._marks))
        return self._back.publish(marks, f"acknowledged to {name}")

    def _receive(self, item: Item) -> None:
        """Acknowledge an item of the sender, and pass it to the application."""
        if item.source == self._source and item.item_id is not None:
            self._marks.pop(item.item_id, None)
            self._marks[item.item_id] = _content_mark(item)
            for oldest in list(self._marks)[: max(len(self._marks) - _MAX_ACKNOWLEDGED, 0)]:
                del self._marks[oldest]
            self.acknowledge()
        if self._on_item is not None:
            self._on_item(item)


def _acks_port(port: str) -> str:
    """Return the name of the port for acknowledgements of a port's items."""
    return f"{port}: acknowledgements"


def _port_name(port: Port) -> str:
    """Return device and name of a port as one text, as acknowledgements have it."""
    return f"{port.device}/{port.name}"


def _content_mark(item: Item) -> str:
    """Return a digest of the content of an item, by which an acknowledgement names it."""
    return digest(pack(Item(item.metadata, item.payload))).hex()[:16]
