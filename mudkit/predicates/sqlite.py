"""The SQLite evaluator: SQL text, and the functions that it needs on a connection.

SQLite's values carry their types, so one expression can stand for a value of any kind: a number is REAL, a
string TEXT, a boolean INTEGER (0 or 1), a point a BLOB of two doubles, a struct an empty BLOB.
"""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from mudkit.arguments import check_options
from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.functions import Function
from mudkit.predicates.layout import Column, Group, Resolved, Typed, Whole, sqlite_reads
from mudkit.predicates.sql import Sql, Writer, flatten
from mudkit.predicates.tree import Node
from mudkit.predicates.values import (
    BOOLEAN,
    EVERY_KIND,
    MAX_INTEGER,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Point,
    point,
)

__all__ = ["SqliteWriter", "register_functions"]

_TYPES: Final = {float: NUMBER, str: STRING, int: BOOLEAN}


@check_options
def register_functions(connection: sqlite3.Connection) -> None:
    """Add the functions that predicates need to a connection, ``mudkit_…``, and those of users.

    Parameters
    ----------
    connection : sqlite3.Connection
        Connection that evaluates expressions of :meth:`Predicate.sql`; call again after
        :func:`mudkit.predicates.function`.
    """
    known: dict[str, tuple[int, Callable[..., Any]]] = {
        "point": (-1, _point),
        "lat": (1, lambda place: _part(place, 0)),
        "lon": (1, lambda place: _part(place, 1)),
        "only": (2, _only),
        "compare": (3, _compare),
        "distance_km": (2, _strict("distance_km", places=2)),
        "within_box": (5, _strict("within_box", places=1)),
        "within_km": (3, _strict("within_km", places=2)),
        "matches": (2, _strict("matches")),
        "like": (2, _strict("like")),
        "hour": (-1, _strict("hour")),
        "weekday": (-1, _strict("weekday")),
    }
    for function in functions.user_functions():
        known[f"user_{function.name}"] = (-1, _user_function(function))
    for name, (arguments, python) in known.items():
        connection.create_function(f"mudkit_{name}", arguments, python, deterministic=True)


def packed(place: Point) -> bytes:
    """Encode a point as SQLite stores it: the bytes of its two doubles."""
    # -0.0 becomes 0.0, so that equal points have equal bytes.
    return struct.pack("<2d", place.lat + 0.0, place.lon + 0.0)


def _unpacked(given: Any) -> Point | None:
    """Decode a point from these bytes or from JSON."""
    if isinstance(given, bytes):
        return Point(*struct.unpack("<2d", given)) if len(given) == 16 else None
    if not isinstance(given, str):
        return None
    try:
        return point(json.loads(given))
    except (ValueError, RecursionError):
        return None


def _point(*given: Any) -> bytes | None:
    place = _unpacked(given[0]) if len(given) == 1 else point(given)
    return None if place is None else packed(place)


def _part(given: Any, position: int) -> float | None:
    place = _unpacked(given)
    return None if place is None else place[position]


def _strict(name: str, places: int = 0) -> Callable[..., Any]:
    """Wrap the implementation of a function: NULL if an argument is NULL; the first arguments are points."""
    python = functions.IMPLEMENTATIONS[name]

    def called(*args: Any) -> Any:
        values = [*map(_unpacked, args[:places]), *args[places:]]
        return None if any(value is None for value in values) else python(*values)

    return called


def _only(value: Any, kinds: int) -> Any:
    kind = (
        (POINT if len(value) == 16 else STRUCT) if isinstance(value, bytes) else _TYPES.get(type(value), NULL)
    )
    return value if kind & kinds else None


def _compare(left: Any, operator: str, right: Any) -> bool | None:
    if left is None or type(left) is not type(right):
        return None
    if operator in ("=", "<>"):
        return bool(left == right) is (operator == "=")
    below: bool = right < left if operator in (">", "<=") else left < right
    return below is (operator in ("<", ">"))


