"""Runs of tasks: reproducible by seed, with measures that match the trace and add up."""

from __future__ import annotations

import math
from copy import copy
from functools import partial
from statistics import median, quantiles

import numpy as np
import pandas as pd
import pytest

from mudkit import trace
from mudkit.experiment import (
    ADAPTERS,
    COMPOSITIONS,
    DEVICE_MEASURES,
    MEASURES,
    NEWS,
    PHOTOS,
    TASKS,
    TRAFFIC,
    WARD,
    Comparison,
    Testbed,
    by_device,
    run,
    sweep,
)
from mudkit.experiment.runs import BATTERY_J, _name, fates
from mudkit.experiment.tasks import SETTLE_S
from mudkit.experiment.testbed import APP
from mudkit.fleet.device import BASE_MW
from mudkit.fleet.recorder import TABLES
from mudkit.units import distance_km


def test_differences_are_paired_by_seed_in_any_order():
    rows = [("a", 1, 10.0), ("a", 2, 20.0), ("a", 3, math.nan), ("b", 3, 5.0), ("b", 2, 21.0), ("b", 1, 14.0)]
    result = Comparison(pd.DataFrame(rows, columns=["system", "seed", "x"]), "a").differences().iloc[0]
    assert result["difference"] == 2.5
    assert (result["difference_low"], result["difference_high"], result["seeds"]) == (1.0, 4.0, 2)


_CHANGES = {
    "traffic alerts": {"devices": 8, "hours": 0.3},
    "friends nearby": {"devices": 8, "hours": 0.3},
    "ward telemetry": {"devices": 2, "hours": 0.05},
    "news with ranks": {"devices": 6, "hours": 6.0},
    "photo sharing": {"devices": 6, "hours": 6.0},
}
SMALL_TASKS = {name: TASKS[name].over(**changes) for name, changes in _CHANGES.items()}


@pytest.fixture(scope="module")
def entries():
    """Return a run of each system and task."""
    options = {"record_messages": False, "record_exposure": False}
    return {
        (task, system): run(SMALL_TASKS[task], make, seed=2, name=system, **options)
        for task in SMALL_TASKS
        for system, make in ADAPTERS.items()
    }


@pytest.mark.parametrize("task", SMALL_TASKS)
def test_all_systems_receive_the_same_inputs(entries, task):
    of_task = [entry for (name, _), entry in entries.items() if name == task]
    assert len({entry.digest for entry in of_task}) == 1
    assert len({entry.testbed.wanted_count for entry in of_task}) == 1
    assert of_task[0].digest != run(SMALL_TASKS[task], ADAPTERS["SUBLIM"], 3, record_exposure=False).digest


@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", SMALL_TASKS)
def test_each_system_delivers_useful_items(entries, task, system):
    entry = entries[task, system]
    result = entry.measures()
    assert list(result) == list(MEASURES)
    assert entry.testbed.wanted_count > 0
    assert result["useful"] > 0
    assert result["server_kb"] > 0
    assert result["server_events"] > 0


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize(
    ("task", "system", "seed"),
    [
        ("news with ranks", "Last hop", 0),  # loss of a message of a read
        ("news with ranks", "Last hop", 1),  # loss of a hello
        ("news with ranks", "SUBLIM", 1),
        ("ward telemetry", "to everyone", 1),  # continuous traffic once delayed retransmission
    ],
)
def test_lost_messages_are_retransmitted_and_useful(task, system, seed):
    options = {"record_messages": False, "record_exposure": False}
    with_loss, without = (
        run(SMALL_TASKS[task].over(loss_share=share), ADAPTERS[system], seed, **options).measures()
        for share in (0.05, 0.0)
    )
    assert with_loss["useful"] >= 0.97 * without["useful"] > 0


