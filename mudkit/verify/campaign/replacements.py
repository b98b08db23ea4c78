"""Replacements of functions of MUD by which :mod:`~mudkit.verify.campaign.bugs` seeds its bugs.

Each has the signature of what it replaces, which it may call: the originals are kept under private names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Incoming, StreamItem
from mudkit.errors import MudkitError, TokenExpired
from mudkit.events import CancelTimer, Effect, Send, SetTimer
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import Conflict
from mudkit.systems.mud.device import joined_reads
from mudkit.systems.mud.device.attachment import Attach, SessionState
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
from mudkit.systems.mud.device.local import PendingWrite
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_records import OwnRecord, ReadRecords
from mudkit.systems.mud.device.read_states import StartedRead
from mudkit.systems.mud.device.registrations import Registrations
from mudkit.systems.mud.device.service import DeviceService
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
from mudkit.systems.mud.messages.standbys import StoreChange
from mudkit.systems.mud.operations import Write
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.servers import decided_writes
from mudkit.systems.mud.servers.decided_writes import DecidedWrites
from mudkit.systems.mud.servers.leases import Leases
from mudkit.systems.mud.servers.matching import Matching, ReadKey
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.processor import Processor
from mudkit.systems.mud.servers.ranges import Ranges
from mudkit.systems.mud.servers.served_reads import ServedReads
from mudkit.systems.mud.servers.store_server import _RecordingStore
from mudkit.systems.mud.servers.stream_sender import StreamSender
from mudkit.systems.mud.tables import write_rules
from mudkit.systems.mud.tables.table import Table
from mudkit.tokens import Claims

_COUNT: Final = count()

_suspect = Ranges.suspect
_fail, _write, _start = WriteOutcomes.fail, WritePath.write, RetransmitTimer.start
_results_key = decided_writes._results_key
_register, _replace_reader_data, _match = (
    Registrations.request,
    ServedReads.replace_reader_data,
    Matching.match,
)
_build_request, _receive_outcome = WriteRequests.build_request, WriteOutcomes.receive
_check_may_write = write_rules.check_may_write
_base_on_followed, _send_writes = decided_writes._base_on_followed, Connection.send_writes
_attach, _receive_session = Greeting.attach, ContinuousReads.receive_session
_begin_live = Registrations.begin_live
_follow_own = ReadRecords.follow_own
_write_at_store, _apply_writes = DecidedWrites.write, DecidedWrites._apply_writes
_match_rows = ServedReads.match
_send_tell = ServedReads.tell
_offer, _settle = FairShares.offer, FairShares.settle
_build_own_row, _wipe = OwnTables._build_row, MemoryStore.wipe
_look_up = joined_reads._Tables.look_up
_take_change = _RecordingStore.take_change


def keep_conflict(
    self: WriteOutcomes, now_us: int, write: PendingWrite, error: MudkitError, row: Row | None
) -> Sequence[Effect]:
    """Answer a write with its conflict, and keep it as pending all the same."""
    if not isinstance(error, Conflict):
        return _fail(self, now_us, write, error, row)
    ask = PendingAsk("", Writing(write.seq))  # its caller has the error: not sent again
    self._requests._asks[write.seq] = ask
    return self._complete_calls([_Decided(write, None if row is None else row.ver)], error)


def send_at_once(
    self: WritePath, now_us: int, op_id: int, call: Write, context: Mapping[str, Any]
) -> Sequence[Effect]:
    """Send a blind write although another one of its record is in flight."""
    effects = _write(self, now_us, op_id, call, context)
    if call.type == "blind":
        self._requests.check_again(self._local.writes[self._local.writes.last_seq])
    return [*effects, *self._requests.advance(now_us)]


def suspect_no_processor(self: Ranges, now_us: int, server: str) -> Sequence[Effect]:
    """Report no processor that does not answer."""
    return () if server in self.serving_processors else _suspect(self, now_us, server)


def choose_first_replica(self: Processor, identity: str, route: Route) -> str:
    """Choose the first replica for all reads, and for their repetitions."""
    return self._master.address if route.is_latest or not self._replicas else self._replicas[0]


def follow_nothing(self: WriteRequests, seq: int) -> WriteRequest:
    """Build the request of a write without the one that it follows."""
    return replace(_build_request(self, seq), follows=UNSET)


def accept_any_item(self: Incoming[Any], item: StreamItem[Any]) -> Sequence[Any]:
    """Accept an item of a stream whatever its number: late copies and gaps, too."""
    self.last_seq = item.seq
    return (item.body,)


def emit_at_once(self: ReadNotices, read: StartedRead, notice: Any) -> Sequence[Effect]:
    """Emit a notification although its listener may have no callback."""
    return self.pass_on(read, notice)


def register_once(self: Registrations, now_us: int, read: StartedRead) -> Sequence[Effect]:
    """Send no registration of a read that is sent already, although its answer may be lost."""
    return () if read.stored.handle in self._requests else _register(self, now_us, read)


def notify_everyone(
    self: Matching, row: Row, table: Table
) -> tuple[list[ReadKey], dict[ReadKey, MudkitError]]:
    """Match a version as if it were visible to every reader."""
    return _match(self, replace(row, predicate=None), table)


def accept_any_data(
    self: ServedReads, now_us: int, read_key: ReadKey, update: UpdateDataRequest
) -> tuple[Sequence[Effect], int]:
    """Replace a reader's data also by older ones."""
    reading = self.reads.get(read_key)
    if reading is not None:
        reading.data_seq = -1
    return _replace_reader_data(self, now_us, read_key, update)


