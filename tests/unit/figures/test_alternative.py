"""Alternative texts of all kinds of figures and maps."""

import json
import math
import re

import nbformat.v4 as v4
import plotly.graph_objects as go
import pytest
from figure_gallery import FIGURES, MAPS

from mudkit import figures
from mudkit.figures.alternative import MAX_LETTERS, _colours, alternative_text
from mudkit.report.html import export_html

MAIN_NUMBERS = {
    "answer_boxes": ["Which answer holds the box"],
    "bar_panels": ["every message 100", "every message 12,345", "aggregated by distance 61.2"],
    "cache_hits": ["49 points, answered locally, % from 44.6 to 78.3"],
    "cells_over_time": ["108 points, positions from"],
    "crossover": ["direct: 4 points, x 0 to 0.6, y 21 to 81", "equal at 0.38"],
    "decisions": ["with state, an alarm: 13 points, x 3.73 to 30", "patient 1 to patient 5"],
    "fates": ["news, in time: to everyone 60, MUD 90", "alerts, stale: to everyone 0, MUD 25"],
    "frontier": ["15 minutes: x 52.5, y 7.5"],
    "fleet": ["60 devices, 15 without a link, 2008-05-18 09:05 UTC"],
    "growth": ["one by one: 4 points, x 10 to 10,000, y 0.5 to 500"],
    "histogram": ["2 s 77"],
    "history": ["fork-sequential: OK", "write: 3. read: 4"],
    "joining_grid": ["995 m: 40 % left, 95 % within 498 m", "1 min to 5 min across"],
    "knowledge": ["near by , 10 min 68 cells", "km/h from"],
    "latencies": ["relay: 62 points", "y 0 to 85.7"],
    "limit_curve": ["waste now: x 16, y 0.3", "loss now: x 16, y 1"],
    "link_strip": ["down: 23", "down 61 % of the time in the median"],
    "location_exposure": ["stayed on the device: 172", "2008-05-18 10:30"],
    "message_diagram": ["34 messages", "arrived: 29. no link: 5"],
    "message_lifecycles": ["the rule, on the device, and read: 15"],
    "pareto": ["not beaten: ", "to everyone (9.1, 0.99)", "beaten: relay (4, 0.98)"],
    "policy_scatter": ["tree: x 52.5, y 7.5"],
    "radio_timeline": ["193 J in all", "tail: 165 J (85 %)"],
    "regime_map": ["few cars by day, dense: 3.4 and 1.0, 5.8 and 1.0"],
    "rows_over_time": ["72 bars from 272 to 338, the highest at 2008-05-18 18:00"],
    "rule_search": ["1 km: 49.3, 46, 41", "5 min to 30 min across"],
    "sensitivity": ["as assumed", "window 4 h", "age, 20.0 %"],
    "rule_firing": ["alarm: 2 (5 times), –✗ (5 times), 3 (11 times)"],
    "server_load": ["120 messages did not fit into a queue"],
    "learning_days": ["the cloud learns: 7 points", "limit of the learner", "distance and age"],
    "side_by_side": ["sent, %", "18 May"],
    "signals": ["12 a second: 50 points"],
    "tradeoff": ["waste: 5 points, x 1 to 256, y 0 to 60", "recommended: 16"],
    "tree": ["remote 1.5 % (185)", "at most 5 min old?"],
    "waste_and_loss": ["waste, %, recorded: 3 points, x 0 to 60"],
    "waste_and_loss_by_limit": ["waste, 50 %: 6 points, x 1 to 1,024, y 0.4 to 14.4"],
}
IN_FRAMES = {
    "area_map": "Map: Who has the record; 60 points, has it 20, waits 20, may not see it 20",
    "cell_map": "Map of cells: km/h; 108 cells, 2.52 to 59.6",
    "cell_slides": "Map over time: km/h;",
    "density_map": "Map: 4,000 positions",
    "heat_map": "Heat map: weight; 800 places, 1",
}
NO_FIGURES = {
    "Fleet", "LimitPoint", "MAX_SLIDE_CELLS", "PLOTLY_CONFIG", "ReceivedCells", "hits_by_cell", "holdings",
    "knowledge_map", "message_fates", "missing_map_files", "party_views", "radiator_pushes", "reads_near_busiest",
    "tile_bounds", "tiles", "tree_outline", "update_cache_hits", "update_knowledge", "update_limit_curve", "update_pareto",
    "update_rule_firing",
}  # fmt: skip
"""Public names that draw no kind of figure; the fleet's is ``Fleet.figure``."""


