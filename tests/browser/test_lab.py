"""Chapters in JupyterLab: figures, maps and widgets work, and no request leaves loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.request import Request, urlopen

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect

from mudkit.widgets.panel import Panel

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.notebook, pytest.mark.soak]
LOCAL = (
    "http://127.0.0.1",
    "http://localhost",
    "ws://127.0.0.1",
    "ws://localhost",
    "data:",
    "blob:",
    "about:",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory, repository):
    """Start `mudkit lab` on a copy of the chapters; yield its address, token and folder."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "notebooks").mkdir()
    for chapter in (repository / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(chapter, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":  # outputs are then of the test's own run
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / "notebooks" / chapter.name)
    (folder / "data").symlink_to(repository / "data")
    settings = folder / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Keep cells outside the view in the page, so that the test can read all of them.
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTER_RUNTIME_DIR": str(folder / "run"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    command = [sys.executable, "-m", "mudkit", "lab", "--no-browser", "--ServerApp.port=0", "--allow-root"]
    server = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines = []
    try:
        assert server.stderr is not None
        for line in server.stderr:
            lines.append(line)
            if result := re.search(r"(http://127\.0\.0\.1:\d+)/lab/tree/\S+\?token=(\w+)", line):
                break
        else:
            pytest.fail("JupyterLab did not start:\n" + "".join(lines))
        wait_for_port(int(result[1].rpartition(":")[2]))
        yield result[1], result[2], folder
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


@pytest.fixture
def lab(server):
    """Yield the server, and delete its kernels after the test."""
    yield server
    address, token, _ = server
    headers = {"Authorization": f"token {token}"}
    with urlopen(Request(f"{address}/api/kernels", headers=headers)) as answer:
        kernels = json.load(answer)
    for kernel in kernels:
        urlopen(Request(f"{address}/api/kernels/{kernel['id']}", headers=headers, method="DELETE")).close()


def wait_for_port(port):
    """Wait until a server accepts connections: JupyterLab prints its address earlier."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except ConnectionRefusedError:
            time.sleep(0.1)  # there is no event to wait for
        else:
            return
    pytest.fail(f"nothing listens at {port}")


@contextmanager
def run_in_browser(chromium, lab, screenshot, chapter):
    """Open a chapter, run all of its cells, and yield the page.

    At the end no request may have left the machine, and the console must be free of errors.
    """
    address, token, _ = lab
    context = chromium.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(60_000)
    page = context.new_page()
    requested_urls, frames, console_errors = [], [], []

    def record_socket(socket):
        requested_urls.append(socket.url)
        socket.on("framereceived", lambda _: frames.append(socket.url))

    page.on("request", lambda request: requested_urls.append(request.url))
    page.on("websocket", record_socket)
    # A separate workspace, without the documents of other tests.
    page.goto(f"{address}/lab/workspaces/{chapter}/tree/{chapter}.ipynb?token={token}")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()
    # Not earlier: JupyterLab itself logs errors while it starts.
    page.on(
        "console", lambda message: console_errors.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: console_errors.append(f"{error}\n{error.stack}"))
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

    try:  # a minute on a quiet machine; an error stops the cells
        page.wait_for_function(
            """() => {
              const last = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')].at(-1);
              const error = document.querySelector('[data-mime-type="application/vnd.jupyter.error"]');
              return error || /^\\[\\d+\\]/.test(last.textContent);
            }""",
            timeout=300_000,
        )
    except PlaywrightTimeout:
        cells = page.locator(".jp-Notebook .jp-CodeCell").all()
        waiting = [cell.inner_text()[:300] for cell in cells if "[*]:" in cell.inner_text()]
        page.screenshot(path=screenshot)
        pytest.fail(f"cells that wait: {waiting[:2]}; see {screenshot}")
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(timeout=60_000)
    errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]')
    assert errors.count() == 0, errors.all_inner_texts()
    # JupyterLab's server drops outputs, widgets too, once a kernel sends more than 1,000 messages a second.
    assert len(frames) < 2_000
    try:
        yield page
    except PlaywrightTimeout:
        page.screenshot(path=screenshot)
        outputs = page.locator(".jp-OutputArea-output").all_inner_texts()
        texts = [text[:100] for text in outputs]
        pytest.fail(
            f"Not there: see {screenshot}; errors in the console: {console_errors}; the outputs: {texts}"
        )
    page.screenshot(path=screenshot)
    uploads = page.locator('.modebar-btn[data-title^="Share"]').count()
    context.close()
    assert uploads == 0, "a figure offers to send itself away"
    assert console_errors == []
    assert [url for url in requested_urls if not url.startswith(LOCAL)] == []


@pytest.mark.parametrize("chapter", ["00_start_here", "08_traces_on_spark"])
def test_map_and_slider_of_chapter_work(chromium, lab, screenshot, chapter):
    with run_in_browser(chromium, lab, screenshot, chapter) as page:
        assert_map_and_slider_work(page)


def test_views_explorer_follows_edits_of_the_history(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "03_fork_sequential_views") as page:
        explorer = page.locator(".jupyter-widgets", has=page.locator(".mudkit-history")).first
        text = explorer.locator(".mudkit-history textarea")
        text.scroll_into_view_if_needed()
        title = explorer.locator(".js-plotly-plot .gtitle")
        marks = explorer.locator(".js-plotly-plot .annotation-text")
        weaker = "fork-sequential-retracted"
        page.wait_for_function(  # the run of the lab
            "([box, start]) => box.querySelector('.gtitle')?.textContent.startsWith(start)",
            arg=[explorer.element_handle(), f"{weaker}: OK"],
        )
        assert explorer.get_by_text(f"✓ OK ({weaker})").count() == 1

        text.fill("ann: w1       w1>2…  r2\nbob:     r1  w1>3…  r3\ncyd:          r1")
        page.wait_for_function(
            "([box]) => [...box.querySelectorAll('.annotation-text')].length === 7",
            arg=[explorer.element_handle()],
        )
        before = marks.count()
        text.focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("   r2")  # cyd sees ann's edit, which is on a separate branch
        page.wait_for_function(
            "([box, count]) => box.querySelectorAll('.annotation-text').length > count",
            arg=[explorer.element_handle(), before],
        )
        page.keyboard.type("  r3")  # and then bob's
        explorer.get_by_text(f"✗ ILLEGAL ({weaker})").wait_for()
        page.wait_for_function(
            "([box, start]) => box.querySelector('.gtitle').textContent.startsWith(start)",
            arg=[explorer.element_handle(), f"{weaker}: ILLEGAL"],
        )
        explorer.locator(".js-plotly-plot .x2title").wait_for(state="detached")  # no axes of views are left
        page.keyboard.type("  x")
        explorer.get_by_text("This is not a valid history").wait_for()
        assert title.text_content().startswith(f"{weaker}: ILLEGAL"), "the last picture stays"
        for _ in range(len("  x  r3")):
            page.keyboard.press("Backspace")
        explorer.get_by_text(f"✓ OK ({weaker})").wait_for()

        explorer.locator("[role=slider], .noUi-handle").first.focus()
        page.keyboard.press("ArrowLeft")
        explorer.locator(".js-plotly-plot .shapelayer path").first.wait_for(state="attached")
        explorer.get_by_text("▸").first.wait_for()

        model = explorer.get_by_label("model", exact=True)
        choose_with_keyboard(model, "sequential")
        explorer.get_by_text(re.compile(r"ILLEGAL \(sequential\)")).wait_for()
        explorer.locator("svg.main-svg[role=img][aria-label^='sequential: ILLEGAL. ']").wait_for()
        assert_follows_the_theme(page, explorer)
        cells = page.locator(".jp-Notebook .jp-Cell").count()
        for key in "bxr":  # shortcuts of the notebook (add, cut, raw) have no effect here
            page.keyboard.press(key)
        assert page.locator(".jp-Notebook .jp-Cell").count() == cells
        assert model.is_visible()


def assert_follows_the_theme(page, widget):
    """Assert that the text of a figure gets JupyterLab's colour, in both themes."""
    ink = """([box]) => {
      const fills = [...box.querySelectorAll('.js-plotly-plot .gtitle, .js-plotly-plot .xtick text')]
        .map(text => getComputedStyle(text).fill);
      const theme = getComputedStyle(document.body).getPropertyValue('--jp-content-font-color1').trim();
      const probe = document.body.appendChild(document.createElement('i'));
      probe.style.color = theme;
      const wanted = getComputedStyle(probe).color;
      probe.remove();
      return fills.length > 1 && fills.every(fill => fill === wanted) && document.body.dataset.jpThemeLight;
    }"""
    for scheme, is_light in (("dark", "false"), ("light", "true")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"arg => ({ink})(arg) === '{is_light}'", arg=[widget.element_handle()])
        # JupyterLab removes its splash screen twice if the theme changes before it is gone.
        page.locator("#jupyterlab-splash").wait_for(state="detached")


def test_figures_of_a_chapter_without_widgets_follow_the_theme(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "10_write_batching") as page:
        assert page.locator(".mudkit-panel").count() == 0
        assert_follows_the_theme(page, page.locator(".jp-Notebook"))


def test_table_browser_writes_and_reads(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "01_mud_tables") as page:
        browser = page.locator(".mudkit-table-browser").first
        browser.scroll_into_view_if_needed()
        row = browser.locator("tr", has=page.get_by_role("rowheader", name="news")).first
        status = browser.get_by_role("status")
        status.get_by_text("has no network, 1 pending").wait_for()

        browser.get_by_label("key", exact=True).fill("news")
        browser.get_by_label("record", exact=True).fill('{"text": "rain at six"}')
        browser.get_by_label("visible to", exact=True).fill("auth.user = 'bob'")
        browser.get_by_role("button", name="write", exact=True).press("Enter")
        row.get_by_text("pending").wait_for()
        browser.get_by_role("button", name="restore the link").press("Enter")
        browser.get_by_role("button", name="run 10 s on").press("Enter")
        row.get_by_text("v1").wait_for()
        status.get_by_text("has a network, 0 pending").wait_for()

        for client, result in (("guest", "0 records"), ("bob", "1 record")):
            choose(browser.get_by_label("client", exact=True), client)
            browser.get_by_label("where", exact=True).fill("key = 'news'")
            browser.get_by_role("button", name="read", exact=True).press("Enter")
            browser.get_by_role("button", name="run 10 min on").press("Enter")
            browser.locator(
                "div", has_text=f"{client}: uncommitted read of key = 'news': ✓ {result}"
            ).last.wait_for()
        assert row.get_by_text("rain at six").count() == 1, "to ann, who wrote it, it is hidden"

        browser.get_by_label("record", exact=True).fill('{"text"')
        browser.get_by_role("button", name="write", exact=True).press("Enter")
        browser.get_by_role("alert").get_by_text("The record cannot be read.").wait_for()
        browser.get_by_label("record", exact=True).fill("{}")
        browser.get_by_role("button", name="write", exact=True).press("Enter")
        browser.get_by_role("alert").wait_for(state="detached")


def test_table_browser_applies_writer_predicates(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "02_writer_predicates") as page:
        wall = page.locator(".mudkit-table-browser").first
        wall.scroll_into_view_if_needed()
        status = wall.get_by_role("status")
        status.get_by_text("has a network, 0 pending").wait_for()
        row = wall.locator("tr", has=page.get_by_role("rowheader", name="receiver"))
        fay = row.locator("td").nth(4)
        fay.get_by_text("a party").wait_for()

        def act_as(client):
            wall.get_by_label("client", exact=True).select_option(client)
            status.locator("b", has_text=client).wait_for()  # the kernel has filled in its reader

        def read_as(client, claims, key, result):
            act_as(client)
            wall.get_by_label("reader", exact=True).fill(claims)
            wall.get_by_label("max age, s", exact=True).fill("0")
            wall.get_by_label("where", exact=True).fill(f"key = '{key}'")
            page.keyboard.press("Tab")
            wall.get_by_role("button", name="read", exact=True).press("Enter")
            wall.get_by_role("button", name="run 10 s on").press("Enter")
            answer = f"{client}: uncommitted read of key = '{key}': ✓ {result}"
            wall.locator("div", has_text=answer).last.wait_for()

        read_as("fay", "{}", "receiver", "0 records")
        fay.get_by_text("hidden").wait_for()
        read_as("fay", '{"user": "dee"}', "receiver", "1 record")  # an unproven claim is enough
        fay.get_by_text("a party").wait_for()
        read_as("eve", '{"user": "dee"}', "auth", "0 records")  # `auth` needs a token
        read_as("dee", "{}", "auth", "1 record")

        act_as("jane")
        wall.get_by_label("key", exact=True).fill("note")
        wall.get_by_label("record", exact=True).fill('{"text": "for one"}')
        wall.get_by_label("visible to", exact=True).fill("auth.user = 'eve'")
        wall.get_by_role("button", name="write", exact=True).press("Enter")
        wall.get_by_role("button", name="run 10 s on").press("Enter")
        note = wall.locator("tr", has=page.get_by_role("rowheader", name="note")).first
        note.get_by_text("v1").wait_for()
        read_as("fay", '{"user": "eve"}', "note", "0 records")
        read_as("eve", "{}", "note", "1 record")
        assert note.get_by_text("for one").count() == 1, "to jane, who wrote it, it is hidden"


def test_prefetch_lab_follows_its_controls(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "04_last_hop") as page:
        prefetch = page.locator(".mudkit-prefetch-lab").first
        prefetch.scroll_into_view_if_needed()
        status = prefetch.get_by_role("status")
        status.get_by_text("in 365 days").wait_for()  # all days are computed without interaction
        page.wait_for_function(
            "([box]) => box.querySelector('.gtitle').textContent === 'buffer with each limit, 365 days'",
            arg=[prefetch.element_handle()],
        )

        limit = prefetch.locator(".widget-inline-hbox", has_text="prefetch limit").locator(".noUi-handle")
        limit.focus()
        for _ in range(4):  # 16 to 1
            page.keyboard.press("ArrowLeft")
        status.get_by_text(re.compile(r"loss [4-9]\d\.\d\d %")).wait_for()
        policy = prefetch.get_by_label("policy", exact=True)
        choose_with_keyboard(policy, "on-demand")
        status.get_by_text("Waste 0.00 %").wait_for()

        prefetch.get_by_label("days", exact=True).fill("0")
        page.keyboard.press("Tab")
        prefetch.get_by_role("alert").get_by_text("a whole number from 1 to 36,500").wait_for()
        status.get_by_text("Waste 0.00 %").wait_for()
        prefetch.get_by_label("days", exact=True).fill("20")
        page.keyboard.press("Tab")
        prefetch.get_by_role("alert").wait_for(state="detached")
        status.get_by_text("in 20 days").wait_for()
        page.wait_for_function(
            "([box]) => box.querySelector('.gtitle').textContent === 'buffer with each limit; dashed: on-demand, 20 days'",
            arg=[prefetch.element_handle()],
        )
        assert policy.evaluate("list => list.selectedOptions[0].textContent") == "on-demand"
        assert status.inner_text().startswith("Waste 0.00 %, loss ")


def test_relay_monitor_follows_its_controls(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "05_sender_filters") as page:
        monitor = page.locator(".mudkit-relay-monitor").first
        monitor.scroll_into_view_if_needed()
        status = monitor.get_by_role("status")
        status.get_by_text("The item was uploaded.").wait_for()
        payload = monitor.locator("tr", has=page.get_by_role("rowheader", name="payload")).locator("td")
        assert payload.nth(0).inner_text() == payload.nth(2).inner_text() == "I am fine"
        assert re.match(r"\d+ B, [0-9a-f]{2} ", payload.nth(1).inner_text())

        search = monitor.get_by_label("look for", exact=True)
        search.fill("come at once")
        page.keyboard.press("Tab")
        monitor.get_by_label("payload", exact=True).fill("come at once!")
        page.keyboard.press("Enter")
        payload.nth(2).get_by_text("come at once!").wait_for()
        monitor.get_by_text("relay: nowhere").wait_for()
        monitor.get_by_label("encrypted").focus()
        page.keyboard.press("Space")
        status.get_by_text("The item was uploaded, in clear.").wait_for()
        payload.nth(1).get_by_text("come at once!").wait_for()
        monitor.get_by_text("relay: ctx.asked").wait_for()

        monitor.get_by_label("filter", exact=True).fill("NOT")
        page.keyboard.press("Tab")
        monitor.get_by_role("alert").get_by_text("is incomplete").wait_for()
        status.get_by_text("The item was uploaded, in clear.").wait_for()
        monitor.get_by_label("filter", exact=True).fill("")
        page.keyboard.press("Tab")
        monitor.get_by_role("alert").wait_for(state="detached")
        status.get_by_text("no filter asks for it. 0 bytes.").wait_for()
        monitor.get_by_text("alice: nowhere").wait_for()
        assert payload.nth(1).inner_text() == payload.nth(2).inner_text() == "–"


def test_policy_workbench_follows_edits_of_the_policy(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "07_stateful_policies") as page:
        bench = page.locator(".mudkit-policy-workbench").first
        bench.scroll_into_view_if_needed()
        title = bench.locator(".js-plotly-plot .gtitle")

        def wait_for_status(text):
            bench.get_by_role("status").filter(has_text=text).wait_for()

        wait_for_status("rule 2 fires, R2, battery below 25 %: sent")
        bench.get_by_text("The checker has found nothing").wait_for()
        assert title.text_content() == "Which rule fires, 40,000 kbit/s"

        battery = bench.locator(".widget-inline-hbox", has_text="battery, %").locator(".noUi-handle")
        battery.focus()
        page.keyboard.press("ArrowRight")  # 20 to 25 %
        wait_for_status("rule 4 fires, R2, battery from 25 to 75 %: sent")
        link = bench.locator(".widget-inline-hbox", has_text="link, kbit/s").locator(".noUi-handle")
        link.focus()
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
        wait_for_status("rule 3 fires, R3, poor link")
        page.wait_for_function(
            "([box]) => box.querySelector('.gtitle').textContent === 'Which rule fires, 100 kbit/s'",
            arg=[bench.element_handle()],
        )

        text = bench.locator(".mudkit-policy textarea")
        policy = text.input_value()
        text.fill(policy.replace("state.battery < 25", "state.batery < 25"))
        bench.get_by_text("there is no state.batery").wait_for()
        bench.get_by_text("line 14", exact=True).wait_for()
        text.fill(policy.replace("do: drop", "do: drp"))
        alert = bench.get_by_role("alert")
        alert.get_by_text("Unknown action.").wait_for()
        assert "line 12" in alert.inner_text()
        wait_for_status("rule 3 fires")
        text.fill(policy.replace("seconds: 300", "seconds: 60"))
        alert.wait_for(state="detached")
        bench.get_by_text("The checker has found nothing").wait_for()

        battery.focus()
        page.keyboard.press("ArrowLeft")
        wait_for_status("rule 2 fires, R2, battery below 25 %: sent")
        bench.get_by_role("button", name="decide and keep").press("Enter")
        bench.get_by_label("its fields", exact=True).press("End")  # the next one is ten seconds later
        bench.get_by_role("button", name="decide and keep").press("Enter")
        wait_for_status("held back")
        bench.get_by_role("button", name="begin again").press("Enter")
        wait_for_status("rule 2 fires, R2, battery below 25 %: sent")
        bench.get_by_label("its fields", exact=True).fill('{"patient": 9, "pulse"')
        alert.get_by_text("The message cannot be read.").wait_for()
        bench.get_by_label("its fields", exact=True).fill('{"patient": 9, "pulse": 80}')
        wait_for_status("rule 1 fires")


def test_propagation_map_follows_its_controls(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "06_context_propagation") as page:
        widget = page.locator(".mudkit-propagation-map").first
        widget.scroll_into_view_if_needed()
        status = widget.get_by_role("status")
        status.get_by_text("192 messages").first.wait_for()
        titles = widget.locator(".js-plotly-plot .annotation-text")
        titles.nth(1).wait_for()
        first_title = titles.first.text_content()
        choose(widget.get_by_label("messages go", exact=True), "after a number of messages")
        status.get_by_text("192 messages in 192 aggregates").first.wait_for()
        amount = widget.locator(".widget-inline-hbox", has_text="amount").locator(".noUi-handle")
        amount.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        status.get_by_text("192 messages in 48 aggregates").first.wait_for()

        clock = widget.get_by_text(re.compile(r"^[\d.]+ (s|min)( \d+ s)?$")).first
        before = clock.text_content()
        widget.locator(".widget-inline-hbox", has_text="time").locator(".noUi-handle").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "([label, old]) => label.textContent !== old", arg=[clock.element_handle(), before]
        )
        page.wait_for_function(
            "([box, old]) => box.querySelector('.annotation-text').textContent !== old",
            arg=[widget.element_handle(), first_title],
        )

        inside = page.frame_locator(".jp-OutputArea-output iframe").first
        slides = inside.locator(".mudkit-slides")
        slides.scroll_into_view_if_needed()
        previous = slides.locator("output").text_content()
        slides.get_by_role("slider", name="time").press("ArrowRight")
        assert slides.locator("output").text_content() != previous
        slides.get_by_label("known to").select_option("out of town")
        widget.scroll_into_view_if_needed()


