"""How a server decides and sends."""

from __future__ import annotations

from dataclasses import dataclass

from mudkit.systems.radiator.aggregation.joins import Join
from mudkit.systems.radiator.aggregation.thresholds import Aggregability
from mudkit.systems.radiator.servers.chains import Chainability

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How a server decides and sends.

    Parameters
    ----------
    aggregability : Aggregability
    join : callable
    chain : float
        The share k of the peers that one chain has at most; 0: no chains.
    chainability : callable or None
    compress, echo : bool
    retention_us, silence_us : int
        No message waits for longer; who is silent for longer while something is owed is removed.
    link_kbps : float or None
    """

    aggregability: Aggregability
    join: Join
    chain: float
    chainability: Chainability | None
    compress: bool
    echo: bool
    retention_us: int
    silence_us: int
    link_kbps: float | None
