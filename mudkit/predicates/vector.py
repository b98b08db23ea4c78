"""Columns of values: one array for each kind that there may be.

NULL is NaN in numbers and points and ``None`` in strings; a condition is a pair of masks, TRUE and FALSE, and
NULL is where neither holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates import values
from mudkit.predicates.values import BOOLEAN, NUMBER, POINT, STRING, STRUCT, Point

__all__ = [
    "Floats", "Masks", "Objects", "Vector", "constant", "from_data", "is_there", "only", "points", "reach",
]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Masks: TypeAlias = NDArray[np.bool_]
Objects: TypeAlias = NDArray[np.object_]


@dataclass(slots=True)
class Vector:
    """Values of many rows, an array for each kind that they may have; of length 1 when all rows share one.

    Attributes
    ----------
    numbers : array of float64
        NaN where the value is not a number.
    strings : array of object
        ``None`` where it is not a string.
    true, false : array of bool
        Where it is a boolean.
    lat, lon : array of float64
        NaN where it is not a point.
    structs : array of object
        Mappings, and ``None``; also those of points that have more attributes than two.
    """

    numbers: Floats | None = None
    strings: Objects | None = None
    true: Masks | None = None
    false: Masks | None = None
    lat: Floats | None = None
    lon: Floats | None = None
    structs: Objects | None = None

    @classmethod
    def of(cls, items: list[Any]) -> Vector:
        """Sort values (see :func:`~mudkit.predicates.values.value`) by kind into arrays."""
        kinds = np.array([values.kind_of(item) for item in items], dtype=np.uint8)
        vector = cls()
        present = int(np.bitwise_or.reduce(kinds, initial=0))
        if present & NUMBER:
            vector.numbers = np.array(
                [x if k == NUMBER else np.nan for x, k in zip(items, kinds, strict=True)], dtype=np.float64
            )
        if present & STRING:
            vector.strings = _objects([x if k == STRING else None for x, k in zip(items, kinds, strict=True)])
        if present & BOOLEAN:
            vector.true = np.array([x is True for x in items], dtype=np.bool_)
            vector.false = np.array([x is False for x in items], dtype=np.bool_)
        if present & POINT:
            pairs = np.array(
                [x if k == POINT else (np.nan, np.nan) for x, k in zip(items, kinds, strict=True)],
                dtype=np.float64,
            )
            vector.lat, vector.lon = pairs[:, 0], pairs[:, 1]
        if present & STRUCT:
            vector.structs = _objects([x if k == STRUCT else None for x, k in zip(items, kinds, strict=True)])
        return vector

    @property
    def kinds(self) -> int:
        """Kinds that there may be."""
        return (
            (NUMBER if self.numbers is not None else 0)
            | (STRING if self.strings is not None else 0)
            | (BOOLEAN if self.true is not None else 0)
            | (POINT if self.lat is not None else 0)
            | (STRUCT if self.structs is not None else 0)
        )

    @property
    def length(self) -> int:
        """Rows, or 1 when all rows share one value."""
        arrays = (self.numbers, self.strings, self.true, self.false, self.lat, self.lon, self.structs)
        # Each array may have one value for all rows: also one mask of a condition whose other mask has many.
        return int(np.broadcast_shapes((1,), *(array.shape for array in arrays if array is not None))[0])

    def is_there(self) -> Masks:
        """Where the value is not NULL."""
        there = np.zeros(1, dtype=np.bool_)
        if self.numbers is not None:
            there = there | ~np.isnan(self.numbers)
        if self.strings is not None:
            there = there | is_there(self.strings)
        if self.true is not None and self.false is not None:
            there = there | self.true | self.false
        if self.lat is not None:
            there = there | ~np.isnan(self.lat)
        if self.structs is not None:
            there = there | is_there(self.structs)
        return there

    def only(self, kinds: int) -> Vector:
        """Drop what is of another kind."""
        if not self.kinds & ~kinds:
            return self
        return Vector(
            self.numbers if kinds & NUMBER else None,
            self.strings if kinds & STRING else None,
            *((self.true, self.false) if kinds & BOOLEAN else (None, None)),
            *((self.lat, self.lon) if kinds & POINT else (None, None)),
            self.structs if kinds & STRUCT else None,
        )

    def where(self, here: Masks) -> Vector:
        """Make the values NULL where a mask does not hold."""
        return Vector(
            None if self.numbers is None else np.where(here, self.numbers, np.nan),
            None if self.strings is None else only(self.strings, here),
            None if self.true is None else self.true & here,
            None if self.false is None else self.false & here,
            None if self.lat is None else np.where(here, self.lat, np.nan),
            None if self.lon is None else np.where(here, self.lon, np.nan),
            None if self.structs is None else only(self.structs, here),
        )

    def take(self, rows: NDArray[np.intp]) -> Vector:
        """Give the values of some rows."""

        def of(array: Any) -> Any:
            return None if array is None else array if len(array) == 1 else array[rows]

        return Vector(
            of(self.numbers),
            of(self.strings),
            of(self.true),
            of(self.false),
            of(self.lat),
            of(self.lon),
            of(self.structs),
        )

    def rows(self) -> list[Any]:
        """Give the values one by one."""
        length = self.length
        values: list[Any] = [None] * length
        for array in (self.numbers, self.strings, self.structs):
            if array is not None:
                for row, item in enumerate(np.broadcast_to(array, length)):
                    if item is not None and item == item:
                        values[row] = float(item) if array is self.numbers else item
        if self.true is not None and self.false is not None:
            for row, (yes, no) in enumerate(
                zip(*np.broadcast_arrays(self.true, self.false, np.empty(length))[:2], strict=True)
            ):
                if yes or no:
                    values[row] = bool(yes)
        if self.lat is not None and self.lon is not None:
            for row, (lat, lon) in enumerate(
                zip(*np.broadcast_arrays(self.lat, self.lon, np.empty(length))[:2], strict=True)
            ):
                if lat == lat:
                    values[row] = Point(float(lat), float(lon))
        return values


def is_there(objects: Objects) -> Masks:
    """Tell where there is something."""
    there: Masks = np.not_equal(objects, None).astype(np.bool_)  # type: ignore[call-overload]
    return there


def only(objects: Objects, here: Masks) -> Objects:
    """Put NULL where a mask does not hold."""
    values: Objects = np.where(here, objects, None)  # type: ignore[call-overload]
    return values


def from_data(data: Any) -> Vector:
    """Make a column of data.

    Parameters
    ----------
    data : array_like
        See :meth:`mudkit.predicates.Predicate.numpy`.

    Returns
    -------
    Vector
    """
    if isinstance(data, (str, bytes, tuple, Mapping)) or np.isscalar(data) or data is None:
        return constant(values.value(data))
    array = (
        data
        if isinstance(data, np.ndarray)
        else np.ma.asarray(data)
        if hasattr(data, "mask")
        else _array(data)
    )
    mask = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    vector = _from_array(np.ma.getdata(array))
    if mask is None:
        return vector
    return vector.where(~np.asarray(mask.any(axis=1) if mask.ndim == 2 else mask))


def _array(data: Any) -> NDArray[Any]:
    if isinstance(data, (list, tuple)):
        objects = np.empty(len(data), dtype=object)
        objects[:] = [*data, None][:-1]
        return objects
    return np.asarray(data)


def _from_array(array: NDArray[Any]) -> Vector:
    kind = array.dtype.kind
    if array.ndim == 2 and array.shape[1] == 2 and kind in "fiu":
        return points(_floats(array[:, 0]), _floats(array[:, 1]))
    if array.ndim == 1 and kind in "fiu":
        return Vector(numbers=_floats(array))
    if array.ndim == 1 and kind == "b":
        return Vector(true=array.astype(np.bool_), false=~array.astype(np.bool_))
    if array.ndim == 1 and kind == "M":
        seconds = array.astype("datetime64[us]")
        return Vector(numbers=np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 1e6))
    return Vector.of([values.value(item) for item in array])


def _floats(array: NDArray[Any]) -> Floats:
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        return np.where(np.isfinite(wide), wide, np.nan)
    fits = array <= values.BIGGEST_INTEGER
    if array.dtype.kind == "i":
        fits &= array >= -values.BIGGEST_INTEGER
    return np.where(fits, array, np.nan).astype(np.float64)


def points(lat: Floats, lon: Floats) -> Vector:
    """Make points of coordinates; those beyond the poles or the date line are NULL."""
    fits = (np.abs(lat) <= 90.0) & (np.abs(lon) <= 180.0)
    return Vector(lat=np.where(fits, lat, np.nan), lon=np.where(fits, lon, np.nan))


def _objects(items: list[Any]) -> Objects:
    array = np.empty(len(items), dtype=object)
    for number, item in enumerate(items):
        array[number] = item
    return array


def constant(item: Any) -> Vector:
    """Make a column of length 1 of one value."""
    return Vector.of([item])


def reach(vector: Vector, path: tuple[str, ...]) -> Vector:
    """Follow a path into structs and points."""
    if not path:
        return vector
    if path in (("lat",), ("lon",)) and vector.structs is None:
        return Vector(numbers=vector.lat if path == ("lat",) else vector.lon)
    items = vector.rows()
    if vector.structs is not None:
        # A struct that is a point as well may have more attributes than these two.
        structs = np.broadcast_to(vector.structs, len(items))
        items = [item if struct is None else struct for item, struct in zip(items, structs, strict=True)]
    for part in path:
        items = [values.attribute(_pair(item), part) for item in items]
    return Vector.of([values.value(item) for item in items])


def _pair(item: Any) -> Any:
    return (item.lat, item.lon) if isinstance(item, Point) else item
