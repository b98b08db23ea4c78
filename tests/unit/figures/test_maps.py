"""Offline maps."""

import html
import json
import re

import folium
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from mudkit import figures, units
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures import assets
from mudkit.figures.geometry import Frame
from mudkit.figures.map_page import map_with_ground
from mudkit.figures.maps import MAX_HEAT_POINTS, STATE_COLOURS
from mudkit.figures.style import SEQUENCE
from mudkit.figures.tables import places
from mudkit.units import distance_km


def make_table(lat, lon, **columns):
    return pa.table({"lat": np.asarray(lat, float), "lon": np.asarray(lon, float), **columns})


def draw_base_map(positions):
    """Draw a map with its ground only."""
    ground = places(positions, "positions")
    everywhere = np.ones(len(ground[0]))
    return map_with_ground("Map of positions", [ground], ground, everywhere)[0]


def make_boxes(lat, lon, side_km, **columns):
    return pa.table({**units.box_bounds(np.asarray(lat), np.asarray(lon), side_km)._asdict(), **columns})


def render(leaflet_map):
    return leaflet_map.get_root().render()


def parse_call(leaflet_map, function):
    """Return the data that a page passes to a function of map.js."""
    (data,) = re.findall(rf"^\s*mudkitMap\.{function}\(\w+, (.*)\);$", render(leaflet_map), re.MULTILINE)
    return json.loads(data)


def find_loaded_files(text):
    """Return the addresses that a browser would load for a page."""
    return re.findall(r"""<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=["']([^"']+)""", text)


@pytest.fixture(scope="module")
def city():
    random = np.random.default_rng(7)
    return make_table(37.7 + random.normal(0, 0.02, 5000), -122.4 + random.normal(0, 0.03, 5000))


@pytest.fixture(scope="module")
def all_maps(city):
    lat, lon = city["lat"].to_numpy()[:50], city["lon"].to_numpy()[:50]
    return {
        "base": draw_base_map(city),
        "heat": figures.heat_map(make_table(lat, lon, weight=np.arange(50)), city),
        "cells": figures.cell_map(make_boxes(lat, lon, 0.5, speed=np.arange(50.0)), "speed", positions=city),
    }


@pytest.mark.parametrize("kind", ["base", "heat", "cells"])
def test_page_loads_no_files_and_embeds_leaflet_once(all_maps, kind):
    text = render(all_maps[kind])
    assert find_loaded_files(text) == []
    assert isinstance(all_maps[kind], folium.Map)
    for name in ("jquery", "bootstrap", "awesome", "//cdn", "cdnjs", "d3js"):
        assert name not in text.lower(), name
    assert text.count("Leaflet 1.9.4, a JS library") == 1
    assert text.count("simpleheat, a tiny JavaScript library") == (kind == "heat")
    assert text.count("var mudkitMap") == 1
    assert text == render(all_maps[kind])  # rendering twice yields the same page


def test_cells_without_a_width_are_where_they_are():
    cells = make_boxes([47.0, 47.1], [8.0, 8.1], 0.0, speed=[1.0, 2.0])
    drawn = [row[:4] for row in parse_call(figures.cell_map(cells, "speed"), "cells")["boxes"]]
    assert np.array(drawn) == pytest.approx(np.array([[47.0, 8.0, 47.0, 8.0], [47.1, 8.1, 47.1, 8.1]]))


def test_notebook_shows_a_map_as_a_frame_of_fixed_height(city):
    shown = draw_base_map(city)._repr_html_()
    assert "height:480px" in shown
    assert shown.count("<iframe") == 1
    inner = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert inner.startswith("<!DOCTYPE html>")
    uncovered = re.sub("<iframe.*</iframe>", "", shown, flags=re.DOTALL)
    assert "To see this map, run the notebook, or trust it" in uncovered
    assert "height" not in uncovered  # JupyterLab removes the frame of an untrusted notebook, without a gap
    assert "http" not in re.sub(r'srcdoc="[^"]*"', "", shown)


def test_saved_maps_are_complete_pages(city, tmp_path):
    file = tmp_path / "map.html"
    draw_base_map(city).save(file)
    text = file.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert '<html lang="en">' in text
    assert "<title>Map of positions</title>" in text


