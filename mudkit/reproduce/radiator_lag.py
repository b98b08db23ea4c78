"""R3 and R4: how long messages take through a server's link of finite capacity, and through chains.

The link is first in, first out, and each aggregate takes it for as long as all its pushes last; how large
they are is measured on the aggregates themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.reproduce.radiator_messages import CLIENTS, ENCODING, aggregates, chain_of, messages, push_bytes
from mudkit.reproduce.row import Figure, Measured, Say, nothing_said
from mudkit.systems.radiator import Message

__all__ = ["HOP_S", "LOADS", "measure_headline", "measure_lag"]

LOADS: Final = (0.25, 0.5, 0.75, 0.9, 1.0, 1.084, 1.25, 1.5, 2.0)
"""Bytes a second that volume 1 offers, of what the link carries; 1.084 gives a lag of 42 s over 1,000 s."""
HOP_S: Final = 0.07
"""From one phone to the next: the median latency of LTE, up and down (Huang et al., MobiSys 2012)."""
_PER_S: Final = 30.0


@dataclass(frozen=True)
class _Sent:
    """Aggregates on their way out: when each goes, its bytes in all, and when its messages came."""

    gone_s: NDArray[np.float64]
    size_bytes: NDArray[np.float64]
    came_s: list[NDArray[np.float64]]

    @property
    def total_bytes(self) -> float:
        return float(self.size_bytes.sum())

    @property
    def messages(self) -> int:
        return sum(map(len, self.came_s))

    def lags_s(self, bytes_per_s: float) -> NDArray[np.float64]:
        """Give the lag of each message when half of the pushes of its aggregate have left."""
        work_s = self.size_bytes / bytes_per_s
        before_s = np.concatenate([[0.0], np.cumsum(work_s)[:-1]])
        # When the link turns to each: after all before it, or when it comes to an idle link.
        begins_s = before_s + np.maximum.accumulate(self.gone_s - before_s)
        left_s = begins_s + work_s / 2
        return np.concatenate([left - came for left, came in zip(left_s, self.came_s, strict=True)])


def _sent(sent: Sequence[Message], volume: int, clients: int, share: float, seed: int) -> _Sent:
    gone = aggregates(sent, volume)
    size = max(1, math.floor(share * clients + 1e-9))
    rest = chain_of(size, seed, clients)[1:]
    sizes = [push_bytes(each.context, rest) * math.ceil(clients / size) for each in gone]
    came_s = [np.array([message.arrived_us for message in each.batch]) / 1e6 for each in gone]
    return _Sent(np.array([each.gone_us for each in gone]) / 1e6, np.array(sizes, np.float64), came_s)


def measure_lag(
    say: Say = nothing_said, *, length_s: int = 1000, seeds: Sequence[int] = range(3)
) -> Measured:
    """Measure row R4: lag against offered load at volume 1, 20 and 50.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    length_s : int
        For so long messages come.
    seeds : sequence of int
    """
    lags: dict[tuple[int, float], list[float]] = {(v, load): [] for v in (1, 20, 50) for load in LOADS}
    pays: dict[int, list[float]] = {20: [], 50: []}
    for seed in seeds:
        say(f"seed {seed}")
        came = list(messages(round(length_s * _PER_S), seed, per_s=_PER_S))
        of_volume = {volume: _sent(came, volume, 100, 0.0, seed) for volume in (1, 20, 50)}
        offered = of_volume[1].total_bytes / length_s
        for volume, load in lags:
            lags[volume, load].append(float(of_volume[volume].lags_s(offered / load).mean()))
        for volume, found in pays.items():
            better = [load for load in LOADS if lags[volume, load][-1] < lags[1, load][-1]]
            found.append(better[0] if better else math.inf)
    least, most = LOADS[0], LOADS[-1]

    def ratio(volume: int, load: float) -> Figure:
        return Figure.of(b / a for a, b in zip(lags[1, load], lags[volume, load], strict=True))

    figures = {
        f"lag of volume 20 over volume 1 at load {most:g}": ratio(20, most),
        f"lag of volume 50 over volume 1 at load {most:g}": ratio(50, most),
        f"lag of volume 20 over volume 1 at load {least:g}": ratio(20, least),
        f"lag of volume 50 over volume 20 at load {least:g}": Figure.of(
            b / a for a, b in zip(lags[20, least], lags[50, least], strict=True)
        ),
        "load from which volume 20 pays": Figure.of(pays[20]),
        "load from which volume 50 pays": Figure.of(pays[50]),
        "lag of volume 1 at load 1.084, s": Figure.of(lags[1, 1.084]),
        **{
            f"lag of volume {volume} at load {load:g}, s": Figure.of(values)
            for (volume, load), values in lags.items()
        },
    }
    parameters: dict[str, Any] = {
        "encoding": ENCODING, "messages a second": _PER_S, "for s": length_s, "receivers": 100,
        "load": "bytes of volume 1 that are offered, of what the link carries", "seeds": list(seeds),
    }  # fmt: skip
    return Measured(figures, parameters)


def measure_headline(
    say: Say = nothing_said, *, clients: int = CLIENTS, length_s: int = 1000, load: float = 1.084,
    seeds: Sequence[int] = range(3),
) -> Measured:  # fmt: skip
    """Measure row R3: chains of 1 % and volume 20, against a push of each message to each.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    clients : int
    length_s : int
    load : float
        That pushes to each offer of what the link carries; both have the same link.
    seeds : sequence of int
    """
    times: list[float] = []
    delays: dict[str, list[float]] = {
        f"{what}, {how}": []
        for how in ("push to each", "1 %, volume 20")
        for what in ("mean delay, s", "median delay, s", "95 % of delays, s")
    }
    size = max(1, math.floor(0.01 * clients + 1e-9))
    for seed in seeds:
        say(f"seed {seed}")
        came = list(messages(round(length_s * _PER_S), seed, per_s=_PER_S, clients=clients))
        each, chained = _sent(came, 1, clients, 0.0, seed), _sent(came, 20, clients, 0.01, seed)
        times.append(each.total_bytes / each.messages / (chained.total_bytes / chained.messages))
        bytes_per_s = each.total_bytes / length_s / load
        hops_s = HOP_S * np.linspace(0, size - 1, min(size, 50))
        alone_s = each.lags_s(bytes_per_s)
        passed_s = (chained.lags_s(bytes_per_s)[:, None] + hops_s[None, :]).ravel()
        values = [f(lags) for lags in (alone_s, passed_s) for f in (np.mean, np.median, _late)]
        for found, value in zip(delays.values(), values, strict=True):
            found.append(float(value))
    means = zip(delays["mean delay, s, push to each"], delays["mean delay, s, 1 %, volume 20"], strict=True)
    figures = {
        "times less outbound": Figure.of(times),
        "mean delay over that of pushes to each": Figure.of(b / a for a, b in means),
        **{name: Figure.of(values) for name, values in delays.items()},
    }
    parameters: dict[str, Any] = {
        "encoding": ENCODING, "clients": clients, "messages a second": _PER_S, "for s": length_s,
        "load of pushes to each": load, "a hop, s": HOP_S, "seeds": list(seeds),
    }  # fmt: skip
    return Measured(figures, parameters)


def _late(lags: NDArray[np.float64]) -> float:
    return float(np.quantile(lags, 0.95))
