"""Inboxes: reproducible by seed, the same inputs for both systems, and measures that match the trace."""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mudkit.experiment import compare
from mudkit.fleet.recorder import TABLES
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Every, Poisson, TripStarts, WakingReads
from mudkit.worlds import Inboxes
from mudkit.worlds.inboxes import SYSTEMS

PLAN = Inboxes(
    devices=6, hours=6.0, link="umts_3g", outage=Outages(0.3, per_day=60), mobility="commute", every_s=300.0,
    items=Poisson(per_day=100), receivers=2, reads=WakingReads(per_day=60), queries=TripStarts(), expires_s=1800.0,
    loss_share=0.05,
)  # fmt: skip
MEASURES = [
    "messages", "bytes", "radio_j", "wakeups", "j_per_read", "delivered_share", "read_share", "expired_share", "latency_s",
    "staleness_s",
]  # fmt: skip


@pytest.mark.parametrize("system", SYSTEMS)
def test_runs_with_same_seed_are_identical(system):
    one, two, other = (PLAN.run(seed, system) for seed in (3, 3, 4))
    for name in TABLES:
        assert one.lab.trace.table(name).equals(two.lab.trace.table(name)), name
    assert one.lab.exposure().equals(two.lab.exposure())
    assert one.measures() == two.measures() != other.measures()
    assert (one.plan, one.system) == (PLAN, system)


def test_systems_with_one_seed_receive_the_same_inputs():
    relay, direct = (PLAN.run(3, system) for system in ("relay", "direct"))
    for name in ("positions", "links", "reads"):
        assert len(relay.lab.trace.table(name)) >= 5
        assert relay.lab.trace.table(name).equals(direct.lab.trace.table(name)), name
    columns = ["item", "receiver", "created", "expired"]
    assert len(relay.deliveries) > 100
    assert relay.deliveries[columns].equals(direct.deliveries[columns])
    assert set(relay.deliveries["status"]) >= {"read", "expired"}
    measures, table = relay.measures(), relay.deliveries
    is_in_time = table["read"] <= table["expired"]
    assert measures["read_share"] == is_in_time.mean()
    assert measures["expired_share"] == (~is_in_time & (table["expired"] <= relay.lab.now)).mean()
    assert direct.measures()["latency_s"] < relay.measures()["latency_s"]
    assert direct.measures()["delivered_share"] < relay.measures()["delivered_share"]
    reads = [
        run.lab.history().query("op == 'read'")[["client", "invoked"]].to_numpy().tolist()
        for run in (relay, direct)
    ]
    assert len(reads[0]) > 20
    assert reads[0] == reads[1]
    arguments = 3, "queries", list(relay.lab.devices), relay.lab.start_us, 6 * 3_600_000_000
    assert len(relay.lab.trace.table("reads")) == len(TripStarts().moments(*arguments).t_us)


@pytest.mark.soak
def test_receivers_are_distinct_other_devices_drawn_uniformly():
    plan = Inboxes(devices=6, hours=24, receivers=2, items=Poisson(per_day=1000), reads=Poisson(per_day=0))
    deliveries = plan.run(1, "direct", record_messages=False, record_exposure=False).deliveries
    deliveries["sender"] = deliveries["item"].str.split().str[0]
    assert not deliveries.duplicated(["item", "receiver"]).any()
    assert (deliveries.groupby("item").size() == 2).all()
    assert (deliveries["sender"] != deliveries["receiver"]).all()
    pairs = Counter(zip(deliveries["sender"], deliveries["receiver"], strict=True))
    assert len(pairs) == 30
    assert stats.chisquare(list(pairs.values())).pvalue > 0.001
    together = Counter(deliveries.groupby("item")["receiver"].apply(lambda both: tuple(sorted(both))))
    assert stats.chisquare(list(together.values())).pvalue > 0.001
    assert set(deliveries["status"]) <= {"unread", "lost"}


