"""M6: the fault campaign for MUD tables: what it has shown, and which seeded bugs it catches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.processes import PROCESSES
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.verify.campaign.bugs import BUGS, Bug, Catch, hunt
from mudkit.verify.campaign.campaign import MINUTES, SETTLE_HOURS
from mudkit.verify.campaign.cells import Table
from mudkit.verify.campaign.judge import PROMISED
from mudkit.verify.campaign.runs import Runs, play_all

__all__ = ["measure"]

_MANY: Final = 100
"""From so many on, another process is worth its beginning."""


def measure(
    say: Say = say_nothing, *, seeds: Sequence[int] = range(1000), bugs: Sequence[Bug] = BUGS
) -> Measured:
    """Measure row M6.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    seeds : sequence of int
        The seeds of the runs; each is one run.
    bugs : sequence of Bug
        Seeded one after the other, and played with the same seeds until they are caught.
    """
    total = Runs()
    processes = PROCESSES if len(seeds) >= _MANY else 1
    for runs in play_all(seeds, processes):
        total.add(runs)
        say(f"run {total.runs:,} of {len(seeds):,}")
    catches: dict[str, Catch | None] = {}
    for bug in bugs:
        say(f"seeded: {bug.name}")
        catches[bug.name] = hunt(bug, seeds)
    figures = {
        "runs": total.runs,
        "runs in which a promise was broken": len(total.problems),
        "runs in which definition 3 was, by refused writes": len(total.forks),
        "writes": total.writes,
        "changes told to continuous reads": total.notified,
        "transitions by faults that could have happened and have not": len(Table(total.cells).missing()),
    }
    for kind, models in PROMISED.items():
        figures[f"histories that are {models[0]}, {kind} reads"] = total.counts[f"{kind} {models[0]} OK"]
    figures["seeded bugs"] = len(bugs)
    figures["seeded bugs that nothing caught"] = list(catches.values()).count(None)
    for name, catch in catches.items():
        if catch is not None and catch.operations is not None:
            figures[f"operations of the smallest counterexample, {name}"] = catch.operations
    faults = {
        name: total.counts[name]
        for name in ("cut", "killed", "address", "network", "lost", "repeated", "late")
    }
    parameters = {
        "runs": f"{MINUTES[0]} or {MINUTES[1]} virtual minutes, 10 to 60 operations and some for each fault, "
        f"{SETTLE_HOURS} h rest",
        "seeds": f"{min(seeds)} to {max(seeds)}",
        "faults": faults,
    }
    if total.forks:
        (_, words), seed = min((fork, seed) for seed, fork in total.forks.items())
        parameters["smallest counterexample to definition 3"] = f"seed {seed}: {words}"
    parameters |= {
        f"seeded, {name}": "nothing caught it" if catch is None else str(catch)
        for name, catch in catches.items()
    }
    return Measured({name: Figure.of([count]) for name, count in figures.items()}, parameters)
