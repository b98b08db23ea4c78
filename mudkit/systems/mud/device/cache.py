"""Cached answers of a client: which queries it can answer from its local store, and how well.

An answer is complete if all its keys are stored, or if an earlier answered query of the same reader, or the
query of a continuous read, contains it and nothing of that was evicted since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate
from mudkit.predicates.containment import contains, overlap, remainder
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.connection import CoveredQuery
from mudkit.systems.mud.device.followed import FollowedQueries, FollowedQuery
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite, Version
from mudkit.systems.mud.device.planning import Answerable
from mudkit.systems.mud.policies.policies import Cached
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.tables.queries import asks_for_keys_only, tables_of_sent
from mudkit.systems.mud.tables.replica import is_visible, record_of
from mudkit.wire import Fields

_MAX_QUERIES: Final = 64
_PENDING_AGE_US: Final = -1


class CachedAnswer(msgspec.Struct, frozen=True):
    """Answer from the local store: versions by key, and how old and complete they are."""

    versions: dict[str, Version]
    quality: Answerable

    @property
    def is_pending(self) -> bool:
        """True if all keys that can match have pending writes: nothing is newer."""
        return self.quality.age_s < 0.0


@dataclass(frozen=True)
class _AnsweredQuery:
    """Query that the cloud has answered completely: when, in which context, and with which versions."""

    query: Query
    at_us: int
    context: Fields
    versions: Mapping[str, int]
    """Versions in the answer, by key."""
    losses: Counter[int]
    """Number of evicted records of each partition at that time."""


class Cache:
    """Queries that the cloud has answered, by which answers from the local store are judged."""

    def __init__(self, local: Local, access: Access, followed: FollowedQueries) -> None:
        self._local = local
        self._access = access
        self._followed = followed
        self._answered: list[_AnsweredQuery] = []

    def record_answer(
        self,
        now_us: int,
        query: Query,
        context: Fields,
        versions: Mapping[str, int],
        losses: Counter[int],
    ) -> tuple[float, bool] | None:
        """Record a complete answer of the cloud.

        Return the age of the previous answer in seconds, and whether it was different; None: there was none.
        """
        before = next((earlier for earlier in self._answered if earlier.query == query), None)
        others = [earlier for earlier in self._answered if earlier is not before]
        answered = _AnsweredQuery(query, now_us, dict(context), versions, losses)
        self._answered = [*others[-(_MAX_QUERIES - 1) :], answered]
        return None if before is None else ((now_us - before.at_us) / 1e6, before.versions != versions)

    @property
    def size(self) -> int:
        """Number of answered queries that are remembered."""
        return len(self._answered)

    def cached_answers(self, now_us: int, context: Fields) -> list[Cached]:
        """Return the answered queries as policies see them, the oldest first.

        Those of continuous reads come last. They are answered in the present ``context``.
        """
        return [
            Cached(answer.query, (now_us - answer.at_us) / 1e6, answer.context, len(answer.versions))
            for answer in self._answered
        ] + [
            Cached(
                followed.query,
                (now_us - followed.current_us(now_us)) / 1e6,
                dict(context),
                len(followed.delivered),
            )
            for followed in self._followed.answered_queries()
        ]

    def find_answer(
        self, now_us: int, query: Query, keys: list[str] | None, *, only_pending: bool
    ) -> CachedAnswer | None:
        """Return the answer from the local store; None: the predicate fails on a record.

        ``keys`` are the only keys that can match. A record is missing if only the cloud can evaluate its
        writer predicate. With ``only_pending``, committed versions do not count.
        """
        candidates = self._find_candidates(query, keys)
        if only_pending:
            candidates = {
                key: version
                for key, version in candidates.items()
                if isinstance(version, PendingWrite) and self._is_latest(query.table, version)
            }
        missing = [key for key, version in candidates.items() if _needs_cloud(version)]
        for key in missing:
            del candidates[key]
        is_named = keys is not None
        is_all = is_named and asks_for_keys_only(query.predicate)
        try:
            matches = self.matcher(query, is_named=is_named, is_all=is_all)
            versions = {key: version for key, version in candidates.items() if matches(version)}
        except PredicateError:
            return None
        age_s, completeness, bias = _PENDING_AGE_US / 1e6, 1.0, 0.0
        # Named keys that no longer match count, too: this knowledge is as old as they are.
        relevant = versions if keys is None else candidates
        if keys is None or len(candidates) < len(keys):
            age_s, completeness, bias = self._quality(now_us, query, keys, relevant)
            if only_pending:
                completeness, bias = 0.0, 0.0  # other clients may have written since
            elif missing:
                completeness *= len(candidates) / (len(candidates) + len(missing))
        for version in relevant.values():
            if isinstance(version, PendingWrite) and self._is_latest(query.table, version):
                continue
            base = version if isinstance(version, HeldRow) else version.base
            # Nothing is known of a record that pending changes are to create: another client may have.
            age_s = max(age_s, now_us / 1e6 if base is None else self.age_s(now_us, query.table, base))
        return CachedAnswer(versions, Answerable(age_s, completeness, bias))

    def _is_latest(self, name: str, write: PendingWrite) -> bool:
        """Return whether a pending version depends on no committed one, so that nothing is newer than it.

        It replaces the record as a whole, or changes what another pending write replaces.
        """
        return write.changes is None or self._local.is_replaced(name, write.key)

    def age_s(self, now_us: int, name: str, row: HeldRow) -> float:
        """Return the time since a held version was last known to be that of the cloud, in seconds."""
        return (now_us - self._followed.current_us(now_us, name, row)) / 1e6

    def _find_candidates(self, query: Query, keys: list[str] | None) -> dict[str, Version]:
        """Return the versions of some keys (None: the whole table) that the device has and that may match.

        They are the latest ones for an uncommitted query, else the committed ones.
        """
        name, local = query.table, self._local
        is_latest = query.type == "uncommitted"
        candidates = [row.key for row in local.rows(name)] if keys is None else keys
        if keys is None and is_latest:
            candidates = [*candidates, *local.pending_keys(name)]
        versions: dict[str, Version] = {}
        for key in candidates:
            version = local.latest_version(name, key) if is_latest else local.held_row(name, key)
            if version is not None:
                versions[key] = version
        return versions

    def _quality(
        self, now_us: int, query: Query, keys: list[str] | None, known_keys: Iterable[str]
    ) -> tuple[float, float, float]:
        """Return age in s, completeness and bias (0 to 1) of a local answer without some keys.

        It is judged by the earlier answer that contains the query and has lost least since; without one, and
        without ``keys``, all are 0.
        """
        kept = self._count_by_partition(query.table, known_keys)
        containing = [
            *(
                (self._count_lost(answer), answer.at_us)
                for answer in self._answered
                if self._contains_query(answer.query, query)
            ),
            *(
                (self._count_missing(followed), at_us)
                for followed in self._followed.answered_queries(query.table)
                if self._contains_query(followed.query, query)
                for at_us in [followed.current_us(now_us)]
            ),
        ]
        best = max(containing, key=lambda answer: (-answer[0].total(), answer[1]), default=None)
        if best is not None:
            lost, age_s = best[0], (now_us - best[1]) / 1e6
        elif keys is not None:
            lost, age_s = self._count_by_partition(query.table, set(keys) - set(known_keys)), 0.0
        else:
            return 0.0, 0.0, 0.0
        missing = lost.total()
        if not missing:
            return age_s, 1.0, 0.0
        shares = [kept[number] / (kept[number] + lost[number]) for number in kept.keys() | lost.keys()]
        return age_s, kept.total() / (kept.total() + missing), max(shares) - min(shares)

    def find_covered(self, now_us: int, query: Query) -> tuple[CoveredQuery, float] | None:
        """Return the answered query that covers most of a query, and its share; None: none covers a part.

        Only answers count of which nothing was evicted since.
        """
        name = query.table
        if any(_needs_cloud(row) for row in self._local.rows(name)):
            return None
        known = [
            (answer.query, answer.at_us)
            for answer in self._answered
            if answer.query.table == name and not self._count_lost(answer)
        ] + [
            (followed.query, followed.current_us(now_us))
            for followed in self._followed.answered_queries(name)
            if not self._count_missing(followed)
        ]
        shares = [
            (overlap(query.predicate, by.predicate), at_us, by)
            for by, at_us in known
            if self._is_same_reader(by, query)
        ]
        share, at_us, by = max(shares, key=lambda one: one[:2], default=(0.0, 0, query))
        rest = remainder(query.predicate, by.predicate) if share else None
        if rest is None:
            return None
        losses = self._local.losses[name].copy()
        return CoveredQuery(by, at_us, replace(query, predicate=rest), losses), share

    def find_held(self, query: Query) -> dict[str, HeldRow] | None:
        """Return the held records that match a query; None: only the cloud can evaluate it."""
        try:
            matches = self.matcher(query)
            return {row.key: row for row in self._local.rows(query.table) if matches(row)}
        except PredicateError:
            return None

    def has_lost(self, covered: CoveredQuery) -> bool:
        """Return whether records may have been evicted since a part of a query was found covered."""
        return bool(self._local.losses[covered.by.table] - covered.losses)

    def _count_lost(self, answered: _AnsweredQuery) -> Counter[int]:
        """Count the records of a table that were evicted since a query was answered, by partition."""
        return self._local.losses[answered.query.table] - answered.losses

    def _count_missing(self, followed: FollowedQuery) -> Counter[int]:
        """Count the records that a local answer to a continuous read's query may lack, by partition.

        These are delivered ones that are not held, and lost ones of which the processors have yet to tell.
        """
        local, query, missing = self._local, followed.query, self._followed.missing_keys(followed)
        matches = self.matcher(query)

        def passed_lsn(partition: int) -> int:
            """Return the position up to which all changes of a partition were sent; 0: unknown."""
            return followed.stored.passed_lsn(partition, local.log_incarnation) or 0

        missing += [
            key
            for key, lost in local.lost.of_table(query.table)
            if lost.lsn > passed_lsn(lost.partition)
            and key not in followed.delivered
            and (lost.row is None or may_match(matches, lost.row))
        ]
        counts = self._count_by_partition(query.table, missing)
        for partition, lsn in local.lost.forgotten_lsns(query.table).items():
            counts[partition] += lsn > passed_lsn(partition)
        return +counts

    def _count_by_partition(self, name: str, keys: Iterable[str]) -> Counter[int]:
        """Count keys of a table by their partitions."""
        return Counter(self._local.partition_of(name, key) for key in keys)

    def _contains_query(self, larger: Query, smaller: Query) -> bool:
        """Return whether the answer to one query contains that to another, for the same reader."""
        return (
            larger.table == smaller.table
            and self._is_same_reader(larger, smaller)
            and contains(larger.predicate, smaller.predicate)
        )

    def _is_same_reader(self, one: Query, other: Query) -> bool:
        """Return whether the same records of a table are shown to the readers of two queries.

        Other data make no difference if the table has no writer predicates, and the queries do not name them.
        """
        if one.reader == other.reader:
            return True
        table = self._local.tables.get(one.table)
        return (
            table is not None
            and table.writer_predicates is False
            and not _names_reader(one.predicate)
            and not _names_reader(other.predicate)
        )

    def matcher(
        self, query: Query, *, is_named: bool = False, is_all: bool = False
    ) -> Callable[[Version], bool]:
        """Return a function that says whether a version matches a query and is visible to its reader.

        ``is_named``: its key is requested, so a deletion is an answer, too; ``is_all``: no other condition.
        The function is for versions of now: the table and the token may change.

        Raises
        ------
        PredicateError
            The reader's predicate, or the writer's of a committed version, cannot be evaluated here.
        """
        auth, table, reader = self._access.auth, self._local.tables.get(query.table), query.reader
        predicate = None if is_all else query.predicate
        holds = None if predicate is None else predicate.evaluator(receiver=reader, auth=auth)

        def matches(version: Version) -> bool:
            """Return whether a version matches and is visible."""
            writer = version.predicate
            if writer is not None:
                if _needs_cloud(version):
                    text = "Only the cloud can evaluate this writer predicate."
                    raise PredicateError(text, text=writer.text)
                if not is_visible(version, reader, auth, table):
                    return False
            if version.data is None:
                return is_named
            return holds is None or holds(record_of(version, table)) is True

        return matches


def may_match(matches: Callable[[Version], bool], row: HeldRow) -> bool:
    """Return whether a committed version may have been in an earlier answer of the cloud.

    ``matches`` is that of :meth:`Cache.matcher` for its query.
    """
    try:
        return matches(row)
    except PredicateError:
        return True


def _needs_cloud(version: Version) -> bool:
    """Return whether only the cloud can evaluate the writer predicate of a committed version."""
    return isinstance(version, HeldRow) and bool(tables_of_sent(version.predicate))


def _names_reader(predicate: Predicate | None) -> bool:
    """Return whether a predicate names data of the reader."""
    return predicate is not None and any(scope == "receiver" for scope, _ in predicate.form.names)
