"""A standalone Spark cluster on this machine, for measurements and tests.

PySpark's wheel has no scripts that start a master, so ``bin/spark-class`` starts the daemons. They listen on
free ports of the loopback interface, without authentication: every user of this machine can connect.
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

import psutil

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline.launch.java import find_java, launch_home
from mudkit.pipeline.launch.jvm import spark_home

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LISTENING = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master (spark://\S+)")
_START_S = 90.0
_END_S = 10.0
_POLL_S = 0.05
_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
# Kills these process groups when its input ends without a line, because this Python was killed.
_MOUNT = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
_WATCH = 'folder=$1; shift; read -r _ || { for p in "$@"; do kill -9 "-$p"; done; rm -rf "$folder"; }'


@dataclass(frozen=True)
class Cluster:
    """A running standalone cluster.

    `folder` has the logs (``master.log``, ``worker-0.log``) and the work folders of workers (``worker-0``),
    in which executors run. Each process leads a session of processes that contains its executors.
    """

    url: str
    folder: Path
    master: subprocess.Popen[bytes]
    workers: tuple[subprocess.Popen[bytes], ...]

    def kill_worker(self, number: int) -> None:
        """Kill a worker, not its executors, which notice it themselves."""
        self.workers[number].kill()
        self.workers[number].wait()


@contextlib.contextmanager
def local_cluster(
    workers: int = 2, *, cores: int = 1, memory_mib: int = 1024, private: Path | None = None
) -> Iterator[Cluster]:
    """Run a master and workers while the body runs.

    A worker runs as many tasks at a time as it has cores. Its executors share `memory_mib`; an executor of a
    session takes 1024 by default. In the folder `private` each worker has a file system of its own, as on a
    machine of its own; that takes rights to mount.
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
        url = _wait_for(_LISTENING, started[0], folder / "master.log")
        size = ("--cores", str(cores), "--memory", f"{memory_mib}m")
        for number in range(workers):
            place = folder / f"worker-{number}"
            command = [_WORKER, *host, *size, "--work-dir", str(place), url]
            started.append(_start(folder, place.name, environ, command, private))
        watch = _start_watch(folder, started)
        stack.callback(_dismiss, watch)
        for number, process in enumerate(started[1:]):
            _wait_for(_REGISTERED, process, folder / f"worker-{number}.log")
        yield Cluster(url, folder, started[0], tuple(started[1:]))


def _environ(folder: Path) -> dict[str, str]:
    """Return the environment of the daemons, without settings of sessions and without PYTHONPATH."""
    dropped = ("SPARK_", "PYSPARK_", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    (folder / "conf").mkdir()
    return environ | {
        "JAVA_HOME": str(launch_home(find_java())),
        "SPARK_HOME": str(spark_home(os.environ)),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _OPTIONS,
        "SPARK_LAUNCHER_OPTS": _OPTIONS,
        "TMPDIR": str(folder),
    }


def _start(
    folder: Path, name: str, environ: dict[str, str], command: Sequence[str], private: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a daemon that logs into ``<name>.log``; return its process, which leads a session of its own.

    With `private`, it has a file system of its own at that folder. Raises EnvironmentProblem where it cannot
    be started.
    """
    program = str(Path(environ["SPARK_HOME"]) / "bin" / "spark-class")
    own = [] if private is None else ["unshare", "-m", "sh", "-c", _MOUNT, str(private)]
    try:
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*own, program, *command],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise _problem(f"{program}: {error.strerror or error}") from error


def _wait_for(expected: re.Pattern[str], process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until a daemon's log matches; return the address in it."""
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
    """Return the error, for the caller to raise, of a cluster that did not start."""
    return EnvironmentProblem(
        "The cluster on this machine did not start.",
        found=found,
        expected="a master and its workers, a Java process each",
        remedy="run `mudkit doctor`; it needs bash, and room for a process of 300 MB for each of them",
    )


def _start_watch(folder: Path, started: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process that ends the `started` ones and removes the folder when this process is gone."""
    return subprocess.Popen(
        ["sh", "-c", _WATCH, "sh", folder, *(str(process.pid) for process in started)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(watch: subprocess.Popen[bytes]) -> None:
    """End the watch, which then leaves folder and processes alone, and wait until it has ended.

    A watch that is gone already is fine.
    """
    with contextlib.suppress(OSError):
        watch.communicate(b"done\n", timeout=_END_S)


def members(process: subprocess.Popen[bytes]) -> list[int]:
    """List the processes of a daemon's session: its own, its executors and their Python workers."""
    members = []
    for member in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(member.pid) == process.pid and member.status() != psutil.STATUS_ZOMBIE:
                members.append(member.pid)
    return members


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill the daemons and all that they started."""
    past_s = time.monotonic() + _END_S
    for process in reversed(started):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # PySpark's workers have their own process group. They end by themselves, but not at once.
        while (rest := members(process)) and time.monotonic() < past_s:
            for pid in rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
