"""Bugs seeded into MUD, to show that the campaign finds bugs.

The first four are those of ``consistency.md``. Bugs that affect histories must be found by the checker of
histories. Bugs in continuous reads, conditional writes and policies do not show in a history: they must
violate another guarantee of :class:`mudkit.verify.campaign.judge.Judgement`. A run that ends in an exception
finds nothing.

Gateways have no queue whose order matters: each write of a record names the one that it follows, and
``committed_wio`` reads and writes wait for each other. The bug of the gateway queue removes that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Incoming, StreamItem
from mudkit.errors import MudkitError, TokenExpired
from mudkit.events import CancelTimer, Effect, Send, SetTimer
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.systems.mud import Conflict
from mudkit.systems.mud.device import cache, fair_shares, joined_reads, joined_writes
from mudkit.systems.mud.device.attachment import Attach, SessionState
from mudkit.systems.mud.device.cache import Cache, CachedAnswer
from mudkit.systems.mud.device.connection import (
    RETRY,
    Connection,
    PendingAsk,
    Writing,
    error_in,
)
from mudkit.systems.mud.device.continuous_reads import ContinuousReads
from mudkit.systems.mud.device.fair_shares import FairShares
from mudkit.systems.mud.device.greeting import GREET, HEARTBEAT, HELLO, Greeting
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.device.own_reads import OwnReads
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.own_writes import OwnWrites
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_order import ReadOrder
from mudkit.systems.mud.device.read_path import ReadPath
from mudkit.systems.mud.device.read_records import OwnRecord, ReadRecords
from mudkit.systems.mud.device.read_states import StartedRead
from mudkit.systems.mud.device.registrations import Registrations
from mudkit.systems.mud.device.service import DeviceService
from mudkit.systems.mud.device.shared_reads import SharedReads
from mudkit.systems.mud.device.store_budget import StoreBudget
from mudkit.systems.mud.device.write_outcomes import WriteOutcomes, _Decided
from mudkit.systems.mud.device.write_path import WritePath
from mudkit.systems.mud.device.write_requests import WriteRequests
from mudkit.systems.mud.messages.notifications import Notification
from mudkit.systems.mud.messages.parts import Row, decode_error
from mudkit.systems.mud.messages.requests import (
    Ask,
    AskBatch,
    Request,
    RequestRefused,
    UpdateDataRequest,
    WriteOutcome,
    WriteRequest,
    WriteResult,
)
from mudkit.systems.mud.messages.servers import Route, Routed, RowEntry
from mudkit.systems.mud.operations import Write
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.servers import backend, gateway, notifications
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.servers.matching import Matching, ReadKey
from mudkit.systems.mud.servers.naming import Naming
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.stream_sender import StreamSender
from mudkit.systems.mud.servers.table_followers import TableFollowers
from mudkit.systems.mud.tables import replica as copy
from mudkit.systems.mud.tables import write_rules
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims
from mudkit.verify.campaign.judge import play

_MAX_CHARACTERS: Final = 400
_COUNT: Final = count()


@dataclass(frozen=True)
class Bug:
    """Bug, and how it is seeded."""

    name: str
    breaks: str
    """Its effect, in words."""
    swaps: tuple[tuple[Any, str, Any], ...]
    """Class or module, name of an attribute, and the replacement."""
    in_histories: bool = True
    """True if the checker of histories must find it."""
    seed: int = 0
    """A run that finds it, tried first, because few runs of a hundred find some of them."""

    @contextmanager
    def inject(self) -> Iterator[None]:
        """Seed the bug in this process while the body runs; its attributes are put back at the end."""
        with ExitStack() as after:
            for owner, name, instead in self.swaps:
                after.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, instead)
            yield


@dataclass(frozen=True)
class Catch:
    """Run that found a bug."""

    seed: int
    promise: str
    """Violated guarantee: a model of the checker, or another one of the judgement."""
    words: str
    operations: int | None
    """Number of operations of the smallest contradiction; None: not found by the checker."""

    def __str__(self) -> str:
        if self.operations is None:
            return f"seed {self.seed}, violated: {self.promise}: {self.words}"
        plural = "s" if self.operations > 1 else ""
        return f"seed {self.seed}, {self.operations} operation{plural}: {self.words}"


def hunt(bug: Bug, seeds: Sequence[int]) -> Catch | None:
    """Seed a bug and run seeds until one finds it; return None if none does."""
    with bug.inject():
        for seed in (bug.seed, *seeds):
            try:
                one_run = play(seed)
            except Exception:  # an exception is not a finding
                continue
            if bug.in_histories and one_run.illegal:
                smallest = min(one_run.illegal, key=lambda verdict: len(verdict.explanation.operations))
                contradicting = len(smallest.explanation.operations)
                return Catch(seed, smallest.model, str(smallest)[:_MAX_CHARACTERS], contradicting)
            if not bug.in_histories and one_run.broken:
                promise, words = next(iter(one_run.broken.items()))
                return Catch(seed, promise, words[:_MAX_CHARACTERS], None)
    return None


# -- replacements

_suspect = Ranges.suspect
_fail, _write, _start = WriteOutcomes.fail, WritePath.write, RetransmitTimer.start
_scope = backend._results_key
_register, _replace_reader_data, _match = (
    Registrations.request,
    Processor._replace_reader_data,
    Matching.match,
)
_build_request, _receive_outcome = WriteRequests.build_request, WriteOutcomes.receive
_check_may_write = write_rules.check_may_write
_base_on_followed, _send_writes = backend._base_on_followed, Connection.send_writes
_attach, _receive_session = Greeting.attach, ContinuousReads.receive_session
_begin_live = Registrations.begin_live
_follow_own = ReadRecords.follow_own
_write_at_store, _apply_writes = BackEnd._write, BackEnd._apply_writes
_match_rows = Processor._match
_send_tell = Processor._send_tell
_offer, _settle = FairShares.offer, FairShares.settle
_build_own_row, _wipe = OwnTables._build_row, MemoryStore.wipe
_look_up = joined_reads._Tables.look_up


def _keep_conflict(
    self: WriteOutcomes, now_us: int, write: PendingWrite, error: MudkitError, row: Row | None
) -> Sequence[Effect]:
    """Answer a write with its conflict, and keep it as pending all the same."""
    if not isinstance(error, Conflict):
        return _fail(self, now_us, write, error, row)
    ask = PendingAsk("", Writing(write.seq))  # its caller has the error: not sent again
    self._requests._asks[write.seq] = ask
    return self._complete_calls([_Decided(write, None if row is None else row.ver)], error)


def _send_at_once(
    self: WritePath, now_us: int, op_id: int, call: Write, context: Mapping[str, Any]
) -> Sequence[Effect]:
    """Send a blind write although another one of its record is in flight."""
    effects = _write(self, now_us, op_id, call, context)
    if call.type == "blind":
        self._requests.check_again(self._local.writes[self._local.writes.last_seq])
    return [*effects, *self._requests.advance(now_us)]


def _suspect_no_processor(self: Ranges, now_us: int, server: str) -> Sequence[Effect]:
    return () if server in self.serving_processors else _suspect(self, now_us, server)


def _choose_first_replica(self: Processor, identity: str, route: Route) -> str:
    """Choose the first replica for all reads, and for their repetitions."""
    return self._master.address if route.is_latest or not self._replicas else self._replicas[0]


def _follow_nothing(self: WriteRequests, seq: int) -> WriteRequest:
    """Build the request of a write without the one that it follows."""
    return replace(_build_request(self, seq), follows=UNSET)


def _accept_any_item(self: Incoming[Any], item: StreamItem[Any]) -> Sequence[Any]:
    """Accept an item of a stream whatever its number: late copies and gaps, too."""
    self.last_seq = item.seq
    return (item.body,)


def _emit_at_once(self: ReadNotices, read: StartedRead, notice: Any) -> Sequence[Effect]:
    """Emit a notification although its listener may have no callback."""
    return self.pass_on(read, notice)


def _register_once(self: Registrations, now_us: int, read: StartedRead) -> Sequence[Effect]:
    """Send no registration of a read that is sent already, although its answer may be lost."""
    return () if read.stored.handle in self._requests else _register(self, now_us, read)


def _notify_everyone(
    self: Matching, row: Row, table: Table
) -> tuple[list[ReadKey], dict[ReadKey, MudkitError]]:
    """Match a version as if it were visible to every reader."""
    return _match(self, replace(row, predicate=None), table)


def _accept_any_data(
    self: Processor, now_us: int, routed: Routed[Request], update: UpdateDataRequest
) -> Sequence[Effect]:
    """Replace a reader's data also by older ones."""
    reading = self._reads.get((routed.verified.endpoint, update.handle))
    if reading is not None:
        reading.data_seq = -1
    return _replace_reader_data(self, now_us, routed, update)


