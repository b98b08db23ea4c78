"""Cache policies: where reads are answered, and when writes are sent."""

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
    check_delay,
)

AUSTIN, NEARBY, FAR = (30.27, -97.74), (30.275, -97.74), (30.29, -97.74)


def create_query(table="spots", loc=None):
    return Query(table, Predicate("n > 1"), "committed", {} if loc is None else {"loc": loc}, None)


def create_cached(age_s, table="spots", loc=None, context=None):
    return Cached(create_query(table, loc), age_s, context or {})


def test_always_remote_ignores_the_cache():
    assert AlwaysRemote().decide(create_query(), {}, [create_cached(0.0)]) == "remote"


@pytest.mark.parametrize(("ages", "expected"), [
    ([], "remote"), ([59.9], "local"), ([60.0], "remote"), ([3600.0, 1.0], "local"), ([61.0, 3600.0], "remote"),
])  # fmt: skip
def test_freshness_depends_on_the_most_recent_answer(ages, expected):
    assert Freshness(60).decide(create_query(), {}, [create_cached(age_s) for age_s in ages]) == expected


def test_freshness_ignores_answers_about_other_tables():
    assert Freshness(60).decide(create_query(), {}, [create_cached(1.0, table="news")]) == "remote"


@pytest.mark.parametrize("age_s", [-1, float("nan"), "60", None])
def test_freshness_refuses_unusable_ages(age_s):
    with pytest.raises(ParameterError, match="max_age_s"):
        Freshness(age_s)


@pytest.mark.parametrize(("reader_loc", "cached_loc", "age_s", "expected"), [
    (AUSTIN, AUSTIN, 599.9, "local"), (AUSTIN, NEARBY, 10.0, "local"), (AUSTIN, FAR, 10.0, "remote"),
    (AUSTIN, AUSTIN, 600.0, "remote"), (None, AUSTIN, 10.0, "remote"), (AUSTIN, None, 10.0, "remote"),
    (None, None, 10.0, "remote"), (list(AUSTIN), list(NEARBY), 10.0, "local"),
])  # fmt: skip
def test_near_and_recent(reader_loc, cached_loc, age_s, expected):
    assert (
        NearAndRecent().decide(create_query(loc=reader_loc), {}, [create_cached(age_s, loc=cached_loc)])
        == expected
    )


def test_place_is_a_pair_or_has_lat_and_lon():
    reader_loc, cached_loc = ({"lat": lat, "lon": lon} for lat, lon in (AUSTIN, NEARBY))
    assert (
        NearAndRecent().decide(create_query(loc=reader_loc), {}, [create_cached(10.0, loc=NEARBY)]) == "local"
    )
    assert (
        NearAndRecent().decide(create_query(loc=AUSTIN), {}, [create_cached(10.0, loc=cached_loc)]) == "local"
    )
    assert (
        NearAndRecent().decide(
            create_query(loc={"lat": 0, "lon": 0}), {}, [create_cached(10.0, loc=cached_loc)]
        )
        == "remote"
    )


def test_unusable_place_is_never_near():
    assert (
        NearAndRecent().decide(create_query(loc="downtown"), {}, [create_cached(10.0, loc=AUSTIN)])
        == "remote"
    )


def test_context_gives_the_place_of_readers_without_one():
    near = [create_cached(10.0, context={"loc": AUSTIN})]
    assert NearAndRecent().decide(create_query(), {"loc": NEARBY}, near) == "local"
    assert NearAndRecent().decide(create_query(), {"loc": FAR}, near) == "remote"
    assert NearAndRecent().decide(create_query(loc=FAR), {"loc": NEARBY}, near) == "remote"


def test_near_and_recent_requires_one_answer_that_is_both():
    cache = [create_cached(10.0, loc=FAR), create_cached(900.0, loc=AUSTIN)]
    assert NearAndRecent().decide(create_query(loc=AUSTIN), {}, cache) == "remote"
    assert (
        NearAndRecent().decide(create_query(loc=AUSTIN), {}, [*cache, create_cached(500.0, loc=NEARBY)])
        == "local"
    )
    other = [create_cached(10.0, table="news", loc=AUSTIN)]
    assert NearAndRecent().decide(create_query(loc=AUSTIN), {}, other) == "remote"


def test_near_and_recent_accepts_other_bounds():
    far = [create_cached(700.0, loc=FAR)]
    assert NearAndRecent(within_km=5.0, within_s=800.0).decide(create_query(loc=AUSTIN), {}, far) == "local"
    assert NearAndRecent(within_km=5.0).decide(create_query(loc=AUSTIN), {}, far) == "remote"


@pytest.mark.parametrize(("decided", "delay"), [(None, None), ("never", NEVER), (0, 0.0), (2.5, 2.5)])
def test_delay_of_a_write_is_a_time_never_or_none(decided, delay):
    """See `WritePolicy.delay`: seconds, "never", or None, with which it is sent now."""
    assert check_delay(Now(), decided) == delay


def test_now_delays_no_write():
    assert Now().delay({"key": "a"}, {}) is None
    assert NEVER == "never"
