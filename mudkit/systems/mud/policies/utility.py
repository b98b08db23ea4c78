"""Utilities: the worth of an answer less its costs (Mobius 6).

Worth and costs are in seconds of waiting: how long a user would wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from mudkit.checks import Range, check_arguments, number
from mudkit.errors import ParameterError
from mudkit.predicates import Predicate
from mudkit.wire import Fields

_FRESH_WORTH_S: Final = 1e9
"""Longer than anybody waits."""

PlanSource: TypeAlias = Literal["local", "rest", "remote", "wait"]


class Query(msgspec.Struct, frozen=True):
    """A read as a policy sees it, or a write as a utility does."""

    table: str
    predicate: Predicate | None
    type: str
    reader: Fields
    utility: Utility | None


class Plan(msgspec.Struct, frozen=True):
    """A way to answer a read.

    Parameters
    ----------
    source : {'local', 'rest', 'remote', 'wait'}
        The device; the device, and the cloud for the rest of the query; the cloud; or the cloud as soon as
        there is a link.
    age_s : float
        Age of the oldest part of the answer, in seconds.
    latency_s : float
        Expected time until the answer, in seconds.
    completeness : float
        Share of the answer's records that are certain to be in it.
    bias : float
        Largest difference between the completeness of two partitions: 0 if missing records are spread
        evenly, 1 if all of one key range is there and nothing of another.
    changed_share : float
        Probability that the cloud's answer would differ from the cached one.
    size_kb : float
        Bytes sent and received, in kB.
    radio_mj : float
        Energy of the radio, in mJ.
    query : Query or None
        The read; for a write its table, type and reader, with no predicate. None: it is unknown.
    context : mapping
        State of the device, such as ``battery``, with the time of its clock as ``now_us``, and ``network``,
        the name of its network, None without one.

    A plan for a write sends it after a delay. Then ``source`` is ``remote`` without a delay, and else
    ``local``, ``age_s`` is the delay, and ``changed_share`` the probability that a reader asks before the
    write is sent, whose answer lacks it: ``completeness`` is the rest. ``latency_s`` adds how long the first
    reader would have to wait for it, as expected, and ``radio_mj`` has a share of a wake-up, with the writes
    that are made in the meantime.
    """

    source: PlanSource
    age_s: float
    latency_s: float
    completeness: float = 1.0
    bias: float = 0.0
    changed_share: float = 0.0
    size_kb: float = 0.0
    radio_mj: float = 0.0
    query: Query | None = None
    context: Fields = msgspec.field(default_factory=dict)


class Utility:
    """``value - cost`` of a plan; a subclass overrides one or both.

    Utilities can be added, and multiplied by a number. Those of one's own see the query and the context of
    the device in the plan: ``plan.context.get("battery")``.

    Examples
    --------
    >>> both = freshness(600) + 2 * energy(per_j_s=0.5)
    >>> both.cost(Plan("remote", 0.0, latency_s=0.1, radio_mj=3000.0))
    3.1
    """

    @property
    def weighs_completeness(self) -> bool:
        """True if it values incomplete answers; otherwise these are not considered."""
        return False

    @property
    def most(self) -> float:
        """Upper bound of the utility: a plan that reaches it need not be compared with others."""
        return math.inf

    def is_best(self, age_s: float) -> bool:
        """Return whether a complete answer from the device is certain to reach :attr:`most`.

        It is then used without estimating any plan. False: plans are compared.

        Parameters
        ----------
        age_s : float
            Age of the answer, in seconds.
        """
        return False

    def value(self, plan: Plan) -> float:
        """Return the worth of the answer, in seconds of waiting."""
        return 0.0

    def cost(self, plan: Plan) -> float:
        """Return the cost, in seconds of waiting."""
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
    """Sum of utilities."""

    parts: tuple[Utility, ...]

    @property
    def weighs_completeness(self) -> bool:
        """See :class:`Utility`: as soon as one of the parts does."""
        return any(part.weighs_completeness for part in self.parts)

    @property
    def most(self) -> float:
        """See :class:`Utility`: the sum over the parts."""
        return math.fsum(part.most for part in self.parts)

    def value(self, plan: Plan) -> float:
        """See :class:`Utility`: the sum over the parts."""
        return math.fsum(part.value(plan) for part in self.parts)

    def cost(self, plan: Plan) -> float:
        """See :class:`Utility`: the sum over the parts."""
        return math.fsum(part.cost(plan) for part in self.parts)


@dataclass(frozen=True)
class _Scaled(Utility):
    """Utility times a factor, 0 or more."""

    part: Utility
    factor: float

    @property
    def weighs_completeness(self) -> bool:
        """See :class:`Utility`: as the part does."""
        return self.part.weighs_completeness

    @property
    def most(self) -> float:
        """See :class:`Utility`: that of the part, times the factor."""
        return self.factor * self.part.most if self.factor else 0.0

    def value(self, plan: Plan) -> float:
        """See :class:`Utility`: that of the part, times the factor."""
        return self.factor * self.part.value(plan)

    def cost(self, plan: Plan) -> float:
        """See :class:`Utility`: that of the part, times the factor."""
        return self.factor * self.part.cost(plan)


@dataclass(frozen=True)
class InContext(Utility):
    """Utility of a query in a context, which its plans have."""

    part: Utility
    query: Query
    context: Fields

    @property
    def weighs_completeness(self) -> bool:
        """See :class:`Utility`: as the part does."""
        return self.part.weighs_completeness

    @property
    def most(self) -> float:
        """See :class:`Utility`: that of the part."""
        return self.part.most

    def is_best(self, age_s: float) -> bool:
        """See :class:`Utility`: as the part says."""
        return self.part.is_best(age_s)

    def value(self, plan: Plan) -> float:
        """See :class:`Utility`: that of the part, for the plan with both."""
        value = self.part.value(replace(plan, query=self.query, context=self.context))
        return _check_seconds("value", value)

    def cost(self, plan: Plan) -> float:
        """See :class:`Utility`: that of the part, for the plan with both."""
        cost = self.part.cost(replace(plan, query=self.query, context=self.context))
        return _check_seconds("cost", cost)


def _check_seconds(name: str, seconds: object) -> float:
    """Return the value or cost that a utility has computed; raise ParameterError unless it is a number."""
    if isinstance(seconds, Real) and seconds == seconds:
        return float(seconds)
    raise ParameterError(
        f"The {name} of a plan by this utility is not usable.",
        where=f"Utility.{name}",
        found=repr(seconds),
        expected="a number, in seconds of waiting",
    )


@dataclass(frozen=True)
class _Freshness(Utility):
    """Utility of :func:`freshness`: a step function of the age, less the latency."""

    max_age_s: float
    most = _FRESH_WORTH_S

    def is_best(self, age_s: float) -> bool:
        """See :class:`Utility`: a fresh answer from the device has all worth and no cost."""
        return age_s < self.max_age_s

    def value(self, plan: Plan) -> float:
        """See :class:`Utility`: all or nothing, by the age of what comes from the device."""
        is_new = plan.source in ("remote", "wait")
        return _FRESH_WORTH_S if plan.age_s < self.max_age_s or is_new else 0.0

    def cost(self, plan: Plan) -> float:
        """See :class:`Utility`: the time of waiting."""
        return plan.latency_s


@dataclass(frozen=True)
class _Completeness(Utility):
    """Utility of :func:`completeness`: worth in proportion to the share of certain records."""

    worth_s: float
    min_share: float
    weighs_completeness = True

    @property
    def most(self) -> float:
        """See :class:`Utility`: the worth of a complete answer."""
        return self.worth_s

    def value(self, plan: Plan) -> float:
        """See :class:`Utility`: in proportion to the share, from the smallest one that counts."""
        return self.worth_s * plan.completeness if plan.completeness >= self.min_share else 0.0


@dataclass(frozen=True)
class _Costs(Utility):
    """Cost in proportion to a field of the plan."""

    name: str
    unit_s: float
    most = 0.0

    def cost(self, plan: Plan) -> float:
        """See :class:`Utility`: the field of the plan, times the cost of its unit."""
        return self.unit_s * float(getattr(plan, self.name))


@dataclass(frozen=True)
class _Matrix(Utility):
    """Utility of :func:`cost_matrix`: costs of stale answers and of needless queries."""

    stale_s: float
    unnecessary_s: float
    most = 0.0

    def cost(self, plan: Plan) -> float:
        """See :class:`Utility`: the expected cost of a wrong decision."""
        if plan.source in ("local", "rest"):  # the rest is asked in any case
            return self.stale_s * plan.changed_share
        return self.unnecessary_s * (1.0 - plan.changed_share)


@check_arguments
def freshness(max_age_s: Annotated[float, Range(0.0, 1e9)]) -> Utility:
    """Return a utility in which answers below a maximum age are worth much, and waiting costs.

    Mobius 6: a step function of the age, less a linear function of the latency.

    Parameters
    ----------
    max_age_s : float
        Maximum age of a fresh answer; 0: no committed record on the device is fresh.
    """
    return _Freshness(max_age_s)


@check_arguments
def completeness(
    worth_s: Annotated[float, Range(0.0, 1e12)] = _FRESH_WORTH_S,
    min_share: Annotated[float, Range(0.0, 1.0)] = 0.0,
) -> Utility:
    """Return a utility in which an answer is worth its share of records that are certain to be in it.

    Parameters
    ----------
    worth_s : float
        Worth of a complete answer, in seconds.
    min_share : float
        An answer with a smaller share is worth nothing.
    """
    return _Completeness(worth_s, min_share)


@check_arguments
def bias(worst_s: Annotated[float, Range(0.0, 1e12)]) -> Utility:
    """Return a utility in which gaps concentrated in one key range cost.

    Parameters
    ----------
    worst_s : float
        Cost of an answer that has all of one partition and nothing of another.
    """
    return _Costs("bias", worst_s)


@check_arguments
def latency(per_s: Annotated[float, Range(0.0, 1e12)] = 1.0) -> Utility:
    """Return a utility in which waiting costs.

    Parameters
    ----------
    per_s : float
        Cost of a second of waiting.
    """
    return _Costs("latency_s", per_s)


@check_arguments
def bandwidth(per_kb_s: Annotated[float, Range(0.0, 1e12)]) -> Utility:
    """Return a utility in which transferred bytes cost.

    Parameters
    ----------
    per_kb_s : float
        How long a user would wait to save a kilobyte.
    """
    return _Costs("size_kb", per_kb_s)


@check_arguments
def energy(per_j_s: Annotated[float, Range(0.0, 1e12)]) -> Utility:
    """Return a utility in which the radio's energy costs.

    Parameters
    ----------
    per_j_s : float
        How long a user would wait to save a joule.
    """
    return _Costs("radio_mj", per_j_s / 1000.0)


@check_arguments
def cost_matrix(
    stale_s: Annotated[float, Range(0.0, 1e12)], unnecessary_s: Annotated[float, Range(0.0, 1e12)]
) -> Utility:
    """Return the utility of a cost matrix: stale answers against needless queries (Mobius 6).

    Right decisions cost nothing.

    Parameters
    ----------
    stale_s : float
        Cost of a local answer that differs from the cloud's.
    unnecessary_s : float
        Cost of a query whose answer is cached.
    """
    if stale_s == unnecessary_s == 0.0:
        raise ParameterError(
            "A cost matrix needs a cost.",
            where="stale_s, unnecessary_s",
            found="0, 0",
            expected="at least one above 0",
        )
    return _Matrix(stale_s, unnecessary_s)


def best(plans: Sequence[Plan], utility: Utility) -> Plan:
    """Return the plan with the highest utility; of equals the first."""
    return max(plans, key=lambda plan: utility.value(plan) - utility.cost(plan))
