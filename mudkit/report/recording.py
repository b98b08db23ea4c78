"""Recorded times of a fleet: stretches of days with rows, and times in which no device reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from mudkit.trace.profile import MOMENT_S
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from mudkit.report.source import TraceSource

BREAK: Final = "break"
REST: Final = "rest"
HOLE: Final = "hole"

BREAK_DAYS: Final = 7
"""Days without rows that end a stretch."""

_MIN_PAUSE_S: Final = float(MOMENT_S)
_STEPS: Final = 3.0
_DEVICES: Final = 10
_FLEET_SHARE: Final = 0.8
_FLEET: Final = 3
_DAYS: Final = 14
_WEEKS: Final = (-14, -7, 7, 14)
_QUARTER_US: Final = 900 * US_PER_S
_DAY_US: Final = 86_400 * US_PER_S

_UNRECORDED: Final = 0.1
"""Share of a read's window that may be unrecorded where answers are judged."""

_MAX_SHIFT_H: Final = 14
_HOUR: Final = 4
"""Quarters."""
_ZONE_DEVICES: Final = 4
_ZONE_DAYS: Final = 3
_MAX_QUARTERS: Final = 2_000_000
_LEAD: Final = 10.0
"""Natural logarithm of how much likelier the best shift is than any other, at least."""
_TYPICAL_PART: Final = 0.5
"""The same, as a part of that of the median device."""


class Recording(NamedTuple):
    """Days with rows, and the times between them without a row of any device.

    Attributes
    ----------
    stretches : pandas.DataFrame
        Times from one row to another that no week or more of local days without rows divides: ``first, last``
        (day), ``days`` with rows, ``start_us, end_us`` (of the first and the last row).
    pauses : pandas.DataFrame
        Times without a row of any device, in order: ``start_us, end_us, kind``, and ``usual``, how many
        devices usually report then. A ``break`` holds a week of whole days, or more; a ``rest`` is one at
        which few devices usually report; any other is a ``hole``.
    """

    stretches: pd.DataFrame
    pauses: pd.DataFrame

    def of_kind(self, *kinds: str) -> pd.DataFrame:
        """Return the pauses of some kinds."""
        return self.pauses[self.pauses["kind"].isin(kinds)]


class Zones(NamedTuple):
    """Whole hours by which the times of each device differ from those of the others.

    Attributes
    ----------
    shift_h : numpy.ndarray
        Hours ahead of the others, by device number.
    is_judged : numpy.ndarray
        Whether the device's activity tells its shift.
    is_enough : bool
        Whether there are devices and days enough to tell any.
    """

    shift_h: NDArray[np.int64]
    is_judged: NDArray[np.bool_]
    is_enough: bool