def test_missing_files_are_noted_under_the_map(city, tmp_path, monkeypatch):
    assert '<p class="mudkit-note">' not in render(draw_base_map(city))
    monkeypatch.setattr(assets, "_VENDOR", tmp_path)
    world = make_table([0, 10], [0, 50], weight=[1, 2])
    text = render(figures.heat_map(world, world))
    addresses = find_loaded_files(text)
    assert len(addresses) == 3
    assert all(address.startswith("https://") for address in addresses)
    assert re.search(r'<p class="mudkit-note">[^<]*leaflet\.js.*make setup', text)


@pytest.mark.parametrize("label", ["</script><b>", "{{ 7 * 7 }}", "{% bad", "a & b 'c' \"d\"", "\u2028"])
def test_labels_are_escaped(city, label):
    cells = make_boxes([37.7], [-122.4], 0.5, v=[1.0])
    leaflet_map = figures.cell_map(cells, "v", label=label, positions=city)
    assert parse_call(leaflet_map, "cells")["boxes"][0][5] == f"{label}: 1"
    assert parse_call(leaflet_map, "legend")["title"] == label
    assert html.escape(f"Map of cells: {label}") in render(leaflet_map)
    assert render(leaflet_map).count("</script>") == render(draw_base_map(city)).count("</script>")


def test_ground_has_an_attribution(city):
    data = parse_call(draw_base_map(city), "base")
    assert data["attribution"] == "ground drawn from the trace, 5,000 positions"
    assert not data["world"]
    assert data["picture"]["url"].startswith("data:image/png;base64,")


def test_land_is_drawn_above_200_km():
    data = parse_call(draw_base_map(make_table([36.0, 38.5], [-124.0, -121.0])), "base")
    assert data["world"]
    assert "Natural Earth" in data["attribution"]
    assert 37.0 in data["latitudes"]
    assert -122.0 in data["longitudes"]
    lat, lon = np.concatenate(data["coast"]).T
    assert ((lat > 30) & (lat < 45) & (lon > -135) & (lon < -110)).all()
    near_golden_gate = np.hypot(lat - 37.8, lon + 122.5).min()
    assert near_golden_gate < 0.3
    assert not parse_call(draw_base_map(make_table([37.0, 38.5], [-122.4, -122.0])), "base")["world"], (
        "below 200 km"
    )


def test_heat_points_are_merged_above_the_limit():
    random = np.random.default_rng(3)
    number = 30_000
    cells = make_table(
        random.uniform(37, 38, number),
        random.uniform(-123, -122, number),
        weight=random.uniform(0, 1, number),
    )
    points = np.array(parse_call(figures.heat_map(cells), "heat")["points"])
    assert MAX_HEAT_POINTS / 4 < len(points) <= MAX_HEAT_POINTS
    assert points[:, 2].max() == 1.0
    weight = cells["weight"].to_numpy()
    assert np.average(points[:, 0], weights=points[:, 2]) == pytest.approx(
        np.average(cells["lat"].to_numpy(), weights=weight), abs=0.01
    )


def test_cells_keep_their_edges_and_values():
    cells = make_boxes([37.7, 37.8, 37.9], [-122.4] * 3, 1.0, n=pa.array([1.0, None, 1234.5]))
    leaflet_map = figures.cell_map(cells, "n", label="reads (per hour)")
    drawn = parse_call(leaflet_map, "cells")["boxes"]
    for row, south, east in zip(drawn, cells["south"].to_pylist(), cells["east"].to_pylist(), strict=True):
        assert row[0] == pytest.approx(south, abs=1e-6)
        assert row[3] == pytest.approx(east, abs=1e-6)
    colours = [parse_call(leaflet_map, "cells")["colours"][row[4]] for row in drawn]
    assert colours == [SEQUENCE[0], "#c4c7ca", SEQUENCE[-1]]
    assert [row[5] for row in drawn] == [f"reads (per hour): {answer}" for answer in ("1", "–", "1,234")]
    legend = parse_call(leaflet_map, "legend")
    assert legend["title"] == "reads (per hour)"
    assert legend["ticks"] == [[0.0, "1"], [0.5, "618"], [1.0, "1,234"]]
    assert legend["keys"] == [["#c4c7ca", "no value"]]


def test_limits_fix_the_colour_scale():
    cells = make_boxes([37.7, 37.8], [-122.4] * 2, 1.0, n=[0.0, 5.0])
    shades = [row[4] for row in parse_call(figures.cell_map(cells, "n", limits=(0, 10)), "cells")["boxes"]]
    assert shades == [0, 32]
    assert parse_call(figures.cell_map(cells, "n", limits=(0, 10)), "legend")["ticks"][-1] == [1.0, "10"]


