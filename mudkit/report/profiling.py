"""The report trace_profile: what a trace holds, how clean it is, where and when its rows lie."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import words
from mudkit.errors import ParameterError
from mudkit.figures import tile_bounds
from mudkit.places import place_names
from mudkit.report.defects import (
    KINDS,
    Defect,
    coincidence,
    find_defects,
    in_few_days,
    not_judged,
    sentences,
    unchecked_kinds,
    usable,
)
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.profile_measures import (
    CLEAN,
    WHOLE_DAY_HOURS,
    count_whole_days,
    first_measures,
    span_days,
)
from mudkit.report.recording import BREAK, HOLE, REST, silent_us
from mudkit.report.source import TraceSource
from mudkit.report.stays import PLACE_ZOOM, Stays, find_stays, places, silences
from mudkit.trace import profile
from mudkit.trace.derive import Rule
from mudkit.trace.movement import MIN_STOP_S, MIN_TRIP_KM, SILENCE_S
from mudkit.trace.profile import QUARTER_S
from mudkit.trace.summaries import summarise
from mudkit.trace.times import NO_TIME
from mudkit.units import US_PER_S

words.add_labels(
    {
        "set_aside": words.Label("rows set aside"),
        "trip_km": words.Label("length of trips", "km"),
        "stop_hours": words.Label("time of stops", "h"),
        "time_share": words.Label("of the time of all stops", "%", 100.0),
    }
)

_QUARTER_US: Final = QUARTER_S * US_PER_S
_LONG_GAP_S: Final = 600.0
_NEAR_KM: Final = 0.5
_FEW_STOPS_A_PLACE: Final = 2
_HALF: Final = 0.55
_MAX_HOURLY_DAYS: Final = 45
_MAX_DAILY_DAYS: Final = 500
_EDGES_S: Final = (
    0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    28_800.0, 86_400.0, 604_800.0, np.inf,
)  # fmt: skip
_EDGES_KMH: Final = (*range(0, 130, 10), np.inf)


def first_screen(
    source: TraceSource, defects: list[Defect] | None = None, stays: Stays | None = None
) -> FirstScreen:
    """Return what was read, three figures, how clean the trace is, and what distorts it.

    Defects and stays are looked for unless they are given.
    """
    defects = find_defects(source) if defects is None else defects
    stays = find_stays(source) if stays is None else stays
    kept = int(source.rows.loc[source.rows["what"] == "positions", "rows"].sum())
    aside = source.rows[source.rows["what"].str.startswith("rejected: ")]
    share = float(aside["rows"].sum()) / max(kept + aside["rows"].sum(), 1)
    median_s = source.values("steps").median()
    days = source.days()
    per_device = source.device_summaries["rows"].to_numpy()
    per_day = float(days["devices"].median())
    shown = [
        (
            words.count(len(per_device), "device"),
            f"with a median of {words.number(float(np.median(per_device)))} positions each",
        ),
        (
            words.duration(median_s),
            f"is the median time between two positions of a device{_of_each_day(source)}",
        ),
        (
            words.count(len(days), "day"),
            f"with rows{_of_days(source)}; {words.number(per_day)} "
            f"{'device reports' if per_day == 1 else 'devices report'} on the median day",
        ),
    ]
    is_clean = share <= CLEAN and not defects
    texts = sentences(source, defects)
    assumption = "What a cache on the devices could save is another report: `mudkit report cache_policy`."
    return FirstScreen(
        source.describe(),
        shown,
        _headline(source, defects, share),
        " ".join(
            filter(
                None,
                [
                    usable(source, defects),
                    _reason(source, aside, kept, is_clean=is_clean),
                    not_judged(source),
                ],
            )
        ),
        assumption,
        [*texts, *(warning for warning in source.warnings() if warning not in texts)],
        first_measures(source, defects, stays, share, is_clean=is_clean),
    )


def _of_each_day(source: TraceSource) -> str:
    """Return the range of the median step over days, where it differs by a factor of two; else nothing."""
    medians_s = source.median_steps_s()
    if not len(medians_s) or medians_s.max() < 2 * medians_s.min():
        return ""
    return f", from {words.span(medians_s.min(), medians_s.max(), words.duration)} by day"


def _of_days(source: TraceSource) -> str:
    """Return of how many days, in how many stretches, and how many are whole; empty: all are."""
    stretches = source.recording.stretches
    span, parts = span_days(stretches), ""
    if span != stretches["days"].sum():
        parts = f" of {span:,}, in {words.count(len(stretches), 'stretch', 'stretches')}"
    whole = count_whole_days(source)
    if whole < (source.days()["positions"] > 0).sum():
        parts += f" (on {f'{whole:,}' if whole else 'none'} of them in {WHOLE_DAY_HOURS} hours or more)"
    return parts


def _headline(source: TraceSource, defects: list[Defect], share: float) -> str:
    """Return whether the trace is clean, or which kinds of defects it has, as a sentence."""
    kinds = list(dict.fromkeys(KINDS[defect.kind] for defect in defects))
    if kinds:
        return f"The trace is not clean: it has {_joined(kinds)}."
    unchecked = unchecked_kinds(source)
    checked = f"; {len(KINDS) - len(unchecked)} of {len(KINDS)} kinds were checked" if unchecked else ""
    if share > CLEAN:
        return (
            f"{words.percent(share)} of the rows were set aside: read why before you use the others. "
            f"No other defect was found{checked}."
        )
    kept = f"{words.percent(1 - share)} of its rows were kept" if share else "no row was set aside"
    return f"The trace is clean: {kept}, and no defect was found{checked}."


def _reason(source: TraceSource, aside: pd.DataFrame, kept: int, *, is_clean: bool) -> str:
    """Return what follows the headline: how many rows were set aside and why, as sentences."""
    total = int(aside["rows"].sum())
    if total:
        worst = aside.sort_values("rows", ascending=False).iloc[0]
        reason = (
            f"{words.count(total, 'row')} of {kept + total:,} {'was' if total == 1 else 'were'} set aside, "
            f"{'' if len(aside) == 1 else 'most '}because of: {worst['what'].removeprefix('rejected: ')}."
        )
    elif is_clean and unchecked_kinds(source):  # the headline counts them, the next sentence names them
        reason = ""
    elif is_clean:  # the headline says that no row was
        reason = f"{words.count(len(KINDS), 'kind')} of defects were looked for: see “Method and limits”."
    else:
        reason = "No row was set aside."
    unknown = source.rows[source.rows["what"].str.startswith("rejected, of an unknown device")]
    if len(unknown):
        reason += (
            f" Besides, {words.count(int(unknown['rows'].sum()), 'row')} of the whole file could not be read "
            "and may be of any device."
        )
    return reason


_NOUNS: Final = {
    "hole": ("time in which no device reports", "times in which no device reports"),
    "silent": ("stretch of hours in which most are silent", "stretches of hours in which most are silent"),
    "clock": ("group of rows with a reset clock", "groups of rows with a reset clock"),
    "exchanged": ("group of rows with exchanged coordinates", "groups of rows with exchanged coordinates"),
    "zone": ("group of devices in another zone", "groups of devices in other zones"),
    "contradiction": ("group of contradicting rows", "groups of contradicting rows"),
    "gap": ("long gap of a device", "long gaps of a device"),
}
"""Names of one and of several defects of each kind."""


def _joined(names: list[str]) -> str:
    """Return names in a row, with "and" before the last."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _median(column: pd.Series) -> float:
    """Return the median of a column; NaN of none."""
    return float(column.median()) if len(column) else np.nan


