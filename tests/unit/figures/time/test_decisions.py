"""What policies did with messages, as marks."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.time.decisions import KINDS, decisions

COLUMNS = ["t_s", "lane", "what", "told", "is_alarm"]


def table(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


ONE = table(
    (0.0, "patient 10", "sent whole", "a", False),
    (5.0, "patient 9", "held back", "b", True),
    (9.0, "patient 9", "dropped", "c", False),
)


def test_a_mark_for_each_message_and_a_ring_for_each_alarm():
    figure = decisions({"one": ONE, "two": ONE.iloc[:1]}, title="Two policies")
    marks = [(each.name, each.yaxis, list(each.x), each.showlegend) for each in figure.data]
    assert marks == [
        ("an alarm", "y", [5.0], True),
        ("dropped", "y", [9.0], True),
        ("held back", "y", [5.0], True),
        ("sent whole", "y", [0.0], True),
        ("sent whole", "y2", [0.0], False),
    ]
    assert list(figure.layout.yaxis.ticktext) == ["patient 9", "patient 10"]
    assert [list(each.y) for each in (figure.data[0], figure.data[3])] == [[0], [1]]
    assert figure.layout.xaxis2.title.text == "seconds"
    assert [note.text for note in figure.layout.annotations] == ["one", "two"]


def test_long_times_are_in_minutes():
    later = ONE.assign(t_s=ONE["t_s"] * 600)
    figure = decisions({"one": later}, title="")
    assert figure.layout.xaxis.title.text == "minutes"
    assert list(figure.data[0].x) == [50.0]


def test_the_wrong_one_is_pointed_at():
    figure = decisions({"one": ONE}, title="", wrong={"one": 1})
    here = figure.data[-1]
    assert (here.name, list(here.x), list(here.customdata)) == ("here", [5.0], ["b"])
    assert -0.5 < here.y[0] < 0


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="is_alarm"):
        decisions({"one": ONE.drop(columns="is_alarm")}, title="")
    with pytest.raises(ParameterError, match="eaten"):
        decisions({"one": table((0.0, "p", "eaten", "", False))}, title="")
    assert set(KINDS) == {"sent whole", "sent in part", "held back", "dropped", "stopped"}
