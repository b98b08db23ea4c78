"""What a person sees of a report that runs: how long it takes, its stages, and one line at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import nbformat
import pytest
from typer.testing import CliRunner

from mudkit import report as reports
from mudkit.cli import app
from mudkit.report.parameters import check, preset
from mudkit.report.run import _TEMPLATES, _expected_s
from mudkit.report.schemas import TEMPLATES

BEFORE_IMPORTS = """
import sys
sys.modules["nbformat"] = None  # importing it fails
from mudkit.report import run_report
try:
    run_report("prefetch_sizing", {}, build=sys.argv[1])
except ImportError:
    pass
"""


@pytest.mark.process
def test_duration_and_first_stage_are_named_before_anything_heavy_is_loaded(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_IMPORTS, str(tmp_path)],
        env=os.environ | {"MUDKIT_PROGRESS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = done.stderr.splitlines()
    assert first == "prefetch_sizing: takes about 20 s on two quiet cores"
    assert second.split() == ["0", "s", "starting"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_report_names_its_stages_from_the_first_cell_on(name):
    notebook = nbformat.read(_TEMPLATES / f"{name}.ipynb", as_version=4)
    code = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "parameters" not in cell.metadata.get("tags", [])
    ]
    stages = [cell.metadata["stage"] for cell in code if "stage" in cell.metadata]
    assert code[0].metadata.get("stage") == "loading"
    assert len(stages) >= 4
    assert len(set(stages)) == len(stages)


def test_the_expected_duration_follows_the_parameters():
    def expected_s(name, **changes):
        return _expected_s(name, check(name, preset(name, "sample") | changes), [])

    assert expected_s("scoreboard") < 60
    assert expected_s("scoreboard", devices=80) > 2 * expected_s("scoreboard", scenarios=0)
    assert expected_s("scoreboard", tasks=["ward telemetry"]) > expected_s(
        "scoreboard", tasks=["photo sharing"]
    )
    assert expected_s("prefetch_sizing", draws=100) > 2 * expected_s("prefetch_sizing")


def test_one_line_at_the_end_has_path_and_headline(tmp_path, monkeypatch):
    (tmp_path / "manifest.json").write_text(json.dumps({"headline": "Keep the rule."}))
    monkeypatch.setattr(reports, "run_report", lambda *given, **options: tmp_path)
    said = CliRunner().invoke(app, ["report", "prefetch_sizing"], catch_exceptions=False).output
    assert said == f"{tmp_path / 'report.html'}  Keep the rule.\n"
