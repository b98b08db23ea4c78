"""Views explorer: text, models, records, steps, and invalid input."""

from __future__ import annotations

import random
import time

import pytest
from html_tables import table_rows

from mudkit.consistency import MODELS, History, check
from mudkit.widgets import ViewsExplorer
from mudkit.worlds import Journal

FORKED = "ann: w1   w1>2…  r2\nbob: r1   w1>3…  r3"
BACK = "ann: w1@1  w2@2\nbob:             r2@2 r1@1"


def list_traces(widget):
    return [trace.name for trace in widget.figure.data]


def list_models(widget):
    return [row[0] for row in table_rows(widget.table.value)[1:]]


def test_verdict_views_and_models_are_shown():
    widget = ViewsExplorer(FORKED)
    assert "✓ OK" in widget.verdict.value
    assert "view of ann" in list_traces(widget)
    assert "ann w1, bob r1, ann w1&gt;2…, ann r2" in widget.views.value
    assert len(list_models(widget)) == len(MODELS)
    assert "<b>fork-sequential</b>" in widget.table.value
    assert "✗ ILLEGAL" in widget.table.value
    assert widget.problem.value == ""
    assert not widget.step.disabled


def test_text_change_updates_everything():
    widget = ViewsExplorer("ann: w1\nbob:    r1")
    before = widget.figure.layout.title.text
    widget.text.value = BACK
    assert "✗ ILLEGAL" in widget.verdict.value
    assert "bob r(x)1@1" in widget.verdict.value
    assert widget.figure.layout.title.text == "fork-sequential: ILLEGAL" != before
    assert "in the contradiction ✗" in list_traces(widget)
    assert not any("view" in name for name in list_traces(widget))
    assert widget.figure.layout.yaxis2.visible is False  # no empty axes where views were
    assert widget.views.value == ""
    assert widget.step.disabled
    widget.text.value = "ann: w1\nbob:    r1"
    assert widget.figure.layout.title.text == before
    assert widget.figure.layout.yaxis2.visible is None


@pytest.mark.parametrize(
    ("wrong", "where"),
    [("ann: w1 x7", "line 1, column 9"), ("ann w1", "line 1"), ("ann: w1@0", "ann w(x)1@0")],
)
def test_invalid_history_is_reported_and_keeps_the_figure(wrong, where):
    widget = ViewsExplorer(FORKED)
    kept = (widget.verdict.value, widget.views.value, list_traces(widget))
    widget.text.value = wrong
    assert where in widget.problem.value
    assert "last valid one" in widget.problem.value
    assert (widget.verdict.value, widget.views.value, list_traces(widget)) == kept
    widget.text.value = BACK
    assert widget.problem.value == ""


def test_explorer_may_start_with_an_invalid_history():
    widget = ViewsExplorer("ann: <b>")
    assert "&lt;b&gt;" in widget.problem.value
    widget.text.value = FORKED
    assert "✓ OK" in widget.verdict.value


@pytest.mark.parametrize(
    ("arguments", "excerpt"),
    [((), "proves nothing"), (("ann: w1\nbob:    c1", "linearizable"), "nothing was checked")],
)
def test_unknown_verdict_is_explained(arguments, excerpt):
    widget = ViewsExplorer(*arguments)
    assert "? UNKNOWN" in widget.verdict.value
    assert excerpt in widget.verdict.value


def read_statuses(widget):
    return {name: result for name, result, _ in table_rows(widget.table.value)[1:]}


@pytest.mark.soak
def test_table_matches_the_checker():
    widget = ViewsExplorer(FORKED)
    for text in (FORKED, BACK, "ann: w1\nbob:    r1"):
        widget.text.value = text
        for model in ("fork-sequential", "linearizable"):
            widget.model.value = model
            for name, result in read_statuses(widget).items():
                assert result.split()[1] == check(History.parse(text), name).status, (text, name)
    widget.text.value = "ann: w(k)1 w(l)2 r(k)1 r(l)0"
    for key, status in (("k", "OK"), ("l", "ILLEGAL"), ("k", "OK")):
        widget.record.value = key
        assert read_statuses(widget)["sequential"].endswith(status)


