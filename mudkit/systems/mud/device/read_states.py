"""Continuous reads of one client: their state, of which the greater part is durable."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from mudkit.errors import ParameterError
from mudkit.events import Complete, Effect, Store
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.read_records import ReadRecords
from mudkit.systems.mud.device.stored_read import StoredRead
from mudkit.systems.mud.device.windows import ShownWindow
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.replica import copy_record
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Value

_HANDLES = "count of handles"


class StartedRead(Struct):
    """Continuous read in this start of the machine.

    ``records`` are those of the read. ``op_id`` is the call that began the read, until it is answered.
    ``generations`` has the generation in which each processor knows it. ``requested_since`` has
    ``stored.since_lsns`` and ``stored.log_incarnations`` at the first transmission of an unanswered
    registration, and ``sender_generations`` the oldest generation in which each processor has sent a change
    since then. ``waiting`` counts the notices that wait for a callback, ``pauses`` the times that the read
    was paused. ``named_buckets`` are those whose keys an unanswered registration names, because a processor
    does not know their digests. ``states`` has the last state of the aggregates of each processor.
    ``synced`` has the processors that have told, since the last registration was sent, that they
    have delivered everything before it; ``is_live``: all of them have. ``awaiting`` has the calls that wait
    for that. ``updates`` counts the requests with new reader data that are not answered, and ``data_us`` is
    when the last one was: what was written before, processors may have matched with older data.
    """

    stored: StoredRead
    records: ReadRecords | ShownWindow
    op_id: int | None = None
    generations: dict[str, int] = field(default_factory=dict)
    requested_since: tuple[dict[str, int], dict[str, str]] | None = None
    sender_generations: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    pauses: int = 0
    named_buckets: set[int] = field(default_factory=set)
    states: dict[str, list[Value]] = field(default_factory=dict)
    synced: set[str] = field(default_factory=set)
    awaiting: list[int] = field(default_factory=list)
    is_live: bool = False
    updates: int = 0
    data_us: int = 0

    @property
    def delivered(self) -> dict[str, int]:
        """Version that the processors sent last of each record that belongs to the read."""
        return self.records.delivered

    def complete_begin(self) -> Sequence[Effect]:
        """Complete the call that began the read, if that is not done."""
        op_id, self.op_id = self.op_id, None
        return () if op_id is None else (Complete(op_id, self.stored.handle),)

    def complete_awaiting(self) -> Sequence[Effect]:
        """Complete the calls that wait for the first state, once the callback was called with it."""
        if self.stored.synced_us is None or self.waiting:
            return ()
        op_ids, self.awaiting = self.awaiting, []
        return [Complete(op_id) for op_id in op_ids]


class ReadStates:
    """Continuous reads of one client, by handle.

    ``active`` are those that have not ended; ``ended`` have ended, until the callback was called with the
    reason.
    """

    def __init__(self, store: Store, local: Local) -> None:
        self._store, self._local = store, local
        self.active: dict[int, StartedRead] = {}
        self.ended: dict[int, StartedRead] = {}
        for _, stored in store.items("reading ", StoredRead):
            read = self._start(stored)
            read.waiting = len(store.keys(waiting_key(stored.handle)))
            (self.active if stored.ended is None else self.ended)[stored.handle] = read

    def add(self, stored: StoredRead, op_id: int) -> StartedRead:
        """Add a read that a call begins, durably."""
        self.active[stored.handle] = read = self._start(stored, op_id)
        self.put(stored)
        return read

    def take_handle(self) -> int:
        """Return the handle of a new read, which no other one ever has."""
        return self._local.increment(_HANDLES)

    def of_table(self, name: str) -> list[StartedRead]:
        """Return the reads of a table."""
        return [read for read in self.active.values() if read.stored.name == name]

    def put(self, stored: StoredRead) -> None:
        """Store the state of a read durably, without its records."""
        self._store.put(_read_key(stored.handle), stored)

    def find(self, handle: int) -> StartedRead:
        """Return the read of a handle, or raise ParameterError."""
        if handle not in self.active:
            raise self._no_such_read_error(handle)
        return self.active[handle]

    def delete(self, read: StartedRead) -> Sequence[Effect]:
        """Delete a read with its records; calls that wait for its first state fail."""
        handle = read.stored.handle
        self.active.pop(handle, None)
        self._store.delete(_read_key(handle))
        read.records.delete()
        op_ids, read.awaiting = read.awaiting, []
        return [Complete(op_id, error=self._no_such_read_error(handle)) for op_id in op_ids]

    def end(self, read: StartedRead, why: str) -> None:
        """Store that a deleted read has ended, and why, until the application has heard it."""
        read.stored.ended = why
        self.put(read.stored)
        self.ended[read.stored.handle] = read

    def forget_ended(self, handle: int) -> None:
        """Forget a read that has ended: the application was told, or does not want to be."""
        del self.ended[handle]
        self._store.delete(_read_key(handle))

    def describe(self) -> list[dict[str, Value]]:
        """Return what the application may know of its reads, also of those whose end it was not told yet."""
        return [
            {
                "handle": handle,
                "table": read.stored.name,
                "predicate": read.stored.predicate.text,
                "constants": list(read.stored.predicate.constants),
                "data": copy_record(read.stored.reader),
                "aggregate": read.stored.aggregate,
                **_describe_selection(read.stored.selection),
                "synced": read.stored.synced_us is not None,
                "waiting": read.waiting,
                "paused": read.stored.is_paused,
                "ended": read.stored.ended,
            }
            for handle, read in sorted({**self.active, **self.ended}.items())
        ]

    def snapshot(self, now_us: int, handle: int) -> ReadResult:
        """Return the records that a read has, pending ones among them, or the values of its aggregates."""
        read = self.find(handle)
        stored = read.stored
        is_complete = stored.synced_us is not None
        if stored.aggregate is not None:
            return ReadResult(aggregates=dict(stored.told_aggregates or {}), is_complete=is_complete)
        shown = read.records.shown()
        age_s = 0.0 if read.is_live or stored.synced_us is None else (now_us - stored.synced_us) / 1e6
        return ReadResult(
            records={key: copy_record(record) for key, (_, record) in shown.items()},
            source=dict.fromkeys(shown, "local"),
            age_s={key: 0.0 if version is None else age_s for key, (version, _) in shown.items()},
            versions={key: version for key, (version, _) in shown.items()},
            is_complete=is_complete,
        )

    def _start(self, stored: StoredRead, op_id: int | None = None) -> StartedRead:
        """Build a read of this start from its stored state, with the records that are stored of it."""
        records: ReadRecords | ShownWindow
        if stored.selection is not None and stored.is_window:
            records = ShownWindow(self._store, stored.handle, stored.selection)
        else:
            records = ReadRecords(self._store, stored.handle)
        return StartedRead(stored, records, op_id=op_id)

    def _no_such_read_error(self, handle: int) -> ParameterError:
        """Build the error for the handle of no continuous read."""
        is_over = 0 < handle <= self._local.counted(_HANDLES)
        return ParameterError(
            "This continuous read has ended." if is_over else "There is no such continuous read.",
            where="handle",
            found=repr(handle),
            expected=", ".join(map(str, self.active)) or "none is registered",
            remedy="begin another one; continuous_reads() lists those of this app on this device",
        )


def waiting_key(handle: int) -> str:
    """Return the beginning of the store keys of the notices that wait for a read's callback."""
    return f"waiting {handle:09d} "


def _read_key(handle: int) -> str:
    """Return the store key of the state of a read."""
    return f"reading {handle:09d}"


def _describe_selection(selection: Selection | None) -> dict[str, Value]:
    """Return the columns, order and limit of a read, as :meth:`Selection.parse` takes them."""
    if selection is None:
        return {"columns": None, "order": None, "limit": None}
    direction = " DESC" if selection.is_descending else ""
    order = None if selection.order is None else f"{selection.order}{direction}"
    return {"columns": selection.columns, "order": order, "limit": selection.limit}
