"""Report propagation, run on a small trace."""

from __future__ import annotations

import gzip
import re

import numpy as np
import papermill
import pytest
from report_pages import manifest, page, read_html, table

from mudkit import units
from mudkit.report import run_report
from mudkit.report.propagating import FAR, NEAR
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark, pytest.mark.soak]
T0 = 1_211_100_000


@pytest.fixture(scope="module")
def parameters(tmp_path_factory):
    """Return parameters for four stationary cabs, three of them together, that report for 200 minutes."""
    file = tmp_path_factory.mktemp("trace") / "cabs.csv"
    places = {
        "a": (37.75, -122.41),
        "b": (37.7501, -122.4101),
        "c": (37.7502, -122.4102),
        "d": (37.65, -122.2),
    }
    rows = [f"{cab},{T0 + 60 * i},{lat},{lon},0" for cab, (lat, lon) in places.items() for i in range(200)]
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, ""]))
    return {"trace": str(file), "tz": "America/Los_Angeles", "thresholds": [1, 5, 50], "aggregate_bytes": 600}


@pytest.fixture(scope="module")
def report(parameters, tmp_path_factory):
    return run_report("propagation", parameters, build=tmp_path_factory.mktemp("build"), progress=False)


def test_thresholds_table_counts_messages_and_bytes(report):
    """Join 15 messages of three cabs in five minutes, and 5 of a single one: 3 and 1 aggregates of five."""
    totals = table(report, "thresholds").set_index("threshold")
    assert totals["messages_in"].tolist() == [800] * 3
    assert totals["bytes_out"].loc[1] == 320_000
    assert totals["aggregates_out"].loc[5] == pytest.approx(160, abs=4), "the ends of the trace cut intervals"
    assert totals["aggregates_out"].loc[50] == totals["cells"].loc[50]
    text = page(report)
    assert "4 devices" in text
    share = float(re.search(r"([\d.]+) % of the bytes are left", text)[1])
    best = totals["bytes_left_share"]
    assert share == pytest.approx(100 * best[best <= best.min() + 0.01].iloc[0], abs=0.51)
    assert "make four fifths" in text


def test_pictures_cover_all_messages_at_the_cabs(report):
    shown = table(report, "cells")
    assert shown["at"].nunique() <= 48
    sums = shown.groupby("threshold")["messages_in"].sum()
    assert sums.tolist() == [800] * 3
    edges = shown[["south", "west", "north", "east"]].drop_duplicates()
    assert len(edges) == 2
    for lat, lon in ((37.75, -122.41), (37.65, -122.2)):
        inside = (
            (edges["south"] < lat) & (lat < edges["north"]) & (edges["west"] < lon) & (lon < edges["east"])
        )
        assert inside.sum() == 1
    side_km = units.distance_km(edges["south"], edges["west"], edges["north"], edges["west"])
    assert np.allclose(side_km, 2.45 * np.cos(np.radians(37.7)), rtol=0.02)


def test_page_works_offline_and_its_map_has_a_slider(report):
    html = read_html(report)
    assert "mudkitMap.slides(" in html


def test_manifest_has_parameters_and_inputs(report, parameters):
    metadata = manifest(report)
    assert metadata["parameters"] == TEMPLATES["propagation"](**parameters).model_dump()
    assert metadata["inputs"]["trace"]["name"] == "cabs.csv"


def test_receipts_near_and_far_differ_in_age(report, parameters):
    """Place three cabs in the middle and one 25 km away: its reports are no noise there, but arrive late."""
    receipts = table(report, "heard")
    assert set(receipts["receiver"]) == {NEAR, FAR}
    near = receipts[(receipts["receiver"] == NEAR) & (receipts["distance_km"] < 2)]
    late_s = (near["t_s"] - near["reported_s"]).max()
    assert late_s <= 60
    far = receipts[receipts["receiver"] == FAR]
    assert (far["t_s"] - far["reported_s"]).max() > 500
    text = page(report)
    received = re.findall(rf"who is (?:{NEAR}|{FAR}) gets ([\d,]+) messages", text)
    assert len(received) == 2
    assert len(set(received)) == 1, "both get all in the end"
    assert "dB" not in text, "no noise was recorded"
    html = read_html(report)
    assert html.count("mudkitMap.slides(") >= 2
    assert FAR in html


def test_report_on_the_recorded_taxis(cabspotting, tmp_path):
    """Report on two hours of an evening in the recorded trace."""
    first, *rest = gzip.decompress(cabspotting.read_bytes()).decode().splitlines()
    rows = [row for row in rest if 0 <= int(row.split(",")[1]) - 1_211_516_000 < 7200]
    assert len(rows) > 5000
    file = tmp_path / "cabs.csv.gz"
    with gzip.open(file, "wt") as out:
        out.write("\n".join([first, *rows, ""]))
    report_folder = run_report(
        "propagation",
        {"trace": str(file), "format": "cabspotting", "tz": "America/Los_Angeles", "played_minutes": 15.0},
        build=tmp_path / "build",
        progress=False,
    )
    receipts = table(report_folder, "heard")
    assert (receipts["value"] >= 0).all()
    age_s = (receipts["t_s"] - receipts["reported_s"]).groupby(receipts["receiver"]).mean()
    assert age_s[NEAR] < age_s[FAR]
    assert "leave" in page(report_folder) or "left" in page(report_folder)


def test_chapter_06_runs_on_the_recorded_taxis(cabspotting, repository, tmp_path):
    """Run the chapter on the evening with most reports; a user's trace takes the same parameters."""
    parameters = {
        "cars": 12,
        "minutes": 6.0,
        "recorded": str(cabspotting),
        "map_cars": 20,
        "start": "2008-05-23T04:30",
    }
    folder = repository / "notebooks"
    notebook = papermill.execute_notebook(
        folder / "06_context_propagation.ipynb",
        tmp_path / "06.ipynb",
        parameters,
        cwd=folder,
        kernel_name="python3",
        progress_bar=False,
    )
    shown = {
        cell.id: cell.outputs[-1]["data"]["text/plain"] for cell in notebook.cells if cell.get("outputs")
    }
    assert re.search(r"car-\d+ +\d", shown["scenario"])
    assert re.search(r"by distance, chains( +[\d.]+){5}", shown["headline"])