def test_table_matches_the_checker_for_selected_reads():
    text = "ann: w1\nbob:    u0"
    widget = ViewsExplorer(text, "linearizable", reads=["uncommitted"])
    for name, result in read_statuses(widget).items():
        assert result.split()[1] == check(History.parse(text), name, reads=["uncommitted"]).status, name
    assert "✗ ILLEGAL" in widget.verdict.value


def test_model_can_be_selected():
    widget = ViewsExplorer(FORKED)
    widget.model.value = "linearizable"
    assert "✗ ILLEGAL" in widget.verdict.value
    assert "<b>linearizable</b>" in widget.table.value
    widget.model.value = "monotonic-reads"
    assert "✓ OK" in widget.verdict.value
    assert widget.step.disabled, "a session guarantee has no views"


def test_record_can_be_selected_among_several():
    widget = ViewsExplorer("ann: w(k)1 w(l)2 r(k)1 r(l)0")
    assert widget.record.options == ("k", "l")
    assert widget.record.layout.display == ""
    assert "✓ OK" in widget.verdict.value
    assert read_statuses(widget)["sequential"].endswith("OK")
    widget.record.value = "l"
    assert "✗ ILLEGAL" in widget.verdict.value
    assert read_statuses(widget)["sequential"].endswith("ILLEGAL"), "the table is of the record, too"
    widget.text.value += " r(m)0"
    assert widget.record.value == "l"
    widget.text.value = "ann: w1"
    assert widget.record.value == "x"
    assert widget.record.layout.display == "none"


def test_views_can_be_stepped_through():
    widget = ViewsExplorer(FORKED)
    assert widget.step.value == widget.step.max == 4
    assert not widget.figure.layout.shapes
    values = []
    for step in range(5):
        widget.step.value = step
        assert [shape.x0 for shape in widget.figure.layout.shapes] == ([] if step == 4 else [step - 0.5])
        values.append([row[2] for row in table_rows(widget.views.value)[1:]])
    assert values == [["nothing", "nothing"], ["1", "1"], ["1", "1"], ["2", "3"], ["2", "3"]]
    assert "<b>ann w1, bob r1</b> ▸ ann w1&gt;2…, ann r2" in step_to(widget, 2)
    widget.text.value = FORKED + "  r3"
    assert (widget.step.value, widget.step.max) == (2, 5)
    widget.text.value = "ann: w1"
    assert (widget.step.value, widget.step.max) == (1, 1)


def step_to(widget, step):
    widget.step.value = step
    return widget.views.value


def test_text_area_shows_the_whole_first_history():
    lanes = [f"{name}: w{number}" for number, name in enumerate("abcdefgh")]
    assert ViewsExplorer("\n".join(lanes)).text.rows >= len(lanes)


def test_deleted_and_refused_values_are_not_current():
    widget = ViewsExplorer("ann: w1 d r0")
    assert "nothing" in widget.views.value
    widget.text.value = "ann: w1 w2# r1"
    assert table_rows(widget.views.value)[1][2] == "1"


def test_markup_in_a_history_is_escaped():
    widget = ViewsExplorer("<b>: w(<i>)1 w(<i>)2 r(<i>)2")
    for shown in (widget.views.value, widget.verdict.value):
        assert "<i>)" not in shown
        assert "<b>:" not in shown
    assert "&lt;b&gt;" in widget.views.value


def test_large_history_is_shown_in_bounded_time():
    rng = random.Random(0)
    lanes, values = {name: f"{name}:" for name in "abcdefghij"}, ["0"]
    for place in range(20):
        for name in lanes:
            token = f"w{name}{place}" if rng.random() < 0.5 else f"r{rng.choice(values)}"
            values += [token[1:]] if token[0] == "w" else []
            lanes[name] = lanes[name].ljust(4 + 14 * place) + f"[{token}       ]"
    start_s = time.monotonic()
    ViewsExplorer("\n".join(lanes.values()), "sequential", seconds=0.2)
    assert time.monotonic() - start_s < 10  # a guard: half a second on a quiet machine


def test_run_of_a_lab_is_shown():
    run = History.from_table(Journal(operations=20).run(2, "uncommitted").history())
    widget = ViewsExplorer(run.to_text(), "fork-sequential-retracted")
    assert widget.problem.value == ""
    assert "✓ OK" in widget.verdict.value
    for name, result in read_statuses(widget).items():
        assert result.split()[1] == check(run, name).status, name
