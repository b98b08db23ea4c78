"""Devices: batteries, places that are set by hand, context that the lab sets itself, and bandwidth."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pandas as pd
import pyarrow as pa
import pytest
from lab_systems import Answering, answering, links

from mudkit import Lab
from mudkit.events import ContextChanged, LinkUp
from mudkit.sources.link_replay import LinkReplay
from mudkit.systems.store_and_forward import Client, Relay

HERE, THERE = (30.0, -97.0), (31.0, -98.0)


class Listener:
    """Notes a field of the context whenever it is told."""

    def __init__(self, field):
        self.field, self.told = field, []

    def handle(self, now_us, event):
        if isinstance(event, ContextChanged):
            self.told.append((now_us, event.context.get(self.field)))
        return []


@pytest.mark.parametrize("at", [HERE, None])
def test_a_device_stays_where_it_was_moved(at):
    lab, listener = Lab(), Listener("loc")
    device = lab.device("ann", at=at)
    device.install("test", lambda ports: listener)
    lab.run(minutes=5.5)
    listener.told.clear()
    device.move(*THERE)
    lab.run(minutes=10)
    assert device.loc == THERE
    assert listener.told == [(330_000_000, THERE)]
    placed = lab.trace.table("positions").to_pandas()
    assert (placed["lat"].iloc[-1], placed["lon"].iloc[-1]) == THERE
    assert (placed["lat"] == HERE[0]).sum() == (6 if at else 0)
    assert len(placed) == (16 if at else 11)
    device.move(*HERE)
    lab.run(minutes=2)
    assert device.loc == HERE
    assert not lab.trace.table("positions").to_pandas().duplicated(["device", "ts"]).any()


def test_one_of_a_fleet_is_moved_alone():
    lab = Lab()
    first, second = lab.fleet(2)
    first.move(*THERE)
    lab.run(minutes=2)
    assert (first.loc, second.loc) == (THERE, None)


def test_what_nobody_else_sets_is_changed():
    device = Lab().device("ann", link="ideal")
    device.change_context(loc=THERE, battery_share=0.5, bandwidth_kbps=3.0)
    assert device.snapshot() == {"loc": THERE, "battery_share": 0.5, "bandwidth_kbps": 3.0}


def installed(device, watch=("bandwidth_kbps",)):
    listener = Listener("bandwidth_kbps")
    device.install("test", lambda ports: listener, watch=watch)
    return listener.told


@pytest.mark.parametrize(
    ("link", "watch", "told"),
    [
        ("wifi", ("bandwidth_kbps",), [(0, 40_000.0), (5_000_000, 180.0)]),
        ("ideal", ("bandwidth_kbps",), [(0, None), (5_000_000, 180.0)]),  # it has no limit
        ("wifi", (), [(0, None)]),
    ],
)
def test_who_watches_the_bandwidth_is_told_at_the_start_and_with_another_network(link, watch, told):
    lab = Lab(seed=1)
    device = lab.device("pda", link=link, at=(0.0, 0.0), display_px=3)
    answer = installed(device, watch)
    lab.run(seconds=5)
    device.change_network("edge")
    lab.run(seconds=5)
    assert answer == told


def test_what_was_measured_is_told_when_it_changes():
    start = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    same = {"device": "a", "up": True, "up_kbps": 10.0, "latency_ms": 5.0}
    rows = [
        {**same, "ts": start + dt.timedelta(seconds=10 * n), "down_kbps": kbps}
        for n, kbps in enumerate((1000.0, 250.0, 4000.0))
    ]
    lab = Lab(seed=1)
    answer = installed(lab.device("pda", link=LinkReplay(pa.Table.from_pylist(rows)), at=(0.0, 0.0)))
    lab.run(seconds=25)
    assert answer == [(0, 1000.0), (10_000_000, 250.0), (20_000_000, 4000.0)]


S = 1_000_000


def incidents(lab: Lab, device: str = "ann") -> list[tuple[str, float]]:
    rows = lab.frame("incidents")
    rows = rows[rows["device"] == device]
    seconds = (rows["ts"] - pd.Timestamp("2010-03-01T13:00Z")).dt.total_seconds()
    return list(zip(rows["incident"], seconds, strict=True))


@pytest.mark.parametrize("base_mw", [10.0, 68.6, 2000.0])
def test_without_traffic_it_lasts_as_long_as_its_base_power_says(base_mw):
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=base_mw)
    answering(ann)
    lab.run(hours=4)
    [empty_s] = [at for what, at in incidents(lab) if what == "off"]
    assert 0 <= empty_s - 100_000 / base_mw <= 1.0
    assert not ann.is_on
    assert not ann.is_online
    assert ann.battery.left_j() == 0.0
    levels = lab.battery("ann")
    assert levels["battery_j"].iloc[-1] == 0.0
    assert levels["battery_j"].is_monotonic_decreasing
    assert (levels["device"] == "ann").all()


def test_without_any_power_it_lasts():
    lab = Lab()
    ann = lab.device("ann", battery_j=10_000.0, base_mw=0.0)
    lab.run(hours=100)
    assert ann.battery.left_j() == 10_000.0


@pytest.mark.parametrize("link", ["lte", "umts_3g", "edge", "wifi", links((0, True, 2e5), (7200, True, 2e5))])
def test_with_traffic_it_runs_out_when_the_levels_do(link):
    lab = Lab(3)
    ann = lab.device("ann", link, battery_j=150.0)
    process, _ = answering(ann)
    lab.server("server")

    def send(_: None) -> None:
        process.call("send", to="server", message=b"x" * 100_000)
        lab.world.at(lab.world.now_us + 7 * S, send)

    lab.world.at(0, send)
    while ann.is_on:
        lab.run(seconds=60)
        left_j = ann.battery.left_j()
        assert lab.battery("ann")["battery_j"].iloc[-1] == pytest.approx(left_j, abs=1e-9)
    levels = lab.battery("ann")
    off_s = dict(incidents(lab))["off"]
    seconds = (levels["ts"] - levels["ts"].iloc[0]).dt.total_seconds()
    first_empty_s = seconds[levels["battery_j"] <= 0].min()
    last_left_s = seconds[levels["battery_j"] > 0].max()
    assert last_left_s <= off_s <= max(first_empty_s, last_left_s + 1) + 1.0
    assert off_s < 150_000 / 68.6 / 1.2  # the traffic counts


def test_off_it_takes_nothing_and_on_it_goes_on():
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=10.0)
    process, lives = answering(ann)
    lab.run(seconds=1000)
    lab.faults.switch_off("ann")
    lab.faults.switch_off("ann")
    lab.run(hours=9)
    assert ann.battery.left_j() == pytest.approx(90.0)
    assert lab.battery("ann")["battery_j"].iloc[-1] == pytest.approx(90.0)
    lab.faults.switch_on("ann")
    lab.faults.switch_on("ann")
    assert process.call("now", value=1).result() == 1
    assert len(lives) == 2
    assert len(lives[1].of(LinkUp)) == 1
    lab.run(seconds=500)
    assert ann.battery.left_j() == pytest.approx(85.0)
    levels = lab.battery("ann")["battery_j"]
    assert levels.round(6).tolist() == [100.0, 90.0, 90.0, 85.0]
    happened = " ".join(what.replace(" ", "-") for what, _ in incidents(lab)[:6])
    assert happened == "link-down killed off on restarted link-up"
    lab.run(seconds=8600)
    assert not ann.is_on
    assert incidents(lab)[-1][1] == pytest.approx(1000 + 9 * 3600 + 9000, abs=1.0)


def test_empty_it_is_charged_before_it_is_on_again_and_runs_out_again():
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=100.0)
    relay = Relay(lab)
    client = Client(ann, relay)
    lab.run(hours=1)
    assert not ann.is_on
    lab.faults.switch_on("ann")
    assert ann.battery.left_j() == 100.0
    assert client.send("ann", "still here").result(60) == 1
    lab.run(hours=1)
    assert [what for what, _ in incidents(lab)].count("off") == 2
    assert lab.battery("ann")["ts"].iloc[0] == lab.frame("incidents").query("incident == 'on'")["ts"].iloc[0]


def test_charging_also_while_it_is_off():
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=100.0)
    lab.run(seconds=900)
    ann.battery.charge()
    lab.run(seconds=900)
    assert ann.battery.left_j() == pytest.approx(10.0)
    lab.run(seconds=900)
    assert not ann.is_on
    ann.battery.charge()
    lab.run(hours=1)
    assert ann.battery.left_j() == 100.0
    lab.faults.switch_on("ann")
    lab.run(seconds=999)
    assert ann.is_on
    lab.run(seconds=3)
    assert not ann.is_on


def test_another_network_that_takes_more_is_looked_after_at_once():
    lab = Lab()
    ann = lab.device("ann", "lte", battery_j=100.0, base_mw=1.0)
    process, _ = answering(ann)
    lab.server("server")
    lab.run(seconds=1)
    lab.faults.change_network("ann", "wifi")
    for _ in range(40):
        process.call("send", to="server", message=b"x" * 1_000_000)
    lab.run(seconds=60)
    assert 95_000 / 7 <= lab.bill()["bytes"].sum() / 1000 <= 100_000 / 7 + 2_600  # a second of it


def test_who_watches_it_is_told_of_each_hundredth():
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=100.0)
    lives = []

    def make(ports):
        lives.append(Answering(ports))
        return lives[-1]

    ann.install("watching", make, watch=["battery_share"])
    other = answering(ann, "other")[1]
    lab.run(seconds=950)
    shares = [event.context["battery_share"] for event in lives[0].of(ContextChanged)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert shares[-1] <= 0.11
    assert max(a - b for a, b in pairwise(shares)) <= 0.07  # 60 s of 100 mW
    assert [event.context["battery_share"] for event in other[0].of(ContextChanged)] == [1.0]
