"""All figures share a template, and no page offers to send one away."""

from pathlib import Path

import pytest

import mudkit.figures
from mudkit.figures.template import CONFIG

FILES = sorted(Path(mudkit.figures.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_figure_takes_the_template(file):
    text = file.read_text(encoding="utf-8")
    assert file.stem == "template" or '"simple_white"' not in text
    if "go.Figure(" in text or "make_subplots(" in text:
        assert "template()" in text or "_styled(" in text


def test_pages_are_configured_to_upload_nothing():
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["plotlyServerURL"] == ""
