"""On-line forwarding where nothing expires, without a spool: what is best is known from the times alone.

A message goes to the device when it comes, or with the others that wait when the link is up again, the
highest rank first; a read takes the best that has come. Half of what a comparison plays is this.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import numpy as np

from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn

__all__ = ["MAX_MESSAGES", "online"]

MAX_MESSAGES: Final = 100_000
"""So many cannot be too many for a spool, whatever waits."""


def online(drawn: Drawn, threshold: float, most: float) -> tuple[list[int], list[int]] | None:
    """Give the numbers of what is forwarded and of what is read, in their order.

    Parameters
    ----------
    drawn : Drawn
    threshold : float
        Messages of a lower rank are not forwarded.
    most : float
        Messages at a time.

    Returns
    -------
    tuple of two lists of int, or None
        None where a spool has more to say: something expires, or there is too much to wait.
    """
    if len(drawn.ranks) > MAX_MESSAGES or (drawn.expires_us < FOREVER_US).any():
        return None
    arrivals_us, ranks, switches_us = drawn.arrivals_us, drawn.ranks, drawn.switches_us
    # At one time the link changes first, so that a switch counts for what comes with it.
    switched = np.searchsorted(switches_us, arrivals_us, side="right")
    waits = (switched % 2 == 1) == drawn.starts_up
    arrival_us = np.where(waits, np.append(switches_us, FOREVER_US)[switched], arrivals_us)
    acceptable = np.flatnonzero((ranks >= threshold) & (arrival_us < FOREVER_US))
    # What waited goes before what comes with the switch, by rank; what did not wait goes as it comes.
    among_waiting = np.where(waits, -ranks, 0.0)[acceptable]
    order = np.lexsort((among_waiting, ~waits[acceptable], arrival_us[acceptable]))
    forwarded = acceptable[order]
    # Reads come last at their time.
    known = np.searchsorted(arrival_us[forwarded], drawn.reads_us, side="right").tolist()
    numbers, by_rank = forwarded.tolist(), (-ranks[forwarded]).tolist()
    heap: list[tuple[float, int]] = []
    read: list[int] = []
    begun = 0
    for until in known:
        for place in range(begun, until):
            heappush(heap, (by_rank[place], numbers[place]))
        begun = until
        read += [heappop(heap)[1] for _ in range(int(min(most, len(heap))))]
    return numbers, read
