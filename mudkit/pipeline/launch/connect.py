"""Spark Connect: a server of this process or of another machine, and how to tell that it is gone.

PySpark's Connect client is imported when it is needed: it brings gRPC along.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, cast

from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mudkit.errors import EnvironmentProblem, ParameterError
from mudkit.pipeline.launch.settings import Wanted

__all__ = [
    "ANSWER_S",
    "SERVER_CONFIG",
    "answer",
    "connect",
    "foreign",
    "forget",
    "hang_up",
    "start",
    "tell",
    "wind_up",
]

SESSION_CONFIG = {"spark.sql.connect.serverStacktrace.enabled": "false"}  # pages of it in each error
SERVER_CONFIG = SESSION_CONFIG | {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # any: two processes may each have a server
    "spark.connect.progress.reportInterval": "500ms",
}
ANSWER_S = 10.0
WIND_UP_S = 5.0
_EXECUTING = "SparkConnectExecuteThread"
_MODE = "SPARK_CONNECT_MODE_ENABLED"
_LOCAL = "SPARK_LOCAL_REMOTE"


def start(wanted: Wanted, config: Mapping[str, str]) -> SparkSession:
    """Start a Connect server in a JVM of this process, at a port that is free, and connect to it."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    RemoteSession._start_connect_server(wanted.url, dict(config))
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    port = getattr(getattr(SparkContext._jvm, service), "MODULE$").localPort()
    # It is this machine: a proxy, which gRPC would take from the environment, has no part in it.
    channel = DefaultChannelBuilder(f"sc://localhost:{port}", [("grpc.enable_http_proxy", 0)])
    return cast(SparkSession, RemoteSession.builder.channelBuilder(channel).create())


def connect(wanted: Wanted, config: Mapping[str, str]) -> SparkSession:
    """Connect to a server that runs elsewhere.

    Raises
    ------
    EnvironmentProblem
        When it does not answer.
    ParameterError
        When it does not take a setting.
    """
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    spark: Any = RemoteSession.builder.remote(wanted.url).create()
    problem = answer(spark)
    try:
        if problem is not None:
            raise EnvironmentProblem(
                "The Spark Connect server does not answer.",
                where=wanted.named,
                found=f"{wanted.url}: {problem}",
                expected=f"an answer within {ANSWER_S:g} s",
                remedy="start it (`start-connect-server.sh`), or correct the address, or leave it out to run "
                "Spark on this machine",
            )
        for key, value in config.items():
            _set(spark, key, value)
    except BaseException:
        hang_up(spark)
        raise
    return cast(SparkSession, spark)


def _set(spark: Any, key: str, value: str) -> None:
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


def answer(spark: Any) -> str | None:
    """Ask a Connect server for its version; return what went wrong.

    The client's own calls try again for minutes when nobody answers.
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


def hang_up(spark: Any) -> None:
    """Close a client whose server does not answer.

    Its own farewell, in a call or at the end of the process, would take minutes.
    """
    spark.client._channel.close()
    spark.client._closed = True


def wind_up(spark: Any) -> None:
    """End what still runs on a server of this process, and wait for it.

    What was interrupted takes a moment longer on the server; finding Spark gone, it would print pages.
    """
    spark.interruptAll()
    thread: Any = cast(Any, SparkContext._jvm).java.lang.Thread
    patience = time.monotonic() + WIND_UP_S
    while time.monotonic() < patience:
        if not any(each.getName().startswith(_EXECUTING) for each in thread.getAllStackTraces().keySet()):
            return
        time.sleep(0.02)


def tell(*, local: bool) -> None:
    """Tell PySpark that it speaks Spark Connect.

    Parameters
    ----------
    local : bool
        Whether the server is one of this process, which ends with its session.
    """
    os.environ[_MODE] = "1"
    if local:
        os.environ[_LOCAL] = "1"


def forget() -> None:
    """Tell PySpark that it does not speak Spark Connect any more."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    remote_class: Any = RemoteSession
    remote_class._default_session = None
    remote_class._active_session.session = None
    for name in (_LOCAL, _MODE):
        os.environ.pop(name, None)


def foreign() -> Any:
    """Return the Connect session that somebody started in this process, if there is one."""
    if _MODE not in os.environ:
        return None
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    return RemoteSession.getActiveSession()
