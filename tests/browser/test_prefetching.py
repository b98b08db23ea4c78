"""Figures of Last hop in a browser: all lines are drawn, and the caption is readable."""

from __future__ import annotations

import pytest

from mudkit import figures
from mudkit.systems.lasthop import FIGURES, simulate_grid

pytestmark = pytest.mark.browser

PLOTS = {3: figures.waste_and_loss_by_limit}


@pytest.mark.parametrize("number", PLOTS)
def test_lines_are_drawn_and_texts_are_inside_the_figure(number, visit, tmp_path):
    figure = FIGURES[number]
    # A few values of each parameter, and the largest.
    grid = {name: [*values[:-1:4], values[-1]] for name, values in figure["over"].items()}
    plot = PLOTS[number](simulate_grid(grid, figure["fixed"] | {"days": 20}, seeds=[1, 2]))
    file = tmp_path / "figure.html"
    plot.write_html(file, include_plotlyjs=True)
    opened = visit(file)
    page = opened.page
    page.wait_for_selector(".scatterlayer .trace", state="attached")
    lines = page.locator(".scatterlayer .trace path.js-line")
    assert lines.count() >= len(next(reversed(grid.values())))
    frame = page.locator(".main-svg").first.bounding_box()
    for text in (page.locator(".annotation-text"), page.locator(".xtitle"), page.locator(".legend")):
        box = text.first.bounding_box()
        assert box["x"] >= frame["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"]
        assert box["y"] + box["height"] <= frame["y"] + frame["height"]
    caption, title = (
        page.locator(".annotation-text").first.bounding_box(),
        page.locator(".xtitle").bounding_box(),
    )
    assert caption["y"] >= title["y"] + title["height"]
    assert opened.external_requests == []
    assert opened.errors == []
