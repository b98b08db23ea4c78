"""Several processes that share runs: what comes of them is the same, and in the same order."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["PROCESSES", "spread_out"]

PROCESSES: Final = min(2, os.cpu_count() or 1)

Map = Callable[..., Iterable[Any]]


@contextmanager
def spread_out(processes: int = PROCESSES, part: int = 10) -> Iterator[Map]:
    """Yield a ``map`` over processes; Ctrl-C cancels what has not started.

    What it maps over is taken at once, so making an item and working on those before it go side by side.

    Parameters
    ----------
    processes : int
        The number of processes; with one, all is done in this process.
    part : int
        The number of items that a process is given at a time.
    """
    if processes == 1:
        yield map
        return
    # Spawned, not forked: who asks may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield lambda function, *items: pool.map(function, *items, chunksize=part)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
