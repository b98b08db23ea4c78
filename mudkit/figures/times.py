"""Virtual time in tables, in text and on the axis that the figures of a run share."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.units import US_PER_S

Times = NDArray[np.int64]
"""Microseconds since 1970 (UTC)."""

NO_TIME = int(np.iinfo(np.int64).min)
"""Null time of :func:`times_us`; a gap in a figure."""

HOUR_US: Final = 3600 * US_PER_S
_DAY_US: Final = 24 * HOUR_US
_MAX_COUNTED_S: Final = 3600.0  # longer spans show the clock
_MAX_MS_US: Final = 12 * HOUR_US  # longer spans are rounded to seconds, which keeps pages small
_MIN_DAYS: Final = 4
_MAX_NAMED_DAYS: Final = 7
_DAY_GAP: Final = 0.03  # at both ends of a day, so that days do not touch
_UNITS: Final = (
    ("days", 86_400.0, 3), ("h", 3600.0, 3), ("min", 60.0, 3), ("s", 1.0, 3), ("ms", 0.001, 0),
)  # fmt: skip
"""Units of time, their seconds, and the number of them from which an axis uses them."""


def times_us(table: pd.DataFrame, name: str, what: str) -> Times:
    """Return a column of times as microseconds since 1970 (UTC), null as ``NO_TIME``."""
    values = table[name]
    if not values.isna().all() and pd.api.types.is_numeric_dtype(values):
        problem: str | None = str(values.dtype)  # pandas would take numbers for nanoseconds
    else:
        try:
            times = pd.to_datetime(values, utc=True)
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


def time_unit(span_s: float) -> tuple[str, float]:
    """Return the name and the seconds of the unit for an axis of some length."""
    return next((name, unit_s) for name, unit_s, least in _UNITS if span_s >= least * unit_s)


@dataclass(frozen=True)
class TimeAxis:
    """Axis of virtual time: seconds, minutes below an hour, otherwise the clock.

    Days with data that are far apart (``days``, since 1970) stand side by side, each from the earliest to the
    latest hour of any of them; the days between are left out.
    """

    origin_us: int
    end_us: int
    days: tuple[int, ...] = ()
    hours: tuple[int, int] = (0, 24)
    zone: str = "UTC"

    @classmethod
    def of(cls, t_us: Times, end_us: int | None = None, zone: str = "UTC") -> TimeAxis:
        """Build the axis of some times, which is that of sparse days if most days have none."""
        last = int(t_us.max()) if end_us is None else end_us
        days = np.unique(t_us // _DAY_US)
        if not 2 * len(days) < days[-1] - days[0] + 1 >= _MIN_DAYS:
            return cls(int(t_us.min()), last, zone=zone)
        hour = t_us % _DAY_US // HOUR_US
        hours = int(hour.min()), int(hour.max()) + 1
        return cls(int(t_us.min()), last, tuple(days.tolist()), hours, zone)

    @property
    def unit(self) -> tuple[str, float] | None:
        """Name and seconds of the unit; None: the axis shows the clock, or days."""
        span_s = (self.end_us - self.origin_us) / US_PER_S
        return None if self.days or span_s >= _MAX_COUNTED_S else time_unit(max(span_s, 3.0))

    @property
    def title(self) -> str:
        """Title with the unit."""
        if self.days:
            first, last = self.hours
            part = f", {first:02}:00 to {last:02}:00" if last - first < 24 else ""
            return f"the {len(self.days)} days with data side by side{part}, {self.zone}"
        if self.unit is None:
            return f"virtual time, {self.zone}"
        return f"virtual time since {format_time(self.origin_us)}, {self.unit[0]}"

    @property
    def span(self) -> str:
        """First and last time as text."""
        one_day = self.origin_us // _DAY_US == self.end_us // _DAY_US
        first, last = self.origin_us, self.end_us
        if last - first >= 60 * US_PER_S:
            first, last = (t_us - t_us % US_PER_S for t_us in (first, last))
        return f"{format_time(first, date=True)} – {format_time(last, date=not one_day)} {self.zone}"

    def values(self, t_us: Any) -> Any:
        """Return times in the unit of the axis; ``NO_TIME`` becomes a gap."""
        times = np.asarray(t_us, dtype=np.int64)
        gaps = times == NO_TIME
        if self.days:
            return np.where(gaps, np.nan, self._places(np.where(gaps, self.origin_us, times)))
        if self.unit is not None:
            since_us = np.where(gaps, self.origin_us, times) - self.origin_us
            return np.where(gaps, np.nan, since_us / (US_PER_S * self.unit[1]))
        # Texts and not numbers: plotly would show numbers in the time zone of the browser.
        is_short = self.end_us - self.origin_us < _MAX_MS_US
        exact = times.astype("datetime64[us]").astype("M8[ms]" if is_short else "M8[s]")
        return [None if text == "NaT" else text for text in np.datetime_as_string(exact).tolist()]

    def layout(self) -> dict[str, Any]:
        """Return title and range of the axis for plotly; for sparse days also names and edges of the days."""
        if not self.days:
            return {"title_text": self.title, "range": self.values([self.origin_us, self.end_us])}
        some = range(0, len(self.days), -(-len(self.days) // _MAX_NAMED_DAYS))
        dates = [np.datetime64(self.days[at], "D").astype(dt.date) for at in some]
        return {
            "title_text": self.title,
            "range": [0, len(self.days)],
            "tickvals": [at + 0.5 for at in some],
            "ticktext": [f"{date.day} {date:%b}<br>{date.year}" for date in dates],
            "tickangle": 0,
            "ticks": "",
            "minor": {
                "tickvals": list(range(len(self.days) + 1)), "showgrid": True, "ticks": "outside",
                "gridcolor": "rgba(128,128,128,0.25)",
            },
        }  # fmt: skip

    def shown_s(self, start_us: Times, end_us: Times) -> NDArray[np.float64]:
        """Return how long each stretch of time is, in seconds, without what the axis leaves out."""
        if not self.days:
            return np.asarray((end_us - start_us) / US_PER_S)
        first, last = self.hours
        passed = [
            number + np.where(has_data, part, 0.0)
            for number, has_data, part in map(self._day, (start_us, end_us))
        ]
        return np.asarray((passed[1] - passed[0]) * (last - first) * 3600.0)

    def _places(self, times: Times) -> NDArray[np.float64]:
        """Return places on an axis of days; times between two days are at their edge."""
        number, has_data, part = self._day(times)
        return np.where(has_data, number + _DAY_GAP + (1 - 2 * _DAY_GAP) * part, number).astype(np.float64)

    def _day(self, times: Times) -> tuple[Times, NDArray[np.bool_], NDArray[np.float64]]:
        """Return the days with data before each time, whether it is in one, and the part that is over."""
        days = np.array(self.days)
        number = np.searchsorted(days, times // _DAY_US)
        has_data = days[np.minimum(number, len(days) - 1)] == times // _DAY_US
        first_us, last_us = (hour * HOUR_US for hour in self.hours)
        return number, has_data, np.clip((times % _DAY_US - first_us) / (last_us - first_us), 0.0, 1.0)


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
