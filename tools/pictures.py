"""Capture the README's two pictures with Chromium: a chapter in JupyterLab, and a report's first screen.

Usage: python tools/pictures.py [FOLDER]    docs/images by default
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from mudkit.report import run_report
from mudkit.report.parameters import preset

ROOT = Path(__file__).parents[1]
CHAPTER = "00_start_here"
SHOWN = "figures.message_diagram(lab"
"""Code of the cell that the picture shows with what stands above it."""
REPORT = "cache_policy"
SIZE = {"width": 1280, "height": 860}
MAX_BYTES = 200_000
WITHIN_MS = 600_000


def main(folder: Path) -> None:
    """Capture both pictures."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("Chromium is not on this machine; on Debian: apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        _report(browser, folder / "report.png")
        _chapter(browser, folder / "chapter.png")
        browser.close()
    for name in ("report.png", "chapter.png"):
        file = folder / name
        sys.stdout.write(f"{file}  {file.stat().st_size / 1000:.0f} kB\n")
        if file.stat().st_size > MAX_BYTES:
            sys.exit(f"{file} is larger than {MAX_BYTES / 1000:.0f} kB")


def _report(browser: Browser, file: Path) -> None:
    with tempfile.TemporaryDirectory() as build:
        written = run_report(REPORT, preset(REPORT, "sample"), build=build)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto((written / "report.html").as_uri())
        page.wait_for_timeout(1000)  # figures are drawn after the page is there
        page.screenshot(path=file)
        page.close()


def _chapter(browser: Browser, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, _jupyterlab(Path(folder)) as (address, token):
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"{address}/lab/tree/{CHAPTER}.ipynb?token={token}")
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=WITHIN_MS)
        page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(timeout=WITHIN_MS)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        cell = page.locator(".jp-Notebook .jp-CodeCell", has_text=SHOWN).first
        cell.locator(".js-plotly-plot").first.wait_for(timeout=WITHIN_MS)
        page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(timeout=WITHIN_MS)
        for _ in range(6):  # JupyterLab draws cells when they come into view, which moves those below
            cell.evaluate("cell => cell.scrollIntoView({block: 'end'})")
            page.wait_for_timeout(1500)
        page.screenshot(path=file)
        page.close()


@contextmanager
def _jupyterlab(folder: Path) -> Iterator[tuple[str, str]]:
    """Start `mudkit lab` on copies of the chapters; yield its address and token."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    (folder / "data").symlink_to(ROOT / "data")
    environment = os.environ | {
        "JUPYTER_RUNTIME_DIR": str(folder / "run"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    command = [sys.executable, "-m", "mudkit", "lab", "--no-browser", "--ServerApp.port=0", "--allow-root"]
    server = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr or ():
            if match := re.search(r"(http://127\.0\.0\.1:\d+)/lab/tree/\S+\?token=(\w+)", line):
                yield match[1], match[2]
                return
        sys.exit("JupyterLab did not start")
    finally:
        server.terminate()
        server.communicate(timeout=60)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