def _user_function(function: Function) -> Callable[..., Any]:
    convert: dict[int, Callable[[Any], Any]] = {POINT: _unpacked, BOOLEAN: bool}

    def called(*args: Any) -> Any:
        if any(arg is None for arg in args):
            return None
        values = [
            convert.get(function.kind_of_argument(position), lambda x: x)(arg)
            for position, arg in enumerate(args)
        ]
        result = None if None in values else functions.call_user(function, *values)
        return packed(result) if isinstance(result, Point) else result

    return called


MAX_SQL_DEPTH: Final = 6
"""Depth at which a piece becomes a common table expression; SQLite's parser allows about 100 open levels."""
MAX_REPEATED_CHARS: Final = 1_000
"""Maximum length of a piece that is written twice."""
MAX_ARGS: Final = 100
"""Maximum number of arguments of a call; SQLite allows 127."""
MAX_GLOB_WILDCARDS: Final = 2
"""Maximum number of wildcards for GLOB, which tries every position for each; RE2 takes linear time."""
_EXACT: Final = f"BETWEEN -{MAX_INTEGER} AND {MAX_INTEGER}"
_STRUCT: Final = "x''"
_FINITE: Final = "nullif(nullif({}, 9e999), -9e999)"

_TEMPLATES: Final = {
    "distance_km": "mudkit_distance_km({}, {})",
    "within_box": "mudkit_within_box({}, {}, {}, {}, {})",
    "within_km": "mudkit_within_km({}, {}, {})",
    "point": "mudkit_point({}, {})",
    "matches": "mudkit_matches({}, {})",
    "starts_with": "(instr({}, {}) = 1)",
    "contains": "(instr({}, {}) > 0)",
    "lower": "lower({})",
    "upper": "upper({})",
    "length": "CAST(length({}) AS REAL)",
    "abs": "abs({})",
}


