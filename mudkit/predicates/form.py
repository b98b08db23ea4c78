"""A form: the tree with the kinds of its constants, checked; what equal signatures share.

Forms are kept by signature, so that a million predicates of one shape are compiled once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, Final, NamedTuple

import re2

from mudkit.errors import PredicateError
from mudkit.predicates import tree
from mudkit.predicates.language import Language
from mudkit.predicates.meaning import pattern
from mudkit.predicates.python import compile_tree
from mudkit.predicates.tree import Call, Constant, Name, Node
from mudkit.predicates.values import BOOLEAN, NULL, STRING, kind_names

__all__ = ["Form", "form_of"]

_KEPT: Final = 4096


class Form:
    """What predicates of one signature share.

    Parameters
    ----------
    root : Node
    nodes : tuple of Node
        All nodes of the tree.
    signature : str
    key : hashable
        Equal for forms that are the same, also when one of them was made anew.
    language : Language
    """

    def __init__(
        self, root: Node, nodes: tuple[Node, ...], signature: str, key: Hashable, language: Language
    ) -> None:
        self.root = root
        self.scopes = language.scopes.names
        self.signature = signature
        self.key = key
        self.names = tuple(dict.fromkeys([(n.scope, n.path) for n in nodes if type(n) is Name]))
        bound = language.scopes.bound
        self.unbound = tuple([".".join((scope, *path)) for scope, path in self.names if scope in bound])
        # What the constants must be checked for when a predicate is made of them.
        self.patterns = tuple(
            [
                node.args[1]
                for node in nodes
                if type(node) is Call and node.function.name == "matches" and type(node.args[1]) is Constant
            ]
        )

    @cached_property
    def evaluate(self) -> Callable[..., bool | None]:
        """The compiled predicate: ``(constants, tables, *scopes)`` to TRUE, FALSE or NULL."""
        return compile_tree(self.root, self.scopes)

    @cached_property
    def matches(self) -> Callable[..., bool]:
        """The same, but only whether it is TRUE; it stops at the first part that is not."""
        return compile_tree(self.root, self.scopes, only_true=True)


class _Key(NamedTuple):
    signature: str
    scopes: tuple[str, ...]
    functions: tuple[Any, ...]


_forms: OrderedDict[_Key, Form] = OrderedDict()


def form_of(root: Node, language: Language, text: str) -> Form:
    """Check a tree whose constants have their kinds, and give its form.

    Raises
    ------
    PredicateError
        A name is unknown, or an argument has a kind that can never give a value.
    """
    typed = ""
    if language.schema:
        named = {
            id(node): tree.Name(node.scope, node.path, node.at, language.kinds(node, text))
            for node in tree.walk(root)
            if isinstance(node, Name)
        }
        root = tree.rebuilt(root, named)
        typed = "".join(f"|{node.kinds}" for node in tree.walk(root) if isinstance(node, Name))
    nodes = tuple(tree.walk(root))
    _check(root, nodes, text)
    users = tuple([node.function for node in nodes if type(node) is Call and node.function.is_user])
    signature = tree.text_of(root)
    key = _Key(signature + typed, language.scopes.names, users)
    form = _forms.get(key)
    if form is None:
        form = _forms[key] = Form(root, nodes, signature, key, language)
        if len(_forms) > _KEPT:
            _forms.popitem(last=False)
    else:
        _forms.move_to_end(key)
    return form


def _check(root: Node, nodes: tuple[Node, ...], text: str) -> None:
    """Refuse what can never have a value: an argument of a kind that the function does not take."""
    _expect(root, BOOLEAN, "A predicate is a condition", text)
    for node in nodes:
        match node:
            case tree.And(args=args) | tree.Or(args=args):
                for arg in args:
                    _expect(arg, BOOLEAN, f"{type(node).__name__.upper()} takes conditions", text)
            case tree.Not(item=item):
                _expect(item, BOOLEAN, "NOT takes a condition", text)
            case Call(function=function, args=args):
                for position, arg in enumerate(args):
                    wanted = function.kind_of_argument(position)
                    shown = function.symbol or function.name
                    _expect(arg, wanted, f"{shown} takes a {kind_names(wanted)} here", text)


def _expect(node: Node, wanted: int, summary: str, text: str) -> None:
    if node.kinds != NULL and not node.kinds & wanted:
        raise PredicateError(f"{summary}.", text=text, at=node.at, found=f"a {kind_names(node.kinds)}")


def check_constants(form: Form, constants: tuple[Any, ...], text: str) -> None:
    """Refuse constants that no data can mend: a pattern that is no regular expression.

    Raises
    ------
    PredicateError
    """
    for node in form.patterns:
        if node.kinds == STRING:
            try:
                pattern(constants[node.slot])
            except re2.error as error:
                problem = error.args[0]
                raise PredicateError(
                    "This is not a regular expression that RE2 knows.",
                    text=text,
                    at=node.at,
                    found=problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem),
                    expected="RE2 syntax: no look-around, no back-references",
                ) from None