def test_all_kinds_of_figures_are_covered():
    kinds = {name.split(",")[0] for name in FIGURES} - {"fleet"}
    assert kinds | {*MAPS} | NO_FIGURES == {*figures.__all__}
    assert {*MAIN_NUMBERS} == kinds | {"fleet"}
    assert {*IN_FRAMES} == {*MAPS}


@pytest.mark.parametrize("name", FIGURES)
def test_alternative_text_has_title_and_main_numbers(name, gallery):
    figure = gallery(name)
    text = figure.layout.meta["alt"]
    title = re.sub("<[^>]*>", " ", figure.layout.title.text)
    assert text.startswith(title)
    assert len(text) <= MAX_LETTERS
    assert "<" not in text
    assert [part for part in MAIN_NUMBERS.get(name, []) if part not in text] == []
    assert re.search(r"\d", text)


@pytest.mark.parametrize("name", MAPS)
def test_map_frame_title_has_main_numbers(name):
    (title,) = re.findall(r'<iframe title="([^"]*)"', MAPS[name]()._repr_html_())
    assert title.startswith(IN_FRAMES[name])


def test_alternative_text_follows_updates():
    points = [(1, 0.0, 0.8), (16, 0.003, 0.01)]
    figure = figures.limit_curve(points, (16, 0.003, 0.01), title="a")
    figures.update_limit_curve(figure, points, (1, 0.5, 0.25), title="b")
    assert "waste now: x 1, y 50" in figure.layout.meta["alt"]
    assert figure.layout.meta["alt"].startswith("b")


def test_text_of_empty_mixed_and_hostile_figures():
    assert alternative_text(go.Figure()) == ""
    assert alternative_text(go.Figure(go.Scatter(x=[], y=[]))) == ""
    assert alternative_text(go.Figure(go.Scatter(x=["a", 1], y=[1, 2]))) == "2 points, y 1 to 2"
    hostile = go.Figure(layout={"title": "<b>a & b</b>" * 300})
    assert len(alternative_text(hostile)) <= MAX_LETTERS


@pytest.mark.parametrize("missing", [None, math.nan])
def test_missing_values_are_excluded_from_ranges(missing):
    labels, no_values = list("abcdefgh"), [missing] * 8
    assert alternative_text(go.Figure(go.Bar(x=labels, y=no_values))) == "8 bars without a value"
    some = go.Figure(go.Bar(x=labels, y=[missing, 3, 1, missing, 2, missing, missing, missing]))
    assert alternative_text(some) == "8 bars from 1 to 3, the highest at b"
    dots = go.Figure(go.Scatter(x=[1, 2], y=[1, 2], marker={"color": [math.nan, math.nan]}))
    assert alternative_text(dots) == "2 points, x 1 to 2, y 1 to 2"


def test_exported_page_has_alternative_text(tmp_path):
    figure = FIGURES["bar_panels"]()
    output = v4.new_output(
        "display_data", data={"application/vnd.plotly.v1+json": json.loads(figure.to_json())}
    )
    export_html(
        v4.new_notebook(cells=[v4.new_code_cell("1", outputs=[output])]), tmp_path / "page.html", title="A"
    )
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    (tag,) = re.findall('<div [^>]*class="mudkit-figure"[^>]*>', page)
    assert 'role="figure"' in tag
    assert 'aria-label="Three ways. Axes: useful, %' in tag
    assert "Figure: Three ways. Axes" in page


def test_range_of_colours_is_from_the_lowest_to_the_highest():
    figure = go.Figure(
        go.Scatter(
            x=[1, 2, 3],
            y=[1, 2, 3],
            marker={"color": [7.0, 3.0, 5.0], "colorbar": {"title": {"text": "age"}}},
        )
    )
    assert "age from 3 to 7" in _colours(figure.data[0], figure.layout)
