"""An executed notebook as one HTML file that opens without a network."""

from __future__ import annotations

import copy
import functools
import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import nbformat
from bs4 import BeautifulSoup, Tag
from nbconvert import HTMLExporter
from plotly.offline import get_plotlyjs

from mudkit import figures
from mudkit.files import staged_file
from mudkit.report.page import DETAILS

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"

_DEFAULT_HEIGHT_PX = 450
_LOADING = ["img", "script", "link", "iframe", "video", "audio", "source", "object", "embed", "track"]
_SOURCES = ("src", "srcset", "poster", "data")

_CONTROLS = (
    '<p class="mudkit-note">Picture of a widget: to use its controls, run the notebook in JupyterLab.</p>'
)

_TEMPLATE = """
{%- extends 'basic/index.html.j2' -%}
{%- block header -%}
<!doctype html>
<html lang="{{ resources.language_code }}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ nb.metadata.title | e }}</title>
<style>{{ resources.page_css }}</style>
</head>
<body>
<main>
{%- endblock header -%}
{%- block rawcell scoped -%}
{%- if cell.metadata.mudkit_fold -%}{{ cell.source }}{%- else -%}{{ super() }}{%- endif -%}
{%- endblock rawcell -%}
{%- block footer %}
</main>
</body>
</html>
{%- endblock footer -%}
"""

# Both themes by variables. Figures take the colour of their text from the page (FIGURE_SCRIPT).
_CSS = """
:root { color-scheme: light dark; --ground: #fff; --card: #f6f7f9; --ink: #1d2430; --soft: #5b6472;
  --line: #d9dee5; --accent: #0b6bcb; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181f; --card: #1d232d; --ink: #e8ecf2; --soft: #a3adbb; --line: #343c49;
    --accent: #6db3f8; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 0.4rem; font-weight: 650; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 0.5rem; font-weight: 600; text-wrap: balance; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; font-weight: 600; }
.text_cell p, .text_cell ul, .text_cell ol, .output_markdown p { max-width: 46rem; }
a { color: var(--accent); }
.output_area { overflow-x: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.output_area pre, .input_area pre { background: var(--card); padding: 0.6rem 0.9rem; border-radius: 8px;
  font: 0.85rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
table { border-collapse: collapse; min-width: 14rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.7rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; font-size: 0.9rem; text-align: right; vertical-align: bottom; }
td { text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th span { opacity: 1 !important; }
tbody th { font-weight: inherit; font-size: inherit; color: inherit; }
.filtered th, .filtered td { padding: 3px 8px; }
.text_cell th, .text_cell td { text-align: left; }
img, svg { max-width: 100%; }
.mudkit-figure { width: 100%; }
.mudkit-needs-script, .mudkit-note { color: var(--soft); }
.read { color: var(--soft); max-width: none; margin: 0 0 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(3, 1fr); gap: 0.9rem; margin: 0 0 1.1rem; }
.tile, .warn { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 0.85rem 1.1rem; }
.tile b { display: block; font-size: 1.8rem; line-height: 1.2; font-weight: 650;
  font-variant-numeric: tabular-nums; }
.tile span, .say .soft { color: var(--soft); font-size: 0.92rem; }
.say { border-left: 4px solid var(--accent); background: var(--card); border-radius: 0 10px 10px 0;
  padding: 0.85rem 1.1rem; margin: 0 0 1.1rem; }
.say p, .warn p { margin: 0; }
.say p + p { margin-top: 0.4rem; }
.reports { list-style: none; margin: 1.6rem 0 0; padding: 0; }
.reports h2 { margin: 0 0 0.3rem; }
.warn { font-size: 0.92rem; margin: 0 0 1.1rem; }
.warn ul { margin: 0.2rem 0 0; padding-left: 1.2rem; }
@media (max-width: 40rem) { .tiles { grid-template-columns: 1fr; } }
details { border-top: 1px solid var(--line); padding: 0.6rem 0; }
summary { cursor: pointer; font-weight: 600; }
.MathJax_Preview, .anchor-link { display: none; }
@page { size: A4; margin: 15mm; }
@media print {
  :root { color-scheme: light; --ground: #fff; --card: #f6f7f9; --ink: #1d2430; --soft: #5b6472;
    --line: #d9dee5; }
  /* A page as wide as the screen's, so that figures, which were drawn for the screen, and tables fit. */
  body { zoom: 0.74; }
  main { max-width: none; padding: 0; }
  .output_area { overflow-x: visible; }
  table, iframe, .mudkit-figure, .output_area:has(.mudkit-figure, iframe, h2), .say, .tile, .warn {
    break-inside: avoid;
  }
  table:has(tbody tr:nth-child(13)) { break-inside: auto; }
  tr { break-inside: avoid; }
  table + p { break-before: avoid; }
  h2, h3, summary, .output_area:has(h2), .cell:has(h2):not(:has(table, .mudkit-figure)) {
    break-after: avoid;
  }
  .modebar { display: none !important; }
  /* Text of figures that were drawn in the dark theme: its --ink. */
  .mudkit-figure text[style*="rgb(232, 236, 242)"] { fill: var(--ink) !important; }
  details::details-content { content-visibility: visible; display: block; }
}
"""

