"""What all tests share: recorded traces where they are there, and small traces made by hand."""

from __future__ import annotations

import gzip
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Examples come from the test's name, so a run repeats; a slow machine is not a failure.
settings.register_profile("mudkit", derandomize=True, deadline=None, database=None)
settings.load_profile("mudkit")

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared" / "data"


# Files that take longest, in this order: with a file at a time on each worker, a long one must not begin last.
LONGEST = (
    "notebooks/test_chapters.py",
    "browser/test_lab.py",
    "faults/test_killed_jobs.py",
    "spark/test_labels_measured.py",
    "spark/test_predicates.py",
    "faults/test_killed_mud.py",
    "spark/test_cluster.py",
    "faults/test_mutations.py",
    "faults/test_mud_campaign.py",
    "spark/test_column.py",
    "spark/test_streaming.py",
    "spark/test_jobs.py",
    "spark/test_cli.py",
    "spark/test_session.py",
    "spark/test_learning.py",
    "spark/test_readme.py",
    "notebooks/test_report.py",
    "notebooks/test_propagation.py",
    "notebooks/test_applications.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    place = {REPOSITORY / "tests" / name: number for number, name in enumerate(LONGEST)}
    if gone := [file for file in place if not file.is_file()]:
        raise pytest.UsageError(f"tests/conftest.py: LONGEST names what is not there: {gone}")
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler of Ctrl-C: a run that was started in the background has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def cabspotting() -> Path:
    """The recorded taxi trace, which this repository does not hold."""
    file = SHARED / "cabspotting_sf" / "cabs.csv.gz"
    if not file.is_file():
        pytest.skip("the recorded taxi trace is not on this machine")
    return file


@pytest.fixture(scope="session")
def capmetrics() -> Path:
    """The recorded bus positions of Austin (GTFS-realtime), which this repository does not hold."""
    file = SHARED / "capmetrics_austin" / "vehicle_positions.csv.gz"
    if not file.is_file():
        pytest.skip("the recorded bus positions are not on this machine")
    return file


@pytest.fixture(scope="session")
def driving_networks() -> Path:
    """The recorded throughput of five networks, which this repository does not hold."""
    file = SHARED / "mn_driving_networks" / "throughput.csv.gz"
    if not file.is_file():
        pytest.skip("the recorded throughput of driving networks is not on this machine")
    return file


@pytest.fixture(scope="session")
def phone_log() -> Path:
    """The folder of the recorded phone logs, which this repository does not hold."""
    folder = SHARED / "niimpy_phone"
    if not folder.is_dir():
        pytest.skip("the recorded phone logs are not on this machine")
    return folder


@pytest.fixture(scope="session")
def notification_drawers() -> Path:
    """The folder of aggregates of notification drawers, which this repository does not hold."""
    folder = SHARED / "notification_drawers"
    if not folder.is_dir():
        pytest.skip("the aggregates of notification drawers are not on this machine")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests of a process."""
    from mudkit import pipeline

    yield pipeline.session()
    pipeline.stop()


@pytest.fixture
def csv_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a CSV file from a header and rows."""

    def write(header: str, rows: Sequence[str], name: str = "trace.csv") -> Path:
        text = "\n".join([header, *rows]) + "\n"
        file = tmp_path / name
        file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return file

    return write
