"""Labels of figures: no overlaps, at the minimum width and on a wide screen."""

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.figures.labels import _SPACE_PX, MIN_WIDTH_PX, WIDTHS_PX, Sheet, _Plot, point_labels, text_px
from mudkit.figures.style import INK

LABELLED = [
    "frontier", "history", "history, illegal", "history, long", "link_strip", "message_diagram", "pareto",
    "policy_scatter", "tree",
]  # fmt: skip
_LETTER, _LINE = 0.5, 1.0
"""Width of a letter and height of a line, by the size of the font: of an average font, not of a wide one."""


def scale_axis(figure, name, length_px):
    """Return a function from a value on an axis to pixels from the left or lower edge of the plot."""
    axis = figure.layout[name]
    low, high = axis.range
    begin, end = axis.domain or (0, 1)
    return lambda value: length_px * (begin + (end - begin) * (float(value) - low) / (high - low))


def get_label_boxes(figure, width_px):
    """Return text and box (left, top, right, bottom; px) of each annotation and text on the plot."""
    margin = figure.layout.margin
    wide, high = width_px - margin.l - margin.r, figure.layout.height - margin.t - margin.b
    boxes = []

    def put(text, x, y, left_share, top_share, size):
        lines = [re.sub("<[^>]*>", "", line) for line in text.split("<br>")]
        box_w, box_h = _LETTER * size * max(map(len, lines)), _LINE * size * len(lines)
        left, top = x - left_share * box_w, y - top_share * box_h
        boxes.append((text, (left, top, left + box_w, top + box_h)))

    for note in figure.layout.annotations:
        if note.xref == "paper":
            continue
        x = scale_axis(figure, (note.xref or "x").replace("x", "xaxis"), wide)(note.x)
        y = high - scale_axis(figure, (note.yref or "y").replace("y", "yaxis"), high)(note.y)
        if note.showarrow:
            x, y = x + note.ax, y + note.ay
        x, y = x + (note.xshift or 0), y - (note.yshift or 0)
        shares = {"left": 0.0, "center": 0.5, "right": 1.0, None: 0.5}
        downs = {"top": 0.0, "middle": 0.5, "bottom": 1.0, None: 0.5}
        put(note.text, x, y, shares[note.xanchor], downs[note.yanchor], note.font.size)
    for trace in figure.data:
        if trace.type != "scatter" or "text" not in (trace.mode or "") or not trace.x:
            continue
        down, side = (trace.textposition or "middle center").split()
        x_px = scale_axis(figure, (trace.xaxis or "x").replace("x", "xaxis"), wide)
        y_px = scale_axis(figure, (trace.yaxis or "y").replace("y", "yaxis"), high)
        for text, x, y in zip(trace.text, trace.x, trace.y, strict=True):
            if isinstance(x, str):  # a time by the clock, at the right edge of a strip
                x = figure.layout.xaxis.range[1]
                place = wide
            else:
                place = x_px(x)
            left = {"left": 1.0, "center": 0.5, "right": 0.0}[side]
            put(text, place, high - y_px(y), left, {"top": 1.0, "middle": 0.5, "bottom": 0.0}[down], 12)
    return boxes


def find_overlaps(boxes):
    return [
        (text, other)
        for (text, a), (other, b) in combinations(boxes, 2)
        if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1
    ]


@pytest.mark.parametrize("width_px", [MIN_WIDTH_PX, 1200])
@pytest.mark.parametrize("name", LABELLED)
def test_labels_do_not_overlap(name, width_px, gallery):
    boxes = get_label_boxes(gallery(name), width_px)
    assert len(boxes) > 1
    assert find_overlaps(boxes) == []


def get_placed_boxes(labels, shares, wide, high):
    """Return text and box of the labels of points on a plot of a given width and height."""
    boxes = []
    for label, (x, y) in zip(labels, shares, strict=True):
        long, tall = text_px(label["text"])
        left = wide * x + label["ax"] - {"left": 0, "center": 0.5, "right": 1}[label["xanchor"]] * long
        top = high * (1 - y) + label["ay"] - {"top": 0, "middle": 0.5, "bottom": 1}[label["yanchor"]] * tall
        boxes.append((label["text"], (left, top, left + long, top + tall)))
    return boxes


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=9, unique=True))
def test_point_labels_do_not_overlap_or_cross_an_edge(shares):
    texts = [f"policy {number}" for number in range(len(shares))]
    labels = point_labels(
        shares, shares, texts, ["red"] * len(shares), sides_px=MIN_WIDTH_PX - 600, height_px=270.0
    )
    boxes = get_placed_boxes(labels, shares, 600, 270)
    assert find_overlaps(boxes) == []
    for text, (left, top, right, bottom) in boxes:  # up to the margins above and on the right
        assert left >= 0, text
        assert top >= -12, text
        assert right <= 612, text
        assert bottom <= 270, text


