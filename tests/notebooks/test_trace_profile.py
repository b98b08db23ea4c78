"""Report trace_profile on its sample: figures of the first screen, exports, the map and its background."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import shapely
from bs4 import BeautifulSoup
from report_cells import run_cells

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.report import run_report
from mudkit.report.html import export_html
from mudkit.report.page import SUMMARY
from mudkit.report.parameters import preset

pytestmark = pytest.mark.notebook

LINE = {"type": "LineString", "coordinates": [[-98.4, 35.3], [-97.2, 36.2]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def values(folder):
    file = folder / "line.geojson"
    file.write_text(json.dumps(LINE))
    return preset("trace_profile", "sample") | {"background": str(file)}


@pytest.fixture(scope="module")
def notebook(folder, values):
    return run_cells("trace_profile", values, folder)


@pytest.fixture(scope="module")
def rows(values):
    table = pd.read_csv(values["trace"])
    return table.assign(ts=pd.to_datetime(table["t"], unit="s", utc=True).dt.tz_convert(values["tz"]))


def outputs(notebook):
    return [output["data"] for cell in notebook.cells for output in cell.get("outputs", [])]


def page_of(notebook, folder):
    export_html(notebook, folder / "page.html", title="A trace")
    return BeautifulSoup((folder / "page.html").read_text(encoding="utf-8"), "html.parser")


def test_first_screen_agrees_with_the_rows(notebook, rows):
    (screen,) = (data[SUMMARY] for data in outputs(notebook) if SUMMARY in data)
    measures = {measure["name"]: measure["value"] for measure in screen["measures"]}
    assert measures["positions"] == len(rows)
    assert measures["devices"] == rows["device"].nunique()
    assert measures["positions_per_device"] == rows.groupby("device").size().median()
    days = rows["ts"].dt.date
    assert measures["days"] == days.nunique()
    assert measures["devices_per_day"] == rows.groupby(days)["device"].nunique().median()
    assert measures["is_clean"] == "yes"
    assert screen["headline"].startswith("The trace is clean")


def test_cells_are_exported_in_both_formats(notebook, folder, rows):
    table = pq.read_table(folder / "data" / "cells.parquet")
    assert b"geo" in table.schema.metadata
    assert sum(table["positions"].to_pylist()) == len(rows)
    features = json.loads((folder / "data" / "cells.geojson").read_text())["features"]
    assert [feature["properties"]["positions"] for feature in features] == table["positions"].to_pylist()
    tree = shapely.STRtree(shapely.from_wkb(table["geometry"].to_pylist()))
    points = shapely.points(rows["lon"].to_numpy(), rows["lat"].to_numpy())
    assert len(np.unique(tree.query(points, predicate="intersects")[0])) == len(rows)


def test_map_has_levels_background_and_cities(notebook):
    (frame,) = (data["text/html"] for data in outputs(notebook) if "<iframe" in data.get("text/html", ""))
    for call in ("mudkitMap.density(", "mudkitMap.background(", "mudkitMap.streets(", "mudkitMap.cities("):
        assert call in frame
    assert "background: line.geojson" in frame


def test_devices_are_listed_with_a_filter(notebook, folder, rows):
    page = page_of(notebook, folder)
    boxes = page.select(".filtered")
    assert len(boxes) == 1, "without a defect there is no table of defects"
    shown = {row.find(["th", "td"]).get_text(strip=True) for row in boxes[0].select("tbody tr")}
    assert shown == set(rows["device"].astype(str))


def test_period_of_a_sample_has_its_own_figures(values, rows, tmp_path):
    notebook = run_cells("trace_profile", values | {"period": "2010-03-02/2010-03-04"}, tmp_path)
    (screen,) = (data[SUMMARY] for data in outputs(notebook) if SUMMARY in data)
    ts = rows["ts"].dt.tz_localize(None)
    inside = (ts >= pd.Timestamp("2010-03-02")) & (ts < pd.Timestamp("2010-03-04"))
    measures = {measure["name"]: measure["value"] for measure in screen["measures"]}
    assert measures["positions"] == inside.sum()
    assert measures["days"] == 2


def test_background_without_lines_is_refused_before_a_kernel_starts(values, tmp_path, monkeypatch):
    def start(*arguments):
        raise AssertionError("A kernel was started.")

    monkeypatch.setattr("mudkit.report.run._execute", start)
    file = tmp_path / "points.geojson"
    file.write_text('{"type": "Point", "coordinates": [-97.5, 35.5]}')
    with pytest.raises(TraceFormatError, match="has no polygons and no lines"):
        run_report("trace_profile", values | {"background": str(file)}, build=tmp_path, progress=False)


def test_background_of_another_city_is_refused(values, tmp_path):
    file = tmp_path / "vienna.geojson"
    file.write_text('{"type": "LineString", "coordinates": [[16.3, 48.2], [16.4, 48.2]]}')
    with pytest.raises(TraceContentError, match="lies elsewhere"):
        run_cells("trace_profile", values | {"background": str(file)}, tmp_path / "run")
