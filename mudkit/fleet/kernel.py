"""The kernel: it runs machines in virtual time and carries out what they decide.

Events are ordered by ``(t_us, priority, seq)``; the counter belongs to the world. The kernel knows no system:
a machine is something with ``handle``.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappush
from typing import Any, Final

from mudkit.errors import ParameterError, ReentrantRun, SimulationProblem
from mudkit.events import (
    CancelTimer,
    Complete,
    Effect,
    Event,
    Notify,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.fleet.bill import Bill, BillRow
from mudkit.fleet.host import Device, Host, Process
from mudkit.fleet.link import Direction, Draws, Leg, Link, Transfer, profile_of
from mudkit.fleet.operation import Operation
from mudkit.fleet.store import Killed
from mudkit.progress import Interrupts, held_back
from mudkit.sources.streams import Stream

__all__ = ["World"]

LINK, ARRIVAL, TIMER, CALL = range(4)
"""At one time first links change, then messages arrive, then timers fire, then applications ask."""

_SERVER_LATENCY_US: Final = 500
"""Between two servers of one data centre."""
_CHUNK: Final = 1 << 13
_STORM: Final = 128
"""Chunks of events without time going on that are no accident any more: a million events."""


class World:
    """Virtual time, hosts, machines and the bill of one run.

    Who records a run sets the attributes that begin with ``on_``.

    Parameters
    ----------
    seed : int
        Same seed, same bytes.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.now_us = 0
        self.handled = 0
        """Events that machines have handled."""
        self.hosts: dict[str, Host] = {}
        self.at_address: dict[str, Process] = {}
        self.meddle: Callable[[Transfer], Sequence[int]] | None = None
        """Asked before a message is handed over: after which delays, in µs; none loses it, two repeat it."""
        self.on_leg: Callable[[Leg, int, bool], None] | None = None
        """Told of every transfer that has left a direction, with its bytes that got through; was it cut?"""
        self.on_fate: Callable[[Transfer, str], None] | None = None
        """Told what became of a message: one of :data:`mudkit.trace.schema.FATES`."""
        self.on_record: Callable[[Process, Record], None] = lambda process, effect: None
        self.on_link: Callable[[Device], None] = lambda device: None
        """Told when a device's link has gone up or down."""
        self.on_incident: Callable[[Host, str, str | None], None] = lambda host, incident, detail: None
        self.on_install: Callable[[Process], None] = lambda process: None
        self.on_operation: Callable[[Operation], None] = lambda operation: None
        self.on_answer: Callable[[Operation], None] = lambda operation: None
        self._bill = Bill()
        self._latencies = Draws(Stream(seed, "latency up")), Draws(Stream(seed, "latency down"))
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []
        self._seq = 0
        self._runs = False
        self._when_arrived, self._when_due = self._arrive, self._fire
        self._carry_out: dict[type, Callable[[Process, Any], None]] = {
            Send: self._send, SetTimer: self._set_timer, CancelTimer: self._cancel_timer,
            Complete: self._complete, Notify: self._notify, Record: self._record,
        }  # fmt: skip

    # -- what there is

    def add_server(self, name: str) -> Host:
        """Add a host without a link."""
        host = Host(self, self._free(name))
        self.hosts[name] = host
        return host

    def add_device(self, name: str, link: str = "lte") -> Device:
        """Add a device with a link, which is up."""
        profile = profile_of(link)
        device = Device(self, self._free(name), Link(profile, name, *self._latencies))
        self.hosts[name] = device
        return device

    def register(self, process: Process) -> None:
        """Let a machine be reached at its address."""
        if process.address in self.at_address:
            raise ParameterError(
                "There is a machine at this address.", where="name", found=process.address,
                expected="a name of its own for each machine of a host",
            )  # fmt: skip
        self.at_address[process.address] = process
        self.on_install(process)

    def readdress(self, host: Host, address: str) -> None:
        """Reach the machines of a host at another address from now on."""
        if any(each is not host and address in (each.address, each.name) for each in self.hosts.values()):
            raise ParameterError("This address is in use.", where="address", found=address)
        for process in host.processes:
            del self.at_address[process.address]
            process.address = address + process.address.removeprefix(host.address)
            self.at_address[process.address] = process
        host.address = address

    def bill(self) -> Iterator[BillRow]:
        """Give the bill as of now: what is scheduled beyond this moment is not on it."""
        corrections: dict[int, list[float]] = {}
        for host in self.hosts.values():
            if host.link is not None:
                for account, more_bytes, more_mj in host.link.corrections(self.now_us):
                    row = corrections.setdefault(id(account), [0, 0.0])
                    row[0] += more_bytes
                    row[1] += more_mj
        for account in self._bill.accounts():
            more = corrections.get(id(account), (0, 0.0))
            yield BillRow(
                account.system, account.device, account.direction, account.messages,
                account.bytes + int(more[0]), account.radio_mj + more[1], account.wakeups,
            )  # fmt: skip

    def radio_mj(self, device: Device) -> float:
        """Say what the radio of a device has taken so far."""
        charged = sum(account.radio_mj for account in self._bill.of_device(device.name))
        return charged + sum(more_mj for _, _, more_mj in device.link.corrections(self.now_us))

    # -- what happens

    def at(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something at a time, before anything else that happens then and is not waiting already."""
        if t_us < self.now_us:
            raise ParameterError(
                "This time is over.", found=f"{t_us} µs", expected=f"{self.now_us} µs or later"
            )
        self._later(t_us, LINK, action, argument)

    def soon(self, process: Process, event: Event, *, is_call: bool = False) -> None:
        """Let a machine handle an event, now; if it is killed before, its next life does not."""
        what = process, process.session, event
        self._later(self.now_us, CALL if is_call else LINK, self._event, what)

    def ask_at(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Let an application do something at a time, after everything else that happens then."""
        self._later(t_us, CALL, action, argument)

    def was_cut(self, leg: Leg, gone: int) -> None:
        """Take note of a transfer that was cut, and tell its sender."""
        if self.on_leg is not None:
            self.on_leg(leg, gone, True)
        self._fail(leg.transfer, "cut")

    def under_way(self) -> list[Transfer]:
        """Give the messages that are on their way."""
        found = [entry[4] for entry in self._heap if type(entry[4]) is Transfer and entry[3] != self._failed]
        links = [host.link for host in self.hosts.values() if host.link is not None]
        found += [leg.transfer for link in links for way in (link.up, link.down) for leg in way.underway]
        return sorted(found, key=lambda transfer: (transfer.sent_us, transfer.source, transfer.to))

    def run(self, until_us: int, tick: Callable[[int], None] | None = None) -> None:
        """Let virtual time go on.

        Parameters
        ----------
        until_us : int
            Everything up to this time happens, this time included.
        tick : callable, optional
            Called now and then with the time; what it raises stops the run between two events.

        Raises
        ------
        SimulationProblem
            Events follow each other without time going on.
        ReentrantRun
            Time is going on already.
        """
        heap, pop = self._heap, heapq.heappop
        with self._running() as interrupts:
            while heap and heap[0][0] <= until_us:
                for _ in range(_CHUNK):
                    if not heap or heap[0][0] > until_us:
                        break
                    self.now_us, _, _, action, argument = pop(heap)
                    action(argument)
                self._watch_for_storms()
                interrupts.check()
                if tick is not None:
                    tick(self.now_us)
            self.now_us = max(self.now_us, until_us)

    def run_until(self, done: Callable[[], bool], deadline_us: int, turn_s: float = float("inf")) -> None:
        """Let virtual time go on until something holds, a deadline has come, or a real time has passed.

        Raises
        ------
        SimulationProblem, ReentrantRun
            As :meth:`run`.
        """
        heap, pop = self._heap, heapq.heappop
        stop_s = time.monotonic() + turn_s
        with self._running() as interrupts:
            while not done():
                interrupts.check()
                if not heap or heap[0][0] > deadline_us:
                    self.now_us = max(self.now_us, deadline_us)
                    return
                for _ in range(_CHUNK):
                    self.now_us, _, _, action, argument = pop(heap)
                    action(argument)
                    if done() or not heap or heap[0][0] > deadline_us or time.monotonic() > stop_s:
                        break
                self._watch_for_storms()
                if time.monotonic() > stop_s:
                    return

    # -- carrying out

    @contextmanager
    def _running(self) -> Iterator[Interrupts]:
        """Refuse another run inside, and spare Python the search for cycles in millions of events.

        Ctrl-C comes between two events.
        """
        if self._runs:
            raise ReentrantRun(
                "Virtual time is going on already.",
                found="result() or run() inside a callback",
                expected="one that lets time go on, outside of what happens in it",
                remedy="use add_done_callback instead of result()",
            )
        self._runs, self._still, self._since_us = True, 0, self.now_us
        collected = gc.isenabled()
        gc.disable()
        try:
            with held_back() as interrupts:
                yield interrupts
        finally:
            self._runs = False
            if collected:
                gc.enable()

    def _watch_for_storms(self) -> None:
        """Stop events that follow each other without time going on; and clear away young cycles."""
        gc.collect(0)
        self._still = self._still + 1 if self.now_us == self._since_us else 0
        self._since_us = self.now_us
        if self._still > _STORM:
            raise SimulationProblem(
                "Events follow each other without time going on.",
                found=f"{self._still * _CHUNK:,} events at {self.now_us:,} µs",
                remedy="a timer needs a delay",
            )

    def _later(self, t_us: int, priority: int, action: Callable[[Any], None], argument: Any) -> None:
        self._seq += 1
        heapq.heappush(self._heap, (t_us, priority, self._seq, action, argument))

    def _free(self, name: str) -> str:
        if name in self.hosts:
            raise ParameterError("There is a device or server of this name.", where="name", found=name)
        return name

    def _event(self, what: tuple[Process, int, Event]) -> None:
        process, session, event = what
        if session == process.session:
            self._handle(process, event)

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
            process.kill()
            return
        except Exception as error:
            store.rollback()
            error.add_note(
                f"in {process.system} on {process.host.name} at {self.now_us / 1e6:.6f} s, handling {event!r}"
            )
            raise
        carry_out = self._carry_out
        for effect in effects:
            carry_out[type(effect)](process, effect)

    def _set_timer(self, process: Process, effect: SetTimer) -> None:
        if effect.delay_us < 0:
            raise ParameterError(
                "A timer cannot fire in the past.", found=f"{effect!r}", expected="delay_us >= 0"
            )
        self._seq = seq = self._seq + 1
        process.timers[effect.name] = seq
        due_us = self.now_us + effect.delay_us
        heappush(self._heap, (due_us, TIMER, seq, self._when_due, (process, effect.name, seq)))

    def _fire(self, what: tuple[Process, str, int]) -> None:
        process, name, seq = what
        if process.timers.get(name) == seq:
            del process.timers[name]
            self._handle(process, TimerFired(name))

    def _cancel_timer(self, process: Process, effect: CancelTimer) -> None:
        process.timers.pop(effect.name, None)

    def _send(self, process: Process, effect: Send) -> None:
        to, message, now_us = effect.to, effect.message, self.now_us
        host, target = process.host, self.at_address.get(to)
        onward = None if target is None or target.host.link is None else target.host.link.down
        transfer = Transfer(
            process, process.session, process.address, to, message, size_bytes(message), now_us, onward
        )
        if not host.is_online:
            self._fail(transfer, "no link")
        elif host.link is not None:
            self._begin(transfer, process, host.link.up)
        elif onward is None:
            self._later(now_us + _SERVER_LATENCY_US, ARRIVAL, self._reach, transfer)
        elif target is not None and target.host.is_online:
            self._begin(transfer, process, onward)
        else:
            self._fail(transfer, "no link")

    def _begin(self, transfer: Transfer, sender: Process, direction: Direction) -> None:
        if direction.sender is not sender:
            direction.sender = sender
            direction.account = self._bill.account(sender.system, direction.link.device, direction.name)
        leg = direction.begin(transfer, self.now_us)
        self._seq = seq = self._seq + 1
        heappush(self._heap, (leg.arrive_us, ARRIVAL, seq, self._when_arrived, leg))

    def _arrive(self, leg: Leg) -> None:
        if leg.direction.underway.pop(leg, leg) is leg:  # it was cut
            return
        transfer = leg.transfer
        if self.on_leg is not None:
            self.on_leg(leg, transfer.size_bytes, False)
        onward = transfer.then
        if onward is not None and onward is not leg.direction:
            if self.hosts[onward.link.device].is_online:
                self._begin(transfer, transfer.sender, onward)
            else:
                self._fail(transfer, "no link")
        elif self.meddle is not None:
            self._reach(transfer)
        else:
            self._hand_over(transfer)

    def _reach(self, transfer: Transfer) -> None:
        if self.meddle is None:
            self._hand_over(transfer)
            return
        delays_us = self.meddle(transfer)
        if not delays_us and self.on_fate is not None:
            self.on_fate(transfer, "lost")
        for number, delay_us in enumerate(delays_us):
            copy = transfer
            if number:
                copy = Transfer(
                    transfer.sender, transfer.session, transfer.source, transfer.to, transfer.message,
                    transfer.size_bytes, transfer.sent_us, is_repeat=True,
                )  # fmt: skip
            self._later(self.now_us + delay_us, ARRIVAL, self._hand_over, copy)

    def _hand_over(self, transfer: Transfer) -> None:
        target = self.at_address.get(transfer.to)
        if target is None or target.machine is None:
            self._fail(transfer, "nobody there")
        elif not target.host.is_online:
            self._fail(transfer, "no link")
        else:
            if self.on_fate is not None:
                self.on_fate(transfer, "repeated" if transfer.is_repeat else "arrived")
            self._handle(target, Received(transfer.source, transfer.message))

    def _fail(self, transfer: Transfer, fate: str) -> None:
        if self.on_fate is not None:
            self.on_fate(transfer, fate)
        self._later(self.now_us, ARRIVAL, self._failed, transfer)

    def _failed(self, transfer: Transfer) -> None:
        """Tell the sender, unless it was killed since: its next life knows nothing of the message."""
        sender: Process = transfer.sender
        if transfer.session == sender.session:
            self._handle(sender, SendFailed(transfer.to, transfer.message))

    def _complete(self, process: Process, effect: Complete) -> None:
        process.answer(effect.op_id, effect.result, effect.error)

    def _notify(self, process: Process, effect: Notify) -> None:
        process.notify(effect.app, effect.payload)

    def _record(self, process: Process, effect: Record) -> None:
        self.on_record(process, effect)
