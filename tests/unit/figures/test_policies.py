"""Rules, trees, decisions and searches."""

import pandas as pd
import pytest
from learning_traces import build_labelled_reads

from mudkit import figures
from mudkit.figures import policies
from mudkit.figures.policies import _DECISION_MARKS
from mudkit.figures.style import TEXT_PX
from mudkit.learning import CostMatrix, FixedRule, tree_nodes
from mudkit.systems.sublim import Policy, Rule
from mudkit.systems.sublim._policy.actions import Drop, Every, Keep
from mudkit.systems.sublim._policy.policy import decision_table
from mudkit.worlds import CacheBench

POLICY = Policy(
    "p",
    [
        Rule("message.pulse > 50", Drop(), "well"),
        Rule("state.battery < 25", [Every(300, variable="sent"), Keep(("pulse",))], "low"),
        Rule("state.battery >= 50", [], "a name that is far too long for the scale beside it"),
    ],
)


MESSAGES = {"calm": {"pulse": 70}, "alarm": {"pulse": 40, "ecg": b"0123"}}


STATES = {"10": {"battery": 10}, "30": {"battery": 30}, "90": {"battery": 90}}


NAMES = [rule.name for rule in POLICY.rules]


def test_decision_table_has_a_row_per_message_and_state():
    table = decision_table(POLICY, MESSAGES, STATES)
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
    later = decision_table(POLICY, MESSAGES, STATES, sent, 200.0)
    assert later["outcome"].tolist()[3] == "held back"
    assert sent == {"sent": {"all": 100.0}}


def test_rule_firing_cells_have_rule_number_and_mark():
    table = decision_table(POLICY, MESSAGES, STATES, {"sent": {"all": 0.0}}, 5.0)
    figure = figures.rule_firing(table, NAMES, title="Which", x="battery, %")
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


def test_rule_firing_is_updated_and_framed():
    figure = figures.rule_firing(
        decision_table(POLICY, MESSAGES, STATES), NAMES, title="Which", x="battery, %"
    )
    figures.update_rule_firing(
        figure, decision_table(POLICY, MESSAGES, STATES), NAMES, title="Another", now=("alarm", "30")
    )
    (frame,) = figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, 0.5, 1.5)
    figures.update_rule_firing(
        figure, decision_table(POLICY, {}, {}), [], title="Nothing", now=("alarm", "30")
    )
    assert not figure.layout.shapes


def test_names_of_many_rules_have_a_line_each():
    """The names stand beside the cells, as high as these are together."""
    table = decision_table(POLICY, MESSAGES, STATES)
    for count in (3, 12, 20):
        names = [f"rule {number}" for number in range(count)]
        figure = figures.rule_firing(table, names, title="t", x="x")
        plot_px = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
        assert plot_px >= 1.25 * TEXT_PX * len(figure.data[0].colorbar.ticktext)


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


def test_tree_draws_all_nodes_with_their_texts():
    figure = figures.tree(TABLE, title="T")
    edges, marks, leaves, questions, answers = figure.data
    assert list(questions.text) == [
        "at most 10 min old?",
        "at most 1.25 km away?",
        "it holds at most 20 points?",
    ]
    assert list(leaves.text) == [
        "<b>local</b> 30 % (30)",
        "<b>local</b> 4 % (4)",
        "<b>remote</b> 6 % (6)",
        "<b>remote</b> 60 % (60)",
    ]
    assert sorted([*questions.y, *leaves.y]) == list(range(7)), "each has a line of its own"
    assert list(questions.y) == [0, 1, 3]
    assert list(leaves.y) == list(marks.y) == [2, 4, 5, 6], "yes above no"
    assert [round(x) for x in questions.x] == [0, 1, 2]
    assert [round(x) for x in leaves.x] == [2, 3, 3, 1]
    assert len(edges.x) == 4 * 6
    assert list(answers.text) == ["yes", "yes", "no", "yes", "no", "no"]
    assert list(answers.y) == [1, 2, 3, 4, 5, 6]
    assert marks.marker.symbol[0] != marks.marker.symbol[3]
    assert marks.marker.size[3] > marks.marker.size[0] > marks.marker.size[1]
    assert "100 % of 100 examples, 4 leaves" in questions.hovertext[0]


