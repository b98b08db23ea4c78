import html
import json
import math
import re
import struct
import zlib
from itertools import pairwise

import folium
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from mudkit import units
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures import assets
from mudkit.figures.base import png
from mudkit.figures.base.colours import STOPS, Colouring, ramp, short_number
from mudkit.figures.maps import density, maps
from mudkit.figures.maps.frame import Frame, from_mercator, to_mercator


def table(lat, lon, **columns):
    return pa.table({"lat": np.asarray(lat, float), "lon": np.asarray(lon, float), **columns})


def boxes(lat, lon, side_km, **columns):
    return pa.table({**units.box_bounds(np.asarray(lat), np.asarray(lon), side_km)._asdict(), **columns})


def page(leaflet_map):
    return leaflet_map.get_root().render()


def call(leaflet_map, function):
    """The data that a page hands to one of the functions in map.js."""
    (data,) = re.findall(rf"^\s*mudkitMap\.{function}\(\w+, (.*)\);$", page(leaflet_map), re.MULTILINE)
    return json.loads(data)


def loads(text):
    """What a browser would load for a page."""
    return re.findall(r"""<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=["']([^"']+)""", text)


@pytest.fixture(scope="module")
def city():
    random = np.random.default_rng(7)
    return table(37.7 + random.normal(0, 0.02, 5000), -122.4 + random.normal(0, 0.03, 5000))


@pytest.fixture(scope="module")
def all_maps(city):
    lat, lon = city["lat"].to_numpy()[:50], city["lon"].to_numpy()[:50]
    return {
        "base": maps.base_map(city),
        "heat": maps.heat_map(table(lat, lon, weight=np.arange(50)), city),
        "cells": maps.cell_map(boxes(lat, lon, 0.5, speed=np.arange(50.0)), "speed", positions=city),
        "points": maps.point_map(table(lat, lon, speed=np.arange(50.0)), value="speed", positions=city),
    }


# --- the page


@pytest.mark.parametrize("kind", ["base", "heat", "cells", "points"])
def test_a_page_loads_nothing(all_maps, kind):
    text = page(all_maps[kind])
    assert loads(text) == []
    assert isinstance(all_maps[kind], folium.Map)
    for name in ("jquery", "bootstrap", "awesome", "//cdn", "cdnjs", "d3js"):
        assert name not in text.lower(), name


@pytest.mark.parametrize("kind", ["base", "heat", "cells", "points"])
def test_leaflet_stands_in_a_page_once(all_maps, kind):
    text = page(all_maps[kind])
    assert text.count("Leaflet 1.9.4, a JS library") == 1
    assert text.count("simpleheat, a tiny JavaScript library") == (kind == "heat")
    assert text.count("var mudkitMap") == 1
    assert text == page(all_maps[kind])  # drawing a map twice, in two cells, is no different


def test_in_a_notebook_a_map_is_a_frame_of_fixed_height(city):
    shown = maps.base_map(city, height_px=333)._repr_html_()
    assert "height:333px" in shown
    assert shown.count("<iframe") == 1
    inner = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert inner.startswith("<!DOCTYPE html>")
    assert "trust the notebook" in shown.replace(inner, "")
    assert "http" not in re.sub(r'srcdoc="[^"]*"', "", shown)


def test_saved_maps_are_whole_pages(city, tmp_path):
    file = tmp_path / "map.html"
    maps.base_map(city).save(file)
    text = file.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert '<html lang="en">' in text
    assert "<title>Map of positions</title>" in text


def test_missing_files_are_said_under_the_map(city, tmp_path, monkeypatch):
    assert '<p class="mudkit-note">' not in page(maps.base_map(city))
    monkeypatch.setattr(assets, "_VENDOR", tmp_path)
    world = table([0, 10], [0, 50], weight=[1, 2])
    text = page(maps.heat_map(world, world))
    loaded = loads(text)
    assert len(loaded) == 3
    assert all(address.startswith("https://") for address in loaded)
    assert re.search(r'<p class="mudkit-note">[^<]*leaflet\.js.*make setup', text)


def test_a_tile_layer_replaces_the_ground(city):
    leaflet_map = maps.base_map(city, tiles="OpenStreetMap")
    assert "tile.openstreetmap.org" in page(leaflet_map)
    data = call(leaflet_map, "base")
    assert data["tiles"]
    assert "picture" not in data


