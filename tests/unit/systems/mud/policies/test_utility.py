"""Utilities, and the choice of the best plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.systems.mud.policies.utility import (
    Plan,
    Utility,
    bandwidth,
    best,
    bias,
    completeness,
    cost_matrix,
    energy,
    freshness,
    latency,
)


def compute_utility(utility, plan):
    return utility.value(plan) - utility.cost(plan)


FRESH, STALE = Plan("local", 599.9, 0.0), Plan("local", 600.0, 0.0)
REMOTE, OFFLINE = Plan("remote", 0.0, 0.3), Plan("remote", 0.0, 3600.0)


class _Cheap(Utility):
    def value(self, plan):
        return 1.0

    def cost(self, plan):
        return plan.age_s


PENDING, TWO, ONE = Plan("local", -1e-6, 0.0), Plan("local", 2.0, 0.0), Plan("local", 1.0, 0.0)


@pytest.mark.parametrize(("plans", "utility", "chosen"), [
    ([FRESH, REMOTE], freshness(600), FRESH), ([STALE, REMOTE], freshness(600), REMOTE),
    ([STALE, OFFLINE], freshness(600), OFFLINE),  # waits for the network rather than answer with stale data
    ([Plan("local", 0.0, 0.0), REMOTE], freshness(0), REMOTE),  # nothing committed is fresh enough
    ([PENDING, REMOTE], freshness(0), PENDING), ([OFFLINE, REMOTE], freshness(10), REMOTE),
    ([ONE, TWO], freshness(10), ONE), ([TWO, ONE], freshness(10), TWO),  # the first of equals
    ([STALE, REMOTE, FRESH], _Cheap(), REMOTE),
])  # fmt: skip
def test_best_is_the_plan_with_the_highest_utility(plans, utility, chosen):
    assert best(plans, utility) is chosen


def test_cost_of_freshness_is_the_latency():
    assert [freshness(10).cost(plan) for plan in (FRESH, REMOTE, OFFLINE)] == [0.0, 0.3, 3600.0]


plans = st.builds(Plan, st.sampled_from(["local", "remote"]), st.floats(0, 1e6), st.floats(0, 1e5))


@given(st.lists(plans, min_size=1), st.floats(0, 1e6))
def test_no_plan_has_a_higher_utility_than_the_best(candidates, age_s):
    utility = freshness(age_s)
    chosen = best(candidates, utility)
    max_utility = utility.value(chosen) - utility.cost(chosen)
    assert all(utility.value(plan) - utility.cost(plan) <= max_utility for plan in candidates)
    if any(plan.source == "remote" or plan.age_s < age_s for plan in candidates):
        assert chosen.source == "remote" or chosen.age_s < age_s


PLAN = Plan("remote", 0.0, 2.0, 0.5, 0.25, 0.75, size_kb=4.0, radio_mj=8000.0)


@pytest.mark.parametrize(("utility", "expected"), [
    (latency(), -2.0), (latency(3.0), -6.0), (bandwidth(0.5), -2.0), (energy(0.5), -4.0), (bias(8.0), -2.0),
    (completeness(10.0), 5.0), (completeness(10.0, min_share=0.5), 5.0), (completeness(10.0, min_share=0.51), 0.0),
    (cost_matrix(100.0, 8.0), -2.0), (freshness(10), 1e9 - 2.0),
])  # fmt: skip
def test_each_utility_depends_on_its_own_fields(utility, expected):
    assert compute_utility(utility, PLAN) == pytest.approx(expected)


def test_cost_matrix_charges_wrong_decisions():
    local = Plan("local", 60.0, 0.0, changed_share=0.75)
    assert compute_utility(cost_matrix(100.0, 8.0), local) == -75.0
    assert compute_utility(cost_matrix(100.0, 8.0), Plan("wait", 0.0, 60.0, changed_share=0.75)) == -2.0


@given(plans, st.floats(0, 100), st.floats(0, 100))
def test_utilities_are_added_and_scaled(plan, one, other):
    both = freshness(60) + 3 * energy(one) + bandwidth(other) * 2
    parts = [freshness(60), energy(3 * one), bandwidth(2 * other)]
    assert compute_utility(both, plan) == pytest.approx(
        sum(compute_utility(part, plan) for part in parts), abs=1e-5
    )


def test_sum_weighs_completeness_if_a_part_does():
    assert not (freshness(60) + 2 * energy(1.0)).weighs_completeness
    assert (freshness(60) + 2 * (energy(1.0) + completeness())).weighs_completeness


BAD_COSTS = (-1, float("nan"), "1", None, True)
REFUSALS = [
    *((freshness, age_s, ParameterError, "max_age_s") for age_s in (*BAD_COSTS, float("inf"))),
    *((make, value, ParameterError, ".") for make in (latency, bandwidth, energy, bias, completeness) for value in BAD_COSTS),
    (lambda cost: cost_matrix(cost, cost), 0, ParameterError, "stale_s, unnecessary_s"),
    (lambda factor: freshness(60) * factor, -1, ParameterError, "factor"),
    (lambda other: freshness(60) + other, 3, TypeError, "."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "argument", "error", "message"), REFUSALS)
def test_unusable_arguments_are_refused_in_words(call, argument, error, message):
    with pytest.raises(error, match=message):
        call(argument)


@pytest.mark.parametrize(
    "utility",
    [freshness(60), freshness(0), completeness(), latency(), freshness(60) + energy(1.0), 2 * freshness(60)],
)
@pytest.mark.parametrize("age_s", [0.0, 59.9, 60.0, 1e6])
def test_best_answers_reach_the_upper_bound_of_the_utility(utility, age_s):
    local = Plan("local", age_s, 0.0)
    if utility.is_best(age_s):
        assert utility.value(local) - utility.cost(local) >= utility.most
    assert freshness(60).is_best(age_s) == (age_s < 60)


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_bound_of_a_weighted_utility_is_weighted(factor):
    assert (factor * freshness(60)).most == factor * freshness(60).most > 0