FIGURE_SCRIPT = """
(function () {
  var drawn = [];
  function ink() { return getComputedStyle(document.documentElement).getPropertyValue("--ink").trim(); }
  document.querySelectorAll("script.mudkit-figure-data").forEach(function (holder) {
    var figure = JSON.parse(holder.textContent), place = document.getElementById(holder.dataset.figure);
    if (!figure.layout.font || !figure.layout.font.color)
      figure.layout.font = Object.assign({}, figure.layout.font, {color: ink()});
    Plotly.newPlot(place, figure.data, figure.layout, figure.config).then(function () {
      drawn.push(place);
      if (figure.frames) Plotly.addFrames(place, figure.frames);
    });
  });
  function redraw() { drawn.forEach(function (place) { Plotly.relayout(place, {"font.color": ink()}); }); }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, {attributeFilter: ["data-theme"]});
})();
"""
"""Draws the figures of a page; loaded after them and after plotly.js."""

# What tqdm, Spark and pip write over and over: a share, a bar, a rate.
_PROGRESS = re.compile(r"\d+%\|.*\||\b\d+(\.\d+)?[kMG]?(it|rows|B) \[\d+:\d|\[Stage \d+:.*\]|[━█▏▎▍▌▋▊▉]{3}")


def export_html(
    notebook: nbformat.NotebookNode, path: str | os.PathLike[str], *, title: str, show_code: bool = False
) -> None:
    """Write an executed notebook as one HTML file that opens without a network.

    Plotly figures work as in JupyterLab, with one copy of plotly.js; folium maps keep their page.
    A widget of mudkit is the picture of its first state; other widgets and progress bars are left out.
    Mathematics stays LaTeX text, pictures from the network become links; scripts, styles and frames
    from there are removed.
    """
    shown = copy.deepcopy(notebook)
    has_figures = replace_outputs(shown)
    shown.cells = _folded(shown.cells)
    shown.metadata["title"] = title
    page = _without_network(_rendered(shown, show_code))
    if has_figures:
        program = plotly_script().replace("</script", r"<\/script")
        head, end, tail = page.rpartition("</body>")
        scripts = "\n".join(f"<script>{text}</script>" for text in (program, FIGURE_SCRIPT))
        page = f"{head}{scripts}\n{end}{tail}"
    with staged_file(path) as staging:
        staging.write_text(page, encoding="utf-8")


def plotly_script() -> str:
    """Return plotly.js with the configuration that it reads when it is loaded."""
    return f'window.PlotlyConfig = {{MathJaxConfig: "local"}};\n{get_plotlyjs()}'


def _rendered(notebook: nbformat.NotebookNode, show_code: bool) -> str:
    """Return the HTML of a notebook whose outputs are replaced already."""
    resources = {"page_css": _CSS, "language_code": "en"}
    page, _ = _exporter(show_code=show_code).from_notebook_node(notebook, resources=resources)
    return str(page)


@functools.cache
def _exporter(*, show_code: bool) -> HTMLExporter:
    """Return the exporter of all pages, which compiles its templates once."""
    return HTMLExporter(  # type: ignore[no-untyped-call]
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
    )


def replace_outputs(notebook: nbformat.NotebookNode) -> bool:
    """Turn figures and panels into HTML, drop what else needs a kernel; return whether there are figures."""
    saved = notebook.metadata.pop("widgets", {})
    models = saved.get(WIDGET_STATE, {}).get("state", {})
    numbers = count(1)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            data = output.get("data", {})
            if WIDGET in data:
                picture = _picture(models, data[WIDGET]["model_id"], numbers)
                if not picture:
                    continue
                output["data"] = {"text/html": picture}
            elif PLOTLY in data:
                output["data"] = {"text/html": _figure(data[PLOTLY], next(numbers))}
            elif output.output_type == "stream" and output.name == "stderr":
                output["text"] = _without_progress(output.text)
                if not output.text.strip():
                    continue
            kept.append(output)
        cell.outputs = kept
    return next(numbers) > 1


