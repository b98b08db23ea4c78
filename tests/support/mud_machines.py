"""Machines of MUD tables without a world: what they are told, and what they send."""

from __future__ import annotations

from mudkit.events import Ports, Received, Record, Send
from mudkit.fleet.store import MemoryStore
from mudkit.wire import as_wire

__all__ = ["ask", "is_dropped", "on_wire", "ports", "sent", "sent_structs", "told"]

_OF_READ = {"predicate": None, "keys": None, "reader": {}, "aggregate": None, "latest": False}
_OF_WRITE = {
    "name": "t", "key": "a", "type": "blind", "data": {}, "predicate": None, "reader": {}, "replaces": 0, "number": 1,
    "known": 1, "table": None, "incarnation": "first",
}  # fmt: skip
_OF_CONTINUOUS = {"name": "t", "handle": "first 1", "reader": {}, "data_seq": 1}
_ROUTED = {"id": "i", "reply": "gateway", "endpoint": "jane/news", **_OF_CONTINUOUS}
_REGISTER = {
    "request": 1,
    "session": "s",
    "predicate": {"text": "TRUE", "constants": [True]},
    "since": {},
    "held": [],
    "sync_us": None,
    "table": None,
}

_FIELDS = {
    "part": {"lsn": 7, "rows": []},
    "registered": {"life": 1, "lsn": 7, "data_seq": 1},
    "described": {"error": None},
    "hello": {"session": None, "is_new": True, "policies": {}, "incarnation": "first"},
    "describe": {"claims": None},
    "read": {"id": "i", "reply": "gateway", "name": "t", "table": 1, "partition": 0, "auth": {}, "least": 0, **_OF_READ},
    "write": {"id": "i", "reply": "gateway", "client": "jane/news", "claims": None, "refused": None, **_OF_WRITE},
    "update_data": _ROUTED,
    "unregister": _ROUTED,
    "register": {"partitions": [0], "address": "jane@1", "claims": None, "least": 0, **_REGISTER, **_ROUTED},
}  # fmt: skip
"""What a message of a kind has that a test does not name."""

_ASKED = {
    "read": {"name": "t", "table": None, "seen": {}, **_OF_READ},
    "write": _OF_WRITE,
    "register": {**_OF_CONTINUOUS, **_REGISTER},
    "update_data": _OF_CONTINUOUS,
    "unregister": _OF_CONTINUOUS,
    "create": {"name": "t", "properties": {}},
    "alter": {"name": "t", "properties": {}},
    "drop": {"name": "t", "properties": {}},
}
"""The same of what a client asks."""


def ports(address="here", store=None):
    return Ports(store or MemoryStore(), lambda n: bytes(n), address)


def ask(identity="1", client="jane/news", token=None, **what):
    """Give what a client asks; fields that are not named are as a client would have them."""
    what = {**_ASKED[what["op"]], **what}
    return {"kind": "ask", "id": f"{client} {identity}", "client": client, "token": token, "what": what}


def on_wire(kind, **message):
    """Give a message; fields that are not named are as its sender would have them."""
    return {**_FIELDS.get(kind, {}), **message, "kind": kind}


def told(machine, kind, source="there", now_us=0, **message):
    """Let a machine receive a message that it takes; give what it sends."""
    effects = machine.handle(now_us, Received(source, on_wire(kind, **message)))
    assert not _dropped(effects), f"{kind} from {source} was dropped: {on_wire(kind, **message)}"
    return sent(effects)


def is_dropped(machine, kind, source="there", now_us=0, **message):
    """Say whether a machine drops a message, and does nothing else."""
    effects = machine.handle(now_us, Received(source, on_wire(kind, **message)))
    return bool(effects) and _dropped(effects) == list(effects)


def _dropped(effects):
    return [each for each in effects if isinstance(each, Record) and each.row.get("incident") == "dropped"]


def sent(effects):
    """Return receivers and messages as they are on the wire."""
    return [(to, as_wire(message)) for to, message in sent_structs(effects)]


def sent_structs(effects):
    return [(each.to, each.message) for each in effects if isinstance(each, Send)]
