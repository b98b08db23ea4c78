"""Consistency checker against an exhaustive oracle, and against itself.

``python tests/support/against_oracle.py 0 100000`` runs the first test on more histories.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from against_oracle import list_differences
from consistency_oracle import find_view_error, satisfies
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from random_histories import draw_history, draw_restored_history, draw_seeded_history, simulate_history

from mudkit.consistency import MODELS, Content, History, Status, check, implied_models
from mudkit.consistency.deciding import judge, record_of, without
from mudkit.consistency.models import Form, model_of
from mudkit.consistency.record import Reading
from mudkit.consistency.search import Budget, search
from mudkit.consistency.versions import has_known_order, one_view

ANY = frozenset({None})
VIEWS = [name for name, model in MODELS.items() if model.form is not Form.WRITE_ORDER]
ONE_VIEW = [name for name, model in MODELS.items() if model.form is Form.ONE_VIEW]


@st.composite
def histories(draw, max_operations=6):
    return draw_history(lambda options: draw(st.sampled_from(list(options))), max_operations)


def status(history, model):
    return judge(history.operations, ANY, model_of(model), Budget(10.0, 300)).status


def test_checker_agrees_with_oracle(scaled):
    for seed in range(scaled(2500, 250)):
        assert not list_differences(draw_seeded_history(seed)), seed


def test_checker_agrees_with_oracle_on_restored_clients(scaled):
    verdicts = set()
    for seed in range(scaled(2000, 250)):
        history = draw_restored_history(seed)
        assert not list_differences(history), seed
        verdicts.add(status(history, "fork-sequential-retracted"))
    assert verdicts == {Status.OK, Status.ILLEGAL}


@examples(200)
@given(histories())
def test_checker_agrees_with_oracle_on_drawn_histories(history):
    if any(operation.outcome != "pending" for operation in history):
        assert not list_differences(history)


@examples(300)
@given(histories(max_operations=5), histories(max_operations=3))
def test_later_operations_do_not_make_a_history_linearizable(history, later):
    """Append operations that start after all answers: no earlier operation can depend on them."""
    if any(operation.outcome == "pending" for operation in history):
        return
    end_us = max((operation.answered_us or 0 for operation in history), default=0) + 1
    moved = [
        replace(
            operation,
            op_id=operation.op_id + 100,
            invoked_us=operation.invoked_us + end_us,
            answered_us=None if operation.answered_us is None else operation.answered_us + end_us,
            content=Content(operation.content.value),
            expected=None,
            actual=None,
        )
        for operation in later
    ]
    if status(history, "linearizable") is Status.ILLEGAL:
        assert status(History([*history, *moved]), "linearizable") is not Status.OK


@examples(300)
@given(histories(max_operations=9))
def test_legal_history_satisfies_implied_models(history):
    result = {name: status(history, name) for name in MODELS}
    for name in MODELS:
        if result[name] is Status.OK:
            assert all(result[weaker] is Status.OK for weaker in implied_models(name)), name


@pytest.mark.soak(keep=8)
@pytest.mark.parametrize("seed", range(40))
def test_views_satisfy_the_definitions(seed):
    """Check the views of histories that are too long for the oracle, of a store with some guarantees."""
    history = simulate_history(
        seed, operations=40, clients=4, versions=seed % 2 == 0, stale=seed % 3, forks=seed % 5 == 0
    )
    for name in VIEWS:
        result = judge(history.operations, ANY, model_of(name), Budget(2.0, 300))
        if result.status is Status.OK and not model_of(name).retracts:
            assert find_view_error(list(history), result.views, name) is None


def _read_history(history):
    return next(iter(record_of(history.operations, ANY, model_of("sequential")).readings()))


@pytest.mark.soak(keep=30)
@pytest.mark.parametrize("seed", range(300))
def test_known_versions_agree_with_search(seed):
    history = simulate_history(
        seed, operations=12, clients=3, versions=True, stale=seed % 4, shuffled=seed % 3 == 0
    )
    reading = _read_history(history)
    assert isinstance(reading, Reading)
    assert has_known_order(reading)
    for name in ONE_VIEW:
        model = model_of(name)
        view, edges = one_view(reading, model)
        budget = Budget(10.0, operations=len(reading.operations))
        assert (search(reading, model, budget) is not None) == (view is not None), name
        assert bool(edges) == (view is None), name
    for name in VIEWS:
        assert status(history, name) is not Status.UNKNOWN


@pytest.mark.soak(keep=10)
@pytest.mark.parametrize("seed", range(100))
def test_legal_history_stays_legal_without_versions(seed):
    history = simulate_history(seed, operations=10, clients=3, versions=True, stale=seed % 3)
    plain = History(
        replace(operation, content=Content(operation.content.value, None)) for operation in history
    )
    for name in MODELS:
        if status(history, name) is Status.OK:
            assert status(plain, name) is Status.OK, name


@examples(150)
@given(histories(max_operations=8), st.sampled_from(list(MODELS)))
def test_counterexamples_are_minimal(history, name):
    verdict = check(history, name)
    if verdict.status is not Status.ILLEGAL:
        return
    operations = verdict.explanation.operations
    assert verdict.explanation.is_smallest
    assert status(History(operations), name) is Status.ILLEGAL
    for operation in operations:
        fewer = without(operations, [operation], ANY, model_of(name))
        assert len(fewer) < len(operations)
        assert not fewer or status(History(fewer), name) is Status.OK
        if len(fewer) <= 6 and any(other.outcome != "pending" for other in fewer):
            assert satisfies(fewer, name)


@examples(60)
@given(histories(max_operations=8))
def test_read_without_write_is_reported_only_for_orphan_reads(history):
    for name in MODELS:
        if check(history, name).explanation.kind == "read without its write":
            assert record_of(history.operations, ANY, model_of(name)).orphans(), name


@examples(100)
@given(histories(max_operations=8))
def test_history_round_trips_through_json(history):
    assert History.from_json(history.to_json()) == history