class SqliteWriter(Writer):
    """Writer of an expression for SQLite."""

    dialect = "sqlite"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._named: list[str] = []

    def put(self, template: str, *args: str, precedence: int = 9, chain: bool = False) -> Sql:
        """Fill a template; a piece too deep for SQLite's parser becomes a common table expression."""
        sql = super().put(template, *args, precedence=precedence, chain=chain)
        if sql.depth <= MAX_SQL_DEPTH:
            return sql
        name = f"mudkit_{len(self._named)}"
        self._named.append(f"{name}(v) AS (SELECT {sql})")
        return Sql(f"(SELECT v FROM {name})")

    def finished(self, whole: Sql) -> Sql:
        """Return the complete expression, with its common table expressions."""
        if self._named:
            whole = Sql(f"(WITH {', '.join(self._named)} SELECT {whole})")
        return super().finished(whole)

    def null(self, kind: int) -> Sql:
        """Return NULL."""
        return Sql("NULL")

    def literal(self, constant: Any) -> Sql:
        """Return a constant."""
        if constant is None:
            return Sql("NULL")
        if isinstance(constant, bool):
            return Sql(int(constant))
        if isinstance(constant, str):
            return Sql("'" + constant.replace("'", "''") + "'")
        if isinstance(constant, Point):
            return Sql(f"x'{packed(constant).hex()}'")
        return Sql(_number(constant))

    def finite(self, number: Sql) -> Sql:
        """Return a number, or NULL for infinity; NaN is NULL in SQLite."""
        return self.put(_FINITE, number)

    def divided(self, left: Sql, right: Sql) -> Sql:
        """Return a quotient; division by zero is NULL in SQLite."""
        sides = Sql(left) if left.precedence >= 2 else Sql(f"({left})"), right
        sides[0].depth = left.depth
        return self.put("{} / {}", *sides, precedence=2, chain=True)

    def name(self, column: Resolved, kind: int) -> Sql:
        """Return the value of a name if it has one of some kinds, else NULL."""
        if isinstance(column, Whole):
            return _in_json(_quoted(column.column), column.path, kind)
        if isinstance(column, Typed):
            return _in_column(column)
        assert isinstance(column, Group)
        place = "NULL"
        if kind & POINT and column.lat is not None and column.lon is not None:
            place = f"mudkit_point({_in_column(Typed(column.lat, ''))}, {_in_column(Typed(column.lon, ''))})"
        if not kind & STRUCT:
            return Sql(place)
        return Sql(f"CASE WHEN {self._any_present(column)} THEN coalesce({place}, {_STRUCT}) END")

    def missing(self, typed: Resolved) -> Sql:
        """Return the test whether a name is NULL."""
        if isinstance(typed, Group):
            return Sql(f"(NOT {self._any_present(typed)})")
        if isinstance(typed, Whole):
            column = _quoted(typed.column)
            value = _in_json(column, typed.path, EVERY_KIND, struct_only=True)
            return Sql(f"({value} IS NULL)")
        return Sql(f"({self.name(typed, EVERY_KIND)} IS NULL)")

    def _any_present(self, group: Group) -> str:
        columns = group.columns if group.struct is None else (group.struct,)
        names = [_identifier(name) for column in columns for name in _names(column)]
        return f"({' OR '.join(f'{name} IS NOT NULL' for name in names)})"

    def value(self, node: Node, kinds: int) -> Sql:
        """Return a node's value if it has one of some kinds, else NULL."""
        kinds &= self.kinds(node)
        if isinstance(node, tree.Name):
            return self.name(self.resolve(node), kinds) if kinds else self.null(NULL)
        if isinstance(node, tree.Call) and node.function.name == "coalesce":
            return self.first(flatten(node), kinds)
        return self.of(node, kinds)

    def first(self, args: Sequence[Node], kind: int) -> Sql:
        """Return the first value that is not NULL if it has one of some kinds, else NULL."""
        texts = [self.value(arg, EVERY_KIND) for arg in args]
        while len(texts) > 1:
            some = texts[-MAX_ARGS:]
            texts[-MAX_ARGS:] = [self.put(f"coalesce({', '.join(['{}'] * len(some))})", *some)]
        others = any(self.kinds(arg) & ~kind for arg in args)
        return self.put(f"mudkit_only({{}}, {kind})", texts[0]) if others else texts[0]

    def mixed(self, node: tree.Compare, common: int) -> Sql:
        """Return a comparison whose sides share several kinds."""
        left, right = self.value(node.left, common), self.value(node.right, common)
        if len(left) > MAX_REPEATED_CHARS or len(right) > MAX_REPEATED_CHARS:
            return self.put(f"mudkit_compare({{}}, '{node.operator}', {{}})", left, right)
        return self.put(
            f"(CASE typeof({{}}) WHEN typeof({{}}) THEN {{}} {node.operator} {{}} END)",
            left,
            right,
            left,
            right,
        )

    def call(self, node: tree.Call) -> Sql:
        """Return a function call."""
        name = node.function.name
        if node.function.is_user:
            return self._user(node)
        if name == "like":
            return self._like(node)
        if name == "lookup":
            raise self.no_form(node, "lookup works in the Python and NumPy evaluators of the server")
        args = self.args(node)
        if name in ("hour", "weekday"):
            return self.put(f"mudkit_{name}({', '.join(['{}'] * len(args))})", *args)
        return self.put(_TEMPLATES[name], *args)

    def _like(self, node: tree.Call) -> Sql:
        text, written = self.args(node)
        if isinstance(node.args[1], tree.Constant) and node.args[1].kinds == STRING:
            pattern: str = self.constants[node.args[1].slot]
            if pattern.count("%") <= MAX_GLOB_WILDCARDS:
                special = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
                glob = "".join(special.get(c, c) for c in pattern)
                return self.put("({} GLOB {})", text, self.literal(glob))
        return self.put("mudkit_like({}, {})", text, written)

    def _user(self, node: tree.Call) -> Sql:
        function, args = node.function, self.args(node)
        template = function.sql.get("sqlite")
        if template is None or (POINT & function.returns) or any(kind & POINT for kind in function.takes):
            return self.put(f"mudkit_user_{function.name}({', '.join(['{}'] * len(args))})", *args)
        written = self.put(template, *(self.put("({})", arg) for arg in args))
        if function.returns == NUMBER:
            written = self.finite(self.put("(({}) + 0.0)", written))
        elif function.returns == BOOLEAN:
            written = self.put("(({}) <> 0)", written)
        tests = [
            self.put("{} IS NOT NULL", text)
            for text, arg in zip(args, node.args, strict=True)
            if not isinstance(arg, tree.Constant)
        ]
        if not tests:
            return self.put("({})", written)
        return self.put("CASE WHEN {} THEN {} END", self.joined(" AND ", tests), written)


