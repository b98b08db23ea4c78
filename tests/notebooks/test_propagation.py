"""Report propagation, run on a small trace."""

from __future__ import annotations

import gzip
import json
import re

import papermill
import pytest
from report_pages import manifest, page, read_html, table

from mudkit.report import run_report
from mudkit.report.schemas import TEMPLATES

pytestmark = [pytest.mark.notebook, pytest.mark.spark, pytest.mark.soak]
T0 = 1_211_100_000


def read_summary(folder):
    return json.loads((folder / "summary.json").read_text())


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


def test_tables_count_messages_and_bytes(report):
    """Join 15 messages of three cabs in five minutes, and 5 of a single one; the cabs stand still."""
    combinations = table(report, "combinations").set_index(["cells_zoom", "interval_s"])
    shares = combinations["messages_left_share"].xs(300, level="interval_s")
    assert shares.iloc[0] == pytest.approx(2 / 20, rel=0.06), "the ends of the trace cut intervals"
    ways = table(report, "ways").set_index("way")
    assert ways["bytes_left_share"]["last position of each device"] == pytest.approx(4 / 20, rel=0.06)
    summary = {measure["name"]: measure["value"] for measure in read_summary(report)["measures"]}
    assert summary["way"] in ("last", "join")
    assert summary["interval_s"] == 300
    assert summary["receivers"] == 4
    assert "4 devices" in page(report)
    assert "four fifths of the saving" in page(report)


def test_pictures_cover_all_messages_at_the_cabs(report):
    shown = table(report, "pictures")
    assert shown["at"].nunique() <= 48
    assert shown["messages_in"].sum() == 800
    edges = shown[["south", "west", "north", "east"]].drop_duplicates()
    for lat, lon in ((37.75, -122.41), (37.65, -122.2)):
        inside = (
            (edges["south"] < lat) & (lat < edges["north"]) & (edges["west"] < lon) & (lon < edges["east"])
        )
        assert inside.sum() == 1


def test_page_works_offline_and_its_map_has_a_slider(report):
    html = read_html(report)
    assert "mudkitMap.slides(" in html


def test_manifest_has_parameters_and_inputs(report, parameters):
    metadata = manifest(report)
    assert metadata["parameters"] == TEMPLATES["propagation"](**parameters).model_dump()
    assert metadata["inputs"]["trace"]["name"] == "cabs.csv"


def test_receivers_stand_where_most_happens_and_at_the_edge(report):
    """Place three cabs together and one 25 km away: receivers get what is around them at once."""
    receivers = table(report, "receivers").set_index("receiver")
    assert list(receivers.index) == ["where most happens", "at the edge"]
    assert (receivers["messages_around"] > 0).all()
    receipts = table(report, "heard")
    assert set(receipts["receiver"]) == set(receivers.index)
    assert (receipts["t_s"] - receipts["reported_s"]).max() <= 300
    text = page(report)
    assert re.search(
        r"Within \d+ min, a receiver where most happens gets [\d.]+ kB, one at the edge [\d.]+ kB", text
    )
    assert re.search(r"\w+day, \d+ May 2008, \d\d:\d\d:\d\d to ", text), "the day is named"
    assert "dB" not in text, "no noise was recorded"
    assert read_html(report).count("mudkitMap.slides(") >= 2


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
    summary = {measure["name"]: measure for measure in read_summary(report_folder)["measures"]}
    assert summary["position_error_m"]["value"] <= 500
    assert summary["interval_s"]["value"] <= 300
    assert 0 < summary["bytes_left_share"]["low"] < summary["bytes_left_share"]["high"] < 1
    assert 0 < summary["own_repeats_share"]["value"] < 1


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
