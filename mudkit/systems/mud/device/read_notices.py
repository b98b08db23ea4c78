"""Notifications of the applications that have continuous reads, durable until their callbacks were called.

A notification is repeated with the same id after a kill between its commit and its callback
(:mod:`mudkit.delivery.notices`). While no callback is registered for a read's listener, whose name comes from
the durable handle, notifications wait in the store, at most ``max_waiting`` of each read. Of the values of
aggregates only the last ones wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.events import Effect, Notify, Ports
from mudkit.systems.mud.device.connection import Connection
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.read_states import ReadStates, StartedRead, waiting_key
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.tables.replica import copy_record
from mudkit.wire import Fields

_AGGREGATES: Final = "aggregates"


def listener_of(handle: int) -> str:
    """Return the name of the listener of a continuous read."""
    return f"continuous read {handle}"


class _Notice(Struct, frozen=True, omit_defaults=True):
    """Notification of a read's listener: a change, or the reason ``ended`` for which the read has ended.

    That of the kind :data:`_AGGREGATES` has the values of aggregates as its record.
    """

    handle: int
    id: str
    ended: str | None = None
    kind: str = ""
    key: str = ""
    record: Fields | None = None
    version: int | None = 0
    is_new: bool = False
    is_pending: bool = False

    def notify(self) -> Notify:
        """Build the effect of this notice, with a record that the application may change."""
        listener = listener_of(self.handle)
        if self.ended is not None:
            return Notify(listener, FieldsWithId({"ended": self.ended}, self.id))
        record = None if self.record is None else copy_record(self.record)
        if self.kind == _AGGREGATES:
            return Notify(listener, FieldsWithId(record or {}, self.id))
        change = Change(self.kind, self.key, record, self.version, self.is_new, self.is_pending, self.id)
        return Notify(listener, change)


class ReadNotices:
    """Notifications of the continuous reads of one client."""

    def __init__(
        self, ports: Ports, local: Local, connection: Connection, states: ReadStates, max_waiting: int
    ) -> None:
        self._store, self._has_listener = ports.store, ports.has_listener
        self._local, self._connection, self._states = local, connection, states
        self._max_waiting = max_waiting
        self._notices = Notices(ports.store, _Notice)
        self._count = 0

    def notify(self, read: StartedRead, changes: Sequence[Change]) -> Sequence[Effect]:
        """Notify a read's listener of changes, at once or when it has a callback."""
        return [
            effect
            for change in changes
            for effect in self._add(
                read, kind=change.kind, key=change.key, record=change.record, version=change.version,
                is_new=change.is_new, is_pending=change.is_pending,
            )
        ]  # fmt: skip

    def notify_of_aggregates(self, read: StartedRead, values: Fields) -> Sequence[Effect]:
        """Notify a read's listener of the values of its aggregates."""
        return self._add(read, kind=_AGGREGATES, record=values)

    def notify_of_end(self, read: StartedRead, why: str) -> Sequence[Effect]:
        """Notify a read's listener of the reason for which the read has ended."""
        return self._add(read, ended=why)

    def repeat(self) -> Sequence[Effect]:
        """Emit the notifications of former starts again whose callbacks a kill may have prevented.

        Those without a callback wait for one. Only the first call of a start has an effect.
        """
        effects: list[Effect] = []
        for notice in self._notices.take_former():
            read = self._states.active.get(notice.handle) or self._states.ended.get(notice.handle)
            if read is not None:
                effects += self.emit(read, notice)
        return effects

    def clear(self) -> None:
        """Remove the notifications whose callbacks were called, and the reads that ended with them."""
        self._notices.clear()
        for handle in [handle for handle, read in self._states.ended.items() if not read.waiting]:
            self._states.forget_ended(handle)

    def is_heard(self, read: StartedRead) -> bool:
        """Return whether a callback is registered for a read."""
        return self._has_listener(listener_of(read.stored.handle))

    def is_full(self, read: StartedRead, more: int = 1) -> bool:
        """Return whether some more changes of a read would wait for its callback, and may not."""
        waits = read.stored.has_listener and not self.is_heard(read)
        return waits and read.waiting + more > self._max_waiting

    def release(self, read: StartedRead) -> Sequence[Effect]:
        """Emit the notifications that waited for a read's callback, without values that it has had before."""
        effects: list[Effect] = []
        for notice in self.delete_waiting(read):
            if notice.kind != _AGGREGATES or notice.record != read.stored.heard_aggregates:
                effects += self.pass_on(read, notice)
        return effects

    def delete_waiting(self, read: StartedRead) -> list[_Notice]:
        """Delete the notifications that wait for a read's callback, and return them, in order."""
        read.waiting = 0
        stored = self._store.items(waiting_key(read.stored.handle), _Notice)
        for key, _ in stored:
            self._store.delete(key)
        return [notice for _, notice in stored]

    def emit(self, read: StartedRead, notice: _Notice) -> Sequence[Effect]:
        """Emit a notification if a callback is registered and none waits before it; else store it to wait.

        Of the values of aggregates only these last ones wait. Empty: it waits.
        """
        if not read.waiting and self.is_heard(read):
            return self.pass_on(read, notice)
        if notice.kind == _AGGREGATES:
            self.delete_waiting(read)
        read.waiting += 1
        number = self._local.increment("count of waiting")
        self._store.put(f"{waiting_key(notice.handle)}{number:012d}", notice)
        return ()

    def pass_on(self, read: StartedRead, notice: _Notice) -> Sequence[Effect]:
        """Emit a notification now, stored until :meth:`clear`; values of aggregates are those heard last."""
        if notice.kind == _AGGREGATES:
            read.stored.heard_aggregates = notice.record
            self._states.put(read.stored)
        return notice.notify(), self._notices.add(notice)

    def _add(
        self, read: StartedRead, *, ended: str | None = None, kind: str = "", key: str = "",
        record: Fields | None = None, version: int | None = 0, is_new: bool = False, is_pending: bool = False,
    ) -> Sequence[Effect]:  # fmt: skip
        """Emit a notice with the next id, or store it to wait; no effect for a read without a listener."""
        if not read.stored.has_listener:
            return ()
        self._count += 1
        identity = f"{self._connection.incarnation}.{self._count}"
        handle = read.stored.handle
        return self.emit(
            read, _Notice(handle, identity, ended, kind, key, record, version, is_new, is_pending)
        )
