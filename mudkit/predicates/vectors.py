"""The NumPy evaluator: a tree over columns, one vectorised operation for each node.

A column is a :class:`Vector`. A condition is a pair of masks, TRUE and FALSE, and NULL where neither holds,
so that AND and OR are ``&`` and ``|`` and a comparison with NaN is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree, values
from mudkit.predicates.tree import Node
from mudkit.predicates.values import BOOLEAN, NULL, NUMBER, POINT, STRING, STRUCT, Members, Point
from mudkit.units import KM_PER_DEGREE, distance_km

Floats: TypeAlias = NDArray[np.float64]
Masks: TypeAlias = NDArray[np.bool_]
Objects: TypeAlias = NDArray[np.object_]


@dataclass(slots=True)
class Vector:
    """Values of many rows, an array for each kind that occurs; arrays of length 1 hold for all rows.

    Where a value has another kind, there is NaN, ``None`` or False; ``structs`` also holds points with more
    attributes than two.
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
        """Group values (see :func:`~mudkit.predicates.values.value`) by kind into arrays."""
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
        """Kinds that may occur."""
        return (
            (NUMBER if self.numbers is not None else 0)
            | (STRING if self.strings is not None else 0)
            | (BOOLEAN if self.true is not None else 0)
            | (POINT if self.lat is not None else 0)
            | (STRUCT if self.structs is not None else 0)
        )

    @property
    def length(self) -> int:
        """Number of rows, or 1 when all rows share one value."""
        arrays = (self.numbers, self.strings, self.true, self.false, self.lat, self.lon, self.structs)
        # Each array may have length 1, also one mask of a condition whose other mask has many rows.
        return int(np.broadcast_shapes((1,), *(array.shape for array in arrays if array is not None))[0])

    def is_present(self) -> Masks:
        """Return a mask, True where the value is not NULL."""
        present = np.zeros(1, dtype=np.bool_)
        if self.numbers is not None:
            present = present | ~np.isnan(self.numbers)
        if self.strings is not None:
            present = present | is_present(self.strings)
        if self.true is not None and self.false is not None:
            present = present | self.true | self.false
        if self.lat is not None:
            present = present | ~np.isnan(self.lat)
        if self.structs is not None:
            present = present | is_present(self.structs)
        return present

    def only(self, kinds: int) -> Vector:
        """Return a vector in which the values of other kinds are NULL."""
        if not self.kinds & ~kinds:
            return self
        return Vector(
            self.numbers if kinds & NUMBER else None,
            self.strings if kinds & STRING else None,
            *((self.true, self.false) if kinds & BOOLEAN else (None, None)),
            *((self.lat, self.lon) if kinds & POINT else (None, None)),
            self.structs if kinds & STRUCT else None,
        )

    def where(self, mask: Masks) -> Vector:
        """Return a vector that is NULL where a mask is false."""
        return Vector(
            None if self.numbers is None else np.where(mask, self.numbers, np.nan),
            None if self.strings is None else keep_objects(self.strings, mask),
            None if self.true is None else self.true & mask,
            None if self.false is None else self.false & mask,
            None if self.lat is None else np.where(mask, self.lat, np.nan),
            None if self.lon is None else np.where(mask, self.lon, np.nan),
            None if self.structs is None else keep_objects(self.structs, mask),
        )

    def take(self, rows: NDArray[np.intp]) -> Vector:
        """Return the values of some rows; a column of length 1, which is for all rows, stays as it is."""

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
        """Return the values as a list."""
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


def is_present(objects: Objects) -> Masks:
    """Return a mask, True where an object is not ``None``."""
    present: Masks = np.not_equal(objects, None).astype(np.bool_)  # type: ignore[call-overload]
    return present


def keep_objects(objects: Objects, mask: Masks) -> Objects:
    """Replace objects by ``None`` where a mask is false."""
    values: Objects = np.where(mask, objects, None)  # type: ignore[call-overload]
    return values


def from_data(data: Any) -> Vector:
    """Build a column of data, see :meth:`mudkit.predicates.Predicate.numpy`."""
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
    """Return a sequence as an array of one dimension; the items of lists stay objects."""
    if isinstance(data, (list, tuple)):
        objects = np.empty(len(data), dtype=object)
        objects[:] = [*data, None][:-1]
        return objects
    return np.asarray(data)