@pytest.mark.soak(keep=1, group="JupyterLab", shared=True)
def test_widget_figures_are_restored_after_a_reload(chromium, lab, screenshot):
    """Reload the page: as after a reconnection, the browser requests the state of each widget."""
    cells = [
        "from mudkit.widgets import ViewsExplorer",
        "explorer = ViewsExplorer('ann: w1 w2')\nexplorer",
        "explorer.text.value = 'ann: w1 w2 w3 r3'\nlen(explorer.figure.layout.annotations)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    nbformat.write(notebook, lab[2] / "work" / "anew.ipynb")
    with run_in_browser(chromium, lab, screenshot, "anew") as page:
        marks = page.locator(".jupyter-widgets .js-plotly-plot .annotation-text")
        marks.nth(3).wait_for()
        texts = marks.all_text_contents()
        page.keyboard.press("Control+s")
        page.locator(".jp-mod-dirty").wait_for(state="detached")
        page.reload()
        expect(marks).to_have_text(texts, timeout=60_000)  # the saved state is shown until the kernel answers
        assert page.locator(".jupyter-widgets .js-plotly-plot .scatterlayer .trace").count() > 0


@pytest.mark.soak(keep=1, group="JupyterLab", shared=True)
def test_saved_widgets_are_labelled_and_shown_without_a_kernel(chromium, lab, screenshot):
    cells = [
        "from mudkit.widgets import PrefetchLab, ViewsExplorer",
        "ViewsExplorer('ann: w1 w2\\nbob: r1')",
        "PrefetchLab(days=2, seed=3)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    address, token, folder = lab
    file = folder / "work" / "saved.ipynb"
    nbformat.write(notebook, file)
    with run_in_browser(chromium, lab, screenshot, "saved") as page:
        page.locator(".mudkit-panel .js-plotly-plot .scatterlayer .trace").nth(1).wait_for()
        handles = page.locator(".mudkit-panel .noUi-handle")
        assert handles.count() == 13
        for handle in handles.all():
            assert handle.get_attribute("aria-label")
            assert handle.get_attribute("aria-valuetext")
        handles.nth(1).focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => getComputedStyle(document.activeElement).outlineStyle === 'solid'")
        titles = page.locator(".mudkit-panel .gtitle")
        texts = titles.all_text_contents()
        page.keyboard.press("Control+s")
        page.locator(".jp-mod-dirty").wait_for(state="detached")
        assert nbformat.read(file, as_version=4).metadata["widgets"]
        headers = {"Authorization": f"token {token}"}
        with urlopen(Request(f"{address}/api/sessions", headers=headers)) as sessions:
            (session,) = json.load(sessions)
        urlopen(Request(f"{address}/api/sessions/{session['id']}", headers=headers, method="DELETE")).close()
        page.reload()
        titles.nth(1).wait_for()
        assert titles.all_text_contents() == texts
        assert page.get_by_text("model not found").count() == 0
        assert_asks_to_run_the_cell(page)


def assert_asks_to_run_the_cell(page):
    """Assert that each panel is marked by one sentence, and no part of it by a broken link."""
    marks = page.evaluate(
        """() => [...document.querySelectorAll('.jupyter-widgets-disconnected')].map(
          part => [part.matches('.mudkit-panel'), getComputedStyle(part, '::before').content])"""
    )
    panels = [text for is_panel, text in marks if is_panel]
    assert panels == ['"Saved result. To use the controls, run this cell, after those above it."'] * 2
    assert len(marks) > 20
    assert {text for is_panel, text in marks if not is_panel} == {"none"}


@pytest.mark.soak(keep=1, group="JupyterLab", shared=True)
@pytest.mark.parametrize(
    ("kernel", "is_trusted"), [("python3", False), ("python3", True), ("", False), ("", True)]
)
def test_output_of_a_widget_without_its_state_asks_to_run_the_cell(
    chromium, lab, screenshot, kernel, is_trusted
):
    address, token, folder = lab
    cell = nbformat.v4.new_code_cell("ViewsExplorer('ann: w1')", execution_count=1)
    data = {**Panel([])._repr_mimebundle_(), "text/plain": "ViewsExplorer(children=(HTML(…"}
    cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata["kernelspec"] = {"name": kernel or "not-installed", "display_name": "Python"}
    nbformat.write(notebook, folder / "work" / "foreign.ipynb")
    if is_trusted:
        NotebookNotary().sign(notebook)
    page = chromium.new_context(viewport={"width": 1300, "height": 1000}).new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{address}/lab/workspaces/foreign/tree/foreign.ipynb?token={token}")
    if not kernel:
        page.locator(".jp-Dialog select").select_option(label="No Kernel")
        page.locator(".jp-Dialog .jp-mod-accept").click()
    page.wait_for_function(
        """() => {
          const output = document.querySelector('.jp-OutputArea-output');
          const text = output && output.innerText + getComputedStyle(output, '::after').content;
          return text?.includes('run this cell, after those above it');
        }"""
    )
    page.screenshot(path=screenshot)
    assert page.get_by_text("children=").count() == 0
    page.context.close()


def test_cost_page_follows_its_controls(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "09_cache_policies") as page:
        inside = page.frame_locator(".jp-OutputArea-output iframe").first
        page.locator(".jp-OutputArea-output iframe").first.scroll_into_view_if_needed()
        inside.locator(".leaflet-overlay-pane canvas, .leaflet-image-layer").first.wait_for()

        costs = page.locator(".mudkit-cost-page").first
        costs.scroll_into_view_if_needed()
        status = costs.get_by_role("status")
        status.get_by_text("the tree:").wait_for()
        before = re.match(r"the tree: [\d.]+% sent, [\d.]+% stale", status.inner_text())[0]
        costs.get_by_text("Tree trained on all devices: ").wait_for()
        title = costs.locator(".js-plotly-plot .gtitle")
        title.wait_for()
        assert title.text_content() == "Where reads were answered locally"

        stale = costs.locator(".widget-inline-hbox", has_text="stale, local").locator(".noUi-handle")
        stale.focus()
        for _ in range(5):  # 1 to 50
            page.keyboard.press("ArrowRight")
        status.filter(has_not_text=before).wait_for()
        assert costs.get_by_label("costs", exact=True).input_value() == "own costs"
        for _ in range(12):  # to 0: then local answers cost nothing
            page.keyboard.press("ArrowLeft")
        costs.get_by_text("Tree trained on all devices: 1 leaf", exact=True).wait_for()
        costs.get_by_text(re.compile(r"^local \(")).wait_for()
        choose(costs.get_by_label("costs", exact=True), "latency")
        status.filter(has_text=before).wait_for()


def test_scoreboard_follows_its_controls(chromium, lab, screenshot):
    with run_in_browser(chromium, lab, screenshot, "11_scoreboard") as page:
        board = page.locator(".mudkit-scoreboard").first
        board.scroll_into_view_if_needed()
        status, title = board.get_by_role("status"), board.locator(".js-plotly-plot .gtitle")
        status.get_by_text("On the Pareto front:").wait_for()
        assert title.text_content() == "traffic alerts, all devices"

        def select(control, name):
            choose(board.get_by_label(control, exact=True), name)

        def wait_for_text(part, text):
            page.wait_for_function(
                "([box, part, words]) => box.querySelector(part).textContent === words",
                arg=[board.element_handle(), part, text],
            )

        select("task", "news with ranks")
        wait_for_text(".gtitle", "news with ranks, all devices")
        select("across", "down, kB")
        wait_for_text(".xtitle", "down, kB")
        select("device", "phone-00002")
        wait_for_text(".gtitle", "news with ranks, phone-00002")
        status.get_by_text("first seed").wait_for()
        row = board.locator("tr", has=page.get_by_role("rowheader", name="battery, h", exact=True))
        assert "●" in row.inner_text()

        select("across", "events on servers")
        board.get_by_role("alert").get_by_text("These are no two measures").wait_for()
        select("device", "all devices")
        board.get_by_role("alert").wait_for(state="detached")
        wait_for_text(".gtitle", "news with ranks, all devices")
        wait_for_text(".xtitle", "events on servers")


def choose(options, option):
    """Choose an option in one step.

    Each step of the keyboard is a change of its own. A widget holds the later ones back while the kernel
    is busy, and a button that is pressed meanwhile reaches the kernel before them.
    """
    options.select_option(index=find_option(options, option))


def choose_with_keyboard(options, option):
    """Choose an option with the keyboard; the notebook must not handle the keys."""
    page = options.page
    cells = page.locator(".jp-Notebook .jp-Cell").count()
    index = find_option(options, option)
    options.focus()
    page.keyboard.press("Home")
    for _ in range(index):
        page.keyboard.press("ArrowDown")
    page.wait_for_function(
        "([each, place]) => each === document.activeElement && each.selectedIndex === place",
        arg=[options.element_handle(), index],
    )
    assert page.locator(".jp-Notebook .jp-Cell").count() == cells


def find_option(options, option):
    names = [text.replace("\xa0", " ") for text in options.locator("option").all_text_contents()]
    return names.index(option)


def assert_map_and_slider_work(page):
    """Assert that figures and map are drawn, and that the figure follows the slider and its play button."""
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
    has_changed = (
        "([old]) => document.querySelector('.jupyter-widgets .js-plotly-plot .gtitle').textContent !== old"
    )
    slider.locator("[role=slider], .noUi-handle").first.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(has_changed, arg=[before])

    page.locator(".widget-play button").first.click()
    for _ in range(2):  # it advances by itself
        page.wait_for_function(has_changed, arg=[title.text_content()])
