"""Spark's JVM: its configuration, its end with the session or with Python, and Ctrl-C while it works.

PySpark keeps one JVM, one context and one session in attributes of its classes, and has no call that releases
a JVM, dead or alive. Only this module touches those attributes (PySpark is pinned in ``pyproject.toml``).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from py4j.clientserver import ClientServerConnection, JavaClient
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.context import SQLContext

from mudkit.pipeline.executors import package_folder
from mudkit.pipeline.launch.java import Archive, find_java, launch_home, prepare
from mudkit.pipeline.launch.settings import Target, check_variables, memory

_END_S = 10.0
_WRITE_S = 60.0
_LOOK_S = 0.02

_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",  # a JVM that goes on without a thread may wait for it for ever
    "-Xshare:auto",
    "-Xlog:disable",  # no message about an archive that does not fit any more
)
_COLLECTOR = "-XX:+UseSerialGC"

_OF_WORKERS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Environment of Python's workers: the allocators of Arrow give memory back and take it again all the time.

With one arena glibc keeps what was freed, and needs no more memory than Arrow's allocators do.
"""


@dataclass
class Jvm:
    """Configuration, environment, archive, temporary folder and process of a session's JVM.

    A value of None in `environ` removes a variable. `process` is None before the start, and when somebody
    else started the JVM (`spark-submit`).
    """

    config: dict[str, str]
    environ: dict[str, str | None]
    archive: Archive
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_dead(self) -> bool:
        """True if the process is known to have ended."""
        return self.process is not None and self.process.poll() is not None


@dataclass
class _Ending:
    """JVMs that still write their archive after the end of their session."""

    jvms: list[Jvm] = field(default_factory=list)


_ENDING = _Ending()


