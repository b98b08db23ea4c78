"""Reads of a client: from the local store where the rules allow it, else from the cloud; and prefetching.

Rules (Mobius 4.2, table 3), for each key that matches; R is the latest version on the device, R_base the
latest committed one:

==============  ==========================  ============================================================
type            local                       remote
==============  ==========================  ============================================================
uncommitted     R, if it is fresh           committed versions of the partitions, below pending ones
committed       R_base, if it is fresh      committed versions of the partitions
committed_wio   R_base, if it is fresh      the same, after all earlier writes and reads of this type of
                and R = R_base              this client there
==============  ==========================  ============================================================

An uncommitted read of keys that all have pending writes is answered at once: nothing is newer. Freshness is
decided by a policy, or else by the read's utility (:mod:`~mudkit.systems.mud.device.cache`,
:mod:`~mudkit.systems.mud.device.planning`). Of a query that an earlier answer covers in part, the rest may be
requested alone. An answer that is older than what this client has seen of a partition is requested again.
Without a network a read is answered with what the device holds, as far as these rules allow it, and the
result says whether records may be missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.errors import MudkitError, NoNetwork, ParameterError, PredicateError
from mudkit.events import Complete, Effect, Record, SetTimer, size_bytes
from mudkit.predicates import Aggregates
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.cache import Cache, CachedAnswer, may_match
from mudkit.systems.mud.device.connection import (
    Answer,
    Connection,
    PendingAsk,
    PendingRead,
    ReadAnswer,
    error_in,
)
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite, Version
from mudkit.systems.mud.device.planning import Answerable, Planner
from mudkit.systems.mud.device.read_order import ReadOrder
from mudkit.systems.mud.device.results import Origin, complete_read
from mudkit.systems.mud.device.write_path import cancelled_error
from mudkit.systems.mud.device.write_requests import WriteRequests
from mudkit.systems.mud.messages.parts import decode_error
from mudkit.systems.mud.messages.requests import Part, PartsComplete, ReadRequest
from mudkit.systems.mud.operations import Read
from mudkit.systems.mud.policies.policies import Expected, PrefetchPolicy, ReadPolicy, check_decision
from mudkit.systems.mud.policies.utility import InContext, Plan, Query, Utility, freshness
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.queries import (
    check_names,
    key_of_point_query,
    keys_of,
    tables_of,
    tables_of_sent,
)
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import columns_of, copy_record
from mudkit.systems.mud.tables.selection import Place, Selection
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields

OFFLINE: Final = "offline"
_CHANGE_US: Final = 1_000_000
"""Time for a change to another network."""
READ_TYPES: Final = ("uncommitted", "committed", "committed_wio")


def query_of(read: Read) -> Query:
    """Return what policies see of a read: its query."""
    return Query(read.table, read.predicate, read.type, dict(read.reader), read.utility)


class _Cut(NamedTuple):
    """Order of a part of an answer that a limit has cut, and the place of its last record."""

    selection: Selection
    last: Place


def _precedes(row: HeldRow, table: Table, cut: _Cut) -> bool:
    """Return whether a held record would be in a part that a limit has cut, if it still matched."""
    return row.data is not None and cut.selection.place_of(row.key, columns_of(row, table)) < cut.last


def check_options(read: Read) -> None:
    """Raise ParameterError for options of a read that exclude each other."""
    if read.aggregate is not None and read.selection is not None:
        raise selected_aggregates_error()


def selected_aggregates_error() -> ParameterError:
    """Build the error for aggregates of a selection."""
    return ParameterError(
        "Aggregates are of all records, not of a selection.",
        where="aggregate",
        found="columns, order or limit beside it",
        expected="one of both",
        remedy="leave columns, order and limit out",
    )


class ReadPath:
    """Reads of one client: decides where each is answered, and processes the answers of the cloud."""

    def __init__(
        self,
        local: Local,
        cache: Cache,
        planner: Planner,
        connection: Connection,
        access: Access,
        policy: ReadPolicy | None,
        requests: WriteRequests,
        order: ReadOrder,
    ) -> None:
        self._local = local
        self._cache = cache
        self._planner = planner
        self._connection = connection
        self._access = access
        self._policy = policy
        self._requests = requests
        self._order = order
        self.context: Fields = {}
        self._waiting: list[tuple[PendingRead, deque[int]]] = []
        """Reads in order, each with the pending writes that precede it."""

    def read(self, now_us: int, op_id: int, read: Read) -> Sequence[Effect]:
        """Answer a read from the local store, request it, or let it wait for earlier writes and reads.

        Raise MudkitError, without effect, for unusable options or a token known to be refused.
        """
        if at_once := self._answer_at_once(now_us, op_id, read):
            return at_once
        name, kind = read.table, read.type
        aggregates = None if read.aggregate is None else Aggregates(read.aggregate)
        check_options(read)
        if aggregates is not None and kind != "committed":
            raise ParameterError(
                "Aggregates need a committed read.", where="type", found=kind, expected="committed"
            )
        self._access.check_table_access(now_us, name)
        query = query_of(read)
        if kind == "uncommitted" and tables_of(query.predicate):
            raise ParameterError(
                "An uncommitted read cannot look up records: the cloud does not know pending writes.",
                where="type",
                found=kind,
                expected=", ".join(READ_TYPES[1:]),
            )
        keys, selection = keys_of(query.predicate), read.selection
        if selection is not None and (table := self._local.tables.get(name)) is not None:
            selection.check_columns(table)
        pending = PendingRead(op_id, query, keys, read.latest, aggregates, read.offline, selection=selection)
        if kind == "committed_wio":
            before = self._earlier_writes(pending)
            is_first = self._order.oldest_read(name) is None
            self._order.add(op_id, pending)
            if before or not is_first:
                if read.offline == "fail" and not self._connection.is_up:
                    return self._fail_offline(now_us, pending)
                self._waiting.append((pending, deque(before)))
                return self._requests.release(now_us, before)
        return self._answer(now_us, pending)

    def _answer_at_once(self, now_us: int, op_id: int, read: Read) -> Sequence[Effect]:
        """Answer the most frequent read as :meth:`_answer` would: one record by its key, visible to all.

        Only the record and the utility decide it; empty: this is another read, or the answer is not local.
        Raise MudkitError for a token known to be refused.
        """
        predicate, name = read.predicate, read.table
        if (
            read.type != "committed"
            or self._policy is not None
            or read.latest
            or read.aggregate is not None
            or read.selection is not None
        ):
            return ()
        key = None if predicate is None else key_of_point_query(predicate)
        row = None if key is None else self._local.held_row(name, key)
        if row is None or row.predicate is not None or not self._access.is_verified:
            return ()
        self._access.check_table_access(now_us, name)
        key, data, utility, age_s = row.key, row.data, read.utility, self._cache.age_s(now_us, name, row)
        if utility is None or not utility.is_best(age_s):
            quality = Answerable(age_s, 1.0, 0.0)
            seen = self.utility_in_context(now_us, query_of(read))
            if self._planner.choose_source(now_us, name, seen, quality) != "local":
                return ()
        hashed = self._local.hash_of(name, key, data)
        described = {"op_id": op_id, "key": key, "version": row.ver, "value_hash": hashed}
        if data is None:
            result = ReadResult()
        else:
            table = self._local.tables.get(name)
            columns = data if table is None or not table.removed else columns_of(row, table)
            result = ReadResult({key: copy_record(columns)}, {key: "local"}, {key: age_s}, {key: row.ver})
        return Record("operations", described), Complete(op_id, result)

    def fetch(self, now_us: int, query: Query) -> Sequence[Effect]:
        """Request the answer to a query that no caller waits for, so that it is cached."""
        return self._request_answer(now_us, PendingRead(None, query, keys_of(query.predicate), False, None))

    def read_for(
        self,
        now_us: int,
        query: Query,
        read: Read,
        then: Callable[[int, ReadAnswer | Exception], Sequence[Effect]],
    ) -> Sequence[Effect]:
        """Answer a query, as a read would be, to a function in place of a caller."""
        try:
            self._access.check_table_access(now_us, query.table)
        except MudkitError as error:
            return then(now_us, error)
        keys = keys_of(query.predicate)
        pending = PendingRead(None, query, keys, read.latest, None, read.offline, then=then)
        return self._answer(now_us, pending)

    def complete_joined(
        self,
        now_us: int,
        op_id: int,
        read: Read,
        versions: Mapping[str, Version],
        remote: Collection[str],
        *,
        is_complete: bool,
    ) -> Sequence[Effect]:
        """Complete a read with versions that were chosen on the device."""
        return self._build_results(
            now_us, op_id, read.table, versions, remote, read.selection, is_complete=is_complete
        )

    def refuse_waiting(self, now_us: int, error: MudkitError) -> Sequence[Effect]:
        """Complete the reads that wait for writes with an error: those writes wait for another token."""
        effects: list[Effect] = []
        while self._waiting:
            pending, _ = self._waiting.pop()
            assert pending.op_id is not None
            effects += [Complete(pending.op_id, error=error), *self._resume_waiting(now_us, pending)]
        return effects

    def answer_unblocked(self, now_us: int) -> Sequence[Effect]:
        """Answer the reads whose earlier writes and reads are all completed by now."""
        effects: list[Effect] = []
        while (pending := self._take_next_in_order()) is not None:
            effects += self._answer(now_us, pending)
        return effects

    def _take_next_in_order(self) -> PendingRead | None:
        """Remove and return a read whose earlier writes and reads are completed; None: there is no such."""
        for index, (pending, before) in enumerate(self._waiting):
            while before and before[0] not in self._local.writes:
                before.popleft()
            if not before and self._order.oldest_read(pending.query.table) is pending:
                del self._waiting[index]
                return pending
        return None

    def _earlier_writes(self, pending: PendingRead) -> list[int]:
        """Return the pending writes on the partitions that a read concerns."""
        return [write.seq for write in self._local.writes if self._order.concerns(pending, write)]

    def _answer(self, now_us: int, pending: PendingRead) -> Sequence[Effect]:
        """Answer a read from the local store, or request it, as the policy or else the utility decides.

        Without a policy's decision the utility decides; what the store cannot answer is requested in any
        case. Pending writes alone are the latest version, whatever a policy says. Without a network the
        read's ``offline`` decides about what would be requested. If the policy or the utility fails, so does
        the read: nothing waits for it any more.
        """
        cached = self._find_local(now_us, pending)
        if cached is not None and cached.is_pending:
            return self._complete_locally(now_us, pending, cached)
        try:
            decided, pending = self._decide(now_us, pending, cached)
        except Exception as error:
            return self._fail(now_us, pending, error)
        if decided == "local" and cached is not None:
            return self._complete_locally(now_us, pending, cached)
        if self._connection.is_up or pending.offline == "wait":
            return self._request_answer(now_us, pending)
        if pending.offline == "fail":
            return self._fail_offline(now_us, pending)
        if cached is None:
            return self._request_answer(now_us, pending)  # only the cloud can answer it
        return self._complete_locally(now_us, pending, cached)

    def _decide(
        self, now_us: int, pending: PendingRead, cached: CachedAnswer | None
    ) -> tuple[str, PendingRead]:
        """Return whether a read is ``local`` or ``remote``, by the policy if it decides, else by the utility.

        The read is returned, too: if it is to be remote by the utility, with what an answer on the device
        covers.
        """
        query = pending.query
        decided: str | None = None
        if self._policy is not None:
            context = {**self.context, "now_us": now_us}
            cached_answers = self._cache.cached_answers(now_us, self.context)
            decided = check_decision(self._policy, self._policy.decide(query, context, cached_answers))
        if decided is None:
            quality = None if cached is None else cached.quality
            seen = self.utility_in_context(now_us, query)
            decided = self._planner.choose_source(now_us, query.table, seen, quality)
            if decided == "remote":
                pending = self._find_covered(now_us, pending)
        return decided, pending

    def _find_covered(self, now_us: int, pending: PendingRead) -> PendingRead:
        """Return a read with what an answer on the device covers of it, if it pays to request the rest alone.

        Without a utility, nothing on the device is fresh.
        """
        query = pending.query
        if query.utility is None or pending.keys is not None or pending.selection is not None:
            return pending
        if not self._may_be_local(pending):
            return pending
        best = self._cache.find_covered(now_us, query)
        if best is None:
            return pending
        covered, share = best
        age_s = (now_us - covered.at_us) / 1e6
        seen = self.utility_in_context(now_us, query)
        assert seen is not None
        if not self._planner.prefers_rest(now_us, query.table, seen, age_s, share):
            return pending
        return replace(pending, covered=covered)

    def utility_in_context(self, now_us: int, query: Query) -> Utility | None:
        """Return the utility of a query, bound to the query and the context of now; None: it has none."""
        if query.utility is None:
            return None
        context = {**self.context, "now_us": now_us, "network": self._planner.network_now()}
        return InContext(query.utility, query, context)

    def _complete_locally(self, now_us: int, pending: PendingRead, cached: CachedAnswer) -> Sequence[Effect]:
        """Complete a read with an answer from the local store."""
        is_complete = cached.quality.completeness == 1.0
        return self._complete(now_us, pending, cached.versions, (), is_complete=is_complete)

    def _fail_offline(self, now_us: int, pending: PendingRead) -> Sequence[Effect]:
        """Complete a read, which is not to wait for a network, with an error."""
        error = NoNetwork(
            "The device has no network, and this read is not to wait for one.",
            where=f"table {pending.query.table!r}",
            found="offline='fail'",
            expected="a network, or an answer on the device that the read's policy or utility accepts",
            remedy="read with offline='answer' for what the device holds, or with a utility: freshness(600)",
        )
        return self._fail(now_us, pending, error)

    def _fail(self, now_us: int, pending: PendingRead, error: Exception) -> Sequence[Effect]:
        """Complete a read with an error, or pass it to the read's function ``then``.

        What waited for the read continues. A prefetch has neither caller nor function: no effect.
        """
        if pending.then is not None:
            return pending.then(now_us, error)
        failed = [] if pending.op_id is None else [Complete(pending.op_id, error=error)]
        return [*failed, *self._resume_waiting(now_us, pending)]

    def await_network(self) -> Sequence[Effect]:
        """Set the timer that ends reads without a network, if any does not wait for one.

        Until then another network may take the place of the lost one.
        """
        is_any = any(pending.offline != "wait" for _, pending in self._connection.pending_reads())
        return (SetTimer(OFFLINE, _CHANGE_US),) if is_any else ()

    def end_offline(self, now_us: int) -> Sequence[Effect]:
        """Answer or fail the reads that wait for the cloud, as they want it, if there is still no network."""
        if self._connection.is_up:
            return ()
        effects: list[Effect] = []
        for ask, pending in self._connection.pending_reads():
            if pending.offline == "wait" or not self._connection.is_unanswered(ask.identity):
                continue
            cached = self._find_local(now_us, pending)
            if pending.offline == "answer" and cached is None:
                continue
            effects += self._connection.settle_request(now_us, ask)
            if pending.offline == "fail" or cached is None:
                effects += self._fail_offline(now_us, pending)
            else:
                effects += self._complete_locally(now_us, pending, cached)
        return effects

    def cancel(self, now_us: int, op_id: int) -> Sequence[Effect]:
        """Complete the read of a call with OperationCancelled; empty: none of this call waits."""
        for ask, pending in self._connection.pending_reads():
            if pending.op_id == op_id:
                settled = self._connection.settle_request(now_us, ask)
                return [
                    *settled,
                    *self._fail(now_us, pending, cancelled_error(f"table {pending.query.table!r}")),
                ]
        for index, (pending, _) in enumerate(self._waiting):
            if pending.op_id == op_id:
                del self._waiting[index]
                return self._fail(now_us, pending, cancelled_error(f"table {pending.query.table!r}"))
        return ()

    def _may_be_local(self, pending: PendingRead) -> bool:
        """Return whether a read may be answered from the local store."""
        query = pending.query
        is_uncommitted = query.type == "uncommitted"
        return (
            pending.aggregates is None
            and (is_uncommitted or (self._access.is_verified and not pending.latest))
            and self._has_columns(query)  # the table may have an unknown column by now
            and not tables_of(query.predicate)  # only the cloud has the joined records
        )

    def _find_local(self, now_us: int, pending: PendingRead) -> CachedAnswer | None:
        """Return the local answer; None: it is not allowed or not possible."""
        if not self._may_be_local(pending):
            return None
        only_pending = pending.latest or not self._access.is_verified
        cached = self._cache.find_answer(now_us, pending.query, pending.keys, only_pending=only_pending)
        return None if cached is None or (pending.latest and cached.quality.completeness < 1.0) else cached

    def _has_columns(self, query: Query) -> bool:
        """Return whether a table, as known here, has the columns that a read names."""
        table = self._local.tables.get(query.table)
        if table is not None and table.schema is not None:
            try:
                check_names(table, query.predicate)
            except PredicateError:
                return False
        return True

    # -- from the cloud

    def build_request(self, pending: PendingRead) -> ReadRequest:
        """Build the request of a read as of now, or of what remains of a covered one."""
        query = pending.query if pending.covered is None else pending.covered.rest
        return ReadRequest(
            name=query.table,
            table=self._local.table_number_of(query.table),
            predicate=SentPredicate.of(query.predicate),
            keys=pending.keys,
            reader=query.reader,
            aggregate=None if pending.aggregates is None else pending.aggregates.text,
            latest=pending.latest,
            seen_lsns=self._local.seen_lsns(query.table),
            selection=self._selection_to_request(pending),
        )

    def _selection_to_request(self, pending: PendingRead) -> Selection | UnsetType:
        """Return what is requested of the records: as many more as pending writes may take away from them."""
        selection = pending.selection
        if selection is None:
            return UNSET
        selection = selection.with_order_column()
        if selection.limit is None or pending.query.type != "uncommitted":
            return selection
        more = len(self._local.pending_keys(pending.query.table))
        return replace(selection, limit=selection.limit + more)

    def _request_answer(self, now_us: int, pending: PendingRead) -> Sequence[Effect]:
        """Send the request of a read to a gateway."""
        return self._connection.send_request(now_us, pending, self.build_request(pending))

    def receive_answer(
        self, now_us: int, pending: PendingRead, ask: PendingAsk, last: Answer
    ) -> Sequence[Effect]:
        """Process the complete answer of the cloud: store the versions, and complete the read.

        The read fails with the answer's error. It is requested again if parts are missing, or are of another
        table.
        """
        error = error_in(last)
        if error is not None:
            return self._fail(now_us, pending, decode_error(error))
        assert isinstance(last, PartsComplete)
        covered = pending.covered
        query, name = pending.query if covered is None else covered.rest, pending.query.table
        table = self._local.store_table(last.table)
        if table.number != last.table.number:
            return self._request_answer(now_us, pending)  # the answer is from a table that was dropped since
        if covered is not None and self._cache.has_lost(covered):
            return self._request_answer(now_us, replace(pending, covered=None))
        seen_lsns = self._local.seen_lsns(name)
        partitions = set(last.places)
        parts = [ask.parts[place] for place in last.places if place in ask.parts]
        if len(parts) < len(partitions) or any(
            part.lsn < seen_lsns.get(str(part.place), 0) for part in parts
        ):
            return self._request_answer(now_us, pending)  # a part was lost, or something newer was seen since
        if pending.aggregates is not None:
            return self._complete_aggregates(now_us, pending, pending.aggregates, parts)
        self._record_seen(name, table.number, parts)
        rows = [row for part in parts if part.rows is not UNSET for row in part.rows]
        versions: dict[str, Version] = {row.key: HeldRow.of(row, table.number, now_us) for row in rows}
        cuts = self._find_cuts(ask, parts)
        is_cut, matches = bool(cuts), self._cache.matcher(query)
        for row in list(self._local.rows(name)):
            partition = table.partition_of(row.key)
            if row.key in versions or partition not in partitions:
                continue
            if (cut := cuts.get(partition)) is not None and not _precedes(row, table, cut):
                continue
            if row.data is None or may_match(matches, row):
                self._local.evict(name, row.key)  # it is deleted, hidden, or no longer matches
        losses = self._local.losses[name].copy()  # storing the new rows may evict some of them
        has_columns = pending.selection is not None and pending.selection.columns is not None
        known: dict[str, int] = {}
        for key, version in versions.items():
            assert isinstance(version, HeldRow)
            if not has_columns:
                self._local.hold_row(name, version)
            elif (held_row := self._local.held_row(name, key)) is None:
                self._local.record_loss(name, key, version.lsn)
            elif held_row.ver < version.ver:
                self._local.evict(name, key, version.lsn)  # no later read may show it
            known[key] = version.ver
        if not is_cut and pending.keys is None:
            for part in parts:
                self._local.lost.record_answer(name, part.place, part.lsn)
        if is_cut or has_columns:
            return self._complete_remotely(now_us, pending, versions, known)
        compared = self._cache.record_answer(now_us, query, self.context, known, losses)
        if compared is not None:
            self._planner.record_comparison(name, compared[0], has_changed=compared[1])
        if covered is None:
            self._planner.record_answer_size(
                name, sum(size_bytes(part) for part in ask.parts.values()) / 1000
            )
        else:
            rows_held = self._cache.find_held(pending.query)
            if rows_held is None or self._local.losses[name] != losses:
                return self._request_answer(now_us, replace(pending, covered=None))
            versions = {**rows_held, **versions}
            vers = {key: version.ver for key, version in versions.items() if isinstance(version, HeldRow)}
            self._cache.record_answer(covered.at_us, pending.query, self.context, vers, losses)
        return self._complete_remotely(now_us, pending, versions, known)

    def _find_cuts(self, ask: PendingAsk, parts: Sequence[Part]) -> dict[int, _Cut]:
        """Return where a limit has cut the parts of an answer that may lack records, by partition."""
        request = ask.request
        assert isinstance(request, ReadRequest)
        selection = request.selection
        if selection is UNSET or selection.limit is None:
            return {}
        cuts: dict[int, _Cut] = {}
        for part in parts:
            present = [row for row in part.rows or () if row.data is not None]
            if len(present) >= selection.limit:
                cuts[part.place] = _Cut(
                    selection, max(selection.place_of(row.key, row.data or {}) for row in present)
                )
        return cuts

    def _complete_remotely(
        self, now_us: int, pending: PendingRead, versions: dict[str, Version], remote: Collection[str]
    ) -> Sequence[Effect]:
        """Complete a read with versions of the cloud, below pending ones if it is uncommitted."""
        if pending.query.type == "uncommitted":
            try:
                self._put_pending(pending, versions)
            except PredicateError as problem:
                return self._fail(now_us, pending, problem)
        return self._complete(now_us, pending, versions, remote)

    def _record_seen(self, name: str, table: int, parts: Sequence[Part]) -> None:
        """Store up to which log positions the parts of an answer have shown the partitions."""
        for part in parts:
            self._local.record_seen(name, table, part.place, part.lsn)

    def _complete_aggregates(
        self, now_us: int, pending: PendingRead, aggregates: Aggregates, parts: Sequence[Part]
    ) -> Sequence[Effect]:
        """Complete a read of aggregates with its parts combined; request it again if one is malformed."""
        states = [part.state for part in parts if part.state is not UNSET]
        if not all(aggregates.is_state(state) for state in states):
            return self._request_answer(now_us, pending)
        table = self._local.tables[pending.query.table]
        self._record_seen(pending.query.table, table.number, parts)
        assert pending.op_id is not None
        result = aggregates.result(aggregates.combine([tuple(state) for state in states]))
        return (Complete(pending.op_id, ReadResult(aggregates=result)),)

    def _put_pending(self, pending: PendingRead, versions: dict[str, Version]) -> None:
        """Replace versions from the cloud by pending ones; raise PredicateError if the predicate fails."""
        name = pending.query.table
        has_columns = pending.selection is not None and pending.selection.columns is not None
        for key in self._local.pending_keys(name):
            cloud = versions.get(key)
            version = self._local.latest_version(name, key, cloud if isinstance(cloud, HeldRow) else None)
            if not isinstance(version, PendingWrite):
                continue  # changes of a record that is not there
            is_named = pending.keys is not None and key in pending.keys
            if cloud is not None and version.changes is not None:
                if tables_of_sent(version.predicate):
                    continue  # only the cloud can evaluate whether it is shown
                if has_columns and not self._local.is_replaced(name, key):
                    versions[key] = version  # other columns may be those that the query names
                    continue
            versions.pop(key, None)
            if self._cache.matcher(pending.query, is_named=is_named)(version):
                versions[key] = version

    def _complete(
        self,
        now_us: int,
        pending: PendingRead,
        versions: Mapping[str, Version],
        remote: Collection[str],
        *,
        is_complete: bool = True,
    ) -> Sequence[Effect]:
        """Complete a read with versions, or pass these to its function ``then``.

        What waited for the read continues. A prefetch has neither caller nor function: no effect.
        """
        if pending.then is not None:
            return pending.then(now_us, ReadAnswer(versions, remote, is_complete))
        if pending.op_id is None:
            return ()
        effects = self._build_results(
            now_us, pending.op_id, pending.query.table, versions, remote, pending.selection,
            is_complete=is_complete,
        )  # fmt: skip
        return [*effects, *self._resume_waiting(now_us, pending)]

    def _build_results(
        self,
        now_us: int,
        op_id: int,
        name: str,
        versions: Mapping[str, Version],
        remote: Collection[str],
        selection: Selection | None,
        *,
        is_complete: bool,
    ) -> Sequence[Effect]:
        """Return the result of a read, and record the versions."""

        def origin_of(version: Version) -> Origin:
            if not isinstance(version, HeldRow):
                return Origin(None, "local", 0.0, is_recorded=version.changes is None)
            source: Literal["local", "remote"] = "remote" if version.key in remote else "local"
            return Origin(version.ver, source, self._cache.age_s(now_us, name, version))

        return complete_read(
            op_id,
            self._local.tables.get(name),
            versions,
            selection,
            origin_of,
            lambda version: self._local.hash_of(name, version.key, version.data),
            is_complete=is_complete,
        )

    def _resume_waiting(self, now_us: int, pending: PendingRead) -> Sequence[Effect]:
        """Continue the writes and reads that waited for a read."""
        if pending.op_id is None or not self._order.remove(pending.op_id):
            return ()
        return [*self._requests.send_unblocked(now_us), *self.answer_unblocked(now_us)]


LOOK: Final = "look"
_MAX_HABITS: Final = 64


@dataclass
class _Habit:
    """A query that was read at least once: how often, and the times of the first and the last read."""

    query: Query
    times: int
    first_us: int
    last_us: int


class Prefetching:
    """Prefetching of one client (Mobius 6).

    Each read is counted, with its mean interval. When a link comes up, and at the policy's interval, the
    policy selects among repeated reads; their answers are requested and cached.
    """

    def __init__(
        self,
        cache: Cache,
        planner: Planner,
        policy: PrefetchPolicy,
        reads: ReadPath,
        on_fetch: Callable[[int, Query], None],
    ) -> None:
        self._cache = cache
        self._planner = planner
        self._policy = policy
        self._reads = reads
        self._on_fetch = on_fetch
        self._habits: list[_Habit] = []
        """Ordered by the time of the last read."""

    def record_read(self, now_us: int, read: Read) -> None:
        """Count a read as a habit; only the last habits are kept.

        No effect for a read that only the cloud can answer.
        """
        if read.aggregate is not None or tables_of(read.predicate):
            return
        query = query_of(read)
        first = _Habit(query, 0, now_us, now_us)
        habit = next((other for other in self._habits if other.query == query), first)
        habit.times, habit.last_us = habit.times + 1, now_us
        self._habits = [*(other for other in self._habits if other is not habit), habit][-_MAX_HABITS:]

    def prefetch(self, now_us: int, context: Fields) -> Sequence[Effect]:
        """Request the queries that the policy selects, and set the timer of the next decision.

        Without a link nothing is done, and no timer set.
        """
        if self._planner.remote_plan(now_us, "").source != "remote":
            return ()  # until there is a link
        expected = [self._estimate(now_us, habit) for habit in self._habits if habit.times > 1]
        effects: list[Effect] = []
        for query in self._policy.select(expected, {**context, "now_us": now_us}):
            self._on_fetch(now_us, query)
            effects += self._reads.fetch(now_us, query)
        return [*effects, SetTimer(LOOK, round(self._policy.every_s * 1e6))]

    def _estimate(self, now_us: int, habit: _Habit) -> Expected:
        """Return when a read is expected again, and what a fetched answer would gain then."""
        query = habit.query
        gap_us = (habit.last_us - habit.first_us) / (habit.times - 1)
        due_us = max(habit.last_us + gap_us - now_us, 0.0)
        then_us = now_us + round(due_us)
        cached = self._cache.find_answer(then_us, query, keys_of(query.predicate), only_pending=False)
        seen = self._reads.utility_in_context(now_us, query)
        utility = freshness(0.0) if seen is None else seen
        plans = self._planner.plans(now_us, query.table, utility, None if cached is None else cached.quality)
        changed = self._planner.changed_share(query.table, due_us / 1e6)
        fetched = Plan("local", due_us / 1e6, 0.0, changed_share=changed)
        without = max(utility.value(plan) - utility.cost(plan) for plan in plans)
        # No caller waits for a prefetch: it has costs, but no latency.
        cost = utility.cost(replace(self._planner.remote_plan(now_us, query.table), latency_s=0.0))
        # Probability that the read is repeated, by Laplace's rule of succession.
        share = habit.times / (habit.times + 1)
        gain_s = share * (utility.value(fetched) - utility.cost(fetched) - without) - cost
        return Expected(query, habit.times, due_us / 1e6, gain_s, (now_us - habit.last_us) / 1e6)
