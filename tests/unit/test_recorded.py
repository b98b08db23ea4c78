"""Recorded taxis, networks and phones in a lab: they do what was recorded."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict

import numpy as np
import pyarrow.compute as pc
import pytest

from mudkit import Lab, experiment, trace
from mudkit.errors import ParameterError
from mudkit.experiment import Scenario, StoreAndForward
from mudkit.sources.link_replay import LinkReplay
from mudkit.sources.mobility import Replay
from mudkit.sources.workloads import Poisson, Recorded
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.trace.links import load_links
from mudkit.trace.phone_log import load_unlocks
from mudkit.trace.schema import epoch_us

US = 1_000_000
BUSY = "2008-05-23T04:30"  # Thursday, 21:30 in San Francisco: the hour with most reports
EVERY_S, GAP_S = 10, 600


# -- taxis


@pytest.fixture(scope="module")
def taxis(cabspotting):
    return trace.load(cabspotting)


@pytest.fixture(scope="module")
def tracks(taxis):
    """Times (s), latitudes and longitudes of each taxi, in the order of their names."""
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


def test_taxis_are_where_they_were(evening, tracks):
    """Where a report and a position fall on one moment they agree; between reports a taxi is on its way."""
    table = evening.trace.table("positions")
    assert len(table) == 188 * (3600 // EVERY_S + 1)
    names = [f"phone-{number:05d}" for number in range(188)]
    assert table["device"].to_pylist()[:188] == names
    start_s = int(dt.datetime.fromisoformat(BUSY).replace(tzinfo=dt.UTC).timestamp())
    now_s = start_s + EVERY_S * np.arange(3600 // EVERY_S + 1)
    assert (epoch_us(table["ts"]).reshape(-1, 188) // US == now_s[:, None]).all()
    lat, lon = (table[axis].to_numpy().reshape(-1, 188) for axis in ("lat", "lon"))
    met, moved = 0, 0.0
    for number, (at_s, its_lat, its_lon) in enumerate(tracks):
        # Reports at the very moment of a position.
        exact = np.flatnonzero((at_s >= start_s) & (at_s <= now_s[-1]) & ((at_s - start_s) % EVERY_S == 0))
        rows = (at_s[exact] - start_s) // EVERY_S
        np.testing.assert_allclose(lat[rows, number], its_lat[exact], rtol=0, atol=1e-9)
        np.testing.assert_allclose(lon[rows, number], its_lon[exact], rtol=0, atol=1e-9)
        met += len(exact)
        # Every position lies between the reports around it, or where the last one was.
        after = np.searchsorted(at_s, now_s, side="right")
        known = (after > 0) & (after < len(at_s))
        before, after = np.maximum(after - 1, 0), np.minimum(after, len(at_s) - 1)
        is_way = known & (at_s[after] - at_s[before] <= GAP_S)
        for interpolated, its in ((lat[:, number], its_lat), (lon[:, number], its_lon)):
            np.testing.assert_allclose(
                interpolated[is_way], np.interp(now_s, at_s, its)[is_way], rtol=0, atol=1e-9
            )
            np.testing.assert_allclose(interpolated[~is_way], its[before][~is_way], rtol=0, atol=1e-9)
        moved += np.abs(np.diff(lat[:, number])).sum()
    assert met > 500
    assert moved > 188 * 0.01


def test_reports_are_near_the_way(evening, tracks):
    """Seen from the trace: each report of the hour is less than one step of the taxi away from a position."""
    table = evening.trace.table("positions")
    at_us = epoch_us(table["ts"]).reshape(-1, 188)[:, 0]
    lat, lon = (table[axis].to_numpy().reshape(-1, 188) for axis in ("lat", "lon"))
    reports = 0
    for number, (at_s, its_lat, its_lon) in enumerate(tracks):
        inside = np.flatnonzero((at_s * US >= at_us[0]) & (at_s * US < at_us[-1]))
        row = np.searchsorted(at_us, at_s[inside] * US, side="right") - 1
        step = np.hypot(np.diff(lat[:, number]), np.diff(lon[:, number]))[row]
        off = np.minimum(
            np.hypot(its_lat[inside] - lat[row, number], its_lon[inside] - lon[row, number]),
            np.hypot(its_lat[inside] - lat[row + 1, number], its_lon[inside] - lon[row + 1, number]),
        )
        reports += len(inside)
        # A turn at the report makes the way longer than the step: both legs are at a taxi's speed.
        assert (off <= np.maximum(step, 35 * EVERY_S / 111_195 * 2)).all()
    assert reports > 8000


def test_devices_know_where_they_are(evening):
    last = evening.trace.table("positions").slice(188 * 360)
    known = [device.loc for device in evening.devices.values()]
    assert known == list(zip(last["lat"].to_pylist(), last["lon"].to_pylist(), strict=True))
    speeds = evening.trace.table("positions")["speed_mps"]
    assert speeds.null_count > 0  # while a gap is too long
    assert 20 < pc.max(speeds).as_py() <= 340
    # A few receivers jump from one place that they believe in for long to another: both are kept.
    assert pc.sum(pc.greater(speeds, 70)).as_py() <= 10


def test_there_are_no_more_taxis_than_were_recorded(taxis):
    lab = Lab(start=BUSY)
    with pytest.raises(ParameterError, match=r"too few devices(.|\n)*189(.|\n)*at most 188"):
        lab.fleet(189, mobility=Replay(taxis, BUSY))
    assert not lab.devices


def test_a_run_ends_with_the_trace(taxis):
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
    """Of mob-TCP, its recordings one after the other: begin (s), length (s), up, kbit/s."""
    rows = networks.links.filter(pc.equal(networks.links["device"], "mob-TCP")).sort_by("ts")
    at_s = epoch_us(rows["ts"]) / US
    step_s = np.append(np.diff(at_s), 1.0)
    step_s[step_s > 60] = 1.0  # another recording: a row lasts a second
    begin_s = np.cumsum(step_s) - step_s
    return begin_s, step_s, rows["up"].to_numpy(zero_copy_only=False), rows["down_kbps"].to_numpy()


@pytest.fixture(scope="module")
def drive(networks, recording):
    """A car with a recorded network for all of the recording; a phone on WiFi sends it a megabyte a minute.

    And another one shortly before each outage.
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
    moments_s += [begin - 1.2 for begin, _ in outages(recording) if begin < moments_s[-1]]
    for number, moment_s in enumerate(moments_s):
        lab.world.at(round(moment_s * US), lambda n: sender.send("car", "x" * 1_000_000, f"item {n}"), number)
    lab.run(seconds=length_s)
    return lab, receiver