def _from_array(array: NDArray[Any]) -> Vector:
    """Return a column of an array; an (n, 2) array of numbers is a column of points."""
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
    """Return numbers as doubles, NaN where they are infinite or integers that are not exact."""
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        return np.where(np.isfinite(wide), wide, np.nan)
    fits = array <= values.MAX_INTEGER
    if array.dtype.kind == "i":
        fits &= array >= -values.MAX_INTEGER
    return np.where(fits, array, np.nan).astype(np.float64)


def points(lat: Floats, lon: Floats) -> Vector:
    """Build points from coordinates; NULL outside ±90 and ±180 degrees."""
    fits = (np.abs(lat) <= 90.0) & (np.abs(lon) <= 180.0)
    return Vector(lat=np.where(fits, lat, np.nan), lon=np.where(fits, lon, np.nan))


def _objects(items: list[Any]) -> Objects:
    """Return a list as an array of objects, also if its items are sequences."""
    array = np.empty(len(items), dtype=object)
    for number, item in enumerate(items):
        array[number] = item
    return array


def constant(item: Any) -> Vector:
    """Build a column of length 1 from a value of the language, not data as it came."""
    return Vector.of([item])


def reach(vector: Vector, path: tuple[str, ...]) -> Vector:
    """Return the attribute of structs and points at a path; NULL where it is missing."""
    if not path:
        return vector
    if path in (("lat",), ("lon",)) and vector.structs is None:
        return Vector(numbers=vector.lat if path == ("lat",) else vector.lon)
    items = vector.rows()
    if vector.structs is not None:
        # A struct that is also a point may have more attributes.
        structs = np.broadcast_to(vector.structs, len(items))
        items = [item if struct is None else struct for item, struct in zip(items, structs, strict=True)]
    for part in path:
        items = [values.attribute(_pair(item), part) for item in items]
    return Vector.of([values.value(item) for item in items])


def _pair(item: Any) -> Any:
    """Return a point as a plain tuple, for a user's function or a table; other items unchanged."""
    return (item.lat, item.lon) if isinstance(item, Point) else item


def _apply_rows(function: Callable[..., Any], args: list[Vector]) -> Vector:
    """Apply a function of plain values row by row where no argument is NULL."""
    columns = [arg.rows() for arg in args]
    length = next(
        (len(column) for column in columns if len(column) != 1), 1
    )  # no row at all is a length, too
    columns = [column * length if len(column) == 1 else column for column in columns]
    return Vector.of(
        [None if any(item is None for item in row) else function(*row) for row in zip(*columns, strict=True)]
    )


def _numeric(function: Callable[..., Any]) -> Callable[..., Vector]:
    """Return a function of columns from one of arrays; its result is NULL where it is not finite."""

    def call(*args: Vector) -> Vector:
        if any(arg.numbers is None for arg in args):
            return Vector()
        numbers = function(*(arg.numbers for arg in args))
        return Vector(numbers=np.where(np.isfinite(numbers), numbers, np.nan))

    return call


def _distance(a: Vector, b: Vector) -> Floats | None:
    """Return distances in km, NaN where a place is NULL; None if one side has no points at all."""
    if a.lat is None or a.lon is None or b.lat is None or b.lon is None:
        return None
    km = distance_km(a.lat, a.lon, b.lat, b.lon)
    return np.asarray(np.floor(km * functions.MM_PER_KM + 0.5) / functions.MM_PER_KM)


def _distance_km(a: Vector, b: Vector) -> Vector:
    """Evaluate ``distance_km`` over columns."""
    return Vector(numbers=_distance(a, b))


def _within_km(place: Vector, centre: Vector, km: Vector) -> Vector:
    """Evaluate ``within_km`` over columns."""
    if place.lat is None or centre.lat is None or km.numbers is None:
        return Vector()
    # The distance along the meridian excludes most places without computing a sine.
    along = np.abs(place.lat - centre.lat) * KM_PER_DEGREE
    present = ~(np.isnan(along) | np.isnan(km.numbers))
    near = along <= km.numbers + 1e-3
    true = np.zeros(present.shape, dtype=np.bool_)
    rows = np.flatnonzero(np.broadcast_to(near, true.shape))
    if len(rows):
        distance = _distance(_rows(place, rows), _rows(centre, rows))
        assert distance is not None
        true[rows] = distance <= (km.numbers if len(km.numbers) == 1 else km.numbers[rows])
    return Vector(true=true, false=present & ~true)


