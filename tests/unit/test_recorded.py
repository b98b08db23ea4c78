"""Replay of recorded taxis, networks and phones in a lab."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict

import numpy as np
import pyarrow.compute as pc
import pytest

from mudkit import Lab, trace
from mudkit.errors import ParameterError
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.replay import Replay
from mudkit.sources.workloads import Poisson, Recorded
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.links import load_links
from mudkit.trace.phone_log import load_unlocks
from mudkit.trace.schema import epoch_us
from mudkit.worlds import Inboxes

US = 1_000_000
BUSY = "2008-05-23T04:30"  # Thursday, 21:30 in San Francisco: the hour with most reports
EVERY_S, GAP_S = 10, 600


# -- taxis


@pytest.fixture(scope="module")
def taxis(cabspotting):
    return trace.load(cabspotting)


@pytest.fixture(scope="module")
def tracks(taxis):
    """Return times (s), latitudes and longitudes of each taxi, in the order of their names."""
    table = taxis.positions
    names, code = np.unique(table["device"].to_numpy(), return_inverse=True)
    columns = [epoch_us(table["ts"]) // US, table["lat"].to_numpy(), table["lon"].to_numpy()]
    assert len(names) == 188
    return [[column[code == number] for column in columns] for number in range(len(names))]


@pytest.fixture(scope="module")
def evening(taxis):
    lab = Lab(1, start=BUSY)
    lab.fleet(188, mobility=Replay(taxis, BUSY), every_s=EVERY_S)
    lab.run(hours=1)
    return lab


def test_taxi_positions_match_the_recording(evening, tracks):
    """Compare positions with simultaneous reports, and with interpolation between reports."""
    table = evening.trace.table("positions")
    assert len(table) == 188 * (3600 // EVERY_S + 1)
    names = [f"phone-{number:05d}" for number in range(188)]
    assert table["device"].to_pylist()[:188] == names
    start_s = int(dt.datetime.fromisoformat(BUSY).replace(tzinfo=dt.UTC).timestamp())
    now_s = start_s + EVERY_S * np.arange(3600 // EVERY_S + 1)
    assert (epoch_us(table["ts"]).reshape(-1, 188) // US == now_s[:, None]).all()
    lat, lon = (table[axis].to_numpy().reshape(-1, 188) for axis in ("lat", "lon"))
    matches, moved = 0, 0.0
    for number, (at_s, track_lat, track_lon) in enumerate(tracks):
        # Reports at the moment of a position.
        exact = np.flatnonzero((at_s >= start_s) & (at_s <= now_s[-1]) & ((at_s - start_s) % EVERY_S == 0))
        rows = (at_s[exact] - start_s) // EVERY_S
        np.testing.assert_allclose(lat[rows, number], track_lat[exact], rtol=0, atol=1e-9)
        np.testing.assert_allclose(lon[rows, number], track_lon[exact], rtol=0, atol=1e-9)
        matches += len(exact)
        # Every position lies between the reports around it, or where the last one was.
        after = np.searchsorted(at_s, now_s, side="right")
        known = (after > 0) & (after < len(at_s))
        before, after = np.maximum(after - 1, 0), np.minimum(after, len(at_s) - 1)
        is_moving = known & (at_s[after] - at_s[before] <= GAP_S)
        for interpolated, track in ((lat[:, number], track_lat), (lon[:, number], track_lon)):
            np.testing.assert_allclose(
                interpolated[is_moving], np.interp(now_s, at_s, track)[is_moving], rtol=0, atol=1e-9
            )
            np.testing.assert_allclose(interpolated[~is_moving], track[before][~is_moving], rtol=0, atol=1e-9)
        moved += np.abs(np.diff(lat[:, number])).sum()
    assert matches > 500
    assert moved > 188 * 0.01


def test_reports_are_near_the_positions(evening, tracks):
    """Check that each report of the hour is within one step of the taxi from a position."""
    table = evening.trace.table("positions")
    at_us = epoch_us(table["ts"]).reshape(-1, 188)[:, 0]
    lat, lon = (table[axis].to_numpy().reshape(-1, 188) for axis in ("lat", "lon"))
    reports = 0
    for number, (at_s, track_lat, track_lon) in enumerate(tracks):
        inside = np.flatnonzero((at_s * US >= at_us[0]) & (at_s * US < at_us[-1]))
        row = np.searchsorted(at_us, at_s[inside] * US, side="right") - 1
        step = np.hypot(np.diff(lat[:, number]), np.diff(lon[:, number]))[row]
        deviation = np.minimum(
            np.hypot(track_lat[inside] - lat[row, number], track_lon[inside] - lon[row, number]),
            np.hypot(track_lat[inside] - lat[row + 1, number], track_lon[inside] - lon[row + 1, number]),
        )
        reports += len(inside)
        # A turn at the report makes the way longer than the step: both legs are at a taxi's speed.
        assert (deviation <= np.maximum(step, 35 * EVERY_S / 111_195 * 2)).all()
    assert reports > 8000


def test_device_locations_match_the_last_positions(evening):
    last = evening.trace.table("positions").slice(188 * 360)
    known = [device.loc for device in evening.devices.values()]
    assert known == list(zip(last["lat"].to_pylist(), last["lon"].to_pylist(), strict=True))
    speeds = evening.trace.table("positions")["speed_mps"]
    assert speeds.null_count > 0  # while a gap is too long
    assert 20 < pc.max(speeds).as_py() <= 340
    # A few receivers jump between two places, each reported for long: both are kept.
    assert pc.sum(pc.greater(speeds, 70)).as_py() <= 10


def test_fleet_with_more_taxis_than_recorded_is_refused(taxis):
    lab = Lab(start=BUSY)
    with pytest.raises(ParameterError, match=r"too few devices(.|\n)*189(.|\n)*at most 188"):
        lab.fleet(189, mobility=Replay(taxis, BUSY))
    assert not lab.devices


def test_run_beyond_the_taxi_trace_is_refused(taxis):
    last = dt.datetime.fromtimestamp(pc.max(taxis.positions["ts"]).as_py().timestamp(), dt.UTC)
    lab = Lab()
    lab.fleet(3, mobility=Replay(taxis, last - dt.timedelta(minutes=30)))
    with pytest.raises(ParameterError, match=r"mobility trace does not cover(.|\n)*at most 0\.500000 h"):
        lab.run(minutes=31)
    assert lab.world.now_us == 0
    assert len(lab.trace.table("positions")) == 3
    lab.run(minutes=30)
    assert len(lab.trace.table("positions")) == 3 * 31
    with pytest.raises(ParameterError, match="does not cover"):
        lab.run(seconds=1)


# -- networks


@pytest.fixture(scope="module")
def networks(driving_networks):
    return load_links(driving_networks)


@pytest.fixture(scope="module")
def recording(networks):
    """Return the joined recordings of mob-TCP: start (s), length (s), up, kbit/s."""
    rows = networks.links.filter(pc.equal(networks.links["device"], "mob-TCP")).sort_by("ts")
    at_s = epoch_us(rows["ts"]) / US
    step_s = np.append(np.diff(at_s), 1.0)
    step_s[step_s > 60] = 1.0  # another recording: a row lasts a second
    begin_s = np.cumsum(step_s) - step_s
    return begin_s, step_s, rows["up"].to_numpy(zero_copy_only=False), rows["down_kbps"].to_numpy()


@pytest.fixture(scope="module")
def drive(networks, recording):
    """Run a car with a recorded network, to which a phone on WiFi sends a megabyte a minute.

    Another one is sent shortly before each outage.
    """
    lab = Lab(2)
    relay = Relay(lab)
    home, car = (
        lab.device("home", link="wifi"),
        lab.device("car", link=LinkReplay(networks, device="mob-TCP")),
    )
    sender, receiver = Client(home, relay), Client(car, relay)
    length_s = float(recording[1].sum())
    moments_s = [60.0 * minute for minute in range(int(length_s / 60) - 10)]
    moments_s += [begin - 1.2 for begin, _ in find_outages(recording) if begin < moments_s[-1]]
    for number, moment_s in enumerate(moments_s):
        lab.world.schedule_action(
            round(moment_s * US), lambda n: sender.send("car", "x" * 1_000_000, f"item {n}"), number
        )
    lab.run(seconds=length_s)
    return lab, receiver


def extract_links(lab):
    rows = [row for row in lab.trace.table("links").to_pylist() if row["device"] == "car"]
    begin_s = np.array([row["ts"].timestamp() for row in rows]) - lab.start_us / US
    return begin_s, np.array([row["up"] for row in rows]), np.array([row["down_kbps"] for row in rows]), rows


def test_links_of_the_lab_match_the_recording(drive, recording):
    at_s, up, kbps, rows = extract_links(drive[0])
    begin_s, length_s, recorded_up, recorded_kbps = recording
    assert (np.diff(at_s) > 0).all()
    row = np.searchsorted(at_s, begin_s + length_s / 2, side="right") - 1
    assert (up[row] == recorded_up).all()
    assert (kbps[row] == recorded_kbps).all()
    ends_s = np.append(at_s[1:], length_s.sum())
    down_s = (ends_s - at_s)[~up].sum()
    assert down_s == pytest.approx(length_s[~recorded_up].sum(), abs=1e-3)
    assert down_s / length_s.sum() == pytest.approx(0.1314, abs=1e-4)
    assert {row["latency_ms"] for row in rows} == {35.0}  # not measured: that of LTE, as for the uplink
    assert {row["up_kbps"] for row in rows} == {5640.0}


def find_outages(recording):
    begin_s, length_s, up, _ = recording
    first = np.flatnonzero(~up & np.append(True, up[:-1]))
    last = np.flatnonzero(~up & np.append(up[1:], True))
    return list(zip(begin_s[first].tolist(), (begin_s[last] + length_s[last]).tolist(), strict=True))


def test_outages_of_the_lab_match_the_recording(drive, recording):
    lab, expected = drive[0], find_outages(recording)
    incidents = [row for row in lab.trace.table("incidents").to_pylist() if row["device"] == "car"]
    times_s = {
        incident: [
            row["ts"].timestamp() - lab.start_us / US for row in incidents if row["incident"] == incident
        ]
        for incident in ("link down", "link up")
    }
    assert times_s["link down"] == pytest.approx([begin for begin, _ in expected], abs=1e-5)
    assert len(expected) == 69
    length_s = recording[1].sum()
    assert times_s["link up"] == pytest.approx([end for _, end in expected if end < length_s], abs=1e-5)


def test_recorded_outages_cut_transfers(drive, recording):
    lab, receiver = drive
    transfers = [
        row
        for row in lab.trace.table("transfers").to_pylist()
        if row["device"] == "car" and row["direction"] == "down"
    ]
    begin_s = lab.start_us / US
    outages = find_outages(recording)
    starts = np.array([begin for begin, _ in outages])
    cut = [row for row in transfers if row["cut"]]
    assert len(cut) > 10
    partly = 0
    for row in cut:
        ended_s = row["ended"].timestamp() - begin_s
        assert np.abs(starts - ended_s).min() < 0.3  # its last byte may have been in flight
        assert row["carried_bytes"] <= row["size_bytes"]
        partly += 0 < row["carried_bytes"] < row["size_bytes"]
    assert partly > 3
    fates = [
        row
        for row in lab.trace.table("messages").to_pylist()
        if row["target"] == "car" and row["fate"] == "cut"
    ]
    ended = np.array([row["ended"].timestamp() - begin_s for row in fates])
    assert len(ended) == len(cut)
    assert (np.abs(ended[:, None] - starts).min(axis=1) < 1e-5).all()
    # Nothing is carried during an outage.
    for row in transfers:
        first, last = (row[name].timestamp() - begin_s for name in ("started", "ended"))
        assert not [1 for down, up in outages if first < up - 1e-5 and last > down + 1e-5]
    # Everything still arrives exactly once.
    items = lab.trace.table("deliveries")
    assert items["delivered"].null_count == 0
    assert len(receiver.read().result()) == len(items) > 400


def test_transfer_time_matches_the_measured_throughput(drive, recording):
    begin_s, length_s, _, kbps = recording
    edges = np.append(begin_s, begin_s[-1] + length_s[-1])
    carried = np.append(0.0, np.cumsum(kbps * length_s)) * 125.0  # bytes
    lab = drive[0]
    whole = [
        row
        for row in lab.trace.table("transfers").to_pylist()
        if row["device"] == "car"
        and row["direction"] == "down"
        and not row["cut"]
        and row["size_bytes"] > 1e6
    ]
    assert len(whole) > 400
    durations_s = []
    for row in whole:
        first, last = (row[name].timestamp() - lab.start_us / US for name in ("started", "ended"))
        assert np.interp(last, edges, carried) - np.interp(first, edges, carried) == pytest.approx(
            row["size_bytes"], abs=200
        )
        durations_s.append(last - first)
    assert max(durations_s) > 20 * min(durations_s)  # far from one rate


def test_run_beyond_the_link_trace_is_refused(networks):
    lab = Lab()
    lab.device("car", link=LinkReplay(networks, device="mob-TCP"))
    with pytest.raises(
        ParameterError, match=r"link trace does not cover(.|\n)*car(.|\n)*at most 7\.346111 h"
    ):
        lab.run(hours=7.35)
    assert lab.world.now_us == 0
    lab.run(seconds=26_446)
    with pytest.raises(ParameterError, match="does not cover"):
        lab.run(seconds=1)


def test_fleet_with_more_networks_than_measured_is_refused(networks):
    lab = Lab()
    with pytest.raises(ParameterError, match=r"10 devices, too few"):
        lab.fleet(11, link=LinkReplay(networks))
    assert not lab.devices
    lab.fleet(10, link=LinkReplay(networks))
    assert len({device.link.down_kbps for device in lab.devices.values()}) > 5


# -- phones


def test_reads_of_a_scenario_match_the_unlocks(phone_log):
    """Check that each device reads at the times of unlocks, on consecutive days."""
    log = load_unlocks(phone_log / "AwareScreen_1month.csv")
    zone = dt.timezone(dt.timedelta(hours=2))
    plan = Inboxes(
        devices=4,
        hours=96,
        start="2017-05-31T22:00",
        items=Poisson(per_day=6),
        reads=Recorded(log.times_us, utc_offset_h=2.0),
    )
    lab = plan.run(4).lab

    def group_by_day(moments):
        days = defaultdict(list)
        for moment in moments:
            local = moment.astimezone(zone)
            days[local.date()].append(local.time())
        return days

    times = [
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t) for t in log.times_us.tolist()
    ]
    logged = group_by_day(times)
    first, last = min(logged), max(logged)
    whole = [sorted(logged.get(first + dt.timedelta(days=n), [])) for n in range(1, (last - first).days)]
    assert len(whole) > 20
    invocations = defaultdict(list)
    for row in lab.trace.table("operations").to_pylist():
        if row["op"] == "read":
            invocations[row["client"]].append(row["invoked"])
    assert len(invocations) == 4
    first_days = set()
    for moments in invocations.values():
        days = group_by_day(moments)
        reads = [sorted(days.get(dt.date(2017, 6, 1) + dt.timedelta(days=n), [])) for n in range(4)]
        rotations = [[whole[(first + n) % len(whole)] for n in range(4)] for first in range(len(whole))]
        assert reads in rotations
        first_days.add(rotations.index(reads))
    assert len(first_days) > 1  # not all start with the same day
    # Items are read at the times of unlocks only.
    unlocks = {moment for moments in invocations.values() for moment in moments}
    read = [row["read"] for row in lab.trace.table("deliveries").to_pylist() if row["read"]]
    assert len(read) > 50
    assert {*read} <= unlocks
