"""Report scoreboard, run on small tasks."""

from __future__ import annotations

import json

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
        "deliveries",
        "bills",
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
    document = json.loads((report / "summary.json").read_text(encoding="utf-8"))
    summary = {entry["name"]: entry["value"] for entry in document["measures"]}
    sums = runs.groupby(["task", "system"], sort=False)[["useful", "wanted_count", "radio_j"]].sum()
    for task, rows in sums.groupby("task", sort=False):
        share = rows["useful"] / rows["wanted_count"]
        near = rows[share >= share.max() - 0.02]
        best = (near["radio_j"] / near["useful"]).idxmin()[1]
        use = table(report, "recommended").set_index("task").loc[task]
        assert use["system"] == best
        assert use["useful_share"] == pytest.approx(share[task, best])
        assert best in headline or use["verdict"] != "firm"
        assert summary[f"{task.replace(' ', '_')}.ahead"] == best
        assert summary[f"{task.replace(' ', '_')}.recommended"] == (
            best if use["verdict"] == "firm" else None
        )
        assert summary[f"{task.replace(' ', '_')}.in_time_share"] == pytest.approx(share[task, best])


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


@pytest.fixture(scope="module")
def own_report(tmp_path_factory):
    """Report on five phones that walk to the north side by side, with logs of their own."""
    folder = tmp_path_factory.mktemp("own")
    begin = 1_700_000_000
    logs = {
        "trace": ["device,ts,lat,lon"]
        + [f"p{k},{begin + 60 * m},{60 + 0.0005 * m + 0.001 * k},25.0" for k in range(5) for m in range(90)],
        "reads": ["device,ts,lat,lon,box_km,window_s"]
        + [f"p{k},{begin + 60 * m + 7 * k},{60 + 0.0005 * m + 0.001 * k},25.0,2,1200"
           for k in range(5) for m in range(10, 90, 4)],
        "writes": ["device,time,rank,size_bytes"]
        + [f"p{k},{begin + 60 * m + 11 * k},1,400" for k in range(5) for m in range(5, 80, 6)],
        "outages": ["device,begin,end", f"p1,{begin + 1800},{begin + 2700}"],
    }  # fmt: skip
    for name, lines in logs.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    files = {name: str(folder / f"{name}.csv") for name in logs}
    parameters = files | {
        "systems": ["to everyone", "SUBLIM"], "scenarios": 0, "seeds": 2, "hours": 1.5, "tz": "Europe/Helsinki",
    }  # fmt: skip
    return run_report("scoreboard", parameters, build=folder / "build", progress=False)


def test_report_on_logs_of_ones_own(own_report):
    runs, deliveries = table(own_report, "runs"), table(own_report, "deliveries")
    assert set(runs["task"]) == {"this trace"}
    assert len(table(own_report, "phones")) == 5
    assert set(manifest(own_report)["inputs"]) == {"trace", "reads", "outages", "writes"}
    use = table(own_report, "recommended").iloc[0]
    distinct = deliveries[deliveries["fate"] != "unwanted"][["device", "item"]].drop_duplicates()
    assert use["deliveries"] == len(distinct) == runs["wanted_count"].iloc[0]
    text = page(own_report)
    assert "this trace" in text
    assert "Links fail as in outages.csv" in text
    assert "the last 20 min within a box of 2 km" in text
