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

from mudkit.errors import EnvironmentProblem, MudkitError, ParameterError
from mudkit.pipeline.launch import connect
from mudkit.pipeline.launch import jvm as jvms
from mudkit.pipeline.launch.interrupts import make_interruptible
from mudkit.pipeline.launch.masters import check_reachable
from mudkit.pipeline.launch.settings import Wanted, resolve
from mudkit.pipeline.launch.shipping import has_mudkit, write_package

__all__ = ["running", "session", "stop"]

_SQL_CONFIG = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A predicate over a VARIANT is long SQL; what the parser remembers of some hundred such texts would
    # fill the heap. A state that it remembers takes about 3 KB.
    "spark.sql.parser.manageParserCaches": "true",
    "spark.sql.parser.parserDfaCacheFlushThreshold": "50000",
}
_REMEDY = "run `mudkit doctor`; what Spark itself said is above"


@dataclass
class _Running:
    """The session that runs, with what it was started with."""

    spark: SparkSession
    wanted: Wanted
    config: Mapping[str, str]
    jvm: jvms.Jvm | None
    pid: int
    room: Path | None = None
    adopted: bool = False


class _Process:
    """What there is one of in a process. PySpark has one session a process as well, in its own classes."""

    def __init__(self) -> None:
        self.running: _Running | None = None
        self.lock = threading.RLock()
        self.watched = False


_PROCESS = _Process()


