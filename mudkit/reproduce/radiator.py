"""Rows R1 to R4 and R6 of Radiator (Alves and Ferreira): bytes and lag with aggregation and chains.

The row of scale, R5, is in :mod:`mudkit.reproduce.radiator_scale`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.fleet.transport import transport_of
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.systems.radiator import (
    Aggregate,
    Context,
    Groups,
    Message,
    Volume,
    aggregability,
    broadcast,
    pack,
)
from mudkit.wire import Value

CLIENTS: Final = 60_000
ENCODING: Final = (
    "a context is JSON with people, span and attributes (place, speed, and the hazards with their places, "
    "drawn evenly, numbers with all their digits; 300 to 500 bytes); aggregates are the default join; gzip "
    "at level 6; a chain is the ids and addresses of its members, on six machines as in the paper and in no "
    "order of their names, as a table by hash has them; no headers"
)
_HOUR_US: Final = 3_600_000_000
_MACHINES: Final = 6


def draw_messages(
    count: int, seed: int, *, per_s: float, clients: int = CLIENTS, zones: int | None = None
) -> Iterator[Message]:
    """Draw messages of a traffic application with uniform variables (Radiator 5.1).

    Clients send in turn at a mean rate of `per_s` together (Poisson); with `zones`, messages name theirs.
    """
    draw = random.Random(seed)
    now_s = 0.0
    for number in range(count):
        sender = client_name(number % clients)
        now_s += draw.expovariate(per_s)
        now_us = round(now_s * 1e6)
        attributes: dict[str, Any] = {
            "loc": _draw_place(draw),
            "speed_kmh": draw.uniform(0.0, 130.0),
            "hazards": [_draw_place(draw) for _ in range(draw.randint(4, 7))],
        }
        if zones is not None:
            attributes["zone"] = number % clients % zones
        yield Message(number, sender, now_us, Context(frozenset((sender,)), attributes, (now_us, now_us)))


def client_name(number: int) -> str:
    """Return the id of a client."""
    return f"car-{number:05d}"


def aggregate_all(sent: Sequence[Message], volume: int, *, compress: bool = True) -> list[Aggregate]:
    """Aggregate messages for everyone at one volume; those still pending at the end are left out."""

    @aggregability(key=lambda receiver: "everyone")
    def at_volume(sender: Context, receiver: str) -> Volume:
        return Volume(volume)

    engine = Groups(at_volume, _HOUR_US, echo=True)
    for sender in dict.fromkeys(message.sender for message in sent):
        engine.register(0, sender, {})
    return list(broadcast(engine, sent, compress=compress))


def chain_of(size: int, seed: int, clients: int = CLIENTS) -> list[list[str]]:
    """Return ids and addresses of the members of a chain, in random order."""
    members = random.Random(seed).sample(range(clients), size)
    return [
        [client_name(number), f"192.168.0.{number % _MACHINES + 2}:{9000 + number // _MACHINES}"]
        for number in members
    ]


def push_bytes(context: Context, chain: Sequence[Value]) -> int:
    """Return the size of one push: an aggregate, and the chain behind its first recipient."""
    push: dict[str, Value] = {
        "kind": "push",
        "aggregate": "5f0c1a2b 1",
        "context": context.to_dict(),
        "chain": chain,
    }
    return len(pack(push, compress=True))


def carried_bytes(size_bytes: int, transport: str) -> int:
    """Return the size of a push with what a transport adds, on a connection that its client has opened."""
    carrier = transport_of(transport)
    return size_bytes if carrier is None else carrier.carried_bytes(size_bytes, carrier.answer_bytes)


def _draw_place(draw: random.Random) -> list[float]:
    """Draw a latitude and a longitude around Lisbon, in degrees."""
    return [draw.uniform(38.6, 38.8), draw.uniform(-9.3, -9.0)]


PER_S: Final = 30.0
"""Messages a second."""
OVERLOAD: Final = 1.084
"""Load that volume 1 offers a saturated link, of its capacity; over 1,000 s the lag is 42 s."""


@dataclass(frozen=True)
class SentAggregates:
    """Aggregates that pass a server's link of finite capacity, first in, first out.

    By aggregate: when it is handed to the link, its bytes over all recipients, and when its messages arrived.
    """

    handed_s: NDArray[np.float64]
    size_bytes: NDArray[np.float64]
    arrived_s: list[NDArray[np.float64]]

    @classmethod
    def of(cls, aggregates: Sequence[Aggregate], sizes_bytes: Sequence[int]) -> SentAggregates:
        """Combine aggregates with their bytes over all recipients."""
        return cls(
            np.array([aggregate.sent_us for aggregate in aggregates]) / 1e6,
            np.array(sizes_bytes, np.float64),
            [np.array([message.arrived_us for message in aggregate.batch]) / 1e6 for aggregate in aggregates],
        )

    @property
    def total_bytes(self) -> float:
        """Bytes of all aggregates."""
        return float(self.size_bytes.sum())

    @property
    def messages(self) -> int:
        """Number of aggregated messages."""
        return sum(map(len, self.arrived_s))

    def lags_s(self, bytes_per_s: float) -> NDArray[np.float64]:
        """Return the lag of each message at the time when half of its aggregate's pushes are sent."""
        half_s = self._starts_s(bytes_per_s) + self.size_bytes / bytes_per_s / 2
        return np.concatenate([at - arrived for at, arrived in zip(half_s, self.arrived_s, strict=True)])

    def sent_bytes(self, bytes_per_s: float, until_s: float) -> float:
        """Return the bytes that a link of this speed has sent by a time; aggregates wait for each other."""
        started_bytes = (until_s - self._starts_s(bytes_per_s)) * bytes_per_s
        return float(np.clip(started_bytes, 0.0, self.size_bytes).sum())

    def _starts_s(self, bytes_per_s: float) -> NDArray[np.float64]:
        """Return when the link starts each aggregate: after the one before, or when it is handed over."""
        before_s = np.concatenate([[0.0], np.cumsum(self.size_bytes / bytes_per_s)[:-1]])
        starts_s: NDArray[np.float64] = before_s + np.maximum.accumulate(self.handed_s - before_s)
        return starts_s