def _rows(vector: Vector, rows: NDArray[np.intp]) -> Vector:
    """Return some rows of a column; a column of one row for all stays one."""
    return vector if vector.length == 1 else vector.take(rows)


def _within_box(place: Vector, south: Vector, west: Vector, north: Vector, east: Vector) -> Vector:
    """Evaluate ``within_box`` over columns; a box with west > east crosses the date line."""
    edges = [side.numbers for side in (south, west, north, east)]
    s, w, n, e = edges
    if place.lat is None or place.lon is None or s is None or w is None or n is None or e is None:
        return Vector()
    lat, lon = place.lat, place.lon

    def between(x: Floats) -> Masks:
        return np.where(w <= e, (w <= x) & (x <= e), (x >= w) | (x <= e))

    inside = (s <= lat) & (lat <= n) & (between(lon) | ((np.abs(lon) == 180.0) & between(-lon)))
    present = ~(np.isnan(lat) | np.isnan(s) | np.isnan(w) | np.isnan(n) | np.isnan(e))
    return Vector(true=inside & present, false=present & ~inside)


def _point(lat: Vector, lon: Vector) -> Vector:
    """Evaluate ``point`` over columns."""
    if lat.numbers is None or lon.numbers is None:
        return Vector()
    return points(*np.broadcast_arrays(lat.numbers, lon.numbers))


def _part_of_time(name: str) -> Callable[..., Vector]:
    """Build the function for a part of a time in UTC; other zones are evaluated row by row."""

    def call(ts: Vector, zone: Vector | None = None) -> Vector:
        if zone is not None:
            return _apply_rows(functions.IMPLEMENTATIONS[name], [ts, zone])
        if ts.numbers is None:
            return Vector()
        inside = (ts.numbers >= functions.MIN_TIME_S) & (ts.numbers < functions.MAX_TIME_S)
        seconds = np.floor(np.where(inside, ts.numbers, 0.0)).astype(np.int64)
        return Vector(numbers=np.where(inside, _read_part(name, seconds), np.nan))

    return call


