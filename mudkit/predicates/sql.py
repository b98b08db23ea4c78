"""The SQL evaluators: a tree becomes one SQL expression that is TRUE, FALSE or NULL as in Python.

The engines disagree with the language, and with each other, on what comparing a string with a number means.
So a node is never written as such but as "its value if it is of this kind, else NULL", and only texts of one
kind meet in an operator.
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

__all__ = ["MAX_SQL", "ONE_KIND", "Sql", "Writer"]

MAX_SQL: Final = 1_000_000
"""Characters that an expression may have."""

ONE_KIND: Final = (NUMBER, STRING, BOOLEAN, POINT)
_ORDERED: Final = NUMBER | STRING | BOOLEAN
_ATOM: Final = 9
_STRENGTH: Final = {"+": 1, "-": 1, "*": 2, "/": 2}


class Sql(str):
    """A piece of SQL that knows how deep it is and how strongly its operator binds."""

    deep: int = 0
    strength: int = _ATOM


class Writer(abc.ABC):
    """Writes one expression.

    Parameters
    ----------
    constants : tuple
    layout : Layout
    text : str
    """

    dialect: str

    def __init__(self, constants: tuple[Any, ...], layout: Layout, text: str) -> None:
        self.constants = constants
        self.layout = layout
        self.text = text
        self._resolved: dict[int, Resolved] = {}
        self._memo: dict[tuple[int, int], Sql] = {}
        self._kinds: dict[int, int] = {}

    def put(self, template: str, *args: str, strength: int = _ATOM, chain: bool = False) -> Sql:
        """Put pieces together; in a chain (a + b + c) the first does not count as deeper.

        Raises
        ------
        PredicateError
            The whole is too long.
        """
        if sum(map(len, args)) > MAX_SQL:
            raise self.too_long()
        made = Sql(template.format(*args) if args else template)
        depths = [arg.deep if isinstance(arg, Sql) else 0 for arg in args]
        if depths:
            made.deep = max([depth + 1 for depth in depths[1:]] + [depths[0] + (not chain)])
        made.strength = strength
        return made

    def too_long(self) -> PredicateError:
        """Make the error for an expression that is too long."""
        return PredicateError(
            f"The predicate becomes too long for {self.dialect}.",
            text=self.text,
            expected=f"at most {MAX_SQL:,} characters of SQL",
            remedy="give a schema, so that kinds are known, or nest less",
        )

    def no_form(self, node: tree.Call, remedy: str | None = None) -> PredicateError:
        """Make the error for a function that the dialect does not have."""
        return PredicateError(
            f"{node.function.name} has no form for the evaluator {self.dialect}.",
            text=self.text,
            at=node.at,
            remedy=remedy,
        )

    def finished(self, whole: Sql) -> Sql:
        """Close the expression."""
        if len(whole) > MAX_SQL:
            raise self.too_long()
        return whole

    def resolve(self, node: tree.Name) -> Resolved:
        """Say where a name is."""
        if id(node) not in self._resolved:
            self._resolved[id(node)] = self.layout.find(node, self.text)
        return self._resolved[id(node)]

    def kinds(self, node: Node) -> int:
        """Give the kinds that a node may have in this layout."""
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
        """Write NULL of a kind."""

    @abc.abstractmethod
    def literal(self, constant: Any) -> Sql:
        """Write a constant."""

    @abc.abstractmethod
    def name(self, column: Resolved, kind: int) -> Sql:
        """Write the value of a name if it is of a kind."""

    @abc.abstractmethod
    def missing(self, column: Resolved) -> Sql:
        """Write whether a name is NULL."""

    @abc.abstractmethod
    def call(self, node: tree.Call) -> Sql:
        """Write a function."""

    @abc.abstractmethod
    def first(self, args: Sequence[Node], kind: int) -> Sql:
        """Write the first value that is not NULL, if it is of a kind."""

    @abc.abstractmethod
    def mixed(self, node: tree.Compare, common: int) -> Sql:
        """Write a comparison whose sides share several kinds."""

    @abc.abstractmethod
    def finite(self, number: Sql) -> Sql:
        """Write NULL for what is infinite or no number."""

    @abc.abstractmethod
    def divided(self, left: Sql, right: Sql) -> Sql:
        """Write a division, NULL by zero; the left may be infinite."""

    def of(self, node: Node, kind: int) -> Sql:
        """Write a node's value if it is of a kind, else NULL."""
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
                    return self.first(flat(node), kind)
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
        """Write the arguments of a function, each of the kind that it takes."""
        kinds = [node.function.kind_of_argument(position) for position in range(len(node.args))]
        return [self.of(arg, kind) for arg, kind in zip(node.args, kinds, strict=True)]

    def raw(self, node: Node) -> Sql:
        """Write a number that may still have overflowed.

        Infinity stays infinity or becomes NaN in sums, products and numerators, so one guard around them all
        does what a guard around each would.
        """
        if not (isinstance(node, tree.Call) and _is_arithmetic(node)):
            return self.of(node, NUMBER)
        key = (id(node), NULL)
        if key not in self._memo:
            symbol = node.function.symbol
            left = self.raw(node.args[0])
            if len(node.args) == 1:
                self._memo[key] = self.put("(-{})", _bracketed(left, _ATOM))
            elif symbol == "/":
                self._memo[key] = self.divided(left, self.of(node.args[1], NUMBER))
            else:
                own = _STRENGTH[symbol]
                sides = _bracketed(left, own), _bracketed(self.raw(node.args[1]), own + 1)
                self._memo[key] = self.put(f"{{}} {symbol} {{}}", *sides, strength=own, chain=True)
        return self._memo[key]

    def is_null(self, node: Node) -> Sql:
        """Write whether a node is NULL."""
        if not self.kinds(node):
            return self.literal(True)
        if isinstance(node, tree.Constant):
            return self.literal(False)
        if isinstance(node, tree.Name):
            return self.missing(self.resolve(node))
        if isinstance(node, tree.Call) and node.function.name == "coalesce":
            return self.joined(" AND ", [self.is_null(arg) for arg in flat(node)])
        return self.put("({} IS NULL)", self.of(node, self.kinds(node)))

    def joined(self, by: str, parts: Sequence[Sql]) -> Sql:
        """Write a chain of one operator."""
        return parts[0] if len(parts) == 1 else self.put("(" + by.join(["{}"] * len(parts)) + ")", *parts)

    def _joined(self, by: str, args: Sequence[Node]) -> Sql:
        return self.joined(by, [self.of(arg, BOOLEAN) for arg in args])

    def _between(self, args: tuple[Node, ...]) -> Sql | None:
        """Write BETWEEN as such, so that what is between stands there once."""
        match args:
            case (
                tree.Compare(operator=">=", left=item, right=low),
                tree.Compare(operator="<=", left=same, right=high),
            ) if item is same:
                kind = self._common(item, low)
                if kind != self._common(item, high) or kind not in ONE_KIND:
                    return None
                return self.put(
                    "({} BETWEEN {} AND {})", *(self.of(each, kind) for each in (item, low, high))
                )
        return None

    def _one_of(self, args: tuple[Node, ...]) -> Sql | None:
        """Write IN over what is not constant as such, for the same reason."""
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
        texts = [self.of(each, kind) for each in (item, *rights)]
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
                texts: list[str] = [self.literal(each) for each in members.of_kind(kind)]
                if members.kinds != kind:  # the rest of the list makes a miss NULL
                    texts.append(self.null(kind))
                listed = ", ".join(texts)
                arms.append(self.put("({} IN ({}))", self.of(node.item, kind), listed))
        if not arms:
            return self.null(BOOLEAN)
        return self.any_of(arms)

    def any_of(self, arms: Sequence[Sql]) -> Sql:
        """Write the one of some texts that is not NULL."""
        if len(arms) == 1:
            return arms[0]
        return self.put("coalesce(" + ", ".join(["{}"] * len(arms)) + ")", *arms)


def flat(node: tree.Call) -> list[Node]:
    """Give the arguments of nested calls of coalesce as those of one."""
    args: list[Node] = []
    for arg in node.args:
        nested = isinstance(arg, tree.Call) and arg.function.name == "coalesce"
        args += flat(arg) if nested else [arg]  # type: ignore[arg-type]
    return args


def _is_arithmetic(node: tree.Call) -> bool:
    return node.function.symbol in _STRENGTH


def _bracketed(text: Sql, strength: int) -> Sql:
    if text.strength >= strength:
        return text
    made = Sql(f"({text})")
    made.deep = text.deep + 1
    return made
