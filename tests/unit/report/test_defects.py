"""Defects of a trace: each is planted at a known place and named there; without one a trace is clean."""

import re
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit.report.defects import find_defects, in_few_days, missing_share, not_judged
from mudkit.report.profiling import defect_answer, defect_table, first_screen, pauses
from mudkit.report.source import open_source
from mudkit.report.stays import find_stays

T0 = pd.Timestamp("2023-05-01", tz="UTC")
DAY_S = 86_400
DEVICES, MANY_DEVICES, DAYS = 16, 24, 5


def fleet(devices=DEVICES):
    """Return new rows of a fleet, which a test may change."""
    return draw_fleet(devices).copy()


@cache
def draw_fleet(devices):
    """Draw cars that drive from about 7 to 19 o'clock on five days, with a row a minute."""
    rng = np.random.default_rng(11)
    parts = []
    for number in range(devices):
        for day in range(DAYS):
            begin, end = 7 * 3600 + rng.integers(0, 3600), 19 * 3600 + rng.integers(0, 3600)
            second = day * DAY_S + np.arange(begin, end, 60) + rng.integers(0, 60)
            way = np.cumsum(rng.normal(0, 1e-3, (len(second), 2)), axis=0)
            part = pd.DataFrame({"device": f"car{number:02d}", "s": second})
            part["lat"], part["lon"] = 48.1 + way[:, 0], 11.6 + way[:, 1]
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def look(frame, tmp_path, tz="Europe/Berlin"):
    """Return the trace of rows, and its defects."""
    file = tmp_path / "trace.parquet"
    columns = {name: pa.array(frame[name]) for name in ("device", "lat", "lon")}
    ts = pa.array((T0.timestamp() + frame["s"]).astype("int64"), pa.int64()).cast(pa.timestamp("s", "UTC"))
    # It is written and read in a fraction of the time of a CSV file.
    pq.write_table(pa.table(columns | {"ts": ts}), file, compression="none", use_dictionary=["device"])
    source = open_source(str(file), needs_reads=False, tz=tz)
    return source, find_defects(source)


def within(frame, day, first_h, last_h):
    return frame["s"].between(day * DAY_S + first_h * 3600, day * DAY_S + last_h * 3600)


def is_of(frame, *numbers):
    return frame["device"].isin([f"car{number:02d}" for number in numbers])


def without_hole(frame):
    return frame[~within(frame, 2, 11, 11.5)]


def without_most(frame):
    return frame[~(within(frame, 3, 12, 14) & ~is_of(frame, 1, 2, 3))]


def with_reset_clock(frame):
    lost = is_of(frame, 4) & within(frame, 1, 9, 9.5)
    return frame.assign(
        s=frame["s"].where(~lost, frame["s"] - (T0 - pd.Timestamp(0, tz="UTC")).total_seconds())
    )


def with_clock_of_2000(frame):
    lost = is_of(frame, 4) & within(frame, 1, 9, 9.5)
    ago_s = (T0 - pd.Timestamp("2000-01-01", tz="UTC")).total_seconds()
    return frame.assign(s=frame["s"].where(~lost, frame["s"] - ago_s))


def with_exchanged(frame):
    swapped = is_of(frame, 5, 6)
    lat, lon = frame["lat"], frame["lon"]
    return frame.assign(lat=lat.where(~swapped, lon), lon=lon.where(~swapped, lat))


def with_other_zone(frame):
    return frame.assign(s=frame["s"] + 5 * 3600 * is_of(frame, 7, 8, 9, 10))


def without_most_from_a_quarter_on(frame):
    return frame[~(within(frame, 3, 12.08, 13.92) & ~is_of(frame, 1, 2, 3))]


def with_clock_days_back(frame):
    lost = is_of(frame, 4) & within(frame, 1, 9, 9.5)
    return frame.assign(s=frame["s"] - 200 * DAY_S * lost)


def with_one_in_another_zone(frame):
    return frame.assign(s=frame["s"] - 7 * 3600 * is_of(frame, 7))


def with_gap(frame):
    return frame[~(is_of(frame, 11) & within(frame, 1, 0, 72))]


def with_null_island(frame):
    lost = is_of(frame, 12) & within(frame, 2, 10, 10.5)
    return frame.assign(lat=frame["lat"].where(~lost, 0.0), lon=frame["lon"].where(~lost, 0.0))