def session(
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return the Spark session of this process; start it if there is none.

    Where it runs is the first of: the arguments, ``config['spark.master']`` or ``config['spark.remote']``,
    the variables ``MUDKIT_SPARK_MASTER`` and ``SPARK_REMOTE``, this machine. Its memory is
    ``spark.driver.memory`` of `config`, or ``MUDKIT_SPARK_MEMORY``, or 1 GB. The variables count when a
    session starts and not afterwards.

    A later call returns the same session. A session that was stopped or whose JVM died is replaced. A
    session that somebody else started in this process is used as well, through one of its sisters (its own
    settings and views stay as they are).

    On a cluster mudkit itself travels to the executors (to those of somebody else's session with the first
    job that needs it there), but not what it imports: their Python
    (``PYSPARK_PYTHON``, or the path of this one) has to be of the same version and to have the packages of
    `mudkit.pipeline.launch.shipping.EXECUTORS_NEED`.

    Parameters
    ----------
    master : str, optional
        ``local[*]``, ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://...``.
    remote : str, optional
        ``sc://host:port`` of a Spark Connect server, or ``local[*]`` to start one here.
    config : mapping, optional
        Keys of Spark's configuration; they come before mudkit's own.

    Returns
    -------
    SparkSession
        The session, in the time zone UTC.

    Raises
    ------
    ParameterError
        When an argument cannot be, or contradicts the session that runs: that one is not ended behind the
        caller's back, `stop` ends it.
    EnvironmentProblem
        When there is no Java, or Spark does not start, or the cluster or the Connect server does not answer.
    """
    with _PROCESS.lock:
        wanted = resolve(master, remote, config, os.environ)
        running = _PROCESS.running
        if running is not None and not _alive(running):
            _end(running)
            running = _PROCESS.running = None
        if running is None:
            running = _PROCESS.running = _adopted() or _start(wanted)
        _check_agrees(running, wanted)
        return running.spark


def stop() -> None:
    """End the session and its JVM; without one do nothing.

    A session that mudkit did not start is left running.
    """
    with _PROCESS.lock:
        running, _PROCESS.running = _PROCESS.running, None
        if running is not None:
            _end(running)


def running() -> bool:
    """Say whether a session of mudkit runs in this process, and answers."""
    with _PROCESS.lock:
        return _PROCESS.running is not None and _alive(_PROCESS.running)


def _check_agrees(running: _Running, wanted: Wanted) -> None:
    """Raise when a call asks for another session than the one that runs."""
    differences: list[tuple[str, str, str]] = []
    if wanted.explicit and (wanted.url, wanted.connect) != (running.wanted.url, running.wanted.connect):
        differences.append((wanted.named, wanted.place, running.wanted.place))
    for key, value in wanted.config.items():
        current = running.config.get(key)
        if current is None and running.adopted:
            current = running.spark.conf.get(key, None)
        if current != value:
            differences.append((f"config[{key!r}]", f"{key}={value}", f"{key}={current or '(not set)'}"))
    if differences:
        raise ParameterError(
            "Another Spark session runs in this process already.",
            where=", ".join(where for where, _, _ in differences),
            found=f"asked for {', '.join(asked for _, asked, _ in differences)}",
            expected=f"what runs: {', '.join(runs for _, _, runs in differences)}",
            remedy="call session() without arguments to use it"
            + ("" if running.adopted else ", or mudkit.pipeline.stop() first to end it"),
        )


def _alive(running: _Running) -> bool:
    """Say whether a session answers."""
    if running.pid != os.getpid() or (running.jvm is not None and running.jvm.dead):
        return False
    spark: Any = running.spark
    try:
        if not running.wanted.connect:
            return spark._sc._jsc is not None and not spark._sc._jsc.sc().isStopped()
        if spark.is_stopped:
            return False
        if running.jvm is not None:
            server: Any = SparkContext._active_spark_context
            return server is not None and not server._jsc.sc().isStopped()
        return connect.answer(spark) is None
    except Exception:  # whatever a broken connection brings: it is broken
        return False


def _adopted() -> _Running | None:
    """Use a session that somebody else started, and leave its settings alone."""
    remote = connect.foreign()
    foreign: Any = remote or getattr(SparkSession, "_instantiatedSession", None)
    if foreign is None:
        return None
    speaks = remote is not None
    url = foreign.client.host if speaks else str(getattr(foreign.sparkContext, "master", ""))
    place = Wanted(f"sc://{url}" if speaks else url, speaks, "a session of this process")
    running = _Running(foreign, place, {}, None, os.getpid(), adopted=True)
    if not _alive(running):
        return None
    running.spark = foreign.newSession()
    for key, value in _SQL_CONFIG.items():
        running.spark.conf.set(key, value)
    _quiet_analysis_errors()
    return running


def _start(wanted: Wanted) -> _Running:
    if not _PROCESS.watched:
        atexit.register(_at_exit, os.getpid())
        _PROCESS.watched = True
    _quiet_analysis_errors()
    if not wanted.starts_jvm:
        return _connected(wanted)
    check_reachable(wanted)
    if jvms.running_process() is not None:
        jvms.end(None)  # its session was stopped, and its memory and options are not those asked for
    jvm = jvms.jvm_config(wanted, os.environ)
    try:
        return _start_with(jvm, wanted)
    except EnvironmentProblem:
        doubtful = jvm.archive.used
        if doubtful is None or jvm.process is not None:
            raise
    # The JVM did not come up. A damaged archive can do that, so once more without.
    running = _start_with(jvms.jvm_config(wanted, os.environ, archived=False), wanted)
    doubtful.unlink(missing_ok=True)
    return running


def _start_with(jvm: jvms.Jvm, wanted: Wanted) -> _Running:
    given = jvm.config | _SQL_CONFIG | (connect.SERVER_CONFIG if wanted.connect else {})
    options = {key: value for key, value in wanted.config.items() if key != "spark.driver.extraJavaOptions"}
    config = given | options
    try:
        with (
            _translated(wanted),
            jvms.environment(jvm.environ),
            jvms.sigint_kept(),
            _fork_warnings(),
            jvms.meanwhile(),
        ):
            spark = connect.start(wanted, config) if wanted.connect else _start_classic(wanted, config)
        jvms.started(jvm)
        if wanted.connect:
            connect.tell(local=True)
        else:
            make_interruptible(spark)
        if wanted.connect or not wanted.local:
            with _translated(wanted):
                spark.addArtifacts(str(write_package(jvm.folder)), pyfile=True)
    except BaseException:
        jvms.end(jvm)
        if wanted.connect:
            connect.forget()
        raise
    has_mudkit(spark)
    return _Running(spark, wanted, {**config, **wanted.config}, jvm, os.getpid())


def _start_classic(wanted: Wanted, config: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(wanted.url)
    for key, value in config.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connected(wanted: Wanted) -> _Running:
    """Use a server that runs elsewhere."""
    config = _SQL_CONFIG | connect.SESSION_CONFIG | dict(wanted.config)
    room = jvms.start_room()
    try:
        with _translated(wanted):
            spark = connect.connect(wanted, config)
            spark.addArtifacts(str(write_package(room)), pyfile=True)
    except BaseException:
        connect.forget()
        shutil.rmtree(room, ignore_errors=True)
        raise
    connect.tell(local=False)
    has_mudkit(spark)
    return _Running(spark, wanted, config, None, os.getpid(), room)


@contextlib.contextmanager
def _translated(wanted: Wanted) -> Iterator[None]:
    """Raise what goes wrong at a start as one kind of error."""
    try:
        yield
    except MudkitError:
        raise
    except Exception as error:
        text = str(error) or type(error).__name__
        lines = [line.strip() for line in text.splitlines() if line.strip() and "\tat " not in line]
        raise EnvironmentProblem(
            "Spark did not start.",
            where=wanted.place,
            found="; ".join(lines[:3])[:500],
            remedy=_REMEDY,
        ) from error


@contextlib.contextmanager
def _fork_warnings() -> Iterator[None]:
    """Let PySpark start a process from a process with threads, which Python 3.12 warns of.

    PySpark's function between fork and exec is a call of `signal.signal`, which cannot lock up.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)
        yield


def _quiet_analysis_errors() -> None:
    """Turn off the loggers that print each error of an analysis as JSON, next to the exception."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _end(running: _Running) -> None:
    if running.adopted:
        return
    if running.pid != os.getpid():  # this is a copy of the process that started it, and must leave it alone
        jvms.forget()
        return
    if _alive(running):
        remote = os.environ.get("SPARK_REMOTE")
        with contextlib.suppress(Exception):
            if running.wanted.connect and running.jvm is not None:
                connect.wind_up(running.spark)
            running.spark.stop()
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote  # PySpark's stop() removes what the user set
    elif running.wanted.connect:
        connect.hang_up(running.spark)
    if running.wanted.connect:
        connect.forget()
    if running.jvm is not None:
        jvms.end(running.jvm)
    if running.room is not None:
        shutil.rmtree(running.room, ignore_errors=True)


def _at_exit(pid: int) -> None:
    """End the session with the process that started it."""
    if pid != os.getpid():
        return
    running, _PROCESS.running = _PROCESS.running, None
    if running is not None:
        _end(running)
    jvms.see_out()
