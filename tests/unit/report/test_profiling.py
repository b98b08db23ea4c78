"""Report trace_profile: times between positions."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pyarrow as pa
from report_traces import T0_S, draw_reads, source

from mudkit import figures
from mudkit.report.defects import find_defects
from mudkit.report.profiling import (
    cells,
    device_answer,
    devices,
    dwell_answer,
    dwell_places,
    first_screen,
    interval_answer,
    intervals,
    over_time,
    place_answer,
    read_answer,
    time_answer,
    trip_answer,
)
from mudkit.report.stays import Stays, find_stays
from mudkit.trace.derive import Rule
from mudkit.trace.movement import list_fares


def profile(trace):
    return first_screen(trace, find_defects(trace), find_stays(trace))


def test_intervals_are_counted_in_readable_bins():
    """Count intervals of a minute, two years, and a second."""
    trace = source([0, 60, 120, 63_072_120, 63_072_121], draw_reads(3, 24, 5), window_s=600)
    table = intervals(trace)
    assert table["intervals"].sum() == 4
    assert table["from_s"].iloc[0] == 1.0
    assert table["to_s"].iloc[-1] == np.inf
    assert table.set_index("from_s").loc[60.0, "intervals"] == 2
    figure = figures.histogram(table, title="t", unit="u")
    assert figure.data[0].x[-1] == "7 d"
    assert figure.data[0].customdata[-1] == "7 d or more"
    assert not any("e+" in label for label in figure.data[0].x)


def test_single_position_has_no_interval():
    assert intervals(source([0], draw_reads(3, 24, 5), window_s=600)).empty


def test_median_interval_is_labelled_median():
    """Report a median, not a half: of regular intervals none is shorter than the median."""
    screen = profile(source([0, 60, 120, 180], draw_reads(3, 24, 5), window_s=600))
    assert screen.tiles[1] == ("1 min", "is the median time between two positions of a device")
    assert "half of" not in screen._repr_html_()


def test_busiest_hours_are_named_only_above_six_hours():
    answer = time_answer(source([0, 60, 3660], draw_reads(3, 24, 5), window_s=600))
    assert answer.title == "All positions lie in 2 hours of the day"
    all_hours = source(range(0, 20 * 3600, 600), draw_reads(3, 24, 5), window_s=600)
    assert time_answer(all_hours).title == "The hours of the day hardly differ: 1 of 1 devices report"


def test_busiest_hours_are_those_with_most_devices_not_with_most_rows():
    """From 06:00 on one device reports every 10 s for six hours; from 20:00 on two report, seldom."""
    often = source([*range(0, 6 * 3600, 10), *range(6 * 3600, 20 * 3600, 600)], [[0]], window_s=600).positions
    seldom = source(range(14 * 3600, 20 * 3600, 600), [[0]], window_s=600).positions
    second = seldom.set_column(0, "device", pa.array(["second"] * len(seldom)))
    trace = dataclasses.replace(
        source([0], [[0]], window_s=600), positions=pa.concat_tables([often, second.cast(often.schema)])
    )
    answer = time_answer(trace)
    assert answer.title == "In the six busiest hours of the day 2.0 devices report, in the average hour 1.3"
    assert answer.text.startswith("They begin at 00:00, 01:00, 20:00, 21:00, 22:00, 23:00 (UTC).")


def test_cells_hold_all_positions_at_their_mean():
    """A place beyond the edge of the square map lies in the last row, and no mean lies off its rows."""
    trace = source(range(0, 600, 60), draw_reads(3, 24, 5), window_s=600)
    for lat, lon in ((89.5, 10.0), (-86.0, 179.99), (37.7, -122.4)):
        places = trace.positions.set_column(2, "lat", pa.array(np.full(10, lat)))
        places = places.set_column(3, "lon", pa.array(np.full(10, lon)))
        moved = type(trace)(trace.name, places, trace.reads, trace.rows, trace.tz)
        (cell,) = cells(moved, 10).to_pylist()
        assert (cell["positions"], cell["devices"]) == (10, 1)
        assert np.allclose([cell["lat"], cell["lon"]], [lat, lon])


def test_years_are_shown_by_day_and_week():
    day_s = 86_400
    for days, unit in ((10, "hour"), (200, "day"), (900, "week")):
        trace = source([day * day_s for day in range(days)], draw_reads(3, 24, 5), window_s=600)
        table, which = over_time(trace)
        assert which == unit
        assert table["positions"].sum() == days


def stays_at(*places):
    """Build stops, each of a device at a latitude for some seconds; there are no trips."""
    device, lat, stop_s = zip(*places, strict=True)
    stops = pd.DataFrame({"device": device, "start_us": 0, "stop_s": stop_s, "lat": lat, "lon": -97.5})
    none = pd.DataFrame(
        {name: np.zeros(0) for name in ("device", "start_us", "trip_s", "trip_km", "speed_mps")}
    )
    return Stays(stops, none)


def test_few_stops_are_no_finding_about_places():
    """Do not rank places at which a device stopped once."""
    few = stays_at(*((0, 35.0 + place / 10, 600.0) for place in range(9)), (0, 35.0, 600.0))
    answer = dwell_answer(few)
    assert answer.title == "Too few stops to tell which places matter: 10 at 9 places"
    assert "No place has more than 2 stops. All 10 stops together take 1 h 40 min." in answer.text


def test_places_with_most_time_are_counted_and_all_are_saved():
    many = stays_at(*((n % 3, 35.0 + n % 20 / 10, 6000.0 if n % 20 == 4 else 300.0) for n in range(60)))
    answer = dwell_answer(many)
    assert answer.title == "Half of the time of all stops is spent at 1 of 20 places"
    assert len(dwell_places(many)) == 20, "each place that the heading counts is in the file"
    assert np.isclose(dwell_places(many)["time_share"].sum(), 1.0)


def test_place_is_as_wide_as_it_is_there():
    assert "a cell 500 m wide" in dwell_answer(stays_at((0, 35.4, 600.0))).text
    assert "a cell 310 m wide" in dwell_answer(stays_at((0, 60.0, 600.0))).text


def test_stop_of_a_parked_device_that_is_silent_is_said_not_to_be_counted():
    trace = source([0, 60, 40_000, 40_060, 90_000], draw_reads(3, 24, 5), window_s=600)
    text = trip_answer(trace, find_stays(trace)).text
    assert "the median of 2 such silences is 12 h 29 min, and 100 % of them end within 500 m" in text
    short = source([0, 60, 120], draw_reads(3, 24, 5), window_s=600)
    assert "silence ends a stop" not in trip_answer(short, find_stays(short)).text


def test_trips_are_said_to_lie_between_stops_and_to_be_no_fares():
    """Drive 6 km without a stop of five minutes: one trip, though the taxi has two fares on the way."""
    second = np.arange(0, 3600, 60)
    trace = source(second, draw_reads(3, 24, 5), window_s=600)
    north = pa.array(np.interp(second, [600, 3000], [0.0, 0.054]))
    drive = trace.positions.set_column(2, "lat", north)
    plain = type(trace)(trace.name, drive, trace.reads, trace.rows, trace.tz)
    answer = trip_answer(plain, find_stays(plain))
    assert answer.title == "A trip goes 6 km in 40 min (medians); each lies between two stops"
    assert "it may hold several rides." in answer.text
    occupied = pa.array((second % 1800 >= 900).tolist())
    fares = list_fares(drive, occupied)
    taxi = dataclasses.replace(plain, fares=fares)
    title = trip_answer(taxi, find_stays(taxi)).title
    assert title.startswith("A fare takes 15 min for 2.25 km; a trip goes 6 km")


def test_trips_between_silences_are_not_said_to_lie_between_stops():
    """Drive three times with an hour of silence between, and stop once, before the last drive."""
    minute = np.arange(0, 20)
    second = np.concatenate([60 * minute, 5000 + 60 * minute, 10_000 + 60 * minute])
    north = np.concatenate([minute, 20 + minute, 40 + np.maximum(minute - 10, 0)]) * 0.005
    trace = source(second, draw_reads(3, 24, 5), window_s=600)
    drive = trace.positions.set_column(2, "lat", pa.array(north))
    plain = type(trace)(trace.name, drive, trace.reads, trace.rows, trace.tz)
    answer = trip_answer(plain, find_stays(plain))
    assert answer.title.endswith("(medians); 67 % of trips lie between two silences")
    assert "Of the trips, 2 lie between two silences and 1 between a stop and a silence." in answer.text


def of_fleet(write_s, count):
    """Build a trace of devices that all report at some times."""
    trace = source(write_s, [[0]], window_s=600)
    parts = [
        trace.positions.set_column(0, "device", pa.array([f"car{n}"] * len(trace.positions)))
        for n in range(count)
    ]
    joined = pa.concat_tables([part.cast(trace.positions.schema) for part in parts])
    return dataclasses.replace(trace, positions=joined)


def test_hours_in_which_a_fleet_rests_count_as_empty():
    """Both report in 12 hours on two days, and on the one between in the first six of them."""
    hour_s, begin_s = 3600, -T0_S % 3600
    parts = [
        begin_s + day * 24 * hour_s + np.arange(8 * hour_s, until * hour_s, 600)
        for day, until in enumerate((20, 14, 20))
    ]
    trace = of_fleet(np.concatenate(parts), 2)
    assert (trace.recording.pauses["kind"] == "rest").all()
    average = (6 * 2 + 6 * 2 * 2 / 3) / 24
    title = f"In the six busiest hours of the day 2.00 devices report, in the average hour {average:.2f}"
    assert time_answer(trace).title == title


def test_hours_in_which_rows_are_missing_do_not_count_as_empty():
    """Five devices report day and night for six days, but nothing is recorded for ten hours of two of them."""
    day_s, hour_s = 86_400, 3600
    second = np.arange(0, 6 * day_s, 600)
    hour = second // hour_s
    is_lost = np.isin(hour // 24, (2, 3)) & (hour % 24 >= 10) & (hour % 24 < 20)
    trace = of_fleet(second[~is_lost], 5)
    assert (trace.recording.pauses["kind"] == "hole").sum() == 2
    assert time_answer(trace).title == "The hours of the day hardly differ: 5 of 5 devices report"


def test_hours_of_days_recorded_in_part_are_told_from_whole_days():
    """One whole day, and four of which only the hours from 2:00 to 8:00 were recorded, with half the rows."""
    day_s = 86_400
    parts = [day * day_s + np.arange(7200, 28_800, 120) for day in range(1, 5)]
    trace = source(np.concatenate([np.arange(0, day_s, 60), *parts]), draw_reads(3, 24, 5), window_s=600)
    screen = first_screen(trace)
    assert re.search(r"rows \(on (1|none) of them in 20 hours or more\)", screen.tiles[2][1]), "by local days"
    assert screen.tiles[1][1].endswith("of a device, from 1 min to 2 min by day")


def test_places_that_share_a_name_are_told_apart():
    table = dwell_places(stays_at((0, 35.48, 600.0), (1, 35.47, 600.0), (2, 35.475, 600.0)))
    assert table["place"].nunique() < 3
    assert table["at"].nunique() == 3
    assert table["at"].tolist()[0] == f"{table['lat'][0]:.3f}, {table['lon'][0]:.3f}"


def test_rule_of_the_reads_is_stated_in_words():
    trace = source(range(0, 6000, 60), draw_reads(3, 24, 5), window_s=600)
    assert read_answer(trace).title == "15 reads were recorded"
    for rule in ("trip_start(still_s=300)", "occupancy", "poisson(per_day=24, seed=1)"):
        origin = pa.array([f"derived: {rule}"] * len(trace.reads))
        reads = trace.reads.set_column(trace.reads.column_names.index("origin"), "origin", origin)
        answer = read_answer(dataclasses.replace(trace, reads=reads))
        assert answer.title == f"15 reads derived by {rule}"
        assert answer.text == Rule.parse(rule).describe()


def test_median_step_is_not_the_half_of_long_ones():
    answer = interval_answer(source([0, 30, 60, 3660], draw_reads(3, 24, 5), window_s=600))
    assert answer.text == "The median step takes 30 s; 67 % of all take 30 s to 1 min."


def test_headings_hold_for_one_device_at_one_place():
    trace = source(range(0, 600, 60), draw_reads(3, 24, 5), window_s=600)
    stays = find_stays(trace)
    assert device_answer(devices(trace, stays)).title == "1 of 1 device produced all of the positions"
    assert place_answer(cells(trace, 15), 15).title == "All of the positions lie in 1 of 1 cell"
    assert dwell_answer(stays).title == "There is one stop"


def test_reason_that_most_rows_were_set_aside_for_is_named():
    trace = source(range(0, 6000, 60), draw_reads(3, 24, 5), window_s=600)
    aside = pd.DataFrame({"what": ["rejected: no time", "rejected: no place"], "rows": [3, 7]})
    screen = profile(dataclasses.replace(trace, rows=pd.concat([trace.rows, aside], ignore_index=True)))
    assert "10 rows of 110 were set aside, most because of: no place." in screen.reason


def test_clean_trace_says_once_that_no_row_was_set_aside():
    screen = profile(source(range(0, 6000, 60), draw_reads(3, 24, 5), window_s=600))
    clean = "The trace is clean: no row was set aside, and no defect was found; 3 of 7 kinds were checked."
    assert screen.headline == clean
    assert "set aside" not in screen.reason
