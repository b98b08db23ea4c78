"""Back-end store: the master of every record, whose commits form one log that others follow.

Its rules (Mobius 3, 4.2):

=============  ======================================================================================
any message    dropped unless its sender may send it
administration create, alter or drop a table, once for each request, however often it arrives; its result is
               stored until the client has received it, and sent when all gateways have the change
               (:mod:`~mudkit.systems.mud.servers.table_followers`)
WriteRequest   at its first arrival: apply it, blind or conditional on the version that it replaces; the
               result is the next version and entry of the log, a conflict, or a refusal; it is stored
               with the write and returned to every duplicate. A write whose token has expired is not
               applied, so that the client can send it again with another token. A write whose result
               the client has acknowledged is refused: a restored client sends it again; so is one that
               came after it had absorbed another, and comes as it was before. A write that follows
               another one is based on its result; without that it is not applied, and its client
               repeats it. The parts of a batch are judged on the records before it; then all are
               consecutive entries of the log, or none is, if one is refused. New entries are sent to the
               followers that have acknowledged all before them
ReadRequest    answer from its own copy, which is always the latest
FollowLog      send the whole state, a gateway all tables
any event      tombstones are removed by an entry of the log, at most once a seventh of ``keep_deleted_us``:
               those that are older than this and that all followers have acknowledged
start          the log of a non-empty store continues with another incarnation in its lineage; clients and
               followers that know another one learn which of the entries that they know are lost. A wiped
               store does the same as soon as it receives an incarnation or an entry that it does not know
LogAck         acknowledgement of a follower, with the rows that a processor follows: it is sent their entries
               (:mod:`~mudkit.systems.mud.servers.holders`), and the assignments if it follows others than
               these give it. Entries are retransmitted until they are acknowledged, and a processor that
               acknowledges nothing is reported to the naming machine. One that was replaced is not waited for
               until it is heard again; it requests the state if entries that it lacks were deleted. Its
               nonce, if any, is returned with the lineage: a follower believes no other messages of an
               incarnation that it does not know. With it come the entries that the follower lacks, so that
               it knows that it has what was committed before it asked
=============  ======================================================================================

Mobius 4.1 collects what is kept of deleted records when all replicas are up to date. Without a tombstone the
record does not come back either: late copies of writes are known by their names, a conditional write of a
version before the delete finds none, and a record that is inserted again gets the position of the log as its
version, which is greater than that of any version before. A device needs the tombstone while older versions
may be on their way: ``keep_deleted_us`` is longer than messages wait anywhere.

The paper's store compares and swaps. Added here: a write is applied once, however often it arrives, also
after a crash. Results of a client's writes are stored by incarnation and number until the client acknowledges
them, for its last incarnations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import asdict, replace

from mudkit.delivery.inbox import MAX_INCARNATIONS
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Incarnation, Lineage, continue_lineage, last_incarnation, last_lsn_of
from mudkit.display import View, first_rows
from mudkit.errors import AccessDenied, MudkitError, TableProblem
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SendFailed, TimerFired
from mudkit.systems.mud.messages.holdings import Holding
from mudkit.systems.mud.messages.naming import SERVER_FROM_NAMING, Assignments, AssignmentsRequest
from mudkit.systems.mud.messages.parts import Row, encode_error
from mudkit.systems.mud.messages.requests import (
    Administered,
    AdministrationRequest,
    AlterRequest,
    CreateRequest,
    DropRequest,
    LogRestarted,
    ReadRequest,
    Request,
    TableResult,
    WriteOutcome,
    WriteRequest,
    WriteResult,
)
from mudkit.systems.mud.messages.servers import (
    BACK_END_FROM_GATEWAY,
    BACK_END_FROM_PROCESSOR,
    BACK_END_FROM_REPLICA,
    CollectEntry,
    DropEntry,
    FollowLog,
    Log,
    LogAck,
    LogEntry,
    LookupEntry,
    ReadOrWrite,
    Routed,
    RowEntry,
    TableEntry,
)
from mudkit.systems.mud.servers.holders import Holders
from mudkit.systems.mud.servers.ranges import SUSPECT_US, Ranges
from mudkit.systems.mud.servers.replica import answer_read
from mudkit.systems.mud.servers.table_followers import TableFollowers
from mudkit.systems.mud.tables.changes import Changes, change_record, check_kinds
from mudkit.systems.mud.tables.queries import check_names, tables_of
from mudkit.systems.mud.tables.records import SentPredicate, check_key, check_record
from mudkit.systems.mud.tables.replica import JoinedTables, TableReplica, is_visible, visible_row
from mudkit.systems.mud.tables.table import Table, no_such_table_error
from mudkit.systems.mud.tables.write_rules import check_may_write, check_rule
from mudkit.systems.receiving import Accepts, record_dropped
from mudkit.tokens import Claims

_AGAIN_US: Final = 200_000
BEFORE_FIRST: Final = 1_000_000_000
"""Position in the log before the first entry.

