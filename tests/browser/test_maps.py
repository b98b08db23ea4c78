import numpy as np
import pyarrow as pa
import pytest

from mudkit import figures, units
from mudkit.figures import assets
from mudkit.figures.map_page import map_with_ground
from mudkit.figures.tables import places

pytestmark = pytest.mark.browser

# Functions that return the page's only map, and the painted pixels of a canvas or picture.
HELPERS = """
window.theMap = () => window[Object.keys(window).find(name => /^map_[0-9a-f]{32}$/.test(name))];
window.painted = element => {
  const canvas = document.createElement("canvas");
  canvas.width = element.naturalWidth || element.width;
  canvas.height = element.naturalHeight || element.height;
  canvas.getContext("2d").drawImage(element, 0, 0);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let number = 0;
  for (let at = 3; at < pixels.data.length; at += 4) number += pixels.data[at] > 0;
  return {number, pixels, width: canvas.width, height: canvas.height};
};
null;
"""
DISCS = """(() => {
  const found = [];
  theMap().eachLayer(layer => {
    if (layer instanceof L.CircleMarker) found.push([layer.getLatLng().lat, layer.getLatLng().lng]);
  });
  return found;
})()"""
PICTURE = "img.leaflet-image-layer"


def build_table(lat, lon, **columns):
    return pa.table({"lat": np.asarray(lat, float), "lon": np.asarray(lon, float), **columns})


def build_ground_map(positions):
    """Build a map that has only its ground."""
    ground = places(positions, "positions")
    everywhere = np.ones(len(ground[0]))
    return map_with_ground("Map of positions", [ground], ground, everywhere)[0]


@pytest.fixture
def city():
    """Return positions on two crossing streets."""
    along = np.linspace(0, 1, 4000)
    lat = np.concatenate([37.7 + 0.1 * along, np.full(4000, 37.75)])
    lon = np.concatenate([np.full(4000, -122.4), -122.5 + 0.2 * along])
    return build_table(lat, lon)


@pytest.fixture
def show(visit, tmp_path):
    """Save a map, open it, and wait until it is loaded."""
    opened = []

    def open_map(leaflet_map):
        file = tmp_path / f"map{len(opened)}.html"
        leaflet_map.save(file)
        visited = visit(file)
        opened.append(visited)
        visited.page.wait_for_selector(".leaflet-container")
        visited.page.evaluate(HELPERS)
        return visited

    yield open_map
    for visited in opened:
        assert visited.external_requests == []
        assert visited.errors == []


def wait_painted(page, selector, min_pixels):
    page.wait_for_function(
        "([selector, least]) => [...document.querySelectorAll(selector)].some("
        "element => (element.width > 0) && (element.complete !== false) && painted(element).number >= least)",
        arg=[selector, min_pixels],
    )


def read_alpha(page, lat, lon):
    """Return the opacity of the ground's picture where Leaflet draws a place."""
    return page.evaluate(
        """([lat, lon, selector]) => {
          const picture = document.querySelector(selector), box = picture.getBoundingClientRect();
          const frame = theMap().getContainer().getBoundingClientRect();
          const place = theMap().latLngToContainerPoint([lat, lon]);
          const image = painted(picture);
          const x = Math.floor((place.x + frame.left - box.left) / box.width * image.width);
          const y = Math.floor((place.y + frame.top - box.top) / box.height * image.height);
          let most = 0;
          for (const dx of [-1, 0, 1]) for (const dy of [-1, 0, 1])
            most = Math.max(most, image.pixels.data[4 * ((y + dy) * image.width + x + dx) + 3] ?? 0);
          return most;
        }""",
        [lat, lon, PICTURE],
    )


def read_tooltip(page, lat, lon):
    """Move the pointer to a place until a tooltip appears: Leaflet handles one movement in 32 ms."""
    point = page.evaluate("place => theMap().latLngToContainerPoint(place)", [float(lat), float(lon)])
    for attempt in range(100):
        page.mouse.move(point["x"] + attempt % 2, point["y"])
        page.evaluate("new Promise(requestAnimationFrame)")
        tooltip = page.locator(".leaflet-tooltip")
        if tooltip.count():
            return tooltip.inner_text()
    return None


def measure_size(page, selector):
    box = page.locator(selector).first.bounding_box()
    return box["width"], box["height"]


def test_ground_is_drawn_at_the_positions(show, city):
    page = show(build_ground_map(city)).page
    wait_painted(page, PICTURE, 400)
    for lat, lon in [(37.7, -122.4), (37.8, -122.4), (37.75, -122.5), (37.75, -122.3), (37.72, -122.4)]:
        assert read_alpha(page, lat, lon) > 0, (lat, lon)
    for lat, lon in [(37.72, -122.45), (37.78, -122.35), (37.755, -122.45), (37.745, -122.35)]:
        assert read_alpha(page, lat, lon) == 0, (lat, lon)
    width, height = measure_size(page, PICTURE)
    assert width > 300
    assert height > 300
    assert "ground drawn from the trace, 8,000 positions" in page.inner_text(".leaflet-control-attribution")


