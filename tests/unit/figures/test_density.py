"""Cells of the map of positions: none is lost at any level, and each disc lies where positions are."""

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import figures, units
from mudkit.errors import TraceContentError
from mudkit.figures import density
from mudkit.figures.geometry import Frame
from mudkit.trace.profile import FINEST, finest_cells
from mudkit.trace.summaries import summarise
from mudkit.units import from_mercator

LIVED_IN = st.tuples(st.floats(-84, 84), st.floats(-180, 180))


def table(lat, lon):
    return pa.table({"lat": np.asarray(lat, dtype=float), "lon": np.asarray(lon, dtype=float)})


def levels_of(lat, lon):
    cells = summarise(table(lat, lon), {"cells": partial(finest_cells, -180.0)})["cells"]
    return density._levels(density._Cells.finest(cells))


def data_of(leaflet_map, function):
    """Return the data with which a map calls a function of the page."""
    (call,) = [c for c in leaflet_map._children.values() if getattr(c, "_name", "") == function]
    return json.loads(json.dumps(call.data, allow_nan=False))


def discs(levels, zoom):
    """Return level, number, latitude and longitude of the discs on screen at a level of cells."""
    shown = []
    for level in levels:
        columns, rows = np.cumsum(level["x"]), np.cumsum(level["y"])
        for at, within in enumerate(level["in"]):
            if level["z"] == zoom or (level["z"] < zoom and level["leaf"][at] == "1"):
                x = (columns[at] + (within // 10 + 0.5) / 10) / 2.0 ** level["z"]
                y = (rows[at] + (within % 10 + 0.5) / 10) / 2.0 ** level["z"]
                lat, lon = from_mercator(x, y)
                shown.append((level["z"], level["n"][at], float(lat), float(lon)))
    return np.array(shown)


def cell_km(level):
    return 2 * np.pi * units.EARTH_RADIUS_KM / 2.0**level


@given(st.lists(LIVED_IN, min_size=1, max_size=400))
def test_every_level_holds_each_position_once(places):
    lat, lon = np.array(places).T
    levels = levels_of(lat, lon)
    for zoom in range(levels[0]["z"], levels[-1]["z"] + 1):
        assert discs(levels, zoom)[:, 1].sum() == len(places)


@given(st.lists(LIVED_IN, min_size=1, max_size=100))
def test_no_disc_is_where_no_position_is(places):
    lat, lon = np.array(places).T
    levels = levels_of(lat, lon)
    for zoom in range(levels[0]["z"], levels[-1]["z"] + 1):
        for level, _, disc_lat, disc_lon in discs(levels, zoom):
            # A tenth of its own cell, in which a disc is placed, and a cell of the finest level.
            allowed_km = 0.15 * cell_km(level) + 1.5 * cell_km(FINEST)
            assert units.distance_km(disc_lat, disc_lon, lat, lon).min() <= allowed_km


def test_disc_of_a_finest_cell_is_at_the_mean():
    lat, lon = np.array([48.10001, 48.10003, 48.10002]), np.array([11.60001, 11.60002, 11.60006])
    levels = levels_of(lat, lon)
    ((_, number, disc_lat, disc_lon),) = discs(levels, levels[-1]["z"])
    assert number == 3
    assert units.distance_km(disc_lat, disc_lon, lat.mean(), lon.mean()) < 0.1 * cell_km(levels[-1]["z"])


def test_no_disc_lies_in_the_sea_between_two_shores():
    random = np.random.default_rng(3)
    shores = [np.linspace(37.5, 38.0, 4000) for _ in range(2)]
    lon = np.concatenate([np.full(4000, -122.5), np.full(4000, -122.2)]) + random.normal(0, 1e-4, 8000)
    levels = levels_of(np.concatenate(shores), lon)
    for zoom in range(levels[0]["z"], levels[-1]["z"] + 1):
        shown = discs(levels, zoom)
        from_shore = np.minimum(np.abs(shown[:, 3] + 122.5), np.abs(shown[:, 3] + 122.2))
        assert (from_shore <= 0.1 * 360 / 2.0 ** shown[:, 0] + 1e-3).all()


def test_most_positions_are_divided_first(monkeypatch):
    monkeypatch.setattr(density, "MAX_CELLS", 400)
    random = np.random.default_rng(4)
    lat = np.concatenate([48.1 + random.normal(0, 0.002, 5000), random.uniform(47, 49, 150)])
    lon = np.concatenate([11.6 + random.normal(0, 0.002, 5000), random.uniform(10, 13, 150)])
    levels = levels_of(lat, lon)
    assert sum(len(level["n"]) for level in levels) <= 400
    finest = discs([levels[-1]], levels[-1]["z"])
    assert units.distance_km(finest[:, 2], finest[:, 3], 48.1, 11.6).max() < 2.0


def test_both_sides_of_the_date_line_lie_together():
    random = np.random.default_rng(1)
    lon = (180 + random.normal(0, 0.2, 2000) + 180) % 360 - 180
    levels = data_of(figures.density_map(table(-17 + random.normal(0, 0.1, 2000), lon)), "density")["levels"]
    shown = discs(levels, levels[-1]["z"])
    assert np.ptp(shown[:, 3]) < 5
    assert shown[:, 1].sum() == 2000


@pytest.mark.parametrize(
    ("lat", "lon"), [([90.0], [0.0]), ([-90.0, 10.0], [180.0, -180.0]), ([48.1] * 50, [11.6] * 50)]
)
def test_odd_places_are_drawn(lat, lon):
    levels = data_of(figures.density_map(table(lat, lon)), "density")["levels"]
    assert discs(levels, levels[-1]["z"])[:, 1].sum() == len(lat)


def test_no_position_is_refused():
    with pytest.raises(TraceContentError):
        figures.density_map(table([], []))


def test_streets_become_finer_and_stay_small():
    random = np.random.default_rng(2)
    lat, lon = 48.1 + random.normal(0, 0.05, 50_000), 11.6 + random.normal(0, 0.05, 50_000)
    pictures = density._streets(lat, lon, Frame.around([(lat, lon)]))
    assert pictures
    assert sum(len(picture["url"]) for picture in pictures) < density.MAX_PICTURE_BYTES + 100 * len(pictures)
    widths_km = [
        picture["side"] * 2 * np.pi * units.EARTH_RADIUS_KM * np.cos(np.radians(48.1)) for picture in pictures
    ]
    assert max(widths_km) < 0.05
    for picture in pictures:
        (south, west), (north, east) = picture["bounds"]
        assert ((lat >= south) & (lat <= north) & (lon >= west) & (lon <= east)).any()


def test_background_and_cities_are_drawn(tmp_path):
    file = tmp_path / "districts.geojson"
    file.write_text('{"type": "LineString", "coordinates": [[-122.5, 37.7], [-122.3, 37.8]]}')
    ground = table([37.7, 37.8], [-122.5, -122.3])
    leaflet_map = figures.density_map(ground, background=file)
    assert data_of(leaflet_map, "background") == {
        "lines": [[[37.7, -122.5], [37.8, -122.3]]],
        "attribution": "background: districts.geojson",
    }
    assert "San Francisco" in [name for name, _, _ in data_of(leaflet_map, "cities")["cities"]]
