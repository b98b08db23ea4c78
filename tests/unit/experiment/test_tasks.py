"""A want says the same in every system's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.experiment import TASKS, Interest
from mudkit.experiment.tasks import listed
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
def test_every_form_of_a_want_says_the_same(task, about, me):
    want = task.interest
    expected = want.holds(about, me)
    assert (want.over_items(me)(about) is True) == expected
    assert (Predicate(want.as_text(me))(about) is True) == expected
    state = {**me, "loc": me["loc"] and dict(zip(("lat", "lon"), me["loc"], strict=True))}
    others = Rule(f"coalesce(NOT ({want.over_state()}), TRUE)", Drop())
    decided = Policy("wanted", [others, Rule()], variables=state).decide(about, state, {})
    assert (decided.out is not None) == expected


def test_what_a_want_depends_on():
    want = Interest("contains(me.friends, item.who) AND within_km(item.loc, me.loc, 2)")
    assert (want.of_item, want.of_me, want.uses_place) == ({"who", "loc"}, {"friends", "loc"}, True)
    assert not Interest("item.rank > 3").uses_place
