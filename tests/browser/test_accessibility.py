"""Accessibility of report pages in both themes: axe-core finds nothing serious or critical."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pandas as pd
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from report_cells import run_cells

from mudkit.report import save_page
from mudkit.report.html import export_html
from mudkit.report.overview import write_index
from mudkit.report.parameters import check, preset
from mudkit.report.run import provenance
from mudkit.report.schemas import TEMPLATES

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "assets" / "vendor" / "axe.min.js"
SMALL_PARAMETERS = {
    "prefetch_sizing": {"days": 6, "draws": 2},
    "scoreboard": {"tasks": ["traffic alerts"], "devices": 4, "length": 0.1, "seeds": 2, "scenarios": 1},
}


def find_violations(visit, file, theme):
    """Return the serious and critical violations of a page with its folded parts open, one line each."""
    page = visit(file).page
    page.emulate_media(color_scheme=theme)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    page.wait_for_function(
        "document.querySelectorAll('.mudkit-figure').length"
        " === document.querySelectorAll('.mudkit-figure .main-svg:first-child').length"
    )
    for frame in page.frames:
        frame.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['html'][:160]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def build_report_page(name, folder):
    values = preset(name, "sample") | SMALL_PARAMETERS.get(name, {})
    notebook = run_cells(name, values, folder)
    manifest = {"parameters": check(name, values), "inputs": {}, "versions": {"mudkit": "0"}}
    notebook.cells += provenance(name, manifest, dt.datetime.now(dt.UTC))
    export_html(notebook, folder / f"{name}.html", title=name)
    return folder / f"{name}.html"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.soak if name in ("cache_policy", "scoreboard") else pytest.mark.soak(keep=1),
        )
        for name in TEMPLATES
    ],
)
def test_report_page_is_accessible(name, visit, tmp_path):
    file = build_report_page(name, tmp_path)
    for theme in ("light", "dark"):
        assert find_violations(visit, file, theme) == [], theme


def test_index_page_is_accessible(visit, tmp_path):
    cells = [new_markdown_cell("# A report")]
    table = {"t": pd.DataFrame({"a": [1]})}
    save_page("propagation", new_notebook(cells=cells), table, parameters={}, build=tmp_path)
    for theme in ("light", "dark"):
        assert find_violations(visit, write_index(tmp_path), theme) == [], theme


def test_axe_finds_a_missing_text_alternative(visit, tmp_path):
    """Guard against a checker that never finds anything."""
    file = tmp_path / "page.html"
    file.write_text("<html lang='en'><title>T</title><main><h1>T</h1><img src='data:,'></main></html>")
    assert "image-alt" in find_violations(visit, file, "light")[0]
