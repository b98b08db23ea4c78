"""Signals of one length in time, however many samples they have."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.figures.time.signals import signals


def test_they_cover_the_same_time():
    figure = signals({"whole": [0.0] * 500, "four times smaller": [1.0] * 125}, hz=250, y="mV", title="Two")
    whole, small = figure.data
    assert (whole.x[0], whole.x[-1]) == pytest.approx((0.002, 1.998))
    assert (small.x[0], small.x[-1]) == pytest.approx((0.008, 1.992))
    assert list(figure.layout.xaxis.range) == [0, 2.0]
    assert [note.text for note in figure.layout.annotations] == ["whole", "four times smaller"]
    assert figure.layout.xaxis2.title.text == "seconds"
    assert list(figure.layout.yaxis.range) == pytest.approx([-0.05, 1.05])
    assert (whole.mode, figure.layout.yaxis.title.text) == ("lines", "mV")


def test_the_beginning_only_and_few_samples_as_marks():
    figure = signals({"few": [0.0, 1.0, 0.5]}, hz=1, y="mV", title="", seconds=2.0)
    assert list(figure.layout.xaxis.range) == [0, 2.0]
    assert figure.data[0].mode == "lines+markers"


@pytest.mark.parametrize(("drawn", "hz"), [({}, 250), ({"none": []}, 250), ({"a": [1.0]}, 0)])
def test_what_cannot_be_drawn(drawn, hz):
    with pytest.raises(ParameterError):
        signals(drawn, hz=hz, y="mV", title="")