def _postpone_all(self: RetransmitTimer[Any], now_us: int, key: Any, size_bytes: int = 0) -> Sequence[Effect]:
    """Postpone the deadlines of all requests at each transmission."""
    effects = _start(self, now_us, key, size_bytes)
    if self.name != RETRY:
        return effects
    self._set_us = now_us + 10_000_000
    for item in self._in_flight.values():
        item.due_us = self._set_us
    return (SetTimer(RETRY, 10_000_000),)


def _greet_for_each(self: Greeting, now_us: int, app: str, attachment: Attach) -> Sequence[Effect]:
    """Send a hello for each app that attaches, although the device has a session."""
    return *_attach(self, now_us, app, attachment), SetTimer(GREET, 0)


def _register_all(self: ContinuousReads, now_us: int, state: SessionState) -> Sequence[Effect]:
    """Register all reads again at each session, although it is the same one."""
    self._registrations.session = None
    return _receive_session(self, now_us, state)


def _end_for_all(self: Greeting, now_us: int, app: str, attachment: Attach) -> Sequence[Effect]:
    """End the hellos and heartbeats of a device when one of its apps needs none any more."""
    effects = _attach(self, now_us, app, attachment)
    if attachment.is_notified:
        return effects
    return [*effects, *self._timer.settle(now_us, HELLO), CancelTimer(HEARTBEAT)]


