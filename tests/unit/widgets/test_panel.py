"""Panel, alerts and JSON input, which all widgets share."""

import ipywidgets
import pytest

from mudkit import widgets
from mudkit.errors import ParameterError
from mudkit.widgets.panel import Panel, alert, read_object

DEEP = "[" * 100_000


def test_every_widget_is_a_panel():
    """Require the panel for its list keys, which tests/browser presses."""
    assert len(widgets.__all__) == 8
    assert all(issubclass(getattr(widgets, name), Panel) for name in widgets.__all__)


def test_panel_starts_with_the_given_children():
    label = ipywidgets.Label("a")
    panel = Panel([label])
    assert panel.children[0] is label
    assert len(panel.children) == 2
    assert "mudkit-panel" in panel._dom_classes
    assert "lmSuppressShortcuts" in panel.children[1]._esm


def test_output_without_a_widget_asks_to_run_the_cell():
    bundle = Panel([])._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "run this cell" in bundle["text/html"]


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "[1]", "1", "null", DEEP, '{"a":' * 100_000])
def test_text_without_a_json_object_is_refused(text):
    with pytest.raises(ParameterError, match="record") as caught:
        read_object("record", text, '{"n": 1}')
    assert caught.value.where == "record"
    assert '{"n": 1}' in caught.value.expected
    assert len(str(caught.value)) < 400


def test_json_object_is_parsed():
    assert read_object("record", ' {"a": [1, null]} ', "{}") == {"a": [1, None]}


def test_alert_escapes_markup():
    try:
        read_object("record", "<b>", "{}")
    except ParameterError as error:
        html = alert("No.", error)
    assert "role='alert'" in html
    assert "<b>No.</b>" in html
    assert "&lt;b&gt;" in html
