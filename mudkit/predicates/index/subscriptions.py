"""The subscription index: finds the subscriptions that a record reaches, both ways."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit.display import Displayed, View, first_rows, one_line
from mudkit.errors import PredicateError
from mudkit.predicates.index.group import Group
from mudkit.predicates.index.pairs import Batch
from mudkit.predicates.language import MOBIUS
from mudkit.predicates.predicate import Predicate
from mudkit.predicates.values import attribute, kind_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SubscriptionIndex"]

_EMPTY: Final[Mapping[str, Any]] = {}
_BATCH: Final = 16_384
_SHIFT: Final = 40
"""A subscription's place is one integer, its group's number above its row: a tuple is three times as big."""


class SubscriptionIndex(Displayed):
    """Index of subscriptions: finds those that match a record and its writer predicate.

    A subscription is a read predicate over records (and its own reader's data) with the reader's data. A
    record has a writer predicate over readers' data. Both must be TRUE.

    Parameters
    ----------
    tables : mapping of str to mapping, optional
        Tables for ``lookup`` by name, each with records by primary key.

    Notes
    -----
    Mobius 2.2, 5: predicates on both sides, matched at the processors. Subscriptions of one shape share one
    signature (NiagaraCQ) and keep their constants in NumPy columns. Equalities and ``IN`` are looked up by
    hash, bounds, boxes and circles in a tree (:mod:`mudkit.predicates.index.bounds`); other parts are
    evaluated on the candidates, one by one or vectorised. Results are those of evaluating every
    subscription.

    Not thread-safe.

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
        # Names that predicates ask for and no data have had so far: most likely misspelt.
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
            Name that :meth:`match` returns.
        predicate : Predicate
            Read predicate.
        receiver : mapping, optional
            Data that the reader reports.
        auth : mapping, optional
            Claims of the reader's token.

        Raises
        ------
        PredicateError
            The name is taken, or the predicate is unbound or of another language.
        """
        if identity in self._where:
            raise PredicateError(
                "A subscription of this name is there already.",
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
            self._expect(predicate)
        group = self._groups[number]
        row = group.add(identity, self._next_order, predicate.constants, receiver or _EMPTY, auth or _EMPTY)
        self._where[identity] = number << _SHIFT | row
        self._next_order += 1
        if self._unseen["receiver"] or self._unseen["auth"]:
            self._see(receiver=receiver or _EMPTY, auth=auth or _EMPTY)

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
            New data; None: unchanged.

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
                self._see(**{scope: data})

    def remove(self, identity: Hashable) -> None:
        """Remove a subscription.

        Raises
        ------
        PredicateError
            There is no such subscription.
        """
        group, row = self._find(identity)
        group.remove(row)
        number = self._where.pop(identity) >> _SHIFT
        if not group.size:
            del self._groups[number], self._numbers[group.form.key]

    def _find(self, identity: Hashable) -> tuple[Group, int]:
        place = self._where.get(identity)
        if place is None:
            raise PredicateError(
                "There is no such subscription.",
                found=repr(identity),
                remedy="add it first: add(identity, …)",
            )
        return self._groups[place >> _SHIFT], place & ((1 << _SHIFT) - 1)

    def match(self, record: Mapping[str, Any], writer: Predicate | None = None) -> list[Any]:
        """Return the subscriptions that a record matches.

        Parameters
        ----------
        record : mapping
        writer : Predicate, optional
            Writer predicate; by default all readers.

        Returns
        -------
        list
            Names in the order in which they were added.

        Raises
        ------
        PredicateError
            The writer predicate is unbound.
        """
        if writer is not None:
            _check(writer, "writer predicate")
        if self._unseen["record"]:
            self._see(record=record)
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
        matches.sort(key=_first)
        return [identity for _, identity in matches]

    def match_many(
        self,
        records: Iterable[Mapping[str, Any]],
        writers: Predicate | Sequence[Predicate | None] | None = None,
    ) -> list[list[Any]]:
        """Return the subscriptions that each of many records matches, faster than one by one.

        Parameters
        ----------
        records : iterable of mapping
        writers : Predicate or sequence of Predicate, optional
            One for all, or one per record; ``None``: all readers.

        Returns
        -------
        list of list
            Result of :meth:`match` for each record.

        Raises
        ------
        PredicateError
            A writer predicate is unbound, or their number is not that of the records.
        """
        whole = list(records)
        each = [writers] * len(whole) if writers is None or isinstance(writers, Predicate) else list(writers)
        if len(each) != len(whole):
            raise PredicateError(
                "There must be one writer predicate for each record.",
                found=str(len(each)),
                expected=str(len(whole)),
            )
        for writer in {id(writer): writer for writer in each}.values():
            if writer is not None:
                _check(writer, "writer predicate")
        matches: list[list[Any]] = []
        for start in range(0, len(whole), _BATCH):
            matches += self._match_batch(whole[start : start + _BATCH], each[start : start + _BATCH])
        return matches

    def _match_batch(
        self, records: list[Mapping[str, Any]], writers: list[Predicate | None]
    ) -> list[list[Any]]:
        for record in records:
            if not self._unseen["record"]:
                break
            self._see(record=record)
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
        """Return for each signature how a record is matched.

        Parameters
        ----------
        record : mapping
        writer : Predicate, optional

        Returns
        -------
        DataFrame
            One row per signature: ``signature``, ``subscriptions``, ``indexed`` (parts that are looked up,
            and how), ``evaluated`` (other parts), ``scanned`` (subscriptions that the lookup compared),
            ``candidates`` (its result), ``survivors`` (those whose read predicate is TRUE), ``matches``
            (those whose reader satisfies the writer predicate, too), ``never_seen`` (names that no data had
            so far, perhaps misspelt, with a suggestion if a name resembles a scope).
        """
        import pandas as pd

        if writer is not None:
            _check(writer, "writer predicate")
            self._expect(writer)
        self._see(record=record)
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
                        _unseen(scope, path) for scope, path in names if path in self._unseen.get(scope, ())
                    ),
                }
            )
        columns = ["signature", "subscriptions", "indexed", "evaluated", "scanned", "candidates", "survivors",
                   "matches", "never_seen"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    def _expect(self, predicate: Predicate) -> None:
        for scope, path in predicate.form.names:
            if path not in self._seen[scope]:
                self._unseen[scope].add(path)
        for group in self._groups.values():
            for scope, readers in group.readers.items():
                self._unseen[scope] -= {path for path in self._unseen[scope] if path[0] in readers.names}

    def _see(self, **data: Mapping[str, Any]) -> None:
        for scope, fields in data.items():
            for path in [path for path in self._unseen[scope] if _reaches(fields, path)]:
                self._unseen[scope].discard(path)
                self._seen[scope].add(path)


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _unseen(scope: str, path: tuple[str, ...]) -> str:
    meant = MOBIUS.meant(scope, path)
    return ".".join((scope, *path)) + ("" if meant is None else f" (did you mean {meant}?)")


def _reaches(data: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        data = attribute(data, part)
    return data is not None


def _no_mapping(data: object) -> PredicateError:
    return PredicateError(
        "A reader's data are a mapping.",
        found=type(data).__name__,
        expected='a mapping of names to values such as {"age": 21}',
    )


def _check(predicate: Predicate, what: str) -> None:
    if not isinstance(predicate, Predicate):
        raise PredicateError(
            f"A {what} is a Predicate.",
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
