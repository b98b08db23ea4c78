"""Termination of a process and its children as by a power failure."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any


def alive_members(process: subprocess.Popen[Any]) -> dict[int, str]:
    """Return the processes of a session that run, with the names of their programs."""
    alive = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = stat.read_text().rpartition(")")
        except OSError:
            continue
        fields = after.split()
        if int(fields[3]) == process.pid and fields[0] not in "ZX":
            alive[int(stat.parent.name)] = before.partition("(")[2]
    return alive


def kill_members(process: subprocess.Popen[Any], program: str, *, but_leader: bool = False) -> bool:
    """Kill the processes of a session that run a program, such as ``java``; return whether there were any.

    With ``but_leader`` the session's first process stays, such as the worker that started an executor.
    """
    pids = [pid for pid, name in alive_members(process).items() if name == program]
    pids = [pid for pid in pids if not but_leader or pid != process.pid]
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return bool(pids)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all of its session: Java, and Python's workers, which have groups of their own."""
    while alive := alive_members(process):
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.poll()
