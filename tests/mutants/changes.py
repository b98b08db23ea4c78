"""Mutants of a module: its code with one small change, of a kind that developers make by mistake.

Only bodies of functions are changed. Assertions, annotations and errors that are raised stay as they are, but for
the conditions of the latter.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]

_NEGATION = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """Change of a function.

    Parameters
    ----------
    module : str
        Name below ``mudkit``.
    function : str
        Qualified name in the module.
    kind : str
        Kind of the change: a key of :data:`KINDS`.
    before, after : str
        Changed expression or statement, as `ast.unparse` writes it.
    nth : int
        Number among equal changes in the function, from 1.
    line : int
        Current line, which is no part of the name.
    """

    module: str
    function: str
    kind: str
    before: str
    after: str
    nth: int = 1
    line: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Name that does not depend on the line."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.module}: {self.function}: {self.before}{nth} -> {self.after}"


@dataclass(frozen=True)
class _Edit:
    """Replacement of a field of a node, or of an item of a list there."""

    kind: str
    shown: ast.AST
    owner: Any
    place: str | int
    new: Any

    def exchange(self, value: Any) -> Any:
        """Put a value in the place, and return the one that was there."""
        if isinstance(self.place, int):
            before, self.owner[self.place] = self.owner[self.place], value
        else:
            before = getattr(self.owner, self.place)
            setattr(self.owner, self.place, value)
        return before


def file_of(module: str) -> Path:
    """Return the file of a module; that of a package is its ``__init__``."""
    path = (ROOT / "mudkit").joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def list_files() -> list[Path]:
    """Return the files of all modules, also those in folders that are links."""
    walk = os.walk(ROOT / "mudkit", followlinks=True)
    return sorted(Path(folder, name) for folder, _, names in walk for name in names if name.endswith(".py"))


def module_of(file: Path) -> str:
    """Return the name of a module below ``mudkit``; empty for the package itself."""
    parts = file.relative_to(ROOT / "mudkit").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def list_mutants(module: str, kinds: Collection[str], function: str | None = None) -> list[Mutant]:
    """Return the mutants of a module, or of one of its functions."""
    return [mutant for mutant, _ in _mutate(module, kinds, function)]


def mutated(mutant: Mutant) -> str:
    """Return the text of a module with the change."""
    return ast.unparse(_tree_of(mutant))


def codes_of(mutant: Mutant) -> dict[int, CodeType]:
    """Return the code of the changed function by its first line, with that of others of the same name."""
    waiting = [compile(ast.fix_missing_locations(_tree_of(mutant)), file_of(mutant.module), "exec")]
    codes = {}
    while waiting:
        code = waiting.pop()
        if code.co_qualname == mutant.function:
            codes[code.co_firstlineno] = code
        waiting += [value for value in code.co_consts if isinstance(value, CodeType)]
    return codes


def _tree_of(mutant: Mutant) -> ast.Module:
    mutants = _mutate(mutant.module, [mutant.kind], mutant.function)
    return next(tree for other, tree in mutants if other == mutant)


def functions_of(
    node: ast.AST, within: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Iterate over the outermost functions and methods of a module with their qualified names."""
    for child in ast.iter_child_nodes(node):
        name = f"{within}.{getattr(child, 'name', '')}".strip(".")
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, child
        elif isinstance(child, ast.ClassDef):
            yield from functions_of(child, name)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from functions_of(child, within)


def _mutate(
    module: str, kinds: Collection[str], only: str | None = None
) -> Iterator[tuple[Mutant, ast.Module]]:
    """Yield each mutant with its module: one tree, which is restored before the next one."""
    tree = ast.parse(file_of(module).read_text(encoding="utf-8"))
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for name, function in functions_of(tree):
        if only not in (None, name):
            continue
        for edit in (edit for kind in KINDS if kind in kinds for edit in _edits(function, function, kind)):
            before = ast.unparse(edit.shown)
            old = edit.exchange(edit.new)
            after = ast.unparse(edit.new if edit.shown is old else edit.shown)
            key = (name, edit.kind, before, after)
            counts[key] += 1
            line = getattr(edit.shown, "lineno", function.lineno)
            yield Mutant(module, name, edit.kind, before, after, counts[key], line), tree
            edit.exchange(old)


