"""Scripted machine, and links by hand, for tests of labs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    Notify,
    Ports,
    Send,
    SetTimer,
    TimerFired,
)
from mudkit.sources.link_replay import LinkReplay
from mudkit.trace.schema import LINKS, timestamps

S: Final = 1_000_000


class Answering:
    """Machine that answers now, later, with an error, or never, and notifies; records its events."""

    def __init__(self, ports: Ports) -> None:
        self.seen: list[Event] = []
        self._waiting: dict[str, int] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self.seen.append(event)
        if isinstance(event, Call):
            parameters = event.arguments
            if event.operation == "later":
                self._waiting[f"op {event.op_id}"] = event.op_id
                return (SetTimer(f"op {event.op_id}", int(parameters["s"] * S)),)
            return {
                "now": (Complete(event.op_id, parameters.get("value")),),
                "fail": (Complete(event.op_id, error=LookupError("no such thing")),),
                "never": (),
                "tell": (Notify("app", parameters.get("value")), Complete(event.op_id)),
                "send": (Send(parameters.get("to", ""), parameters.get("message")), Complete(event.op_id)),
            }[event.operation]
        if isinstance(event, TimerFired) and event.name in self._waiting:
            return (Complete(self._waiting.pop(event.name), event.name),)
        return ()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


def install_answering(host: Any, name: str = "") -> tuple[Any, list[Answering]]:
    """Install an answering machine on a host; return its process and the list of its incarnations."""
    incarnations: list[Answering] = []

    def make(ports: Ports) -> Answering:
        incarnations.append(Answering(ports))
        return incarnations[-1]

    return host.install("answering", make, name=name), incarnations


def links(
    *pieces: tuple[float, bool, float], devices: Sequence[str] = ("a",), latency_ms: float = 0.0
) -> LinkReplay:
    """Build a link from pieces (start in seconds, up, kbps down or NaN); half as much goes up."""
    count = len(pieces) * len(devices)
    columns = [
        pa.array([device for device in devices for _ in pieces]),
        timestamps(np.array([int(at * S) for _ in devices for at, *_ in pieces])),
        pa.array([up for _ in devices for _, up, _ in pieces]),
        pa.array([kbps for _ in devices for *_, kbps in pieces], from_pandas=True),
        pa.array([kbps / 2 for _ in devices for *_, kbps in pieces], from_pandas=True),
        pa.array([latency_ms] * count),
    ]
    return LinkReplay(pa.table(columns, schema=LINKS), gap_s=float("inf"))
