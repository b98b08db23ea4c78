"""What devices got and paid adds up to what the entry measures, and is what the tables say."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.scoreboard import MEASURES, OF_DEVICES, by_device, play
from mudkit.experiment.scoreboard.entry import BATTERY_J
from mudkit.experiment.tasks import PHOTOS, WARD
from mudkit.experiment.tasks.task import SETTLE_S
from mudkit.fleet.battery import BASE_MW

SUMS = ("useful", "lost", "stale", "wasted", "up_kb", "down_kb", "messages", "wakeups", "radio_j")


@pytest.fixture(scope="module", params=["to everyone", "Last hop"])
def photos(request):
    return play(PHOTOS.over(devices=8, hours=8.0), ADAPTERS[request.param], 3, name=request.param)


@pytest.fixture(scope="module")
def ward():
    return play(WARD.over(devices=3, hours=0.2), ADAPTERS["MUD"], 3, name="MUD")


def test_devices_add_up_to_the_entry(photos, ward):
    for entry in (photos, ward):
        table, measures = by_device(entry), entry.measures()
        assert measures["useful"] > 0
        assert measures["wasted"] + measures["lost"] > 0
        for name in SUMS:
            assert table[name].sum() == pytest.approx(measures[name]), name
        assert table["wanted"].sum() == entry.testbed.wanted
        assert table["useful"].sum() / table["wanted"].sum() == pytest.approx(measures["useful_share"])
        watts = BATTERY_J / 3600 / table["battery_h"].dropna()
        assert BATTERY_J / 3600 / watts.mean() == pytest.approx(measures["battery_h"])


def test_a_row_is_what_the_tables_say_of_its_device(photos):
    phone = photos.testbed.phones[2]
    row = by_device(photos).set_index("device").loc[phone]
    rows = photos.deliveries.query("receiver == @phone")
    bill = photos.bill.query("device == @phone")
    read = rows[rows["read"].notna()]
    assert row["useful"] == len(read) > 0
    assert row["latency_s"] == pytest.approx(
        (read["delivered"] - read["created"]).dt.total_seconds().median()
    )
    assert row["age_s"] == pytest.approx((read["read"] - read["created"]).dt.total_seconds().median())
    assert row["useful_share"] == len(read) / row["wanted"]
    assert row["up_kb"] == pytest.approx(bill.query("direction == 'up'")["bytes"].sum() / 1000)
    assert row["radio_j"] == pytest.approx(bill["radio_mj"].sum() / 1000)
    assert row["kb_per_useful"] == pytest.approx(bill["bytes"].sum() / 1000 / len(read))
    watts = row["radio_j"] / (8 * 3600 + SETTLE_S) + BASE_MW / 1000
    assert row["battery_h"] == pytest.approx(BATTERY_J / watts / 3600)


def test_feeds_are_nobodys_phone(ward):
    table = by_device(ward)
    assert list(table["device"]) == list(ward.lab.devices)
    assert table["is_phone"].sum() == 3
    feeds = table[~table["is_phone"]]
    assert len(feeds) == 24
    assert feeds["up_kb"].min() > 0
    assert (feeds[["wanted", "useful", "radio_j", "wakeups"]] == 0).all(axis=None)
    assert feeds[["useful_share", "latency_s", "battery_h", "j_per_useful"]].isna().all(axis=None)
    assert np.isfinite(table.loc[table["is_phone"], "useful_share"]).all()


def test_its_measures_are_of_the_scoreboard(ward):
    assert set(OF_DEVICES) < set(MEASURES)
    assert list(by_device(ward).columns) == ["device", "is_phone", "wanted", *OF_DEVICES]
