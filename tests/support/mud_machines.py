"""Machines of MUD tables without a world: what they are told, and what they send."""

from __future__ import annotations

from mudkit.events import Ports, Received, Send
from mudkit.fleet.store import MemoryStore


def ports(address="here", store=None):
    return Ports(store or MemoryStore(), lambda n: bytes(n), address)


def told(machine, kind, source="there", now_us=0, **message):
    """Let a machine receive a message; give what it sends."""
    return sent(machine.handle(now_us, Received(source, {"kind": kind, **message})))


def sent(effects):
    return [(each.to, each.message) for each in effects if isinstance(each, Send)]
