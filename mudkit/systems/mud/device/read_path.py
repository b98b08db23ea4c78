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

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.errors import MudkitError, ParameterError, PredicateError
from mudkit.events import Complete, Effect, Record, SetTimer, size_bytes
from mudkit.predicates import Aggregates
from mudkit.systems.mud import messages
from mudkit.systems.mud.device.cache import Cache, Held
from mudkit.systems.mud.device.connection import Answer, Connection, PendingAsk, Query, error_in
from mudkit.systems.mud.device.local import HeldRow, Local, Version
from mudkit.systems.mud.device.planning import Answerable, Planner
from mudkit.systems.mud.device.write_path import ReadOrder, WritePath
from mudkit.systems.mud.messages import PlacedPart, Read, ReadRequest, decode_error
from mudkit.systems.mud.policies.policies import Asked, Expected, PrefetchPolicy, ReadPolicy
from mudkit.systems.mud.policies.utility import Plan, freshness
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.queries import check_names, keys_of, only_key, tables_of
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import columns_of, detached
from mudkit.wire import Fields

__all__ = ["LOOK", "READ_TYPES", "Prefetching", "ReadPath", "asked_of"]


READ_TYPES: Final = ("uncommitted", "committed", "committed_wio")


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
    writes : WritePath
    order : ReadOrder
    """

    def __init__(
        self,
        local: Local,
        cache: Cache,
        planner: Planner,
        connection: Connection,
        policy: ReadPolicy | None,
        writes: WritePath,
        order: ReadOrder,
    ) -> None:
        self._local = local
        self._cache = cache
        self._planner = planner
        self._connection = connection
        self._policy = policy
        self._writes = writes
        self._order = order
        self.context: Fields = {}
        self._waiting: list[tuple[Query, deque[int]]] = []
        """Reads in order, each with the pending writes that it waits for."""

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
        query = Query(op_id, asked, keys_of(asked.predicate), read.latest, aggregates)
        if kind == "committed_wio":
            before = self._before(query)
            is_first = self._order.first(name) is None
            self._order.add(op_id, query)
            if before or not is_first:
                self._waiting.append((query, deque(before)))
                return self._writes.release(now_us, before)
        return self._answer(now_us, query)

    def _at_once(self, now_us: int, op_id: int, read: Read) -> Sequence[Effect]:
        """Answer the commonest read as :meth:`_answer` would: one record by its key, which anybody may see.

        Nothing but the record and the utility has a say in it; empty: something has.
        """
        predicate, name = read.predicate, read.table
        if self._policy is not None or read.latest or read.aggregate is not None or self._is_unverified():
            return ()
        key = None if predicate is None else only_key(predicate)
        row = None if key is None else self._local.row(name, key)
        if row is None or row.predicate is not None:
            return ()
        quality = Answerable((now_us - row.held_us) / 1e6, 1.0, 0.0)
        if self._planner.choose(now_us, name, read.utility, quality) != "local":
            return ()
        return self._completed(now_us, op_id, name, {row.key: row}, ())

    def fetch(self, now_us: int, asked: Asked) -> Sequence[Effect]:
        """Ask the cloud for what no caller waits for, so that it is held."""
        return self._ask(now_us, Query(None, asked, keys_of(asked.predicate), False, None))

    def refuse(self, now_us: int, error: MudkitError) -> Sequence[Effect]:
        """Answer the reads that wait for writes with an error: those wait for another token."""
        effects: list[Effect] = []
        while self._waiting:
            query, _ = self._waiting.pop()
            assert query.op_id is not None
            effects += [Complete(query.op_id, error=error), *self._over(now_us, query)]
        return effects

    def settled(self, now_us: int) -> Sequence[Effect]:
        """Continue reads that waited for writes, or for earlier reads in order, that are over now."""
        effects: list[Effect] = []
        while (query := self._next_in_order()) is not None:
            effects += self._answer(now_us, query)
        return effects

    def _next_in_order(self) -> Query | None:
        """Remove and return a read that need wait no longer."""
        for place, (query, before) in enumerate(self._waiting):
            while before and before[0] not in self._local.writes:
                before.popleft()
            if not before and self._order.first(query.asked.table) is query:
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

    def _before(self, query: Query) -> list[int]:
        """Return the pending writes on the partitions that a read concerns."""
        return [write.number for write in self._local.writes if self._order.concerns(query, write)]

    def _answer(self, now_us: int, query: Query) -> Sequence[Effect]:
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
            return self._ask(now_us, query)
        return self._complete(now_us, query, held.versions, ())

    def _held(self, now_us: int, query: Query) -> Held | None:
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

    def request(self, query: Query) -> ReadRequest:
        """Build the request of a read, as of now."""
        asked = query.asked
        return ReadRequest(
            name=asked.table,
            table=self._local.number_of(asked.table),
            predicate=SentPredicate.of(asked.predicate),
            keys=query.keys,
            reader=asked.reader,
            aggregate=None if query.aggregates is None else query.aggregates.text,
            latest=query.latest,
            seen=self._local.seen(asked.table),
        )

    def _ask(self, now_us: int, query: Query) -> Sequence[Effect]:
        return self._connection.ask(now_us, query, self.request(query))

    def answered(self, now_us: int, query: Query, ask: PendingAsk, last: Answer) -> Sequence[Effect]:
        """Process the answer of the cloud."""
        error = error_in(last)
        if error is not None:
            problem = decode_error(error)
            failed = [] if query.op_id is None else [Complete(query.op_id, error=problem)]
            return [*failed, *self._over(now_us, query)]
        assert isinstance(last, messages.Complete)
        asked, name = query.asked, query.asked.table
        table = self._local.learn(last.table)
        if table.number != last.table.number:
            return self._ask(now_us, query)  # it is of a table that was dropped since
        seen = self._local.seen(name)
        places = {place for place in last.places if isinstance(place, int)}
        parts = [ask.parts[place] for place in last.places if isinstance(place, int) and place in ask.parts]
        if len(parts) < len(places) or any(part.lsn < seen.get(str(part.place), 0) for part in parts):
            return self._ask(
                now_us, query
            )  # a part was lost on the way, or something newer was seen meanwhile
        if query.aggregates is not None:
            return self._aggregated(now_us, query, query.aggregates, parts)
        self._see(name, table.number, parts)
        rows = [row for part in parts if part.rows is not UNSET for row in part.rows]
        versions: dict[str, Version] = {row.key: HeldRow.of(row, table.number, now_us) for row in rows}
        for row in list(self._local.rows(name)):
            if row.key in versions or table.partition_of(row.key) not in places:
                continue
            if row.data is None or self._cache.may_match(asked, row):
                self._local.let_go(name, row.key)  # it is gone, hidden, or matches no more
        losses = self._local.losses[name].copy()  # of those that come, some may have to go again
        known: dict[str, int] = {}
        for key, version in versions.items():
            assert isinstance(version, HeldRow)
            self._local.hold(name, version)
            known[key] = version.ver
        compared = self._cache.note(now_us, asked, self.context, known, losses)
        if compared is not None:
            self._planner.compared(name, compared[0], has_changed=compared[1])
        self._planner.answered(name, sum(size_bytes(part) for part in ask.parts.values()) / 1000)
        if asked.type == "uncommitted":
            try:
                self._put_pending(query, versions)
            except PredicateError as problem:
                return () if query.op_id is None else (Complete(query.op_id, error=problem),)
        return self._complete(now_us, query, versions, known)

    def _see(self, name: str, table: int, parts: Sequence[PlacedPart]) -> None:
        for part in parts:
            self._local.see(name, table, part.place, part.lsn)

    def _aggregated(
        self, now_us: int, query: Query, aggregates: Aggregates, parts: Sequence[PlacedPart]
    ) -> Sequence[Effect]:
        """Answer a read of aggregates, which is never committed_wio."""
        states = [part.state for part in parts if part.state is not UNSET]
        if not all(aggregates.is_state(state) for state in states):
            return self._ask(now_us, query)
        table = self._local.tables[query.asked.table]
        self._see(query.asked.table, table.number, parts)
        assert query.op_id is not None
        result = aggregates.result(aggregates.combine([tuple(state) for state in states]))
        return (Complete(query.op_id, ReadResult(aggregates=result)),)

    def _put_pending(self, query: Query, versions: dict[str, Version]) -> None:
        """Replace versions that the cloud has sent by pending ones.

        Raises
        ------
        PredicateError
            The predicate fails on one of them, which the cloud has not seen.
        """
        name = query.asked.table
        for key in self._local.pending_keys(name):
            pending = self._local.latest(name, key)
            assert pending is not None
            is_named = query.keys is not None and key in query.keys
            versions.pop(key, None)
            if self._cache.matches(query.asked, pending, is_named=is_named):
                versions[key] = pending

    def _complete(
        self, now_us: int, query: Query, versions: Mapping[str, Version], remote: Collection[str]
    ) -> Sequence[Effect]:
        """Answer with versions, and continue what waited for the read."""
        if query.op_id is None:
            return ()
        effects = self._completed(now_us, query.op_id, query.asked.table, versions, remote)
        return [*effects, *self._over(now_us, query)]

    def _completed(
        self, now_us: int, op_id: int, name: str, versions: Mapping[str, Version], remote: Collection[str]
    ) -> Sequence[Effect]:
        """Answer with versions, and record which."""
        effects: list[Effect] = []
        result = ReadResult()
        table, hash_of = self._local.tables.get(name), self._local.hash_of
        for key in sorted(versions):
            version = versions[key]
            data, number, held_us = version.data, None, now_us
            if isinstance(version, HeldRow):
                number, held_us = version.ver, version.held_us
            row = {"op_id": op_id, "key": key, "version": number, "value_hash": hash_of(name, key, data)}
            effects.append(Record("operations", row))
            if data is None:
                continue
            is_whole = table is None or not table.removed
            result.records[key] = detached(data if is_whole else columns_of(version, table))
            result.versions[key] = number
            result.source[key] = "remote" if key in remote and number is not None else "local"
            result.age_s[key] = (now_us - held_us) / 1e6
        effects.append(Complete(op_id, result))
        return effects

    def _over(self, now_us: int, query: Query) -> Sequence[Effect]:
        """Continue the writes and reads that waited for a read."""
        if query.op_id is None or not self._order.remove(query.op_id):
            return ()
        return [*self._writes.unblocked(now_us), *self.settled(now_us)]


LOOK: Final = "look"
_KEPT: Final = 64


@dataclass
class _Habit:
    asked: Asked
    times: int
    first_us: int
    last_us: int


class Prefetching:
    """The prefetching of one client.

    Parameters
    ----------
    cache : Cache
    planner : Planner
    policy : PrefetchPolicy
    reads : ReadPath
    """

    def __init__(
        self,
        cache: Cache,
        planner: Planner,
        policy: PrefetchPolicy,
        reads: ReadPath,
    ) -> None:
        self._cache = cache
        self._planner = planner
        self._policy = policy
        self._reads = reads
        self._habits: list[_Habit] = []
        """The one asked for last stands last."""

    def asked(self, now_us: int, asked: Asked) -> None:
        """Take note of a read."""
        first = _Habit(asked, 0, now_us, now_us)
        habit = next((each for each in self._habits if each.asked == asked), first)
        habit.times, habit.last_us = habit.times + 1, now_us
        self._habits = [*(each for each in self._habits if each is not habit), habit][-_KEPT:]

    def look(self, now_us: int, context: Fields) -> Sequence[Effect]:
        """Fetch what the policy picks, and look again later."""
        if self._planner.remote(now_us, "").source != "remote":
            return ()  # the link wakes it
        expected = [self._expected(now_us, habit) for habit in self._habits if habit.times > 1]
        effects: list[Effect] = []
        for asked in self._policy.wanted(expected, context):
            effects += self._reads.fetch(now_us, asked)
        return [*effects, SetTimer(LOOK, round(self._policy.every_s * 1e6))]

    def _expected(self, now_us: int, habit: _Habit) -> Expected:
        """Say when a read is expected again, and what it would be worth to have its answer then."""
        asked = habit.asked
        gap_us = (habit.last_us - habit.first_us) / (habit.times - 1)
        due_us = max(habit.last_us + gap_us - now_us, 0.0)
        then_us = now_us + round(due_us)
        held = self._cache.find(then_us, asked, keys_of(asked.predicate), latest=False)
        utility = asked.utility if asked.utility is not None else freshness(0.0)
        plans = self._planner.plans(now_us, asked.table, utility, None if held is None else held.quality)
        changed = self._planner.changed_share(asked.table, due_us / 1e6)
        fetched = Plan("local", due_us / 1e6, 0.0, changed_share=changed)
        without = max(utility.value(plan) - utility.cost(plan) for plan in plans)
        # Nobody waits for what is fetched: it costs what it takes, but no time.
        cost = utility.cost(replace(self._planner.remote(now_us, asked.table), latency_s=0.0))
        # It may not come again after all: by Laplace's rule of succession it does with this probability.
        share = habit.times / (habit.times + 1)
        gain_s = share * (utility.value(fetched) - utility.cost(fetched) - without) - cost
        return Expected(asked, habit.times, due_us / 1e6, gain_s)
