"""Where machines run: servers, devices with a link and a battery, and a machine on its host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np

from mudkit.errors import ParameterError
from mudkit.events import Call, Complete, ContextChanged, Event, LinkDown, LinkUp, Machine, Make, Ports
from mudkit.fleet.battery import Battery
from mudkit.fleet.link import Link, profile_of
from mudkit.fleet.operation import Operation
from mudkit.fleet.still import Still, place
from mudkit.fleet.store import MemoryStore, SqliteStore, unheeded
from mudkit.sources.courses import Course
from mudkit.sources.streams import Stream, device_number

if TYPE_CHECKING:
    from mudkit.fleet.kernel import World

__all__ = ["Device", "Host", "Process"]

_MOST_SHOWN: Final = 200
"""Letters of what a callback was told, where it has failed."""


class Host:
    """A server: it has no link, and is always reached.

    Parameters
    ----------
    world : World
    name : str
    """

    __slots__ = (
        "_op_id", "address", "context", "is_on", "is_online", "link", "name", "number", "processes",
        "storage", "watched", "world",
    )  # fmt: skip

    def __init__(self, world: World, name: str, link: Link | None = None) -> None:
        self.world = world
        self.link = link
        self.name = name
        self.address = name
        """Where its machines are reached; it changes with the network, the name does not."""
        self.is_online = True
        """Whether something can reach it now."""
        self.is_on = True
        self.number = device_number(name)
        self.context: dict[str, Any] = {}
        self.processes: list[Process] = []
        self._op_id = 0
        self.storage: Path | None = None
        """Folder with a file for each of its machines, which then outlives this process; None: in memory."""
        self.watched: set[str] = set()
        """Fields of the context that a machine watches."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def network(self) -> str:
        """The kind of its network."""
        return "server"

    def install(
        self,
        system: str,
        make: Make,
        *,
        name: str = "",
        watch: Collection[str] = (),
        store: MemoryStore | SqliteStore | None = None,
    ) -> Process:
        """Put a machine on it, and start it.

        Parameters
        ----------
        system : str
            Who is charged.
        make : callable
            Makes the machine from its ports; called again when it is restarted.
        name : str
            Tells the machines of a host apart; part of the address.
        watch : collection of str
            Measured fields of the context (``loc``, ``battery_share``; ``bandwidth_kbps``, what its link
            carries towards it) whose changes it is told; what an application changes it is told in any case.
        store : optional
            By default one in :attr:`storage`, or in memory.

        Raises
        ------
        ParameterError
            There is a machine of this name on it.
        """
        process = Process(self, system, make, name, frozenset(watch), store or self._store(name or system))
        self.world.register(process)
        self.watched |= process.watch
        try:
            if self.is_on:
                process.begin()
        except Exception:
            self.world.unregister(process)  # so that it can be mended and installed again
            raise
        self.processes.append(process)
        self.world.on_install(process)
        return process

    def _store(self, name: str) -> MemoryStore | SqliteStore:
        if self.storage is None:
            return MemoryStore()
        self.storage.mkdir(parents=True, exist_ok=True)
        file = self.storage / f"{quote(name, safe=' ')}.db"
        file.touch()
        file.chmod(0o600)  # keys may lie in it; SQLite gives the files beside it the same mode
        return SqliteStore(file)

    def next_op_id(self) -> int:
        """Give the next number of a call here: what others call changes nothing for it."""
        self._op_id += 1
        return self._op_id

    def snapshot(self) -> dict[str, Any]:
        """Give what it knows of itself now."""
        return dict(self.context)

    def change_context(self, **context: Any) -> None:
        """Change what it knows of itself; its machines are told."""
        self.context.update(context)
        self.tell(lambda process: ContextChanged(self.snapshot()))

    def measured(self, field: str, value: Any) -> None:
        """Note what it has measured; machines that watch this field are told."""
        self.context[field] = value
        if field in self.watched:
            for process in self.processes:
                if field in process.watch:
                    self.world.soon(process, ContextChanged(self.snapshot()))

    def tell(self, event: Callable[[Process], Event]) -> None:
        """Let all its machines handle an event, now."""
        for process in self.processes:
            self.world.soon(process, event(process))

    def kill(self) -> None:
        """End its machines at once; what they have committed stays."""
        for process in self.processes:
            process.kill()

    def restart(self) -> None:
        """Make the machines that were killed again, with their storage as it was committed.

        One that cannot be made is a failure, and stays away; the others are there.
        """
        for process in self.processes:
            if process.machine is None:
                process.start()
        self.world.tell_failures()

    def wipe(self) -> None:
        """End its machines, and empty their stores."""
        self.kill()
        for process in self.processes:
            process.store.wipe()
        self.world.on_incident(self, "wiped", None)