def postpone_all(self: RetransmitTimer[Any], now_us: int, key: Any, size_bytes: int = 0) -> Sequence[Effect]:
    """Postpone the deadlines of all requests at each transmission."""
    effects = _start(self, now_us, key, size_bytes)
    if self.name != RETRY:
        return effects
    self._set_us = now_us + 10_000_000
    for item in self._in_flight.values():
        item.due_us = self._set_us
    return (SetTimer(RETRY, 10_000_000),)


def greet_for_each(self: Greeting, now_us: int, app: str, attachment: Attach) -> Sequence[Effect]:
    """Send a hello for each app that attaches, although the device has a session."""
    return *_attach(self, now_us, app, attachment), SetTimer(GREET, 0)


def register_all(self: ContinuousReads, now_us: int, state: SessionState) -> Sequence[Effect]:
    """Register all reads again at each session, although it is the same one."""
    self._registrations.session = None
    return _receive_session(self, now_us, state)


def end_for_all(self: Greeting, now_us: int, app: str, attachment: Attach) -> Sequence[Effect]:
    """End the hellos and heartbeats of a device when one of its apps needs none any more."""
    effects = _attach(self, now_us, app, attachment)
    if attachment.is_notified:
        return effects
    return [*effects, *self._timer.settle(now_us, HELLO), CancelTimer(HEARTBEAT)]


def wait_1_s(self: RetransmitTimer[Any], now_us: int, key: Any, size_bytes: int = 0) -> Sequence[Effect]:
    """Wait as long for an answer over a slow link as over a fast one."""
    _start(self, now_us, key, size_bytes)
    self._in_flight[key].due_us = self._set_us = now_us + 1_000_000
    return (SetTimer(self.name, 1_000_000),)


def wait_as_for_a_lost_client(
    self: NotificationServer, now_us: int, sender: StreamSender[Notification]
) -> bool:
    """Treat a client whose items wait as late, although it is reached."""
    return sender.age_us(now_us) > self._max_wait_us


def discard_without_token(
    self: WriteOutcomes, now_us: int, seq: int, answer: WriteOutcome | RequestRefused
) -> Sequence[Effect]:
    """Discard a write that waits for a valid token."""
    error = error_in(answer)
    if error is None or error.kind != TokenExpired.__name__:
        return _receive_outcome(self, now_us, seq, answer)
    self._requests.settle(seq)
    return _fail(self, now_us, self._local.writes[seq], decode_error(error), None)


def notify_synced_early(self: Registrations, now_us: int, read: StartedRead) -> Sequence[Effect]:
    """Notify of the first state as soon as the read is registered."""
    read.synced |= {*read.generations}
    return _begin_live(self, now_us, read)


def keep_pending(
    self: ReadRecords, key: str, pending: OwnRecord | None, committed: OwnRecord | None = None
) -> list[Change]:
    """Show a record as pending for as long as no processor tells of it."""
    return _follow_own(self, key, pending or self._pending.get(key), committed)


def send_one_change(self: ServedReads, now_us: int, read_key: ReadKey, **body: Any) -> Sequence[Effect]:
    """Send a change of a window without the one that comes with it."""
    return _send_tell(self, now_us, read_key, **{**body, "also": UNSET})


def absorb_what_was_sent(self: WritePath, write: PendingWrite, before: PendingWrite) -> bool:
    """Absorb a pending write although it may have been sent."""
    return not self._order.is_between(before, write)


def check_writes_only(*given: Any) -> None:
    """Judge no delete, whose record is None."""
    if given[3] is not None:
        _check_may_write(*given)


def apply_out_of_order(
    write: WriteRequest, results: Mapping[str, WriteResult], first: int
) -> WriteRequest | None:
    """Apply a write although the one that it follows is not decided."""
    return _base_on_followed(write, results, first) or write


