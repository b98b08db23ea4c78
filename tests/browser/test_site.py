"""Chapters on the site: lines of code fit, and a widget is a picture with a note."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys

import ipywidgets
import nbformat
import numpy as np
import plotly.graph_objects as go
import pytest

from mudkit.report.html import FIGURE_SCRIPT, plotly_script
from mudkit.widgets.panel import Figure, Panel

pytestmark = pytest.mark.browser

LINE = "x = [" + "1, " * 34 + "10]"
"""Line of code at the limit of 110 characters."""
LINES = """() => [...document.querySelectorAll('.cell_input pre')].map(pre => {
  const style = getComputedStyle(pre);
  const height = pre.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  return [pre.scrollWidth <= pre.clientWidth, Math.round(height / parseFloat(style.lineHeight))];
})"""


@pytest.fixture(scope="module")
def chapter(tmp_path_factory, repository):
    """Build the site with one chapter; return the chapter's page."""
    sys.path.insert(0, str(repository / "tools"))
    try:
        spec = importlib.util.spec_from_file_location("mudkit_site", repository / "tools" / "site.py")
        site = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(site)
    finally:
        sys.path.remove(str(repository / "tools"))
    panel = Panel([ipywidgets.IntSlider(), Figure(go.Scatter(x=np.arange(3.0), y=[1, 2, 4]))])
    output = nbformat.v4.new_output("display_data", data=panel._repr_mimebundle_())
    cells = [nbformat.v4.new_markdown_cell("# A chapter\n\n## A section"), nbformat.v4.new_code_cell(LINE)]
    cells.append(nbformat.v4.new_code_cell("panel", outputs=[output], execution_count=1))
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["widgets"] = {
        "application/vnd.jupyter.widget-state+json": ipywidgets.Widget.get_manager_state()
    }
    source = tmp_path_factory.mktemp("site")
    shutil.copytree(repository / "docs" / "_static", source / "_static")
    shutil.copy(repository / "docs" / "conf.py", source)
    (source / "_static" / "plotly.min.js").write_text(plotly_script(), encoding="utf-8")
    (source / "_static" / "figures.js").write_text(FIGURE_SCRIPT, encoding="utf-8")
    (source / "chapters").mkdir()
    nbformat.write(site.shown(notebook, "../"), source / "chapters" / "00_a.ipynb")
    (source / "index.md").write_text("# Site\n\n```{toctree}\nchapters/index\n```\n", encoding="utf-8")
    (source / "chapters" / "index.md").write_text("# Chapters\n\n```{toctree}\n00_a\n```\n", encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(source / "html")]
    subprocess.run(command, check=True)
    return source / "html" / "chapters" / "00_a.html"


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(("width", "lines"), [(1440, 1), (1024, 2)])
def test_longest_line_of_code_is_not_cut(visit, chapter, width, lines):
    page = visit(chapter).page
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate(LINES) == [[True, lines], [True, 1]]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_widget_is_a_picture_with_a_note(visit, chapter, screenshot):
    opened = visit(chapter)
    opened.page.locator(".mudkit-figure .scatterlayer .trace").wait_for()
    opened.page.get_by_text("to use its controls, run the notebook in JupyterLab").wait_for()
    opened.page.screenshot(path=screenshot)
    assert opened.page.locator(".cell_output input, .cell_output .noUi-handle").count() == 0
    assert (opened.errors, opened.external_requests) == ([], [])
