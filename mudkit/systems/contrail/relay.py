"""API of Contrail on servers: a cloud provider, and its directory of public keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from mudkit.arguments import check_calls
from mudkit.display import Displayed, View, first_rows
from mudkit.events import Network
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.arguments import check_lab
from mudkit.systems.contrail.crypto import Directory, PublicKeys
from mudkit.systems.contrail.items import check_name
from mudkit.systems.contrail.servers import Compute, Gateway, Storage

__all__ = ["NAME", "PORT", "Directories", "Relay"]

NAME: Final = "contrail"
PORT: Final = "contrail"
"""Part of the addresses of its machines, which may share hosts with other systems."""


@check_calls
class Relay(Displayed):
    """A cloud provider: gateways, compute instances and storage in its data centres (Contrail 4.2).

    Parameters
    ----------
    lab : Network
    instances : int
        Number of compute instances in each data centre.
    name : str
        Prefix of the names of its servers.
    centres : mapping of str to (float, float), optional
        Data centres and their places, in degrees; a device connects to the nearest. By default there is one.
    max_waiting : int
        Capacity of the queue of a device, in items; above, publishers get a backlog.
    max_cached : int
        Capacity of the cache, in items of a device.
    service_ms : float
        Duration of a request at an instance, in milliseconds.
    move_after : int, optional
        Number of consecutive visits of a device to a data centre after which its queue moves there; None:
        never.

    Raises
    ------
    ParameterError
        The lab is missing, or a parameter is out of range.

    Attributes
    ----------
    directory : Registered
        Public keys of the devices: the public key infrastructure that the paper assumes (3.3). The machines
        of the cloud do not have it.
    """

    def __init__(
        self,
        lab: Network,
        instances: int = 1,
        *,
        name: str = "contrail",
        centres: Mapping[str, tuple[float, float]] | None = None,
        max_waiting: int = 1000,
        max_cached: int = 1000,
        service_ms: float = 0.0,
        move_after: int | None = 3,
    ) -> None:
        check_lab(lab)
        whole_number("instances", instances, 1, 10_000)
        whole_number("max_waiting", max_waiting, 1, 1 << 31)
        whole_number("max_cached", max_cached, 1, 1 << 31)
        if move_after is not None:
            whole_number("move_after", move_after, 1, 1 << 31)
        service_us = round(number("service_ms", service_ms, 0.0, 1e6) * 1_000)
        check_name("a relay", name)
        places: Mapping[str, tuple[float, float] | None] = {"": None} if centres is None else centres
        self.name = name
        self.directory = Registered()
        self.gateways: list[tuple[str, tuple[float, float] | None]] = []

        def server(tier: str, centre: str) -> str:
            return "-".join(each for each in (name, tier, centre) if each)

        units = [f"{server('storage', centre)}/{PORT}" for centre in places]
        gateways = [f"{server('gateway', centre)}/{PORT}" for centre in places]
        computes = {
            centre: [f"{server(f'compute-{each}', centre)}/{PORT}" for each in range(1, instances + 1)]
            for centre in places
        }
        self.instances = [each for of_centre in computes.values() for each in of_centre]
        everywhere = frozenset(self.instances)
        self._storage = [
            lab.server(unit.split("/")[0]).install(NAME, partial(
                Storage, max_waiting=max_waiting, max_cached=max_cached, computes=everywhere,
                units=units, gateways=gateways,
            ), name=PORT) for unit in units
        ]  # fmt: skip
        for unit, gateway, (centre, place) in zip(units, gateways, places.items(), strict=True):
            for address in computes[centre]:
                lab.server(address.split("/")[0]).install(NAME, partial(
                    Compute, units=units, here=unit, move_after=move_after, service_us=service_us,
                    gateways=[gateway],
                ), name=PORT)  # fmt: skip
            lab.server(gateway.split("/")[0]).install(
                NAME, partial(Gateway, instances=computes[centre], units=units), name=PORT
            )
            self.gateways.append((gateway, place))

    def _view(self) -> View:
        queues = [queue for unit in self._storage if unit.machine for queue in unit.machine.queues()]
        facts = {
            "name": self.name,
            "data centres": len(self.gateways),
            "instances": len(self.instances),
            "devices": len(self.directory),
            "storage": ", ".join({unit.state for unit in self._storage} - {"running"}),
        }
        return View("contrail.Relay", facts, [first_rows(("device", "waiting"), queues, len(queues))])

    @property
    def servers(self) -> list[str]:
        """Names of the gateways: without them, a provider cannot be reached."""
        return [address.split("/")[0] for address, _ in self.gateways]


class Registered(dict[str, PublicKeys]):
    """Public keys of the devices at one provider, by name."""

    def __init__(self, entries: Mapping[str, PublicKeys] | None = None, changes: int = 0) -> None:
        super().__init__(entries or {})
        self.changes = changes
        """Number of times that the entry of a device has changed, the first ones included."""
        self.watchers: list[Callable[[str], None]] = []
        """Called with each device that has started again."""

    def __reduce__(self) -> tuple[type[Registered], tuple[dict[str, PublicKeys], int]]:
        """Pickle the entries, and not their watchers."""
        return Registered, (dict(self), self.changes)

    def __setitem__(self, device: str, keys: PublicKeys) -> None:
        """Register the keys and the start of a device."""
        if self.get(device) == keys:
            return
        self.changes += 1
        super().__setitem__(device, keys)
        if keys.start:
            for watcher in self.watchers:
                watcher(device)


class Directories(Directory):
    """Directories of several providers as one."""

    def __init__(self, registered: Sequence[Registered]) -> None:
        self._registered = registered

    @property
    def changes(self) -> int:
        """See :class:`Registered`."""
        return sum(registered.changes for registered in self._registered)

    def __getitem__(self, device: str) -> PublicKeys:
        for registered in self._registered:
            if device in registered:
                return registered[device]
        raise KeyError(device)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({device for registered in self._registered for device in registered}))

    def __len__(self) -> int:
        return len(list(iter(self)))
