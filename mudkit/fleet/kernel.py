"""The kernel: it runs machines in virtual time, carries their messages, and charges for these.

It knows no system: a machine is something with ``handle``.

A message of a device goes over the device's link to the current place of its address; from there over the
link of the receiving device, or to a server. To or from a server that has a place it takes the time of the
way (:func:`~mudkit.places.travel_us`). If it does not arrive, its sender gets
:class:`~mudkit.events.SendFailed`.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from mudkit.errors import FailureWarning, ParameterError, SimulationProblem, brief
from mudkit.events import (
    LOCALHOST,
    Call,
    Cancel,
    CancelTimer,
    Complete,
    Effect,
    Event,
    Notify,
    Reason,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    local_address,
    size_bytes,
)
from mudkit.fleet.bill import Bill, BillRow
from mudkit.fleet.clock import ARRIVAL, LINK, TIMER, Clock
from mudkit.fleet.coverage import Coverage
from mudkit.fleet.device import Device
from mudkit.fleet.host import Host, Operation, Process, way_us
from mudkit.fleet.link import Direction, Draws, Leg, Link, LinkProfile, Transfer, profile_of
from mudkit.fleet.load import ServerProfile, ServerQueue
from mudkit.fleet.nearby import are_near, build_nearby_link
from mudkit.fleet.reasons import Reasons
from mudkit.fleet.store import Killed
from mudkit.fleet.transport import Connections, Transport, Trip
from mudkit.places import Place
from mudkit.progress import Interrupts
from mudkit.sources.streams import Stream

_SERVER_LATENCY_US: Final = 500
"""Between two servers of one data centre."""
_LOCAL: Final = local_address("")
"""Beginning of the addresses of machines of the sender's host."""
_MAX_LOCAL_MESSAGES: Final = 1_000_000
"""Maximum number of messages within a host at one event."""
_MAX_SHOWN: Final = 200
"""Maximum length of an event in the note of a failure."""
_SEQUENCES: Final = frozenset((tuple, list))
_MAX_KEPT: Final = 100
"""Maximum number of errors kept for the warning; a machine may fail at each of a million events."""


