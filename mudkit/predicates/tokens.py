"""What may stand in a text at all: words and signs, checked before any parser sees them.

The limits are here as well: a text that could make a parser slow, deep or large does not reach it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sqlglot import Dialect, Token, TokenType
from sqlglot.errors import SqlglotError

from mudkit.errors import PredicateError
from mudkit.predicates.chains import check_chains

__all__ = ["DIALECT", "MAX_DEPTH", "MAX_TEXT_BYTES", "NAMED", "tokens"]

MAX_TEXT_BYTES: Final = 8 * 1024
MAX_DEPTH: Final = 20
"""Nested parentheses and signs (NOT, -) before anything."""


NAMED: Final = "n_"
"""Before every name on its way through the parser: it knows none of them, so none gets special treatment."""

_SIGNS: Final = frozenset(
    {
        TokenType.VAR, TokenType.STRING, TokenType.NUMBER, TokenType.DOT, TokenType.COMMA, TokenType.L_PAREN,
        TokenType.R_PAREN, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT,
        TokenType.GTE, TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.BETWEEN, TokenType.IN,
        TokenType.LIKE, TokenType.IS, TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.PLUS,
        TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.COLON,
    }
)  # fmt: skip
_PREFIXES: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})
_KEYWORDS: Final = frozenset(
    {
        TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.BETWEEN, TokenType.IN, TokenType.LIKE,
        TokenType.IS, TokenType.NULL, TokenType.TRUE, TokenType.FALSE,
    }
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_NUMBER: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_APART: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | [A-Za-z_][A-Za-z0-9_]*
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+)(?=[+-])""",
    re.VERBOSE | re.DOTALL,
)
"""A number with an exponent and a sign after it, and all in which such a one is none."""
_NOT_OURS: Final = frozenset(
    [
        "ALTER",
        "ATTACH",
        "CASE",
        "CAST",
        "COLLATE",
        "CREATE",
        "DELETE",
        "DETACH",
        "DISTINCT",
        "DROP",
        "ESCAPE",
        "EXCEPT",
        "EXISTS",
        "GLOB",
        "HAVING",
        "ILIKE",
        "INSERT",
        "INTERSECT",
        "INTERVAL",
        "JOIN",
        "PRAGMA",
        "REGEXP",
        "RLIKE",
        "SELECT",
        "SIMILAR",
        "UNION",
        "WHERE",
        "XOR",
    ]
)
"""Words that nobody means as a name; every other word is one."""
_HINTS: Final = {
    TokenType.SEMICOLON: "A predicate is one condition; nothing can follow it.",
    TokenType.PLACEHOLDER: "A parameter has a name here: write :name.",
    TokenType.PARAMETER: "A parameter has a name here: write :name.",
    TokenType.DPIPE: "|| is not part of the language; the condition 'or' is OR.",
    TokenType.AMP: "& is not part of the language; the condition 'and' is AND.",
    TokenType.DAMP: "&& is not part of the language; the condition 'and' is AND.",
    TokenType.PIPE: "| is not part of the language; the condition 'or' is OR.",
    TokenType.L_BRACKET: "Brackets are not part of the language; a list is (1, 2, 3), a path is a.b.c.",
    TokenType.L_BRACE: "Braces are not part of the language.",
}
DIALECT: Final = Dialect()
"""SQL as sqlglot reads it by default."""


def tokens(text: str) -> list[Token]:
    """Cut a text into words and signs of the language.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of sqlglot.tokens.Token
        Words that SQL knows and the language does not (``date``, ``order``) are plain names; every name has
        :data:`NAMED` before it.

    Raises
    ------
    PredicateError
        The text is too long, nested too deeply, or holds what the language does not have.
    """
    _check_text(text)
    try:
        cut = _cut(text)
    except SqlglotError as error:
        raise _unfinished(text) from error
    if not cut:
        raise PredicateError(
            "The predicate is empty.", text=text, expected="a condition, for instance price < 10"
        )
    depth = run = 0
    after_dot = False
    for number, token in enumerate(cut):
        kind = token.token_type
        if kind in _KEYWORDS and (after_dot or _is_path(cut, number)):
            kind = TokenType.VAR
        elif kind not in _SIGNS:
            kind = _as_name(text, token, after_dot)
        elif kind == TokenType.VAR:
            _check_name(text, token, after_dot)
        elif kind == TokenType.NUMBER and not _NUMBER.fullmatch(token.text):
            raise PredicateError(
                "This is not a number.",
                text=text,
                at=(token.start, token.end),
                expected="one such as 12, 0.5 or 2e3",
            )
        if kind == TokenType.VAR:
            cut[number] = Token(kind, NAMED + token.text, token.line, token.col, token.start, token.end)
        after_dot = kind == TokenType.DOT
        if kind == TokenType.L_PAREN:
            depth += 1
        elif kind == TokenType.R_PAREN:
            depth -= 1
        run = run + 1 if kind in _PREFIXES else 0
        if depth + run > MAX_DEPTH:
            raise PredicateError(
                "The predicate is nested too deeply.",
                text=text,
                at=(token.start, token.end),
                expected=f"at most {MAX_DEPTH} levels",
            )
        if depth < 0:
            raise PredicateError(
                "This parenthesis closes nothing.",
                text=text,
                at=(token.start, token.end),
                remedy="leave it out, or open one before it",
            )
    check_chains(text, cut)
    return cut


