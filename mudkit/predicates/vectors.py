"""The NumPy evaluator: a tree over columns, one vectorised operation a node.

Conditions are pairs of masks (:mod:`mudkit.predicates.vector`), so that AND and OR are ``&`` and ``|`` and a
comparison with NaN is NULL by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import PredicateError
from mudkit.predicates import meaning, tree, values
from mudkit.predicates.tree import Node
from mudkit.predicates.values import BOOLEAN, NULL, NUMBER, POINT, STRING, Members
from mudkit.predicates.vector import (
    Masks,
    Objects,
    Vector,
    constant,
    from_data,
    is_there,
    reach,
)
from mudkit.predicates.vector_functions import WHOLE, each

__all__ = ["Columns", "Environment", "evaluate", "truth"]


class Environment(Protocol):
    """Where an evaluation finds its values."""

    def column(self, scope: str, path: tuple[str, ...]) -> Vector:
        """Give the values of a name."""

    def slot(self, slot: int) -> Vector:
        """Give the constants of a slot."""

    def members(self, slot: int) -> list[Members]:
        """Give the constant list of a slot: one for all rows, or one a row."""

    @property
    def tables(self) -> Mapping[str, Any] | None:
        """Tables for ``lookup``."""


class Columns:
    """Columns by scope and name, as a caller gives them.

    Raises
    ------
    PredicateError
        They differ in length.
    """

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
        """Give the column of a name; one that is not there is NULL."""
        key = scope, path
        if key not in self._vectors:
            self._vectors[key] = self._look(self._scopes.get(scope, {}), path)
        return self._vectors[key]

    @staticmethod
    def _look(columns: Mapping[str, Any], path: tuple[str, ...]) -> Vector:
        for length in range(len(path), 0, -1):
            name = ".".join(path[:length])
            if name in columns:
                data, rest = columns[name], path[length:]
                if rest and isinstance(data, (list, tuple, Mapping)):
                    # Of a struct that is a point as well, the column keeps the point only.
                    items = [data] if isinstance(data, (tuple, Mapping)) else data
                    for part in rest:
                        items = [values.attribute(item, part) for item in items]
                    return Vector.of([values.value(item) for item in items])
                return reach(from_data(data), rest)
        return Vector()

    def slot(self, slot: int) -> Vector:
        """Give a constant."""
        return constant(self._constants[slot])

    def members(self, slot: int) -> list[Members]:
        """Give a constant list."""
        return [self._constants[slot]]


def evaluate(
    root: Node,
    constants: tuple[Any, ...],
    scopes: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, Any] | None,
    text: str,
) -> np.ma.MaskedArray[Any, Any]:
    """Evaluate a condition over columns.

    Returns
    -------
    masked array of bool
        NULL is masked.

    Raises
    ------
    PredicateError
    """
    columns = Columns(scopes, constants, tables)
    true, false = truth(root, columns, text)
    true, false = (np.broadcast_to(mask, columns.length).copy() for mask in (true, false))
    return np.ma.MaskedArray(true, mask=~(true | false))


def truth(root: Node, environment: Environment, text: str = "") -> tuple[Masks, Masks]:
    """Tell where a condition is TRUE and where it is FALSE.

    Parameters
    ----------
    root : Node
    environment : Environment
    text : str
        The text of the predicate, for errors.

    Returns
    -------
    true, false : array of bool
        The masks, of the environment's length or of length 1.
    """
    with np.errstate(all="ignore"):
        return _Evaluation(environment, text).truth(root)


class _Evaluation:
    """One walk through a tree; each node is evaluated once."""

    def __init__(self, environment: Environment, text: str) -> None:
        self._environment = environment
        self._text = text
        self._done: dict[int, Vector] = {}

    def truth(self, node: Node) -> tuple[Masks, Masks]:
        vector = self.vector(node)
        if vector.true is None or vector.false is None:
            nothing = np.zeros(1, dtype=np.bool_)
            return nothing, nothing
        return vector.true, vector.false

    def vector(self, node: Node) -> Vector:
        if id(node) not in self._done:
            self._done[id(node)] = self._write(node)
        return self._done[id(node)]

    def _write(self, node: Node) -> Vector:
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
                there = self.vector(item).is_there()
                return Vector(true=~there, false=there)
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
        true = false = np.zeros(1, dtype=np.bool_)
        for t, f in _comparisons(operator, a, b):
            true, false = true | t, false | f
        return Vector(true=true, false=false)

    def _call(self, node: tree.Call) -> Vector:
        function = node.function
        args = [self.vector(arg) for arg in node.args]
        if function.name == "coalesce":
            return _coalesce(args)
        args = [arg.only(function.kind_of_argument(n)) for n, arg in enumerate(args)]
        if function.name in WHOLE:
            return WHOLE[function.name](*args)
        if function.is_user:
            return self._user(function, args, node)
        if function.name == "lookup":
            tables = self._environment.tables
            return each(lambda *row: meaning.lookup(tables, *row), args)
        return each(meaning.MEANING[function.name], args)

    def _user(self, function: Any, args: list[Vector], node: tree.Call) -> Vector:
        if function.numpy is None:
            raise PredicateError(
                f"The function {function.name} has no form for NumPy.",
                text=self._text,
                at=node.at,
                remedy="give one with @function(…, numpy=…)",
            )
        there = np.ones(1, dtype=np.bool_)
        for arg in args:
            there = there & arg.is_there()
        given = [
            np.broadcast_to(_plain(arg), there.shape)[there] if arg.lat is None else _both(arg, there)
            for arg in args
        ]
        count = int(there.sum())
        try:
            compact = from_data(function.numpy(*given)).only(function.returns)
        except Exception as error:
            summary = f"The function {function.name} failed: {type(error).__name__}: {error}"
            raise PredicateError(summary, text=self._text, at=node.at) from error
        if compact.length not in (1, count):
            raise PredicateError(
                f"The NumPy form of {function.name} gives another number of values.",
                text=self._text,
                at=node.at,
                found=str(compact.length),
                expected=str(count),
            )
        return _spread(compact, there)


def _plain(vector: Vector) -> NDArray[Any]:
    for array in (vector.numbers, vector.strings, vector.true):
        if array is not None:
            return array
    return np.full(1, np.nan)


def _both(vector: Vector, there: Masks) -> NDArray[np.float64]:
    assert vector.lat is not None
    assert vector.lon is not None
    return np.stack([np.broadcast_to(side, there.shape)[there] for side in (vector.lat, vector.lon)], axis=1)


def _spread(compact: Vector, there: Masks) -> Vector:
    """Put values of some rows back among all rows."""

    def back(array: NDArray[Any] | None, empty: Any) -> Any:
        if array is None:
            return None
        whole = np.full(there.shape, empty, dtype=array.dtype)
        whole[there] = array
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
    """Compare kind by kind."""
    test = _TESTS[operator]
    comparisons = []
    if a.numbers is not None and b.numbers is not None:
        true = test(a.numbers, b.numbers)
        comparisons.append((true, ~true & ~np.isnan(a.numbers) & ~np.isnan(b.numbers)))
    if a.strings is not None and b.strings is not None:
        there = is_there(a.strings) & is_there(b.strings)
        true = np.zeros(there.shape, dtype=np.bool_)
        left, right = np.broadcast_arrays(a.strings, b.strings)
        true[there] = test(left[there], right[there]).astype(np.bool_)
        comparisons.append((true, there & ~true))
    if a.true is not None and b.true is not None and a.false is not None and b.false is not None:
        there = (a.true | a.false) & (b.true | b.false)
        true = test(a.true, b.true) & there
        comparisons.append((true, there & ~true))
    if operator in ("=", "<>") and a.lat is not None and b.lat is not None:
        assert a.lon is not None
        assert b.lon is not None
        there = ~np.isnan(a.lat) & ~np.isnan(b.lat)
        same = there & (a.lat == b.lat) & (a.lon == b.lon)
        true = same if operator == "=" else there & ~same
        comparisons.append((true, there & ~true))
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
    if len(lists) > 1:
        rows = item.rows()
        rows = rows * len(lists) if len(rows) == 1 else rows
        return Vector.of([members.holds(each) for members, each in zip(lists, rows, strict=True)])
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
        there, inside = _inside(item, kind, members)
        true = true | inside
        if members.kinds == kind:
            false = false | (there & ~inside)
    return Vector(true=true, false=false)


def _inside(item: Vector, kind: int, members: Members) -> tuple[Masks, Masks]:
    there = item.only(kind).is_there()
    if kind == NUMBER:
        assert item.numbers is not None
        return there, np.isin(item.numbers, list(members.numbers)) & there
    listed = members.of_kind(kind)
    rows = item.only(kind).rows()
    return there, np.array([each is not None and each in listed for each in rows], dtype=np.bool_)


def _coalesce(args: list[Vector]) -> Vector:
    chosen, there = args[0], args[0].is_there()
    for arg in args[1:]:
        rest = arg.where(~there)
        chosen = Vector(
            _first(chosen.numbers, rest.numbers, np.isnan),
            _first(chosen.strings, rest.strings, _is_missing),
            _either(chosen.true, rest.true),
            _either(chosen.false, rest.false),
            _first(chosen.lat, rest.lat, np.isnan),
            _first(chosen.lon, rest.lon, np.isnan),
            _first(chosen.structs, rest.structs, _is_missing),
        )
        there = there | arg.is_there()
    return chosen


def _is_missing(objects: Objects) -> Masks:
    return ~is_there(objects)


def _first(a: NDArray[Any] | None, b: NDArray[Any] | None, missing: Callable[[Any], Any]) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return np.where(missing(a), b, a)


def _either(a: Masks | None, b: Masks | None) -> Masks | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b
