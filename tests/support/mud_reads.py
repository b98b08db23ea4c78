"""Continuous reads of a client without a lab: what it is sent, and what it sends and delivers."""

from __future__ import annotations

import msgspec
from mud_machines import ports, sent

from mudkit.events import Complete, Notify
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.attachment import SessionState
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.connection import Connection, Updating
from mudkit.systems.mud.device.continuous_reads import ContinuousReads
from mudkit.systems.mud.device.followed import FollowedQueries
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.policy_slot import PolicySlots
from mudkit.systems.mud.messages.notifications import Notification
from mudkit.systems.mud.messages.requests import SERVICE_FROM_GATEWAY
from mudkit.systems.mud.operations import Register

TABLE = {
    "name": "t", "owner": "news", "acl": "public", "apps": None, "split": ["~"], "schema": None, "removed": {}, "number": 1,
    "lsn": 1,
}  # fmt: skip
ROW = {"data": {}, "predicate": None, "ts_us": 0, "lsn": 1}
PARTITIONS = {"p0": "0", "p1": "1"}
"""Partitions of the processors: most keys are in the first one."""
REFUSED = {"kind": "AccessDenied", "summary": "no"}


class Reads:
    """Continuous reads of a client with its connection."""

    def __init__(self, store=None, *, is_up=True, has_listener=None, max_waiting=1000):
        self.ports = ports("jane", store or MemoryStore(), has_listener)
        self.connection = Connection("jane/news", None)
        self.connection.incarnation = "first"
        self.local = Local(self.ports, 10)
        own = OwnTables(self.ports, "jane/news")
        access, followed = Access(self.ports.store, self.local, self.connection), FollowedQueries(self.local)
        cache = Cache(self.local, access, followed)
        self.watching = ContinuousReads(
            self.ports,
            self.local,
            own,
            access,
            followed,
            cache,
            self.connection,
            PolicySlots(self.ports.store),
            max_waiting,
        )
        if is_up:
            self.connection.link_up()

    def register(self, op_id=1, sync=None, listener="me"):
        return self.watching.register(0, op_id, Register("t", Predicate("TRUE"), {}, sync, listener))

    def answer(self, ask, lives):
        """Answer a registration with the lives of the processors that have it."""
        for place, life in lives.items():
            self.answer_part(ask, place, life, data_seq=ask["what"]["data_seq"])
        return self.take({"kind": "complete", "id": ask["id"], "places": [0, 1]})

    def answer_part(self, ask, place, life, **more):
        """Answer a registration for one processor."""
        message = {
            "kind": "registered", "id": ask["id"], "place": place, "of": PARTITIONS.get(place), "life": life,
            "lsn": 5, **more,
        }  # fmt: skip
        return self.take(message)

    def take(self, message):
        """Receive a message of an answer, and process the answer that it completes."""
        if message["kind"] == "complete":
            message = {"table": TABLE, "claims": None, "places": [], **message}
        answer = SERVICE_FROM_GATEWAY.decode(message)
        ask = self.connection.receive_answer(answer)
        if ask is None:
            return ()
        timer = self.connection.settle_request(0, ask)
        if isinstance(ask.work, Updating):
            return [*timer, *self.watching.finish_update(0, ask.work, answer)]
        return [*timer, *self.watching.finish_registration(0, ask.work, ask, answer)]

    def welcome(self, session):
        """Hear from the service that the device has a session."""
        return self.watching.receive_session(0, SessionState(session, is_greeted=True))

    def begin(self, lives=None, sync=None):
        """Register a read, and answer the registration."""
        self.register(sync=sync)
        ((_, ask),) = asks(self.welcome("s"))
        return self.answer(ask, lives or {"p0": 1, "p1": 1})

    def notify(self, kind="tell", session="s", processor="p0", life=1, **body):
        body = {
            "what": kind, "processor": processor, "life": life, "handle": "first 1", "table": 1,
            "endpoint": "jane/news", "session": session, "of": PARTITIONS.get(processor, ""), **body,
        }  # fmt: skip
        return self.watching.receive_notification(0, msgspec.convert(body, Notification))

    def notify_change(self, key="a", ver=1, lsn=6, op="upsert", **more):
        return self.notify(change={"op": op, **ROW, "key": key, "ver": ver}, lsn=lsn, **more)


def asks(effects):
    return [(to, message) for to, message in sent(effects) if message["kind"] == "ask"]


def completed(effects):
    return [effect for effect in effects if isinstance(effect, Complete)]


def delivered(effects):
    changes = []
    for effect in effects:
        if isinstance(effect, Notify):
            change = effect.payload
            changes.append("ended" if isinstance(change, dict) else (change.kind, change.key, change.version))
    return changes
