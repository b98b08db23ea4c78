"""Labels of figures neither overlap nor leave the figure, at the width of JupyterLab on a small screen."""

from __future__ import annotations

import json
from pathlib import Path

import plotly
import pytest
from figure_gallery import FIGURES

pytestmark = [pytest.mark.browser, pytest.mark.soak(keep=3, group="figures")]

WIDTHS_PX = (590, 900)
"""JupyterLab beside an open file browser at 1024 px, and a report."""
PROBLEMS = """() => {
  const edge = document.querySelector('.main-svg').getBoundingClientRect();
  const kinds = '.gtitle, .gtitle-subtitle, .legendtext, .legendtitletext, .annotation-text, .g-xtitle text, ' +
    '.g-ytitle text, g[class$="tick"] text, [class^="infolayer"] [class*="title"] > text';
  const texts = [...document.querySelectorAll(kinds)].filter(text => text.textContent.trim());
  const boxes = texts.map(text => [text.textContent.slice(0, 60), text.getBoundingClientRect()]);
  const problems = [];
  boxes.forEach(([name, box], place) => {
    if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 || box.bottom > edge.bottom + 1)
      problems.push(`beyond the edge: ${name}`);
    for (const [other, beside] of boxes.slice(place + 1)) {
      const width = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
      const height = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
      if (width > 3 && height > 4) problems.push(`over each other: ${name} / ${other}`);
    }
  });
  return problems;
}"""


@pytest.fixture(scope="module")
def page(chromium):
    page = chromium.new_page()
    page.set_content("<body style='margin: 0'><div id='figure'></div></body>")
    page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
    yield page
    page.close()


@pytest.mark.parametrize("name", FIGURES)
def test_labels_neither_overlap_nor_leave_the_figure(page, name):
    figure = json.loads(FIGURES[name]().to_json())
    problems = {}
    for width_px in WIDTHS_PX:
        page.set_viewport_size({"width": width_px, "height": 900})
        page.evaluate("figure => Plotly.newPlot('figure', figure.data, figure.layout)", figure)
        problems[width_px] = page.evaluate(PROBLEMS)
    assert problems == {width_px: [] for width_px in WIDTHS_PX}
