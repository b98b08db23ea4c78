"""Defects of a trace: what is wrong, with which devices, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from mudkit import words
from mudkit.report.source import QUARTER_S, TraceSource
from mudkit.trace.parse import EXCHANGED, LATE
from mudkit.trace.values import NO_TIME
from mudkit.units import US_PER_S, distance_km

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Defect", "find_defects", "sentences"]

_HOUR_US: Final = 3600 * US_PER_S
_QUARTER_US: Final = QUARTER_S * US_PER_S
_QUARTERS_A_DAY: Final = 96

_MIN_COVERED_S: Final = 600.0
_MIN_HOLE_S: Final = 180.0
_HOLE_FACTOR: Final = 3.0
_HOLE_ROWS: Final = 20
_HOLE_RATE: Final = 0.25
_MAX_HOLES: Final = 500
_FLEET: Final = 3
_CHANCE: Final = 1e-3

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

_YEAR_US: Final = 365 * 24 * _HOUR_US
_RESET_SHARE: Final = 0.01

_FAR_KM: Final = 300.0
_NEAR_KM: Final = 100.0

_MAX_SHIFT_H: Final = 14
_SHIFT_SCORE: Final = 0.3
_SHIFT_CORRELATION: Final = 0.8

_TOO_FAST: Final = "speed over 70 m/s"
_CONTRADICTED: Final = 0.2
_CONTRADICTED_ROWS: Final = 10
_NAMED: Final = 3


@dataclass(frozen=True)
class Defect:
    """Something in a trace that is not as it should be.

    Parameters
    ----------
    kind : str
        ``hole``, ``silent``, ``gap``, ``clock``, ``exchanged``, ``zone``, ``nowhere`` or ``contradiction``.
    text : str
        What is wrong, in a sentence.
    devices : tuple of str
        Devices that have it; empty: all.
    start_us, end_us : int
        When, microseconds since 1970; NO_TIME: the whole time.
    """

    kind: str
    text: str
    devices: tuple[str, ...] = ()
    start_us: int = NO_TIME
    end_us: int = NO_TIME

    @property
    def length_s(self) -> float:
        """Length in seconds; 0: the whole time."""
        return 0.0 if NO_TIME in (self.start_us, self.end_us) else (self.end_us - self.start_us) / US_PER_S


def find_defects(source: TraceSource) -> list[Defect]:
    """Find all defects, those of all devices first; a clean trace has none."""
    if not len(source.positions):
        return []
    holes = list(_holes(source))
    silent = list(_silent_hours(source, holes))
    return [
        *holes,
        *silent,
        *_reset_clocks(source),
        *_exchanged(source),
        *_shifted(source),
        *_nowhere(source),
        *_contradictions(source),
        *_gaps(source, [*holes, *silent]),
    ]


def sentences(defects: Sequence[Defect]) -> list[str]:
    """Return a sentence for each kind of defect: the longest of it, and how many there are more."""
    texts = []
    for kind in dict.fromkeys(defect.kind for defect in defects):
        same = [defect for defect in defects if defect.kind == kind]
        more = f" The table below lists {len(same) - 1:,} more." if same[1:] else ""
        texts.append(max(same, key=lambda defect: defect.length_s).text + more)
    return texts


def _holes(source: TraceSource) -> Iterable[Defect]:
    """Find times in which no device reports, though all did just before and just after."""
    order = np.argsort(source.t_us, kind="stable")
    t_us = source.t_us[order]
    steps_s = np.diff(t_us) / US_PER_S
    if len(source.devices) < _FLEET or not len(steps_s):
        return
    own_s = _steps_s(source)
    shortest_s = max(
        _MIN_HOLE_S,
        _HOLE_FACTOR * float(np.percentile(steps_s, 99)),
        _HOLE_FACTOR * float(np.median(own_s)) if len(own_s) else 0.0,
    )
    quarters = source.quarters
    usual = float(np.median(quarters.groupby("quarter")["rows"].sum())) / QUARTER_S
    longest = np.argsort(-steps_s, kind="stable")[:_MAX_HOLES]
    for at in np.sort(longest[steps_s[longest] >= shortest_s]).tolist():
        start_us, end_us = int(t_us[at]), int(t_us[at + 1])
        length_s = (end_us - start_us) / US_PER_S
        around_us = int(min(max(length_s, 1800.0), 3600.0) * US_PER_S)
        edges = np.searchsorted(t_us, [start_us - around_us, end_us + around_us])
        covered_s = [  # a trace may begin or end, or have another hole, near by
            max((end - begin) / US_PER_S, _MIN_COVERED_S)
            for begin, end in ((t_us[edges[0]], start_us), (end_us, t_us[edges[1] - 1]))
        ]
        rate = min((at - edges[0] + 1) / covered_s[0], (edges[1] - at - 1) / covered_s[1])
        if rate * length_s < _HOLE_ROWS or rate < _HOLE_RATE * usual:
            continue
        before, after = (
            np.unique(source.device[order[first:last]])
            for first, last in ((edges[0], at + 1), (at + 1, edges[1]))
        )
        common = len(np.intersect1d(before, after))
        if common < max(_FLEET, min(len(before), len(after)) / 2):
            continue
        if _is_usual(t_us, start_us, end_us) or _is_rhythm(t_us, at):
            continue
        share = _silent_share(own_s, length_s, length_s + 2 * around_us / US_PER_S)
        trials = (t_us[-1] - t_us[0]) / US_PER_S / length_s
        if trials * share**common > _CHANCE:
            continue
        yield Defect(
            "hole",
            f"No device reports from {_span(source, start_us, end_us)}, though {common:,} did "
            "just before and after.",
            (),
            start_us,
            end_us,
        )


def _is_usual(t_us: NDArray[np.int64], start_us: int, end_us: int) -> bool:
    """Return whether most of the days or weeks around have no rows at that time either, as at night."""
    day_us = 24 * _HOUR_US
    is_long = end_us - start_us >= day_us
    if end_us - start_us >= 7 * day_us:
        return False
    # Nights do not begin to the minute: only the middle is compared.
    margin_us = (end_us - start_us) // 8
    rows = []
    for day in (-14, -7, 7, 14) if is_long else (-7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7):
        first, begin, end, last = np.searchsorted(
            t_us,
            np.array(
                [start_us - 3 * _HOUR_US, start_us + margin_us, end_us - margin_us, end_us + 3 * _HOUR_US]
            )
            + day * day_us,
        )
        if begin > first and last > end:
            rows.append(end - begin)
    return len(rows) >= (1 if is_long else 2) and float(np.median(rows)) == 0.0


def _is_rhythm(t_us: NDArray[np.int64], at: int) -> bool:
    """Return whether steps of such a length are usual around it, as in a feed that is read now and then."""
    first, last = np.searchsorted(t_us, [t_us[at] - 3 * _HOUR_US, t_us[at + 1] + 3 * _HOUR_US])
    steps_us = np.sort(np.diff(t_us[first:last]))
    return bool(len(steps_us) > 3 and t_us[at + 1] - t_us[at] < 2 * steps_us[-4])


def _silent_share(own_s: NDArray[np.float64], length_s: float, most_s: float) -> float:
    """Return the share of time that devices, which report before and after, are silent for a length."""
    short_s = own_s[own_s <= most_s]
    return float(short_s[short_s >= length_s].sum() / max(short_s.sum(), 1.0))


def _silent_hours(source: TraceSource, holes: Sequence[Defect]) -> Iterable[Defect]:
    """Find hours in which fewer than half of the devices report that do before and after."""
    quarters = source.quarters
    hour = quarters["quarter"].to_numpy() // 4
    pairs = np.unique(hour * len(source.devices) + quarters["device"].to_numpy())
    busy_hours, counts = np.unique(pairs // len(source.devices), return_counts=True)
    first, last = int(busy_hours[0]), int(busy_hours[-1])
    if last - first < 4 or last - first > 2_000_000:
        return
    devices = np.zeros(last - first + 1)
    devices[busy_hours - first] = counts
    padded = np.concatenate([np.zeros(_DIP_HOURS), devices, np.zeros(_DIP_HOURS)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _DIP_HOURS).max(axis=1)
    level = np.minimum(windows[: len(devices)], windows[_DIP_HOURS + 1 :][: len(devices)])
    is_low = (devices > 0) & (devices < _SILENT * level) & (level >= _SILENT_DEVICES)
    is_low &= level - devices >= _SIGMAS * np.sqrt(level)
    is_low &= level >= _SILENT * np.percentile(devices[devices > 0], 90)
    clock = np.arange(first, last + 1) % 24
    days = np.unique(busy_hours // 24)
    if len(days) >= _COMPARED_DAYS:
        by_day = np.zeros((int(days[-1] - days[0]) + 1, 24))
        by_day[busy_hours // 24 - days[0], busy_hours % 24] = counts
        usual = np.median(by_day[days - days[0]], axis=0)
        is_low &= devices < _SILENT * usual[clock]
        is_low &= usual[clock] - devices >= _SIGMAS * np.sqrt(usual[clock])
    for begin, end in _runs(is_low):
        start_us, end_us = (first + begin) * _HOUR_US, (first + end) * _HOUR_US
        if any(hole.start_us <= start_us and end_us <= hole.end_us for hole in holes):
            continue
        least, most = (int(part) for part in (devices[begin:end].min(), devices[begin:end].max()))
        few = words.count(most, "device") if least == most else f"{least:,} to {most:,} devices"
        around = int(level[begin:end].max())
        yield Defect(
            "silent",
            f"From {_span(source, start_us, end_us)} only {few} "
            f"report{'s' if few == '1 device' else ''}; in the hours around it {around:,} do.",
            (),
            start_us,
            end_us,
        )


def _reset_clocks(source: TraceSource) -> Iterable[Defect]:
    """Find rows years away from all others, and those from before 1980 or after 2100."""
    aside = source.aside[source.aside["reason"] == LATE]
    if len(aside):
        known = aside["t_us"][aside["t_us"] != NO_TIME]
        dates = [_date(int(part)) for part in (known.min(), known.max())] if len(known) else []
        named = words.listing(dict.fromkeys(dates)).replace(", ", " to ")
        devices = tuple(sorted({name for name in aside["device"] if name}))
        yield Defect(
            "clock",
            f"{words.count(len(aside), 'row')} {'is' if len(aside) == 1 else 'are'} dated before 1980 or "
            f"after 2100{f' ({named})' if named else ''}: a clock was reset{_of(devices)}.",
            devices,
        )
    t_us = source.t_us
    low, high = np.percentile(t_us, [1, 99])
    is_off = (t_us < low - _YEAR_US) | (t_us > high + _YEAR_US)
    if not is_off.any() or is_off.mean() > _RESET_SHARE:
        return
    numbers = np.unique(source.device[is_off])
    devices = tuple(source.devices[number] for number in numbers)
    first, last = int(t_us[is_off].min()), int(t_us[is_off].max())
    named = words.listing(dict.fromkeys(_date(part) for part in (first, last))).replace(", ", " to ")
    yield Defect(
        "clock",
        f"{words.count(int(is_off.sum()), 'position')} {'is' if is_off.sum() == 1 else 'are'} dated "
        f"{named}, more than a year away from the others: a clock was reset{_of(devices)}.",
        devices,
        first,
        last,
    )


def _exchanged(source: TraceSource) -> Iterable[Defect]:
    """Find rows whose latitude and longitude are exchanged: far away, and near if exchanged back."""
    lat, lon = (source.positions[name].to_numpy() for name in ("lat", "lon"))
    middle = float(np.median(lat)), float(np.median(lon))
    apart_km = distance_km(lat, lon, *middle)
    around_km = float(np.median(apart_km))
    far_km, near_km = max(_FAR_KM, 10 * around_km), max(_NEAR_KM, 5 * around_km)
    rows: dict[str, int] = {}
    times = []
    if abs(middle[1]) <= 90 and distance_km(middle[1], middle[0], *middle) > far_km:
        far = np.flatnonzero((apart_km > far_km) & (np.abs(lon) <= 90))
        far = far[distance_km(lon[far], lat[far], *middle) <= near_km]
        for number, count in zip(*np.unique(source.device[far], return_counts=True), strict=True):
            rows[source.devices[number]] = int(count)
        times = [source.t_us[far]]
    aside = source.aside[source.aside["lon"].abs() <= 90]
    back_km = distance_km(aside["lon"], aside["lat"].clip(-180, 180), *middle)
    is_swapped = (distance_km(aside["lat"].clip(-90, 90), aside["lon"], *middle) > far_km) & (
        back_km <= near_km
    )
    is_swapped &= aside["reason"].isin([EXCHANGED, _TOO_FAST]).to_numpy()
    swapped = aside[is_swapped]
    for name, count in swapped["device"].value_counts().items():
        rows[str(name)] = rows.get(str(name), 0) + int(count)
    if not rows:
        return
    times.append(swapped["t_us"][swapped["t_us"] != NO_TIME].to_numpy(dtype=np.int64))
    t_us = np.concatenate(times)
    devices = tuple(sorted((name for name in rows if name), key=lambda name: (-rows[name], name)))
    total = sum(rows.values())
    yield Defect(
        "exchanged",
        f"Latitude and longitude are exchanged in {words.count(total, 'row')}{_of(devices)}.",
        devices,
        int(t_us.min()) if len(t_us) else NO_TIME,
        int(t_us.max()) if len(t_us) else NO_TIME,
    )


def _shifted(source: TraceSource) -> Iterable[Defect]:
    """Find devices whose activity is that of the others some whole hours earlier or later."""
    quarters = source.quarters
    quarter, device = quarters["quarter"].to_numpy(), quarters["device"].to_numpy()
    first, last = int(quarter.min()), int(quarter.max())
    if len(source.devices) < _FLEET + 1 or last - first > 2_000_000:
        return
    fleet = np.bincount(quarter - first, minlength=last - first + 1).astype(np.float64)
    if fleet.std() == 0:
        return
    margin = 4 * _MAX_SHIFT_H
    standard = np.pad(
        (fleet - fleet.mean()) / fleet.std(), margin, constant_values=-fleet.mean() / fleet.std()
    )
    shifts = np.arange(-_MAX_SHIFT_H, _MAX_SHIFT_H + 1)
    number = np.bincount(device, minlength=len(source.devices))
    scores = np.array(
        [
            np.bincount(device, standard[quarter - first + margin - 4 * shift], len(source.devices)) / number
            for shift in shifts
        ]
    )
    best = shifts[scores.argmax(axis=0)]
    is_better = scores.max(axis=0) - scores[_MAX_SHIFT_H] >= _SHIFT_SCORE
    is_other = is_better & (best != 0)
    rest = fleet - np.bincount(quarter[is_other[device]] - first, minlength=len(fleet))
    for shift in sorted(set(best[is_other].tolist())):
        group = np.flatnonzero(is_other & (best == shift))
        if len(group) < max(2, 0.02 * len(source.devices)):
            continue
        is_mine = np.isin(device, group)
        mine = np.bincount(quarter[is_mine] - first, minlength=len(fleet)).astype(np.float64)
        correlations = _correlations(mine, rest, margin)
        at = int(correlations.argmax())
        is_whole = at - margin == 4 * shift
        if not is_whole or correlations[at] < _SHIFT_CORRELATION:
            continue
        if correlations[at] - correlations[margin] < _SHIFT_SCORE:
            continue
        devices = tuple(source.devices[number] for number in group)
        yield Defect(
            "zone",
            f"The times of {words.count(len(devices), 'device')} are {abs(int(shift))} h "
            f"{'ahead of' if shift > 0 else 'behind'} those of the others, as if another time zone had been "
            f"written: {words.listing(devices, _NAMED)}.",
            devices,
        )


def _correlations(mine: NDArray[np.float64], rest: NDArray[np.float64], margin: int) -> NDArray[np.float64]:
    """Return the correlation of two series for each lag up to a margin; positive: the first is later."""
    padded = np.pad(rest, margin)
    deviation = mine - mine.mean()
    quarters = []
    for lag in range(-margin, margin + 1):
        part = padded[margin - lag : margin - lag + len(mine)]
        spread = part.std() * mine.std() * len(mine)
        quarters.append(float((deviation * (part - part.mean())).sum() / spread) if spread else 0.0)
    return np.array(quarters)


def _nowhere(source: TraceSource) -> Iterable[Defect]:
    for text in source.nowhere():
        yield Defect("nowhere", text)


def _contradictions(source: TraceSource) -> Iterable[Defect]:
    """Find devices of whose rows a fifth or more contradict the others."""
    aside = source.aside[source.aside["reason"] == _TOO_FAST]["device"].value_counts()
    kept = dict(zip(source.devices, np.bincount(source.device).tolist(), strict=True))
    shares = {
        str(name): count / (count + kept.get(str(name), 0))
        for name, count in aside.items()
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


def _gaps(source: TraceSource, others: Sequence[Defect]) -> Iterable[Defect]:
    """Find times without a row of a device that are much longer than its rests, while others report."""
    steps_us = np.diff(source.t_us)
    is_same = np.diff(source.device) == 0
    steps_s = np.where(is_same, steps_us / US_PER_S, 0.0)
    rests_s = steps_s[steps_s >= _REST_S]
    if len(source.devices) < 2 or not is_same.any():
        return
    usual_s = (
        float(np.percentile(rests_s, 95))
        if len(rests_s) >= _MIN_RESTS
        else 10 * float(np.median(steps_s[is_same]))
    )
    at = np.flatnonzero(steps_s >= max(_MIN_GAP_S, _GAP_FACTOR * usual_s))
    at = np.sort(at[np.argsort(-steps_s[at], kind="stable")[:_MAX_GAPS]])
    quarters = source.quarters
    first = int(quarters["quarter"].min())
    active = np.zeros(int(quarters["quarter"].max()) - first + 2, dtype=np.int64)
    active[np.unique(quarters["quarter"].to_numpy()) - first + 1] = 1
    reported, usually = np.cumsum(active), float(active[1:].mean())
    defects = []
    for row in at.tolist():
        start_us, end_us = int(source.t_us[row]), int(source.t_us[row + 1])
        begin, end = start_us // _QUARTER_US - first + 1, end_us // _QUARTER_US - first
        if end <= begin or (reported[end] - reported[begin]) / (end - begin) < 0.5 * usually:
            continue
        if any(
            other.start_us - _HOUR_US <= start_us and end_us <= other.end_us + _HOUR_US for other in others
        ):
            continue
        if end_us - start_us > _YEAR_US:
            continue  # a clock that was reset
        name = source.devices[source.device[row]]
        text = f"{name} reports nothing from {_span(source, start_us, end_us)}, while others do."
        defects.append(Defect("gap", text, (name,), start_us, end_us))
    yield from sorted(defects, key=lambda defect: defect.start_us - defect.end_us)


def _steps_s(source: TraceSource) -> NDArray[np.float64]:
    return np.asarray(np.diff(source.t_us)[np.diff(source.device) == 0] / US_PER_S)


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return begin and end of each run of true flags."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _span(source: TraceSource, start_us: int, end_us: int) -> str:
    """Return when something begins and ends, local time, and how long it is."""
    start, end = (
        pd.Timestamp(part, unit="us", tz="UTC").tz_convert(source.tz) for part in (start_us, end_us)
    )
    until = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%-d %B %Y, %H:%M}"
    return f"{start:%-d %B %Y, %H:%M} to {until} ({words.duration(round((end_us - start_us) / US_PER_S))})"


def _date(t_us: int) -> str:
    return f"{pd.Timestamp(t_us, unit='us'):%-d %B %Y}"


def _of(devices: Sequence[str]) -> str:
    """Return the devices as the end of a sentence."""
    if not devices:
        return ""
    return f" ({words.count(len(devices), 'device')}: {words.listing(devices, _NAMED)})"
