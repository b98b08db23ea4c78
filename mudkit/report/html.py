"""An executed notebook as one HTML file that opens without a network."""

from __future__ import annotations

import copy
import html
import json
import os
import re
from collections.abc import Iterable
from typing import Any

import nbformat
from bs4 import BeautifulSoup, Tag
from nbconvert import HTMLExporter
from plotly.offline import get_plotlyjs

from mudkit import figures
from mudkit.files import staged_file

__all__ = ["export_html"]

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"

_DEFAULT_HEIGHT_PX = 450
_LOADING = ["img", "script", "link", "iframe", "video", "audio", "source", "object", "embed", "track"]
_SOURCES = ("src", "srcset", "poster", "data")

_TEMPLATE = """
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}<style>{{ resources.page_css }}</style>{%- endblock -%}
"""

_CSS = """
:root { color-scheme: light; --jp-content-font-size1: 16px; --jp-code-font-size: 14px; }
html { background: #fff; }
body.jp-Notebook { padding: 2rem 1rem 4rem; overflow: visible; background: #fff; }
body.jp-Notebook > main { max-width: 64rem; margin: 0 auto; }
.jp-RenderedHTMLCommon { line-height: 1.6; }
.jp-RenderedMarkdown > p, .jp-RenderedMarkdown > ul, .jp-RenderedMarkdown > ol { max-width: 46rem; }
.jp-InputPrompt, .jp-OutputPrompt { display: none; }
main .jp-OutputArea-child, main .jp-OutputArea-child .jp-OutputArea-output { display: block; width: auto; }
.jp-OutputArea-output, .jp-InputArea-editor { overflow-x: auto; }
.jp-Cell { padding: 4px 0; }
.jp-RenderedHTMLCommon table { margin-left: 0; font-variant-numeric: tabular-nums; }
.mudkit-figure { width: 100%; }
.mudkit-needs-script { color: #57606a; }
@media print { body.jp-Notebook { padding: 0; } .jp-Cell { break-inside: avoid; } }
"""

_CONFIG = 'window.PlotlyConfig = {MathJaxConfig: "local"};'

_DRAW = """
document.querySelectorAll("script.mudkit-figure-data").forEach(function (holder) {
  var figure = JSON.parse(holder.textContent), place = document.getElementById(holder.dataset.figure);
  Plotly.newPlot(place, figure.data, figure.layout, figure.config).then(function () {
    if (figure.frames) Plotly.addFrames(place, figure.frames);
  });
});
"""

# What tqdm, Spark and pip write over and over: a share, a bar, a rate.
_PROGRESS = re.compile(r"\d+%\|.*\||\b\d+(\.\d+)?[kMG]?(it|rows|B) \[\d+:\d|\[Stage \d+:.*\]|[━█▏▎▍▌▋▊▉]{3}")


def export_html(
    notebook: nbformat.NotebookNode, path: str | os.PathLike[str], *, title: str, show_code: bool = False
) -> None:
    """Write an executed notebook as one HTML file that opens without a network.

    Plotly figures (outputs of the type ``application/vnd.plotly.v1+json``) work as in JupyterLab, with one
    copy of plotly.js in the file; folium maps keep the page that they bring along. Outputs of widgets and of
    progress bars are left out. Mathematics stays as LaTeX text: typesetting it would need MathJax, which
    would have to be loaded. Pictures from the network become links; scripts, styles and frames from there are
    removed. A map with ``tiles=`` still asks its tile server.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        A notebook of format 4 with its outputs; it stays as it is.
    path : path-like
        The file to write, replaced if it is there; its folder is made.
    title : str
        The title of the page.
    show_code : bool
        Whether the source of the cells is shown, too.

    Raises
    ------
    OutputProblem
        The file could not be written; what was at the place before is still there.
    """
    shown = copy.deepcopy(notebook)
    figures = _prepare(shown)
    shown.metadata["title"] = title
    page = _without_network(_rendered(shown, show_code))
    if figures:
        program = get_plotlyjs().replace("</script", r"<\/script")
        head, end, tail = page.rpartition("</body>")
        scripts = "\n".join(f"<script>{text}</script>" for text in (_CONFIG, program, _DRAW))
        page = f"{head}{scripts}\n{end}{tail}"
    with staged_file(path) as staging:
        staging.write_text(page, encoding="utf-8")


