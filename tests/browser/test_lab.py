"""A reader opens the chapter in JupyterLab, runs it, and sees figures, map and widget; nothing leaves loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.notebook]
LOCAL = (
    "http://127.0.0.1",
    "http://localhost",
    "ws://127.0.0.1",
    "ws://localhost",
    "data:",
    "blob:",
    "about:",
)


@pytest.fixture
def lab(tmp_path, repository):
    """`mudkit lab` on a copy of the chapters; gives its address."""
    shutil.copytree(repository / "notebooks", tmp_path / "notebooks")
    (tmp_path / "data").symlink_to(repository / "data")
    settings = tmp_path / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Cells that are not in view stay in the page, so that the test can look at all of them.
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "run"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
    }
    command = [sys.executable, "-m", "mudkit", "lab", "--no-browser", "--ServerApp.port=0", "--allow-root"]
    server = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines = []
    try:
        assert server.stderr is not None
        for line in server.stderr:
            lines.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)", line):
                break
        else:
            pytest.fail("JupyterLab did not start:\n" + "".join(lines))
        yield found[1], found[2]
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


@pytest.mark.parametrize(
    ("chapter", "last_words"), [("00_start_here", "Held in all"), ("08_traces_on_spark", "minutes")]
)
def test_chapter_in_the_browser(chromium, lab, tmp_path, chapter, last_words):
    address, token = lab
    context = chromium.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(60_000)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.goto(f"{address}/lab/tree/{chapter}.ipynb?token={token}")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

    cells = page.locator(".jp-Notebook .jp-CodeCell")
    last = cells.last.locator(".jp-OutputArea-output")
    try:
        last.first.wait_for(timeout=600_000)  # a guard: a minute on a quiet machine
    except PlaywrightTimeout:
        waiting = [cell.inner_text()[:300] for cell in cells.all() if "[*]:" in cell.inner_text()]
        errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]').all_inner_texts()
        page.screenshot(path=tmp_path / "stuck.png")
        pytest.fail(f"cells that wait: {waiting[:2]}; errors: {errors}; see {tmp_path}/stuck.png")
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(timeout=60_000)
    errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]')
    assert errors.count() == 0, errors.all_inner_texts()
    assert last_words in last.first.inner_text()

    figures = page.locator(".js-plotly-plot svg.main-svg")
    figures.first.scroll_into_view_if_needed()
    assert figures.count() >= 3
    assert figures.first.bounding_box()["width"] > 300

    page.locator(".jp-OutputArea-output iframe").first.scroll_into_view_if_needed()
    inside = page.frame_locator(".jp-OutputArea-output iframe").first
    base = inside.locator(".leaflet-image-layer").first
    base.wait_for()
    assert base.bounding_box()["width"] > 100
    heat = inside.locator("canvas.leaflet-heatmap-layer")
    heat.wait_for()
    painted = heat.evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    )
    assert painted

    slider = page.locator(".widget-slider").first
    slider.scroll_into_view_if_needed()
    title = page.locator(".jupyter-widgets .js-plotly-plot .gtitle")
    before = title.text_content()
    assert re.match(r"\d+ devices, ", before)
    slider.locator("[role=slider], .noUi-handle").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "([old]) => document.querySelector('.jupyter-widgets .js-plotly-plot .gtitle').textContent !== old",
        arg=[before],
    )
    page.screenshot(path=os.environ.get("MUDKIT_SCREENSHOT", str(tmp_path / "lab.png")))
    context.close()
    assert [url for url in asked if not url.startswith(LOCAL)] == []
