"""API of Contrail on a device: the client module, its ports and groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from mudkit import words
from mudkit.arguments import check_calls
from mudkit.display import View
from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.events import Host, Installed, Operation
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.sources.parameters import number, of_kind, whole_number
from mudkit.systems.arguments import check_device
from mudkit.systems.contrail import operations
from mudkit.systems.contrail.crypto import PublicKeys
from mudkit.systems.contrail.device.core import IDENTITY, PROBLEMS, KeyUse, Settings
from mudkit.systems.contrail.device.filters import CONTEXT, Question, acceptances, decisions, parsed
from mudkit.systems.contrail.device.machine import ModuleMachine
from mudkit.systems.contrail.device.receiving import listener
from mudkit.systems.contrail.items import Item, check_name, pack
from mudkit.systems.contrail.relay import NAME, PORT, Directories, Relay
from mudkit.systems.displays import OnHost
from mudkit.wire import Value

__all__ = ["Group", "Module", "Port"]

_US_PER_MS: Final = 1_000
_MAX_S: Final = 1e9
_MAX_MS: Final = 1e12


class Group(msgspec.Struct, frozen=True):
    """A group of publishers (Contrail 3.4.3).

    Parameters
    ----------
    name : str
    rule : str, optional
        Predicate over the context of a device, which is in the group while it is true.
    """

    name: str
    rule: str | None = None


@check_calls
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
        batch_size: int = 1,
    ) -> None:
        self.device, self.name = device, name
        self.installed = installed
        self._polling_us = _us("polling_interval_ms", polling_interval_ms)
        self._idle_us = _us("idle_timeout_ms", idle_timeout_ms)
        self._batch = whole_number("batch_size", batch_size, 1, 1 << 31)
        self._on_filter = on_filter
        self._on_item: Callable[[Item], object] | None = None
        self._taken: set[int] = set()
        if on_filter is not None:
            self.installed.listen(decisions(name), self._decide)
        self.installed.listen(listener(name), self._came)
        self.open()

    def _view(self) -> View:
        machine = self.installed.machine
        waiting = None if machine is None else machine.received(self.name)
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
        """Open it in the module, also after a wipe; filters have to be installed again then."""
        asks = self._on_filter is not None
        self.installed.call(operations.Open(self.name, self._polling_us, self._idle_us, self._batch, asks))
        if self._on_item is not None:
            self.installed.call(operations.Listen(self.name))

    # -- parameters

    @property
    def polling_interval_ms(self) -> float:
        """Time between two connections of the module; the smallest of its ports counts."""
        return self._polling_us / _US_PER_MS

    @polling_interval_ms.setter
    def polling_interval_ms(self, value: float) -> None:
        self._polling_us = _us("polling_interval_ms", value)
        self._configure()

    @property
    def idle_timeout_ms(self) -> float:
        """Time for which a connection stays open when nothing waits; the largest of all ports counts."""
        return self._idle_us / _US_PER_MS

    @idle_timeout_ms.setter
    def idle_timeout_ms(self, value: float) -> None:
        self._idle_us = _us("idle_timeout_ms", value)
        self._configure()

    @property
    def batch_size(self) -> int:
        """Number of waiting messages of this port with which the module pushes everything; 1: at once."""
        return self._batch

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        self._batch = whole_number("batch_size", value, 1, 1 << 31)
        self._configure()

    def _configure(self) -> None:
        self.installed.call(operations.Configure(self.name, self._polling_us, self._idle_us, self._batch))

    # -- filters

    def install_filter(
        self,
        predicate: str | Predicate,
        to: tuple[str | Group, str],
        *,
        item_expires_s: float | None = None,
        lifetime_s: float | None = None,
        replaces: int | None = None,
    ) -> Operation:
        """Install a filter on a friend, or on the friends in a group.

        A filter selects what is sent, not what may be read: all endpoints with a filter at a port share its
        key, and a relay that helps one of them could deliver what its filter leaves out.

        Parameters
        ----------
        predicate : str or Predicate
            The filter, over the metadata of an item.
        to : (str or Group, str)
            A device or a group, and a port there.
        item_expires_s : float, optional
            Time for which a matching item is wanted, in seconds; None: as long as its publisher says.
        lifetime_s : float, optional
            Time until the filter ends, in seconds; None: never.
        replaces : int, optional
            Number of the filter that this one replaces.

        Returns
        -------
        Operation
            Results in the filter's number when a relay has the filter.
        """
        given: Value | tuple[str | Group, str] = to
        target, remote = given if isinstance(given, tuple) and len(given) == 2 else (None, None)
        if not isinstance(target, str | Group):
            raise ParameterError(
                "A filter goes to a device or a group, and a port there.",
                where="to",
                found=brief(to),
                expected='("child", "location")',
            )
        of_kind("predicate", predicate, str, Predicate, expected="a condition, such as \"what = 'photo'\"")
        if replaces is not None:
            whole_number("replaces", replaces, 0, 1 << 62)
        group = check_name("a group", target.name) if isinstance(target, Group) else None
        device = check_name("a device", target) if isinstance(target, str) else None
        return self.installed.call(operations.Install(
            self.name, device, group, check_name("a port", remote), to_json(parsed(predicate)) or {},
            _lasts_us("item_expires_s", item_expires_s), _lasts_us("lifetime_s", lifetime_s), replaces,
        ))  # fmt: skip

    def remove_filter(self, slot: int) -> Operation:
        """Remove an own filter, by its number."""
        return self.installed.call(operations.Remove(whole_number("slot", slot, 0, 1 << 62)))

    def on_accepted(self, callback: Callable[[Predicate, str], None]) -> None:
        """Call ``callback`` with each filter that is accepted from then on, and its device.

        An application may publish recent items again for it.
        """
        self.installed.listen(
            acceptances(self.name), lambda accepted: callback(accepted.filter, accepted.who)
        )

    def _decide(self, question: Question) -> None:
        assert self._on_filter is not None
        accepted = False  # also when the application fails to decide
        try:
            accepted = bool(self._on_filter(question.filter, question.who))
        finally:
            self.installed.call(operations.Decide(question.key, accepted))

    # -- items

    def publish(
        self,
        item: Item,
        item_id: str | None = None,
        expires_s: float | None = None,
        *,
        only: Collection[str] | None = None,
        called: str | None = None,
    ) -> Operation:
        """Send an item to the devices whose filters match it (Contrail 3.2).

        Parameters
        ----------
        item : Item
        item_id : str, optional
            Name of the item: a newer item of this name makes older ones obsolete; the same content again is
            a retransmission. By default a unique name.
        expires_s : float, optional
            Time until the item expires, in seconds; None: never.
        only : collection of str, optional
            Receiving devices among those whose filters match; by default all of them.
        called : str, optional
            Name in the deliveries; by default the device, the port, the item's name and a number.

        Returns
        -------
        Operation
            Results in a :class:`Published` or a :class:`Backlogged`.
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
        packed = pack(item, None if called is None else check_name("a delivery", called))
        expires_us = _lasts_us("expires_s", expires_s)
        chosen = None if only is None else sorted(only)
        return self.installed.call(operations.Publish(self.name, packed, item_id, expires_us, chosen))

    def receive_item(self) -> Operation:
        """Wait for the next item: an operation of an :class:`Item`."""
        operation = self.installed.call(operations.Receive(self.name, sorted(self._taken)))
        operation.add_done_callback(self._received)
        return operation

    def receive_all(self) -> Operation:
        """Return the items that are there, without waiting: an operation of a list of :class:`Item`."""
        operation = self.installed.call(operations.ReceiveAll(self.name, sorted(self._taken)))
        operation.add_done_callback(self._received)
        return operation

    def on_item(self, callback: Callable[[Item], object]) -> None:
        """Call ``callback`` with each item that arrives, and with those that wait."""
        self._on_item = callback
        self.installed.call(operations.Listen(self.name))

    def _received(self, operation: Operation) -> None:
        try:
            received = operation.result()
        except Exception:  # whoever waits for the operation gets it
            return
        items = received if isinstance(received, list) else [received]
        if items:
            self._take([item.number for item in items])

    def _came(self, item: Item) -> None:
        if item.number in self._taken:
            self._take([item.number])  # the module was killed before it had deleted the item
        elif self._on_item is not None:
            self._take([item.number])
            self._on_item(item)

    def _take(self, numbers: Sequence[int]) -> None:
        self._taken.update(numbers)
        taking = self.installed.call(operations.Taken(self.name, numbers))
        taking.add_done_callback(lambda operation: self._forget(operation, numbers))

    def _forget(self, operation: Operation, numbers: Collection[int]) -> None:
        """Forget items that the module has deleted: it does not hand them over again."""
        try:
            operation.result()
        except Exception:  # it was killed, and is told again when it hands them over
            return
        self._taken.difference_update(numbers)


