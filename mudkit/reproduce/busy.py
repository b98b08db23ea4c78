"""How busy other programs keep the machine while something is measured."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

import psutil

__all__ = ["BusyCores"]


class BusyCores:
    """Average number of cores that programs other than this one and its descendants used in the body."""

    def __enter__(self) -> BusyCores:
        self._before = time.monotonic(), _busy_s(), _own_s()
        self.others = 0.0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall_s, busy_s, own_s = (
            after - before
            for after, before in zip((time.monotonic(), _busy_s(), _own_s()), self._before, strict=True)
        )
        self.others = max(0.0, (busy_s - own_s) / wall_s) if wall_s > 0 else 0.0


def _busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_s() -> float:
    """CPU time of this process, of its living descendants, and of those that have ended."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
