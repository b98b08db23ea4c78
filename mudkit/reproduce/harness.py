"""Processes of the measurements: work in a process of its own, peak memory, and load of other programs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import psutil

from mudkit.errors import EnvironmentProblem

_POLL_S: Final = 0.2
_SPARK_VARIABLES: Final = ("SPARK_REMOTE", "MUDKIT_SPARK_MASTER")


def require_peer(package: str, row: str, subject: str) -> None:
    """Raise EnvironmentProblem unless the package that a row compares `subject` with is installed."""
    if importlib.util.find_spec(package) is None:
        raise EnvironmentProblem(
            f"The peer that row {row} compares {subject} with is missing.",
            found=f"no package {package} in this environment",
            expected=f"{package}, which mudkit itself does not need",
            remedy=f"run `make setup` in a checkout, or `pip install {package}`",
        )


class Task(NamedTuple):
    """Description of a process, for the error that is raised when it ends early."""

    name: str
    expected: str = "room for a process of 1 GB"
    remedy: str = "free some memory and measure again"


def answer_of(
    function: Callable[..., Any], *arguments: Any, task: Task, environ: Mapping[str, str] | None = None
) -> Any:
    """Call a module's function in a process of its own; arguments and answer are sent as JSON."""
    code = f"{_imported(function)}; print(json.dumps({function.__name__}(*map(json.loads, sys.argv[1:]))))"
    return json_of(code, *arguments, task=task, environ=environ)


def _imported(function: Callable[..., Any]) -> str:
    """Return the Python code that imports a module's function, and `json` and `sys`."""
    return f"import json, sys; from {function.__module__} import {function.__name__}"


def json_of(code: str, *arguments: Any, task: Task, environ: Mapping[str, str] | None = None) -> Any:
    """Run Python code in a process of its own and return the last line that it prints, parsed as JSON.

    Raises EnvironmentProblem when the process ends early.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *map(json.dumps, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**(environ or {})),
    )
    if done.returncode or not done.stdout.strip():
        raise _ended_early(task, done.stderr, done.returncode)
    return json.loads(done.stdout.strip().splitlines()[-1])


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment with changes, without the variables that choose where Spark runs."""
    return {name: value for name, value in os.environ.items() if name not in _SPARK_VARIABLES} | changes


def _ended_early(task: Task, stderr: str, status: int) -> EnvironmentProblem:
    """Return the error, for the caller to raise, of a process that ended before it answered."""
    # A traceback ends with its last line that is not indented.
    last_line = next((line for line in reversed(stderr.splitlines()) if line[:1].strip()), "")
    return EnvironmentProblem(
        f"The process that {task.name} ended before it was done.",
        found=last_line or f"exit status {status}",
        expected=task.expected,
        remedy=task.remedy,
    )


class JsonServer:
    """A process that runs a module's function, which calls :func:`serve`."""

    def __init__(self, function: Callable[..., None], *arguments: Any, task: Task) -> None:
        self._task = task
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        code = f"{_imported(function)}; {function.__name__}(*map(json.loads, sys.argv[1:]))"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *map(json.dumps, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(),
        )

    def __enter__(self) -> JsonServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.terminate()
        with contextlib.suppress(OSError):
            self._process.communicate()
        self._errors.close()

    def ask(self, request: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        lines = iter(self._process.stdout.readline, "")
        if line := next((line for line in lines if line.startswith("{")), ""):
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = self._process.wait()
        self._errors.seek(0)
        raise _ended_early(self._task, self._errors.read().decode(errors="replace"), status)


def serve(handle: Callable[[Any], dict[str, Any]]) -> None:
    """Answer requests of a :class:`JsonServer`, a line of JSON each, until the input ends."""
    for line in sys.stdin:
        print(json.dumps(handle(json.loads(line))), flush=True)  # noqa: T201 - the answer


def memory_mb() -> tuple[float, float]:
    """Return this process's resident memory and its peak, in MB (10⁶ bytes)."""
    process = psutil.Process()
    return process.memory_info().rss / 1e6, _peak_mb(process)


def _peak_mb(process: psutil.Process) -> float:
    """Return a process's peak memory in MB; where the system keeps none, its memory now.

    psutil has no peak for Linux, and that of getrusage includes the parent's memory at the fork.
    """
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return float(process.memory_info().rss / 1e6)


class PeakMemory:
    """Peak memory of a process and its descendants while the body runs, sampled every 0.2 s."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._peaks: dict[psutil.Process, tuple[str, float]] = {}
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
        """Sample until the body has ended; the thread runs this."""
        while not self._over.wait(_POLL_S):
            self.sample()

    def sample(self) -> None:
        """Record the current peaks."""
        with self._lock, contextlib.suppress(psutil.Error):
            for process in {self._root, *self._peaks, *self._root.children(recursive=True)}:
                with contextlib.suppress(psutil.Error, OSError):
                    mb = max(_peak_mb(process), self._peaks.get(process, ("", 0.0))[1])
                    self._peaks[process] = process.name(), mb

    def mb(self) -> dict[str, float]:
        """Return peaks in MB (10⁶ bytes): of the driver (Python and largest Java), and of Python workers."""
        with self._lock:
            peaks = dict(self._peaks)
        java = [mb for process, (name, mb) in peaks.items() if "java" in name and process != self._root]
        own = peaks.get(self._root, ("", 0.0))[1]
        rest = sum(mb for _, mb in peaks.values()) - own - sum(java)
        return {"driver": own + max(java, default=0.0), "workers": rest}


class BusyCores:
    """Average number of cores that programs other than this one and its descendants use in the body."""

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
    """Return the seconds for which all cores together have been busy since the machine started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_s() -> float:
    """Return the CPU time of this process and of its descendants, those that have ended included."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
