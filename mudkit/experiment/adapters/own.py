"""A machine of one's own as it enters the scoreboard: who writes it decides, and the rest is here.

One function is the whole machine, on the phones and on the relay between them:
``handle(here, now_us, event)`` gives effects. It is the :meth:`mudkit.events.Machine.handle` of a machine
that has ``here`` at hand. Each machine, and each of its lives, has its own copy of the function
(:mod:`mudkit.experiment.adapters.copies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from mudkit.errors import ParameterError
from mudkit.events import Effect, Event, Installed, Operation, Ports, Store
from mudkit.experiment.adapters.copies import Copies
from mudkit.experiment.tasks import Adapter, Interest, Item, Testbed
from mudkit.units import US_PER_S

__all__ = ["ITEMS", "RELAY", "Handle", "Here", "Own", "own_machine"]

RELAY: Final = "relay"
"""Name and address of the server."""
ITEMS: Final = "items"
"""The application that is handed items."""


class Here:
    """What a machine has at hand; made again when it is restarted.

    Parameters
    ----------
    me : str
        Name of its host, which is its address, too.
    store : Store
        What outlives it: all that one ``handle`` puts there is there, or nothing of it.
    want : Interest
        The want of the task.

    Attributes
    ----------
    relay : str
        The relay's address.
    memory : dict
        What it knows as long as it lives.
    """

    __slots__ = ("_want", "me", "memory", "relay", "store")

    def __init__(self, me: str, store: Store, want: Interest) -> None:
        self.me, self.store, self.relay = me, store, RELAY
        self.memory: dict[Any, Any] = {}
        self._want = want

    @property
    def is_relay(self) -> bool:
        """Whether this is the relay, not a phone or a feed."""
        return self.me == self.relay

    def wants(self, me: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
        """Say whether somebody wants an item.

        Parameters
        ----------
        me : mapping
            What she says of herself, as she was last asked in ``want``.
        item : mapping
            As it was published.
        """
        return self._want.holds(_placed(item["about"]), _placed(me))


Handle: TypeAlias = Callable[[Here, int, Event], Sequence[Effect]]
"""A whole machine: what is at hand, the time in µs, and what happens; gives what it does."""


class _Machine:
    def __init__(self, handle: Handle, here: Here, seen: Callable[[], None]) -> None:
        self._handle, self._here, self._seen = handle, here, seen

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._seen()
        return self._handle(self._here, now_us, event)


class Own:
    """A machine on each device and on a relay, all of the same function.

    Its application calls ``want`` with ``me``, what the phone's user says of herself from now on, and
    ``publish`` with an ``item``: ``name``, ``sender``, ``about``, ``content``, and ``over_us``, the time in
    µs from which it is of no use, or None. It is handed items by ``Notify("items", item)``.

    Parameters
    ----------
    testbed : Testbed
    handle : callable
        See :data:`Handle`.
    name : str
        The name under which its bill stands.
    seen : callable
        Called before each event that any of the machines handles.

    Attributes
    ----------
    asked : Operation or None
        What its application has called last.

    Raises
    ------
    ParameterError
        The function cannot be copied.
    """

    def __init__(
        self, testbed: Testbed, handle: Handle, name: str, seen: Callable[[], None] = lambda: None
    ) -> None:
        self._testbed, self._copies = testbed, Copies(handle)
        self.asked: Operation | None = None
        self._published: dict[str, Mapping[str, Any]] = {}

        def make(me: str, ports: Ports) -> _Machine:
            return _Machine(self._copies.make(), Here(me, ports.store, testbed.task.want), seen)

        hosts = [testbed.lab.server(RELAY), *testbed.lab.devices.values()]
        self._machines: dict[str, Installed] = {
            host.name: host.install(name, partial(make, host.name)) for host in hosts
        }
        for phone in testbed.phones:
            self._machines[phone].listen(ITEMS, partial(self._came, phone))
            self.moved(phone)

    def publish(self, item: Item) -> None:
        """Call ``publish`` on its sender's machine."""
        over_us = None
        if item.expires_s is not None:
            over_us = self._testbed.lab.world.now_us + round(item.expires_s * US_PER_S)
        published = {
            "name": item.name,
            "sender": item.sender,
            "about": _listed(item.about),
            "content": item.content,
            "over_us": over_us,
        }
        self._published[item.name] = published
        self.asked = self._machines[item.sender].call("publish", item=published)

    def moved(self, phone: str) -> None:
        """Call ``want`` on a phone's machine."""
        self.asked = self._machines[phone].call("want", me=_listed(self._testbed.about(phone)))

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._testbed.show(phone)

    def end(self) -> None:
        """Refuse a function that has kept something outside of what a machine has at hand.

        Raises
        ------
        ParameterError
        """
        self._copies.check()

    def _came(self, phone: str, payload: Any) -> None:
        name = payload.get("name") if isinstance(payload, Mapping) else None
        if not isinstance(name, str) or self._published.get(name) != payload:
            raise ParameterError(
                "The application was handed something that nobody has published.",
                where=phone,
                found=f"Notify({ITEMS!r}, {payload!r})"[:200],
                expected="an item, as it was published",
            )
        self._testbed.arrived(phone, name)


@dataclass(frozen=True)
class _Entered:
    handle: Handle
    name: str

    def __call__(self, testbed: Testbed) -> Own:
        return Own(testbed, self.handle, self.name)


def own_machine(handle: Handle, name: str = "mine") -> Callable[[Testbed], Adapter]:
    """Enter a machine on the scoreboard.

    Parameters
    ----------
    handle : callable
        The whole machine, see :data:`Handle`.
    name : str
        The name under which its bill stands.

    Returns
    -------
    callable
        Makes the adapter, for :func:`mudkit.experiment.scoreboard.play` and
        :func:`mudkit.experiment.scoreboard.scoreboard`.

    Examples
    --------
    >>> from mudkit.events import Call, Notify, Received, Send
    >>> from mudkit.experiment.scoreboard import play
    >>> from mudkit.experiment.tasks import WARD
    >>> def handle(here, now_us, event):
    ...     match event:
    ...         case Call(operation="want", arguments=said):
    ...             return [Send(here.relay, said)]
    ...         case Received(source=phone, message={"me": me}):
    ...             here.memory[phone] = me
    ...         case Call(arguments={"item": item}):
    ...             return [Send(here.relay, item)]
    ...         case Received(message=item) if here.is_relay:
    ...             return [Send(who, item) for who, me in here.memory.items() if here.wants(me, item)]
    ...         case Received(message=item):
    ...             return [Notify("items", item)]
    ...     return []
    >>> entry = play(WARD.over(hours=0.1), own_machine(handle))
    >>> entry.system, entry.measures()["useful"] > 0
    ('mine', True)
    """
    return _Entered(handle, name)


def _listed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Write places as lists: what JSON gives back, and a store takes."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in about.items()}


def _placed(about: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
