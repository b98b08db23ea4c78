"""Headless Chromium without a network, with a record of the requests of each page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1", "http://localhost", "http://[::1]")
SIZE = {"width": 1000, "height": 700}
TIMEOUT_MS = 15_000


@dataclass
class Visit:
    """Open page with its requests and errors."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def external_requests(self) -> list[str]:
        """Requested addresses beyond this machine."""
        return [address for address in self.requests if not address.startswith(LOCAL)]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start Chromium; Playwright's event loop must end before tests of other modules."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def screenshot(
    request: pytest.FixtureRequest, repository: Path, record_property: Callable[[str, object], None]
) -> Path:
    """Return the file for the screenshot of this test; the terminal summary names the folder."""
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-")
    file = repository / "build" / "screenshots" / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)  # of an earlier run
    record_property("screenshot", str(file))
    return file


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the folder of the screenshots, also of those taken by processes of xdist."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    files = {
        Path(str(value))
        for report in reports
        for name, value in report.user_properties
        if name == "screenshot"
    }
    if saved := [file for file in files if file.is_file()]:
        terminalreporter.write_line(f"screenshots of JupyterLab, {len(saved)}: {saved[0].parent}")


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[[Path], Visit]]:
    """Open files without a network."""
    contexts = []

    def open_file(file: Path) -> Visit:
        context = chromium.new_context(viewport=SIZE, offline=True)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        visit = Visit(context.new_page())

        def record_request(request: Request) -> None:
            visit.requests.append(request.url)

        def record_console_error(message: ConsoleMessage) -> None:
            if message.type == "error":
                visit.errors.append(message.text)

        def block_external(route: Route) -> None:
            if route.request.url.startswith(LOCAL):
                route.continue_()
            else:
                route.abort()

        context.route("**/*", block_external)
        visit.page.on("request", record_request)
        visit.page.on("console", record_console_error)
        visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
        visit.page.goto(file.as_uri())
        return visit

    yield open_file
    for context in contexts:
        context.close()
