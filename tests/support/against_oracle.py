"""Compare the checker with the oracle on many random histories: ``python tests/support/against_oracle.py 0 100000``.

Prints each difference, and how often each model gave which verdict.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from consistency_oracle import MODELS, meets
from random_histories import seeded

from mudkit.consistency import History, Outcome
from mudkit.consistency.deciding import judge
from mudkit.consistency.models import model_of
from mudkit.consistency.search import Budget


def differences(history: History) -> list[tuple[str, str, bool]]:
    """Give model, verdict and the oracle's answer where they differ; the verdict is not made small here."""
    result = []
    for name in MODELS:
        status = verdict(history, name)
        answer = meets(list(history), name)
        if status != ("OK" if answer else "ILLEGAL"):
            result.append((name, status, answer))
    return result


def verdict(history: History, name: str) -> str:
    return str(judge(history.operations, frozenset({None}), model_of(name), Budget(10.0, 300)).status)


def main(first: int, last: int) -> None:
    began_s, counts, wrong, forks = time.monotonic(), Counter(), 0, 0
    for seed in range(first, last):
        history = seeded(seed)
        if all(each.outcome is Outcome.PENDING for each in history):
            counts["nothing answered"] += 1
            continue
        statuses = {}
        for name in MODELS:
            statuses[name] = verdict(history, name)
            counts[name, statuses[name]] += 1
            answer = meets(list(history), name)
            if statuses[name] != ("OK" if answer else "ILLEGAL"):
                wrong += 1
                print(f"seed {seed}, {name}: {statuses[name]}, the oracle says {answer}")
        forks += statuses["fork-sequential"] != statuses["sequential"]
    print(
        f"{last - first:,} histories, {wrong} differences, {forks:,} forks, {time.monotonic() - began_s:.0f} s"
    )
    for each, count in sorted(counts.items(), key=str):
        print(f"  {count:7,} {each if isinstance(each, str) else ' '.join(each)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
