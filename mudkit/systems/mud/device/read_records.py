"""Records of a continuous read on the device: what the processors sent, and what its own writes make of it.

A record is shown as the first of these has it:

=========  =========================================================================================
pending    own writes of it that the store has not decided, applied to what the device has
untold     the version that the store made of an own write, until the processors tell of it; or that a
           later one has left the read, while own writes of it may be older
sent       the version that the processors sent last
=========  =========================================================================================

The application is notified when what is shown becomes another record or another version. So each change that
is pending is followed by one that is not, as soon as no own write of the record is pending: the committed
version, or what was there before. What the processors send of a record meanwhile is not shown before that,
and the version that an own write became is not notified again when they tell of it, unless its columns are
others: the table was altered, and the device did not know.

Untold versions are no part of what registrations name: processors know nothing of them. Once a session has
sent all up to their position they are dropped, for then what was sent is the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from mudkit.events import Store
from mudkit.systems.mud.messages.notifications import LeftRead, Upsert
from mudkit.systems.mud.result import Change
from mudkit.wire import Fields


class SentRecord(Struct, frozen=True):
    """Version of a record that a processor has sent; that of a window with the column of its order, too."""

    ver: int
    data: Fields


class OwnRecord(Struct, frozen=True):
    """Record as own writes have made it; ``data`` None: it does not belong to the read.

    ``ver`` None: they are pending. Else the store has committed this version, at the position ``lsn`` of an
    incarnation of its log. ``is_told`` False: the application did not know of the record, and need not hear
    that it is gone.
    """

    data: Fields | None
    ver: int | None = None
    lsn: int = 0
    log_incarnation: str = ""
    is_told: bool = True


_NOTHING = OwnRecord(None)


class _Shown(NamedTuple):
    """Record as it is shown; ``ver`` None: it is pending, 0: nothing is known of it."""

    ver: int | None
    record: Fields | None


class ReadRecords:
    """Records of one continuous read without a limit, durable.

    ``delivered`` has the versions that the processors have sent, by key.
    """

    def __init__(self, store: Store, handle: int) -> None:
        self._store = store
        self._sent_prefix = f"read {handle:09d} "
        self._untold_prefix, self._pending_prefix = f"untold {handle:09d} ", f"pending {handle:09d} "
        self._sent = {
            key.removeprefix(self._sent_prefix): sent
            for key, sent in store.items(self._sent_prefix, SentRecord)
        }
        self._untold = self._load(self._untold_prefix)
        self._pending = self._load(self._pending_prefix)
        self.delivered = {key: sent.ver for key, sent in self._sent.items()}

    def receive(
        self,
        change: Upsert | LeftRead,
        data: Fields,
        pending: OwnRecord | None,
        *,
        log_incarnation: str,
        is_former: bool = False,
    ) -> list[Change]:
        """Store a change that a processor has sent; return that of which the application is notified.

        ``data`` are the columns that are delivered, ``pending`` what own writes make of the record now. The
        version is of an incarnation of the log; ``is_former``: the device knows of a later one, so that what
        the store has made of own writes there is newer.
        """
        key, before = change.key, self._shown(change.key)
        # None: the version is hidden, and the record leaves with the one that was known.
        version = (self._committed(key).ver or 0) if change.ver is None else change.ver
        untold = self._untold.get(key)
        # A hidden version is told at a registration, whose end says what is untold.
        is_own_newer = False
        if untold is not None:
            is_same = untold.log_incarnation == log_incarnation
            is_own_newer = (change.ver or 0) < (untold.ver or 0) if is_same else is_former
        if not is_own_newer:
            is_left = isinstance(change, LeftRead) and change.ver is not None and pending is not None
            left = OwnRecord(None, change.ver, log_incarnation=log_incarnation) if is_left else None
            self._put_own(self._untold, self._untold_prefix, key, left)
        if isinstance(change, Upsert):
            self._sent[key], self.delivered[key] = SentRecord(version, data), version
            self._store.put(f"{self._sent_prefix}{key}", self._sent[key])
        elif key in self._sent:
            del self._sent[key], self.delivered[key]
            self._store.delete(f"{self._sent_prefix}{key}")
        self._put_pending(key, pending, before)
        return self._compare(key, before, version)

    def follow_own(
        self, key: str, pending: OwnRecord | None, committed: OwnRecord | None = None
    ) -> list[Change]:
        """Show what own writes make of a record; return that of which the application is notified.

        ``committed`` is what the store has made of one; None: nothing, or the processors have to tell.
        """
        before, version = self._shown(key), 0
        if committed is not None and committed.ver is not None:
            version, untold = committed.ver, self._untold.get(key, _NOTHING)
            if (
                max(self.delivered.get(key, 0), untold.ver or 0) < version
            ):  # a deletion, too: older versions may be on their way
                self._put_own(self._untold, self._untold_prefix, key, committed)
        self._put_pending(key, pending, before)
        return self._compare(key, before, version)

    def drop_untold(self, passed_lsn: Callable[[str], int], log_incarnation: str) -> list[Change]:
        """Drop the untold versions that the processors have passed, and those of other log incarnations.

        ``passed_lsn`` returns the position up to which all changes of a key were sent.
        """
        changes: list[Change] = []
        for key, untold in list(self._untold.items()):
            if untold.lsn <= passed_lsn(key) or untold.log_incarnation != log_incarnation:
                before = self._shown(key)
                self._put_own(self._untold, self._untold_prefix, key, None)
                self._put_pending(key, self._pending.get(key), before)
                changes += self._compare(key, before, untold.ver or 0)
        return changes

    def own_keys(self) -> set[str]:
        """Return the keys of the records that are shown as pending."""
        return set(self._pending)

    def shown(self) -> dict[str, tuple[int | None, Fields]]:
        """Return version and columns of all records that are shown, by key; version None: pending."""
        keys = sorted({*self._sent, *self._untold, *self._pending})
        shown = {key: self._shown(key) for key in keys}
        return {key: (ver, record) for key, (ver, record) in shown.items() if record is not None}

    def delete(self) -> None:
        """Delete all that is stored of the records."""
        for prefix, records in (
            (self._sent_prefix, self._sent),
            (self._untold_prefix, self._untold),
            (self._pending_prefix, self._pending),
        ):
            for key in records:
                self._store.delete(f"{prefix}{key}")

    def _load(self, prefix: str) -> dict[str, OwnRecord]:
        """Return what is stored of own writes under a prefix, by key."""
        return {key.removeprefix(prefix): own for key, own in self._store.items(prefix, OwnRecord)}

    def _put_pending(self, key: str, pending: OwnRecord | None, before: _Shown) -> None:
        """Store what is pending of a record, None: nothing.

        A pending delete is not stored if no version is committed; ``before`` is what was shown.
        """
        if pending is not None and pending.data is None:
            if self._committed(key).record is None:
                pending = None
            elif before.record is None and before.ver is not None:
                pending = OwnRecord(None, is_told=False)
        self._put_own(self._pending, self._pending_prefix, key, pending)

    def _put_own(self, records: dict[str, OwnRecord], prefix: str, key: str, own: OwnRecord | None) -> None:
        """Store what own writes make of a record, under a prefix; None: nothing."""
        if own is not None:
            records[key] = own
            self._store.put(f"{prefix}{key}", own)
        elif records.pop(key, None) is not None:
            self._store.delete(f"{prefix}{key}")

    def _committed(self, key: str) -> _Shown:
        """Return what is shown of a record while no own write of it is pending."""
        if (untold := self._untold.get(key)) is not None:
            return _Shown(untold.ver, untold.data)
        sent = self._sent.get(key)
        return _Shown(0, None) if sent is None else _Shown(sent.ver, sent.data)

    def _shown(self, key: str) -> _Shown:
        """Return how a record is shown, by its pending writes if any, else as committed."""
        pending = self._pending.get(key)
        if pending is None:
            return self._committed(key)
        return _Shown(None if pending.is_told else 0, pending.data)

    def _compare(self, key: str, before: _Shown, version: int) -> list[Change]:
        """Return the change from what was shown of a record; ``version`` is that of one that has left."""
        after = self._shown(key)
        is_pending, is_new = after.ver is None, before.record is None
        if after == before:
            return []
        if after.record is not None:
            return [Change("upsert", key, after.record, after.ver, is_new=is_new, is_pending=is_pending)]
        if is_new and (is_pending or before.ver is not None):
            return []
        left = None if is_pending else after.ver or version
        return [Change("remove", key, None, left, is_pending=is_pending)]
