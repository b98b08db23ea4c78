"""Areas of GeoJSON: refusals by the feature's number, edges, the date line, and many areas."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest

from mudkit import trace, words
from mudkit.errors import InputMissing, ParameterError, TraceContentError, TraceFormatError
from mudkit.files import place
from mudkit.trace import areas as areas_module
from mudkit.trace.areas import AREA_COLUMNS, read_areas


def square(west, south, east, north):
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def feature(*rings, kind="Polygon", **fields):
    coordinates = list(rings) if kind == "Polygon" else [[ring] for ring in rings]
    return {
        "type": "Feature",
        "geometry": {"type": kind, "coordinates": coordinates},
        "properties": {},
        **fields,
    }


def collection(*features):
    return {"type": "FeatureCollection", "features": list(features)}


def build(*places):
    """Build a table of places: latitude, longitude."""
    lat, lon = zip(*places, strict=True)
    return pa.table(
        {"n": range(len(places)), "lat": pa.array(lat, pa.float64()), "lon": pa.array(lon, pa.float64())}
    )


def numbers(places, document):
    """Return the numbers of the areas of each place."""
    table = trace.join(build(*places), document)
    shown = [[] for _ in places]
    for row in table.to_pylist():
        shown[row["n"]].append(row["area_number"])
    return [[] if areas == [None] else areas for areas in shown]


TWO = collection(feature(square(8, 47, 9, 48)), feature(square(9, 47, 10, 48)))
HOLE = collection(feature(square(0, 0, 9, 9), square(3, 3, 6, 6)), feature(square(3, 3, 6, 6)))


def test_edge_and_corner_belong_to_each_area_that_they_touch():
    places = [
        (47.5, 8.5),
        (47.5, 9.0),
        (47.5, 8.0),
        (48.0, 9.0),
        (48.0, 10.0),
        (48.0000001, 9.0),
        (47.5, 10.1),
    ]
    assert numbers(places, TWO) == [[1], [1, 2], [1], [1, 2], [2], [], []]


def test_edge_of_a_hole_belongs_to_the_area_around_it_and_its_inside_does_not():
    assert numbers([(1, 1), (4, 4), (3, 4), (6, 6), (9, 9)], HOLE) == [[1], [2], [1, 2], [1, 2], [1]]


def test_position_in_several_areas_has_a_row_for_each_by_number_and_rows_keep_their_order():
    document = collection(*(feature(square(-n, -n, n, n), id=f"a{n}") for n in (3, 1, 2)))
    table = trace.join(build((5, 5), (0, 0), (2.5, 0)), document)
    assert table.select(["n", "area_number", "area"]).to_pylist() == [
        {"n": 0, "area_number": None, "area": None},
        {"n": 1, "area_number": 1, "area": "a3"},
        {"n": 1, "area_number": 2, "area": "a1"},
        {"n": 1, "area_number": 3, "area": "a2"},
        {"n": 2, "area_number": 1, "area": "a3"},
    ]
    assert table.schema.field("area_number").type == AREA_COLUMNS.field("area_number").type


def test_rows_without_a_possible_place_are_in_no_area():
    world = collection(feature(square(-180, -90, 180, 90)))
    places = [(None, 8), (47, None), (float("nan"), 8), (90.5, 8), (47, 180.5), (90, 180), (-90, -180)]
    assert numbers(places, world) == [[], [], [], [], [], [1], [1]]


@pytest.mark.parametrize(
    "area",
    [
        feature(square(170, -10, 180, 10), square(-180, -10, -170, 10), kind="MultiPolygon"),
        feature(square(170, -10, 190, 10)),
        feature(square(-190, -10, -170, 10)),
    ],
    ids=["cut at the line", "counted on to the east", "counted on to the west"],
)
def test_area_over_the_date_line_holds_both_sides_and_the_line(area):
    places = [
        (0, 175),
        (0, -175),
        (0, 180),
        (0, -180),
        (10, -170),
        (0, 169.9),
        (0, -169.9),
        (0, 0),
        (10.1, 180),
    ]
    assert numbers(places, collection(area)) == [[1], [1], [1], [1], [1], [], [], [], []]


def test_date_line_is_one_line_whatever_its_sign():
    document = collection(feature(square(170, 0, 180, 10)), feature(square(-180, 0, -170, 10)))
    assert numbers([(5, 180), (5, -180)], document) == [[1, 2], [1, 2]]


def test_features_without_a_geometry_hold_nothing_and_count():
    document = collection(
        {"type": "Feature", "geometry": None, "properties": None},
        feature(),
        feature(square(8, 47, 9, 48)),
    )
    assert numbers([(47.5, 8.5)], document) == [[3]]
    with pytest.raises(TraceFormatError, match="2 features, none with a polygon"):
        trace.join(build((0, 0)), collection(*document["features"][:2]))


def test_names_are_a_property_the_id_or_the_number():
    one = feature(square(0, 0, 1, 1), id=7, properties={"NAME": "Zürich", "people": 400_000})
    other = feature(square(2, 0, 3, 1), properties={"NAME": None})
    table = build((0.5, 0.5), (0.5, 2.5))

    def names(**options):
        return trace.join(table, collection(one, other), **options)["area"].to_pylist()

    assert names() == ["7", "2"]
    assert names(name="NAME") == ["Zürich", None]
    assert names(name="people") == ["400000", None]
    with pytest.raises(ParameterError, match=r"expected:\s+NAME, people\n\s+to do:\s+did you mean 'NAME'"):
        names(name="NAMES")


@pytest.mark.parametrize(
    ("area", "problem"),
    [
        ({"type": "Feature", "properties": {}}, "an object of type Feature with a geometry"),
        ({"type": "Polygon", "coordinates": [square(0, 0, 1, 1)]}, "an object of type Feature"),
        (5, r"found:\s+5"),
        ({"type": "Feature", "geometry": {"type": "Point", "coordinates": [8, 47]}}, r"found:\s+Point"),
        ({"type": "Feature", "geometry": {"type": "Polygon"}}, "Polygon without coordinates"),
        ({"type": "Feature", "geometry": "here"}, r"found:\s+'here'"),
        (feature([[0, 0], [1, 0], [0, 0]]), "a ring of 3 positions"),
        (feature(square(0, 0, 1, 1)[:-1]), r"ends \[0, 0\] and \[0, 1\](.|\n)*close the ring"),
        (feature([[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]), r"Self-intersection(.|\n)*make_valid"),
        (feature(square(0, 0, 9, 9), square(20, 20, 21, 21)), "Hole lies outside shell"),
        (feature(square(0, 0, 2, 2), square(1, 1, 3, 3), kind="MultiPolygon"), "Self-intersection"),
        (
            feature(square(2_600_000, 1_200_000, 2_700_000, 1_300_000)),
            r"position \[2.6e\+06, 1.2e\+06\](.|\n)*ogr2ogr",
        ),
        (feature(square(47, 8, 48, 100)), r"position \[48, 100\]"),
        (feature([[0, 0], [1, 0], [1, float("nan")], [0, 0]]), r"position \[1, nan\]"),
        (feature([[0, 0], [1, 0], [1, None], [0, 0]]), "a ring"),
        (feature([["0", "0"], ["1", "0"], ["1", "1"], ["0", "0"]]), "a ring"),
        (feature(0, 1, 2), "a ring 0"),
        ({"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": [7]}}, "lists of rings"),
        (feature(square(-179, -10, 179, 10)), r"an edge from longitude -179 to 179(.|\n)*181 for -179"),
    ],
)
def test_unusable_feature_is_refused_by_its_number(area, problem, tmp_path):
    document = collection(feature(square(0, 0, 1, 1)), area)
    file = tmp_path / "zones.geojson"
    file.write_text(json.dumps(document))
    with pytest.raises(TraceFormatError, match=problem) as refused:
        trace.join(build((0, 0)), file)
    assert "Feature 2 of zones.geojson is not usable" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("[1, 2]", r"found:\s+\[1, 2\]"),
        ('{"type": "Topology", "objects": {}}', "type 'Topology'"),
        ('{"type": "FeatureCollection"}', "type 'FeatureCollection'"),
        ('{"type": "GeometryCollection", "geometries": []}', "type 'GeometryCollection'"),
        ('{"type": "Feature"}\n{"type": "Feature"}', "Extra data"),
    ],
)
def test_file_that_is_not_geojson_is_refused(text, problem, tmp_path):
    file = tmp_path / "zones.geojson"
    file.write_text(text)
    with pytest.raises(TraceFormatError, match=problem) as refused:
        trace.join(build((0, 0)), file)
    assert "zones.geojson is not GeoJSON" in str(refused.value)


def test_file_that_cannot_be_read_is_not_called_another_format(tmp_path):
    """The reason of the system is shown: a folder here, or missing rights."""
    with pytest.raises(InputMissing, match="no file of areas that can be read") as refused:
        trace.join(build((0, 0)), tmp_path)
    assert "directory" in str(refused.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(InputMissing, match=r"zones\.geojson"):
        trace.join(build((0, 0)), tmp_path / "zones.geojson")


def test_file_with_a_byte_order_mark_a_feature_and_a_polygon_are_read(tmp_path):
    file = tmp_path / "zones.geojson"
    file.write_text(json.dumps(TWO), encoding="utf-8-sig")
    places = [(47.5, 8.5), (47.5, 9.5)]
    assert numbers(places, file) == numbers(places, TWO) == [[1], [2]]
    assert numbers(places, TWO["features"][1]) == [[], [1]]
    assert numbers(places, TWO["features"][0]["geometry"]) == [[1], []]


def test_areas_at_an_address_are_read():
    place("memory://areas/zones.geojson").write_text(json.dumps(TWO), encoding="utf-8")
    assert numbers([(47.5, 8.5), (47.5, 9.5)], "memory://areas/zones.geojson") == [[1], [2]]
    with pytest.raises(InputMissing, match=r"zone\.geojson"):
        trace.join(build((0, 0)), "memory://areas/zone.geojson")


def test_heights_are_left_out():
    ring = [[x, y, 400.0] for x, y in square(8, 47, 9, 48)]
    assert numbers([(47.5, 8.5)], collection(feature(ring))) == [[1]]


def test_other_columns_are_places_and_tables_may_be_joined_twice():
    table = build((0, 0)).append_column("to_lat", pa.array([47.5])).append_column("to_lon", pa.array([9.5]))
    joined = trace.join(table, TWO, places=("to_lat", "to_lon"))
    assert joined["area_number"].to_pylist() == [2]
    with pytest.raises(TraceContentError, match=r"area_number, area(.|\n)*rename them"):
        trace.join(joined, TWO)
    names = [{"area": "to_area", "area_number": "to_number"}.get(name, name) for name in joined.column_names]
    assert trace.join(joined.rename_columns(names), TWO)["area"].to_pylist() == [None]
    with pytest.raises(ParameterError, match="two columns"):
        trace.join(table, TWO, places=("lat", "lat"))
    with pytest.raises(TraceContentError, match=r"expected:\s+latitude"):
        trace.join(table, TWO, places=("latitude", "lon"))
    with pytest.raises(TraceContentError, match="column to_lat is of another type"):
        trace.join(table.set_column(3, "to_lat", pa.array(["47"])), TWO, places=("to_lat", "to_lon"))


def test_table_without_rows_has_the_columns():
    table = trace.join(build((0, 0)).slice(0, 0), TWO)
    assert (len(table), table.column_names) == (0, ["n", "lat", "lon", "area_number", "area"])


def test_areas_are_pickled_without_their_tree():
    prepared = read_areas(TWO, None)
    list(prepared.joined(build((47.5, 8.5)), ("lat", "lon")))
    again = pickle.loads(pickle.dumps(prepared))
    assert "_tree" not in vars(again)
    assert [len(table) for table in again.joined(build((47.5, 8.5)), ("lat", "lon"))] == [1]


def test_hundred_thousand_areas_equal_arithmetic():
    """A grid of squares of a thousandth of a degree, and places anywhere in and around it."""
    side, columns = 0.001, 400
    document = collection(
        *(
            feature(square(8 + side * x, 47 + side * y, 8 + side * (x + 1), 47 + side * (y + 1)))
            for y in range(250)
            for x in range(columns)
        )
    )
    rng = np.random.default_rng(2)
    lat, lon = rng.uniform(46.9, 47.3, 5000), rng.uniform(7.9, 8.5, 5000)
    table = trace.join(pa.table({"lat": lat, "lon": lon}), document)
    x, y = np.floor((lon - 8) / side).astype(int), np.floor((lat - 47) / side).astype(int)
    is_in = (x >= 0) & (x < columns) & (y >= 0) & (y < 250)
    expected = [int(n) if ok else None for n, ok in zip(y * columns + x + 1, is_in, strict=True)]
    assert table["area_number"].to_pylist() == expected
    assert 1000 < is_in.sum() < 4000


def test_pairs_at_once_are_bounded_where_all_areas_overlap(monkeypatch):
    """The tree returns all boxes around a place, so places are searched in blocks with few enough of them."""
    document = collection(*(feature(square(-1 - n / 1e4, -1, 1 + n / 1e4, 1)) for n in range(2000)))
    sizes = []
    pairs = areas_module.Areas._pairs

    def record(self, lat, lon):
        boxes = self._tree.query(areas_module.shapely.points(lon, lat)).shape[1]
        sizes.append((len(lat), boxes))
        return pairs(self, lat, lon)

    monkeypatch.setattr(areas_module, "_MAX_PAIRS", 10_000)
    monkeypatch.setattr(areas_module.Areas, "_pairs", record)
    rng = np.random.default_rng(5)
    lat = np.where(rng.random(3000) < 0.02, 0.0, rng.uniform(-80, 80, 3000))
    table = trace.join(pa.table({"lat": lat, "lon": np.zeros(3000)}), document)
    counts = np.bincount(
        np.searchsorted(np.unique(lat), table.filter(table["area"].is_valid())["lat"].to_numpy())
    )
    assert counts.max() % 2000 == 0
    assert all(boxes <= 10_000 or rows == 1 for rows, boxes in sizes)
    assert sum(boxes for _, boxes in sizes) > 50 * 2000
    assert len(sizes) < 100


def test_columns_have_labels():
    assert [words.label(name).title for name in AREA_COLUMNS.names] == ["number of the area", "area"]
