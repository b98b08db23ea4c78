"""Delivery of changes to continuous reads: what processors and own writes make of their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudkit.events import Effect
from mudkit.predicates import Aggregates
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.device.own_writes import OwnWrites
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_records import OwnRecord, ReadRecords
from mudkit.systems.mud.device.read_states import ReadStates, StartedRead
from mudkit.systems.mud.messages.notifications import LeftRead, Upsert


class ReadDelivery:
    """Delivery of changes to the continuous reads of one client."""

    def __init__(self, local: Local, states: ReadStates, notices: ReadNotices, own_writes: OwnWrites) -> None:
        self._local, self._states = local, states
        self._notices, self._own_writes = notices, own_writes

    def deliver(
        self,
        read: StartedRead,
        changes: Sequence[Upsert | LeftRead],
        *,
        is_same_log: bool = True,
        log_incarnation: str = "",
    ) -> Sequence[Effect]:
        """Store which versions a read has of some records now, and notify its listener of the changes.

        They are of an incarnation of the log; ``is_same_log``: the one in which their processor was last
        heard of.
        """
        stored, records = read.stored, read.records
        if not isinstance(records, ReadRecords):
            return self._notices.notify(read, records.apply(changes, is_same_log=is_same_log))
        is_former = log_incarnation in self._local.former_log_incarnations
        effects: list[Effect] = []
        for change in changes:
            data = stored.columns_of(change.data) if isinstance(change, Upsert) else {}
            pending = self._own_writes.pending_in(stored, change.key)
            shown = records.receive(
                change, data, pending, log_incarnation=log_incarnation, is_former=is_former
            )
            effects += self._notices.notify(read, shown)
        return effects

    def deliver_aggregates(self, read: StartedRead) -> Sequence[Effect]:
        """Notify a reader of aggregates whose values have changed, once all processors have sent theirs."""
        stored = read.stored
        if stored.aggregate is None or not read.serves_all or not read.states.keys() >= {*read.partitions_of}:
            return ()
        aggregates = Aggregates(stored.aggregate)
        states = [tuple(read.states[processor]) for processor in sorted(read.partitions_of)]
        if not all(map(aggregates.is_state, states)):
            return ()  # a processor of another version
        values = aggregates.result(aggregates.combine(states))
        if values == stored.told_aggregates:
            return ()
        is_first, stored.told_aggregates = stored.told_aggregates is None, values
        self._states.put(stored)
        if is_first and stored.sync_us is None:
            return ()
        return self._notices.notify_of_aggregates(read, values)

    def show_writes(self, name: str, keys: Sequence[str]) -> Sequence[Effect]:
        """Show what the pending writes of records are to the reads of their table."""
        return [
            effect
            for read in self._states.of_table(name)
            for effect in self._show_own(read, dict.fromkeys(keys))
        ]

    def show_outcomes(
        self, parts: Sequence[PendingWrite], versions: Sequence[int] | None
    ) -> Sequence[Effect]:
        """Show in the reads of its table what became of an own write or a batch: versions; None: no version.

        A read is shown all versions of a batch, or none if only the processors know what one is to it.
        """
        effects: list[Effect] = []
        for read in self._states.of_table(parts[0].name):
            committed: dict[str, OwnRecord | None] = dict.fromkeys(part.key for part in parts)
            for part, version in zip(parts, versions or (), strict=versions is not None):
                committed[part.key] = self._own_writes.committed_in(read, part, version)
            if None in committed.values():
                committed = dict.fromkeys(committed)
            effects += self._show_own(read, committed)
        return effects

    def show_own(self, read: StartedRead) -> Sequence[Effect]:
        """Show what own writes are to a read now: it could not know before, or judges them otherwise."""
        if not isinstance(read.records, ReadRecords):
            return ()
        keys = read.records.own_keys() | set(self._local.pending_keys(read.stored.name))
        return self._show_own(read, dict.fromkeys(sorted(keys)))

    def _show_own(self, read: StartedRead, committed: Mapping[str, OwnRecord | None]) -> Sequence[Effect]:
        """Show what own writes make of records in a read, of all or none: they may be parts of a batch.

        ``committed`` has by key what the store has made of a write; None: nothing, or the processors have to
        tell. No effect for aggregates and windows, nor for reads that are paused or have ended. While too
        many changes wait for its callback, a read shows nothing: it does once it has one.
        """
        stored, records = read.stored, read.records
        if stored.aggregate is not None or not isinstance(records, ReadRecords):
            return ()
        if stored.is_paused or stored.ended is not None:
            return ()
        if self._notices.is_full(read, len(committed)):
            return ()
        effects: list[Effect] = []
        for key, own in committed.items():
            pending = self._own_writes.pending_in(stored, key)
            effects += self._notices.notify(read, records.follow_own(key, pending, own))
        return effects
