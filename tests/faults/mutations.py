"""Mutants of the transition rules of MUD tables: ``make mutants``.

Each comparison in the rules is turned into its negation, and one of an order also into the one that differs at the
boundary. A mutant is killed when a unit test fails, when a run of the campaign breaks a promise, or when it does not
end. One that survives must stand in ``survivors.toml``, with the reason why it is no mistake.

``python tests/faults/mutations.py --only backend`` tries those of a module; ``--only "BackEnd._matches"`` those of a
function; several may be named. A mutant that is killed takes 2 to 15 s of a core, one that survives a minute. What is
known of a mutant is kept in ``build/mutants.json`` until its module changes: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import importlib.machinery
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import tomllib
import types
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit" / "systems" / "mud"
SURVIVORS = Path(__file__).with_name("survivors.toml")
KNOWN = ROOT / "build" / "mutants.json"
MODULES = (
    "policies.artefact", "device.read_path", "servers.backend", "device.cache", "device.client",
    "device.connection", "tables.replica", "servers.replica", "servers.gateway", "servers.generator",
    "device.local", "servers.processor", "servers.notifications", "device.planning",
    "tables.queries", "device.policy_slot", "servers.stream_sender", "tables.records", "tables.table",
    "device.continuous_reads", "device.write_path",
)  # fmt: skip
"""The machines, and what their rules depend on."""

_LONGEST_S = 30
"""Of processor time for a step: a run takes a tenth of a second, all tests in a lab take half of this."""
_NEGATION = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Mutant:
    """A comparison in the rules, and what stands in its place.

    Parameters
    ----------
    module, function : str
    comparison, mutant : str
        As Python writes them.
    nth : int
        Which of those that are written alike in the function.
    line : int
        Where it stands now; no part of what it is.
    """

    module: str
    function: str
    comparison: str
    mutant: str
    nth: int
    line: int

    @property
    def name(self) -> str:
        """What it is."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.module}: {self.function}: {self.comparison}{nth} -> {self.mutant}"


# -- mutants


def file_of(module: str) -> Path:
    """Give the file of a module."""
    return (ROOT / "mudkit" / "systems" / "mud").joinpath(*module.split(".")).with_suffix(".py")


def _import_name(module: str) -> str:
    return f"mudkit.systems.mud.{module}"


def mutants(module: str) -> list[Mutant]:
    """Give all mutants of a module."""
    return [mutant for mutant, _ in _mutated(module)]


def _mutated(module: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Give each mutant, and the module with it: the same tree, which is mended when the next is asked for."""
    tree = ast.parse(file_of(module).read_text())
    alike: Counter[tuple[str, str, str]] = Counter()
    for function, node in _comparisons(tree, ""):
        written = ast.unparse(node)
        for place, kind in enumerate(map(type, node.ops)):
            for other in filter(None, (_NEGATION[kind], _BOUNDARY.get(kind))):
                before, node.ops[place] = node.ops[place], other()
                changed = ast.unparse(node)
                alike[function, written, changed] += 1
                nth = alike[function, written, changed]
                yield Mutant(module, function, written, changed, nth, node.lineno), tree
                node.ops[place] = before


def _comparisons(node: ast.AST, within: str) -> Iterator[tuple[str, ast.Compare]]:
    for child in ast.iter_child_nodes(node):
        inside = within
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{within}.{child.name}" if within else child.name
        if isinstance(child, ast.Compare):
            yield within, child
        yield from _comparisons(child, inside)


# -- one of them, in a process of its own


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: types.CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> types.CodeType:
        return self._code


class _Finder:
    """Finds the mutant instead of the module."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = _import_name(mutant.module)
        self._path = str(file_of(mutant.module))
        tree = next(tree for each, tree in _mutated(mutant.module) if each == mutant)
        self._code = compile(tree, self._path, "exec")

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(name, self._path, self._code), origin=self._path)


def _more_time() -> None:
    """Let what follows end, or this process be killed."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + _LONGEST_S, hard))


def _tests_fail(files: Sequence[Path]) -> str | None:
    import pytest

    failed: list[str] = []

    class Noted:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid.split("/")[-1])

    _more_time()
    options = ["-x", "-q", "-n", "0", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this process has imported it before
    status = pytest.main([*options, *map(str, files)], plugins=[Noted()])
    return None if status in (0, 5) else (failed or ["a test cannot be imported"])[0]


def _runs_fail(seeds: range) -> str | None:
    _more_time()
    try:
        from mudkit.verify.campaign.judge import play
    except Exception as error:
        return f"{type(error).__name__} as it is imported"
    for seed in seeds:
        _more_time()
        try:
            problems = play(seed).problems
        except Exception as error:
            return f"seed {seed}: {type(error).__name__}"
        if problems:
            return f"seed {seed}: {problems[0][:200]}"
    return None


def _try(mutant: Mutant | None, seeds: int, says: Connection) -> None:
    """Look for what kills a mutant, or the rules as they are; the cheap and likely first."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(mutant))
        *rooms, name = [""] if mutant is None else mutant.module.split(".")
        own = UNIT.joinpath(*rooms, f"test_{name}.py")
        others = [
            each
            for each in sorted(UNIT.rglob("test_*.py"))
            if each != own and any(lab in each.read_text() for lab in ("Lab(", "Place(", "(place"))
        ]
        killer = (
            (_tests_fail([own]) if own.exists() else None)
            or _runs_fail(range(min(seeds, 20)))
            or _tests_fail(others)
            or _runs_fail(range(20, seeds))
        )
    says.send(killer)


