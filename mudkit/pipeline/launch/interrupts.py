"""Ctrl-C while Spark works: the jobs end, the JVM stays, and the next cell finds it free.

Left to themselves, PySpark and py4j do not manage that. In a notebook a `KeyboardInterrupt` reaches Python
while it waits for the JVM, and the job runs on and holds all cores: the next action hangs. Outside, the
handler that PySpark installs for SIGINT speaks to the JVM over the very connection that is being read, fails,
and the job runs on as well; both print pages of tracebacks. (Spark Connect's client does it right.)
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from py4j.clientserver import ClientServerConnection, JavaClient
from pyspark.sql import SparkSession

__all__ = ["make_interruptible"]


_ASK_FOR_RESULT = "\ngetResult\n"


class _Interrupted(BaseException):
    """A `KeyboardInterrupt` on its way past py4j, which would log a page about one."""


class _Connection(ClientServerConnection):  # type: ignore[misc]
    def send_command(self, command: str) -> Any:
        try:
            return super().send_command(command)
        except KeyboardInterrupt:
            self.close()  # the answer may still come, and must not be taken for that to the next command
            raise _Interrupted from None


class _Client(JavaClient):  # type: ignore[misc]
    context: Any = None  # Java's SparkContext

    def _create_new_connection(self) -> Any:
        connection = _Connection(self.java_parameters, self.python_parameters, self.gateway_property, self)
        connection.connect_to_java_server()
        self.set_thread_connection(connection)
        return connection

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        if _ASK_FOR_RESULT in command and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            # PySpark was interrupted as it read a result from a socket, and now would wait for the job.
            self._cancel()
            raise KeyboardInterrupt
        try:
            return super().send_command(command, retry, binary)
        except _Interrupted:
            self._cancel()
            raise KeyboardInterrupt from None

    def _cancel(self) -> None:
        context, self.context = self.context, None  # cancelling sends commands, too
        try:
            with contextlib.suppress(Exception):
                if context is not None:
                    context.cancelAllJobs()
        finally:
            self.context = context


def make_interruptible(spark: SparkSession) -> None:
    """Let a `KeyboardInterrupt` cancel the jobs of a session that has a JVM of its own.

    Parameters
    ----------
    spark : SparkSession
        A session that is no Spark Connect session.
    """
    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    context = spark.sparkContext._jsc.sc()
    open_connection = client.get_thread_connection()
    client.__class__ = _Client
    client.context = context
    if open_connection is not None:
        open_connection.__class__ = _Connection
