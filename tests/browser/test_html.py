import json

import nbformat.v4 as v4
import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest

from mudkit import figures
from mudkit.report.html import export_html

pytestmark = pytest.mark.browser

PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture
def open_report(visit, tmp_path):
    """Export a notebook, open it, and wait until its figures are drawn."""
    opened = []

    def open_exported(notebook, figures, **options):
        file = tmp_path / "report.html"
        export_html(notebook, file, title="A report", **options)
        visited = visit(file)
        opened.append(visited)
        visited.page.wait_for_function(
            "number => document.querySelectorAll('.mudkit-figure .main-svg .trace').length === number",
            arg=figures,
        )
        return visited

    yield open_exported
    for visited in opened:
        assert visited.external_requests == []
        assert visited.errors == []


def build_chart(title, **layout):
    figure = go.Figure(
        go.Scatter(x=np.arange(30), y=np.sqrt(np.arange(30))), layout={"title": title, **layout}
    )
    return v4.new_output("display_data", data={PLOTLY: json.loads(figure.to_json())})


def build_city():
    random = np.random.default_rng(2)
    lat, lon = 37.7 + random.normal(0, 0.02, 3000), -122.4 + random.normal(0, 0.03, 3000)
    return pa.table({"lat": lat, "lon": lon, "weight": np.ones(3000)})


def build_report():
    map_html = figures.heat_map(build_city(), build_city())._repr_html_()
    wide = "<table><tr>" + "<td>a long cell</td>" * 60 + "</tr></table>"
    return v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# A report\n\nSome $x^2$, and ![a picture](https://example.org/a.png)."),
            v4.new_code_cell(
                "1", outputs=[build_chart("First </script>"), build_chart("Second", height=300)]
            ),
            v4.new_code_cell("2", outputs=[v4.new_output("display_data", data={"text/html": map_html})]),
            v4.new_code_cell("3", outputs=[v4.new_output("display_data", data={"text/html": wide})]),
        ]
    )


@pytest.mark.soak(keep=2, group="pages")
def test_figures_and_maps_are_drawn_without_a_network(open_report):
    page = open_report(build_report(), 2).page
    assert page.title() == "A report"
    for index, height in ((0, 450), (1, 300)):
        figure = page.locator(".mudkit-figure").nth(index)
        plot = figure.locator(".main-svg").first.bounding_box()
        assert plot["width"] > 600
        assert plot["height"] == figure.bounding_box()["height"] == height
    assert page.locator(".gtitle").all_text_contents() == ["First </script>", "Second"]
    frame = page.frame_locator("iframe")
    picture = frame.locator("img.leaflet-image-layer")
    picture.wait_for()
    assert picture.evaluate("element => element.decode().then(() => element.naturalWidth)") > 100
    assert picture.bounding_box()["height"] > 100
    assert page.locator("iframe").bounding_box()["height"] == 480
    main_width = page.locator("main").bounding_box()["width"]
    for selector in ("iframe", ".mudkit-figure"):
        assert page.locator(selector).first.bounding_box()["width"] > 0.94 * main_width
    assert frame.locator(".leaflet-control-attribution").inner_text().startswith("Leaflet")


@pytest.mark.soak(keep=2, group="pages")
def test_page_is_readable_at_any_width(open_report):
    page = open_report(build_report(), 2).page
    for width in (1600, 1000, 400):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_function(
            "document.querySelector('.mudkit-figure .main-svg').clientWidth"
            " <= document.querySelector('main').clientWidth"
        )
        main = page.locator("main").bounding_box()
        assert main["width"] <= 1024
        assert abs((main["x"] + main["width"] / 2) - width / 2) < 20
        assert page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1"
        )
        table = page.locator(".output_area:has(table)")
        assert (
            table.evaluate(
                "element => { element.scrollTo({left: 99, behavior: 'instant'}); return element.scrollLeft }"
            )
            == 99
        )


