"""The gateway: it checks who asks, finds out which partitions are concerned, and passes answers on.

Its rules (Mobius 4.2); it keeps nothing that matters: who gets no answer asks again.

=========  =========================================================================================
anything   dropped, unless it comes from who sends such messages; of a client, in its own name
ask        verify the token; ask the back end for the table, and for those that a read looks into: who
           asks must come into all of them; then
read       a part of it to the processor of each partition
write      to the processor of its partition
admin      to the back end
continuous to each processor of the table's partitions
answers    to who asked; after the last part of a read its completion
=========  =========================================================================================

The table is looked up for each request at the back end, half a millisecond away: so an ACL that was altered
holds from the moment on at which that was answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import asdict

from mudkit.errors import MudkitError, TokenExpired
from mudkit.events import Effect, Event, Ports, Received, Send
from mudkit.predicates import Aggregates
from mudkit.predicates.exchange import from_json
from mudkit.systems.mud.messages import (
    GATEWAY_FROM_BACK_END,
    GATEWAY_FROM_CLIENT,
    GATEWAY_FROM_PROCESSOR,
    GATEWAY_FROM_REPLICA,
)
from mudkit.systems.mud.problems import to_json
from mudkit.systems.mud.tables.partitioning import netid_of, processor_of
from mudkit.systems.mud.tables.queries import check_names, tables_of_sent
from mudkit.systems.mud.tables.records import check_record
from mudkit.systems.mud.tables.table import Table
from mudkit.systems.receiving import Accepts, dropped
from mudkit.tokens import Authority, Claims

__all__ = ["Gateway"]

_MOST_OPEN: Final = 10_000
_TABLES: Final = ("create", "alter", "drop")
_ANSWERED_BY: Final = {"read": "part", "write": "outcome", **dict.fromkeys(_TABLES, "administered")}
"""In which messages an answer comes, by what was asked; to the others, which are of continuous reads,
``registered``."""


@dataclass
class _Ask:
    source: str
    message: Mapping[str, Any]
    claims: Claims | None
    refused: dict[str, Any] | None
    joined: Sequence[str]
    """Names of the tables that it looks into."""
    table: Table | None = None
    places: list[Any] = field(default_factory=list)
    missing: set[Any] = field(default_factory=set)

    def fits(self, message: Mapping[str, Any]) -> bool:
        """Say whether a message can be of the answer to this."""
        what, kind = self.message["what"], message["kind"]
        if kind != "described":
            return bool(kind == _ANSWERED_BY.get(what["op"], "registered"))
        described = [message["table"], *message.get("joined", ())]
        names = [None if each is None else each["name"] for each in described]
        return what["op"] not in _TABLES and (names == [None] or names == [what["name"], *self.joined])


class Gateway:
    """One gateway.

    Parameters
    ----------
    ports : Ports
    authority : Authority
        The authority that has made the tokens.
    back_end : str
    processors, replicas : sequence of str
        Addresses.
    """

    def __init__(
        self,
        ports: Ports,
        authority: Authority,
        back_end: str,
        processors: Sequence[str],
        replicas: Sequence[str],
    ) -> None:
        self._me = ports.address
        self._authority = authority
        self._back_end = back_end
        self._processors = processors
        self._accepts: dict[str, Accepts[Any]] = {
            back_end: GATEWAY_FROM_BACK_END,
            **dict.fromkeys(processors, GATEWAY_FROM_PROCESSOR),
            **dict.fromkeys(replicas, GATEWAY_FROM_REPLICA),
        }
        self._asks: OrderedDict[str, _Ask] = OrderedDict()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received() if not self._is_taken(event):
                return dropped(event)
            case Received(source=source, message={"kind": "ask"} as message):
                return self._take(now_us, source, message)
            case Received(source=source, message={"kind": "asks", "asks": asks} as message):
                said = {name: message[name] for name in ("client", "token")}
                return [sent for each in asks for sent in self._take(now_us, source, {**said, **each})]
            case Received(source=source, message={"id": identity} as message):
                ask = self._asks.get(identity)
                if ask is None:
                    return ()
                return self._answered(ask, source, message) if ask.fits(message) else dropped(event)
        return ()

    def _answered(self, ask: _Ask, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Take what the cloud answers to an ask."""
        match message["kind"]:
            case "described":
                return self._route(ask, message) if ask.table is None else ()
            case "part":
                return self._part(ask, message["partition"], message)
            case "registered":
                return self._part(ask, source, message)
        del self._asks[message["id"]]
        return (Send(ask.source, {**message, "claims": _claims(ask)}),)

    def _is_taken(self, event: Received) -> bool:
        """Say whether a message is one that its sender sends: of a client, one in its own name."""
        message, accepts = event.message, self._accepts.get(event.source)
        if accepts is not None:
            return accepts(message)
        if not GATEWAY_FROM_CLIENT(message):
            return False
        client = message["client"]
        asks = message["asks"] if message["kind"] == "asks" else (message,)
        is_own = all(each["id"].rpartition(" ")[0] == client for each in asks)
        return is_own and netid_of(client) == event.sender

    def _take(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        identity, what = message["id"], message["what"]
        token, client = message["token"], message["client"]
        claims, refused = None, None
        if token is not None:
            try:
                claims = self._authority.read(token)
                claims.check(now_us / 1e6, netid_of(client))
            except MudkitError as error:
                if what["op"] != "write" or not isinstance(error, TokenExpired):
                    return (_refused(source, identity, error),)
                refused = to_json(error)  # whether it was applied before is for the back end to say
        try:
            joined = [] if what["op"] == "write" else tables_of_sent(what.get("predicate"))
            check_record(what.get("reader", {}), ())
        except MudkitError as error:
            return (_refused(source, identity, error),)
        self._asks[identity] = ask = _Ask(source, message, claims, refused, joined)
        self._asks.move_to_end(identity)
        if len(self._asks) > _MOST_OPEN:
            self._asks.popitem(last=False)
        if what["op"] in _TABLES:
            sent = {**what, "kind": "admin", "id": identity, "claims": _claims(ask)}
            return (Send(self._back_end, sent),)
        sent = {"kind": "describe", "id": identity, "name": what["name"], "claims": _claims(ask)}
        return (Send(self._back_end, sent | ({"joined": joined} if joined else {})),)

    def _route(self, ask: _Ask, described: Mapping[str, Any]) -> Sequence[Effect]:
        identity, what = ask.message["id"], ask.message["what"]
        joined = [Table.of(each) for each in described.get("joined", ())]
        try:
            if described["table"] is not None:
                ask.table = Table.of(described["table"])
                for each in (ask.table, *joined):
                    each.check_access(ask.claims)
                has_schema = any(each.schema is not None for each in (ask.table, *joined))
                if has_schema and what["op"] in ("read", "register"):
                    asked = what.get("aggregate")
                    aggregates = None if asked is None else Aggregates(asked)
                    check_names(ask.table, from_json(what.get("predicate")), aggregates, joined)
            elif what["op"] != "write":
                del self._asks[identity]
                return (Send(ask.source, {"kind": "refused", "id": identity, "error": described["error"]}),)
        except MudkitError as error:
            if what["op"] != "write":  # whether a write was applied before is for the back end to say
                del self._asks[identity]
                return (_refused(ask.source, identity, error),)
        auth = {} if ask.claims is None else ask.claims.auth
        table = ask.table
        if what["op"] == "write":
            place = 0 if table is None else table.partition_of(what["key"])
            sent = {
                **what,
                "kind": "write",
                "id": identity,
                "reply": self._me,
                "claims": _claims(ask),
                "client": ask.message["client"],
                "refused": ask.refused,
            }
            return (Send(self._processor(table, place), sent),)
        assert table is not None
        if what["op"] == "read":
            keys: list[str] | None = what["keys"]
            places = range(table.partitions) if keys is None else {table.partition_of(key) for key in keys}
            ask.places, ask.missing = sorted(places), set(places)
            # What is joined must not be older than what this reader has seen of it: the master has it.
            latest = what["latest"] or bool(joined)
            if not ask.missing:
                return self._completed(identity, ask)
            seen = what["seen"] if what["table"] == table.number else {}
            return [
                Send(self._processor(table, place), {
                    "kind": "read", "id": identity, "reply": self._me, "name": table.name,
                    "table": table.number,
                    "partition": place, "predicate": what["predicate"], "keys": keys,
                    "reader": what["reader"],
                    "auth": auth, "aggregate": what["aggregate"], "latest": latest,
                    "least": max(table.lsn, seen.get(str(place), 0)),
                }) for place in sorted(ask.missing)
            ]  # fmt: skip
        places_of: dict[str, list[int]] = {}
        for place in range(table.partitions):
            places_of.setdefault(self._processor(table, place), []).append(place)
        ask.places, ask.missing = list(places_of), set(places_of)
        expires_s = None if ask.claims is None else ask.claims.expires_s
        return [
            Send(processor, {
                **what, "kind": what["op"], "id": identity, "reply": self._me,
                "endpoint": ask.message["client"],
                "table": what.get("table") or table.number,  # one that was dropped is not another of its name
                "partitions": places, "auth": auth, "claims": _claims(ask), "expires_s": expires_s,
                "least": max(each.lsn for each in (table, *joined)),
            }) for processor, places in places_of.items()
        ]  # fmt: skip

    def _part(self, ask: _Ask, place: Any, message: Mapping[str, Any]) -> Sequence[Effect]:
        if place not in ask.missing:
            return ()
        ask.missing.discard(place)
        passed = Send(ask.source, dict(message, place=place))
        return passed, *(() if ask.missing else self._completed(message["id"], ask))

    def _completed(self, identity: str, ask: _Ask) -> Sequence[Effect]:
        assert ask.table is not None
        del self._asks[identity]
        return (Send(ask.source, {
            "kind": "complete", "id": identity, "table": ask.table.as_json(), "claims": _claims(ask),
            "places": ask.places,
        }),)  # fmt: skip

    def _processor(self, table: Table | None, place: int) -> str:
        return self._processors[
            0 if table is None else processor_of(table.number, place, len(self._processors))
        ]


def _claims(ask: _Ask) -> dict[str, Any] | None:
    return None if ask.claims is None else asdict(ask.claims)


def _refused(to: str, identity: str, error: MudkitError) -> Send:
    return Send(to, {"kind": "refused", "id": identity, "error": to_json(error)})
