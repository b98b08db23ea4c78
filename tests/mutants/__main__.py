"""Small changes of mudkit's code, each of which a test must notice: ``make mutants``.

Of each package a sample is drawn. A change is tried with the tests of ``make test`` that reach its function, those of
its module first. It is noticed when one fails, when it does not end, when it fills the memory, or when it breaks the
import. One that is no mistake stands in ``survivors.toml``, with the reason.

Examples: ``python tests/mutants trace learning --seed 7``, ``python tests/mutants systems.mud --all --kinds
comparison boundary``, ``python tests/mutants trace --only "clean: clean_reads"``. Results are kept in
``build/mutants`` until a module changes, so that an interrupted run resumes; what survives is tried again.

Which functions each test reaches is measured before the first trial, and again for files of tests that have changed.
For packages that are named, the files that import them are measured; without names, all files are. Delete
``build/mutants/reach_by_file.json`` after code has moved.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import reach
import trial
from changes import KINDS, ROOT, Mutant, file_of, list_files, list_mutants, module_of
from tqdm import tqdm

KNOWN = ROOT / "build" / "mutants" / "results.json"
SURVIVORS = Path(__file__).with_name("survivors.toml")
LEFT_OUT = {"figures": {"number"}, "widgets": {"number"}}
"""Kinds that are left out: numbers of figures are sizes in pixels, which people judge in pictures."""


@dataclass(frozen=True)
class Package:
    """A package, with those below it unless they are packages themselves."""

    name: str
    modules: tuple[str, ...]

    def mutants(self, kinds: Sequence[str]) -> list[Mutant]:
        """Return all mutants of some kinds."""
        used = [kind for kind in kinds if kind not in LEFT_OUT.get(self.name, ())]
        return [mutant for module in self.modules for mutant in list_mutants(module, used)]


def packages() -> dict[str, Package]:
    """Return all packages by name: those of mudkit, each system, and the modules beside them."""
    modules: dict[str, list[str]] = {}
    for file in list_files():
        folders = file.relative_to(ROOT / "mudkit").parts[:-1]
        depth = 2 if folders[:1] == ("systems",) else 1
        modules.setdefault(".".join(folders[:depth]) or "mudkit", []).append(module_of(file))
    return {name: Package(name, tuple(filter(None, of))) for name, of in modules.items()}


def load_survivors() -> dict[str, str]:
    """Return the reasons of the listed survivors by their names."""
    rows = tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", [])
    return {
        Mutant(row["module"], row["function"], "", row["before"], row["after"], row.get("nth", 1)).name: row[
            "why"
        ]
        for row in rows
    }


def draw(package: Package, kinds: Sequence[str], sample: int | None, seed: int) -> list[Mutant]:
    """Draw a sample of a package's mutants, or return all of them."""
    mutants = package.mutants(kinds)
    if sample is None or sample >= len(mutants):
        return mutants
    return Random(f"{seed} {package.name}").sample(mutants, sample)


def _key(mutant: Mutant) -> str:
    return f"{hashlib.sha256(file_of(mutant.module).read_bytes()).hexdigest()[:16]} {mutant.name}"


def try_mutants(
    mutants: Sequence[Mutant], tests: Sequence[str], workers: int, *, again: bool
) -> dict[Mutant, str | None]:
    """Try mutants of which nothing is known, or that survived, with files of tests; return what noticed each."""
    known: dict[str, str] = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.is_file() else {}
    noticed: dict[Mutant, str | None] = {mutant: known.get(_key(mutant)) for mutant in mutants}
    untried = [mutant for mutant in mutants if again or noticed[mutant] is None]
    if not untried:
        return noticed
    reached = reach.load(tests)
    plans = [trial.plan(mutant, reached) for mutant in untried]
    failed: set[str] = set()
    with tqdm(total=len(plans), unit="mutant", mininterval=1.0) as bar:
        for plan, by in trial.run(plans, workers):
            assert plan.mutant is not None
            noticed[plan.mutant] = by
            bar.update()
            if by is None:
                bar.write(f"survives: {plan.mutant.name}  (line {plan.mutant.line})", file=sys.stderr)
                continue
            failed |= {by} & {*reached.times_s}
            known[_key(plan.mutant)] = by
            KNOWN.parent.mkdir(parents=True, exist_ok=True)
            KNOWN.with_suffix(".new").write_text(json.dumps(known, indent=0), encoding="utf-8")
            KNOWN.with_suffix(".new").replace(KNOWN)
    check_tests(sorted(failed), reached, workers)
    return noticed


def check_tests(tests: Sequence[str], reached: reach.Reach, workers: int) -> None:
    """Raise an error if a test that noticed a mutant fails without one, too."""
    for _, by in trial.run([trial.Plan(None, tuple(tests), reached.times_s)] if tests else [], workers):
        if by is not None:
            raise SystemExit(f"The tests fail without a change: {by}. Delete {KNOWN}, and mend them first.")


def main() -> int:
    """Try the chosen mutants, and print how many of each package are noticed."""
    every = packages()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="of " + ", ".join(every))
    parser.add_argument("--sample", type=int, default=40, help="mutants of a package (40)")
    parser.add_argument("--all", action="store_true", help="all mutants in place of a sample")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (1)")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--only", default="", help="part of the names of the mutants; implies --all")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--again", action="store_true", help="also those of which it is known")
    parser.add_argument("--list", action="store_true", help="name the mutants and do no more")
    given = parser.parse_args()
    if unknown := [name for name in given.packages if name not in every]:
        parser.error(f"There is no package {unknown[0]!r}; there are {', '.join(every)}.")
    sample = None if given.all or given.only else given.sample
    chosen = {
        name: [
            mutant
            for mutant in draw(every[name], given.kinds, sample, given.seed)
            if given.only in mutant.name
        ]
        for name in given.packages or every
    }
    if given.list:
        print(*(f"{mutant.name}  (line {mutant.line})" for of in chosen.values() for mutant in of), sep="\n")
        return 0
    listed = load_survivors()
    problems: list[str] = []
    for name, mutants in chosen.items():
        begin_s = time.monotonic()
        tests = reach.list_tests(every[name].modules if given.packages else None)
        noticed = try_mutants(mutants, tests, given.workers, again=given.again)
        problems += list_discrepancies(noticed, listed)
        print(summary(name, noticed, listed), flush=True)
        print(f"{name}: {time.monotonic() - begin_s:.0f} s", file=sys.stderr)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


def summary(name: str, noticed: Mapping[Mutant, str | None], listed: Mapping[str, str]) -> str:
    """Return a line that says how many mutants of a package are noticed."""
    survivors = [mutant for mutant, by in noticed.items() if by is None]
    explained = sum(mutant.name in listed for mutant in survivors)
    count = len(noticed) - len(survivors)
    return (
        f"{name}: {count} of {len(noticed)} noticed ({100 * count / max(len(noticed), 1):.0f} %); "
        f"{explained} of the others are no mistakes, {len(survivors) - explained} survive"
    )


def list_discrepancies(noticed: Mapping[Mutant, str | None], listed: Mapping[str, str]) -> list[str]:
    """Return a line for each mutant that survives and is not listed, or is listed and was noticed."""
    return [
        f"is listed as a survivor, and was noticed: {mutant.name} ({by})"
        for mutant, by in noticed.items()
        if by is not None and mutant.name in listed
    ] + [
        f"survives and is not listed: {mutant.name}  ({file_of(mutant.module).relative_to(ROOT)}:{mutant.line})"
        for mutant, by in noticed.items()
        if by is None and mutant.name not in listed
    ]


if __name__ == "__main__":
    sys.exit(main())
