"""All reports, and the page that leads to them."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_markdown_cell, new_notebook
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.errors import InputMissing, ParameterError
from mudkit.report import overview, save_page
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES


def report(name, build, started, **manifest):
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


def listed(page):
    """Return question, address, headline and the line below it, of each entry of the page."""
    page = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    return [
        (line.a.get_text(), line.a["href"], *(each.get_text() for each in line.find_all("p")))
        for line in page.select("li.say")
    ]


def test_the_newest_of_each_report_is_listed(tmp_path):
    cabs = {"inputs": {"trace": {"name": "cabs.csv"}}, "headline": "Join 20 messages."}
    new = report("propagation", tmp_path, "2026-03-02T10:20:30+00:00", **cabs)
    report("propagation", tmp_path, "2026-03-01T10:20:30+00:00")
    other = report("reproduce", tmp_path, "2025-03-01T00:00:00+00:00")
    (report("trace_profile", tmp_path, "2026-03-01T10:20:30+00:00") / "report.html").unlink()
    for place, text in (("damaged", "{"), ("foreign", "[1]"), ("odd", '{"report": "x", "started": 3}')):
        (tmp_path / place).mkdir()
        (tmp_path / place / "manifest.json").write_text(text)
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
    assert listed(page) == expected
    assert "mudkit report scoreboard --preset sample" in page.read_text(encoding="utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.html").touch()
    assert [each[:2] for each in listed(overview.write_index(tmp_path))][2:] == [
        ("The chapters", "book/index.html")
    ]


def test_names_of_the_page_are_escaped(tmp_path):
    named = {"inputs": {"trace": {"name": "<b>.csv"}}, "headline": "Keep <i>it</i>."}
    report("propagation", tmp_path, "2026-03-02T10:20:30+00:00", **named)
    html = overview.write_index(tmp_path).read_text(encoding="utf-8")
    assert "<b>.csv" not in html
    assert "Keep &lt;i&gt;it&lt;/i&gt;." in html


def test_every_report_has_its_question():
    assert set(TEMPLATES) <= set(overview._QUESTIONS)


def test_all_are_run_with_their_presets(tmp_path, monkeypatch):
    ran = {}

    def run_report(name, values, *, build, force, progress):
        ran[name] = (values, force)

    monkeypatch.setattr(overview, "run_report", run_report)
    arguments = ["report", "all", "--out", str(tmp_path), "--force"]
    said = CliRunner().invoke(app, arguments, catch_exceptions=False).output
    assert said.strip() == str(tmp_path / "index.html")
    assert ran == {name: (preset(name, "sample"), True) for name in TEMPLATES}
    assert listed(tmp_path / "index.html") == []


def test_what_all_cannot_have_is_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(overview, "run_report", None)
    with pytest.raises(InputMissing, match="no preset 'nothing'"):
        overview.run_all(named="nothing", build=tmp_path)
    with pytest.raises(ParameterError, match="one by one"):
        CliRunner().invoke(app, ["report", "all", "--param", "tz=UTC"], catch_exceptions=False)
    with pytest.raises(ParameterError, match=", all"):
        CliRunner().invoke(app, ["report", "weather"], catch_exceptions=False)
