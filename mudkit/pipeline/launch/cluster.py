"""A standalone cluster on this machine, for trying out and measuring what runs on one.

PySpark's wheel has all of Spark's classes but no scripts that start a master, so ``bin/spark-class`` does it.
Everything is on the loopback interface, at ports that are free, and without authentication: whoever is on
this machine can use it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline.launch.java import find_java, launch_home

__all__ = ["Cluster", "local_cluster", "members"]

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LISTENS = re.compile(r"Starting Spark master at (spark://\S+)")
_BELONGS = re.compile(r"Successfully registered with master (spark://\S+)")
_START_S = 90.0
_END_S = 10.0
_POLL_S = 0.05
_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
# Ends the groups of processes that it is told of when its input ends without a word: this Python was killed.
_WATCH = 'folder=$1; shift; read -r _ || { for p in "$@"; do kill -9 "-$p"; done; rm -rf "$folder"; }'


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster that runs.

    Parameters
    ----------
    url : str
        Its master, for ``pipeline.session(master=...)`` or ``MUDKIT_SPARK_MASTER``.
    folder : Path
        Holds the logs (``master.log``, ``worker-0.log``) and each worker's folder of work (``worker-0``), in
        which executors run; it goes with the cluster.
    master : Popen
    workers : tuple of Popen
        Each the leader of a session of processes, in which its executors are.
    """

    url: str
    folder: Path
    master: subprocess.Popen[bytes]
    workers: tuple[subprocess.Popen[bytes], ...]

    def kill_worker(self, number: int) -> None:
        """Kill a worker, not its executors: they notice it themselves.

        Parameters
        ----------
        number : int
            The number of the worker, from 0.
        """
        self.workers[number].kill()
        self.workers[number].wait()


@contextlib.contextmanager
def local_cluster(workers: int = 2, *, cores: int = 1, memory_mib: int = 1024) -> Iterator[Cluster]:
    """Run a master and workers on the loopback interface for as long as the body does.

    Parameters
    ----------
    workers : int
    cores : int
        The cores of each worker: it runs as many tasks at a time.
    memory_mib : int
        The memory of each worker's executors, in MiB; an executor of a session takes 1024 by default.

    Yields
    ------
    Cluster

    Raises
    ------
    ParameterError
        There would be no worker, or one without cores or memory.
    EnvironmentProblem
        There is no Java, or the cluster does not start.
    """
    if min(workers, cores) < 1 or memory_mib < 512:
        raise ParameterError(
            "Such a cluster could not work.",
            where="workers, cores, memory_mib",
            found=f"{workers}, {cores}, {memory_mib}",
            expected="at least 1, 1 and 512",
        )
    folder = Path(tempfile.mkdtemp(prefix="mudkit-cluster-"))
    started: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_end, started)
        stack.callback(_end, started)
        environ = _environ(folder)
        host = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        started.append(_start(folder, "master", environ, [_MASTER, *host]))
        url = _said(started[0], folder / "master.log", _LISTENS)
        size = ("--cores", str(cores), "--memory", f"{memory_mib}m")
        for number in range(workers):
            place = folder / f"worker-{number}"
            command = [_WORKER, *host, *size, "--work-dir", str(place), url]
            started.append(_start(folder, place.name, environ, command))
        watch = _watched(folder, started)
        stack.callback(_dismiss, watch)
        for number, process in enumerate(started[1:]):
            _said(process, folder / f"worker-{number}.log", _BELONGS)
        yield Cluster(url, folder, started[0], tuple(started[1:]))


def _environ(folder: Path) -> dict[str, str]:
    """Environment of the daemons: no setting of a session reaches them, nor a path of Python's."""
    dropped = ("SPARK_", "PYSPARK_", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    (folder / "conf").mkdir()
    return environ | {
        "JAVA_HOME": str(launch_home(find_java())),
        "SPARK_HOME": os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _OPTIONS,
        "SPARK_LAUNCHER_OPTS": _OPTIONS,
        "TMPDIR": str(folder),
    }


def _start(
    folder: Path, name: str, environ: dict[str, str], command: Sequence[str]
) -> subprocess.Popen[bytes]:
    program = Path(environ["SPARK_HOME"]) / "bin" / "spark-class"
    try:
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [program, *command],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise _problem(f"{program}: {error.strerror or error}") from error


def _said(process: subprocess.Popen[bytes], log: Path, expected: re.Pattern[str]) -> str:
    """Wait until a daemon's log says what is expected; return the address in it."""
    past_s = time.monotonic() + _START_S
    while True:
        over = process.poll() is not None or time.monotonic() > past_s
        text = log.read_text(errors="replace")
        if match := expected.search(text):
            return match[1]
        if over:
            lines = [line for line in text.splitlines() if line.strip()]
            status = process.returncode
            fate = f"no answer within {_START_S:g} s" if status is None else f"ended with status {status}"
            raise _problem(f"{log.stem}: {fate}; {lines[-1][:300] if lines else 'it said nothing'}")
        time.sleep(_POLL_S)


def _problem(found: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        "The cluster on this machine did not start.",
        found=found,
        expected="a master and its workers, a Java process each",
        remedy="run `mudkit doctor`; it needs bash, and room for a process of 300 MB for each of them",
    )


def _watched(folder: Path, started: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", _WATCH, "sh", folder, *(str(process.pid) for process in started)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(watch: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        watch.communicate(b"done\n", timeout=_END_S)


def members(process: subprocess.Popen[bytes]) -> list[int]:
    """List the processes of a daemon's session: its own, its executors', their Pythons' (Linux only)."""
    members = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid and fields[0] != "Z":
                members.append(int(place.name))
    return members


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill the daemons and all that they started; nothing of theirs is worth a farewell."""
    past_s = time.monotonic() + _END_S
    for process in reversed(started):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # PySpark's workers have a group of their own. They end by themselves, but not at once.
        while (rest := members(process)) and time.monotonic() < past_s:
            for pid in rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
