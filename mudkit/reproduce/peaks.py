"""Measure the peak memory of processes while something runs."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["PeakMemory"]

_POLL_S: Final = 0.2


class PeakMemory:
    """The most memory that this process and its descendants had while the body ran.

    Where there is no ``/proc`` it is what they had at moments 0.2 s apart.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._peaks: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        """Look once more."""
        with self._lock:
            family = {self._root, *self._peaks}
            for pid, parent, name, mb in sorted(_processes()):
                if pid in family or parent in family:
                    family.add(pid)
                    self._peaks[pid] = (name, max(mb, self._peaks.get(pid, ("", 0.0))[1]))

    def mb(self) -> dict[str, float]:
        """Give MB (10⁶ bytes): of the driver, its Python and its largest Java, and of Python's workers."""
        with self._lock:
            peaks = dict(self._peaks)
        java = [mb for pid, (name, mb) in peaks.items() if "java" in name and pid != self._root]
        own = peaks.get(self._root, ("", 0.0))[1]
        rest = sum(mb for _, mb in peaks.values()) - own - sum(java)
        return {"driver": own + max(java, default=0.0), "workers": rest}


def _processes() -> list[tuple[int, int, str, float]]:
    """List all processes: number, parent, name, memory at its peak in MB."""
    if not Path("/proc/self/status").exists():
        command = ["ps", "-axo", "pid=,ppid=,rss=,comm="]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = [line.split(None, 3) for line in said.stdout.splitlines()]
        return [(int(pid), int(parent), name, int(kb) * 1024 / 1e6) for pid, parent, kb, name in rows]
    processes = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):
            lines = (place / "status").read_text().splitlines()
            said_of = dict(line.split(":", 1) for line in lines if ":" in line)
            mb = int(said_of["VmHWM"].split()[0]) * 1024 / 1e6
            processes.append((int(place.name), int(said_of["PPid"]), said_of["Name"].strip(), mb))
    return processes
