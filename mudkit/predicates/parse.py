"""From text to tree: sqlglot reads, a whitelist of nodes lets through."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from sqlglot import ErrorLevel, Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.parsed import Bound, ListOf, Parameter, Parsed, Scopes, Source
from mudkit.predicates.sqlglot_nodes import ARITHMETIC, COMPARE, operands, plain_name
from mudkit.predicates.tokens import DIALECT, MAX_DEPTH, tokens
from mudkit.predicates.tree import Node, Place
from mudkit.predicates.values import BIGGEST_INTEGER, EVERY_KIND, LIST, Members, Value, kind_of, value

__all__ = [
    "MAX_NODES",
    "Parser",
]

MAX_NODES: Final = 500
MAX_LEVELS: Final = 100
"""Levels of the tree; each operator of a chain such as 1 + 2 + 3 makes one."""


_NOTHING: Final[Mapping[str, Any]] = {}


class Parser:
    """Reads one text.

    Parameters
    ----------
    text : str
    scopes : Scopes
    given : mapping, optional
        Parameters, so that the tree has their kinds at once; whether they fit is checked elsewhere.
    part : list of Token, optional
        The part of the text to read; by default all of it.
    """

    def __init__(
        self,
        text: str,
        scopes: Scopes,
        given: Mapping[str, Any] = _NOTHING,
        part: list[Token] | None = None,
    ) -> None:
        self.text = text
        self.scopes = scopes
        self._given = given
        self._tokens = tokens(text) if part is None else part
        self._sources: list[Source] = []
        self._slots: list[tree.Constant] = []
        self._users: list[functions.Function] = []
        self._nodes = 0
        self._bound: dict[Bound, Node] = {}

    def expression(self) -> Parsed:
        """Read the text as one expression.

        Raises
        ------
        PredicateError
        """
        return self.parsed(self._node(self._one(), 0))

    def aggregate(self, known: Container[str]) -> tuple[str, Parsed | None]:
        """Read the text as one aggregate, a function over many records.

        Returns
        -------
        name : str
        argument : Parsed or None
            ``None`` for ``*``.

        Raises
        ------
        PredicateError
        """
        call = self._one()
        name = plain_name(str(call.this)).lower() if isinstance(call, exp.Anonymous) else ""
        if name not in known:
            raise self._error(
                "This is not an aggregate.",
                call,
                expected="count(*), count(x), sum(x), min(x), max(x), avg(x)",
            )
        if len(call.expressions) != 1:
            raise self._error(f"{name} takes one argument.", call, found=str(len(call.expressions)))
        (given,) = call.expressions
        if isinstance(given, exp.Star):
            if name != "count":
                raise self._error(f"{name} takes a value.", call, expected=f"{name}(price), or count(*)")
            return name, None
        return name, self.parsed(self._node(given, 1))

    def _one(self) -> exp.Expr:
        trees = self._parse()
        if len(trees) != 1 or trees[0] is None:
            raise self._error("This is not one condition.", None)
        return trees[0]

    def _parse(self) -> list[exp.Expr | None]:
        try:
            parser = DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
            return list(parser.parse(self._tokens, self.text))
        except ParseError as error:
            raise self._unreadable(error) from None
        except (
            SqlglotError,
            RecursionError,
            ValueError,
            TypeError,
            AttributeError,
            IndexError,
            KeyError,
        ) as error:
            # sqlglot answers some nonsense with a plain Python error; to the reader it is the same.
            raise self._error("The text cannot be read.", None) from error

    def parsed(self, root: Node) -> Parsed:
        """Close a tree with the constants read so far."""
        users = tuple(dict.fromkeys(self._users))
        return Parsed(self.text, root, tuple(self._sources), tuple(self._slots), functions=users)

    def _unreadable(self, error: ParseError) -> PredicateError:
        problem = error.errors[0] if error.errors else {}
        here = (problem.get("line"), problem.get("col"))
        last = self._tokens[-1]
        token = next((token for token in self._tokens if (token.line, token.col) == here), last)
        at = (token.start, token.end)
        if token is last and token.token_type not in (
            TokenType.R_PAREN,
            TokenType.VAR,
            TokenType.STRING,
            TokenType.NUMBER,
        ):
            return PredicateError(
                "The predicate ends too soon.",
                text=self.text,
                at=at,
                expected="a name, a value or a condition after this",
                remedy="complete it, or leave this out",
            )
        return PredicateError(
            "The predicate cannot be read here.",
            text=self.text,
            at=at,
            expected="a condition of comparisons with AND, OR, NOT, BETWEEN, IN, LIKE, IS NULL",
        )

    def _error(self, summary: str, node: exp.Expr | None, **more: str) -> PredicateError:
        return PredicateError(summary, text=self.text, at=None if node is None else self._place(node), **more)

    def _place(self, node: exp.Expr) -> Place:
        """Find where a node stands: sqlglot notes it for names, calls and literals only."""
        if isinstance(node, exp.Placeholder):
            return self._parameter_places.get(node.name)
        meta = node.meta
        if "start" in meta and not isinstance(node, exp.Column):
            return meta["start"], meta["end"]
        spans = [n.meta for n in node.walk() if "start" in n.meta]
        if not spans:
            return None
        return min(meta["start"] for meta in spans), max(meta["end"] for meta in spans)

    @cached_property
    def _parameter_places(self) -> dict[str, Place]:
        places: dict[str, Place] = {}
        for before, token in zip(self._tokens, self._tokens[1:], strict=False):
            if before.token_type == TokenType.COLON:
                places.setdefault(token.text, (before.start, token.end))
        return places

    def _node(self, node: exp.Expr, level: int) -> Node:
        """Let a node through, and all below it.

        ``level`` is the level in the tree.
        """
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._error("The predicate is too large.", node, expected=f"at most {MAX_NODES} nodes")
        if level > MAX_LEVELS:
            raise self._error("The predicate has too many levels.", node, expected=f"at most {MAX_LEVELS}")
        read: Callable[[Parser, Any, int], Node] | None = _READ.get(type(node))
        if read is None:
            raise self._error(f"{node.key.upper()} is not part of the language.", node)
        return read(self, node, level)

    def _connected(self, node: exp.And | exp.Or, level: int) -> Node:
        kind, made = (exp.And, tree.And) if isinstance(node, exp.And) else (exp.Or, tree.Or)
        args: list[Node] = []
        for part in operands(node, kind):
            arg = self._node(part, level + 1)
            args += arg.args if isinstance(arg, made) else (arg,)
            self._nodes += 1
        self._nodes -= 2
        return made(tuple(args), _place_of(args))

    def _parenthesised(self, node: exp.Paren, level: int) -> Node:
        self._nodes -= 1
        return self._node(node.this, level + 1)

    def _compare(self, node: exp.Expr, level: int) -> Node:
        left, right = self._node(node.this, level + 1), self._node(node.expression, level + 1)
        return tree.Compare(COMPARE[type(node)], left, right, _place_of((left, right)))

    def _arithmetic(self, node: exp.Expr, level: int) -> Node:
        return self._call(functions.OPERATORS[ARITHMETIC[type(node)]], [node.this, node.expression], level)

    def _like(self, node: exp.Like, level: int) -> Node:
        like = self._call(functions.OPERATORS["like"], [node.this, node.expression], level)
        return tree.Not(like, like.at) if node.args.get("negate") else like

    def _not(self, node: exp.Not, level: int) -> Node:
        item = self._node(node.this, level + 1)
        return tree.Not(item, item.at)

    def _between(self, node: exp.Between, level: int) -> Node:
        if node.args.get("symmetric"):
            raise self._error("SYMMETRIC is not part of the language.", node)
        item = self._node(node.this, level + 1)
        low, high = (self._node(node.args[side], level + 1) for side in ("low", "high"))
        at = _place_of((item, low, high))
        return tree.And((tree.Compare(">=", item, low, at), tree.Compare("<=", item, high, at)), at)

    def _is(self, node: exp.Is, level: int) -> Node:
        if not isinstance(node.expression, exp.Null):
            raise self._error("After IS comes NULL or NOT NULL.", node)
        item = self._node(node.this, level + 1)
        return tree.IsNull(item, item.at)

    def _value(self, node: exp.Expr, level: int) -> Node:
        return self._constant(self._source(node), self._place(node))

    def _concat(self, node: exp.Concat, level: int) -> Node:
        raise self._error("Two strings stand side by side.", node, remedy="'' is a quote inside a string")

    def _alias(self, node: exp.Alias, level: int) -> Node:
        raise self._error("Something follows the condition.", node.args["alias"], expected="AND or OR")

    def _constant(self, source: Source, at: Place) -> Node:
        kinds = LIST if isinstance(source, (ListOf, Members)) else EVERY_KIND
        if isinstance(source, Parameter):
            kinds = kind_of(value(self._given[source.name])) if source.name in self._given else EVERY_KIND
        elif not isinstance(source, (Bound, ListOf)):
            kinds = kind_of(source)
        return self._slot(source, kinds, at)

    def _slot(self, source: Source, kinds: int, at: Place) -> tree.Constant:
        constant = tree.Constant(len(self._sources), kinds, at)
        self._sources.append(source)
        self._slots.append(constant)
        return constant

    def _source(self, node: exp.Expr) -> Value | Parameter:
        match node:
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Placeholder():
                if not node.name:
                    raise self._error("A parameter needs a name.", node, expected=":name")
                return Parameter(plain_name(node.name))
        return str(node.this) if node.is_string else self._number(node, str(node.this))

    def _number(self, node: exp.Expr, written: str) -> float:
        try:
            number = float(written)
        except ValueError:  # .3.5, which sqlglot takes for one
            raise self._error(
                "This is not a number.", node, found=written, expected="one such as 12, 0.5 or 2e3"
            ) from None
        if not math.isfinite(number):
            raise self._error("This number is too large.", node, expected="at most about 1.8e308")
        if written.isdigit() and int(written) > BIGGEST_INTEGER:
            raise self._error(
                "This integer cannot be told from its neighbours.",
                node,
                expected=f"at most {BIGGEST_INTEGER:,}",
            )
        return number

    def _negative(self, node: exp.Expr, level: int) -> Node:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._constant(-self._number(node.this, str(node.this.this)), self._place(node))
        return self._call(functions.OPERATORS["negate"], [node.this], level)

    def _in(self, node: exp.Expr, level: int) -> Node:
        item = self._node(node.this, level + 1)
        given = node.args.get("field")
        if given is not None:
            if not isinstance(given, exp.Placeholder):
                raise self._error("After IN comes a list.", given, expected="(1, 2, 3) or :name")
            return tree.In(item, self._members(Parameter(plain_name(given.name)), given), item.at)
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise self._error("After IN comes a list, not a query.", node)
        items = node.expressions
        negative = [isinstance(each, exp.Neg) and isinstance(each.this, exp.Literal) for each in items]
        plain = (exp.Literal, exp.Boolean, exp.Null, exp.Placeholder)
        if all(isinstance(each, plain) or minus for each, minus in zip(items, negative, strict=True)):
            members = [
                -self._number(each, str(each.this.this))
                if minus and not each.this.is_string
                else self._source(each)
                for each, minus in zip(items, negative, strict=True)
            ]
            return tree.In(item, self._members(ListOf(tuple(members)), node), item.at)
        parts = tuple(tree.Compare("=", item, self._node(each, level + 1), item.at) for each in items)
        return tree.Or(parts, item.at) if len(parts) > 1 else parts[0]

    def _members(self, source: Parameter | ListOf, node: exp.Expr) -> tree.Constant:
        members: Source = source
        if isinstance(source, ListOf) and not any(isinstance(each, Parameter) for each in source.items):
            members = Members.of([each for each in source.items if not isinstance(each, Parameter)])
        if isinstance(source, Parameter):
            members = ListOf((source,))
        return self._slot(members, LIST, self._place(node))

    def _name(self, node: exp.Expr, level: int) -> Node:
        path = []
        parts = node.parts if isinstance(node, (exp.Column, exp.Dot)) else [node]
        for part in parts:
            if not isinstance(part, exp.Identifier):
                raise self._error("This is not a name.", node, expected="a path such as loc.lat")
            path.append(plain_name(part.name))
        if len(path) > MAX_DEPTH:
            raise self._error(
                "This path is too long.", node, found=f"{len(path)} parts", expected=f"at most {MAX_DEPTH}"
            )
        default = self.scopes.names[0]
        scope = path[0] if len(path) > 1 and path[0] in self.scopes.names else None
        rest = tuple(path[1:] if scope else path)
        first, last = parts[0].meta, parts[-1].meta
        at = (first["start"], last["end"]) if "start" in first and "end" in last else None
        if len(path) == 1 and path[0] in self.scopes.names[1:]:
            raise self._error(f"{path[0]} is a scope, not a value.", node, expected=f"{path[0]}.name")
        if scope in self.scopes.bound:
            # One slot a name, so that a bound name stays one value however often it stands there.
            source = Bound(scope, rest)
            if source not in self._bound:
                self._bound[source] = self._constant(source, at)
            return self._bound[source]
        return tree.Name(scope or default, rest, at)

    def _function(self, node: exp.Expr, level: int) -> Node:
        name = plain_name(str(node.this))
        function = functions.find(name)
        if function is None:
            raise self._error(
                f"There is no function called {name}.",
                node,
                expected=", ".join(functions.names()),
                remedy="register your own with @function",
            )
        return self._call(function, node.expressions, level, at=self._place(node))

    def _call(
        self, function: functions.Function, given: list[exp.Expr], level: int, at: Place = None
    ) -> Node:
        if function.is_user:
            self._users.append(function)
        args = tuple(self._node(each, level + 1) for each in given)
        most = len(args) if function.many else len(function.takes)
        if not function.required <= len(args) <= most:
            count = f"{function.required}" if most == function.required else f"{function.required} to {most}"
            raise PredicateError(
                f"{function.name} takes another number of arguments.",
                text=self.text,
                at=at,
                found=str(len(args)),
                expected=count if not function.many else "at least 1",
            )
        return tree.Call(function, args, at or _place_of(args))


def _place_of(nodes: Sequence[Node]) -> Place:
    first, last = nodes[0].at, nodes[-1].at
    return (first[0], last[1]) if first and last else first or last


_READ: Final[dict[type[exp.Expr], Any]] = {
    exp.And: Parser._connected, exp.Or: Parser._connected, exp.Paren: Parser._parenthesised,
    exp.Like: Parser._like, exp.Not: Parser._not, exp.Neg: Parser._negative, exp.Between: Parser._between,
    exp.In: Parser._in, exp.Is: Parser._is, exp.Literal: Parser._value, exp.Boolean: Parser._value,
    exp.Null: Parser._value, exp.Placeholder: Parser._value, exp.Column: Parser._name, exp.Dot: Parser._name,
    exp.Identifier: Parser._name, exp.Anonymous: Parser._function, exp.Concat: Parser._concat,
    exp.Alias: Parser._alias, **dict.fromkeys(COMPARE, Parser._compare),
    **dict.fromkeys(ARITHMETIC, Parser._arithmetic),
}  # fmt: skip
