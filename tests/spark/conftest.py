"""The session of the tests of Spark, with fewer tasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark: SparkSession, scaled: Callable[[int, int], int]) -> SparkSession:
    """Return the session of all tests: a shuffle of few rows has two tasks, in the soak four.

    Of the same few rows four tasks take half as much processor time again.
    """
    spark.conf.set("spark.sql.shuffle.partitions", scaled(4, 2))
    return spark
