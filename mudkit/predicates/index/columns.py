"""Growable NumPy columns of subscriptions, and pairs of record and subscription for the NumPy evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates.tree import Node, conjuncts
from mudkit.predicates.values import (
    BOOLEAN,
    LIST,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Members,
    Point,
    attribute,
    kind_of,
    value,
)
from mudkit.predicates.vectors import Vector, constant, keep_objects, reach, truth

if TYPE_CHECKING:
    from mudkit.predicates.predicate import Predicate

_NOTHING: Final = Vector()


def _larger(array: NDArray[Any], rows: int, fill: Any) -> NDArray[Any]:
    """Return a copy of an array with more rows, filled with ``fill`` at the end."""
    whole = np.full(rows, fill, dtype=array.dtype)
    whole[: len(array)] = array
    return whole


class Constants:
    """Constants of the subscriptions of one signature: a column for each slot, of the slot's kind."""

    __slots__ = ("_columns", "_kinds")

    def __init__(self, kinds: tuple[int, ...]) -> None:
        self._kinds = kinds
        self._columns: list[NDArray[Any]] = [self._empty(kind) for kind in kinds]

    @staticmethod
    def _empty(kind: int) -> NDArray[Any]:
        """Return a column without rows for constants of a kind."""
        if kind == POINT:
            return np.zeros((0, 2))
        return np.zeros(0, dtype={NUMBER: np.float64, BOOLEAN: np.bool_}.get(kind, np.object_))

    def reserve(self, rows: int) -> None:
        """Enlarge the columns for rows 0 to ``rows - 1``; they never shrink."""
        for slot, column in enumerate(self._columns):
            if self._kinds[slot] == NULL:
                continue
            if self._kinds[slot] == POINT:
                self._columns[slot] = np.concatenate([column, np.zeros((rows - len(column), 2))])
            else:
                self._columns[slot] = _larger(column, rows, None if column.dtype == object else 0)

    def put(self, row: int, constants: tuple[Any, ...]) -> None:
        """Store the constants of a row, one for each slot."""
        for column, kind, item in zip(self._columns, self._kinds, constants, strict=True):
            if kind != NULL:
                column[row] = item

    def clear(self, row: int) -> None:
        """Drop the references of a row to objects, so that they are freed; the row may then be used again."""
        for column in self._columns:
            if column.dtype == object and len(column):
                column[row] = None

    def of(self, row: int) -> tuple[Any, ...]:
        """Return the constants of a row, one for each slot; None for NULL."""
        return tuple(
            [
                column.item(row)
                if kind in (NUMBER, BOOLEAN)
                else None
                if kind == NULL
                else Point(*column[row].tolist())
                if kind == POINT
                else column[row]
                for column, kind in zip(self._columns, self._kinds, strict=True)
            ]
        )

    def vector(self, slot: int, rows: NDArray[Any]) -> Vector:
        """Return the constants that some rows have in a slot, as a column."""
        kind, column = self._kinds[slot], self._columns[slot]
        match kind:
            case _ if kind == NUMBER:
                return Vector(numbers=column[rows])
            case _ if kind == STRING:
                return Vector(strings=column[rows])
            case _ if kind == BOOLEAN:
                return Vector(true=column[rows], false=~column[rows])
            case _ if kind == POINT:
                pairs = column[rows]
                return Vector(lat=pairs[:, 0], lon=pairs[:, 1])
            case _ if kind == STRUCT:
                return Vector(structs=column[rows])
        return _NOTHING

    def members(self, slot: int, rows: NDArray[Any]) -> list[Members]:
        """Return the constant lists that some rows have in a slot; it must be a slot of lists."""
        assert self._kinds[slot] == LIST
        return list(self._columns[slot][rows])


