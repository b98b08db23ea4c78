"""Utilities: what an answer is worth, less what it costs (Mobius 6), and the plan that is worth most.

Worth and costs are in seconds of waiting: what somebody would wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from mudkit.arguments import check_arguments
from mudkit.errors import ParameterError
from mudkit.sources.parameters import number

__all__ = [
    "Plan",
    "Utility",
    "bandwidth",
    "best",
    "bias",
    "completeness",
    "cost_matrix",
    "energy",
    "freshness",
    "latency",
]

_WORTH_S: Final = 1e9
"""More than anybody waits."""

PlanSource: TypeAlias = Literal["local", "remote", "wait"]


class Plan(msgspec.Struct, frozen=True):
    """A way to answer a read.

    Parameters
    ----------
    source : {'local', 'remote', 'wait'}
        The source: here, the cloud, or the cloud as soon as there is a link.
    age_s : float
        The age of the oldest part of the answer, in seconds.
    latency_s : float
        The time until it is there, in seconds, as far as one can say.
    completeness : float
        Share of the answer's records that are certain to be in it.
    bias : float
        The largest difference between the completeness of two partitions: 0 when what is missing is spread
        evenly, 1 when all of one key range is there and nothing of another.
    changed_share : float
        Probability that the cloud would by now answer something else than what is held.
    size_kb : float
        The size of what is sent and received, in kB.
    radio_mj : float
    """

    source: PlanSource
    age_s: float
    latency_s: float
    completeness: float = 1.0
    bias: float = 0.0
    changed_share: float = 0.0
    size_kb: float = 0.0
    radio_mj: float = 0.0


class Utility:
    """``value - cost`` of a plan; a utility of one's own says one or both.

    Utilities are added, and multiplied by a number.

    Examples
    --------
    >>> both = freshness(600) + 2 * energy(per_j_s=0.5)
    >>> both.cost(Plan("remote", 0.0, latency_s=0.1, radio_mj=3000.0))
    3.1
    """

    weighs_completeness = False
    """Whether it says what an incomplete answer is worth; without, such an answer is none."""
    most = math.inf
    """No plan is worth more: one that is worth as much need not be compared."""

    def value(self, plan: Plan) -> float:
        """Say what the answer is worth, in seconds of waiting."""
        return 0.0

    def cost(self, plan: Plan) -> float:
        """Say what it costs, in seconds of waiting."""
        return 0.0

    def __add__(self, other: Utility) -> Utility:
        if not isinstance(other, Utility):
            return NotImplemented
        return _Sum((self, other))

    def __mul__(self, factor: float) -> Utility:
        return _Scaled(self, number("factor", factor, 0.0, 1e9))

    __rmul__ = __mul__


@dataclass(frozen=True)
class _Sum(Utility):
    parts: tuple[Utility, ...]

    @property
    def weighs_completeness(self) -> bool:  # type: ignore[override]
        return any(part.weighs_completeness for part in self.parts)

    @property
    def most(self) -> float:  # type: ignore[override]
        return math.fsum(part.most for part in self.parts)

    def value(self, plan: Plan) -> float:
        return math.fsum(part.value(plan) for part in self.parts)

    def cost(self, plan: Plan) -> float:
        return math.fsum(part.cost(plan) for part in self.parts)


@dataclass(frozen=True)
class _Scaled(Utility):
    part: Utility
    factor: float

    @property
    def weighs_completeness(self) -> bool:  # type: ignore[override]
        return self.part.weighs_completeness

    @property
    def most(self) -> float:  # type: ignore[override]
        return self.factor * self.part.most if self.factor else 0.0

    def value(self, plan: Plan) -> float:
        return self.factor * self.part.value(plan)

    def cost(self, plan: Plan) -> float:
        return self.factor * self.part.cost(plan)


@dataclass(frozen=True)
class _Freshness(Utility):
    max_age_s: float
    most = _WORTH_S

    def value(self, plan: Plan) -> float:
        return _WORTH_S if plan.age_s < self.max_age_s or plan.source != "local" else 0.0

    def cost(self, plan: Plan) -> float:
        return plan.latency_s


@dataclass(frozen=True)
class _Completeness(Utility):
    worth_s: float
    min_share: float
    weighs_completeness = True

    @property
    def most(self) -> float:  # type: ignore[override]
        return self.worth_s

    def value(self, plan: Plan) -> float:
        return self.worth_s * plan.completeness if plan.completeness >= self.min_share else 0.0


@dataclass(frozen=True)
class _Costs(Utility):
    """What is measured of a plan, times what it costs."""

    of: str
    each_s: float
    most = 0.0

    def cost(self, plan: Plan) -> float:
        return self.each_s * float(getattr(plan, self.of))


@dataclass(frozen=True)
class _Matrix(Utility):
    stale_s: float
    unnecessary_s: float
    most = 0.0

    def cost(self, plan: Plan) -> float:
        if plan.source == "local":
            return self.stale_s * plan.changed_share
        return self.unnecessary_s * (1.0 - plan.changed_share)


@check_arguments
def freshness(max_age_s: float) -> Utility:
    """Return a utility in which answers below a maximum age are worth much, and waiting costs.

    Mobius 6: a step of the age, less a linear function of the latency.

    Parameters
    ----------
    max_age_s : float
        Younger than this is fresh; 0: nothing that is committed and held is.
    """
    return _Freshness(number("max_age_s", max_age_s, 0.0, 1e9))


@check_arguments
def completeness(worth_s: float = _WORTH_S, min_share: float = 0.0) -> Utility:
    """Return a utility in which an answer is worth more the more of its records it certainly contains.

    Parameters
    ----------
    worth_s : float
        The worth of a complete answer, in seconds; others are worth their proportion.
    min_share : float
        An answer with a smaller share of its records is worth nothing.
    """
    return _Completeness(number("worth_s", worth_s, 0.0, 1e12), number("min_share", min_share, 0.0, 1.0))


@check_arguments
def bias(worst_s: float) -> Utility:
    """Return a utility in which gaps concentrated in one key range cost.

    Parameters
    ----------
    worst_s : float
        What an answer costs that has all of one partition and nothing of another.
    """
    return _Costs("bias", number("worst_s", worst_s, 0.0, 1e12))


@check_arguments
def latency(per_s: float = 1.0) -> Utility:
    """Return a utility in which waiting costs.

    Parameters
    ----------
    per_s : float
        What a second of waiting costs.
    """
    return _Costs("latency_s", number("per_s", per_s, 0.0, 1e12))


@check_arguments
def bandwidth(per_kb_s: float) -> Utility:
    """Return a utility in which transferred bytes cost.

    Parameters
    ----------
    per_kb_s : float
        How long one would wait to save a kilobyte.
    """
    return _Costs("size_kb", number("per_kb_s", per_kb_s, 0.0, 1e12))


@check_arguments
def energy(per_j_s: float) -> Utility:
    """Return a utility in which the radio's energy costs.

    Parameters
    ----------
    per_j_s : float
        How long one would wait to save a joule.
    """
    return _Costs("radio_mj", number("per_j_s", per_j_s, 0.0, 1e12) / 1000.0)


@check_arguments
def cost_matrix(stale_s: float, unnecessary_s: float) -> Utility:
    """Return the utility of a cost matrix: stale answers against needless queries (Mobius 6).

    What a right decision costs is nothing.

    Parameters
    ----------
    stale_s : float
        What an answer from here costs that is no longer what the cloud holds.
    unnecessary_s : float
        What it costs to ask for what is held.
    """
    stale_s = number("stale_s", stale_s, 0.0, 1e12)
    unnecessary_s = number("unnecessary_s", unnecessary_s, 0.0, 1e12)
    if stale_s == unnecessary_s == 0.0:
        raise ParameterError(
            "A cost matrix without costs decides nothing.",
            where="stale_s, unnecessary_s",
            found="0, 0",
            expected="at min_share one above 0",
        )
    return _Matrix(stale_s, unnecessary_s)


def best(plans: Sequence[Plan], utility: Utility) -> Plan:
    """Give the plan with the highest utility; of equals the first."""
    return max(plans, key=lambda plan: utility.value(plan) - utility.cost(plan))
