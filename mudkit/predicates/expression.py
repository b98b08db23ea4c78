"""A value in the language of predicates: arithmetic and functions over the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mudkit.errors import PredicateError
from mudkit.predicates import tree
from mudkit.predicates.language import MOBIUS, Language
from mudkit.predicates.parse import Parser
from mudkit.predicates.parsed import Bound, ListOf, Parameter
from mudkit.predicates.python import compile_tree
from mudkit.predicates.values import EVERY_KIND

__all__ = ["Expression"]


class Expression:
    """A value that is computed from the scopes of a language.

    Parameters
    ----------
    text : str
        The expression, for instance ``"2 + (75 - state.battery) / 12.5"``, without parameters.
    language : Language, optional

    Raises
    ------
    PredicateError
        It is no expression of the language, or names what the language's schema has not.

    Examples
    --------
    >>> Expression("price * 2")({"price": 4})
    8.0
    >>> Expression("price * 2")({}) is None
    True
    """

    def __init__(self, text: str, *, language: Language = MOBIUS) -> None:
        parsed = Parser(text, language.scopes).expression()
        if any(isinstance(source, (Parameter, Bound, ListOf)) for source in parsed.sources):
            raise PredicateError(
                "An expression has no parameters and no sender.",
                text=text,
                expected="attributes and values that are written out, such as price * 2",
            )
        self.text = text
        self.language = language
        self.constants: tuple[Any, ...] = parsed.sources
        self.root = parsed.root
        for node in tree.walk(parsed.root):
            if isinstance(node, tree.Name):
                language.kinds(node, text)
        self.evaluate = compile_tree(parsed.root, language.scopes.names, kind=EVERY_KIND)
        """``(constants, tables, *scopes)`` to a value of the language, ``None`` for NULL."""

    def names(self) -> dict[str, set[str]]:
        """Give the names that it looks at, by scope."""
        names: dict[str, set[str]] = {scope: set() for scope in self.language.scopes.names}
        for node in tree.walk(self.root):
            if isinstance(node, tree.Name):
                names[node.scope].add(".".join(node.path))
        return names

    def __call__(self, *scopes: Mapping[str, Any], tables: Mapping[str, Any] | None = None) -> Any:
        """Compute it from the data of the scopes, in their order; one that is left out is empty."""
        missing = self.language.others[max(len(scopes) - 1, 0) :]
        first = scopes or ({},)
        return self.evaluate(self.constants, tables, *first, *missing)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"
