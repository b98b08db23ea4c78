"""Mutants of the transition rules of MUD tables: ``make mutants``.

Each comparison in the rules is negated; an order comparison is also changed at its boundary. A mutant is killed when
a unit test fails, when a run of the campaign violates a guarantee, or when it does not terminate. A survivor must be
listed in ``survivors.toml`` with a reason.

``python tests/faults/mutations.py --only backend`` runs the mutants of a module, ``--only "BackEnd._matches"`` those
of a function; several may be named. A killed mutant takes 2 to 15 s of a core, a survivor a minute. Results are kept
in ``build/mutants.json`` until a module changes, so that an interrupted run resumes.
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
"""Machines, and the modules that their rules depend on."""

_MAX_CPU_S = 30
"""Limit of processor time of a step: a run takes a tenth of a second, all tests in a lab half of this."""
_NEGATION = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Mutant:
    """Comparison in the rules, and its replacement.

    Parameters
    ----------
    module, function : str
    comparison, mutant : str
        As `ast.unparse` writes them.
    nth : int
        Number among equal mutants in the function, from 1.
    line : int
        Current line; not part of the name.
    """

    module: str
    function: str
    comparison: str
    mutant: str
    nth: int
    line: int

    @property
    def name(self) -> str:
        """Name that does not depend on the line."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.module}: {self.function}: {self.comparison}{nth} -> {self.mutant}"


# -- mutants


def file_of(module: str) -> Path:
    """Return the file of a module."""
    return (ROOT / "mudkit" / "systems" / "mud").joinpath(*module.split(".")).with_suffix(".py")


def _import_name(module: str) -> str:
    return f"mudkit.systems.mud.{module}"


def list_mutants(module: str) -> list[Mutant]:
    """Return all mutants of a module."""
    return [mutant for mutant, _ in _mutate(module)]


def _mutate(module: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Yield each mutant and its module: one tree, which is restored before the next mutant."""
    tree = ast.parse(file_of(module).read_text())
    alike: Counter[tuple[str, str, str]] = Counter()
    for function, node in _find_comparisons(tree, ""):
        written = ast.unparse(node)
        for place, kind in enumerate(map(type, node.ops)):
            for other in filter(None, (_NEGATION[kind], _BOUNDARY.get(kind))):
                before, node.ops[place] = node.ops[place], other()
                changed = ast.unparse(node)
                alike[function, written, changed] += 1
                nth = alike[function, written, changed]
                yield Mutant(module, function, written, changed, nth, node.lineno), tree
                node.ops[place] = before


def _find_comparisons(node: ast.AST, within: str) -> Iterator[tuple[str, ast.Compare]]:
    for child in ast.iter_child_nodes(node):
        inside = within
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{within}.{child.name}" if within else child.name
        if isinstance(child, ast.Compare):
            yield within, child
        yield from _find_comparisons(child, inside)


# -- one mutant, in its own process


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: types.CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> types.CodeType:
        return self._code


class _Finder:
    """Import finder that loads the mutant in place of the module."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = _import_name(mutant.module)
        self._path = str(file_of(mutant.module))
        tree = next(tree for candidate, tree in _mutate(mutant.module) if candidate == mutant)
        self._code = compile(tree, self._path, "exec")

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(name, self._path, self._code), origin=self._path)


