"""From tokens to tree: sqlglot parses, a whitelist of its nodes becomes the tree of the language."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot import ErrorLevel, Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.language import Language
from mudkit.predicates.tokens import DIALECT, MAX_PREDICATE_DEPTH, NAME_PREFIX, tokenize
from mudkit.predicates.tree import Node, Place
from mudkit.predicates.values import EVERY_KIND, LIST, MAX_INTEGER, Members, Value, kind_of, value

MAX_NODES: Final = 500
MAX_LEVELS: Final = 100
"""Levels of the tree; each operator of a chain such as 1 + 2 + 3 makes one."""

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}


def _plain_name(name: str) -> str:
    """Return a name without its prefix."""
    return name.removeprefix(NAME_PREFIX)


def _operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the operands of a chain of ANDs or of ORs, without recursion along the chain."""
    parts: list[exp.Expr] = []
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, kind):
            todo.extend((current.expression, current.this))
        else:
            parts.append(current)
    return parts


class Parameter(NamedTuple):
    """Constant that is given by name, ``:name``."""

    name: str


class Bound(NamedTuple):
    """Constant that is read from the data of a bound scope when the predicate is bound."""

    scope: str
    path: tuple[str, ...]


class ListOf(NamedTuple):
    """Items of an ``IN``, each a literal or a parameter."""

    items: tuple[Value | Parameter, ...]


Source: TypeAlias = Value | Parameter | Bound | ListOf | Members
"""Origin of a slot's constant."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Tree of a text, and the origin of its constants."""

    text: str
    root: Node
    sources: tuple[Source, ...]
    slots: tuple[tree.Constant, ...]
    """Node of each slot."""
    parameters: frozenset[str]
    """Names of the parameters."""
    forms: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """Cached forms, by the kinds of the constants."""
    forms_by_types: dict[tuple[type, ...], Any] = field(default_factory=dict)
    """The same forms by the types of the constants, where these decide the kinds."""
    functions: tuple[functions.Function, ...] = ()
    """Registered functions of users in the tree."""


def with_kinds(parsed: Parsed, kinds: tuple[int, ...]) -> tree.Node:
    """Return the tree with the kinds of its constants; unbound slots (kind -1) become names again."""
    if all(kind == node.kinds for kind, node in zip(kinds, parsed.slots, strict=True)):
        return parsed.root
    changed: dict[int, tree.Node] = {}
    for node in parsed.slots:
        kind, source = kinds[node.slot], parsed.sources[node.slot]
        if isinstance(source, Bound) and kind == -1:
            changed[id(node)] = tree.Name(source.scope, source.path, node.at)
        elif node.kinds == LIST and kind != LIST:
            raise PredicateError(
                "IN is followed by a list of constants.",
                text=parsed.text,
                at=node.at,
                found="a single constant",
                expected="for instance (1, 2)",
            )
        elif kind != node.kinds:
            changed[id(node)] = tree.Constant(node.slot, kind, node.at)
    return tree.replace_nodes(parsed.root, changed)


_NO_PARAMETERS: Final[Mapping[str, Any]] = {}