def _wait_1_s(self: RetransmitTimer[Any], now_us: int, key: Any, size_bytes: int = 0) -> Sequence[Effect]:
    """Wait as long for an answer over a slow link as over a fast one."""
    _start(self, now_us, key, size_bytes)
    self._in_flight[key].due_us = self._set_us = now_us + 1_000_000
    return (SetTimer(self.name, 1_000_000),)


def _wait_as_for_a_lost_client(
    self: NotificationServer, now_us: int, sender: StreamSender[Notification]
) -> bool:
    """Treat a client whose items wait as late, although it is reached."""
    return sender.age_us(now_us) > self._max_wait_us


def _discard_without_token(
    self: WriteOutcomes, now_us: int, seq: int, answer: WriteOutcome | RequestRefused
) -> Sequence[Effect]:
    """Discard a write that waits for a valid token."""
    error = error_in(answer)
    if error is None or error.kind != TokenExpired.__name__:
        return _receive_outcome(self, now_us, seq, answer)
    self._requests.settle(seq)
    return _fail(self, now_us, self._local.writes[seq], decode_error(error), None)


def _notify_synced_early(self: Registrations, now_us: int, read: StartedRead) -> Sequence[Effect]:
    """Notify of the first state as soon as the read is registered."""
    read.synced |= {*read.generations}
    return _begin_live(self, now_us, read)


def _keep_pending(
    self: ReadRecords, key: str, pending: OwnRecord | None, committed: OwnRecord | None = None
) -> list[Change]:
    """Show a record as pending for as long as no processor tells of it."""
    return _follow_own(self, key, pending or self._pending.get(key), committed)