class World(Clock):
    """Virtual time, hosts, machines and the bill of one run.

    A recorder sets the attributes that begin with ``on_``.

    The way of a message, in this order:

    ================  =================================================================================
    ``_send_nearby``  with short-range links, in place of ``send``: over these, if sender and receiver are
                      near each other; otherwise ``send``
    ``connections``   with a transport, in place of ``send``: it waits for a connection of its hosts, and
                      becomes larger
    ``send``          make a ``Transfer`` of a ``Send``, or fail without a link; to a machine of the same
                      host, pass it on after the sender's other effects
    ``put_on_link``   put it on a direction of a device's link: up, and later down
    ``_arrive``       it has left that direction, unless the link was cut
    ``leave``         with places: it takes the time of its way to or from a server that has one
    ``_forward``      find the machine at its address; if on a device, ``put_on_link`` of that device
    ``_add_to_load``  after the faults of ``fault_hook``, wait for a worker of a server that has a load
    ``_deliver``      make a ``Received`` of it, if the machine runs
    ``_handle``       call the machine's ``handle``, commit its store, and carry out its effects
    ================  =================================================================================

    What fails on the way is a ``SendFailed`` for its sender (``_notify_sender``). Steps that a world does not
    need are not taken: ``_choose_steps`` chooses what is called, as each step is taken for every message.

    Parameters
    ----------
    seed : int
        Same seed, same bytes.

    Attributes
    ----------
    hosts : dict of str to Host
        Devices and servers, by name.
    at_address : dict of str to Process
        The machines, by their current address.
    on_leg : callable or None
        Called for every transfer that has left a direction of a link: the leg, how many of its bytes got
        through, and whether it was cut.
    on_fate : callable or None
        Called with what became of a message: one of :data:`mudkit.trace.schema.FATES`.
    on_link : callable
        Called when a device's link has gone up or down.
    on_failure : callable
        Called with host, system and error of each failure; by default raises it.
    """

    __slots__ = (
        "_addresses",
        "_bill",
        "_carry_out",
        "_deliver_across_link",
        "_deliver_at_server",
        "_failures",
        "_fault_hook",
        "_hand_over",
        "_has_loads",
        "_has_nearby",
        "_has_places",
        "_is_passing_on",
        "_latencies",
        "_local_messages",
        "_nearby_latencies",
        "_send_now",
        "_when_arrived",
        "_when_crossed",
        "_when_delivered",
        "_when_fired",
        "_when_received",
        "at_address",
        "connections",
        "coverage",
        "ended_cuts",
        "hosts",
        "leave",
        "on_answer",
        "on_failure",
        "on_fate",
        "on_incident",
        "on_install",
        "on_leg",
        "on_link",
        "on_operation",
        "seed",
        "when_forwarded",
    )

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.hosts: dict[str, Host] = {}
        self.at_address: dict[str, Process] = {}
        self._addresses: set[str] = set()
        self._fault_hook: Callable[[Transfer], Sequence[int]] | None = None
        self.coverage = Coverage()
        """Its access points, and the devices that use them."""
        self._has_places = self._has_loads = self._has_nearby = False
        """True if at least one server has a place; a load; at least one device a short-range link."""
        self.connections: Connections | None = None
        """The connections of its hosts; None: messages need none."""
        self.ended_cuts: list[tuple[int, str]] = []
        """Injected outages that are over because their time was: end in µs, and the device."""
        self._bill = Bill()
        self._latencies = Draws(Stream(seed, "latency up")), Draws(Stream(seed, "latency down"))
        self._nearby_latencies = (
            Draws(Stream(seed, "latency near up")),
            Draws(Stream(seed, "latency near down")),
        )
        self._is_passing_on = False
        """True while messages within a host are passed on."""
        self._local_messages: deque[tuple[Process, int, Event]] = deque()
        """Messages within a host, with the receiver and its start, until the present event is handled."""
        self._failures = _UnwarnedFailures()
        self.on_leg: Callable[[Leg, int, bool], None] | None = None
        self.on_fate: Callable[[Transfer, str], None] | None = None
        self.on_link: Callable[[Device], None] = lambda device: None
        self.on_incident: Callable[[Host, str, str | None], None] = lambda host, incident, detail: None
        self.on_failure: Callable[[Host, str, Exception], None] = raise_failure
        self.on_install: Callable[[Process], None] = lambda process: None
        self.on_operation: Callable[[Operation], None] = lambda operation: None
        self.on_answer: Callable[[Operation], None] = lambda operation: None
        # Bound once: there is one for each entry of the queue.
        self._when_arrived, self._when_delivered = self._arrive, self._deliver_delayed
        self._when_crossed = self._cross
        self._when_received, self._when_fired = self._deliver, self._fire_timer
        self._carry_out: dict[type, Callable[[Process, Any], None]] = {
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Complete: Process.complete_operation,
            Notify: self._notify,
        }
        self.on_record = lambda process, effect: None
        self._choose_steps()

    # -- hosts and addresses

    def add_server(self, name: str) -> Host:
        """Add a server of a new name: a host without a link, which is always reachable."""
        self.check_name_free(name)
        self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def place_server(self, server: Host, at: Place) -> None:
        """Set the place of a server: messages to and from it take the time of their way."""
        server.at, self._has_places = at, True
        self._choose_steps()

    def load_server(self, server: Host, profile: ServerProfile) -> None:
        """Set the profile of the load of a server; the same one again changes nothing.

        Raises
        ------
        ParameterError
            It has handled events with another profile, or without one.
        """
        if server.load is not None and server.load.profile == profile:
            return
        handled = sum(process.handled for process in server.processes)
        if handled:
            raise ParameterError(
                "The profile of a server cannot change once it has handled events: its queue would be lost.",
                where=f"profile of {server.name}",
                found=f"{handled:,} handled events",
                expected="a profile before the first event",
                remedy="call lab.server(name, profile=…) before lab.run and before the first call",
            )
        server.load, self._has_loads = ServerQueue(server, profile), True
        for process in server.processes:
            process.when_due = self._fire_timer_by_load
        self._choose_steps()

    def add_device(self, name: str, link: str = "lte") -> Device:
        """Add a device of a new name, with a link of a kind of ``LINKS``, which is up."""
        profile = profile_of(link)
        self.check_name_free(name)
        device = Device(self, name, Link(profile, name, self._bill, *self._latencies))
        self.hosts[name] = device
        return device

    def add_nearby_link(self, device: Device, profile: LinkProfile) -> None:
        """Add a short-range link to a device."""
        device.nearby = build_nearby_link(profile, device.name, self._bill, self._nearby_latencies)
        self._has_nearby = True
        self._choose_steps()

    def check_name_free(self, name: str) -> None:
        """Raise ParameterError if a name is taken, or is another device's address."""
        if name in self.hosts or name in self._addresses or name.split("/")[0] == LOCALHOST:
            raise ParameterError(
                "A device or server of this name exists already.",
                where="name",
                found=brief(name),
                expected="a unique name",
            )

    def register(self, process: Process) -> None:
        """Register a machine at its address, or raise ParameterError if it is in use."""
        if process.address in self.at_address:
            raise ParameterError(
                "A machine at this address exists already.",
                where="name",
                found=process.address,
                expected="a unique name for each machine of a host",
                remedy="use the installed one; a cell that is run twice installs twice",
            )
        self.at_address[process.address] = process
        process.when_due = self._fire_timer if process.host.load is None else self._fire_timer_by_load

    def unregister(self, process: Process) -> None:
        """Remove a machine that could not be created from its address."""
        del self.at_address[process.address]

    def readdress(self, host: Host, address: str) -> None:
        """Change the address of a host and its machines, or raise ParameterError if it is in use."""
        is_taken = self.hosts.get(address, host) is not host
        is_taken |= address in self._addresses and address != host.address
        moved = {address + process.address.removeprefix(host.address): process for process in host.processes}
        taken = [new for new, process in moved.items() if self.at_address.get(new, process) is not process]
        is_local = address.split("/")[0] == LOCALHOST
        if taken or is_taken or is_local:
            raise ParameterError(
                "This address is in use.",
                where="address",
                found=(taken or [address])[0],
                expected="a unique address for each device",
            )
        for process in host.processes:
            del self.at_address[process.address]
        for new, process in moved.items():
            process.address = new
            self.at_address[new] = process
        if self.connections is not None:
            self.connections.close_all(host)
        self._addresses.discard(host.address)
        self._addresses.add(address)
        host.address = address

    # -- the bill

    def split_bill(self, reason_of: Callable[[str, Any], tuple[Reason, Sequence[Hashable]]]) -> None:
        """Split the bill by reason (:class:`~mudkit.fleet.reasons.Reasons`), before devices are added."""
        self._bill.sort = Reasons(self.at_address, reason_of).sort

    @property
    def is_bill_split(self) -> bool:
        """True if the bill is split by reason."""
        return self._bill.sort is not None

    def bill(self) -> Iterator[BillRow]:
        """Yield the bill as of now: scheduled use beyond this moment is not on it."""
        for key, rows in groupby((row for _, row in self.bill_by_reason()), lambda row: row[:3]):
            sums = (sum(column) for column in zip(*(row[3:] for row in rows), strict=True))
            yield BillRow(*key, *sums)

    def bill_by_reason(self) -> Iterator[tuple[str, BillRow]]:
        """Yield the bill as of now by reason, which is empty unless the bill is split."""
        corrections: dict[int, list[float]] = {}
        for host in self.hosts.values():
            for link in (host.link, host.nearby):
                if link is not None:
                    for account, more_bytes, more_mj in link.corrections(self.now_us):
                        row = corrections.setdefault(id(account), [0, 0.0])
                        row[0] += more_bytes
                        row[1] += more_mj
        for account in self._bill.accounts():
            more = corrections.get(id(account), (0, 0.0))
            yield (
                account.reason,
                BillRow(
                    account.system,
                    account.device,
                    account.direction,
                    account.messages,
                    account.bytes + int(more[0]),
                    max(account.radio_mj + more[1], 0.0),  # less than none by rounding
                    account.wakeups,
                ),
            )

    def used(self, device: Device) -> tuple[int, float]:
        """Return how many messages a device has had so far, both ways, and the energy of its radio in mJ."""
        return sum(account.messages for account in self._bill.of_device(device.name)), self.radio_mj(device)

    def radio_mj(self, device: Device) -> float:
        """Return the energy that the radios of a device have used so far."""
        charged = sum(account.radio_mj for account in self._bill.of_device(device.name))
        corrected = charged + sum(more_mj for _, _, more_mj in device.link.corrections(self.now_us))
        if device.nearby is not None:
            corrected += sum(more_mj for _, _, more_mj in device.nearby.corrections(self.now_us))
        return max(corrected, 0.0)  # less than none by rounding

    # -- machines

    @property
    def on_record(self) -> Callable[[Process, Record], None]:
        """Callback for each row that a machine records."""
        return self._carry_out[Record]

    @on_record.setter
    def on_record(self, on_record: Callable[[Process, Record], None]) -> None:
        """Set the callback for each row that a machine records."""
        self._carry_out[Record] = on_record

    def schedule_event(self, process: Process, event: Event) -> None:
        """Schedule an event for a machine at the current time; a kill of the machine drops it."""
        self.event_queue.add(
            self.now_us, LINK, self._handle_scheduled, (process, process.start_number, event)
        )

    def call(self, process: Process, event: Call | Cancel) -> None:
        """Pass an application's call, or its end, to a machine: now, after everything else that is due.

        While time stands still, the call is handled when this returns; otherwise it is scheduled.
        """
        if self.is_idle and not self.event_queue.is_due(self.now_us):
            with Interrupts():
                self._handle(process, event)
        else:
            self.execute_call(self._handle_scheduled, (process, process.start_number, event))
        if self._failures.count:
            self.warn_failures()

    @property
    def handled(self) -> int:
        """Number of events that machines have handled so far, on devices and on servers."""
        return sum(process.handled for host in self.hosts.values() for process in host.processes)

    def _handle_scheduled(self, what: tuple[Process, int, Event]) -> None:
        """Pass a scheduled event to its machine, unless this was restarted since."""
        process, start_number, event = what
        if start_number == process.start_number:
            self._handle(process, event)

    def _handle(self, process: Process, event: Event) -> None:
        """Call ``handle`` of a machine, commit its store, carry out the effects; roll back on an error."""
        machine, store = process.machine, process.store
        if machine is None:
            return
        process.handled += 1
        effects: Sequence[Effect] = ()
        try:
            effects = machine.handle(self.now_us, event)
            if type(effects) not in _SEQUENCES:  # a generator also writes to the store while it runs
                effects = _effects_of(process, effects)
            if store.is_dirty:
                store.crash_point("before commit")
                store.commit()
                store.crash_point("after commit")
        except Killed:
            if not store.is_dirty:  # committed: keep its records, drop its other effects
                for effect in effects:
                    if type(effect) is Record:
                        self.on_record(process, effect)
            process.host.kill()
            return
        except Exception as error:
            store.rollback()
            self._fail_event(process, event, error)
            return
        carry_out = self._carry_out
        for effect in effects:
            try:
                carry_out[type(effect)](process, effect)
            except Exception as error:
                self._fail_event(process, event, _effect_error(process, effect, error))
        if self._local_messages and not self._is_passing_on:
            self._pass_on_local_messages()

    def _pass_on_local_messages(self) -> None:
        """Pass the messages that machines of a host have sent each other to them, and what these answer."""
        self._is_passing_on = True
        try:
            for _ in range(_MAX_LOCAL_MESSAGES):
                if not self._local_messages:
                    return
                self._handle_scheduled(self._local_messages.popleft())
            self._local_messages.clear()
            raise SimulationProblem(
                "Machines of one host send each other messages without end.",
                found=f"{_MAX_LOCAL_MESSAGES:,} messages at {self.now_us:,} µs",
                remedy="use a timer with a delay for what is repeated",
            )
        finally:
            self._is_passing_on = False

    def _fail_event(self, process: Process, event: Event, error: Exception) -> None:
        """Record that a machine has failed in an event; a call fails with the error."""
        self.record_failure(process.host, process.system, error, f"handling {brief(event, _MAX_SHOWN)}")
        if type(event) is Call:
            process.complete_operation(Complete(event.op_id, error=error))

    def record_failure(self, host: Host, system: str, error: Exception, doing: str) -> None:
        """Record a failure of a machine or of a callback; it is warned of when time stands still again."""
        error.add_note(f"in {system} on {host.name} at {self.now_us / 1e6:.6f} s, {doing}")
        self.on_failure(host, system, error)
        self._failures.add(error)

    def run(self, until_us: int, tick: Callable[[int], None] | None = None) -> None:
        """Execute events as :meth:`Clock.run`, then emit a :class:`FailureWarning` for new failures."""
        super().run(until_us, tick)
        self.warn_failures()

    def run_until(self, done: Callable[[], bool], deadline_us: int, turn_s: float = float("inf")) -> None:
        """Execute events as :meth:`Clock.run_until`, then emit a :class:`FailureWarning` for new failures."""
        super().run_until(done, deadline_us, turn_s)
        self.warn_failures()

    def warn_failures(self) -> None:
        """Emit one warning for all recorded failures, unless events are being executed."""
        if self._failures.count and self.is_idle:
            warnings.warn(self._failures.pop_warning(), stacklevel=4)

    def _set_timer(self, process: Process, effect: SetTimer) -> None:
        """Carry out SetTimer: schedule the timer in place of a running one of its name."""
        if type(effect.delay_us) is not int or effect.delay_us < 0:
            raise ParameterError(
                "This timer cannot be set: it would fire in the past, or between two microseconds.",
                where=f"{process.system} on {process.host.name}",
                found=brief(effect),
                expected="delay_us: a whole number, 0 or more",
            )
        process.timers[effect.name] = timer = process, effect.name
        self.event_queue.add(self.now_us + effect.delay_us, TIMER, process.when_due, timer)

    def _fire_timer(self, timer: tuple[Process, str]) -> None:
        """Pass TimerFired to a machine, unless the timer was set again or cancelled."""
        process, name = timer
        if process.timers.get(name) is timer:  # not one that was set since
            del process.timers[name]
            self._handle(process, TimerFired(name))

    def _fire_timer_by_load(self, timer: tuple[Process, str]) -> None:
        """Fire a timer that is due on a server with a load: when a worker takes it."""
        process, name = timer
        load = process.host.load
        if load is not None and process.timers.get(name) is timer:
            load.add_timer(self._when_fired, timer)

    def _cancel_timer(self, process: Process, effect: CancelTimer) -> None:
        """Carry out CancelTimer: its entry stays in the queue, and does nothing."""
        process.timers.pop(effect.name, None)

    def _notify(self, process: Process, effect: Notify) -> None:
        """Carry out Notify: schedule the callbacks of the application."""
        process.notify(effect.listener, effect.payload)

    # -- messages

    @property
    def fault_hook(self) -> Callable[[Transfer], Sequence[int]] | None:
        """Callback that returns the delays of a message in µs at its delivery; none: lost, two: repeated."""
        return self._fault_hook

    @fault_hook.setter
    def fault_hook(self, fault_hook: Callable[[Transfer], Sequence[int]] | None) -> None:
        """Set the callback for faults at delivery; None: every message that arrives is delivered once."""
        self._fault_hook = fault_hook
        self._choose_steps()

    def carry_over(self, transport: Transport) -> None:
        """Carry messages over connections from now on; to be called before anything is sent."""
        self.connections = Connections(self, transport)
        self._choose_steps()

    def _choose_steps(self) -> None:
        """Choose what is called at each step of a message."""
        connections = self.connections
        self._send_now: Callable[[Process, Send], None]
        """Called for a message that does not go over a short-range link."""
        self._send_now = self.send if connections is None else connections.send
        self._carry_out[Send] = self._send_nearby if self._has_nearby else self._send_now
        self.when_forwarded: Callable[[Transfer], None]
        """Called for a message that is at the edge of its receiver's network."""
        self.when_forwarded = self._forward if connections is None else self._forward_if_let_in
        self.leave: Callable[[Transfer], None]
        """Called for a message that has left its sender's network."""
        self.leave = self._travel if self._has_places else self.when_forwarded
        self._hand_over: Callable[[Transfer, Link | None], None]
        """Called for a message that has arrived, after all faults."""
        self._hand_over = self._add_to_load if self._has_loads else self._deliver
        has_faults = self._fault_hook is not None
        self._deliver_across_link: Callable[[Transfer, Link | None], None]
        """Called for a message that has crossed the link of its receiver, a device."""
        self._deliver_across_link = self._deliver_through_hook if has_faults else self._deliver
        self._deliver_at_server: Callable[[Transfer, Link | None], None]
        """Called for a message that has reached a server."""
        self._deliver_at_server = self._deliver_through_hook if has_faults else self._hand_over

    def record_cut(self, leg: Leg, sent_bytes: int) -> None:
        """Record a transfer that a cut of its link has ended, and notify its sender."""
        if self.on_leg is not None:
            self.on_leg(leg, sent_bytes, True)
        self.fail_transfer(leg.transfer, "cut")

    def transfers_under_way(self) -> list[Transfer]:
        """Return the messages that are on a link, on their way, delayed by a fault, or wait at a server."""
        on_way = {self._forward, self._forward_if_let_in, self._travel}
        transfers = [argument for *_, action, argument in self.event_queue if action in on_way]
        transfers += [
            argument[0] for *_, action, argument in self.event_queue if action is self._when_delivered
        ]
        if self.connections is not None:
            transfers += self.connections.waiting()
        for host in self.hosts.values():
            if host.load is not None:
                transfers += host.load.transfers()
        links = [
            link for host in self.hosts.values() for link in (host.link, host.nearby) if link is not None
        ]
        transfers += [leg.transfer for link in links for way in (link.up, link.down) for leg in way.underway]
        transfers = [transfer for transfer in transfers if not isinstance(transfer.message, Trip)]
        return sorted(transfers, key=lambda transfer: (transfer.sent_us, transfer.source, transfer.to))

    def send(self, process: Process, effect: Send) -> None:
        """Carry out Send: put the message on the link of its device; from a server, forward it."""
        to, message, now_us = effect.to, effect.message, self.now_us
        if to.startswith(_LOCAL):
            self._send_locally(process, effect)
            return
        transfer = Transfer(
            process, process.start_number, process.address, to, message, size_bytes(message), now_us
        )
        link = process.link
        if link is None:
            process.sent_bytes += transfer.size_bytes
            target = self.at_address.get(to)
            if target is None or target.link is None:
                self.event_queue.add(now_us + _SERVER_LATENCY_US, ARRIVAL, self.leave, transfer)
            else:
                self.leave(transfer)
        elif process.host.is_online:
            self.put_on_link(transfer, link.up)
        else:
            self.fail_transfer(transfer, "no link")

    def _send_locally(self, process: Process, effect: Send) -> None:
        """Carry out Send to a machine of the same host; without one, the sender gets SendFailed."""
        target = self.at_address.get(process.host.address + effect.to[len(LOCALHOST) :])
        if target is None or target.machine is None:
            failed = SendFailed(effect.to, effect.message)
            self._local_messages.append((process, process.start_number, failed))
            return
        received = Received(local_address(process.name), effect.message, process.host.name)
        self._local_messages.append((target, target.start_number, received))

    def _send_nearby(self, process: Process, effect: Send) -> None:
        """Carry out Send: over a short-range link, if the receiver is near; else as without one."""
        host, target = process.host, self.at_address.get(effect.to)
        if host.nearby is None or target is None or not are_near(host, target.host):
            self._send_now(process, effect)
            return
        number, size = process.start_number, size_bytes(effect.message)
        transfer = Transfer(process, number, process.address, effect.to, effect.message, size, self.now_us)
        self._put_on_nearby_link(transfer, host.nearby.up)

    def _put_on_nearby_link(self, transfer: Transfer, direction: Direction) -> None:
        """Put a transfer on one direction of a short-range link, and schedule its arrival."""
        leg = direction.enqueue(transfer, self.now_us)
        self.event_queue.add(leg.arrive_us, ARRIVAL, self._when_crossed, leg)

    def _cross(self, leg: Leg) -> None:
        """End a transfer on one end of a short-range link, unless it was cut.

        After the sender's end it goes to the receiver's end, and after that to its machine.
        """
        if not self.end_leg(leg):
            return
        direction, transfer = leg.direction, leg.transfer
        target = self.at_address.get(transfer.to)
        if direction is not direction.link.up:
            self._deliver_across_link(transfer, direction.link)
        elif target is None or target.host.nearby is None or not target.host.is_on:
            self.fail_transfer(transfer, "nobody there")
        else:
            self._put_on_nearby_link(transfer, target.host.nearby.down)

    def dispatch(self, transfer: Transfer) -> None:
        """Send a message of a connection that is open now."""
        sender: Process = transfer.sender
        if sender.link is None:
            self.leave(transfer)
        elif sender.host.is_online:
            self.put_on_link(transfer, sender.link.up)
        else:
            self.fail_transfer(transfer, "no link")

    def put_on_link(self, transfer: Transfer, direction: Direction) -> None:
        """Put a transfer on one direction of a link, and schedule its arrival."""
        leg = direction.enqueue(transfer, self.now_us)
        self.event_queue.add(leg.arrive_us, ARRIVAL, self._when_arrived, leg)

    def end_leg(self, leg: Leg) -> bool:
        """Note that a transfer has left its direction of a link; False: it was cut."""
        underway = leg.direction.underway
        if not underway or underway[0] is not leg:
            return False
        underway.popleft()
        if self.on_leg is not None:
            self.on_leg(leg, leg.transfer.size_bytes, False)
        return True

    def _arrive(self, leg: Leg) -> None:
        """End a transfer on its direction: forward it if up, deliver it if down; ignore one that was cut."""
        direction = leg.direction
        underway = direction.underway
        if not underway or underway[0] is not leg:  # as :meth:`end_leg`, without a call: for every message
            return
        underway.popleft()
        transfer = leg.transfer
        if self.on_leg is not None:
            self.on_leg(leg, transfer.size_bytes, False)
        if direction.name == "up":
            self.leave(transfer)
        else:
            self._deliver_across_link(transfer, direction.link)

    def _travel(self, transfer: Transfer) -> None:
        """Forward a message after its way; there is none if neither host is a server with a place."""
        target = self.at_address.get(transfer.to)
        if target is not None:
            server, other = transfer.sender, target
            if server.link is not None:
                server, other = other, server
            at = server.host.at
            if at is not None:
                travel_us = way_us(at, other.host)
                if travel_us:
                    self.event_queue.add(self.now_us + travel_us, ARRIVAL, self.when_forwarded, transfer)
                    return
        self.when_forwarded(transfer)

    def _forward(self, transfer: Transfer) -> None:
        """Forward to the current place of the address: over a device's link, or to a server at once."""
        target = self.at_address.get(transfer.to)
        if target is None:
            self.fail_transfer(transfer, "nobody there")
            return
        link = target.link
        if link is None:
            self._deliver_at_server(transfer, None)
        elif target.host.is_online:
            self.put_on_link(transfer, link.down)
        else:
            self.fail_transfer(transfer, "no link")

    def _forward_if_let_in(self, transfer: Transfer) -> None:
        """Forward a message, unless its device has no connection to the sender and lets nobody in."""
        target = self.at_address.get(transfer.to)
        if target is None:
            self.fail_transfer(transfer, "nobody there")
            return
        link = target.link
        if link is None:
            self._deliver_at_server(transfer, None)
            return
        host, sender = target.host, transfer.sender.host
        if not host.is_online:
            self.fail_transfer(transfer, "no link")
            return
        connection = host.connections.get(sender)
        if connection is not None and self.now_us > connection.until_us and self.connections is not None:
            connection = self.connections.find(host, sender)
        if connection is not None or host.lets_in:
            self.put_on_link(transfer, link.down)
        else:
            self.fail_transfer(transfer, "not let in")

    def _deliver_through_hook(self, transfer: Transfer, link: Link | None) -> None:
        """Deliver a message as often, and as late, as the fault hook says."""
        delays_us = self._fault_hook(transfer) if self._fault_hook is not None else (0,)
        if not delays_us and self.on_fate is not None:
            self.on_fate(transfer, "lost")
        for number, delay_us in enumerate(delays_us):
            copy = transfer
            if number:
                copy = Transfer(
                    transfer.sender,
                    transfer.start_number,
                    transfer.source,
                    transfer.to,
                    transfer.message,
                    transfer.size_bytes,
                    transfer.sent_us,
                    is_repeat=True,
                )
            self.event_queue.add(self.now_us + delay_us, ARRIVAL, self._when_delivered, (copy, link))

    def _deliver_delayed(self, what: tuple[Transfer, Link | None]) -> None:
        """Deliver a message whose delay by a fault, which may be 0, is over."""
        self._hand_over(*what)

    def _add_to_load(self, transfer: Transfer, link: Link | None) -> None:
        """Add a message to the load of its server; deliver it now if that has none."""
        if link is None:  # else it has crossed the link of a device
            target = self.at_address.get(transfer.to)
            if target is not None and target.machine is not None:
                load = target.host.load
                if load is not None:
                    load.add_message(self._when_received, transfer)
                    return
        self._deliver(transfer, link)

    def _deliver(self, transfer: Transfer, link: Link | None = None) -> None:
        """Pass a message to the machine at its address; if that is gone, the sender gets SendFailed."""
        target = self.at_address.get(transfer.to)
        if target is None or target.machine is None:
            self.fail_transfer(transfer, "nobody there")
            return
        if target.link is not link and (link is None or target.host.nearby is not link):
            self.fail_transfer(transfer, "nobody there")
        elif link is not None and target.link is link and not target.host.is_online:
            self.fail_transfer(transfer, "no link")
        else:
            if self.on_fate is not None:
                self.on_fate(transfer, "repeated" if transfer.is_repeat else "arrived")
            self._handle(target, Received(transfer.source, transfer.message, transfer.sender.host.name))

    def fail_transfer(self, transfer: Transfer, fate: str) -> None:
        """Record what became of a message that does not arrive, and schedule SendFailed for its sender."""
        if isinstance(transfer.message, Trip):
            if self.connections is not None:
                self.connections.fail_trip(transfer.message, fate)
            return
        if self.on_fate is not None:
            self.on_fate(transfer, fate)
        self.event_queue.add(self.now_us, ARRIVAL, self._notify_sender, transfer)

    def _notify_sender(self, transfer: Transfer) -> None:
        """Pass SendFailed to the sender, unless it was restarted: its new start does not know the message."""
        sender: Process = transfer.sender
        if transfer.start_number == sender.start_number:
            self._handle(sender, SendFailed(transfer.to, transfer.message))


