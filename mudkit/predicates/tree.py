"""The tree of a predicate: built by the parser, walked by every evaluator.

Nodes are immutable. Constants are in numbered slots beside the tree, so that predicates that differ only in
their constants share one tree, one signature and one compiled form (NiagaraCQ's expression signatures).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from mudkit.predicates.values import BOOLEAN, EVERY_KIND, LIST, NULL, kind_names

if TYPE_CHECKING:
    from mudkit.predicates.functions import Function

FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Operator after exchanging the two sides of a comparison."""

Place: TypeAlias = tuple[int, int] | None
"""Indices of the first and last character in the text, or ``None``."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Slot of a literal, a parameter, or a name that is bound when the predicate is bound."""

    slot: int
    kinds: int
    at: Place = None


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """Attribute of a scope, which is looked up at evaluation, with a path into structs."""

    scope: str
    path: tuple[str, ...]
    at: Place = None
    kinds: int = EVERY_KIND


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Call of a function or an arithmetic operator."""

    function: Function
    args: tuple[Node, ...]
    at: Place = None

    @property
    def kinds(self) -> int:
        """Kinds that the result may have."""
        if self.function.returns == NULL:  # the kinds of its arguments
            kinds = 0
            for arg in self.args:
                kinds |= arg.kinds
            return kinds
        return self.function.returns


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """Comparison; NULL when the kinds differ."""

    operator: str
    left: Node
    right: Node
    at: Place = None
    kinds: int = BOOLEAN


@dataclass(frozen=True, slots=True, eq=False)
class In:
    """Membership in a list of constants; other lists become comparisons."""

    item: Node
    members: Constant
    at: Place = None
    kinds: int = BOOLEAN


@dataclass(frozen=True, slots=True, eq=False)
class IsNull:
    """``IS NULL``: never NULL itself."""

    item: Node
    at: Place = None
    kinds: int = BOOLEAN


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """FALSE when one is FALSE, else NULL when one is NULL, else TRUE."""

    args: tuple[Node, ...]
    at: Place = None
    kinds: int = BOOLEAN


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """TRUE when one is TRUE, else NULL when one is NULL, else FALSE."""

    args: tuple[Node, ...]
    at: Place = None
    kinds: int = BOOLEAN


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    """TRUE for FALSE, FALSE for TRUE, else NULL."""

    item: Node
    at: Place = None
    kinds: int = BOOLEAN


Node: TypeAlias = Constant | Name | Call | Compare | In | IsNull | And | Or | Not


def children(node: Node) -> tuple[Node, ...]:
    """Return the child nodes, from left to right; none for constants and names."""
    match node:
        case Call(args=args) | And(args=args) | Or(args=args):
            return args
        case Compare(left=left, right=right):
            return left, right
        case In(item=item, members=members):
            return item, members
        case IsNull(item=item) | Not(item=item):
            return (item,)
    return ()


def with_children(node: Node, below: tuple[Node, ...]) -> Node:
    """Return a copy of a node with other children, as many and in the order of :func:`children`."""
    match node:
        case Call() | And() | Or():
            return replace(node, args=below)
        case Compare():
            return replace(node, left=below[0], right=below[1])
        case In():
            assert isinstance(below[1], Constant)
            return replace(node, item=below[0], members=below[1])
        case IsNull() | Not():
            return replace(node, item=below[0])
    return node


def walk(node: Node) -> Iterator[Node]:
    """Yield the nodes of a tree in pre-order, each object once."""
    seen: set[int] = set()
    todo = [node]
    while todo:
        current = todo.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            todo.extend(reversed(children(current)))


def replace_nodes(node: Node, replacements: Mapping[int, Node]) -> Node:
    """Return a copy of a tree with some nodes, given by ``id``, replaced; shared nodes stay shared."""
    done: dict[int, Node] = dict(replacements)

    def copy(here: Node) -> Node:
        if id(here) not in done:
            below = children(here)
            changed = tuple(copy(child) for child in below)
            same = all(a is b for a, b in zip(below, changed, strict=True))
            done[id(here)] = here if same else with_children(here, changed)
        return done[id(here)]

    return copy(node)


def conjuncts(node: Node) -> list[Node]:
    """Return the operands of nested ANDs; a node that is no AND is the only one."""
    if isinstance(node, And):
        return [part for arg in node.args for part in conjuncts(arg)]
    return [node]


def text_of(node: Node, constant: Callable[[Constant], str] | None = None) -> str:
    """Return the signature of a tree: its text with ``?kind`` for each slot, or what ``constant`` returns."""

    def _inner(node: Node) -> str:
        plain = isinstance(node, (Constant, Name)) or (isinstance(node, Call) and not node.function.symbol)
        return text_of(node, constant) if plain else f"({text_of(node, constant)})"

    match node:
        case Constant(kinds=kinds):
            if constant is not None:
                return constant(node)
            return "NULL" if kinds == NULL else f"?{kind_names(kinds)}"
        case Name(scope=scope, path=path):
            return ".".join((scope, *path))
        case Call(function=function, args=args):
            written = [_inner(arg) if function.symbol else text_of(arg, constant) for arg in args]
            if function.symbol:
                return (
                    f" {function.symbol} ".join(written)
                    if len(args) > 1
                    else f"{function.symbol}{written[0]}"
                )
            return f"{function.name}({', '.join(written)})"
        case Compare(operator=operator, left=left, right=right):
            return f"{_inner(left)} {operator} {_inner(right)}"
        case In(item=item, members=members):
            return f"{_inner(item)} IN {text_of(members, constant)}"
        case IsNull(item=item):
            return f"{_inner(item)} IS NULL"
        case And(args=args):
            return " AND ".join(_inner(arg) for arg in args)
        case Or(args=args):
            return " OR ".join(_inner(arg) for arg in args)
        case Not(item=item):
            return f"NOT {_inner(item)}"
    raise AssertionError(node)


def outline(node: Node, constants: tuple[object, ...]) -> str:
    """Return a drawing of a tree, one node a line, with constants and kinds."""
    lines: list[str] = []

    def draw(here: Node, before: str, branch: str, after: str) -> None:
        match here:
            case Constant(slot=slot, kinds=kinds):
                label = f"{constants[slot]!r}" + ("" if kinds in (NULL, LIST) else f"  ({kind_names(kinds)})")
            case Name(kinds=kinds):
                label = text_of(here) + ("" if kinds == EVERY_KIND else f"  ({kind_names(kinds)})")
            case Call(function=function):
                label = f"{function.symbol or function.name}  ({kind_names(here.kinds)})"
            case Compare(operator=operator):
                label = operator
            case IsNull():
                label = "IS NULL"
            case _:
                label = type(here).__name__.upper()
        lines.append(before + branch + label)
        below = children(here)
        for number, child in enumerate(below):
            last = number == len(below) - 1
            draw(child, before + after, "└─ " if last else "├─ ", "   " if last else "│  ")

    draw(node, "", "", "")
    return "\n".join(lines)
