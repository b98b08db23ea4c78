"""Kernel compared with simpy: devices that report to a server every ten minutes and get an acknowledgement.

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


def measure_rows() -> Iterator[dict[str, object]]:
    """Measure both, and check that both handle the same messages."""
    assert run_kernel() == run_simpy() > 100_000
    result = compare(
        f"kernel, {DEVICES:,} devices, {HOURS} virtual hours",
        run_kernel,
        "simpy, no energy, no bill",
        run_simpy,
    )
    print(f"{'':<4}{run_kernel() / float(str(result['ours_s'])):,.0f} handled events/s", flush=True)
    yield result


def build_report(number: int) -> dict[str, Any]:
    return {"kind": "report", "number": number, "lat": 30.2672, "lon": -97.7431, "speed_mps": 12.5}


def run_kernel() -> int:
    """Run the world; return the number of handled timers and messages."""
    return reports(DEVICES, HOURS)[1]


def run_simpy() -> int:
    """Run the same model as processes of simpy."""
    environment = simpy.Environment()
    rng = random.Random(1)
    inbox: simpy.Store = simpy.Store(environment)
    handled = 0

    def carry(message: Any, link: simpy.Resource, kbps: float, to: simpy.Store) -> Any:
        size = len(json.dumps(message))
        with link.request() as slot:
            yield slot
            yield environment.timeout(size * 8 / 1000 / kbps)
        yield environment.timeout(LINK.latency_ms / 1000 * math.exp(LINK.latency_spread * rng.gauss(0, 1)))
        yield to.put(message)

    def phone(number: int) -> Any:
        nonlocal handled
        up, down = simpy.Resource(environment), simpy.Resource(environment)
        phone_inbox: simpy.Store = simpy.Store(environment)
        places.append((down, phone_inbox))
        environment.process(receive(phone_inbox))
        yield environment.timeout(number * EVERY_S / DEVICES)
        count = 0
        while True:
            handled += 1
            count += 1
            message = build_report(count) | {"from": number}
            environment.process(carry(message, up, LINK.up_kbps, inbox))
            yield environment.timeout(EVERY_S)

    def receive(phone_inbox: simpy.Store) -> Any:
        nonlocal handled
        while True:
            yield phone_inbox.get()
            handled += 1

    def server() -> Any:
        nonlocal handled
        while True:
            message = yield inbox.get()
            handled += 1
            down, phone_inbox = places[message["from"]]
            answer = {"kind": "seen", "number": message["number"]}
            environment.process(carry(answer, down, LINK.down_kbps, phone_inbox))

    places: list[Any] = []
    environment.process(server())
    for number in range(DEVICES):
        environment.process(phone(number))
    environment.run(HOURS * 3600 + 60 + 1e-6)  # simpy excludes events at the end time
    return handled
