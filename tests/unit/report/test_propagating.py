"""Report propagation: recommendations, headings and tables."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.report import joined_early, joined_ways
from mudkit.report.joined_maps import count_cells
from mudkit.report.joined_messages import Limits, Messages, Sizes
from mudkit.report.propagating import chosen_quantity, study_joining
from mudkit.report.source import TraceSource
from mudkit.trace.schema import POSITIONS, timestamps

T0_US = 1_200_000_000_000_000
SIZES = Sizes(400, 400)


def make_source(device, t_s, lat, lon, speed=None):
    t_us = T0_US + 1_000_000 * np.asarray(t_s, dtype=np.int64)
    speeds = pa.nulls(len(t_us), pa.float64()) if speed is None else pa.array(speed, pa.float64())
    columns = {
        "device": [f"d{number}" for number in device],
        "ts": timestamps(t_us),
        "lat": np.asarray(lat, float),
        "lon": np.asarray(lon, float),
        "speed_mps": speeds,
    }
    positions = pa.table(columns, schema=POSITIONS)
    rows = pd.DataFrame({"what": ["positions"], "rows": [len(positions)]})
    return TraceSource("made.csv", positions, positions.slice(0, 0), rows, "UTC")


def study(source, quantity="devices", max_delay_s=300, max_error_m=500.0):
    return study_joining(source, Limits(max_delay_s, max_error_m), SIZES, quantity)


@cache
def study_made(build, quantity="devices", **limits):
    """Return the study of a trace that is made, which tests share and do not change: it takes a second."""
    return study(build(), quantity, **limits)


def make_standing(devices=8):
    """Place devices far apart that report every 20 s."""
    device, number = (part.ravel() for part in np.mgrid[:devices, :200])
    return make_source(device, 20 * number, 37 + 0.1 * device, [-122.0] * len(device))


def make_crowds():
    """Report once from 3,000 devices, 60 at a time at ten places."""
    number = np.arange(3000)
    return make_source(number, 30 * (number // 60), 37 + 0.1 * (number % 10), [-122.0] * 3000)


def make_walks():
    """Move devices about a town, which report every 30 s: they repeat themselves in a cell, and meet."""
    random = np.random.default_rng(3)
    device, number = (part.ravel() for part in np.mgrid[:30, :120])
    lat = 45 + np.cumsum(random.normal(0, 1e-3, (30, 120)), axis=1).ravel()
    lon = 7 + np.cumsum(random.normal(0, 1e-3, (30, 120)), axis=1).ravel()
    return make_source(device, 30 * number, lat, lon, random.exponential(9, len(device)))


def make_apart():
    """Report once from each device, far from all others."""
    number = np.arange(50)
    return make_source(number, 60 * number, 20 + number, number)


@pytest.mark.parametrize(
    ("build", "way", "headline"),
    [
        (make_standing, "last", r"Send only the last position of each device every 5 min: 7.0 %"),
        (make_crowds, "join", r"Join the messages of cells .* wide every .*: 1\.7 % of the bytes are left"),
        (
            make_apart,
            "nothing",
            r"Send every message by itself: within the limits, joining saves less than 5 %",
        ),
    ],
)
def test_simplest_way_that_leaves_as_little_is_recommended(build, way, headline):
    screen = study_made(build).first_screen()
    values = {measure.name: measure.value for measure in screen.measures}
    assert values["way"] == way
    assert re.match(headline, screen.headline)
    assert "nan" not in repr(screen)
    assert "(`max_delay_s`)" in screen.assumption


def test_own_messages_are_joined_where_devices_never_meet():
    screen = study_made(make_commuters, max_error_m=300.0).first_screen()
    values = {measure.name: measure.value for measure in screen.measures}
    assert values["way"] == "own"
    assert values["threshold"] is None
    assert values["own_repeats_share"] == pytest.approx(1)
    assert screen.headline.startswith("To know where devices were, let each device send one message per ")
    assert "a server that joins saves nothing more" in screen.reason


def make_commuters():
    """Move each device to and fro between two places that it shares with nobody."""
    device, number = (part.ravel() for part in np.mgrid[:8, :400])
    return make_source(device, 20 * number, 37 + 0.1 * device, -122 + 0.05 * (number % 2))


@pytest.mark.parametrize("build", [make_standing, make_crowds, make_commuters, make_apart])
def test_every_section_has_the_number_of_the_headline(build):
    shown = study_made(build, max_error_m=300.0)
    screen = shown.first_screen()
    assumed, ways = shown.assumptions(), joined_ways.baselines(shown)
    as_assumed = assumed.set_index("assumed").loc["as assumed"]
    assert as_assumed["bytes_left_share"] == pytest.approx(shown.left_share)
    by_way = ways[ways["bytes_left_share"] == as_assumed["bytes_left_share"]]["way"]
    assert by_way.str.startswith(as_assumed["way"]).any()
    if shown.verdict in ("own", "join"):
        counted = count_cells(Messages(shown.source.positions), **shown.shown, sizes=SIZES)
        left = counted["bytes_out"].sum() / counted["bytes_in"].sum()
        assert left == pytest.approx(shown.left.value)
        assert shown.drawn.startswith("The map shows what is recommended")
        column = joined_early.threshold_table(shown)["bytes_left_share"]
        assert np.isclose(column, shown.left.value).any()
    else:
        assert "Not what is recommended" in shown.drawn
    assert sum(day.messages for day in shown.days) == len(shown.source.positions), "each message has its day"
    values = {measure.name: measure.value for measure in screen.measures}
    half = assumed[assumed["assumed"].str.startswith("an aggregate half")]["bytes_left_share"]
    assert values["half_aggregate_left_share"] == half.item()
    if shown.verdict == "own":
        joined = ways.set_index("way")["bytes_left_share"]["messages of a cell joined"]
        assert values["joined_left_share"] == joined
        assert shown.grid_answer().text.startswith("Here the messages of different devices are joined, too")


def test_other_limits_are_searched_as_thoroughly_as_those_of_the_page():
    rows = study_made(make_walks).assumptions().set_index("assumed")["bytes_left_share"]
    others = {
        "half the delay": (150, 500.0),
        "twice the delay": (600, 500.0),
        "half the distance": (300, 250.0),
    }
    for assumed, (max_delay_s, max_error_m) in others.items():
        alone = study_made(make_walks, max_delay_s=max_delay_s, max_error_m=max_error_m)
        assert rows[rows.index.str.startswith(assumed)].item() == pytest.approx(alone.left_share, rel=0.01)


def test_messages_that_are_sent_by_themselves_name_their_devices():
    walks = study_made(make_walks)
    table = joined_early.threshold_table(walks)
    fullest = joined_early._largest(walks)
    tried = {int(text.replace(",", "")) for text in table["threshold"].iloc[1:-1]}
    asked_for = {size for size in walks.thresholds if 1 < size < fullest}
    assert asked_for, "a threshold that no queue reaches changes nothing"
    assert tried - {(walks.early or walks.choice).threshold} == asked_for
    assert table["counted_too_many_share"].iloc[0] == 0
    assert table["counted_too_many_share"].iloc[-1] > 0


def test_heading_of_the_grid_is_about_combinations_within_the_limits():
    shown = study_made(make_walks, "speed")
    grid = shown.grid()
    least = grid[grid["keeps_limits"]]["bytes_left_share"].min()
    assert least > grid["bytes_left_share"].min()
    assert f"decide: {words.percent(least)} to" in shown.grid_answer().title


def test_price_and_missing_limit_are_named():
    screen = study_made(make_walks, "speed").first_screen()
    assert re.search(
        r"The price: receivers get a mean place of a cell, without names of devices\. "
        r"For 95 % of the positions it lies within [\d.]+ m of where the "
        r"device was when it reported; when it is sent, it lies within [\d.]+ m of the device's last report\.",
        screen.reason,
    )
    assert "no limit is set on the error of the speed (`max_quantity_error`)" in screen.assumption
    assert "Assumed, not measured: a message of 400 B" in screen.assumption


@pytest.mark.parametrize("build", [make_standing, make_crowds, make_walks, make_apart])
def test_every_heading_is_a_sentence_and_follows_from_its_table(build):
    shown = study_made(build, "speed") if build is make_walks else study_made(build)
    grid, ways, thresholds, assumed = (
        shown.grid(), joined_ways.baselines(shown), joined_early.threshold_table(shown), shown.assumptions()
    )  # fmt: skip
    answers = [
        shown.grid_answer(), joined_ways.baselines_answer(shown), joined_early.threshold_answer(shown), shown.assumptions_answer(assumed)
    ]  # fmt: skip
    for answer in answers:
        assert "nan" not in f"{answer.title} {answer.text}".lower()
        assert not answer.title.endswith(".")
    assert ways["way"].is_unique
    assert ways["bytes_left_share"].iloc[0] == 1
    assert thresholds["bytes_left_share"].iloc[0] == pytest.approx(1)
    assert shown.near(grid)["interval"].str.contains("min|s|h").all()
    for table in (
        joined_ways.baselines_shown(shown, ways),
        joined_early.thresholds_shown(shown, thresholds),
        shown.near(grid),
    ):
        assert len(table.columns) <= 7
    least, most = assumed["bytes_left_share"].min(), assumed["bytes_left_share"].max()
    assert 0 < least <= most


def test_one_device_has_no_half_and_no_others():
    shown = study(make_standing(1))
    assert "half of the devices" not in " ".join(shown.assumptions()["assumed"])
    assert "goes to one device" in shown.first_screen().assumption
    assert (
        "All messages that joining saves repeat one of their device"
        in joined_ways.baselines_answer(shown).title
    )


def make_drives(apart_deg=1e-5):
    """Drive devices along one road or roads apart, one after the other, 15 m/s, with a report every 30 s."""
    device, number = (part.ravel() for part in np.mgrid[:40, :120])
    return make_source(
        device, 30 * number, 45 + 0.004 * ((number + 7 * device) % 120), 7 + apart_deg * device
    )


def test_first_screen_tells_where_devices_are_when_it_is_sent():
    """Drive 4.5 km in an interval: a mean place is as far from the last report as a last one from the first."""
    shown = study_made(make_drives)
    screen = shown.first_screen()
    values = {measure.name: measure.value for measure in screen.measures}
    assert shown.verdict == "join"
    assert values["position_sent_error_m"] > 5 * values["position_error_m"]
    assert values["position_sent_error_m"] == pytest.approx(values["last_same_error_m"], rel=0.2)
    sent = words.distance(values["position_sent_error_m"] / 1000)
    assert f"; {sent}, if they are taken for where devices are when messages are sent" in screen.tiles[1][1]
    assert f"when it is sent, it lies within {sent} of the device's last report" in screen.reason
    away = words.distance(values["last_same_error_m"] / 1000)
    left = words.percent(values["last_same_left_share"], 1)
    assert f"leaves {left}, and is exact at the moment of sending, but up to {away} from" in screen.reason
    ways = joined_ways.baselines(shown).set_index("way")
    joined = ways.loc["messages of a cell joined"]
    assert joined["position_sent_error_m"] == values["position_sent_error_m"]
    assert joined["position_error_m"] == values["position_error_m"]
    assert ways.loc["last position of each device", "position_sent_error_m"] == 0
    assert "position_sent_error_m" in joined_ways.baselines_shown(shown, ways.reset_index())
    assert set(joined_ways.MEASURES) <= set(joined_ways.drawn(ways.reset_index()))


def test_last_positions_are_the_last_reports_when_they_are_sent():
    screen = study_made(make_standing).first_screen()
    values = {measure.name: measure.value for measure in screen.measures}
    assert (values["way"], values["position_sent_error_m"]) == ("last", 0)
    assert "when it is sent, it lies exactly at the device's last report" in screen.reason


def test_last_positions_are_joined_only_where_a_server_saves_enough():
    """A server that is not worth it for places then is not for places now (`AS_GOOD`)."""
    shown = study(make_drives(apart_deg=0.5))
    screen = shown.first_screen()
    assert (shown.verdict, shown.is_last_better_now) == ("own", True)
    assert shown.last_joined.left_share(SIZES) == shown.last_same.left_share(SIZES)
    assert "send only last positions: " in screen.headline
    assert "joined by cell" not in f"{screen.headline}{screen.reason}{screen.tiles[2][1]}"
    shared = study_made(make_drives)
    assert shared.joins_last
    assert "send only last positions, joined by cell: " in shared.first_screen().headline


def test_devices_are_not_counted_where_counts_are_far_from_the_truth():
    """Drive through several cells an interval; devices that report once are counted once."""
    shown = replace(study_made(make_drives))
    screen = shown.first_screen()
    error = shown.sums.quantity_error("devices")
    assert error > 0.1
    warning = (
        f"Do not count devices by these aggregates: counts of devices are {words.number(1 + error)} times"
    )
    assert warning in screen.reason
    assert (
        "To know where they are when messages are sent, or to count them then, send only" in screen.headline
    )
    assert shown.is_last_better_now
    # Beyond the limit, or no nearer than what is recommended.
    vars(shown)["last_joined_sent_m"] = (shown.search.limits.max_error_m + shown.sent_error_m) / 2
    assert not shown.is_last_better_now
    vars(shown)["last_joined_sent_m"] = math.inf  # there is no other way to count them
    other = shown.first_screen()
    assert warning in other.headline
    assert "counts of devices" not in other.reason
    assert "Do not count" not in study_made(make_crowds).first_screen().headline
    assert "Do not count" not in study_made(make_walks, "speed").first_screen().headline


def test_first_screen_has_what_half_of_the_devices_leave():
    shown = study_made(make_walks, "speed")
    rows = shown.assumptions().set_index("assumed")["bytes_left_share"]
    half = words.percent(rows["half of the devices, the same way"])
    assert shown.first_screen().tiles[0][1].endswith(f"; {half} with half of the devices")
    assert "half of the devices" not in study(make_standing(1)).first_screen().tiles[0][1]


def test_queues_are_sent_early_only_if_that_halves_the_mean_wait():
    """Fill the queue of a crowd at one place often, while others report twice an interval; or walk."""
    crowd, others = np.arange(4000), np.arange(400)
    t_s = np.append(0.3 * crowd, 300 * (others // 100) + 20 + 260 * (others % 2)).astype(int)
    lat = np.append(np.full(4000, 37), 38 + 0.1 * (others % 100 // 2))
    burst = study(make_source(np.arange(4400), t_s, lat, [-122.0] * 4400))
    assert (burst.verdict, burst.choice.interval_s) == ("join", 300)
    assert burst.choice.threshold > 1
    assert burst.choice.sums.delay_s < 75
    assert burst.early is None
    assert "the mean wait falls by at least half" in joined_early.threshold_answer(burst).text
    steady = study_made(make_walks)
    assert steady.choice.threshold is None
    assert steady.early.threshold > 1
    assert steady.choice.sums is steady.search.tried[steady.best_key]
    assert "or as soon as" not in steady.first_screen().headline
    answer = joined_early.threshold_answer(steady)
    assert answer.title.startswith(
        f"Sending a queue as soon as it holds {steady.early.threshold} messages would"
    )
    now, then = (sums.told_devices / sums.devices for sums in (steady.choice.sums, steady.early.sums))
    counted = f"counts of devices would be {words.number(then)} times the truth, not {words.number(now)}"
    assert counted in answer.text, "a device counts in each aggregate that holds it"
    assert "queues are sent early only if that at least halves the mean wait" in answer.text
    table = joined_early.threshold_table(steady)
    assert f"{steady.early.threshold:,}" in table["threshold"].tolist()


def test_times_in_which_no_device_reports_are_named():
    """Stop all devices for two hours and a half on one of ten days."""
    device, number = (part.ravel() for part in np.mgrid[:12, :1440])
    t_s = 600 * number + device
    is_kept = (t_s < 5 * 86_400 + 36_000) | (t_s >= 5 * 86_400 + 45_000)
    t_s, device = t_s[is_kept], device[is_kept]
    source = make_source(device, t_s, 37 + 0.1 * device, [-122.0] * len(device))
    note = study(source, max_delay_s=1200).first_screen().warnings[-1]
    assert note.startswith("Once no device reports, though many usually do (2 h ")
    assert "trace_profile" in note
    assert not any("no device reports" in text for text in study_made(make_walks).first_screen().warnings)


@pytest.mark.parametrize("sizes", [SIZES, Sizes(400, 700)])
def test_share_of_repeats_is_the_same_in_tile_heading_and_file(sizes):
    """Count messages, whatever an aggregate takes: those saved, and of these the repeats of a device."""
    shown = study_joining(make_drives(), Limits(300, 500.0), sizes, "devices")
    screen, sums = shown.first_screen(), shown.joined
    values = {measure.name: measure.value for measure in screen.measures}
    share = (sums.messages - sums.told_devices) / (sums.messages - sums.sent)
    assert 0 < share < 1
    assert values["repeated_messages_share"] == pytest.approx(share)
    text = "of the messages that joining saves repeat one of their device in the same aggregate"
    vars(shown)["last_joined_sent_m"] = math.inf  # the tile is that of last positions where these are near
    assert shown.first_screen().tiles[2] == (words.percent(share), text)
    assert "joined by cell" in screen.tiles[2][1]
    assert "To know where there were devices, join the messages of cells" in screen.headline
    assert "To know where they are when messages are sent" in screen.headline
    assert "Last positions, joined by cell, lie within" in screen.reason
    answer = joined_ways.baselines_answer(shown)
    assert answer.title == f"{words.percent(share)} {text}"
    assert "all of them" in answer.text


def test_limits_that_nothing_keeps_are_named():
    source = make_walks()
    shown = study_joining(source, Limits(60, 500.0, 1e-6), SIZES, "speed", cells_zoom=12)
    screen = shown.first_screen()
    assert not shown.is_allowed
    assert "no interval and cell keeps the limits" in screen.headline or shown.verdict == "last"
    errors_m = [sums.error_m() for sums in shown.search.tried.values()]
    assert shown.choice.sums.error_m() == min(errors_m) < max(errors_m), "the nearest to the limits is shown"


def test_measures_have_intervals_over_days():
    """Repeat the walks on six days."""
    positions = make_walks().positions.to_pandas()
    days = [positions.assign(ts=positions["ts"] + pd.Timedelta(days=day)) for day in range(6)]
    table = pa.Table.from_pandas(pd.concat(days), schema=POSITIONS, preserve_index=False)
    source = TraceSource(
        "made.csv", table, table.slice(0, 0), pd.DataFrame({"what": ["positions"], "rows": [1]}), "UTC"
    )
    shown = study(source, "speed")
    measures = {measure.name: measure for measure in shown.first_screen().measures}
    for name in ("bytes_left_share", "messages_left_share", "position_error_m", "quantity_error", "delay_s"):
        measure = measures[name]
        assert measure.low <= measure.value <= measure.high, name
    assert measures["quantity_error"].unit == "km/h"
    assert sum(day.messages for day in shown.days) == len(table)


@pytest.mark.parametrize(
    ("speeds", "quantity", "expected"),
    [
        ([1.0, None], "auto", "speed"),
        ([None, None], "auto", "devices"),
        ([1.0, 2.0], "devices", "devices"),
        ([None, None], "speed", None),
    ],
)
def test_quantity_is_chosen_from_the_trace_columns(speeds, quantity, expected):
    positions = pa.table({"speed_mps": pa.array(speeds, pa.float64())})
    if expected is None:
        with pytest.raises(TraceContentError, match="no speeds"):
            chosen_quantity(positions, quantity)
    else:
        assert chosen_quantity(positions, quantity) == expected
