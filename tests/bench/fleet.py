"""The kernel beside simpy: devices that report to a server every ten minutes and get an acknowledgement.

Both sides encode each message as JSON, keep each direction of each link first in, first out at its bandwidth, and
draw a latency. Ours also keeps the radio's energy and the bill, stores and their commits; simpy's does not.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import simpy
from compare import compare

from mudkit.fleet import LINKS
from mudkit.reproduce.lab import EVERY_S, reports

DEVICES, HOURS = 1000, 12
LINK = LINKS["lte"]


def rows() -> Iterator[dict[str, object]]:
    """Measure both, and check that both have handled the same messages."""
    assert ours() == peer() > 100_000
    result = compare(
        f"kernel, {DEVICES:,} devices, {HOURS} virtual hours", ours, "simpy, no energy, no bill", peer
    )
    print(f"{'':<4}{ours() / float(str(result['ours_s'])):,.0f} handled events/s", flush=True)
    yield result


def report(number: int) -> dict[str, Any]:
    return {"kind": "report", "number": number, "lat": 30.2672, "lon": -97.7431, "speed_mps": 12.5}


def ours() -> int:
    """Run the world; give how many timers and messages were handled."""
    return reports(DEVICES, HOURS)[1]


def peer() -> int:
    """The same as processes of simpy."""
    environment = simpy.Environment()
    rng = random.Random(1)
    inbox: simpy.Store = simpy.Store(environment)
    handled = 0

    def carry(message: Any, link: simpy.Resource, kbps: float, to: simpy.Store) -> Any:
        size = len(json.dumps(message))
        with link.request() as mine:
            yield mine
            yield environment.timeout(size * 8 / 1000 / kbps)
        yield environment.timeout(LINK.latency_ms / 1000 * math.exp(LINK.latency_spread * rng.gauss(0, 1)))
        yield to.put(message)

    def phone(number: int) -> Any:
        nonlocal handled
        up, down = simpy.Resource(environment), simpy.Resource(environment)
        mine: simpy.Store = simpy.Store(environment)
        places.append((down, mine))
        environment.process(hear(mine))
        yield environment.timeout(number * EVERY_S / DEVICES)
        count = 0
        while True:
            handled += 1
            count += 1
            message = report(count) | {"from": number}
            environment.process(carry(message, up, LINK.up_kbps, inbox))
            yield environment.timeout(EVERY_S)

    def hear(mine: simpy.Store) -> Any:
        nonlocal handled
        while True:
            yield mine.get()
            handled += 1

    def server() -> Any:
        nonlocal handled
        while True:
            message = yield inbox.get()
            handled += 1
            down, mine = places[message["from"]]
            answer = {"kind": "seen", "number": message["number"]}
            environment.process(carry(answer, down, LINK.down_kbps, mine))

    places: list[Any] = []
    environment.process(server())
    for number in range(DEVICES):
        environment.process(phone(number))
    environment.run(HOURS * 3600 + 60 + 1e-6)  # simpy leaves out what is due just then, the kernel does it
    return handled
