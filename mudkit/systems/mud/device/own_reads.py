"""Continuous reads of tables on the device: whatever changes there is delivered in the same step.

They have no processor. A write is committed at once, so nothing of it is ever pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.errors import MudkitError
from mudkit.events import Complete, Effect
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.read_delivery import ReadDelivery
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_states import ReadStates, StartedRead
from mudkit.systems.mud.device.registrations import Registrations
from mudkit.systems.mud.device.stored_read import OWN_PARTITION, OWN_PLACE
from mudkit.systems.mud.device.windows import OwnMatches
from mudkit.systems.mud.messages.notifications import LeftRead, Upsert

OWN: Final = "own reads"
"""Timer of what is delivered after the application has registered its callback."""


class OwnReads:
    """Continuous reads of one client of tables on the device."""

    def __init__(
        self,
        own: OwnTables,
        access: Access,
        states: ReadStates,
        notices: ReadNotices,
        delivery: ReadDelivery,
        registrations: Registrations,
    ) -> None:
        self._own, self._access, self._states = own, access, states
        self._notices, self._delivery, self._registrations = notices, delivery, registrations
        self._matches: dict[int, OwnMatches] = {}
        """By handle, since a read was begun, resumed or changed."""

    def __contains__(self, read: StartedRead) -> bool:
        return read.stored.name in self._own

    def deliver_alteration(self, now_us: int, name: str) -> Sequence[Effect]:
        """Deliver what a table is after an alteration; end its reads if it was dropped."""
        reads = self._states.of_table(name)
        if name in self._own:
            return [effect for read in reads for effect in self.catch_up(now_us, read)]
        return [
            effect
            for read in reads
            for effect in self._registrations.end_with_reason(now_us, read, "the table was dropped")
        ]

    def deliver_writes(self, now_us: int, name: str, keys: Sequence[str]) -> Sequence[Effect]:
        """Deliver the writes of records, made together, to the reads of their table."""
        effects: list[Effect] = []
        for read in self._states.of_table(name):
            if read.stored.is_paused:
                continue
            matches = self._matches.get(read.stored.handle)
            if matches is None:
                effects += self.catch_up(now_us, read)
                continue
            try:
                changes = [change for key in keys for change in matches.follow_write(key, read.delivered)]
            except MudkitError as error:
                effects += self._end(now_us, read, error)
                continue
            if changes:
                effects += self._deliver(now_us, read, matches, changes)
        return effects

    def catch_up(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Deliver what a read lacks, unless it is paused.

        As in the cloud, a change of the reader's data concerns later writes only, but a window at once.
        """
        stored = read.stored
        if stored.is_paused:
            return ()
        try:
            matches = OwnMatches(self._own, stored, self._access.auth)
        except MudkitError as error:
            return self._end(now_us, read, error)
        self._matches[stored.handle] = matches
        changes = [] if stored.aggregate is not None else matches.lacking(stored, read.delivered)
        return self._deliver(now_us, read, matches, changes)

    def use_data(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Match a read with other data of its reader from now on; a window is delivered again at once."""
        self._matches.pop(read.stored.handle, None)
        return self.catch_up(now_us, read) if read.stored.is_window else ()

    def forget(self, handle: int) -> None:
        """Forget what matches a read, which has ended."""
        self._matches.pop(handle, None)

    def _deliver(
        self, now_us: int, read: StartedRead, matches: OwnMatches, changes: Sequence[Upsert | LeftRead]
    ) -> Sequence[Effect]:
        """Deliver changes to a read, or the aggregates of all its records.

        Changes that may not wait for a callback, for there would be too many, pause the read instead.
        """
        stored = read.stored
        if stored.aggregate is not None:
            state = self._own.aggregate(stored.name, list(matches.rows.values()), stored.aggregate)
            stored.partitions, read.states = 1, {OWN_PLACE: state}
            read.partitions_of = {OWN_PLACE: [OWN_PARTITION]}
            return [*self._delivery.deliver_aggregates(read), *read.complete_begin()]
        if self._notices.is_full(read, len(changes)):
            self.forget(stored.handle)
            stored.is_paused = True
            self._states.put(stored)
            return read.complete_begin()
        effects = list(self._delivery.deliver(read, changes))
        stored.since_lsns[OWN_PARTITION] = self._own.lsn
        if stored.synced_us is None:
            stored.synced_us = now_us
            effects += read.complete_awaiting()
        self._states.put(stored)
        return [*effects, *read.complete_begin()]

    def _end(self, now_us: int, read: StartedRead, error: MudkitError) -> Sequence[Effect]:
        """End a read whose predicate fails on a record: its call fails, or its listener is notified."""
        self.forget(read.stored.handle)
        op_id, read.op_id = read.op_id, None
        if op_id is not None:
            return [Complete(op_id, error=error), *self._registrations.end(now_us, read)]
        return self._registrations.end_with_reason(now_us, read, error.summary)
