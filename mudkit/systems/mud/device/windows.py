"""Windows of continuous reads on the device, and records of its own tables that match a continuous read.

Each processor sends the first records of its partitions, as many as the read's limit, and what changes among
them. The device holds them all, durably, and shows the first of them: a record that leaves pulls in the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudkit.events import Store
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.read_records import SentRecord
from mudkit.systems.mud.device.stored_read import OWN_PARTITION, StoredRead
from mudkit.systems.mud.messages.notifications import LeftRead, Upsert
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.window import Window
from mudkit.wire import Fields


class ShownWindow:
    """Window that a continuous read shows, of what its processors have sent.

    ``delivered`` has the versions that they have sent, by key. Own writes are in it once processors tell of
    them, since these alone know which are the first records.
    """

    def __init__(self, store: Store, handle: int, selection: Selection) -> None:
        prefix = f"read {handle:09d} "
        self._store, self._prefix, self._selection = store, prefix, selection
        self._sent = {key.removeprefix(prefix): sent for key, sent in store.items(prefix, SentRecord)}
        self.delivered = {key: sent.ver for key, sent in self._sent.items()}
        self._window = Window(selection, {key: sent.data for key, sent in self._sent.items()})
        self._shown = {key: self._sent[key] for key in self._window.first_keys()}

    def apply(self, changes: Sequence[Upsert | LeftRead], *, is_same_log: bool) -> list[Change]:
        """Store changes that belong together; return what becomes of the window, removals first.

        An older version than the one sent before counts only if the log is another one.
        """
        concerned: dict[str, bool] = {}
        left: dict[str, int] = {}
        for change in changes:
            key = change.key
            if isinstance(change, LeftRead):
                concerned |= self._remove(key)
                left[key] = change.ver or 0
            elif not is_same_log or change.ver >= self.delivered.get(key, 0):
                concerned |= self._put(key, SentRecord(change.ver, change.data))
        removed = [
            Change("remove", key, None, max(self._shown.pop(key).ver, left.get(key, 0)))
            for key in concerned
            if key in self._shown and key not in self._window
        ]
        return removed + [
            self._show(key)
            for key in concerned
            if key in self._window and self._shown.get(key) != self._sent[key]
        ]

    def shown(self) -> dict[str, tuple[int | None, Fields]]:
        """Return version and columns of the records in the window, by key, in its order."""
        shown = {key: self._shown[key] for key in self._window.first_keys()}
        return {key: (sent.ver, self._selection.columns_of(sent.data)) for key, sent in shown.items()}

    def delete(self) -> None:
        """Delete all that is stored of the records."""
        for key in self._sent:
            self._store.delete(f"{self._prefix}{key}")

    def _remove(self, key: str) -> dict[str, bool]:
        """Forget a record; return the keys of the records that this moves: True, into the window."""
        if self._sent.pop(key, None) is None:
            return {}
        del self.delivered[key]
        self._store.delete(f"{self._prefix}{key}")
        return self._window.remove(key)

    def _put(self, key: str, sent: SentRecord) -> dict[str, bool]:
        """Store a record; return the keys of the records that this moves: True, into the window."""
        self._sent[key], self.delivered[key] = sent, sent.ver
        self._store.put(f"{self._prefix}{key}", sent)
        return self._window.put(key, sent.data)

    def _show(self, key: str) -> Change:
        """Return the change by which the window shows a record as it is, and record that it is shown."""
        is_new = key not in self._shown
        sent = self._shown[key] = self._sent[key]
        return Change("upsert", key, self._selection.columns_of(sent.data), sent.ver, is_new=is_new)


class OwnMatches:
    """Records of a table on the device that match a continuous read, as far as it has been told of writes.

    Raises
    ------
    MudkitError
        The predicate fails on a record.
    """

    def __init__(self, own: OwnTables, stored: StoredRead, auth: Mapping[str, str]) -> None:
        self._own, self._name, self._auth = own, stored.name, auth
        self._predicate, self._reader = stored.predicate.predicate(), stored.reader
        self.rows = {row.key: row for row in own.select(self._name, self._predicate, self._reader, auth)}
        self._window: Window | None = None
        if stored.selection is not None and stored.selection.limit is not None:
            self._window = Window(stored.selection, {key: row.data or {} for key, row in self.rows.items()})

    def lacking(self, stored: StoredRead, delivered: Mapping[str, int]) -> list[Upsert | LeftRead]:
        """Return the changes that a read which begins or resumes lacks.

        ``delivered`` has the versions that the read was sent before, by key.
        """
        if self._window is not None:
            keys = self._window.first_keys()
            keys_left = sorted(delivered.keys() - set(keys))
            return [*map(self._build_upsert, keys), *map(self._build_left, keys_left)]
        since_lsn, sync_us = stored.since_lsns.get(OWN_PARTITION), stored.sync_us
        changes: list[Upsert | LeftRead] = []
        for row in self.rows.values():
            is_asked = sync_us is not None and row.ts_us >= sync_us
            if is_asked if since_lsn is None else row.lsn > since_lsn:
                changes.append(self._build_upsert(row.key))
        for key in sorted(delivered.keys() - self.rows.keys()):
            left = self._own.row_of(self._name, key)
            if left is not None and left.lsn > (since_lsn or 0):
                changes.append(LeftRead(key, left.ver))
        return changes

    def follow_write(self, key: str, delivered: Mapping[str, int]) -> list[Upsert | LeftRead]:
        """Update the matches by a write of a record; return the changes that the read lacks.

        ``delivered`` has the versions that it was sent, by key. Raise MudkitError if the predicate fails on
        the record.
        """
        selected = self._own.select(self._name, self._predicate, self._reader, self._auth, keys=[key])
        row = next((row for row in selected if row.data is not None), None)
        if row is not None:
            self.rows[key] = row
            moved = {key: True} if self._window is None else self._window.put(key, row.data or {})
        elif self.rows.pop(key, None) is not None or key in delivered:
            moved = {key: False} if self._window is None else self._window.remove(key)
        else:
            return []
        return [self._build_upsert(key) if is_in else self._build_left(key) for key, is_in in moved.items()]

    def _build_upsert(self, key: str) -> Upsert:
        """Build the change of a record that matches."""
        row = self.rows[key]
        return Upsert(row.key, row.ver, row.data or {}, row.predicate, row.ts_us, row.lsn)

    def _build_left(self, key: str) -> LeftRead:
        """Build the change of a record that no longer matches, or has left the window."""
        row = self._own.row_of(self._name, key)
        return LeftRead(key, None if row is None else row.ver)
