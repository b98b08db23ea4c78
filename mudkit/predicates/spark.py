"""The Spark evaluator: SQL text for Spark SQL, also in ANSI mode.

Spark's expressions have one type each: a number is DOUBLE, a string STRING, a boolean BOOLEAN, a point a
STRUCT of two doubles. A node is therefore written as "its value if it has this kind, else NULL", and an
operator combines only expressions of one kind. A piece that is used several times becomes an array's element,
for a lambda.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mudkit import units
from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.layout import Column, Group, Layout, Resolved, Typed, Whole
from mudkit.predicates.tree import Node
from mudkit.predicates.values import (
    BOOLEAN,
    MAX_INTEGER,
    MAX_NUMBER,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Members,
    Point,
)

_TYPES: Final = {
    NUMBER: "DOUBLE",
    STRING: "STRING",
    BOOLEAN: "BOOLEAN",
    POINT: "STRUCT<lat: DOUBLE, lon: DOUBLE>",
    STRUCT: "BOOLEAN",
    NULL: "BOOLEAN",
}
_ONE_KIND: Final = (NUMBER, STRING, BOOLEAN, POINT)
_ORDERED: Final = NUMBER | STRING | BOOLEAN
_ATOMIC: Final = 9
_PRECEDENCE: Final = {"+": 1, "-": 1, "*": 2, "/": 2}
MAX_SQL_CHARS: Final = 1_000_000
"""Maximum length of an expression."""
MAX_REPEATED_CHARS: Final = 500
"""Maximum length of a piece that is written twice."""
_EXACT: Final = f"BETWEEN -{MAX_INTEGER} AND {MAX_INTEGER}"
_FINITE: Final = f"abs({{}}) <= {MAX_NUMBER!r}D"
_NOT_FINITE: Final = "array(double('Infinity'), double('-Infinity'), double('NaN'))"
_MAX_BIGINT: Final = "9.3e18D"
"""A whole number in JSON text is BIGINT up to here, and DECIMAL beyond."""
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_DISTANCE: Final = (
    "floor({r}D * asin(sqrt(least(pow(sin((radians({b}.lat) - radians({a}.lat)) / 2D), 2D) "
    "+ cos(radians({a}.lat)) * cos(radians({b}.lat)) "
    "* pow(sin((radians({b}.lon) - radians({a}.lon)) / 2D), 2D), 1D))) * 1e6D + 0.5D) / 1e6D"
).replace("{r}", repr(2 * units.EARTH_RADIUS_KM))
_KM: Final = _DISTANCE.replace("{a}", "m.a").replace("{b}", "m.b")
_BOX: Final = (
    "(m.a.lat BETWEEN m.b AND m.d AND (CASE WHEN m.c <= m.e THEN m.a.lon BETWEEN m.c AND m.e "
    "OR (abs(m.a.lon) = 180D AND -m.a.lon BETWEEN m.c AND m.e) "
    "ELSE m.a.lon >= m.c OR m.a.lon <= m.e "
    "OR (abs(m.a.lon) = 180D AND (-m.a.lon >= m.c OR -m.a.lon <= m.e)) END))"
)
_PARTS_OF_TIME: Final = {
    **{
        name: name + "(date_from_unix_date(CAST(floor({} / 86400L) AS INT)))"
        for name in ("year", "month", "day")
    },
    "weekday": "pmod(floor({} / 86400L) + 3L, 7L)",
    "hour": "floor(pmod({}, 86400L) / 3600L)",
    "minute": "floor(pmod({}, 3600L) / 60L)",
}
"""Parts of a time in seconds since 1970, as the clocks of its zone show it."""
_WITH_TIME: Final = f"m.a >= {functions.MIN_TIME_S}D AND m.a < {functions.MAX_TIME_S}D"

_TEMPLATES: Final = {
    "matches": "mudkit_matches({}, {})",
    "starts_with": "startswith({}, {})",
    "contains": "contains({}, {})",
    "lower": f"translate({{}}, '{_UPPER}', '{_UPPER.lower()}')",
    "upper": f"translate({{}}, '{_UPPER.lower()}', '{_UPPER}')",
    "length": "CAST(char_length({}) AS DOUBLE)",
    "abs": "abs({})",
}


class _Sql(str):
    """Piece of SQL with the precedence of its operator."""

    precedence: int = _ATOMIC


class SparkWriter:
    """Writer of one expression; ``text`` is the predicate's text, for errors."""

    def __init__(self, constants: tuple[Any, ...], layout: Layout, text: str) -> None:
        self.constants = constants
        self.layout = layout
        self.text = text
        self._resolved: dict[int, Resolved] = {}
        self._memo: dict[tuple[int, int], _Sql] = {}
        self._kinds: dict[int, int] = {}

    def write(self, root: Node) -> str:
        """Return the whole expression of a condition; PredicateError if it is too long."""
        whole = self.of(root, BOOLEAN)
        if len(whole) > MAX_SQL_CHARS:
            raise self.too_long()
        return str(whole)

    def put(self, template: str, *args: str, precedence: int = _ATOMIC) -> _Sql:
        """Fill a template with pieces; PredicateError if they are too long."""
        if sum(map(len, args)) > MAX_SQL_CHARS:
            raise self.too_long()
        sql = _Sql(template.format(*args) if args else template)
        sql.precedence = precedence
        return sql

    def too_long(self) -> PredicateError:
        """Return the error for an expression that is too long."""
        return PredicateError(
            "The predicate becomes too long for Spark.",
            text=self.text,
            expected=f"at most {MAX_SQL_CHARS:,} characters of SQL",
            remedy="give a schema, so that kinds are known, or nest less",
        )

    def no_form(self, node: tree.Call, remedy: str | None = None) -> PredicateError:
        """Return the error for a function that Spark does not have."""
        return PredicateError(
            f"{node.function.name} is not available in the evaluator spark.",
            text=self.text,
            at=node.at,
            remedy=remedy,
        )

    def resolve(self, node: tree.Name) -> Resolved:
        """Return the place of a name in the layout."""
        if id(node) not in self._resolved:
            self._resolved[id(node)] = self.layout.find(node, self.text)
        return self._resolved[id(node)]

    def kinds(self, node: Node) -> int:
        """Return the kinds that a node may have in this layout."""
        kinds = self._kinds.get(id(node))
        if kinds is None:
            kinds = node.kinds
            if isinstance(node, tree.Name):
                column = self.resolve(node)
                kinds &= NULL if column is None else column.kinds
            elif isinstance(node, tree.Call) and node.function.name == "coalesce":
                kinds = 0
                for arg in node.args:
                    kinds |= self.kinds(arg)
            self._kinds[id(node)] = kinds
        return kinds

    def of(self, node: Node, kind: int) -> _Sql:
        """Return a node's value if it has a kind, else NULL."""
        if not self.kinds(node) & kind:
            return self.null(kind)
        if isinstance(node, tree.Constant):
            return self.literal(self.constants[node.slot])
        key = (id(node), kind)
        if key not in self._memo:
            self._memo[key] = self._one(node, kind)
        return self._memo[key]

    def _one(self, node: Node, kind: int) -> _Sql:
        """Return the value of a node that is no constant if it has a kind, else NULL; not cached."""
        match node:
            case tree.Name():
                return self.name(self.resolve(node), kind)
            case tree.Call(function=function):
                if function.name == "coalesce":
                    return self.first(_flatten(node), kind)
                return self.finite(self.raw(node)) if _is_arithmetic(node) else self.call(node)
            case tree.Compare():
                return self._compare(node)
            case tree.In():
                return self._in(node)
            case tree.IsNull(item=item):
                return self.is_null(item)
            case tree.Not(item=item):
                return self.put("(NOT {})", self.of(item, BOOLEAN))
            case tree.And(args=args):
                return self._between(args) or self._joined(" AND ", args)
            case tree.Or(args=args):
                return self._one_of(args) or self._joined(" OR ", args)
        raise AssertionError(node)

    def args(self, node: tree.Call) -> list[_Sql]:
        """Return the arguments of a function, each of the kind that it takes."""
        kinds = [node.function.kind_of_argument(position) for position in range(len(node.args))]
        return [self.of(arg, kind) for arg, kind in zip(node.args, kinds, strict=True)]

    def raw(self, node: Node) -> _Sql:
        """Return a number that may have overflowed.

        Infinity stays infinity or becomes NaN in sums and products, so one guard around them is enough.
        """
        if not (isinstance(node, tree.Call) and _is_arithmetic(node)):
            return self.of(node, NUMBER)
        key = (id(node), NULL)
        if key not in self._memo:
            symbol = node.function.symbol
            left = self.raw(node.args[0])
            if len(node.args) == 1:
                self._memo[key] = self.put("(-{})", _bracketed(left, _ATOMIC))
            elif symbol == "/":
                self._memo[key] = self.put("try_divide({}, {})", left, self.of(node.args[1], NUMBER))
            else:
                own = _PRECEDENCE[symbol]
                sides = _bracketed(left, own), _bracketed(self.raw(node.args[1]), own + 1)
                self._memo[key] = self.put(f"{{}} {symbol} {{}}", *sides, precedence=own)
        return self._memo[key]

    def is_null(self, node: Node) -> _Sql:
        """Return SQL that tests whether a node is NULL."""
        if not self.kinds(node):
            return self.literal(True)
        if isinstance(node, tree.Constant):
            return self.literal(False)
        if isinstance(node, tree.Name):
            return self.missing(self.resolve(node))
        if isinstance(node, tree.Call) and node.function.name == "coalesce":
            return self.joined(" AND ", [self.is_null(arg) for arg in _flatten(node)])
        return self.put("({} IS NULL)", self.of(node, self.kinds(node)))

    def joined(self, by: str, parts: Sequence[_Sql]) -> _Sql:
        """Return conditions joined by an operator, ``by``, in parentheses."""
        return parts[0] if len(parts) == 1 else self.put("(" + by.join(["{}"] * len(parts)) + ")", *parts)

    def _joined(self, by: str, args: Sequence[Node]) -> _Sql:
        """Return conditions, written as SQL, joined by an operator."""
        return self.joined(by, [self.of(arg, BOOLEAN) for arg in args])

    def _between(self, args: tuple[Node, ...]) -> _Sql | None:
        """Return ``x >= a AND x <= b`` as BETWEEN, with ``x`` written once; None for others."""
        match args:
            case (
                tree.Compare(operator=">=", left=item, right=low),
                tree.Compare(operator="<=", left=same, right=high),
            ) if item is same:
                kind = self._comparable_kinds(item, low)
                if kind != self._comparable_kinds(item, high) or kind not in _ONE_KIND:
                    return None
                return self.put(
                    "({} BETWEEN {} AND {})", *(self.of(part, kind) for part in (item, low, high))
                )
        return None

    def _one_of(self, args: tuple[Node, ...]) -> _Sql | None:
        """Return ``x = a OR x = b`` as IN, with ``x`` written once; None for other disjunctions."""
        rights = []
        item: Node | None = None
        for arg in args:
            if not isinstance(arg, tree.Compare) or arg.operator != "=" or (item or arg.left) is not arg.left:
                return None
            item = arg.left
            rights.append(arg.right)
        if item is None or len(rights) < 2:
            return None
        kind = self.kinds(item)
        if kind not in _ONE_KIND:
            return None
        texts = [self.of(part, kind) for part in (item, *rights)]
        return self.put("({} IN (" + ", ".join(["{}"] * len(rights)) + "))", *texts)

    def _comparable_kinds(self, left: Node, right: Node, operator: str = "<") -> int:
        """Return the kinds that both operands may have and the operator compares, as bits."""
        comparable = _ORDERED | POINT if operator in ("=", "<>") else _ORDERED
        return self.kinds(left) & self.kinds(right) & comparable

    def _compare(self, node: tree.Compare) -> _Sql:
        """Return a comparison, for each kind that both sides may have; NULL if they share none."""
        common = self._comparable_kinds(node.left, node.right, node.operator)
        if not common:
            return self.null(BOOLEAN)
        if common not in _ONE_KIND:
            return self.mixed(node, common)
        sides = self.of(node.left, common), self.of(node.right, common)
        return self.put(f"({{}} {node.operator} {{}})", *sides)

    def _in(self, node: tree.In) -> _Sql:
        """Return the test of a list, for each kind that item and list share."""
        members: Members = self.constants[node.members.slot]
        if not members.kinds:
            return self.literal(False)
        arms = []
        for kind in _ONE_KIND:
            if self.kinds(node.item) & members.kinds & kind:
                texts: list[str] = [self.literal(member) for member in members.of_kind(kind)]
                if members.kinds != kind:  # members of other kinds make a miss NULL
                    texts.append(self.null(kind))
                listed = ", ".join(texts)
                arms.append(self.put("({} IN ({}))", self.of(node.item, kind), listed))
        if not arms:
            return self.null(BOOLEAN)
        return self.any_of(arms)

    def any_of(self, arms: Sequence[_Sql]) -> _Sql:
        """Return the piece that is not NULL, of which there is at most one."""
        if len(arms) == 1:
            return arms[0]
        return self.put("coalesce(" + ", ".join(["{}"] * len(arms)) + ")", *arms)

    def null(self, kind: int) -> _Sql:
        """Return NULL of a kind."""
        return _Sql(f"CAST(NULL AS {_TYPES[kind]})")

    def literal(self, constant: Any) -> _Sql:
        """Return a constant as SQL."""
        if constant is None:
            return _Sql("NULL")
        if isinstance(constant, bool):
            return _Sql(str(constant).upper())
        if isinstance(constant, str):
            return _Sql(_string(constant))
        if isinstance(constant, Point):
            lat, lon = constant.lat + 0.0, constant.lon + 0.0
            return _Sql(f"named_struct('lat', {lat!r}D, 'lon', {lon!r}D)")
        constant += 0.0  # -0.0 becomes 0.0: after a minus sign, its own would begin a comment
        return _Sql(f"({constant!r}D)" if constant < 0 else f"{constant!r}D")

    def let(self, body: str, *args: _Sql) -> _Sql:
        """Return an expression over the arguments as ``m.a``, ``m.b``, …; NULL if one of them is NULL."""
        names = "abcdefgh"[: len(args)]
        fields = ", ".join(f"'{name}', {{}}" for name in names)
        tests = " AND ".join(f"m.{name} IS NOT NULL" for name in names)
        return self.put(
            f"get(transform(array(named_struct({fields})), m -> CASE WHEN {tests} THEN {body} END), 0)", *args
        )

    def finite(self, number: _Sql) -> _Sql:
        """Return a number, or NULL for infinity and NaN; the number is written once."""
        return self.put(f"get(array_except(array({{}}), {_NOT_FINITE}), 0)", number)

    def name(self, column: Resolved, kind: int) -> _Sql:
        """Return the value of a name; ``kind`` is one that its column may have (:meth:`of` checks it).

        A value of another kind in a column of several kinds is NULL.
        """
        if isinstance(column, Whole):
            return _Sql(_Variant(_reference(column.column), column.path).of(kind))
        if isinstance(column, Typed):
            return _Sql(_in_column(column))
        assert isinstance(column, Group)
        assert column.lat is not None
        assert column.lon is not None
        place = _place(_in_column(Typed(column.lat, "")), _in_column(Typed(column.lon, "")))
        return _Sql(f"CASE WHEN {_any_present(column)} THEN {place} END")

    def missing(self, column: Resolved) -> _Sql:
        """Return SQL that tests whether the value at a place of the layout is NULL."""
        if isinstance(column, Whole):
            return _Sql(f"(NOT {_Variant(_reference(column.column), column.path).is_present})")
        if isinstance(column, Group):
            return _Sql(f"(NOT {_any_present(column)})")
        assert column is not None
        return _Sql(f"({_in_column(column)} IS NULL)")

    def first(self, args: Sequence[Node], kind: int) -> _Sql:
        """Return the first value that is not NULL if it has a kind, else NULL."""
        result: list[_Sql] = []  # arms of one CASE, from the last to the first argument
        rest = self.null(kind)
        for position, arg in enumerate(reversed(args)):
            kinds = self.kinds(arg)
            if not kinds:
                continue
            value = self.of(arg, kind)
            if position == 0 and not kinds & ~kind:
                rest = value
            elif kinds == kind and len(value) > MAX_REPEATED_CHARS:
                rest = self.put("coalesce({}, {})", value, self._case(result, rest))
                result = []
            else:
                result.insert(0, self.put("WHEN NOT {} THEN {}", self.is_null(arg), value))
        return self._case(result, rest)

    def _case(self, arms: Sequence[_Sql], rest: _Sql) -> _Sql:
        """Return a CASE of arms ``WHEN … THEN …``, the rest alone without arms."""
        if not arms:
            return rest
        return self.put("(CASE " + " ".join(["{}"] * len(arms)) + " ELSE {} END)", *arms, rest)

    def mixed(self, node: tree.Compare, common: int) -> _Sql:
        """Return a comparison whose sides share several kinds; at most one arm is not NULL."""
        return self.any_of(
            [
                self.put(f"({{}} {node.operator} {{}})", self.of(node.left, kind), self.of(node.right, kind))
                for kind in _ONE_KIND
                if common & kind
            ]
        )

    def call(self, node: tree.Call) -> _Sql:
        """Return a function call."""
        name = node.function.name
        if node.function.is_user:
            return self._user(node)
        if name == "lookup":
            raise self.no_form(node, "lookup works in the Python and NumPy evaluators of the server")
        args = self.args(node)
        if name in functions.TIME_PARTS:
            return self._part_of_time(node, args[0])
        match name:
            case "like":
                return self._like(node, *args)
            case "distance_km":
                return self.let(_KM, *args)
            case "within_km":
                return self.let(f"({_KM} <= m.c)", *args)
            case "within_box":
                return self.let(_BOX, *args)
            case "point":
                return self.put(_place("{}", "{}"), *args)
        return self.put(_TEMPLATES[name], *args)

    def _like(self, node: tree.Call, text: _Sql, written: _Sql) -> _Sql:
        """Return LIKE with backslashes that stand for themselves, as in the language."""
        # In Spark's LIKE a backslash escapes.
        if isinstance(node.args[1], tree.Constant) and node.args[1].kinds == STRING:
            return self.put(
                "({} LIKE {})", text, _string(self.constants[node.args[1].slot].replace("\\", "\\\\"))
            )
        return self.put(r"({} LIKE replace({}, '\\', '\\\\'))", text, written)

    def _part_of_time(self, node: tree.Call, seconds: _Sql) -> _Sql:
        """Return a part of a time in a constant zone; PredicateError if the zone is no constant."""
        zone = "UTC"
        if len(node.args) > 1:
            given = node.args[1]
            if not self.kinds(given):
                return self.null(NUMBER)
            if not isinstance(given, tree.Constant):
                raise PredicateError(
                    f"The time zone of {node.function.name} must be a constant for the evaluator spark.",
                    text=self.text,
                    at=given.at or node.at,
                    remedy="write it as text or as a :parameter",
                )
            zone = self.constants[given.slot]
            if units.zone(zone) is None:
                return self.null(NUMBER)
        # Spark's own functions of timestamps use the zone of the session.
        local = "floor(m.a)"
        if zone != "UTC":
            local = f"unix_seconds(from_utc_timestamp(timestamp_seconds(floor(m.a)), {_string(zone)}))"
        part = _PARTS_OF_TIME[node.function.name].format(local)
        return self.let(f"CASE WHEN {_WITH_TIME} THEN CAST({part} AS DOUBLE) END", seconds)

    def _user(self, node: tree.Call) -> _Sql:
        """Return the SQL form of a user's function, NULL if an argument is; PredicateError if it has none."""
        function, args = node.function, self.args(node)
        if function.spark is None:
            raise self.no_form(node, "give it one: @function(…, spark='…')")
        written = self.put(function.spark, *(self.put("({})", arg) for arg in args))
        if function.returns == NUMBER:
            written = self.finite(self.put("CAST(({}) AS DOUBLE)", written))
        elif function.returns == POINT:
            written = self.let(_place("CAST(m.a.lat AS DOUBLE)", "CAST(m.a.lon AS DOUBLE)"), written)
        else:
            written = self.put(f"CAST(({{}}) AS {_TYPES[function.returns]})", written)
        tests = [
            self.put("{} IS NOT NULL", text)
            for text, arg in zip(args, node.args, strict=True)
            if not isinstance(arg, tree.Constant)
        ]
        if not tests:
            return written
        return self.put("CASE WHEN {} THEN {} END", self.joined(" AND ", tests), written)


