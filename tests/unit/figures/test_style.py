"""Common style of all figures: template, colours, numbers."""

import itertools
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from figure_gallery import FIGURES

from mudkit import figures
from mudkit.figures import devices, maps, messages, policies, style
from mudkit.figures.style import ColourScale, ramp
from mudkit.widgets.panel import Figure


@pytest.mark.parametrize("name", FIGURES)
def test_toolbars_have_no_upload_button(name, gallery):
    removed = gallery(name).layout.template.layout.modebar.remove
    assert {"sendChartToCloud", "sendDataToCloud"} <= set(removed)


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_smaller_than_13_px(name, gallery):
    sizes = [
        int(size) for size in re.findall(r'"(?:text)?font":\{[^{}]*?"size":(\d+)', gallery(name).to_json())
    ]
    assert sizes
    assert min(sizes) >= style.TEXT_PX == 13


def test_template_of_a_figure_is_its_own():
    """Change the template of one figure, as a page does that knows its theme: no other figure changes."""
    one, other = (style.styled(go.Figure(), 100, (0, 0, 0, 0)) for _ in range(2))
    before = other.to_json()
    one.layout.template.layout.font.color = "#ff0000"
    one.layout.template.data.bar[0].marker.line.width = 5
    assert other.to_json() == before == style.styled(go.Figure(), 100, (0, 0, 0, 0)).to_json()
    assert one.to_json() != before


def test_widget_has_the_plotly_configuration():
    widget = Figure()
    assert widget.get_state()["_config"] == {**figures.PLOTLY_CONFIG, "responsive": True}
    assert figures.PLOTLY_CONFIG["showSendToCloud"] is False
    assert figures.PLOTLY_CONFIG["plotlyServerURL"] == ""


def test_bars_have_no_outline():
    """The template that it begins with draws a white one, which a dark page would show."""
    assert style.template().data.bar[0].marker.line.width == 0


def test_scale_colours_contrast_with_dark_grounds():
    for colour in ramp(32):
        assert min(get_contrast(colour, ground) for ground in DARK) > 2.5, colour


def linearize(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def test_scale_of_one_value_has_a_tick():
    scale = ColourScale.of(np.array([5.0, 5.0]))
    assert scale.shades(np.array([5.0])) == [32]
    assert scale.ticks() == [(0.5, "5")]


WHITE, DARK = "#ffffff", ("#111111", "#14181f")
PALETTE = [style.BLUE, style.ORANGE, style.GREEN, style.PINK, style.SKY, style.YELLOW]
VISION = {
    "typical": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
"""Perceived linear RGB (G. M. Machado, M. M. Oliveira, L. A. F. Fernandes, 2009)."""


def get_contrast(one, other):
    light, dark = sorted(
        (float(np.array(linearize(colour)) @ [0.2126, 0.7152, 0.0722]) + 0.05 for colour in (one, other)),
        reverse=True,
    )
    return light / dark


def to_lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    f = np.cbrt(np.clip(xyz / [0.9505, 1.0, 1.089], 1e-9, None))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("ground", [WHITE, *DARK])
@pytest.mark.parametrize("colour", [style.INK, *map(style.text_colour, PALETTE)])
def test_text_is_legible_on_light_and_dark(colour, ground):
    assert get_contrast(colour, ground) >= 4.2


def simulate_vision(vision, colours):
    """Return colours in L*a*b*, as a reader with this vision sees them."""
    return [
        to_lab(np.clip(np.array(VISION[vision]) @ np.array(linearize(colour)), 0, 1)) for colour in colours
    ]


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colours", [PALETTE, policies._RULE_COLOURS, maps.STATE_COLOURS])
def test_colours_differ_for_colour_blind_readers(vision, colours):
    seen = simulate_vision(vision, colours)
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 12


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("classes", range(2, devices._MAX_CLASSES + 1))
def test_faster_links_are_darker_for_colour_blind_readers(vision, classes):
    seen = simulate_vision(vision, devices.link_colours(classes))
    assert all(before[0] - after[0] > 8 for before, after in pairwise(seen))
    [down] = simulate_vision(vision, [style.ORANGE])
    assert min(np.linalg.norm(shade - down) for shade in seen) > 40


def test_figures_have_a_transparent_background():
    layout = style.template().layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert layout.font.size >= 13


@pytest.mark.parametrize("colour", [*PALETTE, *ramp(32), *policies._RULE_COLOURS, style.NO_VALUE])
def test_text_on_a_colour_is_legible(colour):
    assert get_contrast(colour, style.ink_on(colour)) >= 4.2


STYLES = re.compile(
    r"\.update_(layout|traces|xaxes|yaxes)\(|\.add_(trace|shape|annotation)\(|go\.(Scatter|Bar|Heatmap)\(|make_subplots\("
)


def test_no_other_module_styles_a_figure():
    """Allow widgets to set a height and to update a figure in place."""
    package = Path(figures.__file__).parents[1]
    files = [*package.rglob("*.py"), *(package / "widgets").rglob("*.py")]  # widgets may be a link
    names = {
        file.name
        for file in files
        if file.parent.name != "figures" and STYLES.search(file.read_text(encoding="utf-8"))
    }
    assert names <= {"prefetch_lab.py", "views_explorer.py"}


@pytest.mark.parametrize("ground", [WHITE, *DARK])
@pytest.mark.parametrize("look", messages._LOOKS)
def test_message_labels_are_legible(look, ground):
    assert get_contrast(style.text_colour(messages._LOOKS[look].colour), ground) >= 4.2


def test_messages_differ_by_more_than_colour():
    looks = messages._LOOKS.values()
    assert len({(look.dash, look.symbol) for look in looks}) == len(looks)


@pytest.mark.parametrize("vision", VISION)
def test_scale_grows_darker_for_colour_blind_readers(vision):
    seen = simulate_vision(vision, ramp(32))
    assert all(before[0] > after[0] for before, after in pairwise(seen))
