"""What a notebook holds of a device's client module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief
from mudkit.events import Host, Operation
from mudkit.predicates import Predicate
from mudkit.sources.parameters import number, of_kind
from mudkit.systems.arguments import check_device
from mudkit.systems.contrail.crypto import PublicKeys
from mudkit.systems.contrail.device.core import IDENTITY, PROBLEMS, KeyUse, Settings
from mudkit.systems.contrail.device.groups import CONTEXT
from mudkit.systems.contrail.device.machine import ModuleMachine
from mudkit.systems.contrail.items import check_name
from mudkit.systems.contrail.port import Group, Port
from mudkit.systems.contrail.relay import NAME, PORT, Directories, Relay

__all__ = ["Module"]

_MOST_S: Final = 1e9


@check_calls
class Module:
    """The client module of a device, which all its applications share (Contrail 4.1).

    Parameters
    ----------
    device : Host
    relay : Relay or sequence of Relay
        The relay. With several, everything goes to all of them: what one loses that stops, another one has.
    friends : collection of str
        The white-list; a device that its storage makes again keeps its own.
    shows_friends : bool
        Whether relays know the white-list, and refuse strangers' filters.
    combined : bool
        Whether one connection pushes and pulls.
    renew_s : float
        How long the key of a channel is used.
    push_timeout_s : float
        How long a batch that does not fill waits.
    encrypted : bool
        False: everything travels in clear. For showing what encryption is for; all modules must agree.
    renewal : callable, optional
        Told a :class:`KeyUse`, it says whether an item begins a new key, in place of the rule of channels.

    Raises
    ------
    ParameterError
        It is given no device, no relay or no list of friends, or a parameter is out of range.

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
        several: Any = relay  # as it came
        is_relays = isinstance(relay, Relay) or (
            isinstance(several, Sequence) and all(isinstance(each, Relay) for each in several)
        )
        relays = [relay] if isinstance(relay, Relay) else list(relay) if is_relays else []
        if not relays or isinstance(friends, str) or not isinstance(friends, Collection):
            raise ParameterError(
                "A module needs a relay, and friends.",
                where="relay, friends",
                found=f"{relay!r}, {friends!r}"[:200],
                expected="a relay or several, such as Relay(lab), and a list of names of devices",
            )
        self._settings = Settings(
            check_name("a device", device.name),
            [each.gateways for each in relays],
            Directories(relays),
            [check_name("a friend", each) for each in friends],
            shows_friends,
            encrypted,
            combined,
            round(number("renew_s", renew_s, 1e-3, _MOST_S) * 1e6),
            round(number("push_timeout_s", push_timeout_s, 1e-3, _MOST_S) * 1e6),
            renewal,
        )
        self.device = device
        self.installed = device.install(
            NAME, lambda ports: ModuleMachine(ports, self._settings), name=PORT, watch=("loc",)
        )

        self._relays = relays
        self._ports: dict[str, Port] = {}
        self.installed.listen(IDENTITY, self._begun)
        self.installed.call("public").add_done_callback(lambda operation: self._register(operation.result()))

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
            Asked with each filter that comes and who wants it: whether to accept it. Without, friends'
            filters are accepted.
        polling_interval_ms, idle_timeout_ms, batch_size
            See :class:`Port`.

        Raises
        ------
        ParameterError
            The name is not usable or a port of this device already, or a parameter is out of range.
        """
        check_name("a port", name)
        if name in self._ports:
            raise ParameterError(
                "This port is open already.",
                where="port",
                found=brief(name),
                expected="another name",
                remedy="go on with what open_port gave for it",
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
        """Take a device on to the white-list."""
        return self._change_friend(device, is_friend=True)

    def unfriend(self, device: str) -> Operation:
        """Take a device off: its filters here and those on it go, and all keys are renewed.

        Nothing more reaches it from here but that filters on it are taken back. What waits for it on this
        device, in a batch too, does not go; what waits for it at a provider is withdrawn, as soon as this
        device can be heard there. What it has fetched before, it has. Calls that were about it alone end:
        an item has no destination then, and a filter is refused with AccessDenied.
        """
        return self._change_friend(device, is_friend=False)

    def _change_friend(self, device: str, *, is_friend: bool) -> Operation:
        name = check_name("a device", device)
        made = self.installed.call("befriend", device=name, is_friend=is_friend)
        friends = {each for each in self._settings.friends if each != name} | ({name} if is_friend else set())
        self._settings = replace(self._settings, friends=sorted(friends))  # for one that is wiped
        return made

    def _register(self, keys: PublicKeys) -> None:
        for each in self._relays:
            each.directory[self.device.name] = keys

    def _begun(self, keys: PublicKeys) -> None:
        """Register the keys of a device that has just begun; after a wipe its applications begin, too."""
        self._register(keys)
        if keys.life:
            for port in self._ports.values():
                port.open()

    def join(self, group: Group) -> Operation:
        """Join a group; one with a rule, whenever that is true."""
        of_kind("group", group, Group, expected='a group, such as Group("club")')
        if group.rule is not None:
            Predicate.parse(group.rule, language=CONTEXT)
        return self.installed.call("join", group=check_name("a group", group.name), rule=group.rule)

    def leave(self, group: Group) -> Operation:
        """Leave a group: the filters that came by it go."""
        of_kind("group", group, Group, expected='a group, such as Group("club")')
        return self.installed.call("leave", group=check_name("a group", group.name))

    def counts(self) -> Operation:
        """Say what was dropped so far, and why: an operation of a dict."""
        return self.installed.call("counts")

    def on_problem(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with each error that concerns nobody's call, such as ``TamperedMessage``."""
        self.installed.listen(PROBLEMS, callback)
