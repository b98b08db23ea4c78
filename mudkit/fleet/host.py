"""Hosts, the machines on them, and the calls to these machines.

A :class:`Host` runs a :class:`Process` for each machine; a call to a process is an :class:`Operation`.
Their ``world`` is the kernel, which imports this module.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
import numpy as np

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import Displayed, Table, View, first_rows, one_line
from mudkit.errors import (
    OperationCancelled,
    OperationLost,
    OperationTimeout,
    OutageEndedWarning,
    ParameterError,
    brief,
)
from mudkit.events import (
    DEFAULT_TIMEOUT_S,
    Call,
    Cancel,
    Complete,
    ContextChanged,
    Event,
    LinkUp,
    Machine,
    Make,
    Ports,
)
from mudkit.fleet.link import Link
from mudkit.fleet.load import ServerQueue
from mudkit.fleet.store import MemoryStore, SqliteStore, ignore
from mudkit.places import Place, travel_us
from mudkit.sources.streams import Stream, device_number

if TYPE_CHECKING:
    from mudkit.fleet.kernel import World
    from mudkit.fleet.transport import Connection

Backup: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""Contents of the stores of a host, by system and name of each machine."""
_MAX_TIMEOUT_S: Final = 1_000_000_000
_TURN_S: Final = 0.05
"""Real time after which a waiting cell yields to widgets and interrupts."""
_MAX_SHOWN: Final = 200
"""Maximum length of a callback's payload in an error."""


