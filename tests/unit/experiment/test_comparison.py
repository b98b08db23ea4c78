"""Comparisons: intervals, ratios, the Pareto front, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError, SimulationProblem
from mudkit.experiment import (
    ADAPTERS,
    GAINS,
    LABELS,
    MEASURES,
    PHOTOS,
    TASKS,
    TRAFFIC,
    UNSUPPORTED,
    WARD,
    LastHop,
    Mud,
    Sublim,
    by_device,
    disclosures,
    pareto_front,
    run,
    scoreboard,
)

_TASKS = [TRAFFIC.over(devices=5, hours=0.3), WARD.over(devices=2, hours=0.05)]
_SYSTEMS = {"MUD": Mud, "SUBLIM": Sublim}


@pytest.fixture(scope="module")
def board():
    return scoreboard(_TASKS, _SYSTEMS, seeds=[1, 2])


def test_a_row_for_each_run(board):
    assert len(board.runs) == 8
    assert board.tasks == ["traffic alerts", "ward telemetry"]
    assert board.systems == ["MUD", "SUBLIM"]
    assert (board.runs.groupby(["task", "seed"])["digest"].nunique() == 1).all()


def test_means_and_their_intervals(board):
    runs = board.runs[(board.runs["task"] == "ward telemetry") & (board.runs["system"] == "MUD")]
    result = board.measures("ward telemetry").set_index(["system", "measure"])
    for measure in ("messages", "radio_j"):
        one, other = runs[measure]
        row = result.loc[("MUD", measure)]
        low, high = sorted((one, other))  # with two seeds the range, which no bytes or joules leave
        assert (row["mean"], row["low"], row["high"]) == pytest.approx(((one + other) / 2, low, high))
    assert board.table("ward telemetry")["messages"]["MUD"] == pytest.approx(runs["messages"].mean())
    assert list(board.table("ward telemetry").columns) == list(MEASURES)


def test_a_ratio_is_that_of_all_seeds_together(board):
    runs = board.runs.copy()
    nothing = (runs["seed"] == 1) & (runs["system"] == "SUBLIM")
    runs.loc[nothing, ["useful", "j_per_useful", "kb_per_useful"]] = 0.0, math.nan, math.nan
    of = replace(board, runs=runs)
    rows = runs[(runs["task"] == "traffic alerts") & (runs["system"] == "SUBLIM")]
    table = of.table("traffic alerts").loc["SUBLIM"]
    assert table["j_per_useful"] == pytest.approx(rows["radio_j"].sum() / rows["useful"].sum())
    assert table["kb_per_useful"] == pytest.approx(
        (rows["up_kb"] + rows["down_kb"]).sum() / rows["useful"].sum()
    )
    answer = of.measures("traffic alerts").set_index(["system", "measure"]).loc[("SUBLIM", "j_per_useful")]
    assert answer["mean"] == pytest.approx(table["j_per_useful"])
    assert answer["seeds"] == 1


def test_differences_are_paired_with_the_baseline(board):
    result = board.differences("traffic alerts").set_index("measure")
    runs = board.runs[board.runs["task"] == "traffic alerts"].pivot(index="seed", columns="system")
    paired = runs["down_kb"]["SUBLIM"] - runs["down_kb"]["MUD"]
    assert result.loc["down_kb", "difference"] == pytest.approx(paired.mean())


def test_what_parties_learnt_is_there_for_the_first_seed(board):
    result = board.privacy
    assert set(result["task"]) == {"traffic alerts", "ward telemetry"}
    servers = result[(result["party"] == "servers") & (result["system"] == "MUD")]
    assert (servers["clear_kb"] > 0).all()
    assert scoreboard(_TASKS[1:], _SYSTEMS, seeds=[1], privacy=False).privacy.empty


@pytest.mark.soak
def test_runs_are_spread_by_a_map_of_ones_own(board):
    def backwards(function, plan):
        return [function(each) for each in reversed(list(plan))][::-1]

    again = scoreboard(_TASKS, _SYSTEMS, seeds=[1, 2], map=backwards)
    assert again.runs.equals(board.runs)


@pytest.mark.soak
def test_who_changes_what_all_depend_on_is_found_out():
    class Cheat(Mud):
        def __init__(self, testbed):
            super().__init__(testbed)
            testbed.lab.faults.cut(testbed.phones[0], minutes=1)

    with pytest.raises(SimulationProblem, match="not given the same"):
        scoreboard(_TASKS[1:], {"MUD": Mud, "cheat": Cheat}, seeds=[1])


def test_a_task_that_is_not_there(board):
    with pytest.raises(ParameterError, match="not on the scoreboard"):
        board.table("news")


def on_front(gain, cost):
    table = pd.DataFrame({"system": range(len(gain)), "useful_share": gain, "radio_j": cost})
    return pareto_front(table, "useful_share", "radio_j")["is_best"].tolist()


def test_the_front_has_nobody_that_another_one_beats():
    is_best = on_front([1.0, 2.0, 2.0, 3.0, math.nan], [1.0, 2.0, 3.0, 9.0, 0.0])
    assert is_best == [True, True, False, True, False]
    assert on_front([1.0, 1.0], [1.0, 1.0]) == [True, True]


def test_the_front_of_random_points():
    points = np.random.default_rng(1).integers(0, 5, (40, 2)).tolist()
    gain, cost = zip(*points, strict=True)
    for point, is_best in zip(points, on_front(gain, cost), strict=True):
        beaten = [each for each in points if each[0] >= point[0] and each[1] <= point[1] and each != point]
        assert is_best == (not beaten)


def test_the_front_of_a_board(board):
    result = board.pareto("ward telemetry")
    assert list(result.columns) == ["system", "useful_share", "j_per_useful", "is_best"]
    assert result["is_best"].any()


def test_what_a_system_cannot_say_is_of_a_task_that_there_is():
    assert list(UNSUPPORTED) == list(ADAPTERS)
    assert {task for answer in UNSUPPORTED.values() for task in answer} <= set(TASKS)
    assert LastHop.unsupported["traffic alerts"].endswith(".")


TABLE = pd.DataFrame(
    {
        "system": ["a", "b", "c", "d", "e"],
        "useful_share": [1.0, 0.5, 0.5, 0.9, 1.0],
        "battery_h": [10.0, 40.0, 30.0, 20.0, math.nan],
        "radio_j": [9.0, 1.0, 2.0, 10.0, 5.0],
        "lost": [0.0, 5.0, 6.0, 1.0, 0.0],
    }
)


def best(x, y):
    result = pareto_front(TABLE, x, y)
    return set(result.loc[result["is_best"], "system"])


def test_each_measure_has_a_label():
    assert set(LABELS) == set(MEASURES)
    assert set(MEASURES) > GAINS
    assert len(set(LABELS.values())) == len(LABELS)


def test_a_gain_against_a_cost_either_way_round():
    assert best("radio_j", "useful_share") == best("useful_share", "radio_j") == {"b", "e"}


def test_two_gains_and_two_costs():
    assert best("battery_h", "useful_share") == {"a", "b", "d"}, "e has no value"
    assert best("radio_j", "lost") == {"b", "e"}


TASK = PHOTOS.over(devices=6, hours=6.0)
TWO = {name: ADAPTERS[name] for name in ("to everyone", "Contrail")}


@pytest.fixture(scope="module")
def result():
    return scoreboard([TASK], TWO, seeds=[4, 5])


@pytest.mark.soak
def test_it_is_of_the_first_seed_and_of_each_system(result):
    for name, make in TWO.items():
        entry = run(TASK, make, 4, name=name)
        for kept, own in ((result.devices, by_device(entry)), (result.disclosures, disclosures(entry))):
            rows = kept.query("task == @TASK.name and system == @name").reset_index(drop=True)
            pd.testing.assert_frame_equal(rows.drop(columns=["task", "system"]), own)
        latencies = result.latencies.query("system == @name")["latency_s"]
        assert sorted(latencies) == sorted(entry.deliveries.query("status == 'read'")["latency_s"])
    assert result.devices["system"].unique().tolist() == list(TWO)


def test_nothing_is_kept_if_it_is_not_wanted():
    bare = scoreboard([TASK], {"to everyone": TWO["to everyone"]}, seeds=[4], privacy=False)
    assert bare.devices.empty
    assert bare.disclosures.empty
    assert bare.latencies.empty


def test_intervals_never_leave_what_is_possible(board):
    runs = pd.concat(
        [board.runs.assign(seed=board.runs["seed"] + 2 * k) for k in range(4)], ignore_index=True
    )
    runs["useful_share"] = np.where(runs["seed"] % 3 == 0, 0.97, 1.0)
    runs["lost"] = np.where(runs["seed"] % 5 == 0, 3.0, 0.0)
    rows = replace(board, runs=runs).measures("traffic alerts").dropna(subset=["low"])
    assert (rows["low"] >= 0).all()
    assert (rows.loc[rows["measure"] == "useful_share", "high"] <= 1).all()
    assert ((rows["low"] <= rows["mean"]) & (rows["mean"] <= rows["high"])).all()