class _UnwarnedFailures:
    """Failures since the last warning; ``count`` includes those whose errors are not kept."""

    __slots__ = ("_kept", "count")

    def __init__(self) -> None:
        self._kept: list[Exception] = []
        self.count = 0

    def add(self, error: Exception) -> None:
        """Count a failure, and keep its error up to a limit."""
        self.count += 1
        if len(self._kept) < _MAX_KEPT:
            self._kept.append(error)

    def pop_warning(self) -> FailureWarning:
        """Return a warning of all failures since the last one, and forget them."""
        warning = FailureWarning(self._kept, self.count)
        self._kept, self.count = [], 0
        return warning


def raise_failure(host: Host, system: str, error: Exception) -> None:
    """Raise a failure instead of recording it: a value for :attr:`World.on_failure`."""
    raise error


def _effects_of(process: Process, effects: Any) -> Sequence[Effect]:
    """Return the effects that a machine yields as a tuple, or raise SimulationProblem."""
    try:
        sequence = iter(effects)
    except TypeError as error:
        raise _effect_error(process, effects, error) from error
    return tuple(sequence)


def _effect_error(process: Process, effects: Any, error: Exception) -> Exception:
    """Return the error to record for effects that could not be carried out."""
    if not isinstance(error, TypeError | KeyError):
        return error
    problem = SimulationProblem(
        "A machine has answered with something that cannot be carried out.",
        where=f"{process.system} on {process.host.name}",
        found=brief(effects, 300) + f" ({type(error).__name__}: {error})",
        expected="a sequence of Send (of what JSON can hold), SetTimer, CancelTimer, Complete, "
        "Notify and Record",
    )
    problem.__cause__ = error
    return problem
