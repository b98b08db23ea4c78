"""Ground of maps: density, pictures and thinning."""

import struct
import zlib

import numpy as np
import pytest

from mudkit import units
from mudkit.figures import assets, map_page
from mudkit.figures.geometry import Frame
from mudkit.units import to_mercator


@pytest.mark.parametrize("latitude", [0.0, 37.7, 65.0])
def test_density_cells_are_50_m_wide(latitude):
    frame = Frame(latitude, 10.0, latitude + 0.1, 10.1, -180.0)
    grid = map_page.Grid.over(frame, map_page.MAX_SIDE_PX)
    (south, west), (north, east) = grid.bounds
    middle = (south + north) / 2
    width = units.distance_km(middle, west, middle, east) / grid.columns
    height = units.distance_km(south, west, north, west) / grid.rows
    assert width == pytest.approx(0.05, rel=0.01)
    assert height == pytest.approx(0.05, rel=0.01)


def test_maps_of_less_than_60_degrees_have_the_fine_coast(monkeypatch):
    used, topology_of = [], assets.land_topology
    monkeypatch.setattr(assets, "land_topology", lambda scale: used.append(scale) or topology_of(scale))
    for frame in (Frame(47.0, 8.0, 48.0, 9.0, -180.0), Frame(0.0, -100.0, 60.0, 100.0, -180.0)):
        map_page._land(frame, frame)
    assert used == ["50m", "110m"]


def test_density_pictures_are_bounded():
    grid = map_page.Grid.over(Frame(30.0, -130.0, 40.0, -120.0, -180.0), map_page.MAX_SIDE_PX)
    assert max(grid.columns, grid.rows) == map_page.MAX_SIDE_PX


def test_each_place_is_counted_in_its_cell():
    random = np.random.default_rng(8)
    lat, lon = random.uniform(60, 61, 3000), random.uniform(179.5, 180.5, 3000)
    grid = map_page.Grid.over(Frame(60.0, 179.5, 61.0, 180.5, 0.0), map_page.MAX_SIDE_PX, cell_km=5.0)
    number = grid.count(lat, lon)
    assert number.sum() == 3000
    x, y = to_mercator(lat, lon)
    for row, column in [(0, 0), (5, 3), (grid.rows - 1, grid.columns - 1)]:
        left, top = grid.x + column * grid.side, grid.y + row * grid.side
        inside = (x >= left) & (x < left + grid.side) & (y >= top) & (y < top + grid.side)
        assert number[row, column] == inside.sum() > 0


def test_density_grows_with_the_logarithm_of_the_count():
    levels, palette = read_png(map_page.density_png(np.array([[0, 1, 10, 100, 1000, *[0] * 20]])))
    alphas = [palette[level][3] for level in levels[0][:5]]
    assert alphas[0] == 0
    assert alphas == sorted(set(alphas))
    steps = np.diff(levels[0][1:5])
    assert np.ptp(steps) <= 1


def test_positions_everywhere_are_no_grey_wall():
    counts = np.ones((20, 20), dtype=np.int64)
    counts[7] = 50
    levels, palette = read_png(map_page.density_png(counts))
    is_drawn = np.array([[palette[level][3] > 0 for level in row] for row in levels])
    assert is_drawn[7].all()
    assert is_drawn.sum() == 20


@pytest.mark.parametrize("counts", [np.full((4, 4), 3), np.array([[1, 1, 5, 5, 5, 5, 5, 5]])])
def test_ground_is_drawn_where_many_cells_hold_the_most(counts):
    levels, _ = read_png(map_page.density_png(counts))
    assert (np.array(levels)[counts == counts.max()] > 0).all()


@pytest.mark.parametrize("columns", [1, 2, 7])
def test_png_keeps_every_pixel(columns):
    levels = (np.arange(3 * columns).reshape(3, columns) % 16).astype(np.uint8)
    palette = [(level, 2 * level, 3 * level, 17 * level) for level in range(16)]
    read, colours = read_png(map_page.encode_png(levels, palette))
    assert read == levels.tolist()
    assert colours == palette


def read_png(data):
    """Decode a PNG and check its checksums."""
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


def test_thinning_keeps_the_total_weight_and_outliers():
    random = np.random.default_rng(9)
    lat, lon, weight = random.uniform(0, 1, 5000), random.uniform(0, 1, 5000), random.uniform(0, 2, 5000)
    lat[0] = 80.0  # one outlier must not make the cells of all others large
    thinned_lat, lon, sums = map_page.thinned(lat, lon, weight, 500)
    assert 150 < len(thinned_lat) <= 500
    assert sums.sum() == pytest.approx(weight.sum())
    assert thinned_lat.max() == 80.0


def test_shapes_of_a_map_are_drawn_on_a_canvas():
    """An element of the page for each of some thousand places would make a map slow to move."""
    page = map_page._empty_map("t", heat=False).get_root().render()
    assert '"preferCanvas": true' in page
