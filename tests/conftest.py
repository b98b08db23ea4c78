"""Selection of tests, profiles of Hypothesis, and fixtures of all tests."""

from __future__ import annotations

import atexit
import gc
import gzip
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from long_tests import leave_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from webhdfs_server import WebHdfs

# In `make test` examples derive from the test's name, so that runs repeat. The soak draws them from
# --hypothesis-seed. Mutants are tested with more examples than `make test` draws. No deadline: a machine may be slow.
settings.register_profile("test", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("soak", deadline=None, database=None, max_examples=1000, print_blob=True)
settings.register_profile("sample", settings.get_profile("soak"), max_examples=200)
settings.load_profile("test")

REPOSITORY = Path(__file__).parents[1]
# Every process keeps the constants that Hypothesis reads in all modules, which takes seconds, in one folder.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(REPOSITORY / ".hypothesis"))
SHARED = REPOSITORY.parent / "shared" / "data"


# The slowest files, in this order: each worker runs one file at a time, so a slow one must not start last. The files
# of Spark begin with the first of them, and stay on its worker. `make quick` leaves them out.
SLOW_FILES = (
    "spark/test_predicates.py",
    "notebooks/test_chapters.py",
    "browser/test_lab.py",
    "unit/exercises/test_scoreboard.py",
    "unit/exercises/test_grading.py",
    "spark/test_jobs.py",
    "spark/test_session.py",
    "faults/test_killed_jobs.py",
    "unit/test_cli.py",
    "spark/test_learning.py",
    "spark/test_streaming.py",
    "spark/test_column.py",
    "spark/test_readme.py",
    "faults/test_mud_campaign.py",
    "faults/test_bad_input.py",
    "faults/test_killed_mud.py",
    "notebooks/test_report.py",
    "notebooks/test_comparison.py",
    "notebooks/test_applications.py",
    "notebooks/test_prefetch_sizing.py",
    "notebooks/test_interrupted.py",
    "unit/experiment/test_order_checks.py",
    "unit/experiment/test_comparison.py",
    "unit/experiment/test_adapters.py",
    "unit/experiment/test_runs.py",
    "unit/reproduce/test_contrail.py",
    "unit/reproduce/test_mobius.py",
    "unit/reproduce/test_lab.py",
    "unit/reproduce/test_lasthop.py",
    "unit/exercises/test_stateful_policies.py",
    "unit/exercises/test_sender_filters.py",
    "unit/exercises/test_cache_policies.py",
    "unit/exercises/test_writer_predicates.py",
    "unit/systems/mud/test_hidden_in_a_lab.py",
    "unit/systems/contrail/device/test_connection.py",
    "unit/systems/sublim/check/test_charge.py",
    "unit/figures/test_messages.py",
    "unit/systems/radiator/engines/test_client_arrays.py",
    "unit/systems/radiator/study/test_applications.py",
    "unit/systems/contrail/test_odd_messages.py",
    "unit/systems/contrail/test_bounds.py",
    "unit/systems/contrail/test_lost_bursts.py",
    "unit/systems/lasthop/test_lost_bursts.py",
    "unit/figures/test_histories.py",
    "unit/figures/test_prefetching.py",
    "unit/figures/test_maps.py",
    "unit/widgets/test_policy_workbench.py",
    "unit/widgets/test_prefetch_lab.py",
    "unit/widgets/test_scoreboard.py",
    "unit/widgets/test_views_explorer.py",
    "unit/trace/test_generate.py",
    "unit/pipeline/test_commits.py",
    "unit/pipeline/launch/test_java.py",
    "unit/learning/test_export.py",
    "unit/learning/test_learnt_reads.py",
    "unit/report/test_caching.py",
    "unit/report/test_html.py",
    "unit/systems/contrail/test_restarts.py",
    "unit/systems/contrail/test_centres.py",
    "unit/sources/test_commute.py",
)
SPARK_FILES = ("tests/spark/", "tests/faults/test_killed_jobs.py")
"""Files that use the session of Spark."""
RECORDED_FIXTURES = {"cabspotting", "capmetrics", "driving_networks", "phone_log"}
"""Fixtures with recorded traces; tests that use them run only in the soak."""
MAX_SAMPLED_PER_FILE = 3
"""Maximum number of tests of a file in a sample of the soak."""
NEVER_SAMPLED = (
    "faults/test_killed_jobs.py",
    "faults/test_mud_campaign.py",
    "mutants/test_mutants.py",
    "spark/test_bad_sources.py",
    "spark/test_streaming.py",
    "unit/test_packaging.py",
    "unit/test_site.py",
)
"""Files with a test that takes over a minute in the soak or waits for another process: if a sample starts it late,
it does not end in time, and on a busy machine it may fail."""
UNSAMPLED_MARKERS = ("browser", "notebook")
"""Markers of tests that wait a minute for a browser or a kernel, which are excluded for the same reason."""


START_KEY, TREE_KEY = pytest.StashKey[float](), pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make quick`, `make soak` and `make sample`."""
    group = parser.getgroup("mudkit")
    group.addoption(
        "--soak", action="store_true", help="run what is long, with many examples, and nothing else"
    )
    group.addoption(
        "--quick", action="store_true", help="leave out the longest files and what starts processes"
    )
    group.addoption(
        "--long",
        choices=("drawn", "rest", "all"),
        default="drawn",
        help="of the long tests run those drawn for this tree, no other test than the rest of them, or all",
    )
    group.addoption(
        "--sample",
        type=float,
        metavar="SECONDS",
        help="with --soak: a few tests of each file in an order drawn from --hypothesis-seed; none starts later",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile before test modules are imported: `examples` multiplies by it."""
    if not config.getoption("--hypothesis-profile"):
        option = config.option
        settings.load_profile("sample" if option.sample else "soak" if option.soak else "test")
    config.stash[START_KEY] = time.monotonic()
    config.stash[TREE_KEY] = (
        config.workerinput["tree"] if hasattr(config, "workerinput") else read_tree_hash()
    )


def read_tree_hash() -> str:
    """Return the hash of the tree that is checked out, or nothing where there is no git."""
    command = ["git", "rev-parse", "--verify", "HEAD^{tree}"]
    try:
        return subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        return ""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Send the hash to xdist's workers: they must select the same tests, also after a commit during the run."""
    node.workerinput["tree"] = node.config.stash[TREE_KEY]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the files that use the session of Spark on one worker, and every other file on any.

    A session takes seconds to start and is slow at first, because its Java has yet to compile what it runs.
    """
    if config.option.dist != "loadfile" or config.option.soak:
        return None
    from xdist.scheduler import LoadFileScheduling

    class SparkOnOneWorker(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "tests/spark" if file.startswith(SPARK_FILES) else file

    return SparkOnOneWorker(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect tests without collecting garbage, and leave what is there then out of all later collections.

    A process holds millions of objects of modules and tests, which live until its end. Later collections are rarer
    than Python's, too: the tests are short, and hardly any of what they leave is in cycles.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        atexit.register(gc.unfreeze)  # not before: pytest collects garbage twice when it ends


def select_by_rotation(items: list[pytest.Item], seed: str) -> set[pytest.Item]:
    """Select the tests marked `soak(keep=n)` that `make test` runs: n of each function or group.

    A group is of one file, or with `shared=True` of all files.
    """
    groups: dict[tuple[str, str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("soak")
        if mark is not None and mark.kwargs:
            file = "all files" if mark.kwargs.get("shared") else str(item.path)
            key = (file, mark.kwargs.get("group", item.originalname), mark.kwargs["keep"])
            groups.setdefault(key, []).append(item)
    chosen = set()
    for (file, name, keep), group in groups.items():
        chosen.update(Random(f"{seed} {Path(file).name} {name}").sample(group, min(keep, len(group))))
    return chosen


def is_larger_in_soak(item: pytest.Item) -> bool:
    """Return whether a test is larger in the soak: it uses Hypothesis or the fixture `scaled`."""
    return "scaled" in item.fixturenames or getattr(item.obj, "is_hypothesis_test", False)


def draw_sample(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Draw a few tests of each file, with the files in random order."""
    draw = Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    excluded = {REPOSITORY / "tests" / name for name in NEVER_SAMPLED}
    for item in items:
        if item.path in excluded or any(map(item.get_closest_marker, UNSAMPLED_MARKERS)):
            continue
        files.setdefault(item.path, []).append(item)
    groups = [draw.sample(group, min(MAX_SAMPLED_PER_FILE, len(group))) for _, group in sorted(files.items())]
    draw.shuffle(groups)
    return [item for group in groups for item in group]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of `make test`, `make quick` or the soak, and start with the slowest files."""
    for item in items:
        if RECORDED_FIXTURES & {*item.fixturenames}:
            item.add_marker(pytest.mark.soak)
    soak = {item for item in items if item.get_closest_marker("soak")}
    undrawn = leave_out(items, config.args, config.stash[TREE_KEY])
    if config.option.soak:
        chosen = [item for item in items if item in soak | undrawn or is_larger_in_soak(item)]
    else:
        tests = set(items) - soak | select_by_rotation(items, config.stash[TREE_KEY])
        tests = {"drawn": tests - undrawn, "rest": tests & undrawn, "all": tests}[config.option.long]
        chosen = [item for item in items if item in tests]
    ranks = {REPOSITORY / "tests" / name: number for number, name in enumerate(SLOW_FILES)}
    named = [*ranks, *(REPOSITORY / "tests" / name for name in NEVER_SAMPLED)]
    if missing := [file for file in named if not file.is_file()]:
        raise pytest.UsageError(
            f"tests/conftest.py: SLOW_FILES or NEVER_SAMPLED has names of missing files: {missing}"
        )
    if config.option.quick:
        chosen = [
            item for item in chosen if item.path not in ranks and not item.get_closest_marker("process")
        ]
    chosen.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    if config.option.sample is not None:
        chosen = draw_sample(chosen, str(config.getoption("--hypothesis-seed")))
    if deselected := set(items) - set(chosen):
        config.hook.pytest_deselected(items=[item for item in items if item in deselected])
    items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Start no further test once a sample's time is over."""
    limit_s = item.config.option.sample
    return True if limit_s is not None and time.monotonic() - item.config.stash[START_KEY] > limit_s else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many tests a sample has started, which are few on a busy machine."""
    if config.option.sample is not None:
        started = sum(
            len(terminalreporter.getreports(name)) for name in ("passed", "failed", "skipped", "error")
        )
        terminalreporter.write_line(f"{started} tests started within {config.option.sample:g} s.")


@pytest.fixture(scope="session")
def scaled(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Return a function that selects the size for the soak or the one for `make test`."""
    return lambda soak, test: soak if request.config.option.soak else test


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Install Python's handler of Ctrl-C: a run that was started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def cabspotting() -> Path:
    """Return the recorded taxi trace, which is not part of this repository."""
    file = SHARED / "cabspotting_sf" / "cabs.csv.gz"
    if not file.is_file():
        pytest.skip("the recorded taxi trace is not on this machine")
    return file


@pytest.fixture(scope="session")
def capmetrics() -> Path:
    """Return the recorded bus positions of Austin (GTFS-realtime), which are not part of this repository."""
    file = SHARED / "capmetrics_austin" / "vehicle_positions.csv.gz"
    if not file.is_file():
        pytest.skip("the recorded bus positions are not on this machine")
    return file


@pytest.fixture(scope="session")
def driving_networks() -> Path:
    """Return the recorded throughput of five networks, which is not part of this repository."""
    file = SHARED / "mn_driving_networks" / "throughput.csv.gz"
    if not file.is_file():
        pytest.skip("the recorded throughput of driving networks is not on this machine")
    return file


@pytest.fixture(scope="session")
def phone_log() -> Path:
    """Return the folder of the recorded phone logs, which are not part of this repository."""
    folder = SHARED / "niimpy_phone"
    if not folder.is_dir():
        pytest.skip("the recorded phone logs are not on this machine")
    return folder


@pytest.fixture(scope="session")
def webhdfs_store() -> Iterator[WebHdfs]:
    """Serve a store that refuses to rename and to append."""
    from webhdfs_server import webhdfs_server

    with webhdfs_server() as server:
        yield server


@pytest.fixture
def webhdfs(webhdfs_store: WebHdfs) -> Iterator[WebHdfs]:
    """Return the store, and restore the rights that a test takes away in it."""
    yield webhdfs_store
    webhdfs_store.forbidden.clear()


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """Serve Amazon's S3 on this machine, and return the address of a bucket; no other host is asked."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="traces")
        yield "s3://traces"
    server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start one Spark session for all tests of a process, with memory for what Spark keeps of all of them.

    Without the lines of code that errors of Spark name: to send them to Java takes a fifth of the time of a test.
    """
    from mudkit import pipeline

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUDKIT_SPARK_MEMORY", "1536m")
        session = pipeline.session(config={"spark.python.sql.dataFrameDebugging.enabled": "false"})
    yield session
    pipeline.stop()


@pytest.fixture
def csv_file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a CSV file from a header and rows."""

    def write(header: str, rows: Sequence[str], name: str = "trace.csv") -> Path:
        text = "\n".join([header, *rows]) + "\n"
        file = tmp_path / name
        file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return file

    return write
