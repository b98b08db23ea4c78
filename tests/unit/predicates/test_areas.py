"""Area of a query: its middle and size, by hand and by the squares of a trace."""

from __future__ import annotations

import math

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.predicates import Predicate
from mudkit.predicates.areas import area_of
from mudkit.units import box_bounds


@examples(50)
@given(st.floats(-60, 60), st.floats(-170, 170), st.floats(0.1, 50), st.sampled_from(["lon", "lng"]))
def test_square_around_a_place_is_found_again(lat, lon, box_km, name):
    south, west, north, east = (float(edge) for edge in box_bounds(lat, lon, box_km))
    text = f"at_s > 3 AND lat BETWEEN :south AND :north AND {name} <= :east AND {name} >= :west"
    area = area_of(Predicate(text, south=south, west=west, north=north, east=east))
    assert area[:3] == pytest.approx((lat, lon, box_km), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "within_km(loc, point(30.0, -97.0), 5)",
        "within_km(point(30.0, -97.0), loc, 5) AND topic = 'arts'",
        "distance_km(loc, point(30.0, -97.0)) <= 5",
    ],
)
def test_circle_has_the_side_of_a_square_of_its_size(text):
    assert area_of(Predicate(text))[:3] == pytest.approx((30.0, -97.0, math.sqrt(math.pi) * 5))


def test_box_of_a_column_with_places():
    area = area_of(Predicate("within_box(loc, 30.0, -98.0, 30.2, -97.8)"))
    assert area[:2] == pytest.approx((30.1, -97.9))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "topic = 'arts'",
        "lat > 30 AND lon > -97",
        "lat BETWEEN 30 AND 31",
        "within_km(loc, receiver.loc, 5)",
        "within_km(loc, point(30, -97), 5) OR within_km(loc, point(50, 8), 5)",
        "lat BETWEEN 30 AND 31 AND lon BETWEEN 170 AND 190",
        "lat BETWEEN 31 AND 30 AND lon BETWEEN 1 AND 2",
        "lat BETWEEN 'a' AND 'b' AND lon BETWEEN 1 AND 2",
        "within_km(a, point(30, -97), 5) AND within_km(b, point(30, -97), 5)",
    ],
)
def test_query_without_one_area_has_none(text):
    """No condition on a place, an open one, one that depends on the reader, or several."""
    assert area_of(None if text is None else Predicate(text)) is None


@pytest.mark.parametrize(
    ("text", "since", "window_s"),
    [
        ("at_s > 100", 100.0, 60.0),
        ("at_s >= 100 AND topic = 'arts'", 100.0, 60.0),
        ("at_s > 160", 160.0, None),
        ("at_s > -7040", -7040.0, 7200.0),
        ("at_s > -1e9", -1e9, None),
        ("at_s BETWEEN 100 AND 130", None, None),
        ("at_s < 100", None, None),
        ("at_s > 100 AND age > 21", None, None),
        ("name > 'a'", None, None),
    ],
)
def test_window_is_told_by_the_only_open_bound(text, since, window_s):
    """At 160 s of the device's clock: the bound must be a time in the past.

    One before the clock began is a time, too, but not one of years ago.
    """
    area = area_of(Predicate(f"within_km(loc, point(30.0, -97.0), 5) AND {text}"))
    assert area.since == since
    assert area.window_s(160.0) == window_s
