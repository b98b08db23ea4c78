"""The common part of the SQL evaluators: a tree becomes one SQL expression with the same value as in Python.

Engines disagree on comparing values of different kinds. A node is therefore written as "its value if it has
this kind, else NULL", and an operator combines only expressions of one kind.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Final

from mudkit.errors import PredicateError
from mudkit.predicates import tree
from mudkit.predicates.layout import Layout, Resolved
from mudkit.predicates.tree import Node
from mudkit.predicates.values import BOOLEAN, NULL, NUMBER, POINT, STRING, Members

__all__ = ["MAX_SQL_CHARS", "ONE_KIND", "Sql", "Writer"]

MAX_SQL_CHARS: Final = 1_000_000
"""Maximum length of an expression."""

ONE_KIND: Final = (NUMBER, STRING, BOOLEAN, POINT)
_ORDERED: Final = NUMBER | STRING | BOOLEAN
_ATOMIC: Final = 9
_PRECEDENCE: Final = {"+": 1, "-": 1, "*": 2, "/": 2}


class Sql(str):
    """Piece of SQL with its depth and the precedence of its operator."""

    depth: int = 0
    precedence: int = _ATOMIC


class Writer(abc.ABC):
    """Writer of one expression; ``text`` is the predicate's text, for errors."""

    dialect: str

    def __init__(self, constants: tuple[Any, ...], layout: Layout, text: str) -> None:
        self.constants = constants
        self.layout = layout
        self.text = text
        self._resolved: dict[int, Resolved] = {}
        self._memo: dict[tuple[int, int], Sql] = {}
        self._kinds: dict[int, int] = {}

    def put(self, template: str, *args: str, precedence: int = _ATOMIC, chain: bool = False) -> Sql:
        """Fill a template with pieces; in a chain (a + b + c) the first piece does not add depth."""
        if sum(map(len, args)) > MAX_SQL_CHARS:
            raise self.too_long()
        sql = Sql(template.format(*args) if args else template)
        depths = [arg.depth if isinstance(arg, Sql) else 0 for arg in args]
        if depths:
            sql.depth = max([depth + 1 for depth in depths[1:]] + [depths[0] + (not chain)])
        sql.precedence = precedence
        return sql

    def too_long(self) -> PredicateError:
        """Return the error for an expression that is too long."""
        return PredicateError(
            f"The predicate becomes too long for {self.dialect}.",
            text=self.text,
            expected=f"at most {MAX_SQL_CHARS:,} characters of SQL",
            remedy="give a schema, so that kinds are known, or nest less",
        )

    def no_form(self, node: tree.Call, remedy: str | None = None) -> PredicateError:
        """Return the error for a function that the dialect does not have."""
        return PredicateError(
            f"{node.function.name} is not available in the evaluator {self.dialect}.",
            text=self.text,
            at=node.at,
            remedy=remedy,
        )

    def finished(self, whole: Sql) -> Sql:
        """Return the complete expression."""
        if len(whole) > MAX_SQL_CHARS:
            raise self.too_long()
        return whole

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

    @abc.abstractmethod
    def null(self, kind: int) -> Sql:
        """Return NULL of a kind."""

    @abc.abstractmethod
    def literal(self, constant: Any) -> Sql:
        """Return a constant."""

    @abc.abstractmethod
    def name(self, column: Resolved, kind: int) -> Sql:
        """Return the value of a name if it has a kind, else NULL."""

    @abc.abstractmethod
    def missing(self, column: Resolved) -> Sql:
        """Return the test whether a name is NULL."""

    @abc.abstractmethod
    def call(self, node: tree.Call) -> Sql:
        """Return a function call."""

    @abc.abstractmethod
    def first(self, args: Sequence[Node], kind: int) -> Sql:
        """Return the first value that is not NULL if it has a kind, else NULL."""

    @abc.abstractmethod
    def mixed(self, node: tree.Compare, common: int) -> Sql:
        """Return a comparison whose sides share several kinds."""

    @abc.abstractmethod
    def finite(self, number: Sql) -> Sql:
        """Return a number, or NULL for infinity and NaN."""

    @abc.abstractmethod
    def divided(self, left: Sql, right: Sql) -> Sql:
        """Return a quotient, NULL for a zero divisor; the left side may be infinite."""

    def of(self, node: Node, kind: int) -> Sql:
        """Return a node's value if it has a kind, else NULL."""
        if not self.kinds(node) & kind:
            return self.null(kind)
        if isinstance(node, tree.Constant):
            return self.literal(self.constants[node.slot])
        key = (id(node), kind)
        if key not in self._memo:
            self._memo[key] = self._one(node, kind)
        return self._memo[key]

    def _one(self, node: Node, kind: int) -> Sql:
        match node:
            case tree.Name():
                return self.name(self.resolve(node), kind)
            case tree.Call(function=function):
                if function.name == "coalesce":
                    return self.first(flatten(node), kind)
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

    def args(self, node: tree.Call) -> list[Sql]:
        """Return the arguments of a function, each of the kind that it takes."""
        kinds = [node.function.kind_of_argument(position) for position in range(len(node.args))]
        return [self.of(arg, kind) for arg, kind in zip(node.args, kinds, strict=True)]

    def raw(self, node: Node) -> Sql:
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
                self._memo[key] = self.divided(left, self.of(node.args[1], NUMBER))
            else:
                own = _PRECEDENCE[symbol]
                sides = _bracketed(left, own), _bracketed(self.raw(node.args[1]), own + 1)
                self._memo[key] = self.put(f"{{}} {symbol} {{}}", *sides, precedence=own, chain=True)
        return self._memo[key]

    def is_null(self, node: Node) -> Sql:
        """Return the test whether a node is NULL."""
        if not self.kinds(node):
            return self.literal(True)
        if isinstance(node, tree.Constant):
            return self.literal(False)
        if isinstance(node, tree.Name):
            return self.missing(self.resolve(node))
        if isinstance(node, tree.Call) and node.function.name == "coalesce":
            return self.joined(" AND ", [self.is_null(arg) for arg in flatten(node)])
        return self.put("({} IS NULL)", self.of(node, self.kinds(node)))

    def joined(self, by: str, parts: Sequence[Sql]) -> Sql:
        """Return a chain of one operator."""
        return parts[0] if len(parts) == 1 else self.put("(" + by.join(["{}"] * len(parts)) + ")", *parts)

    def _joined(self, by: str, args: Sequence[Node]) -> Sql:
        return self.joined(by, [self.of(arg, BOOLEAN) for arg in args])

    def _between(self, args: tuple[Node, ...]) -> Sql | None:
        """Return the conjunction of BETWEEN as BETWEEN, so that the tested value is written once."""
        match args:
            case (
                tree.Compare(operator=">=", left=item, right=low),
                tree.Compare(operator="<=", left=same, right=high),
            ) if item is same:
                kind = self._common(item, low)
                if kind != self._common(item, high) or kind not in ONE_KIND:
                    return None
                return self.put(
                    "({} BETWEEN {} AND {})", *(self.of(part, kind) for part in (item, low, high))
                )
        return None

    def _one_of(self, args: tuple[Node, ...]) -> Sql | None:
        """Return the disjunction of IN as IN, so that the tested value is written once."""
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
        if kind not in ONE_KIND:
            return None
        texts = [self.of(part, kind) for part in (item, *rights)]
        return self.put("({} IN (" + ", ".join(["{}"] * len(rights)) + "))", *texts)

    def _common(self, left: Node, right: Node, operator: str = "<") -> int:
        comparable = _ORDERED | POINT if operator in ("=", "<>") else _ORDERED
        return self.kinds(left) & self.kinds(right) & comparable

    def _compare(self, node: tree.Compare) -> Sql:
        common = self._common(node.left, node.right, node.operator)
        if not common:
            return self.null(BOOLEAN)
        if common not in ONE_KIND:
            return self.mixed(node, common)
        sides = self.of(node.left, common), self.of(node.right, common)
        return self.put(f"({{}} {node.operator} {{}})", *sides)

    def _in(self, node: tree.In) -> Sql:
        members: Members = self.constants[node.members.slot]
        if not members.kinds:
            return self.literal(False)
        arms = []
        for kind in ONE_KIND:
            if self.kinds(node.item) & members.kinds & kind:
                texts: list[str] = [self.literal(member) for member in members.of_kind(kind)]
                if members.kinds != kind:  # members of other kinds make a miss NULL
                    texts.append(self.null(kind))
                listed = ", ".join(texts)
                arms.append(self.put("({} IN ({}))", self.of(node.item, kind), listed))
        if not arms:
            return self.null(BOOLEAN)
        return self.any_of(arms)

    def any_of(self, arms: Sequence[Sql]) -> Sql:
        """Return the piece that is not NULL, of which there is at most one."""
        if len(arms) == 1:
            return arms[0]
        return self.put("coalesce(" + ", ".join(["{}"] * len(arms)) + ")", *arms)


def flatten(node: tree.Call) -> list[Node]:
    """Return the arguments of nested calls of coalesce as those of one call."""
    args: list[Node] = []
    for arg in node.args:
        nested = isinstance(arg, tree.Call) and arg.function.name == "coalesce"
        args += flatten(arg) if nested else [arg]  # type: ignore[arg-type]
    return args


def _is_arithmetic(node: tree.Call) -> bool:
    return node.function.symbol in _PRECEDENCE


def _bracketed(text: Sql, precedence: int) -> Sql:
    if text.precedence >= precedence:
        return text
    sql = Sql(f"({text})")
    sql.depth = text.depth + 1
    return sql
