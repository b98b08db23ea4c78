"""Kernel compared with simpy, and with itself at its defaults.

Devices report to a server every ten minutes and get an acknowledgement. Kernel and simpy both encode each message as
JSON, keep each direction of each link first in, first out at its bandwidth, and draw a latency. Ours also keeps the
radio's energy and the bill, stores and their commits; simpy's does not.

A commuting fleet then reports with place, load, https and coverage on, and at the defaults: the whole runs, in CPU time,
and how many transfers each has. Over https each report opens a connection, which takes four transfers more; connections
that are kept for half an hour are opened again after a change of network only.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import simpy
from compare import compare

from mudkit import Lab
from mudkit.fleet import LINKS
from mudkit.fleet.link import Leg
from mudkit.fleet.load import ServerProfile
from mudkit.fleet.transport import TRANSPORTS, Transport
from mudkit.reproduce.lab import EVERY_S, Collector, Reporter, reports

DEVICES, HOURS = 1000, 12
LINK = LINKS["lte"]
FLEET, FLEET_HOURS = 300, 6
KEPT = replace(TRANSPORTS["https"], idle_s=1800.0)


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
    yield compare_with_defaults("fleet with place, load, coverage, https", TRANSPORTS["https"])
    yield compare_with_defaults("the same, connections kept", KEPT)


def compare_with_defaults(label: str, transport: Transport) -> dict[str, object]:
    """Compare a world with everything on with one at the defaults: whole runs, and their transfers."""
    ours, peer = count_transfers(transport), count_transfers(None)
    result = compare(
        f"{label}; {ours / peer:.2f} times the transfers",
        run_fleet(transport),
        "the defaults",
        run_fleet(None),
        clock=time.process_time,
    )
    return result | {"transfers": ours, "peer_transfers": peer}


def build_fleet(transport: Transport | None) -> Lab:
    """Build a commuting fleet that reports; with a transport also with place, load and coverage."""
    lab = Lab(1, record_messages=False, transport=transport or "messages")
    server = lab.server("server")
    if transport is not None:
        lab.server("server", at="austin", profile=ServerProfile(event_us=100.0))
        for number in range(5):
            lab.access_point(f"cafe {number}", (30.27 + 0.001 * number, -97.74), 80.0)
    server.install("reports", Collector)
    for number, device in enumerate(lab.fleet(FLEET, mobility="commute", roam=transport is not None)):
        offset_us = number * EVERY_S * 1_000_000 // FLEET
        device.install("reports", lambda ports, offset_us=offset_us: Reporter(offset_us))
    return lab


def run_fleet(transport: Transport | None) -> Callable[[], None]:
    """Return the run of a fleet, with its building."""
    return lambda: build_fleet(transport).run(hours=FLEET_HOURS)


def count_transfers(transport: Transport | None) -> int:
    """Return how many transfers leave a direction of a link in a run."""
    transfers = 0

    def count(leg: Leg, carried_bytes: int, is_cut: bool) -> None:
        nonlocal transfers
        transfers += 1

    lab = build_fleet(transport)
    lab.world.on_leg = count
    lab.run(hours=FLEET_HOURS)
    return transfers


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
