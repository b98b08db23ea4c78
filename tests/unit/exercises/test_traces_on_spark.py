"""The judge of chapter 08 tells labels of a read from mistakes that are likely."""

import pytest
from judged import accepted, most_telling, rejected

CHAPTER = "08_traces_on_spark"


def has(asked, point):
    aside = max(abs(point.x_km - asked.x_km), abs(point.y_km - asked.y_km))
    return asked.at_s - asked.window_s < point.at_s <= asked.at_s and aside <= asked.box_km / 2


def solution(points, query, cached):
    return sum(has(query, each) and not has(cached, each) for each in points)


def test_the_solution_passes():
    accepted(CHAPTER, solution)


def counted(has_query, has_cached):
    def missing(points, query, cached):
        return sum(has_query(query, each) and not has_cached(cached, each) for each in points)

    return missing


def closed(asked, point):
    return has(asked, point) or (
        point.at_s == asked.at_s - asked.window_s and has(asked, point._replace(at_s=asked.at_s))
    )


def open_at_the_end(asked, point):
    return has(asked, point) and point.at_s < asked.at_s


def without_the_edge(asked, point):
    aside = max(abs(point.x_km - asked.x_km), abs(point.y_km - asked.y_km))
    return has(asked, point) and 2 * aside < asked.box_km


def in_a_circle(asked, point):
    far = (point.x_km - asked.x_km) ** 2 + (point.y_km - asked.y_km) ** 2
    return has(asked, point) and far <= (asked.box_km / 2) ** 2


def in_the_window_only(asked, point):
    return has(asked, point._replace(x_km=asked.x_km, y_km=asked.y_km))


def in_the_box_only(asked, point):
    return has(asked, point._replace(at_s=asked.at_s))


def with_the_future(asked, point):
    return has(asked, point._replace(at_s=min(point.at_s, asked.at_s)))


def with_the_side_for_half_of_it(asked, point):
    return has(asked._replace(box_km=2 * asked.box_km), point)


def of_the_querys_window(points, query, cached):
    """Take the window of the query for that of the cached answer."""
    return solution(points, query, cached._replace(window_s=cached.at_s - query.at_s + query.window_s))


def of_the_querys_box(points, query, cached):
    """Take the box of the query for that of the cached answer."""
    return solution(points, query, cached._replace(x_km=query.x_km, y_km=query.y_km, box_km=query.box_km))


def by_subtraction(points, query, cached):
    """Take the difference of two counts for the count of a difference."""
    return sum(has(query, each) for each in points) - sum(has(cached, each) for each in points)


def each_once(points, query, cached):
    """Take two reports of one place and time for one."""
    return solution(list(set(points)), query, cached)


def as_a_share(points, query, cached):
    return solution(points, query, cached) / max(len(points), 1)


def what_is_there(points, query, cached):
    return sum(has(query, each) and has(cached, each) for each in points)


def turned_round(points, query, cached):
    return solution(points, cached, query)


def that_raises(points, query, cached):
    return min(each.at_s for each in points)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    "piece",
    most_telling(
        [
            counted(closed, has),
            of_the_querys_window,
            by_subtraction,
            counted(has, closed),
            counted(open_at_the_end, has),
            counted(has, open_at_the_end),
            counted(without_the_edge, has),
            counted(has, without_the_edge),
            counted(in_a_circle, has),
            counted(has, in_a_circle),
            counted(in_the_window_only, has),
            counted(has, in_the_window_only),
            counted(in_the_box_only, has),
            counted(has, in_the_box_only),
            counted(with_the_future, has),
            counted(has, with_the_future),
            counted(with_the_side_for_half_of_it, has),
            of_the_querys_box,
            each_once,
            as_a_share,
            what_is_there,
            turned_round,
            that_raises,
            lambda points, query, cached: 0,
            lambda points, query, cached: None,
        ]
    ),
)
def test_judge_rejects(piece):
    verdict = rejected(CHAPTER, piece, "")
    assert verdict.failure.problem
    assert verdict.diagram() is not None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (0, "it counts 0; 1 are missing: ("),
        (None, "Your function returned None; expected a whole number."),
    ],
)
def test_a_verdict_says_what_is_missing_or_was_expected(answer, problem):
    verdict = rejected(CHAPTER, lambda points, query, cached: answer, problem)
    assert str(verdict).count("points: (") == 1