def defect_answer(source: TraceSource, defects: list[Defect]) -> Answer:
    """Return how many defects there are, as a heading."""
    rests = len(source.recording.of_kind(REST))
    resting = ""
    if rests:
        resting = (
            f" In {words.count(rests, 'period')} no device reports, but few usually do at that time of the "
            f"day: {'it is no defect' if rests == 1 else 'they are no defects'}. `pauses.csv` lists all."
        )
    if not defects:
        unchecked = unchecked_kinds(source)
        checked = [name for kind, name in KINDS.items() if kind not in unchecked]
        of_kinds = f" of the {len(checked)} kinds that could be checked" if unchecked else ""
        return Answer(
            f"No defect{of_kinds} was found",
            " ".join(filter(None, [f"Looked for: {_joined(checked)}.", not_judged(source), resting.strip()])),
        )
    counts = Counter(defect.kind for defect in defects)
    named = [words.count(count, *_NOUNS[kind]) for kind, count in counts.items()]
    holes = [defect for defect in defects if defect.kind == "hole"]
    at_one_time = coincidence(source, holes).removeprefix("; ")
    seam = f"{at_one_time[0].upper()}{at_one_time[1:]}." if at_one_time else ""
    about = " ".join(text for text in (seam, in_few_days(source, defects), resting.strip()) if text)
    return Answer(f"{words.count(len(defects), 'defect')} found: {_joined(named)}", about)