def record(source: TraceSource) -> Recording:
    """Find the stretches and the pauses of a trace.

    A pause takes 3 minutes or longer, and at least three times as long as the median step of a device on the
    days on which it begins and ends. How many devices usually report then is their mean number a quarter of
    an hour in the middle half of that time of the day, as the median over the 14 nearest days with rows among
    the 15 before and after: weekdays for a weekday, days of weekends for a day of a weekend. A
    pause that holds a whole day is compared with the seven days before and after it, with rows or without.
    The same is computed of the two weeks before and after; the lower counts. Where nothing can be compared,
    the times just before and after count.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    quarter, per_quarter = np.unique(source.quarters["quarter"].to_numpy(), return_counts=True)
    day_of = source.local(quarter).floor("D").to_numpy().astype("datetime64[D]").astype(np.int64)
    days = np.unique(day_of)
    begin_day = np.flatnonzero(np.diff(days, prepend=days[0] - 2 * BREAK_DAYS) > BREAK_DAYS)
    last_day = np.append(begin_day[1:], len(days)) - 1
    first_us, last_us = (source.moments[name].to_numpy() for name in ("first_us", "last_us"))
    at = np.flatnonzero(first_us[1:] - last_us[:-1] >= _MIN_PAUSE_S * US_PER_S)
    start_us, end_us = last_us[at], first_us[at + 1]
    day = [day_of[np.searchsorted(quarter, moment // _QUARTER_US)] for moment in (start_us, end_us)]
    is_break, is_whole_day = day[1] - day[0] > BREAK_DAYS, day[1] - day[0] > 1
    ends_us = [np.append(source.first_us, end_us[is_break]), np.append(start_us[is_break], source.last_us)]
    stretches = pd.DataFrame(
        {
            "first": days[begin_day].astype("datetime64[D]").astype("datetime64[s]"),
            "last": days[last_day].astype("datetime64[D]").astype("datetime64[s]"),
            "days": last_day - begin_day + 1,
            "start_us": ends_us[0],
            "end_us": ends_us[1],
        }
    )
    steps_s = source.median_steps_s()
    usual_s = np.maximum(*(steps_s.reindex(part).fillna(0.0).to_numpy() for part in day))
    is_long = is_break | (end_us - start_us >= _STEPS * usual_s * US_PER_S)
    start_us, end_us, is_break = start_us[is_long], end_us[is_long], is_break[is_long]
    own = day[0][is_long]
    usual = _usual(start_us, end_us, own, quarter, per_quarter, days, is_whole_day[is_long], ends_us)
    few = min(_DEVICES, max(_FLEET, _FLEET_SHARE * len(source.devices)))
    kind = np.where(is_break, BREAK, np.where(usual < few, REST, HOLE))
    pauses = pd.DataFrame({"start_us": start_us, "end_us": end_us, "kind": kind, "usual": usual})
    return Recording(stretches, pauses)


def _usual(
    start_us: NDArray[np.int64],
    end_us: NDArray[np.int64],
    own: NDArray[np.int64],
    quarter: NDArray[np.int64],
    per_quarter: NDArray[np.int64],
    days: NDArray[np.int64],
    is_whole_day: NDArray[np.bool_],
    stretches_us: list[NDArray[np.int64]],
) -> NDArray[np.float64]:
    """Return how many devices usually report in a quarter of an hour at the time of each pause.

    ``own`` is the local day on which it begins.
    """
    sums = np.append(0, np.cumsum(per_quarter))
    if not len(start_us):
        return np.zeros(0)
    inset_us = (end_us - start_us) // 4

    def mean(shift_us: NDArray[np.int64], begins_us: NDArray[np.int64], ends_us: NDArray[np.int64]) -> Any:
        """Return the mean of the middle half, moved; NaN where it lies in none of some stretches."""
        begin, end = start_us + inset_us + shift_us, end_us - inset_us + shift_us
        first, last = begin // _QUARTER_US, end // _QUARTER_US
        rows = sums[np.searchsorted(quarter, last + 1)] - sums[np.searchsorted(quarter, first)]
        at = np.searchsorted(begins_us, begin, side="right") - 1
        is_covered = (at >= 0) & (end <= ends_us[np.maximum(at, 0)])
        return np.where(is_covered, rows / (last - first + 1), np.nan)

    place = np.searchsorted(days, own)
    near, away = [], []
    for by in range(-_DAYS - 1, _DAYS + 2):
        other = days[np.clip(place + by, 0, len(days) - 1)]
        is_other = (place + by >= 0) & (place + by < len(days)) & (other != own)
        is_other &= _is_weekend(other) == _is_weekend(own)
        near.append(np.where(is_other, mean((other - own) * _DAY_US, *stretches_us), np.nan))
        away.append(np.where(np.isfinite(near[-1]), np.abs(other - own), np.iinfo(np.int64).max))
    nearest = np.argsort(np.array(away), axis=0, kind="stable")[:_DAYS]
    by_day = _median(np.take_along_axis(np.array(near), nearest, axis=0))
    whole = stretches_us[0][:1], stretches_us[1][-1:]
    length = -(-(end_us - start_us) // _DAY_US)
    days_around = [
        mean(sign * (length + by) * _DAY_US, *whole) for by in range(_DAYS // 2) for sign in (-1, 1)
    ]
    usual = np.where(is_whole_day, _median(np.array(days_around)), by_day)
    by_week = [
        _median(np.array([mean(np.full(len(own), week * _DAY_US), *parts) for week in _WEEKS]))
        for parts in (whole, stretches_us)
    ]
    just_around = np.fmin(*(mean(sign * (end_us - start_us), *stretches_us) for sign in (-1, 1)))
    usual = np.fmin(usual, np.where(is_whole_day, *by_week))
    return np.where(np.isnan(usual), np.nan_to_num(just_around), usual)


def _is_weekend(day: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether days since 1970, which began on a Thursday, are Saturdays or Sundays."""
    return np.asarray((day + 3) % 7 >= 5)


