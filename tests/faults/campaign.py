"""Random fleets, work and faults for MUD tables: ``make faults``.

``python tests/faults/campaign.py --seed 17`` replays one run and prints what it finds; ``--runs 1000 --first 0``
runs many.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tqdm import tqdm

from mudkit.errors import MudkitError
from mudkit.reproduce.campaign_judge import play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.runs)
    began_s, failed, counts = time.monotonic(), 0, Counter()
    for seed in tqdm(seeds, unit="run", disable=len(seeds) == 1, mininterval=1.0):
        try:
            found = play(seed)
            problems = found.problems
            counts.update(found.counts)
        except (
            MudkitError,
            AssertionError,
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            ValueError,
        ) as error:
            if given.seed is not None:
                raise
            problems = [f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"[:600]]
        if problems:
            failed += 1
            print(f"python tests/faults/campaign.py --seed {seed}")
            for each in problems[: None if given.seed is not None else 3]:
                print("   ", each if given.seed is not None else each[:300])
    print(f"{len(seeds):,} runs, {failed} with problems, {time.monotonic() - began_s:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {count:6,} {name}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
