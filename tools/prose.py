"""List docstrings and names that are not plain technical English, and fail if there is one.

Three things are found in `mudkit/`, `widgets/`, `tools/` and `tests/`:

* summaries that begin with a verb that is no term of the field ("Give", "Say") or with none ("What", "So");
* phrases in docstrings that have to be decoded (see `PHRASES`), and a word that is written twice;
* names of functions, classes, variables and parameters that say nothing ("came", "said", "MOST_BYTES"), and
  names of tests that begin with a relative clause ("test_what_is_late_is_dropped").

Usage: python tools/prose.py [PATH ...]
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("mudkit", "widgets", "tools", "tests")

OPENING_WORDS = re.compile(
    r"(Gives?|Say|Tell|Take|Let|Make|Hand|What|Who|Whoever|Whose|Where|When|How|So|Be|Have|Hold|Of|Whether|That"
    r"|Which|Nobody|Nothing|Somebody|As|If|Go|Learn|Know)\b"
)
PHRASES = re.compile(
    r"\b(so long|so many|whoever|nobody who|what came|what has come|who lives|it is told|is told|are told"
    r"|hurry|unheeded|goes on|go on|to be had|by itself that|from then on|there are none|it is none)\b",
    re.IGNORECASE,
)
REPEATED = re.compile(r"(?<=\w )([A-Za-z]+) \1(?![`\w-])")
NAMES = re.compile(
    r"^_?(came|made|said|told|found|there|each|go_on|soon|hurry|is_there|unheeded|asked|held|wanted|gone"
    r"|(MOST|LEAST|DEEPEST|LONGEST|FIRST|LAST)(_[A-Z0-9_]+)?|tell_.*|.*_soon|quiet_workers"
    r"|test_(what|who|whom|whose|whoever|nobody|so)_.*)$"
)

TERMS = frozenset({"found"})
"""Parameters and attributes with a meaning of their own: ``found`` of each error."""

BINDING = {ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.arg, ast.Name, ast.Attribute}
"""Nodes that may bind a name; most nodes do not."""

Finding = tuple[int, str]


def findings(source: str) -> Iterator[Finding]:
    """Yield line and description of each finding in a module."""
    nodes = list(_walk(ast.parse(source)))
    terms = {
        field.target
        for kind in nodes
        if isinstance(kind, ast.ClassDef)
        for field in kind.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and field.target.id in TERMS
    }
    for node in nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield from _docstring_findings(node.lineno, inspect.cleandoc(node.value.value))
        elif type(node) in BINDING and node not in terms:  # a field of a class, as an attribute is
            for line, name in _bound_names(node):
                if NAMES.match(name):
                    yield line, f"name {name}"


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but contexts and operators, each before its parts, much faster than `ast.walk`."""
    todo: list[ast.AST | str | int | None] = [tree]
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.AST):  # a field may have a text or nothing in place of a node
            continue
        yield node
        for name in _fields_with_nodes(type(node)):
            value = getattr(node, name)
            if type(value) is list:
                todo += reversed(value)
            elif value is not None:
                todo.append(value)


@cache
def _fields_with_nodes(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a node that may hold others with names or texts, the last one first."""
    if kind in (ast.Constant, ast.Name):
        return ()
    return tuple(
        name for name in reversed(kind._fields) if name not in {"ctx", "op", "ops", "attr", "id", "kind"}
    )


def _docstring_findings(line: int, text: str) -> Iterator[Finding]:
    if first := OPENING_WORDS.match(text):
        yield line, f"first word {first.group()}: {text.splitlines()[0]}"
    for phrase in PHRASES.finditer(text):
        yield line + text.count("\n", 0, phrase.start()), f"phrase {phrase.group()!r}"
    for word in REPEATED.finditer(text):
        yield line + text.count("\n", 0, word.start()), f"a word twice: {word.group()!r}"


def _bound_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.lineno, node.name
    elif isinstance(node, ast.arg) and node.arg not in TERMS:
        yield node.lineno, node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr not in TERMS:
        yield node.lineno, node.attr


def modules(paths: list[Path]) -> Iterator[Path]:
    """Yield the Python files below some paths; links are not followed."""
    for path in paths:
        yield from (
            [path]
            if path.is_file()
            else sorted(
                file
                for file in path.rglob("*.py")
                if not file.is_symlink() and "__pycache__" not in file.parts
            )
        )


def main() -> None:
    """Print each finding below some paths, by default in the whole repository, and fail if there is one."""
    paths = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT / folder for folder in FOLDERS]
    lines = [
        f"{path.relative_to(ROOT)}:{line}: {finding}"
        for path in modules(paths)
        for line, finding in findings(path.read_text(encoding="utf-8"))
    ]
    sys.exit("\n".join(lines) or None)


if __name__ == "__main__":
    main()
