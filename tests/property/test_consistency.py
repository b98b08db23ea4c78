"""The checker against an oracle that tries everything, and against itself.

``python tests/support/against_oracle.py 0 100000`` is the large form of the first test.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from against_oracle import differences
from consistency_oracle import meets, views_hold
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from random_histories import recorded, seeded, small

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
def histories(draw, most=6):
    return small(lambda options: draw(st.sampled_from(list(options))), most)


def status(history, model):
    return judge(history.operations, ANY, model_of(model), Budget(10.0, 300)).status


def test_the_oracle_says_the_same(scaled):
    for seed in range(scaled(2500, 250)):
        assert not differences(seeded(seed)), seed


@examples(200)
@given(histories())
def test_the_oracle_says_the_same_of_what_hypothesis_draws(history):
    if any(each.outcome != "pending" for each in history):
        assert not differences(history)


@examples(300)
@given(histories(most=5), histories(most=3))
def test_what_begins_when_all_is_over_makes_nothing_legal_in_real_time(history, later):
    """Nobody can have seen, expected or found what did not begin before the own answer."""
    if any(each.outcome == "pending" for each in history):
        return
    end_us = max((each.answered_us or 0 for each in history), default=0) + 1
    moved = [
        replace(
            each,
            op_id=each.op_id + 100,
            invoked_us=each.invoked_us + end_us,
            answered_us=None if each.answered_us is None else each.answered_us + end_us,
            content=Content(each.content.value),
            expected=None,
            actual=None,
        )
        for each in later
    ]
    if status(history, "linearizable") is Status.ILLEGAL:
        assert status(History([*history, *moved]), "linearizable") is not Status.OK


@examples(300)
@given(histories(most=9))
def test_implications(history):
    result = {name: status(history, name) for name in MODELS}
    for name in MODELS:
        if result[name] is Status.OK:
            assert all(result[weaker] is Status.OK for weaker in implied_models(name)), name


@pytest.mark.soak(keep=8)
@pytest.mark.parametrize("seed", range(40))
def test_views_hold_by_the_definitions(seed):
    """Histories too long for the oracle, of a store that keeps some promises: its views are checked one by one."""
    history = recorded(
        seed, operations=40, clients=4, versions=seed % 2 == 0, stale=seed % 3, forks=seed % 5 == 0
    )
    for name in VIEWS:
        result = judge(history.operations, ANY, model_of(name), Budget(2.0, 300))
        if result.status is Status.OK and not model_of(name).retracts:
            assert views_hold(list(history), result.views, name) is None


def _reading(history):
    return next(iter(record_of(history.operations, ANY, model_of("sequential")).readings()))


@pytest.mark.soak(keep=30)
@pytest.mark.parametrize("seed", range(300))
def test_known_versions_and_the_search_say_the_same(seed):
    history = recorded(seed, operations=12, clients=3, versions=True, stale=seed % 4, shuffled=seed % 3 == 0)
    reading = _reading(history)
    assert isinstance(reading, Reading)
    assert has_known_order(reading)
    for name in ONE_VIEW:
        model = model_of(name)
        view, edges = one_view(reading, model)
        assert (search(reading, model, Budget(10.0, 300)) is not None) == (view is not None), name
        assert bool(edges) == (view is None), name
    for name in VIEWS:
        assert status(history, name) is not Status.UNKNOWN


@pytest.mark.soak(keep=10)
@pytest.mark.parametrize("seed", range(100))
def test_what_is_legal_with_versions_is_legal_without(seed):
    history = recorded(seed, operations=10, clients=3, versions=True, stale=seed % 3)
    plain = History(replace(each, content=Content(each.content.value, None)) for each in history)
    for name in MODELS:
        if status(history, name) is Status.OK:
            assert status(plain, name) is Status.OK, name


@examples(150)
@given(histories(most=8), st.sampled_from(list(MODELS)))
def test_counterexamples_cannot_be_made_smaller(history, name):
    verdict = check(history, name)
    if verdict.status is not Status.ILLEGAL:
        return
    operations = verdict.explanation.operations
    assert verdict.explanation.is_smallest
    assert status(History(operations), name) is Status.ILLEGAL
    for each in operations:
        fewer = without(operations, [each], ANY, model_of(name))
        assert len(fewer) < len(operations)
        assert not fewer or status(History(fewer), name) is Status.OK
        if len(fewer) <= 6 and any(one.outcome != "pending" for one in fewer):
            assert meets(fewer, name)


@examples(150)
@given(histories(most=8))
def test_an_unwritten_read_is_an_anomaly_only_if_the_whole_history_has_one(history):
    for name in MODELS:
        if check(history, name).explanation.kind == "read without its write":
            assert record_of(history.operations, ANY, model_of(name)).orphans(), name


@examples(100)
@given(histories(most=8))
def test_json_and_back(history):
    assert History.from_json(history.to_json()) == history
