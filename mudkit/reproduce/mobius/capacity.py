"""M2: the memory of a process that holds a million subscriptions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mudkit.errors import EnvironmentProblem
from mudkit.experiment.matching import READ_PREDICATES, MatchingLoad
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

__all__ = ["hold", "in_subprocess", "measure", "memory_mb"]

_RECORDS = 2000
_CODE = "import sys; from mudkit.reproduce.mobius.capacity import hold; hold(*map(int, sys.argv[1:]))"


def memory_mb() -> tuple[float, float]:
    """Give this process's memory in MB (10⁶ bytes): resident now, and at its peak."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        resident, peak = (int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return resident, peak
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS
    return peak, peak


def hold(subscriptions: int, topics: int, seed: int) -> None:
    """Fill an index, match some records, and print this process's memory as JSON.

    Parameters
    ----------
    subscriptions, topics, seed : int
        As for :class:`~mudkit.experiment.matching.MatchingLoad`.
    """
    before, _ = memory_mb()
    load = MatchingLoad(subscriptions, topics, seed)
    index = load.index()
    records = load.records(_RECORDS)
    matches = sum(map(len, index.match_many(records, load.writers(records))))
    resident, peak = memory_mb()
    answer = {"before": before, "resident": resident, "peak": peak, "held": len(index), "matches": matches}
    print(json.dumps(answer))  # noqa: T201 - this is how the process answers


def measure(
    say: Say = say_nothing,
    *,
    subscriptions: int = 1_000_000,
    topics: Sequence[int] = (1000, 10),
    seeds: Sequence[int] = (1, 2),
) -> Measured:
    """Measure row M2, each time in a process of its own that does nothing else.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    subscriptions : int
        The number of subscriptions that are held.
    topics : sequence of int
        The numbers of topics over which the subscriptions are spread; each is measured with each seed.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    answers = []
    for many in topics:
        for seed in seeds:
            say(f"{subscriptions:,} subscriptions, {many:,} topics, seed {seed}")
            answers.append(in_subprocess("holds the subscriptions", _CODE, subscriptions, many, seed))
    figures = {
        "MB at the peak": Figure.of(each["peak"] for each in answers),
        "MB with all subscriptions": Figure.of(each["resident"] for each in answers),
        "MB before the first": Figure.of(each["before"] for each in answers),
        "bytes a subscription": Figure.of(
            (each["resident"] - each["before"]) * 1e6 / subscriptions for each in answers
        ),
        "subscriptions held": Figure.of(each["held"] for each in answers),
    }
    parameters = {
        "subscriptions": subscriptions,
        "topics": list(topics),
        "seeds": list(seeds),
        "read predicate": READ_PREDICATES["box"],
        "a subscription holds": "name, topic, box, price; its reader's age, loc and user",
        "records matched before the reading": _RECORDS,
    }
    return Measured(figures, parameters)


def in_subprocess(what: str, code: str, *arguments: int) -> dict[str, float]:
    """Run Python code in a process of its own, and give the JSON that it prints.

    Parameters
    ----------
    what : str
        What the process does, for the error.
    code : str
        The Python code that the process runs.
    *arguments : int
        What the code finds in ``sys.argv``.

    Raises
    ------
    EnvironmentProblem
        It ended early, for instance for want of memory.
    """
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentProblem(
            f"The process that {what} ended before it was done.",
            found=(done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1],
            expected="room for a process of 1 GB",
            remedy="free some memory and measure again",
        )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
