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

A query is complete here if its keys are all held, or if an earlier complete query of the same reader contains
it. An answer that is older than what this client has seen of a partition is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mudkit.errors import ParameterError
from mudkit.events import Complete, Effect, Record
from mudkit.predicates import Aggregates
from mudkit.predicates.exchange import to_json
from mudkit.systems.mud.connection import Connection
from mudkit.systems.mud.copy import is_visible, record_of
from mudkit.systems.mud.hashes import value_hash
from mudkit.systems.mud.local import Local
from mudkit.systems.mud.policies import Asked, Cached, ReadPolicy
from mudkit.systems.mud.problems import from_json
from mudkit.systems.mud.queries import contains, keys_of
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.utility import Plan, best, freshness
from mudkit.tokens import Claims

__all__ = ["READ_TYPES", "Asking"]

READ_TYPES: Final = ("uncommitted", "committed", "committed_wio")
_KEPT_QUERIES: Final = 64
_LATENCY_S: Final = {"wifi": 0.02, "lte": 0.1, "umts_3g": 0.3, "edge": 1.0}
_OFFLINE_S: Final = 3600.0


@dataclass(frozen=True)
class _Query:
    op_id: int
    asked: Asked
    keys: list[str] | None
    latest: bool
    aggregates: Aggregates | None


@dataclass(frozen=True)
class _Complete:
    """A read that the cloud has answered whole."""

    asked: Asked
    at_us: int
    context: Mapping[str, Any]
    losses: int
    """Records of the table that had been let go then: no more may be, if it is to be complete still."""


