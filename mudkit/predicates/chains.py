"""Comparisons in a row are refused: engines do not agree on what they mean, and people mean another thing.

To SQLite ``a = b < c`` is ``a = (b < c)``, to Spark ``(a = b) < c``; to both ``n = 1 IS NULL`` is
``(n = 1) IS NULL``, to sqlglot ``n = (1 IS NULL)``; and ``1 < n < 3`` compares TRUE with 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlglot import Token, TokenType

from mudkit.errors import PredicateError

__all__ = ["check_chains"]

_ORDERS: Final = frozenset({TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE})
_EQUAL: Final = frozenset({TokenType.EQ, TokenType.NEQ})
_WORDS: Final = frozenset({TokenType.IS, TokenType.IN, TokenType.LIKE, TokenType.BETWEEN})
_COMPARISONS: Final = _ORDERS | _EQUAL | _WORDS
_BEGINS: Final = frozenset({TokenType.AND, TokenType.OR, TokenType.COMMA})


class _Open(NamedTuple):
    """A condition that is being read: where it began, and its first comparison, as numbers of tokens."""

    begin: int
    first: int | None = None
    is_between: bool = False
    """Whether the next AND belongs to a BETWEEN."""


def check_chains(text: str, tokens: Sequence[Token]) -> None:
    """Refuse a comparison that has another one beside it, without AND, OR or parentheses.

    Parameters
    ----------
    text : str
    tokens : sequence of Token
        All of it.

    Raises
    ------
    PredicateError
    """
    outer: list[_Open] = []
    now = _Open(0)
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind == TokenType.L_PAREN:
            outer.append(now)
            now = _Open(number + 1)
        elif kind == TokenType.R_PAREN:
            now = outer.pop() if outer else _Open(number + 1)
        elif kind == TokenType.AND and now.is_between:
            now = now._replace(is_between=False)
        elif kind in _BEGINS or (kind == TokenType.NOT and number == now.begin):
            now = _Open(number + 1)
        elif kind in _COMPARISONS:
            if now.first is not None:
                raise _chained(text, tokens, now, number)
            now = now._replace(first=number, is_between=kind == TokenType.BETWEEN)


def _chained(text: str, tokens: Sequence[Token], now: _Open, second: int) -> PredicateError:
    assert now.first is not None
    one, other = tokens[now.first], tokens[second]
    before = text[tokens[now.begin].start : one.start].strip()
    left = text[tokens[now.begin].start : _begin(tokens, second).start].strip()
    middle = text[one.end + 1 : other.start].strip()
    sign = text[one.start : one.end + 1]
    after = text[other.start : tokens[_end(tokens, second)].end + 1]
    if one.token_type in _WORDS or other.token_type in _WORDS:
        remedy = f"write ({left}) {text[_begin(tokens, second).start : tokens[_end(tokens, second)].end + 1]}"
    else:
        remedy = f"write {before} {sign} {middle} AND {middle} {after}, or put one of them in parentheses"
    return PredicateError(
        "Two comparisons stand in a row.",
        text=text,
        at=(other.start, other.end),
        expected="AND or OR between them, or parentheses around one",
        remedy=remedy,
    )


def _begin(tokens: Sequence[Token], number: int) -> Token:
    """Give the first word of an operator: that of NOT IN is NOT."""
    return tokens[number - 1] if tokens[number - 1].token_type == TokenType.NOT else tokens[number]


def _end(tokens: Sequence[Token], number: int) -> int:
    """Give the last token of what stands after an operator."""
    depth = 0
    is_between = tokens[number].token_type == TokenType.BETWEEN
    for at in range(number + 1, len(tokens)):
        kind = tokens[at].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if kind == TokenType.AND and is_between and not depth:
            is_between = False
        elif depth < 0 or (not depth and kind in _BEGINS | _COMPARISONS):
            return at - 1
    return len(tokens) - 1