All positions have the same number of digits, so that the length and the time of an answer do not reveal how
many records are hidden from the reader.
"""
_UNKNOWN: Final = -1
"""Position of a follower that has not acknowledged any."""
_RESULTS: Final = dict[str, WriteResult]
_ENTRY: Final = cast("type[LogEntry]", LogEntry)


_Message: TypeAlias = Routed[AdministrationRequest] | Routed[ReadOrWrite] | FollowLog | LogAck


class BackEnd:
    """Machine of the back end; ``processors`` and ``replicas`` follow the log, ``gateways`` the tables.

    ``naming`` is the naming machine, whose assignments also have the notification ``servers``. Tombstones are
    kept for ``keep_deleted_us`` at least.
    """

    def __init__(
        self,
        ports: Ports,
        gateways: Sequence[str],
        processors: Sequence[str],
        replicas: Sequence[str],
        servers: Sequence[str],
        naming: str,
        keep_deleted_us: int,
    ) -> None:
        self._keep_deleted_us = keep_deleted_us
        self._collects_us = 0
        """Time of the next collection of tombstones."""
        self._ports, self._store = ports, ports.store
        self._accepts: dict[
            str, Accepts[Routed[AdministrationRequest] | FollowLog | LogAck]
            | Accepts[Routed[ReadOrWrite] | FollowLog | LogAck | Assignments]
            | Accepts[Routed[ReadRequest] | FollowLog | LogAck]
            | Accepts[Assignments | AssignmentsRequest],
        ] = {
            **dict.fromkeys(gateways, BACK_END_FROM_GATEWAY),
            **dict.fromkeys(processors, BACK_END_FROM_PROCESSOR),
            **dict.fromkeys(replicas, BACK_END_FROM_REPLICA),
            naming: SERVER_FROM_NAMING,
        }  # fmt: skip
        self._ranges = Ranges(ports, naming, servers, processors)
        self._processors = frozenset(processors)
        self._copy = TableReplica()
        tables = [table for _, table in self._store.items("table ", Table)]
        rows = [(key.split("\n")[1], row) for key, row in self._store.items("row\n", Row)]
        self._copy.load(self._store.get("lsn", int) or BEFORE_FIRST, tables, rows)
        self._lineage: Lineage = self._store.get("lineage", dict[str, int]) or {}
        self._restart = Incarnation(ports) if self._copy.lsn > BEFORE_FIRST else None
        """The incarnation that continues an existing log, until it has handled an event."""
        self._log = {entry.lsn: entry for _, entry in self._store.items("log ", _ENTRY)}
        """Entries that not all followers have acknowledged, in order, as they are stored."""
        self._acked_lsns: dict[str, int] = dict.fromkeys((*replicas, *processors), _UNKNOWN)
        """Acknowledged position of each follower."""
        self._absent: set[str] = set()
        """Processors without a partition that are not heard: no entry and no tombstone is kept for them."""
        self._followed: set[str] = set()
        """Followers that have requested the state since this start."""
        self._in_flight: RetransmitTimer[str] = RetransmitTimer("again", _AGAIN_US, _AGAIN_US, 0)
        """Followers with unacknowledged messages."""
        self._gateways = TableFollowers(gateways, self._copy)
        self._holders = Holders(self._copy, has_several=len(processors) > 1)

    def overview(self) -> View:
        """Return the view of a display: the tables with their properties."""
        tables = self._copy.tables
        rows = (
            (
                table.name,
                table.owner,
                table.acl,
                ", ".join(table.schema) if table.schema else "any",
                self._copy.key_count(table),
                table.partitions,
            )
            for table in tables.values()
        )
        columns = ("table", "app", "open to", "columns", "keys", "partitions")
        return View("", {"tables": len(tables)}, [first_rows(columns, rows, len(tables))])

    def list_partitions(self) -> list[tuple[int, int]]:
        """Return the number of each table, and how many partitions it has, for a display."""
        return [(table.number, table.partitions) for table in self._copy.tables.values()]

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if self._restart is not None:  # entries after a backup are not in this log
            self._lineage = continue_lineage(self._lineage, self._copy.lsn, self._restart.id)
            self._store.put("lineage", self._lineage)
            self._restart = None
        return [*self._handle(now_us, event), *self._collect_tombstones(now_us)]

    def _handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle an event by the rules of the module."""
        match event:
            case Received(source=source):
                accepts = self._accepts.get(source)
                message = None if accepts is None else accepts.decode(event.message)
                if message is None:
                    return record_dropped(event)
                if isinstance(message, (Assignments, AssignmentsRequest)):
                    return self._receive_assignments(now_us, event, message)
                begun = self._begin_own_lineage(now_us) if self._was_wiped(source, message) else ()
                is_back = source in self._absent
                handled = self._receive(now_us, event, message)
                is_owing = source in self._in_flight  # a late message may be the last one of a dead processor
                question = self._push(now_us, [source]) if is_back and not is_owing else ()
                return (*begun, *handled, *question)
            case LinkUp():
                announced = self._gateways.announce(self._lineage) if self._lineage else ()
                return *announced, *self._push(now_us, self._acked_lsns)
            case TimerFired(name="tables"):
                return self._gateways.send_again(now_us, self._lineage)
            case TimerFired():
                late = self._in_flight.overdue(now_us)
                silent: list[Effect] = []
                for follower in late:
                    age_us = self._in_flight.age_us(now_us, follower)
                    silent += self._ranges.suspect_if_silent(now_us, follower, age_us)
                    if age_us >= SUSPECT_US:
                        silent += self._leave_if_replaced(now_us, follower)
                return [*silent, *self._push(now_us, late), *self._in_flight.restart(now_us)]
            case SendFailed(to=to):
                return self._ranges.suspect(now_us, to)
        return ()

    def _receive_assignments(
        self, now_us: int, event: Received, message: Assignments | AssignmentsRequest
    ) -> Sequence[Effect]:
        """Follow assignments of a higher epoch, and answer; wait for processors that have partitions now."""
        effects: list[Effect] = []
        if isinstance(message, Assignments):
            if not self._ranges.fits(message):
                return record_dropped(event)
            if self._ranges.take(message):
                for follower in self._in_flight:
                    effects += self._leave_if_replaced(now_us, follower)
                back = [follower for follower in self._absent if self._ranges.is_serving(follower)]
                self._absent.difference_update(back)
                effects += self._push(now_us, sorted(back))
        return [*effects, *self._ranges.answer(event.source, message)]

    def _leave_if_replaced(self, now_us: int, follower: str) -> Sequence[Effect]:
        """Wait no more for a processor that owes an acknowledgement, if it serves no partition."""
        if follower not in self._processors or self._ranges.is_serving(follower):
            return ()
        self._absent.add(follower)
        return self._in_flight.settle(now_us, follower)

    def _was_wiped(self, source: str, message: _Message) -> bool:
        """Return whether this log is in its first incarnation, and a sender knows another, or lost entries.

        A follower that knows entries has requested the state of the incarnation that it got them from.
        """
        if self._lineage:
            return False
        match message:
            case Routed():
                return bool(message.route.log_incarnation or "")
            case LogAck():
                knows_entries = message.lsn != _UNKNOWN
                return bool(message.log_incarnation or "") or (knows_entries and source not in self._followed)
            case FollowLog():
                return False

    def _begin_own_lineage(self, now_us: int) -> Sequence[Effect]:
        """Begin the lineage with a new incarnation, durably, and ask all followers for their positions.

        A wiped store is not taken for the first incarnation, which others know.
        """
        self._lineage = continue_lineage({}, BEFORE_FIRST, Incarnation(self._ports).id)
        self._store.put("lineage", self._lineage)
        self._acked_lsns = dict.fromkeys(self._acked_lsns, _UNKNOWN)
        return *self._gateways.announce(self._lineage), *self._push(now_us, self._acked_lsns)

    def _receive(
        self,
        now_us: int,
        event: Received,
        message: _Message,
    ) -> Sequence[Effect]:
        """Handle a message that its sender may send, by its kind."""
        source = event.source
        if source in self._absent:  # it may lack entries, and is sent what it lacks
            self._absent.discard(source)
            self._acked_lsns[source] = _UNKNOWN
        match message:
            case Routed():
                return self._receive_request(now_us, message, message.what)
            case FollowLog(incarnation=incarnation):
                if source in self._gateways:
                    self._followed.add(source)
                    return (self._gateways.build_state(source, incarnation, self._lineage),)
                return self._send_state(now_us, source, message)
            case LogAck(lsn=lsn, log_incarnation=log_incarnation, nonce=nonce):
                is_other = self._is_other_incarnation(log_incarnation)
                if is_other or not (lsn == _UNKNOWN or BEFORE_FIRST <= lsn <= self._copy.lsn):
                    answer = () if nonce is UNSET else (Send(source, Log([], self._lineage or UNSET, nonce)),)
                    return answer if is_other else (*answer, *record_dropped(event))
                if source in self._gateways:
                    return self._gateways.record_ack(source, lsn, nonce, self._lineage)
                return self._record_ack(now_us, source, message)

    def _send_state(self, now_us: int, follower: str, request: FollowLog) -> Sequence[Effect]:
        """Send a follower the state, or a processor the rows that it lacks of what it holds now."""
        self._holders.record(follower, request.holding)
        corrected = self._correct_holding(follower, request.holding)
        state = (*corrected, self._holders.build_state(follower, request, self._lineage))
        if request.formers:
            return *state, *self._push(now_us, [follower])
        self._followed.add(follower)
        # Its position is unknown until it acknowledges the state that it requests.
        self._acked_lsns[follower] = _UNKNOWN
        return *state, *self._in_flight.start(now_us, follower)

    def _correct_holding(self, processor: str, holding: Holding | UnsetType) -> Sequence[Effect]:
        """Send the assignments to a processor that follows other partitions than they give it.

        If it knows later ones, it answers with these.
        """
        is_right = holding is UNSET or holding.has_partitions_of(self._ranges.build_holding(processor))
        return () if is_right else (Send(processor, self._ranges.present),)

    def _receive_request(
        self, now_us: int, routed: Routed[Request], what: AdministrationRequest | ReadOrWrite
    ) -> Sequence[Effect]:
        """Answer a request, unless its client knows another incarnation of the log."""
        known = routed.route.log_incarnation
        if self._is_other_incarnation(known):
            if not isinstance(what, AdministrationRequest):
                return ()  # the gateway has asked the former incarnation; the client will repeat it
            return (Send(routed.route.reply, self._build_restarted(routed.id, known or "")),)
        match what:
            case WriteRequest():
                return self._write(now_us, routed, what)
            case ReadRequest():
                return answer_read(self._copy, routed, what)
            case CreateRequest() | AlterRequest() | DropRequest():
                return self._administer(now_us, routed, what)

    def _is_other_incarnation(self, log_incarnation: str | UnsetType) -> bool:
        """Return whether a sender knows another incarnation of the log than this one."""
        return (log_incarnation or "") != last_incarnation(self._lineage)

    def _build_restarted(self, identity: str, log_incarnation: str) -> LogRestarted:
        """Build the answer to a client that knows another incarnation of the log."""
        shared_lsn = last_lsn_of(self._lineage, log_incarnation, self._copy.lsn)
        return LogRestarted(
            id=identity,
            log_incarnation=last_incarnation(self._lineage),
            former_log_incarnation=log_incarnation,
            shared_lsn=shared_lsn,
        )

    # -- writes

    def _write(self, now_us: int, routed: Routed[Request], write: WriteRequest) -> Sequence[Effect]:
        """Apply a write at its first arrival; send its stored outcome, and the new entry to followers.

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
        pushed: Sequence[Effect] = ()
        if not decided:
            if write.number < first:  # a late duplicate, or the client was restored from a backup
                return (_build_outcome(routed, write, _build_forgotten(write)),)
            if token_error is not None:  # not applied: the client sends it with another token
                return (_build_outcome(routed, write, WriteResult(error=token_error)),)
            based = _base_on_followed(write, known, first)
            if based is None:
                return ()
            lsn = self._copy.lsn
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
            if self._copy.lsn != lsn:
                pushed = self._push_to_followers_at(now_us, lsn)
        elif len(decided) < len(numbers) or decided[0].absorbed != write.absorbed:
            # Of a client that was restored from a backup, where the write was another one.
            return (_build_outcome(routed, write, _build_forgotten(write)),)
        return (_build_outcome(routed, write, *decided), *pushed)

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
        results, and sends the entries.
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
            self._append_to_log(LookupEntry(self._copy.lsn + 1, writes[0].name, looked_up, rows))
        if lookups:
            results, entries = self._judge_writes(now_us, writes, claims)
        for entry in entries:
            self._store.crash_point("decided, not in the log")
            self._store.put(f"row\n{entry.name}\n{entry.row.key}", entry.row)
            self._append_to_log(entry)
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
        is_collected = row is None and self._store.get(_collected_key(table.name)) is not None
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

    # -- tables

    def _administer(
        self, now_us: int, routed: Routed[Request], request: AdministrationRequest
    ) -> Sequence[Effect]:
        """Create, alter or drop a table at the first arrival of a request, and return its stored result.

        It is sent when the gateways have the change. Results that the client has received are removed; a late
        copy of their requests has no effect.
        """
        client, _, number = routed.id.rpartition(".")
        first = self._store.get(f"done before {client}", int) or 0
        if number.isdecimal() and int(number) < first:
            return ()
        if request.first is not UNSET and request.first > first:
            self._store.put(f"done before {client}", request.first)
            for key in self._store.keys(f"done {client}."):
                former = key.rpartition(".")[2]
                if former.isdecimal() and int(former) < request.first:
                    self._store.delete(key)
        result = self._store.get(f"done {routed.id}", TableResult)
        pushed: Sequence[Effect] = ()
        if result is None:
            lsn = self._copy.lsn
            try:
                result = self._change_table(request, routed.verified.claims)
            except MudkitError as error:
                result = TableResult(error=encode_error(error))
            else:
                pushed = self._push_to_followers_at(now_us, lsn)
            self._store.put(f"done {routed.id}", result)
            self._add_administrator(client)
        administered = Administered(id=routed.id, claims=routed.verified.claims, **asdict(result))
        answer = Send(routed.route.reply, administered)
        if result.error is not UNSET:
            return (answer,)
        return *self._gateways.send_when_acknowledged(now_us, routed.id, answer, self._lineage), *pushed

    def _add_administrator(self, client: str) -> None:
        """Add an incarnation to those of an endpoint whose results are kept; delete those of the oldest.

        No effect if it is one of them. ``client`` is endpoint and incarnation; a request is sent again only
        in its incarnation.
        """
        endpoint, _, incarnation = client.rpartition(" ")
        key = f"administrators {endpoint}"
        begun = self._store.get(key, list[str]) or []
        if incarnation not in begun:
            begun = [*begun, incarnation]
            for former in begun[:-MAX_INCARNATIONS]:
                for old in self._store.keys(f"done {endpoint} {former}."):
                    self._store.delete(old)
                self._store.delete(f"done before {endpoint} {former}")
            self._store.put(key, begun[-MAX_INCARNATIONS:])

    def _change_table(self, request: AdministrationRequest, claims: Claims | None) -> TableResult:
        """Create, alter or drop a table, store the entry of the log, and return the result.

        Raise MudkitError, without effect, if this is not possible or not allowed.
        """
        name = request.name
        table = self._copy.tables.get(name)
        lsn = self._copy.lsn + 1
        if request.op == "create":
            if claims is None:
                raise AccessDenied(
                    "A table can be created only with a token.",
                    where=f"table {name!r}",
                    found="no token",
                    expected="a token of the app, which alone can alter and drop the table later",
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
            changed = Table.create(name, claims.app, request.properties, lsn)
        elif table is None:
            raise no_such_table_error(name, self._copy.tables, claims)
        else:
            table.check_owner(claims)
            if request.op == "drop":
                self._store.delete(f"table {name}")
                self._store.delete(_collected_key(name))
                for key in self._store.keys(f"row\n{name}\n"):
                    self._store.delete(key)
                self._append_to_log(DropEntry(lsn, name))
                return TableResult(table=None, dropped=table.number)
            changed = table.alter(request.properties, lsn)
        if isinstance(changed.write_rule, SentPredicate):
            check_rule(changed.write_rule, changed, self._copy.tables, claims)
        self._store.put(f"table {name}", changed)
        self._append_to_log(TableEntry(lsn, changed))
        return TableResult(table=changed)

    # -- the log

    def _append_to_log(self, entry: LogEntry) -> None:
        """Store the next entry of the log, and apply it to the copy in memory."""
        self._store.put(f"log {entry.lsn:015d}", entry)
        self._store.put("lsn", entry.lsn)
        self._log[entry.lsn] = entry
        self._copy.apply(entry)
        self._holders.follow(entry)
        if isinstance(entry, (TableEntry, DropEntry)):
            self._gateways.add_entry(entry)

    def _collect_tombstones(self, now_us: int) -> Sequence[Effect]:
        """Remove the tombstones that are old enough and that all followers have, at most once a period.

        Each table's removal is an entry of the log, which is sent to the followers.
        """
        if now_us < self._collects_us:
            return ()
        self._collects_us = now_us + self._keep_deleted_us // 7
        acked_lsn, before_us = self._everywhere_lsn(), now_us - self._keep_deleted_us
        lsn = self._copy.lsn
        for table in list(self._copy.tables.values()):
            rows = [row for row in self._copy.tombstones(table, acked_lsn) if row.ts_us < before_us]
            if rows:
                for row in rows:
                    self._store.delete(f"row\n{table.name}\n{row.key}")
                until_lsn = max(row.lsn for row in rows)
                self._store.put(_collected_key(table.name), until_lsn)
                self._append_to_log(CollectEntry(self._copy.lsn + 1, table.name, until_lsn))
        return () if self._copy.lsn == lsn else self._push_to_followers_at(now_us, lsn)

    def _push_to_followers_at(self, now_us: int, lsn: int) -> Sequence[Effect]:
        """Send the entries after ``lsn`` to the followers that have acknowledged it.

        Others have a message in flight; they get these entries when it is overdue.
        """
        return self._push(
            now_us, [follower for follower, acked_lsn in self._acked_lsns.items() if acked_lsn == lsn]
        )

    def _push(self, now_us: int, followers: Iterable[str]) -> Sequence[Effect]:
        """Send followers the entries that they lack; ask those whose position is unknown."""
        effects: list[Effect] = []
        for follower in followers:
            if follower in self._absent:
                continue
            acked_lsn = self._acked_lsns[follower]
            if acked_lsn < self._copy.lsn:
                effects.append(Send(follower, self._build_log(follower)))
                effects += self._in_flight.start(now_us, follower)
        return effects

    def _build_log(self, follower: str, nonce: str | UnsetType = UNSET) -> Log:
        """Build the message of the entries that a follower lacks; with a nonce, the answer to a question.

        Of a follower whose position is unknown it only asks for that. If entries were deleted while it was
        absent, the message has none, and says that some are missing.
        """
        log, acked_lsn = Log([], self._lineage or UNSET, nonce), self._acked_lsns[follower]
        if acked_lsn == _UNKNOWN:
            return log
        last_lsn = self._copy.lsn
        if acked_lsn < last_lsn and acked_lsn + 1 not in self._log:
            return replace(log, after_lsn=last_lsn, through_lsn=last_lsn)
        numbers = range(acked_lsn + 1, last_lsn + 1)
        log = Log([self._log[number] for number in numbers if number in self._log], log.lineage, nonce)
        if nonce is not UNSET:
            log = replace(log, after_lsn=acked_lsn, through_lsn=last_lsn)
        return self._holders.choose(follower, log, acked_lsn, last_lsn)

    def _everywhere_lsn(self) -> int:
        """Return the position that all followers have acknowledged but those that are not waited for."""
        acked = (lsn for follower, lsn in self._acked_lsns.items() if follower not in self._absent)
        return min(acked, default=self._copy.lsn)

    def _record_ack(self, now_us: int, follower: str, ack: LogAck) -> Sequence[Effect]:
        """Record the acknowledged position of a follower, and delete the entries that every follower has.

        A follower that asks with a nonce, that holds other rows, or whose position was unknown, is sent what
        it lacks.
        """
        was_known = self._acked_lsns[follower] != _UNKNOWN
        is_other_holding = self._holders.record(follower, ack.holding)
        self._acked_lsns[follower] = max(ack.lsn, self._acked_lsns[follower])
        everywhere_lsn = self._everywhere_lsn()
        while self._log and (number := next(iter(self._log))) <= everywhere_lsn:
            del self._log[number]
            self._store.delete(f"log {number:015d}")
        answer = [*(self._correct_holding(follower, ack.holding) if is_other_holding else ())]
        if ack.nonce is not UNSET:
            answer.append(Send(follower, self._build_log(follower, ack.nonce)))
        if self._acked_lsns[follower] == self._copy.lsn:
            return *answer, *self._in_flight.settle(now_us, follower)
        is_answered = ack.nonce is not UNSET or (was_known and not is_other_holding)
        return answer if is_answered else [*answer, *self._push(now_us, [follower])]


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


def _collected_key(name: str) -> str:
    """Return the store key of the position up to which tombstones of a table were removed."""
    return f"collected {name}"


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
