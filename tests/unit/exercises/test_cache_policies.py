"""Judge of chapter 09: correct cache policies are accepted and likely mistakes rejected."""

import itertools

import numpy as np
import pytest
from judged import check_accepted, check_rejected, mark_soak

from mudkit.exercises import judge
from mudkit.exercises.cache_policies import ReadRequest, _Case, _lacking

CHAPTER = "09_cache_policies"


def contains(query, cached):
    aside = max(abs(query.x_km - cached.x_km), abs(query.y_km - cached.y_km))
    return aside + query.box_km / 2 <= cached.box_km / 2


def reaches_back(query, cached):
    return cached.at_s - cached.window_s <= query.at_s - query.window_s


def solution(query, cache, limit_s):
    for cached in cache:
        if query.at_s - cached.at_s <= limit_s and contains(query, cached) and reaches_back(query, cached):
            return "local"
    return "remote"


def test_solution_passes():
    check_accepted(CHAPTER, solution)


def decide_by(*tests):
    def decide(query, cache, limit_s):
        return (
            "local"
            if any(all(test(query, cached, limit_s) for test in tests) for cached in cache)
            else "remote"
        )

    return decide


def is_recent(query, cached, limit_s):
    return query.at_s - cached.at_s <= limit_s


def is_inside(query, cached, limit_s):
    return contains(query, cached)


def has_window(query, cached, limit_s):
    return reaches_back(query, cached)


def is_near(query, cached, limit_s):
    return np.hypot(query.x_km - cached.x_km, query.y_km - cached.y_km) <= 1.0


WRONG = {
    "always": (lambda query, cache, limit_s: "remote", "it asks the server, although the answer"),
    "never": (lambda query, cache, limit_s: "local", "nothing is in the cache"),
    "whatever is cached": (decide_by(lambda *_: True), "would be missing"),
    "the fixed rule": (decide_by(is_recent, is_near), "would be missing"),
    "sees no age": (decide_by(is_inside, has_window), "written after that answer"),
    "sees no box": (decide_by(is_recent, has_window), "outside the box of that answer"),
    "sees no window": (decide_by(is_recent, is_inside), "older than the window of that answer"),
    "the middle is inside": (
        decide_by(
            is_recent,
            has_window,
            lambda q, c, _: max(abs(q.x_km - c.x_km), abs(q.y_km - c.y_km)) <= c.box_km / 2,
        ),
        "outside the box of that answer",
    ),
    "east only": (
        decide_by(is_recent, has_window, lambda q, c, _: abs(q.x_km - c.x_km) + q.box_km / 2 <= c.box_km / 2),
        "outside the box of that answer",
    ),
    "a circle": (
        decide_by(
            is_recent,
            has_window,
            lambda q, c, _: np.hypot(q.x_km - c.x_km, q.y_km - c.y_km) + q.box_km / 2 <= c.box_km / 2,
        ),
        "it asks the server",
    ),
    "the same window": (
        decide_by(is_recent, is_inside, lambda q, c, _: c.window_s >= q.window_s),
        "it asks the server",
    ),
    "younger than the limit only": (
        decide_by(lambda q, c, limit_s: q.at_s - c.at_s < limit_s, is_inside, has_window),
        "it asks the server",
    ),
    "older than the limit by a second": (
        decide_by(lambda q, c, limit_s: q.at_s - c.at_s <= limit_s + 1, is_inside, has_window),
        "written after that answer",
    ),
    "a box short by 100 m": (
        decide_by(is_recent, has_window, lambda q, c, _: contains(q, c._replace(box_km=c.box_km + 0.1))),
        "outside the box of that answer",
    ),
    "older than the limit by half a second": (
        decide_by(lambda q, c, limit_s: q.at_s - c.at_s <= limit_s + 0.5, is_inside, has_window),
        "written after that answer",
    ),
    "older than the limit by a quarter of a second": (
        decide_by(lambda q, c, limit_s: q.at_s - c.at_s <= limit_s + 0.25, is_inside, has_window),
        "written after that answer",
    ),
    "the middle of the query is fixed": (
        decide_by(is_recent, has_window, lambda q, c, _: contains(q._replace(x_km=0.0, y_km=0.0), c)),
        "",
    ),
    "a window short by a second": (
        decide_by(is_recent, is_inside, lambda q, c, _: c.at_s - c.window_s <= q.at_s - q.window_s + 1),
        "older than the window of that answer",
    ),
    "the same place only": (
        decide_by(is_recent, has_window, is_inside, lambda q, c, _: (q.x_km, q.y_km) == (c.x_km, c.y_km)),
        "it asks the server",
    ),
    "the newest only": (lambda q, cache, limit_s: solution(q, cache[-1:], limit_s), "it asks the server"),
    "the oldest only": (lambda q, cache, limit_s: solution(q, cache[:1], limit_s), "it asks the server"),
    "two halves": (
        lambda q, cache, limit_s: (
            "local"
            if all(any(test(q, c, limit_s) for c in cache) for test in (is_recent, is_inside, has_window))
            else "remote"
        ),
        "would be missing",
    ),
    "a truth value": (lambda query, cache, limit_s: bool(cache), "neither 'local' nor 'remote'"),
    "nothing": (lambda query, cache, limit_s: None, "returned None; expected 'local' or 'remote'"),
    "raises": (lambda query, cache, limit_s: cache[0].at_s and "local", "it raises IndexError"),
}


