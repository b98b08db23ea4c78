"""Growable NumPy columns: constants of subscriptions, data of readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
from mudkit.predicates.vector import Vector, constant, only, reach

__all__ = ["Constants", "Readers", "one_by_one"]

_NOTHING: Final = Vector()


def _larger(array: NDArray[Any], rows: int, fill: Any) -> NDArray[Any]:
    whole = np.full(rows, fill, dtype=array.dtype)
    whole[: len(array)] = array
    return whole


class Constants:
    """The constants of the subscriptions of one signature: a column a slot, of the slot's kind.

    Parameters
    ----------
    kinds : tuple of int
        The kind of each constant, by slot.
    """

    __slots__ = ("_columns", "_kinds")

    def __init__(self, kinds: tuple[int, ...]) -> None:
        self._kinds = kinds
        self._columns: list[NDArray[Any]] = [self._empty(kind) for kind in kinds]

    @staticmethod
    def _empty(kind: int) -> NDArray[Any]:
        if kind == POINT:
            return np.zeros((0, 2))
        return np.zeros(0, dtype={NUMBER: np.float64, BOOLEAN: np.bool_}.get(kind, np.object_))

    def reserve(self, rows: int) -> None:
        """Make room for rows 0 to ``rows - 1``."""
        for slot, column in enumerate(self._columns):
            if self._kinds[slot] == NULL:
                continue
            if self._kinds[slot] == POINT:
                self._columns[slot] = np.concatenate([column, np.zeros((rows - len(column), 2))])
            else:
                self._columns[slot] = _larger(column, rows, None if column.dtype == object else 0)

    def put(self, row: int, constants: tuple[Any, ...]) -> None:
        """Keep the constants of a row."""
        for column, kind, item in zip(self._columns, self._kinds, constants, strict=True):
            if kind != NULL:
                column[row] = item

    def clear(self, row: int) -> None:
        """Let go of the objects of a row."""
        for column in self._columns:
            if column.dtype == object and len(column):
                column[row] = None

    def of(self, row: int) -> tuple[Any, ...]:
        """Give the constants of a row."""
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
        """Give the constants of a slot for some rows."""
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
        """Give the lists of a slot for some rows."""
        assert self._kinds[slot] == LIST
        return list(self._columns[slot][rows])


class _Attribute:
    """One attribute of readers' data: of any kind, an array for each kind that came."""

    __slots__ = ("kinds", "lat", "lon", "numbers", "objects", "truths")

    def __init__(self, rows: int) -> None:
        self.kinds = np.zeros(rows, dtype=np.uint8)
        self.numbers: NDArray[np.float64] | None = None
        self.lat: NDArray[np.float64] | None = None
        self.lon: NDArray[np.float64] | None = None
        self.truths: NDArray[np.bool_] | None = None
        self.objects: NDArray[np.object_] | None = None

    def reserve(self, rows: int) -> None:
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
        if self.objects is None and item is not None:
            self.objects = np.full(len(self.kinds), None, dtype=object)
        if self.objects is not None:
            self.objects[row] = item

    def _forget(self, row: int) -> None:
        kind = self.kinds[row]
        if kind == NUMBER and self.numbers is not None:
            self.numbers[row] = np.nan
        elif kind == POINT and self.lat is not None and self.lon is not None:
            self.lat[row] = self.lon[row] = np.nan
        if self.objects is not None:
            self.objects[row] = None

    def clear(self, row: int) -> None:
        if self.kinds[row] != NULL:
            self._forget(row)
            self.kinds[row] = NULL

    def of(self, row: int) -> Any:
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
        column = Vector()
        if self.numbers is not None:
            column.numbers = self.numbers[rows]
        if self.lat is not None and self.lon is not None:
            column.lat, column.lon = self.lat[rows], self.lon[rows]
        if self.truths is not None:
            there, truths = self.kinds[rows] == BOOLEAN, self.truths[rows]
            column.true, column.false = there & truths, there & ~truths
        if self.objects is not None:
            kinds, objects = self.kinds[rows], self.objects[rows]
            if (kinds == STRING).any():
                column.strings = only(objects, kinds == STRING)
            structs = (kinds == STRUCT) | (kinds == POINT)
            if structs.any():
                column.structs = only(objects, structs)
        return column


class Readers:
    """Data of the readers of one signature's subscriptions: a column for each attribute that came."""

    __slots__ = ("_attributes", "_rows")

    def __init__(self) -> None:
        self._attributes: dict[str, _Attribute] = {}
        self._rows = 0

    @property
    def names(self) -> list[str]:
        """Attributes that some reader has had."""
        return list(self._attributes)

    def reserve(self, rows: int) -> None:
        """Make room for rows 0 to ``rows - 1``."""
        self._rows = rows
        for attribute_ in self._attributes.values():
            attribute_.reserve(rows)

    def put(self, row: int, data: Mapping[str, Any]) -> None:
        """Keep a reader's data instead of those before."""
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
        """Give a reader's data, all or some names."""
        attributes = self._attributes
        return {
            name: attributes[name].of(row)
            for name in (names if names is not None else attributes)
            if name in attributes
        }

    def vector(self, path: tuple[str, ...], rows: NDArray[Any]) -> Vector:
        """Give an attribute for some rows."""
        attribute = self._attributes.get(path[0])
        return _NOTHING if attribute is None else reach(attribute.vector(rows), path[1:])


def one_by_one(items: list[Any], path: tuple[str, ...]) -> Vector:
    """Make a column of what each mapping has at a path."""
    if len(items) == 1:
        return constant(_at(items[0], path))
    return Vector.of([_at(item, path) for item in items])


def _at(item: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        item = attribute(item, part)
    return value(item)
