"""Positions in areas: compared with exact ray casting in fractions."""

from fractions import Fraction
from itertools import pairwise

import pyarrow as pa
import shapely
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from mudkit import trace

points = st.tuples(st.integers(-6, 6), st.integers(-6, 6))
rings = st.lists(points, min_size=3, max_size=7, unique=True).map(lambda ring: [*ring, ring[0]])
polygons = st.lists(rings, min_size=1, max_size=2)
features = st.lists(polygons, min_size=1, max_size=2)
places = st.lists(st.tuples(*[st.integers(-14, 14).map(lambda n: n / 2)] * 2), min_size=1, max_size=20)


def is_on_edge(x, y, ring):
    """Return whether a point lies on a segment of a ring: collinear, and between its ends."""
    for (x0, y0), (x1, y1) in pairwise(ring):
        is_between = min(x0, x1) <= x <= max(x0, x1) and min(y0, y1) <= y <= max(y0, y1)
        if is_between and (x1 - x0) * (y - y0) == (y1 - y0) * (x - x0):
            return True
    return False


def is_inside(x, y, ring):
    """Return whether a ray to the east crosses a ring an odd number of times."""
    crossings = 0
    for (x0, y0), (x1, y1) in pairwise(ring):
        if (y0 > y) != (y1 > y):
            crossings += Fraction(x1 - x0) * (y - y0) / (y1 - y0) + x0 > x
    return crossings % 2 == 1


def is_in_polygon(x, y, polygon):
    if any(is_on_edge(x, y, ring) for ring in polygon):
        return True
    shell, *holes = polygon
    return is_inside(x, y, shell) and not any(is_inside(x, y, hole) for hole in holes)


@examples(200)
@given(st.lists(features, min_size=1, max_size=4), places, st.sampled_from([0, 177, -177]))
def test_areas_of_places_equal_exact_ray_casting(areas, given_places, middle):
    """Edges, corners, holes and overlaps; with a middle of 177 degrees, areas lie over the date line."""
    valid = [
        [polygon for polygon in polygons_ if shapely.is_valid(shapely.Polygon(polygon[0], polygon[1:]))]
        for polygons_ in areas
    ]
    valid = [polygons_ for polygons_ in valid if polygons_]
    valid = [p for p in valid if shapely.is_valid(shapely.MultiPolygon([(q[0], q[1:]) for q in p]))]
    assume(valid)
    document = {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "geometry": {
                    "type": "MultiPolygon",
                    "coordinates": [[[[x + middle, y] for x, y in r] for r in polygon] for polygon in area],
                },
            }
            for area in valid
        ],
    }
    lon = [(x + middle + 180) % 360 - 180 for x, _ in given_places]
    table = pa.table({"n": range(len(lon)), "lat": [float(y) for _, y in given_places], "lon": lon})
    expected = []
    for number, place in enumerate(given_places):
        x, y = map(Fraction, place)
        areas_of = [n for n, area in enumerate(valid, 1) if any(is_in_polygon(x, y, p) for p in area)]
        expected += [(number, n) for n in areas_of or [None]]
    joined = trace.join(table, document)
    assert list(zip(joined["n"].to_pylist(), joined["area_number"].to_pylist(), strict=True)) == expected
