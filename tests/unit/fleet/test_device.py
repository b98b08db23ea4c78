"""Devices: movement, context, bandwidth, and batteries."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pandas as pd
import pyarrow as pa
import pytest
from lab_systems import Answering, install_answering, links

from mudkit import Lab
from mudkit.events import ContextChanged, LinkUp
from mudkit.sources.link_replay import LinkReplay
from mudkit.systems.store_and_forward import Client, Relay

HERE, THERE = (30.0, -97.0), (31.0, -98.0)


class Listener:
    """Machine that records a field of each changed context."""

    def __init__(self, field):
        self.field, self.reports = field, []

    def handle(self, now_us, event):
        if isinstance(event, ContextChanged):
            self.reports.append((now_us, event.context.get(self.field)))
        return []


@pytest.mark.parametrize("at", [HERE, None])
def test_moved_device_stays_at_its_new_place(at):
    lab, listener = Lab(), Listener("loc")
    device = lab.device("ann", at=at)
    device.install("test", lambda ports: listener)
    lab.run(minutes=5.5)
    listener.reports.clear()
    device.move(*THERE)
    lab.run(minutes=10)
    assert device.loc == THERE
    assert listener.reports == [(330_000_000, THERE)]
    placed = lab.trace.table("positions").to_pandas()
    assert (placed["lat"].iloc[-1], placed["lon"].iloc[-1]) == THERE
    assert (placed["lat"] == HERE[0]).sum() == (6 if at else 0)
    assert len(placed) == (16 if at else 11)
    device.move(*HERE)
    lab.run(minutes=2)
    assert device.loc == HERE
    assert not lab.trace.table("positions").to_pandas().duplicated(["device", "ts"]).any()


def test_moving_one_device_does_not_move_the_fleet():
    lab = Lab()
    first, second = lab.fleet(2)
    first.move(*THERE)
    lab.run(minutes=2)
    assert (first.loc, second.loc) == (THERE, None)


def test_change_context_sets_fields_without_other_source():
    device = Lab().device("ann", link="ideal")
    device.change_context(loc=THERE, battery_share=0.5, bandwidth_kbps=3.0)
    assert device.snapshot() == {"loc": THERE, "battery_share": 0.5, "bandwidth_kbps": 3.0}


def install_listener(device, watch=("bandwidth_kbps",)):
    listener = Listener("bandwidth_kbps")
    device.install("test", lambda ports: listener, watch=watch)
    return listener.reports


@pytest.mark.parametrize(
    ("link", "watch", "expected"),
    [
        ("wifi", ("bandwidth_kbps",), [(0, 40_000.0), (5_000_000, 180.0)]),
        ("ideal", ("bandwidth_kbps",), [(0, None), (5_000_000, 180.0)]),  # unlimited
        ("wifi", (), [(0, None)]),
    ],
)
def test_bandwidth_is_reported_at_start_and_on_network_change(link, watch, expected):
    lab = Lab(seed=1)
    device = lab.device("pda", link=link, at=(0.0, 0.0), display_px=3)
    reports = install_listener(device, watch)
    lab.run(seconds=5)
    device.change_network("edge")
    lab.run(seconds=5)
    assert reports == expected


def test_measured_bandwidth_is_reported_when_it_changes():
    start = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    common = {"device": "a", "up": True, "up_kbps": 10.0, "latency_ms": 5.0}
    rows = [
        {**common, "ts": start + dt.timedelta(seconds=10 * n), "down_kbps": kbps}
        for n, kbps in enumerate((1000.0, 250.0, 4000.0))
    ]
    lab = Lab(seed=1)
    reports = install_listener(lab.device("pda", link=LinkReplay(pa.Table.from_pylist(rows)), at=(0.0, 0.0)))
    lab.run(seconds=25)
    assert reports == [(0, 1000.0), (10_000_000, 250.0), (20_000_000, 4000.0)]


S = 1_000_000


def list_incidents(lab: Lab, device: str = "ann") -> list[tuple[str, float]]:
    rows = lab.frame("incidents")
    rows = rows[rows["device"] == device]
    seconds = (rows["ts"] - pd.Timestamp("2010-03-01T13:00Z")).dt.total_seconds()
    return list(zip(rows["incident"], seconds, strict=True))


@pytest.mark.parametrize("base_mw", [10.0, 68.6, 2000.0])
def test_idle_battery_life_follows_from_base_power(base_mw):
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=base_mw)
    install_answering(ann)
    lab.run(hours=4)
    [empty_s] = [at for incident, at in list_incidents(lab) if incident == "off"]
    assert 0 <= empty_s - 100_000 / base_mw <= 1.0
    assert not ann.is_on
    assert not ann.is_online
    assert ann.battery.left_j() == 0.0
    levels = lab.battery("ann")
    assert levels["battery_j"].iloc[-1] == 0.0
    assert levels["battery_j"].is_monotonic_decreasing
    assert levels["ts"].iloc[0] == lab.now - dt.timedelta(hours=4)
    assert (levels["device"] == "ann").all()


def test_battery_without_load_keeps_its_charge():
    lab = Lab()
    ann = lab.device("ann", battery_j=10_000.0, base_mw=0.0)
    lab.run(hours=100)
    assert ann.battery.left_j() == 10_000.0


@pytest.mark.parametrize("link", ["lte", "umts_3g", "edge", "wifi", links((0, True, 2e5), (7200, True, 2e5))])
def test_device_with_traffic_switches_off_when_the_battery_is_empty(link):
    lab = Lab(3)
    ann = lab.device("ann", link, battery_j=150.0)
    process, _ = install_answering(ann)
    lab.server("server")

    def send(_: None) -> None:
        process.call("send", to="server", message=b"x" * 100_000)
        lab.world.schedule_action(lab.world.now_us + 7 * S, send)

    lab.world.schedule_action(0, send)
    while ann.is_on:
        lab.run(seconds=60)
        left_j = ann.battery.left_j()
        assert lab.battery("ann")["battery_j"].iloc[-1] == pytest.approx(left_j, abs=1e-9)
    levels = lab.battery("ann")
    off_s = dict(list_incidents(lab))["off"]
    seconds = (levels["ts"] - levels["ts"].iloc[0]).dt.total_seconds()
    first_empty_s = seconds[levels["battery_j"] <= 0].min()
    last_left_s = seconds[levels["battery_j"] > 0].max()
    assert last_left_s <= off_s <= max(first_empty_s, last_left_s + 1) + 1.0
    assert off_s < 150_000 / 68.6 / 1.2  # shorter than without traffic


@pytest.mark.parametrize(("seconds", "left_j"), [(9950, 0.5), (10_000, 100.0)])
def test_only_an_empty_battery_is_charged_when_the_device_is_switched_on(seconds, left_j):
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=10.0)
    lab.run(seconds=seconds)
    lab.faults.switch_off("ann")
    lab.faults.switch_on("ann")
    assert ann.battery.left_j() == pytest.approx(left_j)


def test_battery_is_not_discharged_while_off():
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=10.0)
    process, machines = install_answering(ann)
    lab.run(seconds=1000)
    lab.faults.switch_off("ann")
    lab.faults.switch_off("ann")
    lab.run(hours=9)
    assert ann.battery.left_j() == pytest.approx(90.0)
    assert lab.battery("ann")["battery_j"].iloc[-1] == pytest.approx(90.0)
    lab.faults.switch_on("ann")
    lab.faults.switch_on("ann")
    assert process.call("now", value=1).result() == 1
    assert len(machines) == 2
    assert len(machines[1].of(LinkUp)) == 1
    lab.run(seconds=500)
    assert ann.battery.left_j() == pytest.approx(85.0)
    levels = lab.battery("ann")["battery_j"]
    assert levels.round(6).tolist() == [100.0, 90.0, 90.0, 85.0]
    sequence = " ".join(incident.replace(" ", "-") for incident, _ in list_incidents(lab)[:6])
    assert sequence == "link-down killed off on restarted link-up"
    lab.run(seconds=8600)
    assert not ann.is_on
    assert list_incidents(lab)[-1][1] == pytest.approx(1000 + 9 * 3600 + 9000, abs=1.0)


def test_empty_battery_is_charged_at_switch_on():
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
    assert [incident for incident, _ in list_incidents(lab)].count("off") == 2
    assert lab.battery("ann")["ts"].iloc[0] == lab.frame("incidents").query("incident == 'on'")["ts"].iloc[0]


def test_battery_is_charged_while_on_or_off():
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


def test_battery_check_adapts_to_a_new_network():
    lab = Lab()
    ann = lab.device("ann", "lte", battery_j=100.0, base_mw=1.0)
    process, _ = install_answering(ann)
    lab.server("server")
    lab.run(seconds=1)
    lab.faults.change_network("ann", "wifi")
    for _ in range(40):
        process.call("send", to="server", message=b"x" * 1_000_000)
    lab.run(seconds=60)
    assert 95_000 / 7 <= lab.bill()["bytes"].sum() / 1000 <= 100_000 / 7 + 2_600  # plus one second of traffic


def test_battery_share_is_reported_in_steps_to_watchers():
    lab = Lab()
    ann = lab.device("ann", battery_j=100.0, base_mw=100.0)
    machines = []

    def create_machine(ports):
        machines.append(Answering(ports))
        return machines[-1]

    ann.install("watching", create_machine, watch=["battery_share"])
    other = install_answering(ann, "other")[1]
    lab.run(seconds=950)
    shares = [event.context["battery_share"] for event in machines[0].of(ContextChanged)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert shares[-1] <= 0.11
    assert max(a - b for a, b in pairwise(shares)) <= 0.07  # 60 s of 100 mW
    assert [event.context["battery_share"] for event in other[0].of(ContextChanged)] == [1.0]