def _flatten(node: tree.Call) -> list[Node]:
    """Return the arguments of nested calls of coalesce as those of one call."""
    args: list[Node] = []
    for arg in node.args:
        nested = isinstance(arg, tree.Call) and arg.function.name == "coalesce"
        args += _flatten(arg) if nested else [arg]  # type: ignore[arg-type]
    return args


def _is_arithmetic(node: tree.Call) -> bool:
    """Return whether a call is one of ``+ - * /``, also with one operand."""
    return node.function.symbol in _PRECEDENCE


def _bracketed(text: _Sql, precedence: int) -> _Sql:
    """Return a piece in parentheses unless its operator binds at least as tightly as ``precedence``."""
    if text.precedence >= precedence:
        return text
    return _Sql(f"({text})")


def _string(text: str) -> str:
    """Return a quoted string; ``$`` is escaped because Spark substitutes ``${…}`` everywhere."""
    escaped = "".join(
        f"\\{c}" if c in "\\'" else f"\\u{ord(c):04x}" if c < " " or c in '$"\x7f' else c for c in text
    )
    return f"'{escaped}'"


def _identifier(name: str) -> str:
    """Return a quoted column name; PredicateError for ``${``, which Spark would substitute."""
    if "${" in name:
        raise PredicateError(
            "Spark would substitute a variable in this column name.", found=repr(name), expected="no ${"
        )
    return "`" + name.replace("`", "``") + "`"


