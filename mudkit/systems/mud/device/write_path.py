"""The client's writes: first into the local store, then to the back end, one after another for each record.

Rules (Mobius 4.2):

=================  ==================================================================================
write, delete      stage 1: kept as pending, durably
head of a record   stage 2: sent as soon as nothing holds it; the others of the record wait, and so
                   does a write that was made after a committed_wio read which is not answered: the
                   read must not see it
committed          the version held becomes the one that the store gave; who stands on it now stands
                   on that
conflict           the pending update goes, the store's version is held if it may be seen; whatever
                   conditional stands on it conflicts, too
refused            it goes, with the reason; who stands on it conflicts
token has expired  it stays, listed as held, until there is a token that has not
due                a delay is over: whatever of this client waits, too, goes in the same message, but for
                   what is held for ever (Mobius 7.3)
=================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.errors import MudkitError, ParameterError, TokenExpired
from mudkit.events import Complete, Effect, Ports, Record, SetTimer
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud import operations
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local, Write
from mudkit.systems.mud.policies.policies import NEVER, WritePolicy
from mudkit.systems.mud.problems import Conflict, from_json
from mudkit.systems.mud.tables.records import check_key, check_record, value_hash

__all__ = ["DUE", "WRITE_TYPES", "WritePath"]

DUE: Final = "due"
WRITE_TYPES: Final = ("blind", "conditional")


class WritePath:
    """The writes of one client.

    Parameters
    ----------
    ports : Ports
    local : Local
    connection : Connection
    policy : WritePolicy
    settled : callable
        Called when a write is over.
    waits : callable
        Says whether a write must wait for a read.
    refused : callable
        Called when a write is held because the token has expired.
    """

    def __init__(
        self,
        ports: Ports,
        local: Local,
        connection: Connection,
        policy: WritePolicy,
        settled: Callable[[int], Sequence[Effect]],
        waits: Callable[[Write], bool],
        refused: Callable[[int, MudkitError], Sequence[Effect]],
    ) -> None:
        self._store = ports.store
        self._local = local
        self._connection = connection
        self._policy = policy
        self._settled = settled
        self._waits = waits
        self._refused = refused
        self._calls: dict[int, int] = {}  # op_id by number: callers do not outlive the machine
        self._under_way: set[int] = set()

    def write(
        self, now_us: int, op_id: int, asked: operations.Write, context: Mapping[str, Any]
    ) -> Sequence[Effect]:
        """Store a write or a delete as pending (stage 1)."""
        name, key, kind = asked.table, asked.key, asked.type
        if kind not in WRITE_TYPES:
            raise ParameterError(
                "There is no such type of write.",
                where="type",
                found=repr(kind),
                expected=", ".join(WRITE_TYPES),
            )
        data, predicate = asked.record, asked.predicate
        table = self._local.tables.get(name)
        if data is not None:
            data = check_record(data)
            if table is not None:
                table.check_columns(data)
        if predicate is not None and predicate.unbound:
            predicate = predicate.bind(sender=context)
        number = self._local.last_write() + 1
        key = check_key(self._own_key(number) if key is None else key)
        held, pending = self._local.row(name, key), self._local.pending(name, key)
        write: Write = {
            "number": number, "name": name, "key": key, "type": kind,
            "data": data, "predicate": to_json(predicate), "reader": dict(asked.reader),
            "replaces": 0 if held is None else held["ver"],
            "after": pending[-1]["number"] if pending else None,
            "base": None if held is None or held["data"] is None else held, "invoked_us": now_us,
            "table": self._local.number_of(name), "due_us": None, "is_refused": False,
        }  # fmt: skip
        delay = self._policy.delay({**write, "utility": asked.utility}, {**context, "now_us": now_us})
        if delay is not None:
            write["due_us"] = NEVER if delay == NEVER else now_us + round(delay * 1e6)
        self._store.crash_point("numbered, not pending")
        self._local.add(write)
        self._calls[write["number"]] = op_id
        written = Record("operations", {"op_id": op_id, "value_hash": partial(value_hash, data)})
        if write["due_us"] is not None:
            return (written, *self.go_on(now_us))
        return (written, *self._begin(write)) if not pending else (written,)

    def _own_key(self, number: int) -> str:
        """Make up a key: no other client has it, nor this one had it before its device was wiped."""
        return f"{self._connection.endpoint} {self._connection.incarnation} {number}"

    def pending(self) -> list[dict[str, Any]]:
        """List the writes that are not answered; ``held`` says by what one is held, if it is."""
        listed = [dict(write) for _, write in sorted(self._local.writes.items())]
        for write in listed:
            by_policy = "policy" if write["due_us"] == NEVER else None
            write["held"] = "token" if write.pop("is_refused") else by_policy
        return listed

    def _begin(self, write: Write) -> Sequence[Effect]:
        """Send the head of a record, whose time has come (stage 2), unless something else holds it."""
        if write["number"] in self._under_way or self._waits(write):
            return ()
        if write["is_refused"]:
            said = self._connection.claimed
            if said is not None and said.expires_s <= self._connection.now_us / 1e6:
                return ()
            write["is_refused"] = False
            self._local.save(write)
        self._under_way.add(write["number"])
        return self._ask(write)

    def go_on(self, now_us: int) -> Sequence[Effect]:
        """Send what nothing holds (stage 2)."""
        effects: list[Effect] = []
        waiting: list[Write] = []
        is_due = False
        for write in self._local.heads():
            due_us = write["due_us"]
            if due_us is None or (due_us != NEVER and due_us <= now_us):
                begun = self._begin(write)
                is_due |= due_us is not None and bool(begun)
                effects += begun
            elif due_us != NEVER and write["number"] not in self._under_way and not self._waits(write):
                waiting.append(write)
        if is_due:  # a message goes, and takes along what waits
            for write in waiting:
                effects += self._begin(write)
            return self._connection.together(effects)
        if waiting:
            effects.append(SetTimer(DUE, min(write["due_us"] for write in waiting) - now_us))
        return effects

    def release(self, now_us: int, numbers: Sequence[int]) -> Sequence[Effect]:
        """Send writes that are held or delayed: a read waits for them."""
        for number in numbers:
            write = self._local.writes[number]
            if write["due_us"] is not None:
                write["due_us"] = None
                self._local.save(write)
        return self.go_on(now_us)

    def _ask(self, write: Write) -> Sequence[Effect]:
        def what() -> dict[str, Any]:
            names = ("name", "key", "type", "data", "predicate", "reader", "replaces", "number", "table")
            known = next(iter(self._local.writes))
            asked = {name: write[name] for name in names}
            return {"op": "write", "known": known, "incarnation": self._connection.incarnation, **asked}

        return self._connection.ask(what, lambda answer, _: self._over(write, answer))

    def _over(self, write: Write, answer: Mapping[str, Any]) -> Sequence[Effect]:
        """Take the outcome of stage 2."""
        now_us = answer["now_us"]
        self._under_way.discard(write["number"])
        name, key = write["name"], write["key"]
        effects: list[Effect] = []
        if "ver" in answer:
            new = {each: write[each] for each in ("key", "data", "predicate")}
            new |= {"ver": answer["ver"], "lsn": answer["lsn"]}
            if write["data"] is None and (held := self._local.row(name, key)) is not None:
                new["predicate"] = held["predicate"]  # who could not see it does not see that it is gone
            self._local.hold(name, answer["table"], new, now_us)
            self._local.see(name, answer["table"], answer["partition"], answer["lsn"])
            self._store.crash_point("held, still pending")
            self._local.remove(write)
            for other in self._local.pending(name, key):
                if other["after"] == write["number"]:
                    other["after"], other["replaces"] = None, answer["ver"]
                    other["base"] = None if new["data"] is None else new
                    self._local.save(other)
            effects += self._complete(write, answer["ver"])
        elif "conflict" in answer:
            effects += self._conflict(now_us, write, answer)
        else:
            error = from_json(answer["error"])
            if isinstance(error, TokenExpired):
                write["is_refused"] = True
                self._local.save(write)
                return self._hold_back(now_us, error)
            effects += self._fail(write, error, None)
        return [*effects, *self._settled(now_us), *self.go_on(now_us)]

    def _hold_back(self, now_us: int, error: MudkitError) -> Sequence[Effect]:
        """Leave what an expired token has held up for another one; reads that wait for it are refused."""
        return self._refused(now_us, error)

    def _conflict(self, now_us: int, write: Write, answer: Mapping[str, Any]) -> Sequence[Effect]:
        name, key, row = write["name"], write["key"], answer["conflict"]
        if row is None:
            self._local.let_go(name, key)
        else:
            self._local.hold(name, answer["table"], row, now_us)
        self._local.see(name, answer["table"], answer["partition"], answer["lsn"])
        stored = "nothing that you may see" if row is None else f"version {row['ver']}"
        expected = f"version {write['replaces']}" if write["replaces"] else "no record"
        return self._fail(write, Conflict(
            "The record is not the one that this write was to replace.", where=f"table {name!r}, key {key!r}",
            found=stored, expected=expected, store=row, local=write, base=write["base"],
            remedy="merge the records and write again",
        ), row)  # fmt: skip

    def _fail(
        self, write: Write, error: MudkitError, row: Mapping[str, Any] | None, *, is_chained: bool = False
    ) -> Sequence[Effect]:
        """Undo a write that had no effect, and those that stand on it."""
        self._local.remove(write)
        reason = (
            None if row is None or is_chained else row["ver"]
        )  # what is chained was not tried, and saw nothing
        effects = [*self._complete(write, reason, error)]
        for other in self._local.pending(write["name"], write["key"]):
            if other["after"] != write["number"]:
                continue
            if other["type"] == "conditional":
                chained = Conflict(
                    "The write that this one stands on has failed.",
                    found=error.summary,
                    where=f"table {write['name']!r}, key {write['key']!r}",
                    store=row,
                    local=other,
                    base=other["base"],
                    remedy="merge the records and write again",
                )
                effects += self._fail(other, chained, row, is_chained=True)
            else:
                other["after"] = None
                self._local.save(other)
            break
        return effects

    def _complete(
        self, write: Write, version: int | None, error: MudkitError | None = None
    ) -> Sequence[Effect]:
        op_id = self._calls.pop(write["number"], None)
        if op_id is None:
            return ()
        return Record("operations", {"op_id": op_id, "version": version}), Complete(op_id, version, error)