def test_maps_across_the_date_line_are_small():
    random = np.random.default_rng(5)
    lat, lon = random.normal(-16.8, 0.03, 2000), (180 + random.normal(0, 0.03, 2000) + 180) % 360 - 180
    assert lon.max() - lon.min() > 359
    positions = make_table(lat, lon)
    data = parse_call(draw_base_map(positions), "base")
    (_, west), (_, east) = data["picture"]["bounds"]
    assert 179.7 < west < 180.0 < east < 180.3
    cells = make_boxes(lat[:100], lon[:100], 2.0, v=lat[:100])
    assert (cells["west"].to_numpy() > cells["east"].to_numpy()).any()
    drawn = np.array(
        [row[:4] for row in parse_call(figures.cell_map(cells, "v", positions=positions), "cells")["boxes"]]
    )
    assert ((drawn[:, 1] > 179.7) & (drawn[:, 3] < 180.3) & (drawn[:, 1] < drawn[:, 3])).all()
    weighted = positions.append_column("weight", pa.array(np.ones(len(lat))))
    points = np.array([row[:2] for row in parse_call(figures.heat_map(weighted), "heat")["points"]])
    assert np.ptp(points[:, 1]) < 0.6


def test_land_across_the_date_line_has_no_seam():
    lon = np.array([170.0, 178.0, -178.0, -170.0])
    data = parse_call(draw_base_map(make_table([-16.0, -17, -18, -16], lon)), "base")
    (_, west), (_, east) = data["bounds"]
    assert (west, east) == (170.0, 190.0)
    for line in data["coast"]:
        assert np.abs(np.diff(np.array(line)[:, 1])).max() < 5.0
    for lines in (data["coast"], [ring for (ring,) in data["land"]]):
        at = np.concatenate(lines)[:, 1]
        assert ((at > 177) & (at < 179.5)).any()  # Viti Levu
        assert ((at > 180.9) & (at < 182)).any()  # the Lau islands


def test_places_around_the_world_keep_their_longitudes():
    data = parse_call(draw_base_map(make_table(np.zeros(36), np.arange(-180.0, 180.0, 10.0))), "base")
    assert [corner[1] for corner in data["bounds"]] == [-180.0, 170.0]


def test_heat_map_accepts_missing_weights():
    assert parse_call(
        figures.heat_map(make_table([37.7], [-122.4], weight=pa.array([None], pa.float64()))), "heat"
    )["points"]


def test_outliers_do_not_extend_the_frame():
    random = np.random.default_rng(6)
    lat, lon = random.uniform(37, 38, 5000), random.uniform(-123, -122, 5000)
    lat[:3], lon[:3] = 50.0, 120.0
    frame = Frame.around([(lat, lon)])
    assert 37.0 <= frame.south < frame.north <= 38.0
    assert -123.0 <= frame.west < frame.east <= -122.0
    leaflet_map = draw_base_map(make_table(lat, lon))
    assert re.search(r"5,000 positions, \d+ off the map", parse_call(leaflet_map, "base")["attribution"])


def test_map_of_a_recorded_city_is_a_small_page(cabspotting):
    text = render(draw_base_map(csv.read_csv(cabspotting)))
    assert 190_000 < len(text) < 400_000


def test_heat_map_without_points_is_titled_none():
    leaflet_map = figures.heat_map(
        make_table([], [], weight=[]), make_table([30.27, 30.28], [-97.74, -97.75]), label="reads"
    )
    assert "Heat map: reads: none" in leaflet_map.get_root().render()


EDGES = {
    "south": [30.0, 30.0, 30.1, 30.0],
    "west": [-97.0] * 4,
    "north": [30.1, 30.1, 30.2, 30.1],
    "east": [-96.9] * 4,
}


CELLS = pa.table(
    EDGES
    | {"speed": [1.0, 2.0, 3.0, None], "at": ["6:00", "7:00", "7:00", "7:00"], "of": ["a", "a", "a", "b"]}
)


