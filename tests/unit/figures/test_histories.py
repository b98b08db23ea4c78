"""Histories and their verdicts."""

from itertools import pairwise

import pytest

from mudkit import figures
from mudkit.consistency import Content, History, Kind, Operation, check
from mudkit.figures.histories import MAX_AROUND, MAX_OPERATIONS, branches
from mudkit.figures.style import ORANGE

FORKED = "ann: w1   w1>2  r2   r2\nbob:      w1>3  r3\ncy:       r1"


WRONG = "ann: [w1@1  ] w2@2\nann:    r1@1\nbob:            r2@2 r1@1   r2@2"


def draw(text, model, **options):
    return figures.history(check(History.parse(text), model), **options)


def index_traces(figure):
    return {trace.name: trace for trace in figure.data}


def get_boxes(trace):
    """Return the corners of the bars of a trace: (left, right, top)."""
    result, part = [], []
    for x, y in zip(trace.x, trace.y, strict=True):
        if x is None:
            result.append((min(p[0] for p in part), max(p[0] for p in part), min(p[1] for p in part)))
            part = []
        else:
            part.append((x, y))
    return result


def test_bars_span_invocation_to_response():
    figure = draw("ann: [w1     ]   r1\nbob:     r1", "sequential")
    assert get_boxes(index_traces(figure)["write"]) == [(0, 8, -0.14)]
    assert get_boxes(index_traces(figure)["read"]) == [(4, 5, 0.86), (12, 13, -0.14)]
    assert figure.layout.yaxis.ticktext == ("<b>ann</b>", "<b>bob</b>")
    assert "ms" in figure.layout.xaxis.title.text


def test_all_lines_are_within_the_axis():
    """Also the second line of a client and those of the last one: a bar reaches half a line up and down."""
    figure = draw(WRONG + "\ncy: r1", "sequential")
    lowest, highest = figure.layout.yaxis.range
    tops = [top for *_, top in get_boxes(index_traces(figure)["read"])]
    assert highest <= min(tops)
    assert max(tops) + 0.5 <= lowest


def test_legend_is_a_row_at_the_lower_edge():
    """At its usual place it would stand on the title, which has several lines."""
    legend = draw(WRONG, "sequential").layout.legend
    assert (legend.orientation, legend.yref, legend.yanchor) == ("h", "container", "bottom")
    assert 0 <= legend.y < 0.05


def test_concurrent_operations_do_not_overlap():
    figure = draw(WRONG, "sequential")
    assert figure.layout.yaxis.tickvals == (0, 2)
    assert [round(top, 2) for *_, top in get_boxes(index_traces(figure)["read"])] == [0.86, 1.86]


def test_bar_of_an_unanswered_operation_is_open():
    figure = draw("ann: w1…\nbob:      r1", "sequential")
    [(left, right, _)] = get_boxes(index_traces(figure)["write"])
    assert (left, right > 6) == (0, True)
    assert len(index_traces(figure)["write"].x) == 5  # no line closes it
    assert "never answered" in index_traces(figure)["write"].text[0]


def test_arrows_lead_from_writes_to_reads_that_saw_them():
    arrows = index_traces(draw("ann: w1\nbob:      r1  r0", "monotonic-reads"))["was seen by"]
    assert list(arrows.x) == [0, 5, None]
    assert list(arrows.y) == [0, 1, None]


def test_arrow_does_not_lead_back_in_time():
    figure = draw("ann: [w0>1!@1     ]\nbob:      w0>2@1", "sequential")
    assert list(index_traces(figure)["was seen by"].x) == [5, 13, None]  # to the answer of the refused write


def test_contradiction_differs_by_more_than_colour():
    figure = draw(WRONG, "sequential")
    contradiction = index_traces(figure)["in the contradiction ✗"]
    assert (contradiction.line.color, contradiction.line.dash) == (ORANGE, "dash")
    assert len(get_boxes(contradiction)) == 4
    marked = [note.text for note in figure.layout.annotations if note.text.startswith("✗ ")]
    assert marked == ["✗ w1@1", "✗ w2@2", "✗ r2@2", "✗ r1@1"]
    assert "ILLEGAL" in figure.layout.title.text
    assert "overwritten" in figure.layout.title.subtitle.text