@pytest.mark.soak
def test_ground_is_exact_at_high_latitudes(show):
    lat = np.repeat([60.0, 60.5, 61.0], 50)
    page = show(build_ground_map(build_table(lat, np.tile(np.linspace(10.0, 11.0, 50), 3)))).page
    wait_painted(page, PICTURE, 100)
    assert read_alpha(page, 60.5, 10.0) > 0  # the middle latitude is not the middle of the picture
    assert read_alpha(page, 60.49, 10.0) == 0
    assert read_alpha(page, 60.51, 10.0) == 0


def test_heat_layer_is_drawn_and_follows_the_zoom(show, city):
    cells = build_table([37.75, 37.72, 37.78], [-122.4, -122.4, -122.35], weight=[100, 10, 1])
    page = show(figures.heat_map(cells, city, label="pick-ups")).page
    wait_painted(page, "canvas.leaflet-heatmap-layer", 500)
    assert page.locator(".mudkit-legend b").inner_text() == "pick-ups near a place"
    page.evaluate("theMap().setView([37.72, -122.4], 15, {animate: false})")
    page.wait_for_function("painted(document.querySelector('canvas.leaflet-heatmap-layer')).number > 100")


def test_many_cells_are_drawn_on_canvas_with_tooltips(show, city):
    lat, lon = (
        grid.ravel() for grid in np.meshgrid(np.linspace(37.7, 37.8, 40), np.linspace(-122.5, -122.3, 40))
    )
    box = units.box_bounds(lat, lon, 0.2)
    number = np.arange(1600.0)
    leaflet_map = figures.cell_map(
        pa.table({**box._asdict(), "n": number}), "n", label="reads", positions=city
    )
    page = show(leaflet_map).page
    wait_painted(page, ".leaflet-overlay-pane canvas", 5000)
    assert page.locator(".leaflet-overlay-pane path").count() == 0
    assert read_tooltip(page, lat[820], lon[820]) == "reads: 820"
    legend = page.locator(".mudkit-legend")
    assert legend.locator(".ticks span").all_inner_texts() == ["0", "800", "1,599"]
    assert measure_size(page, ".mudkit-legend svg") == (200, 12)


def test_discs_become_finer_as_the_map_is_enlarged(show, city, tmp_path):
    file = tmp_path / "streets.geojson"
    file.write_text('{"type": "LineString", "coordinates": [[-122.5, 37.7], [-122.3, 37.8]]}')
    page = show(figures.density_map(city, background=file)).page
    wait_painted(page, ".leaflet-overlay-pane canvas", 500)
    wait_painted(page, ".leaflet-mudkit-background-pane canvas", 100)
    assert "San Francisco" in page.locator(".mudkit-cities span").all_inner_texts()
    notes = page.inner_text(".leaflet-control-attribution")
    assert "background: streets.geojson" in notes
    assert "GeoNames" in notes
    lat, lon = city["lat"].to_numpy(), city["lon"].to_numpy()
    counts = []
    for zoom in (11, 14, 16):
        page.evaluate("zoom => void theMap().setView([37.72, -122.4], zoom, {animate: false})", zoom)
        discs = np.array(page.evaluate(DISCS))
        counts.append(len(discs))
        apart_m = 1000 * np.array([units.distance_km(*disc, lat, lon).min() for disc in discs])
        assert apart_m.max() <= 200
    assert counts[0] < counts[1] <= counts[2]
    assert float(read_tooltip(page, *discs[np.abs(discs[:, 0] - 37.72).argmin()]).split(" ")[0]) >= 1


def test_points_have_tooltips(show, city):
    points = build_table(
        [37.75, 37.72], [-122.4, -122.45], name=["<b>car</b>", "bus"], state=["free", "hired"]
    )
    area = (37.75, -122.4, 5.0)
    leaflet_map = figures.area_map(
        points, "state", area=area, states=["free", "hired"], title="cars", text="name", positions=city
    )
    page = show(leaflet_map).page
    wait_painted(page, ".leaflet-overlay-pane canvas", 100)  # one of the two lies in the corner of the legend
    assert read_tooltip(page, 37.75, -122.4) == "<b>car</b>\nfree"


def test_world_map_has_land_and_graticule(show):
    page = show(build_ground_map(build_table([50.0, -30.0], [-100.0, 140.0]))).page
    wait_painted(page, ".leaflet-mudkit-land-pane canvas", 50_000)
    labels = page.locator(".mudkit-graticule span").all_inner_texts()
    assert "0°" in labels
    assert "30°N" in labels
    page.evaluate("theMap().setView([0, 0], 5, {animate: false})")
    page.wait_for_function(
        "before => [...document.querySelectorAll('.mudkit-graticule span')].map(s => s.innerText).join() != before",
        arg=",".join(labels),
    )


