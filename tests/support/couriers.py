"""Machines that send given messages, and an entrant without function, for tests of the testbed."""

from __future__ import annotations

from mudkit.events import Call, Complete, Send


class Courier:
    """Machine that sends the message of each call."""

    def handle(self, now_us, event):
        match event:
            case Call(op_id=op_id, arguments={"to": to, "message": message}):
                return [Send(to, message), Complete(op_id)]
        return []


class IdleEntrant:
    """Entrant that only records which phones have moved."""

    def __init__(self):
        self.moves = []

    def publish(self, item):
        pass

    def on_move(self, phone):
        self.moves.append(phone)

    def on_look(self, phone):
        pass


def install_couriers(hosts):
    """Install a courier on each of some hosts; return the processes by host name."""
    return {host.name: host.install("couriers", lambda ports: Courier()) for host in hosts}
