"""Progress of a report run: expected duration, stages, and the final line."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from typer.testing import CliRunner

from mudkit import report as reports
from mudkit.cli import app
from mudkit.report import run
from mudkit.report.parameters import check, preset
from mudkit.report.run import _TEMPLATES, _expected_s, kernel_manager
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
def test_duration_and_first_stage_are_printed_before_heavy_imports(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", BEFORE_IMPORTS, str(tmp_path)],
        env=os.environ | {"MUDKIT_PROGRESS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = process.stderr.splitlines()
    assert first == "prefetch_sizing: takes about 30 s on two quiet cores"
    assert second.split() == ["0", "s", "starting"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_report_names_its_stages_from_the_first_cell(name):
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


def test_page_ends_with_the_command_that_makes_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_execute", lambda notebook, *_: notebook)
    folder = run.run_report("prefetch_sizing", {"draws": 3}, build=tmp_path, progress=False)
    text = " ".join(re.sub(r"<[^>]*>", " ", (folder / "report.html").read_text(encoding="utf-8")).split())
    end = text.partition("Provenance")[2]
    assert "To make this page again: mudkit report prefetch_sizing" in end
    assert "--param draws=3" in end


def test_expected_duration_depends_on_the_parameters():
    def compute_expected_s(name, **changes):
        return _expected_s(name, check(name, preset(name, "sample") | changes), [])

    assert compute_expected_s("scoreboard") < 90
    assert compute_expected_s("scoreboard", devices=80) > 2 * compute_expected_s("scoreboard", scenarios=0)
    assert compute_expected_s("scoreboard", tasks=["ward telemetry"]) > compute_expected_s(
        "scoreboard", tasks=["photo sharing"]
    )
    assert compute_expected_s("prefetch_sizing", draws=100) > 2 * compute_expected_s("prefetch_sizing")


def test_expected_duration_grows_with_the_messages_of_a_log(tmp_path):
    """A log is counted as if it were packed; its rows are the messages that are prefetched with each setting."""
    durations_s = []
    for rows in (100_000, 200_000, 300_000):
        log = tmp_path / f"{rows}.csv"
        log.write_bytes(b"1700000000.000000,0.123\n" * rows)
        values = check("prefetch_sizing", preset("prefetch_sizing", "sample"))
        durations_s.append(_expected_s("prefetch_sizing", values, [log]))
    first, second = (later - earlier for earlier, later in itertools.pairwise(durations_s))
    assert first == pytest.approx(second)
    assert first > 100, "each of 100,000 messages takes over a millisecond"


def test_final_line_has_path_and_headline(tmp_path, monkeypatch):
    (tmp_path / "manifest.json").write_text(json.dumps({"headline": "Keep the rule."}))
    monkeypatch.setattr(reports, "run_report", lambda *arguments, **options: tmp_path)
    output = CliRunner().invoke(app, ["report", "prefetch_sizing"], catch_exceptions=False).output
    assert output == f"{tmp_path / 'report.html'}  Keep the rule.\n"


def test_kernels_give_freed_memory_back_unless_the_user_has_another_setting(tmp_path, monkeypatch):
    launched = {}

    async def launch(manager, command, **options):
        launched.update(options)

    monkeypatch.setattr(AsyncKernelManager, "_async_launch_kernel", launch)
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    asyncio.run(kernel_manager(tmp_path / "log")()._async_launch_kernel(["python"]))
    assert launched["env"]["MALLOC_TRIM_THRESHOLD_"] == str(4 << 20)
    assert launched["env"]["ARROW_DEFAULT_MEMORY_POOL"] == "mimalloc"
    assert launched["env"]["PATH"] == os.environ["PATH"]
