"""Forked processes ("lives") to be killed with SIGKILL, each started in milliseconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

# One process loads the package, and forks a life for each order that it reads, which takes milliseconds. Lives
# report through a pipe that holds few lines, so that a life that does not wait is never far ahead.
NURSERY = """
    import json, os, signal, sys

    def say(*what):
        os.write(1, (json.dumps(what) + "\\n").encode())
        if order["wait"]:
            os.read(0, 1)

    {life}

    for line in iter(lambda: b"".join(iter(lambda: os.read(0, 1), b"\\n")), b""):
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.write(1, (json.dumps(["born", os.getpid()]) + "\\n").encode())
            try:
                live(order)
            finally:
                os._exit(0)
        status = os.waitpid(pid, 0)[1]
        os.write(1, (json.dumps(["dead", os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0]) + "\\n").encode())
    """


class Nursery:
    """Lives of one kind that run one after the other."""

    def __init__(self, life: str) -> None:
        code = textwrap.dedent(NURSERY).replace("{life}", textwrap.dedent(life))
        reading, writing = os.pipe()
        if sys.platform == "linux":
            import fcntl

            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=writing, bufsize=0
        )
        os.close(writing)
        self._lines = os.fdopen(reading, "rb")

    def live(
        self, kill_after: int | None, wait: bool, *, at: str | None = None, **order: Any
    ) -> list[list[Any]]:
        """Run one life until it ends or is killed after a number of reports; return its reports.

        With ``at``, it is killed at the next crash point of this name after that number.
        """
        self._write(json.dumps({"wait": wait, **order}).encode() + b"\n")
        pid, reports, is_killed = self._read()[1], [], False
        while (line := self._read())[0] != "dead":
            reports.append(line)
            is_at_point = at is None or (line[0] == "point" and line[-1] == at)
            if not is_killed and kill_after is not None and len(reports) >= kill_after and is_at_point:
                os.kill(pid, signal.SIGKILL)
                is_killed = True
            elif wait and not is_killed:
                self._write(b".")
        assert line[1] == (0 if kill_after is None else signal.SIGKILL), "it was not killed: it ended before"
        return reports

    def _read(self) -> list[Any]:
        line = self._lines.readline()
        assert line, "the nursery has ended"
        result: list[Any] = json.loads(line)
        return result

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._lines.close()
        self.process.kill()
        self.process.wait()
