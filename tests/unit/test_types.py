"""Uses of Any, object and cast in the systems, which must not increase."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mudkit

MAX_UNTYPED = 29
"""Uses of ``Any``, ``object`` and ``cast`` in ``mudkit/systems``; lower it whenever there are fewer."""


def _is_untyped(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="Any" | "object") | ast.Call(func=ast.Name(id="cast")):
            return True
    return False


def _find_untyped(text: str) -> list[int]:
    """Return the lines of the uses; words in comments and docstrings, and what `__eq__` has to take, do not count."""
    if not re.search(r"\b(Any|object|cast)\b", text):
        return []
    tree = ast.parse(text)
    of_eq = {
        id(argument.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__eq__"
        for argument in node.args.args
    }
    return [node.lineno for node in ast.walk(tree) if _is_untyped(node) and id(node) not in of_eq]


def test_uses_are_found_in_code_only():
    text = "# Any\nx: Any = cast('Any', object)\ny = Value('object')\ndef __eq__(self, other: object): ...\n"
    assert _find_untyped(text) == [2, 2, 2]


def test_systems_have_no_more_uses_than_before():
    folder = Path(mudkit.__file__).parent / "systems"
    uses = [
        f"{path.relative_to(folder)}:{line}"
        for path in sorted(folder.rglob("*.py"))
        for line in _find_untyped(path.read_text(encoding="utf-8"))
    ]
    assert len(uses) <= MAX_UNTYPED, f"{len(uses)} uses, at most {MAX_UNTYPED}:\n" + "\n".join(uses)
