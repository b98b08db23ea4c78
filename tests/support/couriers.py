"""Machines that send what a test gives them, and an entrant that does nothing, for the scoreboard's stage."""

from __future__ import annotations

from mudkit.events import Call, Complete, Send


class Courier:
    """A machine that sends what it is asked to send."""

    def handle(self, now_us, event):
        match event:
            case Call(op_id=op_id, arguments={"to": to, "message": message}):
                return [Send(to, message), Complete(op_id)]
        return []


class Nobody:
    """An entrant that does nothing, but remembers who has moved."""

    def __init__(self):
        self.moves = []

    def publish(self, item):
        pass

    def on_move(self, phone):
        self.moves.append(phone)

    def on_look(self, phone):
        pass


def on_each(hosts):
    """Put a courier on each of some hosts; give them by name."""
    return {host.name: host.install("couriers", lambda ports: Courier()) for host in hosts}