@pytest.mark.parametrize("words", ["</script><b>", "{{ 7 * 7 }}", "{% bad", "a & b 'c' \"d\"", "\u2028"])
def test_words_from_outside_stay_words(city, words):
    points = table([37.7], [-122.4], name=[words], v=[1.0])
    leaflet_map = maps.point_map(points, text="name", value="v", label=words, positions=city)
    assert call(leaflet_map, "points")["points"][0][4] == f"{words}\n{words}: 1"
    assert call(leaflet_map, "legend")["title"] == words
    assert html.escape(f"Map of {words}") in page(leaflet_map)
    assert page(leaflet_map).count("</script>") == page(maps.base_map(city)).count("</script>")


# --- what is drawn


def test_the_ground_says_what_it_is(city):
    data = call(maps.base_map(city), "base")
    assert data["attribution"] == "ground drawn from the trace, 5,000 positions"
    assert not data["world"]
    assert data["picture"]["url"].startswith("data:image/png;base64,")


def test_above_200_km_the_land_lies_under_the_map():
    data = call(maps.base_map(table([36.0, 38.5], [-124.0, -121.0])), "base")
    assert data["world"]
    assert "Natural Earth" in data["attribution"]
    assert 37.0 in data["latitudes"]
    assert -122.0 in data["longitudes"]
    lat, lon = np.concatenate(data["coast"]).T
    assert ((lat > 30) & (lat < 45) & (lon > -135) & (lon < -110)).all()
    near_golden_gate = np.hypot(lat - 37.8, lon + 122.5).min()
    assert near_golden_gate < 0.3


def test_below_200_km_it_does_not():
    assert not call(maps.base_map(table([37.0, 38.5], [-122.4, -122.0])), "base")["world"]


def test_heat_points_are_joined_above_the_limit():
    random = np.random.default_rng(3)
    number = 30_000
    cells = table(
        random.uniform(37, 38, number),
        random.uniform(-123, -122, number),
        weight=random.uniform(0, 1, number),
    )
    points = np.array(call(maps.heat_map(cells), "heat")["points"])
    assert maps.MAX_HEAT_POINTS / 4 < len(points) <= maps.MAX_HEAT_POINTS
    assert points[:, 2].max() == 1.0
    weight = cells["weight"].to_numpy()
    assert np.average(points[:, 0], weights=points[:, 2]) == pytest.approx(
        np.average(cells["lat"].to_numpy(), weights=weight), abs=0.01
    )


def test_cells_keep_their_edges_and_values():
    cells = boxes([37.7, 37.8, 37.9], [-122.4] * 3, 1.0, n=pa.array([1.0, None, 1234.5]))
    leaflet_map = maps.cell_map(cells, "n", label="reads (per hour)")
    drawn = call(leaflet_map, "cells")["boxes"]
    for row, south, east in zip(drawn, cells["south"].to_pylist(), cells["east"].to_pylist(), strict=True):
        assert row[0] == pytest.approx(south, abs=1e-6)
        assert row[3] == pytest.approx(east, abs=1e-6)
    colours = [call(leaflet_map, "cells")["colours"][row[4]] for row in drawn]
    assert colours == [STOPS[0], "#c4c7ca", STOPS[-1]]
    assert [row[5] for row in drawn] == [
        f"reads (per hour): {answer}" for answer in ("1", "no value", "1,234")
    ]
    legend = call(leaflet_map, "legend")
    assert legend["title"] == "reads (per hour)"
    assert legend["ticks"] == [[0.0, "1"], [0.5, "617.8"], [1.0, "1,234"]]
    assert legend["keys"] == [["#c4c7ca", "no value"]]


def test_limits_make_maps_comparable():
    cells = boxes([37.7, 37.8], [-122.4] * 2, 1.0, n=[0.0, 5.0])
    shades = [row[4] for row in call(maps.cell_map(cells, "n", limits=(0, 10)), "cells")["boxes"]]
    assert shades == [0, 32]
    assert call(maps.cell_map(cells, "n", limits=(0, 10)), "legend")["ticks"][-1] == [1.0, "10"]


def test_too_many_cells_are_refused():
    number = maps.MAX_RECTANGLES + 1
    with pytest.raises(ParameterError, match="20,001 rows"):
        maps.cell_map(boxes(np.linspace(0, 1, number), np.zeros(number), 1.0, n=np.zeros(number)), "n")


