"""Defects of a trace: what is wrong, with which devices, and when."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from mudkit import words
from mudkit.report.recording import BREAK, HOLE, REST, silent_us
from mudkit.trace import profile
from mudkit.trace.parse import EXCHANGED, LATE
from mudkit.trace.profile import Stretch
from mudkit.trace.summaries import Ranks, summarise
from mudkit.trace.times import NO_TIME
from mudkit.units import US_PER_S, distance_km

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mudkit.report.source import TraceSource

_DAY_US: Final = 86_400 * US_PER_S
_QUARTER_US: Final = 900 * US_PER_S
_QUARTERS: Final = 4
_DAY_QUARTERS: Final = 24 * _QUARTERS

_FLEET: Final = 3
_SHORT_HOLE_S: Final = 3600.0
_SAME_TIME_DAYS: Final = 3
_MANY_GAPS: Final = 10
_MANY_DAYS: Final = 10

_SILENT: Final = 0.5
_SILENT_DEVICES: Final = 5
_DIP_HOURS: Final = 6
_COMPARED_DAYS: Final = 4
_SIGMAS: Final = 3.0

_REST_S: Final = 600.0
_MIN_GAP_S: Final = 3600.0
_GAP_FACTOR: Final = 3.0
_MIN_RESTS: Final = 20
_MAX_GAPS: Final = 2_000
_NEARLY: Final = 0.99

_YEAR_US: Final = 365 * _DAY_US
_RESET_SHARE: Final = 0.01
_WRONG_DAYS: Final = 1
_FIT_S: Final = 600
_FIT_MPS: Final = 70.0

_FAR_KM: Final = 300.0
_NEAR_KM: Final = 100.0

_TOO_FAST: Final = "speed over 70 m/s"
_CONTRADICTED: Final = 0.2
_CONTRADICTED_ROWS: Final = 10
_NAMED: Final = 3


_OF_FLEET: Final = {
    "hole": ("times in which no device reports", _FLEET),
    "silent": ("hours in which most devices are silent", _SILENT_DEVICES),
    "gap": ("long gaps of a device", 2),
}
"""Kinds of defects of a fleet: name, and the devices from which they can be looked for."""


KINDS: Final = {
    "hole": "times in which no device reports",
    "silent": "hours in which most devices are silent",
    "clock": "clocks that were reset",
    "exchanged": "exchanged coordinates",
    "zone": "times of several zones",
    "contradiction": "devices whose rows contradict each other",
    "gap": "devices with long gaps",
}
"""Names of the kinds of defects in a sentence."""


@dataclass(frozen=True)
class Defect:
    """Something in a trace that is not as it should be.

    Parameters
    ----------
    kind : str
        ``hole``, ``silent``, ``gap``, ``clock``, ``exchanged``, ``zone`` or ``contradiction``.
    text : str
        What is wrong, in a sentence.
    devices : tuple of str
        Devices that have it; empty: all.
    start_us, end_us : int
        When, microseconds since 1970; NO_TIME: the whole time.
    counted_s : float, optional
        How much of that time counts: of a ``gap`` that in which other devices report. By default all.
    """

    kind: str
    text: str
    devices: tuple[str, ...] = ()
    start_us: int = NO_TIME
    end_us: int = NO_TIME
    counted_s: float | None = None

    @property
    def length_s(self) -> float:
        """Length in seconds, as far as it counts; 0: the whole time."""
        if self.counted_s is not None:
            return self.counted_s
        return 0.0 if NO_TIME in (self.start_us, self.end_us) else (self.end_us - self.start_us) / US_PER_S


def find_defects(source: TraceSource) -> list[Defect]:
    """Find all defects, those of all devices first; a clean trace has none."""
    if not source.count:
        return []
    holes = list(_holes(source))
    silent = list(_silent_hours(source, holes))
    return [
        *holes,
        *silent,
        *_reset_clocks(source),
        *_wrong_days(source),
        *_exchanged(source),
        *_shifted(source),
        *_contradictions(source),
        *_gaps(source, silent),
    ]


def unchecked_kinds(source: TraceSource) -> list[str]:
    """Return the kinds of defects that could not be looked for in a trace."""
    count = len(source.devices)
    kinds = [kind for kind, (_, least) in _OF_FLEET.items() if count < least]
    return kinds if source.zones.is_judged.any() else [*kinds, "zone"]


def not_judged(source: TraceSource) -> str:
    """Return what could not be looked for in a trace, and why, in sentences; empty: all could."""
    count, zones = len(source.devices), source.zones
    missed = [what for what, least in _OF_FLEET.values() if count < least]
    texts = []
    if missed:
        texts.append(f"With {words.count(count, 'device')}, {words.joined(missed)} could not be looked for.")
    unknown = int((~zones.is_judged).sum())
    if unknown == count:
        days = words.count(len(source.days()), "day")
        few = f"{words.count(count, 'device')} in {days} are too few"
        alike = (
            f"in {days}, the times of a device fit those of the others about as well when they are moved by "
            "some hours"
        )
        reason = alike if zones.is_enough else few
        texts.append(f"Whether times are of several zones could not be seen: {reason}.")
    elif unknown:
        its = "it has" if unknown == 1 else "they have"
        texts.append(
            f"Whether the times of {words.count(unknown, 'device')} of {count:,} are of another zone could "
            f"not be seen: {its} too few rows, or a rhythm of {'its' if unknown == 1 else 'their'} own."
        )
    return " ".join(texts)


def sentences(source: TraceSource, defects: Sequence[Defect]) -> list[str]:
    """Return a sentence or two for each kind of defect: the longest of it, and how many there are more."""
    texts = []
    for kind in dict.fromkeys(defect.kind for defect in defects):
        same = [defect for defect in defects if defect.kind == kind]
        text = max(same, key=lambda defect: defect.length_s).text
        if same[1:]:
            text += f" The table below lists {len(same) - 1:,} more{coincidence(source, same)}."
        texts.append(text)
    return texts


def coincidence(source: TraceSource, defects: Sequence[Defect]) -> str:
    """Return how many of the holes come at one time of the day, as the end of a sentence; empty: too few."""
    count, minute = _at_one_time(source, defects)
    if not count:
        return ""
    cut = ", where the file seems to be cut by day" if minute == 0 else ""
    return f"; {count:,} of the {len(defects):,} holes come at {minute // 60:02d}:{minute % 60:02d}{cut}"


def in_few_days(source: TraceSource, defects: Sequence[Defect]) -> str:
    """Return how many of the long gaps begin on three days in a row, as a sentence; empty: not most of them.

    Such days are of a trace of at least ten: devices may have been out of use then, as on holidays.
    """
    starts_us = [gap.start_us for gap in defects if gap.kind == "gap"]
    if len(starts_us) < _MANY_GAPS or len(source.days()) < _MANY_DAYS:
        return ""
    days = pd.DatetimeIndex([_local(source, moment).floor("D") for moment in starts_us])
    per_day = days.value_counts().sort_index().asfreq("D", fill_value=0)
    around = per_day.rolling(3, min_periods=1).sum()
    at, count = int(around.to_numpy().argmax()), int(around.max())
    if 2 * count <= len(starts_us):
        return ""
    last = pd.Timestamp(per_day.index[at])
    span = words.listing([f"{day:%-d %B %Y}" for day in (last - pd.Timedelta(days=2), last)])
    return (
        f"{count:,} of the {len(starts_us):,} long gaps begin from {span.replace(', ', ' to ')}: devices may "
        "have been out of use then, as on holidays."
    )


def _at_one_time(source: TraceSource, defects: Sequence[Defect]) -> tuple[int, int]:
    """Return how many short holes contain one minute of the local day, and which; (0, 0): too few days."""
    counts = np.zeros(1440, dtype=np.int64)
    days: dict[int, set[dt.date]] = {}
    for hole in defects:
        if hole.kind != "hole" or hole.length_s > _SHORT_HOLE_S:
            continue
        first, last = (_local(source, moment) for moment in (hole.start_us, hole.end_us))
        minutes = pd.date_range(first.floor("min"), last.floor("min"), freq="min")
        at = np.unique(minutes.hour * 60 + minutes.minute)
        counts[at] += 1
        for minute in at.tolist():
            days.setdefault(minute, set()).add(first.date())
    # Of the minutes that most holes contain, the first after midnight, or the first of all.
    minute = int(counts.argmax())
    is_pattern = len(days.get(minute, ())) >= _SAME_TIME_DAYS
    return (int(counts[minute]), minute) if is_pattern else (0, 0)


def missing_share(source: TraceSource, defects: Sequence[Defect]) -> float:
    """Return the share of the devices' time that lies in holes, silent hours and long gaps."""
    missing_s, whole_s = missing_times_s(source, defects)
    return float(missing_s.sum() / max(whole_s.sum(), 1.0))


