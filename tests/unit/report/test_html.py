import base64
import copy
import json
import re

import ipywidgets
import nbformat.v4 as v4
import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest
from bs4 import BeautifulSoup

from mudkit import figures
from mudkit.errors import OutputProblem
from mudkit.report.html import export_html
from mudkit.widgets.panel import Figure, Panel, guide

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


def make_notebook(*cells):
    return v4.new_notebook(cells=list(cells))


def make_output(**data):
    return v4.new_output(
        "display_data", data={name.replace("__", "/"): value for name, value in data.items()}
    )


def make_cell(*outputs, source="pass"):
    return v4.new_code_cell(source, outputs=list(outputs), execution_count=1)


def make_stderr(text):
    return v4.new_output("stream", name="stderr", text=text)


def make_figure(title="Sent", height=None):
    plot = go.Figure(
        go.Scatter(x=np.arange(3), y=[1.0, 2.0, np.nan]), layout={"title": title, "height": height}
    )
    return v4.new_output("display_data", data={PLOTLY: json.loads(plot.to_json())})


@pytest.fixture
def export(tmp_path):
    def run(*cells, title="A report", **options):
        file = tmp_path / "report.html"
        export_html(make_notebook(*cells), file, title=title, **options)
        text = file.read_text("utf-8")
        return text, BeautifulSoup(text, "html.parser")

    return run


def test_page_loads_nothing(export):
    text, soup = export(
        v4.new_markdown_cell(
            "# Title\n\n![logo](https://example.org/logo.png) [link](https://example.org/page)"
        ),
        make_cell(
            make_figure(),
            make_output(text__html='<script src="https://cdn.example.org/x.js"></script><b>kept</b>'),
            make_output(
                text__html='<iframe src="//example.org/frame"></iframe><img src="data:image/png;base64,AA==">'
            ),
            make_output(text__html='<link rel="stylesheet" href="http://example.org/x.css">'),
        ),
    )
    for tag in soup.find_all(True):
        for name in ("src", "srcset", "poster", "data"):
            assert not re.match("(https?:)?//", tag.get(name, "")), tag
        assert tag.name != "link"
        assert tag.get("src") != ""  # which would load the page itself
    assert {a["href"] for a in soup.find_all("a")} == {
        "https://example.org/logo.png",
        "https://example.org/page",
    }
    assert soup.find("a", href="https://example.org/logo.png").text == "logo"
    assert soup.find("b").text == "kept"
    assert soup.find("img")["src"].startswith("data:")
    for name in ("require.min.js", "MathJax.js", "mathjax/", "mermaid.esm", "unpkg.com", "jquery.min"):
        assert name not in text


def test_page_has_title_and_language(export):
    _, soup = export(v4.new_markdown_cell("# First"), title="Taxis & <co>")
    assert soup.title.text == "Taxis & <co>"
    assert soup.html["lang"] == "en"
    assert "prefers-color-scheme: dark" in soup.style.text
    assert soup.find("h1").text == "First"


def test_figures_share_one_plotly(export):
    text, soup = export(
        make_cell(make_figure("One"), make_figure("Two", 333)), make_cell(make_figure("Three"))
    )
    assert text.count("* plotly.js v") == 1
    assert 'getPropertyValue("--ink")' in text, "figures have the page's colour of texts"
    holders = soup.select("script.mudkit-figure-data")
    plots = [json.loads(holder.string) for holder in holders]
    assert [figure["layout"]["title"]["text"] for figure in plots] == ["One", "Two", "Three"]
    containers = [soup.find(id=holder["data-figure"]) for holder in holders]
    assert [container["style"] for container in containers] == [
        "height:450px",
        "height:333px",
        "height:450px",
    ]
    assert [note.text for note in soup.find_all("noscript")] == [
        f"Figure: {name}. It needs JavaScript." for name in ("One", "Two", "Three")
    ]
    for figure in plots:
        assert figure["config"]["plotlyServerURL"] == ""
        assert not figure["config"]["showSendToCloud"]
        assert not figure["config"]["displaylogo"]


