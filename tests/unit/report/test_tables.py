"""Files and filtered tables of a report."""

import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
import shapely.geometry
from bs4 import BeautifulSoup

from mudkit.figures import tile_bounds
from mudkit.figures.background import read_background
from mudkit.report.tables import MAX_FILTERED, FilteredTable, merge_equal, save_cells, save_table


def test_tables_are_saved_as_parquet_and_csv(tmp_path):
    table = pd.DataFrame({"a": [1, 2]})
    assert save_table(table, "mine", tmp_path) is table
    assert pq.read_table(tmp_path / "mine.parquet").to_pydict() == {"a": [1, 2]}
    assert (tmp_path / "mine.csv").read_text() == '"a"\n1\n2\n'
    assert save_table(table, "mine", None) is table


def test_neighbouring_rows_that_agree_are_merged():
    table = pd.DataFrame(
        {"limit": ["1", "2", "4", "8"], "cost": [3.0, 1.0, 1.0 + 1e-13, 3.0], "low": math.nan}
    )
    merged, groups = merge_equal(table)
    assert merged["limit"].tolist() == ["1", "2 to 4", "8"]
    assert merged["cost"].tolist() == [3.0, 1.0, 3.0]
    assert groups == [["1"], ["2", "4"], ["8"]]


@pytest.fixture
def cells():
    edges = tile_bounds([15] * 3, [5240, 5241, 5242], [12660, 12661, 12662])
    return pa.table({**edges, "positions": [3, 2, 1], "place": ['5 km "north" of <A>', None, "B"]})


def test_cells_are_saved_as_geoparquet(cells, tmp_path):
    assert save_cells(cells, "cells", tmp_path) is cells
    saved = pq.read_table(tmp_path / "cells.parquet")
    geo = json.loads(saved.schema.metadata[b"geo"])
    column = geo["columns"][geo["primary_column"]]
    assert (geo["version"], column["encoding"], column["geometry_types"]) == ("1.1.0", "WKB", ["Polygon"])
    shapes = shapely.from_wkb(saved["geometry"].to_pylist())
    assert shapely.is_valid(shapes).all()
    assert column["bbox"] == shapely.total_bounds(shapes).tolist()
    edges = np.column_stack([cells[side] for side in ("west", "south", "east", "north")])
    assert (shapely.bounds(shapes) == edges).all()
    assert saved.drop_columns("geometry").to_pydict() == cells.to_pydict()


def test_cells_are_saved_as_geojson(cells, tmp_path):
    save_cells(cells, "cells", tmp_path)
    document = json.loads(
        (tmp_path / "cells.geojson").read_text(encoding="utf-8"), parse_constant=pytest.fail
    )
    assert [feature["properties"] for feature in document["features"]] == cells.select(
        ["positions", "place"]
    ).to_pylist()
    shapes = [shapely.geometry.shape(feature["geometry"]) for feature in document["features"]]
    assert all(shape.exterior.is_ccw for shape in shapes)  # RFC 7946, 3.1.6
    assert shapely.total_bounds(shapes) == pytest.approx(
        [
            cells["west"][0].as_py(),
            cells["south"][2].as_py(),
            cells["east"][2].as_py(),
            cells["north"][0].as_py(),
        ]
    )
    assert read_background(tmp_path / "cells.geojson").name == "cells.geojson"


def test_cells_without_a_number_and_with_a_time_are_valid_geojson(cells, tmp_path):
    odd = cells.append_column("speed", pa.array([math.nan, math.inf, 1.0])).append_column(
        "ts", pa.array([0, 1, None], pa.timestamp("us", "UTC"))
    )
    save_cells(odd, "cells", tmp_path)
    text = (tmp_path / "cells.geojson").read_text(encoding="utf-8")
    properties = [f["properties"] for f in json.loads(text, parse_constant=pytest.fail)["features"]]
    assert [row["speed"] for row in properties] == [None, None, 1.0]
    assert [row["ts"] for row in properties] == [
        "1970-01-01 00:00:00+00:00",
        "1970-01-01 00:00:00.000001+00:00",
        None,
    ]


def test_no_cell_is_saved_as_an_empty_collection(cells, tmp_path):
    save_cells(cells.slice(0, 0), "cells", tmp_path)
    assert json.loads((tmp_path / "cells.geojson").read_text())["features"] == []
    saved = pq.read_table(tmp_path / "cells.parquet")
    assert saved.num_rows == 0
    assert "bbox" not in json.loads(saved.schema.metadata[b"geo"])["columns"]["geometry"]
    assert save_cells(cells, "cells", None) is cells


def filtered(rows):
    table = pd.DataFrame({"device": [f"<b>cab & {n}</b>" for n in range(rows)], "rows": range(rows), "x": 0})
    return FilteredTable(table, "Times are <UTC>.", columns=["device", "rows"], label='Only "cabs" <i>')


def test_filtered_table_escapes_names_and_label():
    html = filtered(30)._repr_html_()
    page = BeautifulSoup(html, "html.parser")
    assert not page.find("b")
    assert not page.find("i")
    assert "Times are <UTC>." in page.get_text()
    assert page.find("label").get_text().strip() == 'Only "cabs" <i>'
    assert page.find(attrs={"role": "region"})["aria-label"] == 'Only "cabs" <i>'
    assert page.find("output").get_text() == "30 rows; scroll to see them all"
    cells = [row.find(["th", "td"]).get_text() for row in page.find("tbody").find_all("tr")]
    assert cells == [f"<b>cab & {n}</b>" for n in range(30)]
    assert page.find(class_="filter").has_attr("hidden"), "without JavaScript there is no field"
    assert [th.get_text() for th in page.find("thead").find_all("th")] == ["device", "rows"]


def test_filtered_table_aligns_heads_and_cells_alike():
    """Cells of all columns have one padding, the page's, and stand on the side of their heads."""
    texts = ["short", "a text that is longer than the names of most devices"] * 10
    table = pd.DataFrame(
        {"device": "cab", "text": texts, "first": pd.Timestamp("2008-05-20"), "rows": range(20)}
    )
    page = BeautifulSoup(
        FilteredTable(table, "t", columns=list(table), label="Only")._repr_html_(), "html.parser"
    )
    sides = [
        [
            "left" if "text-align:left" in cell["style"] else "right"
            for cell in page.find("thead").find_all("th")
        ],
        *(
            [
                "left" if "text-align:left" in cell.get("style", "") else "right"
                for cell in row.find_all(["th", "td"])
            ]
            for row in page.find("tbody").find_all("tr")
        ),
    ]
    assert sides == [["left", "left", "left", "right"]] * 21
    cells = page.find("table").find_all(["th", "td"])
    assert not [cell for cell in cells if "padding" in cell.get("style", "")]


@pytest.mark.parametrize("rows", [0, 1, 11])
def test_small_table_has_no_filter(rows):
    table = filtered(rows)
    assert "<input" not in table._repr_html_()
    assert "<script" not in table._repr_html_()
    assert set(table._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_filtered_table_is_bounded():
    page = BeautifulSoup(filtered(MAX_FILTERED + 5)._repr_html_(), "html.parser")
    rows = page.find("tbody").find_all("tr")
    assert len([row for row in rows if "cab" in row.get_text()]) == MAX_FILTERED
    assert page.find("output").get_text() == "1,000 rows; scroll to see them all"
    assert "1,005" in page.get_text(), "the page says how many there are"
    assert len(filtered(MAX_FILTERED)._repr_html_()) < 400_000


def test_filtered_table_as_text_has_no_markup():
    assert "<input" not in repr(filtered(30))
