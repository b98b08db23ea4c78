"""The client's reads: from the local store where the rules allow it, else from the cloud.

Rules (Mobius 4.2, table 3), for each key that matches; R is the latest version held, R_base the latest that
is committed:

==============  ==========================  ============================================================
type            local                       remote
==============  ==========================  ============================================================
uncommitted     R, if it is fresh           what the partitions hold; pending versions stand above it
committed       R_base, if it is fresh      what the partitions hold
committed_wio   R_base, if it is fresh      the same, after all earlier writes and reads of this type of
                and R = R_base              this client there
==============  ==========================  ============================================================

What is held is in :mod:`~mudkit.systems.mud.device.cache`; whether it will do, a policy decides, or else the
read's utility. An answer that is older than what this client has seen of a partition is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from mudkit.errors import MudkitError, ParameterError, PredicateError
from mudkit.events import Complete, Effect, Record, size_bytes
from mudkit.predicates import Aggregates
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.device.cache import Cache, Held
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.planning import Answerable, Planner
from mudkit.systems.mud.operations import Read
from mudkit.systems.mud.policies.policies import Asked, ReadPolicy
from mudkit.systems.mud.problems import from_json
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.queries import asks_for_keys_only, check_names, keys_of, tables_of
from mudkit.systems.mud.tables.replica import detached

__all__ = ["READ_TYPES", "ReadPath", "asked_of"]

READ_TYPES: Final = ("uncommitted", "committed", "committed_wio")


class _Query(msgspec.Struct, frozen=True):
    op_id: int | None
    """None: nobody waits for it."""
    asked: Asked
    keys: list[str] | None
    latest: bool
    aggregates: Aggregates | None


def asked_of(read: Read) -> Asked:
    """Return a read as policies see it."""
    return Asked(read.table, read.predicate, read.type, dict(read.reader), read.utility)


class ReadPath:
    """The reads of one client.

    Parameters
    ----------
    local : Local
    cache : Cache
    planner : Planner
    connection : Connection
    policy : ReadPolicy or None
    release : callable
        Lets held writes go.
    go_on : callable
        Sends writes that waited for a read.
    """

    def __init__(
        self,
        local: Local,
        cache: Cache,
        planner: Planner,
        connection: Connection,
        policy: ReadPolicy | None,
        release: Callable[[int, Sequence[int]], Sequence[Effect]],
        go_on: Callable[[int], Sequence[Effect]],
    ) -> None:
        self._local = local
        self._cache = cache
        self._planner = planner
        self._connection = connection
        self._policy = policy
        self._release = release
        self._go_on = go_on
        self.context: Mapping[str, Any] = {}
        self._waiting: list[tuple[_Query, list[int]]] = []
        self._in_order: dict[int, tuple[_Query, int]] = {}
        """The committed_wio reads that are not answered, with the number of the last write before each."""

    def read(self, now_us: int, op_id: int, read: Read) -> Sequence[Effect]:
        """Answer a read, or begin to."""
        name, kind = read.table, read.type
        if kind not in READ_TYPES:
            raise ParameterError(
                "There is no such type of read.",
                where="type",
                found=repr(kind),
                expected=", ".join((*READ_TYPES, "continuous")),
            )
        aggregates = None if read.aggregate is None else Aggregates(read.aggregate)
        if aggregates is not None and kind != "committed":
            raise ParameterError(
                "Aggregates are of committed records.", where="type", found=kind, expected="committed"
            )
        self.check_access(now_us, name)
        if kind == "committed" and (at_once := self._at_once(now_us, op_id, read)):
            return at_once
        asked = asked_of(read)
        if kind == "uncommitted" and tables_of(asked.predicate):
            raise ParameterError(
                "An uncommitted read looks into no other table: the cloud does not know what is pending.",
                where="type",
                found=kind,
                expected=", ".join(READ_TYPES[1:]),
            )
        query = _Query(op_id, asked, keys_of(asked.predicate), read.latest, aggregates)
        if kind == "committed_wio":
            before = self._before(query)
            is_first = not any(each.asked.table == name for each, _ in self._in_order.values())
            self._in_order[op_id] = query, self._local.last_write()
            if before or not is_first:
                self._waiting.append((query, before))
                return self._release(now_us, before)
        return self._answer(now_us, query)

    def _at_once(self, now_us: int, op_id: int, read: Read) -> Sequence[Effect]:
        """Answer the commonest read as :meth:`_answer` would: one record by its key, which anybody may see.

        Nothing but the record and the utility has a say in it; empty: something has.
        """
        predicate, name = read.predicate, read.table
        if self._policy is not None or self._is_unverified() or not asks_for_keys_only(predicate):
            return ()
        keys = keys_of(predicate) or ()
        if len(keys) != 1 or read.latest or read.aggregate is not None:
            return ()
        row = self._local.row(name, keys[0])
        if row is None or row["predicate"] is not None:
            return ()
        quality = Answerable((now_us - row["held_us"]) / 1e6, 1.0, 0.0)
        if self._planner.choose(now_us, name, read.utility, quality) != "local":
            return ()
        return self._completed(now_us, op_id, name, {keys[0]: row}, ())

    def fetch(self, asked: Asked) -> Sequence[Effect]:
        """Ask the cloud for what nobody waits for, so that it is held."""
        return self._ask(_Query(None, asked, keys_of(asked.predicate), False, None))

    def refuse(self, now_us: int, error: MudkitError) -> Sequence[Effect]:
        """Answer the reads that wait for writes: those wait for another token."""
        effects: list[Effect] = []
        while self._waiting:
            query, _ = self._waiting.pop()
            assert query.op_id is not None
            effects += [Complete(query.op_id, error=error), *self._over(now_us, query)]
        return effects

    def is_before(self, write: Mapping[str, Any]) -> bool:
        """Say whether a read that must not see a write is not answered yet."""
        return bool(self._in_order) and any(
            last < write["number"] and self._concerns(query, write) for query, last in self._in_order.values()
        )

    def settled(self, now_us: int) -> Sequence[Effect]:
        """Go on with reads that waited for what is over now: writes, and such reads of the table before."""
        effects: list[Effect] = []
        while (query := self._next_in_order()) is not None:
            effects += self._answer(now_us, query)
        return effects

    def _next_in_order(self) -> _Query | None:
        """Take a read out that need wait no longer."""
        for place, (query, before) in enumerate(self._waiting):
            same = (each for each, _ in self._in_order.values() if each.asked.table == query.asked.table)
            if next(same) is query and not any(number in self._local.writes for number in before):
                del self._waiting[place]
                return query
        return None

    def check_access(self, now_us: int, name: str) -> None:
        """Refuse what the cloud would refuse, as far as it is known here.

        Raises
        ------
        AccessDenied
        """
        said = self._connection.claimed
        if said is not None:
            said.check(now_us / 1e6, self._connection.netid)
        table = self._local.tables.get(name)
        if table is not None and not self._is_unverified():
            table.check_access(self._cache.claims)

    def _is_unverified(self) -> bool:
        """Say whether there is a token that the cloud has not looked at yet: it is for the cloud to judge."""
        return self._cache.claims is None and self._connection.token is not None

    def _before(self, query: _Query) -> list[int]:
        """Give the pending writes on the partitions that a read concerns."""
        return [number for number, write in self._local.writes.items() if self._concerns(query, write)]

    def _concerns(self, query: _Query, write: Mapping[str, Any]) -> bool:
        """Say whether a write is on a partition that a read concerns."""
        table = self._local.tables.get(query.asked.table)
        if write["name"] != query.asked.table:
            return False
        if query.keys is None or table is None:
            return True
        return table.partition_of(write["key"]) in {table.partition_of(key) for key in query.keys}

    def _answer(self, now_us: int, query: _Query) -> Sequence[Effect]:
        """Choose between what is held and the cloud."""
        asked = query.asked
        held = self._held(now_us, query)
        decided: str | None = None
        if self._policy is not None:
            decided = self._policy.decide(
                asked, {**self.context, "now_us": now_us}, self._cache.answered(now_us)
            )
        if decided is None:
            quality = None if held is None else held.quality
            decided = self._planner.choose(now_us, asked.table, asked.utility, quality)
        if decided != "local" or held is None:
            return self._ask(query)
        return self._complete(now_us, query, held.versions, ())

    def _held(self, now_us: int, query: _Query) -> Held | None:
        """Give what could be answered from here; None: nothing may, or can."""
        if query.aggregates is not None or (self._is_unverified() and query.asked.type != "uncommitted"):
            return None
        if query.latest and query.asked.type != "uncommitted":
            return None
        if not self._has_all(query.asked):
            return None  # the cloud says whether there is such a column by now
        if tables_of(query.asked.predicate):
            return None  # the cloud has what is joined
        held = self._cache.find(now_us, query.asked, query.keys, latest=query.latest)
        return None if held is None or (query.latest and held.quality.completeness < 1.0) else held

    def _has_all(self, asked: Asked) -> bool:
        """Say whether a table, as it is known here, has what a read names."""
        table = self._local.tables.get(asked.table)
        if table is not None and table.schema is not None:
            try:
                check_names(table, asked.predicate)
            except PredicateError:
                return False
        return True

    # -- from the cloud

    def _ask(self, query: _Query) -> Sequence[Effect]:
        asked = query.asked

        def what() -> dict[str, Any]:
            return {
                "op": "read",
                "name": asked.table,
                "table": self._local.number_of(asked.table),
                "predicate": to_json(asked.predicate),
                "keys": query.keys,
                "reader": asked.reader,
                "aggregate": None if query.aggregates is None else query.aggregates.text,
                "latest": query.latest,
                "seen": self._local.seen(asked.table),
            }

        return self._connection.ask(what, lambda last, parts: self._came(query, last, parts))

    def _came(
        self, query: _Query, last: Mapping[str, Any], parts: Mapping[Any, Mapping[str, Any]]
    ) -> Sequence[Effect]:
        """Take the answer of the cloud."""
        now_us, asked, name = last["now_us"], query.asked, query.asked.table
        if "error" in last:
            failed = [] if query.op_id is None else [Complete(query.op_id, error=from_json(last["error"]))]
            return [*failed, *self._over(now_us, query)]
        table = self._local.learn(last["table"])
        if table.number != last["table"]["number"]:
            return self._ask(query)  # it is of a table that was dropped since
        wanted = last["places"]
        seen = self._local.seen(name)
        if any(place not in parts or parts[place]["lsn"] < seen.get(str(place), 0) for place in wanted):
            return self._ask(query)  # a part was lost on the way, or something newer was seen meanwhile
        if query.aggregates is not None and not all(
            query.aggregates.is_state(parts[p]["state"]) for p in wanted
        ):
            return self._ask(query)
        for place in wanted:
            self._local.see(name, table.number, place, parts[place]["lsn"])
        if query.aggregates is not None:
            result = query.aggregates.result(
                query.aggregates.combine([tuple(parts[p]["state"]) for p in wanted])
            )
            assert query.op_id is not None
            return (Complete(query.op_id, ReadResult(aggregates=result)),)  # never committed_wio
        came = {row["key"]: row for place in wanted for row in parts[place]["rows"]}
        for row in list(self._local.rows(name)):
            if row["key"] in came or table.partition_of(row["key"]) not in wanted:
                continue
            if row["data"] is None or self._cache.may_match(asked, row):
                self._local.let_go(name, row["key"])  # it is gone, hidden, or matches no more
        losses = self._local.losses[name].copy()  # of those that come, some may have to go again
        for row in came.values():
            self._local.hold(name, table.number, row, now_us)
        known = {key: row["ver"] for key, row in came.items()}
        compared = self._cache.note(now_us, asked, self.context, known, losses)
        if compared is not None:
            self._planner.compared(name, compared[0], has_changed=compared[1])
        self._planner.answered(name, sum(size_bytes(part) for part in parts.values()) / 1000)
        versions: dict[str, Mapping[str, Any]] = dict(came)
        if asked.type == "uncommitted":
            try:
                self._put_pending(query, versions)
            except PredicateError as error:
                return () if query.op_id is None else (Complete(query.op_id, error=error),)
        return self._complete(now_us, query, versions, set(came))

    def _put_pending(self, query: _Query, versions: dict[str, Mapping[str, Any]]) -> None:
        """Let pending versions stand above what the cloud has given.

        Raises
        ------
        PredicateError
            The predicate fails on one of them, which the cloud has not seen.
        """
        name = query.asked.table
        for key in self._local.pending_keys(name):
            pending = self._local.pending(name, key)[-1]
            is_named = query.keys is not None and key in query.keys
            versions.pop(key, None)
            if self._cache.matches(query.asked, pending, is_named=is_named):
                versions[key] = pending

    def _complete(
        self, now_us: int, query: _Query, versions: Mapping[str, Mapping[str, Any]], remote: Collection[str]
    ) -> Sequence[Effect]:
        """Answer with versions, and let go what waited for it."""
        if query.op_id is None:
            return ()
        effects = self._completed(now_us, query.op_id, query.asked.table, versions, remote)
        return [*effects, *self._over(now_us, query)]

    def _completed(
        self,
        now_us: int,
        op_id: int,
        name: str,
        versions: Mapping[str, Mapping[str, Any]],
        remote: Collection[str],
    ) -> Sequence[Effect]:
        """Answer with versions, and write down which."""
        effects: list[Effect] = []
        records: dict[str, dict[str, Any]] = {}
        source, age_s, numbers = {}, {}, {}
        table, hash_of = self._local.tables.get(name), self._local.hash_of
        for key in sorted(versions):
            version = versions[key]
            data, number, held_us = version["data"], version.get("ver"), version.get("held_us", now_us)
            row = {"op_id": op_id, "key": key, "version": number, "value_hash": hash_of(name, key, data)}
            effects.append(Record("operations", row))
            if data is None:
                continue
            records[key] = detached(data if table is None or not table.removed else table.seen(version))
            numbers[key] = number
            source[key] = "remote" if key in remote and number is not None else "local"
            age_s[key] = (now_us - held_us) / 1e6
        effects.append(Complete(op_id, ReadResult(records, source, age_s, numbers)))
        return effects

    def _over(self, now_us: int, query: _Query) -> Sequence[Effect]:
        """Let writes and reads go that waited for a read."""
        if query.op_id is None or self._in_order.pop(query.op_id, None) is None:
            return ()
        return [*self._go_on(now_us), *self.settled(now_us)]
