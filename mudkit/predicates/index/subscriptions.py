"""The subscription index: subscriptions that a record matches and whose readers its writer means.

Subscriptions are grouped by signature (:mod:`mudkit.predicates.index.group`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit.checks import check_arguments
from mudkit.display import Displayed, View, first_rows, one_line
from mudkit.errors import PredicateError
from mudkit.predicates.index.columns import Batch
from mudkit.predicates.index.group import Group
from mudkit.predicates.language import MOBIUS
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.values import attribute, kind_of

if TYPE_CHECKING:
    import pandas as pd

_EMPTY: Final[Mapping[str, Any]] = {}
BATCH_SIZE: Final = 16_384
"""Records that :meth:`SubscriptionIndex.match_many` matches together."""
_ROW_BITS: Final = 40
"""A subscription's place is one integer, the group's number above the row: a third of a tuple's size."""


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

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the names of the subscriptions, in the order in which they were added."""
        return iter(self._where)

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

    def reader(self, identity: Hashable) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the data of a subscription's reader, as predicates see them, without NULLs.

        Parameters
        ----------
        identity : hashable

        Returns
        -------
        tuple of dict
            What it states about itself, and its verified data.

        Raises
        ------
        PredicateError
            There is no such subscription.
        """
        group, row = self._find(identity)
        receiver, auth = (
            {name: item for name, item in readers.of(row).items() if item is not None}
            for readers in group.readers.values()
        )
        return receiver, auth

    def holds(self, identity: Hashable, record: Mapping[str, Any]) -> bool:
        """Return whether the read predicate of one subscription is TRUE of a record, for any writer.

        Parameters
        ----------
        identity : hashable
        record : mapping

        Raises
        ------
        PredicateError
            There is no such subscription, or its predicate fails on the record.
        """
        group, row = self._find(identity)
        receiver, auth = self.reader(identity)
        constants = group.constants.of(row)
        return group.form.evaluate(constants, self._tables, record, receiver, auth, _EMPTY) is True

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
