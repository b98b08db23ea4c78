"""Exercise of chapter 08: the label of one pair of reads.

Spark computes it for millions of pairs: the points of an answer that an earlier answer lacks (Mobius 6), but
for those that the device wrote itself, which it holds. Mistakes occur at the edges: a window is open at its
start, and the earlier answer has its own box and window and lacks all later points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.cache_policies import ReadRequest, minutes
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario


class Point(NamedTuple):
    """Position reported by a device.

    Parameters
    ----------
    at_s : float
        Time of the report, in seconds.
    x_km, y_km : float
        Position in km east and north of a common origin.
    is_own : bool
        Whether the device that reads wrote it.
    """

    at_s: float
    x_km: float
    y_km: float
    is_own: bool = False

    def __str__(self) -> str:
        return f"{'own, ' if self.is_own else ''}({self.x_km:g}, {self.y_km:g}) at {minutes(self.at_s)}"


class _Case(NamedTuple):
    """Points, a read, and an earlier read whose answer is cached."""

    points: tuple[Point, ...]
    query: ReadRequest
    cached: ReadRequest

    def __str__(self) -> str:
        points = "; ".join(map(str, self.points)) or "none"
        return f"points: {points}. The query: {self.query}; cached: {self.cached}."


def _contains(read: ReadRequest, point: Point) -> bool:
    """Return whether a read returns a point: box with its edge, window without its start."""
    offset_km = max(abs(point.x_km - read.x_km), abs(point.y_km - read.y_km))
    return read.at_s - read.window_s < point.at_s <= read.at_s and 2 * offset_km <= read.box_km


def _play(piece: Callable[..., Any], case: _Case) -> PlayedScenario:
    """Call the function on a case, and return the outcome with a picture."""
    lacking = [
        point
        for point in case.points
        if not point.is_own and _contains(case.query, point) and not _contains(case.cached, point)
    ]
    problem = None
    try:
        counted = piece(list(case.points), case.query, case.cached)
        if isinstance(counted, bool) or not isinstance(counted, int):
            problem = f"it returns {counted!r}; expected a whole number."
        elif counted != len(lacking):
            which = f": {'; '.join(map(str, lacking))}" if lacking else ""
            problem = f"it counts {counted}; {len(lacking)} are missing{which}."
    except PieceError as error:
        problem = str(error)
    return PlayedScenario(str(case), problem, picture=partial(_drawn, case, lacking))


def _drawn(case: _Case, lacking: list[Point]) -> go.Figure:
    """Draw both boxes, and one missing point."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    rows = [
        (f"{name}, at {minutes(read.at_s)}, of {minutes(read.window_s)}", *read[1:4], is_query)
        for name, read, is_query in (("cached", case.cached, False), ("query", case.query, True))
    ]
    table = pd.DataFrame(rows, columns=["name", "x_km", "y_km", "box_km", "is_requested"])
    shown = None if not lacking else (lacking[0].x_km, lacking[0].y_km, f"missing: {lacking[0]}")
    return figures.answer_boxes(table, title=FAILURE_TITLE, missing_point=shown)


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    """Draw a case; points at each edge are as likely as points beside it."""
    age_s = draw(st.sampled_from([600.0, 1200.0]))
    query = ReadRequest(
        draw(st.sampled_from([3600.0, 7200.0])),
        draw(st.sampled_from([0.0, 30.0])),
        draw(st.sampled_from([0.0, -8.0])),
        draw(st.sampled_from([4.0, 6.0])),
        draw(st.sampled_from([2400.0, 3000.0])),
    )
    later_s = draw(st.sampled_from([600.0, 0.0, -600.0]))  # between the starts of both windows
    cached = ReadRequest(
        query.at_s - age_s,
        query.x_km + draw(st.sampled_from([0.0, 1.0, 4.0])),
        query.y_km + draw(st.sampled_from([0.0, -1.0])),
        draw(st.sampled_from([4.0, 2.0])),
        query.window_s - age_s - later_s,
    )
    edges = [read.at_s - back_s for read in (cached, query) for back_s in (read.window_s, 0.0)]
    # A window is open at its start and closed at its end: just later it is the other way round.
    times = st.sampled_from([*edges, *(edge_s + 1 / 8 for edge_s in edges)])
    near = st.sampled_from([0.0, 1.0])  # inside most boxes, so that the time decides
    half_km = query.box_km / 2
    # Exact in binary, as an offset from the middle of a box must be.
    edge = st.sampled_from([0.0, 1.0, half_km, -half_km, half_km + 1 / 32, 3.0, half_km - 1 / 32])
    own = st.sampled_from([False, False, False, True])
    offset = st.tuples(near, near) | st.tuples(edge, edge)
    point = st.builds(
        lambda at_s, offset_km, is_own: Point(
            at_s, query.x_km + offset_km[0], query.y_km + offset_km[1], is_own
        ),
        times,
        offset,
        own,
    )
    points = draw(st.lists(point, min_size=1, max_size=5))
    return _Case(tuple(sorted(points)), query, cached)


EXERCISE: Final = Exercise(
    signature="missing(points, query, cached) -> how many points of the query's answer the device lacks, "
    "where points have at_s, x_km, y_km and is_own, and query and cached at_s, x_km, y_km, box_km and "
    "window_s",
    property="An answer contains the points in its box, edge included, of the time (at_s - window_s, at_s]; "
    "missing are the points of the query's answer that are neither in the cached one nor the device's own.",
    scenarios=_cases(),
    play=_play,
    returns="a whole number",
)
