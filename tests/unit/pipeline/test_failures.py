"""Ends of a job that its input does not cause, by the texts of Spark's errors."""

import pytest

from mudkit.errors import EnvironmentProblem, TraceContentError
from mudkit.pipeline.failures import explained

ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task (host executor 1): "


def raised(error):
    with (
        pytest.raises(type(error) if isinstance(error, TraceContentError) else Exception) as caught,
        explained(),
    ):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("text", "summary", "found"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "Spark's memory was full.", "java.lang.OutOfMemoryError: Java heap space"),
        ("java.io.IOException: No space left on device", "The scratch disk of Spark is full.", "java.io.IOException: No space left on device"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "A Python worker of Spark ended while it worked.",
         "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
    ],
)  # fmt: skip
def test_cause_is_named_with_a_remedy(text, summary, found):
    error = raised(RuntimeError(f"{ABORTED}{text}\n\tat java.base/java.lang.Thread.run(Thread.java:840)"))
    assert isinstance(error, EnvironmentProblem)
    assert error.summary == summary
    assert error.found.startswith(found)
    assert "goes on from its finished parts" in error.remedy


@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'pyarrow'",
        "[PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; however, it was not found.",
    ],
)
def test_package_that_the_workers_lack_is_named(text):
    """A worker whose Python is without pyarrow."""
    error = raised(RuntimeError(f"{ABORTED}Traceback (most recent call last):\n{text}\n\n\tat org.apache"))
    assert isinstance(error, EnvironmentProblem)
    assert error.found == text
    assert "pyarrow" in error.expected
    assert "PYSPARK_PYTHON" in error.remedy


@pytest.mark.parametrize(
    "error",
    [
        ValueError("an error of the job"),
        TraceContentError("OutOfMemoryError"),
        RuntimeError("OSError: [Errno 28] No space left on device: '/out/part-0.parquet'"),
    ],
)
def test_other_errors_pass(error):
    assert raised(error) is error