def _reference(column: Column) -> str:
    """Return the quoted path of a column and its fields."""
    assert isinstance(column.name, str)
    return ".".join(map(_identifier, (column.name, *column.path)))


def _place(lat: str, lon: str) -> str:
    """Return a point of two numbers, NULL if they are out of range."""
    place = f"named_struct('lat', {lat}, 'lon', {lon})"
    inside = "m.lat BETWEEN -90D AND 90D AND m.lon BETWEEN -180D AND 180D"
    return f"get(filter(array({place}), m -> {inside}), 0)"


def _any_present(group: Group) -> str:
    """Return SQL that tests whether any column of a struct, or the struct's own column, is not NULL."""
    columns = group.columns if group.struct is None else (group.struct,)
    names = [
        _reference(column) if isinstance(column.name, str) else _identifier(column.name[0])
        for column in columns
    ]
    return f"({' OR '.join(f'{name} IS NOT NULL' for name in names)})"


def _in_column(typed: Typed) -> str:
    """Return SQL for the value in a column of one kind, or for its ``lat`` or ``lon``."""
    column, part = typed
    kind = column.kind
    if not isinstance(column.name, str):
        place = _place(*(_number(_identifier(name)) for name in column.name))
    else:
        name = _reference(column)
        if kind == "number":
            return _number(name)
        if kind == "date":
            return _utc(f"CAST({name} AS TIMESTAMP_NTZ)")
        if kind == "string":
            return _text(name)
        if kind == "boolean":
            return name
        if kind == "pair":
            pair = _place(_number(f"get({name}, 0)"), _number(f"get({name}, 1)"))
            place = f"CASE WHEN size({name}) = 2 THEN {pair} END"
        elif kind == "point":
            place = _place(_number(f"{name}.lat"), _number(f"{name}.lon"))
        else:
            return f"CAST(NULL AS {_TYPES[NULL]})"
    return f"({place}).{part}" if part else place


