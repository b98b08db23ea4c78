"""What a client fetches before it is asked for (Mobius 6).

Rules:

========  =========================================================================================
read      each read is taken note of: how often it came, and how far apart
look      when a link comes up, and every so often: the policy picks among what is read again and
          again; what it picks is asked of the cloud, and is held from then on
========  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from mudkit.events import Effect, SetTimer
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.planning import Planner
from mudkit.systems.mud.device.read_path import ReadPath
from mudkit.systems.mud.policies.policies import Asked, Expected, PrefetchPolicy
from mudkit.systems.mud.policies.utility import Plan, freshness
from mudkit.systems.mud.tables.queries import keys_of
from mudkit.wire import Fields

__all__ = ["LOOK", "Prefetching"]

LOOK: Final = "look"
_KEPT: Final = 64


@dataclass
class _Habit:
    asked: Asked
    times: int
    first_us: int
    last_us: int


class Prefetching:
    """The prefetching of one client.

    Parameters
    ----------
    cache : Cache
    planner : Planner
    policy : PrefetchPolicy
    reads : ReadPath
    """

    def __init__(
        self,
        cache: Cache,
        planner: Planner,
        policy: PrefetchPolicy,
        reads: ReadPath,
    ) -> None:
        self._cache = cache
        self._planner = planner
        self._policy = policy
        self._reads = reads
        self._habits: list[_Habit] = []
        """The one asked for last stands last."""

    def asked(self, now_us: int, asked: Asked) -> None:
        """Take note of a read."""
        first = _Habit(asked, 0, now_us, now_us)
        habit = next((each for each in self._habits if each.asked == asked), first)
        habit.times, habit.last_us = habit.times + 1, now_us
        self._habits = [*(each for each in self._habits if each is not habit), habit][-_KEPT:]

    def look(self, now_us: int, context: Fields) -> Sequence[Effect]:
        """Fetch what the policy picks, and look again later."""
        if self._planner.remote(now_us, "").source != "remote":
            return ()  # the link wakes it
        expected = [self._expected(now_us, habit) for habit in self._habits if habit.times > 1]
        effects: list[Effect] = []
        for asked in self._policy.wanted(expected, context):
            effects += self._reads.fetch(now_us, asked)
        return [*effects, SetTimer(LOOK, round(self._policy.every_s * 1e6))]

    def _expected(self, now_us: int, habit: _Habit) -> Expected:
        """Say when a read is expected again, and what it would be worth to have its answer then."""
        asked = habit.asked
        gap_us = (habit.last_us - habit.first_us) / (habit.times - 1)
        due_us = max(habit.last_us + gap_us - now_us, 0.0)
        then_us = now_us + round(due_us)
        held = self._cache.find(then_us, asked, keys_of(asked.predicate), latest=False)
        utility = asked.utility if asked.utility is not None else freshness(0.0)
        plans = self._planner.plans(now_us, asked.table, utility, None if held is None else held.quality)
        changed = self._planner.changed_share(asked.table, due_us / 1e6)
        fetched = Plan("local", due_us / 1e6, 0.0, changed_share=changed)
        without = max(utility.value(plan) - utility.cost(plan) for plan in plans)
        # Nobody waits for what is fetched: it costs what it takes, but no time.
        cost = utility.cost(replace(self._planner.remote(now_us, asked.table), latency_s=0.0))
        # It may not come again after all: by Laplace's rule of succession it does with this probability.
        share = habit.times / (habit.times + 1)
        gain_s = share * (utility.value(fetched) - utility.cost(fetched) - without) - cost
        return Expected(asked, habit.times, due_us / 1e6, gain_s)