@pytest.mark.parametrize(
    ("piece", "problem"),
    mark_soak(
        WRONG,
        "a box short by 100 m",
        "the middle of the query is fixed",
        "older than the limit by half a second",
        "two halves",
    ),
)
def test_judge_rejects(piece, problem):
    verdict = check_rejected(CHAPTER, piece, problem)
    assert verdict.failure.scenario.startswith("the limit is ")
    figure = verdict.diagram()
    assert figure.data[-1].name == "may be missing" or "would be missing" not in verdict.failure.problem
    assert any("query, of" in str(trace.name) for trace in figure.data)


def test_failure_is_the_simplest_scenario():
    failure = judge(CHAPTER, lambda query, cache, limit_s: "local").failure
    assert failure.scenario == str(_Case(ReadRequest(36_000.0, 0.0, 0.0, 10.0, 7200.0), (), 600.0))


def has_point(read, x_km, y_km, at_s):
    """Check by the definition whether an answer contains a point."""
    half = read.box_km / 2
    inside = (abs(x_km - read.x_km) <= half) & (abs(y_km - read.y_km) <= half)
    return inside & (at_s <= read.at_s) & (at_s > read.at_s - read.window_s)


def test_lacking_points_match_the_definition():
    """Compare on all points of a fine grid of places and times, for all combinations of edges."""
    query, limit_s = ReadRequest(1000.0, 0.0, 0.0, 4.0, 400.0), 100.0
    place = np.arange(-8, 8.1, 0.5)
    x, y, at_s = np.meshgrid(place, place, np.arange(300.0, 1000.1, 50.0), indexing="ij")
    required = has_point(query, x, y, at_s) & (at_s <= query.at_s - limit_s)
    reasons = set()
    for age_s, east, north, box_km, window_s in itertools.product(
        (50.0, 100.0, 150.0), (0.0, 1.0, 1.5), (0.0, -1.0), (3.0, 4.0, 6.0), (250.0, 300.0, 350.0, 600.0)
    ):
        cached = ReadRequest(query.at_s - age_s, east, north, box_km, window_s)
        lacks = required & ~has_point(cached, x, y, at_s)
        lacking = _lacking(query, cached, limit_s)
        assert (lacking is not None) == lacks.any(), cached
        if lacking is not None:
            point = (lacking.x_km, lacking.y_km, lacking.at_s)
            assert has_point(query, *point), cached
            assert not has_point(cached, *point), cached
            assert lacking.at_s <= query.at_s - limit_s
        reasons.add(None if lacking is None else lacking.why)
    assert len(reasons) == 4