@pytest.mark.parametrize(
    ("shares", "height_px", "widths_px"),
    [
        ([(0.88, 0.11), (0.9, 0.07), (0.86, 0.08), (0.93, 0.1)], 270, WIDTHS_PX),
        ([(0.68, 0.7), (0.9, 0.5)], 40, [MIN_WIDTH_PX]),  # no place has room at all widths
    ],
)
def test_point_labels_have_room_at_all_widths_or_else_at_the_least(shares, height_px, widths_px):
    texts = [f"policies {number}" for number in range(len(shares))]
    labels = point_labels(shares, shares, texts, ["red"] * len(shares), sides_px=50, height_px=height_px)
    for wide in (width_px - 50 for width_px in widths_px):
        boxes = get_placed_boxes(labels, shares, wide, height_px)
        assert find_overlaps(boxes) == []
        for x, y in shares:  # markers of 8 px
            left, top = wide * x - 4, height_px * (1 - y) - 4
            marker = "marker", (left, top, left + 8, top + 8)
            assert [name for name, box in boxes if find_overlaps([marker, (name, box)])] == []


def test_labels_at_the_right_edge_stay_within_the_figure():
    """Label nearby points at the right edge, with lines that leave no room beside them."""
    shares = [(1.0, 0.0), (0.99, 0.02), (1.0, 0.0), (0.93, 0.07)]
    lines = [[(x, y) for x in (0.0, 1.0)] for y in np.linspace(0, 1, 40)]
    labels = point_labels(
        shares,
        shares,
        ["rule in use: 1 km, 10 min"] * 4,
        ["red"] * 4,
        sides_px=MIN_WIDTH_PX - 600,
        height_px=270.0,
        lines=lines,
    )
    for label, (x, _) in zip(labels, shares, strict=True):
        part = {"left": 1.0, "center": 0.5, "right": 0.0}[label["xanchor"]]
        assert 600 * x + label["ax"] + part * text_px(label["text"])[0] <= 612
    assert len({(label["x"], label["ax"], label["ay"]) for label in labels}) == 4


def test_labels_avoid_lines_at_any_width():
    """Label points with room on the left at the minimum width, but a line there at larger widths."""
    lines = [[(0.38, 0.91), (0.78, 0.0)], [(0.4, 1.0), (0.59, 0.61), (0.89, 0.13), (1.0, 0.0)]]
    shares = [(1.0, 0.0), (0.8, 0.3), (0.675, 0.455)]
    texts = ["always ask", "best rule: 2 km, 10 min", "learnt policy"]
    labels = point_labels(shares, shares, texts, ["red"] * 3, sides_px=90, height_px=300, lines=lines)
    for wide in (width - 90 for width in WIDTHS_PX):
        for text, (left, top, right, bottom) in get_placed_boxes(labels, shares, wide, 300):
            for line in lines:
                across = np.linspace(left, right, 50)
                down = 300 * (1 - np.interp(across / wide, *zip(*line, strict=True), left=9, right=9))
                assert not ((top < down) & (down < bottom)).any(), (text, wide)


def test_sheet_assigns_no_place_twice():
    sheet = Sheet(0, 0, 100, 100)
    box = (10.0, 10.0, 30.0, 20.0)
    assert sheet.put([box]) == 0
    assert sheet.put([box]) is None
    assert sheet.put([box, (40.0, 10.0, 60.0, 20.0), (40.0, 40.0, 60.0, 50.0)], lambda box: box[1] == 10) == 2
    assert sheet.put([(90.0, 0.0, 110.0, 10.0)]) is None, "it would end beyond the edge"
    sheet.block((0.0, 60.0, 100.0, 100.0))
    assert sheet.put([(np.float64(0), 70.0, 10.0, 80.0)]) is None


def test_label_that_stands_farther_off_has_a_line_to_its_point():
    labels = point_labels(
        [(0, 0)] * 14, [(0.5, 0.5)] * 14, ["name"] * 14, ["red"] * 14, sides_px=100.0, height_px=400.0
    )
    nearest_px = np.hypot(labels[0]["ax"], labels[0]["ay"])
    has_line = [label["arrowcolor"] == INK for label in labels]
    is_far = [bool(np.hypot(label["ax"], label["ay"]) > 1.5 * nearest_px) for label in labels]
    assert not has_line[0]
    assert has_line == is_far
    assert any(is_far)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(("gap_px", "has_room"), [(_SPACE_PX - 0.5, False), (_SPACE_PX + 0.5, True)])
def test_labels_beside_each_other_keep_a_space(side, gap_px, has_room):
    plot = _Plot((600.0, 400.0), [(0.5, 0.5), (0.9, 0.1)], [])
    plot.take(0, (-20.0, 50.0, 20.0, 60.0))
    left = 20.0 + gap_px if side > 0 else -60.0 - gap_px
    lacks_room, *_ = plot.faults(0, (left, 50.0, left + 40.0, 60.0))
    assert lacks_room != has_room