def temporary_folder() -> Path:
    """Create a new temporary folder; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="mudkit-spark-"))


def spark_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of Spark: the one in the environment, or the one of PySpark."""
    return Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def jvm_config(target: Target, environ: Mapping[str, str], *, archived: bool = True) -> Jvm:
    """Build the configuration of a session's JVM; `archived`: use or write the archive of Spark's classes."""
    check_variables(environ)
    heap = memory(environ)
    java = find_java()
    archived = archived and _has_plain_classes(target, environ)
    archive = prepare(java, spark_home(environ) / "jars") if archived else Archive()
    theirs = target.config.get("spark.driver.extraJavaOptions", "")
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    folder = temporary_folder()
    ours = [
        f"-Djava.io.tmpdir={folder}",
        *_OPTIONS,
        *([] if "GC" in theirs else [_COLLECTOR]),
        f"-XX:ErrorFile={tempfile.gettempdir()}/java_error_%p.log",  # not in the working directory
        f"-Dlog4j2.configurationFile={log}",
        *archive.options,
    ]
    launcher = [*_OPTIONS, _COLLECTOR, *archive.launcher_options]
    config = {
        "spark.app.name": "mudkit",
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": " ".join([*map(_quoted, ours), theirs]).strip(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    changes: dict[str, str | None] = {
        "JAVA_HOME": str(launch_home(java)),
        # Spark's script parts the options at spaces, quoted or not.
        "SPARK_LAUNCHER_OPTS": " ".join(
            [option for option in launcher if not any(map(str.isspace, option))]
            + environ.get("SPARK_LAUNCHER_OPTS", "").split()
        ),
        "PYSPARK_PYTHON": sys.executable if target.local else environ.get("PYSPARK_PYTHON") or sys.executable,
        # A session of another kind may have left these, and both Python and Java would heed them.
        "SPARK_REMOTE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
    }
    if environ.get("PYTHONWARNINGS"):
        # Spark's workers, which take this over, leave files to the garbage collector in their own main.
        changes["PYTHONWARNINGS"] = environ["PYTHONWARNINGS"] + ",ignore::ResourceWarning:__main__"
    if target.loopback:
        changes |= {"SPARK_LOCAL_IP": "127.0.0.1"}
        config |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if target.local:
        paths = [str(package_folder().parent), environ.get("PYTHONPATH", "")]
        changes |= {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        changes |= {name: environ.get(name) or value for name, value in _OF_WORKERS.items()}
        config |= {
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        }
    else:
        config |= {f"spark.executorEnv.{name}": value for name, value in _OF_WORKERS.items()}
    return Jvm(config, changes, archive, folder)


def _has_plain_classes(target: Target, environ: Mapping[str, str]) -> bool:
    """Return whether Spark's class path has its own classes only; an archive fits no other."""
    variables = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_HOME")
    return not any(map(environ.get, variables)) and "spark.driver.extraClassPath" not in target.config


def _quoted(option: str) -> str:
    """Quote an option as Spark's launcher reads them."""
    if not set(option) & set(" \t\"'\\"):
        return option
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextlib.contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change variables of the environment while a JVM starts."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    """Set variables of the environment; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def sigint_kept() -> Iterator[None]:
    """Restore, after the body, the handler of SIGINT that PySpark replaces."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def preloading() -> Iterator[None]:
    """Load pandas and the JVM's Scala reflection on the core that a start of Spark leaves idle.

    The session would load both at the end, in a third of the time of a start. Nothing depends on it.
    """
    started = threading.Event()
    threading.Thread(target=_prepare, args=(started,), daemon=True).start()
    try:
        yield
    finally:
        started.set()


def _prepare(started: threading.Event) -> None:
    """Load what a session will need; return early once ``started`` is set."""
    importlib.import_module("pandas")
    while SparkContext._jvm is None:
        if started.wait(_LOOK_S):
            return
    java: Any = SparkContext._jvm
    with contextlib.suppress(Exception):
        loader = getattr(java, "java.lang.Thread").currentThread().getContextClassLoader()
        getattr(getattr(java, "scala.reflect.runtime.package$"), "MODULE$").universe().runtimeMirror(loader)


def running_process() -> subprocess.Popen[bytes] | None:
    """Return the process of PySpark's JVM; None if PySpark started none."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def register_process(jvm: Jvm) -> None:
    """Record the process of a started JVM, and register its temporary folder for deletion."""
    jvm.process = running_process()
    java: Any = SparkContext._jvm
    with contextlib.suppress(Exception):
        folder = getattr(java, "java.io.File")(str(jvm.folder))
        getattr(java, "org.apache.spark.util.ShutdownHookManager").registerShutdownDeleteDir(folder)


def forget() -> None:
    """Reset PySpark's session, context and JVM without calling them."""
    context: Any = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None
        with contextlib.suppress(Exception):
            context.stop()  # without _jsc it only ends a server in this process
    session_class: Any = SparkSession
    context_class: Any = SparkContext
    sql_class: Any = SQLContext
    session_class._instantiatedSession = None
    session_class._activeSession = None
    sql_class._instantiatedContext = None
    context_class._active_spark_context = None
    context_class._gateway = None
    context_class._jvm = None


def end(jvm: Jvm | None) -> None:
    """End PySpark's JVM in any state, and reset PySpark; None: mudkit did not start it."""
    gateway: Any = SparkContext._gateway
    process = running_process()
    if process is not None and process.poll() is None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    forget()
    if process is not None and process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # the JVM ends at the end of its input
    ending = jvm or Jvm({}, {}, Archive(), temporary_folder())
    ending.process = process
    if ending.archive.written is None or process is None or ending.is_dead:
        _wait_for_end(ending)
    else:
        _ENDING.jvms.append(ending)


def wait_for_archives() -> None:
    """Wait until the JVMs that still write their archive have ended."""
    while _ENDING.jvms:
        _wait_for_end(_ENDING.jvms.pop())


def _wait_for_end(jvm: Jvm) -> None:
    """Wait for a JVM to end, and remove its temporary files."""
    process = jvm.process
    if process is not None:
        try:
            process.wait(_END_S if jvm.archive.written is None else _WRITE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    jvm.archive.settle(good=process is not None and process.returncode == 0)
    shutil.rmtree(jvm.folder, ignore_errors=True)


_ASK_FOR_RESULT = "\ngetResult\n"


class _Interrupted(BaseException):
    """Replacement of a `KeyboardInterrupt` inside py4j, which would log a page about one."""


class _InterruptibleConnection(ClientServerConnection):  # type: ignore[misc]
    """Connection to a JVM that is closed when Python is interrupted while it waits for an answer."""

    def send_command(self, command: str) -> Any:
        """Send a command; after Ctrl-C, close the connection, and raise what py4j does not log."""
        try:
            return super().send_command(command)
        except KeyboardInterrupt:
            self.close()  # a late answer must not be taken for that of the next command
            raise _Interrupted from None


class _InterruptibleClient(JavaClient):  # type: ignore[misc]
    """Client of a JVM that cancels the jobs of Spark when Python is interrupted."""

    context: Any = None  # Java's SparkContext

    def _create_new_connection(self) -> Any:
        """Return a connection that can be interrupted, open, for the present thread."""
        connection = _InterruptibleConnection(
            self.java_parameters, self.python_parameters, self.gateway_property, self
        )
        connection.connect_to_java_server()
        self.set_thread_connection(connection)
        return connection

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """Send a command; after Ctrl-C, cancel the jobs, and raise KeyboardInterrupt."""
        if _ASK_FOR_RESULT in command and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # PySpark was interrupted while reading a result from a socket, and would now wait for the job.
            self._cancel()
            raise KeyboardInterrupt
        try:
            return super().send_command(command, retry, binary)
        except _Interrupted:
            self._cancel()
            raise KeyboardInterrupt from None

    def _cancel(self) -> None:
        """Cancel all jobs of the context, ignoring errors."""
        context, self.context = self.context, None  # because cancelling sends commands, too
        try:
            with contextlib.suppress(Exception):
                if context is not None:
                    context.cancelAllJobs()
        finally:
            self.context = context


def make_interruptible(spark: SparkSession) -> None:
    """Cancel the jobs of a session with its own JVM on a `KeyboardInterrupt`, and keep the JVM.

    Without this, a `KeyboardInterrupt` in a notebook leaves the job running on all cores, and the next action
    hangs. Outside a notebook PySpark's handler of SIGINT uses the connection that is being read, and fails.
    Both print pages of tracebacks. Spark Connect's client needs no such help.
    """
    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    context = spark.sparkContext._jsc.sc()
    open_connection = client.get_thread_connection()
    client.__class__ = _InterruptibleClient
    client.context = context
    if open_connection is not None:
        open_connection.__class__ = _InterruptibleConnection


@contextlib.contextmanager
def suppress_worker_output() -> Iterator[None]:
    """Suppress the output of workers that Java starts meanwhile; Spark's log is not affected.

    PySpark's worker that prepares a query with state prints five lines to its standard output, which Java
    copies to its standard error. Errors of workers are raised as exceptions all the same.

    Where Java runs elsewhere (a Connect server of another machine), nothing reaches this terminal anyway.
    """
    java: Any = SparkContext._jvm
    if java is None:
        yield
        return
    system = java.java.lang.System
    before = system.err
    system.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Java may be gone by now
            system.setErr(before)
