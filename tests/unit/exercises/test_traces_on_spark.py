"""Judge of chapter 08: correct labels of reads are accepted and likely mistakes rejected."""

import math

import pytest
from judged import check_accepted, check_rejected, count_failures, draw_scenarios, mark_soak

CHAPTER = "08_traces_on_spark"


def has(read, point):
    aside = max(abs(point.x_km - read.x_km), abs(point.y_km - read.y_km))
    return read.at_s - read.window_s < point.at_s <= read.at_s and aside <= read.box_km / 2


def solution(points, query, cached):
    return sum(has(query, point) and not has(cached, point) and not point.is_own for point in points)


def test_solution_passes():
    check_accepted(CHAPTER, solution)


def make_counter(has_query, has_cached):
    def missing(points, query, cached):
        others = [point for point in points if not point.is_own]
        return sum(has_query(query, point) and not has_cached(cached, point) for point in others)

    return missing


def include_start(read, point):
    return has(read, point) or (
        point.at_s == read.at_s - read.window_s and has(read, point._replace(at_s=read.at_s))
    )


def extend_by_a_second(read, point):
    return has(read._replace(window_s=read.window_s + 1), point)


def end_a_second_later(read, point):
    return has(read._replace(at_s=read.at_s + 1, window_s=read.window_s + 1), point)


def extend_by_half_a_second(read, point):
    return has(read._replace(at_s=read.at_s + 0.25, window_s=read.window_s + 0.5), point)


def round_times(read, point):
    """Round half up, unlike round()."""
    return has(read, point._replace(at_s=math.floor(point.at_s + 0.5)))


def enlarge_by_100_m(read, point):
    return has(read._replace(box_km=read.box_km + 0.1), point)


def count_at_fixed_query(points, query, cached):
    """Ignore the place and size of the query, which is at the origin of the chapter's example."""
    return solution(points, query._replace(x_km=0.0, y_km=0.0, box_km=4.0), cached)


def exclude_end(read, point):
    return has(read, point) and point.at_s < read.at_s


def exclude_edge(read, point):
    aside = max(abs(point.x_km - read.x_km), abs(point.y_km - read.y_km))
    return has(read, point) and 2 * aside < read.box_km


def use_circle(read, point):
    far = (point.x_km - read.x_km) ** 2 + (point.y_km - read.y_km) ** 2
    return has(read, point) and far <= (read.box_km / 2) ** 2


def ignore_box(read, point):
    return has(read, point._replace(x_km=read.x_km, y_km=read.y_km))


def ignore_window(read, point):
    return has(read, point._replace(at_s=read.at_s))


def include_future(read, point):
    return has(read, point._replace(at_s=min(point.at_s, read.at_s)))


def use_side_as_half(read, point):
    return has(read._replace(box_km=2 * read.box_km), point)


def use_window_of_query(points, query, cached):
    """Confuse the windows of query and cached answer."""
    return solution(points, query, cached._replace(window_s=cached.at_s - query.at_s + query.window_s))


def use_box_of_query(points, query, cached):
    """Confuse the boxes of query and cached answer."""
    return solution(points, query, cached._replace(x_km=query.x_km, y_km=query.y_km, box_km=query.box_km))


def count_own(points, query, cached):
    """Count what the device wrote itself as missing."""
    return solution([point._replace(is_own=False) for point in points], query, cached)


def subtract_counts(points, query, cached):
    """Subtract counts instead of counting a difference."""
    return sum(has(query, point) for point in points) - sum(has(cached, point) for point in points)


def deduplicate(points, query, cached):
    """Count two reports of one place and time once."""
    return solution(list(set(points)), query, cached)


def return_share(points, query, cached):
    return solution(points, query, cached) / max(len(points), 1)


def count_present(points, query, cached):
    return sum(has(query, point) and has(cached, point) for point in points)


def swap_reads(points, query, cached):
    return solution(points, cached, query)


def raise_error(points, query, cached):
    return min(point.at_s for point in points)


WRONG = [
    count_at_fixed_query,
    make_counter(enlarge_by_100_m, has),
    make_counter(extend_by_half_a_second, has),
    make_counter(round_times, has),
    make_counter(include_start, has),
    use_window_of_query,
    subtract_counts,
    count_own,
    make_counter(has, include_start),
    make_counter(extend_by_a_second, has),
    make_counter(has, end_a_second_later),
    make_counter(exclude_end, has),
    make_counter(has, exclude_end),
    make_counter(exclude_edge, has),
    make_counter(has, exclude_edge),
    make_counter(use_circle, has),
    make_counter(has, use_circle),
    make_counter(ignore_box, has),
    make_counter(has, ignore_box),
    make_counter(ignore_window, has),
    make_counter(has, ignore_window),
    make_counter(include_future, has),
    make_counter(has, include_future),
    make_counter(use_side_as_half, has),
    use_box_of_query,
    deduplicate,
    return_share,
    count_present,
    swap_reads,
    raise_error,
    lambda points, query, cached: 0,
    lambda points, query, cached: None,
]


def test_enough_scenarios_show_each_mistake():
    """A mistake that few scenarios show passes with another seed: each is shown by 2 % at least."""
    scenarios = draw_scenarios(CHAPTER)
    assert len(scenarios) == 200
    assert count_failures(CHAPTER, solution, scenarios) == 0
    shown = {
        f"{number} {piece.__name__}": count_failures(CHAPTER, piece, scenarios)
        for number, piece in enumerate(WRONG)
    }
    assert min(shown.values()) >= 4, shown


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("piece", mark_soak(WRONG))
def test_judge_rejects(piece):
    verdict = check_rejected(CHAPTER, piece, "")
    assert verdict.failure.problem
    assert verdict.diagram() is not None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (0, "it counts 0; 1 are missing: ("),
        (None, "Your function returned None; expected a whole number."),
    ],
)
def test_verdict_names_missing_points_or_expected_type(answer, problem):
    verdict = check_rejected(CHAPTER, lambda points, query, cached: answer, problem)
    assert str(verdict).count("points: (") == 1
