"""First start of `mudkit lab` by a new user, also root: one line, the first chapter, no prompt."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.notebook]
NOTIFICATIONS = "@jupyterlab/apputils-extension:notification"


LINE = re.compile(
    r"mudkit: JupyterLab is at (http://127\.0\.0\.1:\d+/lab/tree/00_start_here\.ipynb\?token=\w+) "
    r"\(open it in a browser; Shift-Enter runs a cell; Ctrl-C twice stops it\)\n"
)


@pytest.fixture
def server(tmp_path):
    """Start `mudkit lab` with an empty home, without `--allow-root`; yield its process."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_"))
    }
    options = ["--no-browser", "--ServerApp.port=0", "--LabApp.expose_app_in_browser=True"]
    server = subprocess.Popen(
        [sys.executable, "-m", "mudkit", "lab", *options],
        cwd=tmp_path,
        env=environment | {"HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield server
    os.killpg(server.pid, signal.SIGKILL)
    server.communicate()


@pytest.mark.soak(keep=1, group="JupyterLab", shared=True)
def test_new_user_sees_one_line_and_the_first_chapter(chromium, server, screenshot):
    line = server.stdout.readline()
    assert LINE.fullmatch(line), line
    page = chromium.new_context().new_page()
    page.set_default_timeout(60_000)
    page.goto(LINE.fullmatch(line)[1])
    page.locator(".jp-Notebook").get_by_role("heading", name="Start here").wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()
    # The plugin prompts when JupyterLab is restored and has the settings, which it requests before this test.
    page.evaluate("window.jupyterapp.restored.then(() => true)")
    page.evaluate("name => window.jupyterapp.serviceManager.settings.fetch(name)", NOTIFICATIONS)
    page.screenshot(path=screenshot)
    assert page.locator(".jp-Launcher").count() == 0
    assert page.get_by_text("official Jupyter news").count() == 0
    page.context.close()
    server.terminate()
    rest = server.stdout.read()
    # A server that is stopped may still write to the page's closed connections, and says so after this line.
    assert re.match(r"\[C .*\] received signal 15, stopping\n", rest), "it is the only line"
