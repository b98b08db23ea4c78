"""A headless Chromium without a network, and what it asked for while it looked at a page."""

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
    """A page that is open, and what came up while it was."""

    page: Page
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def left(self) -> list[str]:
        """Addresses beyond this machine that the page asked for."""
        return [address for address in self.asked if not address.startswith(LOCAL)]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start Chromium. Playwright leaves an event loop running until it ends: other tests must not meet it."""
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
    """Where the picture of this test is kept; the end of the run says where they all are."""
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-")
    file = repository / "build" / "screenshots" / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)  # of an earlier run
    record_property("screenshot", str(file))
    return file


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where screenshots were kept, also by processes that xdist started."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)]
    answer = {
        Path(str(said)) for each in reports for name, said in each.user_properties if name == "screenshot"
    }
    if kept := [file for file in answer if file.is_file()]:
        terminalreporter.write_line(f"screenshots of JupyterLab, {len(kept)}: {kept[0].parent}")


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[[Path], Visit]]:
    """Open a file as somebody without a network does."""
    contexts = []

    def open_file(file: Path) -> Visit:
        context = chromium.new_context(viewport=SIZE, offline=True)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        visit = Visit(context.new_page())

        def note_request(request: Request) -> None:
            visit.asked.append(request.url)

        def note_console(message: ConsoleMessage) -> None:
            if message.type == "error":
                visit.errors.append(message.text)

        def only_local(route: Route) -> None:
            if route.request.url.startswith(LOCAL):
                route.continue_()
            else:
                route.abort()

        context.route("**/*", only_local)
        visit.page.on("request", note_request)
        visit.page.on("console", note_console)
        visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
        visit.page.goto(file.as_uri())
        return visit

    yield open_file
    for context in contexts:
        context.close()
