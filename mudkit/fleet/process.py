"""A machine on its host: what it was given, what it was asked, and who listens to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from mudkit.errors import ParameterError, brief
from mudkit.events import Call, Complete, ContextChanged, LinkUp, Machine, Make, Ports
from mudkit.fleet.operation import Operation
from mudkit.fleet.runtime import Runtime, Site
from mudkit.fleet.store import MemoryStore, SqliteStore, unheeded
from mudkit.sources.streams import Stream

__all__ = ["Process"]

_MOST_SHOWN: Final = 200
"""Letters that an error shows of the payload of a callback that has failed."""


class Process:
    """A machine on a host, with what it was given; the machine goes when it is killed, the store stays."""

    __slots__ = (
        "_draws",
        "_listeners",
        "_make",
        "_stream",
        "_world",
        "address",
        "handled",
        "host",
        "machine",
        "name",
        "open",
        "sent_bytes",
        "session",
        "store",
        "system",
        "timers",
        "watch",
    )

    def __init__(
        self,
        world: Runtime[Process, Operation],
        host: Site,
        system: str,
        make: Make,
        name: str,
        watch: frozenset[str],
        store: MemoryStore | SqliteStore,
    ) -> None:
        self._world = world
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
        held_down = ", ".join(self.host.held_down())
        return "running" if self.host.is_online else f"no network ({held_down or 'cut'})"

    def entropy(self, n: int) -> bytes:
        """Give random bytes, the port of that name: they go on after a restart and never repeat."""
        if n < 0:
            raise ParameterError(
                "There are no fewer bytes than none.", where="n", found=brief(n), expected="0 or more"
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
            self._world.failed(self.host, self.system, error, "making it")

    def begin(self) -> None:
        """Make the machine, and tell it of its link and its context."""
        self.session += 1
        self.machine = self._make(Ports(self.store, self.entropy, self.address))
        if self.session > 1:
            self._world.on_incident(self.host, "restarted", self.name or None)
        if context := self.host.snapshot():
            self._world.soon(self, ContextChanged(context))
        if self.host.is_online:
            self._world.soon(self, self.greeting())

    def greeting(self) -> LinkUp:
        """Say that there is a network."""
        return LinkUp(self.address, self.host.network)

    def kill(self) -> None:
        """End the machine at once: its timers are gone, its callers learn it, what was committed stays.

        What was to kill it at a crash point has nothing more to do.
        """
        self.store.crash_point = unheeded
        if self.machine is None:
            return
        self.store.rollback()
        self.machine = None
        self.timers.clear()
        lost, self.open = self.open, {}
        for operation in lost.values():
            operation.lose()
        self._world.on_incident(self.host, "killed", self.name or None)

    def call(self, operation: msgspec.Struct | str, **arguments: Any) -> Operation:
        """Ask the machine for something, now; see :class:`mudkit.events.Call`.

        When it returns, the machine has handled it and what that stored is committed, unless it is called by
        something that happens in virtual time: then that is so at the end of this moment.
        """
        op_id = next(self.host.op_ids)
        call = Call(op_id, operation, arguments)
        made = Operation(self._world, self, call)
        self._world.on_operation(made)
        if self.machine is None:
            made.lose()
            return made
        self.open[op_id] = made
        self._world.call(self, call)
        return made

    def answer(self, answer: Complete) -> None:
        """Hand an answer to who called; one that comes twice, or that nobody waits for, is left."""
        error = answer.error
        if error is not None and not isinstance(error, BaseException):
            raise TypeError(f"the error of Complete is an exception, not {brief(error)}")
        operation = self.open.pop(answer.op_id, None)
        if operation is not None:
            operation.settle(answer.result, error)
            self._world.on_answer(operation)

    def listen(self, app: str, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with the payload of each notification to an application."""
        self._listeners.setdefault(app, []).append(callback)

    def notify(self, app: str, payload: Any) -> None:
        """Tell who listens, as an event of its own."""
        for callback in self._listeners.get(app, ()):
            self._world.at(self._world.now_us, self._tell, (app, callback, payload))

    def _tell(self, what: tuple[str, Callable[[Any], None], Any]) -> None:
        app, callback, payload = what
        try:
            callback(payload)
        except Exception as error:
            doing = f"in a callback of {app!r}, told {brief(payload, _MOST_SHOWN)}"[:_MOST_SHOWN]
            self._world.failed(self.host, self.system, error, doing)
