"""From text to tokens: the words and signs of the language, checked before any parser sees them.

Limits of length and depth are checked here, so that no text can make a parser slow or exhaust its stack.
Chained comparisons are refused because engines disagree on their functions. To SQLite ``a = b < c`` is
``a = (b < c)``, to Spark ``(a = b) < c``; to both ``n = 1 IS NULL`` is ``(n = 1) IS NULL``, to sqlglot
``n = (1 IS NULL)``; and ``1 < n < 3`` compares TRUE with 3.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sqlglot import Dialect, Token, TokenType
from sqlglot.errors import SqlglotError

from mudkit.errors import PredicateError
from mudkit.predicates.values import seconds_of

MAX_TEXT_BYTES: Final = 8 * 1024
MAX_PREDICATE_DEPTH: Final = 20
"""Nested parentheses plus prefix operators (NOT, -, +)."""
NAME_PREFIX: Final = "n_"
"""Put before every name while sqlglot parses, so that it gives no name a special meaning."""

_TOKEN_TYPES: Final = frozenset(
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
_INEQUALITIES: Final = frozenset({TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE})
_WORD_COMPARISONS: Final = frozenset({TokenType.IS, TokenType.IN, TokenType.LIKE, TokenType.BETWEEN})
_COMPARISONS: Final = _INEQUALITIES | _WORD_COMPARISONS | {TokenType.EQ, TokenType.NEQ}
_SEPARATORS: Final = frozenset({TokenType.AND, TokenType.OR, TokenType.COMMA})
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_NUMBER: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXPONENT_BEFORE_SIGN: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | [A-Za-z_][A-Za-z0-9_]*
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+)(?=[+-])""",
    re.VERBOSE | re.DOTALL,
)
"""The group ``number``, outside strings, comments and names: a number with an exponent, before a sign."""
_RESERVED: Final = frozenset(
    [
        "ALTER", "ATTACH", "CASE", "CAST", "COLLATE", "CREATE", "DELETE", "DETACH", "DISTINCT", "DROP",
        "ESCAPE", "EXCEPT", "EXISTS", "GLOB", "HAVING", "ILIKE", "INSERT", "INTERSECT", "INTERVAL", "JOIN",
        "PRAGMA", "REGEXP", "RLIKE", "SELECT", "SIMILAR", "UNION", "WHERE", "XOR",
    ]
)  # fmt: skip
"""Words of SQL that are refused as names; all others are allowed."""
_TIMES: Final = {"DATE": "2023-11-15", "TIMESTAMP": "2023-11-15 08:30:00+01:00"}
"""Words before the text of a time, with an example of it."""
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
"""sqlglot's default dialect of SQL."""


def tokenize(text: str) -> list[Token]:
    """Split a text into the tokens of the language; every name gets the prefix :data:`NAME_PREFIX`.

    Words that SQL knows and the language does not (``date``, ``order``) are plain names. A time, ``DATE`` or
    ``TIMESTAMP`` before a string, becomes the number of its seconds.
    """
    _check_text(text)
    try:
        tokens = _with_times(text, _split(text))
    except SqlglotError as error:
        begin = max(text.rfind("'"), text.rfind('"'), text.rfind("/*"), 0)
        raise PredicateError(
            "The text cannot be split into tokens.",
            text=text,
            at=(begin, len(text) - 1),
            expected="every quote closed by another, '' for a quote inside a string",
        ) from error
    if not tokens:
        raise PredicateError(
            "The predicate is empty.", text=text, expected="a condition, for instance price < 10"
        )
    depth = prefixes = 0
    is_after_dot = False
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind in _KEYWORDS and (is_after_dot or _begins_path(tokens, number)):
            kind = TokenType.VAR
        elif kind not in _TOKEN_TYPES:
            kind = _as_name(text, token, is_after_dot)
        elif kind == TokenType.VAR:
            _check_name(text, token, is_after_dot)
        elif kind == TokenType.NUMBER and not _NUMBER.fullmatch(token.text.removeprefix("-")):
            raise _error("This is not a number.", text, token, expected="one such as 12, 0.5 or 2e3")
        if kind == TokenType.VAR:
            tokens[number] = Token(
                kind, NAME_PREFIX + token.text, token.line, token.col, token.start, token.end
            )
        is_after_dot = kind == TokenType.DOT
        if kind == TokenType.L_PAREN:
            depth += 1
        elif kind == TokenType.R_PAREN:
            depth -= 1
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if depth + prefixes > MAX_PREDICATE_DEPTH:
            raise _error(
                "The predicate is nested too deeply.",
                text,
                token,
                expected=f"at most {MAX_PREDICATE_DEPTH} levels",
            )
        if depth < 0:
            raise _error(
                "This closing parenthesis has no opening one.",
                text,
                token,
                remedy="leave it out, or open one before it",
            )
    _check_chains(text, tokens)
    return tokens