def _extend_cpu_limit() -> None:
    """Limit the processor time of the next step; the process is killed at the limit."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + _MAX_CPU_S, hard))


def _tests_fail(files: Sequence[Path]) -> str | None:
    import pytest

    failed: list[str] = []

    class FailureRecorder:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid.split("/")[-1])

    _extend_cpu_limit()
    options = ["-x", "-q", "-n", "0", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # already imported by this process
    status = pytest.main([*options, *map(str, files)], plugins=[FailureRecorder()])
    return None if status in (0, 5) else (failed or ["a test cannot be imported"])[0]


def _runs_fail(seeds: range) -> str | None:
    _extend_cpu_limit()
    try:
        from mudkit.verify.campaign.judge import play
    except Exception as error:
        return f"{type(error).__name__} as it is imported"
    for seed in seeds:
        _extend_cpu_limit()
        try:
            problems = play(seed).problems
        except Exception as error:
            return f"seed {seed}: {type(error).__name__}"
        if problems:
            return f"seed {seed}: {problems[0][:200]}"
    return None


def _try(mutant: Mutant | None, seeds: int, connection: Connection) -> None:
    """Send what kills a mutant (None: the original rules); cheap and likely killers are tried first."""
    with (
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
    ):
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(mutant))
        *folders, name = [""] if mutant is None else mutant.module.split(".")
        own = UNIT.joinpath(*folders, f"test_{name}.py")
        others = [
            file
            for file in sorted(UNIT.rglob("test_*.py"))
            if file != own and any(lab in file.read_text() for lab in ("Lab(", "Place(", "(place"))
        ]
        killer = (
            (_tests_fail([own]) if own.exists() else None)
            or _runs_fail(range(min(seeds, 20)))
            or _tests_fail(others)
            or _runs_fail(range(20, seeds))
        )
    connection.send(killer)


# -- all mutants


def _warm_up() -> None:
    """Import modules that no mutant changes, for all forked processes."""
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


def run_mutants(
    chosen: Sequence[Mutant | None], seeds: int, workers: int
) -> Iterator[tuple[Mutant | None, str | None]]:
    """Yield each mutant with its killer or None, as they complete; a mutant of None is the original rules."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(reversed(chosen)), {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                receiver, sender = context.Pipe(duplex=False)
                mutant = waiting.pop()
                process = context.Process(target=_try, args=(mutant, seeds, sender))
                process.start()
                sender.close()
                running[process.sentinel] = mutant, process, receiver
            for sentinel in wait(list(running)):
                mutant, process, receiver = running.pop(sentinel)
                process.join()
                try:
                    yield mutant, receiver.recv()
                except EOFError:
                    if process.exitcode != -signal.SIGXCPU:
                        raise RuntimeError(f"Nothing was found out of {mutant}: {process.exitcode}") from None
                    yield mutant, "it does not end"
    finally:
        for _, process, _ in running.values():
            process.kill()
            process.join()


def load_survivors() -> dict[str, str]:
    """Return the reasons of the listed survivors by their names."""
    listed = tomllib.loads(SURVIVORS.read_text()).get("survivor", [])
    result = {}
    for row in listed:
        mutant = Mutant(
            row["module"], row["function"], row["comparison"], row["mutant"], row.get("nth", 1), 0
        )
        result[mutant.name] = row["why"]
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
    arguments = parser.parse_args()
    chosen = [
        mutant
        for module in MODULES
        for mutant in list_mutants(module)
        if any(part in mutant.name for part in arguments.only)
    ]
    if arguments.list:
        print(*(f"{mutant.name}  (line {mutant.line})" for mutant in chosen), sep="\n")
        return 0
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    known: dict[str, Any] = json.loads(arguments.known.read_text()) if arguments.known.exists() else {}
    keys = {mutant: f"{_digest(mutant.module)} {mutant.name}" for mutant in chosen}
    untested = [
        mutant
        for mutant in chosen
        if arguments.again or keys[mutant] not in known or known[keys[mutant]] is None
    ]
    killers: dict[Mutant, str | None] = {mutant: known.get(keys[mutant]) for mutant in chosen}
    _warm_up()
    for _, problem in run_mutants([None], min(arguments.seeds, 5), 1):
        if problem is not None:
            print(f"The rules as they are fail: {problem}")
            return 2
    with tqdm(total=len(untested), unit="mutant", mininterval=1.0) as bar:
        for mutant, killer in run_mutants(untested, arguments.seeds, arguments.workers):
            killers[mutant] = known[keys[mutant]] = killer
            arguments.known.parent.mkdir(exist_ok=True)
            arguments.known.with_suffix(".new").write_text(json.dumps(known, indent=0))
            arguments.known.with_suffix(".new").replace(arguments.known)
            bar.update()
            if killer is None:
                tqdm.write(f"survives: {mutant.name}  (line {mutant.line})")
    kill_counts = Counter(_classify_killer(killer) for killer in killers.values() if killer is not None)
    killed = sum(kill_counts.values())
    print(f"{len(chosen)} mutants, {killed} killed ({dict(kill_counts)}), {len(chosen) - killed} survive")
    discrepancies = list_discrepancies(killers, load_survivors())
    print(*discrepancies, sep="\n", end="\n" if discrepancies else "")
    return 1 if discrepancies else 0


def list_discrepancies(killers: Mapping[Mutant, str | None], listed: Container[str]) -> list[str]:
    """Return a line for each mutant that survives unlisted, or is listed but killed."""
    return [
        f"is listed as a survivor, and was killed: {mutant.name} ({killer})"
        for mutant, killer in killers.items()
        if killer is not None and mutant.name in listed
    ] + [
        f"survives and is not listed: {mutant.name}  ({file_of(mutant.module)}:{mutant.line})"
        for mutant, killer in killers.items()
        if killer is None and mutant.name not in listed
    ]


def _classify_killer(killer: str) -> str:
    if killer.startswith("seed "):
        return "by a run"
    return "it does not end" if killer.startswith("it does not end") else "by a test"


if __name__ == "__main__":
    sys.exit(main())
