"""The report propagation, run for real on a small trace."""

from __future__ import annotations

import gzip
import re

import numpy as np
import papermill
import pytest
from report_pages import html_of, manifest, page, table

from mudkit import units
from mudkit.report import run_report
from mudkit.report.propagating import FAR, NEAR
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark, pytest.mark.soak]
T0 = 1_211_100_000


@pytest.fixture(scope="module")
def parameters(tmp_path_factory):
    """Four cabs that stand still, three of them together, for 200 minutes: a message a minute."""
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


def test_what_is_left_of_messages_and_bytes(report):
    """15 messages of three cabs in five minutes, and 5 of the one alone: 3 and 1 aggregates of five."""
    left = table(report, "thresholds").set_index("threshold")
    assert left["messages_in"].tolist() == [800] * 3
    assert left["bytes_out"].loc[1] == 320_000
    assert left["aggregates_out"].loc[5] == pytest.approx(160, abs=4), "the ends of the trace cut intervals"
    assert left["aggregates_out"].loc[50] == left["cells"].loc[50]
    said = page(report)
    assert "4 devices" in said
    share = float(re.search(r"([\d.]+) % of the bytes are left", said)[1])
    best = left["bytes_left_share"]
    assert share == pytest.approx(100 * best[best <= best.min() + 0.01].iloc[0], abs=0.51)
    assert "make four fifths" in said


def test_pictures_are_where_the_cabs_were_and_lose_nothing(report):
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


def test_the_page_needs_no_network_and_its_map_has_a_slider(report):
    html = html_of(report)
    assert "mudkitMap.slides(" in html


def test_manifest(report, parameters):
    made_by = manifest(report)
    assert made_by["parameters"] == TEMPLATES["propagation"](**parameters).model_dump()
    assert made_by["inputs"]["trace"]["name"] == "cabs.csv"


def test_what_is_known_near_by_and_far_away(report, parameters):
    """Three cabs are in the middle and one is 25 km away: it is no noise of theirs, and comes late."""
    heard = table(report, "heard")
    assert set(heard["receiver"]) == {NEAR, FAR}
    near = heard[(heard["receiver"] == NEAR) & (heard["distance_km"] < 2)]
    late_s = (near["t_s"] - near["reported_s"]).max()
    assert late_s <= 60
    far = heard[heard["receiver"] == FAR]
    assert (far["t_s"] - far["reported_s"]).max() > 500
    said = page(report)
    received = re.findall(rf"who is (?:{NEAR}|{FAR}) gets ([\d,]+) messages", said)
    assert len(received) == 2
    assert len(set(received)) == 1, "both get all in the end"
    assert "dB" not in said, "no noise was recorded"
    html = html_of(report)
    assert html.count("mudkitMap.slides(") >= 2
    assert FAR in html


def test_on_the_recorded_taxis(cabspotting, tmp_path):
    """Two hours of an evening, as the file has them."""
    first, *rest = gzip.decompress(cabspotting.read_bytes()).decode().splitlines()
    some = [row for row in rest if 0 <= int(row.split(",")[1]) - 1_211_516_000 < 7200]
    assert len(some) > 5000
    file = tmp_path / "cabs.csv.gz"
    with gzip.open(file, "wt") as out:
        out.write("\n".join([first, *some, ""]))
    done = run_report(
        "propagation",
        {"trace": str(file), "format": "cabspotting", "tz": "America/Los_Angeles", "played_minutes": 15.0},
        build=tmp_path / "build",
        progress=False,
    )
    heard = table(done, "heard")
    assert (heard["value"] >= 0).all()
    age_s = (heard["t_s"] - heard["reported_s"]).groupby(heard["receiver"]).mean()
    assert age_s[NEAR] < age_s[FAR]
    assert "leave" in page(done) or "left" in page(done)


def test_chapter_06_on_the_recorded_taxis(cabspotting, repository, tmp_path):
    """The evening in which most taxis report; a reader's own trace takes the same parameters."""
    parameters = {
        "cars": 12,
        "minutes": 6.0,
        "recorded": str(cabspotting),
        "map_cars": 20,
        "start": "2008-05-23T04:30",
    }
    folder = repository / "notebooks"
    ran = papermill.execute_notebook(
        folder / "06_context_propagation.ipynb",
        tmp_path / "06.ipynb",
        parameters,
        cwd=folder,
        kernel_name="python3",
        progress_bar=False,
    )
    shown = {cell.id: cell.outputs[-1]["data"]["text/plain"] for cell in ran.cells if cell.get("outputs")}
    assert re.search(r"car-\d+ +\d", shown["scenario"])
    assert re.search(r"by distance, chains( +[\d.]+){5}", shown["headline"])
