"""Exercise of chapter 09: answer from the cache exactly when no answer can be stale.

A learnt policy bounds the share of stale answers. This function must return none, whatever was written. It
may therefore look at ages, boxes and windows only, as a client does that decides whether an earlier answer
contains a query (Mobius 4.2). The judge looks for both mistakes: an answer that may lack a point older than
the limit, and an unnecessary query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
from hypothesis import strategies as st

from mudkit import figures
from mudkit.exercises.judging import FAILURE_TITLE, Exercise, PieceError, PlayedScenario

_ANSWERS: Final = ("local", "remote")
_BEYOND_S: Final = 1 / 8
_BEYOND_KM: Final = 1 / 32


def minutes(seconds: float) -> str:
    """Return a time in minutes, or in seconds if it is no whole number of minutes."""
    return f"{seconds:,.9g} s" if seconds % 60 else f"{seconds / 60:g} min"


class ReadRequest(NamedTuple):
    """Read of all points of the last ``window_s`` seconds in a square.

    Parameters
    ----------
    at_s : float
        Time of the query, in seconds.
    x_km, y_km : float
        Centre of the square, in km east and north of a common origin.
    box_km : float
        Side of the square, in km; points on the edge are inside.
    window_s : float
        Length of the window, in seconds; it covers ``(at_s - window_s, at_s]``.
    """

    at_s: float
    x_km: float
    y_km: float
    box_km: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"{self.box_km:g} km around ({self.x_km:g}, {self.y_km:g}) and {minutes(self.window_s)}, asked "
            f"at {minutes(self.at_s)}"
        )


class _Case(NamedTuple):
    """A read, and earlier reads whose answers are cached."""

    query: ReadRequest
    cache: tuple[ReadRequest, ...]
    limit_s: float

    def __str__(self) -> str:
        cached = "; ".join(map(str, self.cache)) or "nothing"
        return f"the limit is {minutes(self.limit_s)}; the query: {self.query}; cached: {cached}."


class _Lacking(NamedTuple):
    """Point that a cached answer may lack, with the reason."""

    cached: ReadRequest
    x_km: float
    y_km: float
    at_s: float
    why: str


def _lacking(query: ReadRequest, cached: ReadRequest, limit_s: float) -> _Lacking | None:
    """Return a point that the answer may lack, or None if it contains all points older than the limit."""
    last_s, first_s = query.at_s - limit_s, query.at_s - query.window_s  # in (first, last]
    if cached.at_s < last_s:
        return _Lacking(cached, query.x_km, query.y_km, last_s, "it was written after that answer")
    if cached.at_s - cached.window_s > first_s:
        at_s = min(cached.at_s - cached.window_s, last_s)
        return _Lacking(cached, query.x_km, query.y_km, at_s, "it is older than the window of that answer")
    offset = query.x_km - cached.x_km, query.y_km - cached.y_km
    if max(map(abs, offset)) + query.box_km / 2 <= cached.box_km / 2:
        return None
    corner = [
        middle + (query.box_km / 2 if way >= 0 else -query.box_km / 2)
        for middle, way in zip((query.x_km, query.y_km), offset, strict=True)
    ]
    return _Lacking(cached, corner[0], corner[1], last_s, "it lies outside the box of that answer")


def _play(piece: Callable[..., Any], case: _Case) -> PlayedScenario:
    """Call the function on a case, and return the outcome with a picture."""
    lacking = [_lacking(case.query, cached, case.limit_s) for cached in case.cache]
    problem, shown = None, None
    try:
        problem, shown = _judged(piece(case.query, list(case.cache), case.limit_s), case, lacking)
    except PieceError as error:
        problem = str(error)
    return PlayedScenario(str(case), problem, picture=partial(_drawn, case, shown))


def _judged(answer: Any, case: _Case, lacking: list[_Lacking | None]) -> tuple[str | None, _Lacking | None]:
    """Return the problem of a decision and a point that shows it; None for what does not exist."""
    if not isinstance(answer, str) or answer not in _ANSWERS:
        return f"it returns {answer!r}, which is neither 'local' nor 'remote'.", None
    good = [cached for cached, point in zip(case.cache, lacking, strict=True) if point is None]
    if answer == "remote" and good:
        ago = minutes(case.query.at_s - good[0].at_s)
        return (
            f"it asks the server, although the answer from {ago} before contains all points that "
            f"are at least {minutes(case.limit_s)} old.",
            None,
        )
    if answer == "local" and not good:
        if not case.cache:
            return "it answers locally, although nothing is in the cache.", None
        point = lacking[-1]
        assert point is not None  # as no answer is good
        ago = minutes(case.query.at_s - point.at_s)
        return (
            f"it answers locally. A point of {ago} before at ({point.x_km:g}, {point.y_km:g}) "
            f"would be missing: {point.why}."
        ), point
    return None, None


def _drawn(case: _Case, point: _Lacking | None) -> go.Figure:
    """Draw the boxes of the query and of the cached answers."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    def caption(read: ReadRequest) -> str:
        return f"{minutes(case.query.at_s - read.at_s)} before, of {minutes(read.window_s)}"

    rows = [(caption(read), read.x_km, read.y_km, read.box_km, False) for read in case.cache]
    query = case.query
    rows.append((f"query, of {minutes(query.window_s)}", query.x_km, query.y_km, query.box_km, True))
    table = pd.DataFrame(rows, columns=["name", "x_km", "y_km", "box_km", "is_requested"])
    lacking = None if point is None else (point.x_km, point.y_km, "may be missing")
    return figures.answer_boxes(table, title=FAILURE_TITLE, missing_point=lacking)


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    """Draw a case; answers at or just beyond each edge are as likely as others.

    Just beyond is less than half a unit, so that rounding shows, and exact in binary, so that the order of
    additions does not matter.
    """
    limit_s = draw(st.sampled_from([600.0, 300.0, 1800.0]))
    query = ReadRequest(
        draw(st.sampled_from([36_000.0, 43_200.0])),
        draw(st.sampled_from([0.0, 30.0])),
        draw(st.sampled_from([0.0, -8.0])),
        draw(st.sampled_from([10.0, 20.0])),
        draw(st.sampled_from([7200.0, 3600.0])),
    )
    cache = []
    for _ in range(draw(st.integers(0, 3))):
        age_s = draw(st.sampled_from([60.0, limit_s, limit_s + _BEYOND_S, 2400.0]))
        longer_s = draw(st.sampled_from([0.0, -age_s, -age_s - _BEYOND_S, 3600.0]))
        larger_km = draw(st.sampled_from([0.0, 4.0, 20.0, -5.0]))
        inside_km = max(larger_km / 2, 0.0)
        beyond_km = inside_km + _BEYOND_KM
        east_km = draw(st.sampled_from([0.0, 0.5, inside_km, beyond_km, -inside_km]))
        north_km = draw(st.sampled_from([0.0, -inside_km, beyond_km]))
        cache.append(
            ReadRequest(
                query.at_s - age_s,
                query.x_km + east_km,
                query.y_km + north_km,
                query.box_km + larger_km,
                max(query.window_s + longer_s, 60.0),
            )
        )
    return _Case(query, tuple(sorted(cache)), limit_s)


EXERCISE: Final = Exercise(
    signature="decide(query, cache, limit_s) -> 'local' or 'remote', where query and the entries of cache "
    "(oldest first) have at_s, x_km, y_km, box_km and window_s",
    property="A read is answered locally if one of the cached answers is certain to contain all its points "
    "but those of the last limit_s seconds; otherwise it is sent to the server.",
    scenarios=_cases(),
    play=_play,
    returns="'local' or 'remote'",
)