@pytest.mark.soak
@pytest.mark.notebook
def test_kernel_outputs_become_a_report(open_report):
    from nbclient import NotebookClient

    notebook = v4.new_notebook(
        cells=[
            v4.new_code_cell(
                "import plotly.graph_objects as go\nfigure = go.Figure(go.Bar(x=['a', 'b'], y=[1, 2]))\nfigure"
            ),
            v4.new_code_cell("figure.show()"),
            v4.new_code_cell(
                "import pyarrow as pa\nfrom mudkit import figures\n"
                "rows = pa.table({'lat': [37.7, 37.8], 'lon': [-122.4, -122.5], 'weight': [1, 1]})\n"
                "figures.heat_map(rows, rows)"
            ),
            v4.new_code_cell("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass"),
            v4.new_code_cell("import ipywidgets\nipywidgets.IntSlider()"),
        ],
    )
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    kinds = [[sorted(output.get("data", {})) for output in cell.outputs] for cell in notebook.cells]
    assert kinds[0] == kinds[1] == [[PLOTLY]]
    assert kinds[2] == [["text/html", "text/plain"]]
    page = open_report(notebook, 2).page
    page.frame_locator("iframe").locator("img.leaflet-image-layer").wait_for()
    text = page.inner_text("main")
    assert "IntSlider" not in text
    assert "it/s" not in text


@pytest.mark.soak(keep=2, group="pages")
def test_printed_page_is_unfolded_and_inside_the_paper(visit, tmp_path):
    """Print on A4, 680 px wide within its margins; figures were drawn for the screen before."""
    wide = v4.new_output("display_data", data={"text/html": "<pre>" + "mudkit-report-" * 40 + "</pre>"})
    folded = {"tags": ["details"]}
    cells = [
        v4.new_code_cell("1", outputs=[build_chart("First"), wide]),
        v4.new_markdown_cell("## Method\n\nA method.", metadata=folded),
    ]
    export_html(v4.new_notebook(cells=cells), tmp_path / "report.html", title="A report")
    page = visit(tmp_path / "report.html").page
    page.wait_for_function("document.querySelectorAll('.mudkit-figure .main-svg .trace').length === 1")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 680, "height": 960})
    overflowing = page.evaluate(
        "() => [...document.querySelectorAll('.main-svg, pre, table')]"
        ".filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.className || each.tagName)"
    )
    assert [str(name) for name in overflowing] == []
    assert page.evaluate("getComputedStyle(document.querySelector('.modebar')).display") == "none"
    assert page.get_by_text("A method.").is_visible()


def test_long_command_is_wrapped(visit, tmp_path):
    """Show a command of a markdown cell on screens of different widths."""
    command = "mudkit report propagation " + "--param trace=/a/folder/positions.csv.gz " * 12
    export_html(
        v4.new_notebook(cells=[v4.new_markdown_cell(f"    {command}")]),
        tmp_path / "page.html",
        title="A report",
    )
    page = visit(tmp_path / "page.html").page
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


@pytest.mark.soak(keep=2, group="pages")
def test_page_in_the_dark_theme_is_printed_on_white(visit, tmp_path):
    """Print while the theme stays dark, for which figures and maps were drawn."""
    map_html = figures.heat_map(build_city(), build_city())._repr_html_()
    cells = [
        v4.new_code_cell("1", outputs=[build_chart("First")]),
        v4.new_code_cell("2", outputs=[v4.new_output("display_data", data={"text/html": map_html})]),
    ]
    export_html(v4.new_notebook(cells=cells), tmp_path / "report.html", title="A report")
    page = visit(tmp_path / "report.html").page
    page.emulate_media(color_scheme="dark")
    page.reload()
    page.wait_for_function("document.querySelectorAll('.mudkit-figure .main-svg .trace').length === 1")
    page.frame_locator("iframe").locator("img.leaflet-image-layer").wait_for()
    page.emulate_media(color_scheme="dark", media="print")
    ink = page.evaluate("getComputedStyle(document.querySelector('.gtitle')).fill")
    ground = page.frames[1].evaluate(
        "getComputedStyle(document.querySelector('.leaflet-container')).backgroundColor"
    )
    assert (ink, ground) == ("rgb(29, 36, 48)", "rgb(252, 252, 250)")
