"""The processor: it passes reads and writes of its partitions on, and keeps the continuous reads over them.

Its rules (Mobius 4.2, 5); what it keeps is soft state, a restart loses it:

===========  =======================================================================================
anything     dropped, unless it comes from a server of this cloud that sends such messages
read         to the master when the latest is asked for, else to a replica
write        to the master
log          each row that changed is matched with the continuous reads; those that it reaches, and
             those that it no longer reaches, are told over the notification server; one whose
             predicate fails on it is ended, and told why
register     at one point of the log: what is there already, as far as it is asked for, then what comes
update_data  counts for what is written from then on, unless its reader has said something later already
unregister   it is gone, also when an older registration comes late
gone         a notification server has given a client up: so has the processor
===========  =======================================================================================

A ``remove`` goes to those who were told of the record before: the page says "when the old version matched",
which would name keys that a reader has never heard of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from mudkit.errors import MudkitError, TokenExpired
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, TimerFired
from mudkit.predicates.exchange import from_json
from mudkit.systems.mud.messages import (
    FOLLOWER_FROM_BACK_END,
    PROCESSOR_FROM_GATEWAY,
    PROCESSOR_FROM_NOTIFICATION_SERVER,
)
from mudkit.systems.mud.problems import to_json
from mudkit.systems.mud.servers.log_follower import BEGIN, LogFollower
from mudkit.systems.mud.servers.matching import Handle, Matching
from mudkit.systems.mud.tables.partitioning import netid_of, processor_of, server_of
from mudkit.systems.mud.tables.replica import Joined, Row, is_visible
from mudkit.systems.mud.tables.table import Table, no_such_table
from mudkit.systems.receiving import Accepts, dropped
from mudkit.systems.stream import Outgoing, RetransmitTimer
from mudkit.tokens import Claims

__all__ = ["Processor"]

_AGAIN_US: Final = 1_000_000
_NOBODY: Final[Accepts[Any]] = Accepts()


@dataclass
class _Reading:
    """A continuous read, as far as it concerns this processor."""

    request: int
    session: str
    table: Table
    expires_s: float | None
    claims: Claims | None
    lsn: int
    """Where the log was when it began: what comes after that is told."""
    data_seq: int
    """Number of what its reader has said of itself: the highest that has come counts, whenever it came."""
    keys: set[str] = field(default_factory=set)
    """Which its reader has been told of."""


class Processor:
    """One processor.

    Parameters
    ----------
    ports : Ports
    number : int
        Which of them it is.
    processors : int
        How many there are.
    back_end : str
    replicas, gateways, servers : sequence of str
        Addresses, the last of the notification servers.
    """

    def __init__(
        self,
        ports: Ports,
        number: int,
        processors: int,
        back_end: str,
        replicas: Sequence[str],
        gateways: Sequence[str],
        servers: Sequence[str],
    ) -> None:
        self._accepts: dict[str, Accepts[Any]] = {
            back_end: FOLLOWER_FROM_BACK_END,
            **dict.fromkeys(gateways, PROCESSOR_FROM_GATEWAY),
            **dict.fromkeys(servers, PROCESSOR_FROM_NOTIFICATION_SERVER),
        }
        self._store = ports.store
        self._me = ports.address
        self._number, self._processors = number, processors
        self._back_end, self._replicas, self._servers = back_end, replicas, servers
        self._log = LogFollower(back_end, ports.entropy(8).hex())
        self._life = 0
        self._turn = 0
        self._readings: dict[Handle, _Reading] = {}
        self._handles: dict[str, dict[Handle, None]] = {}
        """Of those, by session, in the order of their beginnings."""
        self._ended: set[Handle] = set()
        """Which their clients have unregistered: a late copy of a registration does not begin them again."""
        self._said: dict[Handle, tuple[int, Mapping[str, Any]]] = {}
        """What readers have said of themselves whose registrations have not come."""
        self._matching: dict[int, Matching] = {}
        """By the number of the table."""
        self._shown_to: dict[tuple[int, str], set[Handle]] = {}
        self._streams: dict[str, Outgoing] = {}
        self._timer = RetransmitTimer(_AGAIN_US)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received() if not self._accepts.get(event.source, _NOBODY)(event.message):
                return dropped(event)
            case LinkUp():
                return self._begin(now_us)
            case TimerFired(name=name):
                return self._log.begin() if name == BEGIN else self._timer.again(now_us, self._streams)
            case Received(message={"kind": "state" | "log"} as message) if not self._log.fits(message):
                return dropped(event)
            case Received(message={"kind": "state"} as message):
                return self._log.state(message)
            case Received(message={"kind": "log"} as message):
                return self._follow(now_us, message)
            case Received(message={"kind": "read"} as message):
                return (Send(self._reader(message), message),)
            case Received(message={"kind": "write"} as message):
                return (Send(self._back_end, message),)
            case Received(message={"kind": "register"} as message):
                return self._register(now_us, message)
            case Received(message={"kind": "update_data" | "unregister"} as message):
                return self._change(message)
            case Received(source=source, message={"kind": "confirmed", "number": number} as message):
                if source in self._streams and self._streams[source].name == message["stream"]:
                    self._streams[source].acked(number)
            case Received(message={"kind": "gone", "session": session} as message):
                for handle in list(self._handles.get(session, ())):
                    if message.get("endpoint") in (None, handle[0]):  # nobody ends what is another's
                        self._end(handle)
        return ()

    def _begin(self, now_us: int) -> Sequence[Effect]:
        """Tell the notification servers that the continuous reads of the life before are lost."""
        if self._life:
            return ()
        self._life = (self._store.get("life") or 0) + 1
        self._store.put("life", self._life)
        self._streams = {server: Outgoing(f"{self._me} {self._life}") for server in self._servers}
        began = {"what": "life", "processor": self._me, "life": self._life}
        sent = [Send(server, stream.add(now_us, began)) for server, stream in self._streams.items()]
        return [*sent, *self._timer.soon(), *self._log.begin()]

    def _reader(self, message: Mapping[str, Any]) -> str:
        if message["latest"] or not self._replicas:
            return self._back_end
        self._turn += 1
        return self._replicas[self._turn % len(self._replicas)]

    # -- what changes

    def _follow(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        if self._log.lsn < 0:
            return self._log.begin()
        effects: list[Effect] = []
        for entry in self._log.fresh(message):
            if entry["op"] == "row":
                old = self._log.copy.take(entry)
                effects += self._match(now_us, entry, old)
                continue
            before = self._log.copy.tables.get(
                entry["name"] if entry["op"] == "drop" else entry["table"]["name"]
            )
            self._log.copy.take(entry)
            effects += self._table_changed(now_us, before, entry)
        return [*effects, self._log.has()]

    def _match(self, now_us: int, entry: Mapping[str, Any], old: Row | None) -> Sequence[Effect]:
        row: Row = entry["row"]
        table, key = self._log.copy.tables[entry["name"]], row["key"]
        if processor_of(table.number, table.partition_of(key), self._processors) != self._number:
            return ()
        readers = self._shown_to.setdefault((table.number, key), set())
        matching = self._matching.get(table.number)
        reached: list[Handle] = []
        effects: list[Effect] = []
        if matching is not None and row["data"] is not None:
            reached, failed = matching.match(row, table)
            for handle, error in failed.items():
                effects += self._refuse(now_us, handle, error.summary, is_alone=True)
        for handle in reached:
            effects += self._tell(now_us, handle, entry["lsn"], row)
        for handle in sorted(readers - set(reached)):
            effects += self._tell(now_us, handle, entry["lsn"], {"key": key, "ver": row["ver"], "data": None})
        return effects

    def _tell(self, now_us: int, handle: Handle, lsn: int | None, row: Mapping[str, Any]) -> Sequence[Effect]:
        """Tell a reader of a record: as it is now, or that it is gone for him.

        ``lsn`` is None for what was there before he began; where that ends, he is told apart.
        """
        reading = self._readings[handle]
        if reading.expires_s is not None and reading.expires_s <= now_us / 1e6:
            return self._refuse(now_us, handle, "its token has expired")
        key, table = row["key"], reading.table
        change = {"op": "remove", "key": key, "ver": row["ver"]}
        if row["data"] is None:
            reading.keys.discard(key)
            self._shown_to.get((table.number, key), set()).discard(handle)
        else:
            reading.keys.add(key)
            self._shown_to.setdefault((table.number, key), set()).add(handle)
            change = {"op": "upsert", **row, "data": table.seen(row)}
        return self._send(now_us, handle, {"change": change, "lsn": lsn})

    def _send(self, now_us: int, handle: Handle, body: Mapping[str, Any]) -> Sequence[Effect]:
        endpoint, number = handle
        server = self._servers[server_of(netid_of(endpoint), len(self._servers))]
        reading = self._readings[handle]
        sent = {
            "what": "tell",
            "endpoint": endpoint,
            "session": reading.session,
            "handle": number,
            "processor": self._me,
            "life": self._life,
            "table": reading.table.number,
            **body,
        }
        return Send(server, self._streams[server].add(now_us, sent)), *self._timer.soon()

    def _table_changed(self, now_us: int, before: Table | None, entry: Mapping[str, Any]) -> Sequence[Effect]:
        """End the continuous reads that a table which is altered or gone no longer admits."""
        if before is None:
            return ()
        table = None if entry["op"] == "drop" else self._log.copy.tables[before.name]
        effects: list[Effect] = []
        for handle in [
            each for each, reading in self._readings.items() if reading.table.number == before.number
        ]:
            if table is None:
                effects += self._refuse(now_us, handle, "the table was dropped")
                continue
            self._readings[handle].table = table
            try:
                table.check_access(self._readings[handle].claims)
            except MudkitError as error:
                effects += self._refuse(now_us, handle, error.summary)
        return effects

    def _refuse(self, now_us: int, handle: Handle, why: str, *, is_alone: bool = False) -> Sequence[Effect]:
        """End a continuous read; ``is_alone`` if other processors have no reason to end it."""
        effects = self._send(now_us, handle, {"ended": why} | ({"is_alone": True} if is_alone else {}))
        self._end(handle)
        return effects

    # -- continuous reads

    def _register(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        handle: Handle = message["endpoint"], message["handle"]
        copy = self._log.copy
        if self._log.lsn < message["least"] or handle in self._ended:
            return ()  # not yet, or not any more: who waits asks again
        table = copy.tables.get(message["name"])
        answer = self._answer(message, message["data_seq"])
        claims = None if message["claims"] is None else Claims(**message["claims"])
        if table is None or not table.has(message["table"], message["partitions"]):
            error = to_json(no_such_table(message["name"], copy.tables, claims))
            return (Send(message["reply"], {**answer, "error": error}),)
        if claims is not None and claims.expires_s <= now_us / 1e6:  # on the way from the gateway
            error = to_json(TokenExpired("This token has expired.", where="token", remedy="take a new one"))
            return (Send(message["reply"], {**answer, "error": error}),)
        try:
            table.check_access(claims)  # it may have been closed on the way from the gateway
        except MudkitError as problem:
            return (Send(message["reply"], {**answer, "error": to_json(problem)}),)
        effects: list[Effect] = []
        known = self._readings.get(handle)
        if known is None or known.request < message["request"]:
            self._end(handle)
            try:
                effects += self._begin_reading(now_us, handle, table, claims, message)
            except MudkitError as error:
                return (Send(message["reply"], {**answer, "error": to_json(error)}),)
            effects += self._send(now_us, handle, {"synced": self._log.lsn})
        # Of a late copy, too: what was told since may still be lost.
        reading = self._readings[handle]
        answer |= {"lsn": reading.lsn, "data_seq": reading.data_seq}
        return [*effects, Send(message["reply"], answer)]

    def _begin_reading(
        self, now_us: int, handle: Handle, table: Table, claims: Claims | None, message: Mapping[str, Any]
    ) -> Sequence[Effect]:
        predicate, auth = from_json(message["predicate"]), message["auth"]
        assert predicate is not None
        sent = message["data_seq"], message["reader"]
        data_seq, data = max(sent, self._said.pop(handle, sent), key=itemgetter(0))
        there = [  # before anybody is told anything: the predicate may fail
            row
            for place in message["partitions"]
            for row in self._log.copy.select(table, place, predicate, None, data, auth)
        ]
        self._matching.setdefault(table.number, Matching(self._log.copy)).add(handle, predicate, data, auth)
        self._readings[handle] = reading = _Reading(
            message["request"],
            message["session"],
            table,
            message["expires_s"],
            claims,
            self._log.lsn,
            data_seq,
        )
        self._handles.setdefault(reading.session, {})[handle] = None
        since = message["since"].get(self._me)
        held = set(message["held"])
        effects: list[Effect] = []
        for row in there:
            is_new = row["lsn"] > since if since is not None else self._is_wanted(row, message)
            if is_new:
                effects += self._tell(now_us, handle, None, row)
            elif row["key"] in held:
                reading.keys.add(row["key"])
                self._shown_to.setdefault((table.number, row["key"]), set()).add(handle)
        for key in sorted(held - reading.keys):
            if table.partition_of(key) not in message["partitions"]:
                continue
            copy = self._log.copy
            known = copy.get(table, key)
            if known is None or not is_visible(known, data, auth, table, Joined(copy, data, auth)):
                # Who says that he was told of it learns that it is not for him: not whether there is one.
                effects += self._tell(now_us, handle, None, {"key": key, "ver": None, "data": None})
                continue
            self._shown_to.setdefault((table.number, key), set()).add(handle)
            reading.keys.add(key)
            if since is None or known["lsn"] > since:
                effects += self._tell(now_us, handle, None, {**known, "data": None})
        return effects

    def _is_wanted(self, row: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
        """Say whether a record that was there before is asked for (Mobius 3.1)."""
        sync_us = message["sync_us"]
        return sync_us is not None and row["ts_us"] >= sync_us

    def _change(self, message: Mapping[str, Any]) -> Sequence[Effect]:
        handle: Handle = message["endpoint"], message["handle"]
        if message["kind"] == "unregister":
            self._end(handle)
            self._ended.add(handle)
            return (Send(message["reply"], self._answer(message, message["data_seq"])),)
        reading = self._readings.get(handle)
        if reading is None:  # a registration may still be on its way, with what was said before
            said_seq, _ = self._said.get(handle, (0, None))
            if message["data_seq"] > said_seq:
                self._said[handle] = message["data_seq"], message["reader"]
            return (Send(message["reply"], self._answer(message, message["data_seq"])),)
        if message["data_seq"] > reading.data_seq:
            reading.data_seq = message["data_seq"]
            self._matching[reading.table.number].update(handle, message["reader"])
        return (Send(message["reply"], self._answer(message, reading.data_seq)),)

    def _answer(self, message: Mapping[str, Any], data_seq: int) -> dict[str, Any]:
        """Give the answer to what concerns a continuous read, with what its reader has said last."""
        return {
            "kind": "registered",
            "id": message["id"],
            "life": self._life,
            "lsn": self._log.lsn,
            "data_seq": data_seq,
        }

    def _end(self, handle: Handle) -> None:
        reading = self._readings.pop(handle, None)
        if reading is None:
            return
        del self._handles[reading.session][handle]
        if not self._handles[reading.session]:
            del self._handles[reading.session]
        self._matching[reading.table.number].remove(handle)
        for key in reading.keys:
            self._shown_to[reading.table.number, key].discard(handle)
