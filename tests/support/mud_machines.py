"""Messages and effects for tests of single machines of MUD tables."""

from __future__ import annotations

import msgspec

from mudkit.events import Ports, Received, Record, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud.messages.holdings import digest_of
from mudkit.systems.mud.messages.parts import PORT, Row
from mudkit.systems.mud.messages.servers import FollowLog
from mudkit.systems.mud.servers.holders import Holders
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.tables.replica import TableReplica
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import as_wire

_READ_FIELDS = {"predicate": None, "keys": None, "reader": {}, "aggregate": None, "latest": False}
_WRITE_FIELDS = {
    "name": "t", "key": "a", "type": "blind", "data": {}, "predicate": None, "reader": {}, "replaces": 0, "number": 1,
    "known": 1, "table": None, "incarnation": "first",
}  # fmt: skip
_CONTINUOUS_FIELDS = {"name": "t", "handle": "first 1", "reader": {}, "data_seq": 1}
_REGISTER_FIELDS = {
    "request": 1,
    "session": "s",
    "predicate": {"text": "TRUE", "constants": [True]},
    "since": {},
    "held": [],
    "sync_us": None,
    "table": None,
}

_DEFAULT_FIELDS = {
    "part": {"lsn": 7, "rows": []},
    "outcome": {"claims": None},
    "administered": {"claims": None},
    "registered": {"life": 1, "lsn": 7, "data_seq": 1, "of": "0"},
    "hello": {"session": None, "is_new": True, "policies": {}, "incarnation": "first", "tokens": {}},
}  # fmt: skip
"""Default fields of each kind of message."""

_DEFAULT_REQUESTS = {
    "read": {"name": "t", "table": None, "seen": {}, **_READ_FIELDS},
    "write": _WRITE_FIELDS,
    "register": {**_CONTINUOUS_FIELDS, **_REGISTER_FIELDS},
    "update_data": _CONTINUOUS_FIELDS,
    "unregister": _CONTINUOUS_FIELDS,
    "create": {"name": "t", "properties": {}},
    "alter": {"name": "t", "properties": {}},
    "drop": {"name": "t", "properties": {}},
}
"""Default fields of each request of a client."""


def ports(address="here", store=None, has_listener=None):
    given = {} if has_listener is None else {"has_listener": has_listener}
    return Ports(store or MemoryStore(), lambda n: bytes(n), address, **given)


def choose_for(processor, through):
    """Return the fields of a log that has all up to a position that a processor of several holds."""
    log = processor._log
    if log.holding is None:
        return {}
    return {"after": max(log.lsn, 0), "through": through, "holding": digest_of(log.holding)}


def answer_request(processor, request, lsn, tables, rows=()):
    """Send a processor the rows that it has requested, of those of some tables; return what it sends."""
    follow = msgspec.convert(request, FollowLog)
    copy = TableReplica()
    copy.load(lsn, msgspec.convert(tables, list[Table]), msgspec.convert(list(rows), list[tuple[str, Row]]))
    state = as_wire(Holders(copy, has_several=True).build_state("processor", follow, {}).message)
    return handle_event(processor, state.pop("kind"), "master", **state)


def build_request(identity="1", client="jane/news", token=None, **what):
    """Return a request of a client; other fields have their defaults. ``start`` is that of the message."""
    start = {"start": what.pop("start")} if "start" in what else {}
    what = {**_DEFAULT_REQUESTS[what["op"]], **what}
    identity = f"{client} {identity}"
    return {"kind": "ask", "id": identity, "client": client, "token": token, "what": what, **start}


_DEFAULT_ROUTES = {
    op: {"table": 1, "partitions": [0]} for op in ("read", "register", "update_data", "unregister")
}
_ROUTE_FIELDS = {"reply", "partitions", "least", "latest", "start", "read_interval_ms"}
_VERIFIED_FIELDS = {"endpoint", "address", "claims", "refused"}


def build_routed(op, *, id="i", **fields):  # noqa: A002 - the field of the message
    """Return a request as a gateway passes it on; other fields of it, its route and sender have defaults.

    ``table`` is that of the route; only a write has another one, which its client knows.
    """
    route = {"reply": "gateway", **_DEFAULT_ROUTES.get(op, {})}
    verified = {"endpoint": "jane/news", "address": "jane@1", "claims": None}
    what = {**_DEFAULT_REQUESTS[op], "op": op}
    for name, value in fields.items():
        if name in _ROUTE_FIELDS or (name == "table" and op != "write"):
            route[name] = value
        else:
            (verified if name in _VERIFIED_FIELDS else what)[name] = value
    return {"kind": "routed", "id": id, "what": what, "route": route, "verified": verified}


def build_message(kind, **message):
    """Return a message, of a request as a gateway passes it on; other fields have their defaults."""
    if kind in _DEFAULT_REQUESTS:
        return build_routed(kind, **message)
    if kind == "part":
        message.setdefault("place", message["partition"])
    return {**_DEFAULT_FIELDS.get(kind, {}), **message, "kind": kind}


def op_of(message):
    """Return the operation of a request that a server passes on; of another message, its kind."""
    return message["what"]["op"] if message["kind"] == "routed" else message["kind"]


def received(machine, source, kind, **message):
    """Return the event of a message; what only devices send comes from the service of the device."""
    is_from_device = kind in ("ask", "asks", "hello")
    if kind == "registered":
        message.setdefault("place", source)
    if kind == "confirmed" and isinstance(machine, NotificationServer):
        is_from_device = source not in (*machine._cloud, *machine._others)
    return Received(
        f"{source}/{PORT}" if is_from_device else source, build_message(kind, **message), source.split("@")[0]
    )


def handle_event(machine, kind, source="there", now_us=0, **message):
    """Handle a message that is not dropped; return the sent messages."""
    effects = machine.handle(now_us, received(machine, source, kind, **message))
    assert not _list_dropped(effects), f"{kind} from {source} was dropped: {build_message(kind, **message)}"
    return sent(effects)


def is_dropped(machine, kind, source="there", now_us=0, **message):
    """Return whether a machine drops a message and does nothing else."""
    effects = machine.handle(now_us, received(machine, source, kind, **message))
    return bool(effects) and _list_dropped(effects) == list(effects)


def _list_dropped(effects):
    return [
        effect for effect in effects if isinstance(effect, Record) and effect.row.get("incident") == "dropped"
    ]


def sent(effects):
    """Return receivers and messages as they are on the wire; the service of a device as the device."""
    return [
        (receiver.removesuffix(f"/{PORT}"), as_wire(message))
        for receiver, message in list_sent_structs(effects)
    ]


def list_sent_structs(effects):
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]
