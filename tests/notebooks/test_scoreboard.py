"""The report scoreboard, run for real on small tasks."""

from __future__ import annotations

import pytest
from report_pages import html_of, manifest, page, table

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


def test_what_it_leaves(report):
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
    made_by = manifest(report)
    assert made_by["inputs"] == {}
    assert made_by["seed"] == 0
    assert (
        made_by["parameters"]
        == TEMPLATES["scoreboard"](**preset("scoreboard", "sample") | SMALL).model_dump()
    )


def test_the_recommendation_is_recomputed_from_the_data_beside_the_page(report):
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


def test_parts_add_up_to_what_was_wanted(report):
    fates = table(report, "fates")
    parts = ["useful", "late", "stale", "unopened", "lost"]
    assert fates[parts].sum(axis=1).to_numpy() == pytest.approx(1.0)
    runs = table(report, "runs")
    assert (runs[parts].sum(axis=1) == runs["wanted_count"]).all()


def test_intervals_never_leave_what_is_possible(report):
    measures = table(report, "measures")
    assert (measures["low"].dropna() >= 0).all()
    assert (measures.loc[measures["measure"] == "useful_share", "high"].dropna() <= 1).all()


def test_the_page_needs_no_network_is_small_and_has_its_figures(report):
    html = html_of(report)
    assert html.count('class="mudkit-figure"') == 3
    assert "mudkit report scoreboard" in html
    assert "writer predicates and a daily limit" in html
    assert "What systems cannot express" in html
