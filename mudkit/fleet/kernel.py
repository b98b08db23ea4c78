"""The kernel: it runs machines in virtual time and carries out what they decide.

Events are ordered by ``(t_us, priority, seq)``; the counter belongs to the world. The kernel knows no system:
a machine is something with ``handle``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mudkit.errors import ParameterError, SimulationProblem
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Machine,
    Notify,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.fleet.bill import Account, Bill
from mudkit.fleet.link import Direction, Draws, Link, Transfer, profile_of
from mudkit.fleet.store import Killed, MemoryStore, SqliteStore
from mudkit.sources.streams import Stream, device_number

__all__ = ["Host", "Process", "World"]

Make: TypeAlias = Callable[[Ports], Machine]

LINK, ARRIVAL, TIMER, CALL = range(4)
"""At one time first links change, then messages arrive, then timers fire, then applications ask."""

_SERVER_LATENCY_US: Final = 500
"""Between two servers of one data centre."""
_CHUNK: Final = 1 << 16
_STORM: Final = 16
"""Chunks of events without time going on that are no accident any more."""


class Host:
    """A device, or a server: that has no link, and is always reached.

    Parameters
    ----------
    name : str
    link : Link or None
    """

    __slots__ = ("address", "context", "link", "name", "number", "processes")

    def __init__(self, name: str, link: Link | None) -> None:
        self.name = name
        self.link = link
        self.address = name
        self.number = device_number(name)
        self.context: dict[str, Any] = {}
        self.processes: list[Process] = []

    @property
    def is_online(self) -> bool:
        """Whether something can reach it now."""
        return self.link is None or self.link.is_up


class Process:
    """A machine on a host, with what it was given; the machine goes when it is killed, the store stays."""

    __slots__ = (
        "_draws",
        "_stream",
        "accounts",
        "address",
        "host",
        "machine",
        "make",
        "store",
        "system",
        "timers",
    )

    def __init__(
        self, host: Host, system: str, make: Make, store: MemoryStore | SqliteStore, stream: Stream
    ) -> None:
        self.host = host
        self.system = system
        self.make = make
        self.store = store
        self.machine: Machine | None = None
        self.address = host.address
        self.timers: dict[str, int] = {}
        self.accounts: dict[Direction, Account] = {}
        self._stream = stream
        self._draws = 0

    def entropy(self, n: int) -> bytes:
        """Give random bytes, the port of that name: they go on after a restart and never repeat."""
        words = -(-n // 16)
        steps = range(self._draws, self._draws + words)
        self._draws += words
        pairs = (self._stream.words(self.host.number, step) for step in steps)
        return b"".join(int(w).to_bytes(8, "little") for pair in pairs for w in pair)[:n]


class World:
    """Virtual time, hosts, machines and the bill of one run.

    Parameters
    ----------
    seed : int
        Same seed, same bytes.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.now_us = 0
        self.handled = 0
        self.bill = Bill()
        self.hosts: dict[str, Host] = {}
        self.at_address: dict[str, Process] = {}
        self.on_leg: Callable[[Direction, Transfer, int], None] | None = None
        """Told of every transfer that has left a direction, with the bytes that got through."""
        self.meddle: Callable[[Transfer], Sequence[int]] | None = None
        """Asked before a message is handed over: after which delays, in µs; none loses it, two repeat it."""
        self.on_complete: Callable[[Complete], None] = lambda effect: None
        self.on_notify: Callable[[Host, Notify], None] = lambda host, effect: None
        self.on_record: Callable[[Host, Record], None] = lambda host, effect: None
        self._latencies = Draws(Stream(seed, "latency up")), Draws(Stream(seed, "latency down"))
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []
        self._seq = 0
        self._carry_out: dict[type, Callable[[Process, Any], None]] = {
            Send: self._send, SetTimer: self._set_timer, CancelTimer: self._cancel_timer,
            Complete: self._complete, Notify: self._notify, Record: self._record,
        }  # fmt: skip

    # -- what there is

    def add_server(self, name: str) -> Host:
        """Add a host without a link."""
        return self._add(Host(name, None))

    def add_device(self, name: str, link: str = "lte") -> Host:
        """Add a device with a link, which is up."""
        profile = profile_of(link)
        return self._add(Host(name, Link(profile, name, *self._latencies)))

    def install(
        self,
        host: Host,
        system: str,
        make: Make,
        *,
        name: str = "",
        store: MemoryStore | SqliteStore | None = None,
    ) -> Process:
        """Put a machine on a host, and start it.

        Parameters
        ----------
        host : Host
        system : str
            Who is charged.
        make : callable
            Makes the machine from its ports; called again when it is restarted.
        name : str
            Tells the machines of a host apart; part of the address.
        store : optional
            By default one in memory.
        """
        stream = Stream(self.seed, f"entropy {system} {name}")
        process = Process(host, system, make, store or MemoryStore(), stream)
        process.address = f"{host.address}/{name}" if name else host.address
        if process.address in self.at_address:
            raise ParameterError("There is a machine at this address.", where="name", found=process.address)
        host.processes.append(process)
        self.at_address[process.address] = process
        self.start(process)
        return process

    def start(self, process: Process) -> None:
        """Make the machine, also again after it was killed, and tell it of its link."""
        process.machine = process.make(Ports(process.store, process.entropy, process.address))
        self._greet(process)

    def kill(self, process: Process) -> None:
        """End the machine at once: its timers are gone, what was committed stays."""
        process.store.rollback()
        process.machine = None
        process.timers.clear()

    # -- what happens

    def call(self, process: Process, op_id: int, operation: str, arguments: Mapping[str, Any]) -> None:
        """Let an application ask a machine for something, now."""
        self._later(self.now_us, CALL, self._event, (process, Call(op_id, operation, arguments)))

    def change_context(self, host: Host, **context: Any) -> None:
        """Change what a device knows of itself."""
        host.context.update(context)
        for process in host.processes:
            self._later(self.now_us, LINK, self._event, (process, ContextChanged(dict(host.context))))

    def at(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something at a time to come, before anything else that happens then."""
        if t_us < self.now_us:
            raise ParameterError(
                "This time is over.", found=f"{t_us} µs", expected=f"{self.now_us} µs or later"
            )
        self._later(t_us, LINK, action, argument)

    def move(self, host: Host, address: str) -> None:
        """Give a host another address: what is sent to the old one fails from now on.

        Raises
        ------
        ParameterError
            The address is in use.
        """
        if any(each is not host and address in (each.address, each.name) for each in self.hosts.values()):
            raise ParameterError("This address is in use.", where="address", found=address)
        for process in host.processes:
            del self.at_address[process.address]
            process.address = address + process.address.removeprefix(host.address)
            self.at_address[process.address] = process
        host.address = address
        for process in host.processes:
            self._greet(process)

    def link_down(self, host: Host) -> None:
        """Take a device's network away: what is under way is cut, and its senders learn it."""
        link = host.link
        if link is None or not link.is_up:
            return
        link.is_up = False
        for direction in (link.up, link.down):
            for transfer, gone in direction.cut(self.now_us):
                if self.on_leg is not None:
                    self.on_leg(direction, transfer, gone)
                self._fail(transfer.sender, transfer.to, transfer.message)
        link.radio.cut(self.now_us)
        for process in host.processes:
            self._later(self.now_us, LINK, self._event, (process, LinkDown()))

    def link_up(self, host: Host) -> None:
        """Give a device its network back."""
        link = host.link
        if link is None or link.is_up:
            return
        link.is_up = True
        for process in host.processes:
            self._greet(process)

    def run(self, until_us: int, tick: Callable[[int], None] | None = None) -> None:
        """Let virtual time go on.

        Parameters
        ----------
        until_us : int
            Everything up to this time happens, this time included.
        tick : callable, optional
            Called now and then with the time.

        Raises
        ------
        SimulationProblem
            Machines answer each other without time going on.
        """
        heap, pop = self._heap, heapq.heappop
        still = 0
        while heap and heap[0][0] <= until_us:
            began = self.now_us
            for _ in range(_CHUNK):
                if not heap or heap[0][0] > until_us:
                    break
                t_us, _, _, action, argument = pop(heap)
                self.now_us = t_us
                action(argument)
            still = still + 1 if self.now_us == began else 0
            if still > _STORM:
                raise SimulationProblem(
                    "Events follow each other without time going on.",
                    found=f"{still * _CHUNK:,} events at {self.now_us:,} µs", remedy="a timer needs a delay",
                )  # fmt: skip
            if tick is not None:
                tick(self.now_us)
        self.now_us = max(self.now_us, until_us)

    # -- carrying out

    def _greet(self, process: Process) -> None:
        """Tell a machine that it has a network, if it has one."""
        link = process.host.link
        if process.host.is_online:
            network = "server" if link is None else link.profile.name
            self._later(self.now_us, LINK, self._event, (process, LinkUp(process.address, network)))

    def _later(self, t_us: int, priority: int, action: Callable[[Any], None], argument: Any) -> None:
        self._seq += 1
        heapq.heappush(self._heap, (t_us, priority, self._seq, action, argument))

    def _add(self, host: Host) -> Host:
        if host.name in self.hosts:
            raise ParameterError("There is a device or server of this name.", where="name", found=host.name)
        self.hosts[host.name] = host
        return host

    def _event(self, what: tuple[Process, Event]) -> None:
        self._handle(*what)

    def _handle(self, process: Process, event: Event) -> None:
        machine, store = process.machine, process.store
        if machine is None:
            return
        self.handled += 1
        effects: Sequence[Effect] = ()
        try:
            effects = machine.handle(self.now_us, event)
            if store.is_dirty:
                store.crash_point("before commit")
                store.commit()
                store.crash_point("after commit")
        except Killed:
            if not store.is_dirty:  # what is committed has happened; only nobody hears of it
                for effect in effects:
                    if type(effect) is Record:
                        self._record(process, effect)
            self.kill(process)
            return
        except Exception as error:
            store.rollback()
            error.add_note(
                f"in {process.system} on {process.host.name} at {self.now_us / 1e6:.6f} s, handling {event!r}"
            )
            raise
        for effect in effects:
            self._carry_out[type(effect)](process, effect)

    def _set_timer(self, process: Process, effect: SetTimer) -> None:
        if effect.delay_us < 0:
            raise ParameterError(
                "A timer cannot fire in the past.", found=f"{effect!r}", expected="delay_us >= 0"
            )
        self._seq = seq = self._seq + 1
        process.timers[effect.name] = seq
        heapq.heappush(
            self._heap, (self.now_us + effect.delay_us, TIMER, seq, self._fire, (process, effect.name, seq))
        )

    def _fire(self, what: tuple[Process, str, int]) -> None:
        process, name, seq = what
        if process.timers.get(name) == seq:
            del process.timers[name]
            self._handle(process, TimerFired(name))

    def _cancel_timer(self, process: Process, effect: CancelTimer) -> None:
        process.timers.pop(effect.name, None)

    def _send(self, process: Process, effect: Send) -> None:
        transfer = Transfer()
        transfer.sender = process
        transfer.source = process.address
        transfer.to = effect.to
        transfer.message = effect.message
        transfer.size_bytes = size_bytes(effect.message)
        transfer.sent_us = self.now_us
        transfer.then = None
        link = process.host.link
        target = self.at_address.get(effect.to)
        onward = None if target is None or target.host.link is None else target.host.link.down
        if link is None:
            if onward is not None:
                self._begin(transfer, onward)
            else:
                self._later(self.now_us + _SERVER_LATENCY_US, ARRIVAL, self._reach, transfer)
        elif link.is_up:
            transfer.then = onward
            self._begin(transfer, link.up)
        else:
            self._fail(process, effect.to, effect.message)

    def _begin(self, transfer: Transfer, direction: Direction) -> None:
        if not direction.link.is_up:
            self._fail(transfer.sender, transfer.to, transfer.message)
            return
        sender: Process = transfer.sender
        account = sender.accounts.get(direction)
        if account is None:
            account = self.bill.account(sender.system, direction.link.device, direction.name)
            sender.accounts[direction] = account
        transfer.account = account
        direction.begin(transfer, self.now_us)
        self._seq = seq = self._seq + 1
        heapq.heappush(self._heap, (transfer.arrive_us, ARRIVAL, seq, self._arrive, (transfer, direction)))

    def _arrive(self, what: tuple[Transfer, Direction]) -> None:
        transfer, direction = what
        if transfer.arrive_us != self.now_us:  # it was cut
            return
        direction.underway.popleft()
        if self.on_leg is not None:
            self.on_leg(direction, transfer, transfer.size_bytes)
        if transfer.then is not None:
            onward, transfer.then = transfer.then, None
            self._begin(transfer, onward)
        else:
            self._reach(transfer)

    def _reach(self, transfer: Transfer) -> None:
        if self.meddle is None:
            self._hand_over(transfer)
        else:
            for delay_us in self.meddle(transfer):
                self._later(self.now_us + delay_us, ARRIVAL, self._hand_over, transfer)

    def _hand_over(self, transfer: Transfer) -> None:
        target = self.at_address.get(transfer.to)
        if target is None or target.machine is None or not target.host.is_online:
            self._fail(transfer.sender, transfer.to, transfer.message)
        else:
            self._handle(target, Received(transfer.source, transfer.message))

    def _fail(self, sender: Process, to: str, message: Any) -> None:
        self._later(self.now_us, ARRIVAL, self._event, (sender, SendFailed(to, message)))

    def _complete(self, process: Process, effect: Complete) -> None:
        self.on_complete(effect)

    def _notify(self, process: Process, effect: Notify) -> None:
        self.on_notify(process.host, effect)

    def _record(self, process: Process, effect: Record) -> None:
        self.on_record(process.host, effect)
