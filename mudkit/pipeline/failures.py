"""Ends of a job that its input does not cause: Java, a worker, memory, or the scratch disk fails."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from py4j.protocol import Py4JNetworkError

from mudkit.errors import EnvironmentProblem, MudkitError

_OUT_OF_MEMORY_EXIT = 3
"""Exit code of Java with ``-XX:+ExitOnOutOfMemoryError``."""
_NO_PACKAGE = re.compile(r"ModuleNotFoundError: No module named [^\n]*|\[PACKAGE_NOT_INSTALLED\][^\n]*")
_END_S = 10.0
_AGAIN = "call pipeline.session() again: a job that was stopped goes on from its finished parts"
_MORE_MEMORY = "give it more memory, as MUDKIT_SPARK_MEMORY=4g or config={'spark.driver.memory': '4g'}"


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raise EnvironmentProblem for an error of Spark in the body for want of memory, disk or a process."""
    try:
        yield
    except MudkitError:
        raise
    except Exception as error:
        problem = _ended(error) or _explain(str(error))
        if problem is None:
            raise
        raise problem from error


def _ended(error: Exception) -> EnvironmentProblem | None:
    """Return the problem if this session's Java has ended, or the connection to it is cut; else None."""
    # Imported late: this module stands below the session's start.
    from mudkit.pipeline.launch.jvm import running_process

    process, is_cut = running_process(), isinstance(error, ConnectionError | Py4JNetworkError)
    if process is None:
        return _cut(error) if is_cut else None
    with contextlib.suppress(subprocess.TimeoutExpired):  # its sockets are closed a moment before its end
        process.wait(_END_S if is_cut else 0)
    code = process.poll()
    if code is None:
        return _cut(error) if is_cut else None
    if code == _OUT_OF_MEMORY_EXIT:
        cause, remedy = f"its memory was full (exit code {code})", f"{_MORE_MEMORY}; then {_AGAIN}"
    else:
        cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        remedy = f"if the system lacked memory, close other programs or give Java less; {_AGAIN}"
    return EnvironmentProblem(
        "Spark's Java ended while a job ran.",
        where=f"process {process.pid}",
        found=cause,
        expected="a process that lives as long as the session",
        remedy=remedy,
    )


def _cut(error: Exception) -> EnvironmentProblem:
    """Return the problem of a lost connection to Java."""
    return EnvironmentProblem(
        "The connection to Java, in which Spark runs, is cut.",
        where="the session",
        found=str(error) or type(error).__name__,
        expected="a Java that answers as long as the session lives",
        remedy=f"see what ended it; {_AGAIN}",
    )


def _explain(text: str) -> EnvironmentProblem | None:
    """Return the problem that the text of an error of Spark tells of; None for another error."""
    if "OutOfMemoryError" in text:
        return EnvironmentProblem(
            "Spark's memory was full.",
            where="Java of the driver or of an executor",
            found=_line_of(text, "OutOfMemoryError"),
            expected="room for the tasks that run at one time",
            remedy=f"{_MORE_MEMORY}, on a cluster spark.executor.memory; {_AGAIN}",
        )
    if "No space left on device" in text and "Errno 28" not in text:  # Python's tasks name the output
        folder = tempfile.gettempdir()
        free_mb = shutil.disk_usage(folder).free / 1e6
        return EnvironmentProblem(
            "The scratch disk of Spark is full.",
            where=f"spark.local.dir of the machine that failed, here below {folder}",
            found=f"{_line_of(text, 'No space left')}; {free_mb:,.0f} MB are free here",
            expected="room for what is sorted and exchanged: about the size of the trace",
            remedy="free some space, or name a larger disk before the session starts: TMPDIR, on a cluster "
            f"SPARK_LOCAL_DIRS; {_AGAIN}",
        )
    if package := _NO_PACKAGE.search(text):
        from mudkit.pipeline.executors import EXECUTORS_NEED  # imported late, as in _ended

        return EnvironmentProblem(
            "The Python of Spark's workers lacks a package.",
            where="a task",
            found=package[0][:200],
            expected=f"a Python with {', '.join(EXECUTORS_NEED)}",
            remedy="install them for the workers' Python, or name another one before the session starts: "
            f"PYSPARK_PYTHON={sys.executable}",
        )
    if "Python worker exited unexpectedly" in text or "Python worker failed" in text:
        return EnvironmentProblem(
            "A Python worker of Spark ended while it worked.",
            where="a task",
            found=_line_of(text, "Python worker"),
            expected="a process that lives as long as its task",
            remedy="if the system lacked memory, use fewer tasks at one time (master='local[1]') or a larger "
            f"machine; {_AGAIN}",
        )
    return None


def _line_of(text: str, sign: str) -> str:
    """Return the line with a sign, without what stands before its last error's name."""
    line = next(line for line in text.splitlines() if sign in line).strip()
    return re.sub(r"^.*?((?:[\w.]+\.)?\w*(Error|Exception): )", r"\1", line)[-200:]
