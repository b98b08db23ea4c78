"""Spark Connect: sessions of a server in this process or on another machine.

PySpark's Connect client is imported when needed, because it imports gRPC.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline.launch.settings import Target

SESSION_CONFIG = {"spark.sql.connect.serverStacktrace.enabled": "false"}  # pages of it in each error
SERVER_CONFIG = SESSION_CONFIG | {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # any: two processes may each have a server
    "spark.connect.progress.reportInterval": "500ms",
}
ANSWER_S = 10.0
_INTERRUPT_S = 5.0
_EXECUTING = "SparkConnectExecuteThread"
_MODE = "SPARK_CONNECT_MODE_ENABLED"
_LOCAL = "SPARK_LOCAL_REMOTE"


def start(target: Target, config: Mapping[str, str]) -> SparkSession:
    """Start a Connect server in a JVM of this process at a free port, and connect to it."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    RemoteSession._start_connect_server(target.url, dict(config))
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    port = getattr(getattr(SparkContext._jvm, service), "MODULE$").localPort()
    # gRPC would take a proxy from the environment, even for this machine.
    channel = DefaultChannelBuilder(f"sc://localhost:{port}", [("grpc.enable_http_proxy", 0)])
    return cast(SparkSession, RemoteSession.builder.channelBuilder(channel).create())


def give_up_without(spark: Any, is_dead: Callable[[], bool]) -> None:
    """End calls whose server's process is dead; the client would try again for ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class WhileAlive(DefaultPolicy):
        def can_retry(self, e: BaseException) -> bool:
            return not is_dead() and bool(super().can_retry(e))

    spark.client.set_retry_policies([WhileAlive()])


def connect(target: Target, config: Mapping[str, str]) -> SparkSession:
    """Connect to a server that runs elsewhere."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    spark: Any = RemoteSession.builder.remote(target.url).create()
    problem = find_problem(spark)
    try:
        if problem is not None:
            raise EnvironmentProblem(
                "The Spark Connect server does not answer.",
                where=target.named,
                found=f"{target.url}: {problem}",
                expected=f"an answer within {ANSWER_S:g} s",
                remedy="start it (`start-connect-server.sh`), or correct the address, or leave it out to run "
                "Spark on this machine",
            )
        for key, value in config.items():
            _set(spark, key, value)
    except BaseException:
        close_unanswered(spark)
        raise
    return cast(SparkSession, spark)


def _set(spark: Any, key: str, value: str) -> None:
    """Set a setting of a session; ParameterError if the server refuses it."""
    try:
        spark.conf.set(key, value)
    except PySparkException as error:
        raise ParameterError(
            "A server that runs already does not take this setting.",
            where=f"config[{key!r}]",
            found=f"{key}={value}: {str(error).splitlines()[0]}",
            expected="a setting of a session, such as spark.sql.shuffle.partitions",
            remedy="set it where the server is started",
        ) from error


def find_problem(spark: Any) -> str | None:
    """Ask a Connect server for its version; return the problem, if any.

    The client's own calls retry for minutes when a server does not answer.
    """
    import grpc  # type: ignore[import-untyped]

    request = spark.client._analyze_plan_request_with_metadata()
    request.spark_version.SetInParent()
    try:
        metadata = spark.client._builder.metadata()
        spark.client._stub.AnalyzePlan(request, metadata=metadata, timeout=ANSWER_S)
    except grpc.RpcError as error:
        call = cast(grpc.Call, error)
        return f"{call.code().name}: {call.details()}"
    return None


def close_unanswered(spark: Any) -> None:
    """Close a client whose server does not answer; closing it the usual way would take minutes."""
    spark.client._channel.close()
    spark.client._closed = True


def release(spark: Any) -> None:
    """End a session on its server, which stays for others."""
    with contextlib.suppress(Exception):
        spark.client.release_session()
    close_unanswered(spark)


def interrupt_all(spark: Any) -> None:
    """Interrupt all work on a server of this process, and wait until it has ended.

    Work that still runs when Spark is gone prints pages of errors.
    """
    spark.interruptAll()
    thread: Any = cast(Any, SparkContext._jvm).java.lang.Thread
    deadline_s = time.monotonic() + _INTERRUPT_S
    while time.monotonic() < deadline_s:
        threads = thread.getAllStackTraces().keySet()
        if not any(running.getName().startswith(_EXECUTING) for running in threads):
            return
        time.sleep(0.02)


def enable(*, local: bool) -> None:
    """Set PySpark's environment to Spark Connect; `local`: the server is one of this process."""
    os.environ[_MODE] = "1"
    if local:
        os.environ[_LOCAL] = "1"


def disable() -> None:
    """Set PySpark back to its classic API."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    remote_class: Any = RemoteSession
    remote_class._default_session = None
    remote_class._active_session.session = None
    for name in (_LOCAL, _MODE):
        os.environ.pop(name, None)


def active_session() -> Any:
    """Return the active Connect session of this process, if there is one."""
    if _MODE not in os.environ:
        return None
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    return RemoteSession.getActiveSession()
