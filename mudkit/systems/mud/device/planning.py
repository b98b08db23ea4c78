"""Estimated costs and benefits of the plans for a read (Mobius 6)."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mudkit.systems.mud.policies.utility import Plan, PlanSource, Utility, best, freshness


class _Network(NamedTuple):
    """Assumed properties of a network."""

    round_trip_s: float
    kb_per_s: float
    wake_mj: float
    """Energy to wake a sleeping radio, including its tail afterwards."""
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
_REQUEST_KB: Final = 0.5
_DEFAULT_ANSWER_KB: Final = 1.0
_MIN_OUTAGE_S: Final = 60.0
_PRIOR_S: Final = 600.0
"""Assumed interval between changes of a table before anything is known of it."""
_NOTHING_IS_FRESH: Final = freshness(0.0)


class Answerable(msgspec.Struct, frozen=True):
    """Properties of an answer from the cache: see :class:`Plan`. Pending writes alone have an age below 0."""

    age_s: float
    completeness: float
    bias: float


class Planner:
    """Choice between plans by estimates from the device's own observations."""

    def __init__(self) -> None:
        self.network = ""
        self._down_since_us: int | None = 0
        self._used_us: int | None = None
        self._answer_kb: dict[str, float] = {}
        self._changes: defaultdict[str, int] = defaultdict(int)
        self._watched_s: defaultdict[str, float] = defaultdict(float)

    # -- observations

    def record_link_up(self, network: str) -> None:
        """Note the network that is available from now on."""
        self.network, self._down_since_us, self._used_us = network, None, None

    def record_link_down(self, now_us: int) -> None:
        """Note that there is no network from now on."""
        self._down_since_us, self._used_us = now_us, None

    def record_use(self, now_us: int) -> None:
        """Note that a message has just arrived, so that the radio is awake."""
        self._used_us = now_us

    def record_answer_size(self, table: str, size_kb: float) -> None:
        """Update the expected size of the cloud's answers for a table by that of an answer."""
        known = self._answer_kb.get(table, size_kb)
        self._answer_kb[table] = 0.7 * known + 0.3 * size_kb

    def record_comparison(self, table: str, age_s: float, *, has_changed: bool) -> None:
        """Note for the rate of changes whether a table's answer was another one after ``age_s``."""
        self._changes[table] += has_changed
        self._watched_s[table] += age_s

    # -- plans

    def choose_source(
        self, now_us: int, table: str, utility: Utility | None, cached: Answerable | None
    ) -> str:
        """Return how to answer a read: ``local``, ``remote``, or ``wait`` for a link.

        ``utility`` None: no cached answer is fresh; ``cached`` None: there is none.
        """
        if utility is None:
            utility = _NOTHING_IS_FRESH
        local = self._local_plan(table, utility, cached)
        if local is not None and utility.value(local) - utility.cost(local) >= utility.most:
            return local.source
        return best(self._plans(now_us, table, local), utility).source

    def plans(self, now_us: int, table: str, utility: Utility, cached: Answerable | None) -> list[Plan]:
        """Return the possible plans; an incomplete answer only if the utility values completeness."""
        return self._plans(now_us, table, self._local_plan(table, utility, cached))

    def prefers_rest(self, now_us: int, table: str, utility: Utility, age_s: float, share: float) -> bool:
        """Return whether to request only what the device does not hold of a query: all but a ``share``.

        ``age_s`` is the age of what it holds.
        """
        remote = self.remote_plan(now_us, table)
        network = _NETWORKS.get(self.network, _NETWORKS[_UNKNOWN])
        saved_kb = share * (remote.size_kb - _REQUEST_KB)
        rest = replace(
            remote,
            source="rest",
            age_s=age_s,
            latency_s=remote.latency_s - saved_kb / network.kb_per_s,
            changed_share=self.changed_share(table, age_s),
            size_kb=remote.size_kb - saved_kb,
            radio_mj=remote.radio_mj - saved_kb * network.mj_per_kb,
        )
        return best([remote, rest], utility) is rest

    def _plans(self, now_us: int, table: str, local: Plan | None) -> list[Plan]:
        """Return the plan to ask the cloud, after the local one if there is any."""
        if local is None:  # the answer is certain to be new
            return [self.remote_plan(now_us, table)]
        return [local, self.remote_plan(now_us, table, local.changed_share)]

    def _local_plan(self, table: str, utility: Utility, cached: Answerable | None) -> Plan | None:
        """Return the plan to use the cached answer; None: there is none, or it is not complete enough."""
        if cached is None or (cached.completeness < 1.0 and not utility.weighs_completeness):
            return None
        changed = self.changed_share(table, cached.age_s)
        return Plan("local", cached.age_s, 0.0, cached.completeness, cached.bias, changed)

    def remote_plan(self, now_us: int, table: str, changed_share: float = 1.0) -> Plan:
        """Return the plan to ask the cloud, now or as soon as there is a link, with its estimated costs."""
        network = _NETWORKS.get(self.network, _NETWORKS[_UNKNOWN])
        size_kb = _REQUEST_KB + self._answer_kb.get(table, _DEFAULT_ANSWER_KB)
        latency_s = network.round_trip_s + size_kb / network.kb_per_s
        is_awake = self._used_us is not None and now_us - self._used_us < network.tail_s * 1e6
        radio_mj = size_kb * network.mj_per_kb + (0.0 if is_awake else network.wake_mj)
        source: PlanSource = "remote"
        if self._down_since_us is not None:
            source = "wait"
            # An outage of unknown length is expected to last as long again as it has lasted.
            latency_s += max(_MIN_OUTAGE_S, (now_us - self._down_since_us) / 1e6)
        return Plan(source, 0.0, latency_s, 1.0, 0.0, changed_share, size_kb, radio_mj)

    def changed_share(self, table: str, age_s: float) -> float:
        """Return the probability that a table has changed after some time, at a constant rate."""
        rate = (self._changes[table] + 1) / (self._watched_s[table] + _PRIOR_S)
        return 1.0 - math.exp(-rate * max(age_s, 0.0))
