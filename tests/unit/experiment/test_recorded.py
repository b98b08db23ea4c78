"""Tasks made of logs: what is wanted, what is chosen, and how it is played."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import trace
from mudkit.errors import ParameterError, TraceContentError
from mudkit.experiment import ADAPTERS, recorded, recorded_task, run
from mudkit.experiment.tasks import SETTLE_S
from mudkit.sources import OutageLog
from mudkit.units import KM_PER_DEGREE

START = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)


def at(minutes):
    return START + dt.timedelta(minutes=minutes)


def table(rows, names):
    """Return an Arrow table; times are minutes after the start."""
    columns = {
        name: [
            at(row[k]) if name in ("ts", "begin", "end", "expires") and row[k] is not None else row[k]
            for row in rows
        ]
        for k, name in enumerate(names)
    }
    return pa.table(columns)


def positions(devices="abc", minutes=120, step=5, apart_km=0.2):
    """Return devices that stand in a row to the north, and report every few minutes."""
    return table(
        [
            (device, minute, 30.0 + row * apart_km / KM_PER_DEGREE, -97.0)
            for row, device in enumerate(devices)
            for minute in range(0, minutes, step)
        ],
        ["device", "ts", "lat", "lon"],
    )


def reads(rows, box_km=1.0, window_min=30.0, devices="abc", apart_km=0.2):
    """Return reads at the place of their device; a row is device and minute."""
    return table(
        [
            (
                device,
                minute,
                30.0 + devices.index(device) * apart_km / KM_PER_DEGREE,
                -97.0,
                box_km,
                60 * window_min,
            )
            for device, minute in rows
        ],
        ["device", "ts", "lat", "lon", "box_km", "window_s"],
    )


WRITES = table([("a", 10), ("b", 20), ("a", 50)], ["device", "ts"])


def make_task(**changes):
    given = {
        "positions": positions(),
        "reads": reads([("b", 25), ("c", 55), ("a", 60)]),
        "writes": WRITES,
        "hours": 2.0,
        "outage": 0.0,
    } | changes
    return recorded_task(**given)


def test_items_are_wanted_by_reads_that_ask_for_them():
    """b asks for a's first item, c for a's second; a's read is too late for b's, and her own do not count."""
    log = make_task().recording
    assert log.names == ("a", "b", "c")
    pairs = {
        (item.sender, k): set(log.wanted_by(item.sender, k))
        for item, k in zip(log.items, (1, 1, 2), strict=True)
    }
    assert pairs == {(0, 1): {1}, (1, 1): set(), (0, 2): {2}}
    assert log.wanted_count == 2
    assert log.foreseen_share == 1.0


def test_box_and_expiration_limit_what_is_wanted():
    assert make_task(reads=reads([("b", 25), ("c", 55)], box_km=0.5)).recording.wanted_count == 1, (
        "c is too far"
    )
    expired = table([("a", 10, 24), ("a", 50, None)], ["device", "ts", "expires"])
    assert make_task(writes=expired).recording.wanted_count == 1
    late = table([("a", 10, 26), ("a", 50, 51)], ["device", "ts", "expires"])
    assert make_task(writes=late).recording.wanted_count == 1


@pytest.mark.parametrize("system", list(ADAPTERS))
def test_every_system_runs_a_recorded_task(system):
    task = make_task()
    result = run(task, ADAPTERS[system], seed=1, record_messages=False, record_exposure=False)
    measures = result.measures()
    assert result.testbed.wanted_count == 2
    assert measures["useful"] == 2.0, "all stand still, and no link fails"
    deliveries = result.deliveries.query("status == 'read'").sort_values("created")
    looked = {("phone-00000 1", "phone-00001"): 25, ("phone-00000 2", "phone-00002"): 55}
    for row in deliveries.itertuples():
        minute = looked[row.item, row.receiver]
        assert abs((row.read - at(minute)).total_seconds()) < 30


def test_item_is_seen_by_the_read_that_asks_for_it():
    """b has moved away when it looks first: that read asks for another place."""
    moved = table(
        [("a", 0, 30.0, -97.0), ("a", 110, 30.0, -97.0)]
        + [("b", m, 30.0 if m < 12 or m >= 25 else 30.5, -97.0) for m in range(0, 110, 5)],
        ["device", "ts", "lat", "lon"],
    )
    requests = table(
        [("b", 20, 30.5, -97.0, 1.0, 1800.0), ("b", 35, 30.0, -97.0, 1.0, 1800.0)],
        ["device", "ts", "lat", "lon", "box_km", "window_s"],
    )
    task = make_task(positions=moved, reads=requests, writes=table([("a", 10)], ["device", "ts"]))
    result = run(task, ADAPTERS["to everyone"], seed=1)
    (row,) = result.deliveries.query("status == 'read'").to_dict("records")
    assert abs((row["read"] - at(35)).total_seconds()) < 1


def test_outages_of_the_log_cut_links():
    down = table([("b", 5, 40), ("c", 200, 210)], ["device", "begin", "end"])
    task = make_task(outages=down)
    assert isinstance(task.scenario.outage, OutageLog)
    assert task.scenario.outage.outages == 1
    result = run(task, ADAPTERS["to everyone"], seed=1)
    assert result.measures()["useful"] == 1.0, "b has no network when it looks"
    again = run(task, ADAPTERS["to everyone"], seed=2)
    assert again.measures()["useful"] == 1.0


@pytest.mark.parametrize(("box_km", "renew_km"), [(20.0, 20 / math.sqrt(2) / 10), (0.1, 0.05)])
def test_interests_are_renewed_when_a_phone_has_moved_a_tenth_of_its_circle(box_km, renew_km):
    """The circle is the one around the box of the reads; below 50 m a place is not more exact."""
    rows = [("b", 25), ("c", 55), ("a", 60)]
    task = make_task(reads=reads(rows, box_km=box_km, apart_km=0.01), positions=positions(apart_km=0.01))
    assert task.renew_km == pytest.approx(renew_km)


def test_busiest_devices_and_stretch_are_chosen_and_items_thinned():
    many = positions("abcdef", minutes=600)
    requests = reads([(name, 300 + 2 * k) for name in "def" for k in range(20)], devices="abcdef", box_km=5.0)
    task = recorded_task(many, requests, devices=3, hours=1.0, max_items=10)
    log = task.recording
    assert log.names == ("d", "e", "f")
    assert (log.devices_found, log.items_found, log.reads_found) == (6, 72, 60)
    assert log.step == 4
    assert len(log.items) <= 10
    begin = dt.datetime.fromisoformat(log.start)
    assert at(270) <= begin <= at(300)
    assert all(60e6 <= item.t_us < 3660e6 for item in log.items)


def test_sizes_ranks_and_places_of_the_log_are_used():
    named = pa.table(
        {"device": ["a", "b"], "ts": [at(10), at(20)], "lat": [30.001, None], "lon": [-97.0, None],
         "rank": [2.0, None], "size_bytes": [1000.0, None]}
    )  # fmt: skip
    items = make_task(
        writes=named, reads=reads([("b", 25), ("a", 25), ("c", 25)]), size_bytes=200
    ).recording.items
    assert [(item.rank, item.size_bytes) for item in items] == [(2.0, 1000), (0.0, 200)]
    assert items[0].loc == (30.001, -97.0)
    assert items[1].loc == pytest.approx((30.0 + 0.2 / KM_PER_DEGREE, -97.0))


def test_logs_that_do_not_meet_are_refused():
    with pytest.raises(TraceContentError, match="time ranges of the positions and the reads do not overlap"):
        make_task(reads=reads([("b", 10_000)]))
    with pytest.raises(TraceContentError, match="time ranges of the positions and the writes do not overlap"):
        make_task(writes=table([("a", -90_000)], ["device", "ts"]))
    for name, log in (
        ("writes", table([("x", 10)], ["device", "ts"])),
        ("outages", table([("x", 10, 20)], ["device", "begin", "end"])),
    ):
        with pytest.raises(TraceContentError, match=f"{name} are of other devices") as caught:
            make_task(**{name: log})
        assert "x in the log, a, b, c in the trace" in str(caught.value)


def test_task_in_which_nothing_is_wanted_is_refused():
    with pytest.raises(TraceContentError, match="No read asks for an item of another device"):
        make_task(reads=reads([("a", 25)]), writes=table([("a", 10), ("b", 70)], ["device", "ts"]))
    with pytest.raises(TraceContentError, match="Fewer than two devices"):
        make_task(positions=positions("a"), reads=reads([("a", 25)]), writes=None)


@pytest.mark.parametrize("hours", [0.0, -1.0, 2e4, math.nan])
def test_length_of_the_stretch_is_checked(hours):
    with pytest.raises(ParameterError, match="hours"):
        make_task(hours=hours)


def test_recorded_parts_cannot_be_changed():
    task = make_task()
    assert task.over(link="wifi").scenario.link == "wifi"
    with pytest.raises(ParameterError, match="stand in its logs"):
        task.over(devices=5)


@pytest.mark.soak
def test_wanted_pairs_of_a_recorded_trace_match_a_join(cabspotting):
    """Recompute what is wanted by a join of items and reads in pandas."""
    loaded = trace.load(cabspotting, box_km=2.0, window_s=1800.0)
    task = recorded_task(loaded.positions, loaded.reads, devices=10, hours=3.0, max_items=400)
    log = task.recording
    begin = pd.Timestamp(log.start)
    requests = loaded.reads.to_pandas()
    requests = requests[
        requests["device"].isin(log.names)
        & requests["ts"].between(begin, begin + pd.Timedelta(hours=3), inclusive="left")
    ]
    assert len(requests) == len(log.reads)
    items = pd.DataFrame(
        [(log.names[i.sender], begin + pd.Timedelta(i.t_us - 60_000_000, "us"), *i.loc) for i in log.items],
        columns=["sender", "written", "item_lat", "item_lon"],
    )
    pairs = items.reset_index().merge(requests, how="cross")
    age_s = (pairs["ts"] - pairs["written"]).dt.total_seconds()
    north_km = (pairs["item_lat"] - pairs["lat"]).abs() * KM_PER_DEGREE
    east_km = (pairs["item_lon"] - pairs["lon"]).abs() * KM_PER_DEGREE * np.cos(np.radians(pairs["lat"]))
    is_wanted = (
        age_s.between(0, 1800) & (north_km <= 1) & (east_km <= 1) & (pairs["sender"] != pairs["device"])
    )
    assert log.wanted_count == len(pairs[is_wanted].drop_duplicates(["index", "device"]))
    result = run(task, ADAPTERS["to everyone"], 0, record_messages=False, record_exposure=False)
    assert result.testbed.wanted_count == log.wanted_count


def test_moves_reach_from_the_last_report_before_a_stretch_to_the_first_after_it(monkeypatch):
    """A device stands still before and after; a run lasts until what is on its way has arrived."""
    monkeypatch.setattr(recorded, "Replay", lambda table, start: table)
    settle_us = round(SETTLE_S * 1e6)
    moves = pd.DataFrame({"device": "a", "t_us": settle_us * np.arange(6), "lat": np.arange(6.0), "lon": 0.0})
    moved = recorded._replay(moves, ["a"], round(1.5 * settle_us), round(2.5 * settle_us))
    assert moved["lat"].to_pylist() == [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]
    whole = recorded._replay(moves, ["a"], -settle_us, 9 * settle_us)
    assert whole["lat"].to_pylist() == [0.0, *range(6), 5.0]


def test_window_of_a_read_includes_its_ends():
    """A read asks for items of its last seconds, of which the first and the present moment are two."""
    items = pd.DataFrame(
        {
            "t_us": [0, 10, 40, 41],
            "lat": 30.0,
            "lon": -97.0,
            "row": 0,
            "expires_us": [np.inf, np.inf, 40, np.inf],
        }
    )
    items["t_us"] *= 1_000_000
    items["expires_us"] *= 1_000_000
    read = {"t_us": 40_000_000, "lat": 30.0, "lon": -97.0, "row": 1, "box_km": 1.0, "window_s": 30.0}
    looks = pd.DataFrame([read, {**read, "row": 0}])
    assert recorded._requests(items, looks, 3600.0) == [(1, 2), ()]
    assert recorded._requests(items, looks, 30.0) == [(1, 2), ()]
    assert recorded._requests(items, looks, 29.0) == [(2,), ()]