def _send_one_change(self: Processor, now_us: int, read_key: ReadKey, **body: Any) -> Sequence[Effect]:
    """Send a change of a window without the one that comes with it."""
    return _send_tell(self, now_us, read_key, **{**body, "also": UNSET})


def _absorb_what_was_sent(self: WritePath, write: PendingWrite, before: PendingWrite) -> bool:
    """Absorb a pending write although it may have been sent."""
    return not self._order.is_between(before, write)


def _check_writes_only(*given: Any) -> None:
    """Judge no delete, whose record is None."""
    if given[3] is not None:
        _check_may_write(*given)


def _apply_out_of_order(
    write: WriteRequest, results: Mapping[str, WriteResult], first: int
) -> WriteRequest | None:
    """Apply a write although the one that it follows is not decided."""
    return _base_on_followed(write, results, first) or write


def _apply_changes_again(
    self: BackEnd, now_us: int, routed: Routed[Request], write: WriteRequest
) -> Sequence[Effect]:
    """Apply changes at each arrival, as if each were of another write."""
    if write.changes is not UNSET:
        write = replace(write, number=write.number + (next(_COUNT) + 1 << 32))
    return _write_at_store(self, now_us, routed, write)


def _apply_until_refused(
    self: BackEnd, now_us: int, writes: Sequence[WriteRequest], claims: Claims | None
) -> list[WriteResult]:
    """Apply the parts of a batch one by one, up to the first that is refused."""
    results: list[WriteResult] = []
    for place, write in enumerate(writes):
        results += _apply_writes(self, now_us, [write], claims)
        if results[-1].ver is UNSET and len(writes) > 1:
            return [replace(results[-1], place=place)] * len(writes)
    return results


def _match_parts_alone(self: Processor, now_us: int, entries: Sequence[RowEntry]) -> Sequence[Effect]:
    """Send each part of a batch to its readers in a message of its own."""
    return [effect for entry in entries for effect in _match_rows(self, now_us, [entry])]


def _send_one_by_one(
    self: Connection,
    now_us: int,
    asks: Iterable[PendingAsk],
    build: Callable[[PendingAsk], WriteRequest],
) -> Sequence[Effect]:
    """Send each write in a message of its own."""
    return [effect for ask in asks for effect in _send_writes(self, now_us, [ask], build)]


def _send_all_at_once(self: DeviceService, app: str, messages: Sequence[Ask | AskBatch]) -> Sequence[Effect]:
    """Send the writes of an app without those of the others."""
    return [Send(self._current_gateway(), message) for message in messages]


def _offer_in_one_queue(
    self: FairShares, now_us: int, app: str, message: Ask | AskBatch
) -> list[Ask | AskBatch]:
    """Admit the messages of all apps by one share, in the order in which they came."""
    return _offer(self, now_us, "all", message)


def _offer_without_renewal(
    self: FairShares, now_us: int, app: str, message: Ask | AskBatch
) -> list[Ask | AskBatch]:
    """Count a message from its first transmission on only, although it is sent again."""
    before = [(sent, sent.sent_us) for queue in self._queues.values() for sent in queue.sent]
    taken = _offer(self, now_us, app, message)
    for sent, sent_us in before:
        sent.sent_us = sent_us
    return taken


def _settle_in_one_queue(self: FairShares, now_us: int, app: str, identity: str) -> list[Ask | AskBatch]:
    """Remove an answered request from the share of all apps."""
    return _settle(self, now_us, "all", identity)


def _keep_in_memory(self: OwnTables, table: Table, row: Row) -> None:
    """Commit a version in a table on the device without storing it."""
    self._apply(RowEntry(row.lsn, table.name, row))


def _commit_row_at_once(self: OwnTables, now_us: int, table: Table, *given: Any) -> Row:
    """Commit each part of a batch on the device before the next one is checked."""
    row = _build_own_row(self, now_us, table, *given)
    self._put_row(table, row)
    return row


