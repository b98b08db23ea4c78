"""R5: 60,000 clients on one core: the engines for many, beside Algorithm 3 as it is written; and a stream."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from mudkit.reproduce.mobius.capacity import memory_mb
from mudkit.reproduce.radiator import streaming
from mudkit.reproduce.radiator.messages import CLIENTS, messages, name
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.systems.radiator import (
    Aggregability,
    ClientArrays,
    ClientLists,
    Groups,
    Message,
    Volume,
    broadcast,
    joins,
)

__all__ = ["measure", "measure_engines"]

_Engine = TypeVar("_Engine", Groups, ClientLists, ClientArrays)
_NEAR: Final = 20
_FAR: Final = 50
_HOUR_US: Final = 3_600_000_000
_PER_S: Final = 60_000.0
_JOIN: Final = partial(joins.mean, of=("speed_kmh",))
_FUNCTION: Final = Aggregability(
    lambda sender, zone: Volume(_NEAR if sender == zone else _FAR),
    key=lambda receiver: receiver["zone"],
    sender_key=lambda sender: sender["zone"],
)
_WITHOUT_A_KEY: Final = Aggregability(
    lambda sender, receiver: Volume(_NEAR if sender["zone"] == receiver["zone"] else _FAR)
)


def measure(
    say: Say = say_nothing,
    *,
    engines: Mapping[str, Any] | None = None,
    stream: Mapping[str, Any] | None = None,
) -> Measured:
    """Measure row R5.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    engines, stream : mapping, optional
        Settings of :func:`measure_engines` and of :func:`mudkit.reproduce.radiator.streaming.measure`.
    """
    one = measure_engines(say, **engines or {})
    other = streaming.measure(say, **stream or {})
    return Measured({**one.figures, **other.figures}, {**one.parameters, **other.parameters})


def measure_engines(
    say: Say = say_nothing,
    *,
    clients: int = CLIENTS,
    many: int = 1_000_000,
    few: int = 50_000,
    literal: int = 5,
    unkeyed: int = 50,
    beside: int = 2000,
    runs: int = 3,
) -> Measured:
    """Measure the engines of one process.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    clients : int
        The number of clients.
    many, few, literal : int
        Messages into 5 groups, into 100 groups, and by Algorithm 3 as it is written.
    unkeyed : int
        Messages to a function without a key, which is asked for each receiver.
    beside : int
        Clients to which such a function's messages go by Algorithm 3 as it is written, too, twice as many.
    runs : int
        How many times each is measured, but for the first, which is one run whose memory is looked at.
    """
    say(f"{many} messages into 5 groups")
    engine = _engine(5, clients)
    first = max(many // 10 - 7, 1)  # does not end where nothing waits
    came = messages(many, 1, per_s=_PER_S, clients=clients, zones=5)
    rates, bytes_sent, max_waiting = [], 0, 0
    early_mb = 0.0
    for part in itertools.count():
        batch = list(itertools.islice(came, first))
        if not batch:
            break
        rate, sent = _timed(engine, batch)
        rates.append(rate)
        bytes_sent += sent
        max_waiting = max(max_waiting, sum(len(engine.waiting(name(zone))) for zone in range(5)))
        early_mb = memory_mb()[0] if part == 0 else early_mb
    grown_mb = memory_mb()[0] - early_mb
    hundred, plain = [], []
    for run in range(runs):
        say(f"100 groups, run {run + 1} of {runs}")
        hundred.append(
            _timed(_engine(100, clients), list(messages(few, run, per_s=_PER_S, clients=clients, zones=100)))[
                0
            ]
        )
    for run in range(runs):
        say(f"Algorithm 3 literally, run {run + 1} of {runs}")
        lists = _filled(ClientLists(_FUNCTION, _HOUR_US, echo=True), clients)
        plain.append(_timed(lists, list(messages(literal, run, per_s=_PER_S, clients=clients, zones=5)))[0])
    each, times = [], []
    for run in range(runs):
        say(f"without a key, run {run + 1} of {runs}")
        heard = list(messages(unkeyed, run, per_s=_PER_S, clients=clients, zones=5))
        each.append(_timed(_filled(ClientArrays(_WITHOUT_A_KEY, _HOUR_US, echo=True), clients), heard)[0])
        heard = list(messages(2 * unkeyed, run, per_s=_PER_S, clients=beside, zones=5))
        fast, _ = _timed(_filled(ClientArrays(_WITHOUT_A_KEY, _HOUR_US, echo=True), beside), heard)
        slow, _ = _timed(_filled(ClientLists(_WITHOUT_A_KEY, _HOUR_US, echo=True), beside), heard)
        times.append(fast / slow)
    figures = {
        "messages/s into 5 groups": Figure.of(rates),
        "messages/s into 100 groups": Figure.of(hundred),
        "messages/s of Algorithm 3 literally": Figure.of(plain),
        "messages/s without a key": Figure.of(each),
        "times as fast as Algorithm 3 literally, without a key": Figure.of(times),
        "MB more after all messages than after a tenth": Figure.of([grown_mb]),
        "messages that wait at the most": Figure.of([max_waiting]),
        "bytes of aggregates, each counted once": Figure.of([bytes_sent]),
    }
    parameters: dict[str, Any] = {
        "clients": clients,
        "messages": {
            "5 groups": many,
            "100 groups": few,
            "literally": literal,
            "without a key": f"{unkeyed}; beside Algorithm 3 {2 * unkeyed} to {beside} clients",
        },
        "function": f"Volume({_NEAR}) in one's own zone, else Volume({_FAR}); keys of both are declared",
        "join": "mean speed and box, gzip at level 6, once for each batch of a group",
        "echo": True,
        "time": "of the processor, one core; drawing the messages is not counted",
    }
    return Measured(figures, parameters)


def _engine(zones: int, clients: int) -> Groups:
    return _filled(Groups(_FUNCTION, _HOUR_US, echo=True), clients, zones)


def _filled(engine: _Engine, clients: int, zones: int = 5) -> _Engine:
    for number in range(clients):
        engine.register(0, name(number), {"zone": number % zones})
    return engine


def _timed(engine: Groups | ClientLists | ClientArrays, came: Sequence[Message]) -> tuple[float, int]:
    """Give messages a second of the processor's time, and the bytes of what went."""
    began_s = time.process_time()
    sent = sum(each.size_bytes for each in broadcast(engine, came, _JOIN))
    return len(came) / (time.process_time() - began_s), sent
