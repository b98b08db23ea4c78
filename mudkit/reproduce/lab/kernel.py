"""F1: how fast the kernel is, and how much memory a large fleet takes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from mudkit.events import Effect, Event, LinkUp, Make, Ports, Received, Send, SetTimer, TimerFired
from mudkit.fleet import World
from mudkit.lab import Lab
from mudkit.reproduce.mobius.capacity import in_subprocess, memory_mb
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

__all__ = ["EVERY_S", "Collector", "Reporter", "hold", "measure", "reports"]

EVERY_S: Final = 600
_US: Final = 1_000_000
_CODE: Final = "import sys; from mudkit.reproduce.lab.kernel import hold; hold(*map(int, sys.argv[1:]))"


class Reporter:
    """Tells a server each ten minutes where it is.

    Parameters
    ----------
    offset_us : int
        The time of the first report, in microseconds.
    """

    def __init__(self, offset_us: int) -> None:
        self._offset_us = offset_us
        self._number = 0

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        kind = type(event)
        if kind is TimerFired:
            self._number += 1
            report = {
                "kind": "report",
                "number": self._number,
                "lat": 30.2672,
                "lon": -97.7431,
                "speed_mps": 12.5,
            }
            return Send("server", report), SetTimer("report", EVERY_S * _US)
        return (SetTimer("report", self._offset_us),) if kind is LinkUp else ()


class Collector:
    """Takes reports and says so."""

    def __init__(self, ports: Ports) -> None:
        self._address = ports.address

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if type(event) is Received:
            return (Send(event.source, {"kind": "seen", "number": event.message["number"]}),)
        return ()


def _reporter(number: int, devices: int) -> Make:
    """Spread the first reports over ten minutes."""
    return lambda ports: Reporter(number * EVERY_S * _US // devices)


def reports(devices: int, hours: float, seed: int = 1) -> tuple[World, int]:
    """Let devices on LTE report for some time.

    Returns
    -------
    World
        The world at the end of the run.
    int
        How many timers and messages machines have handled: each device in ten minutes a timer and an
        acknowledgement, the server a report.
    """
    world = World(seed)
    world.add_server("server").install("reports", Collector)
    for number in range(devices):
        world.add_device(f"device-{number}", "lte").install("reports", _reporter(number, devices))
    world.run(int(hours * 3600 * _US) + 60 * _US)
    return world, world.handled - devices - 1  # without the news that there is a network


def hold(devices: int, hours: int, seed: int) -> None:
    """Let a fleet commute and report, record its positions each minute, and print what it took as JSON."""
    before, _ = memory_mb()
    began_s = time.perf_counter()
    lab = Lab(seed, record_messages=False)
    fleet = lab.fleet(devices, mobility="commute", link="lte", every_s=60.0)
    lab.server("server").install("reports", Collector)
    for number, device in enumerate(fleet):
        device.install("reports", _reporter(number, devices))
    lab.run(hours=hours)
    _, peak = memory_mb()
    answer: dict[str, Any] = {
        "before": before,
        "peak": peak,
        "s": time.perf_counter() - began_s,
        "handled": lab.world.handled,
        "positions": sum(len(piece) for piece in lab.trace.pieces("positions")),
        "messages": int(lab.bill()["messages"].sum()),
    }
    print(json.dumps(answer))  # noqa: T201 - this is how the process answers


def measure(
    say: Say = say_nothing,
    *,
    devices: int = 1000,
    hours: int = 12,
    repeats: int = 9,
    fleet: int = 10_000,
    fleet_hours: int = 24,
    seeds: Sequence[int] = (1, 2),
) -> Measured:
    """Measure row F1: the speed in this process, the memory in processes of their own.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    devices, hours : int
        The number of devices and the length of the run whose speed is measured.
    repeats : int
        How many times that run is measured.
    fleet, fleet_hours : int
        The number of devices and the length of the run whose memory is measured.
    seeds : sequence of int
        The seeds of the run whose memory is measured.
    """
    speeds = []
    for number in range(repeats):
        say(f"{devices:,} devices, {hours} virtual hours, {number + 1} of {repeats}")
        began_s = time.perf_counter()
        _, handled = reports(devices, hours)
        speeds.append(handled / (time.perf_counter() - began_s))
    answers = []
    for seed in seeds:
        say(f"{fleet:,} devices, {fleet_hours} virtual hours, seed {seed}")
        answers.append(in_subprocess("runs the large fleet", _CODE, fleet, fleet_hours, seed))
    figures = {
        "handled events/s": Figure.of(speeds),
        "MB at the peak, large fleet": Figure.of(each["peak"] for each in answers),
        "MB before": Figure.of(each["before"] for each in answers),
        "positions": Figure.of(each["positions"] for each in answers),
        "messages": Figure.of(each["messages"] for each in answers),
        "s for the large fleet": Figure.of(each["s"] for each in answers),
    }
    parameters = {
        "speed": f"{devices:,} devices on LTE, {hours} virtual hours, a report each {EVERY_S} s and its "
        "acknowledgement; sizes of JSON, radio and bill included; setting up included",
        "memory": f"{fleet:,} commuting devices, {fleet_hours} virtual hours, positions each minute, "
        f"a report each {EVERY_S} s and its acknowledgement",
        "seeds": list(seeds),
        "repeats": repeats,
    }
    return Measured(figures, parameters)