def _median(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each column without its unknown values; NaN: all are unknown."""
    ordered = np.sort(rows, axis=0)
    known = np.isfinite(rows).sum(axis=0)
    column = np.arange(rows.shape[1])
    low, high = np.maximum(known - 1, 0) // 2, known // 2
    return np.where(known > 0, (ordered[low, column] + ordered[high, column]) / 2, np.nan)


def compare_zones(source: TraceSource) -> Zones:
    """Find by how many hours each device's activity is that of the others moved.

    For each shift the likelihood of the quarters in which a device reports, and in which it does not, follows
    from the share of the other devices that do. The best shift must be clearly likelier than the next one: by
    a factor of e¹⁰; for one that is not 0 also by half of the median device's logarithm.
    """
    table = source.quarters
    device, quarter = (table[name].to_numpy().astype(np.int64) for name in ("device", "quarter"))
    count, first = len(source.devices), int(quarter.min())
    length = int(quarter.max()) - first + 1
    days = np.bincount(np.unique(device * (length + 96) + (quarter - first) // 96) // (length + 96))
    none = Zones(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool), is_enough=False)
    if count < _ZONE_DEVICES or np.median(days) < _ZONE_DAYS or length > _MAX_QUARTERS:
        return none
    shifts_h = np.arange(-_MAX_SHIFT_H, _MAX_SHIFT_H + 1)
    fits = _fit_shifts(device, quarter - first, count, length, shifts_h)
    ordered = np.sort(fits, axis=0)
    best, lead = shifts_h[fits.argmax(axis=0)], ordered[-1] - ordered[-2]
    is_enough = days >= _ZONE_DAYS
    usual = lead[(best == 0) & is_enough]
    if 2 * len(usual) <= is_enough.sum() or (typical := float(np.median(usual))) < _LEAD:
        return none._replace(is_enough=True)
    needed = np.where(best == 0, _LEAD, max(_LEAD, _TYPICAL_PART * typical))
    return Zones(best, is_enough & (lead >= needed), is_enough=True)


def _fit_shifts(
    device: NDArray[np.int64],
    quarter: NDArray[np.int64],
    count: int,
    length: int,
    shifts_h: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the logarithm of the likelihood of each shift (row) for each device (column).

    Rows are ordered by device and quarter; quarters count from the first one, and there are ``length``.
    """
    margin = _HOUR * _MAX_SHIFT_H
    width = length + 2 * margin
    at = quarter + margin
    reporting = np.bincount(at, minlength=width).astype(np.float64)

    def logarithms(others: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        share = np.clip(others / (count - 1), 0.5 / count, 1 - 0.5 / count)
        return np.log(share), np.log1p(-share)

    # Where the device itself reports, it is none of the others.
    (on, off), (on_own, off_own) = logarithms(reporting), logarithms(np.maximum(reporting - 1, 0))
    off_before = np.append(0.0, np.cumsum(off))
    starts = np.searchsorted(device, np.arange(count))
    begin, end = at[starts], at[np.append(starts[1:], len(at)) - 1]
    key = device * width + at
    fits = []
    for shift_h in shifts_h.tolist():
        moved = at - _HOUR * shift_h
        moved_key = key - _HOUR * shift_h
        is_own = key[np.minimum(np.searchsorted(key, moved_key), len(key) - 1)] == moved_key
        reports = np.where(is_own, (on_own - off_own)[moved], (on - off)[moved])
        back = at + _HOUR * shift_h
        is_within = (back >= begin[device]) & (back <= end[device])
        own = np.where(is_within, (off_own - off)[at], 0.0)
        away = off_before[end + 1 - _HOUR * shift_h] - off_before[begin - _HOUR * shift_h]
        fits.append(np.bincount(device, reports + own, count) + away)
    return np.array(fits)


def is_recorded(begin_us: NDArray[np.int64], end_us: NDArray[np.int64], reads: pa.Table) -> NDArray[np.bool_]:
    """Return whether at least nine tenths of the window of each read lie in no interval without rows."""
    window_us = np.round(reads["window_s"].to_numpy() * US_PER_S).astype(np.int64)
    t_us = epoch_us(reads["ts"])
    return np.asarray(silent_us(begin_us, end_us, t_us - window_us, t_us) <= _UNRECORDED * window_us)


def silent_us(
    begin_us: NDArray[np.int64], end_us: NDArray[np.int64], first_us: Any, last_us: Any
) -> NDArray[np.int64]:
    """Return how much of each time from ``first_us`` to ``last_us`` lies in intervals, which may overlap."""
    order = np.argsort(begin_us, kind="stable")
    begin, end = begin_us[order], np.maximum.accumulate(end_us[order])
    begin = np.maximum(begin, np.append(begin[:1], end[:-1]))
    length = np.maximum(end - begin, 0)
    sums = np.append(0, np.cumsum(length))

    def before(moment: Any) -> NDArray[np.int64]:
        at = np.searchsorted(begin, moment, side="right")
        last = np.maximum(at - 1, 0)
        part = np.clip(moment - begin[last], 0, length[last]) if len(begin) else 0
        return np.asarray(np.where(at > 0, sums[last] + part, 0))

    return before(np.asarray(last_us)) - before(np.asarray(first_us))
