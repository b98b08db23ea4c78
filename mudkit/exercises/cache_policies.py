"""The exercise of chapter 09: answer from the cache whenever it is surely good enough, and only then.

A learnt policy promises a share of stale answers. This piece is to promise that there is none: whatever was
written, and wherever. So it may look at ages, boxes and windows only, as a client does that decides whether
an earlier answer contains a query (Mobius 4.2). Both mistakes are looked for: an answer that may lack a
point that is old enough to be missed, and a query that was not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.judging import Exercise, PieceError, Played

__all__ = ["EXERCISE", "Asked"]

_ANSWERS: Final = ("local", "remote")


class Asked(NamedTuple):
    """A read: all points of the last ``window_s`` seconds in a square.

    Parameters
    ----------
    at_s : float
        When the query was asked, in seconds.
    x_km, y_km : float
        The middle of its square, in km east and north of a point that all share.
    box_km : float
        The side of its square, in km; points on the edge are inside.
    window_s : float
        How far back it asks, in seconds: for points of ``(at_s - window_s, at_s]``.
    """

    at_s: float
    x_km: float
    y_km: float
    box_km: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"{self.box_km:g} km around ({self.x_km:g}, {self.y_km:g}) and {self.window_s / 60:g} min, asked "
            f"at {self.at_s / 60:g} min"
        )


class _Case(NamedTuple):
    """A read, and earlier ones whose answers the device holds."""

    query: Asked
    cache: tuple[Asked, ...]
    limit_s: float

    def __str__(self) -> str:
        held = "; ".join(map(str, self.cache)) or "nothing"
        return f"the limit is {self.limit_s / 60:g} min; asked for: {self.query}; held: {held}."


class _Lacking(NamedTuple):
    """A point that an answer may lack: the answer, the point, and why."""

    cached: Asked
    x_km: float
    y_km: float
    at_s: float
    why: str


def _lacking(query: Asked, cached: Asked, limit_s: float) -> _Lacking | None:
    """Find a point that an answer may lack; None: it holds all that is older than the limit."""
    last_s, first_s = query.at_s - limit_s, query.at_s - query.window_s  # in (first, last]
    if cached.at_s < last_s:
        return _Lacking(cached, query.x_km, query.y_km, last_s, "it was written after that answer had come")
    if cached.at_s - cached.window_s > first_s:
        at_s = min(cached.at_s - cached.window_s, last_s)
        return _Lacking(
            cached, query.x_km, query.y_km, at_s, "it is older than what that answer goes back to"
        )
    offset = query.x_km - cached.x_km, query.y_km - cached.y_km
    if max(map(abs, offset)) + query.box_km / 2 <= cached.box_km / 2:
        return None
    corner = [
        middle + (query.box_km / 2 if way >= 0 else -query.box_km / 2)
        for middle, way in zip((query.x_km, query.y_km), offset, strict=True)
    ]
    return _Lacking(cached, corner[0], corner[1], last_s, "it lies outside of what that answer was asked for")


def _play(piece: Callable[..., Any], case: _Case) -> Played:
    lacking = [_lacking(case.query, each, case.limit_s) for each in case.cache]
    problem, shown = None, None
    try:
        problem, shown = _judged(piece(case.query, list(case.cache), case.limit_s), case, lacking)
    except PieceError as error:
        problem = str(error)
    return Played(str(case), problem, picture=partial(_drawn, case, shown))


def _judged(answer: Any, case: _Case, lacking: list[_Lacking | None]) -> tuple[str | None, _Lacking | None]:
    """Say what is wrong with an answer, and which point shows it."""
    if not isinstance(answer, str) or answer not in _ANSWERS:
        return f"it returns {answer!r}, which is neither 'local' nor 'remote'.", None
    good = [each for each, lacks in zip(case.cache, lacking, strict=True) if lacks is None]
    if answer == "remote" and good:
        ago_min = (case.query.at_s - good[0].at_s) / 60
        return (
            f"the server is asked, though the answer from {ago_min:g} min before holds all that is "
            f"{case.limit_s / 60:g} min old or older.",
            None,
        )
    if answer == "local" and not good:
        if not case.cache:
            return "it is answered locally, and nothing is in the cache.", None
        point = lacking[-1]
        assert point is not None  # as no answer is good
        ago_min = (case.query.at_s - point.at_s) / 60
        return (
            f"it is answered locally. A point of {ago_min:g} min before at ({point.x_km:g}, {point.y_km:g}) "
            f"would be missing: {point.why}."
        ), point
    return None, None


def _drawn(case: _Case, point: _Lacking | None) -> go.Figure:
    """Draw what is asked for and what is held."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    def caption(each: Asked) -> str:
        ago_min = (case.query.at_s - each.at_s) / 60
        return f"{ago_min:g} min before, of {each.window_s / 60:g} min"

    rows = [(caption(each), each.x_km, each.y_km, each.box_km, False) for each in case.cache]
    asked = case.query
    now = f"asked for now, of {asked.window_s / 60:g} min"
    rows.append((now, asked.x_km, asked.y_km, asked.box_km, True))
    table = pd.DataFrame(rows, columns=["name", "x_km", "y_km", "box_km", "is_requested"])
    lacking = None if point is None else (point.x_km, point.y_km, "may be missing")
    return figures.answer_boxes(table, title="The smallest scenario that fails", missing_point=lacking)


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    """Draw a case; answers that are nearly good, and the very edge, are as likely as others."""
    limit_s = draw(st.sampled_from([600.0, 300.0, 1800.0]))
    query = Asked(
        36_000.0, 0.0, 0.0, draw(st.sampled_from([10.0, 20.0])), draw(st.sampled_from([7200.0, 3600.0]))
    )
    cache = []
    for _ in range(draw(st.integers(0, 3))):
        age_s = draw(st.sampled_from([60.0, limit_s, limit_s + 60.0, 2400.0]))
        longer_s = draw(st.sampled_from([0.0, -age_s, -age_s - 60.0, 3600.0]))
        larger_km = draw(st.sampled_from([0.0, 4.0, 20.0, -5.0]))
        inside_km = max(larger_km / 2, 0.0)
        east_km = draw(st.sampled_from([0.0, 0.5, inside_km, inside_km + 0.5, -inside_km]))
        north_km = draw(st.sampled_from([0.0, -inside_km, inside_km + 0.5]))
        cache.append(
            Asked(
                query.at_s - age_s,
                east_km,
                north_km,
                query.box_km + larger_km,
                max(query.window_s + longer_s, 60.0),
            )
        )
    return _Case(query, tuple(sorted(cache)), limit_s)


EXERCISE: Final = Exercise(
    signature="decide(query, cache, limit_s) -> 'local' or 'remote', where query and each of cache (the "
    "oldest first) have at_s, x_km, y_km, box_km and window_s",
    property="A read is answered locally when one of the cached answers surely holds all its points but "
    "those of the last limit_s seconds, whatever was written, and is sent when none does.",
    scenarios=_cases(),
    play=_play,
    returns="'local' or 'remote'",
)
