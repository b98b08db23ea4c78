"""Scripted machine, two simple systems and links by hand, for tests of labs and experiments."""

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


class _Mailbox:
    def __init__(self, ports: Ports) -> None:
        self._mail: dict[str, list[Any]] = {}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Received(message={"kind": "post", "to": to} as message):
                self._mail.setdefault(to, []).append(message)
            case Received(source=source, message={"kind": "poll", "me": me}):
                return [Send(source, {**mail, "kind": "mail"}) for mail in self._mail.pop(me, [])]
        return ()


class _Poller:
    def __init__(self, ports: Ports, me: str) -> None:
        self._me = me
        self._new: list[str] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        timer = SetTimer("poll", 600 * S)
        match event:
            case Call(operation="post", arguments=parameters):
                message = {
                    "kind": "post",
                    "to": parameters["to"],
                    "item": parameters["item"],
                    "text": "x" * parameters["size"],
                }
                return Send("mailbox", message), Complete(event.op_id)
            case Call():
                new, self._new = self._new, []
                rows = [
                    Record("deliveries", {"item": item_name, "receiver": self._me, "read_us": now_us})
                    for item_name in new
                ]
                return *rows, Complete(event.op_id, new)
            case TimerFired():
                return Send("mailbox", {"kind": "poll", "me": self._me}), timer
            case Received(message={"kind": "mail", "item": item}):
                self._new.append(item)
                return (Record("deliveries", {"item": item, "receiver": self._me, "delivered_us": now_us}),)
            case SendFailed():
                return ()
        return (timer,)


class Polling:
    """Second system: devices poll a mailbox every ten minutes, without retransmission."""

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
    """System without function."""

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
