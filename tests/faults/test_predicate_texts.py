"""Malformed and hostile predicates: each raises a PredicateError, in little time and memory."""

from __future__ import annotations

import math
import pickle
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from predicate_fixtures import list_rows

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex

TEXTS = 100_000, 2_000
"""Texts in the soak, and in `make test`."""
MAX_S = 5.0
"""Far above the time for any text (tens of milliseconds for the worst of 8 KiB); a hang is longer."""


def attempt(text: Any, **parameters: Any) -> Predicate | None:
    """Parse a text; return a predicate that can be evaluated, or None after a PredicateError."""
    start_s = time.process_time()
    try:
        predicate = Predicate(text, **parameters)
    except PredicateError:
        predicate = None
    else:
        try:
            assert predicate({"a": 1, "s": "x"}) in (True, False, None)
        except PredicateError:
            assert predicate.unbound or "lookup" in text
    assert time.process_time() - start_s < MAX_S, text
    return predicate


def test_random_bytes_raise_only_predicate_errors(scaled: Callable[[int, int], int]) -> None:
    draw = random.Random(7)
    for number in range(scaled(*TEXTS)):
        raw = draw.randbytes(draw.randrange(1, 40))
        attempt(raw.decode("latin-1" if number % 2 else "utf-8", "surrogateescape"))
    with pytest.raises(PredicateError, match="must be a string"):
        Predicate(b"a = 1")  # type: ignore[arg-type]


def test_mutated_texts_raise_only_predicate_errors(scaled: Callable[[int, int], int]) -> None:
    draw, texts = random.Random(11), scaled(*TEXTS)
    valid = sorted({text for text, *_ in list_rows() if len(text) < 300})
    pieces = sorted({piece for text in valid for piece in text.split()}) + list("()'\"-;:,.*/%_=<>!?[]{}|&^~#@$\\`\n\t\0é😀\ud800") + [
        "NOT", "SELECT", "/*", "--", "::", "||", "IN (", "CASE", "NULL", "1e999", "BETWEEN", "receiver.", "sender.x", ":p", "'", "OVER (", "x'41'", "0x1F", "INTERVAL '1' day", "->", "ARRAY[1]",
        "DATE '2020-01-01'", "CURRENT_DATE", "CAST(a AS int)", "lookup('t', a, 'b')", "{% x %}", "{{ x }}", "LIKE ANY", "ESCAPE '\\'", "IS DISTINCT FROM", "NEXT VALUE FOR a", "if(a, b, c)", "COLLATE x",
    ]  # fmt: skip
    valid_count = 0
    for _ in range(texts):
        text = draw.choice(valid)
        for _ in range(draw.randrange(1, 4)):
            position = draw.randrange(len(text) + 1)
            choice = draw.random()
            if choice < 0.3:
                text = text[:position] + text[position + draw.randrange(1, 5) :]
            elif choice < 0.7:
                text = f"{text[:position]}{draw.choice(['', ' '])}{draw.choice(pieces)}{draw.choice(['', ' '])}{text[position:]}"
            elif choice < 0.85:
                text = text[:position] + chr(draw.randrange(32, 127)) + text[position + 1 :]
            else:
                text = text[:position] + draw.choice(valid)[draw.randrange(3) :]
        valid_count += attempt(text) is not None
    assert texts // 20 < valid_count < texts // 2  # neither all nonsense nor all valid


INJECTIONS = [
    "1=1; DROP TABLE records", "a = 1; ATTACH 'x' AS y", "a IN (SELECT b FROM t)", "EXISTS (SELECT 1)", "(SELECT 1) = 1", "ATTACH('x')", "load_extension('x')", "readfile('/etc/passwd') = 'x'",
    "__import__('os')", "a.__class__ = 1", "__builtins__ = 1", "record.__dict__ = 1", "eval('1')", "a = 1 UNION SELECT 2", "a = 1 -- x\n; b", "CAST(a AS int) = 1", "a::int = 1", "CASE WHEN a THEN b END", "a || b = 'x'",
    "a = b'1'", "a = x'41'", "a[0] = 1", "{fn now()} = 1", "a = ?", "a = @x", "a = $1", "a REGEXP 'x'", "a GLOB '*'", "a LIKE 'x' ESCAPE '\\'", "a COLLATE nocase = 'x'", "`a` = 1", '"a" = 1', "[a] = 1", "INTERVAL 1 DAY = a",
    "count(*) > 1", "sum(a) OVER () > 1", "a = CURRENT_TIMESTAMP()", "a = 1 LIMIT 1", "a, b", "* = 1", "DISTINCT a", "a IS DISTINCT FROM b", "a = ALL (1)", "a MATCH 'x'", "a -> 'b' = 1", "lambda x: x", "f'{a}'", "a := 1", "a = 1 AND",
]  # fmt: skip


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_outside_the_language_is_refused_with_a_caret(text: str) -> None:
    with pytest.raises(PredicateError) as caught:
        Predicate(text)
    assert "^" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).at == caught.value.at


