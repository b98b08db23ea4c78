"""Command `report all` and the index page of reports."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.errors import InputMissing, ParameterError
from mudkit.report import headline, overview, save_page
from mudkit.report.page import SUMMARY
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES
from mudkit.report.summary import FILE_NAME, read_summary


def write_report(name, build, started, **manifest):
    folder = save_page(
        name,
        new_notebook(cells=[new_markdown_cell("# T")]),
        {"t": pd.DataFrame({"a": [1]})},
        parameters={},
        build=build,
    )
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"started": started} | manifest))
    return folder


def read_entries(page):
    """Return question, address, headline and the line below it, of every entry of the page."""
    page = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    return [
        (line.a.get_text(), line.a["href"], *(paragraph.get_text() for paragraph in line.find_all("p")))
        for line in page.select("li.say")
    ]


def test_page_with_a_first_screen_has_a_summary(tmp_path):
    """The measures of the screen stand in summary.json, and its headline in the list of pages."""
    summary = {"headline": "Join 20 messages.", "measures": []}
    output = new_output("display_data", {SUMMARY: summary, "text/plain": "Join 20 messages."})
    for cell in (new_markdown_cell("# T"), new_code_cell("show()", outputs=[output])):
        folder = save_page("propagation", new_notebook(cells=[cell]), {}, parameters={}, build=tmp_path)
        is_shown = cell.cell_type == "code"
        assert (folder / FILE_NAME).is_file() == is_shown
        assert headline(folder) == (summary["headline"] if is_shown else "")
    assert read_summary(folder).headline == summary["headline"]


def test_newest_run_of_each_report_is_listed(tmp_path):
    cabs = {"inputs": {"trace": {"name": "cabs.csv"}}, "headline": "Join 20 messages."}
    new = write_report("propagation", tmp_path, "2026-03-02T10:20:30+00:00", **cabs)
    write_report("propagation", tmp_path, "2026-03-01T10:20:30+00:00")
    other = write_report("reproduce", tmp_path, "2025-03-01T00:00:00+00:00")
    (write_report("trace_profile", tmp_path, "2026-03-01T10:20:30+00:00") / "report.html").unlink()
    for folder, text in (("damaged", "{"), ("foreign", "[1]"), ("odd", '{"report": "x", "started": 3}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "manifest.json").write_text(text)
    expected = [
        (
            "How much traffic is left when messages of a place are joined?",
            f"{new.name}/report.html",
            "Join 20 messages.",
            f"propagation · cabs.csv · 2 March 2026, 10:20 UTC · {new.name}/report.html",
        ),
        (
            "Which figures of the papers does mudkit reproduce?",
            f"{other.name}/report.html",
            "No headline.",
            f"reproduce · 1 March 2025, 00:00 UTC · {other.name}/report.html",
        ),
    ]
    page = overview.write_index(tmp_path)
    assert read_entries(page) == expected
    assert "mudkit report scoreboard --preset sample" in page.read_text(encoding="utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.html").touch()
    assert [entry[:2] for entry in read_entries(overview.write_index(tmp_path))][2:] == [
        ("The chapters", "book/index.html")
    ]


def test_names_on_the_page_are_escaped(tmp_path):
    manifest = {"inputs": {"trace": {"name": "<b>.csv"}}, "headline": "Keep <i>it</i>."}
    write_report("propagation", tmp_path, "2026-03-02T10:20:30+00:00", **manifest)
    html = overview.write_index(tmp_path).read_text(encoding="utf-8")
    assert "<b>.csv" not in html
    assert "Keep &lt;i&gt;it&lt;/i&gt;." in html


def test_every_report_has_a_question():
    assert set(TEMPLATES) <= set(overview._QUESTIONS)


def test_report_all_runs_every_report_with_its_preset(tmp_path, monkeypatch):
    runs = {}

    def run_report(name, values, *, build, force, progress):
        runs[name] = (values, force)

    monkeypatch.setattr(overview, "run_report", run_report)
    arguments = ["report", "all", "--out", str(tmp_path), "--force"]
    output = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    assert output.strip() == str(tmp_path / "index.html")
    assert runs == {name: (preset(name, "sample"), True) for name in TEMPLATES}
    assert read_entries(tmp_path / "index.html") == []


def test_report_all_rejects_wrong_arguments_before_any_run(tmp_path, monkeypatch):
    monkeypatch.setattr(overview, "run_report", None)
    with pytest.raises(InputMissing, match="no preset 'nothing'"):
        overview.run_all(named="nothing", build=tmp_path)
    for option, value in (("--param", "tz=UTC"), ("--where", "lat > 1"), ("--against", "tz=UTC")):
        with pytest.raises(ParameterError, match="one by one") as caught:
            CliRunner().invoke(app, ["report", "all", option, value], catch_exceptions=False)
        assert (caught.value.where, caught.value.found) == (option, value)
    with pytest.raises(ParameterError, match=", all"):
        CliRunner().invoke(app, ["report", "weather"], catch_exceptions=False)