def test_points_are_joined_above_the_limit():
    random = np.random.default_rng(4)
    number = maps.MAX_POINTS + 1
    lat, lon = random.uniform(37, 38, number), random.uniform(-123, -122, number)
    value = np.where(np.arange(number) % 2, lat, np.nan)
    drawn = call(maps.point_map(table(lat, lon, value=value), value="value"), "points")["points"]
    assert 200 < len(drawn) <= maps.MAX_POINTS / 5
    joined = sum(int(re.match(r"([\d,]+) point", row[4])[1].replace(",", "")) for row in drawn)
    assert joined == number
    assert max(row[2] for row in drawn) == 12.0
    for row in drawn[:20]:
        if "no value" not in row[4]:
            assert float(re.search(r"value: ([\d.]+)", row[4])[1]) == pytest.approx(row[0], abs=0.05)
    few = call(maps.point_map(table(lat[:-1], lon[:-1])), "points")["points"]
    assert len(few) == maps.MAX_POINTS
    assert {row[2] for row in few} == {5.0}


def test_rows_without_a_place_are_left_out():
    points = table([37.7, np.nan, 37.9], [-122.4, -122.5, np.nan], v=[1.0, 2.0, 3.0], name=["a", "b", "c"])
    drawn = call(maps.point_map(points, value="v", text="name"), "points")["points"]
    assert [row[4] for row in drawn] == ["a\nv: 1"]


# --- the date line


def test_maps_across_the_date_line_are_small():
    random = np.random.default_rng(5)
    lat, lon = random.normal(-16.8, 0.03, 2000), (180 + random.normal(0, 0.03, 2000) + 180) % 360 - 180
    assert lon.max() - lon.min() > 359
    positions = table(lat, lon)
    data = call(maps.base_map(positions), "base")
    (_, west), (_, east) = data["picture"]["bounds"]
    assert 179.7 < west < 180.0 < east < 180.3
    cells = boxes(lat[:100], lon[:100], 2.0, v=lat[:100])
    assert (cells["west"].to_numpy() > cells["east"].to_numpy()).any()
    drawn = np.array(
        [row[:4] for row in call(maps.cell_map(cells, "v", positions=positions), "cells")["boxes"]]
    )
    assert ((drawn[:, 1] > 179.7) & (drawn[:, 3] < 180.3) & (drawn[:, 1] < drawn[:, 3])).all()
    points = np.array([row[:2] for row in call(maps.point_map(positions), "points")["points"]])
    assert np.ptp(points[:, 1]) < 0.6


def test_land_across_the_date_line_has_no_seam():
    lon = np.array([170.0, 178.0, -178.0, -170.0])
    data = call(maps.base_map(table([-16.0, -17, -18, -16], lon)), "base")
    (_, west), (_, east) = data["bounds"]
    assert (west, east) == (170.0, 190.0)
    for line in data["coast"]:
        assert np.abs(np.diff(np.array(line)[:, 1])).max() < 5.0
    for lines in (data["coast"], [ring for (ring,) in data["land"]]):
        at = np.concatenate(lines)[:, 1]
        assert ((at > 177) & (at < 179.5)).any()  # Viti Levu
        assert ((at > 180.9) & (at < 182)).any()  # the Lau islands


def test_places_all_around_stay_where_they_are():
    data = call(maps.base_map(table(np.zeros(36), np.arange(-180.0, 180.0, 10.0))), "base")
    assert [corner[1] for corner in data["bounds"]] == [-180.0, 170.0]


# --- what is refused


