"""Random fleets, work and faults for MUD tables: ``make faults``.

``python tests/faults/campaign.py --seed 17`` replays one run and prints what it finds; ``--runs 1000 --first 0``
runs many, and prints how often each transition occurred with each fault in effect. From 5,000 runs on, a
reachable transition that did not occur is a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tqdm import tqdm

from mudkit.verify.campaign.cells import Table
from mudkit.verify.campaign.faults import COLUMNS
from mudkit.verify.campaign.judge import play
from mudkit.verify.campaign.runs import Runs, play_all

MIN_RUNS = 5000


def replay(seed: int) -> int:
    """Run one seed; an exception propagates."""
    result = play(seed)
    for name, count in sorted(result.counts.items()):
        print(f"  {count:6,} {name}")
    print(*result.problems or ["no problem"], sep="\n")
    return min(len(result.problems), 1)


def run_many(seeds: range, processes: int) -> int:
    """Run many seeds and print the table of transitions."""
    start_s, result = time.monotonic(), Runs()
    with tqdm(total=len(seeds), unit="run", mininterval=1.0) as bar:
        try:
            for runs in play_all(seeds, processes):
                result.add(runs)
                bar.update(runs.runs)
                for seed, problems in runs.problems.items():
                    bar.write(f"python tests/faults/campaign.py --seed {seed}")
                    for problem in problems[:3]:
                        bar.write(f"    {problem[:300]}")
        except KeyboardInterrupt:
            bar.write("stopped")
    table = Table(result.cells)
    print(table)
    for name, count in sorted(result.counts.items()):
        print(f"  {count:9,} {name}")
    missing = table.missing() if result.runs >= MIN_RUNS else []
    never = [fault for fault in COLUMNS if fault != "none" and not result.counts[fault]]
    if result.runs >= MIN_RUNS:
        missing = [cell for cell in missing if cell[1] not in never] + [(fault, "any") for fault in never]
    for row, column in missing:
        print(f"did not occur: {row!r} with {column!r}")
    for row in table.unknown():
        print(f"has no row: {row!r}")
    print(
        f"longest time from the death of a master to the answer to a write: {result.longest_take_over_s:.1f} s"
    )
    print(f"{result.runs:,} runs, {len(result.problems)} with problems, {time.monotonic() - start_s:.0f} s")
    if result.problems:
        print("seeds with problems:", *sorted(result.problems))
    return 1 if result.problems or missing or table.unknown() or result.runs < len(seeds) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this run")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return replay(arguments.seed)
    return run_many(range(arguments.first, arguments.first + arguments.runs), arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
