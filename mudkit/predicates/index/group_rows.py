"""The subscriptions of one signature: each a row, found by the keys and the corner of where it belongs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates.form import Form
from mudkit.predicates.index.bounds import Bounds, Places
from mudkit.predicates.index.columns import Constants, Readers
from mudkit.predicates.index.pairs import Rows
from mudkit.predicates.index.plan import plan

__all__ = ["GroupRows"]

_EMPTY: Final[Mapping[str, Any]] = {}
LIST: Final = 8
"""Up to so many subscriptions of one key are a plain list: cheaper in time and memory."""
_Place: TypeAlias = "tuple[tuple[Any, ...], tuple[float, ...], bool]"


class GroupRows:
    """Keeps subscriptions of one signature, and where each is looked for.

    Parameters
    ----------
    form : Form
        What they have in common.
    kinds : tuple of int
        The kinds of their constants.
    """

    def __init__(self, form: Form, kinds: tuple[int, ...]) -> None:
        self.form = form
        self.plan = plan(form.root, form.scopes)
        self.constants = Constants(kinds)
        self.readers = {"receiver": Readers(), "auth": Readers()}
        self.ids: list[Any] = []
        self.order: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.size = 0
        self._free: list[int] = []
        self._buckets: dict[Any, int | list[int] | Bounds] = {}
        self._places = Places()
        self._loose = 0
        self._needs = {scope: self._names(form, scope) for scope in self.readers}
        # With IN a subscription stands under several keys, so what stands there is an entry, not a row.
        self._several = self.plan.several
        self._entry_rows: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._free_entries: list[int] = []
        self._next_entry = 0
        self._entries: dict[int, list[int]] = {}

    @staticmethod
    def _names(form: Form, scope: str) -> list[str]:
        return sorted({path[0] for where, path in form.names if where == scope})

    def add(
        self,
        identity: Any,
        order: int,
        constants: tuple[Any, ...],
        receiver: Mapping[str, Any],
        auth: Mapping[str, Any],
    ) -> int:
        """Put a subscription in and give its row."""
        if self._free:
            row = self._free.pop()
            self.ids[row] = identity
        else:
            row = len(self.ids)
            self.ids.append(identity)
            if row == len(self.order):
                self._reserve(max(16, 2 * row))
        self.order[row] = order
        self.constants.put(row, constants)
        if receiver:
            self.readers["receiver"].put(row, receiver)
        if auth:
            self.readers["auth"].put(row, auth)
        self.size += 1
        self._enter(row, self._place(row, constants))
        return row

    def _reserve(self, rows: int) -> None:
        self.order = np.concatenate([self.order, np.zeros(rows - len(self.order), dtype=np.int64)])
        self.constants.reserve(rows)
        for readers in self.readers.values():
            readers.reserve(rows)
        if not self._several:
            self._places.reserve(rows)

    def remove(self, row: int) -> None:
        """Take a subscription out."""
        self._leave(row, self._place(row))
        self.ids[row] = None
        self.constants.clear(row)
        for readers in self.readers.values():
            readers.put(row, _EMPTY)
        self._free.append(row)
        self.size -= 1

    def update(self, row: int, scope: str, data: Mapping[str, Any]) -> None:
        """Give a subscription's reader other data."""
        if scope not in self.plan.readers:
            self.readers[scope].put(row, data)
            return
        before = self._place(row)
        self.readers[scope].put(row, data)
        after = self._place(row)
        if before == after:
            return
        if not self._several and before is not None and after is not None and before[0] == after[0]:
            bucket = self._buckets[before[0][0]]
            self._loose += after[2] - before[2]
            if isinstance(bucket, Bounds):
                bucket.move(row, after[1])
            return
        self._leave(row, before)
        self._enter(row, after)

    def _place(self, row: int, constants: tuple[Any, ...] | None = None) -> _Place | None:
        """Tell where a subscription belongs, or that nothing can match it as its reader's data are."""
        if constants is None:
            constants = self.constants.of(row)
        receiver, auth = _EMPTY, _EMPTY
        if self.plan.readers:
            receiver, auth = self.readers["receiver"].of(row), self.readers["auth"].of(row)
        place: _Place | None = self.plan.place(constants, None, _EMPTY, receiver, auth, _EMPTY)
        if place is None or math.inf in place[1]:
            return None
        return place

    def _enter(self, row: int, place: _Place | None) -> None:
        if place is None:
            return
        keys, corner, loose = place
        self._loose += loose
        if not self._several:
            self._put(keys[0], row, corner)
            return
        entries = []
        for key in keys:
            entry = self._free_entries.pop() if self._free_entries else self._next_entry
            if entry == self._next_entry:
                self._next_entry += 1
                if entry >= len(self._entry_rows):
                    size = max(16, 2 * len(self._entry_rows))
                    self._entry_rows = np.resize(self._entry_rows, size)
                    self._places.reserve(size)
            self._entry_rows[entry] = row
            entries.append(entry)
            self._put(key, entry, corner)
        self._entries[row] = entries

    def _leave(self, row: int, place: _Place | None) -> None:
        if place is None:
            return
        keys, _, loose = place
        self._loose -= loose
        if not self._several:
            self._drop(keys[0], row)
            return
        for key, entry in zip(keys, self._entries.pop(row), strict=True):
            self._drop(key, entry)
            self._free_entries.append(entry)

    def _put(self, key: Any, entry: int, corner: tuple[float, ...]) -> None:
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = entry
        elif isinstance(bucket, int):
            self._buckets[key] = [bucket, entry]
        elif isinstance(bucket, Bounds):
            bucket.insert(entry, corner)
        elif len(bucket) < LIST:
            bucket.append(entry)
        else:
            whole = self._buckets[key] = Bounds(self.plan.sides, self._places)
            for other in bucket:
                place = self._place(self._row(other))
                assert place is not None
                whole.insert(other, place[1])
            whole.insert(entry, corner)

    def _drop(self, key: Any, entry: int) -> None:
        bucket = self._buckets[key]
        if isinstance(bucket, int):
            del self._buckets[key]
        elif isinstance(bucket, list):
            bucket.remove(entry)
            if len(bucket) == 1:
                self._buckets[key] = bucket[0]
        else:
            bucket.remove(entry)
            if bucket.size <= LIST // 2:
                self._buckets[key] = bucket.all()

    def _row(self, entry: int) -> int:
        return int(self._entry_rows[entry]) if self._several else entry

    def _rows(self, entries: Rows) -> Rows:
        return self._entry_rows[entries] if self._several else entries
