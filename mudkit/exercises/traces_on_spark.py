"""The exercise of chapter 08: the label of a read, one pair at a time.

What Spark counts for millions of pairs is a few lines for one: which points of an answer an earlier answer
lacks (Mobius 6). The mistakes are at the edges: a window is open at its begin, and the earlier answer has a
box and a window of its own and knows nothing that came after it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.cache_policies import Asked
from mudkit.exercises.judging import Exercise, PieceError, Played

__all__ = ["EXERCISE", "Point"]

_MIN_S: Final = 60.0


class Point(NamedTuple):
    """A position that a device has reported.

    Parameters
    ----------
    at_s : float
        When the point was written, in seconds.
    x_km, y_km : float
        The place of the point, in km east and north of a point that all share.
    """

    at_s: float
    x_km: float
    y_km: float

    def __str__(self) -> str:
        return f"({self.x_km:g}, {self.y_km:g}) at {self.at_s / _MIN_S:g} min"


class _Case(NamedTuple):
    """Points, a read, and the earlier one whose answer is held."""

    points: tuple[Point, ...]
    query: Asked
    cached: Asked

    def __str__(self) -> str:
        points = "; ".join(map(str, self.points)) or "none"
        return f"points: {points}. Asked for: {self.query}; held: {self.cached}."


def _holds(asked: Asked, point: Point) -> bool:
    """Say whether an answer has a point: its box with its edge, its window without its begin."""
    aside = max(abs(point.x_km - asked.x_km), abs(point.y_km - asked.y_km))
    return asked.at_s - asked.window_s < point.at_s <= asked.at_s and 2 * aside <= asked.box_km


def _play(piece: Callable[..., Any], case: _Case) -> Played:
    lacking = [each for each in case.points if _holds(case.query, each) and not _holds(case.cached, each)]
    problem = None
    try:
        counted = piece(list(case.points), case.query, case.cached)
        if isinstance(counted, bool) or not isinstance(counted, int):
            problem = f"it returns {counted!r}, which is no whole number."
        elif counted != len(lacking):
            which = f": {'; '.join(map(str, lacking))}" if lacking else ""
            problem = f"it counts {counted}; {len(lacking)} are missing{which}."
    except PieceError as error:
        problem = str(error)
    return Played(str(case), problem, picture=partial(_drawn, case, lacking))


def _drawn(case: _Case, lacking: list[Point]) -> go.Figure:
    """Draw both boxes, and a point that is missing."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    rows = [
        (f"{what}, at {each.at_s / _MIN_S:g} min, of {each.window_s / _MIN_S:g} min", *each[1:4], is_asked)
        for what, each, is_asked in (("held", case.cached, False), ("asked for", case.query, True))
    ]
    table = pd.DataFrame(rows, columns=["name", "x_km", "y_km", "box_km", "is_requested"])
    shown = None if not lacking else (lacking[0].x_km, lacking[0].y_km, f"missing: {lacking[0]}")
    return figures.answer_boxes(table, title="The smallest scenario that fails", missing_point=shown)


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    """Draw a case in which every edge is as likely as what lies beside it."""
    age_s = draw(st.sampled_from([600.0, 1200.0]))
    query = Asked(3600.0, 0.0, 0.0, 4.0, 2400.0)
    later_s = draw(st.sampled_from([600.0, 0.0, -600.0]))  # its window begins so much after the query's
    cached = Asked(
        query.at_s - age_s,
        draw(st.sampled_from([0.0, 1.0, 4.0])),
        draw(st.sampled_from([0.0, -1.0])),
        draw(st.sampled_from([4.0, 2.0])),
        query.window_s - age_s - later_s,
    )
    edges = [each.at_s - back for each in (cached, query) for back in (each.window_s, 0.0, 60.0)]
    times = st.sampled_from([*edges, query.at_s + 60.0])
    near = st.sampled_from([0.0, 1.0])  # within most boxes: then it is the time that decides
    edge = st.sampled_from([0.0, 1.0, 2.0, -2.0, 3.0, 1.9])
    point = st.builds(Point, times, near, near) | st.builds(Point, times, edge, edge)
    points = draw(st.lists(point, min_size=1, max_size=5))
    return _Case(tuple(sorted(points)), query, cached)


EXERCISE: Final = Exercise(
    signature="missing(points, query, cached) -> how many points of the query's answer the cached one lacks, "
    "where points have at_s, x_km and y_km, and query and cached at_s, x_km, y_km, box_km and window_s",
    property="An answer has the points in its box, edge included, of the time (at_s - window_s, at_s]; "
    "missing are those of the query's answer that are not in the cached one.",
    scenarios=_cases(),
    play=_play,
    returns="a whole number",
)
