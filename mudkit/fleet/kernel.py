"""The kernel: it runs machines in virtual time and carries out what they decide.

It knows no system: a machine is something with ``handle``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from mudkit.errors import ParameterError, brief
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    Effect,
    Event,
    Notify,
    Record,
    Send,
    SetTimer,
    TimerFired,
)
from mudkit.fleet.clock import LINK, TIMER
from mudkit.fleet.device import Device
from mudkit.fleet.failures import Failures, effects_of, not_carried_out, raise_failure
from mudkit.fleet.host import Host
from mudkit.fleet.link import profile_of
from mudkit.fleet.operation import Operation
from mudkit.fleet.process import Process
from mudkit.fleet.runtime import Site
from mudkit.fleet.store import Killed
from mudkit.fleet.transport import Transport
from mudkit.sources.streams import Stream

__all__ = ["World"]

_SERVER_LATENCY_US: Final = 500
"""Between two servers of one data centre."""
_MOST_SHOWN: Final = 200
"""Letters of an event that is told with a failure."""
_SEQUENCES: Final = frozenset((tuple, list))


class World(Transport):
    """Virtual time, hosts, machines and the bill of one run.

    Who records a run sets the attributes that begin with ``on_``.

    Parameters
    ----------
    seed : int
        Same seed, same bytes.
    """

    __slots__ = (
        "_carry_out",
        "_failures",
        "_when_due",
        "on_answer",
        "on_failure",
        "on_incident",
        "on_install",
        "on_link",
        "on_operation",
        "seed",
    )

    def __init__(self, seed: int = 0) -> None:
        super().__init__(Stream(seed, "latency up"), Stream(seed, "latency down"))
        self.seed = seed
        self.on_link: Callable[[Device], None] = lambda device: None
        """Told when a device's link has gone up or down."""
        self.on_incident: Callable[[Host, str, str | None], None] = lambda host, incident, detail: None
        self.on_failure: Callable[[Site, str, Exception], None] = raise_failure
        """Told what has failed in which system. As long as nobody is there to be told, it comes out of
        whatever lets time go on; who judges a machine wants it so."""
        self._failures = Failures()
        self.on_install: Callable[[Process], None] = lambda process: None
        self.on_operation: Callable[[Operation], None] = lambda operation: None
        self.on_answer: Callable[[Operation], None] = lambda operation: None
        self._when_due = self._fire  # bound once: there is one for each timer in the heap
        self._carry_out: dict[type, Callable[[Process, Any], None]] = {
            Send: self._send,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Complete: Process.answer,
            Notify: self._notify,
        }
        self.on_record = lambda process, effect: None

    # -- what there is

    def add_server(self, name: str) -> Host:
        """Add a host without a link."""
        self.check_free(name)
        self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def add_device(self, name: str, link: str = "lte") -> Device:
        """Add a device with a link, which is up."""
        profile = profile_of(link)
        self.check_free(name)
        device = Device(self, name, self.new_link(profile, name))
        self.hosts[name] = device
        return device

    # -- what happens

    @property
    def on_record(self) -> Callable[[Process, Record], None]:
        """Told of every row that a machine has for the run's trace."""
        return self._carry_out[Record]

    @on_record.setter
    def on_record(self, on_record: Callable[[Process, Record], None]) -> None:
        self._carry_out[Record] = on_record

    def soon(self, process: Process, event: Event) -> None:
        """Let a machine handle an event, now; if it is killed before, its next life does not."""
        self.event_queue.add(self.now_us, LINK, self._event, (process, process.session, event))

    def call(self, process: Process, event: Call) -> None:
        """Let a machine handle what an application asks for; see :meth:`Clock.ask`."""
        self.ask(self._event, (process, process.session, event))
        if self._failures.count:
            self.tell_failures()

    @property
    def handled(self) -> int:
        """How many events machines have handled so far, those on devices and those on servers."""
        return sum(process.handled for host in self.hosts.values() for process in host.processes)

    # -- carrying out

    def _event(self, what: tuple[Process, int, Event]) -> None:
        process, session, event = what
        if session == process.session:
            self._handle(process, event)

    def _handle(self, process: Process, event: Event) -> None:
        machine, store = process.machine, process.store
        if machine is None:
            return
        process.handled += 1
        effects: Sequence[Effect] = ()
        try:
            effects = machine.handle(self.now_us, event)
            if type(effects) not in _SEQUENCES:  # one that is made on the way writes on the way, too
                effects = effects_of(process, effects)
            if store.is_dirty:
                store.crash_point("before commit")
                store.commit()
                store.crash_point("after commit")
        except Killed:
            if not store.is_dirty:  # what is committed has happened; only nobody hears of it
                for effect in effects:
                    if type(effect) is Record:
                        self.on_record(process, effect)
            process.host.kill()
            return
        except Exception as error:
            store.rollback()
            self._fails(process, event, error)
            return
        carry_out = self._carry_out
        for effect in effects:
            try:
                carry_out[type(effect)](process, effect)
            except Exception as error:
                self._fails(process, event, not_carried_out(process, effect, error))

    def _fails(self, process: Process, event: Event, error: Exception) -> None:
        """Take note that a machine has failed: that ends the event, a call included, and nothing else."""
        self.failed(process.host, process.system, error, f"handling {brief(event, _MOST_SHOWN)}")
        if type(event) is Call:
            process.answer(Complete(event.op_id, error=error))

    def failed(self, host: Site, system: str, error: Exception, doing: str) -> None:
        """Take note of a failure of a machine or of a callback, and tell it when time stands still again."""
        error.add_note(f"in {system} on {host.name} at {self.now_us / 1e6:.6f} s, {doing}")
        self.on_failure(host, system, error)
        self._failures.add(error)

    def run(self, until_us: int, tick: Callable[[int], None] | None = None) -> None:
        """See :meth:`Clock.run`; what has failed meanwhile is told in a :class:`FailureWarning`."""
        super().run(until_us, tick)
        self.tell_failures()

    def run_until(self, done: Callable[[], bool], deadline_us: int, turn_s: float = float("inf")) -> None:
        """See :meth:`Clock.run_until`, and :meth:`run`."""
        super().run_until(done, deadline_us, turn_s)
        self.tell_failures()

    def tell_failures(self) -> None:
        """Warn of what has failed, once, when time stands still."""
        if self._failures.count and self.stands_still:
            warnings.warn(self._failures.take(), stacklevel=4)

    def _set_timer(self, process: Process, effect: SetTimer) -> None:
        if type(effect.delay_us) is not int or effect.delay_us < 0:
            raise ParameterError(
                "This timer cannot be set: it would fire in the past, or between two microseconds.",
                where=f"{process.system} on {process.host.name}",
                found=brief(effect),
                expected="delay_us: a whole number, 0 or more",
            )
        process.timers[effect.name] = timer = process, effect.name
        self.event_queue.add(self.now_us + effect.delay_us, TIMER, self._when_due, timer)

    def _fire(self, timer: tuple[Process, str]) -> None:
        process, name = timer
        if process.timers.get(name) is timer:  # not one that was set since
            del process.timers[name]
            self._handle(process, TimerFired(name))

    def _cancel_timer(self, process: Process, effect: CancelTimer) -> None:
        process.timers.pop(effect.name, None)

    def _notify(self, process: Process, effect: Notify) -> None:
        process.notify(effect.app, effect.payload)
