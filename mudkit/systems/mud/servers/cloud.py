"""The cloud of a lab: all that MUD clients talk to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from mudkit.arguments import check_calls
from mudkit.display import Displayed, View
from mudkit.events import Installed, Make, Network, Operation
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.arguments import check_lab
from mudkit.systems.mud.messages import Ship
from mudkit.systems.mud.policies.artefact import Artefact
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.gateway import Gateway
from mudkit.systems.mud.servers.generator import Generator
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.replica import Replica
from mudkit.wire import Fields

__all__ = ["NAME", "PORT", "Cloud"]

NAME: Final = "mud"
"""Of the system, in traces and bills."""
PORT: Final = "mud"
"""The name of each server's machine; a client's has its app's after it."""


@check_calls
class Cloud(Displayed):
    """Cloud of MUD tables: the servers that clients talk to (Mobius 2).

    Gateways, processors, the back-end store with its replicas, notification servers, and what ships policies.

    Parameters
    ----------
    lab : Network
    replicas : int
        0: every read goes to the master.
    replica_lag_s : float
        How long an entry of the log takes until it counts on a replica.
    gateways, processors, servers : int
        The number of machines of each kind; servers are those for notifications.
    max_waiting : int
        The number of notifications that wait for one client that is not there.
    max_wait_s : float
        The longest time for which a notification waits, in seconds; then the client's continuous reads are
        ended.

    Raises
    ------
    ParameterError
        It is given no lab, or a parameter is out of range.
    """

    def __init__(
        self,
        lab: Network,
        *,
        replicas: int = 2,
        replica_lag_s: float = 0.5,
        gateways: int = 2,
        processors: int = 2,
        servers: int = 2,
        max_waiting: int = 1000,
        max_wait_s: float = 3600.0,
    ) -> None:
        check_lab(lab)
        count = {
            "replicas": (replicas, 0),
            "gateways": (gateways, 1),
            "processors": (processors, 1),
            "servers": (servers, 1),
        }
        for name, (value, least) in count.items():
            whole_number(name, value, least, 1000)
        lag_us = round(number("replica_lag_s", replica_lag_s, 0.0, 1e6) * 1e6)
        whole_number("max_waiting", max_waiting, 1, 1 << 31)
        number("max_wait_s", max_wait_s, 0.0, 1e9)
        self.authority = lab.authority
        self.back_end = _address("mud-store")
        self.replicas = [_address(f"mud-replica-{each}") for each in range(1, replicas + 1)]
        self.processors = [_address(f"mud-processor-{each}") for each in range(1, processors + 1)]
        self.gateways = [_address(f"mud-gateway-{each}") for each in range(1, gateways + 1)]
        self.generator = _address("mud-policies")
        self.servers = [_address(f"mud-notifications-{each}") for each in range(1, servers + 1)]

        def install(address: str, make: Make) -> Installed:
            return lab.server(address.split("/")[0]).install(NAME, make, name=PORT)

        self._installed_back_end = install(
            self.back_end,
            partial(BackEnd, gateways=self.gateways, processors=self.processors, replicas=self.replicas),
        )
        for address in self.replicas:
            install(
                address, partial(Replica, master=self.back_end, processors=self.processors, lag_us=lag_us)
            )
        for number_, address in enumerate(self.processors):
            install(address, partial(
                Processor, number=number_, processors=processors, back_end=self.back_end,
                replicas=self.replicas, gateways=self.gateways, servers=self.servers,
            ))  # fmt: skip
        for address in self.gateways:
            install(
                address,
                partial(
                    Gateway,
                    authority=self.authority,
                    back_end=self.back_end,
                    processors=self.processors,
                    replicas=self.replicas,
                ),
            )
        self.installed = install(self.generator, partial(Generator, servers=self.servers))
        for number_, address in enumerate(self.servers):
            install(address, partial(
                NotificationServer, number=number_, servers=self.servers, processors=self.processors,
                generator=self.generator, max_waiting=max_waiting, longest_s=max_wait_s,
            ))  # fmt: skip

    def _view(self) -> View:
        back_end = self._installed_back_end
        inner = View("") if back_end.machine is None else back_end.machine.overview()
        servers = {
            "back end": "" if back_end.state == "running" else back_end.state,
            "gateways": len(self.gateways),
            "processors": len(self.processors),
            "replicas": len(self.replicas),
            "notification servers": len(self.servers),
        }
        return View("mud.Cloud", servers | dict(inner.facts), inner.tables)

    def ship(self, policy: Artefact | Fields, app: str, *, to: Sequence[str] | None = None) -> Operation:
        """Ship a policy to all clients of an app that follow what the cloud ships, or to some of them.

        It travels over the notification channel; a client that is not there now gets it when it is.

        Parameters
        ----------
        policy : Artefact or mapping
            What was learnt.
        app : str
        to : sequence of str, optional
            The names of the only devices that are to have it, and to keep it until something newer comes. The
            same policy may be shipped to more of them later.

        Returns
        -------
        Operation
            Done when the cloud keeps it; :meth:`~mudkit.systems.mud.Client.policies` says what a client uses.
        """
        document = policy.document if isinstance(policy, Artefact) else policy
        devices = None if to is None else list(to)
        return self.installed.call(Ship(app, document, devices))


def _address(server: str) -> str:
    return f"{server}/{PORT}"