def apply_changes_again(
    self: DecidedWrites, now_us: int, routed: Routed[Request], write: WriteRequest
) -> Sequence[Effect]:
    """Apply changes at each arrival, as if each were of another write."""
    if write.changes is not UNSET:
        write = replace(write, number=write.number + (next(_COUNT) + 1 << 32))
    return _write_at_store(self, now_us, routed, write)


def apply_until_refused(
    self: DecidedWrites, now_us: int, writes: Sequence[WriteRequest], claims: Claims | None
) -> list[WriteResult]:
    """Apply the parts of a batch one by one, up to the first that is refused."""
    results: list[WriteResult] = []
    for place, write in enumerate(writes):
        results += _apply_writes(self, now_us, [write], claims)
        if results[-1].ver is UNSET and len(writes) > 1:
            return [replace(results[-1], place=place)] * len(writes)
    return results


def match_parts_alone(self: ServedReads, now_us: int, entries: Sequence[RowEntry]) -> Sequence[Effect]:
    """Send each part of a batch to its readers in a message of its own."""
    return [effect for entry in entries for effect in _match_rows(self, now_us, [entry])]


def send_one_by_one(
    self: Connection,
    now_us: int,
    asks: Iterable[PendingAsk],
    build: Callable[[PendingAsk], WriteRequest],
) -> Sequence[Effect]:
    """Send each write in a message of its own."""
    return [effect for ask in asks for effect in _send_writes(self, now_us, [ask], build)]


def send_all_at_once(self: DeviceService, app: str, messages: Sequence[Ask | AskBatch]) -> Sequence[Effect]:
    """Send the writes of an app without those of the others."""
    return [Send(self._current_gateway(), message) for message in messages]


def offer_in_one_queue(
    self: FairShares, now_us: int, app: str, message: Ask | AskBatch
) -> list[Ask | AskBatch]:
    """Admit the messages of all apps by one share, in the order in which they came."""
    return _offer(self, now_us, "all", message)


def offer_without_renewal(
    self: FairShares, now_us: int, app: str, message: Ask | AskBatch
) -> list[Ask | AskBatch]:
    """Count a message from its first transmission on only, although it is sent again."""
    before = [(sent, sent.sent_us) for queue in self._queues.values() for sent in queue.sent]
    taken = _offer(self, now_us, app, message)
    for sent, sent_us in before:
        sent.sent_us = sent_us
    return taken


def settle_in_one_queue(self: FairShares, now_us: int, app: str, identity: str) -> list[Ask | AskBatch]:
    """Remove an answered request from the share of all apps."""
    return _settle(self, now_us, "all", identity)


def keep_in_memory(self: OwnTables, table: Table, row: Row) -> None:
    """Commit a version in a table on the device without storing it."""
    self._apply(RowEntry(row.lsn, table.name, row))


def commit_row_at_once(self: OwnTables, now_us: int, table: Table, *given: Any) -> Row:
    """Commit each part of a batch on the device before the next one is checked."""
    row = _build_own_row(self, now_us, table, *given)
    self._put_row(table, row)
    return row


def build_row_unconditionally(
    self: OwnTables, now_us: int, table: Table, operation: Write, *given: Any
) -> Row:
    """Build the version that a write makes, whatever version it must replace."""
    return _build_own_row(self, now_us, table, replace(operation, version=None), *given)


def wipe_all_but_own_tables(self: MemoryStore) -> None:
    """Empty a store, and keep the tables on the device."""
    kept = list(self.items("own "))
    _wipe(self)
    for key, value in kept:
        self.put(key, value)
    self.commit()


def look_up_on_the_device(self: Any, name: str, key: Any) -> Any:
    """Return a record of a table on the device only."""
    return _look_up(self, name, key) if name in iter(self._own) else None


def keep_for_nobody(self: Leases, sends: list[Send]) -> None:
    """Send messages as soon as the leases are valid, whatever the standbys have."""
    self._waiting.append((0, sends))


def take_change_without_results(self: _RecordingStore) -> StoreChange | None:
    """Return the changes of a store, but for the results of writes."""
    change = _take_change(self)
    if change is None:
        return None
    return replace(change, values=[one for one in change.values if not one[0].startswith("applied ")])


def name_the_same_results(incarnation: str, writer: str) -> str:
    """Return the name of a client's results, whatever its incarnation."""
    return _results_key("the same", writer)


def name_another_position(name: str) -> str:
    """Return the store key of the position up to which tombstones were removed: another one at each use."""
    return f"collected {next(_COUNT)}"