def _rendered(notebook: nbformat.NotebookNode, show_code: bool) -> str:
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        raw_template=_TEMPLATE,
        require_js_url="",
        mathjax_url="",
        jquery_url="",
        mermaid_js_url="",
        mermaid_layout_elk_js_url="",
        jupyter_widgets_base_url="",
        widget_renderer_url="",
        exclude_input=not show_code,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
        language_code="en",
        theme="light",
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"page_css": _CSS})
    return str(page)


def _prepare(notebook: nbformat.NotebookNode) -> int:
    """Drop what cannot work in a file, turn plotly's outputs into HTML; return how many these are."""
    notebook.metadata.pop("widgets", None)
    figures = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            data = output.get("data", {})
            if WIDGET in data:
                continue
            if PLOTLY in data:
                figures += 1
                output["data"] = {"text/html": _figure(data[PLOTLY], f"figure-{figures}")}
            elif output.output_type == "stream" and output.name == "stderr":
                output["text"] = _without_progress(output.text)
                if not output.text.strip():
                    continue
            kept.append(output)
        cell.outputs = kept
    return figures


def _figure(figure: dict[str, Any], name: str) -> str:
    """Return the place of a figure, and what it shows as JSON."""
    layout = figure.get("layout", {})
    height = (
        layout.get("height")
        or layout.get("template", {}).get("layout", {}).get("height")
        or _DEFAULT_HEIGHT_PX
    )
    drawn = {
        "data": figure.get("data", []),
        "layout": layout,
        "config": {"responsive": True, **figure.get("config", {}), **figures.PLOTLY_CONFIG},
        "frames": figure.get("frames"),
    }
    data = json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div id="{name}" class="mudkit-figure" style="height:{float(height):g}px"></div>'
        f'<script type="application/json" class="mudkit-figure-data" data-figure="{name}">{data}</script>'
        f'<noscript><p class="mudkit-needs-script">{_caption(layout)} It needs JavaScript.</p></noscript>'
    )


def _caption(layout: dict[str, Any]) -> str:
    """Tell what a figure is called, for readers who do not see it."""
    title = layout.get("title")
    text = title.get("text") if isinstance(title, dict) else title
    return f"Figure: {html.escape(re.sub(r'<[^>]*>', ' ', str(text)))}." if text else "A figure."


def _without_progress(text: str) -> str:
    lines = re.split(r"(?<=[\n\r])", re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r\n", "\n"))
    return "".join(line.replace("\r", "") for line in lines if line.strip() and not _PROGRESS.search(line))


def _without_network(page: str) -> str:
    """Replace what a browser would load from the network; pages within frames (``srcdoc``) stay."""
    if not re.search(rf"<(?:{'|'.join(_LOADING)})\b[^>]*//", page):
        return page
    soup = BeautifulSoup(page, features="html.parser")
    for tag in soup.find_all(_LOADING):
        loaded = _loaded_from(tag)
        if not loaded:
            continue
        if tag.name == "img":
            link = soup.new_tag("a", href=loaded)
            link.string = str(tag.get("alt", "")).strip() or loaded
            tag.replace_with(link)
        else:
            tag.decompose()
    return str(soup)


def _loaded_from(tag: Tag) -> str:
    names: Iterable[str] = ("href",) if tag.name == "link" else _SOURCES
    for name in names:
        value = str(tag.get(name, "")).strip()
        if re.match(r"(?:https?:)?//", value, re.IGNORECASE):
            return value.split()[0]
    return ""
