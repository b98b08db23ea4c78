"""Scripted machines for tests of the kernel, which record all events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mudkit.events import Call, Effect, Event, Ports, Received, Send, SetTimer, TimerFired
from mudkit.fleet import World


class Puppet:
    """Machine that answers each call with the effects in its arguments, and records all events with times."""

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.seen: list[tuple[int, Event]] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self.seen.append((now_us, event))
        if isinstance(event, Call):
            return list(event.arguments["effects"])
        return ()

    def of(self, kind: type) -> list[Any]:
        return [event for _, event in self.seen if isinstance(event, kind)]


class Chatter:
    """Machine that sends a message to its peers in turn at each timer, and answers requests."""

    def __init__(self, ports: Ports, peers: Sequence[str], every_us: int, size: int) -> None:
        self.peers = peers
        self.every_us = every_us
        self.size = size
        self.sent = 0
        self.seen: list[tuple[int, Event]] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self.seen.append((now_us, event))
        if isinstance(event, TimerFired):
            self.sent += 1
            receiver = self.peers[self.sent % len(self.peers)]
            message = {"n": self.sent, "ask": True, "fill": "x" * (self.size * (self.sent % 7))}
            return Send(receiver, message), SetTimer("chat", self.every_us)
        if isinstance(event, Received) and event.message["ask"]:
            return (Send(event.source, {"n": event.message["n"], "ask": False}),)
        return () if self.seen[1:] else (SetTimer("chat", self.every_us),)


class Stage:
    """World with puppets on a server and two devices."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.puppets: dict[str, Puppet] = {}
        self.processes: dict[str, Any] = {}
        for name, host in (
            ("server", self.world.add_server("server")),
            ("ann", self.world.add_device("ann", "lte")),
            ("bob", self.world.add_device("bob", "umts_3g")),
        ):
            self.processes[name] = host.install("puppets", self.maker(name))
        self.world.run(0)

    def maker(self, name: str) -> Any:
        def make(ports: Any) -> Puppet:
            self.puppets[name] = Puppet(ports)
            return self.puppets[name]

        return make

    def do(self, name: str, *effects: Any) -> None:
        self.processes[name].call("do", effects=effects)

    def account(self, device: str, direction: str) -> Any:
        return next(row for row in self.world.bill() if (row.device, row.direction) == (device, direction))