def test_forked_views_are_drawn_as_branches():
    verdict = check(History.parse(FORKED), "fork-sequential")
    lines = branches(verdict.views["x"])
    assert [
        (clients, parent, begin, [operation.label for operation in operations])
        for clients, parent, begin, operations in lines
    ] == [
        (["ann", "cy (to 1)"], 0, 0, ["w(x)1", "r(x)1", "w(x)1>2", "r(x)2", "r(x)2"]),
        (["bob"], 0, 2, ["w(x)1>3", "r(x)3"]),
    ]
    branch = index_traces(figures.history(verdict))["view of bob"]
    assert list(branch.x) == [1, 2, 3]
    assert list(branch.y) == [0, 1, 1]


def test_views_without_a_common_prefix_are_separate_lines():
    figure = draw("ann: w0>1   r1\nbob: w0>2   r2", "fork-sequential", title="apart")
    assert list(index_traces(figure)["view of bob"].x) == [0, 1]
    assert figure.layout.title.text == "apart"


@pytest.mark.parametrize("text", ["", "<b>: w1", "ann: w(a)1 w(b)2"])
def test_unusual_histories_are_drawn(text):
    figure = draw(text, "sequential")
    assert "<b><b>" not in str(figure.layout.yaxis.ticktext)


def test_long_histories_show_operations_around_the_contradiction(gallery):
    figure = gallery("history, long")
    bars = [box for trace in figure.data if trace.name != "was seen by" for box in get_boxes(trace)]
    assert len(bars) == MAX_AROUND
    assert {"✗ w1@1", "✗ w2@2", "✗ r1@1"} <= set(get_labels(figure))
    assert "idle stretches are shortened" in figure.layout.xaxis.title.text
    widths = [right - left for left, right, _ in bars]
    assert min(widths) > 0.01, "no bar is a hairline"
    assert figure.layout.height < 500, "one screen"
    arrows = index_traces(figure)["was seen by"]
    assert len(arrows.x) == 3, "of those in the contradiction alone"


def test_long_histories_without_contradiction_show_first_operations():
    figure = draw("ann: w1 " + "r1 " * 200, "sequential")
    assert (
        sum(len(get_boxes(trace)) for trace in figure.data if trace.name in ("write", "read"))
        == MAX_OPERATIONS
    )


def get_labels(figure):
    return [note.text for note in figure.layout.annotations]


def test_labels_do_not_overlap_and_writes_are_labelled_first():
    text = "ann: r0 w1 " + " ".join(["r1"] * 70)
    figure = draw(text, "sequential")
    assert get_labels(figure)[0] == "w1"
    places = sorted(note.x for note in figure.layout.annotations)
    assert 1 < len(places) < 72
    assert min(b - a for a, b in pairwise(places)) > 3
    assert len(get_boxes(index_traces(figure)["read"])) == 71, "the bars are all there"


def test_contradiction_is_labelled_among_many_operations():
    figure = draw("ann: w1@1 w2@2 " + " ".join(["r2@2"] * 30) + " r1@1", "sequential")
    assert {"✗ r1@1"} <= set(get_labels(figure))


@pytest.mark.parametrize(("ms", "unit", "end"), [(100, "ms", 100), (40_000, "s", 40), (600_000, "min", 10)])
def test_time_axis_has_a_readable_unit(ms, unit, end):
    operations = [
        Operation("ann", 1, "x", Kind.WRITE, 0, 0, Content("1")),
        Operation("ann", 2, "x", Kind.READ, ms * 1000, ms * 1000, Content("1")),
    ]
    figure = figures.history(check(History(operations), "sequential"))
    assert f", {unit} after" in figure.layout.xaxis.title.text
    assert max(left for left, *_ in get_boxes(index_traces(figure)["read"])) == end


def test_long_views_show_labels_on_hover():
    figure = draw("ann: w1 " + " ".join(["r1"] * 30), "sequential")
    marks = index_traces(figure)["reads in views"]
    assert marks.mode == "markers"
    assert marks.text[0] == "ann<br>r1"
