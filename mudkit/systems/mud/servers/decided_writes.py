"""Writes as the back end decides them: each is applied once, however often it arrives, also after a crash.

Results of a client's writes are stored by incarnation and number, until the client
acknowledges them, for its last incarnations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import asdict, replace

from mudkit.delivery.inbox import MAX_INCARNATIONS
from mudkit.errors import AccessDenied, MudkitError, TableProblem
from mudkit.events import Send, Store
from mudkit.systems.mud.messages.parts import Row, encode_error
from mudkit.systems.mud.messages.requests import Request, WriteOutcome, WriteRequest, WriteResult
from mudkit.systems.mud.messages.servers import LookupEntry, Routed, RowEntry
from mudkit.systems.mud.servers.committed_log import CommittedLog
from mudkit.systems.mud.servers.holders import Holders
from mudkit.systems.mud.tables.changes import Changes, change_record, check_kinds
from mudkit.systems.mud.tables.queries import check_names, tables_of
from mudkit.systems.mud.tables.records import SentPredicate, check_key, check_record
from mudkit.systems.mud.tables.replica import JoinedTables, is_visible, visible_row
from mudkit.systems.mud.tables.table import Table, no_such_table_error
from mudkit.systems.mud.tables.write_rules import check_may_write, check_rule
from mudkit.tokens import Claims

_RESULTS: Final = dict[str, WriteResult]
"""Kind of what is stored of a client."""


class DecidedWrites:
    """Writes whose versions are entries of a ``log`` with ``holders``; their results are in the ``store``."""

    def __init__(self, store: Store, log: CommittedLog, holders: Holders) -> None:
        self._store, self._log, self._holders = store, log, holders
        self._copy = log.copy

    def write(self, now_us: int, routed: Routed[Request], write: WriteRequest) -> Sequence[Send]:
        """Apply a write at its first arrival, and send its stored outcome.

        Without effect, and without an answer, if the write that it follows is not decided yet. Errors that a
        later copy may not have (an expired token, a result that was acknowledged) are not stored.
        """
        verified = routed.verified
        claims, token_error = verified.claims, verified.token_error
        app, user = (None, None) if claims is None else (claims.app, claims.user)
        writer = f"{verified.endpoint}\n{app}\n{user}"
        results_key = _results_key(write.incarnation, writer)
        first = self._store.get(f"known {results_key}", int) or 0
        known = self._results(results_key)
        numbers = [str(write.number + place) for place in range(1 + len(write.others or ()))]
        decided = [known[number] for number in numbers if number in known]
        if not decided:
            if write.number < first:  # a late duplicate, or the client was restored from a backup
                return (_build_outcome(routed, write, _build_forgotten(write)),)
            if token_error is not None:  # not applied: the client sends it with another token
                return (_build_outcome(routed, write, WriteResult(error=token_error)),)
            based = _base_on_followed(write, known, first)
            if based is None:
                return ()
            # A refusal is stored, too: an earlier duplicate that was not refused may still be in flight.
            decided = self._apply_writes(now_us, _parts_of(based), claims)
            if write.absorbed is not UNSET:
                decided = [replace(result, absorbed=write.absorbed) for result in decided]
            if not first:
                self._add_incarnation(writer, write.incarnation)
            first = max(write.first, first, 1)
            results = {number: stored for number, stored in known.items() if int(number) >= first}
            results |= dict(zip(numbers, decided, strict=True))
            self._store.put(f"applied {results_key}", to_builtins(results))
            self._store.put(f"known {results_key}", first)
        elif len(decided) < len(numbers) or decided[0].absorbed != write.absorbed:
            # Of a client that was restored from a backup, where the write was another one.
            return (_build_outcome(routed, write, _build_forgotten(write)),)
        return (_build_outcome(routed, write, *decided),)

    def _add_incarnation(self, writer: str, incarnation: str) -> None:
        """Add an incarnation to those of a client whose results are kept; delete the results of the oldest.

        ``writer`` is client, app and user.
        """
        key = f"incarnations {writer}"
        begun = [*(self._store.get(key, list[str]) or []), incarnation]
        for former in begun[:-MAX_INCARNATIONS]:
            self._store.delete(f"applied {_results_key(former, writer)}")
            self._store.delete(f"known {_results_key(former, writer)}")
        self._store.put(key, begun[-MAX_INCARNATIONS:])

    def _results(self, client: str) -> Mapping[str, WriteResult]:
        """Return the unacknowledged results of a client, by the number of the write."""
        return self._store.get(f"applied {client}", _RESULTS) or {}

    def _apply_writes(
        self, now_us: int, writes: Sequence[WriteRequest], claims: Claims | None
    ) -> list[WriteResult]:
        """Apply a write or the parts of a batch: store the versions as next entries; return the results.

        After the conflict or error of one nothing is stored, and all have this result. The caller stores the
        results.
        """
        table = self._copy.tables.get(writes[0].name)
        if table is not None and len(writes) > 1:
            try:
                table.check_access(claims)
                table.check_batch([write.key for write in writes])
            except MudkitError as error:
                return [WriteResult(error=encode_error(error))] * len(writes)
        results, entries = self._judge_writes(now_us, writes, claims)
        lookups = self._holders.list_lookups(writes[0].name, [entry.row for entry in entries])
        for looked_up, rows in lookups:
            self._log.append(LookupEntry(self._copy.lsn + 1, writes[0].name, looked_up, rows))
        if lookups:
            results, entries = self._judge_writes(now_us, writes, claims)
        for entry in entries:
            self._log.put_row(entry)
        return results

    def _judge_writes(
        self, now_us: int, writes: Sequence[WriteRequest], claims: Claims | None
    ) -> tuple[list[WriteResult], list[RowEntry]]:
        """Return the results of a write or of the parts of a batch, and their entries as the next of the log.

        No entries, if one is a conflict or an error, which is the result of all.
        """
        results: list[WriteResult] = []
        entries: list[RowEntry] = []
        for place, write in enumerate(writes):
            result, row = self._judge_write(now_us, write, claims, self._copy.lsn + 1 + place)
            if row is None:
                return [result if len(writes) == 1 else replace(result, place=place)] * len(writes), []
            results.append(result)
            entries.append(RowEntry(row.lsn, write.name, row, len(writes) - 1 - place or UNSET))
        return results, entries

    def _judge_write(
        self, now_us: int, write: WriteRequest, claims: Claims | None, lsn: int
    ) -> tuple[WriteResult, Row | None]:
        """Return the result of a write and the version that it makes, at a position of the log.

        None: it makes none; the result is a conflict or an error. Nothing is stored.
        """
        table = self._copy.tables.get(write.name)
        try:
            if table is None or write.table not in (None, table.number):
                raise no_such_table_error(write.name, self._copy.tables, claims)
            table.check_access(claims)
            check_key(write.key)
            if write.data is not None:
                table.check_columns(check_record(write.data))
            table.check_predicate(write.predicate)
            predicate = self._normalise_predicate(table, write.predicate, claims)
            if isinstance(write.may_write, SentPredicate):
                check_rule(write.may_write, table, self._copy.tables, claims)
        except MudkitError as error:
            return WriteResult(error=encode_error(error)), None
        row, reader = self._copy.row_of(table, write.key), write.reader
        auth = {} if claims is None else claims.auth
        version = 0 if row is None else row.ver
        partition = table.partition_of(write.key)
        is_shown = row is not None and is_visible(
            row, reader, auth, table, JoinedTables(self._copy, reader, auth)
        )
        changes = write.changes
        if changes is not UNSET:
            try:
                write, predicate = _apply_changes(write, changes, row if is_shown else None, row, table)
            except MudkitError as error:
                return WriteResult(error=encode_error(error)), None
        try:
            check_may_write(self._copy, table, row, write.data, write.key, claims)
            refusal = None
        except AccessDenied as error:
            refusal = WriteResult(error=encode_error(error))
        is_in_conflict = write.type == "conditional" and not _may_replace(write, row)
        if is_in_conflict and (is_shown or refusal is None):  # a rule may admit what is merged
            conflict = visible_row(row, table) if row is not None and is_shown else None
            result = WriteResult(
                conflict=conflict, lsn=self._copy.lsn, partition=partition, table=table.number
            )
            return result, None
        if refusal is not None:
            return refusal, None
        # If the writer cannot see the current version, the new one is not the next number, which would
        # reveal how often others have written. The log position exceeds the version of any record, also of
        # one whose tombstone was removed.
        is_collected = row is None and self._log.has_removed_tombstones(table)
        is_known = (row is None and not is_collected) or is_shown or write.replaces == version > 0
        new = Row(
            key=write.key,
            ver=version + 1 if is_known else lsn,
            data=write.data,
            predicate=predicate if write.data is not None else None if row is None else row.predicate,
            ts_us=now_us,
            lsn=lsn,
            may_write=_rule_after(write, row),
        )
        # The device has the same record if it knows the version that was changed, with the columns of now.
        is_base_known = row is not None and row.data is not None and write.replaces == version
        has_columns = row is not None and row.lsn >= table.lsn
        is_known_there = changes is UNSET or (is_base_known and has_columns)
        merged = UNSET if is_known_there else visible_row(new, table)
        return WriteResult(ver=new.ver, lsn=lsn, partition=partition, table=table.number, row=merged), new

    def _normalise_predicate(
        self, table: Table, sent: SentPredicate | None, claims: Claims | None
    ) -> SentPredicate | None:
        """Return a writer predicate in its normal form; None: there is none.

        Raise MudkitError if it is malformed, or names a column or table that does not exist: it would show
        the record to nobody.
        """
        if sent is None:
            return None
        predicate = sent.predicate()
        names = tables_of(predicate)
        for name in names:
            if name not in self._copy.tables:
                raise no_such_table_error(name, self._copy.tables, claims)
        check_names(table, predicate, joined=[self._copy.tables[name] for name in names])
        return SentPredicate.of(predicate)


def _parts_of(write: WriteRequest) -> list[WriteRequest]:
    """Return the parts of a batch, each as a write of its own; or a single write."""
    if write.others is UNSET:
        return [write]
    single = replace(write, others=UNSET)
    return [single, *(replace(single, follows=UNSET, **asdict(part)) for part in write.others)]


def _base_on_followed(
    write: WriteRequest, results: Mapping[str, WriteResult], first: int
) -> WriteRequest | None:
    """Return a write with the version of the one that it follows; None: that one is not decided yet.

    ``results`` are the unacknowledged ones of its client. One before ``first`` is acknowledged: the client
    sends a conditional write that follows it again, with the version.
    """
    if write.follows is UNSET:
        return write
    followed = results.get(str(write.follows))
    if followed is None:
        return write if write.type == "blind" and write.follows < first else None
    if followed.ver is UNSET:
        return replace(write, replaces=None)
    assert isinstance(followed.table, int)
    return replace(write, replaces=followed.ver, table=followed.table)


def _apply_changes(
    write: WriteRequest, changes: Changes, shown: Row | None, row: Row | None, table: Table
) -> tuple[WriteRequest, SentPredicate | None]:
    """Return a write with the whole record after its changes, and the writer predicate, which stays.

    Only a record that is ``shown`` to the writer can be changed. Raise MudkitError if there is none, or the
    changes do not fit it.
    """
    where = f"table {table.name!r}, key {write.key!r}"
    check_kinds(changes, table)
    is_here = shown is not None and shown.data is not None
    if changes.create and not is_here and row is not None and row.data is not None:
        raise TableProblem(
            "There is a record of this key that you may not see.",
            where=where,
            found="a hidden record",
            expected="a record that is shown to you, or none",
            remedy="use another key: what you may not see, you cannot change",
        )
    data = change_record(table.visible_columns(shown) if shown and is_here else None, changes, where)
    table.check_columns(data)
    return replace(write, data=data, changes=UNSET), shown.predicate if shown and is_here else None


def _may_replace(write: WriteRequest, row: Row | None) -> bool:
    """Return whether a conditional write may replace a row."""
    if write.replaces is None:
        return False  # it is based on a write that failed
    version = 0 if row is None else row.ver
    return write.replaces == version or (write.replaces == 0 and (row is None or row.data is None))


def _rule_after(write: WriteRequest, row: Row | None) -> SentPredicate | UnsetType:
    """Return the rule of who may write a record from a write on; a deleted record has none."""
    if write.data is None or write.may_write is not UNSET or row is None:
        return UNSET if write.data is None else write.may_write
    return row.may_write


def _results_key(incarnation: str, writer: str) -> str:
    """Return the name under which the results of one incarnation of a client are stored."""
    endpoint, _, user = writer.partition("\n")
    return f"{endpoint}\n{incarnation}\n{user}"


def _build_forgotten(write: WriteRequest) -> WriteResult:
    """Build the result of a write whose result the client has acknowledged before: an error."""
    error = MudkitError(
        "The result of this write is not known any more.",
        where=f"table {write.name!r}, key {write.key!r}",
        found=f"write {write.number}, whose result this client has received",
        expected="a write without a result",
        remedy="nothing: the device was restored from a backup, and was told the result before",
    )
    return WriteResult(error=encode_error(error))


def _build_outcome(
    routed: Routed[Request], write: WriteRequest, result: WriteResult, *others: WriteResult
) -> Send:
    """Build the answer to a write for its gateway; ``others`` are the results of the other parts of a batch.

    After a refusal they are all the same, and are left out.
    """
    # Who may not write to a table does not learn how often others read it.
    interval_ms = routed.route.read_interval_ms if result.error is UNSET else UNSET
    applied = UNSET if result.ver is UNSET else list(others) or UNSET
    outcome = WriteOutcome(
        id=routed.id,
        key=write.key,
        read_interval_ms=interval_ms,
        claims=routed.verified.claims,
        others=applied,
        **asdict(result),
    )
    return Send(routed.route.reply, outcome)
