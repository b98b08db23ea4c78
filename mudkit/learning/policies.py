"""Cache policies for reads: whether to answer from the last answer that the device fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mudkit.learning.pairs import Pairs

__all__ = ["Always", "Bound", "FixedRule", "Policy"]


class Policy(Protocol):
    """What replay asks of a policy."""

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Decide for each pair whether to serve the read from that answer, should it be in the cache."""
        ...


@dataclass(frozen=True)
class Always:
    """Always ask the server."""

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Never answer locally."""
        return np.zeros(len(pairs.read), dtype=np.bool_)

    def __str__(self) -> str:
        return "always ask"


@dataclass(frozen=True)
class FixedRule:
    """Answer locally when near a recent query (the CarTel application's rule, Mobius 7.3).

    Parameters
    ----------
    km : float
        Up to this distance from the cached query.
    minutes : float
        Up to this age of it.
    """

    km: float = 1.0
    minutes: float = 10.0

    def local(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Answer locally when both limits are kept."""
        return (pairs.distance_km <= self.km) & (pairs.age_s <= self.minutes * 60)

    def __str__(self) -> str:
        return f"{self.km:g} km / {self.minutes:g} min"


@dataclass(frozen=True)
class Bound:
    """The fewest queries that any policy could send, found afterwards from the whole trace.

    Parameters
    ----------
    stale_share : float, optional
        Share of stale answers that it may give. By default as many as the first :class:`FixedRule` in the
        same evaluation gives; none when there is no such rule.
    """

    stale_share: float | None = None

    def __str__(self) -> str:
        return (
            "bound, as stale as the rule"
            if self.stale_share is None
            else f"bound, {self.stale_share:.0%} stale"
        )