def _edits(node: ast.AST, parent: ast.AST, kind: str, *, is_raised: bool = False) -> Iterator[_Edit]:
    """Iterate over the changes of a kind of a node and of those within."""
    if isinstance(node, ast.Assert):
        return
    is_raised = is_raised or isinstance(node, ast.Raise)
    if not (is_raised and kind in ("number", "flag", "arithmetic", "argument")):
        yield from KINDS[kind](node, parent)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _edits(child, node, kind, is_raised=is_raised)


def _comparisons(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Negate a comparison: ``<`` and ``>=``, ``==`` and ``!=``, ``is`` and ``is not``, ``in`` and ``not in``."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            yield _Edit("comparison", node, node.ops, place, _NEGATION[type(operator)]())


def _boundaries(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Exchange ``<`` and ``<=``, ``>`` and ``>=``."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            if type(operator) in _BOUNDARY:
                yield _Edit("boundary", node, node.ops, place, _BOUNDARY[type(operator)]())


def _conditions(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Negate a condition that is no comparison, exchange ``and`` and ``or``."""
    if isinstance(node, ast.BoolOp):
        yield _Edit("condition", node, node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.Compare | ast.BoolOp
    ):
        test = node.test
        is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        yield _Edit("condition", test, node, "test", test.operand if is_not else ast.UnaryOp(ast.Not(), test))


def _numbers(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Replace a number by the next one, or by its double if it has a fraction."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
        new = value + 1 if isinstance(value, int) or not value else 2 * value
        yield _Edit("number", parent if isinstance(parent, ast.expr) else node, node, "value", new)


def _flags(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Exchange ``True`` and ``False``; not the ``strict`` of a `zip`, which is an assertion."""
    is_assertion = isinstance(parent, ast.keyword) and parent.arg == "strict"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool) and not is_assertion:
        yield _Edit("flag", parent, node, "value", not node.value)


def _arithmetic(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Exchange ``+`` and ``-``, ``*`` and ``/``, ``&`` and ``|``; not where texts or lists are joined."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
        if not any(map(_is_joined, sides)):
            yield _Edit("arithmetic", node, node, "op", _ARITHMETIC[type(node.op)]())


def _is_joined(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_joined(node.left) or _is_joined(node.right)
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Dict)


def _extremes(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Exchange ``min`` and ``max``, ``any`` and ``all``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPPOSITE:
        yield _Edit("extreme", node, node.func, "id", _OPPOSITE[node.func.id])


def _dropped(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Drop a call, or an assignment to an attribute or an item."""
    for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
        if not isinstance(body, list):
            continue
        for place, statement in enumerate(body):
            if _can_be_dropped(statement):
                yield _Edit("dropped", statement, body, place, ast.Pass())


def _can_be_dropped(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return isinstance(statement, ast.AugAssign | ast.Delete)


def _arguments(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Drop an argument that is passed on under its own name."""
    if isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            value = keyword.value
            name = getattr(value, "id", getattr(value, "attr", "")).lstrip("_")
            if keyword.arg and keyword.arg == name:
                left = [other for number, other in enumerate(node.keywords) if number != place]
                yield _Edit("argument", node, node, "keywords", left)


def _loops(node: ast.AST, parent: ast.AST) -> Iterator[_Edit]:
    """Exchange ``break`` and ``continue``."""
    for body in (getattr(node, name, None) for name in ("body", "orelse")):
        for place, statement in enumerate(body if isinstance(body, list) else ()):
            if isinstance(statement, ast.Break | ast.Continue):
                new = ast.Continue() if isinstance(statement, ast.Break) else ast.Break()
                yield _Edit("loop", statement, body, place, new)


KINDS = {
    "comparison": _comparisons,
    "boundary": _boundaries,
    "condition": _conditions,
    "number": _numbers,
    "flag": _flags,
    "arithmetic": _arithmetic,
    "extreme": _extremes,
    "dropped": _dropped,
    "argument": _arguments,
    "loop": _loops,
}
"""Kinds of changes, each with the function that finds them."""