# -- all of them


def _warm_up() -> None:
    """Import what no mutant changes: the processes that are forked have it."""
    for name in (
        "pytest",
        "hypothesis",
        "pandas",
        "pyarrow.feather",
        "mudkit.lab",
        "mudkit.consistency",
        "mudkit.predicates",
    ):
        importlib.import_module(name)
    assert not any(_import_name(module) in sys.modules for module in MODULES)


def tried(
    chosen: Sequence[Mutant | None], seeds: int, workers: int
) -> Iterator[tuple[Mutant | None, str | None]]:
    """Give each mutant with what killed it, or None, as they come; for None, what the rules as they are fail."""
    context = multiprocessing.get_context("fork")
    left, running = list(reversed(chosen)), {}
    try:
        while left or running:
            while left and len(running) < workers:
                here, there = context.Pipe(duplex=False)
                mutant = left.pop()
                process = context.Process(target=_try, args=(mutant, seeds, there))
                process.start()
                there.close()
                running[process.sentinel] = mutant, process, here
            for sentinel in wait(list(running)):
                mutant, process, here = running.pop(sentinel)
                process.join()
                try:
                    yield mutant, here.recv()
                except EOFError:
                    if process.exitcode != -signal.SIGXCPU:
                        raise RuntimeError(f"Nothing was found out of {mutant}: {process.exitcode}") from None
                    yield mutant, "it does not end"
    finally:
        for _, process, _ in running.values():
            process.kill()
            process.join()


def survivors() -> dict[str, str]:
    """Give what is said of survivors, by their names."""
    listed = tomllib.loads(SURVIVORS.read_text()).get("survivor", [])
    result = {}
    for each in listed:
        mutant = Mutant(
            each["module"], each["function"], each["comparison"], each["mutant"], each.get("nth", 1), 0
        )
        result[mutant.name] = each["why"]
    return result


def _digest(module: str) -> str:
    return hashlib.sha256(file_of(module).read_bytes()).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of mutants' names")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--known", type=Path, default=KNOWN, help="where it is kept what is known")
    parser.add_argument("--again", action="store_true", help="also those of which it is known")
    parser.add_argument("--list", action="store_true", help="name the mutants and do no more")
    given = parser.parse_args()
    chosen = [
        each
        for module in MODULES
        for each in mutants(module)
        if any(part in each.name for part in given.only)
    ]
    if given.list:
        print(*(f"{each.name}  (line {each.line})" for each in chosen), sep="\n")
        return 0
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    known: dict[str, Any] = json.loads(given.known.read_text()) if given.known.exists() else {}
    keys = {each: f"{_digest(each.module)} {each.name}" for each in chosen}
    open_ = [each for each in chosen if given.again or keys[each] not in known or known[keys[each]] is None]
    killers: dict[Mutant, str | None] = {each: known.get(keys[each]) for each in chosen}
    _warm_up()
    for _, problem in tried([None], min(given.seeds, 5), 1):
        if problem is not None:
            print(f"The rules as they are fail: {problem}")
            return 2
    with tqdm(total=len(open_), unit="mutant", mininterval=1.0) as bar:
        for mutant, killer in tried(open_, given.seeds, given.workers):
            killers[mutant] = known[keys[mutant]] = killer
            given.known.parent.mkdir(exist_ok=True)
            given.known.with_suffix(".new").write_text(json.dumps(known, indent=0))
            given.known.with_suffix(".new").replace(given.known)
            bar.update()
            if killer is None:
                tqdm.write(f"survives: {mutant.name}  (line {mutant.line})")
    ways = Counter(_way(killer) for killer in killers.values() if killer is not None)
    killed = sum(ways.values())
    print(f"{len(chosen)} mutants, {killed} killed ({dict(ways)}), {len(chosen) - killed} survive")
    wrong = complaints(killers, survivors())
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def complaints(killers: Mapping[Mutant, str | None], listed: Container[str]) -> list[str]:
    """Say which mutants survive and are not listed, and which are listed and were killed."""
    return [
        f"is listed as a survivor, and was killed: {each.name} ({killer})"
        for each, killer in killers.items()
        if killer is not None and each.name in listed
    ] + [
        f"survives and is not listed: {each.name}  ({file_of(each.module)}:{each.line})"
        for each, killer in killers.items()
        if killer is None and each.name not in listed
    ]


def _way(killer: str) -> str:
    if killer.startswith("seed "):
        return "by a run"
    return "it does not end" if killer.startswith("it does not end") else "by a test"


if __name__ == "__main__":
    sys.exit(main())
