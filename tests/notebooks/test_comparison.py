"""Comparisons by the command, and the figures that each report's summary has on its sample."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from report_cells import run_cells
from report_measures import write_measured_template
from report_pages import read_html
from report_summaries import assert_valid, documented, write_run
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.report import compare_runs, read_summary, run_report
from mudkit.report.page import SUMMARY
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES
from mudkit.report.summary import write_summary

pytestmark = pytest.mark.notebook
TIMEOUT_S = 300
CALL = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
import mudkit.report.run as run
run._TEMPLATES = Path(sys.argv.pop(1))
from mudkit.cli import main
main()
"""
DAYS = ("2010-03-01/2010-03-04", "2010-03-04/2010-03-07")


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    return write_measured_template(tmp_path_factory.mktemp("templates") / "templates")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return tmp_path_factory.mktemp("build")


@pytest.fixture
def command(templates, build, monkeypatch):
    """Run `mudkit report trace_profile` in this process."""
    monkeypatch.setattr("mudkit.report.run._TEMPLATES", templates)

    def call(*arguments):
        words = ["report", "trace_profile", *arguments, "--out", str(build)]
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return call


def start_command(templates, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", CALL, str(templates), "report", "trace_profile", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_two_periods_are_compared_and_finished_runs_reused(command, build):
    arguments = ["--preset", "sample", "-p", f"period={DAYS[0]}", "--against", f"period={DAYS[1]}"]
    result = command(*arguments)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) == 3
    folder = Path(lines[2].split("  ")[0]).parent
    assert folder.name.startswith("compare-trace_profile-")
    assert {place.name for place in folder.iterdir()} == {
        "report.html", "report.ipynb", "summary.json", "manifest.json", "data",
    }  # fmt: skip
    summary = read_summary(folder)
    assert_valid(summary)
    assert lines[2].endswith(summary.headline)
    this, other = (read_summary(Path(line.split("  ")[0]).parent) for line in lines[:2])
    for run in (this, other):
        assert_valid(run)
    shift = this["moving_share"].value - other["moving_share"].value
    assert summary["moving_share_difference"].value == pytest.approx(shift)
    assert "2010-03-01 to 2010-03-04 against 2010-03-04 to 2010-03-07" in read_html(folder)
    assert "only rows from 2010-03-01 to 2010-03-04" in read_html(this.folder)

    again = command(*arguments, "--fail-above", "moving_share=0.5")
    assert (again.exit_code, again.output) == (0, result.output)
    limits = ["--fail-above", f"moving_share={abs(shift) / 2}", "--fail-above", "devices=100"]
    by_chance = command(*arguments, *limits)
    assert (by_chance.exit_code, by_chance.stdout) == (0, result.stdout)
    assert by_chance.stderr.count("\n") == 1
    assert "mudkit: within chance: moving_share differs by" in by_chance.stderr
    above = command(*arguments, *limits, "--fail-above", "span_s=0")
    assert above.exit_code == 1
    assert above.stdout == result.stdout
    assert above.stderr.count("\n") == 2
    assert "mudkit: above the limit: span_s differs by" in above.stderr
    assert len(list(build.iterdir())) == 3

    finished = command("--preset", "sample", "-p", f"period={DAYS[0]}", "--against", str(other.folder))
    assert finished.output == result.output


@pytest.mark.soak
def test_two_traces_are_compared_by_a_predicate(command):
    result = command(
        "--preset", "sample", "--where", "lat > 35.4",
        "--against", "data/commute/positions.csv.gz", "--against", "reads=data/commute/reads.csv.gz",
    )  # fmt: skip
    assert result.exit_code == 0
    folder = Path(result.output.splitlines()[2].split("  ")[0]).parent
    assert "data/sample/positions.csv.gz against data/commute/positions.csv.gz" in read_html(folder)


