"""Many runs of the campaign, in one process or several, with the same result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mudkit.processes import spread_out
from mudkit.verify.campaign.judge import play
from mudkit.verify.campaign.observers import Cells

_PART: Final = 10
"""Runs in each task of a process."""


@dataclass
class Runs:
    """Results of a number of runs."""

    runs: int = 0
    problems: dict[int, list[str]] = field(default_factory=dict)
    """Problems by seed, of the runs that had some."""
    counts: Counter[str] = field(default_factory=Counter)
    """Occurrences of faults, and of verdicts of the checker."""
    cells: Cells = field(default_factory=Counter)
    forks: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By seed of each run that is not fork-sequential by the letter: contradicting operations, and which."""
    writes: int = 0
    notified: int = 0
    """Changes of which continuous reads were notified."""
    longest_take_over_s: float = 0.0
    """Longest time from the death of a master to the answer to a write that was made then."""

    def add(self, other: Runs) -> None:
        """Add the results of other runs to these."""
        self.runs += other.runs
        self.problems |= other.problems
        self.counts.update(other.counts)
        self.cells.update(other.cells)
        self.forks |= other.forks
        self.writes += other.writes
        self.notified += other.notified
        self.longest_take_over_s = max(self.longest_take_over_s, other.longest_take_over_s)


def play_some(seeds: Sequence[int]) -> Runs:
    """Run and judge some seeds in turn; return their total. An exception is a problem of its run."""
    total = Runs()
    for seed in seeds:
        try:
            one_run = play(seed)
        except Exception as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            total.add(Runs(1, {seed: [f"{type(error).__name__}: {error} {notes}"[:2000]]}))
            continue
        campaign, fork = one_run.campaign, one_run.counterexample
        total.add(
            Runs(
                1,
                {seed: one_run.problems} if one_run.problems else {},
                one_run.counts,
                campaign.cells,
                {} if fork is None else {seed: fork},
                len(campaign.work.writes),
                sum(len(watch.notified) for watch in campaign.work.watches),
                max(campaign.standby_faults.take_overs_s, default=0.0),
            )
        )
    return total


def play_all(seeds: Sequence[int], processes: int = 1) -> Iterator[Runs]:
    """Run and judge seeds in a number of processes; yield the results of each part."""
    parts = [seeds[first : first + _PART] for first in range(0, len(seeds), _PART)]
    if processes == 1:
        yield from map(play_some, parts)
        return
    with spread_out(processes, part=1) as over_processes:
        yield from over_processes(play_some, parts)