SHARES: Final = (0.0002, 0.0005, 0.001, 0.01, 0.05, 0.10)
"""Chain sizes k of Radiator 5.3, as shares of the clients."""


def measure_compression(
    say: Say = say_nothing, *, count: int = 30_000, seeds: Sequence[int] = range(3)
) -> Measured:
    """Measure row R1: bytes sent a message, and lag on a saturated link."""
    kinds = {"no gzip": (1, False), "volume 1": (1, True), "volume 20": (20, True), "volume 50": (50, True)}
    series: dict[str, list[float]] = {kind: [] for kind in kinds}
    lags: dict[str, list[float]] = {kind: [] for kind in kinds}
    shares: dict[str, list[float]] = {kind: [] for kind in kinds}
    length_s = count / PER_S
    smallest, largest = math.inf, 0
    for seed in seeds:
        say(f"seed {seed}")
        sent = list(draw_messages(count, seed, per_s=PER_S))
        sizes = [len(pack(message.context.to_dict(), compress=False)) for message in sent]
        smallest, largest = min(smallest, *sizes), max(largest, *sizes)
        of_kind: dict[str, SentAggregates] = {}
        for kind, (volume, compress) in kinds.items():
            aggregates = aggregate_all(sent, volume, compress=compress)
            of_kind[kind] = out = SentAggregates.of(
                aggregates, [aggregate.size_bytes for aggregate in aggregates]
            )
            series[kind].append(out.total_bytes / out.messages)
        bytes_per_s = of_kind["volume 1"].total_bytes / length_s / OVERLOAD
        for kind, out in of_kind.items():
            lags[kind].append(float(out.lags_s(bytes_per_s).mean()))
            shares[kind].append(out.sent_bytes(bytes_per_s, length_s) / (bytes_per_s * length_s))
    plain, one, twenty, fifty = series.values()
    quantities = {
        "share saved by gzip alone": _saved(plain, one),
        "share saved by volume 20 on top of gzip": _saved(one, twenty),
        "share saved by volume 50 on top of gzip": _saved(one, fifty),
        "steps down, of 3": Quantity.of(map(falls, zip(*series.values(), strict=True))),
        "saved by 20 to 50 over saved by 1 to 20": Quantity.of(
            (b - c) / (a - b) for a, b, c in zip(one, twenty, fifty, strict=True)
        ),
        **{f"bytes a message, {kind}": Quantity.of(values) for kind, values in series.items()},
        **{
            f"lag of {kind} over {other}, saturated link": Quantity.of(
                b / a for a, b in zip(lags[other], lags[kind], strict=True)
            )
            for kind, other in (("no gzip", "volume 1"), ("volume 20", "volume 1"), ("volume 50", "volume 1"))
        },
        **{f"lag of {kind}, saturated link, s": Quantity.of(values) for kind, values in lags.items()},
        **{
            f"share of a saturated link that {kind} takes": Quantity.of(all_) for kind, all_ in shares.items()
        },
        "smallest message, bytes": Quantity.of([smallest]),
        "largest message, bytes": Quantity.of([largest]),
    }
    return Measured(
        quantities,
        {
            "encoding": ENCODING,
            "messages": count,
            "messages a second": PER_S,
            "seeds": list(seeds),
            "saturated link": f"volume 1 with gzip offers {OVERLOAD:g} of what it carries; all have the same",
        },
    )