@pytest.mark.soak(keep=1, group="processes")
def test_exit_status_of_a_process_tells_that_a_limit_is_passed(templates, command, build):
    arguments = ["--preset", "sample", "-p", f"period={DAYS[0]}", "--against", f"period={DAYS[1]}"]
    command(*arguments)
    process = start_command(templates, *arguments, "--fail-above", "span_s=0", "--out", str(build))
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, len(output.splitlines())) == (1, 3), errors
    assert errors.startswith("mudkit: above the limit: span_s differs by ")
    process = start_command(templates, *arguments, "--fail-above", "spann_s=0", "--out", str(build))
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith("mudkit: error: The report trace_profile has no measure 'spann_s'.")


@pytest.mark.soak(keep=1, group="processes")
def test_interrupted_second_run_leaves_the_finished_first_alone(templates, tmp_path):
    out = tmp_path / "build"
    arguments = [
        "--preset",
        "sample",
        "-p",
        f"period={DAYS[0]}",
        "--against",
        f"period={DAYS[1]}",
        "--out",
        str(out),
    ]
    with start_command(templates, *arguments) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while (
            not (list(out.glob("trace_profile-*")) and list(out.glob(".*.partial-*")))
            and process.poll() is None
        ):
            assert time.monotonic() < deadline, "it does not come so far"
            time.sleep(0.02)
        assert process.poll() is None, process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (130, "mudkit: stopped\n")
    (left,) = out.iterdir()
    assert read_summary(left).report == "trace_profile"


@pytest.mark.soak(keep=1, group="processes")
def test_selection_that_leaves_nothing_fails_in_words(tmp_path):
    command = ["report", "propagation", "--preset", "sample", "--where", "lat > 80", "--out", str(tmp_path)]
    process = subprocess.run(
        [sys.executable, "-m", "mudkit", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(
        "mudkit: error: The selection leaves no position.\n  where:    where=lat > 80\n"
    )


def test_periods_of_recorded_taxis_are_compared(cabspotting, command):
    days = ["2008-05-18/2008-05-21", "2008-05-21/2008-05-24"]
    result = command(
        "-p", f"trace={cabspotting}", "-p", "tz=America/Los_Angeles", "-p", f"period={days[0]}",
        "--against", f"period={days[1]}", "--fail-above", "devices=50",
    )  # fmt: skip
    assert result.exit_code == 0
    summary = read_summary(Path(result.output.splitlines()[2].split("  ")[0]).parent)
    assert summary["devices_difference"].value == 184 - 187


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(
            name,
            marks=pytest.mark.soak
            if name in ("cache_policy", "scoreboard")
            else pytest.mark.soak(keep=1, group="templates run", shared=True),
        )
        for name in TEMPLATES
    ],
)
def test_measures_of_the_sample_are_valid_and_listed_in_the_guide(template, tmp_path):
    """The guide lists the measures of a report from its first one on: run tools/measures.py."""
    notebook = run_cells(template, preset(template, "sample"), tmp_path)
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    (shown,) = (output["data"][SUMMARY] for output in outputs if SUMMARY in output["data"])
    write_summary(tmp_path, template, shown)
    summary = read_summary(tmp_path)
    assert_valid(summary)
    measures = [(name, measure.unit) for name, measure in summary.measures.items()]
    assert measures == documented().get(template, [])


@pytest.mark.soak
def test_summary_of_a_run_has_the_headline_of_its_manifest(tmp_path):
    folder = run_report(
        "prefetch_sizing", preset("prefetch_sizing", "sample"), build=tmp_path, progress=False
    )
    summary = read_summary(folder)
    assert summary.headline == json.loads((folder / "manifest.json").read_text())["headline"]
    measures = list(summary.measures.values())
    other = write_run(tmp_path / "old", "propagation", measures)
    (other / "summary.json").write_text((folder / "summary.json").read_text())
    (other / "manifest.json").write_text((folder / "manifest.json").read_text())
    assert compare_runs(folder, other, build=tmp_path).folder.is_dir()
