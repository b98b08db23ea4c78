"""Estimated costs and benefits of the plans for a read (Mobius 6)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from mudkit.systems.mud.policies.utility import InContext, Plan, PlanSource, Query, Utility, best, freshness
from mudkit.wire import Fields, Value


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
_READ_PRIOR_S: Final = 600.0
"""Assumed interval between reads of a table; a device that reads seldom does not know that others do."""
DELAYS_S: Final = (0.0, 60.0, 300.0, 600.0, 1800.0, 3600.0)
"""Delays of a write that are weighed: 10 and 30 minutes are those of Mobius 7.3."""
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
        self._since_us: int | None = None
        """Time of the first read or write."""
        self._reads: Counter[str] = Counter()
        self._writes = 0
        self._weighed: set[str] = set()
        """Tables whose writes have utilities."""
        self._read_intervals_ms: dict[str, int] = {}
        """Interval between reads of each table, as the cloud has measured it."""

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

    def record_read(self, now_us: int, table: str) -> None:
        """Count a read of the device, for the rate of reads of a table."""
        if self._since_us is None:
            self._since_us = now_us
        self._reads[table] += 1

    def record_write(self, now_us: int, table: str) -> None:
        """Count a write that has a utility; its table is weighed from now on.

        Other writes share a wake-up of the radio with it.
        """
        if self._since_us is None:
            self._since_us = now_us
        self._weighed.add(table)
        self._writes += 1

    def record_read_interval(self, table: str, interval_ms: int) -> None:
        """Store the interval between others' reads of a table, as the cloud measured it.

        0: an app has a continuous read of it, and is notified of each write at once.
        """
        self._read_intervals_ms[table] = interval_ms

    def weighs_writes(self, table: str) -> bool:
        """Return whether writes of a table are weighed, so that the interval between its reads matters."""
        return table in self._weighed

    # -- plans

    def write_plans(self, now_us: int, table: str) -> list[Plan]:
        """Return the plans to send a write after each of :data:`DELAYS_S`, with estimated losses and costs.

        Reads of the table and writes of the device come at random times, at constant rates: reads as often
        as the cloud has measured, or else as the device's own, or more often.
        """
        assert self._since_us is not None
        for_s = (now_us - self._since_us) / 1e6 + _READ_PRIOR_S
        per_s = max((self._reads[table] + 1) / for_s, 1.0 / _READ_PRIOR_S)
        if (interval_ms := self._read_intervals_ms.get(table)) is not None:
            per_s = 1000.0 / max(1, interval_ms)
        network = _NETWORKS.get(self.network, _NETWORKS[_UNKNOWN])
        now = self.remote_plan(now_us, table)
        plans: list[Plan] = []
        for delay_s in DELAYS_S:
            missed_share = 1.0 - math.exp(-per_s * delay_s)
            together = 1.0 + delay_s * self._writes / for_s
            asleep_mj = _REQUEST_KB * network.mj_per_kb + network.wake_mj / together
            plans.append(
                Plan(
                    source="local" if delay_s else "remote",
                    age_s=delay_s,
                    latency_s=now.latency_s + delay_s - missed_share / per_s,
                    completeness=1.0 - missed_share,
                    changed_share=missed_share,
                    size_kb=_REQUEST_KB,
                    radio_mj=asleep_mj if delay_s or not self._is_awake(now_us, network)
                    else _REQUEST_KB * network.mj_per_kb,
                )
            )  # fmt: skip
        return plans

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
        wake_mj = 0.0 if self._is_awake(now_us, network) else network.wake_mj
        radio_mj = size_kb * network.mj_per_kb + wake_mj
        source: PlanSource = "remote"
        if self._down_since_us is not None:
            source = "wait"
            # An outage of unknown length is expected to last as long again as it has lasted.
            latency_s += max(_MIN_OUTAGE_S, (now_us - self._down_since_us) / 1e6)
        return Plan(source, 0.0, latency_s, 1.0, 0.0, changed_share, size_kb, radio_mj)

    def _is_awake(self, now_us: int, network: _Network) -> bool:
        """Return whether the radio is still awake after the last message."""
        return self._used_us is not None and now_us - self._used_us < network.tail_s * 1e6

    def network_now(self) -> str | None:
        """Return the name of the network; None: there is none."""
        return self.network if self._down_since_us is None else None

    def changed_share(self, table: str, age_s: float) -> float:
        """Return the probability that a table has changed after some time, at a constant rate."""
        rate = (self._changes[table] + 1) / (self._watched_s[table] + _PRIOR_S)
        return 1.0 - math.exp(-rate * max(age_s, 0.0))


class UtilityWrites:
    """Write policy of a client without one: the write's utility weighs what readers lose by a delay.

    See :class:`~mudkit.systems.mud.policies.utility.Plan`. A write without a utility is sent at once.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def delay(self, write: Mapping[str, Value | Utility], context: Fields) -> float | Literal["never"] | None:
        """See :class:`~mudkit.systems.mud.policies.policies.WritePolicy`; count a write with a utility."""
        utility, now_us, reader = write.get("utility"), context["now_us"], write.get("reader")
        if not isinstance(utility, Utility) or not isinstance(now_us, int):
            return None
        table = str(write["name"])
        self._planner.record_write(now_us, table)
        data = reader if isinstance(reader, Mapping) else {}
        query = Query(table, None, str(write["type"]), data, utility)
        seen = InContext(utility, query, {**context, "network": self._planner.network_now()})
        return best(self._planner.write_plans(now_us, table), seen).age_s or None
