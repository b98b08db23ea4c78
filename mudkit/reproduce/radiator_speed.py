"""R5: 60,000 clients on one core: the engine of groups, beside Algorithm 3 as it is written."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from mudkit.reproduce.capacity import memory_mb
from mudkit.reproduce.radiator_messages import CLIENTS, messages, name
from mudkit.reproduce.row import Figure, Measured, Say, nothing_said
from mudkit.systems.radiator import (
    Aggregability,
    ClientLists,
    Groups,
    Message,
    Volume,
    broadcast,
    joins,
)

__all__ = ["measure"]

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


def measure(
    say: Say = nothing_said, *, clients: int = CLIENTS, many: int = 1_000_000, few: int = 50_000,
    literal: int = 5, runs: int = 3,
) -> Measured:  # fmt: skip
    """Measure row R5.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    clients : int
    many, few, literal : int
        Messages into 5 groups, into 100 groups, and by Algorithm 3 as it is written.
    runs : int
        Of the last two; the first one is one run, whose memory is looked at.
    """
    say(f"{many} messages into 5 groups")
    engine = _engine(5, clients)
    first = max(many // 10 - 7, 1)  # does not end where nothing waits
    came = messages(many, 1, per_s=_PER_S, clients=clients, zones=5)
    rates, bytes_sent, most_waiting = [], 0, 0
    early_mb = 0.0
    for part in itertools.count():
        batch = list(itertools.islice(came, first))
        if not batch:
            break
        rate, sent = _timed(engine, batch)
        rates.append(rate)
        bytes_sent += sent
        most_waiting = max(most_waiting, sum(len(engine.waiting(name(zone))) for zone in range(5)))
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
        lists = ClientLists(_FUNCTION, _HOUR_US, echo=True)
        for number in range(clients):
            lists.register(0, name(number), {"zone": number % 5})
        plain.append(_timed(lists, list(messages(literal, run, per_s=_PER_S, clients=clients, zones=5)))[0])
    figures = {
        "messages/s into 5 groups": Figure.of(rates),
        "messages/s into 100 groups": Figure.of(hundred),
        "messages/s of Algorithm 3 literally": Figure.of(plain),
        "MB more after all messages than after a tenth": Figure.of([grown_mb]),
        "messages that wait at the most": Figure.of([most_waiting]),
        "bytes of aggregates, each counted once": Figure.of([bytes_sent]),
    }
    parameters: dict[str, Any] = {
        "clients": clients, "messages": {"5 groups": many, "100 groups": few, "literally": literal},
        "function": f"Volume({_NEAR}) in one's own zone, else Volume({_FAR}); keys of both are declared",
        "join": "mean speed and box, gzip at level 6, once for each batch of a group",
        "echo": True, "time": "of the processor, one core; drawing the messages is not counted",
    }  # fmt: skip
    return Measured(figures, parameters)


def _engine(zones: int, clients: int) -> Groups:
    engine = Groups(_FUNCTION, _HOUR_US, echo=True)
    for number in range(clients):
        engine.register(0, name(number), {"zone": number % zones})
    return engine


def _timed(engine: Groups | ClientLists, came: Sequence[Message]) -> tuple[float, int]:
    """Give messages a second of the processor's time, and the bytes of what went."""
    began_s = time.process_time()
    sent = sum(each.size_bytes for each in broadcast(engine, came, _JOIN))
    return len(came) / (time.process_time() - began_s), sent