@pytest.mark.soak
def test_both_sides_of_the_date_line_are_adjacent(show):
    random = np.random.default_rng(1)
    lat, lon = -17.0 + random.normal(0, 0.2, 3000), (180 + random.normal(0, 0.3, 3000) + 180) % 360 - 180
    page = show(build_ground_map(build_table(lat, lon))).page
    wait_painted(page, PICTURE, 500)
    width, _ = measure_size(page, PICTURE)
    assert 200 < width < 3000  # and not the width of the world
    turn = 0 if page.evaluate("theMap().getCenter().lng") > 0 else -360
    left, right = (
        page.evaluate(f"theMap().latLngToContainerPoint([-17, {degrees + turn}]).x")
        for degrees in (179.8, 180.2)
    )
    assert 0 < left < right < 1000


@pytest.mark.soak
def test_ordinary_marker_has_its_icon(show, city):
    import folium

    leaflet_map = build_ground_map(city)
    folium.Marker((37.75, -122.4)).add_to(leaflet_map)
    page = show(leaflet_map).page
    page.wait_for_function("document.querySelector('img.leaflet-marker-icon')?.complete")
    assert page.evaluate("document.querySelector('img.leaflet-marker-icon').naturalWidth") > 0


def test_wheel_zooms_the_map_only_after_a_click(show, city):
    page = show(build_ground_map(city)).page
    before = page.evaluate("theMap().getZoom()")
    page.mouse.move(500, 300)
    page.mouse.wheel(0, -300)
    assert not page.evaluate("theMap().scrollWheelZoom.enabled()")
    page.mouse.click(500, 300)
    page.wait_for_function("theMap().scrollWheelZoom.enabled()")
    page.mouse.wheel(0, -300)
    page.wait_for_function("before => theMap().getZoom() > before", arg=before)


def test_map_without_its_files_shows_a_note(visit, city, tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "_VENDOR", tmp_path / "none")
    file = tmp_path / "map.html"
    build_ground_map(city).save(file)
    visited = visit(file)
    note = visited.page.locator(".mudkit-note")
    assert "make setup" in note.inner_text()
    assert note.bounding_box()["height"] > 15
    assert visited.external_requests  # the other tests would fail like this if a map requested anything


def test_ground_of_a_recorded_city_is_drawn(show, cabspotting):
    from pyarrow import csv

    page = show(build_ground_map(csv.read_csv(cabspotting))).page
    wait_painted(page, PICTURE, 10_000)
    assert read_alpha(page, 37.7955, -122.3937) > 0  # the Ferry Building
    assert read_alpha(page, 37.84, -122.46) == 0  # the bay


def test_cells_over_time_follow_slider_choice_and_play(show, city):
    edges = {
        "south": [37.7, 37.75, 37.7],
        "west": [-122.45] * 3,
        "north": [37.75, 37.8, 37.75],
        "east": [-122.4] * 3,
    }
    cells = pa.table(
        edges | {"speed": [1.0, 5.0, 9.0], "at": ["6:00", "7:00", "7:00"], "of": ["ann", "ann", "bob"]}
    )
    page = show(figures.cell_slides(cells, "speed", time="at", by="of", positions=city, label="km/h")).page
    output = page.locator(".mudkit-slides output")
    assert output.text_content() == "6:00, 1 cell"
    assert read_tooltip(page, 37.72, -122.42) == "km/h: 1"
    slider = page.get_by_role("slider", name="time")
    slider.press("ArrowRight")
    assert output.text_content() == "7:00, 1 cell"
    page.locator(".leaflet-tooltip").wait_for(state="detached")  # it disappears with its cell
    assert slider.get_attribute("aria-valuetext") == output.text_content()
    assert read_tooltip(page, 37.77, -122.42) == "km/h: 5"
    page.get_by_label("of").select_option("bob")
    page.locator(".leaflet-tooltip").wait_for(state="detached")
    assert read_tooltip(page, 37.72, -122.42) == "km/h: 9"
    slider.press("Home")
    assert output.text_content() == "6:00, 0 cells"
    page.get_by_role("button", name="play").press("Enter")
    page.get_by_text("7:00, 1 cell").wait_for()
    page.get_by_role("button", name="play").wait_for()


def test_map_follows_the_theme_of_its_page(show):
    page = show(build_ground_map(build_table([50.0, -30.0], [-100.0, 140.0]))).page
    wait_painted(page, ".leaflet-mudkit-land-pane canvas", 50_000)
    ground = "getComputedStyle(document.querySelector('.leaflet-container')).backgroundColor"
    assert page.evaluate(ground) == "rgb(233, 239, 244)"
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{ground} === 'rgb(16, 21, 28)'")