R1: Final = Row(
    name="R1",
    source="Radiator 5.2, Fig. 3",
    paper="Of messages of 300 to 500 bytes gzip alone saves 25 % of what the server sends, volume 20 "
    "another 8 %, volume 50 40 % against volume 1. The table is lost. Here volume 20 saves nearly "
    "as much as volume 50: gzip has seen all that repeats by then. Where the bend is depends on "
    "the encoding. The paper's link was saturated: the lag is the worst without gzip, and volume 20 "
    "and 50 lag by less than volume 1.",
    required=(
        Required("steps down, of 3", "at least", 3, is_shape=True),
        Required("lag of no gzip over volume 1, saturated link", "at least", 1.0, is_shape=True),
        Required("lag of volume 20 over volume 1, saturated link", "below", 1.0, is_shape=True),
        Required("lag of volume 50 over volume 1, saturated link", "below", 1.0, is_shape=True),
        Required("share saved by gzip alone", "at least", 0.20),
        Required("share saved by gzip alone", "at most", 0.30),
        Required("share saved by volume 20 on top of gzip", "at least", 0.05),
        Required("share saved by volume 20 on top of gzip", "at most", 0.15),
        Required("share saved by volume 50 on top of gzip", "at least", 0.35),
        Required("share saved by volume 50 on top of gzip", "at most", 0.45),
    ),
    measure=measure_compression,
    minutes=0.4,
)


def measure_chains(
    say: Say = say_nothing, *, clients: int = CLIENTS, count: int = 20, seeds: Sequence[int] = range(3)
) -> Measured:
    """Measure row R2: bytes of chains at volume 1, against a push to each client."""
    left: dict[str, list[float]] = {f"{share:.2%}": [] for share in SHARES}
    for seed in seeds:
        say(f"seed {seed}")
        aggregates = aggregate_all(list(draw_messages(count, seed, per_s=10.0)), 1)
        alone = sum(push_bytes(aggregate.context, []) for aggregate in aggregates) * clients
        for share, values in zip(SHARES, left.values(), strict=True):
            size = _chain_size(share, clients)
            chained = sum(
                push_bytes(aggregate.context, chain_of(size, seed * 1000 + row, clients)[1:])
                for row, aggregate in enumerate(aggregates)
            )
            values.append(chained * math.ceil(clients / size) / alone)
    lines = list(zip(*left.values(), strict=True))
    quantities = {
        "share saved at k = 0.02 %": Quantity.of(1 - line[0] for line in lines),
        "share left at k = 1 %": Quantity.of(line[3] for line in lines),
        "steps down, of 6": Quantity.of(falls((1.0, *line)) for line in lines),
        "saved from 0.02 to 0.05 % over saved from 1 to 10 %": Quantity.of(
            (line[0] - line[1]) / (line[3] - line[5]) for line in lines
        ),
        **{f"share left at {share}": Quantity.of(values) for share, values in left.items()},
    }
    parameters: dict[str, Any] = {
        "encoding": ENCODING,
        "clients": clients,
        "volume": 1,
        "messages": count,
        "seeds": list(seeds),
    }
    return Measured(quantities, parameters)


