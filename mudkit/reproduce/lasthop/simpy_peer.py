"""The peer of row L7: the same model as processes of simpy, on the same events."""

from __future__ import annotations

import heapq
from collections.abc import Generator
from typing import Any

from mudkit.systems.lasthop.study.scenario import Drawn

__all__ = ["simulate_in_simpy"]

Entry = tuple[float, int]
"""Minus the rank of a message, and its number."""


def simulate_in_simpy(drawn: Drawn, most: int, limit: float) -> tuple[list[int], list[int]]:
    """Run a server that prefetches up to a limit, and a device; nothing expires.

    Parameters
    ----------
    drawn : Drawn
    most : int
        The largest number of messages that are read at a time.
    limit : float
        The prefetch limit, in messages; infinite: each message is forwarded at once.

    Returns
    -------
    forwarded, read : list of int
        The numbers of the messages that were forwarded and that were read, in order.
    """
    import simpy

    environment = simpy.Environment()
    waiting: list[Entry] = []
    device: list[Entry] = []
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
            taken = 0
            while taken < most and (device or (is_up and waiting)):
                if is_up and waiting and (not device or waiting[0] < device[0]):
                    entry = heapq.heappop(waiting)
                    forwarded.append(entry[1])
                else:
                    entry = heapq.heappop(device)
                read.append(entry[1])
                taken += 1
            forward()

    for process in (network(), publisher(), user()):
        environment.process(process)
    environment.run()
    return forwarded, read
