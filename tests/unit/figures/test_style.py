"""What all figures share: template, colours, numbers."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mudkit import figures
from mudkit.figures.style import ColourScale, ramp, template
from mudkit.widgets.figure import Figure

FILES = sorted(Path(figures.__file__).parent.rglob("*.py"))


def test_the_toolbar_has_no_button_that_uploads():
    removed = template().layout.modebar.remove
    assert {"sendChartToCloud", "sendDataToCloud"} <= set(removed)
    table = pd.DataFrame({"from_s": [0], "to_s": [1], "reads": [3]})
    drawn = figures.histogram(table, title="A histogram", unit="s").to_dict()
    assert "sendChartToCloud" in drawn["layout"]["template"]["layout"]["modebar"]["remove"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_figure_takes_the_template(file):
    text = file.read_text(encoding="utf-8")
    assert file.stem == "style" or '"simple_white"' not in text
    if "go.Figure(" in text or "make_subplots(" in text:
        assert "styled(" in text or "_captioned(" in text


def test_a_widget_is_configured_so():
    shown = Figure()
    assert shown.get_state()["_config"] == figures.PLOTLY_CONFIG
    assert figures.PLOTLY_CONFIG["showSendToCloud"] is False
    assert figures.PLOTLY_CONFIG["plotlyServerURL"] == ""


def test_the_scale_grows_darker():
    lightness = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(linear, ramp(32))]
    assert all(before > after for before, after in pairwise(lightness))


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def test_one_value_has_a_scale():
    scale = ColourScale.of(np.array([5.0, 5.0]))
    assert scale.shades(np.array([5.0])) == [32]
    assert scale.ticks() == [(0.5, "5")]


@pytest.mark.parametrize(
    ("number", "answer"),
    [(0, "0"), (1, "1"), (37.5, "37.5"), (0.012346, "0.01235"), (1234567, "1,234,567"), (-2.5, "-2.5"),
     (1e-9, "1e-09"), (3e12, "3e+12"), (math.nan, "no value"), (999.96, "1,000")],
)  # fmt: skip
def test_numbers_are_short(number, answer):
    assert figures.short_number(number) == answer
