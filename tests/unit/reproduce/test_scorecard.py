"""Scorecard: the page of all reproduced rows."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from typer.testing import CliRunner

from mudkit.cli import app
from mudkit.files import sha256
from mudkit.report.html import export_html
from mudkit.reproduce import outcome, results
from mudkit.reproduce.mobius_map import M5_MAP
from mudkit.reproduce.mobius_regimes import REGIMES
from mudkit.reproduce.row import Measured, Quantity, Required, Row
from mudkit.reproduce.scorecard import BUSY_CORES, notebook, quantities, text, write


def make_row(name, value, *, is_speed=False):
    """Return a row that requires a level of at least 5 and a slope below 0."""
    required = (Required("x <y>", "at least", 5), Required("slope", "below", 0, is_shape=True))
    quantities = {
        "x <y>": Quantity(value, value - 1, value + 1),
        "slope": Quantity(-1, -1, -1),
        "s": Quantity(9, 9, 9),
    }
    return Row(
        name,
        "paper 1, <b>fig</b>",
        "5 & more",
        required,
        lambda say: Measured(quantities, {"seeds": [1, 2]}),
        minutes=1.0,
        is_speed=is_speed,
    )


ROWS = (make_row("P1", 6.0), make_row("P2", 4.0), make_row("S1", 6.0, is_speed=True))


@pytest.fixture
def stored_results(tmp_path):
    return results(ROWS[:2], rows=ROWS, place=tmp_path / "results")


def run(tmp_path, monkeypatch, *arguments):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(outcome, "ROWS", ROWS)
    monkeypatch.chdir(tmp_path)
    return CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)


def build(tmp_path, monkeypatch, *arguments):
    return run(tmp_path, monkeypatch, *arguments, "--page", "--out", str(tmp_path / "build"))


def test_page_is_the_scorecard(tmp_path, monkeypatch):
    output = build(tmp_path, monkeypatch).stdout
    (folder,) = (tmp_path / "build").iterdir()
    assert output.splitlines()[-1] == str(folder / "report.html")
    assert re.fullmatch(r"reproduce-\d{8}T\d{6}Z", folder.name)
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html)
    page = BeautifulSoup(html, "html.parser")
    assert page.title.string == "Scorecard: the papers' numbers and ours"
    verdicts = [line.select("td")[2].get_text() for line in page.select("table")[0].select("tbody tr")]
    assert verdicts == ["✓ reproduced", "≈ shape", "– not measured"]


def test_row_without_a_result_keeps_what_an_earlier_scorecard_says(stored_results, tmp_path):
    first, second, speed = stored_results
    loaded = dataclasses.replace(first, row=ROWS[2], kept=dataclasses.replace(first.kept, busy_cores=0.3))
    page = text([first, second, loaded])
    write([first, second, loaded], tmp_path / "scorecard.md")
    write([results((), rows=ROWS[:1], place=tmp_path / "empty")[0], second, speed], tmp_path / "scorecard.md")
    assert (tmp_path / "scorecard.md").read_text() == page
    measured_again = dataclasses.replace(second, kept=dataclasses.replace(second.kept, date="2031-01-02"))
    changed = text([measured_again], page)
    assert changed == text([measured_again]), "a result replaces what was said"


def test_section_explains_its_verdict(stored_results):
    page = text(stored_results)
    assert (
        "- ≈ **shape**: 1 row; each requirement marked as shape (an order, a slope) holds, another one does not."
        in page
    )
    p1, p2, s1 = (page.split(f"\n## {name}\n")[1].split("\n## ")[0] for name in ("P1", "P2", "S1"))
    assert "**Source**: paper 1, \\<b\\>fig\\</b\\>" in p1
    assert "**Verdict**: ✓ reproduced. All 2 requirements hold." in p1
    assert "| x \\<y\\> | 6 (5 to 7) | at least 5 | yes |" in p1
    assert "| slope | −1 | below 0, shape | yes |" in p1
    assert "<summary>1 other figure</summary>\n\n| figure" in p1
    assert "**Parameters**: seeds 1, 2\n" in p1
    assert re.search(r"\*\*Measured\*\*: \d{4}-\d\d-\d\d, in <0.1 minutes, on \d+ cores, ", p1)
    assert "1 of 2 requirements does not hold: x \\<y\\> is 4, required is at least 5." in p2
    assert "| x \\<y\\> | 4 (3 to 5) | at least 5 | **no** |" in p2
    assert "not measured. mudkit reproduce S1 measures it." in s1
    assert "| slope | – | below 0, shape | – |" in s1


def test_rows_of_speed_measured_under_load_are_marked(stored_results):
    stored = outcome.Kept(stored_results[0].measured, "2026-01-01T00:00:00", 0.5, BUSY_CORES + 0.1)
    speed = outcome.Result(ROWS[2], stored)
    assert "measured under load: S1." in text([speed])
    assert "in 0.5 minutes" in text([speed])
    assert "under load: other programs kept 0.3 cores busy" in text([speed])
    idle = outcome.Result(ROWS[2], dataclasses.replace(stored, busy_cores=0.0))
    assert "under load" not in text([idle])
    plain = outcome.Result(ROWS[0], stored)  # its figures are independent of the machine
    assert "Rows of speed" not in text([plain])


def test_command_adds_rows_to_the_scorecard(tmp_path, monkeypatch):
    first = run(tmp_path, monkeypatch, "P1", "--scorecard")
    assert first.stdout.strip() == "docs/scorecard.md"
    page = (tmp_path / "docs" / "scorecard.md").read_text(encoding="utf-8")
    assert [page.count(f"{verdict} |") for verdict in ("reproduced", "not measured")] == [1, 2]
    assert "P2 1 min, S1 1 min" in run(tmp_path, monkeypatch, "--scorecard").stderr  # the missing rows
    assert "not measured" not in (tmp_path / "docs" / "scorecard.md").read_text(encoding="utf-8")
    assert run(tmp_path, monkeypatch, "--scorecard").stderr == ""


def test_manifest_lists_versions_and_outputs(tmp_path, monkeypatch):
    build(tmp_path, monkeypatch, "P2")
    (folder,) = (tmp_path / "build").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["report"], manifest["parameters"]) == ("reproduce", {"rows": ["P2"]})
    assert {"python", "mudkit"} <= set(manifest["versions"])
    assert set(manifest["outputs"]) == {
        "report.html", "report.ipynb", "data/figures.parquet", "data/figures.csv",
    }  # fmt: skip
    assert all(sha256(folder / name) == digest for name, digest in manifest["outputs"].items())
    table = pd.read_parquet(folder / "data" / "figures.parquet")
    assert table["figure"].tolist() == ["x <y>", "slope", "s"]


def test_json_output_contains_only_json(tmp_path, monkeypatch):
    run_result = build(tmp_path, monkeypatch, "P1", "--json")
    assert [result["row"] for result in json.loads(run_result.stdout)] == ["P1"]
    assert run_result.stderr.strip().endswith("report.html")


def test_figures_are_exported_as_a_table(stored_results):
    table = quantities(stored_results).set_index(["row", "figure"])
    assert table.index.tolist() == [(row, name) for row in ("P1", "P2") for name in ("x <y>", "slope", "s")]
    level = table.loc["P2", "x <y>"]
    assert (level["median"], level["low"], level["high"], level["required"]) == (4.0, 3.0, 5.0, "at least 5")
    assert (level["verdict"], level["holds"]) == ("shape", False)
    assert table.loc["P1", "x <y>"]["holds"]
    assert pd.isna(table.loc["P1", "s"]["holds"])
    assert len(quantities(stored_results[2:])) == 0


def test_scorecard_without_results_says_so(stored_results):
    (cell,) = notebook(stored_results[2:]).cells
    assert "1 row; no result is kept" in cell.source
    assert "Measured" not in cell.source


SCORECARD = Path(__file__).parents[3] / "docs" / "scorecard.md"


def test_committed_scorecard_matches_the_rows():
    """Compare names, sources and requirements; rewrite the page after changing them."""
    overview, *sections = SCORECARD.read_text(encoding="utf-8").split("\n## ")
    names = re.findall(r"^\| \[([^]]+)\]", overview, re.MULTILINE)
    assert names == [section.partition("\n")[0] for section in sections]
    assert names == [row.name for row in outcome.ROWS]
    for row, section in zip(outcome.ROWS, sections, strict=True):
        plain = re.sub(r"\\(.)", r"\1", section)
        assert f"\n**Source**: {row.source}\n" in plain
        assert f"\n**Paper**: {row.paper}\n" in plain
        required = [
            f"{requirement.quantity}: {requirement}{', shape' if requirement.is_shape else ''}"
            for requirement in row.required
        ]
        table = re.findall(
            r"^\| (.+) \| [^|]+ \| (.+) \| [^|]+ \|$", plain.split("<details>")[0], re.MULTILINE
        )
        assert [f"{quantity}: {bound}" for quantity, bound in table[1:]] == required


def test_cells_of_a_map_are_kept_and_are_rows_of_a_table(tmp_path):
    cells = {
        "often; by day": {"level": 2.0, "times <fewer>": 4.5},
        "seldom; by day": {"level": 0.0, "times <fewer>": math.inf},
    }
    of_map = dataclasses.replace(
        ROWS[0], measure=lambda say: dataclasses.replace(ROWS[0].measure(say), cells=cells)
    )
    results([of_map], place=tmp_path)
    (kept,) = results((), rows=[of_map], place=tmp_path)
    assert kept.measured.cells == cells
    assert kept.as_json()["cells"] == cells
    page = text([kept])
    assert "All 2 cells" in page
    assert "| cell | level | times \\<fewer\\> |" in page
    assert "| often; by day | 2 | 4.5 |" in page
    assert "All" not in text(results([ROWS[1]], place=tmp_path))


def test_page_has_the_maps_of_a_row(tmp_path):
    cell = {
        "level": 2.0,
        "bound, times fewer messages than 30 min": 4.5,
        "tree, times fewer messages than 30 min": 1.5,
    }
    cells = {str(regime): cell for regime in REGIMES}
    measured = Measured({}, {}, cells)
    result = outcome.Result(M5_MAP, outcome.Kept(measured, "2031-01-02", 1.0, 0.0))
    page = notebook([result])
    (figure,) = (output for cell in page.cells[1:] for output in cell.outputs)
    assert "only the bound: 144 cells" in json.dumps(figure)
    export_html(page, tmp_path / "page.html", title="Scorecard")
    assert "few cars by day, dense" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(notebook([outcome.Result(M5_MAP, None)]).cells) == 1
