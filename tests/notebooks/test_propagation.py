"""The report propagation, run for real on a small trace."""

from __future__ import annotations

import json
import re

import nbformat
import numpy as np
import pyarrow.parquet as pq
import pytest

from mudkit import units
from mudkit.report import run_report
from mudkit.report.parameters import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark]
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


def words(report):
    notebook = nbformat.read(report / "report.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.get("text")
    return " ".join(
        each["data"]["text/markdown"] for each in outputs if "text/markdown" in each.get("data", {})
    )


def test_what_is_left_of_messages_and_bytes(report):
    """15 messages of three cabs in five minutes, and 5 of the one alone: 3 and 1 aggregates of five."""
    table = pq.read_table(report / "data" / "thresholds.parquet").to_pandas().set_index("threshold")
    assert table["messages_in"].tolist() == [800] * 3
    assert table["bytes_out"].loc[1] == 320_000
    assert table["aggregates_out"].loc[5] == pytest.approx(160, abs=4), "the ends of the trace cut intervals"
    assert table["aggregates_out"].loc[50] == table["cells"].loc[50]
    said = words(report)
    assert "**800 messages** of 4 devices" in said
    share = float(re.search(r"\*\*([\d.]+)% of the bytes are left", said)[1])
    assert share == pytest.approx(100 * table["bytes_left_share"].min(), abs=0.051)
    assert "cells make four fifths" in said


def test_pictures_are_where_the_cabs_were_and_lose_nothing(report):
    shown = pq.read_table(report / "data" / "cells.parquet").to_pandas()
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
    html = (report / "report.html").read_text()
    assert "mudkitMap.slides(" in html
    assert "Traceback" not in html
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', html)


def test_manifest(report, parameters):
    manifest = json.loads((report / "manifest.json").read_text())
    assert manifest["parameters"] == TEMPLATES["propagation"](**parameters).model_dump()
    assert manifest["inputs"]["trace"]["name"] == "cabs.csv"