@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", SMALL_TASKS)
def test_measures_match_the_exported_trace(entries, task, system, tmp_path):
    entry = entries[task, system]
    folder = entry.lab.trace.to_parquet(tmp_path / "trace")
    bill, all_rows = (trace.read_table(folder, name).to_pylist() for name in ("bill", "deliveries"))
    rows = [row for row in all_rows if row["system"] == APP]
    useful = [row for row in rows if row["status"] == "read"]
    phones = [row for row in bill if row["device"].startswith("phone-")]
    radio_j = sum(row["radio_mj"] for row in phones) / 1000
    seconds = entry.task.scenario.hours * 3600 + SETTLE_S
    arrived = [row for row in rows if row["delivered"] is not None]
    lags = sorted((row["delivered"] - row["created"]).total_seconds() for row in useful)
    ages = [(row["read"] - row["created"]).total_seconds() for row in useful]
    kb = sum(row["bytes"] for row in bill) / 1000
    expected = {
        "useful": len(useful),
        "useful_share": len(useful) / entry.testbed.wanted_count,
        "lost": sum(row["delivered"] is None for row in rows),
        "late": sum(row["expired"] is not None and row["delivered"] > row["expired"] for row in arrived),
        "stale": sum(row["status"] == "expired" and row["delivered"] <= row["expired"] for row in arrived),
        "unopened": sum(
            row["status"] == "unread" and entry.testbed.is_for(row["item"], row["receiver"])
            for row in arrived
        ),
        "wasted": sum(row["status"] != "read" for row in arrived),
        "latency_s": median(lags),
        "latency_p95_s": quantiles(lags, n=20, method="inclusive")[-1] if lags[1:] else lags[0],
        "age_s": median(ages),
        "up_kb": sum(row["bytes"] for row in bill if row["direction"] == "up") / 1000,
        "down_kb": sum(row["bytes"] for row in bill if row["direction"] == "down") / 1000,
        "messages": sum(row["messages"] for row in bill),
        "wakeups": sum(row["wakeups"] for row in phones),
        "radio_j": radio_j,
        "battery_h": BATTERY_J / (radio_j / seconds / entry.task.scenario.devices + BASE_MW / 1000) / 3600,
        "kb_per_useful": kb / len(useful),
        "j_per_useful": radio_j / len(useful),
    }
    result = entry.measures()
    assert set(result) - set(expected) == {"server_events", "server_kb"}, "servers are on no bill"
    assert {name: result[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("task", ["news with ranks", "photo sharing"])
def test_items_prefetched_by_last_hop_count_as_delivered(entries, task):
    entry = entries[task, "Last hop"]
    rows = entry.lab.deliveries()
    prefetched = {
        (row.item, row.receiver): row.delivered
        for row in rows[(rows["system"] == "last hop") & rows["delivered"].notna()].itertuples()
    }
    delivered = entry.deliveries[entry.deliveries["delivered"].notna()]
    assert {(row.item, row.receiver): row.delivered for row in delivered.itertuples()} == prefetched
    assert "read" in set(delivered["status"])
    assert task != "news with ranks" or entry.measures()["wasted"] > 0, "some is never read"


@pytest.mark.parametrize("system", [*ADAPTERS, *COMPOSITIONS])
def test_senders_do_not_receive_their_own_items(system, monkeypatch):
    arrivals = []
    monkeypatch.setattr(
        Testbed, "record_arrival", lambda testbed, phone, item: arrivals.append((phone, item))
    )
    make = (ADAPTERS | COMPOSITIONS)[system]
    run(TRAFFIC.over(devices=6, hours=0.3, outage=0.0), make, seed=4, record_exposure=False)
    assert arrivals, "also what a system has held back until then"
    assert not [arrival for arrival in arrivals if arrival[1].startswith(f"{arrival[0]} ")]


def test_radiator_delivers_most_items_by_the_end(entries):
    entry = entries["friends nearby", "Radiator"]
    everyone = entries["friends nearby", "to everyone"]
    delivered, broadcast = (int(run.deliveries["delivered"].notna().sum()) for run in (entry, everyone))
    assert delivered > 0.9 * broadcast > 0


@pytest.mark.soak
def test_contrail_pushes_items_with_polling_interval_zero():
    task = SMALL_TASKS["ward telemetry"]
    polls = run(task, ADAPTERS["Contrail"], seed=2).measures()
    pushes = run(task, partial(ADAPTERS["Contrail"], polling_interval_ms=0), seed=2)
    result = pushes.measures()
    assert pushes.system == "Contrail"
    assert result["latency_s"] < 1.0 < polls["latency_s"] < 60.0
    assert result["useful_share"] > 0.9
    assert result["messages"] < 20 * polls["messages"]


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_have_names(name):
    assert run(SMALL_TASKS["ward telemetry"], COMPOSITIONS[name], seed=2, record_exposure=False).system


def test_runs_with_same_seed_are_identical():
    one, two, other = (run(SMALL_TASKS["traffic alerts"], ADAPTERS["MUD"], seed) for seed in (5, 5, 6))
    for name in TABLES:
        assert one.trace.table(name).equals(two.trace.table(name)), name
    assert one.lab.exposure().equals(two.lab.exposure())
    assert one.measures() == two.measures() != other.measures()
    assert (one.system, one.seed, one.task) == ("MUD", 5, SMALL_TASKS["traffic alerts"])


def test_interests_use_the_places_of_phones_at_publication():
    entry = run(TRAFFIC.over(devices=10, hours=0.5), ADAPTERS["to everyone"], seed=4)
    positions = dict(list(entry.lab.frame("positions").groupby("device")))
    rows = entry.deliveries
    created = rows.groupby("item")["created"].first()
    near, far = set(), set()
    for item, at in created.items():
        for phone in entry.testbed.phones:
            before = positions[phone][positions[phone]["ts"] <= at]
            position = before.iloc[-1]
            km = float(
                distance_km(*entry.testbed.items[item].metadata["loc"], position["lat"], position["lon"])
            )
            # Margin for the movement since the last recorded position.
            if phone != entry.testbed.items[item].sender and abs(km - 3.0) > 0.9:
                (near if km < 3.0 else far).add((item, phone))
    interested = {
        (item, phone)
        for item in created.index
        for phone in entry.testbed.phones
        if phone != entry.testbed.items[item].sender and entry.testbed.is_for(item, phone)
    }
    assert near
    assert far
    assert near <= interested
    assert not far & interested


def test_looks_show_up_to_max_shown_items():
    entry = run(NEWS.over(devices=3, hours=24.0), ADAPTERS["to everyone"], seed=1)
    read = entry.deliveries[entry.deliveries["status"] == "read"]
    assert read.groupby(["receiver", "read"]).size().max() == NEWS.max_shown


SUMS = [
    "useful",
    "late",
    "stale",
    "unopened",
    "lost",
    "wasted",
    "up_kb",
    "down_kb",
    "messages",
    "wakeups",
    "radio_j",
]


@pytest.fixture(scope="module", params=["to everyone", "Last hop"])
def photos(request):
    task = PHOTOS.over(devices=8, hours=8.0)
    return run(task, ADAPTERS[request.param], 3, name=request.param, record_exposure=False)


@pytest.fixture(scope="module")
def ward():
    return run(WARD.over(devices=3, hours=0.2), ADAPTERS["MUD"], 3, name="MUD")


def test_run_is_named_after_its_system_whatever_is_set_beforehand():
    """See :func:`run`: a system may be a partial of one, with some of its arguments."""

    def listen(testbed, loud=False):
        return None

    assert _name(listen) == _name(partial(partial(listen), loud=True)) == "listen"


def test_device_measures_add_up_to_the_entry(photos, ward):
    for entry in (photos, ward):
        table, measures = by_device(entry), entry.measures()
        assert measures["useful"] > 0
        assert measures["wasted"] + measures["lost"] > 0
        for name in SUMS:
            assert table[name].sum() == pytest.approx(measures[name]), name
        assert table["wanted_count"].sum() == entry.testbed.wanted_count
        assert table["useful"].sum() / table["wanted_count"].sum() == pytest.approx(measures["useful_share"])
        watts = BATTERY_J / 3600 / table["battery_h"].dropna()
        assert BATTERY_J / 3600 / watts.mean() == pytest.approx(measures["battery_h"])


def test_device_rows_match_deliveries_and_bill(photos):
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
    assert row["useful_share"] == len(read) / row["wanted_count"]
    assert row["up_kb"] == pytest.approx(bill.query("direction == 'up'")["bytes"].sum() / 1000)
    assert row["radio_j"] == pytest.approx(bill["radio_mj"].sum() / 1000)
    assert row["kb_per_useful"] == pytest.approx(bill["bytes"].sum() / 1000 / len(read))
    watts = row["radio_j"] / (8 * 3600 + SETTLE_S) + BASE_MW / 1000
    assert row["battery_h"] == pytest.approx(BATTERY_J / watts / 3600)


@pytest.mark.parametrize(("us_before", "fate"), [(0, "stale"), (1, "late")])
def test_item_is_late_on_a_phone_that_it_reaches_after_it_expired(ward, us_before, fate):
    """An item expires after its last moment, in which a phone still shows it."""
    rows = ward.deliveries[ward.deliveries["delivered"].notna()].head(3)
    entry = copy(ward)
    vars(entry)["deliveries"] = rows.assign(
        expired=rows["delivered"] - pd.Timedelta(us_before, "us"), read=pd.NaT, status="expired"
    )
    assert fates(entry)["fate"].tolist() == [fate] * 3
    assert by_device(entry)[["late", "stale"]].sum().to_dict() == {"late": 0, "stale": 0, fate: 3}


def test_feeds_are_not_phones(ward):
    table = by_device(ward)
    assert list(table["device"]) == list(ward.lab.devices)
    assert table["is_phone"].sum() == 3
    feeds = table[~table["is_phone"]]
    assert len(feeds) == 24
    assert feeds["up_kb"].min() > 0
    assert (feeds[["wanted_count", "useful", "radio_j", "wakeups"]] == 0).all(axis=None)
    assert feeds[["useful_share", "latency_s", "battery_h", "j_per_useful"]].isna().all(axis=None)
    assert np.isfinite(table.loc[table["is_phone"], "useful_share"]).all()


def test_device_measures_are_scoreboard_measures(ward):
    assert set(DEVICE_MEASURES) < set(MEASURES)
    assert list(by_device(ward).columns) == ["device", "is_phone", "wanted_count", *DEVICE_MEASURES]


def test_sweep_has_a_row_for_each_value_system_and_seed():
    table = sweep(
        lambda value, seed: {"a": {"x": value}, "b": {"x": value + seed}}, "cost", [1, 2], seeds=[5, 6]
    )
    assert list(table.columns) == ["cost", "system", "seed", "x"]
    assert table.query("system == 'b'")["x"].tolist() == [6, 7, 7, 8]


def test_comparison_shows_measures_and_differences_as_html():
    rows = [("a", 1, 0.5, 0.0), ("a", 2, 0.5, 0.0), ("b", 1, 0.7, 0.0), ("b", 2, 0.9, 0.0)]
    comparison = Comparison(
        pd.DataFrame(rows, columns=["system", "seed", "read_share", "expired_share"]), "a"
    )
    html = comparison._repr_html_()
    for part in ("read, %", "+30 points", "20 to 40", "the range"):
        assert part in html
    assert "expired" not in html


def test_bytes_per_useful_item_are_those_of_both_directions():
    """See :data:`MEASURES`; what the servers have sent is on no bill."""
    entry = run(SMALL_TASKS["ward telemetry"], ADAPTERS["to everyone"], 1, record_exposure=False)
    result, hosts = entry.measures(), entry.lab.world.hosts
    assert result["up_kb"] > 0
    assert result["kb_per_useful"] * result["useful"] == pytest.approx(result["up_kb"] + result["down_kb"])
    sent = [
        process.sent_bytes
        for name in hosts.keys() - {*entry.lab.devices}
        for process in hosts[name].processes
    ]
    assert result["server_kb"] == pytest.approx(sum(sent) / 1000)