def _identifier(name: str) -> str:
    # In double quotes SQLite would read the name of a missing column as a string.
    return "`" + name.replace("`", "``") + "`"


def _quoted(column: Column) -> str:
    assert isinstance(column.name, str)
    return _identifier(column.name)


def _names(column: Column) -> tuple[str, ...]:
    return (column.name,) if isinstance(column.name, str) else column.name


@lru_cache(maxsize=4096)
def _number(x: float) -> str:
    if x == 0.0:
        return "0.0"
    written = repr(x)
    if sqlite_reads(written) != x:  # SQLite rounds some decimals wrongly; powers of two are exact
        mantissa, exponent = math.frexp(x)
        written, exponent = f"{int(mantissa * 2**53)}.0", exponent - 53
        while exponent:
            step = max(-52, min(52, exponent))
            written += f" {'*' if step > 0 else '/'} {2 ** abs(step)}.0"
            exponent -= step
    return f"({written})" if x < 0 or " " in written else written


def _in_json(column: str, path: tuple[str, ...], kinds: int, *, struct_only: bool = False) -> Sql:
    """Return the value at a path in a JSON column if it has one of some kinds, else NULL."""
    where = f"{column}, '${''.join('.' + part for part in path)}'"
    value = f"json_extract({where})"
    arms = []
    if kinds & STRING:
        arms.append(f"WHEN 'text' THEN {value}")
    if kinds & NUMBER:
        arms.append(f"WHEN 'integer' THEN CASE WHEN {value} {_EXACT} THEN CAST({value} AS REAL) END")
        arms.append(f"WHEN 'real' THEN {_FINITE.format(value)}")
    if kinds & BOOLEAN:
        arms.append("WHEN 'true' THEN 1 WHEN 'false' THEN 0")
    place = f"mudkit_point({value})"
    if kinds & POINT:
        arms.append(f"WHEN 'array' THEN {place}")
        if not kinds & STRUCT:
            arms.append(f"WHEN 'object' THEN {place}")
    if kinds & STRUCT:
        value = f"coalesce({place}, {_STRUCT})" if kinds & POINT and not struct_only else _STRUCT
        arms.append(f"WHEN 'object' THEN {value}")
    case = f"CASE json_type({where}) {' '.join(arms)} END" if arms else "NULL"
    if kinds & NUMBER and len(path) > 1 and path[-1] in ("lat", "lon"):
        # A pair also has these attributes.
        outer = f"{column}, '${''.join('.' + part for part in path[:-1])}'"
        pair = f"mudkit_{path[-1]}(json_extract({outer}))"
        case = f"CASE json_type({outer}) WHEN 'array' THEN {pair} ELSE {case} END"
    return Sql(case)


def _in_column(typed: Typed) -> Sql:
    """Return the value in a typed column; SQLite itself accepts any type there."""
    column, part = typed
    if column.kind in ("date", "pair"):
        raise PredicateError(
            "SQLite has no columns of this kind.",
            found=repr(column.kind),
            expected="number, or point",
            where=str(column.name),
        )
    if not isinstance(column.name, str):
        both = ", ".join(map(_identifier, column.name))
        return Sql(f"mudkit_{part}(mudkit_point({both}))" if part else f"mudkit_point({both})")
    name = _identifier(column.name)
    if part:
        return Sql(f"mudkit_{part}({name})")
    return Sql(
        {
            "number": f"CASE typeof({name}) WHEN 'integer' THEN CASE WHEN {name} {_EXACT} "
            f"THEN CAST({name} AS REAL) END WHEN 'real' THEN {_FINITE.format(name)} END",
            "string": f"CASE WHEN typeof({name}) = 'text' AND instr({name}, char(0)) = 0 THEN {name} END",
            "boolean": f"CASE WHEN typeof({name}) = 'integer' AND {name} IN (0, 1) THEN {name} END",
            "point": f"mudkit_point({name})",
        }.get(column.kind, "NULL")
    )
