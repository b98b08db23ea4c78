"""R3 and R4: how long messages take through a server's link of finite capacity, and through chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.reproduce.radiator.link import OVERLOAD, PER_S, SentAggregates
from mudkit.reproduce.radiator.messages import CLIENTS, ENCODING, aggregates, chain_of, messages, push_bytes
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.systems.radiator import Message

__all__ = ["HOP_S", "LOADS", "measure_headline", "measure_lag"]

LOADS: Final = (0.25, 0.5, 0.75, 0.9, 1.0, OVERLOAD, 1.25, 1.5, 2.0)
"""Bytes a second that volume 1 offers, of what the link carries."""
HOP_S: Final = 0.07
"""From one phone to the next: the median latency of LTE, up and down (Huang et al., MobiSys 2012)."""


def _sent(sent: Sequence[Message], volume: int, clients: int, share: float, seed: int) -> SentAggregates:
    gone = aggregates(sent, volume)
    size = max(1, math.floor(share * clients + 1e-9))
    rest = chain_of(size, seed, clients)[1:]
    sizes = [push_bytes(each.context, rest) * math.ceil(clients / size) for each in gone]
    return SentAggregates.of(gone, sizes)


def measure_lag(say: Say = say_nothing, *, length_s: int = 1000, seeds: Sequence[int] = range(3)) -> Measured:
    """Measure row R4: lag against offered load at volume 1, 20 and 50.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    length_s : int
        How long messages come, in seconds.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    lags: dict[tuple[int, float], list[float]] = {(v, load): [] for v in (1, 20, 50) for load in LOADS}
    pays: dict[int, list[float]] = {20: [], 50: []}
    for seed in seeds:
        say(f"seed {seed}")
        came = list(messages(round(length_s * PER_S), seed, per_s=PER_S))
        of_volume = {volume: _sent(came, volume, 100, 0.0, seed) for volume in (1, 20, 50)}
        offered = of_volume[1].total_bytes / length_s
        for volume, load in lags:
            lags[volume, load].append(float(of_volume[volume].lags_s(offered / load).mean()))
        for volume, limits in pays.items():
            better = [load for load in LOADS if lags[volume, load][-1] < lags[1, load][-1]]
            limits.append(better[0] if better else math.inf)
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
        f"lag of volume 1 at load {OVERLOAD:g}, s": Figure.of(lags[1, OVERLOAD]),
        **{
            f"lag of volume {volume} at load {load:g}, s": Figure.of(values)
            for (volume, load), values in lags.items()
        },
    }
    parameters: dict[str, Any] = {
        "encoding": ENCODING,
        "messages a second": PER_S,
        "for s": length_s,
        "receivers": 100,
        "load": "bytes of volume 1 that are offered, of what the link carries",
        "seeds": list(seeds),
    }
    return Measured(figures, parameters)


def measure_headline(
    say: Say = say_nothing,
    *,
    clients: int = CLIENTS,
    length_s: int = 1000,
    load: float = OVERLOAD,
    seeds: Sequence[int] = range(3),
) -> Measured:
    """Measure row R3: chains of 1 % and volume 20, against a push of each message to each.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    clients : int
        The number of clients.
    length_s : int
        How long messages come, in seconds.
    load : float
        The load that pushes to each client offer, as a share of what the link carries; both ways have the
        same link.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
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
        came = list(messages(round(length_s * PER_S), seed, per_s=PER_S, clients=clients))
        each, chained = _sent(came, 1, clients, 0.0, seed), _sent(came, 20, clients, 0.01, seed)
        times.append(each.total_bytes / each.messages / (chained.total_bytes / chained.messages))
        bytes_per_s = each.total_bytes / length_s / load
        hops_s = HOP_S * np.linspace(0, size - 1, min(size, 50))
        alone_s = each.lags_s(bytes_per_s)
        passed_s = (chained.lags_s(bytes_per_s)[:, None] + hops_s[None, :]).ravel()
        values = [f(lags) for lags in (alone_s, passed_s) for f in (np.mean, np.median, _late)]
        for values_of_name, value in zip(delays.values(), values, strict=True):
            values_of_name.append(float(value))
    means = zip(delays["mean delay, s, push to each"], delays["mean delay, s, 1 %, volume 20"], strict=True)
    figures = {
        "times less outbound": Figure.of(times),
        "mean delay over that of pushes to each": Figure.of(b / a for a, b in means),
        **{name: Figure.of(values) for name, values in delays.items()},
    }
    parameters: dict[str, Any] = {
        "encoding": ENCODING,
        "clients": clients,
        "messages a second": PER_S,
        "for s": length_s,
        "load of pushes to each": load,
        "a hop, s": HOP_S,
        "seeds": list(seeds),
    }
    return Measured(figures, parameters)


def _late(lags: NDArray[np.float64]) -> float:
    return float(np.quantile(lags, 0.95))