def lab_links(lab):
    rows = [row for row in lab.trace.table("links").to_pylist() if row["device"] == "car"]
    begin_s = np.array([row["ts"].timestamp() for row in rows]) - lab.start_us / US
    return begin_s, np.array([row["up"] for row in rows]), np.array([row["down_kbps"] for row in rows]), rows


def test_the_labs_links_are_the_recording(drive, recording):
    at_s, up, kbps, rows = lab_links(drive[0])
    begin_s, length_s, was_up, was_kbps = recording
    assert (np.diff(at_s) > 0).all()
    row = np.searchsorted(at_s, begin_s + length_s / 2, side="right") - 1
    assert (up[row] == was_up).all()
    assert (kbps[row] == was_kbps).all()
    ends_s = np.append(at_s[1:], length_s.sum())
    down_s = (ends_s - at_s)[~up].sum()
    assert down_s == pytest.approx(length_s[~was_up].sum(), abs=1e-3)
    assert down_s / length_s.sum() == pytest.approx(0.1314, abs=1e-4)
    assert {row["latency_ms"] for row in rows} == {35.0}  # not measured: of LTE, as the way up
    assert {row["up_kbps"] for row in rows} == {5640.0}


def outages(recording):
    begin_s, length_s, up, _ = recording
    first = np.flatnonzero(~up & np.append(True, up[:-1]))
    last = np.flatnonzero(~up & np.append(up[1:], True))
    return list(zip(begin_s[first].tolist(), (begin_s[last] + length_s[last]).tolist(), strict=True))


