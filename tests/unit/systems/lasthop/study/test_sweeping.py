"""Sweeps, and comparisons of policies on the same events."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mudkit.systems.lasthop import FIGURES, Forwarding, Push, simulate, simulate_grid
from mudkit.systems.lasthop.study.scenario import Scenario
from mudkit.systems.lasthop.study.sweeping import compare_policies, interval

SHORT = {"days": 5, "outage": 0.5}


def test_sweep_returns_a_row_for_each_run_in_order():
    table = simulate_grid({"policy": ["buffer", "on-line"], "prefetch_limit": [1, 4]}, SHORT, seeds=[3, 9])
    assert list(table["policy"]) == ["buffer"] * 4 + ["on-line"] * 4
    assert list(table["prefetch_limit"]) == [1, 1, 4, 4] * 2
    assert list(table["seed"]) == [3, 9] * 4
    run = simulate(policy="buffer", prefetch_limit=4, seed=9, **SHORT)
    row = table.iloc[3]
    assert (row["waste"], row["loss"]) == (run.waste, run.loss)
    assert (row["forwarded"], row["read"], row["best"]) == (run.forwarded, run.read, len(run.online.read_ids))


def test_sweep_is_repeatable_over_any_map():
    over = {"max": [1, 8]}
    one = simulate_grid(over, SHORT, seeds=range(3))
    with ThreadPoolExecutor(2) as pool:
        pd.testing.assert_frame_equal(one, simulate_grid(over, SHORT, seeds=range(3), map=pool.map))


def test_table_contains_the_parameters_of_its_runs():
    table = simulate_grid({"max": [1, None]}, SHORT | {"policy": Forwarding("buffer", 16)}, seeds=[4])
    values = table.attrs["parameters"]
    assert (values["max"], values["days"], values["seeds"], values["reads_cv"]) == ([1, None], 5, [4], 0.1)
    assert values["policy"]["prefetch_limit"] == 16
    assert json.loads(json.dumps(values)) == values


def test_progress_bar_advances_with_each_run(monkeypatch):
    calls = []

    class Bar:
        def __init__(self, total, *words):
            calls.append(total)

        def __enter__(self):
            return calls.append

        def __exit__(self, *error):
            return None

    monkeypatch.setattr("mudkit.systems.lasthop.study.sweeping.bar", Bar)
    simulate_grid({"max": [1, 2]}, SHORT, seeds=range(2))
    assert calls == [4, 1, 2, 3, 4]


@pytest.mark.parametrize("number", FIGURES)
def test_figures_of_the_paper_are_sweeps(number):
    figure = FIGURES[number]
    over = {name: values[:1] for name, values in figure["over"].items()}
    assert len(simulate_grid(over, figure["fixed"] | {"days": 2}, seeds=[1])) == 1
    assert all(len(values) >= 5 for values in figure["over"].values())


def test_runs_are_grouped_by_events_and_rows_keep_the_requested_order():
    runs = []

    def record_and_map(function, points):
        runs.extend((point["outage"], point["seed"], point["prefetch_limit"]) for point in points)
        return map(function, points)

    over = {"prefetch_limit": [4, 1], "outage": [0.5, 0.0]}
    fixed = {"policy": "buffer", "days": 3}
    table = simulate_grid(over, fixed, seeds=[2, 1], map=record_and_map)
    assert [run[:2] for run in runs[::2]] == [run[:2] for run in runs[1::2]]
    requested = list(itertools.product(over["prefetch_limit"], over["outage"], [2, 1]))
    assert list(table[["prefetch_limit", "outage", "seed"]].itertuples(index=False, name=None)) == requested
    for row in table.itertuples():
        single = simulate(prefetch_limit=row.prefetch_limit, outage=row.outage, seed=row.seed, **fixed)
        assert (row.waste, row.loss, row.forwarded) == (single.waste, single.loss, single.forwarded)


def test_policies_are_compared_on_the_same_events():
    table = compare_policies(
        {"few": Scenario(days=20), "none": replace(Scenario(days=20), user_frequency=0.0)},
        {"on-line": Forwarding("on-line"), "on-demand": Forwarding("on-demand"), "push": Push()},
        seeds=range(3),
    )
    assert table[["condition", "policy"]].agg(" ".join, axis=1).tolist() == [
        f"{condition} {policy}"
        for condition in ("few", "none")
        for policy in ("on-line", "on-demand", "push")
    ]
    assert (table["runs"] == 3).all()
    rows = table.set_index(["condition", "policy"])
    assert (rows.loc[(slice(None), "on-line"), "loss"] == 0.0).all()
    assert (rows.loc[(slice(None), "on-demand"), "waste"] == 0.0).all()
    assert rows.loc[("none", "on-line"), "waste"] == 1.0
    few = rows.loc[("few", "on-line")]
    assert 0.4 < few["waste_low"] < few["waste"] < few["waste_high"] < 0.6


def test_intervals_lie_within_the_observed_values():
    values = np.array([0.2, 0.3, 0.25, 0.4])
    assert interval("x", values) == pytest.approx({"x": 0.2875, "x_low": 0.2, "x_high": 0.4})
    many = interval("x", np.array([0.0, 0.1, 0.0, 0.2, 0.0, 0.1]))
    assert 0.0 <= many["x_low"] < many["x"] < many["x_high"] < 0.2
    one = interval("x", values[:1])
    assert one["x"] == 0.2
    assert one["x_low"] != one["x_low"]