class Parser:
    """Parser of one text, or of its tokens ``part``; ``parameters`` only give constants their kinds."""

    def __init__(
        self,
        text: str,
        language: Language,
        parameters: Mapping[str, Any] = _NO_PARAMETERS,
        part: list[Token] | None = None,
    ) -> None:
        self.text = text
        self.language = language
        self._parameters = parameters
        self._tokens = tokenize(text) if part is None else part
        self._sources: list[Source] = []
        self._slots: list[tree.Constant] = []
        self._users: list[functions.Function] = []
        self._nodes = 0
        self._bound: dict[Bound, Node] = {}

    def expression(self) -> Parsed:
        """Parse the text as one expression."""
        return self.parsed(self._node(self._one(), 0))

    def aggregate(self, known: Container[str]) -> tuple[str, Parsed | None]:
        """Parse the text as an aggregate out of ``known``; return name and argument, ``None`` for ``*``."""
        call = self._one()
        name = _plain_name(str(call.this)).lower() if isinstance(call, exp.Anonymous) else ""
        if name not in known:
            raise self._error(
                "This is not an aggregate.",
                call,
                expected="count(*), count(x), sum(x), min(x), max(x), avg(x)",
            )
        if len(call.expressions) != 1:
            raise self._error(f"{name} takes one argument.", call, found=str(len(call.expressions)))
        (argument,) = call.expressions
        if isinstance(argument, exp.Star):
            if name != "count":
                raise self._error(f"{name} takes a value.", call, expected=f"{name}(price), or count(*)")
            return name, None
        return name, self.parsed(self._node(argument, 1))

    def _one(self) -> exp.Expr:
        """Return the only tree of the text; PredicateError if there are several or none."""
        trees = self._parse()
        if len(trees) != 1 or trees[0] is None:
            raise self._error("This is not one condition.", None)
        return trees[0]

    def _parse(self) -> list[exp.Expr | None]:
        """Return sqlglot's trees of the tokens; any failure of sqlglot is a PredicateError."""
        try:
            parser = DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
            return list(parser.parse(self._tokens, self.text))
        except ParseError as error:
            raise self._parse_error(error) from None
        except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, LookupError) as error:
            # sqlglot raises plain Python errors for some malformed texts.
            raise self._error("The text cannot be parsed.", None) from error

    def parsed(self, root: Node) -> Parsed:
        """Return a tree with the constants parsed so far."""
        users = tuple(dict.fromkeys(self._users))
        sources = tuple(self._sources)
        items = [
            item for source in sources for item in (source.items if isinstance(source, ListOf) else (source,))
        ]
        parameters = frozenset(item.name for item in items if isinstance(item, Parameter))
        return Parsed(self.text, root, sources, tuple(self._slots), parameters, functions=users)

    def _parse_error(self, error: ParseError) -> PredicateError:
        """Return the error for the place at which sqlglot stopped."""
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
                "The predicate is incomplete.",
                text=self.text,
                at=at,
                expected="a name, a value or a condition after this",
                remedy="complete it, or leave this out",
            )
        return PredicateError(
            "The predicate cannot be parsed here.",
            text=self.text,
            at=at,
            expected="a condition of comparisons with AND, OR, NOT, BETWEEN, IN, LIKE, IS NULL",
        )

    def _error(self, summary: str, node: exp.Expr | None, **more: str) -> PredicateError:
        """Return an error at the place of a node, without a place for None."""
        return PredicateError(summary, text=self.text, at=None if node is None else self._place(node), **more)

    def _place(self, node: exp.Expr) -> Place:
        """Return the first and last character of a node; sqlglot notes them for some nodes only."""
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
        """Place of the first occurrence of each parameter, with its colon."""
        places: dict[str, Place] = {}
        for before, token in zip(self._tokens, self._tokens[1:], strict=False):
            if before.token_type == TokenType.COLON:
                places.setdefault(token.text, (before.start, token.end))
        return places

    def _node(self, node: exp.Expr, level: int) -> Node:
        """Convert a node of sqlglot and those below it; ``level`` counts from the root."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._error("The predicate is too large.", node, expected=f"at most {MAX_NODES} nodes")
        if level > MAX_LEVELS:
            raise self._error("The predicate has too many levels.", node, expected=f"at most {MAX_LEVELS}")
        convert: Callable[[Parser, Any, int], Node] | None = _CONVERTERS.get(type(node))
        if convert is None:
            raise self._error(f"{node.key.upper()} is not part of the language.", node)
        return convert(self, node, level)

    def _connected(self, node: exp.And | exp.Or, level: int) -> Node:
        """Convert a chain of ANDs or of ORs to one node."""
        kind, result = (exp.And, tree.And) if isinstance(node, exp.And) else (exp.Or, tree.Or)
        args: list[Node] = []
        for number, part in enumerate(_operands(node, kind)):
            if number > 1:  # an operator between any two parts, of which this node is the first
                self._nodes += 1
            arg = self._node(part, level + 1)
            args += arg.args if isinstance(arg, result) else (arg,)
        return result(tuple(args), _place_of(args))

    def _parenthesised(self, node: exp.Paren, level: int) -> Node:
        """Convert what is in parentheses; they are no node of their own."""
        self._nodes -= 1
        return self._node(node.this, level + 1)

    def _compare(self, node: exp.Expr, level: int) -> Node:
        """Convert a comparison."""
        left, right = self._node(node.this, level + 1), self._node(node.expression, level + 1)
        return tree.Compare(_COMPARISONS[type(node)], left, right, _place_of((left, right)))

    def _arithmetic(self, node: exp.Expr, level: int) -> Node:
        """Convert an operator with two numbers to a call."""
        return self._call(functions.OPERATORS[_ARITHMETIC[type(node)]], [node.this, node.expression], level)

    def _like(self, node: exp.Like, level: int) -> Node:
        """Convert LIKE or NOT LIKE to a call."""
        like = self._call(functions.OPERATORS["like"], [node.this, node.expression], level)
        return tree.Not(like, like.at) if node.args.get("negate") else like

    def _not(self, node: exp.Not, level: int) -> Node:
        """Convert NOT."""
        item = self._node(node.this, level + 1)
        return tree.Not(item, item.at)

    def _between(self, node: exp.Between, level: int) -> Node:
        """Convert BETWEEN to the conjunction of two comparisons."""
        item = self._node(node.this, level + 1)
        low, high = (self._node(node.args[side], level + 1) for side in ("low", "high"))
        at = _place_of((item, low, high))
        return tree.And((tree.Compare(">=", item, low, at), tree.Compare("<=", item, high, at)), at)

    def _is(self, node: exp.Is, level: int) -> Node:
        """Convert IS NULL; a scope that may be missing is tested by the attribute that it always has."""
        if not isinstance(node.expression, exp.Null):
            raise self._error("After IS comes NULL or NOT NULL.", node)
        always = self.language.always
        if isinstance(node.this, exp.Column) and (scope := _plain_name(node.this.sql())) in always:
            at = self._place(node.this)
            return tree.IsNull(tree.Name(scope, (always[scope],), at), at)
        item = self._node(node.this, level + 1)
        return tree.IsNull(item, item.at)

    def _value(self, node: exp.Expr, level: int) -> Node:
        """Convert a literal or a parameter to a new constant."""
        return self._constant(self._source(node), self._place(node))

    def _concat(self, node: exp.Concat, level: int) -> Node:
        """Raise the error for two adjacent strings, which sqlglot would join."""
        raise self._error("Two strings are adjacent.", node, remedy="'' is a quote inside a string")

    def _alias(self, node: exp.Alias, level: int) -> Node:
        """Raise the error for text after the condition, which sqlglot takes for an alias."""
        raise self._error("Unexpected text after the condition.", node.args["alias"], expected="AND or OR")

    def _constant(self, source: Value | Parameter | Bound, at: Place) -> Node:
        """Return a new constant of the kinds of its source; of all kinds if its data are not known yet."""
        kinds = EVERY_KIND
        if not isinstance(source, (Parameter, Bound)):
            kinds = kind_of(source)
        elif isinstance(source, Parameter) and source.name in self._parameters:
            kinds = kind_of(value(self._parameters[source.name]))
        return self._slot(source, kinds, at)

    def _slot(self, source: Source, kinds: int, at: Place) -> tree.Constant:
        """Return a constant with the next free slot, and store the origin of its value."""
        constant = tree.Constant(len(self._sources), kinds, at)
        self._sources.append(source)
        self._slots.append(constant)
        return constant

    def _source(self, node: exp.Expr) -> Value | Parameter:
        """Return the value of a literal, or the parameter."""
        match node:
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                return None
            case exp.Placeholder():
                return Parameter(_plain_name(node.name))
        return str(node.this) if node.is_string else self._number(node, str(node.this))

    def _number(self, node: exp.Expr, written: str) -> float:
        """Convert a text to a float; PredicateError if that fails, for infinity and inexact integers."""
        try:
            number = float(written)
        except ValueError:  # .3.5, which sqlglot accepts
            raise self._error(
                "This is not a number.", node, found=written, expected="one such as 12, 0.5 or 2e3"
            ) from None
        if not math.isfinite(number):
            raise self._error("This number is too large.", node, expected="at most about 1.8e308")
        if written.isdigit() and int(written) > MAX_INTEGER:
            raise self._error(
                "This integer is too large to be exact.",
                node,
                expected=f"at most {MAX_INTEGER:,}",
            )
        return number

    def _negative(self, node: exp.Expr, level: int) -> Node:
        """Convert a minus sign: part of a literal number, else a call."""
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._constant(-self._number(node.this, str(node.this.this)), self._place(node))
        return self._call(functions.OPERATORS["negate"], [node.this], level)

    def _in(self, node: exp.Expr, level: int) -> Node:
        """Convert IN; a list with expressions becomes comparisons, connected by OR."""
        item = self._node(node.this, level + 1)
        parameter = node.args.get("field")
        if parameter is not None:
            if not isinstance(parameter, exp.Placeholder):
                raise self._error("After IN comes a list.", parameter, expected="(1, 2, 3) or :name")
            name = _plain_name(parameter.name)
            return tree.In(item, self._members(ListOf((Parameter(name),)), parameter), item.at)
        items = node.expressions
        negated = [isinstance(part, exp.Neg) and isinstance(part.this, exp.Literal) for part in items]
        plain = (exp.Literal, exp.Boolean, exp.Null, exp.Placeholder)
        if all(isinstance(part, plain) or minus for part, minus in zip(items, negated, strict=True)):
            members = [
                -self._number(part, str(part.this.this))
                if minus and not part.this.is_string
                else self._source(part)
                for part, minus in zip(items, negated, strict=True)
            ]
            return tree.In(item, self._members(ListOf(tuple(members)), node), item.at)
        parts = tuple(tree.Compare("=", item, self._node(part, level + 1), item.at) for part in items)
        return tree.Or(parts, item.at) if len(parts) > 1 else parts[0]

    def _members(self, source: ListOf, node: exp.Expr) -> tree.Constant:
        """Return a new constant for the list of an IN, already grouped if it has no parameter."""
        values = [item for item in source.items if not isinstance(item, Parameter)]
        members = Members.of(values) if len(values) == len(source.items) else source
        return self._slot(members, LIST, self._place(node))

    def _name(self, node: exp.Expr, level: int) -> Node:
        """Convert a path to a name, or to the one constant of that name in a bound scope."""
        path = []
        parts = node.parts if isinstance(node, (exp.Column, exp.Dot)) else [node]
        if isinstance(node, exp.Dot) and not isinstance(base := next(node.flatten()), exp.Column):
            # The parts that sqlglot returns leave out a call, a literal or a parameter before the dot.
            raise self._error("Only a name has attributes.", base, expected="a path such as loc.lat")
        for part in parts:
            if not isinstance(part, exp.Identifier):
                raise self._error("This is not a name.", node, expected="a path such as loc.lat")
            path.append(_plain_name(part.name))
        if len(path) > MAX_PREDICATE_DEPTH:
            raise self._error(
                "This path is too long.",
                node,
                found=f"{len(path)} parts",
                expected=f"at most {MAX_PREDICATE_DEPTH}",
            )
        scopes = self.language.scopes
        scope = path[0] if len(path) > 1 and path[0] in scopes.names else None
        rest = tuple(path[1:] if scope else path)
        first, last = parts[0].meta, parts[-1].meta
        at = (first["start"], last["end"]) if "start" in first and "end" in last else None
        if len(path) == 1 and path[0] in scopes.names[1:]:
            raise self._error(f"{path[0]} is a scope, not a value.", node, expected=f"{path[0]}.name")
        if not scope and (meant := self.language.suggest(rest)) is not None:
            raise self._error(
                f"There is no scope called {path[0]}.",
                node,
                expected=", ".join(scopes.names),
                remedy=f"did you mean {meant}? An attribute is written {scopes.names[0]}.{'.'.join(path)}",
            )
        if scope in scopes.bound:
            # One slot for each name: it has one value wherever it occurs.
            source = Bound(scope, rest)
            if source not in self._bound:
                self._bound[source] = self._constant(source, at)
            return self._bound[source]
        return tree.Name(scope or scopes.names[0], rest, at)

    def _function(self, node: exp.Expr, level: int) -> Node:
        """Convert a function call; PredicateError, with a similar name, if there is no such function."""
        name = _plain_name(str(node.this))
        function = functions.find(name)
        if function is None:
            near = difflib.get_close_matches(name.lower(), functions.names(), n=1)
            raise self._error(
                f"There is no function called {name}.",
                node,
                expected=", ".join(functions.names()),
                remedy=f"did you mean {near[0]}?" if near else "register your own with @function",
            )
        return self._call(function, node.expressions, level, at=self._place(node))

    def _call(
        self, function: functions.Function, arguments: list[exp.Expr], level: int, at: Place = None
    ) -> Node:
        """Return the call of a function with converted arguments; PredicateError if their number is wrong."""
        if function.is_user:
            self._users.append(function)
        args = tuple(self._node(argument, level + 1) for argument in arguments)
        maximum = len(args) if function.many else len(function.takes)
        if not function.required <= len(args) <= maximum:
            count = str(function.required) + (f" to {maximum}" if maximum > function.required else "")
            raise PredicateError(
                f"{function.name} takes a different number of arguments.",
                text=self.text,
                at=at,
                found=str(len(args)),
                expected=count if not function.many else "at least 1",
            )
        return tree.Call(function, args, at or _place_of(args))


def _place_of(nodes: Sequence[Node]) -> Place:
    """Return the place from the first to the last of some nodes; None if neither has one."""
    first, last = nodes[0].at, nodes[-1].at
    return (first[0], last[1]) if first and last else first or last


_CONVERTERS: Final[dict[type[exp.Expr], Any]] = {
    exp.And: Parser._connected, exp.Or: Parser._connected, exp.Paren: Parser._parenthesised,
    exp.Like: Parser._like, exp.Not: Parser._not, exp.Neg: Parser._negative, exp.Between: Parser._between,
    exp.In: Parser._in, exp.Is: Parser._is, exp.Literal: Parser._value, exp.Boolean: Parser._value,
    exp.Null: Parser._value, exp.Placeholder: Parser._value, exp.Column: Parser._name, exp.Dot: Parser._name,
    exp.Identifier: Parser._name, exp.Anonymous: Parser._function, exp.Concat: Parser._concat,
    exp.Alias: Parser._alias, **dict.fromkeys(_COMPARISONS, Parser._compare),
    **dict.fromkeys(_ARITHMETIC, Parser._arithmetic),
}  # fmt: skip
