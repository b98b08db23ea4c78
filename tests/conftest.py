"""What all tests share: recorded traces where they are there, and small traces made by hand."""

from __future__ import annotations

import gzip
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In `make test` examples come from the test's name, so that a run repeats. The soak draws them from
# --hypothesis-seed. A mutant has to survive more of them than `make test` draws. A slow machine is no failure.
settings.register_profile("test", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("mutants", settings.get_profile("test"), max_examples=100)
settings.register_profile("soak", deadline=None, database=None, max_examples=1000, print_blob=True)
settings.register_profile("sample", settings.get_profile("soak"), max_examples=200)
settings.load_profile("test")

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared" / "data"


# Files that take longest, in this order: with a file at a time on each worker, a long one must not begin last.
# `make quick` leaves them out.
LONGEST = (
    "notebooks/test_chapters.py",
    "browser/test_lab.py",
    "unit/exercises/test_scoreboard.py",
    "unit/exercises/test_grading.py",
    "spark/test_predicates.py",
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
    "unit/pipeline/test_resume.py",
    "unit/pipeline/launch/test_java.py",
    "unit/learning/test_export.py",
    "unit/learning/test_learnt_reads.py",
    "unit/report/test_caching.py",
    "unit/report/test_html.py",
    "unit/systems/contrail/test_restarts.py",
    "unit/systems/contrail/test_centres.py",
    "unit/sources/test_commute.py",
)
RECORDED = {"cabspotting", "capmetrics", "driving_networks", "phone_log"}
"""Fixtures that give recorded traces: what reads them is left to the soak."""
PER_FILE = 3
"""How many tests of a file a sample of the soak takes."""
NEVER_SAMPLED = (
    "faults/test_killed_jobs.py",
    "faults/test_mud_campaign.py",
    "faults/test_mutations.py",
    "spark/test_streaming.py",
    "unit/test_packaging.py",
    "unit/test_site.py",
)
"""Files in which a test of the soak takes over a minute, or waits for what another process has done meanwhile: a sample
that starts it late would not end in time, and on a busy machine it may fail."""
UNSAMPLED_MARKERS = ("browser", "notebook")
"""Markers of tests that wait for a browser or a kernel for a minute: the same holds for them."""


STARTED, TREE = pytest.StashKey[float](), pytest.StashKey[str]()


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
    config.stash[STARTED] = time.monotonic()
    config.stash[TREE] = config.workerinput["tree"] if hasattr(config, "workerinput") else tree()


def tree() -> str:
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
    """Give the hash to xdist's workers: they must choose the same tests, also when somebody commits meanwhile."""
    node.workerinput["tree"] = node.config.stash[TREE]


def kept_by_rotation(items: list[pytest.Item], seed: str) -> set[pytest.Item]:
    """Choose those of the tests marked `soak(keep=n)` that `make test` runs: n of each function, or of a group."""
    groups: dict[tuple[Path, str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("soak")
        if mark is not None and mark.kwargs:
            key = (item.path, mark.kwargs.get("group", item.originalname), mark.kwargs["keep"])
            groups.setdefault(key, []).append(item)
    chosen = set()
    for (path, name, keep), group in groups.items():
        chosen.update(Random(f"{seed} {path.name} {name}").sample(group, min(keep, len(group))))
    return chosen


def is_larger_in_soak(item: pytest.Item) -> bool:
    """Return whether a test tries more in the soak: Hypothesis's, and those that ask for `scaled`."""
    return "scaled" in item.fixturenames or getattr(item.obj, "is_hypothesis_test", False)


def sample(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Draw a few tests of each file, the files in a drawn order."""
    draw = Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    never = {REPOSITORY / "tests" / name for name in NEVER_SAMPLED}
    for item in items:
        if item.path in never or any(map(item.get_closest_marker, UNSAMPLED_MARKERS)):
            continue
        files.setdefault(item.path, []).append(item)
    drawn = [draw.sample(group, min(PER_FILE, len(group))) for _, group in sorted(files.items())]
    draw.shuffle(drawn)
    return [item for group in drawn for item in group]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests to the soak, or the rest out of it, and begin with the longest files."""
    for item in items:
        if RECORDED & {*item.fixturenames}:
            item.add_marker(pytest.mark.soak)
    soak = {item for item in items if item.get_closest_marker("soak")}
    if config.option.soak:
        chosen = [item for item in items if item in soak or is_larger_in_soak(item)]
    else:
        left = soak - kept_by_rotation(items, config.stash[TREE])
        chosen = [item for item in items if item not in left]
    place = {REPOSITORY / "tests" / name: number for number, name in enumerate(LONGEST)}
    named = [*place, *(REPOSITORY / "tests" / name for name in NEVER_SAMPLED)]
    if gone := [file for file in named if not file.is_file()]:
        raise pytest.UsageError(f"tests/conftest.py: LONGEST or NEVER_SAMPLED name what is not there: {gone}")
    if config.option.quick:
        chosen = [
            item for item in chosen if item.path not in place and not item.get_closest_marker("process")
        ]
    chosen.sort(key=lambda item: place.get(item.path, len(place)))
    if config.option.sample is not None:
        chosen = sample(chosen, str(config.getoption("--hypothesis-seed")))
    if others := set(items) - set(chosen):
        config.hook.pytest_deselected(items=[item for item in items if item in others])
    items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Start no further test once a sample's time is over."""
    limit_s = item.config.option.sample
    return True if limit_s is not None and time.monotonic() - item.config.stash[STARTED] > limit_s else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests a sample has started: a busy machine starts few."""
    if config.option.sample is not None:
        started = sum(
            len(terminalreporter.getreports(name)) for name in ("passed", "failed", "skipped", "error")
        )
        terminalreporter.write_line(f"{started} tests started within {config.option.sample:g} s.")


@pytest.fixture(scope="session")
def scaled(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """Choose between a size for the soak and one for `make test`."""
    return lambda soak, test: soak if request.config.option.soak else test


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
