"""Literal histories under every model."""

from __future__ import annotations

import pytest
from consistency_fixtures import CODES, FIXTURES
from consistency_oracle import meets, views_hold

from mudkit.consistency import MODELS, History, Status, check, implied_models
from mudkit.consistency.models import Form

ALL_TYPES = ["uncommitted", "committed", "committed_wio"]


def test_there_are_enough_and_every_model_is_met_and_not_met():
    assert len(FIXTURES) >= 60
    for each in ("name", "text"):
        assert len({getattr(fixture, each) for fixture in FIXTURES}) == len(FIXTURES)
    assert set(CODES.values()) == set(MODELS)
    for model in MODELS:
        assert 10 <= sum(fixture.legal(model) for fixture in FIXTURES) <= len(FIXTURES) - 5, model
    assert len({fixture.source.split(",")[0].split(" and")[0] for fixture in FIXTURES}) >= 7


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_a_fixture_under_every_model(fixture):
    for model in MODELS:
        assert_as_stated(fixture, model)


def assert_as_stated(fixture, model):
    verdict = check(History.parse(fixture.text), model, reads=ALL_TYPES)
    expected = Status.OK if fixture.legal(model) else Status.ILLEGAL
    assert verdict.status == expected, f"{verdict}\n{fixture.why}"
    if not fixture.legal(model):
        assert verdict.explanation.operations
        assert verdict.explanation.is_smallest
        again = check(History(verdict.explanation.operations), model, reads=ALL_TYPES)
        assert again.status == Status.ILLEGAL
    elif MODELS[model].form is not Form.WRITE_ORDER and not MODELS[model].retracts:
        assert views_hold(list(verdict.history), verdict.views["x"], model) is None


def test_the_table_keeps_the_implications():
    for fixture in FIXTURES:
        for model in MODELS:
            if fixture.legal(model):
                assert all(fixture.legal(weaker) for weaker in implied_models(model)), (fixture.name, model)


def test_the_oracle_agrees():
    for fixture in FIXTURES:
        operations = list(History.parse(fixture.text))
        for model in MODELS if len(operations) <= 7 else ():
            assert meets(operations, model) == fixture.legal(model), (fixture.name, model)


def test_fork_sequential_differs_only_where_there_are_conditions():
    """Branches that begin with blind writes can be laid one after the other."""
    for fixture in FIXTURES:
        if fixture.legal("fork-sequential") and not fixture.legal("sequential"):
            assert any(each.expected is not None for each in History.parse(fixture.text)), fixture.name
