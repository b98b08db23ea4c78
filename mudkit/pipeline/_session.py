"""The one Spark session of the process: local, on a cluster, or through Spark Connect."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.core.context import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from mudkit.checks import check_arguments
from mudkit.errors import EnvironmentProblem, MudkitError, ParameterError
from mudkit.pipeline.executors import record_mudkit, write_package
from mudkit.pipeline.launch import connect
from mudkit.pipeline.launch import jvm as jvms
from mudkit.pipeline.launch.jvm import make_interruptible
from mudkit.pipeline.launch.settings import Target, check_reachable, resolve

_SQL_CONFIG = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A predicate over a VARIANT is long SQL; what the parser remembers of some hundred such texts would
    # fill the heap. A state that it remembers takes about 3 KB.
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushThreshold": "50000",
}
_CHANGING = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "PYSPARK_SUBMIT_ARGS",
    "JAVA_TOOL_OPTIONS",
)
"""Variables, perhaps of another installation, that change how Spark starts."""
_REMEDY = "run `mudkit doctor`; what Spark itself said is above"


@dataclass
class _Running:
    """The running session and the settings that it was started with."""

    spark: SparkSession
    target: Target
    config: Mapping[str, str]
    jvm: jvms.Jvm | None
    pid: int
    folder: Path | None = None
    adopted: bool = False


class _Process:
    """State of this process, in which PySpark, too, has only one session."""

    def __init__(self) -> None:
        self.running: _Running | None = None
        self.lock = threading.RLock()
        self.watched = False


_PROCESS = _Process()


@check_arguments(types=False)
def session(
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return the Spark session of this process; start it if there is none.

    It runs at the first of: the arguments, ``config['spark.master']`` or ``config['spark.remote']``, the
    variables ``MUDKIT_SPARK_MASTER`` and ``SPARK_REMOTE``, this machine. Its memory is
    ``spark.driver.memory`` of `config`, or ``MUDKIT_SPARK_MEMORY``, or 1 GB. Variables are read when a
    session starts.

    Later calls return the same session. A session that was stopped or whose JVM died is replaced. For a
    session that other code started in this process, a new session of its context is used, so that its
    settings and views stay unchanged. Its workers need the packages below, too: the first function that needs
    them says what is missing.

    On a cluster mudkit is sent to the executors (of another code's session with the first job that needs it),
    but not its dependencies: their Python (``PYSPARK_PYTHON``, or the path of this one) must have the same
    version and the packages of `mudkit.pipeline.executors.EXECUTORS_NEED`.

    Parameters
    ----------
    master : str, optional
        ``local[*]``, ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://...``.
    remote : str, optional
        ``sc://host:port`` of a Spark Connect server, or ``local[*]`` to start one here.
    config : mapping, optional
        Keys of Spark's configuration; they override mudkit's.

    Returns
    -------
    SparkSession
        The session, in the time zone UTC.

    Raises
    ------
    ParameterError
        An argument is invalid, or contradicts the running session, which `stop` ends.
    EnvironmentProblem
        There is no Java, a variable such as ``SPARK_HOME`` keeps Spark from starting, Spark does not start,
        or the cluster or the Connect server does not answer.
    """
    with _PROCESS.lock:
        target = resolve(master, remote, config, os.environ)
        running = _PROCESS.running
        if running is not None and not _is_alive(running):
            _end(running)
            running = _PROCESS.running = None
        if running is None:
            if not _PROCESS.watched:
                atexit.register(_at_exit, os.getpid())
                _PROCESS.watched = True
            running = _PROCESS.running = _adopt_session() or _start(target)
        _check_agrees(running, target)
        return running.spark


def stop() -> None:
    """End the session and its JVM, if there is one that mudkit started."""
    with _PROCESS.lock:
        running, _PROCESS.running = _PROCESS.running, None
        if running is not None:
            _end(running)


def running() -> bool:
    """Return whether a session of mudkit runs in this process and answers."""
    with _PROCESS.lock:
        return _PROCESS.running is not None and _is_alive(_PROCESS.running)


def _check_agrees(running: _Running, target: Target) -> None:
    """Raise ParameterError if a call requests another session than the running one."""
    differences: list[tuple[str, str, str]] = []
    if target.explicit and (target.url, target.connect) != (running.target.url, running.target.connect):
        differences.append((target.named, target.place, running.target.place))
    for key, value in target.config.items():
        current = running.config.get(key)
        if current is None and running.adopted:
            current = running.spark.conf.get(key, None)
        if current != value:
            differences.append((f"config[{key!r}]", f"{key}={value}", f"{key}={current or '(not set)'}"))
    if differences:
        raise ParameterError(
            "Another Spark session runs in this process already.",
            where=", ".join(where for where, _, _ in differences),
            found=f"asked for {', '.join(requested for _, requested, _ in differences)}",
            expected=f"what runs: {', '.join(runs for _, _, runs in differences)}",
            remedy="call session() without arguments to use it"
            + ("" if running.adopted else ", or mudkit.pipeline.stop() first to end it"),
        )


def _is_alive(running: _Running) -> bool:
    """Return whether a session of this process answers; False in a fork of the process."""
    if running.pid != os.getpid() or (running.jvm is not None and running.jvm.is_dead):
        return False
    spark: Any = running.spark
    try:
        if not running.target.connect:
            return spark._sc._jsc is not None and not spark._sc._jsc.sc().isStopped()
        if spark.is_stopped:
            return False
        if running.jvm is not None:
            server: Any = SparkContext._active_spark_context
            return server is not None and not server._jsc.sc().isStopped()
        return connect.find_problem(spark) is None
    except Exception:  # the connection is broken
        return False


