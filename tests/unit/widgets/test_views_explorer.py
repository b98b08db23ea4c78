import pytest

from mudkit.consistency import Status
from mudkit.errors import ParameterError
from mudkit.widgets import ViewsExplorer

FORKED = "ann: w0>1   r1   r1\nbob: w0>2   r2   r2"


def names(widget):
    return [trace.name for trace in widget.figure.data]


def test_verdict_and_views_change_with_the_model():
    widget = ViewsExplorer(FORKED)
    assert widget.verdict.status is Status.OK
    assert "view of bob" in names(widget)
    widget.model.value = "sequential"
    assert widget.verdict.status is Status.ILLEGAL
    assert "in the contradiction ✗" in names(widget)
    assert "view of bob" not in names(widget)
    assert "ILLEGAL" in widget.children[3].value
    assert widget.figure.layout.title.text == "sequential: ILLEGAL"


def test_verdict_and_views_change_with_the_text():
    widget = ViewsExplorer(FORKED, "sequential")
    widget.text.value = "ann: w0>1   r1   r1\nbob:    r1     r1"
    assert widget.verdict.status is Status.OK
    assert widget.step.value == widget.step.max == 5


def test_what_cannot_be_read_is_said_and_leaves_the_figure():
    widget = ViewsExplorer(FORKED)
    before = names(widget)
    widget.text.value = "ann: quux"
    assert widget.verdict is None
    assert "column 6" in widget.children[3].value
    assert names(widget) == before
    widget.text.value = FORKED
    assert widget.verdict.status is Status.OK


def test_steps_show_the_history_as_far_as_it_has_come():
    widget = ViewsExplorer(FORKED, "sequential")
    found = []
    for step in range(7):
        widget.step.value = step
        found.append(str(widget.verdict.status))
    assert found == ["UNKNOWN", "OK", *["ILLEGAL"] * 5]


def test_reads_of_all_types_count():
    assert ViewsExplorer("ann: w1  c0", "linearizable").verdict.status is Status.ILLEGAL


def test_a_model_that_is_none():
    with pytest.raises(ParameterError, match="no such model"):
        ViewsExplorer(FORKED, "fork-sequental")