class Device(Host):
    """A device: its link is up as long as nothing holds it down.

    Parameters
    ----------
    world : World
    name : str
    link : Link
    """

    __slots__ = ("_addresses", "_held_down", "battery", "course", "on_first_move")

    link: Link

    def __init__(self, world: World, name: str, link: Link) -> None:
        super().__init__(world, name, link)
        self.battery: Battery | None = None
        """None: it is on a charger."""
        self._held_down: set[str] = set()
        self._addresses = 1
        self.course: Course | None = None
        """Where it is; None: nobody has said so."""
        self.on_first_move: Callable[[Device], None] | None = None
        """Writes down from then on where one is that had no place before."""

    @property
    def network(self) -> str:
        """The kind of its network."""
        return self.link.profile.name

    def snapshot(self) -> dict[str, Any]:
        """Give what it knows of itself now, what is left of its battery included."""
        share = {} if self.battery is None else {"battery_share": self.battery.left_share()}
        if "bandwidth_kbps" in self.watched and isfinite(self.link.down_kbps):
            share["bandwidth_kbps"] = self.link.down_kbps
        return self.context | share

    @property
    def loc(self) -> tuple[float, float] | None:
        """Latitude and longitude, degrees, as last measured; None: unknown."""
        return self.context.get("loc")

    def link_down(self, why: str = "cut") -> None:
        """Take its network away: what is under way is cut, and its senders learn it.

        Parameters
        ----------
        why : str
            The network is back when nothing holds it down any more.
        """
        self._held_down.add(why)
        if not self.is_online:
            return
        self.is_online = False
        world, link = self.world, self.link
        for direction in (link.up, link.down):
            for leg, gone in direction.cut(world.now_us):
                world.was_cut(leg, gone)
        link.radio.cut(world.now_us)
        world.on_link(self)
        self.tell(lambda process: LinkDown())

    def link_up(self, why: str = "cut") -> None:
        """End what holds its network down."""
        self._held_down.discard(why)
        if self.is_online or self._held_down:
            return
        self.is_online = True
        self.world.on_link(self)
        self.tell(Process.greeting)

    def tell_bandwidth(self) -> None:
        """Tell the machines that watch it that the link carries something else now."""
        if "bandwidth_kbps" in self.watched:
            for process in self.processes:
                if "bandwidth_kbps" in process.watch:
                    self.world.soon(process, ContextChanged(self.snapshot()))

    def held_down(self) -> list[str]:
        """Say what holds the link down."""
        return sorted(self._held_down)

    def move(self, lat: float, lon: float) -> None:
        """Put it at another place, where it stays: its machines are told now, its trace at the next interval.

        Parameters
        ----------
        lat, lon : float
            Degrees.

        Raises
        ------
        ParameterError
            It has a mobility, which moves it, or this is no place.
        """
        loc = place("lat, lon", (lat, lon))
        if self.course is None:
            self.course = Still(*loc)
            if self.on_first_move is not None:
                self.on_first_move(self)
        elif isinstance(self.course, Still):
            self.course.move(*loc)
        else:
            raise ParameterError(
                "A device that moves by itself is not moved by hand.",
                where=self.name,
                found="mobility=",
                expected="a device without mobility",
                remedy="add it with at=…, or with a mobility of your own: Replay(trace)",
            )
        super().change_context(loc=loc)

    def change_context(self, **context: Any) -> None:
        """Change what it knows of itself; its machines are told.

        Raises
        ------
        ParameterError
            The lab sets one of these fields itself: a change would be undone.
        """
        self._check_context(context)
        super().change_context(**context)

    def _check_context(self, context: Mapping[str, Any]) -> None:
        if self.course is not None:
            by_hand = isinstance(self.course, Still)
            remedy = "device.move(lat, lon)" if by_hand else "its mobility says where it is"
            _refuse("loc", context, "the place of a device is", remedy)
        if self.battery is not None:
            _refuse("battery_share", context, "what is left in a battery is", "a device without battery_j=")
        if isfinite(self.link.down_kbps):
            _refuse(
                "bandwidth_kbps", context, "what a link carries is", "a LinkReplay of what it is to carry"
            )

    def readdress(self, address: str) -> None:
        """Give it another address: what is sent to the old one fails from now on.

        Raises
        ------
        ParameterError
            The address is in use.
        """
        self.world.readdress(self, address)
        self.world.on_incident(self, "moved", address)
        if self.is_online:
            self.tell(Process.greeting)

    def change_network(self, link: str, address: str | None = None) -> None:
        """Go over to another kind of network, where it has another address.

        Parameters
        ----------
        link : str
            A profile of :data:`mudkit.fleet.link.LINKS`.
        address : str, optional
            By default the next of its own.
        """
        profile = profile_of(link)
        self.world.readdress(self, address or self.next_address())  # refuses before anything is changed
        self.link_down("change of network")
        self.link.use(profile, self.world.now_us)
        self.world.on_incident(self, "moved", f"{self.address}, {link}")
        self._held_down.discard("measured")  # that was the other network
        self.link_up("change of network")
        self.tell_bandwidth()
        if self.battery is not None:
            self.battery.look()

    def next_address(self) -> str:
        """Make up another address: the name and a number."""
        self._addresses += 1
        return f"{self.name}@{self._addresses}"

    def switch_off(self, why: str = "off") -> None:
        """Switch it off: no link, no machine; its storage stays. It may be off already."""
        if not self.is_on:
            return
        self.link_down("off")
        self.kill()
        self._switch(False, why)

    def switch_on(self) -> None:
        """Switch it on again; an empty battery is charged before. It may be on already."""
        if not self.is_on:
            self._switch(True, None)
        self.restart()
        self.link_up("off")  # after its machines are there: they hear of it once

    def _switch(self, is_on: bool, why: str | None) -> None:
        self.is_on = is_on
        self.world.on_incident(self, "on" if is_on else "off", why)
        if self.battery is not None:
            self.battery.switched()

    def restart(self) -> None:
        """Make the machines that were killed again, with their storage as it was committed.

        Raises
        ------
        ParameterError
            The device is off.
        """
        if not self.is_on:
            raise ParameterError(
                "Nothing runs on a device that is off.",
                where="device",
                found=f"{self.name} is off",
                expected="one that is on",
                remedy="switch it on: its machines are then there again",
            )
        super().restart()