R2: Final = Row(
    name="R2",
    source="Radiator 5.3, Fig. 4",
    paper="Chains of 0.02 % of 60,000 clients save 26 % of what the server sends; with 1 %, 4.4 % are "
    "left; what longer chains add becomes less and less. The "
    "lags (+66 % at 0.1 %, +76 % at 1 %) are of 60 and 600 hops, and fit no one delay of a hop.",
    required=(
        Required("share left at k = 1 %", "within", 0.044, 0.0044),
        Required("share saved at k = 0.02 %", "within", 0.26, 0.05),
        Required("steps down, of 6", "at least", 6, is_shape=True),
        Required("saved from 0.02 to 0.05 % over saved from 1 to 10 %", "at least", 2.0, is_shape=True),
    ),
    measure=measure_chains,
    minutes=0.03,
    known="the table of a chain weighs less here: with 12 times fewer pushes, 26 % would mean that a chain "
    "of 12 weighs as much as eight messages, and the paper does not say what its messages and chains contain",
)


def measure_payload(
    say: Say = say_nothing,
    *,
    count: int = 50,
    seeds: Sequence[int] = range(3),
    transport: str = "messages",
) -> Measured:
    """Measure row R6: the compressed push to a chain of 10 and of 100 recipients."""
    sizes: dict[int, list[float]] = {10: [], 100: [], 1000: []}
    alone: dict[int, list[float]] = {10: [], 100: []}
    for seed in seeds:
        say(f"seed {seed}")
        aggregates = aggregate_all(list(draw_messages(count, seed, per_s=10.0)), 1)
        for size, values in sizes.items():
            chained = [
                carried_bytes(push_bytes(aggregate.context, chain_of(size, seed * 1000 + row)), transport)
                for row, aggregate in enumerate(aggregates)
            ]
            values.append(sum(chained) / count)
        for size, values in alone.items():
            only = [len(pack(chain_of(size, seed * 1000 + row), compress=True)) for row in range(count)]
            values.append(sum(only) / count)
    pairs = list(zip(sizes[10], sizes[100], sizes[1000], strict=True))
    quantities = {
        "payload of 100 recipients over that of 10": Quantity.of(b / a for a, b, _ in pairs),
        "payload of 1,000 recipients over that of 100": Quantity.of(c / b for _, b, c in pairs),
        "payload of 1,000 recipients over that of 100, over that of 100 over 10": Quantity.of(
            c * a / (b * b) for a, b, c in pairs
        ),
        "the chain alone: 100 recipients over 10": Quantity.of(
            b / a for a, b in zip(alone[10], alone[100], strict=True)
        ),
        **{f"bytes for {size} recipients": Quantity.of(values) for size, values in sizes.items()},
    }
    return Measured(quantities, {"encoding": ENCODING, "volume": 1, "messages": count, "seeds": list(seeds)})


R6: Final = Row(
    name="R6",
    source="Radiator 3.2",
    paper="From 10 to 100 recipients in a chain, the compressed payload becomes 5 times as large.",
    required=(
        Required("payload of 100 recipients over that of 10", "at least", 4.0),
        Required("payload of 100 recipients over that of 10", "at most", 6.0),
        Required("payload of 1,000 recipients over that of 100", "at least", 1.5, is_shape=True),
        Required(
            "payload of 1,000 recipients over that of 100, over that of 100 over 10",
            "at least",
            1.0,
            is_shape=True,
        ),
    ),
    measure=measure_payload,
    minutes=0.02,
)


