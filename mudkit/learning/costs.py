"""Costs of decisions: stale answers and unnecessary queries, late and premature writes (Mobius 6).

A cost matrix has a row for each thing that can be true and a column for each decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.checks import Range, check_arguments, number
from mudkit.errors import ParameterError

Costs: TypeAlias = "str | CostMatrix | ArrayLike"
"""A preset's name, or costs of one's own."""

NEVER_MIN: Final = float("inf")
CLASSES: Final = (*(10.0 * step for step in range(13)), NEVER_MIN)
"""Minutes that a write may wait (Mobius 7.3): 0, 10, …, 120, and for ever."""


@check_arguments(types=False)
@dataclass(frozen=True)
class CostMatrix:
    """Cost of each wrong decision about a read; right ones cost nothing.

    Parameters
    ----------
    stale : float
        Cost of serving a stale answer from the cache, 0 or more.
    unnecessary : float
        Cost of asking the server although the cached answer was not stale, 0 or more.

    Raises
    ------
    ParameterError
        A cost is negative, or no number.
    """

    stale: float
    unnecessary: float

    def __post_init__(self) -> None:
        number("stale", self.stale, 0.0, 1e9)
        number("unnecessary", self.unnecessary, 0.0, 1e9)

    def table(self) -> NDArray[np.float64]:
        """Return the full matrix: rows good and stale (the cached answer), columns local and remote."""
        return np.array([[0.0, self.unnecessary], [self.stale, 0.0]])


COSTS: Final = {
    "latency": CostMatrix(stale=1.0, unnecessary=1.0),
    "freshness": CostMatrix(stale=5.0, unnecessary=1.0),
}
"""Two presets, one that would rather answer at once and one that would rather be fresh. Mobius (6) names two
such utilities and gives no numbers; these are ours."""


@check_arguments(types=False)
def delay_costs(
    over: Annotated[float, Range(0.0, 1e9)],
    under: Annotated[float, Range(0.0, 1e9)] = 1.0,
    *,
    interval_s: Annotated[float, Range(1e-6, 1e9)] = 15.0,
    message_points: Annotated[float, Range(0.0, 1e9)] = 100.0,
) -> NDArray[np.float64]:
    """Build a cost matrix for writes (Mobius 7.3): delays beyond the safe one, and delays below it, cost.

    A write that is sent takes its own room and its part of a message, the smaller the more writes wait with
    it; one that is never sent takes nothing. Too short a delay costs the difference to the safe one.

    Parameters
    ----------
    over : float
        Cost of a delay that is longer than the write may wait, 0 or more.
    under : float
        Cost of sending at once a write that nobody reads, 0 or more.
    interval_s : float
        Time between two writes of a device; above 0.
    message_points : float
        Cost of a message by itself, in points: about what half an hour at 15 s fills.

    Returns
    -------
    ndarray of float64, shape (14, 14)
        Rows: how long a write may wait, one of :data:`CLASSES`; columns: how long it does.
    """
    delay_s = 60.0 * np.array(CLASSES)
    message = interval_s / (interval_s + delay_s)
    spent = under * (message_points * message + np.isfinite(delay_s)) / (message_points + 1.0)
    true, chosen = np.indices((len(CLASSES), len(CLASSES)))
    return np.where(chosen > true, over, spent[None, :] - spent[:, None])


WRITE_COSTS: Final = {"latency": delay_costs(0.02), "freshness": delay_costs(0.2)}
"""The same two presets for writes: one that would rather send little, one that would rather be complete."""


def read_costs(cost: Costs) -> NDArray[np.float64]:
    """Return the cost matrix of reads: rows good, stale; columns local, remote."""
    if isinstance(cost, CostMatrix):
        return cost.table()
    return _matrix(cost, {name: cost_matrix.table() for name, cost_matrix in COSTS.items()}, 2)


def write_costs(cost: Costs) -> NDArray[np.float64]:
    """Return the cost matrix of writes: rows and columns are :data:`CLASSES`."""
    return _matrix(cost, WRITE_COSTS, len(CLASSES))


def _matrix(cost: Any, presets: Mapping[str, NDArray[np.float64]], size: int) -> NDArray[np.float64]:
    """Return a preset by name, or a matrix as an array of this size; ParameterError if it is neither."""
    if isinstance(cost, str):
        if cost not in presets:
            raise ParameterError(
                "There is no such cost preset.", where="cost", found=repr(cost), expected=", ".join(presets)
            )
        return presets[cost]
    expected = f"{size} rows of {size} numbers, none of them negative"
    try:
        matrix = np.asarray(cost, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (size, size):
        shown = f"shape {matrix.shape}" if matrix.size else type(cost).__name__
        raise ParameterError("This is no cost matrix.", where="cost", found=shown, expected=expected)
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise ParameterError(
            "A cost matrix holds costs.", where="cost", found=str(matrix.tolist())[:200], expected=expected
        )
    return matrix
