"""A condition as SQL: which engine has which writer."""

from __future__ import annotations

from typing import Any, Final

from mudkit.errors import PredicateError
from mudkit.predicates.layout import Layout
from mudkit.predicates.spark import SparkWriter
from mudkit.predicates.sql import Writer
from mudkit.predicates.sqlite import SqliteWriter
from mudkit.predicates.tree import Node
from mudkit.predicates.values import BOOLEAN

__all__ = ["write"]

_WRITERS: Final[dict[str, type[Writer]]] = {"sqlite": SqliteWriter, "spark": SparkWriter}


def write(root: Node, constants: tuple[Any, ...], dialect: str, layout: Layout, text: str) -> str:
    """Write a condition for a SQL engine.

    Parameters
    ----------
    root : Node
    constants : tuple
        The constants, by slot.
    dialect : {'sqlite', 'spark'}
        The expression for SQLite calls functions that :func:`mudkit.predicates.register_functions` adds to a
        connection. The one for Spark calls ``mudkit_matches(text, pattern)`` where the predicate has
        ``matches``; :func:`mudkit.pipeline.column` registers it in the session.
    layout : Layout
    text : str
        The predicate's text, for errors.

    Returns
    -------
    str

    Raises
    ------
    PredicateError
        The dialect is unknown or lacks a form of a function, the layout lacks a name, or the expression would
        be longer than 1 MB.
    """
    if dialect not in _WRITERS:
        raise PredicateError(
            "There is no such dialect of SQL.", found=repr(dialect), expected="'sqlite' or 'spark'"
        )
    if not isinstance(layout, Layout):
        raise PredicateError(
            "The layout is of another type.", found=type(layout).__name__, expected="a Layout"
        )
    writer = _WRITERS[dialect](constants, layout, text)
    return str(writer.finished(writer.of(root, BOOLEAN)))