def with_shared_name(frame):
    """Write one name for two cars in different towns."""
    lat = frame["lat"] + 2.0 * is_of(frame, 13)
    return frame.assign(lat=lat, device=frame["device"].where(~is_of(frame, 13), "car14"))


def with_few_outliers(frame):
    """Throw a hundredth of a car's rows far away, as receivers do: they are set aside, and no defect."""
    rows = frame.index[is_of(frame, 15)][::100]
    return frame.assign(lat=frame["lat"].where(~frame.index.isin(rows), 50.0))


def test_clean_trace_is_called_clean(tmp_path):
    source, defects = look(fleet(), tmp_path)
    assert defects == []
    screen = first_screen(source, defects, find_stays(source))
    assert screen.headline.startswith("The trace is clean")
    assert "kinds were checked" not in screen.headline, "all were"
    assert {measure.name: measure.value for measure in screen.measures}["is_clean"] == "yes"
    assert defect_answer(source, defects).title == "No defect was found"


def test_rows_without_a_fix_are_set_aside_and_named(tmp_path):
    source, defects = look(with_null_island(fleet()), tmp_path)
    (text,) = (text for text in source.warnings() if "fix" in text)
    assert text.startswith("30 rows of 1 device have no fix, but a constant such as latitude 0, longitude 0")
    assert not [defect for defect in defects if defect.devices]


@pytest.mark.parametrize(
    ("plant", "kind", "devices", "text"),
    [
        (without_hole, "hole", (), "3 May 2023, 12:59 to 13:30"),
        (without_most, "silent", (), "4 May 2023, 14:00 to 16:00"),
        (without_most_from_a_quarter_on, "silent", (), "4 May 2023, 14:15 to 15:45"),
        (with_reset_clock, "clock", ("car04",), "2 January 1970"),
        (with_clock_days_back, "clock", ("car04",), "14 October 2022, days away from the others"),
        (with_clock_of_2000, "clock", ("car04",), "2 January 2000"),
        (with_exchanged, "exchanged", ("car05", "car06"), "Latitude and longitude are exchanged"),
        (with_other_zone, "zone", ("car07", "car08", "car09", "car10"), "5 h ahead of"),
        (with_one_in_another_zone, "zone", ("car07",), "7 h behind"),
        (with_gap, "gap", ("car11",), "car11 reports nothing from 1 May 2023"),
        (with_shared_name, "contradiction", ("car14",), "two devices share a name"),
    ],
)
def test_planted_defect_is_named_where_it_is(plant, kind, devices, text, tmp_path):
    source, defects = look(plant(fleet()), tmp_path)
    of_kind = [defect for defect in defects if defect.kind == kind]
    assert len(of_kind) == 1, defects
    assert tuple(sorted(of_kind[0].devices)) == devices
    assert text in of_kind[0].text
    screen = first_screen(source, defects, find_stays(source))
    assert screen.headline.startswith("The trace is not clean")
    assert any(text in warning for warning in screen.warnings)
    assert {measure.name: measure.value for measure in screen.measures}["is_clean"] == "no"
    assert len(defect_table(source, defects)) == len(defects)


def test_two_wrong_clocks_are_both_named(tmp_path):
    frame = with_clock_of_2000(fleet())
    lost = is_of(frame, 9) & within(frame, 1, 9, 9.5)
    _, defects = look(frame.assign(s=frame["s"] - 200 * DAY_S * lost), tmp_path)
    clocks = {defect.devices: defect.text for defect in defects if defect.kind == "clock"}
    assert set(clocks) == {("car04",), ("car09",)}
    assert "more than a year away" in clocks["car04",]
    assert "days away from the others" in clocks["car09",]


@pytest.mark.parametrize("ahead_days", [-200, 200])
def test_rows_of_two_days_of_a_wrong_clock_are_counted_whole(ahead_days, tmp_path):
    """Plant two parts a day apart; the one at the edge would fit into another gap, too, by itself."""
    frame = fleet()
    car = is_of(frame, 4)
    lost = car & (within(frame, 1, 9, 9.5) | within(frame, 2, 9.5, 10))
    missing = car & (within(frame, 1, 9, 34) | within(frame, 3, 12, 12.75)) & ~lost
    _, defects = look(frame.assign(s=frame["s"] + ahead_days * DAY_S * lost)[~missing], tmp_path)
    (text,) = (defect.text for defect in defects if defect.kind == "clock")
    assert text.startswith(f"{lost.sum()} positions are dated "), text
    assert "days away from the others" in text


