"""What a wrong decision costs: a stale answer against an unnecessary query (Mobius 6)."""

from __future__ import annotations

from dataclasses import dataclass

from mudkit.errors import ParameterError

__all__ = ["COSTS", "CostMatrix", "cost_matrix"]


@dataclass(frozen=True)
class CostMatrix:
    """Cost of each wrong decision; right ones cost nothing.

    Parameters
    ----------
    stale : float
        A stale answer was served from the cache.
    unnecessary : float
        The server was asked although the cached answer was not stale.
    """

    stale: float
    unnecessary: float


COSTS = {
    "latency": CostMatrix(stale=1.0, unnecessary=1.0),
    "freshness": CostMatrix(stale=5.0, unnecessary=1.0),
}
"""Two presets, one that would rather answer at once and one that would rather be fresh. Mobius (6) names two
such utilities and gives no numbers; these are ours."""


def cost_matrix(cost: str | CostMatrix) -> CostMatrix:
    """Look up a preset by name.

    Raises
    ------
    ParameterError
    """
    if isinstance(cost, CostMatrix):
        return cost
    if cost not in COSTS:
        raise ParameterError(
            "There is no such cost preset.", where="cost", found=repr(cost), expected=", ".join(COSTS)
        )
    return COSTS[cost]
