"""Device-hours per second of store and forward by the number of phones: `python tests/bench/scaling.py`.

Each phone sends a message to the next one every ten minutes, for an hour, so that the work of a device-hour is
the same in every fleet. Each fleet runs in a separate process; the target is a rate that falls by at most
1.5 times from the smallest fleet to any other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from mudkit import Lab
from mudkit.systems.store_and_forward import Client, Relay

FLEETS = (300, 1000, 3000, 10_000)
EVERY_S, HOURS, RUNS = 600, 1, 3
TARGET = 1.5


def measure_rows() -> Iterator[dict[str, object]]:
    """Measure each fleet beside the smallest one, in turn; the fastest run of each counts."""
    cpu_s = {phones: float("inf") for phones in FLEETS}
    for _ in range(RUNS):
        for phones in FLEETS:
            command = [sys.executable, __file__, str(phones)]
            result = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            cpu_s[phones] = min(cpu_s[phones], float(result))
    first, *others = FLEETS
    for phones in others:
        ours_s, peer_s = cpu_s[phones] / phones, cpu_s[first] / first
        yield {
            "what": f"store and forward: {phones:,} phones, {HOURS / ours_s:,.0f} device-hours/s",
            "ours_s": ours_s,
            "peer": f"{first:,} phones, {HOURS / peer_s:,.0f}/s; asked: {TARGET:g}",
            "peer_s": peer_s,
            "ratio": ours_s / peer_s,
        }


def measure(phones: int) -> float:
    """Return the CPU time of a run, without the time to build the lab."""
    lab = Lab(seed=1, record_messages=False)
    relay = Relay(lab)
    devices = lab.fleet(phones, link="lte")
    clients = [Client(device, relay) for device in devices]

    def send(number: int) -> None:
        clients[number].send(devices[(number + 1) % phones].name, f"at {lab.world.now_us}")
        lab.world.schedule_action(lab.world.now_us + EVERY_S * 1_000_000, send, number)

    for number in range(phones):
        lab.world.schedule_action(EVERY_S * 1_000_000 * number // phones, send, number)
    start_s = time.process_time()
    lab.run(hours=HOURS)
    return time.process_time() - start_s


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measure(int(sys.argv[1])))
    else:
        print(json.dumps(list(measure_rows()), indent=1))
