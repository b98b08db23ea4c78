"""Comparisons: intervals, ratios, the Pareto front, and errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mudkit import show, words
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
    Comparison,
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


def test_board_has_a_row_for_each_run(board):
    assert len(board.runs) == 8
    assert board.tasks == ["traffic alerts", "ward telemetry"]
    assert board.systems == ["MUD", "SUBLIM"]
    assert (board.runs.groupby(["task", "seed"])["digest"].nunique() == 1).all()


def test_measures_have_means_and_intervals(board):
    runs = board.runs[(board.runs["task"] == "ward telemetry") & (board.runs["system"] == "MUD")]
    result = board.measures("ward telemetry").set_index(["system", "measure"])
    for measure in ("messages", "radio_j"):
        one, other = runs[measure]
        row = result.loc[("MUD", measure)]
        low, high = sorted((one, other))  # with two seeds, the range
        assert (row["mean"], row["low"], row["high"]) == pytest.approx(((one + other) / 2, low, high))
    ratio = result.loc[("MUD", "j_per_useful")]
    assert ratio["low"] <= ratio["mean"] <= ratio["high"], "the range, too"
    assert board.table("ward telemetry")["messages"]["MUD"] == pytest.approx(runs["messages"].mean())
    assert list(board.table("ward telemetry").columns) == list(MEASURES)


def test_ratios_divide_sums_over_all_seeds(board):
    runs = board.runs.copy()
    is_useless = (runs["seed"] == 1) & (runs["system"] == "SUBLIM")
    runs.loc[is_useless, ["useful", "j_per_useful", "kb_per_useful"]] = 0.0, math.nan, math.nan
    changed = replace(board, runs=runs)
    rows = runs[(runs["task"] == "traffic alerts") & (runs["system"] == "SUBLIM")]
    table = changed.table("traffic alerts").loc["SUBLIM"]
    assert table["j_per_useful"] == pytest.approx(rows["radio_j"].sum() / rows["useful"].sum())
    assert table["kb_per_useful"] == pytest.approx(
        (rows["up_kb"] + rows["down_kb"]).sum() / rows["useful"].sum()
    )
    row = changed.measures("traffic alerts").set_index(["system", "measure"]).loc[("SUBLIM", "j_per_useful")]
    assert row["mean"] == pytest.approx(table["j_per_useful"])
    assert row["seeds"] == 1


def test_differences_are_paired_with_the_baseline(board):
    result = board.differences("traffic alerts").set_index("measure")
    runs = board.runs[board.runs["task"] == "traffic alerts"].pivot(index="seed", columns="system")
    paired = runs["down_kb"]["SUBLIM"] - runs["down_kb"]["MUD"]
    assert result.loc["down_kb", "difference"] == pytest.approx(paired.mean())


def test_comparison_shows_signed_differences_of_all_measures_but_those_that_are_0():
    rows = [(name, seed, *values) for name, values in (("a", (2, 0, 5)), ("b", (3, 0, 4))) for seed in (1, 2)]
    runs = pd.DataFrame(rows, columns=["system", "seed", "useful", "late", "radio_j"])
    shown = show(Comparison(runs, "a"))._repr_html_()
    titles = {measure: words.label(measure).title for measure in ("useful", "late", "radio_j")}
    assert [measure for measure, title in titles.items() if title in shown] == ["useful", "radio_j"]
    assert "+1" in shown
    assert "−1" in shown


def test_privacy_covers_all_tasks_unless_disabled(board):
    result = board.privacy
    assert set(result["task"]) == {"traffic alerts", "ward telemetry"}
    servers = result[(result["party"] == "servers") & (result["system"] == "MUD")]
    assert (servers["clear_kb"] > 0).all()
    assert scoreboard(_TASKS[1:], _SYSTEMS, seeds=[1], privacy=False).privacy.empty


@pytest.mark.soak
def test_custom_map_yields_the_same_runs(board):
    def map_backwards(function, plan):
        return [function(job) for job in reversed(list(plan))][::-1]

    again = scoreboard(_TASKS, _SYSTEMS, seeds=[1, 2], map=map_backwards)
    assert again.runs.equals(board.runs)


@pytest.mark.soak
def test_adapter_that_changes_shared_conditions_is_detected():
    class Cheat(Mud):
        def __init__(self, testbed):
            super().__init__(testbed)
            testbed.lab.faults.cut(testbed.phones[0], minutes=1)

    with pytest.raises(SimulationProblem, match="not given the same"):
        scoreboard(_TASKS[1:], {"MUD": Mud, "cheat": Cheat}, seeds=[1])


def test_unknown_task_is_refused(board):
    with pytest.raises(ParameterError, match="not on the scoreboard"):
        board.table("news")


def flag_front(gain, cost):
    table = pd.DataFrame({"system": range(len(gain)), "useful_share": gain, "radio_j": cost})
    return pareto_front(table, "useful_share", "radio_j")["is_best"].tolist()


def test_front_excludes_dominated_points():
    is_best = flag_front([1.0, 2.0, 2.0, 3.0, math.nan], [1.0, 2.0, 3.0, 9.0, 0.0])
    assert is_best == [True, True, False, True, False]
    assert flag_front([1.0, 1.0], [1.0, 1.0]) == [True, True]


def test_front_of_random_points_matches_definition():
    points = np.random.default_rng(1).integers(0, 5, (40, 2)).tolist()
    gain, cost = zip(*points, strict=True)
    for point, is_best in zip(points, flag_front(gain, cost), strict=True):
        dominating = [
            other for other in points if other[0] >= point[0] and other[1] <= point[1] and other != point
        ]
        assert is_best == (not dominating)


def test_board_has_a_pareto_front(board):
    result = board.pareto("ward telemetry")
    assert list(result.columns) == ["system", "useful_share", "j_per_useful", "is_best"]
    assert result["is_best"].any()


def test_unsupported_tasks_are_existing_tasks():
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


def find_best(x, y):
    result = pareto_front(TABLE, x, y)
    return set(result.loc[result["is_best"], "system"])


def test_each_measure_has_a_label():
    assert set(LABELS) == set(MEASURES)
    assert set(MEASURES) > GAINS
    assert len(set(LABELS.values())) == len(LABELS)


def test_front_of_gain_and_cost_ignores_axis_order():
    assert find_best("radio_j", "useful_share") == find_best("useful_share", "radio_j") == {"b", "e"}


def test_front_of_two_gains_or_two_costs():
    assert find_best("battery_h", "useful_share") == {"a", "b", "d"}, "e has no value"
    assert find_best("radio_j", "lost") == {"b", "e"}


TASK = PHOTOS.over(devices=6, hours=6.0)
PHOTO_SYSTEMS = {name: ADAPTERS[name] for name in ("to everyone", "Contrail")}


@pytest.fixture(scope="module")
def result():
    return scoreboard([TASK], PHOTO_SYSTEMS, seeds=[4, 5])


@pytest.mark.soak
def test_device_tables_are_of_the_first_seed_and_each_system(result):
    for name, make in PHOTO_SYSTEMS.items():
        entry = run(TASK, make, 4, name=name)
        for kept, expected in ((result.devices, by_device(entry)), (result.disclosures, disclosures(entry))):
            rows = kept.query("task == @TASK.name and system == @name").reset_index(drop=True)
            pd.testing.assert_frame_equal(rows.drop(columns=["task", "system"]), expected)
        latencies = result.latencies.query("system == @name")["latency_s"]
        assert sorted(latencies) == sorted(entry.deliveries.query("status == 'read'")["latency_s"])
    assert result.devices["system"].unique().tolist() == list(PHOTO_SYSTEMS)


def test_no_tables_are_kept_without_privacy():
    bare = scoreboard([TASK], {"to everyone": PHOTO_SYSTEMS["to everyone"]}, seeds=[4], privacy=False)
    assert bare.devices.empty
    assert bare.disclosures.empty
    assert bare.latencies.empty


def test_intervals_stay_within_possible_values(board):
    runs = pd.concat(
        [board.runs.assign(seed=board.runs["seed"] + 2 * k) for k in range(4)], ignore_index=True
    )
    runs["useful_share"] = np.where(runs["seed"] % 3 == 0, 0.97, 1.0)
    runs["lost"] = np.where(runs["seed"] % 5 == 0, 3.0, 0.0)
    rows = replace(board, runs=runs).measures("traffic alerts").dropna(subset=["low"])
    assert (rows["low"] >= 0).all()
    assert (rows.loc[rows["measure"] == "useful_share", "high"] <= 1).all()
    assert ((rows["low"] <= rows["mean"]) & (rows["mean"] <= rows["high"])).all()