def falls(line: Sequence[float]) -> int:
    """Count the steps of a series that go down."""
    return sum(after < before for before, after in pairwise(line))


def _chain_size(share: float, clients: int) -> int:
    """Return the length of a chain with this share of the clients, rounded down; at least 1."""
    return max(1, math.floor(share * clients + 1e-9))


def _saved(before: Sequence[float], after: Sequence[float]) -> Quantity:
    """Return the share of each first number that the second one saves."""
    return Quantity.of(1 - b / a for a, b in zip(before, after, strict=True))


LOADS: Final = (0.25, 0.5, 0.75, 0.9, 1.0, OVERLOAD, 1.25, 1.5, 2.0)
"""Loads that volume 1 offers, of the link's capacity."""
HOP_S: Final = 0.07
"""Delay between two phones: the median latency of LTE, up and down (Huang et al., MobiSys 2012)."""
_MIN_LOAD, _MAX_LOAD = f"{LOADS[0]:g}", f"{LOADS[-1]:g}"


def _sent(
    sent: Sequence[Message], volume: int, clients: int, share: float, seed: int, transport: str = "messages"
) -> SentAggregates:
    """Return what pushes and downloads of these aggregates send, if all clients together fill chains."""
    aggregates = aggregate_all(sent, volume)
    size = _chain_size(share, clients)
    rest = chain_of(size, seed, clients)[1:]
    pushes = math.ceil(clients / size)
    sizes = [carried_bytes(push_bytes(aggregate.context, rest), transport) for aggregate in aggregates]
    return SentAggregates.of(aggregates, [size * pushes for size in sizes])


