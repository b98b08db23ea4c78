"""Experiments: paired by seed, so that what differs is the systems'."""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lab_systems import Polling, Silent
from scipy import stats

from mudkit.errors import ParameterError
from mudkit.experiment import Comparison, Scenario, compare, run
from mudkit.experiment.adapters import StoreAndForward, Sublim
from mudkit.fleet.recorder import TABLES
from mudkit.sources.outages import Outages
from mudkit.sources.workloads import Every, Poisson, TripStarts, WakingReads

SCENARIO = Scenario(
    devices=6, hours=6.0, link="umts_3g", outage=Outages(0.3, per_day=60), mobility="commute", every_s=300.0,
    items=Poisson(per_day=100), receivers=2, reads=WakingReads(per_day=60), queries=TripStarts(), expires_s=1800.0,
    loss_share=0.05,
)  # fmt: skip
SYSTEMS = {"relay": StoreAndForward, "polling": Polling}
MEASURES = [
    "messages",
    "bytes",
    "radio_j",
    "wakeups",
    "delivered_share",
    "read_share",
    "expired_share",
    "latency_s",
    "staleness_s",
]


def test_same_seed_same_run():
    one, two, other = run(SCENARIO, Polling, 3), run(SCENARIO, Polling, 3), run(SCENARIO, Polling, 4)
    for name in TABLES:
        assert one.trace.table(name).equals(two.trace.table(name)), name
    assert one.held.equals(two.held)
    assert one.measures() == two.measures() != other.measures()
    assert (one.system, one.seed, one.scenario) == ("polling", 3, SCENARIO)


def test_what_was_published_before_its_receiver_is_served_is_lost():
    scenario = Scenario(devices=2, hours=0.01, link="wifi", items=Poisson(per_day=86_400))
    result = run(scenario, Sublim, 1).deliveries
    assert (
        list(result["status"].iloc[:10]) == ["lost"] * 2 + ["unread"] * 8
    )  # it takes two seconds to associate


def test_two_systems_on_one_seed_see_the_same():
    relay, polling = (run(SCENARIO, system, 3) for system in SYSTEMS.values())
    for name in ("positions", "links", "reads"):
        assert len(relay.trace.table(name)) >= 5
        assert relay.trace.table(name).equals(polling.trace.table(name)), name
    what = ["item", "receiver", "created", "expired"]
    assert len(relay.deliveries) > 100
    assert relay.deliveries[what].equals(polling.deliveries[what])
    assert set(relay.deliveries["status"]) >= {"read", "expired"}
    assert relay.measures()["latency_s"] < polling.measures()["latency_s"]
    asked = [
        each.lab.history().query("op == 'read'")[["client", "invoked"]].to_numpy().tolist()
        for each in (relay, polling)
    ]
    assert len(asked[0]) > 20
    assert asked[0] == asked[1]
    assert len(relay.trace.table("reads")) == len(
        TripStarts()
        .moments(3, "queries", list(relay.lab.devices), relay.lab.start_us, 6 * 3_600_000_000)
        .t_us
    )


def test_receivers_are_others_distinct_and_drawn_evenly():
    scenario = Scenario(
        devices=6, hours=24, receivers=2, items=Poisson(per_day=1000), reads=Poisson(per_day=0)
    )
    result = run(scenario, Silent, 1, messages=False, held=False).deliveries
    result["sender"] = result["item"].str.split().str[0]
    assert not result.duplicated(["item", "receiver"]).any()
    assert (result.groupby("item").size() == 2).all()
    assert (result["sender"] != result["receiver"]).all()
    pairs = Counter(zip(result["sender"], result["receiver"], strict=True))
    assert len(pairs) == 30
    assert stats.chisquare(list(pairs.values())).pvalue > 0.001
    together = Counter(result.groupby("item")["receiver"].apply(lambda both: tuple(sorted(both))))
    assert stats.chisquare(list(together.values())).pvalue > 0.001
    assert (result["status"] == "lost").all()


def test_for_all_others_and_alone():
    everybody = run(Scenario(devices=4, hours=6, receivers=3), Silent).deliveries
    assert (everybody.groupby("item")["receiver"].nunique() == 3).all()
    alone = run(Scenario(devices=1, hours=6), StoreAndForward).deliveries
    assert set(alone["receiver"]) == {"phone-00000"}


@pytest.mark.parametrize("system", [StoreAndForward, Polling, Silent])
def test_items_of_devices_that_are_off_are_there_too(system):
    scenario = Scenario(devices=5, hours=12, battery_j=500.0, items=Every(600), reads=Every(3600))
    result = run(scenario, system, 2)
    off = result.lab.frame("incidents").query("incident == 'off'")
    assert len(off) == 5
    assert len(result.deliveries) == 5 * 72
    assert (result.deliveries["created"] > off["ts"].max()).sum() > 50
    after = result.deliveries[result.deliveries["created"] > off["ts"].max()]
    assert (after["status"] == "lost").all()


