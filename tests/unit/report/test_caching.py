"""Sentences and tables of the report cache_policy: they follow the numbers, and say what could not be learnt."""

import pandas as pd
import pyarrow as pa
import pytest
from learning_traces import asked as asked_reads
from learning_traces import first_labels, labelled_reads, written

from mudkit.learning import FixedRule
from mudkit.report import caching

LABELS, READS = labelled_reads()
RULE = FixedRule()


def given(**options):
    return {"stale_cost": 1.0, "completeness": None, "folds": "device", "seed": 0} | options


@pytest.mark.parametrize("folds", ["device", "time"])
def test_reads_are_replayed_with_tree_control_and_bounds(folds):
    table, problem = caching.replayed(LABELS, READS, RULE, **given(folds=folds))
    assert problem == ""
    rule, tree, control, bound, few = table.to_dict("records")
    assert tree["cost"] < rule["cost"]
    assert tree["cost"] < control["cost"]
    assert bound["sent_share"] <= few["sent_share"]
    assert few["stale_share"] <= rule["stale_share"] / 3.5 + 1 / len(READS)
    said = caching.reads(table, "", {}, "a point is missing")
    assert said.startswith("An answer is stale when a point is missing. The rule 1 km / 10 min sends")
    assert f"**The tree sends {tree['sent_share']:.1%}" in said


def test_the_costs_count():
    cheap, dear = (
        caching.replayed(LABELS, READS, RULE, **given(stale_cost=cost))[0].iloc[1] for cost in (0.01, 50.0)
    )
    assert cheap["stale_share"] > dear["stale_share"]


def test_where_all_answers_are_alike_there_is_no_tree():
    table, problem = caching.replayed(LABELS, READS, RULE, **given(completeness=0.4))
    assert len(table) == 3
    assert "Only one thing is ever true" in problem
    assert "**No tree was learnt**: Only one thing" in caching.reads(table, problem, {}, "x")
    assert caching.trees(LABELS, READS, RULE, 0.4) == (None, {})


def test_how_much_of_the_gap_is_closed():
    bench, curves = caching.trees(LABELS, READS, RULE, 0.9)
    assert bench.run("latency").sent_share < 1
    table, problem = caching.replayed(LABELS, READS, RULE, **given(completeness=0.9))
    assert "of the gap is closed**" in caching.reads(table, problem, curves, "x")
    assert curves["bound"]["stale_share"].iloc[-1] > table["stale_share"].iloc[0]


def row(policy, sent, stale, cost=0.1):
    return {"policy": policy, "sent_share": sent, "stale_share": stale, "cost": cost}


@pytest.mark.parametrize(
    ("bound", "few", "says"),
    [
        (0.1, 0.2, "4.00 times fewer than the rule: the 4 times of Mobius 6 are possible here."),
        (0.1, 0.3, "2.67 times fewer than the rule: the 4 times of Mobius 6 are beyond"),
        (0.78, 0.9, "more than the rule: the 4 times"),
        (0.78, 0.9, "next to nothing to win"),
    ],
)
def test_the_papers_factor_is_judged_by_the_bound(bound, few, says):
    table = pd.DataFrame(
        [
            row("rule", 0.8, 0.1),
            row("tree", 0.5, 0.1),
            row("control", 1.0, 0.0),
            row("b", bound, 0.1),
            row("f", few, 0.03),
        ]
    )
    assert says in caching.reads(table, "", {}, "x")


def test_half_of_a_gap():
    table = pd.DataFrame(
        [
            row("rule", 0.8, 0.1),
            row("tree", 0.7, 0.1),
            row("control", 1.0, 0.0),
            row("b", 0.6, 0.1),
            row("f", 0.7, 0.03),
        ]
    )
    curves = {"trees": pd.DataFrame({"sent_share": [0.7, 0.3], "stale_share": [0.1, 0.5]})}
    assert "**50% of the gap is closed**" in caching.reads(table, "", curves, "x")


def trace_of(cars):
    rows = [(f"car-{i % cars}", 7 * i, 40.0 * (i // cars % 2)) for i in range(400)]
    positions, asked = written(rows), asked_reads([("phone", 60.0 * i, 0.0) for i in range(1, 40)])
    return first_labels(positions, asked), positions, asked


def test_writes_are_replayed_with_trees_and_the_bound():
    table, problem = caching.waited(*trace_of(8), batch_minutes=30.0, late_cost=0.2, folds="device")
    assert problem == ""
    assert table["policy"].tolist() == [
        "30 min",
        "tree, own costs",
        "tree, misses no more than 30 min in training",
        "bound, misses the reads of 30 min",
    ]
    said = caching.writes(table, "")
    tree, bound, base = table.iloc[1], table.iloc[3], table.iloc[0]
    assert f"**The tree sends {tree['message_share']:.1%} messages" in said
    assert f"1/{base['point_share'] / bound['point_share']:.3g} of its points" in said
    matched = f"{table.iloc[2]['missed_share']:.1%} miss one on the others"
    assert f"The tree that misses no more than 30 min where it learns lets {matched}" in said


def test_where_nearly_all_reads_miss_something_no_factor_is_told():
    table = pd.DataFrame(
        [
            {"policy": "30 min", "message_share": 0.03, "point_share": 1.0, "missed_share": missed}
            for missed in (0.99, 0.98, 0.99)
        ]
    )
    said = caching.writes(table, "")
    assert "no factor tells anything" in said
    assert "1/" not in said


def test_too_few_devices_for_writes_are_told():
    table, problem = caching.waited(*trace_of(1), batch_minutes=30.0, late_cost=0.2, folds="device")
    assert len(table) == 0
    assert "too few devices" in caching.writes(table, problem)


def test_writes_that_nobody_reads_teach_no_tree():
    _, positions, asked = trace_of(8)
    far = asked.set_column(asked.column_names.index("lat"), "lat", pa.array([70.0] * len(asked)))
    table, problem = caching.waited(
        first_labels(positions, far), positions, far, batch_minutes=30.0, late_cost=0.2, folds="device"
    )
    assert len(table) == 2
    assert "**No tree was learnt**" in caching.writes(table, problem)


def test_what_is_brief_keeps_intervals():
    table, _ = caching.replayed(LABELS, READS, RULE, **given())
    kept = caching.brief(table, ["sent_share"])
    assert list(kept.columns) == ["policy", "sent_share", "sent_share_low", "sent_share_high"]


def test_places():
    cells = pa.table({"reads": [20] * 10 + [1], "local": [10.0 * i for i in range(10)] + [100.0]})
    assert caching.where(cells).startswith(
        "Of 11 cells 10 have ten reads or more. In a tenth of these at most 9 %"
    )
    assert "Too few cells" in caching.where(cells.slice(9))
