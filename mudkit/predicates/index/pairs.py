"""Pairs of record and subscription, as the NumPy evaluator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates.index.columns import Constants, Readers, one_by_one
from mudkit.predicates.tree import Node, conjuncts
from mudkit.predicates.values import Members
from mudkit.predicates.vector import Vector
from mudkit.predicates.vectors import truth

if TYPE_CHECKING:
    from mudkit.predicates.predicate import Predicate

__all__ = ["Batch", "Gathered", "Pairs", "Rows", "WriterPairs"]

Rows: TypeAlias = NDArray[Any]
"""Rows of subscriptions in their group's columns."""

_PAIRS: Final = 100_000
"""Pairs that are evaluated at a time."""
_NO_ROWS: Final = np.zeros(0, dtype=np.int32)


class Batch:
    """Records that are matched together, and their columns.

    Parameters
    ----------
    records : list of mapping
    tables : mapping, optional
        The tables for ``lookup``.
    """

    def __init__(self, records: list[Mapping[str, Any]], tables: Mapping[str, Any] | None) -> None:
        self.records = records
        self.tables = tables
        self._columns: dict[tuple[str, ...], Vector] = {}

    def vector(self, path: tuple[str, ...], numbers: NDArray[np.intp]) -> Vector:
        """Give what the records have at a path, for some of them."""
        if path not in self._columns:
            self._columns[path] = one_by_one(self.records, path)
        return self._columns[path].take(numbers)


class Pairs:
    """Pairs as a read predicate sees them: its constants are those of the subscription.

    Parameters
    ----------
    batch : Batch
    numbers : array of int
        Which record of the batch, by pair.
    rows : array of int
        Which subscription, by pair.
    readers : mapping of str to Readers
        The readers' attributes, by scope.
    constants : Constants
    """

    def __init__(
        self,
        batch: Batch,
        numbers: NDArray[np.intp],
        rows: Rows,
        readers: Mapping[str, Readers],
        constants: Constants,
    ) -> None:
        self.tables = batch.tables
        self._batch = batch
        self._numbers = numbers
        self._rows = rows
        self._readers = readers
        self._constants = constants

    def column(self, scope: str, path: tuple[str, ...]) -> Vector:
        """Give the values of a name."""
        if scope == "record":
            return self._batch.vector(path, self._numbers)
        readers = self._readers.get(scope)
        return Vector() if readers is None else readers.vector(path, self._rows)

    def slot(self, slot: int) -> Vector:
        """Give the constants of a slot."""
        return self._constants.vector(slot, self._rows)

    def members(self, slot: int) -> list[Members]:
        """Give the lists of a slot."""
        return self._constants.members(slot, self._rows)

    def true(self, part: Node) -> NDArray[np.intp]:
        """Find the pairs for which a condition is TRUE.

        Its parts are evaluated one after the other, each on what those before it have left.

        Returns
        -------
        array of int
            Positions, in order.
        """
        left = np.arange(len(self._rows))
        pairs = self
        for conjunct in conjuncts(part):
            here = np.flatnonzero(np.broadcast_to(truth(conjunct, pairs)[0], len(left)))
            if len(here) < len(left):
                left = left[here]
                if not len(left):
                    break
                pairs = pairs.some(here)
        return left

    def some(self, here: NDArray[np.intp]) -> Pairs:
        """Give some of the pairs."""
        return Pairs(self._batch, self._numbers[here], self._rows[here], self._readers, self._constants)


class WriterPairs(Pairs):
    """Pairs as a writer predicate sees them: its constants are those of the record's writer.

    Parameters
    ----------
    writers : list of Predicate
        The writers' predicates, by record of the batch; all of one signature where a pair needs them.
    """

    def __init__(
        self,
        batch: Batch,
        numbers: NDArray[np.intp],
        rows: Rows,
        readers: Mapping[str, Readers],
        constants: Constants,
        writers: list[Predicate | None],
    ) -> None:
        super().__init__(batch, numbers, rows, readers, constants)
        self._who, self._index = np.unique(numbers, return_inverse=True)
        self._writers = writers

    def some(self, here: NDArray[np.intp]) -> WriterPairs:
        """Give some of the pairs."""
        return WriterPairs(
            self._batch, self._numbers[here], self._rows[here], self._readers, self._constants, self._writers
        )

    def _of_writers(self, slot: int) -> list[Any]:
        writers = [self._writers[number] for number in self._who.tolist()]
        return [writer.constants[slot] for writer in writers if writer is not None]

    def slot(self, slot: int) -> Vector:
        """Give the constants of a slot."""
        return Vector.of(self._of_writers(slot)).take(self._index)

    def members(self, slot: int) -> list[Members]:
        """Give the lists of a slot."""
        lists = self._of_writers(slot)
        return lists if len(lists) == 1 else [lists[number] for number in self._index.tolist()]


class Gathered:
    """Pairs that wait until there are enough for one vectorised evaluation."""

    def __init__(self) -> None:
        self._numbers: list[NDArray[np.intp]] = []
        self._rows: list[Rows] = []
        self._count = 0

    def add(self, numbers: NDArray[np.intp], rows: Rows) -> bool:
        """Take pairs, and say whether it is time to evaluate."""
        self._numbers.append(numbers)
        self._rows.append(rows)
        self._count += len(rows)
        return self._count >= _PAIRS

    def take(self) -> tuple[NDArray[np.intp], Rows]:
        """Give all pairs and begin anew."""
        if not self._rows:
            return np.zeros(0, dtype=np.intp), _NO_ROWS
        gathered = np.concatenate(self._numbers), np.concatenate(self._rows)
        self._numbers, self._rows, self._count = [], [], 0
        return gathered
