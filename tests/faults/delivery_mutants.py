"""Mutants of `mudkit.delivery`: each small change of its code must make a test fail. Part of ``make mutants``.

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
MAX_CPU_S = 200
"""Limit of processor time of the tests of a mutant, ten times what they take: a busy computer kills none."""
EQUIVALENT = {
    # Mutants with equal behaviour, and the reason.
    "retransmit.py: 10 -> 11": "2**10 first waits are above the longest wait in any setting that is used",
}
_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def _list_replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the replacements of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        changed = copy.deepcopy(node)
        changed.ops[0] = _SWAPS[type(node.ops[0])]()
        yield changed
    elif (isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _SWAPS) or isinstance(
        node, ast.BoolOp
    ):
        changed = copy.deepcopy(node)
        changed.op = _SWAPS[type(node.op)]()
        yield changed
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


def list_mutants() -> Iterator[tuple[str, str, str]]:
    """Yield file, description and changed text of each mutant."""
    for file in sorted(PACKAGE.glob("[a-z]*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inside = {id(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        bodies = {id(node) for f in ast.walk(tree) if id(f) in inside for b in f.body for node in ast.walk(b)}
        for number, node in enumerate(_list_nodes(tree)):
            if id(node) not in bodies:
                continue
            for new in _list_replacements(node):
                text = ast.unparse(
                    ast.fix_missing_locations(_Replace(number, new).visit(copy.deepcopy(tree)))
                )
                description = f"{ast.unparse(node)} -> {ast.unparse(new)}".replace("\n", " ")
                yield file.name, f"{file.name}: {description}", text


def _list_nodes(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes in the order in which :class:`_Replace` counts them."""
    nodes = [tree]
    for child in ast.iter_child_nodes(tree):
        nodes += _list_nodes(child)
    return nodes


def survives(name: str, text: str) -> bool:
    """Return whether all tests pass with a mutant in place of a module."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "mudkit"
        package.mkdir()
        for file in (ROOT / "mudkit").iterdir():
            if file.name != "delivery":
                (package / file.name).symlink_to(file)
        (package / "delivery").mkdir()
        for file in PACKAGE.glob("*.py"):
            (package / "delivery" / file.name).write_text(
                text if file.name == name else file.read_text(encoding="utf-8"), encoding="utf-8"
            )
        limited = ["sh", "-c", f'ulimit -t {MAX_CPU_S} && exec "$@"', "sh"]
        command = [
            *limited,
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-x",
            "-q",
            "--hypothesis-profile=mutants",
            *TESTS,
        ]
        environment = {**os.environ, "PYTHONPATH": folder}
        process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
        return process.returncode == 0


def main() -> None:
    """Test all mutants or a sample of them, and print those that survive."""
    part, parts = (int(text) for text in (sys.argv[1] if len(sys.argv) > 1 else "1/1").split("/"))
    chosen = [mutant for number, mutant in enumerate(list_mutants()) if number % parts == part - 1]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        survived = list(
            tqdm(
                pool.map(lambda mutant: survives(mutant[0], mutant[2]), chosen),
                total=len(chosen),
                unit="mutant",
            )
        )
    unexpected = [
        description
        for (_, description, _), has_survived in zip(chosen, survived, strict=True)
        if has_survived and description not in EQUIVALENT
    ]
    tqdm.write("\n".join(unexpected) or f"{len(chosen)} mutants, all of them noticed")
    sys.exit(bool(unexpected))


if __name__ == "__main__":
    main()