def test_subtrees_below_max_depth_are_one_mark():
    _, _, leaves, questions, _ = figures.tree(TABLE, title="", max_depth=2).data
    assert leaves.text[1] == "… 2 leaves, 10 % (10)"
    assert "10 % of 100 examples" in leaves.hovertext[1]
    assert len(leaves.text) + len(questions.text) == 5


def test_tree_of_one_leaf_shows_its_delay():
    alone = TABLE[TABLE["node"] == 2].assign(node=0, parent=-1, action="30 min")
    figure = figures.tree(alone, title="U")
    edges, _, leaves, questions, _ = figure.data
    assert list(leaves.text) == ["<b>30 min</b> 100 % (30)"]
    assert list(edges.x) == list(questions.x) == []
    assert figure.layout.title.text == "U"
    assert figures.tree_outline(alone) == "30 min (30 examples)"


def test_tree_outline_is_indented_text():
    assert figures.tree_outline(TABLE, 2).splitlines() == [
        "at most 10 min old?",
        "    yes: at most 1.25 km away?",
        "        yes: local (30 examples)",
        "        no: … 2 leaves (10 examples)",
        "    no: remote (60 examples)",
    ]
    assert "            no: remote (6 examples)" in figures.tree_outline(TABLE).splitlines()


DECISIONS_COLUMNS = ["t_s", "lane", "decision", "text", "is_alarm"]


def make_decisions(*rows):
    return pd.DataFrame(rows, columns=DECISIONS_COLUMNS)


ONE = make_decisions(
    (0.0, "patient 10", "sent whole", "a", False),
    (5.0, "patient 9", "held back", "b", True),
    (9.0, "patient 9", "dropped", "c", False),
)


def test_decisions_mark_each_message_and_ring_each_alarm():
    figure = figures.decisions({"one": ONE, "two": ONE.iloc[:1]}, title="Two policies")
    marks = [(trace.name, trace.yaxis, list(trace.x), trace.showlegend) for trace in figure.data]
    assert marks == [
        ("an alarm", "y", [5.0], True),
        ("dropped", "y", [9.0], True),
        ("held back", "y", [5.0], True),
        ("sent whole", "y", [0.0], True),
        ("sent whole", "y2", [0.0], False),
    ]
    assert list(figure.layout.yaxis.ticktext) == ["patient 9", "patient 10"]
    assert [list(trace.y) for trace in (figure.data[0], figure.data[3])] == [[0], [1]]
    assert figure.layout.xaxis2.title.text == "time, s"
    assert [note.text for note in figure.layout.annotations] == ["one", "two"]


def test_decisions_of_more_lanes_are_higher():
    """A lane has the same height in each figure."""

    def height_px(lanes, tables):
        table = make_decisions(*((0.0, f"patient {lane}", "held back", "a", False) for lane in range(lanes)))
        return figures.decisions(dict.fromkeys(tables, table), title="").layout.height

    few, many, most = (height_px(lanes, ["one"]) for lanes in (10, 20, 30))
    assert few < many
    assert most - many == many - few
    assert height_px(10, ["one", "two"]) > many


def test_decisions_over_long_times_are_in_minutes():
    later = ONE.assign(t_s=ONE["t_s"] * 600)
    figure = figures.decisions({"one": later}, title="")
    assert figure.layout.xaxis.title.text == "time, min"
    assert list(figure.data[0].x) == [50.0]


def test_marked_decision_has_a_pointer():
    figure = figures.decisions({"one": ONE}, title="", marked={"one": 1})
    pointer = figure.data[-1]
    assert (pointer.name, list(pointer.x), list(pointer.customdata)) == ("here", [5.0], ["b"])
    assert -0.5 < pointer.y[0] < 0


