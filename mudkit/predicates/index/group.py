"""The subscriptions of one signature: where they are, and which of them a record meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates.form import Form
from mudkit.predicates.index.bounds import Bounds
from mudkit.predicates.index.group_rows import GroupRows
from mudkit.predicates.index.pairs import Batch, Gathered, Pairs, Rows, WriterPairs
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.python import compile_tree
from mudkit.predicates.tree import Call, Node, walk

__all__ = ["Group"]

_EMPTY: Final[Mapping[str, Any]] = {}
ONE_BY_ONE: Final = 24
"""Up to so many candidates are evaluated by the compiled predicate, more by NumPy."""


class Group(GroupRows):
    """Subscriptions of one signature.

    Parameters
    ----------
    form : Form
    kinds : tuple of int
        Kinds of the constants.
    """

    @cached_property
    def _evaluates_rows(self) -> bool:
        """Whether some user's function has no NumPy form."""
        return any(
            isinstance(n, Call) and n.function.is_user and n.function.numpy is None
            for n in walk(self.form.root)
        )

    # What changes it

    # What asks it

    def match(
        self, record: Mapping[str, Any], tables: Mapping[str, Any] | None
    ) -> tuple[Rows | list[int], int, int]:
        """Find the subscriptions whose read predicate a record meets.

        Returns
        -------
        rows : sequence of int
        candidates, scanned : int
            Subscriptions that the lookup gave, and those that it looked at.
        """
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
        return (
            self._one_by_one(self.form.matches, candidates, record, tables),
            len(candidates),
            len(candidates),
        )

    @property
    def _rest(self) -> Node | None:
        return self.plan.rest_loose if self._loose else self.plan.rest

    def _holding(
        self, part: Node | None, rows: Rows, record: Mapping[str, Any], tables: Mapping[str, Any] | None
    ) -> Rows | list[int]:
        """Keep the rows for which a part of the read predicate is TRUE."""
        if part is None or not len(rows):
            return rows
        if len(rows) <= ONE_BY_ONE or self._evaluates_rows:
            return self._one_by_one(self._compiled(part), rows.tolist(), record, tables)
        return self._true(part, Batch([record], tables), np.zeros(len(rows), dtype=np.intp), rows)[1]

    def _compiled(self, part: Node) -> Callable[..., bool]:
        if part is self.form.root:
            return self.form.matches
        return self._rest_loose_matches if part is self.plan.rest_loose else self._rest_matches

    @cached_property
    def _rest_matches(self) -> Callable[..., bool]:
        assert self.plan.rest is not None
        return compile_tree(self.plan.rest, self.form.scopes, only_true=True)

    @cached_property
    def _rest_loose_matches(self) -> Callable[..., bool]:
        assert self.plan.rest_loose is not None
        return compile_tree(self.plan.rest_loose, self.form.scopes, only_true=True)

    def _one_by_one(
        self,
        matches: Callable[..., bool],
        rows: list[int],
        record: Mapping[str, Any],
        tables: Mapping[str, Any] | None,
    ) -> list[int]:
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
        """Keep the rows for whose readers a writer predicate is TRUE."""
        form = writer.form
        if len(rows) <= ONE_BY_ONE or not _has_numpy(form):
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
        """Find the subscriptions for many records.

        Yields
        ------
        numbers : array of int
            Which record.
        rows : array of int
            A subscription whose read predicate that record meets.
        """
        probe, tables = self.plan.probe, batch.tables
        by_key: dict[Any, tuple[list[int], list[Any]]] = {}
        for number, record in enumerate(batch.records):
            probed = probe(None, tables, record, _EMPTY, _EMPTY, _EMPTY)
            if probed is not None and probed[0] in self._buckets:
                numbers, points = by_key.setdefault(probed[0], ([], []))
                numbers.append(number)
                points.append(probed[1])
        checked, unchecked = Gathered(), Gathered()
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
                if unchecked.add(np.repeat(who, len(entries)), rows):
                    yield self._kept(self.form.root, batch, unchecked)
        yield self._kept(self._rest, batch, checked)
        yield self._kept(self.form.root, batch, unchecked)

    def _kept(self, part: Node | None, batch: Batch, gathered: Gathered) -> tuple[NDArray[np.intp], Rows]:
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
        keep = Pairs(batch, numbers, rows, self.readers, self.constants).true(part)
        return numbers[keep], rows[keep]

    def allowed_many(
        self, writers: list[Predicate | None], batch: Batch, numbers: NDArray[np.intp], rows: Rows
    ) -> tuple[NDArray[np.intp], Rows]:
        """Keep the pairs for which the record's writer predicate is TRUE."""
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
    return not any(
        isinstance(n, Call) and n.function.is_user and n.function.numpy is None for n in walk(form.root)
    )
