import math

import numpy as np
import pytest

from mudkit.errors import ParameterError
from mudkit.figures import assets
from mudkit.figures.maps import topology

# Two squares that share a border, the example that the format exists for: arc 0 is the border, run backwards once.
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


def test_arcs_are_differences_scaled_and_moved():
    (line,) = topology.rings(SQUARES, "border")
    assert line.tolist() == [[11.0, 20.0], [11.0, 21.0]]


def test_rings_join_arcs_and_run_negative_ones_backwards():
    west, east = topology.rings(SQUARES, "both")
    assert west.tolist() == [[11, 20], [11, 21], [10, 21], [10, 20], [11, 20]]
    assert east.tolist() == [[11, 20], [12, 20], [12, 21], [11, 21], [11, 20]]


def test_a_topology_that_is_not_quantised():
    plain = {
        "arcs": [[[1.5, 2.5], [3.5, 4.5]]],
        "objects": {"a": {"type": "MultiLineString", "arcs": [[0], [-1]]}},
    }
    assert [line.tolist() for line in topology.rings(plain, "a")] == [
        [[1.5, 2.5], [3.5, 4.5]],
        [[3.5, 4.5], [1.5, 2.5]],
    ]


def test_an_unknown_object_is_refused_by_name():
    with pytest.raises(ParameterError, match="border, both"):
        topology.rings(SQUARES, "lakes")


@pytest.mark.parametrize("scale", ["110m", "50m"])
def test_the_land_is_where_it_is(scale):
    land = [topology.continuous(ring) for ring in topology.rings(assets.land_topology(scale), "land")]

    def on_land(lat, lon):
        return any(
            inside(topology.closed_at_pole(ring), lat, lon + turn) for ring in land for turn in (-360, 0, 360)
        )

    dry = [(48.8, 2.3), (45.0, -93.3), (-25.0, 134.0), (66.5, -172.0), (-85.0, 0.0), (-89.0, 179.9)]
    wet = [(0.0, -30.0), (37.5, -123.5), (-18.0, -178.0), (60.0, 180.0), (-60.0, 0.0)]
    assert [on_land(*place) for place in dry] == [True] * len(dry)
    assert [on_land(*place) for place in wet] == [False] * len(wet)


@pytest.mark.parametrize("scale", ["110m", "50m"])
def test_no_line_of_the_coast_jumps_or_follows_the_date_line(scale):
    for ring in topology.rings(assets.land_topology(scale), "land"):
        for piece in topology.coast(topology.continuous(ring)):
            steps = np.abs(np.diff(piece, axis=0))
            assert steps[:, 0].max() < 30.0
            at_edge = np.abs(np.abs(piece[:, 0]) - 180.0) < 1e-6
            assert not (at_edge[:-1] & at_edge[1:] & (steps[:, 1] > 0)).any()


def test_the_pieces_of_a_ring_cut_at_the_date_line_are_its_coast():
    ring = np.array([[180.0, 1], [170, 1], [170, 3], [180, 3], [180, 1]])
    (piece,) = topology.coast(ring)
    assert piece.tolist() == [[180, 1], [170, 1], [170, 3], [180, 3]]


def test_clipping_keeps_the_area_within():
    triangle = np.array([[0.0, 0], [10, 0], [0, 10], [0, 0]])
    assert area(topology.clipped(triangle, 0, 0, 5, 5)) == pytest.approx(25.0)
    assert area(topology.clipped(triangle, -1, -1, 11, 11)) == pytest.approx(50.0)
    assert area(topology.clipped(triangle, 2, 2, 8, 8)) == pytest.approx(18.0)
    assert len(topology.clipped(triangle, 20, 20, 30, 30)) == 0


def test_lines_are_cut_to_what_is_near():
    line = np.column_stack([np.arange(10.0), np.zeros(10)])
    assert [part[:, 0].tolist() for part in topology.near(line, -1, 3.5, 1, 5.5)] == [[3, 4, 5, 6]]
    there_and_back = np.array([[0.0, 0], [5, 0], [9, 0], [9, 1], [5, 1], [0, 1]])
    assert [len(part) for part in topology.near(there_and_back, -1, -1, 2, 2)] == [2, 2]
    assert topology.near(line, 5, 0, 6, 9) == []


def test_a_graticule_has_multiples_of_its_step():
    assert topology.graticule(15, -40, 160, 40, 200) == (
        [-30.0, -15.0, 0.0, 15.0, 30.0],
        [165.0, 180.0, 195.0],
    )
    latitudes, _ = topology.graticule(0.1, 44.85, 7.0, 45.15, 7.2)
    assert latitudes == [44.9, 45.0, 45.1]
    assert max(topology.graticule(5, -90, 0, 90, 10)[0]) == 85.0


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan])
def test_a_graticule_without_a_step_is_refused(step):
    with pytest.raises(ParameterError, match="step above 0"):
        topology.graticule(step, 0, 0, 1, 1)


@pytest.mark.parametrize(("span", "step"), [(360, 30.0), (100, 15.0), (10, 2.0), (2.6, 0.5), (0.2, 0.1)])
def test_about_five_lines_lie_in_a_span(span, step):
    assert topology.graticule_step(span) == step


def area(ring):
    x, y = ring[:, 0], ring[:, 1]
    return abs(float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))) / 2


def inside(ring, lat, lon):
    x, y = ring[:, 0], ring[:, 1]
    next_x, next_y = np.roll(x, -1), np.roll(y, -1)
    spans = (y > lat) != (next_y > lat)
    height = np.where(next_y == y, 1.0, next_y - y)
    return bool(np.sum(spans & (lon < x + (lat - y) / height * (next_x - x))) % 2)
