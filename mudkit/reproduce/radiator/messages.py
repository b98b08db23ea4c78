"""The messages of Radiator's rows, and what they are as they are sent."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

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

__all__ = ["CLIENTS", "ENCODING", "aggregates", "chain_of", "messages", "push_bytes"]

CLIENTS: Final = 60_000
ENCODING: Final = (
    "a context is JSON with people, span and attributes (place, speed, and the hazards with their places, "
    "drawn evenly, numbers with all their digits; 300 to 500 bytes); aggregates are the default join; gzip "
    "at level 6; a chain is the ids and addresses of its members, on six machines as in the paper and in no "
    "order of their names, as a table by hash has them; no headers"
)
_HOUR_US: Final = 3_600_000_000
_MACHINES: Final = 6


def messages(
    count: int, seed: int, *, per_s: float, clients: int = CLIENTS, zones: int | None = None
) -> Iterator[Message]:
    """Draw messages of a traffic application, as Radiator 5.1 has it: each variable is drawn evenly.

    Parameters
    ----------
    count : int
        The number of messages.
    seed : int
    per_s : float
        The mean rate of all clients together, in messages a second; intervals are random (Poisson).
    clients : int
        The number of clients, who send in turn.
    zones : int, optional
        The number of zones; a message says in which its client is. None: it names no zone.
    """
    draw = random.Random(seed)
    now_s = 0.0
    for number in range(count):
        sender = name(number % clients)
        now_s += draw.expovariate(per_s)
        now_us = round(now_s * 1e6)
        attributes: dict[str, Any] = {
            "loc": _place(draw),
            "speed_kmh": draw.uniform(0.0, 130.0),
            "hazards": [_place(draw) for _ in range(draw.randint(4, 7))],
        }
        if zones is not None:
            attributes["zone"] = number % clients % zones
        yield Message(number, sender, now_us, Context(frozenset((sender,)), attributes, (now_us, now_us)))


def name(number: int) -> str:
    """Give the id of a client."""
    return f"car-{number:05d}"


def aggregates(sent: Sequence[Message], volume: int, *, compress: bool = True) -> list[Aggregate]:
    """Give what becomes of messages that everyone gets at one volume; what waits at the end is left out."""

    @aggregability(key=lambda receiver: "everyone")
    def at_volume(sender: Context, receiver: str) -> Volume:
        return Volume(volume)

    engine = Groups(at_volume, _HOUR_US, echo=True)
    for sender in dict.fromkeys(message.sender for message in sent):
        engine.register(0, sender, {})
    return list(broadcast(engine, sent, compress=compress))


def chain_of(size: int, seed: int, clients: int = CLIENTS) -> list[list[str]]:
    """Give ids and addresses of the members of a chain, in no order of their names."""
    members = random.Random(seed).sample(range(clients), size)
    return [[name(each), f"192.168.0.{each % _MACHINES + 2}:{9000 + each // _MACHINES}"] for each in members]


def push_bytes(context: Context, chain: Sequence[Value]) -> int:
    """Give the size of one push: an aggregate, and the chain behind its first recipient."""
    push: dict[str, Value] = {
        "kind": "push",
        "aggregate": "5f0c1a2b 1",
        "context": context.to_dict(),
        "chain": chain,
    }
    return len(pack(push, compress=True))


def _place(draw: random.Random) -> list[float]:
    return [draw.uniform(38.6, 38.8), draw.uniform(-9.3, -9.0)]
