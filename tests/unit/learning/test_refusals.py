"""Parameters and data that learning refuses, with the error messages."""

import numpy as np
import pytest
from learning_traces import build_labelled_reads

from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning import (
    Always,
    Batch,
    CostMatrix,
    FixedRule,
    RadioModel,
    Tree,
    cache_completeness,
    delay_costs,
    evaluate_reads,
    evaluate_writes,
    read_frontier,
    recommend,
    write_frontier,
)
from mudkit.learning.costs import read_costs, write_costs
from mudkit.learning.trees import groups_by, learn
from mudkit.learning.writes import ReadRequests

LABELS, READS = build_labelled_reads(devices=4, days=2)
NAN = float("nan")


def evaluate(policy=None, **options):
    return evaluate_reads(LABELS, READS, [policy or Always()], **options)


def learn_tree(truth, groups):
    known = np.arange(len(truth), dtype=np.float32)[:, None]
    return learn(known, truth, groups, CostMatrix(1.0, 1.0).table())


PARAMETERS = [
    *(
        (lambda cost=cost: read_costs(cost), "cost")
        for cost in (
            "cheap", [1, 2], [[0, 1, 2], [1, 0, 2]], np.zeros((14, 14)), [[0, -1], [1, 0]], [[0, NAN], [1, 0]],
            [[0, "a"], [1, 0]], [[0, 1], [1]], None,
        )
    ),
    *(
        (lambda cost=cost: write_costs(cost), "cost")
        for cost in (np.zeros((2, 2)), -np.ones((14, 14)), np.zeros((14, 13)), "dear")
    ),
    *(
        (lambda make=make, costs=costs: make(*costs), "cost|stale|unnecessary|missed|late|number")
        for make in (CostMatrix, delay_costs)
        for costs in ((-1, 1), (1, -1), (NAN, 1), ("a", 1))
    ),
    (lambda: evaluate(stale="old"), "stale"),
    (lambda: evaluate(stale="completeness"), "completeness"),
    (lambda: evaluate(completeness=0.9), "completeness"),
    (lambda: evaluate(stale="completeness", completeness=1.5), "completeness"),
    (lambda: evaluate(folds="moon"), "folds"),
    (lambda: evaluate(cost="free"), "cost"),
    *(
        (lambda tree=tree: evaluate(tree), "cost|features")
        for tree in (Tree("cheap"), Tree(features="all"), Tree([[1]]), Tree([[0, -1], [1, 0]]))
    ),
    *(
        (lambda name=name, value=value: FixedRule(**{name: value}), name)
        for name, value in (("km", -1), ("km", "a"), ("minutes", -1), ("minutes", None), ("km", NAN))
    ),
    *(
        (lambda name=name, value=value: RadioModel(**{name: value}), name)
        for name, value in (("link", "5g"), ("query_bytes", -1), ("point_bytes", "many"))
    ),
    (lambda: Batch(-1), "minutes"),
    (lambda: groups_by("hour", np.zeros(1), np.zeros(1)), "hour"),
]  # fmt: skip
CONTENTS = [
    (lambda: evaluate_reads(LABELS.slice(1), READS, [Always()]), "no label"),
    (lambda: evaluate_reads(LABELS.drop_columns("others"), READS, [Always()]), "of mudkit 0.2"),
    (lambda: learn_tree(np.zeros(0, np.int64), np.zeros(0, np.int64)), "nothing to learn from"),
    (lambda: learn_tree(np.ones(40, np.int64), np.arange(40)), "All examples have the same outcome"),
    (lambda: learn_tree(np.arange(40) % 2, np.zeros(40, np.int64)), "one device"),
]


@pytest.mark.parametrize("table", [None, 3, "reads", READS.to_pandas()], ids=type)
@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda table: evaluate_reads(table, READS, [Always()]), "labels"),
        (lambda table: evaluate_reads(LABELS, table, [Always()]), "reads"),
        (lambda table: read_frontier(LABELS, table), "reads"),
        (lambda table: recommend(table, READS, max_stale=0.1), "labels"),
        (lambda table: evaluate_writes(table, READS, READS, [Batch(5)]), "first_reads"),
        (ReadRequests.of, "reads"),
        (lambda table: write_frontier(READS, table, READS), "positions"),
        (lambda table: cache_completeness(table, READS), "positions"),
    ],
)
def test_table_that_is_neither_of_arrow_nor_of_spark_is_refused_by_name(call, where, table):
    """A pandas DataFrame is converted by its owner, as the refusal says."""
    with pytest.raises(ParameterError, match=r"pa\.Table\.from_pandas") as raised:
        call(table)
    assert raised.value.where == where


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (error, *case)
        for error, cases in ((ParameterError, PARAMETERS), (TraceContentError, CONTENTS))
        for case in cases
    ],
)
def test_wrong_parameters_and_data_are_refused(error, call, message):
    with pytest.raises(error, match=message):
        call()
