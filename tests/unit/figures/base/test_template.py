"""No figure offers to send itself away: not by its template, not by a widget's configuration."""

from pathlib import Path

import pandas as pd
import pytest

import mudkit.figures
from mudkit.figures.base import charts
from mudkit.figures.base.template import CONFIG, template
from mudkit.widgets.figure import Figure

FILES = sorted(Path(mudkit.figures.__file__).parent.rglob("*.py"))


def test_the_toolbar_has_no_button_that_uploads():
    removed = template().layout.modebar.remove
    assert {"sendChartToCloud", "sendDataToCloud"} <= set(removed)
    table = pd.DataFrame({"from_s": [0], "to_s": [1], "reads": [3]})
    drawn = charts.histogram(table, title="A histogram", unit="s").to_dict()
    assert "sendChartToCloud" in drawn["layout"]["template"]["layout"]["modebar"]["remove"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_figure_takes_the_template(file):
    text = file.read_text(encoding="utf-8")
    assert file.stem == "template" or '"simple_white"' not in text
    if "go.Figure(" in text or "make_subplots(" in text:
        assert "template()" in text or "_styled(" in text


def test_a_widget_is_configured_so():
    shown = Figure()
    assert shown.get_state()["_config"] == CONFIG
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["plotlyServerURL"] == ""
