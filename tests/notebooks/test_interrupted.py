"""Ctrl-C in a report, as a terminal sends it: one plain line, status 130, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from mudkit.report import ReportFailed, run_report
from mudkit.report.run import _TEMPLATES

pytestmark = [pytest.mark.notebook]
PATIENCE_S = 300  # a guard: seconds on a quiet machine


def started(*arguments, folder):
    """Start a report as a shell does: in a group of processes of its own, and with Ctrl-C not ignored."""
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
    ("arguments", "there"),
    [
        (["prefetch_sizing", "--preset", "sample"], "*.ipynb"),
        pytest.param(
            ["cache_policy", "--preset", "sample"], "work/*", marks=[pytest.mark.spark, pytest.mark.soak]
        ),
        pytest.param(["trace_profile", "--preset", "sample"], "data/*", marks=pytest.mark.spark),
    ],
    ids=["without Spark", "while a trace is read", "between cells"],
)
def test_an_interrupted_report_says_one_line_and_leaves_nothing(tmp_path, arguments, there):
    (tmp_path / "tmp").mkdir()
    with started(*arguments, folder=tmp_path) as process:
        past = time.monotonic() + PATIENCE_S
        while not list(tmp_path.glob(f"new/build/.*.partial-*/{there}")) and process.poll() is None:
            assert time.monotonic() < past, "it does not come so far"
            time.sleep(0.02)
        assert process.poll() is None, process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, said) == (130, "", "mudkit: stopped\n")
    assert [file.name for file in tmp_path.iterdir()] == ["tmp"]
    assert not list((tmp_path / "tmp").glob("mudkit-*"))


def replaced(cell, tmp_path, monkeypatch):
    """Let prefetch_sizing have a first cell of one's own."""
    notebook = nbformat.read(_TEMPLATES / "prefetch_sizing.ipynb", as_version=4)
    notebook.cells = [*notebook.cells[:2], nbformat.v4.new_code_cell(cell)]
    nbformat.write(notebook, tmp_path / "prefetch_sizing.ipynb")
    monkeypatch.setattr("mudkit.report.run._TEMPLATES", tmp_path)


@pytest.mark.soak
def test_an_interrupt_that_reaches_the_kernel_alone_stops_the_report(tmp_path, monkeypatch):
    replaced("raise KeyboardInterrupt", tmp_path, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_report("prefetch_sizing", {}, build=tmp_path / "build")
    assert not (tmp_path / "build").exists()


def test_a_kernel_that_dies_is_told_with_what_it_said(tmp_path, monkeypatch, capfd):
    replaced("import os; os.write(2, b'out of memory'); os.kill(os.getpid(), 9)", tmp_path, monkeypatch)
    with pytest.raises(ReportFailed, match=r"The kernel of the report died"):
        run_report("prefetch_sizing", {}, build=tmp_path / "build")
    (failed,) = (tmp_path / "build").iterdir()
    assert failed.name.endswith(".failed")
    assert (failed / "kernel.txt").is_file()
    assert capfd.readouterr().err == ""
