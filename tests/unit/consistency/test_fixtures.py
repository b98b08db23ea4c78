"""Verdicts of literal histories under every model."""

from __future__ import annotations

import pytest
from consistency_fixtures import CODES, FIXTURES
from consistency_oracle import find_view_error, satisfies

from mudkit.consistency import MODELS, History, Status, check, implied_models
from mudkit.consistency.models import Form

ALL_TYPES = ["uncommitted", "committed", "committed_wio"]


def test_fixtures_are_unique_and_cover_every_model():
    assert len(FIXTURES) >= 60
    for attribute in ("name", "text"):
        assert len({getattr(fixture, attribute) for fixture in FIXTURES}) == len(FIXTURES)
    assert set(CODES.values()) == set(MODELS)
    for model in MODELS:
        assert 10 <= sum(fixture.legal(model) for fixture in FIXTURES) <= len(FIXTURES) - 5, model
    assert len({fixture.source.split(",")[0].split(" and")[0] for fixture in FIXTURES}) >= 7


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_fixture_under_every_model(fixture):
    for model in MODELS:
        assert_stated_verdict(fixture, model)


def assert_stated_verdict(fixture, model):
    verdict = check(History.parse(fixture.text), model, reads=ALL_TYPES)
    expected = Status.OK if fixture.legal(model) else Status.ILLEGAL
    assert verdict.status == expected, f"{verdict}\n{fixture.why}"
    if not fixture.legal(model):
        assert verdict.explanation.operations
        assert verdict.explanation.is_smallest
        repeated = check(History(verdict.explanation.operations), model, reads=ALL_TYPES)
        assert repeated.status == Status.ILLEGAL
    elif MODELS[model].form is not Form.WRITE_ORDER and not MODELS[model].retracts:
        assert find_view_error(list(verdict.history), verdict.views["x"], model) is None


def test_fixtures_respect_implications_of_models():
    for fixture in FIXTURES:
        for model in MODELS:
            if fixture.legal(model):
                assert all(fixture.legal(weaker) for weaker in implied_models(model)), (fixture.name, model)


def test_oracle_agrees_with_fixtures():
    for fixture in FIXTURES:
        operations = list(History.parse(fixture.text))
        for model in MODELS if len(operations) <= 7 else ():
            assert satisfies(operations, model) == fixture.legal(model), (fixture.name, model)


def test_fork_sequential_differs_only_with_conditional_writes():
    """Check that histories fork only with conditions: branches of blind writes can be concatenated."""
    for fixture in FIXTURES:
        if fixture.legal("fork-sequential") and not fixture.legal("sequential"):
            assert any(operation.expected is not None for operation in History.parse(fixture.text)), (
                fixture.name
            )
