"""The subscription index: subscriptions that a record matches and whose readers its writer means.

Subscriptions are grouped by signature. A :class:`Group` finds candidates by key and bounds, as its plan says,
and evaluates the rest of the predicate on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.display import Displayed, View, first_rows, one_line
from mudkit.errors import PredicateError
from mudkit.predicates.index.bounds import Bounds, Places
from mudkit.predicates.index.columns import Batch, Constants, Pairs, PendingPairs, Readers, Rows, WriterPairs
from mudkit.predicates.index.plan import plan
from mudkit.predicates.language import MOBIUS
from mudkit.predicates.predicate import Form, Predicate
from mudkit.predicates.python import compile_tree
from mudkit.predicates.tree import Call, Node, walk
from mudkit.predicates.values import attribute, kind_of

if TYPE_CHECKING:
    import pandas as pd

_EMPTY: Final[Mapping[str, Any]] = {}
BATCH_SIZE: Final = 16_384
"""Records that :meth:`SubscriptionIndex.match_many` matches together."""
MAX_LIST_BUCKET: Final = 8
"""Maximum number of subscriptions of one key in a list, which takes less time and memory than a tree."""
MAX_ONE_BY_ONE: Final = 24
"""Maximum number of candidates for the compiled predicate; NumPy evaluates more."""
_ROW_BITS: Final = 40
"""A subscription's place is one integer, the group's number above the row: a third of a tuple's size."""
_Place: TypeAlias = "tuple[tuple[Any, ...], tuple[float, ...], bool]"
"""Keys and corner of a subscription, and whether the corner is wider than its predicate."""


