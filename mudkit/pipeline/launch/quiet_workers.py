"""A query with state without what its workers print of their own doings: five lines a query, for nobody.

PySpark's worker that prepares such a query prints to its standard output when it begins and ends, and Java
hands that on to its own standard error. What goes wrong in a worker comes as an exception all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pyspark.core.context import SparkContext

__all__ = ["hushed"]


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Let Java hand on nothing of the workers that it starts meanwhile; Spark's own log is not concerned.

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
