"""Web Mercator, frames and TopoJSON."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.figures import assets, geometry
from mudkit.figures.geometry import Frame, closed_at_pole, tiles
from mudkit.units import distance_km, from_mercator, to_mercator

# Two squares that share a border: arc 0, which is used backwards once.
SQUARES = {
    "type": "Topology",
    "transform": {"scale": [0.5, 0.25], "translate": [10.0, 20.0]},
    "arcs": [
        [[2, 0], [0, 4]],
        [[2, 4], [-2, 0], [0, -4], [2, 0]],
        [[2, 0], [2, 0], [0, 4], [-2, 0]],
    ],
    "objects": {
        "both": {
            "type": "GeometryCollection",
            "geometries": [
                {"type": "Polygon", "arcs": [[0, 1]]},
                {"type": "MultiPolygon", "arcs": [[[2, -1]]]},
            ],
        },
        "border": {"type": "LineString", "arcs": [0]},
    },
}


def test_arcs_are_decoded_from_scaled_differences():
    (line,) = geometry.rings(SQUARES, "border")
    assert line.tolist() == [[11.0, 20.0], [11.0, 21.0]]


def test_rings_join_arcs_and_reverse_negative_ones():
    west, east = geometry.rings(SQUARES, "both")
    assert west.tolist() == [[11, 20], [11, 21], [10, 21], [10, 20], [11, 20]]
    assert east.tolist() == [[11, 20], [12, 20], [12, 21], [11, 21], [11, 20]]


def test_unquantised_topology_is_read():
    plain = {
        "arcs": [[[1.5, 2.5], [3.5, 4.5]]],
        "objects": {"a": {"type": "MultiLineString", "arcs": [[0], [-1]]}},
    }
    assert [line.tolist() for line in geometry.rings(plain, "a")] == [
        [[1.5, 2.5], [3.5, 4.5]],
        [[3.5, 4.5], [1.5, 2.5]],
    ]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("scale", ["110m", "50m"])
def test_land_contains_known_places(scale):
    land = [geometry.continuous(ring) for ring in geometry.rings(assets.land_topology(scale), "land")]

    def is_on_land(lat, lon):
        return any(
            is_inside(geometry.closed_at_pole(ring), lat, lon + turn)
            for ring in land
            for turn in (-360, 0, 360)
        )

    dry = [(48.8, 2.3), (45.0, -93.3), (-25.0, 134.0), (66.5, -172.0), (-85.0, 0.0), (-89.0, 179.9)]
    wet = [(0.0, -30.0), (37.5, -123.5), (-18.0, -178.0), (60.0, 180.0), (-60.0, 0.0)]
    assert [is_on_land(*place) for place in dry] == [True] * len(dry)
    assert [is_on_land(*place) for place in wet] == [False] * len(wet)


@pytest.mark.parametrize("scale", ["110m", "50m"])
def test_coast_lines_neither_jump_nor_follow_the_date_line(scale):
    for ring in geometry.rings(assets.land_topology(scale), "land"):
        for piece in geometry.coast(geometry.continuous(ring)):
            steps = np.abs(np.diff(piece, axis=0))
            assert steps[:, 0].max() < 30.0
            at_edge = np.abs(np.abs(piece[:, 0]) - 180.0) < 1e-6
            assert not (at_edge[:-1] & at_edge[1:] & (steps[:, 1] > 0)).any()


def test_coast_omits_cuts_at_the_date_line():
    ring = np.array([[180.0, 1], [170, 1], [170, 3], [180, 3], [180, 1]])
    (piece,) = geometry.coast(ring)
    assert piece.tolist() == [[180, 1], [170, 1], [170, 3], [180, 3]]


def make_frame(south, west, north, east):
    return Frame(south, west, north, east, -180.0)


def test_clipping_keeps_the_area_within():
    triangle = np.array([[0.0, 0], [10, 0], [0, 10], [0, 0]])

    def clip_area(*edges):
        return sum(compute_area(part) for part in geometry.clip(triangle, make_frame(*edges), is_filled=True))

    assert clip_area(0, 0, 5, 5) == pytest.approx(25.0)
    assert clip_area(-1, -1, 11, 11) == pytest.approx(50.0)
    assert clip_area(2, 2, 8, 8) == pytest.approx(18.0)
    assert geometry.clip(triangle, make_frame(20, 20, 30, 30), is_filled=True) == []


def test_ring_that_leaves_and_reenters_the_frame_has_two_parts():
    bay = np.array([[0.0, 0], [10, 0], [10, 1], [1, 1], [1, 2], [10, 2], [10, 3], [0, 3], [0, 0]])
    assert len(geometry.clip(bay, make_frame(-1, 5, 4, 8), is_filled=True)) == 2


def test_lines_are_cut_at_the_frame():
    line = np.column_stack([np.arange(10.0), np.zeros(10)])
    (part,) = geometry.clip(line, make_frame(-1, 3.5, 1, 5.5), is_filled=False)
    assert part[:, 0].tolist() == [3.5, 4, 5, 5.5]
    there_and_back = np.array([[0.0, 0], [5, 0], [9, 0], [9, 1], [5, 1], [0, 1]])
    parts = geometry.clip(there_and_back, make_frame(-1, -1, 2, 2), is_filled=False)
    assert [len(part) for part in parts] == [2, 2]
    assert geometry.clip(line, make_frame(5, 0, 6, 9), is_filled=False) == []


def test_tiles_have_the_edges_of_web_mercator():
    edges = geometry.tile_bounds(10, [163, 164], [395, 395])
    assert edges["east"][0] == edges["west"][1]
    assert edges["south"][0] < 37.7749 < edges["north"][0]
    assert edges["west"][0] < -122.4194 < edges["east"][0]


def test_graticule_has_multiples_of_its_step():
    assert geometry.graticule(15, Frame(-40, 160, 40, 200, 0)) == (
        [-30.0, -15.0, 0.0, 15.0, 30.0],
        [165.0, 180.0, 195.0],
    )
    latitudes, _ = geometry.graticule(0.1, Frame(44.85, 7.0, 45.15, 7.2, -180))
    assert latitudes == [44.9, 45.0, 45.1]
    assert max(geometry.graticule(5, Frame(-90, 0, 90, 10, -180))[0]) == 85.0


@pytest.mark.parametrize(("span", "step"), [(360, 30.0), (100, 15.0), (10, 2.0), (2.6, 0.5), (0.2, 0.1)])
def test_graticule_step_depends_on_the_span(span, step):
    assert geometry.graticule_step(span) == step


def compute_area(ring):
    x, y = ring[:, 0], ring[:, 1]
    return abs(float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))) / 2


def is_inside(ring, lat, lon):
    x, y = ring[:, 0], ring[:, 1]
    next_x, next_y = np.roll(x, -1), np.roll(y, -1)
    spans = (y > lat) != (next_y > lat)
    height = np.where(next_y == y, 1.0, next_y - y)
    return bool(np.sum(spans & (lon < x + (lat - y) / height * (next_x - x))) % 2)


def test_projection_is_web_mercator():
    x, y = to_mercator([0.0, 85.0511287798066, -85.0511287798066, 37.7749], [-180.0, 0.0, 180.0, -122.4194])
    assert x == pytest.approx([0.0, 0.5, 1.0, 0.15994611])
    assert y == pytest.approx([0.5, 0.0, 1.0, 0.38653], abs=1e-5)
    assert tiles(10, 37.7749, -122.4194) == (163, 395)  # San Francisco
    lat, lon = from_mercator(x, y)
    assert lat[3] == pytest.approx(37.7749)
    assert lon[3] == pytest.approx(-122.4194)


@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=1, max_size=20))
def test_frame_contains_its_places(places):
    lat, lon = np.array(places).T
    frame = Frame.around([(lat, lon)])
    unwrapped = frame.unwrap(lon)
    assert frame.holds(lat, unwrapped).all()
    assert np.allclose((unwrapped - lon) % 360.0 % 360.0 % 359.999999999, 0.0, atol=1e-6)
    assert -180.0 - 1e-9 < (frame.west + frame.east) / 2 <= 180.0 + 1e-9  # to the last bits of its edges
    assert frame.east - frame.west <= 360.0 + 1e-9
    window = frame.surroundings()
    assert window.west <= frame.west
    assert window.east >= frame.east or window.east - window.west > 395.0


def test_frame_holds_what_is_within_its_four_edges():
    frame = Frame(10.0, 20.0, 30.0, 50.0, -180.0)
    lat, lon = np.array([10.0, 30.0, 9.9, 30.1, 20.0, 20.0]), np.array([20.0, 50.0, 35.0, 35.0, 19.9, 50.1])
    assert frame.holds(lat, lon).tolist() == [True, True, False, False, False, False]


def test_core_leaves_out_a_hundredth_on_each_side_and_has_a_margin_of_a_tenth():
    """See :meth:`Frame.core`; what is beyond the frame stays beyond it."""
    lat, lon = np.linspace(10.0, 20.0, 2001), np.linspace(30.0, 50.0, 2001)
    core = Frame(0.0, 0.0, 60.0, 80.0, -180.0).core(lat, lon, np.ones(2001))
    edges = core.south, core.north, core.west, core.east
    assert edges == pytest.approx((10.1 - 0.98, 19.9 + 0.98, 30.2 - 1.96, 49.8 + 1.96), abs=0.02)
    frame = Frame(10.05, 30.1, 19.95, 49.9, -180.0)
    assert frame.core(lat, lon, np.ones(2001)) == frame


def test_frame_of_few_places_includes_outliers():
    frame = Frame.around([(np.array([0.0, 0, 0, 60]), np.array([0.0, 0, 0, 60]))])
    assert (frame.north, frame.east) == (60.0, 60.0)


def test_frame_of_one_place_has_a_minimum_size():
    frame = Frame.around([(np.array([37.0]), np.array([-122.0]))])
    assert frame.side_km == pytest.approx(0.5)


@pytest.mark.parametrize(("lat", "lon"), [(48.0, 11.0), (-33.0, -71.0), (64.0, 179.999)])
def test_frame_of_a_place_has_the_least_side_around_it(lat, lon):
    frame = Frame(lat, lon, lat, lon, -180.0).at_least(2.0)
    assert ((frame.south + frame.north) / 2, (frame.west + frame.east) / 2) == pytest.approx((lat, lon))
    assert distance_km(frame.south, lon, frame.north, lon) == pytest.approx(2.0)
    assert distance_km(lat, frame.west, lat, frame.east) == pytest.approx(2.0, rel=1e-3)


def test_ring_that_ends_where_it_began_needs_no_pole():
    around = np.column_stack([np.linspace(-180.0, 180.0, 13), np.full(13, 70.0)])
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert closed_at_pole(square) is square
    assert closed_at_pole(around)[-2:].tolist() == [[180.0, 90.0], [-180.0, 90.0]]
