"""Load of a server: its events take the time of a worker, and wait for one in a queue with a bound.

Messages and timers of all its machines share the workers. What waits is served in the order of arrival; a
message that does not fit is lost. Calls of an application and changes of the context take no time: they stand
for those who run the server. What an event sends leaves at once; its bytes keep the worker busy after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from mudkit.checks import Range, check_arguments
from mudkit.fleet.clock import ARRIVAL
from mudkit.fleet.link import Transfer
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from mudkit.fleet.host import Host

LOAD_COLUMNS: Final = (
    "server",
    "start",
    "served",
    "lost",
    "busy_share",
    "mean_wait_s",
    "max_wait_s",
    "max_waiting",
)
"""Columns of :meth:`mudkit.lab.Lab.server_load`."""
_SLOT_US: Final = 60 * US_PER_S
"""Length of the intervals for which the load is kept."""


@check_arguments
@dataclass(frozen=True)
class ServerProfile:
    """Times that a server takes for its events, and what waits for it.

    Parameters
    ----------
    event_us : float
        Time of a worker for each message that arrives, and for each timer, in microseconds.
    byte_us : float
        Time of a worker for each byte that it receives or sends.
    workers : int
        Number of events that are served at a time.
    max_waiting : int
        Capacity of the queue, in messages; one that does not fit is lost. Timers always fit.

    Raises
    ------
    ParameterError
        A time is negative or over an hour, or there is no worker.
    """

    event_us: Annotated[float, Range(0.0, 3.6e9)] = 100.0
    byte_us: Annotated[float, Range(0.0, 3.6e9)] = 0.0
    workers: Annotated[int, Range(1, 1 << 20)] = 1
    max_waiting: Annotated[int, Range(0, 1 << 31)] = 10_000


class Slot:
    """Load of a server in one interval: what was served, lost, and how long it waited."""

    __slots__ = ("busy_us", "lost", "max_wait_us", "max_waiting", "served", "waited_us")

    def __init__(self) -> None:
        self.served = self.lost = self.busy_us = self.waited_us = self.max_wait_us = self.max_waiting = 0


_Job: TypeAlias = tuple[Callable[[Any], None], Any, int, int, int]
"""An action and its argument, the size of a message in bytes, the time at which it came, in µs, and how often
the server had been killed then."""


class ServerQueue:
    """Queue and workers of a server.

    Parameters
    ----------
    host : Host
        The server.
    profile : ServerProfile
    """

    def __init__(self, host: Host, profile: ServerProfile) -> None:
        self._host, self._world = host, host.world
        self.profile = profile
        self._event_us, self._byte_us = profile.event_us, profile.byte_us
        self._plain_us = round(profile.event_us)
        """Time of a worker for an event without bytes."""
        self._waiting: deque[_Job] = deque()
        self._idle = profile.workers
        self._kills = 0
        """Number of times that the server was killed; earlier jobs are dropped."""
        self._when_served = self._end_with_bytes if profile.byte_us else self._end
        self._when_sent = self._release
        self._slot_until_us = 0
        """End of the present interval, of ``_present``, in which nearly all that is counted lies."""
        self._present = Slot()
        self.slots: dict[int, Slot] = {}
        """By the number of the interval since the beginning of virtual time."""

    def add_message(self, action: Callable[[Transfer], None], transfer: Transfer) -> None:
        """Serve or queue a message that has arrived; if the queue is full, it is lost, and counted."""
        world = self._world
        now_us = world.now_us
        job = action, transfer, transfer.size_bytes, now_us, self._kills
        if self._idle:
            self._serve(job, now_us)
        elif len(self._waiting) < self.profile.max_waiting:
            self._wait(job)
        else:
            self._slot(now_us).lost += 1
            if world.on_fate is not None:
                world.on_fate(transfer, "queue full")

    def add_timer(self, action: Callable[[Any], None], timer: Any) -> None:
        """Add a timer that is due."""
        now_us = self._world.now_us
        job = action, timer, 0, now_us, self._kills
        if self._idle:
            self._serve(job, now_us)
        else:
            self._wait(job)

    def transfers(self) -> Iterator[Transfer]:
        """Yield the messages that wait or are served."""
        entries = [entry for entry in self._world.event_queue if entry[3] is self._when_served]
        served = [entry[4] for entry in sorted(entries, key=lambda entry: entry[2])]
        for _, argument, _, _, kills in (*served, *self._waiting):
            if kills == self._kills and isinstance(argument, Transfer):
                yield argument

    def rows(self) -> Iterator[tuple[str, int, int, int, float, float, float, int]]:
        """Yield a row for each interval so far, in order; see :meth:`mudkit.lab.Lab.server_load`."""
        now_us = self._world.now_us
        for number, slot in sorted(self.slots.items()):
            start_us = number * _SLOT_US
            if start_us >= now_us:  # a worker will be busy then
                return
            length_us = min(_SLOT_US, now_us - start_us) * self.profile.workers
            yield (
                self._host.name,
                start_us,
                slot.served,
                slot.lost,
                min(slot.busy_us / length_us, 1.0),
                slot.waited_us / max(slot.served, 1) / US_PER_S,
                slot.max_wait_us / US_PER_S,
                slot.max_waiting,
            )

    def drop_all(self) -> None:
        """Drop everything, for the server was killed; senders of messages get SendFailed."""
        lost = list(self.transfers())
        self._waiting.clear()
        self._kills += 1
        self._idle = self.profile.workers
        for transfer in lost:
            self._world.fail_transfer(transfer, "nobody there")

    def _wait(self, job: _Job) -> None:
        """Queue a job for the next idle worker."""
        self._waiting.append(job)
        slot = self._slot(self._world.now_us)
        slot.max_waiting = max(slot.max_waiting, len(self._waiting))

    def _serve(self, job: _Job, now_us: int) -> None:
        """Pass a job to an idle worker, which is busy with it until its end."""
        self._idle -= 1
        took_us = round(self._event_us + job[2] * self._byte_us) if self._byte_us else self._plain_us
        end_us = now_us + took_us
        if end_us < self._slot_until_us:
            slot = self._present
            slot.served += 1
            slot.busy_us += took_us
        else:
            self._begin_slot(now_us).served += 1
            self._count_busy(now_us, end_us)
        self._world.event_queue.add(end_us, ARRIVAL, self._when_served, job)

    def _serve_next(self) -> None:
        """Pass the first job that waits, if there is one, to an idle worker."""
        if self._waiting:
            job, now_us = self._waiting.popleft(), self._world.now_us
            came_us = job[3]
            self._serve(job, now_us)
            slot = self._slot(now_us)
            slot.waited_us += now_us - came_us
            slot.max_wait_us = max(slot.max_wait_us, now_us - came_us)

    def _end(self, job: _Job) -> None:
        """Carry out what was served, unless the server was killed, and release its worker."""
        action, argument, _, _, kills = job
        if kills == self._kills:
            action(argument)
            if kills == self._kills:  # else it killed the server
                self._idle += 1
                if self._waiting:
                    self._serve_next()

    def _end_with_bytes(self, job: _Job) -> None:
        """Carry out what was served, unless the server was killed; then its worker sends what it caused."""
        action, argument, _, _, kills = job
        if kills != self._kills:
            return
        before_bytes = self._sent_bytes()
        action(argument)
        now_us = self._world.now_us
        end_us = now_us + round((self._sent_bytes() - before_bytes) * self._byte_us)
        if kills == self._kills and end_us > now_us:
            self._count_busy(now_us, end_us)
            self._world.event_queue.add(end_us, ARRIVAL, self._when_sent, kills)
        else:
            self._release(kills)

    def _release(self, kills: int) -> None:
        """Release a worker that has sent, unless the server was killed."""
        if kills == self._kills:
            self._idle += 1
            self._serve_next()

    def _sent_bytes(self) -> int:
        """Return how many bytes the machines have sent so far."""
        return sum(process.sent_bytes for process in self._host.processes)

    def _count_busy(self, start_us: int, end_us: int) -> None:
        """Add a time to the intervals in which it lies."""
        while start_us < end_us:
            until_us = min(end_us, (start_us // _SLOT_US + 1) * _SLOT_US)
            self._slot(start_us).busy_us += until_us - start_us
            start_us = until_us

    def _begin_slot(self, now_us: int) -> Slot:
        """Return the interval of now, which is the present one from now on."""
        self._slot_until_us = (now_us // _SLOT_US + 1) * _SLOT_US
        self._present = self._slot(now_us)
        return self._present

    def _slot(self, t_us: int) -> Slot:
        """Return the interval of a time."""
        return self.slots.setdefault(t_us // _SLOT_US, Slot())
