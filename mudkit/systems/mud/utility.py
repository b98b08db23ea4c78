"""Utilities: how much an answer is worth, less what it costs (Mobius 6), and the plan that is worth most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mudkit.sources.parameters import number

__all__ = ["Plan", "Utility", "best", "freshness"]

_WORTH: Final = 1e9
"""Of an answer that is fresh enough, in seconds of waiting: more than any wait."""


@dataclass(frozen=True)
class Plan:
    """A way to answer a read.

    Parameters
    ----------
    source : {'local', 'remote'}
    age_s : float
        Of the oldest part of the answer.
    latency_s : float
        Until it is there, as far as one can say.
    """

    source: str
    age_s: float
    latency_s: float


class Utility(Protocol):
    """``value - cost`` of a plan."""

    def value(self, plan: Plan) -> float:
        """Say what the answer is worth."""
        ...

    def cost(self, plan: Plan) -> float:
        """Say what it costs."""
        ...


@dataclass(frozen=True)
class _Freshness:
    max_age_s: float

    def value(self, plan: Plan) -> float:
        return _WORTH if plan.age_s < self.max_age_s or plan.source == "remote" else 0.0

    def cost(self, plan: Plan) -> float:
        return plan.latency_s


def freshness(max_age_s: float) -> Utility:
    """Give the utility for which an answer younger than some age is worth a lot, and waiting costs.

    Mobius 6: a step of the age, less a linear function of the latency.

    Parameters
    ----------
    max_age_s : float
        Younger than this is fresh; 0: nothing that is committed and held is.
    """
    return _Freshness(number("max_age_s", max_age_s, 0.0, 1e9))


def best(plans: Sequence[Plan], utility: Utility) -> Plan:
    """Give the plan with the highest utility; of equals the first."""
    return max(plans, key=lambda plan: utility.value(plan) - utility.cost(plan))
