"""Radiator as :func:`mudkit.experiment.run` runs it: everyone gets everything, and reads what is for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.events import Call, Complete, Effect, Event, Network, Record
from mudkit.systems.radiator.aggregation.joins import concatenation
from mudkit.systems.radiator.aggregation.thresholds import Aggregability, Function, Volume
from mudkit.systems.radiator.api import NAME, Client, Server
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.device.client import ClientMachine

__all__ = ["Radiator"]


class _Reader(ClientMachine):
    """A client whose user reads what has come for her."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._unread: list[str] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation="read"):
                unread, self._unread = self._unread, []
                return (*(self._happened("read_us", item, now_us) for item in unread), Complete(op_id))
        return super().handle(now_us, event)

    def shown(self, now_us: int, context: Context) -> Sequence[Effect]:
        """Note those items that are for this device."""
        items, receivers = context.get("item"), context.get("receivers")
        if not isinstance(items, list) or not isinstance(receivers, list):
            return ()  # not of an experiment: anybody may push something to who can be reached by its peers
        mine = [
            item
            for item, those in zip(items, receivers, strict=False)
            if isinstance(item, str) and isinstance(those, list) and self.device in those
        ]
        self._unread += mine
        return [self._happened("delivered_us", item, now_us) for item in mine]

    def _happened(self, what: str, item: str, now_us: int) -> Record:
        return Record("deliveries", {"item": item, "receiver": self.device, what: now_us})


def _at_once(sender: Context, receiver: Context) -> Volume:
    return Volume(1)


class Radiator:
    """The system as an experiment runs it: each item is a context for all, of which some wait.

    Parameters
    ----------
    lab : Network
    aggregability : callable
        By default everything goes at once.
    p2p_enabled : bool
        Whether the devices can reach each other.
    **settings
        Of :class:`Server`: ``chain``, ``compress``, ``max_retention_s``, ….
    """

    name: Final = NAME

    def __init__(
        self,
        lab: Network,
        aggregability: Function | Aggregability = _at_once,
        *,
        p2p_enabled: bool = True,
        **settings: Any,
    ) -> None:
        server = Server(lab, aggregability, concatenation, **settings)
        attributes: Mapping[str, Any] = {"p2p_enabled": p2p_enabled}
        self._clients = {
            name: Client(device, server, attributes=attributes, machine=_Reader)
            for name, device in lab.devices.items()
        }

    def publish(self, item: str, sender: str, receivers: Sequence[str], size_bytes: int) -> None:
        """Let a device propagate an item of a size; it goes to all, and some wait for it."""
        attributes = {"item": item, "receivers": list(receivers), "text": "x" * size_bytes}
        self._clients[sender].propagate_context(Context(frozenset((sender,)), attributes))

    def read(self, device: str) -> None:
        """Let the user of a device read."""
        self._clients[device].installed.call("read")