@pytest.mark.parametrize("title", ["</script><b>", "a & b", "<i>x</i>", "\u2028 {{ x }} $y$ \\u003c"])
def test_figure_titles_are_escaped(export, title):
    _, soup = export(make_cell(make_figure(title)))
    (holder,) = soup.select("script.mudkit-figure-data")
    assert json.loads(holder.string)["layout"]["title"]["text"] == title


def test_maps_keep_their_page(export):
    heat_map = figures.heat_map(pa.table({"lat": [37.7, 37.8], "lon": [-122.4, -122.5], "weight": [1, 1]}))
    html = heat_map._repr_html_()
    _, soup = export(make_cell(make_output(text__html=html, text__plain="<folium.Map>")))
    assert soup.find("iframe")["srcdoc"] == BeautifulSoup(html, "html.parser").find("iframe")["srcdoc"]
    assert "height:480px" in soup.find("iframe")["style"]


def test_widgets_and_their_state_are_omitted(tmp_path):
    slider = v4.new_output(
        "display_data", data={WIDGET: {"model_id": "abc"}, "text/plain": "IntSlider(value=0)"}
    )
    nb = make_notebook(make_cell(slider), make_cell(make_output(text__plain="kept")))
    nb.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"secret": {}}}}
    export_html(nb, tmp_path / "a.html", title="A")
    text = (tmp_path / "a.html").read_text()
    assert "kept" in text
    for left_out in ("IntSlider", "secret", "widget-state", "plotly.js v"):
        assert left_out not in text
    assert len(text) < 400_000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("\r  0%|          | 0/100 [00:00<?, ?it/s]\r100%|██████████| 100/100 [00:00<00:00, 3k it/s]\n", ""),
        ("\r[Stage 0:>                    (0 + 2) / 4]\r\r                                    \r", ""),
        ("\x1b[32m━━━━━━━━━━\x1b[0m 5/5\n", ""),
        ("12it [00:03,  3.9it/s]", ""),
        ("UserWarning: 40% of rows are gone\n", "UserWarning: 40% of rows are gone"),
        ("before\n\r 50%|█████     | 1/2 [00:00<00:00]\r\nafter\n", "before\nafter"),
    ],
)
def test_progress_bars_are_dropped_and_warnings_kept(export, written, expected):
    _, soup = export(make_cell(make_stderr(written)))
    lines = [pre.text.strip() for pre in soup.select(".output_stderr pre")]
    assert lines == ([expected] if expected else [])


def test_cell_errors_are_shown(export):
    error = v4.new_output(
        "error", ename="ValueError", evalue="no", traceback=["\x1b[31mValueError\x1b[0m: no"]
    )
    text, soup = export(make_cell(error))
    assert "ValueError: no" in soup.text
    assert "\x1b" not in text


def test_details_are_folded_under_their_heading(export):
    tag = {"metadata": {"tags": ["details"]}}
    answer = make_cell(make_output(text__plain="42"))
    answer.metadata["tags"] = ["details"]
    _, soup = export(
        v4.new_markdown_cell("# A report"),
        v4.new_markdown_cell("## How <it> works\n\nLike this.", **tag),
        answer,
        v4.new_markdown_cell("The end"),
    )
    (details,) = soup.find_all("details")
    assert details.summary.text == "How <it> works"
    assert "Like this." in details.text
    assert "42" in details.text
    assert "The end" not in details.text
    assert not soup.find("h2")


@pytest.mark.parametrize("show", [False, True])
def test_code_is_shown_on_request(export, show):
    _, soup = export(make_cell(make_output(text__plain="42"), source="answer = 6 * 7"), show_code=show)
    assert ("answer = 6 * 7" in soup.text) == show
    assert "42" in soup.text
    assert not soup.select(".prompt")


def test_mathematics_stays_as_text(export):
    _, soup = export(v4.new_markdown_cell("Let $E = mc^2$."), make_cell(make_output(text__latex="$a^2$")))
    assert "$E = mc^2$" in soup.text
    assert "$a^2$" in soup.text