def test_long_deep_and_large_texts_are_refused_quickly() -> None:
    tracemalloc.start()
    cases = {
        "(" * 1_000_000 + "a" + ")" * 1_000_000: "too long", "(" * 4000 + "a": "nested too deeply", "NOT " * 2000 + "a": "nested too deeply", "-" * 1 + " -" * 3000 + "1 = a": "nested too deeply",
        " AND ".join(["a = 1"] * 700): "too large", " + ".join(["a"] * 600) + " = 1": "levels", "a" * 8200: "too long", "é" * 4200: "too long", "a" + ".a" * 3000 + " = 1": "path is too long",
        "a = " + "b = " * 1500 + "1": "cannot be chained", "coalesce(" * 21 + "a" + ")" * 21: "nested too deeply", "a BETWEEN " * 500 + "1": "", "a LIKE " * 900 + "'x'": "",
        "f(" * 2700: "", "[" * 8000: "", "a IN (" * 1000: "", "'" * 8001: "", "/*" * 4000: "", "a." * 4000: "", "IS " * 2600: "", "a IS NOT NULL " * 500: "", "NOT a IN (NOT b " * 400: "",
    }  # fmt: skip
    for text, expected in cases.items():
        start_s = time.process_time()
        with pytest.raises(PredicateError, match=expected or None) as caught:
            Predicate(text)
        assert len(str(caught.value)) < 2000
        assert time.process_time() - start_s < MAX_S, text[:80]
    assert Predicate("a IN (" + "1," * 4000 + "1)")({"a": 1}) is True
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


def test_hostile_patterns_take_bounded_time() -> None:
    text = "a" * 50_000 + "b"
    for pattern in ("(a+)+$", "(a|aa)+$", "(.*)*x", "(a?){500}a{500}", "^(([a-z])+.)+[A-Z]([a-z])+$"):
        start_s = time.process_time()
        assert Predicate("matches(s, :pattern)", pattern=pattern)({"s": text}) in (True, False)
        assert time.process_time() - start_s < MAX_S
    for pattern in ("(", "[", "(?<=a)b", "\\1", "(a{1000}){1000}", "a**", "\\p{Nonsense}"):
        with pytest.raises(PredicateError, match="RE2"):
            Predicate("matches(s, :pattern)", pattern=pattern)
        assert Predicate("matches(s, p)")({"s": "a", "p": pattern}) is None
    start_s = time.process_time()
    assert Predicate("s LIKE :p", p="%a" * 2000 + "x")({"s": text}) is False
    assert time.process_time() - start_s < MAX_S


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "missing"), ({"p": 1, "q": 2}, "no parameter :q"), ({"p": math.nan}, "finite"), ({"p": math.inf}, "finite"), ({"p": 2**53 + 1}, "too large"), ({"p": "a\0"}, "valid text"), ({"p": "\ud800"}, "valid text"),
        ({"p": object()}, "constant"), ({"p": [1, 2, 3]}, "constant"), ({"p": {"x": 1}}, "constant"), ({"p": b"x"}, "constant"), ({"p": (95, 0)}, "constant"), ({"p": lambda: 1}, "constant"), ({"p": 1j}, "constant"),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(PredicateError, match=message) as caught:
        Predicate("a = :p", **parameters)
    assert ":p" in str(caught.value)


def test_invalid_lists_are_refused() -> None:
    for invalid in (5, "abc", None, [1, [2]], [math.nan], list(range(10_001))):
        text = "a IN :p"
        if invalid in (5, "abc", None):
            assert Predicate(text, p=invalid)({"a": 5}) in (True, None)  # one item
        else:
            with pytest.raises(PredicateError):
                Predicate(text, p=invalid)
    assert Predicate("a IN :p", p=list(range(10_000)))({"a": 9_999}) is True


@pytest.mark.parametrize(
    "text",
    ["lower(5) = 'a'", "abs('x') > 1", "'a' + 1 = 2", "NOT 5", "a = 1 AND 'x'", "distance_km(a, 5) < 1", "a", "length(a) OR b", "matches(a, 5)", "within_box(a, 'x', 1, 2, 3)", "-'x' = 1"],
)  # fmt: skip
def test_types_that_never_fit_are_refused(text: str) -> None:
    if text == "a":
        assert Predicate(text)({"a": 5}) is None
        return
    with pytest.raises(PredicateError, match=r"takes|condition"):
        Predicate(text)


def test_unbound_scopes_and_non_mappings_are_refused() -> None:
    predicate = Predicate("receiver.age > sender.age AND sender.x = 1")
    for evaluate in (
        lambda: predicate({}),
        lambda: predicate({}, receiver={"age": 3}),
        lambda: SubscriptionIndex().add(1, predicate),
        lambda: SubscriptionIndex().match({}, predicate),
        lambda: predicate.numpy({"a": [1]}),
        lambda: SubscriptionIndex().match_many([{}], predicate),
    ):
        with pytest.raises(PredicateError, match=r"sender\.age, sender\.x"):
            evaluate()
    plain = Predicate("a = 1")
    for invalid in (5, None, [("a", 1)], "a"):
        with pytest.raises(PredicateError, match="mapping"):
            plain(invalid)  # type: ignore[arg-type]
        with pytest.raises(PredicateError, match="mapping"):
            plain({}, receiver=invalid) if invalid is not None else plain(invalid)  # type: ignore[arg-type]
    with pytest.raises(PredicateError, match="no such scope"):
        plain({}, reciever={"age": 1})
    with pytest.raises(PredicateError, match="bound"):
        plain.bind(receiver={"age": 1})
    with pytest.raises(PredicateError, match="length"):
        plain.numpy({"a": [1, 2], "b": [1, 2, 3]})