def _number(name: str) -> str:
    """Return a column of any numeric type, or a TIMESTAMP, as a double."""
    exact = f"typeof({name}) <> 'bigint' OR try_cast({name} AS DECIMAL(19, 0)) {_EXACT}"
    double = f"CAST({name} AS DOUBLE)"
    return f"CASE WHEN {_FINITE.format(double)} AND ({exact}) THEN {double} END"


def _utc(time: str) -> str:
    """Return a time without a zone as seconds; a cast to TIMESTAMP alone would use the session's zone."""
    return f"CAST(try_cast(concat(CAST({time} AS STRING), 'Z') AS TIMESTAMP) AS DOUBLE)"


def _text(text: str) -> str:
    """Return SQL for a text, NULL if it has the character U+0000."""
    return rf"CASE WHEN instr({text}, '\u0000') = 0 THEN {text} END"


class _Variant:
    """Place inside a VARIANT."""

    def __init__(self, column: str, path: tuple[str, ...], index: str = "") -> None:
        self.column = column
        self.path = path
        self.where = f"{column}, '\\u0024{''.join('.' + part for part in path)}{index}'"
        self.type = f"schema_of_variant({self.get('variant')})"

    def get(self, kind: str) -> str:
        """Return SQL for the value read as a type of Spark, NULL if it is not convertible."""
        return f"try_variant_get({self.where}, '{kind}')"

    def of(self, kind: int) -> str:
        """Return the value if it has a kind, else NULL."""
        if kind == NUMBER:
            own = self.own_number
            if len(self.path) > 1 and self.path[-1] in ("lat", "lon"):  # a pair also has these attributes
                return f"coalesce({own}, ({_Variant(self.column, self.path[:-1]).pair}).{self.path[-1]})"
            return own
        if kind == STRING:
            return f"CASE WHEN {self.type} = 'STRING' THEN {_text(self.get('string'))} END"
        if kind == BOOLEAN:
            return f"CASE WHEN {self.type} = 'BOOLEAN' THEN {self.get('boolean')} END"
        lat, lon = (_Variant(self.column, (*self.path, part)).own_number for part in ("lat", "lon"))
        return f"coalesce({_place(lat, lon)}, {self.pair})"

    @property
    def own_number(self) -> str:
        """Number that is written at the place; NULL without one, or if it is not exact."""
        double, exact, kind = self.get("double"), self.get("bigint"), self.type
        time = _utc(self.get("timestamp_ntz"))
        return (
            f"CASE {kind} WHEN 'BIGINT' THEN CASE WHEN {exact} {_EXACT} THEN CAST({exact} AS DOUBLE) END "
            f"WHEN 'TIMESTAMP' THEN CAST({self.get('timestamp')} AS DOUBLE) "
            f"WHEN 'DATE' THEN {time} WHEN 'TIMESTAMP_NTZ' THEN {time} ELSE CASE WHEN "
            f"({kind} IN ('DOUBLE', 'FLOAT') AND {_FINITE.format(double)}) "
            f"OR ({kind} LIKE 'DECIMAL(%' "
            f"AND ({kind} NOT LIKE '%,0)' OR abs({double}) < {_MAX_BIGINT})) "
            f"THEN {double} END END"
        )

    @property
    def pair(self) -> str:
        """Point given as an array of two numbers; NULL for other values."""
        first, second = (_Variant(self.column, self.path, f"[{index}]").own_number for index in (0, 1))
        third = _Variant(self.column, self.path, "[2]").get("variant")
        return f"CASE WHEN {third} IS NULL THEN {_place(first, second)} END"

    @property
    def is_present(self) -> str:
        """SQL that tests whether the value is not NULL."""
        values = " OR ".join(f"({self.of(kind)}) IS NOT NULL" for kind in (NUMBER, STRING))
        return (
            f"coalesce({self.type} = 'BOOLEAN' OR {self.type} LIKE 'OBJECT<%', FALSE) "
            f"OR {values} OR ({self.pair}) IS NOT NULL"
        ).join("()")
