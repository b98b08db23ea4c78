"""A virtual day of 10,000 phones for each system: `python tests/bench/scoreboard_day.py [SYSTEM ...]`.

The task is "news with ranks" with 50 articles a day; Contrail polls every five minutes. Each system runs in a
separate process; the target is at most ten minutes and 4 GB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from mudkit.experiment import ADAPTERS, NEWS, run
from mudkit.sources.workloads import Poisson

PHONES, ARTICLES = 10_000, 50
TARGET_S, TARGET_GB = 600.0, 4.0


def measure_rows() -> Iterator[dict[str, object]]:
    """Measure the systems in turn; the peer is the target."""
    for system in list(ADAPTERS)[1:]:
        result = subprocess.run(
            [sys.executable, __file__, system], check=True, capture_output=True, text=True
        ).stdout
        answer = json.loads(result.splitlines()[-1])
        yield {
            "what": f"{system}: {PHONES:,} phones, a day, {answer['peak_gb']:.2f} GB",
            "ours_s": answer["s"],
            "peer": f"asked: {TARGET_S:g} s, {TARGET_GB:g} GB",
            "peer_s": TARGET_S,
            "ratio": answer["s"] / TARGET_S,
            **answer,
        }


def measure(system: str) -> dict[str, object]:
    """Run one system in this process."""
    start_s = time.perf_counter()
    task = NEWS.over(devices=PHONES, items=Poisson(per_day=ARTICLES))
    entry = run(task, ADAPTERS[system], seed=1, record_messages=False, record_exposure=False)
    result = entry.measures()
    return {
        "system": system,
        "s": time.perf_counter() - start_s,
        "cpu_s": time.process_time(),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "events": entry.lab.world.handled,
        "wanted": entry.testbed.wanted_count,
        "useful": result["useful"],
    }


if __name__ == "__main__":
    systems = sys.argv[1:] or list(ADAPTERS)[1:]
    if unknown := [name for name in systems if name not in ADAPTERS]:
        sys.exit(f"no such system: {', '.join(unknown)}; there are {', '.join(map(repr, ADAPTERS))}")
    for name in systems:
        print(json.dumps(measure(name)), flush=True)
