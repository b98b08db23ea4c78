"""Virtual time: a queue of scheduled actions, and the loop that executes them in order.

The queue keeps a heap of the near future, and the rest unsorted in buckets of time. In a single heap, each
message, which takes milliseconds, would be sifted past every timer of the fleet, which wait for minutes.
Buckets: R. Brown, "Calendar queues", Communications of the ACM 31 (10), 1988.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeAlias

from mudkit.errors import ParameterError, ReentrantRun, SimulationProblem
from mudkit.progress import Interrupts

Entry: TypeAlias = tuple[int, int, int, Callable[[Any], None], Any]
"""Time in µs, priority, sequence number, action and its argument."""

_BUCKET_BITS: Final = 22
"""Width of a bucket: 2**22 µs, about 4 s; long compared to a message's latency, short compared to a timer."""

LINK, ARRIVAL, TIMER, CALL = range(4)
"""Priorities: at the same time, links change first, then messages arrive, timers fire, applications call."""

_EVENTS_PER_CHUNK: Final = 1 << 13
_MAX_STALLED_EVENTS: Final = 1_000_000
"""Maximum number of events at one moment, beyond twice those that were due together."""


class EventQueue:
    """Entries in the order of ``(t_us, priority, sequence number)``."""

    __slots__ = ("_begins", "_buckets", "_number", "_until_us", "near")

    def __init__(self) -> None:
        self.near: list[Entry] = []
        """A heap; empty only if the queue is empty, or until :meth:`refill`."""
        self._until_us = 0
        """End of the time range that is in ``near``."""
        self._buckets: dict[int, list[Entry]] = {}
        self._begins: list[int] = []
        """A heap of the buckets' keys."""
        self._number = 0

    def __len__(self) -> int:
        return len(self.near) + sum(map(len, self._buckets.values()))

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over all entries, in no order."""
        yield from self.near
        for bucket in self._buckets.values():
            yield from bucket

    def add(self, t_us: int, priority: int, action: Callable[[Any], None], argument: Any) -> None:
        """Add an entry; ``t_us`` must not precede the entry that was removed last."""
        self._number = number = self._number + 1
        if t_us < self._until_us:
            heappush(self.near, (t_us, priority, number, action, argument))
            return
        key = t_us >> _BUCKET_BITS
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = []
            heappush(self._begins, key)
        bucket.append((t_us, priority, number, action, argument))

    def is_due(self, now_us: int) -> bool:
        """Return whether the next entry is due at ``now_us`` or earlier."""
        near = self.near
        return bool(near or self.refill()) and near[0][0] <= now_us

    def refill(self) -> bool:
        """Load the next bucket if ``near`` is empty; return whether an entry is left."""
        if not self.near and self._begins:
            key = heappop(self._begins)
            self.near += self._buckets.pop(key)
            heapify(self.near)
            self._until_us = key + 1 << _BUCKET_BITS
        return bool(self.near)


class FiniteTrace(Protocol):
    """A recorded trace of moves or of a link: a run that replays it cannot last longer."""

    what: str
    where: str

    @property
    def until_us(self) -> int:
        """End of the trace, in virtual time."""
        ...


class Clock:
    """Virtual time of one run, in µs since its beginning."""

    __slots__ = (
        "_allowance",
        "_finite_traces",
        "_stalled_at_us",
        "_stalled_events",
        "event_queue",
        "is_idle",
        "now_us",
    )

    def __init__(self) -> None:
        self.now_us = 0
        self.event_queue = EventQueue()
        self.is_idle = True
        """False while events are being executed."""
        self._stalled_events, self._stalled_at_us, self._allowance = 0, -1, 0
        self._finite_traces: list[FiniteTrace] = []

    def schedule_action(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Schedule an action with its argument, ahead of messages, timers and calls of the same time."""
        if t_us < self.now_us:
            raise ParameterError(
                "An action cannot be scheduled in the past.",
                found=f"{t_us} µs",
                expected=f"{self.now_us} µs or later",
            )
        self.event_queue.add(t_us, LINK, action, argument)

    def execute_call(self, action: Callable[[Any], None], argument: Any) -> None:
        """Execute a call of an application after what is due: now, or inside an event at its end."""
        if not self.is_idle:
            self.event_queue.add(self.now_us, CALL, action, argument)
            return
        handled: list[bool] = []

        def act(_: None) -> None:
            """Execute the call, and note that it is done."""
            handled.append(True)
            action(argument)

        self.event_queue.add(self.now_us, CALL, act, None)
        self.run_until(lambda: bool(handled), self.now_us)

    def schedule_call(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Schedule a call of an application, after everything else of the same time."""
        self.event_queue.add(t_us, CALL, action, argument)

    def end_runs_with(self, trace: FiniteTrace) -> None:
        """Note a recorded trace, beyond which :meth:`check_traces_last` refuses a run."""
        self._finite_traces.append(trace)

    def check_traces_last(self, until_us: int) -> None:
        """Raise ParameterError if a recorded trace ends before ``until_us``."""
        for trace in self._finite_traces:
            if until_us > trace.until_us:
                raise ParameterError(
                    f"The {trace.what} does not cover the run.",
                    where=trace.where,
                    found=f"a run to {until_us / 3.6e9:,.6f} h ({until_us:,} µs)",
                    expected=f"at most {trace.until_us / 3.6e9:,.6f} h ({trace.until_us:,} µs)",
                    remedy="a shorter run, a longer trace, or an earlier start in it",
                )

    def run(self, until_us: int, tick: Callable[[int], None] | None = None) -> None:
        """Execute all events up to a time, this time included.

        ``tick`` is called with the time after each chunk of events; an exception from it stops the run
        between two events.

        Raises
        ------
        ParameterError
            A trace of moves or links ends before.
        SimulationProblem
            More than a million events follow each other without advancing time.
        ReentrantRun
            Called while events are being executed.
        """
        self.check_traces_last(until_us)
        near, refill = self.event_queue.near, self.event_queue.refill
        with self._exclusive_run() as interrupts:
            while refill() and near[0][0] <= until_us:
                events = 0
                for events in range(1, _EVENTS_PER_CHUNK + 1):  # noqa: B007 - the count is used below
                    self.now_us, _, _, action, argument = heappop(near)
                    action(argument)
                    if not (near or refill()) or near[0][0] > until_us:
                        break
                self._end_chunk(events)
                interrupts.check()
                if tick is not None:
                    tick(self.now_us)
            self.now_us = max(self.now_us, until_us)

    def run_until(self, done: Callable[[], bool], deadline_us: int, turn_s: float = float("inf")) -> None:
        """Execute events until ``done()``, a deadline in virtual time, or ``turn_s`` of real time.

        See :meth:`run`.
        """
        near, refill = self.event_queue.near, self.event_queue.refill
        stop_s = time.monotonic() + turn_s
        wanted_us = deadline_us
        deadline_us = min([deadline_us, *(trace.until_us for trace in self._finite_traces)])
        with self._exclusive_run() as interrupts:
            while not done():
                interrupts.check()
                if not refill() or near[0][0] > deadline_us:
                    self.now_us = max(self.now_us, deadline_us)
                    self.check_traces_last(wanted_us)
                    return
                events = 0
                for events in range(1, _EVENTS_PER_CHUNK + 1):  # noqa: B007 - the count is used below
                    self.now_us, _, _, action, argument = heappop(near)
                    action(argument)
                    if done() or time.monotonic() > stop_s:
                        break
                    if not (near or refill()) or near[0][0] > deadline_us:
                        break
                self._end_chunk(events)
                if time.monotonic() > stop_s:
                    return

    @contextmanager
    def _exclusive_run(self) -> Iterator[Interrupts]:
        """Refuse a run inside a run; stop the garbage collector, and end at Ctrl-C between events."""
        if not self.is_idle:
            raise ReentrantRun(
                "Virtual time is running already.",
                found="result() or run() inside a callback",
                expected="a call outside of events and callbacks",
                remedy="use add_done_callback instead of result()",
            )
        self.is_idle = False
        collected = gc.isenabled()
        gc.disable()
        try:
            with Interrupts() as interrupts:
                yield interrupts
        finally:
            self.is_idle = True
            if collected:
                gc.enable()

    def _end_chunk(self, events: int) -> None:
        """End a chunk of ``events``: collect young garbage; raise SimulationProblem if time stands still."""
        gc.collect(0)
        if self.now_us != self._stalled_at_us:
            self._stalled_events, self._stalled_at_us = 0, self.now_us
            self._allowance = 2 * len(self.event_queue.near)
        self._stalled_events += events
        if self._stalled_events > _MAX_STALLED_EVENTS + self._allowance:
            raise SimulationProblem(
                "Events follow each other without advancing virtual time.",
                found=f"{self._stalled_events:,} events at {self.now_us:,} µs",
                remedy="a timer needs a delay",
            )