def test_compare_by_hand():
    seeds, scenario = [3, 5, 8, 9], replace(SCENARIO, devices=4, hours=2.0, queries=None)
    result = compare(scenario, SYSTEMS, seeds)
    assert result.baseline == "relay"
    assert result.runs[["system", "seed"]].to_numpy().tolist() == [[s, n] for s in SYSTEMS for n in seeds]
    assert result.runs.columns.tolist() == ["system", "seed", *MEASURES]
    by_hand = pd.DataFrame(
        [run(scenario, system, seed, held=False).measures() for system in SYSTEMS.values() for seed in seeds]
    )
    assert by_hand.equals(result.runs[MEASURES])
    rows = result.differences(0.9).set_index("measure")
    assert set(rows["system"]) == {"polling"}
    for name in MEASURES:
        base, other = (by_hand[name].to_numpy()[part] for part in (slice(0, 4), slice(4, 8)))
        test = stats.ttest_rel(other, base)
        low, high = test.confidence_interval(0.9)
        row = rows.loc[name]
        assert row["difference"] == pytest.approx((other - base).mean())
        assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high)), name
        assert (row["baseline"], row["mean"], row["seeds"]) == pytest.approx((base.mean(), other.mean(), 4))
    narrow, wide = result.differences(0.5), result.differences(0.99)
    assert (narrow["difference_low"] > wide["difference_low"]).all()


def test_intervals_pair_seeds_whatever_their_order():
    rows = [("a", 1, 10.0), ("a", 2, 20.0), ("a", 3, math.nan), ("b", 3, 5.0), ("b", 2, 21.0), ("b", 1, 14.0)]
    result = Comparison(pd.DataFrame(rows, columns=["system", "seed", "x"]), "a").differences().iloc[0]
    low, high = stats.ttest_rel([14.0, 21.0], [10.0, 20.0]).confidence_interval(0.95)
    assert result["difference"] == 2.5
    assert (result["difference_low"], result["difference_high"], result["seeds"]) == pytest.approx(
        (low, high, 2)
    )


def test_one_seed_has_no_interval():
    result = compare(Scenario(devices=2, hours=1), SYSTEMS, [1]).differences()
    assert result[["difference_low", "difference_high"]].isna().all(axis=None)
    assert result.set_index("measure")["difference"].notna()["messages"]
    same = compare(Scenario(devices=2, hours=1), {"a": Silent, "b": Silent}, [1, 2]).differences()
    assert (
        same.set_index("measure").loc["bytes", ["difference", "difference_low", "difference_high"]].tolist()
        == [0] * 3
    )


@pytest.mark.process
def test_runs_may_be_spread_over_processes():
    scenario = Scenario(devices=2, hours=1)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        result = compare(scenario, SYSTEMS, [1, 2], map=pool.map)
    pd.testing.assert_frame_equal(result.runs, compare(scenario, SYSTEMS, [1, 2]).runs)


def test_a_run_in_which_nothing_happens():
    result = run(Scenario(devices=2, hours=0.01, items=Poisson(per_day=0)), Silent)
    measures = result.measures()
    assert [measures[name] for name in MEASURES[:4]] == [0.0] * 4
    assert all(math.isnan(measures[name]) for name in MEASURES[4:])
    assert result.held.empty


def test_table_of_parameters():
    table = SCENARIO.table().set_index("parameter")["value"]
    assert table["devices"] == "6"
    assert "per_day" in table["outage"]
    assert len(table) == 19 + 1


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"devices": 0}, "devices"),
        ({"receivers": 6}, "receivers"),
        ({"receivers": 1.5}, "receivers"),
        ({"size_bytes": -1}, "size_bytes"),
        ({"hours": 0}, "hours"),
        ({"hours": "6"}, "hours"),
        ({"hours": math.nan}, "hours"),
        ({"expires_s": 0}, "expires_s"),
        ({"expires_s": "1"}, "expires_s"),
        ({"box_km": -1}, "box_km"),
        ({"items": 24}, "Poisson"),
        ({"reads": WakingReads}, "Poisson"),
        ({"queries": "trips"}, "Poisson"),
        ({"mobility": None}, "a mobility"),
    ],
)
def test_scenarios_that_cannot_be(wrong, answer):
    given: dict[str, Any] = {"devices": 6, "mobility": "commute", "queries": TripStarts(), **wrong}
    with pytest.raises(ParameterError, match=answer):
        Scenario(**given)


@pytest.mark.parametrize(
    ("systems", "seeds", "answer"),
    [
        ({}, [1], "0 systems"),
        (SYSTEMS, [], "0 seeds"),
        (SYSTEMS, 5, "range"),
        (SYSTEMS, [1, 2, 1], "twice"),
        ([StoreAndForward], [1], "by name"),
        (SYSTEMS, ["one"], "seed"),
        ({"relay": "StoreAndForward"}, [1], "a class or function of the lab"),
    ],
)
def test_comparisons_that_cannot_be(systems, seeds, answer):
    with pytest.raises(ParameterError, match=answer):
        compare(Scenario(devices=2, hours=1), systems, seeds)


@pytest.mark.parametrize("confidence", [0, 1, -1, math.nan, "high"])
def test_confidences_that_are_none(confidence):
    rows = pd.DataFrame({"system": ["a", "b"], "seed": [1, 1], "x": np.ones(2)})
    with pytest.raises(ParameterError, match="between 0 and 1"):
        Comparison(rows, "a").differences(confidence)


@pytest.mark.parametrize(
    ("scenario", "system", "seed", "where"),
    [
        ("rush hour", StoreAndForward, 1, "scenario"),
        (Scenario, StoreAndForward, 1, "scenario"),
        (Scenario(devices=2, hours=0.1), "StoreAndForward", 1, "system"),
        (Scenario(devices=2, hours=0.1), StoreAndForward, "one", "seed"),
    ],
)
def test_runs_that_cannot_be(scenario, system, seed, where):
    with pytest.raises(ParameterError) as caught:
        run(scenario, system, seed)
    assert caught.value.where == where
    with pytest.raises(ParameterError, match=where):
        compare(scenario, {"it": system}, [seed])