def _cut(text: str) -> list[Token]:
    """Cut a text as sqlglot does, which takes ``1e3+1`` for one number, unless a space is in it."""
    ends = [each.end() for each in _APART.finditer(text) if each["number"]]
    if not ends:
        return DIALECT.tokenize(text)
    parts = [text[begin:end] for begin, end in pairwise([0, *ends, len(text)])]
    added = [end + number for number, end in enumerate(ends)]
    places = [(token, bisect_left(added, token.start)) for token in DIALECT.tokenize(" ".join(parts))]
    return [
        Token(each.token_type, each.text, each.line, each.col, each.start - before, each.end - before)
        for each, before in places
    ]


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise PredicateError(
            "A predicate is text.", found=type(text).__name__, expected="a string such as \"topic = 'news'\""
        )
    if len(text) > MAX_TEXT_BYTES:
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            here = (error.start, error.start)
            raise PredicateError(
                "This is not a character: half of a pair.",
                text=text,
                at=here,
                expected="text that UTF-8 can write",
            ) from error
    if size > MAX_TEXT_BYTES:
        raise PredicateError(
            "The predicate is too long.",
            found=f"{size:,} bytes",
            expected=f"at most {MAX_TEXT_BYTES:,} bytes",
            remedy="give lists as parameters: topic IN :topics",
        )
    if "\0" in text:
        at = text.index("\0")
        raise PredicateError(
            "The character U+0000 cannot stand in a predicate.", text=text, at=(at, at), remedy="leave it out"
        )


def _unfinished(text: str) -> PredicateError:
    begin = max(text.rfind("'"), text.rfind('"'), text.rfind("/*"), 0)
    return PredicateError(
        "The text cannot be cut into words.",
        text=text,
        at=(begin, len(text) - 1),
        expected="every quote closed by another, '' for a quote inside a string",
    )


def _is_path(tokens: Sequence[Token], number: int) -> bool:
    """Tell whether a keyword begins a path: ``in.a`` is a name."""
    return number + 1 < len(tokens) and tokens[number + 1].token_type == TokenType.DOT


def _as_name(text: str, token: Token, after_dot: bool) -> TokenType:
    place = (token.start, token.end)
    if token.token_type == TokenType.IDENTIFIER:
        quote = text[token.start] if token.start < len(text) else '"'
        raise PredicateError(
            f"Text in {quote} is a name in SQL, not a string.",
            text=text,
            at=place,
            remedy=f"write '{token.text}' for a string, {token.text or 'name'} for a name"
            if quote == '"'
            else "write the name without quotes",
        )
    if token.token_type == TokenType.NATIONAL_STRING:
        raise PredicateError(
            "A string has no letter before it.",
            text=text,
            at=place,
            expected=f"'{token.text}'",
            remedy="leave the letter out: all strings are Unicode",
        )
    if not _WORD(token.text):
        if hint := _HINTS.get(token.token_type):
            raise PredicateError(hint, text=text, at=place)
        raise PredicateError(
            f"{_shown(token.text)} is not part of the language.",
            text=text,
            at=place,
            expected="names, numbers, 'text', ( ) , . :name and = <> < <= > >= + - * /",
        )
    _check_name(text, token, after_dot)
    return TokenType.VAR


def _check_name(text: str, token: Token, after_dot: bool) -> None:
    place = (token.start, token.end)
    if not _WORD(token.text):
        raise PredicateError(
            f"{_shown(token.text)} is not a name.",
            text=text,
            at=place,
            expected="letters A to Z, digits and _",
        )
    if token.text.startswith("__"):
        raise PredicateError(
            "A name cannot begin with two underscores.",
            text=text,
            at=place,
            expected="a letter or one underscore, then letters A to Z, digits and _",
        )
    if token.text.upper() in _NOT_OURS and not after_dot:
        raise PredicateError(
            f"{token.text.upper()} is not part of the language.",
            text=text,
            at=place,
            remedy=f"an attribute of that name is written record.{token.text}",
        )


def _shown(text: str) -> str:
    return repr(text[:20]) if not text.isprintable() or not text.strip() else text[:20]