class _Attribute:
    """One attribute of readers, of any kind: an array for each kind that has occurred."""

    __slots__ = ("kinds", "lat", "lon", "numbers", "objects", "truths")

    def __init__(self, rows: int) -> None:
        self.kinds = np.zeros(rows, dtype=np.uint8)
        self.numbers: NDArray[np.float64] | None = None
        self.lat: NDArray[np.float64] | None = None
        self.lon: NDArray[np.float64] | None = None
        self.truths: NDArray[np.bool_] | None = None
        self.objects: NDArray[np.object_] | None = None

    def reserve(self, rows: int) -> None:
        """Enlarge the columns for rows 0 to ``rows - 1``."""
        self.kinds = _larger(self.kinds, rows, NULL)
        for name, fill in (
            ("numbers", np.nan),
            ("lat", np.nan),
            ("lon", np.nan),
            ("truths", False),
            ("objects", None),
        ):
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, _larger(array, rows, fill))

    def put(self, row: int, data: Any) -> None:
        """Set the value of a row from data of any kind; what was there is forgotten."""
        item = value(data)
        kind = kind_of(item)
        if self.kinds[row] != kind:
            self._forget(row)
            self.kinds[row] = kind
        if kind == NUMBER:
            if self.numbers is None:
                self.numbers = np.full(len(self.kinds), np.nan)
            self.numbers[row] = item  # type: ignore[assignment]
        elif kind == POINT:
            if self.lat is None or self.lon is None:
                self.lat, self.lon = np.full(len(self.kinds), np.nan), np.full(len(self.kinds), np.nan)
            self.lat[row], self.lon[row] = item  # type: ignore[misc, str-unpack]
            if isinstance(data, Mapping) or self.objects is not None:
                self._keep(row, data if isinstance(data, Mapping) and len(data) > 2 else None)
        elif kind == BOOLEAN:
            if self.truths is None:
                self.truths = np.zeros(len(self.kinds), dtype=np.bool_)
            self.truths[row] = item
        elif kind != NULL:
            self._keep(row, item)

    def _keep(self, row: int, item: Any) -> None:
        """Store an object for a row, or None; the array of objects is made for the first one."""
        if self.objects is None and item is not None:
            self.objects = np.full(len(self.kinds), None, dtype=object)
        if self.objects is not None:
            self.objects[row] = item

    def _forget(self, row: int) -> None:
        """Erase what the row has of its present kind; the kind stays."""
        kind = self.kinds[row]
        if kind == NUMBER and self.numbers is not None:
            self.numbers[row] = np.nan
        elif kind == POINT and self.lat is not None and self.lon is not None:
            self.lat[row] = self.lon[row] = np.nan
        if self.objects is not None:
            self.objects[row] = None

    def clear(self, row: int) -> None:
        """Set the value of a row to NULL."""
        if self.kinds[row] != NULL:
            self._forget(row)
            self.kinds[row] = NULL

    def of(self, row: int) -> Any:
        """Return the value of a row; None if it is NULL."""
        kind = self.kinds[row]
        if kind == NUMBER and self.numbers is not None:
            return self.numbers.item(row)
        if kind == POINT and self.lat is not None and self.lon is not None:
            if self.objects is not None and self.objects[row] is not None:
                return self.objects[row]
            return Point(self.lat.item(row), self.lon.item(row))
        if kind == BOOLEAN and self.truths is not None:
            return self.truths.item(row)
        return None if kind == NULL or self.objects is None else self.objects[row]

    def vector(self, rows: NDArray[Any]) -> Vector:
        """Return the values of some rows as a column."""
        column = Vector()
        if self.numbers is not None:
            column.numbers = self.numbers[rows]
        if self.lat is not None and self.lon is not None:
            column.lat, column.lon = self.lat[rows], self.lon[rows]
        if self.truths is not None:
            present, truths = self.kinds[rows] == BOOLEAN, self.truths[rows]
            column.true, column.false = present & truths, present & ~truths
        if self.objects is not None:
            kinds, objects = self.kinds[rows], self.objects[rows]
            if (kinds == STRING).any():
                column.strings = keep_objects(objects, kinds == STRING)
            structs = (kinds == STRUCT) | (kinds == POINT)
            if structs.any():
                column.structs = keep_objects(objects, structs)
        return column


class Readers:
    """Data of the readers of one signature's subscriptions: a column for each attribute that has occurred."""

    __slots__ = ("_attributes", "_rows")

    def __init__(self) -> None:
        self._attributes: dict[str, _Attribute] = {}
        self._rows = 0

    @property
    def names(self) -> list[str]:
        """Attributes that have occurred."""
        return list(self._attributes)

    def reserve(self, rows: int) -> None:
        """Enlarge the columns of all attributes for rows 0 to ``rows - 1``."""
        self._rows = rows
        for attribute_ in self._attributes.values():
            attribute_.reserve(rows)

    def put(self, row: int, data: Mapping[str, Any]) -> None:
        """Replace a reader's data; attributes that ``data`` does not have become NULL."""
        attributes = self._attributes
        for name, item in data.items():
            if name not in attributes:
                attributes[name] = _Attribute(self._rows)
            attributes[name].put(row, item)
        if len(data) < len(attributes):
            for name, attribute_ in attributes.items():
                if name not in data:
                    attribute_.clear(row)

    def of(self, row: int, names: Iterator[str] | list[str] | None = None) -> dict[str, Any]:
        """Return a reader's data, all attributes or those of ``names``; None where the reader has none."""
        attributes = self._attributes
        return {
            name: attributes[name].of(row)
            for name in (names if names is not None else attributes)
            if name in attributes
        }

    def vector(self, path: tuple[str, ...], rows: NDArray[Any]) -> Vector:
        """Return an attribute, at a path into it, for some rows."""
        attribute = self._attributes.get(path[0])
        return _NOTHING if attribute is None else reach(attribute.vector(rows), path[1:])