def test_every_decision_has_a_mark():
    assert set(_DECISION_MARKS) == {"sent whole", "sent in part", "held back", "dropped", "stopped"}


def test_learnt_policy_is_drawn_as_its_nodes():
    learnt = CacheBench.from_labels(*build_labelled_reads()).run(CostMatrix(0.5, 1.0)).learnt
    assert figures.tree(learnt, title="t").to_json() == figures.tree(tree_nodes(learnt), title="t").to_json()
    assert figures.tree_outline(learnt) == figures.tree_outline(tree_nodes(learnt))


def draw_search(*rows, rule=(1.0, 5.0), best=(1.0, 10.0)):
    """Draw a rule search from rows of (km, minutes, share fresh, share stale, is allowed)."""
    table = pd.DataFrame(rows, columns=["km", "minutes", "fresh_share", "stale_share", "is_allowed"])
    in_use = FixedRule(*rule)
    return figures.rule_search(
        table, rule=in_use, best=in_use if best == rule else FixedRule(*best), title="Rules"
    )


def test_allowed_rules_show_fresh_shares_and_others_stale_shares():
    figure = draw_search(
        (1.0, 5.0, 0.9, 0.0, True), (1.0, 10.0, 0.5, 0.02, True), (2.0, 5.0, 0.4, 0.3, False)
    )
    assert [note.text for note in figure.layout.annotations][:3] == ["90.0", "50.0", "(30 stale)"]
    assert [shape.line.dash for shape in figure.layout.shapes] == ["dot", "solid"]
    assert list(figure.data[0].x) == ["5 min", "10 min"]


def test_numbers_on_rules_are_legible_with_distinct_decimals():
    near = draw_search((1.0, 5.0, 0.996, 0.0, True), (1.0, 10.0, 0.981, 0.02, True))
    assert [note.text for note in near.layout.annotations] == ["99.6", "98.1"]
    equal = draw_search(
        *((km, age, 1.0, 0.0, True) for km in (1.0, 2.0) for age in (5.0, 10.0)), best=(1.0, 5.0)
    )
    assert (equal.data[0].zmin, equal.data[0].zmax) == (99, 100)
    assert {note.text for note in equal.layout.annotations} == {"100.0"}
    shades = draw_search(
        *((1.0, age, sent, 0.01, True) for age, sent in ((5.0, 0.2), (10.0, 0.37), (15.0, 0.5)))
    )
    assert [note.font.color for note in shades.layout.annotations] == ["#000000", "#000000", "#ffffff"]
    assert [shape.opacity for shape in shades.layout.shapes] == [1, 1]


def test_rule_search_without_allowed_rules_has_all_cells():
    figure = draw_search(
        *((km, age, 0.9, 0.3, False) for km in (1.0, 2.0) for age in (5.0, 10.0)), best=(1.0, 5.0)
    )
    assert list(figure.layout.xaxis.categoryarray) == ["5 min", "10 min"]
    assert list(figure.layout.yaxis.categoryarray) == ["1 km", "2 km"]
    assert list(figure.layout.xaxis.range) == list(figure.layout.yaxis.range) == [-0.5, 1.5]
    assert [shape.line.dash for shape in figure.layout.shapes] == ["dot"]  # no rule is the best


def test_any_distance_is_the_last_row_of_rules():
    figure = draw_search(
        (1.0, 5.0, 0.3, 0.0, True), (float("inf"), 5.0, 0.5, 0.0, True), best=(float("inf"), 5.0)
    )
    assert list(figure.layout.yaxis.categoryarray) == ["1 km", "any"]
    assert [(shape.y0, shape.y1) for shape in figure.layout.shapes] == [(-0.5, 0.5), (0.5, 1.5)]


def draw_sensitivity(*rows):
    columns = ["assumed", "family", "fresh_share", "fresh_share_low", "fresh_share_high"]
    return figures.sensitivity(
        pd.DataFrame(rows, columns=columns), recommended="age", title="Other assumptions"
    )