@check_arguments
class Host(Displayed):
    """A server: it has no link, and is always reachable.

    Parameters
    ----------
    world : World
    name : str
        Its name in the lab, and its first address.
    link : Link, optional
        None: it is a server.
    """

    __slots__ = (
        "address", "at", "connections", "context", "is_on", "is_online", "last_op_id", "last_way", "lets_in",
        "link", "load", "name", "nearby", "number", "processes", "storage", "watched", "world",
    )  # fmt: skip

    def __init__(self, world: World, name: str, link: Link | None = None) -> None:
        self.world = world
        self.link = link
        self.name = name
        self.address = name
        """Address of its machines; it changes with the network, the name does not."""
        self.is_online = True
        """True if it is reachable now."""
        self.is_on = True
        self.number = device_number(name)
        self.context: dict[str, Any] = {}
        self.processes: list[Process] = []
        self.last_op_id = 0
        """Number of the last call here: calls on other hosts do not affect it."""
        self.at: Place | None = None
        """Place of a server, degrees; None: it is near everything."""
        self.last_way: tuple[Place | None, Place | None, int] = (None, None, 0)
        """Its place and a server's at the last message between them, with the time of its way in µs."""
        self.lets_in = True
        """True if any host can begin to send to it; else only those to which it has a connection can."""
        self.connections: dict[Host, Connection] = {}
        """Connections of a transport, by the host at the other end."""
        self.nearby: Link | None = None
        """Short-range link to devices that are near; None: it has none."""
        self.load: ServerQueue | None = None
        """Queue of a server whose events take time; None: they take none."""
        self.storage: Path | None = None
        """Folder with a file for each of its machines, which outlives this process; None: in memory."""
        self.watched: set[str] = set()
        """Fields of the context that at least one machine watches."""

    def _view(self) -> View:
        """Return the view of a display: its facts, and its machines."""
        rows = ((process.system, process.name, process.state, process.handled) for process in self.processes)
        columns = ("system", "machine", "state", "events")
        return View(
            f"{'Server' if self.link is None else 'Device'} {self.name}",
            self._facts(),
            [first_rows(columns, rows, len(self.processes))],
        )

    def _facts(self) -> dict[str, Any]:
        """Return the facts that a display shows."""
        return {
            "address": None if self.address == self.name else self.address,
            "machines": len(self.processes),
            "storage": self.storage,
        }

    @property
    def network(self) -> str:
        """Kind of its network: ``server``, since it has no link."""
        return "server"

    @property
    def loc(self) -> Place | None:
        """Latitude and longitude, degrees; None: unknown."""
        return self.at

    def install(
        self,
        system: str,
        make: Make,
        *,
        name: str = "",
        watch: Collection[str] = (),
        store: MemoryStore | SqliteStore | None = None,
    ) -> Process:
        """Install a machine and start it.

        Parameters
        ----------
        system : str
            The system that is charged.
        make : callable
            Creates the machine from its ports; called again at each restart.
        name : str
            Distinguishes the machines of a host; part of the address.
        watch : collection of str
            Measured fields of the context of whose changes the machine is notified: ``loc``,
            ``battery_share``, ``bandwidth_kbps`` (downlink throughput). Changes by an application are always
            notified.
        store : optional
            The store of the machine; by default one in :attr:`storage`, or in memory.

        Raises
        ------
        ParameterError
            There is a machine of this name on it.
        """
        process = Process(
            self.world, self, system, make, name, frozenset(watch), store or self._open_store(name or system)
        )
        self.world.register(process)
        self.watched |= process.watch
        try:
            if self.is_on:
                process.create_machine()
        except Exception:
            self.world.unregister(process)  # so that it can be mended and installed again
            raise
        self.processes.append(process)
        self.world.on_install(process)
        return process

    def _open_store(self, name: str) -> MemoryStore | SqliteStore:
        """Return a new store for a machine: a file in ``storage``, or in memory."""
        if self.storage is None:
            return MemoryStore()
        self.storage.mkdir(parents=True, exist_ok=True)
        file = self.storage / f"{quote(name, safe=' ')}.db"
        file.touch()
        file.chmod(0o600)  # keys may lie in it; SQLite gives the files beside it the same mode
        return SqliteStore(file)

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of its current context, as machines get it."""
        return dict(self.context)

    def down_reasons(self) -> list[str]:
        """Return the reasons for which its link is down: none for a server."""
        return []

    def change_context(self, **context: Any) -> None:
        """Change fields of its context, and send all its machines ContextChanged."""
        self.context.update(context)
        self.broadcast(lambda process: ContextChanged(self.snapshot()))

    def set_measured(self, field: str, value: Any) -> None:
        """Set a measured field of its context, and send ContextChanged to the machines that watch it."""
        self.context[field] = value
        if field in self.watched:
            for process in self.processes:
                if field in process.watch:
                    self.world.schedule_event(process, ContextChanged(self.snapshot()))

    def broadcast(self, event: Callable[[Process], Event]) -> None:
        """Schedule an event for each of its machines, at the current time."""
        for process in self.processes:
            self.world.schedule_event(process, event(process))

    def kill(self) -> None:
        """Kill its machines; what they have committed stays, what waits for them fails."""
        for process in self.processes:
            process.kill()
        if self.load is not None:
            self.load.drop_all()
        if self.world.connections is not None:
            self.world.connections.close_all(self)

    def restart(self) -> None:
        """Restart its killed machines, with their stores as committed.

        A machine that cannot be created is recorded as a failure and stays killed; the others run.
        """
        for process in self.processes:
            if process.machine is None:
                process.start()
        self.world.warn_failures()

    def wipe(self) -> None:
        """Kill its machines and empty their stores; it does not restart them."""
        self.kill()
        for process in self.processes:
            process.store.wipe()
        self.world.on_incident(self, "wiped", None)

    def backup(self) -> Backup:
        """Return a copy of what its machines have committed."""
        return {(process.system, process.name): dict(process.store.items()) for process in self.processes}

    def restore(self, backup: Backup) -> None:
        """Kill its machines and set their stores back to a backup; it does not restart them."""
        self.kill()
        for process in self.processes:
            process.store.wipe()
            for key, value in backup.get((process.system, process.name), {}).items():
                process.store.put(key, value)
            process.store.commit()
        self.world.on_incident(self, "restored", None)


def way_us(at: Place, other: Host) -> int:
    """Return the time of a message's way between the place of a server and another host, in µs.

    It is 0 if the other place is unknown. The last result is kept with the host.
    """
    # Not by ``loc``, a property: this is done for every message.
    loc = other.at if other.link is None else other.context.get("loc")
    last_loc, last_at, last_us = other.last_way
    if last_loc == loc and last_at is at:
        return last_us
    took_us = 0 if loc is None else travel_us(loc, at)
    other.last_way = loc, at, took_us
    return took_us


class Process:
    """A machine on a host, with its :class:`~mudkit.events.Ports`, timers, open calls and callbacks.

    A kill keeps the store and the callbacks.
    """

    __slots__ = (
        "_draws",
        "_listeners",
        "_make",
        "_stream",
        "_world",
        "address",
        "client",
        "connections",
        "handled",
        "host",
        "link",
        "machine",
        "name",
        "open",
        "sent_bytes",
        "start_number",
        "store",
        "system",
        "timers",
        "watch",
        "when_due",
    )

    def __init__(
        self,
        world: World,
        host: Host,
        system: str,
        make: Make,
        name: str,
        watch: frozenset[str],
        store: MemoryStore | SqliteStore,
    ) -> None:
        self._world = world
        self.host = host
        self.link = host.link
        """Link of its host, which is the same for ever; None: it runs on a server."""
        self.connections = host.connections
        self.system = system
        self.name = name
        self.watch = watch
        self.store = store
        self.address = f"{host.address}/{name}" if name else host.address
        is_first = not any(other.system == system for other in host.processes)
        self.client = host.name if is_first else f"{host.name}/{name}"
        """Name in histories: the host's for the first machine of a system there; else with its own name."""
        self.machine: Machine | None = None
        self.handled = 0
        """Events so far, including those before a kill."""
        self.sent_bytes = 0
        """Sent by a machine on a server; what devices send is on the bill."""
        self.start_number = 0
        """Number of its last start, from 1; 0: it was never started."""
        self.when_due: Callable[[tuple[Process, str]], None]
        """Called by the world for a timer that is due."""
        self.timers: dict[str, tuple[Process, str]] = {}
        """Running timers; one that was replaced is not among them."""
        self._make = make
        self.open: dict[int, Operation] = {}
        """Operations without an answer, by number."""
        self._listeners: dict[str, list[Callable[[Any], None]]] = {}
        # Another process has drawn before from the same seed: its draws are not repeated, or incarnations,
        # which name a start, would be.
        before = store.fingerprint() if isinstance(store, SqliteStore) else ""
        self._stream = Stream(world.seed, f"entropy\n{system}\n{name}" + (f"\n{before}" if before else ""))
        self._draws = 0

    @property
    def state(self) -> str:
        """``running``, ``killed``, or why it has no network."""
        if self.machine is None:
            return "killed"
        down_reasons = ", ".join(self.host.down_reasons())
        return "running" if self.host.is_online else f"no network ({down_reasons or 'cut'})"

    def entropy(self, n: int) -> bytes:
        """Return random bytes, the port of that name; restarts never repeat them."""
        if n < 0:
            raise ParameterError(
                "The number of random bytes is negative.", where="n", found=brief(n), expected="0 or more"
            )
        steps = np.arange(self._draws, self._draws + -(-n // 16))
        self._draws += len(steps)
        return np.stack(self._stream.words(self.host.number, steps), 1).astype("<u8").tobytes()[:n]

    def start(self) -> None:
        """Start the machine, with :meth:`create_machine`; if this fails, record a failure."""
        try:
            self.create_machine()
        except Exception as error:
            self.store.rollback()
            self._world.record_failure(self.host, self.system, error, "making it")

    def create_machine(self) -> None:
        """Create the machine at a start, and schedule its context and LinkUp as its first events."""
        self.start_number += 1
        self.machine = self._make(Ports(self.store, self.entropy, self.address, self.has_listener))
        if self.start_number > 1:
            self._world.on_incident(self.host, "restarted", self.name or None)
        if context := self.host.snapshot():
            self._world.schedule_event(self, ContextChanged(context))
        if self.host.is_online:
            self._world.schedule_event(self, self.build_link_up())

    def build_link_up(self) -> LinkUp:
        """Build the LinkUp event that tells the machine its address and network."""
        return LinkUp(self.address, self.host.network)

    def kill(self) -> None:
        """Kill the machine: roll its store back, clear timers, lose open calls, and disarm crash points."""
        self.store.crash_point = ignore
        if self.machine is None:
            return
        self.store.rollback()
        self.machine = None
        self.timers.clear()
        lost, self.open = self.open, {}
        for operation in lost.values():
            operation.mark_lost()
        self._world.on_incident(self.host, "killed", self.name or None)

    @property
    def now_us(self) -> int:
        """Present virtual time."""
        return self._world.now_us

    async def run_until(self, is_done: Callable[[], bool], deadline_us: int) -> None:
        """Run virtual time until ``is_done()``, which is asked after each event, at most to ``deadline_us``.

        Other tasks of the loop, such as widgets and interrupts of a notebook, run in between.

        Raises
        ------
        ReentrantRun
            Awaited inside an event, a callback or a scheduled call.
        """
        while not is_done() and self._world.now_us < deadline_us:
            self._world.run_until(is_done, deadline_us, _TURN_S)
            await asyncio.sleep(0)

    def call(self, operation: msgspec.Struct | str, **arguments: Any) -> Operation:
        """Call the machine now; see :class:`mudkit.events.Call`.

        When it returns, the machine has handled the call and committed, except inside a callback or event:
        there it is handled at the end of this moment.
        """
        host, world = self.host, self._world
        host.last_op_id = op_id = host.last_op_id + 1
        call = Call(op_id, operation, arguments)
        pending = Operation(world, self, call, world.now_us, self.start_number)
        world.on_operation(pending)
        if self.machine is None:
            pending.mark_lost()
            return pending
        self.open[op_id] = pending
        world.call(self, call)
        return pending

    def complete_operation(self, answer: Complete) -> None:
        """Pass the effect Complete to its operation; a second one, or one of no open call, is ignored."""
        error = answer.error
        if error is not None and not isinstance(error, BaseException):
            raise TypeError(f"the error of Complete is an exception, not {brief(error)}")
        operation = self.open.pop(answer.op_id, None)
        if operation is not None:
            operation.complete(answer.result, error)
            self._world.on_answer(operation)

    def listen(self, listener: str, callback: Callable[[Any], None], *, is_only: bool = False) -> None:
        """Register a callback under a listener's name, for the payload of each :class:`Notify` to it.

        ``is_only``: it takes the place of earlier callbacks.
        """
        earlier = [] if is_only else self._listeners.get(listener, [])
        self._listeners[listener] = [*earlier, callback]

    def forget_listener(self, listener: str) -> None:
        """Remove the callbacks of a listener."""
        self._listeners.pop(listener, None)

    def forget_listeners(self) -> None:
        """Remove all callbacks, as the end of the application does; the machine keeps its state."""
        self._listeners.clear()

    def has_listener(self, listener: str) -> bool:
        """Return whether a callback is registered under a listener's name."""
        return listener in self._listeners

    def notify(self, listener: str, payload: Any) -> None:
        """Schedule the callbacks of a listener with a payload, each as an event of its own."""
        for callback in self._listeners.get(listener, ()):
            self._world.schedule_action(self._world.now_us, self._run_callback, (listener, callback, payload))

    def _run_callback(self, what: tuple[str, Callable[[Any], None], Any]) -> None:
        """Call a callback of an application; an exception is recorded as a failure."""
        listener, callback, payload = what
        try:
            callback(payload)
        except Exception as error:
            doing = f"in a callback of {listener!r}, told {brief(payload, _MAX_SHOWN)}"[:_MAX_SHOWN]
            self._world.record_failure(self.host, self.system, error, doing)


class Operation(Displayed, msgspec.Struct, eq=False):
    """A call that was made, as a future in virtual time."""

    _world: World
    process: Process
    call: Call
    invoked_us: int
    start_number: int
    """Number of the start of the machine in which it was called."""
    responded_us: int | None = None
    details: list[Mapping[str, Any]] | None = None
    """Rows that the machine recorded about it, or about a record that it concerns."""
    _result: Any = None
    _error: BaseException | None = None
    _has_called_back: bool = False
    _is_due: bool = False
    """True while the event that runs the callbacks is scheduled."""
    _callbacks: list[Callable[[Operation], None]] | None = None
    _ran_us: int = 0
    """Virtual time that waiting for it has run."""
    _make_result: Callable[[Any], Any] | None = None

    def _view(self) -> View:
        """Return the view of a display: the status, and the result or the error."""
        facts: dict[str, Any] = {
            "on": self.process.host.name,
            "system": self.process.system,
            "status": self.status,
        }
        tables: Sequence[Table] = ()
        notes: Sequence[str] = ()
        if self._ran_us:
            facts["result() ran"] = f"{words.duration(self._ran_us / 1e6)} of virtual time"
        if self._error is not None:
            first, *notes = str(self._error).splitlines() or [""]
            facts["error"] = f"{type(self._error).__name__}: {one_line(first)}"
        elif self.responded_us is None:
            facts["since"] = (
                f"{words.duration(self._world.now_us / 1e6 - self.invoked_us / 1e6)} of virtual time"
            )
        else:
            facts["after"] = words.duration((self.responded_us - self.invoked_us) / 1e6)
            if isinstance(self._result, Displayed):
                result = self._result._view()
                tables, notes = result.tables, result.notes
                facts |= result.facts
            else:
                facts["result"] = one_line(self._result)
        return View(f"Operation {self.call.name}", facts, tables, notes)

    @property
    def op_id(self) -> int:
        """Its number, unique on its host."""
        return self.call.op_id

    @property
    def status(self) -> str:
        """``open``, ``ok`` or ``failed``; what was lost with its machine stays open in the history."""
        if self.responded_us is None:
            return "open"
        return "ok" if self._error is None else "failed"

    def done(self) -> bool:
        """Return whether it has an answer, or never will."""
        return self.responded_us is not None or self._error is not None

    def result(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        """Run virtual time until it is answered; return the result or raise the error.

        Parameters
        ----------
        timeout_s : float
            Virtual seconds from now, by default :data:`mudkit.events.DEFAULT_TIMEOUT_S`; a device without a
            network would otherwise run for ever.

        Raises
        ------
        OperationTimeout
            There was no answer by then.
        OperationLost
            Its machine was killed before.
        ReentrantRun
            Called inside an event, a callback or a scheduled call.

        Warns
        -----
        OutageEndedWarning
            A cut by ``lab.faults`` ended meanwhile.
        """
        if self._is_due or (self.responded_us is None and self._error is None):
            began_us, ended = self._world.now_us, len(self._world.ended_cuts)
            self._world.run_until(self._is_complete, self._deadline_us(timeout_s))
            self._note_run(began_us, ended)
        self._has_called_back = self.responded_us is not None or self._error is not None
        if self._error is None and self.responded_us is not None:
            return self._result
        return self._result_or_raise(timeout_s)

    def exception(self) -> BaseException | None:
        """Return its error; None: it has none, or no answer yet. Virtual time stands still."""
        return self._error

    def cancel(self) -> bool:
        """Cancel it, if its machine can still undo it: a write that was never sent, a read without an answer.

        Inside an event or callback the machine is asked at the end of this moment, and the return is False.

        Returns
        -------
        bool
            Whether it is cancelled; then it raises :class:`~mudkit.errors.OperationCancelled`.
        """
        if not self.done():
            self._world.call(self.process, Cancel(self.op_id))
        return isinstance(self._error, OperationCancelled)

    def add_done_callback(self, f: Callable[[Operation], None]) -> None:
        """Call ``f`` with this operation when it is answered; at once, if it is.

        An exception of ``f`` becomes a row of ``lab.problems`` and a :class:`~mudkit.errors.FailureWarning`.
        """
        if self._has_called_back:
            f(self)
            return
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(f)
        if self.done() and not self._is_due:
            self._schedule_callbacks()

    def with_result(self, make: Callable[[Any], Any]) -> Operation:
        """Return it, with the result that ``make`` makes of the machine's: an object of the system's API."""
        self._make_result = make
        if self.status == "ok":
            self._result = make(self._result)
        return self

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the result in a notebook's cell, and yield to widgets and interrupts meanwhile."""
        timeout_s = DEFAULT_TIMEOUT_S
        deadline_us = self._deadline_us(timeout_s)
        began_us, ended = self._world.now_us, len(self._world.ended_cuts)
        yield from self.process.run_until(self._is_complete, deadline_us).__await__()
        self._note_run(began_us, ended)
        return self._result_or_raise(timeout_s)

    def complete(self, result: Any, error: BaseException | None) -> None:
        """Store the result or the error, and the time, and schedule the callbacks; it is called once."""
        self._result, self._error = result, error
        if self._make_result is not None and error is None:
            self._result = self._make_result(result)
        self.responded_us = self._world.now_us
        if self._callbacks or not self._world.is_idle:
            self._schedule_callbacks()

    def mark_lost(self) -> None:
        """Fail it with OperationLost: its machine was killed, or does not run."""
        now_us = self._world.now_us
        self._error = OperationLost(
            f"{self.call.name!r} will not be answered.",
            where=f"{self.process.system} on {self.process.host.name}",
            found=f"its machine was killed at {now_us / 1e6:,.3f} s, before it answered"
            if self.process.machine is not None or self.invoked_us < now_us
            else f"its machine does not run at {now_us / 1e6:,.3f} s: it was killed, or the device is off",
            remedy="restart it and call again; the lost call may have been executed or not",
        )
        self._schedule_callbacks()

    def _note_run(self, began_us: int, ended: int) -> None:
        """Add the virtual time since ``began_us`` to that of the waits; warn if outages have ended since.

        ``ended`` is how many had ended before.
        """
        world = self._world
        self._ran_us += world.now_us - began_us
        if over := world.ended_cuts[ended:]:
            cuts = (f"{device} at {at_us / 1e6:,.3f} s" for at_us, device in over)
            ran = words.duration((world.now_us - began_us) / 1e6)
            warnings.warn(
                f"Waiting for {self.call.name!r} ran {ran} of virtual time, past the end of an outage: "
                f"{words.listing(cuts, 3)}.\n    To act during the outage, use lab.run or lab.schedule; "
                "to wait less, result(timeout_s=…).",
                OutageEndedWarning,
                stacklevel=3,
            )

    def _is_complete(self) -> bool:
        """Return whether it has been answered and its callbacks have run."""
        return (self.responded_us is not None or self._error is not None) and not self._is_due

    def _schedule_callbacks(self) -> None:
        """Schedule the callbacks for the end of this moment."""
        self._is_due = True
        self._world.schedule_action(self._world.now_us, self._run_callbacks)

    def _run_callbacks(self, _: None) -> None:
        """Run the callbacks, each once; an exception is recorded as a failure."""
        self._has_called_back, self._is_due = True, False
        while self._callbacks:
            try:
                self._callbacks.pop(0)(self)
            except Exception as error:
                process = self.process
                doing = f"in a callback of <{self.call.name} on {process.host.name}: {self.status}>"
                try:
                    self._world.record_failure(process.host, process.system, error, doing)
                except Exception:  # raised below; the other callbacks run when time is run again
                    if self._callbacks:
                        self._schedule_callbacks()
                    raise

    def _deadline_us(self, timeout_s: float) -> int:
        """Return the time at which a timeout from now ends; raise ParameterError if it is not usable."""
        is_number = isinstance(timeout_s, int | float | np.integer | np.floating)
        if not is_number or not 0 < timeout_s <= _MAX_TIMEOUT_S:
            raise ParameterError(
                "This timeout is not usable.",
                where="timeout_s",
                found=brief(timeout_s),
                expected=f"a number of seconds over 0, at most {_MAX_TIMEOUT_S:,}",
            )
        return self._world.now_us + round(timeout_s * 1e6)

    def _result_or_raise(self, timeout_s: float) -> Any:
        """Return the result, or raise the error: OperationTimeout if there is no answer yet."""
        if self._error is not None:
            raise self._error
        if self.responded_us is not None:
            return self._result
        host, now_us = self.process.host, self._world.now_us
        state = "has a network" if host.is_online else "has no network"
        reasons = ", ".join(host.down_reasons())
        ask_machine = getattr(self.process.machine, "what_blocks", None)
        blocked, remedy = (ask_machine and ask_machine(now_us, self.op_id)) or ("", "")
        raise OperationTimeout(
            f"{self.call.name!r} was not answered within {timeout_s:,g} s of virtual time.",
            where=f"{self.process.system} on {host.name}",
            found=f"{host.name} {state} ({reasons or host.network}) at {now_us / 1e6:,.3f} s, "
            f"after result() ran {words.duration(self._ran_us / 1e6)} of virtual time"
            + (f"; {blocked}" if blocked else ""),
            expected="an answer",
            remedy=remedy or "restore its network and machines, or wait longer with timeout_s",
        )
