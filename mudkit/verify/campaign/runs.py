"""Many runs of the campaign, in one process or several: what comes of them is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mudkit.processes import spread_out
from mudkit.verify.campaign.judge import play
from mudkit.verify.campaign.table import Cells

__all__ = ["Runs", "play_all", "play_some"]

_PART: Final = 10
"""Runs that a process is given at a time."""


@dataclass
class Runs:
    """What some runs have shown.

    Parameters
    ----------
    runs : int
    problems : dict of int to list of str
        The problems by seed, of those that had some.
    counts : Counter
        Faults, and verdicts of the checker.
    cells : Cells
    forks : dict of int to (int, str)
        The runs by seed that were not fork-sequential to the letter: how many operations contradict it, and
        which.
    writes, notified : int
        How many writes there were, and how many changes continuous reads were notified of.
    """

    runs: int = 0
    problems: dict[int, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    cells: Cells = field(default_factory=Counter)
    forks: dict[int, tuple[int, str]] = field(default_factory=dict)
    writes: int = 0
    notified: int = 0

    def add(self, other: Runs) -> None:
        """Count others in."""
        self.runs += other.runs
        self.problems |= other.problems
        self.counts.update(other.counts)
        self.cells.update(other.cells)
        self.forks |= other.forks
        self.writes += other.writes
        self.notified += other.notified


def play_some(seeds: Sequence[int]) -> Runs:
    """Let runs happen one after the other; an error in one is a problem of it."""
    all_ = Runs()
    for seed in seeds:
        try:
            one_run = play(seed)
        except Exception as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            all_.add(Runs(1, {seed: [f"{type(error).__name__}: {error} {notes}"[:2000]]}))
            continue
        campaign, fork = one_run.campaign, one_run.counterexample
        all_.add(
            Runs(
                1,
                {seed: one_run.problems} if one_run.problems else {},
                one_run.counts,
                campaign.cells,
                {} if fork is None else {seed: fork},
                len(campaign.work.writes),
                sum(len(watch.notified) for watch in campaign.work.watches),
            )
        )
    return all_


def play_all(seeds: Sequence[int], processes: int = 1) -> Iterator[Runs]:
    """Let many runs happen, and give what has come of some at a time.

    Parameters
    ----------
    seeds : sequence of int
    processes : int
        The number of processes that share them.
    """
    parts = [seeds[first : first + _PART] for first in range(0, len(seeds), _PART)]
    if processes == 1:
        yield from map(play_some, parts)
        return
    with spread_out(processes, part=1) as over_processes:
        yield from over_processes(play_some, parts)
