"""Mutants of `mudkit.delivery`: each small change of its code must fail a test. Part of ``make mutants``.

Usage: python tests/faults/delivery_mutants.py [PART/PARTS]        such as 1/10, a sample
"""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mudkit" / "delivery"
TESTS = ("tests/unit/delivery", "tests/property/test_delivery.py")
EQUIVALENT = {
    # A change that no behaviour can show, and why.
    "retransmit.py: 10 -> 11": "2**10 first waits are above the longest wait in any setting that is used",
}
_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """Give what may stand in the place of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        other = copy.deepcopy(node)
        other.ops[0] = _SWAPS[type(node.ops[0])]()
        yield other
    elif (isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _SWAPS) or isinstance(
        node, ast.BoolOp
    ):
        other = copy.deepcopy(node)
        other.op = _SWAPS[type(node.op)]()
        yield other
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


class _Replace(ast.NodeTransformer):
    def __init__(self, number: int, new: ast.AST) -> None:
        self.number, self.new, self.count = number, new, -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.count += 1
        return self.new if self.count == self.number else self.generic_visit(node)


def mutants() -> Iterator[tuple[str, str, str]]:
    """Give file, what is changed, and the text with that one change."""
    for file in sorted(PACKAGE.glob("[a-z]*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inside = {id(each) for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        bodies = {id(node) for f in ast.walk(tree) if id(f) in inside for b in f.body for node in ast.walk(b)}
        for number, node in enumerate(_in_order(tree)):
            if id(node) not in bodies:
                continue
            for new in _changed(node):
                text = ast.unparse(
                    ast.fix_missing_locations(_Replace(number, new).visit(copy.deepcopy(tree)))
                )
                what = f"{ast.unparse(node)} -> {ast.unparse(new)}".replace("\n", " ")
                yield file.name, f"{file.name}: {what}", text


def _in_order(tree: ast.AST) -> list[ast.AST]:
    """Give the nodes as :class:`_Replace` counts them."""
    nodes = [tree]
    for child in ast.iter_child_nodes(tree):
        nodes += _in_order(child)
    return nodes


def survives(name: str, text: str) -> bool:
    """Say whether all tests pass with a mutant in the place of a module."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "mudkit"
        package.mkdir()
        for each in (ROOT / "mudkit").iterdir():
            if each.name != "delivery":
                (package / each.name).symlink_to(each)
        (package / "delivery").mkdir()
        for each in PACKAGE.glob("*.py"):
            (package / "delivery" / each.name).write_text(
                text if each.name == name else each.read_text(encoding="utf-8"), encoding="utf-8"
            )
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "--hypothesis-profile=mutants", *TESTS]
        environment = {**os.environ, "PYTHONPATH": folder}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def main() -> None:
    """Try all mutants, or each of some; tell which of them no test notices."""
    part, parts = (int(each) for each in (sys.argv[1] if len(sys.argv) > 1 else "1/1").split("/"))
    chosen = [each for number, each in enumerate(mutants()) if number % parts == part - 1]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        alive = list(
            tqdm(pool.map(lambda each: survives(each[0], each[2]), chosen), total=len(chosen), unit="mutant")
        )
    left = [
        what for (_, what, _), lives in zip(chosen, alive, strict=True) if lives and what not in EQUIVALENT
    ]
    tqdm.write("\n".join(left) or f"{len(chosen)} mutants, all of them noticed")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
