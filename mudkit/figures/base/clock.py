"""Times of a run: in tables, in texts, and on the axis that the figures of a run share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.units import US_PER_S

__all__ = ["NO_TIME", "Bars", "TimeAxis", "Times", "as_us", "needed", "rows_of", "times_us", "written"]

Times = NDArray[np.int64]
"""Microseconds since 1970 (UTC)."""

NO_TIME = int(np.iinfo(np.int64).min)
"""What :func:`times_us` gives for a time that is null; in a figure, a gap."""

_IN_SECONDS_US = 3600 * US_PER_S  # from here on the axis shows the clock
_IN_MS_US = 12 * _IN_SECONDS_US  # from here on to the second: nobody could see more, and pages stay small


def needed(table: Any, what: str, columns: Iterable[str]) -> pd.DataFrame:
    """Return a table of which certain columns are asked.

    Parameters
    ----------
    table : pandas.DataFrame
    what : str
        What the table is to the caller, for messages.
    columns : iterable of str

    Raises
    ------
    ParameterError
        This is no DataFrame, or it lacks a column.
    """
    if not isinstance(table, pd.DataFrame):
        raise ParameterError(
            "This figure takes a pandas DataFrame.",
            where=what,
            found=type(table).__name__,
            expected="pandas.DataFrame",
            remedy="table.to_pandas() makes one of an Arrow table",
        )
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ParameterError(
            f"The table of {what} lacks columns: {', '.join(missing)}.",
            where=what,
            found=", ".join(map(str, table.columns)) or "no columns",
            expected=", ".join(columns),
        )
    return table


def rows_of(table: pd.DataFrame) -> list[Any]:
    """Return the rows of a table as named tuples."""
    return list(table.itertuples(index=False))


def times_us(table: pd.DataFrame, name: str, what: str) -> Times:
    """Return a column of times as microseconds since 1970 (UTC), null as ``NO_TIME``.

    Raises
    ------
    ParameterError
        The column holds something else.
    """
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
    """Turn anything that pandas takes for a time into microseconds since 1970 (UTC).

    Parameters
    ----------
    moment : datetime-like
        Without a zone it is UTC.
    name : str
        The parameter's name, for messages.

    Raises
    ------
    ParameterError
        It is not a time.
    """
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


def written(t_us: int, *, date: bool = False) -> str:
    """Write a time of day, to the ms where it is not whole seconds; UTC."""
    moment = np.datetime64(t_us, "us").astype("datetime64[ms]" if t_us % US_PER_S else "datetime64[s]")
    return str(moment).replace("T", " ") if date else str(moment).split("T")[1]


@dataclass(frozen=True)
class TimeAxis:
    """Virtual time on an axis: seconds for spans below an hour, else the clock in UTC.

    Parameters
    ----------
    origin_us, end_us : int
        What the axis counts from, and where it ends; microseconds since 1970.
    """

    origin_us: int
    end_us: int

    @property
    def in_seconds(self) -> bool:
        """Whether the axis counts seconds."""
        return self.end_us - self.origin_us < _IN_SECONDS_US

    @property
    def title(self) -> str:
        """What the axis shows, with its unit."""
        return f"virtual time since {written(self.origin_us)}, s" if self.in_seconds else "virtual time, UTC"

    @property
    def span(self) -> str:
        """The axis's span in words."""
        one_day = self.origin_us // (86_400 * US_PER_S) == self.end_us // (86_400 * US_PER_S)
        return f"{written(self.origin_us, date=True)} – {written(self.end_us, date=not one_day)} UTC"

    def values(self, t_us: Any) -> Any:
        """Return times as the axis takes them; ``NO_TIME`` becomes a gap."""
        times = np.asarray(t_us, dtype=np.int64)
        if self.in_seconds:
            gaps = times == NO_TIME
            return np.where(gaps, np.nan, (np.where(gaps, self.origin_us, times) - self.origin_us) / US_PER_S)
        # Texts and not numbers: plotly would show numbers in the time zone of the browser.
        exact = times.astype("datetime64[us]").astype("M8[ms]" if self._short else "M8[s]")
        return [None if text == "NaT" else text for text in np.datetime_as_string(exact).tolist()]

    @property
    def _short(self) -> bool:
        return self.end_us - self.origin_us < _IN_MS_US


class Bars:
    """Rectangles along a time axis, drawn as one line: thousands of them are one shape to the browser."""

    def __init__(self) -> None:
        self._t: list[Times] = []
        self._y: list[NDArray[np.float64]] = []

    def add(self, starts: Times, ends: Times, rows: NDArray[np.float64], half: float) -> None:
        """Add rectangles around rows of the chart, so much above and below."""
        self._t.append(np.column_stack([starts, ends, ends, starts, np.full(len(starts), NO_TIME)]).ravel())
        sides = (rows - half, rows - half, rows + half, rows + half, np.full(len(rows), np.nan))
        self._y.append(np.column_stack(sides).ravel())

    def trace(self, axis: TimeAxis, name: str, colour: str, *, line_px: float = 0.0, rank: int = 1) -> Any:
        """Return the plotly trace; a line keeps what is short visible."""
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
