"""GeoJSON files as background: which are drawn, and which are refused with what they hold."""

import json

import numpy as np
import pytest

from mudkit.errors import InputMissing, TraceContentError, TraceFormatError
from mudkit.figures.background import _MAX_POINTS, read_background
from mudkit.figures.geometry import Frame

FRAME = Frame(37.6, -122.6, 37.9, -122.2, -180.0)
SQUARE = [[-122.5, 37.7], [-122.4, 37.7], [-122.4, 37.8], [-122.5, 37.8], [-122.5, 37.7]]
HOLE = [[-122.47, 37.73], [-122.43, 37.73], [-122.43, 37.77], [-122.47, 37.77], [-122.47, 37.73]]
LINE = {"type": "LineString", "coordinates": SQUARE[:2]}
POLYGON = {"type": "Polygon", "coordinates": [SQUARE, HOLE]}
POINT = {"type": "Point", "coordinates": SQUARE[0]}


def feature(geometry):
    return {"type": "Feature", "properties": {}, "geometry": geometry}


def collection(*geometries):
    return {"type": "FeatureCollection", "features": [feature(geometry) for geometry in geometries]}


@pytest.fixture
def write(tmp_path):
    def to_file(document):
        file = tmp_path / "map.geojson"
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return file

    return to_file


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        (LINE, 1),
        (POLYGON, 2),
        (feature(LINE), 1),
        (collection(LINE, None, POINT, POLYGON), 3),
        ({"type": "MultiPolygon", "coordinates": [[SQUARE], [HOLE]]}, 2),
        ({"type": "MultiLineString", "coordinates": [SQUARE[:2], SQUARE[2:4]]}, 2),
        ({"type": "GeometryCollection", "geometries": [LINE, POINT, POLYGON]}, 3),
        ({"type": "LineString", "coordinates": [[*point, 12.5] for point in SQUARE[:2]]}, 1),
    ],
)
def test_lines_and_edges_of_polygons_are_drawn(document, lines, write):
    drawn = read_background(write(document)).within(FRAME)
    assert len(drawn["lines"]) == lines
    lat, lon = np.array([place for line in drawn["lines"] for place in line]).T
    assert 37.7 <= lat.min() <= lat.max() <= 37.8
    assert -122.5 <= lon.min() <= lon.max() <= -122.4
    assert drawn["attribution"] == "background: map.geojson"


def test_file_with_a_byte_order_mark_is_read(write):
    file = write(LINE)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_background(file).within(FRAME)["lines"]


@pytest.mark.parametrize(
    ("document", "problem", "found"),
    [
        (collection(POINT, POINT), "has no polygons and no lines", "2 Point"),
        (collection(), "has no polygons and no lines", "no geometry"),
        (collection(None), "has no polygons and no lines", "no geometry"),
        (feature(None), "has no polygons and no lines", "no geometry"),
        ({"type": "Polygon", "coordinates": []}, "has no polygons and no lines", "1 Polygon"),
        ("{broken", "cannot be read", ""),
        ("", "cannot be read", ""),
        ("[]", "cannot be read", ""),
        ("3", "cannot be read", ""),
        ("{}", "cannot be read", ""),
        ({"type": "FeatureCollection"}, "cannot be read", ""),
        ({"type": "FeatureCollection", "features": ["a"]}, "cannot be read", ""),
        ({"type": "FeatureCollection", "features": None}, "cannot be read", ""),
        ({"type": "LineString", "coordinates": [["a", "b"]]}, "cannot be read", ""),
        ({"type": "LineString", "coordinates": [[1.0, 2.0]]}, "cannot be read", ""),
        ({"type": "Topology", "objects": {}}, "cannot be read", ""),
        (
            {"type": "LineString", "coordinates": [[4.5e6, 5.3e6], [4.6e6, 5.3e6]]},
            "is not in degrees",
            "coordinates from 4.5e+06 to 4.6e+06",
        ),
    ],
)
def test_other_files_are_refused(document, problem, found, write):
    with pytest.raises(TraceFormatError, match=f"map.geojson {problem}") as refusal:
        read_background(write(document))
    assert found in refusal.value.found
    assert "RFC 7946" in refusal.value.expected


def test_missing_and_binary_files_are_refused(tmp_path):
    with pytest.raises(InputMissing):
        read_background(tmp_path / "none.geojson")
    (tmp_path / "map.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(TraceFormatError, match="cannot be read"):
        read_background(tmp_path / "map.png")


def test_background_of_another_place_is_refused(write):
    swapped = {"type": "LineString", "coordinates": [[37.7, -89.0], [37.8, -88.0]]}
    with pytest.raises(TraceContentError, match="lies elsewhere") as refusal:
        read_background(write(swapped)).within(FRAME)
    assert "longitude first" in refusal.value.remedy


def test_lines_are_cut_at_the_frame_and_thinned(write):
    random = np.random.default_rng(6)
    points = np.column_stack([np.linspace(-130, -110, 100_000), 37.75 + random.normal(0, 0.02, 100_000)])
    (line,) = read_background(write({"type": "LineString", "coordinates": points.tolist()})).within(FRAME)[
        "lines"
    ]
    lon = np.array(line)[:, 1]
    assert len(line) <= _MAX_POINTS
    assert lon.min() == pytest.approx(FRAME.west, abs=1e-4)
    assert lon.max() == pytest.approx(FRAME.east, abs=1e-4)


def test_background_beyond_the_date_line_is_found(write):
    line = {"type": "LineString", "coordinates": [[-179.9, -17.0], [-179.8, -17.1]]}
    drawn = read_background(write(line)).within(Frame(-18.0, 179.0, -16.0, 181.0, 0.0))
    assert drawn["lines"] == [[[-17.0, 180.1], [-17.1, 180.2]]]
