"""The judge of chapter 09 tells policies that are never stale from mistakes that are likely, in the right words."""

import itertools

import numpy as np
import pytest
from judged import accepted, most_telling, rejected

from mudkit.exercises import judge
from mudkit.exercises.cache_policies import ReadRequest, _Case, _lacking

CHAPTER = "09_cache_policies"


def contains(query, each):
    aside = max(abs(query.x_km - each.x_km), abs(query.y_km - each.y_km))
    return aside + query.box_km / 2 <= each.box_km / 2


def reaches_back(query, each):
    return each.at_s - each.window_s <= query.at_s - query.window_s


def solution(query, cache, limit_s):
    for each in cache:
        if query.at_s - each.at_s <= limit_s and contains(query, each) and reaches_back(query, each):
            return "local"
    return "remote"


def test_the_solution_passes():
    accepted(CHAPTER, solution)


def by(*tests):
    def decide(query, cache, limit_s):
        return (
            "local" if any(all(test(query, each, limit_s) for test in tests) for each in cache) else "remote"
        )

    return decide


def recent(query, each, limit_s):
    return query.at_s - each.at_s <= limit_s


def around(query, each, limit_s):
    return contains(query, each)


def back(query, each, limit_s):
    return reaches_back(query, each)


def near(query, each, limit_s):
    return np.hypot(query.x_km - each.x_km, query.y_km - each.y_km) <= 1.0


WRONG = {
    "always": (lambda query, cache, limit_s: "remote", "it asks the server, although the answer"),
    "never": (lambda query, cache, limit_s: "local", "nothing is in the cache"),
    "whatever is cached": (by(lambda *_: True), "would be missing"),
    "the fixed rule": (by(recent, near), "would be missing"),
    "sees no age": (by(around, back), "written after that answer"),
    "sees no box": (by(recent, back), "outside the box of that answer"),
    "sees no window": (by(recent, around), "older than the window of that answer"),
    "the middle is inside": (
        by(recent, back, lambda q, c, _: max(abs(q.x_km - c.x_km), abs(q.y_km - c.y_km)) <= c.box_km / 2),
        "outside the box of that answer",
    ),
    "east only": (
        by(recent, back, lambda q, c, _: abs(q.x_km - c.x_km) + q.box_km / 2 <= c.box_km / 2),
        "outside the box of that answer",
    ),
    "a circle": (
        by(
            recent,
            back,
            lambda q, c, _: np.hypot(q.x_km - c.x_km, q.y_km - c.y_km) + q.box_km / 2 <= c.box_km / 2,
        ),
        "it asks the server",
    ),
    "the same window": (
        by(recent, around, lambda q, c, _: c.window_s >= q.window_s),
        "it asks the server",
    ),
    "younger than the limit only": (
        by(lambda q, c, limit_s: q.at_s - c.at_s < limit_s, around, back),
        "it asks the server",
    ),
    "the same place only": (
        by(recent, back, around, lambda q, c, _: (q.x_km, q.y_km) == (c.x_km, c.y_km)),
        "it asks the server",
    ),
    "the newest only": (lambda q, cache, limit_s: solution(q, cache[-1:], limit_s), "it asks the server"),
    "the oldest only": (lambda q, cache, limit_s: solution(q, cache[:1], limit_s), "it asks the server"),
    "two halves": (
        lambda q, cache, limit_s: (
            "local"
            if all(any(test(q, c, limit_s) for c in cache) for test in (recent, around, back))
            else "remote"
        ),
        "would be missing",
    ),
    "a truth value": (lambda query, cache, limit_s: bool(cache), "neither 'local' nor 'remote'"),
    "nothing": (lambda query, cache, limit_s: None, "returned None; expected 'local' or 'remote'"),
    "raises": (lambda query, cache, limit_s: cache[0].at_s and "local", "it raises IndexError"),
}


@pytest.mark.parametrize(
    ("piece", "problem"), most_telling(WRONG, "whatever is cached", "two halves", "the newest only")
)
def test_judge_rejects(piece, problem):
    verdict = rejected(CHAPTER, piece, problem)
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
    seen = set()
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
        seen.add(None if lacking is None else lacking.why)
    assert len(seen) == 4
