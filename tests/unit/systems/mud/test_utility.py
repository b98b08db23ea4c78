"""Utilities, and the plan that is worth most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.systems.mud.utility import Plan, best, freshness

FRESH, STALE = Plan("local", 599.9, 0.0), Plan("local", 600.0, 0.0)
REMOTE, OFFLINE = Plan("remote", 0.0, 0.3), Plan("remote", 0.0, 3600.0)


def test_what_is_fresh_is_taken_from_here():
    assert best([FRESH, REMOTE], freshness(600)) is FRESH


def test_what_is_not_fresh_is_asked_for():
    assert best([STALE, REMOTE], freshness(600)) is REMOTE


def test_it_waits_for_the_network_rather_than_answer_with_what_is_stale():
    assert best([STALE, OFFLINE], freshness(600)) is OFFLINE


def test_with_age_zero_nothing_committed_is_fresh():
    assert best([Plan("local", 0.0, 0.0), REMOTE], freshness(0)) is REMOTE
    assert best([Plan("local", -1e-6, 0.0), REMOTE], freshness(0)) == Plan("local", -1e-6, 0.0)


def test_waiting_costs_what_it_takes():
    utility = freshness(10)
    assert [utility.cost(plan) for plan in (FRESH, REMOTE, OFFLINE)] == [0.0, 0.3, 3600.0]
    assert best([OFFLINE, REMOTE], utility) is REMOTE


def test_of_equals_the_first_is_taken():
    plans = [Plan("local", 1.0, 0.0), Plan("local", 2.0, 0.0)]
    assert best(plans, freshness(10)) is plans[0]
    assert best(plans[::-1], freshness(10)) is plans[1]


class _Cheap:
    def value(self, plan):
        return 1.0

    def cost(self, plan):
        return plan.age_s


def test_a_utility_of_ones_own():
    assert best([STALE, REMOTE, FRESH], _Cheap()) is REMOTE


plans = st.builds(Plan, st.sampled_from(["local", "remote"]), st.floats(0, 1e6), st.floats(0, 1e5))


@given(st.lists(plans, min_size=1), st.floats(0, 1e6))
def test_no_other_plan_is_worth_more(given_, age_s):
    utility = freshness(age_s)
    chosen = best(given_, utility)
    worth = utility.value(chosen) - utility.cost(chosen)
    assert all(utility.value(plan) - utility.cost(plan) <= worth for plan in given_)
    if any(plan.source == "remote" or plan.age_s < age_s for plan in given_):
        assert chosen.source == "remote" or chosen.age_s < age_s


@pytest.mark.parametrize("age_s", [-1, float("nan"), float("inf"), "600", None, True])
def test_an_age_that_is_none_is_refused(age_s):
    with pytest.raises(ParameterError, match="max_age_s"):
        freshness(age_s)
