"""Ctrl-C in a report, as a terminal sends it: one plain line, status 130, and no files left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from mudkit.report import ReportFailed, run_report
from mudkit.report.parameters import preset
from mudkit.report.run import _TEMPLATES

pytestmark = [pytest.mark.notebook]
TIMEOUT_S = 300  # takes seconds on an idle machine


def start_report(*arguments, folder):
    """Start a report as a shell does: in a separate process group, with Ctrl-C not ignored."""
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from mudkit.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "report", *arguments, "--out", str(folder / "new" / "build")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path.cwd(),
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        pytest.param(["prefetch_sizing", "--preset", "sample"], "*.ipynb", marks=pytest.mark.soak(keep=1)),
        pytest.param(
            ["cache_policy", "--preset", "sample", "--spark"],
            "work/*",
            marks=[pytest.mark.spark, pytest.mark.soak],
        ),
        pytest.param(
            ["trace_profile", "--preset", "sample"],
            "data/*",
            marks=[pytest.mark.spark, pytest.mark.soak(keep=1)],
        ),
    ],
    ids=["without Spark", "while a trace is read", "between cells"],
)
def test_interrupted_report_prints_one_line_and_leaves_no_files(tmp_path, arguments, pattern):
    """Wait for the end of all processes that it started, such as Java."""
    (tmp_path / "tmp").mkdir()
    with start_report(*arguments, folder=tmp_path) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not list(tmp_path.glob(f"new/build/.*.partial-*/{pattern}")) and process.poll() is None:
            assert time.monotonic() < deadline, "it does not come so far"
            time.sleep(0.02)
        assert process.poll() is None, process.stderr.read()
        started = psutil.Process(process.pid).children(recursive=True)
        assert ("java" in [child.name() for child in started]) == ("--spark" in arguments)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (130, "", "mudkit: stopped\n")
    _, left = psutil.wait_procs(started, timeout=TIMEOUT_S)
    assert not left
    assert [file.name for file in tmp_path.iterdir()] == ["tmp"]
    assert not list((tmp_path / "tmp").glob("mudkit-*"))


def replace_first_cell(cell, tmp_path, monkeypatch):
    """Replace the cells of prefetch_sizing after its first two by a given one."""
    notebook = nbformat.read(_TEMPLATES / "prefetch_sizing.ipynb", as_version=4)
    notebook.cells = [*notebook.cells[:2], nbformat.v4.new_code_cell(cell)]
    nbformat.write(notebook, tmp_path / "prefetch_sizing.ipynb")
    monkeypatch.setattr("mudkit.report.run._TEMPLATES", tmp_path)


@pytest.mark.soak
def test_interrupt_of_the_kernel_alone_stops_the_report(tmp_path, monkeypatch):
    replace_first_cell("raise KeyboardInterrupt", tmp_path, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_report("prefetch_sizing", {}, build=tmp_path / "build")
    assert not (tmp_path / "build").exists()


def test_dead_kernel_is_reported_with_its_output(tmp_path, monkeypatch, capfd):
    replace_first_cell(
        "import os; os.write(2, b'out of memory'); os.kill(os.getpid(), 9)", tmp_path, monkeypatch
    )
    with pytest.raises(ReportFailed, match=r"The kernel of the report died"):
        run_report("prefetch_sizing", {}, build=tmp_path / "build")
    (failed,) = (tmp_path / "build").iterdir()
    assert failed.name.endswith(".failed")
    assert (failed / "kernel.txt").is_file()
    assert capfd.readouterr().err == ""


@pytest.mark.soak
@pytest.mark.spark
def test_report_on_spark_without_java_tells_what_to_do(tmp_path, monkeypatch):
    """Keep no half page: the folder of the failed run has the notebook and the error."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ReportFailed, match="names no Java that Spark can run on") as caught:
        run_report("propagation", preset("propagation", "sample") | {"spark": True}, build=tmp_path / "build")
    assert "unset JAVA_HOME" in str(caught.value)
    (failed,) = (tmp_path / "build").iterdir()
    assert failed.name.endswith(".failed")
    assert not (failed / "report.html").exists()
