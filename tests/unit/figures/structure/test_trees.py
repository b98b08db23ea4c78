"""A tree is drawn as it is listed; what is too deep is one mark that says how much it is."""

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.structure.trees import outline, tree, words
from mudkit.systems.mud.policies.artefact import FEATURES

COLUMNS = ["node", "parent", "is_right", "feature", "threshold", "action", "examples", "leaves"]
TABLE = pd.DataFrame(
    [
        (0, -1, False, "age", 600.0, "remote", 100, 4),
        (1, 0, False, "distance", 1.25, "local", 40, 3),
        (2, 1, False, "", float("nan"), "local", 30, 1),
        (3, 1, True, "held", 20.0, "remote", 10, 2),
        (4, 3, False, "", float("nan"), "local", 4, 1),
        (5, 3, True, "", float("nan"), "remote", 6, 1),
        (6, 0, True, "", float("nan"), "remote", 60, 1),
    ],
    columns=COLUMNS,
)


def test_all_nodes_are_there_with_what_they_say():
    figure = tree(TABLE, title="T")
    lines, marks = figure.data
    assert list(marks.text) == [
        "age ≤ 10 min",
        "distance ≤ 1.25 km",
        "local",
        "it holds ≤ 20 points",
        "local",
        "remote",
        "remote",
    ]
    assert list(marks.y) == [0, -1, -2, -2, -3, -3, -1]
    x = marks.x
    assert x[2] < x[4] < x[5] < x[6], "left is left"
    assert x[2] < x[1] < x[0] < x[6]
    assert len(lines.x) == 3 * 6
    symbols = dict(zip(marks.text, marks.marker.symbol, strict=True))
    assert symbols["local"] != symbols["remote"] != symbols["age ≤ 10 min"]
    assert marks.marker.size[6] > marks.marker.size[2] > marks.marker.size[4]
    assert "100 examples, 4 leaves" in marks.hovertext[0]


def test_what_is_deeper_is_one_mark():
    marks = tree(TABLE, title="", most_depth=2).data[1]
    assert marks.text[3] == "… 2 leaves"
    assert "10 examples" in marks.hovertext[3]
    assert len(marks.text) == 5


def test_a_leaf_alone_and_a_delay():
    alone = TABLE[TABLE["node"] == 2].assign(node=0, parent=-1, action="30 min")
    figure = tree(alone, title="U")
    assert list(figure.data[1].text) == ["30 min"]
    assert list(figure.data[1].x) == [0.5]
    assert list(figure.data[0].x) == []
    assert figure.layout.title.text == "U"
    assert outline(alone) == "30 min (30 examples)"


def test_it_can_be_read_aloud():
    assert outline(TABLE, 2).splitlines() == [
        "age ≤ 10 min?",
        "    yes: distance ≤ 1.25 km?",
        "        yes: local (30 examples)",
        "        no: … 2 leaves (10 examples)",
        "    no: remote (60 examples)",
    ]
    assert "            no: remote (6 examples)" in outline(TABLE).splitlines()


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_of_a_device_has_words(feature):
    assert words(feature, 600.0).endswith(
        ("600", "600°", "600 h", "600 km", "10 min", "600 points", "600 points/h")
    )


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ParameterError, match="leaves"):
        tree(TABLE.drop(columns="leaves"), title="")
    with pytest.raises(ParameterError, match="leaves"):
        outline(TABLE.drop(columns="leaves"))
