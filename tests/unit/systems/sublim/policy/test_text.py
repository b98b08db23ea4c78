"""YAML of policies: lines of parts, and refusal of unsupported YAML."""

from __future__ import annotations

import pytest

from mudkit.systems.sublim._policy.text import MAX_TEXT, PolicyError, read_yaml


def test_lines_of_parts_are_recorded():
    plain, places = read_yaml("a: 1\nb:\n  - c: text\n  - [2, true, null, 1.5]\n", "x.yaml")
    assert plain == {"a": 1, "b": [{"c": "text"}, [2, True, None, 1.5]]}
    paths = (("a",), ("b",), ("b", 0, "c"), ("b", 1), ("b", 0, "d"))
    assert [places.line(path) for path in paths] == [1, 2, 3, 4, 3]
    assert places.where(("b", 0, "c")) == "x.yaml, line 3: b.1.c"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: &x [1]\nb: *x\n", 2, "cannot contain aliases"),
        ("a: 1\na: 2\n", 2, "Duplicate name"),
        ("a: !!python/object/apply:os.system ['ls']\n", 1, "cannot contain this kind"),
        ("a: !!binary aGVsbG8=\n", 1, "cannot contain this kind"),
        ("a: 2010-03-01\n", 1, "cannot contain this kind"),
        ("1: a\n", 1, "A name must be a text"),
        ("a: " + "[" * 20 + "]" * 20, 1, "nesting is too deep"),
        ("a: 1\n\tb: 2\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("{a: 1\n", 2, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML"),
        ("a: \x07\n", None, "not YAML"),
        ("# nothing\n", None, "policy is empty"),
        ("a" * (MAX_TEXT + 1), None, "too long"),
        ("[" * 5_000, 1, "nesting is too deep"),
        ("[" * 5_000 + "]" * 5_000, 1, "nesting is too deep"),
    ],
    ids=range(16),
)
def test_unsupported_yaml_is_refused(text, line, problem):
    with pytest.raises(PolicyError, match=problem) as caught:
        read_yaml(text, "x.yaml")
    assert caught.value.line == line
