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

__all__ = ["ARRIVAL", "CALL", "LINK", "TIMER", "Clock", "Covered", "Entry", "EventQueue"]

Entry: TypeAlias = tuple[int, int, int, Callable[[Any], None], Any]
"""Time in µs, priority, number, what to do and with what; the number is the order of adding."""

_BITS: Final = 22
"""A bucket is 2**22 µs, about 4 s: long beside a message's way, short beside a timer."""

LINK, ARRIVAL, TIMER, CALL = range(4)
"""At one time first links change, then messages arrive, then timers fire, then applications ask."""

_CHUNK: Final = 1 << 13
_STORM: Final = 1_000_000
"""So many events without time going on are no accident, unless as many were due together."""


class EventQueue:
    """Entries in the order of ``(t_us, priority, number)``."""

    __slots__ = ("_begins", "_buckets", "_number", "_until_us", "near")

    def __init__(self) -> None:
        self.near: list[Entry] = []
        """A heap; empty only when nothing is to come, or until :meth:`refill`."""
        self._until_us = 0
        """Everything before this time is in ``near``."""
        self._buckets: dict[int, list[Entry]] = {}
        self._begins: list[int] = []
        """A heap of the buckets' keys."""
        self._number = 0

    def __len__(self) -> int:
        return len(self.near) + sum(map(len, self._buckets.values()))

    def __iter__(self) -> Iterator[Entry]:
        """Give what is to come, in no order."""
        yield from self.near
        for bucket in self._buckets.values():
            yield from bucket

    def add(self, t_us: int, priority: int, action: Callable[[Any], None], argument: Any) -> None:
        """Add an entry; ``t_us`` is not before the last that was taken."""
        self._number = number = self._number + 1
        if t_us < self._until_us:
            heappush(self.near, (t_us, priority, number, action, argument))
            return
        key = t_us >> _BITS
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = []
            heappush(self._begins, key)
        bucket.append((t_us, priority, number, action, argument))

    def is_due(self, now_us: int) -> bool:
        """Say whether something is to come that is not later than this."""
        near = self.near
        return bool(near or self.refill()) and near[0][0] <= now_us

    def refill(self) -> bool:
        """Go on to the next bucket when ``near`` is empty, and say whether anything is to come."""
        if not self.near and self._begins:
            key = heappop(self._begins)
            self.near += self._buckets.pop(key)
            heapify(self.near)
            self._until_us = key + 1 << _BITS
        return bool(self.near)


class Covered(Protocol):
    """Something recorded that a run follows, and that ends."""

    what: str
    where: str

    @property
    def until_us(self) -> int:
        """Last moment that it knows."""
        ...