def record_column(items: list[Any], path: tuple[str, ...]) -> Vector:
    """Build a column of the values of mappings at a path."""
    if len(items) == 1:
        return constant(_at(items[0], path))
    return Vector.of([_at(item, path) for item in items])


def _at(item: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path into nested mappings; None, which is NULL, where the path ends early."""
    for part in path:
        item = attribute(item, part)
    return value(item)


Rows: TypeAlias = NDArray[Any]
"""Rows of subscriptions in the columns of their group."""

MAX_PENDING_PAIRS: Final = 100_000
"""Number of pairs at which they are evaluated."""
_NO_ROWS: Final = np.zeros(0, dtype=np.int32)


class Batch:
    """Records that are matched together, and their columns; ``tables`` are for ``lookup``."""

    def __init__(self, records: list[Mapping[str, Any]], tables: Mapping[str, Any] | None) -> None:
        self.records = records
        self.tables = tables
        self._columns: dict[tuple[str, ...], Vector] = {}

    def vector(self, path: tuple[str, ...], numbers: NDArray[np.intp]) -> Vector:
        """Return the values that some records, given by number, have at a path, as a column."""
        if path not in self._columns:
            self._columns[path] = record_column(self.records, path)
        return self._columns[path].take(numbers)


class Pairs:
    """Pairs of a record and a subscription, whose constants a read predicate sees."""

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
        """Return the values of a name, one for each pair; NULL in a scope that neither side has."""
        if scope == "record":
            return self._batch.vector(path, self._numbers)
        readers = self._readers.get(scope)
        return Vector() if readers is None else readers.vector(path, self._rows)

    def slot(self, slot: int) -> Vector:
        """Return the constants of a slot, one for each pair."""
        return self._constants.vector(slot, self._rows)

    def members(self, slot: int) -> list[Members]:
        """Return the constant lists of a slot, one for each pair."""
        return self._constants.members(slot, self._rows)

    def true(self, part: Node) -> NDArray[np.intp]:
        """Return the positions of the pairs for which a condition is TRUE, conjunct after conjunct."""
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
        """Return the pairs at some positions in this order."""
        return Pairs(self._batch, self._numbers[here], self._rows[here], self._readers, self._constants)


class WriterPairs(Pairs):
    """Pairs as a writer predicate sees them: constants come from the record's writer."""

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
        """Return the pairs at some positions in this order."""
        return WriterPairs(
            self._batch, self._numbers[here], self._rows[here], self._readers, self._constants, self._writers
        )

    def _of_writers(self, slot: int) -> list[Any]:
        """Return the constant of a slot for each distinct record, in the order of their numbers."""
        writers = [self._writers[number] for number in self._who.tolist()]
        return [writer.constants[slot] for writer in writers if writer is not None]

    def slot(self, slot: int) -> Vector:
        """Return the writer's constant of a slot, one for each pair."""
        return Vector.of(self._of_writers(slot)).take(self._index)

    def members(self, slot: int) -> list[Members]:
        """Return the writer's list of a slot, one for each pair, or one alone if there is one record."""
        lists = self._of_writers(slot)
        return lists if len(lists) == 1 else [lists[number] for number in self._index.tolist()]


class PendingPairs:
    """Pairs collected for one vectorised evaluation."""

    def __init__(self) -> None:
        self._numbers: list[NDArray[np.intp]] = []
        self._rows: list[Rows] = []
        self._count = 0

    def add(self, numbers: NDArray[np.intp], rows: Rows) -> bool:
        """Add pairs; return whether there are enough to evaluate."""
        self._numbers.append(numbers)
        self._rows.append(rows)
        self._count += len(rows)
        return self._count >= MAX_PENDING_PAIRS

    def take(self) -> tuple[NDArray[np.intp], Rows]:
        """Return all pairs, as numbers of records and rows of subscriptions, and forget them."""
        if not self._rows:
            return np.zeros(0, dtype=np.intp), _NO_ROWS
        gathered = np.concatenate(self._numbers), np.concatenate(self._rows)
        self._numbers, self._rows, self._count = [], [], 0
        return gathered
