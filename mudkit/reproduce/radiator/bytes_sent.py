"""R1, R2 and R6: what compression, aggregation and chains leave of what a server sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from mudkit.reproduce.radiator.link import OVERLOAD, PER_S, SentAggregates
from mudkit.reproduce.radiator.messages import CLIENTS, ENCODING, aggregates, chain_of, messages, push_bytes
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.systems.radiator import pack

__all__ = ["SHARES", "falls", "measure_chains", "measure_compression", "measure_payload"]

SHARES: Final = (0.0002, 0.0005, 0.001, 0.01, 0.05, 0.10)
"""Chain sizes k of Radiator 5.3."""


def measure_compression(
    say: Say = say_nothing, *, count: int = 30_000, seeds: Sequence[int] = range(3)
) -> Measured:
    """Measure row R1: what is sent of each message, and how long that takes on a saturated link.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    count : int
        The number of messages that are compressed.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    kinds = {"no gzip": (1, False), "volume 1": (1, True), "volume 20": (20, True), "volume 50": (50, True)}
    series: dict[str, list[float]] = {kind: [] for kind in kinds}
    lags: dict[str, list[float]] = {kind: [] for kind in kinds}
    shares: dict[str, list[float]] = {kind: [] for kind in kinds}
    length_s = count / PER_S
    least, most = math.inf, 0
    for seed in seeds:
        say(f"seed {seed}")
        sent = list(messages(count, seed, per_s=PER_S))
        sizes = [len(pack(message.context.to_dict(), compress=False)) for message in sent]
        least, most = min(least, *sizes), max(most, *sizes)
        of_kind: dict[str, SentAggregates] = {}
        for kind, (volume, compress) in kinds.items():
            gone = aggregates(sent, volume, compress=compress)
            of_kind[kind] = out = SentAggregates.of(gone, [each.size_bytes for each in gone])
            series[kind].append(out.total_bytes / out.messages)
        bytes_per_s = of_kind["volume 1"].total_bytes / length_s / OVERLOAD
        for kind, out in of_kind.items():
            lags[kind].append(float(out.lags_s(bytes_per_s).mean()))
            shares[kind].append(out.left_bytes(bytes_per_s, length_s) / (bytes_per_s * length_s))
    plain, one, twenty, fifty = series.values()
    figures = {
        "share saved by gzip alone": _saved(plain, one),
        "share saved by volume 20 on top of gzip": _saved(one, twenty),
        "share saved by volume 50 on top of gzip": _saved(one, fifty),
        "steps down, of 3": Figure.of(map(falls, zip(*series.values(), strict=True))),
        "saved by 20 to 50 over saved by 1 to 20": Figure.of(
            (b - c) / (a - b) for a, b, c in zip(one, twenty, fifty, strict=True)
        ),
        **{f"bytes a message, {kind}": Figure.of(values) for kind, values in series.items()},
        **{
            f"lag of {kind} over {other}, saturated link": Figure.of(
                b / a for a, b in zip(lags[other], lags[kind], strict=True)
            )
            for kind, other in (("no gzip", "volume 1"), ("volume 20", "volume 1"), ("volume 50", "volume 1"))
        },
        **{f"lag of {kind}, saturated link, s": Figure.of(values) for kind, values in lags.items()},
        **{f"share of a saturated link that {kind} takes": Figure.of(all_) for kind, all_ in shares.items()},
        "smallest message, bytes": Figure.of([least]),
        "largest message, bytes": Figure.of([most]),
    }
    return Measured(
        figures,
        {
            "encoding": ENCODING,
            "messages": count,
            "messages a second": PER_S,
            "seeds": list(seeds),
            "saturated link": f"volume 1 with gzip offers {OVERLOAD:g} of what it carries; all have the same",
        },
    )


def measure_chains(
    say: Say = say_nothing, *, clients: int = CLIENTS, count: int = 20, seeds: Sequence[int] = range(3)
) -> Measured:
    """Measure row R2: what is sent of each message at volume 1, against a push to each.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    clients : int
        All of them can be reached by their peers.
    count : int
        Messages, each with a chain of its own.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    left: dict[str, list[float]] = {f"{share:.2%}": [] for share in SHARES}
    for seed in seeds:
        say(f"seed {seed}")
        gone = aggregates(list(messages(count, seed, per_s=10.0)), 1)
        alone = sum(push_bytes(each.context, []) for each in gone) * clients
        for share, values in zip(SHARES, left.values(), strict=True):
            size = max(1, math.floor(share * clients + 1e-9))
            chained = sum(
                push_bytes(each.context, chain_of(size, seed * 1000 + row, clients)[1:])
                for row, each in enumerate(gone)
            )
            values.append(chained * math.ceil(clients / size) / alone)
    lines = list(zip(*left.values(), strict=True))
    figures = {
        "share saved at k = 0.02 %": Figure.of(1 - line[0] for line in lines),
        "share left at k = 1 %": Figure.of(line[3] for line in lines),
        "steps down, of 6": Figure.of(falls((1.0, *line)) for line in lines),
        "saved from 0.02 to 0.05 % over saved from 1 to 10 %": Figure.of(
            (line[0] - line[1]) / (line[3] - line[5]) for line in lines
        ),
        **{f"share left at {share}": Figure.of(values) for share, values in left.items()},
    }
    parameters: dict[str, Any] = {
        "encoding": ENCODING,
        "clients": clients,
        "volume": 1,
        "messages": count,
        "seeds": list(seeds),
    }
    return Measured(figures, parameters)


def measure_payload(say: Say = say_nothing, *, count: int = 50, seeds: Sequence[int] = range(3)) -> Measured:
    """Measure row R6: the compressed push to a chain of 10 and of 100 recipients.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    count : int
        Messages.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    sizes: dict[int, list[float]] = {10: [], 100: [], 1000: []}
    alone: dict[int, list[float]] = {10: [], 100: []}
    for seed in seeds:
        gone = aggregates(list(messages(count, seed, per_s=10.0)), 1)
        for size, values in sizes.items():
            chained = [
                push_bytes(each.context, chain_of(size, seed * 1000 + row)) for row, each in enumerate(gone)
            ]
            values.append(sum(chained) / count)
        for size, values in alone.items():
            only = [len(pack(chain_of(size, seed * 1000 + row), compress=True)) for row in range(count)]
            values.append(sum(only) / count)
    pairs = list(zip(sizes[10], sizes[100], sizes[1000], strict=True))
    figures = {
        "payload of 100 recipients over that of 10": Figure.of(b / a for a, b, _ in pairs),
        "payload of 1,000 recipients over that of 100": Figure.of(c / b for _, b, c in pairs),
        "payload of 1,000 recipients over that of 100, over that of 100 over 10": Figure.of(
            c * a / (b * b) for a, b, c in pairs
        ),
        "the chain alone: 100 recipients over 10": Figure.of(
            b / a for a, b in zip(alone[10], alone[100], strict=True)
        ),
        **{f"bytes for {size} recipients": Figure.of(values) for size, values in sizes.items()},
    }
    return Measured(figures, {"encoding": ENCODING, "volume": 1, "messages": count, "seeds": list(seeds)})


def falls(line: Sequence[float]) -> int:
    """Count the steps of a series that go down."""
    return sum(after < before for before, after in pairwise(line))


def _saved(before: Sequence[float], after: Sequence[float]) -> Figure:
    return Figure.of(1 - b / a for a, b in zip(before, after, strict=True))