def _refuse(field: str, context: Mapping[str, Any], what: str, remedy: str) -> None:
    if field in context:
        raise ParameterError(
            f"The lab sets this field itself: {what} measured.",
            where=field,
            found=repr(context[field]),
            expected="other fields of the context",
            remedy=remedy,
        )


class Process:
    """A machine on a host, with what it was given; the machine goes when it is killed, the store stays."""

    __slots__ = (
        "_draws", "_listeners", "_make", "_stream", "address", "handled", "host", "machine", "name", "open",
        "sent_bytes", "session", "store", "system", "timers", "watch",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        system: str,
        make: Make,
        name: str,
        watch: frozenset[str],
        store: MemoryStore | SqliteStore,
    ) -> None:
        self.host = host
        self.system = system
        self.name = name
        self.watch = watch
        self.store = store
        self.address = f"{host.address}/{name}" if name else host.address
        self.machine: Machine | None = None
        self.handled = 0
        """Events so far, also before it was killed."""
        self.sent_bytes = 0
        """By a machine on a server: what devices send is on the bill."""
        self.session = 0
        """Goes up with every start."""
        self.timers: dict[str, tuple[Process, str]] = {}
        """As they were set last."""
        self._make = make
        self.open: dict[int, Operation] = {}
        """What it has been asked and has not answered, by number."""
        self._listeners: dict[str, list[Callable[[Any], None]]] = {}
        self._stream = Stream(host.world.seed, f"entropy\n{system}\n{name}")
        self._draws = 0

    def entropy(self, n: int) -> bytes:
        """Give random bytes, the port of that name: they go on after a restart and never repeat."""
        if n < 0:
            raise ParameterError(
                "There are no fewer bytes than none.", where="n", found=repr(n), expected="0 or more"
            )
        steps = np.arange(self._draws, self._draws + -(-n // 16))
        self._draws += len(steps)
        return np.stack(self._stream.words(self.host.number, steps), 1).astype("<u8").tobytes()[:n]

    def start(self) -> None:
        """Make the machine again, as :meth:`begin`; if it cannot be made, that is a failure."""
        try:
            self.begin()
        except Exception as error:
            self.store.rollback()
            self.host.world.failed(self.host, self.system, error, "making it")

    def begin(self) -> None:
        """Make the machine, and tell it of its link and its context."""
        self.session += 1
        self.machine = self._make(Ports(self.store, self.entropy, self.address))
        if self.session > 1:
            self.host.world.on_incident(self.host, "restarted", self.name or None)
        if context := self.host.snapshot():
            self.host.world.soon(self, ContextChanged(context))
        if self.host.is_online:
            self.host.world.soon(self, self.greeting())

    def greeting(self) -> LinkUp:
        """Say that there is a network."""
        return LinkUp(self.address, self.host.network)

    def kill(self) -> None:
        """End the machine at once: its timers are gone, its callers learn it, what was committed stays.

        What was to kill it at a crash point has nothing more to do.
        """
        self.store.at_crash_point = unheeded
        if self.machine is None:
            return
        self.store.rollback()
        self.machine = None
        self.timers.clear()
        lost, self.open = self.open, {}
        for operation in lost.values():
            operation.lose()
        self.host.world.on_incident(self.host, "killed", self.name or None)

    def call(self, operation: str, **arguments: Any) -> Operation:
        """Ask the machine for something, now; see :class:`mudkit.events.Call`.

        When it returns, the machine has handled it and what that stored is committed, unless it is called by
        something that happens in virtual time: then that is so at the end of this moment.
        """
        host = self.host
        world, op_id = host.world, host.next_op_id()
        call = Call(op_id, operation, arguments)
        made = Operation(world, self, call)
        world.on_operation(made)
        if self.machine is None:
            made.lose()
            return made
        self.open[op_id] = made
        world.call(self, call)
        return made

    def answer(self, answer: Complete) -> None:
        """Hand an answer to who called; one that comes twice, or that nobody waits for, is left."""
        error = answer.error
        if error is not None and not isinstance(error, BaseException):
            raise TypeError(f"the error of Complete is an exception, not {error!r}")
        operation = self.open.pop(answer.op_id, None)
        if operation is not None:
            operation.settle(answer.result, error)
            self.host.world.on_answer(operation)

    def listen(self, app: str, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with the payload of each notification to an application."""
        self._listeners.setdefault(app, []).append(callback)

    def notify(self, app: str, payload: Any) -> None:
        """Tell who listens, as an event of its own."""
        for callback in self._listeners.get(app, ()):
            self.host.world.at(self.host.world.now_us, self._tell, (app, callback, payload))

    def _tell(self, what: tuple[str, Callable[[Any], None], Any]) -> None:
        app, callback, payload = what
        try:
            callback(payload)
        except Exception as error:
            doing = f"in a callback of {app!r}, told {payload!r}"[:_MOST_SHOWN]
            self.host.world.failed(self.host, self.system, error, doing)