def test_the_labs_outages_are_those_of_the_recording(drive, recording):
    lab, known = drive[0], outages(recording)
    incidents = [row for row in lab.trace.table("incidents").to_pylist() if row["device"] == "car"]
    times_s = {
        what: [row["ts"].timestamp() - lab.start_us / US for row in incidents if row["incident"] == what]
        for what in ("link down", "link up")
    }
    assert times_s["link down"] == pytest.approx([begin for begin, _ in known], abs=1e-5)
    assert len(known) == 69
    length_s = recording[1].sum()
    assert times_s["link up"] == pytest.approx([end for _, end in known if end < length_s], abs=1e-5)


def test_real_outages_cut_real_transfers(drive, recording):
    lab, receiver = drive
    transfers = [
        row
        for row in lab.trace.table("transfers").to_pylist()
        if row["device"] == "car" and row["direction"] == "down"
    ]
    begin_s = lab.start_us / US
    away = outages(recording)
    starts = np.array([begin for begin, _ in away])
    cut = [row for row in transfers if row["cut"]]
    assert len(cut) > 10
    partly = 0
    for row in cut:
        ended_s = row["ended"].timestamp() - begin_s
        assert np.abs(starts - ended_s).min() < 0.3  # its last byte may have been on its way
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
    # Nothing is carried while the network is away.
    for row in transfers:
        first, last = (row[name].timestamp() - begin_s for name in ("started", "ended"))
        assert not [1 for down, up in away if first < up - 1e-5 and last > down + 1e-5]
    # And still all of it arrives, once.
    items = lab.trace.table("deliveries")
    assert items["delivered"].null_count == 0
    assert len(receiver.read().result()) == len(items) > 400


def test_a_transfer_takes_the_time_of_the_measured_throughput(drive, recording):
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
    lasted = []
    for row in whole:
        first, last = (row[name].timestamp() - lab.start_us / US for name in ("started", "ended"))
        assert np.interp(last, edges, carried) - np.interp(first, edges, carried) == pytest.approx(
            row["size_bytes"], abs=200
        )
        lasted.append(last - first)
    assert max(lasted) > 20 * min(lasted)  # far from one rate


def test_a_run_ends_with_the_measurements(networks):
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


def test_there_are_no_more_networks_than_were_measured(networks):
    lab = Lab()
    with pytest.raises(ParameterError, match=r"10 devices, too few"):
        lab.fleet(11, link=LinkReplay(networks))
    assert not lab.devices
    lab.fleet(10, link=LinkReplay(networks))
    assert len({device.link.down_kbps for device in lab.devices.values()}) > 5


# -- phones


def test_unlocks_are_the_reads_of_a_scenario(phone_log):
    """Each device reads when the phone was unlocked: at the time of day, on days that follow each other."""
    log = load_unlocks(phone_log / "AwareScreen_1month.csv")
    zone = dt.timezone(dt.timedelta(hours=2))
    plan = Scenario(
        devices=4,
        hours=96,
        start="2017-05-31T22:00",
        items=Poisson(per_day=6),
        reads=Recorded(log.times_us, utc_offset_h=2.0),
    )
    lab = experiment.run(plan, StoreAndForward, 4).lab

    def by_day(moments):
        days = defaultdict(list)
        for moment in moments:
            local = moment.astimezone(zone)
            days[local.date()].append(local.time())
        return days

    times = [
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t) for t in log.times_us.tolist()
    ]
    logged = by_day(times)
    first, last = min(logged), max(logged)
    whole = [sorted(logged.get(first + dt.timedelta(days=n), [])) for n in range(1, (last - first).days)]
    assert len(whole) > 20
    asked = defaultdict(list)
    for row in lab.trace.table("operations").to_pylist():
        if row["op"] == "read":
            asked[row["client"]].append(row["invoked"])
    assert len(asked) == 4
    begins = set()
    for moments in asked.values():
        days = by_day(moments)
        reads = [sorted(days.get(dt.date(2017, 6, 1) + dt.timedelta(days=n), [])) for n in range(4)]
        turns = [[whole[(first + n) % len(whole)] for n in range(4)] for first in range(len(whole))]
        assert reads in turns
        begins.add(turns.index(reads))
    assert len(begins) > 1  # not all have the same day
    # What was unlocked was read: nothing is read at another moment.
    unlocks = {moment for moments in asked.values() for moment in moments}
    read = [row["read"] for row in lab.trace.table("deliveries").to_pylist() if row["read"]]
    assert len(read) > 50
    assert {*read} <= unlocks
