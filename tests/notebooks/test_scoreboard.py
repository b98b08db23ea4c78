"""Report scoreboard, run on small tasks."""

from __future__ import annotations

import pytest
from report_pages import manifest, page, read_html, table

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
    parameters = preset("scoreboard", "sample") | SMALL
    return run_report("scoreboard", parameters, build=tmp_path_factory.mktemp("build"), progress=False)


def test_report_saves_its_tables_and_manifest(report):
    assert {file.stem for file in (report / "data").iterdir()} == {
        "runs",
        "recommended",
        "measures",
        "differences",
        "latencies",
        "devices",
        "fates",
        "privacy",
        "orders",
    }
    runs = table(report, "runs")
    assert len(runs) == 2 * 3 * 5
    assert runs.groupby(["task", "seed"])["digest"].nunique().eq(1).all()
    metadata = manifest(report)
    assert metadata["inputs"] == {}
    assert metadata["seed"] == 0
    assert (
        metadata["parameters"]
        == TEMPLATES["scoreboard"](**preset("scoreboard", "sample") | SMALL).model_dump()
    )


def test_recommendation_matches_the_saved_tables(report):
    runs = table(report, "runs")
    headline = manifest(report)["headline"]
    assert headline in page(report)
    sums = runs.groupby(["task", "system"], sort=False)[["useful", "wanted_count", "radio_j"]].sum()
    for task, rows in sums.groupby("task", sort=False):
        share = rows["useful"] / rows["wanted_count"]
        near = rows[share >= share.max() - 0.02]
        best = (near["radio_j"] / near["useful"]).idxmin()[1]
        use = table(report, "recommended").set_index("task").loc[task]
        assert use["system"] == best
        assert use["useful_share"] == pytest.approx(share[task, best])
        assert best in headline


def test_fates_add_up_to_wanted_deliveries(report):
    fates = table(report, "fates")
    parts = ["useful", "late", "stale", "unopened", "lost"]
    assert fates[parts].sum(axis=1).to_numpy() == pytest.approx(1.0)
    runs = table(report, "runs")
    assert (runs[parts].sum(axis=1) == runs["wanted_count"]).all()


def test_intervals_stay_in_their_range(report):
    measures = table(report, "measures")
    assert (measures["low"].dropna() >= 0).all()
    assert (measures.loc[measures["measure"] == "useful_share", "high"].dropna() <= 1).all()


def test_page_works_offline_and_has_its_figures(report):
    html = read_html(report)
    assert html.count('class="mudkit-figure"') == 3
    assert "mudkit report scoreboard" in html
    assert "writer predicates and a daily limit" in html
    assert "What systems cannot express" in html
