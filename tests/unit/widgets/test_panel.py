"""What the widgets have in common."""

import ipywidgets
import pytest

from mudkit import widgets
from mudkit.errors import ParameterError
from mudkit.widgets.panel import Panel, alert, read_object

DEEP = "[" * 100_000


def test_every_widget_is_a_panel():
    """So that their lists have their keys: tests/browser presses them."""
    assert len(widgets.__all__) == 8
    assert all(issubclass(getattr(widgets, name), Panel) for name in widgets.__all__)


def test_what_it_holds_stands_first():
    label = ipywidgets.Label("a")
    panel = Panel([label])
    assert panel.children[0] is label
    assert len(panel.children) == 2
    assert "mudkit-panel" in panel._dom_classes
    assert "lmSuppressShortcuts" in panel.children[1]._esm


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "[1]", "1", "null", DEEP, '{"a":' * 100_000])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ParameterError, match="record") as caught:
        read_object("record", text, '{"n": 1}')
    assert caught.value.where == "record"
    assert '{"n": 1}' in caught.value.expected
    assert len(str(caught.value)) < 400


def test_an_object_is_read():
    assert read_object("record", ' {"a": [1, null]} ', "{}") == {"a": [1, None]}


def test_an_alert_shows_text_as_text():
    try:
        read_object("record", "<b>", "{}")
    except ParameterError as error:
        said = alert("No.", error)
    assert "role='alert'" in said
    assert "<b>No.</b>" in said
    assert "&lt;b&gt;" in said
