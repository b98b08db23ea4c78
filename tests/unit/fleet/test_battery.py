"""A battery runs out when what was taken from it says so."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest
from lab_systems import Answering, answering, links

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import ContextChanged, LinkUp
from mudkit.systems.store_and_forward import Client, Relay

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
    assert [what for what, _ in incidents(lab)][:6] == [
        "link down",
        "killed",
        "off",
        "on",
        "restarted",
        "link up",
    ]
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


@pytest.mark.parametrize(
    ("battery_j", "base_mw"), [(0, 1), (-1, 1), (float("nan"), 1), ("9", 1), (9, -1), (9, None)]
)
def test_what_is_no_battery(battery_j, base_mw):
    with pytest.raises(ParameterError, match="not usable"):
        Lab().device("ann", battery_j=battery_j, base_mw=base_mw)
