"""The SQLite evaluator: SQL text, and the functions that it needs on a connection.

SQLite's values carry their types, so here one text can be "the value, of whatever kind": a number is REAL, a
string TEXT, a boolean INTEGER (0 or 1), a point a BLOB of its two doubles, a struct an empty BLOB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from mudkit.errors import PredicateError
from mudkit.predicates import tree
from mudkit.predicates.layout import Column, Group, Resolved, Typed, Whole, sqlite_reads
from mudkit.predicates.sql import Sql, Writer, flat
from mudkit.predicates.sqlite_functions import packed
from mudkit.predicates.tree import Node
from mudkit.predicates.values import (
    BIGGEST_INTEGER,
    BOOLEAN,
    EVERY_KIND,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Point,
)

__all__ = [
    "SqliteWriter",
]

_DEEPEST: Final = 6
"""Levels before a piece gets a name: SQLite's parser gives up at 100 things that are begun and not ended."""
_SHORT: Final = 1_000
"""Characters that may stand there twice."""
_MOST_ARGS: Final = 100
"""SQLite's functions take 127."""
_NATIVE_WILDCARDS: Final = 2
"""GLOB tries every place for every star; with more, RE2 in its linear time is the safe choice."""
_EXACT: Final = f"BETWEEN -{BIGGEST_INTEGER} AND {BIGGEST_INTEGER}"
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
    """Writes an expression for SQLite."""

    dialect = "sqlite"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._named: list[str] = []

    def put(self, template: str, *args: str, strength: int = 9, chain: bool = False) -> Sql:
        """Put pieces together; what becomes too deep for SQLite's parser gets a name."""
        made = super().put(template, *args, strength=strength, chain=chain)
        if made.deep <= _DEEPEST:
            return made
        name = f"mudkit_{len(self._named)}"
        self._named.append(f"{name}(v) AS (SELECT {made})")
        return Sql(f"(SELECT v FROM {name})")

    def finished(self, whole: Sql) -> Sql:
        """Close the expression, with what has got a name before it."""
        if self._named:
            whole = Sql(f"(WITH {', '.join(self._named)} SELECT {whole})")
        return super().finished(whole)

    def null(self, kind: int) -> Sql:
        """Write NULL."""
        return Sql("NULL")

    def literal(self, constant: Any) -> Sql:
        """Write a constant."""
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
        """Write NULL for infinity; NaN is NULL in SQLite."""
        return self.put(_FINITE, number)

    def divided(self, left: Sql, right: Sql) -> Sql:
        """Write a division; by zero it is NULL in SQLite."""
        sides = Sql(left) if left.strength >= 2 else Sql(f"({left})"), right
        sides[0].deep = left.deep
        return self.put("{} / {}", *sides, strength=2, chain=True)

    def name(self, column: Resolved, kind: int) -> Sql:
        """Write the value of a name if it is of a kind, or of one of some kinds."""
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
        return Sql(f"CASE WHEN {self._there(column)} THEN coalesce({place}, {_STRUCT}) END")

    def missing(self, typed: Resolved) -> Sql:
        """Write whether a name is NULL."""
        if isinstance(typed, Group):
            return Sql(f"(NOT {self._there(typed)})")
        if isinstance(typed, Whole):
            column = _quoted(typed.column)
            value = _in_json(column, typed.path, EVERY_KIND, struct_only=True)
            return Sql(f"({value} IS NULL)")
        return Sql(f"({self.name(typed, EVERY_KIND)} IS NULL)")

    def _there(self, group: Group) -> str:
        columns = group.columns if group.struct is None else (group.struct,)
        names = [_identifier(name) for column in columns for name in _names(column)]
        return f"({' OR '.join(f'{name} IS NOT NULL' for name in names)})"

    def value(self, node: Node, kinds: int) -> Sql:
        """Write a node's value if it is of one of some kinds."""
        kinds &= self.kinds(node)
        if isinstance(node, tree.Name):
            return self.name(self.resolve(node), kinds) if kinds else self.null(NULL)
        if isinstance(node, tree.Call) and node.function.name == "coalesce":
            return self.first(flat(node), kinds)
        return self.of(node, kinds)

    def first(self, args: Sequence[Node], kind: int) -> Sql:
        """Write the first value that is not NULL, if it is of one of some kinds."""
        texts = [self.value(arg, EVERY_KIND) for arg in args]
        while len(texts) > 1:
            some = texts[-_MOST_ARGS:]
            texts[-_MOST_ARGS:] = [self.put(f"coalesce({', '.join(['{}'] * len(some))})", *some)]
        others = any(self.kinds(arg) & ~kind for arg in args)
        return self.put(f"mudkit_only({{}}, {kind})", texts[0]) if others else texts[0]

    def mixed(self, node: tree.Compare, common: int) -> Sql:
        """Write a comparison whose sides share several kinds."""
        left, right = self.value(node.left, common), self.value(node.right, common)
        if len(left) > _SHORT or len(right) > _SHORT:
            return self.put(f"mudkit_compare({{}}, '{node.operator}', {{}})", left, right)
        return self.put(
            f"(CASE typeof({{}}) WHEN typeof({{}}) THEN {{}} {node.operator} {{}} END)",
            left,
            right,
            left,
            right,
        )

    def call(self, node: tree.Call) -> Sql:
        """Write a function."""
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
            if pattern.count("%") <= _NATIVE_WILDCARDS:
                special = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
                glob = "".join(special.get(each, each) for each in pattern)
                return self.put("({} GLOB {})", text, self.literal(glob))
        return self.put("mudkit_like({}, {})", text, written)

    def _user(self, node: tree.Call) -> Sql:
        function, args = node.function, self.args(node)
        form = function.sql.get("sqlite")
        if form is None or (POINT & function.returns) or any(kind & POINT for kind in function.takes):
            return self.put(f"mudkit_user_{function.name}({', '.join(['{}'] * len(args))})", *args)
        written = self.put(form, *(self.put("({})", arg) for arg in args))
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
    # Not in double quotes: SQLite takes those for a string when there is no such column.
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
    if sqlite_reads(written) != x:  # SQLite rounds some decimals to the neighbour: powers of two are exact
        mantissa, exponent = math.frexp(x)
        written, exponent = f"{int(mantissa * 2**53)}.0", exponent - 53
        while exponent:
            step = max(-52, min(52, exponent))
            written += f" {'*' if step > 0 else '/'} {2 ** abs(step)}.0"
            exponent -= step
    return f"({written})" if x < 0 or " " in written else written


def _in_json(column: str, path: tuple[str, ...], kinds: int, *, struct_only: bool = False) -> Sql:
    """Write the value at a path in a JSON column, if it is of one of some kinds."""
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
        # A pair has these attributes as well.
        outer = f"{column}, '${''.join('.' + part for part in path[:-1])}'"
        pair = f"mudkit_{path[-1]}(json_extract({outer}))"
        case = f"CASE json_type({outer}) WHEN 'array' THEN {pair} ELSE {case} END"
    return Sql(case)


def _in_column(typed: Typed) -> Sql:
    """Write the value in a typed column; SQLite itself would let any type in."""
    column, part = typed
    if column.kind in ("date", "pair"):
        raise PredicateError(
            "SQLite has no such columns.",
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
