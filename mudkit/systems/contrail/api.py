"""API of Contrail: the relay of a cloud provider; the client module of a device, its ports and groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import msgspec

from mudkit import words
from mudkit.checks import Range, check_arguments, number, of_kind, whole_number
from mudkit.display import Displayed, View, first_rows
from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.events import Host, Installed, Make, Network, Operation
from mudkit.places import Centres, Place, parse_centres
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.systems.contrail import messages
from mudkit.systems.contrail.crypto import KeyDirectory, KeyRegistry, PublicKeys
from mudkit.systems.contrail.device.filters import (
    CONTEXT,
    Question,
    acceptance_listener,
    parse_filter,
    question_listener,
)
from mudkit.systems.contrail.device.machine import ModuleMachine
from mudkit.systems.contrail.device.module_state import IDENTITY, PROBLEMS, KeyUse, Settings
from mudkit.systems.contrail.device.receiving import item_listener
from mudkit.systems.contrail.items import Item, check_name, pack
from mudkit.systems.contrail.servers import Compute, Gateway, Storage
from mudkit.systems.displays import OnHost
from mudkit.wire import Value

NAME: Final = "contrail"
PORT: Final = "contrail"
"""Suffix of the addresses of the machines."""

_US_PER_MS: Final = 1_000
_MAX_S: Final = 1e9
_MAX_MS: Final = 1e12


@check_arguments
class Relay(Displayed):
    """A cloud provider: gateways, compute instances and storage in its data centres (Contrail 4.2).

    Parameters
    ----------
    lab : Network
    instances : int
        Number of compute instances in each data centre. They take no time, unless their servers have a
        :class:`~mudkit.fleet.load.ServerProfile`.
    name : str
        Prefix of the names of its servers.
    centres : sequence of str, or mapping of str to str or (float, float), optional
        Data centres: names of cities, or places by name (:mod:`mudkit.places`); a device connects to the
        nearest. By default one, which is near everything.
    max_waiting : int
        Capacity of the queue of a device, in items; above it, publishers get :class:`Backlogged`.
    max_cached : int
        Capacity of the cache, in items of a device.
    move_after : int, optional
        Consecutive visits of a device to a data centre after which its queue moves there; None: never.

    Raises
    ------
    ParameterError
        The lab is missing, or a parameter is out of range.

    Attributes
    ----------
    directory : KeyRegistry
        Public keys of the devices (Contrail 3.3); the servers do not have them.
    """

    def __init__(
        self,
        lab: Network,
        instances: Annotated[int, Range(1, 10_000)] = 1,
        *,
        name: str = "contrail",
        centres: Centres | None = None,
        max_waiting: Annotated[int, Range(1, 1 << 31)] = 1000,
        max_cached: Annotated[int, Range(1, 1 << 31)] = 1000,
        move_after: Annotated[int, Range(1, 1 << 31)] | None = 3,
    ) -> None:
        check_name("a relay", name)
        places: Mapping[str, Place | None] = {"": None} if centres is None else parse_centres(centres)
        self.name = name
        self.directory = KeyRegistry()
        self.gateways: list[tuple[str, Place | None]] = []

        def server(tier: str, centre: str) -> str:
            """Return the name of a server of one tier in a data centre."""
            return "-".join(part for part in (name, tier, centre) if part)

        def install(address: str, place: Place | None, make: Make) -> Installed:
            """Install a machine on the server of an address."""
            return lab.server(address.split("/")[0], at=place).install(NAME, make, name=PORT)

        units = [f"{server('storage', centre)}/{PORT}" for centre in places]
        gateways = [f"{server('gateway', centre)}/{PORT}" for centre in places]
        computes = {
            centre: [f"{server(f'compute-{number}', centre)}/{PORT}" for number in range(1, instances + 1)]
            for centre in places
        }
        self.instances = [address for of_centre in computes.values() for address in of_centre]
        everywhere = frozenset(self.instances)
        self._storage = [
            install(unit, place, partial(
                Storage, max_waiting=max_waiting, max_cached=max_cached, computes=everywhere,
                units=units, gateways=gateways,
            )) for unit, place in zip(units, places.values(), strict=True)
        ]  # fmt: skip
        for unit, gateway, (centre, place) in zip(units, gateways, places.items(), strict=True):
            for address in computes[centre]:
                install(address, place, partial(
                    Compute, units=units, here=unit, move_after=move_after, gateways=[gateway],
                ))  # fmt: skip
            install(gateway, place, partial(Gateway, instances=computes[centre], units=units))
            self.gateways.append((gateway, place))

    def _view(self) -> View:
        """Return servers, devices and queue lengths for a display."""
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
        """Names of the hosts of the gateways."""
        return [address.split("/")[0] for address, _ in self.gateways]


class Group(msgspec.Struct, frozen=True):
    """A group of publishers (Contrail 3.4.3).

    Parameters
    ----------
    name : str
    rule : str, optional
        Predicate over the context of a device, which is a member while it is true.
    """

    name: str
    rule: str | None = None


@check_arguments
class Port(OnHost):
    """An open port of an application (Contrail 3.2, 4.1), see :meth:`Module.open_port`.

    Parameters
    ----------
    installed : Installed
        Module that the port belongs to.
    device, name : str
        Device and name of the port.
    on_filter, polling_interval_ms, idle_timeout_ms, batch_size
        As for :meth:`Module.open_port`.
    """

    def __init__(
        self,
        installed: Installed,
        device: str,
        name: str,
        on_filter: Callable[[Predicate, str], bool] | None = None,
        *,
        polling_interval_ms: float = 30_000,
        idle_timeout_ms: float = 0,
        batch_size: Annotated[int, Range(1, 1 << 31)] = 1,
    ) -> None:
        self.device, self.name = device, name
        self.installed = installed
        self._polling_us = _checked_us("polling_interval_ms", polling_interval_ms)
        self._idle_us = _checked_us("idle_timeout_ms", idle_timeout_ms)
        self._batch = batch_size
        self._on_filter = on_filter
        self._on_item: Callable[[Item], object] | None = None
        self._taken: set[int] = set()
        if on_filter is not None:
            self.installed.listen(question_listener(name), self._answer_question)
        self.installed.listen(item_listener(name), self._receive_item)
        self.open()

    def _view(self) -> View:
        """Return state and parameters for a display."""
        machine = self.installed.machine
        waiting = None if machine is None else machine.count_unread(self.name)
        facts = {
            "device": self.device,
            "port": self.name,
            "state": self.installed.state,
            "received and not taken": waiting,
            "polling interval": words.duration(self.polling_interval_ms / 1000),
            "batch size": self.batch_size,
        }
        return View("contrail.Port", facts)

    def open(self) -> None:
        """Open the port in the module. After a wipe of the device, call this and install its filters again.

        Handled by :meth:`~mudkit.systems.contrail.device.machine.ModuleMachine._open_port`.
        """
        asks = self._on_filter is not None
        self.installed.call(messages.OpenPort(self.name, self._polling_us, self._idle_us, self._batch, asks))
        if self._on_item is not None:
            self.installed.call(messages.Listen(self.name))

    # -- parameters

    @property
    def polling_interval_ms(self) -> float:
        """Time between two connections of the module, in milliseconds; the minimum of all ports applies."""
        return self._polling_us / _US_PER_MS

    @polling_interval_ms.setter
    def polling_interval_ms(self, value: float) -> None:
        """Set the time for this port; the module connects at the minimum of all its ports."""
        self._polling_us = _checked_us("polling_interval_ms", value)
        self._configure()

    @property
    def idle_timeout_ms(self) -> float:
        """Time for which an idle connection stays open, in milliseconds; the maximum of all ports applies."""
        return self._idle_us / _US_PER_MS

    @idle_timeout_ms.setter
    def idle_timeout_ms(self, value: float) -> None:
        """Set the time for this port; the module waits for the maximum of all its ports."""
        self._idle_us = _checked_us("idle_timeout_ms", value)
        self._configure()

    @property
    def batch_size(self) -> int:
        """Number of waiting messages of this port at which the module pushes all; 1: at once."""
        return self._batch

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        """Set the number for this port; it counts only messages of this port."""
        self._batch = whole_number("batch_size", value, 1, 1 << 31)
        self._configure()

    def _configure(self) -> None:
        """Store changed parameters of the port in the module."""
        self.installed.call(messages.ConfigurePort(self.name, self._polling_us, self._idle_us, self._batch))

    # -- filters

    def install_filter(
        self,
        predicate: str | Predicate,
        to: tuple[str | Group, str],
        *,
        item_expires_s: Annotated[float, Range(1e-6, _MAX_S)] | None = None,
        lifetime_s: Annotated[float, Range(1e-6, _MAX_S)] | None = None,
        replaces: Annotated[int, Range(0, 1 << 62)] | None = None,
    ) -> Operation:
        """Install a filter on a friend, or on the friends in a group.

        Handled by :meth:`~mudkit.systems.contrail.device.sending.Sending.install`.

        Results in its number when a relay accepts it.

        A filter selects the items that are sent, but is no access control: all endpoints with a filter at a
        port share its key, and a relay that colludes with one of them could deliver other items of the port.

        Parameters
        ----------
        predicate : str or Predicate
            The filter, over the metadata of an item.
        to : (str or Group, str)
            A device or a group, and a port there.
        item_expires_s : float, optional
            Time after which a matching item expires, in seconds; None: when its publisher says.
        lifetime_s : float, optional
            Time until the filter ends, in seconds; None: never.
        replaces : int, optional
            Number of the filter that this one replaces.

        Raises
        ------
        ParameterError, PredicateError
            The target or the filter is invalid.
        """
        target, remote = to
        group = check_name("a group", target.name) if isinstance(target, Group) else None
        device = check_name("a device", target) if isinstance(target, str) else None
        return self.installed.call(messages.InstallFilter(
            self.name, device, group, check_name("a port", remote), to_json(parse_filter(predicate)) or {},
            _duration_us(item_expires_s), _duration_us(lifetime_s), replaces,
        ))  # fmt: skip

    def remove_filter(self, slot: Annotated[int, Range(0, 1 << 62)]) -> Operation:
        """Remove an installed filter by its number, ``slot``.

        Handled by :meth:`~mudkit.systems.contrail.device.sending.Sending.remove`.
        """
        return self.installed.call(messages.RemoveFilter(slot))

    def on_accepted(self, callback: Callable[[Predicate, str], None]) -> None:
        """Call ``callback`` with each newly accepted filter and its device.

        An application may publish recent items again for that device. A device that is killed between its
        commit and the callback repeats the call after the restart.
        """
        self.installed.listen(
            acceptance_listener(self.name), lambda accepted: callback(accepted.filter, accepted.who)
        )

    def _answer_question(self, question: Question) -> None:
        """Ask the application whether to accept a filter, and pass its decision to the module."""
        assert self._on_filter is not None
        accepted = False  # also if the callback raises
        try:
            accepted = bool(self._on_filter(question.filter, question.who))
        finally:
            self.installed.call(messages.DecideFilter(question.key, accepted))

    # -- items

    def publish(
        self,
        item: Item,
        item_id: str | None = None,
        expires_s: Annotated[float, Range(1e-6, _MAX_S)] | None = None,
        *,
        only: Collection[str] | None = None,
        delivery_name: str | None = None,
    ) -> Operation:
        """Send an item to the devices whose filters match it (Contrail 3.2).

        Handled by :meth:`~mudkit.systems.contrail.device.sending.Sending.publish`.

        Parameters
        ----------
        item : Item
        item_id : str, optional
            Name of the item. A newer item of the same name makes older ones obsolete; the same content is a
            retransmission. By default a unique name.
        expires_s : float, optional
            Time until the item expires, in seconds; None: never.
        only : collection of str, optional
            Receiving devices among those whose filters match; by default all.
        delivery_name : str, optional
            Name in the deliveries; by default composed of device, port, item name and sequence number.

        Returns
        -------
        Operation
            Results in :class:`Published` or :class:`Backlogged`.

        Raises
        ------
        ParameterError
            The item, its name or ``only`` is invalid.
        """
        if item_id is not None and check_name("an item", item_id).startswith("~"):
            raise ParameterError(
                "Names with '~' are reserved for items without a name.",
                where="item_id",
                found=item_id,
                expected="a name that begins otherwise, or none",
            )
        if only is not None:
            of_kind("only", only, list, tuple, set, frozenset, expected='names of devices, such as ["bob"]')
        packed = pack(item, None if delivery_name is None else check_name("a delivery", delivery_name))
        expires_us = _duration_us(expires_s)
        chosen = None if only is None else sorted(only)
        return self.installed.call(messages.Publish(self.name, packed, item_id, expires_us, chosen))

    def receive_item(self) -> Operation:
        """Receive the next item; the operation results in an :class:`Item`.

        Handled by :meth:`~mudkit.systems.contrail.device.receiving.ItemInbox.receive_item`.
        """
        operation = self.installed.call(messages.ReceiveItem(self.name, sorted(self._taken)))
        operation.add_done_callback(self._confirm_result)
        return operation

    def receive_all(self) -> Operation:
        """Receive all waiting items; the operation results in a list of :class:`Item` without waiting.

        Handled by :meth:`~mudkit.systems.contrail.device.receiving.ItemInbox.receive_all`.
        """
        operation = self.installed.call(messages.ReceiveAll(self.name, sorted(self._taken)))
        operation.add_done_callback(self._confirm_result)
        return operation

    def on_item(self, callback: Callable[[Item], object]) -> None:
        """Call ``callback`` with each waiting and each future item, once, also after a kill.

        Handled by :meth:`~mudkit.systems.contrail.device.receiving.ItemInbox.hand_over`.
        """
        self._on_item = callback
        self.installed.call(messages.Listen(self.name))

    def _confirm_result(self, operation: Operation) -> None:
        """Confirm the items that a call has returned, so that they are deleted; none if it failed."""
        try:
            received = operation.result()
        except Exception:  # reported to the caller of the operation
            return
        items = received if isinstance(received, list) else [received]
        if items:
            self._delete_taken_items([item.number for item in items])

    def _receive_item(self, item: Item) -> None:
        """Confirm an item to the module and pass it to the application, unless that has it already."""
        if item.number in self._taken:
            self._delete_taken_items([item.number])  # the module crashed before it deleted the item
        elif self._on_item is not None:
            self._delete_taken_items([item.number])
            self._on_item(item)

    def _delete_taken_items(self, numbers: Sequence[int]) -> None:
        """Ask the module to delete items that the application has; remember them until it has done so."""
        self._taken.update(numbers)
        deletion = self.installed.call(messages.DeleteItems(self.name, numbers))
        deletion.add_done_callback(lambda operation: self._forget_deleted(operation, numbers))

    def _forget_deleted(self, operation: Operation, numbers: Collection[int]) -> None:
        """Forget the numbers of items that the module has deleted."""
        try:
            operation.result()
        except Exception:  # the module crashed; confirmed when it hands them over again
            return
        self._taken.difference_update(numbers)


def _checked_us(name: str, value_ms: float) -> int:
    """Return a time in microseconds, or raise ParameterError for one that is not allowed."""
    return round(number(name, value_ms, 0.0, _MAX_MS) * _US_PER_MS)


def _duration_us(value_s: float | None) -> int | None:
    """Return a time in microseconds; None: without an end."""
    return None if value_s is None else round(value_s * 1e6)


@check_arguments
class Module(OnHost):
    """Client module of a device, shared by all its applications (Contrail 4.1).

    Parameters
    ----------
    device : Host
    relay : Relay or sequence of Relay
        One or several providers; with several, everything is sent to all, so that one may fail.
    friends : collection of str
        Initial white-list; the current one is durable.
    shows_friends : bool
        Whether relays know the white-list and refuse filters of strangers.
    combined : bool
        Whether one connection pushes and pulls.
    renew_s : float
        Maximum age of a channel key, in seconds.
    push_timeout_s : float
        Maximum wait of a batch that is not full, in seconds.
    encrypted : bool
        False: no encryption, as a control in experiments; must be equal in all modules.
    renewal : callable, optional
        Called with a :class:`KeyUse`; returns whether an item begins a new key, which it decides alone: with
        False a receiver that left reads on. By default the rule of the paper (3.3).

    Raises
    ------
    ParameterError
        The device, a relay or the friends are missing, or a parameter is out of range.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.contrail import Item
    >>> lab = Lab(seed=7)
    >>> relay = Relay(lab)
    >>> ann = Module(lab.device("ann"), relay, friends=["bob"])
    >>> bob = Module(lab.device("bob"), relay, friends=["ann"])
    >>> here, there = ann.open_port("chat"), bob.open_port("chat")
    >>> slot = there.install_filter("destination = 'bob'", to=("ann", "chat")).result()
    >>> lab.run(minutes=1)
    >>> here.publish(Item({"destination": "bob"}, b"lunch?")).result().destinations
    (('bob', 'chat'),)
    >>> there.receive_item().result().payload
    b'lunch?'
    """

    def __init__(
        self,
        device: Host,
        relay: Relay | Sequence[Relay],
        friends: Collection[str] = (),
        *,
        shows_friends: bool = False,
        combined: bool = False,
        renew_s: Annotated[float, Range(1e-3, _MAX_S)] = 86_400.0,
        push_timeout_s: Annotated[float, Range(1e-3, _MAX_S)] = 60.0,
        encrypted: bool = True,
        renewal: Callable[[KeyUse], bool] | None = None,
    ) -> None:
        relays = [relay] if isinstance(relay, Relay) else list(relay)
        if not relays:
            raise ParameterError(
                "Expected a relay.",
                where="relay",
                found=brief(relay),
                expected="a relay or several, such as Relay(lab)",
            )
        self._settings = Settings(
            check_name("a device", device.name),
            [provider.gateways for provider in relays],
            KeyDirectory([provider.directory for provider in relays]),
            [check_name("a friend", friend) for friend in friends],
            shows_friends,
            encrypted,
            combined,
            round(renew_s * 1e6),
            round(push_timeout_s * 1e6),
            renewal,
        )
        self.device = device
        self.installed: Installed = device.install(
            NAME, lambda ports: ModuleMachine(ports, self._settings), name=PORT, watch=("loc",)
        )

        self._relays = relays
        self._ports: dict[str, Port] = {}
        self.installed.listen(IDENTITY, self._handle_identity)
        for provider in relays:
            provider.directory.watchers.append(self._follow_friend)
        self.installed.call(messages.GetPublicKeys()).add_done_callback(
            lambda operation: self._enter_keys(operation.result())
        )

    def _own_facts(self) -> dict[str, Value]:
        """Return what a display shows of a module besides its host."""
        return {"relays": ", ".join(relay.name for relay in self._relays)}

    def open_port(
        self,
        name: str,
        on_filter: Callable[[Predicate, str], bool] | None = None,
        *,
        polling_interval_ms: float = 30_000,
        idle_timeout_ms: float = 0,
        batch_size: int = 1,
    ) -> Port:
        """Open a port (Contrail 3.2).

        Parameters
        ----------
        name : str
        on_filter : callable, optional
            Called with each received filter and its device; returns whether to accept it. By default filters
            of friends are accepted.
        polling_interval_ms : float
            Time between two connections of the module, in milliseconds; 0: reconnect at once.
        idle_timeout_ms : float
            Time for which an idle connection stays open, in milliseconds.
        batch_size : int
            Number of waiting messages of this port at which the module pushes all; 1: at once.

        Raises
        ------
        ParameterError
            The name is invalid or in use, or a parameter is out of range.
        """
        check_name("a port", name)
        if name in self._ports:
            raise ParameterError(
                "This port is open already.",
                where="port",
                found=brief(name),
                expected="another name",
                remedy="use the port that open_port has returned",
            )
        port = self._ports[name] = Port(
            self.installed,
            self.device.name,
            name,
            on_filter,
            polling_interval_ms=polling_interval_ms,
            idle_timeout_ms=idle_timeout_ms,
            batch_size=batch_size,
        )
        return port

    def befriend(self, device: str) -> Operation:
        """Add a device to the white-list.

        Handled by :meth:`~mudkit.systems.contrail.device.machine.ModuleMachine._change_friend`.
        """
        return self._change_friend(device, is_friend=True)

    def unfriend(self, device: str) -> Operation:
        """Remove a ``device`` from the white-list, with the filters in both directions; renew all keys.

        Handled by :meth:`~mudkit.systems.contrail.device.machine.ModuleMachine._change_friend`.

        Messages waiting for it are withdrawn, here at once and at a provider as soon as it is reachable; it
        keeps what it has fetched. Calls that concern only this device complete: an item has no destination,
        and a filter fails with AccessDenied.
        """
        return self._change_friend(device, is_friend=False)

    def _change_friend(self, device: str, *, is_friend: bool) -> Operation:
        """Change the white-list in the module, and the initial one that a wiped module begins with."""
        name = check_name("a device", device)
        operation = self.installed.call(messages.Befriend(name, is_friend))
        friends = set(self._settings.friends) - {name} | ({name} if is_friend else set())
        self._settings = replace(self._settings, friends=sorted(friends))  # initial ones after a wipe
        return operation

    def _enter_keys(self, keys: PublicKeys) -> None:
        """Enter the public keys of this device in the directories of all providers.

        This happens at once, outside of the simulated network.
        """
        for provider in self._relays:
            provider.directory[self.device.name] = keys

    def _follow_friend(self, device: str) -> None:
        """Notify the module that a device has registered keys, if it is a friend."""
        if device in self._settings.friends and device != self.device.name:
            self.installed.call(messages.FollowFriends())

    def _handle_identity(self, keys: PublicKeys) -> None:
        """Register the keys; after a restart, open all ports again, because the store may be a backup."""
        self._enter_keys(keys)
        if keys.generation:
            for port in self._ports.values():
                port.open()

    def join(self, group: Group) -> Operation:
        """Join a group; with a rule, be a member while it is true.

        Handled by :meth:`~mudkit.systems.contrail.device.filters.Groups.join`.
        """
        if group.rule is not None:
            Predicate.parse(group.rule, language=CONTEXT)
        return self.installed.call(messages.JoinGroup(check_name("a group", group.name), group.rule))

    def leave(self, group: Group) -> Operation:
        """Leave a group; its filters are removed.

        Handled by :meth:`~mudkit.systems.contrail.device.filters.Groups.leave`.
        """
        return self.installed.call(messages.LeaveGroup(check_name("a group", group.name)))

    def counts(self) -> Operation:
        """Count dropped messages; the operation results in a dict of numbers by reason.

        Handled by :attr:`~mudkit.systems.contrail.device.module_state.ModuleState.counts`.
        """
        return self.installed.call(messages.GetCounts())

    def on_problem(self, callback: Callable[[MudkitError], None]) -> None:
        """Call ``callback`` with each error outside calls, such as ``TamperedMessage``."""
        self.installed.listen(PROBLEMS, callback)
