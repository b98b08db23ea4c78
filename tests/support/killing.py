"""Termination of a process and its children as by a power failure."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and all of its session: Java, and Python's workers, which have groups of their own."""
    while True:
        alive = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == process.pid and fields[0] not in "ZX":
                alive.append(int(stat.parent.name))
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not alive:
            return
        process.poll()