def _adopt_session() -> _Running | None:
    """Return a new session beside one that other code started; None if there is none or it does not answer.

    The settings of the other one stay as they are.
    """
    remote = connect.active_session()
    foreign: Any = remote or getattr(SparkSession, "_instantiatedSession", None)
    if foreign is None:
        return None
    speaks = remote is not None
    url = foreign.client.host if speaks else str(getattr(foreign.sparkContext, "master", ""))
    place = Target(f"sc://{url}" if speaks else url, speaks, "a session of this process")
    running = _Running(foreign, place, {}, None, os.getpid(), adopted=True)
    if not _is_alive(running):
        return None
    running.spark = foreign.newSession()
    for key, value in _SQL_CONFIG.items():
        running.spark.conf.set(key, value)
    _quiet_analysis_errors()
    return running


def _start(target: Target) -> _Running:
    """Start a session, or connect to a server elsewhere.

    Start again without the archive of classes if that failed.
    """
    _quiet_analysis_errors()
    if not target.starts_jvm:
        return _connect(target)
    check_reachable(target)
    if jvms.running_process() is not None:
        jvms.end(None)  # its session was stopped, and its memory and options are not those asked for
    jvm = jvms.jvm_config(target, os.environ)
    try:
        return _start_with(jvm, target)
    except EnvironmentProblem:
        doubtful = jvm.archive.used
        if doubtful is None or jvm.process is not None:
            raise
    # A damaged archive can keep the JVM from starting, so retry without one.
    running = _start_with(jvms.jvm_config(target, os.environ, archived=False), target)
    doubtful.unlink(missing_ok=True)
    return running


def _start_with(jvm: jvms.Jvm, target: Target) -> _Running:
    """Start Spark in a JVM of this process; end the JVM again if anything fails."""
    given = jvm.config | _SQL_CONFIG | (connect.SERVER_CONFIG if target.connect else {})
    options = {key: value for key, value in target.config.items() if key != "spark.driver.extraJavaOptions"}
    config = given | options
    try:
        with (
            _translated(target),
            jvms.environment(jvm.environ),
            jvms.sigint_kept(),
            _fork_warnings(),
            jvms.preloading(),
        ):
            spark = connect.start(target, config) if target.connect else _start_classic(target, config)
        jvms.register_process(jvm)
        if target.connect:
            connect.enable(local=True)
            connect.give_up_without(spark, lambda: jvm.is_dead)
        else:
            make_interruptible(spark)
        if target.connect or not target.local:
            with _translated(target):
                spark.addArtifacts(str(write_package(jvm.folder)), pyfile=True)
    except BaseException:
        jvms.end(jvm)
        if target.connect:
            connect.disable()
        raise
    record_mudkit(spark)
    return _Running(spark, target, {**config, **target.config}, jvm, os.getpid())


def _start_classic(target: Target, config: Mapping[str, str]) -> SparkSession:
    """Start a session of the classic API."""
    builder = SparkSession.builder.master(target.url)
    for key, value in config.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connect(target: Target) -> _Running:
    """Connect to a server that runs elsewhere, and return the session."""
    config = _SQL_CONFIG | connect.SESSION_CONFIG | dict(target.config)
    folder = jvms.temporary_folder()
    try:
        with _translated(target):
            spark = connect.connect(target, config)
            spark.addArtifacts(str(write_package(folder)), pyfile=True)
    except BaseException:
        connect.disable()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    connect.enable(local=False)
    record_mudkit(spark)
    return _Running(spark, target, config, None, os.getpid(), folder)


@contextlib.contextmanager
def _translated(target: Target) -> Iterator[None]:
    """Raise errors of Spark in the body, the start of a session, as EnvironmentProblem."""
    try:
        yield
    except MudkitError:
        raise
    except Exception as error:
        text = str(error) or type(error).__name__
        lines = [line.strip() for line in text.splitlines() if line.strip() and "\tat " not in line]
        changing = [name for name in _CHANGING if os.environ.get(name)]
        raise EnvironmentProblem(
            "Spark did not start.",
            where=target.place,
            found="; ".join(lines[:3])[:500],
            remedy=(f"unset {', '.join(changing)}, or " if changing else "") + _REMEDY,
        ) from error


@contextlib.contextmanager
def _fork_warnings() -> Iterator[None]:
    """Ignore the warning of Python 3.12 that a process with threads forks.

    PySpark only calls `signal.signal` between fork and exec, which cannot deadlock.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)
        yield


def _quiet_analysis_errors() -> None:
    """Disable the loggers that print each error of an analysis as JSON, besides the exception."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _end(running: _Running) -> None:
    """End a session, and its JVM if mudkit started it; a session adopted from other code stays."""
    if running.adopted:
        if running.target.connect and running.pid == os.getpid() and _is_alive(running):
            connect.release(running.spark)
        return
    if running.pid != os.getpid():  # a fork of the process that started it
        jvms.forget()
        return
    if _is_alive(running):
        remote = os.environ.get("SPARK_REMOTE")
        with contextlib.suppress(Exception):
            if running.target.connect and running.jvm is not None:
                connect.interrupt_all(running.spark)
            running.spark.stop()
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote  # PySpark's stop() removes what the user set
    elif running.target.connect:
        connect.close_unanswered(running.spark)
    if running.target.connect:
        connect.disable()
    if running.jvm is not None:
        jvms.end(running.jvm)
    if running.folder is not None:
        shutil.rmtree(running.folder, ignore_errors=True)


def _at_exit(pid: int) -> None:
    """End the session if this is the process that started it, not a fork."""
    if pid != os.getpid():
        return
    running, _PROCESS.running = _PROCESS.running, None
    if running is not None:
        _end(running)
    jvms.wait_for_archives()