@pytest.mark.parametrize(
    ("kept", "texts"),
    [
        (lambda frame: frame["s"] >= 0, []),
        (lambda frame: is_of(frame, 1, 2), ["With 2 devices, ", "could not be looked for", "are too few"]),
        (
            lambda frame: ~is_of(frame, 3) | within(frame, 0, 0, 24),
            ["the times of 1 device of 16 are of another zone could not be seen: it has too few rows"],
        ),
    ],
)
def test_clean_page_names_what_could_not_be_seen(kept, texts, tmp_path):
    frame = fleet()
    source, _ = look(frame[kept(frame)], tmp_path)
    missed = not_judged(source)
    assert all(text in missed for text in texts)
    assert bool(missed) == bool(texts)
    screen = first_screen(source, [], find_stays(source))
    assert missed in screen.reason
    values = {measure.name: measure.value for measure in screen.measures}
    kinds = values["defect_kinds"], values["defect_kinds_checked"]
    assert kinds[0] == 7
    assert ("of 7 kinds were checked" in screen.headline) == (kinds[1] < 7)
    assert kinds[1] == (4 if "With 2 devices" in missed else 7)


def test_rhythm_that_several_shifts_fit_is_not_called_none(tmp_path):
    """All devices report at all hours: they have one rhythm, but any shift fits it as well."""
    frame = fleet()
    span_s = frame["s"].max() - frame["s"].min()
    always = pd.concat(
        [
            frame[is_of(frame, n)].iloc[:1].loc[lambda one: one.index.repeat(span_s // 600)]
            .assign(s=lambda rows: frame["s"].min() + 600 * np.arange(len(rows)))
            for n in range(6)
        ]
    )  # fmt: skip
    source, defects = look(always, tmp_path)
    assert source.zones.is_enough
    assert not source.zones.is_judged.any()
    assert "fit those of the others about as well when they are moved by some hours" in not_judged(source)
    assert defects == []
    assert defect_answer(source, defects).title == "No defect of the 6 kinds that could be checked was found"
    headline = first_screen(source, defects, find_stays(source)).headline
    assert headline.endswith("no defect was found; 6 of 7 kinds were checked.")


def test_single_outliers_are_no_contradiction(tmp_path):
    source, defects = look(with_few_outliers(fleet()), tmp_path)
    assert defects == []
    assert len(source.aside) > 0


def test_nights_and_weekends_are_no_defects(tmp_path):
    """A fleet that rests at night and on two days of seven is clean."""
    frame = fleet()
    week = pd.concat([frame.assign(s=frame["s"] + 7 * DAY_S * number) for number in range(3)])
    _, defects = look(week, tmp_path)
    assert defects == []


def test_feed_that_is_read_every_ten_minutes_has_no_holes(tmp_path):
    frame = fleet()
    frame["s"] = frame["s"] // 600 * 600
    _, defects = look(frame.drop_duplicates(["device", "s"]), tmp_path)
    assert [defect for defect in defects if defect.kind == "hole"] == []


def test_recorded_taxis_have_their_known_holes(cabspotting):
    source = open_source(str(cabspotting), needs_reads=False, tz="America/Los_Angeles")
    texts = [defect.text for defect in find_defects(source) if defect.kind in ("hole", "zone", "exchanged")]
    assert any("20 May 2008, 07:04 to 08:38" in text for text in texts)
    assert all("No device reports" in text for text in texts)


def test_holes_at_one_time_of_the_day_are_named(tmp_path):
    """A file that is cut by day loses the minutes around midnight; the page says so, and what it costs."""
    rng = np.random.default_rng(3)
    second = np.arange(0, 6 * DAY_S, 60)
    parts = [
        pd.DataFrame(
            {
                "device": f"car{number:02d}",
                "s": second + rng.integers(0, 60),
                "lat": 48.1 + np.cumsum(rng.normal(0, 1e-3, len(second))),
                "lon": 11.6,
            }
        )
        for number in range(12)
    ]
    frame = pd.concat(parts)
    of_day_s = (frame["s"] + 7200) % DAY_S  # Berlin's summer time
    source, defects = look(frame[(of_day_s >= 300) & ~within(frame, 2, 10, 11)], tmp_path)
    assert [defect.kind for defect in defects] == ["hole"] * 7
    screen = first_screen(source, defects, find_stays(source))
    assert (
        "lists 6 more; 6 of the 7 holes come at 00:00, where the file seems to be cut by day"
        in screen.warnings[0]
    )
    assert "6 of the 7 holes come at 00:00" in defect_answer(source, defects).text
    lost_s = 6 * 5 * 60 + 3600
    assert missing_share(source, defects) == pytest.approx(lost_s / (6 * DAY_S), rel=0.1)
    assert screen.reason.startswith("For 1.1 % of the devices' time there are no rows, although")
    assert len(pauses(source)) == 7


def test_gap_counts_only_while_others_report(tmp_path):
    """A fleet that works by day: of the time that a car is missing only the days count, not the nights."""
    frame = fleet()
    frame = frame[~(is_of(frame, 11) & within(frame, 1, 0, 72))]
    _source, (gap,) = look(frame, tmp_path)
    assert 95 * 3600 > (gap.end_us - gap.start_us) / 1e6 > 80 * 3600
    assert 36 * 3600 < gap.length_s < 42 * 3600, "three days of twelve hours and a bit"
    assert "others report for 1 d 1" in gap.text


def test_scattered_days_are_no_holes_and_no_gaps(tmp_path):
    """A file of single days of years: the days that it does not have are no defects."""
    frame = fleet(MANY_DEVICES)
    day = frame["s"] // DAY_S
    frame["s"] += day.map({0: 0, 1: 40, 2: 45, 3: 200, 4: 420}) * DAY_S - day * DAY_S
    source, defects = look(frame, tmp_path)
    assert defects == []
    assert any("Rows lie on 5 of 421 days, in 4 stretches" in warning for warning in source.warnings())
    tile = first_screen(source, defects, find_stays(source)).tiles[2]
    assert re.match(
        r"with rows of 421, in 4 stretches \(on (none|[1-4]) of them in 20 hours or more\); 24 devices",
        tile[1],
    )
    hole = look(frame[~frame["s"].between(200 * DAY_S + 36_000, 200 * DAY_S + 39_600)], tmp_path)[1]
    assert [(defect.kind, round(defect.length_s / 600)) for defect in hole] == [("hole", 6)]


def test_gaps_of_few_days_are_said_to_begin_there(tmp_path):
    """Rows of 14 days: a third of the devices report nothing on two of them, as on a holiday."""
    frame = pd.concat(
        [(part := fleet(MANY_DEVICES)).assign(s=part["s"] + 5 * DAY_S * number) for number in range(3)]
    )
    names = sorted(frame["device"].unique())
    is_off = frame["device"].isin(names[: max(len(names) // 3, 11)]) & frame["s"].between(
        6 * DAY_S, 8 * DAY_S
    )
    source, defects = look(frame[~is_off], tmp_path)
    gaps = [defect for defect in defects if defect.kind == "gap"]
    assert len(gaps) >= 10
    assert "long gaps begin from" in in_few_days(source, defects)
    assert "as on holidays" in defect_answer(source, defects).text
    assert in_few_days(source, gaps[:10]).startswith("10 of the 10 long gaps begin from")
    assert in_few_days(source, gaps[:9]) == ""
    ten, nine = (look(frame[frame["s"] < days * DAY_S], tmp_path)[0] for days in (10, 9))
    assert in_few_days(ten, gaps)
    assert in_few_days(nine, gaps) == "", "such days are of a trace of at least ten"


def test_missing_day_among_others_is_a_hole(tmp_path):
    frame = fleet()
    frame = pd.concat([frame.assign(s=frame["s"] + 5 * DAY_S * number) for number in range(3)])
    _, (hole,) = look(frame[~within(frame, 7, 0, 24)], tmp_path)
    assert hole.kind == "hole"
    assert 35 * 3600 < hole.length_s < 37 * 3600


def test_hole_shortly_before_the_end_of_a_part_is_found(tmp_path):
    """Stop a quarter of an hour after the hole; the next part begins two days later."""
    frame = fleet()
    silent = within(frame, 2, 11, 14) | within(frame, 2, 14.2, 24) | within(frame, 3, 0, 24)
    _source, defects = look(frame[~silent], tmp_path)
    begins = {
        pd.Timestamp(defect.start_us, unit="us", tz="UTC") for defect in defects if defect.kind == "hole"
    }
    assert any(
        abs(begin - (T0 + pd.Timedelta(days=2, hours=11))) < pd.Timedelta(minutes=2) for begin in begins
    )