def test_receivers_are_all_others_or_the_only_device():
    all_others = Inboxes(devices=4, hours=6, receivers=3).run(0, "direct").deliveries
    assert (all_others.groupby("item")["receiver"].nunique() == 3).all()
    alone = Inboxes(devices=1, hours=6).run().deliveries
    assert set(alone["receiver"]) == {"phone-00000"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_items_of_devices_that_are_off_are_recorded_as_lost(system):
    plan = Inboxes(devices=5, hours=12, battery_j=500.0, items=Every(600), reads=Every(3600))
    run = plan.run(2, system)
    off_incidents = run.lab.frame("incidents").query("incident == 'off'")
    assert len(off_incidents) == 5
    assert len(run.deliveries) == 5 * 72
    after = run.deliveries[run.deliveries["created"] > off_incidents["ts"].max()]
    assert len(after) > 50
    assert (after["status"] == "lost").all()


def test_measures_without_items_are_zero_or_nan():
    run = Inboxes(devices=2, hours=0.01, items=Poisson(per_day=0)).run(0, "direct")
    measures = run.measures()
    assert list(measures) == MEASURES
    assert [measures[name] for name in MEASURES[:4]] == [0.0] * 4
    assert all(math.isnan(measures[name]) for name in MEASURES[4:])
    assert run.lab.exposure().empty


def test_describe_lists_all_parameters():
    parameters = PLAN.describe()
    assert parameters["devices"] == "6"
    assert "per_day" in parameters["outage"]
    assert len(parameters) == 19 + 1


def test_energy_by_radio_state_adds_up_to_the_bill():
    run = Inboxes(devices=4, hours=2.0).run(1)
    energy = run.energy()
    assert list(energy["state"]) == ["ramp", "active", "tail"]
    assert energy["energy_j"].sum() == pytest.approx(run.bill["radio_mj"].sum() / 1000)
    assert energy["energy_share"].sum() == pytest.approx(1.0)


@pytest.mark.soak
def test_compared_systems_match_single_runs_and_bootstrap():
    seeds, plan = [3, 5, 8, 9, 11, 12], replace(PLAN, devices=4, hours=2.0, queries=None)
    result = compare(plan.compare, seeds)
    assert result.baseline == "direct"
    assert result.runs[["system", "seed"]].to_numpy().tolist() == [[t, n] for n in seeds for t in SYSTEMS]
    assert result.runs.columns.tolist() == ["system", "seed", *MEASURES]
    by_hand = pd.DataFrame([plan.run(seed, name).measures() for name in SYSTEMS for seed in seeds])
    by_system = result.runs.sort_values(["system", "seed"])[MEASURES].reset_index(drop=True)
    assert by_hand.equals(by_system)
    rows = result.differences(0.9).set_index("measure")
    assert set(rows["system"]) == {"relay"}
    for name in MEASURES:
        base, other = by_hand[name].to_numpy().reshape(2, len(seeds))
        difference = other - base
        bootstrap = stats.bootstrap((difference,), np.mean, confidence_level=0.9, method="percentile", rng=1)
        interval, row = bootstrap.confidence_interval, rows.loc[name]
        assert row["difference"] == pytest.approx(difference.mean())
        tolerance = np.ptp(difference) / 20  # for different resamples
        ends = row["difference_low"], row["difference_high"]
        assert ends == pytest.approx((interval.low, interval.high), abs=tolerance), name
        assert (row["baseline"], row["mean"]) == pytest.approx((base.mean(), other.mean()))
        assert row["seeds"] == len(seeds)
    narrow, wide = result.differences(0.5), result.differences(0.99)
    assert (narrow["difference_low"] > wide["difference_low"]).all()


def test_one_seed_has_no_interval():
    plan = Inboxes(devices=2, hours=1)
    result = compare(plan.compare, [1]).differences()
    assert result[["difference_low", "difference_high"]].isna().all(axis=None)
    assert result.set_index("measure")["difference"].notna()["messages"]
    twice = compare(lambda seed: dict.fromkeys("ab", plan.run(seed).measures()), [1, 2]).differences()
    columns = ["difference", "difference_low", "difference_high"]
    assert twice.set_index("measure").loc["bytes", columns].tolist() == [0] * 3


@pytest.mark.soak
@pytest.mark.process
def test_compare_runs_in_several_processes():
    plan = Inboxes(devices=2, hours=1)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        result = compare(plan.compare, [1, 2], map=pool.map)
    pd.testing.assert_frame_equal(result.runs, compare(plan.compare, [1, 2]).runs)