def test_page_does_not_depend_on_earlier_pages(export):
    """Pages share the compiled templates; the title, the language of code and the figures are of each alone."""
    other = (
        v4.new_markdown_cell("# Walrus\n\n$x$"),
        make_cell(make_figure("Walrus")),
        make_cell(source="2 + 2"),
    )
    mine = (v4.new_markdown_cell("# Zebra"), make_cell(make_figure("Zebra")), make_cell(source="1 + 1"))
    for shown in (False, True):
        first, _ = export(*mine, title="Zebra", show_code=shown)
        between, _ = export(*other, title="Walrus", show_code=shown)
        again, _ = export(*mine, title="Zebra", show_code=shown)
        assert again == first
        assert "Zebra" not in between
        assert "Walrus" not in again


def test_notebook_is_not_modified(tmp_path):
    nb = make_notebook(make_cell(make_figure(), make_stderr("\r100%|███| 1/1 [00:00]")))
    before = copy.deepcopy(nb)
    export_html(nb, tmp_path / "a.html", title="A")
    assert nb == before


def test_existing_file_survives_a_failed_export(tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    file.write_text("old")

    def raise_disk_full(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", raise_disk_full)
    with pytest.raises(OutputProblem, match="disk is full"):
        export_html(make_notebook(), file, title="A")
    monkeypatch.undo()
    assert file.read_text() == "old"
    file.unlink()
    file.mkdir()
    with pytest.raises(OutputProblem, match=r"report\.html could not be written"):
        export_html(make_notebook(), file, title="A")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def make_panel():
    """Return a notebook with a panel, a progress bar, and the state that JupyterLab or nbclient saves."""
    figure = Figure(go.Scatter(x=np.arange(3.0), y=[1, 2, 4]), layout={"title": "Sent"})
    figure.layout.meta = {"alt": "Three points."}
    controls = [guide("Move the <b>slider</b>."), ipywidgets.IntSlider(value=3, description="days")]
    panel = Panel([*controls, ipywidgets.HBox([ipywidgets.HTML("<b>2 of 3</b> were read")]), figure])
    bar = ipywidgets.HBox([ipywidgets.HTML("50 %"), ipywidgets.FloatProgress(value=0.5)])
    outputs = [v4.new_output("display_data", data=widget._repr_mimebundle_()) for widget in (panel, bar)]
    notebook = make_notebook(*map(make_cell, outputs))
    notebook.metadata["widgets"] = {
        "application/vnd.jupyter.widget-state+json": ipywidgets.Widget.get_manager_state()
    }
    return notebook


def test_panel_is_a_picture_of_its_state(tmp_path):
    notebook = make_panel()
    export_html(notebook, tmp_path / "a.html", title="A")
    soup = BeautifulSoup((tmp_path / "a.html").read_text("utf-8"), "html.parser")
    (holder,) = soup.select("script.mudkit-figure-data")
    figure = json.loads(holder.string)
    assert figure["layout"]["title"]["text"] == "Sent"
    assert decode(figure["data"][0]["x"]) == [0.0, 1.0, 2.0]
    assert soup.find(id=holder["data-figure"])["aria-label"] == "Three points."
    (area,) = soup.select(".output_area:has(.mudkit-figure)")
    assert area.find("b").text == "2 of 3"
    assert area.find("p", class_="mudkit-note").text.startswith(
        "Picture of a widget: to use its controls, run"
    )
    assert "slider" not in area.text, "explanations of controls are left out"
    assert "50 %" not in soup.text, "progress bars are left out"


@pytest.mark.parametrize("state", [{}, {"state": {}}, {"state": {"other": {"state": {}}}}])
def test_panel_without_its_state_is_left_out(tmp_path, state):
    notebook = make_panel()
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": state}
    export_html(notebook, tmp_path / "a.html", title="A")
    soup = BeautifulSoup((tmp_path / "a.html").read_text("utf-8"), "html.parser")
    assert soup.select(".mudkit-figure, .mudkit-note") == []
    assert "run this cell" not in soup.text


def decode(array):
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"]).tolist()
