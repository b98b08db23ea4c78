"""Compare the checker with the oracle on many random histories: ``python tests/support/against_oracle.py 0 100000``.

Prints each difference, and how often each model gave which verdict.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from consistency_oracle import MODELS, satisfies
from random_histories import draw_seeded_history

from mudkit.consistency import History, Outcome
from mudkit.consistency.deciding import judge
from mudkit.consistency.models import model_of
from mudkit.consistency.search import Budget


def list_differences(history: History) -> list[tuple[str, str, bool]]:
    """Return (model, verdict, answer of the oracle) for each difference; counterexamples are not minimised."""
    result = []
    for name in MODELS:
        status = verdict(history, name)
        answer = satisfies(list(history), name)
        if status != ("OK" if answer else "ILLEGAL"):
            result.append((name, status, answer))
    return result


def verdict(history: History, name: str) -> str:
    return str(judge(history.operations, frozenset({None}), model_of(name), Budget(10.0, 300)).status)


def main(first: int, last: int) -> None:
    start_s, counts, difference_count, fork_count = time.monotonic(), Counter(), 0, 0
    for seed in range(first, last):
        history = draw_seeded_history(seed)
        if all(operation.outcome is Outcome.PENDING for operation in history):
            counts["nothing answered"] += 1
            continue
        statuses = {}
        for name in MODELS:
            statuses[name] = verdict(history, name)
            counts[name, statuses[name]] += 1
            answer = satisfies(list(history), name)
            if statuses[name] != ("OK" if answer else "ILLEGAL"):
                difference_count += 1
                print(f"seed {seed}, {name}: {statuses[name]}, the oracle says {answer}")
        fork_count += statuses["fork-sequential"] != statuses["sequential"]
    print(
        f"{last - first:,} histories, {difference_count} differences, {fork_count:,} forks, {time.monotonic() - start_s:.0f} s"
    )
    for key, count in sorted(counts.items(), key=str):
        print(f"  {count:7,} {key if isinstance(key, str) else ' '.join(key)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
