"""The table of rows as a page."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from html_tables import table_rows
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.files import sha256
from mudkit.reproduce import results
from mudkit.reproduce.page import figures, notebook
from mudkit.reproduce.row import Figure, Measured, Required, Row


def row(name, value, *, is_speed=False):
    """Give a row that requires a level of at least 5 and a slope below 0."""
    required = (Required("x <y>", "at least", 5), Required("slope", "below", 0, is_shape=True))
    figures = {
        "x <y>": Figure(value, value - 1, value + 1),
        "slope": Figure(-1, -1, -1),
        "s": Figure(9, 9, 9),
    }
    return Row(
        name,
        "paper 1, <b>fig</b>",
        "5 & more",
        required,
        lambda say: Measured(figures, {"seeds": [1, 2]}),
        is_speed=is_speed,
    )


ROWS = (row("P1", 6.0), row("P2", 4.0), row("S1", 6.0, is_speed=True))


@pytest.fixture
def collected(tmp_path):
    return results(rows=ROWS, place=tmp_path / "results")


def run(tmp_path, monkeypatch, *arguments):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(results.__kwdefaults__, "rows", ROWS)
    return CliRunner().invoke(
        app, ["reproduce", *arguments, "--page", "--out", str(tmp_path / "build")], catch_exceptions=False
    )


def test_the_page_has_table_verdicts_and_what_they_rest_on(tmp_path, monkeypatch):
    said = run(tmp_path, monkeypatch).stdout
    (folder,) = (tmp_path / "build").iterdir()
    assert said.splitlines()[-1] == str(folder / "report.html")
    assert re.fullmatch(r"reproduce-\d{8}T\d{6}Z", folder.name)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', text)
    page = BeautifulSoup(text, "html.parser")
    assert page.title.string == "The papers' numbers, and ours"
    assert [line.get_text() for line in page.select("ul")[0].select("li")] == [
        "1 reproduced: all that is required holds",
        "1 shape: order and slope agree, a level does not",
        "1 not measured: no result is kept; name the row to measure it",
    ]
    rows = [
        [cell.get_text("|") for cell in line.select("th, td")]
        for line in page.select("table")[0].select("tr")
    ]
    cells = {line[0].split("|")[0]: line for line in rows[1:]}
    assert list(cells) == ["P1", "P2", "S1"]
    assert cells["P1"][:2] == ["P1|paper 1, <b>fig</b>", "5 & more"]
    assert cells["P1"][2] == "✓ x <y>: 6 (5 to 7), at least 5|✓ slope: −1, below 0|s: 9"
    assert cells["P2"][2].startswith("✗ x <y>: 4 (3 to 5), at least 5|✓ slope")
    verdicts = [cells[name][3].split("|")[0] for name in cells]
    assert verdicts == ["✓ reproduced", "≈ shape", "– not measured"]
    assert "mudkit reproduce S1 measures it" in cells["S1"][2]
    assert "seeds 1, 2; machine cores" in page.select("table")[1].get_text()


def test_the_manifest_tells_what_came_out(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, "P2")
    (folder,) = (tmp_path / "build").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["report"], manifest["parameters"]) == ("reproduce", {"rows": ["P2"]})
    assert {"python", "mudkit"} <= set(manifest["versions"])
    assert set(manifest["outputs"]) == {
        "report.html",
        "report.ipynb",
        "data/figures.parquet",
        "data/figures.csv",
    }
    assert all(sha256(folder / name) == digest for name, digest in manifest["outputs"].items())
    kept = pd.read_parquet(folder / "data" / "figures.parquet")
    assert kept["figure"].tolist() == ["x <y>", "slope", "s"]


def test_json_alone_stays_json(tmp_path, monkeypatch):
    done = run(tmp_path, monkeypatch, "P1", "--json")
    assert [each["row"] for each in json.loads(done.stdout)] == ["P1"]
    assert done.stderr.strip().endswith("report.html")


def test_figures_as_data(collected):
    table = figures(collected).set_index(["row", "figure"])
    assert table.index.tolist() == [(row, name) for row in ("P1", "P2") for name in ("x <y>", "slope", "s")]
    level = table.loc["P2", "x <y>"]
    assert (level["median"], level["low"], level["high"], level["required"]) == (4.0, 3.0, 5.0, "at least 5")
    assert (level["verdict"], level["holds"]) == ("shape", False)
    assert table.loc["P1", "x <y>"]["holds"]
    assert pd.isna(table.loc["P1", "s"]["holds"])
    assert len(figures(collected[2:])) == 0


def test_a_page_without_any_result(collected):
    cells = notebook(collected[2:]).cells
    assert "1 **not measured**" in cells[0].source
    assert table_rows(cells[-1].outputs[0].data["text/html"]) == [["row", "parameters"]]
