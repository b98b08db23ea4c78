"""The back-end store: one master of every record, whose commits are one log that others follow.

Its rules (Mobius 3, 4.2):

===========  =======================================================================================
anything     dropped, unless it comes from a server of this cloud that sends such messages
describe     give the properties of a table, and of those that a read of it looks into
admin        create, alter or drop a table, once for each request, however often it is sent
write        the first time that it comes: blind, or conditional with the version that it replaces;
             then the next version and the next entry of the log, or a conflict, or a refusal; what came
             of it is kept with it, and answered again to who asks again; of one whose token has expired
             nothing comes, so that it can be sent again with another
read         on the master: what is latest
follow       give the whole state to who begins
has          send a follower what it has not, and again until it says that it has it
===========  =======================================================================================

The paper's store compares and swaps. That a write is applied once however often it is sent, also after a
crash, is added here: the numbers of a client's writes are kept with what came of them until the client says
that it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import AccessDenied, MudkitError, TableProblem
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, TimerFired
from mudkit.predicates.exchange import from_json
from mudkit.predicates.exchange import to_json as predicate_to_json
from mudkit.systems.mud.messages import BACK_END_FROM_GATEWAY, BACK_END_FROM_PROCESSOR, BACK_END_FROM_REPLICA
from mudkit.systems.mud.problems import to_json
from mudkit.systems.mud.servers.reading import answered
from mudkit.systems.mud.tables.queries import check_names, tables_of
from mudkit.systems.mud.tables.records import check_key, check_record
from mudkit.systems.mud.tables.replica import Joined, Row, TableReplica, is_visible
from mudkit.systems.mud.tables.table import Table, no_such_table
from mudkit.systems.receiving import Accepts, dropped
from mudkit.systems.stream import RetransmitTimer
from mudkit.tokens import Claims

__all__ = ["BackEnd"]

_AGAIN_US: Final = 200_000
BEFORE_FIRST: Final = 1_000_000_000
"""Entries of the log are counted from here on: all their numbers have as many digits, and so nobody's answer
is longer, or later, for what was written that he may not see."""
_NOBODY: Final[Accepts[Any]] = Accepts()


class BackEnd:
    """The master.

    Parameters
    ----------
    ports : Ports
    gateways, processors, replicas : sequence of str
        Addresses; the processors and replicas follow the log.
    """

    def __init__(
        self, ports: Ports, gateways: Sequence[str], processors: Sequence[str], replicas: Sequence[str]
    ) -> None:
        self._store = ports.store
        self._accepts: dict[str, Accepts[Any]] = {
            **dict.fromkeys(gateways, BACK_END_FROM_GATEWAY),
            **dict.fromkeys(processors, BACK_END_FROM_PROCESSOR),
            **dict.fromkeys(replicas, BACK_END_FROM_REPLICA),
        }
        followers = (*replicas, *processors)
        self._copy = TableReplica()
        tables = [each for _, each in self._store.items("table ")]
        rows = [(key.split("\n")[1], row) for key, row in self._store.items("row\n")]
        self._copy.load(self._store.get("lsn") or BEFORE_FIRST, tables, rows)
        self._has: dict[str, int] = dict.fromkeys(followers, -1)
        """What each follower has of the log; -1: it has not said so yet."""
        self._timer = RetransmitTimer(_AGAIN_US)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received() if not self._accepts.get(event.source, _NOBODY)(event.message):
                return dropped(event)
            case Received(source=source, message={"kind": "describe"} as message):
                return (Send(source, self._describe(message)),)
            case Received(message={"kind": "write"} as message):
                return self._write(now_us, message)
            case Received(message={"kind": "read"} as message):
                return answered(self._copy, message)
            case Received(source=source, message={"kind": "admin"} as message):
                return self._administer(source, message)
            case Received(source=source, message={"kind": "follow", "turn": turn}):
                # What it has it will say: of several states that it asked for it takes the first that comes.
                self._has[source] = -1
                state = {"kind": "state", "turn": turn, **self._copy.dump()}
                return Send(source, state), *self._timer.soon()
            case Received(message={"kind": "has", "lsn": lsn}) if not self._can_have(lsn):
                return dropped(event)
            case Received(source=source, message={"kind": "has", "lsn": lsn}):
                was = self._has.get(source, -1)
                self._has[source] = max(lsn, was)
                self._forget()
                return self._push({source: lsn}) if was < 0 else ()
            case LinkUp():
                return self._push(self._has)
            case TimerFired():
                self._timer.fired()
                return self._push(self._has)
        return ()

    def _can_have(self, lsn: int) -> bool:
        """Say whether a follower can have the log up to an entry; -1: it has nothing."""
        return lsn == -1 or BEFORE_FIRST <= lsn <= self._copy.lsn

    def _describe(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Give the properties of a table, and of those that a read of it looks into."""
        names, known = (message["name"], *message.get("joined", ())), self._copy.tables
        answer = {"kind": "described", "id": message["id"], "table": None, "error": None}
        missing = next((name for name in names if name not in known), None)
        if missing is not None:
            claims = None if message["claims"] is None else Claims(**message["claims"])
            return {**answer, "error": to_json(no_such_table(missing, known, claims))}
        table, *joined = (known[name].as_json() for name in names)
        return {**answer, "table": table} | ({"joined": joined} if joined else {})

    # -- writes

    def _write(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        number, claims = message["number"], message["claims"] or {}
        names = (message["client"], message["incarnation"], claims.get("app"), claims.get("user"))
        client = "\n".join(map(str, names))
        known = self._came_of(client, number)
        pushed: Sequence[Effect] = ()
        if known is None:
            if number < (self._store.get(f"known {client}") or 0):
                return ()  # a late copy of a write whose outcome its client knows
            if message["refused"] is not None:  # nothing has come of it: it waits for another token
                return (_outcome(message, {"error": message["refused"]}),)
            lsn = self._copy.lsn
            # A refusal is kept, too: an earlier copy that was not refused may still be on its way.
            known = self._decide(now_us, message)
            low = max(message["known"], self._store.get(f"known {client}") or 0)
            applied = self._store.get(f"applied {client}") or {}
            applied = {each: outcome for each, outcome in applied.items() if int(each) >= low}
            self._store.put(f"applied {client}", {**applied, str(number): known})
            self._store.put(f"known {client}", low)
            if self._copy.lsn != lsn:
                pushed = self._push({each: has for each, has in self._has.items() if has == lsn})
        return (_outcome(message, known), *pushed)

    def _came_of(self, client: str, number: int) -> dict[str, Any] | None:
        """Give what came of a write when it came before."""
        applied: dict[str, dict[str, Any]] = self._store.get(f"applied {client}") or {}
        return applied.get(str(number))

    def _decide(self, now_us: int, message: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a write or say why not."""
        table = self._copy.tables.get(message["name"])
        claims = None if message["claims"] is None else Claims(**message["claims"])
        auth = {} if claims is None else claims.auth
        try:
            if table is None or message["table"] not in (None, table.number):
                raise no_such_table(message["name"], self._copy.tables, claims)
            table.check_access(claims)
            check_key(message["key"])
            if message["data"] is not None:
                table.check_columns(check_record(message["data"]))
            predicate = self._checked(table, message["predicate"], claims)
        except MudkitError as error:
            return {"error": to_json(error)}
        row, reader = self._copy.get(table, message["key"]), message["reader"]
        version = 0 if row is None else row["ver"]
        shown = row is not None and is_visible(row, reader, auth, table, Joined(self._copy, reader, auth))
        where = {"partition": table.partition_of(message["key"]), "table": table.number}
        if message["type"] == "conditional" and not self._matches(message, row, version):
            store = None
            if row is not None and shown:
                store = row if row["data"] is None else {**row, "data": table.seen(row)}
            return {"conflict": store, "lsn": self._copy.lsn, **where}
        lsn = self._copy.lsn + 1
        # Over what its writer may not see, and has not seen before, the next version is not the next number:
        # how often others have written it is not for him. It is a higher one: no record has more versions
        # than there are entries.
        is_known = row is None or shown or message["replaces"] == version
        next_version = version + 1 if is_known else lsn
        new: Row = {
            "key": message["key"],
            "ver": next_version,
            "data": message["data"],
            "ts_us": now_us,
            "predicate": predicate,
            "lsn": lsn,
        }
        if new["data"] is None:
            new["predicate"] = None if row is None else row["predicate"]
        self._store.crash_point("decided, not in the log")
        self._store.put(f"row\n{table.name}\n{new['key']}", new)
        self._log({"op": "row", "name": table.name, "row": new})
        return {"ver": new["ver"], "lsn": self._copy.lsn, **where}

    def _checked(
        self, table: Table, sent: Mapping[str, Any] | None, claims: Claims | None
    ) -> dict[str, Any] | None:
        """Refuse a writer predicate that is none, or that looks at a column or a table that is not there.

        It would show nobody anything. What is given is as it is sent, with nothing else in it.

        Raises
        ------
        MudkitError
        """
        predicate = from_json(sent)
        names = tables_of(predicate)
        for name in names:
            if name not in self._copy.tables:
                raise no_such_table(name, self._copy.tables, claims)
        check_names(table, predicate, joined=[self._copy.tables[name] for name in names])
        return predicate_to_json(predicate)

    def _matches(self, message: Mapping[str, Any], row: Row | None, version: int) -> bool:
        """Say whether a conditional write may replace what is there."""
        after: int | None = message["replaces"]
        if after is None:
            return False  # it stood on a write that failed
        return after == version or (after == 0 and (row is None or row["data"] is None))

    # -- tables

    def _administer(self, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        known = self._store.get(f"done {message['id']}")
        pushed: Sequence[Effect] = ()
        if known is None:
            try:
                known = self._change(message)
            except MudkitError as error:
                known = {"error": to_json(error)}
            else:
                pushed = self._push(
                    {each: has for each, has in self._has.items() if has == self._copy.lsn - 1}
                )
            self._store.put(f"done {message['id']}", known)
        return (Send(source, {"kind": "administered", "id": message["id"], **known}), *pushed)

    def _change(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Create, alter or drop a table, and give what its client is told.

        Raises
        ------
        MudkitError
        """
        name, properties = message["name"], message["properties"]
        claims = None if message["claims"] is None else Claims(**message["claims"])
        table = self._copy.tables.get(name)
        lsn = self._copy.lsn + 1
        if message["op"] == "create":
            if claims is None:
                raise AccessDenied(
                    "Nobody creates a table without a token.",
                    where=f"table {name!r}",
                    found="no token",
                    expected="a token of the app, which is then the only one that alters and drops it",
                    remedy="make the client with token=lab.token(user=…, app=…)",
                )
            if table is not None:
                raise TableProblem(
                    "There is a table of this name already.",
                    where="table",
                    found=repr(name),
                    expected="a name that is free",
                    remedy="use the table, or drop it first",
                )
            made = Table.created(name, claims.app, properties, lsn)
        elif table is None:
            raise no_such_table(name, self._copy.tables, claims)
        else:
            table.check_owner(claims)
            if message["op"] == "drop":
                self._store.delete(f"table {name}")
                for key, _ in self._store.items(f"row\n{name}\n"):
                    self._store.delete(key)
                self._log({"op": "drop", "name": name})
                return {"table": None, "dropped": table.number}
            made = table.altered(properties, lsn)
        self._store.put(f"table {name}", made.as_json())
        self._log({"op": "table", "table": made.as_json()})
        return {"table": made.as_json()}

    # -- the log

    def _log(self, entry: dict[str, Any]) -> None:
        entry["lsn"] = self._copy.lsn + 1
        self._store.put(f"log {entry['lsn']:015d}", entry)
        self._store.put("lsn", entry["lsn"])
        self._copy.take(entry)

    def _push(self, has: Mapping[str, int]) -> Sequence[Effect]:
        """Send followers what they have not, and again until they say that they have it."""
        effects: list[Effect] = []
        for follower, lsn in has.items():
            if lsn < 0:
                effects.append(Send(follower, {"kind": "log", "entries": []}))
            elif lsn < self._copy.lsn:
                entries = [
                    entry
                    for number in range(lsn + 1, self._copy.lsn + 1)
                    if (entry := self._store.get(f"log {number:015d}")) is not None
                ]
                effects.append(Send(follower, {"kind": "log", "entries": entries}))
        return [*effects, *self._timer.soon()] if effects else ()

    def _forget(self) -> None:
        """Forget the entries that every follower has."""
        if self._has:
            for number in range(min(self._has.values()), 0, -1):
                if self._store.get(f"log {number:015d}") is None:
                    break
                self._store.delete(f"log {number:015d}")


def _outcome(message: Mapping[str, Any], known: Mapping[str, Any]) -> Send:
    return Send(message["reply"], {"kind": "outcome", "id": message["id"], "key": message["key"], **known})
