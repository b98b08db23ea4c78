"""Virtual time in tables, in text and on the axis that the figures of a run share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.units import US_PER_S

__all__ = ["NO_TIME", "Bars", "TimeAxis", "Times", "as_us", "format_time", "times_us"]

Times = NDArray[np.int64]
"""Microseconds since 1970 (UTC)."""

NO_TIME = int(np.iinfo(np.int64).min)
"""Null time of :func:`times_us`; a gap in a figure."""

_MAX_SECONDS_US = 3600 * US_PER_S  # longer spans show the clock
_MAX_MS_US = 12 * _MAX_SECONDS_US  # longer spans are rounded to seconds, which keeps pages small


def times_us(table: pd.DataFrame, name: str, what: str) -> Times:
    """Return a column of times as microseconds since 1970 (UTC), null as ``NO_TIME``."""
    held = table[name]
    if not held.isna().all() and pd.api.types.is_numeric_dtype(held):
        problem: str | None = str(held.dtype)  # pandas would take numbers for nanoseconds
    else:
        try:
            times = pd.to_datetime(held, utc=True)
            problem = None
        except (ValueError, TypeError) as error:
            problem = str(error).split("\n")[0]
    if problem is not None:
        raise ParameterError(
            f"The column {name!r} of {what} holds no times.",
            where=what,
            found=problem,
            expected="timestamps; those without a zone are UTC",
        )
    # A null becomes the least integer in any unit of time.
    return np.asarray(times.dt.tz_localize(None).to_numpy().astype("datetime64[us]").astype(np.int64))


def as_us(moment: Any, name: str) -> int:
    """Return any time that pandas can read as microseconds since 1970; UTC if it has no zone."""
    try:
        if isinstance(moment, (bool, int, float)):
            raise TypeError("a number has no date")
        stamp = pd.Timestamp(moment)
        if pd.isna(stamp):
            raise ValueError("no time")
    except (ValueError, TypeError) as error:
        raise ParameterError(
            "This is not a time.",
            where=name,
            found=repr(moment),
            expected="a datetime, or text such as '2008-05-18 08:00:05'; UTC without a zone",
        ) from error
    stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
    return int(stamp.tz_localize(None).to_datetime64().astype("datetime64[us]").astype(np.int64))


def format_time(t_us: int, *, date: bool = False) -> str:
    """Format a time of day (UTC), with milliseconds if it is not a whole second."""
    moment = np.datetime64(t_us, "us").astype("datetime64[ms]" if t_us % US_PER_S else "datetime64[s]")
    return str(moment).replace("T", " ") if date else str(moment).split("T")[1]


@dataclass(frozen=True)
class TimeAxis:
    """Axis of virtual time: seconds for spans below an hour, otherwise the clock in UTC."""

    origin_us: int
    end_us: int

    @property
    def in_seconds(self) -> bool:
        """True for an axis in seconds."""
        return self.end_us - self.origin_us < _MAX_SECONDS_US

    @property
    def title(self) -> str:
        """Title with the unit."""
        return (
            f"virtual time since {format_time(self.origin_us)}, s" if self.in_seconds else "virtual time, UTC"
        )

    @property
    def span(self) -> str:
        """First and last time as text."""
        one_day = self.origin_us // (86_400 * US_PER_S) == self.end_us // (86_400 * US_PER_S)
        return f"{format_time(self.origin_us, date=True)} – {format_time(self.end_us, date=not one_day)} UTC"

    def values(self, t_us: Any) -> Any:
        """Return times in the unit of the axis; ``NO_TIME`` becomes a gap."""
        times = np.asarray(t_us, dtype=np.int64)
        if self.in_seconds:
            gaps = times == NO_TIME
            return np.where(gaps, np.nan, (np.where(gaps, self.origin_us, times) - self.origin_us) / US_PER_S)
        # Texts and not numbers: plotly would show numbers in the time zone of the browser.
        exact = times.astype("datetime64[us]").astype("M8[ms]" if self._short else "M8[s]")
        return [None if text == "NaT" else text for text in np.datetime_as_string(exact).tolist()]

    @property
    def _short(self) -> bool:
        return self.end_us - self.origin_us < _MAX_MS_US


class Bars:
    """Rectangles along a time axis as one trace, which a browser draws fast."""

    def __init__(self) -> None:
        self._t: list[Times] = []
        self._y: list[NDArray[np.float64]] = []

    def add(self, starts: Times, ends: Times, rows: NDArray[np.float64], half: float) -> None:
        """Add rectangles of the given half height around rows of the chart."""
        self._t.append(np.column_stack([starts, ends, ends, starts, np.full(len(starts), NO_TIME)]).ravel())
        sides = (rows - half, rows - half, rows + half, rows + half, np.full(len(rows), np.nan))
        self._y.append(np.column_stack(sides).ravel())

    def trace(self, axis: TimeAxis, name: str, colour: str, *, line_px: float = 0.0, rank: int = 1) -> Any:
        """Return the plotly trace; a line keeps short rectangles visible."""
        return go.Scatter(
            x=axis.values(np.concatenate(self._t)),
            y=np.concatenate(self._y),
            name=name,
            mode="lines",
            fill="toself",
            fillcolor=colour,
            line={"color": colour, "width": line_px},
            hoverinfo="skip",
            legendrank=rank,
        )
