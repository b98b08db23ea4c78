"""Cloud of a lab: the servers of MUD tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final

from mudkit.checks import Range, check_arguments, unusable
from mudkit.display import Displayed, Table, View, first_rows
from mudkit.errors import ParameterError, brief, did_you_mean, listed
from mudkit.events import Host, Installed, Make, Network, Operation, Ports
from mudkit.places import Centres, parse_one_centre
from mudkit.systems.mud.device.service import DeviceService
from mudkit.systems.mud.messages.parts import PORT
from mudkit.systems.mud.operations import ForgetUser, Move, Ship, ShipLearnt
from mudkit.systems.mud.policies.artefact import Artefact
from mudkit.systems.mud.policies.learner import Learner, Learnt
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.gateway import Gateway
from mudkit.systems.mud.servers.generator import Generator, Learning
from mudkit.systems.mud.servers.naming import Naming
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.replica import Replica
from mudkit.systems.mud.servers.store_server import StoreServer
from mudkit.systems.mud.tables.table import check_name
from mudkit.wire import Fields

NAME: Final = "mud"
"""Name of the system in traces and bills."""
_WEEK_S: Final = 604_800.0


@check_arguments
class Cloud(Displayed):
    """Servers of MUD tables (Mobius 2).

    There are gateways, processors, the back-end store with its replicas and standbys, notification servers,
    the naming machine, which has a notification server, a processor or a back end that does not answer
    replaced by another one, and the policy generator.

    Parameters
    ----------
    lab : Network
    replicas : int
        Number of replicas; 0: every read goes to the back end.
    replica_lag_s : float
        Time until an entry of the log takes effect on a replica.
    gateways, processors, notification_servers : int
        Number of machines of each kind.
    standbys : int
        Number of stores that have all that the back end has, one of which takes over when it dies: a write is
        acknowledged when all of them that are up have it. 0: writes wait until the back end is restarted.
    max_waiting : int
        Maximum number of notifications that wait for a client that is not reached.
    max_wait_s : float
        Maximum time for which a notification waits for a client that is not reached, in seconds; then the
        client's session ends, and it gets the changes after its next hello.
    keep_deleted_s : float, optional
        Time for which the cloud and the devices keep what is left of a deleted record, in seconds, at least:
        longer than a message may be on its way, and than ``max_wait_s``. None: twice that, and a week at
        least.
    centres : sequence of str, or mapping of str to str or (float, float), optional
        The data centre in which they stand: the name of a city, or a place by name (:mod:`mudkit.places`). By
        default they are near everything.
    learner : Learner, optional
        Learns policies from what the clients report that consent to it (``reports_usage=True`` of
        :class:`~mudkit.systems.mud.Client`): :class:`mudkit.learning.Learner`. None: nothing is reported.
    relearn_h : float
        Time from the first report to the policies that are learnt and shipped, and again while there are
        reports, in hours.
    usage_days : float
        Time for which the cloud keeps what was reported, in days.

    Raises
    ------
    ParameterError
        It is given no lab, or a parameter is out of range, or ``keep_deleted_s`` is not longer than
        ``max_wait_s``.
    """

    def __init__(
        self,
        lab: Network,
        *,
        replicas: Annotated[int, Range(0, 1000)] = 2,
        replica_lag_s: Annotated[float, Range(0.0, 1e6)] = 0.5,
        gateways: Annotated[int, Range(1, 1000)] = 2,
        processors: Annotated[int, Range(1, 1000)] = 2,
        notification_servers: Annotated[int, Range(1, 1000)] = 2,
        standbys: Annotated[int, Range(0, 10)] = 0,
        max_waiting: Annotated[int, Range(1, 1 << 31)] = 1000,
        max_wait_s: Annotated[float, Range(0.0, 1e9)] = 3600.0,
        keep_deleted_s: Annotated[float, Range(0.0, 1e10)] | None = None,
        centres: Centres | None = None,
        learner: Learner | None = None,
        relearn_h: Annotated[float, Range(0.01, 1e5)] = 24.0,
        usage_days: Annotated[float, Range(0.01, 1e5)] = 30.0,
    ) -> None:
        if keep_deleted_s is None:
            keep_deleted_s = max(_WEEK_S, 2 * max_wait_s)
        elif keep_deleted_s <= max_wait_s:
            expected = f"more than max_wait_s={max_wait_s:g}"
            raise unusable("keep_deleted_s", keep_deleted_s, expected)
        self.keep_deleted_us = round(keep_deleted_s * 1e6)
        self.learns = learner is not None
        place = parse_one_centre(centres)
        lag_us = round(replica_lag_s * 1e6)
        self.authority = lab.authority
        self.back_end = _address("mud-store")
        self.standbys = _addresses("standby", standbys)
        self.replicas = _addresses("replica", replicas)
        self.processors = _addresses("processor", processors)
        self.gateways = _addresses("gateway", gateways)
        self.generator = _address("mud-policies")
        self.notification_servers = _addresses("notifications", notification_servers)
        self.naming = _address("mud-names")

        self._apps: dict[str, list[str]] = {}
        """Apps of each device that has a service."""

        def install(address: str, make: Make) -> Installed:
            """Install a machine on the server of an address."""
            return lab.server(address.split("/")[0], at=place).install(NAME, make, name=PORT)

        make_back_end: Callable[[Ports], BackEnd] = partial(
            BackEnd, gateways=self.gateways, processors=self.processors, replicas=self.replicas,
            servers=self.notification_servers, naming=self.naming, keep_deleted_us=self.keep_deleted_us,
        )  # fmt: skip
        stores = [self.back_end, *self.standbys]
        users = [*self.gateways, *self.processors, *self.replicas]
        make_store: Make = partial(
            StoreServer, stores=stores, naming=self.naming, servers=users, make=make_back_end
        )
        self._installed_stores = {
            address: install(address, make_store if standbys else make_back_end) for address in stores
        }
        for address in self.replicas:
            install(address, partial(
                Replica, stores=stores, processors=self.processors, naming=self.naming, lag_us=lag_us
            ))  # fmt: skip
        self._installed_processors = {
            address: install(address, partial(
                Processor, processors=self.processors, stores=stores,
                replicas=self.replicas, gateways=self.gateways, servers=self.notification_servers,
                naming=self.naming, generator=self.generator if self.learns else None,
            ))
            for address in self.processors
        }  # fmt: skip
        for address in self.gateways:
            install(address, partial(
                Gateway, authority=self.authority, stores=stores, processors=self.processors,
                replicas=self.replicas, servers=self.notification_servers, naming=self.naming,
                generator=self.generator,
            ))  # fmt: skip
        self.installed = install(self.generator, partial(
            Generator, servers=self.notification_servers, processors=self.processors, naming=self.naming,
            gateways=self.gateways,
            learning=None if learner is None else Learning(learner, relearn_h, usage_days, lab.start_us),
        ))  # fmt: skip
        for number_, address in enumerate(self.notification_servers):
            install(address, partial(
                NotificationServer, authority=self.authority, number=number_,
                servers=self.notification_servers, processors=self.processors, generator=self.generator,
                naming=self.naming, max_waiting=max_waiting, max_wait_s=max_wait_s,
            ))  # fmt: skip
        self._installed_naming = install(self.naming, partial(
            Naming, servers=self.notification_servers, processors=self.processors, gateways=self.gateways,
            replicas=self.replicas, stores=stores, others=[self.generator],
        ))  # fmt: skip

    @property
    def master(self) -> str | None:
        """Address of the store that acts as the master of the back end; None: none does."""
        for address, installed in self._installed_stores.items():
            if _back_end_of(installed) is not None:
                return address
        return None

    def serve(self, device: Host, app: str) -> None:
        """Add an app to those of a device; install the service that they share, unless there is one."""
        apps = self._apps.setdefault(device.name, [])
        apps.append(app)
        if len(apps) > 1:
            return
        servers = self.notification_servers
        device.install(
            NAME, lambda ports: DeviceService(device.name, self.gateways, servers, apps), name=PORT
        )

    def _view(self) -> View:
        """Return the view of a display: the servers, and the tables."""
        master = self.master
        installed = self._installed_stores[self.back_end if master is None else master]
        back_end = _back_end_of(installed)
        inner = View("") if back_end is None else back_end.overview()
        state = installed.state if installed.state != "running" or master else "waits for its election"
        servers = {
            "back end": "" if state == "running" else state,
            "gateways": len(self.gateways),
            "processors": len(self.processors),
            "replicas": len(self.replicas),
            "notification servers": len(self.notification_servers),
            **({"standbys": len(self.standbys)} if self.standbys else {}),
        }
        return View("mud.Cloud", servers | dict(inner.facts), [*inner.tables, *self._view_ranges(back_end)])

    def _view_ranges(self, back_end: BackEnd | None) -> Sequence[Table]:
        """Return tables of a display: how much each notification server and each processor serves.

        None while the naming machine is down.
        """
        naming = self._installed_naming.machine
        if naming is None:
            return ()
        servers = naming.ranges.present.servers
        rows = [(address.split("/")[0], servers.count(address)) for address in self.notification_servers]
        tables = [first_rows(("notification server", "ranges of devices"), rows, len(rows))]
        if back_end is not None:
            owners = [
                naming.ranges.processor_of(number, partition)
                for number, partitions in back_end.list_partitions()
                for partition in range(partitions)
            ]
            processors = [
                (address.split("/")[0], owners.count(address), _count_rows(installed))
                for address, installed in self._installed_processors.items()
            ]
            tables.append(first_rows(("processor", "partitions", "rows"), processors, len(processors)))
        return tables

    def move(self, table: str, partition: Annotated[int, Range(0, 99_999)], processor: str) -> Operation:
        """Move a partition of a table to a processor of this cloud.

        Handled by :meth:`~mudkit.systems.mud.servers.partition_moves.PartitionMoves.begin`.

        Reads and writes are served meanwhile, and continuous reads miss nothing. The partition stays there
        until the processor dies.

        Parameters
        ----------
        table : str
        partition : int
            Number of the partition, from 0: ``split=["g", "p"]`` makes 0 to 2.
        processor : str
            Name of its server, as in the display of the cloud: ``"mud-processor-2"``.

        Returns
        -------
        Operation
            Completed when the naming machine has stored it. The servers hear of it at once.

        Raises
        ------
        ParameterError
            There is no such processor. The operation has this error if there is no such partition, and if
            the processor does not answer.
        TableProblem
            Error of the operation if there is no such table.
        """
        names = [address.split("/")[0] for address in self.processors]
        if processor not in names:
            raise ParameterError(
                "There is no such processor.",
                where="processor",
                found=brief(processor),
                expected=listed(names),
                remedy=did_you_mean(processor, names, "make the cloud with more of them: processors=…"),
            )
        return self._installed_naming.call(Move(check_name(table), partition, _address(processor)))

    def ship(
        self, policy: Artefact | Fields | Learnt, app: str | None = None, *, to: Sequence[str] | None = None
    ) -> Operation:
        """Ship a policy to the clients of an app that follow shipped policies, or all that was learnt.

        Handled by :meth:`~mudkit.systems.mud.servers.generator.Generator._ship`.

        It travels over the notification channel; a client that is not reached gets it later. Of what
        :func:`mudkit.pipeline.mine` has learnt each policy is shipped to the clients of its app, if it
        decides otherwise than the one in use, as by a cloud with a ``learner``.

        Parameters
        ----------
        policy : Artefact or mapping or Mined
            The artefact, or its document; or the result of :func:`mudkit.pipeline.mine`.
        app : str, optional
            App that it is for, if it is one policy; what was learnt has its apps.
        to : sequence of str, optional
            Names of the only devices that receive it, and use it until a newer one arrives. The same
            policy may be shipped to more devices later.

        Returns
        -------
        Operation
            Completed when the cloud has stored it. :meth:`~mudkit.systems.mud.Client.policies` returns what
            a client uses. Of what was learnt its result is the number of policies that were shipped.

        Raises
        ------
        ParameterError
            A policy has no app, or what was learnt is given one or some devices. The operation has this error
            if a document is not that of a policy, or the policy is not newer than the one in use.
        """
        if isinstance(policy, Artefact | Mapping):
            if app is None:
                raise unusable("app", app, "the name of the app that the policy is for")
            document = policy.document if isinstance(policy, Artefact) else policy
            devices = None if to is None else list(to)
            return self.installed.call(Ship(app, document, devices))
        if app is not None or to is not None:
            name, given = ("app", app) if app is not None else ("to", to)
            raise unusable(name, given, "nothing: what was learnt is for all devices of its apps")
        learnt = [(one.app, one.artefact.document) for one in policy.policies]
        return self.installed.call(ShipLearnt(learnt))

    def forget(self, user: str) -> Operation:
        """Remove what the clients of a user have reported of their use.

        Handled by :meth:`~mudkit.systems.mud.servers.usage_sample.UsageSample.forget`.

        Policies that were learnt from it stay in use; those of the next learning know nothing of it.

        Parameters
        ----------
        user : str

        Returns
        -------
        Operation
            Its result is the number of reads and writes that were removed.
        """
        return self.installed.call(ForgetUser(user))


def _back_end_of(installed: Installed) -> BackEnd | None:
    """Return the back end of an installed store, if it runs, and acts as the master if it has standbys."""
    machine: BackEnd | StoreServer | None = installed.machine
    return machine.back_end if isinstance(machine, StoreServer) else machine


def _count_rows(installed: Installed) -> int | str:
    """Return how many rows an installed processor holds; its state if it does not run."""
    machine: Processor | None = installed.machine
    return installed.state if machine is None else machine.count_rows()


def _address(server: str) -> str:
    """Return the address of a server's machine."""
    return f"{server}/{PORT}"


def _addresses(kind: str, count: int) -> list[str]:
    """Return the addresses of all servers of a kind, numbered from 1."""
    return [_address(f"mud-{kind}-{number_}") for number_ in range(1, count + 1)]
