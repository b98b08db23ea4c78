"""Nodes of sqlglot: which are operators of predicates, and what they hold."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from mudkit.predicates.tokens import NAMED

__all__ = ["ARITHMETIC", "COMPARE", "operands", "plain_name"]


COMPARE: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


ARITHMETIC: Final[dict[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}


def plain_name(name: str) -> str:
    """Give a name as it was written."""
    return name.removeprefix(NAMED)


def operands(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Give the operands of a chain of ANDs or of ORs, without recursion along the chain."""
    parts: list[exp.Expr] = []
    todo = [node]
    while todo:
        here = todo.pop()
        if isinstance(here, kind):
            todo.extend((here.expression, here.this))
        else:
            parts.append(here)
    return parts
