"""Two sides in turn, and the ratio of their times."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

RUNS = 5


def compare(
    what: str, ours: Callable[[], object], peer: str, other: Callable[[], object]
) -> dict[str, object]:
    """Run both in turn after one warm-up each."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(RUNS + 1):
        for name, function in (("ours", ours), ("peer", other)):
            started = time.perf_counter()
            function()
            if number:
                times[name].append(time.perf_counter() - started)
    mine, theirs = (statistics.median(times[name]) for name in ("ours", "peer"))
    ratios = [a / b for a, b in zip(times["ours"], times["peer"], strict=True)]
    return {
        "what": what,
        "ours_s": round(mine, 4),
        "peer": peer,
        "peer_s": round(theirs, 4),
        "ratio": round(statistics.median(ratios), 4),
        "low": round(min(ratios), 4),
        "high": round(max(ratios), 4),
        "runs": RUNS,
    }


def python(code: str) -> Callable[[], object]:
    """Run code in a new interpreter."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)
