"""Which rule fires, as a table and as cells."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.figures.structure.firing import fill, firing
from mudkit.systems.sublim import Policy, Rule
from mudkit.systems.sublim.policy.actions import Drop, Every, Keep
from mudkit.systems.sublim.policy.firing import fired

POLICY = Policy(
    "p",
    [
        Rule("message.pulse > 50", Drop(), "well"),
        Rule("state.battery < 25", [Every(300), Keep(("pulse",))], "low"),
        Rule("state.battery >= 50", [], "a name that is far too long for the scale beside it"),
    ],
)
MESSAGES = {"calm": {"pulse": 70}, "alarm": {"pulse": 40, "ecg": b"0123"}}
STATES = {"10": {"battery": 10}, "30": {"battery": 30}, "90": {"battery": 90}}
NAMES = [rule.name for rule in POLICY.rules]


def test_a_row_for_each_message_in_each_state():
    table = fired(POLICY, MESSAGES, STATES)
    rows = {
        (row.message, row.state): (row.rule, row.name, row.outcome, row.fields) for row in table.itertuples()
    }
    assert rows == {
        ("calm", "10"): (1, "well", "dropped", ""),
        ("calm", "30"): (1, "well", "dropped", ""),
        ("calm", "90"): (1, "well", "dropped", ""),
        ("alarm", "10"): (2, "low", "sent", "pulse"),
        ("alarm", "30"): (0, "no rule", "dropped", ""),
        ("alarm", "90"): (3, NAMES[2], "sent", "pulse, ecg"),
    }
    assert (table["bytes"] > 0).tolist() == [False, False, False, True, False, True]
    sent = {"sent": {"all": 100.0}}
    later = fired(POLICY, MESSAGES, STATES, sent, 200.0)
    assert later["outcome"].tolist()[3] == "held back"
    assert sent == {"sent": {"all": 100.0}}


def test_cells_have_number_and_mark():
    table = fired(POLICY, MESSAGES, STATES, {"sent": {"all": 0.0}}, 5.0)
    figure = firing(table, NAMES, title="Which", x="battery, %")
    heat = figure.data[0]
    assert [list(row) for row in heat.text] == [["1✗", "1✗", "1✗"], ["2…", "–✗", "3"]]
    assert [list(row) for row in heat.z] == [[1, 1, 1], [2, 0, 3]]
    assert (list(heat.y), list(heat.x)) == (["calm", "alarm"], ["10", "30", "90"])
    assert heat.colorbar.ticktext[1] == "1 well"
    assert heat.colorbar.ticktext[3].endswith("…")
    assert (heat.zmin, heat.zmax) == (-0.5, 3.5)
    colours = dict(heat.colorscale)
    assert len(set(colours.values())) == 4, "another colour for each rule"
    assert not figure.layout.shapes


def test_it_is_filled_again_and_framed():
    figure = firing(fired(POLICY, MESSAGES, STATES), NAMES, title="Which", x="battery, %")
    fill(figure, fired(POLICY, MESSAGES, STATES), NAMES, title="Another", now=("alarm", "30"))
    (frame,) = figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, 0.5, 1.5)
    fill(figure, fired(POLICY, {}, {}), [], title="Nothing", now=("alarm", "30"))
    assert not figure.layout.shapes


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="outcome"):
        firing(fired(POLICY, MESSAGES, STATES).drop(columns="outcome"), NAMES, title="", x="")
