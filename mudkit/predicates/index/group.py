"""Subscriptions of one signature in the index: candidates by key and bounds, and the rest on these.

A :class:`Group` finds candidates as its plan says, and evaluates the rest of the predicate on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates.index.bounds import Bounds, Places
from mudkit.predicates.index.columns import Batch, Constants, Pairs, PendingPairs, Readers, Rows, WriterPairs
from mudkit.predicates.index.plan import plan
from mudkit.predicates.predicate import Form, Predicate
from mudkit.predicates.python import compile_tree
from mudkit.predicates.tree import Call, Node, walk

_EMPTY: Final[Mapping[str, Any]] = {}
MAX_LIST_BUCKET: Final = 8
"""Maximum number of subscriptions of one key in a list, which takes less time and memory than a tree."""
MAX_ONE_BY_ONE: Final = 24
"""Maximum number of candidates for the compiled predicate; NumPy evaluates more."""
_Place: TypeAlias = "tuple[tuple[Any, ...], tuple[float, ...], bool]"
"""Keys and corner of a subscription, and whether the corner is wider than its predicate."""


class Group:
    """Subscriptions of one signature: a row for each, found by keys and corner."""

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
        # With IN a subscription has several keys; buckets then contain entries, each with a row.
        self._several = self.plan.several
        self._entry_rows: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._free_entries: list[int] = []
        self._next_entry = 0
        self._entries: dict[int, list[int]] = {}

    @staticmethod
    def _names(form: Form, scope: str) -> list[str]:
        """Return the first parts of the names that a predicate reads in a scope, sorted."""
        return sorted({path[0] for where, path in form.names if where == scope})

    def add(
        self,
        identity: Any,
        order: int,
        constants: tuple[Any, ...],
        receiver: Mapping[str, Any],
        auth: Mapping[str, Any],
    ) -> int:
        """Add a subscription and return its row."""
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
        """Grow all columns to rows 0 to ``rows - 1``."""
        self.order = np.concatenate([self.order, np.zeros(rows - len(self.order), dtype=np.int64)])
        self.constants.reserve(rows)
        for readers in self.readers.values():
            readers.reserve(rows)
        if not self._several:
            self._places.reserve(rows)

    def remove(self, row: int) -> None:
        """Remove the subscription of a row; the row is used again."""
        self._leave(row, self._place(row))
        self.ids[row] = None
        self.constants.clear(row)
        for readers in self.readers.values():
            readers.put(row, _EMPTY)
        self._free.append(row)
        self.size -= 1

    def update(self, row: int, scope: str, data: Mapping[str, Any]) -> None:
        """Replace the data of a row's reader in a scope, and move the row if its place depends on them."""
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
        """Return the place of a subscription, or ``None`` if its reader's data exclude every match."""
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
        """Add a row to the buckets of its place; without a place it is in none, and never found."""
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
        """Remove a row from the buckets of its place."""
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
        """Add an entry to the bucket of a key; a bucket that grows large becomes a tree of bounds."""
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = entry
        elif isinstance(bucket, int):
            self._buckets[key] = [bucket, entry]
        elif isinstance(bucket, Bounds):
            bucket.insert(entry, corner)
        elif len(bucket) < MAX_LIST_BUCKET:
            bucket.append(entry)
        else:
            whole = self._buckets[key] = Bounds(self.plan.sides, self._places)
            for other in bucket:
                place = self._place(self._row(other))
                assert place is not None
                whole.insert(other, place[1])
            whole.insert(entry, corner)

    def _drop(self, key: Any, entry: int) -> None:
        """Remove an entry from the bucket of a key; a bucket that becomes small is a list again."""
        bucket = self._buckets[key]
        if isinstance(bucket, int):
            del self._buckets[key]
        elif isinstance(bucket, list):
            bucket.remove(entry)
            if len(bucket) == 1:
                self._buckets[key] = bucket[0]
        else:
            bucket.remove(entry)
            if bucket.size <= MAX_LIST_BUCKET // 2:
                self._buckets[key] = bucket.all()

    def _row(self, entry: int) -> int:
        """Return the row of an entry: the entry itself, unless subscriptions have several keys."""
        return int(self._entry_rows[entry]) if self._several else entry

    def _rows(self, entries: Rows) -> Rows:
        """Return the row of each of some entries."""
        return self._entry_rows[entries] if self._several else entries

    @cached_property
    def _evaluates_rows(self) -> bool:
        """True if a user's function has no NumPy form."""
        return not _has_numpy(self.form)

    def match(
        self, record: Mapping[str, Any], tables: Mapping[str, Any] | None
    ) -> tuple[Rows | list[int], int, int]:
        """Return the rows that a record matches, and the numbers of candidates and of rows compared."""
        probed = self.plan.probe(None, tables, record, _EMPTY, _EMPTY, _EMPTY)
        if probed is None:
            return [], 0, 0
        bucket = self._buckets.get(probed[0])
        if bucket is None:
            return [], 0, 0
        if isinstance(bucket, Bounds):
            entries, scanned = bucket.query(np.array(probed[1]))
            rows = self._rows(entries)
            return self._holding(self._rest, rows, record, tables), len(rows), scanned
        entries_ = [bucket] if isinstance(bucket, int) else bucket
        candidates = [self._row(entry) for entry in entries_] if self._several else entries_
        matching = candidates
        if not self.plan.is_key_all:
            matching = self._one_by_one(self.form.matches, candidates, record, tables)
        return matching, len(candidates), len(candidates)

    @property
    def _rest(self) -> Node | None:
        """Condition to evaluate on candidates; with loosely placed subscriptions, also their boxes.

        None: no condition.
        """
        return self.plan.rest_loose if self._loose else self.plan.rest

    def _holding(
        self, part: Node | None, rows: Rows, record: Mapping[str, Any], tables: Mapping[str, Any] | None
    ) -> Rows | list[int]:
        """Return the rows for which a part of the read predicate is TRUE."""
        if part is None or not len(rows):
            return rows
        if len(rows) <= MAX_ONE_BY_ONE or self._evaluates_rows:
            return self._one_by_one(self._compiled(part), rows.tolist(), record, tables)
        return self._true(part, Batch([record], tables), np.zeros(len(rows), dtype=np.intp), rows)[1]

    def _compiled(self, part: Node) -> Callable[..., bool]:
        """Return the compiled test of the whole predicate or of one of the plan's rests."""
        if part is self.form.root:
            return self.form.matches
        return self._rest_loose_matches if part is self.plan.rest_loose else self._rest_matches

    @cached_property
    def _rest_matches(self) -> Callable[..., bool]:
        """Compiled test of the plan's ``rest``, which is not None."""
        assert self.plan.rest is not None
        return compile_tree(self.plan.rest, self.form.scopes, only_true=True)

    @cached_property
    def _rest_loose_matches(self) -> Callable[..., bool]:
        """Compiled test of the plan's ``rest_loose``, which is not None."""
        assert self.plan.rest_loose is not None
        return compile_tree(self.plan.rest_loose, self.form.scopes, only_true=True)

    def _one_by_one(
        self,
        matches: Callable[..., bool],
        rows: list[int],
        record: Mapping[str, Any],
        tables: Mapping[str, Any] | None,
    ) -> list[int]:
        """Return the rows for which a compiled test is True for a record, without NumPy."""
        receiver, auth = self._needs["receiver"], self._needs["auth"]
        of_receiver, of_auth = self.readers["receiver"].of, self.readers["auth"].of
        of = self.constants.of
        return [
            row
            for row in rows
            if matches(
                of(row),
                tables,
                record,
                of_receiver(row, receiver) if receiver else _EMPTY,
                of_auth(row, auth) if auth else _EMPTY,
                _EMPTY,
            )
        ]

    def allowed(
        self,
        writer: Predicate,
        rows: Rows | list[int],
        record: Mapping[str, Any],
        tables: Mapping[str, Any] | None,
    ) -> Rows | list[int]:
        """Return the rows whose readers a writer predicate admits."""
        form = writer.form
        if len(rows) <= MAX_ONE_BY_ONE or not _has_numpy(form):
            receiver, auth = self._names(form, "receiver"), self._names(form, "auth")
            of_receiver, of_auth = self.readers["receiver"].of, self.readers["auth"].of
            matches, constants = form.matches, writer.constants
            return [
                row
                for row in (rows if isinstance(rows, list) else rows.tolist())
                if matches(
                    constants,
                    tables,
                    record,
                    of_receiver(row, receiver) if receiver else _EMPTY,
                    of_auth(row, auth) if auth else _EMPTY,
                    _EMPTY,
                )
            ]
        array = np.asarray(rows)
        numbers = np.zeros(len(array), dtype=np.intp)
        batch = Batch([record], tables)
        pairs = WriterPairs(batch, numbers, array, self.readers, self.constants, [writer])
        return array[pairs.true(form.root)]

    def match_many(self, batch: Batch) -> Iterator[tuple[NDArray[np.intp], Rows]]:
        """Yield indices of records, and rows of subscriptions that match them."""
        probe, tables = self.plan.probe, batch.tables
        by_key: dict[Any, tuple[list[int], list[Any]]] = {}
        for number, record in enumerate(batch.records):
            probed = probe(None, tables, record, _EMPTY, _EMPTY, _EMPTY)
            if probed is not None and probed[0] in self._buckets:
                numbers, points = by_key.setdefault(probed[0], ([], []))
                numbers.append(number)
                points.append(probed[1])
        checked, unchecked = PendingPairs(), PendingPairs()
        for key, (numbers, points) in by_key.items():
            bucket = self._buckets[key]
            who = np.array(numbers, dtype=np.intp)
            if isinstance(bucket, Bounds):
                for which, entries in bucket.query_many(np.array(points).T.copy()):
                    if checked.add(who[which], self._rows(entries)):
                        yield self._kept(self._rest, batch, checked)
            else:
                entries = np.atleast_1d(np.array(bucket, dtype=np.int32))
                rows = np.tile(self._rows(entries), len(who))
                if self.plan.is_key_all:
                    pending, part = checked, self._rest
                else:
                    pending, part = unchecked, self.form.root
                if pending.add(np.repeat(who, len(entries)), rows):
                    yield self._kept(part, batch, pending)
        yield self._kept(self._rest, batch, checked)
        yield self._kept(self.form.root, batch, unchecked)

    def _kept(self, part: Node | None, batch: Batch, gathered: PendingPairs) -> tuple[NDArray[np.intp], Rows]:
        """Remove the collected pairs, and return those for which a condition is TRUE; all without one."""
        numbers, rows = gathered.take()
        if part is None or not len(rows):
            return numbers, rows
        if self._evaluates_rows:
            matches = self._compiled(part)
            keep = [
                bool(self._one_by_one(matches, [row], batch.records[number], batch.tables))
                for number, row in zip(numbers.tolist(), rows.tolist(), strict=True)
            ]
            return numbers[keep], rows[keep]
        return self._true(part, batch, numbers, rows)

    def _true(
        self, part: Node, batch: Batch, numbers: NDArray[np.intp], rows: Rows
    ) -> tuple[NDArray[np.intp], Rows]:
        """Return the pairs for which a condition is TRUE, with NumPy."""
        keep = Pairs(batch, numbers, rows, self.readers, self.constants).true(part)
        return numbers[keep], rows[keep]

    def allowed_many(
        self, writers: list[Predicate | None], batch: Batch, numbers: NDArray[np.intp], rows: Rows
    ) -> tuple[NDArray[np.intp], Rows]:
        """Return the pairs for which the record's writer predicate is TRUE."""
        if not len(rows):
            return numbers, rows
        # Writer predicates of one signature are evaluated together.
        forms: dict[Any, int] = {None: 0}
        which = np.array(
            [0 if w is None else forms.setdefault(w.form.key, len(forms)) for w in writers], dtype=np.intp
        )[numbers]
        keep = which == 0
        for key, code in forms.items():
            if key is None:
                continue
            here = np.flatnonzero(which == code)
            if not len(here):
                continue
            first = writers[int(numbers[here[0]])]
            assert first is not None
            if _has_numpy(first.form):
                pairs = WriterPairs(batch, numbers[here], rows[here], self.readers, self.constants, writers)
                keep[here[pairs.true(first.form.root)]] = True
            else:
                for place in here.tolist():
                    number = int(numbers[place])
                    writer = writers[number]
                    assert writer is not None
                    keep[place] = bool(
                        len(self.allowed(writer, [int(rows[place])], batch.records[number], batch.tables))
                    )
        return numbers[keep], rows[keep]


def _has_numpy(form: Form) -> bool:
    """Return whether NumPy can evaluate a predicate: each user's function in it has a NumPy form."""
    return not any(
        isinstance(n, Call) and n.function.is_user and n.function.numpy is None for n in walk(form.root)
    )
