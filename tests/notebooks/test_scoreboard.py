"""The report scoreboard, run for real on small tasks."""

from __future__ import annotations

import json
import re

import nbformat
import pyarrow.parquet as pq
import pytest

from mudkit.report import run_report
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.soak]
SMALL = {
    "tasks": ["news with ranks", "traffic alerts"],
    "systems": ["to everyone", "Contrail", "SUBLIM"],
    "devices": 4,
    "length": 0.15,
    "scenarios": 2,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    given = preset("scoreboard", "sample") | SMALL
    return run_report("scoreboard", given, build=tmp_path_factory.mktemp("build"), progress=False)


def words(report):
    notebook = nbformat.read(report / "report.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.get("text")
    return " ".join(
        each["data"]["text/markdown"] for each in outputs if "text/markdown" in each.get("data", {})
    )


def test_what_it_leaves(report):
    assert {file.stem for file in (report / "data").iterdir()} == {
        "runs",
        "measures",
        "differences",
        "latencies",
        "devices",
        "privacy",
        "orders",
    }
    runs = pq.read_table(report / "data" / "runs.parquet").to_pandas()
    assert len(runs) == 2 * 3 * 2
    assert runs.groupby(["task", "seed"])["digest"].nunique().eq(1).all()
    manifest = json.loads((report / "manifest.json").read_text())
    assert manifest["inputs"] == {}
    assert manifest["seed"] == 0
    assert (
        manifest["parameters"]
        == TEMPLATES["scoreboard"](**preset("scoreboard", "sample") | SMALL).model_dump()
    )


def test_what_is_said_is_what_was_found(report):
    runs = pq.read_table(report / "data" / "runs.parquet").to_pandas()
    said = words(report)
    wanted = runs[runs["system"] == "SUBLIM"]["wanted"].sum()
    assert f"**12 runs**: 2 tasks, 3 systems, 2 seeds; {wanted:,} pairs" in said
    for task, rows in runs.groupby("task"):
        means = rows.groupby("system")[["j_per_useful", "useful_share"]].mean()
        cheapest = means["j_per_useful"].idxmin()
        assert re.search(rf"- {task}: \*\*[^*]*{cheapest}", said), "the cheapest is never beaten"


def test_the_page_needs_no_network_and_has_its_figures(report):
    html = (report / "report.html").read_text()
    assert html.count('class="mudkit-figure"') == 4
    assert "Traceback" not in html
    assert "writer predicates and a daily limit" in html
    assert "Nothing is chosen on the way" in html
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html)
