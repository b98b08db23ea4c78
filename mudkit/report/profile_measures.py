"""The figures that the first screen of the report trace_profile writes to summary.json.

Intervals take rows of one device, and of one day, as alike: they are for the expectation over such devices
and days. Defects are counted as they are, without intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import intervals, words
from mudkit.intervals import Interval
from mudkit.report.defects import KINDS, Defect, missing_times_s, unchecked_kinds
from mudkit.report.page import Measure
from mudkit.report.source import TraceSource
from mudkit.report.stays import Stays
from mudkit.trace.movement import MIN_STOP_S, MIN_TRIP_KM
from mudkit.trace.profile import QUARTER_S, steps_by_day
from mudkit.trace.recordings import device_codes
from mudkit.trace.summaries import Ranks, Rows, summarise
from mudkit.units import US_PER_S

CLEAN: Final = 0.01
"""Share of rows set aside above which no trace is called clean."""
WHOLE_DAY_HOURS: Final = 20
"""Hours with rows of a day that is called whole."""
_US_PER_DAY: Final = 86_400 * US_PER_S


def first_measures(
    source: TraceSource, defects: Sequence[Defect], stays: Stays, aside_share: float, *, is_clean: bool
) -> list[Measure]:
    """Return the figures of the first screen."""
    days, (begun, resumed) = source.days(), source.reads_where_recorded_anew()
    steps_s, per_day = source.median_steps_s(), days["devices"]
    missing = intervals.ratio(*missing_times_s(source, defects))
    aside = int(source.rows.loc[source.rows["what"].str.startswith("rejected"), "rows"].sum())

    def counted(kind: str) -> int:
        return sum(defect.kind == kind for defect in defects)

    def named(kind: str) -> int:
        return len({name for defect in defects if defect.kind == kind for name in defect.devices})

    silent_us = sum(defect.end_us - defect.start_us for defect in defects if defect.kind == "silent")
    stretches = source.recording.stretches
    return [
        _measure("devices", len(source.devices), "", "Devices with positions."),
        _measure("positions", _total(source, *_by_day(source.quarters)), "", "Positions that were kept."),
        _measure("reads", _total_reads(source), "", "Reads, recorded or derived."),
        _measure("positions_per_device", intervals.median(source.device_summaries["rows"]), "",
                 "Positions of the median device."),
        _measure("median_interval_s", median_step_s(source.positions, source.values("steps")), "s",
                 "Median time between two positions of a device."),
        _measure("shortest_day_interval_s", steps_s.min() if len(steps_s) else None, "s",
                 "The same on the day on which it is shortest."),
        _measure("longest_day_interval_s", steps_s.max() if len(steps_s) else None, "s",
                 "The same on the day on which it is longest."),
        _measure("days", len(days), "days", "Days of local time with rows."),
        _measure("whole_days", count_whole_days(source), "days",
                 f"Days with rows in {WHOLE_DAY_HOURS} hours or more."),
        _measure("devices_per_day", intervals.median(per_day), "", "Devices that report, median day."),
        _measure("span_days", span_days(stretches), "days",
                 "Days of local time from the first row to the last."),
        _measure("stretches", len(stretches), "", "Stretches that a week or more without rows divides."),
        _measure("missing_share", missing, "share", "Of the time from the first to the last row of each "
                 "device, what lies in holes, silent hours and long gaps."),
        _measure("reads_where_recorded_anew", begun + resumed, "", "Reads that `trip_start` derives where "
                 "the recording begins or resumes."),
        _measure("rows_set_aside", aside, "", "Rows of these devices that were set aside."),
        _measure("rows_set_aside_share", _aside_share(source, aside_share), "share",
                 "Rows of these devices that were set aside, of all."),
        _measure("is_clean", "yes" if is_clean else "no", "", "Whether no defect was found, and at most "
                 f"{words.percent(CLEAN)} of the rows were set aside."),
        _measure("defect_kinds", len(KINDS), "", "Kinds of defects that are looked for."),
        _measure("defect_kinds_checked", len(KINDS) - len(unchecked_kinds(source)), "",
                 "Of these, how many could be looked for in this trace."),
        _measure("fleet_holes", counted("hole"), "",
                 "Times in which no device reports, though many usually do."),
        _measure("silent_hours", silent_us / 3600e6, "h",
                 "Hours in which under half of the usual devices report."),
        _measure("devices_with_reset_clock", named("clock"), "",
                 "Devices with rows years away from others."),
        _measure("devices_with_exchanged_places", named("exchanged"), "",
                 "Devices with lat and lon exchanged."),
        _measure("devices_in_other_zone", named("zone"), "", "Devices whose times are whole hours off."),
        _measure("long_gaps", counted("gap"), "",
                 "Times without a row of a device, far beyond its rests, while others report."),
        *_of_stays(source, stays),
    ]  # fmt: skip


def _of_stays(source: TraceSource, stays: Stays) -> list[Measure]:
    """Return the measures of stops and trips."""
    stops, trips = stays

    def median(table: pd.DataFrame, column: str) -> Interval:
        return intervals.median(table[column], table["device"], table["start_us"] // _US_PER_DAY)

    def total(table: pd.DataFrame) -> Interval:
        counted = table.assign(day=table["start_us"] // _US_PER_DAY).groupby(["device", "day"]).size()
        number, day = (counted.index.get_level_values(name).to_numpy() for name in ("device", "day"))
        return _total(source, number, day, np.asarray(counted, dtype=np.int64))

    return [
        _measure("stops", total(stops), "", f"Stays within 50 m for at least {MIN_STOP_S:g} s."),
        _measure("trips", total(trips), "",
                 f"Ways of {MIN_TRIP_KM:g} km or more between stops or silences."),
        _measure("median_stop_s", median(stops, "stop_s"), "s", "Median length of a stop."),
        _measure("median_trip_s", median(trips, "trip_s"), "s", "Median length of a trip."),
        _measure("median_trip_km", median(trips, "trip_km"), "km", "Median way of a trip."),
        _measure("median_speed_mps", median(trips, "speed_mps"), "m/s",
                 "Median over trips of way by time."),
    ]  # fmt: skip


def _measure(name: str, value: Interval | float | str | None, unit: str, definition: str) -> Measure:
    """Return a measure; an interval gives its ends, a range none."""
    if not isinstance(value, Interval):
        return Measure(name, value, unit, definition)
    ends = (value.low, value.high) if value.kind == "interval" else (None, None)
    return Measure(name, value.value, unit, definition, *ends)


def _total(
    source: TraceSource, device: NDArray[np.int64], day: NDArray[np.int64], rows: NDArray[np.int64]
) -> Interval:
    """Return the number of rows, with its interval over the devices of the trace and its days.

    Rows are counted by device (number) and day of UTC.
    """
    first, last = (end // _US_PER_DAY for end in (source.first_us, source.last_us))
    counts = np.zeros((len(source.devices), last - first + 1), dtype=np.int64)
    np.add.at(counts, (device, day - first), rows)
    return intervals.total(counts[:, counts.any(axis=0)])  # of days without a row none is expected


def _by_day(quarters: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return devices, days of UTC and rows of counts by quarter of an hour."""
    device, quarter, rows = (quarters[name].to_numpy() for name in ("device", "quarter", "rows"))
    return device, quarter // (86_400 // QUARTER_S), rows


