"""Progress bar of Spark work: shown for long work, removed afterwards. Tasks wait for a pipe, not a clock."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mudkit.pipeline._progress import progress
from mudkit.progress import is_enabled

bars = sys.modules[progress.__module__]  # the package exports the function under this name

pytestmark = pytest.mark.spark


class Screen(io.StringIO):
    """Stream that records drawings and calls a function when the bar first shows tasks."""

    def __init__(self, action):
        super().__init__()
        self.action = action

    def write(self, text):
        count = super().write(text)
        if "tasks" in text and self.action is not None:
            action, self.action = self.action, None
            action()
        return count


def waits(pipe):
    """Return a function for `mapInArrow` that finishes when the pipe is opened for writing."""
    path = str(pipe)

    def wait(batches):
        with Path(path).open():
            yield from batches

    return wait


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


class Release:
    """Opening of a pipe: waiting tasks continue, and later ones do not wait."""

    def __init__(self, pipe):
        self.pipe, self.descriptors = pipe, []

    def __call__(self):
        self.descriptors.append(os.open(self.pipe, os.O_RDWR))


@pytest.fixture
def release(pipe):
    """Open the pipe after a minute at the latest, else a mistake would block the test for ever."""
    release = Release(pipe)
    rescue = threading.Timer(60, release)
    rescue.daemon = True
    rescue.start()
    yield release
    rescue.cancel()
    for descriptor in release.descriptors:
        os.close(descriptor)


@pytest.fixture(autouse=True)
def enable_progress(monkeypatch):
    monkeypatch.setenv("MUDKIT_PROGRESS", "1")
    monkeypatch.setattr(bars, "_PATIENCE_S", 0.0)


def last_line(text: str) -> str:
    return text.replace("\n", "\r").split("\r")[-1].strip()


def drawing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mudkit-progress"]


def test_long_work_shows_its_tasks_and_clears_the_line(spark, pipe, release, monkeypatch):
    screen = Screen(release)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress(spark, "counting cells"):
        rows = spark.range(0, 6, 1, 2).mapInArrow(waits(pipe), "id long").collect()
    assert len(rows) == 6
    assert "counting cells:   0%" in screen.getvalue()
    assert "0/2 tasks" in screen.getvalue()
    assert last_line(screen.getvalue()) == ""
    assert drawing_threads() == []


def test_short_work_shows_nothing(spark, monkeypatch):
    monkeypatch.setattr(bars, "_PATIENCE_S", 3600.0)
    screen = Screen(None)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress(spark, "counting"):
        assert spark.range(3).count() == 3
    assert screen.getvalue() == ""
    assert drawing_threads() == []


@pytest.mark.parametrize("setting", [None, "0", "off"])
def test_nothing_is_drawn_without_a_terminal(spark, monkeypatch, setting):
    if setting is None:
        monkeypatch.delenv("MUDKIT_PROGRESS")
    else:
        monkeypatch.setenv("MUDKIT_PROGRESS", setting)
    monkeypatch.setattr(sys, "stderr", Screen(None))
    with progress(spark, "counting"):
        assert drawing_threads() == []


def test_progress_is_enabled_on_a_terminal(monkeypatch):
    monkeypatch.delenv("MUDKIT_PROGRESS")
    screen = Screen(None)
    monkeypatch.setattr(sys, "stderr", screen)
    assert not is_enabled()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    assert is_enabled()
    monkeypatch.setenv("MUDKIT_PROGRESS", "0")
    assert not is_enabled()


def test_nested_work_shares_one_bar(spark):
    with progress(spark, "outer"):
        with progress(spark, "inner"):
            assert len(drawing_threads()) == 1
        assert len(drawing_threads()) == 1
    assert drawing_threads() == []


def test_errors_of_the_work_are_raised(spark):
    with pytest.raises(ZeroDivisionError), progress(spark, "dividing"):
        raise ZeroDivisionError
    assert drawing_threads() == []
    assert spark.getTags() == set()


@pytest.mark.parametrize("method", ["counts", "close"])
def test_errors_of_the_bar_are_suppressed(spark, monkeypatch, method):
    called = threading.Event()

    def fail(*_):
        called.set()
        raise RuntimeError("broken")

    monkeypatch.setattr(bars._Classic, method, fail)
    with progress(spark, "counting"):
        if method == "counts":
            assert called.wait(60)
        assert spark.range(3).count() == 3
    assert called.is_set()
    assert drawing_threads() == []


@pytest.mark.parametrize("action", ["collect", "toPandas"])
def test_interrupt_ends_the_jobs_and_leaves_the_session_usable(
    spark, pipe, release, monkeypatch, action, caplog
):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    screen = Screen(lambda: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(sys, "stderr", screen)
    tracker = spark.sparkContext.statusTracker()
    try:
        waiting = spark.range(0, 8, 1, 8).mapInArrow(waits(pipe), "id long")
        with pytest.raises(KeyboardInterrupt), progress(spark, "waiting"):
            getattr(waiting, action)()
        assert spark.range(3).count() == 3
        # The tracker receives job events through a queue that lags on a busy machine.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        assert list(tracker.getActiveJobsIds()) == []
        assert release.descriptors == [], "the job was not ended"
    finally:
        signal.signal(signal.SIGINT, previous)
    assert last_line(screen.getvalue()) == ""
    assert caplog.records == []
    assert drawing_threads() == []


CONNECT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_progress import Screen, drawing_threads, last_line, waits
from mudkit import pipeline
from mudkit.pipeline import progress

bars = sys.modules[progress.__module__]
bars._PATIENCE_S = 0.0
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what runs in the background
spark = pipeline.session(remote="local[2]")
pipe = Path("pipe")
os.mkfifo(pipe)
true = sys.stderr

sys.stderr = screen = Screen(lambda: os.open(pipe, os.O_RDWR))
with progress(spark, "counting cells"):
    rows = spark.range(0, 6, 1, 2).mapInArrow(waits(pipe.absolute()), "id long").collect()
assert len(rows) == 6
assert "counting cells:   0%" in screen.getvalue(), screen.getvalue()
assert "0/2 tasks" in screen.getvalue(), screen.getvalue()
assert last_line(screen.getvalue()) == ""
assert drawing_threads() == []
assert spark.client._progress_handlers == []

pipe = Path("other")
os.mkfifo(pipe)
sys.stderr = screen = Screen(lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    with progress(spark, "waiting"):
        spark.range(0, 8, 1, 8).mapInArrow(waits(pipe.absolute()), "id long").collect()
except KeyboardInterrupt:
    interrupted = True
sys.stderr = true
assert interrupted
assert last_line(screen.getvalue()) == ""
assert spark.range(3).count() == 3
"""


@pytest.mark.soak
def test_spark_connect_reports_progress_and_is_interrupted(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", CONNECT.format(tests=str(Path(__file__).parent))],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (process.returncode, process.stderr) == (0, "")
