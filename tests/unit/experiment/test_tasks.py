"""Interests: equivalence of their forms for the systems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.experiment import TASKS, Interest
from mudkit.experiment.tasks import _friends, listed
from mudkit.predicates import Predicate
from mudkit.systems.sublim import Policy, Rule
from mudkit.systems.sublim._policy.actions import Drop

_names = st.sampled_from(["a", "b", "it's"])
_lists = st.lists(_names, max_size=3).map(listed)
_places = st.tuples(st.floats(30.0, 30.1), st.floats(-97.1, -97.0))
_about = st.fixed_dictionaries(
    {
        "who": _names,
        "loc": _places,
        "pulse": st.integers(30, 70),
        "subject": _names,
        "rank": st.floats(0, 5),
        "tag": _lists,
    }
)
_me = st.fixed_dictionaries(
    {
        "loc": st.none() | _places,
        "friends": _lists,
        "patients": _lists,
        "subjects": _lists,
        "least": st.floats(0, 5),
        "tags": _lists,
    }
)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
@given(about=_about, me=_me)
def test_all_forms_of_an_interest_agree(task, about, me):
    interest = task.interest
    expected = interest.holds(about, me)
    assert (interest.over_items(me)(about) is True) == expected
    assert (Predicate(interest.as_text(me))(about) is True) == expected
    state = {**me, "loc": me["loc"] and dict(zip(("lat", "lon"), me["loc"], strict=True))}
    others = Rule(f"coalesce(NOT ({interest.over_state()}), TRUE)", Drop())
    decided = Policy("wanted", [others, Rule()], variables=state).decide(about, state, {})
    assert (decided.out is not None) == expected


def test_interest_lists_its_attributes():
    interest = Interest("contains(me.friends, item.who) AND within_km(item.loc, me.loc, 2)")
    assert (interest.of_item, interest.of_me, interest.uses_place) == (
        {"who", "loc"},
        {"friends", "loc"},
        True,
    )
    assert not Interest("item.rank > 3").uses_place


def test_friends_are_those_beside_one_in_a_ring_and_a_few_from_anywhere():
    """Friendship is mutual, and of about six: two on each side, one from anywhere, and who drew one."""
    phones = [f"phone {number:02d}" for number in range(40)]
    friends = [{*drawn["friends"].split("|")} for drawn in _friends(3, phones, [])]
    for number, own in enumerate(friends):
        assert {phones[(number + step) % 40] for step in (-2, -1, 1, 2)} <= own
        assert phones[number] not in own
        assert all(phones[number] in friends[phones.index(other)] for other in own)
    assert 5 <= sum(map(len, friends)) / 40 <= 6
