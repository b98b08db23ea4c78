"""A text that was parsed: its tree, and where its constants come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from mudkit.errors import PredicateError
from mudkit.predicates import functions, tree
from mudkit.predicates.tree import Node
from mudkit.predicates.values import LIST, Members, Value

__all__ = ["Bound", "ListOf", "Parameter", "Parsed", "Scopes", "Source", "typed"]


class Parameter(NamedTuple):
    """A constant that is given by name, ``:name``."""

    name: str


class Bound(NamedTuple):
    """A constant that is a name of a scope which is bound when the predicate is written."""

    scope: str
    path: tuple[str, ...]


class ListOf(NamedTuple):
    """The items of an ``IN``, each a literal or a parameter."""

    items: tuple[Value | Parameter, ...]


Source: TypeAlias = Value | Parameter | Bound | ListOf | Members
"""Where the constant of a slot comes from."""


class Scopes(NamedTuple):
    """The scopes of a language: the first is that of names without a scope."""

    names: tuple[str, ...]
    bound: frozenset[str]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text as a tree, and where its constants come from."""

    text: str
    root: Node
    sources: tuple[Source, ...]
    slots: tuple[tree.Constant, ...]
    """The node of each slot."""
    forms: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """Forms made so far, by the kinds of the constants."""
    functions: tuple[functions.Function, ...] = ()
    """Functions in it that somebody registered."""


def typed(parsed: Parsed, kinds: tuple[int, ...]) -> tree.Node:
    """Give the constants of a tree their kinds, and those that are not bound their names back."""
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
    return tree.rebuilt(parsed.root, changed)
