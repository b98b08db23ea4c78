"""The report cache_policy, run for real: on the sample, on a trace that teaches nothing, and on recorded ones."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import nbformat
import pyarrow.parquet as pq
import pytest

from mudkit.report import run_report
from mudkit.report.parameters import preset
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark]
SHARED = Path(__file__).parents[3] / "shared" / "data"
T0 = 1_211_100_000


def words(report):
    notebook = nbformat.read(report / "report.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.get("text")
    return " ".join(
        each["data"]["text/markdown"] for each in outputs if "text/markdown" in each.get("data", {})
    )


def table(report, name):
    return pq.read_table(report / "data" / f"{name}.parquet").to_pandas()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run_report(
        "cache_policy",
        preset("cache_policy", "sample"),
        build=tmp_path_factory.mktemp("build"),
        progress=False,
    )


def test_what_is_said_is_in_the_tables(report):
    said = words(report)
    for name in ("reads_missing", "reads_completeness"):
        rule, tree, control, bound, few = table(report, name).to_dict("records")
        assert rule["policy"] == "1 km / 10 min"
        assert control["policy"].endswith("shuffled labels")
        assert bound["stale_share"] <= rule["stale_share"]
        assert bound["sent_share"] <= rule["sent_share"]
        assert few["sent_share"] >= bound["sent_share"]
        assert tree["cost"] <= rule["cost"] + 0.01, "what is learnt by cost costs no more than the rule"
        assert tree["cost"] <= control["cost"] + 0.01
        assert f"**The tree sends {tree['sent_share']:.1%} and is {tree['stale_share']:.1%} stale**" in said
        times = rule["sent_share"] / few["sent_share"]
        assert (f"{times:.2f} times fewer than the rule" if times >= 1 else "more than the rule") in said
    assert "839 reads" in said
    assert "beyond anybody's reach here" in said


def test_the_curves_do_not_cross(report):
    trees, bound = table(report, "trees"), table(report, "bound")
    for row in bound.itertuples():
        as_stale = trees[trees["stale_share"] <= row.stale_share + 1e-9]
        assert (as_stale["sent_share"] >= row.sent_share - 1e-9).all()


def test_the_map_counts_every_read(report):
    cells = table(report, "cells")
    assert cells["reads"].sum() == 839
    assert cells["local"].between(0, 100).all()
    assert table(report, "tree")["examples"].iloc[0] == 629


def test_delays_of_writes(report):
    delays = table(report, "writes")
    assert delays["policy"].iloc[0] == "30 min"
    assert delays["message_share"].iloc[-1] < delays["message_share"].iloc[0] < 0.1
    assert delays["missed_share"].iloc[-1] <= delays["missed_share"].iloc[0]
    assert "With a fixed delay of 30 min" in words(report)


def test_the_page_needs_no_network_and_has_its_map(report):
    html = (report / "report.html").read_text()
    assert "mudkitMap.cells(" in html
    assert "Traceback" not in html
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html)


def test_manifest(report):
    manifest = json.loads((report / "manifest.json").read_text())
    given = preset("cache_policy", "sample")
    assert manifest["parameters"] == TEMPLATES["cache_policy"](**given).model_dump()
    assert manifest["inputs"].keys() == {"trace", "reads"}


@pytest.mark.soak
def test_a_trace_that_teaches_nothing_is_reported_all_the_same(tmp_path):
    """One cab that stands still and is asked for always: no tree, and the reasons are said."""
    rows = [f"a,{T0 + 60 * i},37.75,-122.41,{i // 15 % 2}" for i in range(400)]
    file = tmp_path / "cabs.csv"
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, ""]))
    done = run_report("cache_policy", {"trace": str(file)}, build=tmp_path / "build", progress=False)
    said = words(done)
    assert said.count("**No tree was learnt**") == 2
    assert "There is no tree, so there is no map." in said
    assert "**Nothing can be said of writes**" in said
    assert len(table(done, "reads_missing")) == 3


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


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces(name, tmp_path):
    if not (SHARED / name).is_file():
        pytest.skip(f"shared/data/{name} is not on this machine")
    keep, options = RECORDED[name]
    file = first_rows(SHARED / name, tmp_path / "part.csv", 20_000, keep)
    done = run_report("cache_policy", {"trace": file, **options}, build=tmp_path / "build", progress=False)
    said = words(done)
    assert "The rule 1 km / 10 min sends" in said
    rule, *_, few = table(done, "reads_completeness").to_dict("records")
    assert 0 < few["sent_share"] <= 1
    assert 0 < rule["sent_share"] <= 1
    assert table(done, "rows")["rows"].sum() > 1000
