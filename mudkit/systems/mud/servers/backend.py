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
after a crash (:mod:`~mudkit.systems.mud.servers.decided_writes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Incarnation, Lineage, continue_lineage, last_incarnation, last_lsn_of
from mudkit.display import View, first_rows
from mudkit.events import Effect, Event, LinkUp, Ports, Received, Send, SendFailed, TimerFired
from mudkit.systems.mud.messages.holdings import Holding
from mudkit.systems.mud.messages.naming import SERVER_FROM_NAMING, Assignments, AssignmentsRequest
from mudkit.systems.mud.messages.requests import (
    AdministrationRequest,
    AlterRequest,
    CreateRequest,
    DropRequest,
    LogRestarted,
    ReadRequest,
    Request,
    WriteRequest,
)
from mudkit.systems.mud.messages.servers import (
    BACK_END_FROM_GATEWAY,
    BACK_END_FROM_PROCESSOR,
    BACK_END_FROM_REPLICA,
    DropEntry,
    FollowLog,
    Log,
    LogAck,
    LogEntry,
    ReadOrWrite,
    Routed,
    TableEntry,
)
from mudkit.systems.mud.servers.administration import Administration
from mudkit.systems.mud.servers.committed_log import BEFORE_FIRST, CommittedLog
from mudkit.systems.mud.servers.decided_writes import DecidedWrites
from mudkit.systems.mud.servers.holders import Holders
from mudkit.systems.mud.servers.ranges import SUSPECT_US, Ranges
from mudkit.systems.mud.servers.replica import answer_read
from mudkit.systems.mud.servers.table_followers import TableFollowers
from mudkit.systems.receiving import Accepts, record_dropped

_AGAIN_US: Final = 200_000
_UNKNOWN: Final = -1
"""Position of a follower that has not acknowledged any."""


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
        self._log = CommittedLog(self._store, self._follow_entry)
        self._copy = self._log.copy
        self._lineage: Lineage = self._store.get("lineage", dict[str, int]) or {}
        self._restart = Incarnation(ports) if self._copy.lsn > BEFORE_FIRST else None
        """The incarnation that continues an existing log, until it has handled an event."""
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
        self._writes = DecidedWrites(self._store, self._log, self._holders)
        self._administration = Administration(self._store, self._log)

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
                lsn = self._copy.lsn
                outcome = self._writes.write(now_us, routed, what)
                return *outcome, *self._push_to_followers_at(now_us, lsn)
            case ReadRequest():
                return answer_read(self._copy, routed, what)
            case CreateRequest() | AlterRequest() | DropRequest():
                return self._administer(now_us, routed, what)

    def _administer(
        self, now_us: int, routed: Routed[Request], request: AdministrationRequest
    ) -> Sequence[Effect]:
        """Carry out a request about a table; its result is sent when the gateways have the change."""
        lsn = self._copy.lsn
        administered = self._administration.administer(routed, request)
        if administered is None:
            return ()
        answer = Send(routed.route.reply, administered)
        if administered.error is not UNSET:
            return (answer,)
        pushed = self._push_to_followers_at(now_us, lsn)
        return *self._gateways.send_when_acknowledged(now_us, routed.id, answer, self._lineage), *pushed

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

    # -- the log

    def _follow_entry(self, entry: LogEntry) -> None:
        """Follow a new entry of the log."""
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
                self._log.remove_tombstones(table, rows)
        return self._push_to_followers_at(now_us, lsn)

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
        entries, last_lsn = self._log.entries_after(acked_lsn), self._copy.lsn
        if entries is None:
            return replace(log, after_lsn=last_lsn, through_lsn=last_lsn)
        log = replace(log, entries=entries)
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
        self._log.delete_through(self._everywhere_lsn())
        answer = [*(self._correct_holding(follower, ack.holding) if is_other_holding else ())]
        if ack.nonce is not UNSET:
            answer.append(Send(follower, self._build_log(follower, ack.nonce)))
        if self._acked_lsns[follower] == self._copy.lsn:
            return *answer, *self._in_flight.settle(now_us, follower)
        is_answered = ack.nonce is not UNSET or (was_known and not is_other_holding)
        return answer if is_answered else [*answer, *self._push(now_us, [follower])]
