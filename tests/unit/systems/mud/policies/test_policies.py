"""Cache policies: what is answered here, and what is written later."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.predicates import Predicate
from mudkit.systems.mud.policies.policies import (
    NEVER,
    AlwaysRemote,
    Cached,
    Freshness,
    NearAndRecent,
    Now,
    Query,
)

AUSTIN, NEARBY, FAR = (30.27, -97.74), (30.275, -97.74), (30.29, -97.74)


def asked(table="spots", loc=None):
    return Query(table, Predicate("n > 1"), "committed", {} if loc is None else {"loc": loc}, None)


def cached(age_s, table="spots", loc=None, context=None):
    return Cached(asked(table, loc), age_s, context or {})


def test_always_remote_asks_whatever_is_cached():
    assert AlwaysRemote().decide(asked(), {}, [cached(0.0)]) == "remote"


@pytest.mark.parametrize(("ages", "expected"), [
    ([], "remote"), ([59.9], "local"), ([60.0], "remote"), ([3600.0, 1.0], "local"), ([61.0, 3600.0], "remote"),
])  # fmt: skip
def test_freshness_is_of_the_youngest_answer(ages, expected):
    assert Freshness(60).decide(asked(), {}, [cached(age_s) for age_s in ages]) == expected


def test_freshness_is_of_the_same_table():
    assert Freshness(60).decide(asked(), {}, [cached(1.0, table="news")]) == "remote"


@pytest.mark.parametrize("age_s", [-1, float("nan"), "60", None])
def test_freshness_has_an_age(age_s):
    with pytest.raises(ParameterError, match="max_age_s"):
        Freshness(age_s)


@pytest.mark.parametrize(("here", "there", "age_s", "expected"), [
    (AUSTIN, AUSTIN, 599.9, "local"), (AUSTIN, NEARBY, 10.0, "local"), (AUSTIN, FAR, 10.0, "remote"),
    (AUSTIN, AUSTIN, 600.0, "remote"), (None, AUSTIN, 10.0, "remote"), (AUSTIN, None, 10.0, "remote"),
    (None, None, 10.0, "remote"), (list(AUSTIN), list(NEARBY), 10.0, "local"),
])  # fmt: skip
def test_near_and_recent(here, there, age_s, expected):
    assert NearAndRecent().decide(asked(loc=here), {}, [cached(age_s, loc=there)]) == expected


def test_a_place_is_a_pair_or_has_lat_and_lon():
    here, there = ({"lat": lat, "lon": lon} for lat, lon in (AUSTIN, NEARBY))
    assert NearAndRecent().decide(asked(loc=here), {}, [cached(10.0, loc=NEARBY)]) == "local"
    assert NearAndRecent().decide(asked(loc=AUSTIN), {}, [cached(10.0, loc=there)]) == "local"
    assert NearAndRecent().decide(asked(loc={"lat": 0, "lon": 0}), {}, [cached(10.0, loc=there)]) == "remote"


def test_a_place_that_is_none_is_nowhere():
    assert NearAndRecent().decide(asked(loc="downtown"), {}, [cached(10.0, loc=AUSTIN)]) == "remote"


def test_the_context_says_where_a_reader_is_who_does_not():
    near = [cached(10.0, context={"loc": AUSTIN})]
    assert NearAndRecent().decide(asked(), {"loc": NEARBY}, near) == "local"
    assert NearAndRecent().decide(asked(), {"loc": FAR}, near) == "remote"
    assert NearAndRecent().decide(asked(loc=FAR), {"loc": NEARBY}, near) == "remote"


def test_near_and_recent_looks_for_one_that_is_both():
    both = [cached(10.0, loc=FAR), cached(900.0, loc=AUSTIN)]
    assert NearAndRecent().decide(asked(loc=AUSTIN), {}, both) == "remote"
    assert NearAndRecent().decide(asked(loc=AUSTIN), {}, [*both, cached(500.0, loc=NEARBY)]) == "local"
    other = [cached(10.0, table="news", loc=AUSTIN)]
    assert NearAndRecent().decide(asked(loc=AUSTIN), {}, other) == "remote"


def test_near_and_recent_has_bounds_of_ones_own():
    far = [cached(700.0, loc=FAR)]
    assert NearAndRecent(within_km=5.0, within_s=800.0).decide(asked(loc=AUSTIN), {}, far) == "local"
    assert NearAndRecent(within_km=5.0).decide(asked(loc=AUSTIN), {}, far) == "remote"


def test_now_delays_nothing():
    assert Now().delay({"key": "a"}, {}) is None
    assert NEVER == "never"
