"""Report cache_policy, run on the sample, on traces without a saving, and on recorded ones."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from report_pages import manifest, page, read_html, table

from mudkit.report import run_report
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES
from mudkit.systems.mud import Artefact

pytestmark = [pytest.mark.notebook, pytest.mark.spark, pytest.mark.soak]
SHARED = Path(__file__).parents[3] / "shared" / "data"
T0 = 1_211_100_000


def run_preset(preset_name, folder):
    return run_report("cache_policy", preset("cache_policy", preset_name), build=folder, progress=False)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run_preset("sample", tmp_path_factory.mktemp("build"))


def test_recommendation_matches_the_saved_tables(report):
    policies = table(report, "policies")
    chosen = policies[policies["policy"].str.endswith("(recommended)")].iloc[0]
    rule = policies[policies["policy"] == "fixed rule"].iloc[0]
    assert chosen["fresh_share"] - rule["fresh_share"] > 0.15, "a reader sees what is saved"
    assert f"{100 * chosen['fresh_share']:.1f} % of the reads get a fresh answer" in page(report)
    assert chosen["stale_share"] <= 0.04
    assert (policies["fresh_share"] <= policies["fresh_share"].iloc[-1] + 1e-9).all()
    rules = table(report, "rules")
    assert rules.loc[rules["is_allowed"], "fresh_share"].max() <= chosen["fresh_share"] + 0.001


def test_summary_and_policy_lie_beside_the_page(report):
    summary = json.loads((report / "summary.json").read_text())
    measures = {measure["name"]: measure for measure in summary["measures"]}
    assert summary["headline"] == manifest(report)["headline"]
    assert measures["fresh_share"]["low"] < measures["fresh_share"]["value"] < measures["fresh_share"]["high"]
    document = json.loads((report / "policy.json").read_text())
    assert Artefact.from_document(document).kind == "read"
    assert document["manifest"]["family"] == measures["recommendation"]["value"]


@pytest.mark.soak(keep=1, group="other traces")
@pytest.mark.parametrize(
    ("preset_name", "message"),
    [
        ("rule_is_best", "Answer from the cache when its answer is at most"),
        ("nothing_helps", "Ask the server for every read"),
    ],
)
def test_presets_show_what_they_say(preset_name, message, tmp_path):
    report_folder = run_preset(preset_name, tmp_path)
    assert manifest(report_folder)["headline"].startswith(message)
    assert message in page(report_folder)


def test_page_works_offline_and_has_a_map(report):
    html = read_html(report)
    assert "mudkitMap.cells(" in html


def test_page_shows_its_parameters_and_inputs(report):
    metadata = manifest(report)
    parameters = preset("cache_policy", "sample")
    assert metadata["parameters"] == TEMPLATES["cache_policy"](**parameters).model_dump()
    assert metadata["inputs"].keys() == {"trace", "reads"}
    html = read_html(report)
    assert re.search(r"mudkit report cache_policy \\\n +--param trace=", html)
    for source in metadata["inputs"].values():
        assert source["sha256"] in html


@pytest.mark.soak(keep=1, group="other traces")
def test_trace_without_a_learnable_policy_is_reported(tmp_path):
    """Report on one stationary cab that always reads: no tree, with the reasons."""
    rows = [f"a,{T0 + 60 * i},37.75,-122.41,{i // 15 % 2}" for i in range(400)]
    file = tmp_path / "cabs.csv"
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, ""]))
    report_folder = run_report("cache_policy", {"trace": str(file)}, build=tmp_path / "build", progress=False)
    text = page(report_folder)
    assert "No tree was learnt" in text
    assert "Nothing can be said of writes" in text
    assert "There is only 1 device" in text


def copy_rows(source, target, max_rows, keep):
    """Copy the first matching rows of a recorded trace."""
    with gzip.open(source, "rt") as file, target.open("w", newline="") as out:
        reader = csv.reader(file)
        writer = csv.writer(out)
        head = next(reader)
        writer.writerow(head)
        rows = [row for row in reader if keep(dict(zip(head, row, strict=True)))]
        writer.writerows(rows[:max_rows])
    return str(target)


RECORDED = {
    # Taxis, eight hours of a Monday.
    "cabspotting_sf/cabs.csv.gz": (
        lambda row: 1_211_212_800 <= int(row["t"]) < 1_211_241_600,
        {"tz": "America/Los_Angeles"},
    ),
    # Buses, 10 to 19 March 2015.
    "capmetrics_austin/vehicle_positions.csv.gz": (
        lambda row: row["day"].startswith("2015-03-1"),
        {"tz": "America/Chicago", "format": "gtfs-rt"},
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces_are_reported(name, tmp_path):
    if not (SHARED / name).is_file():
        pytest.skip(f"shared/data/{name} is not on this machine")
    keep, options = RECORDED[name]
    file = copy_rows(SHARED / name, tmp_path / "part.csv", 20_000, keep)
    report_folder = run_report(
        "cache_policy", {"trace": file, **options}, build=tmp_path / "build", progress=False
    )
    text = page(report_folder)
    assert "An answer is stale when" in text
    assert table(report_folder, "policies")["sent_share"].between(0, 1).all()
    assert table(report_folder, "rows")["rows"].sum() > 1000
