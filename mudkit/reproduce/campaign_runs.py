"""Many runs of the campaign, in one process or several: what comes of them is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mudkit.reproduce.campaign import MINUTES, SETTLE_HOURS
from mudkit.reproduce.campaign_bugs import BUGS, Bug, Catch, hunt
from mudkit.reproduce.campaign_cells import Table
from mudkit.reproduce.campaign_judge import PROMISED, play
from mudkit.reproduce.campaign_table import Cells
from mudkit.reproduce.processes import PROCESSES, spread_out
from mudkit.reproduce.row import Figure, Measured, Say, nothing_said

__all__ = ["Runs", "measure", "play_all", "play_some"]

_PART: Final = 10
"""Runs that a process is given at a time."""
_MANY: Final = 100
"""From so many on, another process is worth its beginning."""


@dataclass
class Runs:
    """What some runs have shown.

    Parameters
    ----------
    runs : int
    problems : dict of int to list of str
        By seed, those that had some.
    counts : Counter
        Faults, and verdicts of the checker.
    cells : Cells
    forks : dict of int to (int, str)
        By seed, runs that were not fork-sequential to the letter: how many operations contradict it,
        and which.
    writes, told : int
        Writes, and changes told to continuous reads.
    """

    runs: int = 0
    problems: dict[int, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    cells: Cells = field(default_factory=Counter)
    forks: dict[int, tuple[int, str]] = field(default_factory=dict)
    writes: int = 0
    told: int = 0

    def add(self, other: Runs) -> None:
        """Count others in."""
        self.runs += other.runs
        self.problems |= other.problems
        self.counts.update(other.counts)
        self.cells.update(other.cells)
        self.forks |= other.forks
        self.writes += other.writes
        self.told += other.told


def play_some(seeds: Sequence[int]) -> Runs:
    """Let runs happen one after the other; an error in one is a problem of it."""
    all_ = Runs()
    for seed in seeds:
        try:
            found = play(seed)
        except Exception as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            all_.add(Runs(1, {seed: [f"{type(error).__name__}: {error} {notes}"[:2000]]}))
            continue
        campaign, fork = found.campaign, found.counterexample
        all_.add(Runs(
            1, {seed: found.problems} if found.problems else {}, found.counts, campaign.cells,
            {} if fork is None else {seed: fork}, len(campaign.work.writes),
            sum(len(watch.told) for watch in campaign.work.watches),
        ))  # fmt: skip
    return all_


def play_all(seeds: Sequence[int], processes: int = 1) -> Iterator[Runs]:
    """Let many runs happen, and give what has come of some at a time.

    Parameters
    ----------
    seeds : sequence of int
    processes : int
        That share them.
    """
    parts = [seeds[first : first + _PART] for first in range(0, len(seeds), _PART)]
    if processes == 1:
        yield from map(play_some, parts)
        return
    with spread_out(processes, part=1) as over_processes:
        yield from over_processes(play_some, parts)


def measure(
    say: Say = nothing_said, *, seeds: Sequence[int] = range(1000), bugs: Sequence[Bug] = BUGS
) -> Measured:
    """Measure row M6.

    Parameters
    ----------
    say : callable
        Told what is being measured.
    seeds : sequence of int
        A run each.
    bugs : sequence of Bug
        Seeded one after the other, and played with the same seeds until they are caught.
    """
    found = Runs()
    processes = PROCESSES if len(seeds) >= _MANY else 1
    for runs in play_all(seeds, processes):
        found.add(runs)
        say(f"run {found.runs:,} of {len(seeds):,}")
    catches: dict[str, Catch | None] = {}
    for bug in bugs:
        say(f"seeded: {bug.name}")
        catches[bug.name] = hunt(bug, seeds)
    figures = {
        "runs": found.runs,
        "runs in which a promise was broken": len(found.problems),
        "runs in which definition 3 was, by refused writes": len(found.forks),
        "writes": found.writes,
        "changes told to continuous reads": found.told,
        "transitions by faults that could have happened and have not": len(Table(found.cells).missing()),
    }
    for kind, models in PROMISED.items():
        figures[f"histories that are {models[0]}, {kind} reads"] = found.counts[f"{kind} {models[0]} OK"]
    figures["seeded bugs"] = len(bugs)
    figures["seeded bugs that nothing caught"] = list(catches.values()).count(None)
    for name, catch in catches.items():
        if catch is not None and catch.operations is not None:
            figures[f"operations of the smallest counterexample, {name}"] = catch.operations
    faults = {
        name: found.counts[name]
        for name in ("cut", "killed", "address", "network", "lost", "repeated", "late")
    }
    parameters = {
        "runs": f"{MINUTES[0]} or {MINUTES[1]} virtual minutes, 10 to 60 operations and some for each fault, "
        f"{SETTLE_HOURS} h rest",
        "seeds": f"{min(seeds)} to {max(seeds)}", "faults": faults,
    }  # fmt: skip
    if found.forks:
        (_, words), seed = min((fork, seed) for seed, fork in found.forks.items())
        parameters["smallest counterexample to definition 3"] = f"seed {seed}: {words}"
    parameters |= {f"seeded, {name}": "nothing caught it" if catch is None else str(catch)
                   for name, catch in catches.items()}  # fmt: skip
    return Measured({name: Figure.of([count]) for name, count in figures.items()}, parameters)
