"""The figures of Last hop as a browser draws them: every line, and a caption that can be read."""

from __future__ import annotations

import pytest

from mudkit import figures
from mudkit.systems.lasthop import FIGURES, sweep

pytestmark = pytest.mark.browser

DRAWN = {3: figures.waste_and_loss_by_limit}


@pytest.mark.parametrize("number", DRAWN)
def test_lines_and_caption_are_inside(number, visit, tmp_path):
    figure = FIGURES[number]
    # Of each parameter a few, and those that are most.
    over = {name: [*values[:-1:4], values[-1]] for name, values in figure["over"].items()}
    drawn = DRAWN[number](sweep(over, figure["fixed"] | {"days": 20}, seeds=[1, 2]))
    file = tmp_path / "figure.html"
    drawn.write_html(file, include_plotlyjs=True)
    seen = visit(file)
    page = seen.page
    page.wait_for_selector(".scatterlayer .trace", state="attached")
    lines = page.locator(".scatterlayer .trace path.js-line")
    assert lines.count() >= len(next(reversed(over.values())))
    whole = page.locator(".main-svg").first.bounding_box()
    for text in (page.locator(".annotation-text"), page.locator(".xtitle"), page.locator(".legend")):
        box = text.first.bounding_box()
        assert box["x"] >= whole["x"]
        assert box["x"] + box["width"] <= whole["x"] + whole["width"]
        assert box["y"] + box["height"] <= whole["y"] + whole["height"]
    answer, title = (
        page.locator(".annotation-text").first.bounding_box(),
        page.locator(".xtitle").bounding_box(),
    )
    assert answer["y"] >= title["y"] + title["height"]
    assert seen.left == []
    assert seen.errors == []
