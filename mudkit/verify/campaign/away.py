"""A back end that is down for minutes while clients read, in some runs.

A committed read whose positions a replica has is answered within :data:`MAX_READ_S`, although the back end is
down: the gateway asks it in vain for a second, and a read that goes to a replica that is down, too, is sent
again after ten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from mudkit.lab import Lab
from mudkit.systems.mud import Client, Cloud
from mudkit.verify.campaign.faults import FaultInjector

MAX_READ_S: Final = 60.0
"""Time, in seconds, within which a read is answered while the back end is down."""
AWAY_STEP: Final = "back end away"
_TABLE: Final = "kept"
_MINUTES: Final = (2.0, 5.0, 20.0)
"""Times for which the back end is down."""
_READS: Final = 3


class BackEndAway:
    """Kills of the back end of a run, and the reads that clients begin while it is down.

    ``lag_s`` is the lag of the replicas. ``is_well`` returns whether a client, the network and the cloud are
    without faults, and ``rolled_back_us`` has the hosts that were wiped or restored.
    """

    def __init__(
        self, lab: Lab, cloud: Cloud, clients: Mapping[str, Client], faults: FaultInjector, lag_s: float,
        is_well: Callable[[str], bool], rolled_back_us: Mapping[str, int], draw: Random,
    ) -> None:  # fmt: skip
        self._lab, self._cloud, self._clients, self._faults = lab, cloud, clients, faults
        self._lag_s, self._is_well, self._rolled_back_us = lag_s, is_well, rolled_back_us
        self._draw = draw
        self._count = 0
        self.is_used = bool(cloud.replicas) and draw.random() < 0.15
        self.counts: Counter[str] = Counter()
        """Number of reads that were judged, and of those with a replica down, too."""
        self.problems: list[str] = []

    def begin(self) -> None:
        """Create the table that is read."""
        next(iter(self._clients.values())).create(_TABLE, acl="public").result()

    def plan(self, end_us: int) -> list[tuple[int, str]]:
        """Return steps at times until the end of a run; none if the back end is never away."""
        many = self._draw.randint(1, 3) if self.is_used else 0
        return [(self._draw.randint(0, end_us), AWAY_STEP) for _ in range(many)]

    def act(self) -> None:
        """Kill the back end for some minutes, sometimes with a replica, and read; judge it if all is well."""
        draw, lab = self._draw, self._lab
        name = draw.choice(list(self._clients))
        hosts = [self._cloud.back_end, *draw.sample(self._cloud.replicas, len(self._cloud.replicas) > 1)]
        minutes, delay_s = draw.choice(_MINUTES), draw.choice([0.0, 3.0, 30.0])
        if self._rolled_back_us or not self._is_well(name):
            return
        lab.run(seconds=self._lag_s + 5.0)
        if not self._is_well(name):
            return
        for host in hosts:
            self._faults.keep_down(host.split("/")[0], minutes)
        lab.run(seconds=self._lag_s + delay_s)
        for _ in range(_READS):
            self._count += 1
            read = self._clients[name].read(_TABLE, f"n = {self._count}")
            lab.run(seconds=MAX_READ_S)
            if not self._faults.is_online(name):
                return
            self.counts["reads without the back end"] += 1
            self.counts["reads without the back end and a replica"] += len(hosts) > 1
            if not read.done():
                self.problems.append(f"{name} has no answer to a read, {self._words(hosts)} down")

    @staticmethod
    def _words(hosts: Sequence[str]) -> str:
        """Return the names of hosts in words."""
        return f"{' and '.join(hosts)} {'is' if len(hosts) == 1 else 'are'}"