def _build_row_unconditionally(
    self: OwnTables, now_us: int, table: Table, operation: Write, *given: Any
) -> Row:
    """Build the version that a write makes, whatever version it must replace."""
    return _build_own_row(self, now_us, table, replace(operation, version=None), *given)


def _wipe_all_but_own_tables(self: MemoryStore) -> None:
    """Empty a store, and keep the tables on the device."""
    kept = list(self.items("own "))
    _wipe(self)
    for key, value in kept:
        self.put(key, value)
    self.commit()


def _look_up_on_the_device(self: Any, name: str, key: Any) -> Any:
    """Return a record of a table on the device only."""
    return _look_up(self, name, key) if name in iter(self._own) else None


BUGS: Final = (
    Bug(
        "a dropped last-seen version",
        "a lagging replica shows overwritten records to a client that has seen newer ones",
        ((Local, "seen_lsns", lambda self, name: {}),),
        seed=16,
    ),
    Bug(
        "an unordered gateway queue",
        "writes of one record overtake each other",
        ((WritePath, "write", _send_at_once), (WriteRequests, "build_request", _follow_nothing)),
        seed=1,
    ),
    Bug(
        "a repeated blind write",
        "a retransmitted write is decided again",
        ((BackEnd, "_results", lambda self, client: {}),),
        seed=6,
    ),
    Bug(
        "a conflict that keeps the pending write",
        "uncommitted reads still return a refused write",
        ((WriteOutcomes, "fail", _keep_conflict),),
    ),
    Bug(
        "a read in order that does not wait for writes",
        "committed_wio reads miss earlier writes of their client",
        ((ReadPath, "_earlier_writes", lambda self, query: []),),
    ),
    Bug(
        "writes that do not wait for a read in order",
        "committed_wio reads show later writes of their client",
        ((ReadOrder, "blocks", lambda self, write: False),),
        seed=10,
    ),
    Bug(
        "conditional writes that always succeed",
        "unseen writes of others are overwritten",
        ((backend, "_may_replace", lambda write, row: True),),
        in_histories=False,
    ),
    Bug(
        "conditional writes that never find their version",
        "conflicts without a concurrent write",
        ((backend, "_may_replace", lambda write, row: row is None),),
        in_histories=False,
    ),
    Bug(
        "a stream that accepts items in any order",
        "notifications are duplicated or missed",
        ((Incoming, "take", _accept_any_item),),
        in_histories=False,
        seed=6,
    ),
    Bug(
        "a new session without repeated registrations",
        "continuous reads end silently when a notification server has lost them",
        ((Registrations, "request", _register_once),),
        in_histories=False,
    ),
    Bug(
        "a processor that does not announce its restart",
        "continuous reads end silently when a processor has lost them",
        ((ContinuousReads, "_record_generation", lambda self, *given: ()),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "reader data that is valid because it arrived last",
        "a reader is notified of a record that its latest data hides",
        ((Processor, "_replace_reader_data", _accept_any_data),),
        in_histories=False,
        seed=266,
    ),
    Bug(
        "a timer that traffic postpones",
        "lost messages are not retransmitted while there is other traffic",
        ((RetransmitTimer, "start", _postpone_all),),
        in_histories=False,
    ),
    Bug(
        "a wiped device that keeps its identity",
        "its writes are answered with results of earlier ones",
        ((backend, "_results_key", lambda incarnation, writer: _scope("the same", writer)),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "rows of a dropped table that stay cached",
        "a table shows records of a dropped table of the same name",
        ((Local, "forget_tables", lambda self, name, since: None),),
        in_histories=False,
        seed=38,
    ),
    Bug(
        "writes that are discarded with their token",
        "a write that must wait for a new token is lost",
        ((WriteOutcomes, "receive", _discard_without_token),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "rows that are visible to everyone",
        "writer predicates are not evaluated on reads",
        ((copy, "is_visible", lambda row, reader, auth, table, tables=None: True),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "changes that everyone is notified of",
        "writer predicates are not evaluated on writes",
        ((Matching, "match", _notify_everyone),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "changes that do not wait for an application",
        "an application that was started again misses changes of its continuous reads",
        ((ReadNotices, "emit", _emit_at_once),),
        in_histories=False,
        seed=24,
    ),
    Bug(
        "changes beyond the bound that are dropped",
        "an application that was away for long misses changes of its continuous reads",
        ((ContinuousReads, "_pause", lambda self, now_us, read: ()),),
        in_histories=False,
        seed=70,
    ),
    Bug(
        "aggregates of the beginning only",
        "continuous reads of aggregates are not notified of changes",
        ((Processor, "_send_aggregates", lambda self, *given: ()),),
        in_histories=False,
    ),
    Bug(
        "tombstones that are kept",
        "what deleted records leave is never collected",
        ((BackEnd, "_collect_tombstones", lambda self, now_us: ()),),
        in_histories=False,
        seed=46,
    ),
    Bug(
        "versions that begin again",
        "a record has versions again that it had before its tombstone was collected",
        ((backend, "_collected_key", lambda name: f"collected {next(_COUNT)}"),),
        in_histories=False,
        seed=46,
    ),
    Bug(
        "a session without a token",
        "another machine gets the notifications of an app",
        (
            (notifications, "is_of_service", lambda source: True),
            (notifications, "_is_allowed", lambda *given: True),
        ),
        in_histories=False,
        seed=10,
    ),
    Bug(
        "a gateway that believes any token",
        "an app reads what only another one may read, with that one's token",
        ((gateway, "_check_app", lambda claims, app: None),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a service that forwards all to its first app",
        "another app of the device misses changes of its continuous reads",
        ((Greeting, "_concerned", lambda self, body: list(self._apps)[:1]),),
        in_histories=False,
        seed=8,
    ),
    Bug(
        "an answer for every app that asks the same",
        "an app reads what only another one may read, because both ask at once",
        ((SharedReads, "_may_see", lambda self, *given: True),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "an app that ends the heartbeats of its device",
        "continuous reads of an app end silently with those of another one",
        ((Greeting, "attach", _end_for_all),),
        in_histories=False,
        seed=36,
    ),
    Bug(
        "a timeout that does not adapt to the link",
        "requests over a slow link are sent many times",
        ((RetransmitTimer, "start", _wait_1_s),),
        in_histories=False,
        seed=12,
    ),
    Bug(
        "a registration of all continuous reads for each of them",
        "messages grow with the square of the number of continuous reads",
        ((Greeting, "attach", _greet_for_each), (ContinuousReads, "receive_session", _register_all)),
        in_histories=False,
        seed=23,
    ),
    Bug(
        "a session that ends although its client is reached",
        "over a slow link, sessions end before their registrations are sent, one after another",
        ((NotificationServer, "_is_late", _wait_as_for_a_lost_client),),
        in_histories=False,
        seed=2559,
    ),
    Bug(
        "a write that absorbs one that was sent",
        "a write has the version of an earlier one, and is lost",
        ((WritePath, "_can_absorb", _absorb_what_was_sent),),
        in_histories=False,
    ),
    Bug(
        "a chain that is applied in any order",
        "a write of a record overtakes an earlier one that the network has lost",
        ((backend, "_base_on_followed", _apply_out_of_order),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "increments that are applied at each arrival",
        "an increment that was sent again counts twice",
        ((BackEnd, "_write", _apply_changes_again),),
        in_histories=False,
        seed=42,
    ),
    Bug(
        "joined increments of which the last one counts",
        "increments that were never sent are acknowledged, and are not in the sum",
        ((joined_writes, "compose", lambda first, then: then),),
        in_histories=False,
    ),
    Bug(
        "a batch whose parts are decided one by one",
        "a batch is stored in part, as a part of it is refused",
        ((BackEnd, "_apply_writes", _apply_until_refused),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a batch that is told part by part",
        "a continuous read shows a part of a batch",
        ((Processor, "_match", _match_parts_alone),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a message for each write",
        "writes that have waited for a network leave one by one",
        ((Connection, "send_writes", _send_one_by_one),),
        in_histories=False,
    ),
    Bug(
        "a message for each app",
        "writes of several apps that have waited for a network leave one after another",
        ((DeviceService, "_send_all", _send_all_at_once),),
        in_histories=False,
        seed=13,
    ),
    Bug(
        "a delay for each app",
        "delayed writes of an app stay when those of another one leave",
        ((WriteRequests, "send_delayed", lambda self, now_us: ()),),
        in_histories=False,
        seed=10,
    ),
    Bug(
        "an app without a share of the link",
        "an app that floods fills the link before the requests of another app",
        ((FairShares, "offer", lambda self, now_us, app, message: [message]),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a share of the link without bytes",
        "an app that floods with large messages fills the link before the requests of another app",
        ((fair_shares, "size_bytes", lambda message: 0),),
        in_histories=False,
        seed=17,
    ),
    Bug(
        "a share of the link that is never freed",
        "requests of an app wait although its earlier ones are answered",
        ((FairShares, "settle", lambda self, *given: []),),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a share of the link that retransmissions leave",
        "requests of an app that are sent again for longer than a minute are not in its share",
        ((FairShares, "offer", _offer_without_renewal),),
        in_histories=False,
        seed=14,
    ),
    Bug(
        "a share of the link for all apps",
        "requests of an app wait behind those of another app that floods",
        ((FairShares, "offer", _offer_in_one_queue), (FairShares, "settle", _settle_in_one_queue)),
        in_histories=False,
        seed=5,
    ),
    Bug(
        "a table on the device that is in memory",
        "what an app has written on its device is gone after a kill",
        ((OwnTables, "_put_row", _keep_in_memory),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a table on the device that stays when it is wiped",
        "what an app has written on a device is there after its wipe",
        ((MemoryStore, "wipe", _wipe_all_but_own_tables),),
        in_histories=False,
        seed=75,
    ),
    Bug(
        "a write on the device that nobody is told of",
        "continuous reads of a table on the device do not show what its app writes",
        ((OwnReads, "deliver_writes", lambda self, *given: ()),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a batch on the device whose parts are committed one by one",
        "a table on the device has a part of a batch, as a part of it is refused",
        ((OwnTables, "_build_row", _commit_row_at_once),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "conditional writes on the device that always succeed",
        "a write replaces another version on the device than it names",
        ((OwnTables, "_build_row", _build_row_unconditionally),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a lookup on the device that the cloud is asked",
        "the cloud hears of a table on the device",
        ((joined_reads, "restrict", lambda predicate, keeps: predicate),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a lookup that finds nothing in the cloud",
        "records on the device are not joined with those of the cloud",
        ((joined_reads._Tables, "look_up", _look_up_on_the_device),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a budget for each app",
        "the apps of a device store more than its budget",
        ((StoreBudget, "record_use", lambda self, app, use: None),),
        in_histories=False,
        seed=13,
    ),
    Bug(
        "a rule that nobody judges",
        "everybody replaces and deletes what a rule keeps for its owner",
        ((backend, "check_may_write", lambda *given: None),),
        in_histories=False,
    ),
    Bug(
        "a rule that does not concern deletes",
        "everybody deletes what a rule keeps for its owner",
        ((backend, "check_may_write", _check_writes_only),),
        in_histories=False,
    ),
    Bug(
        "reads that forget what their client was told of",
        "a read shows an older version than its client was told of",
        ((Local, "seen_lsns", lambda self, name: {}),),
        in_histories=False,
    ),
    Bug(
        "a policy that decides about pending writes",
        "a device does not show its own writes without a network",
        ((CachedAnswer, "is_pending", property(lambda cached: False)),),
        in_histories=False,
        seed=8,
    ),
    Bug(
        "own writes that are shown once they are committed",
        "an application does not show what it has written itself and waits on its device",
        ((OwnWrites, "pending_in", lambda self, stored, key: None),),
        in_histories=False,
        seed=31,
    ),
    Bug(
        "pending records that stay when the store has decided",
        "an application shows as pending what was refused or lost",
        ((ReadRecords, "follow_own", _keep_pending),),
        in_histories=False,
        seed=17,
    ),
    Bug(
        "pushed records that are not held",
        "a read shows an older version than a continuous read of the same device was told of",
        ((ContinuousReads, "_store_delivered", lambda self, *given: None),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "an answer that contains any other",
        "a read of more than the device has asked for is answered by it, and says that it is complete",
        ((Cache, "_contains_query", lambda self, larger, smaller: larger.table == smaller.table),),
        in_histories=False,
        seed=25,
    ),
    Bug(
        "a rest that is not asked for",
        "an answer that the device has a part of says that it is complete",
        ((cache, "remainder", lambda query, by: Predicate("key = ''")),),
        in_histories=False,
        seed=140,
    ),
    Bug(
        "a first state that is told too early",
        "an application draws its first screen without records that exist",
        ((Registrations, "begin_live", _notify_synced_early),),
        in_histories=False,
        seed=16,
    ),
    Bug(
        "a window that pulls nothing in",
        "a record that leaves a window leaves it short",
        ((Processor, "_send_tell", _send_one_change),),
        in_histories=False,
        seed=9,
    ),
    Bug(
        "a dead notification server that keeps its range",
        "its devices are told nothing any more",
        ((Naming, "_replace_silent", lambda self, now_us: ()),),
        in_histories=False,
        seed=3,
    ),
    Bug(
        "a device that stays with a server that does not answer",
        "a device is told nothing any more, although its server was replaced",
        ((Greeting, "_record_miss", lambda self: None),),
        in_histories=False,
        seed=103,
    ),
    Bug(
        "a replaced processor that no device hears of",
        "its continuous reads are told nothing any more",
        ((NotificationServer, "_end_generation", lambda self, now_us, processor: ()),),
        in_histories=False,
        seed=55,
    ),
    Bug(
        "a dead processor that keeps its partitions",
        "requests about them are not answered any more",
        ((Ranges, "suspect", _suspect_no_processor),),
        in_histories=False,
        seed=2,
    ),
    Bug(
        "a processor that keeps what was moved away",
        "a continuous read is told the same change by two processors, or of none",
        ((Processor, "_follow_assignments", lambda self, now_us, was_serving: ()),),
        in_histories=False,
        seed=514,
    ),
    Bug(
        "a processor that keeps the rows of what was moved away",
        "it has rows that it need not have, and they grow old",
        ((copy.TableReplica, "discard_rows_besides", lambda self, holding: None),),
        in_histories=False,
        seed=266,
    ),
    Bug(
        "a processor that misses what was written before a partition moved to it",
        "it follows the entries of the partition, but does not request its rows",
        ((LogFollower, "_has_all_rows", lambda self: True),),
        in_histories=False,
        seed=165,
    ),
    Bug(
        "a creation that is answered before the gateways know it",
        "a gateway tells a client that there is no table although its creation was answered",
        (
            (
                TableFollowers,
                "send_when_acknowledged",
                lambda self, now_us, identity, answer, lineage: (answer,),
            ),
        ),
        in_histories=False,
        seed=9,
    ),
    Bug(
        "a gateway that waits for the back end",
        "no read is answered while the back end is down",
        ((gateway, "UNANSWERED_US", 10**15),),
        in_histories=False,
        seed=26,
    ),
    Bug(
        "a read that always goes to the same replica",
        "a read is not answered while its replica is down with the back end",
        ((Processor, "_choose_address", _choose_first_replica),),
        in_histories=False,
        seed=155,
    ),
)
"""All seeded bugs; the first four are those of ``consistency.md``."""