def _total_reads(source: TraceSource) -> Interval | int:
    """Return the number of reads; with an interval if all are of devices with positions, in their time."""
    if not source.read_count:
        return 0
    numbers = source.numbers(pa.array(source.read_quarters["device"], pa.string()))
    first_us, last_us = source.read_ends_us
    is_within = first_us >= source.first_us and last_us <= source.last_us and (numbers >= 0).all()
    if not is_within:
        return source.read_count
    return _total(source, *_by_day(source.read_quarters.assign(device=numbers)))


def median_step_s(rows: Rows, steps: Ranks) -> Interval:
    """Return the median time between two rows of a device, with its interval over devices and days."""
    value = steps.median()
    if steps.count() < 2:
        return Interval(value, np.nan, np.nan, "value")
    table = summarise(rows, {"steps": partial(steps_by_day, value)})["steps"]
    below = table["below"].to_numpy() + 0.5 * table["equal"].to_numpy()
    counts = table["rows"].to_numpy().astype(np.float64)
    clusters = device_codes(table["device"]), table["day"].to_numpy()
    low, high = steps.quantiles(intervals.median_levels(below, counts, *clusters))
    return Interval(value, float(low), float(high), "interval")


def _aside_share(source: TraceSource, share: float) -> Interval | float:
    """Return the share of rows set aside; with an interval over devices if all rows name theirs."""
    by_device = source.aside_counts.groupby("device")["rows"].sum()
    counts = by_device.reindex(source.devices, fill_value=0).to_numpy()
    over = intervals.ratio(counts, counts + source.device_summaries["rows"].to_numpy())
    return over if abs(over.value - share) < 1e-12 else share


def span_days(stretches: pd.DataFrame) -> int:
    """Return the days of local time from the first row to the last."""
    return int((stretches["last"].iloc[-1] - stretches["first"].iloc[0]).days) + 1


def count_whole_days(source: TraceSource) -> int:
    """Return the number of days with positions in nearly all hours."""
    hours = source.hours()
    per_day = pd.DatetimeIndex(hours.index[hours["positions"] > 0]).floor("D").value_counts()
    return int((per_day >= WHOLE_DAY_HOURS).sum())