class Asking:
    """The reads of one client.

    Parameters
    ----------
    local : Local
    connection : Connection
    policy : ReadPolicy or None
    release : callable
        Lets held writes go.
    go_on : callable
        Sends writes that waited for a read.
    """

    def __init__(
        self, local: Local, connection: Connection, policy: ReadPolicy | None,
        release: Callable[[int, Sequence[int]], Sequence[Effect]], go_on: Callable[[int], Sequence[Effect]],
    ) -> None:  # fmt: skip
        self._local = local
        self._connection = connection
        self._policy = policy
        self._release = release
        self._go_on = go_on
        self.claims: Claims | None = None
        """What the cloud has verified."""
        self.context: Mapping[str, Any] = {}
        self.network = ""
        self._answered: list[_Complete] = []
        self._waiting: list[tuple[_Query, list[int]]] = []
        self._in_order: dict[int, tuple[_Query, int]] = {}
        """The committed_wio reads that are not answered, with the number of the last write before each."""

    def read(self, now_us: int, op_id: int, arguments: Mapping[str, Any]) -> Sequence[Effect]:
        """Answer a read, or begin to."""
        name, kind, predicate = arguments["table"], arguments["type"], arguments["predicate"]
        if kind not in READ_TYPES:
            raise ParameterError(
                "There is no such type of read.", where="type", found=repr(kind),
                expected=", ".join((*READ_TYPES, "continuous")),
            )  # fmt: skip
        aggregates = None if arguments["aggregate"] is None else Aggregates(arguments["aggregate"])
        if aggregates is not None and kind != "committed":
            raise ParameterError("Aggregates are of committed records.", where="type", found=kind)
        self.check_access(now_us, name)
        asked = Asked(name, predicate, kind, dict(arguments["reader"]), arguments["utility"])
        query = _Query(op_id, asked, keys_of(predicate), arguments["latest"], aggregates)
        if kind == "committed_wio":
            before = self._before(query)
            is_first = not any(each.asked.table == name for each, _ in self._in_order.values())
            self._in_order[op_id] = query, self._local.last_write()
            if before or not is_first:
                self._waiting.append((query, before))
                return self._release(now_us, before)
        return self._answer(now_us, query)

    def is_before(self, write: Mapping[str, Any]) -> bool:
        """Say whether a read that must not see a write is not answered yet."""
        return any(
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
        if self.claims is not None:
            self.claims.check(now_us / 1e6, self._connection.endpoint.split("/")[0])
        table = self._local.tables.get(name)
        if table is not None and not self._is_unverified():
            table.check_access(self.claims)

    def _is_unverified(self) -> bool:
        """Say whether there is a token that the cloud has not looked at yet: it is for the cloud to judge."""
        return self.claims is None and self._connection.has_token

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
        """Choose between what can be done here and the cloud."""
        asked = query.asked
        decided = None
        if self._policy is not None:
            cache = [Cached(each.asked, (now_us - each.at_us) / 1e6, each.context) for each in self._answered]
            decided = self._policy.decide(asked, self.context, cache)
        found = None if decided == "remote" else self._here(now_us, query, decided == "local")
        if found is not None and decided is None:
            _, age_s = found
            utility = asked.utility if asked.utility is not None else freshness(0.0)
            wait_s = _LATENCY_S.get(self.network, 0.1) if self._connection.is_up else _OFFLINE_S
            local, remote = Plan("local", age_s, 0.0), Plan("remote", 0.0, wait_s)
            if best([local, remote], utility) is remote:
                found = None
        if found is None:
            return self._ask(query)
        return self._complete(now_us, query, found[0], set())

    def _here(
        self, now_us: int, query: _Query, is_forced: bool
    ) -> tuple[dict[str, Mapping[str, Any]], float] | None:
        """Give the versions that a read would return from here, and the age of the oldest; None: none."""
        asked, name = query.asked, query.asked.table
        if query.aggregates is not None or (query.latest and asked.type != "uncommitted"):
            return None
        if self._is_unverified() and asked.type != "uncommitted":
            return None
        pending = {key: self._local.pending(name, key)[-1] for key in self._local.pending_keys(name)}
        held = {row["key"]: row for row in self._local.rows(name)}
        known = dict(held)
        if asked.type == "uncommitted":
            known = {**held, **pending}
        age_us = -1
        candidates = known
        if query.keys is not None:
            candidates = {key: known[key] for key in query.keys if key in known}
        if query.keys is None or len(candidates) < len(query.keys):
            within = [
                each.at_us
                for each in self._answered
                if each.losses == self._local.losses[name] and self._contains(each.asked, asked)
            ]
            if not within and not is_forced:
                return None
            age_us = now_us - max(within, default=now_us)
        if query.latest and any("number" not in each for each in candidates.values()):
            return None
        versions = {}
        for key, version in candidates.items():
            if version["data"] is None and query.keys is None:
                continue
            if version["data"] is not None and not self._matches(asked, version):
                continue
            if version["data"] is None and not self._is_visible(asked, version):
                continue
            versions[key] = version
        # Of named keys also those count that match no more: that they do not is as old as they are.
        for version in (versions if query.keys is None else candidates).values():
            if "held_us" in version:
                age_us = max(age_us, now_us - version["held_us"])
        return versions, age_us / 1e6

    def _contains(self, larger: Asked, smaller: Asked) -> bool:
        return (
            larger.table == smaller.table
            and larger.reader == smaller.reader
            and contains(larger.predicate, smaller.predicate)
        )

    def _matches(self, asked: Asked, version: Mapping[str, Any]) -> bool:
        if not self._is_visible(asked, version):
            return False
        record = record_of(version, self._local.tables.get(asked.table))
        return (
            asked.predicate is None
            or asked.predicate(record, receiver=asked.reader, auth=self._auth()) is True
        )

    def _is_visible(self, asked: Asked, version: Mapping[str, Any]) -> bool:
        return is_visible(version, asked.reader, self._auth(), self._local.tables.get(asked.table))

    def _auth(self) -> Mapping[str, str]:
        return {} if self.claims is None else self.claims.auth

    # -- from the cloud

    def _ask(self, query: _Query) -> Sequence[Effect]:
        asked = query.asked

        def what() -> dict[str, Any]:
            table = self._local.tables.get(asked.table)
            return {
                "op": "read", "name": asked.table, "table": None if table is None else table.number,
                "predicate": to_json(asked.predicate), "keys": query.keys, "reader": asked.reader,
                "aggregate": None if query.aggregates is None else query.aggregates.text,
                "latest": query.latest, "seen": self._local.seen(asked.table),
            }  # fmt: skip

        return self._connection.ask(what, lambda last, parts: self._came(query, last, parts))

    def _came(
        self, query: _Query, last: Mapping[str, Any], parts: Mapping[Any, Mapping[str, Any]]
    ) -> Sequence[Effect]:
        """Take the answer of the cloud."""
        now_us, asked, name = last["now_us"], query.asked, query.asked.table
        if "error" in last:
            return [Complete(query.op_id, error=from_json(last["error"])), *self._over(now_us, query)]
        table = self._local.learn(last["table"])
        wanted = last["places"]
        seen = self._local.seen(name)
        if any(place not in parts or parts[place]["lsn"] < seen.get(str(place), 0) for place in wanted):
            return self._ask(query)  # a part was lost on the way, or something newer was seen meanwhile
        for place in wanted:
            self._local.see(name, place, parts[place]["lsn"])
        if query.aggregates is not None:
            result = query.aggregates.result(
                query.aggregates.combine([tuple(parts[p]["state"]) for p in wanted])
            )
            return (Complete(query.op_id, ReadResult(aggregates=result)),)  # never committed_wio
        came = {row["key"]: row for place in wanted for row in parts[place]["rows"]}
        for row in list(self._local.rows(name)):
            if row["key"] in came or table.partition_of(row["key"]) not in wanted:
                continue
            if row["data"] is None or self._matches(asked, row):
                self._local.let_go(name, row["key"])  # it is gone, hidden, or matches no more
        losses = self._local.losses[name]
        for row in came.values():
            self._local.hold(name, row, now_us)
        self._answered = [each for each in self._answered if each.asked != asked][-_KEPT_QUERIES:]
        self._answered.append(_Complete(asked, now_us, dict(self.context), losses))
        versions: dict[str, Mapping[str, Any]] = dict(came)
        if asked.type == "uncommitted":
            for key in self._local.pending_keys(name):
                pending = self._local.pending(name, key)[-1]
                named = query.keys is not None and key in query.keys
                versions.pop(key, None)
                if (named and pending["data"] is None) or (
                    pending["data"] is not None and self._matches(asked, pending)
                ):
                    versions[key] = pending
        return self._complete(now_us, query, versions, set(came))

    def _complete(
        self, now_us: int, query: _Query, versions: Mapping[str, Mapping[str, Any]], remote: set[str]
    ) -> Sequence[Effect]:
        """Answer with versions, and write down which."""
        effects: list[Effect] = []
        result = ReadResult()
        table = self._local.tables.get(query.asked.table)
        for key, version in sorted(versions.items()):
            is_pending = "number" in version
            effects.append(Record("operations", {
                "op_id": query.op_id, "key": key, "version": None if is_pending else version["ver"],
                "value_hash": value_hash(version["data"]),
            }))  # fmt: skip
            if version["data"] is None:
                continue
            result.records[key] = version["data"] if table is None else table.seen(version["data"])
            result.versions[key] = None if is_pending else version["ver"]
            result.source[key] = "remote" if key in remote and not is_pending else "local"
            result.age_s[key] = 0.0 if is_pending else (now_us - version.get("held_us", now_us)) / 1e6
        return [*effects, Complete(query.op_id, result), *self._over(now_us, query)]

    def _over(self, now_us: int, query: _Query) -> Sequence[Effect]:
        """Let writes and reads go that waited for a read."""
        if self._in_order.pop(query.op_id, None) is None:
            return ()
        return [*self._go_on(now_us), *self.settled(now_us)]