def defect_table(source: TraceSource, defects: list[Defect]) -> pd.DataFrame:
    """List defects: ``defect, devices`` (names, or ``all``), ``first, last``, ``length``, ``text``.

    Times are local; empty: the whole time.
    """
    rows = [
        (
            _NOUNS[defect.kind][0],
            ", ".join(defect.devices) or "all",
            *(
                pd.NaT
                if moment == NO_TIME
                else pd.Timestamp(moment, unit="us", tz="UTC").tz_convert(source.tz).tz_localize(None)
                for moment in (defect.start_us, defect.end_us)
            ),
            words.duration(defect.length_s) if defect.length_s else words.NO_VALUE,
            defect.text,
        )
        for defect in defects
    ]
    table = pd.DataFrame(rows, columns=["defect", "devices", "first", "last", "length", "text"])
    return table.astype({"first": "datetime64[us]", "last": "datetime64[us]"})


def stretches(source: TraceSource) -> pd.DataFrame:
    """List stretches of days with rows: ``first, last`` (day), ``days`` with rows, ``positions``."""
    table = source.recording.stretches
    # Days without rows lie between two stretches, so no quarter of an hour has rows of both.
    quarters = source.quarters.groupby("quarter")["rows"].sum()
    starts = np.searchsorted(quarters.index.to_numpy(), table["start_us"].to_numpy() // _QUARTER_US)
    positions = np.add.reduceat(quarters.to_numpy(), starts)
    return table[["first", "last", "days"]].assign(positions=positions)


def pauses(source: TraceSource) -> pd.DataFrame:
    """List times without a row of any device: ``first, last`` (local time), ``pause_s, kind, usual``."""
    table = source.recording.pauses
    first, last = (
        pd.to_datetime(table[name].to_numpy(), unit="us", utc=True).tz_convert(source.tz).tz_localize(None)
        for name in ("start_us", "end_us")
    )
    pause_s = (table["end_us"] - table["start_us"]).to_numpy() / US_PER_S
    return pd.DataFrame(
        {"first": first, "last": last, "pause_s": pause_s, "kind": table["kind"], "usual": table["usual"]}
    )


def trip_answer(source: TraceSource, stays: Stays) -> Answer:
    """Return how devices move, what trips lie between, and what silences hide, as a heading."""
    stops, trips = stays
    minutes, silence = words.duration(MIN_STOP_S), words.duration(SILENCE_S)
    about = (
        f"A device stops when its rows show it within 50 m of one place for {minutes} or longer; a silence "
        f"is a time of more than {silence} without a row of it, also before its first row and after its last "
        f"one. What lies between is called a trip here if it is {words.distance(MIN_TRIP_KM)} or longer: "
        f"shorter halts do not end it, and it may hold several rides. {_silent(source)}"
    ).rstrip()
    counted = f"{words.count(len(trips), 'trip')} and {words.count(len(stops), 'stop')} were found."
    if not len(trips):
        return Answer("There are no trips", f"{counted} {about}" if len(stops) else about)
    way = words.distance(_median(trips["trip_km"]))
    between, named = _between(trips)
    title = f"A trip goes {way} in {words.duration(_median(trips['trip_s']))} (medians); {between}"
    if fares := _of_fares(source):
        title = f"{fares}; {title[0].lower()}{title[1:]}"
    counted += f" {named}"
    if len(stops):
        counted += f" The median stop takes {words.duration(_median(stops['stop_s']))}."
    return Answer(title, f"{counted} {about}")


def _between(trips: pd.DataFrame) -> tuple[str, str]:
    """Return what most trips lie between, and how many lie between what, in a sentence."""
    counts = [int((trips["stop_ends"] == ends).sum()) for ends in range(3)]
    of_ends = dict(zip(("two silences", "a stop and a silence", "two stops"), counts, strict=True))
    most = max(of_ends, key=lambda name: of_ends[name])
    share = of_ends[most] / len(trips)
    which = "each lies" if share == 1 else f"{words.percent(share)} of trips lie"
    first, *others = [(count, name) for name, count in of_ends.items() if count]
    parts = [f"{first[0]:,} {'lies' if first[0] == 1 else 'lie'} between {first[1]}"]
    parts += [f"{count:,} between {name}" for count, name in others]
    return f"{which} between {most}", f"Of the trips, {words.joined(parts)}."


def _of_fares(source: TraceSource) -> str:
    """Return what fares are like; empty if the file does not say."""
    fares = source.fares.to_pandas()
    fares = fares[fares["fare_km"] >= MIN_TRIP_KM]
    if not len(fares):
        return ""
    return (
        f"A fare takes {words.duration(_median(fares['fare_s']))} for "
        f"{words.distance(_median(fares['fare_km']))}"
    )


def _silent(source: TraceSource) -> str:
    """Return how many silences end stops and trips, and whether devices stand meanwhile; empty: none."""
    table = silences(source)
    if not len(table):
        return ""
    text = "A longer silence ends a stop, so a device that is parked and reports nothing is not counted: "
    if len(table) == 1:
        return f"{text}there is one such silence, of {words.duration(table['silence_s'].iloc[0])}."
    share = float((table["moved_km"] < _NEAR_KM).mean())
    return (
        f"{text}the median of {words.count(len(table), 'such silence')} is "
        f"{words.duration(_median(table['silence_s']))}, and {words.percent(share)} of them end within "
        f"{words.distance(_NEAR_KM)} of where they began."
    )


def stops(source: TraceSource, stays: Stays) -> pd.DataFrame:
    """List stops: ``device, start`` (local time), ``stop_s, lat, lon``."""
    return _named(source, stays.stops)


def trips(source: TraceSource, stays: Stays) -> pd.DataFrame:
    """List trips: ``device, start`` (local time), ``trip_s, trip_km, speed_mps, stop_ends``."""
    return _named(source, stays.trips)


def _named(source: TraceSource, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of stays with names of devices and local times."""
    number = table["device"].to_numpy(dtype=np.int64)
    start = pd.to_datetime(table["start_us"].to_numpy(dtype=np.int64), unit="us", utc=True)
    named = table.drop(columns=["device", "start_us"])
    named.insert(0, "device", np.array(source.devices, dtype=object)[number])
    named.insert(1, "start", start.tz_convert(source.tz).tz_localize(None))
    return named


def speeds(stays: Stays) -> pd.DataFrame:
    """Count trips by speed: ``from_kmh, to_kmh, trips``, from the first bin to the last that holds any."""
    counts, _ = np.histogram(3.6 * stays.trips["speed_mps"].to_numpy(dtype=np.float64), _EDGES_KMH)
    occupied = np.flatnonzero(counts)
    kept = slice(occupied[0], occupied[-1] + 1) if len(occupied) else slice(0)
    table = pd.DataFrame({"from_kmh": _EDGES_KMH[:-1], "to_kmh": _EDGES_KMH[1:], "trips": counts})
    return table[kept].reset_index(drop=True)


def dwell_places(stays: Stays) -> pd.DataFrame:
    """List the places of stops, those with most time first, named by the city near them.

    ``place, at`` (latitude and longitude), ``stops, devices, stop_hours, time_share`` (of the time of all
    stops), ``lat, lon``.
    """
    table = places(stays.stops)
    total = table["stop_s"].sum()
    table.insert(0, "place", [name or words.NO_VALUE for name in place_names(table["lat"], table["lon"])])
    table.insert(
        1, "at", [f"{lat:.3f}, {lon:.3f}" for lat, lon in zip(table["lat"], table["lon"], strict=True)]
    )
    table["stop_hours"] = table.pop("stop_s") / 3600.0
    table["time_share"] = table["stop_hours"] * 3600.0 / total if total else 0.0
    return table[["place", "at", "stops", "devices", "stop_hours", "time_share", "lat", "lon"]]


def dwell_answer(stays: Stays) -> Answer:
    """Return how much the places of stops differ, as a heading."""
    table = places(stays.stops)
    if not len(table):
        return Answer("No device stops", f"None stays within 50 m for {words.duration(MIN_STOP_S)}.")
    stops = int(table["stops"].sum())
    about = (
        f"{'It takes' if stops == 1 else f'All {stops:,} stops together take'} "
        f"{words.duration(float(table['stop_s'].sum()))}. A place is a cell "
        f"{_cell_width(PLACE_ZOOM, table['lat'].to_numpy())} wide, named after a city near it."
    )
    if len(table) == 1:
        return Answer("All stops are at one place" if stops > 1 else "There is one stop", about)
    if stops < _FEW_STOPS_A_PLACE * len(table):
        most = words.count(int(table["stops"].max()), "stop")
        return Answer(
            f"Too few stops to tell which places matter: {stops:,} at {len(table):,} places",
            f"No place has more than {most}. {about}",
        )
    few, part = _fewest(table["stop_s"].to_numpy())
    return Answer(
        f"{part.capitalize()} of the time of all stops is spent at {few:,} of "
        f"{words.count(len(table), 'place')}",
        about,
    )


def over_time(source: TraceSource) -> tuple[pd.DataFrame, str]:
    """Return ``start, positions, reads, devices`` by hour, day or week, and which: bars that can be seen."""
    days = source.days()
    if len(days) <= _MAX_HOURLY_DAYS:
        return source.hours().reset_index(), "hour"
    if (days.index[-1] - days.index[0]).days <= _MAX_DAILY_DAYS:
        return days.reset_index(), "day"
    # Devices of a week are not the sum of those of its days.
    weeks = days[["positions", "reads"]].groupby(pd.DatetimeIndex(days.index).to_period("W").start_time).sum()
    return weeks.rename_axis("start").reset_index(), "week"


def intervals(source: TraceSource) -> pd.DataFrame:
    """Count times between two positions of a device, in bins from the first to the last that holds any."""
    counted = summarise(source.positions, {"bins": partial(profile.step_bins, _EDGES_S)})["bins"]
    counts = counted["rows"].to_numpy()
    occupied = np.flatnonzero(counts)
    kept = slice(occupied[0], occupied[-1] + 1) if len(occupied) else slice(0)
    table = pd.DataFrame({"from_s": _EDGES_S[:-1], "to_s": _EDGES_S[1:], "intervals": counts})
    return table[kept].reset_index(drop=True)


def cells(source: TraceSource, zoom: int) -> pa.Table:
    """Count positions by cell of a zoom level.

    ``lat, lon`` (mean of its positions), ``positions, devices`` and its edges ``south, west, north, east``.
    """
    counted = summarise(source.positions, {"cells": partial(profile.CellCounts, zoom)})["cells"]
    column, row, rows = (counted[name].to_numpy() for name in ("column", "row", "rows"))
    mean = {name: profile.mean_degrees(counted[name].to_numpy(), rows) for name in ("lat", "lon")}
    counts = {"positions": rows, "devices": counted["devices"].to_numpy()}
    return pa.table(mean | counts | tile_bounds(zoom, column, row))


def devices(source: TraceSource, stays: Stays) -> pd.DataFrame:
    """List devices with most positions first; times are local.

    ``device, positions, reads, set_aside`` (rows), ``stops, trips, trip_km``, ``first, last``.
    """
    counted = source.device_summaries
    names = pd.Index(counted["device"], name="device")

    def local(t_us: pd.Series) -> pd.DatetimeIndex:
        return pd.to_datetime(t_us.to_numpy(), unit="us", utc=True).tz_convert(source.tz).tz_localize(None)

    def of_names(rows: pd.DataFrame) -> pd.Series:
        return rows.groupby("device")["rows"].sum().reindex(names).fillna(0).astype(int)

    trips = stays.trips.astype({"device": int})
    table = pd.DataFrame(
        {
            "positions": counted["rows"].to_numpy(),
            "reads": of_names(source.read_quarters),
            "set_aside": of_names(source.aside_counts),
            "stops": np.bincount(stays.stops["device"].to_numpy(dtype=np.int64), minlength=len(names)),
            "trips": np.bincount(trips["device"].to_numpy(), minlength=len(names)),
            "trip_km": np.bincount(trips["device"].to_numpy(), trips["trip_km"], minlength=len(names)),
            "first": local(counted["first_us"]),
            "last": local(counted["last_us"]),
        },
        index=names,
    )
    return table.sort_values("positions", ascending=False, kind="stable").reset_index()


def time_answer(source: TraceSource) -> Answer:
    """Return when the rows lie, as a heading."""
    hours = source.hours()
    reporting = hours.loc[hours["positions"] > 0, "devices"]
    is_empty = ~np.isin(recorded := _recorded_hours(source), reporting.index)
    of_all = pd.concat([reporting, pd.Series(0, index=recorded[is_empty])])
    by_hour = of_all.groupby(pd.DatetimeIndex(of_all.index).hour).mean()
    most = by_hour[by_hour > 0].nlargest(6)
    named = words.listing([f"{hour:02d}:00" for hour in sorted(most.index)], 6)
    if (by_hour > 0).sum() <= len(most):
        return Answer(
            f"All positions lie in {words.count(len(most), 'hour')} of the day",
            f"They begin at {named} ({source.tz}).",
        )
    means = [float(of.mean()) for of in (most, by_hour)]
    busy, average = (words.number(mean, words.decimals(means)) for mean in means)
    if busy == average:
        return Answer(f"The hours of the day hardly differ: {busy} of {len(source.devices)} devices report")
    return Answer(
        f"In the six busiest hours of the day {busy} devices report, in the average hour {average}",
        f"They begin at {named} ({source.tz}). The numbers are means over days, from the first row to the "
        "last; an hour without a row counts as 0, unless rows seem to be missing. Devices are counted, since "
        "there are more rows where they report more often.",
    )


def _recorded_hours(source: TraceSource) -> pd.DatetimeIndex:
    """Return the hours of local time from the first row to the last but those within holes and breaks."""
    quarter = source.quarters["quarter"].to_numpy()
    start_us = np.arange(quarter.min(), quarter.max() + 1).astype(np.int64) * _QUARTER_US
    lost = source.recording.of_kind(HOLE, BREAK)
    lost_us = silent_us(
        lost["start_us"].to_numpy(), lost["end_us"].to_numpy(), start_us, start_us + _QUARTER_US
    )
    kept_us = start_us[lost_us < _QUARTER_US]
    return pd.DatetimeIndex(source.local(kept_us // _QUARTER_US).floor("h").unique())


def place_answer(table: pa.Table, zoom: int) -> Answer:
    """Return how much the places differ, as a heading; the table is that of :func:`cells`."""
    few, part = _fewest(np.sort(table["positions"].to_numpy())[::-1])
    (name,) = place_names(*(table[column].to_numpy()[[_busiest(table)]] for column in ("lat", "lon")))
    busiest = f" The busiest is {_in(name)}." if name else ""
    return Answer(
        f"{part.capitalize()} of the positions lie in {few:,} of {words.count(len(table), 'cell')}",
        f"A cell is {_cell_width(zoom, table['lat'].to_numpy())} wide.{busiest} On the map a disc stands at "
        "the mean of the positions of a cell; zoom in for finer cells. The grey lines are the trace itself, "
        "not a street map.",
    )


def _fewest(falling: NDArray[np.float64]) -> tuple[int, str]:
    """Return how few of some falling numbers make up half of their sum or more, and which part, in words."""
    sums = np.cumsum(falling)
    few = int(np.searchsorted(sums, sums[-1] / 2)) + 1
    share = float(sums[few - 1] / sums[-1])
    part = "half" if share < _HALF else "all" if share == 1 else words.percent(share)
    return few, part


def _cell_width(zoom: int, lat: NDArray[np.float64]) -> str:
    """Return how wide a cell of a zoom level is at the median of some latitudes."""
    bounds = tile_bounds(zoom, np.zeros(1), np.full(1, 2.0 ** (zoom - 1)))
    side_km = 111.2 * float(np.cos(np.radians(np.median(lat)))) * float(bounds["east"][0] - bounds["west"][0])
    return words.distance(float(f"{side_km:.2g}"))


def _busiest(table: pa.Table) -> int:
    """Return the number of the picture with most positions."""
    return int(table["positions"].to_numpy().argmax())


def _in(name: str) -> str:
    """Return a name of a place with its preposition."""
    return name if " of " in name and name[0].isdigit() else f"in {name}"


def device_answer(table: pd.DataFrame) -> Answer:
    """Return how the positions of :func:`devices` are spread over devices, as a heading."""
    few, part = _fewest(table["positions"].to_numpy())
    return Answer(f"{few:,} of {words.count(len(table), 'device')} produced {part} of the positions")


def read_answer(source: TraceSource) -> Answer:
    """Return where the reads come from, and the rule in words, as a heading."""
    if not source.read_count:
        return Answer("There are no reads")
    derived = source.derived_by()
    if not derived:
        return Answer(f"{words.count(source.read_count, 'read')} were recorded")
    try:
        text = Rule.parse(derived).describe()
    except ParameterError:  # several rules, or those of another program
        text = ""
    return Answer(f"{words.count(source.read_count, 'read')} derived by {derived}", text)


def computed_answer(source: TraceSource) -> Answer:
    """Return where the figures were computed, and of how many rows, as a heading."""
    rows = f"{words.count(source.count, 'position')} and {words.count(source.read_count, 'read')}"
    if not source.computed_on:
        return Answer(f"Computed in the memory of one machine, of {rows}")
    return Answer(
        f"Computed on Spark ({source.computed_on}), of {rows}",
        "Tasks read all of these rows. Only counts, and the lists of stops, trips and long gaps, came to the "
        "machine that wrote this page.",
    )


def interval_answer(source: TraceSource) -> Answer:
    """Return how regularly devices report, as a heading."""
    steps = source.values("steps")
    if not steps.count():
        return Answer("No device reports twice")
    long = source.long_steps()
    lengths_s = (long["end_us"].to_numpy() - long["start_us"].to_numpy()) / US_PER_S
    share = float((lengths_s >= _LONG_GAP_S).sum() / steps.count())
    table = intervals(source)
    low_s, high_s, count = map(float, table.to_numpy()[int(table["intervals"].argmax())])
    until = f" to {words.duration(high_s)}" if np.isfinite(high_s) else " or longer"
    return Answer(
        f"{words.percent(share)} of the steps from one position to the next take ten minutes or longer",
        f"The median step takes {words.duration(steps.median())}; "
        f"{words.percent(count / steps.count())} of all take {words.duration(low_s)}{until}.",
    )