def _us(name: str, value_ms: float) -> int:
    return round(number(name, value_ms, 0.0, _MAX_MS) * _US_PER_MS)


def _lasts_us(name: str, value_s: float | None) -> int | None:
    return None if value_s is None else round(number(name, value_s, 1e-6, _MAX_S) * 1e6)


@check_calls
class Module(OnHost):
    """The client module of a device, which all its applications share (Contrail 4.1).

    Parameters
    ----------
    device : Host
    relay : Relay or sequence of Relay
        The relay. With several, everything is sent to all of them: one of them may fail.
    friends : collection of str
        The initial white-list; a device with a storage folder keeps its own.
    shows_friends : bool
        Whether relays know the white-list, and refuse strangers' filters.
    combined : bool
        Whether one connection pushes and pulls.
    renew_s : float
        Longest use of a channel's key, in seconds.
    push_timeout_s : float
        Longest wait of a batch that is not full, in seconds.
    encrypted : bool
        False: everything travels in clear, to show what encryption is for; all modules must agree.
    renewal : callable, optional
        Called with a :class:`KeyUse`; returns whether an item begins a new key, in place of the rule of
        channels.

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
        renew_s: float = 86_400.0,
        push_timeout_s: float = 60.0,
        encrypted: bool = True,
        renewal: Callable[[KeyUse], bool] | None = None,
    ) -> None:
        check_device(device)
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
            [each.gateways for each in relays],
            Directories([relay.directory for relay in relays]),
            [check_name("a friend", each) for each in friends],
            shows_friends,
            encrypted,
            combined,
            round(number("renew_s", renew_s, 1e-3, _MAX_S) * 1e6),
            round(number("push_timeout_s", push_timeout_s, 1e-3, _MAX_S) * 1e6),
            renewal,
        )
        self.device = device
        self.installed = device.install(
            NAME, lambda ports: ModuleMachine(ports, self._settings), name=PORT, watch=("loc",)
        )

        self._relays = relays
        self._ports: dict[str, Port] = {}
        self.installed.listen(IDENTITY, self._begun)
        for each in relays:
            each.directory.watchers.append(self._follow)
        self.installed.call(operations.Public()).add_done_callback(
            lambda operation: self._register(operation.result())
        )

    def _own_facts(self) -> dict[str, Value]:
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
            Called with each received filter and its device; returns whether to accept it. By default
            friends' filters are accepted.
        polling_interval_ms : float
            Time between two connections of the module, in milliseconds; 0: reconnect at once.
        idle_timeout_ms : float
            Time for which a connection stays open when nothing waits, in milliseconds.
        batch_size : int
            Number of waiting messages of this port with which the module pushes everything; 1: at once.

        Raises
        ------
        ParameterError
            The name is invalid or a port of this device already, or a parameter is out of range.
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
        """Add a device to the white-list."""
        return self._change_friend(device, is_friend=True)

    def unfriend(self, device: str) -> Operation:
        """Remove a device from the white-list, its filters here and those on it; renew all keys.

        It is sent nothing more, except the removal of filters. Messages that wait for it on this device are
        not sent; those that wait at a provider are withdrawn as soon as the provider can be reached. What it
        has fetched before, it keeps. Calls about it alone end: an item has no destination, and a filter is
        refused with AccessDenied.
        """
        return self._change_friend(device, is_friend=False)

    def _change_friend(self, device: str, *, is_friend: bool) -> Operation:
        name = check_name("a device", device)
        made = self.installed.call(operations.Befriend(name, is_friend))
        friends = {each for each in self._settings.friends if each != name} | ({name} if is_friend else set())
        self._settings = replace(self._settings, friends=sorted(friends))  # after a wipe
        return made

    def _register(self, keys: PublicKeys) -> None:
        for each in self._relays:
            each.directory[self.device.name] = keys

    def _follow(self, device: str) -> None:
        """Read the queues for what a friend that has started again sends."""
        if device in self._settings.friends and device != self.device.name:
            self.installed.call(operations.Follow())

    def _begun(self, keys: PublicKeys) -> None:
        """Register the keys of a device; after a start, open its ports again: its store may be an old one."""
        self._register(keys)
        if keys.start:
            for port in self._ports.values():
                port.open()

    def join(self, group: Group) -> Operation:
        """Join a group; with a rule, be a member whenever it is true."""
        of_kind("group", group, Group, expected='a group, such as Group("club")')
        if group.rule is not None:
            Predicate.parse(group.rule, language=CONTEXT)
        return self.installed.call(operations.Join(check_name("a group", group.name), group.rule))

    def leave(self, group: Group) -> Operation:
        """Leave a group: its filters are removed."""
        of_kind("group", group, Group, expected='a group, such as Group("club")')
        return self.installed.call(operations.Leave(check_name("a group", group.name)))

    def counts(self) -> Operation:
        """Return the numbers of dropped messages by reason: an operation of a dict."""
        return self.installed.call(operations.Counts())

    def on_problem(self, callback: Callable[[MudkitError], None]) -> None:
        """Call ``callback`` with each error that concerns no call, such as ``TamperedMessage``."""
        self.installed.listen(PROBLEMS, callback)