def _error(summary: str, text: str, token: Token, **fields: str) -> PredicateError:
    """Return the error at the place of a token."""
    return PredicateError(summary, text=text, at=(token.start, token.end), **fields)


def _split(text: str) -> list[Token]:
    """Split a text with sqlglot, which would read ``1e3+1`` as one number unless a space follows ``1e3``."""
    ends = [match.end() for match in _EXPONENT_BEFORE_SIGN.finditer(text) if match["number"]]
    if not ends:
        return DIALECT.tokenize(text)
    parts = [text[begin:end] for begin, end in pairwise([0, *ends, len(text)])]
    added_spaces = [end + number for number, end in enumerate(ends)]
    tokens = []
    for token in DIALECT.tokenize(" ".join(parts)):
        shift = bisect_left(added_spaces, token.start)
        tokens.append(
            Token(token.token_type, token.text, token.line, token.col, token.start - shift, token.end - shift)
        )
    return tokens


def _with_times(text: str, tokens: list[Token]) -> list[Token]:
    """Replace ``DATE '2023-11-15'`` and ``TIMESTAMP '2023-11-15 08:30:00'`` by their seconds since 1970."""
    if not any(token.token_type == TokenType.STRING and token.start > 0 for token in tokens):
        return tokens
    kept: list[Token] = []
    for token in tokens:
        word = kept[-1] if kept else token
        example = _TIMES.get(word.text.upper()) if word.token_type != TokenType.STRING else None
        if token.token_type != TokenType.STRING or example is None:
            kept.append(token)
            continue
        seconds = seconds_of(token.text)
        if seconds is None or (word.text.upper() == "DATE" and ":" in token.text):
            raise _error(
                f"This is not a {word.text.upper()}.",
                text,
                token,
                expected=f"one such as '{example}', in UTC unless it says otherwise",
            )
        kept[-1] = Token(TokenType.NUMBER, repr(seconds), word.line, word.col, word.start, token.end)
    return kept


def _check_text(text: str) -> None:
    """Raise PredicateError unless a text is a string that UTF-8 encodes, not too long, without U+0000."""
    if not isinstance(text, str):
        raise PredicateError(
            "A predicate must be a string.",
            found=type(text).__name__,
            expected="a string such as \"topic = 'news'\"",
        )
    size = len(text)
    if size <= MAX_TEXT_BYTES:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise PredicateError(
                "The text contains half of a surrogate pair.",
                text=text,
                at=(error.start, error.start),
                expected="text that UTF-8 can encode",
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
            "The character U+0000 is not allowed in a predicate.",
            text=text,
            at=(at, at),
            remedy="leave it out",
        )


def _begins_path(tokens: Sequence[Token], number: int) -> bool:
    """Return whether a keyword begins a path: ``in.a`` is a name."""
    return number + 1 < len(tokens) and tokens[number + 1].token_type == TokenType.DOT


def _as_name(text: str, token: Token, is_after_dot: bool) -> TokenType:
    """Return the token type of a name; PredicateError, with a hint, if the token is none."""
    if token.token_type == TokenType.IDENTIFIER:
        quote = text[token.start] if token.start < len(text) else '"'
        raise _error(
            f"Text in {quote} is a name in SQL, not a string.",
            text,
            token,
            remedy=f"write '{token.text}' for a string, {token.text or 'name'} for a name"
            if quote == '"'
            else "write the name without quotes",
        )
    if token.token_type == TokenType.NATIONAL_STRING:
        raise _error(
            "A string has no letter before it.",
            text,
            token,
            expected=f"'{token.text}'",
            remedy="leave the letter out: all strings are Unicode",
        )
    if not _WORD(token.text):
        if hint := _HINTS.get(token.token_type):
            raise _error(hint, text, token)
        raise _error(
            f"{_printable(token.text)} is not part of the language.",
            text,
            token,
            expected="names, numbers, 'text', ( ) , . :name and = <> < <= > >= + - * /",
        )
    _check_name(text, token, is_after_dot)
    return TokenType.VAR


