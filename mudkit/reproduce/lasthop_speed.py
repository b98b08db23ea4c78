"""Row L7 of Last hop: duration of a simulated virtual year, beside simpy and on a fleet."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Generator, Sequence
from typing import Any, Final

from mudkit.fleet.kernel import raise_failure
from mudkit.lab import Lab
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.harness import require_peer
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import (
    FIGURES,
    Forwarding,
    Publications,
    Scenario,
    Subscriber,
    Subscription,
    simulate,
    simulate_grid,
)
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn


class Fleet:
    """A server, a device on an ideal link, and one topic, driven by drawn events.

    `max_read` is the largest number of messages a read (None: no limit), `reranks` are changes of ranks (time
    in µs, message, rank). `forwarded` and `read` are message numbers as in the simulator, in order.
    """

    def __init__(
        self,
        drawn: Drawn,
        policy: Forwarding,
        max_read: int | None,
        threshold: float = 0.0,
        reranks: Sequence[tuple[int, int, float]] = (),
    ) -> None:
        self._lab = Lab(seed=1, record_messages=False)
        self._world = world = self._lab.world
        world.on_failure = raise_failure
        self.forwarded: list[int] = []
        self.read: list[int] = []
        server = Publications(self._lab, spool_capacity=1 << 20)
        self._phone = self._lab.device("phone", link="ideal")
        self._subscriber = Subscriber(self._phone, server)
        subscription = Subscription("news", max=max_read, threshold=threshold, policy=policy)
        self._subscriber.subscribe(subscription).result()
        self._topic = server.topic("news")
        world.on_record = self._record
        if not drawn.starts_up:
            self._phone.link_down("drawn")
        for at_us in drawn.switches_us.tolist():
            world.schedule_action(at_us, self._switch)
        arrivals = zip(
            drawn.arrivals_us.tolist(), drawn.expires_us.tolist(), drawn.ranks.tolist(), strict=True
        )
        for number, (at_us, expires_us, rank) in enumerate(arrivals):
            lasts_s = None if expires_us == FOREVER_US else (expires_us - at_us) / 1e6
            world.schedule_call(at_us, self._publish, (str(number), rank, lasts_s))
        for at_us, number, rank in reranks:
            world.schedule_call(at_us, self._rerank, (str(number), rank))
        for at_us in drawn.reads_us.tolist():
            world.schedule_call(at_us, self._read)
        drawn_us = (drawn.arrivals_us, drawn.switches_us, drawn.reads_us)
        last_us = [int(times_us[-1]) for times_us in drawn_us if len(times_us)]
        self._until_us = max([*last_us, *(at_us for at_us, _, _ in reranks)], default=0)

    def run(self) -> None:
        """Run until the last drawn event."""
        self._world.run(self._until_us)

    def _switch(self, _: None) -> None:
        """Disconnect the device when it is online, and connect it when it is not."""
        (self._phone.link_down if self._phone.is_online else self._phone.link_up)("drawn")

    def _publish(self, message: tuple[str, float, float | None]) -> None:
        """Publish a drawn message (number, rank, lifetime in seconds or None for no end)."""
        item, rank, lasts_s = message
        self._topic.publish("", rank, lasts_s, item=item)

    def _rerank(self, change: tuple[str, float]) -> None:
        """Change the rank of a message (number, new rank)."""
        self._topic.rerank(*change)

    def _read(self, _: None) -> None:
        """Read on the device as the user does, up to `max_read` messages."""
        self._subscriber.read("news")

    def _record(self, process: Any, effect: Any) -> None:
        """Append the number of an item that the device has just received or its user has just read."""
        if "delivered_us" in effect.row:
            self.forwarded.append(int(effect.row["item"]))
        if "read_us" in effect.row:
            self.read.append(int(effect.row["item"]))


_Entry = tuple[float, int]
"""Negative rank of a message, and its number."""


def simulate_in_simpy(drawn: Drawn, max_read: int, limit: float) -> tuple[list[int], list[int]]:
    """Simulate a server that prefetches up to a limit and a device, without expiration.

    Return the numbers of forwarded and of read messages, in order.
    """
    import simpy

    environment = simpy.Environment()
    waiting: list[_Entry] = []
    device: list[_Entry] = []
    is_up = drawn.starts_up
    forwarded: list[int] = []
    read: list[int] = []

    def forward() -> None:
        while is_up and waiting and len(device) < limit:
            entry = heapq.heappop(waiting)
            forwarded.append(entry[1])
            heapq.heappush(device, entry)

    def publisher() -> Generator[Any, Any, None]:
        for number, (at_us, rank) in enumerate(
            zip(drawn.arrivals_us.tolist(), drawn.ranks.tolist(), strict=True)
        ):
            yield environment.timeout(at_us - environment.now)
            heapq.heappush(waiting, (-rank, number))
            forward()

    def network() -> Generator[Any, Any, None]:
        nonlocal is_up
        for at_us in drawn.switches_us.tolist():
            yield environment.timeout(at_us - environment.now)
            is_up = not is_up
            forward()

    def user() -> Generator[Any, Any, None]:
        for at_us in drawn.reads_us.tolist():
            yield environment.timeout(at_us - environment.now)
            count = 0
            while count < max_read and (device or (is_up and waiting)):
                if is_up and waiting and (not device or waiting[0] < device[0]):
                    entry = heapq.heappop(waiting)
                    forwarded.append(entry[1])
                else:
                    entry = heapq.heappop(device)
                read.append(entry[1])
                count += 1
            forward()

    for process in (network(), publisher(), user()):
        environment.process(process)
    environment.run()
    return forwarded, read


_MAX_READ: Final = 8
_LIMIT: Final = 16
_OUTAGE: Final = 0.5


def measure_speed(
    say: Say = say_nothing,
    *,
    days: int = 365,
    runs: int = 25,
    fleets: int = 3,
    seeds: Sequence[int] = range(10),
    processes: int = PROCESSES,
    over: dict[str, Sequence[Any]] | None = None,
) -> Measured:
    """Measure row L7; `over` replaces series of Figure 3."""
    require_peer("simpy", "L7", "the simulator")
    say(f"runs of {days} days beside simpy")
    pairs = [_pair(seed, days) for seed in range(runs + 1)][1:]  # the first one warms up
    driven = []
    for seed in range(fleets):
        say(f"a fleet of one device, {seed + 1} of {fleets}")
        driven.append(_drive(seed, days))
    say(f"Figure 3 with {len(seeds)} seeds, {processes} processes")
    began_s = time.perf_counter()
    with spread_out(processes) as over_processes:
        settings = FIGURES[3]["fixed"] | {"days": days}
        table = simulate_grid(over or FIGURES[3]["over"], settings, seeds, map=over_processes)
    figure_s = time.perf_counter() - began_s
    quantities = {
        "ms for a run of two scenarios": Quantity.of(1e3 * ours for ours, _, _ in pairs),
        "ms for the same in simpy": Quantity.of(1e3 * theirs for _, theirs, _ in pairs),
        "times simpy's time": Quantity.of(ours / theirs for ours, theirs, _ in pairs),
        "share of runs in which simpy's model forwards and reads the same": Quantity.of(
            [sum(same for _, _, same in pairs) / len(pairs)]
        ),
        "s for a year driven by the kernel": Quantity.of(year_s for year_s, _ in driven),
        "share of years in which the kernel forwards and reads the same": Quantity.of(
            [sum(same for _, same in driven) / len(driven)]
        ),
        "s for Figure 3 with ten seeds": Quantity.of([figure_s]),
        "runs of Figure 3": Quantity.of([len(table)]),
    }
    parameters = {
        "a run": f"{days} days, 32 messages and 2 reads of {_MAX_READ} a day, {_OUTAGE:.0%} downtime, "
        f"12 outages a day; on-line, and prefetching up to {_LIMIT}; drawing the events counts on both sides",
        "driven by the kernel": f"a device, a server and an ideal link; prefetching up to {_LIMIT}",
        "runs": runs,
        "fleets": fleets,
        "Figure 3": table.attrs["parameters"],
        "processes": processes,
    }
    return Measured(quantities, parameters)


L7: Final = Row(
    name="L7",
    source="Last hop 4",
    paper="None: each of its runs lasts a virtual year.",
    required=(
        Required("ms for a run of two scenarios", "below", 50),
        Required("s for Figure 3 with ten seeds", "below", 60),
        Required("s for a year driven by the kernel", "below", 2),
        Required("share of years in which the kernel forwards and reads the same", "at least", 1),
        Required("share of runs in which simpy's model forwards and reads the same", "at least", 1),
    ),
    measure=measure_speed,
    minutes=0.4,
    is_speed=True,
)


def _pair(seed: int, days: int) -> tuple[float, float, bool]:
    """Time a run of ours and in simpy, in seconds; return also whether the results are equal."""
    began_s = time.perf_counter()
    run = simulate(
        outage=_OUTAGE, max=_MAX_READ, policy="buffer", prefetch_limit=_LIMIT, days=days, seed=seed
    )
    middle_s = time.perf_counter()
    drawn = Scenario(outages=Outages(_OUTAGE), days=days).draw(seed)
    theirs = [simulate_in_simpy(drawn, _MAX_READ, limit) for limit in (math.inf, _LIMIT)]
    end_s = time.perf_counter()
    ours = [(list(outcome.forwarded_ids), list(outcome.read_ids)) for outcome in (run.online, run.outcome)]
    return middle_s - began_s, end_s - middle_s, ours == theirs


def _drive(seed: int, days: int) -> tuple[float, bool]:
    """Time a year on a fleet, in seconds; return also whether the simulator's result is equal."""
    policy = Forwarding("buffer", _LIMIT)
    drawn = Scenario(outages=Outages(_OUTAGE), days=days).draw(seed)
    began_s = time.perf_counter()
    fleet = Fleet(drawn, policy, _MAX_READ)
    fleet.run()
    taken_s = time.perf_counter() - began_s
    alone = simulate(outage=_OUTAGE, max=_MAX_READ, policy=policy, days=days, seed=seed)
    same = (fleet.forwarded, fleet.read) == (list(alone.forwarded_ids), list(alone.read_ids))
    return taken_s * 365 / days, same


ROWS: Final = (L7,)
