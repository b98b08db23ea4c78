"""Timing of two functions in turn, with the ratio of their times."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

RUNS = 5


def compare(
    label: str,
    run_ours: Callable[[], object],
    peer: str,
    run_peer: Callable[[], object],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, object]:
    """Run both in turn after one warm-up each; ``clock`` returns seconds."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(RUNS + 1):
        for name, function in (("ours", run_ours), ("peer", run_peer)):
            start_s = clock()
            function()
            if number:
                times[name].append(clock() - start_s)
    ours_s, peer_s = (statistics.median(times[name]) for name in ("ours", "peer"))
    ratios = [a / b for a, b in zip(times["ours"], times["peer"], strict=True)]
    return {
        "what": label,
        "ours_s": round(ours_s, 4),
        "peer": peer,
        "peer_s": round(peer_s, 4),
        "ratio": round(statistics.median(ratios), 4),
        "low": round(min(ratios), 4),
        "high": round(max(ratios), 4),
        "runs": RUNS,
    }


def python(code: str) -> Callable[[], object]:
    """Run code in a new interpreter."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)