def measure_lag(say: Say = say_nothing, *, length_s: int = 1000, seeds: Sequence[int] = range(3)) -> Measured:
    """Measure row R4: lag against offered load at volume 1, 20 and 50."""
    lags: dict[tuple[int, float], list[float]] = {(v, load): [] for v in (1, 20, 50) for load in LOADS}
    pays: dict[int, list[float]] = {20: [], 50: []}
    for seed in seeds:
        say(f"seed {seed}")
        messages = list(draw_messages(round(length_s * PER_S), seed, per_s=PER_S))
        of_volume = {volume: _sent(messages, volume, 100, 0.0, seed) for volume in (1, 20, 50)}
        offered = of_volume[1].total_bytes / length_s
        for volume, load in lags:
            lags[volume, load].append(float(of_volume[volume].lags_s(offered / load).mean()))
        for volume, limits in pays.items():
            better = [load for load in LOADS if lags[volume, load][-1] < lags[1, load][-1]]
            limits.append(better[0] if better else math.inf)
    low, high = LOADS[0], LOADS[-1]

    def ratio(volume: int, load: float) -> Quantity:
        return Quantity.of(b / a for a, b in zip(lags[1, load], lags[volume, load], strict=True))

    quantities = {
        f"lag of volume 20 over volume 1 at load {high:g}": ratio(20, high),
        f"lag of volume 50 over volume 1 at load {high:g}": ratio(50, high),
        f"lag of volume 20 over volume 1 at load {low:g}": ratio(20, low),
        f"lag of volume 50 over volume 20 at load {low:g}": Quantity.of(
            b / a for a, b in zip(lags[20, low], lags[50, low], strict=True)
        ),
        "load from which volume 20 pays": Quantity.of(pays[20]),
        "load from which volume 50 pays": Quantity.of(pays[50]),
        f"lag of volume 1 at load {OVERLOAD:g}, s": Quantity.of(lags[1, OVERLOAD]),
        **{
            f"lag of volume {volume} at load {load:g}, s": Quantity.of(values)
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
    return Measured(quantities, parameters)


R4: Final = Row(
    name="R4",
    source="Radiator 5.2, Table 3 (lost)",
    paper="Volume 1 lags by 42 s (elsewhere: ms) on a link under stress; holding messages back shortens "
    "the lag. Here by offered load: where the link has room, holding back costs time; where it "
    "has none, it pays.",
    required=(
        Required(f"lag of volume 20 over volume 1 at load {_MAX_LOAD}", "below", 1.0, is_shape=True),
        Required(f"lag of volume 50 over volume 1 at load {_MAX_LOAD}", "below", 1.0, is_shape=True),
        Required(f"lag of volume 20 over volume 1 at load {_MIN_LOAD}", "at least", 1.0, is_shape=True),
        Required(f"lag of volume 50 over volume 20 at load {_MIN_LOAD}", "at least", 1.0, is_shape=True),
        Required("load from which volume 20 pays", "at most", 1.1),
        Required(f"lag of volume 1 at load {OVERLOAD}, s", "at least", 32.0),
        Required(f"lag of volume 1 at load {OVERLOAD}, s", "at most", 52.0),
    ),
    measure=measure_lag,
    minutes=0.3,
)


def measure_headline(
    say: Say = say_nothing,
    *,
    clients: int = CLIENTS,
    length_s: int = 1000,
    load: float = OVERLOAD,
    seeds: Sequence[int] = range(3),
    transport: str = "messages",
) -> Measured:
    """Measure row R3: chains of 1 % and volume 20, against a push of each message to each."""
    times: list[float] = []
    delays: dict[str, list[float]] = {
        f"{what}, {how}": []
        for how in ("push to each", "1 %, volume 20")
        for what in ("mean delay, s", "median delay, s", "95 % of delays, s")
    }
    size = _chain_size(0.01, clients)
    for seed in seeds:
        say(f"seed {seed}")
        messages = list(draw_messages(round(length_s * PER_S), seed, per_s=PER_S, clients=clients))
        direct = _sent(messages, 1, clients, 0.0, seed, transport)
        chained = _sent(messages, 20, clients, 0.01, seed, transport)
        times.append(direct.total_bytes / direct.messages / (chained.total_bytes / chained.messages))
        bytes_per_s = direct.total_bytes / length_s / load
        hops_s = HOP_S * np.linspace(0, size - 1, min(size, 50))
        direct_s = direct.lags_s(bytes_per_s)
        chained_s = (chained.lags_s(bytes_per_s)[:, None] + hops_s[None, :]).ravel()
        values = [f(lags) for lags in (direct_s, chained_s) for f in (np.mean, np.median, _late)]
        for values_of_name, value in zip(delays.values(), values, strict=True):
            values_of_name.append(float(value))
    means = zip(delays["mean delay, s, push to each"], delays["mean delay, s, 1 %, volume 20"], strict=True)
    quantities = {
        "times less outbound": Quantity.of(times),
        "mean delay over that of pushes to each": Quantity.of(b / a for a, b in means),
        **{name: Quantity.of(values) for name, values in delays.items()},
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
    return Measured(quantities, parameters)


R3: Final = Row(
    name="R3",
    source="Radiator abstract, 7",
    paper="Chains of 1 % and volume 20: 20 times less of the server's outbound bandwidth without a "
    "longer average delay. Here on a link that pushes to each overload by as much as gives the 42 "
    "s of 5.2.",
    required=(
        Required("times less outbound", "within", 20.0, 2.0),
        Required("mean delay over that of pushes to each", "at most", 1.0, is_shape=True),
    ),
    measure=measure_headline,
    minutes=0.3,
    known="the chain divides what is sent, see R2, and aggregates of 20 divide it again; the paper does not "
    "say how its factor is composed, and by R2 its chains of 1 % alone save about as much",
)


def _late(lags: NDArray[np.float64]) -> float:
    """Return the lag that only one in 20 exceeds."""
    return float(np.quantile(lags, 0.95))


ROWS: Final = (R1, R2, R3, R4, R6)
