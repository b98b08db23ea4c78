"""The report cache_policy, run for real: on the sample, on a trace that teaches nothing, and on recorded ones."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from report_pages import html_of, manifest, page, table

from mudkit.report import run_report
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark, pytest.mark.soak]
SHARED = Path(__file__).parents[3] / "shared" / "data"
T0 = 1_211_100_000


def run(named, folder):
    return run_report("cache_policy", preset("cache_policy", named), build=folder, progress=False)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run("sample", tmp_path_factory.mktemp("build"))


def test_the_recommendation_is_recomputed_from_the_data_beside_the_page(report):
    policies = table(report, "policies").set_index("policy")
    rule, learnt = (policies.loc[name] for name in ("rule in use: 1 km, 10 min", "learnt policy"))
    fewer = 100 * (rule["sent_share"] - learnt["sent_share"])
    assert fewer > 20, "a reader sees what is saved"
    sent, before = (round(100 * row["sent_share"], 1) for row in (learnt, rule))
    assert (
        f"Use the learnt policy: {sent:.1f} % of the reads ask the server, {before - sent:.1f} points fewer than with"
        in page(report)
    )
    assert learnt["stale_share"] <= 0.04
    assert (policies["sent_share"] >= policies["sent_share"].iloc[-1]).all()
    rules = table(report, "rules")
    allowed = rules[rules["is_allowed"]]
    assert allowed["sent_share"].min() >= rule["sent_share"] - 0.001


def test_the_trees_are_right_of_the_bound(report):
    trees, bound = table(report, "trees"), table(report, "bound")
    for row in bound.itertuples():
        as_stale = trees[trees["stale_share"] <= row.stale_share + 1e-9]
        assert (as_stale["sent_share"] >= row.sent_share - 1e-9).all()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("rule_is_best", "Keep the rule “1 km, 10 min”: "),
        ("nothing_helps", "Ask the server for every read"),
    ],
)
def test_presets_on_which_nothing_is_to_be_won(named, says, tmp_path):
    done = run(named, tmp_path)
    assert manifest(done)["headline"].startswith(says)
    assert says in page(done)


def test_the_page_needs_no_network_is_small_and_has_its_map(report):
    html = html_of(report)
    assert "mudkitMap.cells(" in html


def test_the_page_has_its_provenance(report):
    made_by = manifest(report)
    given = preset("cache_policy", "sample")
    assert made_by["parameters"] == TEMPLATES["cache_policy"](**given).model_dump()
    assert made_by["inputs"].keys() == {"trace", "reads"}
    html = html_of(report)
    assert "mudkit report cache_policy \\\n      --param trace=" in html
    for each in made_by["inputs"].values():
        assert each["sha256"] in html


def test_a_trace_that_teaches_nothing_is_reported_all_the_same(tmp_path):
    """One cab that stands still and is asked for always: no tree, and the reasons are said."""
    rows = [f"a,{T0 + 60 * i},37.75,-122.41,{i // 15 % 2}" for i in range(400)]
    file = tmp_path / "cabs.csv"
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, ""]))
    done = run_report("cache_policy", {"trace": str(file)}, build=tmp_path / "build", progress=False)
    said = page(done)
    assert "No policy was learnt" in said
    assert "Nothing can be said of writes" in said
    assert "There is only 1 device" in said


def first_rows(source, target, most, keep):
    """Copy a part of a recorded trace."""
    with gzip.open(source, "rt") as file, target.open("w", newline="") as out:
        reader = csv.reader(file)
        writer = csv.writer(out)
        head = next(reader)
        writer.writerow(head)
        rows = [row for row in reader if keep(dict(zip(head, row, strict=True)))]
        writer.writerows(rows[:most])
    return str(target)


RECORDED = {
    # Eight hours of a Monday of some taxis.
    "cabspotting_sf/cabs.csv.gz": (
        lambda row: 1_211_212_800 <= int(row["t"]) < 1_211_241_600,
        {"tz": "America/Los_Angeles"},
    ),
    # One day of the buses.
    "capmetrics_austin/vehicle_positions.csv.gz": (
        lambda row: row["day"].startswith("2015-03-1"),
        {"tz": "America/Chicago", "format": "gtfs-rt"},
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces(name, tmp_path):
    if not (SHARED / name).is_file():
        pytest.skip(f"shared/data/{name} is not on this machine")
    keep, options = RECORDED[name]
    file = first_rows(SHARED / name, tmp_path / "part.csv", 20_000, keep)
    done = run_report("cache_policy", {"trace": file, **options}, build=tmp_path / "build", progress=False)
    said = page(done)
    assert "is stale here when" in said
    assert table(done, "policies")["sent_share"].between(0, 1).all()
    assert table(done, "rows")["rows"].sum() > 1000
