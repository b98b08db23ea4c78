"""What the ways to answer a read would cost and be worth, as far as a device can say (Mobius 6)."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Final, NamedTuple

import msgspec

from mudkit.systems.mud.policies.utility import Plan, PlanSource, Utility, best, freshness

__all__ = ["Answerable", "Planner"]


class _Network(NamedTuple):
    """What a device takes its network to be."""

    there_and_back_s: float
    kb_per_s: float
    wake_mj: float
    """Of a radio that is asleep: opened, and its tail afterwards."""
    tail_s: float
    mj_per_kb: float


_NETWORKS: Final = {
    "wifi": _Network(0.02, 2500.0, 0.0, 0.0, 7.0),
    "lte": _Network(0.1, 700.0, 12_600.0, 11.6, 3.5),
    "umts_3g": _Network(0.3, 60.0, 11_250.0, 12.5, 25.0),
    "edge": _Network(1.0, 10.0, 3200.0, 6.0, 36.0),
}
"""Energy: Huang et al., MobiSys 2012 (LTE); Balasubramanian et al., IMC 2009 (the others)."""
_UNKNOWN: Final = "lte"
_ASKED_KB: Final = 0.5
_FIRST_KB: Final = 1.0
_SHORTEST_OUTAGE_S: Final = 60.0
_PRIOR_S: Final = 600.0
"""Before anything is known of a table, what is held of it is taken to change once in so long."""
_NOTHING_IS_FRESH: Final = freshness(0.0)


class Answerable(msgspec.Struct, frozen=True):
    """What can be said of an answer from here.

    Parameters
    ----------
    age_s, completeness, bias : float
        See :class:`Plan`; pending writes only are younger than everything: their age is below 0.
    """

    age_s: float
    completeness: float
    bias: float


class Planner:
    """It estimates plans from what this device has seen, and chooses."""

    def __init__(self) -> None:
        self.network = ""
        self._down_since_us: int | None = 0
        self._used_us: int | None = None
        self._answer_kb: dict[str, float] = {}
        self._changes: defaultdict[str, int] = defaultdict(int)
        self._watched_s: defaultdict[str, float] = defaultdict(float)

    # -- what it learns

    def link_up(self, network: str) -> None:
        """There is a network."""
        self.network, self._down_since_us, self._used_us = network, None, None

    def link_down(self, now_us: int) -> None:
        """There is none."""
        self._down_since_us, self._used_us = now_us, None

    def used(self, now_us: int) -> None:
        """Something was sent or received: the radio is awake."""
        self._used_us = now_us

    def answered(self, table: str, size_kb: float) -> None:
        """Take note of the size of an answer of the cloud."""
        known = self._answer_kb.get(table, size_kb)
        self._answer_kb[table] = 0.7 * known + 0.3 * size_kb

    def compared(self, table: str, age_s: float, *, has_changed: bool) -> None:
        """Take note whether something that was held for a while was still so when the cloud was asked."""
        self._changes[table] += has_changed
        self._watched_s[table] += age_s

    # -- what it says

    def choose(self, now_us: int, table: str, utility: Utility | None, held: Answerable | None) -> str:
        """Say how a read is answered: ``local``, ``remote``, or ``wait`` for a link.

        Parameters
        ----------
        now_us : int
        table : str
        utility : Utility or None
            None: nothing that is held counts as fresh.
        held : Answerable or None
            None: nothing is held that could be an answer.
        """
        if utility is None:
            utility = _NOTHING_IS_FRESH
        local = self._local(table, utility, held)
        if local is not None and utility.value(local) - utility.cost(local) >= utility.most:
            return local.source
        return best(self._plans(now_us, table, local), utility).source

    def plans(self, now_us: int, table: str, utility: Utility, held: Answerable | None) -> list[Plan]:
        """Give what can be done: an incomplete answer only where a utility says what it is worth."""
        return self._plans(now_us, table, self._local(table, utility, held))

    def _plans(self, now_us: int, table: str, local: Plan | None) -> list[Plan]:
        if local is None:  # asking brings something new for certain
            return [self.remote(now_us, table)]
        return [local, self.remote(now_us, table, local.changed_share)]

    def _local(self, table: str, utility: Utility, held: Answerable | None) -> Plan | None:
        if held is None or (held.completeness < 1.0 and not utility.weighs_completeness):
            return None
        changed = self.changed_share(table, held.age_s)
        return Plan("local", held.age_s, 0.0, held.completeness, held.bias, changed)

    def remote(self, now_us: int, table: str, changed_share: float = 1.0) -> Plan:
        """Give the plan to ask the cloud: now, or when there is a link."""
        network = _NETWORKS.get(self.network, _NETWORKS[_UNKNOWN])
        size_kb = _ASKED_KB + self._answer_kb.get(table, _FIRST_KB)
        latency_s = network.there_and_back_s + size_kb / network.kb_per_s
        is_awake = self._used_us is not None and now_us - self._used_us < network.tail_s * 1e6
        radio_mj = size_kb * network.mj_per_kb + (0.0 if is_awake else network.wake_mj)
        source: PlanSource = "remote"
        if self._down_since_us is not None:
            source = "wait"
            # An outage of unknown length is expected to last as long again as it has lasted.
            latency_s += max(_SHORTEST_OUTAGE_S, (now_us - self._down_since_us) / 1e6)
        return Plan(source, 0.0, latency_s, 1.0, 0.0, changed_share, size_kb, radio_mj)

    def changed_share(self, table: str, age_s: float) -> float:
        """Give the probability that something held of a table has changed since: by a constant rate."""
        rate = (self._changes[table] + 1) / (self._watched_s[table] + _PRIOR_S)
        return 1.0 - math.exp(-rate * max(age_s, 0.0))