def test_other_recommendations_have_another_mark():
    figure = draw_sensitivity(
        ("as assumed", "age", 0.2, 0.1, 0.3),
        ("window 4 h", "tree", 0.4, 0.3, 0.5),
        ("box 1 km", "age", 0.1, 0.05, 0.2),
    )
    same, other = figure.data
    assert list(same.y) == ["as assumed", "box 1 km"]
    assert list(other.y) == ["window 4 h"]
    assert same.marker.symbol != other.marker.symbol
    assert [note.text for note in figure.layout.annotations] == ["age, 20.0 %", "tree, 40.0 %", "age, 10.0 %"]
    assert figure.layout.xaxis.range[0] == 0


def test_marks_compare_with_what_the_page_recommends():
    same, other = draw_sensitivity(
        ("as assumed", "tree", 0.2, 0.1, 0.3), ("window 4 h", "age", 0.4, 0.3, 0.5)
    ).data
    assert (list(same.y), list(other.y)) == (["window 4 h"], ["as assumed"])


def test_bars_of_sensitivity_end_at_the_ends_of_the_interval():
    (same, _) = draw_sensitivity(("as assumed", "age", 0.5, 0.42, 0.53)).data
    ends = same.x[0] - same.error_x.arrayminus[0], same.x[0] + same.error_x.array[0]
    assert ends == pytest.approx((42, 53))


def test_axis_of_sensitivity_fits_shares_that_hardly_differ():
    figure = draw_sensitivity(("as assumed", "age", 0.5, 0.48, 0.52), ("window 4 h", "age", 0.51, 0.49, 0.53))
    low, high = figure.layout.xaxis.range
    assert 40 < low < 48
    assert 53 < high < 60
    assert draw_sensitivity(("as assumed", "always ask", 0.0, 0.0, 0.0)).layout.xaxis.range == (0, 1.0)


def test_equal_cells_of_many_states_share_a_text():
    messages, states = {"calm": {"pulse": 70}}, {f"{level}": {"battery": level} for level in range(0, 101, 5)}
    rules = [Rule("state.battery < 25", [Drop()], "low"), Rule("state.battery >= 25", [], "high")]
    policy = Policy("p", rules)
    figure = figures.rule_firing(decision_table(policy, messages, states), ["low", "high"], title="t", x="x")
    shown = figure.data[0].text[0]
    assert [text for text in shown if text] == ["1✗", "2"]
    assert shown[2] == "1✗"
    assert figure.data[0].texttemplate == "%{text}"
    assert list(figure.data[0].hovertext[0]).count("2") == 16  # the alternative text counts them


@pytest.mark.parametrize(("letters", "is_cut"), [(30, False), (31, True)])
def test_long_names_are_cut_to_thirty_letters(letters, is_cut):
    shown = policies._shortened("x" * letters)
    assert (len(shown), shown.endswith("…")) == (30, is_cut)


def test_marks_of_leaves_stand_between_the_edge_and_the_text():
    figure = figures.tree(TABLE, title="t")
    traces = {trace.name: trace for trace in figure.data}
    edges = [x for x in figure.data[0].x if x is not None]
    for mark, text in zip(traces["marks"].x, traces["leaves"].x, strict=True):
        assert mark < text
        assert any(end < mark < end + 1 for end in edges[2::3]), "the level part of its edge ends left of it"
        assert mark > round(mark), "right of its level"


def test_kinds_of_recommendations_are_named_in_the_legend():
    table = pd.DataFrame(
        {
            "assumed": ["as is", "half"], "family": ["an age", "a tree"],
            "fresh_share": [0.5, 0.4], "fresh_share_low": [0.4, 0.3], "fresh_share_high": [0.6, 0.5],
        }
    )  # fmt: skip
    figure = figures.sensitivity(table, recommended="an age", title="t")
    assert [trace.name for trace in figure.data if trace.showlegend] == ["same kind", "another kind"]