def _check_name(text: str, token: Token, is_after_dot: bool) -> None:
    """Raise PredicateError for no name, ``__`` at the beginning, or a reserved word after no dot."""
    if not _WORD(token.text):
        raise _error(
            f"{_printable(token.text)} is not a name.", text, token, expected="letters A to Z, digits and _"
        )
    if token.text.startswith("__"):
        raise _error(
            "A name cannot begin with two underscores.",
            text,
            token,
            expected="a letter or one underscore, then letters A to Z, digits and _",
        )
    if token.text.upper() in _RESERVED and not is_after_dot:
        raise _error(
            f"{token.text.upper()} is not part of the language.",
            text,
            token,
            remedy=f"an attribute of that name is written record.{token.text}",
        )


def _printable(text: str) -> str:
    """Return at most 20 characters, quoted if they would not be seen."""
    return repr(text[:20]) if not text.isprintable() or not text.strip() else text[:20]


class _Operand(NamedTuple):
    """Condition being read: index of its first token and of its first comparison."""

    begin: int
    comparison: int | None = None
    is_between: bool = False
    """True while the next AND belongs to a BETWEEN."""


def _check_chains(text: str, tokens: Sequence[Token]) -> None:
    """Raise an error for two comparisons without AND, OR, a comma or parentheses between them."""
    outer: list[_Operand] = []
    current = _Operand(0)
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind == TokenType.L_PAREN:
            outer.append(current)
            current = _Operand(number + 1)
        elif kind == TokenType.R_PAREN:
            current = outer.pop() if outer else _Operand(number + 1)
        elif kind == TokenType.AND and current.is_between:
            current = current._replace(is_between=False)
        elif kind in _SEPARATORS or (kind == TokenType.NOT and number == current.begin):
            current = _Operand(number + 1)
        elif kind in _COMPARISONS:
            if current.comparison is not None:
                raise _chain_error(text, tokens, current.begin, current.comparison, number)
            current = current._replace(comparison=number, is_between=kind == TokenType.BETWEEN)


def _chain_error(text: str, tokens: Sequence[Token], begin: int, first: int, second: int) -> PredicateError:
    """Return the error for two comparisons in a row, with the text to write instead."""
    one, other = tokens[first], tokens[second]
    # The operator NOT IN begins with NOT.
    operator = tokens[second - 1] if tokens[second - 1].token_type == TokenType.NOT else other
    last = tokens[_last_token(tokens, second)]
    if one.token_type in _WORD_COMPARISONS or other.token_type in _WORD_COMPARISONS:
        left = text[tokens[begin].start : operator.start].strip()
        remedy = f"write ({left}) {text[operator.start : last.end + 1]}"
    else:
        before = text[tokens[begin].start : one.start].strip()
        middle = text[one.end + 1 : other.start].strip()
        sign = text[one.start : one.end + 1]
        after = text[other.start : last.end + 1]
        remedy = f"write {before} {sign} {middle} AND {middle} {after}, or put one of them in parentheses"
    return _error(
        "Comparisons cannot be chained.",
        text,
        other,
        expected="AND or OR between them, or parentheses around one",
        remedy=remedy,
    )


def _last_token(tokens: Sequence[Token], number: int) -> int:
    """Return the index of the last token of an operator's right side."""
    depth = 0
    is_between = tokens[number].token_type == TokenType.BETWEEN
    for at in range(number + 1, len(tokens)):
        kind = tokens[at].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if kind == TokenType.AND and is_between and not depth:
            is_between = False
        elif depth < 0 or (not depth and kind in _SEPARATORS | _COMPARISONS):
            return at - 1
    return len(tokens) - 1
