import copy
import json
import re

import nbformat.v4 as v4
import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest
from bs4 import BeautifulSoup

from mudkit import figures
from mudkit.errors import OutputProblem
from mudkit.report.html import export_html

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


def notebook(*cells):
    return v4.new_notebook(cells=list(cells))


def output(**data):
    return v4.new_output(
        "display_data", data={name.replace("__", "/"): value for name, value in data.items()}
    )


def cell(*outputs, source="pass"):
    return v4.new_code_cell(source, outputs=list(outputs), execution_count=1)


def stderr(text):
    return v4.new_output("stream", name="stderr", text=text)


def figure(title="Sent", height=None):
    drawn = go.Figure(
        go.Scatter(x=np.arange(3), y=[1.0, 2.0, np.nan]), layout={"title": title, "height": height}
    )
    return v4.new_output("display_data", data={PLOTLY: json.loads(drawn.to_json())})


@pytest.fixture
def export(tmp_path):
    def run(*cells, title="A report", **options):
        file = tmp_path / "report.html"
        export_html(notebook(*cells), file, title=title, **options)
        text = file.read_text("utf-8")
        return text, BeautifulSoup(text, "html.parser")

    return run


def test_a_page_loads_nothing(export):
    text, soup = export(
        v4.new_markdown_cell(
            "# Title\n\n![logo](https://example.org/logo.png) [link](https://example.org/page)"
        ),
        cell(
            figure(),
            output(text__html='<script src="https://cdn.example.org/x.js"></script><b>kept</b>'),
            output(
                text__html='<iframe src="//example.org/frame"></iframe><img src="data:image/png;base64,AA==">'
            ),
            output(text__html='<link rel="stylesheet" href="http://example.org/x.css">'),
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


def test_a_page_has_a_title_and_a_language(export):
    _, soup = export(v4.new_markdown_cell("# First"), title="Taxis & <co>")
    assert soup.title.text == "Taxis & <co>"
    assert soup.html["lang"] == "en"
    assert "prefers-color-scheme: dark" in soup.style.text
    assert soup.find("h1").text == "First"


def test_figures_share_one_plotly(export):
    text, soup = export(cell(figure("One"), figure("Two", 333)), cell(figure("Three")))
    assert text.count("* plotly.js v") == 1
    assert 'getPropertyValue("--ink")' in text, "figures have the page's colour of texts"
    holders = soup.select("script.mudkit-figure-data")
    drawn = [json.loads(holder.string) for holder in holders]
    assert [each["layout"]["title"]["text"] for each in drawn] == ["One", "Two", "Three"]
    places = [soup.find(id=holder["data-figure"]) for holder in holders]
    assert [place["style"] for place in places] == ["height:450px", "height:333px", "height:450px"]
    assert [note.text for note in soup.find_all("noscript")] == [
        f"Figure: {name}. It needs JavaScript." for name in ("One", "Two", "Three")
    ]
    for each in drawn:
        assert each["config"]["plotlyServerURL"] == ""
        assert not each["config"]["showSendToCloud"]
        assert not each["config"]["displaylogo"]


@pytest.mark.parametrize("title", ["</script><b>", "a & b", "<i>x</i>", "\u2028 {{ x }} $y$ \\u003c"])
def test_figures_keep_their_words(export, title):
    _, soup = export(cell(figure(title)))
    (holder,) = soup.select("script.mudkit-figure-data")
    assert json.loads(holder.string)["layout"]["title"]["text"] == title


def test_maps_keep_their_page(export):
    drawn = figures.heat_map(pa.table({"lat": [37.7, 37.8], "lon": [-122.4, -122.5], "weight": [1, 1]}))
    shown = drawn._repr_html_()
    _, soup = export(cell(output(text__html=shown, text__plain="<folium.Map>")))
    assert soup.find("iframe")["srcdoc"] == BeautifulSoup(shown, "html.parser").find("iframe")["srcdoc"]
    assert "height:480px" in soup.find("iframe")["style"]


def test_widgets_and_their_state_are_left_out(tmp_path):
    slider = v4.new_output(
        "display_data", data={WIDGET: {"model_id": "abc"}, "text/plain": "IntSlider(value=0)"}
    )
    nb = notebook(cell(slider), cell(output(text__plain="kept")))
    nb.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"secret": {}}}}
    export_html(nb, tmp_path / "a.html", title="A")
    text = (tmp_path / "a.html").read_text()
    assert "kept" in text
    for left_out in ("IntSlider", "secret", "widget-state", "plotly.js v"):
        assert left_out not in text
    assert len(text) < 400_000


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("\r  0%|          | 0/100 [00:00<?, ?it/s]\r100%|██████████| 100/100 [00:00<00:00, 3k it/s]\n", ""),
        ("\r[Stage 0:>                    (0 + 2) / 4]\r\r                                    \r", ""),
        ("\x1b[32m━━━━━━━━━━\x1b[0m 5/5\n", ""),
        ("12it [00:03,  3.9it/s]", ""),
        ("UserWarning: 40% of rows are gone\n", "UserWarning: 40% of rows are gone"),
        ("before\n\r 50%|█████     | 1/2 [00:00<00:00]\r\nafter\n", "before\nafter"),
    ],
)
def test_progress_bars_are_dropped_and_warnings_kept(export, written, left):
    _, soup = export(cell(stderr(written)))
    kept = [pre.text.strip() for pre in soup.select(".output_stderr pre")]
    assert kept == ([left] if left else [])


def test_errors_of_cells_are_shown(export):
    error = v4.new_output(
        "error", ename="ValueError", evalue="no", traceback=["\x1b[31mValueError\x1b[0m: no"]
    )
    text, soup = export(cell(error))
    assert "ValueError: no" in soup.text
    assert "\x1b" not in text


def test_details_are_folded_under_their_heading(export):
    tag = {"metadata": {"tags": ["details"]}}
    answer = cell(output(text__plain="42"))
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
    _, soup = export(cell(output(text__plain="42"), source="answer = 6 * 7"), show_code=show)
    assert ("answer = 6 * 7" in soup.text) == show
    assert "42" in soup.text
    assert not soup.select(".prompt")


def test_mathematics_stays_as_text(export):
    _, soup = export(v4.new_markdown_cell("Let $E = mc^2$."), cell(output(text__latex="$a^2$")))
    assert "$E = mc^2$" in soup.text
    assert "$a^2$" in soup.text


def test_the_notebook_stays_as_it_is(tmp_path):
    nb = notebook(cell(figure(), stderr("\r100%|███| 1/1 [00:00]")))
    before = copy.deepcopy(nb)
    export_html(nb, tmp_path / "a.html", title="A")
    assert nb == before


def test_what_was_there_survives_a_failure(tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    file.write_text("old")

    def full(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OutputProblem, match="disk is full"):
        export_html(notebook(), file, title="A")
    monkeypatch.undo()
    assert file.read_text() == "old"
    file.unlink()
    file.mkdir()
    with pytest.raises(OutputProblem, match=r"report\.html could not be written"):
        export_html(notebook(), file, title="A")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
