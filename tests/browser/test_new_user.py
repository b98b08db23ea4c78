"""First start of `mudkit lab` by a new user, also root: JupyterLab shows no prompt."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.notebook]
NOTIFICATIONS = "@jupyterlab/apputils-extension:notification"


@pytest.fixture
def address(tmp_path):
    """Start `mudkit lab` with an empty home, without `--allow-root`; yield its address with the token."""
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
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert server.stderr is not None
    lines = []
    try:
        for line in server.stderr:
            lines.append(line)
            if result := re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", line):
                break
        else:
            pytest.fail("JupyterLab did not start:\n" + "".join(lines))
        yield result[0]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


def test_new_user_sees_no_prompt_for_news(chromium, address, screenshot):
    page = chromium.new_context().new_page()
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator(".jp-Launcher").get_by_text("Python 3").first.wait_for()
    # The plugin prompts when JupyterLab is restored and has the settings, which it requests before this test.
    page.evaluate("window.jupyterapp.restored.then(() => true)")
    page.evaluate("name => window.jupyterapp.serviceManager.settings.fetch(name)", NOTIFICATIONS)
    page.screenshot(path=screenshot)
    assert page.get_by_text("official Jupyter news").count() == 0
    page.context.close()
