"""The JVM that Spark runs in: started for a session, and ended with it or with Python.

PySpark keeps one JVM, one context and one session in attributes of its classes, and has no call that gives a
JVM up, dead or alive. This module is where mudkit touches those attributes (PySpark is pinned in
``pyproject.toml``).
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
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.context import SQLContext

from mudkit.pipeline.launch.archive import Archive, prepare
from mudkit.pipeline.launch.java import find_java, launch_home
from mudkit.pipeline.launch.settings import Wanted, memory
from mudkit.pipeline.launch.shipping import package_folder

__all__ = [
    "Jvm",
    "end",
    "environment",
    "forget",
    "jvm_config",
    "meanwhile",
    "running_process",
    "see_out",
    "sigint_kept",
    "spark_home",
    "start_room",
    "started",
]

_END_S = 10.0
_WRITE_S = 60.0
_LOOK_S = 0.02

_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xlog:disable",  # an archive that does not fit any more is no news
)
_COLLECTOR = "-XX:+UseSerialGC"


@dataclass
class Jvm:
    """What a session needs of its JVM, before it starts and until it ended.

    Parameters
    ----------
    config : dict of str to str
        Spark's configuration, without the caller's.
    environ : dict of str to str or None
        Variables of the environment to start it in; None removes one.
    archive : Archive
        The archive of Java's classes.
    folder : Path
        The folder for everything temporary; it goes with the JVM.
    process : Popen or None
        None before the start, and when somebody else started the JVM (`spark-submit`).
    """

    config: dict[str, str]
    environ: dict[str, str | None]
    archive: Archive
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def dead(self) -> bool:
        """Whether the process is known to have ended."""
        return self.process is not None and self.process.poll() is not None


@dataclass
class _Leaving:
    """JVMs that still write their archive while the session that they served is gone."""

    jvms: list[Jvm] = field(default_factory=list)


_LEAVING = _Leaving()


def start_room() -> Path:
    """Make the folder for what is temporary."""
    return Path(tempfile.mkdtemp(prefix="mudkit-spark-"))


def spark_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of Spark: the one in the environment, or the one of PySpark."""
    return Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def jvm_config(wanted: Wanted, environ: Mapping[str, str], *, archived: bool = True) -> Jvm:
    """Put together how the JVM of a session is to be started.

    Parameters
    ----------
    wanted : Wanted
    environ : mapping
        The environment.
    archived : bool
        Use, or write, the archive of Spark's classes.

    Raises
    ------
    EnvironmentProblem
        Without a Java.
    ParameterError
        When the memory named in the environment is no amount.
    """
    heap = memory(environ)
    java = find_java()
    archived = archived and _plain_classes(wanted, environ)
    archive = prepare(java, spark_home(environ) / "jars") if archived else Archive()
    theirs = wanted.config.get("spark.driver.extraJavaOptions", "")
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    folder = start_room()
    ours = [
        f"-Djava.io.tmpdir={folder}",
        *_OPTIONS,
        *([] if "GC" in theirs else [_COLLECTOR]),
        f"-XX:ErrorFile={tempfile.gettempdir()}/java_error_%p.log",  # not where the user works
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
        "PYSPARK_PYTHON": sys.executable if wanted.local else environ.get("PYSPARK_PYTHON") or sys.executable,
        # A session of another kind may have left these, and both Python and Java would heed them.
        "SPARK_REMOTE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
    }
    if environ.get("PYTHONWARNINGS"):
        # Spark's workers, which take this over, leave files to the garbage collector in their own main.
        changes["PYTHONWARNINGS"] = environ["PYTHONWARNINGS"] + ",ignore::ResourceWarning:__main__"
    if wanted.loopback:
        changes |= {"SPARK_LOCAL_IP": "127.0.0.1"}
        config |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if wanted.local:
        paths = [str(package_folder().parent), environ.get("PYTHONPATH", "")]
        changes |= {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        config |= {
            "spark.local.dir": str(folder),
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        }
    return Jvm(config, changes, archive, folder)


def _plain_classes(wanted: Wanted, environ: Mapping[str, str]) -> bool:
    """Say whether Spark's class path holds its own classes only; an archive fits no other."""
    variables = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_HOME")
    return not any(map(environ.get, variables)) and "spark.driver.extraClassPath" not in wanted.config


def _quoted(option: str) -> str:
    """Quote an option as Spark's launcher reads them."""
    if not set(option) & set(" \t\"'\\"):
        return option
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextlib.contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change variables of the environment for as long as a JVM is being started."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def sigint_kept() -> Iterator[None]:
    """Take back the handler for SIGINT that PySpark installs (see `mudkit.pipeline.launch.interrupts`)."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def meanwhile() -> Iterator[None]:
    """Prepare, on the core that a start of Spark leaves idle, what its session would wait for at the end.

    That is pandas, and in the JVM the reflection of Scala, by which Spark's session registers the functions
    of its machine learning: together a third of a start. Nothing depends on it.
    """
    started = threading.Event()
    threading.Thread(target=_prepare, args=(started,), daemon=True).start()
    try:
        yield
    finally:
        started.set()


def _prepare(started: threading.Event) -> None:
    importlib.import_module("pandas")
    while SparkContext._jvm is None:
        if started.wait(_LOOK_S):
            return
    java: Any = SparkContext._jvm
    with contextlib.suppress(Exception):
        loader = getattr(java, "java.lang.Thread").currentThread().getContextClassLoader()
        getattr(getattr(java, "scala.reflect.runtime.package$"), "MODULE$").universe().runtimeMirror(loader)


def running_process() -> subprocess.Popen[bytes] | None:
    """Return the process of PySpark's JVM, if PySpark started one."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def started(jvm: Jvm) -> None:
    """Note the process of a JVM that has started, and let it tidy up should Python be killed."""
    jvm.process = running_process()
    java: Any = SparkContext._jvm
    with contextlib.suppress(Exception):
        folder = getattr(java, "java.io.File")(str(jvm.folder))
        getattr(java, "org.apache.spark.util.ShutdownHookManager").registerShutdownDeleteDir(folder)


def forget() -> None:
    """Make PySpark forget its session, its context and its JVM, without a word to them."""
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
    """End PySpark's JVM, whatever state it is in.

    Parameters
    ----------
    jvm : Jvm or None
        What belongs to it; None for a JVM that mudkit did not start.
    """
    gateway: Any = SparkContext._gateway
    process = running_process()
    if process is not None and process.poll() is None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    forget()
    if process is not None and process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # it ends by itself when nothing can come any more
    leaving = jvm or Jvm({}, {}, Archive(), start_room())
    leaving.process = process
    if leaving.archive.written is None or process is None or leaving.dead:
        _see_out(leaving)
    else:
        _LEAVING.jvms.append(leaving)


def see_out() -> None:
    """Wait for the JVMs that write their archive."""
    while _LEAVING.jvms:
        _see_out(_LEAVING.jvms.pop())


def _see_out(jvm: Jvm) -> None:
    """Wait for a JVM to end, and tidy up behind it."""
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