def _picture(models: dict[str, Any], identity: str, numbers: Iterator[int]) -> str:
    """Return results and figures of a :class:`mudkit.widgets.panel.Panel`, or nothing for other widgets."""
    if "mudkit-panel" not in models.get(identity, {}).get("state", {}).get("_dom_classes", ()):
        return ""
    parts = [*_parts(models, identity, numbers)]
    return "".join([*parts, _CONTROLS]) if parts else ""


def _parts(models: dict[str, Any], identity: str, numbers: Iterator[int]) -> Iterator[str]:
    """Yield a figure or text for each widget inside a panel, in order, but for its guide."""
    model = models.get(identity, {})
    state = model.get("state", {})
    if "_widget_data" in state:
        yield _figure(_restored(model), next(numbers))
    is_guide = "mudkit-guide" in state.get("_dom_classes", ())
    if state.get("_model_name") == "HTMLModel" and state.get("value") and not is_guide:
        yield f"<div>{state['value']}</div>"
    for child in state.get("children", ()):
        yield from _parts(models, child.removeprefix("IPY_MODEL_"), numbers)


def _restored(model: dict[str, Any]) -> dict[str, Any]:
    """Return a figure from the saved state of its widget, which keeps long arrays as buffers beside it."""
    state = copy.deepcopy(model["state"])
    for buffer in model.get("buffers", ()):
        array = state
        for key in buffer["path"][:-1]:
            array = array[key]
        array["bdata"] = buffer["data"]
        array["shape"] = ", ".join(map(str, array["shape"]))
    return {"data": state["_widget_data"], "layout": state["_widget_layout"]}


def _folded(cells: Iterable[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Put cells with the tag ``details`` into elements that open at a click, one for each heading."""
    result: list[nbformat.NotebookNode] = []
    is_open = False
    for cell in cells:
        is_details = DETAILS in cell.metadata.get("tags", ())
        heading, _, text = cell.source.partition("\n")
        is_heading = cell.cell_type == "markdown" and heading.startswith("#")
        if is_open and (is_heading or not is_details):
            result.append(_raw("</details>"))
            is_open = False
        if is_details and not is_open:
            summary = html.escape(heading.lstrip("# ") if is_heading else "Details")
            result.append(_raw(f"<details><summary>{summary}</summary>"))
            is_open = True
            if is_heading:
                cell.source = text
        result.append(cell)
    return [*result, _raw("</details>")] if is_open else result


def _raw(text: str) -> nbformat.NotebookNode:
    """Return a raw cell, which goes into the page as it stands."""
    cell: nbformat.NotebookNode = nbformat.v4.new_raw_cell(text, metadata={"mudkit_fold": True})
    return cell


def _figure(figure: dict[str, Any], number: int) -> str:
    """Return the place of a figure, and what it shows as JSON."""
    name = f"figure-{number}"
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
    described = html.escape(_caption(layout), quote=True)
    return (
        f'<div id="{name}" class="mudkit-figure" role="figure" aria-label="{described}" '
        f'style="height:{float(height):g}px"></div>'
        f'<script type="application/json" class="mudkit-figure-data" data-figure="{name}">{data}</script>'
        f'<noscript><p class="mudkit-needs-script">Figure: {described} It needs JavaScript.</p></noscript>'
    )


def _caption(layout: dict[str, Any]) -> str:
    """Return the alternative text of a figure, or its title, or that it is one."""
    title = layout.get("title")
    text = title.get("text") if isinstance(title, dict) else title
    meta = layout.get("meta")
    alternative = meta.get("alt") if isinstance(meta, dict) else None
    return (
        str(alternative or re.sub(r"<[^>]*>", " ", str(text or "a figure without a title"))).rstrip(".") + "."
    )


def _without_progress(text: str) -> str:
    """Return text without progress bars and terminal codes."""
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
    """Return the address on the network that a tag loads; empty: none."""
    names: Iterable[str] = ("href",) if tag.name == "link" else _SOURCES
    for name in names:
        value = str(tag.get(name, "")).strip()
        if re.match(r"(?:https?:)?//", value, re.IGNORECASE):
            return value.split()[0]
    return ""