class Clock:
    """Virtual time of one run, in µs since its beginning."""

    __slots__ = ("_covered", "_crowd", "_since_us", "_still", "event_queue", "now_us", "stands_still")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_queue = EventQueue()
        self.stands_still = True
        """Whether nothing lets time go on now."""
        self._still, self._since_us, self._crowd = 0, -1, 0
        self._covered: list[Covered] = []

    def at(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something at a time, before anything else that happens then and is not waiting already."""
        if t_us < self.now_us:
            raise ParameterError(
                "This time is over.", found=f"{t_us} µs", expected=f"{self.now_us} µs or later"
            )
        self.event_queue.add(t_us, LINK, action, argument)

    def ask(self, action: Callable[[Any], None], argument: Any) -> None:
        """Let an application ask for something: now, after everything else that is due.

        When time stands still, it has happened when this returns; while time goes on, it comes in its turn.
        """
        if not self.stands_still:
            self.event_queue.add(self.now_us, CALL, action, argument)
        elif self.event_queue.is_due(self.now_us):
            handled: list[bool] = []

            def handle(_: None) -> None:
                handled.append(True)
                action(argument)

            self.event_queue.add(self.now_us, CALL, handle, None)
            self.run_until(lambda: bool(handled), self.now_us)
        else:
            with Interrupts():
                action(argument)

    def ask_at(self, t_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Let an application do something at a time, after everything else that happens then."""
        self.event_queue.add(t_us, CALL, action, argument)

    def cover(self, trace: Covered) -> None:
        """Let time go on no further than something recorded is known."""
        self._covered.append(trace)

    def check_covered(self, until_us: int) -> None:
        """Refuse a time that something recorded does not reach.

        Raises
        ------
        ParameterError
        """
        for each in self._covered:
            if until_us > each.until_us:
                raise ParameterError(
                    f"The {each.what} does not cover the run.",
                    where=each.where,
                    found=f"a run to {until_us / 3.6e9:,.6f} h ({until_us:,} µs)",
                    expected=f"at most {each.until_us / 3.6e9:,.6f} h ({each.until_us:,} µs)",
                    remedy="a shorter run, a longer trace, or an earlier start in it",
                )

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
        ParameterError
            A trace of moves or links ends before.
        SimulationProblem
            Events follow each other without time going on.
        ReentrantRun
            Time is going on already.
        """
        self.check_covered(until_us)
        near, refill = self.event_queue.near, self.event_queue.refill
        with self._running() as interrupts:
            while refill() and near[0][0] <= until_us:
                events = 0
                for events in range(1, _CHUNK + 1):  # noqa: B007 - how many there were is told below
                    self.now_us, _, _, action, argument = heappop(near)
                    action(argument)
                    if not (near or refill()) or near[0][0] > until_us:
                        break
                self._watch_for_storms(events)
                interrupts.check()
                if tick is not None:
                    tick(self.now_us)
            self.now_us = max(self.now_us, until_us)

    def run_until(self, done: Callable[[], bool], deadline_us: int, turn_s: float = float("inf")) -> None:
        """Let virtual time go on until something holds, a deadline has come, or a real time has passed.

        Raises
        ------
        ParameterError
            It does not hold when a trace of moves or links ends, before the deadline.
        SimulationProblem, ReentrantRun
            As :meth:`run`.
        """
        near, refill = self.event_queue.near, self.event_queue.refill
        stop_s = time.monotonic() + turn_s
        wanted_us = deadline_us
        deadline_us = min([deadline_us, *(each.until_us for each in self._covered)])
        with self._running() as interrupts:
            while not done():
                interrupts.check()
                if not refill() or near[0][0] > deadline_us:
                    self.now_us = max(self.now_us, deadline_us)
                    self.check_covered(wanted_us)
                    return
                events = 0
                for events in range(1, _CHUNK + 1):  # noqa: B007 - how many there were is told below
                    self.now_us, _, _, action, argument = heappop(near)
                    action(argument)
                    if done() or time.monotonic() > stop_s:
                        break
                    if not (near or refill()) or near[0][0] > deadline_us:
                        break
                self._watch_for_storms(events)
                if time.monotonic() > stop_s:
                    return

    @contextmanager
    def _running(self) -> Iterator[Interrupts]:
        """Refuse another run inside, and spare Python the search for cycles in millions of events.

        Ctrl-C comes between two events.
        """
        if not self.stands_still:
            raise ReentrantRun(
                "Virtual time is going on already.",
                found="result() or run() inside a callback",
                expected="one that lets time go on, outside of what happens in it",
                remedy="use add_done_callback instead of result()",
            )
        self.stands_still = False
        collected = gc.isenabled()
        gc.disable()
        try:
            with Interrupts() as interrupts:
                yield interrupts
        finally:
            self.stands_still = True
            if collected:
                gc.enable()

    def _watch_for_storms(self, events: int) -> None:
        """Stop events that follow each other without time going on; and clear away young cycles."""
        gc.collect(0)
        if self.now_us != self._since_us:
            self._still, self._since_us, self._crowd = 0, self.now_us, 2 * len(self.event_queue.near)
        self._still += events
        if self._still > _STORM + self._crowd:
            raise SimulationProblem(
                "Events follow each other without time going on.",
                found=f"{self._still:,} events at {self.now_us:,} µs",
                remedy="a timer needs a delay",
            )