@check_arguments(types=False)
class SubscriptionIndex(Displayed):
    """Subscriptions with their readers' data; finds those that a record and its writer both mean.

    A subscription is a read predicate over records, which may also read its own reader's data, and that data.
    A record comes with a writer predicate over readers' data. Both predicates must be TRUE (Mobius 3, 5).

    Parameters
    ----------
    tables : mapping of str to mapping, optional
        Tables for ``lookup``: by name of the table, records by primary key.

    Notes
    -----
    Subscriptions of one shape share one signature (NiagaraCQ) and store their constants in NumPy columns.
    Equalities and ``IN`` are looked up by hash, bounds, boxes and circles in a tree
    (:mod:`mudkit.predicates.index.bounds`); the rest is evaluated on the candidates. Results equal those of
    evaluating every subscription. Not thread-safe.

    Examples
    --------
    >>> index = SubscriptionIndex()
    >>> index.add("sub-1", Predicate("topic = 'news' AND price < :most", most=5), receiver={"age": 30})
    >>> index.match({"topic": "news", "price": 3}, writer=Predicate("receiver.age >= 21"))
    ['sub-1']
    """

    def __init__(self, tables: Mapping[str, Mapping[Any, Any]] | None = None) -> None:
        self._tables = tables
        self._groups: dict[int, Group] = {}
        self._numbers: dict[Hashable, int] = {}
        self._next_group = 0
        self._where: dict[Hashable, int] = {}
        self._next_order = 0
        # Names in predicates that no data have had so far; they may be misspelt.
        self._unseen: dict[str, set[tuple[str, ...]]] = {"record": set(), "receiver": set(), "auth": set()}
        self._seen: dict[str, set[tuple[str, ...]]] = {"record": set(), "receiver": set(), "auth": set()}

    def _view(self) -> View:
        rows = (
            (
                one_line(group.form.signature),
                group.size,
                group.plan.indexed or "nothing",
                group.plan.evaluated,
            )
            for group in self._groups.values()
        )
        columns = ("predicate", "subscriptions", "looked up", "evaluated")
        facts = {"subscriptions": len(self), "shapes of predicates": len(self._groups)}
        return View("SubscriptionIndex", facts, [first_rows(columns, rows, len(self._groups))])

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, identity: object) -> bool:
        return identity in self._where

    def add(
        self,
        identity: Hashable,
        predicate: Predicate,
        *,
        receiver: Mapping[str, Any] | None = None,
        auth: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a subscription.

        Parameters
        ----------
        identity : hashable
            Name of the subscription, returned by :meth:`match`.
        predicate : Predicate
            Read predicate.
        receiver : mapping, optional
            Data that the reader states about itself.
        auth : mapping, optional
            Verified data of the reader.

        Raises
        ------
        PredicateError
            The name is taken, or the predicate is not bound or of another language.
        """
        if identity in self._where:
            raise PredicateError(
                "A subscription of this name exists already.",
                found=repr(identity),
                remedy="remove it first, or update its reader's data",
            )
        _check(predicate, "read predicate")
        for data in (receiver, auth):
            if data is not None and not isinstance(data, Mapping):
                raise _no_mapping(data)
        form = predicate.form
        number = self._numbers.get(form.key)
        if number is None:
            number = self._numbers[form.key] = self._next_group
            self._next_group += 1
            kinds = tuple(kind_of(constant) for constant in predicate.constants)
            self._groups[number] = Group(form, kinds)
            self._add_expected_names(predicate)
        group = self._groups[number]
        row = group.add(identity, self._next_order, predicate.constants, receiver or _EMPTY, auth or _EMPTY)
        self._where[identity] = number << _ROW_BITS | row
        self._next_order += 1
        if self._unseen["receiver"] or self._unseen["auth"]:
            self._remove_seen_names(receiver=receiver or _EMPTY, auth=auth or _EMPTY)

    def update(
        self,
        identity: Hashable,
        *,
        receiver: Mapping[str, Any] | None = None,
        auth: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the data of a subscription's reader.

        Parameters
        ----------
        identity : hashable
        receiver, auth : mapping, optional
            New data; ``None`` keeps the present data.

        Raises
        ------
        PredicateError
            There is no such subscription.
        """
        group, row = self._find(identity)
        for scope, data in (("receiver", receiver), ("auth", auth)):
            if data is None:
                continue
            if type(data) is not dict and not isinstance(data, Mapping):
                raise _no_mapping(data)
            group.update(row, scope, data)
            if self._unseen[scope]:
                self._remove_seen_names(**{scope: data})

    def remove(self, identity: Hashable) -> None:
        """Remove a subscription.

        Parameters
        ----------
        identity : hashable

        Raises
        ------
        PredicateError
            There is no such subscription.
        """
        group, row = self._find(identity)
        group.remove(row)
        number = self._where.pop(identity) >> _ROW_BITS
        if not group.size:
            del self._groups[number], self._numbers[group.form.key]

    def _find(self, identity: Hashable) -> tuple[Group, int]:
        """Return the group of a subscription and its row there; raise PredicateError if there is none."""
        place = self._where.get(identity)
        if place is None:
            raise PredicateError(
                "There is no such subscription.",
                found=repr(identity),
                remedy="add it first: add(identity, …)",
            )
        return self._groups[place >> _ROW_BITS], place & ((1 << _ROW_BITS) - 1)

    def match(self, record: Mapping[str, Any], writer: Predicate | None = None) -> list[Any]:
        """Return the subscriptions that match a record, in the order in which they were added.

        Parameters
        ----------
        record : mapping
        writer : Predicate, optional
            Writer predicate over readers; by default every reader may see the record.

        Raises
        ------
        PredicateError
            The writer predicate is not bound.
        """
        if writer is not None:
            _check(writer, "writer predicate")
        if self._unseen["record"]:
            self._remove_seen_names(record=record)
        matches: list[tuple[int, Any]] = []
        for group in self._groups.values():
            rows, _, _ = group.match(record, self._tables)
            if writer is not None and len(rows):
                rows = group.allowed(writer, rows, record, self._tables)
            if isinstance(rows, list):
                matches += [(group.order.item(row), group.ids[row]) for row in rows]
            else:
                ids = group.ids
                matches += [
                    (order, ids[row])
                    for order, row in zip(group.order[rows].tolist(), rows.tolist(), strict=True)
                ]
        matches.sort(key=itemgetter(0))
        return [identity for _, identity in matches]

    def match_many(
        self,
        records: Iterable[Mapping[str, Any]],
        writers: Predicate | Sequence[Predicate | None] | None = None,
    ) -> list[list[Any]]:
        """Return the result of :meth:`match` for each of many records, faster than one by one.

        Parameters
        ----------
        records : iterable of mapping
        writers : Predicate or sequence of Predicate, optional
            One writer predicate for all records, or one for each; ``None`` admits every reader.

        Raises
        ------
        PredicateError
            A writer predicate is not bound, or their number differs from that of the records.
        """
        whole = list(records)
        per_record: list[Predicate | None]
        if writers is None or isinstance(writers, Predicate):
            per_record = [writers] * len(whole)
        else:
            per_record = list(writers)
        if len(per_record) != len(whole):
            raise PredicateError(
                "There must be one writer predicate for each record.",
                found=str(len(per_record)),
                expected=str(len(whole)),
            )
        for writer in {id(writer): writer for writer in per_record}.values():
            if writer is not None:
                _check(writer, "writer predicate")
        matches: list[list[Any]] = []
        for start in range(0, len(whole), BATCH_SIZE):
            matches += self._match_batch(
                whole[start : start + BATCH_SIZE], per_record[start : start + BATCH_SIZE]
            )
        return matches

    def _match_batch(
        self, records: list[Mapping[str, Any]], writers: list[Predicate | None]
    ) -> list[list[Any]]:
        """Return for each record the subscriptions that match, in order of addition.

        ``writers`` has a predicate for each record; None admits every reader.
        """
        for record in records:
            if not self._unseen["record"]:
                break
            self._remove_seen_names(record=record)
        batch = Batch(records, self._tables)
        open_to_all = all(writer is None for writer in writers)
        numbers, orders, ids = [], [], []
        for group in self._groups.values():
            names = None
            for who, rows in group.match_many(batch):
                if not open_to_all:
                    who, rows = group.allowed_many(writers, batch, who, rows)
                if len(rows):
                    names = group.ids
                    numbers.append(who)
                    orders.append(group.order[rows])
                    ids += [names[row] for row in rows.tolist()]
        if not numbers:
            return [[] for _ in records]
        number = np.concatenate(numbers)
        sequence = np.lexsort((np.concatenate(orders), number)).tolist()
        ends = np.cumsum(np.bincount(number, minlength=len(records))).tolist()
        sorted_ids = [ids[place] for place in sequence]
        return [sorted_ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def explain(self, record: Mapping[str, Any], writer: Predicate | None = None) -> pd.DataFrame:
        """Return for each signature how a record was matched.

        Parameters
        ----------
        record : mapping
        writer : Predicate, optional
            Writer predicate over readers.

        Returns
        -------
        DataFrame
            One row for each signature: ``signature``, ``subscriptions``, ``indexed`` (parts that are looked
            up, and how), ``evaluated`` (the other parts), ``scanned`` (subscriptions that the lookup
            compared), ``candidates`` (its result), ``survivors`` (candidates whose read predicate is TRUE),
            ``matches`` (survivors whose reader the writer means), ``never_seen`` (names that no data have had
            so far, perhaps misspelt, with a suggestion).
        """
        import pandas as pd

        if writer is not None:
            _check(writer, "writer predicate")
            self._add_expected_names(writer)
        self._remove_seen_names(record=record)
        rows = []
        for group in self._groups.values():
            survivors, candidates, scanned = group.match(record, self._tables)
            matches = survivors
            if writer is not None and len(survivors):
                matches = group.allowed(writer, survivors, record, self._tables)
            names = [*group.form.names, *(writer.form.names if writer is not None else ())]
            rows.append(
                {
                    "signature": group.form.signature,
                    "subscriptions": group.size,
                    "indexed": "; ".join(group.plan.indexed) or "nothing",
                    "evaluated": "; ".join(group.plan.evaluated) or "nothing",
                    "scanned": scanned,
                    "candidates": candidates,
                    "survivors": len(survivors),
                    "matches": len(matches),
                    "never_seen": ", ".join(
                        ".".join((scope, *path))
                        for scope, path in names
                        if path in self._unseen.get(scope, ())
                    ),
                }
            )
        columns = ["signature", "subscriptions", "indexed", "evaluated", "scanned", "candidates", "survivors",
                   "matches", "never_seen"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    def _add_expected_names(self, predicate: Predicate) -> None:
        """Remember the names in a predicate that no data have had yet, for :meth:`explain`."""
        for scope, path in predicate.form.names:
            if path not in self._seen[scope]:
                self._unseen[scope].add(path)
        for group in self._groups.values():
            for scope, readers in group.readers.items():
                self._unseen[scope] -= {path for path in self._unseen[scope] if path[0] in readers.names}

    def _remove_seen_names(self, **data: Mapping[str, Any]) -> None:
        """Remove the names that data have from those that no data have had; keywords are scopes."""
        for scope, fields in data.items():
            for path in [path for path in self._unseen[scope] if _reaches(fields, path)]:
                self._unseen[scope].discard(path)
                self._seen[scope].add(path)


def _reaches(data: Any, path: tuple[str, ...]) -> bool:
    """Return whether data have a value other than None at a path."""
    for part in path:
        data = attribute(data, part)
    return data is not None


def _no_mapping(data: object) -> PredicateError:
    """Return the error for a reader's data that are no mapping."""
    return PredicateError(
        "The data of a reader must be a mapping.",
        found=type(data).__name__,
        expected='a mapping of names to values such as {"age": 21}',
    )


def _check(predicate: Predicate, what: str) -> None:
    """Raise PredicateError unless a predicate is one of the Mobius language, and bound; ``what`` names it."""
    if not isinstance(predicate, Predicate):
        raise PredicateError(
            f"A {what} must be a Predicate.",
            found=type(predicate).__name__,
            expected="one such as Predicate(\"topic = 'news'\")",
        )
    if predicate.language is not MOBIUS and predicate.language.scopes != MOBIUS.scopes:
        raise PredicateError(
            f"The {what} is of another language.",
            found=", ".join(predicate.language.scopes.names),
            expected=", ".join(MOBIUS.scopes.names),
        )
    if predicate.form.unbound:
        raise PredicateError(
            f"The {what} is not bound: {', '.join(predicate.unbound)} is missing.",
            text=predicate.text,
            remedy="bind(sender={…}) when it is written",
        )


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
        return (
            self._one_by_one(self.form.matches, candidates, record, tables),
            len(candidates),
            len(candidates),
        )

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
                if unchecked.add(np.repeat(who, len(entries)), rows):
                    yield self._kept(self.form.root, batch, unchecked)
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