def _read_part(name: str, seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the year, month, day of the month, weekday (from 0, Monday), hour or minute of times in UTC."""
    if name == "minute":
        return seconds // 60 % 60
    if name == "hour":
        return seconds // 3_600 % 24
    if name == "weekday":
        return (seconds // 86_400 + 3) % 7
    days = (seconds // 86_400).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    if name == "day":
        return np.asarray((days - months).astype(np.int64) + 1)
    number: NDArray[np.int64] = months.astype(np.int64)
    return number % 12 + 1 if name == "month" else number // 12 + 1970


_VECTORIZED: Final[dict[str, Callable[..., Vector]]] = {
    "+": _numeric(np.add), "-": _numeric(np.subtract), "*": _numeric(np.multiply), "/": _numeric(np.divide),
    "negate": _numeric(np.negative), "abs": _numeric(np.abs), "distance_km": _distance_km,
    "within_km": _within_km, "within_box": _within_box, "point": _point,
    **{part: _part_of_time(part) for part in functions.TIME_PARTS},
}  # fmt: skip
"""Functions of the language that NumPy evaluates over whole columns; others are evaluated row by row."""


class Environment(Protocol):
    """Values of names and constants for an evaluation."""

    def column(self, scope: str, path: tuple[str, ...]) -> Vector:
        """Return the values of a name."""

    def slot(self, slot: int) -> Vector:
        """Return the constants of a slot as a column: one for all rows, or one a row."""

    def members(self, slot: int) -> list[Members]:
        """Return the constant list of a slot: one for all rows, or one for each row."""

    @property
    def tables(self) -> Mapping[str, Any] | None:
        """Tables by name, in which ``lookup`` finds values; None without any."""


class Columns:
    """Columns that a caller gives, by scope and name; they must have one length."""

    def __init__(
        self,
        scopes: Mapping[str, Mapping[str, Any]],
        constants: tuple[Any, ...],
        tables: Mapping[str, Any] | None,
    ) -> None:
        self._scopes = scopes
        self._constants = constants
        self.tables = tables
        self._vectors: dict[tuple[str, tuple[str, ...]], Vector] = {}
        lengths = {
            f"{scope}.{name}": len(data)
            for scope, columns in scopes.items()
            for name, data in columns.items()
            if not (isinstance(data, (str, bytes, tuple, Mapping)) or np.isscalar(data) or data is None)
        }
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length}" for name, length in list(lengths.items())[:6])
            raise PredicateError("The columns differ in length.", found=shown, expected="one length")
        self.length = next(iter(lengths.values()), 1)

    def column(self, scope: str, path: tuple[str, ...]) -> Vector:
        """Return the column of a name; a missing one is NULL."""
        key = scope, path
        if key not in self._vectors:
            self._vectors[key] = self._find(self._scopes.get(scope, {}), path)
        return self._vectors[key]

    @staticmethod
    def _find(columns: Mapping[str, Any], path: tuple[str, ...]) -> Vector:
        """Return the column of the longest name that begins a path, and below it the rest of the path."""
        for length in range(len(path), 0, -1):
            name = ".".join(path[:length])
            if name in columns:
                data, rest = columns[name], path[length:]
                if rest and isinstance(data, (list, tuple, Mapping)):
                    # A column of points does not keep other attributes of the structs.
                    items = [data] if isinstance(data, (tuple, Mapping)) else data
                    for part in rest:
                        items = [values.attribute(item, part) for item in items]
                    return Vector.of([values.value(item) for item in items])
                return reach(from_data(data), rest)
        return Vector()

    def slot(self, slot: int) -> Vector:
        """Return a constant, as one row for all."""
        return constant(self._constants[slot])

    def members(self, slot: int) -> list[Members]:
        """Return a constant list, as one for all rows."""
        return [self._constants[slot]]


def evaluate(
    root: Node,
    constants: tuple[Any, ...],
    scopes: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, Any] | None,
    text: str,
) -> np.ma.MaskedArray[Any, Any]:
    """Evaluate a condition over columns; NULL is masked in the result."""
    columns = Columns(scopes, constants, tables)
    true, false = truth(root, columns, text)
    true, false = (np.broadcast_to(mask, columns.length).copy() for mask in (true, false))
    return np.ma.MaskedArray(true, mask=~(true | false))


def truth(root: Node, environment: Environment, text: str = "") -> tuple[Masks, Masks]:
    """Return where a condition is TRUE and where FALSE, masks of the environment's length or length 1."""
    with np.errstate(all="ignore"):
        return _Evaluation(environment, text).truth(root)


class _Evaluation:
    """One walk through a tree; each node is evaluated once."""

    def __init__(self, environment: Environment, text: str) -> None:
        self._environment = environment
        self._text = text
        self._done: dict[int, Vector] = {}

    def truth(self, node: Node) -> tuple[Masks, Masks]:
        """Return the masks of TRUE and of FALSE of a node."""
        vector = self.vector(node)
        if vector.true is None or vector.false is None:
            nothing = np.zeros(1, dtype=np.bool_)
            return nothing, nothing
        return vector.true, vector.false

    def vector(self, node: Node) -> Vector:
        """Return the values of a node, evaluated the first time."""
        if id(node) not in self._done:
            self._done[id(node)] = self._evaluate(node)
        return self._done[id(node)]

    def _evaluate(self, node: Node) -> Vector:
        """Return the values of a node that is not evaluated yet."""
        match node:
            case tree.Constant(slot=slot, kinds=kinds):
                return Vector() if kinds == NULL else self._environment.slot(slot)
            case tree.Name(scope=scope, path=path, kinds=kinds):
                return self._environment.column(scope, path).only(kinds)
            case tree.Call():
                return self._call(node)
            case tree.Compare():
                return self._compare(node.operator, self.vector(node.left), self.vector(node.right))
            case tree.In(item=item, members=members):
                return _member(self.vector(item), self._environment.members(members.slot))
            case tree.IsNull(item=item):
                present = self.vector(item).is_present()
                return Vector(true=~present, false=present)
            case tree.Not(item=item):
                true, false = self.truth(item)
                return Vector(true=false, false=true)
            case tree.And(args=args):
                true, false = self.truth(args[0])
                for arg in args[1:]:
                    t, f = self.truth(arg)
                    true, false = true & t, false | f
                return Vector(true=true, false=false)
            case tree.Or(args=args):
                true, false = self.truth(args[0])
                for arg in args[1:]:
                    t, f = self.truth(arg)
                    true, false = true | t, false & f
                return Vector(true=true, false=false)
        raise AssertionError(node)

    def _compare(self, operator: str, a: Vector, b: Vector) -> Vector:
        """Compare two columns row by row; NULL where they have no kind in common."""
        true = false = np.zeros(1, dtype=np.bool_)
        for t, f in _comparisons(operator, a, b):
            true, false = true | t, false | f
        return Vector(true=true, false=false)

    def _call(self, node: tree.Call) -> Vector:
        """Evaluate a function call, row by row where there is no vectorised form."""
        function = node.function
        args = [self.vector(arg) for arg in node.args]
        if function.name == "coalesce":
            return _coalesce(args)
        args = [arg.only(function.kind_of_argument(n)) for n, arg in enumerate(args)]
        if function.name in _VECTORIZED:
            return _VECTORIZED[function.name](*args)
        if function.is_user:
            return self._user(function, args, node)
        if function.name == "lookup":
            tables = self._environment.tables
            return _apply_rows(lambda *row: functions.lookup(tables, *row), args)
        return _apply_rows(functions.IMPLEMENTATIONS[function.name], args)

    def _user(self, function: Any, args: list[Vector], node: tree.Call) -> Vector:
        """Evaluate a user's function on the rows without NULL; PredicateError without a NumPy form."""
        if function.numpy is None:
            raise PredicateError(
                f"The function {function.name} has no NumPy form.",
                text=self._text,
                at=node.at,
                remedy="give one with @function(…, numpy=…)",
            )
        present = np.ones(1, dtype=np.bool_)
        for arg in args:
            present = present & arg.is_present()
        given = [
            np.broadcast_to(_array_of(arg), present.shape)[present]
            if arg.lat is None
            else _coordinates(arg, present)
            for arg in args
        ]
        count = int(present.sum())
        try:
            compact = from_data(function.numpy(*given)).only(function.returns)
        except Exception as error:
            summary = f"The function {function.name} failed: {type(error).__name__}: {error}"
            raise PredicateError(summary, text=self._text, at=node.at) from error
        if compact.length not in (1, count):
            raise PredicateError(
                f"The NumPy form of {function.name} returned a wrong number of values.",
                text=self._text,
                at=node.at,
                found=str(compact.length),
                expected=str(count),
            )
        return _spread(compact, present)


def _array_of(vector: Vector) -> NDArray[Any]:
    """Return the array of a column that has one kind, not points; NaN if it has none."""
    for array in (vector.numbers, vector.strings, vector.true):
        if array is not None:
            return array
    return np.full(1, np.nan)


def _coordinates(vector: Vector, present: Masks) -> NDArray[np.float64]:
    """Return the points of some rows, of shape (n, 2)."""
    assert vector.lat is not None
    assert vector.lon is not None
    return np.stack(
        [np.broadcast_to(side, present.shape)[present] for side in (vector.lat, vector.lon)], axis=1
    )


def _spread(compact: Vector, present: Masks) -> Vector:
    """Return a vector for all rows from the values of the rows where ``present`` is true."""

    def back(array: NDArray[Any] | None, empty: Any) -> Any:
        if array is None:
            return None
        whole = np.full(present.shape, empty, dtype=array.dtype)
        whole[present] = array
        return whole

    return Vector(
        back(compact.numbers, np.nan),
        back(compact.strings, None),
        back(compact.true, False),
        back(compact.false, False),
        back(compact.lat, np.nan),
        back(compact.lon, np.nan),
        back(compact.structs, None),
    )


def _comparisons(operator: str, a: Vector, b: Vector) -> list[tuple[Masks, Masks]]:
    """Return the masks TRUE and FALSE of a comparison for each kind that both have: none, if they share none.

    Points have no order: only ``=`` and ``<>`` compare them.
    """
    test = _TESTS[operator]
    comparisons = []
    if a.numbers is not None and b.numbers is not None:
        true = test(a.numbers, b.numbers)
        comparisons.append((true, ~true & ~np.isnan(a.numbers) & ~np.isnan(b.numbers)))
    if a.strings is not None and b.strings is not None:
        present = is_present(a.strings) & is_present(b.strings)
        true = np.zeros(present.shape, dtype=np.bool_)
        left, right = np.broadcast_arrays(a.strings, b.strings)
        true[present] = test(left[present], right[present]).astype(np.bool_)
        comparisons.append((true, present & ~true))
    if a.true is not None and b.true is not None and a.false is not None and b.false is not None:
        present = (a.true | a.false) & (b.true | b.false)
        true = test(a.true, b.true) & present
        comparisons.append((true, present & ~true))
    if operator in ("=", "<>") and a.lat is not None and b.lat is not None:
        assert a.lon is not None
        assert b.lon is not None
        present = ~np.isnan(a.lat) & ~np.isnan(b.lat)
        same = present & (a.lat == b.lat) & (a.lon == b.lon)
        true = same if operator == "=" else present & ~same
        comparisons.append((true, present & ~true))
    return comparisons


_TESTS: Final[dict[str, Callable[..., NDArray[Any]]]] = {
    "=": np.equal,
    "<>": lambda a, b: (a < b) | (a > b) if a.dtype.kind == "f" else np.not_equal(a, b),
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _member(item: Vector, lists: list[Members]) -> Vector:
    """Return whether each item is in its list; one list may be for all rows."""
    if len(lists) > 1:
        rows = item.rows()
        rows = rows * len(lists) if len(rows) == 1 else rows
        return Vector.of([members.holds(row) for members, row in zip(lists, rows, strict=True)])
    members = lists[0]
    if not members.kinds:
        return Vector(true=np.zeros(1, dtype=np.bool_), false=np.ones(1, dtype=np.bool_))
    true = false = np.zeros(1, dtype=np.bool_)
    for kind, array in (
        (NUMBER, item.numbers),
        (STRING, item.strings),
        (BOOLEAN, item.true),
        (POINT, item.lat),
    ):
        if array is None:
            continue
        present, inside = _inside(item, kind, members)
        true = true | inside
        if members.kinds == kind:
            false = false | (present & ~inside)
    return Vector(true=true, false=false)


def _inside(item: Vector, kind: int, members: Members) -> tuple[Masks, Masks]:
    """Return where items have a kind, and where they are also members of a list."""
    present = item.only(kind).is_present()
    if kind == NUMBER:
        assert item.numbers is not None
        return present, np.isin(item.numbers, list(members.numbers)) & present
    listed = members.of_kind(kind)
    rows = item.only(kind).rows()
    return present, np.array([row is not None and row in listed for row in rows], dtype=np.bool_)


def _coalesce(args: list[Vector]) -> Vector:
    """Return, row by row, the first value that is not NULL."""
    chosen, present = args[0], args[0].is_present()
    for arg in args[1:]:
        rest = arg.where(~present)
        chosen = Vector(
            _first(chosen.numbers, rest.numbers, np.isnan),
            _first(chosen.strings, rest.strings, _is_missing),
            _either(chosen.true, rest.true),
            _either(chosen.false, rest.false),
            _first(chosen.lat, rest.lat, np.isnan),
            _first(chosen.lon, rest.lon, np.isnan),
            _first(chosen.structs, rest.structs, _is_missing),
        )
        present = present | arg.is_present()
    return chosen


def _is_missing(objects: Objects) -> Masks:
    """Return a mask, True where an object is ``None``."""
    return ~is_present(objects)


def _first(a: NDArray[Any] | None, b: NDArray[Any] | None, missing: Callable[[Any], Any]) -> Any:
    """Return the items of ``a``, where they are missing those of ``b``; None if neither has an array."""
    if a is None or b is None:
        return b if a is None else a
    return np.where(missing(a), b, a)


def _either(a: Masks | None, b: Masks | None) -> Masks | None:
    """Return where one of two masks is true; None stands for a mask that is false everywhere."""
    if a is None or b is None:
        return b if a is None else a
    return a | b