@pytest.mark.parametrize(
    ("draw", "kind", "answer"),
    [
        (lambda: maps.base_map(table([], [])), TraceContentError, "nothing to draw"),
        (lambda: maps.base_map(table([np.nan], [0.0])), TraceContentError, "nothing to draw"),
        (lambda: maps.base_map(table([91.0], [0.0])), TraceContentError, "latitude 91"),
        (lambda: maps.base_map(table([-122.4], [37.7])), TraceContentError, "swapped"),
        (lambda: maps.base_map(pa.table({"lat": [1.0]})), ParameterError, "no column 'lon'"),
        (lambda: maps.base_map(pa.table({"lat": ["a"], "lon": [0.0]})), ParameterError, "no numbers"),
        (lambda: maps.base_map([(1, 2)]), ParameterError, "found:    list"),
        (lambda: maps.base_map(table([0.0], [0.0]), height_px=20), ParameterError, "height_px"),
        (lambda: maps.heat_map(table([], [], weight=[])), TraceContentError, "nothing to draw"),
        (
            lambda: maps.heat_map(table([], [], weight=[]), table([], [])),
            TraceContentError,
            "nothing to draw",
        ),
        (lambda: maps.heat_map(table([0.0], [0.0])), ParameterError, "no column 'weight'"),
        (lambda: maps.heat_map(table([0.0], [0.0], weight=[-1.0])), ParameterError, "below 0"),
        (
            lambda: maps.heat_map(table([0.0], [0.0], weight=[1]), table([], [])),
            TraceContentError,
            "positions",
        ),
        (lambda: maps.cell_map(boxes([], [], 1.0, n=[]), "n"), TraceContentError, "nothing to draw"),
        (lambda: maps.cell_map(boxes([0.0], [0.0], 1.0, n=[1]), "m"), ParameterError, "no column 'm'"),
        (
            lambda: maps.cell_map(boxes([0.0], [0.0], 1.0, n=[1]), "n", limits=(2, 1)),
            ParameterError,
            "limits",
        ),
        (
            lambda: maps.cell_map(boxes([0.0], [0.0], 1.0, n=[1]), "n", limits=(0, 1), logarithmic=True),
            ParameterError,
            "0 < low",
        ),
        (lambda: maps.point_map(table([], [])), TraceContentError, "nothing to draw"),
        (lambda: maps.point_map(table([0.0], [0.0]), text="name"), ParameterError, "no column 'name'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, kind, answer):
    with pytest.raises(kind, match=re.escape(answer)):
        draw()


def test_heat_without_weight_is_no_error():
    assert call(maps.heat_map(table([37.7], [-122.4], weight=pa.array([None], pa.float64()))), "heat")[
        "points"
    ]


# --- frame, density, picture, colours


def test_mercator_is_web_mercator():
    x, y = to_mercator([0.0, 85.0511287798066, -85.0511287798066, 37.7749], [-180.0, 0.0, 180.0, -122.4194])
    assert x == pytest.approx([0.0, 0.5, 1.0, 0.15994611])
    assert y == pytest.approx([0.5, 0.0, 1.0, 0.38653], abs=1e-5)
    tile = math.floor(x[3] * 2**10), math.floor(y[3] * 2**10)
    assert tile == (163, 395)  # of San Francisco at level 10
    lat, lon = from_mercator(x, y)
    assert lat[3] == pytest.approx(37.7749)
    assert lon[3] == pytest.approx(-122.4194)


def test_gross_outliers_do_not_decide_the_frame():
    random = np.random.default_rng(6)
    lat, lon = random.uniform(37, 38, 5000), random.uniform(-123, -122, 5000)
    lat[:3], lon[:3] = 50.0, 120.0
    frame = Frame.around([(lat, lon)])
    assert 37.0 <= frame.south < frame.north <= 38.0
    assert -123.0 <= frame.west < frame.east <= -122.0
    leaflet_map = maps.base_map(table(lat, lon))
    assert re.search(r"5,000 positions, \d+ off the map", call(leaflet_map, "base")["attribution"])


@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=1, max_size=20))
def test_a_frame_holds_its_places(places):
    lat, lon = np.array(places).T
    frame = Frame.around([(lat, lon)])
    unwrapped = frame.unwrap(lon)
    assert frame.holds(lat, unwrapped).all()
    assert np.allclose((unwrapped - lon) % 360.0 % 360.0 % 359.999999999, 0.0, atol=1e-6)
    assert -180.0 < (frame.west + frame.east) / 2 <= 180.0
    assert frame.east - frame.west <= 360.0 + 1e-9
    window = frame.surroundings()
    assert window.west <= frame.west
    assert window.east >= frame.east or window.east - window.west > 395.0


def test_few_places_all_count():
    frame = Frame.around([(np.array([0.0, 0, 0, 60]), np.array([0.0, 0, 0, 60]))])
    assert (frame.north, frame.east) == (60.0, 60.0)


def test_one_place_has_a_frame():
    frame = Frame.around([(np.array([37.0]), np.array([-122.0]))])
    assert frame.side_km == pytest.approx(0.5)


@pytest.mark.parametrize("latitude", [0.0, 37.7, 65.0])
def test_cells_of_the_density_are_50_m(latitude):
    frame = Frame(latitude, 10.0, latitude + 0.1, 10.1, -180.0)
    grid = density.grid_of(frame)
    (south, west), (north, east) = grid.bounds
    middle = (south + north) / 2
    width = units.distance_km(middle, west, middle, east) / grid.columns
    height = units.distance_km(south, west, north, west) / grid.rows
    assert width == pytest.approx(0.05, rel=0.01)
    assert height == pytest.approx(0.05, rel=0.01)


def test_density_pictures_are_bounded():
    grid = density.grid_of(Frame(30.0, -130.0, 40.0, -120.0, -180.0))
    assert max(grid.columns, grid.rows) == density.MAX_SIDE_PX


def test_each_place_is_counted_in_its_cell():
    random = np.random.default_rng(8)
    lat, lon = random.uniform(60, 61, 3000), random.uniform(179.5, 180.5, 3000)
    grid = density.grid_of(Frame(60.0, 179.5, 61.0, 180.5, 0.0), cell_km=5.0)
    number = density.counts(lat, lon, grid)
    assert number.sum() == 3000
    x, y = to_mercator(lat, lon)
    for row, column in [(0, 0), (5, 3), (grid.rows - 1, grid.columns - 1)]:
        left, top = grid.x + column * grid.side, grid.y + row * grid.side
        inside = (x >= left) & (x < left + grid.side) & (y >= top) & (y < top + grid.side)
        assert number[row, column] == inside.sum() > 0


def test_pictures_grow_denser_with_the_logarithm():
    grid = density.Grid(0.5, 0.3, 1e-6, 5, 1)
    levels, palette = read_png(density.picture(np.array([[0, 1, 10, 100, 1000]]), grid).data)
    veils = [palette[level][3] for level in levels[0]]
    assert veils[0] == 0
    assert veils == sorted(set(veils))
    steps = np.diff(levels[0][1:])
    assert np.ptp(steps) <= 1


@pytest.mark.parametrize("columns", [1, 2, 7])
def test_png_keeps_every_pixel(columns):
    levels = (np.arange(3 * columns).reshape(3, columns) % 16).astype(np.uint8)
    palette = [(level, 2 * level, 3 * level, 17 * level) for level in range(16)]
    read, colours = read_png(png.encode(levels, palette))
    assert read == levels.tolist()
    assert colours == palette


def read_png(data):
    """Read back what the writer wrote, chunk by chunk, checksums included."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,), name = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(name + body),)
        chunks[name], at = body, at + 12 + length
    columns, rows, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, kind) == (4, 3)
    width = (columns + 1) // 2 + 1
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == rows * width
    pixels = [
        [part for byte in lines[row * width + 1 : (row + 1) * width] for part in (byte >> 4, byte & 15)]
        for row in range(rows)
    ]
    colours = chunks[b"PLTE"]
    palette = [(*colours[3 * at : 3 * at + 3], alpha) for at, alpha in enumerate(chunks[b"tRNS"])]
    return [row[:columns] for row in pixels], palette


def test_thinning_keeps_the_weight_and_the_middle():
    random = np.random.default_rng(9)
    lat, lon, weight = random.uniform(0, 1, 5000), random.uniform(0, 1, 5000), random.uniform(0, 2, 5000)
    lat[0] = 80.0  # one outlier must not make the cells of all others large
    near, _, sums, number = density.thinned(lat, lon, weight, 500)
    assert 150 < len(near) <= 500
    assert sums.sum() == pytest.approx(weight.sum())
    assert number.sum() == 5000
    assert (near * number).sum() == pytest.approx(lat.sum())


def test_the_scale_grows_darker():
    lightness = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(linear, ramp(32))]
    assert all(before > after for before, after in pairwise(lightness))


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def test_logarithmic_scales_have_equal_ratios():
    colouring = Colouring.of(np.array([1.0, 10.0, 100.0, 0.0, np.nan]), logarithmic=True)
    assert colouring.shades(np.array([1.0, 10.0, 100.0, 0.0, 1e6, np.nan])) == [0, 32, 63, 0, 63, 64]
    assert [answer for _, answer in colouring.ticks()] == ["1", "10", "100"]


def test_one_value_has_a_scale():
    colouring = Colouring.of(np.array([5.0, 5.0]))
    assert colouring.shades(np.array([5.0])) == [32]
    assert colouring.ticks() == [(0.5, "5")]


@pytest.mark.parametrize(
    ("number", "answer"),
    [(0, "0"), (1, "1"), (37.5, "37.5"), (0.012346, "0.01235"), (1234567, "1,234,567"), (-2.5, "-2.5"),
     (1e-9, "1e-09"), (3e12, "3e+12"), (math.nan, "no value"), (999.96, "1,000")],
)  # fmt: skip
def test_numbers_are_short(number, answer):
    assert short_number(number) == answer


def test_a_recorded_city_fits_into_a_small_page(cabspotting):
    text = page(maps.base_map(csv.read_csv(cabspotting)))
    assert 190_000 < len(text) < 400_000


def test_where_nobody_asked_for_anything_the_map_shows_its_ground_and_says_so():
    drawn = maps.heat_map(table([], [], weight=[]), table([30.27, 30.28], [-97.74, -97.75]), label="reads")
    assert "Heat map: reads: none" in drawn.get_root().render()