def test_slides_share_cells_and_have_a_picture_per_choice_and_time():
    slides = parse_call(figures.cell_slides(CELLS, "speed", time="at", by="of"), "slides")
    assert slides["labels"] == ["6:00", "7:00"]
    assert slides["choices"] == ["a", "b"]
    assert len(slides["boxes"]) == 2
    texts = [[[cell[2] for cell in picture] for picture in pictures] for pictures in slides["pictures"]]
    assert texts == [[["1"], ["2", "3"]], [[], ["–"]]]
    assert slides["colours"][slides["pictures"][1][1][0][1]] == "#c4c7ca"
    assert slides["first"] == 0


def test_slides_have_the_scale_of_other_maps_and_show_texts():
    slides = parse_call(figures.cell_slides(CELLS, "speed", time="at", by="of", text="at", first=1), "slides")
    assert slides["colours"][0] == SEQUENCE[0]
    assert slides["pictures"][0][0][0][1:] == [0, "1, 6:00"]
    legend = parse_call(figures.cell_slides(CELLS, "speed", time="at", by="of"), "legend")
    assert legend["colours"][0] == SEQUENCE[0]
    assert legend["keys"] == [["#c4c7ca", "no value"]]


def test_too_many_slide_cells_are_refused(monkeypatch):
    monkeypatch.setattr("mudkit.figures.maps.MAX_SLIDE_CELLS", 3)
    with pytest.raises(ParameterError, match="at most 3 rows"):
        figures.cell_slides(CELLS, "speed", time="at", by="of")


STATES = ("told", "taken back", "neither")


AREA = (30.27, -97.74, 1.6)


POINTS = pa.table(
    {
        "lat": [30.27, 30.28, 30.29, None],
        "lon": [-97.74, -97.75, -97.7, -97.7],
        "state": ["told", "neither", "told", "told"],
        "reader": ["<b>", "ann", "cy", "dee"],
    }
)


def draw(points=POINTS, **options):
    return figures.area_map(
        points, "state", **{"area": AREA, "states": STATES, "title": "Write 2", "text": "reader"} | options
    )


def test_points_have_the_colour_and_text_of_their_state():
    drawn = parse_call(draw(), "points")
    assert drawn["colours"] == list(STATE_COLOURS)
    assert [point[3:] for point in drawn["points"]] == [
        [2, "ann\nneither"],
        [0, "<b>\ntold"],
        [0, "cy\ntold"],
    ]
    assert drawn["points"][0][2] < drawn["points"][1][2], "points in the last state are small, and lie below"


def test_area_map_legend_counts_states_and_has_no_scale():
    legend = parse_call(draw(), "legend")
    assert [text for _, text in legend["keys"]] == ["told: 2", "taken back: 0", "neither: 1"]
    assert (legend["colours"], legend["ticks"], legend["title"]) == ([], [], "Write 2")


def test_area_circle_is_within_the_bounds():
    leaflet_map = draw(POINTS.slice(0, 1))
    ((lat, lon, metres, text),) = parse_call(leaflet_map, "areas")["areas"]
    assert (lat, lon, metres) == (30.27, -97.74, 1600)
    assert "1.6 km" in text
    (south, west), (north, east) = parse_call(leaflet_map, "base")["bounds"]
    assert float(distance_km(south, lon, north, lon)) >= 3.2 * 0.999
    assert float(distance_km(lat, west, lat, east)) >= 3.2 * 0.999


def test_area_map_ground_is_drawn_from_positions():
    attribution = parse_call(draw(positions=POINTS), "base")["attribution"]
    assert "3 positions" in attribution


def test_background_of_ones_own_is_drawn_below_cells(tmp_path):
    file = tmp_path / "streets.geojson"
    file.write_text('{"type": "LineString", "coordinates": [[-122.4, 37.7], [-122.39, 37.75]]}')
    cells = make_boxes([37.7, 37.8], [-122.4, -122.4], 4.0, share=[10.0, 20.0], at=["a", "a"], who=["b", "b"])
    for drawn in (
        figures.cell_map(cells, "share", background=file),
        figures.cell_slides(cells, "share", time="at", by="who", background=file),
    ):
        page = render(drawn)
        assert "background: streets.geojson" in page
        assert "[[37.7,-122.4],[37.75,-122.39]]" in page.replace(" ", "")
    elsewhere = make_boxes([48.0], [11.0], 4.0, share=[10.0])
    with pytest.raises(TraceContentError, match="lies elsewhere than the trace"):
        figures.cell_map(elsewhere, "share", background=file)