def missing_times_s(
    source: TraceSource, defects: Sequence[Defect]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each device the time that lies in holes, silent hours and long gaps, and all its time.

    That is the time from its first position to its last one, without the times at which no device reports
    and few usually do.
    """
    first_us, last_us = (source.device_summaries[name].to_numpy() for name in ("first_us", "last_us"))
    others = source.recording.of_kind(BREAK, REST)
    resting_us = silent_us(others["start_us"].to_numpy(), others["end_us"].to_numpy(), first_us, last_us)
    of_all = [defect for defect in defects if defect.kind in ("hole", "silent")]
    begin, end = (
        np.array([getattr(defect, name) for defect in of_all], dtype=np.int64)
        for name in ("start_us", "end_us")
    )
    missing_s = silent_us(begin, end, first_us, last_us) / US_PER_S
    gaps_s = dict.fromkeys(source.devices, 0.0)
    for defect in defects:
        if defect.kind == "gap":
            gaps_s[defect.devices[0]] += defect.length_s
    return missing_s + np.array(list(gaps_s.values())), (last_us - first_us - resting_us) / US_PER_S


def usable(source: TraceSource, defects: Sequence[Defect]) -> str:
    """Return what the defects mean for the use of the trace, in a sentence; empty: nothing."""
    parts = []
    if any(defect.kind in ("hole", "silent", "gap") for defect in defects):
        share = words.percent(missing_share(source, defects))
        parts.append(
            f"for {share} of the devices' time there are no rows, although other devices or other days have "
            "some: rows are missing, or devices were out of use. Counts by hour may be too low there, and a "
            "stop or a trip ends where a gap begins"
        )
    wrong = [defect for defect in defects if defect.kind in ("clock", "exchanged", "zone", "contradiction")]
    devices = {name for defect in wrong for name in defect.devices}
    if devices:
        parts.append(
            f"{words.count(len(devices), 'device')} of {len(source.devices):,} "
            f"{'has' if len(devices) == 1 else 'have'} wrong times or places, and should be left out"
        )
    if not parts:
        return ""
    text = "; ".join(parts)
    others = set(source.warnings()) - set(sentences(source, defects))
    rest = "" if others else " The rest can be used as it is."
    return f"{text[0].upper()}{text[1:]}.{rest}"


def _holes(source: TraceSource) -> Iterable[Defect]:
    """Find times in which no device reports, though many usually do."""
    holes = source.recording.of_kind(HOLE)
    for start_us, end_us, usual in zip(holes["start_us"], holes["end_us"], holes["usual"], strict=True):
        yield Defect(
            "hole",
            f"No device reports from {_span(source, start_us, end_us)}; {round(usual):,} usually do then.",
            (),
            int(start_us),
            int(end_us),
        )


def _silent_hours(source: TraceSource, holes: Sequence[Defect]) -> Iterable[Defect]:
    """Find hours, from any quarter on, in which fewer than half of the devices report that do around them."""
    table = source.quarters
    quarter, device = table["quarter"].to_numpy(), table["device"].to_numpy()
    first, last = int(quarter.min()), int(quarter.max()) - _QUARTERS + 1
    if last - first < 4 * _QUARTERS or last - first > 2_000_000:
        return
    devices = np.zeros(last - first + 1)
    for begin in range(_QUARTERS):  # hours that begin at this quarter
        hour = (quarter - first - begin) // _QUARTERS
        pairs = np.unique(hour[hour >= 0] * len(source.devices) + device[hour >= 0])
        counts = np.bincount(pairs // len(source.devices), minlength=len(devices) // _QUARTERS + 1)
        part = devices[begin::_QUARTERS]
        part[:] = counts[: len(part)]
    around = _DIP_HOURS * _QUARTERS
    padded = np.pad(devices, around)
    windows = np.lib.stride_tricks.sliding_window_view(padded, around - _QUARTERS + 1).max(axis=1)
    level = np.minimum(windows[: len(devices)], windows[around + _QUARTERS :][: len(devices)])
    is_low = (devices > 0) & (devices < _SILENT * level) & (level >= _SILENT_DEVICES)
    is_low &= level - devices >= _SIGMAS * np.sqrt(level)
    is_low &= level >= _SILENT * np.percentile(devices[devices > 0], 90)
    begins = np.arange(first, last + 1)
    days = np.unique(quarter // _DAY_QUARTERS)
    if len(days) >= _COMPARED_DAYS:
        by_day = np.zeros((int(days[-1] - days[0]) + 1) * _DAY_QUARTERS)
        by_day[begins - days[0] * _DAY_QUARTERS] = devices
        usual = np.median(by_day.reshape(-1, _DAY_QUARTERS)[days - days[0]], axis=0)[begins % _DAY_QUARTERS]
        is_low &= devices < _SILENT * usual
        is_low &= usual - devices >= _SIGMAS * np.sqrt(usual)
    within = np.convolve(is_low, np.ones(_QUARTERS)) > 0  # quarters of such an hour
    for begin, end in _runs(within):
        start_us, end_us = (first + begin) * _QUARTER_US, (first + end) * _QUARTER_US
        if any(hole.start_us <= start_us and end_us <= hole.end_us for hole in holes):
            continue
        hours = slice(begin, end - _QUARTERS + 1)
        counted = devices[hours][is_low[hours]]
        least, most = int(counted.min()), int(counted.max())
        few = words.count(most, "device") if least == most else f"{least:,} to {most:,} devices"
        yield Defect(
            "silent",
            f"From {_span(source, start_us, end_us)} only {few} "
            f"report{'s' if few == '1 device' else ''} in an hour; in the hours around it "
            f"{int(level[hours].max()):,} do.",
            (),
            start_us,
            end_us,
        )


def _reset_clocks(source: TraceSource) -> Iterable[Defect]:
    """Find rows years away from all others, and those from before 1980 or after 2100."""
    aside = source.aside_counts[source.aside_counts["reason"] == LATE]
    if rows := int(aside["rows"].sum()):
        known = aside[aside["first_us"] != NO_TIME]
        ends = [known["first_us"].min(), known["last_us"].max()] if len(known) else []
        named = words.listing(dict.fromkeys(_date(int(part)) for part in ends)).replace(", ", " to ")
        devices = tuple(sorted({name for name in aside["device"] if name}))
        yield Defect(
            "clock",
            f"{words.count(rows, 'row')} {'is' if rows == 1 else 'are'} dated before 1980 or "
            f"after 2100{f' ({named})' if named else ''}: a clock was reset{_of(devices)}.",
            devices,
        )
    outside = partial(profile.rows_outside, *_years_around(source))
    rows = summarise(source.positions, {"rows": outside})["rows"]
    yield from _misdated(source, rows, "more than a year away from the others: a clock was reset")


def _wrong_days(source: TraceSource) -> Iterable[Defect]:
    """Find rows of a device, days away from most others, that would fit into a gap between its other rows."""
    margin_us = _WRONG_DAYS * _DAY_US
    low, high = source.values("times").quantiles((0.01, 0.99)) + margin_us * np.array([-1, 1])
    devices = source.device_summaries
    steps: pd.DataFrame = source.long_steps().to_pandas()
    steps = steps[steps["end_us"] - steps["start_us"] >= margin_us].merge(devices, on="device")
    of_first = steps["rows"] - steps["number"] - 1 > steps["number"] + 1
    is_far = np.where(of_first, steps["start_us"] < low, steps["end_us"] > high)
    is_far |= np.where(of_first, steps["first_us"] > high, steps["last_us"] < low)
    steps, of_first = steps[is_far], of_first[is_far]
    if steps.empty:
        return
    stretches = tuple(map(_stretch, steps.to_dict("records"), of_first))
    fitting_gaps = partial(profile.gaps_for, stretches, _FIT_S * US_PER_S, _FIT_MPS)
    gaps = summarise(source.positions, {"gaps": fitting_gaps})["gaps"]
    fitting = [stretches[row["stretch"]] for row in gaps.to_pylist() if row["gaps"]]
    before_us: dict[str, int] = {}
    after_us: dict[str, int] = {}
    for stretch in fitting:
        if stretch.is_first:
            before_us[stretch.device] = max(stretch.cut_us, before_us.get(stretch.device, stretch.cut_us))
        else:
            after_us[stretch.device] = min(stretch.cut_us, after_us.get(stretch.device, stretch.cut_us))
    if not fitting:
        return
    edges = profile.Edges(before_us, after_us)
    at_edges = partial(profile.rows_at, edges, *_years_around(source))  # others are named by themselves
    rows = summarise(source.positions, {"rows": at_edges})["rows"]
    why = "days away from the others, and would fit into a gap between them: a clock was wrong"
    yield from _misdated(source, rows, why)


def _stretch(step: Mapping[Hashable, Any], is_first: bool) -> Stretch:
    """Return the rows of a device before a long step, or those after it."""
    if is_first:
        cut_us, lasts_us = step["start_us"], step["start_us"] - step["first_us"]
        ends = step["first_lat"], step["first_lon"], step["lat"], step["lon"]
    else:
        cut_us, lasts_us = step["end_us"], step["last_us"] - step["end_us"]
        ends = step["next_lat"], step["next_lon"], step["last_lat"], step["last_lon"]
    return Stretch(str(step["device"]), bool(is_first), cut_us, lasts_us, ends)


def _years_around(source: TraceSource) -> tuple[float, float]:
    """Return the times a year before and after nearly all rows, microseconds since 1970."""
    low, high = source.values("times").quantiles((0.01, 0.99))
    return float(low - _YEAR_US), float(high + _YEAR_US)


def _misdated(source: TraceSource, rows: pa.Table, why: str) -> Iterable[Defect]:
    """Yield the defect of rows with wrong dates, counted by device, if there are any and they are few."""
    count = int(np.sum(rows["rows"].to_numpy()))
    if not count or count > _RESET_SHARE * source.count:
        return
    devices = tuple(rows["device"].to_pylist())
    first, last = int(rows["first_us"].to_numpy().min()), int(rows["last_us"].to_numpy().max())
    named = words.listing(dict.fromkeys(_date(part) for part in (first, last))).replace(", ", " to ")
    yield Defect(
        "clock",
        f"{words.count(count, 'position')} {'is' if count == 1 else 'are'} dated {named}, "
        f"{why}{_of(devices)}.",
        devices,
        first,
        last,
    )


def _exchanged(source: TraceSource) -> Iterable[Defect]:
    """Find rows whose latitude and longitude are exchanged: far away, and near if exchanged back."""
    middle = source.values("lat").median(), source.values("lon").median()
    distances = profile.distance_values(*middle)
    apart = summarise(source.positions, {"apart": distances.ranges})["apart"]
    around_km = Ranks(source.positions, distances, apart).median()
    far_km, near_km = max(_FAR_KM, 10 * around_km), max(_NEAR_KM, 5 * around_km)
    tables = []
    if abs(middle[1]) <= 90 and distance_km(middle[1], middle[0], *middle) > far_km:
        exchanged = partial(profile.exchanged, middle, far_km, near_km)
        tables.append(summarise(source.positions, {"rows": exchanged})["rows"])
    of_aside = partial(profile.exchanged_aside, middle, far_km, near_km, (EXCHANGED, _TOO_FAST))
    tables.append(source.summarise_aside({"rows": of_aside})["rows"])
    rows: Counter[str] = Counter()
    times: list[int] = []
    for row in (row for table in tables for row in table.to_pylist()):
        rows[row["device"]] += row["rows"]
        times += [row[name] for name in ("first_us", "last_us") if row[name] is not None]
    if not rows:
        return
    devices = tuple(sorted((name for name in rows if name), key=lambda name: (-rows[name], name)))
    total = sum(rows.values())
    yield Defect(
        "exchanged",
        f"Latitude and longitude are exchanged in {words.count(total, 'row')}{_of(devices)}.",
        devices,
        min(times, default=NO_TIME),
        max(times, default=NO_TIME),
    )


def _shifted(source: TraceSource) -> Iterable[Defect]:
    """Find devices whose activity is that of the others some whole hours earlier or later."""
    zones = source.zones
    is_other = zones.is_judged & (zones.shift_h != 0)
    for shift in np.unique(zones.shift_h[is_other]).tolist():
        numbers = np.flatnonzero(is_other & (zones.shift_h == shift))
        devices = tuple(source.devices[number] for number in numbers)
        yield Defect(
            "zone",
            f"The times of {words.count(len(devices), 'device')} are {abs(int(shift))} h "
            f"{'ahead of' if shift > 0 else 'behind'} those of the others, as if another time zone had been "
            f"written: {words.listing(devices, _NAMED)}.",
            devices,
        )


def _contradictions(source: TraceSource) -> Iterable[Defect]:
    """Find devices of whose rows a fifth or more contradict the others."""
    aside = source.aside_counts[source.aside_counts["reason"] == _TOO_FAST]
    aside = aside.sort_values(["rows", "device"], ascending=[False, True])
    kept = source.device_summaries.set_index("device")["rows"]
    shares = {
        str(name): count / (count + kept.get(name, 0))
        for name, count in zip(aside["device"], aside["rows"], strict=True)
        if count >= _CONTRADICTED_ROWS
    }
    devices = tuple(name for name, share in shares.items() if share >= _CONTRADICTED)
    if devices:
        yield Defect(
            "contradiction",
            "A fifth or more of the rows contradict the others: two devices share a name, or a clock was set "
            f"back{_of(devices)}.",
            devices,
        )


def _gaps(source: TraceSource, silent: Sequence[Defect]) -> Iterable[Defect]:
    """Find times without a row of a device that are much longer than usual, counted while others report."""
    if len(source.devices) < 2:
        return
    breaks = source.recording.of_kind(BREAK)
    begin_us, end_us = breaks["start_us"].to_numpy(), breaks["end_us"].to_numpy()
    steps = source.long_steps()
    start_us, last_us = steps["start_us"].to_numpy(), steps["end_us"].to_numpy()
    steps = steps.filter(pa.array(silent_us(begin_us, end_us, start_us, last_us) == 0))
    pauses = source.recording.pauses
    off_us = [
        np.concatenate([pauses[name].to_numpy(), [getattr(defect, name) for defect in silent]]).astype(int)
        for name in ("start_us", "end_us")
    ]
    start_us, end_us = steps["start_us"].to_numpy(), steps["end_us"].to_numpy()
    counted_s = (end_us - start_us - silent_us(off_us[0], off_us[1], start_us, end_us)) / US_PER_S
    whole_s = (end_us - start_us) / US_PER_S
    is_rest = counted_s >= _REST_S
    if not is_rest.any():
        return
    is_long = counted_s >= _MIN_GAP_S
    for length_s in (counted_s, whole_s):
        usual_s = (
            float(np.percentile(length_s[is_rest], 95))
            if is_rest.sum() >= _MIN_RESTS
            else 10 * source.values("steps").median()
        )
        is_long &= length_s >= _GAP_FACTOR * usual_s
    longest = np.flatnonzero(is_long)[np.argsort(-counted_s[is_long], kind="stable")[:_MAX_GAPS]]
    for row in longest.tolist():
        begin, end = int(start_us[row]), int(end_us[row])
        name = steps["device"][row].as_py()
        others = (
            ", while others do"
            if counted_s[row] * US_PER_S >= _NEARLY * (end - begin)
            else f"; others report for {words.duration(float(counted_s[row]))} of that time"
        )
        text = f"{name} reports nothing from {_span(source, begin, end)}{others}."
        yield Defect("gap", text, (name,), begin, end, float(counted_s[row]))


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return begin and end of each run of true flags."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _span(source: TraceSource, start_us: int, end_us: int) -> str:
    """Return when something begins and ends, local time, and how long it is."""
    start, end = (_local(source, part) for part in (start_us, end_us))
    until = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%-d %B %Y, %H:%M}"
    changed = " as clocks change" if start.utcoffset() != end.utcoffset() else ""
    length = words.duration(round((end_us - start_us) / US_PER_S))
    return f"{start:%-d %B %Y, %H:%M} to {until} ({length}{changed})"


def _local(source: TraceSource, t_us: int) -> pd.Timestamp:
    """Return a time (µs since 1970) in the time zone of the report."""
    return pd.Timestamp(t_us, unit="us", tz="UTC").tz_convert(source.tz)


def _date(t_us: int) -> str:
    """Return the day of a time (µs since 1970, UTC) in words."""
    return f"{pd.Timestamp(t_us, unit='us'):%-d %B %Y}"


def _of(devices: Sequence[str]) -> str:
    """Return the devices as the end of a sentence."""
    if not devices:
        return ""
    return f" ({words.count(len(devices), 'device')}: {words.listing(devices, _NAMED)})"
