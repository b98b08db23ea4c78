"""What tests of labs need: a machine that answers, a second system for experiments, links made by hand."""

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
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.experiment import Item, Testbed
from mudkit.sources.link_replay import LinkReplay
from mudkit.trace.schema import LINKS, timestamps

S: Final = 1_000_000


class Answering:
    """Answers now, later, with an error, never; tells an application; remembers what it heard."""

    def __init__(self, ports: Ports) -> None:
        self.seen: list[Event] = []
        self._waiting: dict[str, int] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self.seen.append(event)
        if isinstance(event, Call):
            given = event.arguments
            if event.operation == "later":
                self._waiting[f"op {event.op_id}"] = event.op_id
                return (SetTimer(f"op {event.op_id}", int(given["s"] * S)),)
            return {
                "now": (Complete(event.op_id, given.get("value")),),
                "fail": (Complete(event.op_id, error=LookupError("no such thing")),),
                "never": (),
                "tell": (Notify("app", given.get("value")), Complete(event.op_id)),
                "send": (Send(given.get("to", ""), given.get("message")), Complete(event.op_id)),
            }[event.operation]
        if isinstance(event, TimerFired) and event.name in self._waiting:
            return (Complete(self._waiting.pop(event.name), event.name),)
        return ()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


def answering(host: Any, name: str = "") -> tuple[Any, list[Answering]]:
    """Put one on a host; with the list of its lives."""
    lives: list[Answering] = []

    def make(ports: Ports) -> Answering:
        lives.append(Answering(ports))
        return lives[-1]

    return host.install("answering", make, name=name), lives


class _Mailbox:
    def __init__(self, ports: Ports) -> None:
        self._mail: dict[str, list[Any]] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Received(message={"kind": "post", "to": to} as message):
                self._mail.setdefault(to, []).append(message)
            case Received(source=source, message={"kind": "poll", "me": me}):
                return [Send(source, {**each, "kind": "mail"}) for each in self._mail.pop(me, [])]
        return ()


class _Poller:
    def __init__(self, ports: Ports, me: str) -> None:
        self._me = me
        self._new: list[str] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        again = SetTimer("poll", 600 * S)
        match event:
            case Call(operation="post", arguments=given):
                message = {
                    "kind": "post",
                    "to": given["to"],
                    "item": given["item"],
                    "text": "x" * given["size"],
                }
                return Send("mailbox", message), Complete(event.op_id)
            case Call():
                new, self._new = self._new, []
                rows = [
                    Record("deliveries", {"item": each, "receiver": self._me, "read_us": now_us})
                    for each in new
                ]
                return *rows, Complete(event.op_id, new)
            case TimerFired():
                return Send("mailbox", {"kind": "poll", "me": self._me}), again
            case Received(message={"kind": "mail", "item": item}):
                self._new.append(item)
                return (Record("deliveries", {"item": item, "receiver": self._me, "delivered_us": now_us}),)
            case SendFailed():
                return ()
        return (again,)


class Polling:
    """A second system: devices ask a mailbox every ten minutes, and what gets lost is lost."""

    name: Final = "polling"

    def __init__(self, testbed: Testbed) -> None:
        lab = testbed.lab
        lab.server("mailbox").install(self.name, _Mailbox)
        self._devices = {
            name: device.install(self.name, lambda ports, name=name: _Poller(ports, name))
            for name, device in lab.devices.items()
        }

    def publish(self, item: Item) -> None:
        for receiver in item.metadata["to"]:
            self._devices[item.sender].call("post", to=receiver, item=item.name, size=item.size_bytes)

    def on_move(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def on_look(self, phone: str) -> None:
        self._devices[phone].call("read")


class Silent:
    """A system that does nothing."""

    name: Final = "silent"

    def __init__(self, testbed: Testbed) -> None:
        pass

    def publish(self, item: Item) -> None:
        pass

    def on_move(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def on_look(self, phone: str) -> None:
        pass


def links(
    *pieces: tuple[float, bool, float], devices: Sequence[str] = ("a",), latency_ms: float = 0.0
) -> LinkReplay:
    """Make a link from pieces (from second, up, kbps both ways); the last lasts as long as most."""
    count = len(pieces) * len(devices)
    columns = [
        pa.array([device for device in devices for _ in pieces]),
        timestamps(np.array([int(at * S) for _ in devices for at, *_ in pieces])),
        pa.array([up for _ in devices for _, up, _ in pieces]),
        pa.array([kbps for _ in devices for *_, kbps in pieces]),
        pa.array([kbps for _ in devices for *_, kbps in pieces]),
        pa.array([latency_ms] * count),
    ]
    return LinkReplay(pa.table(columns, schema=LINKS), gap_s=float("inf"))
