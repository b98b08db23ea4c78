"""Runs on several processes: same results, in the same order."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

PROCESSES: Final = min(2, os.cpu_count() or 1)

Map = Callable[..., Iterable[Any]]


@contextmanager
def spread_out(processes: int = PROCESSES, part: int = 10) -> Iterator[Map]:
    """Yield a ``map`` over processes (one: this one), ``part`` items at a time; Ctrl-C cancels the rest."""
    if processes == 1:
        yield map
        return
    # Spawned, not forked, because this process may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            yield lambda function, *items: pool.map(function, *items, chunksize=part)
        finally:
            pool.shutdown(cancel_futures=True)
